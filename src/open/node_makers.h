/* needs: parts */
#pragma once
/* tests: system/core/tables */
#include "open/node_fetch.h"
#include "open/expand.h"
#include "open/pack.h" /* needs: pack */
#include "open/parts.h"
/* ---- load, expand, filter, pack, window: items of unknown count ---- */

/* A field of a row's desc that something else says: the pipe's desc, the list, the queue. */
typedef struct dlpi_elsewhere {
    const char *field;
    size_t at, bytes, from; /* from: its place in the pipe's desc; 0: it is not there */
    const char *where;
} dlpi_elsewhere;

#define DLPI_SAID(type, f, from, where) \
    { #f, offsetof(type, f), sizeof(((type *)0)->f), from, where }
#define DLPI_RUN(type, f) DLPI_SAID(type, f, offsetof(dlp_pipe_desc, f), "the pipe's desc")
#define DLPI_COMMON(type) \
    DLPI_RUN(type, streams), DLPI_RUN(type, steps_per_epoch), DLPI_RUN(type, uneven), \
        DLPI_RUN(type, shared_streams), DLPI_RUN(type, agree), DLPI_RUN(type, agree_user), \
        DLPI_SAID(type, queue_size, 0, "queue.capacity"), \
        DLPI_SAID(type, workers, 0, "workers of the node")

/* Refuse such fields if the desc of a row sets them, and fill in what the pipe's desc says. */
static int dlpi_node_elsewhere(const dlpi_table *t, const dlp_node *node, void *desc,
                               const dlpi_elsewhere *e, size_t n) {
    for (; n > 0; n--, e++) {
        uint8_t *at = (uint8_t *)desc + e->at;
        static const uint8_t zeros[8];
        const bool workers = e->bytes == sizeof(dlp_workers_desc);
        if (workers ? dlpi_workers_given((dlp_workers_desc *)(void *)at)
                    : memcmp(at, zeros, e->bytes) != 0)
            return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, e->field,
                               "%s is set in the desc of the node; set 0 here, and %s instead",
                               e->field, e->where);
        if (e->from != 0) memcpy(at, (const uint8_t *)t->d + e->from, e->bytes);
    }
    return DLP_OK;
}

/* ---- load, window ---- */

/* The window i rows after the one that is being added: its items; 0: that row is no window. */
static uint32_t dlpi_window_after(const dlpi_table *t, uint32_t i) {
    const dlp_node *node = t->at + i < t->n ? &t->nodes[t->at + i] : NULL;
    return node != NULL && node->verb == DLP_WINDOW ? node->window.items : 0;
}

static int dlpi_node_window_add(dlpi_table *t, const dlp_node *node) {
    if ((dlpi_verb_of(t, node - 1)->is & DLPI_NODE_FINDS) == 0)
        return dlpi_node_bad(t, node, "must stand directly after expand, filter or load");
    return node->window.items > 0 ? DLP_OK
                                  : dlpi_bad(t->p, node->name, "window.items", "1..2^24", 0);
}

static const dlpi_elsewhere dlpi_load_elsewhere[] = {
    DLPI_COMMON(dlp_part_desc), DLPI_SAID(dlp_part_desc, n_parts, 0, "list.n_items"),
    DLPI_SAID(dlp_part_desc, shuffle_parts, 0, "list.shuffle"),
    DLPI_SAID(dlp_part_desc, window, 0, "a window node")};

static int dlpi_node_load_add(dlpi_table *t, const dlp_node *node) {
    dlp_part_desc d = node->load;
    int rc = dlpi_node_elsewhere(t, node, &d, DLPI_ROWS(dlpi_load_elsewhere));
    if (rc != DLP_OK) return rc;
    if (node != t->load) return dlpi_node_bad(t, node, "must stand directly after the list");
    d.queue_size = node->queue.capacity;
    d.workers = node->workers;
    d.n_parts = t->n_items;
    d.shuffle_parts = t->nodes->list.shuffle;
    d.window = dlpi_window_after(t, 1);
    t->unknown = true;
    return dlpi_add_parts(t->p, &d);
}

/* ---- expand, filter, pack ---- */

