/* needs: tune */
#pragma once
/* tests: system/core/tuning */
#include "build/check.h"
#include "work/tune.h"
/* ---- a public call: how many workers work ---- */

DLPDEF int dlp_pipe_set_workers(dlp_pipe *p, dlp_stage stage, int n) {
    dlpi_stage *st;
    if (p == NULL) return DLP_ERR_ARG;
    if (!p->started || p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (stage < 0 || stage >= p->n_stages) return DLP_ERR_ARG;
    st = &p->stages[stage];
    return dlpi_tune_ask(p, st, n);
}
