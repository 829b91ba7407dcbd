/* needs: explain */
#pragma once
/* tests: system/report/texts, system/report/advice */
#include "report/predict.h"
#include "report/words.h"
/* ---- what limits a pipe, and what a change would give ---- */

/* What limits: a stage, or one of the names below. Groups of sentences are numbered as these. */
enum {
    DLPI_LIMIT_CONSUMER = -1,
    DLPI_LIMIT_CORES = -2,
    DLPI_LIMIT_PREFETCH = -3,
    DLPI_LIMIT_UNKNOWN = -4,
    DLPI_LIMIT_PRODUCERS = -5
};

/* rate_plus_one: items/s that one more worker of limiting_stage would give, or one at all if it is
   inline. It is the rate where no worker helps. */
typedef struct dlpi_verdict {
    int limiting_stage;   /* or DLPI_LIMIT_* */
    int next_limit;       /* the limit of rate_plus_one; may be limiting_stage again */
    double rate;          /* items/s now */
    double rate_plus_one; /* items/s with one worker more in the limiting stage */
} dlpi_verdict;

/* dlp_stats as shares of the time the consumer spent in next and in its steps. */
typedef struct dlpi_load {
    double ns;   /* length of that time */
    double rows; /* rows of a batch */
    double rate; /* items/s */
    double wait; /* part of the time that the consumer waited, or did inline stages' work, 0..1 */
    double consumer; /* part of the time of its own steps and inline stages, 0..1 */
    double cores;    /* part of the process's cores used or waited for */
    double used;     /* part of the process's cores used */
    double work; /* ns that workers work on a batch's items; 0 if workers have other work, too */
    double util[DLP_MAX_STAGES];   /* busy part of the time of useful workers; 0: inline */
    double useful[DLP_MAX_STAGES]; /* workers that can have work at once */
    int busiest;                   /* stage with the largest util, -1: none has workers */
    int heaviest;                  /* inline stage with the most time, -1: none has any */
    int reader;                    /* stage that reads a push and waits the longest, -1: none */
    int n;
} dlpi_load;

/* Return the name of a limit as text: of a stage, or of a DLPI_LIMIT_*. */
static dlpi_num dlpi_num_limit(const dlp_stats *s, int limit) {
    static const char *const names[] = {"the consumer", "the cores", "prefetch_factor", "not known",
                                        "the producers"};
    dlpi_num r;
    snprintf(r.s, sizeof r.s, limit < 0 ? "%.31s" : "'%.31s'",
             limit < 0 ? names[-1 - limit] : s->stages[limit].name);
    return r;
}

/* Return how many items were left out in stages of rows, if no item got through all of them. Else
   returns 0. Stages with cells make the items; what they leave out is no row. */
static uint64_t dlpi_all_left_out(const dlp_stats *s) {
    uint64_t rows = 0, left_out = 0;
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->cells > 0 || dlpi_stage_takes_batches(g)) continue;
        if (g->items > rows) rows = g->items;
        left_out += g->left_out;
    }
    return s->batches > 0 && left_out >= rows ? left_out : 0;
}

/* Return how many units of its work a stage can have at once. rows: of a batch. */
static double dlpi_stage_at_once(uint32_t prefetch, const dlp_stage_stats *g, double rows) {
    if (g->cells > 0) return g->cells;
    return prefetch * (dlpi_stage_takes_batches(g) ? 1.0 : rows);
}

/* Compute the pipe's load from its statistics. If no batch was delivered, most values of *l stay 0.
   */
