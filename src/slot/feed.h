#pragma once
/* tests: model/model_slots, system/core/pipe_basic, system/core/pipe_epochs */
#include "slot/item.h"
#include "cells/debug.h"
#include "fail/cancel.h"
#include "wait/awake.h"
#include "slot/open_end.h"
#include "slot/gaps.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-feed       THE SCHEDULER: POSITIONS INTO FREE SLOTS
   Run by the consumer, or by a thread of its own. A batch is fed while fewer than prefetch_factor
   are between here and next, a slot is free, and p->reach allows it. That limits unordered pipes,
   and those whose consumer alone works on slots. */

/* ---- epochs that begin by set_epoch ----
   The scheduler stops before such an epoch and asks for it, after the tail; the consumer calls
   set_epoch in next, when it has taken all that is before the tail, and says so. So all callbacks
   of the epochs before have returned, and none of the new one's has begun. A generation has the
   seeks in it: after a seek an epoch is asked for again.

   I2   p.schedule.epoch_asked   scheduler, after T1; the consumer reads it before T1
        p.epoch_begun            consumer, after set_epoch; the scheduler reads it first */

/* True if no item of this epoch may be fetched yet: its set_epoch has not returned. */
static inline bool dlpi_epoch_held(const dlp_pipe *p, uint64_t epoch) {
    return p->barrier && /* I2 <- I2 */
           dlpi_generation(p->schedule.seek_no, epoch) != dlpi_credit_seen(&p->epoch_begun);
}

/* Ask the consumer to begin the epoch (set_epoch), if the scheduler stands before one that needs it
   and the source is quiet. The scheduler calls this, after it has stored the tail. */
static void dlpi_epoch_ask(dlp_pipe *p) {
    dlpi_scheduler *f = &p->schedule;
    uint64_t generation = dlpi_generation(f->seek_no, f->epoch);
    if (f->ended || generation == f->epoch_asked || dlpi_epochs_over(p, f->epoch)) return;
    if (!dlpi_epoch_held(p, f->epoch)) return;
    if (!p->source->quiet(p)) return;                 /* a load that ends wakes the scheduler */
    dlpi_credit_publish(&f->epoch_asked, generation); /* I2 -> I2, B1 */
    dlpi_wake_consumer(p->ctl, UINT64_MAX);
}

/* True if the consumer must call set_epoch now: the scheduler waits for it, and all batches before
   it are delivered or dropped. Called by the consumer. */
static bool dlpi_epoch_due(const dlp_pipe *p) {
    uint64_t asked;
    if (DLPI_LIKELY(!p->barrier)) return false;
    asked = dlpi_credit_seen(&p->schedule.epoch_asked); /* I2 <- I2: before tail */
    return asked != p->epoch_begun && asked != UINT64_MAX &&
           dlpi_generation_seek(asked) == p->seek_no &&
           p->base == dlpi_credit_seen(&p->ctl->tail); /* T1 <- T1 */
}

/* Call set_epoch for the epoch that the scheduler has asked for, and tell the scheduler. Called by
   the consumer. Returns DLP_OK, or DLP_ERR_CALLBACK, which is then the pipe's error. */
DLPI_COLD static int dlpi_epoch_begin(dlp_pipe *p) {
    uint64_t asked = dlpi_credit_seen(&p->schedule.epoch_asked); /* I2 <- I2 */
    uint64_t epoch = asked & DLPI_EPOCH_MASK;
    int rc;
    p->pace.set_ns = dlpi_now_ns();
    rc = p->d.set_epoch(p->d.set_epoch_user, epoch);
    p->pace.began_ns = dlpi_now_ns();
    dlpi_bump(&p->ctl->set_epoch_ns, p->pace.began_ns - p->pace.set_ns);
    if (p->pace.border_ns == 0 && DLPI_LOAD_RLX(&p->ctl->first_ns) != 0)
        p->pace.border_ns = p->pace.set_ns;
    if (rc != 0) {
        dlp_error e;
        dlpi_error_set(&e, DLP_ERR_CALLBACK, "set_epoch", "set_epoch returned %d", rc);
        dlpi_copy_text(e.stage, sizeof e.stage, "repeat");
        e.epoch = epoch;
        return dlpi_pipe_fail(p, &e);
    }
    dlpi_credit_publish(&p->epoch_begun, asked); /* I2 -> I2, B1 */
    dlpi_wake_scheduler(p->ctl);                 /* if it is a thread */
    return DLP_OK;
}

