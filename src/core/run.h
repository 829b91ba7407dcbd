#pragma once
#include "core/claim.h"
#include "core/debug.h"
#include "core/open_end.h"
#include "base/cpus.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-run        CALLBACKS, FAILURES, CLOCKS */

static uint32_t dlpi_hist_bucket(uint64_t ns) { /* four to an octave */
    uint32_t log, sub;
    if (ns < 4) return (uint32_t)ns;
    log = 63u - (uint32_t)__builtin_clzll(ns);
    sub = (uint32_t)(ns >> (log - 2)) & 3u;
    log = (log - 1) * 4u + sub;
    return log < DLPI_HIST ? log : DLPI_HIST - 1;
}
static uint64_t dlpi_hist_value(uint32_t bucket) { /* the bucket's middle */
    uint32_t log = bucket / 4u + 1u, sub = bucket % 4u;
    if (bucket < 4) return bucket;
    return (UINT64_C(4) + sub) * (UINT64_C(1) << (log - 2)) + (UINT64_C(1) << (log - 2)) / 2;
}

static void dlpi_trace_put(dlpi_worker *w, const dlp_trace_event *e) {
    uint64_t head = DLPI_LOAD_RLX(&w->block->trace_head);
    uint64_t *to = (uint64_t *)(void *)&w->trace[head % w->p->trace_events];
    uint64_t from[sizeof *e / 8];
    memcpy(from, e, sizeof *e);
    for (size_t i = 0; i < sizeof *e / 8; i++)
        /* G1 -> G1: whoever sees a word of it sees the head before it */
        DLPI_STORE_REL(&to[i], from[i]);
    DLPI_STORE_REL(&w->block->trace_head, head + 1); /* G1 -> G1 */
}

static void dlpi_trace_flush(dlpi_worker *w) {
    if (w->event.kind != 0 && w->event.end_ns > w->event.begin_ns) dlpi_trace_put(w, &w->event);
    w->event.kind = 0;
}

/* A stretch [from, to) of one kind; work on the same batch without a gap becomes one event. */
static void dlpi_trace_add(dlpi_worker *w, int kind, uint64_t from, uint64_t to, uint64_t b,
                           uint64_t epoch, uint32_t items) {
    dlp_trace_event *e = &w->event;
    uint64_t zero = w->p->ctl->started_ns;
    if (e->kind == kind && e->sequence == b && e->end_ns + zero == from &&
        e->items + items < 65536u) {
        e->end_ns = to - zero;
        e->items = (uint16_t)(e->items + items);
        return;
    }
    dlpi_trace_flush(w);
    e->begin_ns = from - zero;
    e->end_ns = to - zero;
    e->sequence = b;
    e->epoch = (uint32_t)epoch;
    e->kind = (uint16_t)kind;
    e->items = (uint16_t)(items < 65536u ? items : 65535u);
}

/* The wait ends now. Booked before the work that ended it, so that a lane stays in order. */
static void dlpi_wait_over(dlpi_worker *w, uint64_t now) {
    uint64_t from = w->wait_ns;
    const int kind = w->blocked ? DLP_TRACE_BLOCKED : DLP_TRACE_STARVED;
    w->wait_ns = 0;
    if (from == 0 || now <= from) return;
    dlpi_bump(w->blocked ? &w->block->blocked_ns : &w->block->starved_ns, now - from);
    if (now - from > 20000)
        dlpi_trace_add(w, kind, from, now, w->event.sequence, w->event.epoch, 0);
}

/* One clock reading for every clock_every units, so that it costs under a fortieth of the work. */
static void dlpi_clock_in(dlpi_worker *w) {
    if (w->last_ns != 0 || *w->untimed != 0) return;
    w->last_ns = dlpi_now_ns();
    dlpi_wait_over(w, w->last_ns);
    w->units_untimed = w->items_untimed = 0;
    w->until_clock = w->clock_every;
    DLPI_STORE_RLX(&w->block->since_ns, w->last_ns);
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_BUSY);
}

/* Add what the calling thread, one of the worker's, has used of the cores since it was here last,
   and how long it waited for one. The second is asked of a file, so not at each short sleep. */
static void dlpi_cpu_note(dlpi_worker *w, dlpi_cpu *cpu, uint64_t now) {
    struct timespec t;
    uint64_t ns, sched[2];
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0) {
        ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        dlpi_bump(&w->block->cpu_ns, ns - cpu->used_ns);
        cpu->used_ns = ns;
    }
    if (now - cpu->noted_ns <= DLPI_CPU_NOTE_NS) return;
    cpu->noted_ns = now;
    if (!dlpi_read_numbers("/proc/thread-self/schedstat", NULL, sched, 2)) return;
    dlpi_bump(&w->block->core_wait_ns, sched[1] - cpu->waited_ns);
    cpu->waited_ns = sched[1];
}

/* Of the time that work took: how long it was ready to run and others had the cores. 0 of what
   hardly computes: on a busy machine that gets its core late each time that it wakes up, and is
   done sooner with more workers all the same. */
