/* needs: parts */
#pragma once
/* tests: system/stages/reads */
#include "inputs/chain.h"
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

   A worker without requests has no attempts, and loads one input after the other.

   A stage of several sources may have a seat for each of them in each worker (dlpi_seat). A seat
   has a worker_state, attempts, and the cells of its source. The worker takes each seat in turn,
   and works on the cells of that seat. So any worker takes any cell. A source without requests has
   one attempt in each worker. It waits if another attempt must be out alone, and loads its cell
   when it is sent.

   A later fetch by requests is an op of the cell's program, and has a seat without cells. The op
   ends the try there (DLPI_READS), and the cell stays the worker's. An attempt of that seat takes
   the cell, and waits for its source. Behind the answer the program goes on with the next op, in
   the seat of the cell. So a cell has one attempt at a time, and many cells of a worker are out. If
   anything fails, the input begins again with its first fetch.
     Seats wait in one direction. A seat ends no attempt and claims no cell while a later fetch has
   no free attempt for it. The seat of a later fetch comes behind the seats that hand cells to it.
   So the last of them always goes on, and the others do when it has. */

/* Return the source of the input in cell c, which is a cell of the seat. */
static const dlpi_expand *dlpi_reads_by(const dlpi_worker *w, uint32_t c) {
    const dlpi_found *f = dlpi_in_flight_of(w)->by;
    while (c - f->first_cell >= f->n_cells) f = f->next;
    return (const dlpi_expand *)(const void *)f;
}

/* Return the attempts of a seat: `in_flight` may be out while as many are back. So one is free as
   long as fewer are out. */
static inline uint32_t dlpi_reads_most(uint32_t in_flight) {
    return in_flight > 0 ? 2 * in_flight : 1;
}

/* Return the bytes of the seats of a worker, with their attempts. */
DLPI_COLD static uint64_t dlpi_seats_bytes(const dlpi_seatings *s) {
    const dlpi_seating *of = s->at;
    uint64_t bytes = s->n > 1 ? s->n * sizeof(dlpi_seat) : 0;
    for (uint32_t k = 0; k < s->n; k++)
        if (s->n > 1 || of[k].in_flight > 0)
            bytes +=
                sizeof(dlpi_in_flight) + dlpi_reads_most(of[k].in_flight) * sizeof(dlpi_attempt);
    return bytes;
}

/* Return where the source of the present seat is to write into cell c. *l: gets the level of what
   it writes. */
static uint8_t *dlpi_read_place(const dlpi_worker *w, uint32_t c, const dlpi_level **l) {
    const dlpi_expand *x = dlpi_reads_by(w, c);
    const dlpi_later *later = dlpi_in_flight_of(w)->later;
    uint8_t *cell = dlpi_input_cell_at(w->p, x, c);
    *l = &x->level[later != NULL ? later->level : 0];
    return dlpi_level_place(w, x, *l, cell, cell);
}

/* Let the worker work in the seat that has cell c. */
static void dlpi_seat_of_cell(dlpi_worker *w, uint32_t c) {
    const dlpi_seat *seats = dlpi_seats(w);
    uint32_t k = 0;
    while (c - seats[k].first >= seats[k].end - seats[k].first) k++;
    dlpi_seat_take(w, k);
}

/* Let a free attempt take the claimed cell t->slot. */
static void dlpi_read_take(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_unit cell = *t;
    cell.row = DLPI_WHOLE;
    dlpi_attempt_at(w, &cell);
}

/* Let the later fetch at which cell t is read the cell. A free attempt of its seat takes the cell,
   and there is one: see dlpi_cells_full, dlpi_later_free. The worker works in that seat then.
   random: a callback has drawn random numbers for the input. */
