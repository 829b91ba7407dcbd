#pragma once
/* tests: unit/queue/queue_gather, model/model_slots */
#include "api/atomics.h"
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-gather     GATHER: MANY WRITERS, ONE READER IN ORDER
   A record is a batch. Many writers complete its rows, each row once or again, in any order. The
   batch is out when all its bits are set. A countdown would not do: a row may be completed twice.

   done[i]    which of rows 32 i .. 32 i + 31 are complete: generation (32), a bit for each
   scan       where there is more than one of those: done words below are full. generation (32) |
              how often the batch went back (16) | word (16). A hint
   ready      how often batches went back (16) | sequence + 1 (48) of the batch that is out
   Words are never reset: one of an older generation counts as empty.

   call                  label  order    by whom                        partner
   dlpi_gather_publish   D1     swap     a writer, after its rows       D1 of whoever looks for full
   dlpi_gather_bits      D1     seq_cst  the next stage, recovery       D1
   dlpi_gather_full      D1     seq_cst  who filled a word              D1
                         D2     acquire, release: the scan hint         D2: rows of the words that
                                                                        it skips are passed on, too
   dlpi_gather_take_back D1     and      who sends rows back            D1
   dlpi_gather_close     Y1     swap     who found all words full       Y1 of the reader
   dlpi_gather_single    D1     release  the claimant of a batch of one D1 of recovery
                                         row; before it a relaxed
                                         look at Y1, behind it close
   dlpi_gather_pass      Y1     seq_cst  the one writer of a batch      Y1 of the reader
   dlpi_gather_put       Y1     seq_cst  a stage that nothing goes      Y1 of the reader
                                         back to
   dlpi_gather_skip      Y1     release  the scheduler: no rows         Y1 of the reader, by a tail
   dlpi_gather_ready     Y1     seq_cst  the reader; a sleeper's last   Y1
                                         look, so after B1
   dlpi_gather_look      Y1     acquire  completers, observers          Y1
   dlpi_gather_undo      Y1     seq_cst  who sends a batch back         Y1 of a closer

   Why a batch leaves once. done[i] becomes full by one swap. The writer that made a word full then
   looks at the other words. The swaps are totally ordered, so the last of them sees all words full.
   If several writers see all words full, the swap on ready lets one of them through.
   Full: a writer never finds the record full. It has claimed the unit, so the record has its batch.
   Empty: ready has the number of an older batch. Sequences have 48 bits, and do not wrap.
   Wrap: done words keep 32 bits of the generation. A record is used again only when it is out. Each
   batch of a record writes all words in which it has rows. So a word cannot be 2^32 batches old,
   unless as many batches had no rows there.
   Crashes: a writer that dies before the swap has completed nothing. Its bits are missing, and the
   claim tells whose they were. A writer may die between the last bit and ready. Then the batch is
   full, and recovery closes it by the same swap. If rows are taken back, their bits go first. Then
   the count in ready changes, so the swap of a closer that has read ready before fails. */

#define DLPI_WORD_ROWS 32u
#define DLPI_READY_BITS 48
#define DLPI_READY_MASK ((UINT64_C(1) << DLPI_READY_BITS) - 1)

typedef uint64_t dlpi_gather_word;

DLPI_INLINE bool dlpi_ready_is(uint64_t word, uint64_t b) {
    return ((word ^ (b + 1)) & DLPI_READY_MASK) == 0;
}
DLPI_INLINE uint64_t dlpi_ready_word(uint64_t word, uint64_t b) {
    return (word & ~DLPI_READY_MASK) | ((b + 1) & DLPI_READY_MASK);
}
/* True if batch b, or a later batch in the same record, has left the stage. */
DLPI_INLINE bool dlpi_ready_past(uint64_t word, uint64_t b) {
    return (word & DLPI_READY_MASK) > (b & DLPI_READY_MASK);
}
/* Return the bits that a batch of `count` rows has in done word number `word` when it is full. */
DLPI_INLINE uint32_t dlpi_word_full(uint32_t count, uint32_t word) {
    uint32_t rows = count - word * DLPI_WORD_ROWS;
    return rows >= DLPI_WORD_ROWS ? UINT32_MAX : (UINT32_C(1) << rows) - 1u;
}
/* Return the bits of rows [row, end), which lie in one done word. */
DLPI_INLINE uint32_t dlpi_unit_mask(uint32_t row, uint32_t end) {
    uint32_t n = end - row;
    uint32_t ones = n >= DLPI_WORD_ROWS ? UINT32_MAX : (UINT32_C(1) << n) - 1u;
    return ones << (row % DLPI_WORD_ROWS);
}

/* ---- writers ---- */

/* Set the bits of rows of batch b that are complete. Returns all bits that the word has now. */
DLPI_INLINE uint32_t dlpi_gather_publish(dlpi_gather_word *done, uint64_t b, uint32_t mask) {
    uint64_t old = DLPI_LOAD_RLX(done), now; /* D1: the swap below orders it */
    do {
        now = (old >> 32 == (b & UINT32_MAX) ? old : b << 32) | mask;
    } while (!DLPI_CAS_SEQ(done, &old, now)); /* D1 -> D1 */
    return (uint32_t)now;
}

