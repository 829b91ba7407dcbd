/* needs: parts */
#pragma once
/* tests: system/stages/parts, system/shm/shm_runs, model/model_links, model/model_parts */
#include "api/parts.h"
#include "flight/in_flight.h"
#include "inputs/add.h"
#include "inputs/epoch.h"
#include "cells/cells.h"
#include "slot/feed.h"
#include "work/recover.h"
#include "deliver/state.h"
#include "observe/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-inputs     INPUT CELLS: WHAT THE WORKERS OF A SOURCE LOAD
   A source may make its rows from inputs larger than an item. It then has cells for the inputs, in
   the region, and a stage of workers that load them. Only the scheduler says which input is loaded
   into which cell, and when the input is needed no more. The table of the source tells how to load.
   A unit of the workers is a cell with an open ticket. A worker looks at 64 cells, from the one
   that was taken last on. It takes the oldest of them, or the first if inputs take little time.

   cell.state: ticket (39 bits) and what is with it. Tickets only grow.

     CLOSED --scheduler: OPEN--> OPEN --worker: a swap, its number--> ... --worker--> LOADED or
     FAILED
       ^  ^                    |  ^                                 |                  |
       |  +--scheduler: a swap ---+  +-- failed, or dead: tried again -+                  |
       |                         +-- scheduler: a run goes on after the one that failed --+
       +----------------------- scheduler: it is needed no more --------------------+

   Inputs that take little time come in runs: a cell has `run` of them, one after the other, and
   `made` says how many are made. The worker that loads the cell goes on with the first that is not
   made, also after the death of another worker. FAILED says that this input failed.

   label  atomic            written by                    read by (partner)
   Q1     cell.state        scheduler: OPEN, CLOSED;      workers before a claim; scheduler, who
                            worker: claim, LOADED,        then reads it, or shows it to item
                            FAILED; recovery: OPEN        workers with the batch (P1, T1)
   Q2     ctl.source_moves  worker, after Q1; recovery    scheduler (Q2, >>impl-credit): look again
                                                          for a free cell; before it sleeps, so
                                                          after B1
   Q3     bits              set before Q1 says OPEN;      workers: where it is not set, the cell
                            worker, after its claim:      is not open
                            cleared
   B1     waiters.mask, word   >>impl-sleepers

   Why a claim is right. The swap that puts a worker's number into the word IS the claim. It fails
   unless the word has the very ticket that was read, and is open. A cell that was given to another
   input has another ticket. A worker reads the fields of the cell after the swap. The scheduler
   writes the fields only while the word is LOADED or FAILED, or CLOSED. No worker changes LOADED or
   FAILED. The scheduler sets CLOSED by a swap, which fails if a worker has come first. So while a
   worker's number is in the word, only that worker writes fields or bytes.
   tests/model/model_parts.pml goes through all of this.
   Why no open cell is overlooked. The cell's bit is set before its word says OPEN. Only a worker
   whose swap has taken that ticket clears the bit, before it does anything else. Then the cell is
   not open. It cannot be open again before that worker goes on, or recovery after its death. A
   death, or a cell that the scheduler has closed, may leave a bit set. Such a bit costs a look.
   Why a death costs no input. Only the word tells who loads. A worker that dies before it says
   LOADED leaves its number in the word. Recovery is alone with the words of a dead worker, and
   makes the cell OPEN again. The next worker begins at the first byte, because nobody reads bytes
   that are not LOADED. In a run it begins with the input that was being loaded. The inputs before
   it are in `made`, a release store after their bytes and counts. A worker that dies after LOADED
   has only left out to count the load and to wake others. Recovery counts one (Q2), and wakes
   everybody. */

#define DLPI_INPUT_OPEN UINT32_C(0x1000000)
#define DLPI_INPUT_LOADED UINT32_C(0x1000001)
#define DLPI_INPUT_FAILED UINT32_C(0x1000002)
#define DLPI_INPUT_CLOSED UINT32_C(0)
#define DLPI_INPUT_LOOK 64u /* open cells that a worker looks at, to claim the oldest of them */
#define DLPI_INPUT_TOLD 64u
#define DLPI_READS (INT_MIN + 2) /* the op of a later fetch by requests returns it */
#define DLPI_INPUT_CHEAP_NS 2000u
#define DLPI_INPUT_RUN 32u      /* inputs of a cell, at most */
#ifndef DLPI_INPUT_RUN_NS       /* a checker may define it before inclusion */
#define DLPI_INPUT_RUN_NS 8000u /* ns that the inputs of a cell should take together, at most */
#endif
#define DLPI_INPUT_GUARD ((uint64_t)DLPI_DEBUG * 4096) /* guard bytes before each cell's bytes */

/* The record of a cell, in the region. The scheduler writes it while no worker may load. The worker
   that loads writes the other fields. Both need the first lines, and the tail, in each run. */