/* Rows that make items of unknown count: they run in the same workers, one after the other. */
typedef struct dlpi_makers {
    const dlp_node *maker; /* an expand or a pack; NULL: filters alone */
    dlpi_keeps of_inputs, of_items;
    uint64_t id;       /* of all of them, for the fingerprint */
    uint32_t n;        /* rows */
    uint32_t capacity; /* cells of inputs; 0: no row says it */
    dlp_workers_desc workers;
} dlpi_makers;

/* Add the id of a row to the fingerprint. One id alone is the id of the stage. */
static void dlpi_makers_id(dlpi_makers *m, uint64_t id) {
    if (id != 0) m->id = m->id != 0 ? dlpi_absorb(m->id, id) : id;
}

/* True if the source of this fetch row says that DLP_SKIP leaves items out. */
static bool dlpi_fetch_filters(const dlp_node *node) {
    const dlp_source *source = node != NULL ? node->fetch.source : NULL;
    return source != NULL && source->fetch.dataset != NULL && source->fetch.dataset->filter == 1;
}

static int dlpi_makers_filter(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    dlpi_keeps *k = m->maker != NULL ? &m->of_items : &m->of_inputs;
    if (node->filter.keep == NULL && dlpi_fetch_filters(t->waits)) return DLP_OK;
    if (node->filter.keep == NULL)
        return dlpi_missing(t->p, node->name, "filter.keep", "the function that keeps items");
    if (k->n == DLPI_KEEPS) return dlpi_node_bad(t, node, "is the ninth filter in a row");
    k->at[k->n++] = (struct dlpi_keep){node->filter.keep, node->filter.user};
    dlpi_makers_id(m, node->filter.id);
    return DLP_OK;
}

static int dlpi_makers_expand(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    if (m->maker != NULL)
        return dlpi_node_bad(t, node, "stands after another expand; make the items in one of them");
    if (node->expand.expand == NULL)
        return dlpi_missing(t->p, node->name, "expand.expand", "the function that makes items");
    m->maker = node;
    dlpi_makers_id(m, node->expand.id);
    return DLP_OK;
}

/* Take one of these rows. */
static int dlpi_makers_take(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    if (m->maker != NULL && m->maker->verb != DLP_EXPAND)
        return dlpi_node_bad(t, node, "stands after pack, whose rows are whole");
    if (node->verb == DLP_FILTER) return dlpi_makers_filter(t, node, m);
    if (node->verb == DLP_EXPAND) return dlpi_makers_expand(t, node, m);
    if (m->maker != NULL)
        return dlpi_node_bad(t, node, "packs what an expand makes; make the documents in fetch");
    m->maker = node;
    dlpi_makers_id(m, node->pack.id); /* needs: pack */
    return DLP_OK;
}

/* The workers of two rows that run in the same workers: one of the two says which. */
static int dlpi_node_shared(const dlpi_table *t, const dlp_node *before, const dlp_node *node,
                            dlp_workers_desc *to) {
    const bool a = dlpi_workers_given(&before->workers);
    const bool b = dlpi_workers_given(&node->workers);
    *to = dlpi_node_workers(t, a ? before : node);
    if (!a || !b) return DLP_OK;
    return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "workers",
                       "workers is set in \"%s\", too: they share workers; set it in one of them",
                       before->name);
}

/* True if a push is before these rows. Its own thread reads it. */
static bool dlpi_makers_pushed(const dlpi_table *t) {
    return t->waits != NULL && t->waits->verb == DLP_PUSH;
}

static int dlpi_makers_rows(dlpi_table *t, dlpi_makers *m) {
    const bool shares = t->waits != NULL && !dlpi_makers_pushed(t);
    const dlp_node *by = shares ? t->waits : &t->nodes[t->at], *node;
    int rc = DLP_OK;
    m->workers = dlpi_node_workers(t, by);
    m->capacity = t->waits != NULL ? t->waits->queue.capacity : 0;
    for (; (node = dlpi_node_next(t, m->n, DLPI_NODE_MAKES)) != NULL; m->n++) {
        if ((rc = dlpi_makers_take(t, node, m)) != DLP_OK) return rc;
        if (node->queue.capacity != 0 && m->capacity != 0)
            return dlpi_bad(t->p, node->name, "queue.capacity", "0: a row above it has a number",
                            node->queue.capacity);
        m->capacity += node->queue.capacity;
        if (node == by) continue;
        if ((rc = dlpi_node_shared(t, by, node, &m->workers)) != DLP_OK) return rc;
        if (dlpi_workers_given(&node->workers)) by = node;
    }
    return DLP_OK;
}

