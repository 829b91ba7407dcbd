#pragma once
/* tests: system/core/pipe_basic, system/core/pipe_resume */
#include "deliver/deliver.h"
/* ---- whole batches: what a lender's table says where no stage lends ----
   Number v is slot v, and its batch goes out as it is. The core itself delivers such batches and
   takes them back (next, drop); all else asks p->lender, and not whose table it is. */

static uint32_t dlpi_whole_slot(const dlp_pipe *p DLPI_UNREAD, uint32_t v) { return v; }

static uint64_t dlpi_whole_batches(const dlp_pipe *p) { return p->batches_per_epoch; }

/* Write to *to the state after the batch in slot v, as if all batches before it were consumed. */
DLPI_COLD static void dlpi_whole_state(const dlp_pipe *p, uint32_t v, dlpi_state *to) {
    const dlpi_bslot *slot = dlpi_slot_at(p, v);
    const bool last = p->lent[v] == 2;
    dlpi_state_at(to, dlpi_spot_behind(slot->epoch, slot->in_epoch, slot->after, last));
    dlpi_state_source(to, p->source->state(p, v, 1));
}

/* Return how many rows of an epoch come before batch k. */
static uint64_t dlpi_whole_position(const dlp_pipe *p, uint64_t epoch DLPI_UNREAD, uint64_t k) {
    return k * p->global_batch;
}

static const dlpi_lender_ops dlpi_whole = {
    .slot = dlpi_whole_slot,
    .batches = dlpi_whole_batches,
    .state = dlpi_whole_state,
    .position = dlpi_whole_position,
};
