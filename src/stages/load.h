#pragma once
#include "stages/parts.h"
#include "core/recover.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-load       PART QUEUE: WORKERS LOAD PARTS
   A unit of this stage is a cell with an open ticket, the oldest first (see >>impl-parts). */

/* When an open cell may be tried; 0: now. */
static inline uint64_t dlpi_part_due(const dlpi_pcell *cell) {
    return DLPI_LOAD_RLX(&cell->due_ns); /* ordered by state, or of a ticket that is past */
}

static bool dlpi_part_find(dlpi_worker *w, dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    for (;;) {
        uint64_t oldest = 0, now = 0, mine;
        for (uint32_t c = 0; c < p->part_cells; c++) {
            const dlpi_pcell *cell = dlpi_pcell_at(p, c);
            uint64_t state = DLPI_LOAD_SEQ(&cell->state), due; /* Q1 <- Q1, B1 */
            if (dlpi_gen_low(state) != DLPI_PART_OPEN) continue;
            if (oldest != 0 && dlpi_older(dlpi_gen(oldest), dlpi_gen(state))) continue;
            if ((due = dlpi_part_due(cell)) != 0) {
                if (now == 0) now = dlpi_now_ns();
                if (due > now) continue;
            }
            oldest = state;
            t->slot = c;
        }
        if (oldest == 0) return false;
        t->b = dlpi_gen(oldest);
        t->unit = t->row = t->end = 0;
        t->plain = false;
        mine = dlpi_gen_word(t->b, (uint64_t)w->global + 1u);
        if (DLPI_CAS_SEQ(&dlpi_pcell_at(p, t->slot)->state, &oldest, mine)) return true; /* Q1 */
    }
}

/* ns until a part may be tried again, at most ns. */
static uint64_t dlpi_parts_due(dlpi_worker *w, uint64_t ns) {
    const dlp_pipe *p = w->p;
    for (uint32_t c = 0; c < p->part_cells; c++) {
        const dlpi_pcell *cell = dlpi_pcell_at(p, c);
        uint64_t due, now;
        if (dlpi_gen_low(DLPI_LOAD_ACQ(&cell->state)) != DLPI_PART_OPEN) continue; /* Q1 <- Q1 */
        if ((due = dlpi_part_due(cell)) == 0) continue;
        now = dlpi_now_ns();
        if (due <= now) return 0;
        if (due - now < ns) ns = due - now;
    }
    return ns;
}

/* Who killed its workers too often, or held one past its deadline, has failed. */
static int dlpi_part_verdict(dlpi_worker *w, const dlpi_pcell *cell) {
    uint32_t rec = cell->rec;
    if (rec & DLPI_REC_LATE)
        return dlpi_say(w, DLP_ERR_DEADLINE,
                        "the load ran past its deadline_ms %d, its worker was killed",
                        w->st->w.deadline_ms);
    if (dlpi_rec_kills(rec) < w->p->max_kills) return 0;
    return dlpi_say(w, DLP_ERR_KILLED,
                    "the loading process died %u times here, the last time by %s",
                    dlpi_rec_kills(rec), dlpi_signal_text(cell->killed_by));
}

/* One try. Returns 0, or what is wrong. */
static int dlpi_part_try(dlpi_worker *w, uint32_t c, dlpi_pcell *cell) {
    dlp_part *part = &w->part;
    int rc = dlpi_part_verdict(w, cell);
    if (rc != 0) return rc;
    part->index = cell->part;
    part->data = dlpi_part_bytes(w->p, c);
    part->bytes = 0;
    part->capacity = w->st->part.max_part_bytes;
    part->items = cell->items;
    part->first = cell->first;
    part->item = 0;
    part->attempt = dlpi_rec_tries(cell->rec);
    part->worker = (uint32_t)w->id;
    part->worker_state = w->state;
    part->internal = w;
    rc = dlpi_item_returned(w, w->st->part.load(w->st->user, part));
    rc = dlpi_guard_part(w, cell->part, dlpi_part_bytes(w->p, c), rc);
    if (rc != 0) return rc;
    if (part->bytes > w->st->part.max_part_bytes)
        return dlpi_say(w, DLP_ERR_LENGTH,
                        "load set bytes to %" PRIu64 ", max_part_bytes is %" PRIu64, part->bytes,
                        w->st->part.max_part_bytes);
    cell->bytes = part->bytes;
    return 0;
}

static void dlpi_part_error(const dlpi_worker *w, dlpi_pcell *cell, int code) {
    dlp_error e;
    dlpi_describe(w, code, &e);
    if (code == DLP_SKIP) e.code = DLP_SKIP;
    cell->error = e;
    snprintf(cell->error.message, sizeof e.message, "part %" PRIu64 ": %.220s", cell->part,
             e.message);
}

