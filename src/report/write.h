#pragma once
#include "report/trace.h"
#include "report/timeline.h"
#include "report/explain.h"
/* ---- of a pipe ---- */

static void dlpi_lanes_free(dlpi_lane *lanes, int n) {
    for (int i = 0; i < n; i++) { free((void *)lanes[i].events); }
    free(lanes);
}

/* Copy one lane's events. Their number is not known beforehand: ask again with more room until
   some is left. */
static int dlpi_lane_take(dlp_pipe *p, int i, dlpi_lane *lane) {
    for (int room = 256;; room *= 4) {
        dlp_trace_event *events = malloc((size_t)room * sizeof *events);
        if (events == NULL) { return DLP_ERR_MEMORY; }
        int n = dlp_pipe_trace(p, i, events, room, lane->name);
        if (n >= 0 && (n < room || room >= 1 << 22)) {
            lane->events = events;
            lane->n = n;
            return DLP_OK;
        }
        free(events);
        if (n < 0) { return n; }
    }
}

static int dlpi_lanes_take(dlp_pipe *p, dlpi_lane **out, int *n_out) {
    int n = dlp_pipe_trace_lanes(p), rc = DLP_OK;
    if (n < 0) { return n; }
    dlpi_lane *lanes = calloc((size_t)n + 1, sizeof *lanes);
    if (lanes == NULL) { return DLP_ERR_MEMORY; }
    for (int i = 0; i < n && rc == DLP_OK; i++) {
        dlp_worker_stats w;
        lanes[i].group =
            i == 0 || dlp_pipe_worker_stats(p, (uint32_t)(i - 1), &w) != DLP_OK ? -1 : w.stage;
        rc = dlpi_lane_take(p, i, &lanes[i]);
    }
    if (rc != DLP_OK) {
        dlpi_lanes_free(lanes, n);
        return rc;
    }
    *out = lanes;
    *n_out = n;
    return DLP_OK;
}

/* For the eye: stages as they were added, from top to bottom. Part workers are numbered last, which
   is not their place. */
static void dlpi_lanes_sort(dlpi_lane *lanes, int n) {
    for (int i = 1; i < n; i++) {
        dlpi_lane lane = lanes[i];
        int at = i;
        for (; at > 0 && lanes[at - 1].group > lane.group; at--) { lanes[at] = lanes[at - 1]; }
        lanes[at] = lane;
    }
}

/* What workers wait for, in their own words. */
static void dlpi_explain_waits(dlpi_text *t, const dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++) {
        const dlpi_stage *st = &p->stages[i];
        char line[256];
        if (st->w.tell && st->w.tell(st->w.worker_user, line, sizeof line) > 0)
            dlpi_text_add(t, "Waits: stage '%.31s': %s.\n", st->name, line);
    }
}

DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    dlp_stats s;
    int rc = dlp_pipe_stats(p, &s);
    if (rc >= 0) rc = dlp_stats_explain(&s, buf, size);
    if (rc < 0) return rc;
    t.len = (size_t)rc;
    dlpi_explain_waits(&t, p);
    return t.len < INT_MAX ? (int)t.len : INT_MAX;
}

DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path) {
    dlpi_lane *lanes;
    int n, rc = p == NULL || path == NULL ? DLP_ERR_ARG : dlpi_lanes_take(p, &lanes, &n);
    if (rc != DLP_OK) { return rc; }
    rc = dlpi_lanes_write_trace(lanes, n, path);
    dlpi_lanes_free(lanes, n);
    return rc;
}

DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path) {
    dlp_stats s;
    dlpi_lane *lanes;
    int n, rc = p == NULL || path == NULL ? DLP_ERR_ARG : dlp_pipe_stats(p, &s);
    if (rc == DLP_OK) { rc = dlpi_lanes_take(p, &lanes, &n); }
    if (rc != DLP_OK) { return rc; }
    dlpi_lanes_sort(lanes, n);
    rc = dlpi_lanes_write_timeline(lanes, n, &s, path);
    dlpi_lanes_free(lanes, n);
    return rc;
}
