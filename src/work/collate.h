#pragma once
/* tests: system/core/pipe_ragged, system/core/pipe_errors */
#include "row/rows.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-collate    BATCHES OUT OF ITEMS */

/* UINT64_MAX when it is too much */
static uint64_t dlpi_shape_count(const int64_t *shape, int ndim) {
    uint64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || (shape[i] > 0 && n > (UINT64_C(1) << 62) / (uint64_t)shape[i]))
            return UINT64_MAX;
        n *= (uint64_t)shape[i];
    }
    return n;
}

/* Bytes of a field in an item; 0: there is no such field. */
static inline uint64_t dlpi_field_item_bytes(const dlp_field *f) {
    uint64_t n, each = dlpi_dtype_bytes(f->dtype);
    if (f->ndim < (f->ragged ? 1 : 0) || f->ndim >= DLP_MAX_DIMS) return 0;
    n = dlpi_shape_count(f->shape, f->ndim);
    return n > DLPI_CELL_MAX ? 0 : n * each;
}

static void dlpi_rows_valid(const dlp_pipe *p, uint32_t s, uint8_t *valid) {
    const uint32_t *fate = dlpi_slot_fate(p, s);
    for (uint32_t r = 0; r < dlpi_slot_at(p, s)->count; r++)
        valid[r] = dlpi_fate_state(fate[r]) == DLPI_ROW_OK;
}

/* What a collate may use of batch t. */
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
    c->n_out = p->batches.n;
    c->in = w->rare->in;
    c->out = w->rare->out;
    c->call = &w->note;
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlpi_field *d = &p->items.at[f];
        w->rare->in[f] =
            (struct dlp_collate_in){&d->f, dlpi_item_cell(p, t->slot) + d->offset, d->row_bytes,
                                    d->f.ragged ? dlpi_slot_lengths(p, t->slot, f, 1) : NULL};
    }
    for (uint32_t f = 0; f < p->batches.n; f++) {
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
        memset(out->data, 0, (size_t)d->capacity);
    }
}

/* Take over what the collate said of its fields. Returns 0 or DLP_ERR_LENGTH. */
static int dlpi_collate_end(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    for (uint32_t f = 0; f < p->batches.n; f++) {
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
        m->bytes = n * d->elem_bytes;
        m->ndim = out->ndim;
        m->has_offsets = out->has_offsets != 0;
        memcpy(m->shape, out->shape, sizeof m->shape);
    }
    return 0;
}

/* The row bytes of a dimension-0 row of an item field. */
static uint64_t dlpi_unit_bytes(const struct dlp_collate_in *in) {
    return in->field->ragged ? in->stride / (uint64_t)in->field->shape[0] : in->stride;
}

/* The row that has the most rows of dimension 0. */
static uint32_t dlpi_longest(const dlp_collate *c, const struct dlp_collate_in *in) {
    uint32_t longest = 0;
    for (uint32_t r = 1; r < c->count; r++)
        if (in->lengths[r] > in->lengths[longest]) longest = r;
    return longest;
}

static bool dlpi_fields_alike(const dlp_field *a, const dlp_field *b) {
    bool alike = a->dtype == b->dtype && a->ndim == b->ndim && a->ragged == b->ragged;
    for (int i = 0; alike && i < a->ndim; i++) alike = a->shape[i] == b->shape[i];
    return alike;
}

static int dlpi_collate_fields(const dlp_collate *c) {
    bool alike = c->n_in == c->n_out;
    for (uint32_t f = 0; alike && f < c->n_in; f++)
        alike = dlpi_fields_alike(c->in[f].field, c->out[f].field);
    return alike ? 0
                 : dlp_fail(c->call, 0,
                            "out_fields must be NULL, or fields as of the items, with a collate "
                            "of the library");
}

