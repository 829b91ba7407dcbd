#pragma once
/* tests: system/core/pipe_resume */
#include "slot/feed.h"
#include "slot/gaps.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-state      RESUME: STATES AND THEIR FINGERPRINT
   Fixed size, little-endian words. What changes the order (the fingerprint: dlpi_state_config, with
   what source and lender add) is in it field by field, so that a mismatch names the field. */

#define DLPI_STATE_MAGIC UINT64_C(0x3131657461747364) /* "dstate11" */

static uint64_t dlpi_state_hash(const dlpi_state *s) {
    uint64_t h = DLPI_STATE_MAGIC;
    const uint8_t *bytes = (const uint8_t *)s;
    for (size_t i = offsetof(dlpi_state, n_items); i + 8 <= sizeof *s; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = dlp_hash(h, word, i, 0);
    }
    return h;
}

static void dlpi_state_give(dlpi_state *s, dlp_state *out) {
    s->check = dlpi_state_hash(s);
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, s, sizeof *s);
}

static void dlpi_state_config(const dlp_pipe *p, dlpi_state *s) {
    memset(s, 0, sizeof *s);
    s->magic = DLPI_STATE_MAGIC;
    s->n_items = dlpi_open_end_items(p);
    s->seed = dlpi_sampler_of(p)->seed;
    s->params = p->params_hash;
    s->global_batch = (uint32_t)p->global_batch;
    s->order = (uint16_t)dlpi_sampler_of(p)->order;
    s->last = (uint16_t)p->last;
    p->source->config(p, s);
    if (p->lender->config) p->lender->config(p, s);
}

/* A source that has none has words in its place, which config wrote. At an epoch's beginning there
   is none. */
static void dlpi_state_source(dlpi_state *to, const dlpi_source_state *from) {
    if (from == NULL) return;
    to->sampler_bytes = to->batch > 0 ? from->bytes : 0;
    memset(to->sampler, 0, sizeof to->sampler);
    if (to->batch > 0) memcpy(to->sampler, from->at, sizeof to->sampler);
}

/* The state after the batch in slot s, when all before it is consumed too. last: of its epoch. */
static void dlpi_state_after(const dlp_pipe *p, uint32_t s, bool last, dlpi_state *to) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    to->epoch = last ? slot->epoch + 1 : slot->epoch;
    to->batch = last ? 0 : slot->in_epoch + 1;
    to->position = last ? 0 : slot->after;
    dlpi_state_source(to, p->source->state(p, s, 1));
}

/* Keep in mind that batch b, in slot s, was delivered, for states asked for later. In an unordered
   pipe the batch that ends its epoch need not be the highest one. */
static inline void dlpi_state_note(dlp_pipe *p, uint64_t b, uint32_t s, const dlpi_bslot *slot,
                                   uint32_t flags) {
    dlpi_gaps_note(p, slot->in_epoch, (flags & DLP_BATCH_LAST) != 0);
    if (b + 1 > p->after.high) {
        const dlpi_source_state *own = p->bare ? NULL : p->source->state(p, s, 1);
        p->after.high = b + 1;
        p->after.epoch = slot->epoch;
        p->after.batch = slot->in_epoch + 1;
        p->after.position = slot->after;
        if (own) p->after.source = *own;
    }
    if (flags & DLP_BATCH_LAST) {
        p->after.epoch = slot->epoch + 1;
        p->after.batch = p->after.position = 0;
    }
}

/* The same of what a lender has handed out; after: the global position after it. */
static void dlpi_state_handed(dlp_pipe *p, const dlp_batch *b, uint64_t after) {
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    p->after.epoch = last ? b->epoch + 1 : b->epoch;
    p->after.batch = last ? 0 : b->in_epoch + 1;
    p->after.position = last ? 0 : after;
}

static void dlpi_state_now(const dlp_pipe *p, dlpi_state *to) {
    uint32_t s;
    to->epoch = p->after.epoch;
    to->batch = p->after.batch;
    to->position = p->after.position;
    s = dlpi_gaps_state(p, to);
    dlpi_state_source(to, p->source->state(p, s, s == DLPI_NO_SLOT));
}

static int dlpi_state_differs(dlp_error *e, const char *field, uint64_t was, uint64_t is) {
    return dlpi_error_set(e, DLP_ERR_RESUME, field,
                          "the state was saved with %s %" PRIu64 ", this pipe has %" PRIu64, field,
                          was, is);
}

static uint64_t dlpi_epoch_batches(const dlp_pipe *p) { return p->lender->batches(p); }