typedef struct dlpi_input {
    uint64_t state;               /* Q1: ticket (39 bits) and state (25 bits): see >>impl-inputs */
    uint64_t index, first, items; /* of the input that is loaded now, or was loaded last */
    uint64_t epoch;
    uint64_t bytes;     /* bytes of that input, as its load says */
    uint64_t due_ns;    /* time at which a failed load is tried again; 0: at once */
    uint32_t rec;       /* tries, and workers that it killed, as in the fate of a row */
    uint32_t made;      /* inputs of the run that are loaded */
    uint64_t used;      /* 1 + last scheduled batch that needs it; scheduler, for observers */
    uint32_t run;       /* inputs in this cell */
    uint32_t killed_by; /* signal that ended the last worker that it killed */
    dlp_error error;    /* error of the failed load. LOADED: error of the first item that failed and
                           was left out; `position` counts such items; code 0: there is none.
                           `epoch` is then the max_skips that holds for all of these items */
    uint64_t tail[7];   /* begins with [most] indices of the run's inputs, written by the scheduler;
                           behind them [most] 32-bit counts of their items, written by the loader.
                           Both lie in cache lines of their own, because they go to and fro */
} dlpi_input;

_Static_assert(sizeof(dlpi_input) == 4 * DLPI_LINE, "region layout");

/* Areas of a stage that has cells of inputs: DLPI_OWN_LINK and so on, up to DLPI_OWN_HIDDEN. */
enum { DLPI_INPUTS_CELLS, DLPI_INPUTS_RECORDS, DLPI_INPUTS_COUNTS, DLPI_INPUTS_BITS };

static inline void *dlpi_input_area(const dlp_pipe *p, int number, uint64_t i) {
    return p->region + p->inputs[number].offset + i * p->inputs[number].stride;
}
static inline dlpi_input *dlpi_input_at(const dlp_pipe *p, uint32_t i) {
    return dlpi_input_area(p, DLPI_INPUTS_RECORDS, i);
}
static inline uint8_t *dlpi_input_bytes(const dlp_pipe *p, uint32_t i) {
    return (uint8_t *)dlpi_input_area(p, DLPI_INPUTS_CELLS, i) + DLPI_INPUT_GUARD;
}
static inline uint64_t *dlpi_input_indices(dlpi_input *cell) {
    return (uint64_t *)(void *)((uint8_t *)cell + offsetof(dlpi_input, tail));
}
static inline uint32_t *dlpi_input_counts(const dlp_pipe *p, dlpi_input *cell) {
    const uint64_t bytes = p->inputs[DLPI_INPUTS_RECORDS].stride - offsetof(dlpi_input, tail);
    return (uint32_t *)(void *)(dlpi_input_indices(cell) + bytes / 12);
}
/* Return the bytes of a cell's record in the region, for a cell of at most `run` inputs. */
static inline uint64_t dlpi_input_record(uint32_t run) {
    return dlpi_round_up(offsetof(dlpi_input, tail) + run * UINT64_C(12), DLPI_LINE);
}
static inline uint32_t dlpi_n_inputs(const dlp_pipe *p) {
    return (uint32_t)p->inputs[DLPI_INPUTS_RECORDS].count;
}

/* ---- which cells may be open ---- */

/* Return how many words a worker of the stage has to say which of its cells are in callbacks (X2):
   two for each request, in lines of their own. 0: the stage has no requests. */
static inline uint64_t dlpi_input_blames(const dlpi_stage *st) {
    return dlpi_round_up(2 * (uint64_t)st->in_flight, 8);
}

/* Return the words of the stage's worker with this number. They lie behind the bits. */
static uint64_t *dlpi_input_blame(const dlp_pipe *p, const dlpi_stage *st, uint32_t worker) {
    const uint64_t each = dlpi_input_blames(st);
    const uint64_t all = each * (uint64_t)st->n_workers;
    return dlpi_input_area(p, DLPI_INPUTS_BITS,
                           p->inputs[DLPI_INPUTS_BITS].count - all + worker * each);
}

/* Add the areas of the region with a record and a bit for each cell. run: most inputs of a cell. */
static void dlpi_inputs_records(dlp_pipe *p, const dlpi_stage *st, uint32_t cells, uint32_t run) {
    const int own = DLPI_OWN(st->id, 0);
    const uint64_t blames = dlpi_times((uint64_t)st->n_workers, dlpi_input_blames(st));
    uint64_t bits = ((uint64_t)cells + 63) / 64;
    if (blames > 0) bits = dlpi_sum(dlpi_round_up(bits, 8), blames);
    p->inputs = &p->areas[own];
    dlpi_area_add(p, own + DLPI_INPUTS_BITS, 8, bits, DLPI_LINE);
    dlpi_area_told(p, own + DLPI_INPUTS_RECORDS, DLPI_PLAN_INPUTS, "part cells: records",
                   dlpi_input_record(run), cells, DLPI_LINE);
}

/* Add the areas of the region for `cells` cells of `stride` bytes, with a record and a bit each.
   run: inputs of a cell, at most. words: the name of the cells in the plan. */
static void dlpi_inputs_layout(dlp_pipe *p, const dlpi_stage *st, uint32_t cells, uint32_t run,
                               uint64_t stride, const char *words) {
    dlpi_inputs_records(p, st, cells, run);
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_INPUTS_CELLS), DLPI_PLAN_INPUTS, words,
                   dlpi_sum(stride, DLPI_INPUT_GUARD), cells, 4096);
}
static inline uint64_t *dlpi_input_bits(const dlp_pipe *p, uint32_t c) {
    return dlpi_input_area(p, DLPI_INPUTS_BITS, c / 64);
}
/* Return the first cell from cell c on whose bit says that it may be open, or the number of cells
   if there is none. */
