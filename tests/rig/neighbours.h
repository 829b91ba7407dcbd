/* needs: parts split join scratch guard cache pack */
/* Kinds and options of stages that are wired with each other, and what each does to a row. The
   dataset's item i has the number i, the items of a mix 100000 and on, item j of an expanded or
   found input i the number 4 i + j; all that a row has follows from its number. */
#ifndef NEIGHBOURS_H
#define NEIGHBOURS_H

#include <inttypes.h>
#include <math.h>

#include "pipe_rig.h"
#include "shm_rig.h"
#include "sources.h"

enum {
    PARTS,
    FOUND,
    FILTER,
    EXPAND,
    PACK,
    SHUFFLED,
    BUCKETS,
    MIX,
    ZIP,
    SCRATCH,
    CACHE,
    GUARD,
    MAP,
    COLLATE,
    BATCH_MAP,
    TRANSFER,
    SPLIT,
    UNORDERED,
    SHARE,
    CLASSIC,
    IN_FLIGHT,
    WINDOW,
    RAGGED,
    SET_EPOCH,
    FEW_CELLS,
    RETRIES,
    STREAMS,
    PUSH, /* the last, as it fills in what others have set */
    KINDS,
    DECODE = KINDS /* the map that belongs to scratch */
};

#define ITEMS 50
#define MIXED 20
#define BATCH 7
#define EPOCHS 2
#define CHUNK 4 /* values of an item that is split */
#define CELL 4  /* most items of an input */
#define MIXED_FIRST 100000
#define TOKENS 8
#define LONGEST_DOCUMENT 16
#define ROW_STAGES 7
#define ORDERS 5

/* How stages of rows follow each other. */
static const int orders_[ORDERS][ROW_STAGES] = {{MIX, SCRATCH, DECODE, ZIP, GUARD, MAP, CACHE},
                                                {MIX, SCRATCH, DECODE, GUARD, MAP, CACHE, ZIP},
                                                {MIX, SCRATCH, DECODE, CACHE, ZIP, GUARD, MAP},
                                                {MIX, ZIP, SCRATCH, DECODE, MAP, GUARD, CACHE},
                                                {MIX, SCRATCH, ZIP, DECODE, MAP, CACHE, GUARD}};

/* A pipe to be, and what is to be closed after it. */
typedef struct wiring {
    uint64_t kinds; /* bits */
    int order;      /* of orders_ */
    int workers, processes;
    dlp_pipe *p;
    dlp_push *push;
    dlp_buckets *buckets;
    char name[40];
    dlp_shm_desc shm;
    dlp_pipe_desc pipe;
    dlp_sampler_desc sampler;
    dlp_field fields[3], raw, label;
    dlp_dataset dataset, mixed, zipped;
    dlp_workers_desc all, few; /* of fetch and what makes its items; of any other stage */
    dlp_node_load parts, found;
    dlp_node_expand expand;
    dlp_node_pack pack;
    dlp_source fetch;
    uint32_t window, streams, n_cells; /* n_cells: of fields that end */
    dlp_node_cache cache;
    dlp_node_batch batch;
    dlp_workers_desc batch_by;
} wiring;

static wiring now_; /* whom callbacks work for */

static inline int has(int kind) { return (int)(now_.kinds >> kind & 1); }
static inline uint32_t width(void) { return has(SPLIT) ? CHUNK : 1; }
static inline uint32_t n_fields(void) { return has(PACK) ? 1 : has(RAGGED) ? 3 : 2; }

static inline int comes_before(int a, int b) { /* among stages of rows */
    const int *o = orders_[now_.order];
    int i = 0;
    while (o[i] != a && o[i] != b) i++;
    return o[i] == a;
}
/* A zip in front of scratch writes its fields. */
static inline int zip_reads(void) { return has(ZIP) && has(SCRATCH) && comes_before(ZIP, SCRATCH); }

/* ---- rows ---- */

