#pragma once
/* tests: system/core/topologies, system/build/pipe_plan */
#include "fail/fail.h"
#include "pipe/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-cells      WHERE BATCHES AND ITEMS LIE */

/* Return the bytes of a cell with these fields, in whole pages. */
static uint64_t dlpi_fields_bytes(const dlpi_fields *fs) {
    const dlpi_field *last = &fs->at[fs->n - 1];
    return dlpi_round_up(dlpi_sum(last->offset, dlpi_sum(last->capacity, DLPI_REDZONE)), 4096);
}

/* Return the bytes of one row of a field, whose first dimension counts the rows of a chunk. */
static uint64_t dlpi_row_bytes(const dlpi_field *d) {
    return d->row_bytes / (uint64_t)d->f.shape[0];
}

/* Return the length that a field of an item may have at most; 0: its size is fixed. */
static inline uint64_t dlpi_length_most(const dlpi_field *d) {
    return d->f.ragged ? (uint64_t)d->f.shape[0] : 0;
}

/* Refuse the length n that a callback has set for field d. Returns DLP_ERR_LENGTH. */
DLPI_COLD static int dlpi_length_bad(dlpi_worker *w, const dlpi_field *d, uint64_t n) {
    w->bad_field = d->name;
    if (!d->f.ragged)
        return dlpi_say(w, DLP_ERR_LENGTH,
                        "field \"%s\" has a fixed size, a length of %" PRIu64 " was set", d->name,
                        n);
    return dlpi_say(w, DLP_ERR_LENGTH, "field \"%s\" has %" PRIu64 " rows, its maximum is %" PRIu64,
                    d->name, n, dlpi_length_most(d));
}

/* The cell of the batch in slot s. OWN: the cell of the slot's number. TURN: cell b % n_cells of
   batch b, once batch b - n_cells has left cell_end. STAY: the cell that the lender names. Behind
   the cells that stay lies one that nobody writes. A batch that is left out is there for as long as
   it is held, while a batch of the next epoch may write into its own cell. */
enum { DLPI_CELLS_OWN = 0, DLPI_CELLS_TURN, DLPI_CELLS_STAY };

/* Return the cell that the batch in slot s lies in. */
static inline uint8_t *dlpi_batch_cell(const dlp_pipe *p, uint32_t s) {
    return dlpi_area_at(p, DLPI_REC_CELLS,
                        p->cells == DLPI_CELLS_OWN ? s : dlpi_slot_at(p, s)->cell);
}
/* Return the cell that the items of the batch in slot s are written in. */
static inline uint8_t *dlpi_item_cell(const dlp_pipe *p, uint32_t s) {
    return dlpi_area_at(p, p->item_area, dlpi_slot_at(p, s)->cell);
}
/* True if each batch lies in the cell that has the number of its slot. */
static inline bool dlpi_cells_own(const dlp_pipe *p) { return p->cells == DLPI_CELLS_OWN; }
/* True if batches lie in memory that is not the pipe's. Only a batch that is left out lies in a
   cell then, the cell of zeros. */
static inline bool dlpi_cells_none(const dlp_pipe *p) {
    return p->cells == DLPI_CELLS_STAY && p->n_cells == 0;
}

/* Choose the item cell of batch b, in slot s, and return the cell's number. A cell is free again
   when its batch has left the stage after which nobody needs its items. There are as many cells as
   batches may be between here and next, so one is free. */
static uint32_t dlpi_schedule_cell(dlp_pipe *p, uint32_t s, uint64_t b) {
    dlpi_cell_use *use = p->schedule.cells;
    uint32_t i = p->schedule.cell_turn;
    for (uint32_t n = 0; n + 1 < p->prefetch; n++, i = i + 1 == p->prefetch ? 0 : i + 1) {
        dlpi_stage_words *words = dlpi_stage_words_at(p, use[i].slot, p->cell_end);
        /* Y1 <- Y1 */
        if (use[i].end == 0 || dlpi_ready_past(dlpi_gather_look(&words->ready), use[i].end - 1))
            break;
    }
    use[i] = (dlpi_cell_use){b + 1, s};
    p->schedule.cell_turn = i + 1 == p->prefetch ? 0 : i + 1;
    return i;
}

