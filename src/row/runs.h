/* needs: runs */
#pragma once
/* tests: system/core/runs, system/shm/shm_runs */
#include "row/run.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-many       ONE CALL FOR SEVERAL ROWS (fetch_rows)
   A stage whose dataset has a fetch_rows makes the rows of a unit by one call. The call gets an
   item for each row that is of the stage's dataset. If the call fails at an item, the rows before
   the item are made. The policy decides on the row of the failed item, as in any attempt. The rows
   behind the item are asked for by another call.
   Each row is also an attempt of its own, by a call for one item: dlpi_row_alone. It runs for
   retries, for rows that have a fate, and where more is asked of a row than the call. So all that
   such rows need stands in run.h alone.
   block->running (X2) names all rows of a call. If the worker dies in the call, each of them may be
   what killed it. Then they have fates, so each runs in a call of its own. */

typedef struct dlpi_many { /* heap memory of a worker: the items of a call */
    dlp_item item[DLPI_WORD_ROWS];
    void *arrays[]; /* [rows * n_fields] addresses, then as many lengths */
} dlpi_many;

/* Return the bytes of a worker's dlpi_many for items of n fields. */
static inline uint64_t dlpi_many_bytes(uint64_t n) {
    return sizeof(dlpi_many) + DLPI_WORD_ROWS * n * (sizeof(void *) + sizeof(uint64_t));
}

static inline void **dlpi_many_data(const dlpi_worker *w) { return ((dlpi_many *)w->self)->arrays; }
static inline uint64_t *dlpi_many_lengths(const dlpi_worker *w) {
    return (uint64_t *)(void *)(dlpi_many_data(w) + DLPI_WORD_ROWS * w->given.n_fields);
}

/* Call the fetch_rows of a dataset for n items. Returns its result. */
DLPI_INLINE int dlpi_rows_call(const dlp_dataset *ds, dlp_item *items, uint32_t n, uint32_t *made) {
    return ds->fetch_rows(ds->user, items, n, made);
}

/* Callback of such a stage for one item. user: the stage's dataset. */
static int dlpi_row_alone(void *user, dlp_item *it) {
    uint32_t made = 0;
    return dlpi_rows_call(user, it, 1, &made);
}

/* True if a row with this index is an item of the worker's stage. */
static inline bool dlpi_many_has(const dlpi_worker *w, uint64_t index) {
    return index - w->st->scope.first < w->st->scope.n_items;
}

/* Write item i of a call, which is that of `row`. A callback may have changed any of it. */
static inline void dlpi_many_item(const dlpi_worker *w, uint32_t i, uint32_t row, uint32_t sees) {
    const dlpi_scope *scope = &w->st->scope;
    const uint32_t n = w->given.n_fields;
    dlp_item *it = &((dlpi_many *)w->self)->item[i];
    void **data = dlpi_many_data(w) + (size_t)i * n;
    uint64_t *length = dlpi_many_lengths(w) + (size_t)i * n, position = w->position + row;
    if (DLPI_UNLIKELY(position >= w->p->samples)) position %= w->p->samples;
    *it = w->given;
    it->index = w->index[row] - scope->first;
    it->position = position;
    it->row = row;
    it->n_fields = sees;
    it->data = data;
    it->length = length;
    for (uint32_t f = 0; f < n; f++) {
        const uint32_t at = scope->field + f;
        data[f] = w->cell[at] + row * scope->cells[at].row_bytes;
        length[f] = 0;
    }
}

/* Write the items of the rows [row, end) that are items of the stage. Clear these rows, or open
   their marks. Returns how many items there are. */
static uint32_t dlpi_many_begin(const dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlpi_program *g = dlpi_program_of(w->st);
    const uint32_t sees = g != NULL && g->n > 0 ? g->op->n : w->given.n_fields;
    const bool others = w->st->scope.first != 0;
    uint32_t n = 0;
    if (w->st->scope.ragged)
        dlpi_rows_open(w, t->slot, row, t->end);
    else if (!others)
        dlpi_rows_zero(w, row, t->end - row);
    for (uint32_t r = row; r < t->end; r++) {
        if (DLPI_UNLIKELY(!dlpi_many_has(w, w->index[r]))) continue;
        if (others) dlpi_rows_zero(w, r, 1);
        dlpi_many_item(w, n++, r, sees);
    }
    return n;
}

/* Add a row whose attempt came to `what` to the bits of a unit. Make another attempt if it is due.
   */
static void dlpi_many_tally(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int what,
                            dlpi_tally *n) {
    dlpi_tally_add(n, row, what != DLPI_ROW_AGAIN ? what : dlpi_row_run(w, t, row));
}

/* Go on with a row that a call has made, as item i: keep its lengths, and run the rows of the table
   that run in its attempt. */
