#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-subscriber   SEVERAL SUBSCRIBERS OF ONE PIPE
   Programs that train on the same batches share one pipe, its workers and its memory. The pipe has
   a name and dlp_shm_desc.share; its sampler runs in a thread. A subscriber gets the batches that
   are scheduled after it comes. Batches stay where the workers wrote them; nothing is copied.

     DLP_SHARE_EACH  Every subscriber gets every batch in order. So does the pipe's consumer, unless
                     serve_only is set. A slot is free when all have released it. So the slowest
                     subscriber sets the pace, even if it is stopped or never asks. With serve_only,
                     batches that are scheduled and not taken when the last subscriber leaves are
                     lost. The next subscriber begins after them.
     DLP_SHARE_ONE   Each batch goes to one subscriber: the next one that asks. If a subscriber dies
                     or closes, the batches that it held go to others. dlp_pipe_desc.max_held is the
                     sum of the batches that all subscribers hold. If each subscriber holds a batch
                     and asks for one more, they may wait for ever. That happens if there are no
                     more slots (prefetch_factor + max_held) than subscribers.

   A transfer copies for the pipe's consumer alone. Subscribers take the same batches on the host,
   before the transfer, and also while it copies. serve_only must then be 0.

   examples/share.c shows both. The last batch of an epoch has DLP_BATCH_LAST in its flags. Only the
   pipe's owner gets DLP_EPOCH_END, and only the owner can save states. The error of an item goes to
   each subscriber that gets its batch, and to the owner. Other errors go to the owner; when it
   closes the pipe, the subscribers learn of it.

   When the owner closes the pipe, a subscriber that has all batches gets DLP_END. Other subscribers
   take the batches that are ready, then get DLP_STOPPED. Batches that a subscriber holds stay valid
   until dlp_subscriber_close.

   A subscriber that dies blocks nobody. Its place is a lock, which the kernel frees; the pipe looks
   for free locks every 50 ms. If the subscriber forks, the child keeps the place until it ends,
   execs, or closes the subscriber. All other calls return DLP_ERR_FORKED in the child. Subscribers
   map the pipe's memory and could write to it. They are trusted as programs of the same user are.
   They check what they read. */

typedef struct dlp_subscriber dlp_subscriber;

/* What happens to batches that a subscriber has not taken when the pipe needs their slots; with
   DLP_SHARE_EACH. A batch that a subscriber holds is never overwritten, and its slot is not used.
   If subscribers may miss batches, add the batches that they hold to the pipe's max_held. The other
   subscribers then keep their slots. A pipe with serve_only waits until there is a subscriber with
   DLP_BEHIND_WAIT. A missed batch may have DLP_BATCH_LAST: look at batch->epoch. */
enum {
    DLP_BEHIND_WAIT = 0,   /* the pipe waits for the subscriber, which gets all batches */
    DLP_BEHIND_DROP_NEW,   /* it keeps the oldest batches, as many as it may still hold, and misses
                            newer ones; a subscriber that keeps up misses none */
    DLP_BEHIND_KEEP_NEWEST /* it misses the oldest batches; next goes on to the newest max_held of
                            the ready ones; while it waits in next, the batch it waits for stays */
};

typedef struct dlp_subscriber_desc {
    int32_t max_held;    /* batches held at once; at most the pipe's max_held; 0: 1 */
    int32_t when_behind; /* DLP_BEHIND_*; with DLP_SHARE_ONE: 0 */
} dlp_subscriber_desc;

/* Subscribe to the pipe of that name. A thread of the pipe's own process may subscribe too, such as
   a logger beside the consumer (DLP_SHARE_EACH, serve_only 0). With DLP_BEHIND_KEEP_NEWEST it slows
   nothing. It closes its subscriber itself, before or after the pipe is closed.
   out: to be closed; name: dlp_shm_desc.name; desc: copied; NULL is {0}; err: written on failure,
   may be NULL. Returns DLP_OK; DLP_ERR_ARG; DLP_ERR_STATE (the owner is gone, the pipe is not
   shared, or all places are taken); DLP_ERR_SYSTEM (errnum ENOENT: no such name yet, so try again);
   DLP_ERR_UNSUPPORTED, _CORRUPT, _MEMORY as dlp_monitor_open. Any thread may call it; one thread at
   a time then uses the subscriber. It allocates and maps; it waits up to 200 ms for a pipe that
   starts. */
DLPDEF int dlp_subscriber_open(dlp_subscriber **out, const char *name,
                               const dlp_subscriber_desc *desc, dlp_error *err);

/* Take the next batch, or wait for it: without end, or at most timeout_ms (0: no wait; negative: no
   limit). Other subscribers may have the same batch: it is read-only.
   out: written on DLP_OK; valid until release or close. Returns the codes of dlp_pipe_next and
   dlp_pipe_next_timeout without DLP_EPOCH_END; DLP_ERR_KILLED (the pipe's owner is gone);
   DLP_ERR_CORRUPT; DLP_ERR_FORKED. DLP_END: all batches are consumed. With DLP_SHARE_ONE it comes
   when all are also released, since another subscriber may die. A subscriber that holds a batch
   gets it earlier, and may call again after its release. */
DLPDEF int dlp_subscriber_next(dlp_subscriber *c, dlp_batch **out);
DLPDEF int dlp_subscriber_next_timeout(dlp_subscriber *c, dlp_batch **out, int timeout_ms);

/* Give a batch back, in any order. batch: as next gave it; do not use it any more. Returns DLP_OK;
   DLP_ERR_ARG (not held); DLP_ERR_FORKED. It does not wait. */
DLPDEF int dlp_subscriber_release(dlp_subscriber *c, dlp_batch *batch);

/* Return the number of batches that the subscriber missed, by when_behind, up to its last call of
   next. c: NULL is 0. */
DLPDEF uint64_t dlp_subscriber_missed(const dlp_subscriber *c);

/* Return the subscriber's first error; code 0: none. Never NULL. The record is valid until
   close. */
DLPDEF const dlp_error *dlp_subscriber_error(const dlp_subscriber *c);

/* Leave the pipe and free the subscriber. Batches that it still holds are no longer valid: their
   memory is unmapped. c: NULL is fine. */
DLPDEF void dlp_subscriber_close(dlp_subscriber *c);

/* Wait while other programs consume, in the pipe's process, with serve_only.
   timeout_ms: longest wait; 0 or DLP_FOREVER: no limit; DLP_NOWAIT: no wait. Returns DLP_END: all
   is consumed; DLP_TIMEOUT; DLP_STOPPED; the error codes of dlp_pipe_next; DLP_ERR_STATE (not
   started, or not serve_only). The consumer calls it. */
DLPDEF int dlp_shm_serve(dlp_pipe *p, int timeout_ms);
