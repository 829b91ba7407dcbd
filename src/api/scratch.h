/* needs: scratch */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>scratch    READ, THEN DECODE: FIELDS THAT END BEFORE THE BATCH
   A fetch node reads, for example by many requests at once. A map node decodes, with its own
   workers and placement. map.ends names the fields that end in the map (>>graph). Such fields lie
   in cells. An item has a cell from before its fetch until the map is done with the item. The
   fields are in no batch, no device copy, no cache and no state. Their memory is the cells, however
   many batches there are. A fetch without a free cell waits. Cells are not zeroed: a byte that
   fetch did not write is from an earlier item.

     fetch, map           pictures are read and decoded
     fetch, fetch, map    a second fetch brings labels; the map sees both; fields of one may end
     fetch of 1, of 2,    both datasets of a mix read what one map decodes
     map
     fetch, guard, map    the guard checks the read fields before the map decodes them

   Scratch fields are refused after expand and pack, whose rows are copies, and for pushed items:
   nothing writes these fields there.

   queue.capacity of the fetch node is the number of cells, at most 2^20. 0 takes one cell for each
   item that the workers which write these fields may have in hand. For each other worker up to the
   map it takes one cell more than the worker has items in hand: two for a worker of the map. If 256
   KiB of cells are more, 0 takes 256 KiB, but at most four cells for each item under way. The items
   under way are prefetch_factor x rows of a batch. If you give a number, no more cells are taken
   than items are under way. Few cells take few bytes, but a worker that finds no cell sleeps.

   Quick items share a claim in runs of up to 32. A run takes a group of cells, a power of two. If
   you give a number of cells, groups are so large that there are still twice as many as workers
   need. Cells that fill no group are not taken. dlp_stage_stats.own of the stage "scratch" has the
   cells in use and all cells. The cells of a group are in use together.

   If a worker dies, its items keep their cells. If the map dies at an item or tries it again, the
   item is not read again if the map is idempotent. A map is idempotent if it only reads these
   fields and writes others whole. Else the item goes back to fetch. One cell is enough for the pipe
   to go on; see >>impl-scratch. */
