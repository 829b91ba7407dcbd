#pragma once
#include "core/item.h"
#include "core/seen.h"
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
    return dlpi_rows_of_rank(d->rank, d->world_size ? d->world_size : 1, n, first);
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

/* ---- what observers see ---- */

typedef struct dlpi_chunk_counts {
    uint64_t per_epoch, fed;             /* chunks of the epoch fed last; of those, fed */
    uint64_t cpu_buffers, resident, out; /* out: slots not given back */
    uint64_t device_buffers, device_free;
    int32_t preload;
} dlpi_chunk_counts;

/* The record of the chunks, and where the words of a slot are that it speaks of. */
static bool dlpi_chunk_record(const dlpi_words *words, dlpi_seen *s, dlpi_chunk_counts *x,
                              uint64_t *in_epoch_at, uint64_t *used_at) {
    uint64_t preload, rows;
    if (!dlpi_word_at(words, DLPI_REC_CHUNKS, 0, offsetof(dlpi_chunk_rec, per_epoch), 8,
                      &x->per_epoch) ||
        !dlpi_word_at(words, DLPI_REC_CHUNKS, 0, offsetof(dlpi_chunk_rec, cpu_buffers), 8,
                      &x->cpu_buffers) ||
        !dlpi_word_at(words, DLPI_REC_CHUNKS, 0, offsetof(dlpi_chunk_rec, preload), 4, &preload) ||
        !dlpi_word_at(words, DLPI_REC_CHUNKS, 0, offsetof(dlpi_chunk_rec, in_epoch_at), 4,
                      in_epoch_at) ||
        !dlpi_word_at(words, DLPI_REC_CHUNKS, 0, offsetof(dlpi_chunk_rec, used_at), 4, used_at) ||
        !dlpi_word_at(words, DLPI_REC_CHUNKS, 0, offsetof(dlpi_chunk_rec, view_rows), 4, &rows))
        return false;
    x->preload = (int32_t)preload;
    if (rows >= 1 && rows <= 1u << 30) s->batch_rows = (uint32_t)rows; /* 0: an older version's */
    return true;
}

static bool dlpi_chunk_counted(const dlpi_words *words, dlpi_seen *s, uint64_t tail,
                               dlpi_chunk_counts *x) {
    uint64_t in_epoch_at, used_at, used;
    memset(x, 0, sizeof *x);
    if (!dlpi_chunk_record(words, s, x, &in_epoch_at, &used_at)) return false;
    if (tail > 0) {
        uint32_t slot = dlpi_seen_slot(s, tail - 1);
        if (!dlpi_word_at(words, DLPI_REC_SLOTS, slot, in_epoch_at, 8, &x->fed)) return false;
        x->fed++;
    }
    for (uint32_t slot = 0; slot < s->n_slots; slot++) {
        if (!dlpi_word_at(words, DLPI_REC_SLOTS, slot, used_at, 4, &used)) return false;
        x->out += used != 0;
    }
    x->device_buffers = words->rec[DLPI_REC_DEVICE_SLOTS].count;
    return dlpi_words_count(words, DLPI_REC_RESIDENT, 1, false, &x->resident) &&
           dlpi_words_count(words, DLPI_REC_DEVICE_SLOTS, UINT64_MAX, true, &x->device_free);
}

/* Chunks on their way. buffers: of a device, whose copies are the last stage. Returns how many are
   ready for the caller. */
static uint64_t dlpi_chunks_under_way(const dlpi_seen *s, uint64_t tail, uint64_t buffers,
                                      dlp_chunk_stats *c) {
    const int32_t loaded = s->work[s->n_work - 1 - (s->n_work > 1 && buffers > 0)];
    uint64_t ready = 0;
    for (uint64_t b = DLPI_LOAD_ACQ(&s->ctl->base); b < tail; b++) { /* V1 <- V1 */
        uint32_t slot = dlpi_seen_slot(s, b);
        bool there = dlpi_seen_left(s, b, slot, loaded);
        if (dlpi_seen_left(s, b, slot, s->final))
            ready++;
        else if (there)
            c->cpu_filled++;
        else
            c->cpu_loading++;
    }
    return ready;
}

/* Where the chunks are. Those in the caller's hands are what is neither free nor on its way. */
static bool dlpi_chunks_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    dlp_chunk_stats *c = &s->figures.chunks;
    uint64_t tail = DLPI_LOAD_ACQ(&s->ctl->tail), ready, used; /* T1 <- T1 */
    bool transfer = words->rec[DLPI_REC_DEVICE_SLOTS].count > 0;
    dlpi_chunk_counts x;
    DLPI_UNUSED(stage);
    s->delivered = &s->ctl->views;
    c->taken = DLPI_LOAD_RLX(&s->ctl->delivered);           /* statistics */
    if (words->rec[DLPI_REC_CHUNKS].type == 0) return true; /* of an older version */
    if (!dlpi_chunk_counted(words, s, tail, &x)) return false;
    if (x.cpu_buffers == 0) return true;
    ready = dlpi_chunks_under_way(s, tail, x.device_buffers, c);
    c->preload = x.preload;
    c->cpu_buffers = x.cpu_buffers;
    c->per_epoch = x.per_epoch;
    c->loadable = x.fed < x.per_epoch ? x.per_epoch - x.fed : 0;
    used = c->cpu_loading + c->cpu_filled + ready;
    c->in_use = x.out > used ? x.out - used : 0;
    if (!transfer) c->cpu_filled += ready;
    used = c->cpu_loading + c->cpu_filled + (transfer ? 0 : c->in_use);
    if (x.preload == DLP_PRELOAD_CPU) used = x.resident;
    c->cpu_free = used < x.cpu_buffers ? x.cpu_buffers - used : 0; /* read while it changed? */
    if (!transfer) return true;
    c->device_buffers = x.device_buffers;
    c->device_free = x.device_free;
    c->device_filled = ready;
    used = x.device_free + ready + c->in_use;
    if (x.preload == DLP_PRELOAD_DEVICE) return true;
    c->device_copying = used < x.device_buffers ? x.device_buffers - used : 0;
    return true;
}
