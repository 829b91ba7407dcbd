#pragma once
/* tests: system/build/pipe_plan, system/stages/parts */
#include "build/check.h"
DLPDEF int dlp_stage_resolved(const dlp_pipe *p, dlp_stage stage, dlp_workers_desc *out) {
    const dlpi_stage *st;
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->started && p->err.code != 0) return p->err.code;
    if (!p->started && p->n_slots == 0) return DLP_ERR_STATE;
    if (stage < 0 || stage >= p->n_stages) return DLP_ERR_ARG;
    st = &p->stages[stage];
    *out = st->w;
    out->num_workers = st->begin == 0 ? DLP_NONE : st->begin; /* w has room for workers_max */
    out->name = st->name;
    return DLP_OK;
}
