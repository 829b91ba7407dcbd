#pragma once
#include "core/in_flight.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-fetch      FETCH: ROWS WRITTEN FOR THE FIRST TIME */

static int dlpi_fetch_chain(dlp_pipe *p, dlpi_stage *st) {
    DLPI_UNUSED(st);
    return dlpi_open_end_check(p);
}

/* Workers, or items that they have at once, beyond what is under way have nothing to do. */
static void dlpi_fetch_live(dlp_pipe *p, dlpi_stage *st) {
    uint64_t items = (uint64_t)p->prefetch * p->batch_rows, n = (uint64_t)st->n_workers;
    if (n > items)
        dlpi_warn(p,
                  "num_workers %d is more than prefetch_factor x batch_size = %" PRIu64
                  " items in flight: the rest will idle",
                  st->n_workers, items);
    else if (n * (uint64_t)st->in_flight > items)
        dlpi_warn(
            p,
            "num_workers %d x in_flight %d is more than prefetch_factor x batch_size = %" PRIu64
            " items",
            st->n_workers, st->in_flight, items);
    else if (st->w.dispatch == DLP_DISPATCH_BATCHES && n > p->prefetch)
        dlpi_warn(p,
                  "num_workers %d is more than prefetch_factor %" PRIu32
                  " batches in flight: workers that have no batch idle",
                  st->n_workers, p->prefetch);
}

/* Rows of a reader that a later stage may ask for again. */
static void dlpi_fetch_kept(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_reader *r = st->dataset.reader;
    uint64_t rows = dlpi_times(p->n_slots, p->batch_rows);
    dlpi_area_add(p, DLPI_AREA_OWN + st->id, r->words, r->kept_bytes, p->rows_end != st ? rows : 0,
                  DLPI_LINE);
}

static int32_t dlpi_fetch_foretold(const dlp_predict_desc *d) { return d->num_workers; }

#define DLPI_OPS_OF_FETCH \
    .kind = DLP_STAGE_FETCH, .rank = 4, .at = offsetof(dlp_pipe, fetch), \
    .check = dlpi_fetch_chain, .live = dlpi_fetch_live, .foretold = dlpi_fetch_foretold, \
    .words = {.more = "num_workers", .out = "num_workers = 1"}

static const dlpi_stage_ops dlpi_fetch_ops = {DLPI_OPS_OF_FETCH, DLPI_OPS_OF_ROWS};
static const dlpi_stage_ops dlpi_fetch_read_ops = {DLPI_OPS_OF_FETCH, DLPI_OPS_OF_ROWS,
                                                   .layout = dlpi_fetch_kept};
static const dlpi_stage_ops dlpi_fetch_many_ops = {
    DLPI_OPS_OF_FETCH, .self_bytes = sizeof(dlpi_fetch), DLPI_OPS_OF_IN_FLIGHT};

/* Of a dataset with a reader, as that was wired: it says nothing of a length. */
static const dlpi_stage_ops *dlpi_fetch_ops_of(const dlp_fetch_desc *d) {
    if (d->fetcher) return &dlpi_fetch_many_ops;
    if (d->dataset == NULL || d->dataset->reader == NULL || d->dataset->n_items != 0)
        return &dlpi_fetch_ops;
    return &dlpi_fetch_read_ops;
}
