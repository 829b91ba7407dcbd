#pragma once
#include "core/fields.h"
#include "stages/split.h"
/* ---- what the desc of each kind may say, by itself (check) and beside the others ---- */

/* ---- sampler ---- */

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

/* ---- a row finds the end (a stream): what needs a length, or another item in an item's place, is
   not possible ---- */

static int dlpi_open_end_order(dlp_pipe *p) {
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

static int dlpi_open_end_check(dlp_pipe *p) {
    int rc = dlpi_open_end_order(p);
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