static inline uint64_t value_of(uint64_t id) { return id * 1000 + 7; }
static inline uint64_t label_of(uint64_t index) { return index * 7 + 1; }
static inline uint64_t bytes_of(uint64_t id) { return has(RAGGED) && !has(PACK) ? id % 9 : 0; }
static inline uint64_t tokens_of(uint64_t document) { return document % 17; }
static inline int is_filtered(uint64_t index) { return has(FILTER) && index % 3 == 1; }
static inline int is_nan(uint64_t id) { return !has(SPLIT) && !has(PACK) && id % 11 == 5; }
static inline uint64_t made_of(uint64_t input) { return input % CELL; }
static inline uint64_t id_of_index(uint64_t index) {
    return index < ITEMS ? index : MIXED_FIRST + index - ITEMS;
}

static inline uint64_t id_of_item(const dlp_item *it) {
    if (it->part && has(FOUND)) return it->index * CELL + it->part->item;
    if (it->part && has(PARTS)) return it->part->first + it->part->item;
    return it->index;
}

/* What scratch holds until it is decoded. */
static inline void write_raw(void *to, uint64_t id) {
    uint64_t raw[CHUNK];
    for (uint32_t e = 0; e < width(); e++) raw[e] = ~(value_of(id) + e);
    memcpy(to, raw, width() * sizeof *raw);
}

static inline void write_item(dlp_item *it, uint64_t id) {
    uint64_t x[CHUNK] = {0};
    float g[CHUNK];
    for (uint32_t e = 0; e < width(); e++) {
        if (!has(SCRATCH)) x[e] = value_of(id) + e;
        g[e] = is_nan(id) ? NAN : 1;
    }
    memcpy(it->data[0], x, width() * sizeof *x);
    memcpy(it->data[1], g, width() * sizeof *g);
    if (has(SCRATCH) && !zip_reads()) write_raw(it->data[n_fields()], id);
    if (!has(RAGGED)) return;
    it->length[2] = bytes_of(id);
    for (uint64_t k = 0; k < bytes_of(id); k++) ((uint8_t *)it->data[2])[k] = (uint8_t)(id + k);
}

/* ---- callbacks ---- */

static uint64_t *epoch_; /* that set_epoch began, for all processes; UINT64_MAX: it runs */

/* True if set_epoch has not begun this epoch; UINT64_MAX: any. */
static inline int is_early(uint64_t epoch) {
    uint64_t now = __atomic_load_n(epoch_, __ATOMIC_SEQ_CST);
    return has(SET_EPOCH) && (now == UINT64_MAX || (epoch != UINT64_MAX && epoch != now));
}

static int document_put(dlp_item *it, uint64_t id) {
    uint32_t *to = it->data[0];
    it->length[0] = tokens_of(id);
    if (it->n_fields > 1) write_raw(it->data[1], id); /* raw: it is not decoded yet */
    for (uint64_t k = 0; k < it->length[0]; k++)
        to[k] = (uint32_t)(id * 100 + k + 1) ^ (it->n_fields > 1 ? *(uint32_t *)it->data[1] : 0);
    return 0;
}

static int fetch_item(void *user, dlp_item *it) {
    uint64_t id = id_of_item(it), word;
    (void)user;
    if (is_early(it->epoch)) return dlp_fail(it->call, 8, "before set_epoch");
    if (has(RETRIES) && it->index % 7 == 3 && it->attempt == 0)
        return dlp_fail(it->call, 5, "once");
    if (it->part) {
        memcpy(&word, (const char *)it->part->data + 8 * it->part->item, sizeof word);
        if (word != id) return dlp_fail(it->call, 6, "another item's part");
    }
    if (has(PACK)) return document_put(it, id);
    write_item(it, id);
    return 0;
}

static int fetch_mixed(void *user, dlp_item *it) {
    (void)user;
    if (is_early(it->epoch)) return dlp_fail(it->call, 8, "before set_epoch");
    write_item(it, MIXED_FIRST + it->index);
    return 0;
}

