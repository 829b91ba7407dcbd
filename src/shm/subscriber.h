#pragma once
/* tests: system/shm/shm_subscriber, system/shm/shm_behind, model/model_subscribers */
#include "api/shm_subscriber.h"
#include "base/places.h"
#include "share/subscriber.h"
#include "shm/monitor.h"
#include "shm/supervisor.h"
#include "shm/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-impl-subscriber    WHO HOLDS WHAT
   label  atomic                  written by                    read by (partner)
   H1     share.over              scheduler                     serve, subscribers (H1)
   H5     taker[slot]             subscribers (CAS), scheduler  subscribers, scheduler (H5)
   H7     share.handed_back       scheduler, after H5           subscribers, before H5 (H7)
   H1 and H7 are an end and a counter of >>impl-credit, H5 is an owner word of >>impl-claims. The
   others stand in >>impl-share.

   A subscriber takes a place of the memory file (>>impl-places). Then it makes present odd, and the
   scheduler admits it at a batch: from there on it has each batch (>>impl-share). The scheduler
   sees a subscriber leave when present changes, or its lock is free. In DLP_SHARE_ONE a
   batch is claimed by a compare-and-swap on the slot's taker, as workers claim units, and handed
   back as units are freed again: with a number of its own.

   Which batch is the oldest that nobody has? A subscriber that waits must not read the words of all
   slots at each look. So it keeps a cursor. Each batch below the cursor was taken, or was handed
   back after the subscriber read the count handed_back. The cursor passes a batch if the batch's
   slot still has the batch's header (P1), and a taker that is not older (H5). A taken batch becomes
   free only when it is handed back. For that the scheduler stores the taker's word, then the count,
   then wakes all. So a subscriber that reads the old count looks again later. One that reads the
   new count sees the word. It then searches all slots. It also does so if the slot of the batch at
   the cursor has another batch by now. A batch that is ready is below the tail (T1), as its workers
   have read that tail. So a subscriber whose cursor is at the tail may sleep. */

#define DLPI_LOOK_NS UINT64_C(50000000)

_Static_assert((int)DLP_BEHIND_DROP_NEW == (int)DLP_FULL_DROP_NEW &&
                   (int)DLP_BEHIND_KEEP_NEWEST == (int)DLP_FULL_KEEP_NEWEST,
               "one word for both");

/* ---- the scheduler's side ---- */

static uint64_t *dlpi_shm_taker(dlpi_share *h, uint32_t s) {
    return (uint64_t *)(void *)((uint8_t *)h + h->takers_at) + s;
}

/* Free the batches that subscriber i took and did not give back, for other subscribers to take. */
static void dlpi_shm_hand_back(dlp_pipe *p, uint32_t i) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share *h = p->share;
    bool any = false;
    for (uint32_t k = 0; k < p->n_slots; k++) {
        uint64_t b = dlpi_share_given(p, k) - 1, mine = dlpi_gen_word(b, i + 1u), freed;
        if (b + 1 == 0 || dlpi_claim_owner(dlpi_shm_taker(h, k)) != mine) continue; /* H5 */
        if (dlpi_offer_over(&dlpi_share_released(h, i)[k], b)) continue;            /* H4 <- H4 */
        freed = dlpi_gen_word(b - 1, DLPI_FREED | (s->frees++ & (DLPI_FREED - 1)));
        any |= dlpi_claim_take(dlpi_shm_taker(h, k), mine, freed); /* H5 -> H5 */
    }
    if (any) dlpi_credit_add(&h->handed_back); /* H7 -> H7 */
}

/* Note if subscriber i has come or left. locks: also ask for its lock. Returns true if it has. */
static bool dlpi_shm_look_at(dlp_pipe *p, uint32_t i, bool locks) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share *h = p->share;
    dlpi_admit *admit = dlpi_share_admit(h, i);
    uint64_t bit = UINT64_C(1) << i;
    uint64_t present = dlpi_credit_seen(&dlpi_share_block(h, i)->present); /* H2 <- H2 */
    bool moved = false;
    if ((s->bound & bit) != 0 && (present != DLPI_LOAD_RLX(&admit->present) ||
                                  (locks && !dlpi_place_taken(p->memfd, i)))) { /* H2 */
        s->bound &= ~bit;
        if ((s->unwaited & bit) == 0)
            s->left_at = dlpi_credit_seen(&dlpi_share_block(h, i)->cursor); /* H3 <- H3 */
        if (h->mode == DLP_SHARE_ONE) dlpi_shm_hand_back(p, i);
        dlpi_sleepers_leave(&h->sleepers, bit); /* B1 */
        moved = true;
    }
    if ((s->bound & bit) == 0 && (present & 1) != 0 &&
        present != DLPI_LOAD_RLX(&admit->present)) { /* H2 */
        DLPI_STORE_RLX(&admit->join, p->schedule.published);
        dlpi_credit_publish(&admit->present, present); /* H2 -> H2 */
        s->bound |= bit;
        s->unwaited &= ~bit;
        if (dlpi_share_block(h, i)->behind != DLP_BEHIND_WAIT) s->unwaited |= bit;
        moved = true;
    }
    if (moved) dlpi_sleepers_ring(&h->sleepers, 0);
    return moved;
}

