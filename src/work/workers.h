#pragma once
/* tests: system/core/pipe_deadline, system/core/pipe_idle, model/crash_steps */
#include "work/collate.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-workers    STEPS, WAITING, THREADS
   A stage is a step: claim a unit, work on it, pass it on, say whether anything moved. Where it
   runs is decided elsewhere: ops->step is called by the consumer, if inline, and by threads. */

/* How many a stage has at first: as its desc says, else as many as its kind. */
static void dlpi_workers_begin(dlpi_stage *st) {
    if (st->w.num_workers == 0) st->w.num_workers = st->ops->workers;
    if (st->w.num_workers == DLP_NONE) st->w.num_workers = 0;
}

/* ns until a worker has to look for itself, whoever wakes it; at most a sleep. */
static uint64_t dlpi_worker_due(dlpi_worker *w) {
    return w->st->ops->due != NULL ? w->st->ops->due(w, DLPI_SLEEP_NS) : DLPI_SLEEP_NS;
}

static inline bool dlpi_owes(const dlpi_worker *w) {
    return w->st->ops->owes != NULL && w->st->ops->owes(w);
}

static inline bool dlpi_full(const dlpi_worker *w) {
    return w->st->ops->full != NULL && w->st->ops->full(w);
}

/* Retired, and nothing that it has claimed is still to come back? */
static inline bool dlpi_may_park(const dlpi_worker *w) {
    return DLPI_UNLIKELY(dlpi_retired(w)) && !dlpi_owes(w);
}

/* The last look before a sleep. What was claimed is run once the worker is no longer taken for
   asleep; a stage whose units nobody else can take does them at once. */
static bool dlpi_last_look(dlpi_worker *w, dlpi_unit *t) {
    const dlpi_stage_ops *ops = w->st->ops;
    return ops->find != NULL ? ops->find(w, t) : ops->step(w);
}

/* Nobody wakes a worker that is retired or has no room for work: it looks often whether the pipe
   stops. */
static void dlpi_worker_rest(const dlpi_worker *w, uint64_t ns) {
    if (ns > 0 && !dlpi_stopped(w->p)) dlpi_sleep(ns < DLPI_FULL_NS ? ns : DLPI_FULL_NS);
}

/* Why no wake-up is lost: the word is read, then the bit is set, then the worker looks once more. A
   batch that is published before that look is found by it; whoever publishes one after it sees the
   bit (B1 is sequentially consistent with what the look reads), clears it and changes the word, so
   the futex does not sleep, or is woken. Why none is wasted: a set bit says that its worker can
   take work now. So it is cleared before work that the last look found; a wake-up that came in
   between was for other work, and is passed on; and one without room for work sets none. Should a
   wake-up be lost all the same (its sender died), the first of those asleep looks after
   DLPI_SLEEP_NS. The others rely on it for ten times as long: many that each look would cost more
   than idleness may. */
static void dlpi_worker_sleep(dlpi_worker *w) {
    dlpi_sleepers *group = dlpi_worker_group(w);
    uint64_t bit = dlpi_worker_bit(w), asleep;
    uint64_t ns = dlpi_worker_due(w);
    dlpi_unit t;
    bool found = false, woken;
    uint32_t word = dlpi_event_count(&group->word); /* B1 <- B1: before the bit */
    if (dlpi_may_park(w)) return;
    if (dlpi_full(w) || dlpi_retired(w)) {
        dlpi_worker_rest(w, ns);
        return;
    }
    asleep = dlpi_sleepers_mask(group); /* a hint */
    dlpi_sleepers_enter(group, bit);    /* B1 -> B1 */
    if (!dlpi_owes(w) && (asleep & (bit - 1u)) != 0) ns *= 10;
    if (ns > 0 && !dlpi_stopped(w->p)) {
        found = dlpi_last_look(w, &t);
        if (!found && !dlpi_retired(w))
            dlpi_futex_wait(&group->word, word, dlpi_sleepers_bits(bit), ns, (int)group->shared);
    }
    woken = dlpi_sleepers_leave(group, bit);
    if (woken && (found || dlpi_retired(w)) && w->st->w.dispatch != DLP_DISPATCH_BATCHES)
        dlpi_wake_some(w->waiters, (uint32_t)w->st->n_workers, 1);
    if (found && w->st->ops->find != NULL) w->st->ops->run(w, &t);
}

