/* needs: parts pack mix */
/* Any order of a list before rows that make items: weights, replacement, a function, a mix, subsets
   of these. Before a filter that keeps all, one stream has the very order of the table without the
   filter. Several streams, steps over passes and ranks have what a direct program computes, also
   behind an expand and a pack, with killed workers, and resumed at random batches by any ranks.
   In branches of a zip or mix each list has the order that a table of it alone has.
     list_orders [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/inside_parts.h"

enum { ITEMS = 300, SUBSET = 90, FIRST = ITEMS - SUBSET, PLACES = 170, EPOCHS = 2, SEED = 7 };
enum { STREAMS = 4, ROWS = 3, T = 8, DRAWS = 16384, MOST = 24 * 1024 };

/* ---- orders ---- */

enum {
    PART,        /* a subset, in turn */
    SHUFFLED,    /* a subset, shuffled */
    RANGE,       /* the items from FIRST on, shuffled */
    WEIGHTED,    /* by weights */
    SHORT,       /* by weights, with an epoch of fewer draws than items */
    WEIGHED,     /* a subset, by weights */
    REPLACEMENT, /* any item at each draw */
    FUNCTION,    /* a function of the epoch and the position */
    OF_SUBSET,   /* a function that gives places of a subset */
    MIXED,       /* a mix of two datasets */
    ORDERS
};
static const char *const names_[] = {
    "subset",          "shuffled subset", "range",    "weighted",   "short",
    "weighted subset", "replacement",     "function", "its subset", "mix"};

static uint64_t subset_[SUBSET], weights_[ITEMS];
static dlp_mix *mix_;
static struct seen { uint32_t calls, kills, kill_every, wrong; } * seen_; /* shared */

static uint64_t function(void *user, uint64_t epoch, uint64_t position) {
    if (position >= ITEMS) __atomic_add_fetch(&seen_->wrong, 1, __ATOMIC_RELAXED);
    return user != NULL ? dlp_hash(3, epoch, position, 0) % SUBSET
                        : dlp_hash(2, epoch, position, 0) % ITEMS;
}

/* Return the order, but that of a mix, which the list names. */
static dlp_sampler_desc sampler(int order) {
    dlp_sampler_desc s = {.order = DLP_ORDER_SEQUENTIAL};
    if (order == SHUFFLED) s.order = DLP_ORDER_SHUFFLED;
    if (order == WEIGHTED || order == SHORT || order == WEIGHED) s.order = DLP_ORDER_WEIGHTED;
    if (order == REPLACEMENT) s.order = DLP_ORDER_REPLACEMENT;
    if (order == FUNCTION || order == OF_SUBSET) {
        s.order = DLP_ORDER_FUNCTION;
        s.function = function;
        s.function_user = order == OF_SUBSET ? subset_ : NULL;
    }
    if (s.order == DLP_ORDER_WEIGHTED) s.weights = weights_;
    if (order == SHORT) s.samples_per_epoch = PLACES;
    if (order == PART || order == SHUFFLED || order == WEIGHED || order == OF_SUBSET) {
        s.subset = subset_;
        s.n_subset = SUBSET;
    }
    return s;
}

static uint64_t places(int order) {
    return order == MIXED            ? dlp_mix_items(mix_) - 30
           : order == RANGE          ? SUBSET
           : order == SHORT          ? PLACES
           : sampler(order).n_subset ? SUBSET
                                     : ITEMS;
}

static bool draws(int order) { return order >= WEIGHTED && order <= REPLACEMENT; }

static dlp_node_list list_of(int order, uint64_t items, const dlp_sampler_desc *s) {
    if (order == MIXED) return (dlp_node_list){.mix = mix_};
    if (order == RANGE) return (dlp_node_list){.first = FIRST, .n_items = SUBSET, .shuffle = 1};
    return (dlp_node_list){.n_items = items, .order = s};
}

/* ---- callbacks ---- */

static const dlp_field fields_[2] = {{.name = "index", .dtype = DLP_U64},
                                     {.name = "position", .dtype = DLP_U64}};
static const dlp_field made_[2] = {{.name = "index", .dtype = DLP_U64, .ndim = 1, .shape = {2}},
                                   {.name = "position", .dtype = DLP_U64}};
static const dlp_field texts_[2] = {
    {.name = "index", .dtype = DLP_U64, .ndim = 1, .shape = {4}, .ragged = 1},
    {.name = "position", .dtype = DLP_U64, .ndim = 1, .shape = {4}, .ragged = 1}};

static void die(void) {
    if (__atomic_add_fetch(&seen_->calls, 1, __ATOMIC_RELAXED) % seen_->kill_every != 0) return;
    __atomic_add_fetch(&seen_->kills, 1, __ATOMIC_RELAXED);
    kill(getpid(), SIGKILL);
}

static int fetch(void *user, dlp_item *it) {
    const uint64_t n = user != NULL ? it->index % 5 : 1;
    if (it->index >= ITEMS) __atomic_add_fetch(&seen_->wrong, 1, __ATOMIC_RELAXED);
    if (seen_->kill_every != 0) die();
    for (uint64_t k = 0; k < n; k++) {
        ((uint64_t *)it->data[0])[k] = it->index;
        ((uint64_t *)it->data[1])[k] = it->position;
    }
    if (user != NULL) it->length[0] = it->length[1] = n;
    return 0;
}

static int keep(void *user, const dlp_item *it) {
    if (it->index != *(const uint64_t *)it->data[0]) __atomic_add_fetch(&seen_->wrong, 1, 0);
    if (user == weights_) return it->index == 5;
    return user == NULL || it->index % 3 != 0;
}

static int expand(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t k = 0; k < x->item->index % 4; k++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return 0;
        ((uint64_t *)it->data[0])[0] = x->item->index;
        ((uint64_t *)it->data[0])[1] = k;
        memcpy(it->data[1], x->item->data[1], 8);
    }
    return 0;
}

/* A source whose requests are answered by the next reap. */
typedef struct store {
    dlp_item *held[4];
    int n;
} store;

static int store_open(void *user, int worker, void **state) {
    return (void)user, (void)worker, (*state = calloc(1, sizeof(store))) == NULL;
}
static void store_close(void *user, int worker, void *state) {
    (void)user, (void)worker, free(state);
}
static int submit(void *user, void *state, dlp_item *it) {
    store *s = state;
    if (it->index >= ITEMS) seen_->wrong++;
    return (void)user, s->n == 4 ? DLP_FULL : (s->held[s->n++] = it, 0);
}
static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    store *s = state;
    int n = 0;
    for (; n < max && s->n > 0; n++) {
        done[n] = s->held[--s->n];
        code[n] = fetch(user, done[n]);
    }
    return (void)timeout_ms, n;
}

