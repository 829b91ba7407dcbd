/* needs: pack */
#pragma once
/* tests: system/stages/pack, system/inputs/inputs_random */
#include "inputs/pack_window.h"
/* ---- FIT: best fit in windows of N documents ----
   A window is N documents of a stream, or all that are left of an epoch. When they are known, their
   rows are laid out at once, and the documents leave the stream's list. A cell is given back with
   the last piece out of it. R rows must be known. A window is laid out only while fewer than R rows
   are known. So memory for known rows has a bound. A cursor has the first document of a window, the
   number of its rows that are given, and 16 bits of a hash of its documents and their lengths.
   After the last row of the window the cursor is the window's last document, used. If documents are
   joined rows, the place is a path: that before the joined row of the same document. A window's
   cells may be other rows' by then, so the two paths are noted as the window is laid out.

   Cells: let R - 1 rows be known, of at most min(S, N) documents each. With N - 1 documents after
   them there is not yet a window. With one document more there is one: (R - 1) min(S, N) + N. If
   inputs have several documents, each of these may be of another input. But R - 1 rows are of at
   most R - 1 windows. So R N documents in a row, and the inputs that they lie in, are enough.

   Pieces are taken by length. Each length has a list, and a bit that is set if the list has a
   piece. Rows are found by their room in the same way. The first row of a list comes first. */

/* Lists by a number, of 0..T + 1. */
typedef struct dlpi_fit_lists {
    uint32_t n;     /* number of lists: one for each length or room, 0..n - 1 */
    uint32_t *head; /* [n] first item of each list that is not empty */
    uint64_t *bits; /* bit i of these words is set if list i is not empty */
} dlpi_fit_lists;

static inline uint64_t dlpi_fit_list_words(const dlpi_pack *k) {
    return (uint64_t)k->d.tokens + 2 + 2 * (((uint64_t)k->d.tokens + 2 + 63) / 64);
}

/* Return the i-th set of lists: 0 has the pieces by length, 1 the rows by room. */
static dlpi_fit_lists dlpi_fit_lists_at(const dlpi_pack *k, uint32_t i) {
    uint32_t n = k->d.tokens + 2, words = (n + 63) / 64;
    return (dlpi_fit_lists){n, (uint32_t *)(void *)(k->fit_words + 2 * words) + i * n,
                            k->fit_words + i * words};
}

static inline bool dlpi_fit_has(const dlpi_fit_lists *l, uint32_t at) {
    return l->bits[at / 64] >> at % 64 & 1u;
}

/* Return the first list from number `at` on that is not empty, or n if there is none. */
static uint32_t dlpi_fit_next(const dlpi_fit_lists *l, uint32_t at) {
    uint32_t i = at / 64;
    uint64_t word = l->bits[i] & ~UINT64_C(0) << at % 64;
    while (word == 0) {
        if (++i * 64 >= l->n) return l->n;
        word = l->bits[i];
    }
    return i * 64 + DLPI_CTZ(word);
}

static void dlpi_fit_set(const dlpi_fit_lists *l, uint32_t at, uint32_t head) {
    l->head[at] = head;
    l->bits[at / 64] |= UINT64_C(1) << at % 64;
    if (head == DLPI_FOUND_NONE) l->bits[at / 64] &= ~(UINT64_C(1) << at % 64);
}

/* ---- a window is laid out ---- */

/* Return the list of a piece: T - its length. So the longest pieces come first. */
static uint32_t dlpi_fit_key(const dlpi_pack *k, const dlpi_fit_item *piece) {
    return k->d.tokens - piece->at.tokens;
}

/* Cut the next n documents of stream i into pieces, and write them into fit_items in their order.
   *hash: gets a hash of the documents and their lengths. Returns how many pieces there are. */
