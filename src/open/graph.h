#pragma once
/* tests: system/core/tables */
#include "open/node_ends.h"     /* needs: scratch */
#include "open/node_makers.h"   /* needs: parts */
#include "open/node_branches.h" /* needs: parts */
#include "open/node_fetch.h"
#include "open/node_push.h" /* needs: parts */
#include "open/node_out.h"
#include "build/placement.h"
#include "open/node_transfer.h" /* needs: transfer */
#include "open/open.h"
#include "open/pack.h" /* needs: pack */
#include "open/pipe.h"
#include "open/node_split.h" /* needs: split */
#include "stages/cache.h"    /* needs: cache */
#include "stages/guard.h"    /* needs: guard */
#include "stages/join.h"     /* needs: join */
#include "stages/out.h"      /* needs: out */
/* ---- batch ---- */

/* Set the pipe's prefetch_factor, the batches ahead of the consumer, from the capacity of the batch
   node or the pipe's desc. With turns each worker of the first fetch has so many. Returns 0 or a
   DLP_ERR code. */
static int dlpi_batch_ahead(dlpi_table *t, const dlp_node *node) {
    const int32_t asked = t->d->prefetch_factor;
    const int64_t workers = dlpi_table_turns(t) && t->fetchers > 0 ? t->fetchers : 1;
    int64_t each = node->queue.capacity;
    int rc;
    if (each == 0) each = asked;
    rc = dlpi_within(t->p, node->name, "queue.capacity", each, 0, 4096 / workers,
                     "at most 4096; with DLP_DEAL_TURNS at most 4096 / num_workers");
    if (rc != DLP_OK) return rc;
    if (asked != 0 && asked != each)
        return dlpi_bad(t->p, node->name, "queue.capacity",
                        "0, or as prefetch_factor of the pipe's desc", each);
    if (each == 0 && dlpi_table_turns(t)) each = 2;
    t->p->d.prefetch_factor = (int32_t)(each * workers);
    return DLP_OK;
}

/* Add the stage of a batch row, with a copy of the fields that its collate writes, and set how many
   batches may be under way. Returns a stage number or a DLP_ERR code. The table must have a fetch
   above the row. */
static int dlpi_node_batch_add(dlpi_table *t, const dlp_node *node) {
    const dlp_node_batch *d = &node->batch;
    const dlp_workers_desc w = dlpi_node_workers(t, node);
    dlpi_stage *st;
    int rc = dlpi_batch_ahead(t, node);
    if (rc != DLP_OK) return rc;
    if (!t->fetched) return dlpi_node_bad(t, node, "has no fetch before it; add a fetch node");
    if (d->copy_workers != 0 && !t->copies)
        return dlpi_bad(t->p, node->name, "batch.copy_workers",
                        "0: no expand, filter or pack makes items for them", d->copy_workers);
    t->batched = true;
    if ((st = dlpi_add(t->p, &dlpi_batch_ops, "batch", &w)) == NULL) return t->p->err.code;
    *(dlpi_batch *)st->self = (dlpi_batch){*d, w.num_workers};
    st->collate = d->collate;
    st->user = d->collate_user;
    rc = dlpi_batch_check(t->p, st);
    if (rc == DLP_OK) rc = dlpi_keep_fields(t->p, st, d->out_fields, d->n_out_fields);
    return dlpi_added(t->p, st, rc);
}

/* ---- the verbs ---- */

#define DLPI_FETCHES (DLPI_NODE_WORKERS | DLPI_NODE_PASSES | DLPI_NODE_ITEMS)
#define DLPI_LOOKS (DLPI_NODE_WORKERS | DLPI_NODE_PASSES)
#define DLPI_MAPS (DLPI_NODE_WORKERS | DLPI_NODE_ITEMS)
#define DLPI_MAKES (DLPI_NODE_WORKERS | DLPI_NODE_MAKES)
#define DLPI_FINDS (DLPI_MAKES | DLPI_NODE_FINDS)
#define DLPI_PUSHES (DLPI_NODE_BEGINS | DLPI_NODE_WORKERS)
#define DLPI_COPIES DLPI_NODE_THREAD
#define DLPI_LOADS (DLPI_NODE_WORKERS | DLPI_NODE_LOADS | DLPI_NODE_FINDS)

