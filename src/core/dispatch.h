#pragma once
#include "stages/parts.h"
#include "core/feed.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-dispatch   DEALING TICKETS INTO LANES
   The other way of dispatch: whoever has work for a stage deals a ticket (batch, unit) to the
   worker with the least dealt and not finished, over a lane of its own. A ticket is a hint: the
   worker still claims the unit, so a doubled or stale ticket does no harm, and a lost one is found
   by the look without hints that follows a rewind. */

static inline uint64_t dlpi_ticket(uint64_t b, uint32_t unit) { return b << 20 | unit; }

static dlp_spsc *dlpi_lane_at(const dlp_pipe *p, const dlpi_stage *st, uint32_t k) {
    uint8_t *lanes = dlpi_area_at(p, DLPI_REC_LANES, 0);
    return (dlp_spsc *)(void *)(lanes + st->lanes_offset + k * st->lane_bytes);
}

static uint64_t dlpi_worker_load(const dlp_pipe *p, const dlpi_stage *st, int worker) {
    uint64_t dealt = 0;
    for (uint32_t i = 0; i < st->n_producers; i++) {
        uint32_t k = i * (uint32_t)st->n_workers + (uint32_t)worker;
        dealt += DLPI_LOAD_RLX(&dlpi_lane_at(p, st, k)->tail); /* an estimate */
    }
    /* an estimate */
    return dealt - DLPI_LOAD_RLX(&p->workers[st->first_worker + worker].wb->finished);
}

/* Deal unit of batch b to a worker of st; producer: who deals (0 for the feeder). */
static void dlpi_deal(dlp_pipe *p, dlpi_stage *st, int producer, uint64_t b, uint32_t unit) {
    uint64_t ticket = dlpi_ticket(b, unit), least = UINT64_MAX;
    int worker = 0, active = dlpi_active(p, st);
    for (int i = 0; i < active; i++) {
        uint64_t load = dlpi_worker_load(p, st, i);
        if (load < least) least = load, worker = i;
    }
    {
        uint32_t lane = st->lane_base + (uint32_t)(producer * st->n_workers + worker);
        if (dlp_spsc_try_push(&p->lane_tx[lane], &ticket) != DLP_OK) /* doubles filled it */
            DLPI_ADD_SEQ(&p->bells[st->work].rewind, UINT64_C(1));   /* R1 -> R1 */
    }
    /* B1: orders the ticket before the look */
    DLPI_ADD_SEQ(&p->bells[st->work].dealt, UINT64_C(1));
    if (DLPI_UNLIKELY(worker >= dlpi_active(p, st))) {         /* retired meanwhile: anybody's */
        DLPI_ADD_SEQ(&p->bells[st->work].rewind, UINT64_C(1)); /* R1 -> R1 */
        dlpi_ring(&p->bells[st->work], (uint32_t)st->n_workers, UINT32_MAX);
    }
    dlpi_ring_worker(&p->bells[st->work], (uint32_t)worker);
}

/* All units of the batches from `first` on. */
static void dlpi_feed_deal(dlp_pipe *p, uint64_t first) {
    for (uint64_t b = first; b != p->feed.published; b++) {
        uint64_t pub = DLPI_LOAD_RLX(&dlpi_slot_at(p, dlpi_slot_of(p, b))->pub); /* our own store */
        uint32_t n = dlpi_units(dlpi_pub_count(pub), dlpi_pub_shift(pub));
        for (uint32_t u = 0; u < n; u++) dlpi_deal(p, p->work[0], 0, b, u);
    }
}

/* Batches of which this rank has no row: ready as they are fed, so nobody's work shows them to the
   stage behind the items. Its lanes have one producer each, which the feeder is not: those workers
   look around. */
static void dlpi_feed_empty(dlp_pipe *p, uint64_t first) {
    dlpi_stage *next = p->n_item_work < p->n_work ? p->work[p->n_item_work] : NULL;
    uint32_t n = 0;
    for (uint64_t b = first; b != p->feed.published; b++)
        if (dlpi_slot_at(p, dlpi_slot_of(p, b))->count == 0) n++;
    if (n == 0) return;
    if (next != NULL && next->w.num_workers > 0) {
        DLPI_ADD_SEQ(&p->bells[next->work].rewind, UINT64_C(1)); /* R1 -> R1 */
        for (uint64_t b = first; b != p->feed.published; b++) dlpi_ring_batch(p, next, b, 1);
    } else {
        dlpi_ring_caller(p->ctl, UINT64_MAX);
        dlpi_ring_share(p->share);
    }
}

/* A batch sampler goes on from its saved bytes, or replays the epoch's lists. */
static int dlpi_feed_restore(dlp_pipe *p, const dlpi_place *to) {
    dlpi_feeder *f = &p->feed;
    const dlp_batch_sampler *b = &p->sampler->sampler.batches;
    int rc;
    if (to->batch == 0) return DLP_OK;
    if (b->restore && to->sampler_bytes > 0) {
        /* it stands before the list asked for next */
        memcpy(f->ahead_state, &to->sampler_bytes, 4);
        memcpy(f->ahead_state + 8, to->sampler, DLP_SAMPLER_STATE_BYTES);
        rc = b->restore(b->user, to->sampler, to->sampler_bytes);
        f->in_epoch = to->batch;
        f->position = to->position;
        return rc != 0 ? dlpi_feed_fail(p, "the batch sampler's restore", rc) : dlpi_feed_list(p);
    }
    rc = dlpi_feed_begin(p);
    while (rc == DLP_OK && f->in_epoch < to->batch && f->ahead > 0)
        rc = dlpi_feed_step(p, (uint64_t)f->ahead);
    if (rc == DLP_OK && f->in_epoch < to->batch)
        return dlpi_feed_fail(p,
                              "the batch sampler ended the epoch before the saved state; its "
                              "next",
                              0);
    return rc;
}

