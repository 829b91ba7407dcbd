/* needs: out */
#pragma once
/* tests: system/core/outs, system/shm/shm_outs */
#include "build/close.h"
#include "stages/out.h"
/* ---- outs beside the first: public calls ---- */

DLPI_COLD DLPDEF int dlp_out_find(dlp_pipe *p, const char *name, dlp_out **out) {
    dlpi_stage *st;
    dlp_out *o;
    if (p == NULL || name == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->started || p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    st = dlpi_out_from(p, 0);
    while (st != NULL && strcmp(st->name, name) != 0) st = dlpi_out_from(p, st->id + 1);
    if (st == NULL) return DLP_ERR_ARG;
    o = st->self;
    if (o->found) return DLP_ERR_STATE;
    o->found = true;
    dlpi_outs_users(p, 1);
    *out = o;
    return DLP_OK;
}

DLPDEF int dlp_out_next(dlp_out *out, dlp_batch **batch, int timeout_ms) {
    if (out == NULL || batch == NULL) return DLP_ERR_ARG;
    if (dlpi_forked(out->p)) return DLP_ERR_FORKED;
    return dlpi_subscriber_next(&out->c, batch, timeout_ms);
}

DLPDEF int dlp_out_release(dlp_out *out, dlp_batch *batch) {
    const dlpi_loan *loan = (const dlpi_loan *)(const void *)batch;
    int rc;
    if (out == NULL || batch == NULL) return DLP_ERR_ARG;
    if (dlpi_forked(out->p)) return DLP_ERR_FORKED;
    rc = dlpi_subscriber_release(&out->c, batch);
    if (rc == DLP_OK) DLPI_STORE_RLX(&out->holds[loan - out->c.loans], UINT64_C(0)); /* people */
    return rc;
}

DLPDEF uint64_t dlp_out_missed(const dlp_out *out) { return out != NULL ? out->c.missed : 0; }

DLPI_COLD DLPDEF void dlp_out_close(dlp_out *out) {
    if (out == NULL || dlpi_forked(out->p)) return;
    for (uint32_t i = 0; i < out->capacity; i++)
        DLPI_STORE_RLX(&out->holds[i], UINT64_C(0)); /* for people */
    dlpi_subscriber_leave(&out->c);
    if (dlpi_outs_leave(out->p)) dlpi_free_all(out->p);
}
