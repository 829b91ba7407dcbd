/* needs: parts */
#pragma once
#include "api/parts.h"
#include "api/s3_source.h"
/* Enter the source into a part queue: entry i is part i, read straight into the part's cell. Sets
   n_parts, load, user, manifest_id and the workers' worker_*; items come from the manifest, unless
   .items is set already; max_part_bytes, where it is 0, is the longest entry's. Other fields stay
   as they are. source is borrowed until the pipe is closed.

     dlp_s3_source_wire_parts(source, &desc.parts); // then dlp_loader_open(&pipe, &desc, &err)

   With a cache of the objects in a directory, or parts read in other ways, a load of one's own:

     dlp_part_files files = {.files = names, .n_files = n, .dir = "/cache",
                             .download = dlp_s3_part_download, .user = source};
     desc.parts.load = dlp_part_files_load, desc.parts.user = &files; // after wire_parts
     ... or, in a load: return part->index < split ? dlp_s3_part_load(source, part) : mine(part); */
DLPDEF void dlp_s3_source_wire_parts(dlp_source *source, dlp_part_desc *parts);

/* The load of wire_parts: user is the source. In load only; as dlp_part_files_load. */
DLPDEF int dlp_s3_part_load(void *source, dlp_part *part);

/* As dlp_part_files.download, with the source as user: entry part->index becomes the file. Workers
   as wire_parts sets them (load and user then set again) have one dlp_s3_io for all their
   downloads; without them each has its own. */
DLPDEF int dlp_s3_part_download(void *source, const dlp_part *part, const char *path, int fd);
