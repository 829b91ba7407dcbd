#pragma once
/* tests: system/core/pipe_errors, system/core/pipe_ragged, model/crash_steps */
#include "row/attempt.h"
#include "row/ops.h"
#include "cells/clears.h"
#include "cells/debug.h"
#include "slot/open_end.h"
#include "row/timing.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-run        CALLBACKS ON ROWS
   timing.h before it has the clocks, attempt.h what becomes of a row whose callback failed; rows.h
   after it has the worker whose units these are. */

/* Check and store the lengths of ragged fields that the callback has set for a row, and clear what
   earlier items have left behind them. Returns 0 or DLP_ERR_LENGTH, with the message. */
static int dlpi_row_lengths(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    const dlpi_scope *scope = &w->st->scope;
    for (uint32_t f = scope->field; f < scope->field + scope->n_fields; f++) {
        const dlpi_field *d = &p->items.at[f];
        const uint64_t n = w->length[f];
        if (n > dlpi_length_most(d)) return dlpi_length_bad(w, d, n);
        if (!d->f.ragged) continue;
        uint64_t *mark = dlpi_mark(p, t->slot, f, row);
        const uint64_t from =
            dlpi_clears_timed(w) ? dlpi_tails_timed(w, d, w->data[f], mark, &n, 1) : 0;
        dlpi_mark_close(mark, w->data[f], n * dlpi_row_bytes(d), d->row_bytes);
        if (DLPI_UNLIKELY(from != 0)) dlpi_clear_note(w, d, from, false);
        dlpi_slot_lengths(p, t->slot, f, 1)[row] = n;
    }
    return 0;
}

/* Set the lengths of the first n fields to those of the stages before, and others to 0. The first
   stage has no stage before it, whatever n is. */
static inline void dlpi_item_lengths(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t n) {
    if (dlpi_writes_first(w)) n = 0;
    for (uint32_t f = 0; f < w->p->items.n; f++)
        w->length[f] = f < n ? dlpi_slot_lengths(w->p, t->slot, f, 1)[row] : 0;
}

/* Keep the lengths that a row's callback has set. Returns false if one of them is wrong. A wrong
   length is not kept, so another attempt does not find it. */
static inline bool dlpi_row_lengths_kept(const dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlpi_scope *scope = &w->st->scope;
    uint64_t wrong = 0;
    for (uint32_t f = scope->field; f < scope->field + scope->n_fields; f++) {
        const dlpi_field *d = &w->p->items.at[f];
        const uint64_t n = w->length[f];
        const bool over = n > dlpi_length_most(d);
        wrong |= over;
        if (d->f.ragged && !over) dlpi_slot_lengths(w->p, t->slot, f, 1)[row] = n;
    }
    return wrong == 0;
}

static inline bool dlpi_lengths_set(const dlpi_worker *w) {
    uint64_t any = w->st->scope.ragged | w->given.length[0];
    if (w->given.n_fields > 1) any |= w->given.length[1]; /* the start of a loop costs more */
    for (uint32_t f = 2; f < w->given.n_fields; f++) any |= w->given.length[f];
    return any != 0;
}

/* True if a keeper (a cache) may have rows, so that this stage need not work on them. */
static inline bool dlpi_row_kept(const dlpi_worker *w) { return w->st->work <= w->p->kept_by; }

/* True if the row was kept and is taken from the keeper. */
static inline bool dlpi_row_get(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    return dlpi_row_kept(w) && w->p->keeper->get(w, t, row);
}

/* True if items have fields in a cell of their own, which end before the batch. */
static inline bool dlpi_row_held(const dlpi_worker *w) { return w->st->held != 0; }
/* True if the holder has to set such fields for each row. */
static inline bool dlpi_row_asks(const dlpi_worker *w) { return w->st->held & DLPI_HELD_LENGTHS; }

/* True if the stage's fetch sees field f, and writes_all_bytes = 1 would leave its clearing out. */
DLPI_COLD static bool dlpi_rows_spared(const dlpi_worker *w, uint32_t f) {
    const dlpi_program *g = dlpi_program_of(w->st);
    const uint32_t n = g != NULL && g->n > 0 ? g->op->n : w->st->scope.n_fields;
    return w->st->dataset != NULL && w->st->scope.zeroes == 1 && f < w->st->scope.field + n;
}

