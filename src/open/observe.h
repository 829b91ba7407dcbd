/* needs: stats */
#pragma once
/* tests: system/report/pipe_stats, system/core/any_thread */
#include "build/region_map.h"
#include "observe/seen.h"
#include "report/stats.h"
#include "report/text.h"
#include "open/count.h"
/* ---- public calls that read the statistics of a pipe ---- */

/* Take a snapshot of the pipe into *s for a call whose own arguments are `right`. all: with the
   figures of each kind of stage. Returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE or DLP_ERR_FORKED. */
static int dlpi_seen_now(const dlp_pipe *p, bool right, bool all, dlpi_seen *s) {
    if (p == NULL || !right) return DLP_ERR_ARG;
    if (!p->started || p->consumer == NULL) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    dlpi_seen_pipe(p, all, s);
    return DLP_OK;
}

DLPDEF int dlp_pipe_stats(dlp_pipe *p, dlp_stats *out) {
    dlpi_seen s;
    int rc = dlpi_seen_now(p, out != NULL, true, &s);
    if (rc == DLP_OK) dlpi_stats(&s, out);
    return rc;
}

DLPDEF int dlp_pipe_worker_stats(dlp_pipe *p, uint32_t i, dlp_worker_stats *out) {
    dlpi_seen s;
    int rc = dlpi_seen_now(p, out != NULL, false, &s);
    if (rc != DLP_OK || i >= s.n_workers) return rc != DLP_OK ? rc : DLP_ERR_ARG;
    dlpi_worker_stats(&s, i, out);
    return DLP_OK;
}

DLPDEF int dlp_pipe_skips(dlp_pipe *p, dlp_skip *out, int max, uint64_t *total) {
    dlpi_seen s;
    int rc = dlpi_seen_now(p, max >= 0 && (out != NULL || max == 0), false, &s);
    return rc == DLP_OK ? dlpi_skips(&s, out, max, total) : rc;
}

DLPDEF int dlp_pipe_trace_lanes(const dlp_pipe *p) {
    if (p == NULL) return DLP_ERR_ARG;
    return p->started ? p->n_workers + 1 : DLP_ERR_STATE;
}

DLPDEF int dlp_pipe_trace(dlp_pipe *p, int lane, dlp_trace_event *out, int max, char *name) {
    dlpi_seen s;
    int rc = dlpi_seen_now(p, max >= 0 && (out != NULL || max == 0), false, &s);
    if (rc == DLP_OK && (lane < 0 || lane > p->n_workers)) rc = DLP_ERR_ARG;
    return rc == DLP_OK ? dlpi_trace_lane(&s, (uint32_t)lane, out, max, name) : rc;
}
