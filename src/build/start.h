#pragma once
#include "core/check.h"
#include "core/deliver.h"
#include "build/limits.h"
#include "build/region_map.h"
static void dlpi_counters_live(dlp_pipe *p) {
    for (uint32_t i = 0; i < p->d.n_counters; i++)
        p->counters[i].words = p->counted + i * (dlpi_counter_bytes(p) / sizeof(uint64_t));
}

/* What the pipe and its stages keep. */
static int dlpi_private_alloc(dlp_pipe *p) {
    bool ok = dlpi_blocks_have(p, NULL, true);
    for (int i = 0; i < p->n_stages && ok; i++) ok = dlpi_blocks_have(p, &p->stages[i], true);
    if (ok) {
        dlpi_counters_live(p);
        return DLP_OK;
    }
    errno = ENOMEM;
    return dlpi_system_fail(p, DLP_ERR_MEMORY, "malloc of the pipe's own records");
}

static void dlpi_worker_init(dlp_pipe *p, dlpi_stage *st, int id, int global) {
    dlpi_worker *w = &p->workers[global];
    w->p = p;
    w->st = st;
    w->id = id;
    w->global = global;
    w->block = dlpi_area_at(p, DLPI_REC_WORKERS, (uint64_t)global);
    w->trace = dlpi_area_at(p, DLPI_REC_TRACE, (uint64_t)global);
    w->block->current = UINT64_MAX;
    if (st->w.placement != DLP_PLACE_PROCESSES) w->block->pid = (int32_t)getpid();
    w->clock_every = 1;
    w->item.data = w->data;
    w->item.length = w->length;
    w->item.n_fields = p->items.n;
    w->item.worker = (uint32_t)id;
    w->item.seed = p->sampler->sampler.seed;
    w->note.message = w->block->message;
    w->note.w = w;
    w->note.errnum = &w->block->message_errno;
    w->note.said = 0;
    w->item.call = &w->note;
    w->parked = w->parked_own;
    w->parked_most = DLPI_PARK;
    w->extra = dlpi_row_extra_at(p, w, 0);
    if (st->work >= 0) w->waiters = &p->waiters[st->work];
    w->given = w->item;
    if (st->ops->worker != NULL) st->ops->worker(w);
    dlpi_order_init(&w->order, &p->sampler->sampler, p->fetch->dataset.n_items,
                    dlpi_area_at(p, DLPI_REC_TABLE, 0));
}

static int dlpi_thread_start(dlp_pipe *p, dlpi_worker *w, void *(*run)(void *)) {
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0) {
        errno = rc;
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pthread_attr_init");
    }
    if (w->st->w.stack_bytes &&
        pthread_attr_setstacksize(&attr, (size_t)w->st->w.stack_bytes) != 0) {
        pthread_attr_destroy(&attr);
        return dlpi_refuse(p, DLP_ERR_ARG, w->st->name, "stack_bytes",
                           "%" PRIu64 " is no stack size of this system", w->st->w.stack_bytes);
    }
    w->started = 1;
    rc = pthread_create(&w->thread, &attr, run, w);
    pthread_attr_destroy(&attr);
    if (rc == 0) {
        p->n_threads++;
        return DLP_OK;
    }
    w->started = 0;
    errno = rc;
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pthread_create");
}

/* How long to spin: about 10 us where everybody has a core; else a little, then give the core
   away; not at all where there is but one. */
static void dlpi_wait_rule(dlp_pipe *p) {
    uint64_t rows = (uint64_t)p->prefetch * p->batch_rows; /* in flight */
    int begin = 1;
    p->peers = 1;
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->w.num_workers == 0) continue;
        p->peers += st->n_workers;
        if (i < p->n_work && !st->ops->in_order) begin += st->tuned ? st->begin : st->n_workers;
    }
    if (p->sampler->sampler.threaded) p->peers++;
    p->spin_rounds = p->peers <= p->cpus ? 300 : p->cpus > 1 ? 30 : 0;
    p->yield_rounds = p->peers <= p->cpus ? 0 : 50;
    p->awake_ns = DLPI_AWAKE_NS;
    if (begin - 1 > p->cpus)
        dlpi_warn(p,
                  "%d worker threads on %d cores: more than can run at once (fine when items wait, "
                  "not when they compute)",
                  begin - 1, p->cpus);
    if ((uint64_t)p->fetch->w.num_workers > rows)
        dlpi_warn(p,
                  "num_workers %d is more than prefetch_factor x batch_size = %" PRIu64
                  " items in flight: the rest will idle",
                  p->fetch->w.num_workers, rows);
    else if ((uint64_t)p->fetch->w.num_workers * (uint64_t)p->fetch->in_flight > rows)
        dlpi_warn(
            p,
            "num_workers %d x in_flight %d is more than prefetch_factor x batch_size = %" PRIu64
            " items",
            p->fetch->w.num_workers, p->fetch->in_flight, rows);
    else if (p->fetch->w.dispatch == DLP_DISPATCH_BATCHES &&
             (uint64_t)p->fetch->w.num_workers > p->prefetch)
        dlpi_warn(p,
                  "num_workers %d is more than prefetch_factor %" PRIu32
                  " batches in flight: workers that have no batch idle",
                  p->fetch->w.num_workers, p->prefetch);
}

