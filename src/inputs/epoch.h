#pragma once
/* tests: system/core/pipe_badinput, system/core/streams */
#include "inputs/check.h"
#include "slot/feed.h"
/* ---- the length of an epoch, and checks of the sampler's order; for all sources ---- */

/* Check that the dataset's items can have the sampler's order. Returns 0 or a DLP_ERR code. */
static int dlpi_check_items(dlp_pipe *p) {
    dlp_error e;
    if (p->fetch->dataset->n_items == 0)
        return dlpi_bad(p, p->fetch->name, "source.dataset.n_items", "1..2^48", 0);
    if (dlpi_order_check(dlpi_sampler_of(p), p->fetch->dataset->n_items, &e) == DLP_OK)
        return DLP_OK;
    dlpi_copy_text(e.stage, sizeof e.stage, p->sampler->name);
    return dlpi_pipe_fail(p, &e);
}

/* Initialize *o, the sampler's order over all items of the dataset, at the start of the pipe. */
static void dlpi_epoch_order(const dlp_pipe *p, dlpi_order *o) {
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

/* Warn that an epoch of n rows ends with a short batch, if the field `last` of the stage is its
   default. batch: rows of a batch. n: DLPI_MAX_ITEMS if nobody knows the number. */
DLPI_COLD static void dlpi_epoch_short(dlp_pipe *p, const char *stage, int32_t last, uint64_t n,
                                       uint64_t batch) {
    if (last != DLP_LAST_DEFAULT || n == DLPI_MAX_ITEMS || n % batch == 0) return;
    dlpi_warn(p,
              "%s: %" PRIu64 " items by %" PRIu64 ": the last batch has %" PRIu64
              " rows; read batch->count, or set last to DLP_LAST_DROP or "
              "DLP_LAST_PARTIAL",
              stage, n, batch, n % batch);
}

/* ---- sources whose batches all have the same number of rows, except the epoch's last ---- */

/* Mark the rows of slot s that lie beyond the epoch's last sample as padding. */
static void dlpi_epoch_padding(dlp_pipe *p, uint32_t s) {
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t real = slot->position < p->samples ? p->samples - slot->position : 0;
    if (slot->position + slot->count <= p->samples) return;
    for (uint64_t r = real; r < slot->count; r++) dlpi_slot_fate(p, s)[r] = DLPI_ROW_PAD;
    slot->dirty = 1;
}

/* Set *rows to the rows of the next global batch; 0 if the epoch has no batch left. Returns 0. */
static int dlpi_epoch_rows(dlp_pipe *p, uint64_t *rows) {
    const dlpi_scheduler *f = &p->schedule;
    *rows = f->in_epoch < p->batches_per_epoch ? p->global_batch : 0;
    if (p->last == DLP_LAST_PARTIAL && f->position + *rows > p->samples)
        *rows = p->samples - f->position;
    return DLP_OK;
}

/* Let the scheduler go on at the batch of a state. Returns 0. */
DLPI_COLD static int dlpi_epoch_seek(dlp_pipe *p, const dlpi_state *to) {
    p->schedule.in_epoch = to->batch;
    p->schedule.position = to->batch * p->global_batch;
    return DLP_OK;
}

/* The common part of the tables of all samplers. */
#define DLPI_OPS_OF_SAMPLER \
    .kind = DLP_STAGE_SAMPLER, .rank = 1, .begins = 1, .at = offsetof(dlp_pipe, sampler), \
    .words = {.out = "sampler.threaded = 1", .slow = "make the sampler's own function cheaper"}
