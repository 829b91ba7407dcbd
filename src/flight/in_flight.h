#pragma once
/* tests: system/core/fetchers, system/shm/shm_fetchers */
#include "queue/spsc.h"
#include "work/recover.h"
#include "work/workers.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-in-flight  ITEMS OF A DATASET, SEVERAL AT ONCE
   A worker of a fetching stage may have one row at a time. Its own item is its attempt then, see
   the section on runs (>>impl-run). Or it has several rows in flight, and the stage has the second
   of the two tables of its kind. The worker has an attempt for each row in hand: the item, its
   lengths, its message. As long as there is room it claims units of one row, as any worker does,
   and gives the rows to its source. It completes each row when the source gives it back. An attempt
   is in one list at a time:

     FREE --claim--> WAITS --submit--> OUT --reap--> FREE: the row is done, or parked (back-off)
       |               ^                 |
       +- parked, due -+----- again <----+

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
   A row that is out and begun has its place in w->at_once (X2), so that recovery knows which rows
   may have killed a worker: each of them counts a kill. From then on such a row is out alone, so
   the next death says whose it was: an innocent row counts one kill at most, the guilty one dies
   alone until it is poison. A row that waits is in no source's hands, and is never blamed.
   While something is out and there is room, the worker looks for new batches every ms: nobody wakes
   it for them. With nothing out it sleeps as others do. */

#define DLPI_REAP_MOST 64
#define DLPI_REAP_ROOM_MS 1 /* ms that reap may wait while the worker has room for more rows */
#define DLPI_REAP_FULL_MS 50

typedef struct dlpi_attempt { /* an attempt at one row that a worker has claimed */
    dlp_item item;            /* first: the source gives back this address */
    void *data[DLP_MAX_FIELDS];
    uint64_t length[DLP_MAX_FIELDS];
    dlp_call note;
    char message[256];
    int32_t errnum;
    int32_t code; /* value that the callback returned in a thread */
    uint64_t gen; /* number of the row's batch */
    uint32_t slot, row;
    uint64_t since_ns; /* time at which its callback or request began; 0: it did not */
    uint32_t in;       /* the list that it is in: DLPI_ATTEMPT_* */
    struct dlpi_attempt *next, *prev;
    void *extra; /* [source->row_bytes] */
} dlpi_attempt;

typedef struct dlpi_attempt_list {
    dlpi_attempt *first, *last;
} dlpi_attempt_list;

enum { DLPI_ATTEMPT_FREE, DLPI_ATTEMPT_WAITS, DLPI_ATTEMPT_OUT, DLPI_ATTEMPT_LISTS };

/* The threads of a worker with DLP_FETCH_THREADS, and what they are to do. */
typedef struct dlpi_fetch_threads {
    pthread_mutex_t lock;      /* guards all fields of the worker while rows are out */
    bool full;                 /* the worker fell asleep without room for rows: it sleeps long */
    bool parked;               /* a row was parked since it fell asleep */
    uint32_t word;             /* W2 futex: the worker sleeps on it */
    pthread_mutex_t todo_lock; /* guards todo, n_todo and n_begun */
    pthread_cond_t come;       /* signalled if `todo` has an attempt, or the threads must end */
    dlpi_attempt **todo;       /* [n_all] ring of attempts that no thread has begun */
    uint64_t n_todo, n_begun;  /* attempts put into the ring, and taken from it, so far */
    int over;                  /* 1: the threads must end; changed under both locks */
    uint32_t n_threads;
    pthread_t *threads; /* [n_all] */
} dlpi_fetch_threads;

typedef struct dlpi_in_flight { /* the rows of one worker that are under way */
    dlpi_attempt *all;          /* [n_all] */
    uint32_t n_all, n_out;      /* attempts; those that the source has */
    dlpi_attempt_list list[DLPI_ATTEMPT_LISTS];
    uint64_t oldest;        /* oldest batch that has a row here */
    bool oldest_left;       /* a row of that batch was done, so `oldest` must be computed again */
    bool exclusive, broken; /* one row is out alone, as it may kill; the source has failed */
    dlpi_fetch_threads threads;
} dlpi_in_flight;