DLPDEF int dlp_collate_pad(void *user DLPI_UNREAD, dlp_collate *c) {
    if (dlpi_collate_fields(c) != 0) return DLP_ERR_CALLBACK;
    for (uint32_t f = 0; f < c->n_in; f++) {
        const struct dlp_collate_in *in = &c->in[f];
        struct dlp_collate_out *out = &c->out[f];
        bool ragged = in->field->ragged != 0 && c->count > 0;
        uint32_t longest = ragged ? dlpi_longest(c, in) : 0;
        uint64_t unit = dlpi_unit_bytes(in), wide = ragged              ? in->lengths[longest]
                                                    : in->field->ragged ? 0
                                                                        : 1;
        if (unit * wide * c->count > out->capacity)
            return dlp_fail(c->call, 0,
                            "field \"%s\": %" PRIu32 " rows padded to the %" PRIu64 " of item "
                            "%" PRIu64 " are above max_per_batch; raise it",
                            in->field->name, c->count, wide, c->index[longest]);
        for (uint32_t r = 0; r < c->count; r++) {
            uint64_t n = in->field->ragged ? in->lengths[r] : 1;
            memcpy((uint8_t *)out->data + r * wide * unit,
                   (const uint8_t *)in->data + r * in->stride, (size_t)(n * unit));
            if (in->field->ragged) out->lengths[r] = n;
        }
        if (in->field->ragged) out->shape[1] = (int64_t)wide;
    }
    return 0;
}

static int dlpi_pack_field(const dlp_collate *c, const struct dlp_collate_in *in,
                           struct dlp_collate_out *out) {
    uint64_t unit = dlpi_unit_bytes(in), at = 0;
    for (uint32_t r = 0; r < c->count; r++) {
        uint64_t n = in->lengths[r];
        if ((at + n) * unit > out->capacity)
            return dlp_fail(c->call, 0,
                            "field \"%s\": item %" PRIu64 " brings the batch above max_per_batch "
                            "rows; raise it",
                            in->field->name, c->index[r]);
        memcpy((uint8_t *)out->data + at * unit, (const uint8_t *)in->data + r * in->stride,
               (size_t)(n * unit));
        out->lengths[r] = n;
        out->offsets[r] = at;
        at += n;
    }
    out->offsets[c->count] = at;
    out->has_offsets = 1;
    out->ndim = in->field->ndim;
    for (int i = 1; i < in->field->ndim; i++) out->shape[i] = in->field->shape[i];
    out->shape[0] = (int64_t)at;
    return 0;
}

DLPDEF int dlp_collate_pack(void *user DLPI_UNREAD, dlp_collate *c) {
    if (dlpi_collate_fields(c) != 0) return DLP_ERR_CALLBACK;
    for (uint32_t f = 0; f < c->n_in; f++) {
        const struct dlp_collate_in *in = &c->in[f];
        int rc = 0;
        if (in->field->ragged)
            rc = dlpi_pack_field(c, in, &c->out[f]);
        else
            memcpy(c->out[f].data, in->data, (size_t)(in->stride * c->count));
        if (rc != 0) return rc;
    }
    return 0;
}

/* Bytes that the batch in slot s has in a field. */
static inline uint64_t dlpi_field_bytes(const dlp_pipe *p, uint32_t s, uint32_t f, uint64_t rows) {
    return p->has_item_cells ? dlpi_slot_fmeta(p, s)[f].bytes : rows * p->batches.at[f].row_bytes;
}

/* The batch in slot s as a callback or the consumer sees it. valid: [batch_rows] of the viewer.
   Returns the bytes of its fields. */
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
    if (b->count == rows && !p->has_item_cells) return rows * p->batches.cell_bytes; /* as before */
    b->count = rows;
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

static uint64_t dlpi_batch_view(const dlp_pipe *p, uint32_t s, dlp_batch *b, dlp_tensor *fields) {
    return dlpi_batch_view_to(p, s, b, fields, (uint8_t *)dlpi_slot_at(p, s) + p->slot.valid);
}

/* The parts of a view that stay the same for slot s. */
static void dlpi_batch_view_init(const dlp_pipe *p, uint32_t s, dlp_batch *b, dlp_tensor *fields) {
    memset(b, 0, sizeof *b);
    b->n_fields = p->batches.n;
    b->fields = fields;
    b->index = dlpi_slot_index(p, s);
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

static int dlpi_collate_call(dlpi_worker *w, const dlpi_unit *t) {
    dlp_collate c;
    int rc;
    if (w->st->collate == NULL) return 0; /* batch workers without a collate only close */
    dlpi_collate_begin(w, t, &c);
    rc = dlpi_returned(w, w->st->collate(w->st->user, &c));
    rc = dlpi_redzone_slot(w, t->slot, true, dlpi_redzone_slot(w, t->slot, false, rc));
    return rc != 0 ? rc : dlpi_collate_end(w, t);
}

/* A batch callback begins: its time counts from now, and what it says is of this batch. */
static void dlpi_batch_begins(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_words_forget(w);
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->block->since_ns, dlpi_now_ns());
    dlpi_runs(&w->block->running, DLPI_RUNS_ALL(t->slot));
}

