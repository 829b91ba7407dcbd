/* needs: runs */
#pragma once
/* tests: system/core/runs */
#include "flight/attempts.h"
#include "inputs/check.h"
#include "row/runs.h"
/* ---- a stage that fetches several rows in one call (>>impl-many) ---- */

/* Take the fetch_rows of a fetch stage, if its dataset has one. many: workers have several items
   under way at once. Returns 0 or a DLP_ERR code. */
static int dlpi_runs_take(dlp_pipe *p, dlpi_stage *st, bool many) {
    dlpi_fetch *f = st->self;
    if (f->dataset.fetch_rows == NULL) return DLP_OK;
    if (f->dataset.fetch != NULL)
        return dlpi_not_null(p, st->name, "fetch.fetch",
                             "beside fetch_rows, which writes all items; set one of the two");
    if (many)
        return dlpi_not_null(p, st->name, "fetch.fetch_rows",
                             "with in_flight above 1 or async; give fetch, or leave in_flight 0");
    f->dataset.fetch = st->item = dlpi_row_alone;
    st->user = &f->dataset;
    return DLP_OK;
}

/* Describe in `out` the heap memory of a stage with a fetch_rows: the items of each worker's call.
   Returns the number of blocks. */
static int dlpi_runs_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const uint64_t workers = st->n_workers > 0 ? (uint64_t)st->n_workers : 0;
    out[0] = (dlpi_block){offsetof(dlpi_fetch, runs), workers * dlpi_many_bytes(p->items.n)};
    return 1;
}

/* Set up a worker of such a stage. It makes calls for several rows, unless more is asked of a row
   than its lengths. */
static void dlpi_runs_worker(dlpi_worker *w) {
    const dlpi_stage *st = w->st;
    const dlpi_fetch *f = st->self;
    const bool own = st->item == dlpi_row_alone;
    const bool behind =
        w->chained && !w->p->items.any_ragged && dlpi_program_of(st)->op->fn.call == dlpi_row_alone;
    w->self = f->runs + (size_t)w->id * dlpi_many_bytes(w->p->items.n);
    if ((own || behind) && w->asks != DLPI_ASK_ALL && !dlpi_row_held(w)) w->asks = DLPI_ASK_RUNS;
}

#define DLPI_OPS_OF_RUNS \
    .chained = dlpi_unit_runs, .blocks = dlpi_runs_blocks, .private_words = "items of calls", \
    .worker = dlpi_runs_worker
