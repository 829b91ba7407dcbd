/* needs: arrays split */
#pragma once
#include "api/arrays.h"
#include "api/chunks.h"
/* ---------------------------------------------------------------------------------------------
   >>array-chunks ROWS OF MAPPED ARRAYS, WITHOUT A COPY
   Batches that are views into the mapped files of >>arrays: the address of the first row, and no
   byte is copied. Workers read the rows of a chunk into memory before the consumer comes to them.

     dlp_arrays_chunks_desc desc = {.arrays = {.columns = columns, .n_columns = 2},
                                    .chunks = {.batch_size = 64, .shuffle_chunks = 1}};
     if (dlp_arrays_chunks_open(&pipe, &arrays, &desc, &err) != DLP_OK) ...
     ... the pipe; close it, release what is held, then dlp_source_close(arrays)

   The consumer only reads batches: a write ends the process, for the files are mapped so. Rows come
   in the order of the files, chunks of them in another one with shuffle_chunks; with shuffle_rows
   or a device loaders copy them, as >>chunks says, and a batch that spans chunks is a copy. No
   chunk has rows of two files.

   A field is a column: of CIFAR's files "record" [1 or 2 labels and 3072 pixels], U8, whose labels
   and pixels do not lie apart from each other. IDX files of numbers of more than a byte are
   big-endian, and want a fetch of >>arrays. Of files that are cut: >>tokens. */

typedef struct dlp_arrays_chunks_desc {
    dlp_arrays_desc arrays; /* reads 0 */
    dlp_chunks_desc chunks; /* all as there, and chunk_rows 0: a multiple of batch_size, of 4 MiB or
                               more; n_items, fields, rows, load, rows_at, user and
                               workers.worker_* are the files': 0 here */
} dlp_arrays_chunks_desc;

/* Open the files, and a pipe of views into them that runs.
   out, arrays: both to be closed, the pipe first, arrays after the last release; desc: copied;
   err: may be NULL - returns as dlp_arrays_open and dlp_chunks_open; DLP_ERR_ARG (reads),
   DLP_ERR_UNSUPPORTED (numbers that are big-endian, or lie where their type may not); after a
   failure nothing is left to close - any thread, which is then the pipe's consumer - as both. */
DLPDEF int dlp_arrays_chunks_open(dlp_pipe **out, dlp_source **arrays,
                                  const dlp_arrays_chunks_desc *desc, dlp_error *err);
