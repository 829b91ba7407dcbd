/* needs: split */
#pragma once
#include "api/chunks.h"
#include "core/check.h"
#include "core/deliver.h"
#include "core/item.h"
#include "core/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-split      CHUNKS LOADED, AND SPLIT INTO VIEWS
   With a split stage the items of the pipe are chunks, one to a core batch, and what the consumer
   gets are views. Where view k of an epoch is follows by arithmetic: all chunks have chunk_rows
   rows but the dataset's last one, whose place in an epoch's order is known (dlpi_chunk_short_at).
   The loaders' side is a fetch. The splitter is the consumer's: it takes a chunk as dlpi_next takes
   a batch, and hands out views of it. refs counts, for each slot, the views held, and one more
   while the chunk is being split. A chunk is taken only when the one before is split to its end; so
   each chunk that is out has a view that is held, but for the one just taken, which max_held - 1
   others can precede: never more than max_held chunks are out, as many as the pipe has slots for.
   */

typedef struct dlpi_split { /* what the stage keeps */
    dlp_split_desc d;
    dlp_chunk_fn load; /* from here what dlp_chunks_open was given */
    void *user;
    int preload; /* DLP_PRELOAD_NONE, _CPU, _DEVICE */
    int writes_all_bytes;
    uint64_t per_epoch;          /* batches */
    uint32_t view_rows;          /* rows of this rank's full batch */
    uint32_t slot;               /* with the chunk that is being split, DLPI_NO_SLOT: none */
    dlpi_order order;            /* of the chunks */
    uint64_t chunk, rows, views; /* that chunk's number, its rows on all ranks, its batches */
    uint64_t at;                 /* its next view */
    uint64_t skip;               /* views of the next chunk that were consumed before a resume */
    uint64_t batches, position;  /* of the epoch, before it */
    uint64_t sequence;
    uint32_t turn;
    uint32_t *refs;              /* [n_slots] views held, and 1 while it is split */
    uint32_t *slot_of;           /* [n_out] */
    uint64_t *after;             /* [n_out] global position where the view ends */
    uint64_t *index;             /* [n_out][view_rows] */
    uint8_t *valid;              /* [2][view_rows] of a view that has all rows, of one of none */
    dlp_permutation permutation; /* of its rows */
    uint8_t pad[DLPI_LINE];
    dlpi_order scheduled; /* the scheduler's, where each chunk has its own cell */
} dlpi_split;

/* Chunks, for observers. Words of those that stay, and of the sink's buffers, have records of
   their own. */
typedef struct dlpi_chunk_rec {
    uint64_t per_epoch, cpu_buffers;
    int32_t preload;
    uint32_t in_epoch_at, used_at; /* in a slot */
    uint32_t view_rows;            /* of this rank's full batch; 0: an older version's */
} dlpi_chunk_rec;

_Static_assert(sizeof(dlpi_chunk_rec) == 32, "region layout");

static dlpi_split *dlpi_split_of(const dlp_pipe *p) { return p->lender->self; }

static uint64_t dlpi_chunk_count(const dlp_pipe *p) { return p->fetch->dataset.n_items; }

static uint64_t dlpi_chunk_rows_all(const dlp_pipe *p) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    return d->n_rows ? d->n_rows : d->chunk_rows * dlpi_chunk_count(p);
}

/* Rows of chunk c as it is in the dataset. */
static uint64_t dlpi_chunk_size(const dlp_pipe *p, uint64_t c) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    if (d->n_rows == 0 || c + 1 < dlpi_chunk_count(p)) return d->chunk_rows;
    return d->n_rows - c * d->chunk_rows;
}

/* Of a chunk's rows, those that come in batches, and how many batches that makes. */
static uint64_t dlpi_chunk_kept(const dlp_pipe *p, uint64_t rows) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    return d->last == DLP_LAST_DROP ? rows - rows % d->batch_size : rows;
}
static uint64_t dlpi_chunk_views(const dlp_pipe *p, uint64_t rows) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    return (dlpi_chunk_kept(p, rows) + d->batch_size - 1) / d->batch_size;
}

/* This rank's rows of a global batch of n: [*first, *first + count). */
static uint32_t dlpi_chunk_share(const dlp_pipe *p, uint64_t n, uint64_t *first) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    return dlpi_rows_of_rank(d->rank, d->world_size ? d->world_size : 1, n, first);
}

/* Rows of the global batch j of a chunk. */
static uint64_t dlpi_chunk_batch(const dlp_pipe *p, uint64_t rows, uint64_t j) {
    uint64_t left = dlpi_chunk_kept(p, rows) - j * dlpi_split_of(p)->d.batch_size;
    return left < dlpi_split_of(p)->d.batch_size ? left : dlpi_split_of(p)->d.batch_size;
}

