#pragma once
/* tests: system/core/tuning, system/shm/shm_cache */
#include "row/timing.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-tune       WORKERS ADDED AND RETIRED WHILE THE PIPE RUNS
   All workers_max of a stage are there from the start: threads and processes cost memory, which is
   planned, but no time while they rest (one wake-up a second each). Starting and ending them
   live would allocate, could fail, and would fork in the middle of a run. A worker whose number is
   not below waiters.active (A1) claims no more. It finishes what it has claimed, rows that wait
   for another try included, and parks. One writer: the consumer.

   The tuner runs in next, on clock readings that are there anyhow, every 100 ms at most. It looks
   at the time since the last look:
     more     the consumer waited (5 % of the time or more), the stage's workers were busy (85 %),
              twice in a row, or once if it waited a quarter of the time: one more, or half as many
              again if it waited half the time. Of several stages the busiest. Not beyond the items
              in flight, nor, by what its workers burn of the cores, or would if others did not
              have them, beyond those
     fewer    the consumer did not wait (2 %), and without one of them others would have been busy
              for less than 75 % of the time, `patience` times in a row: one less, or a quarter less
              if they hardly worked at all
   What it takes for fewer (75 % of one less) and for more (85 %) is apart, so that at the same load
   one never follows from the other; should a worker be missed soon after it was retired, patience
   is doubled. What a look saw is from before the change; so each change begins the counts again. */

#define DLPI_TUNE_EVERY_NS UINT64_C(100000000)
#define DLPI_TUNE_PATIENCE 3u

/* Lay a tuned stage out for workers_max workers; with how many it begins is kept in st->begin. */
static void dlpi_tune_take(dlpi_stage *s) {
    s->tuned = s->w.workers_max > 0;
    s->w.num_workers = s->tuned ? s->w.workers_max : s->begin;
}

/* Append a note about a stage to the ring of the last DLP_TUNE_NOTES changes, for statistics and
   observers. from, to: numbers of workers. reason: a DLP_TUNE_* value. Only the consumer may call
   this. */
static void dlpi_tune_note(dlp_pipe *p, const dlpi_stage *st, int from, int to, int reason,
                           uint64_t now) {
    dlpi_ctl *ctl = p->ctl;
    uint64_t n = DLPI_LOAD_RLX(&ctl->tunes);
    dlp_tune_note *k = &ctl->tune[n % DLP_TUNE_NOTES];
    DLPI_STORE_RLX(&k->at_ns, now - ctl->started_ns); /* for people, as what follows */
    DLPI_STORE_RLX(&k->stage, st->id);
    DLPI_STORE_RLX(&k->from, from);
    DLPI_STORE_RLX(&k->to, to);
    DLPI_STORE_RLX(&k->reason, reason);
    DLPI_STORE_REL(&ctl->tunes, n + 1); /* A2 -> A2: after the note */
}

/* Make n workers of a stage active, note why, and wake the stage's workers. The stage's counts of
   busy and idle looks begin again, even if n workers are active already. Only the consumer may call
   this. */
static void dlpi_tune_set(dlp_pipe *p, dlpi_stage *st, int n, int reason, uint64_t now) {
    dlpi_stage_rec *rec = dlpi_area_at(p, DLPI_REC_STAGES, (uint64_t)st->id);
    dlpi_tuned *t = &p->tune.at[st->work];
    int from = dlpi_active(p, st);
    t->hot = t->cold = 0;
    if (n == from) return;
    t->cores_said = 0;
    t->changed = p->tune.looks;
    dlpi_sleepers_activate(&p->waiters[st->work].active, (uint32_t)n); /* A1 -> A1 */
    DLPI_STORE_RLX(&rec->active, (uint64_t)n);                         /* for observers */
    dlpi_tune_note(p, st, from, n, reason, now);
    /* those that rest, too; a wake-up that a retired one has taken goes to somebody else */
    dlpi_wake_workers(p, st);
}

/* Measure how busy the workers of the stage were since the last look, ns ago. A call under way
   counts up to now. */
static void dlpi_tune_measure(const dlp_pipe *p, const dlpi_stage *st, dlpi_tuned *t, uint64_t now,
                              uint64_t ns) {
    uint64_t busy = 0, done = 0, cpu = 0, wait = 0, ran;
    for (int k = 0; k < st->n_workers; k++) {
        const dlpi_worker_block *b = p->workers[st->first_worker + k].block;
        uint64_t since = DLPI_LOAD_RLX(&b->since_ns); /* statistics, here and below */
        done += DLPI_LOAD_RLX(&b->busy_ns);
        cpu += DLPI_LOAD_RLX(&b->cpu_ns);
        wait += DLPI_LOAD_RLX(&b->core_wait_ns);
        if (DLPI_LOAD_RLX(&b->state) == DLP_WORKER_BUSY && now > since) busy += now - since;
    }
    busy += done;
    t->active = dlpi_active(p, st);
    t->share = busy > t->busy_ns ? (double)(busy - t->busy_ns) / ((double)ns * t->active) : 0;
    if (done > t->done_ns && cpu > t->cpu_ns) {
        double share;
        ran = cpu - t->cpu_ns;
        ran += dlpi_core_wait(done - t->done_ns, ran, wait - t->core_wait_ns);
        share = (double)ran / (double)(done - t->done_ns);
        t->cpu_share = (t->cpu_share + (share < 1 ? share : 1)) / 2;
        t->done_ns = done;
        t->cpu_ns = cpu;
        t->core_wait_ns = wait;
    }
    t->busy_ns = busy;
}