/* Clear the stage's fields of `rows` rows from `row` on, unless fetch writes all of their bytes. */
static inline void dlpi_rows_zero(const dlpi_worker *w, uint32_t row, uint64_t rows) {
    const dlpi_scope *scope = &w->st->scope;
    if (!scope->zeroes) return;
    for (uint32_t f = scope->own; f < scope->field + scope->n_fields; f++) {
        const dlpi_field *d = &w->p->items.at[f];
        uint8_t *at = w->cell[f + scope->shift] + row * d->row_bytes;
        if (dlpi_clears_timed(w))
            dlpi_clear_timed(w, d, at, rows * d->row_bytes, rows, dlpi_rows_spared(w, f));
        else
            memset(at, 0, rows * d->row_bytes);
    }
}

/* Open the marks of the ragged fields that the stage works on, before the callbacks of rows [row,
   end). Clear the fields that the stage adds, unless its fetch writes all of their bytes. Rows in
   its attempt look at a field between two callbacks, so they begin with a clear one, also in a
   field of the fetch itself. */
static void dlpi_rows_open(const dlpi_worker *w, uint32_t s, uint32_t row, uint32_t end) {
    const dlpi_scope *scope = &w->st->scope;
    for (uint32_t f = scope->field; f < scope->field + scope->n_fields; f++) {
        const dlpi_field *d = &w->p->items.at[f];
        const bool own = f >= scope->own, zeroes = own && scope->zeroes != 0;
        const bool fused = w->chained && (own || dlpi_writes_first(w));
        const uint64_t room = d->row_bytes;
        uint64_t *marks = d->f.ragged ? dlpi_mark(w->p, s, f, row) : NULL, from = 0;
        uint8_t *cell = w->cell[f] + row * room;
        if (marks == NULL && zeroes && dlpi_clears_timed(w))
            dlpi_clear_timed(w, d, cell, (end - row) * room, end - row, dlpi_rows_spared(w, f));
        else if (marks == NULL && zeroes)
            memset(cell, 0, (end - row) * room);
        if (marks == NULL) continue;
        if (dlpi_clears_timed(w) && (zeroes || fused))
            from = dlpi_tails_timed(w, d, cell, marks, NULL, end - row);
        for (uint32_t r = 0; r < end - row; r++)
            dlpi_mark_begin(&marks[r], cell + r * room, room, zeroes || fused);
        if (DLPI_UNLIKELY(from != 0)) dlpi_clear_note(w, d, from, dlpi_rows_spared(w, f));
    }
}

/* What a worker does for a row beside the call of its stage's callback. Questions take more time
   than an empty callback, so the code of rows is compiled apart for each of these. */
enum {
    DLPI_ASK_NOTHING, /* nothing. Rows are cleared, if at all, several before the first is run */
    DLPI_ASK_CELLS,   /* the row has fields that end before the batch, or is one of a later dataset,
                         so that it has another index there and is cleared alone */
    DLPI_ASK_RAGGED,  /* the row has lengths, and its marks are those of dlpi_unit_ragged */
    DLPI_ASK_RUNS,    /* several rows are made by one call; row/runs.h does what is asked */
    DLPI_ASK_ALL      /* any of what dlpi_row_special does. Rows with a fate are always run so */
};

/* Return what a worker does for rows without a fate: DLPI_ASK_*. */
static uint8_t dlpi_row_asked(const dlpi_worker *w) {
    const bool cells = dlpi_row_asks(w) || w->st->scope.first != 0;
    if (dlpi_row_kept(w) || w->extra != NULL || w->st->w.deadline_ms != 0 || w->st->timed != 0)
        return DLPI_ASK_ALL;
    if (w->p->items.any_ragged)
        return cells || w->p->datasets.n_added > 0 ? DLPI_ASK_ALL : DLPI_ASK_RAGGED;
    return cells ? DLPI_ASK_CELLS : DLPI_ASK_NOTHING;
}

/* Let the source set in the item what it has for the row's callback. Not inlined: the address of
   the item would take a register in the loop over rows. */
DLPI_NOINLINE static void dlpi_row_extra(dlpi_worker *w, uint32_t s, uint32_t row) {
    w->p->source->row(w, &w->item, s, row, w->extra);
}

/* Set the item's fields that end before the batch, its zeros, and the index that its own dataset
   knows it by. clear: the row has no zeros yet. */