/* Where in its buffer batch j of a chunk begins: full batches of this rank lie before it. */
static uint64_t dlpi_chunk_row_at(const dlp_pipe *p, uint64_t j) {
    uint64_t first;
    return j * dlpi_chunk_share(p, dlpi_split_of(p)->d.batch_size, &first);
}

/* This rank's rows of a chunk. */
static uint64_t dlpi_chunk_local(const dlp_pipe *p, uint64_t rows) {
    uint64_t first, full = dlpi_chunk_kept(p, rows) / dlpi_split_of(p)->d.batch_size;
    uint64_t rest = dlpi_chunk_kept(p, rows) % dlpi_split_of(p)->d.batch_size;
    return dlpi_chunk_row_at(p, full) + dlpi_chunk_share(p, rest, &first);
}

/* Where in an epoch's order the chunk that is not full stands; UINT64_MAX: all are. */
static uint64_t dlpi_chunk_short_at(const dlp_pipe *p, dlpi_order *o, uint64_t epoch) {
    uint64_t last = dlpi_chunk_count(p) - 1;
    if (dlpi_chunk_size(p, last) == dlpi_split_of(p)->d.chunk_rows) return UINT64_MAX;
    if (o->kind != DLP_ORDER_SHUFFLED) return last;
    if (!o->ready || o->epoch != epoch) dlpi_order_begin(o, epoch);
    return dlp_permutation_find(&o->permutation, last);
}

/* Batches and rows of the epoch before the chunk at a position of its order. */
static uint64_t dlpi_chunk_before(const dlp_pipe *p, dlpi_order *o, uint64_t epoch, uint64_t at,
                                  uint64_t *rows) {
    uint64_t full = dlpi_split_of(p)->d.chunk_rows, odd = dlpi_chunk_short_at(p, o, epoch);
    uint64_t less = odd < at ? dlpi_chunk_size(p, dlpi_chunk_count(p) - 1) : full;
    *rows = at * dlpi_chunk_kept(p, full) + dlpi_chunk_kept(p, less) - dlpi_chunk_kept(p, full);
    return at * dlpi_chunk_views(p, full) + dlpi_chunk_views(p, less) - dlpi_chunk_views(p, full);
}

/* The other way: which chunk of the order has batch k of the epoch, and as which of its views? */
static uint64_t dlpi_chunk_find(const dlp_pipe *p, dlpi_order *o, uint64_t epoch, uint64_t k,
                                uint64_t *view) {
    uint64_t each = dlpi_chunk_views(p, dlpi_split_of(p)->d.chunk_rows);
    uint64_t odd = dlpi_chunk_short_at(p, o, epoch), few;
    *view = k % each;
    if (odd == UINT64_MAX || k < odd * each) return k / each;
    few = dlpi_chunk_views(p, dlpi_chunk_size(p, dlpi_chunk_count(p) - 1));
    k -= odd * each;
    *view = k < few ? k : (k - few) % each;
    return k < few ? odd : odd + 1 + (k - few) / each;
}

/* Bytes of one row of a field, whose first dimension is a chunk's rows. */
static uint64_t dlpi_row_bytes(const dlpi_field *d) {
    return d->row_bytes / (uint64_t)d->f.shape[0];
}

