/* needs: help runs */
/* consumer_helps: where next would wait, the consumer works on rows itself, beside threads. Rows,
   order and states are those of a pipe without it; failures are those of any worker. It helps only
   while items are short, and never where its help is refused. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/pipe_rig.h"
#include <pthread.h>
#include <sched.h>

enum { ITEMS = 4000, MOST = 8 };

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What the callbacks of a run see and do. threads: the number of the consumer's worker. */
typedef struct work {
    int threads;
    bool waits;            /* threads wait until the consumer has made an item: it must help */
    uint32_t slow_us;      /* that an item takes */
    uint64_t fails;        /* n: each n-th item fails at its first `tries` attempts; 0: none */
    int tries, code;       /* tries 0: at all */
    bool helper_only;      /* only the consumer's items fail */
    uint64_t made[MOST];   /* items that each worker has made */
    uint64_t failed[MOST]; /* attempts of each worker that failed */
    int inits[MOST], exits[MOST], wrong, bad_init;
    pthread_t init[MOST], exit[MOST];
} work;

static uint64_t word_of(uint64_t index, uint64_t k) { return dlp_hash(index, k, 5, 6); }

static uint64_t made_by(work *w, int worker) {
    return __atomic_load_n(&w->made[worker], __ATOMIC_RELAXED);
}

/* Let a thread wait for the consumer, once the consumer may know what items cost. */
static void wait_for_help(work *w, int worker) {
    const double until = seconds_now() + 10;
    if (!w->waits || worker == w->threads || made_by(w, worker) < 256) return;
    while (made_by(w, w->threads) == 0 && seconds_now() < until) sched_yield();
    if (made_by(w, w->threads) == 0) w->waits = false; /* it has failed */
}

static int one_item(work *w, dlp_item *it) {
    const int worker = (int)it->worker, by_helper = worker == w->threads;
    if (worker > w->threads || it->worker_state != &w->made[worker])
        __atomic_add_fetch(&w->wrong, 1, __ATOMIC_RELAXED);
    wait_for_help(w, worker);
    if (w->slow_us > 0) {
        const double until = seconds_now() + w->slow_us * 1e-6;
        while (seconds_now() < until) continue;
    }
    if (w->fails > 0 && it->index % w->fails == 3 && (!w->helper_only || by_helper) &&
        (w->tries == 0 || (int)it->attempt < w->tries)) {
        __atomic_add_fetch(&w->failed[worker], 1, __ATOMIC_RELAXED);
        if (by_helper) __atomic_add_fetch(&w->made[worker], 1, __ATOMIC_RELAXED);
        return w->code == DLP_SKIP ? DLP_SKIP : dlp_fail(it->call, 5, "no item %d", (int)it->index);
    }
    for (uint64_t k = 0; k < 3; k++) ((uint64_t *)it->data[0])[k] = word_of(it->index, k);
    __atomic_add_fetch(&w->made[worker], 1, __ATOMIC_RELAXED);
    return 0;
}

static int fetch(void *user, dlp_item *it) { return one_item(user, it); }

static int fetch_rows(void *user, dlp_item *items, uint32_t n, uint32_t *made) {
    for (; *made < n; ++*made) {
        const int rc = one_item(user, &items[*made]);
        if (rc != 0) return rc;
    }
    return 0;
}

static int begin(void *user, int worker, void **state) {
    work *w = user;
    if (worker > w->threads) return 1;
    w->init[worker] = pthread_self();
    w->inits[worker]++;
    *state = &w->made[worker];
    return worker == w->bad_init - 1 ? 7 : 0;
}

static void end(void *user, int worker, void *state) {
    work *w = user;
    w->exit[worker] = pthread_self();
    w->exits[worker]++;
    if (state != &w->made[worker]) w->wrong++;
}

static const dlp_field words_ = {.name = "words", .dtype = DLP_U64, .ndim = 1, .shape = {3}};

