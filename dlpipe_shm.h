/* dlpipe_shm.h - v0.1.0 - worker processes for dlpipe.h - MIT licence - header-only, Linux 5.4+

   The same pipeline with workers as processes in shared memory: killed workers cost time, not data.
   And a view from outside: monitors that look at a running or stuck pipe, consumers that share one.

   >>shm-use        DO THIS, THEN THAT
   1  Copy this file beside dlpipe.h. In the one C file that has the implementation:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"
          #include "dlpipe_shm.h"
   2  Say .placement = DLP_PLACE_PROCESSES in the dlp_workers_desc of a stage. That is all.
   3  A name, several consumers, start by exec, huge pages: dlp_pipe_desc.shm, a dlp_shm_desc.

   >>shm-contents   search for the anchor
   >>shm-use        DO THIS, THEN THAT
   >>shm-start      FORK, EARLY FORK, EXEC
   >>shm-names      NAMED PIPES
   >>shm-monitor    LOOKING IN FROM OUTSIDE
   >>shm-consumer   SEVERAL CONSUMERS OF ONE PIPE
   >>shm-impl-names       RECORDS AND LOCKS
   >>shm-impl-monitor     COPY, CHECK, THEN USE
   >>shm-impl-consumer    WHO HOLDS WHAT
   >>shm-impl-supervisor  WORKERS ARE STARTED, WATCHED AND REPLACED
   >>shm-impl-exec        A SECOND PROGRAM THAT IS THE SAME
   >>shm-impl-public      THE PUBLIC CALLS
*/

#ifndef DLPIPE_SHM_H
#define DLPIPE_SHM_H

#include "dlpipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
   >>shm-start      FORK, EARLY FORK, EXEC */

enum {
    DLP_SHM_FORK = 0, /* workers are forks of this process: they see its memory as it was then */
    DLP_SHM_EXEC      /* workers are this program, begun anew: see dlp_shm_main */
};

enum {
    DLP_HUGE_NONE = 0,
    DLP_HUGE_TRANSPARENT, /* ask the kernel (madvise); a warning if it declines */
    DLP_HUGE_RESERVED     /* from the pool of reserved huge pages; start fails if it is too small */
};

enum {
    DLP_SHARE_NONE = 0,
    DLP_SHARE_EACH, /* every consumer gets every batch; the slowest sets the pace */
    DLP_SHARE_ONE   /* each batch goes to one consumer */
};

/* A callback as it is registered for DLP_SHM_EXEC. */
typedef void (*dlp_shm_fn)(void);

/* Make the user pointer of the callbacks in a worker process that began by exec.
   blob, bytes: a copy of dlp_shm_desc.blob, in shared memory: read only; user: what all of the
   pipe's callbacks get in that process in place of their desc's - returns 0, or failure:
   DLP_ERR_CALLBACK - in each worker process, before worker_init. */
typedef int (*dlp_shm_init_fn)(const void *blob, uint64_t bytes, void **user);

typedef struct dlp_shm_desc {
    const char *name;       /* NULL: none; 1..63 of A-Z a-z 0-9 . _ -, not beginning with a dot */
    int32_t start;          /* DLP_SHM_FORK, DLP_SHM_EXEC */
    int32_t allow_fork_with_threads; /* 1: fork though the process has threads. Locks that they hold
                               stay locked in the workers for ever: know what you do */
    int32_t max_kills;      /* times that an item may kill its worker before it counts as failed
                               (DLP_ERR_KILLED), and a worker die in worker_init; 0: 3; 1..100 */
    int32_t grace_ms;       /* close: how long workers may finish before they are killed; 0: 300 */
    int32_t huge_pages;     /* DLP_HUGE_* */
    int32_t share;          /* DLP_SHARE_*; named pipes without a transfer stage */
    int32_t max_consumers;  /* with share: 1..64 programs at once; 0: 8 */
    int32_t serve_only;     /* with share: 1: this process takes no batches, see dlp_shm_serve */
    dlp_shm_init_fn init;   /* DLP_SHM_EXEC: NULL or registered */
    const void *blob;       /* DLP_SHM_EXEC: for init; copied at start */
    uint64_t blob_bytes;    /* 0..2^30 */
} dlp_shm_desc;

#ifdef __cplusplus
}
#endif
#endif /* DLPIPE_SHM_H */

/* =============================================================================================
   IMPLEMENTATION */
#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_SHM_IMPLEMENTATION_DONE)
#define DLPIPE_SHM_IMPLEMENTATION_DONE

#endif /* DLPIPE_IMPLEMENTATION */