/* Of a field, what the chunk in slot s has. */
static uint64_t dlpi_chunk_bytes(const dlp_pipe *p, uint32_t s, uint32_t f) {
    uint64_t rows = dlpi_chunk_local(p, dlpi_chunk_size(p, dlpi_slot_index(p, s)[0]));
    return rows * dlpi_row_bytes(&p->batches.at[f]);
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
   Q5     a chunk's word    a loader, before and after      loaders, the sink (Q5) */

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

/* The chunk that the scheduler's present batch is; it has a cell of its own. */
static uint32_t dlpi_chunk_cell(dlp_pipe *p) {
    uint64_t c = 0;
    dlpi_order_block(&dlpi_split_of(p)->scheduled, p->schedule.epoch, p->schedule.in_epoch, 1, &c);
    return (uint32_t)c;
}

/* Where each chunk has a place of the sink's own: its number. */
static uint32_t dlpi_chunk_place(const dlp_pipe *p, uint32_t s) {
    uint64_t c = dlpi_slot_index(p, s)[0];
    return c < dlpi_chunk_count(p) ? (uint32_t)c : DLPI_NO_SLOT;
}

/* The slot whose cell has the bytes of a chunk that the sink has not got yet, as batch b in slot s
   finds it. Of two batches on their way that are the same chunk either may have loaded it: the
   later one shares its cell, which it keeps, for it waits at the sink behind b. The earlier one
   would have copied it, had the copy not failed. */
static uint32_t dlpi_chunk_source(const dlp_pipe *p, uint32_t s, uint64_t b) {
    uint64_t word = dlpi_claim_owner(dlpi_chunk_word(p, dlpi_slot_index(p, s)[0])); /* Q5 <- Q5 */
    if (dlpi_chunk_left(p, s)) return s;                                            /* its zeros */
    if ((word & 1) == 0 || (word >> 16) - 1 < b) return DLPI_NO_SLOT;
    return (word >> 16) - 1 == b ? s : (uint32_t)(word >> 1 & 0x7fff);
}

static const dlpi_stay_ops dlpi_chunk_stay = {dlpi_chunk_place, dlpi_chunk_left, dlpi_chunk_source};

/* ---- loading ---- */

/* A call of load as it is made. */
typedef struct dlpi_load_call {
    dlpi_worker *w;
    uint64_t from; /* place of the first row in the chunk's order */
    uint64_t at;   /* row of the buffer where they go */
    dlp_chunk c;
    void *data[DLP_MAX_FIELDS];
    dlp_permutation order; /* of a shuffled chunk's rows */
} dlpi_load_call;

DLPDEF uint64_t dlp_chunk_row(const dlp_chunk *c, uint64_t k) {
    const dlpi_load_call *l = c->internal;
    if (k >= c->count) return UINT64_MAX;
    return c->chunk_first +
           (c->shuffled ? dlp_permutation_at(&l->order, l->from + k) : l->from + k);
}

/* Load the run of rows that has gathered in l, if any. */
static int dlpi_load_run(dlpi_load_call *l, const dlp_item *it) {
    const dlp_pipe *p = l->w->p;
    const dlpi_split *d = dlpi_split_of(p);
    dlp_chunk shown; /* theirs to spoil */
    if (l->c.count == 0) return 0;
    for (uint32_t f = 0; f < p->items.n; f++) {
        uint64_t bytes = dlpi_row_bytes(&p->items.at[f]);
        l->data[f] = (uint8_t *)it->data[f] + l->at * bytes;
        if (!d->writes_all_bytes) memset(l->data[f], 0, l->c.count * bytes);
    }
    l->c.first = dlp_chunk_row(&l->c, 0);
    shown = l->c;
    return d->load(d->user, &shown);
}

/* Load what this rank wants of a chunk. A chunk that stands in for another one has to have as many
   rows as that: what batches there are is known in advance. */
static int dlpi_chunk_load(dlpi_worker *w, const dlp_item *it) {
    const dlp_pipe *p = w->p;
    bool odd = it->position == dlpi_chunk_short_at(p, &w->order, it->epoch);
    uint64_t rows = dlpi_chunk_size(p, odd ? dlpi_chunk_count(p) - 1 : 0), first;
    dlpi_load_call l;
    int rc;
    l.w = w;
    l.from = l.at = 0;
    l.c = (dlp_chunk){.index = it->index,
                      .chunk_rows = dlpi_chunk_size(p, it->index),
                      .epoch = it->epoch,
                      .seed = it->seed,
                      .attempt = it->attempt,
                      .n_fields = it->n_fields,
                      .worker = it->worker,
                      .shuffled = dlpi_split_of(p)->d.shuffle_rows,
                      .worker_state = it->worker_state,
                      .data = l.data,
                      .call = it->call,
                      .internal = &l};
    l.c.chunk_first = it->index * dlpi_split_of(p)->d.chunk_rows;
    if (l.c.chunk_rows < rows) return DLP_SKIP;
    if (l.c.shuffled) dlpi_chunk_permute(p, it->epoch, it->index, &l.order);
    for (uint64_t j = 0; j < dlpi_chunk_views(p, rows); j++) {
        uint32_t n = dlpi_chunk_share(p, dlpi_chunk_batch(p, rows, j), &first);
        first += j * dlpi_split_of(p)->d.batch_size;
        if (l.c.count > 0 && first == l.from + l.c.count) {
            l.c.count += n;
            continue;
        }
        if ((rc = dlpi_load_run(&l, it)) != 0) return rc;
        l.from = first;
        l.at = dlpi_chunk_row_at(p, j);
        l.c.count = n;
    }
    return dlpi_load_run(&l, it);
}

/* The fetch of a pipe of chunks. */
static int dlpi_chunk_fetch(void *user, dlp_item *it) {
    dlpi_worker *w = it->call->w;
    const dlp_pipe *p = w->p;
    uint32_t s = (uint32_t)(DLPI_LOAD_RLX(&w->block->running) >> 32); /* X2, own */
    uint64_t *word, key;
    int rc;
    DLPI_UNUSED(user);
    if (dlpi_split_of(p)->preload == DLP_PRELOAD_NONE) return dlpi_chunk_load(w, it);
    word = dlpi_chunk_word(p, it->index);
    key = dlpi_chunk_key(p, s);
    while (!dlpi_stopped(p)) {
        uint64_t was = dlpi_claim_owner(word); /* Q5 <- Q5 */
        uint32_t other = (uint32_t)(was >> 1 & 0x7fff);
        if (was & 1) return 0;
        if (was != 0 && was != key) {
            /* Y1 <- Y1: another batch loads it, unless that is gone */
            uint64_t ready = dlpi_gather_ready(&dlpi_stage_words_at(p, other, p->work[0])->ready);
            if (!dlpi_ready_past(ready, (was >> 16) - 1)) {
                dlpi_sleep(200000);
                continue;
            }
        }
        if (!dlpi_claim_take(word, was, key)) continue; /* Q5 -> Q5 */
        rc = dlpi_chunk_load(w, it);
        dlpi_claim_done(word, rc == 0 ? key | 1 : UINT64_C(0)); /* Q5 -> Q5 */
        return rc;
    }
    return 0; /* nobody will see it */
}

/* ---- the splitter ---- */

static void dlpi_split_unref(dlp_pipe *p, uint32_t s) {
    if (--dlpi_split_of(p)->refs[s] == 0) dlpi_slot_free(p, s);
}

/* Begin to split the chunk in slot s. */
static void dlpi_split_take(dlp_pipe *p, uint32_t s) {
    dlpi_split *c = dlpi_split_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    bool odd = slot->position == dlpi_chunk_short_at(p, &c->order, slot->epoch);
    c->slot = s;
    c->refs[s] = 1;
    c->chunk = dlpi_slot_index(p, s)[0];
    c->rows = dlpi_chunk_size(p, odd ? dlpi_chunk_count(p) - 1 : 0);
    c->views = dlpi_chunk_views(p, c->rows);
    c->batches = dlpi_chunk_before(p, &c->order, slot->epoch, slot->position, &c->position);
    c->at = c->skip;
    c->skip = 0;
    if (c->d.shuffle_rows) dlpi_chunk_permute(p, slot->epoch, c->chunk, &c->permutation);
}

/* The dataset indices of a view's rows: rows [from, from + count) of the chunk's order. */
static void dlpi_split_indices(const dlpi_split *c, uint64_t from, uint32_t count,
                               uint64_t *index) {
    uint64_t first = c->chunk * c->d.chunk_rows;
    bool shuffled = c->d.shuffle_rows != 0;
    if (shuffled) dlp_permutation_block(&c->permutation, from, count, index);
    for (uint32_t i = 0; i < count; i++) index[i] = first + (shuffled ? index[i] : from + i);
}

/* Point the fields of view v at row `row` of the chunk. Returns their bytes. */
static uint64_t dlpi_split_fields(dlp_pipe *p, uint32_t v, uint64_t row, uint32_t count) {
    uint32_t s = dlpi_split_of(p)->slot;
    uint64_t sum = 0;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n + f];
        uint64_t unit = dlpi_row_bytes(d), at = row * unit;
        if (p->sink)
            p->sink->ops->sink->data(p, s, f, at, t);
        else
            t->data = dlpi_batch_cell(p, s) + d->offset + at;
        t->bytes = count * unit;
        t->shape[0] = count;
        sum += t->bytes;
    }
    return sum;
}