static int fetch_label(void *user, dlp_item *it) {
    uint64_t *to = it->data[0];
    (void)user;
    if (is_early(it->epoch)) return dlp_fail(it->call, 8, "before set_epoch");
    for (uint32_t e = 0; e < width(); e++) to[e] = label_of(it->index);
    if (zip_reads()) write_raw(it->data[1], id_of_index(it->index));
    return 0;
}

static int load_part(void *user, dlp_part *part) {
    const int found = has(FOUND);
    (void)user;
    if (is_early(UINT64_MAX)) return dlp_fail(part->call, 8, "before set_epoch");
    if (found) part->items = made_of(part->index);
    for (uint64_t j = 0; j < part->items; j++) {
        uint64_t id = found ? part->index * CELL + j : part->first + j;
        memcpy((char *)part->data + 8 * j, &id, sizeof id);
    }
    part->bytes = part->items * 8;
    return 0;
}

static int expand_item(void *user, dlp_expand *x) {
    uint64_t input = x->item->index;
    (void)user;
    if (is_early(x->item->epoch)) return dlp_fail(x->call, 8, "before set_epoch");
    for (uint64_t j = 0; j < made_of(input); j++) {
        dlp_item *to = dlp_expand_add(x);
        if (to == NULL) return -1;
        if (has(PACK))
            document_put(to, input * CELL + j);
        else
            write_item(to, input * CELL + j);
    }
    return 0;
}

static int decode(void *user, dlp_item *it) {
    const uint32_t at = n_fields() + (uint32_t)zip_reads();
    const uint64_t *raw = it->data[at];
    uint64_t *x = it->data[0];
    uint32_t *token = it->data[0];
    (void)user;
    for (uint64_t k = 0; has(PACK) && k < it->length[0]; k++) token[k] ^= (uint32_t)raw[0];
    for (uint32_t e = 0; !has(PACK) && e < width(); e++) x[e] = ~raw[e];
    return 0;
}

static inline uint64_t mapped(uint64_t x) { return x * 3 + 1; }
static inline uint64_t batch_mapped(uint64_t x) { return x + 10; }

static int map_item(void *user, dlp_item *it) {
    uint64_t *x = it->data[0];
    uint32_t *token = it->data[0];
    (void)user;
    if (is_early(it->epoch)) return dlp_fail(it->call, 8, "before set_epoch");
    if (has(PACK))
        for (uint64_t k = 0; k < it->length[0]; k++) token[k] = (uint32_t)mapped(token[k]);
    else
        for (uint32_t e = 0; e < width(); e++) x[e] = mapped(x[e]);
    return 0;
}

static int map_batch(void *user, dlp_batch *b, void *state) {
    uint64_t *x = b->fields[0].data;
    uint32_t *token = b->fields[0].data;
    const uint64_t most = has(PACK) ? (uint64_t)b->fields[0].shape[1] : 0;
    (void)user;
    (void)state;
    for (uint32_t i = 0; i < b->count; i++) {
        if (!b->valid[i]) continue;
        if (has(PACK))
            for (uint64_t k = 0; k < most; k++)
                token[i * most + k] = (uint32_t)batch_mapped(token[i * most + k]);
        else
            for (uint32_t e = 0; e < width(); e++)
                x[i * width() + e] = batch_mapped(x[i * width() + e]);
    }
    return 0;
}

static uint32_t length_of(void *user, uint64_t index) {
    (void)user;
    return (uint32_t)(index * 7 % 13 + 1);
}

static int set_epoch(void *user, uint64_t epoch) {
    (void)user;
    __atomic_store_n(epoch_, UINT64_MAX, __ATOMIC_SEQ_CST);
    if (epoch) poll(NULL, 0, 1);
    __atomic_store_n(epoch_, epoch, __ATOMIC_SEQ_CST);
    return 0;
}

/* ---- what a kind sets before anything is added ---- */

static int set_parts(wiring *w, dlp_error *err) {
    static const uint64_t items[10] = {3, 9, 1, 7, 0, 12, 2, 6, 8, 2};
    (void)err;
    w->sampler.order = DLP_ORDER_PARTS;
    w->dataset.n_items = 0;
    w->parts.n_parts = 10;
    w->parts.items = items;
    w->parts.max_part_bytes = 8 * 12;
    w->parts.load = load_part;
    w->parts.workers = w->few;
    return DLP_OK;
}

