/* needs: parts */
#pragma once
/* tests: system/stages/reads */
#include "flight/in_flight.h"
#include "inputs/items.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-reads      INPUTS READ BY REQUESTS, SEVERAL AT ONCE
   A worker of cells that has an asynchronous source claims as many cells as it may have requests
   under way. It gives the item of each cell to the source, whose answer is written into the cell.
   When the source gives an item back, dlpi_input_run makes items of it, as after a fetch by the
   worker itself: filters, expand, the lengths of a document.

   The cell is the worker's from its claim until it is LOADED, FAILED or offered again, whatever is
   in between. So the argument of >>impl-inputs holds, and a death gives all cells of the worker
   back: recovery goes by the number in their words. Each of them counts a kill, since any may be
   what killed the worker. From then on the input of such a cell is read and made items of alone, so
   the next death says whose it was. While the cell waits to be alone, a death counts nothing for
   it: block->running names it only once the source is given its item. An input that failed, and may
   be tried again, is offered again.

   A worker without requests has no dlpi_reads, and loads one input after the other.

   While something is out and there is room, the worker looks for open cells every ms: nobody wakes
   it for them. With nothing out it sleeps as others do. After a stop reap is called until nothing
   is out. */

static inline dlpi_reads *dlpi_reads_of(const dlpi_worker *w) { return w->self; }
static inline const dlpi_expand *dlpi_reads_by(const dlpi_worker *w) {
    return dlpi_reads_of(w)->by;
}

static uint64_t dlpi_reads_bytes(const dlpi_expand *x) {
    const uint64_t n = x->found.in_flight;
    return n > 0 ? sizeof(dlpi_reads) + 2 * n * sizeof(dlpi_read) : 0;
}

/* Return where the source is to write the input of cell c. */
static uint8_t *dlpi_read_place(const dlpi_worker *w, uint32_t c) {
    const dlpi_expand *x = dlpi_reads_by(w);
    return dlpi_input_cell_at(w->p, x, c) + (x->n_levels > 1 ? x->level->scratch : 0);
}

/* Make items of the input of a cell whose read is over. back: the read that came back, or NULL if
   the source was not asked. The cell becomes LOADED, FAILED or OPEN. */
static void dlpi_read_over(dlpi_worker *w, const dlpi_unit *cell, const dlpi_read *back) {
    dlpi_reads_of(w)->back = back;
    w->note.used_random = 0;
    dlpi_input_run(w, cell);
    dlpi_reads_of(w)->back = NULL;
}

/* Give the item of the claimed cell reads->next to the source, as read r. Returns false if the
   source has no room now. If the source refuses the item for good, the read is over: true. */
static bool dlpi_read_submit(dlpi_worker *w, dlpi_read *r, dlpi_input *cell) {
    const dlpi_expand *x = dlpi_reads_by(w);
    dlpi_reads *reads = dlpi_reads_of(w);
    r->cell = reads->next;
    r->message[0] = 0;
    r->errnum = 0;
    r->note = (dlp_call){.message = r->message, .errnum = &r->errnum, .w = w};
    r->item = dlpi_input_given(w, x, cell);
    r->item.call = &r->note;
    if (!x->input.writes_all_bytes) dlpi_input_zero(dlpi_read_place(w, r->cell.slot), x->level);
    dlpi_input_point(&r->item, dlpi_read_place(w, r->cell.slot), x->level, &r->fields, true);
    r->item.n_fields = x->n_fetched;
    r->out = true;
    if (dlpi_fate_kills(cell->rec) > 0)
        dlpi_runs(&w->block->running, DLPI_RUNS_ALL(r->cell.slot)); /* until items are made of it */
    r->code = x->async.submit(x->input.user, w->state, &r->item);
    if (r->code == 0) {
        reads->alone = dlpi_fate_kills(cell->rec) > 0;
        reads->n_out++;
        return true;
    }
    r->out = false;
    dlpi_runs(&w->block->running, DLPI_RUNS_NONE);
    if (r->code == DLP_FULL) return false;
    dlpi_read_over(w, &r->cell, r);
    return true;
}

/* Begin to read the claimed cell reads->next. Returns false if it must wait: the source has no
   room, or an input that may have killed a worker must be read alone. */
static bool dlpi_read_begin(dlpi_worker *w) {
    dlpi_reads *reads = dlpi_reads_of(w);
    dlpi_input *cell = dlpi_input_at(w->p, reads->next.slot);
    dlpi_read *r = reads->all;
    if (cell->made == cell->run) { /* a worker died before it said that all are made */
        dlpi_read_over(w, &reads->next, NULL);
        return true;
    }
    if (dlpi_fate_kills(cell->rec) > 0 && reads->n_out + reads->n_back > 0) return false;
    cell->index = dlpi_input_indices(cell)[cell->made];
    DLPI_STORE_RLX(&w->block->current, cell->index); /* for observers */
    dlpi_words_forget(w);
    if (dlpi_call_verdict(w, cell->killed_by, cell->rec) != 0 ||
        (dlpi_reads_by(w)->cached && w->p->keeper->find(w, cell->index, NULL, NULL))) {
        dlpi_read_over(w, &reads->next, NULL); /* it is poison, or kept, and load says so again */
        return true;
    }
    while (r->out || r->back) r++; /* fewer than n are out, and at most n are back */
    return dlpi_read_submit(w, r, cell);
}

