#pragma once
/* tests: system/core/pipe_errors, system/core/pipe_close */
#include "wait/waiters.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-fail       FIRST CAUSES */

/* True if the dataset's fetch is its reader's own, so dataset.user is the reader's record. */
static bool dlpi_reader_wired(const dlp_dataset *d) {
    return d->reader != NULL && d->fetch == d->reader->fetch;
}

/* Make e the pipe's error, unless it has one: the first one stays. By the consumer's thread.
   Returns the code of the pipe's error. */
DLPI_COLD static int dlpi_pipe_fail(dlp_pipe *p, const dlp_error *e) {
    const dlpi_stage *st = p->fetch;
    if (p->err.code != 0) return p->err.code;
    p->err = *e;
    if (st != NULL && dlpi_reader_wired(st->dataset))
        st->dataset->reader->failed(st->dataset->user, p);
    return p->err.code;
}

/* Make the failure of a system call the pipe's error. A call for memory that fails for another
   reason, such as a rule that forbids it, is DLP_ERR_SYSTEM. Returns the error's code. */
DLPI_COLD static int dlpi_system_fail(dlp_pipe *p, int code, int errnum, const char *call) {
    dlp_error e;
    if (code == DLP_ERR_MEMORY && errnum != ENOMEM && errnum != ENOSPC && errnum != EAGAIN)
        code = DLP_ERR_SYSTEM;
    dlpi_error_set(&e, code, "", "%s failed: %s", call, strerror(errnum));
    e.errnum = errnum;
    return dlpi_pipe_fail(p, &e);
}

/* Write an error that belongs to no batch (a worker's init, the sampler) into the region. who: the
   worker that writes, DLPI_BY_SCHEDULER, or DLPI_NOBODY for a writer whose death ends the pipe. */
DLPI_COLD static void dlpi_ctl_fail(dlp_pipe *p, uint32_t who, const dlp_error *e) {
    if (dlpi_first_take(&p->ctl->error_claim, who + 1u)) { /* E1: the first one stays */
        p->ctl->error = *e;
        dlpi_first_publish(&p->ctl->error_ready); /* E1 -> E1 */
    } else if (who != DLPI_BY_SCHEDULER) {
        dlpi_first_publish(&p->ctl->error_more); /* E1 -> E1 */
    }
    dlpi_wake_consumer(p->ctl, UINT64_MAX);
}

/* True if `next` must return the region's error now. An error of the scheduler comes after all
   batches that were fed before (over: they are delivered), unless somebody else has failed, too:
   then they may never come. */
static inline bool dlpi_error_due(const dlpi_ctl *ctl, bool over) {
    if (DLPI_LIKELY(dlpi_first_seen(&ctl->error_ready) == 0)) return false; /* E1 <- E1 */
    return over ||
           DLPI_LOAD_RLX(&ctl->error_claim) != DLPI_BY_SCHEDULER + 1u || /* E1: before ready */
           dlpi_first_seen(&ctl->error_more) != 0;                       /* E1 <- E1 */
}

/* Write the error of a row, or of the whole batch, into its slot; `next` reports it when it reaches
   the batch. The first one stays. Should its writer die half-way, dlpi_recover_errors ends it. */
DLPI_COLD static void dlpi_slot_fail(dlpi_bslot *s, uint32_t who, const dlp_error *e) {
    if (!dlpi_first_take(&s->failed, who + 2u)) return; /* F1: the first one stays */
    s->error = *e;
    dlpi_first_publish_quiet(&s->failed); /* F1 -> F1; ordered before ready by done */
}

/* Put an item that was replaced by the item of new_index, or left out, into the list that
   dlp_pipe_skips reads. e describes it. The list knows stages alone, so the words name a row that
   runs in an attempt of the stage st. The words of the first one are kept apart, too. */
