#pragma once
#include "stages/parts.h"
#include "core/run.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-flights    SEVERAL ITEMS AT ONCE IN ONE WORKER
   A worker whose fetch stage has in_flight items at once keeps a flight for each: the item, its
   lengths, its message. It claims units of one row, as any worker does, as long as there is room;
   gives the rows to its source; and completes each when the source gives it back. A flight is in
   one list at a time:

     FREE --claim--> WAITS --submit--> OUT --reap--> FREE, or by the error policy
                       ^                 |             WAITS (again at once), PARKED (back-off)
                       +--- no room <----+

   The source is the user's (dlp_async), or threads of the worker's own that run dataset.fetch. With
   an asynchronous source all is done by the worker's own thread. Its threads, if it has some, work
   in its place: who is through with an item completes it and claims and sends what there is room
   for, then takes the next item of the ring of what is to do. So while something is out, nobody
   waits for the worker, which on cores that are all busy would get its turn milliseconds later. All
   that is the worker's is under pool.lock then, which the worker itself holds but for its sleep
   while rows are out: they wake it when it is to look for new batches, when a row was parked, when
   nothing is out, and when the pipe stops. The ring has a lock of its own, taken behind the other,
   so that a row is begun while others are claimed.
   A row that is out and begun has its place in flying (X2), so that recovery knows which rows may
   have killed a worker: each of them counts a kill. From then on such a row is out alone, so the
   next death says whose it was: who is innocent counts one kill at most, who is not dies alone
   until it is poison. A row that waits is in no source's hands, and is never blamed.
   While something is out and there is room, the worker looks for new batches every ms: it does not
   hear its bell then. With nothing out it sleeps as others do. */

#define DLPI_REAP_MOST 64
#define DLPI_REAP_ROOM_MS 1 /* while more could be claimed, if there were more */
#define DLPI_REAP_FULL_MS 50

/* A callback is about to have the row. */
static void dlpi_flight_begin(dlpi_flights *fl, dlpi_flight *f) {
    DLPI_STORE_RLX(&f->since_ns, dlpi_now_ns()); /* 0 before, for dlpi_flights_show */
    DLPI_STORE_RLX(&fl->flying[f - fl->all],
                   (uint64_t)f->slot << 32 | (f->row + 1u)); /* X2 to recovery */
}

static void dlpi_flight_put(dlpi_flights *fl, dlpi_flight *f, uint32_t list) {
    dlpi_flight_list *l = &fl->list[list];
    f->in = list;
    f->next = NULL;
    f->prev = l->last;
    if (l->last)
        l->last->next = f;
    else
        l->first = f;
    l->last = f;
}

static void dlpi_flight_move(dlpi_flights *fl, dlpi_flight *f, uint32_t list) {
    dlpi_flight_list *l = &fl->list[f->in];
    if (f->prev)
        f->prev->next = f->next;
    else
        l->first = f->next;
    if (f->next)
        f->next->prev = f->prev;
    else
        l->last = f->prev;
    dlpi_flight_put(fl, f, list);
}

static dlpi_unit dlpi_flight_unit(const dlpi_flight *f) { /* runs are of one row here */
    dlpi_unit t = {f->gen, f->slot, f->row, f->row, f->row + 1, false};
    return t;
}

/* Nothing is out; or, of a dead worker: what it had out is of no interest. */
static void dlpi_running_forget(dlpi_worker *w) {
    const dlpi_flights *fl = w->flights;
    DLPI_STORE_RLX(&w->wb->running, UINT64_C(0)); /* X2 */
    for (uint32_t i = 0; fl != NULL && i < fl->n_all; i++)
        DLPI_STORE_RLX(&fl->flying[i], UINT64_C(0)); /* X2 */
}

