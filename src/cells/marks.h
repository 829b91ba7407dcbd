#pragma once
/* tests: system/core/pipe_ragged, system/core/overrun, system/shm/shm_steps */
#include "cells/cells.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-marks      RAGGED ROWS: WHICH BYTES AN EARLIER ITEM HAS LEFT
   A ragged field of a row has room for the longest item. Behind the length of an item its bytes are
   zeros. To clear the whole room for each item would cost what the longest item costs. So each
   ragged field of each row of an item cell has a mark in the region. The mark is the bytes that the
   last item has left there, from the first byte on. All bytes behind the mark are zeros. Memory of
   a new region is zeros, and so are its marks. Each field of a batch that a collate makes has such
   a mark, too: the bytes of the shape that the last collate gave it. So have the items that makers
   make in cells of inputs.

     before a callback   mark = bytes of the last item, and DLPI_MARK_OPEN
     after it            the bytes between the new length and the mark are cleared;
                         mark = bytes of the new item

   A mark that is open says nothing of its room: a callback has begun to write and has not come to
   its end. The next worker that begins with the row takes the whole room for the mark. So a failed
   or killed callback leaves nothing behind, however much it has written.

   Label X3: the stores and loads of a mark are relaxed. The worker that has claimed the row is
   alone with its marks. The claim is ordered behind the done bits, or the freed claim, of the
   worker before it. A worker process may be killed at any instruction. Another one takes the row
   when the kernel has said that the process is dead, so only the order of its own instructions
   matters. That order is kept by DLPI_KEEP_ORDER: the open mark is stored before a callback writes
   a byte, and the new mark after the bytes behind the length are cleared. What is read is a bound,
   compared with the room: no word of the region can make a worker clear bytes behind it.

   The consumer, a batch map, and a callback that breaks its word write behind a length, too. A
   callback of the library's user does so from the length on, as padding does. So the 64 bytes
   behind the mark are looked at: if one of them is not zero, the whole room is cleared. A short
   tail is cleared without a look. */

#define DLPI_MARK_OPEN (UINT64_C(1) << 63)
#define DLPI_MARK_SHORT 256u  /* bytes behind a length that are cleared without a look, at most */
#define DLPI_MARK_STEPS 1024u /* bytes that are cleared in steps, at most */

/* Return the place of the mark of ragged field f in row `row` of the batch in slot s. */
static inline uint64_t *dlpi_mark(const dlp_pipe *p, uint32_t s, uint32_t f, uint32_t row) {
    uint64_t *marks = dlpi_area_at(p, DLPI_AREA_MARKS, dlpi_slot_at(p, s)->cell);
    return marks + (uint64_t)f * p->batch_rows + row;
}

/* Return the place of the mark of a field that a collate makes of the batch in slot s. */
static inline uint64_t *dlpi_made_mark(const dlp_pipe *p, uint32_t s, uint32_t f) {
    const uint8_t *first = dlpi_area_at(p, DLPI_REC_CELLS, 0);
    const uint64_t at = (uint64_t)(dlpi_batch_cell(p, s) - first);
    return (uint64_t *)dlpi_area_at(p, DLPI_AREA_MADE, at / p->areas[DLPI_REC_CELLS].stride) + f;
}

/* True if some of the 64 bytes at `at` are not zero. */
static inline bool dlpi_line_dirty(const uint8_t *at) {
    uint64_t k[8];
    memcpy(k, at, sizeof k);
    return (k[0] | k[1] | k[2] | k[3] | k[4] | k[5] | k[6] | k[7]) != 0;
}

/* Return how many bytes of a ragged field's room at `at`, from the first one on, earlier writers
   may have left other than 0. used: bytes that are written now. mark: bytes that the writers may
   have written. */
static inline uint64_t dlpi_tail_end(const uint8_t *at, uint64_t used, uint64_t mark,
                                     uint64_t room) {
    const uint64_t from = used > mark ? used : mark;
    if (room - used <= DLPI_MARK_SHORT || room - from < 64) return room;
    return dlpi_line_dirty(at + from) ? room : from;
}

/* Clear what earlier writers have left behind the first `used` bytes of a ragged field's room at
   `at`. mark: as for dlpi_tail_end. A short piece is cleared in steps of 64 bytes, since a memset
   of a length that the processor cannot foretell takes longer than its stores do. The last step may
   go beyond the mark, but not beyond the room. */
