/* needs: arrays split */
#pragma once
/* tests: system/shm/shm_array_chunks */
#include "api/array_chunks.h"
#include "open/chunks.h"
#include "source/arrays.h"
/* ---- rows of mapped arrays as chunks: see >>array-chunks ---- */

/* A dlp_chunk_at_fn: return where field `field` of the chunk's first row lies in its mapping. */
static const void *dlpi_arrays_rows_at(void *user, uint64_t chunk, uint32_t field) {
    const dlpi_arrays *a = user;
    const dlpi_array *c = &a->columns[field];
    uint64_t row = a->chunk_first ? a->chunk_first[chunk] : chunk * a->piece;
    const dlpi_array_file *f = dlpi_array_find(c, row);
    return f->m.bytes + f->data + (row - f->first) * c->row_bytes;
}

/* Have bytes [at, at + n) of a mapping read into memory. If the kernel is too old for that (before
   5.14), they are only asked for. Returns 0 or a failure's code. */
static int dlpi_mapped_populate(const dlpi_mapped *m, uint64_t at, uint64_t n, dlp_call *call) {
    const int rc = dlpi_mapping_load(m->bytes, at, n);
    if (rc == 0) return 0;
    if (rc == EFAULT)
        return dlp_fail(call, EIO, "%s: cannot be read, after byte %" PRIu64,
                        dlpi_path_end(m->path), at);
    dlpi_mapped_will_need(m, at, n);
    return 0;
}

/* A dlp_chunk_fn: make sure that the rows are there and in memory, before the consumer reads them.
   Returns 0 or a failure's code. */
static int dlpi_arrays_load(void *user, dlp_chunk *chunk) {
    const dlpi_arrays *a = user;
    dlp_item item = {.call = chunk->call};
    int rc = 0;
    for (uint32_t k = 0; k < a->n_columns && rc == 0; k++) {
        const dlpi_array *c = &a->columns[k];
        uint64_t first = chunk->shuffled ? chunk->chunk_first : chunk->first;
        uint64_t count = chunk->shuffled ? chunk->chunk_rows : chunk->count;
        dlpi_array_file *f = dlpi_array_find(c, first);
        if ((rc = dlpi_mapped_check(&f->m, &item)) == 0)
            rc = dlpi_mapped_populate(&f->m, f->data + (first - f->first) * c->row_bytes,
                                      count * c->row_bytes, chunk->call);
    }
    return rc;
}

/* Check that batches can be views of the columns: their numbers are little-endian and aligned.
   Returns 0, or a DLP_ERR code and *err. */
static int dlpi_arrays_views_check(const dlpi_arrays *a, dlp_error *err) {
    for (uint32_t k = 0; k < a->n_columns; k++) {
        const dlpi_array *c = &a->columns[k];
        uint64_t bytes = dlpi_dtype_bytes(a->fields[c->field].dtype);
        for (uint64_t i = 0; i < c->n_files; i++) {
            if (c->files[i].swap > 1)
                return dlpi_mapped_error(err, DLP_ERR_UNSUPPORTED, c->files[i].m.path, 2,
                                         "has big-endian numbers; open it by dlp_arrays_open");
            if (bytes > 0 && c->files[i].data % bytes != 0)
                return dlpi_mapped_error(
                    err, DLP_ERR_UNSUPPORTED, c->files[i].m.path, c->files[i].data,
                    "numbers must begin at a multiple of %d bytes", (int)bytes);
        }
    }
    return DLP_OK;
}

/* Return how many rows a chunk from `row` on may have: they lie in one file of each column. */
static uint64_t dlpi_arrays_piece(const dlpi_arrays *a, uint64_t row) {
    uint64_t n = a->piece < a->info.n_items - row ? a->piece : a->info.n_items - row;
    for (uint32_t k = 0; k < a->n_columns; k++) {
        const dlpi_array_file *f = dlpi_array_find(&a->columns[k], row);
        if (f->first + f->rows - row < n) n = f->first + f->rows - row;
    }
    return n;
}

/* Compute the rows of each chunk, if columns have several files. *rows: gets them, and the caller
   frees it; left alone if all chunks are alike. Returns 0, or DLP_ERR_MEMORY and *err. */
