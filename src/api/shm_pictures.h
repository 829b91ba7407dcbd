/* needs: pictures */
#pragma once
#include "api/pictures.h"
#include "api/shm_monitor.h"
/* Write a picture of the pipe as it was at the last refresh. Parameters and results are those of
   dlp_pipe_write_trace, dlp_pipe_write_timeline and dlp_pipe_write_window. Counters of the user
   have no curves. Any thread may call them, but not while refresh runs. They allocate for the
   length of the call. */
DLPDEF int dlp_monitor_write_trace(const dlp_monitor *m, const char *path, dlp_error *err);
DLPDEF int dlp_monitor_write_timeline(const dlp_monitor *m, const char *path, dlp_error *err);
DLPDEF int dlp_monitor_write_window(const dlp_monitor *m, const char *path,
                                    const dlp_trace_window *window, dlp_error *err);
