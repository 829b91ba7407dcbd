/* needs: parts */
#pragma once
/* tests: system/core/tables */
#include "open/node_fetch.h"
#include "open/expand.h"
#include "open/pack.h" /* needs: pack */
#include "open/parts.h"
/* ---- load, expand, filter, pack, window: items of unknown count ---- */

/* Fields of a row's desc that something else says: the pipe's desc, the list, the queue. */
typedef struct dlpi_elsewhere {
    const char *field;
    size_t at, bytes;
    const char *where;
} dlpi_elsewhere;

#define DLPI_ELSEWHERE(type, field, where) \
    { #field, offsetof(type, field), sizeof(((type *)0)->field), where }
#define DLPI_ELSEWHERE_OF(type) \
    DLPI_ELSEWHERE(type, streams, "the pipe's desc"), \
        DLPI_ELSEWHERE(type, steps_per_epoch, "the pipe's desc"), \
        DLPI_ELSEWHERE(type, uneven, "the pipe's desc"), \
        DLPI_ELSEWHERE(type, shared_streams, "the pipe's desc"), \
        DLPI_ELSEWHERE(type, agree, "the pipe's desc"), \
        DLPI_ELSEWHERE(type, agree_user, "the pipe's desc"), \
        DLPI_ELSEWHERE(type, queue_size, "queue.capacity"), \
        DLPI_ELSEWHERE(type, workers, "workers of the node")

static int dlpi_node_elsewhere(const dlpi_table *t, const dlp_node *node, const void *desc,
                               const dlpi_elsewhere *e, size_t n) {
    for (; n > 0; n--, e++)
        if (!dlpi_all_zero((const uint8_t *)desc + e->at, e->bytes))
            return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, e->field,
                               "%s is set in the desc of the node; set 0 here, and %s instead",
                               e->field, e->where);
    return DLP_OK;
}

/* Fill in what the pipe's desc, the queue and the workers of a row say. */
#define DLPI_FROM_TABLE(to, t, capacity, w) \
    do { \
        (to)->streams = (t)->d->streams; \
        (to)->steps_per_epoch = (t)->d->steps_per_epoch; \
        (to)->uneven = (t)->d->uneven; \
        (to)->shared_streams = (t)->d->shared_streams; \
        (to)->agree = (t)->d->agree; \
        (to)->agree_user = (t)->d->agree_user; \
        (to)->queue_size = (capacity); \
        (to)->workers = (w); \
    } while (0)

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

static int dlpi_node_load_add(dlpi_table *t, const dlp_node *node) {
    static const dlpi_elsewhere elsewhere[] = {
        DLPI_ELSEWHERE_OF(dlp_part_desc), DLPI_ELSEWHERE(dlp_part_desc, n_parts, "list.n_items"),
        DLPI_ELSEWHERE(dlp_part_desc, shuffle_parts, "list.shuffle"),
        DLPI_ELSEWHERE(dlp_part_desc, window, "a window node")};
    dlp_part_desc d = node->load;
    int rc = dlpi_node_elsewhere(t, node, &d, DLPI_ROWS(elsewhere));
    if (rc != DLP_OK) return rc;
    if (node != t->load) return dlpi_node_bad(t, node, "must stand directly after the list");
    DLPI_FROM_TABLE(&d, t, node->queue.capacity, node->workers);
    d.n_parts = t->n_items;
    d.shuffle_parts = t->nodes->list.shuffle;
    d.window = dlpi_window_after(t, 1);
    t->unknown = true;
    return dlp_pipe_add_parts(t->p, &d);
}

/* ---- expand, filter, pack ---- */

/* Rows that make items of unknown count: they run in the same workers, one after the other. */
typedef struct dlpi_makers {
    const dlp_node *expand, *pack; /* NULL: none */
    dlpi_keeps of_inputs, of_items;
    uint64_t id;           /* of all of them, for the fingerprint */
    uint32_t n;            /* rows */
    const dlp_node *cells; /* the row that says how many cells there are; NULL: none */
    dlp_workers_desc workers;
} dlpi_makers;

/* Add what a row says to the fingerprint. A row alone gives the number that its stage would have. */
static void dlpi_makers_id(dlpi_makers *m, uint64_t id) {
    if (id != 0) m->id = m->id != 0 ? dlpi_absorb(m->id, id) : id;
}