/* Return the bits of done[i] for batch b; 0 if the word is of another generation. */
DLPI_INLINE uint32_t dlpi_gather_bits(const dlpi_gather_word *done, uint32_t i, uint64_t b) {
    uint64_t word = DLPI_LOAD_SEQ(&done[i]); /* D1 <- D1 */
    return (uint32_t)(word >> 32) == (uint32_t)b ? (uint32_t)word : 0;
}

/* Return the bits of `mask` whose rows are missing; 0 if the word is of a later batch: b is out. */
DLPI_INLINE uint32_t dlpi_gather_missing(const dlpi_gather_word *done, uint64_t b, uint32_t mask) {
    uint64_t word = DLPI_LOAD_SEQ(done); /* D1 <- D1 */
    int32_t newer = (int32_t)((uint32_t)(word >> 32) - (uint32_t)b);
    if (newer > 0) return 0;
    return newer == 0 ? mask & ~(uint32_t)word : mask;
}

/* True if all done words of batch b are full. Starts at the hint in *scan, and moves it; scan is
   NULL if there is none. seen: ready as it was before; the hint is for its redo count only. */
DLPI_INLINE bool dlpi_gather_full(const dlpi_gather_word *done, uint64_t *scan, uint64_t b,
                                  uint32_t count, uint64_t seen) {
    uint64_t key = (b << 16 | seen >> DLPI_READY_BITS) << 16;
    /* D2 <- D2: rows of the words it skips are ours to pass on */
    uint64_t hint = scan ? DLPI_LOAD_ACQ(scan) : 0;
    uint32_t i = scan && (hint ^ key) >> 16 == 0 ? (uint32_t)hint & 0xffffu : 0, from = i;
    uint32_t words = (count + DLPI_WORD_ROWS - 1) / DLPI_WORD_ROWS;
    for (; i < words; i++) {
        uint64_t word = DLPI_LOAD_SEQ(&done[i]); /* D1 <- D1 */
        if (word != ((b & UINT32_MAX) << 32 | dlpi_word_full(count, i))) break;
    }
    if (scan && i != from) DLPI_STORE_REL(scan, key | i); /* D2 -> D2: full words stay full */
    return i == words;
}

/* Let batch b out. seen: ready, read before the words were found full. True for one of several
   callers. */
DLPI_INLINE bool dlpi_gather_close(dlpi_gather_word *ready, uint64_t seen, uint64_t b) {
    return DLPI_CAS_SEQ(ready, &seen, dlpi_ready_word(seen, b)); /* Y1 -> Y1 */
}
/* Complete the one row of batch b, by its claimant, which alone writes the bits until the batch is
   out. Then let the batch out. Recovery may find the bit and let the batch out before. In that case
   ready is not what it was before the bit, and the swap fails. Returns false then, else true. */
DLPI_INLINE bool dlpi_gather_single(dlpi_gather_word *done, dlpi_gather_word *ready, uint64_t b) {
    uint64_t seen = DLPI_LOAD_RLX(ready);     /* Y1: before the bit, which releases */
    DLPI_STORE_REL(done, b << 32 | 1u);       /* D1 -> D1 */
    return dlpi_gather_close(ready, seen, b); /* Y1 -> Y1 */
}
/* Let batch b out, by the only worker that has rows of it. */
DLPI_INLINE void dlpi_gather_pass(dlpi_gather_word *ready, uint64_t b) {
    DLPI_STORE_SEQ(ready, dlpi_ready_word(DLPI_LOAD_RLX(ready), b)); /* Y1 -> Y1 */
}
DLPI_INLINE void dlpi_gather_skip(dlpi_gather_word *ready, uint64_t b) {
    DLPI_STORE_REL(ready, dlpi_ready_word(DLPI_LOAD_RLX(ready), b)); /* Y1 -> Y1 */
}
/* Let batch b out of a stage to which no batch is sent back. */
DLPI_INLINE void dlpi_gather_put(dlpi_gather_word *ready, uint64_t b) {
    DLPI_STORE_SEQ(ready, b + 1); /* Y1 -> Y1 */
}

/* ---- the reader ---- */

DLPI_INLINE uint64_t dlpi_gather_ready(const dlpi_gather_word *ready) {
    return DLPI_LOAD_SEQ(ready); /* Y1 <- Y1 */
}
DLPI_INLINE uint64_t dlpi_gather_look(const dlpi_gather_word *ready) {
    return DLPI_LOAD_ACQ(ready); /* Y1 <- Y1 */
}

/* ---- rows and batches that go back ---- */

/* Clear the bits of rows that are to be done once more. */
DLPI_INLINE void dlpi_gather_take_back(dlpi_gather_word *done, uint32_t rows) {
    DLPI_AND_SEQ(done, ~(uint64_t)rows); /* D1 -> D1 */
}

/* Take back that batch b is out: ready becomes that of the batch before, with another count. */
DLPI_INLINE void dlpi_gather_undo(dlpi_gather_word *ready, uint64_t b) {
    uint64_t next = (DLPI_LOAD_SEQ(ready) >> DLPI_READY_BITS) + 1;          /* Y1 <- Y1 */
    DLPI_STORE_SEQ(ready, next << DLPI_READY_BITS | (b & DLPI_READY_MASK)); /* Y1 -> Y1 */
}
