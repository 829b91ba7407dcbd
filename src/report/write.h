#pragma once
/* tests: system/report/pictures, system/core/pipe_fault, system/shm/monitor */
#include "report/stats.h"
#include "report/trace.h"
#include "report/timeline.h"
#include "report/explain.h"
/* ---- of what is seen ---- */

/* Copy all lanes, and into *events their newest events, of which each lane has room for as many as
   its ring. Both are to be freed, also after an error. */
static int dlpi_lanes_take(const dlpi_seen *s, dlpi_lane **lanes, dlp_trace_event **events) {
    const size_t n = (size_t)s->n_workers + 1;
    const size_t room = s->trace_events < 1u << 22 ? s->trace_events : 1u << 22;
    *lanes = calloc(n, sizeof **lanes);
    *events = malloc((n * room + 1) * sizeof **events);
    if (*lanes == NULL || *events == NULL) return DLP_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        dlpi_lane *lane = &(*lanes)[i];
        lane->group = i == 0 ? -1 : (int)(dlpi_seen_owner(s, i - 1) - s->stages);
        lane->events = *events + i * room;
        lane->n = dlpi_trace_lane(s, i, *events + i * room, (int)room, lane->name);
    }
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

/* Write a trace or a timeline. with: its curves and its window. */
static int dlpi_write_picture(const dlpi_seen *s, const dlpi_picture *with, dlpi_pen *pen,
                              const char *path) {
    dlpi_picture p = *with;
    dlp_stats stats;
    dlpi_lane *lanes;
    dlp_trace_event *events;
    int rc = dlpi_lanes_take(s, &lanes, &events);
    if (rc == DLP_OK) {
        dlpi_stats(s, &stats);
        p.n_lanes = (int)s->n_workers + 1;
        if (pen == dlpi_svg_write) dlpi_lanes_sort(lanes, p.n_lanes);
        p.lanes = lanes;
        p.stats = &stats;
        rc = dlpi_picture_write(&p, pen, path);
    }
    free(events);
    free(lanes);
    return rc;
}