typedef struct dlpi_fetch { /* the record of a stage that fetches */
    dlp_fetch_desc d;
    dlp_dataset dataset;
    dlpi_in_flight *workers; /* [n_workers] if workers have several rows in flight; else NULL */
    dlpi_attempt *attempts;  /* memory of all workers for these lists, and below */
    dlpi_parked *parked;
    dlpi_attempt **todo;
    pthread_t *threads;
    dlpi_seeing seeing;
} dlpi_fetch;

static inline const dlpi_fetch *dlpi_fetch_of(const dlpi_worker *w) { return w->st->self; }
static inline dlpi_in_flight *dlpi_in_flight_of(const dlpi_worker *w) { return w->self; }

/* Return how many rows a worker can have: in flight, and parked, as many as other workers have. */
DLPI_COLD static uint64_t dlpi_in_flight_rows(const dlpi_stage *st) {
    return (uint64_t)st->in_flight + DLPI_PARK;
}

/* Store that the row of an attempt is in a callback from here on: since when, and for recovery. */
static void dlpi_attempt_begin(dlpi_worker *w, dlpi_attempt *a) {
    const dlpi_in_flight *in = w->self;
    DLPI_STORE_RLX(&a->since_ns, dlpi_now_ns()); /* 0 before, for dlpi_in_flight_show */
    dlpi_runs(&w->at_once[a - in->all], DLPI_RUNS_ROW(a->slot, a->row));
}

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
}

static void dlpi_attempt_move(dlpi_in_flight *in, dlpi_attempt *a, uint32_t list) {
    dlpi_attempt_list *l = &in->list[a->in];
    if (a->prev)
        a->prev->next = a->next;
    else
        l->first = a->next;
    if (a->next)
        a->next->prev = a->prev;
    else
        l->last = a->prev;
    dlpi_attempt_put(in, a, list);
}

static dlpi_unit dlpi_attempt_unit(const dlpi_attempt *a) { /* runs are of one row here */
    return (dlpi_unit){a->gen, a->slot, a->row, a->row, a->row + 1, false};
}

/* Show observers and the supervisor the item that is out longest. */
static void dlpi_in_flight_show(dlpi_worker *w) {
    const dlpi_attempt *a = dlpi_in_flight_of(w)->list[DLPI_ATTEMPT_OUT].first;
    uint64_t since = a == NULL ? 0 : DLPI_LOAD_RLX(&a->since_ns); /* of dlpi_attempt_begin */
    const dlpi_bslot *slot;
    dlpi_worker_block *block = w->block;
    if (since == 0) {
        dlpi_runs(&block->running, DLPI_RUNS_NONE);
        DLPI_STORE_RLX(&block->current, UINT64_MAX); /* for observers, here and below */
        return;
    }
    slot = dlpi_slot_at(w->p, a->slot);
    DLPI_STORE_RLX(&block->current_epoch, slot->epoch);
    DLPI_STORE_RLX(&block->current_position, (slot->position + a->row) % w->p->samples);
    DLPI_STORE_RLX(&block->current, dlpi_slot_index(w->p, a->slot)[a->row]);
    DLPI_STORE_RLX(&block->since_ns, since);
    dlpi_runs(&block->running, DLPI_RUNS_ROW(a->slot, a->row));
}

/* Free an attempt whose row is done, and set the row's done bit. n: 1, or 0 if nobody worked on
   the row. */
static void dlpi_attempt_done(dlpi_worker *w, dlpi_attempt *a, uint32_t n) {
    dlpi_in_flight *in = w->self;
    dlpi_unit t = dlpi_attempt_unit(a);
    in->oldest_left |= a->gen == in->oldest;
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_FREE);
    dlpi_row_done(w, &t, n);
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
        dlpi_item_lengths(w, &t, a->row);
    }
    memcpy(w->given.length, a->length, w->given.n_fields * sizeof *w->length);
    dlpi_words_forget(w);
    w->block->message_errno = a->errnum; /* also without words */
    if (a->message[0] != 0) memcpy(w->block->message, a->message, sizeof a->message);
}