static inline void dlpi_row_cells(dlpi_worker *w, uint32_t row, bool clear) {
    if (dlpi_row_asks(w)) w->p->holder->at(w, row);
    if (clear) dlpi_rows_zero(w, row, 1);
    w->item.index -= w->st->scope.first;
}

/* Do what some pipes want before a row's callback: take a kept row, set lengths, clear the row, and
   so on. Returns true if the row was kept, so that it is done. */
static bool dlpi_row_special(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    if (dlpi_row_kept(w)) {
        dlpi_runs(&w->block->running, DLPI_RUNS_NONE); /* no callback is to blame, if we die */
        if (dlpi_row_get(w, t, row)) return true;
        dlpi_bump(&w->block->kept_misses, dlpi_writes_first(w)); /* the first stage counts it */
        w->note.used_random = 0;
    }
    if (p->items.any_ragged) dlpi_item_lengths(w, t, row, w->st->scope.own);
    if (w->extra != NULL) dlpi_row_extra(w, t->slot, row);
    dlpi_row_cells(w, row, !p->items.any_ragged);
    if (p->items.any_ragged) dlpi_rows_open(w, t->slot, row, row + 1);
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->block->since_ns, dlpi_now_ns());
    return false;
}

/* Prepare the worker's item for rows of slot s: cells, indices, epoch and first position. */
DLPI_INLINE void dlpi_item_slot(dlpi_worker *w, uint32_t s) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint8_t *cell = dlpi_item_cell(p, s);
    for (uint32_t f = 0; f < p->items.n; f++) w->cell[f] = cell + p->items.at[f].offset;
    w->index = dlpi_slot_index(p, s);
    w->given.epoch = slot->epoch;
    w->given.worker_state = w->state;
    w->position = slot->position;
}

typedef struct dlpi_twin { /* a copy of a worker's item */
    dlp_item item;
    void *data[DLP_MAX_FIELDS];
} dlpi_twin;

/* Make the worker's item that of `row`, with this index. A callback may have changed any of its
   members, and a copy of the whole costs less than a look at each. twin: the same for it, with all
   fields from number 0 on; or NULL. It is made here, since a read of the item would wait for the
   stores to it. Returns the item's position. */
DLPI_INLINE uint64_t dlpi_item_of(dlpi_worker *w, const dlpi_scope *scope, uint32_t row,
                                  uint64_t index, dlpi_twin *twin) {
    dlp_item *it = twin != NULL ? &twin->item : &w->item;
    void **data = twin != NULL ? twin->data : w->data;
    uint64_t position = w->position + row;
    const uint32_t n = scope->n_cells;
    if (DLPI_UNLIKELY(position >= w->p->samples)) position %= w->p->samples;
    w->item = *it = w->given;
    w->item.index = it->index = index;
    w->item.position = it->position = position;
    w->item.row = it->row = row;
    if (twin != NULL) it->data = data;
    w->data[0] = data[0] = w->cell[0] + row * scope->cells[0].row_bytes;
    if (n < 2) return position; /* the start of a loop costs more */
    w->data[1] = data[1] = w->cell[1] + row * scope->cells[1].row_bytes;
    for (uint32_t f = 2; f < n; f++)
        w->data[f] = data[f] = w->cell[f] + row * scope->cells[f].row_bytes;
    return position;
}

DLPI_NOINLINE static void dlpi_item_row(dlpi_worker *w, uint32_t row) {
    dlpi_item_of(w, &w->st->scope, row, w->index[row], NULL);
}

/* Handle a row on which this stage has no work. If its index is no item, that is an error. Else it
   is kept: taken from the keeper, or given to it as the last stage leaves it. */
static int dlpi_row_passes(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    dlpi_item_row(w, row);
    if (w->item.index >= w->p->fetch->dataset->n_items) {
        dlpi_say(w, 0, "the order gave index %" PRIu64 ", the dataset has %" PRIu64 " items",
                 w->item.index, w->p->fetch->dataset->n_items);
        return dlpi_row_raise(w, t, row, DLP_ERR_CALLBACK);
    }
    w->passed++;
    if (dlpi_row_get(w, t, row)) return DLPI_ROW_DONE;
    dlpi_bump(&w->block->kept_misses, dlpi_writes_first(w)); /* the first stage counts it */
    if (w->p->items.any_ragged) dlpi_item_lengths(w, t, row, w->p->items.n);
    return w->p->keeper->put(w, t->slot, row, false), DLPI_ROW_DONE;
}