DLPI_COLD static void dlpi_skip_put(dlpi_ctl *ctl, const dlpi_stage *st, const dlp_error *e,
                                    int code, uint64_t new_index) {
    const bool other = strcmp(e->stage, st->name) != 0;
    uint64_t words[DLPI_SKIP_WORDS] = {0};
    uint64_t n = DLPI_ADD_SEQ(&ctl->skips, UINT64_C(1)); /* K1: a place in the ring of its own */
    dlpi_skip *k = &ctl->skip_ring[n % DLPI_SKIP_RING];
    snprintf((char *)words, sizeof words, other ? "node \"%.31s\": %.80s" : "%.0s%.127s", e->stage,
             e->message);
    DLPI_STORE_RLX(&k->code, 0);
    DLPI_STORE_RLX(&k->epoch, e->epoch);
    DLPI_STORE_RLX(&k->position, e->position);
    DLPI_STORE_RLX(&k->index, e->index);
    DLPI_STORE_RLX(&k->new_index, new_index);
    DLPI_STORE_RLX(&k->errnum, e->errnum);
    DLPI_STORE_RLX(&k->stage, st->id);
    DLPI_STORE_RLX(&k->worker, e->worker);
    for (size_t i = 0; i < DLPI_SKIP_WORDS; i++)
        DLPI_STORE_RLX(&ctl->skip_words[n % DLPI_SKIP_RING][i], words[i]); /* K1: before code */
    DLPI_STORE_REL(&k->code, code); /* K1 -> K1: 0 while it is written */
    if (n != 0) return;
    ctl->first_skip = *e;
    dlpi_copy_text(ctl->first_skip.message, sizeof e->message, (char *)words);
    dlpi_first_publish_quiet(&ctl->first_ready); /* K3 -> K3 */
}

/* Read entry n of the list of left-out and replaced items. False: it is being written. */
static bool dlpi_skip_read(const dlpi_ctl *ctl, uint64_t n, dlp_skip *to) {
    const dlpi_skip *k = &ctl->skip_ring[n % DLPI_SKIP_RING];
    uint64_t words[DLPI_SKIP_WORDS];
    if (DLPI_LOAD_ACQ(&k->code) == 0) return false; /* K1 <- K1 */
    to->epoch = DLPI_LOAD_RLX(&k->epoch);
    to->position = DLPI_LOAD_RLX(&k->position);
    to->index = DLPI_LOAD_RLX(&k->index);
    to->new_index = DLPI_LOAD_RLX(&k->new_index);
    to->errnum = DLPI_LOAD_RLX(&k->errnum);
    to->stage = DLPI_LOAD_RLX(&k->stage);
    to->worker = DLPI_LOAD_RLX(&k->worker);
    for (size_t i = 0; i < DLPI_SKIP_WORDS; i++)
        words[i] = DLPI_LOAD_RLX(&ctl->skip_words[n % DLPI_SKIP_RING][i]); /* K1 <- K1 */
    memcpy(to->message, words, sizeof words);
    to->message[sizeof words - 1] = 0;
    to->code = DLPI_LOAD_RLX(&k->code);
    return true;
}

/* Return how many items were left out or replaced; *from becomes the oldest one still listed. */
static uint64_t dlpi_skip_count(const dlpi_ctl *ctl, uint64_t *from) {
    uint64_t n = DLPI_LOAD_ACQ(&ctl->skips); /* K1 <- K1 */
    *from = n > DLPI_SKIP_RING ? n - DLPI_SKIP_RING : 0;
    return n;
}

/* Count n more failed items. True if they may be replaced or left out: all failed items of all
   stages together are at most max, or max is 0, which is no limit. */
static bool dlpi_failures_add(dlpi_ctl *ctl, uint64_t n, int64_t max) {
    uint64_t all = DLPI_ADD_SEQ(&ctl->failures, n) + n; /* K2 <-> K2 */
    return max == 0 || all <= (uint64_t)max;
}

/* Add to the message of e which item was the first one left out or replaced, if there is one. It
   may be the cause of e. */
static void dlpi_error_first(const dlpi_ctl *ctl, dlp_error *e) {
    char own[120];
    if (dlpi_first_look(&ctl->first_ready) == 0) return; /* K3 <- K3 */
    dlpi_copy_text(own, sizeof own, e->message);
    snprintf(e->message, sizeof e->message,
             "%s; the first left out or replaced was item %" PRIu64 ": %.80s", own,
             ctl->first_skip.index, ctl->first_skip.message);
}

/* Warn: print a text of at most 159 characters, keep it for dlp_pipe_explain, and give it to the
   log. The pipe keeps eight warnings. Only one thread may warn at a time. */
DLPI_PRINTF(2, 3) static void dlpi_warn(dlp_pipe *p, const char *format, ...) {
    char text[160];
    DLPI_PRINT(text, sizeof text, format);
    if (p->warnings.n < 8) {
        memcpy(p->warnings.text[p->warnings.n], text, sizeof text);
        dlpi_credit_publish_quiet(&p->warnings.n, p->warnings.n + 1); /* V1 -> V1: to explain */
    }
    if (p->d.log) p->d.log(p->d.log_user, text);
}

