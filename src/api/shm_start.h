#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-start      FORK, EARLY FORK, EXEC */

enum {
    DLP_SHM_FORK = 0, /* workers are forks of this process: they see its memory as it was then */
    DLP_SHM_EXEC      /* workers are this program, begun again: see dlp_shm_main */
};

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

/* A callback as it is registered for DLP_SHM_EXEC. */
typedef void (*dlp_shm_fn)(void);

/* Make the user pointer of the callbacks in a worker process that began by exec.
   blob, bytes: a copy of dlp_shm_desc.blob, in shared memory: read only; user: what all of the
   pipe's callbacks get in that process in place of their desc's - returns 0, or failure:
   DLP_ERR_CALLBACK - in each worker process, before worker_init. */
typedef int (*dlp_shm_init_fn)(const void *blob, uint64_t bytes, void **user);

typedef struct dlp_shm_desc {
    const char *name; /* NULL: none; 1..63 of A-Z a-z 0-9 . _ -, not beginning with a dot */
    int32_t start;    /* DLP_SHM_FORK, DLP_SHM_EXEC */
    int32_t allow_fork_with_threads; /* 1: fork though the process has threads. Locks that they hold
                               stay locked in the workers for ever: know what you do */
    int32_t max_kills;       /* times that an item may kill its worker before it counts as failed
                               (DLP_ERR_KILLED), and a worker die in worker_init, or outside of
                               callbacks with the same work; 0: 3; 1..100 */
    int32_t grace_ms;        /* close: how long workers may finish before they are killed; 0: 300 */
    int32_t huge_pages;      /* DLP_HUGE_* */
    int32_t share;           /* DLP_SHARE_*; named pipes without a transfer stage */
    int32_t max_subscribers; /* with share: 1..64 programs at once; 0: 8 */
    int32_t serve_only;      /* with share: 1: this process takes no batches, see dlp_shm_serve, and
                               has no place in the order: dlp_pipe_next, _next_epoch and _state
                               return DLP_ERR_STATE; DLP_SHARE_ONE: 1 */
    int32_t
        wait_subscribers; /* with share: nothing is fetched before so many have come; 0: begin at
                               once (serve_only: with the first) */
    dlp_shm_init_fn init; /* DLP_SHM_EXEC: NULL or registered */
    const void *blob;     /* DLP_SHM_EXEC: for init; copied at start */
    uint64_t blob_bytes;  /* 0..2^30 */
} dlp_shm_desc;

/* Register a callback under its own name, before main begins: at file scope, in any file.
   DLP_SHM_CALLBACK(fetch); */
#define DLP_SHM_CALLBACK(function) \
    __attribute__((constructor)) static void dlp_shm_register_##function(void) { \
        dlp_shm_register(#function, (dlp_shm_fn)(function)); \
    } \
    struct dlp_shm_register_semicolon

/* The same by a call, before dlp_shm_main.
   name: 1..63 bytes, copied - returns DLP_OK; DLP_ERR_ARG; DLP_ERR_STATE: another function has that
   name; DLP_ERR_MEMORY: 256 are registered - one thread at a time - does not wait or allocate. */
DLPDEF int dlp_shm_register(const char *name, dlp_shm_fn fn);

/* For DLP_SHM_EXEC: the first line of main. In a process that was begun as a pipe's supervisor it
   becomes that, and does not return; else it does nothing. A program that leaves it out is told so
   by start; it never runs twice. Worker processes see nothing of this process's memory: their
   callbacks are those registered, and get what shm.init makes of shm.blob as their user. */
DLPDEF void dlp_shm_main(int argc, char **argv);

/* Start the worker processes now, before start: for programs that make threads or open a device in
   between. What workers see of this process's memory is how it is at this moment. The pipe's wiring
   is complete; afterwards only start may follow.
   Returns what dlp_pipe_start returns of checking and allocating; DLP_ERR_STATE: called before, or
   after start - caller - allocates all that is shared. */
DLPDEF int dlp_pipe_fork(dlp_pipe *p);
