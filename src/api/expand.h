/* needs: parts */
#pragma once
#include "api/found.h"
/* ---------------------------------------------------------------------------------------------
   >>expand     EXPANDERS AND FILTERS: 0..k ITEMS OF ONE INPUT
   This stage makes several items, or no item, of one input. Examples: documents are cut up, games
   become positions, bad inputs are left out. Batches stay full, and each made item comes once.

     list -> fetch ------> expand -------> [item maps] -> batch ...
             writes the    makes items,    see a row, into which
             input         in a cell       an item is copied

   The workers of an expander call the dataset's fetch for each dataset index, and then expand.
   batch.copy_workers only copy items into rows. A batch of a few KiB is copied by next: that takes
   less time than to wait for a worker. If expand is NULL, the stage is a filter of a loader: an
   item is what fetch writes, and DLP_SKIP leaves the item out. The list of skips does not have such
   items. Stages of items after this stage cannot have DLP_ON_ERROR_REPLACE.

   A cell has room for the most items that an input may have, each of its declared size. max_bytes
   makes the cell smaller if an input has many short ragged items, or a few long ones. The items
   then lie in the cell by their true lengths.

   The order, ends, ranks, states and cells are those of >>found. Each dataset index is then a part
   of up to max_out items, and dlp_batch.index has the index of the input. In these callbacks
   dlp_item_random depends on the index and the pass. In a table (>>graph) several expanders may
   follow each other, with filters and maps between them. */

/* An input from which items are made. Valid during the call only. */
typedef struct dlp_expand {
    const dlp_item *item; /* the input: its index, its epoch, and the fields that fetch has written,
                             with their lengths */
    uint32_t n_made;      /* number of items added so far */
    uint32_t pad;
    dlp_call *call; /* for dlp_fail */
} dlp_expand;

typedef struct dlp_node_expand {
    int (*expand)(void *user, dlp_expand *x); /* Make the items of an input: call dlp_expand_add for
                                  each. Returns 0; DLP_SKIP for no item at all; any other value for
                                  failure. All workers call it at once. NULL: a filter */
    void *user;                               /* argument of expand; borrowed until close */
    const dlp_field *fields; /* [n_fields] fields of the made items; copied. n_fields 0: the fields
                                of the dataset */
    uint32_t n_fields;
    uint32_t max_out;      /* most items of an input (k): with expand required, 1..2^30; without
                              expand 0 or 1 */
    int32_t shuffle_items; /* 1: the items of an input come in a keyed permutation */
    uint64_t id;           /* your number for what expand does. It is part of the fingerprint of a
                                  state */
    int32_t writes_all_bytes; /* 1: expand promises to write every byte of the fixed-size fields of
                                 each item that it adds, and of ragged fields all rows of their
                                 length. 0: the library zeroes each item before */
    uint64_t max_bytes; /* bytes of the fields of all items of an input together, by their true
                           lengths: from one item of the declared size to max_out such items. Items
                           that filters leave out do not count. Fields that maps behind the expand
                           add do, and fields that end do not. An input with more fails with
                           DLP_ERR_LENGTH, also where on_error leaves out single items. A cell
                           then has room for max_bytes and for one item of the declared size. It
                           also has 16 bytes for each of max_out items, and 8 for each field of
                           these. Only in the last expand of a list, whose items have a ragged
                           field. It is no part of the fingerprint. 0: a cell has room for max_out
                           items of the declared size */
} dlp_node_expand;

/* Return the place of the next item, for expand to write: data, and length of ragged fields. The
   place is filled with zeros, unless the expand node has writes_all_bytes.
   x: the argument of expand. The place is valid until the next call. Returns NULL if max_out items
   were added already; the input then fails with DLP_ERR_LENGTH. If a row behind the expand has
   failed for an item, the input fails, and further items have a place that nobody reads. In
   expand's thread only. Never waits or allocates. */
DLPDEF dlp_item *dlp_expand_add(dlp_expand *x);

/* A node (>>graph) that keeps an item or leaves it out. Several filters may follow each other. Each
   filter is called for the items that the filter before it has kept. */
typedef struct dlp_node_filter {
    int (*keep)(void *user, const dlp_item *item); /* Decide about an item; required. Returns 1 to
                                keep the item, 0 to leave it out, or failure, best by dlp_fail. It
                                must not write. All workers call it at once */
    void *user;                                    /* argument of keep; borrowed until close */
    uint64_t id; /* your number for what keep does. It is part of the fingerprint of a state */
} dlp_node_filter;

/* A node that shuffles `items` items of a stream together (>>found). Behind a pack it shuffles the
   rows of the pack (>>pack). With `group`, items of similar
   length come together. The items of a window are sorted by the length of the field `by`, and cut
   into groups of `group` items. Items of equal length keep their order. The groups are
   shuffled. The items of a group stay together, the shortest first. A short group, in the last
   window of an epoch, comes last. With one stream and group = batch_size each batch is a group, so
   its ragged rows need little padding. A state checks the lengths: a resume with other lengths
   inside a window fails with DLP_ERR_RESUME. group and by are refused before and behind a pack, and
   directly behind a load. There, write the window behind the fetch of the load's items. */
typedef struct dlp_node_window {
    uint32_t items; /* items that are shuffled together, 1..2^24 */
    uint32_t group; /* items that stay together, a divisor of items; 0: each item is shuffled */
    const char *by; /* name of a ragged field that a row above writes; read when the pipe is opened.
                       NULL without group */
} dlp_node_window;