static uint32_t dlpi_fit_pieces(dlp_pipe *p, uint32_t i, uint64_t n, uint64_t *hash) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_pack_turns_stream *turns = k->turns.most > 0 ? &k->turns.streams[i] : NULL;
    uint32_t pieces = 0;
    for (*hash = 0; n > 0; n--) {
        dlpi_pack_segment of =
            turns != NULL ? dlpi_pack_turn_at(k, i, turns->head++)->of : dlpi_pack_leave(p, i);
        *hash = dlpi_absorb(dlpi_absorb(*hash, k->x.found.use[of.cell].ordinal), of.tokens);
        while (of.tokens > 0) {
            const uint32_t piece = of.tokens < k->d.tokens ? of.tokens : k->d.tokens;
            k->fit_items[pieces++].at = (dlpi_pack_segment){of.cell, of.first, piece};
            of.first += piece;
            of.tokens -= piece;
        }
    }
    return pieces;
}

/* Put row number `row`, which has so much room, into the list of rows with this room. The list
   stays in the order of the rows' numbers. */
static void dlpi_fit_room(dlpi_fit_item *items, const dlpi_fit_lists *rooms, uint32_t room,
                          uint32_t row) {
    uint32_t before = DLPI_FOUND_NONE;
    uint32_t at = dlpi_fit_has(rooms, room) ? rooms->head[room] : DLPI_FOUND_NONE;
    while (at < row) {
        before = at;
        at = items[at].row_next;
    }
    items[row].row_next = at;
    if (before == DLPI_FOUND_NONE)
        dlpi_fit_set(rooms, room, row);
    else
        items[before].row_next = row;
}

/* Put a piece into the fullest row that has room for it, or into a new row. rows: how many rows
   there are. Returns how many there are afterwards. */
static uint32_t dlpi_fit_put(dlpi_pack *k, const dlpi_fit_lists *rooms, uint32_t piece,
                             uint32_t rows) {
    dlpi_fit_item *items = k->fit_items, *x = &items[piece];
    uint32_t room = dlpi_fit_next(rooms, x->at.tokens), row = rows;
    x->next = DLPI_FOUND_NONE;
    if (room == rooms->n) {
        items[row].head = piece;
        items[row].n = items[row].tokens = 0;
    } else {
        row = rooms->head[room];
        dlpi_fit_set(rooms, room, items[row].row_next);
        items[items[row].tail].next = piece;
    }
    items[row].tail = piece;
    items[row].n++;
    items[row].tokens += x->at.tokens;
    if (items[row].tokens < k->d.tokens && items[row].n < k->most)
        dlpi_fit_room(items, rooms, k->d.tokens - items[row].tokens, row);
    return row == rows ? rows + 1 : rows;
}

/* Lay out the pieces of a window in rows, by best fit. Returns how many rows there are. */
static uint32_t dlpi_fit_rows(dlpi_pack *k, uint32_t pieces) {
    const dlpi_fit_lists sizes = dlpi_fit_lists_at(k, 0), rooms = dlpi_fit_lists_at(k, 1);
    uint32_t rows = 0, at;
    memset(k->fit_words, 0, (size_t)((sizes.n + 63) / 64) * 16); /* the bits of both */
    for (uint32_t i = pieces; i-- > 0;) {
        at = dlpi_fit_key(k, &k->fit_items[i]);
        k->fit_items[i].next = dlpi_fit_has(&sizes, at) ? sizes.head[at] : DLPI_FOUND_NONE;
        dlpi_fit_set(&sizes, at, i);
    }
    for (at = 0; (at = dlpi_fit_next(&sizes, at)) < sizes.n;) {
        uint32_t piece = sizes.head[at];
        dlpi_fit_set(&sizes, at, k->fit_items[piece].next);
        rows = dlpi_fit_put(k, &rooms, piece, rows);
    }
    return rows;
}

/* ---- rows that are known ---- */

static inline dlpi_fit_row *dlpi_fit_rows_of(const dlpi_pack *k, uint32_t i) {
    return k->fit_rows + i * k->fit_most_rows;
}
static inline dlpi_pack_segment *dlpi_fit_pieces_of(const dlpi_pack *k, uint32_t i) {
    return k->fit_pieces + i * k->fit_most_pieces;
}

