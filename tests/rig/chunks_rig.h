/* What the tests of chunks share: a loader, a device that copies late, so that a buffer that is
   used too early shows, and an oracle that knows the order from (seed, epoch, position) alone. */
#ifndef CHUNKS_RIG_H
#define CHUNKS_RIG_H

static const dlp_field row_fields[2] = {{"words", DLP_U64, 1, {3}, 0, 0},
                                        {"label", DLP_U32, 0, {0}, 0, 0}};

static inline void sleep_us(uint64_t us) {
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

/* ---- a device that copies when it is asked whether it has ---- */

#define LATE_COPIES 8
typedef struct late {
    uint64_t copy_ns;
    uint64_t due[64];
    struct {
        void *to;
        const void *from;
        uint64_t bytes;
    } copy[64][LATE_COPIES];
    int n[64];
    int copies, fail_at;     /* fail_at: which copy fails, 0: none */
    int joins, fail_join_at; /* copies within the device */
    int live;                /* buffers allocated and not freed */
} late;

static inline int late_alloc(void *user, uint64_t bytes, void **dev) {
    ((late *)user)->live++;
    *dev = calloc(1, bytes);
    return *dev == NULL;
}
static inline void late_free(void *user, void *dev) {
    ((late *)user)->live--;
    memset(((late *)user)->n, 0, sizeof((late *)user)->n); /* copies under way are given up */
    free(dev);
}
static inline int late_copy(void *user, void *dev, const void *host, uint64_t bytes,
                            uint32_t buffer) {
    late *l = user;
    int i = l->n[buffer]++;
    if (++l->copies == l->fail_at || i >= LATE_COPIES) return 5;
    l->copy[buffer][i].to = dev;
    l->copy[buffer][i].from = host;
    l->copy[buffer][i].bytes = bytes;
    return 0;
}
static inline int late_copy_within(void *user, void *to, uint64_t to_at, void *from,
                                   uint64_t from_at, uint64_t bytes, uint32_t buffer) {
    late *l = user;
    if (++l->joins == l->fail_join_at) return 5;
    l->copies--; /* it is none */
    return late_copy(user, (uint8_t *)to + to_at, (const uint8_t *)from + from_at, bytes, buffer);
}
static inline int late_record(void *user, uint32_t buffer) {
    late *l = user;
    l->due[buffer] = test_now_ns() + l->copy_ns;
    return 0;
}
static inline int late_done(void *user, uint32_t buffer) {
    late *l = user;
    if (test_now_ns() < l->due[buffer]) return 0;
    for (int i = 0; i < l->n[buffer]; i++)
        memcpy(l->copy[buffer][i].to, l->copy[buffer][i].from, l->copy[buffer][i].bytes);
    l->n[buffer] = 0;
    return 1;
}
static inline dlp_device late_device(late *l, int handles) {
    return (dlp_device){.name = "late",
                        .alloc = late_alloc,
                        .free = late_free,
                        .copy = late_copy,
                        .record = late_record,
                        .done = late_done,
                        .user = l,
                        .handles = handles,
                        .copy_within = late_copy_within};
}

/* ---- a loader ---- */

typedef struct source {
    uint64_t n_items, chunk_rows;
    uint32_t sleep_us;
    int calls[64];            /* of each chunk */
    uint64_t rows;            /* loaded in all */
    int bad_chunk, bad_times; /* this one fails so often; -1: always */
    int whole;                /* 1: each call is expected to be a whole chunk */
    int failures;
} source;

static inline uint64_t word_of(uint64_t row, int i) { return dlp_hash(row, (uint64_t)i, 7, 7); }

static inline int load(void *user, dlp_chunk *c) {
    source *s = user;
    uint64_t *words = c->data[0];
    uint32_t *label = c->data[1];
    int call = __atomic_add_fetch(&s->calls[c->index % 64], 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&s->rows, c->count, __ATOMIC_RELAXED);
    uint32_t us = __atomic_load_n(&s->sleep_us, __ATOMIC_RELAXED);
    if (us) sleep_us(us);
    if ((s->chunk_rows && c->chunk_first != c->index * s->chunk_rows) || c->count == 0 ||
        c->chunk_first + c->chunk_rows > s->n_items || (s->whole && c->count != c->chunk_rows))
        __atomic_add_fetch(&s->failures, 1, __ATOMIC_RELAXED);
    if (s->bad_times && (uint64_t)s->bad_chunk == c->index &&
        (s->bad_times < 0 || call <= s->bad_times))
        return dlp_fail(c->call, 5, "chunk %d is bad", s->bad_chunk);
    for (uint64_t k = 0; k < c->count; k++) {
        uint64_t row = dlp_chunk_row(c, k);
        if (row < c->chunk_first || row >= c->chunk_first + c->chunk_rows)
            __atomic_add_fetch(&s->failures, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < 3; i++) words[3 * k + (uint64_t)i] = word_of(row, i);
        label[k] = (uint32_t)row;
    }
    return 0;
}

/* ---- the oracle ---- */

typedef struct expected {
    uint64_t per_epoch, position, in_epoch;
    uint32_t count, global;
    uint64_t index[256];
} expected;

static inline uint64_t chunk_at(const dlp_chunks_desc *d, uint64_t epoch, uint64_t q,
                                uint64_t chunks) {
    dlp_permutation p;
    if (!d->shuffle_chunks || d->pass != DLP_PASS_TRAIN) return q;
    dlp_permutation_init(&p, chunks, d->seed, epoch);
    return dlp_permutation_at(&p, q);
}

static inline uint64_t chunk_count(const dlp_chunks_desc *d) {
    return d->rows ? d->n_chunks : (d->n_items - 1) / d->chunk_rows + 1;
}
static inline uint64_t chunk_first(const dlp_chunks_desc *d, uint64_t c) {
    uint64_t first = 0;
    for (uint64_t i = 0; d->rows && i < c; i++) first += d->rows[i];
    return d->rows ? first : c * d->chunk_rows;
}
static inline uint64_t chunk_rows_of(const dlp_chunks_desc *d, uint64_t c) {
    uint64_t left = d->rows ? d->rows[c] : d->n_items - c * d->chunk_rows;
    return d->rows || left < d->chunk_rows ? left : d->chunk_rows;
}

#define MOST_ROWS 4096

/* The rows of an epoch, in order, as they are delivered to all ranks; ends: where its batches do.
   Returns how many batches there are. */
static inline uint64_t oracle_epoch(const dlp_chunks_desc *d, uint64_t epoch, uint64_t *row,
                                    uint64_t *ends) {
    bool train = d->pass == DLP_PASS_TRAIN, drop = train && d->last == DLP_LAST_DROP;
    uint64_t chunks = chunk_count(d), n = 0, b = 0, begin = 0;
    if (d->within_chunks && drop && d->rows == NULL && chunk_rows_of(d, chunks - 1) < d->batch_size)
        chunks--;
    for (uint64_t q = 0; q < chunks; q++) {
        uint64_t c = chunk_at(d, epoch, q, chunks), rows = chunk_rows_of(d, c);
        uint64_t kept = d->within_chunks && drop ? rows - rows % d->batch_size : rows;
        dlp_permutation p;
        if (train && d->shuffle_rows && rows > 0)
            dlp_permutation_init(&p, rows, inside_absorb(inside_hash(INSIDE_ROWS, d->seed, c), 1),
                                 epoch);
        for (uint64_t r = 0; r < kept && n < MOST_ROWS; r++) {
            row[n++] =
                chunk_first(d, c) + (train && d->shuffle_rows ? dlp_permutation_at(&p, r) : r);
            if (n - begin == d->batch_size || (d->within_chunks && r + 1 == kept))
                ends[b++] = begin = n;
        }
    }
    if (n > begin && !drop) ends[b++] = n;
    return b;
}

/* Batch k of an epoch, as this rank gets it, found by walking. Returns 0 if there is none. */
static inline int oracle(const dlp_chunks_desc *d, uint64_t epoch, uint64_t k, expected *e) {
    static uint64_t row[MOST_ROWS], ends[MOST_ROWS];
    uint64_t world = d->pipe.world_size ? d->pipe.world_size : 1, begin, n, from, to;
    e->per_epoch = oracle_epoch(d, epoch, row, ends);
    if (k >= e->per_epoch) return 0;
    begin = k > 0 ? ends[k - 1] : 0;
    n = ends[k] - begin;
    from = d->pipe.rank * n / world;
    to = (d->pipe.rank + 1) * n / world;
    e->in_epoch = k;
    e->position = begin + from;
    e->count = (uint32_t)(to - from);
    e->global = (uint32_t)n;
    for (uint64_t i = from; i < to; i++) e->index[i - from] = row[begin + i];
    return 1;
}

static inline const uint8_t *field_at(const dlp_batch *b, int f) {
    return (const uint8_t *)b->fields[f].data + b->fields[f].byte_offset;
}

/* Do the bytes of a view belong to its indices? */
static inline int bytes_same(const dlp_batch *b) {
    for (uint32_t r = 0; r < b->count; r++) {
        uint64_t words[3];
        uint32_t label;
        memcpy(words, field_at(b, 0) + r * 24, 24);
        memcpy(&label, field_at(b, 1) + r * 4, 4);
        if (label != (uint32_t)b->index[r]) return 0;
        for (int i = 0; i < 3; i++)
            if (words[i] != word_of(b->index[r], i)) return 0;
    }
    return 1;
}

static inline int view_same(const dlp_chunks_desc *d, const dlp_batch *b, uint64_t epoch,
                            uint64_t k) {
    expected e;
    if (!oracle(d, epoch, k, &e)) return 0;
    if (b->epoch != epoch || b->in_epoch != k || b->position != e.position || b->count != e.count)
        return 0;
    if (b->flags != (k + 1 == e.per_epoch ? DLP_BATCH_LAST : 0)) return 0;
    if (b->valid_count != b->count || b->n_fields != 2 || b->fields[0].ndim != 2) return 0;
    if (b->fields[0].shape[0] != b->count || b->fields[0].shape[1] != 3) return 0;
    if (b->fields[0].bytes != b->count * UINT64_C(24) || b->fields[1].ndim != 1) return 0;
    for (uint32_t r = 0; r < b->count; r++)
        if (b->index[r] != e.index[r] || !b->valid[r]) return 0;
    return bytes_same(b);
}

/* ---- kinds of pipes ---- */

typedef struct kit {
    dlp_chunks_desc d;
    source own, *s;
    late l;
    dlp_device device;
} kit;

enum { DEV_NONE, DEV_HOST, DEV_HOST_INLINE, DEV_LATE, DEV_HANDLES, DEV_KINDS };

static inline void kit_init(kit *k, uint64_t n, uint64_t chunk_rows, uint32_t batch) {
    memset(k, 0, sizeof *k);
    k->s = &k->own;
    k->s->n_items = n;
    k->s->chunk_rows = chunk_rows;
    k->d.n_items = n;
    k->d.fields = row_fields;
    k->d.n_fields = 2;
    k->d.chunk_rows = chunk_rows;
    k->d.batch_size = batch;
    k->d.last = DLP_LAST_PARTIAL;
    k->d.load = load;
    k->d.user = k->s;
    k->d.seed = 11;
    k->d.epochs = 2;
}

static inline void kit_device(kit *k, int kind) {
    k->l.copy_ns = 50000;
    k->device = kind >= DEV_LATE ? late_device(&k->l, kind == DEV_HANDLES) : *dlp_device_host();
    if (kind != DEV_NONE) k->d.device = &k->device;
    k->d.transfer_inline = kind == DEV_HOST_INLINE;
}

static inline void kit_vary(kit *k, uint32_t kind) {
    static const int workers[3] = {DLP_NONE, 1, 3};
    k->d.workers.num_workers = workers[kind % 3];
    kit_device(k, (int)(kind / 3 % DEV_KINDS));
    k->d.shuffle_chunks = kind >> 1 & 1;
    k->d.shuffle_rows = kind >> 2 & 1;
    k->d.last = kind >> 3 & 1 ? DLP_LAST_DROP : DLP_LAST_PARTIAL;
    k->d.within_chunks = kind / 5 & 1;
    k->d.workers.dispatch = kind & 16 ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
}

static inline dlp_pipe *kit_open(kit *k) {
    dlp_error err;
    dlp_pipe *p = NULL;
    int rc = dlp_chunks_open(&p, &k->d, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("%s: %s\n", err.field, err.message);
    return p;
}

/* All batches from (epoch, batch) on, to the end. */
static inline void drain_from(kit *k, dlp_pipe *p, uint64_t epoch, uint64_t batch) {
    expected e;
    dlp_batch *b;
    int rc;
    uint64_t sequence = UINT64_MAX;
    oracle(&k->d, 0, 0, &e);
    if (epoch == 0 && batch == 0) sequence = 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(view_same(&k->d, b, epoch, batch));
        CHECK(sequence == UINT64_MAX || b->sequence == sequence);
        sequence = b->sequence + 1;
        if (++batch == e.per_epoch) batch = 0, epoch++;
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_END && batch == 0 && epoch == (uint64_t)(k->d.epochs ? k->d.epochs : 1));
    CHECK(k->s->failures == 0);
}

static inline void kit_close(kit *k, dlp_pipe *p) {
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(k->l.live == 0);
}

#endif
