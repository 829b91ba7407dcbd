/* needs: fetchers */
#pragma once
/* tests: system/core/fetchers, system/shm/shm_fetchers */
#include "flight/attempts.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-in-flight  UNITS THAT A WORKER HAS SEVERAL OF AT ONCE
   A worker of a fetching stage may have one row at a time. Its own item is its attempt then, see
   the section on runs (>>impl-run). Or it has several units in flight: rows of slots, and then the
   stage has the second of the two tables of its kind, or cells of inputs (>>impl-reads). The worker
   has an attempt for each unit in hand: the item, its lengths, its message. As long as there is
   room it claims units, as any worker does, and gives their items to its source. It ends each
   attempt when the source gives the item back. What differs by the unit is in a table:
   dlpi_unit_ops. An attempt is in one list at a time:

     FREE --claim--> WAITS --submit--> OUT --reap--> BACK --> FREE: the unit is done, parked
       |               ^                               |            (back-off), or offered again
       +- parked, due -+----------- again <------------+

   What becomes of a row that failed, when it is tried again, where it waits until then (dlpi_park)
   and how it is completed is as everywhere; the worker's own item is that of the attempt which is
   settled just now. Between two attempts a row is parked, and has no attempt.

   The source is the user's (dlp_async), or threads of the worker's own that run dataset.fetch. With
   an asynchronous source all is done by the worker's own thread. Its threads, if it has some, work
   in its place: the one that is through with an item completes it and claims and sends what there
   is room for, then takes the next item of what is to do. So while something is out, nobody waits
   for the worker, which on cores that are all busy would get its turn milliseconds later. All that
   is the worker's is under threads.lock then, which the worker itself holds but for its sleep while
   rows are out: they wake it when it is to look for new batches, when a row was parked, when
   nothing is out, and when the pipe stops. What is to do has a lock of its own, taken after the
   other, so that a row is begun while others are claimed.
   A unit that is out and begun has its place in w->at_once (X2), so that recovery knows which
   units may have killed a worker: each of them counts a kill. From then on such a unit is out
   alone, until its attempt has ended, so the next death says whose it was: an innocent unit counts
   one kill at most, the guilty one dies alone until it is poison. A unit that waits is in no
   source's hands, and is never blamed.
   While something is out and there is room, the worker looks for new units every ms: nobody wakes
   it for them. With nothing out it sleeps as others do.

   A worker of cells may have several sources: a record of requests in each seat (dlpi_seat). It
   works in one seat after the other, without waiting. If nothing moved, it waits for a ms in one of
   them. What must be out alone is out alone in all seats of the worker: the first record, the head,
   counts for all. It need not hurry: until it is sent, other seats come to the end of their cells.
   A cell that goes on to the seat of a later fetch is busy until its last attempt has ended. So
   what is out alone stays alone, and never waits behind cells that wait for it.
   */

#define DLPI_REAP_MOST 64
#define DLPI_REAP_ROOM_MS 1 /* ms that reap may wait while the worker has room for more rows */
#define DLPI_REAP_FULL_MS 50

/* Return how many rows a worker can have: in flight, and parked, as many as other workers have. */
DLPI_COLD static uint64_t dlpi_in_flight_rows(const dlpi_stage *st) {
    return (uint64_t)st->in_flight + DLPI_PARK;
}

/* Return the number of an attempt among those of its worker. */
static inline uint64_t dlpi_attempt_number(const dlpi_worker *w, const dlpi_attempt *a) {
    return (uint64_t)(a - dlpi_in_flight_of(w)->all);
}

/* Return the word that says whether the unit of an attempt is in a callback. */
static inline uint64_t *dlpi_attempt_runs(const dlpi_worker *w, const dlpi_attempt *a) {
    return &dlpi_in_flight_of(w)->at_once[dlpi_attempt_number(w, a)];
}

/* Store that the unit of an attempt is in a callback from here on: since when, and for recovery. */
static void dlpi_attempt_begin(dlpi_worker *w, dlpi_attempt *a) {
    DLPI_STORE_RLX(&a->since_ns, dlpi_now_ns()); /* 0 before, for dlpi_in_flight_show */
    dlpi_runs(dlpi_attempt_runs(w, a), DLPI_RUNS_ROW(a->slot, a->row));
}

/* Append an attempt to one of the worker's lists (DLPI_ATTEMPT_*). The attempt must be in no list.
   */
static void dlpi_attempt_put(dlpi_in_flight *in, dlpi_attempt *a, uint32_t list) {
    dlpi_attempt_list *l = &in->list[list];
    a->in = list;
    a->next = NULL;
    a->prev = l->last;
    if (l->last)
        l->last->next = a;
    else
        l->first = a;
    l->last = a;
    l->n++;
}

