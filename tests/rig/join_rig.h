/* What the tests of joins share: datasets whose fields have their number in their names and their
   bytes in their values, a pipe of several of them, and the check of each row. */
#ifndef JOIN_RIG_H
#define JOIN_RIG_H

#include "pipe_rig.h"

#define MOST 3 /* datasets of a pipe */

/* A dataset: its fields have its number in their names, its bytes in their values. */
typedef struct source {
    uint64_t number, n_items, bad; /* items with index % bad == 1 fail, 0: none */
    uint64_t fails;                /* so often each time; 0: always */
    uint32_t sleep_us;
    uint64_t kills;   /* this item kills its worker, 0: none */
    int mixed, plain; /* plain: the word alone, all of which is written */
    int spoils;       /* 1: what it may spoil of an item it does */
    char names[2][8];
    dlp_field fields[2];
} source;

static uint64_t source_word(const source *s, uint64_t index) {
    return dlp_hash(s->number, index, 7, 9);
}

/* A word, and a ragged field of 0..4 bytes. */
static int source_fetch(void *user, dlp_item *it) {
    const source *s = user;
    const uint64_t word = source_word(s, it->index);
    uint8_t *bytes = it->data[1];
    if (s->plain) {
        CHECK(it->n_fields == 1 && it->index < s->n_items);
        memcpy(it->data[0], &word, sizeof word);
        return 0;
    }
    CHECK(it->n_fields == 2 && it->index < s->n_items && it->length[0] == 0 && it->length[1] == 0);
    for (int i = 0; i < 5; i++) CHECK(bytes[i] == 0);
    if (s->kills && it->index == s->kills) raise(SIGKILL);
    if (s->sleep_us) usleep(s->sleep_us);
    if (s->bad && it->index % s->bad == 1 && (s->fails == 0 || it->attempt < s->fails))
        return dlp_fail(it->call, 0, "source %d has no such item", (int)s->number);
    memcpy(it->data[0], &word, sizeof word);
    it->length[1] = word % 5;
    memset(bytes, 0xab, 5); /* what is behind the length is cleared */
    memset(bytes, (int)(word & 255), (size_t)it->length[1]);
    if (s->spoils) item_spoil(it);
    return 0;
}

static void source_init(source *s, uint64_t number, uint64_t n_items, int mixed) {
    memset(s, 0, sizeof *s);
    s->number = number;
    s->n_items = n_items;
    s->mixed = mixed;
    snprintf(s->names[0], sizeof s->names[0], "w%d", mixed ? 0 : (int)number);
    snprintf(s->names[1], sizeof s->names[1], "r%d", mixed ? 0 : (int)number);
    s->fields[0] = (dlp_field){s->names[0], DLP_U64, 0, {0}, 0, 0};
    s->fields[1] = (dlp_field){s->names[1], DLP_U8, 1, {5}, 1, 0};
}

/* An asynchronous source: what was submitted comes back at the next reap. */
typedef struct basket {
    dlp_item *items[8];
    int n;
} basket;

static int basket_open(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    *state = calloc(1, sizeof(basket));
    return *state == NULL;
}
static void basket_close(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    free(state);
}
static int basket_submit(void *user, void *state, dlp_item *item) {
    basket *b = state;
    (void)user;
    if (b->n == 8) return DLP_FULL;
    b->items[b->n++] = item;
    return 0;
}
static int basket_reap(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    basket *b = state;
    int n = 0;
    (void)ms;
    while (b->n > 0 && n < max) {
        done[n] = b->items[--b->n];
        code[n] = source_fetch(user, done[n]);
        n++;
    }
    return n;
}

