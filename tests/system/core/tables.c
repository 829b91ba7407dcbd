/* needs: parts pack split cache scratch guard join pictures */
/* Tables of nodes: each gives the batches and the states that were written down, or those of a
   plain loop; and what a table may not say is refused with the name of the row and the field. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 203, MOST = 4096 };

static const dlp_field x_field = {.name = "x", .dtype = DLP_U32, .ndim = 1, .shape = {3}};
static const dlp_field y_field = {.name = "y", .dtype = DLP_U64};
static const dlp_field raw_field = {.name = "raw", .dtype = DLP_U64, .ndim = 1, .shape = {4}};
static const dlp_field words_field = {
    .name = "words", .dtype = DLP_U16, .ndim = 1, .shape = {9}, .ragged = 1};

/* A check that is told about in more words by its caller. */
static int well(int ok) {
    CHECK(ok);
    return ok;
}

/* ---- what callbacks do ---- */

static int write_x(void *user, dlp_item *it) {
    uint32_t *x = it->data[0];
    (void)user;
    for (uint32_t i = 0; i < 3; i++) x[i] = (uint32_t)it->index * 10 + i;
    return 0;
}
static int write_y(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index * it->index;
    return 0;
}
static int write_raw(void *user, dlp_item *it) {
    uint64_t *raw = it->data[0];
    (void)user;
    for (uint32_t i = 0; i < 4; i++) raw[i] = it->index + i;
    return 0;
}
static int write_words(void *user, dlp_item *it) {
    uint16_t *to = it->data[0];
    (void)user;
    it->length[0] = it->index % 10;
    for (uint64_t i = 0; i < it->index % 10; i++) to[i] = (uint16_t)(it->index + i + 1);
    return 0;
}
static int add_one(void *user, dlp_item *it) {
    (void)user;
    ((uint32_t *)it->data[0])[1] += 1;
    return 0;
}
static int keep_odd(void *user, const dlp_item *it) {
    (void)user;
    return (int)(((const uint32_t *)it->data[0])[0] / 10 % 2);
}
static int keep_thirds(void *user, const dlp_item *it) {
    (void)user;
    return ((const uint32_t *)it->data[0])[0] / 10 % 3 == 0;
}

/* ---- what a pipe gives ---- */

typedef struct told {
    uint32_t n, rows;
    uint64_t hash[512];  /* of each batch: its rows, and the state after it */
    uint64_t first[512]; /* the first number of its first field */
    dlp_state state[512];
} told;

static uint64_t mixed(uint64_t h, const void *at, size_t bytes) {
    const uint8_t *b = at;
    for (size_t i = 0; i < bytes; i++) h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t hash_of(const dlp_batch *b) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    h = mixed(h, &b->count, sizeof b->count);
    h = mixed(h, b->valid, b->count);
    h = mixed(h, b->index, b->count * sizeof *b->index);
    for (uint32_t f = 0; f < b->n_fields; f++) {
        const dlp_tensor *t = &b->fields[f];
        uint64_t bytes = (t->dtype & 0xffff) / 8;
        for (int32_t k = 0; k < t->ndim; k++) bytes *= (uint64_t)t->shape[k];
        h = mixed(h, t->name, strlen(t->name));
        h = mixed(h, t->data, bytes);
        if (t->lengths != NULL) h = mixed(h, t->lengths, b->count * sizeof *t->lengths);
    }
    return h;
}

/* Take all that a pipe has, and close it. states: 0 where it has none. */
static void drain(dlp_pipe *p, int states, told *t) {
    dlp_batch *b;
    int rc;
    memset(t, 0, sizeof *t);
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK && t->n < 512) {
        t->hash[t->n] = hash_of(b);
        t->rows += b->count;
        if (states) CHECK(dlp_pipe_state(p, b, &t->state[t->n]) == DLP_OK);
        t->n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (!well(rc == DLP_END)) printf("  %s\n", dlp_pipe_error(p)->message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static dlp_pipe *opened(const dlp_node *nodes, uint32_t n, const dlp_pipe_desc *desc) {
    dlp_pipe *p = NULL;
    dlp_error err = {.code = 0};
    if (!well(dlp_pipe_open(&p, nodes, n, desc, &err) == DLP_OK))
        printf("  %s.%s: %s\n", err.stage, err.field, err.message);
    return p;
}

static void alike(const char *what, const told *a, const told *b, int states) {
    if (!well(a->n == b->n && a->rows == b->rows && a->n > 0))
        printf("  %s: %u batches of %u rows, and %u of %u\n", what, a->n, a->rows, b->n, b->rows);
    if (!well(memcmp(a->hash, b->hash, sizeof a->hash) == 0)) printf("  %s: other bytes\n", what);
    if (states && !well(memcmp(a->state, b->state, sizeof a->state) == 0))
        printf("  %s: other states\n", what);
}

/* What a table gave when it was written down: batches, rows, and hashes of batches and states. */
typedef struct gold {
    uint32_t n, rows;
    uint64_t batches, states;
} gold;

static void is_gold(const char *what, const told *t, const gold *g) {
    const uint64_t batches = mixed(7, t->hash, sizeof t->hash);
    const uint64_t states = mixed(7, t->state, sizeof t->state);
    if (!well(t->n == g->n && t->rows == g->rows))
        printf("  %s: %u batches of %u rows, and %u of %u\n", what, t->n, t->rows, g->n, g->rows);
    if (!well(batches == g->batches)) printf("  %s: other bytes\n", what);
    if (!well(states == g->states)) printf("  %s: other states\n", what);
}

/* The table gives what was written down, whatever the workers are, and goes on from each of its
   states. at: the row that has the workers. */
static void same(const char *what, dlp_node *nodes, uint32_t n, int at, dlp_pipe_desc desc,
                 gold g) {
    static told table, rest;
    desc.max_held = 2;
    for (int workers = 0; workers <= 4; workers++) {
        dlp_pipe *q;
        nodes[at].workers.num_workers = workers;
        if ((q = opened(nodes, n, &desc)) == NULL) return;
        drain(q, 1, &table);
        is_gold(what, &table, &g);
        for (uint32_t k = 0; k < table.n; k += 3) {
            desc.resume = &table.state[k];
            if ((q = opened(nodes, n, &desc)) == NULL) return;
            drain(q, 0, &rest);
            CHECK(rest.n == table.n - k - 1);
            CHECK(memcmp(rest.hash, &table.hash[k + 1], rest.n * sizeof *rest.hash) == 0);
            desc.resume = NULL;
        }
    }
}

static const dlp_dataset xs = {
    .n_items = ITEMS, .fields = &x_field, .n_fields = 1, .fetch = write_x};

/* ---- the tables of known count ---- */

static const gold economic_gold = {26, 406, UINT64_C(0x372867f13ee508b0),
                                   UINT64_C(0xca92a84d99980da2)};

static void nodes__economic__batches_and_states_as_ever(void) {
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}},
    };
    same("economic", nodes, 3, 1, (dlp_pipe_desc){.seed = 7, .epochs = 2}, economic_gold);
    nodes[0].queue.deal = DLP_DEAL_TURNS;
    same("classic", nodes, 3, 1, (dlp_pipe_desc){.seed = 7, .epochs = 2}, economic_gold);
    nodes[0].queue.deal = DLP_DEAL_RUNS;
    nodes[1].fetch.in_flight = 8;
    nodes[1].workers.num_workers = 2;
    {
        static told a;
        dlp_pipe_desc desc = {.seed = 7, .epochs = 2, .max_held = 2};
        drain(opened(nodes, 3, &desc), 1, &a);
        is_gold("concurrent", &a, &economic_gold);
    }
}

static void nodes__second_fetch_map_guard_cache_transfer__batches_as_ever(void) {
    const dlp_guard_field guard = {.name = "y", .high = 1e9};
    const char *const batch[] = {"batch", NULL};
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "images",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "labels",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_y, .fields = &y_field, .n_fields = 1}},
        {.name = "augment", .verb = DLP_MAP, .map = {.item = add_one}},
        {.name = "sound", .verb = DLP_GUARD, .guard = {.fields = &guard, .n_fields = 1}},
        {.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = 1 << 20}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16, .last = DLP_LAST_DROP}},
        {.name = "gpu", .verb = DLP_TRANSFER, .from = batch, .workers = {.num_workers = 1}},
        {.name = "train", .verb = DLP_OUT},
    };
    dlp_pipe *p;
    same("zipped", nodes, 9, 1, (dlp_pipe_desc){.seed = 7, .epochs = 2},
         (gold){24, 384, UINT64_C(0x478e9e4e1beedd5e), UINT64_C(0x693d0a117b898ce4)});
    p = opened(nodes, 9, NULL);
    CHECK(dlp_node_stage(p, "images") > 0 && dlp_node_stage(p, "labels") == DLP_ERR_ARG);
    CHECK(dlp_node_stage(p, "train") == DLP_ERR_ARG && dlp_node_stage(p, "none") == DLP_ERR_ARG);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- a mix of datasets by weights ---- */

static dlp_mix *mix;

static int write_x_more(void *user, dlp_item *it) {
    write_x(user, it);
    ((uint32_t *)it->data[0])[2] = 7;
    return 0;
}

static uint32_t length_of(void *user, uint64_t index) {
    (void)user;
    return (uint32_t)(index * 7 % 13 + 1);
}

/* Buckets of what the mix draws: items of like length in a batch, and in each window of two batches
   three of the first dataset for one of the second. */