static const dlpi_verb dlpi_verbs[DLP_VERBS] = {
    [DLP_LIST] = {"list", dlpi_node_list_add, DLPI_NODE_BEGINS | DLPI_NODE_THREAD, NULL},
    [DLP_PUSH] = {"push", dlpi_node_push_add, DLPI_PUSHES, NULL}, /* needs: parts */
    [DLP_FETCH] = {"fetch", dlpi_node_fetch_add, DLPI_FETCHES, dlpi_node_fetch_fields},
    [DLP_MAP] = {"map", dlpi_node_map_add, DLPI_MAPS, dlpi_node_map_fields},
    [DLP_BATCH] = {"batch", dlpi_node_batch_add, DLPI_NODE_WORKERS, NULL},
    [DLP_TRANSFER] = {"transfer", dlpi_node_transfer_add, DLPI_COPIES, NULL}, /* needs: transfer */
    [DLP_OUT] = {"out", dlpi_node_out_add, DLPI_NODE_OUT, NULL},
    [DLP_LOAD] = {"load", dlpi_node_load_add, DLPI_LOADS, NULL},      /* needs: parts */
    [DLP_EXPAND] = {"expand", dlpi_node_makes_add, DLPI_FINDS, NULL}, /* needs: parts */
    [DLP_FILTER] = {"filter", dlpi_node_makes_add, DLPI_FINDS, NULL}, /* needs: parts */
    [DLP_WINDOW] = {"window", dlpi_node_window_add, 0, NULL},         /* needs: parts */
    [DLP_PACK] = {"pack", dlpi_node_makes_add, DLPI_MAKES, NULL},     /* needs: pack */
    [DLP_CACHE] = {"cache", dlpi_node_cache_add, 0, NULL},            /* needs: cache */
    [DLP_SPLIT] = {"split", dlpi_node_split_add, 0, NULL},            /* needs: split */
    [DLP_GUARD] = {"guard", dlpi_node_guard_add, DLPI_LOOKS, NULL},   /* needs: guard */
    [DLP_ZIP] = {"zip", dlpi_node_joins_add, DLPI_NODE_JOINS, NULL},  /* needs: parts */
    [DLP_MIX] = {"mix", dlpi_node_joins_add, DLPI_NODE_JOINS, NULL},  /* needs: parts */
};

static const dlpi_table_ops dlpi_table_kinds = {
    .verbs = dlpi_verbs,
    .mix = dlp_mix_sampler,               /* needs: mix */
    .later = dlpi_node_fetch_later,       /* needs: join */
    .part = dlpi_ends_sort,               /* needs: scratch */
    .ends = dlpi_ends_add,                /* needs: scratch */
    .see = dlpi_ends_see,                 /* needs: scratch */
    .which = dlpi_ends_which,             /* needs: scratch */
    .out = dlpi_out_add,                  /* needs: out */
    .makes = dlpi_node_makes_add,         /* needs: parts */
    .pack = dlpi_pack_add,                /* needs: pack */
    .pack_makers = dlpi_pack_take_makers, /* needs: pack */
};

/* Add to the pipe's error, if it is about a row's member of the union, which member the verb reads:
   the row may have set another one. A table that the library fills, with the names behind its rows,
   has the right ones. */
DLPI_COLD static void dlpi_member_hint(const dlpi_table *t, const dlp_node *node) {
    dlp_error *e = &t->p->err;
    const size_t n = strlen(e->message);
    if ((uintptr_t)node->name - (uintptr_t)t->nodes < sizeof(dlp_nodes)) return;
    if (e->code != DLP_ERR_ARG || e->field[0] == 0) return;
    if (strncmp(e->field, "workers", 7) == 0 || strncmp(e->field, "queue", 5) == 0) return;
    if (strcmp(e->stage, node->name) != 0) return; /* the error is of another row */
    snprintf(e->message + n, sizeof e->message - n, "; the verb of \"%.31s\" reads .%s", node->name,
             dlpi_verb_of(t, node)->name);
}

#ifdef DLPIPE_NO_PARTS
#define DLPI_FIRST_MOST 0
#else
#define DLPI_FIRST_MOST DLPI_MAX_ITEMS
#endif
#define DLPI_DEALS "DLP_DEAL_* in a list or push, else 0"
#define DLPI_FULLS "DLP_FULL_* of an out or a push, else 0"
#define DLPI_BESIDE "beside fetch.source", DLPI_WITH(dlp_node, fetch.source)