static int dlpi_start_threads(dlp_pipe *p) {
    int rc = DLP_OK;
    for (int i = 0; i < p->n_staffed && rc == DLP_OK; i++) {
        const dlpi_stage *st = p->work[i];
        for (int k = 0; k < st->n_workers && rc == DLP_OK; k++) {
            dlpi_worker *w = &p->workers[st->first_worker + k];
            if (st->w.num_workers > 0 && st->w.placement == DLP_PLACE_PROCESSES) {
                w->started = w->joined = w->process = 1;
            } else if (st->w.num_workers > 0) {
                rc = dlpi_thread_start(p, w, dlpi_thread_worker);
            } else if (dlpi_worker_begin(w) != DLP_OK) {
                rc = dlpi_pipe_fail(p, &p->ctl->error);
            } else {
                w->joined = -1; /* an inline worker that has begun */
            }
        }
    }
    if (rc == DLP_OK && p->sampler->sampler.threaded)
        rc = dlpi_thread_start(p, p->consumer, dlpi_thread_scheduler);
    return rc;
}

static void dlpi_live_point(dlp_pipe *p) {
    p->ctl = dlpi_area_at(p, DLPI_REC_CTL, 0);
    p->waiters = dlpi_area_at(p, DLPI_AREA_WAITERS, 0);
    p->disp = dlpi_area_at(p, DLPI_REC_ORDER, 0);
    p->share = p->share_bytes > 0 ? dlpi_area_at(p, DLPI_REC_SHARE, 0) : NULL;
    p->taken = dlpi_area_at(p, DLPI_REC_TAKEN, 0);
    memset(p->ones, 1, p->batch_rows);
}

static void dlpi_live_workers(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) {
        dlpi_stage *st = p->work[i];
        for (int k = 0; k < st->n_workers; k++) dlpi_worker_init(p, st, k, st->first_worker + k);
    }
    p->consumer = &p->workers[p->n_workers];
    dlpi_worker_init(p, p->sampler, 0, p->n_workers);
}

static int dlpi_live_init(dlp_pipe *p) {
    int rc;
    dlpi_live_point(p);
    p->ctl->shared = p->n_procs > 0 || p->share_bytes > 0;
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        p->waiters[i].shared = p->ctl->shared;
        p->waiters[i].active = (uint32_t)(st->tuned ? st->begin : st->n_workers);
    }
    DLPI_STORE_SEQ(&p->can_wake, 1u);                                          /* S2 -> S2 */
    if (DLPI_LOAD_SEQ(&p->stop_asked) != 0) DLPI_STORE_SEQ(&p->ctl->stop, 1u); /* S2 <- S2, S1 */
    p->ctl->started_ns = dlpi_now_ns();
    p->last_sequence = UINT64_MAX;
    p->epoch_begun = p->schedule.epoch_asked = UINT64_MAX;
    p->call_clock_every = 1;
    dlpi_order_build(&p->sampler->sampler, p->fetch->dataset.n_items,
                     dlpi_area_at(p, DLPI_REC_TABLE, 0));
    p->params_hash = dlpi_order_params_hash(&p->sampler->sampler, p->fetch->dataset.n_items);
    for (int i = 0; i < p->n_staffed; i++) {
        uint64_t deadline = (uint64_t)p->work[i]->w.deadline_ms * 1000000u;
        if (deadline && (p->deadline_ns == 0 || deadline < p->deadline_ns))
            p->deadline_ns = deadline;
    }
    dlpi_live_workers(p);
    for (uint32_t s = 0; s < p->n_slots; s++) {
        dlpi_bslot *slot = dlpi_slot_at(p, s);
        slot->header = dlpi_gen_word(DLPI_GEN_MASK, 0); /* of a batch long gone */
        slot->dbuf = DLPI_NO_SLOT;
        for (int i = 0; i < p->n_work; i++) {
            uint64_t *words = dlpi_stage_words_at(p, s, p->work[i])->words;
            uint64_t n = i < p->n_item_work ? p->units_max : 1u;
            for (uint32_t k = 0; k < p->words_max; k++) words[k] = ~UINT64_C(0) << 32;
            for (uint64_t k = 0; k < n; k++)
                words[p->words_max + k] = dlpi_gen_word(DLPI_GEN_MASK, 1);
        }
        if (p->lender == NULL)
            dlpi_batch_view_init(p, s, &p->out[s], &p->out_fields[(size_t)s * p->batches.n]);
    }
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].ops->live != NULL) p->stages[i].ops->live(p, &p->stages[i]);
    dlpi_schedule_epoch(&p->schedule, 0);
    if (p->d.resume && (rc = dlpi_state_take(p)) != DLP_OK) return rc;
    dlpi_guards_paint(p);
    dlpi_region_init(p);
    return DLP_OK;
}

/* All that processes share with this one, and the processes. */
static int dlpi_prepare(dlp_pipe *p) {
    dlp_plan plan;
    int rc;
    if ((rc = dlp_pipe_plan(p, &plan)) != DLP_OK) return rc;
    if ((rc = dlpi_check_limits(p, &plan)) != DLP_OK) return rc;
    if ((rc = dlpi_private_alloc(p)) != DLP_OK) return rc;
    if ((p->alive = dlpi_alive_page()) == NULL)
        return dlpi_system_fail(p, DLP_ERR_MEMORY, "mmap of a page");
    if ((rc = dlpi_region_map(p)) != DLP_OK) return rc;
    dlpi_wait_rule(p);
    p->prepared = 1;
    if ((rc = dlpi_live_init(p)) != DLP_OK) return rc;
    return p->shm ? dlpi_shm->begin(p) : DLP_OK;
}

static int dlpi_start(dlp_pipe *p) {
    int rc = p->prepared ? p->err.code : dlpi_prepare(p);
    if (rc != DLP_OK) return rc;
    p->started = 1;
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        if (st->ops->begin != NULL && (rc = st->ops->begin(p, st)) != DLP_OK) return rc;
    }
    if ((rc = dlpi_start_threads(p)) != DLP_OK) return rc;
    dlpi_schedule_inline(p, 1);
    return DLP_OK;
}
