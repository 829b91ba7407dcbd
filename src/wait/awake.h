#pragma once
/* tests: unit/core/awake, system/core/pipe_idle */
#include "wait/waiters.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-awake      ONE WAIT: FIRST AWAKE, THEN ASLEEP
   Workers, the scheduler's thread, the consumer and subscribers wait in one way. Each has a table
   of what it does meanwhile (dlpi_wait_ops), and its own text of these two loops:

     dlpi_wait_awake    look again and again, a moment apart (of lanes, too)
     dlpi_wait_asleep   announce; look once more; sleep; look, until the wait is over

   A moment is a spin or a yield. Why no wake-up is lost stands in >>impl-sleepers.

   A wake-up costs its waker several microseconds in the kernel, and 10 to 20 pass until the sleeper
   runs. If a batch takes less, one sleep causes the next: the thread that was woken finds that the
   other one has fallen asleep. So then the consumer waits awake for as long as a wake-up may take.
   So do as many workers as can have something to do, and the other workers sleep at once. A thread
   that waits awake spins. It yields if the thread that it waits for was on this very core. A yield
   to another program costs a time slice. Once a thread has lost one, all waits sleep at once for a
   while (LC2). All yield if more workers of a pipe's only stage can have something to do than have
   a core beside the consumer (awake.fits). One more than that waits awake then. But the consumer
   sleeps at once if no worker began to wait on its core of late. The workers share the other cores
   then, and the kernel can give the consumer's core to one of them. All yield as well if producers
   feed the pipe and have not a core each (p->wait.only_yields). A producer gives the core back when
   the pipe has no room for more, many batches later, and a spin would only keep it from that.

   If batches or the consumer's steps take longer, or the workers of several stages have not a core
   each, all wait as dlpi_wait_rule_set says. But nobody spins if the other thread was on this core.
   The waiter yields if threads outnumber the cores. Else it sleeps, so that the kernel may find
   another core.

   label  atomic          written by   read by
   W1     ctl.keep_awake  consumer     workers, before a wait; scheduler. A hint, whatever it says
   W2     ctl.consumer_cpu   consumer: core + 1 where it began to wait last   workers, before a wait
   W2     waiters.cores   workers, before a wait: bits of their cores; consumer: clears them
                                                consumer, workers, before a wait. Hints, both

   The consumer measures: how long workers were busy for a batch, and how long its own steps were.
   While all sleep, the first holds the wake-ups of the consumer, too (DLPI_WAKER_NS).

   While workers are kept awake, the consumer's own scheduler wakes no more of them than that. No
   wake-up is lost. A worker without a bit in the mask, read after the publication, sets it later if
   at all, and then its last look finds the batch (B1). But the worker may come late, from a
   callback that takes longer than those before. So the consumer makes up for what was put off
   before it sleeps itself (dlpi_wake_put_off). */

#define DLPI_WAKE_NS UINT64_C(10000)  /* ns of work for which one more worker is not woken */
#define DLPI_SHORT_NS UINT64_C(15000) /* ns that a wake-up costs waker and sleeper together */
#define DLPI_WAKER_NS UINT64_C(8000)  /* ns of wake-ups in a batch, if no thread waits awake */
#define DLPI_AWAKE_NS UINT64_C(50000) /* ns after which a woken thread runs, at most */
#define DLPI_AWAKE_CALLS 32u          /* timed calls between two estimates */
#define DLPI_ASLEEP_CALLS 4u /* such calls, if no thread waits awake or if it did in vain */

/* Return the moving average with one more sample. A long sample counts as 30 us: another program
   may have had the core for milliseconds. */
static uint64_t dlpi_awake_average(uint64_t average, uint64_t sample) {
    uint64_t most = 2 * DLPI_SHORT_NS;
    if (sample > most) sample = most;
    return average == 0 ? sample : (7 * average + sample) / 8;
}

/* Decide by what the last batches took how many workers of a stage wait awake from now on (W1). */
DLPI_COLD static void dlpi_awake_note(dlp_pipe *p) {
    dlpi_awake *a = &p->awake;
    uint64_t busy = 0, step = p->ctl->step_ns, n = p->ctl->delivered - a->delivered;
    uint64_t most = DLPI_SHORT_NS + (p->ctl->keep_awake == 0 ? DLPI_WAKER_NS : 0);
    uint32_t keep = 0;
    if (n == 0) return;
    a->cores = 0;
    for (int i = 0; i < p->n_staffed; i++) {
        a->cores |= DLPI_LOAD_RLX(&p->waiters[i].cores); /* W2, here and below */
        DLPI_STORE_RLX(&p->waiters[i].cores, (uint64_t)0);
    }
    for (int i = 0; i < p->n_workers; i++)
        busy += DLPI_LOAD_RLX(&p->workers[i].block->busy_ns); /* statistics */
    a->batch_ns = dlpi_awake_average(a->batch_ns, (busy - a->busy_ns) / n + 1);
    a->step_ns = dlpi_awake_average(a->step_ns, (step - a->steps_ns) / n + 1);
    a->busy_ns = busy;
    a->steps_ns = step;
    a->delivered = p->ctl->delivered;
    if (a->batch_ns <= most && a->step_ns <= DLPI_SHORT_NS)
        keep = (uint32_t)(p->prefetch * a->batch_ns / DLPI_WAKE_NS) + 1;
    if (keep > a->fits) keep = p->n_staffed == 1 ? a->fits + 1 : 0;
    if (keep != p->ctl->keep_awake) DLPI_STORE_RLX(&p->ctl->keep_awake, keep); /* W1 */
}

