#pragma once
/* tests: system/core/pipe_badinput, system/open/most_stages */
#include "inputs/check.h"
#include "work/tune.h"
#include "work/workers.h"
/* ---- a stage is added: by the call of its kind, or by a source's ---- */

/* Set how many workers a stage has at first: as its desc says, else as its kind has. */
static void dlpi_workers_begin(dlpi_stage *st) {
    if (st->w.num_workers == 0) st->w.num_workers = st->ops->workers;
    if (st->w.num_workers == DLP_NONE) st->w.num_workers = 0;
}

/* Begin a new stage at the end of the pipe's array of stages, with a copy of the workers' desc `w`
   (may be NULL). The stage's name is that of the node, else of `w`, else `name`. Returns the stage,
   which does not count before dlpi_added. Returns NULL if the pipe has an error. */
static dlpi_stage *dlpi_add(dlp_pipe *p, const dlpi_stage_ops *ops, const char *name,
                            const dlp_workers_desc *w) {
    dlpi_stage *st;
    if (p->err.code != 0) return NULL;
    if (p->n_stages == DLP_MAX_STAGES) {
        dlpi_bad_graph(p, p->node ? p->node : name,
                       "a pipe has at most 16 stages; leave nodes out (a list counts twice)");
        return NULL;
    }
    st = &p->stages[p->n_stages];
    memset(st, 0, sizeof *st);
    st->ops = ops;
    st->id = p->n_stages;
    st->work = -1;
    if (ops->self_bytes > 0 && (st->self = calloc(1, ops->self_bytes)) == NULL) {
        dlpi_no_memory(p, name, "what a stage keeps");
        return NULL;
    }
    if (w) st->w = *w;
    dlpi_workers_begin(st);
    dlpi_copy_text(st->name, sizeof st->name, p->node ? p->node : w && w->name ? w->name : name);
    st->w.name = st->name;
    return st;
}

/* ---- workers, of each stage that has them ---- */

/* Check the CPU numbers that a stage's workers may run on. Returns DLP_OK, or the code of the
   pipe's error. */
static int dlpi_check_affinity(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_workers_desc *w = &st->w;
    int rc = dlpi_check_pair(p, st->name, "affinity", w->affinity, "n_affinity", w->n_affinity);
    for (int i = 0; i < w->n_affinity && rc == DLP_OK; i++)
        rc = dlpi_within(p, st->name, "affinity", w->affinity[i], 0, 1023, "CPU numbers 0..1023");
    return rc;
}

#ifdef DLPIPE_NO_TUNE
#define DLPI_TUNED_MOST 0, "0 with DLPIPE_NO_TUNE; compile without it"
#else
#define DLPI_TUNED_MOST DLP_MAX_WORKERS, "0..1024"
#endif

#ifdef DLPIPE_NO_HELP
#define DLPI_HELPS_MOST 0, "0 with DLPIPE_NO_HELP; compile without it"
#else
#define DLPI_HELPS_MOST 1, "0 or 1"
#endif

/* Each member of the desc of workers. Branches that share workers have the first ones alike. */
enum { DLPI_WORKERS_ALIKE = 6 };
static const dlpi_bound dlpi_workers_bounds[] = {
    {DLPI_AT(dlp_workers_desc, placement), 0, DLP_PLACE_PROCESSES,
     "DLP_PLACE_THREADS or DLP_PLACE_PROCESSES"},
    {DLPI_AT(dlp_workers_desc, dispatch), 0, DLP_DISPATCH_BATCHES,
     "DLP_DISPATCH_CLAIM or DLP_DISPATCH_BATCHES"},
    {DLPI_AT(dlp_workers_desc, deadline_ms), 0, INT32_MAX, "0 and more"},
    {DLPI_AT(dlp_workers_desc, n_affinity), 0, 4096, "0..4096"},
    {DLPI_AT(dlp_workers_desc, idempotent), 0, 1, "0 or 1"},
    {DLPI_AT(dlp_workers_desc, stack_bytes), 0, UINT32_MAX, "under 4 GiB"},
    {DLPI_AT(dlp_workers_desc, on_error), 0, DLP_ON_ERROR_DROP, "DLP_ON_ERROR_*"},
    {DLPI_AT(dlp_workers_desc, retries), 0, 100, "0..100"},
    {DLPI_AT(dlp_workers_desc, retry_backoff_ms), 0, 3600000, "0..3600000"},
    {DLPI_AT(dlp_workers_desc, max_skips), DLP_NONE, INT64_MAX, "DLP_NONE, or 0 and more"},
    {DLPI_AT(dlp_workers_desc, num_workers), 0, DLP_MAX_WORKERS, "DLP_NONE or 0..1024"},
    {DLPI_AT(dlp_workers_desc, workers_max), 0, DLPI_TUNED_MOST},
    {DLPI_AT(dlp_workers_desc, consumer_helps), 0, DLPI_HELPS_MOST},
    {DLPI_AT(dlp_workers_desc, workers_min), INT16_MIN, INT32_MAX, NULL}, /* dlpi_tune_check */
    {DLPI_EITHER(dlp_workers_desc, worker_init)},
    {DLPI_EITHER(dlp_workers_desc, worker_exit)},
    {DLPI_EITHER(dlp_workers_desc, worker_user)},
    {DLPI_EITHER(dlp_workers_desc, affinity)},
    {DLPI_EITHER(dlp_workers_desc, name)},
    {DLPI_EITHER(dlp_workers_desc, tell)},
};

