/* needs: pictures */
#pragma once
#include "api/pictures.h"
#include "api/shm_monitor.h"
/* Pictures of a monitored pipe, of the moment of the last refresh. Parameters and results are those
   of dlp_pipe_write_trace and the calls beside it. The user's counters have no curves. Any thread,
   but not while refresh runs. They allocate for the length of the call. */
DLPDEF int dlp_monitor_write_trace(const dlp_monitor *m, const char *path);
DLPDEF int dlp_monitor_write_timeline(const dlp_monitor *m, const char *path);
DLPDEF int dlp_monitor_write_window(const dlp_monitor *m, const char *path,
                                    const dlp_trace_window *window);
