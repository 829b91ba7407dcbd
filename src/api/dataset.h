#pragma once
#include "api/errors.h"
/* ---------------------------------------------------------------------------------------------
   >>dataset    FIELDS, DATASETS, ITEMS */

/* Element type: DLPack's type code and bits (https://dmlc.github.io/dlpack). */
typedef uint32_t dlp_dtype;
#define DLP_DTYPE(code, bits) ((uint32_t)(code) << 16 | (uint32_t)(bits))
#define DLP_U8 DLP_DTYPE(1, 8)
#define DLP_U16 DLP_DTYPE(1, 16)
#define DLP_U32 DLP_DTYPE(1, 32)
#define DLP_U64 DLP_DTYPE(1, 64)
#define DLP_I8 DLP_DTYPE(0, 8)
#define DLP_I16 DLP_DTYPE(0, 16)
#define DLP_I32 DLP_DTYPE(0, 32)
#define DLP_I64 DLP_DTYPE(0, 64)
#define DLP_F16 DLP_DTYPE(2, 16)
#define DLP_F32 DLP_DTYPE(2, 32)
#define DLP_F64 DLP_DTYPE(2, 64)
#define DLP_BF16 DLP_DTYPE(4, 16)
#define DLP_BOOL DLP_DTYPE(6, 8)

/* One array of an item. An item of a fixed-size field has shape[0..ndim-1]; ndim 0 is a scalar.
   Of a ragged field (ragged = 1) shape[0] is the most rows an item may have; its cell has room for
   all of them, and what an item leaves free is zeroed. */
typedef struct dlp_field {
    const char *name;            /* copied; required, unique, 1..31 bytes */
    dlp_dtype dtype;             /* required: DLP_U8 and so on */
    int32_t ndim;                /* 0..DLP_MAX_DIMS-1 */
    int64_t shape[DLP_MAX_DIMS]; /* elements, each 1 or more */
    int32_t ragged;              /* 1: an item's first dimension varies from 0 to shape[0] */
    int64_t max_per_batch;       /* ragged with a collate: most rows (of dimension 0, all items
                                        together) in a batch; 0: batch rows * shape[0] */
} dlp_field;

/* An item that a callback is to write or change. Valid during the call only. */
typedef struct dlp_item {
    uint64_t index; /* dataset index */
    uint64_t epoch;
    uint64_t position; /* place in the epoch's global order; in a cell of inputs: a number of the
                          pass, the input and the item. In an order of items, position /
                          batch_size is the global batch's number in its epoch */
    uint32_t row;      /* row in its batch */
    uint32_t attempt;  /* 0, then 1.. for each retry, in whichever stage */
    uint32_t n_fields;
    uint32_t worker;    /* worker number in its stage */
    void *worker_state; /* what worker_init left */
    void **data;        /* [n_fields] where each field of this item is, aligned to its dtype */
    uint64_t *length;   /* [n_fields] ragged fields: rows written, to be set by fetch; in an item
                            map: as the stage before left it. Fixed-size fields: leave it 0. next
                            warns if all rows of a ragged field are empty in the first batch */
    uint64_t seed;      /* the sampler's seed */
    dlp_call *call;     /* for dlp_fail */
    const struct dlp_part *part; /* fetch after a part queue: the part that has this item, else
                            NULL */
} dlp_item;

/* Return a random number for augmenting this item, from (seed, epoch, position) alone: the same
   whatever worker runs it.
   salt: any, tells several draws apart - any thread - never waits. Source: dlp_hash. */
DLPDEF uint64_t dlp_item_random(const dlp_item *item, uint64_t salt);

/* Write the item (fetch), or change it in place (an item map).
   user: dataset.user, or the map's - returns 0: done; DLP_SKIP: the item is left out; DLP_END: a
   stream has no such item (fetch only); or any other value, errno too: failure, best by dlp_fail.
   A failure's code is DLP_ERR_LENGTH if that was returned, else DLP_ERR_CALLBACK, whose message has
   the number - called by all workers of the stage at once; may block. What is done to the item
   itself, but for length, is not looked at.
   DLP_SKIP: the row of the item stays in the batch as zeros, and valid[row] is 0. With
   dataset.filter, or DLP_ON_ERROR_REPLACE, another item takes the row. next warns once for each
   stage (dlp_pipe_desc.log) if its on_error is DLP_ON_ERROR_RAISE. */
typedef int (*dlp_item_fn)(void *user, dlp_item *item);

typedef struct dlp_dataset {
    uint64_t n_items;        /* required, 1..2^48; 0 with open_end; with a part queue 0: the sum of
                                  its counts */
    const dlp_field *fields; /* required; [n_fields] copied */
    uint32_t n_fields;       /* 1..DLP_MAX_FIELDS */
    uint32_t writes_all_bytes; /* 0: each row is zeroed before fetch, which costs a memset of it.
                                 1: fetch promises to write every byte of every fixed-size field */
    dlp_item_fn fetch;         /* required, but for DLP_FETCH_ASYNC */
    void *user;                /* borrowed until close */
    int32_t open_end; /* 1: nobody knows how many items there are: see >>streams; n_items is
                                 then 0 */
    int32_t filter;   /* 1: DLP_SKIP leaves the item out and the next one takes its row, so that
                                 batches stay full: >>expand. A loader sees to it; a table has
                                 filter nodes (>>graph) instead */
    const struct dlpi_reader *reader; /* of the source of a push; else NULL */
    const char *warning; /* text that the pipe repeats as a warning of its own; borrowed until then.
                            A source sets it. NULL: none */
} dlp_dataset;
