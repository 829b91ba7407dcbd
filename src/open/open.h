#pragma once
/* tests: system/core/pipe_basic, system/core/any_thread */
#include "build/check.h"
#include "open/beside.h"
#include "deliver/whole.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-public     THE PUBLIC CALLS */

static void dlpi_counters_copy(dlp_pipe *p) {
    const dlp_counter *c = p->d.counters;
    for (uint32_t i = 0; c && p->d.n_counters <= DLP_MAX_COUNTERS && i < p->d.n_counters; i++) {
        dlpi_copy_text(p->counters[i].name, sizeof p->counters[i].name, c[i].name);
        dlpi_copy_text(p->counters[i].unit, sizeof p->counters[i].unit, c[i].unit);
        p->counters[i].most = c[i].most;
    }
}

/* End an open call. If rc is DLP_OK and out is not NULL the caller gets the pipe in *out. Otherwise
   the pipe is closed, and on failure its error is copied to *err. p, err: or NULL. Returns rc. */
static int dlpi_opened(dlp_pipe **out, dlp_pipe *p, int rc, dlp_error *err) {
    if (rc == DLP_OK && out != NULL) {
        *out = p;
        return rc;
    }
    if (rc != DLP_OK && p && err) *err = p->err;
    dlp_pipe_close(p);
    return rc;
}

#define DLPI_RUN_FROM \
    offsetof(dlp_pipe_desc, streams) /* what holds for the run stands from there */

/* Return the name of the first field of a pipe's desc that is set, and that items of known count do
   not use. Returns NULL if none is set. */
static const char *dlpi_run_given(const dlp_pipe_desc *d) {
    if (d->streams != 0) return "streams";
    if (d->steps_per_epoch != 0) return "steps_per_epoch";
    if (d->uneven != 0) return "uneven";
    if (d->shared_streams != 0) return "shared_streams";
    if (d->agree != NULL) return "agree";
    return d->agree_user != NULL ? "agree_user" : NULL;
}

/* Allocate a pipe without stages in *out, with a copy of desc (may be NULL), and check the desc.
   Returns 0 or a DLP_ERR code; the error is then in *err. */
static int dlpi_pipe_make(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err) {
    dlp_pipe *p;
    int rc;
    if (out == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    p = calloc(1, sizeof *p);
    if (p == NULL) {
        dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the pipe failed");
        if (err) err->errnum = ENOMEM;
        return DLP_ERR_MEMORY;
    }
    p->memfd = p->name_fd = p->err.worker = -1;
    if (desc) p->d = *desc;
    dlpi_copy_text(p->name, sizeof p->name, p->d.name);
    p->d.name = p->name;
    dlpi_counters_copy(p);
    if (p->d.resume) {
        p->resume = *p->d.resume;
        p->d.resume = &p->resume;
    }
    p->cpus = dlpi_cpu_count();
    p->max_kills = 3;
    dlpi_beside_take(p);
    dlpi_roles_begin(p);
    if ((rc = dlpi_check_pipe(p)) != DLP_OK) {
        if (err) *err = p->err;
        free(p);
        return rc;
    }
    *out = p;
    return DLP_OK;
}
