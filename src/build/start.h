#pragma once
/* tests: system/core/pipe_fault, system/core/pipe_deadline */
#include "inputs/check.h"
#include "inputs/origin.h" /* needs: mix */
#include "deliver/deliver.h"
#include "build/limits.h"
#include "build/placement.h"
#include "build/region_map.h"
/* Allocate the memory that this process keeps for the pipe and its stages. Returns DLP_OK, or
   DLP_ERR_MEMORY. */
static int dlpi_private_alloc(dlp_pipe *p) {
    bool ok = dlpi_blocks_have(p, NULL, true);
    for (int i = 0; i < p->n_stages && ok; i++) ok = dlpi_blocks_have(p, &p->stages[i], true);
    for (uint32_t i = 0; i < p->d.n_counters && ok; i++)
        p->counters[i].words =
            p->counted + i * (p->areas[DLPI_REC_TRACE].stride / sizeof(uint64_t));
    if (ok) return DLP_OK;
    return dlpi_system_fail(p, DLP_ERR_MEMORY, ENOMEM, "malloc of the pipe's own records");
}

/* Set up the record of a worker of stage st. id: its number in the stage; global: its number in the
   pipe. */
DLPI_COLD static void dlpi_worker_init(dlp_pipe *p, dlpi_stage *st, int id, int global) {
    dlpi_worker *w = &p->workers[global];
    w->p = p;
    w->st = st;
    w->id = id;
    w->global = global;
    dlpi_place_worker(w);
    w->block = dlpi_area_at(p, DLPI_REC_WORKERS, (uint64_t)global);
    w->trace = dlpi_area_at(p, DLPI_REC_TRACE, (uint64_t)global);
    w->block->current = UINT64_MAX;
    w->clock_every = 1;
    w->item.data = w->data + st->scope.field;
    w->item.length = w->length + st->scope.field;
    w->item.n_fields = st->scope.n_fields;
    w->item.worker = (uint32_t)id;
    w->item.seed = dlpi_sampler_of(p)->seed;
    w->note.message = w->block->message;
    w->note.w = w;
    w->note.errnum = &w->block->message_errno;
    w->note.said = 0;
    w->item.call = &w->note;
    w->rare = (dlpi_worker_rare *)(void *)(p->workers + p->n_workers + 1) + global;
    w->parked = w->rare->parked;
    w->parked_most = DLPI_PARK;
    w->extra = dlpi_row_extra_at(p, w, 0);
    if (st->work >= 0) w->waiters = &p->waiters[st->work];
    w->given = w->item;
    w->asks = dlpi_row_asked(w);
    w->chained = dlpi_program_of(st) != NULL && dlpi_program_of(st)->n > 0;
    w->singles = dlpi_worker_singles(w);
    if (st->ops->worker != NULL) st->ops->worker(w);
}

/* Write the names, units and maxima of the user's counters into the region. Observers read them
   before the first value comes. */
static void dlpi_counters_shown(dlp_pipe *p) {
    p->counter_now = dlpi_area_if(p, DLPI_REC_COUNTERS);
    for (uint32_t i = 0; i < p->d.n_counters && p->counter_now != NULL; i++) {
        dlpi_counter_rec *r = &p->counter_now[i];
        memcpy(r->name, p->counters[i].name, sizeof r->name);
        memcpy(r->unit, p->counters[i].unit, sizeof p->counters[i].unit);
        memcpy(&r->most, &p->counters[i].most, sizeof r->most);
    }
}

/* Set the pipe's pointers into the region, which has just been mapped. */
static void dlpi_live_point(dlp_pipe *p) {
    p->ctl = dlpi_area_at(p, DLPI_REC_CTL, 0);
    p->waiters = dlpi_area_at(p, DLPI_AREA_WAITERS, 0);
    p->order_ring = dlpi_area_at(p, DLPI_REC_ORDER, 0);
    p->taken = dlpi_area_at(p, DLPI_REC_TAKEN, 0);
    dlpi_counters_shown(p);
    memset(p->ones, 1, p->batch_rows);
}

/* Set up the records of all workers, and the record of the consumer behind them. */
static void dlpi_live_workers(dlp_pipe *p) {
    for (int i = 0; i < p->n_staffed; i++) {
        dlpi_stage *st = p->work[i];
        st->scope.cells = p->items.at;
        st->scope.n_cells = (uint8_t)p->items.n;
        st->scope.ragged = p->items.any_ragged != 0;
        for (int k = 0; k < st->n_workers; k++) dlpi_worker_init(p, st, k, st->first_worker + k);
    }
    p->consumer = &p->workers[p->n_workers];
    dlpi_worker_init(p, p->sampler, 0, p->n_workers);
}

/* Set up the words on which threads sleep, and how many workers of each stage may claim at first.
   Set the pipe's deadline to the shortest one of its stages. */
static void dlpi_live_waiters(dlp_pipe *p) {
    const uint32_t shared = p->others != 0;
    p->ctl->consumer.shared = p->ctl->scheduler.shared = shared;
    for (int i = 0; i < p->n_staffed; i++) {
        const uint64_t timed = (uint64_t)p->work[i]->timed * 1000000u;
        uint64_t deadline = (uint64_t)p->work[i]->w.deadline_ms * 1000000u;
        if (timed != 0 && (deadline == 0 || timed < deadline)) deadline = timed;
        for (int g = 0; g * 32 < p->work[i]->n_workers; g++)
            p->waiters[i].group[g].at.shared = shared;
        p->waiters[i].active = (uint32_t)p->work[i]->at_first;
        if (deadline && (p->deadline_ns == 0 || deadline < p->deadline_ns))
            p->deadline_ns = deadline;
    }
}