/* ---- a table ---- */

enum { PLAIN, FILTER, THIRD, EXPAND, PACK, KINDS, RARE = KINDS };

typedef struct table {
    uint64_t seed, items; /* 0: SEED, ITEMS */
    int order, kind, async, processes;
    uint32_t streams, steps, rank, world, each; /* each: rows of a stream in a batch */
    int32_t workers;
    dlp_state *resume;
    const dlp_sampler_desc *own; /* instead of the order */
} table;

static int open_table(const table *t, dlp_pipe **p, dlp_error *err) {
    static dlp_shm_desc shm = {.max_kills = 100};
    static const dlp_async async = {submit, reap};
    const dlp_sampler_desc s = t->own != NULL ? *t->own : sampler(t->order);
    const dlp_pipe_desc d = {.seed = t->seed != 0 ? t->seed : SEED,
                             .epochs = EPOCHS,
                             .streams = t->kind == PLAIN ? 0 : t->streams,
                             .steps_per_epoch = t->steps,
                             .rank = t->rank,
                             .world_size = t->world,
                             .shm = t->processes ? &shm : NULL,
                             .resume = t->resume};
    dlp_node nodes[4] = {
        {.name = "list",
         .verb = DLP_LIST,
         .list = list_of(t->own != NULL ? ORDERS : t->order, t->items != 0 ? t->items : ITEMS, &s)},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = fields_, .n_fields = 2},
         .workers = {.num_workers = t->workers,
                     .placement = t->processes ? DLP_PLACE_PROCESSES : 0}},
        {.name = "make", .verb = DLP_FILTER, .filter = {.keep = keep}}};
    uint32_t n = 3;
    if (t->async) {
        nodes[1].fetch.fetch = NULL;
        nodes[1].fetch.async = &async;
        nodes[1].workers.worker_init = store_open;
        nodes[1].workers.worker_exit = store_close;
    }
    if (t->kind == PLAIN) n = 2;
    if (t->kind == THIRD) nodes[2].filter.user = &subset_;
    if (t->kind == RARE) nodes[2].filter.user = weights_;
    if (t->kind == EXPAND) {
        nodes[2].verb = DLP_EXPAND;
        nodes[2].expand =
            (dlp_node_expand){.expand = expand, .max_out = 3, .fields = made_, .n_fields = 2};
    }
    if (t->kind == PACK) {
        nodes[1].fetch.user = &subset_;
        nodes[1].fetch.fields = texts_;
        nodes[2].verb = DLP_PACK;
        nodes[2].pack = (dlp_node_pack){.tokens = T};
    }
    nodes[n++] = (dlp_node){.name = "batch",
                            .verb = DLP_BATCH,
                            .batch = {.batch_size = t->each * t->streams,
                                      .copy_workers = t->workers > 1 && t->kind != PLAIN}};
    return dlp_pipe_open(p, nodes, n, &d, err);
}

/* ---- the direct program ---- */

static uint64_t drawn_[ORDERS][EPOCHS][DRAWS]; /* indices at positions of long epochs */

/* Read the draws of an order out of a table without makers, whose epoch is long. */
static void read_draws(int order) {
    dlp_sampler_desc s = sampler(order);
    const table t = {
        .order = order, .kind = PLAIN, .streams = 1, .world = 1, .each = 64, .own = &s};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    uint64_t rows = 0;
    s.samples_per_epoch = DRAWS;
    if (open_table(&t, &p, &err) != DLP_OK) {
        CHECK(err.code == DLP_OK);
        return;
    }
    for (; dlp_pipe_next(p, &b) == DLP_OK; dlp_pipe_release(p, b), rows += b->count)
        memcpy(&drawn_[order][b->epoch][b->in_epoch * 64], b->index, b->count * sizeof *b->index);
    CHECK(rows == 2 * DRAWS && dlp_pipe_close(p) == DLP_OK);
}

/* Return the index at place j of a pass, and the key of its random numbers. */
static uint64_t index_at(int order, uint64_t epoch, uint64_t pass, uint64_t j, uint64_t *key) {
    static dlp_permutation shuffle;
    static uint64_t of_epoch = UINT64_MAX, of_pass;
    const uint64_t n = places(order);
    *key = pass * n + j;
    if (order == FUNCTION) return function(NULL, epoch, j);
    if (order == OF_SUBSET) return subset_[function(subset_, epoch, j)];
    if (order == MIXED) return dlp_mix_at(mix_, epoch, pass * n + j);
    if (draws(order)) {
        if (pass * n + j >= DRAWS) seen_->wrong++;
        return drawn_[order][epoch][(pass * n + j) % DRAWS];
    }
    if (epoch != of_epoch || pass != of_pass)
        dlp_permutation_init(&shuffle, SUBSET, inside_hash(INSIDE_PARTS, SEED, pass), epoch);
    of_epoch = epoch;
    of_pass = pass;
    j = order == PART ? j : dlp_permutation_at(&shuffle, j);
    j = order == RANGE ? FIRST + j : subset_[j];
    *key = pass * ITEMS + j;
    return j;
}

typedef struct record {
    uint64_t index, key, number;
} record;
static record list_[STREAMS][MOST];
static uint64_t n_list_[STREAMS];

/* Write down the records of each stream in an epoch: items, or tokens of a pack. */
static void write_down(const table *t, uint64_t epoch) {
    const uint64_t n = places(t->order), c = t->streams;
    const uint64_t rows = (uint64_t)t->steps * t->each * (t->kind == PACK ? T : 1);
    for (uint64_t s = 0; s < c; s++) {
        uint64_t have = 0;
        for (uint64_t pass = 0; pass == 0 || (have < rows && pass < 200); pass++)
            for (uint64_t j = s; j < n; j += c) {
                uint64_t key, i = index_at(t->order, epoch, pass, j, &key);
                uint64_t items = t->kind == EXPAND  ? i % 4
                                 : t->kind == PACK  ? i % 5
                                 : t->kind == THIRD ? i % 3 != 0
                                 : t->kind == RARE  ? i == 5
                                                    : 1;
                for (uint64_t k = 0; k < items && have < MOST; k++)
                    list_[s][have++] = (record){i, key, k};
            }
        CHECK(have < MOST);
        n_list_[s] = rows > 0 && rows < have ? rows : have;
    }
}