/* Take the first known row off stream i: it is given. Cells without tokens left are given back. */
static void dlpi_fit_drop(dlpi_pack *k, uint32_t i) {
    dlpi_fit_stream *x = &k->fit_streams[i];
    const dlpi_fit_row *row = &dlpi_fit_rows_of(k, i)[x->row++];
    for (uint32_t j = 0; j < row->n; j++) {
        const dlpi_pack_segment *piece = &dlpi_fit_pieces_of(k, i)[row->first + j];
        dlpi_pack_free(&k->x.found, i, piece->cell, piece->tokens);
    }
}

/* Move the known rows of stream i that are not given to the front, to make room behind them. */
static void dlpi_fit_compact(dlpi_pack *k, uint32_t i) {
    dlpi_fit_stream *x = &k->fit_streams[i];
    dlpi_fit_row *rows = dlpi_fit_rows_of(k, i);
    dlpi_pack_segment *pieces = dlpi_fit_pieces_of(k, i);
    uint32_t gone = x->row < x->rows ? rows[x->row].first : x->pieces;
    memmove(pieces, pieces + gone, (x->pieces - gone) * sizeof *pieces);
    memmove(rows, rows + x->row, (x->rows - x->row) * sizeof *rows);
    x->pieces -= gone;
    x->rows -= x->row;
    x->row = 0;
    for (uint32_t j = 0; j < x->rows; j++) rows[j].first -= gone;
}

/* Append the n rows that were laid out to the known rows of stream i. Each row notes where the
   stream stands after it. begin: the stream's place before the window. end: after it. check:
   hash. */
static void dlpi_fit_append(dlpi_pack *k, uint32_t i, uint32_t n, const dlpi_cursor *begin,
                            const dlpi_cursor *end, uint64_t check) {
    dlpi_fit_stream *x = &k->fit_streams[i];
    const dlpi_fit_item *items = k->fit_items;
    for (uint32_t row = 0; row < n; row++) {
        dlpi_fit_row *to = &dlpi_fit_rows_of(k, i)[x->rows++];
        to->first = x->pieces;
        to->n = items[row].n;
        for (uint32_t j = items[row].head; j != DLPI_FOUND_NONE; j = items[j].next)
            dlpi_fit_pieces_of(k, i)[x->pieces++] = items[j].at;
        to->after = (dlpi_cursor){begin->ordinal, begin->used, begin->place + row + 1, check};
        if (row + 1 == n) to->after = *end;
    }
}

/* Return the path of a document of stream i that is a joined row: that of a turn or, without a
   window, of cell c. NULL: documents are no joined rows. */
static const dlpi_path *dlpi_fit_path(const dlpi_pack *k, uint32_t i, uint64_t turn, uint32_t c) {
    if (k->x.found.joins == NULL) return NULL;
    if (k->turns.most == 0) return &k->x.found.joined->cells[c].before;
    return &k->turns.paths[(uint64_t)i * k->turns.windows + dlpi_pack_turn_at(k, i, turn)->window];
}

/* Note the paths of the first and the last document of a new window of stream i. */
static void dlpi_fit_note(dlpi_pack *k, uint32_t i, const dlpi_path *first, const dlpi_path *last) {
    const uint64_t at = k->fit_streams[i].windows++ % k->fit_most_windows;
    if (first != NULL) k->fit_paths[i * k->fit_most_windows + at] = (dlpi_fit_paths){*first, *last};
}

/* Note that stream i stands behind the known row `row`. A cursor without a place is behind the last
   row of its window. */
static void dlpi_fit_stands(dlpi_pack *k, uint32_t i, const dlpi_fit_row *row) {
    const uint64_t window = k->fit_streams[i].window, most = k->fit_most_windows;
    const uint64_t place = row->after.place;
    const bool last = (k->turns.most > 0 ? place % k->turns.inner : place) == 0;
    k->x.found.streams[i].at = row->after;
    k->fit_streams[i].window += last;
    if (k->x.found.joins == NULL) return;
    const dlpi_fit_paths *at = &k->fit_paths[i * most + window % most];
    k->x.found.joined->at[i] = last ? at->end : at->begin;
}

/* Drop those rows of the first window that were given before the state was saved. If the window is
   not the one of the state, the pipe fails. rows: rows of the window. check: its hash. Returns how
   many rows are left. */
