#pragma once
/* tests: system/shm/shm_behind */
#include "api/shm_subscriber.h"
#include "wait/waiters.h"
#include "queue/credit.h"
#include "queue/offer.h"
#include "shm/supervisor.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-impl-behind    SUBSCRIBERS THAT NOBODY WAITS FOR
   What such a subscriber does not hold is an offer (>>impl-offer), which the scheduler withdraws
   when all others have given the slot back and it needs it. Offers [cursor, cursor + keep) it
   leaves alone: those are the subscriber's places. With DLP_BEHIND_DROP_NEW they are as many as it
   could hold and does not; with DLP_BEHIND_KEEP_NEWEST one, while it waits in next for a batch.

   label  atomic                  written by                    read by (partner)
   H3     cursor                  subscriber                    scheduler, >>shm-impl-subscriber
   H6     keep                    subscriber                    scheduler (H6)

   cursor and keep are advice: one that is old costs the subscriber a batch, or the scheduler a look
   more, never a slot that is written under a reader; that is for the word of the offer alone. keep
   is stored before the scheduler is woken, so that it does not sleep over a slot that is free. */

typedef struct dlpi_cblock { /* in region: a subscriber's words; released[n_slots] follows */
    uint64_t present;        /* H2 odd: it is there */
    uint64_t cursor;         /* H3 batches below are taken, or not for it */
    int32_t pid;             /* for people */
    uint32_t held;
    uint64_t keep;     /* H6 offers from the cursor on that are its own */
    uint64_t missed;   /* for people */
    uint32_t behind;   /* DLP_BEHIND_*; H2 ordered by present */
    uint32_t max_held; /* for people */
    uint8_t pad[DLPI_LINE - 48];
} dlpi_cblock;
_Static_assert(sizeof(dlpi_cblock) == DLPI_LINE, "region layout");

/* ---- the scheduler's side ---- */

/* Must the scheduler leave batch b, in the slot of this word, to the subscriber? */
static bool dlpi_behind_keeps(const dlpi_cblock *k, uint64_t join, const uint64_t *word,
                              uint64_t b) {
    uint64_t was = dlpi_offer_look(word), at;
    if (was == b + 1) return false;
    if (!dlpi_offer_open(was, b)) return true;                       /* it holds it */
    at = dlpi_credit_seen(&k->cursor);                               /* H3 <- H3 */
    return b - (at < join ? join : at) < dlpi_credit_seen(&k->keep); /* H6 <- H6 */
}