/* Pass a row that is an item of another dataset of a mix, or fail one that is no item at all. */
static inline int dlpi_row_other(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    if (dlpi_row_kept(w) || w->index[row] >= w->p->fetch->dataset->n_items)
        return dlpi_row_passes(w, t, row);
    w->passed++;
    return DLPI_ROW_DONE;
}

/* Return the code for what the callback of a row returned. Words that an earlier item has left are
   forgotten. */
static int dlpi_row_returned(dlpi_worker *w, uint32_t row, int rc) {
    dlpi_item_row(w, row);
    if (w->note.said != row + 1) dlpi_words_forget(w);
    return dlpi_item_returned(w, rc);
}

/* Decide what becomes of a row whose callback came to the code rc, not 0. Returns DLPI_ROW_*. Not
   inlined, so that rows that are done cost little. */
DLPI_COLD static int dlpi_row_wrong(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int rc) {
    dlpi_item_row(w, row);
    rc = dlpi_row_failed(w, t, row, rc);
    dlpi_failure_forget(w);
    return rc;
}

/* A function to inline in place of the call of a stage's callback. twin: that of the item. */
typedef int (*dlpi_inlined)(dlpi_worker *w, void *user, dlpi_twin *twin);

/* Call the callback of a row. Only an inlined pair calls it elsewhere. Returns its result. */
DLPI_INLINE int dlpi_row_call(const dlpi_stage *st, dlp_item *it) { return st->item(st->user, it); }

/* Go on with a row whose callback came to code rc. If it succeeded, finish the row: its lengths (if
   it set some), fields in cells of their own, and the keeper's copy. Returns DLPI_ROW_*. Out of
   line, so that rows that are done cost little. */
DLPI_NOINLINE static int dlpi_row_more(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int rc) {
    const bool lengths = dlpi_lengths_set(w);
    if (rc == 0 && (lengths || dlpi_row_kept(w))) dlpi_item_row(w, row);
    if (rc == 0 && dlpi_row_held(w)) rc = w->p->holder->written(w, row);
    if (rc == 0 && lengths) rc = dlpi_row_lengths(w, t, row);
    if (DLPI_UNLIKELY(rc != 0)) return dlpi_row_wrong(w, t, row, rc);
    if (dlpi_row_kept(w)) w->p->keeper->put(w, t->slot, row, w->note.used_random != 0);
    return DLPI_ROW_DONE;
}

/* One attempt at a row: all that happens to it, once. runs: DLPI_RUNS_ROW; fate: the fate of the
   row; ask: DLPI_ASK_*, a constant; pair: see dlpi_inlined, or NULL. Returns DLPI_ROW_*. */
DLPI_INLINE int dlpi_row_attempt(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint64_t runs,
                                 uint32_t fate, int ask, dlpi_inlined pair) {
    const dlpi_stage *st = w->st;
    dlpi_worker_block *block = w->block;
    dlp_item *it = &w->item;
    dlpi_twin twin;
    const uint64_t index = w->index[row];
    int rc = 0;
    DLPI_STORE_RLX(&block->current, index); /* for observers */
    if (DLPI_UNLIKELY(index - st->scope.first >= st->scope.n_items))
        return dlpi_row_other(w, t, row);
    DLPI_STORE_RLX(&block->current_position,
                   dlpi_item_of(w, &st->scope, row, index, pair != NULL ? &twin : NULL));
    if (ask == DLPI_ASK_ALL && DLPI_UNLIKELY(fate != 0)) it->attempt = dlpi_fate_tries(fate);
    if (ask == DLPI_ASK_CELLS) dlpi_row_cells(w, row, st->scope.first != 0);
    if (ask == DLPI_ASK_RAGGED) dlpi_item_lengths(w, t, row, st->scope.own);
    if (ask == DLPI_ASK_ALL && dlpi_row_special(w, t, row)) return DLPI_ROW_DONE;
    dlpi_runs(&block->running, runs);
    if (ask == DLPI_ASK_ALL && DLPI_UNLIKELY(fate != 0))
        rc = dlpi_fate_verdict(w, t->slot, row, fate);
    if (ask != DLPI_ASK_ALL || DLPI_LIKELY(rc == 0)) {
        if (DLPI_DEBUG) dlpi_redzone_in(w, it, dlpi_redzone_cell(w, 0), t->slot, row);
        rc = pair != NULL ? pair(w, st->user, &twin) : dlpi_row_call(st, it);
        if (DLPI_UNLIKELY(DLPI_DEBUG || rc != 0)) rc = dlpi_row_returned(w, row, rc);
        if (DLPI_DEBUG) rc = dlpi_redzone_out(w, it, dlpi_redzone_cell(w, 0), t->slot, row, rc);
    }
    const bool more =
        rc != 0 ||
        (ask == DLPI_ASK_RAGGED ? !dlpi_row_lengths_kept(w, t, row) : dlpi_lengths_set(w)) ||
        (ask != DLPI_ASK_NOTHING && ask != DLPI_ASK_RAGGED && dlpi_row_asks(w)) ||
        (ask == DLPI_ASK_ALL && dlpi_row_kept(w));
    return DLPI_UNLIKELY(more) ? dlpi_row_more(w, t, row, rc) : DLPI_ROW_DONE;
}

