/* needs: cache */
#pragma once
#include "api/pipe.h"
/* Keep items from one epoch to the next, as fetch, joins, item maps and guards before the cache
   have made them. The memory is shared by all workers, threads and processes. A cache has no
   workers. The fetch stage looks for an item in the cache before it calls fetch. If the item is
   found, the stages before the cache leave it alone. So each item is decoded once.

   An item has one cell: its index modulo the number of cells. The first item to come keeps the
   cell, and no item is ever thrown out. If all items fit, all are kept. Else the share of items
   that fit is the share of later lookups that hit. The order and bytes of batches are the same with
   and without a cache.

   The result of the callbacks before the cache must depend on the index alone, not on epoch,
   position or attempt. An item map after the cache may depend on them, and still augments each
   time. An item is not kept if a callback calls dlp_item_random for it, if it failed, or if it was
   left out. The cache is empty after a resume.

   Behind an expand, a filter, or the fetch of parts that load counts, a cache keeps all items that
   were made of an input. It stands behind the makers and before a window. An input in the cache is
   neither loaded nor made again. A cell has room for the most items that an input may have. A hit
   is an input. An input that gave no item is kept, too. Directly before a pack a cache keeps the
   documents of an input; they are packed in the order of each epoch. Directly behind a zip or mix a
   cache keeps the inputs of each branch in this way, and rows are joined of their items as without
   a cache. The branches share the bytes as they need them. A cache is refused with shuffle_items of
   a load node, with pushes, and behind a pack. */
typedef struct dlp_node_cache {
    uint64_t bytes; /* bytes of the budget; required, at most 2^46. The cell of one item takes its
                                 rows and lengths, each rounded up to 8 bytes, and 8 bytes more.
                                 Bytes above the cells for all items are not taken */
} dlp_node_cache;
