/* needs: split */
#pragma once
/* tests: system/stages/chunks, system/open/loader_nodes */
#include "stages/transfer.h"
#include "stages/split.h"
#include "open/open.h"
#include "open/graph.h"
#include "open/chunk_load.h"
#include "build/check.h"
#include "build/layout.h"
#include "build/limits.h"
/* ---- chunks ---- */

/* Check a desc of chunks, its fields included. The split has checks of its own. Returns 0 or a
   DLP_ERR code. */
static int dlpi_chunks_check(dlp_pipe *p, const dlp_chunks_desc *d) {
    const bool device = d->device != NULL;
    const int16_t cpu = (int16_t)(device || d->cpu_buffers == 0 ? 0
                                  : d->pipe.max_held > 0        ? d->pipe.max_held + 1
                                                                : 2);
    const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_chunks_desc, load), 1, 1, "the function that reads rows",
         DLPI_WITHOUT(dlp_chunks_desc, rows_at)},
        {DLPI_AT(dlp_chunks_desc, n_items), d->rows == NULL, DLPI_MAX_ITEMS, "1..2^48"},
        {DLPI_AT(dlp_chunks_desc, n_fields), 1, DLP_MAX_FIELDS, "1..16"},
        {DLPI_AT(dlp_chunks_desc, writes_all_bytes), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_chunks_desc, preload), 0, DLP_PRELOAD_AUTO, "DLP_PRELOAD_*"},
        {DLPI_AT(dlp_chunks_desc, pass), 0, DLP_PASS_PREDICT, "DLP_PASS_*"},
        {DLPI_AT(dlp_chunks_desc, cpu_buffers), cpu, 4096,
         "0..4096, and at least max_held + 1 without a device"},
        {DLPI_AT(dlp_chunks_desc, device_buffers), 0, device ? 64 : 0, "0 without a device"},
        {DLPI_AT(dlp_chunks_desc, transfer_inline), 0, device, "0 or 1, and 0 without a device"},
        {DLPI_AT(dlp_chunks_desc, pipe.prefetch_factor), 0, 0, "0: cpu_buffers says it"},
        {DLPI_AT(dlp_chunks_desc, pipe.unordered), 0, 0, "0: views come in order"},
        {DLPI_AT(dlp_chunks_desc, pipe.epochs), 0, 0, "0: epochs says it"},
        {DLPI_AT(dlp_chunks_desc, pipe.seed), 0, 0, "0: seed says it"},
        {DLPI_AT(dlp_chunks_desc, fields), 1, 1, "an array of n_fields fields"},
    };
    static const dlpi_bound field[] = {
        {DLPI_AT(dlp_field, ndim), 0, DLP_MAX_DIMS - 2, "0..6"},
        {DLPI_AT(dlp_field, ragged), 0, 0, "0"},
    };
    int rc = dlpi_check_bounds(p, "load", d, DLPI_ROWS(bounds));
    for (uint32_t i = 0; rc == DLP_OK && i < d->n_fields; i++)
        rc = dlpi_check_field(p, "load", i, &d->fields[i], DLPI_ROWS(field));
    return rc;
}

/* Write into out[] a chunk's fields: those of a row, with `room` rows as the first dimension. */
static void dlpi_chunks_fields(const dlp_chunks_desc *d, uint64_t room, dlp_field *out) {
    for (uint32_t f = 0; f < d->n_fields; f++) {
        out[f] = d->fields[f];
        out[f].ndim = d->fields[f].ndim + 1;
        out[f].shape[0] = room ? (int64_t)room : 1;
        for (int i = 0; i < d->fields[f].ndim; i++) out[f].shape[i + 1] = d->fields[f].shape[i];
    }
}

/* Compute *n, the chunks of an epoch, and *room, the most rows that this rank has of one. in_order:
   chunks are not shuffled. Returns 0 or a DLP_ERR code. */
static int dlpi_chunks_count(dlp_pipe *p, dlp_node_split *split, bool in_order, uint64_t *n,
                             uint64_t *room) {
    uint64_t *first;
    dlpi_chunk_plan q;
    int rc = dlpi_split_sums(p, "load", split, &first);
    if (rc == DLP_OK) {
        *n = first ? split->n_chunks : (split->n_rows - 1) / split->chunk_rows + 1;
        dlpi_chunk_plan_of(split, &p->d, *n, first, *n, in_order, &q);
        if (!q.spans && q.drop && first == NULL && *n > 1 && q.last_rows < q.batch)
            split->n_rows = --*n * split->chunk_rows; /* the last chunk has no batch */
        *room = dlpi_chunk_room(&q);
    }
    free(first);
    return rc;
}

