#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>dlpack     TENSORS FOR OTHER LIBRARIES
   A field of a batch as a tensor that numpy, PyTorch, JAX and others take over without a copy
   (numpy.from_dlpack). The structs are those of dlpack.h 0.8, DLManagedTensor, and 1.0,
   DLManagedTensorVersioned, byte for byte: cast the pointer. Both headers may be included.

     dlp_managed_tensor_v1 *t; // of "dltensor_versioned"; "dltensor": dlp_batch_dlpack(.., &older)
     if (dlp_batch_dlpack_v1(pipe, batch, 0, &t) == DLP_OK)
         capsule = PyCapsule_New(t, "dltensor_versioned", my_destructor); // calls t->deleter(t) */

typedef struct dlp_dl_tensor {
    void *data;
    int32_t device_type; /* 1: host, 2: CUDA, 4: OpenCL (data is a cl_mem), 12: a device of the
                                user's, who may write here what it is */
    int32_t device_id;   /* CUDA: ordinal; else 0 */
    int32_t ndim;
    uint8_t code, bits;   /* of dlp_dtype */
    uint16_t lanes;       /* 1 */
    int64_t *shape;       /* [ndim] */
    int64_t *strides;     /* [ndim] elements; never NULL */
    uint64_t byte_offset; /* as dlp_tensor has it */
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
    uint64_t flags; /* 0: may be written; 1: may not, as views of dlp_chunks_desc.rows_at */
    dlp_dl_tensor dl_tensor;
} dlp_managed_tensor_v1;

/* Make a tensor of a field. From the first one of a batch on, the batch is held until its last
   tensor is deleted; it then goes back within the consumer's next dlp_pipe_next, _release or
   _close. So make all that are wanted before calling one of these. dlp_pipe_release of such a batch
   is DLP_OK, and gives it back when that is so; it need not be called, nor may it after close. A
   batch with tensors counts among max_held. Tensors outlive close: the pipe's memory goes with the
   last. A tensor may be deleted while kernels that read it are queued (PyTorch does): give the
   device their stream as consumer.
   batch: one that is held; field: 0..n_fields-1; out: to be deleted by its deleter, once, by any
   thread - returns DLP_OK, DLP_ERR_ARG (not held, no such field), DLP_ERR_STATE (closed),
   DLP_ERR_MEMORY, DLP_ERR_FORKED - consumer - allocates the tensor; does not wait.
   Source: dlpack.h (github.com/dmlc/dlpack), v0.8 and v1.0. */
DLPDEF int dlp_batch_dlpack(dlp_pipe *p, dlp_batch *batch, int field, dlp_managed_tensor **out);
DLPDEF int dlp_batch_dlpack_v1(dlp_pipe *p, dlp_batch *batch, int field,
                               dlp_managed_tensor_v1 **out);

/* What a batch says of its rows, as tensors of one dimension in host memory (device_type 1), also
   where the fields are on a device. 64-bit words are given out as int64, which all libraries know:
   none of them is above 2^63. They are to be read only, and tensors of version 1 say so. */
enum {
    DLP_ROWS_INDEX = 1, /* int64 [count]: batch->index; field is not read */
    DLP_ROWS_VALID,     /* uint8 [count]: batch->valid; field is not read */
    DLP_ROWS_LENGTHS,   /* int64 [count]: lengths of a field that has them: a ragged one */
    DLP_ROWS_OFFSETS    /* int64 [count + 1]: offsets of a field that has them: a packed one */
};

/* Make a tensor of one of these. It holds the batch as a tensor of a field does.
   what: DLP_ROWS_*; field: 0..n_fields-1, for lengths and offsets; err: written on failure, may be
   NULL; all else, what is returned and from where it may be called as above. DLP_ERR_ARG, too, for
   a field that has no lengths, or no offsets: err names it, and the batch is not held by that. */
DLPDEF int dlp_batch_dlpack_rows(dlp_pipe *p, dlp_batch *batch, int what, int field,
                                 dlp_managed_tensor **out, dlp_error *err);
DLPDEF int dlp_batch_dlpack_rows_v1(dlp_pipe *p, dlp_batch *batch, int what, int field,
                                    dlp_managed_tensor_v1 **out, dlp_error *err);
