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

/* One array of an item. In a fixed-size field each item has the shape shape[0..ndim-1]; ndim 0 is a
   scalar. In a ragged field (ragged = 1) an item has 0 to shape[0] rows. Its cell has room for
   shape[0] rows. The library zeroes the rows that an item does not use. It clears only what an
   earlier item has left there, so the time of an item follows its length and not the room. So a
   callback that succeeds must not have written behind its length, or the length that it found.
   DLPIPE_DEBUG names a callback that has. */
typedef struct dlp_field {
    const char *name;            /* required; 1..31 bytes, unique in the pipe; copied */
    dlp_dtype dtype;             /* required: DLP_U8 and so on */
    int32_t ndim;                /* 0..DLP_MAX_DIMS-1 */
    int64_t shape[DLP_MAX_DIMS]; /* elements, each 1 or more */
    int32_t ragged;              /* 1: the first dimension of an item is 0 to shape[0]; 0: fixed */
    int64_t max_per_batch;       /* ragged field with a collate: the most rows (dimension 0) that
                                        all items of a batch have together; 0: batch rows *
                                        shape[0] */
} dlp_field;

/* An item that a callback writes or changes. Valid during the call only. */
typedef struct dlp_item {
    uint64_t index;     /* number of the item in the dataset, from 0 */
    uint64_t epoch;     /* from 0 */
    uint64_t position;  /* place in the global order of the epoch, from 0: position / batch_size is
                          the number of the global batch in the epoch. In a cell of inputs it is
                          a number made from the pass, the input and the item */
    uint32_t row;       /* row in the batch */
    uint32_t attempt;   /* 0 for the first attempt, then 1 more for each retry in any stage */
    uint32_t n_fields;  /* fields that the callback sees */
    uint32_t worker;    /* number of the worker in its stage, from 0 */
    void *worker_state; /* the pointer that worker_init stored */
    void **data;        /* [n_fields] memory of each field of this item, aligned to its dtype */
    uint64_t *length;   /* [n_fields] rows of a ragged field. A fetch sets it; an item map finds the
                            value of the stage before. In a fixed-size field leave it 0. next warns
                            if a ragged field has no row in the whole first batch */
    uint64_t seed;      /* seed of the sampler */
    dlp_call *call;     /* handle of this call, for dlp_fail */
    const struct dlp_part *part; /* part that has this item, in a fetch behind a part queue; else
                            NULL */
} dlp_item;

/* Return a random number to augment this item. The number depends on seed, epoch, position and salt
   alone, so each worker and each retry gets the same number.
   salt: any number; use another salt for another draw. Any thread. Does not wait. Source:
   dlp_hash. */
DLPDEF uint64_t dlp_item_random(const dlp_item *item, uint64_t salt);

/* Return the index of an item that this worker fetches soon, or UINT64_MAX: none is known. Each
   item is told once, and again if an item before it fails. Call it until it returns UINT64_MAX. Ask
   for the memory of each item, by a prefetch or by madvise. Then its data come while others are
   copied. Nobody else knows the next items of a shuffled order.

     for (uint64_t next; (next = dlp_item_ahead(item)) != UINT64_MAX;)
         __builtin_prefetch(&rows[next]); // and each 64 bytes from there on

   item: of the running call of a fetch, in the thread of the call. Before makers it tells the next
   inputs of the same cell, to the fetch or to the expand. Nothing is told in an async fetch, in a
   fetch of one of several datasets before makers, and in batches of one row. Does not wait. */
DLPDEF uint64_t dlp_item_ahead(const dlp_item *item);

/* Write the item (a fetch), or change it in place (an item map).
   user: dataset.user, or the user of the map. item: the callback writes the memory of its fields
   and sets length. The library ignores other changes of the struct.
   Returns 0:        the item is written.
           DLP_SKIP: the item is left out. Its row stays in the batch as zeros, and valid[row] is 0.
                     With dataset.filter or DLP_ON_ERROR_REPLACE another item takes the row. If
                     on_error is DLP_ON_ERROR_RAISE, next warns once for each stage
                     (dlp_pipe_desc.log).
           DLP_END:  a stream has no such item (fetch only).
           any other value, an errno too: the call has failed. dlp_fail adds a message. The code of
                     the error is DLP_ERR_LENGTH if the callback returned it, else DLP_ERR_CALLBACK;
                     its message has the returned number.
   All workers of the stage call it at the same time. It may block. */
