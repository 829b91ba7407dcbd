/* needs: pictures */
#pragma once
/* tests: system/shm/monitor */
#include "report/pictures.h"
#include "shm/public.h"
/* ---- pictures of a monitored pipe ---- */

DLPDEF int dlp_monitor_write_trace(const dlp_monitor *m, const char *path) {
    if (m == NULL || path == NULL) return DLP_ERR_ARG;
    return dlpi_write_picture(&m->seen, &(dlpi_picture){0}, dlpi_json_write, path);
}

DLPDEF int dlp_monitor_write_window(const dlp_monitor *m, const char *path,
                                    const dlp_trace_window *window) {
    if (m == NULL || path == NULL || !dlpi_stretch_good(window)) return DLP_ERR_ARG;
    return dlpi_write_picture(&m->seen, &(dlpi_picture){.window = window}, dlpi_svg_write, path);
}

DLPDEF int dlp_monitor_write_timeline(const dlp_monitor *m, const char *path) {
    return dlp_monitor_write_window(m, path, NULL);
}
