/* needs: guard */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>guard      ITEMS WHOSE NUMBERS ARE NOT WHAT THEY SHOULD BE
   A 1:1 stage of items, where an item map may stand: it looks at every element of chosen fields and
   changes none. An item with a NaN, an infinity or a number out of range fails by the stage's
   on_error, with a message that names field, element and value. What was found is counted, each
   item once however its workers die: the first of its elements that is wrong, in the order of the
   desc's fields. What takes its place (DLP_ON_ERROR_REPLACE) is another item. */

typedef struct dlp_guard_field {
    const char *name;  /* of a field of the dataset, or of scratch in front of it; required */
    double low, high;  /* both 0: any number; compared as double */
    int32_t allow_nan; /* 1: NaN is no failure */
    int32_t allow_inf; /* 1: infinities are none, whatever the range */
} dlp_guard_field;

/* A node (>>graph) that looks at fields of items. */
typedef struct dlp_node_guard {
    const dlp_guard_field *fields; /* [n_fields], required; copied, their names too */
    uint32_t n_fields;
} dlp_node_guard;

/* Items that failed. In dlp_stage_stats.own, of all fields together, in this order. */
typedef struct dlp_guard_stats {
    uint64_t nan, inf, below, above;
} dlp_guard_stats;

/* Read what a guard counted in one of its fields.
   field: place in the desc - returns DLP_OK, DLP_ERR_ARG (no guard, no such field), DLP_ERR_STATE
   (not started) - any thread - does not wait. */
DLPDEF int dlp_pipe_guard_stats(dlp_pipe *p, dlp_stage guard, uint32_t field, dlp_guard_stats *out);
