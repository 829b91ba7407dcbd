/* needs: cache */
#pragma once
#include "api/pipe.h"
/* Keep what fetch, joins, item maps and guards in front of it made of an item, from one epoch to
   the next, in memory that all workers share, threads and processes. No workers of its own: the
   fetch stage looks here before it calls fetch, and those stages leave alone what it found. So what
   was decoded is decoded once. An item has
   one cell (its index modulo the number of cells), the first to come keeps it, and nothing is ever
   thrown out: where all items fit, all are kept; else the share of items that fit is the share of
   later lookups that hit. Order and bytes of batches are the same with and without. Only for
   callbacks whose result depends on the index alone, not on epoch, position or attempt (an item map
   after the cache may, and still augments each time). Items for which one of them calls
   dlp_item_random are not kept; nor those that failed or were left out. Empty after a resume.
   Behind an expand, a filter, or the fetch of parts that load counts, a cache keeps all items
   that were made of an input. It stands behind the makers and before a window. An input that it
   has is neither loaded nor made again. A cell has room for the most items that an input may
   have. A hit is an input. An input that gave no item is kept, too. Directly before a pack a cache
   keeps the documents of an input. They are packed in each epoch's order. With shuffle_items of a
   load node, and behind a pack, a cache is refused. */
typedef struct dlp_cache_desc {
    uint64_t bytes; /* required: budget, 2^46 at most; one item's cell takes its rows and
                                 lengths, each rounded up to 8 bytes, and 8 more. What is above the
                                 cells for all items is not taken */
} dlp_cache_desc;
