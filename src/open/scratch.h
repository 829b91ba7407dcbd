/* needs: scratch */
#pragma once
/* tests: system/stages/scratch */
#include "stages/scratch.h"
#include "build/check.h"
DLPDEF dlp_stage dlp_pipe_add_scratch(dlp_pipe *p, const dlp_scratch_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, &dlpi_scratch_kind_ops, "scratch", NULL);
    return st == NULL ? dlpi_add_refused(p)
                      : dlpi_added(p, st, dlpi_scratch_take_desc(p, st, desc));
}