/* Take an attempt out of its list, and append it to another list of the worker. */
DLPI_NOINLINE static void dlpi_attempt_move(dlpi_in_flight *in, dlpi_attempt *a, uint32_t list) {
    dlpi_attempt_list *l = &in->list[a->in];
    if (a->prev)
        a->prev->next = a->next;
    else
        l->first = a->next;
    if (a->next)
        a->next->prev = a->prev;
    else
        l->last = a->prev;
    l->n--;
    dlpi_attempt_put(in, a, list);
}

static dlpi_unit dlpi_attempt_unit(const dlpi_attempt *a) { /* runs are of one row here */
    return (dlpi_unit){a->gen, a->slot, a->row, a->row, a->row + 1, false};
}

/* Show observers and the supervisor the item that is out longest: of the seat, if there are seats.
   Then a callback that hangs is not taken for a request of another seat. */
static void dlpi_in_flight_show(dlpi_worker *w) {
    const dlpi_in_flight *in = w->self;
    const dlpi_attempt *a = in->list[DLPI_ATTEMPT_OUT].first;
    uint64_t since = a == NULL ? 0 : DLPI_LOAD_RLX(&a->since_ns); /* of dlpi_attempt_begin */
    dlpi_worker_block *block = w->block;
    if (since == 0) {
        dlpi_runs(&block->running, DLPI_RUNS_NONE);
        DLPI_STORE_RLX(&block->current, UINT64_MAX); /* for observers, here and below */
        return;
    }
    in->units->show(w, a);
    DLPI_STORE_RLX(&block->since_ns, since);
    dlpi_runs(&block->running, DLPI_RUNS_ROW(a->slot, a->row));
}

/* Show observers which item the row of an attempt is. */
static void dlpi_row_show(const dlpi_worker *w, const dlpi_attempt *a) {
    const dlpi_bslot *slot = dlpi_slot_at(w->p, a->slot);
    dlpi_worker_block *block = w->block;
    DLPI_STORE_RLX(&block->current_epoch, slot->epoch); /* for observers, here and below */
    DLPI_STORE_RLX(&block->current_position, (slot->position + a->row) % w->p->samples);
    DLPI_STORE_RLX(&block->current, dlpi_slot_index(w->p, a->slot)[a->row]);
}

/* Free an attempt whose row is done, and set the row's done bit. n: 1, or 0 if nobody worked on
   the row. A row that passed this stage is not counted. Returns true. */
static bool dlpi_attempt_done(dlpi_worker *w, dlpi_attempt *a, uint32_t n) {
    dlpi_in_flight *in = w->self;
    dlpi_unit t = dlpi_attempt_unit(a);
    in->oldest_left |= a->gen == in->oldest;
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_FREE);
    dlpi_row_done(w, &t, n - w->passed);
    w->passed = 0;
    return true;
}

/* Make the worker's item that of the attempt, for the failure policies look at the worker's item.
   Lengths and words are those that the callback has set; the rest is as the slot says. */
static void dlpi_attempt_load(dlpi_worker *w, const dlpi_attempt *a) {
    const dlp_pipe *p = w->p;
    dlpi_item_slot(w, a->slot);
    if (dlpi_row_held(w)) p->holder->cells(w, a->slot, a->row);
    dlpi_item_row(w, a->row);
    w->item.attempt = dlpi_fate_tries(dlpi_slot_fate(p, a->slot)[a->row]);
    if (p->items.any_ragged && !dlpi_writes_first(w)) {
        dlpi_unit t = dlpi_attempt_unit(a);
        dlpi_item_lengths(w, &t, a->row, p->items.n);
    }
    memcpy(w->given.length, a->fields.length, w->given.n_fields * sizeof *w->length);
    dlpi_words_forget(w);
    w->note.row = a->note.row;
    w->block->message_errno = a->errnum; /* also without words */
    if (a->message[0] != 0) memcpy(w->block->message, a->message, sizeof a->message);
}

/* Copy the worker's item to the attempt, with the attempt's own data, lengths and words. */
static void dlpi_attempt_item(const dlpi_worker *w, dlpi_attempt *a) {
    a->item = w->item;
    a->item.data = a->fields.data + w->st->scope.field;
    a->item.length = a->fields.length;
    a->item.call = &a->note;
}

/* DLPIPE_DEBUG: check the guard bytes around an attempt's item, whose callback came to the code rc.
   Returns rc, or DLPI_OVERRUN. */
static int dlpi_attempt_redzone(dlpi_worker *w, dlpi_attempt *a, int rc) {
    if (!DLPI_DEBUG) return rc;
    dlpi_item_slot(w, a->slot); /* the callback may have changed any of its item */
    dlpi_item_row(w, a->row);
    dlpi_attempt_item(w, a);
    return dlpi_redzone_out(w, &a->item, dlpi_redzone_cell(w, dlpi_attempt_number(w, a)), a->slot,
                            a->row, rc);
}

