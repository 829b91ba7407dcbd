#pragma once
/* tests: unit/core/awake, model/model_slots, model/model_links, system/core/pipe_wake */
#include "base/platform.h"
#include "base/wake.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-sleepers   SLEEP AND WAKE: A MASK AND A WORD
   Workers, the scheduler's thread, the consumer and subscribers all sleep by a mask and a futex
   word. The mask is 0 while nobody sleeps. Up to 32 workers of a stage, or 64 subscribers, share a
   mask, and each has a bit. The other two are alone. The scheduler's thread writes 1. The consumer
   writes what it waits for: the number of a batch + 1, or UINT64_MAX for anything.

   label  word          written by                             read by (partner)
   B1     mask          sleeper: its bits; waker: takes them   wakers (B1)
   B1     word          waker: counts                          sleepers, before the mask; the kernel
   A1     active        the tuner, which retires workers       workers: may I claim? (A1)

   All these accesses are sequentially consistent. So are the publications that a waker makes before
   it looks at the mask, and the looks that a sleeper takes last.

   Sleeper: read the word; write the mask (dlpi_sleepers_enter); look once more; sleep while the
   word is unchanged; clear the mask (dlpi_sleepers_leave). Only dlpi_wait_once does this.
   Waker: publish; read the mask; take bits out; change the word; wake these bits.
   Why no wake-up is lost: if the waker does not see the bits, its publication comes before them,
   and the sleeper's last look finds it. If the word has changed since the sleeper read it, the
   kernel does not let the sleeper sleep.
   Why none is wasted: if several wakers see a bit, only the one that takes it out wakes its owner.
   For all: a stop, a seek and the tuner change the word whatever the mask says. A sleeper that read
   the word before does not sleep. A sleeper that read it later sees what was stored before.
   Crashes: a waker may die between taking a bit and the wake. Its sleeper has no bit then. So every
   sleep has an end, and recovery wakes all whatever the masks say (dlpi_sleepers_ring). */

typedef struct dlpi_sleepers {
    uint64_t mask;   /* B1 a bit for each sleeper; of a single sleeper: a number, 0: it is awake */
    uint32_t word;   /* B1 futex; counts the wakes */
    uint32_t shared; /* 1: a sleeper may be in another process than its waker */
} dlpi_sleepers;

/* ---- a word that counts what happened ---- */

DLPI_INLINE uint32_t dlpi_event_count(const uint32_t *word) {
    return DLPI_LOAD_SEQ(word); /* B1 <- B1 */
}
DLPI_INLINE void dlpi_event_add(uint32_t *word) { DLPI_ADD_SEQ(word, 1u); /* B1 -> B1 */ }

/* Count an event in *word, and wake all threads that sleep on the word with one of these bits. */
static void dlpi_event_ring(uint32_t *word, uint32_t bits, uint32_t shared) {
    dlpi_event_add(word);
    dlpi_futex_wake(word, INT_MAX, bits, (int)shared);
}

/* ---- sleepers ---- */

/* Return the bits by which the kernel tells sleepers apart: it has 32. No bits mean all
   sleepers. */
DLPI_INLINE uint32_t dlpi_sleepers_bits(uint64_t mask) {
    uint32_t bits = (uint32_t)(mask | mask >> 32);
    return bits != 0 ? bits : UINT32_MAX;
}

/* Return the bits of all that sleep or are about to. A thread whose bit is not there finds what the
   caller published before this. */
DLPI_INLINE uint64_t dlpi_sleepers_mask(const dlpi_sleepers *s) {
    return DLPI_LOAD_SEQ(&s->mask); /* B1 <- B1 */
}

DLPI_INLINE void dlpi_sleepers_enter(dlpi_sleepers *s, uint64_t bits) {
    DLPI_OR_SEQ(&s->mask, bits); /* B1 -> B1 */
}

/* Take this sleeper's bits out of the mask. Returns true if a waker has taken them: then it has
   woken this sleeper, and no other. */
