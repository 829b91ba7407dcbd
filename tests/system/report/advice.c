/* needs: cache out parts */
/* Badly configured pipes: explain names the cause and a change, and the change, made here, helps.
   Argument: a part of the names of the cases to run. ADVICE_SAY=1 prints each ratio, ADVICE_SAY=2
   each text. Items, steps and batches sleep, so that few cores are enough. If others take the
   cores, the test says so and judges nothing, but with ADVICE_JUDGE=1. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/others.h"

/* ---- a run ---- */

enum { PRODUCERS_MAX = 4, BURNERS_MAX = 8 };

/* What callbacks, producers and the consumer do in a run. Times are sleeps, but for `burns`. */
typedef struct run {
    dlp_loader_desc d;
    uint32_t item_us, slow_item_us, collate_us, step_us;
    int32_t slow_worker; /* it takes ten times as long for each item; -1: none does */
    int32_t burns;       /* 1: an item computes for item_us */
    int32_t burners;     /* threads that take the cores */
    int32_t producers;   /* of a push; they take item_us for each item */
    int32_t full;        /* DLP_FULL_* of a second out, which takes 5 ms for each batch; -1: none */
    int32_t requests;    /* 1: a source of requests, which take item_us each */
    uint32_t row_bytes;  /* of an item; fetch writes them all */
    int32_t locks;       /* 1: an item holds the lock of all workers, 2: of its own */
} run;

static run now;
static char text[8192];
static dlp_stats stats;
static uint32_t over; /* AD1: burners and producers end */

static const dlp_field field = {.name = "x", .dtype = DLP_U64};
static const dlp_field long_field = {.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {65536}};

static void sleep_us(uint32_t us) {
    if (us > 0) test_pause((uint64_t)us * 1000);
}

static bool is_over(void) { return __atomic_load_n(&over, __ATOMIC_SEQ_CST) != 0; }
static void set_over(uint32_t is) { __atomic_store_n(&over, is, __ATOMIC_SEQ_CST); }

static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static pthread_mutex_t locks[8] = {PTHREAD_MUTEX_INITIALIZER}; /* zeros: the others are, too */

static int fetch(void *user, dlp_item *it) {
    pthread_mutex_t *lock = &locks[now.locks == 2 ? it->worker % 8 : 0];
    const uint64_t until = thread_ns() + now.item_us * UINT64_C(1000);
    (void)user;
    memset(it->data[0], 1, now.row_bytes);
    if (now.locks) pthread_mutex_lock(lock);
    while (now.burns && thread_ns() < until) continue;
    if (now.slow_item_us && it->index % 100 == 50)
        sleep_us(now.slow_item_us);
    else if (!now.burns)
        sleep_us((int32_t)it->worker == now.slow_worker ? 10 * now.item_us : now.item_us);
    if (now.locks) pthread_mutex_unlock(lock);
    return 0;
}

static int collate(void *user, dlp_collate *c) {
    sleep_us(now.collate_us);
    return dlp_collate_pad(user, c);
}

/* A source of requests: each is answered item_us after it was made. It is of one worker. */
static struct {
    dlp_item *item;
    uint64_t at_ns;
} asked[64];

static int submit(void *user, void *state, dlp_item *it) {
    (void)user;
    (void)state;
    for (int i = 0; i < 64; i++) {
        if (asked[i].item != NULL) continue;
        asked[i].item = it;
        asked[i].at_ns = test_now_ns() + now.item_us * UINT64_C(1000);
        return 0;
    }
    return DLP_FULL;
}

static int reap(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    const uint64_t until = test_now_ns() + (uint64_t)(ms > 0 ? ms : 0) * 1000000u;
    int n = 0;
    (void)user;
    (void)state;
    for (;;) {
        for (int i = 0; i < 64 && n < max; i++) {
            if (asked[i].item == NULL || asked[i].at_ns > test_now_ns()) continue;
            memset(asked[i].item->data[0], 1, 8);
            code[n] = 0;
            done[n++] = asked[i].item;
            asked[i].item = NULL;
        }
        if (n > 0 || test_now_ns() >= until) return n;
        sleep_us(100);
    }
}

static void *burn(void *user) {
    while (!is_over()) continue;
    return user;
}