static int dlpi_makers_filter(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    dlpi_keeps *k = m->expand != NULL ? &m->of_items : &m->of_inputs;
    if (node->filter.keep == NULL)
        return dlpi_missing(t->p, node->name, "filter.keep", "the function that keeps items");
    if (k->n == DLPI_KEEPS) return dlpi_node_bad(t, node, "is the ninth filter in a row");
    k->at[k->n++] = (struct dlpi_keep){node->filter.keep, node->filter.user};
    dlpi_makers_id(m, node->filter.id);
    return DLP_OK;
}

static int dlpi_makers_expand(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    static const dlpi_elsewhere elsewhere[] = {
        DLPI_ELSEWHERE_OF(dlp_expand_desc),
        DLPI_ELSEWHERE(dlp_expand_desc, window, "a window node")};
    if (m->expand != NULL)
        return dlpi_node_bad(t, node, "stands after another expand; make the items in one of them");
    if (node->expand.expand == NULL)
        return dlpi_missing(t->p, node->name, "expand.expand", "the function that makes items");
    m->expand = node;
    dlpi_makers_id(m, node->expand.id);
    return dlpi_node_elsewhere(t, node, &node->expand, DLPI_ROWS(elsewhere));
}

static const dlpi_elsewhere dlpi_of_pack[] = {DLPI_ELSEWHERE_OF(dlp_pack_desc)}; /* needs: pack */

/* All these rows have the cells of one stage: one row says how many. */
static int dlpi_makers_cells(const dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    if (node->queue.capacity == 0) return DLP_OK;
    if (m->cells != NULL)
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "queue.capacity",
                           "queue.capacity is set in \"%s\" and in \"%s\", which have the same "
                           "cells; set it in one of them",
                           m->cells->name, node->name);
    m->cells = node;
    return DLP_OK;
}

/* Take one of these rows. */
static int dlpi_makers_take(dlpi_table *t, const dlp_node *node, dlpi_makers *m) {
    int rc = dlpi_makers_cells(t, node, m);
    if (rc != DLP_OK) return rc;
    if (m->pack != NULL) return dlpi_node_bad(t, node, "stands after pack, whose rows are whole");
    if (node->verb == DLP_FILTER) return dlpi_makers_filter(t, node, m);
    if (node->verb == DLP_EXPAND) return dlpi_makers_expand(t, node, m);
    m->pack = node;
    if (m->expand != NULL)
        return dlpi_node_bad(t, node, "packs what an expand makes; make the documents in fetch");
    rc = dlpi_node_elsewhere(t, node, &node->pack, DLPI_ROWS(dlpi_of_pack)); /* needs: pack */
    return rc;
}

/* The workers of two rows that run in the same workers: one of the two says which. */
static int dlpi_node_shared(const dlpi_table *t, const dlp_node *before, const dlp_node *node,
                            dlp_workers_desc *to) {
    const bool a = !dlpi_all_zero(&before->workers, sizeof before->workers);
    const bool b = !dlpi_all_zero(&node->workers, sizeof node->workers);
    *to = dlpi_node_workers(t, a ? before : node);
    if (!a || !b) return DLP_OK;
    return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "workers",
                       "workers is set in \"%s\" and in \"%s\", which run in the same workers; set "
                       "it in one of them",
                       before->name, node->name);
}