/* End an attempt whose callback came to the code rc: its row is done, or what the policy says. */
static void dlpi_attempt_over(dlpi_worker *w, dlpi_attempt *a, int rc) {
    dlpi_in_flight *in = w->self;
    dlpi_unit t = dlpi_attempt_unit(a);
    rc = dlpi_attempt_redzone(w, a, rc);
    if (rc != DLP_ERR_KILLED && rc != DLP_ERR_DEADLINE) dlpi_attempt_load(w, a); /* else it is */
    w->note.used_random = a->note.used_random;
    const int what = dlpi_row_more(w, &t, a->row, rc);
    if (what == DLPI_ROW_DONE) {
        dlpi_attempt_done(w, a, dlpi_row_counts(w, &t));
        return;
    }
    in->threads.parked |= what == DLPI_ROW_LATER;
    in->oldest_left |= what == DLPI_ROW_REDO;
    dlpi_attempt_move(in, a, what == DLPI_ROW_AGAIN ? DLPI_ATTEMPT_WAITS : DLPI_ATTEMPT_FREE);
    if (what == DLPI_ROW_REDO) dlpi_rows_redo(w, &t, UINT32_C(1) << t.row % DLPI_WORD_ROWS);
}

/* Lay out the item of an attempt for its next callback. first: it is the first one of a try, so the
   row is cleared and opened. */
static void dlpi_attempt_lay(dlpi_worker *w, dlpi_attempt *a, bool first) {
    const bool ragged = w->p->items.any_ragged;
    a->message[0] = 0;
    a->errnum = 0;
    a->note.row = NULL;
    dlpi_attempt_load(w, a);
    dlpi_row_cells(w, a->row, first && !ragged);
    if (first && ragged) dlpi_rows_open(w, a->slot, a->row, a->row + 1);
    dlpi_attempt_item(w, a);
    memcpy(a->fields.data, w->data, sizeof a->fields.data);
    dlpi_redzone_in(w, &a->item, dlpi_redzone_cell(w, dlpi_attempt_number(w, a)), a->slot, a->row);
}

/* True if the answer of the asynchronous source is the first op of a row, and others follow. */
static bool dlpi_row_goes_on(const dlpi_worker *w) {
    return w->chained && dlpi_in_flight_of(w)->async != NULL;
}

/* Prepare the item of an attempt for its next try. */
static void dlpi_attempt_point(dlpi_worker *w, dlpi_attempt *a) {
    a->note.used_random = 0;
    memset(a->fields.length, 0, sizeof a->fields.length);
    dlpi_attempt_lay(w, a, true);
    if (dlpi_row_goes_on(w)) a->item.n_fields = dlpi_program_of(w->st)->op->n;
    if (a->extra != NULL) w->p->source->row(w, &a->item, a->slot, a->row, a->extra);
}

/* Give an item to its source: the user's dlp_async.submit, or the worker's threads. Returns what
   submit returns: 0, DLP_FULL, or a failure. */
static int dlpi_attempt_submit(dlpi_worker *w, dlpi_attempt *a) {
    dlpi_in_flight *in = w->self;
    dlpi_fetch_threads *pool = &in->threads;
    if (in->async != NULL) return in->async->submit(in->user, w->state, &a->item);
    dlpi_mutex_lock(&pool->todo_lock);
    pool->todo[pool->n_todo++ % in->n_all] = a;
    dlpi_cond_signal(&pool->come);
    dlpi_mutex_unlock(&pool->todo_lock);
    return 0;
}

/* Prepare the item of a row for its source. Return true if the row is done without it: it is left
   out, cancelled, no item of the dataset, kept, or poison. */
static bool dlpi_row_ready(dlpi_worker *w, dlpi_attempt *a, uint32_t fate) {
    const dlp_pipe *p = w->p;
    dlpi_unit t = dlpi_attempt_unit(a);
    uint32_t state = dlpi_fate_state(fate);
    int rc;
    dlpi_unpoison(p, a->slot);
    if (state == DLPI_ROW_LEFT) dlpi_row_clear(p, &t, a->row);
    if (state == DLPI_ROW_LEFT || state == DLPI_ROW_END ||
        dlpi_cancelled(p->ctl, dlpi_slot_at(p, a->slot)))
        return dlpi_attempt_done(w, a, 0);
    dlpi_attempt_load(w, a);
    if (DLPI_UNLIKELY(w->item.index - w->st->scope.first >= w->st->scope.n_items)) {
        dlpi_row_other(w, &t, a->row);
        dlpi_failure_forget(w);
        return dlpi_attempt_done(w, a, 1);
    }
    if (dlpi_row_get(w, &t, a->row)) return dlpi_attempt_done(w, a, 1);
    dlpi_attempt_point(w, a);
    rc = dlpi_fate_verdict(w, a->slot, a->row, fate);
    if (rc != 0) dlpi_attempt_over(w, a, rc);
    return rc != 0;
}

/* Do not count `ns` for the requests of this record that are out. */
static void dlpi_in_flight_later(const dlpi_in_flight *in, uint64_t ns) {
    for (dlpi_attempt *a = in->list[DLPI_ATTEMPT_OUT].first; a != NULL; a = a->next)
        DLPI_STORE_RLX(&a->since_ns, DLPI_LOAD_RLX(&a->since_ns) + ns);
}

