/* Waiting costs nothing, and nobody oversleeps: the processor time of blocked pipes, and waits that
   come near the 100 ms after which a sleeper looks again by itself. */
#include "../../rig/pipe_life.h"

static uint64_t cpu_ns(clockid_t of) {
    struct timespec t;
    clock_gettime(of, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t item_ms;
static int idle_fetch(void *user, dlp_item *it) {
    if (item_ms) sleep_us((int64_t)item_ms * 1000);
    return rig_fetch(user, it);
}

static double idle_seconds(void) { return is_short() ? 0.5 : 1.0; }

/* The share of a core used while the caller does `waits`. */
static double idle_share(dlp_pipe *p, int in_next) {
    uint64_t from, cpu, until;
    dlp_batch *b = NULL;
    from = test_now_ns();
    cpu = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    until = from + (uint64_t)(idle_seconds() * 1e9);
    if (in_next) {
        while (test_now_ns() < until)
            if (dlp_pipe_next_timeout(p, &b, 200) == DLP_OK) dlp_pipe_release(p, b);
    } else {
        sleep_us((int64_t)(idle_seconds() * 1e6));
    }
    return (double)(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (double)(test_now_ns() - from);
}

/* What the machine takes now for 40 bare wake-ups a second, three times over: where its host has
   other work, each costs many times as much, whoever wakes. Of this thread alone: the others are
   what is judged. */
static double wake_share(void) {
    uint64_t cpu = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < 40; i++) sleep_us(10000);
    return 3 * (double)(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - cpu) / 1e9;
}

/* One core is 1. A worker that looks ten times a second takes some 1e-4; one that spins takes 1. A
   sanitizer makes each look dearer. Of up to five measurements one must do: the first may be while
   the workers have yet to begin and to fill the pipe. */
static void is_idle(dlp_pipe *p, int in_next, const char *what, int sleepers) {
    double most = 0.001 * (sleepers > 4 ? sleepers / 4.0 : 1) * (is_short() ? 20 : 1);
    int ok = 0;
    sleep_us(150000); /* the workers fill the pipe and fall asleep */
    for (int tries = 0; tries < 5 && !ok; tries++) {
        double share = idle_share(p, in_next), bare = share < most ? 0 : wake_share();
        double bound = bare > most ? bare : most;
        ok = share < bound;
        if (!ok || getenv("VERBOSE"))
            printf("  %s: %.4f %% of a core, at most %.4f\n", what, share * 100, bound * 100);
    }
    CHECK(ok);
}

static void idle_rig(rig *r, int workers) {
    rig_default(r);
    r->pipe.epochs = DLP_FOREVER;
    r->dataset.fetch = idle_fetch;
    r->fetch.workers.num_workers = workers;
}

static void wait__full_pipe_and_sleeping_caller__no_time(void) {
    static const int workers[] = {1, 4, 16};
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < 3; i++) {
            rig r;
            dlp_pipe *p = NULL;
            char what[64];
            item_ms = 0;
            if (kind == 1 && i != 1) continue;
            idle_rig(&r, workers[i]);
            if (kind == 1) { /* everything that can have a thread has one */
                r.sampler.threaded = r.transfer.workers.num_workers = r.has_transfer = 1;
                r.has_item_map = r.has_batch_map = 1;
                r.item_map.workers.num_workers = 2;
                r.batch_map.workers.num_workers = 2;
                r.fetch.workers.dispatch = DLP_DISPATCH_BATCHES;
            }
            CHECK(rig_start(&r, &p) == DLP_OK);
            snprintf(what, sizeof what, "%d workers, kind %d, caller elsewhere", workers[i], kind);
            is_idle(p, 0, what, kind ? 10 : workers[i]);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

static void wait__caller_in_next_for_slow_items__no_time(void) {
    for (int workers = 2; workers <= 4; workers += 2) {
        rig r;
        dlp_pipe *p = NULL;
        char what[64];
        item_ms = 150;
        idle_rig(&r, workers);
        CHECK(rig_start(&r, &p) == DLP_OK);
        snprintf(what, sizeof what, "%d workers in slow items, caller in next", workers);
        is_idle(p, 1, what, 8);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Sleeps and wakes at random moments. A wake-up that got lost shows as a wait of about 100 ms,
   for then the sleeper looks by itself; other waits are the machine's. */
static uint64_t random_state = 1;
static uint64_t random_below(uint64_t n) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % n;
}

static uint32_t jitter_us;
static int jitter_fetch(void *user, dlp_item *it) {
    uint64_t us = dlp_hash(it->epoch, it->index, it->position, 7) % (jitter_us + 1);
    if (us > jitter_us / 2) sleep_us((int64_t)us);
    return rig_fetch(user, it);
}

static const struct {
    int workers, threaded, in_turn, transfer, maps, unordered;
} wake_kinds[] = {{1, 0, 0, 0, 0, 0}, {2, 0, 0, 0, 0, 0}, {4, 1, 0, 0, 0, 0},  {3, 0, 1, 0, 0, 0},
                  {2, 1, 0, 1, 2, 0}, {2, 0, 1, 1, 2, 1}, {16, 0, 0, 0, 0, 0}, {0, 1, 0, 1, 1, 0}};

/* Enough cycles, and almost none of them late? */
static int wakes_in_time(int kind) {
    uint64_t cycles = 0, late = 0, least = is_short() ? 40 : 320;
    uint64_t from = now_ms(), until = from + (getenv("SOAK") ? 60000 : is_short() ? 300 : 600);
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    idle_rig(&r, wake_kinds[kind].workers);
    r.dataset.fetch = jitter_fetch;
    r.batch.batch_size = 4;
    r.pipe.unordered = wake_kinds[kind].unordered;
    r.sampler.threaded = wake_kinds[kind].threaded;
    r.fetch.workers.dispatch = wake_kinds[kind].in_turn ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    r.has_transfer = r.transfer.workers.num_workers = wake_kinds[kind].transfer;
    r.has_item_map = r.has_batch_map = wake_kinds[kind].maps > 0;
    r.item_map.workers.num_workers = r.batch_map.workers.num_workers = wake_kinds[kind].maps;
    jitter_us = 100;
    CHECK(rig_start(&r, &p) == DLP_OK);
    while (now_ms() < until || (cycles < least && now_ms() < from + 20000)) {
        uint64_t begin = test_now_ns(), took;
        int rc = dlp_pipe_next_timeout(p, &b, 20000);
        took = test_now_ns() - begin;
        if (!CHECK(rc == DLP_OK)) break;
        late += took > 90000000 && took < 150000000;
        if (took > 40000000 && getenv("VERBOSE"))
            printf("  kind %d: %" PRIu64 " us\n", kind, took / 1000);
        cycles++;
        if (random_below(2)) sleep_us((int64_t)random_below(400));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        if (random_below(4) == 0) sleep_us((int64_t)random_below(400));
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(cycles >= least);
    if (late > 1 + cycles / 1000 || getenv("VERBOSE"))
        printf("  kind %d: %" PRIu64 " waits of 100 ms in %" PRIu64 "\n", kind, late, cycles);
    return late <= 1 + cycles / 1000;
}

static void wake__random_moments__none_lost(void) {
    for (int kind = 0; kind < (int)(sizeof wake_kinds / sizeof *wake_kinds); kind++)
        CHECK_ONE_OF_5(wakes_in_time(kind));
}

/* Items become dear after many cheap ones: sleeping workers are woken for them all the same. */
static uint64_t dear_from;
static int turn_fetch(void *user, dlp_item *it) {
    if (it->position >= dear_from) sleep_us(5000);
    return rig_fetch(user, it);
}

static int all_workers_come(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    uint64_t from = 0, took;
    int rc, n = 0;
    idle_rig(&r, 8);
    dear_from = 80 * 8;
    r.pipe.epochs = 1;
    r.batch.batch_size = 8;
    r.dataset.n_items = 140 * 8;
    r.dataset.fetch = turn_fetch;
    CHECK(rig_start(&r, &p) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (n++ == 80)
            from = now_ms();
        else if (n < 80)
            sleep_us(200);
        dlp_pipe_release(p, b);
    }
    took = now_ms() - from;
    CHECK(rc == DLP_END && n == 140);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    /* 59 batches of 8 items of 5 ms: 295 ms with all workers, 2,360 with one */
    if (took >= 295 * 3 || getenv("VERBOSE")) printf("  %" PRIu64 " ms, 295 at best\n", took);
    return took < 295 * 3;
}

static void wake__items_become_slow__all_workers_come(void) { CHECK_ONE_OF_5(all_workers_come()); }

int main(void) {
    rig_warm();
    wait__full_pipe_and_sleeping_caller__no_time();
    wait__caller_in_next_for_slow_items__no_time();
    wake__random_moments__none_lost();
    wake__items_become_slow__all_workers_come();
    return test_end("pipe_idle");
}
