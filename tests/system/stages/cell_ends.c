/* needs: parts scratch cache pack guard pictures */
/* Fields that end inside cells. Tables are drawn at random: a list or a push, a load, a fetch, then
   maps in which fields end, other maps, filters, later fetches and expands. Each callback goes by
   all fields that it sees, in their order. A row is what a plain program makes of its input,
   whatever the workers, threads or processes, whoever dies; resumed after any batch; tried again,
   failed or left out. What such a map may not say is refused in words. The plan has the bytes.
     cell_ends [N [SEED]]     N tables, drawn from that seed on */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../rig/inside.h"
#include "../../rig/keyed.h"

enum { ITEMS = 60, MOST_ROWS = 8, TAIL = 10, PART = 4, BATCHES = 2000, FIELDS = 40, ALIVE = 8 };
enum { BASE = 3, RECORDS = 150, MOST = 9000 };
enum { IN_PLACE, ADDS, ENDS, KEEPS, FETCHES, EXPANDS, KINDS };

static int well(int ok) {
    CHECK(ok);
    return ok;
}

typedef struct verb {
    int kind;
    uint32_t number;          /* of the row */
    uint32_t max_out;         /* of an expand */
    uint32_t n, first;        /* fields that it adds */
    uint32_t dead;            /* a bit for each field that ends, of those that it sees */
    char name[16], names[64]; /* of these fields */
} verb;

static struct {
    int pushes, loads, reads, shuffle, last;
    uint32_t n, batch, streams, window;
    int64_t steps;
    uint64_t cache, seed;
    verb rows[MOST_ROWS];
} how;

static struct shared { uint32_t calls, kills, wrong; } * all;
static struct {
    uint32_t kill_every;            /* calls */
    uint32_t fails, input, attempt; /* this row fails for this input, in so many attempts */
    int left_out;                   /* the plain program leaves it out */
} bad;
static pid_t caller;

/* ---- what is in an item: numbers, and every third field has bytes ---- */

static dlp_field fields[FIELDS];
static char names[FIELDS][8];

static int is_ragged(uint32_t id) { return id % 3 == 1; }

/* What can be told of a number that field id has. */
static uint64_t told_of(uint32_t id, uint64_t v) {
    if (!is_ragged(id)) return v;
    return v % TAIL == 0 ? 0 : v % TAIL * 256 + (v & 0xff);
}

typedef struct item {
    uint32_t n, id[ALIVE];
    uint64_t v[ALIVE], index, epoch, key;
} item;

static uint64_t sum_of(const item *it) {
    uint64_t h = it->n;
    for (uint32_t f = 0; f < it->n; f++) h = dlp_hash(h, told_of(it->id[f], it->v[f]), f, 1);
    return h;
}

static uint64_t value_of(uint64_t h, uint32_t row, uint32_t f) { return dlp_hash(h, row, f, 2); }
static int kept(uint64_t h, uint32_t row) { return dlp_hash(h, row, 3, 3) % 4 != 0; }
static int skips(uint64_t h, uint32_t row) { return dlp_hash(h, row, 4, 4) % 9 == 0; }
static uint64_t part_items(uint64_t index) { return dlp_hash(how.seed, index, 5, 5) % (PART + 1); }
static uint64_t makes(uint64_t h, const verb *r) {
    return dlp_hash(h, r->number, 6, 6) % (r->max_out + 1);
}

/* Has row r this field behind it, which is field f of those that it sees? */
static int stays(const verb *r, uint32_t f) { return (r->dead >> f & 1) == 0; }

/* ---- the same of an item that a callback sees ---- */

static void put(const dlp_item *it, uint32_t f, uint32_t id, uint64_t v) {
    if (!is_ragged(id)) {
        memcpy(it->data[f], &v, sizeof v);
        return;
    }
    memset(it->data[f], (int)(v & 0xff), v % TAIL);
    it->length[f] = v % TAIL;
}

static uint64_t seen_of(const void *data, uint64_t length, uint32_t id) {
    uint64_t v;
    if (is_ragged(id)) return length == 0 ? 0 : length * 256 + *(const uint8_t *)data;
    memcpy(&v, data, sizeof v);
    return v;
}

/* The fields that row r sees. */
static uint32_t alive(uint32_t before, uint32_t *id) {
    uint32_t n = BASE;
    for (uint32_t f = 0; f < BASE; f++) id[f] = f;
    for (uint32_t i = 0; i < before; i++) {
        const verb *r = &how.rows[i];
        uint32_t left = 0;
        if (r->kind == EXPANDS && r->n > 0) n = 0;
        for (uint32_t f = 0; f < n; f++)
            if (stays(r, f)) id[left++] = id[f];
        n = left;
        for (uint32_t f = 0; f < r->n; f++) id[n++] = r->first + f;
    }
    return n;
}

static void wrong_if(int is) {
    if (is) __atomic_add_fetch(&all->wrong, 1, __ATOMIC_RELAXED);
}

/* What row r goes by: the fields that it sees, without its own, which are zeros. */
static uint64_t sum_seen(const verb *r, const dlp_item *it) {
    uint32_t id[ALIVE + 2];
    const uint32_t n = alive(r->number, id), own = r->kind == EXPANDS ? 0 : r->n;
    uint64_t h = n;
    wrong_if(it->n_fields != n + own);
    for (uint32_t f = 0; f < n; f++)
        h = dlp_hash(h, seen_of(it->data[f], it->length[f], id[f]), f, 1);
    for (uint32_t f = 0; f < own; f++)
        wrong_if(is_ragged(r->first + f) ? it->length[n + f] != 0
                                         : *(uint64_t *)it->data[n + f] != 0);
    return h;
}

static int fails(const dlp_item *it, const verb *r) {
    const uint32_t call = __atomic_add_fetch(&all->calls, 1, __ATOMIC_RELAXED);
    if (bad.kill_every != 0 && call % bad.kill_every == 0 && getpid() != caller) {
        __atomic_add_fetch(&all->kills, 1, __ATOMIC_RELAXED);
        kill(getpid(), SIGKILL);
    }
    return r != NULL && bad.fails == r->number && it->index == bad.input &&
           it->attempt < bad.attempt;
}

