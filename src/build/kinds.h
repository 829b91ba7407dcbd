#pragma once
#include "core/fields.h"
#include "stages/split.h"
#include "stages/parts.h"
/* ---- what the desc of each kind may say, by itself (check) and beside the others ---- */

/* ---- sampler ---- */

/* What its order takes, once the number of items is known. */
static int dlpi_sampler_check(dlp_pipe *p, dlpi_stage *st) {
    const dlp_sampler_desc *d = &st->sampler;
    dlp_error e;
    if (dlpi_order_check(d, p->fetch->dataset.n_items, &e) != DLP_OK) {
        dlpi_copy_text(e.stage, sizeof e.stage, st->name);
        return dlpi_pipe_fail(p, &e);
    }
    if (d->order != DLP_ORDER_BATCHES) return DLP_OK;
    if (d->batches.next == NULL) return dlpi_bad(p, st->name, "batches.next", "a function", 0);
    if ((d->batches.save == NULL) != (d->batches.restore == NULL))
        return dlpi_bad(p, st->name, "batches.restore", "given together with batches.save", 0);
    return DLP_OK;
}

/* This rank's rows of a batch. */
static int dlpi_sampler_ranks(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_sampler_desc *d = &st->sampler;
    int rc = dlpi_within(p, st->name, "sampler.allow_uneven", d->allow_uneven, 0, 1, "0 or 1");
    if (rc != DLP_OK) return rc;
    p->world = d->world_size ? d->world_size : 1;
    p->rank = d->rank;
    p->batch_rows = (uint32_t)((p->global_batch + p->world - 1) / p->world);
    return dlpi_check_ranks(p, st, p->rank, p->world, p->global_batch, d->allow_uneven != 0);
}

/* ---- repeat ---- */

static int dlpi_repeat_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_repeat_desc, epochs), DLP_FOREVER, INT64_MAX, "DLP_FOREVER, or 0 and more"},
        {DLPI_AT(dlp_repeat_desc, epoch_end), 0, 1, "0 or 1"},
    };
    if (st->repeat.epochs == DLP_NONE)
        return dlpi_bad(p, st->name, "epochs", bounds[0].words, DLP_NONE);
    return dlpi_check_bounds(p, st->name, &st->repeat, DLPI_ROWS(bounds));
}

/* ---- parts ---- */

static int dlpi_parts_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_part_desc, n_parts), 1, INT64_C(1) << 31, "1..2^31"},
        {DLPI_AT(dlp_part_desc, max_part_bytes), 1, DLPI_CELL_MAX, "1..2^46"},
        {DLPI_AT(dlp_part_desc, queue_size), 0, 4096, "0, or 2..4096"},
        {DLPI_AT(dlp_part_desc, streams), 0, 1 << 20, "0..2^20, a divisor of batch_size"},
        {DLPI_AT(dlp_part_desc, shuffle_parts), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_part_desc, shuffle_items), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_part_desc, steps_per_epoch), 0, DLPI_MAX_ITEMS, "0..2^48"},
        {"dispatch", DLPI_IN(dlp_part_desc, workers.dispatch), 0, 0,
         "DLP_DISPATCH_CLAIM for parts"},
        {"workers_max", DLPI_IN(dlp_part_desc, workers.workers_max), 0, 0,
         "0 for parts: they are not tuned"},
        {"workers_min", DLPI_IN(dlp_part_desc, workers.workers_min), 0, 0,
         "0 for parts: they are not tuned"},
    };
    const dlp_part_desc *d = &st->part;
    dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (d->queue_size == 1) dlpi_bad(p, st->name, "queue_size", "0, or 2..4096", 1);
    if (d->workers.on_error == DLP_ON_ERROR_REPLACE)
        dlpi_bad(p, st->name, "on_error", "DLP_ON_ERROR_RAISE or _SHORT for parts", 1);
    if (d->load == NULL) dlpi_bad(p, st->name, "load", "a function", 0);
    if (d->items == NULL && d->count == NULL)
        dlpi_bad(p, st->name, "items", "n_parts counts, or count a function", 0);
    return p->err.code != 0 ? p->err.code : dlpi_check_workers(p, st);
}

