#pragma once
/* tests: system/core/pipe_badinput, system/stages/join_hostile */
#include "cells/cells.h"
#include "flight/attempts.h"
#include "flight/records.h" /* needs: fetchers */
#include "inputs/add.h"
#include "inputs/runs.h" /* needs: runs */
/* ---------------------------------------------------------------------------------------------
   >>impl-dataset    WHAT STAGES TAKE OF DATASETS: FIELDS, AND THE DESC OF WHAT FETCHES */

#define DLPI_NAME_KEPT 32u
#define DLPI_FIELD_KEPT (sizeof(dlp_field) + DLPI_NAME_KEPT) /* bytes of a copy with its name */

/* Append copies of n fields to the fields of a stage. The names are copied behind all fields. The
   plan counts these bytes. Returns 0 or a DLP_ERR code. */
static int dlpi_keep_fields(dlp_pipe *p, dlpi_stage *st, const dlp_field *f, uint32_t n) {
    const uint32_t before = st->n_fields, all = before + n;
    dlp_field *old = st->fields, *to;
    char(*names)[DLPI_NAME_KEPT];
    if (n == 0) return DLP_OK;
    for (uint32_t i = 0; i < n; i++) {
        const size_t length = f[i].name != NULL ? strlen(f[i].name) : 0;
        if (length == 0 || length >= DLPI_NAME_KEPT)
            return dlpi_bad_field(p, p->node != NULL ? p->node : st->name, i, f[i].name, "name",
                                  "name has %d bytes, must have 1 to 31", (int)length);
    }
    if ((to = malloc(all * DLPI_FIELD_KEPT)) == NULL)
        return dlpi_no_memory(p, "fields", "a stage's fields");
    names = (void *)(to + all);
    for (uint32_t i = 0; i < all; i++) {
        to[i] = i < before ? old[i] : f[i - before];
        dlpi_copy_text(names[i], DLPI_NAME_KEPT, to[i].name);
        to[i].name = names[i];
    }
    free(old);
    st->fields = to;
    st->n_fields = all;
    return DLP_OK;
}

/* ---- fields are checked, and laid out in a cell ---- */

static uint64_t dlpi_dtype_bytes(dlp_dtype t) {
    uint32_t bits = t & 0xffffu, code = t >> 16;
    if (code > 6 || (bits != 8 && bits != 16 && bits != 32 && bits != 64)) return 0;
    return bits / 8;
}

/* Return the most bytes that a field has in an item, or 0 if the field's desc is wrong. */
static inline uint64_t dlpi_field_item_bytes(const dlp_field *f) {
    uint64_t n, each = dlpi_dtype_bytes(f->dtype);
    if (f->ndim < (f->ragged ? 1 : 0) || f->ndim >= DLP_MAX_DIMS) return 0;
    n = dlpi_shape_count(f->shape, f->ndim);
    return n > DLPI_CELL_MAX ? 0 : n * each;
}

/* Check the desc of field i, a copy of which is in d->f. Returns 0 or a DLP_ERR code. */
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

/* Compute the bytes of field i in an item, and in a batch of `rows` rows, into *d. Returns 0 or a
   DLP_ERR code. */
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

/* Fill *d from field i of a desc (f): check it, and compute its bytes. rows: rows of a batch.
   pooled: max_per_batch counts. Returns 0 or a DLP_ERR code. */
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

/* Lay the n fields f out in a cell (*fs), each aligned to 64 bytes. pooled: max_per_batch counts.
   Returns 0 or a DLP_ERR code. */
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

/* ---- the fields of an item, which several stages add ---- */

/* Append n fields to the fields of the pipe's items. The caller has checked that there is room. */
static void dlpi_datasets_widen(dlp_pipe *p, const dlp_field *f, uint32_t n) {
    if (n > 0) memcpy(&p->datasets.fields[p->datasets.n_fields], f, n * sizeof *f);
    p->datasets.n_fields += n;
}

/* Check that no field of a node has the name of a field `above` it. Returns 0 or a DLP_ERR code. */
static int dlpi_fields_apart(dlp_pipe *p, const char *node, const dlp_field *f, uint32_t n,
                             const dlp_field *above, uint32_t m) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < m; k++)
            if (strcmp(f[i].name, above[k].name) == 0)
                return dlpi_bad_field(p, node, i, f[i].name, "name",
                                      "a node above has a field of this name; rename one");
    return DLP_OK;
}

/* Append the fields of a stage to those of the pipe's items. count: the field of the stage's desc
   that has their number, for the error. Returns 0 or a DLP_ERR code. */
static int dlpi_fields_widen(dlp_pipe *p, const dlpi_stage *st, const char *count) {
    const uint32_t n = p->datasets.n_fields;
    int rc;
    if (n + st->n_fields > DLP_MAX_FIELDS)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, count,
                           "n_fields is %" PRIu32 ", and the nodes before have %" PRIu32 "; a row "
                           "has at most 16 fields",
                           st->n_fields, n);
    rc = dlpi_fields_apart(p, st->name, st->fields, st->n_fields, p->datasets.fields, n);
    if (rc != DLP_OK) return rc;
    dlpi_datasets_widen(p, st->fields, st->n_fields);
    return DLP_OK;
}