static uint32_t dlpi_input_next(const dlp_pipe *p, uint32_t c) {
    const uint32_t n = dlpi_n_inputs(p);
    const uint64_t *bits = dlpi_input_bits(p, c); /* the words lie side by side */
    for (uint64_t mask = UINT64_MAX << c % 64; c < n; c = c / 64 * 64 + 64, mask = UINT64_MAX) {
        const uint64_t those = dlpi_claim_those(bits++) & mask; /* Q3 <- Q3, B1 */
        if (those != 0) return c / 64 * 64 + DLPI_CTZ(those);
    }
    return n;
}
/* Clear the record of a closed cell for its next run of n inputs. */
static void dlpi_input_reset(dlpi_input *cell, uint64_t epoch, uint32_t n) {
    cell->epoch = epoch;
    cell->items = cell->bytes = 0;
    cell->rec = 0;
    cell->run = n;
    cell->made = 0;
    cell->error.code = 0;
    DLPI_STORE_RLX(&cell->used, UINT64_C(0));   /* for observers */
    DLPI_STORE_RLX(&cell->due_ns, UINT64_C(0)); /* ordered by state */
}
/* Open cell c with this ticket, so that a worker may claim it. */
static void dlpi_input_offer(dlp_pipe *p, uint32_t c, uint64_t ticket) {
    dlpi_claim_may(dlpi_input_bits(p, c), c); /* Q3: before Q1 */
    dlpi_claim_done(&dlpi_input_at(p, c)->state,
                    dlpi_gen_word(ticket, DLPI_INPUT_OPEN)); /* Q1 -> Q1, B1 */
}
static inline uint32_t dlpi_input_state(const dlp_pipe *p, uint32_t c) {
    return dlpi_gen_low(dlpi_claim_owner(&dlpi_input_at(p, c)->state)); /* Q1 <- Q1 */
}

/* ---- DLPIPE_DEBUG: guard bytes around a cell ---- */

/* Return the guard bytes of a cell, of which `most` bytes may be written. */
static dlpi_redzone dlpi_redzone_of_input(const dlp_pipe *p, uint64_t most, uint32_t cell) {
    uint8_t *at = dlpi_input_bytes(p, cell);
    return dlpi_redzone_whole(at, at - DLPI_INPUT_GUARD, p->inputs[DLPI_INPUTS_CELLS].stride, most);
}

/* DLPIPE_DEBUG: fill the guard bytes of all cells. most: bytes of a cell that may be written. */
static void dlpi_inputs_paint(dlp_pipe *p, uint64_t most) {
    for (uint32_t i = 0; i < dlpi_n_inputs(p); i++) {
        const dlpi_redzone c = dlpi_redzone_of_input(p, most, i);
        dlpi_redzone_paint(&c);
    }
}

/* ---- by the scheduler: looking ahead ---- */

/* The last search for free cells, and the numbers that its result depends on. */
typedef struct dlpi_inputs_ahead {
    uint64_t epoch, batch; /* the batch that is scheduled next */
    uint64_t left;         /* batches below this number will not need their inputs again */
    uint64_t loads;        /* ctl.source_moves: inputs that were loaded, or have failed */
    uint64_t tickets;      /* tickets given to cells so far */
    bool stuck;            /* the search found no free cell */
} dlpi_inputs_ahead;

/* Raise *left to the first batch that has not yet passed the last stage that may send rows back. No
   batch below *left needs its inputs again. */
static void dlpi_inputs_leave(dlp_pipe *p, uint64_t *left) {
    uint64_t base = dlpi_credit_seen(&p->ctl->base); /* V1 <- V1 */
    if (*left < base) *left = base;                  /* delivered: their slots may be others' */
    for (; *left < p->schedule.published; ++*left) {
        dlpi_stage_words *words = dlpi_stage_words_at(p, dlpi_slot_of(p, *left), p->rows_end);
        if (!dlpi_ready_past(dlpi_gather_look(&words->ready), *left)) break; /* Y1 <- Y1 */
    }
}

/* True if the scheduler should search for free cells now. A search that found no free cell is not
   repeated until something that it depends on has changed. epoch, batch: the next ones. */
static bool dlpi_inputs_search(dlp_pipe *p, dlpi_inputs_ahead *a, uint64_t epoch, uint64_t batch) {
    const dlpi_inputs_ahead last = *a;
    if (p->schedule.ended) return false;
    a->epoch = epoch;
    a->batch = batch;
    a->loads = dlpi_credit_seen(&p->ctl->source_moves); /* Q2 <- Q2, B1 */
    dlpi_inputs_leave(p, &a->left);
    if (last.stuck && memcmp(&last, a, offsetof(dlpi_inputs_ahead, tickets)) == 0) return false;
    a->stuck = false;
    return true;
}