/* What nodes may say of their queues, and in the member of their verb, apart from each other. */
static const dlpi_bound dlpi_node_bounds[] = {
    {DLPI_NODE(LIST, queue.deal), 0, DLP_DEAL_TURNS, DLPI_DEALS},
    {DLPI_NODE(PUSH, queue.deal), 0, DLP_DEAL_TURNS, DLPI_DEALS},  /* needs: parts */
    {DLPI_NODE(PUSH, queue.full), 0, DLP_FULL_REFUSE, DLPI_FULLS}, /* needs: parts */
    {DLPI_NODE(OUT, queue.full), 0, DLP_FULL_KEEP_NEWEST, DLPI_FULLS},
    {DLPI_NODE(OUT, queue.capacity), 0, 256, "0..256"},
    {DLPI_NODE(TRANSFER, queue.capacity), 0, 256, "0..256"}, /* needs: transfer */
    {DLPI_NODE(BATCH, queue.capacity), 0, UINT32_MAX, NULL},
    {DLPI_NODE(FETCH, queue.capacity), 0, UINT32_MAX, NULL},
    {DLPI_NODE(LOAD, queue.capacity), 0, UINT32_MAX, NULL},   /* needs: parts */
    {DLPI_NODE(EXPAND, queue.capacity), 0, UINT32_MAX, NULL}, /* needs: parts */
    {DLPI_NODE(FILTER, queue.capacity), 0, UINT32_MAX, NULL}, /* needs: parts */
    {DLPI_NODE(PACK, queue.capacity), 0, UINT32_MAX, NULL},   /* needs: pack */
    {DLPI_NODE(LIST, list.n_items), 0, DLPI_MAX_ITEMS, "0..2^48"},
    {DLPI_NODE(LIST, list.first), 0, DLPI_FIRST_MOST, "0..2^48; 0 with DLPIPE_NO_PARTS"},
    {DLPI_NODE(LIST, list.shuffle), 0, 1, "0 or 1"},
    {DLPI_NODE(LIST, list.open_end), 0, 1, "0 or 1"},
    {DLPI_NODE(PUSH, push.source), 1, 1, "what dlp_push_open has made"}, /* needs: parts */
    {DLPI_NODE(FETCH, fetch.fetch), 0, 0, DLPI_BESIDE},
    {DLPI_NODE(FETCH, fetch.user), 0, 0, DLPI_BESIDE},
    {DLPI_NODE(FETCH, fetch.fields), 0, 0, DLPI_BESIDE},
    {DLPI_NODE(FETCH, fetch.async), 0, 0, DLPI_BESIDE},
    {DLPI_NODE(FETCH, fetch.fetch_rows), 0, 0, DLPI_BESIDE}, /* needs: runs */
    {DLPI_NODE(FETCH, fetch.batch_pool), 0, 0, "0 " DLPI_BESIDE},
    {DLPI_NODE(FETCH, fetch.writes_all_bytes), 0, 0, "0 " DLPI_BESIDE},
    {DLPI_NODE(FETCH, fetch.n_fields), 0, 0, "0 " DLPI_BESIDE},
    {DLPI_NODE(FETCH, fetch.in_flight), 0, 1024, "0..1024"},
    {DLPI_NODE(LOAD, load.n_parts), 0, 0, "0; set list.n_items instead"},       /* needs: parts */
    {DLPI_NODE(LOAD, load.shuffle_parts), 0, 0, "0; set list.shuffle instead"}, /* needs: parts */
    {DLPI_NODE(LOAD, load.window), 0, 0, "0; add a window node instead"},       /* needs: parts */
    {DLPI_NODE(LOAD, load.queue_size), 0, 0, "0; set queue.capacity instead"},  /* needs: parts */
    {DLPI_NODE(EXPAND, expand.expand), 1, 1, "the function that makes items"},  /* needs: parts */
    {DLPI_NODE(WINDOW, window.items), 1, UINT32_MAX, "1..2^24"},                /* needs: parts */
};

/* What a node may not say if the list above has no such row for its verb. */
static const dlpi_bound dlpi_node_unsaid[] = {
    {DLPI_AT(dlp_node, queue.capacity), 0, 0, "0: this node has no queue to size"},
    {DLPI_AT(dlp_node, queue.full), 0, 0, DLPI_FULLS},
    {DLPI_AT(dlp_node, queue.deal), 0, 0, DLPI_DEALS},
};

