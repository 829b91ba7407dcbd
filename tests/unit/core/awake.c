/* How many workers are kept awake, by what the consumer has measured and the cores there are; who
   is on whose core; what an item costs; whom a waker finds; in which order one wait goes.
   Where a batch takes less than a wake-up, nobody sleeps for each: the sleeps of the whole program
   are counted, by the system, and not timed, so that others on the machine change little of it.
   Where other programs want the cores, all sleep, and what is timed is how much that gives. */
/* own: inside: what the consumer measures, who shares its core, and lost cores, set by hand */
#define _GNU_SOURCE
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/sanitizers.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { WORKERS = 2, PREFETCH = 16, TAKEN = 10, ROUNDS = 9 };

static int fetch(void *user, dlp_item *item) {
    (void)user;
    *(uint64_t *)item->data[0] = item->index;
    return 0;
}

static dlp_pipe *open_pipe(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_loader_desc d = {
        .dataset = {.n_items = 1 << 20, .fields = &field, .n_fields = 1, .fetch = fetch},
        .batch_size = 4,
        .num_workers = WORKERS,
        .epochs = DLP_FOREVER,
        .pipe = {.prefetch_factor = PREFETCH}};
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    for (int i = 0; i < 2 * TAKEN && p != NULL; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    return p;
}

/* As if the last batches had each kept workers busy for so long, and steps had taken so long, on a
   machine of so many cores. */
static uint32_t kept(dlp_pipe *p, int cpus, uint64_t batch_ns, uint64_t step_ns) {
    dlpi_awake *a = &p->awake;
    int was = p->cpus;
    uint64_t busy = 0;
    for (int i = 0; i < p->n_workers; i++) busy += DLPI_LOAD_RLX(&p->workers[i].block->busy_ns);
    a->batch_ns = a->step_ns = 0;
    a->delivered = p->ctl->delivered - TAKEN;
    a->busy_ns = busy - TAKEN * batch_ns;
    a->steps_ns = p->ctl->step_ns - TAKEN * step_ns;
    p->cpus = cpus;
    a->fits = dlpi_wait_fits(p);
    dlpi_awake_note(p);
    p->cpus = was;
    return p->ctl->keep_awake;
}

static void awake__cores_for_all__as_many_as_batches_want(void) {
    dlp_pipe *p = open_pipe();
    if (p == NULL) return;
    test_pause(100000000); /* workers have nothing to do, and change nothing */
    CHECK(kept(p, 16, 100, 1000) == 1);
    CHECK(kept(p, 16, 5000, 1000) == PREFETCH * 5000 / DLPI_WAKE_NS + 1);
    CHECK(kept(p, WORKERS + 1, 5000, 1000) > 1);
    CHECK(kept(p, WORKERS, 5000, 1000) == WORKERS);
    CHECK(kept(p, 1, 100, 1000) == 1); /* on one core they yield to each other */
    CHECK(kept(p, 16, 20000, 1000) == 0);
    CHECK(kept(p, 16, 20000, 1000) != 0); /* asleep, wake-ups are part of what a batch takes */
    CHECK(kept(p, 16, 20000, 1000) == 0);
    CHECK(kept(p, 16, 25000, 1000) == 0);
    CHECK(kept(p, 16, 100, 20000) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* If more workers wait awake than have a core, all that wait yield. */
static void awake__cores_for_some__all_yield(void) {
    dlp_pipe *p = open_pipe();
    dlpi_waiters mine = {0};
    if (p == NULL) return;
    test_pause(100000000);
    if (p->cpus == 1) p->cpus = 2;
    p->ctl->consumer_cpu = UINT32_MAX;
    CHECK(kept(p, WORKERS + 1, 5000, 1000) <= p->awake.fits);
    CHECK(!dlpi_awake_shares_core(p, &mine));
    CHECK(kept(p, WORKERS, 5000, 1000) > p->awake.fits);
    CHECK(dlpi_awake_shares_core(p, &mine));
    p->n_staffed = 2; /* as if another stage had workers, too */
    CHECK(kept(p, WORKERS, 5000, 1000) == 0 && !dlpi_awake_shares_core(p, &mine));
    p->n_staffed = 1;
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* While one worker is kept awake, each of many feeds puts wake-ups off. If that worker blocks, the
   consumer makes up for all of them. */
static void awake__many_feeds__all_that_was_put_off_is_woken(void) {
    const uint64_t made_up = 0x3ffff0; /* workers 4..21, which sleep; 2 and 3 are awake */
    dlp_pipe *p = open_pipe();
    dlpi_sleepers *s;
    if (p == NULL) return;
    s = &p->waiters[0].group[0].at;
    p->work[0]->n_workers = 22;
    DLPI_STORE_SEQ(&p->waiters[0].active, 22u);
    dlpi_sleepers_enter(s, made_up);
    DLPI_STORE_RLX(&p->ctl->keep_awake, 1u);
    p->awake.put_off = 0;
    for (int i = 0; i < 3; i++) CHECK(dlpi_wake_now(p, 5) == 0);
    dlpi_wake_put_off(p); /* 15, of which two may be workers that are not made up */
    CHECK(__builtin_popcountll(dlpi_sleepers_mask(s) & made_up) <= 18 - 13);
    for (int i = 0; i < 100; i++) CHECK(dlpi_wake_now(p, 5) == 0);
    CHECK(p->awake.put_off >= 22 && p->awake.put_off < 44);
    dlpi_sleepers_leave(s, made_up);
    DLPI_STORE_SEQ(&p->waiters[0].active, (uint32_t)WORKERS);
    p->work[0]->n_workers = WORKERS;
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int keep(void *user, dlp_item *item) {
    return item->index & 1 ? DLP_SKIP : fetch(user, item);
}

/* What workers said of their cores is known until the second estimate after it. A worker does not
   count what its own stage said. */
static void awake__cores_of_workers__are_known_for_two_estimates(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_loader_desc d = {
        .dataset = {.n_items = 100, .fields = &field, .n_fields = 1, .fetch = keep, .filter = 1},
        .batch_size = 4,
        .num_workers = 1};
    const uint64_t core = UINT64_C(1) << 40, other = 2;
    dlp_pipe *p = NULL;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    if (p == NULL) return;
    test_pause(100000000);
    CHECK(p->n_staffed > 0);
    if (p->cpus == 1) p->cpus = 2; /* there all are on the same */
    for (int k = 0; k < 2 * TAKEN; k++) kept(p, 16, 5000, 1000);
    for (int i = 0; i < p->n_staffed; i++) {
        dlpi_waiters *stage = &p->waiters[i];
        CHECK(!dlpi_awake_beside(p, NULL, core));
        DLPI_STORE_RLX(&stage->cores, core);
        CHECK(dlpi_awake_beside(p, NULL, core) && !dlpi_awake_beside(p, NULL, other));
        CHECK(!dlpi_awake_beside(p, stage, core));
        kept(p, 16, 5000, 1000);
        CHECK(dlpi_awake_beside(p, NULL, core));
        CHECK(DLPI_LOAD_RLX(&stage->cores) == 0);
        kept(p, 16, 5000, 1000);
    }
    dlpi_awake_here(&p->waiters[0]);
    CHECK(dlpi_awake_beside(p, NULL, UINT64_MAX));
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static uint64_t average(uint64_t was, uint64_t each, uint64_t units) {
    static dlpi_worker_block block;
    block.item_ns = was;
    dlpi_item_took(&block, each, units);
    return block.item_ns;
}

/* Many cheap units at once bring a bad beginning down at once; one dear sample counts an eighth,
   since its worker may have lost the core. */
static void item_cost__samples_of_many_units__weigh_by_them_downwards(void) {
    CHECK(average(0, 5000, 1) == 5000 && average(0, 0, 1) == 1);
    CHECK(average(8000, 80, 1) == 7010);
    CHECK(average(8000, 80, 4) == 4040);
    CHECK(average(8000, 80, 8) == 80 && average(8000, 80, 32) == 80);
    CHECK(average(80, 8000, 1) == 1070 && average(80, 8000, 32) == 1070);
}

/* As if 31 calls of next had not been timed, and 32 calls had taken 32 * each ns. The timed call
   before had fetched inline for inline_ns. Returns what is told as steps; the rest is a wait. */
static uint64_t steps_of(dlp_pipe *p, uint64_t each, uint64_t inline_ns) {
    const uint64_t steps = p->ctl->step_ns, waits = p->ctl->wait_ns;
    const uint64_t from = p->pace.last_return_ns;
    p->pace.calls_untimed = 31;
    p->pace.inline_ns = inline_ns;
    dlpi_consumer_step(p, from + 32 * each);
    CHECK(p->ctl->step_ns - steps + p->ctl->wait_ns - waits == 32 * each);
    return p->ctl->step_ns - steps;
}

static void pace__all_inline__calls_that_are_not_timed_work_as_long_as_the_timed_one(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_loader_desc d = {
        .dataset = {.n_items = 1 << 20, .fields = &field, .n_fields = 1, .fetch = fetch},
        .batch_size = 4};
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(steps_of(p, 400, 300) == 32 * 400 - 31 * 300 && p->pace.call_clock_every == 32);
    CHECK(steps_of(p, 400, 420) == 0); /* the clock makes the timed call longer */
    CHECK(steps_of(p, 400, 4000) == 0 && p->pace.call_clock_every == 4);
    CHECK(steps_of(p, 400, 8000) == 0 && p->pace.call_clock_every == 1);
    CHECK(steps_of(p, 3000, 300) == 32 * 3000 - 31 * 300 && p->pace.call_clock_every == 1);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- sleepers ---- */

static void sleepers__one_that_waits_for_a_batch__is_woken_for_it_alone(void) {
    dlpi_sleepers s = {0};
    dlpi_sleepers_wake_for(&s, DLPI_ANY);
    CHECK(s.word == 0); /* nobody sleeps */
    dlpi_sleepers_enter(&s, 7 + 1);
    dlpi_sleepers_wake_for(&s, 6);
    dlpi_sleepers_wake_for(&s, 8);
    CHECK(s.mask == 8 && s.word == 0);
    dlpi_sleepers_wake_for(&s, 7);
    CHECK(s.mask == 0 && s.word == 1 && dlpi_sleepers_leave(&s, 7 + 1));
    dlpi_sleepers_enter(&s, DLPI_ANY - 1); /* no batch, but all else */
    dlpi_sleepers_wake_for(&s, 7);
    CHECK(s.word == 1);
    dlpi_sleepers_wake_for(&s, DLPI_ANY);
    CHECK(s.mask == 0 && s.word == 2);
    dlpi_sleepers_enter(&s, DLPI_ANY);
    CHECK(!dlpi_sleepers_leave(&s, DLPI_ANY) && s.mask == 0); /* nobody woke it */
}

static void sleepers__of_64__woken_in_turn(void) {
    const uint64_t low = 1u << 3, high = UINT64_C(1) << 40;
    dlpi_sleepers s = {.mask = low | high, .word = 10};
    dlpi_sleepers_wake_next(&s);
    CHECK(s.mask == low && s.word == 11);
    dlpi_sleepers_wake_next(&s);
    CHECK(s.mask == 0 && s.word == 12);
    dlpi_sleepers_wake_next(&s);
    CHECK(s.word == 12);
    CHECK(dlpi_sleepers_bits(high) == 1u << 8 && dlpi_sleepers_bits(0) == UINT32_MAX);
}

static void sleepers__more_than_there_is_work__so_many_are_woken(void) {
    dlpi_sleepers s = {.mask = 0x96};
    CHECK(dlpi_sleepers_wake(&s, 2) == 0 && s.mask == 0x90 && s.word == 1);
    CHECK(!dlpi_sleepers_wake_one(&s, 2) && s.word == 1);
    CHECK(dlpi_sleepers_wake_one(&s, 0x10) && s.mask == 0x80 && s.word == 2);
    CHECK(dlpi_sleepers_wake(&s, 3) == 2 && s.mask == 0 && s.word == 3);
    s.mask = 5;
    dlpi_sleepers_ring(&s, 0);
    CHECK(s.mask == 5 && s.word == 4); /* by the word alone */
}

/* ---- one wait ---- */

typedef struct waiter {
    dlpi_sleepers s;
    int looks, lasts, rests, lefts;
    int come; /* it comes before this look */
    int dull; /* 1: `last` sees nothing; 2: and somebody wakes meanwhile */
    uint64_t ns;
    bool woken;
} waiter;

static bool look(void *who) {
    waiter *w = who;
    return ++w->looks >= w->come;
}

static uint64_t rest(void *who) {
    waiter *w = who;
    w->rests++;
    CHECK(w->s.mask == 0);
    return w->ns;
}

static bool last(void *who) {
    waiter *w = who;
    w->lasts++;
    CHECK(w->s.mask == 4); /* it is announced before the look */
    if (w->dull == 2) dlpi_sleepers_wake_all(&w->s);
    return w->dull == 0;
}

static void left(void *who, bool woken) {
    waiter *w = who;
    w->lefts++;
    w->woken = woken;
    CHECK(w->s.mask == 0);
}

static const dlpi_wait_ops waits = {look, rest, last, left};

static uint64_t asleep_ns(waiter *w) {
    const uint64_t from = test_now_ns();
    dlpi_wait_asleep(&waits, w, &w->s, 4);
    return test_now_ns() - from;
}

static void wait__last_look_finds_it__does_not_sleep(void) {
    waiter w = {.come = 1, .ns = UINT64_C(20000000000)};
    CHECK(asleep_ns(&w) < UINT64_C(10000000000));
    CHECK(w.rests == 1 && w.lasts == 1 && w.lefts == 1 && w.looks == 1 && !w.woken);
}

static void wait__woken_before_it_sleeps__does_not_sleep(void) {
    waiter w = {.come = 3, .dull = 2, .ns = UINT64_C(20000000000)};
    CHECK(asleep_ns(&w) < UINT64_C(10000000000));
    CHECK(w.rests == 3 && w.lasts == 3 && w.looks == 3 && w.woken && w.s.word == 3);
}

static void wait__nobody_wakes__sleeps_as_long_as_it_may(void) {
    waiter w = {.come = 2, .dull = 1, .ns = 20000000};
    CHECK(asleep_ns(&w) >= 40000000);
    CHECK(w.rests == 2 && w.lefts == 2 && !w.woken);
}

static void wait__may_not_sleep__says_nothing(void) {
    waiter w = {.come = 5};
    CHECK(asleep_ns(&w) < UINT64_C(10000000000));
    CHECK(w.rests == 5 && w.lasts == 0 && w.lefts == 0 && w.looks == 5);
}

static uint64_t awake_ns(const dlpi_wait_rule *rule, bool longer, bool shares_core, uint64_t ns,
                         waiter *w) {
    const uint64_t from = test_now_ns(), until = ns == 0 ? UINT64_MAX : dlpi_now_ns() + ns;
    DLPI_STORE_RLX(&dlpi_wait_sleeps, (uint64_t)0);
    const bool over = dlpi_wait_awake(look, w, rule, longer, shares_core, until);
    CHECK(over == (w->looks >= w->come));
    return test_now_ns() - from;
}

static void wait__awake__as_long_as_the_rule_says(void) {
    const dlpi_wait_rule rule = {.spin_ns = 3000000, .yields = 7, .awake_ns = 9000000};
    const dlpi_wait_rule never = {.yields = 1000000000};
    waiter w[6];
    for (int i = 0; i < 6; i++) w[i] = (waiter){.come = INT_MAX};
    w[1].come = 5;
    CHECK(awake_ns(&rule, false, false, 0, &w[0]) >= 3000000 && w[0].looks > 7);
    awake_ns(&rule, false, false, 0, &w[1]);
    CHECK(w[1].looks == 5 || dlpi_wait_sleeps != 0); /* or another program had the core */
    awake_ns(&rule, false, true, 0, &w[2]);
    /* It yields, and does not spin; but for a yield in which another program had the core. */
    CHECK(w[2].looks == 7 || (w[2].looks < 7 && dlpi_wait_sleeps != 0));
    CHECK(awake_ns(&rule, true, true, 0, &w[3]) >= 9000000 && w[3].looks > 0);
    CHECK(awake_ns(&rule, true, false, 1000000, &w[4]) >= 1000000);
    CHECK(awake_ns(&never, false, false, 2000000, &w[5]) < UINT64_C(10000000000));
}

/* A look takes 2 ms at look `lasts`: work, or another program has the core. */
static bool look_long(void *who) {
    waiter *w = who;
    w->looks++;
    if (w->looks == w->lasts) test_pause(2000000);
    return w->looks >= w->come;
}

/* Wait awake, with a long look at `lasts`; it comes at look `come`. Returns the looks. */
static int looks_long(const dlpi_wait_rule *rule, int lasts, int come) {
    waiter w = {.lasts = lasts, .come = come};
    CHECK(dlpi_wait_awake(look_long, &w, rule, false, false, UINT64_MAX) == (w.looks >= come));
    return w.looks;
}

/* Let a moment pass that began `ns` ago, and `awake` ns after all had last slept at once. Returns
   for how long all sleep at once now. */
static uint64_t sleeps_after(bool makes_way, uint64_t ns, uint64_t awake) {
    const uint64_t from = dlpi_now_ns() - ns;
    DLPI_STORE_RLX(&dlpi_wait_sleeps, from > awake ? from - awake : 0);
    const uint64_t before = dlpi_wait_sleeps, now = dlpi_wait_moment(makes_way, from);
    return dlpi_wait_sleeps == before ? 0 : dlpi_wait_sleeps - now;
}

/* Check that a loss of 2 ms, so long after a sleep, lets all sleep for 2^doubled times as long. */
static void check_doubled(bool makes_way, uint64_t awake, uint32_t doubled) {
    CHECK(sleeps_after(makes_way, 2000000, awake) >= UINT64_C(2000000) << doubled);
    CHECK(dlpi_wait_doubled == doubled);
}

static void wait__core_was_lost__sleeps_at_once_for_a_while(void) {
    const dlpi_wait_rule yields = {.yields = 9}, spins = {.spin_ns = 30000000};
    const uint64_t at_once = 100000, later = 1000000000;
    for (int spin = 0; spin < 2; spin++) {
        const dlpi_wait_rule *rule = spin ? &spins : &yields;
        DLPI_STORE_RLX(&dlpi_wait_doubled, 0u);
        check_doubled(spin == 0, later, 0);
        CHECK(looks_long(rule, 0, 1) == 0); /* whoever waits now sleeps at once */
        DLPI_STORE_RLX(&dlpi_wait_sleeps, dlpi_now_ns());
        CHECK(looks_long(rule, 0, 1) == 1); /* the time is over */
        for (uint32_t i = 1; i < 8; i++) check_doubled(spin == 0, at_once, i < 5 ? i : 5);
        check_doubled(spin == 0, later, 4);
        check_doubled(spin == 0, at_once, 5);
        /* two threads lost their cores at the same time: that is one loss */
        DLPI_STORE_RLX(&dlpi_wait_sleeps, dlpi_now_ns() + later);
        dlpi_wait_moment(spin == 0, dlpi_now_ns() - 2000000);
        CHECK(dlpi_wait_doubled == 5);
        DLPI_STORE_RLX(&dlpi_wait_doubled, UINT32_MAX); /* a hint, whatever it says */
        check_doubled(spin == 0, later, 4);
        /* the process was stopped for a second or longer */
        DLPI_STORE_RLX(&dlpi_wait_doubled, 0u);
        CHECK(dlpi_now_ns() / 2 < later ||
              sleeps_after(spin == 0, later, later) == DLPI_LOST_MOST_NS);
        CHECK(sleeps_after(spin == 0, dlpi_now_ns() / 2, 0) <= 2 * DLPI_LOST_MOST_NS);
        DLPI_STORE_RLX(&dlpi_wait_doubled, 0u);
    }
}

/* A look runs what it finds, and that may not end the wait: next looks on where no batch is whole
   yet. In a yield a worker may run some batches. That is no lost core. Another program may have the
   core in one of these moments, but not in most of them. */
static void wait__work_of_the_pipe__is_no_lost_core(void) {
    const dlpi_wait_rule yields = {.yields = 9}, spins = {.spin_ns = 30000000};
    int told = 0, told_on = 0, yielded = 0;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        yielded += sleeps_after(true, 400000, UINT64_C(1000000000)) != 0;
        DLPI_STORE_RLX(&dlpi_wait_sleeps, (uint64_t)0);
        looks_long(round % 2 ? &yields : &spins, 1, 1);
        told += dlpi_wait_sleeps != 0;
        DLPI_STORE_RLX(&dlpi_wait_sleeps, (uint64_t)0);
        CHECK(looks_long(round % 2 ? &yields : &spins, 1, 3) > 1);
        told_on += dlpi_wait_sleeps != 0;
    }
    CHECK(told < ROUNDS && told_on < ROUNDS && yielded < ROUNDS);
}

/* ---- whole pipes ---- */

enum { BATCHES = 2000 };

/* Times a thread of this process gave up its core to wait. A yield is none. */
static uint64_t sleeps(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)u.ru_nvcsw;
}

static void busy(uint64_t ns) {
    uint64_t until = test_now_ns() + ns;
    while (ns > 0 && test_now_ns() < until) {}
}

/* Wait for a batch that does not come, as if more workers waited awake than have a core. beside: as
   if a worker was on each core. Returns how often the consumer slept. */
static long sleeps_crowded(dlp_pipe *p, bool beside) {
    struct rusage before, after;
    dlp_batch *b = NULL;
    p->cpus = 2;
    p->awake.fits = 1;
    p->wait.awake_ns = 1000000000;
    DLPI_STORE_RLX(&p->ctl->keep_awake, 2u);
    p->awake.cores = beside ? UINT64_MAX : 0;
    for (int i = 0; i < p->n_staffed; i++) DLPI_STORE_RLX(&p->waiters[i].cores, (uint64_t)0);
    DLPI_STORE_RLX(&dlpi_wait_sleeps, (uint64_t)0);
    CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
    CHECK(dlp_pipe_next_timeout(p, &b, 20) == DLP_TIMEOUT);
    CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
    return after.ru_nvcsw - before.ru_nvcsw;
}

static int gate;
static int fetch_gated(void *user, dlp_item *item) {
    while (DLPI_LOAD_ACQ(&gate) == 0) test_pause(1000000);
    return fetch(user, item);
}

/* If no worker was on the consumer's core, the consumer leaves the core to them. */
static void awake__no_worker_on_the_consumers_core__it_sleeps_at_once(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_loader_desc d = {
        .dataset = {.n_items = 100, .fields = &field, .n_fields = 1, .fetch = fetch_gated},
        .batch_size = 4,
        .num_workers = WORKERS};
    dlp_pipe *p = NULL;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    if (p == NULL) return;
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(sleeps_crowded(p, false) >= 1);
        /* it yields; but after a yield in which another program had the core, it sleeps */
        CHECK(sleeps_crowded(p, true) == 0 || dlpi_wait_sleeps != 0);
    }
    DLPI_STORE_REL(&gate, 1);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static uint64_t fetch_ns;
static int fetch_busy(void *user, dlp_item *item) {
    (void)user;
    busy(fetch_ns);
    *(uint64_t *)item->data[0] = item->index;
    return 0;
}

static int by_size(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

/* Sleeps for each batch in the middle one of some rounds: others may keep the worker from its core
   for longer than anybody waits awake, but not in most of them. */
static double sleeps_a_batch(dlp_pipe *p, uint64_t step_ns) {
    double each[ROUNDS];
    dlp_batch *b = NULL;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t from = sleeps();
        for (int i = 0; i < BATCHES; i++) {
            if (dlp_pipe_next_timeout(p, &b, 20000) != DLP_OK) return 1e9;
            busy(step_ns);
            DLPI_STORE_RLX(&dlpi_wait_sleeps, (uint64_t)0);
            dlp_pipe_release(p, b);
        }
        each[round] = (double)(sleeps() - from) / BATCHES;
    }
    qsort(each, ROUNDS, sizeof *each, by_size);
    return each[ROUNDS / 2];
}

static double tiny_batches(uint32_t batch_size, int32_t prefetch, uint64_t fetch_takes,
                           uint64_t step_ns) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_loader_desc d = {
        .dataset = {.n_items = 1 << 20, .fields = &field, .n_fields = 1, .fetch = fetch_busy},
        .batch_size = batch_size,
        .num_workers = 1,
        .epochs = DLP_FOREVER,
        .pipe = {.prefetch_factor = prefetch}};
    dlp_pipe *p = NULL;
    double each = 1e9;
    fetch_ns = fetch_takes;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    if (p == NULL) return each;
    each = sleeps_a_batch(p, step_ns);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return each;
}

/* Both wait for each other, for less than a wake-up takes; or the worker waits for a step. Where
   there is a core for each, a spin may do for the one or the other; on one core nobody spins, and
   asleep it is about one sleep for each batch. */
static void wait__for_tiny_batches__is_awake(void) {
    for (int one_core = 0; one_core < 2; one_core++) {
        double each[2];
        cpu_set_t all, one;
        CPU_ZERO(&one);
        CPU_SET((size_t)sched_getcpu(), &one);
        CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
        if (one_core) CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        each[0] = tiny_batches(1, 1, 300, 300);
        each[1] = tiny_batches(8, 2, 0, 3000);
        for (int i = 0; i < 2; i++) {
            if (each[i] > 0.1 || getenv("VERBOSE"))
                printf("  %s, kind %d: %g sleeps a batch\n", one_core ? "one core" : "any core", i,
                       each[i]);
            CHECK(each[i] <= 0.1);
        }
        CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    }
}

/* Begin a process that computes without end on this core. */
static pid_t other_program(void) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) busy(1000000);
}

/* Return how many batches come in 0.2 s. forgets: as if no core was ever lost. */
static double batches_beside(dlp_pipe *p, bool forgets) {
    const uint64_t until = test_now_ns() + 200000000;
    dlp_batch *b = NULL;
    double n = 0;
    for (; test_now_ns() < until; n++) {
        if (forgets) DLPI_STORE_RLX(&dlpi_wait_sleeps, (uint64_t)0);
        if (dlp_pipe_next_timeout(p, &b, 20000) != DLP_OK) return 0;
        dlp_pipe_release(p, b);
    }
    return n;
}

/* On one core with two programs that compute, a yield costs their time slices, and a sleep does
   not. */
static void wait__beside_busy_programs__sleeps(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_loader_desc d = {
        .dataset = {.n_items = 1 << 20, .fields = &field, .n_fields = 1, .fetch = fetch_busy},
        .batch_size = 1,
        .num_workers = 1,
        .epochs = DLP_FOREVER};
    double gain[5];
    cpu_set_t all, one;
    dlp_pipe *p = NULL;
    pid_t others[2];
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int i = 0; i < 2; i++) others[i] = other_program();
    fetch_ns = 0;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    for (int round = 0; round < 5; round++) {
        const double yields = batches_beside(p, true);
        gain[round] = batches_beside(p, false) / yields;
        if (getenv("VERBOSE")) printf("  %g batches by yields, gain %g\n", yields, gain[round]);
    }
    qsort(gain, 5, sizeof *gain, by_size);
    CHECK(gain[2] >= 2);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    for (int i = 0; i < 2; i++)
        CHECK(kill(others[i], SIGKILL) == 0 && waitpid(others[i], NULL, 0) > 0);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

int main(void) {
    awake__cores_for_all__as_many_as_batches_want();
    awake__cores_for_some__all_yield();
    awake__many_feeds__all_that_was_put_off_is_woken();
    awake__cores_of_workers__are_known_for_two_estimates();
    item_cost__samples_of_many_units__weigh_by_them_downwards();
    pace__all_inline__calls_that_are_not_timed_work_as_long_as_the_timed_one();
    sleepers__one_that_waits_for_a_batch__is_woken_for_it_alone();
    sleepers__of_64__woken_in_turn();
    sleepers__more_than_there_is_work__so_many_are_woken();
    wait__last_look_finds_it__does_not_sleep();
    wait__woken_before_it_sleeps__does_not_sleep();
    wait__nobody_wakes__sleeps_as_long_as_it_may();
    wait__may_not_sleep__says_nothing();
    wait__awake__as_long_as_the_rule_says();
    wait__core_was_lost__sleeps_at_once_for_a_while();
    wait__work_of_the_pipe__is_no_lost_core();
    awake__no_worker_on_the_consumers_core__it_sleeps_at_once();
    if (!RIG_TSAN && !RIG_ASAN) { /* there a batch takes longer than a wake-up */
        wait__for_tiny_batches__is_awake();
        wait__beside_busy_programs__sleeps();
    }
    return test_end("awake");
}
