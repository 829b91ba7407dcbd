/* What the tests of the pipe's behaviour share: a pipe whose every byte can be told from (seed,
   epoch, position) without running one, and the check of a batch against that. */
#ifndef PIPE_RIG_H
#define PIPE_RIG_H

#include "check.h"
#include "rows.h"

/* How much of a long list of cases to run: SHORT=1 less, SOAK=1 much more. */
static inline int test_share(int usual, int soak) {
    if (getenv("SOAK")) return soak;
    return getenv("SHORT") ? (usual + 7) / 8 : usual;
}

static inline uint64_t test_random(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return dlp_hash(*state, 1, 2, 3);
}
/* n for a num_workers whose 0 is not inline. */
static inline int32_t so_many(uint64_t n) { return n > 0 ? (int32_t)n : DLP_NONE; }

static inline uint32_t test_pick(uint64_t *state, uint32_t n) {
    return (uint32_t)(test_random(state) >> 33) % n;
}

/* Write over all of an item that a callback has been given. The library must not look at that. */
static inline void item_spoil(dlp_item *it) {
    for (uint32_t i = 0; i < it->n_fields; i++) it->data[i] = NULL;
    it->index = it->epoch = it->position = it->seed = UINT64_MAX / 3;
    it->row = it->attempt = it->n_fields = it->worker = 77777;
    it->worker_state = NULL;
    it->data = NULL;
    it->length = NULL;
    it->call = NULL;
    it->part = NULL;
}

/* Write over the numbers of a batch that is held. The library must not go by them. */
static inline void batch_spoil(dlp_batch *b) {
    b->sequence = b->epoch = b->position = b->in_epoch = UINT64_MAX / 3;
    b->count = b->valid_count = 77777;
    b->flags ^= DLP_BATCH_LAST;
    b->internal = NULL;
}

#define RIG_MAPS 3

typedef struct rig {
    dlp_pipe_desc pipe;
    dlp_sampler_desc sampler;
    dlp_dataset dataset;
    dlp_workers_desc fetch;
    dlp_node item_map[RIG_MAPS], batch_map[RIG_MAPS];
    dlp_node_batch batch;
    dlp_workers_desc batch_by;
    dlp_node transfer;
    int n_item_maps, n_batch_maps, n_transfers;
    dlp_permutation permutation; /* of the epoch asked for last */
    int permutation_ready;
    uint64_t *weights;
    uint64_t *table; /* alias table of the weights */
    int fetcher, in_flight;
    dlp_async async;
    /* bytes 0, n_parts 0: none */
    dlp_node_cache cache;     /* needs: cache */
    dlp_node_load parts;      /* needs: parts */
    const dlp_field *scratch; /* [n_scratch] fields that end in the first map */
    uint32_t n_scratch, n_cells;
} rig;

static const dlp_field rig_fields[2] = {{"words", DLP_U64, 1, {3}, 0, 0},
                                        {"label", DLP_U32, 0, {0}, 0, 0}};

static inline void rig_words(uint64_t seed, uint64_t index, uint64_t epoch, uint64_t position,
                             uint64_t *words) {
    dlp_item it;
    memset(&it, 0, sizeof it);
    it.seed = seed;
    it.epoch = epoch;
    it.position = position;
    words[0] = index;
    words[1] = epoch << 32 | position;
    words[2] = dlp_item_random(&it, 1);
}

static inline int rig_fetch(void *user, dlp_item *it) {
    uint64_t words[3];
    uint32_t label = (uint32_t)it->index;
    (void)user;
    rig_words(it->seed, it->index, it->epoch, it->position, words);
    memcpy(it->data[0], words, sizeof words);
    memcpy(it->data[1], &label, sizeof label);
    return 0;
}

static inline int rig_item_map(void *user, dlp_item *it) {
    uint64_t words[3];
    (void)user;
    memcpy(words, it->data[0], sizeof words);
    words[2] = words[2] * 3 + it->index;
    memcpy(it->data[0], words, sizeof words);
    return 0;
}

static inline int rig_batch_map(void *user, dlp_batch *b, void *state) {
    uint64_t *words = b->fields[0].data;
    (void)user;
    (void)state;
    for (uint32_t r = 0; r < b->count; r++)
        words[3 * r + 2] = words[3 * r + 2] * 5 + b->index[r] + b->in_epoch;
    return 0;
}

static inline uint64_t rig_function(void *user, uint64_t epoch, uint64_t position) {
    return (position * 7 + epoch) % *(const uint64_t *)user;
}

