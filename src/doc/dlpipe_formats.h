#pragma once
/* dlpipe_formats.h - v0.1.0 - file formats for dlpipe.h - MIT licence - header-only, Linux
   Made from src/ by "make headers": edit there.

   Sources of items in files that many programs have: lines of text (JSONL, CSV), and samples of tar
   shards (WebDataset).

   >>formats-use            DO THIS, THEN THAT
   1  Copy this file beside dlpipe.h. In the one C file that has the implementation:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"
          #include "dlpipe_formats.h"
   2  Open a source, and give it to a loader or a fetch node: dlp_lines_open, dlp_tar_open.
      Shards that are loaded whole: dlp_tar_load, dlp_tar_expand.
   3  Close the pipe, then the source: dlp_source_close.

   >>contents               search for the anchor
   >>formats-use            DO THIS, THEN THAT
   >>formats-index          INDEX FILES
   >>formats-own            A FORMAT OF YOUR OWN
   >>formats-limits         LIMITS AND CAVEATS
   >>lines                  LINES OF TEXT FILES: JSONL, CSV
   >>tar                    TAR SHARDS, WEBDATASET
   The implementation:
   >>formats-impl-platform >>formats-impl-index >>formats-impl-indexed >>formats-impl-lines
   >>formats-impl-tar >>formats-impl-tar-source
   >>formats-history >>formats-licence

   >>formats-index          INDEX FILES
   To read items in any order, a source must know where each item lies. It finds the items when it
   is opened first, and writes their places into an index file: 8 bytes an item. The next open maps
   this file, which takes microseconds, if the data file has the same length and the same time of
   its last change.

     train.jsonl  ->  train.jsonl.dlpidx                 beside the file, or
                      DIRECTORY/train.jsonl.HASH.dlpidx  .index = "DIRECTORY"; HASH: of the path

   If the index file cannot be written, the source keeps the places in memory, and each open finds
   them again. The pipe then has a warning, which names the file. .index = "" asks for no index
   files. Several processes may open the same files at once. Each writes a file of its own (its name
   ends in .new), and renames it. A process that is killed meanwhile leaves that file.

   An item whose place in the index is wrong is an error, which names the data file; remove its
   index then. Lines compare the bytes before and at their ends. Samples of tar shards compare the
   sums of headers, and the keys. If the index file is cut while it is mapped, the process ends by
   SIGBUS. dlpipe itself never cuts one.

   >>formats-own            A FORMAT OF YOUR OWN
   This header calls nothing but what dlpipe.h declares. So another format can be one file, too. It
   needs two functions, locate (where is item i?) and decode (make the fields of item i out of these
   bytes), for dlp_files_open, which reads many items at once. Or it fills a dlp_source with a
   fetch of its own.

   >>formats-limits         LIMITS AND CAVEATS
   * A source has a descriptor open for each file: see ulimit -n.
   * Compressed files have no random access. A shard that is compressed can be loaded whole, by a
     load that unpacks it (examples/webdataset.c).
   * Samples of a tar shard whose members do not follow each other are several samples. Links are
     left out: make shards with --hard-dereference and --dereference.
   * A file that holds several archives, one behind the other, ends for dlpipe with the first one.
   * A made-up index can leave out the last members of a sample, if their fields are optional.
   * dlpipe_formats.h is compiled in the same file as dlpipe.h's implementation.
*/
