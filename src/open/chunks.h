/* needs: split */
#pragma once
#include "stages/transfer.h"
#include "stages/split.h"
#include "build/check.h"
/* ---- chunks ---- */

/* A row's fields. */
static int dlpi_chunks_check_fields(dlp_pipe *p, const dlp_chunks_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_field, ndim), 0, DLP_MAX_DIMS - 2, "0..6"},
        {DLPI_AT(dlp_field, ragged), 0, 0, "0"},
    };
    if (d->fields == NULL) return dlpi_missing(p, "load", "fields", "n_fields arrays of a row");
    for (uint32_t i = 0; i < d->n_fields; i++) {
        int rc = dlpi_check_field(p, "load", i, &d->fields[i], DLPI_ROWS(bounds));
        if (rc != DLP_OK) return rc;
    }
    return DLP_OK;
}

static int dlpi_chunks_check(dlp_pipe *p, const dlp_chunks_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_chunks_desc, n_items), 1, DLPI_MAX_ITEMS, "1..2^48"},
        {DLPI_AT(dlp_chunks_desc, chunk_rows), 1, DLPI_CELL_MAX, "1..2^46"},
        {DLPI_AT(dlp_chunks_desc, batch_size), 1, 1 << 20, "1..1048576"},
        {DLPI_AT(dlp_chunks_desc, last), 0, 1, "DLP_LAST_PARTIAL or DLP_LAST_DROP"},
        {DLPI_AT(dlp_chunks_desc, n_fields), 1, DLP_MAX_FIELDS, "1..16"},
        {DLPI_AT(dlp_chunks_desc, writes_all_bytes), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, shuffle_chunks), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, shuffle_rows), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, preload), 0, DLP_PRELOAD_AUTO, "DLP_PRELOAD_*"},
        {DLPI_AT(dlp_chunks_desc, pass), 0, DLP_PASS_PREDICT, "DLP_PASS_*"},
        {DLPI_AT(dlp_chunks_desc, cpu_buffers), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_chunks_desc, transfer_inline), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, pipe.prefetch_factor), 0, 0, "0: cpu_buffers says it"},
    };
    int64_t held = d->pipe.max_held > 0 ? d->pipe.max_held : 1;
    int rc;
    if (d->load == NULL) return dlpi_missing(p, "load", "load", "the function that reads rows");
    if ((rc = dlpi_check_bounds(p, "load", d, DLPI_ROWS(bounds))) != DLP_OK) return rc;
    if ((rc = dlpi_chunks_check_fields(p, d)) != DLP_OK) return rc;
    if (d->cpu_buffers == 0 || d->device != NULL) return DLP_OK;
    return dlpi_within(p, "load", "cpu_buffers", d->cpu_buffers, held + 1, 4096,
                       "at least max_held + 1 without a device");
}

/* The order and the counts of a pass. */
static void dlpi_chunks_pass(const dlp_chunks_desc *d, dlp_sampler_desc *sampler,
                             dlp_repeat_desc *repeat, dlp_split_desc *split) {
    bool train = d->pass == DLP_PASS_TRAIN;
    *split = (dlp_split_desc){d->chunk_rows,
                              d->n_items,
                              d->batch_size,
                              train ? d->last : DLP_LAST_PARTIAL,
                              train ? d->shuffle_rows : 0,
                              d->rank,
                              d->world_size,
                              d->allow_uneven};
    memset(sampler, 0, sizeof *sampler);
    sampler->seed = d->seed;
    if (train && d->shuffle_chunks) sampler->order = DLP_ORDER_SHUFFLED;
    *repeat = (dlp_repeat_desc){train ? d->epochs : 1, d->epoch_end, d->set_epoch, d->user};
}

/* A chunk's fields: one more dimension before a row's. */
static void dlpi_chunks_fields(const dlp_chunks_desc *d, const dlp_split_desc *split,
                               dlp_field *out) {
    uint64_t room = dlpi_split_room(split);
    for (uint32_t f = 0; f < d->n_fields; f++) {
        out[f] = d->fields[f];
        out[f].ndim = d->fields[f].ndim + 1;
        out[f].shape[0] = room ? (int64_t)room : 1;
        for (int i = 0; i < d->fields[f].ndim; i++) out[f].shape[i + 1] = d->fields[f].shape[i];
    }
}

/* What the split stage keeps for the fetch. */
static void dlpi_chunks_keep(dlpi_split *to, const dlp_chunks_desc *d, int preload) {
    to->load = d->load;
    to->user = d->user;
    to->preload = preload;
    to->writes_all_bytes = (int)d->writes_all_bytes;
}