static uint64_t base_of(uint64_t index, uint64_t number, uint32_t f) {
    return dlp_hash(how.seed, index, number, f + 100);
}

/* ---- the rows' callbacks ---- */

static int read_item(void *user, dlp_item *it) {
    uint64_t number = 0;
    (void)user;
    fails(it, NULL);
    wrong_if(it->n_fields != BASE);
    if (how.loads) number = ((const uint64_t *)it->part->data)[it->part->item];
    for (uint32_t f = 0; f < BASE; f++) put(it, f, f, base_of(it->index, number, f));
    return 0;
}

static int load(void *user, dlp_part *part) {
    (void)user;
    part->items = part_items(part->index);
    for (uint64_t i = 0; i < part->items; i++) ((uint64_t *)part->data)[i] = i + 100;
    part->bytes = part->items * 8;
    return 0;
}

/* Fields that end are written over, too: nobody sees them any more. */
static int change(void *user, dlp_item *it) {
    const verb *r = user;
    const uint64_t h = sum_seen(r, it);
    const uint32_t before = it->n_fields - r->n;
    uint32_t id[ALIVE + 2];
    if (fails(it, r)) return dlp_fail(it->call, 5, "no change");
    if (skips(h, r->number)) return DLP_SKIP;
    alive(r->number, id);
    for (uint32_t f = 0; f < r->n; f++)
        put(it, before + f, r->first + f, value_of(h, r->number, f) ^ dlp_item_random(it, 9));
    if (r->kind == IN_PLACE) put(it, 0, id[0], value_of(h, r->number, 0));
    for (uint32_t f = 0; f < before; f++)
        if (!stays(r, f)) put(it, f, id[f], UINT64_MAX);
    return 0;
}

static int keep(void *user, const dlp_item *it) {
    const verb *r = user;
    const uint64_t h = sum_seen(r, it);
    if (fails(it, r)) return dlp_fail(it->call, 5, "no taste");
    return kept(h, r->number);
}

static int fetch_later(void *user, dlp_item *it) {
    const verb *r = user;
    wrong_if(it->n_fields != r->n);
    if (fails(it, r)) return dlp_fail(it->call, 5, "no fetch");
    for (uint32_t f = 0; f < r->n; f++) put(it, f, r->first + f, value_of(it->index, r->number, f));
    return 0;
}