static void *produce(void *push) {
    dlp_pusher *u = NULL;
    uint64_t x = 1;
    const void *data[1] = {&x};
    int rc = dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push}, NULL);
    CHECK(rc == DLP_OK);
    while (rc == DLP_OK && !is_over()) {
        sleep_us(now.item_us);
        rc = dlp_pusher_push(u, data, 20000);
    }
    dlp_pusher_close(u);
    return NULL;
}

static void *log_batches(void *user) {
    dlp_out *out = user;
    dlp_batch *b;
    while (dlp_out_next(out, &b, 20000) == DLP_OK) {
        sleep_us(5000);
        dlp_out_release(out, b);
    }
    dlp_out_close(out);
    return NULL;
}

/* The same pipe with a second out. */
static int open_with_out(dlp_pipe **p, dlp_error *err) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = now.d.dataset.n_items}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &field, .n_fields = 1},
         .workers = {.num_workers = now.d.num_workers}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = now.d.batch_size},
         .queue = {.capacity = (uint32_t)now.d.pipe.prefetch_factor}},
        {.name = "train", .verb = DLP_OUT},
        {.name = "log",
         .from = (const char *[]){"batch", NULL},
         .verb = DLP_OUT,
         .queue = {.full = now.full}}};
    return dlp_pipe_open(p, DLP_NODES(nodes), NULL, err);
}

/* Take the batches, and look when three of four have come. Returns items a second. */
static double take_all(dlp_pipe *p) {
    const uint64_t look = now.d.dataset.n_items / now.d.batch_size *
                          (uint64_t)(now.d.epochs > 0 ? now.d.epochs : 1) * 3 / 4;
    dlp_batch *b = NULL;
    text[0] = 0;
    memset(&stats, 0, sizeof stats);
    for (uint64_t n = 1; n <= look; n++) {
        if (dlp_pipe_next_timeout(p, &b, 20000) != DLP_OK) break;
        if (n == look) {
            CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
            CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
        }
        sleep_us(now.step_us);
        dlp_pipe_release(p, b);
    }
    CHECK(stats.batches == look && text[0] != 0);
    return stats.items > 0 ? (double)stats.items * 1e9 / (double)(stats.wait_ns + stats.step_ns)
                           : 1;
}

/* Items a second of a run; text is what explain says of it. */
static double rate_of(const run *r) {
    pthread_t burners[BURNERS_MAX], producers[PRODUCERS_MAX], logs;
    dlp_pipe *p = NULL;
    dlp_push *push = NULL;
    dlp_out *out = NULL;
    dlp_error err = {0};
    double rate;
    int rc;
    now = *r;
    set_over(0);
    memset(asked, 0, sizeof asked);
    if (now.producers > 0) {
        dlp_push_desc d = {.fields = &field, .n_fields = 1, .writers = 1};
        CHECK(dlp_push_open(&push, &d, NULL) == DLP_OK);
        now.d.source = dlp_push_source(push);
    } else {
        now.d.dataset.fields = now.row_bytes > 8 ? &long_field : &field;
        now.d.dataset.n_fields = 1;
        if (!now.requests) now.d.dataset.fetch = fetch;
    }
    for (int i = 0; i < now.burners; i++) pthread_create(&burners[i], NULL, burn, NULL);
    for (int i = 0; i < now.producers; i++) pthread_create(&producers[i], NULL, produce, push);
    if (now.producers > 0) {
        dlp_loader_desc d = now.d;
        d.dataset.n_items = 0;
        rc = dlp_loader_open(&p, &d, &err);
    } else {
        rc = now.full >= 0 ? open_with_out(&p, &err) : dlp_loader_open(&p, &now.d, &err);
    }
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("open: %s\n", err.message);
    if (rc == DLP_OK && now.full >= 0) {
        CHECK(dlp_out_find(p, "log", &out) == DLP_OK);
        pthread_create(&logs, NULL, log_batches, out);
    }
    rate = rc == DLP_OK ? take_all(p) : 1;
    set_over(1);
    if (push) dlp_push_stop(push);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    if (out) pthread_join(logs, NULL);
    for (int i = 0; i < now.producers; i++) pthread_join(producers[i], NULL);
    for (int i = 0; i < now.burners; i++) pthread_join(burners[i], NULL);
    CHECK(dlp_push_close(push) == DLP_OK);
    return rate;
}