/* What observers and the supervisor see: the item that is out longest. */
static void dlpi_flights_show(dlpi_worker *w) {
    const dlpi_flight *f = w->flights->list[DLPI_FLIGHT_OUT].first;
    uint64_t since = f == NULL ? 0 : DLPI_LOAD_RLX(&f->since_ns); /* of dlpi_flight_begin */
    const dlpi_bslot *slot;
    dlpi_wblock *wb = w->wb;
    if (since == 0) {
        DLPI_STORE_RLX(&wb->running, UINT64_C(0)); /* X2 */
        DLPI_STORE_RLX(&wb->current, UINT64_MAX);  /* for observers, here and below */
        return;
    }
    slot = dlpi_slot_at(w->p, f->slot);
    DLPI_STORE_RLX(&wb->current_epoch, slot->epoch);
    DLPI_STORE_RLX(&wb->current_position, (slot->position + f->row) % w->p->samples);
    DLPI_STORE_RLX(&wb->current, dlpi_slot_index(w->p, f->slot)[f->row]);
    DLPI_STORE_RLX(&wb->since_ns, since);
    DLPI_STORE_RLX(&wb->running, (uint64_t)f->slot << 32 | (f->row + 1u)); /* X2 to recovery */
}

/* The row of a flight is done. n: 1, or 0 if nobody worked on it. */
static void dlpi_flight_done(dlpi_worker *w, dlpi_flight *f, uint32_t n) {
    dlpi_unit t = dlpi_flight_unit(f);
    w->flights->oldest_left |= f->gen == w->flights->oldest;
    dlpi_flight_move(w->flights, f, DLPI_FLIGHT_FREE);
    dlpi_bump(&w->wb->items, n);
    dlpi_bump(&w->wb->bytes, n * w->p->items.cell_bytes);
    dlpi_complete(w, &t, UINT32_C(1) << t.row % DLPI_WORD_ROWS);
}

/* The failure policies speak of the worker's item: make it that of the flight. Of what the callback
   had its lengths and words are taken, the rest is as the slot says. */
static void dlpi_flight_load(dlpi_worker *w, const dlpi_flight *f) {
    const dlp_pipe *p = w->p;
    dlpi_item_slot(w, f->slot);
    dlpi_item_row(w, f->row);
    w->item.attempt = dlpi_rec_tries(dlpi_slot_rec(p, f->slot)[f->row]);
    memcpy(w->length, f->length, p->items.n * sizeof *w->length);
    dlpi_words_forget(w);
    w->wb->message_errno = f->errnum; /* also without words */
    if (f->message[0] != 0) memcpy(w->wb->message, f->message, sizeof f->message);
}

/* The item of a flight is the worker's, with what is the flight's own. */
static void dlpi_flight_item(const dlpi_worker *w, dlpi_flight *f) {
    f->item = w->item;
    f->item.data = f->data;
    f->item.length = f->length;
    f->item.internal = &f->note;
}

/* The callback of a flight came to rc, a code: done, or what the policy says. */
static void dlpi_flight_over(dlpi_worker *w, dlpi_flight *f, int rc) {
    dlpi_flights *fl = w->flights;
    dlpi_unit t = dlpi_flight_unit(f);
    int what = DLPI_ROW_DONE;
    if (DLPI_DEBUG) { /* the callback may have changed any of its item */
        dlpi_item_slot(w, f->slot);
        dlpi_item_row(w, f->row);
        dlpi_flight_item(w, f);
        rc = dlpi_guard_out(w, &f->item, dlpi_guard_cell(w, (uint64_t)(f - fl->all)), f->slot,
                            f->row, rc);
    }
    if (rc != DLP_ERR_KILLED && rc != DLP_ERR_DEADLINE) dlpi_flight_load(w, f); /* else it is */
    if (rc == 0 && dlpi_lengths_set(w)) rc = dlpi_row_lengths(w, &t, f->row);
    if (rc == 0 && w->p->keeper != NULL && f->note.drew == 0) w->p->keeper->ops->keeper->put(w);
    if (rc != 0) {
        what = dlpi_row_failed(w, &t, f->row, rc);
        dlpi_failure_forget(w);
    }
    if (what == DLPI_ROW_DONE) {
        dlpi_flight_done(w, f, dlpi_rec_state(dlpi_slot_rec(w->p, t.slot)[t.row]) != DLPI_ROW_END);
        return;
    }
    f->due_ns = fl->due_ns;
    fl->pool.parked |= what == DLPI_ROW_LATER;
    dlpi_flight_move(fl, f, what == DLPI_ROW_LATER ? DLPI_FLIGHT_PARKED : DLPI_FLIGHT_WAITS);
}

