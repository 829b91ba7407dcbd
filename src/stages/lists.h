/* needs: lists */
#pragma once
/* tests: system/core/pipe_epochs, system/core/pipe_resume, system/core/streams */
#include "inputs/epoch.h"
#include "slot/feed.h"
#include "deliver/state.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-lists      LISTS OF A BATCH SAMPLER
   The user's batch sampler gives the list of indices of each global batch. The scheduler asks for
   the list of the next batch before it schedules a batch. If there is no next list, the batch is
   the last of its epoch: nothing else tells this. So the state that the sampler saves is ahead of
   the scheduled batch. Each slot keeps both states: before its list was asked for, and after. */

typedef struct dlpi_lists {
    dlp_sampler_desc sampler; /* first, as of any sampler */
    bool begun;               /* the sampler has begun `epoch`; n and index are its next list */
    uint64_t epoch;
    int64_t n;                       /* indices of the list asked for ahead; 0: the epoch ends */
    uint64_t *index;                 /* [global_batch]; the first n are the list's */
    dlpi_source_state before, after; /* the sampler's state before and after that list */
    dlpi_order order;                /* draws the items that replace failed ones */
} dlpi_lists;

static inline dlpi_lists *dlpi_lists_of(const dlp_pipe *p) { return p->source_stage->self; }

/* Check the batch sampler. An epoch gets the greatest length, since only the sampler knows its end.
   Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_lists_sizes(dlp_pipe *p) {
    const dlp_batch_sampler *b = &dlpi_sampler_of(p)->batches;
    const char *name = p->sampler->name;
    int rc = dlpi_check_items(p);
    if (rc != DLP_OK) return rc;
    if (b->next == NULL)
        return dlpi_missing(p, name, "list.order.batches.next", "the function that fills a list");
    if ((b->save == NULL) != (b->restore == NULL))
        return dlpi_bad(p, name, "list.order.batches.restore", "given with batches.save", 0);
    p->samples = DLPI_MAX_ITEMS; /* nobody knows the length */
    p->batches_per_epoch = UINT64_MAX;
    return DLP_OK;
}

DLPI_COLD static int dlpi_lists_blocks(const dlp_pipe *p, const dlpi_stage *st DLPI_UNREAD,
                                       dlpi_block *out) {
    out[0] = (dlpi_block){offsetof(dlpi_lists, index), dlpi_times(p->global_batch, 8)};
    return 1;
}

DLPI_COLD static void dlpi_lists_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_epoch_order(p, &((dlpi_lists *)st->self)->order);
}

DLPI_COLD static uint64_t dlpi_lists_slot_bytes(const dlp_pipe *p DLPI_UNREAD) {
    return 2 * sizeof(dlpi_source_state);
}

/* Fail the pipe: `what` of the batch sampler returned `got`. Returns DLP_ERR_CALLBACK. */
DLPI_COLD static int dlpi_lists_fail(dlp_pipe *p, const char *what, int64_t got) {
    const dlp_batch_sampler *b = &dlpi_sampler_of(p)->batches;
    const char *why = b->why && got < 0 ? b->why(b->user) : NULL;
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_CALLBACK, "list.order.batches", "%s returned %" PRId64 "%s%s", what,
                   got, why ? ": " : "", why ? why : "");
    dlpi_copy_text(e.stage, sizeof e.stage, p->sampler->name);
    e.epoch = p->schedule.epoch;
    dlpi_ctl_fail(p, DLPI_BY_SCHEDULER, &e);
    return DLP_ERR_CALLBACK;
}

/* Ask the batch sampler for the next list, and keep the sampler's states before and after it.
   Returns DLP_OK, or DLP_ERR_CALLBACK. */
static int dlpi_lists_next(dlp_pipe *p) {
    dlpi_lists *l = dlpi_lists_of(p);
    const dlp_batch_sampler *b = &dlpi_sampler_of(p)->batches;
    int64_t n = b->next(b->user, p->schedule.epoch, l->index, p->global_batch);
    if (n < 0 || (uint64_t)n > p->global_batch)
        return dlpi_lists_fail(p, "the batch sampler's next", n);
    for (int64_t i = 0; i < n; i++)
        if (l->index[i] >= p->fetch->dataset->n_items)
            return dlpi_lists_fail(p, "the batch sampler's next gave an index past the items; it",
                                   n);
    l->n = n;
    l->before = l->after;
    if (b->save) {
        int32_t bytes = b->save(b->user, l->after.at);
        if (bytes < 0 || bytes > DLP_SAMPLER_STATE_BYTES)
            return dlpi_lists_fail(p, "the batch sampler's save", bytes);
        l->after.bytes = (uint32_t)bytes;
        memset(l->after.at + bytes, 0, (size_t)(DLP_SAMPLER_STATE_BYTES - bytes));
    }
    return DLP_OK;
}

/* Begin the present epoch of the batch sampler, and ask for its first list. Returns DLP_OK or
   DLP_ERR_CALLBACK; the pipe has then failed. */
DLPI_COLD static int dlpi_lists_begin(dlp_pipe *p) {
    dlpi_lists *l = dlpi_lists_of(p);
    const dlp_batch_sampler *b = &dlpi_sampler_of(p)->batches;
    int rc = b->begin ? b->begin(b->user, p->schedule.epoch) : 0;
    l->begun = true;
    l->epoch = p->schedule.epoch;
    l->n = 0;
    if (rc != 0) return dlpi_lists_fail(p, "the batch sampler's begin", rc);
    return dlpi_lists_next(p);
}