static void dlpi_read_goes_on(dlpi_worker *w, const dlpi_unit *t, uint32_t random) {
    const dlpi_later *later = dlpi_in_flight_of(w)->at;
    const uint32_t rec = dlpi_input_at(w->p, t->slot)->rec;
    dlpi_in_flight *in;
    for (uint32_t k = w->seat->number + 1;; k++) {
        dlpi_seat_take(w, k);
        in = w->self;
        if (in->later == later) break;
    }
    dlpi_read_take(w, t);
    in->list[DLPI_ATTEMPT_WAITS].last->note.used_random = random;
    in->head->n_busy++;
    in->head->exclusive |=
        dlpi_fate_kills(rec) > 0 && dlpi_fate_stage(rec) == (uint32_t)w->st->work;
}

/* Make items of the input of a cell. made: the attempt that came back, or NULL if the source was
   not asked. The cell becomes LOADED, FAILED or OPEN, or it goes on to a later fetch. Its attempt
   becomes free. */
static void dlpi_read_over(dlpi_worker *w, dlpi_attempt *a, const dlpi_attempt *made) {
    dlpi_in_flight *in = w->self, *home;
    const dlpi_unit cell = {a->gen, a->slot, 0, 0, 0, false};
    const uint64_t from = dlpi_stage_limits(w->st) ? dlpi_now_ns() : 0;
    const uint32_t seat = w->seat != NULL ? w->seat->number : 0;
    if (w->seat != NULL) dlpi_seat_of_cell(w, a->slot);
    home = w->self;
    home->made = made;
    home->at = in->later;
    w->note.used_random = 0;
    dlpi_op_back(w, 0);
    dlpi_input_run(w, &cell);
    home->made = NULL;
    if (w->seat != NULL && dlpi_input_state(w->p, a->slot) == dlpi_input_mine(w))
        dlpi_read_goes_on(w, &cell,
                          w->note.used_random | (made != NULL ? made->note.used_random : 0));
    if (w->seat != NULL) dlpi_seat_take(w, seat);
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_FREE);
    dlpi_in_flight_lag(w, from);
    dlpi_in_flight_show(w); /* the cell was the one that runs */
}

static void dlpi_read_ended(dlpi_worker *w, dlpi_attempt *a, int code) {
    a->code = code;
    dlpi_read_over(w, a, a);
}

/* True if the source of the first fetch need not be asked for the next input of cell c. Either it
   makes no requests. Or all is made, and a worker died before it said so. Or the input is poison,
   past the end or kept, and the load says so. */
static bool dlpi_read_needless(dlpi_worker *w, const dlpi_expand *x, dlpi_input *cell,
                               uint32_t fate) {
    if (dlpi_in_flight_of(w)->async == NULL || cell->made == cell->run) return true;
    cell->index = dlpi_input_indices(cell)[cell->made];
    dlpi_words_forget(w);
    return dlpi_call_verdict(w, cell->killed_by, fate) != 0 || dlpi_input_past(x, cell) ||
           (x->cached && w->p->keeper->find(w, x->list, cell->index, NULL, NULL));
}

/* Prepare the item of a cell for the source of the present seat. The op of a later fetch has opened
   the marks of its fields. Return true if the source need not be asked. */
static bool dlpi_read_ready(dlpi_worker *w, dlpi_attempt *a, uint32_t fate) {
    const dlpi_later *later = dlpi_in_flight_of(w)->later;
    const dlpi_expand *x = dlpi_reads_by(w, a->slot);
    dlpi_input *cell = dlpi_input_at(w->p, a->slot);
    const dlpi_level *l;
    uint8_t *to = dlpi_read_place(w, a->slot, &l);
    if (later == NULL && dlpi_read_needless(w, x, cell, fate)) {
        dlpi_read_over(w, a, NULL);
        return true;
    }
    a->message[0] = 0;
    a->errnum = 0;
    a->item = dlpi_input_given(w, x, cell);
    a->item.call = &a->note;
    if (later != NULL) {
        dlpi_input_point(&a->item, to, l, &a->fields);
        dlpi_op_point(&a->item, &l->program.op[later->op]);
        return false;
    }
    a->note.used_random = 0;
    dlpi_input_item(&a->item, &a->fields, x->n_fetched);
    dlpi_input_lays(w, x, &a->item, to, &a->fields, !x->input.writes_all_bytes);
    return false;
}

