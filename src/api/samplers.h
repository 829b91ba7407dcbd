#pragma once
#include "api/errors.h"
/* ---------------------------------------------------------------------------------------------
   >>samplers   WHICH ITEMS, IN WHICH ORDER */

/* DLP_ORDER_SEQUENTIAL and so on. A row has the name, the number (it is part of saved states and
   never changes), and the table of the order's functions (src/order/order.h). A row with a tag, as
   in >>kinds, has its functions in order/NAME.h. */
#define DLPI_ORDERS(ORDER) \
    ORDER(SEQUENTIAL, 0, dlpi_sequential_order) \
    ORDER(SHUFFLED, 1, dlpi_shuffled_order)       /* a keyed permutation: each index once */ \
    ORDER(REPLACEMENT, 2, dlpi_replacement_order) /* uniform with replacement */ \
    ORDER(WEIGHTED, 3, dlpi_weighted_order)       /* with replacement, by integer weights */ \
    ORDER(FUNCTION, 4, dlpi_function_order)       /* the user's function of (epoch, position) */ \
    ORDER(BATCHES, 5, dlpi_batches_order)         /* the user's batch sampler */ \
    ORDER(PARTS, 6, dlpi_parts_order)             /* that of a part queue, see >>parts */

#define DLPI_ORDER_NUMBER(name, number, ops) DLP_ORDER_##name = number,
enum { DLPI_ORDERS(DLPI_ORDER_NUMBER) };
#undef DLPI_ORDER_NUMBER

enum {
    DLP_LAST_PARTIAL = 0, /* the last batch of an epoch may be short */
    DLP_LAST_DROP,        /* ... is dropped */
    DLP_LAST_PAD          /* ... is filled from the epoch's beginning; valid[] is 0 there */
};

#define DLP_SAMPLER_STATE_BYTES 128

/* The user's own batch sampler. Called by one thread at a time: the consumer's in start, next,
   release, next_epoch and seek, or the sampler's own (threaded = 1). It is asked for batches ahead
   of their delivery; what save gives is kept with the batch that it follows. */
typedef struct dlp_batch_sampler {
    /* Fill index[0..max-1] with the next batch of this epoch (global: all ranks see the same list).
       max: batch_size - returns the number of indices (1..max), 0 at the epoch's end (an epoch has
       at least one batch), negative for failure. Required. */
    int64_t (*next)(void *user, uint64_t epoch, uint64_t *index, uint64_t max);
    /* Begin an epoch. May be NULL. Returns 0, or negative for failure. */
    int (*begin)(void *user, uint64_t epoch);
    /* Save all that the sampler needs to go on (at most DLP_SAMPLER_STATE_BYTES, returned as
       length), and take it back (returns 0). Both or neither; with neither, resume replays the
       epoch's batches. After restore, begin is not called for that epoch. */
    int (*save)(void *user, void *bytes);
    int (*restore)(void *user, const void *bytes, size_t n);
    void *user; /* borrowed until close */
    /* Say why the last call failed: words for the pipe's error, valid until the next call. May be
       NULL, and return NULL. */
    const char *(*why)(void *user);
} dlp_batch_sampler;

typedef struct dlp_sampler_desc {
    int32_t order;              /* DLP_ORDER_* */
    int32_t threaded;           /* 0: inline, in next and release; 1: a thread of its own */
    uint64_t seed;              /* any value */
    uint64_t samples_per_epoch; /* REPLACEMENT, WEIGHTED, FUNCTION: draws per epoch, at most 2^48;
                                  0: the number of items, or n_subset. Else 0 */
    const uint64_t *subset;     /* NULL: all items; else the order runs over subset[0..n_subset-1];
                                  borrowed until close. Not for BATCHES, whose lists are taken as
                                  they are */
    uint64_t n_subset;
    const uint64_t *weights; /* WEIGHTED: [items, or n_subset], sum 1..2^63; copied at start */
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position); /* FUNCTION: dataset index
                                  of a position or, with a subset, place in the subset; pure; called
                                  by many threads at once. Past the end: DLP_ERR_CALLBACK */
    void *function_user;                                                 /* borrowed until close */
    uint64_t function_id;      /* FUNCTION, BATCHES: the user's number for this order, part of a
                                  state's fingerprint; else 0, or what a source that knows its data
                                  (>>tokens, >>arrays) sets */
    dlp_batch_sampler batches; /* BATCHES; the struct is copied */
    /* FUNCTION: the dataset index (or place in the subset) that stands in for a failed item
       (DLP_ON_ERROR_REPLACE), from `random` bits that belong to (seed, epoch, position, attempt);
       pure, as function. NULL: that at another position of the epoch. */
    uint64_t (*replacement)(void *user, uint64_t epoch, uint64_t position, uint64_t random);
} dlp_sampler_desc;

/* Epochs follow each other without a gap: items of the next are fetched before this one's end. Not
   so with dlp_pipe_desc.set_epoch, for data that changes between epochs (a curriculum, other
   augmentation, new negatives): as the line `sampler.set_epoch(epoch)` of a PyTorch loop, it is
   called before the first item of an epoch is fetched, once next has returned all batches of the
   one before. While it runs no callback of the pipe does; whatever it has changed is seen by all
   that run after it. What that costs at each border, dlp_stats and dlp_pipe_explain tell.
   It is called by the consumer's next: in the first one, in that after an epoch's last batch (and
   after DLP_EPOCH_END), after next_epoch, and again after each seek. With timeout 0 it begins the
   epoch without waiting for its first batch. The order stays that of (seed, epoch, position).
   Worker processes have their own memory since start: of what set_epoch changes they see files, and
   memory that was shared before start (mmap with MAP_SHARED); item->epoch tells them the epoch. A
   cache keeps items, and a preload chunks, as they were fetched first; a part that is still in its
   cell from an epoch before is not loaded again. set_epoch returns 0, or failure
   (DLP_ERR_CALLBACK). It may call dlp_pipe_stop, _state, _stats; not next, release, next_epoch,
   seek, close. Not with subscribers. */
