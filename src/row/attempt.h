#pragma once
/* tests: system/core/pipe_errors, system/shm/shm_deaths */
#include "cells/marks.h"
#include "slot/claim.h"
#include "slot/open_end.h"
/* ---- an attempt at a row failed: again, later, another item, left out, or an error ---- */

static void dlpi_skip_note(const dlpi_worker *w, int code, uint64_t new_index) {
    dlp_error e;
    dlpi_describe_item(w, code, &e);
    if (code == DLP_SKIP) e.code = DLP_SKIP;
    dlpi_skip_put(w->p->ctl, w->st, &e, e.code, new_index);
}

/* Set a row's fate, by the one store that changes it. All that follows from it comes after it. */
static inline void dlpi_fate_set(const dlp_pipe *p, uint32_t s, uint32_t row, uint32_t fate) {
    DLPI_STORE_REL(&dlpi_slot_fate(p, s)[row], fate); /* X1: a crash cuts before or after it */
}

/* Clear a row that is left out. Each stage that comes by clears it again: the worker that left it
   out may have died before it was clear, or a batch map may have changed it since. */
static void dlpi_row_clear(const dlp_pipe *p, const dlpi_unit *t, uint32_t row) {
    uint8_t *cell = dlpi_item_cell(p, t->slot);
    if (p->cells == DLPI_CELLS_STAY) {
        dlpi_slot_at(p, t->slot)->cell = (uint16_t)p->n_cells; /* of zeros; ordered by done */
        return;
    }
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        uint8_t *at = cell + d->offset + row * d->row_bytes;
        if (!d->f.ragged) {
            memset(at, 0, d->row_bytes);
            continue;
        }
        dlpi_mark_open(dlpi_mark(p, t->slot, f, row), d->row_bytes);
        dlpi_mark_shut(dlpi_mark(p, t->slot, f, row), at, 0, d->row_bytes);
        dlpi_slot_lengths(p, t->slot, f, 1)[row] = 0;
    }
}

/* Leave a row out: clear its bytes, and write into its fate that it is left out. bits: DLPI_FATE_*
   to add to the fate. The worker must have claimed the row. */
static void dlpi_row_leave(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t bits) {
    const dlp_pipe *p = w->p;
    uint32_t repl = dlpi_fate_repl(dlpi_slot_fate(p, t->slot)[row]); /* its index goes by it */
    DLPI_STORE_RLX(&dlpi_slot_at(p, t->slot)->dirty, 1u);            /* ordered by done */
    dlpi_fate_set(p, t->slot, row, dlpi_fate(DLPI_ROW_LEFT, 0, repl) | bits);
    dlpi_row_clear(p, t, row);
}

/* Mark a row as behind the end of its epoch. */
static void dlpi_row_end(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    DLPI_STORE_RLX(&dlpi_slot_at(w->p, t->slot)->dirty, 1u); /* ordered by done */
    dlpi_fate_set(w->p, t->slot, row, DLPI_ROW_END);
}

enum { DLPI_ROW_DONE, DLPI_ROW_AGAIN, DLPI_ROW_LATER, DLPI_ROW_REDO };

/* True if a row, a batch or an input is tried again that failed `tries` times in this stage, and
   now once more with this code. */
static bool dlpi_tries_left(const dlpi_worker *w, uint32_t tries, int code) {
    return code != DLP_SKIP && code != DLP_ERR_KILLED && !(DLPI_DEBUG && code == DLPI_OVERRUN) &&
           (int)tries < dlpi_policy_now(w).retries;
}

/* Return the ns to wait before the next attempt, after so many failures (1 or more); 0: none. */
static uint64_t dlpi_backoff_ns(int32_t backoff_ms, uint32_t tries) {
    uint32_t doublings = tries > 7 ? 6 : tries - 1;
    return (uint64_t)backoff_ms * 1000000u << doublings;
}

/* Park a row until due_ns, when its next attempt is made. A worker that has several rows at once
   parks rows here, too. */
static void dlpi_park(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint64_t due_ns) {
    /* It only waits, and is not to blame. With at_once the word is that of a row which is out. */
    if (w->at_once == NULL) dlpi_runs(&w->block->running, DLPI_RUNS_NONE);
    /* Room is kept: a worker without claims nothing. */
    w->parked[w->n_parked++] = (dlpi_parked){due_ns, t->b, t->slot, row};
}

/* Have a row tried again that has failed `tries` times. Returns DLPI_ROW_AGAIN (at once),
   DLPI_ROW_REDO (from the first stage) or DLPI_ROW_LATER (the row is parked for its back-off). */
static int dlpi_row_retry(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t tries) {
    const int32_t backoff_ms = dlpi_policy_now(w).retry_backoff_ms;
    dlpi_bump(&w->block->retried, 1);
    if (backoff_ms == 0)
        return dlpi_writes_first(w) || w->st->w.idempotent ? DLPI_ROW_AGAIN : DLPI_ROW_REDO;
    dlpi_park(w, t, row, dlpi_now_ns() + dlpi_backoff_ns(backoff_ms, tries));
    return DLPI_ROW_LATER;
}

