#pragma once
/* tests: system/report/pictures, system/report/pipe_stats */
#include "stages/fetch.h"
#include "report/packing.h"
#include "report/predict.h"
#include "report/words.h"
/* ---- words ---- */

/* What limits: a stage, or one of the names below. */
enum {
    DLPI_LIMIT_CONSUMER = -1,
    DLPI_LIMIT_CORES = -2,
    DLPI_LIMIT_PREFETCH = -3,
    DLPI_LIMIT_UNKNOWN = -4
};

typedef struct dlpi_verdict {
    int limiting_stage; /* or DLPI_LIMIT_* */
    int next_limit; /* what bounds rate_plus_one; the same as limiting_stage: nothing else does */
    double rate;    /* items/s now */
    double
        /* items/s that one more worker of limiting_stage would give (moved out of the consumer, if
           it is inline); rate where no worker helps */
        rate_plus_one;
} dlpi_verdict;

/* dlp_stats as shares of the time the consumer spent in next and in its steps. */
typedef struct dlpi_load {
    double ns;   /* that time */
    double rows; /* per batch */
    /* items per batch, as stages count them: rows, but 1 chunk where there are views */
    double units;
    double rate;
    double wait;     /* share of the consumer, inline stages included */
    double consumer; /* share of the consumer in steps and inline stages */
    double cores;    /* share of the process's cores that was used, or waited for */
    double used;     /* share of them that was used */
    double util
        [DLP_MAX_STAGES]; /* busy share of the workers that can have work at once; 0 if inline */
    double useful[DLP_MAX_STAGES]; /* workers that can have work at once */
    int busiest;                   /* stage with the largest util, -1: none has workers */
    int heaviest;                  /* inline stage with the most time, -1: none has any */
    int n;
} dlpi_load;

/* How many units of its work a stage may have at once. */
static double dlpi_stage_at_once(const dlp_stats *s, const dlp_stage_stats *g, double rows) {
    if (g->cells > 0) { return g->cells; }
    return s->prefetch_factor * (dlpi_stage_takes_batches(g) ? 1.0 : rows);
}

static void dlpi_load_of(dlpi_load *l, const dlp_stats *s) {
    memset(l, 0, sizeof *l);
    l->n = s->n_stages < DLP_MAX_STAGES ? (int)s->n_stages : DLP_MAX_STAGES;
    l->ns = (double)s->wait_ns + (double)s->step_ns;
    l->busiest = l->heaviest = -1;
    if (s->batches == 0 || !(l->ns > 0)) { return; }
    l->rows = (double)s->items / (double)s->batches;
    l->units = dlpi_batch_words_of(s)->of_rows ? l->rows : 1;
    l->rate = (double)s->items * 1e9 / l->ns;
    l->wait = (double)s->wait_ns / l->ns;
    l->consumer = (double)s->step_ns / l->ns;
    double cpu_ns = 0, waits_ns = 0, cores_ns;
    bool device = false;
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        cpu_ns += (double)g->cpu_ns;
        waits_ns += dlpi_stage_core_wait(g);
        device = device || dlpi_words_ops(g)->sink != NULL;
        if (g->workers <= 0) {
            l->consumer += (double)g->busy_ns / l->ns;
            if (g->busy_ns > 0 &&
                (l->heaviest < 0 || g->busy_ns > s->stages[l->heaviest].busy_ns)) {
                l->heaviest = i;
            }
            continue;
        }
        double most = dlpi_stage_at_once(s, g, l->rows);
        l->useful[i] = most > 0 && most < g->workers ? most : g->workers;
        l->util[i] = (double)g->busy_ns / (l->useful[i] * l->ns);
        if (l->busiest < 0 || l->util[i] > l->util[l->busiest]) { l->busiest = i; }
    }
    /* A step on the host keeps a core busy; one after a transfer stage keeps the device busy. */
    cores_ns = l->ns * (s->cpus > 0 ? s->cpus : 1);
    l->used = (cpu_ns + (device ? 0 : (double)s->step_ns)) / cores_ns;
    l->cores = l->used + waits_ns / cores_ns;
    l->consumer = l->consumer > 1 ? 1 : l->consumer;
}

/* Lower *rate to a bound and remember whose it is. */
static void dlpi_verdict_bound(dlpi_verdict *v, double bound, int whose) {
    if (bound < v->rate_plus_one) {
        v->rate_plus_one = bound;
        v->next_limit = whose;
    }
}

