/* needs: split */
#pragma once
#include "api/pipe.h"
/* Cut each item, a chunk of many rows, into batches that are views. It is the last stage. The batch
   stage before it has batch_size 1 and no collate; the first dimension of every field is rows. The
   pipe's max_held, batches_per_epoch, states and statistics then speak of views: see >>chunks. Each
   of several ranks has every item, and fetch writes the rank's rows, one batch's after the
   other's. For
   chunks that another stage than dlp_chunks_open's loader makes (a cache, a map of whole chunks):

     ... list, fetch: item i of the dataset has rows i * 4096 and so on
     {.name = "chunk", .verb = DLP_BATCH, .batch = {.batch_size = 1}},
     {.name = "views", .verb = DLP_SPLIT, .split = {.chunk_rows = 4096, .n_rows = n,
                                                    .batch_size = 64}} */
typedef struct dlp_split_desc {
    uint64_t chunk_rows;   /* rows of an item, on all ranks together; required, 1..2^48 */
    uint64_t n_rows;       /* rows of all items: item i has rows i * chunk_rows and so on, the
                                  last what is left; 0: all items are full. A last item that is not
                                  full wants DLP_ORDER_SEQUENTIAL or _SHUFFLED without a subset */
    const uint64_t *rows;  /* [n_chunks] rows of each item, 0 or more, where they differ;
                                  copied. chunk_rows is then 0 or the most that any has, n_rows 0
                                  or the sum; orders as for n_rows. NULL: chunk_rows each */
    uint64_t n_chunks;     /* as many as there are items; 0 without rows */
    uint32_t batch_size;   /* rows of the global batch; required, 1..2^20 */
    int32_t last;          /* DLP_LAST_PARTIAL or _DROP: for what is left of the epoch, or, with
                                  within_chunks, of each item */
    int32_t within_chunks; /* 0: batches span items, and the rows of one that does are copied;
                                  of ranks only with dlp_chunks_open. 1: what is left of
                                  an item is a shorter batch, or none; batch_size is at most
                                  chunk_rows */
    int32_t shuffle_rows;  /* 1: what fetch writes is in the order of dlp_chunk_row; not with a
                                  cache */
    const struct dlp_chunks_desc *chunks; /* who loads the chunks of a table of dlp_chunks_nodes,
                                  which sets it; borrowed until open. Else NULL */
} dlp_split_desc;