/* Fail the row's batch with this code, and leave the row out. The message is what the worker said
   last. Returns DLPI_ROW_DONE. */
static int dlpi_row_raise(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    dlp_error e;
    dlpi_describe_item(w, code, &e);
    if (code == DLP_ERR_BUDGET) dlpi_error_first(w->p->ctl, &e);
    dlpi_slot_fail(dlpi_slot_at(w->p, t->slot), (uint32_t)w->global, &e);
    dlpi_row_leave(w, t, row, DLPI_FATE_RAISED);
    return DLPI_ROW_DONE;
}

/* Say that no replacement for a row is left, and what was wrong with the last one. failed: one of
   them failed; else all were left out by their callback. */
static void dlpi_row_exhausted(dlpi_worker *w, int code, bool failed) {
    int errnum = w->block->message_errno;
    dlp_error e;
    dlpi_describe(w, code, &e);
    if (failed)
        dlpi_say(w, 0,
                 "the item and %u replacements for it failed or were left out, the last: "
                 "%.150s",
                 DLPI_REPLACE_MAX, e.message);
    else
        dlpi_say(w, 0, "left out by stage \"%.31s\" %u times: the item and %u replacements for it",
                 w->st->name, DLPI_REPLACE_MAX + 1, DLPI_REPLACE_MAX);
    w->block->message_errno = errnum;
}

/* Give the row to another item: the next replacement for its position. Returns DLPI_ROW_*. */
static int dlpi_row_replace(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    const dlp_pipe *p = w->p;
    uint64_t *index = dlpi_slot_index(p, t->slot), other;
    uint32_t fate = dlpi_slot_fate(p, t->slot)[row], repl = dlpi_fate_repl(fate) + 1;
    uint32_t failed = (fate & DLPI_FATE_FAILED) | (code == DLP_SKIP ? 0 : DLPI_FATE_FAILED);
    if (repl > DLPI_REPLACE_MAX) {
        dlpi_row_exhausted(w, code, failed != 0);
        return dlpi_row_raise(w, t, row, code);
    }
    other = p->source->item(w, t->slot, row, w->item.epoch, w->item.position, repl);
    dlpi_fate_set(p, t->slot, row, dlpi_fate(dlpi_fate_state(fate), 0, repl) | failed);
    DLPI_STORE_REL(&index[row], other); /* X1: after it */
    dlpi_bump(&w->block->replaced, 1);
    dlpi_skip_note(w, code, other);
    return dlpi_writes_first(w) ? DLPI_ROW_AGAIN : DLPI_ROW_REDO;
}

/* Return the name of the signal that killed a process. If killed_by is 0, the process called exit.
   */