/* Set the item up for its next try. */
static void dlpi_flight_point(dlpi_worker *w, dlpi_flight *f) {
    const dlp_pipe *p = w->p;
    f->message[0] = 0;
    f->errnum = 0;
    f->note.drew = 0;
    memset(f->length, 0, sizeof f->length);
    dlpi_flight_load(w, f);
    dlpi_flight_item(w, f);
    memcpy(f->data, w->data, sizeof f->data);
    if (p->parts) {
        dlpi_item_part(w, f->slot, f->row);
        f->part = w->part;
        f->item.part = &f->part;
    }
    for (uint32_t i = 0; i < p->items.n && !p->fetch->dataset.fills_rows; i++)
        memset(f->data[i], 0, p->items.at[i].row_bytes);
}

/* Give an item to the source: the user's, or the worker's threads. As dlp_async.submit. */
static int dlpi_flight_submit(dlpi_worker *w, dlpi_flight *f) {
    dlpi_fetchers *pool = &w->flights->pool;
    if (w->st->fetcher == DLP_FETCH_ASYNC)
        return w->st->async.submit(w->st->user, w->state, &f->item);
    pthread_mutex_lock(&pool->ring);
    pool->todo[pool->n_todo++ % w->flights->n_all] = f;
    pthread_cond_signal(&pool->come);
    pthread_mutex_unlock(&pool->ring);
    return 0;
}

/* Offer the first flight that waits. Returns false while it has to wait on. */
static bool dlpi_flight_send(dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    dlpi_flights *fl = w->flights;
    dlpi_flight *f = fl->list[DLPI_FLIGHT_WAITS].first;
    dlpi_unit t = dlpi_flight_unit(f);
    uint32_t rec = dlpi_slot_rec(p, f->slot)[f->row];
    bool alone = dlpi_rec_kills(rec) > 0 && dlpi_rec_stage(rec) == (uint32_t)w->st->work;
    int rc;
    if (fl->n_out > 0 && (alone || fl->alone)) return false;
    dlpi_unpoison(p, f->slot);
    if (dlpi_rec_state(rec) == DLPI_ROW_LEFT) dlpi_row_clear(p, &t, f->row);
    if (dlpi_rec_state(rec) == DLPI_ROW_LEFT || dlpi_rec_state(rec) == DLPI_ROW_END ||
        !dlpi_wanted(p->ctl, dlpi_slot_at(p, f->slot))) {
        dlpi_flight_done(w, f, 0);
        return true;
    }
    dlpi_flight_load(w, f);
    if (DLPI_UNLIKELY(w->item.index >= p->fetch->dataset.n_items)) {
        dlpi_row_no_item(w, &t, f->row);
        dlpi_failure_forget(w);
        dlpi_flight_done(w, f, 1);
        return true;
    }
    dlpi_flight_point(w, f);
    if (p->keeper != NULL && p->keeper->ops->keeper->get(w, &t, f->row)) {
        dlpi_flight_done(w, f, 1);
        return true;
    }
    dlpi_guard_in(w, &f->item, dlpi_guard_cell(w, (uint64_t)(f - fl->all)), f->slot, f->row);
    if ((rc = dlpi_rec_verdict(w, f->slot, rec)) != 0) {
        dlpi_flight_over(w, f, rc);
        return true;
    }
    DLPI_STORE_RLX(&f->since_ns, UINT64_C(0)); /* its thread begins it */
    if (w->st->fetcher == DLP_FETCH_ASYNC) dlpi_flight_begin(fl, f);
    dlpi_flight_move(fl, f, DLPI_FLIGHT_OUT);
    if (fl->n_out == 0) dlpi_flights_show(w);
    rc = dlpi_flight_submit(w, f);
    if (rc != DLP_FULL && p->keeper != NULL) dlpi_bump(&w->wb->kept_misses, 1);
    if (rc == 0) {
        fl->n_out++;
        fl->alone = alone;
        return true;
    }
    DLPI_STORE_RLX(&fl->flying[f - fl->all], UINT64_C(0)); /* X2 */
    if (rc == DLP_FULL)
        dlpi_flight_move(fl, f, DLPI_FLIGHT_WAITS);
    else
        dlpi_flight_over(w, f, dlpi_item_returned(w, rc));
    dlpi_flights_show(w);
    return rc != DLP_FULL;
}

