#pragma once
/* tests: system/core/pipe_ragged, system/core/topologies */
#include "fail/check.h"
#include "work/recover.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-batch      THE BATCH STAGE
   It has workers only where there is a collate, or where batch workers are asked for. */

/* Refuse callbacks of workers, and a range of workers, if the stage has no workers: it has neither
   a collate nor batch_workers. Returns 0 or a DLP_ERR code. A warning tells of other fields that
   are not used (dlpi_live_idle). */
static int dlpi_batch_idle_check(dlp_pipe *p, dlpi_stage *st, const dlp_batch_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_workers_desc, workers_min), 0, 0, "0 without a collate or batch workers"},
        {DLPI_AT(dlp_workers_desc, workers_max), 0, 0, "0 without a collate or batch workers"},
    };
    const dlp_workers_desc *w = &st->w;
    const char *called = w->worker_init   ? "worker_init"
                         : w->worker_exit ? "worker_exit"
                         : w->tell        ? "tell"
                                          : NULL;
    if (d->collate != NULL || d->batch_workers > 0) return DLP_OK;
    if (called != NULL)
        return dlpi_not_null(p, st->name, called, "without a collate or batch workers");
    return dlpi_check_bounds(p, st->name, w, DLPI_ROWS(bounds));
}

static int dlpi_batch_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_batch_desc, batch_size), 1, 1 << 20, "1..1048576"},
        {DLPI_AT(dlp_batch_desc, last), 0, 2, "DLP_LAST_*"},
        {"workers.num_workers", DLPI_IN(dlp_batch_desc, batch_workers), DLP_NONE, DLP_MAX_WORKERS,
         "DLP_NONE or 0..1024 (a loader: batch_workers)"},
    };
    const dlp_batch_desc *d = st->self;
    bool own = d->out_fields != NULL;
    dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (own && d->collate == NULL) dlpi_not_null(p, st->name, "out_fields", "without a collate");
    dlpi_within(p, st->name, "n_out_fields", d->n_out_fields, own, own ? DLP_MAX_FIELDS : 0,
                own ? "1..16" : "0 without out_fields");
    if (d->workers.num_workers != 0 && d->workers.num_workers != d->batch_workers)
        dlpi_bad(p, st->name, "workers.num_workers", "0: batch_workers says it",
                 d->workers.num_workers);
    st->w.num_workers = d->batch_workers > 0 ? d->batch_workers : 0;
    p->global_batch = d->batch_size;
    p->last = d->last;
    if (p->err.code != 0 || dlpi_batch_idle_check(p, st, d) != DLP_OK) return p->err.code;
    return dlpi_check_batch_workers(p, st);
}

/* Batch workers that nobody asked for: beyond so many a collate is no longer what is slow, and as
   processes they would be forked by the thousand. */
#define DLPI_COLLATORS 64

/* Set how many workers the stage begins with. Returns true if it has work for them. */
DLPI_COLD static bool dlpi_batch_staff(dlp_pipe *p, dlpi_stage *st) {
    const dlp_batch_desc *b = st->self;
    st->begin = b->batch_workers > 0 ? b->batch_workers : 0;
    if (b->batch_workers == 0 && b->collate && p->fetch->w.num_workers > 0)
        st->begin = p->prefetch < DLPI_COLLATORS ? (int)p->prefetch : DLPI_COLLATORS;
    st->w.num_workers = st->begin;
    return b->collate != NULL || b->batch_workers > 0;
}

DLPI_COLD static int32_t dlpi_batch_foretold(const dlp_predict_desc *d) { return d->batch_workers; }

static const dlpi_stage_ops dlpi_batch_ops = {
    .kind = DLP_STAGE_BATCH,
    .rank = 7,
    .at = offsetof(dlp_pipe, batcher),
    .self_bytes = sizeof(dlp_batch_desc),
    .foretold = dlpi_batch_foretold,
    DLPI_OPS_OF_BATCHES,
    .words = {.more = "batch_workers", .out = "batch_workers = 1"},
    .staff = dlpi_batch_staff,
    .call = dlpi_collate_call,
};
