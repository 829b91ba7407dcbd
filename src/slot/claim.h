#pragma once
/* tests: model/model_slots, model/crash_steps, system/shm/shm_steps */
#include "slot/feed.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-claim      CLAIMS AND COMPLETION */

typedef struct dlpi_unit { /* a claimed piece of work */
    uint64_t b;
    uint32_t slot, unit;
    uint32_t row, end; /* rows [row, end); a batch stage has the whole batch */
    /* First stage: no worker had the unit before, and no row is padding, so the fates of its rows
       need not be read. */
    bool untouched;
} dlpi_unit;

static inline bool dlpi_is_item_stage(const dlp_pipe *p, const dlpi_stage *st) {
    return st->work < p->n_item_work;
}

/* True if the stage before has done all rows of unit t that this stage has not done already. */
static bool dlpi_input_ready(dlpi_worker *w, const dlpi_unit *t, dlpi_stage_words *mine) {
    const dlp_pipe *p = w->p;
    dlpi_stage_words *theirs;
    uint32_t i = t->row / DLPI_WORD_ROWS, mask;
    if (dlpi_writes_first(w)) return true;
    theirs = dlpi_stage_words_at(p, t->slot, p->work[w->st->work - 1]);
    if (!dlpi_is_item_stage(p, w->st))
        return dlpi_ready_is(dlpi_gather_ready(&theirs->ready), t->b); /* Y1 <- Y1 */
    mask = dlpi_unit_mask(t->row, t->end);
    return ((dlpi_gather_bits(dlpi_done(theirs), i, t->b) |
             dlpi_gather_bits(dlpi_done(mine), i, t->b)) &
            mask) == mask;
}

static void dlpi_unit_rows(const dlp_pipe *p, const dlpi_stage *st, uint32_t count, uint32_t shift,
                           dlpi_unit *t) {
    bool whole = !dlpi_is_item_stage(p, st);
    t->row = whole ? 0 : t->unit << shift;
    t->end = whole || count - t->row <= 1u << shift ? count : t->row + (1u << shift);
}

static inline uint64_t dlpi_owner_freed(const dlp_pipe *p, uint32_t s, uint64_t b) {
    return dlpi_claim_freed(&dlpi_slot_at(p, s)->frees, b);
}

/* Find the slot *s that batch b lies in, and its *header. False: the slot has a newer batch. */
DLPI_INLINE bool dlpi_find_slot(const dlp_pipe *p, uint64_t b, uint32_t *s, uint64_t *header) {
    *s = (uint32_t)(b % p->n_slots); /* a guess that saves a line when slots go round in turn */
    *header = dlpi_claim_head(&dlpi_slot_at(p, *s)->header); /* P1 <- P1 */
    if (dlpi_gen(*header) == (b & DLPI_GEN_MASK)) return true;
    *s = dlpi_slot_of(p, b);
    *header = dlpi_claim_head(&dlpi_slot_at(p, *s)->header); /* P1 <- P1 */
    return dlpi_gen(*header) == (b & DLPI_GEN_MASK);
}

/* Claim unit t, whose owner word, `owner`, says that nobody has it. False: its input is not there,
   the holder has no cells left for it, or somebody else was faster. The holder is asked last, for
   it wakes the worker when there are cells. */
DLPI_INLINE bool dlpi_unit_take(dlpi_worker *w, dlpi_unit *t, dlpi_stage_words *words,
                                uint64_t owner, bool padded) {
    uint64_t mine = dlpi_gen_word(t->b, (uint64_t)w->global + 1u);
    t->untouched = dlpi_writes_first(w) && !padded && (owner & DLPI_FREED) == 0;
    return dlpi_input_ready(w, t, words) &&
           (DLPI_LIKELY((w->st->held & DLPI_HELD_TAKES) == 0) || w->p->holder->take(w, t)) &&
           dlpi_claim_take(&dlpi_owners(w->p, words)[t->unit], owner, mine);
}

/* Return the last unit that is not ready either if unit t is not. If nothing of t's done word has
   come from the stage before, no unit of that word is. So a look in vain costs a step a word. */