static uint32_t dlpi_split_free_view(dlp_pipe *p) {
    dlpi_split *c = dlpi_split_of(p);
    uint32_t v = c->turn;
    while (p->held[v]) v = v + 1 == p->n_out ? 0 : v + 1; /* fewer than max_held are */
    c->turn = v + 1 == p->n_out ? 0 : v + 1;
    return v;
}

/* What states and next_epoch go by, as dlpi_state_note and dlpi_deliver keep it for batches. */
static void dlpi_split_note(dlp_pipe *p, const dlp_batch *b, uint64_t after) {
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    p->epoch_now = b->epoch;
    p->epoch_open = !last;
    if (last && p->repeat && p->repeat->repeat.epoch_end) p->epoch_end_due = 1;
    p->after_epoch = last ? b->epoch + 1 : b->epoch;
    p->after_batch = last ? 0 : b->in_epoch + 1;
    p->after_position = last ? 0 : after;
}

/* Hand out the next view of the chunk that is being split. */
static dlp_batch *dlpi_split_view(dlp_pipe *p) {
    dlpi_split *c = dlpi_split_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, c->slot);
    uint32_t v = dlpi_split_free_view(p);
    uint64_t first, j = c->at++, n = dlpi_chunk_batch(p, c->rows, j);
    dlp_batch *b = &p->out[v];
    bool left = dlpi_chunk_left(p, c->slot);
    b->count = dlpi_chunk_share(p, n, &first);
    first += j * c->d.batch_size;
    b->sequence = c->sequence++;
    b->epoch = slot->epoch;
    b->in_epoch = c->batches + j;
    b->position = c->position + first;
    b->flags = b->in_epoch + 1 == c->per_epoch ? DLP_BATCH_LAST : 0;
    b->valid = left ? c->valid + c->view_rows : c->valid;
    b->valid_count = left ? 0 : b->count;
    b->index = c->index + (size_t)v * c->view_rows;
    dlpi_split_indices(c, first, b->count, c->index + (size_t)v * c->view_rows);
    dlpi_bump(&p->ctl->bytes, dlpi_split_fields(p, v, dlpi_chunk_row_at(p, j), b->count));
    dlpi_bump(&p->ctl->items, b->count);
    dlpi_bump(&p->ctl->views, 1);
    c->slot_of[v] = c->slot;
    c->after[v] = c->position + j * c->d.batch_size + n;
    c->refs[c->slot]++;
    p->held[v] = 1;
    DLPI_STORE_RLX(&p->ctl->held, ++p->n_held); /* statistics */
    DLPI_STORE_RLX(&p->ctl->epoch, b->epoch);
    dlpi_split_note(p, b, c->after[v]);
    return b;
}

