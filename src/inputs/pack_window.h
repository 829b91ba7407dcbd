/* needs: pack */
#pragma once
/* tests: system/stages/pack, system/inputs/inputs_random */
#include "inputs/pack_rows.h"
/* ---- a window before the pack: documents in the order of windows ----
   A pack takes the next known document of its stream. Without a window this is the next document of
   the stream's list. With one it is the next turn. When the documents of a window are known, they
   leave the list, and get turns in the window's order. Several windows may be open, because the
   rows that must be known may have documents of several. A window is opened only while fewer than
   R rows are known. A cell is given back with its last token.

   A cursor is the place where a window begins, and how many of its documents are given. It also
   says what of the next document is given: its tokens (CUT), or the rows of the window of FIT that
   begins with it. The check is a hash of the window's documents and their lengths. If rows of a
   window of FIT are given, it is the hash of that one.

   Cells: pack_cut.h and pack_fit.h say how many documents in the pack's order are enough for R
   rows. Let D be that number, and W the documents of a window. Let a stream lack a row, and let all
   of its cells be known. It has at most D - 1 documents that have a turn, or are in known rows. It
   has at most W - 1 documents behind them, or a window would be opened. These lie in fewer cells
   than W documents may lie in. So D - 1 cells, and those of W documents, are enough.
   There is a second bound if inputs have several documents. The documents with turns follow each
   other in the pack's order. In the list they lie among D - 1 documents, and at most W - 1 given
   ones of the first window. With W - 1 documents behind them these are D + 2 W - 3 in a row. */

static inline dlpi_pack_turn *dlpi_pack_turn_at(const dlpi_pack *k, uint32_t i, uint64_t turn) {
    return &k->turns.at[(uint64_t)i * k->turns.most + turn % k->turns.most];
}

/* Return the cell of a document of stream i. The number of a document is that of its turn or,
   without a window, of its cell. */
static inline uint32_t dlpi_pack_cell_of(const dlpi_pack *k, uint32_t i, uint64_t document) {
    return k->turns.most > 0 ? dlpi_pack_turn_at(k, i, document)->of.cell : (uint32_t)document;
}

/* Move a place in documents behind the document that ends with token end - 1. */
static inline void dlpi_pack_go(const dlpi_pack *k, uint32_t i, uint64_t *document, uint64_t *at,
                                uint64_t end) {
    if (k->turns.most > 0) {
        *at = dlpi_pack_turn_at(k, i, ++*document)->of.first;
    } else if (end < k->x.found.use[*document].n) {
        *at = end;
    } else {
        *document = k->x.found.use[*document].next;
        *at = 0;
    }
}

/* Return the place of stream i in the window of a turn. documents: of the window that are given,
   from this turn on; inner: what of the next one is used. */
static dlpi_cursor dlpi_pack_turn_cursor(const dlpi_pack *k, uint32_t i, const dlpi_pack_turn *turn,
                                         uint64_t documents, uint64_t inner) {
    dlpi_cursor at = k->turns.begins[(uint64_t)i * k->turns.windows + turn->window];
    at.place = (turn->at + documents) * k->turns.inner + inner;
    if (at.place == 0) at.check = 0;
    return at;
}

/* Count at most `most` tokens of the first turn of stream i as given. Returns how many there were.
   The turn is taken with its last token. */
static uint64_t dlpi_pack_turn_use(dlpi_pack *k, uint32_t i, uint64_t most) {
    dlpi_pack_turns_stream *x = &k->turns.streams[i];
    const dlpi_pack_segment *of = &dlpi_pack_turn_at(k, i, x->head)->of;
    const uint64_t left = of->tokens - x->used, n = left < most ? left : most;
    x->used = n < left ? x->used + n : 0;
    x->head += n == left;
    dlpi_pack_free(&k->x.found, i, of->cell, n);
    return n;
}

/* Note that stream i stands at a turn: behind so many tokens of its document. */
static void dlpi_pack_turn_stand(dlpi_pack *k, uint32_t i, const dlpi_pack_turn *turn,
                                 uint64_t used) {
    dlpi_found *q = &k->x.found;
    q->streams[i].at = dlpi_pack_turn_cursor(k, i, turn, 0, used);
    if (q->joins != NULL)
        q->joined->at[i] = k->turns.paths[(uint64_t)i * k->turns.windows + turn->window];
}

/* Give `skip` tokens of the turns of stream i, and note where the stream stands then. */
static void dlpi_pack_turns_skip(dlpi_pack *k, uint32_t i, uint64_t skip) {
    const dlpi_pack_turns_stream *x = &k->turns.streams[i];
    while (skip > 0) {
        const dlpi_pack_turn *turn = dlpi_pack_turn_at(k, i, x->head);
        const uint64_t used = x->used, n = dlpi_pack_turn_use(k, i, skip);
        dlpi_pack_turn_stand(k, i, turn, used + n);
        skip -= n;
    }
}

/* ---- a window is opened ---- */

/* Give up the turns of stream i: an epoch, or a place of it, begins. */
static void dlpi_pack_turns_begin(dlpi_pack *k, uint32_t i) {
    dlpi_pack_turns_stream *x = &k->turns.streams[i];
    while (x->head < x->tail) dlpi_pack_turn_use(k, i, UINT64_MAX);
    *x = (dlpi_pack_turns_stream){0};
}

/* Pass the documents of the first window of stream i that were given before the state was saved.
   n: documents of the window; check: its hash. If the window is not the one of the state, the pipe
   fails. */
