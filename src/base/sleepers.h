#pragma once
/* tests: model/model_slots, model/model_links, system/core/pipe_wake */
#include "base/futex.h"
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-sleepers   SLEEP AND WAKE: MANY SLEEPERS BEHIND ONE WORD
   Up to 32 sleepers share a futex word and a mask that has a bit for each of them; a sleeper that
   is alone has a flag in the mask's place. All accesses are sequentially consistent, and so are
   the publications that wakers make before they look and the looks that sleepers take last.

   label  word          written by                     read by
   B1     mask, flag    sleeper: its bit; waker: out   wakers
   B1     word          waker: counts                  sleepers, before the bit; the kernel
   A1     active        who retires workers            workers, after B1: may I claim?

   Sleeper: read word (dlpi_sleepers_word), set the bit (dlpi_sleepers_enter), look for work once
   more, sleep while word is unchanged, clear the bit (dlpi_sleepers_leave).
   Waker: publish; read the mask; take bits out; change the word; wake those bits.
   Why no wake-up is lost: either the waker sees the bit, or its publication comes before the bit,
   and the sleeper's last look finds the work. A word that changed between its reading and the sleep
   does not let the sleeper sleep.
   Why none is wasted: of several wakers the one that takes a bit out wakes it, and no other.
   Crashes: a waker that dies between the swap and the wake leaves a sleeper without a bit. So every
   sleep has an end, and recovery wakes by the word, whatever masks say (dlpi_sleepers_wake_all). */

typedef struct dlpi_sleepers {
    uint32_t word; /* futex; counts the wakes */
    uint32_t mask; /* a bit for each sleeper */
    uint8_t pad[DLPI_LINE - 8];
} dlpi_sleepers;

/* ---- a word that counts what happened ---- */

DLPI_INLINE uint32_t dlpi_event_count(const uint32_t *word) {
    return DLPI_LOAD_SEQ(word); /* B1 <- B1 */
}
DLPI_INLINE void dlpi_event_add(uint32_t *word) { DLPI_ADD_SEQ(word, 1u); /* B1 -> B1 */ }

/* ---- many sleepers ---- */

DLPI_INLINE uint32_t dlpi_sleepers_word(const dlpi_sleepers *s) {
    return dlpi_event_count(&s->word); /* before the bit */
}

/* Returns those that sleep already. */
DLPI_INLINE uint32_t dlpi_sleepers_enter(dlpi_sleepers *s, uint32_t bit) {
    return DLPI_OR_SEQ(&s->mask, bit); /* B1 -> B1 */
}

/* Returns whether somebody has woken this one: the waker clears the bit, so of the two one alone
   finds it set. */
static bool dlpi_sleepers_leave(dlpi_sleepers *s, uint32_t bit) {
    if ((DLPI_LOAD_SEQ(&s->mask) & bit) == 0) return true; /* B1 <- B1 */
    return (DLPI_AND_SEQ(&s->mask, ~bit) & bit) == 0;      /* B1 <-> B1 */
}

/* How many sleep, or are about to: after a publication, all others find it. */
DLPI_INLINE uint32_t dlpi_sleepers_count(const dlpi_sleepers *s) {
    return (uint32_t)__builtin_popcount(DLPI_LOAD_SEQ(&s->mask)); /* B1 -> B1 */
}

/* Their bits. */
DLPI_INLINE uint32_t dlpi_sleepers_mask(const dlpi_sleepers *s) {
    return DLPI_LOAD_SEQ(&s->mask); /* B1 -> B1 */
}

/* It is dead. */
DLPI_INLINE void dlpi_sleepers_forget(dlpi_sleepers *s, uint32_t bit) {
    DLPI_AND_SEQ(&s->mask, ~bit); /* B1 */
}

/* Wake these, which have no bit, or have lost it. */
static void dlpi_sleepers_wake_bits(dlpi_sleepers *s, int n, uint32_t bits, uint32_t shared) {
    dlpi_event_add(&s->word);
    dlpi_futex_wake(&s->word, n, bits, (int)shared);
}

/* Wake at most n. Returns how many more there would have been room for. */
static uint32_t dlpi_sleepers_wake(dlpi_sleepers *s, uint32_t n, uint32_t shared) {
    uint32_t mask = DLPI_LOAD_SEQ(&s->mask); /* B1 -> B1 */
    uint32_t bits = 0;
    while (mask != 0 && n > 0) {
        bits |= mask & (0u - mask);
        mask &= mask - 1u;
        n--;
    }
    if (bits == 0) return n;
    bits &= DLPI_AND_SEQ(&s->mask, ~bits); /* B1: whoever takes a bit out wakes it */
    if (bits != 0) dlpi_sleepers_wake_bits(s, __builtin_popcount(bits), bits, shared);
    return n;
}

