/* needs: parts */
#pragma once
/* tests: system/stages/reads */
#include "inputs/items.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-reads      INPUTS READ BY REQUESTS, SEVERAL AT ONCE
   A worker of cells that has an asynchronous source claims as many cells as it may have requests
   under way: cells are the units of its attempts (>>impl-in-flight). It gives the item of each cell
   to the source, whose answer is written into the cell. When the source gives an item back,
   dlpi_input_run makes items of it, as after a fetch by the worker itself: filters, expand, the
   lengths of a document. Others are read meanwhile, so a worker has twice as many attempts as
   requests.

   The cell is the worker's from its claim until it is LOADED, FAILED or offered again, whatever is
   in between. So the argument of >>impl-inputs holds, and a death gives all cells of the worker
   back: recovery goes by the number in their words. An input that failed, and may be tried again,
   is offered again.

   A worker without requests has no attempts, and loads one input after the other. */

static inline const dlpi_expand *dlpi_reads_by(const dlpi_worker *w) {
    return dlpi_in_flight_of(w)->by;
}

/* Return the attempts of a worker: `in_flight` may be out while as many are back. So one is free as
   long as fewer are out. */
static inline uint32_t dlpi_reads_most(uint32_t in_flight) { return 2 * in_flight; }

static uint64_t dlpi_reads_bytes(const dlpi_expand *x) {
    const uint64_t n = dlpi_reads_most(x->found.in_flight);
    return n > 0 ? sizeof(dlpi_in_flight) + n * sizeof(dlpi_attempt) : 0;
}

/* Return where the source is to write the input of cell c. */
static uint8_t *dlpi_read_place(const dlpi_worker *w, uint32_t c) {
    const dlpi_expand *x = dlpi_reads_by(w);
    return dlpi_input_cell_at(w->p, x, c) + (x->n_levels > 1 ? x->level->scratch : 0);
}

/* Make items of the input of a cell. made: the attempt that came back, or NULL if the source was
   not asked. The cell becomes LOADED, FAILED or OPEN, and its attempt free. */
static void dlpi_read_over(dlpi_worker *w, dlpi_attempt *a, const dlpi_attempt *made) {
    dlpi_in_flight *in = w->self;
    const dlpi_unit cell = {a->gen, a->slot, 0, 0, 0, false};
    const uint64_t from = w->st->w.deadline_ms != 0 ? dlpi_now_ns() : 0;
    in->made = made;
    w->note.used_random = 0;
    dlpi_input_run(w, &cell);
    in->made = NULL;
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_FREE);
    dlpi_in_flight_lag(w, from);
    dlpi_in_flight_show(w); /* the cell was the one that runs */
}

static void dlpi_read_ended(dlpi_worker *w, dlpi_attempt *a, int code) {
    a->code = code;
    dlpi_read_over(w, a, a);
}

/* Prepare the item of a cell for the source. Return true if the source need not be asked. Either
   all is made, and a worker died before it said so. Or the input is poison, past the end or kept,
   and the load says so. */
static bool dlpi_read_ready(dlpi_worker *w, dlpi_attempt *a, uint32_t fate) {
    const dlpi_expand *x = dlpi_reads_by(w);
    dlpi_input *cell = dlpi_input_at(w->p, a->slot);
    uint8_t *to = dlpi_read_place(w, a->slot);
    bool over = cell->made == cell->run;
    if (!over) {
        cell->index = dlpi_input_indices(cell)[cell->made];
        dlpi_words_forget(w);
        over = dlpi_call_verdict(w, cell->killed_by, fate) != 0 || dlpi_input_past(x, cell) ||
               (x->cached && w->p->keeper->find(w, cell->index, NULL, NULL));
    }
    if (over) {
        dlpi_read_over(w, a, NULL);
        return true;
    }
    a->message[0] = 0;
    a->errnum = 0;
    a->note.used_random = 0;
    a->item = dlpi_input_given(w, x, cell);
    a->item.call = &a->note;
    if (!x->input.writes_all_bytes)
        dlpi_input_zero(to, x->level);
    else
        dlpi_item_begins(to, x->level);
    dlpi_input_point(&a->item, to, x->level, &a->fields, true);
    a->item.n_fields = x->n_fetched;
    return false;
}

/* Let a free attempt take the claimed cell t->slot. */
static void dlpi_read_take(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_unit cell = *t;
    cell.row = DLPI_WHOLE;
    dlpi_attempt_at(w, &cell);
}