/* A unit was claimed: a flight has it now. */
static void dlpi_flight_take(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_flights *fl = w->flights;
    dlpi_flight *f = fl->list[DLPI_FLIGHT_FREE].first;
    uint32_t already =
        dlpi_done_bits(dlpi_done(dlpi_sst_at(w->p, t->slot, w->st)), t->row / DLPI_WORD_ROWS, t->b);
    if (already >> t->row % DLPI_WORD_ROWS & 1u) return;
    if (t->plain)
        dlpi_unit_indices(w, t);
    else
        dlpi_unit_indices_again(w, t, already);
    f->gen = t->b;
    f->slot = t->slot;
    f->row = t->row;
    if (t->b < fl->oldest) fl->oldest = t->b;
    dlpi_flight_move(fl, f, DLPI_FLIGHT_WAITS);
}

/* Up to which batch may this worker claim? oldest: of the batches it has a row of. */
static void dlpi_flights_bound(dlpi_worker *w) {
    const dlpi_stage *st = w->st;
    uint64_t rows = w->p->batch_rows, many = (uint64_t)st->in_flight, open;
    open = st->batch_pool > 0 ? st->batch_pool / rows : 1 + (many + rows - 1) / rows;
    if (open == 0) open = 1;
    w->claim_end = 0;
    if (st->w.dispatch == DLP_DISPATCH_BATCHES && w->flights->oldest != UINT64_MAX)
        w->claim_end = w->flights->oldest + open * (uint64_t)st->n_workers;
}

static void dlpi_flights_oldest(dlpi_worker *w) {
    dlpi_flights *fl = w->flights;
    if (!fl->oldest_left || w->st->w.dispatch != DLP_DISPATCH_BATCHES) return;
    fl->oldest = UINT64_MAX;
    fl->oldest_left = false;
    for (uint32_t i = DLPI_FLIGHT_WAITS; i < DLPI_FLIGHT_LISTS; i++)
        for (const dlpi_flight *f = fl->list[i].first; f != NULL; f = f->next)
            if (f->gen < fl->oldest) fl->oldest = f->gen;
}

/* Claim a row, if there is room for one. */
static bool dlpi_flights_find(dlpi_worker *w, dlpi_unit *t) {
    const dlpi_flights *fl = w->flights;
    if (fl->broken || dlpi_retired(w) || fl->list[DLPI_FLIGHT_FREE].first == NULL ||
        fl->list[DLPI_FLIGHT_WAITS].first != NULL || fl->n_out >= (uint32_t)w->st->in_flight ||
        (fl->n_out > 0 && fl->alone))
        return false;
    dlpi_flights_oldest(w);
    dlpi_flights_bound(w);
    return dlpi_find(w, t);
}

/* Send what waits or is due, and what can be claimed. Returns whether anything moved. */
static bool dlpi_flights_fill(dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    dlpi_flights *fl = w->flights;
    dlpi_flight *f, *next;
    uint64_t now = fl->list[DLPI_FLIGHT_PARKED].first ? dlpi_now_ns() : 0;
    bool moved = false;
    dlpi_unit t;
    if (fl->broken) return false;
    for (f = fl->list[DLPI_FLIGHT_PARKED].first; f != NULL; f = next) {
        next = f->next;
        if (f->due_ns > now && dlpi_wanted(p->ctl, dlpi_slot_at(p, f->slot))) continue;
        dlpi_flight_move(fl, f, DLPI_FLIGHT_WAITS);
    }
    for (; !dlpi_stopped(p); moved = true) {
        if (fl->list[DLPI_FLIGHT_WAITS].first == NULL) {
            if (!dlpi_flights_find(w, &t)) break;
            dlpi_clock_in(w);
            dlpi_flight_take(w, &t);
        } else if (fl->n_out >= (uint32_t)w->st->in_flight) {
            break;
        } else {
            dlpi_clock_in(w);
            if (!dlpi_flight_send(w)) break;
        }
    }
    return moved;
}

