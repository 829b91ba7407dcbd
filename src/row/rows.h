#pragma once
/* tests: system/core/pipe_errors, system/core/pipe_wake */
#include "row/run.h"
/* ---- a worker of rows: those that wait for their next attempt, and its steps ---- */

/* True if a parked row is tried again in this stage. If not, it goes back to the first stage. */
static bool dlpi_parked_stays(const dlpi_worker *w, const dlpi_parked *k) {
    return dlpi_writes_first(w) || (w->st->w.idempotent && k->due_ns != DLPI_GOES_BACK);
}

/* True if a parked row may move: it is due, or cancelled. Sets *t to the row and its unit. Sets
   *rows to 0 if the row is tried again. Else all parked rows of its unit go back to the first stage
   as one, once none of them waits for anything: *rows are their bits. */
static bool dlpi_parked_moves(const dlpi_worker *w, const dlpi_parked *k, uint64_t now,
                              dlpi_unit *t, uint32_t *rows) {
    const dlpi_bslot *slot = dlpi_slot_at(w->p, k->slot);
    const uint32_t shift = dlpi_header_shift(DLPI_LOAD_RLX(&slot->header)); /* claimed */
    const bool cancelled = dlpi_cancelled(w->p->ctl, slot);
    *t = (dlpi_unit){k->gen, k->slot, k->row >> shift, k->row, k->row + 1, false};
    *rows = 0;
    if (k->due_ns > now && !cancelled) return false;
    if (cancelled || dlpi_parked_stays(w, k)) return true;
    for (int i = 0; i < w->n_parked; i++) {
        const dlpi_parked *other = &w->parked[i];
        if (other->slot != t->slot || other->row >> shift != t->unit) continue;
        if (other->due_ns > now || dlpi_parked_stays(w, other)) return false;
        *rows |= UINT32_C(1) << other->row % DLPI_WORD_ROWS;
    }
    return true;
}

/* Forget the parked rows that `rows` names. rows: bits of the done word of t->row. */
static void dlpi_parked_remove(dlpi_worker *w, const dlpi_unit *t, uint32_t rows) {
    uint32_t word = t->row / DLPI_WORD_ROWS;
    int n = 0;
    for (int i = 0; i < w->n_parked; i++) {
        const dlpi_parked *k = &w->parked[i];
        bool in = k->slot == t->slot && k->row / DLPI_WORD_ROWS == word &&
                  (rows >> k->row % DLPI_WORD_ROWS & 1u) != 0;
        if (!in) w->parked[n++] = *k;
    }
    w->n_parked = n;
}

/* Set the done bit of row t->row, and count n items: 1, or 0 if nobody worked on the row. */
static void dlpi_row_done(dlpi_worker *w, const dlpi_unit *t, uint32_t n) {
    dlpi_items_count(w->block, n, n * w->p->items.cell_bytes);
    dlpi_complete(w, t, UINT32_C(1) << t->row % DLPI_WORD_ROWS);
}

/* True if row t->row, which is done, counts as an item: its stream did not end there. */
static bool dlpi_row_counts(const dlpi_worker *w, const dlpi_unit *t) {
    return dlpi_fate_state(dlpi_slot_fate(w->p, t->slot)[t->row]) != DLPI_ROW_END;
}

/* Try the parked row t->row again, by a worker that runs one row at a time. */
DLPI_COLD static void dlpi_row_parked(dlpi_worker *w, const dlpi_unit *t) {
    int what = DLPI_ROW_DONE;
    dlpi_clock_in(w);
    dlpi_item_at(w, t);
    const bool wanted = !dlpi_generation_cancelled(w->p->ctl, w->generation);
    if (wanted) what = dlpi_row_run(w, t, t->row);
    dlpi_clock_out(w, t->b, w->given.epoch, wanted);
    w->passed = 0;
    if (what == DLPI_ROW_DONE) dlpi_row_done(w, t, wanted && dlpi_row_counts(w, t));
    if (what == DLPI_ROW_REDO) dlpi_park(w, t, t->row, DLPI_GOES_BACK);
}

/* Find a parked row that may move. Let it be tried again, or send it, and the parked rows of its
   unit, back to the first stage. Returns true if there was one. */
static bool dlpi_unpark(dlpi_worker *w, void (*try_again)(dlpi_worker *, const dlpi_unit *)) {
    const uint64_t now = dlpi_now_ns();
    for (int i = 0; i < w->n_parked; i++) {
        dlpi_unit t;
        uint32_t rows;
        if (!dlpi_parked_moves(w, &w->parked[i], now, &t, &rows)) continue;
        dlpi_parked_remove(w, &t, rows != 0 ? rows : UINT32_C(1) << t.row % DLPI_WORD_ROWS);
        if (rows == 0)
            try_again(w, &t);
        else
            dlpi_rows_redo(w, &t, rows);
        return true;
    }
    return false;
}