/* Return the first batch that is not yet taken by all that the pipe waits for (serve_only). */
static uint64_t dlpi_shm_base(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share *h = p->share;
    uint64_t base = DLPI_LOAD_RLX(&p->ctl->base), least = p->schedule.published; /* our own */
    if (h->mode == DLP_SHARE_ONE) {
        while (base != p->schedule.published) {
            uint32_t k = dlpi_slot_of(p, base);
            uint64_t taker = dlpi_claim_owner(dlpi_shm_taker(h, k)); /* H5 <- H5 */
            if (dlpi_share_given(p, k) == base + 1 && dlpi_older(dlpi_gen(taker), base)) break;
            base++;
        }
        return base;
    }
    for (uint32_t i = 0; i < h->max_subscribers; i++) {
        uint64_t at = dlpi_credit_seen(&dlpi_share_block(h, i)->cursor); /* H3 <- H3 */
        if (((s->bound & ~s->unwaited) >> i & 1) == 0) continue;
        if (at < DLPI_LOAD_RLX(&dlpi_share_admit(h, i)->join)) /* H2: our own */
            at = dlpi_share_admit(h, i)->join;
        if (at < least) least = at;
    }
    /* nobody is here: what is left waits for the next, or, once nothing follows, for nobody */
    if ((s->bound & ~s->unwaited) == 0 && !p->schedule.ended && s->left_at < least)
        least = s->left_at;
    return least > base ? least : base;
}

/* Count batches [from, to) as taken, and note the errors of those that failed. */
static void dlpi_shm_taken(dlp_pipe *p, uint64_t from, uint64_t to) {
    for (uint64_t b = from; b != to; b++) {
        dlpi_bslot *slot = dlpi_slot_at(p, dlpi_slot_of(p, b));
        uint64_t bytes = 0;
        if (slot->sequence != b) continue;
        for (uint32_t f = 0; f < p->batches.n; f++)
            bytes += dlpi_field_bytes(p, dlpi_slot_of(p, b), f, slot->count);
        dlpi_bump(&p->ctl->items, slot->count);
        dlpi_bump(&p->ctl->bytes, bytes);
        DLPI_STORE_RLX(&p->ctl->epoch, slot->epoch); /* statistics */
        if (dlpi_first_look(&slot->failed) == 1)     /* F1 <- F1 */
            dlpi_ctl_fail(p, DLPI_NOBODY, &slot->error);
    }
    dlpi_credit_publish(&p->ctl->base, to);      /* V1 -> V1 */
    dlpi_credit_publish(&p->ctl->delivered, to); /* V1 -> V1 */
}

/* True if all that the pipe waits for have given back the batch in slot k. */
static bool dlpi_shm_given_back(dlp_pipe *p, uint32_t k) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share *h = p->share;
    uint64_t b = dlpi_share_given(p, k) - 1;
    if (b + 1 == 0) return true;
    if (h->serve_only && b >= DLPI_LOAD_RLX(&p->ctl->base)) return false; /* V1: not counted yet */
    /* Y1 <- Y1 */
    if (!dlpi_ready_past(dlpi_gather_ready(&dlpi_stage_words_at(p, k, dlpi_final(p))->ready), b))
        return false;
    if (h->mode == DLP_SHARE_ONE) {
        const uint64_t taker = dlpi_claim_owner(dlpi_shm_taker(h, k)); /* H5 <- H5 */
        const uint32_t who = dlpi_gen_low(taker) - 1;
        return dlpi_gen(taker) == (b & DLPI_GEN_MASK) && who < h->max_subscribers &&
               dlpi_offer_over(&dlpi_share_released(h, who)[k], b); /* H4 <- H4 */
    }
    return dlpi_share_each_gave(p, s->bound & ~s->unwaited, k, b);
}

/* True if slot k is free: its open offers are withdrawn, and the scheduler must use it at once. */
static bool dlpi_shm_slot_free(dlp_pipe *p, uint32_t k) {
    const uint64_t late = dlpi_shm_of(p)->bound & dlpi_shm_of(p)->unwaited;
    return dlpi_shm_given_back(p, k) && dlpi_share_withdraw(p, late, k);
}

/* Tell all subscribers that the pipe is over, once its last batches are given back. The scheduler
   calls this. */
static void dlpi_shm_over(dlp_pipe *p) {
    if (!p->schedule.ended || DLPI_LOAD_RLX(&p->share->over) != 0) return; /* H1: our own */
    /* V1 */
    if (p->share->serve_only && DLPI_LOAD_RLX(&p->ctl->base) != p->schedule.published) return;
    for (uint32_t k = 0; k < p->n_slots; k++)
        if (!dlpi_shm_given_back(p, k)) return;
    dlpi_credit_close(&p->share->over, 1u); /* H1 -> H1 */
    dlpi_sleepers_ring(&p->share->sleepers, 0);
    dlpi_sleepers_ring(&p->ctl->consumer, 0);
}

