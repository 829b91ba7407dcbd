/* needs: join */
/* Several datasets in one pipe: zipped, mixed, a mix zipped with another; each with workers and a
   placement of its own, in threads and in processes, many at once too; failures by each policy;
   workers killed at each access of the joined stage, and of
   the first; resume at every batch; what is refused.
   join [N]: the deaths at access N alone. */
/* own: hook: a worker dies at an access of an atomic */
#include "../../rig/atomics_hook.h"

static void death_here(const void *at);

static inline void atomics_hook(int kind, const void *at) {
    (void)kind;
    death_here(at);
}

#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/join_rig.h"
#include <signal.h>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifndef TSAN
#define TSAN 0
#endif

/* ---- bytes and order ---- */

static const int counts_[] = {1, 4, 16};

static void join__zip_of_two_and_three__same_rows_everywhere(void) {
    setup s;
    for (int n = 2; n <= MOST; n++) {
        outcome want, got;
        setup_zip(&s, n, 61);
        s.map = n == 3;
        s.epochs = 2;
        want = drain(&s, UINT64_MAX);
        CHECK(want.rc == DLP_END && want.rows == 122);
        for (int k = 0; k < 6; k++) {
            if (TSAN && k >= 3) break;
            workers_all(&s, counts_[k % 3], k >= 3 ? DLP_PLACE_PROCESSES : 0);
            s.collate = k == 1;
            s.dispatch = k == 2 ? DLP_DISPATCH_BATCHES : 0;
            got = drain(&s, UINT64_MAX);
            CHECK(got.rc == DLP_END && got.order == want.order && got.rows == want.rows);
        }
    }
}

/* Each with another way to fetch; the numbers of workers differ. */
static void join__many_in_flight__same_rows(void) {
    setup s;
    outcome want, got;
    setup_zip(&s, 3, 61);
    want = drain(&s, UINT64_MAX);
    for (int k = 0; k < 6; k++) {
        if (TSAN && k >= 3) break;
        workers_all(&s, 2, k >= 3 ? DLP_PLACE_PROCESSES : 0);
        s.fetcher[k % 3] = DLP_FETCH_THREADS;
        s.fetcher[(k + 1) % 3] = DLP_FETCH_ASYNC;
        s.fetcher[(k + 2) % 3] = 0;
        s.workers[(k + 2) % 3] = k % 2 ? 3 : 0;
        if (k % 2 == 0) s.placement[(k + 2) % 3] = 0;
        got = drain(&s, UINT64_MAX);
        CHECK(got.rc == DLP_END && got.order == want.order && got.rows == want.rows);
    }
}

static void join__mix_of_two_and_three__each_stage_has_its_rows(void) {
    const uint64_t items[3] = {40, 31, 17}, weights[3] = {3, 2, 1};
    for (int n = 2; n <= MOST; n++) {
        setup s;
        outcome want, got;
        uint64_t of[MOST] = {0}, epoch;
        setup_mix(&s, n, items, weights);
        want = drain(&s, UINT64_MAX);
        CHECK(want.rc == DLP_END && want.left == 0);
        epoch = want.rows;
        for (uint64_t i = 0; i < epoch; i++) {
            uint32_t d;
            uint64_t item;
            CHECK(dlp_mix_locate(s.mix, dlp_mix_at(s.mix, 0, i), &d, &item) == DLP_OK);
            of[d]++;
        }
        for (int k = 0; k < 9; k++) {
            if (TSAN && k % 3 == 2) continue;
            workers_all(&s, counts_[k / 3], k % 3 == 2 ? DLP_PLACE_PROCESSES : 0);
            s.fetcher[0] = k % 3 == 1 ? DLP_FETCH_ASYNC : 0;
            s.fetcher[1] = k % 3 == 1 ? DLP_FETCH_THREADS : 0;
            got = drain(&s, UINT64_MAX);
            CHECK(got.rc == DLP_END && got.order == want.order && got.rows == want.rows);
            for (int i = 0; i < n; i++) CHECK(got.stats.stages[2 + i].items == of[i]);
        }
        dlp_mix_close(s.mix);
    }
}

