#pragma once
/* tests: system/core/pipe_wake, unit/core/awake, system/core/fetchers, system/core/tuning */
#include "base/sleepers.h"
#include "pipe/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-waiters      WHO SLEEPS, WHO WAKES WHOM
   Nobody is given work: workers look for it and claim it. What is here only says who looks. Why no
   wake-up is lost stands in >>impl-sleepers, how one waits in >>impl-awake. Every sleep ends after
   100 ms, or after a second where another sleeper looks earlier.

     who sleeps             where            what wakes it
     worker                 waiters.group    a batch is fed (T1); rows or a batch leave the stage
                                             before (D1, Y1); units are free again (R1); a cell of
                                             inputs is to be loaded (O1); other cells are free (C2)
     worker that is parked  its word alone   the tuner (A1), a stop
     scheduler's thread     ctl.scheduler    a batch is delivered or released (V1, C1); an epoch has
                                             begun (I2); an input is loaded (Q2); a subscriber has
                                             come, taken, given back or left (H2 to H6)
     consumer               ctl.consumer     the batch that it waits for leaves the last stage (Y1);
                                             an error (E1); the end (T1); an epoch to begin (I2);
                                             what the scheduler's thread or an inline stage would
                                             be woken for, where the consumer does their work
     subscriber             share.sleepers   a batch leaves the last stage (Y1); it is let in (H2);
                                             the end (T1, H1)
   A stop, a seek and the end wake all of them. So does a recovery. */

#define DLPI_SLEEP_NS UINT64_C(100000000)
/* A worker that never rests notes its waits for a core so often: 9 us in 10 ms. What was not noted
   yet is missing where a limit is looked for. */
#define DLPI_CPU_NOTE_NS UINT64_C(10000000)
#define DLPI_FULL_NS UINT64_C(20000000) /* ns that a worker without room for work sleeps, at most */
#define DLPI_ANY UINT64_MAX             /* whatever the batch */

/* Add n to a counter that has one writer at a time, and that observers read. */
static inline void dlpi_bump(uint64_t *counter, uint64_t n) {
    DLPI_STORE_RLX(counter, DLPI_LOAD_RLX(counter) + n); /* statistics */
}

static inline int dlpi_active(const dlp_pipe *p, const dlpi_stage *st) {
    return (int)dlpi_sleepers_active(&p->waiters[st->work].active); /* A1 <- A1 */
}

#ifndef DLPI_RUN_NS /* a checker may define it before inclusion */
#define DLPI_RUN_NS 16000u
#endif

/* Return what an item costs the first n workers of a stage (ns), on the average of those that have
   had one; 0 if it is not known yet. */
static uint64_t dlpi_item_cost(const dlp_pipe *p, const dlpi_stage *st, int n) {
    const dlpi_worker *w = &p->workers[st->first_worker];
    uint64_t sum = 0, had = 0;
    for (const dlpi_worker *end = w + n; w < end; w++) {
        uint64_t ns = DLPI_LOAD_RLX(&w->block->item_ns); /* a hint */
        if (ns != 0) sum += ns, had++;
    }
    return had > 0 ? sum / had : 0;
}

/* True if w is the worker with which the consumer helps threads, and items are so short that next
   is late by little: by a run of items. Once its own were short, it need not ask the threads. */
DLPI_COLD static bool dlpi_helps(const dlpi_worker *w) { /* needs: help */
    uint64_t cost = DLPI_LOAD_RLX(&w->block->item_ns);   /* needs: help */
    if (w->global != w->st->inline_worker) return false; /* needs: help */
    if (cost - 1 >= DLPI_RUN_NS)                         /* needs: help */
        cost = dlpi_item_cost(w->p, w->st, w->id);       /* needs: help */
    return cost != 0 && cost <= DLPI_RUN_NS;             /* needs: help */
} /* needs: help */

/* True if the worker takes no unit: the tuner has retired it, or it is the consumer's and items are
   long. It may still be in a mask, or claim, for a moment. */
static inline bool dlpi_retired(const dlpi_worker *w) {
    bool retired = (uint32_t)w->id >= dlpi_sleepers_active(&w->waiters->active); /* A1, after B1 */
    retired = retired && !dlpi_helps(w);                                         /* needs: help */
    return retired;
}

/* Return the group in which a worker sleeps; dlpi_worker_bit is its bit there. */
static inline dlpi_sleepers *dlpi_worker_group(const dlpi_worker *w) {
    return &w->waiters->group[w->id / 32].at;
}
static inline uint64_t dlpi_worker_bit(const dlpi_worker *w) { return UINT64_C(1) << w->id % 32; }