/* Fill *to with the table of nodes for a pipe of chunks. preload: DLP_PRELOAD_NONE, _CPU or
   _DEVICE. Only a training pass shuffles, drops a last batch, or has several epochs. Returns 0 or a
   DLP_ERR code. */
static int dlpi_chunks_rows(dlp_pipe *p, const dlp_chunks_desc *d, int preload, dlp_nodes *to) {
    const bool train = d->pass == DLP_PASS_TRAIN;
    dlp_node_split split = {.chunk_rows = d->chunk_rows,
                            .n_rows = d->n_items,
                            .rows = d->rows,
                            .n_chunks = d->n_chunks,
                            .batch_size = d->batch_size,
                            .last = train ? d->last : DLP_LAST_PARTIAL,
                            .within_chunks = d->within_chunks,
                            .shuffle_rows = train ? d->shuffle_rows : 0};
    const dlp_source fetch = {.dataset = &to->dataset};
    dlp_node *node;
    uint64_t n = 0, room = 0;
    int rc;
    memset(to, 0, sizeof *to);
    to->pipe = d->pipe;
    node = dlpi_nodes_row(to, DLP_LIST, "sampler", NULL);
    node->list.shuffle = train ? d->shuffle_chunks : 0;
    p->d.seed = to->pipe.seed = d->seed;
    p->d.epochs = to->pipe.epochs = train ? d->epochs : 1;
    if ((rc = dlpi_split_check(p, "split", &split)) != DLP_OK) return rc;
    if ((rc = dlpi_chunks_count(p, &split, node->list.shuffle == 0, &n, &room)) != DLP_OK)
        return rc;
    if (preload == DLP_PRELOAD_DEVICE && d->device == NULL)
        return dlpi_bad(p, "load", "preload", "DLP_PRELOAD_CPU without a device", preload);
    dlpi_chunks_fields(d, room, to->fields);
    to->dataset = (dlp_dataset){.n_items = n,
                                .fields = to->fields,
                                .n_fields = d->n_fields,
                                .writes_all_bytes = 1,
                                .fetch = dlpi_chunk_fetch,
                                .identity = d->identity};
    node = dlpi_nodes_fetch(to, "load", &fetch, &d->workers, d->source);
    to->source.id = 0; /* states of chunks know no id */
    if (node->workers.num_workers == 0) node->workers.num_workers = 1; /* load ahead of next */
    dlpi_nodes_row(to, DLP_BATCH, "batch", NULL)->batch.batch_size = 1;
    dlpi_nodes_transfer(to, d->device, d->device_buffers, d->transfer_inline == 0);
    to->chunks = *d;
    to->chunks.preload = preload;
    split.chunks = &to->chunks;
    dlpi_nodes_row(to, DLP_SPLIT, "split", NULL)->split = split;
    return DLP_OK;
}

/* Make a pipe without stages, and the table of nodes for it. Returns 0 or a DLP_ERR code. The error
   is then in *p, or in *err if *p is NULL. */
static int dlpi_chunks_begin(dlp_pipe **p, const dlp_chunks_desc *d, int preload, dlp_nodes *to,
                             dlp_error *err) {
    int rc = dlpi_pipe_make(p, &d->pipe, err);
    if (rc == DLP_OK) rc = dlpi_chunks_check(*p, d);
    return rc == DLP_OK ? dlpi_chunks_rows(*p, d, preload, to) : rc;
}

/* The preload that DLP_PRELOAD_AUTO chooses. */
typedef struct dlpi_choice {
    int preload;   /* DLP_PRELOAD_NONE, _CPU or _DEVICE */
    char why[120]; /* text: why the preload that is tried before it did not fit */
} dlpi_choice;

/* True if the device has room for what the plan puts there; else to->why says why not. *host: bytes
   of the plan that lie in CPU memory. */
