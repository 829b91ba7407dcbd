/* needs: predict */
#pragma once
/* tests: system/report/predict */
#include "api/predict.h"
#include "row/timing.h"
#include "report/words.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-predict    WHAT OTHER NUMBERS OF WORKERS WOULD GIVE
   Each stage has a clock of its own. It runs slower than time while more work wants a core than
   there are cores. Workers end their work at a reading of their stage's clock. The next event is
   the end that comes first. Rows of a batch are counted, not told apart: an item stage may begin as
   many as the stage before has done. */

#define DLPI_SIM_WORKERS 1024
#define DLPI_SIM_BATCHES 128 /* batches in flight, at most */
#define DLPI_SIM_EVENTS 30000
#define DLPI_SIM_RUN_NS 250.0 /* ns to claim and complete a run, see dlpi_run_shift */

/* Times of one kind of work: `low` with probability p_low, `top` with p_top, else `high`. */
typedef struct dlpi_sim_times {
    double mean, low, high, top, p_low, p_top;
    uint64_t drawn; /* times drawn so far */
} dlpi_sim_times;

typedef struct dlpi_sim_stage {
    int32_t id;              /* number of the stage in dlp_stats */
    uint32_t workers, first; /* workers, 0: inline; the first of them in dlpi_sim.worker */
    uint32_t working;        /* workers that work now: the first so many, as a heap by end */
    uint64_t low;            /* all batches below this number are claimed */
    bool batches;            /* it works on whole batches */
    dlpi_sim_times times;
    double cpu;         /* part of the busy time that is CPU time, 0..1 */
    double clock, rate; /* the stage's clock, ns; its speed against time, 0..1 */
    double busy_ns;     /* busy time of all workers */
    uint32_t n;         /* threads that work for it now, the consumer included */
} dlpi_sim_stage;

typedef struct dlpi_sim_work { /* the present work of a worker, or of the consumer */
    double end;                /* time at which it ends, by the clock of its stage */
    uint32_t batch, stage;
} dlpi_sim_work;

/* Workers of a stage are all alike: those that work are a heap of their work, the first to end on
   top. */

typedef struct dlpi_sim_batch { /* by stage: runs; in stages of batches 0 or 1 */
    uint32_t claimed[DLP_MAX_STAGES + 1], done[DLP_MAX_STAGES];
} dlpi_sim_batch;

typedef struct dlpi_sim {
    dlpi_sim_stage stage[DLP_MAX_STAGES + 1]; /* the last: the consumer's steps; its worker is the
                                                 consumer, which works for inline stages, too */
    uint32_t n_stages, n_workers;
    uint32_t runs, rows_a_run, claims_a_run; /* runs of a batch; a run may stand for several */
    uint32_t prefetch, rows;
    double cpus;
    bool unordered;
    uint64_t base, scheduled, taken, ended; /* batches; all before base are taken */
    double now, wait_ns, cpu_ns;
    double use; /* cores in use */
    dlpi_sim_work worker[DLPI_SIM_WORKERS + 1];
    dlpi_sim_batch batch[DLPI_SIM_BATCHES];
} dlpi_sim;

static double dlpi_sim_clamp(double x, double least, double most) {
    return x > least ? x < most ? x : most : least;
}

/* Set the times of a kind of work: p50, p95 and p99, with such shares that the mean comes out. The
   slowest hundredth takes p99. If p95 is no more than p50, the share of p99 is a thousandth to a
   twentieth. If no split gives the mean, all times are scaled. */