/* ns until a parked flight is due, at most `least`. */
static uint64_t dlpi_flights_due(dlpi_worker *w, uint64_t least) {
    const dlpi_flights *fl = w->flights;
    uint64_t now;
    const dlpi_flight *f = fl->list[DLPI_FLIGHT_PARKED].first;
    if (f == NULL) return least;
    for (now = dlpi_now_ns(); f != NULL; f = f->next) {
        uint64_t ns = f->due_ns > now ? f->due_ns - now : 0;
        if (ns < least) least = ns;
    }
    return least;
}

/* ---- what comes back ---- */

static void dlpi_flights_broken(dlpi_worker *w, const char *what, int rc) {
    dlp_error e;
    dlpi_words_forget(w);
    dlpi_describe(w, DLP_ERR_CALLBACK, &e);
    snprintf(e.message, sizeof e.message, "async.reap %s %d", what, rc);
    w->flights->broken = true;
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
}

/* The flight of an item that the source gave back; NULL: it has no such item. */
static dlpi_flight *dlpi_flight_of(const dlpi_flights *fl, const dlp_item *item) {
    uintptr_t at = (uintptr_t)item - (uintptr_t)fl->all;
    if (at % sizeof *fl->all != 0 || at / sizeof *fl->all >= fl->n_all) return NULL;
    return fl->all[at / sizeof *fl->all].in == DLPI_FLIGHT_OUT ? &fl->all[at / sizeof *fl->all]
                                                               : NULL;
}

/* The time of what came back: the worker was busy since it was here last. */
static void dlpi_flights_clock(dlpi_worker *w, const dlpi_flight *f, uint64_t now, uint32_t n) {
    dlpi_wblock *wb = w->wb;
    uint64_t ns = now - w->last_ns, each = ns / n, average = DLPI_LOAD_RLX(&wb->item_ns);
    average = average == 0 ? each : (average * 7 + each) / 8;
    DLPI_STORE_RLX(&wb->item_ns, average ? average : 1); /* statistics, here and below */
    dlpi_bump(&wb->busy_ns, ns);
    dlpi_trace_add(w, DLP_TRACE_WORK, w->last_ns, now, f->gen, dlpi_slot_at(w->p, f->slot)->epoch,
                   n);
    w->last_ns = now;
}

/* An item is out no longer: book how long it was. */
static void dlpi_flight_back(dlpi_worker *w, dlpi_flight *f, uint64_t now) {
    dlpi_flights *fl = w->flights;
    uint64_t since = DLPI_LOAD_RLX(&f->since_ns), ns = now > since ? now - since : 0;
    uint32_t *bucket = &w->wb->hist[dlpi_hist_bucket(ns)];
    DLPI_STORE_RLX(&fl->flying[f - fl->all], UINT64_C(0)); /* X2 */
    fl->n_out--;
    fl->alone = false;
    dlpi_flight_move(fl, f, DLPI_FLIGHT_WAITS); /* in no source's hands */
    DLPI_STORE_RLX(bucket, *bucket + 1);        /* statistics, here and below */
    if (ns > w->wb->max_ns) DLPI_STORE_RLX(&w->wb->max_ns, ns);
    dlpi_bump(&w->wb->flight_ns, ns);
}

/* n items came back, f the first of them. */
static void dlpi_flights_came(dlpi_worker *w, const dlpi_flight *f, uint64_t now, int n) {
    dlpi_flights_show(w);
    if (w->last_ns != 0) dlpi_flights_clock(w, f, now, (uint32_t)n);
}

/* Take what the source gives back within timeout_ms. Returns how many, negative: it is broken. */
static int dlpi_flights_take(dlpi_worker *w, dlpi_flight **back, int *code, int timeout_ms) {
    const dlpi_stage *st = w->st;
    dlp_item *done[DLPI_REAP_MOST];
    uint64_t now;
    int n = st->async.reap(st->user, w->state, done, code, DLPI_REAP_MOST, timeout_ms);
    if (n < 0 || n > DLPI_REAP_MOST) return dlpi_flights_broken(w, "returned", n), -1;
    if (n == 0) return 0;
    now = dlpi_now_ns();
    for (int i = 0; i < n; i++) {
        back[i] = dlpi_flight_of(w->flights, done[i]);
        if (back[i] == NULL)
            return dlpi_flights_broken(w, "gave back what was not out, at place", i), -1;
        dlpi_flight_back(w, back[i], now);
    }
    dlpi_flights_came(w, back[0], now, n);
    return n;
}

