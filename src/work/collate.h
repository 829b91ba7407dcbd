#pragma once
/* tests: system/core/pipe_ragged, system/core/pipe_errors */
#include "row/rows.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-collate    BATCHES OUT OF ITEMS */

/* Return how many elements a shape has; UINT64_MAX if a dimension is negative, or if there are more
   than 2^62. */
static uint64_t dlpi_shape_count(const int64_t *shape, int ndim) {
    uint64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || (shape[i] > 0 && n > (UINT64_C(1) << 62) / (uint64_t)shape[i]))
            return UINT64_MAX;
        n *= (uint64_t)shape[i];
    }
    return n;
}

/* Set valid[r] to 1 for each row of the batch in slot s that has data, and to 0 for padding and
   rows left out. */
static void dlpi_rows_valid(const dlp_pipe *p, uint32_t s, uint8_t *valid) {
    const uint32_t *fate = dlpi_slot_fate(p, s);
    for (uint32_t r = 0; r < dlpi_slot_at(p, s)->count; r++)
        valid[r] = dlpi_fate_state(fate[r]) == DLPI_ROW_OK;
}

/* Clear field f of batch t before its collate. made: the field, which the collate has made: clear
   the bytes behind it. */
static void dlpi_made_clear(const dlpi_worker *w, const dlpi_unit *t, uint32_t f,
                            const dlpi_fmeta *made) {
    const dlpi_field *d = &w->p->batches.at[f];
    uint64_t *mark = dlpi_made_mark(w->p, t->slot, f);
    uint8_t *at = dlpi_batch_cell(w->p, t->slot) + d->offset;
    const uint64_t from = dlpi_clears_timed(w) ? dlpi_now_ns() : 0;
    if (made == NULL)
        dlpi_mark_begin(mark, at, d->capacity, true);
    else
        dlpi_mark_shut(mark, at, made->bytes, d->capacity);
    if (DLPI_LIKELY(from == 0)) return;
    dlpi_clear_note(w, d, from, false);
    if (made != NULL)
        dlpi_clear_count(w, d, made->bytes, made->bytes, dlpi_slot_rows(w->p, t->slot));
}

/* Set *c to what a collate may use of batch t: its items, and its output fields, which are
   cleared. */
static void dlpi_collate_begin(dlpi_worker *w, const dlpi_unit *t, dlp_collate *c) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    uint8_t *valid = (uint8_t *)dlpi_slot_at(p, t->slot) + p->slot.valid;
    memset(c, 0, sizeof *c);
    dlpi_rows_valid(p, t->slot, valid);
    c->sequence = slot->sequence;
    c->epoch = slot->epoch;
    c->position = slot->position;
    c->count = dlpi_slot_rows(p, t->slot);
    c->worker = (uint32_t)w->id;
    c->worker_state = w->state;
    c->index = dlpi_slot_index(p, t->slot);
    c->valid = valid;
    c->n_in = p->items.n;
    c->n_out = p->batches.made;
    c->in = w->rare->in;
    c->out = w->rare->out;
    c->call = &w->note;
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        w->rare->in[f] =
            (struct dlp_collate_in){&d->f, dlpi_item_cell(p, t->slot) + d->offset, d->row_bytes,
                                    d->f.ragged ? dlpi_slot_lengths(p, t->slot, f, 1) : NULL};
    }
    for (uint32_t f = 0; f < c->n_out; f++) {
        const dlpi_field *d = &p->batches.at[f];
        struct dlp_collate_out *out = &w->rare->out[f];
        memset(out, 0, sizeof *out);
        out->field = &d->f;
        out->data = dlpi_batch_cell(p, t->slot) + d->offset;
        out->capacity = d->capacity;
        out->ndim = d->f.ndim + 1;
        out->shape[0] = c->count;
        for (int i = 0; i < d->f.ndim; i++) out->shape[i + 1] = d->f.shape[i];
        out->lengths = dlpi_slot_lengths(p, t->slot, f, 0);
        out->offsets = dlpi_slot_offsets(p, t->slot, f);
        memset(out->lengths, 0, c->count * sizeof *out->lengths);
        memset(out->offsets, 0, (c->count + 1) * sizeof *out->offsets);
        dlpi_made_clear(w, t, f, NULL);
    }
}