static int dlpi_chunks_wire(dlp_pipe *p, const dlp_chunks_desc *d, int preload) {
    dlp_field fields[DLP_MAX_FIELDS];
    dlp_sampler_desc sampler;
    dlp_repeat_desc repeat;
    dlp_split_desc split;
    dlp_dataset chunks = {.fields = fields,
                          .n_fields = d->n_fields,
                          .writes_all_bytes = 1,
                          .fetch = dlpi_chunk_fetch};
    dlp_fetch_desc fetch = {.dataset = &chunks, .workers = d->workers};
    dlp_batch_desc batch;
    dlp_transfer_desc transfer = {d->device, d->device_buffers, d->transfer_inline == 0};
    int32_t held = d->pipe.max_held > 0 ? d->pipe.max_held : 1;
    dlp_stage to_device = 0, views;
    dlpi_chunks_pass(d, &sampler, &repeat, &split);
    dlpi_chunks_fields(d, &split, fields);
    chunks.n_items = (d->n_items - 1) / d->chunk_rows + 1;
    if (split.last == DLP_LAST_DROP && chunks.n_items > 1 &&
        d->n_items - (chunks.n_items - 1) * d->chunk_rows < d->batch_size)
        split.n_rows = --chunks.n_items * d->chunk_rows; /* the last chunk has no batch */
    if (fetch.workers.name == NULL) fetch.workers.name = "load";
    memset(&batch, 0, sizeof batch);
    batch.batch_size = 1;
    p->d.prefetch_factor = d->cpu_buffers ? d->cpu_buffers : d->device ? 2 : held + 1;
    if (d->device == NULL) p->d.prefetch_factor -= held;
    dlp_pipe_add_sampler(p, &sampler);
    dlp_pipe_add_repeat(p, &repeat);
    dlp_pipe_add_fetch(p, &fetch);
    dlp_pipe_add_batch(p, &batch);
    if (d->device) to_device = dlp_pipe_add_transfer(p, &transfer);
    views = dlp_pipe_add_split(p, &split);
    if (p->err.code != 0) return p->err.code;
    dlpi_chunks_keep(p->stages[views].self, d, preload);
    if (preload == DLP_PRELOAD_DEVICE && d->device == NULL)
        return dlpi_bad(p, "load", "preload", "DLP_PRELOAD_CPU without a device", preload);
    if (preload == DLP_PRELOAD_DEVICE && chunks.n_items <= INT32_MAX) /* one for each chunk */
        dlpi_transfer_of(&p->stages[to_device])->d.device_buffers = (int32_t)chunks.n_items;
    return DLP_OK;
}

/* Is there a preload that DLP_PRELOAD_AUTO may choose? */
static bool dlpi_chunks_fit(dlp_pipe *p, const dlp_chunks_desc *d, int preload) {
    dlp_plan plan;
    return d->pipe.limit_bytes > 0 && dlpi_chunks_wire(p, d, preload) == DLP_OK &&
           dlp_pipe_plan(p, &plan) == DLP_OK && plan.total_bytes <= d->pipe.limit_bytes;
}

/* Open and wire it with this preload; *fits: whether that may be chosen of several. */
static int dlpi_chunks_try(dlp_pipe **out, const dlp_chunks_desc *d, int preload, bool *fits,
                           dlp_error *err) {
    dlp_pipe *p;
    int rc = dlp_pipe_open(&p, &d->pipe, err);
    if (rc != DLP_OK) return rc;
    if ((rc = dlpi_chunks_check(p, d)) == DLP_OK) {
        if (fits)
            *fits = dlpi_chunks_fit(p, d, preload);
        else
            rc = dlpi_chunks_wire(p, d, preload);
    }
    *out = p;
    return rc;
}

DLPDEF int dlp_chunks_open(dlp_pipe **out, const dlp_chunks_desc *desc, dlp_error *err) {
    dlp_pipe *p = NULL;
    int rc = DLP_OK, preload;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "desc" : "out", "%s is NULL",
                              out ? "desc" : "out");
    preload = desc->preload;
    if (preload == DLP_PRELOAD_AUTO) {
        bool fits = false;
        preload = desc->device ? DLP_PRELOAD_DEVICE : DLP_PRELOAD_CPU;
        for (; rc == DLP_OK && !fits && preload > DLP_PRELOAD_NONE; preload -= !fits) {
            rc = dlpi_chunks_try(&p, desc, preload, &fits, err);
            if (rc == DLP_OK) dlp_pipe_close(p), p = NULL;
        }
        if (rc != DLP_OK && p == NULL) return rc;
    }
    if (rc == DLP_OK && (rc = dlpi_chunks_try(&p, desc, preload, NULL, err)) == DLP_OK)
        rc = dlp_pipe_start(p);
    if (rc != DLP_OK) {
        if (p && err) *err = p->err;
        dlp_pipe_close(p);
        return rc;
    }
    *out = p;
    return DLP_OK;
}

static int dlpi_run_step(dlp_pipe *p, const dlp_run_desc *d, dlp_run_result *r, dlp_batch *b) {
    uint64_t epoch = b->epoch;
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    int rc = d->on_step(d->user, b), stop;
    r->steps++;
    r->items += b->count;
    stop = rc != 0 || (d->max_steps != 0 && r->steps == d->max_steps);
    if (dlp_pipe_state(p, b, &r->state) != DLP_OK) return DLP_ERR_STATE;
    if ((rc = dlp_pipe_release(p, b)) != DLP_OK) return rc;
    r->epochs += last;
    if (last && d->on_epoch && d->on_epoch(d->user, epoch) != 0) stop = 1;
    return stop ? DLP_END : DLP_OK;
}

DLPDEF int dlp_chunks_run(dlp_pipe *p, const dlp_run_desc *desc) {
    dlp_run_result r;
    dlp_batch *b = NULL;
    int rc, step = DLP_OK;
    uint64_t begin = dlpi_now_ns();
    memset(&r, 0, sizeof r);
    if (p == NULL || desc == NULL || desc->on_step == NULL) return DLP_ERR_ARG;
    if ((rc = dlp_pipe_state(p, NULL, &r.state)) != DLP_OK) return rc;
    while (step == DLP_OK) {
        rc = dlp_pipe_next(p, &b);
        if (rc == DLP_OK && b != NULL)
            step = dlpi_run_step(p, desc, &r, b);
        else if (rc != DLP_EPOCH_END)
            break;
    }
    r.elapsed_ns = dlpi_now_ns() - begin;
    if (desc->result) *desc->result = r;
    if (step < 0) return step;
    return step == DLP_END ? DLP_OK : rc;
}
