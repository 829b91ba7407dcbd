#pragma once
/* tests: unit/queue/queue_wait, model/model, model/model_wake */
#include "api/queues.h"
#include "base/cpus.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   The wait first, then lanes, then bundles. */

#define DLPI_SLEEP_MAX_NS 100000000u /* every sleep ends by then: a waker can die before it wakes */

/* ---- waiters: an event count for one sleeper ----
   A wake word is a futex. DLPI_WAKE_SLEEPER: its owner sleeps or is about to. DLPI_WAKE_RMW: some
   participant has no heavy barrier; it is set once and stays, and makes every waker come to
   dlpi_wake_sleeper, whose read-modify-write (LB2) then is the order.
   Sleeper: LB3 sets the bit; heavy barrier; looks again (LE2 and LT2, or LH2); sleeps while the
   word is unchanged.
   Waker:   LT1, LH1 or LE1, below called LT1; LB1.
   With the barrier: either LB1 comes before it in the waker's program, and then so does LT1, which
   the barrier makes visible to the sleeper's second look; or LB1 comes after it and sees the bit.
   Without: LB2 and LB3 are one order. If LB2 is later it sees the bit. If LB3 is later it reads
   what LB2 wrote, or later, and the second look sees LT1, which came before LB2.
   A participant that sets DLPI_WAKE_RMW while others run may miss a wake-up until they have seen
   the bit; so may anyone whose waker dies between LT1 and LB2. Both end with the sleep, within 100
   ms. */
#define DLPI_WAKE_SLEEPER 1u
#define DLPI_WAKE_RMW 2u

static void dlpi_wake_join(uint32_t *wake_word, int shared) {
    if (!dlpi_heavy_register(shared)) DLPI_OR_SEQ(wake_word, DLPI_WAKE_RMW); /* -> LB1 */
}

DLPDEF void dlpi_wake_sleeper(uint32_t *wake_word, uint32_t shared) {
    if (DLPI_AND_SEQ(wake_word, ~DLPI_WAKE_SLEEPER) & DLPI_WAKE_SLEEPER) /* LB2 <- LB3 */
        dlpi_futex_wake(wake_word, 1, ~0u, (int)shared);
}

/* Wake a producer that sleeps on a full lane, once half of it is free. */
DLPDEF void dlpi_spsc_room_wake(dlp_spsc_rx *rx) {
    uint32_t *wake_word = &rx->lane->producer_wake;
    if (!(DLPI_OR_SEQ(wake_word, 0u) & DLPI_WAKE_SLEEPER)) /* LB2 <- LB3 */
        return;
    uint64_t used = DLPI_LOAD_ACQ(&rx->lane->tail) - rx->head; /* LT2 <- LT1 */
    if (used <= rx->capacity / 2 || used > rx->capacity) dlpi_wake_sleeper(wake_word, rx->shared);
}

/* ---- waiting awake, of lanes and of pipes ---- */

typedef struct dlpi_wait_rule {
    uint32_t spin_ns, yields; /* ns of spinning, then number of yields, before a sleep */
    uint32_t awake_ns;        /* ns without sleep of a thread that waits awake (>>impl-awake) */
    bool only_yields;         /* a thread that waits awake yields, and never spins */
    int threads;              /* workers of the pipe, and the consumer; 1: no worker */
} dlpi_wait_rule;

/* Set how patiently to wait if this many threads share so many cores. If there are spare cores,
   spin about as long as a wake-up takes. Else make way soon, but a few times before paying for
   sleep. */
static void dlpi_wait_share(uint32_t threads, uint32_t cpus, uint32_t *spin_ns, uint32_t *yields) {
    *spin_ns = threads <= cpus ? 14000 : cpus > 1 ? 1000 : 0;
    *yields = threads <= cpus ? 0 : 50;
}

/* Cores, as the first policy has counted them; 0 means that no policy has counted them.
   LC1    dlpi_wait_cpus   the first policies, relaxed   later policies: each counts the same */