/* True if row i of a batch has record r, or, with a pack, T records from r on. */
static bool row_is(const table *t, const dlp_batch *b, uint32_t i, const record *r, uint64_t n) {
    const uint64_t *index = b->fields[0].data, *key = b->fields[1].data;
    bool ok = b->index[i] == r->index;
    if (t->kind == EXPAND)
        return ok && index[2 * i] == r->index && index[2 * i + 1] == r->number && key[i] == r->key;
    if (t->kind != PACK) return ok && index[i] == r->index && key[i] == r->key;
    n = n < T ? n : T;
    ok &= b->fields[0].lengths[i] == n;
    for (uint64_t k = 0; k < n && ok; k++)
        ok &= index[i * T + k] == r[k].index && key[i * T + k] == r[k].key;
    return ok;
}

static bool batch_is(const table *t, const dlp_batch *b) {
    const uint64_t width = t->kind == PACK ? T : 1, of_rank = t->each * t->streams / t->world;
    for (uint32_t i = 0; i < b->count; i++) {
        const uint64_t g = t->rank * of_rank + i, s = g / t->each;
        const uint64_t at = (b->in_epoch * t->each + g % t->each) * width;
        if (at >= n_list_[s] || !row_is(t, b, i, &list_[s][at], n_list_[s] - at)) return false;
    }
    return true;
}

/* Return the rows that a rank of the table has in an epoch. */
static uint64_t rows_of(const table *t) {
    const uint64_t width = t->kind == PACK ? T : 1;
    if (t->steps > 0) return (uint64_t)t->steps * t->each * t->streams / t->world;
    return (n_list_[0] + width - 1) / width;
}

/* ---- lives ---- */

/* Run a table up to its end, or up to batch `stop`, whose state is taken. Returns the rows that
   came, or -1 if one was wrong. */
static int64_t run(const table *t, uint64_t stop, dlp_state *state) {
    uint64_t epoch = UINT64_MAX, batches = 0;
    int64_t rows = 0;
    bool ok = true, stopped = false;
    dlp_batch *b;
    dlp_pipe *p;
    dlp_error err;
    int rc = open_table(t, &p, &err);
    if (rc != DLP_OK) return printf("%s %s: %s\n", err.stage, err.field, err.message), -1;
    while (!stopped && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (b->epoch != epoch) write_down(t, epoch = b->epoch);
        ok &= batch_is(t, b);
        rows += b->count;
        stopped = ++batches == stop;
        if (stopped) ok &= dlp_pipe_state(p, b, state) == DLP_OK;
        dlp_pipe_release(p, b);
    }
    if (!stopped && rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
    ok &= stopped || rc == DLP_END;
    ok &= dlp_pipe_close(p) == DLP_OK;
    return ok ? rows : -1;
}

/* Return the rows of all epochs of a rank of the table. */
static uint64_t all_rows(const table *t) {
    uint64_t n = 0;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        write_down(t, e);
        n += rows_of(t);
    }
    return n;
}

static void say(const table *t) {
    printf("  %s, kind %d, streams %u, steps %u, rank %u of %u, workers %d%s%s%s\n",
           names_[t->order], t->kind, (unsigned)t->streams, (unsigned)t->steps, (unsigned)t->rank,
           (unsigned)t->world, (int)t->workers, t->async ? ", async" : "",
           t->processes ? ", processes" : "", t->resume ? ", resumed" : "");
}

/* Run all ranks of a table, one after the other: whole, and stopped and resumed. */
static void run_ranks(table t, uint64_t *random) {
    dlp_state state;
    uint64_t stop;
    for (t.rank = 0; t.rank < t.world; t.rank++) {
        const uint64_t all = all_rows(&t), of_rank = t.each * t.streams / t.world;
        int64_t before;
        bool ok = run(&t, 0, NULL) == (int64_t)all;
        stop = 1 + test_pick(random, (uint32_t)(all / of_rank));
        before = run(&t, stop, &state);
        t.resume = &state;
        ok &= before > 0 && run(&t, 0, NULL) == (int64_t)all - before;
        CHECK(ok);
        if (!ok) say(&t);
        t.resume = NULL;
    }
}

/* ---- cases ---- */

/* One stream before a filter that keeps all: index and position of each row are those of the table
   without the filter, in each epoch. A shuffled subset has another permutation there. */