typedef int (*dlp_item_fn)(void *user, dlp_item *item);

/* Write the items of several rows of a batch in one call. It is for sources that are faster so: a
   query of a database, reads that one system call makes, copies out of memory.
   items: [n] the items, in the order of their rows; n is 1..32. The callback writes each item as a
   dlp_item_fn writes its item. The array is valid during the call only.
   made: 0. If the call fails, the callback sets *made to the number of the item that has failed.
   All items before that item are written.
   Returns 0: all items are written. Else a value of dlp_item_fn, for item *made alone: DLP_SKIP,
   DLP_END, an errno, or dlp_fail(items[*made].call, ...). The policy of the row decides on this
   item. Another call asks for the items behind it, whose memory is cleared again.
   A retry asks for the failed item alone. If a worker dies in a call, each of its items counts the
   death, and is then asked for alone. So an item has failed after two deaths at least.
   n follows from the batch and the number of workers; in the first batches it is less. n is 1 with
   a deadline_ms, a cache, a load, an open end, fields that end, batches of one row, and in debug
   builds. With ragged fields it is 1 in a mix, and if another row runs in the fetch's attempts.
   All workers of the stage call it at the same time. It may block. */
typedef int (*dlp_rows_fn)(void *user, dlp_item *items, uint32_t n, uint32_t *made);

/* What data are, as hashes, so that no state goes on with other data (>>state). Sources fill it for
   their files or objects. A program may fill it for data of its own, with any hashes. 0 says that
   nothing is known: the value is not compared. */
typedef struct dlp_identity {
    uint64_t names;   /* names of the files, in any order */
    uint64_t order;   /* names of the files, in their order */
    uint64_t sizes;   /* bytes of each file, in order */
    uint64_t content; /* bytes, or versions, of the files, in order */
    int32_t moved;    /* 1: names and order are not compared with those of a state */
} dlp_identity;

typedef struct dlp_dataset {
    uint64_t n_items;        /* required; 1..2^48 items. 0 with open_end. With a part queue 0 means
                                  the sum of the counts of the parts */
    const dlp_field *fields; /* required; [n_fields]; copied */
    uint32_t n_fields;       /* 1..DLP_MAX_FIELDS */
    uint32_t writes_all_bytes; /* 1: fetch promises to write every byte of every fixed-size field,
                                 and of each ragged field all rows of its length. 0: the library
                                 zeroes each row before fetch, by a memset; of a ragged field what
                                 an earlier item has left */
    dlp_item_fn fetch;         /* required; NULL with DLP_FETCH_ASYNC, or fetch_rows */
    void *user;                /* borrowed until close */
    int32_t open_end; /* 1: the number of items is not known (>>streams), and n_items is 0 */
    int32_t filter;   /* 1: if fetch returns DLP_SKIP, the next item takes the row, and batches stay
                                 full (>>expand). Only a loader uses it; a table has filter nodes
                                 (>>graph) */
    const struct dlpi_reader *reader; /* set by the source of a push, for the library; else NULL */
    const char *warning; /* text of a warning that the pipe gives when it is opened; set by a
                            source; borrowed until open returns. NULL: none */
    const dlp_identity *identity; /* what the data are, for states; set by a source; borrowed until
                                      open returns. NULL: not known */
    uint64_t worker_bytes;  /* bytes that each worker allocates as it begins, for the plan; a source
                              sets it. 0: none */
    dlp_rows_fn fetch_rows; /* writes several items in a call. fetch is then NULL, and the fetcher
                               DLP_FETCH_SEQUENTIAL. NULL: fetch writes each item */
} dlp_dataset;