static uint32_t dlpi_fit_resume(dlp_pipe *p, uint32_t i, uint32_t rows, uint64_t check) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_fit_stream *x = &k->fit_streams[i];
    const dlpi_fit_row *first = &dlpi_fit_rows_of(k, i)[x->row];
    const dlpi_cursor *at = &k->x.found.streams[i].at;
    const uint64_t place = dlpi_pack_place(k, at);
    const uint64_t given = k->turns.most > 0 ? place % k->turns.inner : place;
    uint32_t c = dlpi_fit_pieces_of(k, i)[first->first].cell;
    if (given == 0) return rows;
    if (!dlpi_pack_checked(k, at, check) || given >= rows) {
        dlpi_found_fail(p, DLP_ERR_RESUME,
                        "the window of %s %" PRIu64 " has changed since the state was saved, "
                        "%" PRIu64 " of its rows given; open the pipe with the same documents",
                        p->source->input, dlpi_input_at(p, c)->index, given);
        return 0;
    }
    for (uint64_t j = 0; j < given; j++) dlpi_fit_drop(k, i);
    return rows - (uint32_t)given;
}

/* Lay out the next n documents of stream i as a window. Returns how many rows became known. */
static uint32_t dlpi_fit_window(dlp_pipe *p, uint32_t i, uint64_t n) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_fit_stream *x = &k->fit_streams[i];
    const bool turns = k->turns.most > 0;
    const uint32_t first = k->x.found.streams[i].head;
    const uint64_t turn = turns ? k->turns.streams[i].head : 0;
    const dlpi_cursor begin = turns
                                  ? dlpi_pack_turn_cursor(k, i, dlpi_pack_turn_at(k, i, turn), 0, 0)
                                  : dlpi_pack_left(p, first);
    uint64_t hash;
    uint32_t pieces = dlpi_fit_pieces(p, i, n, &hash);
    const uint32_t last = k->fit_items[pieces - 1].at.cell;
    const dlpi_cursor end =
        turns ? dlpi_pack_turn_cursor(k, i, dlpi_pack_turn_at(k, i, turn + n - 1), 1, 0)
              : dlpi_pack_left(p, last);
    uint32_t rows = dlpi_fit_rows(k, pieces);
    hash >>= 48;
    dlpi_fit_note(k, i, dlpi_fit_path(k, i, turn, first), dlpi_fit_path(k, i, turn + n - 1, last));
    dlpi_fit_compact(k, i);
    dlpi_fit_append(k, i, rows, &begin, &end, hash);
    x->documents -= n;
    return x->windows == 1 ? dlpi_fit_resume(p, i, rows, hash) : rows;
}

/* ---- the rule ---- */

static void dlpi_fit_begin(dlpi_found *q, uint32_t i) {
    dlpi_pack *k = (dlpi_pack *)(void *)q;
    while (k->fit_streams[i].row < k->fit_streams[i].rows) dlpi_fit_drop(k, i);
    k->fit_streams[i] = (dlpi_fit_stream){0};
    if (k->turns.most > 0) dlpi_pack_turns_begin(k, i);
}

/* Count the documents of cell c of stream i as known. Returns 0: only a whole window makes rows. */
static uint64_t dlpi_fit_learned(dlp_pipe *p, uint32_t i, uint32_t c) {
    dlpi_pack *k = dlpi_pack_of(p);
    if (k->turns.most > 0) return dlpi_pack_turns_learned(p, i, c);
    k->fit_streams[i].documents += dlpi_pack_more(p, c);
    return 0;
}

/* Lay out windows of stream i while enough documents are known and too few rows are. out: the
   stream is out, so the last window may be shorter. Returns how many rows became known. */
static uint64_t dlpi_fit_more(dlp_pipe *p, uint32_t i, bool out) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_fit_stream *x = &k->fit_streams[i];
    const dlpi_pack_turns_stream *turns = k->turns.most > 0 ? &k->turns.streams[i] : NULL;
    const uint64_t window = k->d.window, want = dlpi_pack_look(p, k);
    uint64_t rows = 0;
    while (k->x.found.rc == DLP_OK && x->rows - x->row < want) {
        if (turns != NULL && x->documents < window && dlpi_pack_turns_open(p, i, out) > 0) {
            x->documents = turns->tail - turns->head;
            continue;
        }
        if (x->documents < window && (!out || x->documents == 0)) break;
        rows += dlpi_fit_window(p, i, x->documents < window ? x->documents : window);
    }
    return rows;
}

