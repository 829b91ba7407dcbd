#pragma once
#include "api/errors.h"
/* ---------------------------------------------------------------------------------------------
   >>samplers   WHICH ITEMS, IN WHICH ORDER */

/* DLP_ORDER_SEQUENTIAL and so on. A row has the name of the order, its number and the table of its
   functions (src/order/order.h). The number is part of saved states and never changes. If a row has
   a tag, as in >>kinds, its functions are in order/NAME.h. */
#define DLPI_ORDERS(ORDER) \
    ORDER(SEQUENTIAL, 0, dlpi_sequential_order) \
    ORDER(SHUFFLED, 1, dlpi_shuffled_order)       /* a keyed permutation: each index once */ \
    ORDER(REPLACEMENT, 2, dlpi_replacement_order) /* uniform with replacement */ \
    ORDER(WEIGHTED, 3, dlpi_weighted_order)       /* with replacement, by integer weights */ \
    ORDER(FUNCTION, 4, dlpi_function_order)       /* the user's function of (epoch, position) */ \
    ORDER(BATCHES, 5, dlpi_batches_order)         /* the user's batch sampler */ \
    ORDER(PARTS, 6, dlpi_parts_order)             /* the order of a part queue (>>parts) */

#define DLPI_ORDER_NUMBER(name, number, ops) DLP_ORDER_##name = number,
enum { DLPI_ORDERS(DLPI_ORDER_NUMBER) };
#undef DLPI_ORDER_NUMBER

enum {
    DLP_LAST_PARTIAL = -1, /* the last batch of an epoch may be short */
    DLP_LAST_DEFAULT,      /* 0: as DLP_LAST_PARTIAL, and a short last batch is warned of */
    DLP_LAST_DROP,         /* the last batch is dropped if it is short */
    DLP_LAST_PAD           /* the last batch is filled from the beginning of the epoch; valid[] is 0
                              in these rows */
};

#define DLP_SAMPLER_STATE_BYTES 128

/* A batch sampler of your own. One thread at a time calls it. If threaded is 0, that is the
   consumer, in start, next, release, next_epoch and seek. If threaded is 1, it is the sampler's
   thread. The sampler is asked for batches before they are delivered. The state that save writes is
   kept with the batch before it. */
typedef struct dlp_batch_sampler {
    /* Fill index[0..max-1] with the next batch of this epoch. The batch is global: all ranks see
       the same list. max: batch_size. Returns the number of indices, 1..max; 0 at the end of the
       epoch, which has at least one batch; negative for failure. Required. */
    int64_t (*next)(void *user, uint64_t epoch, uint64_t *index, uint64_t max);
    /* Begin an epoch. May be NULL. Returns 0, or negative for failure. */
    int (*begin)(void *user, uint64_t epoch);
    /* save writes all that the sampler needs to go on. It returns the length, at most
       DLP_SAMPLER_STATE_BYTES. restore takes the bytes back and returns 0. Give both or neither.
       With neither, a resume replays the batches of the epoch. After restore, begin is not called
       for that epoch. */
    int (*save)(void *user, void *bytes);
    int (*restore)(void *user, const void *bytes, size_t n);
    void *user; /* borrowed until close */
    /* Return words for the pipe's error: why the last call failed. The words are valid until the
       next call. May be NULL, and may return NULL. */
    const char *(*why)(void *user);
} dlp_batch_sampler;

typedef struct dlp_sampler_desc {
    int32_t order;              /* DLP_ORDER_* */
    int32_t threaded;           /* 0: inline, in next and release; 1: in a thread of its own */
    uint64_t seed;              /* any value */
    uint64_t samples_per_epoch; /* draws per epoch of REPLACEMENT, WEIGHTED and FUNCTION, at most
                                  2^48; 0: the number of items, or n_subset. 0 for the other
                                  orders */
    const uint64_t *subset;     /* [n_subset] dataset indices: the order runs over them; borrowed
                                  until close. NULL: all items. Not for BATCHES, whose indices are
                                  always dataset indices */
    uint64_t n_subset;
    const uint64_t *weights; /* WEIGHTED: [items, or n_subset] weights, sum 1..2^63; copied at
                                start */
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position); /* FUNCTION: returns the
                                  dataset index of a position or, with a subset, the place in the
                                  subset. Pure; many threads call it at once. An index past the end
                                  is DLP_ERR_CALLBACK */
    void *function_user;                                                 /* borrowed until close */
    uint64_t function_id;      /* your number for the order of FUNCTION or BATCHES. It is part of
                                  the fingerprint of a state. A source that knows its data sets it
                                  (>>tokens, >>arrays). Else 0 */
    dlp_batch_sampler batches; /* BATCHES: the batch sampler; the struct is copied */
    /* FUNCTION: returns the dataset index, or the place in the subset, of the item that replaces a
       failed item (DLP_ON_ERROR_REPLACE). `random` has bits that belong to (seed, epoch, position,
       attempt). Pure, as function. NULL: the item at another position of the epoch is the
       replacement. */
    uint64_t (*replacement)(void *user, uint64_t epoch, uint64_t position, uint64_t random);
} dlp_sampler_desc;

/* Epochs follow each other without a gap: items of the next epoch are fetched before an epoch ends.
   If dlp_pipe_desc.set_epoch is set, epochs do not overlap. It is for data that changes between
   epochs: a curriculum, other augmentation, new negatives. It works like the line
   `sampler.set_epoch(epoch)` of a PyTorch loop. It is called before the first item of an epoch is
   fetched, and after next has returned all batches of the epoch before. While set_epoch runs, no
   callback of the pipe runs. All callbacks that run after it see what it has changed. dlp_stats and
   dlp_pipe_explain tell what it costs at each border of epochs.
   The consumer's dlp_pipe_next calls set_epoch: the first call does, and the call after the last
   batch of an epoch (after DLP_EPOCH_END, if next returns it). So does the call after next_epoch or
   a seek. With timeout 0 next begins the epoch and does not wait for its first batch. The order
   stays that of (seed, epoch, position).
   Worker processes have their own memory since start. They see two kinds of change by set_epoch:
   files, and memory that was shared before start (mmap with MAP_SHARED). item->epoch tells them the
   epoch. A cache keeps items as they were fetched first, and a preload keeps chunks so. A part that
   is still in its cell from an epoch before is not loaded again.
   set_epoch returns 0, or failure (DLP_ERR_CALLBACK). It may call dlp_pipe_stop, _state and _stats.
   It must not call next, release, next_epoch, seek or close. It is refused with subscribers. */