/* Put the scheduler at the beginning of an epoch. */
static void dlpi_schedule_epoch(dlpi_scheduler *f, uint64_t epoch) {
    f->epoch = epoch;
    f->in_epoch = 0;
    f->position = 0;
    f->alike = 0;
    f->skip_base = UINT64_MAX;
    memset(f->skip_bits, 0, sizeof f->skip_bits);
}

/* Return the binary logarithm of how many rows a run of a batch takes (count: the batch's rows). A
   run is at most DLPI_RUN_NS of work of the slowest fetching or decoding stage, by its recent cost
   per item. If one call makes the rows of a run, the run is as long as all workers leave it: what
   an item costs depends on that. A claim, a completion and a clock reading cost a
   quarter of a microsecond together, because each lets the loads and stores under way end. A run
   lies in one done word, and there are runs for all workers that can run at once. */
static uint32_t dlpi_run_shift(dlp_pipe *p, uint32_t count) {
    const dlpi_stage *st = p->work[0];
    uint64_t most;
    uint32_t shift = 0;
    int active = dlpi_active(p, st);
    uint32_t at_once = (uint32_t)(active < p->cpus ? active : p->cpus);
    if (p->run_shift_most == 0) return 0;
    if (st->w.dispatch == DLP_DISPATCH_BATCHES) at_once = 1; /* all runs go to one worker */
    if ((most = dlpi_item_cost(p, st, st->n_workers)) == 0) return 0;
    p->schedule.cost_ns = most;
    for (int k = 1; k < p->n_item_work; k++) {
        uint64_t ns;
        if (p->work[k]->dataset == NULL && (p->work[k]->held & DLPI_HELD_READS) == 0) continue;
        ns = dlpi_item_cost(p, p->work[k], p->work[k]->n_workers);
        if (ns == 0 && p->schedule.published < 64) return 0; /* later: hardly any are its */
        if (ns > most) most = ns;
    }
    if (most * count <= DLPI_RUN_NS) at_once = 1; /* not worth to be divided */
    if (dlpi_makes_runs(st)) at_once = (uint32_t)active, most = 1;
    while (shift < p->run_shift_most && (most << (shift + 1)) <= DLPI_RUN_NS &&
           (2u << shift) * at_once <= count)
        shift++;
    return shift;
}

static inline uint32_t dlpi_shift_time(void) { return (uint32_t)(dlpi_now_ns() >> 20); }

/* True if an item costs over 4 times more or less than when the run length was set. Only one worker
   of the first stage is asked. turn: whose turn it is. A worker that rests has its last cost. */
static bool dlpi_cost_moved(const dlp_pipe *p, uint64_t turn) {
    const dlpi_stage *st = p->work[0];
    uint64_t was = p->schedule.cost_ns, k = turn % (uint64_t)st->n_workers, ns;
    ns = DLPI_LOAD_RLX(&p->workers[(uint64_t)st->first_worker + k].block->item_ns); /* a hint */
    return ns != 0 && (ns / 4 > was || was / 4 > ns);
}

/* True if the run length must be computed again for batch b: for the first 64 batches, and for each
   64th. Between them it is computed if it is older than 4 ms: batches take long, and long runs
   would keep workers from them. Else a worker is asked whether its items' cost has moved. The
   question takes the worker's line away from it. This is worth it for each eighth batch, if batches
   have rows to share the cost, and for each 32nd if they do not. */