static void filter__keeps_all__order_of_the_plain_table(void) {
    static uint64_t plain[EPOCHS * ITEMS][2];
    for (int order = 0; order < ORDERS; order++) {
        table t = {
            .order = order, .kind = PLAIN, .streams = 1, .world = 1, .each = 7, .workers = 2};
        uint64_t n[2] = {0, 0}, wrong = 0;
        if (order == SHUFFLED || order == RANGE) continue;
        for (; t.kind <= FILTER; t.kind++) {
            dlp_pipe *p;
            dlp_batch *b;
            dlp_error err;
            if (open_table(&t, &p, &err) != DLP_OK) {
                CHECK(err.code == DLP_OK);
                printf("%s: %s\n", err.field, err.message);
                return;
            }
            for (; dlp_pipe_next(p, &b) == DLP_OK; dlp_pipe_release(p, b))
                for (uint32_t i = 0; i < b->count; i++) {
                    const uint64_t *key = b->fields[1].data;
                    uint64_t *to = plain[n[t.kind]++];
                    /* a place of a subset has its index for a key, as before makers today */
                    const uint64_t k = order == PART ? 0 : key[i];
                    if (t.kind == FILTER) wrong += to[0] != b->index[i] || to[1] != k;
                    to[0] = b->index[i];
                    to[1] = k;
                }
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
        CHECK(n[0] == n[1] && n[0] == EPOCHS * places(order) && wrong == 0);
        if (wrong > 0) printf("  %s: %d rows differ\n", names_[order], (int)wrong);
    }
}

/* A third of the runs, each time the same, but in the long form. */
static bool left_out(int number) { return getenv("SOAK") == NULL && number % 3 != 0; }

/* Each order before each maker, with one stream up to its end, and with more over passes. */
static void makers__each_order__as_written_down(uint64_t seed) {
    for (int order = 0; order < ORDERS; order++)
        for (int kind = FILTER; kind < KINDS; kind++) {
            table t = {.order = order, .kind = kind, .streams = 1, .world = 1, .each = 5};
            t.workers = (int32_t)test_pick(&seed, 3);
            run_ranks(t, &seed);
            for (uint32_t world = 1; world <= 4; world += world) {
                if (left_out(order + kind + (int)(world % 4))) continue;
                t = (table){.order = order, .kind = kind, .world = world, .each = ROWS};
                t.streams = STREAMS;
                t.steps = 100 + test_pick(&seed, 60);
                t.workers = 1 + (int32_t)test_pick(&seed, 3);
                t.async = test_pick(&seed, 4) == 0;
                run_ranks(t, &seed);
            }
        }
    CHECK(seen_->wrong == 0);
}

/* Draws may miss the only item that a filter keeps in several passes, one after the other. */
static void draws__rare_item__come(void) {
    const table t = {
        .order = REPLACEMENT, .kind = RARE, .streams = 1, .world = 1, .each = 1, .steps = 16};
    CHECK(run(&t, 0, NULL) == EPOCHS * 16);
    CHECK(seen_->wrong == 0);
}

/* A state that one rank has saved serves 2 and 4 ranks. */
static void resume__other_ranks__go_on(uint64_t seed) {
    for (int order = 0; order < ORDERS; order++) {
        dlp_state state;
        table t = {.order = order, .kind = EXPAND, .streams = STREAMS, .steps = 120, .each = ROWS};
        const uint64_t stop = 1 + test_pick(&seed, 2 * t.steps - 1);
        t.world = 1;
        t.workers = 2;
        CHECK(run(&t, stop, &state) > 0);
        t.resume = &state;
        for (t.world = 2; t.world <= 4; t.world += 2)
            for (t.rank = 0; t.rank < t.world; t.rank++)
                CHECK(run(&t, 0, NULL) ==
                      (int64_t)((EPOCHS * t.steps - stop) * t.each * t.streams / t.world));
    }
}

/* Worker processes die in fetch. */
static void kills__of_processes__as_written_down(uint64_t seed) {
    for (int order = 0; order < ORDERS; order++) {
        table t = {.order = order, .streams = STREAMS, .world = 1, .each = ROWS, .processes = 1};
        if (left_out(order)) continue;
        t.kind = FILTER + (int)test_pick(&seed, KINDS - FILTER);
        t.steps = 60;
        t.workers = 2;
        seen_->kill_every = 150;
        run_ranks(t, &seed);
        seen_->kill_every = 0;
    }
    CHECK(seen_->kills > 6);
}

/* ---- branches ---- */

/* Two lists with an order each, joined, with or without an expand behind. */
typedef struct joint {
    int order[2], mix, behind, processes;
    uint32_t streams, steps, world, rank;
    int32_t workers;
    dlp_state *resume;
} joint;

static record alone_[2][STREAMS][MOST]; /* what a table of each list alone has, in an epoch */
static uint64_t n_alone_[2][STREAMS];

/* Return the items of list l: the second list is shorter, where its order lets it. */
static uint64_t joint_items(const joint *j, uint32_t l) {
    return l == 1 && (j->order[1] == WEIGHTED || j->order[1] == REPLACEMENT) ? ITEMS - 90 : ITEMS;
}

/* Read epoch `epoch` of list l of j, out of a table of that list alone. */
static void read_alone(const joint *j, uint32_t l, uint64_t epoch) {
    const int order = j->order[l];
    const table t = {.seed = order == MIXED ? SEED : inside_list_seed(SEED, l),
                     .items = joint_items(j, l),
                     .order = order,
                     .kind = FILTER,
                     .streams = j->streams,
                     .steps = j->steps,
                     .world = 1,
                     .each = ROWS};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    const uint32_t kills = seen_->kill_every;
    seen_->kill_every = 0; /* this process fetches */
    memset(n_alone_[l], 0, sizeof n_alone_[l]);
    if (open_table(&t, &p, &err) != DLP_OK) {
        CHECK(err.code == DLP_OK);
        return;
    }
    for (; dlp_pipe_next(p, &b) == DLP_OK; dlp_pipe_release(p, b))
        for (uint32_t i = 0; i < b->count && b->epoch == epoch; i++) {
            const uint32_t s = i / ROWS;
            alone_[l][s][n_alone_[l][s]++] =
                (record){b->index[i], ((const uint64_t *)b->fields[1].data)[i], 0};
        }
    CHECK(dlp_pipe_close(p) == DLP_OK); /* its worker looks ahead up to here */
    seen_->kill_every = kills;
}

static int fetch_of(void *user, dlp_item *it) {
    if (seen_->kill_every != 0) die();
    if (it->index >= ITEMS) __atomic_add_fetch(&seen_->wrong, 1, __ATOMIC_RELAXED);
    *(uint64_t *)it->data[0] = it->index;
    *(uint64_t *)it->data[1] = it->position;
    *(uint64_t *)it->data[2] = user == &alone_[1];
    return 0;
}

static int keep_all(void *user, const dlp_item *it) { return (void)user, (void)it, 1; }

static int open_joint(const joint *j, dlp_pipe **p, dlp_error *err) {
    static dlp_shm_desc shm = {.max_kills = 100};
    static const dlp_field fields[2][3] = {{{.name = "i", .dtype = DLP_U64},
                                            {.name = "p", .dtype = DLP_U64},
                                            {.name = "l", .dtype = DLP_U64}},
                                           {{.name = "i1", .dtype = DLP_U64},
                                            {.name = "p1", .dtype = DLP_U64},
                                            {.name = "l1", .dtype = DLP_U64}}};
    static const uint64_t weights[] = {2, 1};
    const dlp_sampler_desc s[2] = {sampler(j->order[0]), sampler(j->order[1])};
    const dlp_pipe_desc d = {.seed = SEED,
                             .epochs = EPOCHS,
                             .streams = j->streams,
                             .steps_per_epoch = j->steps,
                             .rank = j->rank,
                             .world_size = j->world,
                             .shm = j->processes ? &shm : NULL,
                             .resume = j->resume};
    static const char *const from[] = {"read", "read1", NULL};
    dlp_node nodes[8];
    uint32_t n = 0;
    for (int l = 0; l < 2; l++) {
        nodes[n] = (dlp_node){.name = l ? "list1" : "list", .verb = DLP_LIST};
        nodes[n++].list = list_of(j->order[l], joint_items(j, (uint32_t)l), &s[l]);
        nodes[n++] = (dlp_node){.name = from[l],
                                .verb = DLP_FETCH,
                                .fetch = {.fetch = fetch_of,
                                          .user = &alone_[l],
                                          .fields = fields[j->mix ? 0 : l],
                                          .n_fields = 3},
                                .workers = {.num_workers = j->workers,
                                            .placement = j->processes ? DLP_PLACE_PROCESSES : 0}};
    }
    nodes[n] = (dlp_node){.name = "join", .verb = j->mix ? DLP_MIX : DLP_ZIP, .from = from};
    if (j->mix) nodes[n].mix.weights = weights;
    n++;
    if (j->behind)
        nodes[n++] = (dlp_node){.name = "all", .verb = DLP_FILTER, .filter = {.keep = keep_all}};
    nodes[n++] = (dlp_node){.name = "batch",
                            .verb = DLP_BATCH,
                            .batch = {.batch_size = ROWS * j->streams, .copy_workers = 1}};
    return dlp_pipe_open(p, nodes, n, &d, err);
}

/* Count the rows of a batch that are not the next ones of their lists. next: [lists][streams] the
   place of the next item. */
static uint64_t joint_wrong(const joint *j, const dlp_batch *b, uint64_t next[2][STREAMS]) {
    const uint64_t of_rank = ROWS * j->streams / j->world;
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const uint64_t s = (j->rank * of_rank + i) / ROWS;
        for (uint32_t f = 0; f < b->n_fields; f += 3) {
            const uint64_t l = ((const uint64_t *)b->fields[f + 2].data)[i];
            const uint64_t at = next[l][s]++;
            const record *r = &alone_[l][s][at];
            wrong += at >= n_alone_[l][s] || ((const uint64_t *)b->fields[f].data)[i] != r->index ||
                     ((const uint64_t *)b->fields[f + 1].data)[i] != r->key;
        }
    }
    return wrong;
}

