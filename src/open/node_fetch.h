#pragma once
/* tests: system/core/tables */
#include "open/node_list.h"
/* ---- fetch, map: what writes the fields of items ---- */

/* ---- fields in the order of a table ---- */

/* Let the callback of a stage see fields so. k: what the stage keeps. */
static void dlpi_seeing_take(dlpi_stage *st, dlpi_seeing *k, const dlpi_seeing *order) {
    if (order == NULL || order->n == 0) return;
    *k = *order;
    k->callback = st->item;
    k->user = st->user;
    st->item = dlpi_seeing_call;
    st->user = k;
}

/* ---- a fetch ---- */

/* Write into *f and *ds what a fetch row says, itself or by its source. Returns 0 or a DLP_ERR
   code. */
static int dlpi_fetch_said(dlpi_table *t, const dlp_node *node, dlp_source *f, dlp_dataset *ds) {
    const dlp_node_fetch *d = &node->fetch;
    const bool own = d->source == NULL;
    bool none = d->async == NULL && d->fetch == NULL;
    int rc;
    none = none && d->fetch_rows == NULL; /* needs: runs */
    if (own && none)
        return dlpi_missing(t->p, node->name, "fetch.fetch", "the function that writes an item");
    if (!own && d->source->dataset == NULL)
        return dlpi_missing(t->p, node->name, "dataset", "the items of the source");
    if (!own) *f = *d->source;
    if (own) *f = (dlp_source){.batch_pool = d->batch_pool};
    if (d->async != NULL) f->async = *d->async;
    if (own)
        f->fetcher = d->async != NULL   ? DLP_FETCH_ASYNC
                     : d->in_flight > 1 ? DLP_FETCH_THREADS
                                        : DLP_FETCH_SEQUENTIAL;
    *ds = !own ? *d->source->dataset
               : (dlp_dataset){.fields = d->fields,
                               .n_fields = d->n_fields,
                               .writes_all_bytes = (uint32_t)d->writes_all_bytes,
                               .fetch = d->fetch,
                               .fetch_rows = d->fetch_rows,
                               .user = d->user};
    if (ds->fields == NULL)
        return dlpi_missing(t->p, node->name, own ? "fetch.fields" : "source.dataset.fields",
                            "an array of n_fields fields");
    rc = dlpi_within(t->p, node->name, "in_flight", f->in_flight, 0, 1024, "0..1024");
    if (rc != DLP_OK) return rc;
    return dlpi_within(t->p, node->name, own ? "fetch.n_fields" : "source.dataset.n_fields",
                       ds->n_fields, 1, DLP_MAX_FIELDS, "1..16");
}

/* Set *n to how many items a fetch row reads: all, or those of its dataset of the list's mix.
   Returns 0 or a DLP_ERR code. */
static int dlpi_fetch_items(dlpi_table *t, const dlp_node *node, uint64_t *n) {
    const dlp_mix *mix = t->nodes[0].verb == DLP_LIST ? t->nodes[0].list.mix : NULL;
    const uint32_t of = node->fetch.of, most = mix != NULL ? mix->n : 0;
    const bool all = t->fetched && t->of == 0; /* one fetch has the items of all datasets */
    *n = t->n_items;
    if (of == 0 && t->of == 0) return DLP_OK;
    if (mix == NULL && node->fetch.source != NULL) {
        t->of = of > 0 ? of : t->of;
        return DLP_OK;
    }
    if (mix == NULL || of > most || of != t->of + 1 || all) {
        /* a later fetch, of fields of all items */
        if (of == 0 && (mix == NULL || t->of == most)) return DLP_OK;
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "fetch.of",
                           "fetch.of is %" PRIu32 ", must be %" PRIu32 ": %s", of,
                           t->of < most && !all ? t->of + 1 : 0,
                           mix != NULL ? "the datasets of list.mix are fetched in order"
                                       : "write list.mix, or a source in each such row");
    }
    t->of = of;
    *n = mix->part[of - 1].items;
    return DLP_OK;
}