/* dlp_pipe_next, where batches are views. */
static int dlpi_split_next(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    dlpi_split *c = dlpi_split_of(p);
    if (c->slot != DLPI_NO_SLOT) {
        /* of an epoch, or a place, that was left? */
        if (dlpi_cancelled(p->ctl, dlpi_slot_at(p, c->slot))) {
            dlpi_split_unref(p, c->slot);
            c->slot = DLPI_NO_SLOT;
        } else if (p->calls_untimed + 1 >= p->call_clock_every) {
            dlpi_consumer_step(p, dlpi_now_ns());
        } else {
            p->calls_untimed++;
        }
    }
    if (c->slot == DLPI_NO_SLOT) {
        uint64_t b;
        uint32_t s;
        int rc = dlpi_next_slot(p, timeout_ms, &b, &s);
        if (rc != DLP_OK) return rc;
        dlpi_taken(p, b, dlpi_slot_at(p, s)->flags);
        dlpi_split_take(p, s);
        dlpi_schedule_inline(p, 1);
    }
    *out = dlpi_split_view(p);
    if (c->at == c->views) {
        dlpi_split_unref(p, c->slot);
        c->slot = DLPI_NO_SLOT;
    }
    return DLP_OK;
}

/* The state behind view v. */
static void dlpi_split_state(const dlp_pipe *p, uint32_t v, dlpi_state *to) {
    const dlp_batch *b = &p->out[v];
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    to->epoch = last ? b->epoch + 1 : b->epoch;
    to->batch = last ? 0 : b->in_epoch + 1;
    to->position = last ? 0 : dlpi_split_of(p)->after[v];
}

static void dlpi_split_drop(dlp_pipe *p, uint32_t v) {
    dlpi_split_unref(p, dlpi_split_of(p)->slot_of[v]);
}

static uint32_t dlpi_split_slot(const dlp_pipe *p, uint32_t v) {
    return dlpi_split_of(p)->slot_of[v];
}

static void dlpi_split_leave(dlp_pipe *p) { dlpi_split_of(p)->skip = 0; }

static uint64_t dlpi_split_batches(const dlp_pipe *p) { return dlpi_split_of(p)->per_epoch; }

static void dlpi_split_config(const dlp_pipe *p, dlpi_state *s) {
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    s->n_items = dlpi_chunk_rows_all(p);
    s->params = dlp_hash(s->params, d->chunk_rows, (uint64_t)d->shuffle_rows, DLPI_STATE_MAGIC);
    s->global_batch = d->batch_size;
    s->last = (uint16_t)d->last;
}

static uint64_t dlpi_split_position(const dlp_pipe *p, uint64_t epoch, uint64_t k) {
    dlpi_order order = dlpi_split_of(p)->order;
    uint64_t view, rows, at = dlpi_chunk_find(p, &order, epoch, k, &view);
    dlpi_chunk_before(p, &order, epoch, at, &rows);
    return rows + view * dlpi_split_of(p)->d.batch_size;
}

/* The scheduler goes on with the chunk that has the state's batch, whose views before that the
   splitter skips. */
static void dlpi_split_seek(dlp_pipe *p, const dlpi_state *s, dlpi_place *to) {
    dlpi_split *c = dlpi_split_of(p);
    to->batch = to->position = dlpi_chunk_find(p, &c->order, s->epoch, s->batch, &c->skip);
}

/* ---- building ---- */

