/* needs: pack */
#pragma once
/* tests: system/stages/pack */
#include "inputs/pack_window.h"
/* ---- CUT: documents end to end ----
   Two functions follow the rule. One runs over the documents that become known, and counts rows.
   The other runs when a row is given, and writes the row. Both go from the begin of a row to the
   begin of the next row, so a cursor is that place.

   Cells, by the argument of >>impl-found: R rows must be known. How many documents with tokens that
   are not given must a stream have for that? A row ends with its S-th segment, and each document
   has a token at least. So S documents from the begin of a row on make a row. Without overlap the
   next row begins after the last document, so R rows take R S documents. With overlap it begins in
   the last document or one before it, so R rows take R (S - 1) + 1. One document less is too few if
   documents have one token, or, with overlap, `overlap` tokens. Rows get on: a row that S has
   closed has S tokens, and overlap is less. Documents of an input share its cell. So as many cells
   are enough, and fewer if an input has min_documents. */

static void dlpi_pack_cut_begin(dlpi_found *q, uint32_t i) {
    dlpi_pack *k = (dlpi_pack *)(void *)q;
    k->streams[i] = (dlpi_pack_stream){.document = DLPI_FOUND_NONE};
    if (k->turns.most > 0) dlpi_pack_turns_begin(k, i);
}

/* Begin the next row of a stream with the last `overlap` tokens of the complete row. */
static void dlpi_pack_cut_next(const dlp_pipe *p, uint32_t i) {
    const dlpi_pack *k = dlpi_pack_of(p);
    dlpi_pack_stream *x = &k->streams[i];
    uint64_t skip = x->tokens - k->d.overlap;
    x->tokens = k->d.overlap;
    x->repeated = k->d.overlap;
    if (x->tokens == 0) {
        x->segments = 0;
        return;
    }
    for (;;) {
        const uint64_t end = dlpi_pack_find(p, dlpi_pack_cell_of(k, i, x->document), x->first).end;
        if (skip < end - x->first) break;
        skip -= end - x->first;
        x->segments--;
        dlpi_pack_go(k, i, &x->document, &x->first, end);
    }
    x->first += skip;
}

/* Add the `left` tokens of a document that became known to the rows of stream i, from token `at` of
   its cell on. Returns how many rows they complete. Before the first document, note if its row
   begins with tokens of the row before. */
static uint64_t dlpi_pack_cut_document(const dlp_pipe *p, uint32_t i, uint64_t document,
                                       uint64_t at, uint64_t left) {
    const dlpi_pack *k = dlpi_pack_of(p);
    const dlpi_cursor *begin = &k->x.found.streams[i].at;
    dlpi_pack_stream *x = &k->streams[i];
    uint64_t rows = 0;
    bool joined = false; /* the row has tokens of this document already */
    if (!x->begun)
        x->repeated = begin->ordinal | begin->used | dlpi_pack_place(k, begin) ? k->d.overlap : 0;
    x->begun = true;
    while (left > 0) {
        uint32_t room = k->d.tokens - x->tokens, n = left < room ? (uint32_t)left : room;
        if (x->tokens == 0) {
            x->document = document;
            x->first = at;
        }
        x->tokens += n;
        x->segments += !joined;
        at += n;
        left -= n;
        if (x->tokens < k->d.tokens && x->segments < k->most) break;
        rows++;
        dlpi_pack_cut_next(p, i);
        joined = x->tokens > 0;
    }
    return rows;
}

/* Take the lengths of cell c's documents. Returns how many rows of stream i these complete. */
static uint64_t dlpi_pack_cut_learned(dlp_pipe *p, uint32_t i, uint32_t c) {
    dlpi_pack *k = dlpi_pack_of(p);
    const dlpi_found_cell *u = &k->x.found.use[c];
    uint64_t rows = 0;
    for (uint64_t at = u->taken, end; at < u->n; at = end) {
        end = dlpi_pack_find(p, c, at).end;
        rows += dlpi_pack_cut_document(p, i, c, at, end - at);
    }
    return rows;
}