static bool dlpi_chunks_device_fits(const dlp_pipe *p, uint64_t *host, dlpi_choice *to) {
    const dlp_device *d = dlpi_transfer_device(p);
    uint64_t bytes = dlpi_outside_bytes(p), room = 0;
    *host = p->plan_bytes;
    if (d == NULL || d->copy == dlp_device_host()->copy) return true;
    *host = dlpi_less(p->plan_bytes, bytes);
    if (to->preload != DLP_PRELOAD_DEVICE) return true; /* a few buffers */
    if (d->room == NULL && p->d.limit_bytes > 0) return true;
    if (d->room != NULL && d->room(d->user, &room) == 0 && bytes <= room / 4 * 3) return true;
    snprintf(to->why, sizeof to->why,
             d->room ? "%" PRIu64 " bytes of the device are wanted, %" PRIu64 " are left"
                     : "the device does not say what it has left",
             bytes, room);
    return false;
}

/* True if DLP_PRELOAD_AUTO may choose to->preload: the pipe of table t fits into memory. If not,
   to->why says why. The stages are added to p, which is only for this check. */
static bool dlpi_chunks_fit(dlp_pipe *p, const dlp_chunks_desc *d, const dlp_nodes *t,
                            dlpi_choice *to) {
    uint64_t limit = d->pipe.limit_bytes, host, spare = dlpi_memory_spare(p);
    dlp_plan plan;
    if (dlpi_table_add(p, t->nodes, t->n) != DLP_OK || dlp_pipe_plan(p, &plan) != DLP_OK) {
        snprintf(to->why, sizeof to->why, "%.119s", p->err.message);
        return false;
    }
    if (!dlpi_chunks_device_fits(p, &host, to)) return false;
    if (host <= spare && (limit == 0 || plan.total_bytes <= limit)) return true;
    snprintf(to->why, sizeof to->why, "%" PRIu64 " bytes are wanted, %s %" PRIu64,
             host > spare ? host : plan.total_bytes,
             host > spare ? "three quarters of what memory is left are" : "limit_bytes is",
             host > spare ? spare : limit);
    return false;
}

/* Set to->preload: as the desc says, or, for DLP_PRELOAD_AUTO, the first that fits of device, CPU
   and none. Returns 0 or a DLP_ERR code if no pipe could be made. Other errors of the desc are told
   when its pipe is made. */
static int dlpi_chunks_choose(const dlp_chunks_desc *d, dlpi_choice *to, dlp_nodes *t,
                              dlp_error *err) {
    to->preload = d->preload;
    if (d->preload != DLP_PRELOAD_AUTO) return DLP_OK;
    snprintf(to->why, sizeof to->why, "they lie where rows_at says");
    to->preload = d->device ? DLP_PRELOAD_DEVICE : d->rows_at ? DLP_PRELOAD_NONE : DLP_PRELOAD_CPU;
    for (; to->preload > DLP_PRELOAD_NONE; to->preload--) {
        dlp_pipe *p = NULL;
        const int rc = dlpi_chunks_begin(&p, d, to->preload, t, err);
        const bool fits = rc == DLP_OK && dlpi_chunks_fit(p, d, t, to);
        if (p == NULL) return rc;
        dlp_pipe_close(p);
        if (rc != DLP_OK || fits) return DLP_OK;
    }
    return DLP_OK;
}

/* Fill the table *to for a pipe of chunks, with what its source says of the rows, and *choice with
   its preload. *p becomes a pipe without
   stages. Returns 0 or a DLP_ERR code. The error is then in *p, or in *err if *p is NULL. */
static int dlpi_chunks_fill(dlp_pipe **p, const dlp_chunks_desc *desc, dlp_nodes *to,
                            dlpi_choice *choice, dlp_error *err) {
    const dlp_source *source = desc->source;
    dlp_chunks_desc d = *desc;
    int rc;
    if (source != NULL && source->chunks == NULL) {
        dlpi_error_set(err, DLP_ERR_ARG, "source",
                       "the source has no rows for chunks; set load, or use a loader");
        return DLP_ERR_ARG;
    }
    if (source != NULL) source->chunks(source, &d);
    if (source != NULL && d.identity == NULL && source->dataset != NULL)
        d.identity = source->dataset->identity;
    if (desc->n_items != 0 && desc->n_items != d.n_items) {
        dlpi_error_set(err, DLP_ERR_ARG, "n_items",
                       "n_items is %" PRIu64 ", and the source has %" PRIu64
                       " rows; set 0, which takes that number",
                       desc->n_items, d.n_items);
        return DLP_ERR_ARG;
    }
    if ((rc = dlpi_chunks_choose(&d, choice, to, err)) != DLP_OK) return rc;
    return dlpi_chunks_begin(p, &d, choice->preload, to, err);
}

