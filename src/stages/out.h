/* needs: out */
#pragma once
/* tests: system/core/outs, system/core/pipe_wake, system/shm/shm_outs */
#include "api/out.h"
#include "inputs/check.h"
#include "inputs/add.h"
#include "observe/seen.h"
#include "share/subscriber.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-outs       OUTS BESIDE THE FIRST
   An out is a subscriber that is attached from the start, inside the process (>>impl-share). It is
   a stage without workers, so that it has a name, a row in the statistics and areas of the region.
   present is odd from before the first batch, and even after dlp_out_close: from then on the
   scheduler looks at none of its words.

   label  atomic         written by                            read by
   OU1    users          the pipe, and each out that is found  the last to leave frees the pipe

   OU1 counts the users of the pipe's memory, not of slots. A batch that is held needs no count of
   its own, because its out is not closed before the batch is given back. */

struct dlp_out {
    dlpi_subscriber c;
    dlp_pipe *p;
    uint8_t *valid;    /* [capacity][batch_rows] dlp_batch.valid of each loan */
    uint64_t *holds;   /* [capacity] in the region: batch + 1 of each loan, 0: none; for people */
    uint32_t capacity; /* batches that the user may hold at once: queue.capacity of the row */
    int32_t full;      /* DLP_FULL_*: what happens if the user takes batches too slowly */
    bool host;         /* it gives batches in host memory: its `from` is before the transfer */
    bool found;        /* the user has got the out from the pipe, and will close it */
    uint32_t users;    /* OU1 in the pipe's first out: calls of close before the pipe is freed */
};

static const dlpi_stage_ops dlpi_out_ops;

/* Return the first stage from number `at` on that is an out, or NULL. */
static dlpi_stage *dlpi_out_from(dlp_pipe *p, int at) {
    for (; at < p->n_stages; at++)
        if (p->stages[at].ops == &dlpi_out_ops) return &p->stages[at];
    return NULL;
}

/* Return the place of an out among the outs. If st is NULL, return how many outs there are. */
static uint32_t dlpi_out_place(dlp_pipe *p, const dlpi_stage *st) {
    uint32_t n = 0;
    for (const dlpi_stage *at = dlpi_out_from(p, 0); at != NULL && at != st; n++)
        at = dlpi_out_from(p, at->id + 1);
    return n;
}

/* ---- the scheduler's side ---- */

/* Return how many slots the outs may hold, beside those of the consumer. */
static uint64_t dlpi_outs_hold(const dlp_pipe *p) {
    uint64_t n = 0;
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].ops == &dlpi_out_ops) n += ((dlp_out *)p->stages[i].self)->capacity;
    return n;
}

/* True if slot k may be used again: each out that waits has given it back, and no other out has
   taken it. Then the outs that do not wait lose the batch. */
static bool dlpi_outs_slot_free(dlp_pipe *p, uint32_t k) {
    const uint64_t b = dlpi_share_given(p, k) - 1;
    uint64_t waited = 0, late = 0;
    if (b + 1 == 0) return true;
    for (uint32_t i = 0; i < p->share->max_subscribers; i++) {
        const dlpi_cblock *block = dlpi_share_block(p->share, i);
        if ((dlpi_credit_seen(&block->present) & 1) == 0) continue; /* H2 <- H2 */
        if (block->behind == DLP_FULL_WAIT)
            waited |= UINT64_C(1) << i;
        else
            late |= UINT64_C(1) << i;
    }
    return dlpi_share_each_gave(p, waited, k, b) && dlpi_share_withdraw(p, late, k);
}

/* Add n users of the pipe's memory; UINT32_MAX takes one off. Returns how many there are now. */
static uint32_t dlpi_outs_users(dlp_pipe *p, uint32_t n) {
    dlp_out *first = dlpi_out_from(p, 0)->self;
    return DLPI_ADD_SEQ(&first->users, n) + n; /* OU1 */
}

/* Take one user of the pipe's memory off. Returns true if it was the last. */
static bool dlpi_outs_leave(dlp_pipe *p) { return dlpi_outs_users(p, UINT32_MAX) == 0; }

static const dlpi_sharing_ops dlpi_outs_sharing = {
    .words = "a second out",
    .keep = dlpi_role_well,
    .may_schedule = dlpi_role_yes,
    .slot_free = dlpi_outs_slot_free,
    .holds = dlpi_outs_hold,
    .leave = dlpi_outs_leave,
};

