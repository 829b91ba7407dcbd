/* needs: scratch */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>scratch    READ, THEN DECODE: FIELDS THAT END BEFORE THE BATCH
   A fetch node reads (by many requests at once, say). A map node decodes, with workers and a
   placement of its own, and names in map.ends the fields that end there (>>graph). Such fields lie
   in cells: an item has a cell from before its fetch until the map is through with the item. The
   fields are in no batch, no device copy, no cache, no state. Memory is the cells, however many
   batches there are; a fetch without a free cell waits. Nothing is zeroed: what fetch did not write
   is of an item before.

     fetch, map           pictures are read and decoded
     fetch, fetch, map    labels come beside; the map sees both; the fields of one fetch may end
     fetch of 1, of 2,    both datasets of a mix read what one map decodes
     map
     fetch, guard, map    what was read is checked before it is decoded

   Not after expand and pack, whose rows are copies, nor for pushed items: nobody writes these
   fields there.

   queue.capacity of the fetch node is how many cells there are. 0 takes one for each item that
   workers which write may have in hand, two for each worker of the map, and for those of a fetch
   between one more than its items in hand. Where it is more, 0 takes 256 KiB of cells, at most four
   for each item under way (prefetch_factor x rows of a batch). Of a number asked for no more are
   taken than items are under way. At most 2^20. Few cells are few bytes, and a sleep for each item
   that is short. Quick items share a claim in runs of up to 32. A run takes a group of cells, as
   many as are a power of two and leave twice as many groups as workers need: of a number asked for,
   what is less than a group is not taken. In dlp_stage_stats.own of the stage "scratch": cells in
   use, and all; cells of a group are in use together.

   Whatever dies keeps the cell: of an item whose map died, or is tried again, nothing is read again
   if the map is idempotent, as one is that only reads these fields and writes others whole. Else
   the item goes back to fetch. One cell is enough for everything to move; see >>impl-scratch. */
