#pragma once
/* tests: system/core/streams, system/shm/shm_streams */
#include "inputs/check.h"
#include "slot/open_end.h"
/* ---- a dataset of an open end: a stream, whose number of items is not known ---- */

/* Return the reader of a stream, which reads on where it stopped. Returns NULL if the dataset (or
   NULL) is no stream, or has no reader. */
static inline const dlpi_reader *dlpi_reader_of(const dlp_dataset *d) {
    return d != NULL && d->open_end ? d->reader : NULL;
}

/* Note whether the end of the fetch stage's dataset is open. If it is, the dataset must have no
   count, and is taken to be as long as can be. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_open_end_take(dlp_pipe *p, dlpi_stage *st) {
    p->open_end = st->dataset->open_end;
    if (!p->open_end) return DLP_OK;
    if (st->dataset->n_items != 0)
        return dlpi_bad(p, st->name, "dataset.n_items",
                        "0 with open_end: a source that counts its items has an end",
                        (int64_t)st->dataset->n_items);
    st->dataset->n_items = DLPI_MAX_ITEMS;
    return DLP_OK;
}

/* Refuse stage st, which needs the number of items, beside a dataset whose end is open. Returns the
   code of the pipe's error. */
static int dlpi_open_end_bad(dlp_pipe *p, const dlpi_stage *st) {
    const bool read = dlpi_reader_of(p->fetch->dataset) != NULL;
    return dlpi_refuse(
        p, DLP_ERR_GRAPH, st->name, "dataset.open_end",
        "open_end is 1%s, must be 0 with stage \"%s\", which needs the number of items",
        read ? " (items are pushed)" : "", st->name);
}

/* ---- checks: beside a stream nothing may need the number of items, or another item in place of a
   failed one ---- */

/* Check that the order, batch_size and `last` need no number of items. Returns DLP_OK, or the code
   of the pipe's error. */
static int dlpi_open_end_order(dlp_pipe *p) {
    const char *sampler = p->sampler->name;
    bool one = p->world == 1;
    dlpi_within(p, sampler, "order", dlpi_sampler_of(p)->order, DLP_ORDER_SEQUENTIAL,
                DLP_ORDER_SEQUENTIAL,
                dlpi_sampler_of(p)->order == DLP_ORDER_SHUFFLED
                    ? "DLP_ORDER_SEQUENTIAL, and shuffle 0, with open_end"
                    : "DLP_ORDER_SEQUENTIAL with open_end");
    if (dlpi_sampler_of(p)->subset) dlpi_not_null(p, sampler, "subset", "with open_end");
    dlpi_within(p, sampler, "unordered", p->d.unordered, 0, 0,
                "0 with open_end, whose end comes in order");
    dlpi_within(p, sampler, "batch_size", (int64_t)p->global_batch, p->world, 1 << 20,
                "world_size or more with open_end: a rank without rows sees no end");
    dlpi_within(p, p->batcher->name, "last", p->last, DLP_LAST_PARTIAL,
                one ? DLP_LAST_DROP : DLP_LAST_PARTIAL,
                one ? "DLP_LAST_PARTIAL or DLP_LAST_DROP with open_end"
                    : "DLP_LAST_PARTIAL with open_end and several ranks");
    return p->err.code;
}

/* Refuse what a dataset of an open end cannot have beside it. The check of the fetch stage calls
   this. Returns DLP_OK, also if the end is known, or the code of the pipe's error. */
static int dlpi_open_end_check(dlp_pipe *p) {
    const dlpi_stage *other;
    int rc;
    if (!p->open_end) return DLP_OK;
    if ((rc = dlpi_open_end_order(p)) != DLP_OK) return rc;
    for (int i = 0; i < p->n_work; i++)
        if (p->work[i]->w.on_error == DLP_ON_ERROR_REPLACE)
            return dlpi_bad(p, p->work[i]->name, "on_error",
                            "DLP_ON_ERROR_RAISE or _DROP with open_end", DLP_ON_ERROR_REPLACE);
    if ((other = dlpi_roles_count(p)) != NULL) return dlpi_open_end_bad(p, other);
    if (!dlpi_is_shared(p)) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_UNSUPPORTED, p->fetch->name, p->sharing->words,
                       "with open_end only the consumer sees the end; begin a table with DLP_PUSH");
}
