/* needs: files lines */
#pragma once
#include "api/files.h"
/* ---------------------------------------------------------------------------------------------
   >>item-index INDEX FILES OF LINES AND TAR SHARDS
   A source that reads items in any order must know where each item lies. When it is first opened,
   it finds the items, and writes their places into an index file: 8 bytes an item. The next open
   maps this file, which takes microseconds. It does so only if the data file still has its length
   and the time of its last change.

     train.jsonl  ->  train.jsonl.dlpidx                 beside the file, or
                      DIRECTORY/train.jsonl.HASH.dlpidx  .index = "DIRECTORY"; HASH: of the path

   If the index file cannot be written, the source keeps the places in memory, and each open finds
   them again. The pipe then has a warning, which names the file. .index = "" asks for no index
   files. Several processes may open the same files at once. Each writes an index file of its own,
   whose name ends in .new, and renames it. A process that is killed meanwhile leaves that file.

   An item whose place in the index is wrong is an error, which names the data file. Remove its
   index then. Lines compare the bytes before and at their ends. Samples of tar shards compare the
   sums of headers, and the keys. If the index file is cut while it is mapped, the process ends by
   SIGBUS. dlpipe itself never cuts one.

   A source has a descriptor open for each file: see ulimit -n. Another format needs two functions
   for dlp_files_open, which reads many items at once: locate (where is item i?) and decode (make
   the fields of item i out of these bytes). Or a program fills a dlp_source with a fetch of its
   own. */

typedef struct dlp_index_info {
    uint64_t n_items;      /* items of all files, without lines that are skipped */
    uint64_t longest;      /* bytes of the longest item in its file, or a little more */
    uint64_t found;        /* files whose items this open found; the others had an index */
    uint64_t worker_bytes; /* bytes that each worker allocates when it begins */
    uint64_t id; /* number by which states know this source. It differs if the number of items or
                    bytes of a file differs */
    const char *warning; /* first index file that could not be written, and why; NULL: none */
} dlp_index_info;

/* Return what dlp_lines_open or dlp_tar_open has found, or NULL if `source` is of another call. The
   record and its text are the source's, until its close. Any thread. Does not wait. */
DLPDEF const dlp_index_info *dlp_index_describe(const dlp_source *source);