static uint64_t dlpi_core_wait(uint64_t took, uint64_t cpu, uint64_t wait) {
    uint64_t most = took > cpu ? took - cpu : 0;
    if (wait > most) wait = most;
    return cpu >= (took - wait) / 10 * 3 ? wait : 0;
}

static void dlpi_clock_out(dlpi_worker *w, uint64_t b, uint64_t epoch, uint32_t items) {
    dlpi_worker_block *block = w->block;
    uint64_t now, ns, each, average;
    if (w->last_ns == 0) return; /* an inline worker in a call that is not timed */
    w->items_untimed += items;
    w->units_untimed++;
    if (--w->until_clock > 0) return;
    now = dlpi_now_ns();
    ns = now - w->last_ns;
    each = w->items_untimed ? ns / w->items_untimed : ns;
    average = DLPI_LOAD_RLX(&block->item_ns);
    average = average == 0 ? each : (average * 7 + each) / 8;
    if (w->items_untimed > 0) /* what was not run says nothing of what an item costs */
        DLPI_STORE_RLX(&block->item_ns, average ? average : 1);
    DLPI_STORE_RLX(&block->hist[dlpi_hist_bucket(each)],
                   block->hist[dlpi_hist_bucket(each)] + w->items_untimed);
    if (each > block->max_ns) DLPI_STORE_RLX(&block->max_ns, each);
    dlpi_bump(&block->busy_ns, w->started ? ns : ns * w->p->call_clock_every);
    dlpi_trace_add(w, DLP_TRACE_WORK, w->last_ns, now, b, epoch, w->items_untimed);
    ns /= w->units_untimed;
    w->clock_every = ns >= 1000 ? 1 : ns >= 500 ? 2 : ns >= 125 ? 8 : 32;
    w->until_clock = w->clock_every;
    w->units_untimed = w->items_untimed = 0;
    w->last_ns = now;
    DLPI_STORE_RLX(&block->since_ns, now);
    if (w->started && w->st->n_workers == 1) dlpi_awake_here(&w->waiters->cpu);
    if (w->started && now - w->cpu.noted_ns > DLPI_CPU_NOTE_NS) /* one that never rests, too */
        dlpi_cpu_note(w, &w->cpu, now);
}

/* The worker stops working: close the books on what was not timed yet. */
static void dlpi_clock_stop(dlpi_worker *w) {
    if (w->last_ns == 0) return;
    if (w->units_untimed > 0) {
        w->until_clock = 1;
        w->units_untimed--; /* counted again by clock_out */
        dlpi_clock_out(w, w->event.sequence, w->event.epoch, 0);
    }
    w->last_ns = 0;
}

static void dlpi_skip_note(const dlpi_worker *w, int code, uint64_t new_index) {
    dlp_error e;
    dlpi_describe_item(w, code, &e);
    if (code == DLP_SKIP) e.code = DLP_SKIP;
    dlpi_skip_put(w->p->ctl, w->st->id, &e, e.code, new_index);
}

/* The one store that changes a row's fate. All that follows from it comes after it. */
static inline void dlpi_rec_set(const dlp_pipe *p, uint32_t s, uint32_t row, uint32_t rec) {
    DLPI_STORE_REL(&dlpi_slot_rec(p, s)[row], rec); /* X1: a crash cuts before or after it */
}

/* A row that is left out has zeros. Each stage that comes by clears it once more: the worker that
   left it out may have died before it was clear, a batch map may have changed it since. */
static void dlpi_row_clear(const dlp_pipe *p, const dlpi_unit *t, uint32_t row) {
    uint8_t *cell = dlpi_item_cell(p, t->slot);
    if (p->cells == DLPI_CELLS_STAY) {
        dlpi_slot_at(p, t->slot)->cell = (uint16_t)p->n_cells; /* of zeros; ordered by done */
        return;
    }
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        memset(cell + d->offset + row * d->row_bytes, 0, d->row_bytes);
        if (d->f.ragged) dlpi_slot_lengths(p, t->slot, f, 1)[row] = 0;
    }
}

static void dlpi_row_leave(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t bits) {
    const dlp_pipe *p = w->p;
    uint32_t repl = dlpi_rec_repl(dlpi_slot_rec(p, t->slot)[row]); /* its index goes by it */
    DLPI_STORE_RLX(&dlpi_slot_at(p, t->slot)->dirty, 1u);          /* ordered by done */
    dlpi_rec_set(p, t->slot, row, dlpi_rec(DLPI_ROW_LEFT, 0, repl) | bits);
    dlpi_row_clear(p, t, row);
}

/* The epoch ended before this row, or at it. */
static void dlpi_row_end(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    DLPI_STORE_RLX(&dlpi_slot_at(w->p, t->slot)->dirty, 1u); /* ordered by done */
    dlpi_rec_set(w->p, t->slot, row, DLPI_ROW_END);
}

enum { DLPI_ROW_DONE, DLPI_ROW_AGAIN, DLPI_ROW_LATER, DLPI_ROW_REDO };

