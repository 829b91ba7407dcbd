/* needs: guard */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>guard      ITEMS WHOSE NUMBERS ARE NOT WHAT THEY SHOULD BE
   A guard is a 1:1 stage of items that stands where an item map may stand. It looks at every
   element of chosen fields and changes no element. An item fails, by the stage's on_error, if it
   has a NaN, an infinity, or a number out of range. The message names field, element and value. A
   failed item is counted once, even if workers die: under its first wrong element, in the order of
   the desc's fields. With DLP_ON_ERROR_REPLACE another item replaces it. */

typedef struct dlp_guard_field {
    const char *name;  /* name of a field of the dataset, or of scratch before the guard;
                          required */
    double low, high;  /* least and greatest allowed number, compared as double; both 0: any
                          number */
    int32_t allow_nan; /* 1: NaN is allowed */
    int32_t allow_inf; /* 1: infinities are allowed, whatever the range */
} dlp_guard_field;

/* A node (>>graph) that checks fields of items. */
typedef struct dlp_node_guard {
    const dlp_guard_field *fields; /* [n_fields] fields to check; required; copied with their
                                  names */
    uint32_t n_fields;
} dlp_node_guard;

/* Numbers of failed items. dlp_stage_stats.own has them for all fields together, in this order. */
typedef struct dlp_guard_stats {
    uint64_t nan, inf, below, above;
} dlp_guard_stats;

/* Read how many items a guard has failed for one of its fields.
   field: place in the desc. Returns DLP_OK; DLP_ERR_ARG (the stage is no guard, or has no such
   field); DLP_ERR_STATE (the pipe has not started). Any thread. Does not wait. */
DLPDEF int dlp_pipe_guard_stats(dlp_pipe *p, dlp_stage guard, uint32_t field, dlp_guard_stats *out);
