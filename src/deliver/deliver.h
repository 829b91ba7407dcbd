#pragma once
/* tests: model/model_slots, system/core/pipe_basic, system/core/pipe_deadline */
#include "deliver/pace.h"
#include "deliver/scheduler.h"
#include "deliver/state.h"
#include "work/tune.h"
#include "work/workers.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-deliver    NEXT AND RELEASE */

/* Return the last stage that works on slots. A batch that has left it is ready for the consumer. */
static dlpi_stage *dlpi_final(const dlp_pipe *p) { return p->work[p->n_work - 1]; }

/* True if batch b, in slot s, is ready for the consumer. False also if the slot has another
   batch. */
static bool dlpi_ready(const dlp_pipe *p, uint64_t b, uint32_t s) {
    /* Y1 <- Y1 */
    return dlpi_ready_is(dlpi_gather_ready(&dlpi_stage_words_at(p, s, dlpi_final(p))->ready), b);
}

/* True if the oldest batch, *b in slot *s, is ready. */
DLPI_INLINE bool dlpi_take_oldest(const dlp_pipe *p, uint64_t *b, uint32_t *s) {
    *b = p->base;
    if (*b == dlpi_credit_seen(&p->ctl->tail)) return false; /* T1 <- T1 */
    return dlpi_ready(p, *b, *s = dlpi_slot_of(p, *b));
}

/* Find the batch to deliver now: the next one, or in an unordered pipe any that is ready. *b, *s:
   its number and slot. Returns DLP_OK, DLP_EMPTY if none is ready, or DLP_END if none will come. */
DLPI_NOINLINE static int dlpi_take(dlp_pipe *p, uint64_t *b, uint32_t *s) {
    uint32_t over = dlpi_credit_closed(&p->ctl->end_of_input); /* T1 <- T1: before tail */
    uint64_t tail = dlpi_credit_seen(&p->ctl->tail);           /* T1 <- T1 */
    if (p->base == tail) return over == dlpi_scheduled_word(p->seek_no) ? DLP_END : DLP_EMPTY;
    *b = p->base, *s = dlpi_slot_of(p, *b);
    if (dlpi_ready(p, *b, *s)) return DLP_OK;
    if (!p->d.unordered) return DLP_EMPTY;
    const uint64_t generation = dlpi_slot_generation(dlpi_slot_at(p, *s));
    while (++*b != tail) {
        if (p->taken[*b & (p->ring - 1)]) continue;
        *s = dlpi_slot_of(p, *b);
        if (dlpi_slot_generation(dlpi_slot_at(p, *s)) != generation) return DLP_EMPTY;
        if (dlpi_ready(p, *b, *s)) return DLP_OK;
    }
    return DLP_EMPTY;
}

/* Count batch b as taken by the consumer, and move base past all taken batches. flags: those of the
   batch. Returns the flags that it is delivered with: in an unordered pipe DLP_BATCH_LAST goes to
   the last one that is taken. */
DLPI_INLINE uint32_t dlpi_taken(dlp_pipe *p, uint64_t b, uint32_t flags) {
    if (flags & DLP_BATCH_LAST) p->last_sequence = b;
    if (b == p->base) {
        p->base++;
    } else {
        DLPI_STORE_RLX(&p->taken[b & (p->ring - 1)], (uint8_t)1); /* statistics read it */
    }
    for (; p->taken[p->base & (p->ring - 1)]; p->base++)
        DLPI_STORE_RLX(&p->taken[p->base & (p->ring - 1)], (uint8_t)0);
    dlpi_credit_publish_quiet(&p->ctl->base, p->base); /* V1 -> V1 */
    dlpi_scheduler_delivered(p);
    if (p->last_sequence != UINT64_MAX && p->base > p->last_sequence) {
        p->last_sequence = UINT64_MAX;
        return flags | DLP_BATCH_LAST;
    }
    return flags & ~(uint32_t)DLP_BATCH_LAST;
}

/* Release slot s: give it back to the scheduler, by its word `used` (C1). */
DLPI_INLINE void dlpi_slot_release(dlp_pipe *p, uint32_t s) {
    if (!p->bare) p->sink->freed(p, s);
    dlpi_scheduler_credit(p, &dlpi_slot_at(p, s)->used);
}

/* Drop batch b, in slot s: count it as taken, but do not deliver it, and release its slot. flags:
   those of the batch. */
