/* needs: join */
#pragma once
/* tests: system/stages/join */
#include "stages/join.h"
#include "build/check.h"
DLPDEF dlp_stage dlp_pipe_add_join(dlp_pipe *p, const dlp_join_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, desc->fetch.fetcher ? &dlpi_join_many_ops : &dlpi_join_ops, "join",
                  &desc->fetch.workers);
    return st == NULL ? dlpi_add_refused(p) : dlpi_added(p, st, dlpi_join_take(p, st, desc));
}
