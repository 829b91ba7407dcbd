#pragma once
/* tests: system/report/pipe_stats, system/shm/monitor */
#include "row/timing.h"
#include "observe/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-stats      COUNTERS AND TRACE, READ */

/* What a worker counts, for its own figures and for its stage's; and for its stage's alone. */
#define DLPI_WORKER_COUNTS(X) \
    X(items) X(bytes) X(busy_ns) X(starved_ns) X(blocked_ns) X(cpu_ns) X(core_wait_ns)
#define DLPI_STAGE_COUNTS(X) X(retried) X(replaced) X(left_out) X(in_flight_ns)
#define DLPI_SUM_UP(member) out->member += DLPI_LOAD_RLX(&b->member); /* statistics */

/* What records of the region and the statistics both have: read, or copied. */
#define DLPI_WORKER_STATE(X) X(state) X(tid) X(pid) X(restarts) X(died_by)
#define DLPI_CTL_COUNTS(X) X(items) X(bytes) X(wait_ns) X(step_ns) X(set_epoch_ns) X(epoch)
#define DLPI_NOTE_WORDS(X) X(at_ns) X(stage) X(from) X(to) X(reason)
#define DLPI_SEEN_FIGURES(X) X(max_held) X(cpus) X(n_stages) X(n_workers) X(plan_bytes)
#define DLPI_READ_WORD(member) out->member = DLPI_LOAD_RLX(&b->member); /* statistics */
#define DLPI_COPY_FIGURE(member) out->member = s->member;

/* Fill *out with the statistics of worker i, a number below the workers of all stages. */
static void dlpi_worker_stats(const dlpi_seen *s, uint32_t i, dlp_worker_stats *out) {
    const dlpi_worker_block *b = dlpi_seen_block(s, i);
    const dlpi_seen_stage *st = dlpi_seen_owner(s, i);
    /* statistics, here and below */
    uint64_t since = DLPI_LOAD_RLX(&b->since_ns), now = s->now_ns;
    memset(out, 0, sizeof *out);
    out->stage = (int32_t)(st - s->stages);
    out->worker = (int32_t)i - st->r.first_worker;
    DLPI_WORKER_STATE(DLPI_READ_WORD)
    DLPI_WORKER_COUNTS(DLPI_SUM_UP)
    out->current_index = DLPI_LOAD_RLX(&b->current);
    if (out->current_index != UINT64_MAX && now > since) out->current_age_ns = now - since;
    out->process = st->r.placement; /* 1: DLP_PLACE_PROCESSES */
}

/* Add a worker's histogram to hist[]. Returns how many times (durations) it has. */
static uint64_t dlpi_hist_add(const dlpi_seen *s, uint32_t worker, uint64_t *hist) {
    const dlpi_worker_block *b = dlpi_seen_block(s, worker);
    uint64_t n = 0;
    for (uint32_t i = 0; i < DLPI_HIST; i++) {
        uint32_t c = DLPI_LOAD_RLX(&b->hist[i]); /* statistics */
        hist[i] += c;
        n += c;
    }
    return n;
}

/* Return the time in the middle of a bucket (dlpi_hist_bucket). */
static uint64_t dlpi_hist_value(uint32_t bucket) {
    uint32_t log = bucket / 4u + 1u, sub = bucket % 4u;
    if (bucket < 4) return bucket;
    return (UINT64_C(4) + sub) * (UINT64_C(1) << (log - 2)) + (UINT64_C(1) << (log - 2)) / 2;
}

/* Return a percentile of n times in a histogram, in ns; 0 if n is 0. */
static uint64_t dlpi_percentile(const uint64_t *hist, uint64_t n, uint32_t percent) {
    uint64_t want = (n * percent + 99) / 100, seen = 0;
    for (uint32_t i = 0; i < DLPI_HIST && n > 0; i++)
        if ((seen += hist[i]) >= want) return dlpi_hist_value(i);
    return 0;
}

