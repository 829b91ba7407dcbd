#pragma once
/* tests: system/shm/shm_steps, system/shm/shm_chaos, model/crash_steps */
#include "work/collate.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-recover    WHAT A DEAD WORKER HAD: KILLED BETWEEN CLAIM AND COMPLETION
   Done by one process, the supervisor of dlpipe_shm.h, while the other workers go on; after the
   kernel has said that worker w is dead, so that no store of it is to come. Its work is what owner
   words carry its number. Of each such unit the record of completion is read before anything is
   given up: the done word of its rows once (an item stage), ready (a batch stage). If it is of a
   newer batch, or complete, there is nothing to give up. If it is not, nobody but the dead one
   could complete the unit, so its batch can neither be closed nor leave the slot, and what follows
   is alone with it:
     rows of the first stage, or of an idempotent one   their unit is freed
     rows of another item stage, or given to another
     item by an idempotent one                          go back to fetch (dlpi_rows_redo)
     a batch in a collate, or in an idempotent map      its claim is freed
     a batch in another map                             goes back (dlpi_rows_redo)
   A worker may also die between setting the last bit and closing the batch, between closing it and
   waking, between taking a sleeper's bit and waking it, while it sends rows or a batch back, and
   while it writes an error. So recovery closes each full batch. It lets every stage look again
   without hints, and wakes all threads whatever the masks say. It frees the claims that hold the
   dead worker's reserve mark. It replaces a half-written error by a whole one. All of this may be
   done twice. */

/* Return the 64-bit number of the batch with this generation, which is near the tail. */
static uint64_t dlpi_gen_batch(const dlp_pipe *p, uint64_t gen) {
    uint64_t tail = dlpi_credit_seen(&p->ctl->tail); /* T1 <- T1 */
    uint64_t ahead = (gen - tail) & DLPI_GEN_MASK;
    bool behind = ahead >> (DLPI_GEN_BITS - 1) != 0;
    return tail + ahead - (behind ? DLPI_GEN_MASK + 1 : 0);
}

/* True if a word of recovery (X2) names this row of slot s. row UINT32_MAX: its whole batch, or the
   cell of this number. */
static bool dlpi_runs_has(uint64_t running, uint32_t s, uint32_t row) {
    const uint32_t low = (uint32_t)running, first = (low & ((1u << 22) - 1)) - 1;
    const bool whole = low == UINT32_MAX || row == UINT32_MAX;
    return running != 0 && running >> 32 == s && (whole ? low == row : row - first <= low >> 22);
}

/* Return the word (X2) of what the dead worker ran in slot t->slot as it died. If it had several
   rows at once, each may be what killed it; one past its deadline is known. */
static uint64_t dlpi_was_running(const dlpi_worker *w, const dlpi_unit *t, const dlpi_death *why) {
    uint64_t running = DLPI_LOAD_RLX(&w->block->running); /* X2 of a dead worker */
    for (uint32_t i = 0; !why->late && i < w->n_at_once; i++) {
        uint64_t one = DLPI_LOAD_RLX(&w->at_once[i]); /* X2 of a dead worker */
        if (one == DLPI_RUNS_ROW(t->slot, t->row)) running = one;
    }
    return running;
}

/* Return a word that says what killed dead worker w over this row of slot s, or over all of the
   slot or cell (row UINT32_MAX). Its bits are the signal (8), then block.op if the worker ran a
   callback there (8). */
static uint32_t dlpi_killed_word(const dlpi_worker *w, const dlpi_death *why, uint32_t s,
                                 uint32_t row) {
    const bool ran = dlpi_runs_has(DLPI_LOAD_RLX(&w->block->running), s, row); /* X2 */
    const uint32_t op = ran ? DLPI_LOAD_RLX(&w->block->op) : 0; /* X4 of a dead worker */
    return (why->signal & 255u) | (op & 255u) << 8;
}

/* Return bits of the rows of unit t that are not done; 0: the unit is complete, or its batch gone.
   */
static uint32_t dlpi_unit_missing(const uint64_t *done, const dlpi_unit *t) {
    return dlpi_gather_missing(&done[t->row / DLPI_WORD_ROWS], t->b,
                               dlpi_unit_mask(t->row, t->end));
}

/* True if one of these rows (bits) was given to another item, which fetch may not have seen yet. */
static bool dlpi_rows_replaced(const dlp_pipe *p, const dlpi_unit *t, uint32_t rows) {
    bool any = false;
    for (uint32_t r = t->row; r < t->end; r++)
        any |= (rows >> r % DLPI_WORD_ROWS & 1u) != 0 &&
               dlpi_fate_repl(dlpi_slot_fate(p, t->slot)[r]) > 0;
    return any;
}

/* Note for the supervisor that the dead worker had this unit. ran: a callback ran on it. */
static void dlpi_lost_note(const dlpi_death *why, bool ran, const dlpi_unit *t, uint32_t missing) {
    dlpi_lost *lost = why->lost;
    if (lost == NULL) return;
    lost->ran |= ran;
    if (lost->ran || lost->missing != 0) return;
    lost->b = t->b;
    lost->slot = t->slot;
    lost->unit = t->unit;
    lost->missing = missing;
}

