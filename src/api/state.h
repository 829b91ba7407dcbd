#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>state      RESUME */

/* A saved place of a pipe: all batches up to one are consumed. Save it anywhere, and give it back
   as .resume. It is opaque, and has a version and a checksum. All ranks save the same bytes; only
   with inputs of unknown count (>>found) each rank saves its own streams (dlp_state_merge).
   A state fits a pipe with the same items, order (with its parameters), seed, global batch and last
   rule. With a split stage chunk_rows and shuffle_rows are the same, too; with parts streams and
   steps_per_epoch. Workers, prefetch_factor, topology, rank and world_size may differ.

   A state also knows from which data it was saved, as four small hashes: the names of the files,
   the order of the names, the sizes, and the content. Sources give them (dlp_dataset.identity). If
   one differs, the resume fails with DLP_ERR_RESUME, and err->field says which: source.names,
   source.order, source.sizes or source.content. A name is the part of a path behind the folder that
   all paths have in common. So a dataset may be moved as a whole. If files were renamed, set moved
   = 1 in the desc of their source, and the names are not compared. The sources of a table have
   these hashes together, in the order of the rows. If one has moved, no names are compared.

     tokens, lines, tar, arrays   names, sizes, and the first and last 4 KiB of each file; of more
                                  than 256 files, of 256 that are spread over the list
     files by paths               names; sizes of at most 256 files, if these are there
     dlp_part_files               names, and the ranges
     S3                           keys; ranges and lengths; ETags, if all keys have one and
                                  any_version is 0

   A state of an older version knows nothing of its data. It is resumed with a warning.

   With epoch_end a state also knows if the end of an epoch is still to be told. Save a state behind
   the last batch of an epoch, before next has returned DLP_EPOCH_END. A pipe with epoch_end that
   goes on from this state returns DLP_EPOCH_END first, and then the next epoch or DLP_END. */
typedef struct dlp_state {
    uint8_t bytes[248];
} dlp_state;