/* Do not count for requests that are out the time since from_ns, in which the worker was in
   callbacks of its own and took none back. Only a deadline asks for it. */
static void dlpi_in_flight_lag(dlpi_worker *w, uint64_t from_ns) {
    const uint64_t ns = dlpi_stage_limits(w->st) ? dlpi_now_ns() - from_ns : 0;
    if (ns > 0) dlpi_in_flight_later(w->self, ns);
}

/* DLPIPE_DEBUG: clear in the row of an attempt what rows behind have cleared in its guarded cell:
   bytes between the lengths after them and the lengths before. */
static void dlpi_row_shorter(const dlpi_worker *w, const dlpi_attempt *a, const uint64_t *before) {
    for (uint32_t f = 0; f < w->p->items.n; f++) {
        const dlpi_field *d = &w->p->items.at[f];
        const uint64_t now = a->fields.length[f];
        if (d->f.ragged && now < before[f] && before[f] <= (uint64_t)d->f.shape[0])
            memset((uint8_t *)w->data[f] + now * dlpi_row_bytes(d), 0,
                   (size_t)((before[f] - now) * dlpi_row_bytes(d)));
    }
}

/* Go on with a row that its source has answered: call the rows behind. Returns their code. */
static int dlpi_row_behind(dlpi_worker *w, dlpi_attempt *a) {
    uint64_t before[DLP_MAX_FIELDS];
    int rc;
    if (DLPI_DEBUG) memcpy(before, a->fields.length, sizeof before);
    dlpi_attempt_lay(w, a, false);
    dlpi_attempt_begin(w, a);
    dlpi_row_show(w, a);
    DLPI_STORE_RLX(&w->block->since_ns, DLPI_LOAD_RLX(&a->since_ns)); /* for the deadline */
    dlpi_runs(&w->block->running, DLPI_RUNS_ROW(a->slot, a->row));
    rc = dlpi_ops_behind(w->st, &a->item);
    if (DLPI_DEBUG) dlpi_row_shorter(w, a, before);
    dlpi_in_flight_lag(w, DLPI_LOAD_RLX(&a->since_ns));
    dlpi_runs(dlpi_attempt_runs(w, a), DLPI_RUNS_NONE);
    dlpi_in_flight_show(w); /* the row was the one that runs */
    return rc;
}

/* End an attempt at a row whose source came to this code. */
static void dlpi_row_ended(dlpi_worker *w, dlpi_attempt *a, int code) {
    int rc = dlpi_item_returned(w, code);
    if (rc == 0 && dlpi_row_goes_on(w) &&
        (!DLPI_DEBUG || (rc = dlpi_attempt_redzone(w, a, 0)) == 0))
        rc = dlpi_item_returned(w, dlpi_row_behind(w, a));
    dlpi_attempt_over(w, a, rc);
}

/* Take back what was prepared for a source that has no room. */
static void dlpi_row_refused(dlpi_worker *w, const dlpi_attempt *a) {
    const dlpi_unit t = dlpi_attempt_unit(a);
    dlpi_unit_close(w, &t, 0, 1);
}

static uint32_t dlpi_row_fate(const dlpi_worker *w, const dlpi_attempt *a) {
    return dlpi_slot_fate(w->p, a->slot)[a->row];
}

/* Count an attempt less that was busy. If it was out alone, others may be out from here on, unless
   its unit is still busy in a later fetch. */
static void dlpi_attempt_left(const dlpi_in_flight *in) {
    in->head->n_busy--;
    if (in->head->n_busy == 0) in->head->exclusive = false;
}

/* Offer a prepared item to its source. Returns false if the source has no room for it. */
static bool dlpi_attempt_offer(dlpi_worker *w, dlpi_attempt *a, bool exclusive) {
    dlpi_in_flight *in = w->self;
    DLPI_STORE_RLX(&a->since_ns, UINT64_C(0)); /* its thread begins it */
    if (in->async != NULL) dlpi_attempt_begin(w, a);
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_OUT);
    if (dlpi_attempts_out(in) == 1) dlpi_in_flight_show(w);
    const int rc = dlpi_attempt_submit(w, a);
    if (rc != DLP_FULL && !in->units->whole && dlpi_row_kept(w) && dlpi_writes_first(w))
        dlpi_bump(&w->block->kept_misses, 1);
    if (rc == 0) {
        in->head->n_busy += in->later == NULL;
        in->head->exclusive = exclusive;
        return true;
    }
    dlpi_runs(dlpi_attempt_runs(w, a), DLPI_RUNS_NONE);
    if (rc == DLP_FULL) {
        in->units->refused(w, a);
        dlpi_attempt_move(in, a, DLPI_ATTEMPT_WAITS);
    } else {
        in->units->ended(w, a, rc);
        if (in->later != NULL) dlpi_attempt_left(in); /* needs: parts */
    }
    dlpi_in_flight_show(w);
    return rc != DLP_FULL;
}