DLPI_COLD static void dlpi_drop(dlp_pipe *p, uint64_t b, uint32_t s, uint32_t flags) {
    dlpi_taken(p, b, flags);
    dlpi_slot_release(p, s);
}

/* Book that the consumer now holds batch (or view) v, p->out[v], whose fields have so many bytes:
   count it as lent, and note its epoch. */
DLPI_INLINE void dlpi_delivered(dlp_pipe *p, uint32_t v, uint64_t bytes) {
    const dlp_batch *batch = &p->out[v];
    dlpi_ctl *ctl = p->ctl;
    p->epoch_now = batch->epoch;
    p->epoch_open = (batch->flags & DLP_BATCH_LAST) == 0;
    p->lent[v] = p->epoch_open ? 1 : 2; /* the batch itself may be written over */
    p->n_lent++;
    if (!p->epoch_open && p->d.epoch_end) p->epoch_end_due = DLPI_DUE_END;
    DLPI_STORE_RLX(&ctl->held, p->n_lent); /* statistics, here and below */
    DLPI_STORE_RLX(&ctl->epoch, batch->epoch);
    dlpi_bump(&ctl->items, batch->count);
    dlpi_bump(&ctl->bytes, bytes);
}

/* Return the number of the slot, or view, of a batch that the consumer holds. Returns DLPI_NO_SLOT
   if `batch` is no such batch. */
static uint32_t dlpi_lent_slot(const dlp_pipe *p, const dlp_batch *batch) {
    uintptr_t at = (uintptr_t)batch - (uintptr_t)p->out, s = at / sizeof *batch;
    return s < p->n_out && at % sizeof *batch == 0 && p->lent[s] ? (uint32_t)s : DLPI_NO_SLOT;
}

/* Give batch b, in slot s, to the consumer: fill its view *out, note the batch for states and
   statistics, and schedule the next batches. */
DLPI_INLINE void dlpi_deliver(dlp_pipe *p, uint64_t b, uint32_t s, dlp_batch **out) {
    dlp_batch *batch = &p->out[s];
    dlp_tensor *fields = p->out_fields + (size_t)s * p->batches.n;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint32_t ahead = s + 2 < p->n_slots ? s + 2 : s + 2 - p->n_slots; /* if they go in turn */
    uint64_t bytes = dlpi_batch_view_to(p, s, batch, fields, (uint8_t *)slot + p->slot.valid);
    if (p->prefetch > 1 && dlpi_slot_in_line(p)) { /* to read only: its worker may be at it still */
        const uint8_t *cell = dlpi_area_at(p, DLPI_REC_CELLS, ahead);
        DLPI_PREFETCH(&dlpi_slot_at(p, ahead)->header);
        for (uint32_t f = 0; f < p->batches.n; f++) DLPI_PREFETCH(cell + p->batches.at[f].offset);
    }
    batch->flags = dlpi_taken(p, b, batch->flags);
    for (uint32_t f = 0; !p->bare && f < p->batches.n; f++) p->sink->data(p, s, f, 0, &fields[f]);
    dlpi_gaps_note(p, slot->in_epoch, (batch->flags & DLP_BATCH_LAST) != 0);
    dlpi_state_note(p, b, s, slot, batch->flags);
    dlpi_delivered(p, s, bytes);
    dlpi_schedule_inline(p, p->pace.burst);
    *out = batch;
}

/* Return the error of the pipe that is due now that no batch is there, or DLP_OK. over: no batch
   will come any more. */
static inline int dlpi_next_error(dlp_pipe *p, bool over) {
    return dlpi_error_due(p->ctl, over) ? dlpi_pipe_fail(p, &p->ctl->error) : DLP_OK;
}

/* Add to *e what worker w works on now: its stage, its number, and its item. index: the item's, as
   read from the worker's block; UINT64_MAX: it has none. */
static void dlpi_describe_current(const dlpi_worker *w, uint64_t index, dlp_error *e) {
    dlpi_copy_text(e->stage, sizeof e->stage, w->st->name);
    e->worker = w->id;
    if (index == UINT64_MAX || !dlpi_is_item_stage(w->p, w->st)) return;
    dlpi_error_item(e, index, DLPI_LOAD_RLX(&w->block->current_epoch), /* for people */
                    DLPI_LOAD_RLX(&w->block->current_position));
}

