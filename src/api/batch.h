#pragma once
#include "api/dataset.h"
/* ---------------------------------------------------------------------------------------------
   >>batch      WHAT THE CONSUMER GETS */

/* One field of a batch. shape, dtype and data are what a DLTensor of DLPack needs; the strides are
   those of a dense array in C order. */
typedef struct dlp_tensor {
    const char *name;
    void *data;     /* the array, aligned to 64 bytes; each row is aligned to its dtype. After a
                                     transfer stage: where the device's alloc put the array */
    uint64_t bytes; /* bytes in use */
    dlp_dtype dtype;
    int32_t ndim;
    int64_t shape[DLP_MAX_DIMS]; /* [count, item shape...], or as a collate set it */
    const uint64_t *lengths;     /* [count] rows of each item, in host memory; NULL: not ragged */
    const uint64_t *offsets;     /* [count + 1] row where each item begins, in host memory; NULL:
                                     not packed */
    uint64_t byte_offset;        /* bytes from data to the array, for views into a chunk on a device
                                     whose addresses are handles; else 0 */
} dlp_tensor;

enum { DLP_BATCH_LAST = 1 /* last batch of its epoch */ };

/* A batch that is lent to the consumer until its release. The consumer may write to the data of its
   fields until then. It must not change the members of this struct. */
typedef struct dlp_batch {
    uint64_t sequence; /* number in the life of the pipe, from 0, in the order of the sampler */
    uint64_t epoch;
    uint64_t position;    /* place of the first row in the global order of the epoch */
    uint64_t in_epoch;    /* number of the batch in its epoch */
    uint32_t count;       /* rows; 0 only if ranks share a short batch */
    uint32_t valid_count; /* rows with valid[] = 1 */
    uint32_t flags;       /* DLP_BATCH_LAST, or 0 */
    uint32_t n_fields;
    const dlp_tensor *fields; /* [n_fields] */
    const uint64_t *index;    /* [count] dataset index of each row */
    const uint8_t *valid;     /* [count] 1: the row has an item; 0: padding, or an item left out
                                 (DLP_ON_ERROR_DROP, DLP_SKIP) */
    dlp_call *call;           /* for dlp_fail, in a batch map; else NULL */
    void *internal;
} dlp_batch;
