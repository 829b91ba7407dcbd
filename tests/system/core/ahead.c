/* What dlp_item_ahead tells a fetch: indices that the same worker fetches soon, each once, in
   threads, processes and inline; nothing where none is known. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../../dlpipe_shm.h"
#include "../../rig/check.h"
#include "../../rig/pipe_rig.h"

#include <sys/mman.h>

#define ITEMS 1000u
#define WORKERS 4

/* Of one worker: what it was told and has not fetched yet. */
typedef struct told {
    uint64_t index[64], n;
    uint64_t all; /* how many were told */
} told;

typedef struct ahead_rig {
    told worker[WORKERS];
    uint64_t items, n_fetched, wrong, lost; /* items of the dataset */
    uint32_t fails;                         /* n: each n-th item fails at its first attempt */
    uint32_t seldom;                        /* n: only each n-th item asks */
    int filter;                             /* the items are inputs of a filter */
} ahead_rig;

static int fetch(void *user, dlp_item *item) {
    ahead_rig *r = user;
    told *t = &r->worker[item->worker];
    uint64_t next, k = 0;
    while (k < t->n && t->index[k] != item->index) k++;
    if (k > 0 && k < t->n) __atomic_add_fetch(&r->lost, 1, __ATOMIC_SEQ_CST); /* not in turn */
    if (k < t->n) {
        t->n--;
        memmove(t->index, t->index + 1, t->n * sizeof *t->index);
    }
    while ((!r->seldom || item->index % r->seldom == 0) &&
           (next = dlp_item_ahead(item)) != UINT64_MAX) {
        if (next >= r->items || t->n == 64) {
            __atomic_add_fetch(&r->wrong, 1, __ATOMIC_SEQ_CST);
            break;
        }
        t->index[t->n++] = next;
        t->all++;
    }
    if (t->n > 4) __atomic_add_fetch(&r->wrong, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&r->n_fetched, 1, __ATOMIC_SEQ_CST);
    *(uint64_t *)item->data[0] = item->index;
    if (r->fails && item->attempt == 0 && item->index % r->fails == 0)
        return dlp_fail(item->call, 5, "once");
    return 0;
}

static ahead_rig *rigs; /* [2], of all processes */

/* Run a loader over both or one of the datasets; return how many were told. */
static uint64_t run(dlp_loader_desc *d, uint64_t items) {
    static const dlp_field field = {"x", DLP_U64, 0, {0}, 0, 0};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    uint64_t n = 0, all = 0;
    d->dataset = (dlp_dataset){
        .n_items = items, .fields = &field, .n_fields = 1, .fetch = fetch, .user = rigs};
    d->dataset.filter = rigs->filter;
    memset(rigs->worker, 0, sizeof rigs->worker);
    rigs->items = items;
    rigs->n_fetched = rigs->wrong = rigs->lost = 0;
    d->shuffle = 1;
    d->seed = 3;
    CHECK(dlp_loader_open(&p, d, &err) == DLP_OK);
    while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        const uint64_t *x = b->fields[0].data;
        for (uint32_t i = 0; i < b->count; i++) CHECK(x[i] == b->index[i]);
        n += b->count;
        dlp_pipe_release(p, b);
    }
    CHECK(p != NULL && dlp_pipe_close(p) == DLP_OK);
    CHECK(n >= items && rigs->wrong == 0 && rigs->lost == 0);
    for (int w = 0; w < WORKERS; w++) {
        all += rigs->worker[w].all;
        CHECK(rigs->worker[w].n == 0); /* all that was told was fetched */
    }
    return all;
}

static void ahead__any_workers__told_is_fetched_in_turn(void) {
    static const int workers[] = {DLP_NONE, 1, 2, 4};
    for (int processes = 0; processes < 2; processes++)
        for (size_t i = 0; i < 4; i++) {
            uint64_t all = 0;
            if (processes && workers[i] < 1) continue;
            for (uint32_t batch = 2; batch <= 64; batch *= 2) {
                dlp_loader_desc d = {.batch_size = batch, .num_workers = workers[i]};
                if (processes) d.workers.placement = DLP_PLACE_PROCESSES;
                all += run(&d, ITEMS);
            }
            /* A unit of n rows tells n - 1. Units are smaller where workers share a batch. */
            CHECK(all > 6 * ITEMS / 8);
        }
}

static void ahead__nothing_is_known__nothing_is_told(void) {
    dlp_loader_desc d = {.batch_size = 1, .num_workers = 2};
    dlp_item item = {.row = 0};
    CHECK(run(&d, ITEMS) == 0);
    d.batch_size = 32;
    d.fetcher = DLP_FETCH_THREADS;
    d.in_flight = 4;
    d.num_workers = 1;
    CHECK(run(&d, ITEMS) == 0);
    CHECK(dlp_item_ahead(&item) == UINT64_MAX); /* of a program's own */
}

