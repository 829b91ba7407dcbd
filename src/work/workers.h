#pragma once
/* tests: system/core/pipe_deadline, system/core/pipe_idle, model/crash_steps */
#include "work/collate.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-workers    STEPS, WAITING, THREADS
   A stage is a step: claim a unit, work on it, pass it on, say whether anything moved. Where it
   runs is decided elsewhere: ops->step is called by the consumer, if inline, and by threads. */

/* Return the ns after which a worker must look for itself, even if nobody wakes it. */
static uint64_t dlpi_worker_due(dlpi_worker *w) {
    return w->st->ops->due != NULL ? w->st->ops->due(w, DLPI_SLEEP_NS) : DLPI_SLEEP_NS;
}

static inline bool dlpi_owes(const dlpi_worker *w) {
    return w->st->ops->owes != NULL && w->st->ops->owes(w);
}

/* True if the worker is retired, and nothing that it has claimed is still to come back. */
DLPI_NOINLINE static bool dlpi_may_park(const dlpi_worker *w) {
    return DLPI_UNLIKELY(dlpi_retired(w)) && !dlpi_owes(w);
}

/* True if the worker takes no unit, whatever comes: it has no room for one, or is retired. */
static bool dlpi_worker_full(const dlpi_worker *w) {
    return w->st->ops->full != NULL && w->st->ops->full(w);
}

/* ---- a worker waits ---- */

typedef struct dlpi_idle_worker {
    dlpi_worker *w;
    dlpi_unit t; /* what the last look found and claimed */
    bool found;
} dlpi_idle_worker;

/* Look for work and do it. Returns true if the worker worked, or if its wait is over. */
static bool dlpi_worker_look(void *who) {
    dlpi_worker *w = ((dlpi_idle_worker *)who)->w;
    return w->last_ns != 0 || w->st->ops->step(w) || dlpi_stopped(w->p) || dlpi_may_park(w);
}

/* Return the ns that a worker's sleep may last; 0: look again instead. Nobody wakes a worker that
   is retired or has no room for work: it sets no bit, and looks often whether the pipe stops. The
   first of those asleep looks after DLPI_SLEEP_NS, should a wake-up be lost because its sender
   died. The others rely on it for ten times as long: many that each look would cost more than
   idleness may. */
static uint64_t dlpi_worker_rest(void *who) {
    dlpi_worker *w = ((dlpi_idle_worker *)who)->w;
    uint64_t ns = dlpi_worker_due(w);
    if (dlpi_stopped(w->p) || dlpi_may_park(w)) return 0;
    if (dlpi_worker_full(w)) {
        dlpi_sleep(ns < DLPI_FULL_NS ? ns : DLPI_FULL_NS);
        return 0;
    }
    /* B1: a hint */
    if (!dlpi_owes(w) && (dlpi_sleepers_mask(dlpi_worker_group(w)) & (dlpi_worker_bit(w) - 1)) != 0)
        ns *= 10;
    return ns;
}

/* Look for work behind the mask. Returns true if there is some, or if the worker takes none. A unit
   that is claimed here is run once the worker's bit is cleared (dlpi_worker_left). A stage whose
   units nobody else can take does them at once. */
static bool dlpi_worker_last(void *who) {
    dlpi_idle_worker *k = who;
    const dlpi_stage_ops *ops = k->w->st->ops;
    k->found = ops->find != NULL ? ops->find(k->w, &k->t) : ops->step(k->w);
    return k->found || dlpi_worker_full(k->w);
}

/* Run the unit that the last look found, now that the worker's bit is cleared: a set bit says that
   its worker can take work. A wake-up that came in between was for other work, and is passed on. */
static void dlpi_worker_left(void *who, bool woken) {
    dlpi_idle_worker *k = who;
    dlpi_worker *w = k->w;
    if (woken && (k->found || dlpi_worker_full(w))) dlpi_wake_some(w->p, w->st, 1);
    if (k->found && w->st->ops->find != NULL) w->st->ops->run(w, &k->t);
}

static const dlpi_wait_ops dlpi_worker_waits = {dlpi_worker_look, dlpi_worker_rest,
                                                dlpi_worker_last, dlpi_worker_left};

/* Sleep until the tuner lets this worker work again: no bit in the mask, so that nobody rings it
   for work, and a check each second only. */
