/* needs: parts */
#pragma once
#include "api/parts.h"
#include "api/state.h"
/* ---------------------------------------------------------------------------------------------
   >>found      PARTS WHOSE ITEMS ARE COUNTED BY LOAD
   Shards of which nobody has written down how many items they have, or of which load leaves some
   out: with items and count NULL, and max_items, a part has as many items as load sets, 0 too.

   An epoch's order: the parts, in their order or in a keyed permutation, are dealt to C streams,
   one by one in turn; each stream takes its parts in that order, and inside each its items in their
   order, or in a keyed permutation. A batch of B rows has B / C rows of each stream, those of
   stream 0 first. So the order follows from seed, epoch and the data alone; a rank of W reads
   C / W streams, W divides C, and loads their parts only. With shared_streams W divides B alone: a
   stream at the border of two ranks is then read by both, each giving its own rows of it, which
   costs the loads twice. A load that fails on one of the two alone makes their streams differ, as
   dlp_state_merge tells. An item's dataset index, in dlp_item and dlp_batch, is its part's number.

   With `weights` parts are not dealt in turn: the heaviest first (of equal ones in an order of the
   seed's), each goes to the stream with the least so far. A stream keeps its parts, each pass and
   epoch in another order. Of 1,000 parts of 0..5,000 items in 32 streams, dealt in turn,
   DLP_LAST_DROP leaves out 23 % of an epoch, and steps_per_epoch of the mean 4 %; dealt by weights
   it is 0.1 % and less.

   With `window` a stream's items are cut every so many, on over passes, and each of these windows
   is shuffled by itself, keyed by seed, epoch, stream and what went before it: rows are mixed over
   C x window items, whatever order their parts have them in. The last window of an epoch is
   shorter. The first batch waits for a window of each stream. An input stays in its cell until its
   last item is given. So a window takes as many cells as its items may lie in, and the batch those
   of its own rows: of inputs of 1 item, as behind a filter, as many cells as these have items, at
   most 2^22; with min_items that part of them. start says where queue_size is too little for
   it, and the plan what the cells cost. A state is in the window, and another run makes its inputs
   again: where they have other items than they had, that is DLP_ERR_RESUME.

     steps_per_epoch > 0    so many full batches, on each rank; a stream that is out goes on with
                            its next pass, shuffled in another way. Where pass after pass has no
                            item, the batch that lacks one fails. Each epoch begins with the first
                            pass
     DLP_FOREVER            an epoch without an end: passes follow each other, nothing is ever left
                            out, and dlp_pipe_batches_per_epoch is DLP_FOREVER. dlp_pipe_next_epoch
                            leaves it. A state is as exact at its 10^9th batch as at the first
     0, DLP_LAST_DROP       one rank: ends before the first batch that is not full
     0, _PARTIAL, _PAD      one rank: ends when all streams are out. Rows of streams that are out
                            are zeros, with valid[] 0 and index UINT64_MAX; with one stream and
                            DLP_LAST_PARTIAL the last batch is short instead
     0, agree, _DROP        several ranks: ends before the first batch that is not full on some
                            rank, after as many on each; what others have beyond it is left out
     0, agree, another      several ranks: ends when the streams of all are out: every item comes
                            once, and ranks that are out before get batches of holes
     0, uneven = 1          the same on each of several ranks by itself: batches need not be as many

   agree is one all-reduce of an integer over all ranks: the least of them or, if most is 1, the
   most; with MPI (examples/mpi_filter.c)

     static int64_t agree(void *user, int64_t mine, int most) {
         MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT64_T, most ? MPI_MAX : MPI_MIN, comm);
         return mine;
     }

   next calls it, at the same batch on each rank: for each epoch's first one, and after a seek, and
   then once all that was agreed on is given, which with batches ready ahead is not every time. mine
   counts batches that are whole, so what was agreed on does not fail. Numbers below 0 say that the
   next batch, or the pipe, of this rank has failed, and next returns an error on all ranks, after
   the same batch; or that a rank that was resumed has no batch left in the epoch. It is never
   called by start, close, after a stop, or for a time-out. So all ranks must take the same steps: a
   rank that leaves off alone leaves the others waiting, as in any all-reduce. The time in it counts
   as the consumer's. Not with subscribers.

   A batch is scheduled once its rows are known, and whether another one follows. For this each
   stream needs part cells: queue_size below that is an error of start, which says how many.
   dlp_pipe_batches_per_epoch is not known without steps_per_epoch. A state has how far this rank's
   streams are, in 122 bytes: room for 20 to 60 streams a rank, with a window for about half as many
   (start says so where it is too little). Streams of shuffled inputs stay near each other, so more
   fit: 32 of a filtered mix of two lists, for 16,383 steps with 2 rows of each. If a filter that
   keeps almost nothing drives them too far apart, dlp_pipe_state gives no state until they are
   nearer, or the epoch ends. A state fits another world size once the states of all ranks, after
   the same batch, are merged. A resumed part with fewer items than were given already is an error.
   To a batch by its number (dlp_pipe_state_at) there is no way, but to an epoch's beginning. Not
   with unordered and split, and a cache only as in dlp_cache_desc.
   A part that can't be loaded has rows that nobody knows, so its stream ends before it. The batch
   that would have had the stream's next row fails, full or not, and next returns the part's error.
   With a window, the window that the part would lie in is not known either, and fails with its
   first row. If DLP_LAST_DROP ends the epoch before that batch, the part is not missed. With
   DLP_ON_ERROR_DROP a part that can't be loaded has no items, and is one of max_skips. */

/* Join the states that several ranks have after the same batch, so that any other number of ranks
   can go on from there.
   out: written on success; states: [n] those of all ranks, or of some, in any order; a state
   without streams of its own (of other pipes, or at an epoch's beginning) merges with its equals;
   err: may be NULL - returns DLP_OK; DLP_ERR_ARG; DLP_ERR_CORRUPT; DLP_ERR_RESUME: they are not of
   one order and batch, say of one stream two places, leave a gap between streams, or have more
   streams than fit into one - any thread - never waits or allocates. */
DLPDEF int dlp_state_merge(dlp_state *out, const dlp_state *states, uint32_t n, dlp_error *err);
