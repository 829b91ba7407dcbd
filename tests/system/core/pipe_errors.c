/* Failing callbacks: every policy, with every number of workers and both dispatch rules, gives what
   can be told beforehand from (seed, epoch, position), tries and replacements among them. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include <errno.h>
#include <limits.h>

#include "../../rig/pipe_rig.h"

enum { REPLACE_MAX = 100 }; /* indices that a position is tried with, behind its own */

static const int workers_of[] = {0, 1, 2, 7, 16};

#define N_ITEMS 203u
enum { STAGES = 3 }; /* fetch and two maps */

/* How often item i fails in a stage before it succeeds; ALWAYS: never does, LEAVES: asks to be
   left out. */
enum { ALWAYS = 100, LEAVES = 101 };
typedef struct fault {
    uint8_t fails[STAGES][N_ITEMS];
    uint32_t seen[STAGES][N_ITEMS]; /* calls */
    uint32_t want[N_ITEMS];         /* of fetch, where there is no map to send items back */
    int sleep_us;
} fault;

typedef struct stage_fault {
    fault *plan;
    int stage;
} stage_fault;

static void pause_us(int us) {
    struct timespec t = {us / 1000000, (us % 1000000) * 1000l};
    nanosleep(&t, NULL);
}

static int maybe_fail(const stage_fault *f, const dlp_item *it) {
    uint8_t fails = f->plan->fails[f->stage][it->index];
    __atomic_add_fetch(&f->plan->seen[f->stage][it->index], 1, __ATOMIC_RELAXED);
    if (f->plan->sleep_us && it->index % 16 == 0) pause_us(f->plan->sleep_us);
    if (fails == LEAVES) return DLP_SKIP;
    if (fails == ALWAYS || it->attempt < fails)
        return dlp_fail(it->call, 5, "stage %d cannot have item %d", f->stage, (int)it->index);
    return 0;
}

static int fault_fetch(void *user, dlp_item *it) {
    int rc;
    rig_fetch(NULL, it);
    rc = maybe_fail(user, it);
    if (rc != 0) memset(it->data[0], 0xee, 8); /* what a failed callback leaves must not come out */
    return rc;
}

static int fault_stream(void *user, dlp_item *it) {
    return it->index < N_ITEMS ? fault_fetch(user, it) : DLP_END;
}

static int fault_map(void *user, dlp_item *it) {
    int rc;
    rig_item_map(NULL, it);
    rc = maybe_fail(user, it);
    if (rc != 0) memset(it->data[0], 0xdd, 8);
    return rc;
}

/* An idempotent map: gives the same however often it runs on a row, failed tries among them. */
static int fault_map_again(void *user, dlp_item *it) {
    uint64_t words[3];
    rig_words(it->seed, it->index, it->epoch, it->position, words);
    words[2] = words[2] * 3 + it->index;
    if (((const stage_fault *)user)->stage == 2) words[2] = words[2] * 3 + it->index;
    CHECK(memcmp(it->data[0], words, 16) == 0); /* the row is the item's that it says */
    memcpy(it->data[0], words, sizeof words);
    return maybe_fail(user, it);
}

static void plan_faults(fault *f, uint64_t *random, int n_stages, int most) {
    memset(f, 0, sizeof *f);
    for (int s = 0; s < n_stages; s++)
        for (uint32_t i = 0; i < N_ITEMS; i++) {
            uint32_t die = test_pick(random, 12);
            if (die == 0) f->fails[s][i] = (uint8_t)(1 + test_pick(random, (uint32_t)most));
            if (die == 1 && test_pick(random, 3) == 0) f->fails[s][i] = ALWAYS;
            if (die == 2 && test_pick(random, 3) == 0) f->fails[s][i] = LEAVES;
        }
}

/* Does the item get through all stages? attempt counts over all stages, retries in each. */
static int gets_through(const rig *r, const fault *f, uint64_t index) {
    int32_t tries[STAGES] = {0}, attempt = 0;
    for (int s = 0; s <= r->n_item_maps;) {
        const dlp_workers_desc *w = s == 0 ? &r->fetch : &r->item_map[s - 1].workers;
        if (f->fails[s][index] <= attempt) {
            s++;
            continue;
        }
        if (f->fails[s][index] >= ALWAYS || tries[s]++ == w->retries) return 0;
        attempt++;
        if (!w->idempotent) s = 0;
    }
    return 1;
}

/* An item came up: how often will fetch be called for it? */
static void expect_calls(const rig *r, fault *f, uint64_t index) {
    uint32_t fails = f->fails[0][index], retries = (uint32_t)r->fetch.retries;
    f->want[index] += fails == LEAVES ? 1 : 1 + (fails < retries ? fails : retries);
}

/* The index that stands at a position in the end: the k-th replacement is the one at a keyed
   position. */
static uint64_t final_index(rig *r, fault *f, uint64_t epoch, uint64_t position, uint64_t *skips) {
    uint64_t index = rig_index(r, epoch, position);
    expect_calls(r, f, index);
    for (uint32_t k = 1; k <= REPLACE_MAX && !gets_through(r, f, index); k++) {
        index = rig_index(r, epoch,
                          inside_replacement(r->sampler.seed, epoch, position, k, rig_samples(r)));
        expect_calls(r, f, index);
        ++*skips;
    }
    return index;
}

static int row_is(rig *r, const dlp_batch *b, uint32_t row, uint64_t position, uint64_t index) {
    uint64_t words[3], got[3];
    uint32_t label;
    rig_words(r->sampler.seed, index, b->epoch, position, words);
    for (int i = 0; i < r->n_item_maps; i++) words[2] = words[2] * 3 + index;
    memcpy(got, (const uint8_t *)b->fields[0].data + row * sizeof got, sizeof got);
    memcpy(&label, (const uint8_t *)b->fields[1].data + row * sizeof label, sizeof label);
    return b->index[row] == index && b->valid[row] == 1 && memcmp(words, got, sizeof got) == 0 &&
           label == index;
}

static int row_is_empty(const dlp_batch *b, uint32_t row) {
    static const uint8_t zero[24];
    return b->valid[row] == 0 &&
           memcmp((const uint8_t *)b->fields[0].data + row * 24, zero, 24) == 0 &&
           memcmp((const uint8_t *)b->fields[1].data + row * 4, zero, 4) == 0;
}

static int check_replaced(rig *r, fault *f, const dlp_batch *b, uint64_t *skips) {
    int ok = b->valid_count == b->count;
    for (uint32_t row = 0; row < b->count; row++)
        ok &= row_is(r, b, row, b->position + row,
                     final_index(r, f, b->epoch, b->position + row, skips));
    return ok;
}

static int check_short(rig *r, fault *f, const dlp_batch *b, uint64_t *skips) {
    int ok = 1;
    uint32_t valid = 0;
    for (uint32_t row = 0; row < b->count; row++) {
        uint64_t index = rig_index(r, b->epoch, b->position + row);
        int through = gets_through(r, f, index);
        expect_calls(r, f, index);
        ok &= through ? row_is(r, b, row, b->position + row, index)
                      : b->index[row] == index && row_is_empty(b, row);
        valid += (uint32_t)through;
        *skips += !through;
    }
    return ok && b->valid_count == valid;
}

/* Run to the end under a policy; next must always come within 20 s, so that a lost row fails the
   test. */
