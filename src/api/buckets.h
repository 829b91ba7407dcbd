/* needs: buckets */
#pragma once
#include "api/samplers.h"
/* ---------------------------------------------------------------------------------------------
   >>buckets    ITEMS OF LIKE LENGTH BATCHED TOGETHER
   A batch of ragged items is padded to its longest item. If lengths are known before the fetch, a
   batch sampler can make batches of items of similar length. It can also hold rows x longest under
   a budget of tokens. It sorts the next `window` positions of the order by length; equal lengths
   stay in the order of positions. It cuts the sorted window into batches, and shuffles the batches.
   So an item moves by less than a window, and every rank computes the same lists. A state is 24
   bytes: a resume reads one window, however many went before.

   While a window is given out, the next window is read, a few items with each batch. Then only a
   counting sort remains: 3 to 7 ns per item (100 batches of 64: 0.02 ms; 100 batches of 1,024: 0.5
   ms). For windows of 100,000 items and more set sampler.threaded = 1. */

typedef struct dlp_buckets_desc {
    uint64_t n_items;        /* number of items of the dataset; required */
    const uint32_t *lengths; /* [n_items] tokens of each item; borrowed until dlp_buckets_close.
                                 dlp_buckets_open reads them all. NULL: give length */
    uint32_t (*length)(void *user, uint64_t index); /* returns the tokens of an item. Pure; called
                                  in the thread of the sampler. NULL: give lengths */
    void *length_user;                              /* argument of length */
    uint64_t lengths_id;   /* with length: your number for these lengths. It is part of the
                                 fingerprint of a state. An array of lengths is hashed instead: give
                                 0 */
    uint32_t batch_size;   /* most rows of a batch: the batch_size of the pipe; required */
    uint32_t window;       /* items that are sorted together, at most 2^24; 0: 100 batches. Rounded
                                 up to whole batches or, with max_tokens, to a multiple of
                                 divisible_by */
    uint64_t max_tokens;   /* most tokens of a global batch: rows x longest, with padding; 0: no
                                 limit. An item too long for it is an error that names the item */
    uint32_t divisible_by; /* divisor of the rows of a batch; it must divide batch_size. So every
                                 world size that divides it gives each rank as many rows, and the
                                 same global batches. 0: 1 */
    int32_t shuffle;       /* 1: the batches of a window are shuffled and, if order is NULL, the
                                 items too; 0: short items first */
    uint64_t seed;         /* any value. With order give 0: the seed of order counts */
    int32_t last;          /* DLP_LAST_PARTIAL or 0: all items come. The last rows of an epoch may
                                 be no full batch, and no multiple of divisible_by. DLP_LAST_DROP:
                                 positions that would be left over are left out */
    const dlp_sampler_desc *order; /* order whose windows are sorted, such as a mix or a subset; not
                                 BATCHES or PARTS. Copied; its pointers are borrowed. NULL: all
                                 items, shuffled or in sequence by `shuffle` */
} dlp_buckets_desc;

typedef struct dlp_buckets dlp_buckets;

/* Make a batch sampler.
   out: close it after the pipe that uses it; it serves one pipe at a time. err: written on failure;
   may be NULL. Returns DLP_OK; DLP_ERR_ARG (err->field names the field; for lengths the message has
   the item and its length); DLP_ERR_MEMORY. Any thread. Allocates 44 bytes for each item of the
   window, and the table of weights of a weighted order. Reads all lengths. */
DLPDEF int dlp_buckets_open(dlp_buckets **out, const dlp_buckets_desc *desc, dlp_error *err);

/* Let a sampler follow the buckets: set all fields of *to but threaded. The batch_size of the pipe
   must be the batch_size of the buckets. An item that DLP_ON_ERROR_REPLACE puts into a row may be
   longer.
   b: borrowed until the pipe is closed. Returns DLP_OK or DLP_ERR_ARG. Any thread. */
DLPDEF int dlp_buckets_sampler(dlp_buckets *b, dlp_sampler_desc *to);

/* Free the buckets. Call it after the pipe that uses them is closed. NULL does nothing. Any
   thread. */
DLPDEF void dlp_buckets_close(dlp_buckets *b);