/* Go on at another place. */
static int dlpi_feed_goto(dlp_pipe *p, const dlpi_place *to) {
    dlpi_feeder *f = &p->feed;
    uint32_t skipped = 0,
             window = p->d.unordered && p->ring > DLPI_WINDOW_MAX ? DLPI_WINDOW_MAX : p->ring;
    dlpi_feed_epoch(f, to->epoch);
    f->skip_base = to->batch;
    memcpy(f->skip_bits, to->window, sizeof f->skip_bits);
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++) skipped += to->window[k / 8] >> k % 8 & 1u;
    /* all that a state must tell apart fits in its bitmap */
    if (window + skipped > DLPI_WINDOW_MAX)
        window = skipped < DLPI_WINDOW_MAX ? DLPI_WINDOW_MAX - skipped : 1;
    p->window = p->d.unordered ? window : p->ring;
    if (p->sampler->sampler.order == DLP_ORDER_BATCHES) return dlpi_feed_restore(p, to);
    f->in_epoch = to->batch;
    f->position = to->batch * p->global_batch;
    if (p->parts) dlpi_parts_goto(p, to->epoch, to->batch);
    return DLP_OK;
}

/* ctl.fed_all of a feeder that has ended. */
static inline uint32_t dlpi_fed_word(uint32_t life) { return life << 1 | 1u; }

static pthread_mutex_t dlpi_place_lock = PTHREAD_MUTEX_INITIALIZER;

/* The caller has sought: follow it. A feeder that failed stays where it is, and says so anew. */
static void dlpi_feed_follow(dlp_pipe *p) {
    dlpi_feeder *f = &p->feed;
    dlpi_place to;
    int rc;
    if (DLPI_LIKELY(dlpi_mark_life(DLPI_LOAD_SEQ(&p->ctl->cancel)) == f->life)) return; /* N1, B1 */
    pthread_mutex_lock(&dlpi_place_lock);
    to = p->place;
    pthread_mutex_unlock(&dlpi_place_lock);
    f->life = to.life;
    if (f->ended && DLPI_LOAD_RLX(&p->ctl->feed_code) != 0) {     /* our own store */
        DLPI_STORE_SEQ(&p->ctl->fed_all, dlpi_fed_word(f->life)); /* T1 -> T1 */
        dlpi_ring_caller(p->ctl, UINT64_MAX);
        return;
    }
    f->ended = 0;
    DLPI_STORE_SEQ(&p->ctl->fed_all, 0u); /* T1 -> T1 */
    if ((rc = dlpi_feed_goto(p, &to)) == DLP_OK) return;
    dlpi_feed_end(p, rc);
    DLPI_STORE_SEQ(&p->ctl->fed_all, dlpi_fed_word(f->life)); /* T1 -> T1 */
    dlpi_ring_caller(p->ctl, UINT64_MAX);
}

/* Feed all that may be fed, once there are `burst` credits; returns how many batches. */
static uint64_t dlpi_feed(dlp_pipe *p, uint64_t burst) {
    dlpi_feeder *f = &p->feed;
    uint64_t before = f->published;
    dlpi_feed_follow(p);
    if (f->ended) return 0;
    if (p->share && !dlpi_shm->may_feed(p)) return 0;
    if (p->parts) dlpi_parts_ahead(p);
    if (before - DLPI_LOAD_SEQ(&p->ctl->delivered) + burst > p->prefetch) return 0; /* V1 <- V1 */
    while (!f->ended) {
        uint64_t out = f->published - DLPI_LOAD_SEQ(&p->ctl->delivered); /* V1 <- V1 */
        uint64_t base = DLPI_LOAD_SEQ(&p->ctl->base);                    /* V1 <- V1 */
        if (out >= p->prefetch || f->published - base >= p->window) break;
        if (dlpi_feed_one(p) <= 0) break;
    }
    if (f->published != before) {
        DLPI_STORE_SEQ(&p->ctl->tail, f->published); /* T1 -> T1: all slots above are published */
        if (p->work[0]->n_producers > 0)
            dlpi_feed_deal(p, before);
        else
            dlpi_feed_wake(p, f->published - before);
        if (p->world > 1) dlpi_feed_empty(p, before);
        if (p->parts) dlpi_parts_ahead(p);
    }
    if (f->ended) {
        DLPI_STORE_SEQ(&p->ctl->fed_all, dlpi_fed_word(f->life)); /* T1 -> T1: after the tail */
        dlpi_ring_caller(p->ctl, UINT64_MAX);
        dlpi_ring_share(p->share);
    }
    return f->published - before;
}
