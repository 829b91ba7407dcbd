/* needs: mix */
#pragma once
#include "api/samplers.h"
/* ---------------------------------------------------------------------------------------------
   >>mixing     DATASETS MIXED BY WEIGHTS
   A mix is an order over several datasets laid end to end: first all items of dataset 0, then all
   items of dataset 1, and so on. A fixed schedule gives positions to datasets. Its period is the
   sum of the weights, divided by their greatest common divisor. In each period dataset d comes
   weights[d] times, divided likewise. At no position is a dataset a whole item ahead of its share,
   or behind it.

   Draws of a dataset are counted over all epochs. Draw k takes item k % n_items of pass k /
   n_items, and each pass is shuffled again. So no item comes twice in a pass, small datasets go
   round more often, and epochs do not cut off a dataset at the same place. Everything follows from
   (seed, epoch, position) in constant time. So ranks, resume, padding and workers are as with any
   order. */

enum {
    DLP_MIX_ALL = 0, /* an epoch lasts until each dataset has given as many items as it has */
    DLP_MIX_FIRST,   /* an epoch ends before a dataset has given more items than it has */
    DLP_MIX_LARGEST  /* an epoch lasts until the dataset with most items has given as many as it
                        has */
};

typedef struct dlp_mix_desc {
    uint32_t n;                 /* number of datasets; required, 1..1024 */
    int32_t shuffle;            /* 1: each pass is in an order of its own; 0: in the order 0, 1, 2
                                  and so on */
    const uint64_t *n_items;    /* [n] items of each dataset; required; copied. Each is 1 or more;
                                  their sum is at most 2^48 */
    const uint64_t *weights;    /* [n] weights; copied. 0: the dataset never comes. NULL: all are
                                   equal. Divided by their greatest common divisor, their sum is at
                                   most 2^20 */
    uint64_t seed;              /* any value; also the seed of the sampler */
    uint64_t samples_per_epoch; /* samples of an epoch, at most 2^48; 0: as `until` says */
    int32_t until;              /* DLP_MIX_* */
} dlp_mix_desc;

typedef struct dlp_mix dlp_mix;

/* Make a mix.
   out: close it after the pipes that use it. err: written on failure; may be NULL. Returns DLP_OK;
   DLP_ERR_ARG (err->field names the field); DLP_ERR_MEMORY. Any thread. Allocates 4 bytes for each
   position of the period, and 32 for each dataset. The longest period takes a tenth of a second.
   Source: earliest deadline first on windows [j/w, (j+1)/w): Baruah, Cohen, Plaxton, Varvel,
   Proportionate Progress, Algorithmica 15 (1996). */
DLPDEF int dlp_mix_open(dlp_mix **out, const dlp_mix_desc *desc, dlp_error *err);

/* Let a sampler follow the mix: set all fields of *to but threaded, which stays. The dataset of the
   pipe must have dlp_mix_items items. A failed item is replaced by an item of the same dataset.
   mix: borrowed until the pipe is closed. Returns DLP_OK or DLP_ERR_ARG. Any thread. */
DLPDEF int dlp_mix_sampler(const dlp_mix *mix, dlp_sampler_desc *to);

/* Return the number of items of all datasets together, for dlp_dataset.n_items. 0 if mix is
   NULL. */
DLPDEF uint64_t dlp_mix_items(const dlp_mix *mix);

/* Return the dataset index at a position. Any thread. Does not wait. Takes some 50 ns. */
DLPDEF uint64_t dlp_mix_at(const dlp_mix *mix, uint64_t epoch, uint64_t position);

/* Tell which item of which dataset a dataset index is. Call it in fetch.
   dataset, item: written on success. Returns DLP_OK, or DLP_ERR_ARG (index is past the items). Any
   thread. Does not wait. */
DLPDEF int dlp_mix_locate(const dlp_mix *mix, uint64_t index, uint32_t *dataset, uint64_t *item);

/* Free the mix. Call it after the pipes that use the mix are closed. NULL does nothing. Any
   thread. */
DLPDEF void dlp_mix_close(dlp_mix *mix);
