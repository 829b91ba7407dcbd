/* Worker processes end to end: the bytes that (seed, epoch, position) tell, in order, whatever runs
   where; and the same as threads and inline workers make of it. shm_basic [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/digest.h"
#include "../../rig/shm_rig.h"

static const int workers_of[] = {0, 1, 2, 4};
static const uint32_t batch_of[] = {1, 7, 32, 33, 64, 100};

/* ---- any wiring ---- */

static int run_through(rig *r) {
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0, epochs = r->pipe.epochs ? (uint64_t)r->pipe.epochs : 1;
    int rc, ok = 1;
    if (rig_open(r, &p) != DLP_OK) return 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        uint64_t k = n % rig_batches(r);
        ok &= b->sequence == n && rig_batch_same(r, b, n / rig_batches(r), k);
        ok &= b->flags == (k + 1 == rig_batches(r) ? DLP_BATCH_LAST : 0);
        ok &= dlp_pipe_release(p, b) == DLP_OK;
        n++;
    }
    if (rc != DLP_END) rig_say(p, rc);
    ok &= rc == DLP_END && n == epochs * rig_batches(r);
    ok &= inside_restarts(p) == 0;
    return dlp_pipe_close(p) == DLP_OK && ok;
}

/* Each stage: inline, threads or processes, claims or batches in turn. */
static void place_any(dlp_workers_desc *w, uint64_t *random) {
    w->num_workers = workers_of[test_pick(random, 4)];
    w->placement = test_pick(random, 3) > 0 ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
    w->dispatch = test_pick(random, 2) ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    w->idempotent = 0;
}

static void one_case(int order, int last, int workers, int dispatch, uint64_t *random) {
    rig r;
    int before = test_failures;
    uint32_t batch = batch_of[test_pick(random, 6)];
    if (before > 5) return; /* it is said by now */
    rig_init(&r, 203, batch);
    rig_order(&r, order);
    shm_processes(&r, workers, dispatch);
    r.batch.last = last;
    r.pipe.epochs = 2;
    r.sampler.threaded = (int32_t)test_pick(random, 2);
    r.pipe.prefetch_factor = 1 + (int32_t)test_pick(random, 5);
    r.n_item_maps = (int)test_pick(random, 3);
    r.n_batch_maps = (int)test_pick(random, 3);
    r.n_transfers = (int)test_pick(random, 2);
    r.transfer.workers.num_workers = (int32_t)test_pick(random, 2);
    r.dataset.writes_all_bytes = test_pick(random, 2);
    if (test_pick(random, 3) == 0) r.batch_by.num_workers = 1 + (int32_t)test_pick(random, 3);
    if (test_pick(random, 3) == 0)
        r.batch.collate = test_pick(random, 2) ? dlp_collate_pad : dlp_collate_pack;
    if (r.batch.collate == NULL) r.batch_by.num_workers = 0;
    if (test_pick(random, 2) == 0) { /* a mix */
        if (test_pick(random, 3) == 0) place_any(&r.fetch, random);
        for (int i = 0; i < RIG_MAPS; i++) {
            place_any(&r.item_map[i].workers, random);
            place_any(&r.batch_map[i].workers, random);
        }
        if (test_pick(random, 2)) r.batch_by.placement = DLP_PLACE_THREADS;
    }
    CHECK(run_through(&r));
    if (test_failures != before)
        printf("  order %d last %d workers %d dispatch %d batch %u: threaded %d prefetch %d "
               "maps %d %d transfer %d %d collate %d batch_workers %d placements %d %d %d %d %d\n",
               order, last, workers, dispatch, batch, r.sampler.threaded, r.pipe.prefetch_factor,
               r.n_item_maps, r.n_batch_maps, r.n_transfers, r.transfer.workers.num_workers,
               r.batch.collate != NULL, r.batch_by.num_workers, r.fetch.placement,
               r.item_map[0].workers.placement, r.item_map[1].workers.placement,
               r.batch_by.placement, r.batch_map[0].workers.placement);
    rig_free(&r);
}

