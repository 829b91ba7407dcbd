#pragma once
/* tests: system/core/streams, system/shm/shm_streams */
#include "fail/cancel.h"
#include "fail/check.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-open-end   A ROW FINDS THE EPOCH'S END: STREAMS
   Where the end is open (a stream), it is the first row of the epoch whose record says so
   (DLPI_ROW_END). That is one more fate of a row, written before the row is done: so when a batch
   is closed, its end is known, to whoever looks, as often as it looks, after a death as well.
   Rows of a batch up to its end are counted where they are needed; the batch's words keep the rows
   that it was fed with. What failed after the end has not happened. */

/* What a stream was wired to be read on by; NULL: nothing, or it is no stream. */
static inline const dlpi_reader *dlpi_reader_of(const dlp_dataset *d) {
    return d != NULL && d->open_end ? d->reader : NULL;
}

/* A fetch stage has the dataset: has that a length? */
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

/* n_items of states. */
static uint64_t dlpi_open_end_items(const dlp_pipe *p) {
    return p->open_end ? UINT64_MAX : p->fetch->dataset->n_items;
}

/* The same of a fetch, an item map or a load, which may return more than 0 and failure. */
static int dlpi_item_returned(dlpi_worker *w, int rc) {
    bool may = rc == DLP_SKIP || rc == DLP_ERR_LENGTH ||
               (rc == DLP_END && w->p->open_end && w->st == w->p->fetch);
    int code = dlpi_returned(w, rc);
    return may ? rc : code;
}

/* May one more failed item be replaced or left out? What fails after an end that a row finds does
   not count, and only delivery knows what that is: dlpi_end_budget. */
static bool dlpi_skip_allowed(const dlpi_worker *w) {
    int64_t max = w->st->w.max_skips;
    if (max == DLP_NONE || w->p->open_end) return max != DLP_NONE;
    return dlpi_failures_add(w->p->ctl, 1, max);
}

/* What the record of a row that failed and is left out says besides: whose budget it counts for,
   should it come before the end. */
static uint32_t dlpi_end_counts(const dlpi_worker *w, int code) {
    return code != DLP_SKIP && w->p->open_end ? DLPI_FATE_COUNTS | (uint32_t)w->st->work << 23 : 0;
}

/* Rows of the batch in slot s before the epoch's end, where a row finds it. */
static uint32_t dlpi_rows_before_end(const dlp_pipe *p, uint32_t s) {
    const uint32_t *fate = dlpi_slot_fate(p, s);
    uint32_t n = dlpi_slot_at(p, s)->count, r = 0;
    /* ordered by done */
    if (!p->open_end || DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) == 0) return n;
    while (r < n && dlpi_fate_state(fate[r]) != DLPI_ROW_END) r++;
    return r;
}

/* Did a row of this batch find the end? */
static inline bool dlpi_slot_ended(const dlp_pipe *p, uint32_t s) {
    return p->open_end && dlpi_rows_before_end(p, s) < dlpi_slot_at(p, s)->count;
}

/* Rows that a batch whose items are done has for those after. */
static inline uint32_t dlpi_slot_rows(const dlp_pipe *p, uint32_t s) {
    uint32_t count = dlpi_slot_at(p, s)->count, n;
    if (DLPI_LIKELY(!p->open_end)) return count;
    n = dlpi_rows_before_end(p, s);
    return p->last == DLP_LAST_DROP && n < count ? 0 : n;
}

/* The first row of those that will be delivered whose failure is raised; their number: none. */
static uint32_t dlpi_row_raised(const dlp_pipe *p, uint32_t s) {
    const uint32_t *fate = dlpi_slot_fate(p, s);
    uint32_t n = dlpi_slot_rows(p, s), r = 0;
    while (r < n && (fate[r] & DLPI_FATE_RAISED) == 0) r++;
    return r;
}

/* Is the error of slot s that of a row after the epoch's end, or of one that is dropped? */
static bool dlpi_error_behind(const dlp_pipe *p, uint32_t s) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    return dlpi_slot_ended(p, s) && slot->error.has_item &&
           slot->error.position >= slot->position + dlpi_slot_rows(p, s);
}

/* Apart from the question, which each batch asks. */
DLPI_COLD static bool dlpi_slot_failed_in(const dlp_pipe *p, uint32_t s) {
    return !dlpi_error_behind(p, s) || dlpi_row_raised(p, s) < dlpi_slot_rows(p, s);
}

/* Has the batch in slot s, whose items are done, failed? */
static inline bool dlpi_slot_failed(const dlp_pipe *p, uint32_t s) {
    return DLPI_UNLIKELY(dlpi_first_look(&dlpi_slot_at(p, s)->failed) != 0) && /* F1 <- F1 */
           dlpi_slot_failed_in(p, s);
}

/* Its error. Of several rows the first to fail has written the record: if that one lay after the
   end, the others' words are lost. */
static void dlpi_slot_error(const dlp_pipe *p, uint32_t s, dlp_error *e) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint32_t r = dlpi_row_raised(p, s);
    *e = slot->error;
    if (!dlpi_error_behind(p, s)) return;
    dlpi_error_set(e, DLP_ERR_CALLBACK, "", "the item failed; the words of its error were lost");
    dlpi_copy_text(e->stage, sizeof e->stage, slot->error.stage);
    dlpi_error_item(e, dlpi_slot_index(p, s)[r], slot->epoch, slot->position + r);
}

/* Has nobody after the items anything to do with this batch? */
static bool dlpi_slot_idle(const dlp_pipe *p, uint32_t s) {
    return dlpi_cancelled(p->ctl, dlpi_slot_at(p, s)) || dlpi_slot_failed(p, s) ||
           (dlpi_slot_ended(p, s) && dlpi_slot_rows(p, s) == 0);
}

/* The words for a failed item that is one too many; its errno is in the list of skips, if that goes
   back so far. */
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

/* Count the failed items that come before the end that a row has found. */
static inline int dlpi_end_budget(dlp_pipe *p, uint32_t s) {
    const uint32_t *fate = dlpi_slot_fate(p, s);
    uint32_t n;
    /* ordered by done */
    if (!p->open_end || DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) == 0) return DLP_OK;
    n = dlpi_rows_before_end(p, s);
    for (uint32_t r = 0; r < n; r++) {
        const dlpi_stage *st = p->work[dlpi_fate_stage(fate[r])];
        if ((fate[r] & DLPI_FATE_COUNTS) == 0) continue;
        if (!dlpi_failures_add(p->ctl, 1, st->w.max_skips)) return dlpi_budget_fail(p, s, r, st);
    }
    return DLP_OK;
}

/* A stage that needs a number of items, beside a dataset that has none. */
static int dlpi_open_end_bad(dlp_pipe *p, const dlpi_stage *st) {
    const bool read = dlpi_reader_of(p->fetch->dataset) != NULL;
    return dlpi_refuse(
        p, DLP_ERR_GRAPH, st->name, "dataset.open_end",
        "open_end is 1%s, must be 0 with stage \"%s\", which needs the number of items",
        read ? " (items are pushed)" : "", st->name);
}

/* ---- a row finds the end (a stream): what needs a length, or another item in an item's place, is
   not possible ---- */

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

/* Refuse what a dataset of an open end cannot have beside it. The check of the fetching stage calls
   this. */
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
