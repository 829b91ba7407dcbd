#pragma once
/* tests: system/core/topologies, system/core/pipe_deadline */
#include "inputs/add.h"
#include "build/helps.h" /* needs: help */
#include "inputs/check.h"
#include "inputs/cells.h" /* needs: parts */
#include "deliver/deliver.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-placement  WHERE STAGES RUN
   Inline in the consumer, in threads, or in processes: this is resolved here, once. What follows
   from it for others is a number of its own: workers of a stage (an inline one is one), how long to
   spin. On the word of a stage sleep w.num_workers of them, of an inline stage none. */

static bool dlpi_in_processes(const dlpi_stage *st) {
    return st->w.num_workers > 0 && st->w.placement == DLP_PLACE_PROCESSES;
}

/* Return the default of prefetch_factor: 2 if a stage has threads or processes, 1 if the consumer
   does all the work. */
static uint32_t dlpi_prefetch_least(const dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].w.num_workers > 0) return 2;
    return 1;
}

/* Append to p->work the stages that have workers and take this unit (DLPI_UNIT_*), in the order of
   the chain. Set how many workers each has. An inline stage has one, and one counts more where the
   consumer helps. */
static void dlpi_staff_unit(dlp_pipe *p, int unit) {
    for (dlpi_stage *st = p->sampler; st < p->stages + p->n_stages; st++) {
        if (st->ops->unit != unit) continue;
        if (st->ops->staff != NULL && !st->ops->staff(p, st)) continue;
        st->work = p->n_staffed;
        dlpi_tune_check(p, st);
        st->n_workers = st->w.num_workers > 0 ? st->w.num_workers : 1;
        st->n_workers += st->w.consumer_helps; /* needs: help */
        st->at_first = st->begin > 0 ? st->begin : 1;
        if (dlpi_in_processes(st)) p->n_procs += st->n_workers;
        p->work[p->n_staffed++] = st;
    }
}

/* List the stages that have workers: first stages of rows, then of batches, then of cells. */
static void dlpi_staff(dlp_pipe *p) {
    p->n_staffed = p->n_procs = 0;
    dlpi_staff_unit(p, DLPI_UNIT_ROWS);
    p->n_item_work = p->n_staffed;
    p->run_shift_most = DLPI_RUN_SHIFT_MAX;
    for (int i = 0; i < p->n_item_work; i++)
        if (p->work[i]->ops->row_by_row) p->run_shift_most = 0;
    dlpi_staff_unit(p, DLPI_UNIT_BATCHES);
    p->n_work = p->n_staffed;
    dlpi_staff_unit(p, DLPI_UNIT_CELLS);
    for (int i = 0; i < p->n_stages; i++) dlpi_check_helps(p, &p->stages[i]); /* needs: help */
}

/* Return for how many workers of each stage, beside the consumer, there is a core; at least 1. If
   more waited awake, one that works would want the core of another that only waits. */
static uint32_t dlpi_wait_fits(const dlp_pipe *p) {
    for (uint32_t keep = 1;; keep++) {
        uint32_t n = 1, most = 0;
        for (int i = 0; i < p->n_work; i++) {
            uint32_t workers = (uint32_t)p->work[i]->w.num_workers;
            n += workers < keep ? workers : keep;
            if (workers > most) most = workers;
        }
        if (n > (uint32_t)p->cpus) return keep > 1 ? keep - 1 : 1;
        if (keep >= most) return UINT32_MAX;
    }
}

/* Set how long a thread spins before it sleeps: 14 us if each thread has a core. Else it spins for
   1 us, or with one core not at all, and then yields. Warn if more workers work at first than there
   are cores. */