static int dlpi_arrays_cut(dlpi_arrays *a, dlp_chunks_desc *d, uint64_t **rows, dlp_error *err) {
    uint64_t n = 0, files = 0;
    for (uint32_t k = 0; k < a->n_columns; k++) files += a->columns[k].n_files;
    if (files == a->n_columns) return DLP_OK;
    for (uint64_t row = 0; row < a->info.n_items; n++) row += dlpi_arrays_piece(a, row);
    *rows = calloc((size_t)n + 1, sizeof **rows);
    a->chunk_first = calloc((size_t)n + 1, sizeof *a->chunk_first);
    if (*rows == NULL || a->chunk_first == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory for the chunks");
    d->rows = *rows;
    d->n_chunks = n;
    n = 0;
    for (uint64_t row = 0; row < a->info.n_items; row += (*rows)[n++]) {
        a->chunk_first[n] = row;
        (*rows)[n] = dlpi_arrays_piece(a, row);
    }
    return DLP_OK;
}

/* Fill in the desc of a pipe of chunks. fields: [n_columns] memory for its fields. */
static void dlpi_arrays_chunks_fill(dlpi_arrays *a, dlp_chunks_desc *d, dlp_field *fields) {
    uint64_t batch = d->batch_size ? d->batch_size : 1, bytes = 0;
    for (uint32_t k = 0; k < a->n_columns; k++) {
        const dlpi_array *c = &a->columns[k];
        bytes += c->row_bytes;
        fields[k] = a->fields[c->field];
        if (c->format < DLP_ARRAY_CIFAR10) continue;
        fields[k] = (dlp_field){.name = "record", .dtype = DLP_U8, .ndim = 1};
        fields[k].shape[0] = (int64_t)c->row_bytes;
    }
    a->piece = d->chunk_rows;
    if (a->piece == 0) a->piece = ((UINT64_C(4) << 20) / (bytes ? bytes : 1) / batch + 1) * batch;
    if (a->piece > a->info.n_items) a->piece = a->info.n_items;
    d->chunk_rows = a->piece;
    d->n_items = a->info.n_items;
    d->fields = fields;
    d->n_fields = a->n_columns;
    d->writes_all_bytes = 1;
    d->load = dlpi_arrays_load;
    d->rows_at = dlpi_arrays_rows_at;
    d->user = a;
    d->identity = &a->identity;
    dlpi_users_wire(&a->users, &d->workers);
}

/* What the files say, and the desc does not. */
static const dlpi_bound dlpi_files_say[] = {
    {DLPI_ZERO(dlp_chunks_desc, n_items)},
    {DLPI_ZERO(dlp_chunks_desc, fields)},
    {DLPI_ZERO(dlp_chunks_desc, n_fields)},
    {DLPI_ZERO(dlp_chunks_desc, writes_all_bytes)},
    {DLPI_ZERO(dlp_chunks_desc, rows)},
    {DLPI_ZERO(dlp_chunks_desc, n_chunks)},
    {DLPI_ZERO(dlp_chunks_desc, load)},
    {DLPI_ZERO(dlp_chunks_desc, rows_at)},
    {DLPI_ZERO(dlp_chunks_desc, user)},
    {DLPI_ZERO(dlp_chunks_desc, identity)},
    {DLPI_ZERO(dlp_chunks_desc, workers.worker_init)},
    {DLPI_ZERO(dlp_chunks_desc, workers.worker_exit)},
    {DLPI_ZERO(dlp_chunks_desc, workers.worker_user)},
};

DLPI_COLD DLPDEF int dlp_arrays_chunks_open(dlp_pipe **out, dlp_source **arrays,
                                            const dlp_arrays_desc *files,
                                            const dlp_chunks_desc *desc, dlp_error *err) {
    dlp_field fields[DLP_MAX_FIELDS];
    dlp_chunks_desc d;
    dlp_source *made = NULL;
    dlpi_arrays *a;
    uint64_t *rows = NULL;
    const dlpi_bound *given;
    int rc = dlpi_open_args(out, arrays, "arrays", desc, err);
    if (rc != DLP_OK || (rc = dlpi_open_args(out, files, "files", desc, err)) != DLP_OK) return rc;
    if (files->reads != 0)
        return dlpi_error_set(err, DLP_ERR_ARG, "reads",
                              "reads must be 0: batches are views of mapped files");
    if ((given = dlpi_out_of_bounds(desc, DLPI_ROWS(dlpi_files_say))) != NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, given->field,
                              "%s is given, must be 0 or NULL: the files say it", given->field);
    d = *desc;
    if ((rc = dlp_arrays_open(&made, files, err)) != DLP_OK || made == NULL) return rc;
    a = (dlpi_arrays *)(void *)made; /* it outlives the pipe */
    if ((rc = dlpi_arrays_views_check(a, err)) == DLP_OK) {
        dlpi_arrays_chunks_fill(a, &d, fields);
        rc = dlpi_arrays_cut(a, &d, &rows, err);
    }
    if (rc == DLP_OK) rc = dlp_chunks_open(out, &d, err);
    free(rows);
    if (rc == DLP_OK)
        *arrays = made;
    else
        dlp_source_close(made);
    return rc;
}
