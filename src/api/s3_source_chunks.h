/* needs: split */
#pragma once
#include "api/chunks.h"
#include "api/s3_source.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-chunks  OBJECTS AS CHUNKS
   If row_bytes of its desc is set, a source loads the rows of chunks straight into the chunk:

     dlp_chunks_desc desc = {.source = source, .fields = &pixels, .n_fields = 1, ...};

   For several fields write a load of your own. desc.source gives its workers their connections:

     static int load(void *user, dlp_chunk *chunk) {
         int rc = dlp_s3_chunk_read(images, chunk, 0);
         return rc != 0 ? rc : dlp_s3_chunk_read(labels, chunk, 1);
     }
     desc.source = images; desc.load = load; */

/* Read the rows of one field of a chunk from a source. It is for a load of your own, if each of
   several fields has a source. All these sources must have the client of desc.source.
   chunk: as load gets it; field: below chunk->n_fields. Returns 0, or DLP_ERR_CALLBACK with a
   message. Only load may call it. It waits. */
DLPDEF int dlp_s3_chunk_read(dlp_source *source, dlp_chunk *chunk, uint32_t field);
