/* needs: out */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>outs       SEVERAL OUTS OF ONE PIPE
   A table may end with several out rows (>>graph). The first out is the trainer's: dlp_pipe_next
   gives its batches, and states are of these. Each other out gives the same batches again, by its
   name, to a thread of this process: a logger, an evaluation, a preview. Nothing is copied.

     {.name = "train", .verb = DLP_OUT},
     {.name = "log", .from = (const char *[]){"batch", NULL}, .verb = DLP_OUT,
      .queue = {.capacity = 1, .full = DLP_FULL_KEEP_NEWEST}}

     dlp_out_find(pipe, "log", &out);                                    before the thread begins
     thread:    while (dlp_out_next(out, &batch, -1) == DLP_OK) {
                    look_at(batch);
                    dlp_out_release(out, batch);
                }
                dlp_out_close(out);

   from       The last node before the outs. If that is a transfer, the first out reads it, and
              the others read the node before it. So they have a batch on the host while the
              transfer of the batch goes on.
   capacity   Batches that the out may hold; 0: 1. The pipe has as many slots more (plan, explain),
              so what an out holds takes none from the trainer.
   full       What becomes of a batch when the out is behind and the pipe needs its slot:
     DLP_FULL_WAIT         The pipe waits. The out gets each batch, and an out that stops, or was
                           never found, stops the pipe until dlp_out_close or dlp_pipe_close.
     DLP_FULL_DROP_NEW     The out keeps the oldest batches, as many as it could hold and does not.
     DLP_FULL_KEEP_NEWEST  The out goes on with the newest batches that are ready.
              The last two never stop the trainer. dlp_out_missed counts what the out missed. The
              last batch of an epoch may be among this: look at batch->epoch.
   Order      An out has its batches in their order, and each batch at most once. It may have a
              batch before the trainer has the batch. It gets no DLP_EPOCH_END; flags have
              DLP_BATCH_LAST. If the trainer leaves an epoch by dlp_pipe_next_epoch, an out leaves
              all of the epoch that it has not taken.
   Views      The batch belongs to several readers: read only.
   Threads    All calls of an out but dlp_out_find belong to one thread at a time.
   Close      dlp_pipe_stop and dlp_pipe_close wake a thread in dlp_out_next, which returns
              DLP_STOPPED. They wait for no out. The pipe's memory stays until the pipe and all outs
              that were found are closed: the last close frees it. So batches that an out holds stay
              as they are until dlp_out_close.
   Refused    Several outs with split, unordered, list.open_end, agree, dlp_shm_desc.share; and
              dlp_pipe_seek. Other programs take batches by dlp_subscriber_open (dlpipe_shm.h). */

typedef struct dlp_out dlp_out;

/* Find an out beside the first one, by the name of its row. An out is found once.
   out: to be closed.
   Returns DLP_OK; DLP_ERR_ARG (no such out); DLP_ERR_STATE (the pipe does not run, or the out was
   found before); DLP_ERR_FORKED. Consumer. Does not wait or allocate. */
DLPDEF int dlp_out_find(dlp_pipe *p, const char *name, dlp_out **out);

/* Lend the next batch of the out.
   batch: written on DLP_OK only. timeout_ms: negative without end, 0 not at all.
   Returns DLP_OK or DLP_TIMEOUT. DLP_END: nothing is left for this out. DLP_STOPPED: the pipe was
   stopped or closed, so only release and close are left. DLP_ERR_HELD: it holds as many batches as
   its capacity. The code of an item's error, which the trainer gets, too. DLP_ERR_ARG.
   DLP_ERR_FORKED. Errors that belong to no batch are told to the trainer alone.
   The out's thread. Spins for some us, then sleeps. Does not allocate. */
DLPDEF int dlp_out_next(dlp_out *out, dlp_batch **batch, int timeout_ms);

/* Give a batch back, in any order, also after a stop or a close of the pipe.
   Returns DLP_OK, DLP_ERR_ARG (not held), DLP_ERR_FORKED. The out's thread - does not wait. */
DLPDEF int dlp_out_release(dlp_out *out, dlp_batch *batch);

/* Return how many batches the out missed, by `full`, until the last call of dlp_out_next. NULL has
   0. The out's thread. */
DLPDEF uint64_t dlp_out_missed(const dlp_out *out);

/* Leave, before or after dlp_pipe_close. The pipe waits for the out no more. Batches that it holds
   are gone.
   out: NULL is nothing - the out's thread - does not wait. Frees the pipe if it comes last. */
DLPDEF void dlp_out_close(dlp_out *out);

/* What dlp_stage_stats.own has of an out, whose row there has the out's name. */
enum { DLP_OUT_CAPACITY, DLP_OUT_HELD, DLP_OUT_MISSED, DLP_OUT_FULL };
