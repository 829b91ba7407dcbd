/* needs: split */
#pragma once
#include "api/chunks.h"
#include "api/s3_source.h"
/* Enter the source, whose desc has row_bytes, into chunks: n_items, load, user and the workers'
   worker_*. Rows go straight into the chunk. Other fields of chunks stay as they are. source is
   borrowed until the pipe is closed. With several fields, one's own load:

     static int load(void *user, dlp_chunk *chunk) { // desc.load, set after wire_chunks(images)
         int rc = dlp_s3_chunk_load(images, chunk);  // field 0
         return rc != 0 ? rc : dlp_s3_chunk_read(labels, chunk, 1);
     }
     dlp_s3_source_wire_chunks(images, &desc); // then dlp_chunks_open(&pipe, &desc, &err) */
DLPDEF void dlp_s3_source_wire_chunks(dlp_source *source, dlp_chunks_desc *chunks);

/* The load of wire_chunks: field 0 of the chunk. user is the source. In load only. */
DLPDEF int dlp_s3_chunk_load(void *source, dlp_chunk *chunk);

/* Read the rows of one field of a chunk, for a load of one's own, where several fields each have a
   source. All have the client of the one that wire_chunks was told; its worker_init is what makes
   them connections. Returns 0, or failure, with words. In load only. */
DLPDEF int dlp_s3_chunk_read(dlp_source *source, dlp_chunk *chunk, uint32_t field);
