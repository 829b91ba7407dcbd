#pragma once
/* tests: system/core/pipe_badinput, system/core/pipe_ragged */
#include "fail/check.h"
/* ---- fields: checked, copied, laid out in a cell ---- */

static uint64_t dlpi_dtype_bytes(dlp_dtype t) {
    uint32_t bits = t & 0xffffu, code = t >> 16;
    if (code > 6 || (bits != 8 && bits != 16 && bits != 32 && bits != 64)) return 0;
    return bits / 8;
}

/* Field i, of which d has a copy. */
static int dlpi_field_check(dlp_pipe *p, const char *stage, const dlpi_field *d, uint32_t i) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_field, ndim), 0, DLP_MAX_DIMS - 1, "0..7"},
        {DLPI_AT(dlp_field, ragged), 0, 1, "0, or 1 with ndim of at least 1"},
        {DLPI_AT(dlp_field, max_per_batch), 0, (int64_t)DLPI_CELL_MAX, "0 and more"},
    };
    const dlp_field *f = &d->f;
    int rc;
    if (d->elem_bytes == 0)
        return dlpi_bad_field(p, stage, i, f->name, "dtype",
                              "dtype is %#" PRIx32 ", must be a DLP_DTYPE of 8, 16, 32 or 64 bits, "
                              "such as DLP_U8",
                              f->dtype);
    if ((rc = dlpi_check_field(p, stage, i, f, DLPI_ROWS(bounds))) != DLP_OK) return rc;
    if (f->ndim > 0) return DLP_OK;
    if (f->ragged)
        return dlpi_bad_field(p, stage, i, f->name, "ragged",
                              "ragged is 1 and ndim is 0; set ndim to 1 or more, or ragged to 0");
    if (f->shape[0] > 1)
        return dlpi_bad_field(p, stage, i, f->name, "shape",
                              "ndim is 0, which is one element, but shape[0] is %" PRId64
                              ": set ndim, or no shape",
                              f->shape[0]);
    return DLP_OK;
}

/* How large an item is in field i, and a batch of so many rows. */
static int dlpi_field_measure(dlp_pipe *p, const char *stage, dlpi_field *d, uint32_t i,
                              uint64_t rows) {
    const dlp_field *f = &d->f;
    uint64_t n = 1;
    for (int k = 0; k < f->ndim; k++) {
        if (f->shape[k] < 1)
            return dlpi_bad_field(p, stage, i, f->name, "shape",
                                  "shape[%d] is %" PRId64 ", must be 1 and more", k, f->shape[k]);
        if ((uint64_t)f->shape[k] > DLPI_CELL_MAX / n)
            return dlpi_bad_field(p, stage, i, f->name, "shape",
                                  "shape[%d] is %" PRId64 ", so an item has more than 2^46 "
                                  "elements; lower the shape",
                                  k, f->shape[k]);
        n *= (uint64_t)f->shape[k];
    }
    d->row_bytes = n * d->elem_bytes;
    if (d->row_bytes > DLPI_CELL_MAX / rows)
        return dlpi_bad_field(p, stage, i, f->name, "shape",
                              "%" PRIu64 " items of %" PRIu64 " bytes are more than 2^46 bytes; "
                              "lower batch_size or the shape",
                              rows, d->row_bytes);
    d->capacity = d->row_bytes * rows;
    return DLP_OK;
}

/* Copy and measure field i. rows: of a batch. */
static int dlpi_field_init(dlp_pipe *p, const char *stage, dlpi_field *d, const dlp_field *f,
                           uint32_t i, uint64_t rows, bool pooled) {
    int rc;
    memset(d, 0, sizeof *d);
    d->f = *f;
    d->elem_bytes = dlpi_dtype_bytes(d->f.dtype);
    if ((rc = dlpi_field_check(p, stage, d, i)) != DLP_OK) return rc;
    if ((rc = dlpi_field_measure(p, stage, d, i, rows)) != DLP_OK) return rc;
    if (pooled && f->ragged && f->max_per_batch > 0) {
        uint64_t unit = d->row_bytes / (uint64_t)f->shape[0];
        if ((uint64_t)f->max_per_batch <= DLPI_CELL_MAX / unit &&
            (uint64_t)f->max_per_batch * unit < d->capacity)
            d->capacity = (uint64_t)f->max_per_batch * unit;
    }
    return DLP_OK;
}

/* Lay fields out in a cell, each 64-byte aligned. */
static int dlpi_fields_init(dlp_pipe *p, const char *stage, dlpi_fields *fs, const dlp_field *f,
                            uint32_t n, bool pooled) {
    uint64_t at = DLPI_REDZONE;
    memset(fs, 0, sizeof *fs);
    fs->n = n;
    for (uint32_t i = 0; i < n; i++) {
        int rc = dlpi_field_init(p, stage, &fs->at[i], &f[i], i, p->batch_rows, pooled);
        if (rc != DLP_OK) return rc;
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(fs->at[i].name, fs->at[j].name) == 0)
                return dlpi_bad_field(p, stage, i, fs->at[i].name, "name",
                                      "name is that of fields[%" PRIu32 "], too; rename one", j);
        fs->any_ragged |= f[i].ragged != 0;
        fs->at[i].offset = at;
        at = dlpi_round_up(dlpi_sum(at, dlpi_sum(fs->at[i].capacity, 2 * DLPI_REDZONE)), 64);
        fs->cell_bytes = dlpi_sum(fs->cell_bytes, fs->at[i].row_bytes);
    }
    return DLP_OK;
}

static uint64_t dlpi_fields_bytes(const dlpi_fields *fs) {
    const dlpi_field *last = &fs->at[fs->n - 1];
    return dlpi_round_up(dlpi_sum(last->offset, dlpi_sum(last->capacity, DLPI_REDZONE)), 4096);
}

/* Bytes of one row of a field, whose first dimension is rows of a chunk. */
static uint64_t dlpi_row_bytes(const dlpi_field *d) {
    return d->row_bytes / (uint64_t)d->f.shape[0];
}

/* ---- fields in the order of a table ---- */

/* The order in which a callback sees the fields of an item, if the row has another order. Field i
   of the callback is field at[i] of the stage. */
typedef struct dlpi_seeing {
    uint32_t n; /* 0: the callback sees the fields in the order of the row */
    uint8_t at[DLP_MAX_FIELDS];
    dlp_item_fn callback;
    void *user;
} dlpi_seeing;

/* The callback of such a stage. */
static int dlpi_seeing_call(void *user, dlp_item *it) {
    const dlpi_seeing *k = user;
    void *data[DLP_MAX_FIELDS], **all = it->data;
    uint64_t length[DLP_MAX_FIELDS], *lengths = it->length;
    uint32_t f = 0, n_all = it->n_fields;
    int rc;
    do {
        data[f] = all[k->at[f]];
        length[f] = lengths[k->at[f]];
    } while (++f < k->n);
    it->data = data;
    it->length = length;
    it->n_fields = f;
    rc = k->callback(k->user, it);
    while (f-- > 0) lengths[k->at[f]] = length[f];
    it->data = all;
    it->length = lengths;
    it->n_fields = n_all;
    return rc;
}

/* Let the callback of a stage see fields so. k: what the stage keeps. */
static void dlpi_seeing_take(dlpi_stage *st, dlpi_seeing *k, const dlpi_seeing *order) {
    if (order == NULL || order->n == 0) return;
    *k = *order;
    k->callback = st->item;
    k->user = st->user;
    st->item = dlpi_seeing_call;
    st->user = k;
}
