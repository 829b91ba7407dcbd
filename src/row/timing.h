#pragma once
/* tests: system/report/pipe_stats, unit/core/awake */
#include "slot/claim.h"
#include "base/cpus.h"
#include "cells/clears.h"
/* ---- clocks, histograms and traces of workers ---- */

static uint32_t dlpi_hist_bucket(uint64_t ns) { /* four to an octave */
    if (ns < 4) return (uint32_t)ns;
    uint32_t log = 63u - DLPI_CLZ(ns);
    log = (log - 1) * 4u + ((uint32_t)(ns >> (log - 2)) & 3u);
    return log < DLPI_HIST ? log : DLPI_HIST - 1;
}
/* Put the worker's event, if it has one, into its ring. */
static void dlpi_trace_flush(dlpi_worker *w) {
    dlp_trace_event *e = &w->event;
    uint64_t head, *to, from[sizeof *e / 8];
    const bool any = e->kind != 0 && e->end_ns > e->begin_ns;
    memcpy(from, e, sizeof *e);
    e->kind = 0;
    if (!any) return;
    head = DLPI_LOAD_RLX(&w->block->trace_head);
    to = (uint64_t *)(void *)&w->trace[head % w->p->trace_events];
    for (size_t i = 0; i < sizeof *e / 8; i++)
        /* G1 -> G1: whoever sees a word of it sees the head before it */
        DLPI_STORE_REL(&to[i], from[i]);
    DLPI_STORE_REL(&w->block->trace_head, head + 1); /* G1 -> G1 */
}

/* Book the stretch [from, to), in ns, of one kind: add ns to *sum, and the stretch to the worker's
   trace, unless it is empty. A stretch of work that follows the one before without a gap, on the
   same batch, makes that event longer. */