/* Count the items of the dataset *ds of a fetch row. Returns 0 or a DLP_ERR code. */
static int dlpi_fetch_dataset(dlpi_table *t, const dlp_node *node, dlp_dataset *ds) {
    const dlp_node_fetch *d = &node->fetch;
    const dlp_node_list *l = t->list->verb == DLP_LIST ? &t->list->list : NULL;
    const bool told = l != NULL && t->load == NULL && /* a range has a source's number already */
                      (l->mix != NULL || (l->n_items != 0 && l->n_items == t->n_items));
    uint64_t n;
    const int rc = dlpi_fetch_items(t, node, &n);
    if (rc != DLP_OK) return rc;
    if (d->source == NULL) ds->n_items = t->load == NULL ? n : t->fetched ? DLPI_MAX_ITEMS : 0;
    if (told && ds->n_items != n)
        return dlpi_refuse(
            t->p, DLP_ERR_ARG, t->list->name, l->mix != NULL ? "list.mix" : "list.n_items",
            "%s is %" PRIu64 ", and the source of \"%s\" has %" PRIu64 " items; set %s",
            l->mix != NULL ? "n_items of the mix" : "list.n_items", n, node->name, ds->n_items,
            l->mix != NULL ? "that number" : "0, which takes that number");
    if (!told && d->source != NULL && (d->of > 0 || t->n_items == 0)) t->n_items += ds->n_items;
    if (l != NULL && l->open_end) ds->open_end = 1;
    return DLP_OK;
}

/* Write what a fetch row says into *f, whose dataset is *ds. Returns 0 or a DLP_ERR code. */
static int dlpi_fetch_descs(dlpi_table *t, const dlp_node *node, dlp_source *f, dlp_dataset *ds) {
    int rc;
    if (t->list->verb == DLP_PUSH && !dlpi_node_is(t, node - 1, DLPI_NODE_LOADS))
        return dlpi_node_bad(t, node,
                             "fetches by the number of an item, and pushed items have none; push "
                             "its fields, or add them in a map");
    rc = dlpi_fetch_said(t, node, f, ds);
    if (rc == DLP_OK) rc = dlpi_fetch_dataset(t, node, ds);
    if (rc != DLP_OK) return rc;
    if (node->fetch.in_flight > 0) f->in_flight = (int32_t)node->fetch.in_flight;
    f->dataset = ds;
    return DLP_OK;
}

/* Give the workers *w of a row the callbacks of the row's source, if the source has any. source may
   be NULL. Returns 0 or a DLP_ERR code. */
static int dlpi_fetch_workers(const dlpi_table *t, const dlp_node *node, const dlp_source *source,
                              dlp_workers_desc *w) {
    const dlp_workers_desc *of = source != NULL ? &source->workers : NULL;
    if (of == NULL || of->worker_init == NULL) return DLP_OK;
    if (w->worker_init != NULL || w->worker_exit != NULL || w->worker_user != NULL ||
        w->tell != NULL)
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "workers.worker_init",
                           "the source of \"%s\" has a worker_init; leave worker_init, "
                           "worker_exit, worker_user and tell NULL",
                           node->name);
    w->worker_init = of->worker_init;
    w->worker_exit = of->worker_exit;
    w->worker_user = of->worker_user;
    w->tell = of->tell;
    return DLP_OK;
}

/* ---- rows that run in the attempts of the stage before ---- */

/* True if a row runs in the attempts of the stage before it. Else it gets a stage of its own. What
   it says of its failures holds there, too. In a stream, whose end decides what has failed, that
   holds for a whole stage. A deadline holds where one callback runs at a time. */
static bool dlpi_row_chains(const dlpi_table *t, const dlp_node *node) {
    const bool stream = t->list->verb != DLP_LIST || t->list->list.open_end != 0;
    const dlpi_stage *st = t->chained != 0 ? &t->p->stages[t->chained - 1] : NULL;
    dlp_workers_desc rest = node->workers;
    if (st == NULL || t->chained_at != t->at || t->ending != NULL) return false;
    if (!stream && (rest.on_error != DLP_ON_ERROR_REPLACE || dlpi_end_replaces(st))) {
        dlpi_policy_take(&rest, &dlpi_says_nothing);
        if (dlpi_one_at_once(st)) rest.deadline_ms = 0;
    }
    return !dlpi_workers_given(&rest);
}