/* Sleep until the tuner lets this worker work again: no bit in the mask, so that nobody rings it
   for work, and a check each second only. */
static void dlpi_worker_park(dlpi_worker *w) {
    dlpi_sleepers *group = dlpi_worker_group(w);
    dlpi_clock_stop(w);
    dlpi_trace_flush(w);
    DLPI_STORE_RLX(&w->block->current, UINT64_MAX);
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_PARKED);
    dlpi_cpu_note(w, &w->cpu, dlpi_now_ns());
    while (!dlpi_stopped(w->p)) {
        uint32_t word = dlpi_event_count(&group->word); /* B1 <- B1: before the look at active */
        if (!dlpi_retired(w)) break;
        dlpi_futex_wait(&group->word, word, 1u << w->id % 32, 10 * DLPI_SLEEP_NS,
                        (int)group->shared);
    }
    w->tail_seen = w->low; /* dlpi_find reads the tail, and does not go through all since then */
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_STARVED);
}

/* Is it one worker, and of this process? Then its source may be one that is only read on. */
static inline bool dlpi_reads_on(const dlpi_stage *st) {
    return st->n_workers <= 1 && st->w.placement != DLP_PLACE_PROCESSES;
}

/* Does this worker wait for the consumer, which has not taken the batches that are there? All units
   that were fed are claimed here, and there is no credit to feed more. */
static bool dlpi_no_credit(const dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    uint64_t delivered = DLPI_LOAD_RLX(&p->ctl->delivered); /* statistics, as the tail */
    uint64_t tail = DLPI_LOAD_RLX(&p->ctl->tail);
    bool cells = w->claim_end != 0 && w->low == w->claim_end; /* they are all taken */
    return cells || (tail - delivered >= p->prefetch && w->low == tail);
}

/* Look a few times more before a sleep. Where some are kept awake: for longer, or, by one of those
   above that number, not at all. Returns whether something has moved. */
static bool dlpi_worker_awake(dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    uint32_t keep = w->st->work < p->n_work ? dlpi_keep_awake(p) : 0, *here = NULL;
    if (DLPI_UNLIKELY(keep != 0) && dlpi_awake_workers(p, w->st) > keep) return false;
    w->awake.rounds = 0;
    if (keep != 0 || w->st->n_workers == 1) here = &w->waiters->cpu;
    while (dlpi_awake_round(p, &w->awake, keep != 0, here))
        if (w->st->ops->step(w) || dlpi_stopped(p) || dlpi_may_park(w)) return true;
    return false;
}

/* Nothing to do: spin a little, yield where threads outnumber the cores, then sleep. */
static void dlpi_worker_wait(dlpi_worker *w) {
    const dlp_pipe *p = w->p;
    bool (*step)(dlpi_worker *) = w->st->ops->step;
    if (dlpi_may_park(w)) {
        dlpi_worker_park(w);
        return;
    }
    dlpi_clock_stop(w);
    w->wait_ns = dlpi_now_ns();
    DLPI_STORE_RLX(&w->block->current, UINT64_MAX);
    if (dlpi_keep_awake(p) == 0 || w->awake.waits % 16 == 0) /* the words of who is counted on */
        w->blocked = w->st->ops->unit == DLPI_UNIT_CELLS || dlpi_no_credit(w);
    DLPI_STORE_RLX(&w->block->state, w->blocked ? DLP_WORKER_BLOCKED : DLP_WORKER_STARVED);
    if (dlpi_worker_awake(w)) goto moved;
    dlpi_cpu_note(w, &w->cpu, w->wait_ns);
    dlpi_trace_flush(w); /* an observer sees while it sleeps all that it did */
    while (!dlpi_stopped(p)) {
        dlpi_worker_sleep(w);
        if (w->last_ns != 0 || step(w) || dlpi_may_park(w)) break; /* it worked, or is over */
    }
moved:
    if (w->wait_ns != 0) dlpi_wait_over(w, dlpi_now_ns());
}

