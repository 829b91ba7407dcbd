/* needs: scratch */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>scratch    READ, THEN DECODE: FIELDS THAT END BEFORE THE BATCH
   Between fetch and the item map after it: fetch reads (by many requests at once, say), the map
   decodes, each with workers and a placement of its own. What was read lies in cells of these
   fields: an item has one from before its fetch until the map is through with it. It is in no
   batch, no device copy, no cache, no state. Behind the fields that it sees besides (of fetch, the
   dataset's n_fields) each of both callbacks sees these: item->data[n_fields + i], and for ragged
   ones length, which fetch sets and the map reads. Memory is the cells, however many batches there
   are; a fetch without a free cell waits. Nothing is zeroed: what fetch did not write is of an item
   before.

   With several datasets (dlp_pipe_add_join) the stage directly in front writes these fields: fetch;
   or a zip, alone; or all datasets of a mix, each for its own items. Other datasets may be zipped
   between it and the map, which sees their fields, too; and before and after that:

     fetch, scratch, zip, map     pictures are read; labels come beside; the map sees both
     fetch, zip, scratch, map     labels first, and pictures read in the zip
     fetch, mix, scratch, map     both datasets read what one map decodes
     fetch, scratch, guard, map   what was read is checked before it is decoded

   Not after expand and pack, whose fetch only copies, nor for pushed items: nobody writes these
   fields there.

   Whatever dies keeps the cell: of an item whose map died, or is tried again, nothing is read again
   if the map is idempotent, as one is that only reads these fields and writes others whole. Else
   the item goes back to fetch. One cell is enough for everything to move; see >>impl-scratch. */
typedef struct dlp_scratch_desc {
    const dlp_field *fields; /* required; [n_fields], copied; shape: the most bytes of an item;
                                max_per_batch is not read */
    uint32_t n_fields;       /* with those of all datasets at most DLP_MAX_FIELDS */
    uint32_t n_cells; /* 0: one for each item that workers which write may have in hand, two for
                                each worker of the map, and for those of a zip between one more than
                                its items in hand; or, where those are more, 256 KiB of cells, at
                                most four for each item under way (prefetch_factor x rows of a
                                batch). Of a number asked for no more are taken than items are
                                under way. At most 2^20. Few cells are few bytes, and a sleep for
                                each item that is short. Quick items share a claim in runs of up to
                                32; a run takes a group of cells, as many as are a power of two and
                                leave twice as many groups as workers need: of a number asked for,
                                what is less than a group is not taken */
} dlp_scratch_desc;

/* Add such fields, between fetch and an item map; a pipe has them once. In dlp_stage_stats.own:
   cells in use, and all; cells of a group are in use together.
   desc: copied - returns as dlp_pipe_add_map; what does not fit the other stages is found by plan
   and start (DLP_ERR_GRAPH, DLP_ERR_ARG). */
DLPDEF dlp_stage dlp_pipe_add_scratch(dlp_pipe *p, const dlp_scratch_desc *desc);
