#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-start      FORK, EARLY FORK */

enum {
    DLP_HUGE_NONE = 0,
    DLP_HUGE_TRANSPARENT, /* ask the kernel (madvise); a warning if it declines */
    DLP_HUGE_RESERVED     /* use the pool of reserved huge pages; start fails if it is too small */
};

enum {
    DLP_SHARE_NONE = 0,
    DLP_SHARE_EACH, /* every subscriber gets every batch; the slowest sets the pace */
    DLP_SHARE_ONE   /* each batch goes to one subscriber */
};

typedef struct dlp_shm_desc {
    const char *name; /* name of the pipe, 1..63 of A-Z a-z 0-9 . _ -, no dot first; NULL: none */
    int32_t allow_fork_with_threads; /* 1: fork even if the process has threads. Locks that these
                               threads hold stay locked in the workers for ever: know what you do.
                               The thread of a push with a path holds none, and does not count */
    int32_t max_kills;       /* worker deaths that one item may cause, 1..100; then the item has
                               failed (DLP_ERR_KILLED); 0: 3. It also counts the deaths in
                               worker_init, and outside of callbacks with the same work */
    int32_t grace_ms;        /* milliseconds that close gives workers to finish before it kills
                               them; 0: 300 */
    int32_t huge_pages;      /* DLP_HUGE_* */
    int32_t share;           /* DLP_SHARE_*; needs a name */
    int32_t max_subscribers; /* with share: programs at once, 1..64; 0: 8 */
    int32_t serve_only;      /* with share: 1: this process takes no batches (see dlp_shm_serve) and
                               has no place in the order: dlp_pipe_next, _next_epoch and _state
                               return DLP_ERR_STATE. DLP_SHARE_ONE needs 1; a transfer needs 0 */
    int32_t wait_subscribers; /* with share: subscribers that must come before the first fetch,
                               up to max_subscribers; 0: none (serve_only: one) */
} dlp_shm_desc;