/* Items of part i, of which there are fewer than room. */
static int dlpi_parts_count_one(dlp_pipe *p, const dlpi_stage *st, uint64_t i, uint64_t room,
                                uint64_t *items) {
    int rc = 0;
    if (st->part.items)
        *items = st->part.items[i];
    else
        rc = st->part.count(st->part.user, i, items);
    if (rc != 0)
        return dlpi_refuse(p, DLP_ERR_CALLBACK, st->name, "count",
                           "part %" PRIu64 ": count returned %d", i, rc);
    if (*items <= room) return DLP_OK;
    return dlpi_refuse(
        p, DLP_ERR_ARG, st->name, "items",
        "part %" PRIu64 " has %" PRIu64 " items, and with it there are more than 2^48", i, *items);
}

/* Items before each part. */
static int dlpi_parts_count(dlp_pipe *p, dlpi_stage *st) {
    uint64_t *first = calloc((size_t)st->part.n_parts + 1, sizeof *first), items = 0;
    if (first == NULL) return dlpi_no_memory(p, "items", "the parts' counts");
    for (uint64_t i = 0; i < st->part.n_parts; i++) {
        int rc = dlpi_parts_count_one(p, st, i, DLPI_MAX_ITEMS - first[i], &items);
        if (rc != DLP_OK) {
            free(first);
            return rc;
        }
        first[i + 1] = first[i] + items;
    }
    st->part.items = NULL;
    st->part_first = first;
    return DLP_OK;
}

/* The sum of its counts is the dataset's. */
static int dlpi_parts_items_are(dlp_pipe *p, const dlpi_stage *st) {
    dlp_dataset *ds = &p->fetch->dataset;
    uint64_t items = dlpi_parts_items(p);
    if (p->stream)
        return dlpi_bad_graph(p, st->name,
                              "this stage wants to know the number of items, and a "
                              "stream has none");
    if (ds->n_items != 0 && ds->n_items != items)
        return dlpi_refuse(p, DLP_ERR_ARG, p->fetch->name, "dataset.n_items",
                           "n_items is %" PRIu64 ", the parts have %" PRIu64 " items", ds->n_items,
                           items);
    ds->n_items = items;
    return DLP_OK;
}

/* What a part queue's numbers must be to others. */
static int dlpi_parts_fit(dlp_pipe *p, const dlpi_stage *st) {
    uint64_t streams = st->part.streams;
    int rc = dlpi_parts_items_are(p, st);
    if (rc != DLP_OK) return rc;
    if (p->sampler->sampler.subset || p->sampler->sampler.weights)
        return dlpi_bad(p, p->sampler->name, "sampler.subset",
                        "NULL with DLP_ORDER_PARTS, as weights", 1);
    if (streams > p->global_batch || p->global_batch % streams != 0)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "streams",
                           "batch_size %" PRIu64 " can't be divided by streams %" PRIu64,
                           p->global_batch, streams);
    if (st->part.steps_per_epoch == 0) return DLP_OK;
    dlpi_within(p, st->name, "items", (int64_t)p->fetch->dataset.n_items, (int64_t)streams,
                INT64_MAX, "one for each stream with steps_per_epoch");
    dlpi_within(p, st->name, "steps_per_epoch", (int64_t)st->part.steps_per_epoch, 0,
                (int64_t)(DLPI_MAX_ITEMS / p->global_batch), "at most 2^48 items in an epoch");
    return p->err.code;
}

/* How many cells the part queue has. */
static int dlpi_parts_resolve(dlp_pipe *p, const dlpi_stage *st) {
    uint64_t last = p->batches_per_epoch - 1, need = dlpi_parts_need(p, 0), tail;
    tail = last > 0 ? dlpi_parts_need(p, last) : need;
    if (tail > need) need = tail;
    p->part_stride = dlpi_round_up(dlpi_sum(st->part.max_part_bytes, DLPI_GUARD), 4096);
    p->part_stride = dlpi_sum(p->part_stride, DLPI_PART_GUARD);
    p->part_cells = st->part.queue_size;
    if (p->part_cells == 0 && need < 4096) p->part_cells = need < 1 ? 2 : (uint32_t)need + 1;
    if (p->part_cells >= need && p->part_cells > 0) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, st->name, "queue_size",
                       "a batch may need %" PRIu64 " parts at once (batch_size, streams, the "
                       "smallest parts), queue_size is %" PRIu32 "; 0 takes what is needed",
                       need, st->part.queue_size);
}

