#pragma once
/* tests: system/core/pipe_epochs, unit/order/samplers */
#include "deliver/state.h"
#include "inputs/check.h"
#include "inputs/epoch.h"
#include "inputs/open_end.h"
#include "slot/feed.h"
#include "row/rows.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-sampler    SAMPLER AND REPEAT, AS STAGES: KEYED ORDERS
   These stages have no workers for items: the scheduler does their work (>>impl-feed). In a keyed
   order the item at a position of an epoch follows from the seed alone. So the workers compute
   indices, and a saved state needs only a position. If the dataset has no length, positions are
   counted until a row tells that the epoch is over. */

static const dlpi_source_ops dlpi_stream_source;

/* Set the samples and batches of an epoch. If the end is open, the epoch has no known length.
   Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_keyed_sizes(dlp_pipe *p) {
    const dlp_sampler_desc *d = dlpi_sampler_of(p);
    int rc;
    if (d->order == DLP_ORDER_PARTS)
        return dlpi_bad(p, p->sampler->name, "list.order.order",
                        "another order than DLP_ORDER_PARTS: no node loads parts", d->order);
    if ((rc = dlpi_check_items(p)) != DLP_OK) return rc;
    if (p->open_end) {
        p->source = &dlpi_stream_source;
        p->samples = dlpi_order_samples(d, p->fetch->dataset->n_items);
        p->batches_per_epoch = UINT64_MAX;
        return DLP_OK;
    }
    return dlpi_epoch_of(p, dlpi_order_samples(d, p->fetch->dataset->n_items));
}

typedef struct dlpi_near { /* a worker's own copy of the order, and indices computed ahead */
    dlpi_order order;
    uint32_t n; /* index[0..n - 1] are the indices of positions first.. of `epoch`; 0: none yet */
    uint64_t first, epoch;
    uint64_t index[64];
    uint8_t pad[DLPI_LINE]; /* records of two workers share no cache line */
} dlpi_near;

typedef struct dlpi_keyed {   /* the record of a sampler stage with a keyed order */
    dlp_sampler_desc sampler; /* first: any sampler's record begins with its desc */
    dlpi_near *own;           /* [workers of rows] */
} dlpi_keyed;

static inline dlpi_near *dlpi_near_of(const dlpi_worker *w) { return w->source; }

/* Describe in `out` one block: the indices that each worker of an item stage has computed ahead.
   Returns 1. */
DLPI_COLD static int dlpi_keyed_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    uint64_t n = 0;
    for (int i = 0; p->source_stage == st && i < p->n_item_work; i++)
        n += (uint64_t)p->work[i]->n_workers;
    out[0] = (dlpi_block){offsetof(dlpi_keyed, own), dlpi_times(n, sizeof(dlpi_near))};
    return 1;
}

/* Give each worker of rows, which come first of all, its copy of the order, as the pipe starts. */
DLPI_COLD static void dlpi_keyed_live(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_keyed *k = st->self;
    for (dlpi_worker *w = p->workers; k->own != NULL && w->st->ops->unit == DLPI_UNIT_ROWS; w++) {
        w->source = &k->own[w->global];
        dlpi_epoch_order(p, &dlpi_near_of(w)->order);
    }
}

/* Compute the indices of `want` positions, at most 32, from `at` on, or of more. A block of 64
   costs as much as 12 single indices. So there are 8 and then 64 if the worker goes on behind the
   block before. A worker that takes one batch in many does not get to long blocks. */
static void dlpi_near_fill(dlpi_near *k, uint64_t epoch, uint64_t at, uint32_t want,
                           uint64_t samples) {
    const bool goes_on = at - (k->first + k->n) < 4;
    const uint32_t n = !goes_on ? want : k->n < 8 && want < 8 ? 8 : 64;
    k->first = at;
    k->n = samples - at < n ? (uint32_t)(samples - at) : n;
    k->epoch = epoch;
    dlpi_order_block(&k->order, epoch, k->first, k->n, k->index);
}

/* Write the indices of a claimed unit's rows into its slot. It is apart from dlpi_keyed_indices, so
   that a unit of one row at hand stays fast. */
DLPI_NOINLINE static void dlpi_keyed_rows(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_bslot *slot = dlpi_slot_at(p, t->slot);
    dlpi_near *k = dlpi_near_of(w);
    uint64_t *index = dlpi_slot_index(p, t->slot) + t->row;
    uint64_t at = slot->position + t->row;
    uint32_t n = t->end - t->row;
    while (n > 0) { /* padding goes on at the epoch's beginning */
        uint64_t first = at % p->samples;
        uint32_t take;
        if (k->epoch != slot->epoch || first - k->first >= k->n)
            dlpi_near_fill(k, slot->epoch, first, n, p->samples);
        take = (uint32_t)(k->first + k->n - first);
        if (take > n) take = n;
        memcpy(index, &k->index[first - k->first], take * sizeof *index);
        index += take;
        at += take;
        n -= take;
    }
}

