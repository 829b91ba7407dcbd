#pragma once
/* tests: system/report/clears */
#include "cells/marks.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-clears     WHAT CLEARING COSTS
   The library sets bytes to 0 before callbacks, and behind the bytes that they have written. This
   is a part of the time that a worker is busy. To time each clear would cost more than many clears.
   So a worker times the clears of a few units of its work, the samples (dlpi_clears_next). In a
   sample w->clears is set. The worker's block has the sums of its samples: clear_of_ns of work, and
   in it clear_ns of clears. The sample with the longest clears is left out, for the worker may have
   lost its core there.
   The block names the field that takes most of that time, by a weighted majority vote (Boyer and
   Moore, "MJRTY", 1981). Time of the named field counts for it. Time of other fields counts against
   it. If nothing is left, the next field gets the name. */

/* True if the worker's clears are timed now. */
static inline bool dlpi_clears_timed(const dlpi_worker *w DLPI_UNREAD) {
    bool timed = false;
    timed = w->clears; /* needs: stats */
    return DLPI_UNLIKELY(timed);
}

/* Name field d in the worker's block. */
DLPI_COLD static void dlpi_clear_name(const dlpi_worker *w, const dlpi_field *d) {
    dlpi_worker_block *b = w->block;
    union {
        char text[sizeof b->clear_name];
        uint64_t word[sizeof b->clear_name / 8];
    } name;
    memset(&name, 0, sizeof name);
    dlpi_copy_text(name.text, sizeof name.text, d->name);
    w->rare->clears.field = d;
    /* statistics, here and below */
    for (size_t i = 0; i < sizeof name / 8; i++) DLPI_STORE_RLX(&b->clear_name[i], name.word[i]);
    DLPI_STORE_RLX(&b->clear_room, d->row_bytes);
    DLPI_STORE_RLX(&b->clear_bytes, UINT64_C(0));
    DLPI_STORE_RLX(&b->clear_used, UINT64_C(0));
    DLPI_STORE_RLX(&b->clear_rows, UINT64_C(0));
}

/* Add a clear of field d to the sample. It began at from_ns and is over now. spared: it would be
   left out with writes_all_bytes = 1. */
DLPI_COLD static void dlpi_clear_note(const dlpi_worker *w, const dlpi_field *d, uint64_t from_ns,
                                      bool spared) {
    dlpi_clears *c = &w->rare->clears;
    dlpi_worker_block *b = w->block;
    const uint64_t took = dlpi_now_ns() - from_ns, weight = b->clear_weight;
    const uint64_t ns = took > c->clock_ns ? took - c->clock_ns : 0;
    c->now.ns += ns;
    c->now.spared_ns += spared ? ns : 0;
    c->readings += 2;
    if (c->field != d && weight >= ns) {
        DLPI_STORE_RLX(&b->clear_weight, weight - ns);
        return;
    }
    DLPI_STORE_RLX(&b->clear_weight, c->field == d ? weight + ns : ns - weight);
    if (c->field != d) dlpi_clear_name(w, d);
}

/* Count bytes of field d that are cleared in `rows` rows, and bytes that the rows use of it. */
DLPI_COLD static void dlpi_clear_count(const dlpi_worker *w, const dlpi_field *d, uint64_t bytes,
                                       uint64_t used, uint64_t rows) {
    if (w->rare->clears.field != d) return;
    dlpi_bump(&w->block->clear_bytes, bytes);
    dlpi_bump(&w->block->clear_used, used);
    dlpi_bump(&w->block->clear_rows, rows);
}

/* Set `bytes` bytes at `at` to 0, which are `rows` rows of field d, in a sample. */
DLPI_COLD static void dlpi_clear_timed(const dlpi_worker *w, const dlpi_field *d, void *at,
                                       uint64_t bytes, uint64_t rows, bool spared) {
    const uint64_t from = dlpi_now_ns();
    memset(at, 0, (size_t)bytes);
    dlpi_clear_note(w, d, from, spared);
    dlpi_clear_count(w, d, bytes, bytes, rows);
}

/* Begin to time the clears of the ragged field d in n rows at `at`, with these marks. lengths: of
   the rows, which are written; NULL: they are about to be. Returns the time. */
DLPI_COLD static uint64_t dlpi_tails_timed(const dlpi_worker *w, const dlpi_field *d,
                                           const uint8_t *at, const uint64_t *marks,
                                           const uint64_t *lengths, uint32_t n) {
    const uint64_t room = d->row_bytes;
    uint64_t bytes = 0, all = 0;
    for (uint32_t r = 0; r < n; r++) {
        const uint64_t used = lengths != NULL ? lengths[r] * dlpi_row_bytes(d) : 0;
        uint64_t was = DLPI_LOAD_RLX(&marks[r]); /* X3: our own */
        if (lengths != NULL) was &= ~DLPI_MARK_OPEN;
        if (used > room) continue;
        bytes += dlpi_tail_end(at + r * room, used, was < room ? was : room, room) - used;
        all += used;
    }
    dlpi_clear_count(w, d, bytes, all, lengths != NULL ? n : 0);
    return dlpi_now_ns();
}