/* Set the percentiles of a stage, and the times of its slowest worker beside all others. */
static void dlpi_stage_times(const dlpi_seen *s, const dlpi_seen_stage *st, dlp_stage_stats *out) {
    const uint32_t first = (uint32_t)st->r.first_worker, workers = (uint32_t)st->r.n_workers;
    uint64_t all[DLPI_HIST] = {0}, n = 0;
    for (uint32_t k = 0; k < workers; k++) n += dlpi_hist_add(s, first + k, all);
    out->p50_ns = dlpi_percentile(all, n, 50);
    out->p95_ns = dlpi_percentile(all, n, 95);
    out->p99_ns = dlpi_percentile(all, n, 99);
    for (uint32_t k = 0; k < workers && workers > 1; k++) {
        uint64_t one[DLPI_HIST] = {0}, timed = dlpi_hist_add(s, first + k, one), ns;
        if (timed < 8 || (ns = dlpi_percentile(one, timed, 10)) <= out->slowest_ns) continue;
        for (uint32_t i = 0; i < DLPI_HIST; i++) /* it may have grown since it was added */
            one[i] = all[i] > one[i] ? all[i] - one[i] : 0;
        out->slowest = (int32_t)k;
        out->slowest_ns = ns;
        out->slowest_items = DLPI_LOAD_RLX(&dlpi_seen_block(s, first + k)->items); /* statistics */
        out->others_ns = dlpi_percentile(one, n > timed ? n - timed : 0, 50);
    }
}

/* Return ns as a whole number, at most 2^62: a region may say anything. */
static uint64_t dlpi_ns_of(double ns) { return ns < 0x1p62 ? (uint64_t)ns : UINT64_C(1) << 62; }

/* Estimate what clearing cost a worker of a stage, from its samples. Name the field for which the
   votes of a worker count most. */
static void dlpi_stage_clears(const dlpi_worker_block *b, uint64_t *most, dlp_clear_stats *out) {
    /* statistics, here and below */
    const uint64_t of = DLPI_LOAD_RLX(&b->clear_of_ns), weight = DLPI_LOAD_RLX(&b->clear_weight);
    const uint64_t rows = DLPI_LOAD_RLX(&b->clear_rows);
    if (of == 0) return;
    const double times = (double)DLPI_LOAD_RLX(&b->busy_ns) / (double)of;
    out->ns += dlpi_ns_of(times * (double)DLPI_LOAD_RLX(&b->clear_ns));
    out->spared_ns += dlpi_ns_of(times * (double)DLPI_LOAD_RLX(&b->clear_spared_ns));
    if (weight <= *most || rows == 0) return;
    *most = weight;
    for (size_t i = 0; i < sizeof b->clear_name / 8; i++) {
        const uint64_t word = DLPI_LOAD_RLX(&b->clear_name[i]);
        memcpy(out->field + 8 * i, &word, sizeof word);
    }
    out->field[sizeof out->field - 1] = 0; /* another worker's, and torn while it changes */
    out->room = DLPI_LOAD_RLX(&b->clear_room);
    out->cleared = DLPI_LOAD_RLX(&b->clear_bytes) / rows;
    out->used = DLPI_LOAD_RLX(&b->clear_used) / rows;
}

/* Add the counts of one worker to the statistics of its stage. */
static void dlpi_stage_add_worker(const dlpi_worker_block *b, dlp_stage_stats *out) {
    uint64_t most = DLPI_LOAD_RLX(&b->max_ns); /* statistics, here and below */
    DLPI_WORKER_COUNTS(DLPI_SUM_UP)
    DLPI_STAGE_COUNTS(DLPI_SUM_UP)
    if (most > out->max_ns) {
        out->max_ns = most;
        out->max_index = DLPI_LOAD_RLX(&b->max_index);
    }
    out->restarts += (uint64_t)DLPI_LOAD_RLX(&b->restarts);
    if (DLPI_LOAD_RLX(&b->died_by) != 0) out->died_by = DLPI_LOAD_RLX(&b->died_by);
}

/* Fill in the statistics of a stage. Figures that its kind counts are in *out already. */
static void dlpi_stage_stats(const dlpi_seen *s, const dlpi_seen_stage *st, dlp_stage_stats *out) {
    dlpi_copy_text(out->name, sizeof out->name, st->r.name);
    out->kind = st->r.kind;
    if (st->r.work < 0) return;
    out->workers = st->r.num_workers;
    if (st->r.workers_min > 0) {
        out->workers = (int32_t)st->r.active;
        out->workers_min = st->r.workers_min;
        out->workers_max = st->r.n_workers;
    }
    /* items: of the first stages, and of what stands beside them all */
    out->unit_is_batch = st->r.work >= (int)s->n_item_work && st->r.work < (int)s->n_work;
    out->in_flight = st->r.in_flight;
    out->zeroes = st->r.zeroes;
    uint64_t most = 0;
    for (int k = 0; k < st->r.n_workers; k++) {
        const dlpi_worker_block *b = dlpi_seen_block(s, (uint32_t)(st->r.first_worker + k));
        dlpi_stage_add_worker(b, out);
        dlpi_stage_clears(b, &most, &out->clears);
    }
    dlpi_stage_times(s, st, out);
}

