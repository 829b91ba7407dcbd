#pragma once
/* tests: system/core/pipe_badinput, system/core/streams */
#include "fail/check.h"
/* ---- how long an epoch is: for sources, which say of what ---- */

/* Check that the dataset's items can have the sampler's order. Returns 0 or a DLP_ERR code. */
static int dlpi_check_items(dlp_pipe *p) {
    dlp_error e;
    if (p->fetch->dataset->n_items == 0)
        return dlpi_bad(p, p->fetch->name, "dataset.n_items", "1..2^48", 0);
    if (dlpi_order_check(dlpi_sampler_of(p), p->fetch->dataset->n_items, &e) == DLP_OK)
        return DLP_OK;
    dlpi_copy_text(e.stage, sizeof e.stage, p->sampler->name);
    return dlpi_pipe_fail(p, &e);
}

/* Refuse the sampler's order, because it does not fit the pipe's source. Returns a DLP_ERR code. */
static int dlpi_bad_order(dlp_pipe *p) {
    const int32_t order = dlpi_sampler_of(p)->order;
    if (order == DLP_ORDER_PARTS)
        return dlpi_bad(p, p->sampler->name, "sampler.order",
                        "another order than DLP_ORDER_PARTS: no node loads parts", order);
    return dlpi_refuse(p, DLP_ERR_ARG, p->sampler->name, "sampler.order",
                       "sampler.order is %d, must be DLP_ORDER_PARTS with stage \"%s\"", (int)order,
                       p->source_stage->name);
}

/* Initialize *o, the sampler's order over all items of the dataset, at the start of the pipe. */
static void dlpi_order_live(const dlp_pipe *p, dlpi_order *o) {
    dlpi_order_init(o, dlpi_sampler_of(p), p->fetch->dataset->n_items,
                    dlpi_area_at(p, DLPI_REC_TABLE, 0));
}

/* Set the length of an epoch to n samples. Returns 0, or a DLP_ERR code if these are no batch. */
static int dlpi_epoch_of(dlp_pipe *p, uint64_t n) {
    p->samples = n;
    p->batches_per_epoch = n / p->global_batch;
    if (p->last != DLP_LAST_DROP && n % p->global_batch != 0) p->batches_per_epoch++;
    if (p->batches_per_epoch != 0) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, p->batcher->name, "last",
                       "last is DLP_LAST_DROP, and %" PRIu64 " samples of an epoch make no batch "
                       "of %" PRIu64 "; lower batch_size",
                       n, p->global_batch);
}