/* Serve the subscribers, by the scheduler, before it feeds. Returns 1 if anything changed, or -1 if
   all is over. */
static int dlpi_shm_keep(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    uint64_t now = dlpi_now_ns(), base;
    bool moved = false, locks = now - s->looked_ns >= DLPI_LOOK_NS;
    for (uint32_t i = 0; i < p->share->max_subscribers; i++) moved |= dlpi_shm_look_at(p, i, locks);
    if (locks) s->looked_ns = now;
    /* V1 */
    if (p->share->serve_only && (base = dlpi_shm_base(p)) != DLPI_LOAD_RLX(&p->ctl->base)) {
        dlpi_shm_taken(p, DLPI_LOAD_RLX(&p->ctl->base), base); /* V1 */
        moved = true;
    }
    dlpi_shm_over(p);
    return DLPI_LOAD_RLX(&p->share->over) != 0 ? -1 : moved; /* H1: our own */
}

static bool dlpi_shm_may_schedule(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    if (DLPI_ONES(s->bound) >= s->d.wait_subscribers) s->enough = true;
    return s->enough && ((s->bound & ~s->unwaited) != 0 || !p->share->serve_only);
}

static const dlpi_sharing_ops dlpi_share_ops = {
    .words = "shm.share",
    .programs = true,
    .keep = dlpi_shm_keep,
    .may_schedule = dlpi_shm_may_schedule,
    .slot_free = dlpi_shm_slot_free,
    .holds = dlpi_role_none,
    .leave = dlpi_role_yes,
};

/* Check that the pipe can be shared, and set what follows from sharing: a scheduler thread that
   looks after subscribers. Returns 0 or a DLP_ERR code. */
static int dlpi_shm_share_resolve(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    const dlpi_stage *of = p->lender_stage;
    const char *bad = of               ? "a split: views can't be shared"
                      : p->d.unordered ? "unordered: a shared pipe delivers in order"
                      : p->barrier     ? "set_epoch: a subscriber may be epochs behind"
                                       : NULL;
    if (s->d.share == DLP_SHARE_NONE) return DLP_OK;
    if (p->sharing != &dlpi_share_ops) /* an out's, which is a stage */
        return dlpi_refuse(p, DLP_ERR_ARG, "", "shm.share",
                           "shm.share must be 0 with several outs; let a thread of this process "
                           "subscribe instead");
    if (p->shm_name[0] == 0)
        return dlpi_shm_fail(p, DLP_ERR_ARG, "shm.name", "shm.share needs shm.name; set it");
    if (s->d.share == DLP_SHARE_ONE && !s->d.serve_only)
        return dlpi_shm_fail(p, DLP_ERR_ARG, "shm.serve_only",
                             "shm.serve_only is 0, must be 1 with DLP_SHARE_ONE");
    if (bad != NULL)
        return dlpi_refuse(p, DLP_ERR_ARG, of != NULL ? of->name : "", "shm.share",
                           "shm.share must be 0 with %s", bad);
    if (p->sink_stage != NULL && s->d.serve_only)
        return dlpi_refuse(p, DLP_ERR_ARG, p->sink_stage->name, "shm.serve_only",
                           "shm.serve_only must be 0 with a transfer, whose batches are taken by "
                           "this process alone; leave the transfer out, or set 0");
    for (int i = 0; i < p->n_staffed; i++)
        if (p->work[i]->w.num_workers == 0 && p->work[i] != p->sink_stage)
            return dlpi_refuse(p, DLP_ERR_ARG, p->work[i]->name, "shm.share",
                               "shm.share needs workers, and this stage has none; set num_workers");
    p->sampler->w.num_workers = 1;
    p->others = 1;
    p->used_at_first = s->d.serve_only ? 0u : 1u;
    p->scheduler_sleep_ns = DLPI_SLEEP_NS / 2; /* a dead subscriber wakes nobody */
    return DLP_OK;
}

/* Add the area of the subscribers to the region, if the pipe is shared. */
DLPI_COLD static void dlpi_shm_areas(dlp_pipe *p) {
    const dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_share h;
    if (p->sharing != &dlpi_share_ops) return;
    dlpi_area_told(
        p, DLPI_REC_SHARE, DLPI_PLAN_RECORDS, "subscribers",
        dlpi_share_layout(&h, (uint32_t)s->d.share, (uint32_t)s->d.max_subscribers, p->n_slots), 1,
        4096);
}

/* Set up the area of the subscribers, once the region is mapped. No slot has a taker then. Returns
   0. */
static int dlpi_shm_share_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    if (p->sharing != &dlpi_share_ops) return DLP_OK;
    p->share = dlpi_area_at(p, DLPI_REC_SHARE, 0);
    dlpi_share_layout(p->share, (uint32_t)s->d.share, (uint32_t)s->d.max_subscribers, p->n_slots);
    p->share->serve_only = (uint32_t)s->d.serve_only;
    p->share->one_each = s->d.share == DLP_SHARE_ONE;
    /* a transfer copies beside them */
    p->share->after = (uint32_t)p->n_work - 1 - (p->sink_stage != NULL);
    for (uint32_t k = 0; k < p->n_slots; k++)
        *dlpi_shm_taker(p->share, k) = dlpi_gen_word(DLPI_GEN_MASK, 1);
    return DLP_OK;
}

