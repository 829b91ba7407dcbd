/* Workers that are added and retired while the pipe runs: by whom, when, within which limits; that
   no byte depends on it; that those who are parked cost nothing. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include <time.h>

static void pause_us(long us) { test_pause((uint64_t)us * 1000); }

static double seconds(void) { return (double)test_now_ns() / 1e9; }

static int item_us;

static int sleeping_fetch(void *user, dlp_item *it) {
    int us = __atomic_load_n(&item_us, __ATOMIC_RELAXED);
    if (us > 0) pause_us(us);
    return rig_fetch(user, it);
}

static int at_work(dlp_pipe *p) {
    dlp_stats s;
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    return s.stages[2].workers;
}

static void tuned(rig *r, int n, int min, int max) {
    r->fetch.num_workers = n;
    r->fetch.workers_min = min;
    r->fetch.workers_max = max;
    r->pipe.epochs = DLP_FOREVER;
    r->dataset.fetch = sleeping_fetch;
    r->pipe.prefetch_factor = 3;
}

/* Take batches with steps of step_us for so long. Returns batches a second. */
static double train(dlp_pipe *p, long step_us, double for_seconds) {
    double begin = seconds();
    int n = 0;
    while (seconds() - begin < for_seconds) {
        dlp_batch *b;
        int rc = dlp_pipe_next_timeout(p, &b, 20000);
        if (rc != DLP_OK) {
            rig_say(p, rc);
            CHECK(rc == DLP_OK);
            return 0;
        }
        pause_us(step_us);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        n++;
    }
    return n / (seconds() - begin);
}

enum { SETTLED, NOT_SETTLED, TOO_BUSY };

/* Where sleeps of 2.4 ms take twice as long, or a pipe with workers to spare cannot keep up with
   the steps, other programs have the cores, and nothing is to be learned. */
