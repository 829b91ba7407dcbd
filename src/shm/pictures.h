/* needs: pictures */
#pragma once
/* tests: system/shm/monitor */
#include "report/pictures.h"
#include "shm/public.h"
/* ---- pictures of a monitored pipe ---- */

DLPDEF int dlp_monitor_write_trace(const dlp_monitor *m, const char *path, dlp_error *err) {
    const int rc = dlpi_picture_args("m", m, path, NULL, err);
    if (rc != DLP_OK) return rc;
    return dlpi_write_picture(&m->seen, &(dlpi_picture){0}, dlpi_json_write, path, err);
}

DLPDEF int dlp_monitor_write_window(const dlp_monitor *m, const char *path,
                                    const dlp_trace_window *window, dlp_error *err) {
    const int rc = dlpi_picture_args("m", m, path, window, err);
    if (rc != DLP_OK) return rc;
    return dlpi_write_picture(&m->seen, &(dlpi_picture){.window = window}, dlpi_svg_write, path,
                              err);
}

DLPDEF int dlp_monitor_write_timeline(const dlp_monitor *m, const char *path, dlp_error *err) {
    return dlp_monitor_write_window(m, path, NULL, err);
}