static uint32_t dlpi_not_ready(const dlpi_worker *w, const dlpi_unit *t, dlpi_stage_words *mine,
                               uint32_t shift) {
    dlpi_stage_words *theirs;
    uint32_t i = t->row / DLPI_WORD_ROWS;
    if (dlpi_writes_first(w) || !dlpi_is_item_stage(w->p, w->st)) return t->unit;
    theirs = dlpi_stage_words_at(w->p, t->slot, w->p->work[w->st->work - 1]);
    if (dlpi_gather_bits(dlpi_done(theirs), i, t->b) != 0) return t->unit;
    if (dlpi_gather_bits(dlpi_done(mine), i, t->b) != 0) return t->unit;
    return ((i + 1) * DLPI_WORD_ROWS >> shift) - 1;
}

/* Prefetch the cache line of batch b's header for writing. Several such lines may be on their way
   at once. */
static inline void dlpi_slot_fetch(const dlp_pipe *p, uint64_t b) {
    dlpi_prefetch_write(&dlpi_slot_at(p, (uint32_t)(b % p->n_slots))->header);
}

/* Look for a unit of batch b and claim it. Returns true if *t is claimed. Sets *all_claimed when no
   other unit of the batch needs a claim. hints: begin at the unit that an earlier look noted. Units
   below `from` are all claimed, which is what the note for the next look may say. */
static bool dlpi_find_in(dlpi_worker *w, uint64_t b, bool hints, dlpi_unit *t, bool *all_claimed) {
    const dlp_pipe *p = w->p;
    uint32_t n, u = 0, count, shift, from;
    uint64_t header;
    dlpi_stage_words *words;
    *all_claimed = true;
    t->b = b;
    if (!dlpi_find_slot(p, b, &t->slot, &header)) return false;
    words = dlpi_stage_words_at(p, t->slot, w->st);
    count = dlpi_header_count(header);
    shift = dlpi_header_shift(header);
    n = dlpi_is_item_stage(p, w->st) ? dlpi_units(count, shift) : 1u;
    if (hints) u = dlpi_claim_cursor(&words->next, b);
    for (from = u; u < n; u++) {
        uint64_t owner = dlpi_claim_look(&dlpi_owners(p, words)[u]); /* O1 <- O1 */
        t->unit = u;
        dlpi_unit_rows(p, w->st, count, shift, t);
        if (!dlpi_older(dlpi_gen(owner), b)) {
            if (u == from) from = u + 1; /* claimed by somebody: the prefix grows */
        } else if (dlpi_unit_take(w, t, words, owner, dlpi_header_padded(header))) {
            if (u == from) dlpi_claim_advance(&words->next, b, u + 1);
            if (b + 1 != w->tail_seen) dlpi_slot_fetch(p, b + 1); /* we are behind */
            if (b + 4 < w->tail_seen && dlpi_slot_in_line(p)) dlpi_slot_fetch(p, b + 4);
            *all_claimed = *all_claimed && u + 1 == n;
            return true;
        } else {
            *all_claimed = false;
            u = dlpi_not_ready(w, t, words, shift);
        }
    }
    return false;
}

/* True if this worker may take work on batch b: batches may go to workers in turn. */
static inline bool dlpi_batch_mine(const dlpi_worker *w, uint64_t b) {
    return w->st->w.dispatch != DLP_DISPATCH_BATCHES ||
           b % (uint64_t)w->st->n_workers == (uint64_t)w->id;
}

#define DLPI_AHEAD_BYTES 1024u /* bytes of a unit that are prefetched before it is run, at most */
#define DLPI_AHEAD 4u          /* batches of one row whose lines are prefetched at once */

static inline void dlpi_lines_ahead(const void *from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += 64) dlpi_prefetch_write((const uint8_t *)from + i);
}

/* Prefetch what a worker that is alone writes of the batch of one row in slot s: the header, the
   index and the row's fields. */
static inline void dlpi_single_ahead(const dlp_pipe *p, uint32_t s) {
    const uint8_t *cell = dlpi_area_at(p, DLPI_REC_CELLS, s);
    dlpi_prefetch_write(&dlpi_slot_at(p, s)->header);
    dlpi_prefetch_write(dlpi_slot_index(p, s));
    for (uint32_t f = 0; f < p->items.n; f++)
        dlpi_lines_ahead(cell + p->items.at[f].offset, p->items.at[f].row_bytes);
}