/* ---- badly configured pipes ---- */

static run begin(uint64_t n_items, uint32_t batch, int32_t workers) {
    run r;
    memset(&r, 0, sizeof r);
    r.slow_worker = r.full = -1;
    r.d.dataset.n_items = n_items;
    r.d.batch_size = batch;
    r.d.num_workers = workers;
    r.d.pipe.prefetch_factor = 4;
    r.row_bytes = 8;
    return r;
}

static run few_workers(void) {
    run r = begin(120, 8, 1);
    r.item_us = 2000;
    return r;
}
static run no_workers(void) {
    run r = few_workers();
    r.d.num_workers = 0;
    return r;
}
static run no_workers_wait(void) {
    run r = begin(480, 8, 0);
    r.item_us = 1000;
    return r;
}
static run one_request(void) {
    run r = few_workers();
    r.requests = 1;
    r.d.fetcher = DLP_FETCH_ASYNC;
    r.d.async = (dlp_async){.submit = submit, .reap = reap};
    r.d.in_flight = 1;
    return r;
}
static run few_requests(void) {
    run r = one_request();
    r.item_us = 4000;
    r.d.in_flight = 2;
    return r;
}
static run few_threads(void) {
    run r = few_workers();
    r.item_us = 4000;
    r.d.fetcher = DLP_FETCH_THREADS;
    r.d.in_flight = 2;
    return r;
}
static run slow_consumer(void) {
    run r = begin(120, 8, 2);
    r.item_us = 500;
    r.step_us = 15000;
    return r;
}
static run slow_collate(void) {
    run r = begin(120, 8, 2);
    r.d.collate = collate;
    r.d.batch_workers.num_workers = 1;
    r.collate_us = 15000;
    return r;
}
static run slow_item(void) {
    run r = begin(1200, 4, 4);
    r.d.pipe.prefetch_factor = 2;
    r.item_us = 300;
    r.slow_item_us = 30000;
    return r;
}
static run slow_worker_in_turn(void) {
    run r = begin(96, 4, 4);
    r.d.topology = DLP_TOPOLOGY_CLASSIC;
    r.d.pipe.prefetch_factor = 1;
    r.item_us = 1500;
    r.slow_worker = 2;
    return r;
}
static run slow_worker(void) {
    run r = begin(400, 4, 4);
    r.d.pipe.prefetch_factor = 2;
    r.item_us = 1500;
    r.slow_worker = 2;
    return r;
}
static run small_prefetch(void) {
    run r = begin(60, 2, 8);
    r.d.pipe.prefetch_factor = 1;
    r.item_us = 8000;
    return r;
}
static run full_cache(void) {
    run r = begin(60, 10, 1);
    r.d.epochs = 5;
    r.item_us = 1000;
    r.d.cache.bytes = 30 * 16;
    return r;
}
static run taken_cores(void) {
    run r = begin(160, 4, 2);
    r.burns = 1;
    r.item_us = 1000;
    r.burners = 6;
    return r;
}
static run zeroed_rows(void) {
    run r = begin(12000, 8, 1);
    r.row_bytes = 65536;
    return r;
}
static run one_lock(void) {
    run r = begin(240, 8, 8);
    r.locks = 1;
    r.item_us = 2000;
    return r;
}
static run slow_producers(void) {
    run r = begin(120, 4, 1);
    r.producers = 2;
    r.item_us = 4000;
    return r;
}
static run slow_out(void) {
    run r = begin(200, 4, 2);
    r.full = DLP_FULL_WAIT;
    r.item_us = 200;
    return r;
}

/* ---- changes ---- */

/* The number that follows words of the text, without its commas; 0: it has none. */
static double number_after(const char *words) {
    char digits[32];
    const char *at = strstr(text, words);
    size_t n = 0;
    if (at == NULL) return 0;
    for (at += strlen(words); n < sizeof digits - 1 && strchr("0123456789.,", *at) && *at; at++)
        if (*at != ',') digits[n++] = *at;
    digits[n] = 0;
    return strtod(digits, NULL);
}