/* Predict one more worker: in proportion, until the next limit is as busy as this one is now. */
static void dlpi_verdict_predict(dlpi_verdict *v, const dlpi_load *l, const dlp_stats *s) {
    int i = v->limiting_stage;
    const dlp_stage_stats *g = &s->stages[i];
    double reach = g->workers > 0 ? (l->util[i] < 1 ? l->util[i] : 1) : 1, consumer = l->consumer;
    if (g->workers > 0) {
        double now = g->workers, more = l->useful[i] < now ? now : now + 1;
        double most = dlpi_stage_at_once(s, g, l->rows);
        v->rate_plus_one = l->rate * more / now;
        dlpi_verdict_bound(v, l->rate * (most > now ? most / now : 1), DLPI_LIMIT_PREFETCH);
    } else {
        double share = (double)g->busy_ns / l->ns;
        consumer -= share < consumer ? share : consumer;
        v->rate_plus_one = share > 0 ? l->rate / share : l->rate;
    }
    for (int k = 0; k < l->n; k++) {
        if (k != i && l->util[k] > 0) { dlpi_verdict_bound(v, l->rate * reach / l->util[k], k); }
    }
    if (consumer > 0) { dlpi_verdict_bound(v, l->rate * reach / consumer, DLPI_LIMIT_CONSUMER); }
    if (l->cores > 0) { dlpi_verdict_bound(v, l->rate / l->cores, DLPI_LIMIT_CORES); }
    v->rate_plus_one = v->rate_plus_one > v->rate ? v->rate_plus_one : v->rate;
}

/* Find the limit. The consumer is it when it hardly waits. Otherwise the cores, if they are full; a
   stage, if its workers hardly rest; and if everybody waits at times, there are too few batches in
   flight. */
static dlpi_verdict dlpi_verdict_of(const dlp_stats *s) {
    dlpi_load l;
    dlpi_load_of(&l, s);
    dlpi_verdict v = {DLPI_LIMIT_UNKNOWN, DLPI_LIMIT_UNKNOWN, l.rate, l.rate};
    if (s->batches == 0 || s->items == 0 || !(l.ns > 0) || s->batches <= s->prefetch_factor) {
        return v;
    }
    double inline_share = l.heaviest >= 0 ? (double)s->stages[l.heaviest].busy_ns / l.ns : 0;
    double busiest = l.busiest >= 0 ? l.util[l.busiest] : 0;
    if (l.consumer >= 0.95 || (l.consumer >= 0.9 && l.consumer >= busiest)) {
        v.limiting_stage = inline_share >= 0.1 ? l.heaviest : DLPI_LIMIT_CONSUMER;
    } else if (l.cores >= 0.9) {
        v.limiting_stage = DLPI_LIMIT_CORES;
    } else if (busiest >= 0.8) {
        v.limiting_stage =
            l.useful[l.busiest] < s->stages[l.busiest].workers ? DLPI_LIMIT_PREFETCH : l.busiest;
    } else {
        v.limiting_stage = l.busiest >= 0    ? DLPI_LIMIT_PREFETCH
                           : l.heaviest >= 0 ? l.heaviest
                                             : DLPI_LIMIT_UNKNOWN;
    }
    v.next_limit = v.limiting_stage;
    if (v.limiting_stage >= 0) { dlpi_verdict_predict(&v, &l, s); }
    return v;
}

static dlpi_num dlpi_limit_name(const dlp_stats *s, int limit) {
    dlpi_num r;
    const char *const names[] = {"the consumer", "the cores", "prefetch_factor", "not known"};
    if (limit < 0) {
        snprintf(r.s, sizeof r.s, "%s", names[-1 - limit]);
    } else {
        snprintf(r.s, sizeof r.s, "'%.31s'", s->stages[limit].name);
    }
    return r;
}

/* What else to change if the stage can have one worker only; NULL if it can have more. */
static const char *dlpi_stage_slow(const dlp_stage_stats *g) {
    dlpi_reader_words words;
    memcpy(&words, g->own, sizeof words);
    if (g->kind == DLP_STAGE_FETCH && words.writers > 0)
        return "what is pushed has one reader; push fewer and larger items";
    return dlpi_words_ops(g)->words.slow;
}

/* True if a simulation of the pipe as it is gives about what was measured. */
static bool dlpi_foretold_fits(const dlp_predict *now, const dlpi_load *l) {
    return now->items_per_s > 0.85 * l->rate && now->items_per_s < 1.15 * l->rate;
}

enum { DLPI_INLINE_STEPS = 12 }; /* 1, 2, 4 .. 1,024 workers, and the most that have work */