/* Add callback `row` of a node, and n fields f, to the stage before. Returns 0 or a DLP_ERR
   code. */
static int dlpi_row_chain(dlpi_table *t, const dlp_node *node, dlpi_op row, const dlp_field *f,
                          uint32_t n) {
    dlpi_stage *st = &t->p->stages[t->chained - 1], one = *st;
    int rc;
    one.w = node->workers;
    dlpi_copy_text(one.name, sizeof one.name, node->name);
    if ((rc = dlpi_check_workers(t->p, &one)) != DLP_OK) return rc;
    row.row = dlpi_row_named(t->p, node->name);
    t->chained_at = t->at + 1;
    return dlpi_chain_add(t->p, st, &row, f, n);
}

/* Note if the next row may run in the attempts of stage `id`, which the present row has added.
   Returns id. */
static int dlpi_row_chainable(dlpi_table *t, int id) {
    const dlpi_stage *st = id >= 0 ? &t->p->stages[id] : NULL;
    const bool reads = st != NULL && st->dataset != NULL && dlpi_reader_of(st->dataset) != NULL;
    const bool may = st != NULL && st->ops->program_at != 0 && !reads && t->ending == NULL;
    t->chained = may ? id + 1 : 0;
    t->chained_at = t->at + 1;
    return id;
}

/* Add a fetch row: its stage, or its callback in the attempts of the stage before. Returns DLP_OK,
   a stage number, or a DLP_ERR code. */
static int dlpi_node_fetch_add(dlpi_table *t, const dlp_node *node) {
    dlpi_ends e = {.all = 0};
    dlp_source f;
    dlp_dataset ds;
    int rc;
    if (t->batched) return dlpi_node_bad(t, node, "stands after the batch; write it before");
    if ((rc = dlpi_fetch_descs(t, node, &f, &ds)) != DLP_OK) return rc;
    f.workers = dlpi_row_workers(t, node);
    if ((rc = dlpi_fetch_workers(t, node, node->fetch.source, &f.workers)) != DLP_OK) return rc;
    if (t->ops->part != NULL && (rc = t->ops->part(t, node, &ds, &e)) != DLP_OK) return rc;
    if (e.all > e.stay) {
        ds.fields = e.fields;
        ds.n_fields = e.stay;
    }
    if (node->queue.capacity != 0 && e.all == e.stay)
        return dlpi_bad(t->p, node->name, "queue.capacity",
                        "0: no field of this node ends in a map", node->queue.capacity);
    if (t->fetched && t->ops->later == NULL)
        return dlpi_node_bad(t, node, "is a second fetch; compile without DLPIPE_NO_JOIN");
    if (t->fetched && t->load == NULL && node->fetch.source == NULL && node->fetch.of == 0 &&
        f.fetcher == DLP_FETCH_SEQUENTIAL && f.batch_pool == 0 && ds.writes_all_bytes <= 1 &&
        !ds.open_end && ds.fetch_rows == NULL && dlpi_row_chains(t, node))
        return dlpi_row_chain(/* a wrong desc gets a stage of its own, which refuses it */
                              t, node,
                              (dlpi_op){.fn.call = ds.fetch,
                                        .user = ds.user,
                                        .own = (uint8_t)ds.n_fields},
                              ds.fields, ds.n_fields);
    rc = t->fetched ? t->ops->later(t, &f, node->fetch.of > 0) : dlpi_add_fetch(t->p, &f);
    if (rc < 0) return rc;
    if (!t->fetched) {
        t->fetchers = f.workers.num_workers;
        if (node->fetch.of == 0) dlpi_row_chainable(t, rc);
    }
    t->fetched = true;
    dlpi_seeing_take(&t->p->stages[rc], &((dlpi_fetch *)t->p->stages[rc].self)->seeing, &e.seen);
    return e.all > e.stay ? t->ops->ends(t, node, &e) : DLP_OK;
}