/* Rows that nothing is asked of but a mix's numbers. */
static void join__mix_of_words__each_has_its_own_item(void) {
    const uint64_t items[2] = {40, 31};
    for (int k = 0; k < 2; k++) {
        dlp_batch *b;
        setup s;
        dlp_pipe *p;
        int rc;
        setup_mix(&s, 2, items, NULL);
        s.of[0].plain = s.of[1].plain = 1;
        workers_all(&s, 2 * k, 0);
        p = setup_open(&s);
        rc = dlp_pipe_start(p);
        while (rc == DLP_OK && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) {
                uint64_t index = b->index[r], word = ((const uint64_t *)b->fields[0].data)[r];
                CHECK(word == (index < 40 ? source_word(&s.of[0], index)
                                          : source_word(&s.of[1], index - 40)));
            }
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_END);
        dlp_pipe_close(p);
        dlp_mix_close(s.mix);
    }
}

/* A mix of two, and labels for both. */
static void join__zip_of_a_mix__same_rows(void) {
    const uint64_t items[2] = {40, 31};
    setup s;
    outcome want, got;
    setup_mix(&s, 2, items, NULL);
    s.n = 3;
    source_init(&s.of[2], 2, 71, 0);
    want = drain(&s, UINT64_MAX);
    CHECK(want.rc == DLP_END && want.left == 0 && want.rows > 0);
    for (int k = 0; k < 4; k++) {
        if (TSAN && k >= 2) break;
        workers_all(&s, counts_[k % 2], k >= 2 ? DLP_PLACE_PROCESSES : 0);
        s.fetcher[1] = k % 2 ? DLP_FETCH_ASYNC : 0;
        got = drain(&s, UINT64_MAX);
        CHECK(got.rc == DLP_END && got.order == want.order && got.rows == want.rows);
    }
    dlp_mix_close(s.mix);
}

/* ---- failures ---- */

/* Item 1 of the second dataset fails, and every seventh. */
static void join__items_fail__policy_of_the_join(void) {
    static const int fetchers[3] = {0, DLP_FETCH_THREADS, DLP_FETCH_ASYNC};
    for (int mixed = 0; mixed < 2; mixed++)
        for (int k = 0; k < 3; k++)
            for (int policy = DLP_ON_ERROR_RAISE; policy <= DLP_ON_ERROR_DROP; policy++) {
                const uint64_t items[2] = {40, 30};
                setup s;
                outcome o, inline_;
                if (mixed)
                    setup_mix(&s, 2, items, NULL);
                else
                    setup_zip(&s, 2, 60);
                s.policy = policy;
                s.of[1].bad = 7;
                inline_ = drain(&s, UINT64_MAX);
                s.workers[0] = 2;
                s.workers[1] = 3;
                s.fetcher[1] = fetchers[k];
                o = drain(&s, UINT64_MAX);
                if (policy == DLP_ON_ERROR_RAISE) {
                    CHECK(o.rc == DLP_ERR_CALLBACK && strcmp(o.error.stage, "labels") == 0);
                    CHECK(o.error.has_item && o.error.index % 7 == (mixed ? 41 % 7 : 1));
                    CHECK(strstr(o.error.message, "source 1 has no such item") != NULL);
                    CHECK(!mixed || strstr(o.error.message, "item ") == o.error.message);
                } else {
                    CHECK(o.rc == DLP_END && o.order == inline_.order && o.rows == inline_.rows);
                    CHECK(policy != DLP_ON_ERROR_DROP || o.left > 0);
                    CHECK(policy != DLP_ON_ERROR_REPLACE || o.left == 0);
                    if (policy == DLP_ON_ERROR_REPLACE) CHECK(o.stats.stages[3].replaced > 0);
                }
                if (mixed) dlp_mix_close(s.mix);
            }
}

