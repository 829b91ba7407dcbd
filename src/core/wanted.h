#pragma once
#include "core/fail.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-wanted     BATCHES THAT NOBODY WANTS ANY MORE
   The caller may leave an epoch (dlp_pipe_next_epoch, the end of a stream) or its place
   (dlp_pipe_seek) while batches of it are under way. Each batch has a mark: the seeks before it was
   fed (its life, 16 bits) above its epoch (48 bits). ctl.cancel is the least mark that is wanted,
   and only the caller moves it, up, by one store: by an epoch, or to the next life's epoch 0.
   Workers compare before each row, whoever passes batches on before each batch, and next drops
   what comes to it below the mark: so a batch may be half done, or fed after the store, and does no
   harm. Lives wrap: 2^14 seeks at most come between two batches that are delivered.

   N1: the store carries nothing for those who compare. What a seek has for the scheduler (where to
   go on) lies behind dlpi_place_lock, held for a copy only; the scheduler looks for it when
   ctl.cancel has another life than its own, and feeds for the old one until then. That no batch
   will follow (ctl.end_of_input) is likewise said for one life.

   Where the end is open (a stream), it is the first row of the epoch whose record says so
   (DLPI_ROW_END). That is one more fate of a row, written before the row is done: so when a batch
   is closed, its end is known, to whoever looks and as often as he looks, after a death as well.
   Rows of a batch up to its end are counted where they are needed; the batch's words keep the rows
   that it was fed with. What failed after the end has not happened. */

static inline uint64_t dlpi_mark(uint64_t life, uint64_t epoch) {
    return (life << 48) + epoch; /* epochs are below DLPI_MAX_EPOCH */
}
static inline uint32_t dlpi_mark_life(uint64_t mark) { return (uint32_t)(mark >> 48); }

static inline bool dlpi_mark_cancelled(const dlpi_ctl *ctl, uint64_t mark) {
    return (int64_t)(mark - DLPI_LOAD_RLX(&ctl->cancel)) < 0; /* N1 */
}
static inline uint64_t dlpi_slot_mark(const dlpi_bslot *slot) {
    return dlpi_mark(slot->life, slot->epoch);
}
static inline bool dlpi_cancelled(const dlpi_ctl *ctl, const dlpi_bslot *slot) {
    return dlpi_mark_cancelled(ctl, dlpi_slot_mark(slot));
}

/* Rows of the batch in slot s before the epoch's end, where a row finds it. */
static uint32_t dlpi_rows_before_end(const dlp_pipe *p, uint32_t s) {
    const uint32_t *rec = dlpi_slot_rec(p, s);
    uint32_t n = dlpi_slot_at(p, s)->count, r = 0;
    /* ordered by done */
    if (!p->open_end || DLPI_LOAD_RLX(&dlpi_slot_at(p, s)->dirty) == 0) return n;
    while (r < n && dlpi_rec_state(rec[r]) != DLPI_ROW_END) r++;
    return r;
}

/* Did a row of this batch find the end? */
static inline bool dlpi_slot_ended(const dlp_pipe *p, uint32_t s) {
    return p->open_end && dlpi_rows_before_end(p, s) < dlpi_slot_at(p, s)->count;
}

/* Rows that a batch whose items are done has for those behind. */
static uint32_t dlpi_slot_rows(const dlp_pipe *p, uint32_t s) {
    uint32_t n = dlpi_rows_before_end(p, s);
    return p->last == DLP_LAST_DROP && n < dlpi_slot_at(p, s)->count ? 0 : n;
}

/* The first row of those that will be delivered whose failure is raised; their number: none. */
static uint32_t dlpi_row_raised(const dlp_pipe *p, uint32_t s) {
    const uint32_t *rec = dlpi_slot_rec(p, s);
    uint32_t n = dlpi_slot_rows(p, s), r = 0;
    while (r < n && (rec[r] & DLPI_REC_RAISED) == 0) r++;
    return r;
}

/* Is the error of slot s that of a row after the epoch's end, or of one that is dropped? */
static bool dlpi_error_behind(const dlp_pipe *p, uint32_t s) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    return dlpi_slot_ended(p, s) && slot->error.has_item &&
           slot->error.position >= slot->position + dlpi_slot_rows(p, s);
}

/* Has the batch in slot s, whose items are done, failed? */
static bool dlpi_slot_failed(const dlp_pipe *p, uint32_t s) {
    if (DLPI_LIKELY(dlpi_first_look(&dlpi_slot_at(p, s)->failed) == 0)) return false; /* F1 <- F1 */
    return !dlpi_error_behind(p, s) || dlpi_row_raised(p, s) < dlpi_slot_rows(p, s);
}

/* Its error. Of several rows the first to fail has written the record: if that one lay behind the
   end, the others' words are lost. */
static void dlpi_slot_error(const dlp_pipe *p, uint32_t s, dlp_error *e) {
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint32_t r = dlpi_row_raised(p, s);
    *e = slot->error;
    if (!dlpi_error_behind(p, s)) return;
    dlpi_error_set(e, DLP_ERR_CALLBACK, "",
                   "the item failed; its words were lost to those of an "
                   "item behind the stream's end");
    dlpi_copy_text(e->stage, sizeof e->stage, slot->error.stage);
    e->has_item = 1;
    e->index = dlpi_slot_index(p, s)[r];
    e->epoch = slot->epoch;
    e->position = slot->position + r;
}

/* Has nobody behind the items anything to do with this batch? */
static bool dlpi_slot_idle(const dlp_pipe *p, uint32_t s) {
    return dlpi_cancelled(p->ctl, dlpi_slot_at(p, s)) || dlpi_slot_failed(p, s) ||
           (dlpi_slot_ended(p, s) && dlpi_slot_rows(p, s) == 0);
}
