/* needs: pack */
#pragma once
/* tests: system/stages/packs, system/stages/behind */
#include "inputs/pack_cut.h"
#include "inputs/pack_fit.h"
/* ---- a window behind the pack: rows in the order of windows ----
   The rows of a stream are cut into windows of N rows. A window is whole when its rows are known.
   The last one of an epoch may be shorter. A window is opened when its rows are to be given: they
   leave the pack, and are given in the window's order. A cell is kept until all rows of the open
   window that lie in it are given (dlpi_found_cell.open).

   A cursor has the place in the pack at which the window begins, and how many rows of the window
   are given. Both are in one number: the first times N, plus the second. If rows are given, the
   check is a hash of the pieces of all rows of the window. Else it is that of the place in the
   pack. The key of a window is the place at which it begins.

   Cells: let R rows be wanted, and let a stream lack one of them. The open window has `left` rows,
   and k whole windows follow it. So left + k N is less than R. N - 1 rows of the next window may
   be known. There are the most rows if left = (R - 1) mod N. The rows behind the open window are
   then less than R, rounded up to N. They follow each other: pack_cut.h and pack_fit.h say in how
   many documents they lie. Rows of the open window are no neighbours. Each of them has as many
   documents as a row may have. An epoch of few steps has fewer rows, and an epoch of one pass
   has fewer inputs. */

static inline dlpi_pack_row *dlpi_packed_row(const dlpi_pack *k, uint32_t i, uint64_t row) {
    const uint64_t at = i * k->packed.window + row;
    return (dlpi_pack_row *)(void *)(k->packed.rows + at * k->row_stride);
}

/* Take the next row out of the open window of stream i. Cells without other rows leave it. */
static const dlpi_pack_row *dlpi_packed_leave(dlpi_pack *k, uint32_t i) {
    dlpi_found *q = &k->x.found;
    dlpi_packed_stream *x = &k->packed.streams[i];
    const dlpi_pack_row *row = dlpi_packed_row(k, i, dlp_permutation_at(&x->order, x->at++));
    for (uint32_t j = 0; j < row->n; j++)
        dlpi_found_window_row(q, &q->streams[i], row->at[j].cell, false);
    return row;
}

/* Begin an epoch of stream i. */
static void dlpi_packed_begin(dlpi_found *q, uint32_t i) {
    dlpi_pack *k = (dlpi_pack *)(void *)q;
    dlpi_packed_stream *x = &k->packed.streams[i];
    while (x->at < x->n) dlpi_packed_leave(k, i);
    *x = (dlpi_packed_stream){.known = 0};
    k->packed.rule.begin(q, i);
}

/* Take the next n rows of stream i into its window. Returns a hash of their pieces. */
static uint64_t dlpi_packed_gather(dlp_pipe *p, uint32_t i, uint64_t n) {
    dlpi_pack *k = dlpi_pack_of(p);
    uint64_t h = 0;
    for (uint64_t r = 0; r < n; r++) {
        dlpi_pack_row *row = dlpi_packed_row(k, i, r);
        row->n = row->tokens = 0;
        k->take(p, i, row, DLPI_NO_SLOT);
        for (uint32_t j = 0; j < row->n; j++) {
            const dlpi_pack_segment *of = &row->at[j];
            h = dlpi_absorb(h, k->x.found.use[of->cell].ordinal);
            h = dlpi_absorb(dlpi_absorb(h, of->first), of->tokens);
        }
    }
    return h & 0xffff;
}

/* Open the next window of stream i, which is whole. After a resume it must be the one of the state,
   or the pipe fails. */
static void dlpi_packed_open(dlp_pipe *p, uint32_t i) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_found *q = &k->x.found;
    dlpi_packed_stream *x = &k->packed.streams[i];
    dlpi_cursor *at = &q->streams[i].at, begin = *at, key = begin;
    const uint64_t most = k->packed.window, given = begin.place % most, place = begin.place / most;
    const uint64_t rows = q->streams[i].rows + given, n = rows < most ? rows : most;
    dlpi_path path = {.phase = 0};
    if (q->joins != NULL) path = q->joined->at[i];
    x->check = dlpi_packed_gather(p, i, n);
    x->after = *at;
    x->after.place *= most;
    *at = begin;
    if (q->joins != NULL) k->packed.after[i] = q->joined->at[i];
    if (q->joins != NULL) q->joined->at[i] = path;
    if (place > 0) key.used = dlpi_absorb(key.used, place);
    dlpi_found_window(&q->plan, &x->order, q->epoch, q->cursors.first + (uint64_t)i, &key, n);
    x->n = n;
    for (x->at = 0; x->at < given;) dlpi_packed_leave(k, i);
    if (given > 0 && begin.check != x->check) dlpi_found_changed(p, i, given);
}

/* Return the next row of stream i, which is given, or is another rank's. */
static const dlpi_pack_row *dlpi_packed_next(dlp_pipe *p, uint32_t i) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_found *q = &k->x.found;
    dlpi_found_stream *to = &q->streams[i];
    dlpi_packed_stream *x = &k->packed.streams[i];
    const dlpi_pack_row *row;
    if (x->at == x->n) dlpi_packed_open(p, i);
    row = dlpi_packed_leave(k, i);
    to->at.place++;
    to->at.check = x->check;
    to->given++;
    if (x->at < x->n) return row;
    to->at = x->after;
    if (q->joins != NULL) q->joined->at[i] = k->packed.after[i];
    return row;
}

/* Make the next row of stream i row r of slot s. */
static void dlpi_packed_give(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r) {
    const dlpi_pack_row *from = dlpi_packed_next(p, i);
    dlpi_pack_row *row = dlpi_pack_row_at(p, s, r);
    row->n = row->tokens = 0;
    for (uint32_t j = 0; j < from->n; j++) dlpi_pack_put(p, row, s, from->at[j]);
    dlpi_pack_count(p, s, r, row);
}

