#pragma once
/* tests: system/core/outs, system/shm/shm_subscriber, model/model_subscribers */
#include "share/share.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-subscriber  A SUBSCRIBER TAKES BATCHES
   The common part of a subscriber of another program and of an out of this process: find the next
   batch, take it, give it back, and wait. The two differ in how they find the words that are named
   here, and in what they show of a batch (dlpi_subscriber_ops). */

typedef struct dlpi_loan { /* a batch that the user of a subscriber may hold */
    dlp_batch batch;
    dlp_tensor fields[DLP_MAX_FIELDS];
    uint8_t *valid;
    uint64_t b;    /* number of the batch */
    uint32_t slot; /* slot that has it */
    bool used;     /* true: it is held; false: the record is free */
} dlpi_loan;

typedef struct dlpi_subscriber dlpi_subscriber;

typedef struct dlpi_subscriber_ops {
    /* Take the next batch. Returns DLP_OK, DLP_EMPTY (wait), or the code that ends the batches. */
    int (*next)(dlpi_subscriber *c, dlp_batch **out);
    int (*show)(dlpi_subscriber *c, uint32_t s, dlpi_loan *loan); /* fill the loan's batch */
    void (*wake)(const dlpi_subscriber *c); /* a slot may be free: wake the scheduler */
    int (*rest)(dlpi_subscriber *c);        /* in a wait: returns DLP_OK, or a code that ends it */
} dlpi_subscriber_ops;

struct dlpi_subscriber {
    const dlpi_subscriber_ops *ops;
    uint8_t *slots; /* [n_slots] */
    uint64_t slot_stride;
    const uint32_t *order; /* [ring] slots of the batches */
    uint64_t final_at;     /* bytes from a slot's record to the words of the stage it takes from */
    dlpi_ctl *ctl;
    dlpi_share *share;
    dlpi_cblock *mine;
    uint64_t *released;
    uint32_t n_slots, ring, index, max_held, n_held, behind;
    bool paces;    /* true: the pipe waits for it, so its cursor makes room for batches */
    bool admitted; /* the scheduler has admitted it */
    bool waits;    /* a call of next waits */
    bool stays;    /* it was admitted when it began to sleep, and its bit is set */
    dlpi_wait_rule wait;
    uint64_t cursor, present, missed;
    int rc;         /* result of the last look in next; DLP_EMPTY: wait on */
    uint64_t until; /* time in ns at which next returns */
    dlp_batch **out;
    dlpi_loan *loans; /* [max_held] */
    dlp_error err;
};

static dlpi_bslot *dlpi_subscriber_slot(const dlpi_subscriber *c, uint32_t s) {
    return (dlpi_bslot *)(void *)(c->slots + s * c->slot_stride);
}

/* Publish how many offers the scheduler must leave to this subscriber: as many as it has places. */
static void dlpi_subscriber_keep(dlpi_subscriber *c) {
    uint64_t n = c->behind == DLP_FULL_DROP_NEW ? c->max_held - c->n_held : c->waits;
    uint64_t was = DLPI_LOAD_RLX(&c->mine->keep); /* our own */
    if (c->behind == DLP_FULL_WAIT || n == was) return;
    dlpi_credit_publish(&c->mine->keep, n); /* H6 -> H6, B1 */
    if (n < was) c->ops->wake(c);
}

static inline void dlpi_subscriber_leave(dlpi_subscriber *c) {
    dlpi_credit_publish(&c->mine->present, c->present + 1); /* H2 -> H2: even */
    c->ops->wake(c);
}

static int dlpi_subscriber_fail(dlpi_subscriber *c, int code, const char *message) {
    if (c->err.code == 0) dlpi_error_set(&c->err, code, "", "%s", message);
    return c->err.code;
}

/* Lend batch b, in slot s, to the subscriber. The subscriber must hold fewer than max_held batches.
   Returns DLP_OK, or the code of `show`; *out is then untouched. */
static int dlpi_subscriber_lend(dlpi_subscriber *c, uint64_t b, uint32_t s, dlp_batch **out) {
    dlpi_loan *loan = c->loans;
    int rc;
    while (loan->used) loan++;
    if ((rc = c->ops->show(c, s, loan)) != DLP_OK) return rc;
    loan->batch.sequence = b;
    loan->batch.internal = loan;
    loan->b = b;
    loan->slot = s;
    loan->used = true;
    c->n_held++;
    DLPI_STORE_RLX(&c->mine->held, c->n_held); /* for people */
    *out = &loan->batch;
    return DLP_OK;
}

/* Give back batch b, in slot s, and wake the scheduler. */
static void dlpi_subscriber_give(dlpi_subscriber *c, uint64_t b, uint32_t s) {
    dlpi_offer_give(&c->released[s], b); /* H4 -> H4 */
    c->ops->wake(c);
}

