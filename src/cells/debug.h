#pragma once
/* tests: system/core/overrun */
#include "cells/cells.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-debug      WRITES PAST A ROW, USES AFTER RELEASE
   With DLPIPE_DEBUG only: else the compiler drops all of it, and cells have no room for it.
   A cell is [from, to) and has its fields (spans) apart; what lies between them and around them is
   painted, and a byte that is found changed says which callback went past which end of a field, and
   how far. Cells of the region lie where they always do and are painted once. Rows are neighbours,
   so item callbacks write into guarded cells instead: one for each that can be in a callback at
   once, after the batch cells. The row is copied in, its alignment with it, the cell is painted,
   and after the callback the row is copied out. A chunk is a row that fills a cell of its own, and
   stays there. Guarded cells take 0.15 us or so for each field of an item; the plan has them on a
   line, and larger cells.
   What release takes back is filled with 0xdb (not: batches on a device, chunks that stay, batches
   for subscribers), and poisoned under the address sanitizer. It stays so
   until somebody begins with the slot's next batch, each process for itself: shadow memory is its
   own. Label U3: dlpi_poisoned, by the consumer at release, and by the thread that
   has unpoisoned all of it. */

#define DLPI_POISON 0xdb

typedef struct dlpi_span {
    uint8_t *at;
    uint64_t bytes;
    const char *name; /* name of the field; NULL: the cell has no fields */
} dlpi_span;

typedef struct dlpi_redzone {
    uint8_t *from, *to;
    uint32_t n;
    dlpi_span span[DLP_MAX_FIELDS];
} dlpi_redzone;

/* Return the guard bytes in `stride` bytes from `from` on, around `bytes` bytes at `at`. */
static dlpi_redzone dlpi_redzone_whole(uint8_t *at, uint8_t *from, uint64_t stride,
                                       uint64_t bytes) {
    return (dlpi_redzone){from, from + stride, 1, {{at, bytes, NULL}}};
}

/* The paint: address a has byte a % 64, which is the same in all processes, since pages begin at
   multiples of 64. No two of these bytes are alike. */
static const uint8_t dlpi_paint_bytes[64] = {
    0xa7, 0xf2, 0x9d, 0xc8, 0xb3, 0xee, 0x99, 0xd4, 0xaf, 0xfa, 0x85, 0xd0, 0xbb, 0xe6, 0x91, 0xdc,
    0xa5, 0xf0, 0x9b, 0xc6, 0xb1, 0xec, 0x97, 0xd2, 0xad, 0xf8, 0x83, 0xce, 0xb9, 0xe4, 0x8f, 0xda,
    0xa3, 0xfe, 0x89, 0xc4, 0xbf, 0xea, 0x95, 0xc0, 0xab, 0xf6, 0x81, 0xcc, 0xb7, 0xe2, 0x8d, 0xd8,
    0xa1, 0xfc, 0x87, 0xc2, 0xbd, 0xe8, 0x93, 0xde, 0xa9, 0xf4, 0x9f, 0xca, 0xb5, 0xe0, 0x8b, 0xd6};

/* Paint the bytes from `at` up to `to`. The value of a painted byte follows from its address alone.
   */
static void dlpi_paint(uint8_t *at, const uint8_t *to) {
    while (at < to) {
        size_t k = (uintptr_t)at % 64, n = 64 - k < (size_t)(to - at) ? 64 - k : (size_t)(to - at);
        memcpy(at, dlpi_paint_bytes + k, n);
        at += n;
    }
}

/* Return the first byte of [at, to) that has changed since it was painted. Returns `to` if none
   has. */
static uint8_t *dlpi_paint_first(uint8_t *at, uint8_t *to) {
    while (at < to) {
        size_t k = (uintptr_t)at % 64, n = 64 - k < (size_t)(to - at) ? 64 - k : (size_t)(to - at);
        if (memcmp(at, dlpi_paint_bytes + k, n) != 0) break;
        at += n;
    }
    while (at < to && *at == dlpi_paint_bytes[(uintptr_t)at % 64]) at++;
    return at;
}

/* Return where the painted bytes before span i begin, and set *to to where they end. If i is c->n,
   these are the bytes after the last span. */
static uint8_t *dlpi_gap(const dlpi_redzone *c, uint32_t i, uint8_t **to) {
    *to = i < c->n ? c->span[i].at : c->to;
    return i > 0 ? c->span[i - 1].at + c->span[i - 1].bytes : c->from;
}

/* Paint the bytes of a cell that lie before, between and behind its fields. */
static void dlpi_redzone_paint(const dlpi_redzone *c) {
    for (uint32_t i = 0; i <= c->n; i++) {
        uint8_t *to, *from = dlpi_gap(c, i, &to);
        dlpi_paint(from, to);
    }
}