static int expand(void *user, dlp_expand *x) {
    const verb *r = user;
    const uint64_t h = sum_seen(r, x->item);
    uint32_t id[ALIVE + 2];
    const uint32_t n = alive(r->number + 1, id);
    for (uint64_t i = 0; i < makes(h, r); i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        wrong_if(it->n_fields != n);
        for (uint32_t f = 0; f < n; f++) put(it, f, id[f], dlp_hash(h, r->number, f, i));
    }
    return fails(x->item, r) ? dlp_fail(x->call, 5, "no items") : 0;
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

static int plain(uint32_t at, item it, const sink *s);

static int plain_expand(const verb *r, uint64_t h, const item *it, const sink *s) {
    int rc = 0;
    for (uint64_t i = 0; i < makes(h, r) && rc == 0; i++) {
        item next = {.index = it->index, .epoch = it->epoch, .key = mixed(it->key, i + 1)};
        next.n = alive(r->number + 1, next.id);
        for (uint32_t f = 0; f < next.n; f++) next.v[f] = dlp_hash(h, r->number, f, i);
        rc = plain(r->number + 1, next, s);
    }
    return rc;
}

static int plain(uint32_t at, item it, const sink *s) {
    for (; at < how.n; at++) {
        const verb *r = &how.rows[at];
        const uint64_t h = sum_of(&it), random = random_of(&it);
        uint32_t left = 0;
        if (bad.left_out && bad.fails == at && it.index == bad.input) return 0;
        if (r->kind <= ENDS && skips(h, at)) return 0;
        if (r->kind == KEEPS && !kept(h, at)) return 0;
        if (r->kind == EXPANDS) return plain_expand(r, h, &it, s);
        if (r->kind == IN_PLACE) it.v[0] = value_of(h, at, 0);
        for (uint32_t f = 0; f < it.n; f++)
            if (stays(r, f)) it.id[left] = it.id[f], it.v[left++] = it.v[f];
        it.n = left;
        for (uint32_t f = 0; f < r->n; f++) {
            const uint64_t v = value_of(r->kind == FETCHES ? it.index : h, at, f);
            it.id[it.n] = r->first + f;
            it.v[it.n++] = r->kind == FETCHES ? v : v ^ random;
        }
    }
    return s->item(s->to, &it);
}

static int plain_input(uint64_t index, uint64_t epoch, uint64_t pass, const sink *s) {
    const uint64_t n = how.loads ? part_items(index) : 1;
    int rc = 0;
    for (uint64_t k = 0; k < n && rc == 0; k++) {
        const uint64_t place = pass * ITEMS + index;
        item it = {.n = BASE, .index = index, .epoch = epoch};
        it.key = how.loads ? mixed(place, k + 1) : place;
        for (uint32_t f = 0; f < BASE; f++) {
            it.id[f] = f;
            it.v[f] = base_of(index, how.loads ? k + 100 : 0, f);
        }
        rc = plain(0, it, s);
    }
    return rc;
}

static int add_plain(void *to, const item *it) {
    dlp_item *out = dlp_expand_add(to);
    if (out == NULL) return DLP_ERR_LENGTH;
    for (uint32_t f = 0; f < it->n; f++) put(out, f, it->id[f], it->v[f]);
    return 0;
}

/* All rows in one expand. */
static int expand_all(void *user, dlp_expand *x) {
    const sink s = {add_plain, x};
    (void)user;
    return plain_input(x->item->index, x->item->epoch, x->item->position / ITEMS, &s);
}

/* ---- tables ---- */

static uint32_t draw_below(uint64_t *h, uint32_t n) {
    *h = dlp_hash(*h, 1, 2, 3);
    return (uint32_t)(*h % n);
}

/* Fields end: some of those that are alive, and one is left. */
static void draw_ends(verb *r, uint64_t *h) {
    uint32_t id[ALIVE + 2], dead = 0;
    const uint32_t n = alive(r->number, id);
    if (r->n > 0 && draw_below(h, 4) == 0) dead = n; /* all of them */
    for (uint32_t f = 0; f < n; f++) {
        const int ends = dead == n || draw_below(h, 2) || (f + 1 == n && r->dead == 0);
        if (!ends || (r->n == 0 && f + 1 == n && r->dead + 1 == 1u << f)) continue;
        r->dead |= 1u << f;
        snprintf(r->names + strlen(r->names), 8, "%s%s", r->names[0] ? " " : "", names[id[f]]);
    }
}

static void draw_row(verb *r, uint64_t *h, uint32_t *next, uint32_t *levels) {
    uint32_t id[ALIVE + 2];
    uint32_t n = alive(r->number, id);
    r->kind = (int)draw_below(h, KINDS);
    if ((r->kind == EXPANDS || r->kind == ENDS) && *levels == 3) r->kind = KEEPS;
    if (r->kind == ENDS && n == 1) r->kind = KEEPS;
    if (r->kind == FETCHES && how.pushes) r->kind = IN_PLACE;
    r->max_out = 1 + draw_below(h, 3);
    if (r->kind == ADDS || r->kind == FETCHES) r->n = n < ALIVE;
    if (r->kind == ENDS || r->kind == EXPANDS) r->n = draw_below(h, 3);
    if (r->kind == ENDS && n + r->n > ALIVE) r->n = 0;
    if (r->kind == FETCHES && r->n == 0) r->kind = KEEPS;
    r->first = *next;
    *next += r->n;
    *levels += r->kind == ENDS || r->kind == EXPANDS;
    if (r->kind == ENDS) draw_ends(r, h);
}

static void draw(uint64_t seed, int pushes) {
    uint64_t h = seed * 2 + (uint64_t)pushes;
    uint32_t next = BASE, levels = 0, last = 0, makers = 0;
    memset(&how, 0, sizeof how);
    memset(&bad, 0, sizeof bad);
    bad.fails = UINT32_MAX;
    how.seed = seed + 1;
    how.pushes = pushes;
    how.loads = pushes ? 0 : draw_below(&h, 3) == 0;
    how.reads = how.loads || pushes ? 0 : (int)draw_below(&h, 2) * 5;
    how.shuffle = pushes ? 0 : (int)draw_below(&h, 2);
    how.streams = pushes ? 1 : 1 + draw_below(&h, 2);
    how.batch = how.streams * (1 + draw_below(&h, 7));
    how.steps = pushes || draw_below(&h, 3) ? 0 : 9;
    how.last = how.streams == 1 && how.steps == 0 ? DLP_LAST_PARTIAL : DLP_LAST_DROP;
    how.n = 1 + draw_below(&h, MOST_ROWS);
    for (uint32_t i = 0; i < how.n; i++) {
        verb *r = &how.rows[i];
        r->number = i;
        snprintf(r->name, sizeof r->name, "row%u", i);
        draw_row(r, &h, &next, &levels);
        makers += r->kind == KEEPS || r->kind == EXPANDS;
        if (r->kind == KEEPS || r->kind == EXPANDS || (r->kind == ENDS && (makers || pushes)))
            last = i + 1;
    }
    if (last == 0 || (makers == 0 && !pushes)) { /* a map in which fields end is the last but one */
        last = last > 0 ? last : how.n;
        if (last == MOST_ROWS) last--;
        how.rows[last] = (verb){.kind = KEEPS, .number = last, .name = "good"};
        last++;
    }
    how.n = last;
    if (!pushes && draw_below(&h, 4) == 0) how.cache = UINT64_C(1) << (16 + draw_below(&h, 6));
    how.window = how.rows[last - 1].kind < KEEPS || how.cache || pushes || draw_below(&h, 3)
                     ? 0
                     : 1 + draw_below(&h, 9);
}

/* Return max_bytes of an expand. In half of the tables the last expand has it, if a field of the
   rows is ragged. */
static uint64_t bytes_of(const verb *r) {
    uint32_t id[ALIVE + 2];
    uint64_t most = how.loads ? PART : 1, one = 0;
    int ragged = 0;
    for (uint32_t n = alive(how.n, id), f = 0; f < n; f++) {
        one += is_ragged(id[f]) ? TAIL : 8;
        ragged |= is_ragged(id[f]);
    }
    for (uint32_t i = 0; i < how.n; i++) {
        if (how.rows[i].kind != EXPANDS) continue;
        if (&how.rows[i] > r) return 0;
        most *= how.rows[i].max_out;
    }
    return ragged && dlp_hash(how.seed, 9, 9, 9) % 2 ? most * one : 0;
}

static dlp_node node_of(const verb *r) {
    dlp_node node = {.name = r->name};
    void *user = (void *)(uintptr_t)r;
    const dlp_field *own = r->n > 0 ? &fields[r->first] : NULL;
    if (r->kind <= ENDS) {
        node.verb = DLP_MAP;
        node.map = (dlp_node_map){change, NULL, user, own, r->n, r->names[0] ? r->names : NULL};
    } else if (r->kind == KEEPS) {
        node.verb = DLP_FILTER;
        node.filter = (dlp_node_filter){keep, user, 0};
    } else if (r->kind == FETCHES) {
        node.verb = DLP_FETCH;
        node.fetch =
            (dlp_node_fetch){.fetch = fetch_later, .user = user, .fields = own, .n_fields = r->n};
    } else {
        node.verb = DLP_EXPAND;
        node.expand = (dlp_node_expand){
            .expand = expand, .user = user, .max_out = r->max_out, .fields = own, .n_fields = r->n};
        node.expand.max_bytes = bytes_of(r);
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

/* The rows as nodes, each. w: of one of them. push: what they are fed from, or NULL. */
static uint32_t table(dlp_node *to, const dlp_workers_desc *w, dlp_push *push) {
    uint32_t n = 0, by = 1;
    if (how.pushes)
        to[n++] = (dlp_node){.name = "inputs", .verb = DLP_PUSH, .push = {.source = push}};
    else
        to[n++] = list_node();
    if (how.loads)
        to[n++] = (dlp_node){.name = "load",
                             .verb = DLP_LOAD,
                             .load = {.load = load, .max_items = PART, .max_part_bytes = 8 * PART}};
    if (!how.pushes)
        to[n++] = (dlp_node){.name = "read",
                             .verb = DLP_FETCH,
                             .fetch = {.fetch = read_item, .fields = fields, .n_fields = BASE}};
    for (uint32_t i = 0; i < how.n; i++) to[n++] = node_of(&how.rows[i]);
    by = how.loads ? 2 : 1;
    to[by].workers = *w;
    if (how.reads && w->num_workers != DLP_NONE) {
        to[by].fetch.fetch = NULL;
        to[by].fetch.async = &source;
        to[by].fetch.in_flight = (uint32_t)how.reads;
        to[by].workers.worker_init = store_open;
        to[by].workers.worker_exit = store_close;
    }
    if (how.cache)
        to[n++] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = how.cache}};
    return n + table_end(to + n);
}

/* One expand that does it all. */
static uint32_t table_plain(dlp_node *to) {
    static dlp_field made[ALIVE + 2];
    uint32_t id[ALIVE + 2];
    const uint32_t n = alive(how.n, id);
    for (uint32_t f = 0; f < n; f++) made[f] = fields[id[f]];
    to[0] = list_node();
    to[1] = (dlp_node){
        .name = "all",
        .verb = DLP_EXPAND,
        .expand = {.expand = expand_all, .max_out = PART * 27, .fields = made, .n_fields = n},
        .workers = {.num_workers = DLP_NONE}};
    return 2 + table_end(to + 2);
}

/* ---- a run ---- */

typedef struct told {
    uint32_t n, rows;
    int rc;
    uint64_t hash[MOST], ends[BATCHES]; /* of rows; rows up to the end of each batch */
    dlp_state state[BATCHES];
    dlp_error err;
    dlp_skip skips[4];
    uint32_t n_skips;
    dlp_plan plan;
} told;

/* A row, as sum_of has it of an item. Bytes that no callback wrote are zeros. */
static uint64_t row_of(const dlp_batch *b, uint32_t r, uint32_t n, const uint32_t *id) {
    uint64_t h = n;
    for (uint32_t f = 0; f < n && f < b->n_fields; f++) {
        const dlp_tensor *t = &b->fields[f];
        const uint8_t *at = (const uint8_t *)t->data + r * (is_ragged(id[f]) ? TAIL : 8u);
        const uint64_t length = is_ragged(id[f]) ? t->lengths[r] : 0;
        h = dlp_hash(h, seen_of(at, length, id[f]), f, 1);
        CHECK(strcmp(t->name, names[id[f]]) == 0);
        for (uint64_t i = length; is_ragged(id[f]) && i < TAIL; i++) CHECK(at[i] == 0);
        for (uint64_t i = 1; i < length; i++) CHECK(at[i] == at[0]);
    }
    return b->valid[r] ? dlp_hash(h, b->index[r], 0, 0) : 0;
}

static void take(dlp_pipe *p, const dlp_batch *b, told *t) {
    uint32_t id[ALIVE + 2];
    const uint32_t n = alive(how.n, id);
    CHECK(b->n_fields == n);
    for (uint32_t r = 0; r < b->count && t->rows < MOST; r++)
        t->hash[t->rows++] = row_of(b, r, n, id);
    t->ends[t->n] = t->rows;
    if (!how.pushes) CHECK(dlp_pipe_state(p, b, &t->state[t->n]) == DLP_OK);
    t->n++;
}

static void run(const dlp_node *nodes, uint32_t n, const dlp_state *resume, told *t) {
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, .max_kills = 100};
    const dlp_pipe_desc desc = {.seed = how.seed,
                                .epochs = how.pushes ? 1 : 2,
                                .streams = how.pushes ? 0 : how.streams,
                                .steps_per_epoch = how.steps,
                                .resume = resume,
                                .shm = &shm};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    memset(t, 0, sizeof *t);
    t->rc = dlp_pipe_open(&p, nodes, n, &desc, &t->err);
    if (t->rc != DLP_OK) return;
    CHECK(dlp_pipe_plan(p, &t->plan) == DLP_OK);
    while ((t->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK && t->n < BATCHES) {
        take(p, b, t);
        dlp_pipe_release(p, b);
    }
    t->err = *dlp_pipe_error(p);
    t->n_skips = (uint32_t)dlp_pipe_skips(p, t->skips, 4, NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* The batches of a from its first on are those of b from `from` on. states: these, too. */
static int alike(const told *a, const told *b, uint32_t from, int states) {
    const uint64_t rows = from > 0 ? b->ends[from - 1] : 0;
    return a->rc == b->rc && a->n == b->n - from && a->rows == b->rows - rows &&
           memcmp(a->hash, b->hash + rows, a->rows * sizeof *a->hash) == 0 &&
           (!states || memcmp(a->state, b->state + from, a->n * sizeof *a->state) == 0);
}

static void print(uint64_t seed, const char *what, const told *got, const told *want) {
    static const char *const kinds[] = {"map", "map+", "ends", "filter", "fetch", "expand"};
    printf("  seed %d%s, %s: %u batches of %u rows (%d), not %u of %u (%d): %s %s; loads %d:",
           (int)seed, how.pushes ? " pushed" : "", what, got->n, got->rows, got->rc, want->n,
           want->rows, want->rc, got->err.stage, got->err.message, how.loads);
    for (uint32_t i = 0; i < how.n; i++)
        printf(" %s(%s)+%u", kinds[how.rows[i].kind], how.rows[i].names, how.rows[i].n);
    puts("");
}

static told want, first, got;

static const dlp_workers_desc some_workers[] = {
    {.num_workers = DLP_NONE},
    {.num_workers = 1},
    {.num_workers = 4},
    {.num_workers = 1, .placement = DLP_PLACE_PROCESSES},
    {.num_workers = 3, .placement = DLP_PLACE_PROCESSES}};
enum { RUNS = sizeof some_workers / sizeof *some_workers };

/* Returns 0: that table has no batch, or none for ever. */
static int same_as_plain(uint64_t seed) {
    dlp_node nodes[16];
    draw(seed, 0);
    run(nodes, table_plain(nodes), NULL, &want);
    for (uint32_t i = 0; i < RUNS; i++) {
        told *t = i == 0 ? &first : &got;
        run(nodes, table(nodes, &some_workers[i], NULL), NULL, t);
        if (well(alike(t, &want, 0, 0) && (i == 0 || alike(t, &first, 0, 1)))) continue;
        print(seed, "workers", t, &want);
        return 0;
    }
    return want.rc == DLP_END && want.n > 0;
}

static void resumed(uint64_t seed) {
    dlp_node nodes[16];
    for (uint32_t k = 0; k + 1 < want.n; k += 1 + want.n / 40) {
        const dlp_workers_desc w = {.num_workers = k % 4 == 0 ? DLP_NONE : (int32_t)(k % 4)};
        run(nodes, table(nodes, &w, NULL), &first.state[k], &got);
        if (!well(alike(&got, &first, k + 1, 1))) print(seed, "resumed", &got, &want);
    }
}

static void killed(uint64_t seed) {
    const dlp_workers_desc w = {.num_workers = 3, .placement = DLP_PLACE_PROCESSES};
    dlp_node nodes[16];
    all->calls = 0;
    bad.kill_every = 101 + (uint32_t)(seed % 97);
    run(nodes, table(nodes, &w, NULL), NULL, &got);
    bad.kill_every = 0;
    if (!well(alike(&got, &first, 0, 1))) print(seed, "killed", &got, &want);
}

/* The row fails for ever. Items of that input are left out if they are made by a row above it, else
   the input is. All others come as they would without them. */
static void left_out(uint64_t seed) {
    static told left;
    dlp_workers_desc w = {
        .num_workers = 2, .retries = 1, .max_skips = 200, .on_error = DLP_ON_ERROR_DROP};
    dlp_node nodes[16];
    bad.left_out = 1;
    run(nodes, table_plain(nodes), NULL, &left);
    bad.left_out = 0;
    run(nodes, table(nodes, &w, NULL), NULL, &got);
    if (!well(alike(&got, &left, 0, 0) && got.n_skips > 0)) print(seed, "left out", &got, &left);
    for (uint32_t i = 0; i < got.n_skips; i++)
        CHECK(got.skips[i].index == bad.input && got.skips[i].code == DLP_ERR_CALLBACK);
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
        run(nodes, table(nodes, &w, NULL), NULL, &got);
        if (!well(alike(&got, &first, 0, 1))) print(seed, "tried again", &got, &want);
        bad.attempt = UINT32_MAX;
        run(nodes, table(nodes, &w, NULL), NULL, &got);
        if (got.rc == DLP_END) continue; /* no item of the input came so far */
        snprintf(node, sizeof node, "\"%s\"", name);
        CHECK(memcmp(got.hash, first.hash, got.rows * sizeof *got.hash) == 0);
        if (!well(got.rc == DLP_ERR_CALLBACK && got.err.index == bad.input &&
                  (strstr(got.err.message, node) || strcmp(got.err.stage, name) == 0)))
            print(seed, "fails", &got, &want);
        if (how.window == 0) left_out(seed);
    }
    bad.fails = UINT32_MAX;
}

/* ---- pushed ---- */

static void push_all(dlp_push *push) {
    dlp_pusher *u = NULL;
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push, .number = 1}, NULL) == DLP_OK);
    for (uint64_t k = 0; k < RECORDS; k++) {
        uint64_t v[BASE], length[BASE];
        uint8_t bytes[TAIL];
        const void *data[BASE];
        for (uint32_t f = 0; f < BASE; f++) {
            v[f] = base_of(k, 0, f);
            length[f] = is_ragged(f) ? v[f] % TAIL : 1;
            if (is_ragged(f)) memset(bytes, (int)(v[f] & 0xff), sizeof bytes);
            data[f] = is_ragged(f) ? (const void *)bytes : &v[f];
        }
        CHECK(dlp_pusher_lengths(u, length) == DLP_OK);
        CHECK(dlp_pusher_push(u, data, 0) == DLP_OK);
    }
    CHECK(dlp_pusher_end(u, 0) == DLP_OK);
    dlp_pusher_close(u);
}