/* Check the desc of a stage's workers. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_check_workers(dlp_pipe *p, const dlpi_stage *st) {
    int rc = dlpi_check_bounds(p, st->name, &st->w, DLPI_ROWS(dlpi_workers_bounds));
    if (rc != DLP_OK || (rc = dlpi_check_affinity(p, st)) != DLP_OK) return rc;
    if (st->w.dispatch == 1)
        return dlpi_bad(p, st->name, "dispatch", dlpi_workers_bounds[1].words, 1);
    return st->w.placement == DLP_PLACE_PROCESSES ? p->beside->processes(p, st) : DLP_OK;
}

/* Check the workers of a stage of whole batches. */
static int dlpi_check_batch_workers(dlp_pipe *p, const dlpi_stage *st) {
    int rc = dlpi_within(p, st->name, "on_error", st->w.on_error, 0, 0,
                         "DLP_ON_ERROR_RAISE for a stage of whole batches");
    return rc != DLP_OK ? rc : dlpi_check_workers(p, st);
}

/* Lay the stage out for as many workers as it may have. Check the fields that the tuner goes by:
   workers_min, workers_max, the number of workers to begin with, and dispatch. Set the default of
   workers_min. What is wrong is the pipe's error. Cells have no tuner. */
static void dlpi_tune_check(dlp_pipe *p, dlpi_stage *st) {
    dlp_workers_desc *w = &st->w;
    dlpi_tune_take(st);
    if (st->ops->unit == DLPI_UNIT_CELLS) return;
    dlpi_within(p, st->name, "workers_min", w->workers_min, 0, w->workers_max,
                "0..workers_max, and 0 without workers_max");
    if (!st->tuned) return;
    if (w->workers_min == 0) w->workers_min = 1;
    dlpi_within(p, st->name, "dispatch", w->dispatch, DLP_DISPATCH_CLAIM, DLP_DISPATCH_CLAIM,
                "DLP_DISPATCH_CLAIM with workers_max (a table: DLP_DEAL_RUNS)");
    dlpi_within(p, st->name, "num_workers", st->begin, w->workers_min, w->workers_max,
                "workers_min..workers_max (and at least 1)");
    p->tune.every_ns = DLPI_TUNE_EVERY_NS;
}

/* ---- the stage is added ---- */

/* Make a stage of dlpi_add count, unless its checks failed. `rc`: the code of these checks; any
   other code than DLP_OK is returned. Copies the CPU numbers of the desc, which the caller owns.
   Returns the number of the stage, or a DLP_ERR code, which is negative. */
static dlp_stage dlpi_added(dlp_pipe *p, dlpi_stage *st, int rc) {
    if (rc != DLP_OK) return rc;
    if (st->w.n_affinity > 0) {
        size_t bytes = (size_t)st->w.n_affinity * sizeof *st->affinity;
        st->affinity = malloc(bytes);
        if (st->affinity == NULL) return dlpi_no_memory(p, "affinity", "the CPU numbers");
        memcpy(st->affinity, st->w.affinity, bytes);
    }
    st->begin = st->w.num_workers;
    p->n_stages++;
    return st->id;
}