/* Foretell what 1, 2, 4 and so on workers of the inline stage i give, until more do not help.
   Without workers a pipe of rows has one batch in flight by default, with workers two. Returns how
   many numbers there are; 0: no worker helps; -1: the simulation does not fit this pipe. */
static int dlpi_inline_foretell(const dlp_stats *s, const dlpi_load *l, int i, int32_t *workers,
                                dlp_predict *gives) {
    const uint32_t ahead = s->prefetch_factor < 2 ? 2 : s->prefetch_factor;
    dlp_predict_desc d = {.prefetch_factor = ahead};
    dlp_stats deeper = *s;
    dlp_predict now;
    double most, last = 0;
    int n = 0;
    deeper.prefetch_factor = ahead;
    most = dlpi_stage_at_once(&deeper, &s->stages[i], l->rows);
    if (most > DLP_MAX_WORKERS) most = DLP_MAX_WORKERS;
    if (dlp_stats_predict(s, NULL, &now) != DLP_OK || !dlpi_foretold_fits(&now, l)) return -1;
    for (int w = 1; w <= most && n < DLPI_INLINE_STEPS; n++) {
        d.workers[i] = workers[n] = w;
        if (dlp_stats_predict(s, &d, &gives[n]) != DLP_OK) break;
        if (gives[n].items_per_s < 1.05 * last) break;
        last = gives[n].items_per_s;
        w = 2 * w > most && w < (int)most ? (int)most : 2 * w;
    }
    return last > 1.05 * now.items_per_s ? n : 0;
}

/* What limits a pipe as foretold for the most workers of stage i that help. */
static int dlpi_inline_limit(const dlp_stats *s, const dlpi_load *l, int i, const dlp_predict *p) {
    if (p->wait_share < 0.1) return DLPI_LIMIT_CONSUMER;
    if (dlpi_cores_crowded(s) || p->cores >= 0.9 * (s->cpus > 0 ? s->cpus : 1))
        return DLPI_LIMIT_CORES;
    for (int k = 0; k < l->n; k++)
        if (k != i && p->busy_share[k] >= 0.9) return k;
    return DLPI_LIMIT_PREFETCH;
}

/* What to change for an inline stage that can have one worker, or is not to be simulated. */
static void dlpi_explain_one_worker(dlpi_text *t, const dlp_stats *s, const dlpi_verdict *v) {
    dlpi_text_add(
        t, "Change: set %s; that should give about %s items/s; then the limit is %s.\n",
        dlpi_stage_setting(s, &s->stages[v->limiting_stage]), dlpi_num_of(v->rate_plus_one).s,
        v->next_limit == v->limiting_stage ? "that worker" : dlpi_limit_name(s, v->next_limit).s);
}

/* The fetch stage waits for writers, of whom none lives. False: it does not. */
static bool dlpi_explain_writers(dlpi_text *t, const dlp_stats *s) {
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        dlpi_reader_words words;
        memcpy(&words, g->own, sizeof words);
        if (g->kind != DLP_STAGE_FETCH || words.alone == 0) continue;
        dlpi_text_add(
            t, "Limit: no producer lives, and %" PRIu64 " of %" PRIu64 " streams have ended.\n",
            words.ended, words.writers);
        if (words.last > 0)
            dlpi_text_add(t,
                          "Change: start producer %" PRIu64
                          " again, with its number: it is gone, and did not say the end.\n",
                          words.last);
        else
            dlpi_text_add(t, "Change: start the producers that are missing, or set writers.\n");
        return true;
    }
    return false;
}

static void dlpi_explain_inline(dlpi_text *t, const dlp_stats *s, const dlpi_load *l,
                                const dlpi_verdict *v) {
    const int i = v->limiting_stage;
    const dlp_stage_stats *g = &s->stages[i];
    const bool one = dlpi_words_ops(g)->sink != NULL || dlpi_stage_slow(g) != NULL;
    int32_t workers[DLPI_INLINE_STEPS];
    dlp_predict gives[DLPI_INLINE_STEPS];
    const int n = one ? -1 : dlpi_inline_foretell(s, l, i, workers, gives);
    dlpi_text_add(t,
                  "Limit: stage '%.31s' runs inline in the consumer (0 workers) and takes %s %% of "
                  "its time; steps take %s %%.\n",
                  g->name, dlpi_num_percent((double)g->busy_ns / l->ns).s,
                  dlpi_num_percent((double)s->step_ns / l->ns).s);
    if (n == 0 || (n < 0 && v->rate_plus_one < v->rate * 1.05))
        dlpi_text_add(t, "Change: a worker would give nothing: %s the limit already.\n",
                      v->next_limit == DLPI_LIMIT_CORES || dlpi_cores_crowded(s) ? "the cores are"
                                                                                 : "the rest is");
    else if (n < 0)
        dlpi_explain_one_worker(t, s, v);
    for (int k = 0; k < n; k++) {
        const dlpi_num rate = dlpi_num_of(gives[k].items_per_s);
        if (k == 0)
            dlpi_text_add(t, "Change: set %s; %d should give about %s items/s", dlpi_stage_field(g),
                          workers[k], rate.s);
        else if (k < 3 || k == n - 1)
            dlpi_text_add(t, ", %d about %s", workers[k], rate.s);
    }
    if (n > 0)
        dlpi_text_add(t, "; then the limit is %s.\n",
                      dlpi_limit_name(s, dlpi_inline_limit(s, l, i, &gives[n - 1])).s);
}