/* Write the indices of a claimed unit's rows into its slot. A unit of one row takes its index from
   the indices computed ahead, if it is there. */
static void dlpi_keyed_indices(dlpi_worker *w, const dlpi_unit *t) {
    const dlpi_bslot *slot = dlpi_slot_at(w->p, t->slot);
    const dlpi_near *k = dlpi_near_of(w);
    const uint64_t at = slot->position + t->row - k->first;
    if (t->end - t->row == 1 && k->epoch == slot->epoch && at < k->n)
        dlpi_slot_index(w->p, t->slot)[t->row] = k->index[at];
    else
        dlpi_keyed_rows(w, t);
}

static uint64_t dlpi_keyed_item(dlpi_worker *w, uint32_t s DLPI_UNREAD, uint32_t row DLPI_UNREAD,
                                uint64_t epoch, uint64_t position, uint32_t k) {
    uint64_t index;
    if (k > 0) return dlpi_order_replacement(&dlpi_near_of(w)->order, epoch, position, k);
    dlpi_order_block(&dlpi_near_of(w)->order, epoch, position, 1, &index);
    return index;
}

/* Return how many of the next batches are alike, so that they can be scheduled at once: all but the
   last of the epoch. Returns 0 if a resumed state has gaps. */
static uint64_t dlpi_keyed_alike(const dlp_pipe *p) {
    const dlpi_scheduler *f = &p->schedule;
    if (f->skip_base != UINT64_MAX) return 0;
    return p->batches_per_epoch - f->in_epoch - 1;
}

/* What the two sources below have alike. */
#define DLPI_SOURCE_KEYED \
    .sizes = dlpi_keyed_sizes, .slot_bytes = dlpi_role_none, .rows = dlpi_epoch_rows, \
    .fill = dlpi_epoch_padding, DLPI_SOURCE_BY_NUMBER, .params = DLPI_SOURCE_PARAMS, \
    .seek = dlpi_epoch_seek, .indices = dlpi_keyed_indices, .item = dlpi_keyed_item

static const dlpi_source_ops dlpi_keyed_source = {
    DLPI_SOURCE_KEYED,
    DLPI_SOURCE_AT_HAND,
    .alike = dlpi_keyed_alike,
    .config = dlpi_source_config,
};

/* Write the number of items into a state, in the place of the one that no dataset reaches. */
DLPI_COLD static void dlpi_stream_config(const dlp_pipe *p DLPI_UNREAD, dlpi_state *s) {
    s->n_items = UINT64_MAX;
}

/* The source where the dataset's end is open. Any batch may be the last of its epoch, so none are
   alike. */
static const dlpi_source_ops dlpi_stream_source = {
    DLPI_SOURCE_KEYED,         DLPI_SOURCE_AT_HAND,
    .alike = dlpi_role_none,   .config = dlpi_stream_config,
    .agreed = dlpi_end_agreed,
};

static const dlpi_stage_ops dlpi_sampler_ops = {
    DLPI_OPS_OF_SAMPLER, .self_bytes = sizeof(dlpi_keyed), .blocks = dlpi_keyed_blocks,
    .live = dlpi_keyed_live, .source = &dlpi_keyed_source};

/* Check how often the pipe repeats its epochs. If the desc has set_epoch, each epoch begins behind
   a barrier. Returns 0 or a DLP_ERR code. */
static int dlpi_repeat_check(dlp_pipe *p) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_pipe_desc, epochs), DLP_FOREVER, INT64_MAX, "DLP_FOREVER, or 0 and more"},
        {DLPI_AT(dlp_pipe_desc, epoch_end), 0, 1, "0 or 1"},
    };
    if (p->d.epochs == DLP_NONE) return dlpi_bad(p, "", "epochs", bounds[0].words, DLP_NONE);
    p->barrier = p->d.set_epoch != NULL;
    return dlpi_check_bounds(p, "", &p->d, DLPI_ROWS(bounds));
}

static const dlpi_stage_ops dlpi_repeat_ops = {
    .kind = DLP_STAGE_REPEAT,
    .rank = 2,
    .words = {.slow = "make the sampler's own function cheaper"},
};