/* ---- maps ---- */

static int dlpi_map_check(dlp_pipe *p, dlpi_stage *st) {
    if ((st->item == NULL) == (st->batch == NULL))
        return dlpi_bad(p, st->name, "item", "given, or batch, and not both", 0);
    return st->batch ? dlpi_check_batch_workers(p, st) : dlpi_check_workers(p, st);
}

/* ---- batch ---- */

static int dlpi_batch_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_batch_desc, batch_size), 1, 1 << 20, "1..1048576"},
        {DLPI_AT(dlp_batch_desc, last), 0, 2, "DLP_LAST_*"},
        {DLPI_AT(dlp_batch_desc, batch_workers), DLP_NONE, DLP_MAX_WORKERS, "DLP_NONE or 0..1024"},
    };
    const dlp_batch_desc *d = &st->batching;
    bool own = d->out_fields != NULL;
    dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (own && d->collate == NULL)
        dlpi_bad(p, st->name, "out_fields", "NULL without a collate", d->n_out_fields);
    dlpi_within(p, st->name, "n_out_fields", d->n_out_fields, own, own ? DLP_MAX_FIELDS : 0,
                own ? "1..16" : "0 without out_fields");
    return p->err.code != 0 ? p->err.code : dlpi_check_batch_workers(p, st);
}

/* ---- stream: what needs a length, or another item in an item's place, is not possible ---- */

static int dlpi_stream_order(dlp_pipe *p) {
    const char *sampler = p->sampler->name;
    bool one = p->world == 1;
    dlpi_within(p, sampler, "order", p->sampler->sampler.order, DLP_ORDER_SEQUENTIAL,
                DLP_ORDER_SEQUENTIAL, "DLP_ORDER_SEQUENTIAL, and shuffle 0, with a stream");
    if (p->sampler->sampler.subset) dlpi_bad(p, sampler, "subset", "NULL with a stream", 1);
    dlpi_within(p, sampler, "unordered", p->d.unordered, 0, 0,
                "0 with a stream, whose end comes in order");
    dlpi_within(p, sampler, "batch_size", (int64_t)p->global_batch, p->world, 1 << 20,
                "world_size or more with a stream: a rank without rows sees no end");
    dlpi_within(p, p->batcher->name, "last", p->last, DLP_LAST_SHORT,
                one ? DLP_LAST_DROP : DLP_LAST_SHORT,
                one ? "DLP_LAST_SHORT or DLP_LAST_DROP with a stream"
                    : "DLP_LAST_SHORT with a stream of several ranks, none of which knows "
                      "whether the others' rows of a batch are there");
    return p->err.code;
}

static int dlpi_stream_check(dlp_pipe *p) {
    int rc = dlpi_stream_order(p);
    if (rc != DLP_OK) return rc;
    for (int i = 0; i < p->n_work; i++)
        if (p->work[i]->w.on_error == DLP_ON_ERROR_REPLACE)
            return dlpi_bad(p, p->work[i]->name, "on_error",
                            "DLP_ON_ERROR_RAISE or _SHORT with a stream, "
                            "which knows no other item",
                            DLP_ON_ERROR_REPLACE);
    for (int i = 0; i < p->n_stages; i++)
        if (p->stages[i].ops->keeper != NULL || p->stages[i].ops->lender != NULL)
            return dlpi_bad_graph(p, p->stages[i].name,
                                  "this stage wants to know the number of items, and a stream has "
                                  "none");
    if (p->share_bytes == 0) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_UNSUPPORTED, "", "shm.share", "a stream has no consumers");
}