/* Copy the worker's item to the attempt, with the attempt's own data, lengths and words. */
static void dlpi_attempt_item(const dlpi_worker *w, dlpi_attempt *a) {
    a->item = w->item;
    a->item.data = a->data + w->st->scope.field;
    a->item.length = a->length;
    a->item.call = &a->note;
}

/* End an attempt whose callback came to the code rc: its row is done, or what the policy says. */
static void dlpi_attempt_over(dlpi_worker *w, dlpi_attempt *a, int rc) {
    dlpi_in_flight *in = w->self;
    dlpi_unit t = dlpi_attempt_unit(a);
    if (DLPI_DEBUG) { /* the callback may have changed any of its item */
        dlpi_item_slot(w, a->slot);
        dlpi_item_row(w, a->row);
        dlpi_attempt_item(w, a);
        rc = dlpi_redzone_out(w, &a->item, dlpi_redzone_cell(w, (uint64_t)(a - in->all)), a->slot,
                              a->row, rc);
    }
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

/* Prepare the item of an attempt for its next try. */
static void dlpi_attempt_point(dlpi_worker *w, dlpi_attempt *a) {
    a->message[0] = 0;
    a->errnum = 0;
    a->note.used_random = 0;
    memset(a->length, 0, sizeof a->length);
    dlpi_attempt_load(w, a);
    dlpi_row_cells(w, a->row, true);
    dlpi_attempt_item(w, a);
    memcpy(a->data, w->data, sizeof a->data);
    if (a->extra != NULL) w->p->source->row(w, &a->item, a->slot, a->row, a->extra);
}

/* Give an item to its source: the user's dlp_async.submit, or the worker's threads. Returns what
   submit returns: 0, DLP_FULL, or a failure. */
static int dlpi_attempt_submit(dlpi_worker *w, dlpi_attempt *a) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    if (dlpi_fetch_of(w)->d.fetcher == DLP_FETCH_ASYNC)
        return dlpi_fetch_of(w)->d.async.submit(w->st->user, w->state, &a->item);
    pthread_mutex_lock(&pool->todo_lock);
    pool->todo[pool->n_todo++ % dlpi_in_flight_of(w)->n_all] = a;
    pthread_cond_signal(&pool->come);
    pthread_mutex_unlock(&pool->todo_lock);
    return 0;
}

/* True if the row is done without its source: it is left out, cancelled, no item of the dataset, or
   kept. If not, its item is prepared. */
static bool dlpi_attempt_settled(dlpi_worker *w, dlpi_attempt *a, uint32_t fate) {
    const dlp_pipe *p = w->p;
    dlpi_unit t = dlpi_attempt_unit(a);
    uint32_t state = dlpi_fate_state(fate);
    if (state == DLPI_ROW_LEFT) dlpi_row_clear(p, &t, a->row);
    if (state == DLPI_ROW_LEFT || state == DLPI_ROW_END ||
        dlpi_cancelled(p->ctl, dlpi_slot_at(p, a->slot))) {
        dlpi_attempt_done(w, a, 0);
        return true;
    }
    dlpi_attempt_load(w, a);
    if (DLPI_UNLIKELY(w->item.index - w->st->scope.first >= w->st->scope.n_items)) {
        dlpi_row_other(w, &t, a->row);
        dlpi_failure_forget(w);
        dlpi_attempt_done(w, a, 1 - w->passed);
        w->passed = 0;
        return true;
    }
    if (dlpi_row_get(w, &t, a->row)) {
        dlpi_attempt_done(w, a, 1);
        return true;
    }
    dlpi_attempt_point(w, a);
    return false;
}