/* ---- serve_only: this program takes no batch, and waits until the pipe ends ---- */

/* True if the wait of dlpi_serve is over; its code is then in rc. who: a dlpi_next_wait. */
static bool dlpi_serve_look(void *who) {
    dlpi_next_wait *k = who;
    int rc = dlpi_next_error(k->p, true);
    if (dlpi_stopped(k->p)) rc = DLP_STOPPED;
    if (rc == DLP_OK && dlpi_credit_closed(&k->p->share->over) != 0) rc = DLP_END; /* H1 <- H1 */
    if (k->rc == DLP_EMPTY && rc != DLP_OK) k->rc = rc;
    return k->rc != DLP_EMPTY;
}

static const dlpi_wait_ops dlpi_serve_waits = {dlpi_serve_look, dlpi_next_patience, NULL, NULL};

/* Wait until the pipe is over or fails. Returns DLP_END, DLP_STOPPED, DLP_TIMEOUT or the pipe's
   error. */
static int dlpi_serve(dlp_pipe *p, int timeout_ms) {
    dlpi_next_wait k = {.p = p, .until = UINT64_MAX, .rc = DLP_EMPTY};
    if (timeout_ms > 0) k.until = dlpi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    if (timeout_ms == DLP_NOWAIT) k.until = 0;
    if (!dlpi_serve_look(&k))
        dlpi_wait_asleep(&dlpi_serve_waits, &k, &p->ctl->consumer, DLPI_ANY - 1);
    return k.rc;
}

/* ---- a subscriber's side ---- */

struct dlp_subscriber {
    dlpi_subscriber s;
    dlp_monitor *m; /* monitor of the pipe, with its checked records */
    int fd;         /* the region's file, which holds its place */
    uint8_t *map;   /* mapping of the region, of `bytes` bytes */
    uint64_t bytes;
    dlpi_share layout; /* the checked copy of the offsets of s.share, which is in the mapping */
    dlpi_field_rec fields[DLP_MAX_FIELDS];
    uint32_t n_fields, at; /* at: the slot of the batch at the cursor, with DLP_SHARE_ONE */
    /* DLP_SHARE_ONE: 1 + handed_back at the last search, 0: none yet; the taker's word that it will
       swap; the words of all slots. */
    uint64_t back, taker, *takers;
    uint64_t looked_ns; /* time of its last look whether the owner lives */
    uint8_t *alive;     /* a page that has the mark of this process */
};

/* True if n words of `each` bytes at offset `at` lie inside a slot, and are aligned. */
static bool dlpi_in_slot(const dlp_subscriber *c, uint64_t at, uint64_t n, uint64_t each) {
    uint64_t stride = c->m->areas[DLPI_REC_SLOTS].stride;
    return at % (each < 8 ? each : 8) == 0 && at <= stride && n <= (stride - at) / each;
}

/* True if a slot has, within its stride, all that next reads of one. The numbers are another
   program's: next adds them to addresses and does not look again. No product here overflows: rows
   are few, a stride is within the region, and dlpi_in_slot divides. */
static bool dlpi_subscriber_slots_ok(const dlp_subscriber *c) {
    const dlpi_pipe_rec *p = &c->m->pipe;
    const uint64_t rows = p->batch_rows, n = c->n_fields;
    return rows <= 1u << 20 && dlpi_in_slot(c, 0, 1, sizeof(dlpi_bslot)) &&
           dlpi_in_slot(c, c->s.final_at, 1, 16) && dlpi_in_slot(c, p->slot.index, rows, 8) &&
           dlpi_in_slot(c, p->slot.fate, rows, 4) && dlpi_in_slot(c, p->slot.traced, 3 * rows, 2) &&
           p->slot.traced % 4 == 0 && p->slot.lengths % 8 == 0 &&
           (!p->has_item_cells || (dlpi_in_slot(c, p->slot.offsets, n * (rows + 1), 8) &&
                                   dlpi_in_slot(c, p->slot.fmeta, n, sizeof(dlpi_fmeta))));
}

/* True if a cell has a field's rows, as many bytes of each as its shape says. What a collate made
   has as many rows as it pleased, within the field's capacity, and lengths, as ragged ones have. */
static bool dlpi_subscriber_field_ok(const dlp_subscriber *c, const dlpi_field_rec *r) {
    const dlpi_pipe_rec *p = &c->m->pipe;
    const uint64_t cell = c->m->areas[DLPI_REC_CELLS].stride, rows = p->batch_rows;
    uint64_t items;
    if (r->ndim < 0 || r->ndim >= DLP_MAX_DIMS || r->elem_bytes < 1 || r->elem_bytes > 8)
        return false;
    items = dlpi_shape_count(r->shape, r->ndim);
    return items != UINT64_MAX && r->row_bytes / r->elem_bytes == items && r->offset <= cell &&
           r->capacity <= cell - r->offset &&
           (p->has_item_cells || r->capacity / rows >= r->row_bytes) &&
           ((!r->ragged && !p->has_item_cells) ||
            dlpi_in_slot(c, p->slot.lengths, c->n_fields * rows, 8));
}

