#pragma once
#include "core/tune.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-build      CHECKS, LAYOUT, PLAN, START, CLOSE */

static int dlpi_bad(dlp_pipe *p, const char *stage, const char *field, const char *range,
                    int64_t got) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_ARG, field, "%s is %" PRId64 ", must be %s", field, got, range);
    dlpi_copy_text(e.stage, sizeof e.stage, stage);
    dlpi_pipe_fail(p, &e);
    return DLP_ERR_ARG;
}

/* The same of field i, called name: err.field is "fields[].what", the message tells which of them
   it is, and which dimension. */
__attribute__((format(printf, 6, 7))) static int dlpi_bad_field(dlp_pipe *p, const char *stage,
                                                                uint32_t i, const char *name,
                                                                const char *what,
                                                                const char *format, ...) {
    dlp_error e;
    va_list args;
    size_t n;
    dlpi_error_set(&e, DLP_ERR_ARG, "", "fields[%" PRIu32 "] \"%.31s\": ", i, name ? name : "");
    n = strlen(e.message);
    va_start(args, format);
    vsnprintf(e.message + n, sizeof e.message - n, format, args);
    va_end(args);
    snprintf(e.field, sizeof e.field, "fields[].%s", what);
    dlpi_copy_text(e.stage, sizeof e.stage, stage);
    dlpi_pipe_fail(p, &e);
    return DLP_ERR_ARG;
}

static int dlpi_bad_graph(dlp_pipe *p, const char *stage, const char *what) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_GRAPH, "", "%s", what);
    dlpi_copy_text(e.stage, sizeof e.stage, stage);
    dlpi_pipe_fail(p, &e);
    return DLP_ERR_GRAPH;
}

/* The checks of a desc, one a line: DLPI_RANGE(value, low, high, "field", "what it may be"). */
#define DLPI_RANGE(v, lo, hi, field, range) \
    if ((int64_t)(v) < (lo) || (int64_t)(v) > (hi)) \
    return dlpi_bad(p, st->name, field, range, (int64_t)(v))

static int dlpi_check_workers(dlp_pipe *p, dlpi_stage *st) {
    const dlp_workers_desc *w = &st->w;
    bool batch = st->kind == DLP_STAGE_BATCH || st->kind == DLP_STAGE_MAP_BATCH;
    DLPI_RANGE(w->num_workers, 0, DLP_MAX_WORKERS, "num_workers", "0..1024");
    DLPI_RANGE(w->placement, 0, 1, "placement", "DLP_PLACE_THREADS or DLP_PLACE_PROCESSES");
    if (w->dispatch != DLP_DISPATCH_CLAIM && w->dispatch != DLP_DISPATCH_BATCHES)
        return dlpi_bad(p, st->name, "dispatch", "DLP_DISPATCH_CLAIM or DLP_DISPATCH_BATCHES",
                        w->dispatch);
    DLPI_RANGE(w->on_error, 0, batch ? 0 : 2, "on_error",
               batch ? "DLP_ON_ERROR_RAISE for a stage of whole batches" : "DLP_ON_ERROR_*");
    DLPI_RANGE(w->retries, 0, 100, "retries", "0..100");
    DLPI_RANGE(w->retry_backoff_ms, 0, 3600000, "retry_backoff_ms", "0..3600000");
    DLPI_RANGE(w->max_skips, DLP_NONE, INT64_MAX, "max_skips", "DLP_NONE, or 0 and more");
    DLPI_RANGE(w->deadline_ms, 0, INT32_MAX, "deadline_ms", "0 and more");
    DLPI_RANGE(w->n_affinity, 0, 4096, "n_affinity", "0..4096");
    DLPI_RANGE(w->idempotent, 0, 1, "idempotent", "0 or 1");
    DLPI_RANGE(w->stack_bytes, 0, UINT32_MAX, "stack_bytes", "under 4 GiB");
    if (w->n_affinity > 0 && w->affinity == NULL)
        return dlpi_bad(p, st->name, "affinity", "n_affinity CPU numbers", 0);
    for (int i = 0; i < w->n_affinity; i++)
        DLPI_RANGE(w->affinity[i], 0, 1023, "affinity", "CPU numbers 0..1023");
    if (w->placement == DLP_PLACE_PROCESSES && dlpi_shm == NULL) {
        dlp_error e;
        dlpi_error_set(&e, DLP_ERR_UNSUPPORTED, "placement",
                       "DLP_PLACE_PROCESSES needs dlpipe_shm.h, included in the file that has "
                       "DLPIPE_IMPLEMENTATION");
        dlpi_copy_text(e.stage, sizeof e.stage, st->name);
        return dlpi_pipe_fail(p, &e);
    }
    return DLP_OK;
}