static dlp_loader_desc loader(work *w, int threads) {
    w->threads = threads;
    return (dlp_loader_desc){
        .dataset = {.n_items = ITEMS, .fields = &words_, .n_fields = 1, .fetch = fetch, .user = w},
        .batch_size = 48,
        .num_workers = threads,
        .shuffle = 1,
        .seed = 11,
        .epochs = 2,
        .workers = {.worker_init = begin,
                    .worker_exit = end,
                    .worker_user = w,
                    .consumer_helps = threads > 0}};
}

typedef struct result {
    int rc;
    uint64_t rows, valid, digest;
    dlp_error error;
} result;

/* Take all batches into the digest: their numbers, rows and bytes. */
static void drain(dlp_pipe *p, result *r) {
    dlp_batch *b;
    while ((r->rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        r->digest = dlp_hash(r->digest, b->epoch, b->in_epoch, b->count);
        for (uint32_t i = 0; i < b->count; i++) {
            const uint64_t *words = (const uint64_t *)b->fields[0].data + i * UINT64_C(3);
            r->digest = dlp_hash(r->digest, words[0], words[2], b->valid[i]);
            r->valid += b->valid[i];
        }
        r->rows += b->count;
        dlp_pipe_release(p, b);
    }
    if (dlp_pipe_error(p) != NULL) r->error = *dlp_pipe_error(p);
}

static result run(const dlp_loader_desc *d) {
    result r = {0};
    dlp_pipe *p = NULL;
    r.rc = dlp_loader_open(&p, d, &r.error);
    if (r.rc != DLP_OK) return r;
    drain(p, &r);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return r;
}

static bool same(const result *a, const result *b) {
    return a->rc == b->rc && a->rows == b->rows && a->valid == b->valid && a->digest == b->digest;
}

static void ends_well(const work *w) {
    CHECK(w->wrong == 0);
    for (int i = 0; i < MOST; i++) {
        const int once = i <= w->threads;
        CHECK(w->inits[i] == once && w->exits[i] == once);
    }
}

/* ---- rows ---- */

static void helps__any_workers_and_batches__rows_as_inline(void) {
    static const uint32_t batch[] = {1, 7, 48, 200};
    static const int prefetch[] = {1, 2, 16};
    int idle = 0; /* pipes in which the consumer came too late to help */
    for (int threads = 1; threads <= 3; threads++)
        for (int k = 0; k < 12; k++) {
            work w = {.waits = true}, alone = {0};
            dlp_loader_desc d = loader(&w, threads), plain = loader(&alone, 0);
            d.batch_size = plain.batch_size = batch[k % 4];
            d.pipe.prefetch_factor = plain.pipe.prefetch_factor = prefetch[k / 4];
            if (k % 2 == 1) d.dataset.fetch = NULL, d.dataset.fetch_rows = fetch_rows;
            const result a = run(&d), b = run(&plain);
            CHECK(same(&a, &b) && a.rc == DLP_END && a.rows == 2 * ITEMS);
            idle += w.made[threads] == 0;
            ends_well(&w);
        }
    CHECK(idle < 9); /* else little was shown */
}

static void helps__unordered__all_rows(void) {
    bool helped = false;
    for (int tries = 0; tries < 5 && !helped; tries++) {
        work w = {.waits = true}, alone = {0};
        dlp_loader_desc d = loader(&w, 2), plain = loader(&alone, 0);
        d.pipe.unordered = 1;
        const result a = run(&d), b = run(&plain);
        CHECK(a.rc == DLP_END && a.rows == b.rows && a.valid == b.valid);
        helped = w.made[2] > 0;
    }
    CHECK(helped);
}

/* A state that was saved while the consumer helps is resumed by the consumer alone, and the other
   way round. */
static void helps__resumed_without__the_rest(void) {
    for (int way = 0; way < 2; way++) {
        work w = {.waits = way == 0}, other = {.waits = way == 1}, alone = {0};
        dlp_loader_desc first = loader(&w, way == 0 ? 2 : 0), plain = loader(&alone, 0);
        dlp_loader_desc second = loader(&other, way == 0 ? 0 : 1);
        result all = run(&plain), parts = {0};
        dlp_state state;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        CHECK(dlp_loader_open(&p, &first, NULL) == DLP_OK);
        for (int i = 0; i < 101; i++) {
            CHECK(dlp_pipe_next(p, &b) == DLP_OK);
            parts.rows += b->count;
            dlp_pipe_release(p, b);
        }
        CHECK(dlp_pipe_state(p, NULL, &state) == DLP_OK);
        CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_OK); /* what is under way is done again */
        CHECK(dlp_pipe_next(p, &b) == DLP_OK);
        dlp_pipe_release(p, b);
        dlp_pipe_close(p);
        second.pipe.resume = &state;
        const result rest = run(&second);
        plain.pipe.resume = &state;
        work again = {0};
        plain.dataset.user = plain.workers.worker_user = &again;
        const result want = run(&plain);
        CHECK(same(&rest, &want) && parts.rows + rest.rows == all.rows);
    }
}