/* Workers that have several items at once are busy while one is out: what limits them is how many
   are, and how long each takes. */
static void dlpi_explain_in_flight(dlpi_text *t, const dlp_stage_stats *g, const dlpi_load *l) {
    double out = (double)g->in_flight_ns / (double)g->busy_ns;
    dlpi_text_add(t,
                  "Limit: requests in flight: each of the %d worker%s of '%.31s' has %s of %d out, "
                  "which take p50 %s; the consumer waits %s %% of the time.\n",
                  g->workers, g->workers == 1 ? "" : "s", g->name, dlpi_num_of(out).s,
                  (int)g->in_flight, dlpi_num_ns(g->p50_ns).s, dlpi_num_percent(l->wait).s);
    if (out >= 0.8 * g->in_flight) {
        dlpi_text_add(t,
                      "Change: raise in_flight, or %s; twice as many give up to %s items/s, if the "
                      "source bears them and prefetch_factor has as many items.\n",
                      dlpi_stage_field(g), dlpi_num_of(2 * l->rate).s);
    } else {
        dlpi_text_add(t,
                      "Change: raise prefetch_factor (and batch_pool, if it is set): there are too "
                      "few items to have %d out; or the source refuses more.\n",
                      (int)g->in_flight);
    }
}

static void dlpi_explain_stage(dlpi_text *t, const dlp_stats *s, const dlpi_load *l,
                               const dlpi_verdict *v) {
    const dlp_stage_stats *g = &s->stages[v->limiting_stage];
    int w = g->workers;
    bool batches = dlpi_stage_takes_batches(g);
    if (dlpi_stage_has_many(g) && g->busy_ns > 0) {
        dlpi_explain_in_flight(t, g, l);
        return;
    }
    dlpi_text_add(t,
                  "Limit: stage '%.31s': its %d worker%s %s %% busy, and the consumer waits %s %% "
                  "of the time.\n",
                  g->name, w, w == 1 ? " is" : "s are",
                  dlpi_num_percent(l->util[v->limiting_stage]).s, dlpi_num_percent(l->wait).s);
    if (dlpi_stage_slow(g) != NULL) {
        dlpi_text_add(t, "Change: it has one thread: %s.\n", dlpi_stage_slow(g));
    } else if (w < g->workers_max) {
        dlpi_text_add(t, "Change: workers are added as they are missed, up to workers_max = %d.\n",
                      g->workers_max);
    } else if (batches && w >= (int)s->prefetch_factor) {
        dlpi_text_add(t,
                      "Change: raise prefetch_factor above %u, and %s with it: each batch "
                      "in flight has a worker already.\n",
                      (unsigned)s->prefetch_factor, dlpi_stage_field(g));
    } else if (v->next_limit == DLPI_LIMIT_PREFETCH) {
        dlpi_text_add(t,
                      "Change: raise prefetch_factor above %u, then %s: every item in flight has a "
                      "worker already.\n",
                      (unsigned)s->prefetch_factor, dlpi_stage_field(g));
    } else if (v->rate_plus_one < v->rate * 1.02) {
        dlpi_text_add(t,
                      "Change: make it cheaper; one more worker would give nothing, for %s would "
                      "be the limit.\n",
                      dlpi_limit_name(s, v->next_limit).s);
    } else {
        dlpi_text_add(t, "Change: raise %s; %d should give about %s items/s", dlpi_stage_field(g),
                      w + 1, dlpi_num_of(v->rate_plus_one).s);
        dlpi_text_add(t, v->next_limit == v->limiting_stage ? ".\n" : "; then the limit is %s.\n",
                      dlpi_limit_name(s, v->next_limit).s);
    }
}