static void dlpi_worker_park(dlpi_worker *w) {
    dlpi_sleepers *group = dlpi_worker_group(w);
    dlpi_clock_stop(w);
    DLPI_STORE_RLX(&w->block->current, UINT64_MAX);
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_PARKED);
    dlpi_cpu_note(w, &w->cpu, dlpi_now_ns());
    while (!dlpi_stopped(w->p)) {
        uint32_t word = dlpi_event_count(&group->word); /* B1 <- B1: before the look at active */
        if (!dlpi_may_park(w)) break;
        dlpi_futex_wait(&group->word, word, 1u << w->id % 32, 10 * DLPI_SLEEP_NS,
                        (int)group->shared);
    }
    w->tail_seen = w->low; /* dlpi_find reads the tail, and does not go through all since then */
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_STARVED);
}

/* True if the stage has one worker, of this process. Then its source may be one that is only read
   on, from where it stands. */
static inline bool dlpi_reads_on(const dlpi_stage *st) {
    return st->n_workers <= 1 && st->w.placement != DLP_PLACE_PROCESSES;
}

/* True if this worker waits for the consumer, which has not taken the batches that are there. All
   units that were fed are claimed here, and there is no credit to feed more. */
static bool dlpi_no_credit(const dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    uint64_t delivered = DLPI_LOAD_RLX(&p->ctl->delivered); /* statistics, as the tail */
    uint64_t tail = DLPI_LOAD_RLX(&p->ctl->tail);
    bool cells = w->claim_end != 0 && w->low == w->claim_end; /* they are all taken */
    return cells || (tail - delivered >= p->prefetch && w->low == tail);
}

/* Wait for work: look a few times more, then sleep. If some workers are kept awake, they look for
   longer, and a worker above their number sleeps at once. */
static void dlpi_worker_wait(dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    dlpi_idle_worker k = {.w = w};
    uint32_t keep = w->st->work < p->n_work ? dlpi_keep_awake(p) : 0;
    bool awake, shares_core = false;
    if (dlpi_may_park(w)) {
        dlpi_worker_park(w);
        return;
    }
    dlpi_clock_stop(w);
    w->wait_ns = dlpi_now_ns();
    DLPI_STORE_RLX(&w->block->current, UINT64_MAX);
    if (keep == 0 || w->waits++ % 16 == 0) /* the words of who is counted on */
        w->blocked = w->st->ops->unit == DLPI_UNIT_CELLS || dlpi_no_credit(w);
    DLPI_STORE_RLX(&w->block->state, w->blocked ? DLP_WORKER_BLOCKED : DLP_WORKER_STARVED);
    w->alone = dlpi_worker_alone(w);
    awake = DLPI_LIKELY(keep == 0) || dlpi_awake_workers(p, w->st) <= keep;
    if (awake && (keep != 0 || w->st->n_workers == 1))
        shares_core = dlpi_awake_shares_core(p, w->waiters);
    if (!awake ||
        !dlpi_wait_awake(dlpi_worker_look, &k, &p->wait, keep != 0, shares_core, UINT64_MAX)) {
        dlpi_cpu_note(w, &w->cpu, w->wait_ns);
        dlpi_wait_asleep(&dlpi_worker_waits, &k, dlpi_worker_group(w), dlpi_worker_bit(w));
    }
    if (w->wait_ns != 0) dlpi_wait_over(w, dlpi_now_ns());
}

/* Let the workers that the consumer runs rest, for next is over or has no more for them to do. What
   they have done is booked, and no wait as work. */
DLPI_COLD static void dlpi_inline_rest(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) {
        const int at = p->work[i]->inline_worker;
        dlpi_worker *w = &p->workers[at >= 0 ? at : 0];
        if (at < 0 || w->last_ns == 0) continue;
        dlpi_clock_stop(w);
        DLPI_STORE_RLX(&w->block->current, UINT64_MAX);
        DLPI_STORE_RLX(&w->block->state, DLP_WORKER_IDLE);
    }
}

/* Run one step of each worker that the consumer runs. Returns true if anything moved, else they
   rest. */
static bool dlpi_inline_steps(dlp_pipe *p) {
    bool moved = false;
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->inline_worker < 0) continue;
        if (st->ops->step(&p->workers[st->inline_worker])) moved = true;
    }
    if (!moved) dlpi_inline_rest(p);
    return moved;
}

/* ---- seats: each source of a stage has a worker_state of its own in each worker ---- */

/* Return how many seats a worker has. A worker without seats is one itself. */
static inline uint32_t dlpi_n_seats(const dlpi_worker *w) {
    return w->seat != NULL ? w->seat->n : 1;
}

/* Let the worker work in seat k: with its state, its requests and its cells. */
static inline void dlpi_seat_take(dlpi_worker *w, uint32_t k) {
    w->seat->at = w->input_at;
    w->seat = dlpi_seats(w) + k;
    w->input_at = w->seat->at;
    w->state = w->seat->state;
    w->self = w->seat->self;
}