/* Return the number of the cell for batch b, in slot s: its item cell, or if items have no cells of
   their own, its batch cell. */
static uint32_t dlpi_schedule_place(dlp_pipe *p, uint32_t s, uint64_t b) {
    if (p->cells == DLPI_CELLS_STAY) return p->lender->cell(p);
    if (p->cells == DLPI_CELLS_TURN) return (uint32_t)(b % p->n_cells);
    return p->has_item_cells ? dlpi_schedule_cell(p, s, b) : s;
}

/* Set whether items have cells of their own. They do if a collate reads them; else items are
   written where their batch lies. */
static void dlpi_cells_resolve(dlp_pipe *p) {
    p->has_item_cells = p->batcher->collate != NULL;
    p->item_area = p->has_item_cells ? DLPI_REC_ITEM_CELLS : DLPI_REC_CELLS;
}

/* True if the stage changes batches in place, and may not change one twice. If it fails, half of a
   change may have been made. */
static bool dlpi_batch_in_place(const dlpi_stage *st) {
    return st->ops->in_place && !st->w.idempotent;
}

/* Find the stages after which nobody needs a batch's rows (rows_end) and its turning cell
   (cell_end). A stage that changes batches in place may leave one half changed. Such a batch is
   fetched, or collated, again. */
static void dlpi_cells_ends(dlp_pipe *p) {
    p->cells_from = p->has_item_cells ? p->batcher->work : 0;
    p->rows_end = p->work[p->n_item_work - 1];
    p->cell_end = p->batcher;
    for (int i = 0; i < p->n_work; i++) {
        if (!dlpi_batch_in_place(p->work[i])) continue;
        p->cell_end = p->work[i];
        if (p->cells_from == 0) p->rows_end = p->work[i];
    }
}

/* Place in a slot the lengths of ragged fields, for items and for batches, and what a collate tells
   of its fields. *at: the end of the slot so far; it moves on. */
static void dlpi_cells_slot(dlp_pipe *p, uint64_t *at) {
    const uint64_t rows8 = dlpi_times(p->batch_rows, 8),
                   made = p->has_item_cells ? p->batches.n : 0;
    const uint64_t ragged = p->items.any_ragged ? p->items.n : 0;
    const uint64_t most = made > 0 || ragged > 0 ? p->batches.n : 0;
    p->slot.lengths = dlpi_take_bytes(at, dlpi_times(most, rows8), 1);
    p->slot.item_lengths = p->slot.lengths;
    if (made > 0) p->slot.item_lengths = dlpi_take_bytes(at, dlpi_times(ragged, rows8), 1);
    p->slot.offsets = dlpi_take_bytes(at, dlpi_times(made, rows8 + 8), 1);
    p->slot.fmeta = dlpi_take_bytes(at, made * sizeof(dlpi_fmeta), 1);
}

/* Add the item cells, the batch cells and the cell of zeros to the region. Their lines of the plan
   are named here. */
static void dlpi_cells_layout(dlp_pipe *p) {
    dlpi_area_told(p, DLPI_REC_ITEM_CELLS, DLPI_PLAN_ITEMS, "item cells for the collate",
                   dlpi_fields_bytes(&p->items), p->has_item_cells ? p->prefetch : 0, 4096);
    dlpi_area_told(p, DLPI_REC_CELLS, DLPI_PLAN_SLOTS, "batch slots: fields",
                   dlpi_fields_bytes(&p->batches), p->n_cells, 4096);
    dlpi_area_told(p, DLPI_REC_ZEROS, DLPI_PLAN_SLOTS, NULL, dlpi_fields_bytes(&p->batches),
                   p->cells == DLPI_CELLS_STAY, 4096); /* cell n_cells: after the others */
}

/* The order in which a callback sees the fields of an item, if the row has another order. Field i
   of the callback is field at[i] of the stage. */
typedef struct dlpi_seeing {
    uint32_t n;                 /* fields that the callback sees; 0: all, in the order of the row */
    uint8_t at[DLP_MAX_FIELDS]; /* number of each in the row */
    dlp_item_fn callback;
    void *user;
} dlpi_seeing;