static int add_told(void *to, const item *it) {
    told *t = to;
    t->hash[t->rows++] = dlp_hash(sum_of(it), it->index, 0, 0);
    return 0;
}

static void pushed(uint64_t seed) {
    const dlp_push_desc desc = {.fields = fields, .n_fields = BASE, .writers = 1};
    const sink s = {add_told, &want};
    draw(seed, 1);
    memset(&want, 0, sizeof want);
    want.rc = DLP_END;
    for (uint64_t k = 0; k < RECORDS; k++) plain_input(k, 0, 0, &s);
    want.n = (want.rows + how.batch - 1) / how.batch;
    for (uint32_t i = 0; i < RUNS + 1; i++) {
        dlp_push *push = NULL;
        dlp_node nodes[16];
        bad.kill_every = i == RUNS ? 101 : 0;
        CHECK(dlp_push_open(&push, &desc, NULL) == DLP_OK);
        push_all(push);
        run(nodes, table(nodes, &some_workers[i < RUNS ? i : RUNS - 1], push), NULL, &got);
        CHECK(dlp_push_close(push) == DLP_OK);
        if (!well(alike(&got, &want, 0, 0))) print(seed, "pushed", &got, &want);
    }
    bad.kill_every = 0;
}

/* ---- documents whose text ends before they are packed ---- */