static dlpi_stage *dlpi_add(dlp_pipe *p, const dlpi_stage_ops *ops, const char *name,
                            const dlp_workers_desc *w) {
    dlpi_stage *st;
    if (p->prepared || p->err.code != 0) return NULL;
    if (p->n_stages == DLP_MAX_STAGES) {
        dlpi_bad_graph(p, name, "more than 16 stages");
        return NULL;
    }
    st = &p->stages[p->n_stages];
    memset(st, 0, sizeof *st);
    st->ops = ops;
    st->kind = ops->kind;
    st->id = p->n_stages;
    st->next = st->prev = st->work = -1;
    if (ops->self_bytes > 0 && (st->self = calloc(1, ops->self_bytes)) == NULL) {
        dlp_error e;
        dlpi_error_set(&e, DLP_ERR_MEMORY, name, "malloc of what a stage keeps failed");
        e.errnum = ENOMEM;
        dlpi_pipe_fail(p, &e);
        return NULL;
    }
    if (w) st->w = *w;
    dlpi_copy_text(st->name, sizeof st->name, w && w->name ? w->name : name);
    st->w.name = st->name;
    return st;
}

/* The stage is complete: keep it. Its borrowed arrays are copied here. */
static dlp_stage dlpi_added(dlp_pipe *p, dlpi_stage *st) {
    if (st->w.n_affinity > 0) {
        size_t bytes = (size_t)st->w.n_affinity * sizeof *st->affinity;
        st->affinity = malloc(bytes);
        if (st->affinity == NULL) {
            dlp_error e;
            dlpi_error_set(&e, DLP_ERR_MEMORY, "affinity", "malloc of the CPU numbers failed");
            e.errnum = ENOMEM;
            return dlpi_pipe_fail(p, &e);
        }
        memcpy(st->affinity, st->w.affinity, bytes);
    }
    p->n_stages++;
    return st->id;
}

static int dlpi_add_refused(const dlp_pipe *p) {
    if (p->view) return DLP_ERR_STATE;
    return p->err.code != 0 ? p->err.code : DLP_ERR_STATE;
}

static uint64_t dlpi_dtype_bytes(dlp_dtype t) {
    uint32_t bits = t & 0xffffu, code = t >> 16;
    if (code > 6 || (bits != 8 && bits != 16 && bits != 32 && bits != 64)) return 0;
    return bits / 8;
}

#define DLPI_CELL_MAX (UINT64_C(1) << 46)

/* The checks of field i of a stage, as DLPI_RANGE. */
#define DLPI_FIELD(v, lo, hi, what, range) \
    if ((int64_t)(v) < (lo) || (int64_t)(v) > (hi)) \
    return dlpi_bad_field(p, stage, i, f->name, what, what " is %" PRId64 ", must be " range, \
                          (int64_t)(v))

