#pragma once
#include "core/deliver.h"
#include "build/layout.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-stats      COUNTERS AND TRACE, READ */

static uint64_t dlpi_stats_now(const dlp_pipe *p) { return p->view ? p->view_ns : dlpi_now_ns(); }

static void dlpi_worker_stats(const dlp_pipe *p, const dlpi_worker *w, dlp_worker_stats *out) {
    const dlpi_wblock *b = w->wb;
    /* statistics, here and below */
    uint64_t since = DLPI_LOAD_RLX(&b->since_ns), now = dlpi_stats_now(p);
    memset(out, 0, sizeof *out);
    out->stage = w->st->id;
    out->worker = w->id;
    out->state = DLPI_LOAD_RLX(&b->state);
    out->tid = DLPI_LOAD_RLX(&b->tid);
    out->items = DLPI_LOAD_RLX(&b->items);
    out->bytes = DLPI_LOAD_RLX(&b->bytes);
    out->busy_ns = DLPI_LOAD_RLX(&b->busy_ns);
    out->starved_ns = DLPI_LOAD_RLX(&b->starved_ns);
    out->blocked_ns = DLPI_LOAD_RLX(&b->blocked_ns);
    out->cpu_ns = DLPI_LOAD_RLX(&b->cpu_ns);
    out->core_wait_ns = DLPI_LOAD_RLX(&b->core_wait_ns);
    out->current_index = DLPI_LOAD_RLX(&b->current);
    if (out->current_index != UINT64_MAX && now > since) out->current_age_ns = now - since;
    out->process = w->st->w.placement == DLP_PLACE_PROCESSES && w->st->w.num_workers > 0;
    out->pid = DLPI_LOAD_RLX(&b->pid);
    out->restarts = DLPI_LOAD_RLX(&b->restarts);
    out->died_by = DLPI_LOAD_RLX(&b->died_by);
}

static uint64_t dlpi_hist_sum(const dlp_pipe *p, const dlpi_stage *st, uint64_t *hist) {
    uint64_t n = 0;
    memset(hist, 0, DLPI_HIST * sizeof *hist);
    for (int k = 0; k < st->n_workers; k++)
        for (uint32_t i = 0; i < DLPI_HIST; i++) {
            /* statistics */
            uint32_t c = DLPI_LOAD_RLX(&p->workers[st->first_worker + k].wb->hist[i]);
            hist[i] += c;
            n += c;
        }
    return n;
}

static uint64_t dlpi_percentile(const uint64_t *hist, uint64_t n, uint32_t percent) {
    uint64_t want = (n * percent + 99) / 100, seen = 0;
    for (uint32_t i = 0; i < DLPI_HIST && n > 0; i++)
        if ((seen += hist[i]) >= want) return dlpi_hist_value(i);
    return 0;
}

/* One more part cell: base: batches below it are delivered. */
static void dlpi_part_count(dlpi_part_seen *n, uint64_t state, uint64_t used, uint64_t base) {
    uint32_t low = dlpi_gen_low(state);
    if (low == DLPI_PART_LOADED) n->loaded++;
    if (low == DLPI_PART_LOADED && used > base) n->in_use++;
    if (low != DLPI_PART_CLOSED && low <= DLPI_PART_OPEN) n->loading++;
}

static dlpi_part_seen dlpi_parts_seen(const dlp_pipe *p) {
    dlpi_part_seen n = {0, 0, 0};
    uint64_t base = DLPI_LOAD_RLX(&p->ctl->base); /* statistics, here and below */
    for (uint32_t c = 0; c < p->part_cells && !p->view; c++) {
        const dlpi_pcell *cell = dlpi_pcell_at(p, c);
        dlpi_part_count(&n, DLPI_LOAD_RLX(&cell->state), DLPI_LOAD_RLX(&cell->used), base);
    }
    return p->view ? p->view_parts : n;
}