/* What is tried again is tried in the join alone: nothing is fetched twice by the first. */
static void join__item_fails_twice__tried_again_there(void) {
    static const int fetchers[3] = {0, DLP_FETCH_THREADS, DLP_FETCH_ASYNC};
    for (int k = 0; k < 6; k++) {
        setup s;
        outcome o;
        setup_zip(&s, 2, 60);
        s.of[1].bad = 7;
        s.of[1].fails = 2;
        s.retries = 2;
        s.backoff_ms = k / 3;
        s.workers[0] = 1;
        s.workers[1] = 2;
        s.fetcher[1] = fetchers[k % 3];
        o = drain(&s, UINT64_MAX);
        CHECK(o.rc == DLP_END && o.rows == 60);
        CHECK(o.stats.stages[3].retried == 2 * 9 && o.stats.stages[2].items == 60);
    }
}

/* ---- a slow source ---- */

static uint64_t ms_of(setup *s) {
    uint64_t from = dlpi_now_ns();
    CHECK(drain(s, UINT64_MAX).rc == DLP_END);
    return (dlpi_now_ns() - from) / 1000000;
}

/* Of 10 rows one comes from a source that takes 20 ms, with 2 x 4 items in flight: its 60 items
   wait side by side, and the other stage's one worker, which passes them on, waits for none. */
static void join__slow_source__only_its_rows_wait(void) {
    const uint64_t items[2] = {540, 60}, weights[2] = {9, 1};
    setup s;
    outcome o;
    uint64_t ms;
    setup_mix(&s, 2, items, weights);
    s.of[1].sleep_us = 20000;
    s.workers[0] = 1;
    s.workers[1] = 2;
    s.fetcher[1] = DLP_FETCH_THREADS;
    s.batch = 20;
    ms = ms_of(&s);
    CHECK(ms >= 60 / 8 * 20 && ms < 60 * 20);
    o = drain(&s, UINT64_MAX);
    CHECK(o.stats.stages[2].busy_ns < 600000000 && o.stats.stages[2].items == 540);
    CHECK(o.stats.stages[3].in_flight_ns >= UINT64_C(60) * 20000000 &&
          o.stats.stages[3].items == 60);
    dlp_mix_close(s.mix);
}

/* One dataset's only worker stands still in its first item: of those before and after it all that
   is under way is fetched, mapped or not. */
static uint32_t gate_open_, gate_in_, fetched_[MOST];

static int gate_fetch(void *user, dlp_item *it) {
    const source *s = user;
    if (s->number == 1) {
        __atomic_store_n(&gate_in_, 1u, __ATOMIC_SEQ_CST);
        while (!__atomic_load_n(&gate_open_, __ATOMIC_SEQ_CST)) usleep(200);
    }
    __atomic_add_fetch(&fetched_[s->number], 1u, __ATOMIC_SEQ_CST);
    return source_fetch(user, it);
}

static uint32_t mapped_;
static int gate_map(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    __atomic_add_fetch(&mapped_, 1u, __ATOMIC_SEQ_CST);
    return 0;
}

