#pragma once
/* tests: system/core/pipe_badinput */
#include "build/check.h"
#include "stages/batch.h"
#include "stages/fetch.h"
#include "stages/lists.h" /* needs: lists */
#include "stages/map.h"
#include "stages/sampler.h"
static dlp_stage dlpi_add_sampler(dlp_pipe *p, const dlp_sampler_desc *desc) {
    const dlpi_stage_ops *ops = &dlpi_sampler_ops;
    const bool lists = desc->order == DLP_ORDER_BATCHES;
    dlpi_stage *st;
#ifdef DLPIPE_NO_LISTS
    if (lists)
        return dlpi_bad(p, p->node, "list.order",
                        "another order than DLP_ORDER_BATCHES with DLPIPE_NO_LISTS; compile "
                        "without it",
                        desc->order);
#endif
    if (lists) ops = &dlpi_lists_ops; /* needs: lists */
    if ((st = dlpi_add(p, ops, "sampler", NULL)) == NULL) return p->err.code;
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

/* Add a fetch stage. Returns a stage number or a DLP_ERR code. If the dataset has a filter, the
   stage added before must make items. */
static dlp_stage dlpi_add_fetch(dlp_pipe *p, const dlp_source *desc) {
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