/* Claim cells and begin to read them, as many as may be out. Returns true if a read was begun. */
static bool dlpi_reads_fill(dlpi_worker *w) {
    dlpi_reads *reads = dlpi_reads_of(w);
    bool moved = false;
    while (!dlpi_stopped(w->p) && !reads->broken && !reads->alone && reads->n_out < reads->n) {
        if (!reads->waits && !dlpi_input_find(w, &reads->next)) break;
        dlpi_clock_in(w);
        reads->waits = !dlpi_read_begin(w);
        if (reads->waits) break;
        moved = true;
    }
    return moved;
}

/* Return the read whose item the source gave back, or NULL if no such item is out. */
static dlpi_read *dlpi_read_of(dlpi_reads *reads, const dlp_item *item) {
    const uintptr_t at = (uintptr_t)item - (uintptr_t)reads->all, i = at / sizeof *reads->all;
    return at % sizeof *reads->all == 0 && i < 2 * reads->n && reads->all[i].out ? &reads->all[i]
                                                                                 : NULL;
}

/* Take the items that the source gives back within timeout_ms, and make items of them unless the
   pipe is stopped. Returns how many came back; negative if the source is broken. */
static int dlpi_reads_reap(dlpi_worker *w, int timeout_ms) {
    const dlpi_expand *x = dlpi_reads_by(w);
    dlpi_reads *reads = dlpi_reads_of(w);
    dlp_item *done[DLPI_REAP_MOST];
    dlpi_read *back[DLPI_REAP_MOST];
    int code[DLPI_REAP_MOST];
    const int most = reads->n < DLPI_REAP_MOST ? (int)reads->n : DLPI_REAP_MOST;
    int n = x->async.reap(x->input.user, w->state, done, code, most, timeout_ms);
    if (n < 0 || n > most) return dlpi_async_broken(w, &reads->broken, "returned", n);
    for (int i = 0; i < n; i++) {
        if ((back[i] = dlpi_read_of(reads, done[i])) == NULL)
            return dlpi_async_broken(w, &reads->broken, "gave back an unknown item, place", i);
        back[i]->out = false;
        back[i]->back = true;
        back[i]->code = code[i];
        reads->n_out--;
        reads->n_back++;
    }
    if (n > 0) reads->alone = false;
    for (int i = 0; i < n && !dlpi_stopped(w->p); i++) {
        const dlpi_input *cell = dlpi_input_at(w->p, back[i]->cell.slot);
        if (dlpi_fate_kills(cell->rec) == 0) dlpi_reads_fill(w); /* others are read meanwhile */
        dlpi_read_over(w, &back[i]->cell, back[i]);
        back[i]->back = false;
        reads->n_back--;
    }
    return n;
}

/* Return how many ms to wait for items that are out. The time is long if items are out and no more
   can be. Else it is short: soon the worker looks for open cells, or asks the source again whether
   it has room. */
static int dlpi_reads_patience(const dlpi_reads *reads) {
    const bool full = reads->waits || reads->alone || reads->n_out == reads->n;
    return reads->n_out > 0 && full ? DLPI_REAP_FULL_MS : DLPI_REAP_ROOM_MS;
}

/* Do one step of a worker of cells: begin reads, and make items of what comes back. Returns false
   if there was nothing to do. */
static bool dlpi_reads_step(dlpi_worker *w) {
    const dlpi_reads *reads = dlpi_reads_of(w);
    bool moved;
    int n;
    if (reads == NULL) return dlpi_input_step(w);
    moved = dlpi_reads_fill(w);
    if (reads->broken || (reads->n_out == 0 && !reads->waits)) return moved;
    if (dlpi_stopped(w->p)) return true;
    n = dlpi_reads_reap(w, dlpi_reads_patience(reads));
    if (n == 0 && reads->n_out == 0) dlpi_sleep(1000000); /* no room, and nothing out */
    return true;
}

/* Take over cell t, which the worker claimed as it was about to sleep. With requests the cell is
   read in the next step; else it is loaded here. */
static void dlpi_reads_run(dlpi_worker *w, const dlpi_unit *t) {
    if (dlpi_reads_of(w) == NULL) {
        dlpi_input_run(w, t);
        return;
    }
    dlpi_reads_of(w)->next = *t;
    dlpi_reads_of(w)->waits = true;
}

/* Give each of the n workers from w on its dlpi_reads, if x reads inputs by requests. */
static void dlpi_reads_live(const dlpi_expand *x, dlpi_worker *w, int n) {
    for (int i = 0; i < n && x->reads != NULL; i++) {
        dlpi_reads *reads = (dlpi_reads *)(void *)(x->reads + (uint64_t)i * dlpi_reads_bytes(x));
        reads->by = x;
        reads->n = x->found.in_flight;
        w[i].self = reads;
    }
}

/* Wait until the source has given back all items, before worker_exit is called. */
static void dlpi_reads_leave(dlpi_worker *w) {
    const dlpi_reads *reads = dlpi_reads_of(w);
    while (reads != NULL && reads->n_out > 0 && !reads->broken)
        dlpi_reads_reap(w, DLPI_REAP_FULL_MS);
}

/* True if the worker may not leave: it has items out, or a claimed cell that waits. */
static bool dlpi_reads_owes(const dlpi_worker *w) {
    const dlpi_reads *reads = dlpi_reads_of(w);
    return reads != NULL && (reads->n_out > 0 || reads->waits);
}

static bool dlpi_reads_full(const dlpi_worker *w) {
    const dlpi_reads *reads = dlpi_reads_of(w);
    return reads != NULL && reads->n_out == reads->n;
}

/* Describe the heap memory of n workers' dlpi_reads. at: offset of x in the self of its stage. */
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
    DLPI_OPS_OF_CELLS, .step = dlpi_reads_step, .run = dlpi_reads_run, .leave = dlpi_reads_leave, \
                       .owes = dlpi_reads_owes, .full = dlpi_reads_full