/* ---- when it helps ---- */

static void helps__items_are_long__threads_alone(void) {
    work w = {.slow_us = 100};
    dlp_loader_desc d = loader(&w, 1);
    d.dataset.n_items = 500;
    d.epochs = 1;
    const result r = run(&d);
    CHECK(r.rc == DLP_END && r.rows == 500);
    CHECK(w.made[1] == 0 && w.made[0] == 500);
    ends_well(&w);
}

/* Items become long, and short again: the consumer helps once more. */
typedef struct phases {
    work w;
    uint64_t again; /* items by the consumer when items had become short again */
} phases;

static int fetch_phases(void *user, dlp_item *it) {
    phases *f = user;
    const uint64_t at = it->position % ITEMS;
    if (at >= 1000 && at < 1100) {
        const double until = seconds_now() + 200e-6;
        while (seconds_now() < until) continue;
    }
    if (at >= 2000 && (int)it->worker == f->w.threads) f->again++;
    return one_item(&f->w, it);
}

static void helps__items_short_again__helps_again(void) {
    phases f = {.w = {.waits = true}};
    dlp_loader_desc d = loader(&f.w, 1);
    d.dataset.fetch = fetch_phases;
    d.dataset.user = &f;
    d.shuffle = 0;
    d.epochs = 20;
    const result r = run(&d);
    CHECK(r.rc == DLP_END && f.again > 0);
}

static void helps__not_asked_for__never(void) {
    work w = {0};
    dlp_loader_desc d = loader(&w, 2);
    w.threads = 1; /* a third worker would be wrong */
    d.workers.consumer_helps = 0;
    const result r = run(&d);
    CHECK(r.rc == DLP_END && w.wrong == 0 && w.inits[0] == 1 && w.inits[1] == 1 && w.inits[2] == 0);
}

/* ---- failures ---- */

static void helps__its_items_fail__as_those_of_a_worker(void) {
    for (int how = 0; how < 4; how++) {
        work w = {.waits = true, .fails = 7}, alone = {.fails = 7};
        dlp_loader_desc d = loader(&w, 1), plain = loader(&alone, 0);
        for (int k = 0; k < 2; k++) {
            work *to = k == 0 ? &w : &alone;
            dlp_workers_desc *by = k == 0 ? &d.workers : &plain.workers;
            to->code = how == 2 ? DLP_SKIP : 5;
            to->tries = how == 0 || how == 3 ? 2 : 0;
            by->retries = to->tries;
            by->retry_backoff_ms = how == 3; /* rows wait, parked, for the next call of next */
            by->on_error = how == 1 ? DLP_ON_ERROR_DROP : DLP_ON_ERROR_RAISE;
        }
        if (how == 3) d.epochs = plain.epochs = 1;
        const result a = run(&d), b = run(&plain);
        CHECK(same(&a, &b) && a.rc == DLP_END && w.failed[1] > 0);
        CHECK((a.valid == a.rows) == (w.tries > 0));
        ends_well(&w);
    }
}