/* ---- an out as a subscriber ---- */

static int dlpi_out_try(dlpi_subscriber *c, dlp_batch **out) {
    if (dlpi_stopped(((dlp_out *)(void *)c)->p)) return DLP_STOPPED;
    if (c->err.code != 0) return c->err.code;
    return c->behind == DLP_FULL_WAIT ? dlpi_subscriber_each(c, out) : dlpi_subscriber_late(c, out);
}

/* Fill the loan's view of the batch in slot s. Returns DLP_OK, or DLP_STOPPED if the pipe is
   stopped: a callback may then have done nothing, so the batch is not shown. */
static int dlpi_out_show(dlpi_subscriber *c, uint32_t s, dlpi_loan *loan) {
    dlp_out *o = (dlp_out *)(void *)c;
    if (dlpi_stopped(o->p)) return DLP_STOPPED;
    dlpi_batch_view_init(o->p, s, &loan->batch, loan->fields);
    dlpi_batch_view_to(o->p, s, &loan->batch, loan->fields, loan->valid);
    DLPI_STORE_RLX(&o->holds[loan - c->loans], loan->batch.sequence + 1); /* for people */
    return DLP_OK;
}

static void dlpi_out_wake(const dlpi_subscriber *c) {
    dlpi_wake_scheduling(((const dlp_out *)(const void *)c)->p);
}

static int dlpi_out_rest(dlpi_subscriber *c DLPI_UNREAD) { return DLP_OK; }

static const dlpi_subscriber_ops dlpi_out_inside = {dlpi_out_try, dlpi_out_show, dlpi_out_wake,
                                                    dlpi_out_rest};

/* ---- building ---- */

/* Check that the pipe can have an out: the pipe has no split, and batches come in order. Returns 0
   or a DLP_ERR code. */
DLPI_COLD static int dlpi_out_check(dlp_pipe *p, dlpi_stage *st) {
    const dlp_out *o = st->self;
    const char *bad = p->lender_stage  ? "with a split: only one consumer gets its views"
                      : p->d.unordered ? "with unordered = 1: outs get batches in order"
                                       : NULL;
    if (bad != NULL)
        return dlpi_refuse(p, DLP_ERR_GRAPH, st->name, "",
                           "out \"%s\" can't stand beside another "
                           "out %s",
                           st->name, bad);
    return dlpi_within(p, st->name, "queue.capacity", o->capacity, 1, 256, "0..256");
}

/* Add to the region a word for each batch that the out may hold, for observers. The first out also
   adds the record of who holds which slot, which all outs share. */
DLPI_COLD static void dlpi_out_layout(dlp_pipe *p, dlpi_stage *st) {
    const uint32_t n = dlpi_out_place(p, NULL);
    dlpi_share h;
    if (dlpi_out_place(p, st) == 0)
        dlpi_area_told(p, DLPI_REC_SHARE, DLPI_PLAN_RECORDS, "outs: who has which slot",
                       dlpi_share_layout(&h, 0, n, p->n_slots), 1, DLPI_LINE);
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_OWN_LINK), sizeof(uint64_t),
                  ((const dlp_out *)st->self)->capacity, DLPI_LINE);
}

DLPI_COLD static int dlpi_out_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const uint64_t n = ((const dlp_out *)st->self)->capacity;
    out[0] = (dlpi_block){offsetof(dlp_out, c.loans), dlpi_times(n, sizeof(dlpi_loan))};
    out[1] = (dlpi_block){offsetof(dlp_out, valid), dlpi_times(n, p->batch_rows)};
    return 2;
}

/* Lay out what all outs share, as the pipe starts. The first stage that one reads wakes them. */
static void dlpi_outs_live(dlp_pipe *p) {
    dlpi_share *h = p->share = dlpi_area_at(p, DLPI_REC_SHARE, 0);
    dlpi_share_layout(h, 0, dlpi_out_place(p, NULL), p->n_slots);
    h->sleepers.shared = p->others != 0;
    h->after = (uint32_t)p->n_work - 1;
}