static void dlpi_stretch(dlpi_worker *w, uint64_t *sum, uint64_t ns, int kind, uint64_t from,
                         uint64_t to, uint64_t b, uint64_t epoch, uint32_t items) {
    dlp_trace_event *e = &w->event;
    uint64_t zero = w->p->ctl->started_ns;
    dlpi_bump(sum, ns);
    if (to <= from) return;
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

/* Book the worker's wait, if it waits, as over at `now`. The wait is booked before the work that
   ended it, so the events of a trace stay in order. */
static void dlpi_wait_over(dlpi_worker *w, uint64_t now) {
    uint64_t from = w->wait_ns, shown = now - from > 20000 ? from : now; /* short ones are not */
    w->wait_ns = 0;
    if (from == 0 || now <= from) return;
    dlpi_stretch(w, w->blocked ? &w->block->blocked_ns : &w->block->starved_ns, now - from,
                 w->blocked ? DLP_TRACE_BLOCKED : DLP_TRACE_STARVED, shown, now, w->event.sequence,
                 w->event.epoch, 0);
}

/* Add what the calling thread, one of the worker's, has used of the cores since it was here last,
   and how long it waited for one. The second is not asked at each short sleep. */
static void dlpi_cpu_note(dlpi_worker *w, dlpi_cpu *cpu, uint64_t now) {
    const dlpi_cpu last = *cpu;
    const bool file = now - cpu->noted_ns > DLPI_CPU_NOTE_NS;
    dlpi_cpu_read(cpu, file);
    if (file) cpu->noted_ns = now;
    dlpi_bump(&w->block->cpu_ns, cpu->used_ns - last.used_ns);
    dlpi_bump(&w->block->core_wait_ns, cpu->waited_ns - last.waited_ns);
}

/* Begin to measure what an inline worker uses of the cores, if that is due. The time that this
   takes is not counted as work. */
static void dlpi_clock_probe(dlpi_worker *w) {
    if (!w->started && dlpi_cpu_probe_begin(&w->cpu, w->last_ns)) w->last_ns = dlpi_now_ns();
}

/* Samples of what clearing costs (>>impl-clears). EVERY: readings of the clock between two of them,
   at least. It is a prime, because items may be alike at each second or eighth place. SHARE: the
   work between two samples takes at least so many times as long as their clocks. */
#define DLPI_CLEARS_EVERY 17u
#define DLPI_CLEARS_SHARE 256u

/* Let the next unit be a sample. The first samples come soon after each other. There is none until
   each slot was used. Before that the kernel maps memory as it is cleared, which would count as
   clearing. */
DLPI_COLD DLPI_UNREAD static void dlpi_clears_begin(dlpi_worker *w) {
    dlpi_clears *c = &w->rare->clears;
    if (dlpi_credit_look(&w->p->ctl->delivered) <= w->p->n_slots) return; /* V1 <- V1 */
    const uint64_t now = dlpi_now_ns(), takes = dlpi_now_ns() - now;
    if (c->taken < DLPI_CLEARS_EVERY) c->taken++;
    if (takes < c->clock_ns || c->clock_ns == 0) c->clock_ns = takes;
    c->now.ns = c->now.spared_ns = 0;
    c->readings = 0;
    w->clears = true;
    w->until_clock = 1;
    w->last_ns = now + takes;
}

/* Begin a sample if one is due. */
static inline void dlpi_clears_next(dlpi_worker *w DLPI_UNREAD) {
    const bool due = w->clears_due == 0; /* needs: stats */
    w->clears_due -= !due;               /* needs: stats */
    if (due) dlpi_clears_begin(w);       /* needs: stats */
}

/* End a sample, of ns of work: add it to the worker's block, or hold it and add the one that was
   held. */
DLPI_COLD static void dlpi_clears_over(dlpi_worker *w, uint64_t ns) {
    dlpi_clears *c = &w->rare->clears;
    const uint64_t clock = c->readings * c->clock_ns, period = ns * w->clock_every + 1;
    const uint64_t due = (2 * c->readings + 4) * (c->clock_ns + 10) * DLPI_CLEARS_SHARE / period;
    w->clears = false;
    w->clears_due = due < c->taken ? c->taken : due < 65536 ? (uint32_t)due : 65536;
    c->now.of_ns = ns > clock + c->now.ns ? ns - clock : c->now.ns;
    const dlpi_clear_times add = c->now.ns >= c->held.ns ? c->held : c->now;
    if (c->now.ns >= c->held.ns) c->held = c->now;
    dlpi_bump(&w->block->clear_of_ns, add.of_ns);
    dlpi_bump(&w->block->clear_ns, add.ns);
    dlpi_bump(&w->block->clear_spared_ns, add.spared_ns);
}

/* Begin to time units. The clock is read once for every clock_every units, so that it costs under a
   fortieth of the work. */
DLPI_NOINLINE static void dlpi_clock_begin(dlpi_worker *w) {
    w->last_ns = dlpi_now_ns();
    dlpi_wait_over(w, w->last_ns);
    dlpi_cpu_probe_drop(&w->cpu); /* of a call that is over */
    dlpi_clock_probe(w);
    w->units_untimed = w->items_untimed = 0;
    w->until_clock = w->clock_every;
    DLPI_STORE_RLX(&w->block->since_ns, w->last_ns);
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_BUSY);
    dlpi_clears_next(w);
}

static inline void dlpi_clock_in(dlpi_worker *w) {
    if (DLPI_UNLIKELY(w->last_ns == 0 && *w->untimed == 0)) dlpi_clock_begin(w);
}

/* Return how much of the time that work took it was ready to run while others had the cores. Work
   that hardly computes has 0: on a busy machine it gets its core late each time that it wakes up.
   It is done sooner with more workers all the same. */
static uint64_t dlpi_core_wait(uint64_t took, uint64_t cpu, uint64_t wait) {
    uint64_t most = took > cpu ? took - cpu : 0;
    if (wait > most) wait = most;
    return cpu >= (took - wait) / 10 * 3 ? wait : 0;
}

/* Add a sample to the worker's moving average of what an item costs: the items of `units` units
   took `each` ns. A low sample of many units says what they cost. In a high one a unit may just
   have lost its core, so it has little weight. */
static void dlpi_item_took(dlpi_worker_block *block, uint64_t each, uint64_t units) {
    uint64_t average = DLPI_LOAD_RLX(&block->item_ns), weight = units < 8 ? units : 8;
    if (each > average) weight = 1;
    average = average == 0 ? each : (average * (8 - weight) + each * weight) / 8;
    DLPI_STORE_RLX(&block->item_ns, average ? average : 1); /* statistics */
}

/* Count n items, or batches, of so many bytes together as done by a worker. */
static inline void dlpi_items_count(dlpi_worker_block *block, uint64_t n, uint64_t bytes) {
    dlpi_bump(&block->items, n);
    dlpi_bump(&block->bytes, bytes);
}

