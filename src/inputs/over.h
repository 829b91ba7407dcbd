/* needs: parts */
#pragma once
/* tests: system/stages/branch_ends, system/inputs/agree */
#include "inputs/found.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-over       HOW AN EPOCH OF SEVERAL BRANCHES HAS ENDED
   An epoch without steps_per_epoch ends when a branch is out. If that branch had no item at all,
   the epoch was none, and is an error. If most items of the others are left, this is told: the
   weights, or a filter, are probably not as they were meant.

   Only what was given decides here, and which branch the streams lacked that had too few rows. So
   workers and times do not. Other streams may have rows for more batches before they come to that
   branch. So the scheduler waits until it is known if the branch had an item (dlpi_over_waits).

   An epoch that was resumed, or sought, inside is not judged. A rank of several knows only its own
   inputs. A branch of few inputs may have items on other ranks, so it is no error there. */

#define DLPI_OVER_INPUTS 1000u /* inputs without an item that prove it for a rank of several */

typedef struct dlpi_over_sum {
    uint64_t inputs, items; /* inputs of an epoch; items of those whose count is known */
    uint64_t came, all;     /* items that were given; items of all inputs, about */
} dlpi_over_sum;

/* Add the numbers of a branch in the present epoch to *to. Inputs that were not loaded count as
   having as many items as the others, or one item if none was loaded. */
DLPI_COLD static void dlpi_over_add(const dlpi_found *b, dlpi_over_sum *to) {
    for (uint32_t i = 0; i < b->cursors.n; i++) {
        const dlpi_found_stream *x = &b->streams[i];
        const uint64_t each = dlpi_found_inputs(&b->plan, b->cursors.first + (uint64_t)i);
        const bool now = x->pass_epoch == b->epoch;
        const uint64_t known = now ? x->pass_next : 0, items = now ? x->pass_items : 0;
        const double one = known > 0 ? (double)items / (double)known : 1;
        to->inputs += each;
        to->items += items > x->rows ? items : x->rows;
        to->came += items > x->rows ? items - x->rows : 0;
        to->all += known == each ? items : (uint64_t)(one * (double)each);
    }
}

/* Fail the pipe, since branch b has inputs and had no item in an epoch. Returns the code. */
DLPI_COLD static int dlpi_over_none(dlp_pipe *p, const dlpi_found *b, uint64_t inputs) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_CALLBACK, "parts",
                   "branch \"%s\" has no item: its %" PRIu64 " inputs made none in this epoch; "
                   "let it keep some",
                   b->name, inputs);
    return dlpi_found_fails(p, b->name, &e);
}

/* Look at how the epoch of several branches has ended. Returns 0, or a DLP_ERR code if a branch had
   no item. */
DLPI_COLD static int dlpi_over_judge(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_over_sum own = {0, 0, 0, 0}, sum = {0, 0, 0, 0};
    dlpi_found_early *e = &q->early;
    const dlpi_found *by;
    bool alone;
    q->judged = true;
    if (q->next == NULL || q->arrives || !q->whole) return DLP_OK;
    if ((by = dlpi_over_by(q, 0, &alone)) == NULL) return DLP_OK;
    dlpi_over_add(by, &own);
    for (uint32_t i = 0; i < by->cursors.n; i++) alone &= dlpi_found_out(by, &by->streams[i]);
    if (alone && own.items == 0 && (p->world == 1 || own.inputs >= DLPI_OVER_INPUTS))
        return dlpi_over_none(p, by, own.inputs);
    for (const dlpi_found *b = q->next; b != NULL; b = b->next) dlpi_over_add(b, &sum);
    if (e->there != 0 || sum.came >= sum.all / 10) return DLP_OK;
    e->epoch = q->epoch;
    e->came = sum.came;
    e->all = sum.all;
    e->name = by->name;
    dlpi_credit_publish_quiet(&e->there, 1); /* V1 -> V1 */
    return DLP_OK;
}

/* By the consumer, at the end of an epoch: warn if this epoch, or one before, ended early. */
DLPI_COLD static void dlpi_found_tell(dlp_pipe *p) {
    dlpi_found_early *e = &dlpi_found_of(p)->early;
    if (e->told || dlpi_credit_seen(&e->there) == 0 || e->epoch > p->epoch_now) return; /* V1 */
    e->told = true;
    dlpi_warn(p,
              "epoch %" PRIu64 " ended after %" PRIu64 " of about %" PRIu64 " items, when branch "
              "\"%s\" was out; set steps_per_epoch, or look at this branch",
              e->epoch, e->came, e->all, e->name);
}

/* True if this rank has no item left in the epoch. */
static bool dlpi_over_here(const dlpi_found *q) {
    for (uint32_t i = 0; i < q->cursors.n; i++) {
        const dlpi_found *b = dlpi_found_lacks(q, i);
        if (dlpi_found_rows_left(q, &q->streams[i]) > 0) return false;
        if (!dlpi_found_out(b, &b->streams[i])) return false;
    }
    return true;
}

/* Set *rows to the rows of the next global batch; 0: the epoch ends before it. Returns 0 or a
   DLP_ERR code, also if an epoch would end without a batch. */
static int dlpi_found_rows(dlp_pipe *p, uint64_t *rows) {
    dlpi_found *q = dlpi_found_of(p);
    const dlpi_scheduler *f = &p->schedule;
    int rc;
    dlpi_found_now(p);
    if ((rc = dlpi_found_learn(p)) != DLP_OK) return rc;
    *rows = p->global_batch;
    if (q->plan.steps)
        *rows = f->in_epoch < q->plan.steps ? p->global_batch : 0;
    else
        dlpi_found_batch(p, 0, rows);
    if (q->plan.steps == 0 && !q->judged && (*rows == 0 || (q->all_items && dlpi_over_here(q))))
        if ((rc = dlpi_over_judge(p)) != DLP_OK) return rc;
    if (*rows > 0 || f->in_epoch > 0 || q->arrives) return DLP_OK;
    return dlpi_found_fail(p, DLP_ERR_CALLBACK, "the inputs have no %s in this epoch",
                           p->last == DLP_LAST_DROP ? "full batch of items" : "item");
}
