/* needs: pictures */
#pragma once
/* tests: system/report/pictures, system/shm/monitor */
#include "api/pictures.h"
#include "report/plan_picture.h"
#include "report/stats.h"
#include "report/timeline.h"
#include "report/trace.h"
/* ---- pictures of what is seen ---- */

/* Copy all lanes, and into *events the newest events of each lane. The caller frees both, also
   after an error. Returns 0 or DLP_ERR_MEMORY. */
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

/* Sort the lanes by the stages as they were added, from top to bottom. Part workers have the last
   numbers, which is not their place in a picture. */
static void dlpi_lanes_sort(dlpi_lane *lanes, int n) {
    for (int i = 1; i < n; i++) {
        dlpi_lane lane = lanes[i];
        int at = i;
        for (; at > 0 && lanes[at - 1].group > lane.group; at--) { lanes[at] = lanes[at - 1]; }
        lanes[at] = lane;
    }
}

/* Check the arguments of a call that writes a picture. name: of its first argument, `of`. Returns
   0, or DLP_ERR_ARG and *err. */
static int dlpi_picture_args(const char *name, const void *of, const char *path,
                             const dlp_trace_window *window, dlp_error *err) {
    if (of == NULL || path == NULL) {
        name = of == NULL ? name : "path";
        return dlpi_error_set(err, DLP_ERR_ARG, name, "%s is NULL", name);
    }
    if (dlpi_stretch_good(window)) return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_ARG, "window",
                          "window: no stretch; it needs a DLP_WINDOW_*, and `to` behind `from`");
}

/* Write a trace or a timeline. with: its curves and its window. Returns 0, or a DLP_ERR code and
   *err. */
static int dlpi_write_picture(const dlpi_seen *s, const dlpi_picture *with, dlpi_pen *pen,
                              const char *path, dlp_error *err) {
    dlpi_picture p = *with;
    dlp_stats stats;
    dlpi_lane *lanes;
    dlp_trace_event *events;
    int rc = dlpi_lanes_take(s, &lanes, &events);
    if (rc != DLP_OK) {
        dlpi_picture_error(err, rc, path, 0);
    } else {
        dlpi_stats(s, &stats);
        p.n_lanes = (int)s->n_workers + 1;
        if (pen == dlpi_svg_write) dlpi_lanes_sort(lanes, p.n_lanes);
        p.lanes = lanes;
        p.stats = &stats;
        rc = dlpi_picture_write(&p, pen, path, err);
    }
    free(events);
    free(lanes);
    return rc;
}
