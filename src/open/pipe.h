#pragma once
/* tests: system/core/pipe_basic, system/core/pipe_badinput, system/core/any_thread */
#include "report/text.h"
#include "report/stats.h"
#include "build/close.h"
#include "open/ranks.h" /* needs: ranks */
#include "open/warn.h"
DLPI_COLD DLPDEF int dlp_pipe_plan(dlp_pipe *p, dlp_plan *out) {
    const int rc = p == NULL || out == NULL ? DLP_ERR_ARG : dlpi_plan(p, out);
    if (rc == DLP_OK && p->warnings.rooms > 0)
        dlpi_copy_text(out->rooms, sizeof out->rooms, p->warnings.text[p->warnings.rooms - 1]);
    return rc;
}

DLPI_COLD DLPDEF int dlp_plan_format(const dlp_plan *plan, char *buf, size_t size) {
    const uint64_t most = dlpi_memory_limit();
    dlpi_text t = {buf, size, 0};
    if (plan == NULL) return DLP_ERR_ARG;
    for (uint32_t i = 0; i < plan->n_lines; i++) {
        const dlp_plan_line *l = &plan->lines[i];
        dlpi_text_add(&t, "%-28s %8" PRIu64 " x %12" PRIu64 " = %14" PRIu64 " bytes\n", l->what,
                      l->count, l->bytes_each, l->bytes);
    }
    dlpi_text_add(&t, "%-28s %23s = %14" PRIu64 " bytes\n", "total", "", plan->total_bytes);
    for (uint32_t i = 0; i < plan->n_links; i++) {
        const dlp_link *l = &plan->links[i];
        char ends[80];
        const char *rule = l->rule == 0                   ? ""
                           : l->kind == DLP_LINK_CLAIM    ? ", in turns"
                           : l->rule == DLP_FULL_DROP_NEW ? ", keeps the oldest"
                           : l->rule == DLP_FULL_REFUSE   ? ", refuses what is new"
                                                          : ", keeps the newest";
        snprintf(ends, sizeof ends, "%.31s -> %.31s", l->from, l->to);
        dlpi_text_add(
            &t, "link %-32s %-6s %3d to %3d, %6" PRIu64 " records, %10" PRIu64 " bytes%s\n", ends,
            dlp_link_name(l->kind), (int)l->writers, (int)l->readers, l->capacity, l->bytes, rule);
    }
    dlpi_text_add(&t, "order: %s\nrandom: %s\nstate: %s\n", plan->order, plan->random, plan->state);
    if (plan->rooms[0] != 0) dlpi_text_add(&t, "rooms: %s\n", plan->rooms);
    dlpi_text_add(&t, "system: " DLPI_SYSTEM ", CPUs allowed: %d, ", dlpi_cpu_count());
    if (most == UINT64_MAX)
        dlpi_text_add(&t, "no limit of memory known\n");
    else
        dlpi_text_add(&t, "limit of memory: %" PRIu64 " bytes\n", most);
    return dlpi_text_length(&t);
}

/* The error of a call that the pipe has refused to the calling thread. The record is not in the
   pipe: another thread may be inside, and the pipe's errors are that thread's. */
static _Thread_local struct {
    const dlp_pipe *of; /* the pipe, which is only compared; NULL: no call was refused */
    dlp_error err;
} dlpi_refused;

/* Refuse a call. dlp_pipe_error tells the calling thread why, until next has let it in.
   why: NULL: another call is under way. Returns code. pace.refused only saves other threads a look
   at their records: a thread that has a record sees its own store. */
DLPI_COLD static int dlpi_call_refuse(dlp_pipe *p, int code, const char *why) {
    dlpi_refused.of = p;
    if (p != NULL) DLPI_STORE_RLX(&p->pace.refused, (uint8_t)1); /* a hint */
    return dlpi_error_set(
        &dlpi_refused.err, code, "pipe", "%s",
        why != NULL ? why : "another thread is in a call of the pipe, or its callback calls");
}

/* Begin a call of the consumer. Returns false if another call is under way: one that runs the
   callback which calls, or one of another thread. So two threads cannot be the consumer at once.
   M2     pace.inside   the exchange lets one thread in, and shows it what calls before have done
 */
static inline bool dlpi_enter(dlp_pipe *p) {
    return DLPI_XCHG_SEQ(&p->pace.inside, (uint8_t)1) == 0; /* M2 <- M2 */
}

static inline void dlpi_leave(dlp_pipe *p) {
    DLPI_STORE_REL(&p->pace.inside, (uint8_t)0); /* M2 -> M2 */
}

DLPI_COLD DLPDEF int dlp_pipe_start(dlp_pipe *p) {
    int rc;
    if (p == NULL) return DLP_ERR_ARG;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->started || !dlpi_enter(p)) return DLP_ERR_STATE;
    if ((rc = dlpi_start(p)) == DLP_OK) {
        dlpi_ranks_warn(p); /* needs: ranks */
        dlpi_warn_short(p, p->samples, p->global_batch);
    }
    dlpi_leave(p);
    return rc;
}

/* Set the error that the consumer holds all batches that it may, and return DLP_ERR_HELD. It is no
   error of the pipe: it is told until a batch is released. */