/* ---- its steps ---- */

/* True if the worker takes no unit: it has no room to park all rows of one more, or is retired. */
static bool dlpi_rows_full(const dlpi_worker *w) {
    return w->n_parked + (int)DLPI_WORD_ROWS > w->parked_most || DLPI_UNLIKELY(dlpi_retired(w));
}

static inline bool dlpi_rows_find(dlpi_worker *w, dlpi_unit *t) {
    return !dlpi_rows_full(w) && dlpi_find(w, t);
}

/* Do the first rows of a unit by one call of the stage's `bulk`, where nothing is asked of a single
   row. No callback is to blame if the worker dies. Returns how many rows are done; 0: none. */
DLPI_NOINLINE static uint32_t dlpi_rows_bulk(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    if (!t->untouched || DLPI_DEBUG || dlpi_row_held(w) || p->items.any_ragged ||
        w->st->w.deadline_ms != 0 || dlpi_generation_cancelled(p->ctl, dlpi_slot_generation(slot)))
        return 0;
    dlpi_runs(&w->block->running, DLPI_RUNS_NONE); /* it may be a row of this number */
    if (w->started) dlpi_unit_ahead(w, t);
    p->source->indices(w, t);
    DLPI_STORE_RLX(&w->block->current, dlpi_slot_index(p, t->slot)[t->row]); /* for observers */
    DLPI_STORE_RLX(&w->block->current_epoch, slot->epoch);
    DLPI_STORE_RLX(&w->block->current_position, slot->position + t->row);
    dlpi_unpoison(p, t->slot);
    const uint32_t n = w->st->ops->bulk(w, t);
    if (n == 0) return 0;
    dlpi_items_count(w->block, n, n * p->items.cell_bytes);
    dlpi_clock_out(w, t->b, slot->epoch, n);
    dlpi_complete(w, t, dlpi_unit_mask(t->row, t->row + n));
    return n;
}

/* Run the rows of a claimed unit. The first rows run in bulk, if the stage can do that. */
DLPI_INLINE void dlpi_rows_run(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_clock_in(w);
    if (DLPI_LIKELY(w->singles && t->untouched)) {
        dlpi_unit_single(w, t);
        return;
    }
    dlpi_unit rest = *t;
    if (w->st->ops->bulk != NULL) rest.row += dlpi_rows_bulk(w, t); /* needs: parts */
    if (rest.row < rest.end) dlpi_unit_items(w, &rest);
}

/* Try a parked row again, and run the next unit. Returns false if there was neither. */
static bool dlpi_rows_step(dlpi_worker *w) {
    dlpi_unit t;
    bool moved = w->n_parked > 0 && dlpi_unpark(w, dlpi_row_parked);
    if (!dlpi_rows_find(w, &t)) return moved;
    dlpi_rows_run(w, &t);
    return true;
}

/* True if each unit of this worker is a whole batch of one row, of which nothing is asked but the
   call, and to be cleared. The next stage, if any, is one of batches. Untouched units then take the
   short path, dlpi_unit_single. */
static bool dlpi_worker_singles(const dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    return p->batch_rows == 1 && p->n_item_work == 1 && dlpi_end_known(p) && !DLPI_DEBUG &&
           w->st->ops->step == dlpi_rows_step && w->st->ops->bulk == NULL &&
           w->asks == DLPI_ASK_NOTHING && !dlpi_row_held(w);
}

/* True if no other worker of the stage is awake (W1), the worker is a thread of its own, and a row
   lies in its slot's cell. Then it prefetches lines of batches that it has not claimed. */
static bool dlpi_worker_alone(const dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    return w->started && w->singles && (w->st->n_workers == 1 || dlpi_keep_awake(p) == 1) &&
           dlpi_cells_own(p) && !p->has_item_cells && p->items.cell_bytes <= DLPI_AHEAD_BYTES;
}

static bool dlpi_rows_owes(const dlpi_worker *w) { return w->n_parked > 0; }

/* Return the ns until a parked row may move, at most `ns`. A row that is due may still wait for
   others of its unit. */
static uint64_t dlpi_rows_due(dlpi_worker *w, uint64_t ns) {
    dlpi_unit t;
    uint32_t rows;
    if (w->n_parked == 0) return ns;
    const uint64_t now = dlpi_now_ns();
    for (int i = 0; i < w->n_parked; i++) {
        const dlpi_parked *k = &w->parked[i];
        if (k->due_ns > now && k->due_ns - now < ns) ns = k->due_ns - now;
        if (dlpi_parked_moves(w, k, now, &t, &rows)) return 0;
    }
    return ns;
}
