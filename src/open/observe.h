#pragma once
#include "build/region_map.h"
#include "core/seen.h"
#include "report/write.h"
/* ---- looking at a pipe ---- */

/* May it be looked at? DLP_OK, or why not. */
static int dlpi_may_look(const dlp_pipe *p) {
    if (!p->started || p->consumer == NULL) return DLP_ERR_STATE;
    return dlpi_forked(p) ? DLP_ERR_FORKED : DLP_OK;
}

DLPDEF int dlp_pipe_stats(dlp_pipe *p, dlp_stats *out) {
    dlpi_seen s;
    int rc = p == NULL || out == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_all(p, &s);
    dlpi_stats(&s, out);
    return DLP_OK;
}

DLPDEF int dlp_pipe_worker_stats(dlp_pipe *p, uint32_t i, dlp_worker_stats *out) {
    dlpi_seen s;
    int rc = p == NULL || out == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    if (i >= (uint32_t)p->n_workers) return DLP_ERR_ARG;
    dlpi_seen_pipe(p, &s);
    dlpi_worker_stats(&s, i, out);
    return DLP_OK;
}

DLPDEF int dlp_pipe_skips(dlp_pipe *p, dlp_skip *out, int max, uint64_t *total) {
    dlpi_seen s;
    int rc = p == NULL || max < 0 || (out == NULL && max > 0) ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_pipe(p, &s);
    return dlpi_skips(&s, out, max, total);
}

DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size) {
    dlpi_seen s;
    int rc = p == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_all(p, &s);
    return dlpi_explain(&s, buf, size);
}

DLPDEF int dlp_pipe_trace_lanes(const dlp_pipe *p) {
    if (p == NULL) return DLP_ERR_ARG;
    return p->started ? p->n_workers + 1 : DLP_ERR_STATE;
}

DLPDEF int dlp_pipe_trace(dlp_pipe *p, int lane, dlp_trace_event *out, int max, char *name) {
    dlpi_seen s;
    int rc = p == NULL || max < 0 || (out == NULL && max > 0) ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    if (lane < 0 || lane > p->n_workers) return DLP_ERR_ARG;
    dlpi_seen_pipe(p, &s);
    return dlpi_trace_lane(&s, (uint32_t)lane, out, max, name);
}

DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path) {
    dlpi_seen s;
    int rc = p == NULL || path == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_pipe(p, &s);
    return dlpi_write_trace(&s, path);
}

DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path) {
    dlpi_seen s;
    int rc = p == NULL || path == NULL ? DLP_ERR_ARG : dlpi_may_look(p);
    if (rc != DLP_OK) return rc;
    dlpi_seen_all(p, &s);
    return dlpi_write_timeline(&s, path);
}