static void nodes__buckets_of_a_mix__items_by_weights_and_of_like_length(const dlp_node *mixed) {
    dlp_sampler_desc drawn = {.order = 0}, lists = {.order = 0};
    dlp_node nodes[5];
    dlp_buckets *buckets = NULL;
    dlp_pipe *p;
    dlp_batch *b;
    uint32_t n = 0, few = 0, spread = 0;
    CHECK(dlp_mix_sampler(mix, &drawn) == DLP_OK);
    const dlp_buckets_desc desc = {.n_items = dlp_mix_items(mix),
                                   .length = length_of,
                                   .batch_size = 16,
                                   .window = 32,
                                   .shuffle = 1,
                                   .order = &drawn};
    if (!well(dlp_buckets_open(&buckets, &desc, NULL) == DLP_OK)) return;
    CHECK(dlp_buckets_sampler(buckets, &lists) == DLP_OK);
    memcpy(nodes, mixed, sizeof nodes);
    nodes[0].list.order = &lists;
    if ((p = opened(nodes, 5, NULL)) == NULL) return;
    for (; n < 14 && dlp_pipe_next(p, &b) == DLP_OK; n++) {
        const uint32_t *x = b->fields[0].data;
        uint32_t least = UINT32_MAX, most = 0;
        for (uint32_t r = 0; r < b->count; r++) {
            const uint32_t length = length_of(NULL, b->index[r]);
            least = length < least ? length : least;
            most = length > most ? length : most;
            few += b->index[r] >= ITEMS;
            CHECK(x[3 * r] == (b->index[r] - (b->index[r] >= ITEMS ? ITEMS : 0)) * 10);
            CHECK(b->index[r] < ITEMS || x[3 * r + 2] == 7);
        }
        spread += most - least;
        if (n % 2 == 1) CHECK(few == (n + 1) / 2 * 8);
        dlp_pipe_release(p, b);
    }
    CHECK(n == 14 && spread < 14 * 8); /* a batch of any lengths spreads by 11 or 12 */
    CHECK(dlp_pipe_close(p) == DLP_OK);
    dlp_buckets_close(buckets);
}

static void nodes__mix__batches_as_ever(void) {
    const uint64_t n_items[] = {ITEMS, 50}, weights[] = {3, 1};
    const dlp_mix_desc desc = {
        .n = 2, .shuffle = 1, .n_items = n_items, .weights = weights, .seed = 9};
    dlp_error err;
    dlp_pipe *p = NULL;
    if (!well(dlp_mix_open(&mix, &desc, NULL) == DLP_OK)) return;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.mix = mix}},
        {.name = "many",
         .verb = DLP_FETCH,
         .fetch = {.of = 1, .fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "few",
         .verb = DLP_FETCH,
         .fetch = {.of = 2, .fetch = write_x_more, .fields = &x_field, .n_fields = 1}},
        {.name = "augment", .verb = DLP_MAP, .map = {.item = add_one}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}},
    };
    same("mix", nodes, 5, 1, (dlp_pipe_desc){.epochs = 2},
         (gold){34, 544, UINT64_C(0xbce1bd1dbd7088d7), UINT64_C(0x15dd534bc603bb60)});
    nodes__buckets_of_a_mix__items_by_weights_and_of_like_length(nodes);
    nodes[0].list.order = &(dlp_sampler_desc){.order = DLP_ORDER_SEQUENTIAL};
    CHECK(dlp_pipe_open(&p, nodes, 5, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "list.mix") == 0 && strstr(err.message, "batches of a mix") != NULL);
    nodes[0].list.order = NULL;
    for (uint32_t of = 0; of < 4; of += of == 1 ? 3 : 1) { /* 0, 1, 4: the second has to be 2 */
        nodes[2].fetch.of = of;
        CHECK(dlp_pipe_open(&p, nodes, 5, NULL, &err) == DLP_ERR_ARG);
        CHECK(strcmp(err.field, "fetch.of") == 0 && strcmp(err.stage, "few") == 0);
    }
    nodes[0].list.shuffle = 1;
    CHECK(dlp_pipe_open(&p, nodes, 5, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "list.mix") == 0);
    nodes[0].list.shuffle = 0;
    nodes[2] = nodes[3]; /* the second dataset is left out */
    nodes[3] = nodes[4];
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_ERR_GRAPH);
    CHECK(strcmp(err.field, "list.mix") == 0 && strstr(err.message, "dataset 2 of the mix"));
    dlp_mix_close(mix);
}

/* ---- fields that a map adds, and fields that end there ---- */

static uint32_t decode_sees; /* how many fields the map has seen; 0: wrong ones */

/* Sees raw, y, words; adds x. */
static int decode(void *user, dlp_item *it) {
    const uint64_t *raw = it->data[0], *y = it->data[1];
    const uint16_t *words = it->data[2];
    uint32_t *x = it->data[3];
    int good = it->n_fields == 4 && raw[3] == it->index + 3 && *y == it->index * it->index;
    (void)user;
    good = good && it->length[2] == it->index % 10 && x[0] == 0 && x[1] == 0 && x[2] == 0;
    if (good && it->length[2] > 0) good = words[0] == it->index + 1;
    if (!good) return dlp_fail(it->call, DLP_ERR_CALLBACK, 0, "the map sees other fields");
    for (uint32_t i = 0; i < 3; i++) x[i] = (uint32_t)(raw[0] + *y + i);
    __atomic_store_n(&decode_sees, it->n_fields, __ATOMIC_RELAXED);
    return 0;
}

static int write_raw_y_words(void *user, dlp_item *it) {
    dlp_item sub = *it;
    if (it->n_fields != 3) return DLP_ERR_CALLBACK;
    write_raw(user, it);
    *(uint64_t *)it->data[1] = it->index * it->index;
    sub.data = it->data + 2;
    sub.length = it->length + 2;
    return write_words(user, &sub);
}

static void decoded_check(dlp_node *nodes, uint32_t n) {
    for (int workers = 0; workers <= 2; workers++) {
        dlp_pipe_desc desc = {.seed = 7, .epochs = 2, .max_held = 2};
        dlp_pipe *p;
        dlp_batch *b;
        uint32_t rows = 0;
        int rc;
        nodes[1].workers.num_workers = nodes[n - 2].workers.num_workers = workers;
        decode_sees = 0;
        if ((p = opened(nodes, n, &desc)) == NULL) return;
        while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            uint32_t good = 0;
            CHECK(b->n_fields == n - 2);
            for (uint32_t r = 0; r < b->count; r++) {
                const uint64_t i = b->index[r];
                const uint32_t *x = (const uint32_t *)b->fields[b->n_fields - 1].data + 3 * r;
                good += x[0] == (uint32_t)(i + i * i) && x[2] == (uint32_t)(i + i * i + 2);
                if (b->n_fields == 2) good -= ((const uint64_t *)b->fields[0].data)[r] != i * i;
            }
            CHECK(good == b->count);
            rows += b->count;
            dlp_pipe_release(p, b);
        }
        if (!well(rc == DLP_END && rows == 2 * ITEMS && decode_sees == 4))
            printf("  %s\n", dlp_pipe_error(p)->message);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void nodes__fields_end_in_a_map__the_map_sees_them_in_the_tables_order(void) {
    const dlp_field written[] = {raw_field, y_field, words_field};
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_raw_y_words, .fields = written, .n_fields = 3}},
        {.name = "decode",
         .verb = DLP_MAP,
         .map = {.item = decode, .fields = &x_field, .n_fields = 1, .ends = " words  raw "},
         .workers = {.idempotent = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}},
    };
    decoded_check(nodes, 4);
}

/* Sees x, of either dataset, and y, which ends; adds raw. */
static int see_mixed(void *user, dlp_item *it) {
    const uint32_t *x = it->data[0];
    const uint64_t *y = it->data[1];
    uint64_t *raw = it->data[2];
    (void)user;
    if (it->n_fields != 3 || *y != it->index * it->index || x[1] != x[0] + 1)
        return dlp_fail(it->call, DLP_ERR_CALLBACK, 0, "the map sees other fields");
    raw[0] = *y + x[0];
    return 0;
}

/* The fetches of a mix have their fields once. A fetch after the map may be all that the batch
   has. */
static void nodes__fields_end_beside_other_fetches__the_map_sees_each_field_once(void) {
    const uint64_t n_items[] = {ITEMS, 50};
    const dlp_mix_desc two = {.n = 2, .n_items = n_items};
    dlp_mix *of = NULL;
    dlp_pipe *p;
    dlp_batch *b;
    static told t;
    if (!well(dlp_mix_open(&of, &two, NULL) == DLP_OK)) return;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.mix = of}},
        {.name = "many",
         .verb = DLP_FETCH,
         .fetch = {.of = 1, .fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "few",
         .verb = DLP_FETCH,
         .fetch = {.of = 2, .fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "squares",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_y, .fields = &y_field, .n_fields = 1}},
        {.name = "see",
         .verb = DLP_MAP,
         .map = {.item = see_mixed, .fields = &raw_field, .n_fields = 1, .ends = "y"}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}},
    };
    if ((p = opened(nodes, 6, NULL)) != NULL) drain(p, 1, &t);
    CHECK(t.rows >= ITEMS);
    dlp_node rest[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "look", .verb = DLP_MAP, .map = {.item = add_one, .ends = "x"}},
        nodes[3],
        nodes[5],
    };
    if ((p = opened(rest, 5, NULL)) == NULL) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK && b->n_fields == 1 &&
          ((const uint64_t *)b->fields[0].data)[3] == 9);
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    dlp_mix_close(of);
}

/* Adds words, whose length is 0 until it is set. */
static int add_words(void *user, dlp_item *it) {
    dlp_item sub = *it;
    (void)user;
    if (it->n_fields != 2 || it->length[1] != 0) return DLP_ERR_CALLBACK;
    for (uint32_t i = 0; i < 9; i++)
        if (((const uint16_t *)it->data[1])[i] != 0) return DLP_ERR_CALLBACK;
    if (it->index % 3 == 0) return 0; /* sets no length */
    sub.data = it->data + 1;
    sub.length = it->length + 1;
    return write_words(user, &sub);
}

static void nodes__map_adds_a_ragged_field__it_begins_empty(void) {
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1, .writes_all_bytes = 1}},
        {.name = "words",
         .verb = DLP_MAP,
         .map = {.item = add_words, .fields = &words_field, .n_fields = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}},
    };
    for (int workers = 0; workers <= 2; workers++) {
        const dlp_pipe_desc desc = {.seed = 3, .epochs = 4};
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        nodes[2].workers.num_workers = workers;
        if ((p = opened(nodes, 4, &desc)) == NULL) return;
        while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++)
                CHECK(b->fields[1].lengths[r] == (b->index[r] % 3 ? b->index[r] % 10 : 0));
            dlp_pipe_release(p, b);
        }
        if (!well(rc == DLP_END)) printf("  %s\n", dlp_pipe_error(p)->message);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- parts, and items of unknown count ---- */

enum { PARTS = 29 };

static uint64_t items_of(uint64_t part) { return part * 7 % 12 + 1; }