/* Items/s with more batches in flight; 0 where the simulation does not even give what was measured,
   or no more than that. */
static double dlpi_explain_deeper(const dlp_stats *s, const dlpi_load *l, uint64_t prefetch) {
    dlp_predict_desc d = {.prefetch_factor = (uint32_t)prefetch};
    dlp_predict now, then;
    if (dlp_stats_predict(s, NULL, &now) != DLP_OK || dlp_stats_predict(s, &d, &then) != DLP_OK) {
        return 0;
    }
    return dlpi_foretold_fits(&now, l) && then.items_per_s > 1.02 * l->rate ? then.items_per_s : 0;
}

static void dlpi_explain_prefetch(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    const dlp_stage_stats *g = &s->stages[l->busiest];
    const dlpi_batch_words *words = dlpi_batch_words_of(s);
    dlpi_text_add(t,
                  "Limit: prefetch_factor = %u: the consumer waits %s %% of the time while the "
                  "workers of '%.31s' are only %s %% busy.\n",
                  (unsigned)s->prefetch_factor, dlpi_num_percent(l->wait).s, g->name,
                  dlpi_num_percent((double)g->busy_ns / (l->ns * g->workers)).s);
    double need = l->units > 0 ? g->workers / l->units : 0;
    uint64_t more = 2 * (uint64_t)s->prefetch_factor + (s->prefetch_factor == 0);
    while (more < 4096 && (double)more < need + 1) { more *= 2; }
    more = more > 4096 ? 4096 : more;
    double deeper = dlpi_explain_deeper(s, l, more);
    dlpi_text_add(t, "Change: raise %s, for instance to %" PRIu64, words->prefetch, more);
    if (deeper > 0) {
        dlpi_text_add(t, "; that should give about %s items/s", dlpi_num_of(deeper).s);
    }
    dlpi_text_add(t, "; each %s more takes about %s.\n", words->batch,
                  dlpi_num_bytes((double)s->bytes / (double)dlpi_batches_taken(s)).s);
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *k = &s->stages[i];
        bool parts = k->cells > 0;
        if (k->p50_ns > 0 && k->p99_ns / 4 >= k->p50_ns) {
            dlpi_text_add(t,
                          "Skew: times of '%.31s' are uneven (p50 %s, p99 %s): slow %ss hold up "
                          "the order; %s hide them%s.\n",
                          k->name, dlpi_num_ns(k->p50_ns).s, dlpi_num_ns(k->p99_ns).s,
                          parts ? "part" : words->item,
                          parts ? "more part cells (queue_size)" : words->more,
                          parts ? "" : words->beside);
        }
    }
}

static void dlpi_explain_cores(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    bool taken = l->used < 0.9 && l->cores > l->used;
    dlpi_text_add(t, "Limit: the cores: workers and consumer keep %s of %u busy",
                  dlpi_num_of(l->used * s->cpus).s, (unsigned)s->cpus);
    if (taken) {
        dlpi_text_add(t, ", and wait for one %s %% of the time that they could run",
                      dlpi_num_percent(1 - l->used / l->cores).s);
    }
    dlpi_text_add(t, "; more workers would give nothing.\n");
    if (l->busiest >= 0) {
        dlpi_text_add(t, "Change: make '%.31s' cheaper, or use more cores%s.\n",
                      s->stages[l->busiest].name,
                      taken ? ": others have these, or the CPU quota is used up" : "");
    }
}

static void dlpi_explain_consumer(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    dlpi_text_add(t, "Limit: the consumer: it waits for batches only %s %% of the time.\n",
                  dlpi_num_percent(l->wait).s);
    dlpi_text_add(t, "Change: nothing in the pipe; steps take %s",
                  dlpi_num_ns(s->step_ns / s->batches).s);
    if (l->busiest >= 0) {
        dlpi_text_add(t, " and the busiest workers ('%.31s') are %s %% busy",
                      s->stages[l->busiest].name, dlpi_num_percent(l->util[l->busiest]).s);
    }
    dlpi_text_add(t, ".\n");
}

