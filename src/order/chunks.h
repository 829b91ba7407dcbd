/* needs: split */
#pragma once
/* tests: system/stages/chunks, system/stages/chunk_seams */
#include "api/split.h"
#include "order/order.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-chunk-rows WHERE BATCHES LIE IN CHUNKS
   These functions compute which rows of an epoch a chunk has, which of them a rank wants, and which
   batch they are in. They use counts and orders alone, no buffers, slots or threads.

   An axis is a line of rows, numbered from 0. It is cut into batches of batch_size rows; the last
   batch has the rest. If batches span chunks, the epoch is one axis: the rows of its chunks, one
   after the other. If they do not, each chunk has an axis of its own. Either way a chunk is a
   stretch of its axis, and the rank's rows of this stretch lie in its buffer without a gap. */

typedef struct dlpi_chunk_plan {
    uint64_t n;          /* chunks of the dataset */
    uint64_t chunk_rows; /* rows of each chunk but the last; if chunks differ, of the largest */
    uint64_t last_rows;  /* rows of the last chunk */
    uint64_t *first;     /* [n + 1] rows before each chunk, if chunks differ; else NULL */
    uint64_t batch, rank, world; /* rows of a batch, on all ranks; this rank; number of ranks */
    uint64_t axis;               /* if batches span chunks: rows of an epoch that come in batches */
    uint64_t batches;            /* batches of an epoch */
    bool drop, spans;            /* an incomplete batch is dropped; batches span chunks */
} dlpi_chunk_plan;

/* A chunk in its place of an epoch's order. */
typedef struct dlpi_chunk_spot {
    bool ready;          /* the other fields are set */
    uint64_t epoch, at;  /* the place: number `at` in the order of the epoch, from 0 */
    uint64_t size;       /* rows of the chunk at this place */
    uint64_t rows;       /* rows of the epoch in batches before this chunk */
    uint64_t batches;    /* batches of the epoch before the chunk's axis */
    uint64_t from, axis; /* row of the axis at which the chunk begins; rows of the axis */
} dlpi_chunk_spot;

static inline uint64_t dlpi_chunk_first(const dlpi_chunk_plan *q, uint64_t c) {
    return q->first ? q->first[c] : c * q->chunk_rows;
}

/* Return the number of rows that chunk c has in the dataset. */
static inline uint64_t dlpi_chunk_size(const dlpi_chunk_plan *q, uint64_t c) {
    if (q->first) return q->first[c + 1] - q->first[c];
    return c + 1 < q->n ? q->chunk_rows : q->last_rows;
}

static inline uint64_t dlpi_chunk_all(const dlpi_chunk_plan *q) {
    return q->first ? q->first[q->n] : (q->n - 1) * q->chunk_rows + q->last_rows;
}

/* Return how many of the rows of an axis come in batches: all, or only those of full batches. */
static inline uint64_t dlpi_chunk_kept(const dlpi_chunk_plan *q, uint64_t rows) {
    return q->drop ? rows - rows % q->batch : rows;
}
/* Return the number of batches that an axis of so many rows has. */
static inline uint64_t dlpi_chunk_batches(const dlpi_chunk_plan *q, uint64_t rows) {
    uint64_t kept = dlpi_chunk_kept(q, rows);
    return kept / q->batch + (kept % q->batch != 0);
}

/* Return how many rows this rank has of batch k of an axis, whose length is `axis` rows. *first
   gets the first of them. */
static uint32_t dlpi_chunk_share(const dlpi_chunk_plan *q, uint64_t axis, uint64_t k,
                                 uint64_t *first) {
    uint64_t at = k * q->batch, n = axis > at ? axis - at : 0;
    uint32_t count = dlpi_rows_of_rank(q->rank, q->world, n < q->batch ? n : q->batch, first);
    *first += at;
    return count;
}

/* Count the rows of this rank before row g of an axis, whose length is `axis` rows. */
static uint64_t dlpi_chunk_before(const dlpi_chunk_plan *q, uint64_t axis, uint64_t g) {
    uint64_t first, full, k = g / q->batch;
    uint32_t count;
    if (q->world == 1) return g;
    full = dlpi_chunk_share(q, UINT64_MAX, 0, &first);
    count = dlpi_chunk_share(q, axis, k, &first);
    if (g <= first) return k * full;
    return k * full + (g - first < count ? g - first : count);
}

/* Return the row of the axis at which the rows of the chunk end. If the last rows of the axis are
   dropped, the chunk ends earlier. It has no rows if the dropped ones begin before it. */
static inline uint64_t dlpi_chunk_end(const dlpi_chunk_spot *x) {
    uint64_t end = x->from + x->size;
    if (end <= x->axis) return end;
    return x->axis > x->from ? x->axis : x->from;
}

