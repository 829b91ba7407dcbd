#pragma once
/* tests: system/core/streams, system/shm/shm_streams */
#include "fail/cancel.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-open-end   A ROW FINDS THE EPOCH'S END: STREAMS
   Where the end is open (a stream), it is the first row of the epoch whose record says so
   (DLPI_ROW_END). The end is one more fate of a row, and it is written before the row is done. So
   the end of a closed batch is known to every reader, also after a death.
   Rows of a batch up to its end are counted where they are needed; the batch's words keep the rows
   that it was fed with. What failed after the end has not happened. */

/* True if no row says where the epoch ends. */
static inline bool dlpi_end_known(const dlp_pipe *p) { return p->open_end == 0; }

/* Return the code for what a fetch, an item map or a load returned. They may return DLP_SKIP, an
   error of a length, and (a fetch of a stream) DLP_END, besides 0 and failure. */
static int dlpi_item_returned(dlpi_worker *w, int rc) {
    bool may = rc == DLP_SKIP || rc == DLP_ERR_LENGTH ||
               (rc == DLP_END && w->p->open_end && w->st == w->p->fetch);
    int code = dlpi_returned(w, rc);
    return may ? rc : code;
}

/* Count a failed item. True if it may be replaced or left out, by max_skips. In a stream, what
   fails behind the end does not count, and only delivery knows that: see dlpi_end_agreed. */
static bool dlpi_skip_allowed(const dlpi_worker *w) {
    int64_t max = dlpi_policy_now(w).max_skips;
    if (max == DLP_NONE || w->p->open_end) return max != DLP_NONE;
    return dlpi_failures_add(w->p->ctl, 1, max);
}

/* Return bits for the fate of a row of a stream that failed and is left out: for whose budget
   (stage) it counts if it comes before the end. */
static uint32_t dlpi_end_counts(const dlpi_worker *w, int code) {
    return code != DLP_SKIP && w->p->open_end ? DLPI_FATE_COUNTS | (uint32_t)w->st->work << 23 : 0;
}

/* Return how many rows of the batch in slot s come before the epoch's end, which a row may find. */
static uint32_t dlpi_rows_before_end(const dlp_pipe *p, uint32_t s) {
    const uint32_t *fate = dlpi_slot_fate(p, s);
    uint32_t n = dlpi_slot_at(p, s)->count, r = 0;
    /* ordered by done */
    if (!p->open_end || DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) == 0) return n;
    while (r < n && dlpi_fate_state(fate[r]) != DLPI_ROW_END) r++;
    return r;
}

/* True if a row of the batch in slot s found the epoch's end. */
static inline bool dlpi_slot_ended(const dlp_pipe *p, uint32_t s) {
    return p->open_end && dlpi_rows_before_end(p, s) < dlpi_slot_at(p, s)->count;
}

/* Return how many rows a batch, whose items are done, has for the stages after the items. */
static inline uint32_t dlpi_slot_rows(const dlp_pipe *p, uint32_t s) {
    uint32_t count = dlpi_slot_at(p, s)->count, n;
    if (DLPI_LIKELY(!p->open_end)) return count;
    n = dlpi_rows_before_end(p, s);
    return p->last == DLP_LAST_DROP && n < count ? 0 : n;
}

/* Return the first row of the batch in slot s whose failure is raised, of those that are delivered.
   If there is none, returns their number. */
DLPI_COLD static uint32_t dlpi_row_raised(const dlp_pipe *p, uint32_t s) {
    const uint32_t *fate = dlpi_slot_fate(p, s);
    uint32_t n = dlpi_slot_rows(p, s), r = 0;
    while (r < n && (fate[r] & DLPI_FATE_RAISED) == 0) r++;
    return r;
}

/* True if the error of slot s is that of a row behind the epoch's end, or of one that is dropped.
   */
DLPI_COLD static bool dlpi_error_behind(const dlp_pipe *p, uint32_t s) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    return dlpi_slot_ended(p, s) && slot->error.has_item &&
           slot->error.position >= slot->position + dlpi_slot_rows(p, s);
}

/* True if a failure of the batch in slot s, which has one, is to be told: its row is delivered. */
DLPI_COLD static bool dlpi_slot_failed_in(const dlp_pipe *p, uint32_t s) {
    return !dlpi_error_behind(p, s) || dlpi_row_raised(p, s) < dlpi_slot_rows(p, s);
}

/* True if the batch in slot s, whose items are done, has failed. */
static inline bool dlpi_slot_failed(const dlp_pipe *p, uint32_t s) {
    return DLPI_UNLIKELY(dlpi_first_look(&dlpi_slot_at(p, s)->failed) != 0) && /* F1 <- F1 */
           dlpi_slot_failed_in(p, s);
}

/* Copy the error of the failed batch in slot s to e. If several rows failed, the first to fail has
   written it. If that row lies behind the end, the words of the others are lost. */
DLPI_COLD static void dlpi_slot_error(const dlp_pipe *p, uint32_t s, dlp_error *e) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint32_t r = dlpi_row_raised(p, s);
    *e = slot->error;
    if (!dlpi_error_behind(p, s)) return;
    dlpi_error_set(e, DLP_ERR_CALLBACK, "", "the item failed; the words of its error were lost");
    dlpi_copy_text(e->stage, sizeof e->stage, slot->error.stage);
    dlpi_error_item(e, dlpi_slot_index(p, s)[r], slot->epoch, slot->position + r);
}

/* True if the stages after the items have no work on the batch in slot s. */
static bool dlpi_slot_idle(const dlp_pipe *p, uint32_t s) {
    return dlpi_cancelled(p->ctl, dlpi_slot_at(p, s)) || dlpi_slot_failed(p, s) ||
           (dlpi_slot_ended(p, s) && dlpi_slot_rows(p, s) == 0);
}
