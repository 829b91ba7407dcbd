/* needs: parts */
#pragma once
#include "api/parts.h"
#include "api/s3_source.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-parts   OBJECTS AS PARTS
   Entry i of the source's manifest is part i. The source's load reads it straight into the part's
   cell:

     {.name = "shards", .verb = DLP_LOAD, .load = {.source = source, .shuffle_items = 1}}, // or
     desc.parts.source = source; // of a loader

   The manifest gives the counts of items, unless items, count or max_items is set. If
   max_part_bytes is 0, it becomes the bytes of the longest entry. For a cache of the objects in a
   directory, or other ways to read, write a load of your own. The source still gives its workers
   their connections:

     dlp_part_files files = {.files = names, .n_files = n, .dir = "/cache",
                             .download = dlp_s3_part_download, .user = source};
     .load = {.source = source, .load = dlp_part_files_load, .user = &files}
     ... or, in a load: return part->index < split ? dlp_s3_part_load(source, part) : mine(part); */

/* Read a part from its entry: the load that the source gives. source: the source itself; part: as
   load gets it. Returns 0, DLP_ERR_CALLBACK or DLP_ERR_LENGTH. Only load may call it. It waits. */
DLPDEF int dlp_s3_part_load(void *source, dlp_part *part);

/* Write entry part->index into a file: for dlp_part_files.download, with the source as its user. If
   the load has this source, or one of its client, each worker has one dlp_s3_io for all its
   downloads. Else each download opens a dlp_s3_io. Returns 0, DLP_ERR_CALLBACK or DLP_ERR_LENGTH.
   It waits. */
DLPDEF int dlp_s3_part_download(void *source, const dlp_part *part, const char *path, int fd);