/* Make attempts at a row until it is done, parked, or goes back. Returns which: DLPI_ROW_*. */
DLPI_NOINLINE static int dlpi_row_run(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const uint32_t *fate = &dlpi_slot_fate(w->p, t->slot)[row];
    int what;
    do what = dlpi_row_attempt(w, t, row, DLPI_RUNS_ROW(t->slot, row), *fate, DLPI_ASK_ALL, NULL);
    while (what == DLPI_ROW_AGAIN);
    return what;
}

/* Begin a run of rows of slot s: the worker's item, and the generation that may be cancelled. */
DLPI_INLINE void dlpi_item_begin(dlpi_worker *w, uint32_t s) {
    const dlpi_bslot *slot = dlpi_slot_at(w->p, s);
    dlpi_item_slot(w, s);
    w->generation = dlpi_slot_generation(slot);
    w->note.said = 0;                                      /* of a run before */
    DLPI_STORE_RLX(&w->block->current_epoch, slot->epoch); /* for observers */
}

/* Begin with unit t, also in a stage that has fields in cells of their own. */
static void dlpi_item_at(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_item_begin(w, t->slot);
    if (dlpi_row_held(w)) w->p->holder->cells(w, t->slot, t->row);
}

/* Park rows (bits) of a claimed unit, which go back to the first stage. The unit is freed as a
   whole, so they may have to wait for other rows of it. */
static void dlpi_unit_redo(dlpi_worker *w, const dlpi_unit *t, uint32_t rows) {
    uint32_t first = t->row / DLPI_WORD_ROWS * DLPI_WORD_ROWS;
    for (; rows; rows &= rows - 1) dlpi_park(w, t, first + DLPI_CTZ(rows), DLPI_GOES_BACK);
}

/* Compute the indices of a unit's rows again, of which some may have been run, replaced, or left by
   a worker that died. Each index follows from the row's fate alone. already: bits of done rows. */
static void dlpi_unit_indices_again(dlpi_worker *w, const dlpi_unit *t, uint32_t already) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    uint64_t *index = dlpi_slot_index(p, t->slot);
    for (uint32_t r = t->row; r < t->end; r++) {
        uint64_t at = (slot->position + r) % p->samples;
        uint32_t repl = dlpi_fate_repl(dlpi_slot_fate(p, t->slot)[r]);
        if (already >> r % DLPI_WORD_ROWS & 1u) continue;
        index[r] = p->source->item(w, t->slot, r, slot->epoch, at, repl);
    }
}

/* Do one row of a unit whose rows have fates, or which may be the epoch's end. Adds to *left if the
   row was not run, and sets *ended once the epoch is over. Returns DLPI_ROW_*. */
static int dlpi_unit_row(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t *left,
                         bool *ended) {
    const dlp_pipe *p = w->p;
    const uint32_t *fate = &dlpi_slot_fate(p, t->slot)[row];
    uint32_t state = dlpi_fate_state(*fate); /* END, of an open end alone: seen before */
    int what = DLPI_ROW_DONE;
    if (state == DLPI_ROW_LEFT) {
        dlpi_row_clear(p, t, row);
    } else if (*ended || state == DLPI_ROW_END) {
        dlpi_row_end(w, t, row);
    } else if (!dlpi_generation_cancelled(p->ctl, w->generation)) {
        what = dlpi_row_run(w, t, row);
        if (dlpi_fate_state(*fate) != DLPI_ROW_END) return what;
        *ended = true;
    }
    ++*left;
    return what;
}

