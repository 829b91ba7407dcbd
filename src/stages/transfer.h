/* needs: transfer */
#pragma once
/* tests: system/device/device_cuda, system/device/device_opencl */
#include "inputs/check.h"
#include "work/workers.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-transfer   BATCHES TO THE DEVICE: DOUBLE BUFFERING
   One thread, or the consumer, copies batches into the device buffers: in the order of batches, or
   in an unordered pipe as batches become ready. A batch is ready when the event after its copies
   has passed. No batch of a later epoch is copied while a batch of the oldest epoch is still to
   come. The consumer takes the oldest epoch first, and its batch could find no free buffer. */

typedef struct dlpi_transfer { /* the stage's own record */
    int32_t buffers;           /* on the device */
    dlp_device device;
    int open, registered; /* 1: the device is open; the region is registered with it */
    void **data;          /* [buffers * fields] device memory of each buffer */
    void **seam;          /* [n_out * fields] device memory for batches that span slots, or NULL */
    bool alone;           /* a thread of this stage copies; false: the consumer does */
    bool shared;          /* both the thread and the consumer call the device, under `lock` */
    dlpi_mutex lock;      /* held in each call of the device, but not in a wait for it */
    uint8_t *begun;       /* [ring] 1: this batch's copy is begun, but not all those before it */
    uint64_t took_ns;     /* mean duration of the last copies, from begin to end; 0: none yet */
    uint64_t passed_ns;   /* time at which the last copy was found to have ended */
    uint64_t looked_ns;   /* time of the last look that found no copy ended */
} dlpi_transfer;

static dlpi_transfer *dlpi_transfer_of(const dlpi_stage *st) { return st->self; }

/* Return the word C2 of device buffer i: 1 + the slot that is in it; 0: it is free. */
static uint32_t *dlpi_dev_slot(const dlp_pipe *p, uint64_t i) {
    return dlpi_area_at(p, DLPI_OWN(p->sink_stage->id, DLPI_OWN_LINK), i);
}

/* Lock the device, if the consumer calls it too. dlpi_transfer_leave unlocks it. */
static void dlpi_transfer_enter(dlpi_transfer *x) {
    if (x->shared) dlpi_mutex_lock(&x->lock);
}
static int dlpi_transfer_leave(dlpi_transfer *x, int rc) {
    if (x->shared) dlpi_mutex_unlock(&x->lock);
    return rc;
}

static void dlpi_transfer_error(const dlpi_stage *st, const char *what, int rc, dlp_error *e) {
    const dlp_device *d = &dlpi_transfer_of(st)->device;
    dlpi_error_set(e, DLP_ERR_DEVICE, "", "device \"%s\": %s returned %d", d->name ? d->name : "",
                   what, rc);
    dlpi_copy_text(e->stage, sizeof e->stage, st->name);
}

/* Fail the batch in `slot`, because the device's function `what` returned rc. Returns
   DLP_ERR_DEVICE. */
static int dlpi_transfer_fail(dlp_pipe *p, dlpi_bslot *slot, const char *what, int rc) {
    dlp_error e;
    dlpi_transfer_error(p->sink_stage, what, rc, &e);
    e.epoch = slot->epoch;
    e.position = slot->position;
    dlpi_slot_fail(slot, DLPI_NOBODY, &e);
    return DLP_ERR_DEVICE;
}

/* Mark batch b of slot s as ready; wake the consumer, and a loader that may wait for its cell.
   Returns true. */
static bool dlpi_transfer_ready(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bump(&w->block->items, 1);
    dlpi_gather_put(&dlpi_stage_words_at(p, s, w->st)->ready, b); /* Y1 -> Y1 */
    /* loaders wait for its cell */
    if (p->n_cells < p->prefetch) dlpi_wake_stage(p, p->work[0], b + p->n_cells, 1);
    dlpi_wake_consumer(p->ctl, b);
    return true;
}