static const dlp_field *dlpi_fetch_fields(const dlp_node *node, uint32_t *n) {
    const dlp_dataset *ds = node->fetch.source != NULL ? node->fetch.source->dataset : NULL;
    *n = ds != NULL ? ds->n_fields : node->fetch.n_fields;
    return ds != NULL ? ds->fields : node->fetch.fields;
}

static const dlp_field *dlpi_node_fetch_fields(const dlp_node *node, uint32_t *n) {
    return node->fetch.of > 1 ? NULL : dlpi_fetch_fields(node, n); /* a mix has fields once */
}

static const dlp_field *dlpi_node_map_fields(const dlp_node *node, uint32_t *n) {
    *n = node->map.n_fields;
    return node->map.fields;
}

/* ---- map ---- */

/* Check that a map row has the callback of its place alone: item before the batch, batch behind it.
   Returns 0 or a DLP_ERR code. */
static int dlpi_map_given(dlpi_table *t, const dlp_node *node) {
    const dlp_node_map *m = &node->map;
    int rc =
        dlpi_check_pair(t->p, node->name, "map.fields", m->fields, "map.n_fields", m->n_fields);
    if (rc == DLP_OK)
        rc = dlpi_within(t->p, node->name, "map.n_fields", m->n_fields, 0,
                         t->batched && t->ops->makes == NULL ? 0 : DLP_MAX_FIELDS,
                         "0..16, and 0 after the batch with DLPIPE_NO_PARTS");
    if (rc == DLP_OK && t->batched) rc = dlpi_batch_map_given(t, node); /* needs: parts */
    if (rc == DLP_OK && t->batched && m->batch == NULL)
        rc = dlpi_missing(t->p, node->name, "map.batch", "it to a map after the batch");
    if (rc == DLP_OK && !t->batched && m->item == NULL)
        rc = dlpi_missing(t->p, node->name, "map.item", "it to a map before the batch");
    if (rc == DLP_OK && m->item != NULL && m->batch != NULL)
        rc = dlpi_not_null(t->p, node->name, t->batched ? "map.item" : "map.batch",
                           t->batched ? "after the batch" : "before the batch");
    return rc;
}

/* Add a map row: its stage, or its callback in the attempts of the stage before. Returns DLP_OK, a
   stage number, or a DLP_ERR code. */
static int dlpi_node_map_add(dlpi_table *t, const dlp_node *node) {
    const dlp_node_map *m = &node->map;
    const dlp_workers_desc w = dlpi_row_workers(t, node);
    dlpi_seeing seen = {.n = 0};
    dlpi_stage *st;
    int rc = dlpi_map_given(t, node);
    if (rc == DLP_OK && m->ends != NULL)
        rc = t->ops->see != NULL ? t->ops->see(t, node, &seen)
                                 : dlpi_not_null(t->p, node->name, "map.ends",
                                                 "with DLPIPE_NO_SCRATCH; compile without it");
    if (rc != DLP_OK) return rc;
    if (!t->batched && m->ends == NULL && dlpi_row_chains(t, node))
        return dlpi_row_chain(t, node, (dlpi_op){.fn.call = m->item, .user = m->user}, m->fields,
                              m->n_fields);
    st = dlpi_add(t->p, t->batched ? &dlpi_map_batch_ops : &dlpi_map_item_ops, "map", &w);
    if (st == NULL) return t->p->err.code;
    st->item = m->item;
    st->batch = m->batch;
    st->user = m->user;
    rc = (t->batched ? dlpi_check_batch_workers : dlpi_check_workers)(t->p, st);
    rc = dlpi_added(t->p, st, rc);
    if (rc < 0) return rc;
    if (!t->batched) dlpi_seeing_take(st, st->self, &seen);
    if ((rc = dlpi_keep_fields(t->p, st, m->fields, m->n_fields)) != DLP_OK) return rc;
    if (t->batched) return st->id;
    return m->ends != NULL ? DLP_OK : dlpi_row_chainable(t, st->id);
}
