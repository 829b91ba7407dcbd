#pragma once
#include "api/samplers.h"
/* ---------------------------------------------------------------------------------------------
   >>buckets    ITEMS OF LIKE LENGTH BATCHED TOGETHER
   A batch of ragged items is padded to its longest. A batch sampler that knows lengths before the
   fetch makes batches of items of like length, and can hold rows x longest under a budget of
   tokens: the order's next `window` positions are sorted by length (ties by position), cut into
   batches, and the batches of the window shuffled. So an item moves by less than a window, every
   rank computes the same lists, and a state is 24 bytes: resuming reads one window, whatever has
   gone before. While a window is given out the next one is read, a few items with each batch; what
   is left for its turn is a counting sort, 3 to 7 ns per item (100 batches of 64: 0.02 ms, of
   1,024: 0.5 ms). Windows of 100,000 items and more want sampler.threaded = 1. */

typedef struct dlp_buckets_desc {
    uint64_t n_items;        /* required; the dataset's */
    const uint32_t *lengths; /* [n_items] tokens of each item; borrowed until dlp_buckets_close.
                                 Read through at open. Or: */
    uint32_t (*length)(void *user, uint64_t index); /* pure; called where the sampler runs */
    void *length_user;
    uint64_t lengths_id;   /* with length: your number for these lengths, part of a state's
                                 fingerprint (of an array a hash is); else 0 */
    uint32_t batch_size;   /* required; most rows of a batch, that of the pipe */
    uint32_t window;       /* items sorted together, up to 2^24; 0: 100 batches. Rounded up to
                                 whole batches (with max_tokens: to a multiple of divisible_by) */
    uint64_t max_tokens;   /* most rows x longest in a (global) batch, padding counted; 0: no
                                 bound. An item too long for it is an error that names it */
    uint32_t divisible_by; /* rows of a batch are a multiple of this, which divides batch_size;
                                 so every world size that divides it gives each rank as many rows,
                                 and the same global batches. 0: 1 */
    int32_t shuffle;       /* 1: batches of a window in a keyed order, and (order NULL) items
                                 too; 0: short ones first */
    uint64_t seed;         /* any value; 0 with order, whose seed is taken */
    int32_t last;          /* DLP_LAST_PARTIAL: all items come, the epoch's last rows fill no batch
                                 (nor divisible_by). DLP_LAST_DROP: the positions that would be left
                                 over are left out */
    const dlp_sampler_desc *order; /* the order whose windows are sorted, any but BATCHES (a mix, a
                                 subset); copied, what it points to is borrowed. NULL: all items,
                                 shuffled or in turn as shuffle says */
} dlp_buckets_desc;

typedef struct dlp_buckets dlp_buckets;

/* Make a batch sampler.
   out: to be closed after the pipe that uses it, one pipe at a time; err: written on failure, may
   be NULL - returns DLP_OK, DLP_ERR_ARG (err->field names it; of lengths the message has the item
   and its length), DLP_ERR_MEMORY - any thread - allocates 44 bytes per item of the window, and
   the table of weights of a weighted order; reads all of lengths. */
DLPDEF int dlp_buckets_open(dlp_buckets **out, const dlp_buckets_desc *desc, dlp_error *err);

/* Let a sampler follow it: sets all fields but threaded. The pipe's batch_size is the
   buckets'. What DLP_ON_ERROR_REPLACE puts in a row may be longer.
   b: borrowed until the pipe is closed - returns DLP_OK, DLP_ERR_ARG - any thread. */
DLPDEF int dlp_buckets_sampler(dlp_buckets *b, dlp_sampler_desc *to);

/* Free it, after the pipe that uses it. NULL does nothing. Any thread. */
DLPDEF void dlp_buckets_close(dlp_buckets *b);