static bool dlpi_sleepers_leave(dlpi_sleepers *s, uint64_t bits) {
    if ((DLPI_LOAD_SEQ(&s->mask) & bits) == 0) return true; /* B1 <- B1 */
    return (DLPI_AND_SEQ(&s->mask, ~bits) & bits) == 0;     /* B1 <-> B1 */
}

/* ---- wakers, after their publication ---- */

/* Wake all that sleep with one of these bits, whatever the mask says. bits 0: wake all sleepers. */
static void dlpi_sleepers_ring(dlpi_sleepers *s, uint64_t bits) {
    dlpi_event_ring(&s->word, dlpi_sleepers_bits(bits), s->shared);
}

/* Take bits out of the mask and wake their sleepers. Returns false if others took all of them. */
static bool dlpi_sleepers_take(dlpi_sleepers *s, uint64_t bits) {
    bits &= DLPI_AND_SEQ(&s->mask, ~bits); /* B1: the one that takes a bit out wakes */
    if (bits != 0) dlpi_sleepers_ring(s, bits);
    return bits != 0;
}

/* Wake at most n sleepers. Returns how many more the caller may wake elsewhere. */
static uint32_t dlpi_sleepers_wake(dlpi_sleepers *s, uint32_t n) {
    uint64_t mask = DLPI_LOAD_SEQ(&s->mask), bits = 0; /* B1 <- B1 */
    for (; mask != 0 && n > 0; n--, mask &= mask - 1) bits |= mask & (0 - mask);
    if (bits != 0) dlpi_sleepers_take(s, bits);
    return n;
}

/* Wake the sleeper with this bit. Returns true if it slept and no other waker has woken it. */
static bool dlpi_sleepers_wake_one(dlpi_sleepers *s, uint64_t bit) {
    return (DLPI_LOAD_SEQ(&s->mask) & bit) != 0 && dlpi_sleepers_take(s, bit); /* B1 <- B1 */
}

static void dlpi_sleepers_take_all(dlpi_sleepers *s) {
    uint64_t bits = DLPI_XCHG_SEQ(&s->mask, UINT64_C(0)); /* B1: one wake for a sleep */
    if (bits != 0) dlpi_sleepers_ring(s, bits);
}

/* Wake all sleepers that the mask has. */
static void dlpi_sleepers_wake_all(dlpi_sleepers *s) {
    if (DLPI_LOAD_SEQ(&s->mask) != 0) dlpi_sleepers_take_all(s); /* B1 <- B1 */
}

/* Wake the one sleeper of this mask if it waits for batch b, or for any batch. b: UINT64_MAX wakes
   it whatever it waits for. Only for a mask that says what its sleeper waits for. */
DLPI_INLINE void dlpi_sleepers_wake_for(dlpi_sleepers *s, uint64_t b) {
    uint64_t what = DLPI_LOAD_SEQ(&s->mask); /* B1 <- B1 */
    if (DLPI_LIKELY(what == 0) || (what != UINT64_MAX && what != b + 1 && b != UINT64_MAX)) return;
    dlpi_sleepers_take_all(s);
}

/* Wake one sleeper of the mask, another one at each call, in turn. */
static void dlpi_sleepers_wake_next(dlpi_sleepers *s) {
    uint64_t all, next, turn = DLPI_LOAD_RLX(&s->word) & 63u; /* a hint */
    while ((all = DLPI_LOAD_SEQ(&s->mask)) != 0) {            /* B1 <- B1 */
        next = all >> turn << turn;
        if (next == 0) next = all;
        if (dlpi_sleepers_take(s, next & (0 - next))) return;
    }
}

/* ---- how many may work ---- */

DLPI_INLINE uint32_t dlpi_sleepers_active(const uint32_t *active) {
    return DLPI_LOAD_SEQ(active); /* A1 <- A1, after B1 */
}
DLPI_INLINE void dlpi_sleepers_activate(uint32_t *active, uint32_t n) {
    DLPI_STORE_SEQ(active, n); /* A1 -> A1 */
}