typedef struct setup {
    source of[MOST];
    int n, workers[MOST], placement[MOST], fetcher[MOST], policy, retries, backoff_ms;
    uint32_t batch;
    int policies; /* 1: of_policy in place of policy */
    int of_policy[MOST];
    int middle; /* an item map behind fetch, or the datasets that are mixed */
    int map;    /* an item map behind all */
    int map_workers;
    int shuffled; /* 1: not the order of the mix */
    uint32_t prefetch;
    const dlp_shm_desc *shm;
    dlp_item_fn gate, gate_map; /* in place of each fetch; behind all datasets */
    int cache;                  /* 1: behind all, 2: behind fetch */
    int dispatch;               /* DLP_DISPATCH_* of all */
    int64_t epochs;
    int collate, max_skips, parts;
    dlp_mix *mix; /* NULL: shuffled */
    const dlp_state *resume;
} setup;

static void setup_zip(setup *s, int n, uint64_t items) {
    memset(s, 0, sizeof *s);
    s->n = n;
    s->batch = 8;
    s->epochs = 1;
    for (int i = 0; i < n; i++) source_init(&s->of[i], (uint64_t)i, items, 0);
}

static void setup_mix(setup *s, int n, const uint64_t *items, const uint64_t *weights) {
    dlp_mix_desc d;
    memset(&d, 0, sizeof d);
    setup_zip(s, n, 1);
    d.n = (uint32_t)n;
    d.n_items = items;
    d.weights = weights;
    d.shuffle = 1;
    d.seed = 5;
    for (int i = 0; i < n; i++) source_init(&s->of[i], (uint64_t)i, items[i], 1);
    CHECK(dlp_mix_open(&s->mix, &d, NULL) == DLP_OK);
}

static void workers_all(setup *s, int workers, int placement) {
    for (int i = 0; i < s->n; i++) {
        s->workers[i] = workers;
        s->placement[i] = workers > 0 ? placement : 0;
    }
}

/* What the joined fields say, in a field of fetch's. */
static int map_adds(void *user, dlp_item *it) {
    uint64_t sum = 0, one;
    const setup *s = user;
    uint32_t rows = 1;
    for (int i = 1; i < s->n; i++) rows += !s->of[i].mixed;
    CHECK(it->n_fields == 2 * rows);
    for (uint32_t i = 0; i < rows; i++) {
        memcpy(&one, it->data[2 * i], 8);
        sum += one;
    }
    memcpy(it->data[0], &sum, 8);
    return 0;
}

/* Not idempotent: what it reads it writes. */
static uint64_t middle_word(uint64_t word) { return word * 3 + 1; }
static int map_middle(void *user, dlp_item *it) {
    uint64_t word;
    (void)user;
    CHECK(it->n_fields == 2);
    memcpy(&word, it->data[0], sizeof word);
    word = middle_word(word);
    memcpy(it->data[0], &word, sizeof word);
    return 0;
}

static const char *const names_[MOST] = {"images", "labels", "boxes"};

static void fetch_desc(setup *s, int i, dlp_dataset *ds, dlp_source *f) {
    memset(ds, 0, sizeof *ds);
    memset(f, 0, sizeof *f);
    ds->n_items = s->of[i].n_items;
    ds->fields = s->of[i].fields;
    ds->n_fields = s->of[i].plain ? 1 : 2;
    ds->writes_all_bytes = s->of[i].plain != 0;
    ds->fetch = s->gate ? s->gate : source_fetch;
    ds->user = &s->of[i];
    f->dataset = ds;
    f->workers.num_workers = s->workers[i];
    f->workers.placement = s->placement[i];
    f->workers.on_error = s->policies ? s->of_policy[i] : s->policy;
    f->workers.retries = s->retries;
    f->workers.retry_backoff_ms = s->backoff_ms;
    f->workers.max_skips = s->max_skips;
    f->workers.dispatch = s->dispatch;
    f->workers.name = names_[i];
    f->fetcher = s->fetcher[i];
    if (f->fetcher) f->in_flight = 4;
    if (f->fetcher != DLP_FETCH_ASYNC) return;
    f->async.submit = basket_submit;
    f->async.reap = basket_reap;
    f->workers.worker_init = basket_open;
    f->workers.worker_exit = basket_close;
}

