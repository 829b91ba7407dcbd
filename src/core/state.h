#pragma once
#include "core/feed.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-state      RESUME: STATES AND THEIR FINGERPRINT
   Fixed size, little-endian words. What changes the order (the fingerprint: dlpi_state_config, with
   what source and lender add) is in it field by field, so that a mismatch names the field. */

typedef struct dlpi_state {
    uint64_t magic;
    uint64_t check; /* hash of all that follows */
    uint64_t n_items, seed, params;
    uint32_t global_batch;
    uint16_t order, last;
    uint64_t epoch, batch, position; /* the first batch not consumed */
    uint32_t window_used, sampler_bytes;
    uint8_t sampler[DLP_SAMPLER_STATE_BYTES];
    uint8_t window[DLPI_WINDOW_MAX / 8]; /* bit k: batch + k is consumed too */
} dlpi_state;

_Static_assert(sizeof(dlpi_state) <= sizeof(dlp_state), "a state must fit");

#define DLPI_STATE_MAGIC UINT64_C(0x3131657461747364) /* "dstate11" */

static uint64_t dlpi_state_check(const dlpi_state *s) {
    uint64_t h = DLPI_STATE_MAGIC;
    const uint8_t *bytes = (const uint8_t *)s;
    for (size_t i = offsetof(dlpi_state, n_items); i + 8 <= sizeof *s; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = dlp_hash(h, word, i, 0);
    }
    return h;
}

static void dlpi_state_config(const dlp_pipe *p, dlpi_state *s) {
    memset(s, 0, sizeof *s);
    s->magic = DLPI_STATE_MAGIC;
    s->n_items = p->open_end ? UINT64_MAX : p->fetch->dataset.n_items;
    s->seed = p->sampler->sampler.seed;
    s->params = p->params_hash;
    s->global_batch = (uint32_t)p->global_batch;
    s->order = (uint16_t)p->sampler->sampler.order;
    s->last = (uint16_t)p->last;
    if (p->source->config) p->source->config(p, s);
    if (p->lender) p->lender->ops->lender->config(p, s);
}

/* The source's own part of a state. At an epoch's beginning there is none. */
static void dlpi_state_source(dlpi_state *to, const dlpi_source_state *from) {
    to->sampler_bytes = to->batch > 0 ? from->bytes : 0;
    memset(to->sampler, 0, sizeof to->sampler);
    if (to->batch > 0) memcpy(to->sampler, from->at, sizeof to->sampler);
}

/* The state behind the batch in slot s, when all before it is consumed too. */
static void dlpi_state_after(const dlp_pipe *p, uint32_t s, uint32_t flags, dlpi_state *to) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    bool last = (flags & DLP_BATCH_LAST) != 0;
    to->epoch = last ? slot->epoch + 1 : slot->epoch;
    to->batch = last ? 0 : slot->in_epoch + 1;
    to->position = last ? 0 : slot->after;
    if (p->source->state) dlpi_state_source(to, p->source->state(p, s, 1));
}

/* Is batch k of the present epoch delivered, or was it consumed before the seek? */
static bool dlpi_state_consumed(const dlp_pipe *p, uint64_t k) {
    return k < p->win_base || (k - p->win_base < DLPI_WINDOW_MAX && p->win[k % DLPI_WINDOW_MAX]);
}

/* Unordered: the batches without a gap from the epoch's beginning, and a bit for each behind them.
   When all that was fed is delivered, what stands behind the highest stays, for the sampler's state
   is known there. */
static void dlpi_state_window(const dlp_pipe *p, dlpi_state *to) {
    uint64_t tail = dlpi_credit_look(&p->ctl->tail); /* T1 <- T1 */
    uint32_t s = p->base != tail ? dlpi_slot_of(p, p->base) : DLPI_NO_SLOT;
    /* sought since */
    if (s != DLPI_NO_SLOT && dlpi_slot_at(p, s)->seek_no != p->seek_no) s = DLPI_NO_SLOT;
    if (!p->epoch_open || (s != DLPI_NO_SLOT && dlpi_slot_at(p, s)->epoch != p->epoch_now)) return;
    if (s != DLPI_NO_SLOT) {
        to->epoch = p->epoch_now;
        to->batch = p->win_base;
        to->position = dlpi_slot_at(p, s)->begins;
        if (p->source->state) dlpi_state_source(to, p->source->state(p, s, 0));
    }
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++) {
        if (!dlpi_state_consumed(p, to->batch + k)) continue;
        to->window[k / 8] = (uint8_t)(to->window[k / 8] | 1u << k % 8);
        to->window_used = k + 1;
    }
}

