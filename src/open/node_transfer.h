/* needs: transfer */
#pragma once
/* tests: system/device/device_opencl, system/core/tables */
#include "device/devices.h"
#include "open/pipe.h"
#include "open/table.h"
#include "stages/transfer.h"
/* ---- copies to a device ---- */

/* Add a transfer row. queue.capacity counts the device buffers. Returns a stage number or a DLP_ERR
   code. */
static int dlpi_node_transfer_add(dlpi_table *t, const dlp_node *node) {
    const dlp_device *device = node->transfer.device;
    dlpi_stage *st;
    if ((st = dlpi_add(t->p, &dlpi_transfer_ops, "transfer", NULL)) == NULL) return t->p->err.code;
    dlpi_transfer_of(st)->buffers = (int32_t)node->queue.capacity;
    dlpi_transfer_of(st)->device = device != NULL ? *device : *dlp_device_host();
    st->w.num_workers = node->workers.num_workers;
    return dlpi_added(t->p, st, dlpi_transfer_check(t->p, st));
}

/* Return the number of the events of the buffer of batch s; in a split pipe s is a view. */
DLPI_UNREAD /* without these devices */
    static uint32_t
    dlpi_release_buffer(const dlp_pipe *p, uint32_t s) {
    uint32_t slot = p->lender->slot(p, s);
    return slot == DLPI_NO_SLOT ? dlpi_transfer_seam_events(p, s) : dlpi_transfer_events(p, slot);
}

DLPDEF int dlp_pipe_release_after(dlp_pipe *p, dlp_batch *batch, void *stream DLPI_UNREAD,
                                  dlp_error *err) {
    const dlp_device *d;
    uint32_t s;
    int rc = DLP_OK, make;
    if (p == NULL || batch == NULL || !p->started)
        return dlpi_error_set(err, DLP_ERR_ARG, "batch",
                              "pipe or batch is NULL, or the pipe was not started");
    if (dlpi_forked(p)) return dlpi_error_set(err, DLP_ERR_FORKED, "", "forked after start");
    if ((s = dlpi_lent_slot(p, batch)) == DLPI_NO_SLOT)
        return dlpi_error_set(err, DLP_ERR_ARG, "batch", "the batch is not held");
    d = dlpi_transfer_device(p);
    make = d ? dlpi_gpu_make(d) : 0;
    if (make == 0)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                              "the pipe has no GPU; use dlp_pipe_release");
#ifdef DLPIPE_CUDA
    if (make == 1) rc = dlpi_cuda_release_after(d->user, dlpi_release_buffer(p, s), stream, err);
#endif
#ifdef DLPIPE_OPENCL
    if (make == 2) rc = dlpi_cl_release_after(d->user, dlpi_release_buffer(p, s), stream, err);
#endif
    if (rc != DLP_OK) return rc;
    return dlp_pipe_release(p, batch);
}