/* Return the place of row g of the axis in the chunk's buffer, which has this rank's rows alone. */
static inline uint64_t dlpi_chunk_row_at(const dlpi_chunk_plan *q, const dlpi_chunk_spot *x,
                                         uint64_t g) {
    return dlpi_chunk_before(q, x->axis, g) - dlpi_chunk_before(q, x->axis, x->from);
}

/* ---- the place of a chunk in the order of an epoch ---- */

/* Return the place of the dataset's last chunk in the order of an epoch, if only this chunk has
   fewer rows than the others. Returns UINT64_MAX if all chunks have as many rows. */
static uint64_t dlpi_chunk_uneven_at(const dlpi_chunk_plan *q, dlpi_order *o, uint64_t epoch) {
    uint64_t last = q->n - 1;
    if (q->last_rows == q->chunk_rows) return UINT64_MAX;
    if (o->ops->domain != DLPI_DOMAIN_PERMUTATION) return last;
    if (!o->ready || o->epoch != epoch) dlpi_order_begin(o, epoch);
    return dlp_permutation_find(&o->permutation, last);
}

/* Set x to place `at` of an epoch. `size` is the number of rows of the chunk there. `rows` and
   `batches` count what comes before it in the epoch. */
static void dlpi_chunk_put(const dlpi_chunk_plan *q, dlpi_chunk_spot *x, uint64_t epoch,
                           uint64_t at, uint64_t size, uint64_t rows, uint64_t batches) {
    *x = (dlpi_chunk_spot){true, epoch, at, size, rows, 0, 0, dlpi_chunk_kept(q, size)};
    if (q->spans) {
        x->from = rows;
        x->axis = q->axis;
    } else {
        x->batches = batches;
    }
}

/* Return the rows of the chunk at place `at` of an epoch, if chunks differ; 0 past the last
   place. */
static uint64_t dlpi_chunk_size_at(const dlpi_chunk_plan *q, dlpi_order *o, uint64_t epoch,
                                   uint64_t at) {
    uint64_t c = 0;
    if (at >= q->n) return 0;
    dlpi_order_block(o, epoch, at, 1, &c);
    return dlpi_chunk_size(q, c);
}

static void dlpi_chunk_step(const dlpi_chunk_plan *q, dlpi_order *o, dlpi_chunk_spot *x) {
    uint64_t rows = q->spans ? x->size : dlpi_chunk_kept(q, x->size);
    dlpi_chunk_put(q, x, x->epoch, x->at + 1, dlpi_chunk_size_at(q, o, x->epoch, x->at + 1),
                   x->rows + rows, x->batches + dlpi_chunk_batches(q, x->size));
}

/* Move x to place `at` of an epoch. If chunks differ, x walks there chunk by chunk, from its own
   place if that is not behind `at`, else from the start of the epoch. */
static void dlpi_chunk_goto(const dlpi_chunk_plan *q, dlpi_order *o, uint64_t epoch, uint64_t at,
                            dlpi_chunk_spot *x) {
    uint64_t uneven, full = q->chunk_rows, few = q->last_rows, rows, batches;
    if (x->ready && x->epoch == epoch && x->at == at) return;
    if (q->first != NULL) {
        if (!x->ready || x->epoch != epoch || x->at > at)
            dlpi_chunk_put(q, x, epoch, 0, dlpi_chunk_size_at(q, o, epoch, 0), 0, 0);
        while (x->at < at) dlpi_chunk_step(q, o, x);
        return;
    }
    uneven = dlpi_chunk_uneven_at(q, o, epoch);
    if (!q->spans) full = dlpi_chunk_kept(q, full), few = dlpi_chunk_kept(q, few);
    rows = uneven < at ? (at - 1) * full + few : at * full;
    batches = at * dlpi_chunk_batches(q, full);
    if (uneven < at) batches -= dlpi_chunk_batches(q, full) - dlpi_chunk_batches(q, few);
    dlpi_chunk_put(q, x, epoch, at, at == uneven ? q->last_rows : q->chunk_rows, rows, batches);
}

/* Move x to the place of the chunk in which batch k of an epoch begins. */
static void dlpi_chunk_find(const dlpi_chunk_plan *q, dlpi_order *o, uint64_t epoch, uint64_t k,
                            dlpi_chunk_spot *x) {
    uint64_t full = q->chunk_rows, few = q->last_rows, uneven, at;
    if (q->first != NULL) {
        dlpi_chunk_goto(q, o, epoch, 0, x);
        while (q->spans ? x->rows + x->size <= k * q->batch
                        : x->batches + dlpi_chunk_batches(q, x->size) <= k)
            dlpi_chunk_step(q, o, x);
        return;
    }
    if (q->spans)
        k *= q->batch; /* of rows, not of batches */
    else
        full = dlpi_chunk_batches(q, full), few = dlpi_chunk_batches(q, few);
    uneven = dlpi_chunk_uneven_at(q, o, epoch);
    at = k / full;
    if (uneven < at || (uneven == at && k >= uneven * full + few))
        at = k - uneven * full < few ? uneven : uneven + 1 + (k - uneven * full - few) / full;
    dlpi_chunk_goto(q, o, epoch, at, x);
}