/* Attach the out as a subscriber, as the pipe starts: it gets all batches from the first one on. */
DLPI_COLD static void dlpi_out_live(dlp_pipe *p, dlpi_stage *st) {
    const uint32_t place = dlpi_out_place(p, st);
    dlp_out *o = st->self;
    const uint32_t after = (uint32_t)p->n_work - 1 - o->host;
    dlpi_subscriber *c = &o->c;
    if (place == 0) dlpi_outs_live(p);
    if (after < p->share->after) p->share->after = after;
    o->holds = dlpi_area_at(p, DLPI_OWN(st->id, DLPI_OWN_LINK), 0);
    for (uint32_t i = 0; i < o->capacity; i++)
        c->loans[i].valid = o->valid + (size_t)i * p->batch_rows;
    c->ops = &dlpi_out_inside;
    c->slots = dlpi_area_at(p, DLPI_REC_SLOTS, 0);
    c->slot_stride = p->areas[DLPI_REC_SLOTS].stride;
    c->order = p->order_ring;
    c->final_at = p->work[after]->stage_words_offset + offsetof(dlpi_stage_words, ready);
    c->ctl = p->ctl;
    c->share = p->share;
    c->mine = dlpi_share_block(p->share, place);
    c->released = dlpi_share_released(p->share, place);
    c->n_slots = p->n_slots;
    c->ring = p->ring;
    c->index = place;
    c->max_held = c->mine->max_held = o->capacity;
    c->behind = c->mine->behind = (uint32_t)o->full;
    c->mine->pid = dlpi_process_number();
    c->admitted = true;
    c->wait = p->wait;
    c->present = 1;
    dlpi_subscriber_keep(c);
    dlpi_credit_publish(&c->mine->present, c->present); /* H2: before there is a scheduler */
}

/* Observer: read the out's capacity, its held and missed batches, its policy and its place. Returns
   false if the region is not whole. */
DLPI_COLD static bool dlpi_out_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const int own = DLPI_OWN(stage, DLPI_OWN_LINK);
    uint64_t *to = s->figures.stages[stage].own;
    uint64_t at = 0, bytes = 0, i = 0, policy;
    for (int32_t k = 0; k < stage; k++) i += s->stages[k].ops == &dlpi_out_ops;
    to[DLP_OUT_CAPACITY] = words->areas[own].count;
    if (!dlpi_words_count(words, own, UINT64_MAX, false, &to[DLP_OUT_HELD]) ||
        !dlpi_word_at(words, DLPI_REC_SHARE, 0, offsetof(dlpi_share, subscribers_at), 8, &at) ||
        !dlpi_word_at(words, DLPI_REC_SHARE, 0, offsetof(dlpi_share, subscriber_bytes), 8, &bytes))
        return false;
    at = dlpi_sum(at, dlpi_times(i, bytes));
    if (!dlpi_word_at(words, DLPI_REC_SHARE, 0, dlpi_sum(at, offsetof(dlpi_cblock, missed)), 8,
                      &to[DLP_OUT_MISSED]) ||
        !dlpi_word_at(words, DLPI_REC_SHARE, 0, dlpi_sum(at, offsetof(dlpi_cblock, behind)), 4,
                      &policy) ||
        !dlpi_word_at(words, DLPI_REC_SHARE, 0, dlpi_sum(at, offsetof(dlpi_cblock, cursor)), 8,
                      &s->figures.stages[stage].items))
        return false;
    to[DLP_OUT_FULL] = policy;
    s->figures.stages[stage].unit_is_batch = 1;
    s->figures.stages[stage].ready = to[DLP_OUT_HELD]; /* the depth of its link */
    return true;
}

static const dlpi_stage_ops dlpi_out_ops = {
    .kind = DLP_STAGE_OUT,
    .rank = 11,
    .many = 1,
    .self_bytes = sizeof(dlp_out),
    .check = dlpi_out_check,
    .layout = dlpi_out_layout,
    .blocks = dlpi_out_blocks,
    .live = dlpi_out_live,
    .seen = dlpi_out_seen,
    .sharing = &dlpi_outs_sharing,
};

/* Add a stage for an out beside the first one. host: the out reads the node before the transfer.
   Returns a stage number or a DLP_ERR code. */
static dlp_stage dlpi_out_add(dlp_pipe *p, const dlp_node_queue *queue, bool host) {
    dlpi_stage *st = dlpi_add(p, &dlpi_out_ops, "out", NULL);
    dlp_out *o;
    if (st == NULL) return p->err.code;
    o = st->self;
    o->p = p;
    o->capacity = queue->capacity != 0 ? queue->capacity : 1;
    o->full = st->w.dispatch = queue->full; /* the rule of its link */
    o->host = host;
    o->users = 1; /* the pipe itself */
    return dlpi_added(p, st, DLP_OK);
}