static inline void rig_init(rig *r, uint64_t n_items, uint32_t batch_size) {
    memset(r, 0, sizeof *r);
    r->dataset.n_items = n_items;
    r->dataset.fields = rig_fields;
    r->dataset.n_fields = 2;
    r->dataset.fetch = rig_fetch;
    r->sampler.seed = 42;
    r->batch.batch_size = batch_size;
    r->batch.last = DLP_LAST_PARTIAL;
    r->transfer.verb = DLP_TRANSFER;
    for (int i = 0; i < RIG_MAPS; i++) {
        r->item_map[i] = (dlp_node){.verb = DLP_MAP, .map = {.item = rig_item_map}};
        r->batch_map[i] = (dlp_node){.verb = DLP_MAP, .map = {.batch = rig_batch_map}};
    }
}

static inline void rig_order(rig *r, int order) {
    r->sampler.order = order;
    r->permutation_ready = 0;
    if (order == DLP_ORDER_WEIGHTED) {
        r->weights = malloc(r->dataset.n_items * sizeof *r->weights);
        for (uint64_t i = 0; i < r->dataset.n_items; i++) r->weights[i] = i % 5 + (i == 0);
        r->sampler.weights = r->weights;
        r->table = inside_order_table(&r->sampler, r->dataset.n_items);
    }
    if (order == DLP_ORDER_FUNCTION) {
        r->sampler.function = rig_function;
        r->sampler.function_user = &r->dataset.n_items;
    }
}

/* Two epochs of 13 batches, which end on a device. */
static inline void rig_device(rig *r, const dlp_device *device, int threaded, int held) {
    rig_init(r, 100, 8);
    r->pipe.epochs = 2;
    r->fetch.num_workers = threaded ? 2 : 0;
    r->pipe.prefetch_factor = 3;
    r->pipe.max_held = held;
    r->n_transfers = 1;
    r->transfer.transfer.device = device;
    r->transfer.workers.num_workers = threaded;
    rig_order(r, DLP_ORDER_SHUFFLED);
}

static inline void rig_free(rig *r) {
    free(r->weights);
    free(r->table);
    r->weights = r->table = NULL;
}

/* in_turn: whole batches to the workers in turn, else any run of any batch to any worker. */
static inline void rig_workers(rig *r, int workers, int in_turn) {
    int dispatch = in_turn ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    r->fetch.num_workers = workers;
    r->fetch.dispatch = dispatch;
    for (int i = 0; i < RIG_MAPS; i++) {
        r->item_map[i].workers.num_workers = workers;
        r->item_map[i].workers.dispatch = dispatch;
        r->batch_map[i].workers.num_workers = workers;
        r->batch_map[i].workers.dispatch = dispatch;
    }
    r->batch_by.dispatch = dispatch;
}

/* Wire it; *out is open, not started. */
static inline int rig_wire(rig *r, dlp_pipe **out, dlp_error *err) {
    rig_table t = {.n = 0};
    dlp_dataset dataset = r->dataset;
    const dlp_source fetch = {.dataset = &dataset,
                              .workers = r->fetch,
                              .fetcher = r->fetcher,
                              .in_flight = r->in_flight,
                              .async = r->async};
    if (dataset.open_end != 0) dataset.n_items = 0; /* rigs know it all the same */
    table_list(&t, &r->sampler);
    if (r->parts.n_parts) table_load(&t, &r->parts); /* needs: parts */
    table_fetch(&t, &fetch, 0);
    if (r->n_scratch) table_ends(&t, r->scratch, r->n_scratch, r->n_cells);
    if (r->cache.bytes) table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = r->cache});
    for (int i = 0; i < r->n_item_maps; i++) table_row(&t, r->item_map[i]);
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = r->batch, .workers = r->batch_by});
    for (int i = 0; i < r->n_batch_maps; i++) table_row(&t, r->batch_map[i]);
    if (r->n_transfers) table_row(&t, r->transfer);
    return table_pipe(&t, out, &r->pipe, err);
}

/* Wire and start; on failure the pipe is closed and *err says why. */
static inline int rig_try(rig *r, dlp_pipe **out, dlp_error *err) {
    int rc = rig_wire(r, out, err);
    if (rc == DLP_OK)
        rc = dlp_pipe_start(*out);
    else
        *out = NULL;
    if (rc == DLP_OK || *out == NULL) return rc;
    if (err) *err = *dlp_pipe_error(*out);
    dlp_pipe_close(*out);
    *out = NULL;
    return rc;
}