static void shm__any_wiring__same_bytes(uint64_t seed) {
    uint64_t random = seed;
    int rounds = test_share(5, 200);
    for (int round = 0; round < rounds; round++)
        for (int order = 0; order <= DLP_ORDER_FUNCTION; order++)
            for (int last = 0; last < 3; last++)
                for (int w = 1; w < 4; w++)
                    for (int dispatch = 0; dispatch < 2; dispatch++)
                        if (!getenv("SHORT") || test_pick(&random, 4) == 0)
                            one_case(order, last, workers_of[w], dispatch, &random);
}

/* ---- the same as a pipe without any process: digests of all that next gives ---- */

#define MOST 512
typedef struct digest {
    int n, rc;
    uint64_t of[MOST]; /* by sequence */
    uint64_t skips;
} digest;

static void digest_run(rig *r, digest *d) {
    dlp_pipe *p;
    dlp_batch *b;
    memset(d, 0, sizeof *d);
    if ((d->rc = rig_open(r, &p)) != DLP_OK) return;
    while ((d->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        uint64_t key = b->sequence;
        if (r->pipe.unordered) b->flags = 0;
        CHECK(key < MOST && d->of[key] == 0);
        d->of[key % MOST] = digest_batch(b);
        d->n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    dlp_pipe_skips(p, NULL, 0, &d->skips);
    if (d->rc != DLP_END) rig_say(p, d->rc);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* r, inline, as threads, and as processes with claims and with batches in turn. */
static void same_everywhere(rig *r, const char *what) {
    static digest first, d;
    for (int kind = 0; kind < 4; kind++) {
        if (kind == 0)
            rig_workers(r, 0, 0);
        else if (kind == 1)
            rig_workers(r, 3, 0);
        else
            shm_processes(r, 3, kind == 3);
        digest_run(r, kind ? &d : &first);
        CHECK((kind ? &d : &first)->rc == DLP_END);
        if (kind == 0) continue;
        CHECK(d.n == first.n && d.skips == first.skips);
        CHECK(memcmp(d.of, first.of, sizeof d.of) == 0);
        if (memcmp(d.of, first.of, sizeof d.of) != 0 || d.skips != first.skips)
            printf("  %s as %s is another: %d batches, %d skips; %d, %d\n", what,
                   kind == 1 ? "threads" : "processes", d.n, (int)d.skips, first.n,
                   (int)first.skips);
    }
}

static const dlp_field ragged_fields[2] = {{"tokens", DLP_U32, 1, {9}, 1, 0},
                                           {"id", DLP_U64, 0, {0}, 0, 0}};

static int ragged_fetch(void *user, dlp_item *it) {
    uint32_t n = (uint32_t)(dlp_item_random(it, 3) % 10);
    uint64_t id = it->index;
    (void)user;
    for (uint32_t i = 0; i < n; i++) ((uint32_t *)it->data[0])[i] = (uint32_t)id * 16 + i;
    it->length[0] = n;
    memcpy(it->data[1], &id, 8);
    return 0;
}

static int ragged_map(void *user, dlp_item *it) { /* drops the last token */
    (void)user;
    if (it->length[0] > 0) it->length[0]--;
    return 0;
}

static void shm__ragged__same_as_inline(void) {
    for (int kind = 0; kind < 6; kind++) {
        rig r;
        rig_init(&r, 150, 16);
        rig_order(&r, DLP_ORDER_SHUFFLED);
        r.dataset.fields = ragged_fields;
        r.dataset.fetch = ragged_fetch;
        r.item_map[0].map.item = ragged_map;
        r.n_item_maps = kind & 1;
        r.pipe.epochs = 2;
        r.batch.collate = kind / 2 == 0 ? NULL : kind / 2 == 1 ? dlp_collate_pad : dlp_collate_pack;
        same_everywhere(&r, "ragged");
    }
}

static int64_t list_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    uint64_t *state = user, n = (*state * 7 + epoch) % max + 1;
    if (*state == 20) return 0;
    for (uint64_t i = 0; i < n; i++) index[i] = dlp_hash(epoch, *state, i, 0) % 150;
    ++*state;
    return (int64_t)n;
}

static int list_begin(void *user, uint64_t epoch) {
    (void)epoch;
    *(uint64_t *)user = 0;
    return 0;
}

static void shm__batch_sampler__same_as_inline(void) {
    for (int threaded = 0; threaded < 2; threaded++) {
        rig r;
        uint64_t state = 0;
        rig_init(&r, 150, 13);
        rig_order(&r, DLP_ORDER_BATCHES);
        r.sampler.threaded = threaded;
        r.sampler.batches.next = list_next;
        r.sampler.batches.begin = list_begin;
        r.sampler.batches.user = &state;
        r.pipe.epochs = 2;
        r.n_item_maps = 1;
        same_everywhere(&r, "a batch sampler");
    }
}

static void shm__unordered__each_batch_once(void) {
    rig r;
    rig_init(&r, 500, 8);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    r.pipe.unordered = 1;
    r.pipe.prefetch_factor = 6;
    r.pipe.epochs = 3;
    same_everywhere(&r, "unordered");
}

/* ---- failures: every item i fails fetch i % 4 times, some for ever; the map fails others ---- */

static int flaky_fetch(void *user, dlp_item *it) {
    int rc = rig_fetch(user, it);
    if (it->index % 29 == 3 || it->attempt < it->index % 3) {
        memset(it->data[0], 0x5a, 24);
        return dlp_fail(it->call, 5, "no item %d", (int)it->index);
    }
    return rc;
}

static int flaky_map(void *user, dlp_item *it) {
    if (it->index % 31 == 4 || (it->index % 5 == 1 && it->attempt < 2)) {
        memset(it->data[0], 0xa5, 24);
        return -9;
    }
    if (it->index % 37 == 5) return DLP_SKIP;
    return rig_item_map(user, it);
}

static void shm__policies__same_as_inline(void) {
    for (int kind = 0; kind < 8; kind++) {
        rig r;
        dlp_workers_desc *w[2];
        rig_init(&r, 130, 33);
        rig_order(&r, DLP_ORDER_SHUFFLED);
        w[0] = &r.fetch;
        w[1] = &r.item_map[0].workers;
        r.n_item_maps = 1;
        r.n_batch_maps = 1;
        r.dataset.fetch = flaky_fetch;
        r.item_map[0].map.item = flaky_map;
        r.pipe.epochs = 2;
        if (kind & 4) r.batch.collate = dlp_collate_pad;
        for (int i = 0; i < 2; i++) {
            w[i]->retries = 4;
            w[i]->retry_backoff_ms = kind >> 1 & 1;
            w[i]->on_error = kind & 1 ? DLP_ON_ERROR_REPLACE : DLP_ON_ERROR_DROP;
        }
        same_everywhere(&r, kind & 1 ? "replace" : "short");
    }
}

/* A batch map that is not idempotent spoils the batch and fails: the batch is collated, or fetched
   and mapped, once more. The second map, too. Each batch fails a number of times of its own. */
typedef struct spoil {
    uint32_t calls[2][64]; /* by in_epoch; shared */
    uint32_t most;
} spoil;

static int spoil_map(spoil *s, int which, dlp_batch *b) {
    uint32_t *calls = &s->calls[which][b->in_epoch];
    uint32_t fails = (uint32_t)dlp_hash(b->in_epoch, (uint64_t)which, 4, 4) % (s->most + 1);
    if (__atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) > fails) return rig_batch_map(NULL, b, NULL);
    memset((char *)b->fields[0].data, 0xcc, b->fields[0].bytes);
    memset((char *)b->fields[1].data, 0xcc, b->fields[1].bytes / 2);
    return -77;
}
static int spoil_map0(void *user, dlp_batch *b, void *state) {
    (void)state;
    return spoil_map(user, 0, b);
}
static int spoil_map1(void *user, dlp_batch *b, void *state) {
    (void)state;
    return spoil_map(user, 1, b);
}

static void spoil_case(int kind, int place) {
    spoil *s = shm_shared(sizeof *s);
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0;
    int rc, give_up = kind >> 4 & 1;
    rig_init(&r, 40 * 33 - 5, 33);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    if (place == 2)
        shm_processes(&r, 2, kind & 1);
    else
        rig_workers(&r, place ? 2 : 0, kind & 1);
    r.n_item_maps = kind >> 1 & 1;
    r.n_batch_maps = 2;
    if (kind & 4) r.batch.collate = dlp_collate_pad;
    r.batch_map[0].map.batch = spoil_map0;
    r.batch_map[1].map.batch = spoil_map1;
    s->most = 2;
    for (int i = 0; i < 2; i++) {
        r.batch_map[i].map.user = s;
        r.batch_map[i].workers.retries = give_up ? 1 : 4;
        r.batch_map[i].workers.retry_backoff_ms = (kind & 11) == 8;
    }
    if (rig_open(&r, &p) != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(rig_batch_same(&r, b, 0, n));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        n++;
    }
    if (give_up) {
        CHECK(rc == DLP_ERR_CALLBACK && strstr(dlp_pipe_error(p)->message, "-77") != NULL);
    } else {
        CHECK(rc == DLP_END && n == 40);
    }
    if ((rc != DLP_END) != give_up) {
        printf("  kind %d placed %d: ", kind, place);
        rig_say(p, rc);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    munmap(s, sizeof *s);
}

static void shm__batch_map_fails__batch_goes_back(void) {
    for (int kind = 0; kind < 32; kind++)
        for (int place = 0; place < 3; place++)
            if (!getenv("SHORT") || (kind + place) % 5 == 0) spoil_case(kind, place);
}

/* ---- resume, epochs ---- */

static void shm__state__goes_from_processes_to_threads_and_back(void) {
    dlp_state state;
    uint64_t k = 0;
    for (int life = 0; life < 6; life++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        int n = 0, rc = DLP_OK;
        rig_init(&r, 100, 7);
        rig_order(&r, DLP_ORDER_SHUFFLED);
        r.pipe.epochs = 3;
        if (life % 2 == 0)
            shm_processes(&r, 2, life >> 1 & 1);
        else
            rig_workers(&r, 2, 0);
        if (life > 0) r.pipe.resume = &state;
        if (rig_open(&r, &p) != DLP_OK) return;
        while (n++ < 8 && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(rig_batch_same(&r, b, k / 15, k % 15));
            CHECK(dlp_pipe_state(p, b, &state) == DLP_OK);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            k++;
        }
        CHECK(rc == (life == 5 ? DLP_END : DLP_OK));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    CHECK(k == 45);
}

static void shm__next_epoch__leaves_the_rest(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t epoch = 0, k = 0;
    int rc, ends = 0;
    rig_init(&r, 300, 16);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    shm_processes(&r, 2, 0);
    r.n_item_maps = r.n_batch_maps = 1;
    r.pipe.epochs = 20;
    r.pipe.epoch_end = 1;
    if (rig_open(&r, &p) != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK || rc == DLP_EPOCH_END) {
        if (rc == DLP_EPOCH_END) {
            CHECK(k == 0);
            ends++;
            continue;
        }
        CHECK(rig_batch_same(&r, b, epoch, k));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        if (++k == rig_batches(&r)) epoch++, k = 0;
        if (epoch % 2 == 0 || k != 1 + epoch % 5) continue;
        CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
        epoch++, k = 0;
    }
    CHECK(rc == DLP_END && epoch == 20 && ends == 10);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- who runs where, and what they say ---- */

typedef struct census {
    int32_t inits, exits, wrong; /* in the caller's process, or of another worker's state */
    int32_t owner;
    int32_t pids[64];
} census;

static int census_init(void *user, int worker, void **state) {
    census *c = user;
    int at = __atomic_fetch_add(&c->inits, 1, __ATOMIC_RELAXED);
    if (getpid() == c->owner) __atomic_store_n(&c->wrong, 1, __ATOMIC_RELAXED);
    if (at < 64) c->pids[at] = getpid();
    *state = (void *)(intptr_t)(worker + 100);
    return 0;
}

static void census_exit(void *user, int worker, void *state) {
    census *c = user;
    __atomic_fetch_add(&c->exits, 1, __ATOMIC_RELAXED);
    if (getpid() == c->owner || state != (void *)(intptr_t)(worker + 100))
        __atomic_store_n(&c->wrong, 2, __ATOMIC_RELAXED);
}

static int census_fetch(void *user, dlp_item *it) {
    census *c = user;
    if (it->worker_state != (void *)(intptr_t)(it->worker + 100) || getpid() == c->owner)
        __atomic_store_n(&c->wrong, 3, __ATOMIC_RELAXED);
    return rig_fetch(NULL, it);
}

static void shm__worker_init__in_the_worker(void) {
    census *c = shm_shared(sizeof *c);
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_worker_stats ws;
    dlp_shm_desc patient = {.grace_ms = 20000}; /* each is to end by itself */
    int waits = 0;
    c->owner = getpid();
    rig_init(&r, 1000, 10);
    shm_processes(&r, 3, 0);
    r.pipe.shm = &patient;
    r.n_batch_maps = 1;
    r.dataset.fetch = census_fetch;
    r.dataset.user = c;
    r.fetch.worker_init = r.batch_map[0].workers.worker_init = census_init;
    r.fetch.worker_exit = r.batch_map[0].workers.worker_exit = census_exit;
    r.fetch.worker_user = r.batch_map[0].workers.worker_user = c;
    if (rig_open(&r, &p) != DLP_OK) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(dlp_pipe_error(p)->code == 0);
    for (uint32_t i = 0; i < 6; i++) {
        do CHECK(dlp_pipe_worker_stats(p, i, &ws) == DLP_OK); /* one may have begun only now */
        while (ws.tid == 0 && (test_pause(1000000), ++waits < 20000));
        CHECK(ws.tid > 0 && ws.tid != c->owner);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(c->inits == 6 && c->exits == 6 && c->wrong == 0);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < i; k++) CHECK(c->pids[i] != c->pids[k]);
    munmap(c, sizeof *c);
}

static int failing_init(void *user, int worker, void **state) {
    (void)user;
    (void)state;
    return worker == 1 ? -5 : 0;
}

static void shm__worker_init_fails__told(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    int rc;
    rig_init(&r, 1000, 10);
    shm_processes(&r, 2, 0);
    r.fetch.worker_init = failing_init;
    r.fetch.name = "reader";
    r.pipe.epochs = DLP_FOREVER; /* worker 1 may begin late */
    rc = rig_try(&r, &p, &err);
    while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK)
        dlp_pipe_release(p, b);
    if (p != NULL) err = *dlp_pipe_error(p);
    CHECK(rc == DLP_ERR_CALLBACK && err.worker == 1 && strcmp(err.stage, "reader") == 0);
    CHECK(strstr(err.message, "worker_init returned -5") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int item_57(void *user, dlp_item *it) {
    if (it->index == 57) return dlp_fail(it->call, 28, "nothing for %d", (int)it->index);
    return user ? rig_item_map(NULL, it) : rig_fetch(NULL, it);
}

static int batch_5(void *user, dlp_batch *b, void *state) {
    (void)state;
    (void)user;
    return b->in_epoch == 5 ? -41 : rig_batch_map(NULL, b, NULL);
}

static int collate_5(void *user, dlp_collate *c) {
    if (c->position == 50) return dlp_fail(c->call, 29, "no batch at %d", (int)c->position);
    return dlp_collate_pad(user, c);
}

static void shm__error__says_who(void) {
    static const char *const messages[] = {"nothing for 57", "nothing for 57", "no batch at 50",
                                           "-41"};
    for (int where = 0; where < 4; where++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        const dlp_error *e;
        int n = 0, rc;
        rig_init(&r, 203, 10);
        shm_processes(&r, 2, where & 1);
        r.n_item_maps = r.n_batch_maps = 1;
        r.item_map[0].map.user = &r;
        if (where == 0) r.dataset.fetch = item_57;
        if (where == 1) r.item_map[0].map.item = item_57;
        if (where == 2) r.batch.collate = collate_5;
        if (where == 3) r.batch_map[0].map.batch = batch_5;
        r.item_map[0].workers.name = "second";
        r.batch_map[0].workers.name = "fourth";
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(rig_batch_same(&r, b, 0, (uint64_t)n++));
            dlp_pipe_release(p, b);
        }
        e = dlp_pipe_error(p);
        CHECK(rc == DLP_ERR_CALLBACK && n == 5 && e->code == rc);
        CHECK(e->worker == 0 || e->worker == 1);
        CHECK(strstr(e->message, messages[where]) != NULL);
        CHECK(where == 2 ? e->errnum == 29 : where == 3 ? e->errnum == 0 : e->errnum == 28);
        CHECK(where < 2 ? e->has_item && e->index == 57 && e->position == 57 : e->position == 50);
        CHECK(strcmp(e->stage, where == 0   ? "fetch"
                               : where == 1 ? "second"
                               : where == 2 ? "batch"
                                            : "fourth") == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- two at once; threads that ended ---- */

static void shm__two_pipes__do_not_meet(void) {
    rig r[2];
    dlp_pipe *p[2];
    dlp_batch *b;
    uint64_t k[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        rig_init(&r[i], 500 + (uint64_t)i, 16);
        rig_order(&r[i], DLP_ORDER_SHUFFLED);
        r[i].sampler.seed = (uint64_t)i;
        shm_processes(&r[i], 2, i);
        if (rig_open(&r[i], &p[i]) != DLP_OK) return;
    }
    for (int n = 0; n < 64; n++) {
        int i = n & 1, rc = dlp_pipe_next_timeout(p[i], &b, 20000);
        CHECK(rc == DLP_OK && rig_batch_same(&r[i], b, 0, k[i]++));
        if (rc != DLP_OK) break;
        dlp_pipe_release(p[i], b);
        if (n == 40) CHECK(dlp_pipe_close(p[1]) == DLP_OK);
        if (n >= 40) n++; /* the other one goes on */
    }
    CHECK(k[0] >= 30);
    CHECK(dlp_pipe_close(p[0]) == DLP_OK);
}

/* Pipes that several threads start at once: none has processes that hold what only the others'
   callers may, so the close of one waits for its own alone, and a program that takes the caller's
   place (exec) finds none of them. */
#define AT_ONCE 8

typedef struct begun {
    rig r;
    dlp_pipe *p;
    pthread_barrier_t *all;
} begun;

static void *begins(void *arg) {
    begun *one = arg;
    pthread_barrier_wait(one->all);
    if (rig_open(&one->r, &one->p) != DLP_OK) one->p = NULL;
    return NULL;
}

static void begin_at_once(begun *those, const dlp_shm_desc *shm) {
    pthread_t t[AT_ONCE];
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++) {
        rig_init(&those[i].r, 10, 10);
        shm_processes(&those[i].r, 1, 0);
        those[i].r.pipe.shm = shm;
        those[i].p = NULL;
        those[i].all = &all;
        CHECK(pthread_create(&t[i], NULL, begins, &those[i]) == 0);
    }
    for (int i = 0; i < AT_ONCE; i++) pthread_join(t[i], NULL);
    pthread_barrier_destroy(&all);
}

static void shm__started_at_once__close_waits_for_its_own(void) {
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1};
    static begun those[AT_ONCE];
    for (int n = 0; n < test_share(8, 100); n++) {
        begin_at_once(those, &shm);
        for (int i = 0; i < AT_ONCE; i++) {
            uint64_t from = test_now_ns();
            CHECK(those[i].p != NULL && dlp_pipe_close(those[i].p) == DLP_OK);
            CHECK(test_now_ns() - from < UINT64_C(650000000)); /* below grace_ms + 400 */
        }
        if (test_failures > 0) return;
    }
}

/* A callback stops the pipe: in a worker process as anywhere else. */
static dlp_pipe *stopped_;

static int stopping_fetch(void *user, dlp_item *it) {
    if (it->index == 500) dlp_pipe_stop(stopped_);
    return rig_fetch(user, it);
}

static void shm__callback_stops__pipe_stops(void) {
    rig r;
    dlp_batch *b;
    uint64_t from;
    int rc;
    rig_init(&r, 1000, 8);
    shm_processes(&r, 2, 0);
    r.pipe.epochs = DLP_FOREVER;
    r.dataset.fetch = stopping_fetch;
    CHECK(rig_wire(&r, &stopped_, NULL) == DLP_OK);
    CHECK(dlp_pipe_start(stopped_) == DLP_OK);
    from = test_now_ns();
    while ((rc = dlp_pipe_next_timeout(stopped_, &b, 20000)) == DLP_OK &&
           test_now_ns() - from < UINT64_C(20000000000))
        CHECK(dlp_pipe_release(stopped_, b) == DLP_OK);
    CHECK(rc == DLP_STOPPED);
    CHECK(dlp_pipe_close(stopped_) == DLP_OK);
}

/* Let each memfd_create of this process fail, as the rules of a container do. Returns 0 if that can
   be done here. */
static int forbid_memfd(uint32_t errnum) {
    const struct {
        uint16_t code;
        uint8_t yes, no;
        uint32_t k;
    } filter[] = {{0x20, 0, 0, 0}, /* load the number of the call */
                  {0x15, 0, 1, SYS_memfd_create},
                  {0x06, 0, 0, 0x00050000u | errnum}, /* fail with errno */
                  {0x06, 0, 0, 0x7fff0000u}};
    const struct {
        unsigned short n;
        const void *at;
    } program = {4, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program, 0, 0);
}

static void shm__memfd_forbidden__words_that_fit(void) {
    static const int errnums[] = {EPERM, ENOSYS};
    for (int i = 0; i < 2; i++) {
        int status = -1;
        pid_t pid;
        fflush(stdout);
        if ((pid = fork()) == 0) {
            char line[600] = "";
            dlp_pipe *p = NULL;
            rig r;
            if (forbid_memfd((uint32_t)errnums[i]) != 0) _exit(0);
            rig_init(&r, 10, 10);
            shm_processes(&r, 1, 0);
            CHECK(rig_wire(&r, &p, NULL) == DLP_OK && dlp_pipe_start(p) == DLP_ERR_SYSTEM);
            dlp_error_format(dlp_pipe_error(p), line, sizeof line);
            CHECK(dlp_pipe_error(p)->errnum == errnums[i] && strstr(line, "memfd_create") != NULL);
            CHECK(strstr(line, "seccomp") != NULL && strstr(line, "batches") == NULL);
            if (test_failures > 0) printf("  %s\n", line);
            fflush(stdout);
            _exit(test_failures > 0);
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
}

static void *nothing(void *arg) { return arg; }

/* A thread that was joined may be in the kernel's list for a moment more. */
static void shm__threads_just_joined__start_succeeds(void) {
    for (int i = 0; i < test_share(60, 1000); i++) {
        pthread_t t;
        rig r;
        dlp_pipe *p;
        rig_init(&r, 10, 10);
        shm_processes(&r, 1, 0);
        if (pthread_create(&t, NULL, nothing, NULL) != 0) return;
        pthread_join(t, NULL);
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static uint64_t timed(const char *what, uint64_t from) {
    uint64_t now = test_now_ns();
    if (getenv("TIMES")) printf("%-40s %4d ms\n", what, (int)((now - from) / 1000000));
    return now;
}

int main(int argc, char **argv) {
    uint64_t t = test_now_ns();
    int files;
    SHM_NEEDS("shm_basic");
    files = shm_entries("/proc/self/fd");
    setvbuf(stdout, NULL, _IOLBF, 0);
    shm__any_wiring__same_bytes(argc > 1 ? strtoull(argv[1], NULL, 0) : 1);
    t = timed("any wiring", t);
    shm__ragged__same_as_inline();
    shm__batch_sampler__same_as_inline();
    shm__unordered__each_batch_once();
    t = timed("same as inline", t);
    shm__policies__same_as_inline();
    t = timed("policies", t);
    shm__batch_map_fails__batch_goes_back();
    t = timed("goes back", t);
    shm__state__goes_from_processes_to_threads_and_back();
    shm__next_epoch__leaves_the_rest();
    t = timed("states, epochs", t);
    shm__worker_init__in_the_worker();
    shm__worker_init_fails__told();
    shm__error__says_who();
    shm__memfd_forbidden__words_that_fit();
    t = timed("init, errors", t);
    shm__two_pipes__do_not_meet();
    shm__threads_just_joined__start_succeeds();
    shm__started_at_once__close_waits_for_its_own();
    shm__callback_stops__pipe_stops();
    timed("two pipes, threads joined", t);
    CHECK(shm_entries("/proc/self/fd") == files);
    CHECK(shm_mappings() == 0);
    return test_end("shm_basic");
}