static int count_items(void *user, uint64_t part, uint64_t *items) {
    (void)user;
    *items = items_of(part);
    return 0;
}
static int load_part(void *user, dlp_part *part) {
    uint32_t *to = part->data;
    (void)user;
    part->items = items_of(part->index);
    part->bytes = part->items * 4;
    for (uint64_t i = 0; i < part->items; i++) to[i] = (uint32_t)(part->index * 1000 + i);
    return 0;
}
static int read_part(void *user, dlp_item *it) {
    uint32_t *x = it->data[0];
    (void)user;
    x[0] = ((const uint32_t *)it->part->data)[it->part->item] * 10;
    x[1] = x[0] + 1;
    x[2] = 5;
    return 0;
}

/* A load whose parts have counts. */
static const dlp_node counted[] = {
    {.name = "parts", .verb = DLP_LIST, .list = {.n_items = PARTS, .shuffle = 1}},
    {.name = "load",
     .verb = DLP_LOAD,
     .load = {.load = load_part, .count = count_items, .max_part_bytes = 64, .shuffle_items = 1}},
    {.name = "read",
     .verb = DLP_FETCH,
     .fetch = {.fetch = read_part, .fields = &x_field, .n_fields = 1}},
    {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}},
};

static void nodes__load__the_batches_of_parts(void) {
    const dlp_pipe_desc desc = {.seed = 7, .epochs = 2, .streams = 4};
    dlp_node found[] = {
        counted[0],
        {.name = "load",
         .verb = DLP_LOAD,
         .load = {.load = load_part, .max_items = 12, .max_part_bytes = 64},
         .queue = {.capacity = 100}},
        {.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 20}},
        counted[2],
        counted[3],
    };
    dlp_node parts[] = {counted[0], counted[1], counted[2], counted[3]};
    same("parts", parts, 4, 1, desc,
         (gold){24, 366, UINT64_C(0x9751b8ed4334e611), UINT64_C(0x9ce4e152d38c679d)});
    same("found", found, 5, 1, desc,
         (gold){32, 512, UINT64_C(0xd129a1fefe854472), UINT64_C(0xb9d6529b730e2729)});
}

static const dlp_field tag_field = {.name = "tag", .dtype = DLP_U32};

/* The second fetch goes by the number of the item in all parts. It has no part. */
static int write_tag(void *user, dlp_item *it) {
    (void)user;
    *(uint32_t *)it->data[0] = (uint32_t)it->index * 3;
    return it->part != NULL || it->n_fields != 1;
}

static void nodes__second_fetch_behind_a_load__each_item_has_both(void) {
    const dlp_pipe_desc desc = {.seed = 7, .epochs = 2, .streams = 4};
    dlp_node nodes[] = {
        counted[0],
        counted[1],
        counted[2],
        {.name = "tags",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_tag, .fields = &tag_field, .n_fields = 1}},
        counted[3],
    };
    uint64_t first[PARTS + 1] = {0}, rows = 0;
    for (uint64_t k = 0; k < PARTS; k++) first[k + 1] = first[k] + items_of(k);
    for (int workers = 0; workers <= 2; workers++) {
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        nodes[3].workers.num_workers = workers;
        if ((p = opened(nodes, 5, &desc)) == NULL) return;
        for (rows = 0; (rc = dlp_pipe_next(p, &b)) == DLP_OK; rows += b->count) {
            const uint32_t *x = b->fields[0].data, *y = b->fields[1].data;
            for (uint32_t r = 0; r < b->count; r++) {
                uint64_t k = 0;
                while (first[k + 1] <= b->index[r]) k++;
                CHECK(x[3 * r] == (k * 1000 + b->index[r] - first[k]) * 10);
                CHECK(y[r] == b->index[r] * 3);
            }
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_END && rows == 2 * first[PARTS]);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- what a plan says ---- */

static uint64_t path_draws[ITEMS], row_draws[ITEMS], row_index[ITEMS];

static int draw_and_keep(void *user, const dlp_item *it) {
    (void)user;
    path_draws[it->index] = dlp_item_random(it, 1);
    return 1;
}
static int draw_in_row(void *user, dlp_item *it) {
    (void)user;
    row_draws[it->position] = dlp_item_random(it, 1);
    row_index[it->position] = it->index;
    return 0;
}
static int64_t no_list(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    (void)user;
    (void)epoch;
    (void)index;
    (void)max;
    return 0;
}

static void plan_says(const dlp_plan *plan, const char *order, const char *random,
                      const char *state) {
    char text[16384], words[300];
    snprintf(words, sizeof words, "\norder: %s\nrandom: %s\nstate: %s\n", order, random, state);
    CHECK(dlp_plan_format(plan, text, sizeof text) > 0);
    if (!well(strstr(text, words) != NULL)) printf("  not%s  but\n%s", words, text);
}

/* By position a batch is found by its number, by stream it is not. Random numbers of rows go by the
   position. Those of a filter go by the item, whatever the order is. */
static void plan__order_random_and_state__are_so(void) {
    static uint64_t paths[ITEMS], rows[ITEMS], indices[ITEMS];
    for (int k = 0; k < 4; k++) {
        const int filter = k / 2, shuffle = k % 2;
        const dlp_node all[] = {
            {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = shuffle}},
            {.name = "read",
             .verb = DLP_FETCH,
             .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
            {.name = "draw", .verb = DLP_MAP, .map = {.item = draw_in_row}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
        const dlp_node good = {
            .name = "good", .verb = DLP_FILTER, .filter = {.keep = draw_and_keep}};
        const dlp_node filtered[] = {all[0], all[1], good, all[2], all[3]};
        const dlp_node *nodes = filter ? filtered : all;
        dlp_pipe *p = opened(nodes, filter ? 5 : 4, &(dlp_pipe_desc){.seed = 7});
        dlp_state state;
        dlp_batch *b;
        dlp_plan plan;
        if (p == NULL) return;
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        plan_says(&plan,
                  filter    ? shuffle ? "by stream; \"items\": DLP_ORDER_SHUFFLED, seed 7"
                                      : "by stream; \"items\": DLP_ORDER_SEQUENTIAL, seed 7"
                  : shuffle ? "by position; \"items\": DLP_ORDER_SHUFFLED, seed 7"
                            : "by position; \"items\": DLP_ORDER_SEQUENTIAL, seed 7",
                  filter ? "path up to the last maker, position behind it" : "position",
                  filter ? "248 bytes: a place in each stream of this rank" : "248 bytes: a place");
        CHECK(dlp_pipe_state_at(p, 0, 1, &state) == (filter ? DLP_ERR_UNSUPPORTED : DLP_OK));
        while (dlp_pipe_next(p, &b) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        if (shuffle) {
            CHECK(memcmp(rows, row_draws, sizeof rows) == 0);
            CHECK(memcmp(indices, row_index, sizeof indices) != 0);
            CHECK(memcmp(paths, path_draws, sizeof paths) == 0);
        }
        memcpy(paths, path_draws, sizeof paths);
        memcpy(rows, row_draws, sizeof rows);
        memcpy(indices, row_index, sizeof indices);
    }
}

static void plan__order_random_and_state__of_other_tables(void) {
    const dlp_sampler_desc lists = {.order = DLP_ORDER_BATCHES, .batches = {.next = no_list}};
    const dlp_node read = {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}};
    const dlp_node batch = {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}};
    dlp_node list = {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}};
    dlp_node load = {.name = "load",
                     .verb = DLP_LOAD,
                     .load = {.load = load_part, .count = count_items, .max_part_bytes = 64}};
    const dlp_node plain[] = {list, read, batch};
    dlp_pipe_desc desc = {.seed = UINT64_MAX};
    dlp_plan plan;
    dlp_error e;
    CHECK(dlp_nodes_plan(plain, 3, &desc, &plan, &e) == DLP_OK);
    plan_says(&plan, "by position; \"items\": DLP_ORDER_SEQUENTIAL, seed 18446744073709551615",
              "position", "248 bytes: a place");
    desc = (dlp_pipe_desc){.seed = 0};
    list.list.order = &lists;
    const dlp_node listed[] = {list, read, batch};
    CHECK(dlp_nodes_plan(listed, 3, &desc, &plan, &e) == DLP_OK);
    plan_says(&plan, "by position; \"items\": DLP_ORDER_BATCHES, seed 0", "position",
              "248 bytes: a place, and what the batch sampler saves");
    list.list = (dlp_node_list){.n_items = PARTS, .shuffle = 1};
    for (int found = 0; found < 2; found++) {
        const dlp_node nodes[] = {list, load, read, batch};
        CHECK(dlp_nodes_plan(nodes, 4, &desc, &plan, &e) == DLP_OK);
        plan_says(&plan,
                  found ? "by stream; \"items\": DLP_ORDER_PARTS, seed 0"
                        : "by position; \"items\": DLP_ORDER_PARTS, seed 0",
                  "position",
                  found ? "248 bytes: a place in each stream of this rank" : "248 bytes: a place");
        load.load.count = NULL;
        load.load.max_items = 12;
    }
}

/* ---- filters and expanders, one after the other ---- */

static const gold filter_gold = {26, 208, UINT64_C(0x8bf526aa6ae80fd2),
                                 UINT64_C(0xd91f5b37ec9799ad)};

static void nodes__filter_and_window__the_batches_of_a_fetch_that_skips(void) {
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd}},
        {.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 9}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    const dlp_pipe_desc desc = {.seed = 7, .epochs = 2, .streams = 2};
    same("filter", nodes, 5, 1, desc, filter_gold);
    nodes[1].workers.num_workers = 0;
    same("filter with workers", nodes, 5, 2, desc, filter_gold);
}