static uint64_t dlpi_backoff_ns(const dlpi_stage *st, uint32_t tries) {
    uint32_t doublings = tries > 7 ? 6 : tries - 1;
    return (uint64_t)st->w.retry_backoff_ms * 1000000u << doublings;
}

/* The row waits, until due_ns, for its next attempt. A worker that has several rows at once parks
   them here, too: what is tried again, and how, is the same. */
static void dlpi_park(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint64_t due_ns) {
    dlpi_parked *k = &w->parked[w->n_parked++]; /* room is kept: a worker without claims nothing */
    if (w->at_once == NULL)                     /* else that is of a row which is out */
        DLPI_STORE_RLX(&w->block->running,
                       UINT64_C(0)); /* X2: it only waits, and is not to blame */
    k->due_ns = due_ns;
    k->gen = t->b;
    k->slot = t->slot;
    k->row = row;
}

static int dlpi_row_retry(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t tries) {
    dlpi_bump(&w->block->retried, 1);
    if (w->st->w.retry_backoff_ms == 0)
        return dlpi_writes_first(w) || w->st->w.idempotent ? DLPI_ROW_AGAIN : DLPI_ROW_REDO;
    dlpi_park(w, t, row, dlpi_now_ns() + dlpi_backoff_ns(w->st, tries));
    return DLPI_ROW_LATER;
}

static int dlpi_row_raise(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    dlp_error e;
    dlpi_describe_item(w, code, &e);
    if (code == DLP_ERR_BUDGET) dlpi_error_first(w->p->ctl, &e);
    dlpi_slot_fail(dlpi_slot_at(w->p, t->slot), (uint32_t)w->global, &e);
    dlpi_row_leave(w, t, row, DLPI_REC_RAISED);
    return DLPI_ROW_DONE;
}

/* Nothing is left to take a row's place: say so, and what was wrong with the last. */
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

/* Another item takes the row: the next replacement for its position. */
static int dlpi_row_replace(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    const dlp_pipe *p = w->p;
    uint64_t *index = dlpi_slot_index(p, t->slot), other;
    uint32_t rec = dlpi_slot_rec(p, t->slot)[row], repl = dlpi_rec_repl(rec) + 1;
    uint32_t failed = (rec & DLPI_REC_FAILED) | (code == DLP_SKIP ? 0 : DLPI_REC_FAILED);
    if (repl > DLPI_REPLACE_MAX) {
        dlpi_row_exhausted(w, code, failed != 0);
        return dlpi_row_raise(w, t, row, code);
    }
    other = p->source->item(w, t->slot, row, w->item.epoch, w->item.position, repl);
    dlpi_rec_set(p, t->slot, row, dlpi_rec(dlpi_rec_state(rec), 0, repl) | failed);
    DLPI_STORE_REL(&index[row], other); /* X1: after it */
    dlpi_bump(&w->block->replaced, 1);
    dlpi_skip_note(w, code, other);
    return dlpi_writes_first(w) ? DLPI_ROW_AGAIN : DLPI_ROW_REDO;
}

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

/* What the worker calls, in words. */
static const char *dlpi_call_text(const dlpi_worker *w) {
    return w->st->ops->unit == DLPI_UNIT_CELLS ? "load" : "callback";
}

static int dlpi_killed_say(dlpi_worker *w, uint32_t killed_by, uint32_t rec) {
    return dlpi_say(w, DLP_ERR_KILLED, "the %s's process died %u times here, the last time by %s",
                    dlpi_call_text(w), dlpi_rec_kills(rec), dlpi_signal_text(killed_by));
}

/* How many deaths make an item poison. Of several in flight none was alone the first time. */
static uint32_t dlpi_kills_most(const dlpi_worker *w) {
    return w->at_once != NULL && w->p->max_kills < 2 ? 2 : w->p->max_kills;
}

/* How often the row's present item failed in this stage before. A worker that dies between the
   store of the record and that of this count has not counted its try: there is one more. */
static uint32_t dlpi_row_tries(const dlpi_worker *w, const dlpi_unit *t, uint32_t row,
                               uint32_t rec) {
    uint32_t word;
    if (w->st->w.retries == 0) return 0;
    word = dlpi_slot_tries(w->p, t->slot, w->st)[row];
    return word >> 8 == dlpi_rec_repl(rec) ? word & 255u : 0;
}

/* The item's callback failed: what becomes of the row, by the stage's policy. Where workers die in
   what the policy calls (the sampler's functions, for a replacement), it is an error. */