/* Note that the batch in slot s has rows of cell c. Returns the number of the batch + 1. */
static uint64_t dlpi_input_use(dlp_pipe *p, uint32_t c, uint32_t s) {
    const uint64_t used = dlpi_slot_at(p, s)->sequence + 1;
    DLPI_STORE_RLX(&dlpi_input_at(p, c)->used, used); /* for observers */
    return used;
}

/* ---- by the scheduler: an input can't be loaded ---- */

/* True if a failed input is an error of the batch that needs its n rows, by the on_error of the row
   that failed. False if these rows are left out instead. cell: the input's, or one out of which n
   items were left. *e: gets the error. It is DLP_ERR_BUDGET if more rows fail than the row's
   max_skips allows. */
DLPI_COLD static bool dlpi_input_raises(dlp_pipe *p, const dlpi_input *cell, uint32_t n,
                                        dlp_error *e) {
    const dlpi_policy d = dlpi_policy_in(p->source_stage, dlpi_row_named(p, cell->error.stage));
    const int64_t most = cell->error.position > 0 ? (int64_t)cell->error.epoch : d.max_skips;
    *e = cell->error;
    e->epoch = cell->epoch;
    e->position = 0;
    if (e->code == DLP_SKIP) return false;
    if (d.on_error == DLP_ON_ERROR_RAISE || dlpi_never_skipped(e->code)) return true;
    if (most != DLP_NONE && dlpi_failures_add(p->ctl, n, most)) return false;
    e->code = DLP_ERR_BUDGET;
    dlpi_error_first(p->ctl, e);
    return true;
}

/* List the input of *e among the skipped ones, and count it: it is left out, without an error. */
DLPI_COLD static void dlpi_input_left_out(dlp_pipe *p, dlp_error *e) {
    e->has_item = 1;
    dlpi_skip_put(p->ctl, p->source_stage, e, e->code ? e->code : DLP_SKIP, UINT64_MAX);
    dlpi_bump(&p->workers[p->source_stage->first_worker].block->left_out, 1); /* its one writer */
}

/* Close cell c, which is needed no more, if it is still open. Returns true if the cell is now idle:
   loaded, failed or closed. Returns false if a worker is loading it. ticket: the cell's ticket. */
static bool dlpi_input_close(dlp_pipe *p, uint32_t c, uint64_t ticket) {
    uint64_t *state = &dlpi_input_at(p, c)->state, now = dlpi_claim_owner(state); /* Q1 <- Q1 */
    uint32_t low = dlpi_gen_low(now);
    if (low == DLPI_INPUT_OPEN)
        return dlpi_claim_take(state, now, dlpi_gen_word(ticket, DLPI_INPUT_CLOSED)); /* Q1 -> Q1 */
    return low == DLPI_INPUT_LOADED || low == DLPI_INPUT_FAILED || low == DLPI_INPUT_CLOSED;
}

/* True if no input is being loaded, and none will be before the scheduler opens a cell. */
static bool dlpi_inputs_quiet(dlp_pipe *p) {
    for (uint32_t c = 0; c < dlpi_n_inputs(p); c++) {
        const uint32_t low = dlpi_input_state(p, c);
        if (low != DLPI_INPUT_LOADED && low != DLPI_INPUT_FAILED && low != DLPI_INPUT_CLOSED)
            return false;
    }
    return true;
}

/* Return `there`: whether the inputs of the present batch are loaded. Also note for the consumer's
   statistics if it has to wait for them, which is so if they are not and no batch is under way. */
static bool dlpi_inputs_there(dlp_pipe *p, bool there) {
    DLPI_STORE_RLX(&p->ctl->source_waits, /* for the consumer's books */
                   !there && p->schedule.published ==
                                 dlpi_credit_seen(&p->ctl->delivered)); /* V1 <- V1 */
    return there;
}

/* ---- workers of cells ---- */

/* Return the dlp_part that an item's callback sees of the input in cell c. */
static inline dlp_part dlpi_input_shown(const dlp_pipe *p, uint32_t c) {
    const dlpi_input *cell = dlpi_input_at(p, c);
    return (dlp_part){.index = cell->index,
                      .data = dlpi_input_bytes(p, c),
                      .bytes = cell->bytes,
                      .items = cell->items};
}

/* Return the number of the item that takes the place of a failed one, for the k-th time. The item
   is of the same cell, because another input may not be loaded. Seed, epoch, position and k decide
   it. */
static uint64_t dlpi_input_replacement(const dlp_pipe *p, const dlpi_input *cell, uint64_t epoch,
                                       uint64_t position, uint32_t k) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_REPLACEMENT, dlpi_sampler_of(p)->seed, epoch);
    return dlpi_below(dlpi_range_of(cell->items), dlpi_absorb(dlpi_absorb(h, position), k));
}

/* Return the time in ns from which on an open cell may be tried; 0 means now. */
static inline uint64_t dlpi_input_due(const dlpi_input *cell) {
    return DLPI_LOAD_RLX(&cell->due_ns); /* ordered by state, or of a ticket that is past */
}

/* True if this worker's inputs take less time than waking a thread, or than a longer search. */
static inline bool dlpi_input_cheap(const dlpi_worker *w) {
    return w->block->item_ns < DLPI_INPUT_CHEAP_NS;
}

