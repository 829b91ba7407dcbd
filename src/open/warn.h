#pragma once
/* tests: system/core/pipe_errors, system/core/pipe_ragged */
#include "inputs/valid.h"
/* ---- warnings that the consumer gets with a batch ---- */

#define DLPI_ROOM_ROWS \
    256u /* rows whose mean length is compared with the room, if there are so many */
#define DLPI_ROOM_TIMES 32u   /* times the mean: from here on a room is worth a warning */
#define DLPI_ROOM_LEAST 4096u /* bytes of a room that is worth a warning, at least */

/* Warn of each ragged field whose room is many times the mean length of its items so far. The first
   of these warnings is the plan's, too. */
DLPI_COLD static void dlpi_warn_rooms(dlp_pipe *p) {
    const uint64_t rows = p->warnings.rows > 0 ? p->warnings.rows : 1, told = p->warnings.n;
    p->warnings.rooms_seen = true;
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        const uint64_t all = d->f.ragged ? p->warnings.lengths[f] * dlpi_row_bytes(d) : 0;
        const uint64_t mean = (all + rows - 1) / rows, room = d->row_bytes;
        if (mean == 0 || room < DLPI_ROOM_LEAST || room / DLPI_ROOM_TIMES <= mean) continue;
        dlpi_warn(p,
                  "field \"%s\": rooms of %" PRIu64 " bytes, but the first items have %" PRIu64
                  " on average; memory goes by the room. Cut long items",
                  d->name, room, mean);
    }
    if (p->warnings.n > told) p->warnings.rooms = (uint8_t)(told + 1);
}

/* Add the lengths of the rows of the batch in slot s. Warn of each ragged field whose rows are all
   empty in the pipe's first batch. last: the epoch ends with the batch. */
DLPI_COLD static void dlpi_warn_lengths(dlp_pipe *p, uint32_t s, bool last) {
    const uint32_t n = dlpi_slot_rows(p, s), *rec = dlpi_slot_fate(p, s);
    const uint64_t before = p->warnings.rows;
    for (uint32_t r = 0; r < n; r++) p->warnings.rows += dlpi_fate_state(rec[r]) == DLPI_ROW_OK;
    for (uint32_t f = 0; f < p->items.n; f++) {
        const uint64_t *length = dlpi_slot_lengths(p, s, f, 1);
        if (!p->items.at[f].f.ragged) continue;
        for (uint32_t r = 0; r < n; r++)
            if (dlpi_fate_state(rec[r]) == DLPI_ROW_OK) p->warnings.lengths[f] += length[r];
        if (before == 0 && p->warnings.rows > 0 && p->warnings.lengths[f] == 0)
            dlpi_warn(p,
                      "field \"%s\": all %" PRIu64 " rows of the first batch are empty; fetch must "
                      "set its item->length[] to the number of rows that it wrote",
                      p->items.at[f].name, p->warnings.rows);
    }
    if (last || p->warnings.rows >= DLPI_ROOM_ROWS) dlpi_warn_rooms(p);
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

/* Warn if an epoch of n rows has a short last batch, and the table does not say what to do with it.
   batch: rows of a batch. */
DLPI_COLD static void dlpi_warn_short(dlp_pipe *p, uint64_t n, uint64_t batch) {
    dlpi_epoch_short(p, p->batcher->name, ((const dlpi_batch *)p->batcher->self)->d.last, n, batch);
}

/* Look at the rows of one of the first batches. If nobody knows the length of an epoch, these are
   the batches of the first epoch. */
DLPI_COLD static void dlpi_warn_first(dlp_pipe *p, const dlp_batch *batch) {
    const bool lengths = !p->lends && p->items.any_ragged != 0 && !p->warnings.rooms_seen;
    const bool last = (batch->flags & DLP_BATCH_LAST) != 0;
    if (lengths) dlpi_warn_lengths(p, dlpi_lent_slot(p, batch), last);
    p->warnings.first_seen = !lengths || p->warnings.rooms_seen;
    if (p->samples == DLPI_MAX_ITEMS && !last) p->warnings.first_seen = false; /* needs: parts */
    if (p->samples == DLPI_MAX_ITEMS && last)                                  /* needs: parts */
        dlpi_warn_short(p, batch->in_epoch * p->batch_rows + batch->count,     /* needs: parts */
                        p->batch_rows);                                        /* needs: parts */
}

/* Warn of what looks wrong in a batch that dlp_pipe_next returns. Only rows of the first batches
   are looked at. */
static inline void dlpi_warn_batch(dlp_pipe *p, const dlp_batch *batch) {
    if (DLPI_UNLIKELY(!p->warnings.first_seen)) dlpi_warn_first(p, batch);
    if (DLPI_UNLIKELY(batch->valid_count < batch->count)) dlpi_warn_left_out(p);
    dlpi_valid_note(p, batch);
}