/* Copy and measure field i. rows: of a batch. */
static int dlpi_field_init(dlp_pipe *p, const char *stage, dlpi_field *d, const dlp_field *f,
                           uint32_t i, uint64_t rows, bool pooled) {
    uint64_t n = 1;
    memset(d, 0, sizeof *d);
    d->f = *f;
    dlpi_copy_text(d->name, sizeof d->name, f->name);
    d->f.name = d->name;
    if (d->f.dtype == 0) d->f.dtype = DLP_U8;
    d->elem_bytes = dlpi_dtype_bytes(d->f.dtype);
    if (d->elem_bytes == 0)
        return dlpi_bad_field(p, stage, i, f->name, "dtype",
                              "dtype is %#" PRIx32 ", must be a DLP_DTYPE of 8, 16, 32 or 64 bits",
                              f->dtype);
    DLPI_FIELD(f->ndim, 0, DLP_MAX_DIMS - 1, "ndim", "0..7");
    DLPI_FIELD(f->ragged, 0, f->ndim > 0 ? 1 : 0, "ragged", "0, or 1 with ndim of at least 1");
    if (f->ndim == 0 && f->shape[0] > 1)
        return dlpi_bad_field(p, stage, i, f->name, "shape",
                              "ndim is 0, which is one element, but shape[0] is %" PRId64
                              ": set ndim, or no shape",
                              f->shape[0]);
    for (int k = 0; k < f->ndim; k++) {
        if (f->shape[k] < 1)
            return dlpi_bad_field(p, stage, i, f->name, "shape",
                                  "shape[%d] is %" PRId64 ", must be 1 and more", k, f->shape[k]);
        if ((uint64_t)f->shape[k] > DLPI_CELL_MAX / n)
            return dlpi_bad_field(p, stage, i, f->name, "shape",
                                  "with shape[%d], which is %" PRId64
                                  ", an item has more than 2^46 elements",
                                  k, f->shape[k]);
        n *= (uint64_t)f->shape[k];
    }
    d->row_bytes = n * d->elem_bytes;
    if (d->row_bytes > DLPI_CELL_MAX / rows)
        return dlpi_bad_field(p, stage, i, f->name, "shape",
                              "%" PRIu64 " items of %" PRIu64
                              " bytes are more than 2^46 in a batch",
                              rows, d->row_bytes);
    d->capacity = d->row_bytes * rows;
    DLPI_FIELD(f->max_per_batch, 0, INT64_C(1) << 46, "max_per_batch", "0 and more");
    if (pooled && f->ragged && f->max_per_batch > 0) {
        uint64_t unit = d->row_bytes / (uint64_t)f->shape[0];
        if ((uint64_t)f->max_per_batch <= DLPI_CELL_MAX / unit &&
            (uint64_t)f->max_per_batch * unit < d->capacity)
            d->capacity = (uint64_t)f->max_per_batch * unit;
    }
    return DLP_OK;
}

/* The names of a stage's fields are the user's until here. */
static int dlpi_keep_names(dlp_pipe *p, dlpi_stage *st, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const char *name = st->fields[i].name;
        if (name == NULL || name[0] == 0 || strlen(name) >= sizeof st->field_names[i])
            return dlpi_bad_field(p, st->name, i, name, "name",
                                  "name has %zu bytes, must have 1 to 31",
                                  name ? strlen(name) : (size_t)0);
        dlpi_copy_text(st->field_names[i], sizeof st->field_names[i], name);
        st->fields[i].name = st->field_names[i];
        if (st->fields[i].dtype == 0)
            dlpi_warn(p, "%s: fields[%" PRIu32 "] \"%s\" has no dtype: bytes (DLP_U8) are taken",
                      st->name, i, name);
    }
    return DLP_OK;
}

/* Lay fields out in a cell, each 64-byte aligned. */
static int dlpi_fields_init(dlp_pipe *p, const char *stage, dlpi_fields *fs, const dlp_field *f,
                            uint32_t n, bool pooled) {
    dlpi_stage named, *st = &named;
    uint64_t at = DLPI_GUARD;
    memset(&named, 0, sizeof named);
    dlpi_copy_text(named.name, sizeof named.name, stage);
    DLPI_RANGE(n, 1, DLP_MAX_FIELDS, "n_fields", "1..16");
    if (f == NULL) return dlpi_bad(p, stage, "fields", "an array of n_fields fields", 0);
    memset(fs, 0, sizeof *fs);
    fs->n = n;
    for (uint32_t i = 0; i < n; i++) {
        int rc = dlpi_field_init(p, stage, &fs->at[i], &f[i], i, p->batch_rows, pooled);
        if (rc != DLP_OK) return rc;
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(fs->at[i].name, fs->at[j].name) == 0)
                return dlpi_bad_field(p, stage, i, fs->at[i].name, "name",
                                      "name is that of fields[%" PRIu32 "] already", j);
        fs->any_ragged |= f[i].ragged != 0;
        fs->at[i].offset = at;
        at = dlpi_round_up(dlpi_sum(at, dlpi_sum(fs->at[i].capacity, 2 * DLPI_GUARD)), 64);
        fs->cell_bytes = dlpi_sum(fs->cell_bytes, fs->at[i].row_bytes);
    }
    return DLP_OK;
}

static uint64_t dlpi_fields_bytes(const dlpi_fields *fs) {
    const dlpi_field *last = &fs->at[fs->n - 1];
    return dlpi_round_up(dlpi_sum(last->offset, dlpi_sum(last->capacity, DLPI_GUARD)), 4096);
}

