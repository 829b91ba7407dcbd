/* needs: out */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>outs       SEVERAL OUTS OF ONE PIPE
   A table may end with several out rows (>>graph). The first out is the out of the trainer:
   dlp_pipe_next gives its batches, and states count them. Each other out has a name and gives the
   same batches again to a thread of this process: a logger, an evaluation, a preview. Nothing is
   copied.

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
              so batches that an out holds take no slot from the trainer.
   full       What happens to a batch when the out is behind and the pipe needs its slot:
     DLP_FULL_WAIT         The pipe waits. The out gets each batch. An out that stops, or that no
                           call has found, stops the pipe until dlp_out_close or dlp_pipe_close.
     DLP_FULL_DROP_NEW     The out keeps the oldest batches, up to its free capacity.
     DLP_FULL_KEEP_NEWEST  The out goes on with the newest batches that are ready.
              The last two never stop the trainer. dlp_out_missed counts the missed batches. One of
              them may be the last batch of an epoch: look at batch->epoch.
   Order      An out has its batches in their order, and each batch at most once. It may have a
              batch before the trainer has the batch. It gets no DLP_EPOCH_END; flags have
              DLP_BATCH_LAST. If the trainer leaves an epoch by dlp_pipe_next_epoch, an out leaves
              all of the epoch that it has not taken.
   Views      The batch belongs to several readers: read only.
   Threads    All calls of an out but dlp_out_find belong to one thread at a time.
   Close      dlp_pipe_stop and dlp_pipe_close wake a thread in dlp_out_next, which returns
              DLP_STOPPED. They wait for no out. The pipe's memory stays until the pipe and all
              found outs are closed: the last close frees it. So batches that an out holds stay
              valid until dlp_out_close.
   Refused    Several outs are refused with split, unordered, list.open_end, agree and
              dlp_shm_desc.share. dlp_pipe_seek is refused with several outs. Other programs take
              batches by dlp_subscriber_open (dlpipe_shm.h). */

typedef struct dlp_out dlp_out;

/* Find an out other than the first one, by the name of its row. An out can be found once.
   out: close it with dlp_out_close.
   Returns DLP_OK; DLP_ERR_ARG (there is no such out); DLP_ERR_STATE (the pipe does not run, or the
   out was found before); DLP_ERR_FORKED. Consumer. Does not wait or allocate. */
DLPDEF int dlp_out_find(dlp_pipe *p, const char *name, dlp_out **out);

/* Lend the next batch of the out.
   batch: written on DLP_OK only. timeout_ms: milliseconds to wait; negative: no limit; 0: do not
   wait.
   Returns DLP_OK or DLP_TIMEOUT. DLP_END: no batch is left for this out. DLP_STOPPED: the pipe was
   stopped or closed; call only release and close from now on. DLP_ERR_HELD: the out holds as many
   batches as its capacity. The code of an item's error: the trainer gets it, too. DLP_ERR_ARG.
   DLP_ERR_FORKED. Only the trainer gets errors that belong to no batch.
   The out's thread. Spins for some us, then sleeps. Does not allocate. */
DLPDEF int dlp_out_next(dlp_out *out, dlp_batch **batch, int timeout_ms);

/* Give a batch back, in any order, also after a stop or a close of the pipe.
   Returns DLP_OK; DLP_ERR_ARG (the batch is not held); DLP_ERR_FORKED. The out's thread. Does not
   wait. */
DLPDEF int dlp_out_release(dlp_out *out, dlp_batch *batch);

/* Return how many batches the out has missed, by `full`, up to the last call of dlp_out_next. 0 if
   out is NULL. The out's thread. */
DLPDEF uint64_t dlp_out_missed(const dlp_out *out);

/* Close the out, before or after dlp_pipe_close. The pipe no longer waits for the out. Batches that
   the out holds are no longer valid.
   out: NULL does nothing. The out's thread. Does not wait. Frees the pipe if it is the last
   close. */
DLPDEF void dlp_out_close(dlp_out *out);

/* Numbers in dlp_stage_stats.own of an out. The row of the stage has the name of the out. */
enum { DLP_OUT_CAPACITY, DLP_OUT_HELD, DLP_OUT_MISSED, DLP_OUT_FULL };