static void dlpi_load_of(dlpi_load *l, const dlp_stats *s) {
    bool items = !dlpi_of_chunks(s);
    double work = 0;
    memset(l, 0, sizeof *l);
    l->n = s->n_stages < DLP_MAX_STAGES ? (int)s->n_stages : DLP_MAX_STAGES;
    l->ns = (double)s->wait_ns + (double)s->step_ns;
    l->busiest = l->heaviest = l->reader = -1;
    if (s->batches == 0 || !(l->ns > 0)) return;
    l->rows = (double)s->items / (double)s->batches;
    l->rate = (double)s->items * 1e9 / l->ns;
    l->wait = (double)s->wait_ns / l->ns;
    l->consumer = (double)s->step_ns / l->ns;
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (dlpi_stage_reader(g).writers > 0 &&
            (l->reader < 0 || g->starved_ns > s->stages[l->reader].starved_ns))
            l->reader = i;
        if (g->workers <= 0) {
            l->consumer += (double)g->busy_ns / l->ns;
            if (g->busy_ns > (l->heaviest < 0 ? 0 : s->stages[l->heaviest].busy_ns))
                l->heaviest = i;
            continue;
        }
        work += (double)g->busy_ns;
        items = items && g->cells == 0 && !dlpi_stage_takes_batches(g);
        double most = dlpi_stage_at_once(s->prefetch_factor, g, l->rows);
        l->useful[i] = most > 0 && most < g->workers ? most : g->workers;
        l->util[i] = (double)g->busy_ns / (l->useful[i] * l->ns);
        if (l->util[i] > 1) l->util[i] = 1; /* the consumer helped */
        if (l->busiest < 0 || l->util[i] > l->util[l->busiest]) l->busiest = i;
    }
    l->work = items ? work / (double)s->batches : 0;
    l->used = dlpi_measured_cores(s, dlpi_steps_idle(s), &l->cores) / (s->cpus > 0 ? s->cpus : 1);
    l->cores /= s->cpus > 0 ? s->cpus : 1;
    l->consumer = l->consumer > 1 ? 1 : l->consumer;
}

/* Return which part of the busy time of a stage these ns of clearing are, 0..1. */
static double dlpi_clears_share(const dlp_stage_stats *g, uint64_t ns) {
    return ns < g->busy_ns ? (double)ns / (double)g->busy_ns : ns > 0;
}

/* True if clearing is a large part of the busy time of a stage. */
static bool dlpi_clears_much(const dlp_stage_stats *g) {
    return g->clears.field[0] != 0 && dlpi_clears_share(g, g->clears.ns) >= 0.3;
}

/* Lower the predicted rate to a bound, if it is above, and note whose bound it is. */
static void dlpi_verdict_bound(dlpi_verdict *v, double bound, int whose) {
    if (bound < v->rate_plus_one) {
        v->rate_plus_one = bound;
        v->next_limit = whose;
    }
}

/* Predict the rate with one more worker in the limiting stage, or with one more producer: in
   proportion, until the next limit is as busy as this stage is now. */
static void dlpi_verdict_predict(dlpi_verdict *v, const dlpi_load *l, const dlp_stats *s) {
    const int i = v->limiting_stage;
    const bool pushed = i == DLPI_LIMIT_PRODUCERS;
    const dlp_stage_stats *g = &s->stages[pushed ? l->reader : i];
    const double now = pushed ? (double)g->producers : (double)g->workers;
    const double share = (double)g->busy_ns / l->ns;
    double reach = 1, consumer = l->consumer;
    if (pushed && now > 0) {
        v->rate_plus_one = l->rate * (now + 1) / now;
    } else if (!pushed && now > 0) {
        double most = dlpi_stage_at_once(s->prefetch_factor, g, l->rows);
        reach = l->util[i] < 1 ? l->util[i] : 1;
        v->rate_plus_one = l->rate * (l->useful[i] < now ? now : now + 1) / now;
        dlpi_verdict_bound(v, l->rate * (most > now ? most / now : 1), DLPI_LIMIT_PREFETCH);
    } else if (!pushed) {
        consumer -= share < consumer ? share : consumer;
        if (share > 0) v->rate_plus_one = l->rate / share;
    }
    for (int k = 0; k < l->n; k++)
        if (k != i && l->util[k] > 0) dlpi_verdict_bound(v, l->rate * reach / l->util[k], k);
    if (consumer > 0) dlpi_verdict_bound(v, l->rate * reach / consumer, DLPI_LIMIT_CONSUMER);
    if (!pushed && l->cores > 0) dlpi_verdict_bound(v, l->rate / l->cores, DLPI_LIMIT_CORES);
    v->rate_plus_one = v->rate_plus_one > v->rate ? v->rate_plus_one : v->rate;
}

/* Return what limits the pipe: a stage, or a DLPI_LIMIT_*. The consumer is the limit if it hardly
   waits. Then come the cores, if they are full, and a stage, if its workers hardly rest. The
   producers of a push are the limit if its reader waits for them half of the time. If everybody
   waits at times, there are too few batches in flight. */