/* Set *rows to the length of the next list; 0 if the epoch has no further list. Returns DLP_OK or
   DLP_ERR_CALLBACK. An epoch without any list fails the pipe. */
static int dlpi_lists_rows(dlp_pipe *p, uint64_t *rows) {
    const dlpi_lists *l = dlpi_lists_of(p);
    int rc = l->begun && l->epoch == p->schedule.epoch ? DLP_OK : dlpi_lists_begin(p);
    *rows = (uint64_t)l->n;
    if (rc != DLP_OK || *rows > 0 || p->schedule.in_epoch > 0) return rc;
    return dlpi_lists_fail(p, "the batch sampler's first next of an epoch", 0);
}

/* Write this rank's part of the next list into slot s, with the sampler's states before and after
   the list. */
static void dlpi_lists_fill(dlp_pipe *p, uint32_t s) {
    const dlpi_lists *l = dlpi_lists_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    dlpi_source_state *states = dlpi_slot_source(p, s);
    memcpy(dlpi_slot_index(p, s), l->index + (slot->position - slot->begins),
           (size_t)slot->count * 8u);
    states[0] = l->before;
    states[1] = l->after;
}

/* Go on at the place of a saved state: restore the sampler from the saved bytes, or replay the
   epoch's lists. Returns DLP_OK, or DLP_ERR_CALLBACK. */
DLPI_COLD static int dlpi_lists_seek(dlp_pipe *p, const dlpi_state *to) {
    dlpi_lists *l = dlpi_lists_of(p);
    dlpi_scheduler *f = &p->schedule;
    const dlp_batch_sampler *b = &dlpi_sampler_of(p)->batches;
    int rc;
    l->begun = false;
    if (to->batch == 0) return DLP_OK;
    if (b->restore && to->sampler_bytes > 0) {
        /* it stands before the list asked for next */
        l->after.bytes = to->sampler_bytes;
        memcpy(l->after.at, to->sampler, sizeof l->after.at);
        rc = b->restore(b->user, to->sampler, to->sampler_bytes);
        f->in_epoch = to->batch;
        f->position = to->position;
        l->begun = true;
        l->epoch = f->epoch;
        return rc != 0 ? dlpi_lists_fail(p, "the batch sampler's restore", rc) : dlpi_lists_next(p);
    }
    rc = dlpi_lists_begin(p);
    while (rc == DLP_OK && f->in_epoch < to->batch && l->n > 0)
        rc = dlpi_schedule_step(p, (uint64_t)l->n);
    if (rc == DLP_OK && f->in_epoch < to->batch)
        return dlpi_lists_fail(
            p, "the batch sampler ended the epoch before the saved state; its next", 0);
    return rc;
}

static uint64_t dlpi_lists_item(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                                uint64_t position, uint32_t k) {
    if (k == 0) return dlpi_slot_index(w->p, s)[row];
    return dlpi_order_replacement(&dlpi_lists_of(w->p)->order, epoch, position, k);
}

static const dlpi_source_state *dlpi_lists_state(const dlp_pipe *p, uint32_t s, int after) {
    const dlpi_source_state *both = s == DLPI_NO_SLOT ? NULL : dlpi_slot_source(p, s);
    return both == NULL ? &p->after.source : both + after;
}

/* True if the numbers of a state are possible. Each list has a row at least. A state of
   dlp_pipe_state_at was computed, not saved: it has neither rows nor the sampler's bytes. */
static bool dlpi_lists_fit(const dlp_pipe *p, const dlpi_state *s) {
    if (s->batch == 0) return s->position == 0 && s->sampler_bytes == 0;
    if (s->position == 0) return s->sampler_bytes == 0;
    return s->position >= s->batch && s->position <= dlpi_times(s->batch, p->global_batch);
}

DLPI_COLD static const char *dlpi_lists_never_saved(const dlp_pipe *p, const dlpi_state *s) {
    return dlpi_lists_fit(p, s) ? NULL : "position";
}

static const dlpi_source_ops dlpi_lists_source = {
    .sizes = dlpi_lists_sizes,
    .slot_bytes = dlpi_lists_slot_bytes,
    .rows = dlpi_lists_rows,
    .alike = dlpi_role_none,
    .fill = dlpi_lists_fill,
    DLPI_SOURCE_AT_HAND,
    .indices = dlpi_source_filled,
    .config = dlpi_source_config,
    .params = DLPI_SOURCE_PARAMS,
    .step = dlpi_lists_next,
    .seek = dlpi_lists_seek,
    .item = dlpi_lists_item,
    .state = dlpi_lists_state,
    .never_saved = dlpi_lists_never_saved,
    .saves = "a place, and what the batch sampler saves",
};

/* A sampler stage whose order is DLP_ORDER_BATCHES. */
static const dlpi_stage_ops dlpi_lists_ops = {
    DLPI_OPS_OF_SAMPLER,     .self_bytes = sizeof(dlpi_lists), .blocks = dlpi_lists_blocks,
    .live = dlpi_lists_live, .source = &dlpi_lists_source,
};
