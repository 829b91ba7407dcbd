#pragma once
#include "api/samplers.h"
/* ---------------------------------------------------------------------------------------------
   >>mixing     DATASETS MIXED BY WEIGHTS
   A mix is an order over several datasets laid end to end: first all items of dataset 0, then those
   of dataset 1, and so on. Positions go to datasets by a fixed schedule, whose period is the sum of
   the weights (divided by their greatest common divisor): in each period dataset d comes weights[d]
   times, and at no position is it a whole item ahead of its share or behind it. Draws of a dataset
   are counted over all epochs; the k-th takes item k % n_items of pass k / n_items, each pass
   shuffled again. So none comes twice in a pass, small datasets go round more often, and no dataset
   is cut off at the same place by each epoch. Everything follows from (seed, epoch, position) in
   constant time, so ranks, resume, padding and workers are as with any order. */

enum {
    DLP_MIX_ALL = 0, /* an epoch lasts until each dataset gave as many items as it has */
    DLP_MIX_FIRST,   /* ... is over before one dataset gave more than it has */
    DLP_MIX_LARGEST  /* ... until the dataset with most items gave as many as it has */
};

typedef struct dlp_mix_desc {
    uint32_t n;                 /* required; datasets, 1..1024 */
    int32_t shuffle;            /* 1: each pass in an order of its own; 0: 0, 1, 2.. */
    const uint64_t *n_items;    /* required; [n] copied; each 1 or more, all together up to 2^48 */
    const uint64_t *weights;    /* [n] copied; NULL: all alike; 0: never. Divided by their greatest
                                   common divisor their sum is at most 2^20 */
    uint64_t seed;              /* any value; the sampler's too */
    uint64_t samples_per_epoch; /* 0: as until says; at most 2^48 */
    int32_t until;              /* DLP_MIX_* */
} dlp_mix_desc;

typedef struct dlp_mix dlp_mix;

/* Make a mix.
   out: to be closed after the pipes that use it; err: written on failure, may be NULL - returns
   DLP_OK, DLP_ERR_ARG (err->field names it), DLP_ERR_MEMORY - any thread - allocates 4 bytes per
   position of the period, 32 per dataset; a tenth of a second for the longest period.
   Source: earliest deadline first on windows [j/w, (j+1)/w): Baruah, Cohen, Plaxton, Varvel,
   Proportionate Progress, Algorithmica 15 (1996). */
DLPDEF int dlp_mix_open(dlp_mix **out, const dlp_mix_desc *desc, dlp_error *err);

/* Let a sampler follow the mix: sets all fields but threaded, which stays. The pipe's
   dataset has dlp_mix_items items. A replacement for a failed item comes from the same dataset.
   mix: borrowed until the pipe is closed - returns DLP_OK, DLP_ERR_ARG - any thread. */
DLPDEF int dlp_mix_sampler(const dlp_mix *mix, dlp_sampler_desc *to);

/* Return the items of all datasets together: what dlp_dataset.n_items is to be. 0: mix is NULL. */
DLPDEF uint64_t dlp_mix_items(const dlp_mix *mix);

/* Return the dataset index at a position. Any thread; does not wait; some 50 ns. */
DLPDEF uint64_t dlp_mix_at(const dlp_mix *mix, uint64_t epoch, uint64_t position);

/* Say which item of which dataset an index is: for fetch.
   dataset, item: written on success - returns DLP_OK, DLP_ERR_ARG (index past the items) - any
   thread - does not wait. */
DLPDEF int dlp_mix_locate(const dlp_mix *mix, uint64_t index, uint32_t *dataset, uint64_t *item);

/* Free the mix, after the pipes that use it. NULL does nothing. Any thread. */
DLPDEF void dlp_mix_close(dlp_mix *mix);
