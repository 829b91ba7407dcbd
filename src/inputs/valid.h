#pragma once
/* tests: system/core/pipe_epochs, system/inputs/agree, system/source/push_makers */
#include "deliver/deliver.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-valid      AN EPOCH WITHOUT A VALID ROW
   A stage may leave failed items out. If this happens to all items of an epoch, the epoch was none.
   The consumer counts while it takes batches. When the epoch is over, it warns, and the next call
   of next returns the error in place of what follows.

   Padding and holes are no items: a rank with these alone has an honest end. An epoch that was
   resumed, or sought, inside has valid rows for all that is known. An epoch that the consumer
   leaves early is not judged.

   A rank of several knows only its own rows. The other ranks may have had valid ones. So few items
   prove nothing there, and the rank only warns. */

#define DLPI_VALID_FAILED 32u    /* failed items that prove it for a rank of several */
#define DLPI_VALID_SKIPPED 1000u /* the same, if the first item was left out by DLP_SKIP */

/* Begin to count an epoch's rows. inside: the epoch is entered behind its first batch. */
static inline void dlpi_valid_begin(dlp_pipe *p, bool inside) {
    p->warnings.valid = inside;
    p->warnings.left_out = 0;
}

/* Look at a batch (or view) of an epoch in which no row was valid so far. If none is valid in the
   batch either, count its items that were left out. Views are cut from whole chunks, and have no
   holes. */
DLPI_COLD static void dlpi_valid_look(dlp_pipe *p, const dlp_batch *b) {
    const uint32_t *fate = p->lends ? NULL : dlpi_slot_fate(p, dlpi_lent_slot(p, b));
    const bool pads = p->last == DLP_LAST_PAD;
    p->warnings.valid = b->valid_count > 0;
    for (uint32_t r = 0; b->valid_count == 0 && r < b->count; r++) {
        if (pads && b->position + r >= p->samples) continue;
        if (fate != NULL && dlpi_fate_state(fate[r]) != DLPI_ROW_LEFT) continue;
        p->warnings.left_out += fate == NULL || b->index[r] != UINT64_MAX;
    }
}

/* True if the epoch had items, and all of them were left out. */
static inline bool dlpi_valid_none(const dlp_pipe *p) {
    return !p->warnings.valid && p->warnings.left_out > 0;
}

/* Find the first item of an epoch that was left out, as far as the list of skips goes back, else
   the first of all. Returns false if there is none. */
DLPI_COLD static bool dlpi_valid_cause(const dlp_pipe *p, uint64_t epoch, dlp_error *e) {
    uint64_t from, n = dlpi_skip_count(p->ctl, &from);
    dlp_skip k;
    if (dlpi_first_look(&p->ctl->first_ready) == 0) return false; /* K3 <- K3 */
    *e = p->ctl->first_skip;
    while (e->epoch != epoch && from != n) {
        if (!dlpi_skip_read(p->ctl, from++, &k) || k.epoch != epoch) continue;
        dlpi_error_set(e, k.code, "", "%s", k.message);
        dlpi_copy_text(e->stage, sizeof e->stage, p->stages[k.stage].name);
        dlpi_error_item(e, k.index, k.epoch, k.position);
        e->errnum = k.errnum;
        e->worker = k.worker;
    }
    return true;
}

/* Write into *e the error of the epoch that the consumer has just ended: the first item that was
   left out, with its code and its words. */
DLPI_COLD static void dlpi_valid_error(const dlp_pipe *p, dlp_error *e) {
    char rank[32] = "", first[128] = "";
    const uint64_t n = p->warnings.left_out;
    memset(e, 0, sizeof *e);
    e->worker = -1;
    if (dlpi_valid_cause(p, p->epoch_now, e))
        snprintf(first, sizeof first, "; the first was item %" PRIu64 ": %.80s", e->index,
                 e->code == DLP_SKIP ? "DLP_SKIP" : e->message);
    if (p->world > 1) snprintf(rank, sizeof rank, " on rank %" PRIu32, p->rank);
    if (e->code >= 0) e->code = DLP_ERR_CALLBACK;
    dlpi_copy_text(e->field, sizeof e->field, "on_error");
    snprintf(e->message, sizeof e->message,
             "epoch %" PRIu64 " has no valid row%s: %s%" PRIu64 " item%s left out%.120s",
             p->epoch_now, rank, n > 1 ? "all its " : "its ", n, n > 1 ? "s were" : " was", first);
}

/* Warn of the epoch that the consumer has just ended, which has no valid row. Have the next call of
   next fail, if the items prove it. */
DLPI_COLD static void dlpi_valid_tell(dlp_pipe *p) {
    dlp_error first = {.code = 0}, e;
    /* Inputs do not note an item that a callback leaves out. They note each failure. */
    const bool skip = !dlpi_valid_cause(p, p->epoch_now, &first) || first.code == DLP_SKIP;
    dlpi_valid_error(p, &e);
    dlpi_warn(p, "%s", e.message);
    if (p->world == 1 || p->warnings.left_out >= (skip ? DLPI_VALID_SKIPPED : DLPI_VALID_FAILED))
        p->epoch_end_due |= DLPI_DUE_NONE;
}

/* The consumer has come to the end of an epoch. */
DLPI_COLD DLPI_NOINLINE static void dlpi_epoch_over(dlp_pipe *p) {
    if (p->source->over != NULL) p->source->over(p);
    if (dlpi_valid_none(p)) dlpi_valid_tell(p);
    if ((p->epoch_end_due & DLPI_DUE_NONE) == 0) dlpi_valid_begin(p, false);
}

/* Note if the batch that next returns has a valid row, and if its epoch ends. Nothing is written
   for a batch inside an epoch that has one: the workers read what lies beside it. */
static inline void dlpi_valid_note(dlp_pipe *p, const dlp_batch *batch) {
    if (DLPI_UNLIKELY(!p->warnings.valid)) dlpi_valid_look(p, batch);
    if (DLPI_UNLIKELY((batch->flags & DLP_BATCH_LAST) != 0)) dlpi_epoch_over(p);
}

/* Return what is due behind the end of an epoch: DLP_EPOCH_END, or the code of the pipe's error. If
   ranks agree on the ends of epochs, and another epoch follows, the other ranks learn of the
   error. */
DLPI_COLD static int dlpi_epoch_due_code(dlp_pipe *p) {
    const int due = p->epoch_end_due;
    dlp_error e;
    p->epoch_end_due = 0;
    if ((due & DLPI_DUE_NONE) == 0) return DLP_EPOCH_END;
    dlpi_valid_error(p, &e);
    dlpi_pipe_fail(p, &e);
    if (dlpi_source_asks(p) && !dlpi_epochs_over(p, p->after.spot.epoch))
        return p->source->agreed(p, p->err.code, 0, 0);
    return p->err.code;
}

/* Return what next returns at the end of all epochs: DLP_END. Or return the code of the pipe's
   error, if no batch was marked as the last of an epoch that had no valid row. */
DLPI_COLD static int dlpi_valid_end(dlp_pipe *p) {
    if (!dlpi_valid_none(p)) return DLP_END;
    dlpi_valid_tell(p);
    if (p->epoch_end_due & DLPI_DUE_NONE) return dlpi_epoch_due_code(p);
    dlpi_valid_begin(p, false);
    return DLP_END;
}
