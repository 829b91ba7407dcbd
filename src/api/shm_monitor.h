#pragma once
#include "api/stats.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-monitor    LOOKING IN FROM OUTSIDE
   A monitor copies a pipe's records out of its region and reads the copy. It opens the region
   read-only and never maps it. So it cannot disturb a pipe, and a pipe cannot stop it. A pipe that
   runs, hangs or is stopped (SIGSTOP) looks the same. A monitor needs the rights of a debugger: the
   same user, or root. It checks the copy before use; a torn or hostile region is an error. */

typedef struct dlp_monitor dlp_monitor;

typedef struct dlp_monitor_info {
    char name[32];         /* dlp_pipe_desc.name */
    char shm_name[64];     /* name by which it was opened, or "" */
    int32_t pid, memfd;    /* process, and number of its descriptor, where the pipe was found */
    uint32_t uid;          /* user id of the owner, as the owner said */
    int32_t stopped;       /* 1: stop or close was called */
    uint64_t started_ns;   /* start of the pipe, nanoseconds of CLOCK_REALTIME */
    uint64_t trace_events; /* most events of a lane that are copied */
} dlp_monitor_info;

/* Find a pipe and make the first copy.
   out: to be closed; err: written on failure, may be NULL; who: copied. who is "PID"; or "PID:PIPE"
   if the process has several pipes (PIPE is dlp_pipe_desc.name, or the number of the memfd); or a
   name. Digits alone are a PID.
   Returns DLP_OK; DLP_ERR_ARG (who is empty, or fits several pipes, which the message lists);
   DLP_ERR_STATE (the owner is gone, has no pipe, or the pipe is still starting); DLP_ERR_SYSTEM
   with errno (no such process or name, no permission); DLP_ERR_UNSUPPORTED (a pipe of another
   version); DLP_ERR_CORRUPT; DLP_ERR_MEMORY. Any thread may call it. It allocates; it waits up to
   200 ms for a pipe that starts. */
DLPDEF int dlp_monitor_open(dlp_monitor **out, const char *who, dlp_error *err);

/* Copy the pipe's records again: a few KiB for each worker, and at most 64 MiB of traces.
   err: written on failure, may be NULL. Returns DLP_OK; DLP_ERR_STATE (the owner is gone or has
   closed the pipe; the last copy stays); DLP_ERR_CORRUPT; DLP_ERR_SYSTEM; DLP_ERR_ARG. One thread
   at a time may call it. It does not allocate. */
DLPDEF int dlp_monitor_refresh(dlp_monitor *m, dlp_error *err);

/* Read the copy, as the calls of >>stats read a pipe: dlp_monitor_stats as dlp_pipe_stats, and so
   on. Parameters and results are the same, but DLP_ERR_STATE and DLP_ERR_FORKED are not returned.
   All figures are of the last refresh. A stage's own text about its wait ("Waits: ") is known in
   the owner alone. Any thread may call them, but not while refresh runs. None of them waits. */
DLPDEF int dlp_monitor_stats(const dlp_monitor *m, dlp_stats *out);
DLPDEF int dlp_monitor_worker_stats(const dlp_monitor *m, uint32_t i, dlp_worker_stats *out);
DLPDEF int dlp_monitor_skips(const dlp_monitor *m, dlp_skip *out, int max, uint64_t *total);
DLPDEF int dlp_monitor_explain(const dlp_monitor *m, char *buf, size_t size); /* needs: explain */
DLPDEF int dlp_monitor_trace_lanes(const dlp_monitor *m);
DLPDEF int dlp_monitor_trace(const dlp_monitor *m, int lane, dlp_trace_event *out, int max,
                             char *name);

/* Return the number of batches in an epoch; -1 if it is not known, or m is NULL; DLP_FOREVER if an
   epoch has no end. Not while refresh runs. */
DLPDEF int64_t dlp_monitor_batches_per_epoch(const dlp_monitor *m);

/* Return the error that a worker or the sampler of the pipe met before the last refresh; code 0:
   none. m: NULL gives code DLP_ERR_ARG. The record is valid until refresh or dlp_monitor_close. */
DLPDEF const dlp_error *dlp_monitor_error(const dlp_monitor *m);

/* Tell which pipe the monitor watches, and whose it is. out: written on DLP_OK. Returns DLP_OK;
   DLP_ERR_ARG. Not while refresh runs. */
DLPDEF int dlp_monitor_about(const dlp_monitor *m, dlp_monitor_info *out);

/* Free the monitor and its copy. m: NULL is fine. */
DLPDEF void dlp_monitor_close(dlp_monitor *m);
