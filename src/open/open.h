#pragma once
/* tests: system/core/pipe_basic, system/core/any_thread, system/build/pipe_plan */
#include "build/check.h"
#include "open/beside.h"
#include "deliver/whole.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-public     THE PUBLIC CALLS */

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

/* Return the name of the first field of a pipe's desc that is set, and that items of known count do
   not use. Returns NULL if none is set. */
static const char *dlpi_run_given(const dlp_pipe_desc *d) {
    static const dlpi_bound none[] = {
        {DLPI_ZERO(dlp_pipe_desc, streams)}, {DLPI_ZERO(dlp_pipe_desc, steps_per_epoch)},
        {DLPI_ZERO(dlp_pipe_desc, uneven)},  {DLPI_ZERO(dlp_pipe_desc, shared_streams)},
        {DLPI_ZERO(dlp_pipe_desc, agree)},   {DLPI_ZERO(dlp_pipe_desc, agree_user)},
    };
    const dlpi_bound *b = dlpi_out_of_bounds(d, DLPI_ROWS(none));
    return b != NULL ? b->field : NULL;
}

/* Check the numbers of the pipe's desc, and copy the user's counters. Returns DLP_OK, or the code
   of the pipe's error. */
static int dlpi_check_pipe(dlp_pipe *p) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_pipe_desc, prefetch_factor), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_pipe_desc, max_held), 0, 256, "0..256"},
        {DLPI_AT(dlp_pipe_desc, unordered), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pipe_desc, close_timeout_ms), DLP_FOREVER, INT32_MAX,
         "DLP_NOWAIT, DLP_FOREVER, or 0 and more"},
        {DLPI_AT(dlp_pipe_desc, trace_bytes), 0, 64 << 20, "0..67108864"},
        {DLPI_AT(dlp_pipe_desc, no_memfd), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pipe_desc, n_counters), 0, DLP_MAX_COUNTERS, "0..8"},
        {DLPI_AT(dlp_pipe_desc, later), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pipe_desc, trace_rows), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pipe_desc, stall_ms), DLP_FOREVER, INT32_MAX,
         "DLP_NONE, DLP_FOREVER, or 0 and more"},
    };
    int rc = dlpi_check_bounds(p, "", &p->d, DLPI_ROWS(bounds));
    if (rc == DLP_OK)
        rc = dlpi_check_pair(p, "", "counters", p->d.counters, "n_counters", p->d.n_counters);
    for (uint32_t i = 0; rc == DLP_OK && i < p->d.n_counters; i++) {
        dlpi_counter *to = &p->counters[i];
        dlpi_copy_text(to->name, sizeof to->name, p->d.counters[i].name);
        dlpi_copy_text(to->unit, sizeof to->unit, p->d.counters[i].unit);
        to->most = p->d.counters[i].most;
        if (to->name[0] == 0 || !(to->most >= 0))
            rc = dlpi_refuse(p, DLP_ERR_ARG, "", "counters",
                             "counters[%" PRIu32 "] needs a name, and most of 0 or more", i);
    }
    return rc != DLP_OK ? rc : p->beside->open(p);
}

/* Allocate a pipe without stages in *out, with a copy of desc (may be NULL), and check the desc.
   Returns 0 or a DLP_ERR code; the error is then in *err. */
static int dlpi_pipe_make(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err) {
    dlp_pipe *p;
    int rc;
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
    dlpi_roles_begin(p, &dlpi_whole);
    if ((rc = dlpi_check_pipe(p)) != DLP_OK) {
        if (err) *err = p->err;
        free(p);
        return rc;
    }
    *out = p;
    return DLP_OK;
}

DLPDEF int dlp_stage_resolved(const dlp_pipe *p, dlp_stage stage, dlp_workers_desc *out) {
    const dlpi_stage *st;
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->started && p->err.code != 0) return p->err.code;
    if (!p->started && p->n_slots == 0) return DLP_ERR_STATE;
    if (stage < 0 || stage >= p->n_stages) return DLP_ERR_ARG;
    st = &p->stages[stage];
    *out = st->w;
    out->num_workers = st->begin == 0 ? DLP_NONE : st->begin; /* w has room for workers_max */
    out->name = st->name;
    return DLP_OK;
}
