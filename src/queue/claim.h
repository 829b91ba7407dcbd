#pragma once
/* tests: unit/queue/queue_claim, model/model_slots, model/model_links */
#include "api/atomics.h"
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-claims     CLAIM: ONE WRITER, MANY READERS
   A record of the link is a batch, cut into units that readers take one by one. Nothing is popped.
   The swap that puts a reader's number into the unit's owner word IS the claim, and nothing else
   records it. So the units of a dead reader are still there, under its number.

   head       generation (39) | count (21) | padded (1) | run shift (3): the batch in the record
   owner[u]   generation (39) | who (25): reader + 1; or that and DLPI_REDO: the reader sends the
              unit back; or DLPI_FREED and a number: free again. Other links say what is with their
              record in the lower 25 bits (part cells), or have a key of their own (chunks)
   cursor     generation (39) | unit (25): units below are claimed. A hint
   rescans    counts the frees: a reader that sees it move looks once without cursors
   frees      counts them for each record: no two frees of a unit have the same word

   call                  label  order    by whom                     partner
   dlpi_claim_publish    P1     release  the writer, after fields    P1
   dlpi_claim_head       P1     acquire  readers, before a claim     P1
   dlpi_claim_head_now   P1     seq_cst  recovery, subscribers       P1
   dlpi_claim_look       O1     acquire  readers, before a claim     O1 of who freed or finished it
   dlpi_claim_owner      O1     seq_cst  recovery, the writer        O1
   dlpi_claim_take       O1     swap     readers; recovery           O1: one of them
   dlpi_claim_alone      O1     release  the only reader             O1 of recovery
   dlpi_claim_done       O1     seq_cst  the owner                   O1, after its bytes
   dlpi_claim_free       O1     seq_cst  the owner, recovery; a mark   O1; of recovery
   dlpi_claim_freed      O1     add      the owner, recovery         a number of its own
   dlpi_claim_was_freed  O1     relaxed  the stage before            ordered by its own claim
   dlpi_claim_rescan     R1     add      who freed units             R1
   dlpi_claim_rescans    R1     seq_cst  readers, before a look      R1
   dlpi_claim_cursor, dlpi_claim_advance   relaxed: a hint, whatever it says
   dlpi_claim_may, dlpi_claim_taken   O2   or, and: set before the unit may be claimed, cleared by
                                           who has claimed it          dlpi_claim_those
   dlpi_claim_those      O2     seq_cst  readers, before O1          dlpi_claim_may: no bit, no unit

   Why a claim is right. A reader that claims unit u of batch b has read an owner word older than b,
   and a head of generation b with u below its count. A record is used again only after every unit
   of b was claimed and done, and owner words only grow. So if the record went on since, the swap
   fails. A unit of b that is freed again gets generation b - 1. This is older than b, and not older
   than any other batch that the record had. It also gets a number that no claim of the unit and no
   earlier free of it had.
   The only reader of a link needs no swap. Only readers write the word of a free unit, and those
   that free a unit which a reader had.
   Full: the writer has no record whose credit is back (>>impl-credit); it never waits here.
   Empty: each owner word has b's generation. The cursor tells that early, and may be too low.
   Wrap: generations are modulo 2^39 and compared within half of that. A link has at most as many
   batches under way as it has records. A number of frees repeats after 2^23 frees of one record.
   All of these would have to come while one reader stands between its look and its swap.
   Crashes: the number of a dead reader stays in the owner word until recovery frees the unit or
   sends it back. Only recovery may act for the reader. If the reader did not write a hint, rescans
   moves, and a look without hints finds the unit. A writer publishes a head by one store, so the
   head is there as a whole or not at all. */

#define DLPI_GEN_BITS 39
#define DLPI_GEN_MASK ((UINT64_C(1) << DLPI_GEN_BITS) - 1)
#define DLPI_FREED UINT32_C(0x800000) /* in an owner word, where a reader's number is far below */
#define DLPI_REDO UINT32_C(0x1000000) /* in an owner word: the reader gives it up */

typedef uint64_t dlpi_claim_word;

DLPI_INLINE uint64_t dlpi_gen(uint64_t word) { return word >> 25; }
DLPI_INLINE uint64_t dlpi_gen_word(uint64_t b, uint64_t low) { return b << 25 | low; }
DLPI_INLINE uint32_t dlpi_gen_low(uint64_t word) { return (uint32_t)word & 0x1ffffffu; }
/* True if generation g is older than batch b. Both are modulo 2^39 and at most 2^38 apart. */
DLPI_INLINE bool dlpi_older(uint64_t g, uint64_t b) {
    return ((b - g) & DLPI_GEN_MASK) - 1 < (UINT64_C(1) << (DLPI_GEN_BITS - 1));
}

DLPI_INLINE uint64_t dlpi_header(uint64_t b, uint32_t count, uint32_t padded, uint32_t shift) {
    return dlpi_gen_word(b, (uint64_t)count << 4 | padded << 3 | shift);
}
DLPI_INLINE uint32_t dlpi_header_count(uint64_t header) {
    return (uint32_t)(header >> 4) & 0x1fffffu;
}
DLPI_INLINE bool dlpi_header_padded(uint64_t header) { return (header >> 3 & 1u) != 0; }
DLPI_INLINE uint32_t dlpi_header_shift(uint64_t header) { return (uint32_t)header & 7u; }
DLPI_INLINE uint32_t dlpi_units(uint32_t count, uint32_t shift) {
    return (count + (1u << shift) - 1u) >> shift;
}