/* The workers that copy take whole batches in turn, and each may have so many. */
static void nodes__turns_behind_a_filter__each_worker_copies_its_batches(void) {
    const dlp_node nodes[] = {
        {.name = "items",
         .verb = DLP_LIST,
         .list = {.n_items = ITEMS},
         .queue = {.deal = DLP_DEAL_TURNS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1},
         .workers = {.num_workers = 3}},
        {.name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = 8, .copy_workers = 2},
         .queue = {.capacity = 3}},
    };
    uint64_t items[2] = {0, 0};
    static char text[8192];
    dlp_worker_stats s;
    dlp_plan plan;
    dlp_pipe *p = opened(nodes, 4, &(dlp_pipe_desc){.max_held = 1});
    dlp_stage copies;
    dlp_batch *b;
    if (p == NULL) return;
    copies = dlp_node_stage(p, "read");
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && plan.slots == 3 * 2 + 1);
    CHECK(dlp_plan_format(&plan, text, sizeof text) > 0 && strstr(text, ", in turns\n") != NULL);
    CHECK(plan.links[2].kind == DLP_LINK_CLAIM && plan.links[2].rule == DLP_DISPATCH_BATCHES);
    while (dlp_pipe_next(p, &b) == DLP_OK) dlp_pipe_release(p, b);
    for (uint32_t i = 0; dlp_pipe_worker_stats(p, i, &s) == DLP_OK; i++)
        if (s.stage == copies && s.worker < 2) items[s.worker] = s.items;
    CHECK(items[0] == 6 * 8 + 5 && items[1] == 6 * 8); /* 101 rows are 13 batches */
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Makes index % 5 items of each input: numbers index * 10 + i. */
static int make_items(void *user, dlp_expand *x) {
    const uint64_t index = x->item->index;
    (void)user;
    for (uint64_t i = 0; i < index % 5; i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        ((uint32_t *)it->data[0])[0] = (uint32_t)(index * 10 + i) * 10;
        ((uint32_t *)it->data[0])[2] = (uint32_t)x->item->n_fields;
    }
    return 0;
}

/* What a plain loop makes of the list in turn: expand, keep the odd, keep the thirds. */
static uint32_t looped(uint32_t *to, int inputs, int odd, int thirds) {
    uint32_t n = 0;
    for (uint32_t index = 0; index < ITEMS; index++) {
        if (inputs && index % 2 == 0) continue;
        for (uint32_t i = 0; i < index % 5; i++) {
            uint32_t x = index * 10 + i;
            if ((!odd || x % 2 == 1) && (!thirds || x % 3 == 0)) to[n++] = x * 10;
        }
    }
    return n;
}

/* The table gives what the loop gives, in order; and goes on from each state with other workers. */
static void loops(const char *what, dlp_node *nodes, uint32_t n, int at, int inputs, int odd,
                  int thirds) {
    static uint32_t want[MOST];
    const uint32_t all = looped(want, inputs, odd, thirds);
    static dlp_state states[MOST / 8];
    for (int workers = 0; workers <= 2; workers++) {
        for (uint32_t from = 0; from * 8 < all; from += 7) {
            dlp_pipe_desc desc = {.max_held = 1};
            uint32_t seen = from * 8, wrong = 0, batch = from;
            dlp_pipe *p;
            dlp_batch *b;
            int rc;
            nodes[at].workers.num_workers = from == 0 ? workers : 3 - workers;
            if (from > 0) desc.resume = &states[from - 1];
            if ((p = opened(nodes, n, &desc)) == NULL) return;
            while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
                const uint32_t *x = b->fields[0].data;
                for (uint32_t r = 0; r < b->count; r++, seen++)
                    wrong += seen >= all || x[3 * r] != want[seen] || !b->valid[r];
                CHECK(dlp_pipe_state(p, b, &states[batch++]) == DLP_OK);
                dlp_pipe_release(p, b);
            }
            if (!well(rc == DLP_END && wrong == 0 && seen == all))
                printf("  %s, %d workers from %u: %u of %u, %u wrong: %s\n", what, workers, from,
                       seen, all, wrong, dlp_pipe_error(p)->message);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
    }
}

static void nodes__makers_in_a_row__a_plain_loop(void) {
    const dlp_node list = {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}};
    const dlp_node read = {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}};
    const dlp_node odd = {.name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd}};
    const dlp_node thirds = {.name = "thirds", .verb = DLP_FILTER, .filter = {.keep = keep_thirds}};
    const dlp_node make = {
        .name = "make",
        .verb = DLP_EXPAND,
        .expand = {.expand = make_items, .max_out = 4, .fields = &x_field, .n_fields = 1}};
    const dlp_node batch = {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}};
    const dlp_node odd_inputs = {
        .name = "inputs", .verb = DLP_FILTER, .filter = {.keep = keep_odd}};
    dlp_node a[] = {list, make, batch};
    dlp_node b[] = {list, read, make, odd, batch};
    dlp_node c[] = {list, make, odd, thirds, batch};
    dlp_node d[] = {list, read, odd_inputs, make, odd, thirds, batch};
    loops("list, expand", a, 3, 1, 0, 0, 0);
    loops("fetch, expand, filter", b, 5, 1, 0, 1, 0);
    loops("expand, filter, filter", c, 5, 3, 0, 1, 1);
    loops("filter, expand, filter, filter", d, 7, 2, 1, 1, 1);
}

/* The stage of such rows has the name of the expand; and one of them says how many cells it has. */
static void nodes__makers_in_a_row__one_stage_and_one_capacity(void) {
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd}},
        {.name = "make", .verb = DLP_EXPAND, .expand = {.expand = make_items, .max_out = 4}},
        {.name = "thirds", .verb = DLP_FILTER, .filter = {.keep = keep_thirds}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    dlp_pipe *p = opened(nodes, 6, NULL);
    dlp_stats stats;
    dlp_plan plan, more;
    if (p == NULL) return;
    CHECK(dlp_node_stage(p, "make") == 2 && dlp_node_stage(p, "read") == 3);
    CHECK(dlp_node_stage(p, "odd") == DLP_ERR_ARG && dlp_node_stage(p, "thirds") == DLP_ERR_ARG);
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && strcmp(stats.stages[2].name, "make") == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(dlp_nodes_plan(nodes, 6, NULL, &plan, NULL) == DLP_OK);
    for (int at = 1; at <= 4; at++) {
        nodes[at].queue.capacity = 2000;
        CHECK(dlp_nodes_plan(nodes, 6, NULL, &more, NULL) == DLP_OK);
        CHECK(more.total_bytes > plan.total_bytes);
        nodes[at].queue.capacity = 0;
    }
}

static int keep_wrong(void *user, const dlp_item *it) {
    const int code = *(const int *)user;
    if (it->index != 77) return 1;
    return code != 0 ? code : dlp_fail(it->call, 0, "no taste for %d", 77);
}

/* A filter that fails fails its input, whatever it returns but 0 and 1. */
static void nodes__filter_fails__the_input_fails(void) {
    const int codes[] = {0, 5, DLP_SKIP, DLP_END, DLP_ERR_LENGTH};
    for (int expands = 0; expands < 2; expands++) {
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
            int code = codes[i], rc;
            dlp_node nodes[] = {
                {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
                {.name = "read",
                 .verb = DLP_FETCH,
                 .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
                {.name = "taste",
                 .verb = DLP_FILTER,
                 .filter = {.keep = keep_wrong, .user = &code}},
                {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
            };
            dlp_pipe *p;
            dlp_batch *b;
            uint32_t rows = 0;
            if (expands)
                nodes[1] = (dlp_node){
                    .name = "make",
                    .verb = DLP_EXPAND,
                    .expand = {
                        .expand = make_items, .max_out = 4, .fields = &x_field, .n_fields = 1}};
            if ((p = opened(nodes, 4, NULL)) == NULL) return;
            while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
                rows += b->count;
                dlp_pipe_release(p, b);
            }
            CHECK(rc == DLP_ERR_CALLBACK || (rc == DLP_ERR_LENGTH && code == DLP_ERR_LENGTH));
            CHECK(dlp_pipe_error(p)->index == 77 && rows <= (expands ? 77 * 2 : 77));
            if (code == 0) CHECK(strstr(dlp_pipe_error(p)->message, "no taste for 77") != NULL);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
    }
}

/* What a filter does is part of a state's fingerprint by its id. */
static void nodes__filter_with_another_id__the_state_is_refused(void) {
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd, .id = 4}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    dlp_pipe *p = opened(nodes, 4, NULL);
    dlp_batch *b;
    dlp_state state;
    if (p == NULL || !well(dlp_pipe_next(p, &b) == DLP_OK)) return;
    CHECK(dlp_pipe_state(p, b, &state) == DLP_OK);
    dlp_pipe_release(p, b);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    for (uint64_t id = 4; id <= 5; id++) {
        const dlp_pipe_desc desc = {.resume = &state};
        nodes[2].filter.id = id;
        p = NULL;
        CHECK(dlp_pipe_open(&p, nodes, 4, &desc, NULL) == (id == 4 ? DLP_OK : DLP_ERR_RESUME));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- pack, push ---- */

static int keep_long(void *user, const dlp_item *it) {
    (void)user;
    return it->length[0] >= 5;
}

static void nodes__pack__batches_as_ever(void) {
    static told t;
    const dlp_pipe_desc desc = {.seed = 7, .epochs = 2, .streams = 2};
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_words, .fields = &words_field, .n_fields = 1}},
        {.name = "pack",
         .verb = DLP_PACK,
         .pack = {.tokens = 32, .rule = DLP_PACK_FIT, .window = 16}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}},
    };
    dlp_node filtered[] = {nodes[0],
                           nodes[1],
                           {.name = "long", .verb = DLP_FILTER, .filter = {.keep = keep_long}},
                           nodes[2],
                           nodes[3]};
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t words = 0, want = 0;
    same("pack", nodes, 4, 2, desc,
         (gold){18, 72, UINT64_C(0xbbbb9ec03aa3e8f7), UINT64_C(0xda13e82ef69de05f)});
    nodes[2].workers.num_workers = 0;
    for (uint64_t i = 0; i < ITEMS; i++) want += i % 10 >= 5 ? i % 10 : 0;
    if ((p = opened(filtered, 5, NULL)) == NULL) return;
    CHECK(dlp_node_stage(p, "pack") > 0 && dlp_node_stage(p, "long") == DLP_ERR_ARG);
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++) words += b->fields[0].lengths[r];
        dlp_pipe_release(p, b);
    }
    CHECK(words == want);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    drain(opened(filtered, 5, &desc), 1, &t);
    CHECK(t.n > 0);
}

