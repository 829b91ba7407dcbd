/* needs: split */
#pragma once
#include "api/chunks.h"
#include "api/s3_source.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-chunks  OBJECTS AS CHUNKS
   A source whose desc has row_bytes has the rows of chunks, which go straight into the chunk:

     dlp_chunks_desc desc = {.source = source, .fields = &pixels, .n_fields = 1, ...};

   With several fields, one's own load. The workers have the connections of desc.source:

     static int load(void *user, dlp_chunk *chunk) {
         int rc = dlp_s3_chunk_read(images, chunk, 0);
         return rc != 0 ? rc : dlp_s3_chunk_read(labels, chunk, 1);
     }
     desc.source = images; desc.load = load; */

/* Read the rows of one field of a chunk, for a load of one's own, where several fields each have a
   source. All have the client of desc.source, whose workers have the connections. Returns 0, or
   failure, with words. In load only. */
DLPDEF int dlp_s3_chunk_read(dlp_source *source, dlp_chunk *chunk, uint32_t field);