/* True if this stage does once more what is missing of unit t, once its claim is freed. If not, the
   stages before it do so, too. missing: bits of its rows; of a batch 1. */
static bool dlpi_recover_here(const dlpi_worker *w, const dlpi_unit *t, uint32_t missing) {
    const dlp_pipe *p = w->p;
    /* its cells are given up once it has read what an earlier stage wrote for it */
    return !dlpi_is_item_stage(p, w->st)
               ? !dlpi_batch_in_place(w->st)
               : dlpi_writes_first(w) ||
                     (w->st->w.idempotent && !dlpi_rows_replaced(p, t, missing) &&
                      ((w->st->held & DLPI_HELD_READS) == 0 || p->holder->has(p, t)));
}

/* Count the death of worker w for what its callback had: a row of t->slot, or the whole batch (row
   UINT32_MAX). */
static void dlpi_recover_blame(const dlpi_worker *w, const dlpi_unit *t, uint32_t row,
                               const dlpi_death *why) {
    const dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    const bool items = row != UINT32_MAX;
    uint32_t *fate = items ? &dlpi_slot_fate(p, t->slot)[row] : &slot->batch_fate;
    DLPI_STORE_RLX(&slot->dirty, 1u); /* ordered by the claim to come */
    slot->killed_by = dlpi_killed_word(w, why, t->slot, row);
    if (items) dlpi_slot_killers(p, t->slot)[row] = (uint8_t)(slot->killed_by >> 8);
    /* X1 */
    DLPI_STORE_REL(fate, dlpi_fate_killed(*fate, (uint32_t)w->st->work, why->late));
}

/* Count the death of worker w for each row of unit t, of `missing`, that its callback had, or for
   the batch. Returns true if there is any. */
static bool dlpi_recover_ran(const dlpi_worker *w, const dlpi_unit *t, uint32_t missing,
                             const dlpi_death *why) {
    const uint64_t running = dlpi_was_running(w, t, why);
    const bool items = dlpi_is_item_stage(w->p, w->st);
    const uint32_t from = items ? t->row : UINT32_MAX, end = items ? t->end : 0;
    bool ran = false;
    uint32_t row = from;
    do {
        if (items && (missing >> row % DLPI_WORD_ROWS & 1u) == 0) continue;
        if (!dlpi_runs_has(running, t->slot, row)) continue;
        dlpi_recover_blame(w, t, row, why);
        ran = true;
    } while (++row < end);
    return ran;
}

/* Give up unit t, rows or a batch, whose claim is `owner`, unless it is complete. */
static void dlpi_recover_unit(dlpi_worker *w, dlpi_unit *t, dlpi_stage_words *words, uint64_t owner,
                              const dlpi_death *why) {
    dlp_pipe *p = w->p;
    const bool items = dlpi_is_item_stage(p, w->st);
    const uint32_t missing = items ? dlpi_unit_missing(dlpi_done(words), t)
                                   : !dlpi_ready_past(dlpi_gather_ready(&words->ready), t->b);
    /* Y1 <- Y1, then O1 <- O1: a later stage that sends rows back has marked the claim before it
       took the bits */
    if (missing == 0 || dlpi_claim_owner(&dlpi_owners(p, words)[t->unit]) != owner) return;
    dlpi_lost_note(why, dlpi_recover_ran(w, t, missing, why), t, missing);
    if (dlpi_recover_here(w, t, missing))
        dlpi_claim_take(&dlpi_owners(p, words)[t->unit], owner, dlpi_owner_freed(p, t->slot, t->b));
    else
        dlpi_rows_redo(w, t, items ? missing : UINT32_MAX);
}

/* Give up what the dead worker w had of batch b, in slot s, in stage k. That is its own stage, a
   later one through which it was passing units, or an earlier one to which it sent units back. In
   an earlier stage it holds reserve marks. Its own claim is free by then, so all of its work is
   undone. */
static void dlpi_recover_stage(dlpi_worker *w, int k, uint32_t s, uint64_t b, uint64_t header,
                               const dlpi_death *why) {
    dlp_pipe *p = w->p;
    const uint64_t word =
        k < w->st->work ? dlpi_owner_redo(w, b) : dlpi_gen_word(b, (uint64_t)w->global + 1u);
    dlpi_stage_words *words = dlpi_stage_words_at(p, s, p->work[k]);
    uint64_t *owner = dlpi_owners(p, words);
    for (uint32_t u = 0; u < dlpi_stage_units(p, k, header); u++) {
        dlpi_unit t = {b, s, u, 0, 0, false};
        if (dlpi_claim_owner(&owner[u]) != word) continue; /* O1 <- O1 */
        dlpi_unit_rows(p, p->work[k], dlpi_header_count(header), dlpi_header_shift(header), &t);
        if (k < w->st->work)
            dlpi_claim_free(&owner[u], dlpi_owner_freed(p, s, b));
        else if (k == w->st->work)
            dlpi_recover_unit(w, &t, words, word, why);
        else if (dlpi_unit_missing(dlpi_done(words), &t) != 0)
            dlpi_claim_take(&owner[u], word, dlpi_owner_freed(p, s, b)); /* O1 */
    }
}