static uint32_t dlpi_wait_cpus;

/* Set how patiently to wait if `peers` threads share this machine, whose cores are counted once. */
DLPI_COLD static void dlpi_wait_policy(uint32_t peers, uint32_t *spin_ns, uint32_t *yields) {
    uint32_t n = DLPI_LOAD_RLX(&dlpi_wait_cpus); /* LC1, any value read twice is the same */
    if (n == 0) {
        n = (uint32_t)dlpi_cpu_count();
        DLPI_STORE_RLX(&dlpi_wait_cpus, n); /* LC1 */
    }
    dlpi_wait_share(peers, n, spin_ns, yields);
}

/* A thread that waits awake, or yields, may lose its core to another program for a time slice of
   milliseconds. A thread that sleeps gets a core back as soon as it is woken, before programs that
   compute. So if a moment of a wait took DLPI_LOST_NS, all waits of this process sleep at once for
   as long again, and then try once more. If the core is lost again at once, they sleep for twice as
   many times the loss as before, up to 2^DLPI_LOST_DOUBLED times. So beside programs that always
   compute one part in 32 of the time is lost. At once means: after less time than was lost. If a
   loss comes later, they sleep for half as many times. A program that runs now and then costs less
   than the wake-ups would.
   In a yield the pipe's own workers may have this core, for the batches that are ahead. That is no
   loss, and mostly takes less than DLPI_LOST_NS. A moment that took longer than DLPI_LOST_MOST_NS
   counts as that: no program has a core for so long, but the process or the machine was stopped.
   LC2    dlpi_wait_sleeps   any waiter, relaxed   any waiter, relaxed: a hint, whatever it says
   LC3    dlpi_wait_doubled  any waiter, relaxed   any waiter, relaxed: a hint; used up to 5 */
static uint64_t dlpi_wait_sleeps;  /* the clock: until then a wait sleeps at once */
static uint32_t dlpi_wait_doubled; /* the last losses that came at once, less those that did not */
#define DLPI_LOST_NS UINT64_C(500000)
#define DLPI_LOST_MOST_NS UINT64_C(250000000)
#define DLPI_LOST_DOUBLED 5u

/* A moment from `from` to `now` was longer than DLPI_LOST_NS: say how long all waits sleep at
   once. */
DLPI_COLD static void dlpi_wait_lost(uint64_t from, uint64_t now) {
    const uint64_t lost = now - from < DLPI_LOST_MOST_NS ? now - from : DLPI_LOST_MOST_NS;
    const uint64_t tried = DLPI_LOAD_RLX(&dlpi_wait_sleeps); /* LC2 */
    uint32_t doubled = DLPI_LOAD_RLX(&dlpi_wait_doubled);    /* LC3 */
    if (doubled > DLPI_LOST_DOUBLED) doubled = DLPI_LOST_DOUBLED;
    if (from >= tried) { /* else another thread lost its core at the same time */
        const bool at_once = from - tried < lost;
        if (at_once && doubled < DLPI_LOST_DOUBLED) doubled++;
        if (!at_once && doubled > 0) doubled--;
        DLPI_STORE_RLX(&dlpi_wait_doubled, doubled); /* LC3 */
    }
    DLPI_STORE_RLX(&dlpi_wait_sleeps, now + (lost << doubled)); /* LC2 */
}

/* Let a moment pass that began at `from`. Returns the clock behind it. A look is no part of a
   moment: it runs what it finds, which may take long, and may end in vain. */
DLPI_NOINLINE static uint64_t dlpi_wait_moment(bool makes_way, uint64_t from) {
    uint64_t now;
    if (makes_way)
        dlpi_yield();
    else
        dlpi_pause();
    now = dlpi_now_ns();
    if (DLPI_UNLIKELY(now > from + DLPI_LOST_NS)) dlpi_wait_lost(from, now);
    return now;
}