/* Count n items that took ns each. index: of the item, if it is one. */
static void dlpi_items_took(dlpi_worker_block *block, uint64_t ns, uint32_t n, uint64_t index) {
    uint32_t *bucket = &block->hist[dlpi_hist_bucket(ns)];
    DLPI_STORE_RLX(bucket, *bucket + n); /* statistics, here and below */
    if (ns <= block->max_ns) return;
    DLPI_STORE_RLX(&block->max_ns, ns);
    DLPI_STORE_RLX(&block->max_index, index);
}

/* Return what a timed stretch of ns stands for. For an inline worker it also stands for the calls
   that were not timed: each took as long as this one. All stages together have no more of these
   than the time that passed in them. Adds what the worker has used of the cores. */
static uint64_t dlpi_clock_stands(dlpi_worker *w, uint64_t ns) {
    dlpi_pace *pace = &w->p->pace;
    uint64_t all;
    if (w->started || ns == 0) return ns;
    all = pace->calls_timed > 1 ? ns * (pace->calls_timed - 1) : 0;
    if (all > pace->untimed_ns) all = pace->untimed_ns;
    pace->untimed_ns -= all;
    all += ns;
    dlpi_cpu_probe_end(&w->cpu, ns);
    dlpi_bump(&w->block->cpu_ns, (uint64_t)((double)all * w->cpu.used_share));
    dlpi_bump(&w->block->core_wait_ns, (uint64_t)((double)all * w->cpu.waited_share));
    return all;
}

/* Read the clock, and book its time since the last reading for the units that were done since. */
DLPI_NOINLINE static void dlpi_clock_read(dlpi_worker *w, uint64_t b, uint64_t epoch) {
    dlpi_worker_block *block = w->block;
    const uint64_t now = dlpi_now_ns();
    uint64_t ns = now - w->last_ns, each = w->items_untimed ? ns / w->items_untimed : ns;
    /* what was not run says nothing of what an item costs */
    if (w->items_untimed > 0) dlpi_item_took(block, each, w->units_untimed);
    dlpi_items_took(block, each, w->items_untimed,
                    w->items_untimed == 1 ? DLPI_LOAD_RLX(&block->current) : UINT64_MAX);
    dlpi_stretch(w, &block->busy_ns, dlpi_clock_stands(w, ns), DLP_TRACE_WORK, w->last_ns, now, b,
                 epoch, w->items_untimed);
    if (dlpi_clears_timed(w)) dlpi_clears_over(w, ns);
    ns /= w->units_untimed;
    w->until_clock = w->clock_every = ns >= 1000 ? 1 : ns >= 500 ? 2 : ns >= 125 ? 8 : 32;
    w->units_untimed = w->items_untimed = 0;
    w->last_ns = now;
    dlpi_clock_probe(w);
    DLPI_STORE_RLX(&block->since_ns, now);
    if (w->started && w->st->n_workers == 1) dlpi_awake_here(w->waiters);
    if (w->started && now - w->cpu.noted_ns > DLPI_CPU_NOTE_NS) /* one that never rests, too */
        dlpi_cpu_note(w, &w->cpu, now);
    dlpi_clears_next(w);
}

/* Count a unit that is done. A last_ns of 0 means an inline worker in a call that is not timed. */
static inline void dlpi_clock_out(dlpi_worker *w, uint64_t b, uint64_t epoch, uint32_t items) {
    if (w->last_ns == 0) return;
    w->items_untimed += items;
    w->units_untimed++;
    if (DLPI_UNLIKELY(--w->until_clock == 0)) dlpi_clock_read(w, b, epoch);
}

/* Count the time from `from` to `now`, in which a callback of the library's own waited for others,
   as a wait and not as work. */
static void dlpi_clock_waited(dlpi_worker *w, uint64_t from, uint64_t now) {
    if (w->last_ns == 0 || now <= from) return;
    w->last_ns += now - from;
    dlpi_bump(&w->block->starved_ns, now - from);
}

/* Book the units that were not timed yet, for the worker stops working. While it sleeps an observer
   sees all that it did. */
static void dlpi_clock_stop(dlpi_worker *w) {
    if (w->last_ns != 0 && w->units_untimed > 0)
        dlpi_clock_read(w, w->event.sequence, w->event.epoch);
    if (dlpi_clears_timed(w)) w->clears_due = 0; /* the sample is not over: the next unit is one */
    w->clears = false;
    w->last_ns = 0;
    dlpi_trace_flush(w);
}