/* Read the tail, by a worker that has claimed all that it knew of. If there is more, a fetch worker
   writes to the batch's line next, to claim it. So that line is prefetched at once, and the lines
   after it, too, where a batch is done before the next line is here. */
static inline uint64_t dlpi_tail_moved(const dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    uint64_t tail = dlpi_credit_seen(&p->ctl->tail); /* T1 <- T1 */
    uint64_t end = w->low + (dlpi_slot_in_line(p) ? DLPI_AHEAD : 1);
    if (w->st->work != 0 || !w->started) return tail;
    for (uint64_t b = w->low; b < tail && b < end; b++) {
        if (w->alone)
            dlpi_single_ahead(p, (w->next_slot + (uint32_t)(b - w->low)) % p->n_slots);
        else
            dlpi_slot_fetch(p, b);
    }
    return tail;
}

/* Claim a unit of the oldest batch that has one for worker w. The hints of the last look are used
   unless a rescan is due. Returns false if no unit can be claimed now; *t is then undefined. */
DLPI_NOINLINE static bool dlpi_find_oldest(dlpi_worker *w, dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    uint64_t rescan = dlpi_claim_rescans(&w->waiters->rescan); /* R1 <- R1 */
    /* T1 <- T1 */
    uint64_t tail = w->low == w->tail_seen ? dlpi_tail_moved(w) : w->tail_seen;
    bool hints = rescan == w->rescan_seen, all, found;
    if (!hints) tail = dlpi_credit_seen(&p->ctl->tail); /* T1 <- T1 */
    if (!hints || tail - w->low > p->ring) {
        uint64_t oldest = tail > p->ring ? tail - p->ring : 0;
        if (!hints || w->low < oldest) w->low = oldest;
    }
    for (uint64_t b = w->low;; b++) {
        if (b == tail) {                            /* end of what was seen: is there more? */
            tail = dlpi_credit_seen(&p->ctl->tail); /* T1 <- T1 */
            if (b == tail) break;
        }
        w->tail_seen = tail;
        if (w->claim_end != 0 && b >= w->claim_end) return false;
        all = true;
        found = dlpi_batch_mine(w, b) && dlpi_find_in(w, b, hints, t, &all);
        if (all && b == w->low) w->low = b + 1;
        if (found) return true;
    }
    w->tail_seen = tail;
    w->rescan_seen = rescan; /* only after a whole look without hints */
    return false;
}

/* The short look of a worker whose batches have one row each (dlpi_worker_singles): the oldest one
   that nobody has claimed. It passes a batch if somebody has claimed it, also in this very moment.
   If a claim is given up, R1 is counted after that, and the look without hints goes back. Returns
   false if dlpi_find_oldest has to look. */
static bool dlpi_find_single(dlpi_worker *w, dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    uint64_t tail = w->low != w->tail_seen ? w->tail_seen : dlpi_tail_moved(w); /* T1 <- T1 */
    if (dlpi_claim_rescans(&w->waiters->rescan) != w->rescan_seen || tail - w->low > p->ring)
        return false; /* R1 <- R1 */
    w->tail_seen = tail;
    for (uint64_t b = w->low; b != tail; b++) {
        uint64_t header, owner, mine = dlpi_gen_word(b, (uint64_t)w->global + 1u);
        dlpi_stage_words *words;
        if (!dlpi_batch_mine(w, b)) continue;
        t->slot = w->next_slot;
        header = dlpi_claim_head(&dlpi_slot_at(p, t->slot)->header); /* P1 <- P1 */
        if (DLPI_UNLIKELY(dlpi_gen(header) != (b & DLPI_GEN_MASK)) &&
            !dlpi_find_slot(p, b, &t->slot, &header))
            continue;
        w->next_slot = t->slot + 1 < p->n_slots ? t->slot + 1 : 0;
        words = dlpi_stage_words_at(p, t->slot, w->st);
        owner = dlpi_claim_look(dlpi_owners(p, words)); /* O1 <- O1 */
        if (dlpi_header_count(header) == 0 || !dlpi_older(dlpi_gen(owner), b)) continue;
        if (w->st->n_workers == 1)
            dlpi_claim_alone(dlpi_owners(p, words), mine);
        else if (!dlpi_claim_take(dlpi_owners(p, words), owner, mine))
            continue;
        dlpi_claim_advance(&words->next, b, 1); /* for the looks of dlpi_find_oldest */
        t->b = b;
        t->unit = t->row = 0;
        t->end = 1;
        t->untouched = !dlpi_header_padded(header) && (owner & DLPI_FREED) == 0;
        w->low = b + 1;
        if (w->alone && b + DLPI_AHEAD < tail) {
            uint32_t later = t->slot + DLPI_AHEAD;
            dlpi_single_ahead(p, later < p->n_slots ? later : later - p->n_slots);
        }
        return true;
    }
    w->low = tail;
    return false;
}