/* Check what a node says, apart from the others. Returns 0 or a DLP_ERR code. */
static int dlpi_node_bounds_hold(const dlpi_table *t, const dlp_node *node) {
    const dlpi_bound *end = dlpi_node_bounds + sizeof dlpi_node_bounds / sizeof *dlpi_node_bounds;
    int rc = DLP_OK;
    for (const dlpi_bound *b = dlpi_node_bounds; rc == DLP_OK && b < end; b++)
        if (b->verb == (unsigned)node->verb) rc = dlpi_check_bounds(t->p, node->name, node, b, 1);
    for (size_t i = 0; rc == DLP_OK && i < sizeof dlpi_node_unsaid / sizeof *dlpi_node_unsaid;
         i++) {
        const dlpi_bound *b = dlpi_node_bounds, *none = &dlpi_node_unsaid[i];
        while (b < end && (b->verb != (unsigned)node->verb || b->offset != none->offset)) b++;
        if (b == end) rc = dlpi_check_bounds(t->p, node->name, node, none, 1);
    }
    if (rc == DLP_OK && node->verb == DLP_LOAD && dlpi_workers_given(&node->load.workers))
        rc = dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "workers",
                         "workers is set in load, must be 0; set workers of the node instead");
    if (rc != DLP_OK) dlpi_member_hint(t, node);
    return rc;
}

/* Warn of each row of items that has workers of its own because a row above it names workers.
   Before version 0.2.0 it ran in the thread of the consumer. */
static void dlpi_table_staffed(const dlpi_table *t) {
    for (const dlp_node *node = t->nodes + t->makes; node->verb != DLP_BATCH; node++) {
        const dlp_node *above = dlpi_row_above(t, node, false);
        const unsigned is = dlpi_verb_of(t, node)->is;
        if ((is & DLPI_NODE_ITEMS) == 0 || node->workers.num_workers != 0 || above == NULL ||
            dlp_node_stage(t->p, node->name) < 0) /* it has no stage of its own */
            continue;
        dlpi_warn(t->p,
                  "node \"%s\" has %d workers of its own, like those of \"%s\"; set "
                  "workers.num_workers, or DLP_NONE for the thread that calls next",
                  node->name, (int)above->workers.num_workers, above->name);
    }
}

/* Check a table and add the stages of all its rows. Returns 0 or a DLP_ERR code. */
static int dlpi_table_rows(dlpi_table *t) {
    const char *field;
    int rc = dlpi_table_check(t);
    for (uint32_t i = 0; rc == DLP_OK && i < t->n; i++) rc = dlpi_node_bounds_hold(t, &t->nodes[i]);
    t->list = t->nodes;
    if (rc == DLP_OK && t->joins != NULL) rc = dlpi_verb_of(t, t->joins)->add(t, t->joins);
    for (; t->at < t->n && rc >= 0; t->at++) {
        const dlp_node *node = &t->nodes[t->at];
        t->p->node = node->name;
        if (t->at > 0 && t->at + 1 < t->makes) continue; /* the last of these adds them all */
        rc = (t->at + 1 == t->makes ? t->ops->makes : dlpi_verb_of(t, node)->add)(t, node);
        if (rc < 0) dlpi_member_hint(t, node);
    }
    t->p->node = NULL;
    if (rc < 0) return t->p->err.code != 0 ? t->p->err.code : rc;
    if (t->nodes[0].verb == DLP_LIST && t->nodes[0].list.mix != NULL && t->of != 0 &&
        t->of < t->nodes[0].list.mix->n)
        return dlpi_refuse(t->p, DLP_ERR_GRAPH, t->nodes[0].name, "list.mix",
                           "dataset %" PRIu32 " of the mix has no fetch node; add it", t->of + 1);
    field = t->unknown ? NULL : dlpi_run_given(t->d);
    if (field != NULL)
        return dlpi_refuse(t->p, DLP_ERR_ARG, "", field,
                           "%s is set, and no node loads parts or makes items of unknown count; "
                           "set 0",
                           field);
    if (!t->batched)
        return dlpi_refuse(t->p, DLP_ERR_GRAPH, "", "", "the table has no batch node; add one");
    dlpi_table_staffed(t);
    return DLP_OK;
}