/* Keep in mind what was delivered, for states asked for later. Unordered, the one that ends its
   epoch need not be the highest. */
static void dlpi_state_note(dlp_pipe *p, uint64_t b, uint32_t s, uint32_t flags) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    if (p->d.unordered) {
        p->win[slot->in_epoch % DLPI_WINDOW_MAX] = 1;
        while (p->win[p->win_base % DLPI_WINDOW_MAX]) p->win[p->win_base++ % DLPI_WINDOW_MAX] = 0;
        if (flags & DLP_BATCH_LAST) p->win_base = 0;
    }
    if (b + 1 > p->high) {
        p->high = b + 1;
        p->after_epoch = slot->epoch;
        p->after_batch = slot->in_epoch + 1;
        p->after_position = slot->after;
        if (p->source->state) p->after_source = *p->source->state(p, s, 1);
    }
    if (flags & DLP_BATCH_LAST) {
        p->after_epoch = slot->epoch + 1;
        p->after_batch = p->after_position = 0;
    }
}

/* The state behind all that was delivered. */
static void dlpi_state_now(const dlp_pipe *p, dlpi_state *to) {
    to->epoch = p->after_epoch;
    to->batch = p->after_batch;
    to->position = p->after_position;
    if (p->source->state) dlpi_state_source(to, &p->after_source);
    if (p->d.unordered) dlpi_state_window(p, to);
}

static int dlpi_state_differs(dlp_error *e, const char *field, uint64_t was, uint64_t is) {
    return dlpi_error_set(e, DLP_ERR_RESUME, field,
                          "the state was saved with %s %" PRIu64 ", this pipe has %" PRIu64, field,
                          was, is);
}

static uint64_t dlpi_epoch_batches(const dlp_pipe *p) {
    return p->lender ? p->lender->ops->lender->batches(p) : p->batches_per_epoch;
}

/* The consumer's books stand behind a checked state. */
static void dlpi_state_books(dlp_pipe *p, const dlpi_state *s) {
    p->epoch_now = p->after_epoch = s->epoch;
    p->after_batch = s->batch;
    p->after_position = s->position;
    p->win_base = s->batch;
    p->epoch_open = s->batch > 0;
    p->last_sequence = UINT64_MAX;
    memset(p->win, 0, sizeof p->win);
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++) {
        if ((s->window[k / 8] >> k % 8 & 1) == 0) continue;
        p->win[(s->batch + k) % DLPI_WINDOW_MAX] = 1;
        p->epoch_open = 1;
    }
    while (p->win[p->win_base % DLPI_WINDOW_MAX]) p->win[p->win_base++ % DLPI_WINDOW_MAX] = 0;
    p->after_source.bytes = s->sampler_bytes;
    memcpy(p->after_source.at, s->sampler, sizeof p->after_source.at);
}

/* Where the scheduler goes on. */
static void dlpi_state_place(dlp_pipe *p, const dlpi_state *s, uint32_t seek_no, dlpi_place *to) {
    to->epoch = s->epoch;
    to->batch = s->batch;
    to->position = s->position;
    to->sampler_bytes = s->sampler_bytes;
    to->seek_no = seek_no;
    memcpy(to->sampler, s->sampler, sizeof to->sampler);
    memcpy(to->window, s->window, sizeof to->window);
    if (p->lender) p->lender->ops->lender->seek(p, s, to);
}

/* Rows of the epoch before batch k of it, where they follow from k. */
static uint64_t dlpi_state_position(const dlp_pipe *p, uint64_t epoch, uint64_t k) {
    return p->lender ? p->lender->ops->lender->position(p, epoch, k) : k * p->global_batch;
}

/* The highest bit of the window is the last that is used. */
static bool dlpi_window_canonical(const dlpi_state *s) {
    uint32_t used = 0;
    for (uint32_t k = 0; k < DLPI_WINDOW_MAX; k++)
        if ((s->window[k / 8] >> k % 8 & 1) != 0) used = k + 1;
    return s->window_used == used;
}