#define DLPI_ZERO_BYTES (12u << 10) /* bytes of rows that are cleared together, at most */

/* Clear the rows that a plain unit runs next, up to row `end`, if they are to be cleared. Several
   are cleared at once: a memset between two copies keeps the second copy's reads from starting
   early. But these are no more than stay in a first-level cache of 32 KiB, beside what their fetch
   reads. Returns the row before which they end. */
static inline uint32_t dlpi_unit_clear(const dlpi_worker *w, uint32_t row, uint32_t end) {
    const uint64_t bytes = w->p->items.cell_bytes;
    uint32_t rows = end - row;
    if (!w->st->scope.zeroes || w->st->scope.first != 0) return end;
    if (rows * bytes > DLPI_ZERO_BYTES)
        rows = bytes < DLPI_ZERO_BYTES ? DLPI_ZERO_BYTES / (uint32_t)bytes : 1;
    dlpi_rows_zero(w, row, rows);
    return row + rows;
}

/* Begin to fetch the lines that the rows of a unit are about to be written to: the consumer has
   read them last. On their way all at once they cost little more than one of them does when a store
   waits for it. Where items are large their copies keep as many lines under way by themselves. */
static void dlpi_unit_ahead(const dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_scope *scope = &w->st->scope;
    const uint8_t *cell = dlpi_item_cell(p, t->slot);
    uint64_t rows = t->end - t->row;
    if (rows * p->items.cell_bytes > DLPI_AHEAD_BYTES) return;
    dlpi_lines_ahead(&dlpi_slot_index(p, t->slot)[t->row], rows * 8);
    for (uint32_t f = scope->field; f < scope->field + scope->n_fields; f++) {
        const dlpi_field *d = &p->items.at[f];
        dlpi_lines_ahead(cell + d->offset + t->row * d->row_bytes, rows * d->row_bytes);
    }
}

/* Rows of a unit: bits of those that are done, that go back, that wait; how many were not run. */
typedef struct dlpi_tally {
    uint32_t mask, redo, later, left;
} dlpi_tally;

/* Add a row to the bits. what: DLPI_ROW_*, but never AGAIN. */
static inline void dlpi_tally_add(dlpi_tally *n, uint32_t row, int what) {
    uint32_t *to = what == DLPI_ROW_DONE ? &n->mask : what == DLPI_ROW_REDO ? &n->redo : &n->later;
    *to |= UINT32_C(1) << row % DLPI_WORD_ROWS;
}

/* Run all rows of a unit of which nothing is known but the indices. ask: DLPI_ASK_* of each row;
   pair: see dlpi_inlined, or NULL. *n counts what was done. */
DLPI_INLINE void dlpi_unit_plain(dlpi_worker *w, const dlpi_unit *t, int ask, dlpi_inlined pair,
                                 dlpi_tally *n) {
    const dlpi_ctl *ctl = w->p->ctl;
    const uint64_t runs = DLPI_RUNS_ROW(t->slot, 0); /* here: a callback may change all memory */
    uint32_t row = t->row, end = t->end;
    w->ahead_row = row + 1;
    w->ahead_end = end;
    while (row < end) {
        for (const uint32_t stop = ask == DLPI_ASK_RAGGED ? end : dlpi_unit_clear(w, row, end);
             row < stop; row++) {
            if (DLPI_UNLIKELY(dlpi_generation_cancelled(ctl, w->generation))) {
                n->left += end - row;
                end = row;
                break;
            }
            const int what = dlpi_row_attempt(w, t, row, runs + row, 0, ask, pair);
            if (DLPI_LIKELY(what == DLPI_ROW_DONE)) continue;
            dlpi_tally_add(n, row, what != DLPI_ROW_AGAIN ? what : dlpi_row_run(w, t, row));
        }
    }
    w->ahead_end = 0;
    n->mask = dlpi_unit_mask(t->row, t->end) & ~(n->redo | n->later);
}

/* Run the first two ops for the worker's item, where no field is ragged. The first op is the
   stage's own callback, which sees fields from number 0 on. It gets the item's twin. More ops run
   in the loop. */