static void dlpi_stage_stats(const dlp_pipe *p, const dlpi_stage *st, dlp_stage_stats *out) {
    uint64_t hist[DLPI_HIST], n, most;
    memset(out, 0, sizeof *out);
    dlpi_copy_text(out->name, sizeof out->name, st->name);
    out->kind = st->kind;
    if (st->work < 0) return;
    out->workers = st->w.num_workers;
    if (st->tuned) {
        out->workers = dlpi_active(p, st);
        out->workers_min = st->w.workers_min;
        out->workers_max = st->n_workers;
    }
    out->unit_is_batch = st->kind != DLP_STAGE_FETCH && st->kind != DLP_STAGE_MAP_ITEM &&
                         st->kind != DLP_STAGE_PARTS;
    if (st->kind == DLP_STAGE_PARTS) {
        dlpi_part_seen seen = dlpi_parts_seen(p);
        out->cells = p->part_cells;
        out->loaded = seen.loaded;
        out->loading = seen.loading;
        out->in_use = seen.in_use;
    }
    out->in_flight = st->in_flight;
    for (int k = 0; k < st->n_workers; k++) {
        const dlpi_worker *w = &p->workers[st->first_worker + k];
        out->items += DLPI_LOAD_RLX(&w->wb->items); /* statistics, here and below */
        out->bytes += DLPI_LOAD_RLX(&w->wb->bytes);
        out->retried += DLPI_LOAD_RLX(&w->wb->retried);
        out->replaced += DLPI_LOAD_RLX(&w->wb->replaced);
        out->left_out += DLPI_LOAD_RLX(&w->wb->left_out);
        out->busy_ns += DLPI_LOAD_RLX(&w->wb->busy_ns);
        out->starved_ns += DLPI_LOAD_RLX(&w->wb->starved_ns);
        out->blocked_ns += DLPI_LOAD_RLX(&w->wb->blocked_ns);
        out->cpu_ns += DLPI_LOAD_RLX(&w->wb->cpu_ns);
        out->core_wait_ns += DLPI_LOAD_RLX(&w->wb->core_wait_ns);
        out->flight_ns += DLPI_LOAD_RLX(&w->wb->flight_ns);
        most = DLPI_LOAD_RLX(&w->wb->max_ns);
        if (most > out->max_ns) out->max_ns = most;
        out->restarts += (uint64_t)DLPI_LOAD_RLX(&w->wb->restarts);
        if (DLPI_LOAD_RLX(&w->wb->died_by) != 0) out->died_by = DLPI_LOAD_RLX(&w->wb->died_by);
    }
    n = dlpi_hist_sum(p, st, hist);
    out->p50_ns = dlpi_percentile(hist, n, 50);
    out->p95_ns = dlpi_percentile(hist, n, 95);
    out->p99_ns = dlpi_percentile(hist, n, 99);
}

/* Batches complete and not delivered; and what waits before each stage. */
static void dlpi_ready_stats(const dlp_pipe *p, dlp_stats *out) {
    uint64_t tail = DLPI_LOAD_ACQ(&p->ctl->tail); /* T1 <- T1 */
    /* V1 <- V1: any thread may look */
    for (uint64_t b = DLPI_LOAD_ACQ(&p->ctl->base); b < tail; b++) {
        uint32_t s;
        if (DLPI_LOAD_RLX(&p->taken[b & (p->ring - 1)])) continue; /* statistics */
        s = dlpi_slot_of(p, b);
        out->in_flight++;
        if (dlpi_ready(p, b, s)) out->ready++;
        for (int i = 1; i < p->n_work; i++) {
            /* Y1 <- Y1 */
            bool in = dlpi_ready_is(DLPI_LOAD_ACQ(&dlpi_sst_at(p, s, p->work[i - 1])->ready), b);
            /* Y1 <- Y1 */
            bool over = dlpi_ready_is(DLPI_LOAD_ACQ(&dlpi_sst_at(p, s, p->work[i])->ready), b);
            if (in && !over) out->stages[p->work[i]->id].ready++;
        }
    }
}