DLPI_COLD static int dlpi_held_fail(dlp_pipe *p) {
    return dlpi_error_set(&p->call_err, DLP_ERR_HELD, "max_held",
                          "%" PRIu64 " %s held, max_held is %" PRIu32 ": release %s first",
                          p->n_lent, p->n_lent == 1 ? "batch is" : "batches are", p->max_held,
                          p->n_lent == 1 ? "it" : "one");
}

DLPDEF int dlp_pipe_next(dlp_pipe *p, dlp_batch **out) { return dlp_pipe_next_timeout(p, out, -1); }

/* Return DLP_OK if batches may be taken from the pipe, else DLP_ERR_STATE or DLP_ERR_FORKED. */
static int dlpi_may_take(const dlp_pipe *p) {
    if (!p->started || p->closing) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    return p->used_at_first == 0 ? DLP_ERR_STATE : DLP_OK; /* subscribers have all */
}

/* Take the next batch, in a call of the consumer that has begun. */
DLPI_INLINE int dlpi_next_inside(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    int rc;
    if (DLPI_UNLIKELY(p->exports.n > 0)) p->exports.ops->sweep(p);
    if (p->err.code != 0) return p->err.code;
    if (dlpi_stopped(p)) return DLP_STOPPED;
    if (p->n_lent >= p->max_held) return dlpi_held_fail(p);
    p->call_err.code = 0;
    rc = p->epoch_end_due ? dlpi_epoch_due_code(p) : dlpi_next(p, out, timeout_ms);
    if (rc == DLP_OK) dlpi_warn_batch(p, *out);
    if (DLPI_UNLIKELY(rc == DLP_END)) rc = dlpi_valid_end(p);
    return rc;
}

DLPDEF int dlp_pipe_next_timeout(dlp_pipe *p, dlp_batch **out, int timeout_ms) {
    int rc;
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if ((rc = dlpi_may_take(p)) != DLP_OK) return rc;
    if (!dlpi_enter(p)) return dlpi_call_refuse(p, DLP_ERR_STATE, NULL);
    rc = dlpi_next_inside(p, out, timeout_ms);
    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&p->pace.refused) != 0)) dlpi_refused.of = NULL; /* a hint */
    dlpi_leave(p);
    return rc;
}

/* Give batch s back. A batch that was given away as tensors goes back with the last tensor. Returns
   DLP_OK. */
static inline int dlpi_batch_back(dlp_pipe *p, uint32_t s) {
    if (DLPI_UNLIKELY(p->exports.ops != NULL)) return p->exports.ops->release(p, s);
    dlpi_give_back(p, s);
    return DLP_OK;
}

DLPDEF int dlp_pipe_release(dlp_pipe *p, dlp_batch *batch) {
    uint32_t s;
    int rc;
    if (p == NULL || batch == NULL || !p->started) return DLP_ERR_ARG;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (DLPI_LOAD_RLX(&p->pace.inside)) /* M2 of this thread, or a hint */
        return dlpi_call_refuse(p, DLP_ERR_STATE, NULL);
    s = dlpi_lent_slot(p, batch);
    if (s == DLPI_NO_SLOT) return DLP_ERR_ARG;
    if (p->bare || p->closing) return dlpi_batch_back(p, s); /* no callback; may free p */
    if (!dlpi_enter(p)) return dlpi_call_refuse(p, DLP_ERR_STATE, NULL);
    rc = dlpi_batch_back(p, s);
    dlpi_leave(p);
    return rc;
}

DLPI_COLD DLPDEF int dlp_pipe_next_epoch(dlp_pipe *p) {
    int rc;
    if (p == NULL) return DLP_ERR_ARG;
    if ((rc = dlpi_may_take(p)) != DLP_OK) return rc;
    if (!dlpi_enter(p)) return dlpi_call_refuse(p, DLP_ERR_STATE, NULL);
    if ((rc = p->err.code) == DLP_OK) p->epoch_end_due &= DLPI_DUE_NONE;
    if (rc == DLP_OK && p->epoch_open) {
        dlpi_valid_begin(p, false);
        dlpi_epoch_leave(p, p->epoch_now);
        dlpi_schedule_inline(p, 1);
    }
    dlpi_leave(p);
    return rc;
}

DLPI_COLD DLPDEF int dlp_pipe_seek(dlp_pipe *p, const dlp_state *state, dlp_error *err) {
    dlpi_state s;
    int rc;
    if (p == NULL || state == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, p ? "state" : "pipe", "pipe or state is NULL");
    if (!p->started || p->closing)
        return dlpi_error_set(err, DLP_ERR_STATE, "", "the pipe was not started, or is closed");
    if (DLPI_LOAD_RLX(&p->pace.inside)) /* M2 of this thread, or a hint */
        return dlpi_error_set(err, DLP_ERR_STATE, "", "a callback of the pipe may not seek");
    if (dlpi_forked(p))
        return dlpi_error_set(err, DLP_ERR_FORKED, "", "the pipe is another process's");
    if (dlpi_is_shared(p))
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, p->sharing->words,
                              "a pipe with %s cannot seek; open one with resume",
                              p->sharing->words);
    if (p->err.code != 0) {
        if (err) *err = p->err;
        return p->err.code;
    }
    if (p->seeks >= DLPI_SEEKS_MAX)
        return dlpi_error_set(err, DLP_ERR_STATE, "", "%u seeks without a batch between them",
                              DLPI_SEEKS_MAX);
    if ((rc = dlpi_state_check_all(p, state, &s, "state", err)) != DLP_OK) return rc;
    dlpi_state_unknown(p, &s);
    if (!dlpi_enter(p))
        return dlpi_error_set(err, DLP_ERR_STATE, "", "another thread uses the pipe");
    dlpi_seek(p, &s);
    dlpi_leave(p);
    dlpi_valid_begin(p, p->epoch_open != 0);
    return DLP_OK;
}