/* Send the first attempt that waits. Returns false if it must wait longer: for its source, or for
   others to end, since a unit that may have killed a worker is out alone. */
static bool dlpi_attempt_send(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    const dlpi_in_flight *all = in->head;
    dlpi_attempt *a = in->list[DLPI_ATTEMPT_WAITS].first;
    uint32_t fate = in->units->fate(w, a);
    bool exclusive = dlpi_fate_kills(fate) > 0 && dlpi_fate_stage(fate) == (uint32_t)w->st->work;
    if (all->n_busy > (in->later != NULL) && (exclusive || all->exclusive)) return false;
    return in->units->ready(w, a, fate) || dlpi_attempt_offer(w, a, exclusive);
}

/* Let a free attempt take row t->row of slot or cell t->slot. It waits until it is sent. */
static void dlpi_attempt_at(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_in_flight *in = w->self;
    dlpi_attempt *a = in->list[DLPI_ATTEMPT_FREE].first;
    a->gen = t->b;
    a->slot = t->slot;
    a->row = t->row;
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_WAITS);
}

/* Let an attempt take the row of unit t, which was claimed just now, unless it is done. */
static void dlpi_row_take(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_in_flight *in = w->self;
    uint32_t already = dlpi_gather_bits(dlpi_done(dlpi_stage_words_at(w->p, t->slot, w->st)),
                                        t->row / DLPI_WORD_ROWS, t->b);
    if (already >> t->row % DLPI_WORD_ROWS & 1u) return;
    if (t->untouched)
        w->p->source->indices(w, t);
    else if (dlpi_writes_first(w))
        dlpi_unit_indices_again(w, t, already);
    if (t->b < in->oldest) in->oldest = t->b;
    dlpi_attempt_at(w, t);
}

/* Keep the oldest batch of which the worker has a row. */
static void dlpi_in_flight_oldest(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    if (!in->oldest_left) return;
    in->oldest = UINT64_MAX;
    in->oldest_left = false;
    for (uint32_t i = DLPI_ATTEMPT_WAITS; i < DLPI_ATTEMPT_LISTS; i++)
        for (const dlpi_attempt *a = in->list[i].first; a != NULL; a = a->next)
            if (a->gen < in->oldest) in->oldest = a->gen;
    for (int i = 0; i < w->n_parked; i++)
        if (w->parked[i].gen < in->oldest) in->oldest = w->parked[i].gen;
}

/* Set up to which batch the worker may claim, if whole batches go to workers: so many after the
   oldest that it has a row of. */
static void dlpi_in_flight_bound(dlpi_worker *w) {
    const dlpi_stage *st = w->st;
    const dlpi_in_flight *in = w->self;
    uint64_t rows = w->p->batch_rows, many = (uint64_t)st->in_flight, open;
    uint32_t pool = dlpi_fetch_of(w)->d.batch_pool;
    if (st->w.dispatch != DLP_DISPATCH_BATCHES) return;
    dlpi_in_flight_oldest(w);
    open = pool > 0 ? pool / rows : 1 + (many + rows - 1) / rows;
    if (open == 0) open = 1;
    w->claim_end = in->oldest == UINT64_MAX ? 0 : in->oldest + open * (uint64_t)st->n_workers;
}

/* True if the worker takes no row: one more would leave no room to park all rows that it has, or it
   is retired. */
static bool dlpi_rows_no_room(const dlpi_worker *w) {
    const dlpi_in_flight *in = w->self;
    const uint32_t n = in->n_all - in->list[DLPI_ATTEMPT_FREE].n + (uint32_t)w->n_parked;
    return n >= (uint32_t)w->parked_most || dlpi_retired(w);
}

/* Claim a row, if there is one. */
static bool dlpi_row_find(dlpi_worker *w, dlpi_unit *t) {
    dlpi_in_flight_bound(w);
    return dlpi_find(w, t);
}

static const dlpi_unit_ops dlpi_rows_units = {
    .find = dlpi_row_find,
    .take = dlpi_row_take,
    .full = dlpi_rows_no_room,
    .fate = dlpi_row_fate,
    .ready = dlpi_row_ready,
    .refused = dlpi_row_refused,
    .show = dlpi_row_show,
    .ended = dlpi_row_ended,
};

/* ---- claiming and sending ---- */

/* True if the worker takes no more units now. The source has as many as it may have, a unit is out
   alone, an attempt waits for its source, or there is no room. */
static bool dlpi_in_flight_full(const dlpi_worker *w) {
    const dlpi_in_flight *in = w->self;
    return dlpi_attempts_out(in) >= in->most || in->head->exclusive ||
           in->list[DLPI_ATTEMPT_WAITS].first != NULL ||
           (in->units->full != NULL && in->units->full(w));
}

/* Claim a unit, if there is room for one. */
static bool dlpi_in_flight_find(dlpi_worker *w, dlpi_unit *t) {
    const dlpi_in_flight *in = w->self;
    return !in->broken && !dlpi_in_flight_full(w) && in->units->find(w, t);
}