/* Return the greatest dimension of a field of a collate, from dimension `from` on. */
static uint64_t dlpi_collate_most(const struct dlp_collate_out *out, int from) {
    uint64_t most = 1;
    for (int i = from; i < out->ndim; i++)
        if ((uint64_t)out->shape[i] > most || i == from) most = (uint64_t)out->shape[i];
    return most;
}

/* Check the lengths and offsets that a collate has set for field f of batch t, for what reads them
   goes by them. n: elements of the field. The rows of items are any dimension, since a collate may
   put channels first. An item of a padded field, [count, ...], is at most as long as the greatest
   other dimension. Returns 0 or DLP_ERR_LENGTH. */
static int dlpi_collate_items(dlpi_worker *w, const dlpi_unit *t, uint32_t f, uint64_t n) {
    const struct dlp_collate_out *out = &w->rare->out[f];
    const dlpi_field *d = &w->p->batches.at[f];
    const uint32_t count = dlpi_slot_rows(w->p, t->slot);
    const uint64_t *length = dlpi_slot_lengths(w->p, t->slot, f, 0);
    const uint64_t *offset = dlpi_slot_offsets(w->p, t->slot, f);
    const bool padded = !out->has_offsets && out->ndim > 1 && out->shape[0] == (int64_t)count;
    const uint64_t most = padded ? dlpi_collate_most(out, 1) : n, rows = dlpi_collate_most(out, 0);
    w->bad_field = d->name;
    for (uint32_t r = 0; d->f.ragged && r < count; r++)
        if (length[r] > most)
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "the collate gave row %" PRIu32 " of field \"%s\" a length of %" PRIu64
                            ", must be at most %" PRIu64 " by the shape",
                            r, d->name, length[r], most);
    for (uint32_t r = 0; out->has_offsets && r <= count; r++)
        if (offset[r] > rows || (r > 0 && offset[r] < offset[r - 1]))
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "the collate gave field \"%s\" an offset %" PRIu32 " of %" PRIu64
                            "; offsets must rise, up to the %" PRIu64 " rows of the shape",
                            d->name, r, offset[r], rows);
    w->bad_field = NULL;
    return 0;
}

/* Check and keep the shapes that a collate has given to the fields of batch t. Returns 0, or
   DLP_ERR_LENGTH if a field does not fit. */
static int dlpi_collate_end(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    for (uint32_t f = 0; f < p->batches.made; f++) {
        const dlpi_field *d = &p->batches.at[f];
        const struct dlp_collate_out *out = &w->rare->out[f];
        dlpi_fmeta *m = &dlpi_slot_fmeta(p, t->slot)[f];
        uint64_t n = out->ndim >= 0 && out->ndim <= DLP_MAX_DIMS
                         ? dlpi_shape_count(out->shape, out->ndim)
                         : UINT64_MAX;
        if (n > d->capacity / d->elem_bytes) {
            w->bad_field = d->name;
            return dlpi_say(w, DLP_ERR_LENGTH,
                            "the collate gave field \"%s\" a shape that does "
                            "not fit its %" PRIu64 " bytes",
                            d->name, d->capacity);
        }
        if (dlpi_collate_items(w, t, f, n) != 0) return DLP_ERR_LENGTH;
        m->bytes = n * d->elem_bytes;
        m->ndim = out->ndim;
        m->has_offsets = out->has_offsets != 0;
        memcpy(m->shape, out->shape, sizeof m->shape);
        dlpi_made_clear(w, t, f, m);
    }
    return 0;
}

/* Return the bytes that field f of the batch in slot s has. rows: rows of the batch; they count
   only if no collate has made the field. */
static inline uint64_t dlpi_field_bytes(const dlp_pipe *p, uint32_t s, uint32_t f, uint64_t rows) {
    return p->has_item_cells ? dlpi_slot_fmeta(p, s)[f].bytes : rows * p->batches.at[f].row_bytes;
}

/* Fill a view (*b and its fields) of the batch in slot s, for a callback or the consumer. The parts
   that dlpi_batch_view_init has set stay. valid: [batch_rows] of the viewer, used if not all rows
   are valid. Returns the bytes of all fields. */