DLPI_COLD DLPDEF int dlp_pipe_state_at(const dlp_pipe *p, uint64_t epoch, uint64_t batch,
                                       dlp_state *out) {
    dlpi_state s;
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->started) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (epoch >= DLPI_MAX_EPOCH || batch >= dlpi_epoch_most(p)) return DLP_ERR_ARG;
    dlpi_state_config(p, &s);
    s.epoch = epoch;
    s.batch = batch;
    if (p->source->state == dlpi_source_stateless)
        s.position = p->lender->position(p, epoch, batch);
    if (p->source->no_state_at && batch > 0) return DLP_ERR_UNSUPPORTED;
    dlpi_state_give(&s, out);
    return DLP_OK;
}

DLPI_COLD DLPDEF void dlp_pipe_stop(dlp_pipe *p) {
    int saved = errno;
    if (p == NULL) return;
    DLPI_STORE_SEQ(&p->stop_asked, 1u);     /* S2 -> S2 */
    if (DLPI_LOAD_SEQ(&p->can_wake) != 0 && /* S2 <- S2: what start made is there, */
        (!dlpi_forked(p) || p->in_worker))  /* and may be asked whose it is */
        dlpi_stop_now(p);
    errno = saved;
}

DLPI_COLD DLPDEF int dlp_pipe_close(dlp_pipe *p) {
    if (p == NULL) return DLP_OK;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->closing == 2) return DLP_OK; /* what is out keeps it, and frees it */
    if (!dlpi_enter(p)) return dlpi_call_refuse(p, DLP_ERR_BUSY, NULL);
    dlpi_refused.of = NULL; /* what keeps this call busy is in the pipe's record */
    if (p->exports.ops == NULL && !p->closing && p->n_lent > 0) /* not given away on purpose */
        dlpi_warn(p, "close: %" PRIu64 " %s held: the pipe's memory goes with the last release",
                  p->n_lent, p->n_lent == 1 ? "batch is" : "batches are");
    dlpi_leave(p);
    return p->exports.ops != NULL ? p->exports.ops->close(p) : dlpi_close(p);
}

DLPI_COLD DLPDEF const dlp_error *dlp_pipe_error(const dlp_pipe *p) {
    if (p == NULL) dlpi_call_refuse(NULL, DLP_ERR_ARG, "the pipe is NULL");
    if (p == NULL || (DLPI_LOAD_RLX(&p->pace.refused) != 0 && dlpi_refused.of == p)) /* a hint */
        return &dlpi_refused.err;
    if (p->err.code != 0 || p->call_err.code == 0) return &p->err;
    return p->call_err.code == DLP_ERR_HELD && p->n_lent < p->max_held ? &p->err : &p->call_err;
}

DLPI_COLD DLPDEF const char *dlp_pipe_warning(const dlp_pipe *p, int i) {
    return p != NULL && i >= 0 && (uint64_t)i < p->warnings.n ? p->warnings.text[i] : NULL;
}

DLPDEF int dlp_pipe_state(dlp_pipe *p, const dlp_batch *batch, dlp_state *out) {
    dlpi_state s;
    uint32_t slot = 0;
    if (p == NULL || out == NULL) return DLP_ERR_ARG;
    if (!p->started) return DLP_ERR_STATE;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->used_at_first == 0) return DLP_ERR_STATE; /* subscribers have all: which is how far? */
    if (batch != NULL && (slot = dlpi_lent_slot(p, batch)) == DLPI_NO_SLOT) return DLP_ERR_ARG;
    dlpi_state_config(p, &s);
    if (batch == NULL || p->d.unordered)
        dlpi_state_now(p, &s);
    else
        p->lender->state(p, slot, &s);
    s.end_due = (p->epoch_end_due & DLPI_DUE_END) && s.epoch == p->after.spot.epoch && s.batch == 0;
    if (s.sampler_bytes > DLP_SAMPLER_STATE_BYTES) return DLP_ERR_UNSUPPORTED;
    dlpi_state_give(&s, out);
    return DLP_OK;
}

DLPI_COLD DLPDEF int64_t dlp_pipe_batches_per_epoch(const dlp_pipe *p) {
    if (p == NULL || !p->started || p->batches_per_epoch == UINT64_MAX) return -1;
    return (int64_t)dlpi_epoch_batches(p);
}