static void two_workers(run *r) { r->d.num_workers = 2; }
static void four_workers(run *r) { r->d.num_workers = 4; }
static void threads(run *r) {
    r->d.fetcher = DLP_FETCH_THREADS;
    r->d.in_flight = 16;
}
static void one_worker_of_threads(run *r) {
    r->d.num_workers = 1;
    threads(r);
}
static void in_flight_16(run *r) { r->d.in_flight = 16; }
static void in_flight_4(run *r) { r->d.in_flight = 4; }
static void twice_in_the_pipe(run *r) {
    r->d.num_workers *= 2;
    r->d.pipe.prefetch_factor *= 2;
}
static void shorter_steps(run *r) { r->step_us /= 3; }
static void two_batch_workers(run *r) { r->d.batch_workers.num_workers = 2; }
static void deeper(run *r) {
    r->d.pipe.prefetch_factor = (int32_t)number_after("raise prefetch_factor, for instance to ");
}
static void unordered(run *r) { r->d.pipe.unordered = 1; }
static void any_worker(run *r) {
    r->d.topology = DLP_TOPOLOGY_ECONOMIC;
    r->d.pipe.prefetch_factor = 4; /* the same memory */
}
static void larger_cache(run *r) { r->d.cache.bytes = (uint64_t)number_after("cache.bytes = "); }
static void free_cores(run *r) { r->burners = 0; }
static void whole_rows(run *r) { r->d.dataset.writes_all_bytes = 1; }
static void own_locks(run *r) { r->locks = 2; }
static void one_worker(run *r) { r->d.num_workers = 1; }
static void one_more_producer(run *r) { r->producers++; }
static void never_wait(run *r) { r->full = DLP_FULL_KEEP_NEWEST; }

/* ---- what explain says, and what it is worth ---- */

typedef struct advice {
    const char *name;
    run (*bad)(void);
    const char *cause, *cure;
    void (*change)(run *r);
    double least, most;   /* ratio of the rates after the change and before; most 0: any */
    const char *foretold; /* the rate that the change should give follows these words; or NULL */
} advice;

static const advice all[] = {
    {"too few workers", few_workers, "Limit: stage 'fetch': its 1 worker is ",
     "Change: raise num_workers; 2 ", two_workers, 1.4, 0, "2 should give about "},
    {"inline", no_workers, "Limit: stage 'fetch' runs inline ", "Change: set num_workers; ",
     four_workers, 2, 0, ", 4 about "},
    {"inline, and items wait", no_workers_wait, "Limit: stage 'fetch' runs inline ",
     "Better: in_flight = 16 and num_workers = 1 in 'fetch' (in a loader, also fetcher = ",
     one_worker_of_threads, 4, 0, "That should give about "},
    {"items that wait", few_workers, "Limit: stage 'fetch'",
     "Better: in_flight = 16 in 'fetch' (in a loader, also fetcher = DLP_FETCH_THREADS)", threads,
     4, 0, "That should give about "},
    {"requests, one by one", one_request, "Limit: stage 'fetch'",
     "Better: in_flight = 16 in 'fetch'. Its workers compute", in_flight_16, 4, 0,
     "That should give about "},
    {"few requests", few_requests, "Limit: requests in flight: each worker of 'fetch' (1 in all)",
     "Change: raise in_flight, or num_workers; twice as many ", in_flight_4, 1.4, 0,
     "twice as many give up to "},
    {"few threads", few_threads, "Limit: requests in flight: each worker of 'fetch' (1 in all)",
     "Change: raise in_flight, or num_workers; twice as many ", in_flight_4, 1.4, 0,
     "twice as many give up to "},
    {"slow consumer, more workers", slow_consumer, "Limit: the ", "Change: nothing in the pipe",
     twice_in_the_pipe, 0.7, 1.2, NULL},
    {"slow consumer, shorter steps", slow_consumer, "Limit: the ", "Change: nothing in the pipe",
     shorter_steps, 1.5, 0, NULL},
    {"slow collate", slow_collate, "Limit: stage 'batch': its 1 worker is ",
     "Change: raise workers.num_workers (a loader's batch_workers); 2 ", two_batch_workers, 1.4, 0,
     "2 should give about "},
    {"one slow item in a hundred", slow_item, "Limit: prefetch_factor = 2",
     "Skew: times of 'fetch' are uneven", deeper, 1.3, 0, "that should give about "},
    {"one slow item, unordered", slow_item, "Limit: prefetch_factor = 2", "or unordered = 1",
     unordered, 1.1, 0, "which should give about "},
    {"one slow worker, in turn", slow_worker_in_turn, "Limit: worker 2 of 'fetch': its items take",
     "Change: let any worker take the next items", any_worker, 2, 0, NULL},
    {"one slow worker", slow_worker, "Slow: worker 2 of 'fetch': its items take",
     "Change: raise prefetch_factor, for instance to ", deeper, 1.2, 0, NULL},
    {"small prefetch", small_prefetch, "Limit: prefetch_factor = 1",
     "Change: raise prefetch_factor, for instance to ", deeper, 2, 0, "that should give about "},
    {"full cache", full_cache, "Limit: stage 'fetch'", "Better: cache.bytes = 960, ", larger_cache,
     1.4, 0, NULL},
    {"taken cores", taken_cores, "Limit: the cores: ", "or use more cores: others have these",
     free_cores, 1.5, 0, NULL},
    {"zeroed rows", zeroed_rows, "Limit: clearing: ", "Change: set writes_all_bytes = 1 if ",
     whole_rows, 1.15, 0, "that should give up to "},
    {"one lock", one_lock, "Limit: a lock in 'fetch': items take ", "a handle of its own",
     own_locks, 4, 0, NULL},
    {"one lock, one worker", one_lock, ". They wait for each other: ",
     "num_workers = 1 gives about as many items/s", one_worker, 0.8, 1.3, NULL},
    {"slow producers", slow_producers, "Limit: the producers: 'fetch' waits for them ",
     "; each of the 2 takes about ", one_more_producer, 1.2, 0, "one more should give about "},
    {"slow out", slow_out, "Limit: out 'log' has taken ",
     "With full = DLP_FULL_KEEP_NEWEST it misses batches", never_wait, 2, 0, NULL},
};
enum { N = sizeof all / sizeof *all, TRIES = 4, SECONDS = 12 };