/* Parts whose items have labels elsewhere. */
static int load_part(void *user, dlp_part *part) { /* needs: parts */
    (void)user;                                    /* needs: parts */
    memset(part->data, (int)part->index, 8);       /* needs: parts */
    part->bytes = 8;                               /* needs: parts */
    return 0;                                      /* needs: parts */
} /* needs: parts */
static int fetch_of_part(void *user, dlp_item *it) { /* needs: parts */
    CHECK(it->part != NULL && it->part->item < 10);  /* needs: parts */
    return source_fetch(user, it);                   /* needs: parts */
} /* needs: parts */
static const uint64_t part_items_[3] = {10, 9, 8}; /* needs: parts */

static dlp_node_load part_desc(void) {     /* needs: parts */
    dlp_node_load d;                       /* needs: parts */
    memset(&d, 0, sizeof d);               /* needs: parts */
    d.n_parts = 3;                         /* needs: parts */
    d.items = part_items_;                 /* needs: parts */
    d.max_part_bytes = 8;                  /* needs: parts */
    d.load = load_part;                    /* needs: parts */
    d.shuffle_items = d.shuffle_parts = 1; /* needs: parts */
    return d;                              /* needs: parts */
} /* needs: parts */

static void add_cache(rig_table *t) {
    table_row(t, (dlp_node){.verb = DLP_CACHE, .cache = {.bytes = 1 << 20}});
}

static void add_map(rig_table *t, const setup *s, dlp_item_fn fn, void *user) {
    table_row(t, (dlp_node){.verb = DLP_MAP,
                            .map = {.item = fn, .user = user},
                            .workers = {.num_workers = s->map_workers}});
}

enum { JOIN_ZIP = 0, JOIN_MIX };

/* Make a pipe that is not started. how: of all datasets behind the first; 0: each as it is. */
static int setup_try(setup *s, int how, dlp_pipe **p, dlp_error *err) {
    dlp_pipe_desc pipe = {.resume = s->resume,
                          .prefetch_factor = (int32_t)s->prefetch,
                          .shm = s->shm,
                          .epochs = s->epochs};
    dlp_sampler_desc sampler = {.seed = 3, .order = DLP_ORDER_SHUFFLED};
    dlp_dataset ds[MOST];
    dlp_source fetch;
    rig_table t = {.n = 0};
    int middle = s->middle;
    uint32_t mixes = 0;
    for (int i = 1; i < s->n; i++) mixes |= s->of[i].mixed || how == JOIN_MIX;
    if (s->mix && !s->shuffled) dlp_mix_sampler(s->mix, &sampler);
    if (s->parts) sampler.order = DLP_ORDER_PARTS; /* needs: parts */
    table_list(&t, &sampler);
    fetch_desc(s, 0, &ds[0], &fetch);
    if (s->parts) {                        /* needs: parts */
        dlp_node_load parts = part_desc(); /* needs: parts */
        table_load(&t, &parts);            /* needs: parts */
        ds[0].fetch = fetch_of_part;       /* needs: parts */
        ds[0].n_items = 0;                 /* needs: parts */
    }                                      /* needs: parts */
    table_fetch(&t, &fetch, mixes);
    if (s->cache == 2) add_cache(&t); /* needs: cache */
    for (int i = 1; i < s->n; i++) {
        const int mixed = i == 1 && how ? how == JOIN_MIX : s->of[i].mixed;
        fetch_desc(s, i, &ds[i], &fetch);
        if (middle && !s->of[i].mixed) add_map(&t, s, map_middle, NULL), middle = 0;
        table_fetch(&t, &fetch, mixed ? ++mixes : 0);
    }
    if (middle) add_map(&t, s, map_middle, NULL);
    if (s->map) add_map(&t, s, map_adds, s);
    if (s->gate_map) add_map(&t, s, s->gate_map, NULL);
    if (s->cache == 1) add_cache(&t); /* needs: cache */
    table_row(&t, (dlp_node){.verb = DLP_BATCH,
                             .batch = {.batch_size = s->batch,
                                       .collate = s->collate ? dlp_collate_pad : NULL}});
    return table_pipe(&t, p, &pipe, err);
}