static void dlpi_sim_times_of(dlpi_sim_times *t, double mean, double p50, double p95, double p99) {
    double is;
    memset(t, 0, sizeof *t);
    t->mean = t->low = t->high = t->top = mean;
    t->p_low = 0.5;
    t->p_top = 0.01;
    if (!(p50 > 0) || p99 < 1.1 * p50) return;
    t->low = t->high = p50;
    t->top = p99;
    if (p95 > 1.1 * p50) {
        t->high = p95;
        t->p_low = (0.99 * p95 + 0.01 * p99 - mean) / (p95 - p50);
        t->p_low = dlpi_sim_clamp(t->p_low, 0.5, 0.99);
    } else {
        t->p_top = dlpi_sim_clamp((mean - p50) / (p99 - p50), 0.001, 0.05);
    }
    is = t->p_low * t->low + (1 - t->p_low - t->p_top) * t->high + t->p_top * t->top;
    t->low *= mean / is;
    t->high *= mean / is;
    t->top *= mean / is;
}

/* Draw the time of one work. Each 64 draws have one from each 64th of the distribution, in an order
   that changes. So a few hundred draws have the right mean. */
static double dlpi_sim_draw(dlpi_sim_times *t, uint32_t salt) {
    uint64_t n = t->drawn++, turn = dlpi_mix((n >> 6) * DLPI_GOLDEN + salt);
    uint64_t part = (((n ^ turn) & 63) * (turn >> 8 | 1) + (turn >> 32)) & 63;
    double within = (double)(dlpi_mix(n + turn) >> 40) / 16777216.0;
    double u = ((double)part + within) / 64;
    return u < t->p_low ? t->low : u < 1 - t->p_top ? t->high : t->top;
}

/* Return the time that stage g takes for a run of rows or, as a batch stage, for a batch. */
static double dlpi_sim_takes(const dlpi_sim *m, dlpi_sim_stage *g) {
    uint32_t n = g->batches ? 1 : m->rows_a_run, drawn = n < 64 ? n : 64;
    double sum = 0;
    for (uint32_t i = 0; i < drawn; i++) sum += dlpi_sim_draw(&g->times, (uint32_t)g->id);
    return sum * n / drawn + (g->batches ? 0 : DLPI_SIM_RUN_NS * m->claims_a_run);
}

/* --- Cores --- */

/* Return the cores in use if work on a core takes `slow` times as long. */
static double dlpi_sim_use(const dlpi_sim *m, double slow) {
    double use = 0;
    for (uint32_t k = 0; k <= m->n_stages; k++) {
        const dlpi_sim_stage *g = &m->stage[k];
        use += g->n * g->cpu / (1 - g->cpu + g->cpu * slow);
    }
    return use;
}

/* Set how fast the clock of each stage runs with the work that is under way now. */
static void dlpi_sim_rates(dlpi_sim *m) {
    const double use = dlpi_sim_use(m, 1);
    double least = 1, most = 1, slow = 1;
    m->use = use < m->cpus ? use : m->cpus;
    if (use > m->cpus) {
        while (dlpi_sim_use(m, most) > m->cpus) most *= 2;
        for (int i = 0; i < 12; i++) {
            slow = (least + most) / 2;
            if (dlpi_sim_use(m, slow) > m->cpus)
                least = slow;
            else
                most = slow;
        }
    }
    for (uint32_t k = 0; k <= m->n_stages; k++)
        m->stage[k].rate = 1 / (1 - m->stage[k].cpu + m->stage[k].cpu * slow);
}

/* --- Work --- */

static dlpi_sim_batch *dlpi_sim_at(dlpi_sim *m, uint64_t b) {
    return &m->batch[b % DLPI_SIM_BATCHES];
}

static uint32_t dlpi_sim_units(const dlpi_sim *m, uint32_t k) {
    return m->stage[k].batches ? 1 : m->runs;
}

/* Return how many runs of the batch stage k may have claimed by now. */
static uint32_t dlpi_sim_open(const dlpi_sim *m, const dlpi_sim_batch *b, uint32_t k) {
    if (k == 0) return dlpi_sim_units(m, k);
    if (!m->stage[k].batches) return b->done[k - 1];
    return b->done[k - 1] == dlpi_sim_units(m, k - 1);
}