static void gate_try(int fetcher, int middle, int threads) {
    const uint64_t items[3] = {40, 40, 40};
    uint32_t of[MOST] = {0}, want_mapped = 0;
    dlp_batch *b;
    dlp_pipe *p;
    setup s;
    int rc;
    setup_mix(&s, 3, items, NULL);
    workers_all(&s, threads, 0);
    s.workers[1] = 1;
    s.fetcher[1] = fetcher;
    s.prefetch = 4;
    s.gate = gate_fetch;
    s.map_workers = middle ? 1 : 0;
    s.gate_map = middle ? gate_map : NULL;
    memset(fetched_, 0, sizeof fetched_);
    mapped_ = gate_open_ = gate_in_ = 0;
    for (uint64_t i = 0; i < 4 * 8; i++) {
        uint32_t d;
        uint64_t item;
        CHECK(dlp_mix_locate(s.mix, dlp_mix_at(s.mix, 0, i), &d, &item) == DLP_OK);
        of[d]++;
    }
    want_mapped = middle ? of[0] + of[2] : 0;
    p = setup_open(&s);
    CHECK(dlp_pipe_start(p) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 0) == DLP_TIMEOUT);
    for (int ms = 0; ms < 5000; ms++) {
        if (__atomic_load_n(&fetched_[0], __ATOMIC_SEQ_CST) == of[0] &&
            __atomic_load_n(&fetched_[2], __ATOMIC_SEQ_CST) == of[2] &&
            __atomic_load_n(&mapped_, __ATOMIC_SEQ_CST) == want_mapped &&
            __atomic_load_n(&gate_in_, __ATOMIC_SEQ_CST) == 1)
            break;
        usleep(1000);
    }
    CHECK(__atomic_load_n(&gate_in_, __ATOMIC_SEQ_CST) == 1 && fetched_[1] == 0);
    CHECK(__atomic_load_n(&fetched_[0], __ATOMIC_SEQ_CST) == of[0]);
    CHECK(__atomic_load_n(&fetched_[2], __ATOMIC_SEQ_CST) == of[2]);
    CHECK(__atomic_load_n(&mapped_, __ATOMIC_SEQ_CST) == want_mapped);
    if (fetched_[2] != of[2])
        printf("%u of %u, %u of %u\n", fetched_[0], of[0], fetched_[2], of[2]);
    __atomic_store_n(&gate_open_, 1u, __ATOMIC_SEQ_CST);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++) CHECK(row_is(&s, b, r));
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_END);
    dlp_pipe_close(p);
    dlp_mix_close(s.mix);
}

static void join__source_stands_still__others_rows_go_on(void) {
    for (int fetcher = 0; fetcher <= DLP_FETCH_THREADS; fetcher++)
        for (int k = 0; k < 4; k++) gate_try(fetcher, k / 2, 1 + k % 2 * 2);
}

/* Whoever lets a row pass the last stages wakes the consumer, who would else sleep 50 ms for each
   batch. */
static void last_rows_pass(void) {
    const uint64_t items[3] = {200, 40, 200}, weights[3] = {200, 40, 200};
    for (int k = 0; k < 2; k++) {
        setup s;
        setup_mix(&s, 3, items, weights);
        workers_all(&s, 1, 0);
        s.of[0].sleep_us = s.of[2].sleep_us = 100;
        s.of[1].sleep_us = 1000;
        s.fetcher[1] = k ? DLP_FETCH_THREADS : 0;
        CHECK_SOON(ms_of(&s) < 1000);
        dlp_mix_close(s.mix);
    }
}
static void join__last_stage_is_passed__nobody_sleeps_on(void) { test_tries(last_rows_pass); }

/* ---- resume, cache ---- */

static void join__resumed_at_each_batch__same_order(void) {
    const uint64_t items[2] = {20, 15};
    for (int mixed = 0; mixed < 2; mixed++) {
        setup s;
        uint64_t n;
        if (mixed)
            setup_mix(&s, 2, items, NULL);
        else
            setup_zip(&s, 3, 41);
        s.epochs = 2;
        n = drain(&s, UINT64_MAX).batches;
        for (uint64_t k = 1; k < n; k++) {
            outcome head, rest, whole;
            s.resume = NULL;
            workers_all(&s, (int)(k % 3), 0);
            head = drain(&s, k);
            s.resume = &head.state;
            workers_all(&s, (int)((k + 1) % 3 * 2), k % 2 && !TSAN ? DLP_PLACE_PROCESSES : 0);
            rest = drain(&s, UINT64_MAX);
            s.resume = NULL;
            workers_all(&s, 0, 0);
            whole = drain(&s, UINT64_MAX);
            CHECK(rest.rc == DLP_END && head.rows + rest.rows == whole.rows);
            CHECK(head.batches + rest.batches == whole.batches);
        }
        if (mixed) dlp_mix_close(s.mix);
    }
}