DLPI_INLINE bool dlpi_find(dlpi_worker *w, dlpi_unit *t) {
    bool found = (w->singles && dlpi_find_single(w, t)) || dlpi_find_oldest(w, t);
    if (DLPI_UNLIKELY((w->st->held & DLPI_HELD_TAKES) != 0))
        w->p->holder->claimed(w, found ? t : NULL);
    return found;
}

/* Let batch b leave the last item stage if all of its rows are done. seen: the word `ready`, read
   before the done words are. Returns true if this call closed the batch. */
static bool dlpi_close_batch(const dlp_pipe *p, dlpi_stage_words *words, uint64_t b, uint32_t count,
                             uint64_t seen) {
    uint64_t *scan = p->words_max > 1 ? dlpi_owners(p, words) + p->units_max : NULL;
    /* closed, and the slot may have gone on to a batch without rows */
    if (dlpi_ready_past(seen, b)) return false;
    if (!dlpi_gather_full(dlpi_done(words), scan, b, count, seen)) return false;
    return dlpi_gather_close(&words->ready, seen, b);
}

/* True if the claim of unit t in stage st was given up again. */
static bool dlpi_freed(const dlp_pipe *p, const dlpi_stage *st, const dlpi_unit *t) {
    return dlpi_claim_was_freed(&dlpi_owners(p, dlpi_stage_words_at(p, t->slot, st))[t->unit],
                                t->b);
}

/* Batch t->b left work[k], and its `ready` is written: wake who goes on with it. If the batch went
   back before, workers there may have looked before it was ready and go by their hints since, so
   they are told to look without hints. */
DLPI_INLINE void dlpi_ready_wake(dlp_pipe *p, int k, const dlpi_unit *t) {
    dlpi_unit whole = {t->b, t->slot, 0, 0, 0, false};
    if (k + 1 < p->n_work && dlpi_freed(p, p->work[k + 1], &whole))
        dlpi_claim_rescan(&p->waiters[k + 1].rescan); /* R1 -> R1 */
    dlpi_wake_next(p, k, t->b);
}

/* True if no row of unit t is an item of stage st (of a mix), so that the stage has no work on it.
   Only the worker that has claimed the unit and has not yet set its done bits may ask. */
static bool dlpi_unit_passes(const dlp_pipe *p, const dlpi_stage *st, const dlpi_unit *t) {
    const uint64_t *index = dlpi_slot_index(p, t->slot);
    const uint32_t *fate = dlpi_slot_fate(p, t->slot);
    if (DLPI_LIKELY(!st->lets_pass)) return false;
    for (uint32_t r = t->row; r < t->end; r++)
        if (fate[r] != 0 || index[r] - st->scope.first < st->scope.n_items) return false;
    return true;
}

/* Rows of unit t are done in the stage before st: wake a worker of st. If the unit was freed
   before, workers there may have looked before the rows were back and go by their hints since, so
   they are told to look without hints. */
static void dlpi_items_wake(dlp_pipe *p, dlpi_stage *st, const dlpi_unit *t) {
    if (dlpi_freed(p, st, t)) dlpi_claim_rescan(&p->waiters[st->work].rescan); /* R1 -> R1 */
    dlpi_wake_stage(p, st, t->b, 1);
}