static inline void dlpi_tail_clear(uint8_t *at, uint64_t used, uint64_t mark, uint64_t room) {
    const uint64_t end = dlpi_tail_end(at, used, mark, room);
    if (end == room || end - used > DLPI_MARK_STEPS)
        memset(at + used, 0, (size_t)(end - used));
    else
        for (; used < end; used += 64) memset(at + used, 0, 64);
}

/* Return the bytes that earlier writers of a room may have left, and open its mark. */
static inline uint64_t dlpi_mark_open(uint64_t *mark, uint64_t room) {
    uint64_t was = DLPI_LOAD_RLX(mark);         /* X3 <- X3 */
    if (was > room || DLPI_DEBUG) was = room;   /* open, or poisoned at its release */
    DLPI_STORE_RLX(mark, was | DLPI_MARK_OPEN); /* X3 -> X3 */
    DLPI_KEEP_ORDER();                          /* X3: before the first byte that is written */
    return was;
}

/* Open the mark of the room at `at`. clear: what earlier writers have left there is cleared. */
static inline void dlpi_mark_begin(uint64_t *mark, uint8_t *at, uint64_t room, bool clear) {
    const uint64_t was = dlpi_mark_open(mark, room);
    if (!clear) return;
    dlpi_tail_clear(at, 0, was, room);
    DLPI_STORE_RLX(mark, DLPI_MARK_OPEN); /* X3: our own, and open */
}

/* Close an open mark, after `used` bytes were written into the room at `at` and no more. The bytes
   behind them are cleared. */
static inline void dlpi_mark_close(uint64_t *mark, uint8_t *at, uint64_t used, uint64_t room) {
    uint64_t was = DLPI_LOAD_RLX(mark) & ~DLPI_MARK_OPEN; /* X3: our own store */
    if (used > room) used = room;                         /* it was read from the region, too */
    dlpi_tail_clear(at, used, was < room ? was : room, room);
    DLPI_KEEP_ORDER();          /* X3: after the last byte that is cleared */
    DLPI_STORE_RLX(mark, used); /* X3 -> X3 */
}

/* Close an open mark as dlpi_mark_close does, where that is not done for each row. */
DLPI_NOINLINE static void dlpi_mark_shut(uint64_t *mark, uint8_t *at, uint64_t used,
                                         uint64_t room) {
    dlpi_mark_close(mark, at, used, room);
}

/* Close the open marks of those of n fields that are ragged, after a callback has set the lengths.
   data: where the fields lie. marks: NULL: earlier items may have left anything there. Returns
   false if a length is wrong. The mark of this field stays open. */
static bool dlpi_marks_close(const dlpi_field *f, uint32_t n, void *const *data,
                             const uint64_t *length, uint64_t *marks) {
    bool right = true;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t none = DLPI_MARK_OPEN;
        const bool over = length[i] > dlpi_length_most(&f[i]);
        right = right && !over;
        if (f[i].f.ragged && !over)
            dlpi_mark_close(marks != NULL ? &marks[i] : &none, data[i],
                            length[i] * dlpi_row_bytes(&f[i]), f[i].row_bytes);
    }
    return right;
}

/* Take an open mark back: nothing was written since it was opened. */
static void dlpi_mark_back(uint64_t *mark) {
    DLPI_STORE_RLX(mark, DLPI_LOAD_RLX(mark) & ~DLPI_MARK_OPEN); /* X3: our own */
}

/* Copy `used` bytes into a row's ragged field, which takes the place of an earlier item. */
static void dlpi_mark_copy(uint64_t *mark, uint8_t *to, const uint8_t *from, uint64_t used,
                           uint64_t room) {
    dlpi_mark_open(mark, room);
    if (used > room) used = room;
    memcpy(to, from, (size_t)used);
    dlpi_mark_close(mark, to, used, room);
}

/* Add the marks to the region: of ragged rows, and of the fields that a collate makes. */
static void dlpi_marks_layout(dlp_pipe *p) {
    const uint64_t items = p->areas[DLPI_REC_ITEM_CELLS].count;
    const uint64_t cells = p->areas[DLPI_REC_CELLS].count, each = dlpi_times(p->items.n, 8);
    uint64_t rows = items > 0 ? items : cells; /* cells that items are written in */
    if (p->items.any_ragged == 0) rows = 0;
    dlpi_area_add(p, DLPI_AREA_MARKS, dlpi_line_up(dlpi_times(each, p->batch_rows)), rows,
                  DLPI_LINE);
    dlpi_area_add(p, DLPI_AREA_MADE, dlpi_line_up(p->batches.n * UINT64_C(8)),
                  items > 0 ? cells : 0, DLPI_LINE);
}