/* Of a window, is something of the epoch left, and nothing of the next one in it? A state behind a
   whole epoch stands at the next one's beginning. */
static bool dlpi_window_fits(const dlpi_state *s, uint64_t most) {
    uint64_t left = most - s->batch;
    for (uint64_t k = 0; k < left && k < DLPI_WINDOW_MAX; k++)
        if ((s->window[k / 8] >> k % 8 & 1) == 0) return s->window_used <= left;
    return left > DLPI_WINDOW_MAX;
}

/* The field of a state with this pipe's order, if any, that has what is never saved. To go on from
   there would leave batches out, or give them twice, and nobody would be told. */
static const char *dlpi_state_never_saved(const dlp_pipe *p, const dlpi_state *s, uint64_t most) {
    if (p->source->state == NULL && s->sampler_bytes != 8 * p->source->n_words)
        return "sampler_bytes";
    for (uint32_t i = s->sampler_bytes; i < DLP_SAMPLER_STATE_BYTES; i++)
        if (s->sampler[i] != 0) return "sampler";
    if (p->source->never_saved) return p->source->never_saved(p, s);
    if (s->batch >= most) return "batch";
    if (!dlpi_window_fits(s, most)) return "window";
    return s->position == dlpi_state_position(p, s->epoch, s->batch) ? NULL : "position";
}

/* Is a saved state whole, and of this pipe's order? */
static int dlpi_state_check_all(const dlp_pipe *p, const dlp_state *state, dlpi_state *s,
                                const char *field, dlp_error *e) {
    dlpi_state mine;
    const char *wrong;
    uint64_t most = p->open_end ? p->samples / p->global_batch : dlpi_epoch_batches(p);
    memcpy(s, state->bytes, sizeof *s);
    dlpi_state_config(p, &mine);
    if (s->magic != DLPI_STATE_MAGIC || s->check != dlpi_state_check(s) ||
        !dlpi_window_canonical(s) || s->sampler_bytes > DLP_SAMPLER_STATE_BYTES ||
        s->epoch >= DLPI_MAX_EPOCH)
        return dlpi_error_set(e, DLP_ERR_CORRUPT, field,
                              "this is no state of this version, or it is damaged");
    if (s->n_items != mine.n_items)
        return dlpi_state_differs(e, "n_items", s->n_items, mine.n_items);
    if (s->order != mine.order) return dlpi_state_differs(e, "order", s->order, mine.order);
    if (s->seed != mine.seed) return dlpi_state_differs(e, "seed", s->seed, mine.seed);
    if (s->global_batch != mine.global_batch)
        return dlpi_state_differs(e, "batch_size", s->global_batch, mine.global_batch);
    if (s->last != mine.last) return dlpi_state_differs(e, "last", s->last, mine.last);
    for (size_t i = 0; i < p->source->n_words; i++) {
        uint64_t was, is;
        memcpy(&was, s->sampler + i * 8, 8);
        memcpy(&is, mine.sampler + i * 8, 8);
        if (was != is) return dlpi_state_differs(e, p->source->words[i], was, is);
    }
    if (s->params != mine.params)
        return dlpi_state_differs(e,
                                  p->lender ? p->lender->ops->lender->params
                                  : p->source->params
                                      ? p->source->params
                                      : "params (subset, weights, samples, function_id)",
                                  s->params, mine.params);
    if (s->window_used > 0 && !p->d.unordered) return dlpi_state_differs(e, "unordered", 1, 0);
    if ((wrong = dlpi_state_never_saved(p, s, most)) != NULL)
        return dlpi_error_set(e, DLP_ERR_CORRUPT, field, "the state's %s has what is never saved",
                              wrong);
    return DLP_OK;
}

/* Begin behind desc.resume. */
static int dlpi_state_take(dlp_pipe *p) {
    dlpi_state s;
    dlpi_place to;
    dlp_error e;
    int rc = dlpi_state_check_all(p, &p->resume, &s, "resume", &e);
    if (rc != DLP_OK) return dlpi_pipe_fail(p, &e);
    dlpi_state_books(p, &s);
    dlpi_state_place(p, &s, 0, &to);
    return dlpi_schedule_goto(p, &to) == DLP_OK ? DLP_OK : dlpi_pipe_fail(p, &p->ctl->error);
}