/* Begin the oldest work that there is for stage k, as *w. Returns false if there is none. */
static bool dlpi_sim_begin(dlpi_sim *m, uint32_t k, dlpi_sim_work *w) {
    dlpi_sim_stage *g = &m->stage[k];
    if (g->low < m->base) g->low = m->base;
    while (g->low < m->scheduled && dlpi_sim_at(m, g->low)->claimed[k] == dlpi_sim_units(m, k))
        g->low++;
    const uint64_t end = k < m->n_stages || m->unordered ? m->scheduled : g->low + 1;
    for (uint64_t i = g->low; i < m->scheduled && i < end; i++) {
        dlpi_sim_batch *b = dlpi_sim_at(m, i);
        if (b->claimed[k] >= dlpi_sim_open(m, b, k)) continue;
        b->claimed[k]++;
        g->n++;
        w->end = g->clock + dlpi_sim_takes(m, g);
        w->batch = (uint32_t)(i % DLPI_SIM_BATCHES);
        w->stage = k;
        return true;
    }
    return false;
}

/* Schedule batches in place of those that the consumer has taken. */
static void dlpi_sim_schedule(dlpi_sim *m) {
    while (m->base < m->scheduled && dlpi_sim_at(m, m->base)->claimed[m->n_stages] > 0) m->base++;
    while (m->scheduled - m->taken < m->prefetch && m->scheduled - m->base < DLPI_SIM_BATCHES)
        memset(dlpi_sim_at(m, m->scheduled++), 0, sizeof *m->batch);
}

/* Let the consumer take a batch or, if none is ready, work for inline stages, the last first. *w
   becomes its work. Returns false if there is none. */
static bool dlpi_sim_next(dlpi_sim *m, dlpi_sim_work *w) {
    if (dlpi_sim_begin(m, m->n_stages, w)) {
        m->taken++;
        dlpi_sim_schedule(m);
        return true;
    }
    for (uint32_t k = m->n_stages; k-- > 0;)
        if (m->stage[k].workers == 0 && dlpi_sim_begin(m, k, w)) return true;
    return false;
}