/* Wake the scheduler for the inputs that this worker has loaded since it woke it last. */
static void dlpi_input_wake(dlpi_worker *w) {
    w->input_untold = 0;
    dlpi_wake_scheduling(w->p);
}

typedef struct dlpi_input_search {
    uint64_t oldest, now; /* word of the oldest open cell so far, 0: none; the time in ns */
    uint32_t cell, left;  /* that cell; open cells that are still to be looked at */
} dlpi_input_search;

/* Find the open cell with the oldest ticket among cells first .. end - 1, and write it into *s if
   it is older than the one there. Cells whose retry is not due yet are left out. */
static void dlpi_input_look(const dlp_pipe *p, dlpi_input_search *s, uint32_t first, uint32_t end) {
    for (uint32_t c = first; s->left > 0 && (c = dlpi_input_next(p, c)) < end; c++) {
        const dlpi_input *cell = dlpi_input_at(p, c);
        uint64_t state = dlpi_claim_owner(&cell->state), due; /* Q1 <- Q1, B1 */
        if (dlpi_gen_low(state) != DLPI_INPUT_OPEN) continue;
        if ((due = dlpi_input_due(cell)) != 0) {
            if (s->now == 0) s->now = dlpi_now_ns();
            if (due > s->now) continue;
        }
        s->left--;
        if (s->oldest != 0 && dlpi_older(dlpi_gen(s->oldest), dlpi_gen(state))) continue;
        s->oldest = state;
        s->cell = c;
    }
}

/* Claim an open cell for this worker, or for the seat in which it works: about the oldest. Returns
   true and describes the cell in *t, or false if no cell is open and due. Then the scheduler is
   woken for loaded inputs, unless there are other seats to look for. */
static bool dlpi_input_find(dlpi_worker *w, dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const uint32_t first = w->seat != NULL ? w->seat->first : 0;
    const uint32_t end = w->seat != NULL ? w->seat->end : dlpi_n_inputs(p);
    const uint32_t from = w->input_at > first && w->input_at < end ? w->input_at : first;
    for (;;) {
        dlpi_input_search s = {0, 0, 0, dlpi_input_cheap(w) ? 1 : DLPI_INPUT_LOOK};
        uint64_t *state;
        dlpi_input_look(p, &s, from, end);
        dlpi_input_look(p, &s, first, from);
        if (s.oldest == 0) {
            if (w->input_untold > 0 && w->seat == NULL) dlpi_input_wake(w);
            return false;
        }
        *t = (dlpi_unit){dlpi_gen(s.oldest), s.cell, 0, 0, 0, false};
        state = &dlpi_input_at(p, s.cell)->state;
        if (!dlpi_claim_take(state, s.oldest, dlpi_gen_word(t->b, (uint64_t)w->global + 1u)))
            continue;                                         /* Q1 */
        dlpi_claim_taken(dlpi_input_bits(p, s.cell), s.cell); /* Q3: after Q1 */
        w->input_at = s.cell + 1;
        return true;
    }
}

/* Return the ns until an open cell may be tried again, at most `ns`. 0: now. */
static uint64_t dlpi_inputs_due(dlpi_worker *w, uint64_t ns) {
    const dlp_pipe *p = w->p;
    for (uint32_t c = dlpi_input_next(p, 0); c < dlpi_n_inputs(p); c = dlpi_input_next(p, c + 1)) {
        const dlpi_input *cell = dlpi_input_at(p, c);
        uint64_t due, now;
        if (dlpi_gen_low(dlpi_claim_look(&cell->state)) != DLPI_INPUT_OPEN) continue; /* Q1 <- Q1 */
        if ((due = dlpi_input_due(cell)) == 0) continue;
        now = dlpi_now_ns();
        if (due <= now) return 0;
        if (due - now < ns) ns = due - now;
    }
    return ns;
}

/* DLPIPE_DEBUG: check the guard bytes around a cell after a callback has written at most `most`
   bytes into it, and those of the worker's room, if there is one. rc: the callback's code. Returns
   rc, or the DLP_ERR code of an overrun. */
static inline int dlpi_redzone_input(dlpi_worker *w, uint32_t cell, uint64_t most,
                                     const dlpi_redzone *room, int rc) {
    dlpi_redzone all;
    if (!DLPI_DEBUG) return rc;
    all = dlpi_redzone_of_input(w->p, most, cell);
    for (const dlpi_redzone *c = &all; c != NULL; c = c == &all ? room : NULL)
        rc = dlpi_redzone_check(w, &w->note, c, w->p->source->input,
                                dlpi_input_at(w->p, cell)->index, rc);
    return rc;
}

/* Call the desc's load once for the present input of cell c. load writes at `to`, at most `room`
   bytes of the cell. Sets the fields of *part, but not part->items: the caller sets this number
   before, load may change it, and the caller checks it afterwards. Returns 0, or the code with
   which the load failed. */