/* True if all parts of a slot lie in the slot, and all fields in the cell. Others may write the
   region, so the numbers checked here are a copy, which is not read again. */
static bool dlpi_subscriber_layout_ok(const dlp_subscriber *c) {
    bool ok =
        c->m->areas[DLPI_REC_CELLS].count >= c->m->pipe.n_slots && dlpi_subscriber_slots_ok(c);
    for (uint32_t f = 0; ok && f < c->n_fields; f++)
        ok = dlpi_subscriber_field_ok(c, &c->fields[f]);
    return ok;
}

/* Read the record of sharing, and check it against the layout that this program computes. Returns
   false if it is damaged. */
static bool dlpi_subscriber_share_ok(dlp_subscriber *c) {
    const dlpi_area *r = &c->m->areas[DLPI_REC_SHARE];
    dlpi_share want, *h = &c->layout;
    return dlpi_view_read(c->m, DLPI_REC_SHARE, 0, 0, h, sizeof *h) &&
           (h->mode == DLP_SHARE_EACH || h->mode == DLP_SHARE_ONE) && h->max_subscribers >= 1 &&
           h->max_subscribers <= 64 && h->n_slots == c->m->pipe.n_slots &&
           h->after < c->m->pipe.n_work &&
           dlpi_share_layout(&want, h->mode, h->max_subscribers, h->n_slots) <= r->stride &&
           want.takers_at == h->takers_at && want.admits_at == h->admits_at &&
           want.subscribers_at == h->subscribers_at && want.subscriber_bytes == h->subscriber_bytes;
}

/* True if the pipe lets other programs subscribe. A pipe of several outs has the area of shares
   too, with mode 0. */
static bool dlpi_subscriber_may(const dlp_subscriber *c) {
    dlpi_share h;
    return c->m->areas[DLPI_REC_SHARE].count > 0 &&
           (!dlpi_view_read(c->m, DLPI_REC_SHARE, 0, 0, &h, sizeof h) || h.mode != 0);
}

/* Read the fields and the record of sharing of a pipe, and check them. Returns 0, or a DLP_ERR code
   with *err filled: DLP_ERR_STATE if the pipe is not shared. */
static int dlpi_subscriber_check(dlp_subscriber *c, dlp_error *err) {
    const dlpi_area *fields = c->m->areas + DLPI_REC_FIELDS;
    bool ok = fields->count >= 1 && fields->count <= DLP_MAX_FIELDS;
    if (!dlpi_subscriber_may(c))
        return dlpi_error_set(err, DLP_ERR_STATE, "name",
                              "the pipe is not shared; set shm.share of the pipe");
    c->n_fields = (uint32_t)fields->count;
    for (uint32_t f = 0; ok && f < c->n_fields; f++) {
        ok = dlpi_view_read(c->m, DLPI_REC_FIELDS, f, 0, &c->fields[f], sizeof c->fields[f]);
        c->fields[f].name[31] = 0;
    }
    c->s.ring = c->m->pipe.ring;
    dlpi_wait_share(c->m->pipe.n_workers + 2, (uint32_t)dlpi_cpu_count(), &c->s.wait.spin_ns,
                    &c->s.wait.yields);
    ok = ok && dlpi_subscriber_share_ok(c);
    for (uint32_t i = 0; i < c->m->pipe.n_stages; i++)
        if (c->m->seen.stages[i].r.work == (int32_t)c->layout.after)
            c->s.final_at = c->m->seen.stages[i].r.stage_words_offset;
    ok = ok && dlpi_subscriber_layout_ok(c);
    return ok ? DLP_OK
              : dlpi_error_set(err, DLP_ERR_CORRUPT, "name", "the region's description is damaged");
}

/* Map the region, which is sealed: nobody can shrink it. Returns 0, or a code with *err filled. */
static int dlpi_subscriber_map(dlp_subscriber *c, dlp_error *err) {
    char path[40];
    struct stat st;
    void *at;
    uint64_t end = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", c->m->fd);
    c->fd = dlpi_fd_above(open(path, O_RDWR | O_CLOEXEC));
    if (c->fd < 0 || fstat(c->fd, &st) != 0)
        return dlpi_error_set(err, DLP_ERR_SYSTEM, "name", "opening the region: %s",
                              strerror(errno));
    if ((fcntl(c->fd, 1034) & 6) != 6) /* F_GET_SEALS: shrink, grow */
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "name", "the region is not sealed");
    c->bytes = (uint64_t)st.st_size;
    for (int i = 1; i < DLPI_AREAS; i++) {
        const dlpi_area *r = &c->m->areas[i];
        uint64_t to = r->offset + r->stride * r->count; /* checked by the monitor */
        if (r->count > 0 && to > end) end = to;
    }
    if (end > c->bytes)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "name", "the region is shorter than it says");
    at = mmap(NULL, (size_t)c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (at == MAP_FAILED)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "name", "mmap: %s", strerror(errno));
    c->map = at;
    c->s.share = (dlpi_share *)(void *)(c->map + c->m->areas[DLPI_REC_SHARE].offset);
    c->takers = (uint64_t *)(void *)((uint8_t *)c->s.share + c->layout.takers_at);
    c->s.ctl = (dlpi_ctl *)(void *)(c->map + c->m->areas[DLPI_REC_CTL].offset);
    c->s.slots = c->map + c->m->areas[DLPI_REC_SLOTS].offset;
    c->s.slot_stride = c->m->areas[DLPI_REC_SLOTS].stride;
    c->s.order = (const uint32_t *)(const void *)(c->map + c->m->areas[DLPI_REC_ORDER].offset);
    c->s.n_slots = c->layout.n_slots;
    c->s.paces = c->layout.serve_only != 0;
    return DLP_OK;
}

