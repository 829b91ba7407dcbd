#pragma once
#include "open/kinds.h"
#include "build/check.h"
DLPDEF dlp_stage dlp_pipe_add_sampler(dlp_pipe *p, const dlp_sampler_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_sampler_ops, "sampler", NULL)) == NULL) return dlpi_add_refused(p);
    st->sampler = *desc;
    return dlpi_added(p, st);
}

DLPDEF dlp_stage dlp_pipe_add_repeat(dlp_pipe *p, const dlp_repeat_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_repeat_ops, "repeat", NULL)) == NULL) return dlpi_add_refused(p);
    DLPI_RANGE(desc->epochs, DLP_FOREVER, INT64_MAX, "epochs", "DLP_FOREVER, or 0 and more");
    DLPI_RANGE(desc->epochs == DLP_NONE ? -1 : 0, 0, 0, "epochs", "DLP_FOREVER, or 0 and more");
    DLPI_RANGE(desc->epoch_end, 0, 1, "epoch_end", "0 or 1");
    st->repeat = *desc;
    return dlpi_added(p, st);
}

/* What of a fetch desc says how many items are under way at once; kept in st. */
static int dlpi_check_fetcher(dlp_pipe *p, dlpi_stage *st, const dlp_fetch_desc *d) {
    bool many = d->fetcher != DLP_FETCH_SEQUENTIAL, in_turn;
    in_turn = st->w.dispatch == DLP_DISPATCH_BATCHES;
    DLPI_RANGE(d->fetcher, 0, DLP_FETCH_ASYNC, "fetcher", "DLP_FETCH_*");
    DLPI_RANGE(d->in_flight, 0, many ? 1024 : 1, "in_flight",
               many ? "0..1024" : "0 or 1 with DLP_FETCH_SEQUENTIAL");
    DLPI_RANGE(d->batch_pool, 0, many && in_turn ? INT32_MAX : 0, "batch_pool",
               many && in_turn ? "under 2^31"
                               : "0 without DLP_DISPATCH_BATCHES and a fetcher of many items");
    if (many)
        DLPI_RANGE(st->w.num_workers, 1, DLP_MAX_WORKERS, "num_workers",
                   "1..1024 with a fetcher of many items");
    if (d->fetcher == DLP_FETCH_ASYNC && (d->async.submit == NULL || d->async.reap == NULL))
        return dlpi_bad(p, st->name, d->async.submit ? "async.reap" : "async.submit", "a function",
                        0);
    st->fetcher = d->fetcher;
    st->in_flight = !many ? 0 : d->in_flight > 0 ? d->in_flight : 16;
    st->batch_pool = d->batch_pool;
    if (d->fetcher == DLP_FETCH_ASYNC) st->async = d->async;
    if (many) st->ops = &dlpi_fetch_many_ops;
    return DLP_OK;
}

DLPDEF dlp_stage dlp_pipe_add_fetch(dlp_pipe *p, const dlp_fetch_desc *desc) {
    dlpi_stage *st;
    int rc;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_fetch_ops, "fetch", &desc->workers)) == NULL)
        return dlpi_add_refused(p);
    if (desc->dataset == NULL) return dlpi_bad(p, st->name, "dataset", "a dataset", 0);
    if (desc->dataset->fetch == NULL && desc->fetcher != DLP_FETCH_ASYNC)
        return dlpi_bad(p, st->name, "dataset.fetch", "a function", 0);
    DLPI_RANGE(desc->dataset->stream, 0, 1, "dataset.stream", "0 or 1");
    if (desc->dataset->stream == 0)
        DLPI_RANGE(desc->dataset->n_items, 0, INT64_C(1) << 48, "dataset.n_items", "1..2^48");
    DLPI_RANGE(desc->dataset->n_fields, 1, DLP_MAX_FIELDS, "dataset.n_fields", "1..16");
    DLPI_RANGE(desc->dataset->fills_rows, 0, 1, "dataset.fills_rows", "0 or 1");
    if (desc->dataset->fields == NULL)
        return dlpi_bad(p, st->name, "dataset.fields", "n_fields fields", 0);
    if ((rc = dlpi_check_workers(p, st)) != DLP_OK) return rc;
    if ((rc = dlpi_check_fetcher(p, st, desc)) != DLP_OK) return rc;
    st->dataset = *desc->dataset;
    if (st->dataset.stream) st->dataset.n_items = DLPI_MAX_ITEMS;
    memcpy(st->fields, desc->dataset->fields, desc->dataset->n_fields * sizeof *st->fields);
    if ((rc = dlpi_keep_names(p, st, desc->dataset->n_fields)) != DLP_OK) return rc;
    st->dataset.fields = st->fields;
    st->item = desc->dataset->fetch;
    st->user = desc->dataset->user;
    return dlpi_added(p, st);
}