/* Give up what worker w had of the batch in slot s, and close the batch if that was for w to do. */
static void dlpi_recover_slot(dlpi_worker *w, uint32_t s, const dlpi_death *why) {
    dlp_pipe *p = w->p;
    const uint64_t header = dlpi_claim_head_now(&dlpi_slot_at(p, s)->header); /* P1 <- P1 */
    const uint64_t b = dlpi_gen_batch(p, dlpi_gen(header));
    const uint32_t count = dlpi_header_count(header);
    dlpi_stage_words *last = dlpi_stage_words_at(p, s, p->work[p->n_item_work - 1]);
    const int own = w->st->work;
    dlpi_recover_stage(w, own, s, b, header, why);
    for (int k = own + 1; k < p->n_item_work && p->work[k]->lets_pass; k++)
        dlpi_recover_stage(w, k, s, b, header, why);
    for (int k = own - 1; k >= dlpi_redo_first(p, w->st, header); k--)
        dlpi_recover_stage(w, k, s, b, header, why);
    if (count > 0)
        dlpi_close_batch(p, last, b, count, dlpi_gather_ready(&last->ready)); /* Y1 <- Y1 */
}

static void dlpi_slots_recover(dlpi_worker *w, const dlpi_death *why) {
    for (uint32_t s = 0; s < w->p->n_slots; s++) dlpi_recover_slot(w, s, why);
}

/* The functions of all kinds that work on rows, one after the other, or on whole batches. */
#define DLPI_OPS_OF_ROWS \
    .unit = DLPI_UNIT_ROWS, .step = dlpi_rows_step, .find = dlpi_rows_find, .run = dlpi_rows_run, \
    .full = dlpi_rows_full, .owes = dlpi_rows_owes, .due = dlpi_rows_due
#define DLPI_OPS_OF_BATCHES \
    .unit = DLPI_UNIT_BATCHES, .step = dlpi_batches_step, .find = dlpi_rows_find, \
    .run = dlpi_batches_run, .full = dlpi_rows_full

/* Replace each error that the dead worker had not written to its end by one that says so. */
static void dlpi_recover_errors(dlpi_worker *w, const dlpi_death *why) {
    dlp_pipe *p = w->p;
    dlp_error e;
    dlpi_error_set(
        &e, DLP_ERR_CALLBACK, "",
        "a callback failed, and its process was killed (%s) before it had written the error",
        dlpi_signal_text(why->signal));
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    e.worker = w->id;
    for (uint32_t s = 0; s < p->n_slots; s++) {
        dlpi_bslot *slot = dlpi_slot_at(p, s);
        if (dlpi_first_seen(&slot->failed) != (uint32_t)w->global + 2u) continue; /* F1 <- F1 */
        slot->error = e;
        dlpi_first_publish(&slot->failed); /* F1 -> F1 */
    }
    if (dlpi_first_seen(&p->ctl->error_claim) == (uint32_t)w->global + 1u && /* E1 <- E1 */
        dlpi_first_seen(&p->ctl->error_ready) == 0) {                        /* E1 <- E1 */
        p->ctl->error = e;
        dlpi_first_publish(&p->ctl->error_ready); /* E1 -> E1 */
    }
}

/* Say that no row of the worker is in a callback. */
static void dlpi_running_forget(dlpi_worker *w) {
    DLPI_STORE_RLX(&w->block->op, 0u); /* X4: of a dead worker */
    dlpi_runs(&w->block->running, DLPI_RUNS_NONE);
    for (uint32_t i = 0; i < w->n_at_once; i++) dlpi_runs(&w->at_once[i], DLPI_RUNS_NONE);
}

/* Give up all that the dead worker w had, so that other workers do its work. The kernel must have
   said that the worker is dead. Only one process may call this at a time. A second call for the
   same worker does no harm. */
DLPI_UNREAD /* but by dlpipe_shm.h */
    static void
    dlpi_recover(dlpi_worker *w, const dlpi_death *why) {
    dlp_pipe *p = w->p;
    dlpi_recover_errors(w, why);
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].ops->lost != NULL) p->stages[i].ops->lost(w);
    if (w->st->ops->recover != NULL)
        w->st->ops->recover(w, why);
    else
        dlpi_slots_recover(w, why);
    dlpi_sleepers_leave(dlpi_worker_group(w), dlpi_worker_bit(w)); /* B1 */
    dlpi_running_forget(w);
    DLPI_STORE_RLX(&w->block->current, UINT64_MAX); /* for observers */
    dlpi_rescan(p, 0, p->n_work - 1);
    dlpi_wake_all(p);
}