static int dlpi_row_failed(dlpi_worker *w, const dlpi_unit *t, uint32_t row, int code) {
    dlp_pipe *p = w->p;
    const dlpi_stage *st = w->st;
    uint32_t rec = dlpi_slot_rec(p, t->slot)[row], all = dlpi_rec_tries(rec), tries;
    dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    if (DLPI_DEBUG && code == DLPI_OVERRUN) return dlpi_row_raise(w, t, row, code);
    if (code == DLP_END) { /* of the epoch */
        dlpi_row_end(w, t, row);
        return DLPI_ROW_DONE;
    }
    DLPI_STORE_RLX(&slot->dirty, 1u); /* ordered by done */
    if (dlpi_rec_stage(rec) == (uint32_t)st->work && dlpi_rec_kills(rec) > dlpi_kills_most(w))
        return dlpi_row_raise(w, t, row, dlpi_killed_say(w, slot->killed_by, rec));
    tries = dlpi_row_tries(w, t, row, rec);
    if (code != DLP_SKIP && code != DLP_ERR_KILLED && (int)tries < st->w.retries) {
        dlpi_rec_set(p, t->slot, row,
                     dlpi_rec(dlpi_rec_state(rec), all < 127 ? all + 1 : all, dlpi_rec_repl(rec)) |
                         (rec & DLPI_REC_FAILED));
        DLPI_KEEP_ORDER(); /* X1: a crash in between costs no try */
        dlpi_slot_tries(p, t->slot, st)[row] = (uint16_t)(dlpi_rec_repl(rec) << 8 | ++tries);
        return dlpi_row_retry(w, t, row, tries);
    }
    if (code != DLP_SKIP && st->w.on_error == DLP_ON_ERROR_RAISE)
        return dlpi_row_raise(w, t, row, code);
    if (code != DLP_SKIP && !dlpi_skip_allowed(w)) return dlpi_row_raise(w, t, row, DLP_ERR_BUDGET);
    if (st->w.on_error == DLP_ON_ERROR_REPLACE && !dlpi_cancelled(p->ctl, slot))
        return dlpi_row_replace(w, t, row, code);
    dlpi_row_leave(w, t, row, dlpi_end_counts(w, code));
    dlpi_bump(&w->block->left_out, 1);
    dlpi_skip_note(w, code, UINT64_MAX);
    return DLPI_ROW_DONE;
}

/* A row that killed its workers too often, or held one past its deadline, is not run again: it has
   failed. rec: of the row, the batch, or the cell of a source. Returns 0 or the code, with the
   message. */
static int dlpi_call_verdict(dlpi_worker *w, uint32_t killed_by, uint32_t rec) {
    if (rec & DLPI_REC_LATE)
        return dlpi_say(w, DLP_ERR_DEADLINE,
                        "the %s ran past its deadline_ms %d, its worker was killed",
                        dlpi_call_text(w), w->st->w.deadline_ms);
    return dlpi_rec_kills(rec) < dlpi_kills_most(w) ? 0 : dlpi_killed_say(w, killed_by, rec);
}

/* Of slot s. */
static int dlpi_rec_verdict(dlpi_worker *w, uint32_t s, uint32_t rec) {
    if (DLPI_LIKELY(dlpi_rec_kills(rec) == 0) || dlpi_rec_stage(rec) != (uint32_t)w->st->work)
        return 0;
    return dlpi_call_verdict(w, dlpi_slot_at(w->p, s)->killed_by, rec);
}

/* Ragged lengths as the callback left them; tails are cleared. Returns 0 or DLP_ERR_LENGTH. */
static int dlpi_row_lengths(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    const dlpi_scope *scope = &w->st->scope;
    for (uint32_t f = scope->field; f < scope->field + scope->n_fields; f++) {
        const dlpi_field *d = &p->items.at[f];
        uint64_t n = w->length[f], unit;
        if (!d->f.ragged) {
            if (n == 0) continue;
            w->bad_field = d->name;
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "field \"%s\" has a fixed size, a length of %" PRIu64 " was set",
                            d->name, n);
        }
        if (n > (uint64_t)d->f.shape[0]) {
            w->bad_field = d->name;
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "field \"%s\" has %" PRIu64 " rows, its maximum is %" PRId64, d->name,
                            n, d->f.shape[0]);
        }
        unit = d->row_bytes / (uint64_t)d->f.shape[0];
        memset((uint8_t *)w->data[f] + n * unit, 0, d->row_bytes - n * unit);
        dlpi_slot_lengths(p, t->slot, f, 1)[row] = n;
    }
    return 0;
}

/* Lengths as the stage before left them. */
static void dlpi_item_lengths(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    for (uint32_t f = 0; f < p->items.n; f++)
        w->length[f] = dlpi_writes_first(w) ? 0 : dlpi_slot_lengths(p, t->slot, f, 1)[row];
}

static inline bool dlpi_lengths_set(const dlpi_worker *w) {
    uint64_t any = w->p->items.any_ragged;
    for (uint32_t f = 0; f < w->p->items.n; f++) any |= w->length[f];
    return any != 0;
}

/* The sampler's function gave an index that the dataset does not have. */
static int dlpi_row_no_item(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    dlpi_say(w, 0, "sampler.function gave index %" PRIu64 ", the dataset has %" PRIu64 " items",
             w->item.index, w->p->fetch->dataset.n_items);
    return dlpi_row_raise(w, t, row, DLP_ERR_CALLBACK);
}

/* May the row be one that need not be fetched, nor changed by this stage? */
static inline bool dlpi_row_kept(const dlpi_worker *w) {
    return w->p->keeper != NULL && w->st->work <= w->p->kept_by;
}