/* Return how many bytes of field f are copied for the batch in slot s. */
static uint64_t dlpi_transfer_bytes(const dlpi_worker *w, uint32_t s, uint32_t f) {
    const dlp_pipe *p = w->p;
    return p->lender_stage ? p->lender->bytes(p, s, f) : w->rare->tensors[f].bytes;
}

/* Begin to copy what lies in slot `from`, for the batch in slot s, into the memory of device buffer
   `to`. buffer: the number that the device knows the copy by. Returns 0, or DLP_ERR_DEVICE: the
   batch was failed. */
static int dlpi_transfer_copy(dlpi_worker *w, uint32_t s, uint32_t from, uint32_t to,
                              uint32_t buffer) {
    dlp_pipe *p = w->p;
    dlpi_transfer *x = dlpi_transfer_of(w->st);
    const dlp_device *d = &x->device;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    int rc;
    dlpi_batch_view_init(p, from, &w->rare->batch, w->rare->tensors);
    dlpi_batch_view(p, from, &w->rare->batch, w->rare->tensors);
    for (uint32_t f = 0; f < p->batches.n; f++) {
        uint64_t bytes = dlpi_transfer_bytes(w, s, f);
        void *dev = x->data[(size_t)to * p->batches.n + f];
        dlpi_transfer_enter(x);
        rc = dlpi_transfer_leave(x, d->copy(d->user, dev, w->rare->tensors[f].data, bytes, buffer));
        if (rc != 0) return dlpi_transfer_fail(p, slot, "copy", rc);
        dlpi_bump(&w->block->bytes, bytes);
    }
    dlpi_transfer_enter(x);
    rc = dlpi_transfer_leave(x, d->record(d->user, buffer));
    return rc != 0 ? dlpi_transfer_fail(p, slot, "record", rc) : DLP_OK;
}

/* Begin to copy batch b, of slot s, out of slot `from` into its device buffer. buffer: the number
   that the device knows the copy by. If the device fails, the batch is ready. Returns true. */
static bool dlpi_transfer_send(dlpi_worker *w, uint32_t s, uint64_t b, uint32_t from,
                               uint32_t buffer) {
    const dlpi_bslot *slot = dlpi_slot_at(w->p, s);
    dlpi_clock_in(w);
    if (dlpi_transfer_copy(w, s, from, slot->dbuf, buffer) != DLP_OK)
        dlpi_transfer_ready(w, s, b);
    else
        w->parked[w->n_parked++] = (dlpi_parked){dlpi_now_ns(), b, s, buffer}; /* begun now */
    dlpi_clock_out(w, b, slot->epoch, 1);
    return true;
}

/* Begin to copy batch b, of slot s, if chunks stay on the device in buffers of their own. Returns
   false if the batch must wait for an earlier copy of its chunk. The buffer's word dev_slot says 1:
   the chunk is on its way, 2: it is there. The batch that loaded the chunk copies it even if its
   epoch was left, because no other batch will load it. The device knows the copy by the slot's
   number. */
static bool dlpi_transfer_stay(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    bool left = dlpi_cancelled(p->ctl, slot),
         failed = dlpi_first_look(&slot->failed) != 0; /* F1 <- F1 */
    uint32_t state, from;
    slot->dbuf = failed ? DLPI_NO_SLOT : p->stay->place(p, s);
    if (slot->dbuf == DLPI_NO_SLOT) return dlpi_transfer_ready(w, s, b);
    state = dlpi_credit_held_look(dlpi_dev_slot(p, slot->dbuf)); /* C2 <- C2 */
    if (state == 1) return false;                                /* maybe out of this cell */
    from = state == 0 ? p->stay->source(p, s, b) : DLPI_NO_SLOT;
    if (from == s || (from != DLPI_NO_SLOT && !left)) {
        dlpi_credit_take(dlpi_dev_slot(p, slot->dbuf), 1u); /* C2: only this thread */
        return dlpi_transfer_send(w, s, b, from, s);
    }
    if (state == 0 && !left) dlpi_transfer_fail(p, slot, "an earlier copy of this chunk", -1);
    return dlpi_transfer_ready(w, s, b);
}