/* Add the stages of a table to a pipe without stages, and note what its data are, as sources and
   the files of parts say. Returns 0 or a DLP_ERR code. */
static int dlpi_table_add(dlp_pipe *p, const dlp_node *nodes, uint32_t n) {
    dlpi_table t = {.p = p, .ops = &dlpi_table_kinds, .nodes = nodes, .n = n, .d = &p->d};
    int rc;
    p->rows = calloc(DLP_MAX_NODES, sizeof *p->rows);
    if (p->rows == NULL) return dlpi_no_memory(p, "nodes", "the rows of the table");
    for (uint32_t i = 0; i < n; i++) {
        dlpi_copy_text(p->rows[i].name, sizeof p->rows[i].name, nodes[i].name);
        p->rows[i].policy = dlpi_policy_of(&nodes[i].workers);
        p->rows[i].own = dlpi_policy_given(&nodes[i].workers);
    }
    rc = dlpi_table_rows(&t);
    for (const dlp_node *node = nodes; rc == DLP_OK && node < nodes + n; node++) {
        const dlp_source *source = node->verb == DLP_FETCH ? node->fetch.source : NULL;
        if (node->verb == DLP_LOAD)                                          /* needs: parts */
            source = dlpi_load_identify(&node->load, &p->datasets.identity); /* needs: parts */
        if (source != NULL && source->dataset != NULL)
            dlpi_identity_add(&p->datasets.identity, source->dataset->identity);
    }
    return rc;
}

/* Make a pipe of a table in *out, and do not start it. desc may be NULL. Returns 0, or a DLP_ERR
   code and *err. */
static int dlpi_table_pipe(dlp_pipe **out, const dlp_node *nodes, uint32_t n,
                           const dlp_pipe_desc *desc, dlp_error *err) {
    dlp_pipe *p;
    int rc = dlpi_open_args(out, nodes, "nodes", nodes, err);
    if (rc != DLP_OK) return rc;
    if (n < 1 || n > DLP_MAX_NODES)
        return dlpi_error_set(err, DLP_ERR_ARG, "n", "n is %" PRIu32 ", must be 1..96 rows%s", n,
                              n == 0 ? "; DLP_NODES wants an array, not a pointer" : "");
    if ((rc = dlpi_pipe_make(&p, desc, err)) != DLP_OK) return rc;
    return dlpi_opened(out, p, dlpi_table_add(p, nodes, n), err);
}

/* Start a table's pipe; with desc.later only prepare its start. Returns 0 or a DLP_ERR code. */
static int dlpi_table_start(dlp_pipe *p) {
    return p->d.later != 0 ? dlpi_prepare(p) : dlp_pipe_start(p);
}

DLPDEF int dlp_pipe_open(dlp_pipe **out, const dlp_node *nodes, uint32_t n,
                         const dlp_pipe_desc *desc, dlp_error *err) {
    dlp_pipe *p = NULL;
    int rc = dlpi_table_pipe(out != NULL ? &p : NULL, nodes, n, desc, err);
    if (rc != DLP_OK || p == NULL) return rc;
    return dlpi_opened(out, p, dlpi_table_start(p), err);
}

DLPDEF int dlp_nodes_plan(const dlp_node *nodes, uint32_t n, const dlp_pipe_desc *desc,
                          dlp_plan *out, dlp_error *err) {
    dlp_pipe *p = NULL;
    int rc = dlpi_table_pipe(out != NULL ? &p : NULL, nodes, n, desc, err);
    if (rc != DLP_OK || p == NULL) return rc;
    return dlpi_opened(NULL, p, dlp_pipe_plan(p, out), err);
}

DLPDEF dlp_stage dlp_node_stage(const dlp_pipe *p, const char *name) {
    dlp_stage found = DLP_ERR_ARG;
    for (int i = 0; p != NULL && name != NULL && i < p->n_stages; i++) {
        const int kind = p->stages[i].ops->kind;
        if (kind == DLP_STAGE_REPEAT) continue;
        if (kind == DLP_STAGE_SCRATCH) continue;
        if (strcmp(p->stages[i].name, name) != 0) continue;
        found = i;
        /* a fetch may be the copy that no row named; a push is its sampler and the stage behind */
        if (kind != DLP_STAGE_FETCH && kind != DLP_STAGE_SAMPLER) break;
    }
    return found;
}
