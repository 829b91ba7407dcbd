#pragma once
#include "core/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-chunks     CHUNKS, COUNTED IN ADVANCE
   With a split stage the items of the pipe are chunks, one to a core batch, and what the caller
   gets are views. Where view k of an epoch is follows by arithmetic: all chunks have chunk_rows
   rows but the dataset's last one, whose place in an epoch's order is known (dlpi_chunk_odd). */

static uint64_t dlpi_chunk_count(const dlp_pipe *p) { return p->fetch->dataset.n_items; }

static uint64_t dlpi_chunk_rows_all(const dlp_pipe *p) {
    const dlp_split_desc *d = &p->split->split;
    return d->n_rows ? d->n_rows : d->chunk_rows * dlpi_chunk_count(p);
}

/* Rows of chunk c as it is in the dataset. */
static uint64_t dlpi_chunk_size(const dlp_pipe *p, uint64_t c) {
    const dlp_split_desc *d = &p->split->split;
    if (d->n_rows == 0 || c + 1 < dlpi_chunk_count(p)) return d->chunk_rows;
    return d->n_rows - c * d->chunk_rows;
}

/* Of a chunk's rows, those that come in batches, and how many batches that makes. */
static uint64_t dlpi_chunk_kept(const dlp_pipe *p, uint64_t rows) {
    const dlp_split_desc *d = &p->split->split;
    return d->last == DLP_LAST_DROP ? rows - rows % d->batch_size : rows;
}
static uint64_t dlpi_chunk_views(const dlp_pipe *p, uint64_t rows) {
    const dlp_split_desc *d = &p->split->split;
    return (dlpi_chunk_kept(p, rows) + d->batch_size - 1) / d->batch_size;
}

/* This rank's rows of a global batch of n: [*first, *first + count). */
static uint32_t dlpi_chunk_share(const dlp_pipe *p, uint64_t n, uint64_t *first) {
    const dlp_split_desc *d = &p->split->split;
    uint64_t world = d->world_size ? d->world_size : 1;
    *first = d->rank * n / world;
    return (uint32_t)((d->rank + UINT64_C(1)) * n / world - *first);
}

/* Rows of the global batch j of a chunk. */
static uint64_t dlpi_chunk_batch(const dlp_pipe *p, uint64_t rows, uint64_t j) {
    uint64_t left = dlpi_chunk_kept(p, rows) - j * p->split->split.batch_size;
    return left < p->split->split.batch_size ? left : p->split->split.batch_size;
}

/* Where in its buffer batch j of a chunk begins: full batches of this rank lie before it. */
static uint64_t dlpi_chunk_row_at(const dlp_pipe *p, uint64_t j) {
    uint64_t first;
    return j * dlpi_chunk_share(p, p->split->split.batch_size, &first);
}

/* This rank's rows of a chunk. */
static uint64_t dlpi_chunk_local(const dlp_pipe *p, uint64_t rows) {
    uint64_t first, full = dlpi_chunk_kept(p, rows) / p->split->split.batch_size;
    uint64_t rest = dlpi_chunk_kept(p, rows) % p->split->split.batch_size;
    return dlpi_chunk_row_at(p, full) + dlpi_chunk_share(p, rest, &first);
}

/* Where in an epoch's order the chunk that is not full stands; UINT64_MAX: all are. */
static uint64_t dlpi_chunk_odd(const dlp_pipe *p, dlpi_order *o, uint64_t epoch) {
    uint64_t last = dlpi_chunk_count(p) - 1;
    if (dlpi_chunk_size(p, last) == p->split->split.chunk_rows) return UINT64_MAX;
    if (o->kind != DLP_ORDER_SHUFFLED) return last;
    if (!o->ready || o->epoch != epoch) dlpi_order_begin(o, epoch);
    return dlp_permutation_find(&o->permutation, last);
}

/* Batches and rows of the epoch before the chunk at a position of its order. */
static uint64_t dlpi_chunk_before(const dlp_pipe *p, dlpi_order *o, uint64_t epoch, uint64_t at,
                                  uint64_t *rows) {
    uint64_t full = p->split->split.chunk_rows, odd = dlpi_chunk_odd(p, o, epoch);
    uint64_t less = odd < at ? dlpi_chunk_size(p, dlpi_chunk_count(p) - 1) : full;
    *rows = at * dlpi_chunk_kept(p, full) + dlpi_chunk_kept(p, less) - dlpi_chunk_kept(p, full);
    return at * dlpi_chunk_views(p, full) + dlpi_chunk_views(p, less) - dlpi_chunk_views(p, full);
}

/* The other way: which chunk of the order has batch k of the epoch, and as which of its views? */
static uint64_t dlpi_chunk_find(const dlp_pipe *p, dlpi_order *o, uint64_t epoch, uint64_t k,
                                uint64_t *view) {
    uint64_t each = dlpi_chunk_views(p, p->split->split.chunk_rows);
    uint64_t odd = dlpi_chunk_odd(p, o, epoch), few;
    *view = k % each;
    if (odd == UINT64_MAX || k < odd * each) return k / each;
    few = dlpi_chunk_views(p, dlpi_chunk_size(p, dlpi_chunk_count(p) - 1));
    k -= odd * each;
    *view = k < few ? k : (k - few) % each;
    return k < few ? odd : odd + 1 + (k - few) / each;
}

/* The order of the rows of chunk c. */
static void dlpi_chunk_permute(const dlp_pipe *p, uint64_t epoch, uint64_t c,
                               dlp_permutation *out) {
    uint64_t key = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_ROWS, p->sampler->sampler.seed, c), 1);
    dlp_permutation_init(out, dlpi_chunk_size(p, c), key, epoch);
}

/* ---- chunks that stay (preload) ----
   A word of the region for each chunk says who loads it: batch + 1 (48 bits), its slot (15), and in
   the lowest bit whether it is there. So the last chunk of one epoch and the first of the next, if
   they are one and the same and both on their way, are not loaded twice; and what a worker that was
   killed has begun is begun again by the batch's next worker, or by another once the batch is gone.

   label  atomic            written by                      read by
   Q1     a chunk's word    a loader, before and after      loaders, transfer (Q1) */

static uint64_t *dlpi_chunk_word(const dlp_pipe *p, uint64_t c) {
    return dlpi_area_at(p, DLPI_REC_RESIDENT, c);
}
static uint64_t dlpi_chunk_key(const dlp_pipe *p, uint32_t s) {
    return (dlpi_slot_at(p, s)->sequence + 1) << 16 | (uint64_t)s << 1;
}

/* Was the chunk in slot s left out? Its rows are zeros, and it is not there for later epochs. */
static bool dlpi_chunk_left(const dlp_pipe *p, uint32_t s) {
    return DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) && /* ordered by ready */
           dlpi_rec_state(dlpi_slot_rec(p, s)[0]) == DLPI_ROW_LEFT;
}

/* The chunk that the feeder's present batch is; it has a cell of its own. */
static uint32_t dlpi_chunk_cell(dlp_pipe *p) {
    uint64_t c = 0;
    dlpi_order_block(&p->feed.order, p->feed.epoch, p->feed.in_epoch, 1, &c);
    return (uint32_t)c;
}