static int dlpi_check_chain(dlp_pipe *p, int first) {
    int seen = 0, before = 0;
    uint32_t visited = 0;
    for (int at = first; at >= 0; at = p->stages[at].next) {
        dlpi_stage *st = &p->stages[at];
        int rank = st->ops->rank;
        if (++seen > p->n_stages) return dlpi_bad_graph(p, st->name, "the links make a cycle");
        if (rank < before || (rank == before && !st->ops->many))
            return dlpi_bad_graph(p, st->name,
                                  "this stage can't follow the one before it; the order is "
                                  "sampler, repeat, parts, fetch, cache, item maps, batch, batch "
                                  "maps, transfer, split");
        before = rank;
        visited |= 1u << at;
        if (st->kind == DLP_STAGE_SAMPLER) p->sampler = st;
        if (st->kind == DLP_STAGE_REPEAT) p->repeat = st;
        if (st->kind == DLP_STAGE_FETCH) p->fetch = st;
        if (st->kind == DLP_STAGE_BATCH) p->batcher = st;
        if (st->kind == DLP_STAGE_TRANSFER) p->xfer = st;
        if (st->kind == DLP_STAGE_CACHE) p->cache_bytes = st->cache.bytes;
        if (st->kind == DLP_STAGE_SPLIT) p->split = st;
        if (st->kind == DLP_STAGE_PARTS) p->parts = st;
    }
    for (int i = 0; i < p->n_stages; i++)
        if (i != first && p->stages[i].prev < 0)
            return dlpi_bad_graph(p, p->stages[i].name, "no stage is linked to this one");
    for (int i = 0; i < p->n_stages; i++)
        if ((visited >> i & 1u) == 0)
            return dlpi_bad_graph(p, p->stages[i].name, "the links make a cycle");
    return DLP_OK;
}

static int dlpi_check_graph(dlp_pipe *p) {
    int first = -1, rc;
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].kind == DLP_STAGE_SAMPLER) {
            if (first >= 0) return dlpi_bad_graph(p, p->stages[i].name, "a pipe has one sampler");
            first = i;
        }
    if (first < 0) return dlpi_bad_graph(p, "", "there is no sampler stage");
    if (p->stages[first].prev >= 0)
        return dlpi_bad_graph(p, p->stages[first].name, "nothing can come before the sampler");
    if ((rc = dlpi_check_chain(p, first)) != DLP_OK) return rc;
    if (p->fetch == NULL) return dlpi_bad_graph(p, "", "there is no fetch stage");
    if (p->batcher == NULL) return dlpi_bad_graph(p, "", "there is no batch stage");
    return DLP_OK;
}

static bool dlpi_all_inline(const dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].w.num_workers > 0) return false;
    return p->batcher->batching.batch_workers <= 0 && !p->sampler->sampler.threaded;
}

/* All is laid out for workers_max; num_workers, where it begins, is kept apart. */
static void dlpi_list_tuned(dlpi_stage *s) {
    if (s->kind == DLP_STAGE_BATCH || !s->tuned) s->begin = s->w.num_workers;
    s->tuned = s->w.workers_max > 0;
    if (s->tuned) s->w.num_workers = s->w.workers_max;
}

static int dlpi_check_tuned(dlp_pipe *p, dlpi_stage *st) {
    DLPI_RANGE(st->w.workers_max, 0, DLP_MAX_WORKERS, "workers_max", "0..1024");
    DLPI_RANGE(st->w.workers_min, 0, st->w.workers_max, "workers_min",
               "0..workers_max, 0 without that");
    if (!st->tuned) return DLP_OK;
    if (st->w.workers_min == 0) st->w.workers_min = 1;
    DLPI_RANGE(st->w.dispatch, DLP_DISPATCH_CLAIM, DLP_DISPATCH_CLAIM, "dispatch",
               "DLP_DISPATCH_CLAIM with workers_max: else a batch has its worker");
    DLPI_RANGE(st->begin, st->w.workers_min, st->w.workers_max, "num_workers",
               "workers_min..workers_max (and at least 1)");
    p->tune.every_ns = DLPI_TUNE_EVERY_NS;
    return DLP_OK;
}

/* Batch workers that nobody asked for: beyond so many a collate is no longer what is slow, and as
   processes they would be forked by the thousand. */
#define DLPI_COLLATORS 64

