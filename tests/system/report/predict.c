/* What a measured pipe would do with other workers, foretold and then done. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include <signal.h>
#include <sys/wait.h>

static void sleep_ns(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What a pipe of a test takes, in us. */
typedef struct work {
    int item, slow_item, slow_of_16; /* that many of 16 items are slow */
    int collate, step;
    int workers, batch_workers, prefetch, batches;
} work;

static int work_fetch(void *user, dlp_item *it) {
    const work *w = user;
    int slow = (int)(dlp_item_random(it, 1) & 15) < w->slow_of_16;
    sleep_ns((uint64_t)(slow ? w->slow_item : w->item) * 1000u);
    return rig_fetch(NULL, it);
}

static int work_collate(void *user, dlp_collate *c) {
    const work *w = user;
    sleep_ns((uint64_t)w->collate * 1000u);
    return dlp_collate_pad(NULL, c);
}

/* Run it; stats of all but nothing of the end. */
static int run(const work *w, dlp_stats *out) {
    dlp_loader_desc d = {.dataset = {.n_items = 1u << 20,
                                     .fields = rig_fields,
                                     .n_fields = 2,
                                     .fetch = work_fetch,
                                     .user = (void *)(uintptr_t)w},
                         .batch_size = 8,
                         .num_workers = w->workers,
                         .epochs = 1};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int ok;
    if (w->collate) {
        d.collate = work_collate;
        d.collate_user = (void *)(uintptr_t)w;
        d.batch_workers.num_workers = w->batch_workers;
    }
    d.pipe.prefetch_factor = w->prefetch;
    if (dlp_loader_open(&p, &d, NULL) != DLP_OK) return 0;
    for (int i = 0; i < w->batches; i++) {
        if (dlp_pipe_next_timeout(p, &b, 20000) != DLP_OK) break;
        if (w->step) sleep_ns((uint64_t)w->step * 1000u);
        dlp_pipe_release(p, b);
    }
    ok = dlp_pipe_stats(p, out) == DLP_OK && out->batches == (uint64_t)w->batches;
    return dlp_pipe_close(p) == DLP_OK && ok;
}

static double rate_of(const dlp_stats *s) {
    return (double)s->items * 1e9 / (double)(s->wait_ns + s->step_ns);
}

/* Did sleeps last about as long as they should? On a machine that is busy with other things they
   do at one time and not at another, and no run foretells another. */
static int undisturbed(const work *w, const dlp_stats *s) {
    double item = (w->item * (16 - w->slow_of_16) + w->slow_item * w->slow_of_16) / 16.0;
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        double us = g->kind == DLP_STAGE_FETCH ? item : w->collate;
        if (g->items == 0 || g->busy_ns == 0) continue;
        if ((double)g->busy_ns / (double)g->items > (us * 1.1 + 120) * 1000) return 0;
    }
    return (double)s->step_ns / (double)s->batches < (w->step * 1.1 + 120) * 1000;
}

static uint64_t judge_until; /* so that a busy machine does not hold up the tests */

/* Foretell from `from`, do `to`, compare. Five tries, of which one must do; where fewer than three
   of twenty were undisturbed, nothing is to be learned. */
static void foretold(const char *name, const work *from, const work *to, double within) {
    dlp_predict_desc d = {.num_workers = to->workers,
                          .batch_workers = to->batch_workers,
                          .prefetch_factor = (uint32_t)to->prefetch,
                          .step_idle = 1};
    dlp_stats before, after;
    dlp_predict p;
    double off = 99;
    int tries = 0;
    if (to->step != from->step) d.step_ns = to->step ? to->step * 1000 : DLP_NONE;
    for (int round = 0; round < 20 && tries < 5 && off > within; round++) {
        if (tries == 0 && test_now_ns() >= judge_until) break;
        int ran = run(from, &before) && run(to, &after);
        CHECK(ran);
        if (!ran || !undisturbed(from, &before) || !undisturbed(to, &after)) continue;
        tries++;
        CHECK(dlp_stats_predict(&before, &d, &p) == DLP_OK);
        off = p.items_per_s / rate_of(&after) - 1;
        printf("%-24s %2d workers: foretold %6.0f items/s, then measured %6.0f: %+.1f %%; consumer "
               "waits %.0f, %.0f %%\n",
               name, to->workers, p.items_per_s, rate_of(&after), 100 * off, 100 * p.wait_share,
               100 * (double)after.wait_ns / (double)(after.wait_ns + after.step_ns));
        off = off < 0 ? -off : off;
    }
    if (off > within && tries < 3) printf("%-24s not judged: the machine is too busy\n", name);
    CHECK(tries < 3 || off <= within);
}

