/* needs: dlpack */
#pragma once
/* tests: system/device/dlpack, system/device/dlpack_numpy */
#include "api/dlpack.h"
#include "build/close.h"
#include "device/devices.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-dlpack     TENSORS FOR OTHER LIBRARIES
   Only the consumer may release a batch, but any thread may call a deleter. So a deleter only
   counts down, and the consumer looks in its next call which batches are free. After close no such
   call may come: then the deleter that counts to zero gives the batch back. All of this is done
   under one lock, which is not held while a callback or a device runs. */

typedef struct dlpi_exported {
    uint32_t tensors;  /* tensors of the batch that are not deleted */
    uint32_t exported; /* 1: the batch goes back when its last tensor is deleted */
} dlpi_exported;

typedef struct dlpi_export {
    union {
        dlp_managed_tensor v0;
        dlp_managed_tensor_v1 v1;
    } tensor;
    int64_t shape[DLP_MAX_DIMS], strides[DLP_MAX_DIMS];
    dlp_pipe *p;
    uint32_t slot;
} dlpi_export;

_Static_assert(sizeof(dlp_dl_tensor) == 48 && offsetof(dlp_dl_tensor, ndim) == 16 &&
                   offsetof(dlp_dl_tensor, code) == 20 && offsetof(dlp_dl_tensor, shape) == 24 &&
                   offsetof(dlp_dl_tensor, byte_offset) == 40,
               "DLTensor of dlpack.h");
_Static_assert(sizeof(dlp_managed_tensor) == 64 && offsetof(dlp_managed_tensor, deleter) == 56,
               "DLManagedTensor of dlpack.h");
_Static_assert(sizeof(dlp_managed_tensor_v1) == 80 &&
                   offsetof(dlp_managed_tensor_v1, manager_ctx) == 8 &&
                   offsetof(dlp_managed_tensor_v1, flags) == 24 &&
                   offsetof(dlp_managed_tensor_v1, dl_tensor) == 32,
               "DLManagedTensorVersioned of dlpack.h");

static dlpi_mutex dlpi_exported_lock = DLPI_MUTEX_INIT;

/* Give batch s back to a closed pipe, under the lock. True if it was the last: then free the
   pipe. */
static bool dlpi_exported_drop(dlp_pipe *p, uint32_t s) {
    p->exports.slots[s].exported = 0;
    p->lent[s] = 0;
    return --p->n_lent == 0;
}

/* True if batch s was exported and all its tensors are deleted. It is the consumer's again then. */
static bool dlpi_exported_back(dlp_pipe *p, uint32_t s) {
    bool back;
    dlpi_mutex_lock(&dlpi_exported_lock);
    back = p->exports.slots[s].exported && p->exports.slots[s].tensors == 0;
    if (back) p->exports.slots[s].exported = 0;
    dlpi_mutex_unlock(&dlpi_exported_lock);
    if (back) p->exports.n--;
    return back;
}

/* Give back what has no more tensors. */
DLPI_COLD static void dlpi_exported_sweep(dlp_pipe *p) {
    uint32_t left = p->exports.n;
    for (uint32_t s = 0; left > 0; s++) {
        if (p->exports.slots[s].exported == 0)
            continue; /* before close only the consumer writes it */
        left--;
        if (dlpi_exported_back(p, s)) dlpi_give_back(p, s);
    }
}

/* Release batch s of a pipe that exports batches. An exported one goes back with its last tensor.
   Returns DLP_OK. */
static int dlpi_exported_release(dlp_pipe *p, uint32_t s) {
    bool last;
    if (!p->exports.closed) { /* written by the consumer */
        if (!p->exports.slots[s].exported) dlpi_give_back(p, s);
        dlpi_exported_sweep(p);
        return DLP_OK;
    }
    dlpi_mutex_lock(&dlpi_exported_lock);
    last = p->exports.slots[s].exported == 0 && dlpi_exported_drop(p, s);
    dlpi_mutex_unlock(&dlpi_exported_lock);
    if (last) dlpi_free(p);
    return DLP_OK;
}