/* Does the stage want workers? A batch stage does if somebody must run it. */
static bool dlpi_wants_workers(const dlpi_stage *st) {
    if (st->kind != DLP_STAGE_BATCH) return st->ops->unit != DLPI_UNIT_NONE;
    return st->collate != NULL || st->batching.batch_workers > 0;
}

/* Of a unit, the stages that have workers, in order. */
static void dlpi_list_unit(dlp_pipe *p, int unit) {
    for (int at = p->sampler->id; at >= 0; at = p->stages[at].next) {
        dlpi_stage *st = &p->stages[at];
        if (st->ops->unit != unit || !dlpi_wants_workers(st)) continue;
        st->work = p->n_staffed;
        dlpi_list_tuned(st);
        st->n_workers = st->w.num_workers > 0 ? st->w.num_workers : 1;
        if (st->w.num_workers > 0 && st->w.placement == DLP_PLACE_PROCESSES)
            p->n_procs += st->n_workers;
        p->work[p->n_staffed++] = st;
    }
}

static void dlpi_list_work(dlp_pipe *p) {
    const dlp_batch_desc *b = &p->batcher->batching;
    dlpi_stage *st = p->batcher;
    st->w.num_workers = b->batch_workers > 0 ? b->batch_workers : 0;
    if (b->batch_workers == 0 && b->collate && p->fetch->w.num_workers > 0)
        st->w.num_workers = p->prefetch < DLPI_COLLATORS ? (int32_t)p->prefetch : DLPI_COLLATORS;
    p->n_staffed = p->n_procs = 0;
    dlpi_list_unit(p, DLPI_UNIT_ROWS);
    p->n_item_work = p->n_staffed;
    dlpi_list_unit(p, DLPI_UNIT_BATCHES);
    p->n_work = p->n_staffed;
    dlpi_list_unit(p, DLPI_UNIT_CELLS);
}

/* What a part queue's numbers must be to each other; the sum of its counts is the dataset's. */
static int dlpi_parts_sum(dlp_pipe *p) {
    const dlpi_stage *st = p->parts;
    dlp_dataset *ds = &p->fetch->dataset;
    uint64_t items = dlpi_parts_items(p), c = st->part.streams;
    dlp_error e;
    if (p->stream)
        return dlpi_bad_graph(p, st->name,
                              "this stage wants to know the number of items, and a "
                              "stream has none");
    if (ds->n_items != 0 && ds->n_items != items) {
        dlpi_error_set(&e, DLP_ERR_ARG, "dataset.n_items",
                       "n_items is %" PRIu64 ", the parts have %" PRIu64 " items", ds->n_items,
                       items);
        dlpi_copy_text(e.stage, sizeof e.stage, p->fetch->name);
        return dlpi_pipe_fail(p, &e);
    }
    ds->n_items = items;
    if (p->sampler->sampler.subset || p->sampler->sampler.weights)
        return dlpi_bad(p, p->sampler->name, "sampler.subset",
                        "NULL with DLP_ORDER_PARTS, as "
                        "weights",
                        1);
    if (c > p->global_batch || p->global_batch % c != 0) {
        dlpi_error_set(&e, DLP_ERR_ARG, "streams",
                       "batch_size %" PRIu64 " can't be divided by streams %" PRIu64,
                       p->global_batch, c);
        dlpi_copy_text(e.stage, sizeof e.stage, st->name);
        return dlpi_pipe_fail(p, &e);
    }
    if (st->part.steps_per_epoch == 0) return DLP_OK;
    DLPI_RANGE(items, (int64_t)c, INT64_MAX, "items", "one for each stream with steps_per_epoch");
    DLPI_RANGE(st->part.steps_per_epoch, 0, (int64_t)(DLPI_MAX_ITEMS / p->global_batch),
               "steps_per_epoch", "at most 2^48 items in an epoch");
    return DLP_OK;
}

