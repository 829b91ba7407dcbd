#pragma once
/* tests: system/core/pipe_wake, system/core/tuning */
#include "base/sleepers.h"
#include "pipe/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-waiters      WHO SLEEPS, WHO WAKES
   Whom to wake; how, and why no wake-up is lost, stands in >>impl-sleepers. Every sleep ends
   after 100 ms, of some after seconds, and looks again. */

#define DLPI_SLEEP_NS UINT64_C(100000000)
#define DLPI_CPU_NOTE_NS UINT64_C(50000000)
#define DLPI_FULL_NS UINT64_C(20000000) /* a worker that has no room for work */

/* Wake at most n sleepers of a stage. Call after a sequentially consistent publication. */
static void dlpi_wake_some(dlpi_waiters *waiters, uint32_t n_workers, uint32_t n) {
    for (uint32_t g = 0; g * 32u < n_workers && n > 0; g++)
        n = dlpi_sleepers_wake(&waiters->group[g], n, waiters->shared);
}

/* Returns whether it slept. */
static bool dlpi_wake_worker(dlpi_waiters *waiters, uint32_t worker) {
    return dlpi_sleepers_wake_one(&waiters->group[worker / 32u], 1u << worker % 32u,
                                  waiters->shared);
}

/* There is work on batch b for a stage of threads or processes: wake n of its workers or, where
   batches go to workers in turn, the one that may take it. */
static void dlpi_wake_batch(const dlp_pipe *p, const dlpi_stage *st, uint64_t b, uint32_t n) {
    dlpi_waiters *waiters = &p->waiters[st->work];
    if (st->w.dispatch == DLP_DISPATCH_BATCHES)
        dlpi_wake_worker(waiters, (uint32_t)(b % (uint64_t)st->n_workers));
    else
        dlpi_wake_some(waiters, (uint32_t)st->n_workers, n);
}

/* Does the consumer schedule as it takes and releases, or has the sampler a thread? */
static inline bool dlpi_consumer_schedules(const dlp_pipe *p) {
    return p->sampler->w.num_workers == 0;
}

static void dlpi_wake_scheduler(dlpi_ctl *ctl) {
    dlpi_sleeper_wake(&ctl->scheduler_sleeps, &ctl->scheduler_word, ctl->shared);
}

/* Batch b became ready for the consumer. Call after a sequentially consistent publication. */
static void dlpi_wake_consumer(dlpi_ctl *ctl, uint64_t b) {
    dlpi_sleeper_wake_for(&ctl->want, b, &ctl->consumer_word, ctl->shared);
}

/* What the source waits for may be there. After a sequentially consistent publication. */
static inline void dlpi_wake_scheduling(const dlp_pipe *p) {
    if (dlpi_consumer_schedules(p))
        dlpi_wake_consumer(p->ctl, UINT64_MAX);
    else
        dlpi_wake_scheduler(p->ctl);
}

/* A batch became ready: wake those that are to have it, or the one that may. After a sequentially
   consistent publication. */
static void dlpi_wake_subscribers(dlpi_share *share) {
    if (share == NULL) return;
    if (share->one_each)
        dlpi_sleepers_wake_any_one(&share->sleepers, &share->word);
    else
        dlpi_sleepers_wake_any(&share->sleepers, &share->word);
}

/* All of them, whatever their bits say. */
static void dlpi_wake_subscribers_all(dlpi_share *share) {
    if (share != NULL) dlpi_sleepers_wake_all(&share->word);
}

/* Wake workers from..to-1 that rest: no bit says so. After a store of active. */
static void dlpi_wake_resting(dlpi_waiters *waiters, uint32_t from, uint32_t to) {
    while (from < to) {
        dlpi_sleepers *group = &waiters->group[from / 32u];
        uint32_t end = (from / 32u + 1) * 32u < to ? (from / 32u + 1) * 32u : to;
        dlpi_sleepers_wake_bits(group, 32, dlpi_unit_mask(from, end), waiters->shared);
        from = end;
    }
}

static void dlpi_wake_sleepers(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) {
        dlpi_stage *st = p->work[i];
        dlpi_waiters *waiters = &p->waiters[i];
        dlpi_wake_some(waiters, st->asleep_most, UINT32_MAX);
        dlpi_wake_resting(waiters, dlpi_sleepers_active(&waiters->active), /* A1 <- A1 */
                          st->asleep_most);
    }
    dlpi_wake_scheduler(p->ctl);
    dlpi_wake_consumer(p->ctl, UINT64_MAX);
    dlpi_wake_subscribers_all(p->share);
}

/* Wake everybody, whatever the masks say: a waker may have died between taking a sleeper's bit and
   waking it. */
static void dlpi_wake_all(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) {
        dlpi_stage *st = p->work[i];
        for (uint32_t g = 0; g * 32u < st->asleep_most; g++)
            dlpi_sleepers_wake_all(&p->waiters[i].group[g].word);
    }
    dlpi_sleepers_wake_all(&p->ctl->scheduler_word);
    dlpi_sleepers_wake_all(&p->ctl->consumer_word);
    dlpi_wake_subscribers_all(p->share);
}

/* Of one writer at a time, read by observers. */
static inline void dlpi_bump(uint64_t *counter, uint64_t n) {
    DLPI_STORE_RLX(counter, DLPI_LOAD_RLX(counter) + n); /* statistics */
}

static inline int dlpi_active(const dlp_pipe *p, const dlpi_stage *st) {
    return (int)dlpi_sleepers_active(&p->waiters[st->work].active); /* A1 <- A1 */
}

/* Is the worker above that number? In a mask or after a claim it may still be for a moment. */
static inline bool dlpi_retired(const dlpi_worker *w) {
    return (uint32_t)w->id >= dlpi_sleepers_active(&w->waiters->active); /* A1 <- A1, after B1 */
}

static inline bool dlpi_stopped(const dlp_pipe *p) {
    return DLPI_LOAD_RLX(&p->ctl->stop) != 0; /* S1: a flag; what it guards is joined */
}
