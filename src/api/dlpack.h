/* needs: dlpack */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>dlpack     TENSORS FOR OTHER LIBRARIES
   A field of a batch becomes a tensor that numpy, PyTorch, JAX and others take over without a copy
   (numpy.from_dlpack). The structs are the structs of dlpack.h, byte for byte: DLManagedTensor of
   version 0.8 and DLManagedTensorVersioned of version 1.0. Cast the pointer. Both headers may be
   included.

     dlp_managed_tensor_v1 *t; // of "dltensor_versioned"; "dltensor": dlp_batch_dlpack(.., &older)
     if (dlp_batch_dlpack_v1(pipe, batch, 0, &t) == DLP_OK)
         capsule = PyCapsule_New(t, "dltensor_versioned", my_destructor); // calls t->deleter(t) */

typedef struct dlp_dl_tensor {
    void *data;
    int32_t device_type; /* 1: host, 2: CUDA, 4: OpenCL (data is a cl_mem), 12: a device of the
                                user, who may write its type here */
    int32_t device_id;   /* ordinal of a CUDA device; else 0 */
    int32_t ndim;
    uint8_t code, bits;   /* type code and bits of the dlp_dtype */
    uint16_t lanes;       /* 1 */
    int64_t *shape;       /* [ndim] */
    int64_t *strides;     /* [ndim] strides in elements; never NULL */
    uint64_t byte_offset; /* bytes from data to the first element, as in dlp_tensor */
} dlp_dl_tensor;

typedef struct dlp_managed_tensor {
    dlp_dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct dlp_managed_tensor *self);
} dlp_managed_tensor;

typedef struct dlp_managed_tensor_v1 {
    uint32_t major, minor; /* 1, 0 */
    void *manager_ctx;
    void (*deleter)(struct dlp_managed_tensor_v1 *self);
    uint64_t flags; /* 0: the tensor may be written; 1: read-only, such as views of
                       dlp_chunks_desc.rows_at */
    dlp_dl_tensor dl_tensor;
} dlp_managed_tensor_v1;

/* Make a tensor of a field. The first tensor of a batch keeps the batch held until the last tensor
   of the batch is deleted. The batch then goes back in the consumer's next dlp_pipe_next, _release
   or _close. So make all tensors of a batch before you call one of these.
   dlp_pipe_release of a batch with tensors returns DLP_OK; the batch goes back when its last tensor
   is deleted. This call is optional, and not allowed after close. A batch with tensors counts for
   max_held. Tensors outlive close: the pipe's memory is freed with the last tensor. A tensor may be
   deleted while queued kernels still read it, as PyTorch does. For this give the device their
   stream as consumer.
   batch: must be held. field: 0..n_fields-1. out: delete the tensor once, by its deleter, in any
   thread. Returns DLP_OK; DLP_ERR_ARG (the batch is not held, or there is no such field);
   DLP_ERR_STATE (the pipe is closed); DLP_ERR_MEMORY; DLP_ERR_FORKED. Consumer. Allocates the
   tensor. Does not wait.
   Source: dlpack.h (github.com/dmlc/dlpack), v0.8 and v1.0. */
DLPDEF int dlp_batch_dlpack(dlp_pipe *p, dlp_batch *batch, int field, dlp_managed_tensor **out);
DLPDEF int dlp_batch_dlpack_v1(dlp_pipe *p, dlp_batch *batch, int field,
                               dlp_managed_tensor_v1 **out);

/* Arrays about the rows of a batch, as tensors of one dimension. They lie in host memory
   (device_type 1), also if the fields are on a device. 64-bit words are given out as int64, which
   all libraries know; no word is above 2^63. The tensors are read-only, and tensors of version 1
   say so. */
enum {
    DLP_ROWS_INDEX = 1, /* int64 [count]: batch->index; field is not read */
    DLP_ROWS_VALID,     /* uint8 [count]: batch->valid; field is not read */
    DLP_ROWS_LENGTHS,   /* int64 [count]: lengths of a ragged field */
    DLP_ROWS_OFFSETS,   /* int64 [count + 1]: offsets of a packed field */
    DLP_ROWS_LIST,      /* uint16 [count]: batch->list, with trace_rows; field is not read */
    DLP_ROWS_NUMBER     /* uint32 [count]: batch->number, likewise */
};

/* Make a tensor of an array about rows. It holds the batch as a tensor of a field does.
   what: DLP_ROWS_*. field: 0..n_fields-1, for lengths and offsets. err: written on failure; may be
   NULL. All else is as for dlp_batch_dlpack. DLP_ERR_ARG also if the field has no lengths, or no
   offsets: err names it, and no tensor holds the batch. */
DLPDEF int dlp_batch_dlpack_rows(dlp_pipe *p, dlp_batch *batch, int what, int field,
                                 dlp_managed_tensor **out, dlp_error *err);
DLPDEF int dlp_batch_dlpack_rows_v1(dlp_pipe *p, dlp_batch *batch, int what, int field,
                                    dlp_managed_tensor_v1 **out, dlp_error *err);