static uint32_t dlpi_read_fate(const dlpi_worker *w, const dlpi_attempt *a) {
    return dlpi_input_at(w->p, a->slot)->rec;
}

/* Close the marks that dlpi_read_ready has opened. The marks of a later fetch stay open until its
   source has answered. */
static void dlpi_read_refused(dlpi_worker *w, const dlpi_attempt *a) {
    const dlpi_level *l;
    uint8_t *to = dlpi_read_place(w, a->slot, &l);
    if (dlpi_in_flight_of(w)->later == NULL) dlpi_item_untouched(to, l);
}

/* Show observers the input of a cell that is out, and the row that has it out. */
static void dlpi_read_show(const dlpi_worker *w, const dlpi_attempt *a) {
    const dlpi_input *cell = dlpi_input_at(w->p, a->slot);
    const dlpi_later *later = dlpi_in_flight_of(w)->later;
    dlpi_op_tells(w, later != NULL ? later->row : dlpi_reads_by(w, a->slot)->row);
    DLPI_STORE_RLX(&w->block->current_epoch, cell->epoch); /* for observers, here and below */
    DLPI_STORE_RLX(&w->block->current, cell->index);
}

/* True if the seat claims no cell now: it is that of a later fetch, or has no free attempt. Or the
   worker has enough cells for a later fetch: as many wait for its source as this seat may send. */
static bool dlpi_cells_full(const dlpi_worker *w) {
    const dlpi_in_flight *in = w->self, *r;
    if (w->seat == NULL) return false;
    if (in->later != NULL || !dlpi_attempt_free(in) || !dlpi_later_free(in)) return true;
    for (r = in->next; r != NULL; r = r->next)
        if (r->later != NULL && r->list[DLPI_ATTEMPT_WAITS].n >= in->most) return true;
    return false;
}

static const dlpi_unit_ops dlpi_cells_units = {
    .whole = true,
    .find = dlpi_input_find,
    .take = dlpi_read_take,
    .full = dlpi_cells_full,
    .fate = dlpi_read_fate,
    .ready = dlpi_read_ready,
    .refused = dlpi_read_refused,
    .ended = dlpi_read_ended,
    .show = dlpi_read_show,
};

/* ---- a worker with several seats ---- */

/* Work in seat k from now on. Returns the time, if the stage has a deadline, or 0. */
static uint64_t dlpi_seat_begin(dlpi_worker *w, uint32_t k) {
    dlpi_seat_take(w, k);
    dlpi_in_flight_show(w);
    return dlpi_stage_limits(w->st) ? dlpi_now_ns() : 0;
}

/* Leave the seat in which the worker was since from_ns, at the return of dlpi_seat_begin. If its
   callbacks took long, that time does not count for requests of other seats: nobody took them
   back. Short times count, since the supervisor waits for a request whose time does not change. */
static void dlpi_seat_end(const dlpi_worker *w, uint64_t from_ns) {
    const uint64_t ns = from_ns != 0 ? dlpi_now_ns() - from_ns : 0;
    int32_t ms = w->st->w.deadline_ms;
    dlpi_timed_least(&ms, w->st->timed);
    if (ns < (uint64_t)ms * 1000000u / 64) return;
    for (const dlpi_in_flight *in = dlpi_in_flight_of(w)->head; in != NULL; in = in->next)
        if (in != w->self) dlpi_in_flight_later(in, ns);
}

/* Return the number of the seat in which the worker is to wait for answers, or the number of seats
   if there is none. With a deadline it is the seat of the oldest request, which is shown. Else each
   seat has its turn. */
