#pragma once
/* tests: system/core/pipe_epochs, unit/order/samplers */
#include "deliver/state.h"
#include "fail/check.h"
#include "inputs/epoch.h"
#include "slot/feed.h"
#include "row/rows.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-sampler    SAMPLER AND REPEAT, AS STAGES: KEYED ORDERS
   What they do is done by whoever schedules batches: see >>impl-feed. The item at a position of an
   epoch follows from the seed alone, so the workers compute indices, and a state is a position. Of
   a dataset without a length positions are counted until a row says that the epoch is over. */

static int dlpi_keyed_sizes(dlp_pipe *p) {
    const dlp_sampler_desc *d = &p->sampler->sampler;
    int rc;
    if (d->order == DLP_ORDER_PARTS) return dlpi_bad_order(p);
    if ((rc = dlpi_check_items(p)) != DLP_OK) return rc;
    if (p->open_end) {
        p->samples = dlpi_order_samples(d, p->fetch->dataset->n_items);
        p->batches_per_epoch = UINT64_MAX;
        return DLP_OK;
    }
    return dlpi_epoch_of(p, dlpi_order_samples(d, p->fetch->dataset->n_items));
}

/* A few indices, out of a block of 64 kept from the last time: a block costs little more than
   one. */
static void dlpi_near_indices(dlpi_worker *w, uint64_t epoch, uint64_t first, uint32_t n,
                              uint64_t *index) {
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = first + i, from = at & ~UINT64_C(63), left = w->p->samples - from;
        if (w->near_n == 0 || w->near_first != from || w->near_epoch != epoch) {
            w->near_n = left < 64 ? (uint32_t)left : 64;
            w->near_first = from;
            w->near_epoch = epoch;
            dlpi_order_block(&w->order, epoch, from, w->near_n, w->near);
        }
        index[i] = w->near[at - from];
    }
}

static void dlpi_keyed_indices(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    uint64_t *index = dlpi_slot_index(p, t->slot) + t->row;
    uint64_t at = slot->position + t->row;
    uint32_t n = t->end - t->row;
    while (n > 0) { /* padding goes on at the epoch's beginning */
        uint64_t first = at % p->samples;
        uint32_t take = p->samples - first < n ? (uint32_t)(p->samples - first) : n;
        if (take < 8 && w->st->n_workers <= 4)
            dlpi_near_indices(w, slot->epoch, first, take, index);
        else
            dlpi_order_block(&w->order, slot->epoch, first, take, index);
        index += take;
        at += take;
        n -= take;
    }
}

static uint64_t dlpi_keyed_item(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                                uint64_t position, uint32_t k) {
    uint64_t index;
    DLPI_UNUSED(s);
    DLPI_UNUSED(row);
    if (k > 0) return dlpi_order_replacement(&w->order, epoch, position, k);
    dlpi_order_block(&w->order, epoch, position, 1, &index);
    return index;
}

static const dlpi_source_ops dlpi_keyed_source = {
    .sizes = dlpi_keyed_sizes,
    .slot_bytes = dlpi_source_no_bytes,
    .rows = dlpi_schedule_rows,
    .fill = dlpi_schedule_padding,
    DLPI_SOURCE_AT_HAND,
    DLPI_SOURCE_BY_NUMBER,
    .config = dlpi_source_config,
    .params = DLPI_SOURCE_PARAMS,
    .seek = dlpi_schedule_seek,
    .indices = dlpi_keyed_indices,
    .item = dlpi_keyed_item,
};

static const dlpi_stage_ops dlpi_sampler_ops = {DLPI_OPS_OF_SAMPLER, .source = &dlpi_keyed_source};

static int dlpi_repeat_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_repeat_desc, epochs), DLP_FOREVER, INT64_MAX, "DLP_FOREVER, or 0 and more"},
        {DLPI_AT(dlp_repeat_desc, epoch_end), 0, 1, "0 or 1"},
    };
    if (st->repeat.epochs == DLP_NONE)
        return dlpi_bad(p, st->name, "epochs", bounds[0].words, DLP_NONE);
    p->barrier = st->repeat.set_epoch ? &st->repeat : NULL;
    return dlpi_check_bounds(p, st->name, &st->repeat, DLPI_ROWS(bounds));
}

static const dlpi_stage_ops dlpi_repeat_ops = {
    .kind = DLP_STAGE_REPEAT,
    .rank = 2,
    .at = offsetof(dlp_pipe, repeat),
    .words = {.slow = "make the sampler's own function cheaper"},
};