/* Look for a callback of a thread that is past its deadline. Returns DLP_OK if there is none, or
   DLP_ERR_DEADLINE, which is then the pipe's error. A callback that ran when the process was
   stopped gets its whole time again from then on. The supervisor looks after the callbacks of
   processes (dlpi_procs_deadlines). */
DLPI_COLD static int dlpi_threads_deadline(dlp_pipe *p, uint64_t now) {
    for (int i = 0; i < p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        const dlpi_table_row *row = dlpi_row_numbered(p, DLPI_LOAD_RLX(&w->block->op)); /* X4 */
        const int32_t limit_ms = w->watched ? dlpi_limit_ms(w->st, row) : 0;
        const uint64_t limit = (uint64_t)limit_ms * 1000000u;
        uint64_t since = DLPI_LOAD_RLX(&w->block->since_ns),
                 index = DLPI_LOAD_RLX(&w->block->current);
        dlp_error e;
        /* an inline callback has returned: we are here; of processes the supervisor takes care */
        if (limit == 0) continue;
        if (DLPI_LOAD_RLX(&w->block->state) != DLP_WORKER_BUSY) continue;
        if (since < p->stood_ns) since = p->stood_ns;
        if (index == UINT64_MAX || now < since + limit) continue;
        if (w->st->timed != 0 && w->late_ns != since) { /* X4: it may be that of another row */
            w->late_ns = since;
            continue;
        }
        dlpi_error_set(&e, DLP_ERR_DEADLINE, "",
                       "the callback runs for %" PRIu64 " ms, its deadline_ms is %d",
                       (now - since) / 1000000u, limit_ms);
        dlpi_describe_current(w, index, &e);
        if (row != NULL) dlpi_copy_text(e.stage, sizeof e.stage, row->name);
        return dlpi_pipe_fail(p, &e);
    }
    return DLP_OK;
}

/* Return the worker whose present work takes the longest; NULL: none is at work. A reader that
   waits for others is not at work. */
static const dlpi_worker *dlpi_oldest_work(const dlp_pipe *p, uint64_t now) {
    const dlpi_worker *oldest = NULL;
    for (int i = 0; i < p->n_workers; i++) {
        const dlpi_worker *w = &p->workers[i];
        const uint64_t since = DLPI_LOAD_RLX(&w->block->since_ns); /* for people, here and below */
        if (DLPI_LOAD_RLX(&w->block->state) != DLP_WORKER_BUSY || since >= now) continue;
        if (DLPI_LOAD_RLX(&w->block->current) == UINT64_MAX) continue;
        if (w->st->dataset != NULL && w->st->dataset->reader != NULL) continue;
        oldest = w;
        now = since;
    }
    return oldest;
}

/* Warn that no batch has come for so long, and which work takes the longest. */
DLPI_COLD static void dlpi_stall_warn(dlp_pipe *p, uint64_t ns, uint64_t now) {
    const dlpi_worker *w = dlpi_oldest_work(p, now);
    const uint64_t ms = ns / 1000000u;
    p->warnings.stall_said = true;
    if (w == NULL)
        dlpi_warn(p,
                  "no batch for %" PRIu64 " ms, and no worker is at work; dlp_pipe_explain says "
                  "what is missing",
                  ms);
    else
        dlpi_warn(p,
                  "no batch for %" PRIu64 " ms: worker %d of \"%s\" (thread %d) is at %s %" PRIu64
                  " for %" PRIu64 " ms; set deadline_ms, or find out what it waits for",
                  ms, w->id, w->st->name, DLPI_LOAD_RLX(&w->block->tid),
                  dlpi_is_item_stage(p, w->st) ? "item" : "batch",
                  DLPI_LOAD_RLX(&w->block->current),
                  (now - DLPI_LOAD_RLX(&w->block->since_ns)) / 1000000u);
}

/* Look whether next has waited stall_ms for the same batch. A time in which the process was stopped
   does not count. */
static void dlpi_stall_look(dlp_pipe *p, uint64_t now) {
    dlpi_warnings *k = &p->warnings;
    const uint64_t at = p->base + DLPI_LOAD_RLX(&p->ctl->views);
    const uint64_t ms = p->d.stall_ms != 0 ? (uint64_t)p->d.stall_ms : 60000;
    if (k->stall_said || p->d.stall_ms < 0) return;
    if (k->stall_ns == 0 || at != k->stall_at || k->stall_ns < p->stood_ns) {
        k->stall_at = at;
        k->stall_ns = now;
    } else if (now - k->stall_ns >= ms * 1000000u) {
        dlpi_stall_warn(p, now - k->stall_ns, now);
    }
}

