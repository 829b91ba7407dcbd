/* needs: split */
#pragma once
/* tests: system/open/rows_at, system/stages/chunk_seams */
#include "stages/sampler.h"
#include "stages/split.h"
/* ---- a worker loads the rows of a chunk ---- */

typedef struct dlpi_load_call { /* one call of the user's load, for a run of rows of one chunk */
    dlpi_worker *w;
    uint64_t from; /* place of the run's first row in the chunk's order */
    uint64_t at;   /* row of the chunk's buffer to which the run's first row goes */
    dlp_chunk c;
    void *data[DLP_MAX_FIELDS];
    dlp_permutation order; /* the order of the chunk's rows, if it is shuffled */
} dlpi_load_call;

DLPDEF uint64_t dlp_chunk_row(const dlp_chunk *c, uint64_t k) {
    const dlpi_load_call *l = c->internal;
    if (k >= c->count) return UINT64_MAX;
    return c->chunk_first +
           (c->shuffled ? dlp_permutation_at(&l->order, l->from + k) : l->from + k);
}

/* Copy the run's rows from memory of the user into the chunk's buffer. there: the address of each
   field of the chunk's first row. */
static void dlpi_load_copy(const dlpi_load_call *l, const dlp_item *it, const void *const *there) {
    const dlp_pipe *p = l->w->p;
    for (uint32_t f = 0; f < p->items.n; f++) {
        uint64_t bytes = dlpi_row_bytes(&p->items.at[f]);
        uint8_t *to = (uint8_t *)it->data[f] + l->at * bytes;
        const uint8_t *from = there[f];
        if (from == NULL) continue; /* dlpi_load_run has looked: none is */
        if (!l->c.shuffled) memcpy(to, from + l->from * bytes, (size_t)(l->c.count * bytes));
        for (uint64_t k = 0; l->c.shuffled && k < l->c.count; k++)
            memcpy(to + k * bytes, from + (dlp_chunk_row(&l->c, k) - l->c.chunk_first) * bytes,
                   (size_t)bytes);
    }
}

/* Load the run of rows that has gathered in l, if there is one. If the user's memory has the rows
   already, tell `load` of them, and copy them unless views lie in place. Returns 0 or a failure's
   code. */
static int dlpi_load_run(dlpi_load_call *l, const dlp_item *it) {
    const dlp_pipe *p = l->w->p;
    const dlpi_split *d = dlpi_split_of(p);
    const void *there[DLP_MAX_FIELDS] = {NULL};
    dlp_chunk shown; /* theirs to spoil, and so is l->data */
    int rc = 0;
    if (l->c.count == 0) return 0;
    for (uint32_t f = 0; f < p->items.n; f++) {
        const uint64_t bytes = dlpi_row_bytes(&p->items.at[f]);
        there[f] = d->chunks.rows_at != NULL ? d->chunks.rows_at(d->chunks.user, l->c.index, f)
                                             : (uint8_t *)it->data[f] + l->at * bytes;
        l->data[f] = (void *)(uintptr_t)there[f];
        if (there[f] == NULL)
            return dlp_fail(it->call, 0, "rows_at gave NULL for field %d of chunk %" PRIu64, (int)f,
                            l->c.index);
        if (d->chunks.rows_at != NULL || d->chunks.writes_all_bytes) continue;
        if (dlpi_clears_timed(l->w))
            dlpi_clear_timed(l->w, &p->items.at[f], l->data[f], l->c.count * bytes, l->c.count,
                             true);
        else
            memset(l->data[f], 0, l->c.count * bytes);
    }
    l->c.first = dlp_chunk_row(&l->c, 0);
    shown = l->c;
    if (d->chunks.load) rc = d->chunks.load(d->chunks.user, &shown);
    if (rc == 0 && d->chunks.rows_at != NULL && !d->in_place) dlpi_load_copy(l, it, there);
    return rc;
}

/* Load this rank's rows of the chunk at x: one run for each batch, or one for batches whose rows
   are neighbours. Returns 0 or a failure's code. */