/* Check the dataset of a fetch stage. Returns 0 or a DLP_ERR code. */
static int dlpi_dataset_check(dlp_pipe *p, const dlpi_stage *st, const dlpi_fetch *f) {
    const dlpi_bound bounds[] = {
        {"list.open_end", DLPI_IN(dlp_dataset, open_end), 0, 1, "0 or 1"},
        {"source.dataset.n_items", DLPI_IN(dlp_dataset, n_items), 0, DLPI_MAX_ITEMS, "1..2^48"},
        {"fetch.n_fields", DLPI_IN(dlp_dataset, n_fields), !p->node, DLP_MAX_FIELDS, "1..16"},
        {"fetch.writes_all_bytes", DLPI_IN(dlp_dataset, writes_all_bytes), 0, 1, "0 or 1"},
    };
    int rc;
    if (f->dataset.fetch == NULL && f->d.fetcher != DLP_FETCH_ASYNC)
        return dlpi_missing(p, st->name, "fetch.fetch", "the function that writes an item");
    rc = dlpi_check_bounds(p, st->name, &f->dataset, DLPI_ROWS(bounds));
    if (rc != DLP_OK || f->dataset.fields != NULL || f->dataset.n_fields == 0) return rc;
    return dlpi_missing(p, st->name, "fetch.fields", "an array of n_fields fields");
}

#ifdef DLPIPE_NO_FETCHERS
#define DLPI_FETCHERS \
    DLP_FETCH_SEQUENTIAL, \
        "DLP_FETCH_SEQUENTIAL, without in_flight or async, with DLPIPE_NO_FETCHERS; " \
        "compile without it"
#else
#define DLPI_FETCHERS DLP_FETCH_ASYNC, "DLP_FETCH_*"
#endif

/* Check how many items a fetch wants in flight. Returns 0 or the first error's DLP_ERR code. */
static int dlpi_fetcher_check(dlp_pipe *p, const dlpi_stage *st, const dlp_source *d) {
    bool many = d->fetcher != DLP_FETCH_SEQUENTIAL;
    bool pooled = many && st->w.dispatch == DLP_DISPATCH_BATCHES;
    dlpi_within(p, st->name, "fetcher", d->fetcher, 0, DLPI_FETCHERS);
    dlpi_within(p, st->name, "in_flight", d->in_flight, 0, many ? 1024 : 1,
                many ? "0..1024" : "0 or 1 with DLP_FETCH_SEQUENTIAL");
    dlpi_within(p, st->name, "batch_pool", d->batch_pool, 0, pooled ? INT32_MAX : 0,
                pooled
                    ? "under 2^31"
                    : "0 without DLP_DISPATCH_BATCHES (DLP_DEAL_TURNS) and an in_flight above 1");
    dlpi_within(p, st->name, "num_workers", st->w.num_workers, many, DLP_MAX_WORKERS,
                "1..1024 with a fetcher of many items (in_flight above 1, async)");
    if (d->fetcher == DLP_FETCH_ASYNC && (d->async.submit == NULL || d->async.reap == NULL))
        dlpi_missing(p, st->name, d->async.submit ? "async.reap" : "async.submit",
                     "submit and reap with async");
    return p->err.code; /* the first of them */
}

/* True if the workers of a fetch have several items under way at once. */
static inline bool dlpi_fetch_is_many(const dlp_source *d) {
    return d->fetcher != DLP_FETCH_SEQUENTIAL;
}

/* True if the workers of a fetch make requests of an asynchronous source. */
static inline bool dlpi_fetch_requests(const dlp_source *d) {
    return d->fetcher == DLP_FETCH_ASYNC;
}

/* True if a fetch row of a table asks for several items at once, whatever its source says. */
static inline bool dlpi_fetch_row_many(const dlp_node *node) {
    return node->fetch.async != NULL || node->fetch.in_flight > 1;
}

/* Return how many items a worker of a fetch has in flight: as many as the desc says, or 16. */
static int32_t dlpi_fetch_many(int32_t in_flight) { return in_flight > 0 ? in_flight : 16; }

/* Check a fetch desc, and copy it and its dataset into the stage. Returns 0 or a DLP_ERR code. */
static int dlpi_fetch_take(dlp_pipe *p, dlpi_stage *st, const dlp_source *d) {
    dlpi_fetch *f = st->self;
    int rc;
    if (d->dataset == NULL) return dlpi_missing(p, st->name, "dataset", "the items");
    f->d = *d;
    f->dataset = *d->dataset;
    st->dataset = &f->dataset;
    st->item = d->fetcher != DLP_FETCH_ASYNC ? f->dataset.fetch : NULL;
    st->user = f->dataset.user;
    if (d->fetcher != DLP_FETCH_SEQUENTIAL) st->in_flight = dlpi_fetch_many(d->in_flight);
    rc = dlpi_runs_take(p, st, dlpi_fetch_is_many(d)); /* needs: runs */
    if (rc != DLP_OK) return rc;                       /* needs: runs */
    rc = dlpi_dataset_check(p, st, f);
    if (rc == DLP_OK) rc = dlpi_check_workers(p, st);
    if (rc != DLP_OK || (rc = dlpi_fetcher_check(p, st, d)) != DLP_OK) return rc;
    if (f->dataset.warning != NULL) dlpi_warn(p, "%s", f->dataset.warning);
    rc = dlpi_keep_fields(p, st, f->dataset.fields, f->dataset.n_fields);
    f->dataset.fields = st->fields;
    return rc;
}

/* Put lengths that are in the order of the table (back), or of the stage, into the other order. */
DLPI_COLD static void dlpi_seeing_turn(const dlpi_seeing *k, uint64_t *lengths, bool back) {
    uint64_t were[DLP_MAX_FIELDS];
    memcpy(were, lengths, k->n * sizeof *were);
    for (uint32_t f = 0; f < k->n; f++) lengths[back ? k->at[f] : f] = were[back ? f : k->at[f]];
}

DLPDEF int dlp_source_close(dlp_source *source) {
    return source != NULL && source->close != NULL ? source->close(source) : DLP_OK;
}
