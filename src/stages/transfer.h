#pragma once
#include "stages/chunks.h"
#include "core/workers.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-transfer   BATCHES TO THE DEVICE
   One thread, or the caller. Batches go in their order (unordered: as they become ready) into the
   device buffers; a batch is ready when the event behind its copies has passed. None of a later
   epoch goes while one of the oldest is to come: the caller takes no other before, and it could
   find no buffer. */

static int dlpi_xfer_fail(dlp_pipe *p, dlpi_bslot *slot, const char *what, int rc) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_DEVICE, "", "device \"%s\": %s returned %d",
                   p->xfer->device.name ? p->xfer->device.name : "", what, rc);
    dlpi_copy_text(e.stage, sizeof e.stage, p->xfer->name);
    e.epoch = slot->epoch;
    e.position = slot->position;
    dlpi_slot_fail(slot, DLPI_NOBODY, &e);
    return DLP_ERR_DEVICE;
}

static void dlpi_xfer_ready(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bump(&w->wb->items, 1);
    DLPI_STORE_SEQ(&dlpi_sst_at(p, s, p->xfer)->ready, b + 1); /* Y1 -> Y1 */
    dlpi_ring_caller(p->ctl, b);
}

/* Bytes of a field to be copied: of a chunk, its rows. */
static uint64_t dlpi_xfer_bytes(const dlpi_worker *w, uint32_t s, uint32_t f) {
    const dlp_pipe *p = w->p;
    uint64_t rows;
    if (p->split == NULL) return w->tensors[f].bytes;
    rows = dlpi_chunk_local(p, dlpi_chunk_size(p, dlpi_slot_index(p, s)[0]));
    return rows * (p->batches.at[f].row_bytes / (uint64_t)p->batches.at[f].f.shape[0]);
}

/* Copy what lies in slot `from`, for the batch in slot s, into the memory of device buffer `to`,
   behind events of number `buffer`. */
static int dlpi_xfer_copy(dlpi_worker *w, uint32_t s, uint32_t from, uint32_t to, uint32_t buffer) {
    dlp_pipe *p = w->p;
    const dlp_device *d = &p->xfer->device;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    int rc;
    dlpi_batch_view_init(p, from, &w->batch, w->tensors);
    dlpi_batch_view(p, from, &w->batch, w->tensors);
    for (uint32_t f = 0; f < p->batches.n; f++) {
        uint64_t bytes = dlpi_xfer_bytes(w, s, f);
        void *dev = p->dev_data[(size_t)to * p->batches.n + f];
        rc = d->copy(d->user, dev, w->tensors[f].data, bytes, buffer);
        if (rc != 0) return dlpi_xfer_fail(p, slot, "copy", rc);
        dlpi_bump(&w->wb->bytes, bytes);
    }
    rc = d->record(d->user, buffer);
    return rc != 0 ? dlpi_xfer_fail(p, slot, "record", rc) : DLP_OK;
}

/* The slot whose cell has the bytes of a chunk that is not on the device yet, as batch b in slot s
   finds it. Of two batches on their way that are the same chunk either may have loaded it: the
   later one lends its cell, which it keeps, for it waits here behind b. The earlier one would have
   copied it, had the copy not failed. */
static uint32_t dlpi_xfer_source(const dlp_pipe *p, uint64_t chunk, uint32_t s, uint64_t b) {
    uint64_t word = DLPI_LOAD_SEQ(dlpi_chunk_word(p, chunk)); /* Q1 <- Q1 */
    if (dlpi_chunk_left(p, s)) return s;                      /* its zeros */
    if ((word & 1) == 0 || (word >> 16) - 1 < b) return DLPI_NO_SLOT;
    return (word >> 16) - 1 == b ? s : (uint32_t)(word >> 1 & 0x7fff);
}

/* The same, where each chunk has a device buffer of its own. dev_slot says 1: the chunk is on its
   way there, 2: it is there. Who loaded it copies it even if the epoch was left, for nobody will
   load it again. Events have the slot's number. */
static bool dlpi_xfer_stay(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t chunk = dlpi_slot_index(p, s)[0];
    bool left = !dlpi_wanted(p->ctl, slot);
    uint32_t state, from;
    slot->dbuf = DLPI_NO_SLOT;
    if (DLPI_LOAD_ACQ(&slot->failed) != 0 || chunk >= dlpi_chunk_count(p)) { /* F1 <- F1 */
        dlpi_xfer_ready(w, s, b);
        return true;
    }
    slot->dbuf = (uint32_t)chunk;
    state = DLPI_LOAD_ACQ(dlpi_dev_slot(p, chunk)); /* C2 <- C2 */
    if (state == 1) return false;                   /* maybe out of this cell */
    from = state == 0 ? dlpi_xfer_source(p, chunk, s, b) : DLPI_NO_SLOT;
    if (from == s || (from != DLPI_NO_SLOT && !left)) {
        dlpi_clock_in(w);
        DLPI_STORE_RLX(dlpi_dev_slot(p, chunk), 1u); /* C2: only this thread */
        if (dlpi_xfer_copy(w, s, from, slot->dbuf, s) != DLP_OK)
            dlpi_xfer_ready(w, s, b);
        else
            w->parked[w->n_parked++] = (dlpi_parked){0, b, s, s};
        dlpi_clock_out(w, b, slot->epoch, 1);
        return true;
    }
    if (state == 0 && !left) dlpi_xfer_fail(p, slot, "an earlier copy of this chunk", -1);
    dlpi_xfer_ready(w, s, b);
    return true;
}