/* Offer a prepared item to its source. Returns false if the source has no room for it. */
static bool dlpi_attempt_offer(dlpi_worker *w, dlpi_attempt *a, bool exclusive) {
    dlpi_in_flight *in = w->self;
    DLPI_STORE_RLX(&a->since_ns, UINT64_C(0)); /* its thread begins it */
    if (dlpi_fetch_of(w)->d.fetcher == DLP_FETCH_ASYNC) dlpi_attempt_begin(w, a);
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_OUT);
    if (in->n_out == 0) dlpi_in_flight_show(w);
    const int rc = dlpi_attempt_submit(w, a);
    if (rc != DLP_FULL && dlpi_row_kept(w) && dlpi_writes_first(w))
        dlpi_bump(&w->block->kept_misses, 1);
    if (rc == 0) {
        in->n_out++;
        in->exclusive = exclusive;
        return true;
    }
    dlpi_runs(&w->at_once[a - in->all], DLPI_RUNS_NONE);
    if (rc == DLP_FULL)
        dlpi_attempt_move(in, a, DLPI_ATTEMPT_WAITS);
    else
        dlpi_attempt_over(w, a, dlpi_item_returned(w, rc));
    dlpi_in_flight_show(w);
    return rc != DLP_FULL;
}

/* Send the first attempt that waits. Returns false if it must wait longer: for its source, or for
   others to come back, since a row that may have killed a worker is out alone. */
static bool dlpi_attempt_send(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    dlpi_attempt *a = in->list[DLPI_ATTEMPT_WAITS].first;
    uint32_t fate = dlpi_slot_fate(w->p, a->slot)[a->row];
    bool exclusive = dlpi_fate_kills(fate) > 0 && dlpi_fate_stage(fate) == (uint32_t)w->st->work;
    int rc;
    if (in->n_out > 0 && (exclusive || in->exclusive)) return false;
    dlpi_unpoison(w->p, a->slot);
    if (dlpi_attempt_settled(w, a, fate)) return true;
    dlpi_redzone_in(w, &a->item, dlpi_redzone_cell(w, (uint64_t)(a - in->all)), a->slot, a->row);
    if ((rc = dlpi_fate_verdict(w, a->slot, fate)) == 0) return dlpi_attempt_offer(w, a, exclusive);
    dlpi_attempt_over(w, a, rc);
    return true;
}

/* Let a free attempt take the row t->row; it waits until it is sent. */
static void dlpi_attempt_at(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_in_flight *in = w->self;
    dlpi_attempt *a = in->list[DLPI_ATTEMPT_FREE].first;
    a->gen = t->b;
    a->slot = t->slot;
    a->row = t->row;
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_WAITS);
}