DLPI_INLINE int dlpi_pair_call(dlpi_worker *w, void *user, dlpi_twin *first) {
    const dlpi_op *k = user;
    first->item.n_fields = k->n;
    int rc = dlpi_op_call(k, &first->item);
    if (DLPI_UNLIKELY(rc != 0)) return rc;
    w->note.message[0] = 0;
    if (k[1].how != (DLPI_OP_LAST | DLPI_OP_SELF)) {
        if (k[1].how != (DLPI_OP_LAST | DLPI_OP_SELF | DLPI_OP_FEWER))
            return dlpi_ops_row(&k[1], &w->item, NULL);
        dlpi_op_point(&w->item, &k[1]);
    }
    rc = dlpi_op_call(&k[1], &w->item);
    return DLPI_LIKELY(rc == 0) ? 0 : dlpi_op_over(&k[1], &w->note, rc);
}

/* Run the rows of a unit whose stage has a program, as dlpi_unit_plain does for one callback. */
DLPI_NOINLINE static void dlpi_unit_pairs(dlpi_worker *w, const dlpi_unit *t, void *tally) {
    dlpi_unit_plain(w, t, DLPI_ASK_NOTHING, dlpi_pair_call, tally);
}

/* Close the marks of ragged field f in the rows of a unit that are done (bits). Rows that failed
   have closed theirs, or leave them open. left: the last rows, which were not run. */
static void dlpi_field_close(const dlpi_worker *w, const dlpi_unit *t, uint32_t f, uint32_t mask,
                             uint32_t left) {
    const dlpi_field *d = &w->p->items.at[f];
    const uint64_t unit = dlpi_row_bytes(d), room = d->row_bytes;
    const uint64_t *lengths = dlpi_slot_lengths(w->p, t->slot, f, 1);
    uint64_t *marks = dlpi_mark(w->p, t->slot, f, 0);
    uint8_t *cell = w->cell[f];
    uint64_t from = 0;
    if (dlpi_clears_timed(w))
        from = dlpi_tails_timed(w, d, cell + t->row * room, &marks[t->row], &lengths[t->row],
                                t->end - t->row - left);
    for (uint32_t r = t->row; r < t->end; r++) {
        if ((DLPI_LOAD_RLX(&marks[r]) & DLPI_MARK_OPEN) == 0) continue; /* X3: our own */
        if (DLPI_UNLIKELY(r >= t->end - left))
            dlpi_mark_back(&marks[r]);
        else if (DLPI_LIKELY((mask >> r % DLPI_WORD_ROWS & 1u) != 0))
            dlpi_mark_close(&marks[r], cell + r * room, lengths[r] * unit, room);
    }
    if (DLPI_UNLIKELY(from != 0)) dlpi_clear_note(w, d, from, false);
}

/* Do what dlpi_field_close does, in each ragged field that the stage works on. */
static void dlpi_unit_close(const dlpi_worker *w, const dlpi_unit *t, uint32_t mask,
                            uint32_t left) {
    const dlpi_scope *scope = &w->st->scope;
    for (uint32_t f = scope->field; f < scope->field + scope->n_fields; f++)
        if (w->p->items.at[f].f.ragged) dlpi_field_close(w, t, f, mask, left);
}

/* Run all rows of a unit of which nothing is asked but their lengths. Bytes are cleared before the
   first row and after the last one. A memset between two copies, of a length that the processor
   cannot foretell, would keep the second copy's reads from starting early. */
static void dlpi_unit_ragged(dlpi_worker *w, const dlpi_unit *t, dlpi_tally *n) {
    dlpi_rows_open(w, t->slot, t->row, t->end);
    dlpi_unit_plain(w, t, DLPI_ASK_RAGGED, NULL, n);
    dlpi_unit_close(w, t, n->mask, n->left);
}

/* Run the rows of a unit that are more than a call of their callback. */
DLPI_NOINLINE static void dlpi_unit_cells(dlpi_worker *w, const dlpi_unit *t, dlpi_tally *n) {
    if (w->asks == DLPI_ASK_RAGGED)
        dlpi_unit_ragged(w, t, n);
    else if (w->asks == DLPI_ASK_RUNS)                  /* needs: runs */
        w->st->ops->chained(w, t, n);                   /* needs: runs */
    else                                                /* needs: join|scratch */
        dlpi_unit_plain(w, t, DLPI_ASK_CELLS, NULL, n); /* needs: join|scratch */
}

/* True if no row of the unit has a fate: nothing is known of the rows but their indices. A fate
   that an earlier worker of the unit has set is not missed. Each store of a fate comes after that
   of `dirty`, and before the done bits or the freed claim by which this worker has the unit. */