/* Check that the worker processes are still there. Returns DLP_OK, or what is wrong. If the call of
   next does not wait (now >= until), it is enough to look from time to time. */
static int dlpi_next_beside(dlp_pipe *p, uint64_t now, uint64_t until) {
    if (now >= until && now - p->looked_ns < DLPI_SLEEP_NS / 10) return DLP_OK;
    p->looked_ns = now;
    return p->beside->look(p);
}

/* ---- the consumer waits ---- */

typedef struct dlpi_next_wait {
    dlp_pipe *p;
    uint64_t until, *b; /* until: time in ns; UINT64_MAX: no limit; 0: do not wait */
    uint32_t *s;        /* result: batch *b is in slot *s */
    int rc;             /* result of the last look; DLP_EMPTY: wait on */
    uint64_t due;       /* time at which the last sleep should long have been over; 0: none yet */
} dlpi_next_wait;

/* Take a batch, or do the work that must come before it. Returns DLP_OK with *b and *s set,
   DLP_EMPTY if there is neither batch nor work, or another code that ends the wait. rc: what
   dlpi_take has just returned; until: as in dlpi_next_wait. Errors come after what is ready, and
   before more is scheduled. An epoch begins before inline stages run, for it may change what they
   call. Inline stages run before any sleep, for nobody else does their work. What the source waits
   for may have come while the consumer was awake, and woken nobody. */
DLPI_INLINE int dlpi_next_try(dlp_pipe *p, uint64_t until, uint64_t *b, uint32_t *s, int rc) {
    for (; rc == DLP_EMPTY; rc = dlpi_take(p, b, s)) {
        if (dlpi_stopped(p)) return DLP_STOPPED;
        if ((rc = dlpi_next_error(p, false)) != DLP_OK) return rc; /* E1 <- E1 */
        dlpi_schedule_inline(p, 1);
        if (dlpi_epoch_due(p)) {
            if ((rc = dlpi_epoch_begin(p)) != DLP_OK) return rc;
        } else if (!dlpi_inline_steps(p)) {
            return DLP_EMPTY;
        } else if (until != UINT64_MAX && dlpi_now_ns() >= until && /* it may be ready since */
                   dlpi_take(p, b, s) == DLP_EMPTY) {
            return DLP_TIMEOUT;
        }
    }
    return rc;
}

/* Look for a batch, and work for it (who: a dlpi_next_wait). Returns true if the wait is over; rc
   says why. */
static bool dlpi_next_look(void *who) {
    dlpi_next_wait *k = who;
    if (k->rc == DLP_EMPTY)
        k->rc = dlpi_next_try(k->p, k->until, k->b, k->s, dlpi_take(k->p, k->b, k->s));
    return k->rc != DLP_EMPTY;
}

/* Check that the processes live, and that no callback is past its deadline. Returns for how long a
   sleep may last (ns). Returns 0 if the wait is over, and rc says why, or if there is work. If the
   sleep before lasted much longer, the process or its machine was stopped. */
DLPI_COLD static uint64_t dlpi_next_patience(void *who) {
    dlpi_next_wait *k = who;
    dlp_pipe *p = k->p;
    uint64_t now = dlpi_now_ns(), ns = DLPI_SLEEP_NS;
    if (k->due != 0 && now > k->due) p->stood_ns = now;
    dlpi_stall_look(p, now);
    k->rc = dlpi_next_beside(p, now, k->until);
    if (k->rc == DLP_OK && now >= k->until) k->rc = DLP_TIMEOUT;
    if (k->rc == DLP_OK) k->rc = dlpi_threads_deadline(p, now);
    if (k->rc != DLP_OK) return 0;
    k->rc = DLP_EMPTY;
    if (k->until - now < ns) ns = k->until - now;
    if (p->deadline_ns != 0 && p->deadline_ns / 4 < ns) ns = p->deadline_ns / 4;
    for (int i = 0; i < p->n_workers; i++)
        if (!p->workers[i].started) {
            uint64_t due = dlpi_worker_due(&p->workers[i]);
            if (due < ns) ns = due;
        }
    k->due = now + 2 * ns + 10000000u;
    return ns;
}