/* Count the rows of an epoch that lie before its batch k. */
static uint64_t dlpi_chunk_rows_before(const dlpi_chunk_plan *q, dlpi_order *o, uint64_t epoch,
                                       uint64_t k) {
    dlpi_chunk_spot x = {0};
    if (q->spans) return k * q->batch;
    dlpi_chunk_find(q, o, epoch, k, &x);
    return x.rows + (k - x.batches) * q->batch;
}

/* ---- counts over all chunks ---- */

/* True if no batch spans two chunks, whatever the order of the chunks. in_order: the chunks come in
   the order of the dataset, so only this order counts. */
static bool dlpi_chunk_aligned(const dlpi_chunk_plan *q, bool in_order) {
    for (uint64_t c = 1; q->first != NULL && c < q->n; c++)
        if (q->first[c] % q->batch != 0) return false;
    if (in_order || q->n == 1) return q->first || q->n == 1 || q->chunk_rows % q->batch == 0;
    return (q->first || q->chunk_rows % q->batch == 0) &&
           dlpi_chunk_size(q, q->n - 1) % q->batch == 0;
}

/* Return the most rows that one rank, this or another, can have of one chunk. If batches span
   chunks, a chunk holds whole batches and at most one more share of a cut batch. It may also hold
   the share of the short batch that ends the axis. */
static uint64_t dlpi_chunk_room(const dlpi_chunk_plan *q) {
    uint64_t n = q->chunk_rows, share = (q->batch + q->world - 1) / q->world, rest = n % q->batch;
    uint64_t rows = n / q->batch * share, end;
    if (!q->spans) return q->drop ? rows : rows + (rest + q->world - 1) / q->world;
    rows += share < rest ? share : rest;
    end = q->axis % q->batch;
    rows += ((end < n ? end : n) + q->world - 1) / q->world;
    return rows < n ? rows : n;
}

/* ---- the plan of a desc ---- */

/* Set the sizes of the n chunks in q. `first` has the rows before each chunk, or is NULL. q->first
   becomes NULL if all chunks but a smaller last one have as many rows. */
static void dlpi_chunk_counts_of(const dlp_node_split *d, uint64_t n, uint64_t *first,
                                 dlpi_chunk_plan *q) {
    uint64_t most = 0, alike = 1;
    q->n = n;
    q->chunk_rows = d->chunk_rows;
    q->last_rows = d->n_rows ? d->n_rows - (n - 1) * d->chunk_rows : d->chunk_rows;
    q->first = NULL;
    if (first == NULL) return;
    for (uint64_t c = 0; c < n; c++) {
        uint64_t rows = first[c + 1] - first[c];
        if (rows > most) most = rows;
        if (rows == 0 || rows > first[1] || (rows < first[1] && c + 1 < n)) alike = 0;
    }
    q->chunk_rows = most;
    q->last_rows = first[n] - first[n - 1];
    if (!alike) q->first = first;
}

/* Fill the plan q. n: chunks of the dataset. first: rows before each chunk, or NULL. positions:
   chunks of an epoch. in_order: chunks come in the order of the dataset. */
DLPI_COLD static void dlpi_chunk_plan_of(const dlp_node_split *d, const dlp_pipe_desc *run,
                                         uint64_t n, uint64_t *first, uint64_t positions,
                                         bool in_order, dlpi_chunk_plan *q) {
    uint64_t rows;
    dlpi_chunk_counts_of(d, n, first, q);
    q->batch = d->batch_size;
    q->rank = run->rank;
    q->world = run->world_size ? run->world_size : 1;
    q->drop = d->last == DLP_LAST_DROP;
    q->spans = d->within_chunks == 0 && !dlpi_chunk_aligned(q, in_order);
    rows = q->first ? dlpi_chunk_all(q) : (positions - 1) * q->chunk_rows + q->last_rows;
    q->axis = dlpi_chunk_kept(q, rows);
    q->batches = dlpi_chunk_batches(q, rows);
    if (q->spans) return;
    q->batches = 0;
    for (uint64_t c = 0; q->first && c < n; c++)
        q->batches += dlpi_chunk_batches(q, dlpi_chunk_size(q, c));
    if (q->first == NULL)
        q->batches = (positions - 1) * dlpi_chunk_batches(q, q->chunk_rows) +
                     dlpi_chunk_batches(q, q->last_rows);
}
