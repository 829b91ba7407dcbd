#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-subscriber   SEVERAL SUBSCRIBERS OF ONE PIPE
   Programs that train on the same batches share one pipe, its workers and its memory. The pipe has
   a name and dlp_shm_desc.share; its sampler runs in a thread. A subscriber gets batches from when
   it comes: those that are not scheduled yet. Batches lie where the workers wrote them; nothing is
   copied.

     DLP_SHARE_EACH  every subscriber gets every batch in order, and so does the pipe's consumer
                     unless serve_only. A slot is free when all have released it: the slowest, also
                     one that is stopped or never asks, sets the pace. With serve_only, what is
                     scheduled and not taken when the last leaves is lost; the next begins after it.
     DLP_SHARE_ONE   each batch goes to one subscriber, the next one to whoever asks. What it held
                     when it died, or closed, goes to another. dlp_pipe_desc.max_held is the
                     sum of what all hold: subscribers that each hold a batch and ask for one more
                     wait for ever where slots (prefetch_factor + max_held) are no more than they.

   A transfer copies for the pipe's consumer alone. Subscribers take the same batches on the host,
   before the transfer, also while it copies. serve_only is then 0.

   examples/share.c has both. Epochs end with DLP_BATCH_LAST in a batch's flags; DLP_EPOCH_END is
   for the pipe's owner only, and so are states. The error of an item is told to every subscriber
   that gets its batch, and to the owner; what else goes wrong, to the owner, and its close tells
   the others.

   The owner's close: a subscriber that has all gets DLP_END, others take what is ready, then get
   DLP_STOPPED. Batches that are held stay as they are until dlp_subscriber_close.

   A subscriber that dies holds nothing up: its place is a lock, which the kernel takes back. It is
   looked for every 50 ms. A process that it forked keeps the place, until that ends, execs, or
   closes the subscriber; all other calls return DLP_ERR_FORKED there. Subscribers map the pipe's
   memory and could write to it: they are trusted as far as the same user is. They check what they
   read. */

typedef struct dlp_subscriber dlp_subscriber;

/* With DLP_SHARE_EACH: what becomes of batches that a subscriber has not taken when the pipe needs
   their slots. A batch that it holds is never written over, and its slot not used: count what such
   subscribers hold into the pipe's max_held, so that the others keep theirs. A pipe with serve_only
   that has none that it waits for waits for one. BATCH_LAST may be among what is missed: look at
   batch->epoch. */
enum {
    DLP_BEHIND_WAIT = 0,   /* the pipe waits for it: it gets all */
    DLP_BEHIND_DROP_NEW,   /* it keeps the oldest, as many as it could hold and does not; others it
                            misses. One that keeps up misses none */
    DLP_BEHIND_KEEP_NEWEST /* it misses them; next goes on to the newest max_held of those that are
                              ready. While it waits in next, the batch it waits for stays */
};

typedef struct dlp_subscriber_desc {
    int32_t max_held;    /* batches held at once; 0: 1; at most what the pipe's max_held is */
    int32_t when_behind; /* DLP_BEHIND_* */
} dlp_subscriber_desc;

/* Become a subscriber of the pipe of that name. A thread of the pipe's own process may, too: a
   logger beside the consumer (DLP_SHARE_EACH, serve_only 0; with DLP_BEHIND_KEEP_NEWEST it slows
   nothing). It closes its subscriber by itself, before or after the pipe is closed.
   out: to be closed; name: dlp_shm_desc.name; desc: NULL is {0}; err: written on failure, may be
   NULL - returns DLP_OK; DLP_ERR_ARG; DLP_ERR_STATE (the owner is gone, the pipe is not shared, or
   all places are taken); DLP_ERR_SYSTEM (with errnum ENOENT: no such name yet; ask again),
   _UNSUPPORTED, _CORRUPT, _MEMORY as dlp_monitor_open - any thread; the subscriber is then used by
   one at a time - allocates and maps; waits up to 200 ms for a pipe that starts. */
DLPDEF int dlp_subscriber_open(dlp_subscriber **out, const char *name,
                               const dlp_subscriber_desc *desc, dlp_error *err);

/* As dlp_pipe_next and dlp_pipe_next_timeout, with their codes (but DLP_EPOCH_END) and view of a
   batch, which others may have, too: read only. DLP_END: all is consumed; SHARE_ONE: and released
   by all, since another may die; while this subscriber holds a batch it is told before, and may ask
   again when it has released. DLP_ERR_KILLED: the pipe's owner is gone. DLP_ERR_CORRUPT.
   DLP_ERR_FORKED. */
DLPDEF int dlp_subscriber_next(dlp_subscriber *c, dlp_batch **out);
DLPDEF int dlp_subscriber_next_timeout(dlp_subscriber *c, dlp_batch **out, int timeout_ms);

/* Give a batch back, in any order. Returns DLP_OK, DLP_ERR_ARG (not held). Does not wait. */
DLPDEF int dlp_subscriber_release(dlp_subscriber *c, dlp_batch *batch);

/* How many batches it missed, by when_behind, until the last call of next. c: NULL has 0. */
DLPDEF uint64_t dlp_subscriber_missed(const dlp_subscriber *c);

/* What went wrong first. Never NULL; until close. */
DLPDEF const dlp_error *dlp_subscriber_error(const dlp_subscriber *c);

/* Leave. Batches held are gone for this program: their memory is unmapped. c: NULL is nothing. */
DLPDEF void dlp_subscriber_close(dlp_subscriber *c);

/* In the pipe's process, with serve_only: wait while others consume.
   timeout_ms: 0 or DLP_FOREVER without end, DLP_NOWAIT not at all - returns DLP_END: all is
   consumed; DLP_TIMEOUT, DLP_STOPPED; the
   codes of errors that dlp_pipe_next returns; DLP_ERR_STATE: not started, or not serve_only -
   consumer. */
DLPDEF int dlp_shm_serve(dlp_pipe *p, int timeout_ms);