/* Prepare the consumer's sleep: wake workers that were left asleep, and let the tuner look. Returns
   for how long the sleep may last (ns), or 0, as dlpi_next_patience does. */
static uint64_t dlpi_next_rest(void *who) {
    dlp_pipe *p = ((dlpi_next_wait *)who)->p;
    dlpi_wake_put_off(p);
    p->awake.calls += DLPI_AWAKE_CALLS / DLPI_ASLEEP_CALLS;
    if (DLPI_LOAD_RLX(&p->ctl->source_waits) != 0) p->pace.source_waited = true; /* for the books */
    dlpi_tune(p, dlpi_now_ns());                                                 /* needs: tune */
    return dlpi_next_patience(who);
}

/* How the consumer waits. dlpi_next_look is its last look before a sleep, too. Inline work may
   begin there while the mask is set. Then a waker may wake the consumer in vain, once. */
static const dlpi_wait_ops dlpi_next_waits = {dlpi_next_look, dlpi_next_rest, NULL, NULL};

/* Wait until dlpi_take finds a batch, or the wait is over. Returns DLP_OK with *k.b and *k.s set,
   or why there is no batch, such as DLP_TIMEOUT. */
DLPI_NOINLINE static int dlpi_next_await(dlpi_next_wait k) {
    dlp_pipe *p = k.p;
    uint64_t want = p->d.unordered ? UINT64_MAX : p->base + 1;
    const uint32_t cpu = (uint32_t)dlpi_cpu_here() + 1;
    bool longer =
        dlpi_keep_awake(p) != 0 && DLPI_LOAD_RLX(&p->ctl->source_waits) == 0; /* our own */
    const bool beside = dlpi_awake_beside(p, NULL, dlpi_awake_core(cpu));
    const bool crowded = dlpi_awake_crowded(p);
    if (DLPI_LOAD_RLX(&p->ctl->consumer_cpu) != cpu)
        DLPI_STORE_RLX(&p->ctl->consumer_cpu, cpu); /* W2 */
    if (k.until == 0 || (longer && crowded && !beside) ||
        !dlpi_wait_awake(dlpi_next_look, &k, &p->wait, longer, beside || crowded, k.until))
        dlpi_wait_asleep(&dlpi_next_waits, &k, &p->ctl->consumer, want);
    return k.rc;
}

/* Take the next batch, or wait for one, and book the time that the consumer waits. rc: what
   dlpi_take returned, not DLP_OK. Returns DLP_OK with *b and *s set, or why there is no batch. */
DLPI_NOINLINE static int dlpi_next_take(dlp_pipe *p, int timeout_ms, int rc, uint64_t *b,
                                        uint32_t *s) {
    uint64_t from = dlpi_consumer_waits(p, timeout_ms < 0 && !p->barrier), until = UINT64_MAX;
    if (timeout_ms >= 0) until = timeout_ms > 0 ? from + (uint64_t)timeout_ms * 1000000u : 0;
    if (rc == DLP_EMPTY) rc = dlpi_next_try(p, until, b, s, rc);
    if (rc == DLP_EMPTY) rc = dlpi_next_await((dlpi_next_wait){p, until, b, s, rc, 0});
    if (rc == DLP_END && dlpi_next_error(p, true) != DLP_OK) rc = p->err.code;
    if (from != 0) dlpi_consumer_waited(p, from, rc == DLP_OK);
    return rc;
}

/* Leave an epoch for the one after it. Batches of the epoch that are under way are cancelled.
   Called by the consumer. */
DLPI_COLD static void dlpi_epoch_leave(dlp_pipe *p, uint64_t epoch) {
    p->epoch_open = 0;
    p->last_sequence = UINT64_MAX;
    dlpi_gaps_clear(p, 0);
    p->after.spot = dlpi_spot_behind(epoch, 0, 0, true);
    DLPI_STORE_SEQ(&p->ctl->cancel, dlpi_generation(p->seek_no, epoch + 1)); /* N1 -> N1 */
    dlpi_wake_all(p);
}

/* Go on at the place of a checked state: cancel all batches under way, and let the scheduler
   follow. Called by the consumer. */