/* Call worker_exit in the first n seats of the worker, the last of them first. */
DLPI_COLD static void dlpi_seats_leave(dlpi_worker *w, uint32_t n) {
    while (n-- > 0) {
        const dlp_workers_desc *d = w->seat != NULL ? dlpi_seats(w)[n].calls : &w->st->w;
        if (w->seat != NULL) dlpi_seat_take(w, n);
        if (d != NULL && d->worker_exit) d->worker_exit(d->worker_user, w->id, w->state);
    }
}

/* Call worker_init in each seat of the worker, in their order. Returns 0, or the code of the call
   that failed: worker_exit was called then in the seats before it, and *row is the seat's row. */
DLPI_COLD static int dlpi_seats_enter(dlpi_worker *w, const dlpi_table_row **row) {
    int rc = 0;
    for (uint32_t k = 0; k < dlpi_n_seats(w) && rc == 0; k++) {
        dlpi_seat *seat = w->seat != NULL ? dlpi_seats(w) + k : NULL;
        const dlp_workers_desc *d = seat != NULL ? seat->calls : &w->st->w;
        void **state = seat != NULL ? &seat->state : &w->state;
        if (seat != NULL && d == NULL) *state = dlpi_seats(w)[seat->of].state;
        rc = d != NULL && d->worker_init ? d->worker_init(d->worker_user, w->id, state) : 0;
        *row = seat != NULL ? seat->row : NULL;
        if (rc != 0) dlpi_seats_leave(w, k);
    }
    return rc;
}

/* Begin worker w in the thread or process that calls: call worker_init, then the stage's own
   `enter`. Returns DLP_OK, or a DLP_ERR code; the error is then in the region. If `enter` fails,
   worker_exit has been called. */
DLPI_COLD static int dlpi_worker_begin(dlpi_worker *w) {
    const dlpi_table_row *row = NULL;
    int rc;
    dlp_error e;
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_STARTING);
    DLPI_STORE_RLX(&w->block->tid, (int32_t)dlpi_thread_number()); /* for people */
    DLPI_STORE_RLX(&w->block->pid, dlpi_process_number());         /* for people */
    rc = dlpi_seats_enter(w, &row);
    if (rc == 0 && w->st->ops->enter != NULL && (rc = w->st->ops->enter(w)) != DLP_OK) {
        dlpi_seats_leave(w, dlpi_n_seats(w));
        return rc;
    }
    if (rc == 0) return DLP_OK;
    dlpi_words_forget(w); /* of the one that died in this place */
    w->note.row = row;
    dlpi_describe(w, dlpi_returned(w, rc), &e);
    snprintf(e.message, sizeof e.message, "worker_init returned %d", rc);
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
    return DLP_ERR_CALLBACK;
}

/* End worker w in the thread or process that began it. began: the code that dlpi_worker_begin
   returned. worker_exit is called only if that code was DLP_OK. */
DLPI_COLD static void dlpi_worker_end(dlpi_worker *w, int began) {
    if (w->st->ops->leave != NULL) w->st->ops->leave(w);
    dlpi_clock_stop(w);
    DLPI_STORE_RLX(&w->block->current, UINT64_MAX);
    if (began == DLP_OK) dlpi_seats_leave(w, dlpi_n_seats(w));
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_EXITED);
}

/* Give the calling thread its name, as "fetch-12", and its cores. Printf does not write the name:
   each page that printf touches would be a page fault in each worker process. */
DLPI_COLD static void dlpi_thread_dress(const dlpi_worker *w) {
    char name[16], digits[12];
    const dlpi_stage *st = w->st;
    int n = 0, k = 0, id = w->id;
    for (; n < 11 && st->name[n] != 0; n++) name[n] = st->name[n];
    name[n++] = '-';
    do digits[k++] = (char)('0' + id % 10);
    while ((id /= 10) > 0);
    while (k > 0 && n < 15) name[n++] = digits[--k];
    name[n] = 0;
    dlpi_thread_name(name);
    if (st->w.n_affinity > 0) dlpi_thread_pin((uint32_t)st->affinity[w->id % st->w.n_affinity]);
}

static void dlpi_thread_over(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_EXITED);
    dlpi_event_ring(&p->live_word, UINT32_MAX, 0); /* L1 -> L1: close counts those that ended */
}

/* Run worker arg in a thread of its own until the pipe stops. If the worker cannot begin, the
   thread ends at once. */
static void *dlpi_thread_worker(void *arg) {
    dlpi_worker *w = arg;
    int began;
    dlpi_thread_dress(w);
    began = dlpi_worker_begin(w);
    while (began == DLP_OK && !dlpi_stopped(w->p))
        if (!w->st->ops->step(w)) dlpi_worker_wait(w);
    dlpi_worker_end(w, began);
    dlpi_thread_over(w);
    return NULL;
}
