#pragma once
/* tests: system/core/topologies, system/core/pipe_deadline */
#include "inputs/check.h"
#include "deliver/deliver.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-placement  WHERE STAGES RUN
   Inline in the consumer, in threads, or in processes: this is resolved here, once. What follows
   from it for others is a number of its own: workers of a stage (an inline one is one), how long to
   spin. On the word of a stage sleep w.num_workers of them, of an inline stage none. */

static bool dlpi_in_processes(const dlpi_stage *st) {
    return st->w.num_workers > 0 && st->w.placement == DLP_PLACE_PROCESSES;
}

/* Batches under way, where nobody says how many: one if all is inline. */
static uint32_t dlpi_prefetch_least(const dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].w.num_workers > 0) return 2;
    return 1;
}

/* Of a unit, the stages that have workers, in order. */
static void dlpi_staff_unit(dlp_pipe *p, int unit) {
    for (dlpi_stage *st = p->sampler; st < p->stages + p->n_stages; st++) {
        if (st->ops->unit != unit) continue;
        if (st->ops->staff != NULL && !st->ops->staff(p, st)) continue;
        st->work = p->n_staffed;
        dlpi_tune_take(st);
        st->n_workers = st->w.num_workers > 0 ? st->w.num_workers : 1;
        st->at_first = st->begin > 0 ? st->begin : 1;
        if (dlpi_in_processes(st)) p->n_procs += st->n_workers;
        p->work[p->n_staffed++] = st;
    }
}

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
}

/* How long to spin: about 10 us where everybody has a core; else a little, then give the core
   away; not at all where there is but one. */
static void dlpi_wait_rule_set(dlp_pipe *p) {
    int begin = 1, peers = 1;
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->w.num_workers == 0) {
            p->any_inline = 1;
            continue;
        }
        peers += st->n_workers;
        if (i < p->n_work && !st->ops->in_order) begin += st->at_first;
    }
    if (p->sampler->w.num_workers) peers++;
    p->all_inline = peers == 1;
    p->wait.threads = peers;
    p->wait.awake_ns = DLPI_AWAKE_NS;
    if (!p->all_inline)
        dlpi_wait_share((uint32_t)peers, (uint32_t)p->cpus, &p->wait.spin_ns, &p->wait.yields);
    if (begin - 1 > p->cpus)
        dlpi_warn(p,
                  "%d worker threads on %d cores; if items compute rather than wait, lower "
                  "num_workers",
                  begin - 1, p->cpus);
}

static const uint32_t dlpi_timed = 0;

/* Say in its record where the worker runs. Before the forks: after them the caller, too, would have
   a copy of each. */
static void dlpi_place_worker(dlpi_worker *w) {
    w->started = w->joined = w->process = dlpi_in_processes(w->st);
    w->untimed = w->st->w.num_workers > 0 ? &dlpi_timed : &w->p->pace.clock_off;
}

/* ---- threads ---- */

static int dlpi_thread_start(dlp_pipe *p, dlpi_worker *w, void *(*run)(void *)) {
    const char *call;
    int rc;
    w->started = 1;
    if ((rc = dlpi_thread_create(w, &w->thread, run, &call)) == 0) {
        p->n_threads++;
        return DLP_OK;
    }
    w->started = 0;
    if (rc == EINVAL && w->st->w.stack_bytes)
        return dlpi_refuse(p, DLP_ERR_ARG, w->st->name, "stack_bytes",
                           "the system refuses stack_bytes %" PRIu64 "; set whole pages, 16384 or "
                           "more, or 0",
                           w->st->w.stack_bytes);
    errno = rc;
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, call);
}

static int dlpi_start_threads(dlp_pipe *p) {
    int rc = DLP_OK;
    for (int i = 0; i < p->n_staffed && rc == DLP_OK; i++) {
        const dlpi_stage *st = p->work[i];
        for (int k = 0; k < st->n_workers && rc == DLP_OK; k++) {
            dlpi_worker *w = &p->workers[st->first_worker + k];
            if (dlpi_in_processes(st)) continue; /* they are there */
            if (st->w.num_workers > 0) {
                w->limit_ns = (uint64_t)st->w.deadline_ms * 1000000u;
                w->block->pid = (int32_t)getpid();
                rc = dlpi_thread_start(p, w, dlpi_thread_worker);
            } else if (dlpi_worker_begin(w) != DLP_OK) {
                rc = dlpi_pipe_fail(p, &p->ctl->error);
            } else {
                w->joined = -1; /* an inline worker that has begun */
            }
        }
    }
    if (rc == DLP_OK && p->sampler->w.num_workers)
        rc = dlpi_thread_start(p, p->consumer, dlpi_thread_scheduler);
    return rc;
}

static uint32_t dlpi_running(const dlp_pipe *p) {
    return (uint32_t)p->n_threads - dlpi_event_count(&p->live_word); /* L1 <- L1 */
}

static bool dlpi_await_threads(dlp_pipe *p, uint64_t until) {
    while (dlpi_running(p) > 0) {
        uint32_t word = dlpi_event_count(&p->live_word); /* L1 <- L1 */
        uint64_t now = dlpi_now_ns(), ns = DLPI_SLEEP_NS;
        if (dlpi_running(p) == 0) break;
        if (now >= until) return false;
        if (until - now < ns) ns = until - now;
        dlpi_futex_wait(&p->live_word, word, UINT32_MAX, ns, 0);
        dlpi_wake_all(p);
    }
    for (int i = 0; i <= p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        if (w->started && !w->joined) pthread_join(w->thread, NULL);
        if (w->started) w->joined = 1;
    }
    return true;
}

/* Which callback still runs: of a worker that works, else of one that has not ended (its init or
   exit, the sampler's, the device's). */
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

/* Threads are gone or never were: inline workers end. */
static void dlpi_close_rest(dlp_pipe *p) {
    for (int i = 0; i < p->n_workers; i++) {
        if (p->workers[i].joined != -1) continue;
        p->workers[i].joined = 1;
        dlpi_worker_end(&p->workers[i], DLP_OK);
    }
}

/* What the plan says of each stage, in the order of the data. */
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