/* Close the pipe (dlp_pipe_close). Exported batches keep its memory. Returns 0 or a code. */
static int dlpi_exported_close(dlp_pipe *p) {
    bool last;
    int rc;
    dlpi_exported_sweep(p);
    if ((rc = dlpi_shut(p)) != DLP_OK) return rc;
    dlpi_mutex_lock(&dlpi_exported_lock);
    p->exports.closed = 1;
    for (uint32_t s = 0; s < p->n_out; s++)
        if (p->exports.slots[s].exported && p->exports.slots[s].tensors == 0)
            dlpi_exported_drop(p, s);
    last = p->n_lent == 0;
    dlpi_mutex_unlock(&dlpi_exported_lock);
    if (last) dlpi_free(p);
    return DLP_OK;
}

static const dlpi_exports_ops dlpi_exported_ops = {
    .sweep = dlpi_exported_sweep,
    .release = dlpi_exported_release,
    .close = dlpi_exported_close,
};

/* Delete a tensor. A child forked from the pipe's process takes no lock: nobody may ever free
   it. */
static void dlpi_export_free(dlpi_export *x) {
    dlp_pipe *p = x->p; /* lives at least as long as its tensors */
    bool last = false;
    if (!dlpi_forked(p)) {
        dlpi_mutex_lock(&dlpi_exported_lock);
        if (--p->exports.slots[x->slot].tensors == 0 && p->exports.closed)
            last = dlpi_exported_drop(p, x->slot);
        dlpi_mutex_unlock(&dlpi_exported_lock);
    }
    if (last) dlpi_free(p);
    free(x);
}

static void dlpi_delete_v0(dlp_managed_tensor *self) { dlpi_export_free(self->manager_ctx); }
static void dlpi_delete_v1(dlp_managed_tensor_v1 *self) { dlpi_export_free(self->manager_ctx); }

/* Return the DLPack device type of the pipe's batches, and the device's number in *id. */
static int32_t dlpi_dl_device(const dlp_pipe *p, int32_t *id) {
    const dlp_device *d = p->sink_stage ? dlpi_transfer_device(p) : dlp_device_host();
    int make = dlpi_gpu_make(d);
    *id = make == 1 ? ((const dlpi_gpu *)d->user)->info.device : 0;
    if (make != 0) return make == 1 ? 2 : 4;
    return d->copy == dlp_device_host()->copy ? 1 : 12;
}

/* Describe a tensor in DLPack's form. The shape and the strides lie in the record x. host: the data
   lie in host memory, whatever device the pipe has. */
static void dlpi_export_fill(dlpi_export *x, const dlp_tensor *t, bool host, dlp_dl_tensor *out) {
    int64_t stride = 1;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        x->shape[i] = t->shape[i];
        x->strides[i] = stride;
        stride *= t->shape[i];
    }
    memset(out, 0, sizeof *out);
    out->data = t->data;
    out->device_type = host ? 1 : dlpi_dl_device(x->p, &out->device_id);
    out->ndim = t->ndim;
    out->code = (uint8_t)(t->dtype >> 16);
    out->bits = (uint8_t)t->dtype;
    out->lanes = 1;
    out->shape = x->shape;
    out->strides = x->strides;
    out->byte_offset = t->byte_offset;
}

/* Check that tensors may be made of this batch. Returns 0, or a code with *err (or NULL) filled. */
static int dlpi_export_check(const dlp_pipe *p, const dlp_batch *batch, dlp_error *err) {
    if (p == NULL || batch == NULL || !p->started)
        return dlpi_error_set(err, DLP_ERR_ARG, "batch",
                              "pipe or batch is NULL, or the pipe was not started");
    if (p->closing) return dlpi_error_set(err, DLP_ERR_STATE, "", "the pipe is closed");
    if (dlpi_forked(p))
        return dlpi_error_set(err, DLP_ERR_FORKED, "", "%s", dlp_code_text(DLP_ERR_FORKED));
    if (dlpi_lent_slot(p, batch) == DLPI_NO_SLOT)
        return dlpi_error_set(err, DLP_ERR_ARG, "batch", "the batch is not held");
    return DLP_OK;
}