static void dlpi_pack_turns_resume(dlp_pipe *p, uint32_t i, uint64_t n, uint64_t check) {
    dlpi_pack *k = dlpi_pack_of(p);
    const dlpi_cursor *at = &k->x.found.streams[i].at;
    const uint64_t place = dlpi_pack_place(k, at);
    const uint64_t documents = place / k->turns.inner, inner = place % k->turns.inner;
    const bool cut = k->d.rule == DLP_PACK_CUT;
    bool same = place == 0 || dlpi_pack_checked(k, at, check) || (!cut && inner > 0);
    same &= documents + (inner > 0) <= n;
    for (uint64_t j = 0; same && j < documents; j++) dlpi_pack_turn_use(k, i, UINT64_MAX);
    if (same && cut && inner > 0) same = dlpi_pack_turn_use(k, i, inner) == inner;
    if (!same) dlpi_found_changed(p, i, documents);
}

/* Open the next window of stream i, if its documents are known. out: no more documents come, so the
   last window may be shorter. Returns how many documents have got a turn. */
static uint64_t dlpi_pack_turns_open(dlp_pipe *p, uint32_t i, bool out) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_found *q = &k->x.found;
    dlpi_pack_turns_stream *x = &k->turns.streams[i];
    const uint64_t most = q->plan.window, n = x->documents < most ? x->documents : most;
    const uint64_t window = (uint64_t)i * k->turns.windows + x->windows % k->turns.windows;
    dlpi_found_row *row = q->window_rows + i * most;
    dlpi_pack_segment of = {0, 0, 0};
    uint32_t number = (uint32_t)(x->windows % k->turns.windows);
    uint64_t h = 0;
    if (n == 0 || (n < most && !out)) return 0;
    if (!x->begun) x->next = (dlpi_cursor){q->streams[i].at.ordinal, q->streams[i].at.used, 0, 0};
    if (q->joins != NULL) k->turns.paths[window] = (x->begun ? q->joined->after : q->joined->at)[i];
    for (uint64_t j = 0; j < n; j++) {
        of = dlpi_pack_leave(p, i);
        row[j] = (dlpi_found_row){of.cell, of.first};
        h = dlpi_absorb(dlpi_absorb(h, q->use[of.cell].ordinal), of.tokens);
    }
    k->turns.begins[window] = x->next;
    k->turns.begins[window].check = h & 0xffff;
    dlpi_found_window(&q->plan, &q->window_orders[i], q->epoch, q->cursors.first + (uint64_t)i,
                      &x->next, n);
    for (uint64_t j = 0; j < n; j++) {
        const dlpi_found_row *from = &row[dlp_permutation_at(&q->window_orders[i], j)];
        const uint64_t end = dlpi_pack_find(p, from->cell, from->number).end;
        *dlpi_pack_turn_at(k, i, x->tail++) = (dlpi_pack_turn){
            {from->cell, from->number, (uint32_t)end - from->number}, number, (uint32_t)j};
    }
    x->next = dlpi_pack_left(p, of.cell);
    if (q->joins != NULL) q->joined->after[i] = q->joined->cells[of.cell].before;
    x->documents -= n;
    x->windows++;
    if (!x->begun) dlpi_pack_turns_resume(p, i, n, h & 0xffff);
    x->begun = true;
    return n;
}

/* Count the documents of cell c of stream i, whose counts were taken, as known. Returns 0: rows
   become known with a window. */
static uint64_t dlpi_pack_turns_learned(dlp_pipe *p, uint32_t i, uint32_t c) {
    dlpi_pack_of(p)->turns.streams[i].documents += dlpi_pack_more(p, c);
    return 0;
}

/* ---- memory ---- */

/* Set how many turns and windows a stream has at most, and the sizes of its cursors. documents: so
   many in the pack's order are enough for the rows that must be known, one less may be too few.
   inner: numbers that may stand for what of a document is used. */
static void dlpi_pack_turns_sizes(dlpi_pack *k, uint64_t documents, uint64_t inner) {
    dlpi_found *q = &k->x.found;
    const uint64_t window = q->plan.window, most = dlpi_sum(documents - 1, window);
    if (window == 0) return;
    k->turns.most = (uint32_t)(most < UINT32_MAX ? most : UINT32_MAX);
    k->turns.windows = (uint32_t)(most / window) + 2;
    k->turns.inner = inner;
    q->places = dlpi_times(window + 1, inner);
    q->cursors.used_bits = dlpi_bits_of(k->most_documents);
    q->cursors.place_bits = dlpi_bits_of(q->places - 1);
}

/* Describe in `out` the memory of turns. Returns the number of blocks: 0 without a window. */
static int dlpi_pack_turns_blocks(const dlpi_pack *k, dlpi_block *out) {
    const uint64_t n = k->x.found.cursors.n, windows = dlpi_times(n, k->turns.windows);
    const uint64_t paths = k->x.found.joins != NULL ? windows : 0;
    if (k->turns.most == 0) return 0;
    out[0] = (dlpi_block){offsetof(dlpi_pack, turns.streams), n * sizeof *k->turns.streams};
    out[1] = (dlpi_block){offsetof(dlpi_pack, turns.at),
                          dlpi_times(dlpi_times(n, k->turns.most), sizeof *k->turns.at)};
    out[2] = (dlpi_block){offsetof(dlpi_pack, turns.begins),
                          dlpi_times(windows, sizeof *k->turns.begins)};
    out[3] =
        (dlpi_block){offsetof(dlpi_pack, turns.paths), dlpi_times(paths, sizeof *k->turns.paths)};
    return 4;
}
