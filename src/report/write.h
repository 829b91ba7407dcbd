#pragma once
/* tests: system/report/pictures, system/core/pipe_fault, system/shm/monitor */
#include "report/stats.h"
#include "report/trace.h"
#include "report/timeline.h"
#include "report/explain.h"
/* ---- of what is seen ---- */

static void dlpi_lanes_free(dlpi_lane *lanes, int n) {
    for (int i = 0; i < n; i++) { free((void *)lanes[i].events); }
    free(lanes);
}

/* Copy one lane's events. Their number is not known beforehand: ask again with more room until
   some is left. */
static int dlpi_lane_take(const dlpi_seen *s, uint32_t i, dlpi_lane *lane) {
    for (int room = 256;; room *= 4) {
        dlp_trace_event *events = malloc((size_t)room * sizeof *events);
        if (events == NULL) { return DLP_ERR_MEMORY; }
        int n = dlpi_trace_lane(s, i, events, room, lane->name);
        if (n < room || room >= 1 << 22) {
            lane->events = events;
            lane->n = n;
            return DLP_OK;
        }
        free(events);
    }
}

static int dlpi_lanes_take(const dlpi_seen *s, dlpi_lane **out, int *n_out) {
    const uint32_t n = s->n_workers + 1;
    int rc = DLP_OK;
    dlpi_lane *lanes = calloc((size_t)n + 1, sizeof *lanes);
    if (lanes == NULL) { return DLP_ERR_MEMORY; }
    for (uint32_t i = 0; i < n && rc == DLP_OK; i++) {
        lanes[i].group = i == 0 ? -1 : (int)(dlpi_seen_owner(s, i - 1) - s->stages);
        rc = dlpi_lane_take(s, i, &lanes[i]);
    }
    if (rc != DLP_OK) {
        dlpi_lanes_free(lanes, (int)n);
        return rc;
    }
    *out = lanes;
    *n_out = (int)n;
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
static void dlpi_explain_waits(dlpi_text *t, const dlpi_seen *s) {
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_seen_stage *st = &s->stages[i];
        char line[256] = ""; /* its end may be missing */
        if (st->tell && st->tell(st->tell_user, line, sizeof line) > 0)
            dlpi_text_add(t, "Waits: stage '%.31s': %.255s.\n", st->name, line);
    }
}

static int dlpi_explain(dlpi_text *t, const dlpi_seen *s) {
    const size_t at = t->len < t->size ? t->len : t->size;
    dlp_stats stats;
    int n;
    dlpi_stats(s, &stats);
    n = dlp_stats_explain(&stats, t->buf ? t->buf + at : NULL, t->size - at);
    if (n < 0) return n;
    t->len += (size_t)n;
    dlpi_explain_waits(t, s);
    return DLP_OK;
}

/* with: its curves, its window. */
static int dlpi_write_trace(const dlpi_seen *s, const dlpi_picture *with, const char *path) {
    dlpi_picture p = *with;
    dlpi_lane *lanes;
    int rc = dlpi_lanes_take(s, &lanes, &p.n_lanes);
    if (rc != DLP_OK) { return rc; }
    p.lanes = lanes;
    rc = dlpi_picture_trace(&p, path);
    dlpi_lanes_free(lanes, p.n_lanes);
    return rc;
}

static int dlpi_write_timeline(const dlpi_seen *s, const dlpi_picture *with, const char *path) {
    dlpi_picture p = *with;
    dlp_stats stats;
    dlpi_lane *lanes;
    int rc;
    dlpi_stats(s, &stats);
    rc = dlpi_lanes_take(s, &lanes, &p.n_lanes);
    if (rc != DLP_OK) { return rc; }
    dlpi_lanes_sort(lanes, p.n_lanes);
    p.lanes = lanes;
    p.stats = &stats;
    rc = dlpi_picture_timeline(&p, path);
    dlpi_lanes_free(lanes, p.n_lanes);
    return rc;
}
