#pragma once
/* tests: system/core/pipe_close, system/core/pipe_fault */
#include "build/start.h"
/* ---- close ---- */

/* Tell all threads and processes of the pipe to stop, and wake the sleeping ones. Any thread and a
   signal handler may call this. */
static void dlpi_stop_now(dlp_pipe *p) {
    DLPI_STORE_SEQ(&p->ctl->stop, 1u); /* S1 -> S1 */
    dlpi_wake_all(p);
    p->beside->nudge(p);
}

/* Free the records of all stages, and of a stage that was refused when it was added. The blocks of
   one stage may depend on the record of another. So every block is freed before the first
   record. */
static void dlpi_selves_free(dlp_pipe *p) {
    for (int i = 0; i < DLP_MAX_STAGES; i++)
        if (p->stages[i].self != NULL) dlpi_blocks_have(p, &p->stages[i], false);
    for (int i = 0; i < DLP_MAX_STAGES; i++) {
        free(p->stages[i].affinity);
        free(p->stages[i].fields);
        free(p->stages[i].self);
    }
}

/* Free the pipe and all memory that it has. Nobody uses the pipe any more. */
static void dlpi_free_all(dlp_pipe *p) {
    for (int i = 0; p->workers && i < p->n_stages; i++)
        if (p->stages[i].ops->end != NULL) p->stages[i].ops->end(p, &p->stages[i]);
    p->beside->end(p);
    dlpi_unpoison_all(p);
    if (p->region) dlpi_pages_free(p->region, p->region_bytes);
    if (p->alive) dlpi_pages_free(p->alive, 4096);
    dlpi_handle_close(p->memfd);
    if (p->budget_bytes) DLPI_ADD_SEQ(&p->d.budget->used_bytes, 0 - p->budget_bytes); /* M1 */
    free(p->exports.slots);
    dlpi_blocks_have(p, NULL, false); /* the source, which a stage may keep, says how many bytes */
    dlpi_selves_free(p);
    free(p);
}

/* Free the pipe, with which the consumer is done. If other users of its memory are left (outs), the
   last of them frees it. */
static void dlpi_free(dlp_pipe *p) {
    if (p->sharing->leave(p)) dlpi_free_all(p);
}

/* Stop the pipe, and wait close_timeout_ms for its threads and processes to end. Returns DLP_OK, or
   DLP_ERR_BUSY if a callback has not returned. Then the caller may try again. */
static int dlpi_shut(dlp_pipe *p) {
    const int32_t ms = p->d.close_timeout_ms;
    uint64_t ns = ms ? (uint64_t)ms * 1000000u : UINT64_C(5000000000);
    if (ms < 0) ns = ms == DLP_FOREVER ? UINT64_MAX : 0; /* DLP_NOWAIT */
    if (p->closing == 0) p->closing = 1;
    if (p->ctl) {
        dlpi_stop_now(p);
        p->beside->await(p);
        if (!dlpi_await_threads(p, ns)) return dlpi_busy(p);
        p->pace.inside = 1; /* worker_exit of inline stages */
        dlpi_close_rest(p);
        p->pace.inside = 0;
    }
    p->closing = 2;
    return DLP_OK;
}

/* Stop the pipe, and free it if the consumer holds no batch; else the release of the last batch
   frees it. Returns DLP_OK, or DLP_ERR_BUSY if a callback has not returned. */
static int dlpi_close(dlp_pipe *p) {
    int rc = dlpi_shut(p);
    if (rc == DLP_OK && p->n_lent == 0) dlpi_free(p);
    return rc;
}

/* Take back batch (or view) s, with which the consumer is done. The scheduler gets the slot. If the
   pipe is shut and this was the last held batch, free the pipe. */
DLPI_INLINE void dlpi_give_back(dlp_pipe *p, uint32_t s) {
    p->lent[s] = 0;
    p->n_lent--;
    DLPI_STORE_RLX(&p->ctl->held, p->n_lent); /* statistics */
    if (DLPI_UNLIKELY(p->closing != 0)) {
        if (p->n_lent == 0 && p->closing == 2) dlpi_free(p); /* else close is called again */
        return;
    }
    dlpi_poison(p, s);
    if (p->lends) {
        p->lender->drop(p, s);
    } else { /* without a call: it is that of each batch */
        dlpi_prefetch_write(&dlpi_slot_at(p, s)->header); /* the scheduler writes there next */
        dlpi_slot_release(p, s);
    }
    if (!p->bare) dlpi_schedule_inline(p, p->pace.burst);
}
