#pragma once
/* tests: system/core/pipe_epochs, system/core/pipe_resume */
#include "pipe/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-gaps       OUT OF ORDER: GAPS BETWEEN DELIVERED BATCHES
   An unordered pipe delivers each batch when the batch is ready. So the delivered batches of an
   epoch have gaps. A state has a bit for each batch behind the first gap, which says whether the
   batch is delivered. So batches that are under way at once reach at most DLPI_GAPS_MAX batches
   ahead of the first gap. An ordered pipe has no gaps: its ring alone is the limit. */

/* Return how many batches may be under way at once. consumed: bits that a resumed state has set. */
static uint32_t dlpi_gaps_of(const dlp_pipe *p, uint32_t consumed) {
    uint32_t most = p->ring < DLPI_GAPS_MAX ? p->ring : DLPI_GAPS_MAX;
    if (!p->d.unordered) return p->ring;
    if (most + consumed <= DLPI_GAPS_MAX) return most;
    return consumed < DLPI_GAPS_MAX ? DLPI_GAPS_MAX - consumed : 1;
}

/* Set how many batches the ring has, and how many may be under way at once. */
static void dlpi_gaps_resolve(dlp_pipe *p) {
    const uint32_t least = p->n_slots * (p->d.unordered ? 4 : 1);
    for (p->ring = 1; p->ring < least;) p->ring *= 2;
    p->reach = dlpi_gaps_of(p, 0);
}

/* Note that batch k of the epoch is delivered. last: the batch ends its epoch. */
static inline void dlpi_gaps_note(dlp_pipe *p, uint64_t k, bool last) {
    if (!p->d.unordered) return;
    p->consumed.at[k % DLPI_GAPS_MAX] = 1;
    while (p->consumed.at[p->consumed.base % DLPI_GAPS_MAX])
        p->consumed.at[p->consumed.base++ % DLPI_GAPS_MAX] = 0;
    if (last) p->consumed.base = 0;
}

static void dlpi_gaps_clear(dlp_pipe *p, uint64_t base) {
    p->consumed.base = base;
    memset(p->consumed.at, 0, sizeof p->consumed.at);
}

/* True if, by the state, batch s->batch + k of the epoch is delivered. s->batch is the first batch
   that is not: the first gap. */
static bool dlpi_gaps_bit(const dlpi_state *s, uint64_t k) {
    return (s->gaps[k / 8] >> k % 8 & 1) != 0;
}

/* Set the gaps of the consumer to the gaps of a state. */
static void dlpi_gaps_books(dlp_pipe *p, const dlpi_state *s) {
    dlpi_gaps_clear(p, s->batch);
    if (s->gaps_used > 0) p->epoch_open = 1;
    for (uint32_t k = 0; k < DLPI_GAPS_MAX; k++)
        if (dlpi_gaps_bit(s, k)) dlpi_gaps_note(p, s->batch + k, false);
}

/* True if batch k of the present epoch is delivered, or was consumed before the seek. */
static bool dlpi_gaps_consumed(const dlp_pipe *p, uint64_t k) {
    return k < p->consumed.base ||
           (k - p->consumed.base < DLPI_GAPS_MAX && p->consumed.at[k % DLPI_GAPS_MAX]);
}

/* Write into a state how many batches are delivered without a gap, and a bit for each batch after
   them. Returns the slot of the first batch that is not consumed, or DLPI_NO_SLOT. Then all that
   was scheduled is delivered, and the state behind the last one stays as it is. */
static uint32_t dlpi_gaps_state(const dlp_pipe *p, dlpi_state *to) {
    uint32_t s = DLPI_NO_SLOT;
    const dlpi_bslot *slot;
    if (!p->d.unordered || !p->epoch_open) return s;
    if (p->base != dlpi_credit_look(&p->ctl->tail)) s = dlpi_slot_of(p, p->base); /* T1 <- T1 */
    slot = s != DLPI_NO_SLOT ? dlpi_slot_at(p, s) : NULL;
    if (slot && slot->seek_no != p->seek_no) { /* scheduled before the seek: it says nothing */
        slot = NULL;
        s = DLPI_NO_SLOT;
    }
    if (slot && slot->epoch != p->epoch_now) return DLPI_NO_SLOT; /* the epoch is consumed */
    if (slot) {
        to->epoch = p->epoch_now;
        to->batch = p->consumed.base;
        to->position = slot->begins;
    }
    for (uint32_t k = 0; k < DLPI_GAPS_MAX; k++) {
        if (!dlpi_gaps_consumed(p, to->batch + k)) continue;
        to->gaps[k / 8] = (uint8_t)(to->gaps[k / 8] | 1u << k % 8);
        to->gaps_used = k + 1;
    }
    return s;
}

/* True if gaps_used is the place of the highest bit that is set. Behind an epoch there are no
   gaps. */
static bool dlpi_gaps_canonical(const dlpi_state *s) {
    uint32_t used = 0;
    for (uint32_t k = 0; k < DLPI_GAPS_MAX; k++)
        if (dlpi_gaps_bit(s, k)) used = k + 1;
    return s->gaps_used == used && (used == 0 || !s->end_due);
}

/* True if a batch of the epoch is left and no bit is one of the next epoch. A state after a whole
   epoch stands at the beginning of the next epoch. */
static bool dlpi_gaps_fits(const dlpi_state *s, uint64_t most) {
    uint64_t left = most - s->batch;
    for (uint64_t k = 0; k < left && k < DLPI_GAPS_MAX; k++)
        if (!dlpi_gaps_bit(s, k)) return s->gaps_used <= left;
    return left > DLPI_GAPS_MAX;
}

/* True if the state has gaps and this pipe delivers in order. */
static bool dlpi_gaps_strange(const dlp_pipe *p, const dlpi_state *s) {
    return s->gaps_used > 0 && !p->d.unordered;
}