static int settles_once(void) {
    rig r;
    dlp_pipe *p;
    dlp_stats s, later;
    double rate, fixed;
    char words[4096];
    int found, slow, ok;
    rig_init(&r, 4096, 16);
    tuned(&r, 1, 1, 8);
    item_us = 2400;
    if (rig_open(&r, &p) != DLP_OK) return NOT_SETTLED;
    inside_tune_every(p, 12000000);
    train(p, 11000, 0.3);
    dlp_pipe_stats(p, &s);
    rate = train(p, 11000, 0.2);
    dlp_pipe_stats(p, &later);
    dlp_pipe_explain(p, words, sizeof words);
    found = at_work(p);
    train(p, 35000, 0.35);
    slow = at_work(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    tuned(&r, 8, 0, 0);
    if (rig_open(&r, &p) != DLP_OK) return NOT_SETTLED;
    train(p, 11000, 0.05);
    fixed = train(p, 11000, 0.15);
    CHECK(at_work(p) == 8 && dlp_pipe_close(p) == DLP_OK);
    ok = found >= 4 && found <= 5 && later.tunes - s.tunes <= 1 && rate > 0.88 * fixed &&
         slow <= 3 && slow >= 1 && strstr(words, "Workers: ") && strstr(words, "Tuned: after ");
    printf("%d workers in %d decisions, %d later, %.1f batches/s, %.1f with 8; slow: %d\n", found,
           (int)s.tunes, (int)(later.tunes - s.tunes), rate, fixed, slow);
    if (!ok) printf("%s", words);
    CHECK(found >= 1 && found <= 8 && slow >= 1 && slow <= found);
    if (!ok && (later.stages[2].p95_ns > 4000000 || fixed < 80)) return TOO_BUSY;
    return ok ? SETTLED : NOT_SETTLED;
}

/* Five tries, of which one must do; three, if all are of a time when nothing is to be learned. */
static void tuning__sleeping_fetch__finds_the_number_and_keeps_it(void) {
    int n[3] = {0, 0, 0};
    for (int i = 0; i < 5 && n[SETTLED] == 0 && n[TOO_BUSY] < 3; i++) n[settles_once()]++;
    if (n[TOO_BUSY] == 3) printf("too many others have the cores: not judged\n");
    CHECK(n[SETTLED] > 0 || n[TOO_BUSY] == 3);
}

/* Do all workers wait, with all done that can be? */
static int all_rest(dlp_pipe *p) {
    dlp_stats s;
    dlp_worker_stats w;
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    for (uint32_t i = 0; i < s.n_workers; i++) {
        CHECK(dlp_pipe_worker_stats(p, i, &w) == DLP_OK);
        if (w.state == DLP_WORKER_BUSY) return 0;
    }
    return s.ready == s.prefetch_factor;
}

/* What we write into the counters of each stage. */
static inside_figures written[2];

static double core_waits; /* share of busy time that a stage waits for a core */

/* A pipe whose workers rest, so that what the tuner sees is what we write. */
static dlp_pipe *resting(rig *r, int n, int min, int max, int maps) {
    dlp_pipe *p;
    dlp_batch *b;
    rig_init(r, 4096, 16);
    tuned(r, n, min, max);
    item_us = 0;
    r->n_item_maps = maps;
    r->item_map[0].workers.num_workers = 2;
    if (maps) r->item_map[0].workers.workers_max = 6;
    if (rig_open(r, &p) != DLP_OK) return NULL;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    for (int i = 0; i < 20000 && !all_rest(p); i++) pause_us(1000);
    CHECK(all_rest(p));
    memset(written, 0, sizeof written);
    inside_cpus(p, 64);
    inside_tune_begin(p);
    return p;
}

/* 100 ms go by: the consumer waits this share of them, the stage is busy this share of its workers'
   time, cores this share of that. */
static int look(dlp_pipe *p, int stage, double wait, double busy, double cores) {
    const inside_figures own = inside_figures_of(p, stage);
    double ns = 1e8 * busy * inside_active(p, stage);
    if (written[stage].busy_ns == 0) written[stage].busy_ns = own.busy_ns;
    if (written[stage].cpu_ns == 0) written[stage].cpu_ns = own.cpu_ns;
    written[stage].busy_ns += (uint64_t)ns;
    written[stage].cpu_ns += (uint64_t)(ns * cores);
    written[stage].core_wait_ns += (uint64_t)(ns * core_waits);
    inside_tune_look(p, stage, (uint64_t)(1e8 * wait), &written[stage]);
    return inside_active(p, stage);
}

static void tuning__by_the_numbers__added_one_by_one_up_to_max(void) {
    rig r;
    dlp_pipe *p = resting(&r, 2, 2, 5, 0);
    dlp_stats s;
    if (p == NULL) return;
    CHECK(look(p, 0, 0.1, 0.95, 0) == 2); /* once is not enough */
    CHECK(look(p, 0, 0.1, 0.95, 0) == 3);
    CHECK(look(p, 0, 0.3, 0.95, 0) == 4); /* it is where the consumer waits much */
    CHECK(look(p, 0, 0.3, 0.5, 0) == 4);  /* not busy: something else is the limit */
    CHECK(look(p, 0, 0.04, 1, 0) == 4);   /* the consumer hardly waits */
    CHECK(look(p, 0, 0.04, 1, 0) == 4);
    CHECK(look(p, 0, 0.6, 1, 0) == 5);
    for (int i = 0; i < 9; i++) CHECK(look(p, 0, 0.6, 1, 0) == 5);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.tunes == 3 && s.stages[2].workers == 5);
    CHECK(s.stages[2].workers_min == 2 && s.stages[2].workers_max == 5);
    CHECK(s.tune[2].from == 4 && s.tune[2].to == 5 && s.tune[2].reason == DLP_TUNE_BUSY);
    CHECK(s.tune[2].stage == 2);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void tuning__by_the_numbers__retired_down_to_min_and_no_flapping(void) {
    rig r;
    dlp_pipe *p = resting(&r, 5, 2, 5, 0);
    dlp_stats s;
    int n, least = 9;
    if (p == NULL) return;
    for (int i = 0; i < 2; i++) CHECK(look(p, 0, 0, 0.5, 0) == 5);
    CHECK(look(p, 0, 0, 0.5, 0) == 4);
    CHECK(look(p, 0, 0.03, 0.1, 0) == 4); /* the consumer waited: it begins to count again */
    for (int i = 0; i < 2; i++) CHECK(look(p, 0, 0, 0.5, 0) == 4);
    CHECK(look(p, 0, 0, 0.5, 0) == 3);
    /* work for 2.4 of them: busy 80 % of three, so it is no reason to have two */
    for (int i = 0; i < 20; i++) CHECK(look(p, 0, 0, 0.8, 0) == 3);
    for (int i = 0; i < 20; i++) n = look(p, 0, 0, 0.1, 0);
    CHECK(n == 2);
    /* a load whose every second worker is missed as soon as it is gone */
    for (int i = 0; i < 400; i++) {
        n = look(p, 0, n < 4 ? 0.1 : 0, n < 4 ? 1 : 0.5, 0);
        if (i > 200 && n < least) least = n;
    }
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.tunes < 30 && inside_tune_patience(p, 0) >= 48);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void tuning__they_compute__no_more_than_cores(void) {
    rig r;
    dlp_pipe *p = resting(&r, 1, 0, 8, 0);
    dlp_stats s;
    int n = 0;
    if (p == NULL) return;
    inside_cpus(p, 3);
    for (int i = 0; i < 30; i++) n = look(p, 0, 0.3, 1, 1);
    CHECK(n == 3);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.tunes == 3 && s.tune[2].reason == DLP_TUNE_CORES);
    for (int i = 0; i < 30; i++) n = look(p, 0, 0.3, 1, 0.05);
    CHECK(n == 8); /* they wait now */
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Others have so much of the cores that they wait for one more than they run. */
static void tuning__others_have_the_cores__no_more_than_cores(void) {
    rig r;
    dlp_pipe *p = resting(&r, 1, 0, 8, 0);
    dlp_stats s;
    int n = 0;
    if (p == NULL) return;
    inside_cpus(p, 3);
    core_waits = 0.6;
    for (int i = 0; i < 30; i++) n = look(p, 0, 0.3, 1, 0.4);
    CHECK(n == 3);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.tunes == 3 && s.tune[2].reason == DLP_TUNE_CORES);
    for (int i = 0; i < 30; i++) n = look(p, 0, 0.3, 1, 0.01); /* woken late, but hardly computes */
    CHECK(n == 8);
    core_waits = 0;
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void tuning__two_stages__the_busier_one_grows(void) {
    rig r;
    dlp_pipe *p = resting(&r, 2, 0, 6, 1);
    if (p == NULL) return;
    CHECK(look(p, 1, 0.3, 1, 0) == 3 && inside_active(p, 0) == 2);
    CHECK(look(p, 0, 0.3, 1, 0) == 3 && inside_active(p, 1) == 3);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void tuning__set_by_hand__stays_within_the_limits(void) {
    rig r;
    dlp_pipe *p = resting(&r, 2, 2, 5, 0);
    dlp_stats s;
    dlp_error err;
    if (p == NULL) return;
    CHECK(dlp_pipe_set_workers(p, 2, 1) == DLP_ERR_ARG);
    CHECK(dlp_pipe_set_workers(p, 2, 6) == DLP_ERR_ARG);
    CHECK(dlp_pipe_set_workers(p, 2, -1) == DLP_ERR_ARG);
    CHECK(dlp_pipe_set_workers(p, 0, 2) == DLP_ERR_ARG);
    CHECK(dlp_pipe_set_workers(p, 9, 2) == DLP_ERR_ARG);
    CHECK(dlp_pipe_set_workers(NULL, 2, 2) == DLP_ERR_ARG);
    CHECK(at_work(p) == 2 && dlp_pipe_set_workers(p, 2, 4) == DLP_OK && at_work(p) == 4);
    for (int i = 0; i < 10; i++) CHECK(look(p, 0, 0.5, 1, 0) == 4);
    for (int i = 0; i < 10; i++) CHECK(look(p, 0, 0, 0.1, 0) == 4);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.tunes == 1 && s.tune[0].reason == DLP_TUNE_SET);
    CHECK(dlp_pipe_set_workers(p, 2, 0) == DLP_OK && at_work(p) == 4);
    for (int i = 0; i < 10; i++) look(p, 0, 0, 0.1, 0);
    CHECK(at_work(p) < 4);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_init(&r, 64, 8);
    for (int k = 0; k < 5; k++) {
        static const int bad[5][3] = {{0, 0, 4}, {5, 0, 4}, {1, 2, 4}, {2, 1, 0}, {2, 1, 2000}};
        tuned(&r, bad[k][0], bad[k][1], bad[k][2]);
        CHECK(rig_try(&r, &p, &err) == DLP_ERR_ARG);
        CHECK(strcmp(err.field, k < 3    ? "num_workers"
                                : k == 3 ? "workers_min"
                                         : "workers_max") == 0);
    }
}

static int flaky_fetch(void *user, dlp_item *it) {
    if (it->attempt == 0 && it->position % 13 == 5) return dlp_fail(it->call, 0, "once more");
    return rig_fetch(user, it);
}

/* Workers come and go with every batch, and in every other kind the pipe jumps about: each batch is
   delivered once, in order, with its bytes. */
static void tuning__changed_all_the_time__same_order_and_bytes(void) {
    uint64_t seed = 5;
    for (int kind = 0; kind < 16; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_state state;
        uint64_t per, n, at = 0;
        bool jumps = (kind ^ kind >> 1 ^ kind >> 2) & 1;
        rig_init(&r, 203, 8);
        rig_order(&r, DLP_ORDER_SHUFFLED);
        tuned(&r, 2, 0, 4);
        r.n_item_maps = kind >> 1 & 1;
        r.n_batch_maps = kind >> 2 & 1;
        for (int i = 0; i < RIG_MAPS; i++) r.item_map[i].workers = r.fetch;
        for (int i = 0; i < RIG_MAPS; i++) r.batch_map[i].workers = r.fetch;
        rig_workers(&r, 2, 0);
        r.sampler.threaded = kind >> 3;
        r.dataset.fetch = flaky_fetch;
        r.fetch.retries = 1;
        r.fetch.retry_backoff_ms = kind & 2 ? 1 : 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        per = rig_batches(&r);
        n = (uint64_t)test_share(120, 30000);
        for (uint64_t i = 0; i < n; i++) {
            dlp_batch *b;
            int stage = 2 + (int)test_pick(&seed, 3);
            int rc = dlp_pipe_next_timeout(p, &b, 20000);
            if (rc != DLP_OK) rig_say(p, rc);
            CHECK(rc == DLP_OK);
            if (rc != DLP_OK) break;
            CHECK(rig_batch_same(&r, b, at / per, at % per) && (jumps || b->sequence == i));
            if (inside_tuned(p, stage))
                CHECK(dlp_pipe_set_workers(p, stage, (int)test_pick(&seed, 4) + 1) == DLP_OK);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            at++;
            if (!jumps || test_pick(&seed, 5) != 0) continue;
            at = test_pick(&seed, 4) * per + test_pick(&seed, (uint32_t)per);
            CHECK(dlp_pipe_state_at(p, at / per, at % per, &state) == DLP_OK);
            CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_OK);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        rig_free(&r);
    }
}

/* Wait until the first n of the stage's four are at work, and the others parked. */
static void await_parked(dlp_pipe *p, int n) {
    int ok = 0;
    for (int tries = 0; tries < 2000; tries++) {
        ok = 0;
        for (int i = 0; i < 4; i++) {
            dlp_worker_stats w;
            CHECK(dlp_pipe_worker_stats(p, (uint32_t)i, &w) == DLP_OK);
            ok += (w.state == DLP_WORKER_PARKED) == (i >= n);
        }
        if (ok == 4) return;
        train(p, 0, 0.01);
    }
    CHECK(ok == 4);
}

static int have_more(dlp_pipe *p, int n, const dlp_worker_stats *before) {
    int ok = 0;
    for (int i = 0; i < n; i++) {
        dlp_worker_stats w;
        CHECK(dlp_pipe_worker_stats(p, (uint32_t)i, &w) == DLP_OK);
        ok += w.items > before[i].items;
    }
    return ok == n;
}

/* Only those below the number work, and all of them can. */
static void tuning__retired_workers__do_nothing(void) {
    rig r;
    dlp_pipe *p;
    dlp_worker_stats before[4], after[4];
    rig_init(&r, 4096, 8);
    rig_workers(&r, 4, 0);
    tuned(&r, 4, 1, 4);
    item_us = 200;
    if (rig_open(&r, &p) != DLP_OK) return;
    for (int n = 1; n <= 4; n++) {
        CHECK(dlp_pipe_set_workers(p, 2, n) == DLP_OK);
        await_parked(p, n);
        for (int i = 0; i < 4; i++) dlp_pipe_worker_stats(p, (uint32_t)i, &before[i]);
        train(p, 0, 0.03);
        for (int i = 0; i < 2000 && !have_more(p, n, before); i++) train(p, 0, 0.01);
        for (int i = 0; i < 4; i++) {
            dlp_pipe_worker_stats(p, (uint32_t)i, &after[i]);
            CHECK((after[i].items > before[i].items) == (i < n));
            CHECK((after[i].state == DLP_WORKER_PARKED) == (i >= n));
        }
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int all_parked(dlp_pipe *p) {
    int n = 0;
    for (uint32_t i = 1; i < 64; i++) {
        dlp_worker_stats w;
        CHECK(dlp_pipe_worker_stats(p, i, &w) == DLP_OK);
        n += w.state == DLP_WORKER_PARKED;
    }
    return n == 63;
}

/* 63 of 64 are parked: they burn nothing, and close does not wait for their pauses. Each checks
   once a second. */
static int parked_cost_nothing(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    struct timespec from, to;
    double cpu, begin, most = getenv("SHORT") ? 0.1 : 0.01;
    dlp_worker_stats w;
    int ok;
    rig_init(&r, 4096, 64);
    tuned(&r, 1, 1, 64);
    item_us = 0;
    if (rig_open(&r, &p) != DLP_OK) return 0;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    for (int i = 0; i < 20000 && !(all_parked(p) && all_rest(p)); i++) pause_us(1000);
    CHECK(all_parked(p) && all_rest(p));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    pause_us(200000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    cpu = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    printf("63 parked workers: %.3f %% of a core\n", cpu / 0.2 * 100);
    ok = cpu / 0.2 < most;
    CHECK(dlp_pipe_worker_stats(p, 40, &w) == DLP_OK && w.state == DLP_WORKER_PARKED);
    CHECK(w.items == 0);
    ok &= w.starved_ns < 50000000;
    begin = seconds();
    CHECK(dlp_pipe_close(p) == DLP_OK);
    begin = seconds() - begin;
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    if (begin >= 0.5) printf("close took %.2f s\n", begin);
    return ok && begin < 0.5;
}

static void tuning__parked_workers__cost_nothing_and_end_at_once(void) {
    CHECK_ONE_OF_5(parked_cost_nothing());
}

/* Do the counters say who waits for whom in the next 60 ms? */
static int says_who_waits(dlp_pipe *p, int kind) {
    dlp_stats was, is;
    uint64_t busy[2], starved[2], blocked[2];
    CHECK(dlp_pipe_stats(p, &was) == DLP_OK);
    train(p, kind & 2 ? 0 : 10000, 0.06);
    CHECK(dlp_pipe_stats(p, &is) == DLP_OK);
    for (int i = 0; i < 2; i++) {
        busy[i] = is.stages[2 + i].busy_ns - was.stages[2 + i].busy_ns;
        starved[i] = is.stages[2 + i].starved_ns - was.stages[2 + i].starved_ns;
        blocked[i] = is.stages[2 + i].blocked_ns - was.stages[2 + i].blocked_ns;
    }
    if (kind & 2) return blocked[0] < busy[0] / 2 && blocked[1] < starved[1] / 2;
    return blocked[0] > starved[0] && blocked[0] > busy[0] && (kind & 1 || blocked[1] > starved[1]);
}

/* Who waits for whom: a slow consumer blocks the workers, a slow fetch starves the maps. If one
   loses its processor the counters have that; so there are some tries. */
static void waiting__slow_consumer_or_slow_fetch__blocked_or_starved(void) {
    for (int kind = 0; kind < 4; kind++) {
        rig r;
        dlp_pipe *p;
        int ok = 0;
        rig_init(&r, 4096, 8);
        r.pipe.epochs = DLP_FOREVER;
        r.dataset.fetch = sleeping_fetch;
        r.n_item_maps = 1;
        rig_workers(&r, 2, kind & 1);
        item_us = kind & 2 ? 1000 : 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int tries = 0; tries < 50 && !ok; tries++) ok = says_who_waits(p, kind);
        CHECK(ok);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Items get a thousand times dearer: runs are short again within a few batches, not 64. */
static void cost__rises_at_once__runs_get_short_soon(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    rig_init(&r, 1 << 20, 64);
    r.dataset.fetch = sleeping_fetch;
    r.fetch.num_workers = 1;
    item_us = 0;
    if (rig_open(&r, &p) != DLP_OK) return;
    for (int i = 0; i < 128 * 2 + 1 || (i < 10000 && inside_run_shift(p) == 0); i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
        if (getenv("SHORT") && i > 128 * 2) break;
    }
    if (!getenv("SHORT")) CHECK(inside_run_shift(p) > 0); /* a sanitizer's items are dear */
    __atomic_store_n(&item_us, 100, __ATOMIC_RELAXED);
    for (int i = 0; i < 20; i++)
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(inside_run_shift(p) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    waiting__slow_consumer_or_slow_fetch__blocked_or_starved();
    cost__rises_at_once__runs_get_short_soon();
    tuning__sleeping_fetch__finds_the_number_and_keeps_it();
    tuning__by_the_numbers__added_one_by_one_up_to_max();
    tuning__by_the_numbers__retired_down_to_min_and_no_flapping();
    tuning__they_compute__no_more_than_cores();
    tuning__others_have_the_cores__no_more_than_cores();
    tuning__two_stages__the_busier_one_grows();
    tuning__set_by_hand__stays_within_the_limits();
    tuning__changed_all_the_time__same_order_and_bytes();
    tuning__retired_workers__do_nothing();
    tuning__parked_workers__cost_nothing_and_end_at_once();
    return test_end("tuning");
}