/* What became of inputs whose items nobody had counted, and what their windows take. */
static void dlpi_explain_inputs(dlpi_text *t, const dlp_stage_stats *g) {
    const dlpi_kind_words *words = &dlpi_words_ops(g)->words;
    double inputs = (double)g->inputs, items = (double)g->inputs_items;
    if (g->inputs == 0) return;
    if (words->items == NULL && g->inputs_empty > 0 &&
        g->inputs_items + g->inputs_empty == g->inputs && items > 0)
        dlpi_text_add(t, "Inputs: '%.31s' keeps %s %%: %s inputs a row", g->name,
                      dlpi_num_percent(items / inputs).s, dlpi_num_of(inputs / items).s);
    else
        dlpi_text_add(t, "Inputs: '%.31s' makes %s %s of each; %s %% have none", g->name,
                      dlpi_num_of(items / inputs).s, words->items ? words->items : "items",
                      dlpi_num_percent((double)g->inputs_empty / inputs).s);
    if (g->window > 0)
        dlpi_text_add(
            t, "; for windows of %" PRIu64 " %s, and to load ahead, there are %u cells, of %s",
            g->window, words->windows ? words->windows : "items", (unsigned)g->cells,
            dlpi_num_bytes((double)g->cell_bytes).s);
    dlpi_text_add(t, ".\n");
}

static double dlpi_share_of(uint64_t n, uint64_t all) {
    return all > 0 ? (double)n / (double)all : 0;
}

/* How unevenly streams have items, and what that costs an epoch. */
static void dlpi_explain_streams(dlpi_text *t, const dlp_stage_stats *g) {
    const dlp_stream_stats *x = &g->spread;
    const char *items = dlpi_words_ops(g)->words.items;
    if (x->counted > 0 && (x->streams > 1 || x->left_out > 0)) {
        dlpi_text_add(t, "Streams: of %u of the %u that are read here a pass is counted: %" PRIu64,
                      (unsigned)x->counted, (unsigned)x->streams, x->least);
        if (x->most > x->least) dlpi_text_add(t, " to %" PRIu64, x->most);
        dlpi_text_add(t, " %s each", items ? items : "items");
        if (x->most > x->least)
            dlpi_text_add(t, ", %s to %s %% of theirs",
                          dlpi_num_percent(dlpi_share_of(x->least, x->items)).s,
                          dlpi_num_percent(dlpi_share_of(x->most, x->items)).s);
        if (x->left_out > 0)
            dlpi_text_add(t, "; an epoch leaves out %s%s %%", x->drops == 2 ? "at least " : "",
                          dlpi_num_percent(dlpi_share_of(x->left_out, x->items)).s);
        dlpi_text_add(t, ".\n");
    }
    if (x->weights == 0 || x->all < 2) return;
    dlpi_text_add(t, "Weights: of all %u streams one has %s to %s %% of the weight",
                  (unsigned)x->all, dlpi_num_percent(dlpi_share_of(x->weights_least, x->weights)).s,
                  dlpi_num_percent(dlpi_share_of(x->weights_most, x->weights)).s);
    if (x->drops)
        dlpi_text_add(t, "; if items are as many as weights say, an epoch leaves out %s %%",
                      dlpi_num_percent(1 - x->all * dlpi_share_of(x->weights_least, x->weights)).s);
    dlpi_text_add(t, ".\n");
}

/* Was the part queue empty while the consumer waited? */
static void dlpi_explain_parts(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->cells == 0 || (double)s->part_wait_ns < 0.02 * l->ns) { continue; }
        dlpi_text_add(
            t,
            "Parts: part queue empty: the consumer waits for parts %s %% of the time; "
            "workers of '%.31s' load one in %s and are %s %% busy; %s "
            "parts.workers.num_workers (%d) and queue_size (%u).\n",
            dlpi_num_percent((double)s->part_wait_ns / l->ns).s, g->name, dlpi_num_ns(g->p50_ns).s,
            dlpi_num_percent((double)g->busy_ns / (l->ns * (g->workers > 0 ? g->workers : 1))).s,
            g->workers > 0 ? "raise" : "set", g->workers, (unsigned)g->cells);
    }
}

/* ns of work on a batch's items by workers; 0: they are not the only ones that have workers. */
static double dlpi_batch_work(const dlp_stats *s, const dlpi_load *l) {
    double busy = 0;
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->workers <= 0) continue;
        if (g->cells > 0 || dlpi_stage_takes_batches(g) || !dlpi_batch_words_of(s)->of_rows)
            return 0;
        busy += (double)g->busy_ns;
    }
    return busy / (double)s->batches;
}

/* A batch that takes less than to pass it from core to core. */
static void dlpi_explain_short(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    double all = l->ns / (double)s->batches, work = dlpi_batch_work(s, l);
    double without = work + (double)s->step_ns / (double)s->batches;
    if (work < 1 || s->batches < 200 || all > 100000 || without > 0.9 * all) { return; }
    dlpi_text_add(
        t,
        "Short: a batch is %s of work and comes every %s: passing it from a worker to the "
        "consumer takes longer. ",
        dlpi_num_ns((uint64_t)work).s, dlpi_num_ns((uint64_t)all).s);
    dlpi_text_add(t, "With num_workers = 0 one should come every %s.\n",
                  dlpi_num_ns((uint64_t)without).s);
}