enum { LETTERS = 30, TOKENS = 16 };
static const dlp_field text[2] = {
    {.name = "text", .dtype = DLP_U8, .ndim = 1, .shape = {LETTERS}, .ragged = 1},
    {.name = "size", .dtype = DLP_U32}};
static const dlp_field token = {
    .name = "token", .dtype = DLP_U32, .ndim = 1, .shape = {LETTERS}, .ragged = 1};

static uint32_t letters_of(uint64_t document) { return (uint32_t)(document * 7 % (LETTERS + 1)); }

static int read_text(void *user, dlp_item *it) {
    const uint32_t n = letters_of(it->index);
    (void)user;
    if (fails(it, NULL) || it->n_fields != 2) return dlp_fail(it->call, 5, "no text");
    memset(it->data[0], (int)(it->index + 1), n);
    it->length[0] = n;
    memcpy(it->data[1], &n, sizeof n);
    return 0;
}
static int reap_text(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    store *s = state;
    int n = 0;
    (void)ms;
    for (; s->n > 0 && n < max; n++) {
        done[n] = s->held[--s->n];
        code[n] = read_text(user, done[n]);
    }
    return n;
}

static int tokenize(void *user, dlp_item *it) {
    const uint8_t *from = it->data[0];
    uint32_t *to = it->data[2], size;
    (void)user;
    memcpy(&size, it->data[1], sizeof size);
    wrong_if(it->n_fields != 3 || it->length[0] != size || it->length[2] != 0);
    if (fails(it, NULL)) return dlp_fail(it->call, 5, "no tokens");
    for (uint32_t i = 0; i < size; i++) to[i] = from[i] * 100u + i;
    it->length[2] = size;
    return 0;
}