static const char *dlpi_signal_text(uint32_t killed_by) {
    static const struct {
        uint32_t number;
        const char *text;
    } names[] = {{6, "SIGABRT"},  {7, "SIGBUS"},   {8, "SIGFPE"},        {9, "SIGKILL"},
                 {11, "SIGSEGV"}, {15, "SIGTERM"}, {0, "a call of exit"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == killed_by) return names[i].text;
    return "a signal";
}

static const char *dlpi_call_text(const dlpi_worker *w) {
    return w->st->ops->unit == DLPI_UNIT_CELLS ? "load" : "callback";
}

/* Return the bytes that keep, for each row of slot s, block.op of the last worker that died over
   the row. Until all rows are done nobody needs `valid`, so the bytes lie there. */
static inline uint8_t *dlpi_slot_killers(const dlp_pipe *p, uint32_t s) {
    return (uint8_t *)dlpi_slot_at(p, s) + p->slot.valid;
}

/* Return the word (dlpi_killed_word) for a row of slot s, or for its batch (row UINT32_MAX). Its
   signal is that of the last death over any row of the slot. */
static uint32_t dlpi_slot_killed(const dlp_pipe *p, uint32_t s, uint32_t row) {
    const uint32_t op = row != UINT32_MAX ? dlpi_slot_killers(p, s)[row] : 0u;
    return (dlpi_slot_at(p, s)->killed_by & 255u) | op << 8;
}

/* Say that the worker's process died too often, by the name of the row whose callback ran. */
static int dlpi_killed_say(dlpi_worker *w, uint32_t killed_by, uint32_t fate) {
    w->note.row = dlpi_row_numbered(w->p, killed_by >> 8 & 255u);
    return dlpi_say(w, DLP_ERR_KILLED, "the %s's process died %u times here, the last time by %s",
                    dlpi_call_text(w), dlpi_fate_kills(fate), dlpi_signal_text(killed_by & 255u));
}

/* Return after how many deaths of its workers an item has failed: max_kills. Where a worker has
   several items in flight or in a callback it is 2 at least: the first death may be due to another.
   */
static uint32_t dlpi_kills_most(const dlpi_worker *w) {
    bool others = w->at_once != NULL;
    others |= dlpi_makes_runs(w->st); /* needs: runs */
    return others && w->p->max_kills < 2 ? 2 : w->p->max_kills;
}

/* Return the words, one for each row of slot s, that count failures of the present item in a stage:
   replacement (8) | tries (8). So failures of an item that was replaced do not count. In a stage of
   batches the first of them counts those of the batch. */
static uint16_t *dlpi_slot_tries(const dlp_pipe *p, uint32_t s, const dlpi_stage *st) {
    uint8_t *base = (uint8_t *)dlpi_slot_at(p, s) + p->off_tries;
    return (uint16_t *)(void *)base + (size_t)st->work * p->batch_rows;
}

/* Return how often the row's present item failed in this stage before. A worker that dies between
   the store of the fate and that of this count has not counted its try: there is one more. */
static uint32_t dlpi_row_tries(const dlpi_worker *w, const dlpi_unit *t, uint32_t row,
                               uint32_t fate) {
    uint32_t word;
    if (dlpi_policy_now(w).retries == 0) return 0;
    word = dlpi_slot_tries(w->p, t->slot, w->st)[row];
    return word >> 8 == dlpi_fate_repl(fate) ? word & 255u : 0;
}

/* Decide by the stage's policy what becomes of a row whose callback failed with this code. Returns
   DLPI_ROW_*. If workers die in what the policy calls (the sampler's functions, for a replacement),
   the row is an error. */
static int dlpi_row_failed(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    dlp_pipe *p = w->p;
    const dlpi_stage *st = w->st;
    const int32_t on_error = dlpi_policy_now(w).on_error;
    uint32_t fate = dlpi_slot_fate(p, t->slot)[row], tries;
    dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    if (DLPI_DEBUG && code == DLPI_OVERRUN) return dlpi_row_raise(w, t, row, code);
    if (code == DLP_END) { /* of the epoch */
        dlpi_row_end(w, t, row);
        return DLPI_ROW_DONE;
    }
    DLPI_STORE_RLX(&slot->dirty, 1u); /* ordered by done */
    if (dlpi_fate_stage(fate) == (uint32_t)st->work && dlpi_fate_kills(fate) > dlpi_kills_most(w))
        return dlpi_row_raise(w, t, row,
                              dlpi_killed_say(w, dlpi_slot_killed(p, t->slot, row), fate));
    tries = dlpi_row_tries(w, t, row, fate);
    if (dlpi_tries_left(w, tries, code)) {
        dlpi_fate_set(p, t->slot, row, dlpi_fate_tried(fate));
        DLPI_KEEP_ORDER(); /* X1: a crash in between costs no try */
        dlpi_slot_tries(p, t->slot, st)[row] = (uint16_t)(dlpi_fate_repl(fate) << 8 | ++tries);
        return dlpi_row_retry(w, t, row, tries);
    }
    if (code != DLP_SKIP && on_error == DLP_ON_ERROR_RAISE) return dlpi_row_raise(w, t, row, code);
    if (code != DLP_SKIP && !dlpi_skip_allowed(w)) return dlpi_row_raise(w, t, row, DLP_ERR_BUDGET);
    if (on_error == DLP_ON_ERROR_REPLACE && !dlpi_cancelled(p->ctl, slot))
        return dlpi_row_replace(w, t, row, code);
    dlpi_row_leave(w, t, row, dlpi_end_counts(w, code));
    dlpi_bump(&w->block->left_out, 1);
    dlpi_skip_note(w, code, UINT64_MAX);
    return DLPI_ROW_DONE;
}

/* Return 0 if what has this fate (a row, a batch, or a cell of inputs) may run. If it killed its
   workers too often, or held one past its deadline, it has failed: returns the code, with the
   message. */
DLPI_COLD static int dlpi_call_verdict(dlpi_worker *w, uint32_t killed_by, uint32_t fate) {
    if (fate & DLPI_FATE_LATE) {
        w->note.row = dlpi_row_numbered(w->p, killed_by >> 8 & 255u);
        return dlpi_say(w, DLP_ERR_DEADLINE,
                        "the %s ran past its deadline_ms %d, its worker was killed",
                        dlpi_call_text(w), dlpi_limit_ms(w->st, w->note.row));
    }
    return dlpi_fate_kills(fate) < dlpi_kills_most(w) ? 0 : dlpi_killed_say(w, killed_by, fate);
}

/* Return the verdict (dlpi_call_verdict) on a row of slot s with this fate, or on the batch, whose
   deaths count in the stage in which they happened. row: UINT32_MAX: the batch. */
static int dlpi_fate_verdict(dlpi_worker *w, uint32_t s, uint32_t row, uint32_t fate) {
    if (DLPI_LIKELY(dlpi_fate_kills(fate) == 0) || dlpi_fate_stage(fate) != (uint32_t)w->st->work)
        return 0;
    return dlpi_call_verdict(w, dlpi_slot_killed(w->p, s, row), fate);
}
