/* needs: parts pack mix */
/* Inputs that an asynchronous source reads into cells, many at once, in front of filters, expanders
   and packing: each item once, in the order that a fetch one after the other gives; whatever the
   order of answers, the workers, their deaths, a source without room; resumed at every batch;
   failures, tries again, and a source that breaks its word; and how many of them are out. */
/* own: hook: a worker dies at an access of an atomic */
#define _GNU_SOURCE
#include "../../rig/atomics_hook.h"

static void death_here(void);
static void gate_here(const void *at);

static inline void atomics_hook(int kind, const void *at) {
    (void)kind;
    death_here();
    gate_here(at);
}

#define DLPIPE_NO_DEBUG
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ITEMS = 300, ROOM = 64, BATCHES = 512 };

static const dlp_field x_field = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {2}};
static const dlp_field y_field = {.name = "y", .dtype = DLP_U64, .ndim = 1, .shape = {2}};
static const dlp_field words_field = {
    .name = "words", .dtype = DLP_U16, .ndim = 1, .shape = {9}, .ragged = 1};

static int well(int ok) {
    CHECK(ok);
    return ok;
}

/* ---- a source that answers later, in any order ---- */

typedef struct store { /* of a worker */
    dlp_item *held[ROOM];
    uint64_t due[ROOM];
    uint32_t n, calls;
} store;

typedef struct shared { /* of all processes */
    uint32_t tries[ITEMS], kills, alone_wrong;
    uint32_t most;       /* items that a store held at once */
    uint32_t first;      /* worker that died first, plus 1 */
    uint32_t out[2];     /* items that a worker has out */
    uint32_t idle_waits; /* of reap for longer than a ms, with nothing out */
    uint64_t died;       /* ns: when it died */
    uint32_t blamed;     /* cells that a death counts for, as seen by the first request after it */
} shared;

static struct {
    uint32_t room;     /* of a store; above it submit returns DLP_FULL */
    uint64_t delay_ns; /* of an answer, at most twice as long */
    uint64_t fails;    /* this item fails `times` times */
    uint32_t times;
    uint64_t skips; /* this item is left out by the source */
    uint64_t kills; /* this item kills its worker `deaths` times: while it is out, or */
    int in_make;    /* 1: while items are made of it */
    uint32_t deaths;
    int lies; /* 1: reap gives back what was not out; 2: it returns -1 */
    int both; /* 1: one worker with 12 items dies, then the other; answers come after that */
    int max_kills;
    int full_dies;   /* 1: the worker dies once, when its store is full and an item waits for it */
    uint64_t silent; /* this item is never answered */
    int steps; /* the worker that is asked to keep item 78 dies after so many atomic accesses */
    int later; /* the requests are those of a second fetch; a death is counted from the first on */
    uint32_t cells;
    int ragged;
} how;

static shared *all;
static int steps_left; /* atomic accesses until this process dies; 0: it does not */

static void death_here(void) {
    if (steps_left == 0 || --steps_left > 0) return;
    all->kills++;
    kill(getpid(), SIGKILL);
}

static int store_open(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    return (*state = calloc(1, sizeof(store))) == NULL;
}
static void store_close(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    CHECK(((store *)state)->n == 0 || how.lies);
    free(state);
}

/* Return how many cells have a kill in their record. */
static uint32_t cells_blamed(const dlp_pipe *p) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < dlpi_n_inputs(p); c++)
        n += dlpi_fate_kills(dlpi_input_at(p, c)->rec) > 0;
    return n;
}

static int submit(void *user, void *state, dlp_item *it) {
    store *s = state;
    (void)user;
    s->calls++;
    if (how.full_dies && all->kills == 1 && all->blamed == 0)
        all->blamed = cells_blamed(it->call->w->p);
    if (s->n >= how.room || s->calls % 11 == 3) return DLP_FULL;
    __atomic_add_fetch(&all->tries[it->index], 1, __ATOMIC_RELAXED);
    if (it->index == how.skips) return DLP_SKIP;
    s->held[s->n] = it;
    s->due[s->n++] =
        test_now_ns() + how.delay_ns + dlp_hash(1, it->index, s->calls, 0) % (how.delay_ns + 1);
    if (s->n > __atomic_load_n(&all->most, __ATOMIC_RELAXED))
        __atomic_store_n(&all->most, s->n, __ATOMIC_RELAXED);
    if (it->index == how.kills && it->epoch == 0 && all->kills > 0 && s->n > 1) all->alone_wrong++;
    if (it->index == how.kills && !how.in_make && all->kills < how.deaths) {
        all->kills++;
        kill(getpid(), SIGKILL);
    }
    return 0;
}