static void dlpi_many_made(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t i,
                           dlpi_tally *n) {
    const uint32_t fields = w->given.n_fields;
    int rc = 0;
    memcpy(w->given.length, dlpi_many_lengths(w) + (size_t)i * fields, fields * sizeof(uint64_t));
    if (w->chained) {
        dlpi_item_row(w, row);
        dlpi_words_forget(w);
        dlpi_runs(&w->block->running, DLPI_RUNS_ROW(t->slot, row));
        rc = dlpi_ops_behind(w->st, &w->item);
        if (DLPI_UNLIKELY(rc != 0)) rc = dlpi_row_returned(w, row, rc);
    }
    if (w->st->scope.ragged ? !dlpi_row_lengths_kept(w, t, row) : rc != 0 || dlpi_lengths_set(w))
        dlpi_many_tally(w, t, row, dlpi_row_more(w, t, row, rc), n);
    memset(w->given.length, 0, fields * sizeof(uint64_t));
}

typedef struct dlpi_said { /* what a call has said of the item that failed */
    bool said;
    int errnum;
    char message[sizeof((dlpi_worker_block *)0)->message];
} dlpi_said;

/* Let the policy decide on a row at which a call failed with this code. words: of the call. */
DLPI_COLD static void dlpi_many_failed(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int rc,
                                       const dlpi_said *words, dlpi_tally *n) {
    w->note.said = words->said ? row + 1 : 0; /* the words are about this row */
    memcpy(w->block->message, words->message, sizeof words->message);
    w->block->message_errno = words->errnum;
    rc = dlpi_row_returned(w, row, rc);
    dlpi_many_tally(w, t, row, dlpi_row_wrong(w, t, row, rc), n);
}

/* True if a call has set a length in one of its first n items. */
static inline bool dlpi_many_lengths_set(const dlpi_worker *w, uint32_t n) {
    const uint64_t *length = dlpi_many_lengths(w);
    uint64_t any = 0;
    for (size_t i = 0; i < (size_t)n * w->given.n_fields; i++) any |= length[i];
    return any != 0;
}

/* Go on with the rows from `row` on after a call for them has made `made` items and came to code
   rc. wanted: more is to be done for a row that is made, which may have words of its own. Returns
   the row that is next. */
static uint32_t dlpi_many_end(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t made,
                              int rc, bool wanted, dlpi_tally *n) {
    dlpi_said words = {w->note.said != 0, w->block->message_errno, {0}};
    uint32_t i = 0;
    if (rc != 0) memcpy(words.message, w->block->message, sizeof words.message);
    for (; row < t->end; row++) {
        if (DLPI_UNLIKELY(!dlpi_many_has(w, w->index[row]))) {
            dlpi_row_other(w, t, row);
        } else if (i < made) {
            if (wanted) dlpi_many_made(w, t, row, i, n);
            i++;
        } else {
            dlpi_many_failed(w, t, row, rc, &words, n);
            return row + 1;
        }
    }
    return row;
}

/* Make the rows of t from `row` on by one call. Returns the row with which the next call begins. */
static uint32_t dlpi_many_call(dlpi_worker *w, const dlpi_unit *t, uint32_t row, dlpi_tally *n) {
    dlpi_many *run = w->self;
    const uint32_t items = dlpi_many_begin(w, t, row);
    uint32_t made = 0;
    int rc = 0;
    if (items > 0) {
        DLPI_STORE_RLX(&w->block->current, run->item[0].index + w->st->scope.first);
        DLPI_STORE_RLX(&w->block->current_position, run->item[0].position); /* for observers */
        dlpi_runs(&w->block->running, DLPI_RUNS_ROWS(t->slot, row, t->end - row));
        w->note.said = 0;
        rc = dlpi_rows_call(w->st->dataset, run->item, items, &made);
        if (DLPI_UNLIKELY(rc != 0 && made >= items)) {
            rc = dlp_fail(&w->note, 0,
                          "fetch_rows returned %d and set *made to %" PRIu32 " of %" PRIu32
                          " items; set it to the number of the item that failed",
                          rc, made, items);
            made = 0;
        }
    }
    if (DLPI_LIKELY(rc == 0)) made = items;
    const bool wanted = w->chained || w->st->scope.ragged || dlpi_many_lengths_set(w, made);
    if (DLPI_LIKELY(rc == 0 && !wanted && items == t->end - row)) return t->end;
    return dlpi_many_end(w, t, row, made, rc, wanted, n);
}

/* Run the rows of a unit of a stage that has a fetch_rows. It has no program if a field is
   ragged. */
DLPI_NOINLINE static void dlpi_unit_runs(dlpi_worker *w, const dlpi_unit *t, void *tally) {
    dlpi_tally *n = tally;
    if (w->asks != DLPI_ASK_RUNS) {
        dlpi_unit_pairs(w, t, tally);
        return;
    }
    for (uint32_t row = t->row; row < t->end;) {
        if (DLPI_UNLIKELY(dlpi_generation_cancelled(w->p->ctl, w->generation))) {
            n->left += t->end - row;
            break;
        }
        row = dlpi_many_call(w, t, row, n);
    }
    n->mask = dlpi_unit_mask(t->row, t->end) & ~(n->redo | n->later);
    if (w->st->scope.ragged) dlpi_unit_close(w, t, n->mask, n->left);
}