static int set_found(wiring *w, dlp_error *err) {
    (void)err;
    w->sampler.order = DLP_ORDER_PARTS;
    w->dataset.n_items = 0;
    w->found.n_parts = ITEMS;
    w->found.max_items = CELL;
    w->found.max_part_bytes = 8 * CELL;
    w->found.load = load_part;
    w->found.workers = w->all;
    return DLP_OK;
}

static int set_filter(wiring *w, dlp_error *err) {
    (void)err;
    w->dataset.filter = 1;
    return DLP_OK;
}

static int set_expand(wiring *w, dlp_error *err) {
    (void)err;
    w->expand.expand = expand_item;
    w->expand.max_out = CELL;
    return DLP_OK;
}

static int set_pack(wiring *w, dlp_error *err) {
    (void)err;
    w->fields[0] = (dlp_field){"tokens", DLP_U32, 1, {LONGEST_DOCUMENT}, 1, 0};
    w->pack.tokens = TOKENS;
    w->pack.max_segments = 6;
    return DLP_OK;
}

static int set_shuffled(wiring *w, dlp_error *err) {
    (void)err;
    w->sampler.order = DLP_ORDER_SHUFFLED;
    return DLP_OK;
}

static int set_buckets(wiring *w, dlp_error *err) {
    dlp_buckets_desc b = {0};
    int rc;
    b.n_items = ITEMS + (has(MIX) ? MIXED : 0);
    b.length = length_of;
    b.batch_size = BATCH;
    b.window = 21;
    b.shuffle = 1;
    b.seed = 3;
    rc = dlp_buckets_open(&w->buckets, &b, err);
    if (rc == DLP_OK) rc = dlp_buckets_sampler(w->buckets, &w->sampler);
    return rc;
}

static int set_collate(wiring *w, dlp_error *err) {
    (void)err;
    w->batch.collate = dlp_collate_pad;
    return DLP_OK;
}

static int set_split(wiring *w, dlp_error *err) {
    (void)err;
    w->batch.batch_size = 1;
    return DLP_OK;
}

static int set_unordered(wiring *w, dlp_error *err) {
    (void)err;
    w->pipe.unordered = 1;
    return DLP_OK;
}

static int set_share(wiring *w, dlp_error *err) {
    (void)err;
    snprintf(w->name, sizeof w->name, "neighbours.%d", (int)getpid());
    w->shm.name = w->name;
    w->shm.share = DLP_SHARE_EACH;
    w->pipe.shm = &w->shm;
    return DLP_OK;
}

static int set_classic(wiring *w, dlp_error *err) {
    (void)err;
    w->fetch.workers.dispatch = DLP_DISPATCH_BATCHES;
    return DLP_OK;
}

static int set_in_flight(wiring *w, dlp_error *err) {
    (void)err;
    w->fetch.fetcher = DLP_FETCH_THREADS;
    w->fetch.in_flight = 3;
    return DLP_OK;
}

static int set_window(wiring *w, dlp_error *err) {
    (void)err;
    w->window = 11;
    w->found.queue_size = 60;
    w->pack.rule = DLP_PACK_FIT;
    w->pack.window = 9;
    return DLP_OK;
}

static int set_ragged(wiring *w, dlp_error *err) {
    (void)err;
    w->fields[2] = (dlp_field){"bytes", DLP_U8, 1, {8}, 1, 0};
    return DLP_OK;
}

static int set_epochs(wiring *w, dlp_error *err) {
    (void)err;
    w->pipe.set_epoch = set_epoch;
    *epoch_ = UINT64_MAX;
    return DLP_OK;
}

static int set_few_cells(wiring *w, dlp_error *err) {
    (void)err;
    w->n_cells = 1;
    w->cache.bytes = 800;
    return DLP_OK;
}