/* The tokens are those of a loop over the documents. */
static void pack__text_ends__the_tokens_of_a_loop(const dlp_workers_desc *w, int reads, int rule) {
    static const dlp_async texts = {.submit = submit, .reap = reap_text};
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, .max_kills = 100};
    dlp_node nodes[] = {
        {.name = "docs", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_text, .fields = text, .n_fields = 2},
         .workers = *w},
        {.name = "tokens",
         .verb = DLP_MAP,
         .map = {.item = tokenize, .fields = &token, .n_fields = 1, .ends = "text size"}},
        {.name = "rows", .verb = DLP_PACK, .pack = {.tokens = TOKENS, .rule = rule}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 3}},
    };
    uint64_t sum = 0, want_sum = 0, k = 0;
    dlp_pipe *p = NULL;
    dlp_error err = {.code = 0};
    dlp_batch *b;
    uint32_t document = 0, at = 0;
    int rc = DLP_ERR_STATE;
    if (reads) {
        nodes[1].fetch =
            (dlp_node_fetch){.async = &texts, .in_flight = 5, .fields = text, .n_fields = 2};
        nodes[1].workers.worker_init = store_open;
        nodes[1].workers.worker_exit = store_close;
    }
    for (uint64_t d = 0; d < ITEMS; d++)
        for (uint32_t i = 0; i < letters_of(d); i++) want_sum += (d + 1) * 100 + i;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.shm = &shm}, &err) == DLP_OK);
    if (p == NULL) printf("  %s %s: %s\n", err.stage, err.field, err.message);
    while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        const dlp_tensor *t = &b->fields[0];
        CHECK(b->n_fields == 3 && strcmp(t->name, "token") == 0);
        for (uint32_t r = 0; r < b->count; r++) {
            for (uint64_t i = 0; i < t->lengths[r]; i++, k++, at++) {
                const uint32_t got_ = ((const uint32_t *)t->data)[r * TOKENS + i];
                sum += got_;
                for (; at == letters_of(document); at = 0) document++;
                if (rule == DLP_PACK_CUT) CHECK(got_ == (document + 1) * 100 + at);
            }
        }
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_END && (rule == DLP_PACK_FIT || (sum == want_sum && k > ITEMS)));
    CHECK(p == NULL || dlp_pipe_close(p) == DLP_OK);
}

static void packed(void) {
    for (uint32_t i = 0; i < RUNS; i++) {
        bad.kill_every = some_workers[i].placement ? 47 : 0;
        pack__text_ends__the_tokens_of_a_loop(&some_workers[i], 0, DLP_PACK_CUT);
        pack__text_ends__the_tokens_of_a_loop(&some_workers[i], 0, DLP_PACK_FIT);
        if (i > 0) pack__text_ends__the_tokens_of_a_loop(&some_workers[i], 1, DLP_PACK_CUT);
    }
    bad.kill_every = 0;
}

/* ---- the plan ---- */

static int do_nothing(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}
static int keep_all(void *user, const dlp_item *it) {
    (void)user;
    return it != NULL;
}

static const dlp_plan_line *line_of(const dlp_plan *plan, const char *what) {
    for (uint32_t i = 0; i < plan->n_lines; i++)
        if (strcmp(plan->lines[i].what, what) == 0) return &plan->lines[i];
    return NULL;
}

/* True if a stage does this. */
static int does(const dlp_plan *plan, const char *what) {
    for (uint32_t i = 0; i < plan->n_stages; i++)
        if (strcmp(plan->stages[i].what, what) == 0) return 1;
    return 0;
}

/* The plan of a table whose fetch has a field of so many bytes, which ends before a filter. */
static void plan_of(int64_t bytes, int reads, dlp_push *push, dlp_plan *plan) {
    const dlp_field read[] = {{.name = "raw", .dtype = DLP_U8, .ndim = 1, .shape = {bytes}},
                              {.name = "label", .dtype = DLP_U32}};
    const dlp_field x = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {2}};
    dlp_node nodes[] = {
        {.name = "docs", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = do_nothing, .fields = read, .n_fields = 2},
         .workers = {.num_workers = 3}},
        {.name = "decode",
         .verb = DLP_MAP,
         .map = {.item = do_nothing, .fields = &x, .n_fields = 1, .ends = "raw"}},
        {.name = "good", .verb = DLP_FILTER, .filter = {.keep = keep_all}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    dlp_error err = {.code = 0};
    if (reads)
        nodes[1].fetch =
            (dlp_node_fetch){.async = &source, .in_flight = 4, .fields = read, .n_fields = 2};
    if (push != NULL) {
        nodes[1] = (dlp_node){.name = "docs", .verb = DLP_PUSH, .push = {.source = push}};
        nodes[2].workers.num_workers = 3;
    }
    nodes[3].queue.capacity = 64; /* as many cells of any size */
    const uint32_t from = push != NULL;
    if (!well(dlp_nodes_plan(nodes + from, 5 - from, NULL, plan, &err) == DLP_OK))
        printf("  %s %s: %s\n", err.stage, err.field, err.message);
}

