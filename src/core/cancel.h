#pragma once
#include "core/fail.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-cancel     BATCHES THAT ARE CANCELLED
   The consumer may leave an epoch (dlp_pipe_next_epoch, the end of a stream) or its place
   (dlp_pipe_seek) while batches of it are under way. Each batch has a generation: the number of
   seeks before it was scheduled (seek_no, 16 bits) above its epoch (48 bits). ctl.cancel is the
   least generation that is not cancelled, and only the consumer moves it, up, by one store: by an
   epoch, or to epoch 0 after the next seek. Workers compare before each row, whoever passes batches
   on before each batch, and next drops what comes to it from below: so a batch may be half done, or
   scheduled after the store, and does no harm. Numbers of seeks wrap: 2^14 of them at most come
   between two batches that are delivered.

   N1: the store carries nothing for those who compare. What a seek has for the scheduler (where to
   go on) lies behind dlpi_place_lock, held for a copy only; the scheduler looks for it when
   ctl.cancel has another seek_no than its own, and schedules for the old one until then. That no
   batch will follow (ctl.end_of_input) is likewise said for one seek_no.

   Where the end is open (a stream), it is the first row of the epoch whose record says so
   (DLPI_ROW_END). That is one more fate of a row, written before the row is done: so when a batch
   is closed, its end is known, to whoever looks, as often as it looks, after a death as well.
   Rows of a batch up to its end are counted where they are needed; the batch's words keep the rows
   that it was fed with. What failed after the end has not happened. */

static inline uint64_t dlpi_generation(uint64_t seek_no, uint64_t epoch) {
    return (seek_no << 48) + epoch; /* epochs are below DLPI_MAX_EPOCH */
}
static inline uint32_t dlpi_generation_seek(uint64_t generation) {
    return (uint32_t)(generation >> 48);
}

static inline bool dlpi_generation_cancelled(const dlpi_ctl *ctl, uint64_t generation) {
    return (int64_t)(generation - DLPI_LOAD_RLX(&ctl->cancel)) < 0; /* N1 */
}
static inline uint64_t dlpi_slot_generation(const dlpi_bslot *slot) {
    return dlpi_generation(slot->seek_no, slot->epoch);
}
static inline bool dlpi_cancelled(const dlpi_ctl *ctl, const dlpi_bslot *slot) {
    return dlpi_generation_cancelled(ctl, dlpi_slot_generation(slot));
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
    dlpi_error_item(e, dlpi_slot_index(p, s)[r], slot->epoch, slot->position + r);
}

/* Has nobody behind the items anything to do with this batch? */
static bool dlpi_slot_idle(const dlp_pipe *p, uint32_t s) {
    return dlpi_cancelled(p->ctl, dlpi_slot_at(p, s)) || dlpi_slot_failed(p, s) ||
           (dlpi_slot_ended(p, s) && dlpi_slot_rows(p, s) == 0);
}