DLPI_INLINE uint64_t dlpi_batch_view_to(const dlp_pipe *p, uint32_t s, dlp_batch *b,
                                        dlp_tensor *fields, uint8_t *valid) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    const uint32_t rows = dlpi_slot_rows(p, s);
    uint64_t bytes = 0;
    b->sequence = slot->sequence;
    b->epoch = slot->epoch;
    b->position = slot->position;
    b->in_epoch = slot->in_epoch;
    b->flags = slot->flags;
    if (rows < slot->count) b->flags |= DLP_BATCH_LAST; /* a stream has ended here */
    b->valid_count = rows;
    b->valid = p->ones;
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&slot->dirty) != 0)) { /* ordered by ready */
        dlpi_rows_valid(p, s, valid);
        b->valid = valid;
        for (uint32_t r = 0; r < rows; r++) b->valid_count -= valid[r] == 0;
    }
    b->count = rows;
    /* the sizes may be those of the batch that this view had before */
    if (!p->has_item_cells && fields->shape[0] == rows) return rows * p->batches.cell_bytes;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        if (p->has_item_cells) {
            const dlpi_fmeta *m = &dlpi_slot_fmeta(p, s)[f];
            fields[f].bytes = m->bytes;
            fields[f].ndim = m->ndim;
            memcpy(fields[f].shape, m->shape, sizeof m->shape);
            fields[f].offsets = m->has_offsets ? dlpi_slot_offsets(p, s, f) : NULL;
        } else {
            fields[f].bytes = rows * p->batches.at[f].row_bytes;
            fields[f].shape[0] = rows;
        }
        bytes += fields[f].bytes;
    }
    return bytes;
}

/* Fill a view of the batch in slot s as dlpi_batch_view_to does, with `valid` in the slot. Returns
   the bytes of all fields. */
static uint64_t dlpi_batch_view(const dlp_pipe *p, uint32_t s, dlp_batch *b, dlp_tensor *fields) {
    return dlpi_batch_view_to(p, s, b, fields, (uint8_t *)dlpi_slot_at(p, s) + p->slot.valid);
}

/* Set the parts of a view (*b and its fields) that are the same for all batches in slot s. */
DLPI_COLD static void dlpi_batch_view_init(const dlp_pipe *p, uint32_t s, dlp_batch *b,
                                           dlp_tensor *fields) {
    memset(b, 0, sizeof *b);
    b->n_fields = p->batches.n;
    b->fields = fields;
    b->index = dlpi_slot_index(p, s);
    if (p->slot.traced > 0) {
        b->number = dlpi_slot_numbers(p, s);
        b->list = (const uint16_t *)(b->number + p->batch_rows);
    }
    b->internal = (void *)(uintptr_t)s;
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlpi_field *d = &p->batches.at[f];
        memset(&fields[f], 0, sizeof fields[f]);
        fields[f].name = d->name;
        fields[f].data = dlpi_batch_cell(p, s) + d->offset;
        fields[f].dtype = d->f.dtype;
        fields[f].ndim = d->f.ndim + 1;
        for (int i = 0; i < d->f.ndim; i++) fields[f].shape[i + 1] = d->f.shape[i];
        if (d->f.ragged) fields[f].lengths = dlpi_slot_lengths(p, s, f, 0);
    }
}

/* Note, if a collate makes batches, that field f of the batch in slot s has so many rows. */
static void dlpi_field_made(const dlp_pipe *p, uint32_t s, uint32_t f, uint64_t rows) {
    const dlpi_field *d = &p->batches.at[f];
    dlpi_fmeta *m = &dlpi_slot_fmeta(p, s)[f];
    if (!p->has_item_cells) return;
    *m =
        (dlpi_fmeta){.bytes = rows * d->row_bytes, .ndim = d->f.ndim + 1, .shape = {(int64_t)rows}};
    for (int k = 0; k < d->f.ndim; k++) m->shape[k + 1] = d->f.shape[k];
}

/* Make batch t out of its items, by the stage's collate. Returns 0, or the code of a failure. */
static int dlpi_collate_call(dlpi_worker *w, const dlpi_unit *t) {
    dlp_collate c;
    int rc;
    dlpi_collate_begin(w, t, &c);
    rc = dlpi_returned(w, w->st->collate(w->st->user, &c));
    rc = dlpi_redzone_slot(w, t->slot, true, dlpi_redzone_slot(w, t->slot, false, rc));
    return rc != 0 ? rc : dlpi_collate_end(w, t);
}