/* How many cells the part queue has. */
static int dlpi_parts_resolve(dlp_pipe *p) {
    const dlpi_stage *st = p->parts;
    uint64_t last = p->batches_per_epoch - 1, need = dlpi_parts_need(p, 0), tail;
    dlp_error e;
    tail = last > 0 ? dlpi_parts_need(p, last) : need;
    if (tail > need) need = tail;
    p->part_stride = dlpi_round_up(dlpi_sum(st->part.max_part_bytes, DLPI_GUARD), 4096);
    p->part_stride = dlpi_sum(p->part_stride, DLPI_PART_GUARD);
    p->part_cells = st->part.queue_size;
    if (p->part_cells == 0 && need < 4096) p->part_cells = need < 1 ? 2 : (uint32_t)need + 1;
    if (p->part_cells >= need && p->part_cells > 0) return DLP_OK;
    dlpi_error_set(&e, DLP_ERR_ARG, "queue_size",
                   "a batch may need %" PRIu64 " parts at once (batch_size, streams, the smallest "
                   "parts), queue_size is %" PRIu32 "; 0 takes what is needed",
                   need, st->part.queue_size);
    dlpi_copy_text(e.stage, sizeof e.stage, st->name);
    return dlpi_pipe_fail(p, &e);
}

/* Rank, batch and epoch arithmetic. */
static int dlpi_check_sizes(dlp_pipe *p) {
    const dlp_sampler_desc *d = &p->sampler->sampler;
    dlpi_stage *st = p->batcher;
    dlp_error e;
    DLPI_RANGE(st->batching.batch_size, 1, 1 << 20, "batch_size", "1..1048576");
    DLPI_RANGE(st->batching.last, 0, 2, "last", "DLP_LAST_*");
    st = p->sampler;
    p->world = d->world_size ? d->world_size : 1;
    p->rank = d->rank;
    DLPI_RANGE(p->rank, 0, (int64_t)p->world - 1, "rank", "0..world_size - 1");
    DLPI_RANGE(d->allow_uneven, 0, 1, "sampler.allow_uneven", "0 or 1");
    p->global_batch = p->batcher->batching.batch_size;
    p->last = p->batcher->batching.last;
    if (p->global_batch % p->world != 0 && !d->allow_uneven) {
        dlpi_error_set(&e, DLP_ERR_ARG, "world_size",
                       "batch_size %" PRIu64 " can't be divided by world_size %" PRIu32
                       "; set allow_uneven for ranks of different counts",
                       p->global_batch, p->world);
        dlpi_copy_text(e.stage, sizeof e.stage, st->name);
        return dlpi_pipe_fail(p, &e);
    }
    p->batch_rows = (uint32_t)((p->global_batch + p->world - 1) / p->world);
    memset(&e, 0, sizeof e);
    e.worker = -1;
    if ((p->parts != NULL) != (d->order == DLP_ORDER_PARTS))
        return dlpi_bad(p, st->name, "sampler.order",
                        "DLP_ORDER_PARTS with a part queue, and only "
                        "then",
                        d->order);
    if (p->parts && dlpi_parts_sum(p) != DLP_OK) return p->err.code;
    if (p->fetch->dataset.n_items == 0)
        return dlpi_bad(p, p->fetch->name, "dataset.n_items", "1..2^48", 0);
    if (dlpi_order_check(d, p->fetch->dataset.n_items, &e) != DLP_OK) {
        dlpi_copy_text(e.stage, sizeof e.stage, st->name);
        return dlpi_pipe_fail(p, &e);
    }
    if (d->order == DLP_ORDER_BATCHES) {
        if (d->batches.next == NULL) return dlpi_bad(p, st->name, "batches.next", "a function", 0);
        if ((d->batches.save == NULL) != (d->batches.restore == NULL))
            return dlpi_bad(p, st->name, "batches.restore", "given together with batches.save", 0);
        p->samples = UINT64_C(1) << 48;
        p->batches_per_epoch = UINT64_MAX;
        return DLP_OK;
    }
    p->samples = dlpi_order_samples(d, p->fetch->dataset.n_items);
    if (p->stream) {
        p->batches_per_epoch = UINT64_MAX;
        return DLP_OK;
    }

    if (p->parts && p->parts->part.steps_per_epoch)
        p->samples = p->parts->part.steps_per_epoch * p->global_batch;
    p->batches_per_epoch = p->samples / p->global_batch;
    if (p->last != DLP_LAST_DROP && p->samples % p->global_batch != 0) p->batches_per_epoch++;
    if (p->batches_per_epoch == 0) {
        dlpi_error_set(&e, DLP_ERR_ARG, "last",
                       "DLP_LAST_DROP leaves no batch: %" PRIu64
                       " samples an epoch, batch_size %" PRIu64,
                       p->samples, p->global_batch);
        dlpi_copy_text(e.stage, sizeof e.stage, p->batcher->name);
        return dlpi_pipe_fail(p, &e);
    }
    return DLP_OK;
}