static int dlpi_limit_of(const dlp_stats *s, const dlpi_load *l) {
    const double inlined = l->heaviest >= 0 ? (double)s->stages[l->heaviest].busy_ns / l->ns : 0;
    const double busiest = l->busiest >= 0 ? l->util[l->busiest] : 0;
    if (l->consumer >= 0.95 || (l->consumer >= 0.9 && l->consumer >= busiest))
        return inlined >= 0.1 ? l->heaviest : DLPI_LIMIT_CONSUMER;
    if (l->cores >= 0.9) return DLPI_LIMIT_CORES;
    if (busiest >= 0.8 && l->useful[l->busiest] >= s->stages[l->busiest].workers) return l->busiest;
    if (l->reader >= 0 && (double)s->stages[l->reader].starved_ns >= 0.5 * l->ns)
        return DLPI_LIMIT_PRODUCERS;
    if (l->busiest >= 0) return DLPI_LIMIT_PREFETCH;
    return l->heaviest >= 0 ? l->heaviest : DLPI_LIMIT_UNKNOWN;
}

/* Return what limits the pipe, and the rate with one worker more in that place. The limit is
   unknown until more batches than prefetch_factor were delivered. */
static dlpi_verdict dlpi_verdict_of(const dlp_stats *s) {
    dlpi_load l;
    dlpi_load_of(&l, s);
    dlpi_verdict v = {DLPI_LIMIT_UNKNOWN, DLPI_LIMIT_UNKNOWN, l.rate, l.rate};
    if (s->items == 0 || !(l.ns > 0) || s->batches <= s->prefetch_factor) return v;
    v.limiting_stage = v.next_limit = dlpi_limit_of(s, &l);
    if (v.limiting_stage >= 0 || v.limiting_stage == DLPI_LIMIT_PRODUCERS)
        dlpi_verdict_predict(&v, &l, s);
    return v;
}

/* ---- what a change would give ---- */

/* Return the items/s of a pipe whose stage g leaves out the clearing that writes_all_bytes = 1
   spares, until the consumer or another stage is as busy. */
static double dlpi_clears_rate(const dlpi_load *l, const dlp_stats *s, const dlp_stage_stats *g) {
    double more = 1 / (1 - dlpi_clears_share(g, g->clears.spared_ns));
    const double here = g->workers <= 0 ? (double)g->busy_ns / l->ns : 0;
    double busiest = l->consumer - here + here / more;
    for (int k = 0; k < l->n; k++)
        if (&s->stages[k] != g && l->util[k] > busiest) busiest = l->util[k];
    return l->rate * (busiest * more > 1 ? 1 / busiest : more);
}

/* What is foretold of other numbers of workers or batches. */
typedef struct dlpi_foretold {
    uint64_t more;   /* a larger number of batches in flight, to try */
    double deeper;   /* items/s with this number; 0: not known */
    double loose;    /* items/s that unordered = 1 gives; 0: not known, or no more */
    double many;     /* items/s that 16 items at once in each worker give; 0: not known */
    int n, then;     /* numbers of workers that `words` names; the limit with the last of them */
    char words[200]; /* text: items/s with other numbers of workers */
} dlpi_foretold;

/* Return the items/s that a simulation gives with this change; 0 if they are no more than now. */
static double dlpi_foretold_rate(const dlp_stats *s, const dlpi_load *l, dlp_predict_desc change) {
    dlp_predict then;
    if (dlp_stats_predict(s, &change, &then) != DLP_OK) return 0;
    return then.items_per_s > 1.02 * l->rate ? then.items_per_s : 0;
}

static double dlpi_foretold_deeper(const dlp_stats *s, const dlpi_load *l, uint64_t prefetch) {
    return dlpi_foretold_rate(s, l, (dlp_predict_desc){.prefetch_factor = (uint32_t)prefetch});
}

/* Return what limits the pipe by a prediction for workers of the inline stage i. */
static int dlpi_inline_limit(const dlp_stats *s, const dlpi_load *l, int i, const dlp_predict *p) {
    if (p->wait_share < 0.1) return DLPI_LIMIT_CONSUMER;
    if (dlpi_cores_crowded(s) || p->cores >= 0.9 * (s->cpus > 0 ? s->cpus : 1))
        return DLPI_LIMIT_CORES;
    for (int k = 0; k < l->n; k++)
        if (k != i && p->busy_share[k] >= 0.9) return k;
    return DLPI_LIMIT_PREFETCH;
}

/* Predict the rates with 1, 2, 4 and so on workers of the inline stage i, until more do not help.
   The words name the first three numbers and the last. now: items/s of the simulation without them.
   Without workers a pipe of rows has one batch in flight by default, with workers two. n becomes 0
   if no worker helps. */