/* Begin the copy of batch b in slot s if a device buffer is free. Returns true if the batch was
   taken, also one that is not copied because it failed or was left; false if it must wait. */
static bool dlpi_transfer_begin(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint32_t buffers = (uint32_t)dlpi_transfer_of(w->st)->buffers, i = 0;
    if (p->stay != NULL) return dlpi_transfer_stay(w, s, b);
    slot->dbuf = DLPI_NO_SLOT;
    if (dlpi_slot_idle(p, s)) return dlpi_transfer_ready(w, s, b);
    while (i < buffers && dlpi_credit_held_look(dlpi_dev_slot(p, i)) != 0) i++; /* C2 <- C2 */
    if (i == buffers) return false;
    dlpi_credit_take(dlpi_dev_slot(p, i), s + 1); /* C2: only this thread takes */
    slot->dbuf = i;
    return dlpi_transfer_send(w, s, b, s, i);
}

/* Return when copy k began: when it was enqueued, but not before the end of the copy before it. */
static uint64_t dlpi_transfer_began(const dlpi_transfer *x, const dlpi_parked *k) {
    return k->due_ns > x->passed_ns ? k->due_ns : x->passed_ns;
}

/* Update the time that copies take from copy k, which ended between the last look and now. */
static void dlpi_transfer_learn(dlpi_transfer *x, const dlpi_parked *k) {
    const uint64_t now = dlpi_now_ns(), began = dlpi_transfer_began(x, k);
    const uint64_t looked = x->looked_ns > began ? x->looked_ns : began;
    const uint64_t took = looked - began + (now - looked) / 2;
    x->took_ns = x->took_ns == 0 ? took : (x->took_ns + took) / 2;
    x->passed_ns = now;
}

/* Mark the batches as ready whose copies have ended. Returns true if there was one. */
static bool dlpi_transfer_poll(dlpi_worker *w) {
    dlpi_transfer *x = dlpi_transfer_of(w->st);
    const dlp_device *d = &x->device;
    bool moved = false;
    for (int i = 0; i < w->n_parked;) {
        dlpi_parked k = w->parked[i];
        int done;
        dlpi_transfer_enter(x);
        done = dlpi_transfer_leave(x, d->done(d->user, k.row));
        if (done == 0) {
            i++;
            continue;
        }
        if (done != 1)
            dlpi_transfer_fail(w->p, dlpi_slot_at(w->p, k.slot), "done", done);
        else if (w->p->stay != NULL)
            dlpi_credit_done(dlpi_dev_slot(w->p, dlpi_slot_at(w->p, k.slot)->dbuf), /* C2 -> C2 */
                             w->p->stay->left(w->p, k.slot) ? 0u : 2u);
        dlpi_transfer_learn(x, &k);
        memmove(&w->parked[i], &w->parked[i + 1], (size_t)(--w->n_parked - i) * sizeof k);
        moved = dlpi_transfer_ready(w, k.slot, k.gen);
    }
    return moved;
}

/* Do one step of the transfer: end copies that have passed, and begin those of ready batches, in
   their order. Returns false if there was nothing to do. */