static inline int rig_open(rig *r, dlp_pipe **out) {
    dlp_error err;
    char text[700];
    int rc = rig_try(r, out, &err);
    if (rc == DLP_OK) return rc;
    dlp_error_format(&err, text, sizeof text);
    printf("start: %s\n", text);
    CHECK(rc == DLP_OK);
    return rc;
}

static inline void rig_say(const dlp_pipe *p, int rc) {
    char text[700];
    dlp_error_format(dlp_pipe_error(p), text, sizeof text);
    printf("next returned %s; %s\n", dlp_code_name(rc), text);
}

/* ---- what must come out ---- */

static inline uint64_t rig_samples(const rig *r) {
    return r->sampler.samples_per_epoch ? r->sampler.samples_per_epoch : r->dataset.n_items;
}

static inline uint64_t rig_batches(const rig *r) {
    uint64_t n = rig_samples(r), size = r->batch.batch_size;
    return r->batch.last == DLP_LAST_DROP ? n / size : (n + size - 1) / size;
}

static inline uint64_t rig_index(rig *r, uint64_t epoch, uint64_t position) {
    switch (r->sampler.order) {
    case DLP_ORDER_SEQUENTIAL: return position;
    case DLP_ORDER_FUNCTION: return rig_function(&r->dataset.n_items, epoch, position);
    case DLP_ORDER_SHUFFLED:
        if (!r->permutation_ready || r->permutation.epoch != epoch ||
            r->permutation.seed != r->sampler.seed)
            dlp_permutation_init(&r->permutation, r->dataset.n_items, r->sampler.seed, epoch);
        r->permutation_ready = 1;
        return dlp_permutation_at(&r->permutation, position);
    default: return inside_order_index(&r->sampler, r->dataset.n_items, r->table, epoch, position);
    }
}

/* The global batch k: begins at *first, has *rows rows, of which this rank has [*from, *from +
   *count). */
static inline void rig_share(const rig *r, uint64_t k, uint64_t *first, uint64_t *from,
                             uint64_t *count) {
    uint64_t rows = r->batch.batch_size, world = r->pipe.world_size ? r->pipe.world_size : 1;
    *first = k * rows;
    if (r->batch.last <= DLP_LAST_DEFAULT && *first + rows > rig_samples(r))
        rows = rig_samples(r) - *first;
    *from = rows * r->pipe.rank / world;
    *count = rows * (r->pipe.rank + UINT64_C(1)) / world - *from;
}

static inline int rig_row_same(rig *r, const dlp_batch *b, uint32_t row, uint64_t position) {
    uint64_t words[3], got[3], index = rig_index(r, b->epoch, position);
    uint32_t label;
    rig_words(r->sampler.seed, index, b->epoch, position, words);
    for (int i = 0; i < r->n_item_maps; i++) words[2] = words[2] * 3 + index;
    for (int i = 0; i < r->n_batch_maps; i++) words[2] = words[2] * 5 + index + b->in_epoch;
    memcpy(got, (const uint8_t *)b->fields[0].data + row * sizeof got, sizeof got);
    memcpy(&label, (const uint8_t *)b->fields[1].data + row * sizeof label, sizeof label);
    return b->index[row] == index && memcmp(words, got, sizeof got) == 0 &&
           label == (uint32_t)index;
}

/* Is b, but for flags and sequence, global batch k of the epoch as this rank sees it? */
static inline int rig_batch_same(rig *r, const dlp_batch *b, uint64_t epoch, uint64_t k) {
    uint64_t first, from, count, valid = 0, samples = rig_samples(r);
    int ok = 1;
    rig_share(r, k, &first, &from, &count);
    ok = b->epoch == epoch && b->in_epoch == k && b->position == first + from &&
         b->count == count && b->n_fields == 2 && b->fields[0].ndim == 2 &&
         b->fields[0].shape[0] == (int64_t)count && b->fields[0].shape[1] == 3 &&
         b->fields[0].bytes == 24 * count && b->fields[1].ndim == 1 &&
         b->fields[1].shape[0] == (int64_t)count && b->fields[1].bytes == 4 * count &&
         ((uintptr_t)b->fields[0].data & 63) == 0 && ((uintptr_t)b->fields[1].data & 63) == 0 &&
         b->fields[0].dtype == DLP_U64 && strcmp(b->fields[1].name, "label") == 0;
    for (uint32_t row = 0; ok && row < count; row++) {
        uint64_t position = first + from + row;
        int real = position < samples;
        ok = rig_row_same(r, b, row, position % samples) && b->valid[row] == real;
        valid += (uint64_t)real;
    }
    return ok && b->valid_count == valid;
}

#endif