static void predict__sleeping_fetch__as_then_measured(void) {
    work from = {.item = 1000, .workers = 2, .prefetch = 4, .batches = 60}, to = from;
    to.workers = 3;
    foretold("even, one more", &from, &to, 0.2);
    to.workers = 4;
    foretold("even, twice", &from, &to, 0.2);
}

static void predict__mixed_costs__as_then_measured(void) {
    work from = {.item = 400,
                 .slow_item = 6000,
                 .slow_of_16 = 2,
                 .workers = 3,
                 .prefetch = 2,
                 .batches = 60},
         to = from;
    to.workers = 4;
    foretold("mixed, one more", &from, &to, 0.2);
    to.workers = 6;
    foretold("mixed, twice", &from, &to, 0.25);
    to.workers = 6;
    to.prefetch = 8;
    foretold("mixed, twice, prefetch 8", &from, &to, 0.25);
}

static void predict__slow_collate_or_steps__as_then_measured(void) {
    work from = {.item = 100,
                 .collate = 4000,
                 .step = 500,
                 .workers = 4,
                 .batch_workers = 1,
                 .prefetch = 4,
                 .batches = 40},
         to = from;
    to.batch_workers = 2;
    foretold("collate, one more", &from, &to, 0.2);
    from.collate = 0;
    from.item = 500;
    from.step = 300;
    from.workers = 2;
    to = from;
    to.workers = 4;
    to.step = 3000;
    foretold("steps ten times as long", &from, &to, 0.2);
}

/* ---- stats by hand: what must come out is known ---- */

static dlp_stats stats_of(uint32_t rows, double item_ns, double cpu, int workers, double step_ns) {
    dlp_stats s;
    dlp_stage_stats *g = &s.stages[1];
    memset(&s, 0, sizeof s);
    s.batches = 1000;
    s.items = 1000u * rows;
    s.batch_size = rows;
    s.prefetch_factor = 4;
    s.max_held = 1;
    s.cpus = 64;
    s.n_stages = 2;
    s.stages[0].kind = DLP_STAGE_SAMPLER;
    g->kind = DLP_STAGE_FETCH;
    g->workers = workers;
    g->items = s.items;
    g->busy_ns = (uint64_t)(item_ns * (double)s.items);
    g->cpu_ns = (uint64_t)(cpu * (double)g->busy_ns) + 1;
    g->p50_ns = g->p95_ns = g->p99_ns = g->max_ns = (uint64_t)item_ns;
    s.step_ns = (uint64_t)(step_ns * 1000);
    s.wait_ns = g->busy_ns / (uint64_t)(workers > 0 ? workers : 1);
    return s;
}

static double foretell(const dlp_stats *s, dlp_predict_desc d, dlp_predict *p) {
    memset(p, 0, sizeof *p);
    CHECK(dlp_stats_predict(s, &d, p) == DLP_OK);
    return p->items_per_s;
}

static int about(double is, double want) {
    int ok = is > 0.97 * want && is < 1.03 * want;
    if (!ok) printf("  %g, not about %g\n", is, want);
    return ok;
}

static void predict__stats_by_hand__what_must_be(void) {
    dlp_stats s = stats_of(32, 1e6, 0, 1, 0);
    dlp_predict p;
    CHECK(about(foretell(&s, (dlp_predict_desc){0}, &p), 1000));
    CHECK(about(p.busy_share[1], 1) && about(1 + p.cores, 1) && about(p.wait_share, 1));
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 8}, &p), 8000));
    CHECK(about(foretell(&s, (dlp_predict_desc){.workers = {0, 8}, .num_workers = 2}, &p), 8000));
    /* of 128 items in flight no more can be in work; then a batch at a time */
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 500}, &p), 128000));
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 500, .prefetch_factor = 1}, &p),
                32000));
    CHECK(
        about(foretell(&s, (dlp_predict_desc){.num_workers = 32, .step_ns = 10000000}, &p), 3200));
    CHECK(about(1 + p.wait_share, 1));
    /* steps and inline work take turns */
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = DLP_NONE, .step_ns = 32000000}, &p),
                500));
    CHECK(about(p.wait_share, 0.5) && about(p.busy_share[1], 0.5));
    /* work that computes has no more than the cores, of which steps take one */
    s = stats_of(32, 1e6, 1, 2, 0);
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 16, .cpus = 4}, &p), 4000));
    CHECK(about(p.cores, 4));
    CHECK(about(foretell(&s,
                         (dlp_predict_desc){
                             .num_workers = 16, .cpus = 4, .step_idle = 1, .step_ns = 4000000},
                         &p),
                4000));
    s = stats_of(32, 1e6, 0.5, 2, 0); /* half of it waits */
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 4, .cpus = 4}, &p), 4000));
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 64, .cpus = 4}, &p), 8000));
    s = stats_of(256, 500, 1, 1, 0); /* short items: a run costs something too */
    CHECK(foretell(&s, (dlp_predict_desc){0}, &p) < 2e6 && p.items_per_s > 1.8e6);
    s = stats_of(1u << 16, 500, 1, 4, 0);
    CHECK(foretell(&s, (dlp_predict_desc){0}, &p) < 8e6 && p.items_per_s > 7e6);
}