/* Has the item fields in a cell of its own, that end before the batch? */
static inline bool dlpi_row_held(const dlpi_worker *w) {
    return w->p->holder != NULL && w->st->work <= 1;
}

static inline bool dlpi_row_zeroed(const dlpi_worker *w) { return w->st->scope.zeroes != 0; }

/* The row begins as zeros, where what fetches it does not write all of it. */
static inline void dlpi_row_zero(dlpi_worker *w) {
    const dlpi_fields *items = &w->p->items;
    const dlpi_scope *scope = &w->st->scope;
    if (!dlpi_row_zeroed(w)) return;
    for (uint32_t f = scope->field; f < scope->field + scope->n_fields; f++)
        memset(w->data[f], 0, items->at[f].row_bytes);
}

static bool dlpi_row_has_special(const dlpi_worker *w) {
    return dlpi_row_kept(w) || dlpi_row_held(w) || dlpi_row_zeroed(w) || w->extra != NULL ||
           w->st->scope.first != 0 || w->p->items.any_ragged || w->st->w.deadline_ms != 0;
}

/* What the source has for the row's callback. Apart: the address of the item would take a register
   of every row. */
__attribute__((noinline)) static void dlpi_row_extra(dlpi_worker *w, uint32_t s, uint32_t row) {
    w->p->source->row(w, &w->item, s, row, w->extra);
}

/* What some pipes want before a row's callback: asked for once a unit, not for each row, since an
   empty callback takes less time than the questions. Returns true if the row was kept. */
static bool dlpi_row_special(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    if (dlpi_row_kept(w)) {
        DLPI_STORE_RLX(&w->block->running,
                       UINT64_C(0)); /* X2: no callback is to blame, if we die */
        if (p->keeper->ops->keeper->get(w, t, row)) return true;
        if (dlpi_writes_first(w)) dlpi_bump(&w->block->kept_misses, 1);
        w->note.used_random = 0;
    }
    if (p->items.any_ragged) dlpi_item_lengths(w, t, row);
    if (p->items.any_ragged && w->st->dataset.n_fields > 0) /* it fetches: they are to be set */
        memset(w->given.length, 0, w->st->scope.n_fields * sizeof *w->length);
    if (dlpi_row_held(w)) p->holder->ops->holder->at(w, t->slot, row);
    dlpi_row_zero(w);
    if (w->extra != NULL) dlpi_row_extra(w, t->slot, row);
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->block->since_ns, dlpi_now_ns());
    w->item.index -= w->st->scope.first;
    return false;
}

/* The row is none of this stage's items: another dataset's, or no item at all. What is kept of it
   goes by the last stage that it passes. */
__attribute__((noinline)) static int dlpi_row_other(dlpi_worker *w, const dlpi_unit *t,
                                                    uint32_t row) {
    const dlp_pipe *p = w->p;
    if (w->item.index >= p->fetch->dataset.n_items) return dlpi_row_no_item(w, t, row);
    w->passed++;
    if (!dlpi_row_kept(w) || p->keeper->ops->keeper->get(w, t, row)) return DLPI_ROW_DONE;
    if (dlpi_writes_first(w)) dlpi_bump(&w->block->kept_misses, 1);
    dlpi_item_lengths(w, t, row);
    p->keeper->ops->keeper->put(w, t->slot, row, false);
    return DLPI_ROW_DONE;
}

/* The worker's item is to be one of this slot. */
static void dlpi_item_slot(dlpi_worker *w, uint32_t s) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint8_t *cell = dlpi_item_cell(p, s);
    for (uint32_t f = 0; f < p->items.n; f++) w->cell[f] = cell + p->items.at[f].offset;
    w->index = dlpi_slot_index(p, s);
    w->given.epoch = slot->epoch;
    w->given.worker_state = w->state;
    w->position = slot->position;
}

/* Make it that of this row, whatever a callback has made of it: one copy of the whole costs less
   than to look what of it has changed. Returns its position. */
static inline uint64_t dlpi_item_row(dlpi_worker *w, uint32_t row) {
    const dlp_pipe *p = w->p;
    uint64_t position = w->position + row;
    if (DLPI_UNLIKELY(position >= p->samples)) position %= p->samples;
    w->item = w->given;
    w->item.index = w->index[row];
    w->item.position = position;
    w->item.row = row;
    for (uint32_t f = 0, n = p->items.n; f < n; f++)
        w->data[f] = w->cell[f] + row * p->items.at[f].row_bytes;
    return position;
}

/* The code of what the callback of a row returned. Words that an item before has left are not
   those of this one. */
static int dlpi_row_returned(dlpi_worker *w, uint32_t row, int rc) {
    dlpi_item_row(w, row);
    if (w->note.said != row + 1) dlpi_words_forget(w);
    return dlpi_item_returned(w, rc);
}

/* The row's callback came to rc, a code that is not 0: what becomes of the row. Apart from those
   that are done, which are to cost little. */
__attribute__((noinline)) static int dlpi_row_wrong(dlpi_worker *w, const dlpi_unit *t,
                                                    uint32_t row, int rc) {
    int what;
    dlpi_item_row(w, row);
    what = dlpi_row_failed(w, t, row, rc);
    dlpi_failure_forget(w);
    return what;
}