static uint32_t dlpi_seats_wait(dlpi_seat *seats, bool deadline) {
    uint32_t best = seats->n;
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 1; i <= seats->n; i++) {
        const uint32_t k = (seats->turn + i) % seats->n;
        const dlpi_in_flight *in = seats[k].self;
        const dlpi_attempt *a = in->list[DLPI_ATTEMPT_OUT].first;
        const uint64_t since = a != NULL ? DLPI_LOAD_RLX(&a->since_ns) : UINT64_MAX;
        if (in->async == NULL || in->broken || !dlpi_in_flight_waits(in)) continue;
        if (best == seats->n || since < oldest) best = k, oldest = since;
        if (!deadline) break;
    }
    if (best < seats->n) seats->turn = best;
    return best;
}

/* Do in each seat what is at hand. If nothing moved, wait a while for the answers of one of them.
   Returns false if the worker may sleep. */
static bool dlpi_seats_step(dlpi_worker *w) {
    dlpi_seat *seats = dlpi_seats(w);
    uint32_t read = 0; /* seats with cells, or with requests */
    bool moved = false;
    uint64_t from;
    for (uint32_t k = 0; k < seats->n; k++) {
        const dlpi_in_flight *in = seats[k].self;
        if (seats[k].first == seats[k].end && in->async == NULL) continue;
        from = dlpi_seat_begin(w, k);
        moved |= dlpi_in_flight_poll(w);
        dlpi_seat_end(w, from);
        read++;
    }
    if (moved) return true;
    if (w->input_untold > 0) dlpi_input_wake(w);
    const uint32_t k = dlpi_seats_wait(seats, dlpi_stage_limits(w->st));
    if (k == seats->n || dlpi_stopped(w->p)) return false;
    from = dlpi_seat_begin(w, k);
    const int ms = read == 1 ? dlpi_in_flight_patience(w) : DLPI_REAP_ROOM_MS;
    if (dlpi_in_flight_reap(w, ms) == 0 && dlpi_attempts_out(dlpi_in_flight_of(w)) == 0)
        dlpi_sleep(1000000);
    dlpi_in_flight_ends(w);
    dlpi_seat_end(w, from);
    return true;
}

/* Claim a cell in one of the seats. Returns true, and the worker takes that seat, or false. */
static bool dlpi_seats_find(dlpi_worker *w, dlpi_unit *t) {
    for (uint32_t k = 0; k < dlpi_n_seats(w); k++) {
        dlpi_seat_take(w, k);
        if (dlpi_in_flight_find(w, t)) return true;
    }
    return false;
}

/* ---- a worker of cells, with requests or without ---- */

static bool dlpi_reads_step(dlpi_worker *w) {
    if (w->seat != NULL) return dlpi_seats_step(w);
    return w->self != NULL ? dlpi_in_flight_step(w) : dlpi_input_step(w);
}

