/* needs: parts pack cache pictures */
/* Tables whose makers stand behind each other in one cell: load, fetch, maps, filters, later
   fetches, and up to three expands, drawn at random. A batch is what one expand gives that runs the
   same as a plain program: whatever the workers, threads or processes, whoever dies; resumed after
   any batch. A load in a load, too. A verb that fails is named with its input. A cache behind the
   makers keeps what they make of an input.
     stacks [N [SEED]]     N tables, drawn from that seed on */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../rig/keyed.h"

enum { ITEMS = 60, MOST_ROWS = 9, TAIL = 10, PART = 5, BATCHES = 2000, EXTRA = 6 };
enum { IN_PLACE, ADDS, KEEPS, FETCHES, EXPANDS };

static int well(int ok) {
    CHECK(ok);
    return ok;
}

typedef struct verb {
    int kind;
    uint32_t number;  /* of the row */
    uint32_t max_out; /* of an expand */
    int own;          /* an expand has fields of its own */
    char name[16];
} verb;

static struct {
    int loads; /* 0: no; 1: the counts are given; 2: load counts */
    int shuffles_items, reads;
    int shuffles_made; /* shuffle_items of an expand */
    int tight;         /* the last expand has max_bytes */
    uint64_t cache;    /* bytes of a cache behind the makers; 0: none */
    uint32_t n;
    verb rows[MOST_ROWS];
    uint32_t batch, streams, window;
    int shuffle, last;
    int64_t steps;
    uint64_t seed;
} how;

static struct shared { uint32_t calls, kills, reads, tried[ITEMS]; } * all;

static struct {
    uint32_t kill_every;            /* calls */
    uint32_t fails, input, attempt; /* this row fails for this input, in so many attempts */
    int left_out;                   /* the plain program leaves it out */
} bad;
static pid_t caller;

/* ---- what is in an item ---- */

typedef struct item {
    uint64_t x, index, epoch, extra[EXTRA];
    uint64_t key; /* of its random numbers */
    uint32_t n_extra;
} item;

static uint64_t first_of(uint64_t index, uint64_t k) { return dlp_hash(how.seed, index, k, 1); }
static uint64_t part_items(uint64_t index) { return dlp_hash(how.seed, index, 2, 2) % (PART + 1); }
static uint64_t changed(uint64_t x) { return x * 3 + 1; }
static uint64_t added(uint64_t x, uint32_t row) { return dlp_hash(x, row, 3, 3); }
static uint64_t fetched(uint64_t index, uint32_t row) { return dlp_hash(index, row, 4, 4); }
static int kept(uint64_t x, uint32_t row) { return dlp_hash(x, row, 5, 5) % 4 != 0; }
static int skips(uint64_t x, uint32_t at) { return dlp_hash(x, at, 8, 8) % 9 == 0; }
static uint64_t made(uint64_t x, uint32_t row, uint64_t i) { return dlp_hash(x, row, 6, i); }
static uint64_t makes(uint64_t x, const verb *r) {
    return dlp_hash(x, r->number, 7, 7) % (r->max_out + 1);
}

static void die_now_and_then(void) {
    const uint32_t call = __atomic_add_fetch(&all->calls, 1, __ATOMIC_RELAXED);
    if (bad.kill_every == 0 || call % bad.kill_every != 0 || getpid() == caller) return;
    __atomic_add_fetch(&all->kills, 1, __ATOMIC_RELAXED);
    kill(getpid(), SIGKILL);
}

/* The fields that each level begins with. */
static void put(void *const *data, uint64_t *length, uint64_t x) {
    *(uint64_t *)data[0] = x;
    memset(data[1], 0, TAIL);
    memset(data[1], (int)(x & 0xff), x % TAIL);
    length[1] = x % TAIL;
}
static uint64_t x_of(const dlp_item *it) {
    const uint64_t x = *(const uint64_t *)it->data[0];
    CHECK(it->length[1] == x % TAIL);
    return x;
}

static int fails(const dlp_item *it, const verb *r) {
    die_now_and_then();
    return bad.fails == r->number && it->index == bad.input && it->attempt < bad.attempt;
}

/* Write over all of an item that a callback may write over: nobody else sees it. */
static int spoiled(dlp_item *it, int rc) {
    for (uint32_t f = 0; f < it->n_fields; f++) it->data[f] = NULL;
    memset(it, 0xff, sizeof *it);
    return rc;
}

/* ---- the rows' callbacks ---- */

static int read_item(void *user, dlp_item *it) {
    uint64_t number = 0;
    (void)user;
    die_now_and_then();
    __atomic_add_fetch(&all->reads, 1, __ATOMIC_RELAXED);
    if (how.loads) {
        number = ((const uint64_t *)it->part->data)[it->part->item];
        CHECK(it->part->index == it->index && it->part->items == part_items(it->index));
    }
    CHECK(it->n_fields == 2);
    put(it->data, it->length, first_of(it->index, number));
    return spoiled(it, skips(first_of(it->index, number), 99) ? DLP_SKIP : 0);
}

static int load(void *user, dlp_part *part) {
    (void)user;
    die_now_and_then();
    if (how.loads == 1) CHECK(part->items == part_items(part->index));
    part->items = part_items(part->index);
    for (uint64_t i = 0; i < part->items; i++) ((uint64_t *)part->data)[i] = i + 100;
    part->bytes = part->items * 8;
    return 0;
}

static int count(void *user, uint64_t part, uint64_t *items) {
    (void)user;
    *items = part_items(part);
    return 0;
}

static int change(void *user, dlp_item *it) {
    const verb *r = user;
    if (fails(it, r)) return dlp_fail(it->call, 5, "no change");
    if (skips(x_of(it), r->number)) return DLP_SKIP;
    put(it->data, it->length, changed(x_of(it)));
    if (r->kind == ADDS) {
        uint64_t *to = it->data[it->n_fields - 1];
        CHECK(*to == 0);
        *to = added(x_of(it), r->number) ^ dlp_item_random(it, 9);
    }
    return spoiled(it, 0);
}

static int keep(void *user, const dlp_item *it) {
    const verb *r = user;
    if (fails(it, r)) return dlp_fail(it->call, 5, "no taste");
    return kept(x_of(it), r->number);
}

static int fetch_later(void *user, dlp_item *it) {
    const verb *r = user;
    CHECK(it->n_fields == 1 && *(uint64_t *)it->data[0] == 0);
    if (fails(it, r)) return dlp_fail(it->call, 5, "no fetch");
    *(uint64_t *)it->data[0] = fetched(it->index, r->number);
    return spoiled(it, 0);
}

static int expand(void *user, dlp_expand *x) {
    const verb *r = user;
    const uint64_t from = x_of(x->item);
    for (uint64_t i = 0; i < makes(from, r); i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        put(it->data, it->length, made(from, r->number, i));
        spoiled(it, 0);
    }
    if (fails(x->item, r)) return dlp_fail(x->call, 5, "no items");
    return skips(from, r->number) ? DLP_SKIP : 0;
}