static void join__cache__keeps_what_is_in_front_of_it(void) {                   /* needs: cache */
    const uint64_t items[2] = {20, 15};                                         /* needs: cache */
    for (int k = 0; k < 9; k++) {                                               /* needs: cache */
        setup s;                                                                /* needs: cache */
        outcome o, want;                                                        /* needs: cache */
        uint64_t one; /* dataset in a cell, or two */                           /* needs: cache */
        int mixed = k % 3 == 2;                                                 /* needs: cache */
        if (mixed)                                                              /* needs: cache */
            setup_mix(&s, 2, items, NULL);                                      /* needs: cache */
        else                                                                    /* needs: cache */
            setup_zip(&s, 2, 40);                                               /* needs: cache */
        s.epochs = 3;                                                           /* needs: cache */
        want = drain(&s, UINT64_MAX);                                           /* needs: cache */
        s.cache = 1 + k % 3 % 2;                                                /* needs: cache */
        workers_all(&s, k / 3 * 2, 0);                                          /* needs: cache */
        if (k / 3 == 2) s.fetcher[1] = DLP_FETCH_ASYNC;                         /* needs: cache */
        if (k / 3 == 2 && mixed) s.fetcher[0] = DLP_FETCH_ASYNC;                /* needs: cache */
        o = drain(&s, UINT64_MAX);                                              /* needs: cache */
        CHECK(o.rc == DLP_END && o.order == want.order);                        /* needs: cache */
        one = s.cache == 1 && !mixed ? 2 : 1;                                   /* needs: cache */
        CHECK(o.stats.cache_all_bytes == (mixed ? 35u : 40u) * (8 + 24 * one)); /* needs: cache */
        CHECK(o.stats.cache_hits >= (mixed ? 50u : 80u) - (k >= 3 ? 20u : 0u)); /* needs: cache */
        if (mixed) dlp_mix_close(s.mix);                                        /* needs: cache */
    }                                                                           /* needs: cache */
} /* needs: cache */

/* ---- a death in a worker process ---- */

static struct deaths { int64_t seen, at; } * deaths_;
static pid_t first_;
static int death_stage_;

/* At the k-th access of workers of that stage, counted over all of them. */
static void death_here(const void *at) {
    const dlpi_worker_block *block;
    (void)at;
    if (deaths_ == NULL || deaths_->at == 0 || pipe_ == NULL || getpid() == first_) return;
    if (pipe_->region == NULL || pipe_->workers == NULL) return;
    for (int i = 0; i < pipe_->n_workers; i++) {
        if (pipe_->workers[i].st->id != death_stage_) continue;
        block = pipe_->workers[i].block;
        if (block->pid != (int32_t)getpid()) continue;
        if (__atomic_add_fetch(&deaths_->seen, 1, __ATOMIC_SEQ_CST) == deaths_->at) raise(SIGKILL);
        return;
    }
}

static void join__worker_dies_at_each_access__nothing_is_lost(int64_t only) {
    const int64_t most = getenv("SHORT") ? 60 : 400;
    const uint64_t items[3] = {12, 12, 8};
    uint64_t died = 0;
    first_ = getpid();
    for (int k = 0; k < 8; k++) {
        setup s;
        outcome want, got;
        deaths_->at = 0;
        if (k % 2)
            setup_mix(&s, k >= 4 ? 3 : 2, items, NULL);
        else
            setup_zip(&s, 2, 24);
        s.batch = 4;
        want = drain(&s, UINT64_MAX);
        workers_all(&s, 2, DLP_PLACE_PROCESSES);
        death_stage_ = k < 4 ? 3 : 2;
        if (k % 4 >= 2) s.fetcher[death_stage_ - 2] = DLP_FETCH_ASYNC;
        for (int64_t at = 1; at <= most; at += at < 120 ? 3 : 11) {
            if (only != 0 && at != only) continue;
            deaths_->seen = 0;
            deaths_->at = at;
            got = drain(&s, UINT64_MAX);
            died += got.stats.stages[death_stage_].restarts;
            CHECK(got.rc == DLP_END && got.order == want.order && got.rows == want.rows);
            if (got.rc != DLP_END) printf("join %d: setup %d\n", (int)at, k);
        }
        if (k % 2) dlp_mix_close(s.mix);
    }
    deaths_->at = 0;
    CHECK(died > 80);
}

