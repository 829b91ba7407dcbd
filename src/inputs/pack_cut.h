/* needs: parts pack */
#pragma once
/* tests: system/stages/pack */
#include "inputs/pack_rows.h"
/* ---- CUT: documents end to end ----
   Two functions follow the rule: one over the documents that become known, which counts rows, one
   when a row is given, which writes it. Both go from where a row begins to where the next one does,
   so a cursor is that place.

   Cells, by the argument of >>impl-found: a stream must have so many documents with tokens that are
   not given that R rows, those that must be known, are. A row ends with its S-th segment, and each
   of so many documents has a token at least, so S of them from where a row begins on make a row.
   The next begins after the last, so R rows take R S; or, with overlap, in the last or one before
   it, so R (S - 1) + 1. One less is too few where documents have one token, or, with overlap,
   `overlap` tokens. Rows get on: one that S has closed has S tokens, and overlap is less. */

static void dlpi_pack_cut_begin(dlpi_found *q, uint32_t i) {
    ((dlpi_pack *)(void *)q)->streams[i] = (dlpi_pack_stream){.cell = DLPI_FOUND_NONE};
}

/* A row is complete: the next one begins with what is repeated of it. */
static void dlpi_pack_cut_next(const dlpi_pack *k, dlpi_pack_stream *x) {
    const dlpi_found_cell *use = k->x.found.use;
    uint64_t skip = x->tokens - k->d.overlap;
    x->tokens = k->d.overlap;
    x->repeated = k->d.overlap;
    if (x->tokens == 0) {
        x->segments = 0;
        return;
    }
    while (skip >= use[x->cell].n - x->first) {
        skip -= use[x->cell].n - x->first;
        x->cell = use[x->cell].next;
        x->first = 0;
        x->segments--;
    }
    x->first += skip;
}

/* A document more is known: the rows that it completes. */
static uint64_t dlpi_pack_cut_learned(dlpi_found *q, uint32_t i, uint32_t c) {
    dlpi_pack *k = (dlpi_pack *)(void *)q;
    dlpi_pack_stream *x = &k->streams[i];
    const dlpi_found_stream *f = &q->streams[i];
    uint64_t at = q->use[c].taken, left = q->use[c].n - at, rows = 0;
    bool joined = false; /* the row has tokens of this document already */
    if (!x->begun) x->repeated = f->at.ordinal | f->at.used ? k->d.overlap : 0;
    x->begun = true;
    while (left > 0) {
        uint32_t room = k->d.tokens - x->tokens, n = left < room ? (uint32_t)left : room;
        if (x->tokens == 0) {
            x->cell = c;
            x->first = at;
        }
        x->tokens += n;
        x->segments += !joined;
        at += n;
        left -= n;
        if (x->tokens < k->d.tokens && x->segments < k->most) break;
        rows++;
        dlpi_pack_cut_next(k, x);
        joined = x->tokens > 0;
    }
    return rows;
}

static uint64_t dlpi_pack_cut_more(dlp_pipe *p, uint32_t i, bool out) {
    dlpi_pack_stream *x = &dlpi_pack_of(p)->streams[i];
    if (!out || x->ended) return 0;
    x->ended = true;
    return x->tokens > x->repeated;
}

/* A stream gives its first tokens: the next row begins after them. */
static void dlpi_pack_cut_skip(dlpi_found *q, dlpi_found_stream *x, uint64_t skip) {
    while (skip > 0) {
        dlpi_found_cell *u = &q->use[x->head];
        uint64_t n = u->n - u->taken < skip ? u->n - u->taken : skip;
        u->taken += n;
        skip -= n;
        x->at = (dlpi_cursor){u->ordinal, u->taken, 0, 0};
        if (u->taken == u->n) dlpi_found_drop(q, x);
    }
}

/* A row that has neither T tokens nor S segments is the last: nothing of it is repeated. */
static void dlpi_pack_cut_give(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_found *q = &k->x.found;
    dlpi_found_stream *x = &q->streams[i];
    dlpi_pack_row *row = dlpi_pack_row_at(p, s, r);
    uint32_t c = x->head;
    uint64_t skip;
    row->n = row->tokens = 0;
    while (c != x->known && row->tokens < k->d.tokens && row->n < k->most) {
        const dlpi_found_cell *u = &q->use[c];
        uint64_t room = k->d.tokens - row->tokens, n = u->n - u->taken;
        dlpi_pack_put(p, s, r, c, u->taken, (uint32_t)(n < room ? n : room));
        c = u->next;
    }
    skip = row->tokens;
    if (row->tokens == k->d.tokens || row->n == k->most) skip -= k->d.overlap;
    dlpi_pack_cut_skip(q, x, skip);
    dlpi_pack_count(p, row);
}

static void dlpi_pack_cut_pass(dlp_pipe *p, uint32_t i) {
    const dlpi_pack *k = dlpi_pack_of(p);
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_stream *x = &q->streams[i];
    uint64_t tokens = 0;
    uint32_t segments = 0;
    for (uint32_t c = x->head; c != x->known && tokens < k->d.tokens && segments < k->most;
         c = q->use[c].next, segments++) {
        uint64_t n = q->use[c].n - q->use[c].taken, room = k->d.tokens - tokens;
        tokens += n < room ? n : room;
    }
    if (tokens == k->d.tokens || segments == k->most) tokens -= k->d.overlap;
    dlpi_pack_cut_skip(q, x, tokens);
}

static const dlpi_found_rule dlpi_pack_cut = {
    .begin = dlpi_pack_cut_begin,
    .learned = dlpi_pack_cut_learned,
    .more = dlpi_pack_cut_more,
    .give = dlpi_pack_cut_give,
    .pass = dlpi_pack_cut_pass,
};
