#pragma once
#include "api/dataset.h"
/* ---------------------------------------------------------------------------------------------
   >>batch      WHAT THE CONSUMER GETS */

/* One field of a batch. With shape, dtype and data it is what a DLTensor of DLPack needs (its
   strides are those of a dense array in C order). */
typedef struct dlp_tensor {
    const char *name;
    void *data;     /* the array is aligned to 64 bytes, each row to its dtype;
                                     after a transfer stage: where the device's alloc put it */
    uint64_t bytes; /* bytes in use */
    dlp_dtype dtype;
    int32_t ndim;
    int64_t shape[DLP_MAX_DIMS]; /* [count, item shape...], or as a collate made it */
    const uint64_t *lengths;     /* ragged: [count] rows of each item, else NULL; host memory */
    const uint64_t *offsets;     /* packed: [count + 1] where each item begins, else NULL; host */
    uint64_t byte_offset;        /* where the array begins after data: for views into a chunk on a
                                     device whose addresses are handles, else 0 */
} dlp_tensor;

enum { DLP_BATCH_LAST = 1 /* last batch of its epoch */ };

/* A batch lent to the consumer until released. Read its fields; do not change them (data may be
   written, it is the consumer's until release). */
typedef struct dlp_batch {
    uint64_t sequence; /* 0.. over the life of the pipe, in the order of the sampler */
    uint64_t epoch;
    uint64_t position;    /* first row's place in the epoch's global order */
    uint64_t in_epoch;    /* number of this batch in its epoch */
    uint32_t count;       /* rows; 0 only where ranks share a short batch */
    uint32_t valid_count; /* rows with valid[] = 1 */
    uint32_t flags;       /* DLP_BATCH_LAST */
    uint32_t n_fields;
    const dlp_tensor *fields; /* [n_fields] */
    const uint64_t *index;    /* [count] dataset index of each row */
    const uint8_t *valid;     /* [count] 0: padding, or left out (_SHORT, DLP_SKIP) */
    dlp_call *call;           /* in a batch map: for dlp_fail; else NULL */
    void *internal;
} dlp_batch;