/* Lengths of the item's fields that end before the batch, where it has some: 0, or the code. */
static int dlpi_row_written(dlpi_worker *w, uint32_t s, uint32_t row) {
    const dlpi_stage *holder = w->p->holder;
    if (holder == NULL || !dlpi_writes_first(w)) return 0;
    return holder->ops->holder->written(w, s, row);
}

/* The row's callback is done. lengths: it set some. */
static int dlpi_row_finish(dlpi_worker *w, const dlpi_unit *t, uint32_t row, bool lengths) {
    int rc;
    dlpi_item_row(w, row);
    rc = lengths ? dlpi_row_lengths(w, t, row) : 0;
    if (rc == 0) rc = dlpi_row_written(w, t->slot, row);
    if (DLPI_UNLIKELY(rc != 0)) return dlpi_row_wrong(w, t, row, rc);
    if (dlpi_row_kept(w)) w->p->keeper->ops->keeper->put(w, t->slot, row, w->note.used_random != 0);
    return DLPI_ROW_DONE;
}

/* Call the stage's callback on one row, once. rec: its record. */
__attribute__((noinline)) static int dlpi_row_try(dlpi_worker *w, const dlpi_unit *t, uint32_t row,
                                                  uint32_t rec) {
    dlpi_worker_block *block = w->block;
    dlp_item *it = &w->item;
    uint64_t index, position = dlpi_item_row(w, row);
    int rc = 0;
    bool lengths;
    index = it->index;
    DLPI_STORE_RLX(&block->current, index); /* for observers */
    if (DLPI_UNLIKELY(rec != 0)) it->attempt = dlpi_rec_tries(rec);
    if (DLPI_UNLIKELY(index - w->st->scope.first >= w->st->scope.n_items))
        return dlpi_row_other(w, t, row);
    DLPI_STORE_RLX(&block->current_position, position);
    if (w->has_special && dlpi_row_special(w, t, row)) return DLPI_ROW_DONE;
    DLPI_STORE_RLX(&block->running, (uint64_t)t->slot << 32 | (row + 1u)); /* X2 to recovery */
    if (DLPI_UNLIKELY(rec != 0)) rc = dlpi_rec_verdict(w, t->slot, rec);
    if (DLPI_LIKELY(rc == 0)) {
        if (DLPI_DEBUG) dlpi_guard_in(w, it, dlpi_guard_cell(w, 0), t->slot, row);
        rc = w->st->item(w->st->user, it);
        if (DLPI_UNLIKELY(DLPI_DEBUG || rc != 0)) rc = dlpi_row_returned(w, row, rc);
        if (DLPI_DEBUG) rc = dlpi_guard_out(w, it, dlpi_guard_cell(w, 0), t->slot, row, rc);
    }
    if (DLPI_UNLIKELY(rc != 0)) return dlpi_row_wrong(w, t, row, rc);
    lengths = dlpi_lengths_set(w);
    if (DLPI_UNLIKELY(lengths || (w->has_special && (dlpi_row_kept(w) || dlpi_row_held(w)))))
        return dlpi_row_finish(w, t, row, lengths);
    return DLPI_ROW_DONE;
}

/* The row is to be tried again, until it is done, parked, or goes back. */
static int dlpi_row_again(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    int what;
    do what = dlpi_row_try(w, t, row, dlpi_slot_rec(w->p, t->slot)[row]);
    while (what == DLPI_ROW_AGAIN);
    return what;
}

/* Call the stage's callback on one row until it is done, parked, or goes back. */
static inline int dlpi_row_run(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    int what = dlpi_row_try(w, t, row, t->untouched ? 0 : dlpi_slot_rec(w->p, t->slot)[row]);
    return DLPI_LIKELY(what != DLPI_ROW_AGAIN) ? what : dlpi_row_again(w, t, row);
}

/* Begin a run of rows. */
static void dlpi_item_at(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    dlpi_item_slot(w, t->slot);
    w->generation = dlpi_slot_generation(slot);
    w->has_special = dlpi_row_has_special(w);
    w->note.said = 0;                                      /* of a run before */
    DLPI_STORE_RLX(&w->block->current_epoch, slot->epoch); /* for observers */
}

/* Indices of rows [row, end), by the first stage's worker. */
static inline void dlpi_unit_indices(dlpi_worker *w, const dlpi_unit *t) {
    if (w->p->source->indices) w->p->source->indices(w, t);
}

/* Rows of a claimed unit that go back to the first stage. While others of the unit are parked they
   wait for those: the unit is freed as a whole. */
static void dlpi_unit_redo(dlpi_worker *w, const dlpi_unit *t, uint32_t rows, bool waits) {
    uint32_t first = t->row / DLPI_WORD_ROWS * DLPI_WORD_ROWS;
    if (!waits) {
        dlpi_rows_redo(w, t, rows);
        return;
    }
    for (; rows; rows &= rows - 1)
        dlpi_park(w, t, first + (uint32_t)__builtin_ctz(rows), DLPI_GOES_BACK);
}