/* A stream: what needs a length, or another item in an item's place, can't be had. */
static int dlpi_check_stream(dlp_pipe *p) {
    const dlp_sampler_desc *d = &p->sampler->sampler;
    dlpi_stage *st = p->sampler;
    if (!p->stream) return DLP_OK;
    DLPI_RANGE(d->order, DLP_ORDER_SEQUENTIAL, DLP_ORDER_SEQUENTIAL, "order",
               "DLP_ORDER_SEQUENTIAL, and shuffle 0, with a stream");
    if (d->subset) return dlpi_bad(p, st->name, "subset", "NULL with a stream", 1);
    DLPI_RANGE(p->d.unordered, 0, 0, "unordered", "0 with a stream, whose end comes in order");
    DLPI_RANGE(p->global_batch, p->world, 1 << 20, "batch_size",
               "world_size or more with a stream: a rank without rows sees no end");
    st = p->batcher;
    DLPI_RANGE(p->last, DLP_LAST_SHORT, p->world == 1 ? DLP_LAST_DROP : DLP_LAST_SHORT, "last",
               p->world == 1 ? "DLP_LAST_SHORT or DLP_LAST_DROP with a stream"
                             : "DLP_LAST_SHORT with a stream of several ranks, none of which knows "
                               "whether the others' rows of a batch are there");
    for (int i = 0; i < p->n_work; i++) {
        st = p->work[i];
        if (st->w.on_error == DLP_ON_ERROR_REPLACE)
            return dlpi_bad(p, st->name, "on_error",
                            "DLP_ON_ERROR_RAISE or _SHORT with a stream, "
                            "which knows no other item",
                            st->w.on_error);
    }
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].kind == DLP_STAGE_CACHE || p->stages[i].kind == DLP_STAGE_SPLIT)
            return dlpi_bad_graph(p, p->stages[i].name,
                                  "this stage wants to know the number of "
                                  "items, and a stream has none");
    if (p->share_bytes == 0) return DLP_OK;
    dlpi_error_set(&p->err, DLP_ERR_UNSUPPORTED, "shm.share", "a stream has no consumers");
    return DLP_ERR_UNSUPPORTED;
}

/* Can the wiring be cut into views, and into how many? */
static int dlpi_check_split(dlp_pipe *p) {
    const dlp_sampler_desc *order = &p->sampler->sampler;
    dlpi_stage *st = p->split;
    const dlp_split_desc *d = &st->split;
    uint64_t n = dlpi_chunk_count(p), world = d->world_size ? d->world_size : 1, odd;
    bool counted = order->order == DLP_ORDER_SEQUENTIAL || order->order == DLP_ORDER_SHUFFLED;
    dlp_error e;
    if (p->batcher->batching.batch_size != 1 || p->batcher->batching.collate || p->world != 1 ||
        order->order == DLP_ORDER_BATCHES || p->d.unordered)
        return dlpi_bad_graph(p, st->name,
                              "a split stage wants items one by one: batch_size 1, no "
                              "collate, no batch sampler, no ranks there, in order");
    DLPI_RANGE(d->chunk_rows, 1, (INT64_C(1) << 48) / (int64_t)n, "chunk_rows",
               "such that all rows are at most 2^48");
    if (d->n_rows != 0 && (d->n_rows - 1) / d->chunk_rows + 1 != n)
        return dlpi_bad(p, st->name, "n_rows", "chunk_rows for each item, at most, and so many",
                        (int64_t)d->n_rows);
    if (p->cache_bytes > 0)
        DLPI_RANGE(d->shuffle_rows, 0, 0, "shuffle_rows",
                   "0 with a cache: rows stay as they were fetched, not as an epoch has them");
    odd = dlpi_chunk_size(p, n - 1);
    if (odd != d->chunk_rows && (!counted || order->subset))
        return dlpi_bad(p, st->name, "n_rows", "full items for this order", (int64_t)d->n_rows);
    if (dlpi_chunk_views(p, odd) == 0)
        return dlpi_bad(p, st->name, "last", "such that the last item has a batch; leave it out",
                        1);
    if (d->batch_size % world != 0 && !d->allow_uneven) {
        dlpi_error_set(&e, DLP_ERR_ARG, "world_size",
                       "batch_size %" PRIu32 " can't be divided by world_size %" PRIu64
                       "; set allow_uneven for ranks of different counts",
                       d->batch_size, world);
        dlpi_copy_text(e.stage, sizeof e.stage, st->name);
        return dlpi_pipe_fail(p, &e);
    }
    p->cut.view_rows = (uint32_t)((d->batch_size + world - 1) / world);
    if (p->cut.view_rows > d->chunk_rows) p->cut.view_rows = (uint32_t)d->chunk_rows;
    p->cut.per_epoch =
        (p->batches_per_epoch - 1) * dlpi_chunk_views(p, d->chunk_rows) + dlpi_chunk_views(p, odd);
    return DLP_OK;
}