static void dlpi_packed_pass(dlp_pipe *p, uint32_t i) { dlpi_packed_next(p, i); }

/* Take the counts of cell c. Returns 0: rows can be given once their window is whole. */
static uint64_t dlpi_packed_learned(dlp_pipe *p, uint32_t i, uint32_t c) {
    dlpi_packed *x = &dlpi_pack_of(p)->packed;
    x->streams[i].known += x->rule.learned(p, i, c);
    return 0;
}

/* Count the rows of windows of stream i that are whole. out: no document follows the known ones.
   With steps the last window of an epoch ends with it. */
static void dlpi_packed_count(dlp_pipe *p, uint32_t i, bool out) {
    const dlpi_pack *k = dlpi_pack_of(p);
    const dlpi_found *q = &k->x.found;
    dlpi_found_stream *to = &q->streams[i];
    dlpi_packed_stream *x = &k->packed.streams[i];
    const uint64_t epoch = q->plan.steps * q->each, most = k->packed.window;
    const bool last = out && dlpi_pack_known(k, i) < dlpi_pack_look(p, k); /* no row follows */
    for (;;) {
        const uint64_t given = x->begun ? 0 : to->at.place % most;
        const uint64_t rest = epoch - (to->given + to->rows - given);
        const bool other = given > to->given; /* no such state was saved */
        uint64_t n = epoch > 0 && rest < most ? rest : most;
        if (last && x->known < n) n = x->known;
        if (other || (last && n <= given && given > 0)) dlpi_found_changed(p, i, given);
        if (other || x->known < n || n <= given) return;
        x->known -= n;
        x->begun = true;
        to->rows += n - given;
    }
}

/* Let the pack know more rows, and open a window if none is open. Its rows leave the pack, which
   then may know more. out: as above. Returns 0: rows are counted where windows are. */
static uint64_t dlpi_packed_more(dlp_pipe *p, uint32_t i, bool out) {
    dlpi_pack *k = dlpi_pack_of(p);
    dlpi_packed_stream *x = &k->packed.streams[i];
    for (;;) {
        x->known += k->packed.rule.more(p, i, out);
        if (k->x.found.rc == DLP_OK) dlpi_packed_count(p, i, out);
        if (k->x.found.rc != DLP_OK || x->at < x->n || k->x.found.streams[i].rows == 0) return 0;
        dlpi_packed_open(p, i);
    }
}

/* Put windows of rows around the rule of a pack. */
static void dlpi_packed_rule(dlpi_pack *k) {
    dlpi_found *q = &k->x.found;
    if (k->packed.window == 0) return;
    k->packed.rule = *q->rule;
    k->packed.outer = (dlpi_found_rule){.begin = dlpi_packed_begin,
                                        .taken = q->rule->taken,
                                        .learned = dlpi_packed_learned,
                                        .more = dlpi_packed_more,
                                        .give = dlpi_packed_give,
                                        .pass = dlpi_packed_pass};
    q->rule = &k->packed.outer;
}

#define DLPI_PACKED_MOST (1 << 26) /* segments of the windows of all streams, at most */

/* Set the sizes of cursors, once those of the pack alone are set. Returns 0 or a DLP_ERR code. */
static int dlpi_packed_sizes(dlp_pipe *p, dlpi_pack *k) {
    dlpi_found *q = &k->x.found;
    const uint64_t n = k->packed.window;
    if (n == 0) return DLP_OK;
    q->places = dlpi_times(n, q->places > 0               ? q->places
                              : k->d.rule == DLP_PACK_FIT ? k->fit_most_items
                                                          : 1);
    q->cursors.place_bits = dlpi_bits_of(q->places - 1);
    if (dlpi_times(dlpi_times(n, k->most), q->cursors.n) <= DLPI_PACKED_MOST &&
        q->cursors.place_bits <= 56)
        return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, p->source_stage->name, "window.items",
                       "window.items is %" PRIu64 " rows of up to %" PRIu32 " segments, in %" PRIu32
                       " streams: over 2^26 segments, or 56 bits of a "
                       "state; lower it, or max_segments",
                       n, k->most, q->cursors.n);
}

/* Return how many rows of the open window a stream may have while it lacks a row. rows: what the
   pack must know (dlpi_pack_look). With steps there are no more rows than an epoch has. */
static uint64_t dlpi_packed_left(const dlp_pipe *p, const dlpi_pack *k, uint64_t rows) {
    const dlpi_found *q = &k->x.found;
    const uint64_t n = k->packed.window, epoch = q->plan.steps * q->each;
    const uint64_t left = n > 0 ? (dlpi_found_look(p, q) - 1) % n : 0;
    return q->plan.steps > 0 && epoch - rows < left ? epoch - rows : left;
}

/* Describe in `out` the memory of windows behind the pack. Returns the number of blocks. */
static int dlpi_packed_blocks(const dlpi_pack *k, dlpi_block *out) {
    const uint64_t n = k->x.found.cursors.n;
    if (k->packed.window == 0) return 0;
    out[0] = (dlpi_block){offsetof(dlpi_pack, packed.streams), n * sizeof *k->packed.streams};
    out[1] = (dlpi_block){offsetof(dlpi_pack, packed.rows),
                          dlpi_times(dlpi_times(n, k->packed.window), k->row_stride)};
    out[2] = (dlpi_block){offsetof(dlpi_pack, packed.after),
                          k->x.found.joins != NULL ? n * sizeof *k->packed.after : 0};
    return 3;
}