/* Let an attempt take the row of unit t, which was claimed just now. */
static void dlpi_in_flight_run(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_in_flight *in = w->self;
    uint32_t already = dlpi_gather_bits(dlpi_done(dlpi_stage_words_at(w->p, t->slot, w->st)),
                                        t->row / DLPI_WORD_ROWS, t->b);
    dlpi_clock_in(w);
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
static bool dlpi_in_flight_no_room(const dlpi_worker *w) {
    const dlpi_in_flight *in = w->self;
    uint32_t n = in->n_out + (uint32_t)w->n_parked;
    for (const dlpi_attempt *a = in->list[DLPI_ATTEMPT_WAITS].first; a != NULL; a = a->next) n++;
    return n >= (uint32_t)w->parked_most || dlpi_retired(w);
}

/* True if the worker takes no more rows now. All attempts are out, a row is out alone, an
   attempt waits for its source, there is no room to park, or it is retired. */
static bool dlpi_in_flight_full(const dlpi_worker *w) {
    const dlpi_in_flight *in = w->self;
    return in->n_out >= in->n_all || in->exclusive || in->list[DLPI_ATTEMPT_WAITS].first != NULL ||
           dlpi_in_flight_no_room(w);
}

/* Claim a row, if there is room for one. */
static bool dlpi_in_flight_find(dlpi_worker *w, dlpi_unit *t) {
    const dlpi_in_flight *in = w->self;
    if (in->broken || dlpi_in_flight_full(w)) return false;
    dlpi_in_flight_bound(w);
    return dlpi_find(w, t);
}

static inline bool dlpi_attempt_free(const dlpi_in_flight *in) {
    return in->list[DLPI_ATTEMPT_FREE].first != NULL;
}

/* Send the attempts that wait, parked rows that are due, and rows that can be claimed. Returns true
   if anything moved. */
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
        } else if (in->n_out >= in->n_all) {
            break;
        } else {
            dlpi_clock_in(w);
            if (!dlpi_attempt_send(w)) break;
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
static int dlpi_async_broken(dlpi_worker *w, bool *broken, const char *what, int n) {
    dlp_error e;
    dlpi_words_forget(w);
    dlpi_describe(w, DLP_ERR_CALLBACK, &e);
    snprintf(e.message, sizeof e.message, "async.reap %s %d", what, n);
    *broken = true;
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

/* Book the time since the last items came back as work. n items came back now, a the first. */
static void dlpi_in_flight_came(dlpi_worker *w, const dlpi_attempt *a, uint64_t now, uint32_t n) {
    uint64_t ns = now - w->last_ns;
    dlpi_in_flight_show(w);
    if (w->last_ns == 0) return;
    dlpi_item_took(w->block, ns / n, 1);
    dlpi_stretch(w, &w->block->busy_ns, ns, DLP_TRACE_WORK, w->last_ns, now, a->gen,
                 dlpi_slot_at(w->p, a->slot)->epoch, n);
    w->last_ns = now;
}

/* Take an attempt back from its source, and book how long it was out. */
static void dlpi_attempt_back(dlpi_worker *w, dlpi_attempt *a, uint64_t now) {
    dlpi_in_flight *in = w->self;
    uint64_t since = DLPI_LOAD_RLX(&a->since_ns), ns = now > since ? now - since : 0;
    dlpi_runs(&w->at_once[a - in->all], DLPI_RUNS_NONE);
    in->n_out--;
    in->exclusive = false;
    dlpi_attempt_move(in, a, DLPI_ATTEMPT_WAITS); /* in no source's hands */
    dlpi_items_took(w->block, ns, 1, a->item.index);
    dlpi_bump(&w->block->in_flight_ns, ns);
}

/* Wait at most timeout_ms for items that the source gives back: attempts in back, with the codes of
   their callbacks in code. Returns how many; negative: the source is broken. */
static int dlpi_in_flight_reap(dlpi_worker *w, dlpi_attempt **back, int *code, int timeout_ms) {
    const dlp_async *async = &dlpi_fetch_of(w)->d.async;
    bool *broken = &dlpi_in_flight_of(w)->broken;
    dlp_item *done[DLPI_REAP_MOST];
    int n = async->reap(w->st->user, w->state, done, code, DLPI_REAP_MOST, timeout_ms);
    if (n < 0 || n > DLPI_REAP_MOST) return dlpi_async_broken(w, broken, "returned", n);
    if (n == 0) return 0;
    const uint64_t now = dlpi_now_ns();
    for (int i = 0; i < n; i++) {
        back[i] = dlpi_attempt_of(dlpi_in_flight_of(w), done[i]);
        if (back[i] == NULL)
            return dlpi_async_broken(w, broken, "gave back an unknown item, place", i);
        dlpi_attempt_back(w, back[i], now);
    }
    dlpi_in_flight_came(w, back[0], now, (uint32_t)n);
    if (now - w->cpu.noted_ns > DLPI_CPU_NOTE_NS) dlpi_cpu_note(w, &w->cpu, now);
    return n;
}

static int dlpi_in_flight_patience(dlpi_worker *w) {
    int ms = dlpi_in_flight_full(w) ? DLPI_REAP_FULL_MS : DLPI_REAP_ROOM_MS;
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
        dlpi_attempt_over(w, a, dlpi_item_returned(w, a->code));
        dlpi_in_flight_fill(w);
        if (in->n_out > 0 && !pool->parked && (!pool->full || dlpi_in_flight_full(w))) return false;
    }
    dlpi_event_add(&pool->word); /* W2 -> W2 */
    return true;
}

/* Wait for an item to fetch, and return its attempt; NULL when all is over. */
static dlpi_attempt *dlpi_fetch_thread_next(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    dlpi_attempt *a = NULL;
    pthread_mutex_lock(&pool->todo_lock);
    while (!pool->over && (pool->n_begun == pool->n_todo || dlpi_stopped(w->p)))
        pthread_cond_wait(&pool->come, &pool->todo_lock);
    if (!pool->over) a = pool->todo[pool->n_begun++ % dlpi_in_flight_of(w)->n_all];
    pthread_mutex_unlock(&pool->todo_lock);
    return a;
}

static void *dlpi_thread_fetch(void *arg) {
    dlpi_worker *w = arg;
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    dlpi_cpu cpu = {0};
    dlpi_attempt *a;
    while ((a = dlpi_fetch_thread_next(w)) != NULL) {
        dlpi_attempt_begin(w, a);
        a->code = dlpi_row_call(w->st, &a->item);
        pthread_mutex_lock(&pool->lock);
        const bool wake = dlpi_fetch_thread_done(w, a, &cpu);
        pthread_mutex_unlock(&pool->lock); /* a woken thread may run at once, in our place */
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
    pthread_mutex_unlock(&pool->lock);
    dlpi_futex_wait(&pool->word, word, UINT32_MAX, ns, 0);
    pthread_mutex_lock(&pool->lock);
    dlpi_in_flight_show(w); /* what is out longest may have begun since */
}

DLPI_COLD static void dlpi_fetch_threads_end(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    pthread_mutex_lock(&pool->todo_lock);
    pool->over = 1;
    pthread_cond_broadcast(&pool->come);
    pthread_mutex_unlock(&pool->todo_lock);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
    pool->n_threads = 0;
    pthread_cond_destroy(&pool->come);
    pthread_mutex_destroy(&pool->todo_lock);
    pthread_mutex_destroy(&pool->lock);
}

/* Start the threads of a worker with DLP_FETCH_THREADS. The worker holds their lock then. Returns
   DLP_OK or DLP_ERR_SYSTEM, with the region's error. */
DLPI_COLD static int dlpi_fetch_threads_begin(dlpi_worker *w) {
    dlpi_fetch_threads *pool = &dlpi_in_flight_of(w)->threads;
    const char *call = "";
    int rc = 0;
    dlp_error e;
    if (dlpi_fetch_of(w)->d.fetcher != DLP_FETCH_THREADS) return DLP_OK;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_mutex_init(&pool->todo_lock, NULL);
    pthread_cond_init(&pool->come, NULL);
    pthread_mutex_lock(&pool->lock);
    while (rc == 0 && pool->n_threads < (uint32_t)w->st->in_flight) {
        rc = dlpi_thread_create(w, &pool->threads[pool->n_threads], dlpi_thread_fetch, &call);
        if (rc == 0) pool->n_threads++;
    }
    if (rc == 0) return DLP_OK;
    dlpi_error_set(&e, DLP_ERR_SYSTEM, "in_flight", "%s of thread %u of %d failed: %s", call,
                   pool->n_threads + 1, w->st->in_flight, strerror(rc));
    e.errnum = rc;
    e.worker = w->id;
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    dlpi_fetch_threads_end(w);
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
    return DLP_ERR_SYSTEM;
}

/* ---- what a worker does ---- */

static bool dlpi_in_flight_step(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    dlpi_attempt *back[DLPI_REAP_MOST];
    int code[DLPI_REAP_MOST], n;
    bool moved = dlpi_in_flight_fill(w);
    if (in->broken || (in->n_out == 0 && in->list[DLPI_ATTEMPT_WAITS].first == NULL)) return moved;
    if (dlpi_stopped(w->p)) return true;
    if (dlpi_fetch_of(w)->d.fetcher == DLP_FETCH_THREADS) {
        dlpi_fetch_threads_wait(w);
        return true;
    }
    n = dlpi_in_flight_reap(w, back, code, dlpi_in_flight_patience(w));
    for (int i = 0; i < n; i++) dlpi_attempt_over(w, back[i], dlpi_item_returned(w, code[i]));
    /* a source without room, and without items */
    if (n == 0 && in->n_out == 0) dlpi_sleep(1000000);
    return true;
}

/* Wait until the source has given back all items, which must be before worker_exit, for the pipe
   stops. The items are not used any more. close waits for this as for any callback. */
DLPI_COLD static void dlpi_in_flight_end(dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    dlpi_attempt *back[DLPI_REAP_MOST];
    int code[DLPI_REAP_MOST];
    if (dlpi_fetch_of(w)->d.fetcher == DLP_FETCH_ASYNC)
        while (in->n_out > 0 && !in->broken) dlpi_in_flight_reap(w, back, code, DLPI_REAP_FULL_MS);
    else if (in->threads.n_threads > 0)
        dlpi_fetch_threads_end(w);
    dlpi_running_forget(w);
}

static bool dlpi_in_flight_owes(const dlpi_worker *w) {
    const dlpi_in_flight *in = w->self;
    return in->n_out > 0 || in->list[DLPI_ATTEMPT_WAITS].first != NULL || w->n_parked > 0;
}

/* ---- the memory of the stage ---- */

DLPI_COLD static void dlpi_fetch_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_OWN_HIDDEN), dlpi_line_up((uint64_t)st->in_flight * 8),
                  (uint64_t)st->n_workers, DLPI_LINE);
}