static uint32_t dlpi_read_fate(const dlpi_worker *w, const dlpi_attempt *a) {
    return dlpi_input_at(w->p, a->slot)->rec;
}

static void dlpi_read_refused(dlpi_worker *w, const dlpi_attempt *a) {
    dlpi_item_untouched(dlpi_read_place(w, a->slot), dlpi_reads_by(w)->level);
}

/* Show observers the input of a cell that is out. */
static void dlpi_read_show(const dlpi_worker *w, const dlpi_attempt *a) {
    const dlpi_input *cell = dlpi_input_at(w->p, a->slot);
    DLPI_STORE_RLX(&w->block->current_epoch, cell->epoch); /* for observers, here and below */
    DLPI_STORE_RLX(&w->block->current, cell->index);
}

static const dlpi_unit_ops dlpi_cells_units = {
    .whole = true,
    .find = dlpi_input_find,
    .take = dlpi_read_take,
    .fate = dlpi_read_fate,
    .ready = dlpi_read_ready,
    .refused = dlpi_read_refused,
    .ended = dlpi_read_ended,
    .show = dlpi_read_show,
};

/* ---- a worker of cells, with requests or without ---- */

static bool dlpi_reads_step(dlpi_worker *w) {
    return w->self != NULL ? dlpi_in_flight_step(w) : dlpi_input_step(w);
}

static bool dlpi_reads_find(dlpi_worker *w, dlpi_unit *t) {
    return w->self != NULL ? dlpi_in_flight_find(w, t) : dlpi_input_find(w, t);
}

/* Take over cell t, which the worker claimed as it was about to sleep. With requests the cell is
   read in the next step; else it is loaded here. */
static void dlpi_reads_run(dlpi_worker *w, const dlpi_unit *t) {
    if (w->self != NULL)
        dlpi_in_flight_run(w, t);
    else
        dlpi_input_run(w, t);
}

static void dlpi_reads_leave(dlpi_worker *w) {
    if (w->self != NULL) dlpi_in_flight_end(w);
}

/* True if the worker may not leave: it has items out, or a claimed cell that waits. */
static bool dlpi_reads_owes(const dlpi_worker *w) {
    return w->self != NULL && dlpi_in_flight_owes(w);
}

/* Give each of the n workers from w on its attempts, if x reads inputs by requests. */
static void dlpi_reads_live(dlp_pipe *p, const dlpi_expand *x, dlpi_worker *w, int n) {
    const uint32_t many = x->found.in_flight;
    for (int i = 0; i < n && x->reads != NULL; i++) {
        uint8_t *at = x->reads + (uint64_t)i * dlpi_reads_bytes(x);
        dlpi_in_flight *in = (dlpi_in_flight *)(void *)at;
        dlpi_in_flight_set(in, &w[i], &dlpi_cells_units, (dlpi_attempt *)(void *)(in + 1),
                           dlpi_reads_most(many), many, &x->async, x->input.user,
                           dlpi_input_blame(p, w[i].st, (uint32_t)w[i].id));
        in->by = x;
    }
}

/* Describe the heap memory of n workers' attempts. at: offset of x in the self of its stage. */
static dlpi_block dlpi_reads_block(const dlpi_expand *x, size_t at, int n) {
    return (dlpi_block){at + offsetof(dlpi_expand, reads),
                        dlpi_times((uint64_t)n, dlpi_reads_bytes(x))};
}

/* Describe in `out` the heap memory of a stage that makes items in cells, for allocating and
   freeing it. Returns the number of blocks. */
DLPI_COLD static int dlpi_input_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_expand *x = st->self;
    int n = dlpi_found_blocks(p, st, out);
    out[n++] = dlpi_reads_block(x, 0, st->n_workers);
    out[n++] = dlpi_rooms_block(st);
    out[n] = (dlpi_block){offsetof(dlpi_expand, firsts), dlpi_input_firsts_bytes(x)};
    return n + 1;
}

/* What loads inputs one after the other, or by requests. */
#define DLPI_OPS_OF_READS \
    DLPI_OPS_OF_CELLS(dlpi_reads_find), .step = dlpi_reads_step, .run = dlpi_reads_run, \
                                        .leave = dlpi_reads_leave, .owes = dlpi_reads_owes