/* ---- the plain program ---- */

/* As dlp_item_random has it with 9. */
static uint64_t random_of(const item *it) {
    return mixed(mixed(keyed(5, how.seed, it->epoch), it->key), 9);
}

typedef struct sink {
    int (*item)(void *to, const item *it);
    void *to;
} sink;

static int plain(uint32_t at, item it, const sink *s) {
    int rc = 0;
    for (; at < how.n; at++) {
        const verb *r = &how.rows[at];
        if (bad.left_out && bad.fails == r->number && it.index == bad.input) return 0;
        if (r->kind != KEEPS && r->kind != FETCHES && skips(it.x, r->number)) return 0;
        if (r->kind == IN_PLACE || r->kind == ADDS) it.x = changed(it.x);
        if (r->kind == ADDS) it.extra[it.n_extra++] = added(it.x, r->number) ^ random_of(&it);
        if (r->kind == FETCHES) it.extra[it.n_extra++] = fetched(it.index, r->number);
        if (r->kind == KEEPS && !kept(it.x, r->number)) return 0;
        if (r->kind != EXPANDS) continue;
        for (uint64_t i = 0; i < makes(it.x, r) && rc == 0; i++) {
            item next = {.x = made(it.x, r->number, i),
                         .index = it.index,
                         .epoch = it.epoch,
                         .key = mixed(it.key, i + 1)};
            if (!r->own) next.n_extra = it.n_extra;
            rc = plain(at + 1, next, s);
        }
        return rc;
    }
    return s->item(s->to, &it);
}

static int plain_input(uint64_t index, uint64_t epoch, uint64_t pass, const sink *s) {
    const uint64_t n = how.loads ? part_items(index) : 1;
    int rc = 0;
    for (uint64_t k = 0; k < n && rc == 0; k++) {
        uint64_t at = k;
        if (how.loads && how.shuffles_items && n > 1)
            at = permuted(n, mixed(keyed(35, how.seed, index), pass), epoch, k);
        const uint64_t place = pass * ITEMS + index;
        const item it = {.x = first_of(index, how.loads ? at + 100 : 0),
                         .index = index,
                         .epoch = epoch,
                         .key = how.loads ? mixed(place, at + 1) : place};
        if (!skips(it.x, 99)) rc = plain(0, it, s);
    }
    return rc;
}

static int add_plain(void *to, const item *it) {
    dlp_item *out = dlp_expand_add(to);
    if (out == NULL) return DLP_ERR_LENGTH;
    put(out->data, out->length, it->x);
    for (uint32_t i = 0; i < it->n_extra; i++) *(uint64_t *)out->data[2 + i] = it->extra[i];
    return 0;
}

/* All rows in one expand. */
static int expand_all(void *user, dlp_expand *x) {
    const sink s = {add_plain, x};
    (void)user;
    return plain_input(x->item->index, x->item->epoch, x->item->position / ITEMS, &s);
}

/* ---- tables ---- */

static const dlp_field base[2] = {
    {.name = "x", .dtype = DLP_U64},
    {.name = "tail", .dtype = DLP_U8, .ndim = 1, .shape = {TAIL}, .ragged = 1}};
static dlp_field fields_of_rows[MOST_ROWS];

static uint32_t draw_below(uint64_t *h, uint32_t n) {
    *h = dlp_hash(*h, 1, 2, 3);
    return (uint32_t)(*h % n);
}

static void draw_rows(uint64_t *h) {
    uint32_t extra = 0, expands = 0, last = 0;
    how.n = 1 + draw_below(h, MOST_ROWS - 1);
    for (uint32_t i = 0; i < how.n; i++) {
        verb *r = &how.rows[i];
        *r = (verb){.kind = (int)draw_below(h, 5), .number = i};
        if (r->kind == EXPANDS && expands == 3) r->kind = KEEPS;
        if ((r->kind == ADDS || r->kind == FETCHES) && extra == EXTRA) r->kind = IN_PLACE;
        extra += r->kind == ADDS || r->kind == FETCHES;
        r->max_out = 1 + draw_below(h, 3);
        r->own = (int)draw_below(h, 2);
        if (r->kind == EXPANDS && r->own) extra = 0;
        expands += r->kind == EXPANDS;
        if (r->kind >= KEEPS && r->kind != FETCHES) last = i + 1;
        snprintf(r->name, sizeof r->name, "row%u", i);
        fields_of_rows[i] = (dlp_field){.name = r->name, .dtype = DLP_U64};
    }
    how.n = last;
    if (last == 0) how.rows[how.n++].kind = KEEPS;
}

static void draw(uint64_t seed) {
    uint64_t h = seed;
    memset(&how, 0, sizeof how);
    memset(&bad, 0, sizeof bad);
    bad.fails = UINT32_MAX;
    how.seed = seed + 1;
    how.loads = (int)draw_below(&h, 3);
    how.shuffles_items = (int)draw_below(&h, 2);
    how.reads = how.loads ? 0 : (int)draw_below(&h, 2) * 5;
    how.shuffle = (int)draw_below(&h, 2);
    how.streams = 1 + draw_below(&h, 2);
    how.batch = how.streams * (1 + draw_below(&h, 7));
    how.window = draw_below(&h, 3) ? 0 : 1 + draw_below(&h, 9);
    how.steps = draw_below(&h, 3) ? 0 : 9;
    how.last = how.streams == 1 && how.steps == 0 ? DLP_LAST_PARTIAL : DLP_LAST_DROP;
    draw_rows(&h);
    how.tight = (int)(dlp_hash(seed, 9, 9, 9) % 2);
    how.cache = draw_below(&h, 3) ? 0 : UINT64_C(1) << (18 + draw_below(&h, 6));
    if (how.cache && how.loads) how.shuffles_items = 0;
    if (how.cache && how.loads == 2 && draw_below(&h, 4) == 0) how.n = 0; /* parts alone */
}

/* The fields of rows beside the first two. */
static uint32_t extra_fields(dlp_field *to) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < how.n; i++) {
        const verb *r = &how.rows[i];
        if (r->kind == EXPANDS && r->own) n = 0;
        if (r->kind == ADDS || r->kind == FETCHES) to[n++] = fields_of_rows[i];
    }
    return n;
}

/* Return max_bytes of an expand. In half of the tables the last expand has it: an item is shorter
   than its declared size by a byte of its tail at least. */
static uint64_t bytes_of(const verb *r) {
    dlp_field extra[MOST_ROWS];
    uint64_t most = how.loads == 2 ? PART : 1;
    const uint64_t one = 8 + TAIL + 8 * extra_fields(extra);
    for (uint64_t i = 0; how.loads == 1 && i < ITEMS; i++) /* parts are counted */
        if (part_items(i) > most) most = part_items(i);
    for (uint32_t i = 0; i < how.n; i++) {
        if (how.rows[i].kind != EXPANDS) continue;
        if (&how.rows[i] > r) return 0;
        most *= how.rows[i].max_out;
    }
    return !how.tight ? 0 : most > 1 ? most * (one - 1) : one;
}