/* Write to who[96] the name of the worker's stage, or of all rows that run in its attempts. */
static void dlpi_redzone_who(const dlpi_worker *w, char *who) {
    dlpi_copy_text(who, 96, w->st->name);
    if (w->st->ops->program_at != 0) w->st->ops->what(w->st, who, 96);
}

/* Check that a callback of worker w wrote to nothing but the fields of cell c. what, number: whose
   fields they are, for the message ("item", 7). rc: what the callback returned. Returns rc, or
   DLPI_OVERRUN with the message in *note. */
static int dlpi_redzone_check(dlpi_worker *w, const dlp_call *note, const dlpi_redzone *c,
                              const char *what, uint64_t number, int rc) {
    for (uint32_t i = 0; i <= c->n; i++) {
        uint8_t *to, *from = dlpi_gap(c, i, &to), *first = dlpi_paint_first(from, to), *last = to;
        const dlpi_span *s;
        char who[96];
        bool before;
        uint64_t n;
        if (first == to) continue;
        dlpi_redzone_who(w, who);
        while (last[-1] == dlpi_paint_bytes[(uintptr_t)(last - 1) % 64]) last--;
        before = i == 0 || (i < c->n && first - from > to - last); /* the end that is nearer */
        s = &c->span[before ? i : i - 1];
        n = (uint64_t)(before ? to - first : last - from);
        snprintf(note->message, sizeof w->block->message,
                 "%s wrote %" PRIu64 " byte%s %s %s%s%s of %s %" PRIu64, who, n, n == 1 ? "" : "s",
                 before ? "before" : "past", s->name ? "field \"" : "the bytes",
                 s->name ? s->name : "", s->name ? "\"" : "", what, number);
        *note->errnum = 0;
        w->bad_field = s->name;
        dlpi_redzone_paint(c); /* others that have it later are not to blame */
        return DLPI_OVERRUN;
    }
    return rc;
}

/* True if an item that failed with this code must end the pipe, even if failed items may be
   skipped. An overrun (DLP_ERR_CORRUPT) of a debug build is such a failure. */
static inline bool dlpi_never_skipped(int code) { return DLPI_DEBUG && code == DLP_ERR_CORRUPT; }

/* Set *c to the bounds and fields of a cell of one of the region's areas. area: DLPI_REC_CELLS or
   DLPI_REC_ITEM_CELLS. */
static void dlpi_redzone_of_cell(const dlp_pipe *p, int area, uint8_t *cell, dlpi_redzone *c) {
    const dlpi_fields *fs = area == DLPI_REC_CELLS ? &p->batches : &p->items;
    c->from = cell;
    c->to = cell + p->areas[area].stride;
    c->n = fs->n;
    for (uint32_t f = 0; f < fs->n; f++)
        c->span[f] = (dlpi_span){cell + fs->at[f].offset, fs->at[f].capacity, fs->at[f].name};
}

/* Paint all item cells and batch cells of the region around their fields. Called once, before
   workers start. */
static void dlpi_redzones_paint(dlp_pipe *p) {
    dlpi_redzone c;
    if (!DLPI_DEBUG) return;
    for (int area = DLPI_REC_ITEM_CELLS; area <= DLPI_REC_CELLS; area++)
        for (uint64_t i = 0; i < p->areas[area].count; i++) {
            dlpi_redzone_of_cell(p, area, dlpi_area_at(p, area, i), &c);
            dlpi_redzone_paint(&c);
        }
}

/* Check the cell of the batch in slot s, after a collate or a batch map has returned rc. With
   `items`, check the cell of items that a collate has read. Returns rc, or DLPI_OVERRUN. */
static inline int dlpi_redzone_slot(dlpi_worker *w, uint32_t s, bool items, int rc) {
    dlpi_redzone c;
    if (!DLPI_DEBUG || rc == DLPI_OVERRUN) return rc;
    dlpi_redzone_of_cell(w->p, items ? DLPI_REC_ITEM_CELLS : DLPI_REC_CELLS,
                         items ? dlpi_item_cell(w->p, s) : dlpi_batch_cell(w->p, s), &c);
    return dlpi_redzone_check(w, &w->note, &c, items ? "items of batch" : "batch",
                              dlpi_slot_at(w->p, s)->sequence, rc);
}

/* ---- guarded cells ---- */

/* True if rows have guarded cells; false if a row has a whole cell of its own. */
static inline bool dlpi_redzone_rows(const dlp_pipe *p) {
    return DLPI_DEBUG && !p->lender->in_cells;
}