static void dlpi_sim_push(dlpi_sim *m, dlpi_sim_stage *g, const dlpi_sim_work *w) {
    dlpi_sim_work *heap = &m->worker[g->first];
    uint32_t i = g->working++;
    for (; i > 0 && heap[(i - 1) / 2].end > w->end; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = *w;
}

/* Take off the top of the heap of stage g: the work that ends first. */
static void dlpi_sim_pop(dlpi_sim *m, dlpi_sim_stage *g) {
    dlpi_sim_work *heap = &m->worker[g->first], last = heap[--g->working];
    uint32_t i = 0, child;
    for (; (child = 2 * i + 1) < g->working; i = child) {
        if (child + 1 < g->working && heap[child + 1].end < heap[child].end) child++;
        if (heap[child].end >= last.end) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
}

/* Give work to all workers that rest, first to the consumer. */
static void dlpi_sim_dispatch(dlpi_sim *m) {
    dlpi_sim_work w = {0, 0, 0};
    for (uint32_t k = m->n_stages + 1; k-- > 0;) {
        dlpi_sim_stage *g = &m->stage[k];
        while (g->working < g->workers &&
               (k == m->n_stages ? dlpi_sim_next(m, &w) : dlpi_sim_begin(m, k, &w)))
            dlpi_sim_push(m, g, &w);
    }
}

/* Simulate until the next work ends. Returns false if nobody works: nothing can happen any more. */
static bool dlpi_sim_event(dlpi_sim *m) {
    dlpi_sim_stage *first = NULL, *g;
    const dlpi_sim_work *w = NULL;
    double after = 0;
    dlpi_sim_rates(m);
    for (uint32_t k = 0; k <= m->n_stages; k++) {
        const dlpi_sim_work *next;
        double left;
        if (m->stage[k].working == 0) continue;
        next = &m->worker[m->stage[k].first];
        left = (next->end - m->stage[next->stage].clock) / m->stage[next->stage].rate;
        if (first != NULL && left >= after) continue;
        first = &m->stage[k];
        w = next;
        after = left > 0 ? left : 0;
    }
    if (first == NULL) return false;
    m->now += after;
    m->cpu_ns += m->use * after;
    if (m->stage[m->n_stages].n == 0) m->wait_ns += after;
    for (uint32_t k = 0; k <= m->n_stages; k++) {
        g = &m->stage[k];
        g->clock += g->rate * after;
        g->busy_ns += g->n * after;
    }
    m->stage[w->stage].n--;
    if (w->stage == m->n_stages)
        m->ended++;
    else
        m->batch[w->batch].done[w->stage]++;
    dlpi_sim_pop(m, first);
    dlpi_sim_dispatch(m);
    return true;
}

/* --- The simulation is set up from the statistics of a pipe --- */

/* Return the workers that stage i shall have; 0 means inline. */
static uint32_t dlpi_sim_workers(const dlp_predict_desc *d, const dlp_stage_stats *g, uint32_t i) {
    const dlpi_stage_ops *ops = dlpi_words_ops(g);
    int32_t n = d->workers[i];
    if (n == 0 && ops->foretold != NULL) n = ops->foretold(d);
    if (n == 0) n = g->workers;
    return n > 0 ? (uint32_t)n : 0;
}

/* Return how long (ns) a stage waited for a core while it worked. */
static double dlpi_stage_core_wait(const dlp_stage_stats *g) {
    uint64_t took = dlpi_stage_has_many(g) ? g->in_flight_ns : g->busy_ns;
    return (double)dlpi_core_wait(took, g->cpu_ns, g->core_wait_ns);
}

/* True if a step keeps the device busy, not a core: it comes after a transfer stage. */
static bool dlpi_steps_idle(const dlp_stats *s) {
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++)
        if (dlpi_words_ops(&s->stages[i])->sink != NULL) return true;
    return false;
}

/* True if the consumer often waited for a core in an inline stage: other threads have the cores.
   The consumer wants one core at most, so the number of cores in use does not tell. */
static bool dlpi_cores_crowded(const dlp_stats *s) {
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->workers <= 0 && dlpi_stage_core_wait(g) > 0.2 * (double)g->busy_ns) return true;
    }
    return false;
}

/* Return how many cores were busy while the pipe was measured. *wanted also has the cores that were
   waited for. A step keeps a core busy, unless step_idle is set. */
static double dlpi_measured_cores(const dlp_stats *s, bool step_idle, double *wanted) {
    double ns = (double)s->wait_ns + (double)s->step_ns, cpu = step_idle ? 0 : (double)s->step_ns;
    double waits = 0;
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++) {
        cpu += (double)s->stages[i].cpu_ns;
        waits += dlpi_stage_core_wait(&s->stages[i]);
    }
    *wanted = ns > 0 ? (cpu + waits) / ns : 0;
    return ns > 0 ? cpu / ns : 0;
}

/* Return the time of the slowest items: p99, or the longest if p99 lacks what the mean has. */
static double dlpi_sim_slowest(const dlp_stage_stats *g, double mean) {
    const double p50 = (double)g->p50_ns, p99 = (double)g->p99_ns, longest = (double)g->max_ns;
    return mean - p50 > 0.05 * (p99 - p50) && longest > 2 * p99 ? longest : p99;
}

/* Set a stage as measured. full: all cores were busy, so a stage that computes waited for them, and
   its work takes the rest of its time. If the wait is not known, the rest is the CPU time. */