static int run_policy(rig *r, fault *f) {
    dlp_pipe *p;
    dlp_batch *b;
    int ok = 1, rc, policy = r->fetch.on_error;
    uint64_t batches = 0, skips = 0, total = 0;
    if (rig_open(r, &p) != DLP_OK) return 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        ok &= policy == DLP_ON_ERROR_REPLACE ? check_replaced(r, f, b, &skips)
                                             : check_short(r, f, b, &skips);
        if (!r->pipe.unordered) ok &= b->in_epoch == batches % rig_batches(r);
        batches++;
        ok &= dlp_pipe_release(p, b) == DLP_OK;
    }
    if (rc != DLP_END) rig_say(p, rc);
    ok &= rc == DLP_END && batches == rig_batches(r) * (uint64_t)r->pipe.epochs;
    ok &= dlp_pipe_skips(p, NULL, 0, &total) == 0 && total == skips;
    ok &= dlp_pipe_close(p) == DLP_OK;
    for (uint32_t i = 0; r->n_item_maps == 0 && i < N_ITEMS; i++) ok &= f->seen[0][i] == f->want[i];
    return ok;
}

static void wire_faults(rig *r, fault *f, stage_fault *sf, int n_maps, const dlp_workers_desc *w) {
    for (int s = 0; s < STAGES; s++) {
        sf[s].plan = f;
        sf[s].stage = s;
    }
    r->n_item_maps = n_maps;
    r->fetch = *w;
    r->dataset.fetch = fault_fetch;
    r->dataset.user = &sf[0];
    for (int s = 1; s < STAGES; s++) {
        r->item_map[s - 1].map.item = w->idempotent ? fault_map_again : fault_map;
        r->item_map[s - 1].map.user = &sf[s];
        r->item_map[s - 1].workers = *w;
    }
}

static void one_case(uint64_t *random, int workers, int dispatch, int policy, int backoff,
                     int idempotent) {
    rig r;
    fault f;
    stage_fault sf[STAGES];
    dlp_workers_desc w;
    uint64_t before = *random;
    static const uint32_t sizes[] = {1, 8, 33, 64, 203};
    if (test_failures > 10) return; /* it is said by now */
    memset(&w, 0, sizeof w);
    w.num_workers = workers;
    w.dispatch = dispatch ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    w.on_error = policy;
    w.retries = (int32_t)test_pick(random, 4);
    w.retry_backoff_ms = backoff;
    w.idempotent = idempotent;
    rig_init(&r, N_ITEMS, sizes[test_pick(random, 5)]);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    r.pipe.epochs = 2;
    r.pipe.prefetch_factor = (int32_t)(1 + test_pick(random, 4));
    r.pipe.unordered = (int32_t)test_pick(random, 2);
    r.sampler.threaded = (int32_t)test_pick(random, 2);
    r.dataset.writes_all_bytes = test_pick(random, 2);
    plan_faults(&f, random, STAGES, 4);
    f.sleep_us = test_pick(random, 4) == 0 ? 50 : 0;
    wire_faults(&r, &f, sf, (int)test_pick(random, 3), &w);
    if (workers > 0 && test_pick(random, 4) == 0) r.item_map[0].workers.num_workers = 0;
    if (test_pick(random, 4) == 0)
        r.item_map[0].workers.dispatch = DLP_DISPATCH_BATCHES - w.dispatch;
    {
        uint64_t began = test_now_ns();
        int ok = run_policy(&r, &f);
        CHECK(ok);
        if (!ok || test_now_ns() - began > UINT64_C(3000000000))
            printf("  %s: workers %d dispatch %d policy %d backoff %d idempotent %d maps %d "
                   "retries %d batch %u "
                   "prefetch %d unordered %d random %#llx\n",
                   ok ? "slow" : "bad", workers, dispatch, policy, backoff, idempotent,
                   r.n_item_maps, w.retries, r.batch.batch_size, r.pipe.prefetch_factor,
                   r.pipe.unordered, (unsigned long long)before);
    }
}

static void errors__random_failures__bytes_foretold(uint64_t seed) {
    uint64_t random = seed;
    int rounds = test_share(3, 100);
    for (int round = 0; round < rounds; round++)
        for (int w = 0; w < 5; w++)
            for (int dispatch = 0; dispatch < 2; dispatch++)
                for (int policy = DLP_ON_ERROR_REPLACE; policy <= DLP_ON_ERROR_DROP; policy++)
                    for (int kind = 0; kind < 4; kind++)
                        one_case(&random, workers_of[w], dispatch, policy, kind & 1, kind >> 1);
}

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The processor time of a run in which one row of a unit is to go back and another waits so long
   for its retry. */
static uint64_t cpu_of_waiting(int workers, int backoff_ms) {
    rig r;
    fault f;
    stage_fault sf[STAGES];
    dlp_workers_desc w;
    uint64_t cpu, began;
    memset(&w, 0, sizeof w);
    memset(&f, 0, sizeof f);
    w.num_workers = workers;
    w.on_error = DLP_ON_ERROR_REPLACE;
    w.retries = 1;
    w.retry_backoff_ms = backoff_ms;
    rig_init(&r, N_ITEMS, 64);
    r.pipe.epochs = 1;
    r.pipe.prefetch_factor = 1;
    for (uint32_t i = 128; i < 192; i += 2) {
        f.fails[1][i] = LEAVES;
        f.fails[1][i + 1] = 1;
    }
    wire_faults(&r, &f, sf, 1, &w);
    cpu = cpu_ns();
    began = test_now_ns();
    CHECK(run_policy(&r, &f));
    CHECK(test_now_ns() - began + 10000000 > (uint64_t)backoff_ms * 1000000); /* it did wait */
    return cpu_ns() - cpu;
}

/* What all but the wait costs, and here and now, is told by a run that hardly waits. */
static int sleeps_while_it_waits(int workers) {
    uint64_t all_but = cpu_of_waiting(workers, 1), all = cpu_of_waiting(workers, 400);
    if (all > all_but + 40000000)
        printf("  %d workers: %d us, %d but for the wait\n", workers, (int)(all / 1000),
               (int)(all_but / 1000));
    return all < all_but + 80000000; /* spinning: 390 */
}

static void errors__row_goes_back_while_another_waits__sleeps(void) {
    for (int workers = 0; workers < 2; workers++) CHECK_ONE_OF_5(sleeps_while_it_waits(workers));
}

/* One worker, every fourth item waits for a retry. */
static int open_backoff(rig *r, fault *f, stage_fault *sf, dlp_pipe **p, int kind, int backoff_ms) {
    int stage = kind >> 1;
    dlp_workers_desc w;
    memset(&w, 0, sizeof w);
    memset(f, 0, sizeof *f);
    w.num_workers = 1;
    w.dispatch = kind & 1 ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    w.retries = 3;
    w.retry_backoff_ms = backoff_ms;
    rig_init(r, 32, 32);
    r->pipe.epochs = 1;
    for (uint32_t i = 0; i < 32; i += 4) f->fails[stage][i] = 2;
    wire_faults(r, f, sf, stage, &w);
    return rig_open(r, p);
}

static uint32_t seen_of(const fault *f, int stage) {
    uint32_t n = 0;
    for (int i = 0; i < 32; i++) n += __atomic_load_n(&f->seen[stage][i], __ATOMIC_RELAXED) > 0;
    return n;
}

