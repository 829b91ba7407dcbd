#pragma once
/* tests: unit/queue/queue_offer, model/model_links, model/model_subscribers */
#include "api/atomics.h"
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-offer      OFFERS: TO BE TAKEN, OR TAKEN BACK
   A cell is used again and again, and a reader of it may be late. A word for each reader and cell
   tells what became of batch b, which is in the cell now:
     less than b + 1          the batch is offered
     b + 1 with the top bit   the reader has taken the batch
     b + 1                    the batch is over: given back, or withdrawn before it was taken

   label  access                by whom              order     partner
   H4     dlpi_offer_take       reader               cas       dlpi_offer_withdraw, dlpi_offer_over
   H4     dlpi_offer_withdraw   who uses cells again cas       dlpi_offer_take
   H4     dlpi_offer_give       reader               seq_cst   dlpi_offer_over; before a wake
   H4     dlpi_offer_over       who uses cells again seq_cst   dlpi_offer_give, dlpi_offer_take

   No cell is written under a reader. The cell is used again only if the word says b + 1. Two swaps
   leave "offered", and only one of them succeeds. If it is the reader's swap, the reader writes
   b + 1 after its last read. If it is the withdrawal, the reader's swap fails. The cell may go on
   to batch b' after the reader looked which batch the cell has. Then b was over, so the word is
   b + 1 or more, because it never gets smaller. The reader's swap expects less, and fails, too.
   Crashes: the side that uses cells again knows which readers are gone, and no longer looks at
   their words. The next reader in the same place takes over the words. They are older than all
   batches that it is offered. */

#define DLPI_OFFER_TAKEN (UINT64_C(1) << 63)

DLPI_INLINE uint64_t dlpi_offer_look(const uint64_t *word) {
    return DLPI_LOAD_SEQ(word); /* H4 <- H4 */
}
/* True if, by this word, batch b is still offered: neither taken nor over. */
DLPI_INLINE bool dlpi_offer_open(uint64_t word, uint64_t b) {
    return (word & ~DLPI_OFFER_TAKEN) <= b;
}
/* True if the reader has given batch b back, or if the batch was withdrawn. */
DLPI_INLINE bool dlpi_offer_over(const uint64_t *word, uint64_t b) {
    return dlpi_offer_look(word) == b + 1;
}

/* Take batch b, which the cell had a moment ago, for the reader. Returns false if it was
   withdrawn. */
DLPI_INLINE bool dlpi_offer_take(uint64_t *word, uint64_t b) {
    uint64_t was = dlpi_offer_look(word);
    return dlpi_offer_open(was, b) &&
           DLPI_CAS_SEQ(word, &was, (b + 1) | DLPI_OFFER_TAKEN); /* H4 <-> H4 */
}

/* Give batch b back, by the reader, after its last read. If no one withdraws the offers of this
   reader, it need not have taken the batch. */
DLPI_INLINE void dlpi_offer_give(uint64_t *word, uint64_t b) {
    DLPI_STORE_SEQ(word, b + 1); /* H4 -> H4 */
}

/* Take back an offer that the reader has not taken, before the cell is used again. Returns true if
   the batch is over: withdrawn now, or given back before. */
DLPI_INLINE bool dlpi_offer_withdraw(uint64_t *word, uint64_t b) {
    uint64_t was = dlpi_offer_look(word);
    if (was == b + 1) return true;
    return dlpi_offer_open(was, b) && DLPI_CAS_SEQ(word, &was, b + 1); /* H4 <-> H4 */
}
