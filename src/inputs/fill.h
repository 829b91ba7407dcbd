/* needs: parts */
#pragma once
/* tests: system/stages/found, system/inputs/inputs_random */
#include "inputs/over.h"
/* ---- the rows of a batch are filled in ---- */

/* Bits of a batch's note: it has items of this rank; more items, or a failed input, follow it. */
enum { DLPI_FOUND_HAS_ITEMS = 1, DLPI_FOUND_MORE_ITEMS = 2 };

/* Make rows r .. end - 1 of slot s holes: rows that are left out and have no item. */
static void dlpi_found_holes(dlp_pipe *p, uint32_t s, uint32_t r, uint32_t end) {
    dlpi_slot_at(p, s)->dirty = 1;
    for (; r < end; r++) {
        dlpi_slot_fate(p, s)[r] = DLPI_ROW_LEFT;
        dlpi_slot_index(p, s)[r] = UINT64_MAX;
        if (dlpi_found_of(p)->rule) continue; /* rows of holes are not read */
        dlpi_found_rows_of(p, s)[r] = (dlpi_found_row){0, 0};
    }
}

/* Give known rows of stream i to slot s, from row r up to row end. Returns where they end. */
static uint32_t dlpi_found_fill_stream(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r,
                                       uint32_t end) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_stream *x = &q->streams[i];
    for (; q->rule && r < end && x->rows > 0; x->rows--) q->rule->give(p, i, s, r++);
    while (r < end && dlpi_found_rows_left(q, x) > 0)
        r += q->plan.window ? dlpi_found_give_mixed(p, i, s, r, end - r)
                            : dlpi_found_give(p, q, x, s, r, end - r);
    return r;
}

/* Fill the batch of slot s with its rows, and note the state after it. If a stream lies at the
   border of two ranks, each rank gives its own rows and passes those of the other. So both have the
   same cursor after the batch. */
static void dlpi_found_fill(dlp_pipe *p, uint32_t s) {
    dlpi_found *q = dlpi_found_of(p);
    const uint32_t count = dlpi_slot_at(p, s)->count;
    const uint64_t own = p->rank * (p->global_batch / p->world);
    uint8_t wide[DLPI_CURSORS_WIDE];
    dlpi_source_state *state = dlpi_slot_source(p, s);
    memset(state, 0, sizeof *state);
    memset(wide, 0, dlpi_cursors_bytes(&q->cursors));
    for (uint32_t i = 0, r = 0, bit = dlpi_path_at(&q->cursors, 0); i < q->cursors.n; i++) {
        dlpi_found_stream *x = &q->streams[i];
        const uint64_t at = (q->cursors.first + (uint64_t)i) * q->each;
        uint32_t before = at < own ? (uint32_t)(own - at) : 0, n = q->each - before, end;
        const dlpi_found *b;
        dlpi_path path;
        bool broken;
        uint32_t after = n > p->batch_rows - r ? n - (p->batch_rows - r) : 0;
        end = r + n - after < count ? r + n - after : count;
        if (dlpi_found_rows_left(q, x) > 0) state->note |= DLPI_FOUND_HAS_ITEMS;
        for (; before > 0 && dlpi_found_rows_left(q, x) > 0; before--) dlpi_found_pass_row(p, i);
        r = dlpi_found_fill_stream(p, i, s, r, end);
        for (; after > 0 && dlpi_found_rows_left(q, x) > 0; after--) dlpi_found_pass_row(p, i);
        b = dlpi_found_lacks(q, i);
        broken = dlpi_found_broken(b, &b->streams[i]);
        if (before + (end - r) + after > 0 && broken) dlpi_found_fail_batch(p, b, i, s, r);
        if (r < end) dlpi_found_holes(p, s, r, end);
        r = end;
        if (dlpi_found_rows_left(q, x) > 0 || broken) state->note |= DLPI_FOUND_MORE_ITEMS;
        path.row = x->at;
        if (q->joins != NULL) q->joins->put(q, i, &path);
        if (q->joins == NULL && q->rule && q->rule->put) q->rule->put(q, i, &path);
        bit = dlpi_path_move(&q->cursors, wide, bit, &path, true);
    }
    state->bytes = dlpi_cursors_save(&q->cursors, wide, state->at);
}

/* ---- a row of a batch is fetched ---- */

/* Show an item's callback the input that row `row` of slot s comes from, in it->part. extra: where
   the dlp_part is written. A retried row may have a replacement out of the same input. */
static void dlpi_found_row_part(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row,
                                void *extra) {
    const dlp_pipe *p = w->p;
    const dlpi_found_row *from = &dlpi_found_rows_of(p, s)[row];
    const dlpi_input *cell = dlpi_input_at(p, from->cell);
    uint32_t k = dlpi_fate_repl(dlpi_slot_fate(p, s)[row]);
    dlp_part *part = extra;
    *part = dlpi_input_shown(p, from->cell);
    part->item = from->number;
    if (k > 0) part->item = dlpi_input_replacement(p, cell, it->epoch, it->position, k);
    it->part = part;
}

/* Return the number in its input of the item of row `row` of slot s. k: 1.. for a replacement. */
static uint32_t dlpi_found_number(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                                  uint64_t position, uint32_t k, uint32_t *list DLPI_UNREAD) {
    const dlpi_found_row *from = &dlpi_found_rows_of(w->p, s)[row];
    const dlpi_input *cell = dlpi_input_at(w->p, from->cell);
    return k > 0 ? (uint32_t)dlpi_input_replacement(w->p, cell, epoch, position, k) : from->number;
}

/* Return the index of the input that a row comes from. It is the same for all replacements k. */
static uint64_t dlpi_found_item(dlpi_worker *w, uint32_t s, uint32_t row,
                                uint64_t epoch DLPI_UNREAD, uint64_t position DLPI_UNREAD,
                                uint32_t k DLPI_UNREAD) {
    return dlpi_slot_index(w->p, s)[row];
}
