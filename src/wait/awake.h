#pragma once
/* tests: unit/core/awake, system/core/pipe_awake */
#include "wait/waiters.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-awake      WAITING AWAKE, WHERE A WAKE-UP COSTS MORE THAN A BATCH
   A wake-up costs its waker several microseconds in the kernel, and 10 to 20 pass until the sleeper
   runs. Where a batch takes less, one sleep makes the next: whoever has been woken finds that the
   other fell asleep meanwhile. So there the consumer, and as many workers as can have something to
   do, wait awake for as long as a wake-up may take: they spin or, where the other one is on this
   very core, yield. Yields to third parties would cost a time slice. But where others feed the
   pipe, and have not a core each, the third party is one of those: it gives the core back when the
   pipe has no room for more, many batches later, and a spin would only keep it from that
   (p->wait.only_yields). The other workers sleep at once. Where batches, or the consumer's steps,
   take longer, or there is no core for each of those, all wait as dlpi_wait_rule_set says; but
   where the other one is known to be on this core nobody spins: it makes way, if threads outnumber
   the cores, and else sleeps, so that the kernel may find the other core for it.

   label  atomic          written by   read by
   W1     ctl.keep_awake  consumer     workers, before a wait; scheduler. A hint, whatever it says
   W2     consumer_cpu, cpu of waiters   consumer, workers: cores + 1 where they began to wait last

   The consumer measures, by the books that are kept anyhow: what workers were busy for a batch, and
   how long its own steps were.

   While workers are kept awake, the consumer's own scheduler wakes no more of them than that. No
   wake-up is lost: a worker without a bit in the mask, read after the publication, sets it later
   if at all, and then its last look finds the batch (B1, >>impl-sleepers). It may come late, from a
   callback that takes longer than those before; so the consumer makes up for what was put off
   before it sleeps itself (dlpi_wake_put_off). */

#define DLPI_WAKE_NS UINT64_C(10000)  /* work that is not worth to wake one more worker */
#define DLPI_SHORT_NS UINT64_C(15000) /* what a wake-up costs, its two ends together */
#define DLPI_AWAKE_NS UINT64_C(50000) /* how long one that was woken may take to run */
#define DLPI_AWAKE_CALLS 32u          /* timed calls between two estimates; */
#define DLPI_ASLEEP_CALLS 4u          /* where nobody waits awake, or did so in vain */

/* A moving average that goes by what most samples say: others on the core, who may keep it for
   milliseconds, spoil some of them. */
static uint64_t dlpi_awake_average(uint64_t average, uint64_t sample) {
    uint64_t most = 2 * DLPI_SHORT_NS;
    if (sample > most) sample = most;
    return average == 0 ? sample : (7 * average + sample) / 8;
}

/* Of so many workers of each stage and the consumer: has each a core? One that works wants the core
   of another that only waits. */
static bool dlpi_awake_fit(const dlp_pipe *p, uint32_t keep) {
    uint32_t n = 1;
    for (int i = 0; i < p->n_work; i++) {
        uint32_t most = (uint32_t)p->work[i]->w.num_workers;
        n += most < keep ? most : keep;
    }
    return n <= (uint32_t)p->cpus;
}

/* Is it better to wait awake from now on? */
static void dlpi_awake_note(dlp_pipe *p) {
    dlpi_awake *a = &p->awake;
    uint64_t busy = 0, step = p->ctl->step_ns, n = p->ctl->delivered - a->delivered;
    uint32_t keep = 0;
    if (n == 0) return;
    for (int i = 0; i < p->n_workers; i++)
        busy += DLPI_LOAD_RLX(&p->workers[i].block->busy_ns); /* statistics */
    a->batch_ns = dlpi_awake_average(a->batch_ns, (busy - a->busy_ns) / n + 1);
    a->step_ns = dlpi_awake_average(a->step_ns, (step - a->steps_ns) / n + 1);
    a->busy_ns = busy;
    a->steps_ns = step;
    a->delivered = p->ctl->delivered;
    if (a->batch_ns <= DLPI_SHORT_NS && a->step_ns <= DLPI_SHORT_NS)
        keep = (uint32_t)(p->prefetch * a->batch_ns / DLPI_WAKE_NS) + 1;
    if (keep > 1 && !dlpi_awake_fit(p, keep)) keep = 0;
    if (keep != p->ctl->keep_awake) DLPI_STORE_RLX(&p->ctl->keep_awake, keep); /* W1 */
}

/* By the consumer, who has timed a call. */
static inline void dlpi_awake_call(dlp_pipe *p) {
    uint32_t every = p->ctl->keep_awake != 0 ? DLPI_AWAKE_CALLS : DLPI_ASLEEP_CALLS;
    if (++p->awake.calls < every) return;
    p->awake.calls = 0;
    dlpi_awake_note(p);
}

/* ---- one wait ---- */

/* How often to look before a sleep, where so many threads share the cores: a few times more, and
   then make way where they outnumber the cores; not at all where there is but one core. */
static inline void dlpi_wait_rounds(dlpi_wait_rule *rule, int threads, int cpus) {
    rule->spin_rounds = threads <= cpus ? 300 : cpus > 1 ? 30 : 0;
    rule->yield_rounds = threads <= cpus ? 0 : 50;
}

static inline void dlpi_wait_moment(bool yields) {
    if (yields)
        sched_yield();
    else
        dlpi_pause();
}

/* Did somebody else of the pipe say last that it was on this core? here: where we say so. */
static bool dlpi_awake_same_core(const dlp_pipe *p, const uint32_t *here, uint32_t cpu) {
    uint32_t *consumer = &p->ctl->consumer_cpu;
    if (consumer != here && DLPI_LOAD_RLX(consumer) == cpu) return true; /* W2 */
    for (int i = 0; i < p->n_staffed; i++) {
        uint32_t *stage = &p->waiters[i].cpu;
        if (stage != here && DLPI_LOAD_RLX(stage) == cpu) return true; /* W2 */
    }
    return p->cpus == 1;
}

/* Say on which core this is. Returns that. */
static inline uint32_t dlpi_awake_here(uint32_t *here) {
    uint32_t cpu = (uint32_t)sched_getcpu() + 1;
    if (DLPI_LOAD_RLX(here) != cpu) DLPI_STORE_RLX(here, cpu); /* W2 */
    return cpu;
}

static void dlpi_awake_first(const dlp_pipe *p, dlpi_awake_wait *k, uint32_t *here) {
    k->same_core = here != NULL && dlpi_awake_same_core(p, here, dlpi_awake_here(here));
    k->until_ns = dlpi_now_ns() + p->wait.awake_ns;
    k->waits++;
}

/* One more look before a sleep, after a moment. Returns false: sleep. k->rounds is 0 before the
   first. longer: wait awake. here: where to say on which core; NULL: too many would. */
static bool dlpi_awake_round(const dlp_pipe *p, dlpi_awake_wait *k, bool longer, uint32_t *here) {
    int i = k->rounds++, spins = p->wait.spin_rounds;
    bool yields;
    if (i == 0) dlpi_awake_first(p, k, here);
    if (k->same_core) spins = 0; /* a spin would keep the other one from this core */
    yields = i >= spins;
    if (longer) {
        yields = k->same_core || p->wait.only_yields;
        if ((yields || i % 8 == 7) && dlpi_now_ns() >= k->until_ns) return false;
    } else if (i >= spins + p->wait.yield_rounds) {
        return false;
    }
    dlpi_wait_moment(yields);
    return true;
}
