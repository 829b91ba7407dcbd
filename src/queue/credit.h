#pragma once
/* tests: unit/queue/queue_credit, model/model_links */
#include "api/atomics.h"
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-credit     CREDITS: COUNTERS AND CELLS THAT COME BACK
   An spsc link whose records have nothing but their number, and the free list of a pool. A counter
   has one writer. A cell's word is not 0 while the cell is taken. One thread takes a cell, and one
   gives it back.

   call                       label       order    by whom              partner
   dlpi_credit_publish        T1, V1      seq_cst  the counter's writer dlpi_credit_seen; before a
                                                                        wake, so before B1
   dlpi_credit_publish_quiet  V1          release  where nobody sleeps  dlpi_credit_seen
                                                   for it
   dlpi_credit_add            Q2          add      one of many writers  dlpi_credit_seen
   dlpi_credit_seen           T1, V1, Q2  seq_cst  the reader; also a   dlpi_credit_publish
                                                   sleeper's last look
   dlpi_credit_look           T1, V1      acquire  observers            dlpi_credit_publish
   dlpi_credit_close          T1          seq_cst  the counter's writer dlpi_credit_closed: read
                                                                        before the counter
   dlpi_credit_take           C1, C2      relaxed  who takes the cell   none: it alone takes
   dlpi_credit_done           C1, C2      seq_cst  who gives it back    dlpi_credit_held
   dlpi_credit_done_quiet     C1          release  where nobody sleeps  dlpi_credit_held
                                                   for it
   dlpi_credit_held           C1, C2      seq_cst, acquire: who takes   dlpi_credit_done

   Full and empty: the writer compares two counters, and owns one of them. The value that it reads
   of the other may be old. Then there is more room than the writer sees, never less. Wrap: counters
   have 64 bits. Crashes: each step is one store, made after the work that it tells of. If the owner
   of a cell died before it gave the cell back, the cell is still taken. Recovery knows by its own
   records who had the cell. */

DLPI_INLINE void dlpi_credit_publish(uint64_t *counter, uint64_t n) {
    DLPI_STORE_SEQ(counter, n); /* T1, V1 -> T1, V1, B1 */
}
DLPI_INLINE void dlpi_credit_publish_quiet(uint64_t *counter, uint64_t n) {
    DLPI_STORE_REL(counter, n); /* V1 -> V1 */
}
DLPI_INLINE void dlpi_credit_add(uint64_t *counter) {
    DLPI_ADD_SEQ(counter, UINT64_C(1)); /* Q2 -> Q2 */
}
DLPI_INLINE uint64_t dlpi_credit_seen(const uint64_t *counter) {
    return DLPI_LOAD_SEQ(counter); /* T1, V1, Q2 <- T1, V1, Q2 */
}
DLPI_INLINE uint64_t dlpi_credit_look(const uint64_t *counter) {
    return DLPI_LOAD_ACQ(counter); /* T1, V1 <- T1, V1 */
}

/* Say by a word other than 0 that the counter will not move any more. 0 says that it goes on. */
DLPI_INLINE void dlpi_credit_close(uint32_t *end, uint32_t word) {
    DLPI_STORE_SEQ(end, word); /* T1 -> T1: after the counter */
}
DLPI_INLINE uint32_t dlpi_credit_closed(const uint32_t *end) {
    return DLPI_LOAD_SEQ(end); /* T1 <- T1: before the counter */
}

DLPI_INLINE void dlpi_credit_take(uint32_t *cell, uint32_t word) {
    DLPI_STORE_RLX(cell, word); /* C1, C2: only one takes */
}
/* Give the cell back. word: 0 means that the cell is free. Another word means that something else
   still uses the cell; a later call with 0 frees it. */
DLPI_INLINE void dlpi_credit_done(uint32_t *cell, uint32_t word) {
    DLPI_STORE_SEQ(cell, word); /* C1, C2 -> C1, C2, B1 */
}
DLPI_INLINE void dlpi_credit_done_quiet(uint32_t *cell) { DLPI_STORE_REL(cell, 0u); /* C1 -> C1 */ }
DLPI_INLINE uint32_t dlpi_credit_held(const uint32_t *cell) {
    return DLPI_LOAD_SEQ(cell); /* C1 <- C1 */
}
DLPI_INLINE uint32_t dlpi_credit_held_look(const uint32_t *cell) {
    return DLPI_LOAD_ACQ(cell); /* C2 <- C2 */
}