static int dlpi_load_runs(dlpi_load_call *l, const dlpi_chunk_spot *x, const dlp_item *it) {
    const dlpi_split *c = dlpi_split_of(l->w->p);
    uint64_t first, end = dlpi_chunk_filled(c, x), axis = end > x->axis ? end : x->axis;
    int rc;
    for (uint64_t k = x->from / c->plan.batch; k * c->plan.batch < end; k++) {
        uint64_t to = dlpi_chunk_share(&c->plan, axis, k, &first) + first;
        if (first < x->from) first = x->from;
        if (to > end) to = end;
        if (first >= to) continue;
        if (l->c.count > 0 && first - x->from == l->from + l->c.count) {
            l->c.count += to - first;
            continue;
        }
        if ((rc = dlpi_load_run(l, it)) != 0) return rc;
        l->from = first - x->from;
        l->at = dlpi_chunk_row_at(&c->plan, x, first);
        l->c.count = to - first;
    }
    return dlpi_load_run(l, it);
}

/* Load the rows of a chunk that this rank wants. A chunk that replaces another one must have as
   many rows, because the batches are known in advance. Returns 0, DLP_SKIP if it has fewer, or the
   code of a failure. */
static int dlpi_chunk_load(dlpi_worker *w, const dlp_item *it) {
    const dlp_pipe *p = w->p;
    const dlpi_split *d = dlpi_split_of(p);
    dlpi_chunk_spot *x = &d->places[w->id];
    dlpi_load_call l;
    l.w = w;
    l.from = l.at = 0;
    l.c = (dlp_chunk){.index = it->index,
                      .chunk_rows = dlpi_chunk_size(&d->plan, it->index),
                      .chunk_first = dlpi_chunk_first(&d->plan, it->index),
                      .epoch = it->epoch,
                      .seed = it->seed,
                      .attempt = it->attempt,
                      .n_fields = it->n_fields,
                      .worker = it->worker,
                      .shuffled = d->d.shuffle_rows,
                      .worker_state = it->worker_state,
                      .data = l.data,
                      .call = it->call,
                      .internal = &l};
    dlpi_chunk_goto(&d->plan, &dlpi_near_of(w)->order, it->epoch, it->position, x);
    if (l.c.chunk_rows < x->size) return DLP_SKIP;
    if (l.c.shuffled) dlpi_chunk_permute(p, it->epoch, it->index, &l.order);
    return dlpi_load_runs(&l, x, it);
}

/* Callback of the fetch stage: load a chunk. If chunks stay, it is loaded once, though several
   batches under way may be the same chunk. Returns 0 or a failure's code. */
static int dlpi_chunk_fetch(void *user DLPI_UNREAD, dlp_item *it) {
    dlpi_worker *w = it->call->w;
    const dlp_pipe *p = w->p;
    uint32_t s = (uint32_t)(DLPI_LOAD_RLX(&w->block->running) >> 32); /* X2, own */
    uint64_t *word, key;
    int rc;
    if (dlpi_split_of(p)->chunks.preload == DLP_PRELOAD_NONE) return dlpi_chunk_load(w, it);
    word = dlpi_chunk_word(p, it->index);
    key = dlpi_chunk_key(p, s);
    while (!dlpi_stopped(p)) {
        uint64_t was = dlpi_claim_owner(word); /* Q5 <- Q5 */
        uint32_t other = (uint32_t)(was >> 1 & 0x7fff);
        if (was & 1) return 0;
        if (was != 0 && was != key) {
            /* Y1 <- Y1: another batch loads it, unless that is gone */
            uint64_t ready = dlpi_gather_ready(&dlpi_stage_words_at(p, other, p->work[0])->ready);
            if (!dlpi_ready_past(ready, (was >> 16) - 1)) {
                dlpi_sleep(200000);
                continue;
            }
        }
        if (!dlpi_claim_take(word, was, key)) continue; /* Q5 -> Q5 */
        rc = dlpi_chunk_load(w, it);
        dlpi_claim_done(word, rc == 0 ? key | 1 : UINT64_C(0)); /* Q5 -> Q5 */
        return rc;
    }
    return 0; /* nobody will see it */
}
