#pragma once
/* tests: system/core/pipe_badinput */
#include "fail/fail.h"
/* ---- what a desc may say ---- */

/* Refuse what the caller asked for: the pipe's error, unless it has one. Returns the code of that
   which it has then. */
__attribute__((format(printf, 5, 6))) static int dlpi_refuse(dlp_pipe *p, int code,
                                                             const char *stage, const char *field,
                                                             const char *format, ...) {
    dlp_error e;
    dlpi_error_set(&e, code, field, "%s", "");
    DLPI_PRINT(e.message, sizeof e.message, format);
    dlpi_copy_text(e.stage, sizeof e.stage, stage);
    return dlpi_pipe_fail(p, &e);
}

static int dlpi_no_memory(dlp_pipe *p, const char *field, const char *what) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_MEMORY, field, "malloc of %s failed", what);
    e.errnum = ENOMEM;
    return dlpi_pipe_fail(p, &e);
}

static int dlpi_bad(dlp_pipe *p, const char *stage, const char *field, const char *words,
                    int64_t got) {
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "%s is %" PRId64 ", must be %s", field, got,
                       words);
}

/* A pointer that is required. */
static int dlpi_missing(dlp_pipe *p, const char *stage, const char *field, const char *give) {
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "%s is NULL: give %s", field, give);
}

/* A pointer that must be NULL. */
static int dlpi_not_null(dlp_pipe *p, const char *stage, const char *field, const char *where) {
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "%s is given, must be NULL %s", field, where);
}

/* An array and its count: both are given, or neither is. */
static int dlpi_check_pair(dlp_pipe *p, const char *stage, const char *array, const void *at,
                           const char *count, int64_t n) {
    if ((at != NULL) == (n != 0)) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, stage, at ? count : array,
                       at ? "%s is 0, but %s is given: give both, or neither"
                          : "%s is NULL, but %s is %" PRId64 ": give both, or neither",
                       at ? count : array, at ? array : count, n);
}

/* The first field of a dataset that somebody has set, or NULL. filter does not count: it may be set
   beside a source's dataset. */
static const char *dlpi_dataset_given(const dlp_dataset *d) {
    if (d->n_items != 0) return "dataset.n_items";
    if (d->fields != NULL) return "dataset.fields";
    if (d->n_fields != 0) return "dataset.n_fields";
    if (d->writes_all_bytes != 0) return "dataset.writes_all_bytes";
    if (d->fetch != NULL) return "dataset.fetch";
    if (d->user != NULL) return "dataset.user";
    if (d->open_end != 0) return "dataset.open_end";
    if (d->warning != NULL) return "dataset.warning";
    return d->reader != NULL ? "dataset.reader" : NULL;
}

static int dlpi_bad_graph(dlp_pipe *p, const char *stage, const char *what) {
    return dlpi_refuse(p, DLP_ERR_GRAPH, stage, "", "%s", what);
}

/* The same of field i, called name: err.field is "fields[].what", the message tells which of them
   it is, and which dimension. */
__attribute__((format(printf, 6, 7))) static int dlpi_bad_field(dlp_pipe *p, const char *stage,
                                                                uint32_t i, const char *name,
                                                                const char *what,
                                                                const char *format, ...) {
    char field[48], text[256];
    DLPI_PRINT(text, sizeof text, format);
    snprintf(field, sizeof field, "fields[].%s", what);
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "fields[%" PRIu32 "] \"%.31s\": %s", i,
                       name ? name : "", text);
}

#define DLPI_CELL_MAX (UINT64_C(1) << 46) /* bytes, and elements, of anything */

/* A number of a desc, and what it may be: a row of a desc's table. */
typedef struct dlpi_bound {
    const char *field; /* as errors name it */
    size_t offset;
    int type; /* DLPI_I32 .. */
    int64_t low, high;
    const char *words; /* the same in words */
} dlpi_bound;

/* DLPI_IN: offset and type of a member; DLPI_AT: its name before them. */
enum { DLPI_I32 = 0, DLPI_U32, DLPI_I64 };
#define DLPI_TYPE(at) _Generic(at, int32_t * : DLPI_I32, uint32_t * : DLPI_U32, default : DLPI_I64)
#define DLPI_IN(desc, member) offsetof(desc, member), DLPI_TYPE(&((desc *)0)->member)
#define DLPI_AT(desc, member) #member, DLPI_IN(desc, member)
#define DLPI_ROWS(table) table, sizeof table / sizeof *table