/* Is there nothing to look for, whatever comes in? */
static bool dlpi_flights_full(const dlpi_worker *w) {
    const dlpi_flights *fl = w->flights;
    return fl->n_out >= (uint32_t)w->st->in_flight || fl->alone ||
           fl->list[DLPI_FLIGHT_WAITS].first != NULL || fl->list[DLPI_FLIGHT_FREE].first == NULL;
}

static int dlpi_flights_patience(dlpi_worker *w) {
    int ms = dlpi_flights_full(w) ? DLPI_REAP_FULL_MS : DLPI_REAP_ROOM_MS;
    uint64_t due = dlpi_flights_due(w, (uint64_t)ms * 1000000u) / 1000000u;
    return due < 1 ? 1 : (int)due;
}

/* ---- threads as a source: each does the worker's work, under its lock ---- */

/* An item is through in its own thread: complete it, and send others. Returns whether the worker,
   which sleeps, is to look for itself. */
static bool dlpi_fetcher_done(dlpi_worker *w, dlpi_flight *f, dlpi_cpu *cpu) {
    dlpi_flights *fl = w->flights;
    dlpi_fetchers *pool = &fl->pool;
    uint64_t now = dlpi_now_ns();
    dlpi_flight_back(w, f, now); /* in the end, too: what close waits for is another one */
    dlpi_flights_came(w, f, now, 1);
    /* the more threads, the rarer each: the worker's lock is held */
    if (now - cpu->noted_ns > DLPI_CPU_NOTE_NS * (1 + pool->n_threads / 8))
        dlpi_cpu_note(w, cpu, now);
    if (pool->over) return false;
    if (!dlpi_stopped(w->p)) {
        dlpi_flight_over(w, f, dlpi_item_returned(w, f->code));
        dlpi_flights_fill(w);
        if (fl->n_out > 0 && !pool->parked && (!pool->full || dlpi_flights_full(w))) return false;
    }
    DLPI_ADD_SEQ(&pool->word, 1u); /* W2 -> W2 */
    return true;
}

/* Take what is to do, when there is something. Returns NULL when all is over. */
static dlpi_flight *dlpi_fetcher_next(dlpi_worker *w) {
    dlpi_fetchers *pool = &w->flights->pool;
    dlpi_flight *f = NULL;
    pthread_mutex_lock(&pool->ring);
    while (!pool->over && (pool->n_begun == pool->n_todo || dlpi_stopped(w->p)))
        pthread_cond_wait(&pool->come, &pool->ring);
    if (!pool->over) f = pool->todo[pool->n_begun++ % w->flights->n_all];
    pthread_mutex_unlock(&pool->ring);
    return f;
}

static void *dlpi_thread_fetch(void *arg) {
    dlpi_worker *w = arg;
    dlpi_fetchers *pool = &w->flights->pool;
    dlpi_cpu cpu = {0, 0, 0};
    dlpi_flight *f;
    while ((f = dlpi_fetcher_next(w)) != NULL) {
        bool wake;
        dlpi_flight_begin(w->flights, f);
        f->code = w->st->item(w->st->user, &f->item);
        pthread_mutex_lock(&pool->lock);
        wake = dlpi_fetcher_done(w, f, &cpu);
        pthread_mutex_unlock(&pool->lock); /* who is woken may run at once, in our place */
        if (wake) dlpi_futex_wake(&pool->word, 1, UINT32_MAX, 0);
    }
    return NULL;
}

/* The worker sleeps, and leaves its work to its threads. */
static void dlpi_fetchers_wait(dlpi_worker *w) {
    dlpi_fetchers *pool = &w->flights->pool;
    uint64_t ns = (uint64_t)dlpi_flights_patience(w) * 1000000u;
    uint32_t word = DLPI_LOAD_SEQ(&pool->word); /* W2 <- W2 */
    pool->full = dlpi_flights_full(w);
    pool->parked = false;
    pthread_mutex_unlock(&pool->lock);
    dlpi_futex_wait(&pool->word, word, UINT32_MAX, ns, 0);
    pthread_mutex_lock(&pool->lock);
    dlpi_flights_show(w); /* what is out longest may have begun since */
}