static void ahead__attempts_fail__told_once(void) {
    dlp_loader_desc d = {.batch_size = 32, .num_workers = 2};
    rigs->fails = 7;
    d.workers.retries = 1;
    CHECK(run(&d, ITEMS) > ITEMS / 8);
    CHECK(rigs->n_fetched == ITEMS + (ITEMS + 6) / 7);
    d.workers.retry_backoff_ms = 2; /* such a row waits, and is run alone */
    for (rigs->seldom = 0; rigs->seldom < 8; rigs->seldom += 7) {
        CHECK(run(&d, ITEMS) > ITEMS / 8);
        CHECK(rigs->n_fetched == ITEMS + (ITEMS + 6) / 7);
    }
    rigs->fails = rigs->seldom = 0;
}

/* Each told item is still to come, so none is told behind its fetch. */
static void ahead__few_items_ask__told_before_they_are_fetched(void) {
    uint64_t all = 0;
    for (uint32_t seldom = 2; seldom < 9; seldom++) {
        dlp_loader_desc d = {.batch_size = 32, .num_workers = 2};
        rigs->seldom = seldom;
        all += run(&d, ITEMS);
    }
    CHECK(all > 7 * ITEMS / 8); /* in one run the workers may take few rows at a time */
    rigs->seldom = 0;
}

/* The inputs of a cell are told, by the thread or process that makes items of them. */
static void ahead__inputs_of_a_filter__told_is_fetched_in_turn(void) {
    static const int workers[] = {DLP_NONE, 1, 2, 4};
    rigs->filter = 1;
    for (int processes = 0; processes < 2; processes++)
        for (size_t i = 0; i < 4; i++) {
            dlp_loader_desc d = {.batch_size = 8, .num_workers = workers[i]};
            if (processes && workers[i] < 1) continue;
            if (processes) d.workers.placement = DLP_PLACE_PROCESSES;
            const uint64_t all = run(&d, 4 * ITEMS);
            CHECK(all > ITEMS / 8); /* a cell has up to 32 inputs, and fewer where they take long */
        }
    rigs->filter = 0;
}

/* A list that names each index three times in a row. Each third fetch asks. */
static uint64_t threes[3 * ITEMS];
static struct { uint64_t at, index; } three_told[4 * ITEMS];
static uint64_t three_fetched[3 * ITEMS], three_n, three_asked;

static int fetch_threes(void *user, dlp_item *item) {
    uint64_t next;
    (void)user;
    if (three_n == 3 * ITEMS) return 1;
    three_fetched[three_n++] = item->index;
    while (three_n % 3 == 0 && (next = dlp_item_ahead(item)) != UINT64_MAX) {
        three_told[three_asked % (4 * ITEMS)].at = three_n;
        three_told[three_asked++ % (4 * ITEMS)].index = next;
    }
    memset(item->data[0], 1, 8);
    return 0;
}

static int keep_all(void *user, const dlp_item *item) {
    (void)user, (void)item;
    return 1;
}

static void ahead__an_index_three_times__told_as_often(void) {
    const dlp_field x = {.name = "x", .dtype = DLP_U64};
    for (uint64_t i = 0; i < 3 * ITEMS; i++) threes[i] = i / 3;
    const dlp_sampler_desc order = {.subset = threes, .n_subset = 3 * ITEMS};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS, .order = &order}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch_threes, .fields = &x, .n_fields = 1}},
        {.name = "all",
         .verb = DLP_FILTER,
         .filter = {.keep = keep_all},
         .workers = {.num_workers = DLP_NONE}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}}};
    uint64_t wrong = 0;
    dlp_pipe *p;
    dlp_batch *b;
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, NULL) == DLP_OK);
    while (dlp_pipe_next(p, &b) == DLP_OK) dlp_pipe_release(p, b);
    dlp_pipe_close(p);
    CHECK(three_n == 3 * ITEMS && three_asked > ITEMS && three_asked <= 4 * ITEMS);
    for (uint64_t i = 0; i < three_asked;
         i++) { /* one of the four fetches behind that which asked */
        bool comes = false;
        for (uint64_t k = three_told[i].at; k < three_told[i].at + 4 && k < 3 * ITEMS; k++)
            comes |= three_fetched[k] == three_told[i].index;
        wrong += !comes;
    }
    CHECK(wrong == 0);
}

int main(void) {
    rigs = mmap(NULL, sizeof *rigs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rigs == MAP_FAILED) return 1;
    ahead__any_workers__told_is_fetched_in_turn();
    ahead__nothing_is_known__nothing_is_told();
    ahead__attempts_fail__told_once();
    ahead__few_items_ask__told_before_they_are_fetched();
    ahead__inputs_of_a_filter__told_is_fetched_in_turn();
    ahead__an_index_three_times__told_as_often();
    return test_end("ahead");
}