static bool dlpi_unit_blank(const dlp_pipe *p, const dlpi_unit *t) {
    uint32_t r = DLPI_LOAD_RLX(&dlpi_slot_at(p, t->slot)->dirty) != 0 ? t->row : t->end;
    while (r < t->end && dlpi_slot_fate(p, t->slot)[r] == 0) r++; /* dirty: ordered by done */
    return r == t->end;
}

/* Run the rows of a unit of which some may be done already (bits), or have a fate. */
static void dlpi_unit_rows_run(dlpi_worker *w, const dlpi_unit *t, uint32_t already,
                               dlpi_tally *n) {
    bool ended = false;
    for (uint32_t r = t->row; r < t->end; r++)
        if ((already >> r % DLPI_WORD_ROWS & 1u) == 0)
            dlpi_tally_add(n, r, dlpi_unit_row(w, t, r, &n->left, &ended));
}

/* Work on an untouched unit that is a whole batch of one row. The answers to what dlpi_unit_items
   asks are known here. No other worker can have done the row, and the batch is complete with it. */
DLPI_INLINE void dlpi_unit_single(dlpi_worker *w, const dlpi_unit *t) {
    int what = DLPI_ROW_DONE;
    uint32_t done = 0;
    dlpi_runs(&w->block->running, DLPI_RUNS_NONE); /* it may be a row of this number */
    if (w->started && !w->alone) dlpi_unit_ahead(w, t);
    w->p->source->indices(w, t);
    dlpi_unpoison(w->p, t->slot);
    dlpi_item_begin(w, t->slot);
    dlpi_rows_zero(w, t->row, 1);
    if (DLPI_LIKELY(!dlpi_generation_cancelled(w->p->ctl, w->generation))) {
        what = dlpi_row_attempt(w, t, t->row, DLPI_RUNS_ROW(t->slot, t->row), 0, DLPI_ASK_NOTHING,
                                NULL);
        if (DLPI_UNLIKELY(what == DLPI_ROW_AGAIN)) what = dlpi_row_run(w, t, t->row);
        done = (what == DLPI_ROW_DONE) - w->passed;
        w->passed = 0;
    }
    dlpi_items_count(w->block, done, done * w->p->items.cell_bytes);
    dlpi_clock_out(w, t->b, w->given.epoch, done);
    if (DLPI_LIKELY(what == DLPI_ROW_DONE)) dlpi_complete_single(w, t);
}

/* Work on a claimed unit of an item stage: run its rows, count them and set their done bits. */
DLPI_NOINLINE static void dlpi_unit_items(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    dlpi_stage_words *words = dlpi_stage_words_at(p, t->slot, w->st);
    uint32_t already = dlpi_gather_bits(dlpi_done(words), t->row / DLPI_WORD_ROWS, t->b) &
                       dlpi_unit_mask(t->row, t->end);
    const bool plain =
        dlpi_end_known(p) && already == 0 && !DLPI_DEBUG && (t->untouched || dlpi_unit_blank(p, t));
    dlpi_tally n = {0, 0, 0, 0};
    dlpi_runs(&w->block->running, DLPI_RUNS_NONE); /* it may be a row of this number */
    if (t->untouched && w->started) dlpi_unit_ahead(w, t);
    if (t->untouched)
        p->source->indices(w, t);
    else if (dlpi_writes_first(w))
        dlpi_unit_indices_again(w, t, already);
    dlpi_unpoison(p, t->slot);
    dlpi_item_at(w, t);
    if (!plain || w->asks == DLPI_ASK_ALL)
        dlpi_unit_rows_run(w, t, already, &n);
    else if (w->asks != DLPI_ASK_NOTHING)
        dlpi_unit_cells(w, t, &n);
    else if (w->chained)
        w->st->ops->chained(w, t, &n);
    else
        dlpi_unit_plain(w, t, DLPI_ASK_NOTHING, NULL, &n);
    const uint32_t done = (uint32_t)DLPI_ONES(n.mask) - n.left - w->passed;
    w->passed = 0;
    dlpi_items_count(w->block, done, done * p->items.cell_bytes);
    dlpi_clock_out(w, t->b, w->given.epoch, done);
    dlpi_complete(w, t, n.mask);
    if (n.redo != 0) dlpi_unit_redo(w, t, n.redo);
}