static int set_retries(wiring *w, dlp_error *err) {
    (void)err;
    w->all.retries = w->found.workers.retries = w->parts.workers.retries = 2;
    if (!has(FILTER) && !has(EXPAND) && !has(PACK)) w->fetch.workers.retries = 2;
    return DLP_OK;
}

static int set_streams(wiring *w, dlp_error *err) {
    uint32_t n = has(SPLIT) ? 1 : BATCH;
    (void)err;
    if (has(PARTS) || has(FOUND) || has(FILTER) || has(EXPAND) || has(PACK)) w->pipe.streams = n;
    w->found.queue_size = 100;
    return DLP_OK;
}

/* All items are pushed before the pipe starts. */
static int set_push(wiring *w, dlp_error *err) {
    dlp_push_desc d = {0};
    dlp_pusher_desc by = {0};
    dlp_pusher *pusher;
    int rc;
    dlp_field fields[4];
    memcpy(fields, w->fields, sizeof w->fields);
    if (has(SCRATCH)) fields[n_fields()] = w->raw;
    d.fields = fields;
    d.n_fields = n_fields() + (uint32_t)has(SCRATCH);
    d.writers = 1;
    if ((rc = dlp_push_open(&w->push, &d, err)) != DLP_OK) return rc;
    source_items(dlp_push_source(w->push), &w->dataset, &w->fetch.workers);
    if (w->workers > 0) w->fetch.workers.num_workers = 1;
    by.push = w->push;
    if ((rc = dlp_pusher_open(&pusher, &by, err)) != DLP_OK) return rc;
    for (uint64_t i = 0; i < ITEMS; i++) {
        uint64_t x[CHUNK > 8 ? CHUNK : 8], raw[CHUNK], length[4] = {0}; /* x: or 16 tokens */
        uint8_t bytes[8];
        float g[CHUNK];
        void *to[4] = {x, g, bytes, NULL};
        const void *from[4] = {x, g, bytes, NULL};
        dlp_item it = {0};
        it.data = to;
        it.length = length;
        it.n_fields = d.n_fields;
        to[n_fields()] = raw;
        from[n_fields()] = raw;
        it.index = i;
        if (has(PACK))
            document_put(&it, it.index);
        else
            write_item(&it, i);
        if (has(RAGGED) || has(PACK)) CHECK(dlp_pusher_lengths(pusher, length) == DLP_OK);
        CHECK(dlp_pusher_push(pusher, from, 5000) == DLP_OK);
    }
    CHECK(dlp_pusher_end(pusher, 5000) == DLP_OK);
    dlp_pusher_close(pusher);
    return DLP_OK;
}

typedef struct kind {
    const char *name;
    int (*set)(wiring *w, dlp_error *err); /* NULL: nothing */
    const char *words;                     /* what errors may call it, and nothing else */
} kind;

static const kind kinds_[KINDS + 1] = {
    [PARTS] = {"parts", set_parts, "parts part"},
    [FOUND] = {"found", set_found, "parts part max_items \"found\""},
    [FILTER] = {"filter", set_filter, "expand filter input"},
    [EXPAND] = {"expand", set_expand, "expand input"},
    [PACK] = {"pack", set_pack, "pack document ragged input"},
    [SHUFFLED] = {"shuffled", set_shuffled, "shuffle sampler.order"},
    [BUCKETS] = {"buckets", set_buckets,
                 "sampler.order list.order list.shuffle shuffle DLP_ORDER_BATCHES"},
    [MIX] = {"mix", NULL, "mix join"},
    [ZIP] = {"zip", NULL, "zip join"},
    [SCRATCH] = {"scratch", NULL, "scratch"},
    [CACHE] = {"cache", NULL, "cache"},
    [GUARD] = {"guard", NULL, "guard"},
    [MAP] = {"map", NULL, "map"},
    [COLLATE] = {"collate", set_collate, "collate"},
    [BATCH_MAP] = {"batch_map", NULL, "map"},
    [TRANSFER] = {"transfer", NULL, "transfer device"},
    [SPLIT] = {"split", set_split, "split chunks views"},
    [UNORDERED] = {"unordered", set_unordered, "unordered"},
    [SHARE] = {"share", set_share, "share subscribers"},
    [CLASSIC] = {"classic", set_classic, "dispatch"},
    [IN_FLIGHT] = {"in_flight", set_in_flight, "fetcher in_flight"},
    [WINDOW] = {"window", set_window, "window windows"},
    [RAGGED] = {"ragged", set_ragged, "ragged"},
    [SET_EPOCH] = {"set_epoch", set_epochs, "set_epoch"},
    [FEW_CELLS] = {"few_cells", set_few_cells, "n_cells"},
    [RETRIES] = {"retries", set_retries, "retries"},
    [STREAMS] = {"streams", set_streams, "streams"},
    [PUSH] = {"push", set_push, "pushed push open_end mix zip"},
    [DECODE] = {"decode", NULL, "map"}};

