/* A source that a program fills itself: a dataset, a number and a close. Loaders and fetch nodes
   take it as they take a source of an open call, and a state knows it by its number. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"

typedef struct own {
    dlp_source source; /* first */
    dlp_dataset dataset;
    uint32_t factor, closed;
    int workers;
} own;

static int own_fetch(void *user, dlp_item *item) {
    const own *o = user;
    *(uint32_t *)item->data[0] = (uint32_t)item->index * o->factor;
    return item->worker_state == user ? 0 : dlp_fail(item->call, 0, "no worker_state");
}

static int own_init(void *user, int worker, void **state) {
    (void)worker;
    __atomic_add_fetch(&((own *)user)->workers, 1, __ATOMIC_RELAXED);
    *state = user;
    return 0;
}

static void own_exit(void *user, int worker, void *state) {
    (void)worker;
    (void)state;
    __atomic_add_fetch(&((own *)user)->workers, -1, __ATOMIC_RELAXED);
}

static int own_close(dlp_source *source) {
    own *o = (own *)(void *)source;
    if (__atomic_load_n(&o->workers, __ATOMIC_RELAXED) != 0) return DLP_ERR_BUSY;
    o->closed++;
    return DLP_OK;
}

static void own_open(own *o, uint32_t factor) {
    static const dlp_field x = {"x", DLP_U32, 0, {0}, 0, 0};
    *o = (own){.factor = factor};
    o->dataset =
        (dlp_dataset){.n_items = 100, .fields = &x, .n_fields = 1, .fetch = own_fetch, .user = o};
    o->source.dataset = &o->dataset;
    o->source.workers =
        (dlp_workers_desc){.worker_init = own_init, .worker_exit = own_exit, .worker_user = o};
    o->source.id = factor;
    o->source.close = own_close;
}

/* Drain a pipe; state: behind its third batch. Returns the number of rows. */
static uint32_t drained(dlp_pipe *p, const own *o, dlp_state *state) {
    uint32_t rows = 0, batches = 0;
    dlp_batch *b;
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++)
            CHECK(((const uint32_t *)b->fields[0].data)[i] == b->index[i] * o->factor);
        rows += b->count;
        if (++batches == 3 && state) CHECK(dlp_pipe_state(p, b, state) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    CHECK(dlp_pipe_error(p)->code == 0 && dlp_pipe_close(p) == DLP_OK && o->workers == 0);
    return rows;
}

static void own_source__in_a_loader__its_items(void) {
    dlp_state state;
    dlp_error err;
    dlp_pipe *p;
    own o, other;
    own_open(&o, 3);
    own_open(&other, 4);
    for (int workers = 0; workers < 3; workers++) {
        dlp_loader_desc l = {
            .source = &o.source, .batch_size = 8, .num_workers = workers, .shuffle = 1};
        CHECK(dlp_loader_open(&p, &l, &err) == DLP_OK);
        if (workers == 2 && __atomic_load_n(&o.workers, __ATOMIC_RELAXED) > 0)
            CHECK(dlp_source_close(&o.source) == DLP_ERR_BUSY);
        CHECK(drained(p, &o, &state) == 100);
        l.pipe.resume = &state;
        CHECK(dlp_loader_open(&p, &l, &err) == DLP_OK && drained(p, &o, NULL) == 76);
        l.source = &other.source;
        CHECK(dlp_loader_open(&p, &l, &err) == DLP_ERR_RESUME);
        l.pipe.resume = NULL;
        CHECK(dlp_loader_open(&p, &l, &err) == DLP_OK && drained(p, &other, NULL) == 100);
    }
    CHECK(dlp_source_close(&o.source) == DLP_OK && o.closed == 1 && other.closed == 0);
}

static void own_source__in_a_table__its_items(void) {
    dlp_error err;
    dlp_pipe *p;
    own o;
    own_open(&o, 5);
    const dlp_node nodes[] = {{.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
                              {.name = "read",
                               .verb = DLP_FETCH,
                               .fetch = {.source = &o.source},
                               .workers = {.num_workers = 2}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 7}}};
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err) == DLP_OK);
    CHECK(drained(p, &o, NULL) == 100);
    CHECK(dlp_source_close(&o.source) == DLP_OK && o.closed == 1);
}

int main(void) {
    own_source__in_a_loader__its_items();
    own_source__in_a_table__its_items();
    return test_end("own_source");
}