static const char *words_of(const dlp_stats *s) {
    static char words[4096];
    CHECK(dlp_stats_explain(s, words, sizeof words) > 0);
    return words;
}

/* Others have half of the two cores that two workers would fill. */
static void predict__others_have_the_cores__no_gain(void) {
    dlp_stats s = stats_of(32, 1e6, 0.5, 2, 0);
    dlp_predict p;
    s.cpus = 2;
    CHECK(strstr(words_of(&s), "raise num_workers; 3 should give about 3000") != NULL);
    s.stages[1].core_wait_ns = s.stages[1].busy_ns / 2;
    CHECK(about(foretell(&s, (dlp_predict_desc){0}, &p), 2000) && about(p.cores, 1));
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 3}, &p), 2000));
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 8}, &p), 2000));
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 8, .cpus = 4}, &p), 8000));
    CHECK(strstr(words_of(&s), "Limit: the cores: workers and consumer keep 1.00 of 2 busy, and "
                               "wait for one 50 % of the time") != NULL);
    CHECK(strstr(words_of(&s), "should give") == NULL);
    s.stages[1].in_flight = 16; /* by threads of two workers */
    s.stages[1].in_flight_ns = 8 * s.stages[1].busy_ns;
    s.stages[1].core_wait_ns = 7 * s.stages[1].busy_ns;
    CHECK(strstr(words_of(&s), "Limit: the cores: ") && !strstr(words_of(&s), "raise in_flight"));
    s = stats_of(32, 1e6, 0.02, 2, 0); /* wakes up late, but hardly computes */
    s.cpus = 2;
    s.stages[1].core_wait_ns = s.stages[1].busy_ns / 2;
    CHECK(about(foretell(&s, (dlp_predict_desc){.num_workers = 3}, &p), 3000));
    CHECK(strstr(words_of(&s), "raise num_workers; 3 should give about 3000") != NULL);
}

/* An inline stage of which the consumer's time is known: what waits is told numbers of workers,
   what computes as many as there are cores, and what others keep from a core is told so. */