/* Set done bits of the last item stage. The worker that fills the last word closes the batch. */
static void dlpi_last_done(dlp_pipe *p, const dlpi_unit *t, dlpi_stage_words *words,
                           uint32_t mask) {
    uint32_t i = t->row / DLPI_WORD_ROWS;
    uint32_t count = dlpi_slot_at(p, t->slot)->count; /* after the bits it may be another's */
    uint64_t seen;
    if (dlpi_gather_publish(&dlpi_done(words)[i], t->b, mask) != dlpi_word_full(count, i)) return;
    seen = dlpi_gather_look(&words->ready); /* Y1 <- Y1: before the look at the words */
    if (dlpi_close_batch(p, words, t->b, count, seen)) dlpi_ready_wake(p, p->n_item_work - 1, t);
}

/* Pass unit t, done in the stage before work[k], through that stage and all after it that have no
   work on it. Worker w does so, for their own workers may be busy for long. It claims the unit
   there as they would. If nobody has claimed the unit before, nothing of it has come back, so its
   rows are still what they were when they were done. */
static void dlpi_unit_pass(dlpi_worker *w, const dlpi_unit *t, int k) {
    dlp_pipe *p = w->p;
    uint64_t mine = dlpi_gen_word(t->b, (uint64_t)w->global + 1u);
    for (bool passes = true; passes; k++) {
        dlpi_stage_words *words = dlpi_stage_words_at(p, t->slot, p->work[k]);
        uint64_t *owner = &dlpi_owners(p, words)[t->unit];
        uint64_t seen = dlpi_claim_look(owner); /* O1 <- O1 */
        uint32_t mask = dlpi_unit_mask(t->row, t->end);
        if ((seen & DLPI_FREED) != 0 || !dlpi_older(dlpi_gen(seen), t->b) ||
            !dlpi_claim_take(owner, seen, mine)) /* O1 */
            break;
        if (k + 1 == p->n_item_work) {
            dlpi_last_done(p, t, words, mask);
            return;
        }
        passes = dlpi_unit_passes(p, p->work[k + 1], t);
        dlpi_gather_publish(&dlpi_done(words)[t->row / DLPI_WORD_ROWS], t->b, mask);
    }
    dlpi_items_wake(p, p->work[k], t);
}

/* Set done bits (rows) of unit t in the word *done. When all of the unit is done, pass it on to the
   next item stage. */
static void dlpi_pass_items(dlpi_worker *w, const dlpi_unit *t, uint64_t *done, uint32_t rows) {
    dlp_pipe *p = w->p;
    dlpi_stage *next = p->work[w->st->work + 1];
    uint32_t mask = dlpi_unit_mask(t->row, t->end);
    bool passes = dlpi_unit_passes(p, next, t);
    if ((dlpi_gather_publish(done, t->b, rows) & mask) != mask) return;
    if (DLPI_UNLIKELY(passes))
        dlpi_unit_pass(w, t, next->work);
    else
        dlpi_items_wake(p, next, t);
}

/* Set the done bits `mask` of unit t in the worker's item stage, and pass on what that completes.
   */
static void dlpi_complete(dlpi_worker *w, const dlpi_unit *t, uint32_t mask) {
    dlp_pipe *p = w->p;
    dlpi_stage_words *words = dlpi_stage_words_at(p, t->slot, w->st);
    if (mask == 0) return;
    if (DLPI_UNLIKELY((w->st->held & DLPI_HELD_READS) != 0)) p->holder->leave(w, t, mask);
    if (w->st->work + 1 < p->n_item_work)
        dlpi_pass_items(w, t, &dlpi_done(words)[t->row / DLPI_WORD_ROWS], mask);
    else
        dlpi_last_done(p, t, words, mask);
}

/* Set the done bit of a whole batch of one row, in the only item stage, and let the batch out. */
static inline void dlpi_complete_single(const dlpi_worker *w, const dlpi_unit *t) {
    dlpi_stage_words *words = dlpi_stage_words_at(w->p, t->slot, w->st);
    if (dlpi_gather_single(dlpi_done(words), &words->ready, t->b)) /* D1, Y1 */
        dlpi_ready_wake(w->p, 0, t);
}

