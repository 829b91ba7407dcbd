#pragma once
/* tests: system/core/streams, system/shm/shm_streams */
#include "inputs/check.h"
#include "inputs/valid.h"
#include "slot/open_end.h"
/* ---- a dataset of an open end: a stream, whose number of items is not known ---- */

/* Return the reader of a stream, which reads on where it stopped. Returns NULL if the dataset (or
   NULL) is no stream, or has no reader. */
static inline const dlpi_reader *dlpi_reader_of(const dlp_dataset *d) {
    return d != NULL && d->open_end ? d->reader : NULL;
}

/* True if the attempts of stage st may replace an item: it writes rows first, and no stream. */
static bool dlpi_end_replaces(const dlpi_stage *st) {
    return st->ops->kind == DLP_STAGE_FETCH && !st->dataset->open_end;
}

/* Note whether the end of the fetch stage's dataset is open. If it is, the dataset must have no
   count, and is taken to be as long as can be. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_open_end_take(dlp_pipe *p, dlpi_stage *st) {
    p->open_end = st->dataset->open_end;
    if (!p->open_end) return DLP_OK;
    if (st->dataset->n_items != 0)
        return dlpi_bad(p, st->name, "source.dataset.n_items",
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
        p, DLP_ERR_GRAPH, st->name, "list.open_end",
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

/* ---- the consumer comes to the end ---- */

/* Find the item with e's epoch and position in the list, and set e's errnum and worker by it. */
DLPI_COLD static void dlpi_skip_find(const dlpi_ctl *ctl, dlp_error *e) {
    uint64_t from, n = dlpi_skip_count(ctl, &from);
    for (; from != n; from++) {
        dlp_skip k;
        if (!dlpi_skip_read(ctl, from, &k)) continue;
        if (k.epoch != e->epoch || k.position != e->position) continue;
        e->errnum = k.errnum;
        e->worker = k.worker;
    }
}

/* Make a failed item that is one more than max_skips the pipe's error. Its errno comes from the
   list of skips, if that goes back so far. Returns the code. */
DLPI_COLD static int dlpi_budget_fail(dlp_pipe *p, uint32_t s, uint32_t row, const dlpi_stage *st) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_BUDGET, "max_skips",
                   "the item failed, and max_skips %" PRId64 " are used up", st->w.max_skips);
    dlpi_copy_text(e.stage, sizeof e.stage, st->name);
    dlpi_error_item(&e, dlpi_slot_index(p, s)[row], slot->epoch, slot->position + row);
    dlpi_skip_find(p->ctl, &e);
    return dlpi_pipe_fail(p, &e);
}

/* Count the failed items of the batch in slot s that come before the end. Returns DLP_OK, or the
   code if they are more than max_skips allows. */
static int dlpi_end_budget(dlp_pipe *p, uint32_t s) {
    const uint32_t *fate = dlpi_slot_fate(p, s);
    const uint32_t n = dlpi_rows_before_end(p, s);
    /* ordered by done */
    if (DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) == 0) return DLP_OK;
    for (uint32_t r = 0; r < n; r++) {
        const dlpi_stage *st = p->work[dlpi_fate_stage(fate[r])];
        if ((fate[r] & DLPI_FATE_COUNTS) == 0) continue;
        if (!dlpi_failures_add(p->ctl, 1, st->w.max_skips)) return dlpi_budget_fail(p, s, r, st);
    }
    return DLP_OK;
}

/* Drop batch b, in slot s, which has no row before its epoch's end. Returns DLPI_NEXT_EPOCH if
   that follows, DLP_EPOCH_END if the user wants to be told, or an error if an endless pipe had an
   epoch without items. */
DLPI_COLD static int dlpi_end_over(dlp_pipe *p, uint64_t b, uint32_t s) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t epoch = slot->epoch;
    bool empty = slot->in_epoch == 0 && dlpi_rows_before_end(p, s) == 0;
    dlp_error e;
    dlpi_drop(p, b, s, 0);
    p->epoch_now = epoch;
    if (empty && p->d.epochs == DLP_FOREVER) {
        dlpi_error_set(&e, DLP_ERR_CALLBACK, "epochs",
                       "epochs is DLP_FOREVER, and the last epoch had no item; set epochs");
        dlpi_copy_text(e.stage, sizeof e.stage, p->fetch->name);
        e.epoch = epoch;
        return dlpi_pipe_fail(p, &e);
    }
    dlpi_epoch_over(p);
    if (p->epoch_end_due != 0) return dlpi_epoch_due_code(p);
    return p->d.epoch_end ? DLP_EPOCH_END : DLPI_NEXT_EPOCH;
}

/* The source of a stream does this before batch b, of slot s, is delivered (agreed). It counts what
   failed before the epoch's end. It leaves the epoch if a row of the batch found the end. rc: an
   error that stands in the batch's place, or DLP_OK. Returns rc, or the code that takes its place.
   */
static int dlpi_end_agreed(dlp_pipe *p, int rc, uint64_t b, uint32_t s) {
    if (rc != DLP_OK || (rc = dlpi_end_budget(p, s)) != DLP_OK || !dlpi_slot_ended(p, s)) return rc;
    dlpi_epoch_leave(p, dlpi_slot_at(p, s)->epoch);
    return dlpi_slot_rows(p, s) > 0 ? DLP_OK : dlpi_end_over(p, b, s);
}