/* Take the next known row off stream i (dlpi_pack.take). The stream then stands behind the row. The
   stream must have a known row. */
static void dlpi_fit_take(dlp_pipe *p, uint32_t i, dlpi_pack_row *row, uint32_t s) {
    dlpi_pack *k = dlpi_pack_of(p);
    const dlpi_fit_row *from = &dlpi_fit_rows_of(k, i)[k->fit_streams[i].row];
    for (uint32_t j = 0; row != NULL && j < from->n; j++)
        dlpi_pack_put(p, row, s, dlpi_fit_pieces_of(k, i)[from->first + j]);
    dlpi_fit_stands(k, i, from);
    dlpi_fit_drop(k, i);
}

static const dlpi_found_rule dlpi_pack_fit = {
    .begin = dlpi_fit_begin,
    .taken = dlpi_pack_taken,
    .learned = dlpi_fit_learned,
    .more = dlpi_fit_more,
    .give = dlpi_pack_give,
    .pass = dlpi_pack_pass,
};

/* ---- memory ---- */

/* Set the sizes of the tables and cursors. rows: rows of a stream that must be known at once. */
static void dlpi_fit_sizes(dlpi_pack *k, uint64_t rows) {
    const uint64_t t = k->d.tokens;
    uint64_t pieces = k->d.longer == DLP_PACK_LONGER_CUT ? (k->longest + t - 1) / t : 1;
    k->fit_most_items = dlpi_times(pieces, k->d.window); /* and so rows of a window */
    k->x.found.cursors.used_bits = dlpi_bits_of(k->most_documents);
    k->x.found.cursors.place_bits = dlpi_bits_of(k->fit_most_items - 1);
    k->fit_most_rows = dlpi_sum(k->fit_most_items, rows - 1);
    k->fit_most_windows = rows; /* each has a row, and one more is made if rows lack */
    k->fit_most_pieces = dlpi_sum(k->fit_most_items, dlpi_times(rows - 1, k->most));
}

static uint64_t dlpi_fit_rows_bytes(const dlpi_pack *k) {
    return dlpi_times(dlpi_times(k->x.found.cursors.n, k->fit_most_rows), sizeof *k->fit_rows);
}

/* Describe in `out` the memory of a pack by DLP_PACK_FIT: streams, rows with their pieces, words
   with items, and paths. Returns the number of blocks. */
static int dlpi_fit_blocks(const dlpi_pack *k, dlpi_block *out) {
    uint64_t n = k->x.found.cursors.n, pieces = dlpi_times(n, k->fit_most_pieces);
    out[0] = (dlpi_block){offsetof(dlpi_pack, fit_streams), n * sizeof *k->fit_streams};
    out[1] =
        (dlpi_block){offsetof(dlpi_pack, fit_rows),
                     dlpi_sum(dlpi_fit_rows_bytes(k), dlpi_times(pieces, sizeof *k->fit_pieces))};
    out[2] = (dlpi_block){
        offsetof(dlpi_pack, fit_words),
        dlpi_sum(dlpi_fit_list_words(k) * 8, dlpi_times(k->fit_most_items, sizeof *k->fit_items))};
    out[3] = (dlpi_block){offsetof(dlpi_pack, fit_paths),
                          k->x.found.joins != NULL
                              ? dlpi_times(dlpi_times(n, k->fit_most_windows), sizeof *k->fit_paths)
                              : 0};
    return 4;
}

static void dlpi_fit_live(dlpi_pack *k) {
    k->fit_pieces = (dlpi_pack_segment *)(void *)((uint8_t *)k->fit_rows + dlpi_fit_rows_bytes(k));
    k->fit_items = (dlpi_fit_item *)(void *)(k->fit_words + dlpi_fit_list_words(k));
}