/* What reads the inputs of an expand directly after the list: nobody does. */
static int dlpi_no_input(void *user, dlp_item *it) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(it);
    return 0;
}

/* Several threads of a worker that fetch are so many workers, each with a cell. */
static int dlpi_makers_threads(dlpi_table *t, dlpi_makers *m, dlp_fetch_desc *f) {
    const int32_t n = m->workers.num_workers > 0 ? m->workers.num_workers : 1;
    const int rc =
        dlpi_within(t->p, t->waits->name, "workers.num_workers", m->workers.num_workers, 0,
                    DLP_MAX_WORKERS, "0..1024 with in_flight: next makes one item after the other");
    if (f->in_flight == 0) f->in_flight = 16;
    if (rc != DLP_OK) return rc;
    if (m->workers.worker_init != NULL)
        return dlpi_refuse(
            t->p, DLP_ERR_ARG, t->waits->name, "fetch.in_flight",
            "in_flight is %d; threads of a worker do not share a worker_state before "
            "\"%s\": set more workers, or async",
            (int)f->in_flight, t->nodes[t->at].name);
    if (n > DLP_MAX_WORKERS / f->in_flight)
        return dlpi_bad(t->p, t->waits->name, "fetch.in_flight", "at most 1024 / num_workers",
                        f->in_flight);
    m->workers.num_workers = n * f->in_flight;
    f->fetcher = DLP_FETCH_SEQUENTIAL;
    f->in_flight = 0;
    return DLP_OK;
}

/* The push before these rows: add the stage that reads it. */
static int dlpi_makers_push(dlpi_table *t, dlp_dataset *ds) {
    const dlp_node *node = t->waits;
    const char *field = dlpi_run_given(t->d, false);
    const dlp_source *source = dlp_push_source(node->push.source);
    dlp_workers_desc w = node->workers;
    dlpi_stage *st;
    int rc;
    if (field != NULL)
        return dlpi_refuse(t->p, DLP_ERR_ARG, "", field,
                           "%s is set, and the items of \"%s\" are pushed: they are one stream, "
                           "which ends; set 0",
                           field, node->name);
    if (t->d->world_size > 1)
        return dlpi_bad(t->p, "", "world_size", "1 with a push: what comes once has no ranks",
                        t->d->world_size);
    if ((rc = dlpi_fetch_workers(t, node, source, &w)) != DLP_OK) return rc;
    *ds = *source->fetch.dataset;
    ds->open_end = 0;
    ds->n_items = DLPI_MAX_ITEMS; /* the number of a record is below it */
    t->p->node = node->name;
    if ((st = dlpi_add(t->p, &dlpi_push_ops, "push", &w)) == NULL) return t->p->err.code;
    return dlpi_added(t->p, st, DLP_OK);
}

/* The fetch before these rows. */
static int dlpi_makers_inputs(dlpi_table *t, dlpi_makers *m, dlp_fetch_desc *f, dlp_dataset *ds) {
    if (dlpi_makers_pushed(t)) return dlpi_makers_push(t, ds);
    if (t->waits != NULL) {
        int rc = dlpi_fetch_descs(t, t->waits, f, ds);
        if (rc == DLP_OK) rc = dlpi_fetch_workers(t, t->waits, t->waits->fetch.source, &m->workers);
        return rc == DLP_OK && f->fetcher == DLP_FETCH_THREADS ? dlpi_makers_threads(t, m, f) : rc;
    }
    if (m->maker == NULL || m->maker->expand.n_fields == 0)
        return dlpi_bad(t->p, t->nodes[t->at].name, "expand.n_fields",
                        "1..16 without a fetch before it", 0);
    *f = (dlp_fetch_desc){.dataset = ds};
    *ds = (dlp_dataset){.n_items = t->n_items, .fetch = dlpi_no_input};
    return DLP_OK;
}