static dlp_node node_of(const verb *r) {
    dlp_node node = {.name = r->name};
    void *user = (void *)(uintptr_t)r;
    const dlp_field *own = &fields_of_rows[r->number];
    if (r->kind == IN_PLACE || r->kind == ADDS) {
        node.verb = DLP_MAP;
        node.map =
            (dlp_node_map){change, NULL, user, r->kind == ADDS ? own : NULL, r->kind == ADDS, NULL};
    } else if (r->kind == KEEPS) {
        node.verb = DLP_FILTER;
        node.filter = (dlp_node_filter){keep, user, 0};
    } else if (r->kind == FETCHES) {
        node.verb = DLP_FETCH;
        node.fetch =
            (dlp_node_fetch){.fetch = fetch_later, .user = user, .fields = own, .n_fields = 1};
    } else {
        node.verb = DLP_EXPAND;
        node.expand = (dlp_node_expand){.expand = expand,
                                        .user = user,
                                        .max_out = r->max_out,
                                        .fields = r->own ? base : NULL,
                                        .n_fields = r->own ? 2 : 0,
                                        .shuffle_items = how.shuffles_made,
                                        .max_bytes = bytes_of(r)};
    }
    return node;
}

/* ---- an asynchronous source that answers in another order ---- */

typedef struct store {
    dlp_item *held[8];
    uint32_t n, calls;
} store;

static int store_open(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    return (*state = calloc(1, sizeof(store))) == NULL;
}
static void store_close(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    free(state);
}
static int submit(void *user, void *state, dlp_item *it) {
    store *s = state;
    (void)user;
    if (s->n == 8) return DLP_FULL;
    s->held[s->n++] = it;
    return 0;
}
static int reap(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    store *s = state;
    int n = 0;
    (void)ms;
    for (uint32_t k = s->n > 0 ? 1 + s->calls++ % s->n : 0; k > 0 && n < max; k--, n++) {
        const uint32_t at = s->calls * 7 % s->n;
        done[n] = s->held[at];
        s->held[at] = s->held[--s->n];
        code[n] = read_item(user, done[n]);
    }
    return n;
}
static const dlp_async source = {.submit = submit, .reap = reap};

static dlp_node list_node(void) {
    return (dlp_node){
        .name = "inputs", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = how.shuffle}};
}

/* What stands behind the makers. */
static uint32_t table_end(dlp_node *to) {
    uint32_t n = 0;
    if (how.window > 0)
        to[n++] = (dlp_node){.name = "mixed", .verb = DLP_WINDOW, .window = {.items = how.window}};
    to[n++] = (dlp_node){
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = how.batch, .last = how.last}};
    return n;
}

/* The rows as nodes, each. w: of one of them. */
static uint32_t table(dlp_node *to, const dlp_workers_desc *w) {
    uint32_t n = 0;
    to[n++] = list_node();
    if (how.loads)
        to[n++] = (dlp_node){.name = "load",
                             .verb = DLP_LOAD,
                             .load = {.load = load,
                                      .count = how.loads == 1 ? count : NULL,
                                      .max_items = how.loads == 2 ? PART : 0,
                                      .max_part_bytes = 8 * PART,
                                      .shuffle_items = how.shuffles_items}};
    to[n++] = (dlp_node){.name = "read",
                         .verb = DLP_FETCH,
                         .fetch = {.fetch = read_item, .fields = base, .n_fields = 2},
                         .workers = *w};
    if (how.reads && w->num_workers != DLP_NONE) {
        to[n - 1].fetch.fetch = NULL;
        to[n - 1].fetch.async = &source;
        to[n - 1].fetch.in_flight = (uint32_t)how.reads;
        to[n - 1].workers.worker_init = store_open;
        to[n - 1].workers.worker_exit = store_close;
    }
    for (uint32_t i = 0; i < how.n; i++) to[n++] = node_of(&how.rows[i]);
    if (how.cache)
        to[n++] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = how.cache}};
    return n + table_end(to + n);
}

/* One expand that does it all. */
static uint32_t table_plain(dlp_node *to) {
    static dlp_field fields[2 + EXTRA];
    memcpy(fields, base, sizeof base);
    to[0] = list_node();
    to[1] = (dlp_node){.name = "all",
                       .verb = DLP_EXPAND,
                       .expand = {.expand = expand_all,
                                  .max_out = PART * 27,
                                  .fields = fields,
                                  .n_fields = 2 + extra_fields(fields + 2)},
                       .workers = {.num_workers = DLP_NONE}};
    return 2 + table_end(to + 2);
}

/* ---- a run ---- */

typedef struct told {
    uint32_t n;
    int rc;
    uint64_t rows, hash[BATCHES];
    dlp_state state[BATCHES];
    dlp_error err;
    dlp_stats stats;
    dlp_skip skips[4];
    uint32_t n_skips;
} told;

static uint64_t hash_of(const dlp_batch *b, uint64_t *rows) {
    uint64_t h = b->count;
    for (uint32_t r = 0; r < b->count; r++) h = dlp_hash(h, b->index[r], b->valid[r], 0);
    for (uint32_t f = 0; f < b->n_fields; f++) {
        const dlp_tensor *t = &b->fields[f];
        for (uint64_t i = 0; i < t->bytes; i++)
            h = dlp_hash(h, ((const uint8_t *)t->data)[i], i, f);
        for (uint32_t r = 0; t->lengths && r < b->count; r++) h = dlp_hash(h, t->lengths[r], r, f);
    }
    for (uint32_t r = 0; r < b->count; r++) *rows += b->valid[r];
    return h;
}