static int answer(dlp_item *it) {
    if (it->index == how.fails &&
        __atomic_load_n(&all->tries[it->index], __ATOMIC_RELAXED) <= how.times)
        return dlp_fail(it->call, 0, "no answer for %d", (int)it->index);
    if (how.ragged) {
        uint16_t *to = it->data[0];
        it->length[0] = it->index % 10;
        for (uint64_t i = 0; i < it->index % 10; i++) to[i] = (uint16_t)(it->index + i + 1);
        return 0;
    }
    if (((uint64_t *)it->data[0])[1] != 0) return DLP_ERR_CALLBACK; /* it begins as zeros */
    ((uint64_t *)it->data[0])[0] = it->index * 3;
    ((uint64_t *)it->data[0])[1] = it->index + 1;
    return 0;
}

/* One worker dies with 12 items while the other has items of its own out. The other has time to
   claim one of the 12, and dies before it reads that item. */
static int both_die(const store *s) {
    uint32_t kills = __atomic_load_n(&all->kills, __ATOMIC_ACQUIRE);
    if (!how.both || kills > 1) return 0;
    usleep(1000);
    if (s->n == 0) return 1;
    const uint32_t worker = s->held[0]->worker;
    __atomic_store_n(&all->out[worker], s->n, __ATOMIC_RELAXED);
    if (kills == 0) {
        if (s->n < 12 || __atomic_load_n(&all->out[1 - worker], __ATOMIC_RELAXED) < 2) return 1;
        if (!__atomic_compare_exchange_n(&all->first, &(uint32_t){0}, worker + 1, 0,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return 1;
        all->died = test_now_ns();
    } else if (worker + 1 == all->first || test_now_ns() < all->died + 100000000) {
        return 1;
    }
    __atomic_store_n(&all->kills, kills + 1, __ATOMIC_RELEASE);
    kill(getpid(), SIGKILL);
    return 1;
}

static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    store *s = state;
    const uint64_t until = test_now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
    static dlp_item other;
    int n = 0;
    (void)user;
    if (s->n == 0 && timeout_ms > 1) __atomic_add_fetch(&all->idle_waits, 1, __ATOMIC_RELAXED);
    if (both_die(s)) return 0;
    if (how.full_dies && all->kills == 0 && s->n == how.room && s->calls > how.room) {
        all->kills = 1;
        kill(getpid(), SIGKILL);
    }
    if (how.lies == 2 && s->calls > 20) return -1;
    if (how.lies == 1 && s->calls > 20) return done[0] = &other, code[0] = 0, 1;
    do {
        for (uint32_t i = s->n; i > 0 && n < max; i--) { /* the last first */
            if (s->due[i - 1] > test_now_ns() || s->held[i - 1]->index == how.silent) continue;
            done[n] = s->held[i - 1];
            code[n] = answer(done[n]);
            n++;
            s->held[i - 1] = s->held[--s->n];
            s->due[i - 1] = s->due[s->n];
        }
        if (n == 0) usleep(100);
    } while (n == 0 && test_now_ns() < until);
    return n;
}

static const dlp_async source = {.submit = submit, .reap = reap};

/* ---- what stands behind it ---- */

static int keep(void *user, const dlp_item *it) {
    (void)user;
    if (!how.later && how.steps > 0 && it->index == 78 && all->kills == 0) steps_left = how.steps;
    return ((const uint64_t *)it->data[0])[0] % 2 == 0;
}
static int make(void *user, dlp_expand *x) {
    const uint64_t from = ((const uint64_t *)x->item->data[0])[0];
    (void)user;
    if (x->item->index == how.kills && how.in_make && all->kills < how.deaths) {
        all->kills++;
        kill(getpid(), SIGKILL);
    }
    for (uint64_t i = 0; i < x->item->index % 4; i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        ((uint64_t *)it->data[0])[0] = from * 10 + i;
    }
    return 0;
}
static int fetch(void *user, dlp_item *it) { /* the same, one after the other */
    (void)user;
    if (how.later && how.steps > 0 && it->index == 78 && all->kills == 0) steps_left = how.steps;
    return it->index == how.skips ? DLP_SKIP : answer(it);
}

enum { FILTER, EXPAND, BOTH, PACK, KINDS };

/* The rows of a table. reads: 0: fetch by a callback; else so many requests at once. */
static uint32_t table(dlp_node *to, int kind, uint32_t reads, dlp_workers_desc w) {
    uint32_t n = 0;
    how.ragged = kind == PACK;
    if (reads > 0) {
        w.worker_init = store_open;
        w.worker_exit = store_close;
    }
    to[n++] =
        (dlp_node){.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}};
    to[n++] = (dlp_node){.name = "read",
                         .verb = DLP_FETCH,
                         .fetch = {.async = reads > 0 ? &source : NULL,
                                   .fetch = reads > 0 ? NULL : fetch,
                                   .in_flight = reads,
                                   .fields = kind == PACK ? &words_field : &x_field,
                                   .n_fields = 1},
                         .workers = w};
    if (how.later) { /* the first fetch reads one after the other, and the second as above */
        to[n] = to[n - 1];
        to[n].name = "more";
        to[n].fetch.fields = &y_field;
        to[n++].workers = (dlp_workers_desc){.num_workers = 0};
        to[n - 2].fetch.async = NULL;
        to[n - 2].fetch.in_flight = 0;
        to[n - 2].fetch.fetch = fetch;
    }
    if (kind == FILTER || kind == BOTH)
        to[n++] = (dlp_node){.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep}};
    if (kind == EXPAND || kind == BOTH)
        to[n++] =
            (dlp_node){.name = "make",
                       .verb = DLP_EXPAND,
                       .expand = {.expand = make, .max_out = 3, .fields = &x_field, .n_fields = 1}};
    if (kind == PACK)
        to[n++] = (dlp_node){.name = "pack", .verb = DLP_PACK, .pack = {.tokens = 20}};
    to[n - 1].queue.capacity = how.cells;
    to[n++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}};
    return n;
}