/* A field that ends takes its bytes once for each worker, not in cells; what is read by requests,
   and what was pushed, lies in the cell. */
static void plan__fields_that_end__bytes_of_rooms(void) {
    static dlp_plan one, two;
    const uint64_t more = 4096;
    for (int kind = 0; kind < 3; kind++) {
        dlp_push *push[2] = {NULL, NULL};
        uint64_t in_cells, in_rooms;
        for (int i = 0; kind == 2 && i < 2; i++) {
            const dlp_field read[] = {
                {.name = "raw", .dtype = DLP_U8, .ndim = 1, .shape = {i ? 8192 : 4096}},
                {.name = "label", .dtype = DLP_U32}};
            const dlp_push_desc d = {.fields = read, .n_fields = 2, .writers = 1, .capacity = 4};
            CHECK(dlp_push_open(&push[i], &d, NULL) == DLP_OK);
        }
        plan_of(4096, kind == 1, push[0], &one);
        plan_of(4096 + (int64_t)more, kind == 1, push[1], &two);
        const dlp_plan_line *cells = line_of(&one, "part cells");
        const dlp_plan_line *rooms = line_of(&one, "rooms of workers: fields that end");
        CHECK(cells != NULL && (rooms != NULL) == (kind != 1));
        if (cells == NULL || (rooms == NULL && kind != 1)) return;
        in_cells = line_of(&two, "part cells")->bytes - cells->bytes;
        in_rooms = kind == 1
                       ? 0
                       : line_of(&two, "rooms of workers: fields that end")->bytes - rooms->bytes;
        CHECK(kind == 1 || (rooms->count == 3 && in_rooms == 3 * more));
        CHECK(kind == 1 || inside_debug() || rooms->bytes_each == 4096 + 128);
        CHECK(kind == 0 ? in_cells == 0 : in_cells == cells->count * more);
        CHECK(kind != 0 || inside_debug() || cells->bytes_each < 2048);
        CHECK(two.total_bytes - one.total_bytes == in_cells + in_rooms);
        CHECK(does(&one, "map, 1 ends, filter"));
        for (int i = 0; i < 2; i++) CHECK(push[i] == NULL || dlp_push_close(push[i]) == DLP_OK);
    }
}

/* ---- what is refused ---- */

typedef struct refusal {
    const char *what, *stage, *field, *words;
} refusal;

#define MAP(n, add, e) \
    { \
        .name = n, .verb = DLP_MAP, .map = { do_nothing, NULL, NULL, add, add != NULL, e } \
    }

static void refused(const dlp_node *rows, uint32_t n, refusal r) {
    dlp_node nodes[16] = {{.name = "docs", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
                          {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = do_nothing, .fields = fields, .n_fields = BASE}}};
    dlp_error err = {.code = 0};
    memcpy(nodes + 2, rows, n * sizeof *rows);
    nodes[n + 2] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}};
    CHECK(dlp_nodes_plan(nodes, n + 3, NULL, &want.plan, &err) < 0);
    if (!well(strcmp(err.stage, r.stage) == 0 && strcmp(err.field, r.field) == 0 &&
              strstr(err.message, r.words) != NULL))
        printf("  %s: \"%s\" %s: %s\n", r.what, err.stage, err.field, err.message);
}

static void cell_ends__what_no_map_may_say__refused_in_words(void) {
    static const dlp_field *const add = &fields[5];
    static const dlp_guard_field guarded = {.name = "f0"};
    const dlp_node good = {.name = "good", .verb = DLP_FILTER, .filter = {.keep = keep_all}};
    const dlp_node ends = MAP("ends", NULL, "f0");
    const dlp_node pack = {.name = "pack", .verb = DLP_PACK, .pack = {.tokens = 4}};
    dlp_node own = ends;
    own.workers.num_workers = 2;
    dlp_node first_own = good;
    first_own.workers.num_workers = 2;
#define REFUSED(...) refused(DLP_NODES(((const dlp_node[]){__VA_ARGS__})), r)
    refusal r = {"twice", "more", "map.ends", "none that ended"};
    REFUSED(ends, MAP("more", NULL, "f0"), good);
    r = (refusal){"unknown", "ends", "map.ends", "\"f1 f7\""};
    REFUSED(MAP("ends", NULL, "f1 f7"), good);
    r = (refusal){"named twice", "ends", "map.ends", "each once"};
    REFUSED(MAP("ends", NULL, "f1 f1"), good);
    r = (refusal){"its own", "ends", "map.ends", "the rows above"};
    REFUSED(MAP("ends", add, "f5"), good);
    r = (refusal){"no name", "ends", "map.ends", "each once"};
    REFUSED(MAP("ends", NULL, " "), good);
    r = (refusal){"all", "ends", "map.ends", "leaves no field"};
    REFUSED(MAP("ends", NULL, "f0 f1 f2"), good);
    r = (refusal){"four levels", "d", "", "three at most"};
    REFUSED(MAP("a", add, "f0"), MAP("b", NULL, "f1"), MAP("c", &fields[6], "f2"),
            MAP("d", NULL, "f5"), good);
    r = (refusal){"workers", "ends", "workers", "share workers"};
    REFUSED(first_own, own);
    r = (refusal){"behind a window", "ends", "map.ends", "above \"mixed\""};
    REFUSED(good, {.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 4}}, ends);
    r = (refusal){"behind a cache", "ends", "map.ends", "above \"kept\""};
    REFUSED(good, {.name = "kept", .verb = DLP_CACHE, .cache = {1 << 20}}, ends);
    r = (refusal){"behind a guard", "ends", "map.ends", "above \"look\""};
    REFUSED(good, {.name = "look", .verb = DLP_GUARD, .guard = {.fields = &guarded, .n_fields = 1}},
            ends);
    r = (refusal){"guarded", "look", "fields[].name", "\"f0\""};
    REFUSED(ends, good,
            {.name = "look", .verb = DLP_GUARD, .guard = {.fields = &guarded, .n_fields = 1}});
    r = (refusal){"behind a pack", "ends", "map.ends", "end before it"};
    REFUSED(pack, ends);
}