static void run(const dlp_node *nodes, uint32_t n, const dlp_state *resume, told *t) {
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, .max_kills = 100};
    const dlp_pipe_desc desc = {.seed = how.seed,
                                .epochs = 2,
                                .streams = how.streams,
                                .steps_per_epoch = how.steps,
                                .resume = resume,
                                .shm = &shm};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    memset(t, 0, sizeof *t);
    t->rc = dlp_pipe_open(&p, nodes, n, &desc, &t->err);
    if (t->rc != DLP_OK) return;
    while ((t->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK && t->n < BATCHES) {
        t->hash[t->n] = hash_of(b, &t->rows);
        CHECK(dlp_pipe_state(p, b, &t->state[t->n++]) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    t->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_stats(p, &t->stats) == DLP_OK);
    t->n_skips = (uint32_t)dlp_pipe_skips(p, t->skips, 4, NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* The batches of a from its first on are those of b from `from` on. states: these, too. */
static int alike(const told *a, const told *b, uint32_t from, int states) {
    const size_t n = a->n;
    return a->rc == b->rc && a->n == b->n - from &&
           memcmp(a->hash, b->hash + from, n * sizeof *a->hash) == 0 &&
           (!states || memcmp(a->state, b->state + from, n * sizeof *a->state) == 0);
}

/* Epochs that end, and have a batch. */
static int ran(const told *t) { return t->rc == DLP_END && t->n > 0; }

static void print(uint64_t seed, const char *what, const told *got, const told *want) {
    static const char *const kinds[] = {"map", "map+", "filter", "fetch", "expand"};
    printf("  seed %d, %s: %u batches (%d), not %u (%d): %s %s; loads %d:", (int)seed, what, got->n,
           got->rc, want->n, want->rc, got->err.stage, got->err.message, how.loads);
    for (uint32_t i = 0; i < how.n; i++) printf(" %s", kinds[how.rows[i].kind]);
    puts("");
}

static told want, first, got;

/* Returns 0: that table has no batch, or none for ever. */
static int same_as_plain(uint64_t seed) {
    const int32_t workers[] = {DLP_NONE, 1, 4, 1, 3};
    dlp_node nodes[16];
    draw(seed);
    run(nodes, table_plain(nodes), NULL, &want);
    for (uint32_t i = 0; i < 5; i++) {
        const dlp_workers_desc w = {.num_workers = workers[i],
                                    .placement = i > 2 ? DLP_PLACE_PROCESSES : 0};
        run(nodes, table(nodes, &w), NULL, i == 0 ? &first : &got);
        if (!well(alike(i == 0 ? &first : &got, &want, 0, 0) &&
                  (i == 0 || alike(&got, &first, 0, 1)))) {
            print(seed, "workers", i == 0 ? &first : &got, &want);
            return 0;
        }
    }
    return ran(&want);
}

static void resumed(uint64_t seed) {
    dlp_node nodes[16];
    for (uint32_t k = 0; k + 1 < want.n; k += 1 + want.n / 12) {
        const dlp_workers_desc w = {.num_workers = k % 4 == 0 ? DLP_NONE : (int32_t)(k % 4)};
        run(nodes, table(nodes, &w), &first.state[k], &got);
        if (!well(alike(&got, &first, k + 1, 1))) print(seed, "resumed", &got, &want);
    }
}

static void killed(uint64_t seed) {
    const dlp_workers_desc w = {.num_workers = 3, .placement = DLP_PLACE_PROCESSES};
    dlp_node nodes[16];
    all->calls = 0;
    bad.kill_every = 101 + (uint32_t)(seed % 97);
    run(nodes, table(nodes, &w), NULL, &got);
    bad.kill_every = 0;
    if (!well(alike(&got, &first, 0, 1))) print(seed, "killed", &got, &want);
}

/* The row fails for ever. Items of that input are left out if they are made by a row above it, else
   the input is. All others come as they would without them. */
static void left_out(uint64_t seed, const char *node) {
    static told left;
    dlp_workers_desc w = {
        .num_workers = 2, .retries = 1, .max_skips = 100, .on_error = DLP_ON_ERROR_DROP};
    dlp_node nodes[16];
    bad.attempt = 1; /* it is tried again before that */
    run(nodes, table(nodes, &w), NULL, &got);
    if (!well(alike(&got, &first, 0, 1))) print(seed, "once", &got, &first);
    bad.attempt = UINT32_MAX;
    bad.left_out = 1;
    run(nodes, table_plain(nodes), NULL, &left);
    bad.left_out = 0;
    if (seed % 3 == 0) w.placement = DLP_PLACE_PROCESSES, bad.kill_every = 151;
    run(nodes, table(nodes, &w), NULL, &got);
    bad.kill_every = 0;
    if (!well(alike(&got, &left, 0, 0) && got.n_skips > 0)) print(seed, "left out", &got, &left);
    for (uint32_t i = 0; i < got.n_skips; i++) {
        CHECK(got.skips[i].index == bad.input && got.skips[i].code == DLP_ERR_CALLBACK);
        CHECK(strstr(got.skips[i].message, node) != NULL ||
              strcmp(got.stats.stages[got.skips[i].stage].name, how.rows[bad.fails].name) == 0);
    }
}

/* Each row fails for an input of which it has an item: twice, which is tried again, or for ever. */
static void failing(uint64_t seed) {
    dlp_node nodes[16];
    for (bad.fails = 0; bad.fails < how.n; bad.fails++) {
        const char *name = how.rows[bad.fails].name;
        const dlp_workers_desc w = {.num_workers = 2, .retries = 2};
        char node[40];
        bad.input = (uint32_t)(seed % ITEMS);
        bad.attempt = 2;
        run(nodes, table(nodes, &w), NULL, &got);
        if (!well(alike(&got, &first, 0, 1))) print(seed, "tried again", &got, &want);
        bad.attempt = UINT32_MAX;
        run(nodes, table(nodes, &w), NULL, &got);
        if (got.rc == DLP_END) continue; /* no item of the input came so far */
        snprintf(node, sizeof node, "\"%s\"", name);
        CHECK(memcmp(got.hash, first.hash, got.n * sizeof *got.hash) == 0);
        if (!well(got.rc == DLP_ERR_CALLBACK && got.err.index == bad.input &&
                  (strstr(got.err.message, node) || strcmp(got.err.stage, name) == 0)))
            print(seed, "fails", &got, &want);
        if (how.window == 0) left_out(seed, node);
    }
    bad.fails = UINT32_MAX;
}

/* ---- a cache behind makers ---- */

static int keep_all(void *user, const dlp_item *it) {
    (void)user;
    return it != NULL;
}
static int keep_even(void *user, const dlp_item *it) {
    (void)user;
    return x_of(it) % 2 == 0;
}

static void draw_cached(uint64_t seed, uint64_t bytes, int first_kind) {
    draw(seed);
    for (uint32_t i = 0; i < how.n; i++)
        if (how.rows[i].kind == ADDS) how.rows[i].kind = IN_PLACE;
    if (how.n == 0) how.rows[how.n++].kind = KEEPS;
    how.rows[how.n] = (verb){KEEPS, how.n, 0, 0, "last"};
    how.n += how.n < MOST_ROWS;
    how.rows[0].kind = first_kind;
    how.shuffles_items = how.reads = 0;
    how.window = 0;
    how.steps = 0;
    how.streams = 1;
    how.last = DLP_LAST_PARTIAL;
    how.cache = bytes;
}

/* Runs the table with and without the cache. Returns the reads of both. */
static void cached_and_not(int32_t workers, uint32_t *with, uint32_t *without) {
    const dlp_workers_desc w = {.num_workers = workers};
    const uint64_t bytes = how.cache;
    dlp_node nodes[16];
    how.cache = 0;
    all->reads = 0;
    run(nodes, table(nodes, &w), NULL, &want);
    *without = all->reads;
    how.cache = bytes;
    all->reads = 0;
    run(nodes, table(nodes, &w), NULL, &got);
    *with = all->reads;
    if (!well(alike(&got, &want, 0, 1))) print(how.seed - 1, "cached", &got, &want);
}

static void stacks__cached__the_second_epoch_reads_nothing(void) {
    uint32_t with, without;
    for (uint64_t seed = 0; seed < 12; seed++) {
        draw_cached(seed, 1 << 24, KEEPS);
        cached_and_not(DLP_NONE, &with, &without);
        if (want.rc != DLP_END) continue;
        CHECK(got.stats.cache_hits == ITEMS && got.stats.cache_misses == ITEMS);
        CHECK(with == without / 2);
        cached_and_not(4, &with, &without); /* some may be claimed before they are kept */
        CHECK(got.stats.cache_hits + got.stats.cache_misses == 2 * ITEMS);
        CHECK(got.stats.cache_hits >= ITEMS - 8 && got.stats.cache_hits <= ITEMS);
    }
    draw_cached(2, 1 << 24, KEEPS);
    how.loads = 0;
    how.reads = 5; /* requests are not begun for what is kept */
    cached_and_not(1, &with, &without);
    CHECK(want.rc == DLP_END && with <= without / 2 + 5 && got.stats.cache_hits >= ITEMS - 5);
    draw_cached(1, 1 << 24, EXPANDS);
    how.loads = 0;
    how.n = 1;
    how.shuffles_made = 1; /* in another order in each epoch */
    cached_and_not(2, &with, &without);
    CHECK(got.stats.cache_hits > 0);
}

/* What draws random numbers is not kept, nor what there is no room for. */
static void stacks__cached__random_and_above_the_budget_are_not_kept(void) {
    uint32_t with, without;
    uint64_t cell;
    draw_cached(3, 1 << 24, ADDS);
    how.loads = 0;
    cached_and_not(DLP_NONE, &with, &without);
    CHECK(want.rc == DLP_END && got.stats.cache_hits < ITEMS / 2 && with > without * 3 / 4);
    draw_cached(3, 1 << 24, KEEPS);
    cached_and_not(DLP_NONE, &with, &without);
    cell = got.stats.cache_capacity / ITEMS;
    how.cache = 11 * cell + cell / 2;
    cached_and_not(DLP_NONE, &with, &without);
    CHECK(got.stats.cache_capacity == 11 * cell && got.stats.cache_bytes == 11 * cell);
    CHECK(got.stats.cache_all_bytes == ITEMS * cell && got.stats.cache_hits == 11);
}

static int add_epoch(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] += it->epoch * 1000000;
    return 0;
}
static int read_index(void *user, dlp_item *it) {
    (void)user;
    __atomic_add_fetch(&all->reads, 1, __ATOMIC_RELAXED);
    put(it->data, it->length, it->index);
    return 0;
}

/* Rows behind the cache run in each epoch. */
static void stacks__map_behind_the_cache__runs_in_each_epoch(void) {
    dlp_node nodes[] = {
        {.name = "inputs", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_index, .fields = base, .n_fields = 2}},
        {.name = "even", .verb = DLP_FILTER, .filter = {.keep = keep_even}},
        {.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = 1 << 20}},
        {.name = "epoch", .verb = DLP_MAP, .map = {.item = add_epoch}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint64_t rows = 0;
    all->reads = 0;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.epochs = 3}, NULL) == DLP_OK);
    while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++, rows++)
            CHECK(((const uint64_t *)b->fields[0].data)[r] ==
                  rows % (ITEMS / 2) * 2 + b->epoch * 1000000);
        dlp_pipe_release(p, b);
    }
    CHECK(rows == 3 * (ITEMS / 2) && all->reads == ITEMS);
    CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
}