/* Take a free place among the subscribers, and tell the scheduler. Returns 0, or DLP_ERR_STATE with
   *err filled if all places are taken. */
static int dlpi_subscriber_place(dlp_subscriber *c, dlp_error *err) {
    uint64_t present;
    for (uint32_t i = 0; i < c->layout.max_subscribers; i++) {
        if (!dlpi_place_take(c->fd, i)) continue;
        c->s.index = i;
        c->s.mine = (dlpi_cblock *)(void *)((uint8_t *)c->s.share + c->layout.subscribers_at +
                                            i * c->layout.subscriber_bytes);
        c->s.released = (uint64_t *)(void *)(c->s.mine + 1);
        present = DLPI_LOAD_RLX(&c->s.mine->present); /* H2: of the one before, which is gone */
        c->s.present = present % 2 == 0 ? present + 1 : present + 2;
        DLPI_STORE_RLX(&c->s.mine->pid, dlpi_process_number()); /* for people */
        DLPI_STORE_RLX(&c->s.mine->held, 0u);                   /* for people */
        DLPI_STORE_RLX(&c->s.mine->missed, UINT64_C(0));        /* for people */
        DLPI_STORE_RLX(&c->s.mine->max_held, c->s.max_held);    /* for people */
        DLPI_STORE_RLX(&c->s.mine->behind, c->s.behind);        /* H2: ordered by present */
        dlpi_credit_publish(&c->s.mine->cursor, UINT64_C(0));   /* H3 */
        dlpi_subscriber_keep(&c->s);
        dlpi_credit_publish(&c->s.mine->present, c->s.present); /* H2 -> H2 */
        dlpi_wake_scheduler(c->s.ctl);
        return DLP_OK;
    }
    return dlpi_error_set(err, DLP_ERR_STATE, "name", "all %u places for subscribers are taken",
                          c->layout.max_subscribers);
}

/* Check the subscriber's desc, and allocate its loans. Returns 0, or a DLP_ERR code with *err
   filled. The caller frees the loans, also after a failure. */
static int dlpi_subscriber_loans(dlp_subscriber *c, const dlp_subscriber_desc *desc,
                                 dlp_error *err) {
    const dlpi_pipe_rec *p = &c->m->pipe;
    uint32_t most = p->max_held < 1 || p->max_held > 256 ? 1 : p->max_held;
    if (desc && (desc->max_held < 0 || (uint32_t)desc->max_held > most))
        return dlpi_error_set(err, DLP_ERR_ARG, "max_held", "max_held is %d, must be at most %u",
                              desc->max_held, most);
    if (desc && (desc->when_behind < 0 || desc->when_behind > DLP_BEHIND_KEEP_NEWEST))
        return dlpi_error_set(err, DLP_ERR_ARG, "when_behind",
                              "when_behind is %d, must be a DLP_BEHIND_*", desc->when_behind);
    if (desc && desc->when_behind != DLP_BEHIND_WAIT && c->layout.mode != DLP_SHARE_EACH)
        return dlpi_error_set(err, DLP_ERR_ARG, "when_behind",
                              "when_behind must be 0 with DLP_SHARE_ONE");
    c->s.behind = desc ? (uint32_t)desc->when_behind : DLP_BEHIND_WAIT;
    c->s.max_held = desc && desc->max_held ? (uint32_t)desc->max_held : 1;
    c->s.loans = calloc(c->s.max_held, sizeof *c->s.loans);
    for (uint32_t i = 0; c->s.loans && i < c->s.max_held; i++)
        if ((c->s.loans[i].valid = malloc(p->batch_rows)) == NULL) break;
    if (c->s.loans && c->s.loans[c->s.max_held - 1].valid) return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory");
}

/* Fill *t with field f of the batch in slot s. Returns false if the field's shape does not fit.
   What others can write is copied, checked, then used. */