/* An item that kills each worker that it comes to: told by its own number. */
static void join__item_kills_workers__named(void) {
    const uint64_t items[2] = {20, 15};
    for (int k = 0; k < 2; k++) {
        setup s;
        outcome o;
        setup_mix(&s, 2, items, NULL);
        workers_all(&s, 2, DLP_PLACE_PROCESSES);
        s.of[1].kills = 9;
        s.fetcher[1] = k ? DLP_FETCH_ASYNC : 0;
        o = drain(&s, UINT64_MAX);
        CHECK(o.rc == DLP_ERR_KILLED && o.error.index == 29);
        CHECK(strcmp(o.error.stage, "labels") == 0);
        CHECK(strstr(o.error.message, "item 9 of its dataset") == o.error.message);
        dlp_mix_close(s.mix);
    }
}

static void join__zip_with_parts__same_rows(void) {                        /* needs: parts */
    setup s;                                                               /* needs: parts */
    for (int k = 0; k < 3; k++) {                                          /* needs: parts */
        outcome o;                                                         /* needs: parts */
        setup_zip(&s, 2, 27);                                              /* needs: parts */
        workers_all(&s, 2 * k, k == 2 && !TSAN ? DLP_PLACE_PROCESSES : 0); /* needs: parts */
        s.parts = 1;                                                       /* needs: parts */
        o = drain(&s, UINT64_MAX);                                         /* needs: parts */
        CHECK(o.rc == DLP_END && o.rows == 27);                            /* needs: parts */
    }                                                                      /* needs: parts */
} /* needs: parts */

/* ---- by a loader ---- */

/* Let a loader have the first dataset. */
static void loader_takes(dlp_loader_desc *d, setup *s, dlp_dataset *ds) {
    dlp_source f;
    fetch_desc(s, 0, ds, &f);
    d->dataset = *ds;
    d->num_workers = f.workers.num_workers;
    d->workers = f.workers;
    d->workers.num_workers = 0;
    d->fetcher = f.fetcher;
    d->in_flight = f.in_flight;
    d->batch_pool = f.batch_pool;
    d->async = f.async;
}

static int loader_open(setup *s, int topology, dlp_pipe **p, dlp_error *err) {
    static rig_table rows;
    dlp_dataset ds[MOST];
    dlp_loader_desc d;
    uint32_t mixes = 1;
    memset(&d, 0, sizeof d);
    memset(&rows, 0, sizeof rows);
    loader_takes(&d, s, &ds[0]);
    for (int i = 1; i < s->n; i++) {
        dlp_source fetch;
        fetch_desc(s, i, &ds[i], &fetch);
        mixes += s->of[i].mixed != 0;
        table_fetch(&rows, &fetch, s->of[i].mixed ? mixes : 0);
    }
    d.batch_size = s->batch;
    d.epochs = 2;
    d.shuffle = s->mix == NULL;
    if (s->mix) dlp_mix_sampler(s->mix, &d.sampler);
    d.topology = topology;
    d.rows = rows.nodes;
    d.n_rows = rows.n;
    if (s->cache) d.cache.bytes = 1 << 20; /* needs: cache */
    return dlp_loader_open(p, &d, err);
}

/* Zips, mixes and both, in each topology, with a cache or not: rows are what their index says. */
static void join__by_a_loader__rows_as_by_hand(void) {
    const uint64_t items[3] = {20, 15, 35};
    for (int i = 0; i < 18; i++) {
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_error err;
        uint64_t rows = 0;
        setup s;
        if (i % 3 == 0)
            setup_zip(&s, 3, 35);
        else
            setup_mix(&s, i % 3 + 1 == 2 ? 2 : 3, items, NULL);
        workers_all(&s, 1 + i % 2, 0);
        s.cache = i / 9;
        CHECK(loader_open(&s, i / 3 % 3, &p, &err) == DLP_OK);
        if (p == NULL) break;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) CHECK(b->valid[r] && row_is(&s, b, r));
            rows += b->count;
            dlp_pipe_release(p, b);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        s.epochs = 2;
        CHECK(rows > 0 && rows == drain(&s, UINT64_MAX).rows);
        dlp_mix_close(s.mix);
    }
}