/* At most, where nobody knows. */
static uint64_t dlpi_epoch_most(const dlp_pipe *p) {
    return p->batches_per_epoch != UINT64_MAX ? dlpi_epoch_batches(p)
                                              : p->samples / p->global_batch;
}

/* The consumer's books stand after a checked state. */
static void dlpi_state_books(dlp_pipe *p, const dlpi_state *s) {
    p->epoch_now = p->after.epoch = s->epoch;
    p->after.batch = s->batch;
    p->after.position = s->position;
    p->epoch_open = s->batch > 0;
    p->last_sequence = UINT64_MAX;
    dlpi_gaps_books(p, s);
    p->after.source.bytes = s->sampler_bytes;
    memcpy(p->after.source.at, s->sampler, sizeof p->after.source.at);
}

static dlpi_state dlpi_state_place(dlp_pipe *p, const dlpi_state *s) {
    dlpi_state to = *s;
    if (p->lender->seek) p->lender->seek(p, &to);
    return to;
}

/* The field of a state with this pipe's order, if any, that has what is never saved. To go on from
   there would leave batches out, or give them twice, and nobody would be told. */
static const char *dlpi_state_never_saved(const dlp_pipe *p, const dlpi_state *s) {
    for (uint32_t i = s->sampler_bytes; i < DLP_SAMPLER_STATE_BYTES; i++)
        if (s->sampler[i] != 0) return "sampler";
    return p->source->never_saved(p, s);
}

/* Check the part of a state that its source saved by number: the words of the source. */
static const char *dlpi_state_of_number(const dlp_pipe *p, const dlpi_state *s) {
    const uint64_t most = dlpi_epoch_most(p), words = p->source->n_words;
    if (s->sampler_bytes != 8 * words) return "sampler_bytes";
    if (s->batch >= most) return "batch";
    if (!dlpi_gaps_fits(s, most)) return "window";
    return s->position == p->lender->position(p, s->epoch, s->batch) ? NULL : "position";
}

/* Is a saved state whole, and of this pipe's order? */
static int dlpi_state_check_all(const dlp_pipe *p, const dlp_state *state, dlpi_state *s,
                                const char *field, dlp_error *e) {
    dlpi_state mine;
    const char *wrong;
    const size_t n_words = p->source->n_words;
    memcpy(s, state->bytes, sizeof *s);
    dlpi_state_config(p, &mine);
    if (s->magic != DLPI_STATE_MAGIC || s->check != dlpi_state_hash(s) || !dlpi_gaps_canonical(s) ||
        s->sampler_bytes > DLP_SAMPLER_STATE_BYTES || s->epoch >= DLPI_MAX_EPOCH)
        return dlpi_error_set(e, DLP_ERR_CORRUPT, field,
                              "the state is damaged, or another version of dlpipe saved it");
    if (s->n_items != mine.n_items)
        return dlpi_state_differs(e, "n_items", s->n_items, mine.n_items);
    if (s->order != mine.order) return dlpi_state_differs(e, "order", s->order, mine.order);
    if (s->seed != mine.seed) return dlpi_state_differs(e, "seed", s->seed, mine.seed);
    if (s->global_batch != mine.global_batch)
        return dlpi_state_differs(e, "batch_size", s->global_batch, mine.global_batch);
    if (s->last != mine.last) return dlpi_state_differs(e, "last", s->last, mine.last);
    for (size_t i = 0; i < n_words; i++) {
        uint64_t was, is;
        memcpy(&was, s->sampler + i * 8, 8);
        memcpy(&is, mine.sampler + i * 8, 8);
        if (was != is) return dlpi_state_differs(e, p->source->words[i], was, is);
    }
    if (s->params != mine.params)
        return dlpi_state_differs(e, p->lender->params ? p->lender->params : p->source->params,
                                  s->params, mine.params);
    if (dlpi_gaps_strange(p, s)) return dlpi_state_differs(e, "unordered", 1, 0);
    if ((wrong = dlpi_state_never_saved(p, s)) != NULL)
        return dlpi_error_set(e, DLP_ERR_CORRUPT, field,
                              "the state is damaged: no pipe saves such a %s", wrong);
    return DLP_OK;
}

/* Begin after desc.resume. */
static int dlpi_state_take(dlp_pipe *p) {
    dlpi_state s;
    dlp_error e;
    int rc = dlpi_state_check_all(p, &p->resume, &s, "resume", &e);
    if (rc != DLP_OK) return dlpi_pipe_fail(p, &e);
    dlpi_state_books(p, &s);
    s = dlpi_state_place(p, &s);
    return dlpi_schedule_goto(p, &s) == DLP_OK ? DLP_OK : dlpi_pipe_fail(p, &p->ctl->error);
}
