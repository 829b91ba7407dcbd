/* needs: split */
#pragma once
#include "stages/split.h"
#include "build/check.h"
DLPDEF dlp_stage dlp_pipe_add_split(dlp_pipe *p, const dlp_split_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_split_ops, "split", NULL)) == NULL) return dlpi_add_refused(p);
    ((dlpi_split *)st->self)->d = *desc;
    return dlpi_added(p, st, dlpi_split_check(p, st));
}