static int dlpi_fetch_blocks(const dlp_pipe *p DLPI_UNREAD, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_fetch *f = st->self;
    uint64_t n = (uint64_t)st->n_workers, all = dlpi_times(n, (uint64_t)st->in_flight);
    uint64_t rows = dlpi_times(n, dlpi_in_flight_rows(st));
    out[0] = (dlpi_block){offsetof(dlpi_fetch, workers), dlpi_times(n, sizeof *f->workers)};
    out[1] = (dlpi_block){offsetof(dlpi_fetch, attempts), dlpi_times(all, sizeof *f->attempts)};
    out[2] = (dlpi_block){offsetof(dlpi_fetch, parked), dlpi_times(rows, sizeof *f->parked)};
    if (f->d.fetcher != DLP_FETCH_THREADS) return 3;
    out[3] = (dlpi_block){offsetof(dlpi_fetch, todo), dlpi_times(all, sizeof(void *))};
    out[4] = (dlpi_block){offsetof(dlpi_fetch, threads), dlpi_times(all, sizeof *f->threads)};
    return 5;
}

/* Give a worker its attempts, all free, and room for parked rows. */
DLPI_COLD static void dlpi_in_flight_init(dlpi_worker *w) {
    const dlpi_fetch *f = dlpi_fetch_of(w);
    dlpi_in_flight *in = &f->workers[w->id];
    size_t each = (size_t)w->st->in_flight, from = (size_t)w->id * each;
    memset(in, 0, sizeof *in);
    in->n_all = (uint32_t)each;
    in->oldest = UINT64_MAX;
    in->all = f->attempts + from;
    if (f->d.fetcher == DLP_FETCH_THREADS) {
        in->threads.todo = f->todo + from;
        in->threads.threads = f->threads + from;
    }
    for (size_t i = 0; i < each; i++) {
        dlpi_attempt *a = &in->all[i];
        a->item = w->item;
        a->item.data = a->data;
        a->item.length = a->length;
        a->note.message = a->message;
        a->note.errnum = &a->errnum;
        a->note.w = w;
        a->item.call = &a->note;
        a->extra = dlpi_row_extra_at(w->p, w, i);
        dlpi_attempt_put(in, a, DLPI_ATTEMPT_FREE);
    }
    w->parked_most = (int)dlpi_in_flight_rows(w->st);
    w->parked = f->parked + (size_t)w->id * (size_t)w->parked_most;
    w->at_once = dlpi_area_at(w->p, DLPI_OWN(w->st->id, DLPI_OWN_HIDDEN), (uint64_t)w->id);
    w->n_at_once = in->n_all;
    w->self = in;
}

/* The functions of all kinds that keep several rows in flight. */
#define DLPI_OPS_OF_IN_FLIGHT \
    .row_by_row = 1, .unit = DLPI_UNIT_ROWS, .layout = dlpi_fetch_layout, \
    .blocks = dlpi_fetch_blocks, .private_words = "items in flight, and parked", \
    .worker = dlpi_in_flight_init, .enter = dlpi_fetch_threads_begin, .leave = dlpi_in_flight_end, \
    .step = dlpi_in_flight_step, .find = dlpi_in_flight_find, .run = dlpi_in_flight_run, \
    .full = dlpi_in_flight_no_room, .owes = dlpi_in_flight_owes, .due = dlpi_in_flight_due
