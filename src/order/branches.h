/* needs: parts */
#pragma once
/* tests: system/stages/branches */
#include "order/found.h"
#include "order/mixing.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-branches-order  WHICH LIST HAS THE NEXT ITEM OF A STREAM
   Row k of a stream of a mix is the next item of list S[(k + h) mod P]. S is the schedule of the
   weights (>>impl-mixing), P its period, and h a hash of (seed, epoch, stream). A stream that is
   out has holes, and its k stands still. So k does not follow from the number of a batch, and a
   state keeps the phase (k + h) mod P.
   With legs, row k is of the last leg that begins at k or before, and is item S[(k - begin + h) mod
   P] of this leg's schedule. h is a hash of the leg's number, too. A state keeps k, which has
   DLPI_DRAW_BITS bits. Above k stands a hash of the legs that the stream has begun. So a state goes
   on with other legs if they begin behind all streams, and with no others. */

#define DLPI_DRAW_BITS 44u
#define DLPI_LEGS 64u /* that may be added to the first one */

typedef struct dlpi_leg {
    uint64_t from;   /* the first row of a stream */
    uint64_t period; /* places of its schedule; 0: a zip */
    uint64_t at;     /* the first of these among the places of all legs */
    uint64_t begun;  /* hash of all legs up to this one */
} dlpi_leg;

/* Return the seed of list l. List 0 has the seed of the pipe itself. */
static inline uint64_t dlpi_order_seed(uint64_t seed, uint32_t l) {
    return l == 0 ? seed : dlpi_absorb(seed, l);
}

/* Return the phase of stream s at the start of leg k in an epoch, 0..period-1. */
static uint64_t dlpi_mix_phase(uint64_t seed, uint64_t epoch, uint64_t s, uint32_t k,
                               uint64_t period) {
    const uint64_t h = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_BRANCHES, seed, epoch), s);
    return (k > 0 ? dlpi_absorb(h, k) : h) % period;
}

static inline uint32_t dlpi_mix_at(const uint32_t *schedule, uint64_t phase) {
    return schedule[phase] >> DLPI_MIX_RANK_BITS;
}

/* Return how many of `rows` rows in a row come from list b at most, wherever they begin. */
static uint64_t dlpi_mix_most(const uint32_t *schedule, uint64_t period, uint32_t b,
                              uint64_t rows) {
    const uint64_t rest = rows % period;
    uint64_t all = 0, here = 0, most = 0;
    for (uint64_t t = 0; t < period + rest; t++) {
        const bool turn = dlpi_mix_at(schedule, t % period) == b;
        if (t < period) all += turn;
        here += turn;
        if (t >= rest) here -= dlpi_mix_at(schedule, t - rest) == b;
        if (here > most) most = here;
    }
    return rows / period * all + most;
}
