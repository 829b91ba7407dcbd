/* needs: parts */
#pragma once
#include "api/parts.h"
#include "api/state.h"
/* ---------------------------------------------------------------------------------------------
   >>found      PARTS WHOSE ITEMS ARE COUNTED BY LOAD
   These are parts, such as shards, whose number of items nobody has written down, or whose load
   leaves items out. Set max_items, and leave items and count NULL. Then a part has as many items as
   load sets; 0 is allowed.

   An epoch deals the parts to C streams, one by one in turn. The parts come in their order, or in a
   keyed permutation. Each stream takes its parts in this order. Inside a part the items come in
   their order, or in a keyed permutation. A batch of B rows has B / C rows of each stream; the rows
   of stream 0 come first. So the order depends on seed, epoch and the data alone. A rank of W reads
   C / W streams, and loads their parts only; W must divide C.

   With shared_streams W needs to divide only B. A stream at the border of two ranks is then read by
   both ranks, which costs its loads twice. Each rank gives its own rows of the stream. If a load
   fails on only one of the two ranks, their streams differ, and dlp_state_merge refuses their
   states. The dataset index of an item, in dlp_item and dlp_batch, is the number of its part.

   With `weights` parts are not dealt in turn. The heaviest part comes first; parts of equal weight
   come in an order of the seed. Each part goes to the stream that has the least weight so far. A
   stream keeps its parts, and has them in another order in each pass and epoch. An example: 1,000
   parts of 0..5,000 items in 32 streams. Dealt in turn, DLP_LAST_DROP leaves out 23 % of an epoch,
   and steps_per_epoch of the mean leaves out 4 %. Dealt by weights, both leave out at most 0.1 %.

   With `window` the items of a stream are cut into windows of `window` items, across passes. Each
   window is shuffled by itself, keyed by seed, epoch, stream and the place where the window begins.
   So rows are mixed over C x window items, whatever their order in the parts. The last window of an
   epoch is shorter. The first batch waits for a window of each stream.

   An input stays in its cell until its last item is given. So a window takes as many cells as its
   items may lie in, and so do the rows of the batch. If inputs may have only 1 item, as behind a
   filter, there is a cell for each of these items, at most 2^22 cells. With min_items there are
   min_items times fewer. If queue_size is too small, start says so. The plan says what the cells
   cost. A state may lie inside a window; another run then makes the inputs of the window again. If
   they have other numbers of items than before, the resume fails with DLP_ERR_RESUME.

     steps_per_epoch > 0    that many full batches on each rank. A stream that is out goes on with
                            its next pass, shuffled in another way. If pass after pass has no item,
                            the batch that lacks an item fails. Each epoch begins with the first
                            pass
     DLP_FOREVER            an epoch without an end: passes follow each other, and nothing is left
                            out. dlp_pipe_batches_per_epoch is DLP_FOREVER. dlp_pipe_next_epoch
                            leaves the epoch. A state is as exact at the 10^9th batch as at the
                            first
     0, DLP_LAST_DROP       one rank: ends before the first batch that is not full
     0, _PARTIAL, _PAD      one rank: ends when all streams are out. Rows of streams that are out
                            are zeros, with valid[] 0 and index UINT64_MAX. With one stream and
                            DLP_LAST_PARTIAL the last batch is short instead
     0, agree, _DROP        several ranks: ends before the first batch that is not full on some
                            rank. All ranks have the same number of batches; the further items of
                            the other ranks are left out
     0, agree, another      several ranks: ends when the streams of all ranks are out. Every item
                            comes once. A rank whose streams are out earlier gets batches of holes
     0, uneven = 1          several ranks: each rank ends by itself, as one rank does. The ranks may
                            have different numbers of batches

   agree is one all-reduce of an integer over all ranks: it returns the least value of them or, if
   most is 1, the greatest. With MPI (examples/mpi_filter.c):

     static int64_t agree(void *user, int64_t mine, int most) {
         MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT64_T, most ? MPI_MAX : MPI_MIN, comm);
         return mine;
     }

   next calls agree at the same batch on each rank: before the first batch of each epoch, after a
   seek, and then whenever all agreed batches are given. If batches are ready ahead, that is not at
   every batch. `mine` counts whole batches, which cannot fail, so an agreed batch does not fail. A
   number below 0 says that the next batch of this rank, or its pipe, has failed. next then returns
   an error on all ranks, after the same batch. Or it says that a resumed rank has no batch left in
   the epoch. start and close never call agree. It is not called after a stop, nor for a time-out.
   So all ranks must take the same steps. If one rank leaves off alone, the others wait, as in any
   all-reduce. The time in agree counts as time of the consumer. agree is refused with subscribers.

   A batch is scheduled once its rows are known, and once it is known whether another batch follows.
   For this each stream needs part cells. If queue_size is too small, start fails and says how many
   cells it needs. Without steps_per_epoch dlp_pipe_batches_per_epoch is not known.

   A state has the places of this rank's streams, in 122 bytes. That is room for 20 to 60 streams a
   rank, and with a window for about half as many. start says so if the room is too small. Streams
   of shuffled inputs stay near each other, so more streams fit. An example is a filtered mix of two
   lists: 32 streams fit, for 16,383 steps with 2 rows of each. A filter that keeps almost nothing
   may drive the streams too far apart. Then dlp_pipe_state gives no state until they are nearer, or
   the epoch ends.

   A state fits another world size after dlp_state_merge has joined the states of all ranks, saved
   after the same batch. If a part has fewer items at a resume than were given already, that is an
   error. dlp_pipe_state_at finds no batch by its number here, but it finds the beginning of an
   epoch. These parts are refused with unordered and split. For a cache see dlp_node_cache.

   If a part cannot be loaded, nobody knows its rows, so its stream ends before the part. The batch
   that needs the next row of this stream fails, full or not, and next returns the error of the
   part. With a window, the window of the part is not known either, and fails with its first row. If
   DLP_LAST_DROP ends the epoch before that batch, the part is not missed. With DLP_ON_ERROR_DROP a
   part that cannot be loaded has no items, and counts for max_skips. */

/* Join the states that several ranks have after the same batch. Any other number of ranks can then
   go on from the joined state.
   out: written on success. states: [n] states of all ranks, or of some of them, in any order. Equal
   states without streams (of other pipes, or at the beginning of an epoch) are joined too. err: may
   be NULL. Returns DLP_OK, or:
     DLP_ERR_ARG       out or states is NULL, or n is 0
     DLP_ERR_CORRUPT   a state is damaged, or another version saved it
     DLP_ERR_RESUME    the states have different orders or batches, two places of one stream, a gap
                       between streams, or more streams than fit into one state
   Any thread. Never waits or allocates. */
DLPDEF int dlp_state_merge(dlp_state *out, const dlp_state *states, uint32_t n, dlp_error *err);