/* Items that wait long for a retry: the others of the batch are done meanwhile. */
static void errors__retry_with_backoff__parks_the_item_only(void) {
    for (int kind = 0; kind < 4; kind++) {
        rig r;
        fault f;
        stage_fault sf[STAGES];
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t until = test_now_ns() + UINT64_C(20000000000);
        if (open_backoff(&r, &f, sf, &p, kind, 60000) != DLP_OK) return;
        while (seen_of(&f, kind >> 1) < 32 && test_now_ns() < until)
            CHECK(dlp_pipe_next_timeout(p, &b, 1) == DLP_TIMEOUT);
        CHECK(seen_of(&f, kind >> 1) == 32);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int waits_together(int kind) {
    rig r;
    fault f;
    stage_fault sf[STAGES];
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t began = test_now_ns(), took;
    if (open_backoff(&r, &f, sf, &p, kind, 100) != DLP_OK) return 0;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    took = (test_now_ns() - began) / 1000000;
    CHECK(took > 290); /* 100 ms, then 200 */
    CHECK(rig_batch_same(&r, b, 0, 0));
    for (uint32_t i = 0; i < 32; i++) CHECK(f.seen[kind >> 1][i] == (i % 4 == 0 ? 3 : 1));
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return took < 2000; /* one after another: 2,400 */
}

static void errors__retries_with_backoff__all_wait_together(void) {
    for (int kind = 0; kind < 4; kind++) CHECK_ONE_OF_5(waits_together(kind));
}

/* A row that waits for its next try runs nowhere: should its worker die now, it is not to blame. */
static void errors__row_waits__nothing_runs(void) {
    for (int stage = 0; stage < 2; stage++) {
        rig r;
        fault f;
        stage_fault sf[STAGES];
        dlp_workers_desc w;
        dlp_pipe *p;
        dlp_batch *b;
        memset(&w, 0, sizeof w);
        memset(&f, 0, sizeof f);
        w.retries = 1;
        w.retry_backoff_ms = 60000;
        rig_init(&r, 1, 1);
        r.pipe.epochs = 1;
        f.fails[stage][0] = 1;
        wire_faults(&r, &f, sf, stage, &w);
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(dlp_pipe_next_timeout(p, &b, 0) == DLP_TIMEOUT);
        CHECK(inside_parked(p, stage) == 1); /* an inline pipe has a worker for each stage */
        CHECK(inside_running(p, stage) == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Items fail for good under RAISE: the batches before come whole, then the error, and it stays. */
static void errors__raise__told_at_its_batch(void) {
    for (int w = 0; w < 5; w++)
        for (int kind = 0; kind < 8; kind++) {
            rig r;
            fault f;
            stage_fault sf[STAGES];
            dlp_workers_desc d;
            dlp_pipe *p;
            dlp_batch *b;
            const dlp_error *e;
            int rc, n = 0, stage = kind >> 2, unordered = kind >> 1 & 1;
            memset(&d, 0, sizeof d);
            memset(&f, 0, sizeof f);
            d.num_workers = workers_of[w];
            d.dispatch = kind & 1 ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
            d.retries = 2;
            rig_init(&r, N_ITEMS, 10);
            r.pipe.epochs = 1;
            r.pipe.unordered = unordered;
            r.pipe.prefetch_factor = 4;
            f.fails[stage][73] = ALWAYS;
            wire_faults(&r, &f, sf, 1, &d);
            if (rig_open(&r, &p) != DLP_OK) return;
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
                n++;
                CHECK(b->in_epoch != 7 && rig_batch_same(&r, b, 0, b->in_epoch));
                CHECK(unordered || b->in_epoch < 7);
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            e = dlp_pipe_error(p);
            CHECK(unordered ? n <= 7 + 16 : n == 7);
            CHECK(rc == DLP_ERR_CALLBACK && e->code == rc && e->has_item && e->index == 73 &&
                  e->position == 73);
            CHECK(e->epoch == 0 && e->errnum == 5 &&
                  strstr(e->message, "cannot have item 73") != NULL);
            CHECK(strcmp(e->stage, stage ? "map" : "fetch") == 0 && e->worker >= 0);
            CHECK(f.seen[stage][73] == 3);
            CHECK(dlp_pipe_next(p, &b) == rc);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* max_skips of an epoch's failures are let through, the next one is an error; DLP_SKIP does not
   count. */
static void errors__max_skips__one_more_is_an_error(void) {
    for (int w = 0; w < 5; w++)
        for (int kind = 0; kind < 8; kind++) {
            rig r;
            fault f;
            stage_fault sf[STAGES];
            dlp_workers_desc d;
            dlp_pipe *p;
            dlp_batch *b;
            int rc, n = 0, none = kind >> 2;
            memset(&d, 0, sizeof d);
            memset(&f, 0, sizeof f);
            d.num_workers = workers_of[w];
            d.dispatch = kind & 1 ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
            d.on_error = kind & 2 ? DLP_ON_ERROR_REPLACE : DLP_ON_ERROR_DROP;
            d.max_skips = none ? DLP_NONE : 3;
            rig_init(&r, N_ITEMS, 10);
            r.pipe.epochs = 1;
            r.pipe.prefetch_factor = 1;
            for (uint32_t i = 5; i < 200; i += 20) f.fails[0][i] = i < 80 ? ALWAYS : 0;
            for (uint32_t i = 0; i < 200; i += 20) f.fails[0][i] = LEAVES;
            if (d.on_error == DLP_ON_ERROR_REPLACE) memset(f.fails[0] + 80, 0, 120);
            wire_faults(&r, &f, sf, 0, &d);
            if (rig_open(&r, &p) != DLP_OK) return;
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
                n++;
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(rc == DLP_ERR_BUDGET && dlp_pipe_error(p)->has_item);
            /* 5, 25, 45 are let through; 65 is of batch 6 */
            if (!(kind & 2)) CHECK(n == (none ? 0 : 6));
            if (!(kind & 2)) CHECK(dlp_pipe_error(p)->index == (none ? 5 : 65));
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* The budget of one stage counts the failures of another one, which has no limit itself: the map
   may leave out its first item while fetch has left out two, not behind four. */
static void errors__max_skips__counts_all_stages(void) {
    for (int stream = 0; stream < 2; stream++)
        for (int w = 0; w < 2; w++)
            for (int kind = 0; kind < 3; kind++) {
                rig r;
                fault f;
                stage_fault sf[STAGES];
                dlp_workers_desc d = {.num_workers = w, .on_error = DLP_ON_ERROR_DROP};
                dlp_pipe *p;
                dlp_batch *b;
                int rc;
                memset(&f, 0, sizeof f);
                rig_init(&r, stream ? 0 : N_ITEMS, 10);
                r.dataset.open_end = stream;
                r.pipe.prefetch_factor = 1;
                for (int i = 0; i < (kind == 1 ? 2 : 4); i++) f.fails[0][5 + i] = ALWAYS;
                f.fails[1][35] = ALWAYS;
                wire_faults(&r, &f, sf, 1, &d);
                if (stream) r.dataset.fetch = fault_stream;
                r.item_map[0].workers.max_skips = kind ? 4 : 0;
                if (rig_open(&r, &p) != DLP_OK) return;
                while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK)
                    CHECK(dlp_pipe_release(p, b) == DLP_OK);
                CHECK(rc == (kind == 2 ? DLP_ERR_BUDGET : DLP_END));
                if (kind == 2) CHECK(dlp_pipe_error(p)->index == 35);
                if (kind == 2) CHECK(strcmp(dlp_pipe_error(p)->stage, "map") == 0);
                CHECK(dlp_pipe_close(p) == DLP_OK);
            }
}

/* The ring has the newest 64 skips, the total all of them. */
static void errors__skips__listed(void) {
    for (int w = 0; w < 5; w++) {
        rig r;
        fault f;
        stage_fault sf[STAGES];
        dlp_workers_desc d;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_skip skip[80];
        uint64_t total = 0, left = 0, seen[2] = {0, 0};
        int n;
        memset(&d, 0, sizeof d);
        memset(&f, 0, sizeof f);
        d.num_workers = workers_of[w];
        d.on_error = DLP_ON_ERROR_DROP;
        rig_init(&r, N_ITEMS, 50);
        r.pipe.epochs = 2;
        for (uint32_t i = 3; i < N_ITEMS; i += 4)
            f.fails[i % 8 == 3][i] = i % 8 == 3 ? ALWAYS : LEAVES;
        wire_faults(&r, &f, sf, 1, &d);
        if (rig_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            left += b->count - b->valid_count;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        n = dlp_pipe_skips(p, skip, 80, &total);
        CHECK(n == 64 && total == 100 && left == total);
        for (int i = 0; i < n; i++) {
            CHECK(skip[i].index % 4 == 3 && skip[i].position == skip[i].index &&
                  skip[i].new_index == UINT64_MAX);
            CHECK(skip[i].code == (skip[i].index % 8 == 3 ? DLP_ERR_CALLBACK : DLP_SKIP));
            /* stages as added */
            CHECK(skip[i].stage == (skip[i].index % 8 == 3 ? 3 : 2) && skip[i].epoch < 2);
            CHECK(skip[i].errnum == (skip[i].index % 8 == 3 ? 5 : 0));
            seen[skip[i].epoch]++;
        }
        CHECK(seen[1] >= 50); /* the newest */
        CHECK(dlp_pipe_skips(p, skip, 5, NULL) == 5);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Every item fails, and every replacement too: an error, not an endless search. */
static void errors__nothing_can_replace__error(void) {
    for (int stage = 0; stage < 2; stage++) {
        rig r;
        fault f;
        stage_fault sf[STAGES];
        dlp_workers_desc d;
        dlp_pipe *p;
        dlp_batch *b;
        memset(&d, 0, sizeof d);
        memset(&f, 0, sizeof f);
        memset(f.fails[stage], ALWAYS, sizeof f.fails[stage]);
        d.num_workers = 2;
        d.on_error = DLP_ON_ERROR_REPLACE;
        rig_init(&r, N_ITEMS, 5);
        wire_faults(&r, &f, sf, 1, &d);
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
        CHECK(strstr(dlp_pipe_error(p)->message, "100 replacements") != NULL);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- callbacks of whole batches ---- */

typedef struct batch_fault {
    uint64_t in_epoch; /* the batch that fails */
    int times;
    int calls;
} batch_fault;

static int failing_collate(void *user, dlp_collate *c) {
    batch_fault *f = user;
    if (c->position / 10 == f->in_epoch &&
        __atomic_add_fetch(&f->calls, 1, __ATOMIC_RELAXED) <= f->times) {
        memset(c->out[0].data, 0xee, 16);
        return dlp_fail(c->call, 7, "no collate for %d", (int)c->position);
    }
    return dlp_collate_pad(NULL, c);
}

static int failing_map(void *user, dlp_batch *b, void *state) {
    batch_fault *f = user;
    if (b->in_epoch == f->in_epoch &&
        __atomic_add_fetch(&f->calls, 1, __ATOMIC_RELAXED) <= f->times)
        return dlp_fail(b->call, 8, "no map for %d", (int)b->position);
    return rig_batch_map(NULL, b, state);
}

static void errors__batch_callback_fails__retried_or_told(void) {
    for (int w = 0; w < 5; w++)
        for (int kind = 0; kind < 16; kind++) {
            rig r;
            dlp_pipe *p;
            dlp_batch *b;
            batch_fault f = {7, kind & 1 ? 3 : 2, 0};
            int map = kind >> 2 & 1, rc, n = 0, backoff = kind >> 3;
            dlp_workers_desc *d;
            rig_init(&r, N_ITEMS, 10);
            rig_workers(&r, workers_of[w], kind >> 1 & 1);
            if (map) {
                r.n_batch_maps = 1;
                r.batch_map[0].map.batch = failing_map;
                r.batch_map[0].map.user = &f;
                r.batch_map[0].workers.idempotent = 1;
                d = &r.batch_map[0].workers;
            } else {
                r.batch.collate = failing_collate;
                r.batch.collate_user = &f;
                r.batch_by.num_workers = workers_of[w];
                d = &r.batch_by;
            }
            d->retries = 2;
            d->retry_backoff_ms = backoff;
            if (rig_open(&r, &p) != DLP_OK) return;
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
                CHECK(rig_batch_same(&r, b, 0, (uint64_t)n++));
                CHECK(b->call == NULL && dlp_fail(b->call, 0, "not now") == DLP_ERR_CALLBACK);
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            if (f.times == 2) {
                CHECK(rc == DLP_END && n == 21);
            } else {
                const dlp_error *e = dlp_pipe_error(p);
                CHECK(rc == DLP_ERR_CALLBACK && n == 7 && f.calls == 3);
                CHECK(e->position == 70 && strcmp(e->stage, map ? "map" : "batch") == 0);
                CHECK(strstr(e->message, map ? "no map for 70" : "no collate for 70") != NULL &&
                      e->errnum == (map ? 8 : 7));
            }
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* ---- what callbacks return, say, and do to their items ---- */

typedef struct odd {
    int code;      /* what item 7, or the batch of it, returns */
    int words;     /* 1: with words; 2: item 6 says some, and succeeds */
    uint64_t item; /* 0: 7 */
    dlp_item *out; /* of an asynchronous source */
} odd;

static int odd_item(const odd *o, dlp_item *it) {
    if (o->words == 2 && it->index == 6) dlp_fail(it->call, 12, "all is well");
    if (it->index != (o->item ? o->item : 7)) return 0;
    if (o->words == 1) dlp_fail(it->call, 5, "seven");
    return o->code;
}

static int odd_fetch(void *user, dlp_item *it) {
    rig_fetch(NULL, it);
    return odd_item(user, it);
}

static int odd_map(void *user, dlp_item *it) { return odd_item(user, it); }

static int odd_batch_map(void *user, dlp_batch *b, void *state) {
    (void)state;
    if (b->in_epoch == 1 && ((const odd *)user)->words == 1) dlp_fail(b->call, 5, "seven");
    return b->in_epoch == 1 ? ((const odd *)user)->code : 0;
}

static int odd_collate(void *user, dlp_collate *c) {
    const odd *o = user;
    if (o->words == 2 && c->position == 0) dlp_fail(c->call, 12, "all is well");
    if (c->position == 5) return o->code;
    return dlp_collate_pad(NULL, c);
}

/* Run to the first error; *e is what is told. */
static int run_odd(rig *r, dlp_error *e, int *left) {
    dlp_pipe *p;
    dlp_batch *b;
    int rc;
    *left = 0;
    if (rig_open(r, &p) != DLP_OK) return 1;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        *left += (int)(b->count - b->valid_count);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    *e = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

enum { ODD_FETCH, ODD_THREADS, ODD_MAP, ODD_COLLATE, ODD_BATCH_MAP, ODD_PLACES };

static void wire_odd(rig *r, odd *o, int place, int workers) {
    rig_init(r, 20, 5);
    rig_workers(r, workers, 0);
    r->dataset.user = o;
    if (place == ODD_FETCH || place == ODD_THREADS) r->dataset.fetch = odd_fetch;
    if (place == ODD_THREADS) {
        r->fetch.num_workers = workers ? workers : 1;
        r->fetcher = DLP_FETCH_THREADS;
        r->in_flight = 4;
    }
    if (place == ODD_MAP) {
        r->n_item_maps = 1;
        r->item_map[0].map.item = odd_map;
        r->item_map[0].map.user = o;
    }
    if (place == ODD_COLLATE) {
        r->batch.collate = odd_collate;
        r->batch.collate_user = o;
    }
    if (place == ODD_BATCH_MAP) {
        r->n_batch_maps = 1;
        r->batch_map[0].map.batch = odd_batch_map;
        r->batch_map[0].map.user = o;
    }
}

/* Whatever number a callback returns, it is a failure that says so, but for what it may return:
   never an outcome of the library's own, never a silence. */
static void errors__callback_returns_any_number__a_failure_that_names_it(void) {
    static const int codes[] = {INT_MIN,     INT_MAX,   -17,         -9,      -15,
                                -8,          -7,        -6,          -1,      1,
                                2,           3,         4,           5,       6,
                                7,           8,         100,         133,     -100,
                                DLP_FULL,    DLP_EMPTY, DLP_TIMEOUT, DLP_END, DLP_EPOCH_END,
                                DLP_STOPPED, DLP_SKIP};
    for (int place = 0; place < ODD_PLACES; place++)
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
            for (int workers = 0; workers < 3; workers += 2) {
                rig r;
                odd o = {.code = codes[i]};
                dlp_error e;
                char number[32];
                int left, rc, items = place <= ODD_MAP;
                wire_odd(&r, &o, place, workers);
                r.fetch.retries = r.batch_by.retries = (int32_t)(i & 1);
                rc = run_odd(&r, &e, &left);
                if (items && codes[i] == DLP_SKIP) {
                    CHECK(rc == DLP_END && left == 1);
                    continue;
                }
                snprintf(number, sizeof number, "returned %d", codes[i]);
                CHECK(rc == (items && codes[i] == DLP_ERR_LENGTH ? rc : DLP_ERR_CALLBACK));
                CHECK(rc < 0 && e.code == rc && strstr(e.message, number) != NULL);
                CHECK(codes[i] != DLP_END || strstr(e.message, "DLP_END") != NULL);
                if (rc != DLP_ERR_CALLBACK && rc != DLP_ERR_LENGTH)
                    printf("  place %d code %d: %d %s\n", place, codes[i], rc, e.message);
            }
}

/* Linux has no errno above 4095, so that a callback's `return errno` is never a code of dlpipe. */
static void codes__positive__none_is_an_errno(void) {
    static const int codes[] = {
#define X(name, value, text, hint) DLP_##name,
        DLP_CODES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        CHECK(codes[i] <= 0 || codes[i] > 4095);
}

/* An asynchronous source, and a stream, that return what errno might be where item 7 is due. */
static int odd_submit(void *user, void *state, dlp_item *it) {
    odd *o = user;
    (void)state;
    if (it->index == 7) return o->code;
    o->out = it;
    return rig_fetch(NULL, it);
}

static int odd_reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    odd *o = user;
    (void)state;
    (void)timeout_ms;
    if (o->out == NULL || max < 1) return 0;
    *done = o->out;
    *code = 0;
    o->out = NULL;
    return 1;
}

static void errors__submit_or_stream_returns_errno__a_failure(void) {
    for (int stream = 0; stream < 2; stream++)
        for (int code = 1; code < 134; code++) {
            rig r;
            odd o = {.code = code};
            dlp_error e;
            int left, rc;
            wire_odd(&r, &o, ODD_FETCH, 1);
            r.dataset.open_end = stream;
            if (!stream) {
                r.fetcher = DLP_FETCH_ASYNC;
                r.in_flight = 1;
                r.async = (dlp_async){odd_submit, odd_reap};
            }
            rc = run_odd(&r, &e, &left);
            CHECK(rc == DLP_ERR_CALLBACK && e.has_item && e.index == 7);
        }
}

typedef struct warned {
    int n;
    char first[160];
} warned;

static void keep_warning(void *user, const char *message) {
    warned *w = user;
    if (strstr(message, "DLP_SKIP") == NULL) return; /* of too few cores */
    if (w->n++ == 0) snprintf(w->first, sizeof w->first, "%s", message);
}

/* A callback leaves rows out by DLP_SKIP and no desc says that somebody expects it: the first batch
   with such a row comes with a warning that names the item, what to read and what to set. */
static void skip__nobody_asked_for_it__a_warning_for_each_stage(void) {
    static const char *const words[] = {"\"fetch\"", "DLP_SKIP", "item 7", "valid[]",
                                        "dataset.filter"};
    for (int place = ODD_FETCH; place <= ODD_MAP; place++)
        for (int policy = DLP_ON_ERROR_RAISE; policy <= DLP_ON_ERROR_DROP; policy++)
            for (int workers = 0; workers < 3; workers += 2) {
                rig r;
                odd o = {.code = DLP_SKIP};
                dlp_error e;
                warned w = {0, ""};
                int left, wanted = policy == DLP_ON_ERROR_RAISE;
                wire_odd(&r, &o, place, workers);
                r.fetch.on_error = r.item_map[0].workers.on_error = policy;
                r.pipe.epochs = 3;
                r.pipe.log = keep_warning;
                r.pipe.log_user = &w;
                CHECK(run_odd(&r, &e, &left) == DLP_END);
                CHECK(left == (policy == DLP_ON_ERROR_REPLACE ? 0 : 3));
                CHECK(w.n == wanted);
                for (size_t i = 0; wanted && i < sizeof words / sizeof *words; i++)
                    CHECK(strstr(w.first, i == 0 && place == ODD_MAP ? "\"map\"" : words[i]) ||
                          (place == ODD_MAP && i == 4));
                CHECK(w.first[0] == 0 || strlen(w.first) < sizeof w.first - 1);
            }
}

static void skip__by_two_stages__warned_of_both(void) {
    rig r;
    odd o = {.code = DLP_SKIP}, late = {.code = DLP_SKIP, .item = 13};
    dlp_error e;
    warned w = {0, ""};
    int left;
    wire_odd(&r, &o, ODD_FETCH, 1);
    r.n_item_maps = 1;
    r.item_map[0].map.item = odd_map;
    r.item_map[0].map.user = &late;
    r.pipe.epochs = 2;
    r.pipe.log = keep_warning;
    r.pipe.log_user = &w;
    CHECK(run_odd(&r, &e, &left) == DLP_END && left == 4 && w.n == 2);
}

/* Words that an item said, and then did well, are not told of the next one. */
static void errors__words_of_another_item__not_told(void) {
    for (int place = 0; place < ODD_PLACES; place++)
        for (int words = 1; words < 3; words++)
            for (int workers = 0; workers < 2; workers++) {
                rig r;
                odd o = {.code = -3, .words = words};
                dlp_error e;
                int left;
                if (place == ODD_COLLATE && words == 1) continue;
                wire_odd(&r, &o, place, workers);
                if (place == ODD_THREADS) r.in_flight = 1;
                CHECK(run_odd(&r, &e, &left) == DLP_ERR_CALLBACK);
                CHECK(strstr(e.message, words == 1 ? "seven" : "returned -3") != NULL);
                CHECK(e.errnum == (words == 1 ? 5 : 0));
            }
}

/* Tries count per stage: each of three fails as often as it may, and the item gets through. */
typedef struct tired {
    int calls[STAGES][N_ITEMS];
    int most[STAGES];
} tired;

typedef struct tired_stage {
    tired *t;
    int stage;
} tired_stage;

static int tired_item(void *user, dlp_item *it) {
    const tired_stage *ts = user;
    int n = __atomic_add_fetch(&ts->t->calls[ts->stage][it->index], 1, __ATOMIC_RELAXED);
    if (ts->stage == 0)
        rig_fetch(NULL, it);
    else
        rig_item_map(NULL, it);
    return it->index % 3 == 0 && n <= ts->t->most[ts->stage] ? -5 : 0;
}

static void errors__each_stage_fails_as_often_as_it_may__item_gets_through(void) {
    for (int kind = 0; kind < 12; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        tired t = {.most = {2, 3, 1}};
        tired_stage ts[STAGES] = {{&t, 0}, {&t, 1}, {&t, 2}};
        dlp_workers_desc *w[STAGES];
        uint64_t n = 0;
        int rc, too_often = kind >= 6;
        rig_init(&r, N_ITEMS, 10);
        r.n_item_maps = 2;
        rig_workers(&r, kind % 3, kind / 3 & 1);
        for (int i = 0; i < STAGES; i++) {
            w[i] = i ? &r.item_map[i - 1].workers : &r.fetch;
            w[i]->retries = t.most[i];
        }
        r.dataset.fetch = r.item_map[0].map.item = r.item_map[1].map.item = tired_item;
        r.dataset.user = &ts[0];
        r.item_map[0].map.user = &ts[1];
        r.item_map[1].map.user = &ts[2];
        t.most[1] += too_often;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(rig_batch_same(&r, b, 0, n++));
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(too_often ? rc == DLP_ERR_CALLBACK && n == 0 : rc == DLP_END && n == 21);
        CHECK(!too_often || t.calls[1][0] == 4);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* A row that was replaced, and left out by a map: its index stays when a batch map sends the whole
   batch through all stages again. */
static int replaced_fetch(void *user, dlp_item *it) {
    (void)user;
    rig_fetch(NULL, it);
    return it->index % 10 == 3 ? -1 : 0;
}

static int leaving_map(void *user, dlp_item *it) {
    (void)user;
    return it->index % 10 != 3 && it->position % 10 == 3 ? DLP_SKIP : 0;
}

typedef struct seen_map {
    uint64_t index[2][200];
    int calls[20];
} seen_map;

static int again_map(void *user, dlp_batch *b, void *state) {
    seen_map *s = user;
    int n = s->calls[b->in_epoch]++;
    (void)state;
    memcpy(&s->index[n & 1][b->position], b->index, b->count * sizeof *b->index);
    return n == 0 ? -1 : 0;
}

static void errors__row_replaced_then_left_out__index_stays(void) {
    for (int workers = 0; workers < 2; workers++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        static seen_map s;
        memset(&s, 0, sizeof s);
        rig_init(&r, 200, 10);
        rig_workers(&r, workers, 0);
        r.dataset.fetch = replaced_fetch;
        r.fetch.on_error = DLP_ON_ERROR_REPLACE;
        r.n_item_maps = r.n_batch_maps = 1;
        r.item_map[0].map.item = leaving_map;
        r.batch_map[0].map.batch = again_map;
        r.batch_map[0].map.user = &s;
        r.batch_map[0].workers.retries = 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            CHECK(b->valid[3] == 0 && b->index[3] % 10 != 3);
            CHECK(memcmp(&s.index[0][b->position], b->index, 80) == 0);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(memcmp(s.index[0], s.index[1], sizeof s.index[0]) == 0 && s.calls[19] == 2);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Rows of a short batch that a stream drops: nobody sees them, nor what was wrong with them. */
static int short_stream_fetch(void *user, dlp_item *it) {
    (void)user;
    rig_fetch(NULL, it);
    return it->index >= 23 ? DLP_END : it->index == 21 ? -5 : 0;
}

static void errors__item_of_a_dropped_batch_fails__not_told(void) {
    for (int kind = 0; kind < 6; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        int rc, n = 0, drop = kind >= 3;
        rig_init(&r, 0, 10);
        r.dataset.open_end = 1;
        r.dataset.fetch = short_stream_fetch;
        r.fetch.num_workers = kind % 3;
        r.pipe.epochs = 2;
        r.batch.last = drop ? DLP_LAST_DROP : DLP_LAST_PARTIAL;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            n++;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(drop ? rc == DLP_END && n == 4 : rc == DLP_ERR_CALLBACK && n == 2);
        CHECK(dlp_pipe_error(p)->code == (drop ? 0 : rc));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* A fetch that spoils what it was given, behind having used it. */
static int spoiling_fetch(void *user, dlp_item *it) {
    int rc = rig_fetch(NULL, it);
    (void)user;
    it->index = 3;
    it->epoch = it->position = it->seed = 1u << 20;
    it->row = it->attempt = it->n_fields = 99;
    it->data[0] = it->data[1] = NULL;
    it->worker = 77;
    it->worker_state = NULL;
    it->call = NULL;
    it->data = NULL;
    it->length = NULL;
    return rc;
}

static void errors__callback_changes_its_item__nothing_else_is_spoiled(void) {
    for (int kind = 0; kind < 8; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        rig_init(&r, 60, 10);
        rig_order(&r, kind & 4 ? DLP_ORDER_SHUFFLED : DLP_ORDER_SEQUENTIAL);
        r.pipe.epochs = 3;
        r.dataset.fetch = spoiling_fetch;
        r.fetch.num_workers = kind & 3;
        if ((kind & 3) == 3) {
            r.fetcher = DLP_FETCH_THREADS;
            r.in_flight = 3;
        }
        if (rig_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            CHECK(rig_batch_same(&r, b, n / 6, n % 6));
            n++;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(n == 18 && dlp_pipe_close(p) == DLP_OK);
    }
}

/* The same with a cache: what is kept is that of the item that was asked for. */
static int relabelling_fetch(void *user, dlp_item *it) {
    uint64_t words[3] = {it->index, ~it->index, 7};
    uint32_t label = (uint32_t)it->index;
    (void)user;
    memcpy(it->data[0], words, sizeof words);
    memcpy(it->data[1], &label, sizeof label);
    it->index = (it->index + 1) % 60;
    return 0;
}

static void cache__fetch_changes_the_index__right_item_is_kept(void) {
    for (int kind = 0; kind < 4; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_stats s;
        int n = 0;
        rig_init(&r, 60, 10);
        rig_order(&r, DLP_ORDER_SHUFFLED);
        r.pipe.epochs = 3;
        r.cache.bytes = 1 << 20; /* needs: cache */
        r.dataset.fetch = relabelling_fetch;
        r.fetch.num_workers = kind;
        if (kind == 3) {
            r.fetcher = DLP_FETCH_THREADS;
            r.in_flight = 3;
        }
        if (rig_open(&r, &p) != DLP_OK) return;
        for (; dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; n++) {
            const uint32_t *label = b->fields[1].data;
            for (uint32_t i = 0; i < b->count; i++) CHECK(label[i] == b->index[i]);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.cache_hits > 0); /* needs: cache */
        CHECK(n == 18 && dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- what is said of it ---- */

static int line_is(const dlp_error *e, const char *want) {
    char line[1024];
    int n = dlp_error_format(e, line, sizeof line);
    if (strcmp(line, want) != 0) printf("  %s\n", line);
    return n == (int)strlen(line) && strcmp(line, want) == 0;
}

static void error_format__each_part__in_its_place(void) {
    static const struct {
        int errnum;
        const char *word;
    } cures[] = {{EMFILE, "[raise ulimit -n"}, {ENFILE, "fs.file-max]"},
                 {EPERM, "seccomp"},           {ENOSYS, "the kernel lacks the call"},
                 {EACCES, "permissions"},      {ENOSPC, "[make room"},
                 {EAGAIN, "ulimit -u"},        {EROFS, "can be written]"}};
    dlp_error e = {0};
    CHECK(line_is(&e, "DLP_OK: ok"));
    e = (dlp_error){.code = DLP_ERR_ARG, .worker = -1, .message = "no"};
    CHECK(line_is(&e, "DLP_ERR_ARG: no"));
    e.worker = 3;
    CHECK(line_is(&e, "DLP_ERR_ARG: worker 3: no"));
    strcpy(e.stage, "fetch");
    e.has_item = 1;
    e.index = 7;
    CHECK(line_is(&e, "DLP_ERR_ARG: stage \"fetch\" worker 3, item 7 (epoch 0, position 0): no"));
    e = (dlp_error){.code = DLP_ERR_HELD, .worker = -1, .has_item = 1};
    CHECK(line_is(&e, "DLP_ERR_HELD: item 0 (epoch 0, position 0): max_held batches are held "
                      "already [release one, or raise max_held]"));
    e = (dlp_error){.code = DLP_ERR_SYSTEM, .worker = -1, .errnum = ENOENT, .message = "open"};
    CHECK(line_is(&e, "DLP_ERR_SYSTEM: open (errno 2: No such file or directory)"));
    strcpy(e.message, "open: No such file or directory"); /* once is enough */
    CHECK(line_is(&e, "DLP_ERR_SYSTEM: open: No such file or directory (errno 2)"));
    e = (dlp_error){.code = DLP_ERR_MEMORY, .worker = -1, .errnum = ENOMEM, .message = "mmap"};
    CHECK(line_is(&e, "DLP_ERR_MEMORY: mmap (errno 12: Cannot allocate memory) "
                      "[free memory, or ask for fewer or smaller batches]"));
    e = (dlp_error){.code = DLP_ERR_CALLBACK, .worker = -1, .errnum = EMFILE, .message = "open"};
    CHECK(line_is(&e, "DLP_ERR_CALLBACK: open (errno 24: Too many open files) "
                      "[raise ulimit -n, or open fewer files]"));
    strcpy(e.message, "open; raise ulimit -n"); /* the message says it */
    CHECK(line_is(&e, "DLP_ERR_CALLBACK: open; raise ulimit -n (errno 24: Too many open files)"));
    e = (dlp_error){.code = DLP_ERR_CALLBACK, .worker = -1, .errnum = EPERM, .message = "ask"};
    CHECK(line_is(&e, "DLP_ERR_CALLBACK: ask (errno 1: Operation not permitted)"));
    for (size_t i = 0; i < sizeof cures / sizeof *cures; i++) {
        char line[1024];
        e = (dlp_error){.code = DLP_ERR_SYSTEM, .worker = -1, .errnum = cures[i].errnum};
        dlp_error_format(&e, line, sizeof line);
        CHECK(strstr(line, cures[i].word) != NULL && strstr(line, "batches") == NULL);
    }
    for (int code = -30; code < 10; code++) CHECK(strstr(dlp_code_hint(code), "message") == NULL);
}

static void pipe_error__nothing_wrong__as_documented(void) {
    rig r;
    dlp_pipe *p;
    const dlp_error *e;
    rig_init(&r, N_ITEMS, 10);
    if (rig_open(&r, &p) != DLP_OK) return;
    e = dlp_pipe_error(p);
    CHECK(e->code == 0 && e->worker == -1 && e->has_item == 0 && e->message[0] == 0);
    CHECK(line_is(e, "DLP_OK: ok"));
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Why items were left out, or replaced, is told: by the list, explain, and when it was too much. */
static int broken_fetch(void *user, dlp_item *it) {
    rig_fetch(NULL, it);
    if (user != NULL) return DLP_SKIP;
    if (it->index % 10 == 4) return dlp_fail(it->call, EIO, "picture %d is cut", (int)it->index);
    return it->index % 10 == 5 ? -77 : 0;
}

static void skips__why__told(void) {
    for (int kind = 0; kind < 4; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_skip skip[64];
        char text[4096];
        int rc, n, budget = kind & 1;
        rig_init(&r, 60, 10);
        r.dataset.fetch = broken_fetch;
        r.fetch.num_workers = 1;
        r.fetch.on_error = kind & 2 ? DLP_ON_ERROR_REPLACE : DLP_ON_ERROR_DROP;
        r.fetch.max_skips = budget ? 3 : 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK)
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        CHECK(rc == (budget ? DLP_ERR_BUDGET : DLP_END));
        if (budget) CHECK(strstr(dlp_pipe_error(p)->message, "item 4: picture 4 is cut") != NULL);
        n = dlp_pipe_skips(p, skip, 64, NULL);
        CHECK(n >= 3 && skip[0].errnum == EIO && skip[0].code == DLP_ERR_CALLBACK);
        for (int i = 0; i < n; i++) {
            char words[64];
            snprintf(words, sizeof words, "picture %d is cut", (int)skip[i].index);
            if (skip[i].index % 10 == 5)
                strcpy(words, "the callback returned -77 and gave no reason (dlp_fail)");
            CHECK(strcmp(skip[i].message, words) == 0);
        }
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
        CHECK(strstr(text, "First replaced or left out: ") != NULL &&
              strstr(text, "picture 4 is cut (errno 5: ") != NULL);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void skips__nothing_but_DLP_SKIP__no_failure_is_told(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    rig_init(&r, 60, 10);
    r.dataset.fetch = broken_fetch;
    r.dataset.user = &r;
    r.fetch.on_error = DLP_ON_ERROR_REPLACE;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "left out by stage \"fetch\" 101 times") != NULL);
    CHECK(strstr(dlp_pipe_error(p)->message, "failed") == NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void keep_word(void *user, const char *message) { snprintf(user, 160, "%s", message); }

/* A release was forgotten: said by the pipe's error, until there is one; and by close. */
static void held__release_forgotten__told(void) {
    for (int max = 1; max < 3; max++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b[3];
        char word[160] = "";
        const dlp_error *e;
        rig_init(&r, N_ITEMS, 10);
        r.pipe.max_held = max;
        r.pipe.log = keep_word;
        r.pipe.log_user = word;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int i = 0; i < max; i++) CHECK(dlp_pipe_next_timeout(p, &b[i], 20000) == DLP_OK);
        CHECK(dlp_pipe_error(p)->code == 0);
        CHECK(dlp_pipe_next_timeout(p, &b[max], 20000) == DLP_ERR_HELD);
        e = dlp_pipe_error(p);
        CHECK(e->code == DLP_ERR_HELD && e->worker == -1 && e->has_item == 0);
        CHECK(strstr(e->message, max == 1 ? "1 batch is held" : "2 batches are held") != NULL);
        CHECK(dlp_pipe_release(p, b[0]) == DLP_OK && dlp_pipe_error(p)->code == 0);
        CHECK(dlp_pipe_next_timeout(p, &b[0], 20000) == DLP_OK && dlp_pipe_error(p)->code == 0);
        CHECK(word[0] == 0 && dlp_pipe_close(p) == DLP_OK);
        CHECK(strstr(word, max == 1 ? "1 batch is held" : "2 batches are held") != NULL);
        for (int i = 0; i < max; i++) CHECK(dlp_pipe_release(p, b[i]) == DLP_OK);
    }
}

/* ---- the sampler fails ---- */

/* Lists of one item, some; then it fails. */
static int64_t failing_next(void *user, uint64_t epoch, uint64_t *index, uint64_t capacity) {
    int *lists = user;
    (void)epoch;
    (void)capacity;
    if ((*lists)-- == 0) return -5;
    index[0] = 0;
    return 1;
}

static int napping_fetch_us;
static int napping_fetch(void *user, dlp_item *it) {
    pause_us(napping_fetch_us);
    return rig_fetch(user, it);
}

static int failing_init_us;
static int failing_init(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    (void)state;
    pause_us(failing_init_us);
    return -3;
}

static void failing_rig(rig *r, int *lists, int n) {
    rig_init(r, 60, 1);
    r->dataset.fetch = napping_fetch;
    r->sampler.order = DLP_ORDER_BATCHES;
    r->sampler.batches.next = failing_next;
    r->sampler.batches.user = lists;
    r->sampler.threaded = 1;
    r->fetch.num_workers = 1;
    r->pipe.prefetch_factor = 8;
    *lists = n;
}

static void errors__sampler_fails__behind_what_it_gave(void) {
    napping_fetch_us = 300;
    for (int k = 0; k < 400; k++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        int rc, n = 0, lists;
        failing_rig(&r, &lists, 3);
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, k & 1 ? 20000 : 0)) == DLP_OK ||
               (rc == DLP_TIMEOUT && (k & 1) == 0)) {
            if (rc == DLP_TIMEOUT) continue;
            n++;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_ERR_CALLBACK && n == 3);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void errors__sampler_has_failed__caller_sleeps_for_what_is_left(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    struct timespec from, to;
    int lists;
    failing_rig(&r, &lists, 1);
    napping_fetch_us = 400000;
    if (rig_open(&r, &p) != DLP_OK) return;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    CHECK((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec < 30000000);
    CHECK(dlp_pipe_release(p, b) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
}

/* What it gave can't come: nobody is there to fetch it. */
static void errors__sampler_and_worker_init_fail__told(void) {
    for (int late = 0; late < 2; late++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        int lists;
        failing_rig(&r, &lists, 3);
        r.fetch.worker_init = failing_init;
        failing_init_us = late ? 50000 : 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        if (late == 0) pause_us(50000);
        CHECK(dlp_pipe_next_timeout(p, &b, 3000) == DLP_ERR_CALLBACK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- what is asked of each plain row ---- */

static uint64_t dirty_;

static int fetch_plain(void *user, dlp_item *it) {
    uint64_t was;
    memcpy(&was, it->data[0], sizeof was);
    dirty_ += was != 0;
    memset(it->data[0], 0xff, sizeof was);
    if (it->index == *(uint64_t *)user) it->length[0] = 3;
    return 0;
}

/* Says so of the 121st row alone; 300 is no item. */
static uint64_t index_beyond(void *user, uint64_t epoch, uint64_t position) {
    (void)user;
    (void)epoch;
    return position == 120 ? 300 : position;
}

static int run_plain(bool beyond, uint64_t with_length, uint64_t *rows, dlp_error *e) {
    static const dlp_field field = {.name = "words", .dtype = DLP_U64};
    dlp_loader_desc d;
    dlp_pipe *p;
    dlp_batch *b;
    int rc;
    memset(&d, 0, sizeof d);
    d.dataset = (dlp_dataset){.n_items = 300,
                              .fields = &field,
                              .n_fields = 1,
                              .fetch = fetch_plain,
                              .user = &with_length};
    d.batch_size = 50;
    if (beyond) {
        d.sampler.order = DLP_ORDER_FUNCTION;
        d.sampler.function = index_beyond;
    }
    *rows = dirty_ = 0;
    CHECK(dlp_loader_open(&p, &d, e) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        *rows += b->count;
        dlp_pipe_release(p, b);
    }
    *e = *dlp_pipe_error(p);
    dlp_pipe_close(p);
    return rc;
}

static uint64_t index_beyond_at_first(void *user, uint64_t epoch, uint64_t position) {
    return epoch == 0 ? index_beyond(user, epoch, position) : position;
}

static int skip_some(void *user, dlp_item *it) {
    (void)user;
    return it->epoch == 1 && it->index % 50 == 0 ? DLP_SKIP : 0;
}

/* A batch with a row that is no item is dropped. The next batch in its slot has all its rows but
   one. */
static void no_item__in_a_dropped_epoch__not_seen_in_the_next(void) {
    static const dlp_field field = {.name = "words", .dtype = DLP_U64};
    static dlp_stats st;
    dlp_sampler_desc order = {.order = DLP_ORDER_FUNCTION, .function = index_beyond_at_first};
    uint64_t rows = 0;
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = 300, .order = &order}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = skip_some, .fields = &field, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = 50},
         .queue = {.capacity = 4}}};
    dlp_pipe *p;
    dlp_batch *b;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.epochs = 2}, NULL) == DLP_OK);
    for (int i = 0; i < 5000 && st.stages[dlp_node_stage(p, "fetch")].items < 150; i++) {
        poll(NULL, 0, 1);
        CHECK(dlp_pipe_stats(p, &st) == DLP_OK);
    }
    CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        rows += b->valid_count;
        dlp_pipe_release(p, b);
    }
    CHECK(rows == 6 * 49);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int fails_every_other_time(void *user, dlp_batch *b, void *state) {
    (void)b;
    (void)state;
    return (*(uint64_t *)user)++ % 2 == 0 ? -1 : 0;
}

/* Each batch fails once. No batch counts the failure of the batch before it in its slot. */
static void batch_map__fails_once_at_each_batch__each_is_tried_again(void) {
    static const dlp_field field = {.name = "words", .dtype = DLP_U64};
    uint64_t calls = 0, rows = 0;
    const dlp_node nodes[] = {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 300}},
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = skip_some, .fields = &field, .n_fields = 1}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 10}},
                              {.name = "whole",
                               .verb = DLP_MAP,
                               .map = {.batch = fails_every_other_time, .user = &calls},
                               .workers = {.retries = 1}}};
    dlp_pipe *p;
    dlp_batch *b;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        rows += b->valid_count;
        dlp_pipe_release(p, b);
    }
    CHECK(rows == 300 && calls == 60);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void errors__plain_row__zeroed_fixed_and_an_item(void) {
    dlp_error e;
    uint64_t rows;
    CHECK(run_plain(false, UINT64_MAX, &rows, &e) == DLP_END && rows == 300 && dirty_ == 0);
    CHECK(run_plain(false, 120, &rows, &e) == DLP_ERR_LENGTH && dirty_ == 0);
    CHECK(e.index == 120 && strcmp(e.field, "words") == 0);
    CHECK(run_plain(true, 300, &rows, &e) == DLP_ERR_CALLBACK && rows == 100);
    CHECK(strstr(e.message, "index 300") != NULL);
}

int main(int argc, char **argv) {
    held__release_forgotten__told();
    skips__why__told();
    skips__nothing_but_DLP_SKIP__no_failure_is_told();
    error_format__each_part__in_its_place();
    pipe_error__nothing_wrong__as_documented();
    errors__callback_returns_any_number__a_failure_that_names_it();
    codes__positive__none_is_an_errno();
    errors__submit_or_stream_returns_errno__a_failure();
    skip__nobody_asked_for_it__a_warning_for_each_stage();
    skip__by_two_stages__warned_of_both();
    no_item__in_a_dropped_epoch__not_seen_in_the_next();
    batch_map__fails_once_at_each_batch__each_is_tried_again();
    errors__plain_row__zeroed_fixed_and_an_item();
    errors__words_of_another_item__not_told();
    errors__callback_changes_its_item__nothing_else_is_spoiled();
    cache__fetch_changes_the_index__right_item_is_kept();
    errors__each_stage_fails_as_often_as_it_may__item_gets_through();
    errors__row_replaced_then_left_out__index_stays();
    errors__item_of_a_dropped_batch_fails__not_told();
    errors__random_failures__bytes_foretold(argc > 1 ? strtoull(argv[1], NULL, 0) : 1);
    errors__row_goes_back_while_another_waits__sleeps();
    errors__retry_with_backoff__parks_the_item_only();
    errors__retries_with_backoff__all_wait_together();
    errors__row_waits__nothing_runs();
    errors__raise__told_at_its_batch();
    errors__max_skips__one_more_is_an_error();
    errors__max_skips__counts_all_stages();
    errors__skips__listed();
    errors__nothing_can_replace__error();
    errors__batch_callback_fails__retried_or_told();
    errors__sampler_fails__behind_what_it_gave();
    errors__sampler_has_failed__caller_sleeps_for_what_is_left();
    errors__sampler_and_worker_init_fail__told();
    return test_end("pipe_errors");
}