/* Returns whether it slept, and was not woken by others. */
static bool dlpi_sleepers_wake_one(dlpi_sleepers *s, uint32_t bit, uint32_t shared) {
    if ((DLPI_LOAD_SEQ(&s->mask) & bit) == 0) return false;      /* B1 -> B1 */
    if ((DLPI_AND_SEQ(&s->mask, ~bit) & bit) == 0) return false; /* B1 */
    dlpi_sleepers_wake_bits(s, 1, bit, shared);
    return true;
}

/* Whoever sleeps on the word, whatever the masks say. */
static void dlpi_sleepers_wake_all(uint32_t *word) {
    dlpi_event_add(word);
    dlpi_futex_wake(word, INT_MAX, UINT32_MAX, 1);
}

/* ---- a sleeper that is alone on its flag and word ---- */

DLPI_INLINE void dlpi_sleeper_enter(uint32_t *flag) { DLPI_STORE_SEQ(flag, 1u); /* B1 -> B1 */ }
DLPI_INLINE void dlpi_sleeper_leave(uint32_t *flag) { DLPI_STORE_SEQ(flag, 0u); /* B1 */ }

static void dlpi_sleeper_wake(uint32_t *flag, uint32_t *word, uint32_t shared) {
    if (DLPI_LOAD_SEQ(flag) == 0) return;     /* B1 -> B1 */
    if (DLPI_XCHG_SEQ(flag, 0u) == 0) return; /* B1 */
    dlpi_event_add(word);
    dlpi_futex_wake(word, 1, UINT32_MAX, (int)shared);
}

/* One that says what it waits for: batch + 1, UINT64_MAX anything, 0 nothing. */
DLPI_INLINE void dlpi_sleeper_want(uint64_t *want, uint64_t what) {
    DLPI_STORE_SEQ(want, what); /* B1 -> B1 */
}

/* Batch b is there; UINT64_MAX: anything may be. */
static void dlpi_sleeper_wake_for(uint64_t *want, uint64_t b, uint32_t *word, uint32_t shared) {
    uint64_t what = DLPI_LOAD_SEQ(want); /* B1 -> B1 */
    if (DLPI_LIKELY(what == 0) || (what != UINT64_MAX && what != b + 1 && b != UINT64_MAX)) return;
    if (DLPI_XCHG_SEQ(want, UINT64_C(0)) == 0) return; /* B1: one wake for a sleep */
    dlpi_event_add(word);
    dlpi_futex_wake(word, 1, UINT32_MAX, (int)shared);
}

/* Up to 64 sleepers that look for themselves whether it was for them. */
DLPI_INLINE void dlpi_sleepers_any_enter(uint64_t *mask, uint64_t bit) {
    DLPI_OR_SEQ(mask, bit); /* B1 -> B1 */
}
DLPI_INLINE bool dlpi_sleepers_any_sleep(const uint64_t *mask) {
    return DLPI_LOAD_SEQ(mask) != 0; /* B1 -> B1 */
}
/* Returns whether somebody has woken this one, which then owes a look. */
static inline bool dlpi_sleepers_any_leave(uint64_t *mask, uint64_t bit) {
    return (DLPI_AND_SEQ(mask, ~bit) & bit) == 0; /* B1 <-> B1 */
}
DLPI_INLINE uint32_t dlpi_sleepers_any_bits(uint64_t mask) { /* 32 for the kernel */
    return (uint32_t)(mask | mask >> 32);
}
static void dlpi_sleepers_wake_any(uint64_t *mask, uint32_t *word) {
    uint64_t bits;
    if (DLPI_LOAD_SEQ(mask) == 0) return;                       /* B1 -> B1 */
    if ((bits = DLPI_XCHG_SEQ(mask, UINT64_C(0))) == 0) return; /* B1: one wake for a sleep */
    dlpi_event_add(word);
    dlpi_futex_wake(word, INT_MAX, dlpi_sleepers_any_bits(bits), 1);
}
/* One of them, in turn. */
static void dlpi_sleepers_wake_any_one(uint64_t *mask, uint32_t *word) {
    uint64_t all, next, turn = DLPI_LOAD_RLX(word) & 63u; /* a hint */
    while ((all = DLPI_LOAD_SEQ(mask)) != 0) {            /* B1 -> B1 */
        next = all >> turn << turn;
        next = next != 0 ? next & (0u - next) : all & (0u - all);
        if ((DLPI_AND_SEQ(mask, ~next) & next) == 0) continue; /* B1: whoever takes it out wakes */
        dlpi_event_add(word);
        dlpi_futex_wake(word, INT_MAX, dlpi_sleepers_any_bits(next), 1);
        return;
    }
}

/* ---- how many may work ---- */

DLPI_INLINE uint32_t dlpi_sleepers_active(const uint32_t *active) {
    return DLPI_LOAD_SEQ(active); /* A1 <- A1, after B1 */
}
DLPI_INLINE void dlpi_sleepers_activate(uint32_t *active, uint32_t n) {
    DLPI_STORE_SEQ(active, n); /* A1 -> A1 */
}
