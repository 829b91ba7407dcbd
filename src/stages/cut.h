#pragma once
#include "stages/chunks.h"
#include "core/deliver.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-cut        CHUNKS LOADED, AND CUT INTO VIEWS
   The loaders' side is a fetch. The splitter is the caller's: it takes a chunk as dlpi_next takes a
   batch, and lends views of it. refs counts, for each slot, the views held, and one more while the
   chunk is being cut. A chunk is taken only when the one before is cut to its end; so each chunk
   that is out has a view that is held, but for the one just taken, which max_held - 1 others can
   precede: never more than max_held chunks are out, as many as the pipe has slots for. */

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

DLPDEF int dlp_chunk_fail(const dlp_chunk *c, int errnum, const char *format, ...) {
    const dlpi_load_call *l = c->internal;
    va_list args;
    va_start(args, format);
    dlpi_note_write(&l->w->note, errnum, format, args);
    va_end(args);
    return DLP_ERR_CALLBACK;
}

/* Load the run of rows that has gathered in l, if any. */
static int dlpi_load_run(dlpi_load_call *l, const dlp_item *it) {
    const dlp_pipe *p = l->w->p;
    const dlpi_chunks *d = &p->chunks;
    dlp_chunk shown; /* theirs to spoil */
    if (l->c.count == 0) return 0;
    for (uint32_t f = 0; f < p->items.n; f++) {
        uint64_t bytes = p->items.at[f].row_bytes / (uint64_t)p->items.at[f].f.shape[0];
        l->data[f] = (uint8_t *)it->data[f] + l->at * bytes;
        if (!d->fills_rows) memset(l->data[f], 0, l->c.count * bytes);
    }
    l->c.first = dlp_chunk_row(&l->c, 0);
    shown = l->c;
    return d->load(d->user, &shown);
}

/* Load what this rank wants of a chunk. A chunk that stands in for another one has to have as many
   rows as that: what batches there are is known in advance. */
static int dlpi_chunk_load(dlpi_worker *w, const dlp_item *it) {
    const dlp_pipe *p = w->p;
    bool odd = it->position == dlpi_chunk_odd(p, &w->order, it->epoch);
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
                      .shuffled = p->split->split.shuffle_rows,
                      .worker_state = it->worker_state,
                      .data = l.data,
                      .internal = &l};
    l.c.chunk_first = it->index * p->split->split.chunk_rows;
    if (l.c.chunk_rows < rows) return DLP_SKIP;
    if (l.c.shuffled) dlpi_chunk_permute(p, it->epoch, it->index, &l.order);
    for (uint64_t j = 0; j < dlpi_chunk_views(p, rows); j++) {
        uint32_t n = dlpi_chunk_share(p, dlpi_chunk_batch(p, rows, j), &first);
        first += j * p->split->split.batch_size;
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
    dlpi_worker *w = ((const dlpi_note *)it->internal)->w;
    const dlp_pipe *p = w->p;
    uint32_t s = (uint32_t)(DLPI_LOAD_RLX(&w->wb->running) >> 32); /* X2, own */
    uint64_t *word, key;
    int rc;
    DLPI_UNUSED(user);
    if (p->chunks.preload == DLP_PRELOAD_NONE) return dlpi_chunk_load(w, it);
    word = dlpi_chunk_word(p, it->index);
    key = dlpi_chunk_key(p, s);
    while (!dlpi_stopped(p)) {
        uint64_t was = DLPI_LOAD_SEQ(word); /* Q1 <- Q1 */
        uint32_t other = (uint32_t)(was >> 1 & 0x7fff);
        if (was & 1) return 0;
        if (was != 0 && was != key) {
            /* Y1 <- Y1: another batch loads it, unless that is gone */
            uint64_t ready = DLPI_LOAD_SEQ(&dlpi_sst_at(p, other, p->work[0])->ready);
            if (!dlpi_ready_past(ready, (was >> 16) - 1)) {
                dlpi_nap(200000);
                continue;
            }
        }
        if (!DLPI_CAS_SEQ(word, &was, key)) continue; /* Q1 -> Q1 */
        rc = dlpi_chunk_load(w, it);
        DLPI_STORE_SEQ(word, rc == 0 ? key | 1 : UINT64_C(0)); /* Q1 -> Q1 */
        return rc;
    }
    return 0; /* nobody will see it */
}

/* ---- the splitter ---- */

static void dlpi_cut_drop(dlp_pipe *p, uint32_t s) {
    if (--p->cut.refs[s] == 0) dlpi_slot_free(p, s);
}

/* Begin to cut the chunk in slot s. */
static void dlpi_cut_begin(dlp_pipe *p, uint32_t s) {
    dlpi_cut *c = &p->cut;
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    bool odd = slot->position == dlpi_chunk_odd(p, &c->order, slot->epoch);
    c->slot = s;
    c->refs[s] = 1;
    c->taken++;
    c->chunk = dlpi_slot_index(p, s)[0];
    c->rows = dlpi_chunk_size(p, odd ? dlpi_chunk_count(p) - 1 : 0);
    c->views = dlpi_chunk_views(p, c->rows);
    c->batches = dlpi_chunk_before(p, &c->order, slot->epoch, slot->position, &c->position);
    c->at = c->skip;
    c->skip = 0;
    if (p->split->split.shuffle_rows) dlpi_chunk_permute(p, slot->epoch, c->chunk, &c->permutation);
}

