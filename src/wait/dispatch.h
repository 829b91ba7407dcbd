#pragma once
/* tests: system/core/pipe_wake, system/core/pipe_awake, system/core/fetchers */
#include "wait/awake.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-dispatch   WHO WAKES WHOM
   Nobody is given work: workers look for it and claim it. What is here only says who looks. */

/* There is work on batch b for a stage: its workers do it or, of an inline one, the consumer. */
static void dlpi_wake_stage(dlp_pipe *p, const dlpi_stage *st, uint64_t b) {
    if (st->asleep_most > 0)
        dlpi_wake_batch(p, st, b, 1);
    else
        dlpi_wake_consumer(p->ctl, UINT64_MAX);
}

/* There is work for n workers of a stage, any of them. */
__attribute__((unused)) static void dlpi_wake_for(dlp_pipe *p, const dlpi_stage *st, uint32_t n) {
    if (st->asleep_most > 0)
        dlpi_wake_some(&p->waiters[st->work], st->asleep_most, n);
    else
        dlpi_wake_consumer(p->ctl, UINT64_MAX);
}

/* Batch b left the stage with this place among those that have workers: the next one, or
   the consumer, goes on with it. */
static void dlpi_wake_next(dlp_pipe *p, int work, uint64_t b) {
    if (work + 1 < p->n_work) {
        dlpi_wake_stage(p, p->work[work + 1], b);
    } else {
        dlpi_wake_consumer(p->ctl, b);
        dlpi_wake_subscribers(p->share);
    }
}

/* Look again for units freed again in stages first..last; where batches go to workers in turn, only
   one of them can take what was freed: all look. */
static void dlpi_rescan(dlp_pipe *p, int first, int last) {
    for (int k = first; k <= last; k++) {
        const dlpi_stage *st = p->work[k];
        uint32_t n = st->w.dispatch == DLP_DISPATCH_BATCHES ? UINT32_MAX : 1;
        dlpi_claim_rescan(&p->waiters[k].rescan); /* R1 -> R1 */
        dlpi_wake_some(&p->waiters[k], st->asleep_most, n);
    }
    dlpi_wake_consumer(p->ctl, UINT64_MAX);
}

/* Of n workers that the new work can use: how many to wake now. The others are put off while as
   many as are kept awake are so; see >>impl-awake. */
static uint32_t dlpi_wake_now(dlp_pipe *p, uint32_t n) {
    uint32_t keep = dlpi_keep_awake(p), awake;
    if (DLPI_LIKELY(keep == 0) || !dlpi_consumer_schedules(p)) return n;
    awake = dlpi_awake_workers(p, p->work[0]);
    keep = awake < keep ? keep - awake : 0;
    if (n <= keep) return n;
    p->awake.put_off = n - keep;
    return keep;
}

/* Wake as many item workers as the new work can use: a wake-up costs several microseconds. The
   consumer is the worker of an inline stage: a sampler's thread wakes it. */
static void dlpi_schedule_wake(dlp_pipe *p, uint64_t n) {
    dlpi_stage *st = p->work[0];
    uint64_t units = n * p->batch_rows, ns = units * p->schedule.cost_ns;
    if (st->asleep_most == 0) {
        dlpi_wake_consumer(p->ctl, UINT64_MAX);
        return;
    }
    if (st->w.dispatch == DLP_DISPATCH_BATCHES) {
        uint64_t most = (uint64_t)st->n_workers;
        for (uint64_t i = n < most ? n : most; i > 0; i--)
            dlpi_wake_batch(p, st, p->schedule.published - i, 1);
        return;
    }
    if (p->schedule.cost_ns != 0 && ns / 10000 + 1 < units) units = ns / 10000 + 1;
    if (units > (uint64_t)st->n_workers) units = (uint64_t)st->n_workers;
    dlpi_wake_some(&p->waiters[0], st->asleep_most, dlpi_wake_now(p, (uint32_t)units));
}

/* The consumer is about to sleep: wake those that the scheduler left asleep. Those that it relied
   on are longer in their callbacks than it thought, or have no core. */
static void dlpi_wake_put_off(dlp_pipe *p) {
    uint32_t n = p->awake.put_off;
    p->awake.put_off = 0;
    if (n > 0) dlpi_wake_some(&p->waiters[0], p->work[0]->asleep_most, n);
}

/* Batches from `first` on of which this rank has no row: ready as they are fed, so nobody's work
   shows them to the stage after the items. */
static void dlpi_schedule_empty(dlp_pipe *p, uint64_t first) {
    for (uint64_t b = first; b != p->schedule.published; b++)
        if (dlpi_slot_at(p, dlpi_slot_of(p, b))->count == 0)
            dlpi_wake_next(p, p->n_item_work - 1, b);
}