static void dlpi_chunks_seen(const dlp_pipe *p, uint64_t tail, dlpi_chunk_seen *x) {
    memset(x, 0, sizeof *x);
    x->preload = p->chunks.preload;
    x->cpu_buffers = p->n_cells;
    x->per_epoch = p->batches_per_epoch;
    /* statistics, here and below */
    if (tail > 0) x->fed = DLPI_LOAD_RLX(&dlpi_slot_at(p, dlpi_slot_of(p, tail - 1))->in_epoch) + 1;
    for (uint32_t s = 0; s < p->n_slots; s++)
        x->out += DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->used) != 0;
    for (uint64_t k = 0; k < p->areas[DLPI_REC_RESIDENT].count; k++)
        x->resident += DLPI_LOAD_RLX(dlpi_chunk_word(p, k)) & 1;
    x->device_buffers = dlpi_device_buffers(p);
    for (uint64_t i = 0; i < x->device_buffers; i++)
        x->device_free += DLPI_LOAD_RLX(dlpi_dev_slot(p, i)) == 0;
}

/* Where the chunks are. Those in the caller's hands are what is neither free nor on its way. */
static void dlpi_chunk_stats(const dlp_pipe *p, dlp_chunk_stats *c) {
    uint64_t tail = DLPI_LOAD_ACQ(&p->ctl->tail), ready = 0, used; /* T1 <- T1 */
    const dlpi_stage *loaded = p->work[p->n_work - 1 - (p->xfer != NULL)];
    dlpi_chunk_seen x = p->view_chunks;
    c->taken = DLPI_LOAD_RLX(&p->ctl->delivered); /* statistics */
    if (!p->view) dlpi_chunks_seen(p, tail, &x);
    if (x.cpu_buffers == 0) return;
    c->preload = x.preload;
    c->cpu_buffers = x.cpu_buffers;
    c->per_epoch = x.per_epoch;
    c->loadable = x.fed < x.per_epoch ? x.per_epoch - x.fed : 0;
    for (uint64_t b = DLPI_LOAD_ACQ(&p->ctl->base); b < tail; b++) { /* V1 <- V1 */
        uint32_t s = dlpi_slot_of(p, b);
        /* Y1 <- Y1 */
        bool there = dlpi_ready_is(DLPI_LOAD_ACQ(&dlpi_sst_at(p, s, loaded)->ready), b);
        if (dlpi_ready(p, b, s))
            ready++;
        else if (there)
            c->cpu_filled++;
        else
            c->cpu_loading++;
    }
    used = c->cpu_loading + c->cpu_filled + ready;
    c->in_use = x.out > used ? x.out - used : 0;
    if (p->xfer == NULL) c->cpu_filled += ready;
    used = c->cpu_loading + c->cpu_filled + (p->xfer ? 0 : c->in_use);
    if (x.preload == DLP_PRELOAD_CPU) used = x.resident;
    c->cpu_free = used < x.cpu_buffers ? x.cpu_buffers - used : 0; /* read while it changed? */
    if (p->xfer == NULL) return;
    c->device_buffers = x.device_buffers;
    c->device_free = x.device_free;
    c->device_filled = ready;
    used = x.device_free + ready + c->in_use;
    if (x.preload == DLP_PRELOAD_DEVICE) return;
    c->device_copying = used < x.device_buffers ? x.device_buffers - used : 0;
}

static void dlpi_tune_stats(const dlp_pipe *p, dlp_stats *out) {
    uint64_t n = DLPI_LOAD_ACQ(&p->ctl->tunes); /* A2 <- A2 */
    uint64_t kept = n < DLP_TUNE_NOTES ? n : DLP_TUNE_NOTES;
    out->tunes = n;
    for (uint64_t i = 0; i < kept; i++) {
        const dlp_tune_note *k = &p->ctl->tune[(n - kept + i) % DLP_TUNE_NOTES];
        dlp_tune_note *to = &out->tune[i];
        to->at_ns = DLPI_LOAD_RLX(&k->at_ns); /* statistics, here and below */
        to->stage = DLPI_LOAD_RLX(&k->stage);
        to->from = DLPI_LOAD_RLX(&k->from);
        to->to = DLPI_LOAD_RLX(&k->to);
        to->reason = DLPI_LOAD_RLX(&k->reason);
    }
}

/* The worker whose item, batch, chunk or part is in work the longest. */
static void dlpi_longest_stats(const dlp_pipe *p, dlp_worker_stats *out) {
    const dlpi_worker *longest = NULL;
    uint64_t least = dlpi_stats_now(p);
    for (int i = 0; i < p->n_workers; i++) {
        const dlpi_wblock *b = p->workers[i].wb;
        uint64_t since = DLPI_LOAD_RLX(&b->since_ns); /* statistics, here and below */
        if (DLPI_LOAD_RLX(&b->state) != DLP_WORKER_BUSY || since >= least) continue;
        if (DLPI_LOAD_RLX(&b->current) == UINT64_MAX) continue;
        longest = &p->workers[i];
        least = since;
    }
    if (longest) dlpi_worker_stats(p, longest, out);
}

