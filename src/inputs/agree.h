/* needs: parts */
#pragma once
/* tests: system/inputs/agree */
#include "inputs/fill.h"
#include "deliver/deliver.h"
/* ---- ends that several ranks agree on ----
   If the number of items is not known, no rank alone can tell where an epoch ends for all ranks. So
   the ranks ask each other by the caller's all-reduce. All ranks ask at the same steps: before the
   first batch of an epoch, after a seek, and each time that all agreed batches are delivered. Only
   the consumer asks. If a scheduler or a worker asked, two ranks could wait for each other, one
   here and one in the all-reduce of its training step.

   A rank counts its complete batches. These can't fail any more, so a failure shows where all ranks
   ask, and there it is an answer. A rank says twice the number of these batches, plus 1 if it knows
   that another batch follows. The least of these numbers over all ranks tells the least number of
   batches, and whether the epoch ends behind them. If this rank has more batches than the agreed
   end allows, it drops them, as dlp_pipe_next_epoch does.

   A rank that is resumed in the middle of an epoch may have no batch left there. The state does not
   tell this if an input had failed, because that input may have had items. Such a rank says -2, and
   all ranks leave the epoch. The epoch ends before the next batch, so a rank whose next batch has
   failed says only -1. A rank whose pipe is in error says -3, and no rank goes on.

   Unless `last` is DLP_LAST_DROP, a rank without items goes on with batches of holes (all_items),
   and only the agreement ends its epoch. If the least answer says that a rank has its last batch,
   all ranks ask once more, for the batch at which the last rank has no item left. */

/* Answers of a rank: the next batch has failed; no batch is left; the pipe is in error. */
enum { DLPI_AGREE_FAILED = -1, DLPI_AGREE_OVER = -2, DLPI_AGREE_DEAD = -3 };

/* True if more follows in this rank after the batch in slot s: more items if batches of holes may
   follow (all_items), else another batch of the epoch. */
static bool dlpi_agree_more(const dlp_pipe *p, uint32_t s) {
    const dlpi_source_state *state = dlpi_slot_source(p, s);
    if (dlpi_found_of(p)->all_items) return (state->note & DLPI_FOUND_MORE_ITEMS) != 0;
    return (dlpi_slot_at(p, s)->flags & DLP_BATCH_LAST) == 0;
}

/* Return the number that this rank gives to the all-reduce. It is twice the count of this rank's
   whole batches from batch b on, plus 1 if another batch surely follows the last of them. */
static int64_t dlpi_agree_mine(const dlp_pipe *p, uint64_t b) {
    uint64_t tail = dlpi_credit_seen(&p->ctl->tail); /* T1 <- T1 */
    uint64_t generation = dlpi_slot_generation(dlpi_slot_at(p, dlpi_slot_of(p, b)));
    int64_t n = 0;
    bool more = true;
    for (; b != tail; b++, n++) {
        uint32_t s = dlpi_slot_of(p, b);
        const dlpi_bslot *slot = dlpi_slot_at(p, s);
        if (dlpi_slot_generation(slot) != generation || !dlpi_ready(p, b, s)) break;
        if (dlpi_slot_failed(p, s)) break;
        more = dlpi_agree_more(p, s);
    }
    return 2 * n + more;
}

/* Fail the pipe: the all-reduce returned a value that it cannot have, or another rank has failed.
   mine: what this rank gave. all: what `agree` returned. what: "least" or "most". Returns a DLP_ERR
   code. */
static int dlpi_agree_fail(dlp_pipe *p, int64_t mine, int64_t all, const char *what) {
    dlp_error e;
    if (mine == 0 && all == 0)
        dlpi_error_set(&e, DLP_ERR_CALLBACK, "agree", "no rank has an item in this epoch");
    else if (all == DLPI_AGREE_FAILED || all == DLPI_AGREE_DEAD)
        dlpi_error_set(
            &e, DLP_ERR_CALLBACK, "agree",
            "the pipe of another rank has failed, so all ranks stop; look at that rank's error");
    else
        dlpi_error_set(&e, DLP_ERR_CALLBACK, "agree",
                       "agree returned %" PRId64 " for %" PRId64 ", must be the %s of all ranks; "
                       "use an all-reduce",
                       all, mine, what);
    dlpi_copy_text(e.stage, sizeof e.stage, p->source_stage->name);
    e.epoch = p->after.spot.epoch;
    return dlpi_pipe_fail(p, &e);
}

/* Ask all ranks which of the next n batches, from batch b on, is the last with items, and end the
   epoch at the last one of all ranks. A rank that gives n + 1 says that more items follow. Returns
   0 or a DLP_ERR code if the pipe has failed. */
