/* The topologies of the loader beside the economic, and fetchers with several items at once in one
   worker: the same bytes as an inline pipe, whatever fails; batches to workers in turn; memory as
   planned; resume, epochs, stops. fetchers [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/fetchers.h"

/* ---- bytes ---- */

static void bytes__any_topology__as_inline(uint64_t seed) {
    uint64_t random = seed;
    for (int policy = 0; policy < POLICIES; policy++) {
        digest inline_;
        job base;
        job_init(&base, policy);
        if (policy == BACKS_OFF) base.d.epochs = 1;
        job_run(&base, &inline_);
        CHECK(policy == RAISES ? inline_.rc == DLP_ERR_CALLBACK : inline_.rc == DLP_END);
        for (int i = 0; i < test_share(KINDS, KINDS); i++) {
            digest got;
            uint64_t from;
            job j;
            job_init(&j, policy);
            job_kind(&j, i);
            j.d.epochs = base.d.epochs;
            j.d.num_workers = 1 + (int32_t)test_pick(&random, 4);
            if (j.d.fetcher) j.d.in_flight = (int32_t)test_pick(&random, 9);
            if (j.d.fetcher && j.d.topology) j.d.batch_pool = test_pick(&random, 4) * 14;
            from = test_now_ns();
            job_run(&j, &got);
            CHECK(digest_same(&got, &inline_));
            if (policy == BACKS_OFF) CHECK(test_now_ns() - from > 7000000); /* 1 + 2 + 4 ms */
            if (!digest_same(&got, &inline_))
                printf("  kind %d policy %d workers %d: rc %d, %d batches, skips %d\n", i, policy,
                       j.d.num_workers, got.rc, got.n, (int)got.skips);
        }
    }
}

/* The same item many times in a batch. */
static void bytes__duplicates__as_inline(void) {
    digest want;
    for (int kind = -1; kind < KINDS; kind++) {
        digest got;
        job j;
        job_init(&j, RETRIES);
        j.d.shuffle = 0;
        j.d.sampler.order = DLP_ORDER_REPLACEMENT;
        j.d.sampler.samples_per_epoch = 200;
        j.d.dataset.n_items = 5;
        if (kind >= 0) job_kind(&j, kind);
        if (kind >= 0) j.d.num_workers = 3;
        job_run(&j, kind < 0 ? &want : &got);
        CHECK(want.n == 30 && (kind < 0 || digest_same(&got, &want)));
    }
}

/* Items behind the end of a stream are asked for by many at once, and none of them has been. */
static void bytes__streams__as_inline(void) {
    static const int policies[] = {FINE, BACKS_OFF, SHORTENS, RAISES};
    for (int i = 0; i < 4; i++)
        for (uint64_t ends = 97; ends <= 98; ends++) { /* 7 batches of 14 are 98 */
            digest want, got;
            for (int kind = -1; kind < KINDS; kind++) {
                job j;
                job_init(&j, policies[i]);
                j.d.dataset.n_items = 0;
                j.d.dataset.open_end = 1;
                j.d.shuffle = 0;
                j.ends = ends;
                if (kind >= 0) job_kind(&j, kind);
                if (kind >= 0) j.d.num_workers = 2;
                job_run(&j, kind < 0 ? &want : &got);
                CHECK(want.rc == (policies[i] == RAISES ? DLP_ERR_CALLBACK : DLP_END));
                if (kind < 0) continue;
                CHECK(digest_same(&got, &want));
                if (want.rc == DLP_END) CHECK(got.stats.stages[2].items == 2 * ends);
            }
        }
}

/* What is in the cache is not asked for again; what a source has no room for is not asked for
   twice. */
static void bytes__cache__as_inline_without(void) {
    static const int policies[] = {FINE, FINE, RETRIES, REPLACES};
    for (int i = 0; i < 4; i++) {
        digest want, got;
        for (int kind = -1; kind < KINDS; kind++) {
            job j;
            job_init(&j, policies[i]);
            j.still = 1;
            if (kind >= 0) job_kind(&j, kind);
            if (kind >= 0) j.d.num_workers = 2;
            if (kind >= 0) j.d.cache.bytes = i % 2 ? 5000 : 1 << 20;
            job_run(&j, kind < 0 ? &want : &got);
            if (kind < 0) continue;
            CHECK(digest_same(&got, &want) && got.stats.cache_hits > 0);
            if (policies[i] == FINE) CHECK(got.stats.cache_hits + got.stats.cache_misses == 600);
        }
    }
}