static void dlpi_wait_rule_set(dlp_pipe *p) {
    int begin = 1, peers = 1;
    bool alone = p->sampler->w.num_workers == 0; /* needs: parts */
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->w.num_workers == 0) continue;
        peers += st->w.num_workers;
        alone &= i >= p->n_work; /* needs: parts */
        if (i < p->n_work && !st->ops->in_order) begin += st->at_first;
    }
    if (p->sampler->w.num_workers > 0)
        peers++;
    else
        p->scheduler_sleep_ns = 0; /* the consumer schedules */
    p->pace.burst = 1;
    if (alone) dlpi_inputs_under_way(p); /* needs: parts */
    p->wait.threads = peers;
    p->wait.awake_ns = DLPI_AWAKE_NS;
    p->awake.fits = dlpi_wait_fits(p);
    if (peers > 1)
        dlpi_wait_share((uint32_t)peers, (uint32_t)p->cpus, &p->wait.spin_ns, &p->wait.yields);
    if (begin - 1 > p->cpus)
        dlpi_warn(p,
                  "%d worker threads on %d cores; if items compute rather than wait, lower "
                  "num_workers",
                  begin - 1, p->cpus);
}

/* Warn if the stage's desc sets a field that has no effect, since the stage is inline or has
   nothing to do. */
static void dlpi_live_idle(dlp_pipe *p, const dlpi_stage *st) {
    const char *field = st->w.deadline_ms || st->timed  ? "deadline_ms"
                        : st->w.stack_bytes             ? "stack_bytes"
                        : st->w.n_affinity              ? "affinity"
                        : st->work < 0 && st->w.retries ? "retries"
                                                        : NULL;
    if ((st->work < 0 || st->w.num_workers == 0) && field != NULL)
        dlpi_warn(p, "%s: %s has no effect without workers; set num_workers", st->name, field);
    else if (!DLPI_HAS_AFFINITY && st->w.n_affinity > 0)
        dlpi_warn(p, "%s: affinity has no effect: " DLPI_SYSTEM " binds no threads here", st->name);
}

/* Set which worker of a stage the consumer runs: the last one, if there are more than threads or
   processes. end: number of the worker behind the stage's last one. */
static void dlpi_place_inline(dlpi_stage *st, int end) {
    st->inline_worker = (int16_t)(st->n_workers > st->w.num_workers ? end - 1 : -1);
}

static const uint32_t dlpi_timed = 0;

/* Note in a worker's record whether it runs in a process. This is done before the forks. Later a
   write would give the calling process, too, a copy of the record's page. */
static void dlpi_place_worker(dlpi_worker *w) {
    w->started = w->joined = w->process = dlpi_in_processes(w->st);
    w->shows =
        dlpi_one_at_once(w->st) && (w->process || w->st->timed != 0 || w->st->w.deadline_ms != 0);
    w->untimed = w->global != w->st->inline_worker ? &dlpi_timed : &w->p->pace.clock_off;
}

/* ---- threads ---- */

/* Start the thread of a worker with the function `run`. Returns DLP_OK, or the code of the pipe's
   error. */
static int dlpi_worker_start(dlp_pipe *p, dlpi_worker *w, void *(*run)(void *)) {
    int rc;
    w->started = 1;
    if ((rc = dlpi_thread_start(&w->thread, run, w, w->st->w.stack_bytes)) == 0) {
        p->n_threads++;
        return DLP_OK;
    }
    w->started = 0;
    if (rc == EINVAL && w->st->w.stack_bytes)
        return dlpi_refuse(p, DLP_ERR_ARG, w->st->name, "stack_bytes",
                           "the system refuses stack_bytes %" PRIu64 "; set whole pages, 16384 or "
                           "more, or 0",
                           w->st->w.stack_bytes);
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, rc, "pthread_create");
}

/* Start the worker threads and the scheduler's thread, and begin the inline workers. Worker
   processes run already. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_start_threads(dlp_pipe *p) {
    int rc = DLP_OK;
    for (int i = 0; i < p->n_staffed && rc == DLP_OK; i++) {
        const dlpi_stage *st = p->work[i];
        for (int k = 0; k < st->n_workers && rc == DLP_OK; k++) {
            dlpi_worker *w = &p->workers[st->first_worker + k];
            if (dlpi_in_processes(st)) continue; /* they are there */
            if (w->global != st->inline_worker) {
                w->watched = st->w.deadline_ms != 0 || st->timed != 0;
                w->block->pid = dlpi_process_number();
                rc = dlpi_worker_start(p, w, dlpi_thread_worker);
            } else if (dlpi_worker_begin(w) != DLP_OK) {
                rc = dlpi_pipe_fail(p, &p->ctl->error);
            } else {
                w->joined = -1; /* an inline worker that has begun */
            }
        }
    }
    if (rc == DLP_OK && p->sampler->w.num_workers)
        rc = dlpi_worker_start(p, p->consumer, dlpi_thread_scheduler);
    return rc;
}