static int dlpi_agree_items(dlp_pipe *p, uint64_t b, int64_t n) {
    dlpi_found *q = dlpi_found_of(p);
    int64_t mine = 0, all;
    for (int64_t i = 0; i < n; i++) {
        uint32_t s = dlpi_slot_of(p, b + (uint64_t)i);
        const dlpi_source_state *state = dlpi_slot_source(p, s);
        if (state->note & DLPI_FOUND_HAS_ITEMS) mine = i + 1;
        if (i + 1 == n && dlpi_agree_more(p, s)) mine = n + 1;
    }
    all = p->d.agree(p->d.agree_user, mine, 1);
    if (all < mine || all > n + 1 || all < 1) return dlpi_agree_fail(p, mine, all, "most");
    q->agreed.last = all <= n;
    if (all <= n) q->agreed.left = (uint64_t)all;
    return DLP_OK;
}

/* True if the consumer is in the middle of an epoch in which this rank has no more batch. rc: what
   dlp_pipe_next is about to return. s: the slot of the next batch, if there is one. */
static bool dlpi_agree_over(const dlp_pipe *p, int rc, uint32_t s) {
    if (p->after.spot.batch == 0 || rc == DLP_END) return p->after.spot.batch > 0;
    return rc <= 0 && p->err.code == 0 && dlpi_slot_at(p, s)->epoch != p->after.spot.epoch;
}

/* Leave the present epoch, because a rank has no batch in it. rc: what dlp_pipe_next is about to
   return. Returns DLP_EPOCH_END if the pipe has epoch_end; else DLP_END if that is rc; else
   DLPI_NEXT_EPOCH. */
static int dlpi_agree_leave(dlp_pipe *p, int rc) {
    p->epoch_now = p->after.spot.epoch;
    dlpi_epoch_leave(p, p->after.spot.epoch);
    dlpi_valid_begin(p, false);
    if (p->d.epoch_end) return DLP_EPOCH_END;
    return rc == DLP_END ? rc : DLPI_NEXT_EPOCH;
}

/* Ask all ranks how many batches each of them has, and note the least number as agreed. rc: DLP_OK
   with batch b in slot s as the next one, DLP_END, or the error of this rank. Returns DLP_OK if
   batches were agreed on, else what dlp_pipe_next is to return. */
static int dlpi_agree_ask(dlp_pipe *p, int rc, uint64_t b, uint32_t s) {
    dlpi_found *q = dlpi_found_of(p);
    const bool over = dlpi_agree_over(p, rc, s);
    int64_t mine = over               ? DLPI_AGREE_OVER
                   : p->err.code != 0 ? DLPI_AGREE_DEAD
                   : rc == DLP_OK     ? dlpi_agree_mine(p, b)
                                      : DLPI_AGREE_FAILED;
    int64_t all = p->d.agree(p->d.agree_user, mine, 0);
    if (rc < 0 && (p->err.code != 0 || all != DLPI_AGREE_OVER)) return rc;
    if (all == DLPI_AGREE_OVER && p->after.spot.batch > 0) return dlpi_agree_leave(p, rc);
    if (all < 2 || all > mine) return dlpi_agree_fail(p, mine, all, "least");
    q->agreed.left = (uint64_t)all / 2;
    q->agreed.last = all % 2 == 0;
    return q->all_items && q->agreed.last ? dlpi_agree_items(p, b, all / 2) : DLP_OK;
}

/* Ask the other ranks, if no agreed batch is left, before batch b of slot s, or an error in its
   place, is delivered. Set DLP_BATCH_LAST on the last agreed batch.
   rc: what dlp_pipe_next is about to return. If it is positive and not the end (a time-out, a
   stop), nothing is asked: it is no step. Returns rc, or the code that takes its place. */
static int dlpi_found_agreed(dlp_pipe *p, int rc, uint64_t b, uint32_t s) {
    dlpi_agreed *a = &dlpi_found_of(p)->agreed;
    const uint64_t here = dlpi_generation(p->seek_no, p->after.spot.epoch);
    dlpi_bslot *slot;
    if (!a->asks || (rc > 0 && !dlpi_agree_over(p, rc, s))) return rc;
    if (a->left == 0 || a->generation != here) {
        a->left = 0;
        if ((rc = dlpi_agree_ask(p, rc, b, s)) != DLP_OK) return rc;
        a->generation = here;
    }
    if (rc != DLP_OK || --a->left > 0 || !a->last) return rc;
    slot = dlpi_slot_at(p, s);
    if ((slot->flags & DLP_BATCH_LAST) == 0) dlpi_epoch_leave(p, slot->epoch);
    slot->flags |= DLP_BATCH_LAST;
    return rc;
}