static void nodes__push__each_item_once(void) {
    const dlp_push_desc desc = {.fields = &y_field, .n_fields = 1, .writers = 1};
    dlp_push *push = NULL;
    dlp_pusher *pusher = NULL;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_plan plan;
    uint64_t next = 0;
    int rc;
    if (!well(dlp_push_open(&push, &desc, NULL) == DLP_OK)) return;
    const dlp_node nodes[] = {
        {.name = "items",
         .verb = DLP_PUSH,
         .push = {.source = push},
         .workers = {.num_workers = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}, .queue = {.capacity = 4}},
    };
    CHECK(dlp_pusher_open(&pusher, &(dlp_pusher_desc){.push = push}, NULL) == DLP_OK);
    if ((p = opened(nodes, 2, NULL)) == NULL) return;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    plan_says(&plan, "as items are pushed", "position", "none (push \"items\")");
    for (uint64_t i = 0; i < 20; i++) {
        const void *const data[] = {&i};
        CHECK(dlp_pusher_push(pusher, data, DLP_FOREVER) == DLP_OK);
    }
    CHECK(dlp_pusher_end(pusher, DLP_FOREVER) == DLP_OK);
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count && b->valid[r]; r++)
            CHECK(((const uint64_t *)b->fields[0].data)[r] == next++);
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_END && next == 20);
    dlp_pusher_close(pusher);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_push_close(push) == DLP_OK);
}

static void nodes__push_of_a_rank__refused(void) {
    const dlp_push_desc desc = {.fields = &y_field, .n_fields = 1, .writers = 1};
    const dlp_pipe_desc run = {.rank = 1, .world_size = 2};
    dlp_push *push = NULL;
    dlp_pipe *p = NULL;
    if (!well(dlp_push_open(&push, &desc, NULL) == DLP_OK)) return;
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_PUSH, .push = {.source = push}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    CHECK(dlp_pipe_open(&p, nodes, 2, &run, NULL) == DLP_ERR_ARG);
    CHECK(dlp_push_close(push) == DLP_OK);
}

/* ---- sources, mixes, names, and callbacks that write where they may not ---- */

/* A source whose threads fetch, so many that its desc leaves to the library, is many workers. */
static void nodes__source_of_threads_and_filter__the_fetchs_batches(void) {
    static told a, b;
    static const dlp_source threads = {.dataset = &xs, .fetcher = DLP_FETCH_THREADS};
    const dlp_pipe_desc desc = {.seed = 7, .epochs = 2, .max_held = 2};
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "read", .verb = DLP_FETCH, .fetch = {.source = &threads}},
        {.name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    drain(opened(nodes, 4, &desc), 1, &a);
    nodes[0].list.n_items = ITEMS;
    nodes[1].fetch = (dlp_node_fetch){.fetch = write_x, .fields = &x_field, .n_fields = 1};
    drain(opened(nodes, 4, &desc), 1, &b);
    alike("threads of a source", &a, &b, 1);
}

/* The id of a row is in the states. */
static void nodes__makers_with_an_id__states_as_ever(void) {
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd, .id = 5}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    const dlp_pipe_desc desc = {.seed = 7, .epochs = 2};
    same("filter with an id", nodes, 4, 1, desc,
         (gold){26, 202, UINT64_C(0x4aa3d3c789d5f508), UINT64_C(0x0262ca78317f807e)});
    nodes[2] = (dlp_node){
        .name = "make",
        .verb = DLP_EXPAND,
        .expand = {.expand = make_items, .max_out = 4, .fields = &x_field, .n_fields = 1, .id = 5}};
    same("expand with an id", nodes, 4, 1, desc,
         (gold){102, 806, UINT64_C(0xbd9957f21f6fe760), UINT64_C(0xcca56992dd75da23)});
}

static int write_y_words(void *user, dlp_item *it) {
    dlp_item sub = *it;
    write_y(user, it);
    sub.data = it->data + 1;
    sub.length = it->length + 1;
    return write_words(user, &sub);
}

/* Sees x, once, y, words. */
static int look_at_three(void *user, dlp_item *it) {
    const uint32_t *x = it->data[0];
    uint64_t i, *y = it->data[1];
    (void)user;
    if (it->n_fields != 3 || it->length[2] != it->index % 10 || *y != it->index * it->index)
        return dlp_fail(it->call, 0, "the map sees other fields");
    i = it->index < ITEMS ? it->index : it->index - ITEMS;
    return x[0] == i * 10 ? 0 : dlp_fail(it->call, 0, "the map sees another x");
}

static void nodes__mix_then_a_field_that_ends__the_map_sees_each_once(void) {
    const uint64_t n_items[] = {ITEMS, 50}, weights[] = {3, 1};
    const dlp_field two[] = {y_field, words_field};
    const dlp_mix_desc desc = {
        .n = 2, .shuffle = 1, .n_items = n_items, .weights = weights, .seed = 9};
    static told t;
    dlp_error err;
    dlp_pipe *p = NULL;
    if (!well(dlp_mix_open(&mix, &desc, NULL) == DLP_OK)) return;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.mix = mix}},
        {.name = "many",
         .verb = DLP_FETCH,
         .fetch = {.of = 1, .fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "few",
         .verb = DLP_FETCH,
         .fetch = {.of = 2, .fetch = write_x, .fields = &x_field, .n_fields = 1}},
        {.name = "more",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_y_words, .fields = two, .n_fields = 2}},
        {.name = "look", .verb = DLP_MAP, .map = {.item = look_at_three, .ends = "y"}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}},
    };
    drain(opened(nodes, 6, NULL), 1, &t);
    CHECK(t.n > 0);
    nodes[3] = nodes[2]; /* the first fetch has the items of all datasets: no other may have some */
    nodes[2] = nodes[1];
    nodes[1].fetch.of = 0;
    nodes[1].name = "all";
    nodes[4] = nodes[5];
    CHECK(dlp_pipe_open(&p, nodes, 5, NULL, &err) == DLP_ERR_ARG && p == NULL);
    CHECK(strcmp(err.field, "fetch.of") == 0 && strcmp(err.stage, "many") == 0);
    dlp_mix_close(mix);
}

/* Rows may have the names that the library gives to stages that no row named. */
static void nodes__rows_named_as_stages__their_stages(void) {
    const dlp_field two[] = {x_field, y_field};
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "make",
         .verb = DLP_EXPAND,
         .expand = {.expand = make_items, .max_out = 4, .fields = two, .n_fields = 1}},
        {.name = "copy", .verb = DLP_MAP, .map = {.item = add_one}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}},
    };
    dlp_pipe *p = opened(nodes, 4, NULL);
    CHECK(dlp_node_stage(p, "copy") + 1 == dlp_node_stage(p, "batch"));
    CHECK(dlp_pipe_close(p) == DLP_OK);
    nodes[1] = (dlp_node){.name = "repeat",
                          .verb = DLP_FETCH,
                          .fetch = {.fetch = write_x, .fields = two, .n_fields = 2}};
    nodes[2].name = "scratch";
    nodes[2].map.ends = "y";
    p = opened(nodes, 4, NULL);
    CHECK(dlp_node_stage(p, "repeat") > dlp_node_stage(p, "items"));
    CHECK(dlp_node_stage(p, "scratch") + 1 == dlp_node_stage(p, "batch"));
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int keep_and_write(void *user, const dlp_item *it) {
    (void)user;
    it->length[0] = UINT64_C(1) << 40;
    return 1;
}

/* A filter may not write. If it writes over the lengths, its item fails. */
static void nodes__filter_writes_lengths__its_item_fails(void) {
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_words, .fields = &words_field, .n_fields = 1}},
        {.name = "wild", .verb = DLP_FILTER, .filter = {.keep = keep_and_write}},
        {.name = "pack", .verb = DLP_PACK, .pack = {.tokens = 32}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}},
    };
    dlp_pipe *p = opened(nodes, 5, NULL);
    dlp_batch *b;
    CHECK(dlp_pipe_next(p, &b) == DLP_ERR_LENGTH);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- plans, and what is refused ---- */

static void nodes__plan__what_the_pipe_takes(void) {
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1},
         .workers = {.num_workers = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}, .queue = {.capacity = 5}},
    };
    dlp_plan plan, started;
    dlp_pipe *p;
    for (uint32_t rank = 0; rank < 4; rank++) {
        const dlp_pipe_desc desc = {.rank = rank, .world_size = 4};
        CHECK(dlp_nodes_plan(nodes, 3, &desc, &plan, NULL) == DLP_OK);
        CHECK(plan.slots == 6 && plan.total_bytes > 0);
        if ((p = opened(nodes, 3, &desc)) == NULL) return;
        CHECK(dlp_pipe_plan(p, &started) == DLP_OK);
        CHECK(started.total_bytes == plan.total_bytes && started.n_lines == plan.n_lines);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

typedef struct refusal {
    const char *stage, *field, *words;
    dlp_node nodes[5];
    dlp_pipe_desc desc;
} refusal;

#define LIST \
    { \
        .name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS } \
    }
#define READ \
    { \
        .name = "read", .verb = DLP_FETCH, .fetch = { \
            .fetch = write_x, \
            .fields = &x_field, \
            .n_fields = 1 \
        } \
    }
#define TAGS \
    { \
        .name = "tags", .verb = DLP_FETCH, .fetch = { \
            .fetch = write_tag, \
            .fields = &tag_field, \
            .n_fields = 1 \
        } \
    }
#define BATCH \
    { \
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16 } \
    }
static const dlp_field ragged_x = {
    .name = "r", .dtype = DLP_U8, .ndim = 1, .shape = {3}, .ragged = 1};
#define BYTE(name_) \
    { .name = name_, .dtype = DLP_U8 }
static const dlp_field many_bytes[16] = {
    BYTE("a"), BYTE("b"), BYTE("c"), BYTE("d"), BYTE("e"), BYTE("f"), BYTE("g"), BYTE("h"),
    BYTE("i"), BYTE("j"), BYTE("k"), BYTE("l"), BYTE("m"), BYTE("n"), BYTE("o"), BYTE("p")};
static int change_nothing(void *user, dlp_batch *b, void *state) {
    return (void)user, (void)b, (void)state, 0;
}
#define ADDS_TO_BATCH(fields_, n_) \
    { \
        .name = "m", .verb = DLP_MAP, .map = { \
            .batch = change_nothing, \
            .fields = fields_, \
            .n_fields = n_ \
        } \
    }
#define GROUPS(items_, group_, by_) \
    { \
        .name = "w", .verb = DLP_WINDOW, .window = { items_, group_, by_ } \
    }
#define ODD \
    { \
        .name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd } \
    }
#define MAKE \
    { \
        .name = "make", .verb = DLP_EXPAND, .expand = { \
            .expand = make_items, \
            .max_out = 4, \
            .fields = &x_field, \
            .n_fields = 1 \
        } \
    }