/* Run a rank whole, or from the state of batch `stop` on, of which a run before has seen those up
   to it. Returns the batches; UINT64_MAX: a row was wrong. */
static uint64_t run_joint(const joint *j, uint64_t stop, dlp_state *state,
                          uint64_t next[2][STREAMS], uint64_t *epoch) {
    uint64_t batches = 0, wrong = 0;
    bool stopped = false;
    dlp_batch *b;
    dlp_pipe *p;
    dlp_error err;
    int rc = open_joint(j, &p, &err);
    if (rc != DLP_OK) return printf("%s %s: %s\n", err.stage, err.field, err.message), UINT64_MAX;
    while (!stopped && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (b->epoch != *epoch) {
            *epoch = b->epoch;
            memset(next, 0, 2 * sizeof *next);
            for (uint32_t l = 0; l < 2; l++) read_alone(j, l, b->epoch);
        }
        wrong += joint_wrong(j, b, next);
        stopped = ++batches == stop;
        if (stopped) wrong += dlp_pipe_state(p, b, state) != DLP_OK;
        dlp_pipe_release(p, b);
    }
    if (!stopped && rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
    wrong += !stopped && rc != DLP_END;
    wrong += dlp_pipe_close(p) != DLP_OK;
    return wrong > 0 ? UINT64_MAX : batches;
}

static void branches__each_order__that_of_the_list_alone(uint64_t seed) {
    for (int k = 0; k < 4 * ORDERS; k++) {
        if (left_out(k)) continue;
        joint j = {.order = {k % ORDERS, (int)test_pick(&seed, ORDERS)},
                   .mix = k % 2,
                   .behind = (int)test_pick(&seed, 2),
                   .workers = 1 + (int32_t)test_pick(&seed, 2),
                   .streams = 1,
                   .world = 1};
        uint64_t next[2][STREAMS], epoch = UINT64_MAX, all, before, kept = seen_->kill_every;
        dlp_state state;
        if (k >= 2 * ORDERS) {
            j.streams = STREAMS;
            j.steps = 60 + test_pick(&seed, 60);
            j.world = 1 + test_pick(&seed, 2);
            j.rank = test_pick(&seed, j.world);
            j.processes = test_pick(&seed, 3) == 0;
        }
        seen_->kill_every = j.processes ? 150 : 0;
        all = run_joint(&j, 0, NULL, next, &epoch);
        epoch = UINT64_MAX;
        CHECK(all != UINT64_MAX && all > 2);
        before = run_joint(&j, 1 + test_pick(&seed, (uint32_t)all - 1), &state, next, &epoch);
        j.resume = &state;
        j.workers = 3 - j.workers;
        const uint64_t rest = run_joint(&j, 0, NULL, next, &epoch);
        CHECK(before + rest == all);
        if (before + rest != all)
            printf("  %s and %s, mix %d, behind %d, streams %u, rank %u of %u, processes %d\n",
                   names_[j.order[0]], names_[j.order[1]], j.mix, j.behind, (unsigned)j.streams,
                   (unsigned)j.rank, (unsigned)j.world, j.processes);
        seen_->kill_every = (uint32_t)kept;
    }
    CHECK(seen_->wrong == 0);
}

/* A state of a branch's order is refused by another one, which has as many places. */
static void branches__state_of_another_order__refused(void) {
    static const int other[][2] = {{WEIGHTED, REPLACEMENT}, {PART, WEIGHED}};
    for (uint32_t l = 0; l < 2; l++)
        for (int k = 0; k < 2; k++) {
            joint j = {.order = {PART, PART}, .mix = 1, .workers = 1, .streams = 1, .world = 1};
            uint64_t next[2][STREAMS], epoch = UINT64_MAX;
            dlp_state state;
            dlp_pipe *p = NULL;
            dlp_error err;
            j.order[l] = other[k][0];
            CHECK(run_joint(&j, 2, &state, next, &epoch) == 2);
            j.resume = &state;
            CHECK(open_joint(&j, &p, &err) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
            j.order[l] = other[k][1];
            CHECK(open_joint(&j, &p, &err) == DLP_ERR_RESUME);
        }
}

/* ---- what fails, and what is refused ---- */

static uint64_t past(void *user, uint64_t epoch, uint64_t position) {
    return (void)user, (void)epoch, position == 40 ? ITEMS : position;
}

static void function__past_the_end__error_of_its_row(void) {
    for (int how = 0; how < 4; how++) {
        const dlp_sampler_desc own = {.order = DLP_ORDER_FUNCTION, .function = past};
        const int async = how & 1;
        const table t = {.kind = how < 2 ? FILTER : PACK,
                         .streams = 1,
                         .world = 1,
                         .each = 8,
                         .workers = 1,
                         .async = async,
                         .own = &own};
        int n = 0, rc;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_error err;
        CHECK(open_table(&t, &p, &err) == DLP_OK);
        for (; (rc = dlp_pipe_next(p, &b)) == DLP_OK; n++) dlp_pipe_release(p, b);
        CHECK(rc == DLP_ERR_CALLBACK && (how >= 2 || n == 5));
        CHECK(strstr(dlp_pipe_error(p)->message, "the list has 300 items") != NULL);
        CHECK(dlp_pipe_error(p)->index == ITEMS);
        dlp_pipe_close(p);
    }
    CHECK(seen_->wrong == 0);
}

static int64_t next_list(void *user, uint64_t epoch, uint64_t *index, uint64_t most) {
    return (void)user, (void)epoch, (void)most, index[0] = 0, 0;
}

static uint64_t refused_seed = SEED; /* the pipe's */

static void refused(const dlp_node *nodes, uint32_t n, const char *field, const char *words) {
    const dlp_pipe_desc d = {.seed = refused_seed};
    dlp_plan plan;
    dlp_error err = {.code = 0};
    CHECK(dlp_nodes_plan(nodes, n, &d, &plan, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.stage, "list") == 0 && strcmp(err.field, field) == 0);
    CHECK(strstr(err.message, words) != NULL);
    if (strstr(err.message, words) == NULL) printf("%s: %s\n", err.field, err.message);
}

static int load(void *user, dlp_part *part) { return (void)user, (void)part, 0; }

static void lists__not_before_makers__refused(void) {
    const dlp_sampler_desc batches = {.order = DLP_ORDER_BATCHES, .batches = {.next = next_list}};
    const dlp_sampler_desc part = sampler(PART);
    dlp_node nodes[5] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS, .order = &batches}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = fields_, .n_fields = 2}},
        {.name = "make", .verb = DLP_FILTER, .filter = {.keep = keep}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    refused(nodes, 4, "list.order.order", "\"make\" makes items without numbers");
    nodes[0].list.order = &part;
    memmove(&nodes[2], &nodes[1], 3 * sizeof *nodes);
    nodes[1] = (dlp_node){.name = "load",
                          .verb = DLP_LOAD,
                          .load = {.load = load, .max_items = 4, .max_part_bytes = 64}};
    refused(nodes, 5, "list.order.subset", "before a load");
}