static void dlpi_inline_foretell(const dlp_stats *s, const dlpi_load *l, int i, double now,
                                 dlpi_foretold *f) {
    dlp_predict_desc d = {.prefetch_factor = s->prefetch_factor < 2 ? 2 : s->prefetch_factor};
    dlpi_text t = {f->words, sizeof f->words, 0};
    double last = 0, most = dlpi_stage_at_once(d.prefetch_factor, &s->stages[i], l->rows);
    size_t three = 0;
    dlp_predict p;
    if (most > DLP_MAX_WORKERS) most = DLP_MAX_WORKERS;
    for (int w = f->n = 0; w < most; f->n++) {
        d.workers[i] = w = w == 0 ? 1 : 2 * w > most ? (int)most : 2 * w;
        if (dlp_stats_predict(s, &d, &p) != DLP_OK || p.items_per_s < 1.05 * last) break;
        last = p.items_per_s;
        f->then = dlpi_inline_limit(s, l, i, &p);
        if (f->n <= 3) three = t.len;
        t.len = three;
        dlpi_text_add(&t, f->n == 0 ? "%d should give about %s items/s" : ", %d about %s", w,
                      dlpi_num_of(last).s);
    }
    if (last <= 1.05 * now) f->n = 0;
}

/* Return how many batches, or chunks, the workers of a stage finish while an item of its slowest
   hundredth takes: so many in flight hide it. Returns 0 if the times of items are about even, or if
   cells hide it. */
static double dlpi_foretold_hidden(const dlp_stage_stats *g, double rows) {
    if (g->p50_ns == 0 || g->p99_ns / 4 < g->p50_ns || g->busy_ns == 0 || g->cells > 0) return 0;
    return (double)g->p99_ns * g->workers * (double)g->items / (double)g->busy_ns / rows;
}

/* Predict what a change at the limit would give. If the limit is prefetch_factor, the changes are
   more batches in flight, and unordered = 1. The batches are twice as many, or so many that each
   worker has an item. They are more if these give less than 0.9 of the most. If the limit is an
   inline stage, the change is workers; n stays -1 if the stage can have one worker only. If the
   callbacks of the limiting stage wait for items, the change is 16 items at once in each worker.
   Nothing is predicted if the simulation does not even give about the measured rate: then so many
   batches are named that they hide slow items. */
static void dlpi_foretell(const dlp_stats *s, const dlpi_load *l, int limit, dlpi_foretold *f) {
    const bool deeper = limit == DLPI_LIMIT_PREFETCH;
    const dlp_stage_stats *g = &s->stages[limit >= 0 ? limit : deeper ? l->busiest : 0];
    const double rows = dlpi_of_chunks(s) ? 1 : l->rows;
    const bool inlined = limit >= 0 && g->workers <= 0 && dlpi_words_ops(g)->sink == NULL &&
                         dlpi_stage_slow(g) == NULL;
    const bool sleeps = limit >= 0 && g->workers <= DLP_MAX_WORKERS / 16 && dlpi_stage_sleeps(s, g);
    dlp_predict_desc many = {.prefetch_factor = inlined && s->prefetch_factor < 2 ? 2 : 0};
    double need = rows > 0 ? g->workers / rows : 0;
    dlp_predict now;
    bool known = (deeper || inlined || sleeps) && dlp_stats_predict(s, NULL, &now) == DLP_OK &&
                 now.items_per_s > 0.85 * l->rate && now.items_per_s < 1.15 * l->rate;
    if (deeper && !known && rows > 0 && dlpi_foretold_hidden(g, rows) > need)
        need = dlpi_foretold_hidden(g, rows);
    f->n = -1;
    f->more = s->prefetch_factor > 0 ? 2 * (uint64_t)s->prefetch_factor : 1;
    while (f->more < 4096 && (double)f->more < need + 1) f->more *= 2;
    f->more = f->more < 4096 ? f->more : 4096;
    if (!known) return;
    if (deeper) {
        const double most = dlpi_foretold_deeper(s, l, DLPI_SIM_BATCHES);
        f->deeper = dlpi_foretold_deeper(s, l, f->more);
        while (f->deeper < 0.9 * most && 2 * f->more <= DLPI_SIM_BATCHES)
            f->deeper = dlpi_foretold_deeper(s, l, f->more *= 2);
        if (!dlpi_of_chunks(s))
            f->loose = dlpi_foretold_rate(s, l, (dlp_predict_desc){.unordered = 1});
    } else if (inlined) {
        dlpi_inline_foretell(s, l, limit, now.items_per_s, f);
    }
    if (sleeps) {
        many.workers[limit] = 16 * (g->workers > 0 ? g->workers : 1);
        f->many = dlpi_foretold_rate(s, l, many);
    }
}