static void dlpi_stats(dlp_pipe *p, dlp_stats *out) {
    dlpi_ctl *ctl = p->ctl;
    uint64_t hist[DLPI_HIST], n = 0;
    memset(out, 0, sizeof *out);
    out->elapsed_ns = dlpi_stats_now(p) - ctl->started_ns;
    /* statistics, here and below */
    out->batches = p->split ? DLPI_LOAD_RLX(&ctl->views) : DLPI_LOAD_RLX(&ctl->delivered);
    out->items = DLPI_LOAD_RLX(&ctl->items);
    out->bytes = DLPI_LOAD_RLX(&ctl->bytes);
    out->wait_ns = DLPI_LOAD_RLX(&ctl->wait_ns);
    out->part_wait_ns = DLPI_LOAD_RLX(&ctl->part_wait_ns);
    if (DLPI_LOAD_ACQ(&ctl->first_ready) != 0) out->first_skip = ctl->first_skip; /* K3 <- K3 */
    out->step_ns = DLPI_LOAD_RLX(&ctl->step_ns);
    out->first_batch_ns = DLPI_LOAD_RLX(&ctl->first_ns);
    out->epoch = DLPI_LOAD_RLX(&ctl->epoch);
    for (uint32_t i = 0; i < DLPI_HIST; i++) n += hist[i] = DLPI_LOAD_RLX(&p->trainer->wb->hist[i]);
    out->step_p50_ns = dlpi_percentile(hist, n, 50);
    out->step_p95_ns = dlpi_percentile(hist, n, 95);
    out->batch_size = p->split && !p->view ? p->cut.view_rows : p->batch_rows;
    out->prefetch_factor = p->prefetch;
    out->max_held = p->max_held;
    out->held = (uint32_t)DLPI_LOAD_RLX(&ctl->held);
    out->slots = p->n_slots;
    out->cpus = (uint32_t)p->cpus;
    out->n_stages = (uint32_t)p->n_stages;
    out->n_workers = (uint32_t)p->n_workers;
    out->plan_bytes = p->plan_bytes;
    for (int i = 0; i < p->n_stages; i++) dlpi_stage_stats(p, &p->stages[i], &out->stages[i]);
    dlpi_ready_stats(p, out);
    dlpi_cache_stats(p, out);
    if (p->split) dlpi_chunk_stats(p, &out->chunks);
    dlpi_tune_stats(p, out);
    dlpi_longest_stats(p, &out->longest);
}

static int dlpi_trace_lane(const dlp_pipe *p, int lane, dlp_trace_event *out, int max, char *name) {
    const dlpi_worker *w = &p->workers[lane == 0 ? p->n_workers : lane - 1];
    const dlpi_wblock *wb = w->wb;
    uint64_t head = DLPI_LOAD_ACQ(&wb->trace_head), from; /* G1 <- G1 */
    /* the oldest is written over next */
    uint64_t n = head < p->trace_events ? head : p->trace_events - 1;
    int copied = 0;
    if (name && lane == 0)
        dlpi_copy_text(name, 32, "trainer");
    else if (name)
        snprintf(name, 32, "%.24s-%d", w->st->name, w->id);
    if (n > (uint64_t)max) n = (uint64_t)max;
    for (from = head - n; from != head; from++) {
        const uint64_t *at = (const uint64_t *)(const void *)&w->trace[from % p->trace_events];
        uint64_t words[sizeof *out / 8], now;
        /* G1 <- G1 */
        for (size_t i = 0; i < sizeof *out / 8; i++) words[i] = DLPI_LOAD_ACQ(&at[i]);
        /* G1: written over, or about to be? then not this one */
        now = DLPI_LOAD_RLX(&wb->trace_head);
        if (now - from >= p->trace_events) continue;
        memcpy(&out[copied++], words, sizeof *out);
    }
    return copied;
}