static bool dlpi_reads_find(dlpi_worker *w, dlpi_unit *t) {
    if (w->seat != NULL) return dlpi_seats_find(w, t);
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

/* Wait in each seat until its source has given back all items. */
static void dlpi_reads_leave(dlpi_worker *w) {
    for (uint32_t k = 0; k < dlpi_n_seats(w) && w->self != NULL; k++) {
        if (w->seat != NULL) dlpi_seat_take(w, k);
        dlpi_in_flight_end(w);
    }
}

/* True if the worker may not leave: it has items out, or a claimed cell that waits. */
static bool dlpi_reads_owes(const dlpi_worker *w) {
    const dlpi_in_flight *in = w->self != NULL ? dlpi_in_flight_of(w)->head : NULL;
    while (in != NULL && !dlpi_in_flight_waits(in)) in = in->next;
    return in != NULL;
}

/* Give a worker attempts for a seat. *at: memory, which is counted on; in: the first seat's record,
   or NULL. Returns the seat's record. */
DLPI_COLD static dlpi_in_flight *dlpi_seat_set(dlpi_worker *w, const dlpi_seating *of, uint8_t **at,
                                               dlpi_in_flight *first) {
    const dlpi_expand *x = (const dlpi_expand *)(const void *)of->by;
    const uint32_t n = dlpi_reads_most(of->in_flight);
    const dlp_async *async = of->later != NULL ? &of->later->async : &x->async;
    dlpi_in_flight *in = (dlpi_in_flight *)(void *)*at;
    dlpi_in_flight_set(in, w, &dlpi_cells_units, (dlpi_attempt *)(void *)(in + 1), n,
                       of->in_flight > 0 ? of->in_flight : 1, of->in_flight > 0 ? async : NULL,
                       of->later != NULL ? of->later->user : x->input.user,
                       w->at_once != NULL ? w->at_once + w->n_at_once : NULL);
    *at += sizeof *in + n * sizeof(dlpi_attempt);
    if (of->in_flight > 0) w->n_at_once += n;
    in->by = of->by;
    in->later = of->later;
    if (first == NULL) return in;
    in->head = first;
    while (first->next != NULL) first = first->next;
    return first->next = in;
}

/* Give each worker of the stage its seats. If there is one, the worker is the seat. */
DLPI_COLD static void dlpi_seats_live(dlp_pipe *p, const dlpi_stage *st, const dlpi_seatings *s) {
    for (int i = 0; i < st->n_workers && s->memory != NULL; i++) {
        dlpi_worker *w = &p->workers[st->first_worker + i];
        uint8_t *at = s->memory + (uint64_t)i * dlpi_seats_bytes(s);
        dlpi_seat *seats = (dlpi_seat *)(void *)at;
        w->at_once = st->in_flight > 0 ? dlpi_input_blame(p, st, (uint32_t)i) : NULL;
        if (s->n > 1) at += s->n * sizeof *seats;
        for (uint32_t k = 0; k < s->n; k++) {
            const dlpi_seating *of = &s->at[k];
            void *self = dlpi_seat_set(w, of, &at, k > 0 ? w->self : NULL);
            if (k == 0) w->self = self;
            if (s->n == 1) break;
            seats[k] = (dlpi_seat){.self = self,
                                   .calls = of->calls,
                                   .of = of->of,
                                   .row = of->row,
                                   .number = k,
                                   .n = s->n,
                                   .first = of->first,
                                   .end = of->end,
                                   .at = of->first};
        }
        if (s->n > 1) w->seat = seats;
    }
}

/* Give each worker of the stage its seats, if its source x reads inputs by requests, or if x has
   later fetches with seats. */
DLPI_COLD static void dlpi_reads_live(dlp_pipe *p, const dlpi_stage *st, dlpi_expand *x) {
    x->seats.at[0].end = x->found.n_cells;
    dlpi_seats_live(p, st, &x->seats);
}

/* Describe the heap memory of the workers' seats. at: offset of `s` in the self of the stage. */
DLPI_COLD static dlpi_block dlpi_seats_block(const dlpi_seatings *s, const dlpi_stage *st,
                                             size_t at) {
    return (dlpi_block){at + offsetof(dlpi_seatings, memory),
                        dlpi_times((uint64_t)st->n_workers, dlpi_seats_bytes(s))};
}

/* tell of a stage with several seats: call that of each seat until one writes text into buf.
   Returns the bytes of text, 0 if none, or negative. */
DLPI_COLD static int dlpi_seats_tell(void *user, char *buf, size_t size) {
    const dlpi_seatings *s = user;
    int n = 0;
    for (uint32_t k = 0; k < s->n && n <= 0; k++) {
        const dlp_workers_desc *d = s->at[k].calls;
        if (d != NULL && d->tell != NULL) n = d->tell(d->worker_user, buf, size);
    }
    return n;
}

/* Return what the calls of worker_init allocate in one worker. */
DLPI_COLD static uint64_t dlpi_seats_private(const dlpi_seatings *s) {
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < s->n; k++) bytes = dlpi_sum(bytes, s->at[k].bytes);
    return bytes;
}