/* Return how many of the pipe's threads have not ended yet. */
static uint32_t dlpi_running(const dlp_pipe *p) {
    return (uint32_t)p->n_threads - dlpi_event_count(&p->live_word); /* L1 <- L1 */
}

/* Wait at most `ns` until all threads have ended, and join them. A sleep counts for no longer than
   it should last: in a process or machine that was stopped, nobody could end meanwhile. Returns
   false if a thread still runs then. */
static bool dlpi_await_threads(dlp_pipe *p, uint64_t ns) {
    while (dlpi_running(p) > 0) {
        uint32_t word = dlpi_event_count(&p->live_word); /* L1 <- L1 */
        const uint64_t from = dlpi_now_ns(), most = ns < DLPI_SLEEP_NS ? ns : DLPI_SLEEP_NS;
        uint64_t took;
        if (dlpi_running(p) == 0) break;
        if (ns == 0) return false;
        dlpi_futex_wait(&p->live_word, word, UINT32_MAX, most, 0);
        took = dlpi_now_ns() - from;
        ns -= took < most ? took : most;
        dlpi_wake_all(p);
    }
    for (int i = 0; i <= p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        if (w->started && !w->joined) dlpi_thread_join(&w->thread);
        if (w->started) w->joined = 1;
    }
    return true;
}

/* Set the pipe's error to DLP_ERR_BUSY, and return it. The error names the stage of a worker that
   is in a callback. If no worker is, it names a thread that has not ended: it is in its init or
   exit, the sampler's or the device's callback. */
static int dlpi_busy(dlp_pipe *p) {
    dlp_error e;
    dlpi_worker *who = NULL;
    dlpi_error_set(&e, DLP_ERR_BUSY, "", "a callback has not returned within close_timeout_ms");
    for (int i = 0; i <= p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        int state = DLPI_LOAD_RLX(&w->block->state); /* for people */
        if (!w->started || w->process || state == DLP_WORKER_EXITED) continue;
        if (who == NULL || state == DLP_WORKER_BUSY) who = w;
        if (state == DLP_WORKER_BUSY) break;
    }
    if (who) dlpi_describe_current(who, DLPI_LOAD_RLX(&who->block->current), &e); /* for people */
    p->err = e;
    return e.code;
}

/* End the inline workers. The pipe's threads have ended, or were never started. */
static void dlpi_close_rest(dlp_pipe *p) {
    for (int i = 0; i < p->n_workers; i++) {
        if (p->workers[i].joined != -1) continue;
        p->workers[i].joined = 1;
        dlpi_worker_end(&p->workers[i], DLP_OK);
    }
}

/* Write the stages into the plan, in the order of the data: name, kind, workers, what it does. */
static void dlpi_plan_stages(const dlp_pipe *p, dlp_plan *plan) {
    for (const dlpi_stage *st = p->stages; st < p->stages + p->n_stages; st++) {
        dlp_plan_stage *to = &plan->stages[plan->n_stages++];
        dlpi_copy_text(to->name, sizeof to->name, st->name);
        if (st->ops->what != NULL) st->ops->what(st, to->what, sizeof to->what);
        if (st == p->fetch && p->source_stage != NULL && p->source_stage->ops->expands)
            dlpi_copy_text(to->what, sizeof to->what, "copy"); /* what the makers have made */
        to->stage = st->id;
        to->kind = st->ops->kind;
        to->workers = st->work >= 0 ? st->begin : st->ops->begins ? st->w.num_workers : -1;
        to->placement = st->w.placement;
    }
}