static int dlpi_input_part(dlpi_worker *w, uint32_t c, const dlp_node_load *d, uint8_t *to,
                           uint64_t room, dlp_part *part) {
    dlpi_input *cell = dlpi_input_at(w->p, c);
    const uint64_t most = d->max_part_bytes;
    int rc = dlpi_call_verdict(w, cell->killed_by, cell->rec);
    if (rc != 0) return rc;
    part->index = cell->index;
    part->data = to;
    part->capacity = most;
    part->attempt = dlpi_fate_tries(cell->rec);
    part->worker = (uint32_t)w->id;
    part->worker_state = w->state;
    part->call = &w->note;
    rc = dlpi_item_returned(w, d->load(d->user, part));
    rc = dlpi_redzone_input(w, c, room, NULL, rc);
    if (rc == 0 && part->bytes > most)
        rc =
            dlpi_say(w, DLP_ERR_LENGTH, "load set bytes to %" PRIu64 ", max_part_bytes is %" PRIu64,
                     part->bytes, most);
    if (rc == 0) cell->bytes = part->bytes;
    return rc;
}

/* Check the count that a load has set against the desc's limits. Returns 0 or DLP_ERR_LENGTH. */
static int dlpi_part_counted(dlpi_worker *w, const dlp_node_load *d, uint64_t items) {
    if (items > d->max_items)
        return dlpi_say(w, DLP_ERR_LENGTH, "load set items to %" PRIu64 ", max_items is %" PRIu64,
                        items, d->max_items);
    if (items > 0 && items < d->min_items)
        return dlpi_say(w, DLP_ERR_LENGTH, "load set items to %" PRIu64 ", min_items is %" PRIu64,
                        items, d->min_items);
    return 0;
}

/* Store in an input's cell why its load failed: the input's number, and what the callback said.
   code: a negative DLP_ERR code, DLP_SKIP, or another code that the callback returned. */
DLPI_COLD static void dlpi_input_error(const dlpi_worker *w, dlpi_input *cell, int code) {
    dlp_error e;
    dlpi_describe(w, code, &e);
    dlpi_error_item(&e, cell->index, cell->epoch, 0);
    if (code == DLP_SKIP) e.code = DLP_SKIP;
    cell->error = e;
    snprintf(cell->error.message, sizeof e.message, "%s %" PRIu64 ": %.220s", w->p->source->input,
             cell->index, e.message);
}

typedef struct dlpi_loaded { /* what one input came to */
    uint64_t items, bytes;
} dlpi_loaded;

/* Load the inputs of cell c, from the first one that is not loaded on, until one fails or the pipe
   stops. one: tries one input once, sets *n if it is loaded, and returns 0 or a code; a constant,
   so that it is inlined. by: passed on to `one`. apart: a death between two inputs blames none of
   them; a constant. Stores between two inputs are few, because a copy of the next input waits for
   a place behind them. Returns 0 or the failed input's code. */
DLPI_INLINE int dlpi_inputs_each(dlpi_worker *w, uint32_t c,
                                 int (*one)(dlpi_worker *w, uint32_t c, void *by, dlpi_loaded *n),
                                 void *by, bool apart) {
    dlpi_input *cell = dlpi_input_at(w->p, c);
    dlpi_worker_block *block = w->block;
    const dlp_pipe *p = w->p;
    const uint64_t *indices = dlpi_input_indices(cell);
    uint32_t *items = dlpi_input_counts(p, cell);
    const uint32_t first = cell->made, n = cell->run;
    dlpi_loaded loaded = {cell->items, cell->bytes};
    uint64_t bytes = 0;
    int rc = 0;
    dlpi_words_forget(w);
    if (!apart) dlpi_runs(&block->running, DLPI_RUNS_ALL(c));
    for (uint32_t i = first; i < n; i++) {
        cell->index = indices[i];
        DLPI_STORE_RLX(&block->current, cell->index); /* for observers */
        if (apart) dlpi_runs(&block->running, DLPI_RUNS_ALL(c));
        rc = one(w, c, by, &loaded);
        if (apart) dlpi_runs(&block->running, DLPI_RUNS_NONE);
        if (rc != 0) break;
        bytes += loaded.bytes;
        items[i] = (uint32_t)loaded.items;
        if (DLPI_UNLIKELY(cell->rec != 0)) cell->rec = 0; /* the next one's */
        DLPI_STORE_REL(&cell->made, i + 1); /* Q1: to the worker that loads it after our death */
        if (DLPI_UNLIKELY(w->note.said != 0)) dlpi_words_forget(w);
        if (DLPI_UNLIKELY(dlpi_stopped(p))) break;
    }
    if (!apart) dlpi_runs(&block->running, DLPI_RUNS_NONE);
    cell->items = loaded.items;
    cell->bytes = loaded.bytes;
    dlpi_items_count(block, cell->made - first, bytes);
    return rc;
}

/* Try one input of cell c once, by the source's load. Returns 0 or a code. */
static int dlpi_input_one(dlpi_worker *w, uint32_t c, void *by DLPI_UNREAD, dlpi_loaded *n) {
    const dlpi_input *cell = dlpi_input_at(w->p, c);
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->block->since_ns, dlpi_now_ns());
    const int rc = w->p->source->load(w, c);
    *n = (dlpi_loaded){cell->items, cell->bytes};
    return rc;
}

/* Try each input of cell c once, by the source's load. Returns 0 or the failed input's code. */
static int dlpi_input_each(dlpi_worker *w, uint32_t c) {
    return dlpi_inputs_each(w, c, dlpi_input_one, NULL, true);
}