static inline bool dlpi_stopped(const dlp_pipe *p) {
    return DLPI_LOAD_RLX(&p->ctl->stop) != 0; /* S1: a flag; what it guards is joined */
}

/* True if the consumer schedules as it takes and releases; false if the sampler has a thread. */
static inline bool dlpi_consumer_schedules(const dlp_pipe *p) { return p->scheduler_sleep_ns == 0; }

/* Return how many workers of a stage wait awake, because a wake-up costs more; 0: none. */
static inline uint32_t dlpi_keep_awake(const dlp_pipe *p) {
    return DLPI_LOAD_RLX(&p->ctl->keep_awake); /* W1: a hint */
}

/* Return how many active workers of a stage have no bit in its masks, so do not sleep. */
static uint32_t dlpi_awake_workers(const dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_waiters *waiters = &p->waiters[st->work];
    int asleep = 0, active = dlpi_active(p, st);
    for (int g = 0; g * 32 < st->n_workers; g++)
        asleep += DLPI_ONES(dlpi_sleepers_mask(&waiters->group[g].at)); /* B1 */
    return asleep < active ? (uint32_t)(active - asleep) : 0;
}

/* ---- workers ---- */

/* Wake at most n sleepers of a stage. Call after a sequentially consistent publication, as all that
   follows. */
static void dlpi_wake_some(const dlp_pipe *p, const dlpi_stage *st, uint32_t n) {
    dlpi_waiters *waiters = &p->waiters[st->work];
    for (int g = 0; g * 32 < st->n_workers && n > 0; g++)
        n = dlpi_sleepers_wake(&waiters->group[g].at, n);
}

/* Wake one worker of a stage. Returns true if the worker slept. */
static bool dlpi_wake_worker(dlpi_waiters *waiters, uint32_t worker) {
    return dlpi_sleepers_wake_one(&waiters->group[worker / 32u].at, UINT64_C(1) << worker % 32u);
}

/* Wake all workers of a stage, whatever the masks say. */
static void dlpi_wake_workers(const dlp_pipe *p, const dlpi_stage *st) {
    dlpi_waiters *waiters = &p->waiters[st->work];
    for (int g = 0; g * 32 < st->n_workers; g++) dlpi_sleepers_ring(&waiters->group[g].at, 0);
}

/* ---- the scheduler, the consumer and subscribers ---- */

static void dlpi_wake_scheduler(dlpi_ctl *ctl) { dlpi_sleepers_wake_all(&ctl->scheduler); }

/* Wake the consumer if it sleeps until batch b, which is ready now, or until any batch. */
DLPI_INLINE void dlpi_wake_consumer(dlpi_ctl *ctl, uint64_t b) {
    dlpi_sleepers_wake_for(&ctl->consumer, b);
}

/* Wake the consumer or thread that schedules: what the source waits for may be there. */
static inline void dlpi_wake_scheduling(const dlp_pipe *p) {
    if (dlpi_consumer_schedules(p))
        dlpi_wake_consumer(p->ctl, DLPI_ANY);
    else
        dlpi_wake_scheduler(p->ctl);
}

/* A batch left the stage at place `work` of the stages with workers. Wake the subscribers that take
   batches from there: all, or the one whose turn it is. share may be NULL. */
static void dlpi_wake_subscribers(dlpi_share *share, int work) {
    if (share == NULL || work < (int)share->after) return;
    if (share->one_each)
        dlpi_sleepers_wake_next(&share->sleepers);
    else
        dlpi_sleepers_wake_all(&share->sleepers);
}

/* Wake all subscribers, whatever the mask says. */
static void dlpi_wake_subscribers_all(dlpi_share *share) {
    if (share != NULL) dlpi_sleepers_ring(&share->sleepers, 0);
}

/* Wake everybody, whatever the masks say: after a stop, a seek or the end, or if a waker may have
   died between taking a sleeper's bit and waking it. */
DLPI_COLD static void dlpi_wake_all(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) dlpi_wake_workers(p, p->work[i]);
    dlpi_sleepers_ring(&p->ctl->scheduler, 0);
    dlpi_sleepers_ring(&p->ctl->consumer, 0);
    dlpi_wake_subscribers_all(p->share);
}

/* ---- for work on a batch ---- */