/* ---- a load behind a load: each item of a part says which part to load ---- */

static int load_outer(void *user, dlp_part *part) {
    (void)user;
    if (part->of != NULL) return DLP_ERR_CALLBACK;
    for (uint64_t k = 0; k < part->items; k++) ((uint64_t *)part->data)[k] = part->index * 10 + k;
    part->bytes = part->items * 8;
    return 0;
}

static int load_inner(void *user, dlp_part *part) {
    const dlp_part *of = part->of->part;
    const uint64_t word = ((const uint64_t *)of->data)[of->item];
    (void)user;
    part->items = word % 4;
    for (uint64_t k = 0; k < part->items; k++) ((uint64_t *)part->data)[k] = word * 10 + k;
    part->bytes = part->items * 8;
    if (__atomic_add_fetch(&all->calls, 1, __ATOMIC_RELAXED) % 40 != 7 || getpid() == caller)
        return 0;
    memset(part->data, 0xee, part->bytes);
    return kill(getpid(), SIGKILL);
}

static int fetch_inner(void *user, dlp_item *it) {
    (void)user;
    memcpy(it->data[0], (const uint64_t *)it->part->data + it->part->item, 8);
    return *(uint64_t *)it->data[0] % 7 == 3 ? DLP_SKIP : 0;
}

static int keep_inner(void *user, const dlp_item *it) {
    (void)user;
    return *(const uint64_t *)it->data[0] % 5 != 1;
}

static uint32_t looped_inner(uint64_t *to) {
    uint32_t n = 0;
    for (uint64_t part = 0; part < ITEMS; part++)
        for (uint64_t k = 0; k < part % (PART + 1); k++)
            for (uint64_t j = 0; j < (part * 10 + k) % 4; j++) {
                const uint64_t x = (part * 10 + k) * 10 + j;
                if (x % 7 != 3 && x % 5 != 1) to[n++] = x;
            }
    return n;
}

static void stacks__load_in_a_load__a_plain_loop(void) {
    static uint64_t counts[ITEMS], words[ITEMS * PART * 4];
    static dlp_state state[BATCHES];
    static const dlp_field x = {.name = "x", .dtype = DLP_U64};
    const uint32_t rows = looped_inner(words);
    const dlp_shm_desc shm = {.max_kills = 100, .allow_fork_with_threads = 1};
    dlp_node nodes[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
                        {.name = "outer",
                         .verb = DLP_LOAD,
                         .load = {.load = load_outer, .items = counts, .max_part_bytes = 8 * PART}},
                        {.name = "inner",
                         .verb = DLP_LOAD,
                         .load = {.load = load_inner, .max_items = 3, .max_part_bytes = 8 * 3}},
                        {.name = "read",
                         .verb = DLP_FETCH,
                         .fetch = {.fetch = fetch_inner, .fields = &x, .n_fields = 1}},
                        {.name = "some", .verb = DLP_FILTER, .filter = {.keep = keep_inner}},
                        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
    for (uint64_t i = 0; i < ITEMS; i++) counts[i] = i % (PART + 1);
    for (uint32_t from = 0, turn = 0; from * 8 < rows; from += turn++ < 4 ? 0 : 9) {
        dlp_pipe_desc desc = {.shm = &shm};
        uint32_t n = from * 8, at = from;
        dlp_error err = {.code = 0};
        dlp_pipe *p = NULL;
        dlp_batch *b;
        int rc = DLP_OK;
        nodes[1].workers.num_workers = turn % 4 == 0 ? DLP_NONE : (int32_t)(turn % 4);
        nodes[1].workers.placement = turn % 4 > 1 ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
        if (from > 0) desc.resume = &state[from - 1];
        if (!well(dlp_pipe_open(&p, DLP_NODES(nodes), &desc, &err) == DLP_OK))
            printf("  %s %s: %s\n", err.stage, err.field, err.message);
        while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++, n++)
                CHECK(n < rows && ((const uint64_t *)b->fields[0].data)[r] == words[n]);
            CHECK(dlp_pipe_state(p, b, &state[at++]) == DLP_OK);
            dlp_pipe_release(p, b);
        }
        if (rc != DLP_END) printf("  %d %s\n", rc, dlp_pipe_error(p)->message);
        CHECK(rc == DLP_END && n == rows);
        CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
    }
}