typedef struct told {
    uint32_t n;
    int rc;
    uint64_t hash[BATCHES];
    dlp_state state[BATCHES];
    dlp_error err;
} told;

static uint64_t hash_of(const dlp_batch *b) {
    uint64_t h = b->count;
    for (uint32_t r = 0; r < b->count; r++) h = dlp_hash(h, b->index[r], b->valid[r], 0);
    for (uint32_t f = 0; f < b->n_fields; f++) {
        const dlp_tensor *t = &b->fields[f];
        uint64_t bytes = (t->dtype & 0xffff) / 8;
        for (int32_t k = 0; k < t->ndim; k++) bytes *= (uint64_t)t->shape[k];
        for (uint64_t i = 0; i < bytes; i++) h = dlp_hash(h, ((const uint8_t *)t->data)[i], i, 0);
    }
    return h;
}

static void run(const dlp_node *nodes, uint32_t n, const dlp_state *resume, told *t) {
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, /* those of a sanitizer */
                              .max_kills = how.max_kills};
    const dlp_pipe_desc desc = {
        .seed = 5, .epochs = 2, .streams = 2, .resume = resume, .shm = &shm};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    memset(t, 0, sizeof *t);
    memset(all, 0, sizeof *all);
    t->rc = dlp_pipe_open(&p, nodes, n, &desc, &t->err);
    if (t->rc != DLP_OK) return;
    while ((t->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK && t->n < BATCHES) {
        t->hash[t->n] = hash_of(b);
        CHECK(dlp_pipe_state(p, b, &t->state[t->n++]) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    t->err = *dlp_pipe_error(p);
    CHECK(all->idle_waits == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void reset(void) {
    memset(&how, 0, sizeof how);
    how.room = 48;
    how.delay_ns = 100000;
    how.fails = how.skips = how.kills = how.silent = UINT64_MAX;
}

static int alike(const told *a, const told *b, uint32_t from) {
    return a->rc == DLP_END && b->rc == DLP_END && a->n == b->n - from && a->n > 0 &&
           memcmp(a->hash, b->hash + from, a->n * sizeof *a->hash) == 0 &&
           memcmp(a->state, b->state + from, a->n * sizeof *a->state) == 0;
}

/* ---- what is tested ---- */

static void reads__any_answers_and_workers__as_one_after_the_other(void) {
    static told want, got;
    for (int kind = 0; kind < KINDS; kind++) {
        dlp_node nodes[6];
        reset();
        how.skips = 77;
        run(nodes, table(nodes, kind, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
        CHECK(want.rc == DLP_END);
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t reads[] = {1, 2, 16, 64, 16, 16};
            const dlp_workers_desc w = {.num_workers = i < 3 ? 1 : 3,
                                        .placement = i == 5 ? DLP_PLACE_PROCESSES : 0};
            run(nodes, table(nodes, kind, reads[i], w), NULL, &got);
            if (!well(alike(&got, &want, 0)))
                printf("  kind %d, %u reads: %u batches, not %u: %s\n", kind, reads[i], got.n,
                       want.n, got.err.message);
            CHECK(i == 0 ? all->most == 1 : i < 2 || all->most > 4);
        }
        for (uint32_t k = 0; k + 1 < want.n; k += 13) { /* resumed, by other reads and workers */
            const dlp_workers_desc w = {.num_workers = 1 + (int32_t)(k % 3)};
            run(nodes, table(nodes, kind, 1 + k % 40, w), &want.state[k], &got);
            CHECK(alike(&got, &want, k + 1));
        }
    }
}

/* Threads that fetch are as many workers. */
static void reads__by_threads__as_one_after_the_other(void) {
    static told want, got;
    for (int kind = 0; kind < KINDS; kind++) {
        dlp_node nodes[6];
        uint32_t n;
        reset();
        run(nodes, table(nodes, kind, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
        n = table(nodes, kind, 0, (dlp_workers_desc){.num_workers = 2});
        nodes[1].fetch.in_flight = 8;
        run(nodes, n, NULL, &got);
        CHECK(alike(&got, &want, 0));
    }
}

static void reads__item_fails__tries_then_its_error(void) {
    static told want, got;
    for (int backoff = 0; backoff < 2; backoff++) {
        for (int enough = 0; enough < 2; enough++) {
            dlp_node nodes[6];
            const dlp_workers_desc w = {
                .num_workers = 2, .retries = 1 + enough, .retry_backoff_ms = backoff};
            reset();
            run(nodes, table(nodes, BOTH, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
            how.fails = 134;
            how.times = 2;
            run(nodes, table(nodes, BOTH, 16, w), NULL, &got);
            if (enough) {
                CHECK(alike(&got, &want, 0));
                continue;
            }
            CHECK(got.rc == DLP_ERR_CALLBACK && got.err.index == 134);
            CHECK(strstr(got.err.message, "no answer for 134") != NULL);
            CHECK(memcmp(got.hash, want.hash, got.n * sizeof *got.hash) == 0);
        }
    }
}

static void reads__worker_dies__nothing_is_lost(void) {
    static told want, got;
    for (uint32_t deaths = 1; deaths <= 6; deaths++) {
        dlp_node nodes[6];
        const dlp_workers_desc w = {.num_workers = 2, .placement = DLP_PLACE_PROCESSES};
        reset();
        run(nodes, table(nodes, BOTH, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
        how.kills = 234;
        how.deaths = (deaths - 1) % 3 + 1;
        how.in_make = deaths > 3;
        run(nodes, table(nodes, BOTH, 16, w), NULL, &got);
        CHECK(all->kills == how.deaths && all->alone_wrong == 0);
        if (how.deaths < 3) {
            if (!well(alike(&got, &want, 0))) printf("  %u: %s\n", deaths, got.err.message);
        } else {
            CHECK(got.rc == DLP_ERR_KILLED && got.err.index == 234); /* it is poison */
        }
    }
}

/* An input of which items are made is not read again, though its worker dies before it says so. */
static void reads__worker_dies_at_each_step__nothing_is_lost(void) {
    static told want, got;
    const dlp_workers_desc w = {.num_workers = 1, .placement = DLP_PLACE_PROCESSES};
    dlp_node nodes[6];
    reset();
    how.delay_ns = 0;
    run(nodes, table(nodes, FILTER, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
    for (how.steps = 1; how.steps <= 60; how.steps++) {
        run(nodes, table(nodes, FILTER, 4, w), NULL, &got);
        CHECK(all->kills == 1);
        if (!well(alike(&got, &want, 0))) printf("  step %d: %s\n", how.steps, got.err.message);
    }
}

/* The worker dies at each step from the first fetch on: as the cell goes on to the second, while it
   waits, is out, and goes on behind the answer. */
static void reads__worker_dies_at_each_step_of_a_second_fetch__nothing_is_lost(void) {
    static told want, got;
    const dlp_workers_desc w = {.num_workers = 1, .placement = DLP_PLACE_PROCESSES};
    dlp_node nodes[7];
    reset();
    how.delay_ns = 0;
    how.later = 1;
    run(nodes, table(nodes, FILTER, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
    for (how.steps = 1; how.steps <= 120; how.steps += how.steps < 40 ? 1 : 4) {
        run(nodes, table(nodes, FILTER, 4, w), NULL, &got);
        CHECK(all->kills == 1);
        if (!well(alike(&got, &want, 0))) printf("  step %d: %s\n", how.steps, got.err.message);
    }
}

/* A cell of a worker that died is read alone. Until then a death of the worker that has the cell
   counts nothing for its input. */
static void reads__both_workers_die__no_input_is_blamed_twice(void) {
    static told want, got;
    const dlp_workers_desc w = {.num_workers = 2, .placement = DLP_PLACE_PROCESSES};
    dlp_node nodes[6];
    reset();
    run(nodes, table(nodes, EXPAND, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
    how.both = how.max_kills = 1;
    how.cells = 24;
    run(nodes, table(nodes, EXPAND, 16, w), NULL, &got);
    CHECK(all->kills == 2);
    if (!well(alike(&got, &want, 0))) printf("  %s\n", got.err.message);
}

/* Items that the source has may have killed the worker. The one that waits for it has not. */
static void reads__worker_dies__what_only_waits_is_not_blamed(void) {
    static told want, got;
    const dlp_workers_desc w = {.num_workers = 1, .placement = DLP_PLACE_PROCESSES};
    dlp_node nodes[6];
    reset();
    run(nodes, table(nodes, EXPAND, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
    how.full_dies = 1;
    how.room = 4;
    how.delay_ns = 1000000;
    run(nodes, table(nodes, EXPAND, 16, w), NULL, &got);
    CHECK(all->kills == 1);
    if (!well(all->blamed == 4)) printf("  %u cells are blamed\n", all->blamed);
    CHECK(alike(&got, &want, 0));
}

/* A request that is never answered costs its worker and its item, and nothing else. */
static void reads__request_past_its_deadline__its_item_alone_is_left_out(void) {
    static told want, got;
    const dlp_workers_desc w = {.num_workers = 2,
                                .placement = DLP_PLACE_PROCESSES,
                                .on_error = DLP_ON_ERROR_DROP,
                                .max_skips = 5,
                                .deadline_ms = 200};
    dlp_node nodes[6];
    reset();
    how.skips = 78;
    run(nodes, table(nodes, FILTER, 0, (dlp_workers_desc){.num_workers = 1}), NULL, &want);
    how.skips = UINT64_MAX;
    how.silent = 78;
    run(nodes, table(nodes, FILTER, 16, w), NULL, &got);
    CHECK(got.rc == DLP_END && got.n == want.n);
    CHECK(memcmp(got.hash, want.hash, got.n * sizeof *got.hash) == 0);
    if (got.rc != DLP_END) printf("  %s\n", got.err.message);
}

/* The time that requests are out is counted, as for rows. */
static void reads__figures__those_of_requests(void) {
    dlp_node nodes[6];
    const uint32_t n = table(nodes, FILTER, 8, (dlp_workers_desc){.num_workers = 2});
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_stats s;
    reset();
    if (!well(dlp_pipe_open(&p, nodes, n, NULL, NULL) == DLP_OK)) return;
    while (dlp_pipe_next(p, &b) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    const dlp_stage_stats *g = &s.stages[dlp_node_stage(p, "keep")];
    CHECK(g->in_flight == 8 && g->items == ITEMS);
    CHECK(g->in_flight_ns >= ITEMS * how.delay_ns);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void reads__source_lies__the_pipe_fails(void) {
    static told got;
    for (int lies = 1; lies <= 2; lies++) {
        dlp_node nodes[6];
        reset();
        how.lies = lies;
        run(nodes, table(nodes, FILTER, 16, (dlp_workers_desc){.num_workers = 1}), NULL, &got);
        CHECK(got.rc == DLP_ERR_CALLBACK);
        CHECK(strstr(got.err.message, lies == 1 ? "an unknown item" : "returned -1") != NULL);
    }
}

/* Cells that a pipe of so many requests has by itself. */
static uint64_t cells_of(uint32_t in_flight, int32_t workers) {
    dlp_node nodes[6];
    const uint32_t n = table(nodes, EXPAND, in_flight, (dlp_workers_desc){.num_workers = workers});
    dlp_pipe *p = NULL;
    dlp_stats s;
    uint64_t cells = 0;
    CHECK(dlp_pipe_open(&p, nodes, n, NULL, NULL) == DLP_OK);
    if (p == NULL) return 0;
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    cells = s.stages[dlp_node_stage(p, "make")].cells;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return cells;
}

/* Beyond what batches need a worker has 8 cells, and 2 for each request. */
static void reads__cells_by_default__as_the_requests_want(void) {
    reset();
    const uint64_t four = cells_of(4, 2), eight = cells_of(8, 2), more = cells_of(4, 3);
    CHECK(eight == four + 2 * 2 * 4);
    CHECK(more == four + 8 + 2 * 4);
}

/* ---- how many requests are out, by a clock of the source's own ---- */

static struct {
    dlp_pipe *p;
    uint64_t now;    /* ns of that clock */
    uint64_t out_ns; /* the sum of the times that requests were out */
    int alike;       /* 1: all take 50 ms; 0: 25 to 75 ms */
} told_;

/* True if nothing happens before an answer comes. The clock goes on only then, so what other
   threads do takes no time of it. */
static int others_sleep(void) {
    const dlp_pipe *p = told_.p;
    return dlpi_stopped(p) ||
           (dlpi_sleepers_mask(&p->ctl->consumer) != 0 &&
            (dlpi_consumer_schedules(p) || dlpi_sleepers_mask(&p->ctl->scheduler) != 0));
}

static int submit_timed(void *user, void *state, dlp_item *it) {
    store *s = state;
    (void)user;
    if (s->n == ROOM) return DLP_FULL;
    s->held[s->n] = it;
    s->due[s->n++] = __atomic_load_n(&told_.now, __ATOMIC_RELAXED) +
                     (told_.alike ? 50000000 : 25000000 + dlp_hash(1, it->index, 2, 0) % 50000000);
    return 0;
}

static int reap_timed(void *user, void *state, dlp_item **done, int *code, int max,
                      int timeout_ms) {
    store *s = state;
    const uint64_t now = __atomic_load_n(&told_.now, __ATOMIC_RELAXED);
    uint64_t until = now + (uint64_t)timeout_ms * 1000000;
    int n = 0;
    (void)user;
    while (!others_sleep()) usleep(20);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->due[i] < until) until = s->due[i] > now ? s->due[i] : now;
    __atomic_add_fetch(&told_.out_ns, s->n * (until - now), __ATOMIC_RELAXED);
    __atomic_store_n(&told_.now, until, __ATOMIC_RELAXED);
    for (uint32_t i = s->n; i > 0 && n < max; i--) {
        if (s->due[i - 1] > until) continue;
        done[n] = s->held[i - 1];
        code[n] = answer(done[n]);
        n++;
        s->held[i - 1] = s->held[--s->n];
        s->due[i - 1] = s->due[s->n];
    }
    return n;
}

/* The cells that a pipe has by itself are enough: as good as always 64 requests are out, whether
   batches are small or have the items of many inputs. */
static void reads__64_before_an_expander__are_out_all_the_time(void) {
    static const dlp_async timed = {.submit = submit_timed, .reap = reap_timed};
    for (int i = 0; i < 4; i++) {
        const dlp_pipe_desc desc = {.seed = 5, .epochs = DLP_FOREVER, .later = 1};
        const uint32_t rows = i < 2 ? 8 : 200;
        uint64_t now, out;
        dlp_node nodes[6];
        dlp_batch *b;
        uint32_t n;
        reset();
        n = table(nodes, EXPAND, ROOM, (dlp_workers_desc){.num_workers = 1});
        nodes[1].fetch.async = &timed;
        nodes[n - 1].batch.batch_size = rows;
        memset(&told_, 0, sizeof told_);
        told_.alike = i % 2;
        if (!well(dlp_pipe_open(&told_.p, nodes, n, &desc, NULL) == DLP_OK)) return;
        CHECK(dlp_pipe_start(told_.p) == DLP_OK);
        for (uint32_t k = 0; k < 1600 / rows; k++) {
            if (!well(dlp_pipe_next(told_.p, &b) == DLP_OK)) break;
            CHECK(dlp_pipe_release(told_.p, b) == DLP_OK);
        }
        now = __atomic_load_n(&told_.now, __ATOMIC_RELAXED);
        out = __atomic_load_n(&told_.out_ns, __ATOMIC_RELAXED);
        printf("  batches of %u, reads of %s: %.2f are out\n", rows,
               told_.alike ? "50 ms" : "25 to 75 ms", (double)out / (double)now);
        CHECK(now > 0 && (double)out >= 0.95 * ROOM * (double)now);
        CHECK(dlp_pipe_close(told_.p) == DLP_OK);
    }
}

static void reads__wrong_descs__refused(void) {
    static told got;
    dlp_node nodes[6];
    const dlp_async half = {.submit = submit};
    uint32_t n;
    reset();
    run(nodes, table(nodes, FILTER, 4, (dlp_workers_desc){.num_workers = DLP_NONE}), NULL, &got);
    CHECK(got.rc == DLP_ERR_ARG && strcmp(got.err.field, "workers.num_workers") == 0);
    n = table(nodes, FILTER, 4, (dlp_workers_desc){.num_workers = 1});
    nodes[1].fetch.async = &half;
    run(nodes, n, NULL, &got);
    CHECK(got.rc == DLP_ERR_ARG && strcmp(got.err.field, "async.reap") == 0);
    n = table(nodes, FILTER, 0, (dlp_workers_desc){.num_workers = 200});
    nodes[1].fetch.in_flight = 8;
    run(nodes, n, NULL, &got);
    CHECK(got.rc == DLP_ERR_ARG && strcmp(got.err.field, "fetch.in_flight") == 0);
}

/* ---- a row of a mix that is left while a worker has it ---- */

static struct {
    uint64_t item;        /* the worker that has this item waits in the filter; UINT64_MAX: none */
    int waits, open;      /* it does; it may go on */
    const void *at;       /* the item's field, in its cell */
    const uint64_t *word; /* of its cell */
    int looks;            /* the test's accesses of it before the worker goes on, and is awaited */
    pthread_t test;
    bool kept; /* cells of branches were kept at the end */
} gate = {.item = UINT64_MAX};

static void gate_here(const void *at) {
    if (at != gate.word || gate.word == NULL) return;
    if (!pthread_equal(pthread_self(), gate.test) || --gate.looks > 0) return;
    gate.word = NULL;
    __atomic_store_n(&gate.open, 1, __ATOMIC_SEQ_CST);
    while ((__atomic_load_n((const uint64_t *)at, __ATOMIC_SEQ_CST) & 0x1ffffff) !=
           DLPI_INPUT_LOADED)
        usleep(100);
}

static int gate_number(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index;
    return 0;
}

static int gate_keep(void *user, const dlp_item *it) {
    (void)user;
    uint64_t item = it->index; /* two workers ask */
    if (!__atomic_compare_exchange_n(&gate.item, &item, UINT64_MAX, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return 1;
    gate.at = it->data[0];
    __atomic_store_n(&gate.waits, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&gate.open, __ATOMIC_SEQ_CST)) usleep(100);
    return 1;
}

/* Return the joined rows of cells that are kept, and the word of the cell in which `at` lies. */
static uint32_t gate_kept(const dlp_pipe *p, const void *at, const uint64_t **word) {
    const dlpi_found *q = dlpi_found_of(p);
    uint32_t n = 0;
    for (uint32_t c = 0; c < q->joined->all_cells; c++) n += q->joined->kept[c];
    for (uint32_t c = 0; c < q->n_cells && word != NULL; c++) {
        const uint8_t *from = dlpi_input_bytes(p, c);
        if ((const uint8_t *)at >= from &&
            (const uint8_t *)at < from + p->inputs[DLPI_INPUTS_CELLS].stride)
            *word = &dlpi_input_at(p, c)->state;
    }
    return n;
}

/* looks: the worker goes on when the scheduler has looked at its cell so often. Returns 1 if it has
   looked so often. */
static int gate_run(int looks) {
    static const dlp_field field = {.name = "v", .dtype = DLP_U64};
    static const char *const from[] = {"read a", "read b", NULL};
    const dlp_node_fetch fetch = {.fetch = gate_number, .fields = &field, .n_fields = 1};
    const dlp_node nodes[] = {
        {.name = "a", .verb = DLP_LIST, .list = {.n_items = 40}},
        {.name = "read a", .verb = DLP_FETCH, .fetch = fetch, .workers = {.num_workers = 1}},
        {.name = "b", .verb = DLP_LIST, .list = {.n_items = 40}},
        {.name = "read b", .verb = DLP_FETCH, .fetch = fetch, .workers = {.num_workers = 1}},
        {.name = "both", .verb = DLP_MIX, .from = from},
        {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = gate_keep}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    const dlp_pipe_desc desc = {.epochs = 2};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err = {.code = 0};
    const uint64_t *word = NULL;
    int n = 0, rc, looked;
    gate.item = 7, gate.waits = gate.open = 0;
    gate.test = pthread_self();
    if (!well(dlp_pipe_open(&p, nodes, 7, &desc, &err) == DLP_OK)) return puts(err.message), 0;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    while (!__atomic_load_n(&gate.waits, __ATOMIC_SEQ_CST)) usleep(100);
    gate_kept(p, gate.at, &word);
    CHECK(word != NULL);
    gate.looks = looks; /* before the word, which workers look at, too */
    __atomic_store_n(&gate.word, word, __ATOMIC_SEQ_CST);
    CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++)
            CHECK(((const uint64_t *)b->fields[0].data)[r] == b->index[r]);
        dlp_pipe_release(p, b);
        n++;
    }
    looked = gate.word == NULL;
    gate.word = NULL;
    CHECK(rc == DLP_END && n == 20);
    gate.kept = looked && gate_kept(p, NULL, NULL) > 0;
    __atomic_store_n(&gate.open, 1, __ATOMIC_SEQ_CST);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return looked;
}

static void joined__worker_ends_between_two_looks__its_cells_come_free(void) {
    int looked = 0;
    reset();
    for (int looks = 1; looks <= 12; looks++) {
        /* A worker that has no core during the last epoch keeps a cell, too, but not each time. */
        for (int tries = 0; tries == 0 || (gate.kept && tries < 5); tries++)
            looked += gate_run(looks) && tries == 0;
        CHECK(!gate.kept);
    }
    printf("reads: %d of 12 looks\n", looked);
    CHECK(looked >= 4);
}

int main(void) {
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    reads__any_answers_and_workers__as_one_after_the_other();
    reads__by_threads__as_one_after_the_other();
    reads__item_fails__tries_then_its_error();
    reads__worker_dies__nothing_is_lost();
    reads__worker_dies_at_each_step__nothing_is_lost();
    reads__worker_dies_at_each_step_of_a_second_fetch__nothing_is_lost();
    reads__both_workers_die__no_input_is_blamed_twice();
    reads__worker_dies__what_only_waits_is_not_blamed();
    reads__request_past_its_deadline__its_item_alone_is_left_out();
    reads__figures__those_of_requests();
    reads__source_lies__the_pipe_fails();
    reads__cells_by_default__as_the_requests_want();
    reads__64_before_an_expander__are_out_all_the_time();
    reads__wrong_descs__refused();
    joined__worker_ends_between_two_looks__its_cells_come_free();
    return test_end("reads");
}