static dlp_pipe *setup_open(setup *s) {
    dlp_pipe *p = NULL;
    dlp_error e = {.code = 0};
    CHECK(setup_try(s, 0, &p, &e) == DLP_OK);
    if (p == NULL) printf("  %s: %s\n", e.stage, e.message);
    return p;
}

static int row_field_is(const dlp_batch *b, uint32_t f, uint32_t r, uint64_t word, uint64_t first) {
    const uint64_t n = word % 5;
    const uint8_t *bytes = b->fields[f + 1].data;
    const uint64_t wide = (uint64_t)b->fields[f + 1].shape[1];
    uint64_t got;
    memcpy(&got, (const uint8_t *)b->fields[f].data + 8 * r, 8);
    if (got != first || b->fields[f + 1].lengths[r] != n || wide < n) return 0;
    for (uint64_t i = 0; i < wide; i++)
        if (bytes[wide * r + i] != (i < n ? (uint8_t)(word & 255) : 0)) return 0;
    return 1;
}

/* Is row r what its index says? */
static int row_is(const setup *s, const dlp_batch *b, uint32_t r) {
    uint64_t index = b->index[r], sum = 0, at = index;
    int from = 0, zips = 0;
    while (from + 1 < s->n && s->of[from + 1].mixed && at >= s->of[from].n_items)
        at -= s->of[from++].n_items;
    for (int i = from; i < s->n; i++) {
        uint64_t word = source_word(&s->of[i], i == from ? at : index);
        if (i == from && s->middle) word = middle_word(word);
        if (i == from || !s->of[i].mixed) sum += word;
    }
    for (int i = from; i < s->n; i++) {
        uint64_t word = source_word(&s->of[i], i == from ? at : index), got = word;
        if (i > from && s->of[i].mixed) continue;
        if (zips == 0 && s->middle) got = middle_word(word);
        if (zips == 0 && s->map) got = sum;
        if (!row_field_is(b, (uint32_t)(2 * zips), r, word, got)) return 0;
        zips++;
    }
    return (int)b->n_fields == 2 * zips;
}

typedef struct outcome {
    int rc;
    uint64_t order, rows, left, replaced; /* hash of indices and valid bits */
    dlp_error error;
    dlp_stats stats;
    dlp_state state;
    uint64_t batches;
} outcome;

static dlp_pipe *pipe_;

/* Up to most batches. */
__attribute__((unused)) static outcome drain(setup *s, uint64_t most) {
    outcome o;
    dlp_batch *b;
    dlp_plan plan;
    dlp_pipe *p = setup_open(s);
    memset(&o, 0, sizeof o);
    pipe_ = p;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && dlp_pipe_plan(p, &plan) == DLP_OK);
    if ((o.rc = dlp_pipe_start(p)) != DLP_OK) rig_say(p, o.rc);
    CHECK(o.rc == DLP_OK);
    while (o.rc == DLP_OK && o.batches < most) {
        if ((o.rc = dlp_pipe_next(p, &b)) == DLP_EPOCH_END) o.rc = dlp_pipe_next(p, &b);
        if (o.rc != DLP_OK) break;
        for (uint32_t r = 0; r < b->count; r++) {
            o.order = dlp_hash(o.order, b->index[r], b->valid[r], b->epoch);
            o.rows += b->valid[r];
            o.left += !b->valid[r];
            CHECK(!b->valid[r] || row_is(s, b, r));
        }
        o.batches++;
        dlp_pipe_release(p, b);
    }
    if (o.rc < 0) o.error = *dlp_pipe_error(p);
    CHECK(dlp_pipe_stats(p, &o.stats) == DLP_OK);
    for (int i = 0; i < s->n && s->cache != 2 && !s->parts && !s->middle; i++)
        CHECK(strcmp(o.stats.stages[2 + i].name, names_[i]) == 0);
    if (o.rc == DLP_OK) CHECK(dlp_pipe_state(p, NULL, &o.state) == DLP_OK);
    pipe_ = NULL;
    dlp_pipe_close(p);
    return o;
}

#endif
