#pragma once
/* tests: system/core/pipe_ragged, system/core/topologies */
#include "inputs/check.h"
#include "inputs/table.h"
#include "work/recover.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-batch      THE BATCH STAGE
   The stage has work for workers only if its desc has a collate. */

/* ---- collates of the library ---- */

/* Return the bytes of one row of dimension 0, if an item's field is ragged; else the bytes of the
   item's whole field. */
static uint64_t dlpi_unit_bytes(const struct dlp_collate_in *in) {
    return in->field->ragged ? in->stride / (uint64_t)in->field->shape[0] : in->stride;
}

/* Return the number of the item in the batch that has most rows of dimension 0 in a ragged field.
   c->count is at least 1. */
static uint32_t dlpi_longest(const dlp_collate *c, const struct dlp_collate_in *in) {
    uint32_t longest = 0;
    for (uint32_t r = 1; r < c->count; r++)
        if (in->lengths[r] > in->lengths[longest]) longest = r;
    return longest;
}

/* True if two fields have the same dtype and shape, and both are ragged or neither is. Their names
   may differ. */
static bool dlpi_fields_alike(const dlp_field *a, const dlp_field *b) {
    bool alike = a->dtype == b->dtype && a->ndim == b->ndim && a->ragged == b->ragged;
    for (int i = 0; alike && i < a->ndim; i++) alike = a->shape[i] == b->shape[i];
    return alike;
}

/* True if the n fields f and the m fields g are alike, and have the same names. */
static inline bool dlpi_fields_same(const dlp_field *f, uint32_t n, const dlp_field *g,
                                    uint32_t m) {
    for (uint32_t i = 0; n == m && i < n; i++)
        if (!dlpi_fields_alike(&f[i], &g[i]) || strcmp(f[i].name, g[i].name) != 0) return false;
    return n == m;
}

/* Check that the batch has the fields of the items: only for such batches can the library's
   collates be used. Returns 0, or DLP_ERR_CALLBACK with a message. */
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

/* Copy the rows of a ragged field behind each other, without padding, and write lengths and
   offsets. Returns 0, or an error if they are more than max_per_batch. */
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

/* ---- the stage ---- */

typedef struct dlpi_batch { /* the stage's own record */
    dlp_node_batch d;       /* first: a split reads the record as this */
    int32_t workers;        /* num_workers of the row */
} dlpi_batch;

/* Refuse workers, their callbacks, and a range of workers, if the stage has no collate. Returns 0
   or a DLP_ERR code. A warning tells of other fields that are not used (dlpi_live_idle). */
static int dlpi_batch_idle_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_workers_desc, worker_init), 0, 0, "without a collate"},
        {DLPI_AT(dlp_workers_desc, worker_exit), 0, 0, "without a collate"},
        {DLPI_AT(dlp_workers_desc, tell), 0, 0, "without a collate"},
        {DLPI_AT(dlp_workers_desc, workers_min), 0, 0, "0 without a collate"},
        {DLPI_AT(dlp_workers_desc, workers_max), 0, 0, "0 without a collate"},
    };
    const dlpi_batch *b = st->self;
    if (b->d.collate != NULL) return DLP_OK;
    if (b->workers > 0)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "workers.num_workers",
                           "num_workers is %" PRId32 ", but \"%s\" has no collate, so its workers "
                           "have nothing to do; give them to the row that fetches",
                           b->workers, st->name);
    return dlpi_check_bounds(p, st->name, &st->w, DLPI_ROWS(bounds));
}

/* Check the row of a batch stage, and take batch_size and `last` from it. Returns DLP_OK, or the
   code of the pipe's error. */
static int dlpi_batch_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {"batch_size", DLPI_IN(dlpi_batch, d.batch_size), 1, 1 << 20, "1..1048576"},
        {"last", DLPI_IN(dlpi_batch, d.last), DLP_LAST_PARTIAL, DLP_LAST_PAD, "DLP_LAST_*"},
        {"workers.num_workers", DLPI_IN(dlpi_batch, workers), DLP_NONE, DLP_MAX_WORKERS,
         "DLP_NONE or 0..1024 (a loader: batch_workers)"},
        {"out_fields", DLPI_IN(dlpi_batch, d.out_fields), 0, 0, "without a collate",
         DLPI_WITHOUT(dlpi_batch, d.collate)},
        {"n_out_fields", DLPI_IN(dlpi_batch, d.n_out_fields), 1, DLP_MAX_FIELDS, "1..16",
         DLPI_WITH(dlpi_batch, d.out_fields)},
        {"n_out_fields", DLPI_IN(dlpi_batch, d.n_out_fields), 0, 0, "0 without out_fields",
         DLPI_WITHOUT(dlpi_batch, d.out_fields)},
    };
    const dlpi_batch *b = st->self;
    const dlp_node_batch *d = &b->d;
    dlpi_check_bounds(p, st->name, b, DLPI_ROWS(bounds));
    st->w.num_workers = b->workers > 0 ? b->workers : 0;
    p->global_batch = d->batch_size;
    p->last = d->last == DLP_LAST_DEFAULT ? DLP_LAST_PARTIAL : d->last;
    if (p->err.code != 0 || dlpi_batch_idle_check(p, st) != DLP_OK) return p->err.code;
    return dlpi_check_batch_workers(p, st);
}

/* Batch workers that nobody asked for: beyond so many a collate is no longer what is slow, and as
   processes they would be forked by the thousand. */
#define DLPI_COLLATORS 64

/* Set how many workers the stage begins with. Returns true if it has work for them. */
DLPI_COLD static bool dlpi_batch_staff(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_batch *b = st->self;
    st->begin = b->workers > 0 ? b->workers : 0;
    if (b->workers == 0 && b->d.collate && p->fetch->w.num_workers > 0)
        st->begin = p->prefetch < DLPI_COLLATORS ? (int)p->prefetch : DLPI_COLLATORS;
    st->w.num_workers = st->begin;
    return b->d.collate != NULL;
}

/* Return how many batch workers a prediction is asked for; 0: as measured. */
DLPI_COLD static int32_t dlpi_batch_foretold(const dlp_predict_desc *d) { return d->batch_workers; }

static const dlpi_stage_ops dlpi_batch_ops = {
    .kind = DLP_STAGE_BATCH,
    .rank = 7,
    .at = offsetof(dlp_pipe, batcher),
    .self_bytes = sizeof(dlpi_batch),
    .foretold = dlpi_batch_foretold,
    DLPI_OPS_OF_BATCHES,
    .words = {.more = "workers.num_workers (a loader's batch_workers)",
              .out = "workers.num_workers = 1 (a loader's batch_workers)"},
    .staff = dlpi_batch_staff,
    .call = dlpi_collate_call,
};
