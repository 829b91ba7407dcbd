/* needs: parts */
#pragma once
#include "api/found.h"
/* ---------------------------------------------------------------------------------------------
   >>expand     EXPANDERS AND FILTERS: 0..k ITEMS OF ONE INPUT
   A stage that makes several items, or none, of one: documents cut up, games into positions, what
   is not good enough left out. Batches stay full, and each item that was made comes once.

     list -> fetch ------> expand -------> [item maps] -> batch ...
             writes the    makes items,    see a row, into which
             input         in a cell       an item is copied

   The workers of an expander call what the dataset has for fetch, for each dataset index, and then
   expand; batch.copy_workers but copy. Where a batch is a few KiB next copies it in less time than
   it would wait for one of those. expand NULL is a filter of a loader: an item is what fetch
   writes, and DLP_SKIP leaves it out, without a word in the list of skips. Stages of items after it
   are without DLP_ON_ERROR_REPLACE. Order, ends, ranks, states, cells: as of >>found,
   each dataset index being a part of up to max_out items: dlp_batch.index has the input's.
   dlp_item_random in these callbacks goes by the index and the pass. In a table (>>graph) several
   expanders may follow each other, with filters and maps between. */

/* An input of which items are made. Valid during the call only. */
typedef struct dlp_expand {
    const dlp_item *item; /* the input: index, epoch, and what fetch has written (length, too) */
    uint32_t n_made;      /* items added so far */
    uint32_t pad;
    dlp_call *call; /* for dlp_fail */
} dlp_expand;

typedef struct dlp_expand_desc {
    int (*expand)(void *user, dlp_expand *x); /* calls dlp_expand_add for each item; returns 0,
                                  DLP_SKIP for none at all, or any other value for failure;
                                  called by all workers at once. NULL: a filter */
    void *user;                               /* borrowed until close */
    const dlp_field *fields; /* [n_fields] of the items made; copied; n_fields 0: the dataset's */
    uint32_t n_fields;
    uint32_t max_out;      /* k: with expand required; without it 1 */
    int32_t shuffle_items; /* 1: an input's items in a keyed permutation */
    uint64_t id;           /* the user's number for what expand does, part of a state's
                                  fingerprint */
} dlp_expand_desc;

/* The place of the next item, zeros, to be written: data, and length of ragged fields.
   x: as expand has it - returns it, valid until the next call; NULL: there are max_out already,
   which makes the input fail with DLP_ERR_LENGTH - expand's thread - never waits or allocates. */
DLPDEF dlp_item *dlp_expand_add(dlp_expand *x);

/* A node (>>graph) that keeps an item, or leaves it out. Several filters may follow each other.
   Each is asked for the items that the filter before it has kept. */
typedef struct dlp_node_filter {
    int (*keep)(void *user, const dlp_item *item); /* required; returns 1: keep the item, 0: leave
                                the item out, or failure, best by dlp_fail. It may not write. Called
                                by all workers at once */
    void *user;                                    /* borrowed until close */
    uint64_t id; /* the user's number for what keep does, part of a state's fingerprint */
} dlp_node_filter;

/* A node that shuffles so many items of a stream at a time, as of >>found. */
typedef struct dlp_node_window {
    uint32_t items; /* 1..2^24 */
} dlp_node_window;