/* Set the words that a stage has in slot s to those of a batch long gone, so that nothing in the
   slot can be claimed. stage: place in p->work. */
static void dlpi_live_words(dlp_pipe *p, uint32_t s, int stage) {
    uint64_t *words = dlpi_stage_words_at(p, s, p->work[stage])->words;
    uint64_t n = stage < p->n_item_work ? p->units_max : 1u;
    for (uint32_t k = 0; k < p->words_max; k++) words[k] = ~UINT64_C(0) << 32;
    for (uint64_t k = 0; k < n; k++) words[p->words_max + k] = dlpi_gen_word(DLPI_GEN_MASK, 1);
}

/* Set up all slots, as if each had a batch long gone, and what the consumer sees of them. */
static void dlpi_live_slots(dlp_pipe *p) {
    for (uint32_t s = 0; s < p->n_slots; s++) {
        dlpi_bslot *slot = dlpi_slot_at(p, s);
        slot->header = dlpi_gen_word(DLPI_GEN_MASK, 0); /* of a batch long gone */
        slot->dbuf = DLPI_NO_SLOT;
        if (!dlpi_cells_none(p)) /* until it is scheduled */
            slot->cell = (uint16_t)(s % p->areas[p->item_area].count);
        for (int i = 0; i < p->n_work; i++) dlpi_live_words(p, s, i);
    }
    for (uint32_t v = 0; v < p->n_out; v++) {
        dlpi_batch_view_init(p, v, &p->out[v], &p->out_fields[(size_t)v * p->batches.n]);
        p->out[v].error = &p->call_err;
    }
}

/* Return a hash of the sampler's arrays and numbers, for states. If items come from several
   datasets, the item numbers at which the datasets begin are in the hash, too. */
static uint64_t dlpi_params_hash(const dlp_pipe *p) {
    uint64_t h = dlpi_order_params_hash(dlpi_sampler_of(p), p->fetch->dataset->n_items);
    for (int i = 0; i < p->n_item_work; i++)
        if (p->work[i]->scope.first > 0) h = dlpi_absorb(h, p->work[i]->scope.first);
    return h;
}

/* Go to the place that desc.resume has saved. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_state_take(dlp_pipe *p) {
    dlpi_state s;
    dlp_error e;
    int rc = dlpi_state_check_all(p, &p->resume, &s, "resume", &e);
    if (rc != DLP_OK) return dlpi_pipe_fail(p, &e);
    dlpi_state_unknown(p, &s);
    s = dlpi_state_books(p, &s);
    dlpi_valid_begin(p, p->epoch_open != 0);
    return dlpi_schedule_goto(p, &s) == DLP_OK ? DLP_OK : dlpi_pipe_fail(p, &p->ctl->error);
}

/* Set up all that lies in the region, and the records of workers. Returns DLP_OK, or the code of
   the pipe's error. */
static int dlpi_live_init(dlp_pipe *p) {
    int rc;
    dlpi_live_point(p);
    dlpi_live_waiters(p);
    DLPI_STORE_SEQ(&p->can_wake, 1u);                                          /* S2 -> S2 */
    if (DLPI_LOAD_SEQ(&p->stop_asked) != 0) DLPI_STORE_SEQ(&p->ctl->stop, 1u); /* S2 <- S2, S1 */
    p->ctl->started_ns = dlpi_now_ns();
    p->last_sequence = UINT64_MAX;
    p->epoch_begun = p->schedule.epoch_asked = UINT64_MAX;
    dlpi_order_build(dlpi_sampler_of(p), p->fetch->dataset->n_items,
                     dlpi_area_at(p, DLPI_REC_TABLE, 0));
    p->params_hash = dlpi_params_hash(p);
    dlpi_origin_begin(p); /* needs: mix */
    dlpi_live_workers(p);
    p->consumer->block->pid = dlpi_process_number();
    dlpi_live_slots(p);
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_live_idle(p, &p->stages[i]);
        if (p->stages[i].ops->live != NULL) p->stages[i].ops->live(p, &p->stages[i]);
        if (p->err.code != 0) return p->err.code;
    }
    p->schedule.reach = p->reach;
    p->bare = dlpi_roles_bare(p);
    dlpi_schedule_epoch(&p->schedule, 0);
    if (p->d.resume && (rc = dlpi_state_take(p)) != DLP_OK) return rc;
    dlpi_redzones_paint(p);
    dlpi_region_init(p);
    return DLP_OK;
}

/* Plan the pipe, compare the plan with the limits, allocate the memory, and map and fill the
   region. Then start the worker processes. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_prepare(dlp_pipe *p) {
    dlp_plan plan;
    int rc;
    if ((rc = dlpi_plan(p, &plan)) != DLP_OK) return rc;
    if ((rc = dlpi_check_limits(p, &plan)) != DLP_OK) return rc;
    if ((rc = dlpi_private_alloc(p)) != DLP_OK) return rc;
    if ((rc = dlpi_alive_page(&p->alive)) != 0)
        return dlpi_system_fail(p, DLP_ERR_MEMORY, rc, "mmap of a page");
    if ((rc = dlpi_region_map(p)) != DLP_OK) return rc;
    dlpi_wait_rule_set(p);
    p->prepared = 1;
    if ((rc = dlpi_live_init(p)) != DLP_OK) return rc;
    return p->beside->begin(p);
}

/* Start the pipe: prepare it if that is not done, begin its stages, start its threads, and schedule
   the first batches. Returns DLP_OK, or the code of the pipe's error. */
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