/* Return how many guarded cells there are: one for each item that can be in a callback at once. */
static uint64_t dlpi_redzone_cells(const dlp_pipe *p) {
    uint64_t n = 0;
    for (int i = 0; dlpi_redzone_rows(p) && i < p->n_item_work; i++)
        n += (uint64_t)p->work[i]->n_workers * dlpi_at_once(p->work[i]);
    return n;
}

/* Return the offset of field f in a guarded cell. The field itself begins up to 63 bytes later. If
   f is the number of fields, this is how many bytes the cell has. */
static uint64_t dlpi_redzone_at(const dlp_pipe *p, uint32_t f) {
    uint64_t at = DLPI_REDZONE;
    for (uint32_t i = 0; i < f; i++)
        at = (at + 63 + p->items.at[i].row_bytes + 2 * DLPI_REDZONE + 63) & ~UINT64_C(63);
    return at;
}

/* Return the bytes of a guarded cell; 0 in a build without DLPIPE_DEBUG. */
static uint64_t dlpi_redzone_stride(const dlp_pipe *p) {
    if (!DLPI_DEBUG) return 0;
    return (dlpi_redzone_at(p, p->items.n) + DLPI_LINE - 1) / DLPI_LINE * DLPI_LINE;
}

/* Return the number of the guarded cell that worker w has for its i-th attempt at once. */
static uint64_t dlpi_redzone_cell(const dlpi_worker *w, uint64_t i) {
    uint64_t first = 0;
    for (int k = 0; k < w->st->work; k++)
        first += (uint64_t)w->p->work[k]->n_workers * dlpi_at_once(w->p->work[k]);
    return first + (uint64_t)w->id * dlpi_at_once(w->st) + i;
}

/* Set *c to the bounds and fields of a guarded cell, for a row of slot s. The fields are those that
   the stage works on. Set rows[f] to where field f of the row lies in the slot. */
static void dlpi_redzone_of_row(const dlpi_worker *w, uint64_t cell, uint32_t s, uint32_t row,
                                dlpi_redzone *c, uint8_t **rows) {
    const dlp_pipe *p = w->p;
    c->from = dlpi_area_at(p, DLPI_AREA_GUARD, cell);
    c->to = c->from + p->areas[DLPI_AREA_GUARD].stride;
    c->n = w->st->scope.n_fields;
    for (uint32_t f = 0; f < c->n; f++) {
        const dlpi_field *d = &p->items.at[w->st->scope.field + f];
        rows[f] = dlpi_item_cell(p, s) + d->offset + row * d->row_bytes;
        c->span[f].at =
            c->from + dlpi_redzone_at(p, w->st->scope.field + f) + ((uintptr_t)rows[f] & 63);
        c->span[f].bytes = d->row_bytes;
        c->span[f].name = d->name;
    }
}

/* Copy a row of slot s into a guarded cell, if rows have such cells, before a callback gets the
   item. The item's data points there from now on. */
static inline void dlpi_redzone_in(const dlpi_worker *w, dlp_item *it, uint64_t cell, uint32_t s,
                                   uint32_t row) {
    dlpi_redzone c;
    uint8_t *rows[DLP_MAX_FIELDS];
    if (!dlpi_redzone_rows(w->p)) return;
    dlpi_redzone_of_row(w, cell, s, row, &c, rows);
    dlpi_redzone_paint(&c);
    for (uint32_t f = 0; f < c.n; f++) {
        memcpy(c.span[f].at, rows[f], c.span[f].bytes);
        it->data[f] = c.span[f].at;
    }
}

/* Check that a callback wrote nothing behind the length of a ragged field, in the guarded cell c.
   rows: the fields of the row as they were before. Where the field had a longer item before, its
   bytes may have changed, too. Returns rc, or DLPI_OVERRUN with the message in the item's call. */
static int dlpi_redzone_tails(dlpi_worker *w, const dlp_item *it, const dlpi_redzone *c,
                              uint8_t *const *rows, uint32_t s, int rc) {
    for (uint32_t i = 0; i < c->n && rc == 0; i++) {
        const uint32_t f = w->st->scope.field + i;
        const dlpi_field *d = &w->p->items.at[f];
        uint64_t used = it->length[i], n, last = d->row_bytes;
        char who[96];
        if (!d->f.ragged || used > (uint64_t)d->f.shape[0]) continue;
        n = f < w->st->scope.own ? dlpi_slot_lengths(w->p, s, f, 1)[it->row] : 0;
        used = (used > n ? used : n) * dlpi_row_bytes(d);
        if (memcmp(c->span[i].at + used, rows[i] + used, (size_t)(last - used)) == 0) continue;
        while (c->span[i].at[last - 1] == rows[i][last - 1]) last--;
        dlpi_redzone_who(w, who);
        snprintf(it->call->message, sizeof w->block->message,
                 "%s wrote %" PRIu64 " byte%s behind the length %" PRIu64
                 " of field \"%s\" of item %" PRIu64,
                 who, last - used, last - used == 1 ? "" : "s", it->length[i], d->name, it->index);
        *it->call->errnum = 0;
        w->bad_field = d->name;
        return DLPI_OVERRUN;
    }
    return rc;
}

