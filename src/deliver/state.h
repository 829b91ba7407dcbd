#pragma once
/* tests: system/core/pipe_resume */
#include "slot/feed.h"
#include "slot/gaps.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-state      RESUME: STATES AND THEIR FINGERPRINT
   Fixed size, little-endian words. What changes the order (the fingerprint: dlpi_state_config, with
   what source and lender add) is in it field by field, so that a mismatch names the field.

   All bytes of a saved state are in use, but some words have more bits than their numbers need.
   Such bits hold what was added later. They are zeros in a state that an older version has saved.
   */

#define DLPI_STATE_MAGIC UINT64_C(0x3131657461747364) /* "dstate11" */
#define DLPI_STATE_END_DUE 0x100u                     /* in `last`, whose numbers take 8 bits */

_Static_assert(DLP_SAMPLER_STATE_BYTES >> 8 == 0 && DLPI_MAX_EPOCH - 1 <= DLPI_EPOCH_MASK &&
                   DLPI_MAX_ITEMS - 1 <= DLPI_EPOCH_MASK,
               "the other bits of these words have hashes");

/* Return the hash of all that follows `check` in a saved state. `check` is this hash, by which a
   damaged state is found. */
static uint64_t dlpi_state_hash(const dlpi_state *s) {
    uint64_t h = DLPI_STATE_MAGIC;
    const uint8_t *bytes = (const uint8_t *)s;
    for (size_t i = offsetof(dlpi_state, n_items); i + 8 <= DLPI_STATE_BYTES; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = dlp_hash(h, word, i, 0);
    }
    return h;
}

/* Write the state s into *out, the user's, with its hash. */
static void dlpi_state_give(const dlpi_state *s, dlp_state *out) {
    dlpi_state saved = *s;
    const uint32_t *id = s->identity;
    saved.epoch |= (uint64_t)id[DLPI_NAMES] << 48;
    saved.sampler_bytes |= id[DLPI_ORDER] << 8;
    saved.global_batch |= id[DLPI_SIZES] >> 7 << 24;
    saved.last = (uint16_t)(s->last | id[DLPI_SIZES] << 9 | (s->end_due ? DLPI_STATE_END_DUE : 0));
    saved.batch |= (uint64_t)id[DLPI_CONTENT] << 48;
    saved.order = (uint16_t)(s->order | id[DLPI_CONTENT] >> 16 << 8);
    saved.check = dlpi_state_hash(&saved);
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, &saved, DLPI_STATE_BYTES);
}

/* Read a saved state into *s. Returns false if it is damaged, or another version has saved it. */
static bool dlpi_state_read(const dlp_state *from, dlpi_state *s) {
    uint32_t *id;
    memcpy(s, from->bytes, DLPI_STATE_BYTES);
    id = s->identity;
    if (s->magic != DLPI_STATE_MAGIC || s->check != dlpi_state_hash(s)) return false;
    s->end_due = (s->last & DLPI_STATE_END_DUE) != 0;
    id[DLPI_NAMES] = (uint32_t)(s->epoch >> 48);
    id[DLPI_ORDER] = s->sampler_bytes >> 8;
    id[DLPI_SIZES] = s->global_batch >> 24 << 7 | (uint32_t)s->last >> 9;
    id[DLPI_CONTENT] = (uint32_t)s->order >> 8 << 16 | (uint32_t)(s->batch >> 48);
    s->epoch &= DLPI_EPOCH_MASK;
    s->sampler_bytes &= 0xffu;
    s->global_batch &= 0xffffffu;
    s->last &= 0xffu;
    s->batch &= DLPI_EPOCH_MASK;
    s->order &= 0xffu;
    return s->sampler_bytes <= DLP_SAMPLER_STATE_BYTES;
}

/* Return `last` as a state has it: 0 for a last batch that may be short, as before version 0.2. */
static inline uint16_t dlpi_state_last(int32_t last) { return (uint16_t)(last > 0 ? last : 0); }

/* Begin a state: write what the pipe's order follows from, such as seed, number of items and batch
   size, and clear the rest. */
DLPI_COLD static void dlpi_state_config(const dlp_pipe *p, dlpi_state *s) {
    memset(s, 0, sizeof *s);
    s->magic = DLPI_STATE_MAGIC;
    s->n_items = p->fetch->dataset->n_items;
    s->seed = dlpi_sampler_of(p)->seed;
    s->params = p->params_hash;
    s->global_batch = (uint32_t)p->global_batch;
    s->order = (uint16_t)dlpi_sampler_of(p)->order;
    s->last = dlpi_state_last(p->last);
    dlpi_identity_short(&p->datasets.identity, s->identity);
    p->source->config(p, s);
    if (p->lender->config) p->lender->config(p, s);
}