/* The worker has the lock. */
static void dlpi_fetchers_end(dlpi_worker *w) {
    dlpi_fetchers *pool = &w->flights->pool;
    pthread_mutex_lock(&pool->ring);
    pool->over = 1;
    pthread_cond_broadcast(&pool->come);
    pthread_mutex_unlock(&pool->ring);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
    pool->n_threads = 0;
    pthread_cond_destroy(&pool->come);
    pthread_mutex_destroy(&pool->ring);
    pthread_mutex_destroy(&pool->lock);
}

/* Start the threads of a worker whose source they are. It has the lock then. */
static int dlpi_fetchers_begin(dlpi_worker *w) {
    dlpi_fetchers *pool = &w->flights->pool;
    const char *what = "pthread_attr_init";
    pthread_attr_t attr;
    int rc, attr_rc;
    dlp_error e;
    if (w->st->fetcher != DLP_FETCH_THREADS) return DLP_OK;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_mutex_init(&pool->ring, NULL);
    pthread_cond_init(&pool->come, NULL);
    pthread_mutex_lock(&pool->lock);
    rc = attr_rc = pthread_attr_init(&attr);
    if (rc == 0) what = "pthread_create";
    if (rc == 0 && w->st->w.stack_bytes)
        rc = pthread_attr_setstacksize(&attr, (size_t)w->st->w.stack_bytes);
    while (rc == 0 && pool->n_threads < (uint32_t)w->st->in_flight) {
        rc = pthread_create(&pool->threads[pool->n_threads], &attr, dlpi_thread_fetch, w);
        if (rc == 0) pool->n_threads++;
    }
    if (attr_rc == 0) pthread_attr_destroy(&attr);
    if (rc == 0) return DLP_OK;
    dlpi_error_set(&e, DLP_ERR_SYSTEM, "in_flight", "%s of thread %u of %d failed: %s", what,
                   pool->n_threads + 1, w->st->in_flight, strerror(rc));
    e.errnum = rc;
    e.worker = w->id;
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    dlpi_fetchers_end(w);
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
    return DLP_ERR_SYSTEM;
}

/* ---- what a worker does ---- */

static bool dlpi_flights_step(dlpi_worker *w) {
    dlpi_flights *fl = w->flights;
    dlpi_flight *back[DLPI_REAP_MOST];
    int code[DLPI_REAP_MOST], n;
    bool moved = dlpi_flights_fill(w);
    if (fl->broken || (fl->n_out == 0 && fl->list[DLPI_FLIGHT_WAITS].first == NULL)) return moved;
    if (dlpi_stopped(w->p)) return true;
    if (w->st->fetcher == DLP_FETCH_THREADS) {
        dlpi_fetchers_wait(w);
        return true;
    }
    n = dlpi_flights_take(w, back, code, dlpi_flights_patience(w));
    for (int i = 0; i < n; i++) dlpi_flight_over(w, back[i], dlpi_item_returned(w, code[i]));
    if (n == 0 && fl->n_out == 0) dlpi_nap(1000000); /* a source without room, and without items */
    return true;
}

/* The pipe stops: the source's hands are to be empty before worker_exit. What comes back now is not
   wanted any more. close waits for this as for any callback. */
static void dlpi_flights_end(dlpi_worker *w) {
    dlpi_flights *fl = w->flights;
    dlpi_flight *back[DLPI_REAP_MOST];
    int code[DLPI_REAP_MOST];
    if (w->st->fetcher == DLP_FETCH_ASYNC)
        while (fl->n_out > 0 && !fl->broken) dlpi_flights_take(w, back, code, DLPI_REAP_FULL_MS);
    else if (fl->pool.n_threads > 0)
        dlpi_fetchers_end(w);
    dlpi_running_forget(w);
}

static void dlpi_flights_run(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_clock_in(w);
    dlpi_flight_take(w, t);
}

static bool dlpi_flights_no_room(const dlpi_worker *w) {
    return w->flights->list[DLPI_FLIGHT_FREE].first == NULL;
}

static bool dlpi_flights_owes(const dlpi_worker *w) {
    const dlpi_flights *fl = w->flights;
    return fl->n_out > 0 || fl->list[DLPI_FLIGHT_WAITS].first != NULL ||
           fl->list[DLPI_FLIGHT_PARKED].first != NULL;
}