/* The most rows that this rank has of a chunk. */
static uint64_t dlpi_split_room(const dlp_split_desc *d) {
    uint64_t world = d->world_size ? d->world_size : 1, rest = d->chunk_rows % d->batch_size;
    uint64_t rows = d->chunk_rows / d->batch_size * ((d->batch_size + world - 1) / world);
    return d->last == DLP_LAST_DROP ? rows : rows + (rest + world - 1) / world;
}

/* The fields of chunks, and where chunks lie. */
static int dlpi_split_cells(dlp_pipe *p) {
    dlpi_stage *st = p->split;
    uint64_t room = dlpi_split_room(&st->split);
    for (uint32_t f = 0; f < p->items.n; f++) {
        const dlp_field *d = &p->items.at[f].f;
        int64_t rows = d->ndim ? d->shape[0] : 0;
        if (d->ragged)
            return dlpi_bad_field(p, st->name, f, d->name, "ragged",
                                  "ragged is 1, must be 0 before a split stage");
        if (rows < (int64_t)room)
            return dlpi_bad_field(
                p, st->name, f, d->name, "shape[0]",
                "shape[0] is %" PRId64 ", one rank has %" PRIu64 " rows of a chunk", rows, room);
    }
    if (p->chunks.preload == DLP_PRELOAD_CPU) {
        p->cells = DLPI_CELLS_CHUNK;
        p->n_cells = (uint32_t)dlpi_chunk_count(p);
    } else if (p->xfer) { /* what is on the device leaves its cell */
        p->cells = DLPI_CELLS_TURN;
        p->cell_end = p->xfer;
        p->n_cells = p->prefetch;
    }
    if (p->chunks.preload) {
        DLPI_RANGE(dlpi_chunk_count(p), 1, UINT16_MAX, "preload", "of at most 65535 chunks");
        DLPI_RANGE(p->n_slots, 1, DLPI_PARK, "cpu_buffers",
                   "together with max_held at most 64 with a preload");
        DLPI_RANGE(st->split.shuffle_rows, 0, 0, "shuffle_rows",
                   "0 with a preload: rows stay as they were loaded");
        DLPI_RANGE(p->fetch->w.on_error, 0, 0, "on_error", "DLP_ON_ERROR_RAISE with a preload");
    }
    return DLP_OK;
}

static int dlpi_check_pipe(dlp_pipe *p) {
    dlp_pipe_desc *d = &p->d;
    dlpi_stage named, *st = &named;
    memset(&named, 0, sizeof named);
    DLPI_RANGE(d->prefetch_factor, 0, 4096, "prefetch_factor", "0..4096");
    DLPI_RANGE(d->max_held, 0, 256, "max_held", "0..256");
    DLPI_RANGE(d->unordered, 0, 1, "unordered", "0 or 1");
    DLPI_RANGE(d->close_timeout_ms, DLP_FOREVER, INT32_MAX, "close_timeout_ms",
               "DLP_NOWAIT, DLP_FOREVER, or 0 and more");
    DLPI_RANGE(d->trace_bytes, 0, 64 << 20, "trace_bytes", "0..67108864");
    DLPI_RANGE(d->no_memfd, 0, 1, "no_memfd", "0 or 1");
    if (d->shm == NULL) return DLP_OK;
    if (dlpi_shm != NULL) return dlpi_shm->open(p);
    dlpi_error_set(&p->err, DLP_ERR_UNSUPPORTED, "shm",
                   "dlp_pipe_desc.shm needs dlpipe_shm.h, "
                   "included in the file that has DLPIPE_IMPLEMENTATION");
    return DLP_ERR_UNSUPPORTED;
}