static void dlpi_sim_stage_of(dlpi_sim_stage *to, const dlp_stage_stats *g, bool full) {
    double busy = (double)g->busy_ns, cpu = (double)g->cpu_ns, scale = 1;
    double mean = busy / (double)g->items, wait = full ? dlpi_stage_core_wait(g) : 0;
    to->batches = g->unit_is_batch != 0;
    to->cpu = g->cpu_ns == 0 || cpu > busy ? 1 : cpu / busy; /* not known: as if it computed */
    if (wait > 0 && !dlpi_stage_has_many(g)) {
        scale = (busy - wait) / busy;
        to->cpu = cpu / (busy - wait);
    } else if (full && to->cpu > 0.3) {
        scale = to->cpu;
        to->cpu = 1;
    }
    dlpi_sim_times_of(&to->times, mean * scale, (double)g->p50_ns * scale,
                      (double)g->p95_ns * scale, dlpi_sim_slowest(g, mean) * scale);
}

/* Set all stages as measured. Returns 0, DLP_ERR_ARG (too many workers) or DLP_ERR_STATE (no
   work). */
static int dlpi_sim_stages(dlpi_sim *m, const dlp_stats *s, const dlp_predict_desc *d) {
    dlpi_sim_stage *steps;
    const bool idle = d->step_idle != 0 || dlpi_steps_idle(s);
    bool full;
    double used, wanted;
    used = dlpi_measured_cores(s, idle, &wanted);
    full = wanted > 0.9 * (s->cpus ? s->cpus : 1) || dlpi_cores_crowded(s);
    if (full && d->cpus == 0 && used < 0.9 * m->cpus) m->cpus = used > 0.1 ? used : 0.1;
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        dlpi_sim_stage *to = &m->stage[m->n_stages];
        if (g->items == 0 || g->busy_ns == 0 || dlpi_words_ops(g)->unit == DLPI_UNIT_NONE) continue;
        dlpi_sim_stage_of(to, g, full);
        to->id = (int32_t)i;
        to->workers = dlpi_sim_workers(d, g, i);
        to->first = m->n_workers;
        if (to->workers > DLPI_SIM_WORKERS - m->n_workers) return DLP_ERR_ARG;
        m->n_workers += to->workers;
        m->n_stages++;
    }
    if (m->n_stages == 0) return DLP_ERR_STATE;
    steps = &m->stage[m->n_stages];
    steps->id = 77; /* a salt for its times */
    steps->batches = true;
    steps->workers = 1;
    steps->first = m->n_workers;
    if (d->step_ns == 0)
        dlpi_sim_times_of(&steps->times, (double)s->step_ns / (double)s->batches,
                          (double)s->step_p50_ns, (double)s->step_p95_ns, (double)s->step_p95_ns);
    else
        dlpi_sim_times_of(&steps->times, d->step_ns > 0 ? (double)d->step_ns : 0, 0, 0, 0);
    steps->cpu = idle ? 0 : 1;
    return DLP_OK;
}

/* Return how many batches to simulate: for 4,096 items, and to fill the pipe four times. Set how
   many rows a run has, as dlpi_run_shift does. Then make runs fewer and longer, so that these
   batches take no more events than a simulation may have. */
static uint64_t dlpi_sim_runs(dlpi_sim *m) {
    const dlpi_sim_stage *g = &m->stage[0];
    const uint64_t n = 4096 / m->rows < 64 ? 64 : 4096 / m->rows, fill = UINT64_C(4) * m->prefetch;
    const uint64_t batches = n > fill ? n : fill;
    uint32_t at_once = g->workers < m->cpus ? g->workers : (uint32_t)m->cpus, shift = 0;
    uint64_t most = DLPI_SIM_EVENTS / (batches * m->n_stages) + 1;
    while (shift < DLPI_RUN_SHIFT_MAX && g->times.mean * (double)(2u << shift) <= DLPI_RUN_NS &&
           (2u << shift) * at_once <= m->rows)
        shift++;
    m->rows_a_run = 1u << shift;
    m->claims_a_run = 1;
    if (m->rows_a_run > m->rows) m->rows_a_run = m->rows;
    while ((m->rows + m->rows_a_run - 1) / m->rows_a_run > most) { /* NOLINT: never 0 */
        m->rows_a_run *= 2;
        m->claims_a_run *= 2;
    }
    m->runs = (m->rows + m->rows_a_run - 1) / m->rows_a_run;
    return batches;
}