static int64_t dlpi_bound_got(const dlpi_bound *b, const void *desc) {
    const uint8_t *at = (const uint8_t *)desc + b->offset;
    int64_t wide; /* of a uint64_t, too: from 2^63 on it is below every bound */
    int32_t narrow;
    memcpy(&narrow, at, sizeof narrow);
    if (b->type == DLPI_I32) return narrow;
    if (b->type == DLPI_U32) return (uint32_t)narrow;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

/* The first of n rows that does not hold, or NULL. */
static const dlpi_bound *dlpi_out_of_bounds(const void *desc, const dlpi_bound *b, size_t n) {
    for (; n > 0; n--, b++) {
        int64_t got = dlpi_bound_got(b, desc);
        if (got < b->low || got > b->high) return b;
    }
    return NULL;
}

static int dlpi_check_bounds(dlp_pipe *p, const char *stage, const void *desc,
                             const dlpi_bound *bounds, size_t n) {
    const dlpi_bound *b = dlpi_out_of_bounds(desc, bounds, n);
    return b ? dlpi_bad(p, stage, b->field, b->words, dlpi_bound_got(b, desc)) : DLP_OK;
}

/* The same of field i. */
static int dlpi_check_field(dlp_pipe *p, const char *stage, uint32_t i, const dlp_field *f,
                            const dlpi_bound *bounds, size_t n) {
    const dlpi_bound *b = dlpi_out_of_bounds(f, bounds, n);
    if (b == NULL) return DLP_OK;
    return dlpi_bad_field(p, stage, i, f->name, b->field, "%s is %" PRId64 ", must be %s", b->field,
                          dlpi_bound_got(b, f), b->words);
}

/* A number whose bounds follow from others. */
static int dlpi_within(dlp_pipe *p, const char *stage, const char *field, int64_t got, int64_t low,
                       int64_t high, const char *words) {
    return got < low || got > high ? dlpi_bad(p, stage, field, words, got) : DLP_OK;
}

/* ---- workers, of each stage that has them ---- */

static int dlpi_check_affinity(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_workers_desc *w = &st->w;
    int rc = dlpi_check_pair(p, st->name, "affinity", w->affinity, "n_affinity", w->n_affinity);
    for (int i = 0; i < w->n_affinity && rc == DLP_OK; i++)
        rc = dlpi_within(p, st->name, "affinity", w->affinity[i], 0, 1023, "CPU numbers 0..1023");
    return rc;
}

static int dlpi_check_workers(dlp_pipe *p, const dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_workers_desc, num_workers), 0, DLP_MAX_WORKERS, "DLP_NONE or 0..1024"},
        {DLPI_AT(dlp_workers_desc, placement), 0, DLP_PLACE_PROCESSES,
         "DLP_PLACE_THREADS or DLP_PLACE_PROCESSES"},
        {DLPI_AT(dlp_workers_desc, on_error), 0, DLP_ON_ERROR_DROP, "DLP_ON_ERROR_*"},
        {DLPI_AT(dlp_workers_desc, retries), 0, 100, "0..100"},
        {DLPI_AT(dlp_workers_desc, retry_backoff_ms), 0, 3600000, "0..3600000"},
        {DLPI_AT(dlp_workers_desc, max_skips), DLP_NONE, INT64_MAX, "DLP_NONE, or 0 and more"},
        {DLPI_AT(dlp_workers_desc, deadline_ms), 0, INT32_MAX, "0 and more"},
        {DLPI_AT(dlp_workers_desc, n_affinity), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_workers_desc, idempotent), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_workers_desc, stack_bytes), 0, UINT32_MAX, "under 4 GiB"},
    };
    int rc = dlpi_check_bounds(p, st->name, &st->w, DLPI_ROWS(bounds));
    if (rc != DLP_OK || (rc = dlpi_check_affinity(p, st)) != DLP_OK) return rc;
    if (st->w.dispatch != DLP_DISPATCH_CLAIM && st->w.dispatch != DLP_DISPATCH_BATCHES)
        return dlpi_bad(p, st->name, "dispatch", "DLP_DISPATCH_CLAIM or DLP_DISPATCH_BATCHES",
                        st->w.dispatch);
    return st->w.placement == DLP_PLACE_PROCESSES ? p->beside->processes(p, st) : DLP_OK;
}

/* The same of a stage of whole batches. */
static int dlpi_check_batch_workers(dlp_pipe *p, const dlpi_stage *st) {
    int rc = dlpi_within(p, st->name, "on_error", st->w.on_error, 0, 0,
                         "DLP_ON_ERROR_RAISE for a stage of whole batches");
    return rc != DLP_OK ? rc : dlpi_check_workers(p, st);
}

/* Rank and world_size, and the rows of a batch that they share. */
static int dlpi_check_ranks(dlp_pipe *p, uint64_t batch_size) {
    const uint32_t world = p->d.world_size;
    int rc = dlpi_within(p, "", "rank", p->d.rank, 0, world ? (int64_t)world - 1 : 0,
                         "0..world_size - 1");
    if (world != 0) p->ranks_given = 1;
    if (rc != DLP_OK || world == 0 || p->d.allow_uneven || batch_size % world == 0) return rc;
    return dlpi_refuse(p, DLP_ERR_ARG, "", "world_size",
                       "batch_size %" PRIu64 " can't be divided by world_size %" PRIu32
                       "; set allow_uneven for ranks of different counts",
                       batch_size, world);
}
