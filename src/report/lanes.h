/* needs: pictures */
#pragma once
/* tests: system/report/pictures */
#include "api/pictures.h"
#include "report/text.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-pictures   TRACE, TIMELINE, PICTURES
   These functions draw pictures of statistics and traces, and write them into files. They run on no
   hot path, and may allocate memory during a call. */

/* One lane of a trace: a worker's events in the order of time. group: stage, -1 for the consumer.
   */
typedef struct dlpi_lane {
    char name[32];
    int group;
    const dlp_trace_event *events;
    int n;
} dlpi_lane;

enum { DLPI_EVENT_KINDS = DLP_TRACE_BLOCKED + 1 };

/* What events are called in a trace and in a picture, and their colour there. */
static const struct {
    const char *name, *words;
    char colour;
} dlpi_event_kinds[DLPI_EVENT_KINDS] = {{"other", "", 0},
                                        {"work", "work", 'w'},
                                        {"wait", "waiting", 'q'},
                                        {"step", "step", 'w'},
                                        {"epoch", "between epochs", 'e'},
                                        {"starved", "starved", 's'},
                                        {"blocked", "blocked", 'b'}};

typedef struct dlpi_sample {
    uint64_t at_ns;
    double value;
} dlpi_sample;

/* What pictures show of a counter. */
typedef struct dlpi_curve {
    char name[32], unit[12];
    double most; /* 0: the largest value shown */
    dlpi_sample *samples;
    uint64_t n;
} dlpi_curve;

/* What a trace or a picture is made of. */
typedef struct dlpi_picture {
    const dlpi_lane *lanes;
    int n_lanes;
    const dlpi_curve *curves;
    int n_curves;
    const dlp_stats *stats;         /* NULL: not known */
    const dlp_trace_window *window; /* NULL: the newest stretch */
    const dlp_plan *plan;           /* of the picture of a plan, which has nothing else */
} dlpi_picture;