/* The dataset indices of a view's rows: rows [from, from + count) of the chunk's order. */
static void dlpi_cut_indices(dlp_pipe *p, uint64_t from, uint32_t count, uint64_t *index) {
    uint64_t first = p->cut.chunk * p->split->split.chunk_rows;
    bool shuffled = p->split->split.shuffle_rows != 0;
    if (shuffled) dlp_permutation_block(&p->cut.permutation, from, count, index);
    for (uint32_t i = 0; i < count; i++) index[i] = first + (shuffled ? index[i] : from + i);
}

/* Point the fields of view v at row `row` of the chunk. Returns their bytes. */
static uint64_t dlpi_cut_fields(dlp_pipe *p, uint32_t v, uint64_t row, uint32_t count) {
    uint32_t s = p->cut.slot;
    uint64_t sum = 0;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        dlp_tensor *t = &p->out_fields[(size_t)v * p->batches.n + f];
        uint64_t unit = d->row_bytes / (uint64_t)d->f.shape[0], at = row * unit;
        uint8_t *base = p->xfer ? p->dev_data[dlpi_slot_at(p, s)->dbuf * p->batches.n + f]
                                : dlpi_batch_cell(p, s) + d->offset;
        bool handle = p->xfer && p->xfer->device.handles;
        t->data = handle ? base : base + at;
        t->byte_offset = handle ? at : 0;
        t->bytes = count * unit;
        t->shape[0] = count;
        sum += t->bytes;
    }
    return sum;
}

static uint32_t dlpi_cut_free_view(dlp_pipe *p) {
    uint32_t v = p->cut.turn;
    while (p->held[v]) v = v + 1 == p->n_out ? 0 : v + 1; /* fewer than max_held are */
    p->cut.turn = v + 1 == p->n_out ? 0 : v + 1;
    return v;
}

/* What states and next_epoch go by, as dlpi_state_note and dlpi_deliver keep it for batches. */
static void dlpi_cut_note(dlp_pipe *p, const dlp_batch *b, uint64_t after) {
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    p->epoch_now = b->epoch;
    p->epoch_open = !last;
    if (last && p->repeat && p->repeat->repeat.epoch_end) p->epoch_end_due = 1;
    p->after_epoch = last ? b->epoch + 1 : b->epoch;
    p->after_batch = last ? 0 : b->in_epoch + 1;
    p->after_position = last ? 0 : after;
}

/* Lend the next view of the chunk that is being cut. */
static dlp_batch *dlpi_cut_view(dlp_pipe *p) {
    dlpi_cut *c = &p->cut;
    const dlpi_bslot *slot = dlpi_slot_at(p, c->slot);
    uint32_t v = dlpi_cut_free_view(p);
    uint64_t first, j = c->at++, n = dlpi_chunk_batch(p, c->rows, j);
    dlp_batch *b = &p->out[v];
    bool left = dlpi_chunk_left(p, c->slot);
    b->count = dlpi_chunk_share(p, n, &first);
    first += j * p->split->split.batch_size;
    b->sequence = c->sequence++;
    b->epoch = slot->epoch;
    b->in_epoch = c->batches + j;
    b->position = c->position + first;
    b->flags = b->in_epoch + 1 == c->per_epoch ? DLP_BATCH_LAST : 0;
    b->valid = left ? p->ones + c->view_rows : p->ones;
    b->valid_count = left ? 0 : b->count;
    b->index = c->index + (size_t)v * c->view_rows;
    dlpi_cut_indices(p, first, b->count, c->index + (size_t)v * c->view_rows);
    dlpi_bump(&p->ctl->bytes, dlpi_cut_fields(p, v, dlpi_chunk_row_at(p, j), b->count));
    dlpi_bump(&p->ctl->items, b->count);
    dlpi_bump(&p->ctl->views, 1);
    c->slot_of[v] = c->slot;
    c->after[v] = c->position + j * p->split->split.batch_size + n;
    c->refs[c->slot]++;
    p->held[v] = 1;
    DLPI_STORE_RLX(&p->ctl->held, ++p->n_held); /* statistics */
    DLPI_STORE_RLX(&p->ctl->epoch, b->epoch);
    dlpi_cut_note(p, b, c->after[v]);
    return b;
}

/* dlp_pipe_next, where batches are views. */
static int dlpi_cut_next(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    dlpi_cut *c = &p->cut;
    if (c->slot != DLPI_NO_SLOT) {
        /* of an epoch, or a place, that was left? */
        if (!dlpi_wanted(p->ctl, dlpi_slot_at(p, c->slot))) {
            dlpi_cut_drop(p, c->slot);
            c->slot = DLPI_NO_SLOT;
        } else if (p->calls_untimed + 1 >= p->call_clock_every) {
            dlpi_trainer_step(p, dlpi_now_ns());
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
        dlpi_cut_begin(p, s);
        dlpi_feed_inline(p, 1);
    }
    *out = dlpi_cut_view(p);
    if (c->at == c->views) {
        dlpi_cut_drop(p, c->slot);
        c->slot = DLPI_NO_SLOT;
    }
    return DLP_OK;
}

/* The state behind view v. */
static void dlpi_cut_state(const dlp_pipe *p, uint32_t v, dlpi_state *to) {
    const dlp_batch *b = &p->out[v];
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    to->epoch = last ? b->epoch + 1 : b->epoch;
    to->batch = last ? 0 : b->in_epoch + 1;
    to->position = last ? 0 : p->cut.after[v];
}

static const dlpi_stage_ops dlpi_split_ops = {.kind = DLP_STAGE_SPLIT, .rank = 10};