/* Set how many records are in each link. open: batches that have not left the first stage. */
static void dlpi_links_depth(const dlpi_seen *s, uint64_t open, dlp_stats *out) {
    const uint64_t used = (uint64_t)out->in_flight + out->held;
    for (uint32_t i = 0; i < out->n_links; i++) {
        dlp_link *l = &out->links[i];
        const int32_t work = l->to_stage < 0 ? -1 : s->stages[l->to_stage].r.work;
        if (l->from_stage < -1 || work >= (int32_t)s->n_work) continue; /* the kind says it */
        if (l->to_stage < 0)
            l->depth = out->ready;
        else if (l->from_stage < 0)
            l->depth = work >= 0 ? s->sink_free : out->slots > used ? out->slots - used : 0;
        else
            l->depth = l->to_stage == s->work[0] ? open : out->stages[l->to_stage].ready;
    }
}

/* Count batches complete and not delivered, and what waits before each stage and in each link. */
static void dlpi_ready_stats(const dlpi_seen *s, dlp_stats *out) {
    uint64_t open = 0; /* batches that have not left the first stage */
    uint32_t here = 0, ready = 0;
    uint64_t tail = dlpi_credit_look(&s->ctl->tail); /* T1 <- T1 */
    /* V1 <- V1: any thread may look */
    for (uint64_t b = dlpi_credit_look(&s->ctl->base); b < tail; b++) {
        uint32_t slot;
        const uint8_t *taken = dlpi_seen_at(s, DLPI_REC_TAKEN, b & (s->ring - 1));
        if (DLPI_LOAD_RLX(taken)) continue; /* statistics */
        slot = dlpi_seen_slot(s, b);
        here++;
        open += !dlpi_seen_left(s, b, slot, s->work[0]);
        if (dlpi_seen_left(s, b, slot, s->final)) ready++;
        for (uint32_t i = 1; i < s->n_work; i++) {
            bool in = dlpi_seen_left(s, b, slot, s->work[i - 1]);
            if (in && !dlpi_seen_left(s, b, slot, s->work[i])) out->stages[s->work[i]].ready++;
        }
    }
    /* unordered: batches that were taken before are counted where base comes by while we look */
    here = here < s->prefetch ? here : s->prefetch;
    out->in_flight = here;
    out->ready = ready < here ? ready : here;
    dlpi_links_depth(s, open, out);
}

/* Copy the tuner's last notes, oldest first, and set how many notes there were in all. */
static void dlpi_tune_stats(const dlpi_seen *s, dlp_stats *to) {
    uint64_t n = DLPI_LOAD_ACQ(&s->ctl->tunes); /* A2 <- A2 */
    uint64_t kept = n < DLP_TUNE_NOTES ? n : DLP_TUNE_NOTES;
    to->tunes = n;
    for (uint64_t i = 0; i < kept; i++) {
        const dlp_tune_note *b = &s->ctl->tune[(n - kept + i) % DLP_TUNE_NOTES];
        dlp_tune_note *out = &to->tune[i];
        DLPI_NOTE_WORDS(DLPI_READ_WORD)
    }
}

/* Tell of the worker whose present work takes the longest. *out stays if none is at work. */
static void dlpi_longest_stats(const dlpi_seen *s, dlp_worker_stats *out) {
    uint32_t longest = UINT32_MAX;
    uint64_t least = s->now_ns;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const dlpi_worker_block *b = dlpi_seen_block(s, i);
        uint64_t since = DLPI_LOAD_RLX(&b->since_ns); /* statistics, here and below */
        if (DLPI_LOAD_RLX(&b->state) != DLP_WORKER_BUSY || since >= least) continue;
        if (DLPI_LOAD_RLX(&b->current) == UINT64_MAX) continue;
        longest = i;
        least = since;
    }
    if (longest != UINT32_MAX) dlpi_worker_stats(s, longest, out);
}