static void predict__inline__waits_computes_or_is_kept_from_a_core(void) {
    static const char numbers[] =
        "set num_workers; 1 should give about 1000 items/s, 2 about 2000, 4 "
        "about ";
    static const struct {
        double cpu, core_wait;
        const char *words, *then;
    } cases[] = {{0.02, 0, numbers, ", 64 about "},
                 {0.02, 0.5, numbers, ", 64 about "},
                 {1, 0, numbers, "; then the limit is the cores"},
                 {0.8, 0.1, numbers, ", 8 about "},
                 {0.3, 0.7, "a worker would give nothing: ", "the cores are the limit already"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlp_stats s = stats_of(32, 1e6, cases[i].cpu, 0, 0);
        const char *at;
        s.cpus = 4;
        s.prefetch_factor = 1;
        s.stages[1].core_wait_ns = (uint64_t)(cases[i].core_wait * (double)s.stages[1].busy_ns);
        at = strstr(words_of(&s), cases[i].words);
        CHECK(at != NULL && strstr(at, cases[i].then) != NULL);
        if (at == NULL || strstr(at, cases[i].then) == NULL)
            printf("  case %d: %s", (int)i, words_of(&s));
    }
}

/* The same with real neighbours: as many processes that compute as there are cores. */
static pid_t neighbour[8];

static int neighbours_begin(int n) {
    for (int i = 0; i < n; i++) {
        fflush(NULL);
        if ((neighbour[i] = fork()) != 0) continue;
        for (uint64_t until = test_now_ns() + UINT64_C(60000000000); test_now_ns() < until;) {}
        _exit(0);
    }
    return n;
}

static void neighbours_end(int n) {
    for (int i = 0; i < n; i++) {
        kill(neighbour[i], SIGKILL);
        waitpid(neighbour[i], NULL, 0);
    }
}

static int computing_fetch(void *user, dlp_item *it) {
    for (uint64_t until = cpu_ns() + 2000000; cpu_ns() < until;) {}
    return rig_fetch(user, it);
}

static int napping_fetch(void *user, dlp_item *it) {
    sleep_ns(3000000);
    return rig_fetch(user, it);
}

static int crowded_run(dlp_item_fn fetch, int fetcher, int workers, dlp_stats *s) {
    dlp_loader_desc d = {
        .dataset = {.n_items = 1u << 20, .fields = rig_fields, .n_fields = 2, .fetch = fetch},
        .batch_size = 8,
        .num_workers = fetcher ? 1 : workers,
        .fetcher = fetcher,
        .in_flight = fetcher ? 2 * workers : 0,
        .pipe = {.prefetch_factor = 4}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    if (dlp_loader_open(&p, &d, NULL) != DLP_OK) return 0;
    for (uint64_t until = test_now_ns() + UINT64_C(700000000); test_now_ns() < until;)
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(dlp_pipe_stats(p, s) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    return 1;
}

/* Workers that compute find no core, and are told so, also where threads of one do; workers that
   wait for something else are not kept from their advice. Three tries each: one must do. */
static void predict__busy_neighbours__cores_are_the_limit(void) {
    cpu_set_t set;
    int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (cpus > 8 || access("/proc/thread-self/schedstat", R_OK) != 0) {
        printf("the kernel does not tell who waits for a core, or there are many: not judged\n");
        return;
    }
    for (int crowd = 0; crowd < 2; crowd++) {
        int n = neighbours_begin(crowd ? cpus : 0), ok[3] = {0, 0, 0};
        for (int kind = 0; kind < 3; kind++)
            for (int tries = 0; tries < 3 && !ok[kind]; tries++) {
                dlp_stats s;
                dlp_predict now = {.items_per_s = 1}, more = {.items_per_s = 9};
                if (!crowded_run(kind == 2 ? napping_fetch : computing_fetch,
                                 kind == 1 ? DLP_FETCH_THREADS : 0, cpus, &s))
                    break;
                dlp_stats_predict(&s, NULL, &now);
                dlp_stats_predict(&s, &(dlp_predict_desc){.num_workers = cpus + 1}, &more);
                ok[kind] = kind == 2 ? strstr(words_of(&s), "should give about") != NULL
                                     : strncmp(words_of(&s), "Limit: the cores", 16) == 0;
                if (kind != 1) /* 1.5 where they wait; a few percent of the cores may be free */
                    ok[kind] &= (more.items_per_s > 1.2 * now.items_per_s) == (kind == 2);
                if (!ok[kind])
                    printf("  crowd %d, kind %d: %.0f, with one more %.0f: %s", crowd, kind,
                           now.items_per_s, more.items_per_s, words_of(&s));
            }
        neighbours_end(n);
        CHECK(ok[0] && ok[1] && ok[2]);
    }
}

/* A stage of batches behind that of items; the slower of the two is what counts. */
static void predict__two_stages__the_slower_one(void) {
    dlp_stats s = stats_of(16, 1e5, 0, 4, 0); /* a batch in 0.4 ms */
    dlp_stage_stats *g = &s.stages[2];
    dlp_predict p;
    s.n_stages = 3;
    g->kind = DLP_STAGE_BATCH;
    g->unit_is_batch = 1;
    g->workers = 1;
    g->items = s.batches;
    g->busy_ns = s.batches * 2000000;
    g->cpu_ns = 1;
    CHECK(about(foretell(&s, (dlp_predict_desc){0}, &p), 8000));
    CHECK(about(p.busy_share[2], 1) && about(p.busy_share[1], 0.2));
    CHECK(about(foretell(&s, (dlp_predict_desc){.batch_workers = 3}, &p), 24000));
    CHECK(foretell(&s, (dlp_predict_desc){.batch_workers = 40, .prefetch_factor = 30}, &p) > 38000);
    CHECK(p.items_per_s < 40500);
    s.stages[2].kind = DLP_STAGE_MAP_ITEM; /* rows pass on one by one */
    s.stages[2].unit_is_batch = 0;
    s.stages[2].items = s.items;
    s.stages[2].busy_ns = s.items * 1000000;
    s.prefetch_factor = 1;
    CHECK(about(foretell(&s, (dlp_predict_desc){.workers = {0, 16, 16}}, &p), 16 / 1.1e-3));
}

static void predict__nothing_measured_or_out_of_range__said(void) {
    dlp_stats s = stats_of(32, 1e6, 0, 1, 0);
    dlp_predict p, was;
    dlp_predict_desc d = {.num_workers = DLP_MAX_WORKERS + 1};
    memset(&p, 7, sizeof p);
    was = p;
    CHECK(dlp_stats_predict(NULL, NULL, &p) == DLP_ERR_ARG);
    CHECK(dlp_stats_predict(&s, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_stats_predict(&s, &d, &p) == DLP_ERR_ARG);
    d.num_workers = -2;
    CHECK(dlp_stats_predict(&s, &d, &p) == DLP_ERR_ARG);
    d = (dlp_predict_desc){.workers = {0, 1000, 25}};
    s.stages[2] = s.stages[1];
    s.n_stages = 3;
    CHECK(dlp_stats_predict(&s, &d, &p) == DLP_ERR_ARG); /* more than 1024 in all */
    s.batches = 4;
    CHECK(dlp_stats_predict(&s, NULL, &p) == DLP_ERR_STATE);
    s = stats_of(32, 1e6, 0, 1, 0);
    s.stages[1].items = 0;
    CHECK(dlp_stats_predict(&s, NULL, &p) == DLP_ERR_STATE);
    CHECK(memcmp(&p, &was, sizeof p) == 0);
}

/* Whatever the numbers, it ends, within its time, with shares that are shares. */
static void predict__any_stats__ends(void) {
    uint64_t random = 3, worst = 0;
    for (int i = 0; i < test_share(60, 3000); i++) {
        dlp_stats s = stats_of(1 + test_pick(&random, 1u << test_pick(&random, 21)), 1, 0, 1,
                               test_pick(&random, 1000000));
        dlp_predict_desc d = {.unordered = i & 1, .cpus = test_pick(&random, 9)};
        dlp_predict p;
        uint64_t from;
        int rc;
        s.prefetch_factor = test_pick(&random, 300);
        s.n_stages = 2 + test_pick(&random, 5);
        for (uint32_t k = 1; k < s.n_stages; k++) {
            dlp_stage_stats *g = &s.stages[k];
            g->kind = k == 1 ? DLP_STAGE_FETCH : DLP_STAGE_MAP_ITEM + (k > 2);
            g->unit_is_batch = k > 2;
            g->workers = (int32_t)test_pick(&random, 1u << test_pick(&random, 10));
            g->items = k > 2 ? s.batches : s.items;
            g->busy_ns = g->items * test_pick(&random, 1u << test_pick(&random, 24));
            g->cpu_ns = g->busy_ns / 100 * test_pick(&random, 120);
            g->core_wait_ns = g->busy_ns / 100 * test_pick(&random, 120);
            g->p50_ns = g->busy_ns / g->items / (1 + test_pick(&random, 3));
            g->p95_ns = g->p50_ns * (1 + test_pick(&random, 9));
            g->p99_ns = g->p95_ns * (1 + test_pick(&random, 9));
        }
        from = cpu_ns();
        rc = dlp_stats_predict(&s, &d, &p);
        from = cpu_ns() - from;
        if (from > worst) worst = from;
        if (rc != DLP_OK) continue;
        CHECK(p.items_per_s > 0 && p.wait_share >= 0 && p.wait_share <= 1.0001 && p.cores >= 0 &&
              p.cores <= (d.cpus ? d.cpus : s.cpus) * 1.0001);
        for (int k = 0; k < DLP_MAX_STAGES; k++)
            CHECK(p.busy_share[k] >= 0 && p.busy_share[k] <= 1.0001);
    }
    printf("the slowest of them took %.1f ms\n", (double)worst / 1e6);
}

int main(void) {
    predict__stats_by_hand__what_must_be();
    predict__two_stages__the_slower_one();
    predict__nothing_measured_or_out_of_range__said();
    predict__any_stats__ends();
    predict__others_have_the_cores__no_gain();
    predict__inline__waits_computes_or_is_kept_from_a_core();
    predict__busy_neighbours__cores_are_the_limit();
    judge_until = test_now_ns() + UINT64_C(4000000000);
    predict__slow_collate_or_steps__as_then_measured();
    predict__sleeping_fetch__as_then_measured();
    predict__mixed_costs__as_then_measured();
    return test_end("predict");
}