DLPDEF void dlp_log_stderr(void *user DLPI_UNREAD, const char *message) {
    fprintf(stderr, "dlpipe: %s\n", message);
}

DLPDEF int dlp_fail(dlp_call *call, int errnum, const char *format, ...) {
    if (call == NULL) return DLP_ERR_CALLBACK;
    DLPI_PRINT(call->message, sizeof((dlpi_worker_block *)0)->message, format);
    *call->errnum = errnum;
    if (call->w != NULL) /* else a source is tried without a pipe */
        call->said = (uint32_t)DLPI_LOAD_RLX(&call->w->block->running); /* X2, own */
    return DLP_ERR_CALLBACK;
}

/* Forget the words and errno that a callback of this worker said before, of another row. */
static void dlpi_words_forget(dlpi_worker *w) {
    w->block->message[0] = 0;
    w->block->message_errno = 0;
    w->note.said = 0;
    w->note.row = NULL;
}

/* Forget all of a failure: its words, the field that was wrong, and lengths that were set. */
static void dlpi_failure_forget(dlpi_worker *w) {
    dlpi_words_forget(w);
    w->bad_field = NULL;
    memset(w->length, 0, sizeof w->length);
}

/* Say in the library's words why what the worker has in hand fails. Returns code. */
DLPI_COLD DLPI_PRINTF(3, 4) static int dlpi_say(dlpi_worker *w, int code, const char *format, ...) {
    DLPI_PRINT(w->block->message, sizeof w->block->message, format);
    w->block->message_errno = 0;
    return code;
}

/* Return DLP_ERR_CALLBACK if a callback returned rc other than 0, else 0. What follows decides by
   the library's own codes (killed, past a deadline, over a budget). A callback's number must never
   be taken for one of them, so only here does such a number become a code. */
static int dlpi_returned(dlpi_worker *w, int rc) {
    w->returned = rc;
    return rc == 0 ? 0 : DLP_ERR_CALLBACK;
}

/* Write what an error says of a callback that returned rc and gave no words. */
DLPI_COLD static void dlpi_returned_text(char *to, size_t size, int rc) {
    const char *name = dlp_code_name(rc);
    bool known = strncmp(name, "DLP_", 4) == 0;
    snprintf(to, size, "the callback returned %d%s%s%s and gave no reason (dlp_fail)", rc,
             known ? " (" : "", known ? name : "", known ? ")" : "");
}

/* Fill *e with a failure of worker w. code: a DLP_ERR code, or another code that a callback
   returned. The message is the callback's own; if there is none, it tells what the callback
   returned. */
DLPI_COLD static void dlpi_describe(const dlpi_worker *w, int code, dlp_error *e) {
    memset(e, 0, sizeof *e);
    e->code = code < 0 ? code : DLP_ERR_CALLBACK;
    if (DLPI_DEBUG && code == DLPI_OVERRUN) e->code = DLP_ERR_CORRUPT;
    e->worker = w->id;
    e->errnum = w->block->message_errno;
    dlpi_copy_text(e->stage, sizeof e->stage,
                   w->note.row != NULL ? w->note.row->name : w->st->name);
    dlpi_copy_text(e->field, sizeof e->field, w->bad_field);
    if (w->block->message[0])
        dlpi_copy_text(e->message, sizeof e->message, w->block->message);
    else
        dlpi_returned_text(e->message, sizeof e->message, w->returned);
}

static void dlpi_error_item(dlp_error *e, uint64_t index, uint64_t epoch, uint64_t position) {
    e->has_item = 1;
    e->index = index;
    e->epoch = epoch;
    e->position = position;
}

/* Fill e with why the item that worker w has in hand fails with this code: the words of its
   callback, its index, epoch and position. The words have its index in its dataset of a mix. */
DLPI_COLD static void dlpi_describe_item(const dlpi_worker *w, int code, dlp_error *e) {
    char own[sizeof e->message];
    uint64_t first = w->st->scope.first;
    dlpi_describe(w, code, e);
    dlpi_error_item(e, w->item.index, w->item.epoch, w->item.position);
    if (first == 0) return;
    memcpy(own, e->message, sizeof own);
    snprintf(e->message, sizeof e->message, "item %" PRIu64 " of its dataset: %.200s",
             w->item.index - first, own);
}