static bool dlpi_subscriber_field(const dlp_subscriber *c, uint32_t s, uint32_t f, uint32_t count,
                                  dlp_tensor *t) {
    const dlpi_field_rec *r = &c->fields[f];
    const dlpi_pipe_rec *p = &c->m->pipe;
    const dlpi_area *cells = &c->m->areas[DLPI_REC_CELLS];
    uint8_t *slot = (uint8_t *)dlpi_subscriber_slot(&c->s, s);
    memset(t, 0, sizeof *t);
    t->name = r->name;
    t->data = c->map + cells->offset + s * cells->stride + r->offset;
    t->dtype = r->dtype;
    t->ndim = r->ndim + 1;
    t->shape[0] = count;
    for (int i = 0; i < r->ndim; i++) t->shape[i + 1] = r->shape[i];
    t->bytes = count * r->row_bytes;
    if (r->ragged)
        t->lengths = (uint64_t *)(void *)(slot + p->slot.lengths) + (size_t)f * p->batch_rows;
    if (p->has_item_cells) {
        dlpi_fmeta m = ((dlpi_fmeta *)(void *)(slot + p->slot.fmeta))[f];
        uint64_t n =
            m.ndim >= 0 && m.ndim <= DLP_MAX_DIMS ? dlpi_shape_count(m.shape, m.ndim) : UINT64_MAX;
        if (n > r->capacity / r->elem_bytes || m.bytes != n * r->elem_bytes) return false;
        t->bytes = m.bytes;
        t->ndim = m.ndim;
        memcpy(t->shape, m.shape, sizeof m.shape);
        if (m.has_offsets)
            t->offsets = (uint64_t *)(void *)(slot + p->slot.offsets) +
                         (size_t)f * ((size_t)p->batch_rows + 1);
    }
    return true;
}

/* Fill the loan's batch with what slot s has. Returns 0 or DLP_ERR_CORRUPT. */
static int dlpi_subscriber_show(dlpi_subscriber *of, uint32_t s, dlpi_loan *loan) {
    dlp_subscriber *c = (dlp_subscriber *)(void *)of;
    const dlpi_pipe_rec *p = &c->m->pipe;
    dlpi_bslot *slot = dlpi_subscriber_slot(of, s);
    const uint32_t *rec = (const uint32_t *)(const void *)((uint8_t *)slot + p->slot.fate);
    const bool dirty = DLPI_LOAD_RLX(&slot->dirty) != 0; /* ordered by ready */
    dlp_batch *v = &loan->batch;
    memset(v, 0, sizeof *v);
    v->epoch = slot->epoch;
    v->position = slot->position;
    v->in_epoch = slot->in_epoch;
    v->count = slot->count;
    v->flags = slot->flags;
    if (v->count > p->batch_rows)
        return dlpi_subscriber_fail(of, DLP_ERR_CORRUPT, "a batch has more rows than a slot");
    v->n_fields = c->n_fields;
    v->fields = loan->fields;
    v->index = (uint64_t *)(void *)((uint8_t *)slot + p->slot.index);
    if (p->slot.traced > 0) {
        v->number = (const uint32_t *)(const void *)((const uint8_t *)slot + p->slot.traced);
        v->list = (const uint16_t *)(v->number + p->batch_rows);
    }
    v->valid = loan->valid;
    v->valid_count = v->count;
    memset(loan->valid, 1, v->count);
    for (uint32_t r = 0; dirty && r < v->count; r++)
        v->valid_count -= !(loan->valid[r] = dlpi_fate_state(rec[r]) == DLPI_ROW_OK);
    for (uint32_t f = 0; f < c->n_fields; f++)
        if (!dlpi_subscriber_field(c, s, f, v->count, &loan->fields[f]))
            return dlpi_subscriber_fail(of, DLP_ERR_CORRUPT,
                                        "a batch has a shape that does not fit");
    return DLP_OK;
}

/* Search all slots for the oldest batch that nobody has (DLP_SHARE_ONE), handed back ones among
   them. Its slot, c->at, stays as it is until somebody claims it by the word c->taker. Returns the
   batch's number; UINT64_MAX: there is none. */
static uint64_t dlpi_subscriber_search(dlp_subscriber *c) {
    uint64_t b = UINT64_MAX;
    for (uint32_t k = 0; k < c->layout.n_slots; k++) {
        const dlpi_bslot *slot = dlpi_subscriber_slot(&c->s, k);
        uint64_t word = dlpi_claim_owner(&c->takers[k]);             /* H5 <- H5 */
        uint64_t gen = dlpi_gen(dlpi_claim_head_now(&slot->header)); /* P1 <- P1 */
        uint64_t at = DLPI_LOAD_RLX(&slot->sequence);                /* P1: ordered by header */
        if (gen == DLPI_GEN_MASK || gen != (at & DLPI_GEN_MASK)) continue;
        if (!dlpi_older(dlpi_gen(word), at) || at >= b) continue;
        b = at;
        c->at = k;
        c->taker = word;
    }
    return b;
}

/* Move the cursor to the oldest batch that nobody has. Returns DLP_OK if that batch is ready,
   DLP_EMPTY if it is not, DLP_SKIP if there is none, or an error. While a search looks at a slot,
   one before it may get an older batch. That one was published before the batch that was found, so
   a search that begins now sees it: two searches must agree. If they find none, all batches below
   the tail, which was read before, are taken. */