/* Does explain name the cause and the change, and does the change give what was foretold? */
static bool one_try(const advice *a, bool *quiet) {
    const char *say = getenv("ADVICE_SAY");
    const double others = test_others_s();
    const uint64_t from = test_now_ns();
    run r = a->bad();
    const double before = rate_of(&r);
    bool ok = strstr(text, a->cause) != NULL && strstr(text, a->cure) != NULL;
    const double foretold = a->foretold ? number_after(a->foretold) : 0;
    double after = 0;
    if (!ok || (say && say[0] == '2')) printf("%s:\n%s", a->name, text);
    if (ok) {
        a->change(&r);
        after = rate_of(&r);
        ok = after >= a->least * before && (a->most == 0 || after <= a->most * before) &&
             (a->foretold == NULL || foretold == 0 ||
              (foretold < 1.5 * after && after < 1.5 * foretold));
    }
    *quiet = getenv("ADVICE_JUDGE") != NULL ||
             test_others_s() - others < 0.1 * (double)(test_now_ns() - from) / 1e9;
    ok = ok && (a->foretold == NULL || foretold > 0 || !*quiet);
    if (!ok || say)
        printf("%s: %.0f items/s, then %.0f (%.2f), foretold %.0f; %s, %.2f s\n", a->name, before,
               after, after / before, foretold, *quiet ? "quiet" : "others run",
               (double)(test_now_ns() - from) / 1e9);
    return ok;
}

int main(int argc, char **argv) {
    const uint64_t from = test_now_ns();
    int unjudged = 0;
    for (int i = 0; i < N; i++) {
        int quiet = 0, tries = 0;
        bool ok = false;
        if (argc > 1 && strstr(all[i].name, argv[1]) == NULL) continue;
        while (!ok && tries < TRIES && test_now_ns() - from < SECONDS * UINT64_C(1000000000)) {
            bool was_quiet;
            ok = one_try(&all[i], &was_quiet);
            quiet += was_quiet;
            tries++;
        }
        if (!ok && quiet < 2) unjudged++;
        if (!ok && quiet < 2) printf("%s: not judged, the machine is too busy\n", all[i].name);
        CHECK(ok || quiet < 2);
    }
    if (unjudged) printf("advice: %d of %d not judged\n", unjudged, (int)N);
    return test_end("advice");
}