/* Let an attempt take the unit t, which was claimed just now. */
static void dlpi_in_flight_run(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_clock_in(w);
    dlpi_in_flight_of(w)->units->take(w, t);
}

static inline bool dlpi_attempt_free(const dlpi_in_flight *in) {
    return in->list[DLPI_ATTEMPT_FREE].first != NULL;
}

/* Send the attempts that wait, parked rows that are due, and units that can be claimed. A seat
   without a source sends one unit alone, which is done then. Returns true if anything moved. */
static bool dlpi_in_flight_fill(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    bool moved = false;
    dlpi_unit t;
    if (in->broken) return false;
    while (w->n_parked > 0 && dlpi_attempt_free(in) && dlpi_unpark(w, dlpi_attempt_at)) continue;
    for (; !dlpi_stopped(w->p); moved = true) {
        if (in->list[DLPI_ATTEMPT_WAITS].first == NULL) {
            if (!dlpi_in_flight_find(w, &t)) break;
            dlpi_in_flight_run(w, &t);
        } else if (dlpi_attempts_out(in) >= in->most) {
            break;
        } else {
            dlpi_clock_in(w);
            if (!dlpi_attempt_send(w)) break;
            if (in->units->whole && in->async == NULL) return true;
        }
    }
    return moved;
}

/* Return the ns until a parked row may move, at most `ns`. While no attempt is free, parked rows
   wait for one. */
static uint64_t dlpi_in_flight_due(dlpi_worker *w, uint64_t ns) {
    return dlpi_attempt_free(w->self) ? dlpi_rows_due(w, ns) : ns;
}

/* ---- attempts that the source gives back ---- */

/* Fail the pipe, since the worker's asynchronous source broke its word. Returns -1. */
static int dlpi_async_broken(dlpi_worker *w, const char *what, int n) {
    dlp_error e;
    dlpi_words_forget(w);
    dlpi_describe(w, DLP_ERR_CALLBACK, &e);
    snprintf(e.message, sizeof e.message, "async.reap %s %d", what, n);
    dlpi_in_flight_of(w)->broken = true;
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
    return -1;
}

/* Return the attempt of an item that the source gave back; NULL: the source has no such item. */
static dlpi_attempt *dlpi_attempt_of(const dlpi_in_flight *in, const dlp_item *item) {
    uintptr_t at = (uintptr_t)item - (uintptr_t)in->all;
    if (at % sizeof *in->all != 0 || at / sizeof *in->all >= in->n_all) return NULL;
    return in->all[at / sizeof *in->all].in == DLPI_ATTEMPT_OUT ? &in->all[at / sizeof *in->all]
                                                                : NULL;
}

/* Book the time since the last items came back as work. n items came back now, a the first. The
   time of a cell is booked once items are made of it. */
static void dlpi_in_flight_came(dlpi_worker *w, const dlpi_attempt *a, uint64_t now, uint32_t n) {
    uint64_t ns = now - w->last_ns;
    dlpi_in_flight_show(w);
    if (w->last_ns == 0 || dlpi_in_flight_of(w)->units->whole) return;
    dlpi_item_took(w->block, ns / n, 1);
    dlpi_stretch(w, &w->block->busy_ns, ns, DLP_TRACE_WORK, w->last_ns, now, a->gen,
                 dlpi_slot_at(w->p, a->slot)->epoch, n);
    w->last_ns = now;
    if (dlpi_clears_timed(w)) dlpi_clears_over(w, ns);
    dlpi_clears_next(w);
}

/* Take an attempt back from its source, and book how long it was out. */
static void dlpi_attempt_back(dlpi_worker *w, dlpi_attempt *a, uint64_t now) {
    dlpi_in_flight *in = w->self;
    uint64_t since = DLPI_LOAD_RLX(&a->since_ns), ns = now > since ? now - since : 0;
    dlpi_runs(dlpi_attempt_runs(w, a), DLPI_RUNS_NONE);
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_BACK); /* in no source's hands */
    if (!in->units->whole) dlpi_items_took(w->block, ns, 1, a->item.index);
    dlpi_bump(&w->block->in_flight_ns, ns);
}

/* End an attempt that its source gave back with a->code. */
static void dlpi_attempt_end(dlpi_worker *w, dlpi_attempt *a) {
    dlpi_in_flight_of(w)->units->ended(w, a, a->code);
    dlpi_attempt_left(w->self);
}

/* Wait at most timeout_ms for items that the source gives back. Their attempts go to the list BACK,
   with their codes. Returns how many; negative: the source is broken. */