/* Count a call that the consumer has timed. After every few of them it decides again (above). */
static inline void dlpi_awake_call(dlp_pipe *p) {
    uint32_t every = p->ctl->keep_awake != 0 ? DLPI_AWAKE_CALLS : DLPI_ASLEEP_CALLS;
    if (++p->awake.calls < every) return;
    p->awake.calls = 0;
    dlpi_awake_note(p);
}

/* ---- one wait ---- */

/* True if more workers wait awake than have a core beside the consumer. */
static inline bool dlpi_awake_crowded(const dlp_pipe *p) {
    return dlpi_keep_awake(p) > p->awake.fits;
}

/* True if a worker of a stage other than `mine` began to wait on this core of late, or if there is
   no other core. `mine` is the caller's own stage; NULL: the consumer calls. */
DLPI_NOINLINE static bool dlpi_awake_beside(const dlp_pipe *p, const dlpi_waiters *mine,
                                            uint64_t core) {
    uint64_t cores = mine == NULL ? p->awake.cores : 0;
    for (int i = 0; i < p->n_staffed; i++)
        if (&p->waiters[i] != mine) cores |= DLPI_LOAD_RLX(&p->waiters[i].cores); /* W2 */
    return (cores & core) != 0 || p->cpus == 1;
}

/* Return the bit of core `cpu`, the number of a core + 1. Cores 64 apart have the same. */
static inline uint64_t dlpi_awake_core(uint32_t cpu) { return UINT64_C(1) << cpu % 64; }

/* Note that a worker of this stage runs on this core. Returns the number of the core + 1. If two
   workers note it at once, the note of one may be lost until its next wait. */
static inline uint32_t dlpi_awake_here(dlpi_waiters *mine) {
    const uint32_t cpu = (uint32_t)dlpi_cpu_here() + 1;
    const uint64_t cores = DLPI_LOAD_RLX(&mine->cores), core = dlpi_awake_core(cpu); /* W2 */
    if ((cores & core) == 0) DLPI_STORE_RLX(&mine->cores, cores | core);             /* W2 */
    return cpu;
}

/* True if a worker that waits here may keep another thread from this core. Either more workers wait
   awake than have a core, or the consumer or a worker of another stage said that it was here. What
   workers of the own stage said does not count. */
static bool dlpi_awake_shares_core(const dlp_pipe *p, dlpi_waiters *mine) {
    const uint32_t cpu = dlpi_awake_here(mine);
    return DLPI_LOAD_RLX(&p->ctl->consumer_cpu) == cpu || /* W2 */
           dlpi_awake_beside(p, mine, dlpi_awake_core(cpu)) || dlpi_awake_crowded(p);
}

/* What a kind of waiter does while it waits. The tables are constants, and the functions below are
   compiled for each of them. who: the waiter's own record. */
typedef struct dlpi_wait_ops {
    bool (*look)(void *who);     /* do what there is to do; true: the wait is over */
    uint64_t (*rest)(void *who); /* ns that a sleep may last; 0: look again instead */
    bool (*last)(void *who);     /* the look behind the mask; true: do not sleep. NULL: look */
    void (*left)(void *who, bool woken); /* the mask is clear again; or NULL */
} dlpi_wait_ops;

/* Sleep once, as >>impl-sleepers tells. The word is read before `rest` looks whether the pipe
   stops. */
DLPI_INLINE void dlpi_wait_once(const dlpi_wait_ops *ops, void *who, dlpi_sleepers *s,
                                uint64_t bits) {
    const uint32_t word = dlpi_event_count(&s->word); /* B1 <- B1: before the mask */
    const uint64_t ns = ops->rest(who);
    bool woken;
    if (ns == 0) return;
    dlpi_sleepers_enter(s, bits); /* B1 -> B1 */
    if (!(ops->last != NULL ? ops->last(who) : ops->look(who)))
        dlpi_futex_wait(&s->word, word, dlpi_sleepers_bits(bits), ns, (int)s->shared);
    woken = dlpi_sleepers_leave(s, bits); /* B1 */
    if (ops->left != NULL) ops->left(who, woken);
}

/* Sleep and look, until ops->look says that the wait is over. */
DLPI_INLINE void dlpi_wait_asleep(const dlpi_wait_ops *ops, void *who, dlpi_sleepers *s,
                                  uint64_t bits) {
    do dlpi_wait_once(ops, who, s, bits);
    while (!ops->look(who));
}
