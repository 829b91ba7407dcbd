#pragma once
/* tests: unit/queue/queue_credit */
#include "api/atomics.h"
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-first      FIRST: MANY WRITERS, ONE RECORD, THE FIRST ONE STAYS
   The place of an error. Before a writer writes the record, it puts its number into a word. So
   recovery knows of a writer that died half-way, and ends the record for it. Another value, or
   another word, tells that the record is whole.

   call                      label       order    by whom             partner
   dlpi_first_take           E1, F1      swap     writers             one of them
   dlpi_first_publish        E1, F1      seq_cst  the one that has    dlpi_first_seen; before a
                                                  it; recovery        wake, so before B1
   dlpi_first_publish_quiet  F1, K3      release  the one that has it dlpi_first_look
   dlpi_first_seen           E1, F1      seq_cst  readers, recovery   dlpi_first_publish
   dlpi_first_look           F1, K3      acquire  readers             dlpi_first_publish

   Full: a second writer writes nothing. Empty: 0. It does not wrap, because the record is used
   once. The record of a batch is used again with its slot, and then nobody may look at it. */

/* Take the record for one writer. mine: not 0. Returns false if another writer took it first. */
DLPI_INLINE bool dlpi_first_take(uint32_t *word, uint32_t mine) {
    uint32_t none = 0;
    return DLPI_CAS_SEQ(word, &none, mine); /* E1, F1: the first one stays */
}
DLPI_INLINE void dlpi_first_publish(uint32_t *word) {
    DLPI_STORE_SEQ(word, 1u); /* E1, F1 -> E1, F1 */
}
DLPI_INLINE void dlpi_first_publish_quiet(uint32_t *word) {
    DLPI_STORE_REL(word, 1u); /* F1, K3 -> F1, K3 */
}
DLPI_INLINE uint32_t dlpi_first_seen(const uint32_t *word) {
    return DLPI_LOAD_SEQ(word); /* E1, F1 <- E1, F1 */
}
DLPI_INLINE uint32_t dlpi_first_look(const uint32_t *word) {
    return DLPI_LOAD_ACQ(word); /* F1, K3 <- F1, K3 */
}