/* Figures and facts that hold whatever the limit is. */
static void dlpi_explain_rest(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    dlpi_text_add(t, "Measured: %s items/s (%s batches/s)", dlpi_num_of(l->rate).s,
                  dlpi_num_of(l->rows > 0 ? l->rate / l->rows : 0).s);
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->p50_ns > 0) {
            dlpi_text_add(t, "; '%.31s' takes p50 %s, p99 %s", g->name, dlpi_num_ns(g->p50_ns).s,
                          dlpi_num_ns(g->p99_ns).s);
        }
    }
    dlpi_text_add(t, ".\n");
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->workers > 0 && g->cells == 0 && g->workers - l->useful[i] >= 1) {
            dlpi_text_add(t,
                          "Idle: %d of the %d workers of '%.31s' never have work: only "
                          "prefetch_factor%s = %s %s are in flight.\n",
                          (int)(g->workers - l->useful[i]), g->workers, g->name,
                          dlpi_stage_takes_batches(g) ? "" : " x batch_size",
                          dlpi_num_of(l->useful[i]).s,
                          dlpi_stage_takes_batches(g) ? "batches" : "items");
        }
    }
}

/* Who hangs, or seems to. */
static void dlpi_explain_longest(dlpi_text *t, const dlp_stats *s, int n_stages) {
    const dlp_worker_stats *w = &s->longest;
    const dlp_stage_stats *g = &s->stages[w->stage >= 0 && w->stage < n_stages ? w->stage : 0];
    uint64_t age = w->current_age_ns;
    if (age < 100000000 || (age < 1000000000 && age / 2 < g->p99_ns)) return;
    dlpi_text_add(t,
                  "Longest: worker %d of '%.31s' (thread %d of process %d) has been at %s %" PRIu64
                  " for %s; p99 is %s.\n",
                  w->worker, g->name, w->tid, w->pid, dlpi_stage_unit(s, g), w->current_index,
                  dlpi_num_ns(age).s, g->p99_ns ? dlpi_num_ns(g->p99_ns).s : "not known");
}

static void dlpi_explain_errors(dlpi_text *t, const dlp_stats *s, int n_stages) {
    for (int i = 0; i < n_stages; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->retried + g->replaced + g->left_out > 0) {
            dlpi_text_add(t,
                          "Errors: stage '%.31s': %" PRIu64 " retried, %" PRIu64
                          " replaced, %" PRIu64 " left out; dlp_pipe_skips names the last two.\n",
                          g->name, g->retried, g->replaced, g->left_out);
        }
        if (g->restarts > 0) {
            dlpi_text_add(t,
                          "Deaths: workers of '%.31s' were replaced %" PRIu64
                          " times, the last of them died by %s; no item is lost.\n",
                          g->name, g->restarts, dlpi_signal_text((uint32_t)g->died_by));
        }
    }
    if (s->first_skip.code != 0) {
        char line[640];
        dlp_error_format(&s->first_skip, line, sizeof line);
        dlpi_text_add(t, "First replaced or left out: %s\n", line);
    }
}

/* How many workers tuned stages have, and the last decisions. */
static void dlpi_explain_tune(dlpi_text *t, const dlp_stats *s, int n_stages) {
    static const char *const why[] = {
        "", "the consumer waited, its workers were busy", "batches were ready, workers had no work",
        "busy, but its workers compute and the cores are taken", "set by dlp_pipe_set_workers"};
    uint64_t kept = s->tunes < DLP_TUNE_NOTES ? s->tunes : DLP_TUNE_NOTES;
    for (int i = 0; i < n_stages; i++)
        if (s->stages[i].workers_max > 0)
            dlpi_text_add(
                t, "Workers: %d of '%.31s' at work, of %d to %d; changed %" PRIu64 " times.\n",
                s->stages[i].workers, s->stages[i].name, s->stages[i].workers_min,
                s->stages[i].workers_max, s->tunes);
    for (uint64_t i = kept > 4 ? kept - 4 : 0; i < kept; i++) {
        const dlp_tune_note *k = &s->tune[i];
        if (k->stage < 0 || k->stage >= n_stages || k->reason < 1 || k->reason > DLP_TUNE_SET)
            continue;
        dlpi_text_add(t, "Tuned: after %s '%.31s' %d -> %d: %s.\n", dlpi_num_ns(k->at_ns).s,
                      s->stages[k->stage].name, k->from, k->to, why[k->reason]);
    }
}