/* ---- the writer ---- */

DLPI_INLINE void dlpi_claim_publish(dlpi_claim_word *head, uint64_t word) {
    DLPI_STORE_REL(head, word); /* P1 -> P1 */
}

/* ---- readers ---- */

DLPI_INLINE uint64_t dlpi_claim_head(const dlpi_claim_word *head) {
    return DLPI_LOAD_ACQ(head); /* P1 <- P1 */
}
DLPI_INLINE uint64_t dlpi_claim_head_now(const dlpi_claim_word *head) {
    return DLPI_LOAD_SEQ(head); /* P1 <- P1 */
}

DLPI_INLINE uint64_t dlpi_claim_look(const dlpi_claim_word *owner) {
    return DLPI_LOAD_ACQ(owner); /* O1 <- O1 */
}
DLPI_INLINE uint64_t dlpi_claim_owner(const dlpi_claim_word *owner) {
    return DLPI_LOAD_SEQ(owner); /* O1 <- O1 */
}

/* Swap the owner word from `seen` to `word`. Returns false if the word was no longer `seen`. */
DLPI_INLINE bool dlpi_claim_take(dlpi_claim_word *owner, uint64_t seen, uint64_t word) {
    return DLPI_CAS_SEQ(owner, &seen, word); /* O1 <-> O1 */
}

/* Claim a unit that a look has found free, by the only reader of the link. Nobody else may write
   the word before this claim is over. */
DLPI_INLINE void dlpi_claim_alone(dlpi_claim_word *owner, uint64_t word) {
    DLPI_STORE_REL(owner, word); /* O1 -> O1 */
}

/* Write what is with a record from now on. Only the owner of the record calls this. */
DLPI_INLINE void dlpi_claim_done(dlpi_claim_word *owner, uint64_t word) {
    DLPI_STORE_SEQ(owner, word); /* O1 -> O1 */
}

/* Return the first unit of batch b that may be free. All units below it are claimed, unless units
   were freed since; the cursor is a hint. */
DLPI_INLINE uint32_t dlpi_claim_cursor(const dlpi_claim_word *cursor, uint64_t b) {
    uint64_t next = DLPI_LOAD_RLX(cursor); /* a hint; rescans makes everybody ignore it */
    return dlpi_gen(next) == (b & DLPI_GEN_MASK) ? dlpi_gen_low(next) : 0;
}
DLPI_INLINE void dlpi_claim_advance(dlpi_claim_word *cursor, uint64_t b, uint32_t unit) {
    DLPI_STORE_RLX(cursor, dlpi_gen_word(b, unit)); /* a hint */
}

/* ---- units free again ---- */

/* Return a new owner word for a unit of batch b that is freed again: nobody's, older than b, and
   another word each time. So a claimer that read the word before, and slept while the unit was
   claimed and freed once more, finds the word changed. */
DLPI_INLINE uint64_t dlpi_claim_freed(uint32_t *frees, uint64_t b) {
    uint32_t n = DLPI_ADD_SEQ(frees, 1u); /* O1: a number of its own */
    return dlpi_gen_word(b - 1, DLPI_FREED | (n & (DLPI_FREED - 1)));
}

/* Return the owner word of a unit of batch b while reader `who` sends the unit back. */
DLPI_INLINE uint64_t dlpi_claim_reserved(uint64_t b, uint32_t who) {
    return dlpi_gen_word(b, DLPI_REDO | (who + 1u));
}
DLPI_INLINE void dlpi_claim_free(dlpi_claim_word *owner, uint64_t word) {
    DLPI_STORE_SEQ(owner, word); /* O1 -> O1 */
}

/* True if the unit of batch b was freed and nobody has claimed it since. The caller has just done
   the rows of this unit once more; its own claim orders this look. */
DLPI_INLINE bool dlpi_claim_was_freed(const dlpi_claim_word *owner, uint64_t b) {
    uint64_t now = DLPI_LOAD_RLX(owner); /* O1: ordered by our claim, see rows_redo */
    return dlpi_gen(now) == ((b - 1) & DLPI_GEN_MASK) && (now & DLPI_FREED) != 0;
}

/* ---- a bit for each unit that may be free, where they are many ---- */

/* Mark that unit u may be free. */
DLPI_INLINE void dlpi_claim_may(uint64_t *bits, uint32_t u) {
    DLPI_OR_SEQ(bits, UINT64_C(1) << u % 64); /* O2 -> O2, before O1 */
}
/* Mark that unit u is claimed. */
DLPI_INLINE void dlpi_claim_taken(uint64_t *bits, uint32_t u) {
    DLPI_AND_SEQ(bits, ~(UINT64_C(1) << u % 64)); /* O2: after O1 */
}
/* Return the bits of 64 units; a unit whose bit is set may be free. */
DLPI_INLINE uint64_t dlpi_claim_those(const uint64_t *bits) {
    return DLPI_LOAD_SEQ(bits); /* O2 <- O2 */
}

/* Make every reader look once without its cursor, by another number in *rescans. */
DLPI_INLINE void dlpi_claim_rescan(uint64_t *rescans) {
    DLPI_ADD_SEQ(rescans, UINT64_C(1)); /* R1 -> R1 */
}
DLPI_INLINE uint64_t dlpi_claim_rescans(const uint64_t *rescans) {
    return DLPI_LOAD_SEQ(rescans); /* R1 <- R1 */
}
