#pragma once
/* tests: system/core/pipe_badinput */
#include "inputs/check.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-beside     WHAT STANDS BESIDE THE THREADS OF THIS PROCESS
   Worker processes, and other programs that take batches, are parts of dlpipe_shm.h. If a program
   does not include that header, the calls of this file take their place. They refuse a pipe that
   asks for worker processes or other programs. In any other pipe they do nothing. */

#if DLPI_HAS_SHARING
#define DLPI_SHM_NEEDED "needs dlpipe_shm.h, included in the file that has DLPIPE_IMPLEMENTATION"
#else
#define DLPI_SHM_NEEDED \
    "is for Linux without DLPIPE_THREADS_ONLY. This is " DLPI_SYSTEM ", and has worker threads"
#endif

DLPI_COLD static int dlpi_alone_open(dlp_pipe *p) {
    if (p->d.shm == NULL) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_UNSUPPORTED, "", "shm", "dlp_pipe_desc.shm " DLPI_SHM_NEEDED);
}

DLPI_COLD static int dlpi_alone_processes(dlp_pipe *p, const dlpi_stage *st) {
    return dlpi_refuse(p, DLP_ERR_UNSUPPORTED, st->name, "placement",
                       "DLP_PLACE_PROCESSES " DLPI_SHM_NEEDED);
}

static const dlpi_beside_ops dlpi_alone = {
    .open = dlpi_alone_open,
    .processes = dlpi_alone_processes,
    .resolve = dlpi_role_well,
    .layout = dlpi_role_idle,
    .begin = dlpi_role_well,
    .look = dlpi_role_well,
    .nudge = dlpi_role_idle,
    .await = dlpi_role_idle,
    .end = dlpi_role_idle,
};

/* What dlpipe_shm.h gives, where it is included; else NULL. */
static const dlpi_beside_ops *dlpi_shm; /* defined again, with its value, by dlpipe_shm.h */

/* Give a new pipe the functions for worker processes and other programs: those of dlpipe_shm.h, or,
   without it, functions that refuse them. */
static void dlpi_beside_take(dlp_pipe *p) {
    p->beside = dlpi_shm != NULL ? dlpi_shm : &dlpi_alone;
    p->used_at_first = 1;
    p->scheduler_sleep_ns = DLPI_SLEEP_NS;
}
