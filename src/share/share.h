#pragma once
/* tests: system/core/outs, system/shm/shm_behind, model/model_subscribers */
#include "api/graph.h"
#include "deliver/deliver.h"
#include "queue/offer.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-share      SEVERAL TAKE THE SAME BATCHES
   Beside the consumer there may be subscribers: other programs (dlpipe_shm.h), and outs of this
   process (>>impl-outs). The area of these has:

   share | takers, a word a slot | admits, a line a subscriber | subscribers' own blocks

   label  atomic                  written by                    read by (partner)
   H2     present, admit.present  subscriber; scheduler         scheduler; subscriber (H2)
   H3     cursor                  subscriber                    scheduler (H3)
   H4     released[slot]          subscriber; scheduler         scheduler (H4), >>impl-offer
   H6     keep                    subscriber                    scheduler (H6)
   H2, H3 and H6 are counters of >>impl-credit, H4 are words of >>impl-offer.

   The scheduler alone publishes batches and reuses slots. A subscriber that is there has each batch
   from its first one on. If the pipe waits for the subscriber, a slot is reused only when
   released[slot] says that the subscriber gave the batch back. Whether a slot is free is derived
   from these words each time; no count of holders could be left wrong.

   If the pipe does not wait for a subscriber, a batch that the subscriber does not hold is an
   offer. The scheduler withdraws an offer when all others have given the slot back and it needs the
   slot. It leaves the offers [cursor, cursor + keep) alone: these are the subscriber's places. If
   the subscriber drops new batches, keep is the number of batches that it could hold more. If it
   keeps the newest, it has one place while it waits for a batch. cursor and keep are advice. An old
   value costs the subscriber a batch, or the scheduler one
   more look. It never costs a slot that is written under a reader: the word of the offer alone
   decides that. keep is stored before the scheduler is woken, so that it does not sleep over a slot
   that is free. */

typedef struct dlpi_cblock { /* in region: a subscriber's words; released[n_slots] follows */
    uint64_t present;        /* H2 odd: the subscriber is attached */
    uint64_t cursor;         /* H3 batches below this number are taken, or not meant for it */
    int32_t pid;             /* its process; for observers */
    uint32_t held;           /* batches that it holds; for observers */
    uint64_t keep;   /* H6 number of offers, from the cursor on, that the scheduler leaves alone */
    uint64_t missed; /* batches that it did not get; for observers */
    uint32_t behind; /* DLP_FULL_*; H2 ordered by present */
    uint32_t max_held; /* batches that it may hold; for observers */
    uint8_t pad[DLPI_LINE - 48];
} dlpi_cblock;
_Static_assert(sizeof(dlpi_cblock) == DLPI_LINE, "region layout");

typedef struct dlpi_admit { /* in region: the scheduler's words */
    uint64_t present; /* H2 `present` of the subscriber that is admitted; else another value */
    uint64_t join;    /* H2 the first batch of that subscriber */
    uint8_t pad[DLPI_LINE - 16];
} dlpi_admit;

_Static_assert(sizeof(dlpi_admit) == DLPI_LINE, "region layout");

static dlpi_admit *dlpi_share_admit(dlpi_share *h, uint32_t i) {
    return (dlpi_admit *)(void *)((uint8_t *)h + h->admits_at) + i;
}
static dlpi_cblock *dlpi_share_block(dlpi_share *h, uint32_t i) {
    return (dlpi_cblock *)(void *)((uint8_t *)h + h->subscribers_at + i * h->subscriber_bytes);
}
static uint64_t *dlpi_share_released(dlpi_share *h, uint32_t i) {
    return (uint64_t *)(void *)(dlpi_share_block(h, i) + 1);
}

/* Set the offsets of the parts in *h. Returns the bytes of the whole area. */
static inline uint64_t dlpi_share_layout(dlpi_share *h, uint32_t mode, uint32_t subscribers,
                                         uint32_t slots) {
    const uint64_t line = DLPI_LINE;
    *h = (dlpi_share){.sleepers = {.shared = 1},
                      .mode = mode,
                      .max_subscribers = subscribers,
                      .n_slots = slots,
                      .takers_at = sizeof *h};
    h->admits_at = h->takers_at + (slots * 8u + line - 1) / line * line;
    h->subscribers_at = h->admits_at + subscribers * sizeof(dlpi_admit);
    h->subscriber_bytes = sizeof(dlpi_cblock) + (slots * 8u + line - 1) / line * line;
    return h->subscribers_at + subscribers * h->subscriber_bytes;
}

/* ---- the scheduler's side ---- */

/* Return the number + 1 of the batch that slot k has; 0 if it has had none yet. */
static uint64_t dlpi_share_given(const dlp_pipe *p, uint32_t k) {
    const dlpi_bslot *slot = dlpi_slot_at(p, k); /* the scheduler's own words */
    return dlpi_gen(DLPI_LOAD_RLX(&slot->header)) == DLPI_GEN_MASK ? 0 : slot->sequence + 1;
}

/* True if batch b must be left to a subscriber, whose word of the slot this is: it has b, or a
   place. */
static bool dlpi_behind_keeps(const dlpi_cblock *k, uint64_t join, const uint64_t *word,
                              uint64_t b) {
    uint64_t was = dlpi_offer_look(word), at;
    if (was == b + 1) return false;
    if (!dlpi_offer_open(was, b)) return true;                       /* it holds it */
    at = dlpi_credit_seen(&k->cursor);                               /* H3 <- H3 */
    return b - (at < join ? join : at) < dlpi_credit_seen(&k->keep); /* H6 <- H6 */
}

/* True if subscriber i is in the set (a bit for each) and batch b is not before its first batch. */
static bool dlpi_share_has(dlp_pipe *p, uint64_t set, uint32_t i, uint64_t b) {
    uint64_t join = DLPI_LOAD_RLX(&dlpi_share_admit(p->share, i)->join); /* H2: our own */
    return (set >> i & 1) != 0 && join <= b;
}

/* True if all in the set `waited`, for which the pipe waits, have given back batch b in slot k. */
static inline bool dlpi_share_each_gave(dlp_pipe *p, uint64_t waited, uint32_t k, uint64_t b) {
    for (uint32_t i = 0; i < p->share->max_subscribers; i++)
        if (dlpi_share_has(p, waited, i, b) &&
            !dlpi_offer_over(&dlpi_share_released(p->share, i)[k], b)) /* H4 <- H4 */
            return false;
    return true;
}

/* True if slot k, which all others have given back, may be used again. Nobody waits for the set
   `late`. They lose what the slot has, but none of them does if one has taken it. */
static inline bool dlpi_share_withdraw(dlp_pipe *p, uint64_t late, uint32_t k) {
    dlpi_share *h = p->share;
    uint64_t b = dlpi_share_given(p, k) - 1;
    if (b + 1 == 0 || late == 0) return true;
    for (uint32_t i = 0; i < h->max_subscribers; i++)
        if (dlpi_share_has(p, late, i, b) &&
            dlpi_behind_keeps(dlpi_share_block(h, i), dlpi_share_admit(h, i)->join,
                              &dlpi_share_released(h, i)[k], b))
            return false;
    for (uint32_t i = 0; i < h->max_subscribers; i++)
        if (dlpi_share_has(p, late, i, b) &&
            !dlpi_offer_withdraw(&dlpi_share_released(h, i)[k], b)) /* H4 <-> H4 */
            return false;
    return true;
}