/* Run what is inline; returns whether anything moved. */
static bool dlpi_inline_steps(dlp_pipe *p) {
    bool moved = false;
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->w.num_workers > 0) continue;
        if (st->ops->step(&p->workers[st->first_worker])) moved = true;
    }
    return moved;
}

static int dlpi_worker_begin(dlpi_worker *w) {
    const dlp_workers_desc *d = &w->st->w;
    int rc;
    dlp_error e;
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_STARTING);
    DLPI_STORE_RLX(&w->block->tid, (int32_t)syscall(SYS_gettid)); /* for people */
    DLPI_STORE_RLX(&w->block->pid, (int32_t)getpid());            /* for people */
    rc = d->worker_init ? d->worker_init(d->worker_user, w->id, &w->state) : 0;
    if (rc == 0 && w->st->ops->enter != NULL && (rc = w->st->ops->enter(w)) != DLP_OK) {
        if (d->worker_exit) d->worker_exit(d->worker_user, w->id, w->state);
        return rc;
    }
    if (rc == 0) return DLP_OK;
    dlpi_words_forget(w); /* of the one that died in this place */
    dlpi_describe(w, dlpi_returned(w, rc), &e);
    snprintf(e.message, sizeof e.message, "worker_init returned %d", rc);
    dlpi_ctl_fail(w->p, (uint32_t)w->global, &e);
    return DLP_ERR_CALLBACK;
}

static void dlpi_worker_end(dlpi_worker *w, int began) {
    const dlp_workers_desc *d = &w->st->w;
    if (w->st->ops->leave != NULL) w->st->ops->leave(w);
    dlpi_clock_stop(w);
    dlpi_trace_flush(w);
    DLPI_STORE_RLX(&w->block->current, UINT64_MAX);
    if (began == DLP_OK && d->worker_exit) d->worker_exit(d->worker_user, w->id, w->state);
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_EXITED);
}

/* "fetch-12", without what printf would touch: each page of it is a fault of each process. */
static void dlpi_thread_name(const dlpi_worker *w, char name[16]) {
    char digits[12];
    int n = 0, k = 0, id = w->id;
    for (; n < 11 && w->st->name[n] != 0; n++) name[n] = w->st->name[n];
    name[n++] = '-';
    do digits[k++] = (char)('0' + id % 10);
    while ((id /= 10) > 0);
    while (k > 0 && n < 15) name[n++] = digits[--k];
    name[n] = 0;
}

static void dlpi_thread_dress(const dlpi_worker *w) {
    char name[16];
    const dlpi_stage *st = w->st;
    dlpi_thread_name(w, name);
    prctl(PR_SET_NAME, name);
    if (st->w.n_affinity > 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)st->affinity[w->id % st->w.n_affinity], &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
}

/* A thread for worker w: its own, or one that works for it. Returns 0, or the errno of *call. */
static int dlpi_thread_create(dlpi_worker *w, pthread_t *thread, void *(*run)(void *),
                              const char **call) {
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    *call = "pthread_attr_init";
    if (rc != 0) return rc;
    *call = "pthread_create";
    if (w->st->w.stack_bytes) rc = pthread_attr_setstacksize(&attr, (size_t)w->st->w.stack_bytes);
    if (rc == 0) rc = pthread_create(thread, &attr, run, w);
    pthread_attr_destroy(&attr);
    return rc;
}

static void dlpi_thread_over(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    DLPI_STORE_RLX(&w->block->state, DLP_WORKER_EXITED);
    dlpi_event_ring(&p->live_word, UINT32_MAX, 0); /* L1 -> L1: close counts those that ended */
}

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
