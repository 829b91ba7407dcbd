/* Where a batch takes less than a wake-up, nobody sleeps for each: the sleeps of the whole program
   are counted, by the system, and not timed, so that others on the machine change little of it. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <sched.h>
#include <sys/resource.h>

enum { BATCHES = 2000, ROUNDS = 9 };

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

static uint64_t fetch_ns;
static int fetch(void *user, dlp_item *item) {
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
        .dataset = {.n_items = 1 << 20, .fields = &field, .n_fields = 1, .fetch = fetch},
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

int main(void) {
    wait__for_tiny_batches__is_awake();
    return test_end("pipe_awake");
}
