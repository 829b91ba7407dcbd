/* needs: split */
#pragma once
#include "api/pipe.h"
/* Cut each item, which is a chunk of many rows, into batches that are views. It is the last stage.
   The batch stage before it has batch_size 1 and no collate. The first dimension of every field is
   rows. max_held, batches_per_epoch, states and statistics of the pipe then count views:
   see >>chunks. Each rank has every item, and fetch writes the rows of this rank, one batch after
   the other. Use a split for chunks that another stage than the loader of dlp_chunks_open makes,
   such as a cache or a map of whole chunks:

     ... list, fetch: item i of the dataset has rows i * 4096 and so on
     {.name = "chunk", .verb = DLP_BATCH, .batch = {.batch_size = 1}},
     {.name = "views", .verb = DLP_SPLIT, .split = {.chunk_rows = 4096, .n_rows = n,
                                                    .batch_size = 64}} */
typedef struct dlp_node_split {
    uint64_t chunk_rows;   /* rows of an item, on all ranks together; required, 1..2^48 */
    uint64_t n_rows;       /* rows of all items together. Item i has chunk_rows rows from i *
                                  chunk_rows on; the last item has the rest. 0: all items are full.
                                  If the last item is not full, the order must be
                                  DLP_ORDER_SEQUENTIAL or _SHUFFLED without a subset */
    const uint64_t *rows;  /* [n_chunks] rows of each item, 0 or more, if items differ; copied.
                                  chunk_rows is then 0 or the most rows of an item, and n_rows 0 or
                                  the sum. Orders as for n_rows. NULL: chunk_rows each */
    uint64_t n_chunks;     /* number of items; 0 without rows */
    uint32_t batch_size;   /* rows of the global batch; required, 1..2^20 */
    int32_t last;          /* DLP_LAST_DEFAULT, _PARTIAL or _DROP, for the rest of the epoch or,
                                  with within_chunks, of each item */
    int32_t within_chunks; /* 0: batches may span items, and such a batch is copied. With several
                                  ranks this needs dlp_chunks_open. 1: the rest of an item is a
                                  shorter batch, or no batch; batch_size is at most chunk_rows */
    int32_t shuffle_rows;  /* 1: fetch writes rows in the order of dlp_chunk_row; not with a
                                  cache */
    const struct dlp_chunks_desc *chunks; /* desc of the load, for a table of dlp_chunks_nodes,
                                  which sets it; borrowed until open. Else NULL */
} dlp_node_split;