DLPDEF dlp_stage dlp_pipe_add_cache(dlp_pipe *p, const dlp_cache_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_cache_ops, "cache", NULL)) == NULL) return dlpi_add_refused(p);
    DLPI_RANGE(desc->bytes, 1, (int64_t)DLPI_CELL_MAX, "cache.bytes", "1..2^46");
    st->cache = *desc;
    return dlpi_added(p, st);
}

DLPDEF int dlp_part_fail(const dlp_part *part, int errnum, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dlpi_note_write(&((dlpi_worker *)part->internal)->note, errnum, format, args);
    va_end(args);
    return DLP_ERR_CALLBACK;
}

/* Items before each part. */
static int dlpi_parts_count(dlp_pipe *p, dlpi_stage *st) {
    uint64_t *first = calloc((size_t)st->part.n_parts + 1, sizeof *first), items = 0;
    int rc = 0;
    dlp_error e;
    if (first == NULL) {
        dlpi_error_set(&e, DLP_ERR_MEMORY, "items", "malloc of the parts' counts failed");
        e.errnum = ENOMEM;
        return dlpi_pipe_fail(p, &e);
    }
    for (uint64_t i = 0; i < st->part.n_parts && rc == 0; i++) {
        if (st->part.items)
            items = st->part.items[i];
        else
            rc = st->part.count(st->part.user, i, &items);
        dlpi_error_set(&e, DLP_ERR_CALLBACK, "count", "part %" PRIu64 ": count returned %d", i, rc);
        if (rc == 0 && items > DLPI_MAX_ITEMS - first[i])
            rc = dlpi_error_set(&e, DLP_ERR_ARG, "items",
                                "part %" PRIu64 " has %" PRIu64 " items, "
                                "and with it there are more than 2^48",
                                i, items);
        else if (rc == 0)
            first[i + 1] = first[i] + items;
    }
    st->part.items = NULL;
    st->part_first = first;
    if (rc == 0) return DLP_OK;
    free(first);
    dlpi_copy_text(e.stage, sizeof e.stage, st->name);
    return dlpi_pipe_fail(p, &e);
}

DLPDEF dlp_stage dlp_pipe_add_parts(dlp_pipe *p, const dlp_part_desc *desc) {
    dlpi_stage *st;
    dlp_stage id;
    int rc;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_parts_ops, "parts", &desc->workers)) == NULL)
        return dlpi_add_refused(p);
    DLPI_RANGE(desc->n_parts, 1, INT64_C(1) << 31, "n_parts", "1..2^31");
    DLPI_RANGE(desc->max_part_bytes, 1, (int64_t)DLPI_CELL_MAX, "max_part_bytes", "1..2^46");
    DLPI_RANGE(desc->queue_size, desc->queue_size ? 2 : 0, 4096, "queue_size", "0, or 2..4096");
    DLPI_RANGE(desc->streams, 0, 1 << 20, "streams", "0..2^20, a divisor of batch_size");
    DLPI_RANGE(desc->shuffle_parts, 0, 1, "shuffle_parts", "0 or 1");
    DLPI_RANGE(desc->shuffle_items, 0, 1, "shuffle_items", "0 or 1");
    DLPI_RANGE(desc->steps_per_epoch, 0, INT64_C(1) << 48, "steps_per_epoch", "0..2^48");
    DLPI_RANGE(desc->workers.dispatch, 0, 0, "dispatch", "DLP_DISPATCH_CLAIM for parts");
    DLPI_RANGE(desc->workers.workers_max, 0, 0, "workers_max", "0 for parts: they are not tuned");
    DLPI_RANGE(desc->workers.workers_min, 0, 0, "workers_min", "0 for parts: they are not tuned");
    if (desc->workers.on_error == DLP_ON_ERROR_REPLACE)
        return dlpi_bad(p, st->name, "on_error", "DLP_ON_ERROR_RAISE or _SHORT for parts", 1);
    if (desc->load == NULL) return dlpi_bad(p, st->name, "load", "a function", 0);
    if (desc->items == NULL && desc->count == NULL)
        return dlpi_bad(p, st->name, "items", "n_parts counts, or count a function", 0);
    if ((rc = dlpi_check_workers(p, st)) != DLP_OK) return rc;
    st->part = *desc;
    if (st->part.streams == 0) st->part.streams = 1;
    st->user = desc->user;
    if ((rc = dlpi_parts_count(p, st)) != DLP_OK) return rc;
    if ((id = dlpi_added(p, st)) < 0) free(st->part_first);
    return id;
}