/* Check what a callback, which has returned rc, wrote. A row in a guarded cell is copied back, and
   is the item's data again. Returns rc, or DLPI_OVERRUN if the callback wrote past the row. */
static inline int dlpi_redzone_out(dlpi_worker *w, dlp_item *it, uint64_t cell, uint32_t s,
                                   uint32_t row, int rc) {
    const dlp_pipe *p;
    dlpi_redzone c;
    uint8_t *rows[DLP_MAX_FIELDS];
    if (!DLPI_DEBUG) return rc;
    p = w->p;
    if (dlpi_cells_none(p)) return rc; /* nothing is written */
    if (!dlpi_redzone_rows(p)) {
        dlpi_redzone_of_cell(p, DLPI_REC_CELLS, dlpi_batch_cell(p, s), &c);
        return dlpi_redzone_check(w, it->call, &c, "chunk", it->index, rc);
    }
    dlpi_redzone_of_row(w, cell, s, row, &c, rows);
    rc = dlpi_redzone_check(w, it->call, &c, "item", it->index, rc);
    rc = dlpi_redzone_tails(w, it, &c, rows, s, rc);
    for (uint32_t f = 0; f < c.n; f++) {
        memcpy(rows[f], c.span[f].at, c.span[f].bytes);
        it->data[f] = rows[f];
    }
    return rc;
}

/* ---- released batches: their bytes are filled and poisoned ---- */

/* Return the place of slot s's flag: 1 if its cell is poisoned. */
static inline uint8_t *dlpi_poisoned(const dlp_pipe *p, uint32_t s) {
    return &p->lent[p->n_out + s];
}

static void dlpi_poison_bytes(void *at, uint64_t bytes) {
    memset(at, DLPI_POISON, (size_t)bytes);
#if DLPI_ASAN
    __asan_poison_memory_region(at, (size_t)bytes);
#endif
}

static void dlpi_unpoison_bytes(void *at DLPI_UNREAD, uint64_t bytes DLPI_UNREAD) {
#if DLPI_ASAN
    __asan_unpoison_memory_region(at, (size_t)bytes);
#else
#endif
}

/* Fill what the consumer has given back, batch or view s, with DLPI_POISON, and poison its cell:
   nobody may read it any more. */
static inline void dlpi_poison(const dlp_pipe *p, uint32_t s) {
    uint32_t slot;
    if (!DLPI_DEBUG || !dlpi_cells_own(p) || !dlpi_results_in_slots(p) || dlpi_is_shared(p)) return;
    slot = p->lender->slot(p, s);
    for (uint32_t f = 0; f < p->batches.n; f++) {
        const dlp_tensor *t = &p->out_fields[(size_t)s * p->batches.n + f];
        if (slot == DLPI_NO_SLOT) /* the next view in it is not begun by dlpi_unpoison */
            memset(t->data, DLPI_POISON, (size_t)t->bytes);
        else
            dlpi_poison_bytes(t->data, dlpi_redzone_rows(p) ? p->batches.at[f].capacity : t->bytes);
    }
    if (slot != DLPI_NO_SLOT) DLPI_STORE_REL(dlpi_poisoned(p, slot), (uint8_t)1); /* U3 -> U3 */
}

/* Take the poison from the cell of slot s, if it has any. A thread calls this when it begins with a
   batch in the slot. */
static inline void dlpi_unpoison(const dlp_pipe *p, uint32_t s) {
    if (!DLPI_DEBUG || DLPI_LOAD_ACQ(dlpi_poisoned(p, s)) == 0) return; /* U3 <- U3 */
    dlpi_unpoison_bytes(dlpi_batch_cell(p, s), p->areas[DLPI_REC_CELLS].stride);
    DLPI_STORE_REL(dlpi_poisoned(p, s), (uint8_t)0); /* U3 -> U3 */
}

/* Take the poison from all batch cells, before the region is unmapped: the program may use these
   addresses again. */
static inline void dlpi_unpoison_all(const dlp_pipe *p) {
    if (!DLPI_DEBUG || p->region == NULL) return;
    dlpi_unpoison_bytes(dlpi_area_at(p, DLPI_REC_CELLS, 0), dlpi_cells_bytes(p));
}