/* Lend batch b, which is taken. Returns DLP_OK, DLP_SKIP if it is passed over, or its error. */
static int dlpi_subscriber_have(dlpi_subscriber *c, uint64_t b, uint32_t s, dlp_batch **out) {
    dlpi_bslot *slot = dlpi_subscriber_slot(c, s);
    if (dlpi_cancelled(c->ctl, slot)) { /* of an epoch that was left */
        dlpi_subscriber_give(c, b, s);
        return DLP_SKIP;
    }
    if (dlpi_first_look(&slot->failed) == 1) { /* F1 <- F1 */
        dlp_error e = slot->error;
        dlpi_error_end(&e);
        if (e.code >= 0) e.code = DLP_ERR_CORRUPT;
        c->err = e;
        dlpi_subscriber_give(c, b, s);
        return e.code;
    }
    return dlpi_subscriber_lend(c, b, s, out);
}

static bool dlpi_subscriber_is_ready(const dlpi_subscriber *c, uint64_t b, uint32_t s) {
    const uint8_t *ready = (const uint8_t *)dlpi_subscriber_slot(c, s) + c->final_at;
    return dlpi_ready_is(dlpi_gather_ready((const uint64_t *)(const void *)ready),
                         b); /* Y1 <- Y1 */
}

/* Find the slot of batch b. Returns DLP_OK if b is ready, DLP_EMPTY if not, DLP_SKIP if its slot
   went on. */
static int dlpi_subscriber_ready(dlpi_subscriber *c, uint64_t b, uint32_t *s) {
    const dlpi_bslot *slot;
    uint64_t header;
    *s = DLPI_LOAD_RLX(&c->order[b & (c->ring - 1)]); /* T1 ordered by the tail that covers b */
    if (*s >= c->n_slots)
        return dlpi_subscriber_fail(c, DLP_ERR_CORRUPT, "a batch lies in no slot");
    slot = dlpi_subscriber_slot(c, *s);
    header = dlpi_claim_head_now(&slot->header); /* P1 <- P1 */
    if (dlpi_gen(header) != (b & DLPI_GEN_MASK)) return DLP_SKIP;
    return dlpi_subscriber_is_ready(c, b, *s) ? DLP_OK : DLP_EMPTY;
}

/* Take the next batch of a subscriber that is waited for. DLP_EMPTY: none is ready. DLP_END: no
   more. */
static inline int dlpi_subscriber_each(dlpi_subscriber *c, dlp_batch **out) {
    for (;;) {
        uint32_t over = dlpi_credit_closed(&c->ctl->end_of_input); /* T1 <- T1: before tail */
        uint64_t tail = dlpi_credit_seen(&c->ctl->tail);           /* T1 <- T1 */
        uint32_t s;
        int rc;
        if (c->cursor >= tail) return over ? DLP_END : DLP_EMPTY;
        rc = dlpi_subscriber_ready(c, c->cursor, &s);
        if (rc == DLP_SKIP)
            return dlpi_subscriber_fail(c, DLP_ERR_STATE,
                                        "the pipe took this subscriber for dead; subscribe again");
        if (rc != DLP_OK) return rc;
        rc = dlpi_subscriber_have(c, c->cursor, s, out);
        c->cursor++;
        dlpi_credit_publish(&c->mine->cursor, c->cursor); /* H3 -> H3 */
        if (c->paces) c->ops->wake(c);                    /* a credit, if all others took it */
        if (rc != DLP_SKIP) return rc;
    }
}

/* Find the oldest of batches [from, tail) that a subscriber which is not waited for is offered. It
   still lies in a slot, maybe far behind the ring. not_ready: find the oldest that is not ready, or
   has failed: the consumer gets none behind it. Returns its number, or tail; s: its slot. */
static uint64_t dlpi_subscriber_offered(const dlpi_subscriber *c, uint64_t from, uint64_t tail,
                                        bool not_ready, uint32_t *s) {
    uint64_t found = tail;
    for (uint32_t k = 0; k < c->n_slots; k++) {
        const dlpi_bslot *slot = dlpi_subscriber_slot(c, k);
        uint64_t gen = dlpi_gen(dlpi_claim_head_now(&slot->header)); /* P1 <- P1 */
        uint64_t at = DLPI_LOAD_RLX(&slot->sequence);                /* P1: ordered by header */
        if (gen == DLPI_GEN_MASK || gen != (at & DLPI_GEN_MASK)) continue;
        if (at < from || at >= found) continue;
        if (!dlpi_offer_open(dlpi_offer_look(&c->released[k]), at)) continue; /* H4 <- H4 */
        if (not_ready && dlpi_subscriber_is_ready(c, at, k) &&
            dlpi_first_look(&slot->failed) != 1) /* F1 <- F1 */
            continue;
        found = at;
        *s = k;
    }
    return found;
}

/* Move the cursor on. The batches between were not for this subscriber, and count as missed. */
static void dlpi_subscriber_pass(dlpi_subscriber *c, uint64_t to) {
    if (to == c->cursor) return;
    c->missed += to - c->cursor;
    c->cursor = to;
    DLPI_STORE_RLX(&c->mine->missed, c->missed); /* for people */
    dlpi_credit_publish(&c->mine->cursor, to);   /* H3 -> H3 */
}

/* Take the oldest batch that is there, for a subscriber that is not waited for. If it keeps the
   newest, take the oldest of the newest max_held that are ready. Returns DLP_OK, DLP_EMPTY or
   DLP_END, or an error. */