/* The indices of rows of which some may have been run, replaced, or left by a worker that died:
   each follows from its record alone. */
static void dlpi_unit_indices_again(dlpi_worker *w, const dlpi_unit *t, uint32_t already) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    uint64_t *index = dlpi_slot_index(p, t->slot);
    for (uint32_t r = t->row; r < t->end; r++) {
        uint64_t at = (slot->position + r) % p->samples;
        uint32_t repl = dlpi_rec_repl(dlpi_slot_rec(p, t->slot)[r]);
        if (already >> r % DLPI_WORD_ROWS & 1u) continue;
        index[r] = p->source->item(w, t->slot, r, slot->epoch, at, repl);
    }
}

/* One row of a unit whose records say something, or that may be the epoch's end. Counts in *left
   what was not run, and sets *ended once the epoch is over. Returns DLPI_ROW_*. */
static int dlpi_unit_row(dlpi_worker *w, const dlpi_unit *t, uint32_t row, uint32_t *left,
                         bool *ended) {
    const dlp_pipe *p = w->p;
    const uint32_t *rec = &dlpi_slot_rec(p, t->slot)[row];
    bool open = p->open_end != 0;
    uint32_t state = t->untouched ? DLPI_ROW_OK : dlpi_rec_state(*rec); /* END: seen to end there */
    int what = DLPI_ROW_DONE;
    if (state == DLPI_ROW_LEFT) {
        dlpi_row_clear(p, t, row);
    } else if (open && (*ended || state == DLPI_ROW_END)) {
        dlpi_row_end(w, t, row);
    } else if (!dlpi_generation_cancelled(p->ctl, w->generation)) {
        what = dlpi_row_run(w, t, row);
        if (!open || dlpi_rec_state(*rec) != DLPI_ROW_END) return what;
        *ended = true;
    }
    ++*left;
    return what;
}

/* Work on a claimed unit of an item stage. */
static void dlpi_unit_items(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    dlpi_stage_words *words = dlpi_stage_words_at(p, t->slot, w->st);
    uint32_t already = dlpi_gather_bits(dlpi_done(words), t->row / DLPI_WORD_ROWS, t->b) &
                       dlpi_unit_mask(t->row, t->end);
    uint32_t mask = 0;
    uint32_t redo = 0, later = 0, left = 0;
    bool simple = t->untouched && p->open_end == 0, ended = false;
    DLPI_STORE_RLX(&w->block->running, UINT64_C(0)); /* X2: it may be a row of this number */
    if (t->untouched)
        dlpi_unit_indices(w, t);
    else if (dlpi_writes_first(w))
        dlpi_unit_indices_again(w, t, already);
    if (p->keeper != NULL && dlpi_writes_first(w) && t->end - t->row > 1)
        p->keeper->ops->keeper->ahead(p, t);
    dlpi_unpoison(p, t->slot);
    dlpi_item_at(w, t);
    for (uint32_t r = t->row; r < t->end; r++) {
        uint32_t bit = UINT32_C(1) << r % DLPI_WORD_ROWS;
        int what = DLPI_ROW_DONE;
        if (already & bit) continue;
        if (DLPI_UNLIKELY(!simple))
            what = dlpi_unit_row(w, t, r, &left, &ended);
        else if (!dlpi_generation_cancelled(p->ctl, w->generation))
            what = dlpi_row_run(w, t, r);
        else
            left++;
        if (what == DLPI_ROW_DONE) mask |= bit;
        if (what == DLPI_ROW_REDO) redo |= bit;
        if (what == DLPI_ROW_LATER) later |= bit;
    }
    left = (uint32_t)__builtin_popcount(mask) - left - w->passed;
    w->passed = 0;
    dlpi_bump(&w->block->items, left);
    dlpi_bump(&w->block->bytes, left * p->items.cell_bytes);
    dlpi_clock_out(w, t->b, w->given.epoch, left);
    dlpi_complete(w, t, mask);
    if (redo != 0) dlpi_unit_redo(w, t, redo, later != 0);
}

/* A parked row that is tried again here when it is due; the others go back to the first stage. */
static bool dlpi_parked_stays(const dlpi_worker *w, const dlpi_parked *k) {
    return dlpi_writes_first(w) || (w->st->w.idempotent && k->due_ns != DLPI_GOES_BACK);
}

/* Parked rows of t's unit; may all of them go back now? */
static bool dlpi_group_due(const dlpi_worker *w, const dlpi_unit *t, uint64_t now, uint32_t *rows) {
    uint32_t shift =
        dlpi_header_shift(DLPI_LOAD_RLX(&dlpi_slot_at(w->p, t->slot)->header)); /* claimed */
    *rows = 0;
    for (int i = 0; i < w->n_parked; i++) {
        const dlpi_parked *k = &w->parked[i];
        if (k->slot != t->slot || k->row >> shift != t->unit) continue;
        if (k->due_ns > now || dlpi_parked_stays(w, k)) return false;
        *rows |= UINT32_C(1) << k->row % DLPI_WORD_ROWS;
    }
    return true;
}