static int write_index(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index;
    return 0;
}
static int load_three(void *user, dlp_part *part) {
    (void)user;
    part->items = 3;
    for (uint64_t k = 0; k < 3; k++)
        ((uint64_t *)part->data)[k] = *(const uint64_t *)part->of->data[0] * 3 + k;
    part->bytes = 3 * 8;
    return 0;
}
static int fetch_but_some(void *user, dlp_item *it) {
    (void)user;
    memcpy(it->data[0], (const uint64_t *)it->part->data + it->part->item, 8);
    return *(uint64_t *)it->data[0] % 6 == 1 ? -7 : 0;
}

/* Items of parts that fail, behind a load of items, count against max_skips. Every second part of
   three items has one that fails. No filter or map stands behind the fetch. */
static void stacks__items_of_parts_fail__count_as_skips(void) {
    static const dlp_field x = {.name = "x", .dtype = DLP_U64};
    dlp_node nodes[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
                        {.name = "read",
                         .verb = DLP_FETCH,
                         .fetch = {.fetch = write_index, .fields = &x, .n_fields = 1}},
                        {.name = "parts",
                         .verb = DLP_LOAD,
                         .load = {.load = load_three, .max_items = 3, .max_part_bytes = 24}},
                        {.name = "get",
                         .verb = DLP_FETCH,
                         .fetch = {.fetch = fetch_but_some, .fields = &x, .n_fields = 1},
                         .workers = {.on_error = DLP_ON_ERROR_DROP}},
                        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}}};
    for (int32_t skips = 0; skips < 9; skips += 4) {
        dlp_pipe *p = NULL;
        dlp_batch *b;
        uint64_t rows = 0;
        int rc = DLP_OK;
        nodes[3].workers.max_skips = skips;
        CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
        while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            rows += b->count;
            dlp_pipe_release(p, b);
        }
        CHECK(rc == (skips == 0 ? DLP_END : DLP_ERR_BUDGET));
        CHECK(skips == 0 ? rows == ITEMS / 2 * 5 : rows == (uint64_t)skips * 5);
        CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
    }
}

static int load_too_many(void *user, dlp_part *part) {
    (void)user;
    part->items = 1000000;
    part->first = 7;
    return 0;
}
static int fetch_place(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->part->index * 10 + it->part->item;
    return 0;
}

/* If the load row gives the counts of its parts, the number that load sets is not read. */
static void stacks__load_sets_another_count__the_rows_counts_hold(void) {
    static const dlp_field x = {.name = "x", .dtype = DLP_U64};
    static const uint64_t counts[] = {2, 0, 3, 1};
    static const uint64_t expected[] = {0, 1, 20, 21, 22, 30};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 4}},
        {.name = "parts",
         .verb = DLP_LOAD,
         .load = {.load = load_too_many, .items = counts, .max_part_bytes = 8}},
        {.name = "get",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch_place, .fields = &x, .n_fields = 1}},
        {.name = "some", .verb = DLP_FILTER, .filter = {.keep = keep_all}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint32_t n = 0;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    for (; p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; dlp_pipe_release(p, b), n++)
        CHECK(n < 6 && *(const uint64_t *)b->fields[0].data == expected[n]);
    CHECK(n == 6);
    CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
}

enum { ROOM = 100 };
static int write_some(void *user, dlp_item *it) {
    (void)user;
    it->length[0] = it->index * 37 % ROOM;
    memset(it->data[0], 0xee, it->length[0]);
    return 0;
}
static int keep_if_zeros_follow(void *user, const dlp_item *it) {
    const uint8_t *at = it->data[0];
    (void)user;
    for (uint64_t i = 0; i < ROOM; i++)
        if (at[i] != (i < it->length[0] ? 0xee : 0)) return 0;
    return 1;
}

/* Zeros lie behind the length of a ragged field in a cell, whatever an earlier item has left. */
static void stacks__shorter_item_in_a_cell__zeros_follow(void) {
    static const dlp_field x = {
        .name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {ROOM}, .ragged = 1};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "get",
         .verb = DLP_FETCH,
         .fetch = {.fetch = write_some, .fields = &x, .n_fields = 1, .writes_all_bytes = 1}},
        {.name = "some", .verb = DLP_FILTER, .filter = {.keep = keep_if_zeros_follow}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint32_t n = 0;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.epochs = 4}, NULL) == DLP_OK);
    for (; p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; dlp_pipe_release(p, b), n++)
        CHECK(b->count == 1);
    CHECK(n == 4 * ITEMS);
    CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
}

/* ---- a row fails so many times, at each tenth input ---- */

enum { READ, SET, SOME, MAKE, TURN, LAST, N_FAILS };
static struct {
    int row;
    uint32_t until; /* it fails in so many attempts */
    int kills;      /* ... by the death of its process */
} fault;

static int at_fault(int row, const dlp_item *it) {
    if (it->index >= ITEMS || it->epoch != 0 || it->attempt > 9) return 1;
    if (fault.row != row || it->index % 10 != 7) return 0;
    if (row > MAKE && *(const uint64_t *)it->data[0] % 2 == 1) return 0; /* of the second item */
    if (fault.kills && getpid() != caller) kill(getpid(), SIGKILL);
    return __atomic_add_fetch(&all->tried[it->index], 1, __ATOMIC_RELAXED) <= fault.until;
}
static int read_or_fail(void *user, dlp_item *it) {
    (void)user;
    __atomic_add_fetch(&all->reads, 1, __ATOMIC_RELAXED);
    *(uint64_t *)it->data[0] = it->index;
    return at_fault(READ, it) ? -7 : spoiled(it, 0);
}
static int set_or_fail(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] *= 2;
    return at_fault(SET, it) ? -7 : spoiled(it, 0);
}
static int turn_or_fail(void *user, dlp_item *it) {
    (void)user;
    return at_fault(TURN, it) ? -7 : spoiled(it, 0);
}
static int keep_or_fail(void *user, const dlp_item *it) {
    return at_fault(*(const int *)user, it) ? -7 : 1;
}
static int make_or_fail(void *user, dlp_expand *x) {
    const uint64_t from = *(const uint64_t *)x->item->data[0];
    (void)user;
    for (uint64_t i = 0; i < 2; i++) *(uint64_t *)dlp_expand_add(x)->data[0] = from + i;
    return at_fault(MAKE, x->item) ? -7 : 0;
}