/* Joined and pushed fields end in no cell behind a guard. */
static void cell_ends__no_cell_has_the_field__refused_in_words(void) {
    static const dlp_guard_field guarded = {.name = "f0"};
    const dlp_push_desc desc = {.fields = fields, .n_fields = BASE, .writers = 1, .capacity = 4};
    dlp_push *push = NULL;
    CHECK(dlp_push_open(&push, &desc, NULL) == DLP_OK);
    const dlp_node list = {.name = "a", .verb = DLP_LIST, .list = {.n_items = ITEMS}};
    const dlp_node batch = {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}};
    const dlp_node pushes[] = {
        {.name = "docs", .verb = DLP_PUSH, .push = {.source = push}},
        {.name = "look", .verb = DLP_GUARD, .guard = {.fields = &guarded, .n_fields = 1}},
        MAP("ends", NULL, "f0"),
        batch,
    };
    dlp_node zipped[] = {
        list,
        {.name = "b",
         .verb = DLP_FETCH,
         .fetch = {.fetch = do_nothing, .fields = fields, .n_fields = 2}},
        list,
        {.name = "d",
         .verb = DLP_FETCH,
         .fetch = {.fetch = do_nothing, .fields = fields + 2, .n_fields = 1}},
        {.name = "both", .verb = DLP_ZIP, .from = (const char *[]){"b", "d", NULL}},
        {.name = "look", .verb = DLP_GUARD, .guard = {.fields = &guarded, .n_fields = 1}},
        MAP("ends", NULL, "f0"),
        batch,
    };
    dlp_error err = {.code = 0};
    zipped[2].name = "c";
    CHECK(dlp_nodes_plan(DLP_NODES(pushes), NULL, &want.plan, &err) == DLP_ERR_ARG);
    if (!well(strstr(err.message, "above \"look\"") != NULL)) puts(err.message);
    CHECK(dlp_nodes_plan(DLP_NODES(zipped), NULL, &want.plan, &err) == DLP_ERR_ARG);
    if (!well(strstr(err.message, "above \"look\"") != NULL)) puts(err.message);
    CHECK(strcmp(err.stage, "ends") == 0 && strcmp(err.field, "map.ends") == 0);
    CHECK(dlp_push_close(push) == DLP_OK);
}

/* ---- what lies behind a ragged field's rows ---- */

static int tail_fetch(void *user, dlp_item *it) {
    uint32_t *words = it->data[1];
    (void)user;
    memcpy(it->data[0], &it->index, sizeof it->index);
    it->length[1] = 1 + it->index % 8;
    for (uint64_t k = 0; k < it->length[1]; k++) words[k] = (uint32_t)it->index + 1;
    return 0;
}
static int tail_end(void *user, dlp_item *it) { return user != NULL || it->n_fields != 2; }
static int tail_pad(void *user, dlp_item *it) { /* "raw" has ended */
    (void)user;
    it->length[0] = 8;
    return 0;
}
static int tail_keep(void *user, const dlp_item *it) { return user == NULL && it->n_fields == 1; }

/* A map lengthens a field behind a map in which another ends: it finds zeros, not bytes of the item
   that lay there before. */
static void lengthened__behind_an_end__zeros(void) {
    const dlp_field of[2] = {{"raw", DLP_U64, 0, {0}, 0, 0}, {"words", DLP_U32, 1, {8}, 1, 0}};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 20000}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = tail_fetch, .fields = of, .n_fields = 2}},
        {.name = "end", .verb = DLP_MAP, .map = {.item = tail_end, .ends = "raw"}},
        {.name = "pad", .verb = DLP_MAP, .map = {.item = tail_pad}},
        {.name = "keep",
         .verb = DLP_FILTER,
         .filter = {.keep = tail_keep},
         .workers = {.num_workers = 3}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    uint64_t rows = 0, foreign = 0;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err) == DLP_OK);
    while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        const uint32_t *words = b->fields[0].data;
        for (uint32_t r = 0; r < b->count; r++, rows++)
            for (uint64_t k = 1 + b->index[r] % 8; k < 8; k++) foreign += words[r * 8 + k] != 0;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rows == 20000 && foreign == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(int argc, char **argv) {
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 40;
    const uint64_t from = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint32_t with_batches = 0;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    caller = getpid();
    for (uint32_t f = 0; f < FIELDS; f++) {
        snprintf(names[f], sizeof names[f], "f%u", f);
        fields[f] = (dlp_field){.name = names[f], .dtype = DLP_U64};
        if (is_ragged(f)) fields[f] = (dlp_field){names[f], DLP_U8, 1, {TAIL}, 1, 0};
    }
    plan__fields_that_end__bytes_of_rooms();
    cell_ends__what_no_map_may_say__refused_in_words();
    cell_ends__no_cell_has_the_field__refused_in_words();
    packed();
    lengthened__behind_an_end__zeros();
    for (uint64_t seed = from; seed < from + n; seed++) {
        pushed(seed);
        if (!same_as_plain(seed)) continue;
        with_batches++;
        resumed(seed);
        killed(seed);
        failing(seed);
    }
    CHECK(all->wrong == 0);
    printf("  %u of %u tables have batches, %u workers died\n", with_batches, (unsigned)n,
           all->kills);
    CHECK(with_batches > n / 2 || n < 10);
    CHECK(all->kills > 10 || n < 10);
    return test_end("cell_ends");
}