static int dlpi_split_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_split_desc, chunk_rows), 1, DLPI_MAX_ITEMS, "1..2^48"},
        {DLPI_AT(dlp_split_desc, n_rows), 0, DLPI_MAX_ITEMS, "0..2^48"},
        {DLPI_AT(dlp_split_desc, batch_size), 1, 1 << 20, "1..1048576"},
        {DLPI_AT(dlp_split_desc, last), 0, 1, "DLP_LAST_PARTIAL or DLP_LAST_DROP"},
        {DLPI_AT(dlp_split_desc, shuffle_rows), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_split_desc, allow_uneven), 0, 1, "0 or 1"},
    };
    const dlp_split_desc *d = &((const dlpi_split *)st->self)->d;
    int rc = dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    return dlpi_check_ranks(p, st, d->rank, d->world_size, d->batch_size, d->allow_uneven != 0);
}

/* Can the order and the batches before it be split? */
static int dlpi_split_chain(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_batch_desc *before = &p->batcher->batching;
    if (before->batch_size == 1 && !before->collate && p->world == 1 &&
        p->sampler->sampler.order != DLP_ORDER_BATCHES && !p->d.unordered)
        return DLP_OK;
    return dlpi_bad_graph(p, st->name,
                          "a split stage wants items one by one: batch_size 1, no "
                          "collate, no batch sampler, no ranks there, in order");
}

static int dlpi_split_rows(dlp_pipe *p, const dlpi_stage *st, uint64_t n, uint64_t odd) {
    const dlp_sampler_desc *order = &p->sampler->sampler;
    const dlp_split_desc *d = &dlpi_split_of(p)->d;
    bool counted = order->order == DLP_ORDER_SEQUENTIAL || order->order == DLP_ORDER_SHUFFLED;
    dlpi_within(p, st->name, "chunk_rows", (int64_t)d->chunk_rows, 1, (int64_t)(DLPI_MAX_ITEMS / n),
                "such that all rows are at most 2^48");
    if (d->n_rows != 0 && (d->n_rows - 1) / d->chunk_rows + 1 != n)
        dlpi_bad(p, st->name, "n_rows", "chunk_rows for each item, at most, and so many",
                 (int64_t)d->n_rows);
    if (p->keeper != NULL)
        dlpi_within(p, st->name, "shuffle_rows", d->shuffle_rows, 0, 0,
                    "0 with a cache: rows stay as they were fetched, not as an epoch has them");
    if (odd != d->chunk_rows && (!counted || order->subset))
        dlpi_bad(p, st->name, "n_rows", "full items for this order", (int64_t)d->n_rows);
    if (dlpi_chunk_views(p, odd) == 0)
        dlpi_bad(p, st->name, "last", "such that the last item has a batch; leave it out", 1);
    return p->err.code;
}

/* Into how many views is the wiring split? */
static int dlpi_split_resolve(dlp_pipe *p, const dlpi_stage *st) {
    dlpi_split *c = dlpi_split_of(p);
    const dlp_split_desc *d = &c->d;
    uint64_t n = dlpi_chunk_count(p), world = d->world_size ? d->world_size : 1;
    uint64_t odd = dlpi_chunk_size(p, n - 1);
    int rc = dlpi_split_chain(p, st);
    if (rc != DLP_OK || (rc = dlpi_split_rows(p, st, n, odd)) != DLP_OK) return rc;
    c->view_rows = (uint32_t)((d->batch_size + world - 1) / world);
    if (c->view_rows > d->chunk_rows) c->view_rows = (uint32_t)d->chunk_rows;
    c->per_epoch =
        (p->batches_per_epoch - 1) * dlpi_chunk_views(p, d->chunk_rows) + dlpi_chunk_views(p, odd);
    return DLP_OK;
}

/* The most rows that this rank has of a chunk. */
static uint64_t dlpi_split_room(const dlp_split_desc *d) {
    uint64_t world = d->world_size ? d->world_size : 1, rest = d->chunk_rows % d->batch_size;
    uint64_t rows = d->chunk_rows / d->batch_size * ((d->batch_size + world - 1) / world);
    return d->last == DLP_LAST_DROP ? rows : rows + (rest + world - 1) / world;
}

/* The fields of chunks. */
static int dlpi_split_check_fields(dlp_pipe *p, const dlpi_stage *st) {
    uint64_t room = dlpi_split_room(&dlpi_split_of(p)->d);
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlp_field *d = &p->items.at[f].f;
        int64_t rows = d->ndim ? d->shape[0] : 0;
        if (d->ragged)
            return dlpi_bad_field(p, st->name, f, d->name, "ragged",
                                  "ragged is 1, must be 0 before a split stage");
        if (rows < (int64_t)room)
            return dlpi_bad_field(
                p, st->name, f, d->name, "shape[0]",
                "shape[0] is %" PRId64 ", one rank has %" PRIu64 " rows of a chunk", rows, room);
    }
    return DLP_OK;
}