/* The tries of an input are counted together, whichever row fails. Before the maker an input that
   failed is an error or is left out; behind it, one of its items is. What comes is what a count
   says. If a process dies too often, the error names the row in whose callback it died. */
static void stacks__row_fails_so_often__as_a_count_says(void) {
    static const int some = SOME, last = LAST;
    static const dlp_field x = {.name = "x", .dtype = DLP_U64};
    static const char *const names[] = {"read", "set", "some", "make", "turn", "last"};
    dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_or_fail, .fields = &x, .n_fields = 1}},
        {.name = "set", .verb = DLP_MAP, .map = {.item = set_or_fail}},
        {.name = "some", .verb = DLP_FILTER, .filter = {keep_or_fail, (void *)(uintptr_t)&some, 0}},
        {.name = "make", .verb = DLP_EXPAND, .expand = {.expand = make_or_fail, .max_out = 2}},
        {.name = "turn", .verb = DLP_MAP, .map = {.item = turn_or_fail}},
        {.name = "last", .verb = DLP_FILTER, .filter = {keep_or_fail, (void *)(uintptr_t)&last, 0}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    for (int k = 0; k < N_FAILS * 4 * 2 * 2 + N_FAILS; k++) {
        dlp_workers_desc *w = &nodes[6].workers;
        const uint64_t bad_inputs = (ITEMS + 2) / 10;
        uint64_t rows = 0, expected = 2 * ITEMS, tries;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        int rc = DLP_OK;
        fault.row = k % N_FAILS;
        fault.until = 1 + (uint32_t)k % 3;
        *w = (dlp_workers_desc){.num_workers = k % 5 == 0 ? DLP_NONE : 2,
                                .placement = k % 5 == 1 ? DLP_PLACE_PROCESSES : 0,
                                .retry_backoff_ms = k % 7 == 0,
                                .retries = k / N_FAILS % 4};
        w->on_error = k / N_FAILS / 4 % 2 ? DLP_ON_ERROR_DROP : DLP_ON_ERROR_RAISE;
        fault.kills = k >= N_FAILS * 4 * 2 * 2;
        if (fault.kills)
            *w = (dlp_workers_desc){.num_workers = 2, .placement = DLP_PLACE_PROCESSES};
        memset(all->tried, 0, sizeof all->tried);
        all->reads = 0;
        tries = (uint64_t)w->retries + 1;
        const int for_good = fault.until >= tries;
        if (for_good) expected -= bad_inputs * (fault.row > MAKE ? 1 : 2);
        CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
        while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++)
                CHECK(((const uint64_t *)b->fields[0].data)[r] / 2 == b->index[r]);
            rows += b->count;
            dlp_pipe_release(p, b);
        }
        if (fault.kills) {
            CHECK(rc == DLP_ERR_KILLED && strcmp(dlp_pipe_error(p)->stage, names[fault.row]) == 0);
        } else if (for_good && w->on_error == DLP_ON_ERROR_RAISE) {
            CHECK(rc == DLP_ERR_CALLBACK &&
                  strcmp(dlp_pipe_error(p)->stage, names[fault.row]) == 0);
        } else {
            CHECK(rc == DLP_END && rows == expected);
            CHECK(all->reads == ITEMS + bad_inputs * (for_good ? tries - 1 : fault.until));
        }
        CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
    }
}

/* Maps are the last rows of their places, between makers, in runs of inputs and alone. What they
   write into their item is not seen by the next maker, nor by the next input. */
static void stacks__maps_spoil_their_items__nobody_sees_it(void) {
    static const dlp_field x = {.name = "x", .dtype = DLP_U64};
    const dlp_node rows[] = {
        {.name = "set", .verb = DLP_MAP, .map = {.item = set_or_fail}},
        {.name = "make", .verb = DLP_EXPAND, .expand = {.expand = make_or_fail, .max_out = 2}},
        {.name = "turn", .verb = DLP_MAP, .map = {.item = turn_or_fail}},
        {.name = "more", .verb = DLP_EXPAND, .expand = {.expand = make_or_fail, .max_out = 2}},
        {.name = "end", .verb = DLP_MAP, .map = {.item = turn_or_fail}}};
    fault.row = N_FAILS;
    fault.kills = 0;
    for (uint32_t n = 2; n <= 5; n++) {
        dlp_node nodes[8] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
                             {.name = "read",
                              .verb = DLP_FETCH,
                              .fetch = {.fetch = read_or_fail, .fields = &x, .n_fields = 1}}};
        const uint64_t each = n < 4 ? 2 : 4;
        uint64_t k = 0;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        memcpy(nodes + 2, rows, n * sizeof *nodes);
        nodes[2 + n] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}};
        CHECK(dlp_pipe_open(&p, nodes, n + 3, NULL, NULL) == DLP_OK);
        while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++, k++) {
                const uint64_t made_ = k % each / (each / 2) + k % each % (each / 2);
                CHECK(b->index[r] == k / each);
                CHECK(((const uint64_t *)b->fields[0].data)[r] == 2 * (k / each) + made_);
            }
            dlp_pipe_release(p, b);
        }
        CHECK(k == each * ITEMS);
        CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- what is refused ---- */

static void stacks__too_much__refused_in_words(void) {
    const verb filter = {KEEPS, 0, 0, 0, "keep"}, map = {IN_PLACE, 1, 0, 0, "map"};
    const verb make = {EXPANDS, 2, 3, 1, "make"};
    const dlp_node list = {.name = "inputs", .verb = DLP_LIST, .list = {.n_items = ITEMS}};
    const dlp_node read = {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = read_item, .fields = base, .n_fields = 2}};
    const dlp_node part = {.name = "load",
                           .verb = DLP_LOAD,
                           .load = {.load = load, .max_items = PART, .max_part_bytes = 8 * PART}};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    dlp_node nodes[16] = {list, part, read};
    dlp_error err;
    draw(0);
    for (int at = 0; at < 10; at++) {
        const struct {
            const char *stage, *field, *words;
        } want_[] = {{"d", "", "three at most"},
                     {"i", "", "ninth"},
                     {"b", "expand.max_out", "2^31"},
                     {"b", "expand.shuffle_items", "a window node"},
                     {"read", "fetch.async", "a load and other makers"},
                     {"a", "", "no fields"},
                     {"a", "map.ends", "none that ended"},
                     {"read", "fields[].shape", "ragged"},
                     {"load", "load.shuffle_items", "before a cache"},
                     {"b", "", "behind a window"}};
        uint32_t n = 3;
        for (int i = 0; i < 10; i++) {
            nodes[3 + i] = node_of(at == 0 ? &make : &filter);
            nodes[3 + i].name = names[i];
        }
        nodes[2] = read;
        if (at == 0) n = 7;
        if (at == 1) n = 12;
        if (at == 2 || at == 3) {
            nodes[3] = nodes[4] = node_of(&make);
            nodes[3].name = "a";
            nodes[4].name = "b";
            nodes[3].expand.max_out = at == 2 ? 1 << 30 : 3;
            nodes[4].expand.shuffle_items = at == 3;
            n = 5;
        }
        if (at == 4)
            nodes[2].fetch = (dlp_node_fetch){.async = &source, .fields = base, .n_fields = 2};
        if (at == 4) n = 4;
        if (at == 5) nodes[2] = nodes[3];
        if (at == 6) nodes[3] = node_of(&map);
        nodes[3].name = "a";
        if (at == 6) nodes[3].map.ends = "none", n = 5;
        if (at == 7)
            nodes[3] = (dlp_node){.name = "a", .verb = DLP_PACK, .pack = {.tokens = 4}}, n = 4;
        nodes[1].load.shuffle_items = at == 8;
        if (at == 9) n = 4;
        if (at == 9)
            nodes[n++] = (dlp_node){.name = "c", .verb = DLP_WINDOW, .window = {.items = 4}};
        if (at >= 8) nodes[n++] = (dlp_node){.name = "b", .verb = DLP_CACHE, .cache = {1 << 20}};
        nodes[n] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}};
        memset(&err, 0, sizeof err);
        CHECK(dlp_nodes_plan(nodes, n + 1, NULL, &(dlp_plan){0}, &err) < 0);
        if (!well(strcmp(err.stage, want_[at].stage) == 0 &&
                  strcmp(err.field, want_[at].field) == 0 && strstr(err.message, want_[at].words)))
            printf("  %d: %s %s: %s\n", at, err.stage, err.field, err.message);
    }
}