static void join__of_a_loader__refused_with_names(void) {
    dlp_loader_desc d;
    dlp_dataset ds[2];
    dlp_source join;
    rig_table rows = {.n = 0};
    dlp_pipe *p = NULL;
    dlp_error err;
    setup s;
    setup_zip(&s, 2, 60);
    s.of[1].n_items = 59;
    CHECK(loader_open(&s, 0, &p, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.stage, "labels") == 0 && strcmp(err.field, "source.dataset.n_items") == 0);
    s.of[1].n_items = 60;
    memset(&d, 0, sizeof d);
    loader_takes(&d, &s, &ds[0]);
    fetch_desc(&s, 1, &ds[1], &join);
    table_fetch(&rows, &join, 0);
    d.batch_size = 4;
    d.n_rows = 1;
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_ERR_ARG && strcmp(err.field, "n_rows") == 0);
    d.rows = rows.nodes;
    d.n_rows = UINT32_MAX;
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_ERR_ARG && strcmp(err.field, "n_rows") == 0);
    d.n_rows = 1;
    d.dataset.filter = 1;                                  /* needs: parts */
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_ERR_GRAPH); /* needs: parts */
    CHECK(strcmp(err.stage, "labels") == 0);               /* needs: parts */
}

/* ---- refusals ---- */

static void refused(setup *s, int how, const char *field, const char *words) {
    dlp_pipe *p = NULL;
    dlp_plan plan;
    dlp_error e;
    int rc = setup_try(s, how, &p, &e);
    if (rc == DLP_OK && (rc = dlp_pipe_plan(p, &plan)) != DLP_OK) e = *dlp_pipe_error(p);
    CHECK(rc < 0 && strcmp(e.stage, "labels") == 0 && strcmp(e.field, field) == 0);
    CHECK(strstr(e.message, words) != NULL);
    if (strcmp(e.field, field) != 0 || strstr(e.message, words) == NULL)
        printf("got: %s: %s\n", e.field, e.message);
    dlp_pipe_close(p);
}

static void join__datasets_do_not_fit__refused_with_names(void) {
    const uint64_t items[2] = {20, 15};
    setup s;
    setup_zip(&s, 2, 60);
    s.of[1].n_items = 59;
    refused(&s, 0, "source.dataset.n_items", "n_items is 59, must be 60");
    setup_zip(&s, 2, 60);
    strcpy(s.of[1].names[1], "r0");
    refused(&s, 0, "fields[].name", "\"r0\"");
    setup_zip(&s, 2, 60);
    refused(&s, JOIN_MIX, "fields[].name", "differ from \"w0\"");
    setup_zip(&s, 2, 60);
    s.of[1].n_items = 0;
    refused(&s, 0, "source.dataset.n_items", "1..2^48");
    setup_mix(&s, 2, items, NULL);
    s.of[1].fields[1].shape[0] = 6;
    refused(&s, 0, "fields[].name", "type or shape");
    s.of[1].fields[1].shape[0] = 5;
    s.cache = 2;                                   /* needs: cache */
    refused(&s, 0, "how", "must directly follow"); /* needs: cache */
    dlp_mix_close(s.mix);
}

static int expand_none(void *user, dlp_expand *x) { /* needs: parts */
    (void)user;                                     /* needs: parts */
    (void)x;                                        /* needs: parts */
    return 0;                                       /* needs: parts */
} /* needs: parts */