/* ---- a pipe ---- */

static void set_datasets(wiring *w) {
    const int dims = has(SPLIT);
    w->fields[0] = (dlp_field){"x", DLP_U64, dims, {width()}, 0, 0};
    w->fields[1] = (dlp_field){"g", DLP_F32, dims, {width()}, 0, 0};
    w->raw = (dlp_field){"raw", DLP_U64, dims, {width()}, 0, 0};
    w->label = (dlp_field){"y", DLP_U64, dims, {width()}, 0, 0};
    w->dataset.n_items = ITEMS;
    w->dataset.fields = w->fields;
    w->dataset.n_fields = n_fields();
    w->dataset.fetch = fetch_item;
    w->mixed = w->dataset;
    w->mixed.n_items = MIXED;
    w->mixed.fetch = fetch_mixed;
    w->zipped.n_items = ITEMS + (has(MIX) ? MIXED : 0);
    w->zipped.fields = &w->label;
    w->zipped.n_fields = 1;
    w->zipped.fetch = fetch_label;
}

/* All that no kind is needed for. */
static void set_all(wiring *w) {
    w->shm.allow_fork_with_threads = 1;
    if (w->processes) w->pipe.shm = &w->shm;
    w->pipe.prefetch_factor = 3;
    w->pipe.max_held = 2;
    w->sampler.seed = 9;
    w->pipe.epochs = has(PUSH) ? 1 : EPOCHS;
    w->all.num_workers = so_many((uint64_t)w->workers);
    w->all.placement = w->processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
    w->few = w->all;
    if (w->workers > 2) w->few.num_workers = 2;
    w->fetch.workers = w->all;
    w->fetch.dataset = &w->dataset;
    w->cache.bytes = 1 << 16;
    w->batch.batch_size = BATCH;
    w->batch_by.placement = w->all.placement;
    if (w->workers == 0) w->batch_by.num_workers = DLP_NONE;
}

/* Fill in the descs of now_, of which kinds, order, workers and processes are given. Returns a
   code, and then *err says why. */
static int prepare(const dlp_state *resume, dlp_error *err) {
    wiring *w = &now_, of = now_;
    int rc = DLP_OK;
    memset(w, 0, sizeof *w);
    w->kinds = of.kinds;
    w->order = of.order;
    w->workers = of.workers;
    w->processes = of.processes;
    set_datasets(w);
    set_all(w);
    w->pipe.resume = resume;
    memset(err, 0, sizeof *err);
    for (int k = 0; k < KINDS && rc == DLP_OK; k++)
        if (has(k) && kinds_[k].set) rc = kinds_[k].set(w, err);
    return rc;
}

/* Close it all; batches in held are given back after the pipe is closed. */
static void unwire(dlp_batch **held, int n) {
    wiring *w = &now_;
    if (w->p) CHECK(dlp_pipe_close(w->p) == DLP_OK);
    for (int i = 0; i < n; i++) CHECK(dlp_pipe_release(w->p, held[i]) == DLP_OK);
    if (w->push) CHECK(dlp_push_close(w->push) == DLP_OK);
    dlp_buckets_close(w->buckets);
    w->p = NULL;
    w->push = NULL;
    w->buckets = NULL;
}

#endif