/* Copy the source's own part into a state. from: NULL if the source has no such part; then the
   words stay that dlpi_state_config has put in its place. At the beginning of an epoch the part is
   empty. */
static void dlpi_state_source(dlpi_state *to, const dlpi_source_state *from) {
    if (from == NULL) return;
    to->sampler_bytes = to->batch > 0 ? from->bytes : 0;
    memset(to->sampler, 0, sizeof to->sampler);
    if (to->batch > 0) memcpy(to->sampler, from->at, sizeof to->sampler);
}

/* Return the spot behind batch k of an epoch. after: the global position there; last: the batch
   ends the epoch. */
static inline dlpi_spot dlpi_spot_behind(uint64_t epoch, uint64_t k, uint64_t after, bool last) {
    return last ? (dlpi_spot){epoch + 1, 0, 0} : (dlpi_spot){epoch, k + 1, after};
}

/* Set the place of a state. Its other fields stay. */
static inline void dlpi_state_at(dlpi_state *to, dlpi_spot spot) {
    to->epoch = spot.epoch;
    to->batch = spot.batch;
    to->position = spot.position;
}

/* Note that the consumer has got batch b, from slot s, for a state that is asked for later. In an
   unordered pipe the batch that ends the epoch need not have the highest number. */
static inline void dlpi_state_note(dlp_pipe *p, uint64_t b, uint32_t s, const dlpi_bslot *slot,
                                   uint32_t flags) {
    const bool last = (flags & DLP_BATCH_LAST) != 0, first = b + 1 > p->after.high;
    if (first || last)
        p->after.spot = dlpi_spot_behind(slot->epoch, slot->in_epoch, slot->after, last);
    if (first) {
        const dlpi_source_state *own = p->bare ? NULL : p->source->state(p, s, 1);
        p->after.high = b + 1;
        if (own) p->after.source = *own;
    }
}

/* Write to *to the state after all that the consumer has got so far. */
static void dlpi_state_now(const dlp_pipe *p, dlpi_state *to) {
    uint32_t s;
    dlpi_state_at(to, p->after.spot);
    s = dlpi_gaps_state(p, to);
    dlpi_state_source(to, p->source->state(p, s, s == DLPI_NO_SLOT));
}

/* Return how many batches of the consumer an epoch has; UINT64_MAX if nobody knows. */
static uint64_t dlpi_epoch_batches(const dlp_pipe *p) { return p->lender->batches(p); }

/* Return how many batches an epoch has, or if nobody knows, how many it has at most. */
static uint64_t dlpi_epoch_most(const dlp_pipe *p) {
    return p->batches_per_epoch != UINT64_MAX ? dlpi_epoch_batches(p)
                                              : p->samples / p->global_batch;
}

/* Set what the consumer knows of its place (epoch, batch, position, gaps) to a checked state.
   Returns the state at which the source goes on. If a stage lends, its batches are not the
   source's. Then the lender finds the source's batch in which its own batch begins. */
static dlpi_state dlpi_state_books(dlp_pipe *p, const dlpi_state *s) {
    dlpi_state to = *s;
    p->after.spot = (dlpi_spot){s->epoch, s->batch, s->position};
    p->epoch_now = s->epoch;
    p->epoch_open = s->batch > 0;
    p->epoch_end_due = s->end_due && p->d.epoch_end;
    p->last_sequence = UINT64_MAX;
    dlpi_gaps_books(p, s);
    p->after.source.bytes = s->sampler_bytes;
    memcpy(p->after.source.at, s->sampler, sizeof p->after.source.at);
    if (p->lender->seek) p->lender->seek(p, &to);
    return to;
}

/* Check the part of a state that follows from its batch's number, for sources without a state of
   their own. Returns the name of a field that is wrong, or NULL. */
DLPI_COLD static const char *dlpi_state_bad_field(const dlp_pipe *p, const dlpi_state *s) {
    const uint64_t most = dlpi_epoch_most(p), words = p->source->n_words;
    if (s->sampler_bytes != 8 * words) return "sampler_bytes";
    if (s->batch >= most) return "batch";
    if (!dlpi_gaps_fits(s, most)) return "window";
    return s->position == p->lender->position(p, s->epoch, s->batch) ? NULL : "position";
}