static inline bool dlpi_cost_due(const dlp_pipe *p, uint64_t b) {
    uint64_t every = p->batch_rows < DLPI_WORD_ROWS ? 32 : 8;
    if (b < 64 || (b & 63) == 0) return true;
    if ((b & (every - 1)) != 0) return false;
    return dlpi_shift_time() - p->schedule.shifted_at > 4 || dlpi_cost_moved(p, b / every);
}

/* Write the scheduler's present batch into slot s: its number, its epoch, its rows and its cell. c:
   rows of the global batch. */
static void dlpi_schedule_words(dlp_pipe *p, uint32_t s, uint64_t c) {
    dlpi_scheduler *f = &p->schedule;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t first;
    uint32_t count;
    dlpi_rank_rows(p, c, &first, &count);
    DLPI_STORE_RLX(&slot->sequence, f->published); /* subscribers look for it in any slot */
    slot->epoch = f->epoch;
    DLPI_STORE_RLX(&slot->in_epoch, f->in_epoch); /* statistics, too, by any thread */
    slot->position = f->position + first;
    slot->begins = f->position;
    slot->after = f->position + c;
    slot->count = count;
    slot->flags = 0;
    slot->cell = (uint16_t)dlpi_schedule_place(p, s, f->published);
    slot->seek_no = (uint16_t)f->seek_no;
    slot->failed = 0;
    slot->batch_fate = 0;
    if (slot->dirty) {
        memset(dlpi_slot_fate(p, s), 0, p->batch_rows * sizeof(uint32_t));
        memset((uint8_t *)slot + p->off_tries, 0, p->tries_bytes);
    }
    slot->dirty = 0;
}

/* Set up slot s for the scheduler's present batch, and publish the slot's header. c: rows of the
   global batch. alike: the source has nothing to write into the slot. */
static void dlpi_schedule_slot(dlp_pipe *p, uint32_t s, uint64_t c, bool alike) {
    dlpi_scheduler *f = &p->schedule;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t b = f->published;
    dlpi_schedule_words(p, s, c);
    if (!alike) p->source->fill(p, s);
    if (slot->count == 0) { /* nobody will work on it */
        dlpi_stage *last = p->work[p->n_item_work - 1];
        uint64_t *ready = &dlpi_stage_words_at(p, s, last)->ready;
        dlpi_gather_skip(ready, b); /* Y1 -> Y1 */
    }
    if (dlpi_cost_due(p, b)) {
        f->run_shift = (uint16_t)dlpi_run_shift(p, slot->count);
        f->shifted_at = dlpi_shift_time();
    }
    /* C1: scheduler only */
    dlpi_credit_take(&slot->used, p->used_at_first);
    dlpi_claim_publish(&slot->header,
                       dlpi_header(b, slot->count, slot->dirty, f->run_shift)); /* P1 -> P1 */
    DLPI_STORE_RLX(&p->order_ring[b & (p->ring - 1)], s); /* T1: ordered by the tail that follows */
}

/* Return a slot that the consumer and all others have given back, or DLPI_NO_SLOT. */
static uint32_t dlpi_schedule_free(dlp_pipe *p) {
    dlpi_scheduler *f = &p->schedule;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        uint32_t s = f->slot_turn;
        f->slot_turn = s + 1 == p->n_slots ? 0 : s + 1;
        if (dlpi_credit_held(&dlpi_slot_at(p, s)->used) != 0) continue; /* C1 <- C1 */
        if (p->bare || p->sharing->slot_free(p, s)) return s;
    }
    return DLPI_NO_SLOT;
}

/* End the scheduling: no batch will follow. code: 0, or the error. dlpi_schedule tells the consumer
   of the end once the batches before it are visible. */
static void dlpi_schedule_end(dlp_pipe *p, int code) {
    p->schedule.ended = 1;
    DLPI_STORE_RLX(&p->ctl->schedule_code, code); /* T1: ordered by end_of_input */
}

/* True if the scheduler must skip its present batch: in the resumed state the batch is delivered
   already, behind a gap. */