static bool dlpi_transfer_step(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    uint64_t tail = dlpi_credit_seen(&p->ctl->tail); /* T1 <- T1 */
    dlpi_stage *up = p->work[w->st->work - 1];
    uint8_t *begun = dlpi_transfer_of(w->st)->begun;
    bool moved = dlpi_transfer_poll(w);
    uint64_t generation =
        w->cursor != tail ? dlpi_slot_generation(dlpi_slot_at(p, dlpi_slot_of(p, w->cursor))) : 0;
    for (uint64_t b = w->cursor; b != tail; b++) {
        uint32_t s = dlpi_slot_of(p, b);
        bool taken = begun[b & (p->ring - 1)] != 0;
        if (!taken && dlpi_slot_generation(dlpi_slot_at(p, s)) != generation) break;
        /* Y1 <- Y1 */
        if (!taken && dlpi_ready_is(dlpi_gather_ready(&dlpi_stage_words_at(p, s, up)->ready), b)) {
            if (!dlpi_transfer_begin(w, s, b)) break;
            begun[b & (p->ring - 1)] = 1;
            moved = taken = true;
        }
        if (taken && b == w->cursor) begun[w->cursor++ & (p->ring - 1)] = 0;
        if (!taken && !p->d.unordered) break;
    }
    if (moved) dlpi_transfer_poll(w);
    return moved;
}

/* Return how many ns the worker may sleep, at most `ns`, before it looks for copies that have
   ended. No event wakes it when a copy ends. So it sleeps until shortly before the end that it
   expects, and then looks again and again, if each thread has a core. If the copy is late, because
   it waits for kernels, the worker looks the less often the longer this takes. */
static uint64_t dlpi_transfer_due(dlpi_worker *w, uint64_t ns) {
    dlpi_transfer *x = dlpi_transfer_of(w->st);
    uint64_t end, early = x->took_ns / 16, rest = 0, now;
    if (w->n_parked == 0) return ns;
    x->looked_ns = now = dlpi_now_ns();
    end = dlpi_transfer_began(x, &w->parked[0]) + x->took_ns;
    early = early < 10000 ? 10000 : early > 200000 ? 200000 : early;
    if (now + 2 * early < end)
        rest = end - early - now;
    else if (now > end + 2 * early || w->p->wait.yields > 0)
        rest = 20000 + (now > end ? (now - end) / 16 : 0);
    if (now > end && rest > 1000000) rest = 1000000;
    return rest < ns ? rest : ns;
}

/* Lower the timer slack of the transfer's own thread to 1 us. By default the kernel lets a thread
   sleep for 50 us longer. Returns DLP_OK. */
static int dlpi_transfer_enter_thread(dlpi_worker *w) {
    if (dlpi_transfer_of(w->st)->alone) dlpi_thread_prompt();
    return DLP_OK;
}

/* ---- the consumer's side ---- */

static const dlp_device *dlpi_transfer_device(const dlp_pipe *p) {
    return p->sink_stage ? &dlpi_transfer_of(p->sink_stage)->device : NULL;
}

/* Return the number that the device knows the copy of slot s by. */
DLPI_UNREAD /* without devices that have streams */
    static uint32_t
    dlpi_transfer_events(const dlp_pipe *p, uint32_t s) {
    return p->stay != NULL ? s : dlpi_slot_at(p, s)->dbuf;
}

static void dlpi_transfer_data(const dlp_pipe *p, uint32_t s, uint32_t field, uint64_t at,
                               dlp_tensor *t) {
    const dlpi_transfer *x = dlpi_transfer_of(p->sink_stage);
    uint8_t *base = x->data[dlpi_slot_at(p, s)->dbuf * p->batches.n + field];
    t->data = x->device.handles ? base : base + at;
    t->byte_offset = x->device.handles ? at : 0;
}

static void dlpi_transfer_freed(dlp_pipe *p, uint32_t s) {
    uint32_t buffer = dlpi_slot_at(p, s)->dbuf;
    if (buffer == DLPI_NO_SLOT || p->stay != NULL) return;
    dlpi_credit_done(dlpi_dev_slot(p, buffer), 0u); /* C2 -> C2 */
    dlpi_wake_some(p, p->sink_stage, 1);
}

/* ---- batches that span slots ---- */