/* The desc of an expand, or of filters alone. node: their row that names the stage. */
static int dlpi_makers_expand_desc(dlpi_table *t, const dlp_node *node, const dlpi_makers *m,
                                   dlp_expand_desc *d) {
    static const dlpi_elsewhere of[] = {DLPI_COMMON(dlp_expand_desc),
                                        DLPI_SAID(dlp_expand_desc, window, 0, "a window node")};
    int rc;
    if (m->maker != NULL) *d = node->expand;
    if ((rc = dlpi_node_elsewhere(t, node, d, DLPI_ROWS(of))) != DLP_OK) return rc;
    d->queue_size = m->capacity;
    d->workers = m->workers;
    d->id = m->id;
    d->window = dlpi_window_after(t, m->n);
    return DLP_OK;
}

/* The stage that makes items. Its pack or expand names it, else its first filter. */
static dlp_stage dlpi_makers_stage(dlpi_table *t, const dlpi_makers *m) {
    const dlp_node *node = m->maker != NULL ? m->maker : &t->nodes[t->at];
    dlp_expand_desc d = {.expand = NULL};
    int rc;
    t->p->node = node->name;
    if (node->verb == DLP_PACK) {                                        /* needs: pack */
        static const dlpi_elsewhere of[] = {DLPI_COMMON(dlp_pack_desc)}; /* needs: pack */
        dlp_pack_desc k = node->pack;                                    /* needs: pack */
        rc = dlpi_node_elsewhere(t, node, &k, DLPI_ROWS(of));            /* needs: pack */
        k.queue_size = m->capacity;                                      /* needs: pack */
        k.workers = m->workers;                                          /* needs: pack */
        k.id = m->id;                                                    /* needs: pack */
        return rc != DLP_OK ? rc : dlpi_add_pack(t->p, &k);              /* needs: pack */
    }                                                                    /* needs: pack */
    rc = dlpi_makers_expand_desc(t, node, m, &d);
    return rc != DLP_OK ? rc : dlpi_add_expand(t->p, &d);
}

/* Add the stage that copies items into rows. made: their fields; w: the workers that make them. */
static int dlpi_copies_add(dlpi_table *t, const dlp_workers_desc *w, const dlp_dataset *made,
                           dlp_fetch_desc *f) {
    const dlp_node *batch = t->nodes;
    int32_t n = w->num_workers > 2 ? 2 : w->num_workers;
    while (batch < t->nodes + t->n - 1 && batch->verb != DLP_BATCH) batch++;
    if (dlpi_filter_bytes(made, batch->batch.batch_size) <= DLPI_FILTER_INLINE || n == DLP_NONE)
        n = 0;
    if (batch->verb == DLP_BATCH && batch->batch.copy_workers != 0)
        n = batch->batch.copy_workers == DLP_NONE ? 0 : batch->batch.copy_workers;
    f->workers = (dlp_workers_desc){.num_workers = n, .placement = w->placement};
    t->fetched = t->copies = true;
    return dlpi_add_fetch(t->p, f);
}

/* The stage that copies the items into rows. */
static int dlpi_makers_copies(dlpi_table *t, const dlpi_makers *m, dlp_fetch_desc *f) {
    dlp_dataset made = *f->dataset;
    if (m->maker != NULL && m->maker->verb == DLP_EXPAND && m->maker->expand.n_fields > 0) {
        made.fields = m->maker->expand.fields;
        made.n_fields = m->maker->expand.n_fields;
    }
    t->p->node = t->waits != NULL && !dlpi_makers_pushed(t) ? t->waits->name : "copy";
    return dlpi_copies_add(t, &m->workers, &made, f);
}

/* Rows like these stand together, behind the first fetch, or behind the list. */
static int dlpi_makers_place(const dlpi_table *t, const dlp_node *node) {
    if (t->load != NULL)
        return dlpi_node_bad(t, node, "stands after a load node; do its work in that node's load");
    if (t->waits == node - 1 || (t->at == 1 && node->verb == DLP_EXPAND)) return DLP_OK;
    return dlpi_node_bad(t, node,
                         "must stand directly after the first fetch, a push, an expand or a "
                         "filter (an expand also after the list)");
}