#define LOAD \
    { \
        .name = "load", .verb = DLP_LOAD, .load = { \
            .load = load_part, \
            .max_items = 12, \
            .max_part_bytes = 64 \
        } \
    }
#define NAMES(...) \
    (const char *const[]) { __VA_ARGS__, NULL }

static int open_worker(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    *state = NULL;
    return 0;
}

static int submit_none(void *user, void *state, dlp_item *it) {
    (void)user;
    (void)state;
    (void)it;
    return DLP_FULL;
}

static void nodes__wrong__the_row_and_the_field(void) {
    static const dlp_source no_dataset = {.id = 0};
    static const dlp_sampler_desc seeded = {.seed = 3}, order_99 = {.order = 99};
    static const dlp_sampler_desc lists = {.order = DLP_ORDER_BATCHES};
    static const dlp_field many_fields[17] = {{.name = "x", .dtype = DLP_U32}};
    static const dlp_dataset seventeen = {
        .n_items = ITEMS, .fields = many_fields, .n_fields = 17, .fetch = write_x};
    static const dlp_dataset none = {.n_items = ITEMS, .n_fields = 1, .fetch = write_x};
    static const dlp_field xy[] = {{.name = "x", .dtype = DLP_U32}, {.name = "y", .dtype = DLP_U8}};
    static const dlp_dataset xy_set = {
        .n_items = ITEMS, .fields = xy, .n_fields = 2, .fetch = write_x};
    static const dlp_source wide = {.dataset = &seventeen};
    static const dlp_source no_fields = {.dataset = &none};
    static const dlp_source answers = {.dataset = &xy_set, .fetcher = DLP_FETCH_ASYNC};
    static const dlp_source opens = {.dataset = &xs, .workers = {.worker_init = open_worker}};
    static const dlp_async half = {.submit = submit_none};
    static const uint64_t each[2] = {5, 6};
    static dlp_field sixteen[16];
    static char names[16][4];
    dlp_mix *two = NULL;
    for (int i = 0; i < 16; i++) {
        snprintf(names[i], sizeof names[i], "f%d", i);
        sixteen[i] = (dlp_field){.name = names[i], .dtype = DLP_U32};
    }
    CHECK(dlp_mix_open(&two, &(dlp_mix_desc){.n = 2, .n_items = each}, NULL) == DLP_OK);
    const refusal all[] = {
        {"", "name", "row 1 has a name of 0", {LIST, {.verb = DLP_FETCH}, BATCH}, {.name = NULL}},
        {"items", "name", "rows 0 and 1", {LIST, LIST}, {.name = NULL}},
        {"read", "", "is the first row", {READ, BATCH}, {.name = NULL}},
        {"more",
         "",
         "is a second list",
         {LIST, READ, {.name = "more", .verb = DLP_LIST}},
         {.seed = 1}},
        {"x", "verb", "the verb of \"x\" is 99, ", {LIST, {.name = "x", .verb = 99}}, {.seed = 1}},
        {"items",
         "list.order.order",
         "is 99, must be one of",
         {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 9, .order = &order_99}},
          READ,
          BATCH},
         {.seed = 0}},
        {"items",
         "list.order.batches.next",
         "list.order.batches.next is NULL",
         {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 9, .order = &lists}},
          READ,
          BATCH},
         {.seed = 0}},
        {"read",
         "fetch.writes_all_bytes",
         "fetch.writes_all_bytes is 2",
         {LIST,
          {.name = "read",
           .verb = DLP_FETCH,
           .fetch = {.fetch = write_x, .fields = xy, .n_fields = 1, .writes_all_bytes = 2}},
          BATCH},
         {.seed = 0}},
        {"gpu",
         "queue.capacity",
         "queue.capacity is 1, must be",
         {LIST, READ, BATCH, {.name = "gpu", .verb = DLP_TRANSFER, .queue = {.capacity = 1}}},
         {.seed = 0}},
        {"x", "verb", "-1", {LIST, {.name = "x", .verb = -1}}, {.seed = 1}},
        {"read",
         "from",
         "the row before is \"items\"",
         {LIST, {.name = "read", .verb = DLP_FETCH, .from = NAMES("batch")}, BATCH},
         {.seed = 1}},
        {"read",
         "from",
         "in the order of the data",
         {LIST, {.name = "read", .verb = DLP_FETCH, .from = NAMES("nobody")}, BATCH},
         {.seed = 1}},
        {"read",
         "from",
         "one node",
         {LIST, {.name = "read", .verb = DLP_FETCH, .from = NAMES("items", "items")}},
         {.seed = 1}},
        {"items",
         "from",
         "no node",
         {{.name = "items", .verb = DLP_LIST, .from = NAMES("x")}},
         {.seed = 1}},
        {"read",
         "workers.name",
         "must be NULL",
         {LIST, {.name = "read", .verb = DLP_FETCH, .workers = {.name = "w"}}},
         {.seed = 1}},
        {"read",
         "workers.dispatch",
         "queue.deal",
         {{.name = "items",
           .verb = DLP_LIST,
           .list = {.n_items = ITEMS},
           .queue = {.deal = DLP_DEAL_TURNS}},
          {.name = "read", .verb = DLP_FETCH, .workers = {.dispatch = 2}}},
         {.seed = 1}},
        {"items",
         "workers",
         "but num_workers 1",
         {{.name = "items", .verb = DLP_LIST, .workers = {.num_workers = 1, .retries = 1}},
          READ,
          BATCH},
         {.seed = 1}},
        {"out",
         "workers",
         "has no workers",
         {LIST, READ, BATCH, {.name = "out", .verb = DLP_OUT, .workers = {.retries = 1}}},
         {.seed = 1}},
        {"odd",
         "queue.deal",
         "must be",
         {LIST, READ, {.name = "odd", .verb = DLP_FILTER, .queue = {.deal = 1}}},
         {.seed = 1}},
        {"m",
         "queue.capacity",
         "has no queue",
         {LIST,
          READ,
          {.name = "m", .verb = DLP_MAP, .map = {.item = add_one}, .queue = {.capacity = 3}},
          BATCH},
         {.seed = 1}},
        {"read",
         "queue.capacity",
         "no field of this node ends",
         {LIST,
          {.name = "read",
           .verb = DLP_FETCH,
           .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1},
           .queue = {.capacity = 3}},
          BATCH},
         {.seed = 1}},
        {"read",
         "fetch.fetch",
         "NULL",
         {LIST, {.name = "read", .verb = DLP_FETCH}, BATCH},
         {.seed = 1}},
        {"read",
         "fetch.fields",
         "NULL",
         {LIST, {.name = "read", .verb = DLP_FETCH, .fetch = {.fetch = write_x}}, BATCH},
         {.seed = 1}},
        {"read",
         "dataset",
         "NULL",
         {LIST, {.name = "read", .verb = DLP_FETCH, .fetch = {.source = &no_dataset}}, BATCH},
         {.seed = 1}},
        {"items",
         "list.order.seed",
         "must be 0",
         {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 9, .order = &seeded}},
          READ,
          BATCH},
         {.seed = 1}},
        {"", "", "no batch node", {LIST, READ}, {.seed = 1}},
        {"batch", "", "has no fetch", {LIST, BATCH}, {.seed = 1}},
        {"late",
         "",
         "stands after the batch",
         {LIST, READ, BATCH, {.name = "late", .verb = DLP_FETCH}},
         {.seed = 1}},
        {"m",
         "map.item",
         "before the batch",
         {LIST, READ, {.name = "m", .verb = DLP_MAP}, BATCH},
         {.seed = 1}},
        {"m",
         "map.batch",
         "after the batch",
         {LIST, READ, BATCH, {.name = "m", .verb = DLP_MAP, .map = {.item = add_one}}},
         {.seed = 1}},
        {"m",
         "map.ends",
         "name fields of one fetch",
         {LIST,
          READ,
          {.name = "m", .verb = DLP_MAP, .map = {.item = add_one, .ends = "x nothing"}},
          BATCH},
         {.seed = 1}},
        {"m",
         "map.fields",
         "give both",
         {LIST,
          READ,
          {.name = "m", .verb = DLP_MAP, .map = {.item = add_one, .n_fields = 1}},
          BATCH},
         {.seed = 1}},
        {"m",
         "fields[].name",
         "of this name",
         {LIST,
          READ,
          {.name = "m",
           .verb = DLP_MAP,
           .map = {.item = add_one, .fields = &x_field, .n_fields = 1}},
          BATCH},
         {.seed = 1}},
        {"odd", "", "directly after the first fetch", {LIST, ODD, READ, BATCH}, {.seed = 1}},
        {"odd",
         "filter.keep",
         "NULL",
         {LIST, READ, {.name = "odd", .verb = DLP_FILTER}, BATCH},
         {.seed = 1}},
        {"odd",
         "workers",
         "in one of the two",
         {LIST,
          {.name = "read",
           .verb = DLP_FETCH,
           .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1},
           .workers = {.num_workers = 1}},
          {.name = "odd",
           .verb = DLP_FILTER,
           .filter = {.keep = keep_odd},
           .workers = {.num_workers = 1}},
          BATCH},
         {.seed = 1}},
        {"again",
         "expand.expand",
         "NULL",
         {LIST, MAKE, {.name = "again", .verb = DLP_EXPAND}, BATCH},
         {.seed = 1}},
        {"make",
         "expand.n_fields",
         "without a fetch",
         {LIST,
          {.name = "make", .verb = DLP_EXPAND, .expand = {.expand = make_items, .max_out = 4}},
          BATCH},
         {.seed = 1}},
        {"w",
         "",
         "directly after",
         {LIST, {.name = "w", .verb = DLP_WINDOW, .window = {.items = 9}}, READ, BATCH},
         {.seed = 1}},
        {"w",
         "window.items",
         "1..2^24",
         {LIST, MAKE, {.name = "w", .verb = DLP_WINDOW}, BATCH},
         {.seed = 1}},
        {"w",
         "window.group",
         "a divisor of window.items, 9",
         {LIST, READ, GROUPS(9, 2, "x"), BATCH},
         {.seed = 1}},
        {"m",
         "map.n_fields",
         "the batch has 1 fields",
         {LIST, READ, BATCH, ADDS_TO_BATCH(many_bytes, 16)},
         {.seed = 1}},
        {"m",
         "fields[].name",
         "of this name",
         {LIST, READ, BATCH, ADDS_TO_BATCH(&x_field, 1)},
         {.seed = 1}},
        {"m",
         "fields[].ragged",
         "must be 0 after the batch",
         {LIST, READ, BATCH, ADDS_TO_BATCH(&ragged_x, 1)},
         {.seed = 1}},
        {"w",
         "window.group",
         "is 0, but window.by",
         {LIST, READ, GROUPS(9, 0, "x"), BATCH},
         {.seed = 1}},
        {"w",
         "window.by",
         "is NULL, but window.group",
         {LIST, READ, GROUPS(9, 3, NULL), BATCH},
         {.seed = 1}},
        {"w",
         "window.by",
         "a ragged field that a row",
         {LIST, READ, GROUPS(9, 3, "x"), BATCH},
         {.seed = 1}},
        {"w",
         "window.by",
         "move \"w\" behind that",
         {LIST, LOAD, GROUPS(9, 3, "x"), READ, BATCH},
         {.seed = 1}},
        {"w",
         "window.group",
         "beside a pack",
         {LIST,
          READ,
          GROUPS(9, 3, "x"),
          {.name = "k", .verb = DLP_PACK, .pack = {.tokens = 4}},
          BATCH},
         {.seed = 1}},
        {"w",
         "window.group",
         "beside a pack",
         {LIST,
          READ,
          {.name = "k", .verb = DLP_PACK, .pack = {.tokens = 4}},
          GROUPS(9, 3, "x"),
          BATCH},
         {.seed = 1}},
        {"load",
         "",
         "directly after the list",
         {LIST, READ, {.name = "load", .verb = DLP_LOAD}, BATCH},
         {.seed = 1}},
        {"two",
         "",
         "stands behind an out",
         {LIST, READ, BATCH, {.name = "out", .verb = DLP_OUT}, {.name = "two", .verb = DLP_OUT}},
         {.seed = 1}},
        {"", "streams", "no node loads parts", {LIST, READ, BATCH}, {.streams = 2}},
        {"", "steps_per_epoch", "no node loads parts", {LIST, READ, BATCH}, {.steps_per_epoch = 2}},
        {"batch",
         "queue.capacity",
         "or as prefetch_factor",
         {LIST,
          READ,
          {.name = "batch",
           .verb = DLP_BATCH,
           .batch = {.batch_size = 4},
           .queue = {.capacity = 3}}},
         {.prefetch_factor = 4}},
        {"items",
         "list.shuffle",
         "0 or 1",
         {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 5, .shuffle = 2}}, READ, BATCH},
         {.seed = 1}},
        {"items",
         "list.n_items",
         "with a source",
         {{.name = "items", .verb = DLP_LIST}, READ, BATCH},
         {.seed = 1}},
        {"items",
         "list.open_end",
         "with n_items",
         {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 5, .open_end = 1}}, READ, BATCH},
         {.seed = 1}},
        {"tags",
         "list.open_end",
         "0 in a second fetch",
         {{.name = "items", .verb = DLP_LIST, .list = {.open_end = 1}}, READ, TAGS, BATCH},
         {.seed = 1}},
        {"tags", "", "of unknown count", {LIST, LOAD, READ, TAGS, BATCH}, {.seed = 1}},
        {"odd", "", "has no fields", {LIST, LOAD, ODD, READ, BATCH}, {.seed = 1}},
        {"odd",
         "",
         "directly after the first fetch",
         {LIST, MAKE, {.name = "w", .verb = DLP_WINDOW, .window = {.items = 9}}, ODD, BATCH},
         {.seed = 1}},
        {"two",
         "",
         "directly after the first fetch",
         {LIST,
          READ,
          ODD,
          {.name = "w", .verb = DLP_WINDOW, .window = {.items = 9}},
          {.name = "two", .verb = DLP_FILTER, .filter = {.keep = keep_odd}}},
         {.seed = 1}},
        {"odd",
         "queue.capacity",
         "a row above",
         {LIST,
          {.name = "read",
           .verb = DLP_FETCH,
           .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1},
           .queue = {.capacity = 90}},
          {.name = "odd",
           .verb = DLP_FILTER,
           .filter = {.keep = keep_odd},
           .queue = {.capacity = 90}},
          BATCH},
         {.seed = 1}},
        {"batch",
         "batch.copy_workers",
         "no expand",
         {LIST,
          READ,
          {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4, .copy_workers = 1}}},
         {.seed = 1}},
        {"m",
         "map.ends",
         "no field for the batch",
         {LIST, READ, {.name = "m", .verb = DLP_MAP, .map = {.item = add_one, .ends = "x"}}, BATCH},
         {.seed = 1}},
        {"items", "push.source", "NULL", {{.name = "items", .verb = DLP_PUSH}, BATCH}, {.seed = 1}},
        {"odd",
         "queue.capacity",
         "a row above",
         {LIST,
          {.name = "make",
           .verb = DLP_EXPAND,
           .expand = {.expand = make_items, .max_out = 4, .fields = &x_field, .n_fields = 1},
           .queue = {.capacity = 99}},
          {.name = "odd",
           .verb = DLP_FILTER,
           .filter = {.keep = keep_odd},
           .queue = {.capacity = 99}},
          BATCH},
         {.seed = 1}},
        {"odd", /* the second row's number is used */
         "queue.capacity",
         "may need 2 inputs",
         {LIST,
          READ,
          ODD,
          {.name = "more",
           .verb = DLP_FILTER,
           .filter = {.keep = keep_thirds},
           .queue = {.capacity = 1}},
          BATCH},
         {.seed = 1, .streams = 2}},
        {"batch",
         "batch.copy_workers",
         "no expand",
         {LIST,
          READ,
          {.name = "batch",
           .verb = DLP_BATCH,
           .batch = {.batch_size = 4, .copy_workers = DLP_NONE}}},
         {.seed = 1}},
        {"read",
         "workers.num_workers",
         "0..1024 with in_flight",
         {LIST,
          {.name = "read",
           .verb = DLP_FETCH,
           .fetch = {.fetch = write_x, .fields = &x_field, .n_fields = 1, .in_flight = 4},
           .workers = {.num_workers = DLP_NONE}},
          ODD,
          BATCH},
         {.seed = 1}},
        {"read",
         "source.dataset.n_fields",
         "1..16",
         {LIST, {.name = "read", .verb = DLP_FETCH, .fetch = {.source = &wide}}, BATCH},
         {.seed = 1}},
        {"read",
         "source.dataset.fields",
         "NULL",
         {LIST, {.name = "read", .verb = DLP_FETCH, .fetch = {.source = &no_fields}}, ODD, BATCH},
         {.seed = 1}},
        {"read",
         "fetch.fields",
         "must come last",
         {LIST,
          {.name = "read", .verb = DLP_FETCH, .fetch = {.source = &answers}},
          {.name = "m", .verb = DLP_MAP, .map = {.item = add_one, .ends = "x"}},
          BATCH},
         {.seed = 1}},
        {"read",
         "workers.worker_init",
         "leave worker_init",
         {LIST,
          {.name = "read", .verb = DLP_FETCH, .fetch = {.source = &opens}},
          {.name = "odd",
           .verb = DLP_FILTER,
           .filter = {.keep = keep_odd},
           .workers = {.worker_init = open_worker}},
          BATCH},
         {.seed = 1}},
        /* the words are those of a row, though a stage refuses it */
        {"load",
         "n_parts",
         "in a table: list.n_items",
         {{.name = "items", .verb = DLP_LIST}, LOAD, READ, BATCH},
         {.seed = 1}},
        {"batch",
         "workers.num_workers",
         "workers.num_workers is 2000",
         {LIST,
          READ,
          {.name = "batch",
           .verb = DLP_BATCH,
           .batch = {.batch_size = 4},
           .workers = {.num_workers = 2000}}},
         {.seed = 1}},
        {"read",
         "fetch.n_fields",
         "fetch.n_fields is 16",
         {LIST,
          {.name = "read",
           .verb = DLP_FETCH,
           .fetch = {.fetch = write_x, .fields = sixteen, .n_fields = 16}},
          {.name = "pack", .verb = DLP_PACK, .pack = {.tokens = 4}},
          BATCH},
         {.seed = 1}},
        {"read",
         "async.reap",
         "give submit and reap with async",
         {LIST,
          {.name = "read",
           .verb = DLP_FETCH,
           .fetch = {.async = &half, .fields = &x_field, .n_fields = 1},
           .workers = {.num_workers = 1}},
          BATCH},
         {.seed = 1}},
        {"more",
         "fetch.n_fields",
         "n_fields is 2, must be 1, as in the first dataset of the mix",
         {{.name = "items", .verb = DLP_LIST, .list = {.mix = two}},
          {.name = "read",
           .verb = DLP_FETCH,
           .fetch = {.fetch = write_x, .fields = sixteen, .n_fields = 1, .of = 1}},
          {.name = "more",
           .verb = DLP_FETCH,
           .fetch = {.fetch = write_x, .fields = sixteen, .n_fields = 2, .of = 2}},
          BATCH},
         {.seed = 0}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const refusal *r = &all[i];
        dlp_error err = {.code = 0};
        dlp_pipe *p = NULL;
        dlp_plan plan;
        uint32_t n = 0;
        int rc;
        while (n < 5 && (r->nodes[n].name != NULL || r->nodes[n].verb != 0)) n++;
        rc = dlp_pipe_open(&p, r->nodes, n, &r->desc, &err);
        if (!well((rc == DLP_ERR_ARG || rc == DLP_ERR_GRAPH) && err.code == rc && p == NULL &&
                  strcmp(err.stage, r->stage) == 0 && strcmp(err.field, r->field) == 0 &&
                  strstr(err.message, r->words) != NULL))
            printf("  %zu: %d, \"%s\".\"%s\", not \"%s\".\"%s\": %s\n", i, rc, err.stage, err.field,
                   r->stage, r->field, err.message);
        CHECK(strlen(err.message) <= 200);
        if (rc == DLP_OK) dlp_pipe_close(p);
        CHECK(dlp_nodes_plan(r->nodes, n, &r->desc, &plan, NULL) == rc);
    }
    {
        dlp_error err;
        dlp_pipe *p = NULL;
        CHECK(dlp_pipe_open(NULL, all[0].nodes, 1, NULL, &err) == DLP_ERR_ARG);
        CHECK(dlp_pipe_open(&p, NULL, 1, NULL, &err) == DLP_ERR_ARG);
        CHECK(dlp_pipe_open(&p, all[0].nodes, 0, NULL, &err) == DLP_ERR_ARG);
        CHECK(dlp_pipe_open(&p, all[0].nodes, DLP_MAX_NODES + 1, NULL, &err) == DLP_ERR_ARG);
    }
    dlp_mix_close(two);
}