static void helps__its_item_fails_for_good__error_names_it(void) {
    work w = {.waits = true, .fails = 7, .code = 5, .helper_only = true};
    dlp_loader_desc d = loader(&w, 2);
    d.epochs = DLP_FOREVER;
    const result r = run(&d);
    CHECK(r.rc == DLP_ERR_CALLBACK && r.error.worker == 2);
    CHECK(strcmp(r.error.stage, "fetch") == 0 && strncmp(r.error.message, "no item", 7) == 0);
    CHECK(r.error.index % 7 == 3);
    ends_well(&w);
}

/* ---- its worker_state, and what is told of it ---- */

static void helps__opened__its_worker_begins_and_ends_here(void) {
    work w = {.waits = true};
    dlp_loader_desc d = loader(&w, 2);
    dlp_stats s;
    dlp_worker_stats by = {0};
    dlp_plan plan;
    uint32_t at;
    result r = {0};
    dlp_pipe *p = NULL;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    for (at = 0; strcmp(plan.stages[at].name, "fetch") != 0;) at++;
    CHECK(plan.stages[at].workers == 2);
    drain(p, &r);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.n_workers == 3 && s.stages[at].workers == 2);
    CHECK(dlp_pipe_worker_stats(p, 2, &by) == DLP_OK && by.items == w.made[2] && by.worker == 2);
    CHECK(s.stages[at].items == 2 * ITEMS);
    dlp_pipe_close(p);
    CHECK(pthread_equal(w.init[2], pthread_self()) && pthread_equal(w.exit[2], pthread_self()));
    CHECK(!pthread_equal(w.init[0], pthread_self()));
    ends_well(&w);
}

static void helps__its_init_fails__open_fails(void) {
    work w = {.bad_init = 2};
    dlp_loader_desc d = loader(&w, 1);
    const result r = run(&d);
    CHECK(r.rc == DLP_ERR_CALLBACK && r.error.worker == 1 && w.exits[1] == 0);
    CHECK(strcmp(r.error.message, "worker_init returned 7") == 0);
}

/* ---- where it cannot help ---- */

static int collate(void *user, dlp_collate *c) {
    (void)user, (void)c;
    return 0;
}

static void refused(const dlp_loader_desc *d, const char *stage) {
    const result r = run(d);
    CHECK(r.rc == DLP_ERR_ARG && strcmp(r.error.field, "consumer_helps") == 0);
    CHECK(strcmp(r.error.stage, stage) == 0);
    CHECK(strstr(r.error.message, "must be 0") != NULL);
}

static void helps__elsewhere__refused(void) {
    work w = {0};
    for (int how = 0; how < 6; how++) {
        dlp_loader_desc d = loader(&w, 2);
        switch (how) {
        case 0: d.num_workers = 0; break;
        case 1: d.topology = DLP_TOPOLOGY_CLASSIC; break;
        case 2: d.workers.workers_max = 3; break;
        case 3: d.fetcher = DLP_FETCH_THREADS; break;
        case 4: d.num_workers = DLP_MAX_WORKERS; break;
        default:
            d.collate = collate;
            d.workers.consumer_helps = 0;
            d.batch_workers.consumer_helps = 1;
        }
        refused(&d, how == 5 ? "batch" : "fetch");
    }
    dlp_loader_desc d = loader(&w, 2);
    d.workers.consumer_helps = 2;
    refused(&d, "fetch");
}

int main(void) {
    helps__any_workers_and_batches__rows_as_inline();
    helps__unordered__all_rows();
    helps__resumed_without__the_rest();
    helps__items_are_long__threads_alone();
    helps__items_short_again__helps_again();
    helps__not_asked_for__never();
    helps__its_items_fail__as_those_of_a_worker();
    helps__its_item_fails_for_good__error_names_it();
    helps__opened__its_worker_begins_and_ends_here();
    helps__its_init_fails__open_fails();
    helps__elsewhere__refused();
    return test_end("helping");
}