static int dlpi_node_makes_add(dlpi_table *t, const dlp_node *node) {
    dlpi_makers m = {.n = 0};
    dlp_dataset ds = {.n_items = 0};
    dlp_fetch_desc f = {.dataset = &ds};
    dlpi_expand *x;
    int rc = dlpi_makers_place(t, node), reader;
    if (rc == DLP_OK) rc = dlpi_makers_rows(t, &m);
    if (rc == DLP_OK) rc = dlpi_makers_inputs(t, &m, &f, &ds);
    if ((reader = rc) < 0) return rc;
    if (dlpi_table_turns(t))
        return dlpi_node_bad(t, node,
                             "needs queue.deal DLP_DEAL_RUNS in the list: items of "
                             "unknown count are dealt in runs");
    if ((rc = dlpi_makers_stage(t, &m)) < 0) return rc;
    x = t->p->stages[rc].self;
    x->of_inputs = m.of_inputs;
    x->of_items = m.of_items;
    if (dlpi_makers_pushed(t)) x->found.arrivals = t->p->stages[reader].self;
    if (f.fetcher == DLP_FETCH_ASYNC) {
        const uint32_t many = f.in_flight > 0 ? (uint32_t)f.in_flight : 16;
        rc = dlpi_reads_take(t->p, &t->p->stages[rc], &f.async, many);
        if (rc != DLP_OK) return rc;
        f.fetcher = DLP_FETCH_SEQUENTIAL;
        f.in_flight = 0;
        if (ds.fetch == NULL) ds.fetch = dlpi_no_input; /* nobody calls it */
    }
    rc = dlpi_makers_copies(t, &m, &f);
    t->at += m.n - 1;
    t->unknown = true;
    return rc;
}

/* ---- the rows of a loader ---- */

/* The part queue of a loader. What the list, the run and the queue say is no field of the row. */
static void dlpi_loader_parts(const dlp_loader_desc *d, dlp_nodes *to) {
    const dlpi_elsewhere *e = dlpi_load_elsewhere;
    dlp_node_list *list = &to->nodes[0].list;
    dlp_node *node;
    if (d->parts.load == NULL && d->parts.n_parts == 0 && d->parts.max_part_bytes == 0) return;
    node = dlpi_nodes_row(to, DLP_LOAD, "parts", &d->parts.workers);
    node->queue.capacity = d->parts.queue_size;
    node->load = d->parts;
    list->n_items = d->parts.n_parts;
    list->shuffle = d->shuffle == 1 ? 1 : d->parts.shuffle_parts;
    if (d->shuffle == 1) node->load.shuffle_items = 1;
    to->order.order = DLP_ORDER_SEQUENTIAL;
    for (size_t i = 0; i < sizeof dlpi_load_elsewhere / sizeof *e; i++, e++) {
        uint8_t *at = (uint8_t *)&node->load + e->at;
        if (e->from != 0) memcpy((uint8_t *)&to->pipe + e->from, at, e->bytes);
        memset(at, 0, e->bytes);
    }
    if (d->parts.window > 0)
        dlpi_nodes_row(to, DLP_WINDOW, "window", NULL)->window.items = d->parts.window;
}

/* The fetch of a loader whose dataset is a filter: a filter row makes the items. It has the
   workers. */
static int dlpi_loader_filter(dlp_pipe *p, const dlp_fetch_desc *d, const dlp_source *of,
                              dlp_nodes *to) {
    dlp_fetch_desc f = *d;
    dlp_node *node;
    if (to->n > 1)
        return dlpi_bad(p, "", "dataset.filter", "0 with parts, whose load may leave items out", 1);
    if (f.fetcher != DLP_FETCH_SEQUENTIAL)
        return dlpi_bad(p, "", "fetch.fetcher",
                        "DLP_FETCH_SEQUENTIAL (and in_flight 0) with dataset.filter", f.fetcher);
    if (f.workers.dispatch == DLP_DISPATCH_BATCHES)
        return dlpi_bad(p, "", "dataset.filter",
                        "0 with whole batches to each worker (topology, dispatch)", 1);
    f.workers = (dlp_workers_desc){.num_workers = 0};
    dlpi_nodes_fetch(to, "fetch", &f, of);
    node = dlpi_nodes_row(to, DLP_FILTER, "filter", &d->workers);
    if (node->workers.num_workers == 0) node->workers.num_workers = DLP_NONE;
    return DLP_OK;
}
