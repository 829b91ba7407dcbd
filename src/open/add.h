#pragma once
/* tests: system/core/pipe_badinput */
#include "build/check.h"
#include "stages/batch.h"
#include "stages/fetch.h"
#include "stages/lists.h" /* needs: lists */
#include "stages/map.h"
#include "stages/sampler.h"
/* Add the sampler and repeat stages of an order. Returns a stage number or a DLP_ERR code. */
static dlp_stage dlpi_add_sampler(dlp_pipe *p, const dlp_sampler_desc *desc) {
    const dlpi_stage_ops *ops = &dlpi_sampler_ops;
    const bool lists = desc->order == DLP_ORDER_BATCHES;
    dlpi_stage *st;
    int rc;
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
    if ((rc = dlpi_added(p, st, DLP_OK)) < 0) return rc;
    p->node = "repeat";
    if ((st = dlpi_add(p, &dlpi_repeat_ops, "repeat", NULL)) == NULL) return p->err.code;
    return dlpi_added(p, st, dlpi_repeat_check(p));
}

/* Add a fetch stage. Returns a stage number or a DLP_ERR code. If the dataset has a filter, the
   stage added before must make items. */
static dlp_stage dlpi_add_fetch(dlp_pipe *p, const dlp_source *desc) {
    dlpi_stage *st;
    int rc;
    st = dlpi_add(p, dlpi_fetch_ops_of(desc), "fetch", &desc->workers);
    if (st == NULL) return p->err.code;
    if ((rc = dlpi_fetch_take(p, st, desc)) != DLP_OK) return rc;
    if (st->dataset->filter && (p->n_stages == 0 || !st[-1].ops->expands))
        return dlpi_bad(p, st->name, "dataset.filter", "0: no row before this one makes items",
                        st->dataset->filter);
    return dlpi_added(p, st, dlpi_open_end_take(p, st));
}