static int dlpi_split_check_preload(dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_split *c = dlpi_split_of(p);
    if (c->preload == DLP_PRELOAD_NONE) return DLP_OK;
    dlpi_within(p, st->name, "preload", (int64_t)dlpi_chunk_count(p), 1, UINT16_MAX,
                "of at most 65535 chunks");
    dlpi_within(p, st->name, "cpu_buffers", p->n_slots, 1, DLPI_PARK,
                "together with max_held at most 64 with a preload");
    dlpi_within(p, st->name, "shuffle_rows", c->d.shuffle_rows, 0, 0,
                "0 with a preload: rows stay as they were loaded");
    dlpi_within(p, st->name, "on_error", p->fetch->w.on_error, 0, 0,
                "DLP_ON_ERROR_RAISE with a preload");
    return p->err.code;
}

/* What the wiring says of chunks, and where they lie. */
static int dlpi_split_check_all(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_split *c = st->self;
    int rc = dlpi_split_resolve(p, st);
    if (rc != DLP_OK || (rc = dlpi_split_check_fields(p, st)) != DLP_OK) return rc;
    if (c->preload == DLP_PRELOAD_CPU) {
        p->cells = DLPI_CELLS_STAY;
        p->n_cells = (uint32_t)dlpi_chunk_count(p);
    } else if (p->sink) { /* what the sink has leaves its cell */
        p->cells = DLPI_CELLS_TURN;
        p->cell_end = p->sink;
        p->n_cells = p->prefetch;
    }
    p->stay = c->preload == DLP_PRELOAD_DEVICE ? &dlpi_chunk_stay : NULL;
    return dlpi_split_check_preload(p, st);
}

static void dlpi_split_layout(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_split *c = st->self;
    uint64_t words = c->preload ? dlpi_chunk_count(p) : 0;
    dlpi_area_add(p, DLPI_REC_RESIDENT, "chunks that stay: words", 8, words, DLPI_LINE);
    p->areas[DLPI_REC_RESIDENT].record = DLPI_REC_RESIDENT; /* of none, too */
    dlpi_area_add(p, DLPI_REC_LENDER, NULL, sizeof(dlpi_chunk_rec), 1, 8);
}

/* For observers. */
static void dlpi_split_describe(const dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_split *c = st->self;
    dlpi_chunk_rec *r = dlpi_area_at(p, DLPI_REC_LENDER, 0);
    r->per_epoch = p->batches_per_epoch;
    r->cpu_buffers = p->n_cells;
    r->preload = c->preload;
    r->in_epoch_at = (uint32_t)offsetof(dlpi_bslot, in_epoch);
    r->used_at = (uint32_t)offsetof(dlpi_bslot, used);
    r->view_rows = c->view_rows;
}

static int dlpi_split_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_split *c = st->self;
    uint64_t rows = dlpi_times(p->n_out, c->view_rows);
    out[0] = (dlpi_block){offsetof(dlpi_split, refs), dlpi_times(p->n_slots, sizeof *c->refs)};
    out[1] = (dlpi_block){offsetof(dlpi_split, slot_of), dlpi_times(p->n_out, sizeof *c->slot_of)};
    out[2] = (dlpi_block){offsetof(dlpi_split, after), dlpi_times(p->n_out, sizeof *c->after)};
    out[3] = (dlpi_block){offsetof(dlpi_split, index), dlpi_times(rows, sizeof *c->index)};
    out[4] = (dlpi_block){offsetof(dlpi_split, valid), 2 * (uint64_t)c->view_rows};
    return 5;
}

/* The parts of views that stay the same, and the orders. */
static void dlpi_split_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_split *c = st->self;
    void *table = dlpi_area_at(p, DLPI_REC_TABLE, 0);
    for (uint32_t v = 0; v < p->n_out; v++) {
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n];
        dlpi_batch_view_init(p, 0, &p->out[v], t);
        p->out[v].internal = (void *)(uintptr_t)v;
        for (uint32_t f = 0; f < p->batches.n; f++) {
            t[f].ndim = p->batches.at[f].f.ndim; /* the chunk's rows are the view's */
            for (int i = 1; i < t[f].ndim; i++) t[f].shape[i] = p->batches.at[f].f.shape[i];
        }
    }
    dlpi_order_init(&c->scheduled, &p->sampler->sampler, dlpi_chunk_count(p), table);
    dlpi_order_init(&c->order, &p->sampler->sampler, dlpi_chunk_count(p), table);
    memset(c->valid, 1, c->view_rows);
    c->slot = DLPI_NO_SLOT;
}