static dlp_pipe *range_open(int kind, int shuffle, int range, uint32_t workers, dlp_state *from) {
    static uint64_t own[SUBSET];
    static dlp_dataset ds = {.n_items = ITEMS, .fields = fields_, .n_fields = 2, .fetch = fetch};
    static const dlp_source source = {.dataset = &ds};
    const dlp_sampler_desc s = {.order = shuffle, .subset = own, .n_subset = SUBSET};
    const dlp_pipe_desc d = {.seed = SEED, .epochs = EPOCHS, .resume = from};
    dlp_node nodes[4] = {{.name = "list", .verb = DLP_LIST, .list = {.order = &s}},
                         {.name = "read",
                          .verb = DLP_FETCH,
                          .fetch = {.source = &source},
                          .workers = {.num_workers = (int32_t)workers}},
                         {.name = "make", .verb = DLP_FILTER, .filter = {.keep = keep}},
                         {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 7}}};
    dlp_pipe *p = NULL;
    dlp_error err;
    int rc;
    for (uint64_t i = 0; i < SUBSET; i++) own[i] = 17 + i;
    if (range)
        nodes[0].list =
            (dlp_node_list){.first = 16 + (uint64_t)range, .n_items = SUBSET, .shuffle = shuffle};
    if (kind == PLAIN) nodes[2] = nodes[3];
    rc = dlp_pipe_open(&p, nodes, kind == PLAIN ? 3 : 4, &d, &err);
    CHECK(rc == (from != NULL && range != 1 ? DLP_ERR_RESUME : DLP_OK));
    return p;
}

/* A range of a source gives the rows of a subset of its items, plain and before makers, also after
   a resume. Its states are not those of the subset. */
static void list__range__rows_of_the_subset(void) {
    for (int how = 0; how < 4; how++) {
        const int kind = how & 1 ? FILTER : PLAIN, shuffle = how / 2;
        dlp_pipe *p[2] = {range_open(kind, shuffle, 0, 1, NULL),
                          range_open(kind, shuffle, 1, 2, NULL)};
        dlp_batch *b[2];
        dlp_state state;
        int rc[2] = {0, 0}, n = 0;
        while (rc[0] == 0 && rc[1] == 0 && p[0] != NULL && p[1] != NULL) {
            for (int k = 0; k < 2; k++)
                if ((rc[k] = dlp_pipe_next(p[k], &b[k])) != DLP_OK) b[k] = NULL;
            if (b[0] == NULL || b[1] == NULL) break;
            CHECK(b[0]->count == b[1]->count && b[0]->epoch == b[1]->epoch);
            CHECK(memcmp(b[0]->index, b[1]->index, b[0]->count * 8u) == 0);
            CHECK(memcmp(b[0]->fields[1].data, b[1]->fields[1].data, b[0]->count * 8u) == 0);
            for (uint32_t i = 0; i < b[1]->count; i++)
                CHECK(b[1]->index[i] >= 17 && b[1]->index[i] < 17 + SUBSET);
            if (n == 3) CHECK(dlp_pipe_state(p[1], b[1], &state) == DLP_OK);
            for (int k = 0; k < 2; k++) dlp_pipe_release(p[k], b[k]);
            if (n++ != 3) continue;
            dlp_pipe_close(p[1]);
            CHECK(range_open(kind, shuffle, 0, 1, &state) == NULL);
            CHECK(range_open(kind, shuffle, 2, 1, &state) == NULL);
            p[1] = range_open(kind, shuffle, 1, 1, &state);
        }
        CHECK(rc[0] == DLP_END && rc[1] == DLP_END && n == 26);
        for (int k = 0; k < 2; k++) dlp_pipe_close(p[k]);
    }
}

static int two_items(void *user, dlp_part *part) {
    *(uint64_t *)part->data = part->index;
    part->items = 2;
    return (void)user, 0;
}

static int of_part(void *user, dlp_item *it) {
    *(uint64_t *)it->data[0] = *(const uint64_t *)it->part->data * 10 + it->part->item;
    *(uint64_t *)it->data[1] = 0;
    return (void)user, 0;
}

/* Parts of a range, before a filter. */
static void list__range_of_parts__their_items(void) {
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.first = 5, .n_items = 10}},
        {.name = "load",
         .verb = DLP_LOAD,
         .load = {.load = two_items, .max_items = 2, .max_part_bytes = 64}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = of_part, .fields = fields_, .n_fields = 2}},
        {.name = "all", .verb = DLP_FILTER, .filter = {.keep = keep_all}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 20}}};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    CHECK(dlp_pipe_open(&p, nodes, 5, &(dlp_pipe_desc){.epochs = 1}, &err) == DLP_OK);
    CHECK(dlp_pipe_next(p, &b) == DLP_OK && b->count == 20);
    for (uint32_t i = 0; i < 20; i++) {
        CHECK(b->index[i] == 5 + i / 2);
        CHECK(((const uint64_t *)b->fields[0].data)[i] == (5 + i / 2) * 10 + i % 2);
    }
    dlp_pipe_release(p, b);
    CHECK(dlp_pipe_next(p, &b) == DLP_END && dlp_pipe_close(p) == DLP_OK);
}