/* Inputs that make more than there is memory for are an error that has the numbers. */
static void stacks__more_than_the_limit__the_plan_says_how_much(void) {
    const verb make = {EXPANDS, 0, 20000, 1, "one"}, more = {EXPANDS, 1, 20000, 1, "two"};
    const dlp_workers_desc w = {.num_workers = 1};
    dlp_node nodes[16];
    const dlp_pipe_desc desc = {.limit_bytes = 1 << 30};
    dlp_error err = {.code = 0};
    dlp_pipe *p = NULL;
    uint32_t n;
    draw(0);
    how.loads = 0;
    how.n = 2;
    how.window = 0;
    how.cache = 0;
    how.rows[0] = make;
    how.rows[1] = more;
    n = table(nodes, &w);
    CHECK(dlp_pipe_open(&p, nodes, n, &desc, &err) < 0);
    if (!well(err.code == DLP_ERR_LIMIT)) printf("  %s: %s\n", err.stage, err.message);
}

static int add_five(void *user, dlp_expand *x) {
    (void)user;
    for (uint32_t i = 0; i < 5; i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        CHECK(x->n_made <= 5);
        put(it->data, it->length, i);
    }
    return 0;
}
static int add_one(void *user, dlp_expand *x) {
    dlp_item *it = dlp_expand_add(x);
    (void)user;
    if (it == NULL) return DLP_ERR_LENGTH;
    put(it->data, it->length, x_of(x->item));
    return 0;
}

static int fail_odd(void *user, dlp_item *it) {
    (void)user;
    return it->index == 2 && x_of(it) % 2 == 1 ? dlp_fail(it->call, 5, "odd") : 0;
}

/* Items that fail count for max_skips, each: two of them here. */
static void stacks__items_left_out__as_many_as_may_be(void) {
    const dlp_node_expand five = {.expand = add_five, .max_out = 5, .fields = base, .n_fields = 2};
    for (int most = 1; most <= 2; most++) {
        const dlp_node nodes[] = {
            {.name = "inputs", .verb = DLP_LIST, .list = {.n_items = 4}},
            {.name = "five",
             .verb = DLP_EXPAND,
             .expand = five,
             .workers = {.on_error = DLP_ON_ERROR_DROP, .max_skips = most}},
            {.name = "odd", .verb = DLP_MAP, .map = {.item = fail_odd}},
            {.name = "all", .verb = DLP_FILTER, .filter = {.keep = keep_all}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 5}},
        };
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_stats stats;
        uint32_t rows = 0;
        int rc = DLP_ERR_STATE;
        CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
        while (p != NULL && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            rows += b->count;
            dlp_pipe_release(p, b);
        }
        CHECK(rc == (most == 2 ? DLP_END : DLP_ERR_BUDGET) && rows == (most == 2 ? 18 : 10));
        if (p == NULL) return;
        if (most == 1) CHECK(dlp_pipe_error(p)->index == 2);
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
        CHECK(most == 1 || stats.stages[dlp_node_stage(p, "five")].left_out == 2);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* An item that a filter leaves out is none of max_out, before another expand, too. */
static void stacks__filter_leaves_out__its_place_is_free(void) {
    const dlp_node_expand five = {.expand = add_five, .max_out = 3, .fields = base, .n_fields = 2};
    const dlp_node_expand one = {.expand = add_one, .max_out = 1};
    const dlp_node nodes[] = {
        {.name = "inputs", .verb = DLP_LIST, .list = {.n_items = 4}},
        {.name = "five", .verb = DLP_EXPAND, .expand = five},
        {.name = "even", .verb = DLP_FILTER, .filter = {.keep = keep_even}},
        {.name = "one", .verb = DLP_EXPAND, .expand = one},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}},
    };
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint32_t rows = 0;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++, rows++)
            CHECK(((const uint64_t *)b->fields[0].data)[r] == rows % 3 * 2);
        dlp_pipe_release(p, b);
    }
    CHECK(rows == 12);
    CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
}

int main(int argc, char **argv) {
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 40;
    const uint64_t from = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint32_t with_batches = 0;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    caller = getpid();
    for (uint64_t seed = from; seed < from + n; seed++) {
        if (!same_as_plain(seed)) continue;
        with_batches++;
        resumed(seed);
        killed(seed);
        failing(seed);
    }
    stacks__filter_leaves_out__its_place_is_free();
    stacks__items_left_out__as_many_as_may_be();
    stacks__cached__the_second_epoch_reads_nothing();
    stacks__cached__random_and_above_the_budget_are_not_kept();
    stacks__map_behind_the_cache__runs_in_each_epoch();
    stacks__load_in_a_load__a_plain_loop();
    stacks__items_of_parts_fail__count_as_skips();
    stacks__load_sets_another_count__the_rows_counts_hold();
    stacks__shorter_item_in_a_cell__zeros_follow();
    stacks__row_fails_so_often__as_a_count_says();
    stacks__maps_spoil_their_items__nobody_sees_it();
    stacks__too_much__refused_in_words();
    stacks__more_than_the_limit__the_plan_says_how_much();
    printf("  %u of %u tables have batches, %u workers died\n", with_batches, (unsigned)n,
           all->kills);
    CHECK(with_batches > n / 2 || n < 10);
    CHECK(all->kills > 10 || n < 10);
    return test_end("stacks");
}
