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

static int32_t dlpi_fetch_foretold(const dlp_predict_desc *d) { return d->num_workers; }

#define DLPI_OPS_OF_FETCH \
    .kind = DLP_STAGE_FETCH, .rank = 4, .at = offsetof(dlp_pipe, fetch), \
    .check = dlpi_fetch_chain, .live = dlpi_fetch_live, .foretold = dlpi_fetch_foretold, \
    .words = {.more = "num_workers", .out = "num_workers = 1"}

static const dlpi_stage_ops dlpi_fetch_ops = {DLPI_OPS_OF_FETCH, DLPI_OPS_OF_ROWS};
static const dlpi_stage_ops dlpi_fetch_many_ops = {
    DLPI_OPS_OF_FETCH, .self_bytes = sizeof(dlpi_fetch), DLPI_OPS_OF_IN_FLIGHT};