/* Parts of two ranges, in the branches of a mix: each item once in an epoch. */
static void list__ranges_of_parts_in_branches__their_items(void) {
    const dlp_node load = {.name = "load",
                           .verb = DLP_LOAD,
                           .load = {.load = two_items, .max_items = 2, .max_part_bytes = 64}};
    const dlp_node read = {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = of_part, .fields = fields_, .n_fields = 2}};
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        dlp_node nodes[] = {
            {.name = "list", .verb = DLP_LIST, .list = {.first = 5, .n_items = 10}},
            load,
            read,
            {.name = "later", .verb = DLP_LIST, .list = {.first = 25, .n_items = 10}},
            load,
            read,
            {.name = "mix", .verb = DLP_MIX, .from = (const char *const[]){"read", "read2", NULL}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 40}}};
        uint32_t came[35] = {0};
        dlp_pipe *p;
        dlp_batch *b;
        dlp_error err;
        nodes[4].name = "load2";
        nodes[5].name = "read2";
        nodes[0].list.shuffle = nodes[3].list.shuffle = shuffle;
        CHECK(dlp_pipe_open(&p, nodes, 8, &(dlp_pipe_desc){.epochs = 2}, &err) == DLP_OK);
        for (uint32_t e = 1; e <= 2; e++) {
            int rc = dlp_pipe_next(p, &b);
            CHECK(rc == DLP_OK);
            if (rc != DLP_OK) break;
            CHECK(b->count == 40);
            for (uint32_t i = 0; i < b->count; i++)
                if (b->index[i] < 35) came[b->index[i]]++;
            for (uint32_t k = 0; k < 35; k++)
                CHECK(came[k] == 2 * e * (k / 5 % 4 == 1 || k / 5 % 4 == 2));
            dlp_pipe_release(p, b);
        }
        dlp_pipe_close(p);
    }
}