/* ---- maps of batches that add fields ---- */

static const dlp_field sum_fields[] = {{.name = "sum", .dtype = DLP_U64},
                                       {.name = "pair", .dtype = DLP_U16, .ndim = 1, .shape = {2}}};
static const dlp_field more_field = {.name = "more", .dtype = DLP_U64};
static uint64_t tries_;

/* Garbage is written before a failure: a second try begins with zeros again. */
static int add_sums(void *user, dlp_batch *b, void *state) {
    uint64_t *sum = b->fields[1].data;
    uint16_t *pair = b->fields[2].data;
    (void)state;
    if (b->n_fields != 3 || b->fields[1].shape[0] != b->count || b->fields[2].ndim != 2) return 1;
    for (uint32_t r = 0; r < b->count; r++)
        if (sum[r] != 0 || pair[2 * r] != 0 || pair[2 * r + 1] != 0) return 2;
    for (uint32_t r = 0; r < b->count; r++) {
        const uint32_t *x = (const uint32_t *)b->fields[0].data + 3 * r;
        sum[r] = UINT64_C(1) + x[0] + x[1] + x[2];
        pair[2 * r] = pair[2 * r + 1] = (uint16_t)b->index[r];
    }
    return user != NULL && __atomic_add_fetch(&tries_, 1, __ATOMIC_RELAXED) % 3 == 0 ? 3 : 0;
}