/* Try until it is loaded, has failed, or is to be tried later. Returns what the cell then is. */
static uint32_t dlpi_part_tries(dlpi_worker *w, uint32_t c, dlpi_pcell *cell) {
    for (;;) {
        uint32_t tries = dlpi_rec_tries(cell->rec);
        int rc;
        if (w->st->w.deadline_ms) DLPI_STORE_RLX(&w->wb->since_ns, dlpi_now_ns());
        DLPI_STORE_RLX(&w->wb->running, (uint64_t)c << 32 | UINT32_MAX); /* X2 to recovery */
        dlpi_words_forget(w);
        rc = dlpi_part_try(w, c, cell);
        DLPI_STORE_RLX(&w->wb->running, UINT64_C(0)); /* X2 */
        if (rc == 0) return DLPI_PART_LOADED;
        if (rc == DLP_SKIP || dlpi_never_again(rc) || (int)tries >= w->st->w.retries) {
            dlpi_part_error(w, cell, rc);
            dlpi_failure_forget(w);
            return DLPI_PART_FAILED;
        }
        dlpi_failure_forget(w);
        dlpi_bump(&w->wb->retried, 1);
        cell->rec = dlpi_rec(0, tries + 1, 0);
        if (dlpi_stopped(w->p)) return DLPI_PART_OPEN;
        if (w->st->w.retry_backoff_ms == 0) continue;
        DLPI_STORE_RLX(&cell->due_ns, /* ordered by state */
                       dlpi_now_ns() + dlpi_backoff_ns(w->st, tries + 1));
        return DLPI_PART_OPEN;
    }
}

/* Load the part of a cell that is ours, and tell the feeder. */
static void dlpi_part_run(dlpi_worker *w, const dlpi_unit *t) {
    dlp_pipe *p = w->p;
    dlpi_pcell *cell = dlpi_pcell_at(p, t->slot);
    uint64_t part = cell->part, epoch = cell->epoch, bytes;
    uint32_t what;
    dlpi_clock_in(w);
    DLPI_STORE_RLX(&w->wb->current, part); /* for observers */
    what = dlpi_part_tries(w, t->slot, cell);
    bytes = cell->bytes;
    if (what == DLPI_PART_LOADED) {
        dlpi_bump(&w->wb->items, 1);
        dlpi_bump(&w->wb->bytes, bytes);
    }
    dlpi_clock_out(w, part, epoch, 1);
    DLPI_STORE_SEQ(&cell->state, dlpi_gen_word(t->b, what)); /* Q1 -> Q1, B1 */
    if (what == DLPI_PART_OPEN) return; /* its time comes, and who sleeps first looks at it */
    DLPI_ADD_SEQ(&p->ctl->part_loads, UINT64_C(1)); /* Q2 -> Q2 */
    if (p->sampler->sampler.threaded)
        dlpi_ring_feeder(p->ctl);
    else
        dlpi_ring_caller(p->ctl, UINT64_MAX);
}

/* What a dead part worker had: its part is loaded by another one. */
static void dlpi_part_recover(dlpi_worker *w, const dlpi_death *why) {
    const dlp_pipe *p = w->p;
    for (uint32_t c = 0; c < p->part_cells; c++) {
        dlpi_pcell *cell = dlpi_pcell_at(p, c);
        uint64_t state = DLPI_LOAD_SEQ(&cell->state); /* Q1 <- Q1 */
        dlpi_unit t = {dlpi_gen(state), c, 0, 0, 0, false};
        bool ran = DLPI_LOAD_RLX(&w->wb->running) == ((uint64_t)c << 32 | UINT32_MAX); /* X2 */
        if (dlpi_gen_low(state) != (uint32_t)w->global + 1u) continue;
        dlpi_held_note(why, ran, &t, 1);
        if (ran) {
            cell->killed_by = why->signal;
            cell->rec = dlpi_rec_killed(cell->rec, (uint32_t)w->st->work, why->late);
        }
        DLPI_STORE_SEQ(&cell->state, dlpi_gen_word(dlpi_gen(state), DLPI_PART_OPEN)); /* Q1 -> Q1 */
    }
    /* Q2 -> Q2: it may have died behind LOADED, before this */
    DLPI_ADD_SEQ(&p->ctl->part_loads, UINT64_C(1));
}

static bool dlpi_part_step(dlpi_worker *w) {
    dlpi_unit t;
    if (!dlpi_part_find(w, &t)) return false;
    dlpi_part_run(w, &t);
    return true;
}

static const dlpi_stage_ops dlpi_parts_ops = {
    .kind = DLP_STAGE_PARTS,
    .rank = 3,
    .unit = DLPI_UNIT_CELLS,
    .step = dlpi_part_step,
    .find = dlpi_part_find,
    .run = dlpi_part_run,
    .due = dlpi_parts_due,
    .recover = dlpi_part_recover,
    .seen = dlpi_parts_seen,
};