DLPDEF int dlp_chunks_nodes(dlp_nodes *to, const dlp_chunks_desc *desc, dlp_error *err) {
    dlp_pipe *p = NULL;
    dlpi_choice choice = {0, ""};
    int rc = dlpi_open_args(to, to, "", desc, err);
    if (rc == DLP_OK) rc = dlpi_chunks_fill(&p, desc, to, &choice, err);
    return dlpi_opened(NULL, p, rc, err);
}

DLPI_COLD DLPDEF int dlp_chunks_open(dlp_pipe **out, const dlp_chunks_desc *desc, dlp_error *err) {
    dlp_nodes t = {.n = 0};
    dlp_pipe *p = NULL;
    dlpi_choice choice = {0, ""};
    int rc = dlpi_open_args(out, out, "", desc, err);
    if (rc == DLP_OK) rc = dlpi_chunks_fill(&p, desc, &t, &choice, err);
    if (rc == DLP_OK) rc = dlpi_table_add(p, t.nodes, t.n);
    if (rc == DLP_OK) {
        ((dlpi_split *)p->stages[p->n_stages - 1].self)->preload_auto =
            desc->preload == DLP_PRELOAD_AUTO;
        rc = dlpi_table_start(p);
    }
    if (rc == DLP_OK && desc->preload == DLP_PRELOAD_AUTO && choice.preload == DLP_PRELOAD_NONE)
        dlpi_warn(p, "preload: AUTO keeps no chunks: %s", choice.why);
    else if (rc == DLP_OK && desc->preload == DLP_PRELOAD_AUTO)
        dlpi_warn(p, "preload: AUTO keeps all %" PRIu64 " chunks %s; the plan is %" PRIu64 " bytes",
                  dlpi_chunk_count(p),
                  choice.preload == DLP_PRELOAD_DEVICE ? "on the device" : "in CPU memory",
                  p->plan_bytes);
    return dlpi_opened(out, p, rc, err);
}

/* Call on_step for one batch, release the batch, and call on_epoch after the last one. on_epoch
   then tells the end of the epoch, so next does not. Returns DLP_OK, DLP_END if the run is to
   stop, or a DLP_ERR code. */
static int dlpi_run_step(dlp_pipe *p, const dlp_run_desc *d, dlp_run_result *r, dlp_batch *b) {
    const uint64_t epoch = b->epoch, items = b->count; /* on_step may write over the batch */
    bool last = (b->flags & DLP_BATCH_LAST) != 0;
    int rc = d->on_step(d->user, b), stop;
    r->steps++;
    r->items += items;
    stop = rc != 0 || (d->max_steps != 0 && r->steps == d->max_steps);
    if (last && d->on_epoch) p->epoch_end_due = 0;
    if (dlp_pipe_state(p, b, &r->state) != DLP_OK) return DLP_ERR_STATE;
    if ((rc = dlp_pipe_release(p, b)) != DLP_OK) return rc;
    r->epochs += last;
    if (last && d->on_epoch && d->on_epoch(d->user, epoch) != 0) stop = 1;
    return stop ? DLP_END : DLP_OK;
}

/* Do what the end of an epoch asks for whose last batch no step of this run had, as a resumed state
   says. Returns as dlpi_run_step. */
static int dlpi_run_end(dlp_pipe *p, const dlp_run_desc *d, dlp_run_result *r) {
    if (dlp_pipe_state(p, NULL, &r->state) != DLP_OK) return DLP_ERR_STATE;
    if (d->on_epoch == NULL) return DLP_OK;
    r->epochs++;
    return d->on_epoch(d->user, p->after.spot.epoch - 1) != 0 ? DLP_END : DLP_OK;
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
        else if (rc == DLP_EPOCH_END)
            step = dlpi_run_end(p, desc, &r);
        else
            break;
    }
    r.elapsed_ns = dlpi_now_ns() - begin;
    if (desc->result) *desc->result = r;
    if (step < 0) return step;
    return step == DLP_END ? DLP_OK : rc;
}