/* Return the attempt that came back, and of which items are made now. NULL: the input was not read
   by a request. */
static inline const dlpi_attempt *dlpi_input_answer(const dlpi_worker *w) {
    return w->self != NULL ? dlpi_in_flight_of(w)->made : NULL;
}

/* Return the state of a cell that this worker has claimed. */
static inline uint32_t dlpi_input_mine(const dlpi_worker *w) { return (uint32_t)w->global + 1u; }

/* True if rc is what the op of a later fetch by requests returns: the input of the cell that is
   made now waits for its answer. */
static inline bool dlpi_input_waits(const dlpi_worker *w, int rc) {
    const dlpi_in_flight *in = w->self;
    return rc == DLPI_READS && in != NULL && in->at != NULL;
}

/* Load the inputs of a cell, with retries, until all are loaded, one has failed for good, a retry
   must wait, or the input waits for a later fetch. Returns the cell's next state: LOADED,
   FAILED, OPEN, or the present one. */
static uint32_t dlpi_input_all(dlpi_worker *w, uint32_t c, dlpi_input *cell) {
    const dlpi_source_ops *source = w->p->source;
    int rc;
    while ((rc = source->many != NULL ? source->many(w, c) : dlpi_input_each(w, c)) != 0) {
        if (dlpi_input_waits(w, rc)) return dlpi_input_mine(w);
        const uint32_t tries = dlpi_fate_tries(cell->rec);
        if (w->note.row == NULL) w->note.row = dlpi_row_named(w->p, w->st->name); /* its policy */
        const int32_t backoff_ms = dlpi_policy_now(w).retry_backoff_ms;
        if (!dlpi_tries_left(w, tries, rc)) {
            dlpi_input_error(w, cell, rc);
            dlpi_failure_forget(w);
            return DLPI_INPUT_FAILED;
        }
        dlpi_failure_forget(w);
        dlpi_bump(&w->block->retried, 1);
        cell->rec = dlpi_fate_tried(cell->rec);
        if (dlpi_stopped(w->p)) break;
        if (backoff_ms == 0 && dlpi_input_answer(w) == NULL) continue;
        DLPI_STORE_RLX(&cell->due_ns, /* ordered by state */
                       dlpi_now_ns() + dlpi_backoff_ns(backoff_ms, tries + 1));
        break;
    }
    return cell->made == cell->run ? DLPI_INPUT_LOADED : DLPI_INPUT_OPEN;
}

/* Load the inputs of the claimed cell t, write the cell's next state, and tell the scheduler. If an
   input waits for a later fetch, the cell stays the worker's. */
static void dlpi_input_run(dlpi_worker *w, const dlpi_unit *t) {
    dlp_pipe *p = w->p;
    dlpi_input *cell = dlpi_input_at(p, t->slot);
    const uint64_t index = dlpi_input_indices(cell)[0], epoch = cell->epoch;
    uint32_t what, n = cell->made;
    dlpi_clock_in(w);
    what = dlpi_input_all(w, t->slot, cell);
    n = cell->made - n;
    if (what == dlpi_input_mine(w)) {
        dlpi_clock_out(w, index, epoch, 0);
        return;
    }
    dlpi_clock_out(w, index, epoch, n + (what != DLPI_INPUT_LOADED));
    if (what == DLPI_INPUT_OPEN) { /* its time comes, and the first to sleep looks at it */
        dlpi_input_offer(p, t->slot, t->b);
        return;
    }
    dlpi_claim_done(&cell->state, dlpi_gen_word(t->b, what)); /* Q1 -> Q1, B1 */
    dlpi_credit_add(&p->ctl->source_moves);                   /* Q2 -> Q2 */
    /* Inputs that take less than to wake somebody are told of together: at the latest when there is
       no other one. The scheduler's sleep ends by itself, too, should the next one take long. */
    w->input_untold += n + (what != DLPI_INPUT_LOADED);
    if (w->input_untold >= DLPI_INPUT_TOLD || !dlpi_input_cheap(w)) dlpi_input_wake(w);
}

/* Open all cells that the dead worker w had claimed, so that other workers load them. The input
   that was being loaded, if there is one, gets the blame for the death. */
DLPI_COLD static void dlpi_input_recover(dlpi_worker *w, const dlpi_death *why) {
    const dlp_pipe *p = w->p;
    for (uint32_t c = 0; c < dlpi_n_inputs(p); c++) {
        dlpi_input *cell = dlpi_input_at(p, c);
        uint64_t state = dlpi_claim_owner(&cell->state); /* Q1 <- Q1 */
        dlpi_unit t = {dlpi_gen(state), c, 0, DLPI_WHOLE, 0, false};
        if (dlpi_gen_low(state) != (uint32_t)w->global + 1u) continue;
        const bool ran = dlpi_runs_has(dlpi_was_running(w, &t, why), c, UINT32_MAX);
        dlpi_lost_note(why, ran, &t, 1);
        if (ran) {
            cell->killed_by = dlpi_killed_word(w, why, c, UINT32_MAX);
            cell->rec = dlpi_fate_killed(cell->rec, (uint32_t)w->st->work, why->late);
        }
        dlpi_input_offer(w->p, c, dlpi_gen(state));
    }
    /* Q2 -> Q2: it may have died after LOADED, before this */
    dlpi_credit_add(&p->ctl->source_moves);
}