/* Fill *out with all statistics, from words of the region. Values are read one by one, so they may
   be of slightly different times. */
static void dlpi_stats(const dlpi_seen *s, dlp_stats *out) {
    const dlpi_ctl *b = s->ctl;
    uint64_t hist[DLPI_HIST] = {0}, n;
    *out = s->figures;
    DLPI_SEEN_FIGURES(DLPI_COPY_FIGURE)
    out->elapsed_ns = s->now_ns - b->started_ns;
    out->batches = DLPI_LOAD_RLX(s->delivered); /* statistics, here and below */
    DLPI_CTL_COUNTS(DLPI_READ_WORD)
    out->part_wait_ns = DLPI_LOAD_RLX(&b->source_wait_ns);
    if (dlpi_first_look(&b->first_ready) != 0) out->first_skip = b->first_skip; /* K3 <- K3 */
    out->first_batch_ns = DLPI_LOAD_RLX(&b->first_ns);
    out->epoch_borders = DLPI_LOAD_RLX(&b->borders);
    out->epoch_wait_ns = DLPI_LOAD_RLX(&b->border_ns);
    n = dlpi_hist_add(s, s->n_workers, hist);
    out->step_p50_ns = dlpi_percentile(hist, n, 50);
    out->step_p95_ns = dlpi_percentile(hist, n, 95);
    out->batch_size = s->batch_rows;
    out->prefetch_factor = s->prefetch;
    out->held = (uint32_t)DLPI_LOAD_RLX(&b->held);
    out->slots = s->n_slots;
    for (uint32_t i = 0; i < s->n_stages; i++) dlpi_stage_stats(s, &s->stages[i], &out->stages[i]);
    dlpi_ready_stats(s, out);
    dlpi_tune_stats(s, out);
    dlpi_longest_stats(s, &out->longest);
}

/* Copy the newest skips. Returns how many are copied; *total, or NULL, gets how many there were. */
static int dlpi_skips(const dlpi_seen *s, dlp_skip *out, int max, uint64_t *total) {
    uint64_t from, n = dlpi_skip_count(s->ctl, &from);
    int copied = 0;
    if (n - from > (uint64_t)max) from = n - (uint64_t)max;
    for (; from != n && copied < max; from++)
        if (dlpi_skip_read(s->ctl, from, &out[copied])) copied++;
    if (total) *total = n;
    return copied;
}

/* Copy the newest events of a lane. Lane 0 is the consumer's, lane i that of worker i - 1. name: 32
   bytes for the lane's name, or NULL. Returns how many events are copied. */
static int dlpi_trace_lane(const dlpi_seen *s, uint32_t lane, dlp_trace_event *out, int max,
                           char *name) {
    const uint32_t worker = lane == 0 ? s->n_workers : lane - 1;
    const dlpi_worker_block *block = dlpi_seen_block(s, worker);
    const uint8_t *ring = dlpi_seen_at(s, DLPI_REC_TRACE, worker);
    const dlpi_seen_stage *st = dlpi_seen_owner(s, worker);
    uint64_t head = DLPI_LOAD_ACQ(&block->trace_head), from; /* G1 <- G1 */
    /* the oldest is written over next */
    uint64_t n = head < s->trace_events ? head : s->trace_events - 1;
    int copied = 0;
    if (name && st == NULL)
        dlpi_copy_text(name, 32, "consumer");
    else if (name)
        snprintf(name, 32, "%.24s-%d", st->r.name, (int)worker - st->r.first_worker);
    if (n > (uint64_t)max) n = (uint64_t)max;
    for (from = head - n; from != head; from++) {
        const uint64_t *at =
            (const uint64_t *)(const void *)(ring + from % s->trace_events * sizeof *out);
        uint64_t words[sizeof *out / 8], now;
        /* G1 <- G1 */
        for (size_t i = 0; i < sizeof *out / 8; i++) words[i] = DLPI_LOAD_ACQ(&at[i]);
        /* G1: written over, or about to be? then not this one */
        now = DLPI_LOAD_RLX(&block->trace_head);
        if (now - from >= s->trace_events) continue;
        memcpy(&out[copied++], words, sizeof *out);
    }
    return copied;
}