static int dlpi_makers_rows(dlpi_table *t, dlpi_makers *m) {
    const dlp_node *by = t->waits != NULL ? t->waits : &t->nodes[t->at], *node;
    int rc = DLP_OK;
    m->workers = dlpi_node_workers(t, by);
    if (t->waits != NULL && t->waits->queue.capacity != 0)
        return dlpi_bad(t->p, by->name, "queue.capacity", "0: no field of this node ends in a map",
                        by->queue.capacity);
    for (; (node = dlpi_node_next(t, m->n, DLPI_NODE_MAKES)) != NULL; m->n++) {
        if ((rc = dlpi_makers_take(t, node, m)) != DLP_OK) return rc;
        if (node == by) continue;
        if ((rc = dlpi_node_shared(t, by, node, &m->workers)) != DLP_OK) return rc;
        if (!dlpi_all_zero(&node->workers, sizeof node->workers)) by = node;
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

/* The fetch before these rows. */
static int dlpi_makers_inputs(dlpi_table *t, dlpi_makers *m, dlp_fetch_desc *f, dlp_dataset *ds) {
    if (t->waits != NULL) {
        int rc = dlpi_fetch_descs(t, t->waits, f, ds);
        if (rc == DLP_OK) rc = dlpi_fetch_workers(t, t->waits, &m->workers);
        return rc == DLP_OK && f->fetcher == DLP_FETCH_THREADS ? dlpi_makers_threads(t, m, f) : rc;
    }
    if (t->fetched || m->expand != &t->nodes[t->at])
        return dlpi_node_bad(t, &t->nodes[t->at],
                             "must stand after the first fetch (an expand after the list, too)");
    if (m->expand->expand.n_fields == 0)
        return dlpi_bad(t->p, m->expand->name, "expand.n_fields", "1..16 without a fetch before it",
                        0);
    *f = (dlp_fetch_desc){.dataset = ds};
    *ds = (dlp_dataset){.n_items = t->n_items, .fetch = dlpi_no_input};
    return DLP_OK;
}

/* The stage that makes items; its first row names it. */
static dlp_stage dlpi_makers_stage(dlpi_table *t, const dlpi_makers *m) {
    const uint32_t cells = m->cells != NULL ? m->cells->queue.capacity : 0;
    dlp_expand_desc d = {.expand = NULL};
    if (m->pack != NULL) {                         /* needs: pack */
        dlp_pack_desc k = m->pack->pack;           /* needs: pack */
        DLPI_FROM_TABLE(&k, t, cells, m->workers); /* needs: pack */
        k.id = m->id;                              /* needs: pack */
        return dlp_pipe_add_pack(t->p, &k);        /* needs: pack */
    }                                              /* needs: pack */
    if (m->expand != NULL) d = m->expand->expand;
    DLPI_FROM_TABLE(&d, t, cells, m->workers);
    d.id = m->id;
    d.window = dlpi_window_after(t, m->n);
    return dlp_pipe_add_expand(t->p, &d);
}

/* The stage that copies the items into rows. */
static int dlpi_makers_copies(dlpi_table *t, const dlpi_makers *m, dlp_fetch_desc *f) {
    const dlp_node *batch = t->nodes;
    dlp_dataset made = *f->dataset;
    int32_t n = m->workers.num_workers > 2 ? 2 : m->workers.num_workers;
    while (batch < t->nodes + t->n - 1 && batch->verb != DLP_BATCH) batch++;
    if (m->expand != NULL && m->expand->expand.n_fields > 0) {
        made.fields = m->expand->expand.fields;
        made.n_fields = m->expand->expand.n_fields;
    }
    if (dlpi_filter_bytes(&made, batch->batch.batch_size) <= DLPI_FILTER_INLINE || n == DLP_NONE)
        n = 0;
    if (batch->verb == DLP_BATCH && batch->batch.copy_workers != 0)
        n = batch->batch.copy_workers == DLP_NONE ? 0 : batch->batch.copy_workers;
    f->workers = (dlp_workers_desc){.num_workers = n, .placement = m->workers.placement};
    t->p->node = t->waits != NULL ? t->waits->name : "copy";
    t->fetched = t->copies = true;
    return dlp_pipe_add_fetch(t->p, f);
}

static int dlpi_node_makes_add(dlpi_table *t, const dlp_node *node) {
    dlpi_makers m = {.n = 0};
    dlp_fetch_desc f;
    dlp_dataset ds;
    dlpi_expand *x;
    int rc = dlpi_makers_rows(t, &m);
    if (rc == DLP_OK) rc = dlpi_makers_inputs(t, &m, &f, &ds);
    if (rc != DLP_OK) return rc;
    if (dlpi_table_turns(t))
        return dlpi_node_bad(t, node,
                             "makes items of unknown count, which are dealt in runs: "
                             "queue.deal of the list must be DLP_DEAL_RUNS");
    if ((rc = dlpi_makers_stage(t, &m)) < 0) return rc;
    x = t->p->stages[rc].self;
    x->of_inputs = m.of_inputs;
    x->of_items = m.of_items;
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