DLPI_COLD static void dlpi_seek(dlp_pipe *p, const dlpi_state *s) {
    dlpi_state to;
    p->seek_no = (p->seek_no + 1) & 0xffffu;
    p->seeks++;
    to = dlpi_state_books(p, s);
    dlpi_mutex_lock(&dlpi_place_lock);
    p->place = to;
    p->place_seek_no = p->seek_no;
    dlpi_mutex_unlock(&dlpi_place_lock);
    DLPI_STORE_SEQ(&p->ctl->cancel, dlpi_generation(p->seek_no, 0)); /* N1 -> N1 */
    dlpi_wake_all(p);
    dlpi_schedule_inline(p, 1);
}

/* Take the next batch that the consumer shall get, or wait for it, and drop cancelled ones. Returns
   DLP_OK with *b and *s set, or why there is no batch. If batch *b has failed, the code of its
   error is returned; dlpi_next_fails must then make the error the pipe's. */
DLPI_INLINE int dlpi_next_slot(dlp_pipe *p, int timeout_ms, uint64_t *b, uint32_t *s) {
    for (;;) {
        dlpi_bslot *slot;
        int rc = dlpi_take_oldest(p, b, s) ? DLP_OK : dlpi_take(p, b, s);
        if (rc == DLP_OK) /* dlpi_deliver schedules; else dlpi_next_try does */
            dlpi_pace_call(p);
        else if ((rc = dlpi_next_take(p, timeout_ms, rc, b, s)) != DLP_OK)
            return rc;
        if (dlpi_stopped(p)) return DLP_STOPPED; /* a callback that saw it may have done nothing */
        slot = dlpi_slot_at(p, *s);
        if (dlpi_cancelled(p->ctl, slot)) { /* of an epoch, or a place, that was left */
            dlpi_drop(p, *b, *s, slot->flags);
            continue;
        }
        if (dlpi_slot_failed(p, *s)) {
            dlp_error e;
            dlpi_slot_error(p, *s, &e);
            return e.code;
        }
        p->seeks = 0;         /* none from before a seek is left */
        dlpi_unpoison(p, *s); /* it may have been another process */
        if (DLPI_LOAD_RLX(&p->ctl->first_ns) == 0)
            DLPI_STORE_RLX(&p->ctl->first_ns, dlpi_now_ns() - p->ctl->started_ns);
        return DLP_OK;
    }
}

/* Note why there is no batch (rc). If the reason is that the batch in slot s has failed, its error
   is the pipe's from now on. Does nothing if rc is no error, or if the pipe has one. */
DLPI_COLD static void dlpi_next_fails(dlp_pipe *p, int rc, uint32_t s) {
    dlp_error e;
    if (rc >= 0 || p->err.code != 0) return;
    dlpi_slot_error(p, s, &e);
    dlpi_pipe_fail(p, &e);
}

/* Get the next batch from the lender, for dlpi_next, and note the batch for states and statistics.
   Returns DLP_OK with *out set, or why there is no batch, as dlpi_next does. */
DLPI_NOINLINE static int dlpi_next_lender(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    dlpi_handed handed;
    int rc = p->lender->next(p, &handed, timeout_ms);
    if (rc != DLP_OK) return rc;
    *out = &p->out[handed.v];
    dlpi_bump(&p->ctl->views, 1);
    dlpi_delivered(p, handed.v, handed.bytes);
    p->after.spot = dlpi_spot_behind((*out)->epoch, (*out)->in_epoch, handed.after,
                                     ((*out)->flags & DLP_BATCH_LAST) != 0);
    return DLP_OK;
}

/* Get the next batch, or wait for it for timeout_ms (dlp_pipe_next_timeout). Returns DLP_OK with
   *out set, or why there is no batch: an error, or DLP_END, DLP_TIMEOUT, DLP_STOPPED or
   DLP_EPOCH_END. */
DLPI_INLINE int dlpi_next(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    uint64_t b = 0;
    uint32_t s = 0;
    int rc;
    if (p->lends) return dlpi_next_lender(p, out, timeout_ms);
    do {
        rc = dlpi_next_slot(p, timeout_ms, &b, &s);
        if (dlpi_source_asks(p)) rc = p->source->agreed(p, rc, b, s);
    } while (rc == DLPI_NEXT_EPOCH);
    if (rc == DLP_OK)
        dlpi_deliver(p, b, s, out);
    else
        dlpi_next_fails(p, rc, s);
    return rc;
}