/* Each epoch's first lookup of an item that is not kept yet misses, and what has no cell always. */
static void dlpi_explain_cache(dlpi_text *t, const dlp_stats *s) {
    uint64_t looks = s->cache_hits + s->cache_misses;
    if (s->cache_capacity == 0) return;
    dlpi_text_add(t, "Cache: %s %% of %s lookups hit; %s of %s are in use",
                  dlpi_num_percent(looks > 0 ? (double)s->cache_hits / (double)looks : 0).s,
                  dlpi_num_of((double)looks).s, dlpi_num_bytes((double)s->cache_bytes).s,
                  dlpi_num_bytes((double)s->cache_capacity).s);
    if (s->cache_capacity >= s->cache_all_bytes)
        dlpi_text_add(t, "; it has room for all items.\n");
    else
        dlpi_text_add(
            t, "; that is room for %s %% of the items, cache.bytes = %" PRIu64 " would keep all.\n",
            dlpi_num_percent((double)s->cache_capacity / (double)s->cache_all_bytes).s,
            s->cache_all_bytes);
}

/* What it costs that epochs don't overlap. */
static void dlpi_explain_borders(dlpi_text *t, const dlp_stats *s) {
    double n = (double)s->epoch_borders;
    if (s->epoch_borders == 0) return;
    dlpi_text_add(t,
                  "Epoch borders: %s each, from the call of set_epoch to the next epoch's first "
                  "batch, %s %% of the run; nothing is fetched for an epoch before.\n",
                  dlpi_num_ns((uint64_t)((double)s->epoch_wait_ns / n)).s,
                  dlpi_num_percent((double)s->epoch_wait_ns / (double)s->elapsed_ns).s);
}

static void dlpi_explain_memory(dlpi_text *t, const dlp_stats *s) {
    if (s->plan_bytes > 0) {
        dlpi_text_add(t, dlpi_batch_words_of(s)->memory, dlpi_num_bytes((double)s->plan_bytes).s,
                      (unsigned)s->slots, (unsigned)s->prefetch_factor, (unsigned)s->max_held);
    }
}

DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    dlpi_load l;
    if (s == NULL || (buf == NULL && size > 0)) { return DLP_ERR_ARG; }
    dlpi_verdict v = dlpi_verdict_of(s);
    dlpi_load_of(&l, s);
    if (dlpi_explain_writers(&t, s)) {
    } else if (v.limiting_stage >= 0) {
        (s->stages[v.limiting_stage].workers > 0 ? dlpi_explain_stage
                                                 : dlpi_explain_inline)(&t, s, &l, &v);
    } else if (v.limiting_stage == DLPI_LIMIT_CONSUMER) {
        dlpi_explain_consumer(&t, s, &l);
    } else if (v.limiting_stage == DLPI_LIMIT_CORES) {
        dlpi_explain_cores(&t, s, &l);
    } else if (v.limiting_stage == DLPI_LIMIT_PREFETCH) {
        dlpi_explain_prefetch(&t, s, &l);
    } else if (s->batches == 0) {
        dlpi_text_add(&t,
                      "Limit: not known: no batch has been delivered yet, %s after the start.\n",
                      dlpi_num_ns(s->elapsed_ns).s);
    } else {
        dlpi_text_add(&t,
                      "Limit: not known yet: %" PRIu64
                      " batch%s delivered, and the first prefetch_factor = %u are the start-up.\n",
                      s->batches, s->batches == 1 ? " is" : "es are", (unsigned)s->prefetch_factor);
    }
    dlpi_explain_longest(&t, s, l.n);
    for (int i = 0; i < l.n; i++) dlpi_explain_inputs(&t, &s->stages[i]);
    for (int i = 0; i < l.n; i++) dlpi_explain_streams(&t, &s->stages[i]);
    for (int i = 0; i < l.n; i++) dlpi_explain_packing(&t, &s->stages[i]); /* needs: parts pack */
    if (l.rate > 0) {
        dlpi_explain_parts(&t, s, &l);
        dlpi_explain_short(&t, s, &l);
        dlpi_explain_rest(&t, s, &l);
    }
    dlpi_explain_errors(&t, s, l.n);
    dlpi_explain_tune(&t, s, l.n);
    dlpi_explain_cache(&t, s);
    dlpi_explain_chunks(&t, &s->chunks);
    dlpi_explain_borders(&t, s);
    dlpi_explain_memory(&t, s);
    return dlpi_text_length(&t);
}
