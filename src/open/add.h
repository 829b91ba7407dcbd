#pragma once
/* tests: system/core/pipe_badinput */
#include "build/check.h"
#include "stages/batch.h"
#include "stages/fetch.h"
#include "stages/lists.h"
#include "stages/map.h"
#include "stages/sampler.h"
#include "stages/transfer.h"
static dlp_stage dlpi_add_sampler(dlp_pipe *p, const dlp_sampler_desc *desc) {
    dlpi_stage *st = dlpi_add(
        p, desc->order == DLP_ORDER_BATCHES ? &dlpi_lists_ops : &dlpi_sampler_ops, "sampler", NULL);
    if (st == NULL) return p->err.code;
    *(dlp_sampler_desc *)st->self = *desc;
    st->w.num_workers = desc->threaded;
    return dlpi_added(p, st, DLP_OK);
}

static dlp_stage dlpi_add_repeat(dlp_pipe *p) {
    dlpi_stage *st = dlpi_add(p, &dlpi_repeat_ops, "repeat", NULL);
    if (st == NULL) return p->err.code;
    return dlpi_added(p, st, dlpi_repeat_check(p));
}

/* True if the stage added last makes items of what fetch writes. */
static bool dlpi_last_expands(const dlp_pipe *p) {
    return p->n_stages > 0 && p->stages[p->n_stages - 1].ops->expands;
}

static dlp_stage dlpi_add_fetch(dlp_pipe *p, const dlp_fetch_desc *desc) {
    dlpi_stage *st;
    int rc;
    st = dlpi_add(p, dlpi_fetch_ops_of(desc), "fetch", &desc->workers);
    if (st == NULL) return p->err.code;
    if ((rc = dlpi_fetch_take(p, st, desc)) != DLP_OK) return rc;
    if (st->dataset->filter && !dlpi_last_expands(p))
        return dlpi_bad(p, st->name, "dataset.filter", "0: no row before this one makes items",
                        st->dataset->filter);
    return dlpi_added(p, st, dlpi_open_end_take(p, st));
}

static dlp_stage dlpi_add_map(dlp_pipe *p, const dlpi_map_desc *desc) {
    dlpi_stage *st =
        dlpi_add(p, desc->batch ? &dlpi_map_batch_ops : &dlpi_map_item_ops, "map", &desc->workers);
    if (st == NULL) return p->err.code;
    st->item = desc->item;
    st->batch = desc->batch;
    st->user = desc->user;
    return dlpi_added(p, st, dlpi_map_check(p, st));
}

static dlp_stage dlpi_add_batch(dlp_pipe *p, const dlp_batch_desc *desc) {
    dlp_batch_desc *d;
    dlpi_stage *st;
    int rc;
    if ((st = dlpi_add(p, &dlpi_batch_ops, "batch", &desc->workers)) == NULL) return p->err.code;
    d = st->self;
    *d = *desc;
    st->collate = desc->collate;
    st->user = desc->collate_user;
    rc = dlpi_batch_check(p, st);
    if (rc == DLP_OK) rc = dlpi_keep_fields(p, st, desc->out_fields, desc->n_out_fields);
    d->out_fields = st->fields;
    return dlpi_added(p, st, rc);
}

static dlp_stage dlpi_add_transfer(dlp_pipe *p, const dlp_transfer_desc *desc) {
    dlpi_stage *st = dlpi_add(p, &dlpi_transfer_ops, "transfer", NULL);
    if (st == NULL) return p->err.code;
    dlpi_transfer_of(st)->d = *desc;
    dlpi_transfer_of(st)->device = desc->device ? *desc->device : *dlp_device_host();
    st->w.num_workers = desc->threaded;
    return dlpi_added(p, st, dlpi_transfer_check(p, st));
}
