/* needs: parts */
#pragma once
#include "api/parts.h"
#include "api/s3_source.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-parts   OBJECTS AS PARTS
   Entry i of the source's manifest is part i. A load reads it straight into the part's cell:

     {.name = "shards", .verb = DLP_LOAD, .load = {.source = source, .shuffle_items = 1}}, // or
     desc.parts.source = source; // of a loader

   Counts of items come from the manifest, unless items, count or max_items is set. max_part_bytes,
   where it is 0, is the longest entry's. With a cache of the objects in a directory, or parts read
   in other ways, a load of one's own; the workers have the source's connections all the same:

     dlp_part_files files = {.files = names, .n_files = n, .dir = "/cache",
                             .download = dlp_s3_part_download, .user = source};
     .load = {.source = source, .load = dlp_part_files_load, .user = &files}
     ... or, in a load: return part->index < split ? dlp_s3_part_load(source, part) : mine(part); */

/* The load that the source gives: user is the source. In load only; as dlp_part_files_load. */
DLPDEF int dlp_s3_part_load(void *source, dlp_part *part);

/* As dlp_part_files.download, with the source as user: entry part->index becomes the file. Workers
   of a load whose source this is have one dlp_s3_io for all their downloads; without the source
   each download has its own. */
DLPDEF int dlp_s3_part_download(void *source, const dlp_part *part, const char *path, int fd);
