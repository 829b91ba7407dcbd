/* needs: parts cache join split pictures */
/* Tables that dlp_loader_nodes fills: they have the rows of the loader, and open as it does; a row
   that the program changes counts. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 101 };

static const dlp_field x_field = {.name = "x", .dtype = DLP_U64};
static const dlp_field y_field = {.name = "y", .dtype = DLP_U64};
static const uint64_t counts[7] = {10, 20, 0, 31, 15, 20, 5};

static int write_index(void *user, dlp_item *it) {
    *(uint64_t *)it->data[0] = it->index + (user != NULL ? *(const uint64_t *)user : 0);
    return 0;
}
static int skip_thirds(void *user, dlp_item *it) {
    write_index(user, it);
    return it->index % 3 == 0 ? DLP_SKIP : 0;
}
static int write_part(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->part->index * 100 + it->part->item;
    return 0;
}
static int load(void *user, dlp_part *part) {
    (void)user;
    part->bytes = 8;
    memcpy(part->data, &part->index, 8);
    return 0;
}
static int64_t alone(void *user, int64_t mine, int most) {
    (void)user;
    (void)most;
    return mine;
}

/* A check that its caller tells more of. */
static int well(int ok) {
    CHECK(ok);
    return ok;
}

/* ---- the loaders ---- */

enum {
    PLAIN,
    CLASSIC,
    CONCURRENT,
    CACHED,
    DEVICE,
    ZIP,
    MIX,
    BOTH,
    FILTER,
    FILTER_CLASSIC,
    PARTS,
    FOUND,
    KINDS
};

static dlp_node two_rows[2];
static dlp_source other_source;
static dlp_dataset other;

static void loader(int kind, dlp_loader_desc *d) {
    *d = (dlp_loader_desc){
        .dataset = {.n_items = ITEMS, .fields = &x_field, .n_fields = 1, .fetch = write_index},
        .batch_size = 8,
        .num_workers = 2,
        .shuffle = 1,
        .epochs = 2,
        .seed = 5};
    other = d->dataset;
    other_source = (dlp_source){.dataset = &other};
    two_rows[0] = two_rows[1] =
        (dlp_node){.name = "join", .verb = DLP_FETCH, .fetch = {.source = &other_source}};
    if (kind == CLASSIC || kind == FILTER_CLASSIC) d->topology = DLP_TOPOLOGY_CLASSIC;
    if (kind == CLASSIC) d->collate = dlp_collate_pad;
    if (kind == CONCURRENT) {
        d->topology = DLP_TOPOLOGY_CONCURRENT;
        d->fetcher = DLP_FETCH_THREADS;
        d->in_flight = 4;
    }
    if (kind == CACHED) d->cache.bytes = 4096;
    if (kind == DEVICE) {
        d->device = dlp_device_host();
        d->device_buffers = 3;
        d->transfer_thread = 1;
    }
    if (kind == ZIP) other.fields = &y_field;
    if (kind >= ZIP && kind <= BOTH) d->rows = two_rows;
    if (kind >= ZIP && kind <= BOTH) d->n_rows = kind == BOTH ? 2 : 1;
    if (kind == MIX || kind == BOTH) two_rows[0].fetch.of = 2, two_rows[1].fetch.of = 3;
    if (kind == FILTER || kind == FILTER_CLASSIC) {
        d->dataset.fetch = skip_thirds;
        d->dataset.filter = 1;
    }
    if (kind < PARTS) return;
    d->dataset.n_items = 0;
    d->dataset.fetch = write_part;
    d->parts = (dlp_node_load){.n_parts = 7, .max_part_bytes = 8, .load = load, .items = counts};
    d->pipe.streams = 2;
    d->parts.queue_size = 40;
    if (kind != FOUND) return;
    d->parts.items = NULL;
    d->parts.max_items = 40;
    d->parts.window = 3;
    d->pipe.agree = alone;
    d->dataset.fetch = write_index;
}