/* Return the owner word that marks a unit of batch b which worker w is about to give up. */
static uint64_t dlpi_owner_redo(const dlpi_worker *w, uint64_t b) {
    return dlpi_claim_reserved(b, (uint32_t)w->global);
}

/* Return how many units, each with a claim, stage work[k] has of the batch with this header. */
static uint32_t dlpi_stage_units(const dlp_pipe *p, int k, uint64_t header) {
    return k < p->n_item_work ? dlpi_units(dlpi_header_count(header), dlpi_header_shift(header))
                              : 1u;
}

/* Return the place of the stage to which rows or batches of stage st go back: the nearest one that
   writes their cells whole. */
static int dlpi_redo_first(const dlp_pipe *p, const dlpi_stage *st, uint64_t header) {
    if (dlpi_is_item_stage(p, st)) return 0;
    return dlpi_header_count(header) > 0 ? p->cells_from : p->n_item_work;
}

/* Set the claims that stage work[k] has on the rows of t, a unit or a whole batch, to this word. */
static void dlpi_owners_set(dlp_pipe *p, int k, const dlpi_unit *t, uint64_t header,
                            uint64_t word) {
    uint64_t *owner = dlpi_owners(p, dlpi_stage_words_at(p, t->slot, p->work[k]));
    const uint32_t shift = dlpi_header_shift(header), rows = k < p->n_item_work;
    const uint32_t end = rows ? dlpi_units(t->end, shift) : 1;
    for (uint32_t u = rows ? t->row >> shift : 0; u < end; u++)
        dlpi_claim_free(&owner[u], word); /* or a mark */
}

/* Undo that rows of t (bits of each done word) left stage k. From the last item stage on, undo that
   the batch did, too: its ready becomes that of the batch before. The redo count changes, so a
   compare-and-swap based on the old value fails. This order lets a closer find ready past its
   batch, or rows missing. */
static void dlpi_stage_undo(dlp_pipe *p, int k, const dlpi_unit *t, uint32_t rows) {
    dlpi_stage_words *words = dlpi_stage_words_at(p, t->slot, p->work[k]);
    uint32_t end = k < p->n_item_work ? t->end : 0;
    for (uint32_t row = t->row / DLPI_WORD_ROWS * DLPI_WORD_ROWS; row < end; row += DLPI_WORD_ROWS)
        dlpi_gather_take_back(&dlpi_done(words)[row / DLPI_WORD_ROWS], rows);
    if (k + 1 >= p->n_item_work) dlpi_gather_undo(&words->ready, t->b);
}

/* Send rows of a unit (bits of its done word) back to the first stage: they get their indices from
   the slot and are done all over again. A whole batch (UINT32_MAX), perhaps half changed, goes back
   to the nearest stage that writes its cell whole: the collate, or fetch. Bits first, then the
   claims, then the call to look again: whoever reads a freed claim finds the bits of the stages
   before it gone, so no stage runs before the one after it. The claims of the stages before carry
   our mark from before the first bit goes: a worker that dies in between is known by its own claim,
   or, once that is freed, by the reserved word; and whoever recovers their last owner sees that
   they are no longer its. The first stage's is freed last, so up to that store nobody can begin
   again. */
DLPI_COLD static void dlpi_rows_redo(const dlpi_worker *w, const dlpi_unit *t, uint32_t rows) {
    dlp_pipe *p = w->p;
    const uint64_t mark = dlpi_owner_redo(w, t->b), freed = dlpi_owner_freed(p, t->slot, t->b);
    const uint64_t header = DLPI_LOAD_RLX(&dlpi_slot_at(p, t->slot)->header); /* claimed */
    const int last = w->st->work, first = dlpi_redo_first(p, w->st, header);
    for (int k = first; k < last; k++) dlpi_owners_set(p, k, t, header, mark);
    for (int k = first; k < last; k++) dlpi_stage_undo(p, k, t, rows);
    for (int k = first + 1; k <= last; k++) /* ours is the last of these */
        dlpi_owners_set(p, k, t, header, freed);
    dlpi_owners_set(p, first, t, header, freed);
    dlpi_rescan(p, first, last);
}