static inline bool dlpi_schedule_skips(const dlpi_scheduler *f) {
    uint64_t k = f->in_epoch - f->skip_base;
    if (f->in_epoch < f->skip_base || k >= DLPI_GAPS_MAX) return false;
    return (f->skip_bits[k / 8] >> (k % 8) & 1) != 0;
}

/* Move the scheduler past its present batch, which has so many rows. Returns DLP_OK, or an error of
   the source. */
static int dlpi_schedule_step(dlp_pipe *p, uint64_t rows) {
    p->schedule.position += rows;
    p->schedule.in_epoch++;
    return p->source->step(p);
}

/* Move the scheduler past batches that a resumed unordered pipe had delivered already. *rows: rows
   of the global batch that it stands before; 0 at the epoch's end. Returns DLP_OK, or an error of
   the source. */
static int dlpi_schedule_settle(dlp_pipe *p, uint64_t *rows) {
    int rc = p->source->rows(p, rows);
    while (rc == DLP_OK && *rows > 0 && dlpi_schedule_skips(&p->schedule)) {
        if ((rc = dlpi_schedule_step(p, *rows)) == DLP_OK) rc = p->source->rows(p, rows);
    }
    return rc;
}

/* Schedule the next batch, or move on to the next epoch; of batches that are alike, at most `most`
   are scheduled at once. Returns 1 if the scheduler moved on, and 0 if it cannot now (no slot is
   free, the source is not ready, or all is scheduled). Returns a negative code if the source
   failed. */
static int dlpi_schedule_some(dlp_pipe *p, uint64_t most) {
    dlpi_scheduler *f = &p->schedule;
    const uint64_t alike = f->alike;
    uint64_t rows = p->global_batch, n = 0;
    uint32_t s = DLPI_NO_SLOT;
    int rc;
    most = alike == 0 ? 1 : alike < most ? alike : most;
    if (alike == 0) {
        if (dlpi_epochs_over(p, f->epoch)) return dlpi_schedule_end(p, 0), 0;
        if (dlpi_epoch_held(p, f->epoch)) return 0;
        if ((rc = dlpi_schedule_settle(p, &rows)) != DLP_OK) return dlpi_schedule_end(p, rc), rc;
        if (rows != 0 && !p->source->ready(p, rows)) return 0;
    }
    if (rows != 0) {
        for (; n < most && (s = dlpi_schedule_free(p)) != DLPI_NO_SLOT; n++) {
            dlpi_schedule_slot(p, s, rows, alike > 0);
            f->published++, f->in_epoch++;
            f->position += rows;
        }
        if (n == 0 || alike > 0) return f->alike = alike - n, n > 0;
        rc = p->source->step(p);
        if (rc == DLP_OK) rc = dlpi_schedule_settle(p, &rows);
        if (rc != DLP_OK) return dlpi_schedule_end(p, rc), rc;
        if (rows != 0) return f->alike = p->source->alike(p), 1;
        dlpi_slot_at(p, s)->flags = DLP_BATCH_LAST; /* before the tail that shows the batch */
    }
    dlpi_schedule_epoch(f, f->epoch + 1);
    return 1;
}

/* Put the scheduler and the source at the place of a checked state. Returns DLP_OK, or an error of
   the source. */
DLPI_COLD static int dlpi_schedule_goto(dlp_pipe *p, const dlpi_state *to) {
    dlpi_scheduler *f = &p->schedule;
    uint32_t skipped = 0;
    dlpi_schedule_epoch(f, to->epoch);
    memcpy(f->skip_bits, to->gaps, sizeof f->skip_bits);
    for (uint32_t k = 0; k < DLPI_GAPS_MAX; k++) skipped += to->gaps[k / 8] >> k % 8 & 1u;
    if (skipped > 0) f->skip_base = to->batch;
    f->reach = dlpi_gaps_of(p, skipped); /* all that a state must tell apart fits its bitmap */
    return p->source->seek(p, to);
}

