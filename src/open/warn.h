#pragma once
/* tests: system/core/pipe_errors, system/core/pipe_ragged */
#include "deliver/deliver.h"
/* ---- warnings that the consumer gets with a batch ---- */

/* Warn of each ragged field whose rows are all empty in the batch in slot s, the pipe's first. */
static void dlpi_warn_empty(dlp_pipe *p, uint32_t s) {
    const uint32_t n = dlpi_slot_rows(p, s), *rec = dlpi_slot_fate(p, s);
    for (uint32_t f = 0; p->items.any_ragged && f < p->items.n; f++) {
        const uint64_t *length = dlpi_slot_lengths(p, s, f, 1);
        uint32_t empty = 0, full = 0;
        if (!p->items.at[f].f.ragged) continue;
        for (uint32_t r = 0; r < n; r++) {
            full += length[r] != 0;
            empty += length[r] == 0 && dlpi_fate_state(rec[r]) == DLPI_ROW_OK;
        }
        if (full == 0 && empty > 0)
            dlpi_warn(p,
                      "field \"%s\": all %" PRIu32 " rows of the first batch are empty; fetch must "
                      "set its item->length[] to the number of rows that it wrote",
                      p->items.at[f].name, empty);
    }
}

/* Warn of DLP_SKIP in a stage whose desc does not say that rows may be left out. Called if a batch
   has rows that are not valid. */
static void dlpi_warn_left_out(dlp_pipe *p) {
    uint64_t from, n = dlpi_skip_count(p->ctl, &from);
    if (from < p->warnings.skips_seen) from = p->warnings.skips_seen;
    p->warnings.skips_seen = n;
    for (; from != n; from++) {
        dlp_skip k;
        const dlpi_stage *st;
        uint32_t bit;
        if (!dlpi_skip_read(p->ctl, from, &k) || k.code != DLP_SKIP) continue;
        st = &p->stages[k.stage];
        bit = UINT32_C(1) << k.stage;
        if ((p->warnings.told_of & bit) != 0 || st->w.on_error != DLP_ON_ERROR_RAISE) continue;
        p->warnings.told_of |= bit;
        dlpi_warn(p,
                  "stage \"%s\": DLP_SKIP left item %" PRIu64
                  " out: its row is zeros, its valid[] is 0. Skip such rows%s",
                  st->name, k.index, st == p->fetch ? ", or set dataset.filter = 1" : "");
    }
}

/* Warn of what looks wrong in a batch that dlp_pipe_next returns. Only the rows of the first batch
   are looked at. */
static inline void dlpi_warn_batch(dlp_pipe *p, const dlp_batch *batch) {
    if (DLPI_UNLIKELY(!p->warnings.first_seen)) {
        p->warnings.first_seen = true;
        if (!p->lends) dlpi_warn_empty(p, dlpi_lent_slot(p, batch));
    }
    if (DLPI_UNLIKELY(batch->valid_count < batch->count)) dlpi_warn_left_out(p);
}