/* Return the most workers that have something to do: as many as items (or batches) in flight. */
static int dlpi_tune_most(const dlp_pipe *p, const dlpi_stage *st) {
    uint64_t n = dlpi_is_item_stage(p, st) ? (uint64_t)p->prefetch * p->batch_rows : p->prefetch;
    return n < (uint64_t)st->n_workers ? (int)n : st->n_workers;
}

/* True if one more worker of stage i would compute on a core that another worker uses. */
static bool dlpi_tune_no_core(const dlp_pipe *p, int i) {
    double used = p->tune.at[i].cpu_share;
    for (int k = 0; k < p->n_work; k++) /* nothing is measured of an inline stage */
        used += p->tune.at[k].active * p->tune.at[k].share * p->tune.at[k].cpu_share;
    return p->tune.at[i].cpu_share > 0.5 && used > p->cpus + 0.25;
}

/* Add workers to the busiest stage that has been busy for enough looks. waited: the share of the
   time for which the consumer waited. Returns true if workers were added. If no core is left for
   another worker, the tuner only notes that. */
static bool dlpi_tune_more(dlp_pipe *p, double waited, uint64_t now) {
    dlpi_stage *st;
    dlpi_tuned *t;
    int best = -1, n;
    for (int i = 0; i < p->n_work; i++) {
        t = &p->tune.at[i];
        t->hot = waited >= 0.05 && t->share >= 0.85 ? t->hot + 1 : 0;
        if (!p->work[i]->tuned || t->set || t->hot < (waited >= 0.25 ? 1u : 2u)) continue;
        if (t->active >= dlpi_tune_most(p, p->work[i])) continue;
        if (best < 0 || t->share > p->tune.at[best].share) best = i;
    }
    if (best < 0) return false;
    st = p->work[best];
    t = &p->tune.at[best];
    if (dlpi_tune_no_core(p, best)) {
        if (!t->cores_said) dlpi_tune_note(p, st, t->active, t->active, DLP_TUNE_CORES, now);
        t->cores_said = 1;
        return false;
    }
    /* missed soon after it was retired? */
    if (t->patience > 0 && p->tune.looks - t->changed < 20 && t->patience < 256) t->patience *= 2;
    n = t->active + (waited >= 0.5 && t->active > 2 ? t->active / 2 : 1);
    dlpi_tune_set(p, st, n < dlpi_tune_most(p, st) ? n : dlpi_tune_most(p, st), DLP_TUNE_BUSY, now);
    return true;
}

/* Retire workers of the first stage that has been idle for `patience` looks. waited: the share of
   the time for which the consumer waited. Returns true if workers were retired. */
static bool dlpi_tune_fewer(dlp_pipe *p, double waited, uint64_t now) {
    for (int i = 0; i < p->n_work; i++) {
        dlpi_stage *st = p->work[i];
        dlpi_tuned *t = &p->tune.at[i];
        int n = t->active - (t->share < 0.3 && t->active >= 8 ? t->active / 4 : 1);
        bool idle = waited < 0.02 && n >= st->w.workers_min && t->share * t->active < 0.75 * n;
        t->cold = st->tuned && !t->set && idle ? t->cold + 1 : 0;
        if (t->cold == 0) continue;
        if (t->patience == 0 || p->tune.looks - t->changed > 300) t->patience = DLPI_TUNE_PATIENCE;
        if (t->cold < t->patience) continue;
        dlpi_tune_set(p, st, n, DLP_TUNE_IDLE, now);
        return true;
    }
    return false;
}

/* Measure all stages since the last look, then add or retire workers of at most one stage. The
   first look changes nothing, because it measures the start. Only the consumer may call this. */
DLPI_COLD static void dlpi_tune_look(dlp_pipe *p, uint64_t now) {
    dlpi_tuner *t = &p->tune;
    uint64_t ns = now - t->last_ns, waited = DLPI_LOAD_RLX(&p->ctl->wait_ns), before = t->waited_ns;
    double share;
    if (p->pace.wait_from != 0 && now > p->pace.wait_from) waited += now - p->pace.wait_from;
    share = waited > before && ns > 0 ? (double)(waited - before) / (double)ns : 0;
    t->due_ns = now + t->every_ns;
    t->waited_ns = waited;
    t->last_ns = now;
    for (int i = 0; i < p->n_work; i++)
        if (p->work[i]->w.num_workers > 0)
            dlpi_tune_measure(p, p->work[i], &t->at[i], now, ns ? ns : 1);
    if (t->looks++ == 0) return; /* what comes before is the start */
    if (!dlpi_tune_more(p, share, now)) dlpi_tune_fewer(p, share, now);
}

static inline void dlpi_tune(dlp_pipe *p, uint64_t now) {
    if (DLPI_UNLIKELY(p->tune.every_ns != 0) && now >= p->tune.due_ns) dlpi_tune_look(p, now);
}

/* Do what dlp_pipe_set_workers asks: n workers; 0: the tuner decides again. Returns DLP_OK, or
   DLP_ERR_ARG if the stage is not tuned or n is out of bounds. */
static int dlpi_tune_ask(dlp_pipe *p, dlpi_stage *st, int n) {
    if (!st->tuned || n < 0 || n > st->n_workers) return DLP_ERR_ARG;
    if (n > 0 && n < st->w.workers_min) return DLP_ERR_ARG;
    p->tune.at[st->work].set = n > 0;
    if (n > 0) dlpi_tune_set(p, st, n, DLP_TUNE_SET, dlpi_now_ns());
    return DLP_OK;
}