/* If there are several seats, let each call its own callbacks, and not those of the stage. */
DLPI_COLD static void dlpi_seats_call(dlpi_seatings *s, dlp_workers_desc *w) {
    if (s->n < 2) return;
    w->worker_init = NULL;
    w->worker_exit = NULL;
    w->tell = dlpi_seats_tell;
    w->worker_user = s;
}

/* True if workers of the two descs call the same callbacks as they begin and end. */
DLPI_COLD static bool dlpi_called_alike(const dlp_workers_desc *a, const dlp_workers_desc *b) {
    return a->worker_init == b->worker_init && a->worker_exit == b->worker_exit &&
           a->worker_user == b->worker_user && a->tell == b->tell;
}

/* Give a later fetch of x, by `workers` workers, a new seat for its requests. home: the seat of the
   cells of x. */
DLPI_COLD static void dlpi_seat_requests(dlpi_seatings *s, dlpi_expand *x, dlpi_later *l,
                                         uint32_t home, uint32_t workers) {
    dlpi_op *op = &x->level[l->level].program.op[l->op];
    s->at[s->n++] = (dlpi_seating){.calls = l->calls.worker_init != NULL ? &l->calls : NULL,
                                   .of = home,
                                   .later = l,
                                   .by = &x->found,
                                   .row = l->row,
                                   .in_flight = l->in_flight * workers,
                                   .bytes = l->bytes};
    op->fn.call = dlpi_later_call;
    op->user = l;
    x->found.in_flight += l->in_flight;
    x->n_read = (uint8_t)(l->level + 1);
}

/* Give the later fetches of x seats among those of its stage: one that is called alike and makes no
   requests, or a new one. home: the seat of the cells of x, which has so many workers. */
DLPI_COLD static void dlpi_seats_later(dlpi_seatings *s, dlpi_expand *x, uint32_t home,
                                       uint32_t workers) {
    for (uint32_t i = 0; i < x->n_later; i++) {
        dlpi_later *l = &x->later[i];
        dlpi_op *op = l->of > 0 ? &x->of[l->of - 1].op : &x->level[l->level].program.op[l->op];
        uint32_t k = 0;
        if (l->in_flight > 0) {
            dlpi_seat_requests(s, x, l, home, workers);
            continue;
        }
        while (k < s->n &&
               (s->at[k].in_flight > 0 || !dlpi_called_alike(s->at[k].calls, &l->calls)))
            k++;
        if (k == s->n)
            s->at[s->n++] = (dlpi_seating){.calls = &l->calls, .row = l->row, .bytes = l->bytes};
        s->at[k].by = s->at[k].by != NULL ? s->at[k].by : &x->found;
        op->seat = (uint8_t)(k + 1);
        op->how |= DLPI_OP_SEAT;
    }
}

/* Describe in `out` the heap memory of a stage that makes items in cells, for allocating and
   freeing it. Returns the number of blocks. */
DLPI_COLD static int dlpi_input_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_expand *x = st->self;
    int n = dlpi_found_blocks(p, st, out);
    out[n++] = dlpi_seats_block(&x->seats, st, offsetof(dlpi_expand, seats));
    out[n++] = dlpi_rooms_block(st);
    out[n] = (dlpi_block){offsetof(dlpi_expand, firsts), dlpi_input_firsts_bytes(x)};
    return n + 1;
}

/* What loads inputs one after the other, or by requests. */
#define DLPI_OPS_OF_READS \
    DLPI_OPS_OF_CELLS(dlpi_reads_find), .step = dlpi_reads_step, .run = dlpi_reads_run, \
                                        .leave = dlpi_reads_leave, .owes = dlpi_reads_owes