static int add_more(void *user, dlp_batch *b, void *state) {
    (void)user, (void)state;
    if (b->n_fields != 4 || strcmp(b->fields[3].name, "more") != 0) return 4;
    for (uint32_t r = 0; r < b->count; r++)
        ((uint64_t *)b->fields[3].data)[r] += 2 * ((const uint64_t *)b->fields[1].data)[r];
    return 0;
}

static int collate_x(void *user, dlp_collate *c) {
    (void)user;
    if (c->n_out != 1) return 5;
    memcpy(c->out[0].data, c->in[0].data, c->count * 12u);
    return 0;
}

/* With items in place and with a collate; inline, in threads and behind a transfer; tried again. */
static void nodes__maps_of_batches_add_fields__behind_those_of_the_batch(void) {
    for (int how = 0; how < 8; how++) {
        const dlp_pipe_desc desc = {.seed = 3, .epochs = 2};
        const dlp_workers_desc w = {
            .num_workers = how & 1 ? 2 : 0, .retries = how & 4 ? 2 : 0, .idempotent = how == 6};
        dlp_node nodes[6] = {LIST,
                             READ,
                             {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 7}},
                             {.name = "sums",
                              .verb = DLP_MAP,
                              .map = {.batch = add_sums,
                                      .user = how & 4 ? &tries_ : NULL,
                                      .fields = sum_fields,
                                      .n_fields = 2},
                              .workers = w},
                             {.name = "more",
                              .verb = DLP_MAP,
                              .map = {.batch = add_more, .fields = &more_field, .n_fields = 1}},
                             {.name = "to", .verb = DLP_TRANSFER}};
        uint64_t rows = 0, wrong = 0;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_error err;
        int rc;
        if (how & 2) nodes[2].batch.collate = collate_x;
        if (how & 2) nodes[2].workers.num_workers = 1;
        rc = dlp_pipe_open(&p, nodes, how & 1 ? 6 : 5, &desc, &err);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) {
            printf("  %s %s: %s\n", err.stage, err.field, err.message);
            continue;
        }
        while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            const uint64_t *sum = b->fields[1].data, *more = b->fields[3].data;
            const uint16_t *pair = b->fields[2].data;
            const uint32_t *x = b->fields[0].data;
            wrong += b->n_fields != 4 || b->fields[3].bytes != b->count * 8u;
            for (uint32_t r = 0; r < b->count; r++, rows++)
                wrong += sum[r] != UINT64_C(1) + x[3 * r] + x[3 * r + 1] + x[3 * r + 2] ||
                         more[r] != 2 * sum[r] || pair[2 * r + 1] != (uint16_t)b->index[r];
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_END && wrong == 0 && rows == 2 * ITEMS);
        if (rc != DLP_END) printf("  %d: %s\n", how, dlp_pipe_error(p)->message);
        dlp_pipe_close(p);
    }
}

/* ---- what was accepted once, and then crashed ---- */

/* A map of batches adds fields to a batch. The items are left without any. */
static void nodes__no_field_but_of_batches__refused(void) {
    dlp_node nodes[] = {LIST,
                        READ,
                        {.name = "ends", .verb = DLP_MAP, .map = {.item = add_one, .ends = "x"}},
                        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 7}},
                        {.name = "more",
                         .verb = DLP_MAP,
                         .map = {.batch = add_more, .fields = &more_field, .n_fields = 1}}};
    dlp_error err = {0};
    dlp_pipe *p = NULL;
    CHECK(dlp_pipe_open(&p, nodes, 5, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.stage, "ends") == 0 && strcmp(err.field, "map.ends") == 0);
}

/* Workers of a push whose rows are made of inputs are checked as others are. */
static void nodes__affinity_of_a_push_before_makers__checked(void) {
    const dlp_push_desc desc = {.fields = &y_field, .n_fields = 1, .writers = 1};
    dlp_error err = {0};
    dlp_push *push = NULL;
    dlp_pipe *p = NULL;
    if (!well(dlp_push_open(&push, &desc, NULL) == DLP_OK)) return;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_PUSH, .push = {.source = push}, .workers = {.n_affinity = 2}},
        {.name = "odd", .verb = DLP_FILTER, .filter = {.keep = keep_odd}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 7}}};
    CHECK(dlp_pipe_open(&p, nodes, 3, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.stage, "items") == 0 && strcmp(err.field, "affinity") == 0);
    CHECK(dlp_push_close(push) == DLP_OK);
}

static int ten_of_a_pair(void *user, dlp_expand *x) {
    (void)user;
    for (uint32_t k = 0; k < 10; k++) {
        dlp_item *it = dlp_expand_add(x);
        if (it != NULL) *(uint64_t *)it->data[0] = x->item->index * 10 + k;
    }
    return 0;
}

/* Items that an expander makes of joined rows are shuffled within their input, alike for all
   workers. */
static void nodes__shuffled_items_of_a_zip__each_once(void) {
    const dlp_field field = {.name = "n", .dtype = DLP_U64};
    uint64_t first[10 * ITEMS] = {0};
    for (int workers = 0; workers < 4; workers++) {
        const dlp_workers_desc w = {.num_workers = workers > 0 ? workers : DLP_NONE};
        dlp_node nodes[] = {LIST,
                            READ,
                            {.name = "others", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
                            {.name = "squares",
                             .verb = DLP_FETCH,
                             .fetch = {.fetch = write_y, .fields = &y_field, .n_fields = 1}},
                            {.name = "both",
                             .verb = DLP_ZIP,
                             .from = (const char *const[]){"read", "squares", NULL}},
                            {.name = "ten",
                             .verb = DLP_EXPAND,
                             .expand = {.expand = ten_of_a_pair,
                                        .fields = &field,
                                        .n_fields = 1,
                                        .max_out = 10,
                                        .shuffle_items = 1}},
                            {.name = "batch",
                             .verb = DLP_BATCH,
                             .batch = {.batch_size = 10, .last = DLP_LAST_PARTIAL}}};
        bool got[10 * ITEMS] = {false};
        nodes[1].workers = nodes[3].workers = w;
        uint64_t rows = 0, moved = 0, wrong = 0;
        dlp_pipe *p = opened(nodes, 7, NULL);
        dlp_batch *b;
        int rc = DLP_ERR_ARG;
        while (p != NULL && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            const uint64_t *n = b->fields[0].data;
            for (uint32_t r = 0; r < b->count && rows < 10 * ITEMS; r++, rows++) {
                if (workers == 0) first[rows] = n[r];
                wrong += n[r] >= 10 * ITEMS || got[n[r]] || first[rows] != n[r] ||
                         n[r] / 10 != b->index[r];
                if (n[r] < 10 * ITEMS) got[n[r]] = true;
                moved += n[r] % 10 != rows % 10;
            }
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_END && rows == 10 * ITEMS && wrong == 0 && moved > 5 * ITEMS);
        dlp_pipe_close(p);
    }
}

int main(void) {
    nodes__economic__batches_and_states_as_ever();
    nodes__second_fetch_map_guard_cache_transfer__batches_as_ever();
    nodes__mix__batches_as_ever();
    nodes__maps_of_batches_add_fields__behind_those_of_the_batch();
    nodes__fields_end_in_a_map__the_map_sees_them_in_the_tables_order();
    nodes__fields_end_beside_other_fetches__the_map_sees_each_field_once();
    nodes__map_adds_a_ragged_field__it_begins_empty();
    nodes__load__the_batches_of_parts();
    nodes__second_fetch_behind_a_load__each_item_has_both();
    plan__order_random_and_state__are_so();
    plan__order_random_and_state__of_other_tables();
    nodes__filter_and_window__the_batches_of_a_fetch_that_skips();
    nodes__turns_behind_a_filter__each_worker_copies_its_batches();
    nodes__makers_in_a_row__a_plain_loop();
    nodes__makers_in_a_row__one_stage_and_one_capacity();
    nodes__filter_fails__the_input_fails();
    nodes__filter_with_another_id__the_state_is_refused();
    nodes__pack__batches_as_ever();
    nodes__push__each_item_once();
    nodes__push_of_a_rank__refused();
    nodes__source_of_threads_and_filter__the_fetchs_batches();
    nodes__makers_with_an_id__states_as_ever();
    nodes__mix_then_a_field_that_ends__the_map_sees_each_once();
    nodes__rows_named_as_stages__their_stages();
    nodes__filter_writes_lengths__its_item_fails();
    nodes__plan__what_the_pipe_takes();
    nodes__wrong__the_row_and_the_field();
    nodes__no_field_but_of_batches__refused();
    nodes__affinity_of_a_push_before_makers__checked();
    nodes__shuffled_items_of_a_zip__each_once();
    return test_end("tables");
}