static int wordless_fetch(void *user, dlp_item *it) {
    (void)user;
    return dlp_fail(it->call, 28, "%s", "");
}

/* Who fails with an errno and without words is told with that errno, whoever fetches. */
static void errors__errno_without_words__kept(void) {
    for (int kind = 0; kind < 2; kind++) {
        job j;
        dlp_pipe *p;
        dlp_batch *b;
        job_init(&j, RAISES);
        if (kind) job_kind(&j, THREADS);
        j.d.num_workers = 1;
        j.d.dataset.fetch = wordless_fetch;
        CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK &&
              dlp_pipe_error(p)->errnum == 28);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int refusing_submit(void *user, void *state, dlp_item *it) {
    (void)user;
    (void)state;
    return dlp_fail(it->call, 5, "not now");
}

/* An item that waits for its next try is in nobody's hands: a death is not its doing. */
static void blame__source_refuses__nothing_runs(void) {
    job j;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats stats;
    job_init(&j, BACKS_OFF);
    job_kind(&j, ASYNC);
    j.d.num_workers = 1;
    j.d.async.submit = refusing_submit;
    j.d.workers.retry_backoff_ms = 60000;
    CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 10) == DLP_TIMEOUT);
    for (int i = 0; i < 2000 && inside_worker_state(p, 0) == DLP_WORKER_BUSY; i++)
        test_pause(1000000);
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && stats.stages[2].retried > 0);
    CHECK(inside_running(p, 0) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int flaky_map(void *user, dlp_item *it) {
    return it->index % 9 == 4 && it->attempt < 2 ? -3 : rig_item_map(user, it);
}

/* Every stage in turn, rows that go back to fetch from a map, ranks that have no row of a batch. */
static void bytes__all_stages_in_turn__as_told(uint64_t seed) {
    uint64_t random = seed;
    for (int i = 0; i < test_share(40, 2000); i++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        int rc;
        rig_init(&r, 203, 1 + test_pick(&random, 40));
        rig_order(&r, DLP_ORDER_SHUFFLED);
        rig_workers(&r, 1 + (int)test_pick(&random, 4), DLP_DISPATCH_BATCHES);
        r.fetch.num_workers = (int)test_pick(&random, 4);
        r.n_item_maps = (int)test_pick(&random, 3);
        r.n_batch_maps = (int)test_pick(&random, 3);
        r.item_map[1].map.item = flaky_map;
        r.item_map[1].workers.retries = 2;
        r.item_map[1].workers.retry_backoff_ms = (int32_t)test_pick(&random, 2);
        r.pipe.prefetch_factor = 1 + (int32_t)test_pick(&random, 9);
        r.pipe.epochs = 2;
        r.sampler.threaded = (int32_t)test_pick(&random, 2);
        r.pipe.world_size = 1 + test_pick(&random, 3);
        r.pipe.rank = test_pick(&random, r.pipe.world_size);
        r.pipe.allow_uneven = 1;
        if (test_pick(&random, 2)) r.batch_by.num_workers = 1 + (int32_t)test_pick(&random, 3);
        if (test_pick(&random, 2)) r.batch.collate = dlp_collate_pad;
        if (r.batch.collate == NULL) r.batch_by.num_workers = 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(rig_batch_same(&r, b, n / rig_batches(&r), n % rig_batches(&r)));
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            n++;
        }
        if (rc != DLP_END) rig_say(p, rc);
        CHECK(rc == DLP_END && n == 2 * rig_batches(&r));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- turns ---- */

/* Each batch wholly by one worker, the workers in turn. */
static void turns__classic__batch_by_batch(void) {
    for (int n = 1; n < 6; n++) {
        job j;
        digest got;
        job_init(&j, FINE);
        job_kind(&j, CLASSIC);
        j.d.num_workers = n;
        j.d.epochs = 1; /* who had an item is noted by its index */
        job_run(&j, &got);
        CHECK(got.rc == DLP_END && got.n > 3 * n);
        for (int b = 0; b < got.n; b++) CHECK(got.worker[b] == (uint32_t)(b % n));
    }
}

/* ---- memory ---- */

static void memory__classic__workers_times_prefetch(void) {
    for (int n = 1; n < 5; n++)
        for (int each = 0; each < 4; each++) {
            job j;
            dlp_pipe *p;
            dlp_stats s;
            uint32_t want = (uint32_t)(n * (each ? each : 2));
            job_init(&j, FINE);
            job_kind(&j, CLASSIC);
            j.d.num_workers = n;
            j.d.pipe.prefetch_factor = each;
            j.d.pipe.max_held = 3;
            CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
            CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
            CHECK(s.prefetch_factor == want && s.slots == want + 3);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

static void memory__too_many_batches__refused(void) {
    job j;
    dlp_pipe *p;
    dlp_error err;
    job_init(&j, FINE);
    job_kind(&j, CLASSIC);
    j.d.num_workers = 64;
    j.d.pipe.prefetch_factor = 65;
    CHECK(dlp_loader_open(&p, &j.d, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "prefetch_factor") == 0);
    j.d.topology = -1;
    CHECK(dlp_loader_open(&p, &j.d, &err) == DLP_ERR_ARG && strcmp(err.field, "topology") == 0);
}

/* What runs is what the plan said, and what workers have in flight is on a line of it. */
static void memory__in_flight__on_a_line(void) {
    for (int fetcher = 0; fetcher <= DLP_FETCH_ASYNC; fetcher++) {
        rig r;
        dlp_pipe *p;
        dlp_plan plan, again;
        dlp_stats s;
        uint64_t sum = 0, in_flight = 0;
        const uint64_t workers[] = {0, 3, 3};
        rig_init(&r, 100, 8);
        r.fetcher = fetcher;
        r.in_flight = fetcher ? 9 : 0;
        r.async = (dlp_async){source_submit, source_reap};
        r.fetch.num_workers = 3;
        CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        for (uint32_t i = 0; i < plan.n_lines; i++) {
            sum += plan.lines[i].bytes;
            if (strstr(plan.lines[i].what, "in flight")) in_flight = plan.lines[i].count;
        }
        CHECK(sum == plan.total_bytes && in_flight == workers[fetcher]);
        if (fetcher != DLP_FETCH_ASYNC) { /* its source wants a worker_init */
            CHECK(dlp_pipe_start(p) == DLP_OK && dlp_pipe_plan(p, &again) == DLP_OK);
            CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.plan_bytes == plan.total_bytes);
            CHECK(again.total_bytes == plan.total_bytes);
            CHECK(s.stages[2].in_flight == (fetcher ? 9 : 0));
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void bad__descs__named(void) {
    static const struct {
        int topology, fetcher, workers, in_flight;
        uint32_t pool;
        const char *field;
    } cases[] = {{0, -1, 1, 0, 0, "fetcher"},     {0, 3, 1, 0, 0, "fetcher"},
                 {1, 1, 1, 0, 0, "fetcher"},      {3, 0, 1, 0, 0, "topology"},
                 {2, 1, 1, 1025, 0, "in_flight"}, {2, 1, 1, -1, 0, "in_flight"},
                 {2, 0, 1, 2, 0, "in_flight"},    {0, 1, 1, 0, 64, "batch_pool"},
                 {2, 0, 1, 0, 64, "batch_pool"},  {2, 1, 0, 0, 0, "num_workers"},
                 {2, 2, 1, 0, 0, "async.submit"}, {2, 1, 2, 0, 3000 * 14, "prefetch_factor"},
                 {2, 0, -2, 0, 0, "num_workers"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j;
        dlp_pipe *p;
        dlp_error err;
        job_init(&j, FINE);
        j.d.topology = cases[i].topology;
        j.d.fetcher = cases[i].fetcher;
        j.d.num_workers = cases[i].workers;
        j.d.in_flight = cases[i].in_flight;
        j.d.batch_pool = cases[i].pool;
        CHECK(dlp_loader_open(&p, &j.d, &err) == DLP_ERR_ARG);
        CHECK(strcmp(err.field, cases[i].field) == 0);
        if (strcmp(err.field, cases[i].field) != 0) printf("  case %d: %s\n", (int)i, err.field);
    }
}

/* ---- time ---- */

/* How many items a second; in_flight of them wait at once. */
static double time_of(int kind, uint32_t rows, dlp_stats *s, char *text, int size) {
    job j;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t from = test_now_ns();
    job_init(&j, FINE);
    job_kind(&j, kind);
    j.pause_us = 30000;
    j.d.num_workers = 2;
    j.d.batch_size = rows;
    j.d.dataset.n_items = 160;
    j.d.epochs = 1;
    j.d.collate = NULL;
    if (j.d.topology == DLP_TOPOLOGY_ECONOMIC) j.d.pipe.prefetch_factor = 4;
    CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) CHECK(dlp_pipe_release(p, b) == DLP_OK);
    from = test_now_ns() - from;
    CHECK(dlp_pipe_stats(p, s) == DLP_OK && dlp_pipe_explain(p, text, (size_t)size) > 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return 160 * 1e9 / (double)from;
}

/* 16 items that wait 30 ms each, in each of 2 workers: 2 x 16 / 30 ms a second; also where 16 items
   are of four batches. */
static void time__items_that_wait__all_at_once(void) {
    static const int kinds[] = {THREADS, ECONOMIC_THREADS, THREADS};
    const double most = 2 * 16 / 0.030;
    for (int i = 0; i < (getenv("SHORT") ? 1 : 3); i++) {
        const double least = getenv("SOAK") ? 0.9 : 0.3; /* the machine may be busy */
        double best = 0;
        for (int tries = 0; tries < 10 && best < (tries < 4 ? 0.9 : least); tries++) {
            dlp_stats s;
            char text[2000];
            double rate = time_of(kinds[i], i == 2 ? 5 : 16, &s, text, sizeof text);
            int together = s.stages[2].in_flight_ns > 12 * s.stages[2].busy_ns;
            CHECK(s.stages[2].p50_ns > 25000000 && s.stages[2].in_flight == 16);
            if (together && rate / most > best) best = rate / most;
            if (rate < least * most || !together || getenv("FETCHERS_SAY"))
                printf("  kind %d: %.0f items/s of at most %.0f\n%s", kinds[i], rate, most, text);
        }
        CHECK(best >= least);
    }
}

/* Counters of workers that have 15 of 16 requests out, and of such that have 5. */
static void explain__requests_in_flight__are_the_limit(void) {
    for (int out = 5; out < 16; out += 10) {
        dlp_stats s;
        dlp_stage_stats *g = &s.stages[0];
        char text[2000];
        memset(&s, 0, sizeof s);
        s.wait_ns = s.elapsed_ns = 1000000000;
        s.step_ns = 1000000;
        s.batches = 100;
        s.items = 1600;
        s.prefetch_factor = 4;
        s.cpus = 2;
        s.n_stages = 1;
        g->kind = DLP_STAGE_FETCH;
        g->workers = 2;
        g->in_flight = 16;
        g->busy_ns = 1990000000;
        g->in_flight_ns = g->busy_ns * (uint64_t)out;
        g->p50_ns = 30000000;
        CHECK(dlp_stats_explain(&s, text, sizeof text) > 0);
        CHECK(strncmp(text, "Limit: requests in flight: each worker of '", 43) == 0);
        CHECK(strstr(text, out == 15 ? "raise in_flight" : "raise prefetch_factor") != NULL);
    }
}

/* ---- resume ---- */

static void resume__at_every_batch__goes_on_exactly(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        digest want;
        dlp_state states[64];
        int n = 0;
        dlp_pipe *p;
        dlp_batch *b;
        job j;
        job_init(&j, REPLACES);
        job_kind(&j, kind);
        j.d.num_workers = 3;
        memset(&want, 0, sizeof want);
        CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            CHECK(n < 64 && dlp_pipe_state(p, b, &states[n++ & 63]) == DLP_OK);
            digest_take(&j, &want, b);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        for (int at = kind % 3; at < 22 && at < n; at += getenv("SHORT") ? 7 : 1) {
            digest got;
            job k;
            int same;
            job_init(&k, REPLACES);
            job_kind(&k, (kind + at) % KINDS); /* another topology, other workers */
            k.d.num_workers = 1 + at % 4;
            k.d.pipe.resume = &states[at];
            job_run(&k, &got);
            same = got.rc == DLP_END && got.n == n - at - 1;
            for (int i = 0; same && i < got.n; i++) same = got.of[i] == want.of[at + 1 + i];
            CHECK(same);
        }
    }
}

/* ---- epochs and stops ---- */

static int inits;
static int counted_init(void *user, int worker, void **state) {
    __atomic_add_fetch(&inits, 1, __ATOMIC_RELAXED);
    return source_init(user, worker, state);
}

/* Epochs left early: the next one is whole, and by the same workers. */
static void epochs__left_early__workers_stay(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        digest want;
        job j;
        dlp_pipe *p;
        dlp_batch *b;
        job_init(&j, RETRIES);
        j.d.epochs = 8;
        job_run(&j, &want);
        CHECK(want.n == 8 * 22);
        job_kind(&j, kind);
        j.d.num_workers = 3;
        j.d.workers.worker_init = counted_init;
        j.d.workers.worker_exit = source_exit;
        inits = 0;
        CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
        for (int epoch = 0; epoch < 8; epoch++) {
            int taken = epoch % 2 ? 22 : 3 * epoch + 1;
            for (int i = 0; i < taken; i++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
                CHECK(digest_batch(b) == want.of[22 * epoch + i]);
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        for (int i = 0; i < 20000 && __atomic_load_n(&inits, __ATOMIC_SEQ_CST) < 3; i++)
            test_pause(1000000); /* one may begin late, and not if the pipe is closed first */
        CHECK(dlp_pipe_close(p) == DLP_OK && inits == 3);
    }
}

static int stops_soon(int i, uint64_t *random) {
    job j;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t from;
    int held = (int)test_pick(random, 2);
    job_init(&j, i % POLICIES);
    job_kind(&j, i % KINDS);
    j.pause_us = i % 2 ? 300 : 0;
    j.d.num_workers = 1 + (int32_t)test_pick(random, 4);
    j.d.epochs = DLP_FOREVER;
    CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
    for (uint32_t n = test_pick(random, 6); n > 0; n--)
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    held = held && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK;
    test_pause(test_pick(random, 2000) * 1000u);
    from = test_now_ns();
    dlp_pipe_stop(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    from = test_now_ns() - from;
    if (held) CHECK(dlp_pipe_release(p, b) == DLP_OK);
    if (from >= 1000000000u) printf("  job %d: %d ms\n", i, (int)(from / 1000000));
    return from < 1000000000u;
}

static void stop__at_any_moment__ends(uint64_t seed) {
    uint64_t random = seed;
    for (int i = 0; i < test_share(30, 2000); i++) CHECK_ONE_OF_5(stops_soon(i, &random));
}

/* ---- workers ---- */

static uint64_t first_items[2]; /* when worker 0 and 1 had their first item */
static int slow_init(void *user, int worker, void **state) { /* until the other has an item */
    for (int i = 0; worker == 1 && i < 20000; i++) {
        if (__atomic_load_n(&first_items[0], __ATOMIC_SEQ_CST) != 0) break;
        test_pause(1000000);
    }
    return source_init(user, worker, state);
}
static int noting_fetch(void *user, dlp_item *it) {
    uint64_t none = 0;
    __atomic_compare_exchange_n(&first_items[it->worker & 1], &none, test_now_ns(), 0,
                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return job_fetch(user, it);
}

/* Nobody waits for a worker that is slow to start. */
static void start__slow_worker__others_fetch(void) {
    for (int kind = CLASSIC; kind <= THREADS; kind += 2) {
        job j;
        digest got;
        job_init(&j, FINE);
        job_kind(&j, kind);
        j.d.num_workers = 2;
        j.d.epochs = 1;
        j.d.dataset.fetch = noting_fetch;
        j.d.workers.worker_init = slow_init;
        j.d.workers.worker_exit = source_exit;
        first_items[0] = first_items[1] = 0;
        job_run(&j, &got);
        CHECK(got.rc == DLP_END && first_items[0] != 0);
        CHECK(first_items[1] > first_items[0]);
    }
}

/* How long it takes: workers fall asleep after each batch; the next one is theirs that is next in
   turn. leaves: an epoch is left after each batch; redo: a map sends rows back to fetch. */
static uint64_t wake_ns(int kind, int leaves, int redo) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t from = test_now_ns();
    rig_init(&r, 150, 10);
    rig_workers(&r, 5, DLP_DISPATCH_BATCHES);
    r.pipe.prefetch_factor = 5;
    r.pipe.epochs = leaves ? 8 : 1;
    r.n_item_maps = redo;
    r.item_map[0].map.item = flaky_map;
    r.item_map[0].workers.retries = 2;
    r.batch_by.num_workers = kind ? 5 : 0;
    r.batch.collate = kind ? dlp_collate_pad : NULL;
    if (rig_open(&r, &p) != DLP_OK) return 0;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        test_pause(2000000);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        if (leaves) CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return test_now_ns() - from;
}

/* Workers asleep are woken for their own batches at once, and not only when they check, which
   the first of them does after 100 ms. */
static void wake__own_batch__at_once(void) {
    for (int i = 0; i < 8; i++) {
        uint64_t ns = wake_ns(i & 1, i >> 1 & 1, i >> 2 & 1);
        for (int tries = 0; tries < 19 && ns > 300000000; tries++)
            ns = wake_ns(i & 1, i >> 1 & 1, i >> 2 & 1);
        CHECK(ns < 300000000 || getenv("SHORT"));
    }
}

/* ---- batch pools ---- */

static struct {
    int out;
    uint64_t batch;
} open_now[4];
static int several;

static int pool_fetch(void *user, dlp_item *it) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int rc;
    pthread_mutex_lock(&lock);
    if (open_now[it->worker].out++ > 0 && open_now[it->worker].batch != it->position / 14)
        several++;
    open_now[it->worker].batch = it->position / 14;
    pthread_mutex_unlock(&lock);
    test_pause(it->index % 7 * 100000);
    rc = job_fetch(user, it);
    pthread_mutex_lock(&lock);
    open_now[it->worker].out--;
    pthread_mutex_unlock(&lock);
    return rc;
}

/* A pool of one batch never has items of two; a larger one takes them apart at once. */
static void pool__of_a_batch__one_at_a_time(void) {
    static const uint32_t pools[] = {14, 1, 28, 0};
    for (int i = 0; i < 4; i++) {
        job j;
        digest got;
        job_init(&j, FINE);
        job_kind(&j, THREADS);
        j.d.num_workers = 2;
        j.d.in_flight = 8;
        j.d.epochs = 1;
        j.d.pipe.prefetch_factor = 3;
        j.d.batch_pool = pools[i];
        j.d.dataset.fetch = pool_fetch;
        several = 0;
        job_run(&j, &got);
        CHECK(got.rc == DLP_END && (i < 2 ? several == 0 : several > 0));
    }
}

static int broken_reap(void *user, void *state, dlp_item **done, int *code, int max,
                       int timeout_ms) {
    source *s = state;
    if (++s->calls < 5) return source_reap(user, state, done, code, max, timeout_ms);
    s->n = 0; /* it forgets what it had */
    return -5;
}
static int lying_reap(void *user, void *state, dlp_item **done, int *code, int max,
                      int timeout_ms) {
    int n = source_reap(user, state, done, code, max, timeout_ms);
    if (n > 0) ((source *)state)->n = 0;
    if (n > 0) done[n - 1] = (dlp_item *)(void *)done;
    return n;
}

/* A source that breaks, or gives back what it was not given: an error that says so. */
static void source__broken__said(void) {
    for (int i = 0; i < 2; i++) {
        job j;
        digest got;
        job_init(&j, FINE);
        job_kind(&j, ASYNC + 2 * i);
        j.d.num_workers = 2;
        j.d.async.reap = i ? lying_reap : broken_reap;
        job_run(&j, &got);
        CHECK(got.rc == DLP_ERR_CALLBACK && strstr(got.err.message, "async.reap") != NULL);
        CHECK(strcmp(got.err.stage, "fetch") == 0 && got.err.worker >= 0);
    }
}

static int blocked, entered;
static int blocking_fetch(void *user, dlp_item *it) {
    if (it->position == 3) __atomic_store_n(&entered, 1, __ATOMIC_SEQ_CST);
    while (it->position == 3 && __atomic_load_n(&blocked, __ATOMIC_SEQ_CST)) test_pause(1000000);
    return job_fetch(user, it);
}

/* A thread that does not come back: close says where, and can be called again. */
static void close__thread_blocks__named(void) {
    job j;
    dlp_pipe *p;
    dlp_batch *b;
    job_init(&j, FINE);
    job_kind(&j, THREADS);
    j.d.num_workers = 2;
    j.d.pipe.close_timeout_ms = 20;
    j.d.dataset.fetch = blocking_fetch;
    blocked = 1;
    entered = 0;
    CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
    while (!__atomic_load_n(&entered, __ATOMIC_SEQ_CST)) test_pause(1000000);
    CHECK(dlp_pipe_next_timeout(p, &b, 20) == DLP_TIMEOUT);
    for (int i = 0; i < 1000; i++) { /* others that are older may be out for a moment */
        CHECK(dlp_pipe_close(p) == DLP_ERR_BUSY);
        if (dlp_pipe_error(p)->has_item && dlp_pipe_error(p)->position == 3) break;
    }
    CHECK(dlp_pipe_error(p)->has_item && dlp_pipe_error(p)->position == 3);
    __atomic_store_n(&blocked, 0, __ATOMIC_SEQ_CST);
    while (dlp_pipe_close(p) == DLP_ERR_BUSY) test_pause(1000000);
}

/* A thread's callback that is late is named, though others come and go beside it. */
static int late_fetch(void *user, dlp_item *it) {
    if (it->position == 5) test_pause(400000000);
    return job_fetch(user, it);
}
static void deadline__one_of_many__named(void) {
    digest got = {0};
    for (int tries = 0; tries < 6 && got.err.position != 5; tries++) { /* on a busy machine more */
        job j;
        job_init(&j, FINE);
        job_kind(&j, THREADS);
        j.d.num_workers = 1;
        j.d.in_flight = 4;
        j.d.epochs = 1;
        j.d.workers.deadline_ms = 150;
        j.d.dataset.fetch = late_fetch;
        job_run(&j, &got);
    }
    CHECK(got.rc == DLP_ERR_DEADLINE && got.err.has_item && got.err.position == 5);
}

/* ---- threads that fetch ---- */

static void threads_job(job *j, int workers, int in_flight) {
    job_init(j, FINE);
    job_kind(j, ECONOMIC_THREADS);
    j->d.num_workers = workers;
    j->d.in_flight = in_flight;
}

static int met, missed;
static int meeting_fetch(void *user, dlp_item *it) {
    if (it->epoch == 0 && it->position < 8) {
        __atomic_add_fetch(&met, 1, __ATOMIC_SEQ_CST);
        for (int i = 0; i < 5000 && __atomic_load_n(&met, __ATOMIC_SEQ_CST) < 8; i++)
            test_pause(1000000);
        if (__atomic_load_n(&met, __ATOMIC_SEQ_CST) < 8)
            __atomic_store_n(&missed, 1, __ATOMIC_SEQ_CST);
    }
    return job_fetch(user, it);
}

/* As many rows as there are threads, in both workers: none waits for one behind another. */
static void threads__first_rows__all_at_once(void) {
    job j;
    digest got;
    threads_job(&j, 2, 4);
    j.d.dataset.fetch = meeting_fetch;
    met = missed = 0;
    job_run(&j, &got);
    CHECK(got.rc == DLP_END && missed == 0);
}

/* One row stays out, and 14 batches overtake it: how long do they take? */
static uint64_t overtaking_ns(void) {
    job j;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t from, ns;
    threads_job(&j, 1, 3);
    j.d.batch_size = 2;
    j.d.epochs = DLP_FOREVER;
    j.d.pipe.unordered = 1;
    j.d.pipe.prefetch_factor = 2;
    j.d.dataset.fetch = blocking_fetch;
    blocked = 1;
    entered = 0;
    CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
    from = test_now_ns();
    for (int n = 0; n < 14; n++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    ns = test_now_ns() - from;
    __atomic_store_n(&blocked, 0, __ATOMIC_SEQ_CST);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    if (ns >= 350000000) printf("  %d ms\n", (int)(ns / 1000000));
    return ns;
}

/* A worker whose threads ran out of rows is awake soon enough to find the next batch. */
static void threads__one_row_stays__others_go_on(void) {
    CHECK_ONE_OF_5(overtaking_ns() < 350000000);
}

/* The worker is to be woken as soon as nothing is out, not a ms later: of 200 batches, each
   wanted when the one before is given back, how many are there at once? */
static int soon_there(void) {
    job j;
    dlp_pipe *p;
    dlp_batch *b;
    int n = 0, soon = 0;
    threads_job(&j, 1, 4);
    j.d.batch_size = 3;
    j.d.pipe.prefetch_factor = 1;
    j.d.pipe.max_held = 1;
    CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
    for (uint64_t from = test_now_ns(), now; dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK;
         from = now) {
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        now = test_now_ns();
        soon += now - from < 700000;
        n++;
    }
    CHECK(n == 200 && dlp_pipe_close(p) == DLP_OK);
    if (soon < 20) printf("  %d of 200\n", soon);
    return soon;
}

static void threads__nothing_out__worker_hears_its_wake_word(void) {
    CHECK_ONE_OF_5(soon_there() >= 20 || getenv("SHORT") || getenv("EMULATED"));
}

/* How often a thread of this process has gone to sleep. */
static uint64_t sleeps_of(int tid) {
    char path[64], line[128];
    unsigned long long n = 0;
    FILE *f;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "voluntary_ctxt_switches: %llu", &n) == 1) break;
    if (f != NULL) fclose(f);
    return n;
}

static int napping_fetch(void *user, dlp_item *it) {
    test_pause(500000);
    return job_fetch(user, it);
}

/* While its threads have enough to do, the worker sleeps: they work in its place. */
static int worker_sleeps(void) {
    job j;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t items = 0, slept;
    int tid;
    threads_job(&j, 1, 4);
    j.d.pipe.prefetch_factor = 8;
    j.d.dataset.fetch = napping_fetch;
    CHECK(dlp_loader_open(&p, &j.d, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    tid = inside_tid(p, 0);
    slept = sleeps_of(tid);
    for (int i = 0; i < 30; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        items += b->count;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    slept = sleeps_of(tid) - slept;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    if (slept * 2 >= items) printf("  %d times in %d items\n", (int)slept, (int)items);
    return slept * 2 < items;
}

static void threads__enough_to_do__worker_sleeps(void) {
#if defined(__linux__)
    CHECK_ONE_OF_5(worker_sleeps());
#endif
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    bytes__any_topology__as_inline(seed);
    bytes__duplicates__as_inline();
    bytes__streams__as_inline();
    bytes__cache__as_inline_without();
    errors__errno_without_words__kept();
    blame__source_refuses__nothing_runs();
    bytes__all_stages_in_turn__as_told(seed);
    turns__classic__batch_by_batch();
    memory__classic__workers_times_prefetch();
    memory__too_many_batches__refused();
    memory__in_flight__on_a_line();
    bad__descs__named();
    time__items_that_wait__all_at_once();
    explain__requests_in_flight__are_the_limit();
    resume__at_every_batch__goes_on_exactly();
    epochs__left_early__workers_stay();
    stop__at_any_moment__ends(seed);
    start__slow_worker__others_fetch();
    wake__own_batch__at_once();
    pool__of_a_batch__one_at_a_time();
    source__broken__said();
    close__thread_blocks__named();
    deadline__one_of_many__named();
    threads__first_rows__all_at_once();
    threads__one_row_stays__others_go_on();
    threads__nothing_out__worker_hears_its_wake_word();
    threads__enough_to_do__worker_sleeps();
    return test_end("fetchers");
}