static int dlpi_export_field(const dlp_batch *batch, int field, dlp_error *err) {
    if (field >= 0 && (uint32_t)field < batch->n_fields) return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_ARG, "field", "field is %d, must be below %u", field,
                          batch->n_fields);
}

/* Lend a batch to one more tensor, whose record *out is. Returns 0 or DLP_ERR_MEMORY. */
static int dlpi_export_new(dlp_pipe *p, const dlp_batch *batch, dlpi_export **out, dlp_error *err) {
    uint32_t s = dlpi_lent_slot(p, batch);
    dlpi_export *x = NULL;
    if (p->exports.slots == NULL) p->exports.slots = calloc(p->n_out, sizeof *p->exports.slots);
    if (p->exports.slots != NULL) p->exports.ops = &dlpi_exported_ops;
    if (p->exports.slots == NULL || (x = calloc(1, sizeof *x)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory: a tensor of %d bytes",
                              (int)sizeof *x);
    x->p = p;
    x->slot = s;
    dlpi_mutex_lock(&dlpi_exported_lock);
    p->exports.n += p->exports.slots[s].exported == 0;
    p->exports.slots[s].exported = 1;
    p->exports.slots[s].tensors++;
    dlpi_mutex_unlock(&dlpi_exported_lock);
    *out = x;
    return DLP_OK;
}

static dlp_managed_tensor *dlpi_export_v0(dlpi_export *x, const dlp_tensor *t, bool host) {
    dlpi_export_fill(x, t, host, &x->tensor.v0.dl_tensor);
    x->tensor.v0.manager_ctx = x;
    x->tensor.v0.deleter = dlpi_delete_v0;
    return &x->tensor.v0;
}

/* Return the tensor of record x in DLPack's form of version 1. Its deleter frees the record. The
   tensor is read-only if `host` is set, or if the pipe's batches lie in memory of others. */
static dlp_managed_tensor_v1 *dlpi_export_v1(dlpi_export *x, const dlp_tensor *t, bool host) {
    dlpi_export_fill(x, t, host, &x->tensor.v1.dl_tensor);
    x->tensor.v1.major = 1;
    x->tensor.v1.flags = host || dlpi_cells_none(x->p) ? 1 : 0;
    x->tensor.v1.manager_ctx = x;
    x->tensor.v1.deleter = dlpi_delete_v1;
    return &x->tensor.v1;
}

/* Check a field, and make the record of its tensor. Returns 0 or a code. */
static int dlpi_export_data(dlp_pipe *p, const dlp_batch *batch, int field, dlpi_export **x) {
    int rc = dlpi_export_check(p, batch, NULL);
    if (rc == DLP_OK) rc = dlpi_export_field(batch, field, NULL);
    return rc == DLP_OK ? dlpi_export_new(p, batch, x, NULL) : rc;
}

DLPDEF int dlp_batch_dlpack(dlp_pipe *p, dlp_batch *batch, int field, dlp_managed_tensor **out) {
    dlpi_export *x = NULL;
    int rc = out ? dlpi_export_data(p, batch, field, &x) : DLP_ERR_ARG;
    if (rc == DLP_OK && x != NULL) *out = dlpi_export_v0(x, &batch->fields[field], false);
    return rc;
}

DLPDEF int dlp_batch_dlpack_v1(dlp_pipe *p, dlp_batch *batch, int field,
                               dlp_managed_tensor_v1 **out) {
    dlpi_export *x = NULL;
    int rc = out ? dlpi_export_data(p, batch, field, &x) : DLP_ERR_ARG;
    if (rc == DLP_OK && x != NULL) *out = dlpi_export_v1(x, &batch->fields[field], false);
    return rc;
}

/* ---- what a batch tells of its rows, as tensors ---- */

/* Set *t to the lengths or the offsets of a field. Returns 0, or DLP_ERR_ARG with *err filled. */
static int dlpi_rows_of_field(const dlp_batch *batch, bool offsets, int field, dlp_tensor *t,
                              dlp_error *err) {
    const dlp_tensor *f;
    const uint64_t *words;
    int rc = dlpi_export_field(batch, field, err);
    if (rc != DLP_OK) return rc;
    f = &batch->fields[field];
    words = offsets ? f->offsets : f->lengths;
    if (words == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, f->name, "field \"%s\" has no %s: it is not %s",
                              f->name, offsets ? "offsets" : "lengths",
                              offsets ? "packed" : "ragged");
    t->data = (void *)(uintptr_t)words;
    t->shape[0] += offsets;
    return DLP_OK;
}

/* Describe what the batch says of its rows as a tensor: a DLP_ROWS_* of the batch, or of a field.
   Returns 0, or a DLP_ERR code with *err filled. The data stay the batch's. */
static int dlpi_rows_tensor(const dlp_batch *batch, int what, int field, dlp_tensor *t,
                            dlp_error *err) {
    memset(t, 0, sizeof *t);
    t->ndim = 1;
    t->shape[0] = batch->count;
    t->dtype = what == DLP_ROWS_VALID    ? DLP_U8
               : what == DLP_ROWS_LIST   ? DLP_U16
               : what == DLP_ROWS_NUMBER ? DLP_U32
                                         : DLP_I64;
    switch (what) {
    case DLP_ROWS_LIST:
    case DLP_ROWS_NUMBER:
        t->data =
            (void *)(uintptr_t)(what == DLP_ROWS_LIST ? (const void *)batch->list : batch->number);
        if (t->data != NULL) return DLP_OK;
        return dlpi_error_set(err, DLP_ERR_ARG, "what",
                              "rows of this batch are not traced; set trace_rows of the pipe. A "
                              "packed row has no list and number");
    case DLP_ROWS_INDEX: t->data = (void *)(uintptr_t)batch->index; return DLP_OK;
    case DLP_ROWS_VALID: t->data = (void *)(uintptr_t)batch->valid; return DLP_OK;
    case DLP_ROWS_LENGTHS:
    case DLP_ROWS_OFFSETS:
        return dlpi_rows_of_field(batch, what == DLP_ROWS_OFFSETS, field, t, err);
    default: return dlpi_error_set(err, DLP_ERR_ARG, "what", "what %d is no DLP_ROWS_*", what);
    }
}

static int dlpi_export_rows(dlp_pipe *p, const dlp_batch *batch, int what, int field, dlp_tensor *t,
                            dlpi_export **x, dlp_error *err) {
    int rc = dlpi_export_check(p, batch, err);
    if (rc == DLP_OK) rc = dlpi_rows_tensor(batch, what, field, t, err);
    return rc == DLP_OK ? dlpi_export_new(p, batch, x, err) : rc;
}

DLPDEF int dlp_batch_dlpack_rows(dlp_pipe *p, dlp_batch *batch, int what, int field,
                                 dlp_managed_tensor **out, dlp_error *err) {
    dlpi_export *x = NULL;
    dlp_tensor t;
    int rc = out ? dlpi_export_rows(p, batch, what, field, &t, &x, err)
                 : dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    if (rc == DLP_OK && x != NULL) *out = dlpi_export_v0(x, &t, true);
    return rc;
}

DLPDEF int dlp_batch_dlpack_rows_v1(dlp_pipe *p, dlp_batch *batch, int what, int field,
                                    dlp_managed_tensor_v1 **out, dlp_error *err) {
    dlpi_export *x = NULL;
    dlp_tensor t;
    int rc = out ? dlpi_export_rows(p, batch, what, field, &t, &x, err)
                 : dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    if (rc == DLP_OK && x != NULL) *out = dlpi_export_v1(x, &t, true);
    return rc;
}
