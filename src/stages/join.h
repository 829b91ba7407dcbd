/* needs: join */
#pragma once
/* tests: system/stages/join, system/stages/join_random, system/stages/join_hostile */
#include "api/join.h"
#include "inputs/table.h"
#include "inputs/dataset.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-join       SEVERAL DATASETS IN ONE PIPE
   A join is a fetch behind the first fetch. Its stage claims rows that the stage before has done,
   as a map of items does. The stage fetches fields of its own for each row (zip), or all fields of
   the rows whose item is of its dataset (mix). It writes all bytes of these, and no byte of another
   stage. So it is idempotent: a row may go through it again. If a worker of it dies, only the
   fetches of its rows in this stage are repeated. A row whose item is replaced goes back to the
   first stage, as with a map. In a mix, units without a row of this dataset pass the stage without
   a claim where that is possible (dlpi_unit_pass). */

typedef struct dlpi_join { /* the stage's own record */
    dlpi_fetch fetch;      /* first: common functions read the record as a dlpi_fetch */
    bool mixes;            /* it has items of its own, not fields */
} dlpi_join;

static inline bool dlpi_join_mixes(const dlpi_stage *st) {
    return ((const dlpi_join *)st->self)->mixes;
}

/* Check the desc of a second fetch, and copy it into the stage. Its dataset must have a known
   number of items, and no filter. Returns 0 or a DLP_ERR code. */
static int dlpi_join_take(dlp_pipe *p, dlpi_stage *st, const dlp_source *d) {
    const int rc = dlpi_fetch_take(p, st, d);
    if (rc != DLP_OK) return rc;
    if (st->dataset->open_end)
        return dlpi_bad(p, st->name, "list.open_end",
                        "0 in a second fetch, which goes by the numbers of items",
                        st->dataset->open_end);
    if (st->dataset->filter)
        return dlpi_bad(p, st->name, "fetch.filter",
                        "0 in a second fetch: DLP_SKIP leaves the row out", st->dataset->filter);
    return st->dataset->n_items > 0 ? DLP_OK
                                    : dlpi_bad(p, st->name, "source.dataset.n_items", "1..2^48", 0);
}

/* Refuse a second fetch in a pipe with an open end, with a split, or with items of unknown count.
   Returns 0 or a DLP_ERR code. */
static int dlpi_join_others(dlp_pipe *p, const dlpi_stage *st) {
    if (p->open_end) return dlpi_open_end_bad(p, st);
    if (p->lender_stage != NULL)
        return dlpi_refuse(
            p, DLP_ERR_GRAPH, st->name, "",
            "\"%s\" cannot write into the rows of \"%s\"; write these fields in the first fetch",
            st->name, p->lender_stage->name);
    if (p->source->no_state_at)
        return dlpi_refuse(p, DLP_ERR_GRAPH, st->name, "",
                           "\"%s\" fetches by number, and \"%s\" makes items of unknown count; "
                           "fetch these fields above it",
                           st->name, p->source_stage->name);
    return DLP_OK;
}

/* Check a second fetch against the stages before it. A fetch of a mix adds its items to the
   dataset: they have the numbers behind all items before. Returns 0 or a DLP_ERR code. */
static int dlpi_join_adds(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_stage *before = st - 1;
    uint64_t most = DLPI_MAX_ITEMS - p->fetch->dataset->n_items, n = st->dataset->n_items;
    int rc = dlpi_join_others(p, st);
    if (rc != DLP_OK || !dlpi_join_mixes(st)) return rc;
    if (before != p->fetch && !(before->ops->adds != NULL && dlpi_join_mixes(before)))
        return dlpi_refuse(p, DLP_ERR_GRAPH, st->name, "how",
                           "a fetch of a mix must directly follow another fetch of the mix, and "
                           "this one follows \"%s\"",
                           before->name);
    if (p->source_stage != p->sampler)
        return dlpi_refuse(p, DLP_ERR_GRAPH, st->name, "how",
                           "\"%s\" loads parts of one dataset, so no mix can follow; list the "
                           "parts of all datasets there",
                           p->source_stage->name);
    if (n > most)
        return dlpi_bad(p, st->name, "source.dataset.n_items",
                        "at most 2^48 together with the datasets before", (int64_t)n);
    p->fetch->dataset->n_items += n;
    p->datasets.n_added += n;
    return DLP_OK;
}