/* Can this parked row, which is due, do anything now? */
static bool dlpi_parked_moves(const dlpi_worker *w, const dlpi_parked *k, uint64_t now) {
    /* claimed */
    uint32_t shift = dlpi_header_shift(DLPI_LOAD_RLX(&dlpi_slot_at(w->p, k->slot)->header)), rows;
    dlpi_unit t = {k->gen, k->slot, k->row >> shift, k->row, k->row + 1, false};
    return dlpi_parked_stays(w, k) || dlpi_group_due(w, &t, now, &rows);
}

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

/* One row is done. n: 1, or 0 if nobody worked on it. */
static void dlpi_row_done(dlpi_worker *w, const dlpi_unit *t, uint32_t n) {
    dlpi_bump(&w->block->items, n);
    dlpi_bump(&w->block->bytes, n * w->p->items.cell_bytes);
    dlpi_complete(w, t, UINT32_C(1) << t->row % DLPI_WORD_ROWS);
}

/* Does a row that is done count: did its stream not end there? */
static bool dlpi_row_counts(const dlpi_worker *w, const dlpi_unit *t) {
    return dlpi_rec_state(dlpi_slot_rec(w->p, t->slot)[t->row]) != DLPI_ROW_END;
}

/* One more try of a parked row, by a worker that has one at a time. */
static void dlpi_row_parked(dlpi_worker *w, const dlpi_unit *t) {
    bool wanted;
    int what = DLPI_ROW_DONE;
    dlpi_clock_in(w);
    dlpi_item_at(w, t);
    wanted = !dlpi_generation_cancelled(w->p->ctl, w->generation);
    if (wanted) what = dlpi_row_run(w, t, t->row);
    dlpi_clock_out(w, t->b, w->given.epoch, wanted);
    w->passed = 0;
    if (what == DLPI_ROW_DONE) dlpi_row_done(w, t, wanted && dlpi_row_counts(w, t));
    if (what == DLPI_ROW_REDO) dlpi_park(w, t, t->row, DLPI_GOES_BACK);
}

/* A parked row that is due: let it be tried again, or send it and those of its unit back. Returns
   whether there was one. */
static bool dlpi_unpark(dlpi_worker *w, void (*try_again)(dlpi_worker *, const dlpi_unit *)) {
    const dlp_pipe *p = w->p;
    uint64_t now = dlpi_now_ns();
    for (int i = 0; i < w->n_parked; i++) {
        dlpi_parked k = w->parked[i];
        dlpi_unit t = {k.gen, k.slot, 0, k.row, k.row + 1, false};
        bool cancelled = dlpi_cancelled(p->ctl, dlpi_slot_at(p, k.slot));
        bool again = dlpi_parked_stays(w, &k) || cancelled;
        uint32_t rows, group = 1;
        if (k.due_ns > now && !cancelled) continue;
        /* claimed */
        t.unit = k.row >> dlpi_header_shift(DLPI_LOAD_RLX(&dlpi_slot_at(p, k.slot)->header));
        if (!again && !dlpi_group_due(w, &t, now, &group)) continue;
        rows = again ? UINT32_C(1) << k.row % DLPI_WORD_ROWS : group;
        dlpi_parked_remove(w, &t, rows);
        if (again)
            try_again(w, &t);
        else
            dlpi_rows_redo(w, &t, rows);
        return true;
    }
    return false;
}

/* ---- a worker of rows ---- */

/* Is there no room for another unit whose rows may all be parked? */
static bool dlpi_rows_full(const dlpi_worker *w) {
    return w->n_parked + (int)DLPI_WORD_ROWS > w->parked_most;
}

static inline bool dlpi_rows_find(dlpi_worker *w, dlpi_unit *t) {
    if (dlpi_rows_full(w) || DLPI_UNLIKELY(dlpi_retired(w))) return false;
    return dlpi_find(w, t);
}

static void dlpi_rows_run(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_clock_in(w);
    dlpi_unit_items(w, t);
}

static bool dlpi_rows_step(dlpi_worker *w) {
    dlpi_unit t;
    bool moved = w->n_parked > 0 && dlpi_unpark(w, dlpi_row_parked);
    if (!dlpi_rows_find(w, &t)) return moved;
    dlpi_rows_run(w, &t);
    return true;
}

static bool dlpi_rows_owes(const dlpi_worker *w) { return w->n_parked > 0; }

/* ns until a parked row may move. One that is due may wait for others of its unit. */
static uint64_t dlpi_rows_due(dlpi_worker *w, uint64_t ns) {
    uint64_t now;
    if (w->n_parked == 0) return ns;
    now = dlpi_now_ns();
    for (int i = 0; i < w->n_parked; i++) {
        const dlpi_parked *k = &w->parked[i];
        if (k->due_ns > now && k->due_ns - now < ns) ns = k->due_ns - now;
        if (k->due_ns <= now && dlpi_parked_moves(w, k, now)) return 0;
    }
    return ns;
}