static int dlpi_in_flight_reap(dlpi_worker *w, int timeout_ms) {
    dlpi_in_flight *in = w->self;
    dlp_item *done[DLPI_REAP_MOST];
    int code[DLPI_REAP_MOST];
    int n = in->async->reap(in->user, w->state, done, code, DLPI_REAP_MOST, timeout_ms);
    dlpi_attempt *a = NULL;
    if (n < 0 || n > DLPI_REAP_MOST) return dlpi_async_broken(w, "returned", n);
    if (n == 0) return 0;
    const uint64_t now = dlpi_now_ns();
    for (int i = 0; i < n; i++) {
        a = dlpi_attempt_of(in, done[i]);
        if (a == NULL) return dlpi_async_broken(w, "gave back an unknown item, place", i);
        a->code = code[i];
        dlpi_attempt_back(w, a, now);
    }
    dlpi_in_flight_came(w, a, now, (uint32_t)n);
    if (now - w->cpu.noted_ns > DLPI_CPU_NOTE_NS) dlpi_cpu_note(w, &w->cpu, now);
    return n;
}

/* Return how many ms to wait for items that are out. The time is long if items are out and no more
   can be. Else it is short: soon the worker looks for units, or asks the source again whether it
   has room. */
static int dlpi_in_flight_patience(dlpi_worker *w) {
    const bool full = dlpi_attempts_out(dlpi_in_flight_of(w)) > 0 && dlpi_in_flight_full(w);
    int ms = full ? DLPI_REAP_FULL_MS : DLPI_REAP_ROOM_MS;
    uint64_t due = dlpi_in_flight_due(w, (uint64_t)ms * 1000000u) / 1000000u;
    return due < 1 ? 1 : (int)due;
}

/* ---- threads as a source: each does the worker's work, under its lock ---- */

/* Complete an item whose callback has returned in its own thread, and send others. Returns true if
   the worker, which sleeps, must be woken to look for itself. */
static bool dlpi_fetch_thread_done(dlpi_worker *w, dlpi_attempt *a, dlpi_cpu *cpu) {
    dlpi_in_flight *in = w->self;
    dlpi_fetch_threads *pool = &in->threads;
    uint64_t now = dlpi_now_ns();
    dlpi_attempt_back(w, a, now); /* in the end, too: what close waits for is another one */
    dlpi_in_flight_came(w, a, now, 1);
    /* the more threads, the rarer each: the worker's lock is held */
    if (now - cpu->noted_ns > DLPI_CPU_NOTE_NS * (1 + pool->n_threads / 8))
        dlpi_cpu_note(w, cpu, now);
    if (pool->over) return false;
    if (!dlpi_stopped(w->p)) {
        dlpi_attempt_end(w, a);
        dlpi_in_flight_fill(w);
        if (dlpi_attempts_out(in) > 0 && !pool->parked && (!pool->full || dlpi_in_flight_full(w)))
            return false;
    }
    dlpi_event_add(&pool->word); /* W2 -> W2 */
    return true;
}

/* Wait for an item to fetch, and return its attempt; NULL when all is over. */
static dlpi_attempt *dlpi_fetch_thread_next(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    dlpi_attempt *a = NULL;
    dlpi_mutex_lock(&pool->todo_lock);
    while (!pool->over && (pool->n_begun == pool->n_todo || dlpi_stopped(w->p)))
        dlpi_cond_wait(&pool->come, &pool->todo_lock);
    if (!pool->over) a = pool->todo[pool->n_begun++ % dlpi_in_flight_of(w)->n_all];
    dlpi_mutex_unlock(&pool->todo_lock);
    return a;
}

/* Call fetch for one item after the other, in a thread that belongs to worker arg. The worker's
   lock is held to complete an item, but not in fetch. The thread ends when its pool is over. */
static void *dlpi_thread_fetch(void *arg) {
    dlpi_worker *w = arg;
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    dlpi_cpu cpu = {0};
    dlpi_attempt *a;
    while ((a = dlpi_fetch_thread_next(w)) != NULL) {
        dlpi_attempt_begin(w, a);
        a->code = dlpi_row_call(w->st, &a->item);
        dlpi_mutex_lock(&pool->lock);
        const bool wake = dlpi_fetch_thread_done(w, a, &cpu);
        dlpi_mutex_unlock(&pool->lock); /* a woken thread may run at once, in our place */
        if (wake) dlpi_futex_wake(&pool->word, 1, UINT32_MAX, 0);
    }
    return NULL;
}

/* Let the worker sleep, and leave its work to its threads. */
static void dlpi_fetch_threads_wait(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    uint64_t ns = (uint64_t)dlpi_in_flight_patience(w) * 1000000u;
    uint32_t word = dlpi_event_count(&pool->word); /* W2 <- W2 */
    pool->full = dlpi_in_flight_full(w);
    pool->parked = false;
    dlpi_mutex_unlock(&pool->lock);
    dlpi_futex_wait(&pool->word, word, UINT32_MAX, ns, 0);
    dlpi_mutex_lock(&pool->lock);
    dlpi_in_flight_show(w); /* what is out longest may have begun since */
}

/* Stop and join the fetch threads of worker w. The caller must hold the worker's lock. The call
   waits for each callback that still runs. */