static bool dlpi_input_step(dlpi_worker *w) {
    dlpi_unit t;
    if (!dlpi_input_find(w, &t)) return false;
    dlpi_input_run(w, &t);
    return true;
}

/* Count one more cell in a stage's statistics. state, used: words of the cell's record. base: all
   batches below it are delivered. */
static void dlpi_input_count(dlp_stage_stats *out, uint64_t state, uint64_t used, uint64_t base) {
    uint32_t low = dlpi_gen_low(state);
    if (low == DLPI_INPUT_LOADED) out->loaded++;
    if (low == DLPI_INPUT_LOADED && used > base) out->in_use++;
    if (low != DLPI_INPUT_CLOSED && low <= DLPI_INPUT_OPEN) out->loading++;
}

/* Count cell c of a stage, which is open or being loaded, in the depth of its queue. The queues of
   a stage lie side by side, in the order of the table. */
static void dlpi_input_queued(dlpi_seen *s, int32_t stage, uint64_t c) {
    for (dlp_link *l = s->figures.links; l < s->figures.links + s->figures.n_links; l++) {
        if (l->to_stage != stage) continue;
        if (c < l->capacity) {
            l->depth++;
            return;
        }
        c -= l->capacity;
    }
}

/* Observer: count the cells of a stage, and add the counts to its statistics. Returns false if the
   region is not whole. */
DLPI_COLD static bool dlpi_inputs_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const int id = DLPI_OWN(stage, DLPI_INPUTS_RECORDS);
    const dlpi_area *r = &words->areas[id];
    dlp_stage_stats *out = &s->figures.stages[stage];
    uint64_t state, used, base = DLPI_LOAD_RLX(&s->ctl->base); /* statistics */
    if (r->count > UINT32_C(1) << 16) return false;
    for (uint64_t c = 0; c < r->count; c++) {
        if (!dlpi_word_at(words, id, c, offsetof(dlpi_input, state), 8, &state) ||
            !dlpi_word_at(words, id, c, offsetof(dlpi_input, used), 8, &used))
            return false;
        const uint32_t before = out->loading;
        dlpi_input_count(out, state, used, base);
        if (out->loading > before) dlpi_input_queued(s, stage, c);
    }
    out->cells = (uint32_t)r->count;
    return true;
}

static void dlpi_input_tell(const dlp_pipe *p, uint32_t cell, char *text, size_t size) {
    snprintf(text, size, " (%s %" PRIu64 ")", p->source->input, dlpi_input_at(p, cell)->index);
}

/* Set how many batches are under way at once, and how many credits next gathers before it schedules
   batches, if the consumer alone works on slots. If a stage has cells, one batch is under way, as
   nobody else would begin another one. It is scheduled behind the release of the batch before. Its
   slot is then the one whose lines are in the consumer's cache, and its cells come free before the
   next batch takes any. */
DLPI_COLD static void dlpi_inputs_under_way(dlp_pipe *p) {
    if (p->n_staffed == p->n_work || !dlpi_roles_whole(p)) return;
    p->reach = 1;
    p->pace.burst = p->prefetch + 1;
}

/* ---- stages with input cells: checks of their descs, and the common part of their tables ---- */

/* Check the workers' desc of a stage that loads cells: any worker takes the next cell, the number
   of workers is not tuned, and no input replaces another. Returns 0 or a DLP_ERR code. */
static int dlpi_check_input_workers(dlp_pipe *p, const dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_workers_desc, dispatch), 0, 0, "DLP_DISPATCH_CLAIM in this stage"},
        {DLPI_AT(dlp_workers_desc, workers_max), 0, 0, "0: this stage is not tuned"},
        {DLPI_AT(dlp_workers_desc, workers_min), 0, 0, "0: this stage is not tuned"},
    };
    int rc = dlpi_check_bounds(p, st->name, &st->w, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    if (st->w.on_error == DLP_ON_ERROR_REPLACE)
        return dlpi_bad(p, st->name, "on_error", "DLP_ON_ERROR_RAISE or _DROP in this stage", 1);
    return dlpi_check_workers(p, st);
}

/* Check that `batch_size` is a multiple of n, the value of `field`. Returns 0 or a DLP_ERR code. */
static int dlpi_check_divides(dlp_pipe *p, const char *field, uint64_t n) {
    if (n <= p->global_batch && p->global_batch % n == 0) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, "", field,
                       "batch_size %" PRIu64 " must be a multiple of %s %" PRIu64, p->global_batch,
                       field, n);
}

/* One worker, which loads ahead of the consumer, unless the desc says otherwise. */
#define DLPI_OPS_OF_CELLS(finds) \
    .rank = 3, .workers = 1, .unit = DLPI_UNIT_CELLS, .find = finds, .due = dlpi_inputs_due, \
    .recover = dlpi_input_recover, .tell = dlpi_input_tell

/* ... which loads one input after the other. */
#define DLPI_OPS_OF_INPUTS \
    DLPI_OPS_OF_CELLS(dlpi_input_find), .step = dlpi_input_step, .run = dlpi_input_run
