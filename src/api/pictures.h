/* needs: pictures */
#pragma once
#include "api/stats.h"
/* ---- pictures of a pipe (>>stats) ---- */

/* Write the trace as Chrome trace-event JSON (for Perfetto), or as one self-contained SVG of the
   newest stretch. path: borrowed; a new or regular file is written as path.tmp and renamed,
   anything else (device, pipe, link) in place, but not what another user put into a directory that
   all may write to - returns 0, DLP_ERR_ARG, DLP_ERR_MEMORY,
   DLP_ERR_SYSTEM with errno, or dlp_pipe_trace's error; after a failure the old file is there as it
   was - progress: allocates for the length of the call and writes a file; keep it off the step
   path. Source: Trace Event Format (the Chromium project's document of that name). */
DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path);
DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path);

/* The stretch of time that a picture shows. */
enum {
    DLP_WINDOW_NEWEST = 0, /* the newest that all lanes have recorded, as dlp_pipe_write_timeline */
    DLP_WINDOW_TIME,       /* from..to: ns since start; to 0: to the end */
    DLP_WINDOW_BATCHES,    /* from..to: sequences of batches: since next began to wait for the first
                              until the step of the last was over */
    DLP_WINDOW_EPOCH,      /* from: the epoch: likewise, of all its batches */
    DLP_WINDOW_STALL       /* around the longest wait of next; from: ns before and after it; 0: as
                              long as the wait was */
};
typedef struct dlp_trace_window {
    int32_t what; /* DLP_WINDOW_* */
    int32_t pad0;
    uint64_t from, to;
} dlp_trace_window;

/* Write the timeline of a chosen stretch, as dlp_pipe_write_timeline does of the newest. What rings
   have overwritten is drawn as not recorded: for a first epoch write it when that is over, or give
   trace_bytes room for it.
   window: NULL: the newest - returns as dlp_pipe_write_timeline; DLP_ERR_ARG, too: no such window,
   or to is below from. A stretch of which nothing is recorded is a picture that says so. */
DLPDEF int dlp_pipe_write_window(dlp_pipe *p, const char *path, const dlp_trace_window *window);

/* Draw a plan as one self-contained SVG. Boxes are the stages, and the consumer: name, what the
   stage does, workers. Arrows are the links: kind, records, bytes, writers and readers. A dashed
   arrow is the way of data that lie in cells. A stage without a link sticks to the box above it.
   "copy into rows" is the stage that copies what makers have made; its name stands below.
   The plan is of dlp_pipe_plan, or of dlp_nodes_plan, so nothing need run.
   path: as of dlp_pipe_write_timeline.
   Returns DLP_OK, DLP_ERR_ARG (plan or path is NULL), DLP_ERR_MEMORY, DLP_ERR_SYSTEM with errno.
   Any thread. Allocates for the length of the call, and writes a file. */
DLPDEF int dlp_pipe_write_graph(const dlp_plan *plan, const char *path);