/* Return 1, once, if stream i is out and has a last row that is not full; else 0. */
static uint64_t dlpi_pack_cut_more(dlp_pipe *p, uint32_t i, bool out) {
    dlpi_pack_stream *x = &dlpi_pack_of(p)->streams[i];
    if (!out || x->ended) return 0;
    x->ended = true;
    return x->tokens > x->repeated;
}

/* Open windows of stream i while too few rows are known. out: the stream is out. Returns how many
   rows became known. */
static uint64_t dlpi_pack_cut_turns(dlp_pipe *p, uint32_t i, bool out) {
    const dlpi_pack *k = dlpi_pack_of(p);
    const dlpi_found *q = &k->x.found;
    const dlpi_pack_turns_stream *x = &k->turns.streams[i];
    const uint64_t want = dlpi_pack_look(p, k), known = dlpi_pack_known(k, i);
    uint64_t rows = 0, n;
    while (q->rc == DLP_OK && known + rows < want && (n = dlpi_pack_turns_open(p, i, out)) > 0)
        for (uint64_t t = x->tail - n; t < x->tail; t++) {
            const dlpi_pack_segment *of = &dlpi_pack_turn_at(k, i, t)->of;
            const uint64_t used = t == x->head ? x->used : 0;
            if (t >= x->head)
                rows += dlpi_pack_cut_document(p, i, t, of->first + used, of->tokens - used);
        }
    return rows + dlpi_pack_cut_more(p, i, out && x->documents == 0);
}

/* Count the first `skip` tokens of a stream as given, and drop cells without tokens left. */
static void dlpi_pack_cut_skip(dlpi_found *q, dlpi_found_stream *x, uint64_t skip) {
    while (skip > 0) {
        dlpi_found_cell *u = &q->use[x->head];
        uint64_t n = u->n - u->taken < skip ? u->n - u->taken : skip;
        u->taken += n;
        skip -= n;
        dlpi_found_stands(q, x, x->head, (dlpi_cursor){u->ordinal, u->taken, 0, 0});
        if (u->taken == u->n) dlpi_pack_spend(q, x, dlpi_found_behead(q, x));
    }
}

/* Take the next row off stream i (dlpi_pack.take). A row with neither T tokens nor S segments is
   the last one, so nothing of it is repeated. */
static void dlpi_pack_cut_take(dlp_pipe *p, uint32_t i, dlpi_pack_row *row, uint32_t s) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_stream *x = &q->streams[i];
    const dlpi_pack_turns_stream *t = k->turns.most > 0 ? &k->turns.streams[i] : NULL;
    uint64_t document = t != NULL ? t->head : x->head, last = t != NULL ? t->tail : x->known,
             at = 0;
    uint32_t tokens = 0, segments = 0;
    if (document != last)
        at = t != NULL ? dlpi_pack_turn_at(k, i, document)->of.first + t->used
                       : q->use[document].taken;
    while (document != last && tokens < k->d.tokens && segments < k->most) {
        const uint32_t c = dlpi_pack_cell_of(k, i, document);
        const uint64_t end = dlpi_pack_find(p, c, at).end, room = k->d.tokens - tokens;
        const uint32_t n = (uint32_t)(end - at < room ? end - at : room);
        if (row != NULL) dlpi_pack_put(p, row, s, (dlpi_pack_segment){c, (uint32_t)at, n});
        tokens += n;
        segments++;
        dlpi_pack_go(k, i, &document, &at, end);
    }
    if (tokens == k->d.tokens || segments == k->most) tokens -= k->d.overlap;
    if (t != NULL)
        dlpi_pack_turns_skip(k, i, tokens);
    else
        dlpi_pack_cut_skip(q, x, tokens);
}

static const dlpi_found_rule dlpi_pack_cut = {
    .begin = dlpi_pack_cut_begin,
    .learned = dlpi_pack_cut_learned,
    .more = dlpi_pack_cut_more,
    .give = dlpi_pack_give,
    .pass = dlpi_pack_pass,
};

/* The rule behind a window. */
static const dlpi_found_rule dlpi_pack_cut_mixed = {
    .begin = dlpi_pack_cut_begin,
    .taken = dlpi_pack_taken,
    .learned = dlpi_pack_turns_learned,
    .more = dlpi_pack_cut_turns,
    .give = dlpi_pack_give,
    .pass = dlpi_pack_pass,
};
