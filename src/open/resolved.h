#pragma once
/* tests: system/build/pipe_plan */
#include "stages/fetch.h"
#include "stages/transfer.h"
#include "build/check.h"
/* ---- what was taken for zeros ---- */

static int dlpi_is_resolved(const dlp_pipe *p, const void *out) {
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (p->started) return DLP_OK;
    if (p->err.code != 0) return p->err.code;
    return p->n_slots > 0 ? DLP_OK : DLP_ERR_STATE;
}

DLPDEF int dlp_pipe_resolved(const dlp_pipe *p, dlp_pipe_desc *out) {
    int rc = dlpi_is_resolved(p, out);
    if (rc != DLP_OK) return rc;
    *out = p->d;
    out->prefetch_factor = (int32_t)p->prefetch;
    out->max_held = (int32_t)p->max_held;
    if (out->close_timeout_ms == 0) out->close_timeout_ms = 5000;
    return DLP_OK;
}

static void dlpi_workers_resolved(const dlpi_stage *st, dlp_workers_desc *out) {
    *out = st->w;
    out->num_workers = st->begin; /* w has room for workers_max */
    if (out->num_workers == 0) out->num_workers = DLP_NONE;
    out->name = st->name;
}

DLPDEF int dlp_stage_resolved(const dlp_pipe *p, dlp_stage stage, dlp_workers_desc *out) {
    int rc = dlpi_is_resolved(p, out);
    if (rc != DLP_OK) return rc;
    if (stage < 0 || stage >= p->n_stages) return DLP_ERR_ARG;
    dlpi_workers_resolved(&p->stages[stage], out);
    return DLP_OK;
}

DLPDEF int dlp_sampler_resolved(const dlp_pipe *p, dlp_sampler_desc *out) {
    int rc = dlpi_is_resolved(p, out);
    if (rc != DLP_OK) return rc;
    *out = *dlpi_sampler_of(p);
    out->threaded = p->sampler->w.num_workers;
    out->samples_per_epoch = p->samples;
    out->world_size = (uint32_t)p->world;
    return DLP_OK;
}

DLPDEF int dlp_repeat_resolved(const dlp_pipe *p, dlp_repeat_desc *out) {
    int rc = dlpi_is_resolved(p, out);
    if (rc != DLP_OK) return rc;
    *out = *p->repeat;
    if (out->epochs == 0) out->epochs = 1;
    return DLP_OK;
}

DLPDEF int dlp_fetch_resolved(const dlp_pipe *p, dlp_fetch_desc *out) {
    int rc = dlpi_is_resolved(p, out);
    if (rc != DLP_OK) return rc;
    *out = ((const dlpi_fetch *)p->fetch->self)->d;
    out->dataset = p->fetch->dataset;
    out->in_flight = (int32_t)dlpi_at_once(p->fetch);
    dlpi_workers_resolved(p->fetch, &out->workers);
    return DLP_OK;
}

DLPDEF int dlp_batch_resolved(const dlp_pipe *p, dlp_batch_desc *out) {
    int rc = dlpi_is_resolved(p, out);
    if (rc != DLP_OK) return rc;
    *out = *(const dlp_batch_desc *)p->batcher->self;
    out->batch_workers = p->batcher->w.num_workers;
    if (out->batch_workers == 0) out->batch_workers = DLP_NONE;
    dlpi_workers_resolved(p->batcher, &out->workers);
    return DLP_OK;
}

DLPDEF int dlp_transfer_resolved(const dlp_pipe *p, dlp_transfer_desc *out) {
    int rc = dlpi_is_resolved(p, out);
    if (rc != DLP_OK) return rc;
    if (p->sink_stage == NULL) return DLP_ERR_ARG;
    *out = dlpi_transfer_of(p->sink_stage)->d;
    out->device = &dlpi_transfer_of(p->sink_stage)->device;
    return DLP_OK;
}