/* Return the number that the device knows seam buffer v by, in record and done. */
static uint32_t dlpi_transfer_seam_events(const dlp_pipe *p, uint32_t v) {
    return v + (p->stay ? p->n_slots : (uint32_t)dlpi_transfer_of(p->sink_stage)->buffers);
}

static void *dlpi_transfer_seam(const dlp_pipe *p, uint32_t v, uint32_t field) {
    return dlpi_transfer_of(p->sink_stage)->seam[(size_t)v * p->batches.n + field];
}

static int dlpi_transfer_refused(dlp_pipe *p, const char *what, int rc) {
    dlp_error e;
    dlpi_transfer_error(p->sink_stage, what, rc, &e);
    return dlpi_pipe_fail(p, &e);
}

/* Begin to copy `rows` rows, from row `from` on, of the chunk in slot s into seam buffer v at row
   `row`. Returns 0 or a DLP_ERR code. */
static int dlpi_transfer_join(dlp_pipe *p, uint32_t v, uint64_t row, uint32_t s, uint64_t from,
                              uint64_t rows) {
    dlpi_transfer *x = dlpi_transfer_of(p->sink_stage);
    const dlp_device *d = &x->device;
    uint32_t buffer = dlpi_transfer_seam_events(p, v);
    size_t at = (size_t)dlpi_slot_at(p, s)->dbuf * p->batches.n;
    const char *what = "copy_within";
    int rc = 0;
    dlpi_transfer_enter(x);
    for (uint32_t f = 0; f < p->batches.n && rc == 0; f++) {
        uint64_t unit = dlpi_row_bytes(&p->batches.at[f]);
        rc = d->copy_within(d->user, dlpi_transfer_seam(p, v, f), row * unit, x->data[at + f],
                            from * unit, rows * unit, buffer);
    }
    if (rc == 0) what = "record", rc = d->record(d->user, buffer);
    dlpi_transfer_leave(x, 0);
    return rc != 0 ? dlpi_transfer_refused(p, what, rc) : DLP_OK;
}

/* Wait until the copies into seam buffer v have ended, so that their slot may be given back. until:
   the last time in ns; UINT64_MAX: none. Returns 0, DLP_STOPPED, DLP_TIMEOUT or DLP_ERR_DEVICE. */
static int dlpi_transfer_arrive(dlp_pipe *p, uint32_t v, uint64_t until) {
    dlpi_transfer *x = dlpi_transfer_of(p->sink_stage);
    uint32_t buffer = dlpi_transfer_seam_events(p, v);
    for (int rounds = 0;; rounds++) {
        int done;
        dlpi_transfer_enter(x);
        done = dlpi_transfer_leave(x, x->device.done(x->device.user, buffer));
        if (done != 0) return done == 1 ? DLP_OK : dlpi_transfer_refused(p, "done", done);
        if (dlpi_stopped(p)) return DLP_STOPPED;
        if (until != UINT64_MAX && dlpi_now_ns() >= until) return DLP_TIMEOUT;
        if (rounds < 100)
            dlpi_yield();
        else
            dlpi_sleep(20000);
    }
}

/* Check that the device can join batches that span chunks: it copies within its memory, and has
   enough buffers. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_transfer_joins(dlp_pipe *p) {
    const dlpi_transfer *x = dlpi_transfer_of(p->sink_stage);
    const dlp_device *d = &x->device;
    uint32_t first = p->stay ? p->n_slots : (uint32_t)x->buffers;
    if (d->copy_within == NULL)
        return dlpi_refuse(p, DLP_ERR_ARG, p->sink_stage->name, "device",
                           "device \"%s\" has no copy_within, and batches span chunks: set "
                           "within_chunks, or a batch_size that divides the rows of every chunk",
                           d->name ? d->name : "");
    return dlpi_within(p, p->sink_stage->name, "queue.capacity", first + p->n_out, 1,
                       DLPI_DEVICE_BUFFERS,
                       "at most 64 together with max_held, where batches span chunks");
}

/* ---- building ---- */

