/* needs: arrays split */
#pragma once
#include "api/arrays.h"
#include "api/chunks.h"
/* ---------------------------------------------------------------------------------------------
   >>array-chunks ROWS OF MAPPED ARRAYS, WITHOUT A COPY
   These batches are views into the mapped files of >>arrays: data is the address of the first row,
   and no byte is copied. Workers read the rows of a chunk into memory before the consumer needs
   them.

     dlp_arrays_desc files = {.columns = columns, .n_columns = 2};
     dlp_chunks_desc desc = {.batch_size = 64, .shuffle_chunks = 1};
     if (dlp_arrays_chunks_open(&pipe, &arrays, &files, &desc, &err) != DLP_OK) ...
     ... the pipe; close it, release what is held, then dlp_source_close(arrays)

   The consumer must only read batches: a write ends the process, since files are mapped read-only.
   Rows come in the order of the files; with shuffle_chunks, chunks come in another order. With
   shuffle_rows or a device loaders copy the rows, as >>chunks says. A batch that spans chunks is a
   copy. No chunk has rows of two files.

   A field is a column. A CIFAR file has one field "record" [1 or 2 labels and 3072 pixels], U8,
   since its labels and pixels do not lie apart. IDX files with numbers of more than a byte are
   big-endian, and need a fetch of >>arrays. For files that are cut see >>tokens. */

/* Open the files, and a running pipe of views into them.
   out, arrays: close both, the pipe first, and arrays after the last release. files: reads is 0.
   desc: copied. chunk_rows 0: a multiple of batch_size with 4 MiB or more. The files give n_items,
   fields, n_fields, writes_all_bytes, rows, n_chunks, load, rows_at, user, identity and
   workers.worker_*: leave them 0 or NULL. err: may be NULL.
   Returns as dlp_arrays_open and dlp_chunks_open. DLP_ERR_ARG also for reads, or a field that the
   files give. DLP_ERR_UNSUPPORTED also if numbers are big-endian, or not aligned to their type.
   After a failure nothing is left to close. Any thread; it becomes the pipe's consumer. Waits and
   allocates as dlp_arrays_open and dlp_chunks_open do. */
DLPDEF int dlp_arrays_chunks_open(dlp_pipe **out, dlp_source **arrays, const dlp_arrays_desc *files,
                                  const dlp_chunks_desc *desc, dlp_error *err);