/* A chain with something else in it. */
static void chain_refused(int what, uint32_t how, const char *stage, const char *words) {
    static const dlp_field raw = {"raw", DLP_U8, 1, {9}, 1, 0};
    dlp_sampler_desc sampler = {.order = what == 6 ? DLP_ORDER_PARTS : 0};
    dlp_dataset ds[2];
    dlp_source fetch, join;
    rig_table t = {.n = 0};
    dlp_plan plan;
    dlp_error e;
    dlp_pipe *p = NULL;
    int rc;
    setup s;
    setup_zip(&s, 2, 60);
    fetch_desc(&s, 0, &ds[0], &fetch);
    fetch_desc(&s, 1, &ds[1], &join);
    ds[0].open_end = what == 1;
    if (what == 1) ds[0].n_items = 0;
    ds[1].open_end = what == 2;
    ds[1].filter = what == 3;
    table_list(&t, &sampler);
    if (what == 6) {                       /* needs: parts */
        dlp_node_load parts = part_desc(); /* needs: parts */
        table_load(&t, &parts);            /* needs: parts */
        ds[0].n_items = 0;                 /* needs: parts */
    }                                      /* needs: parts */
    table_fetch(&t, &fetch, how);
    if (what == 5)                                                             /* needs: parts */
        table_row(&t, (dlp_node){.verb = DLP_EXPAND,                           /* needs: parts */
                                 .expand = {.expand = expand_none,             /* needs: parts */
                                            .max_out = 2}});                   /* needs: parts */
    if (what == 4) {                                                           /* needs: scratch */
        table_ends(&t, &raw, 1, 0);                                            /* needs: scratch */
        table_row(&t, (dlp_node){.verb = DLP_MAP, .map = {.item = map_adds}}); /* needs: scratch */
    }                                                                          /* needs: scratch */
    table_fetch(&t, &join, how ? 2 : 0);
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = what == 7 ? 1 : 4}});
    if (what == 7)                                                              /* needs: split */
        table_row(&t, (dlp_node){.verb = DLP_SPLIT,                             /* needs: split */
                                 .split = {.chunk_rows = 5, .batch_size = 5}}); /* needs: split */
    rc = table_pipe(&t, &p, NULL, &e);
    if (rc == DLP_OK && (rc = dlp_pipe_plan(p, &plan)) != DLP_OK) e = *dlp_pipe_error(p);
    CHECK(rc < 0);
    CHECK(strcmp(e.stage, stage) == 0);
    CHECK(strstr(e.message, words) != NULL);
    if (strstr(e.message, words) == NULL) printf("%d got: %s: %s\n", what, e.stage, e.message);
    dlp_pipe_close(p);
}

static void join__chain_does_not_fit__refused_with_words(void) {
    chain_refused(1, 0, "labels", "open_end is 1, must be 0");
    chain_refused(1, 1, "labels", "open_end is 1, must be 0");
    chain_refused(2, 0, "labels", "goes by the numbers of items");
    chain_refused(3, 0, "labels", "DLP_SKIP leaves the row out");
    chain_refused(4, 1, "labels", "must directly follow");              /* needs: scratch */
    chain_refused(5, 0, "labels", "\"expand\" makes items of unknown"); /* needs: parts */
    chain_refused(6, 1, "labels", "\"parts\" loads parts of one");      /* needs: parts */
    chain_refused(7, 0, "labels", "the rows of \"split\"");             /* needs: split */
}

int main(int argc, char **argv) {
    deaths_ =
        mmap(NULL, sizeof *deaths_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    first_ = getpid();
    if (argc < 2) {
        join__datasets_do_not_fit__refused_with_names();
        join__chain_does_not_fit__refused_with_words();
        join__by_a_loader__rows_as_by_hand();
        join__of_a_loader__refused_with_names();
        join__zip_of_two_and_three__same_rows_everywhere();
        join__many_in_flight__same_rows();
        join__mix_of_two_and_three__each_stage_has_its_rows();
        join__mix_of_words__each_has_its_own_item();
        join__zip_of_a_mix__same_rows();
        join__items_fail__policy_of_the_join();
        join__item_fails_twice__tried_again_there();
        join__slow_source__only_its_rows_wait();
        join__source_stands_still__others_rows_go_on();
        join__last_stage_is_passed__nobody_sleeps_on();
        join__zip_with_parts__same_rows(); /* needs: parts */
        if (!TSAN) join__item_kills_workers__named();
        join__resumed_at_each_batch__same_order();
        join__cache__keeps_what_is_in_front_of_it(); /* needs: cache */
    }
    if (!TSAN) join__worker_dies_at_each_access__nothing_is_lost(argc > 1 ? atoll(argv[1]) : 0);
    return test_end("join");
}