/* Wait before a retry, in pieces: a stop ends it. The wait is no callback's time. */
static void dlpi_batch_pauses(dlpi_worker *w, uint64_t ns) {
    const uint64_t piece = 20000000;
    dlpi_runs(&w->block->running, DLPI_RUNS_NONE);
    if (ns == 0) return;
    if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->block->since_ns, dlpi_now_ns() + ns);
    for (; ns > piece && !dlpi_stopped(w->p); ns -= piece) dlpi_sleep(piece);
    if (!dlpi_stopped(w->p)) dlpi_sleep(ns);
}

/* How often batch b failed in this stage: a stage of batches has its done words for that.
   batch + 1 (56) | tries (8) */
static uint32_t dlpi_batch_tries(const dlpi_worker *w, const dlpi_unit *t) {
    /* X1: claimed */
    uint64_t word = DLPI_LOAD_RLX(dlpi_done(dlpi_stage_words_at(w->p, t->slot, w->st)));
    return word >> 8 == t->b + 1 ? (uint32_t)word & 255u : 0;
}

static void dlpi_batch_failed(const dlpi_worker *w, const dlpi_unit *t, uint32_t tries) {
    dlpi_bslot *slot = dlpi_slot_at(w->p, t->slot);
    uint32_t fate = DLPI_LOAD_RLX(&slot->batch_fate); /* X1: claimed */
    /* X1 */
    DLPI_STORE_REL(dlpi_done(dlpi_stage_words_at(w->p, t->slot, w->st)), (t->b + 1) << 8 | tries);
    DLPI_STORE_REL(&slot->batch_fate, dlpi_fate_tried(fate)); /* X1 */
}

/* Run the callback once more, until it succeeds or its tries are used up. Returns 0 or the code of
   a failure; DLPI_WENT_BACK, which is no code: the batch goes through the stages before once
   more. */
static int dlpi_batch_try(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_bslot *slot = dlpi_slot_at(w->p, t->slot);
    for (;;) {
        uint32_t fate = DLPI_LOAD_RLX(&slot->batch_fate), tries; /* X1: ours, claimed */
        int rc;
        dlpi_batch_begins(w, t);
        rc = dlpi_fate_verdict(w, t->slot, fate);
        if (rc == 0) rc = w->st->ops->call(w, t);
        tries = dlpi_batch_tries(w, t);
        if (rc == 0 || !dlpi_tries_left(w, tries, rc)) return rc;
        dlpi_bump(&w->block->retried, 1);
        dlpi_batch_failed(w, t, ++tries);
        dlpi_batch_pauses(w, dlpi_backoff_ns(w->st, tries));
        if (dlpi_stopped(w->p)) return rc;
        dlpi_failure_forget(w);
        if (!dlpi_batch_in_place(w->st)) continue;
        dlpi_clock_out(w, t->b, slot->epoch, 0);
        dlpi_batch_redo(w, t->slot, t->b);
        return DLPI_WENT_BACK;
    }
}

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
    dlpi_bump(&w->block->items, 1);
    dlpi_bump(&w->block->bytes, p->batches.cell_bytes * slot->count);
    dlpi_clock_out(w, t->b, slot->epoch, 1);
    dlpi_gather_pass(&dlpi_stage_words_at(p, t->slot, w->st)->ready, t->b); /* Y1 -> Y1 */
    dlpi_ready_wake(p, w->st->work, t);
}

static bool dlpi_batches_step(dlpi_worker *w) {
    dlpi_unit t;
    if (!dlpi_rows_find(w, &t)) return false;
    dlpi_batches_run(w, &t);
    return true;
}