/* Call look(who) again and again before a sleep, a moment apart. Returns true once look does; false
   when its time is over. longer: wait awake (>>impl-awake). shares_core: the thread that is waited
   for may want this core, and a spin would keep it from the core. until: when to stop at the
   latest. */
DLPI_NOINLINE static bool dlpi_wait_awake(bool (*look)(void *who), void *who,
                                          const dlpi_wait_rule *rule, bool longer, bool shares_core,
                                          uint64_t until) {
    const bool makes_way = shares_core || (longer && rule->only_yields);
    uint64_t from = dlpi_now_ns(), now = from;
    uint64_t end = from + (longer ? rule->awake_ns : makes_way ? 0 : rule->spin_ns);
    if (from < DLPI_LOAD_RLX(&dlpi_wait_sleeps)) return false; /* LC2 */
    if (until < end) end = until;
    while (now < end) {
        now = dlpi_wait_moment(makes_way, dlpi_now_ns());
        if (look(who)) return true;
    }
    for (uint32_t i = longer ? 0 : rule->yields; i > 0; i--) {
        from = dlpi_now_ns();
        now = dlpi_wait_moment(true, from);
        if (look(who)) return true;
        if (now >= until || now > from + DLPI_LOST_NS) break;
    }
    return false;
}

/* ---- the wait of a lane's producer or consumer ---- */

typedef struct dlpi_waiter {
    uint32_t *wake_word;
    uint32_t shared, spin_ns, yields;
    bool (*look)(void *handle); /* true: the wait is over, with a record, room or an error */
    void *handle;
} dlpi_waiter;

/* Sleep until w->look returns true. Returns DLP_OK, or DLP_TIMEOUT at the time `until`. */
static int dlpi_await_asleep(const dlpi_waiter *w, uint64_t until) {
    for (;;) {
        uint32_t set = DLPI_OR_SEQ(w->wake_word, DLPI_WAKE_SLEEPER); /* LB3 -> LB1, LB2 */
        set |= DLPI_WAKE_SLEEPER;
        if (!(set & DLPI_WAKE_RMW) && !dlpi_heavy_barrier((int)w->shared)) {
            DLPI_OR_SEQ(w->wake_word, DLPI_WAKE_RMW); /* -> LB1 */
            set |= DLPI_WAKE_RMW;
        }
        int come = w->look(w->handle);
        uint64_t now = come ? 0 : dlpi_now_ns();
        if (come || now >= until) {
            DLPI_AND_SEQ(w->wake_word, ~DLPI_WAKE_SLEEPER); /* takes LB3 back */
            return come ? DLP_OK : DLP_TIMEOUT;
        }
        uint64_t most = until - now < DLPI_SLEEP_MAX_NS ? until - now : DLPI_SLEEP_MAX_NS;
        dlpi_futex_wait(w->wake_word, set, ~0u, most, (int)w->shared);
        if (w->look(w->handle)) { /* before the bit is set again, which would ask for a wake-up */
            if (DLPI_LOAD_RLX(w->wake_word) &
                DLPI_WAKE_SLEEPER) /* LB3, own bit, if no waker took it */
                DLPI_AND_SEQ(w->wake_word, ~DLPI_WAKE_SLEEPER);
            return DLP_OK;
        }
    }
}

/* Wait until w->look returns true, first awake, then asleep. Returns DLP_OK or DLP_TIMEOUT. */
static int dlpi_await(const dlpi_waiter *w, int timeout_ms) {
    const dlpi_wait_rule rule = {.spin_ns = w->spin_ns, .yields = w->yields};
    uint64_t until = UINT64_MAX;
    if (w->look(w->handle)) return DLP_OK;
    if (timeout_ms == DLP_NOWAIT) return DLP_TIMEOUT;
    if (timeout_ms > 0) until = dlpi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    if (dlpi_wait_awake(w->look, w->handle, &rule, false, false, until)) return DLP_OK;
    return dlpi_await_asleep(w, until);
}