static const dlpi_lender_ops dlpi_split_lender = {
    .words = {"chunk records", "CPU chunk buffers", "CPU chunk buffer of zeros",
              "device chunk buffers"},
    .params = "params (chunk_rows, shuffle_rows)",
    .next = dlpi_split_next,
    .drop = dlpi_split_drop,
    .slot = dlpi_split_slot,
    .leave = dlpi_split_leave,
    .batches = dlpi_split_batches,
    .state = dlpi_split_state,
    .config = dlpi_split_config,
    .position = dlpi_split_position,
    .seek = dlpi_split_seek,
    .bytes = dlpi_chunk_bytes,
    .cell = dlpi_chunk_cell,
};

/* ---- for observers ---- */

typedef struct dlpi_chunk_counts {
    uint64_t per_epoch, scheduled;       /* chunks of the epoch fed last; of those, fed */
    uint64_t cpu_buffers, resident, out; /* out: slots not given back */
    uint64_t device_buffers, device_free;
    int32_t preload;
} dlpi_chunk_counts;

/* The record of the chunks, and where the words of a slot are that it speaks of. */
static bool dlpi_chunk_record(const dlpi_words *words, dlpi_seen *s, dlpi_chunk_counts *x,
                              uint64_t *in_epoch_at, uint64_t *used_at) {
    uint64_t preload, rows;
    if (!dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, per_epoch), 8,
                      &x->per_epoch) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, cpu_buffers), 8,
                      &x->cpu_buffers) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, preload), 4, &preload) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, in_epoch_at), 4,
                      in_epoch_at) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, used_at), 4, used_at) ||
        !dlpi_word_at(words, DLPI_REC_LENDER, 0, offsetof(dlpi_chunk_rec, view_rows), 4, &rows))
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
        if (!dlpi_word_at(words, DLPI_REC_SLOTS, slot, in_epoch_at, 8, &x->scheduled)) return false;
        x->scheduled++;
    }
    for (uint32_t slot = 0; slot < s->n_slots; slot++) {
        if (!dlpi_word_at(words, DLPI_REC_SLOTS, slot, used_at, 4, &used)) return false;
        x->out += used != 0;
    }
    x->device_buffers = words->rec[DLPI_REC_SINK].count;
    return dlpi_words_count(words, DLPI_REC_RESIDENT, 1, false, &x->resident) &&
           dlpi_words_count(words, DLPI_REC_SINK, UINT64_MAX, true, &x->device_free);
}

/* Chunks on their way. buffers: of a device, whose copies are the last stage. Returns how many are
   ready for the consumer. */
static uint64_t dlpi_chunks_under_way(const dlpi_seen *s, uint64_t tail, uint64_t buffers,
                                      dlp_chunk_stats *c) {
    const int32_t loaded = s->work[s->n_work - 1 - (s->n_work > 1 && buffers > 0)];
    uint64_t ready = 0;
    for (uint64_t b = dlpi_credit_look(&s->ctl->base); b < tail; b++) { /* V1 <- V1 */
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

/* Where the chunks are. Those in the consumer's hands are what is neither free nor on its way. */
static bool dlpi_chunks_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    dlp_chunk_stats *c = &s->figures.chunks;
    uint64_t tail = dlpi_credit_look(&s->ctl->tail), ready, used; /* T1 <- T1 */
    bool transfer = words->rec[DLPI_REC_SINK].count > 0;
    dlpi_chunk_counts x;
    DLPI_UNUSED(stage);
    s->delivered = &s->ctl->views;
    c->taken = DLPI_LOAD_RLX(&s->ctl->delivered);           /* statistics */
    if (words->rec[DLPI_REC_LENDER].type == 0) return true; /* of an older version */
    if (!dlpi_chunk_counted(words, s, tail, &x)) return false;
    if (x.cpu_buffers == 0) return true;
    ready = dlpi_chunks_under_way(s, tail, x.device_buffers, c);
    c->preload = x.preload;
    c->cpu_buffers = x.cpu_buffers;
    c->per_epoch = x.per_epoch;
    c->loadable = x.scheduled < x.per_epoch ? x.per_epoch - x.scheduled : 0;
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

static const dlpi_stage_ops dlpi_split_ops = {
    .kind = DLP_STAGE_SPLIT,
    .rank = 10,
    .self_bytes = sizeof(dlpi_split),
    .check = dlpi_split_check_all,
    .seen = dlpi_chunks_seen,
    .layout = dlpi_split_layout,
    .blocks = dlpi_split_blocks,
    .live = dlpi_split_live,
    .describe = dlpi_split_describe,
    .lender = &dlpi_split_lender,
};
