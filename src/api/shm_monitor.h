#pragma once
#include "api/stats.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-monitor    LOOKING IN FROM OUTSIDE
   A monitor copies a pipe's records out of its region and reads the copy. It opens the region read
   only and never maps it, so it can neither disturb a pipe nor be stopped by one: a pipe that runs,
   hangs or is stopped (SIGSTOP) looks the same. It needs what a debugger needs: the same user, or
   root. What it copies is checked before use; a torn or hostile region is an error. */

typedef struct dlp_monitor dlp_monitor;

typedef struct dlp_monitor_info {
    char name[32];         /* dlp_pipe_desc.name */
    char shm_name[64];     /* by which it was opened, or "" */
    int32_t pid, memfd;    /* where it was found */
    uint32_t uid;          /* of the owner, as it said */
    int32_t stopped;       /* 1: stop or close was called */
    uint64_t started_ns;   /* CLOCK_REALTIME */
    uint64_t trace_events; /* of a lane that are copied, at most */
} dlp_monitor_info;

/* Find a pipe and make the first copy.
   out: to be closed; who: copied: "PID"; "PID:PIPE" where a process has several, PIPE being
   dlp_pipe_desc.name or the number of the memfd; or a name (digits alone are a pid); err: written
   on failure, may be NULL - returns DLP_OK; DLP_ERR_ARG (who says nothing, or several pipes: the
   message lists them); DLP_ERR_STATE (the owner is gone, has no pipe, or it is still starting);
   DLP_ERR_SYSTEM with errno (no such process or name, no permission); DLP_ERR_UNSUPPORTED (a pipe
   of another version); DLP_ERR_CORRUPT; DLP_ERR_MEMORY - any thread - allocates; waits up to 200 ms
   for a pipe that starts. */
DLPDEF int dlp_monitor_open(dlp_monitor **out, const char *who, dlp_error *err);

/* Copy again.
   err: as above - returns DLP_OK; DLP_ERR_STATE: the owner is gone or has closed the pipe, the last
   copy stays; DLP_ERR_CORRUPT, _SYSTEM - one thread at a time - does not allocate; copies a few KiB
   for each worker, and at most 64 MiB of traces. */
DLPDEF int dlp_monitor_refresh(dlp_monitor *m, dlp_error *err);

/* What the calls of >>stats tell of a pipe, of the moment of the last refresh: with the same
   parameters and results, but no DLP_ERR_STATE and no DLP_ERR_FORKED. Stages' own words for what
   they wait for ("Waits: ") are known in the owner alone. - any thread, but not while refresh runs;
   none waits. */
DLPDEF int dlp_monitor_stats(const dlp_monitor *m, dlp_stats *out);
DLPDEF int dlp_monitor_worker_stats(const dlp_monitor *m, uint32_t i, dlp_worker_stats *out);
DLPDEF int dlp_monitor_skips(const dlp_monitor *m, dlp_skip *out, int max, uint64_t *total);
DLPDEF int dlp_monitor_explain(const dlp_monitor *m, char *buf, size_t size);
DLPDEF int dlp_monitor_trace_lanes(const dlp_monitor *m);
DLPDEF int dlp_monitor_trace(const dlp_monitor *m, int lane, dlp_trace_event *out, int max,
                             char *name);

/* Return the number of batches in an epoch; -1: not known, or m is NULL; DLP_FOREVER: it has no
   end. Not while refresh runs. */
DLPDEF int64_t dlp_monitor_batches_per_epoch(const dlp_monitor *m);

/* Return the error that a worker or the sampler of the pipe met: code 0, there was none by the last
   refresh; of NULL DLP_ERR_ARG. Until refresh or dlp_monitor_close. */
DLPDEF const dlp_error *dlp_monitor_error(const dlp_monitor *m);

/* Tell whose pipe it is. Returns DLP_OK, DLP_ERR_ARG. Not while refresh runs. */
DLPDEF int dlp_monitor_about(const dlp_monitor *m, dlp_monitor_info *out);

/* Free the copy. m: NULL is nothing. */
DLPDEF void dlp_monitor_close(dlp_monitor *m);