static int load_some(void *user, dlp_part *part) {
    part->items = 1 + part->index;
    return load(user, part);
}

/* ---- what a pipe gives ---- */

typedef struct given {
    uint64_t hash, batches;
    dlp_state state;
    char plan[8192];
} given;

static void take(dlp_pipe *p, given *g) {
    dlp_batch *b = NULL;
    dlp_plan plan;
    memset(g, 0, sizeof *g);
    g->hash = 7;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    dlp_plan_format(&plan, g->plan, sizeof g->plan);
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        const uint8_t *at = b->fields[0].data;
        for (uint64_t i = 0; i < b->count * 8; i++)
            g->hash = (g->hash ^ at[i]) * UINT64_C(0x100000001b3);
        g->batches++;
        CHECK(dlp_pipe_state(p, b, &g->state) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_error(p)->code == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static dlp_nodes table_;

static dlp_pipe *opened(void) {
    dlp_pipe *p = NULL;
    dlp_error e = {.code = 0};
    if (!well(dlp_pipe_open(&p, table_.nodes, table_.n, &table_.pipe, &e) == DLP_OK))
        printf("  %s.%s: %s\n", e.stage, e.field, e.message);
    return p;
}

/* The table of each loader gives the loader's batches, its last state, and its plan. */
static void nodes__of_each_loader__open_as_it_does(void) {
    static given a, b;
    uint64_t filtered = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        dlp_loader_desc d;
        dlp_pipe *p = NULL;
        dlp_plan plan;
        dlp_error e = {.code = 0};
        loader(kind, &d);
        if (kind == FOUND) d.parts.load = load_some;
        if (!well(dlp_loader_open(&p, &d, &e) == DLP_OK)) printf("  %d: %s\n", kind, e.message);
        if (p == NULL) continue;
        take(p, &a);
        if (kind == FILTER) filtered = a.hash;
        CHECK(kind != FILTER_CLASSIC || a.hash == filtered);
        CHECK(dlp_loader_nodes(&table_, &d, &e) == DLP_OK);
        CHECK(dlp_nodes_plan(table_.nodes, table_.n, &table_.pipe, &plan, NULL) == DLP_OK);
        if ((p = opened()) == NULL) continue;
        take(p, &b);
        CHECK(a.batches > 0 && a.batches == b.batches && a.hash == b.hash);
        CHECK(memcmp(&a.state, &b.state, sizeof a.state) == 0);
        if (!well(strcmp(a.plan, b.plan) == 0)) printf("%d:\n%s\n%s", kind, a.plan, b.plan);
    }
}

/* What the rows say. */
static void nodes__of_each_loader__has_its_rows(void) {
    static const int32_t rows[KINDS][8] = {
        [PLAIN] = {DLP_LIST, DLP_FETCH, DLP_BATCH},
        [CLASSIC] = {DLP_LIST, DLP_FETCH, DLP_BATCH},
        [CONCURRENT] = {DLP_LIST, DLP_FETCH, DLP_BATCH},
        [CACHED] = {DLP_LIST, DLP_FETCH, DLP_CACHE, DLP_BATCH},
        [DEVICE] = {DLP_LIST, DLP_FETCH, DLP_BATCH, DLP_TRANSFER},
        [ZIP] = {DLP_LIST, DLP_FETCH, DLP_FETCH, DLP_BATCH},
        [MIX] = {DLP_LIST, DLP_FETCH, DLP_FETCH, DLP_BATCH},
        [BOTH] = {DLP_LIST, DLP_FETCH, DLP_FETCH, DLP_FETCH, DLP_BATCH},
        [FILTER] = {DLP_LIST, DLP_FETCH, DLP_FILTER, DLP_BATCH},
        [FILTER_CLASSIC] = {DLP_LIST, DLP_FETCH, DLP_FILTER, DLP_BATCH},
        [PARTS] = {DLP_LIST, DLP_LOAD, DLP_FETCH, DLP_BATCH},
        [FOUND] = {DLP_LIST, DLP_LOAD, DLP_WINDOW, DLP_FETCH, DLP_BATCH}};
    for (int kind = 0; kind < KINDS; kind++) {
        dlp_loader_desc d;
        uint32_t n = 0;
        loader(kind, &d);
        CHECK(dlp_loader_nodes(&table_, &d, NULL) == DLP_OK);
        while (n < 8 && rows[kind][n] != 0) {
            CHECK(table_.nodes[n].verb == rows[kind][n]);
            n++;
        }
        CHECK(table_.n == n && table_.pipe.epochs == 2 && table_.pipe.seed == 5);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < i; k++)
                CHECK(strcmp(table_.nodes[i].name, table_.nodes[k].name) != 0);
    }
}

