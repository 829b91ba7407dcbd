#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-start      FORK, EARLY FORK */

enum {
    DLP_HUGE_NONE = 0,
    DLP_HUGE_TRANSPARENT, /* ask the kernel (madvise); a warning if it declines */
    DLP_HUGE_RESERVED     /* from the pool of reserved huge pages; start fails if it is too small */
};

enum {
    DLP_SHARE_NONE = 0,
    DLP_SHARE_EACH, /* every subscriber gets every batch; the slowest sets the pace */
    DLP_SHARE_ONE   /* each batch goes to one subscriber */
};

typedef struct dlp_shm_desc {
    const char *name; /* NULL: none; 1..63 of A-Z a-z 0-9 . _ -, not beginning with a dot */
    int32_t allow_fork_with_threads; /* 1: fork though the process has threads. Locks that they hold
                               stay locked in the workers for ever: know what you do */
    int32_t max_kills;       /* times that an item may kill its worker before it counts as failed
                               (DLP_ERR_KILLED), and a worker die in worker_init, or outside of
                               callbacks with the same work; 0: 3; 1..100 */
    int32_t grace_ms;        /* close: how long workers may finish before they are killed; 0: 300 */
    int32_t huge_pages;      /* DLP_HUGE_* */
    int32_t share;           /* DLP_SHARE_*; the pipe has a name */
    int32_t max_subscribers; /* with share: 1..64 programs at once; 0: 8 */
    int32_t serve_only;      /* with share: 1: this process takes no batches, see dlp_shm_serve, and
                               has no place in the order: dlp_pipe_next, _next_epoch and _state
                               return DLP_ERR_STATE; DLP_SHARE_ONE: 1; with a transfer: 0 */
    int32_t
        wait_subscribers; /* with share: nothing is fetched before so many have come; 0: begin at
                               once (serve_only: with the first) */
} dlp_shm_desc;