DLPI_COLD static void dlpi_fetch_threads_end(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    dlpi_mutex_lock(&pool->todo_lock);
    pool->over = 1;
    dlpi_cond_broadcast(&pool->come);
    dlpi_mutex_unlock(&pool->todo_lock);
    dlpi_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->n_threads; i++) dlpi_thread_join(&pool->threads[i]);
    pool->n_threads = 0;
}

/* Start the threads of a worker with DLP_FETCH_THREADS. The worker holds their lock then. Returns
   DLP_OK or DLP_ERR_SYSTEM, with the region's error. */
DLPI_COLD static int dlpi_fetch_threads_begin(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    int rc = 0;
    dlp_error e;
    if (dlpi_in_flight_of(w)->async != NULL) return DLP_OK;
    pool->lock = (dlpi_mutex)DLPI_MUTEX_INIT;
    pool->todo_lock = (dlpi_mutex)DLPI_MUTEX_INIT;
    pool->come = (dlpi_cond)DLPI_COND_INIT;
    dlpi_mutex_lock(&pool->lock);
    while (rc == 0 && pool->n_threads < (uint32_t)w->st->in_flight) {
        rc = dlpi_thread_start(&pool->threads[pool->n_threads], dlpi_thread_fetch, w,
                               w->st->w.stack_bytes);
        if (rc == 0) pool->n_threads++;
    }
    if (rc == 0) return DLP_OK;
    dlpi_error_set(&e, DLP_ERR_SYSTEM, "in_flight", "pthread_create of thread %u of %d failed: %s",
                   pool->n_threads + 1, w->st->in_flight, strerror(rc));
    e.errnum = rc;
    e.worker = w->id;
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    dlpi_fetch_threads_end(w);
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
    return DLP_ERR_SYSTEM;
}

/* ---- what a worker does ---- */

/* True if each later fetch behind the seat has a free attempt. The unit of an attempt that ends may
   need one. A seat waits for seats behind it alone, so the last one always goes on. */
static bool dlpi_later_free(const dlpi_in_flight *in) {
    for (in = in->next; in != NULL; in = in->next)
        if (in->later != NULL && !dlpi_attempt_free(in)) return false;
    return true;
}

/* End the attempts that are back, unless the pipe stops. With cells others are read meanwhile.
   Returns true if one has ended. */
static bool dlpi_in_flight_ends(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    dlpi_attempt *a;
    bool moved = false;
    while ((a = in->list[DLPI_ATTEMPT_BACK].first) != NULL && !dlpi_stopped(w->p)) {
        if (!dlpi_later_free(in)) break; /* needs: parts */
        if (in->units->whole) dlpi_in_flight_fill(w);
        dlpi_attempt_end(w, a);
        moved = true;
    }
    return moved;
}

/* True if the worker waits for the source: an item is out, or waits for room there. */
static inline bool dlpi_in_flight_waits(const dlpi_in_flight *in) {
    return dlpi_attempts_out(in) > 0 || in->list[DLPI_ATTEMPT_WAITS].first != NULL;
}

/* Send items to the source, then wait for items that come back, and complete them. Returns false if
   nothing moved, and no item is out or the source is broken; then the worker may sleep. */
static bool dlpi_in_flight_step(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    bool moved = dlpi_in_flight_fill(w);
    int n;
    if (in->broken || !dlpi_in_flight_waits(in)) return moved;
    if (dlpi_stopped(w->p)) return true;
    if (in->async == NULL) {
        dlpi_fetch_threads_wait(w);
        return true;
    }
    n = dlpi_in_flight_reap(w, dlpi_in_flight_patience(w));
    dlpi_in_flight_ends(w);
    /* a source without room, and without items */
    if (n == 0 && dlpi_attempts_out(in) == 0) dlpi_sleep(1000000);
    return true;
}

/* Send items to the source, and complete those that are there. Variant of dlpi_in_flight_step that
   does not wait. Returns true if anything moved. */
static bool dlpi_in_flight_poll(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    bool moved = dlpi_in_flight_fill(w);
    if (in->async == NULL || in->broken || dlpi_stopped(w->p)) return moved;
    if (dlpi_in_flight_waits(in)) moved |= dlpi_in_flight_reap(w, DLP_NOWAIT) > 0;
    return dlpi_in_flight_ends(w) || moved;
}

/* Wait until the source has given back all items, which must be before worker_exit, for the pipe
   stops. The items are not used any more. close waits for this as for any callback. */
DLPI_COLD static void dlpi_in_flight_end(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    if (in->async != NULL)
        while (dlpi_attempts_out(in) > 0 && !in->broken) dlpi_in_flight_reap(w, DLPI_REAP_FULL_MS);
    else if (in->threads.n_threads > 0)
        dlpi_fetch_threads_end(w);
    dlpi_running_forget(w);
}

static bool dlpi_in_flight_owes(const dlpi_worker *w) {
    const dlpi_in_flight *in = w->self;
    return dlpi_in_flight_waits(in) || w->n_parked > 0;
}