static void list__range__refused(void) {
    static dlp_dataset ds = {.n_items = ITEMS, .fields = fields_, .n_fields = 2, .fetch = fetch};
    static const dlp_source source = {.dataset = &ds};
    const dlp_sampler_desc drawn = {.order = DLP_ORDER_REPLACEMENT}, part = sampler(PART);
    dlp_node nodes[3] = {{.name = "list", .verb = DLP_LIST},
                         {.name = "read", .verb = DLP_FETCH, .fetch = {.source = &source}},
                         {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    nodes[0].list = (dlp_node_list){.first = 250, .n_items = 51};
    refused(nodes, 3, "list.first", "is 250 and 51 items follow, but the source has 300 items");
    nodes[0].list.first = UINT64_C(1) << 49;
    refused(nodes, 3, "list.first", "0..2^48");
    nodes[0].list = (dlp_node_list){.first = 300};
    refused(nodes, 3, "list.first", "is 300 and 0 items follow");
    nodes[0].list = (dlp_node_list){.first = 1, .order = &drawn};
    refused(nodes, 3, "list.first", "or an order that draws");
    nodes[0].list.order = &part;
    refused(nodes, 3, "list.first", "0 with a mix, a subset");
    nodes[0].list = (dlp_node_list){.first = 1, .mix = mix_};
    refused(nodes, 3, "list.first", "0 with a mix");
    nodes[0].list = (dlp_node_list){.first = 1};
    nodes[1].fetch = (dlp_node_fetch){.fetch = fetch, .fields = fields_, .n_fields = 2};
    refused(nodes, 3, "list.n_items", "1..2^48");
    nodes[0].list.n_items = 9;
    nodes[1] = (dlp_node){.name = "load",
                          .verb = DLP_LOAD,
                          .load = {.load = load, .max_items = 4, .max_part_bytes = 64}};
    refused(nodes, 3, "list.first", "0 with weights, or before a load whose fetch has no filter");
    nodes[0].list.n_items = 0;
    nodes[1] = (dlp_node){.name = "read", .verb = DLP_FETCH, .fetch = {.source = &source, .of = 1}};
    refused(nodes, 3, "list.first", "0 with fetch.of");
}

/* The first row with a source says how many items there are; the others have as many. */
static void list__range_of_a_later_source__rows_or_words(void) {
    static dlp_dataset ds = {
        .n_items = ITEMS, .fields = fields_ + 1, .n_fields = 1, .fetch = fetch};
    static const dlp_source source = {.dataset = &ds};
    static dlp_dataset few = {.n_items = 9, .fields = fields_, .n_fields = 1, .fetch = fetch};
    static const dlp_source other = {.dataset = &few};
    dlp_node nodes[4] = {{.name = "list", .verb = DLP_LIST, .list = {.first = 250, .n_items = 50}},
                         {.name = "read",
                          .verb = DLP_FETCH,
                          .fetch = {.fetch = fetch, .fields = fields_, .n_fields = 1}},
                         {.name = "more", .verb = DLP_FETCH, .fetch = {.source = &source}},
                         {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    dlp_plan plan;
    CHECK(dlp_nodes_plan(nodes, 4, &(dlp_pipe_desc){.seed = SEED}, &plan, NULL) == DLP_OK);
    nodes[0].list.first = 251;
    refused(nodes, 4, "list.first", "is 251 and 50 items follow, but the source has 300 items");
    nodes[0].list.first = 3;
    nodes[1] = nodes[2];
    nodes[2] = (dlp_node){.name = "list", .verb = DLP_FETCH, .fetch = {.source = &other}};
    nodes[0].name = "items";
    refused(nodes, 4, "source.dataset.n_items", "n_items is 9, must be 300, as in the first fetch");
}

/* A desc that no order has is refused in the list of each branch, also beside a longer list. */
static void branches__bad_order__refused_in_each_list(void) {
    static const struct {
        dlp_sampler_desc order;
        const char *field, *words;
    } cases[] = {
        {{.order = 99}, "list.order.order", "order is 99"},
        {{.order = -1}, "list.order.order", "order is -1"},
        {{.order = DLP_ORDER_SHUFFLED, .samples_per_epoch = ITEMS},
         "list.order.samples_per_epoch",
         "0 for this order"},
        {{.order = DLP_ORDER_SEQUENTIAL, .samples_per_epoch = ITEMS},
         "list.order.samples_per_epoch",
         "0 for this order"},
        {{.order = DLP_ORDER_SEQUENTIAL, .n_subset = 4}, "list.order.n_subset", "without subset"},
        {{.order = DLP_ORDER_SHUFFLED, .weights = weights_}, "list.order.weights", "need order"},
        {{.order = DLP_ORDER_WEIGHTED}, "list.order.weights", "is NULL"}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t l = 0; l < 4; l++) { /* the list that has it; mix or zip */
            const uint32_t bad = l % 2 * 2;
            dlp_node nodes[6] = {
                {.verb = DLP_LIST, .list = {.n_items = ITEMS}},
                {.name = "a",
                 .verb = DLP_FETCH,
                 .fetch = {.fetch = fetch, .fields = fields_, .n_fields = 1}},
                {.verb = DLP_LIST, .list = {.n_items = ITEMS}},
                {.name = "b",
                 .verb = DLP_FETCH,
                 .fetch = {.fetch = fetch, .fields = fields_ + l / 2, .n_fields = 1}},
                {.name = "join",
                 .from = (const char *const[]){"a", "b", NULL},
                 .verb = l < 2 ? DLP_MIX : DLP_ZIP},
                {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
            nodes[2 - bad].name = "other";
            nodes[bad].name = "list";
            nodes[bad].list = (dlp_node_list){.n_items = ITEMS / 2, .order = &cases[i].order};
            refused(nodes, 6, cases[i].field, cases[i].words);
        }
}

/* Branches a and b, of which `list` has a mix. */
static void mix_in_a_branch(dlp_node *nodes, uint32_t list, const dlp_mix *mix) {
    static const char *const from[] = {"a", "b", NULL};
    const dlp_node all[6] = {{.name = list == 0 ? "list" : "other", .verb = DLP_LIST},
                             {.name = "a", .verb = DLP_FETCH},
                             {.name = list == 0 ? "other" : "list", .verb = DLP_LIST},
                             {.name = "b", .verb = DLP_FETCH},
                             {.name = "join", .from = from, .verb = DLP_ZIP},
                             {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    memcpy(nodes, all, sizeof all);
    for (uint32_t l = 0; l < 2; l++) {
        nodes[2 * l + 1].fetch =
            (dlp_node_fetch){.fetch = fetch, .fields = fields_ + l, .n_fields = 1};
        nodes[2 * l].list =
            l == list ? (dlp_node_list){.mix = mix} : (dlp_node_list){.n_items = ITEMS};
    }
}

/* The keys of a mix follow from its seed. A state has the seed of the pipe only, so each mix has
   that: without one in the desc, the seed of the first list. */
static void branches__mix_with_another_seed_than_the_pipe__refused(void) {
    dlp_node nodes[6];
    dlp_plan plan;
    dlp_error err = {.code = 0};
    mix_in_a_branch(nodes, 1, mix_);
    CHECK(dlp_nodes_plan(nodes, 6, &(dlp_pipe_desc){.seed = SEED}, &plan, &err) == DLP_OK);
    refused_seed = SEED + 1;
    refused(nodes, 6, "list.mix", "; set both alike");
    refused_seed = 0;
    refused(nodes, 6, "list.mix", ", and the pipe has seed 0; set both alike");
    nodes[0].list.order = &(dlp_sampler_desc){.order = DLP_ORDER_SHUFFLED, .seed = SEED};
    CHECK(dlp_nodes_plan(nodes, 6, &(dlp_pipe_desc){.seed = 0}, &plan, &err) == DLP_OK);
    mix_in_a_branch(nodes, 0, mix_);
    CHECK(dlp_nodes_plan(nodes, 6, &(dlp_pipe_desc){.seed = 0}, &plan, &err) == DLP_OK);
    refused_seed = SEED + 1;
    refused(nodes, 6, "list.mix", "; set both alike, or only the mix's");
    refused_seed = SEED;
}

/* An error of a mix whose source has another count names the mix: the row gave no count. */
static void mix__source_of_another_count__named_as_the_mix(void) {
    dlp_dataset ds = {.n_items = 40, .fields = fields_, .n_fields = 2, .fetch = fetch};
    const dlp_source source = {.dataset = &ds};
    dlp_node nodes[3] = {{.name = "list", .verb = DLP_LIST, .list = {.mix = mix_}},
                         {.name = "read", .verb = DLP_FETCH, .fetch = {.source = &source}},
                         {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    refused(nodes, 3, "list.mix",
            "n_items of the mix is 300, and the source of \"read\" has 40 items; set that number");
    nodes[1].fetch.of = 1;
    refused(nodes, 3, "list.mix", "n_items of the mix is 200, and the source");
    nodes[0].list = (dlp_node_list){.n_items = 50};
    nodes[1].fetch.of = 0;
    refused(nodes, 3, "list.n_items",
            "list.n_items is 50, and the source of \"read\" has 40 items; set 0, which takes that "
            "number");
}

int main(int argc, char **argv) {
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    static const uint64_t sets[] = {200, 100}, shares[] = {3, 1};
    const dlp_mix_desc mix = {.n = 2,
                              .shuffle = 1,
                              .n_items = sets,
                              .weights = shares,
                              .seed = SEED,
                              .samples_per_epoch = 270};
    seen_ = mmap(NULL, sizeof *seen_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint64_t i = 0; i < ITEMS; i++) weights_[i] = i % 7 == 0 ? 0 : 1 + i % 5;
    for (uint64_t i = 0; i < SUBSET; i++) subset_[i] = dlp_hash(9, i, 0, 0) % ITEMS;
    CHECK(dlp_mix_open(&mix_, &mix, NULL) == DLP_OK);
    for (int order = 0; order < ORDERS; order++)
        if (draws(order)) read_draws(order);
    filter__keeps_all__order_of_the_plain_table();
    makers__each_order__as_written_down(seed);
    draws__rare_item__come();
    resume__other_ranks__go_on(seed);
    kills__of_processes__as_written_down(seed);
    branches__each_order__that_of_the_list_alone(seed);
    branches__state_of_another_order__refused();
    function__past_the_end__error_of_its_row();
    lists__not_before_makers__refused();
    list__range__rows_of_the_subset();
    list__range_of_parts__their_items();
    list__ranges_of_parts_in_branches__their_items();
    list__range__refused();
    list__range_of_a_later_source__rows_or_words();
    branches__bad_order__refused_in_each_list();
    branches__mix_with_another_seed_than_the_pipe__refused();
    mix__source_of_another_count__named_as_the_mix();
    dlp_mix_close(mix_);
    return test_end("list_orders");
}
