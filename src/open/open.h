#pragma once
#include "build/check.h"
#include "core/beside.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-public     THE PUBLIC CALLS */

DLPDEF int dlp_pipe_open(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err) {
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
    if (p->d.resume) {
        p->resume = *p->d.resume;
        p->d.resume = &p->resume;
    }
    p->cpus = dlpi_cpu_count();
    p->max_kills = 3;
    dlpi_beside_take(p);
    if ((rc = dlpi_check_pipe(p)) != DLP_OK) {
        if (err) *err = p->err;
        free(p);
        return rc;
    }
    *out = p;
    return DLP_OK;
}
