#pragma once
/* tests: system/core/pipe_epochs, system/core/pipe_resume */
#include "pipe/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-window     OUT OF ORDER: THE WINDOW
   Where batches are delivered as they become ready (unordered), those that may be under way at once
   are a window of the epoch, so that a state can say of each whether it is consumed. In order there
   is none: as many are under way as the ring has. */

/* How many times as many batches as slots the ring has. */
static uint32_t dlpi_window_spread(const dlp_pipe *p) { return p->d.unordered ? 4 : 1; }

/* Batches under way at once, at most; consumed: bits of a state to be told apart, too. */
static uint32_t dlpi_window_of(const dlp_pipe *p, uint32_t consumed) {
    uint32_t most = p->ring < DLPI_WINDOW_MAX ? p->ring : DLPI_WINDOW_MAX;
    if (!p->d.unordered) return p->ring;
    if (most + consumed <= DLPI_WINDOW_MAX) return most;
    return consumed < DLPI_WINDOW_MAX ? DLPI_WINDOW_MAX - consumed : 1;
}

/* Batch k of the epoch is delivered; last: and its epoch is over. */
static inline void dlpi_window_note(dlp_pipe *p, uint64_t k, bool last) {
    if (!p->d.unordered) return;
    p->consumed.at[k % DLPI_WINDOW_MAX] = 1;
    while (p->consumed.at[p->consumed.base % DLPI_WINDOW_MAX])
        p->consumed.at[p->consumed.base++ % DLPI_WINDOW_MAX] = 0;
    if (last) p->consumed.base = 0;
}

static void dlpi_window_clear(dlp_pipe *p, uint64_t base) {
    p->consumed.base = base;
    memset(p->consumed.at, 0, sizeof p->consumed.at);
}

/* Bits of a state. */
static bool dlpi_window_bit(const dlpi_state *s, uint64_t k) {
    return (s->window[k / 8] >> k % 8 & 1) != 0;
}

/* The consumer's window is that of a state. */
static void dlpi_window_books(dlp_pipe *p, const dlpi_state *s) {
    dlpi_window_clear(p, s->batch);
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++) {
        if (!dlpi_window_bit(s, k)) continue;
        p->consumed.at[(s->batch + k) % DLPI_WINDOW_MAX] = 1;
        p->epoch_open = 1;
    }
    while (p->consumed.at[p->consumed.base % DLPI_WINDOW_MAX])
        p->consumed.at[p->consumed.base++ % DLPI_WINDOW_MAX] = 0;
}

/* Is batch k of the present epoch delivered, or was it consumed before the seek? */
static bool dlpi_window_consumed(const dlp_pipe *p, uint64_t k) {
    return k < p->consumed.base ||
           (k - p->consumed.base < DLPI_WINDOW_MAX && p->consumed.at[k % DLPI_WINDOW_MAX]);
}

/* The batches without a gap from the epoch's beginning, and a bit for each after them. Returns the
   slot of the first that is not consumed, or DLPI_NO_SLOT: when all that was scheduled is
   delivered, what stands after the highest stays, for the sampler's state is known there. */
static uint32_t dlpi_window_state(const dlp_pipe *p, dlpi_state *to) {
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
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++) {
        if (!dlpi_window_consumed(p, to->batch + k)) continue;
        to->window[k / 8] = (uint8_t)(to->window[k / 8] | 1u << k % 8);
        to->window_used = k + 1;
    }
    return s;
}

/* The highest bit of the window is the last that is used. */
static bool dlpi_window_canonical(const dlpi_state *s) {
    uint32_t used = 0;
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++)
        if (dlpi_window_bit(s, k)) used = k + 1;
    return s->window_used == used;
}

/* Of a window, is something of the epoch left, and nothing of the next one in it? A state after a
   whole epoch stands at the next one's beginning. */
static bool dlpi_window_fits(const dlpi_state *s, uint64_t most) {
    uint64_t left = most - s->batch;
    for (uint64_t k = 0; k < left && k < DLPI_WINDOW_MAX; k++)
        if (!dlpi_window_bit(s, k)) return s->window_used <= left;
    return left > DLPI_WINDOW_MAX;
}

/* Has a state a window, and this pipe none? */
static bool dlpi_window_strange(const dlp_pipe *p, const dlpi_state *s) {
    return s->window_used > 0 && !p->d.unordered;
}