static int dlpi_subscriber_first(dlp_subscriber *c) {
    const uint64_t back = dlpi_credit_seen(&c->s.share->handed_back); /* H7 <- H7 */
    const uint64_t tail = dlpi_credit_seen(&c->s.ctl->tail);          /* T1 <- T1 */
    uint64_t b, before;
    for (; back + 1 == c->back; c->s.cursor++) {
        int rc = c->s.cursor < tail ? dlpi_subscriber_ready(&c->s, c->s.cursor, &c->at) : DLP_SKIP;
        if (rc < 0 || c->s.cursor >= tail) return rc;
        if (rc == DLP_SKIP) break;                      /* the slot has another batch */
        c->taker = dlpi_claim_owner(&c->takers[c->at]); /* H5 <- H5 */
        if (dlpi_older(dlpi_gen(c->taker), c->s.cursor)) return rc;
    }
    for (before = dlpi_subscriber_search(c); (b = dlpi_subscriber_search(c)) != before;) before = b;
    c->back = back + 1;
    c->s.cursor = b != UINT64_MAX ? b : tail;
    if (b == UINT64_MAX) return DLP_SKIP;
    return dlpi_subscriber_is_ready(&c->s, b, c->at) ? DLP_OK : DLP_EMPTY;
}

/* Take the oldest free batch (DLP_SHARE_ONE). Returns DLP_OK, DLP_EMPTY, DLP_END or an error. */
static int dlpi_subscriber_one(dlp_subscriber *c, dlp_batch **out) {
    for (;;) {
        uint32_t over = dlpi_credit_closed(&c->s.ctl->end_of_input), s; /* T1 <- T1 */
        if (dlpi_credit_closed(&c->s.share->over) != 0) return DLP_END; /* H1 <- H1 */
        int rc = dlpi_subscriber_first(c);
        /* whoever holds one waits for nobody */
        if (rc == DLP_SKIP) return over && c->s.n_held > 0 ? DLP_END : DLP_EMPTY;
        if (rc != DLP_OK) return rc;
        const uint64_t b = c->s.cursor++;
        s = c->at;
        if (!dlpi_claim_take(&c->takers[s], c->taker, dlpi_gen_word(b, c->s.index + 1u)))
            continue;                  /* H5 <-> H5: another has it */
        dlpi_wake_scheduler(c->s.ctl); /* a credit */
        /* the next batch may have been ready before this one, and have woken somebody in vain */
        if (dlpi_sleepers_mask(&c->s.share->sleepers) != 0 && /* B1 <- B1 */
            dlpi_subscriber_first(c) == DLP_OK)
            dlpi_wake_subscribers(c->s.share, INT_MAX);
        rc = dlpi_subscriber_have(&c->s, b, s, out);
        if (rc != DLP_SKIP) return rc;
    }
}

/* Take the subscriber's next batch, if there is one now. Returns DLP_OK, DLP_EMPTY, DLP_END or an
   error's code. Until the scheduler admits the subscriber, there is none. */
static int dlpi_subscriber_try(dlpi_subscriber *of, dlp_batch **out) {
    dlp_subscriber *c = (dlp_subscriber *)(void *)of;
    const dlpi_admit *admit;
    if (c->s.err.code != 0) return c->s.err.code;
    if (!c->s.admitted) {
        admit = (const dlpi_admit *)(const void *)((uint8_t *)c->s.share + c->layout.admits_at) +
                c->s.index;
        if (dlpi_credit_seen(&admit->present) != c->s.present)                       /* H2 <- H2 */
            return dlpi_credit_closed(&c->s.share->over) != 0 ? DLP_END : DLP_EMPTY; /* H1 <- H1 */
        c->s.admitted = true;
        c->s.cursor = DLPI_LOAD_RLX(&admit->join);            /* H2: ordered by present */
        dlpi_credit_publish(&c->s.mine->cursor, c->s.cursor); /* H3 -> H3 */
    }
    if (c->s.behind != DLP_BEHIND_WAIT) return dlpi_subscriber_late(of, out);
    return c->layout.mode == DLP_SHARE_EACH ? dlpi_subscriber_each(of, out)
                                            : dlpi_subscriber_one(c, out);
}

static void dlpi_subscriber_wake(const dlpi_subscriber *c) { dlpi_wake_scheduler(c->ctl); }

/* Check that the owner lives, at most each DLPI_LOOK_NS. Returns 0 or DLP_ERR_KILLED. */
static int dlpi_subscriber_watch(dlpi_subscriber *of) {
    dlp_subscriber *c = (dlp_subscriber *)(void *)of;
    uint64_t now = dlpi_now_ns();
    dlp_error e;
    if (now - c->looked_ns < DLPI_LOOK_NS) return DLP_OK;
    c->looked_ns = now;
    if (dlpi_owner_check(c->m, &e) == DLP_OK || DLPI_LOAD_RLX(&of->ctl->stop) != 0) /* S1 */
        return DLP_OK;
    return dlpi_subscriber_fail(of, DLP_ERR_KILLED, "the owner of the pipe is gone");
}

static const dlpi_subscriber_ops dlpi_subscriber_outside = {
    dlpi_subscriber_try, dlpi_subscriber_show, dlpi_subscriber_wake, dlpi_subscriber_watch};