static bool dlpi_sim_number(int32_t n) { return n >= DLP_NONE && n <= DLP_MAX_WORKERS; }

/* True if all numbers of the desc are in their ranges. */
static bool dlpi_sim_range(const dlp_predict_desc *d) {
    const int32_t n[] = {d->num_workers, d->batch_workers};
    bool ok = dlpi_sim_number(n[0]) && dlpi_sim_number(n[1]);
    for (int i = 0; i < DLP_MAX_STAGES; i++) ok = ok && dlpi_sim_number(d->workers[i]);
    return ok && d->step_ns >= DLP_NONE;
}

/* Set up a simulation. Returns 0, DLP_ERR_ARG, or DLP_ERR_STATE if too little was measured. */
static int dlpi_sim_init(dlpi_sim *m, const dlp_stats *s, const dlp_predict_desc *d) {
    memset(m, 0, sizeof *m);
    if (s->n_stages > DLP_MAX_STAGES || s->cpus > 65536 || d->cpus > 65536) return DLP_ERR_ARG;
    if (s->batches <= s->prefetch_factor || s->items == 0) return DLP_ERR_STATE;
    m->cpus = d->cpus ? d->cpus : s->cpus ? s->cpus : 1;
    m->prefetch = (uint32_t)dlpi_sim_clamp(
        d->prefetch_factor ? d->prefetch_factor : s->prefetch_factor, 1, DLPI_SIM_BATCHES);
    const uint64_t mean = (s->items + s->batches / 2) / s->batches;
    m->rows = (uint32_t)dlpi_sim_clamp((double)mean, 1, 1u << 20);
    m->unordered = d->unordered != 0;
    return dlpi_sim_stages(m, s, d);
}

/* Fill *out. The start-up was over at `from`, and `batches` have ended since. */
static void dlpi_sim_result(const dlpi_sim *m, double from, uint64_t batches, dlp_predict *out) {
    double ns = m->now - from > 0 ? m->now - from : 1;
    memset(out, 0, sizeof *out);
    out->batches_per_s = (double)batches * 1e9 / ns;
    out->items_per_s = out->batches_per_s * m->rows;
    out->wait_share = m->wait_ns / ns;
    out->cores = m->cpu_ns / ns;
    out->batches = m->ended;
    for (uint32_t k = 0; k < m->n_stages; k++) {
        const dlpi_sim_stage *g = &m->stage[k];
        out->busy_share[g->id] = g->busy_ns / (ns * (g->workers ? g->workers : 1));
    }
}

DLPDEF int dlp_stats_predict(const dlp_stats *measured, const dlp_predict_desc *what_if,
                             dlp_predict *out) {
    static const dlp_predict_desc as_measured;
    const dlp_predict_desc *d = what_if ? what_if : &as_measured;
    dlpi_sim m;
    uint64_t batches, warm;
    double from = 0;
    int rc;
    if (measured == NULL || out == NULL || !dlpi_sim_range(d)) return DLP_ERR_ARG;
    if ((rc = dlpi_sim_init(&m, measured, d)) != DLP_OK) return rc;
    batches = dlpi_sim_runs(&m);
    warm = batches / 4; /* a quarter is the start-up */
    dlpi_sim_schedule(&m);
    dlpi_sim_dispatch(&m);
    while (m.ended < batches) {
        uint64_t before = m.ended;
        if (!dlpi_sim_event(&m)) return DLP_ERR_ARG;
        if (m.ended == before || m.ended != warm) continue;
        from = m.now; /* the start-up is over */
        m.wait_ns = m.cpu_ns = 0;
        for (uint32_t k = 0; k < m.n_stages; k++) m.stage[k].busy_ns = 0;
    }
    dlpi_sim_result(&m, from, batches - warm, out);
    return DLP_OK;
}