/* Note that worker w begins a callback with batch t: the callback's time counts from now on, and
   what an earlier callback said is forgotten. */
static void dlpi_batch_begins(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_words_forget(w);
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->block->since_ns, dlpi_now_ns());
    dlpi_runs(&w->block->running, DLPI_RUNS_ALL(t->slot));
}

/* Wait for ns before batch t's callback is tried again, or until the pipe stops. The wait does not
   count as time of a callback. */
static void dlpi_batch_pauses(dlpi_worker *w, uint64_t ns) {
    const uint64_t piece = 20000000;
    dlpi_runs(&w->block->running, DLPI_RUNS_NONE);
    if (ns == 0) return;
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->block->since_ns, dlpi_now_ns() + ns);
    for (; ns > piece && !dlpi_stopped(w->p); ns -= piece) dlpi_sleep(piece);
    if (!dlpi_stopped(w->p)) dlpi_sleep(ns);
}

/* Run the stage's callback on batch t until it succeeds or its tries are used up. Returns 0, the
   code of the last failure, or DLPI_WENT_BACK. DLPI_WENT_BACK is no error: the batch goes once more
   through the stages before. */
static int dlpi_batch_try(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_bslot *slot = dlpi_slot_at(w->p, t->slot);
    for (;;) {
        uint32_t fate = DLPI_LOAD_RLX(&slot->batch_fate), tries; /* X1: ours, claimed */
        int rc;
        dlpi_batch_begins(w, t);
        rc = dlpi_fate_verdict(w, t->slot, UINT32_MAX, fate);
        if (rc == 0) rc = w->st->ops->call(w, t);
        tries = dlpi_row_tries(w, t, 0, fate);
        if (rc == 0 || !dlpi_tries_left(w, tries, rc)) return rc;
        dlpi_bump(&w->block->retried, 1);
        DLPI_STORE_RLX(&slot->dirty, 1u);                         /* ordered by ready */
        DLPI_STORE_REL(&slot->batch_fate, dlpi_fate_tried(fate)); /* X1 */
        DLPI_KEEP_ORDER(); /* X1: a crash in between costs no try */
        dlpi_slot_tries(w->p, t->slot, w->st)[0] = (uint16_t)++tries;
        dlpi_batch_pauses(w, dlpi_backoff_ns(w->st->w.retry_backoff_ms, tries));
        if (dlpi_stopped(w->p)) return rc;
        dlpi_failure_forget(w);
        if (!dlpi_batch_in_place(w->st)) continue;
        dlpi_clock_out(w, t->b, slot->epoch, 0);
        dlpi_rows_redo(w, t, UINT32_MAX);
        return DLPI_WENT_BACK;
    }
}

/* Run a stage of batches on batch t, which is claimed: call its callback, keep its error, count it
   and pass it on. */
static void dlpi_batches_run(dlpi_worker *w, const dlpi_unit *t) {
    dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    bool skip = dlpi_slot_idle(p, t->slot);
    int rc = 0;
    dlpi_clock_in(w);
    DLPI_STORE_RLX(&w->block->current, t->b); /* for observers */
    dlpi_unpoison(p, t->slot);
    if (!skip) rc = dlpi_batch_try(w, t);
    if (rc == DLPI_WENT_BACK) return;
    if (rc != 0) {
        dlp_error e;
        dlpi_describe(w, rc, &e);
        e.epoch = slot->epoch;
        e.position = slot->position;
        dlpi_slot_fail(slot, (uint32_t)w->global, &e);
        dlpi_failure_forget(w);
    }
    dlpi_items_count(w->block, 1, p->batches.cell_bytes * slot->count);
    dlpi_clock_out(w, t->b, slot->epoch, 1);
    dlpi_gather_pass(&dlpi_stage_words_at(p, t->slot, w->st)->ready, t->b); /* Y1 -> Y1 */
    dlpi_ready_wake(p, w->st->work, t);
}

/* Claim a batch and run the stage on it. Returns false if there is none to claim. */
static bool dlpi_batches_step(dlpi_worker *w) {
    dlpi_unit t;
    if (!dlpi_rows_find(w, &t)) return false;
    dlpi_batches_run(w, &t);
    return true;
}