/* Return what ctl.end_of_input is once the scheduler has ended, with seek_no seeks followed. */
static inline uint32_t dlpi_scheduled_word(uint32_t seek_no) { return seek_no << 1 | 1u; }

static dlpi_mutex dlpi_place_lock = DLPI_MUTEX_INIT;

/* Go where the consumer has sought, if it has since the last call. A scheduler that failed stays
   where it is, and tells the consumer of its end again. */
static void dlpi_schedule_follow(dlp_pipe *p) {
    dlpi_scheduler *f = &p->schedule;
    dlpi_state to;
    uint64_t least = DLPI_LOAD_SEQ(&p->ctl->cancel); /* N1, B1 */
    int rc;
    if (DLPI_LIKELY(dlpi_generation_seek(least) == f->seek_no)) return;
    dlpi_mutex_lock(&dlpi_place_lock);
    to = p->place;
    f->seek_no = p->place_seek_no;
    dlpi_mutex_unlock(&dlpi_place_lock);
    if (!f->ended || DLPI_LOAD_RLX(&p->ctl->schedule_code) == 0) { /* our own store */
        f->ended = 0;
        dlpi_credit_close(&p->ctl->end_of_input, 0u); /* T1 -> T1 */
        if ((rc = dlpi_schedule_goto(p, &to)) == DLP_OK) return;
        dlpi_schedule_end(p, rc);
    }
    dlpi_credit_close(&p->ctl->end_of_input, dlpi_scheduled_word(f->seek_no)); /* T1 -> T1 */
    dlpi_wake_consumer(p->ctl, UINT64_MAX);
}

/* Schedule as many batches as may be under way, if there is room for `burst` of them at least, and
   wake workers. If one batch is under way, its slot is the first free one, whose lines are in a
   cache. Called by the consumer or by the scheduler's thread. Returns how many batches were
   scheduled. */
static uint64_t dlpi_schedule(dlp_pipe *p, uint64_t burst) {
    dlpi_scheduler *f = &p->schedule;
    uint64_t before = f->published, delivered, room, under_way;
    dlpi_schedule_follow(p);
    if (f->ended) return 0;
    if (!p->bare) p->source->ahead(p);
    delivered = dlpi_credit_seen(&p->ctl->delivered); /* V1 <- V1 */
    room = p->prefetch - (before - delivered);
    if (burst > room) return 0;
    if (!p->bare && !p->sharing->may_schedule(p)) return 0;
    dlpi_prefetch_write(&p->ctl->tail); /* workers have read it; it comes while slots are filled */
    under_way = before - dlpi_credit_seen(&p->ctl->base); /* V1 <- V1 */
    if (under_way + room > f->reach) room = under_way < f->reach ? f->reach - under_way : 0;
    if (f->reach == 1) f->slot_turn = 0;                    /* needs: parts */
    const uint64_t cancel = DLPI_LOAD_RLX(&p->ctl->cancel); /* N1: a hint; next drops the rest */
    if (dlpi_generation_seek(cancel) == f->seek_no && f->epoch < (cancel & DLPI_EPOCH_MASK))
        dlpi_schedule_epoch(f, cancel & DLPI_EPOCH_MASK);
    for (uint64_t end = before + room; f->published != end;) /* or an epoch's end, and no batch */
        if (dlpi_schedule_some(p, end - f->published) <= 0 || f->ended) break;
    if (f->published != before) {
        dlpi_credit_publish(&p->ctl->tail,
                            f->published); /* T1 -> T1: all slots above are published */
        dlpi_schedule_wake(p, f->published - before);
        if (p->world > 1) dlpi_schedule_empty(p, before);
        if (!p->bare) p->source->ahead(p);
    }
    if (p->barrier) dlpi_epoch_ask(p);
    if (f->ended) {
        /* T1 -> T1: after the tail */
        dlpi_credit_close(&p->ctl->end_of_input, dlpi_scheduled_word(f->seek_no));
        dlpi_wake_all(p);
    }
    return f->published - before;
}