/* Wake at most n workers of a stage: there is work on batch b, or on any (DLPI_ANY). If batches go
   to workers in turn, wake the one that may take b. If the stage is inline, wake the consumer. */
static void dlpi_wake_stage(dlp_pipe *p, const dlpi_stage *st, uint64_t b, uint32_t n) {
    if (st->w.num_workers == 0)
        dlpi_wake_consumer(p->ctl, DLPI_ANY);
    else if (st->w.dispatch == DLP_DISPATCH_BATCHES && b != DLPI_ANY)
        dlpi_wake_worker(&p->waiters[st->work], (uint32_t)(b % (uint64_t)st->n_workers));
    else
        dlpi_wake_some(p, st, n);
}

/* Batch b left the stage at place `work` of the stages with workers. Wake who goes on with it: a
   worker of the next one, or the consumer; and subscribers. */
DLPI_INLINE void dlpi_wake_next(dlp_pipe *p, int work, uint64_t b) {
    if (work + 1 < p->n_work)
        dlpi_wake_stage(p, p->work[work + 1], b, 1);
    else
        dlpi_wake_consumer(p->ctl, b);
    dlpi_wake_subscribers(p->share, work);
}

/* Units are free again in stages first..last: wake workers, who look for them. If batches go to
   workers in turn, only one worker can take what was freed, so all of them look. */
static void dlpi_rescan(dlp_pipe *p, int first, int last) {
    for (int k = first; k <= last; k++) {
        const dlpi_stage *st = p->work[k];
        uint32_t n = st->w.dispatch == DLP_DISPATCH_BATCHES ? UINT32_MAX : 1;
        dlpi_claim_rescan(&p->waiters[k].rescan); /* R1 -> R1 */
        dlpi_wake_some(p, st, n);
    }
    dlpi_wake_consumer(p->ctl, DLPI_ANY);
}

/* ---- by the scheduler ---- */

/* Return how many of n workers that new work can use are to be woken now. The others are put off
   while enough workers are awake; see >>impl-awake. What was put off adds up, until the consumer
   makes up for it. */
static uint32_t dlpi_wake_now(dlp_pipe *p, uint32_t n) {
    uint32_t keep = dlpi_keep_awake(p), awake;
    if (DLPI_LIKELY(keep == 0) || !dlpi_consumer_schedules(p)) return n;
    awake = dlpi_awake_workers(p, p->work[0]);
    keep = awake < keep ? keep - awake : 0;
    if (n <= keep) return n;
    if (p->awake.put_off < (uint32_t)p->work[0]->n_workers) p->awake.put_off += n - keep;
    return keep;
}

/* Wake as many item workers as n batches that were fed just now can use. A wake-up costs several
   microseconds, so short work wakes few. */
static void dlpi_schedule_wake(dlp_pipe *p, uint64_t n) {
    dlpi_stage *st = p->work[0];
    uint64_t units = n * p->batch_rows, ns = units * p->schedule.cost_ns;
    uint64_t most = (uint64_t)st->n_workers;
    if (st->w.num_workers == 0) {
        dlpi_wake_consumer(p->ctl, DLPI_ANY);
        return;
    }
    if (st->w.dispatch == DLP_DISPATCH_BATCHES) {
        for (uint64_t i = n < most ? n : most; i > 0; i--)
            dlpi_wake_stage(p, st, p->schedule.published - i, 1);
        return;
    }
    if (p->schedule.cost_ns != 0 && ns / 10000 + 1 < units) units = ns / 10000 + 1;
    if (units > most) units = most;
    dlpi_wake_some(p, st, dlpi_wake_now(p, (uint32_t)units));
}

/* Wake the workers that were put off, for the consumer is about to sleep. The workers that it
   relied on are longer in their callbacks than it thought, or have no core. */
static void dlpi_wake_put_off(dlp_pipe *p) {
    uint32_t n = p->awake.put_off;
    p->awake.put_off = 0;
    if (n > 0) dlpi_wake_some(p, p->work[0], n);
}

/* Wake the stage after the items for each batch from `first` on of which this rank has no row. Such
   a batch is ready as it is fed, so no work on items would wake anybody. */
static void dlpi_schedule_empty(dlp_pipe *p, uint64_t first) {
    for (uint64_t b = first; b != p->schedule.published; b++)
        if (dlpi_slot_at(p, dlpi_slot_of(p, b))->count == 0)
            dlpi_wake_next(p, p->n_item_work - 1, b);
}