/* Plan the device buffers, which lie outside of the region. Add a word for each: the slot that is
   in it. */
DLPI_COLD static void dlpi_transfer_layout(dlp_pipe *p, dlpi_stage *st) {
    uint64_t buffers = (uint64_t)dlpi_transfer_of(st)->buffers, each = 0;
    for (uint32_t f = 0; f < p->batches.n; f++) each = dlpi_sum(each, p->batches.at[f].capacity);
    dlpi_area_outside(p, DLPI_OWN(st->id, DLPI_OWN_HIDDEN), DLPI_PLAN_SINK,
                      p->lender_stage ? p->lender->results : "device buffers", each, buffers);
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_OWN_LINK), sizeof(uint32_t), buffers, DLPI_LINE);
}

/* Return how many pointers to seam buffers there are; 0 if there are no seam buffers. */
static uint32_t dlpi_transfer_seams(const dlp_pipe *p) {
    bool any = p->lender_stage && p->lender->seam(p, 0) > 0;
    return any ? p->n_out * p->batches.n : 0;
}

/* Describe in `out` the stage's heap memory: marks of begun copies, and addresses of device memory.
   Returns the number of blocks. */
DLPI_COLD static int dlpi_transfer_blocks(const dlp_pipe *p, const dlpi_stage *st,
                                          dlpi_block *out) {
    uint64_t fields = dlpi_times((uint64_t)dlpi_transfer_of(st)->buffers, p->batches.n);
    out[0] = (dlpi_block){offsetof(dlpi_transfer, begun), p->ring};
    out[1] = (dlpi_block){offsetof(dlpi_transfer, data), dlpi_times(fields, sizeof(void *))};
    out[2] = (dlpi_block){offsetof(dlpi_transfer, seam),
                          dlpi_times(dlpi_transfer_seams(p), sizeof(void *))};
    return 3;
}

/* Open the device, register the cells, and allocate all device buffers. Returns 0 or a DLP_ERR
   code. If it fails, dlpi_transfer_end frees what there is. */
DLPI_COLD static int dlpi_transfer_start(dlp_pipe *p, dlpi_stage *st) {
    dlpi_transfer *x = dlpi_transfer_of(st);
    const dlp_device *d = &x->device;
    uint32_t n = (uint32_t)x->buffers * p->batches.n;
    int rc = d->open ? d->open(d->user) : 0;
    const char *what = "open";
    if (rc == 0) x->open = 1;
    x->alone = st->w.num_workers > 0;
    x->lock = (dlpi_mutex)DLPI_MUTEX_INIT;
    x->shared = rc == 0 && x->seam != NULL && x->alone;
    if (rc == 0 && d->register_memory) {
        what = "register_memory";
        rc = d->register_memory(d->user, dlpi_area_at(p, DLPI_REC_CELLS, 0), dlpi_cells_bytes(p));
        x->registered = rc == 0;
    }
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        what = "alloc";
        rc = d->alloc(d->user, p->batches.at[i % p->batches.n].capacity, &x->data[i]);
    }
    for (uint32_t i = 0; rc == 0 && i < dlpi_transfer_seams(p); i++)
        rc = d->alloc(d->user, p->lender->seam(p, i % p->batches.n), &x->seam[i]);
    return rc == 0 ? DLP_OK : dlpi_transfer_refused(p, what, rc);
}

/* Free the device buffers, and close the device. All workers must have ended. If the device is not
   open, nothing is done. */
DLPI_COLD static void dlpi_transfer_end(dlp_pipe *p, dlpi_stage *st) {
    dlpi_transfer *x = dlpi_transfer_of(st);
    const dlp_device *d = &x->device;
    uint32_t n = (uint32_t)x->buffers * p->batches.n;
    if (!x->open) return;
    for (uint32_t i = 0; i < n; i++)
        if (x->data[i]) d->free(d->user, x->data[i]);
    for (uint32_t i = 0; x->seam && i < dlpi_transfer_seams(p); i++)
        if (x->seam[i]) d->free(d->user, x->seam[i]);
    if (x->registered && d->unregister_memory)
        d->unregister_memory(d->user, dlpi_area_at(p, DLPI_REC_CELLS, 0), dlpi_cells_bytes(p));
    if (d->close) d->close(d->user);
    x->shared = false;
    x->open = 0;
}