/* Begin the copy of batch b in slot s if a buffer is free. Returns whether it was taken. */
static bool dlpi_xfer_begin(dlpi_worker *w, uint32_t s, uint64_t b) {
    dlp_pipe *p = w->p;
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint32_t buffers = (uint32_t)p->xfer->transfer.device_buffers, i = 0;
    if (p->chunks.preload == DLP_PRELOAD_DEVICE) return dlpi_xfer_stay(w, s, b);
    slot->dbuf = DLPI_NO_SLOT;
    if (dlpi_slot_idle(p, s)) {
        dlpi_xfer_ready(w, s, b);
        return true;
    }
    while (i < buffers && DLPI_LOAD_ACQ(dlpi_dev_slot(p, i)) != 0) i++; /* C2 <- C2 */
    if (i == buffers) return false;
    DLPI_STORE_RLX(dlpi_dev_slot(p, i), s + 1); /* C2: only this thread takes */
    slot->dbuf = i;
    dlpi_clock_in(w);
    if (dlpi_xfer_copy(w, s, s, i, i) != DLP_OK)
        dlpi_xfer_ready(w, s, b);
    else
        w->parked[w->n_parked++] = (dlpi_parked){0, b, s, i};
    dlpi_clock_out(w, b, slot->epoch, 1);
    return true;
}

/* Copies whose events have passed. */
static bool dlpi_xfer_poll(dlpi_worker *w) {
    const dlp_device *d = &w->p->xfer->device;
    bool moved = false;
    for (int i = 0; i < w->n_parked;) {
        dlpi_parked k = w->parked[i];
        int done = d->done(d->user, k.row);
        if (done == 0) {
            i++;
            continue;
        }
        if (done != 1)
            dlpi_xfer_fail(w->p, dlpi_slot_at(w->p, k.slot), "done", done);
        else if (w->p->chunks.preload == DLP_PRELOAD_DEVICE)
            DLPI_STORE_SEQ(dlpi_dev_slot(w->p, dlpi_slot_at(w->p, k.slot)->dbuf), /* C2 -> C2 */
                           dlpi_chunk_left(w->p, k.slot) ? 0u : 2u);
        memmove(&w->parked[i], &w->parked[i + 1], (size_t)(--w->n_parked - i) * sizeof k);
        dlpi_xfer_ready(w, k.slot, k.gen);
        moved = true;
    }
    return moved;
}

static bool dlpi_xfer_step(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    uint64_t tail = DLPI_LOAD_SEQ(&p->ctl->tail); /* T1 <- T1 */
    dlpi_stage *up = p->work[w->st->work - 1];
    bool moved = dlpi_xfer_poll(w);
    uint64_t mark =
        w->cursor != tail ? dlpi_slot_mark(dlpi_slot_at(p, dlpi_slot_of(p, w->cursor))) : 0;
    for (uint64_t b = w->cursor; b != tail; b++) {
        uint32_t s = dlpi_slot_of(p, b);
        bool taken = p->taken_by_xfer[b & (p->ring - 1)] != 0;
        if (!taken && dlpi_slot_mark(dlpi_slot_at(p, s)) != mark) break;
        /* Y1 <- Y1 */
        if (!taken && dlpi_ready_is(DLPI_LOAD_SEQ(&dlpi_sst_at(p, s, up)->ready), b)) {
            if (!dlpi_xfer_begin(w, s, b)) break;
            p->taken_by_xfer[b & (p->ring - 1)] = 1;
            moved = taken = true;
        }
        if (taken && b == w->cursor) p->taken_by_xfer[w->cursor++ & (p->ring - 1)] = 0;
        if (!taken && !p->d.unordered) break;
    }
    return dlpi_xfer_poll(w) || moved;
}

/* No event wakes a worker when a copy is through: it looks often. */
static uint64_t dlpi_xfer_due(dlpi_worker *w, uint64_t ns) {
    return w->n_parked > 0 && ns > 20000 ? 20000 : ns;
}

static const dlpi_stage_ops dlpi_transfer_ops = {
    .kind = DLP_STAGE_TRANSFER,
    .rank = 9,
    .unit = DLPI_UNIT_BATCHES,
    .in_order = 1,
    .step = dlpi_xfer_step,
    .due = dlpi_xfer_due,
};

static int dlpi_host_alloc(void *user, uint64_t bytes, void **dev) {
    DLPI_UNUSED(user);
    *dev = NULL;
    return posix_memalign(dev, 4096, bytes ? (size_t)bytes : 1);
}
static void dlpi_host_free(void *user, void *dev) {
    DLPI_UNUSED(user);
    free(dev);
}
static int dlpi_host_copy(void *user, void *dev, const void *host, uint64_t bytes,
                          uint32_t buffer) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(buffer);
    if (bytes > 0) memcpy(dev, host, (size_t)bytes);
    return 0;
}
static int dlpi_host_record(void *user, uint32_t buffer) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(buffer);
    return 0;
}
static int dlpi_host_done(void *user, uint32_t buffer) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(buffer);
    return 1;
}
DLPDEF const dlp_device *dlp_device_host(void) {
    static const dlp_device host = {"host",         NULL,           NULL,
                                    NULL,           NULL,           dlpi_host_alloc,
                                    dlpi_host_free, dlpi_host_copy, dlpi_host_record,
                                    dlpi_host_done, NULL,           0};
    return &host;
}