static inline int dlpi_subscriber_late(dlpi_subscriber *c, dlp_batch **out) {
    for (;;) {
        uint32_t over = dlpi_credit_closed(&c->ctl->end_of_input), s = 0;           /* T1 <- T1 */
        uint64_t tail = dlpi_credit_seen(&c->ctl->tail), from = c->cursor, b, ends; /* T1 <- T1 */
        int rc;
        if (c->behind == DLP_FULL_KEEP_NEWEST) {
            ends = dlpi_subscriber_offered(c, from, tail, true, &s);
            if (ends - from > c->max_held - c->n_held) from = ends - (c->max_held - c->n_held);
        }
        b = dlpi_subscriber_offered(c, from, tail, false, &s);
        dlpi_subscriber_pass(c, b);
        if (b == tail) return over ? DLP_END : DLP_EMPTY;
        if (!dlpi_subscriber_is_ready(c, b, s)) return DLP_EMPTY;
        if (!dlpi_offer_take(&c->released[s], b)) continue; /* H4 <-> H4 */
        c->cursor = b + 1;
        dlpi_credit_publish(&c->mine->cursor, c->cursor); /* H3 -> H3 */
        rc = dlpi_subscriber_have(c, b, s, out);
        dlpi_subscriber_keep(c);
        if (rc != DLP_SKIP) return rc;
    }
}

/* ---- a subscriber waits ---- */

/* Look for a batch. Returns true if the wait is over, or goes on with another bit in the mask. */
static bool dlpi_subscriber_look(void *who) {
    dlpi_subscriber *c = who;
    const uint32_t stop = DLPI_LOAD_ACQ(&c->ctl->stop); /* S1 <- S1: what came before is seen */
    if (c->rc == DLP_EMPTY) c->rc = c->ops->next(c, c->out);
    if (c->rc == DLP_EMPTY && stop != 0) c->rc = DLP_STOPPED;
    return c->rc != DLP_EMPTY || c->stays != c->admitted;
}

/* Return how long (ns) a sleep may last; 0 if the wait is over. */
static uint64_t dlpi_subscriber_rest(void *who) {
    dlpi_subscriber *c = who;
    const uint64_t now = dlpi_now_ns();
    const int rc = c->ops->rest(c);
    if (rc != DLP_OK) c->rc = rc;
    if (c->rc == DLP_EMPTY && now >= c->until) c->rc = DLP_TIMEOUT;
    if (c->rc != DLP_EMPTY) return 0;
    return c->until - now < DLPI_SLEEP_NS ? c->until - now : DLPI_SLEEP_NS;
}

static const dlpi_wait_ops dlpi_subscriber_waits = {dlpi_subscriber_look, dlpi_subscriber_rest,
                                                    NULL, NULL};

/* Wait for a batch. A subscriber that is not admitted yet has no bit, so that no batch is shown to
   it alone. The scheduler wakes all when it admits one. Returns DLP_OK or why there is no batch. */
static int dlpi_subscriber_await(dlpi_subscriber *c, dlp_batch **out, int timeout_ms) {
    c->out = out;
    c->rc = DLP_EMPTY;
    c->until = timeout_ms < 0 ? UINT64_MAX : dlpi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    c->stays = c->admitted;
    if (timeout_ms != 0) dlpi_wait_awake(dlpi_subscriber_look, c, &c->wait, false, false, c->until);
    while (c->rc == DLP_EMPTY) {
        c->stays = c->admitted;
        dlpi_wait_asleep(&dlpi_subscriber_waits, c, &c->share->sleepers,
                         c->stays ? UINT64_C(1) << c->index : 0);
    }
    return c->rc;
}

/* Take the next batch, or wait for one. Returns DLP_OK, or why there is none, such as
   DLP_TIMEOUT. */
static inline int dlpi_subscriber_next(dlpi_subscriber *c, dlp_batch **out, int timeout_ms) {
    int rc;
    if (c->n_held >= c->max_held) return DLP_ERR_HELD;
    rc = c->ops->next(c, out);
    if (rc != DLP_EMPTY) return rc;
    c->waits = true;
    dlpi_subscriber_keep(c);
    rc = dlpi_subscriber_await(c, out, timeout_ms);
    c->waits = false;
    dlpi_subscriber_keep(c);
    return rc;
}

/* Take a lent batch back, and give its slot back. Returns DLP_OK, or DLP_ERR_ARG if the batch is
   not lent. */
static inline int dlpi_subscriber_release(dlpi_subscriber *c, const dlp_batch *batch) {
    for (uint32_t i = 0; i < c->max_held; i++) {
        dlpi_loan *loan = &c->loans[i];
        if (batch != &loan->batch || !loan->used) continue;
        loan->used = false;
        c->n_held--;
        DLPI_STORE_RLX(&c->mine->held, c->n_held); /* for people */
        dlpi_subscriber_keep(c);
        dlpi_subscriber_give(c, loan->b, loan->slot);
        return DLP_OK;
    }
    return DLP_ERR_ARG;
}