static const dlpi_sink_ops dlpi_transfer_sink = {
    .data = dlpi_transfer_data,
    .freed = dlpi_transfer_freed,
    .joins = dlpi_transfer_joins,
    .join = dlpi_transfer_join,
    .arrive = dlpi_transfer_arrive,
    .seam = dlpi_transfer_seam,
};

/* Check the device and the buffers of a transfer stage, and set the default of buffers. Returns
   0 or a DLP_ERR code. */
static int dlpi_transfer_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_transfer *x = st->self;
    const dlp_device *d = &x->device;
    int held = p->d.max_held ? p->d.max_held : 1;
    if (!d->alloc || !d->free || !d->copy || !d->record || !d->done)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "device",
                           "device has no alloc, free, copy, record or done; give all of these");
    if (x->buffers == 0) x->buffers = held + 1;
    dlpi_within(p, st->name, "queue.capacity", x->buffers, held + 1, DLPI_DEVICE_BUFFERS,
                "max_held + 1..64");
    return p->err.code;
}

static const dlpi_stage_ops dlpi_transfer_ops = {
    .kind = DLP_STAGE_TRANSFER,
    .rank = 9,
    .unit = DLPI_UNIT_BATCHES,
    .in_order = 1,
    .self_bytes = sizeof(dlpi_transfer),
    .layout = dlpi_transfer_layout,
    .blocks = dlpi_transfer_blocks,
    .begin = dlpi_transfer_start,
    .end = dlpi_transfer_end,
    .enter = dlpi_transfer_enter_thread,
    .step = dlpi_transfer_step,
    .due = dlpi_transfer_due,
    .words = {.slow = "move fewer bytes (smaller dtypes, pad less), give the device "
                      "register_memory, or raise device_buffers"},
    .sink = &dlpi_transfer_sink,
};

static int dlpi_host_alloc(void *user DLPI_UNREAD, uint64_t bytes, void **dev) {
    *dev = dlpi_aligned(4096, bytes ? bytes : 1);
    return *dev != NULL ? 0 : ENOMEM;
}
static void dlpi_host_free(void *user DLPI_UNREAD, void *dev) { dlpi_aligned_free(dev); }
static int dlpi_host_copy(void *user DLPI_UNREAD, void *dev, const void *host, uint64_t bytes,
                          uint32_t buffer DLPI_UNREAD) {
    if (bytes > 0) memcpy(dev, host, (size_t)bytes);
    return 0;
}
static int dlpi_host_copy_within(void *user DLPI_UNREAD, void *to, uint64_t to_at, void *from,
                                 uint64_t from_at, uint64_t bytes, uint32_t buffer DLPI_UNREAD) {
    memcpy((uint8_t *)to + to_at, (const uint8_t *)from + from_at, (size_t)bytes);
    return 0;
}
static int dlpi_host_record(void *user DLPI_UNREAD, uint32_t buffer DLPI_UNREAD) { return 0; }
static int dlpi_host_done(void *user DLPI_UNREAD, uint32_t buffer DLPI_UNREAD) { return 1; }
DLPDEF const dlp_device *dlp_device_host(void) {
    static const dlp_device host = {.name = "host",
                                    .alloc = dlpi_host_alloc,
                                    .free = dlpi_host_free,
                                    .copy = dlpi_host_copy,
                                    .record = dlpi_host_record,
                                    .done = dlpi_host_done,
                                    .copy_within = dlpi_host_copy_within};
    return &host;
}