/* A row that is changed, and one that is added. */
static int times_two(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] *= 2;
    return 0;
}

static void nodes__that_are_changed__count(void) {
    static const uint64_t more = 1000;
    dlp_loader_desc d;
    dlp_pipe *p;
    dlp_batch *b = NULL;
    loader(PLAIN, &d);
    d.shuffle = 0;
    CHECK(dlp_loader_nodes(&table_, &d, NULL) == DLP_OK && table_.n == 3);
    table_.dataset.user = (void *)(uintptr_t)&more;
    table_.nodes[3] = table_.nodes[2];
    table_.nodes[2] = (dlp_node){.name = "double", .verb = DLP_MAP, .map = {.item = times_two}};
    table_.nodes[3].batch.batch_size = 5;
    table_.n = 4;
    if ((p = opened()) == NULL) return;
    if (well(dlp_pipe_next(p, &b) == DLP_OK) && b != NULL) {
        const uint64_t *x = b->fields[0].data;
        CHECK(b->count == 5 && x[0] == 2000 && x[4] == 2008);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int add_one(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] += 1;
    return 0;
}

/* A row of a loader may be of another verb than a second fetch; without a name it is called row. */
static void loader__with_a_map_among_its_rows__maps_the_items(void) {
    const dlp_node map = {.verb = DLP_MAP, .map = {.item = add_one}};
    dlp_loader_desc d;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    uint64_t items = 0;
    loader(PLAIN, &d);
    d.rows = &map;
    d.n_rows = 1;
    CHECK(dlp_loader_nodes(&table_, &d, NULL) == DLP_OK && table_.n == 4);
    CHECK(table_.nodes[2].verb == DLP_MAP && strcmp(table_.nodes[2].name, "row") == 0);
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++)
            items += ((const uint64_t *)b->fields[0].data)[r] == b->index[r] + 1;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(items == 2 * ITEMS);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Names that are long, or twice there. */
static void nodes__names__are_cut_and_made_unique(void) {
    dlp_loader_desc d;
    loader(BOTH, &d);
    d.workers.name = "a name of more than thirty-one bytes";
    two_rows[0].name = two_rows[1].name = "batch";
    CHECK(dlp_loader_nodes(&table_, &d, NULL) == DLP_OK && table_.n == 5);
    CHECK(strcmp(table_.nodes[1].name, "a name of more than thirty-one ") == 0);
    CHECK(strcmp(table_.nodes[2].name, "batch") == 0);
    CHECK(strcmp(table_.nodes[3].name, "batch-3") == 0);
    CHECK(strcmp(table_.nodes[4].name, "batch-4") == 0);
}

/* What is wrong with the desc is said as dlp_loader_open says it. */
static void nodes__of_a_wrong_desc__the_loaders_error(void) {
    for (int i = 0; i < 6; i++) {
        dlp_loader_desc d;
        dlp_error a = {.code = 0}, b = {.code = 0};
        dlp_pipe *p = NULL;
        loader(i == 5 ? MIX : PLAIN, &d);
        if (i == 0) d.shuffle = 2;
        if (i == 1) d.drop_last = 9;
        if (i == 2) d.transfer_thread = 1;
        if (i == 3) d.pipe.seed = 4;
        if (i == 4) d.workers.num_workers = 2;
        if (i == 5) d.n_rows = 17;
        CHECK(dlp_loader_nodes(&table_, &d, &a) == DLP_ERR_ARG && a.field[0] != 0);
        CHECK(dlp_loader_open(&p, &d, &b) == DLP_ERR_ARG && p == NULL);
        CHECK(strcmp(a.field, b.field) == 0 && strcmp(a.message, b.message) == 0);
        CHECK(strcmp(a.stage, b.stage) == 0);
    }
    CHECK(dlp_loader_nodes(NULL, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_loader_nodes(&table_, NULL, NULL) == DLP_ERR_ARG);
}

/* ---- chunks ---- */

static int load_chunk(void *user, dlp_chunk *c) {
    (void)user;
    for (uint64_t i = 0; i < c->count; i++) ((uint64_t *)c->data[0])[i] = dlp_chunk_row(c, i);
    return 0;
}

/* The table of chunks gives the batches, the last state and the plan of dlp_chunks_open. */
static void chunks_nodes__of_each_preload__open_as_chunks_do(void) {
    static given a, b;
    for (int i = 0; i < 12; i++) {
        const int32_t preload = i % 4;
        const dlp_chunks_desc d = {.n_items = 101,
                                   .fields = &x_field,
                                   .n_fields = 1,
                                   .chunk_rows = 16,
                                   .batch_size = 8,
                                   .shuffle_chunks = 1,
                                   .shuffle_rows = preload == DLP_PRELOAD_NONE,
                                   .load = load_chunk,
                                   .workers = {.num_workers = i % 3},
                                   .device = i >= 4 ? dlp_device_host() : NULL,
                                   .device_buffers = i >= 8 ? 3 : 0,
                                   .preload = preload,
                                   .epochs = 2,
                                   .seed = 9,
                                   .pipe = {.limit_bytes = UINT64_C(1) << 30}};
        dlp_pipe *p = NULL;
        dlp_error e = {.code = 0}, f = {.code = 0};
        if (preload == DLP_PRELOAD_DEVICE && d.device == NULL) {
            CHECK(dlp_chunks_nodes(&table_, &d, &e) == DLP_ERR_ARG);
            CHECK(dlp_chunks_open(&p, &d, &f) == DLP_ERR_ARG);
            CHECK(strcmp(e.field, "preload") == 0 && strcmp(e.message, f.message) == 0);
            continue;
        }
        if (!well(dlp_chunks_open(&p, &d, &e) == DLP_OK)) printf("  %d: %s\n", i, e.message);
        if (p == NULL) continue;
        take(p, &a);
        CHECK(dlp_chunks_nodes(&table_, &d, &e) == DLP_OK);
        CHECK(table_.n == (d.device != NULL ? 5u : 4u));
        CHECK(table_.chunks.preload == (preload != DLP_PRELOAD_AUTO ? preload
                                        : d.device != NULL          ? DLP_PRELOAD_DEVICE
                                                                    : DLP_PRELOAD_CPU));
        CHECK(table_.nodes[table_.n - 1].verb == DLP_SPLIT);
        if ((p = opened()) == NULL) continue;
        take(p, &b);
        CHECK(a.batches > 0 && a.batches == b.batches && a.hash == b.hash);
        CHECK(memcmp(&a.state, &b.state, sizeof a.state) == 0);
        if (!well(strcmp(a.plan, b.plan) == 0)) printf("%d:\n%s\n%s", i, a.plan, b.plan);
    }
    CHECK(dlp_chunks_nodes(&table_, NULL, NULL) == DLP_ERR_ARG);
}

int main(void) {
    chunks_nodes__of_each_preload__open_as_chunks_do();
    nodes__of_each_loader__open_as_it_does();
    nodes__of_each_loader__has_its_rows();
    nodes__that_are_changed__count();
    nodes__names__are_cut_and_made_unique();
    loader__with_a_map_among_its_rows__maps_the_items();
    nodes__of_a_wrong_desc__the_loaders_error();
    return test_end("loader_nodes");
}