/* Set the scope of a mix's fetch: the same fields, its own items. Returns 0 or a DLP_ERR code. */
static int dlpi_join_mix(dlp_pipe *p, dlpi_stage *st) {
    uint64_t first = p->fetch->dataset->n_items - p->datasets.n_added;
    for (const dlpi_stage *s = p->fetch + 1; s != st; s++) first += s->dataset->n_items;
    if (st->dataset->n_fields != p->datasets.n_fields)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "fetch.n_fields",
                           "n_fields is %" PRIu32 ", must be %" PRIu32 ", as in the first dataset "
                           "of the mix",
                           st->dataset->n_fields, p->datasets.n_fields);
    for (uint32_t i = 0; i < p->datasets.n_fields; i++) {
        const dlp_field *a = &p->datasets.fields[i], *b = &st->dataset->fields[i];
        if (strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->ndim == b->ndim &&
            a->ragged == b->ragged &&
            (a->ndim <= 0 || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0))
            continue;
        return dlpi_bad_field(p, st->name, i, b->name, "name",
                              "name, type or shape differ from \"%s\" of the first dataset; "
                              "datasets of a mix need the same fields",
                              a->name);
    }
    st->scope = (dlpi_scope){.n_fields = p->datasets.n_fields,
                             .zeroes = !st->dataset->writes_all_bytes,
                             .first = first,
                             .n_items = st->dataset->n_items};
    return DLP_OK;
}

/* Set the scope of a later fetch: the same items, its own fields. Returns 0 or a DLP_ERR code. */
static int dlpi_join_zip(dlp_pipe *p, dlpi_stage *st) {
    const uint32_t n = p->datasets.n_fields;
    /* the most there can be: of a table, behind a load */
    if (st->dataset->n_items == DLPI_MAX_ITEMS) st->dataset->n_items = p->fetch->dataset->n_items;
    if (st->dataset->n_items != p->fetch->dataset->n_items)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "source.dataset.n_items",
                           "n_items is %" PRIu64 ", must be %" PRIu64 ", as in the first fetch",
                           st->dataset->n_items, p->fetch->dataset->n_items);
    st->scope = (dlpi_scope){n, st->n_fields, n, !st->dataset->writes_all_bytes,
                             .n_items = st->dataset->n_items};
    return dlpi_fields_widen(p, st, "fetch.n_fields");
}

DLPI_COLD static int dlpi_join_widens(dlp_pipe *p, dlpi_stage *st) {
    return dlpi_join_mixes(st) ? dlpi_join_mix(p, st) : dlpi_join_zip(p, st);
}

#define DLPI_OPS_OF_JOIN \
    .kind = DLP_STAGE_JOIN, .rank = 6, .many = 1, .self_bytes = sizeof(dlpi_join), \
    .adds = dlpi_join_adds, .widens = dlpi_join_widens

static const dlpi_stage_ops dlpi_join_ops = {DLPI_OPS_OF_JOIN, DLPI_OPS_OF_ROWS};
#define DLPI_JOIN_MANY \
    { DLPI_OPS_OF_JOIN, DLPI_OPS_OF_IN_FLIGHT }
static const dlpi_stage_ops dlpi_join_many_ops = DLPI_JOIN_MANY; /* needs: fetchers */
#define DLPI_JOIN_RUNS \
    { DLPI_OPS_OF_JOIN, DLPI_OPS_OF_RUNS, DLPI_OPS_OF_ROWS }
static const dlpi_stage_ops dlpi_join_runs_ops = DLPI_JOIN_RUNS; /* needs: runs */

/* ---- a join is added, by a row ---- */

/* Add the second fetch of a table, or one after it. mixes: it has items of its own, not fields.
   Returns a stage number or a DLP_ERR code. */
static int dlpi_node_fetch_later(dlpi_table *t, const dlp_source *f, bool mixes) {
    const dlpi_stage_ops *ops = &dlpi_join_ops;
    dlpi_stage *st;
    if (f->fetcher) ops = &dlpi_join_many_ops; /* needs: fetchers */
    if (!f->fetcher && f->dataset->fetch_rows != NULL) ops = &dlpi_join_runs_ops; /* needs: runs */
    st = dlpi_add(t->p, ops, "join", &f->workers);
    if (st == NULL) return t->p->err.code;
    st->w.idempotent = 1;
    ((dlpi_join *)st->self)->mixes = mixes;
    return dlpi_added(t->p, st, dlpi_join_take(t->p, st, f));
}