DLPDEF dlp_stage dlp_pipe_add_map(dlp_pipe *p, const dlp_map_desc *desc) {
    dlpi_stage *st;
    int rc;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, desc->batch ? &dlpi_map_batch_ops : &dlpi_map_item_ops, "map", &desc->workers);
    if (st == NULL) return dlpi_add_refused(p);
    if ((desc->item == NULL) == (desc->batch == NULL))
        return dlpi_bad(p, st->name, "item", "given, or batch, and not both", 0);
    if ((rc = dlpi_check_workers(p, st)) != DLP_OK) return rc;
    st->item = desc->item;
    st->batch = desc->batch;
    st->user = desc->user;
    return dlpi_added(p, st);
}

DLPDEF dlp_stage dlp_pipe_add_batch(dlp_pipe *p, const dlp_batch_desc *desc) {
    dlpi_stage *st;
    int rc;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_batch_ops, "batch", &desc->workers)) == NULL)
        return dlpi_add_refused(p);
    DLPI_RANGE(desc->batch_size, 1, 1 << 20, "batch_size", "1..1048576");
    DLPI_RANGE(desc->last, 0, 2, "last", "DLP_LAST_*");
    DLPI_RANGE(desc->batch_workers, DLP_NONE, DLP_MAX_WORKERS, "batch_workers",
               "DLP_NONE or 0..1024");
    if (desc->out_fields && desc->collate == NULL)
        return dlpi_bad(p, st->name, "out_fields", "NULL without a collate", desc->n_out_fields);
    DLPI_RANGE(desc->n_out_fields, desc->out_fields ? 1 : 0, desc->out_fields ? DLP_MAX_FIELDS : 0,
               "n_out_fields", desc->out_fields ? "1..16" : "0 without out_fields");
    if ((rc = dlpi_check_workers(p, st)) != DLP_OK) return rc;
    st->batching = *desc;
    st->collate = desc->collate;
    st->user = desc->collate_user;
    if (desc->out_fields) {
        memcpy(st->fields, desc->out_fields, desc->n_out_fields * sizeof *st->fields);
        if ((rc = dlpi_keep_names(p, st, desc->n_out_fields)) != DLP_OK) return rc;
        st->batching.out_fields = st->fields;
    }
    return dlpi_added(p, st);
}

DLPDEF dlp_stage dlp_pipe_add_transfer(dlp_pipe *p, const dlp_transfer_desc *desc) {
    dlpi_stage *st;
    int held;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_transfer_ops, "transfer", NULL)) == NULL)
        return dlpi_add_refused(p);
    held = p->d.max_held ? p->d.max_held : 1;
    st->transfer = *desc;
    st->device = desc->device ? *desc->device : *dlp_device_host();
    if (!st->device.alloc || !st->device.free || !st->device.copy || !st->device.record ||
        !st->device.done)
        return dlpi_bad(p, st->name, "device", "a device with alloc, free, copy, record and done",
                        0);
    if (desc->device_buffers == 0) st->transfer.device_buffers = held + 1;
    DLPI_RANGE(st->transfer.device_buffers, held + 1, DLPI_PARK, "device_buffers",
               "max_held + 1..64");
    DLPI_RANGE(desc->threaded, 0, 1, "threaded", "0 or 1");
    st->w.num_workers = desc->threaded;
    return dlpi_added(p, st);
}

DLPDEF dlp_stage dlp_pipe_add_split(dlp_pipe *p, const dlp_split_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_split_ops, "split", NULL)) == NULL) return dlpi_add_refused(p);
    DLPI_RANGE(desc->chunk_rows, 1, INT64_C(1) << 48, "chunk_rows", "1..2^48");
    DLPI_RANGE(desc->n_rows, 0, INT64_C(1) << 48, "n_rows", "0..2^48");
    DLPI_RANGE(desc->batch_size, 1, 1 << 20, "batch_size", "1..1048576");
    DLPI_RANGE(desc->last, 0, 1, "last", "DLP_LAST_SHORT or DLP_LAST_DROP");
    DLPI_RANGE(desc->shuffle_rows, 0, 1, "shuffle_rows", "0 or 1");
    DLPI_RANGE(desc->allow_uneven, 0, 1, "allow_uneven", "0 or 1");
    DLPI_RANGE(desc->rank, 0, desc->world_size ? (int64_t)desc->world_size - 1 : 0, "rank",
               "0..world_size - 1");
    st->split = *desc;
    return dlpi_added(p, st);
}
