/* needs: pictures */
#pragma once
#include "api/stats.h"
/* ---- pictures of a pipe (>>stats) ---- */

/* Write the trace as Chrome trace-event JSON (trace; for Perfetto), or as one self-contained SVG of
   the newest stretch (timeline).
   path: borrowed. A new or regular file is written as path.tmp and renamed. Anything else (device,
   pipe, link) is written in place, unless another user put it into a directory where all may write.
   err: written on failure, may be NULL; its message names the path.
   Returns DLP_OK, DLP_ERR_ARG, DLP_ERR_MEMORY, DLP_ERR_SYSTEM (errnum, and errno), or an error of
   dlp_pipe_trace. After a failure the old file is there as it was.
   Any thread. Allocates for the length of the call, and writes a file, so call it outside of
   training steps. Source: Trace Event Format (the Chromium project's document of that name). */
DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path, dlp_error *err);
DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path, dlp_error *err);

/* Which stretch of time a picture shows. */
enum {
    DLP_WINDOW_NEWEST = 0, /* the newest stretch that all lanes have recorded, as in
                              dlp_pipe_write_timeline */
    DLP_WINDOW_TIME,       /* from..to: ns since start; to 0: to the end */
    DLP_WINDOW_BATCHES,    /* from..to: sequences of batches. Begins when next begins to wait for
                              the first; ends with the step of the last */
    DLP_WINDOW_EPOCH,      /* from: number of the epoch; all its batches, as with the row above */
    DLP_WINDOW_STALL       /* the longest wait of next, without the one for the first batch. from:
                              ns before and after it; 0: as long as the wait was */
};
typedef struct dlp_trace_window {
    int32_t what; /* DLP_WINDOW_* */
    int32_t pad0;
    uint64_t from, to;
} dlp_trace_window;

/* Write the timeline of a chosen stretch, as an SVG. Events that the rings have overwritten are
   drawn as not recorded. For a picture of the first epoch call this when that epoch is over, or
   make trace_bytes large enough. If nothing of the stretch is recorded, the picture says so.
   path, err: as in dlp_pipe_write_timeline; window: NULL: the newest stretch.
   Returns as dlp_pipe_write_timeline. DLP_ERR_ARG, too, if there is no such window, or to is below
   from; with DLP_WINDOW_TIME also if they are equal. */
DLPDEF int dlp_pipe_write_window(dlp_pipe *p, const char *path, const dlp_trace_window *window,
                                 dlp_error *err);

/* Draw a plan as one self-contained SVG. Boxes are the stages, and the consumer: name, what the
   stage does, workers. Arrows are the links: kind, records, bytes, writers and readers. A dashed
   arrow is the way of data that lie in cells. A stage without a link sticks to the box above it.
   The box "copy into rows" is the stage that copies the items of makers; its name stands below.
   plan: of dlp_pipe_plan, or of dlp_nodes_plan, so nothing must run; path, err: as in
   dlp_pipe_write_timeline.
   Returns DLP_OK, DLP_ERR_ARG (plan or path is NULL, or it is no plan), DLP_ERR_MEMORY,
   DLP_ERR_SYSTEM.
   Any thread. Allocates for the length of the call, and writes a file. */
DLPDEF int dlp_pipe_write_graph(const dlp_plan *plan, const char *path, dlp_error *err);
