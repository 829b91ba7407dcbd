/* needs: transfer */
#pragma once
/* tests: system/device/device_cuda, system/device/device_opencl, gpu/gpu_false */
#include "device/gpu.h"
#include "device/opencl.h"
#ifdef DLPIPE_CUDA

typedef struct dlpi_cuda_calls {
    int (*init)(unsigned flags);
    int (*error_name)(int rc, const char **name);
    int (*device_get)(int *device, int ordinal);
    int (*device_count)(int *count);
    int (*device_name)(char *name, int size, int device);
    int (*primary_retain)(void **context, int device);
    int (*primary_release)(int device);
    int (*ctx_device)(int *device);
    int (*ctx_push)(void *context);
    int (*ctx_pop)(void **context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream, void *event, unsigned flags);
    int (*stream_sync)(void *stream);
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_sync)(void *event);
    int (*mem_alloc)(unsigned long long *address, size_t bytes);
    int (*mem_free)(unsigned long long address);
    int (*mem_info)(size_t *left, size_t *all);
    int (*host_register)(void *mem, size_t bytes, unsigned flags);
    int (*host_unregister)(void *mem);
    int (*copy)(unsigned long long to, const void *from, size_t bytes, void *stream);
    int (*copy_within)(unsigned long long to, unsigned long long from, size_t bytes, void *stream);
} dlpi_cuda_calls;

#define DLPI_CU(field, name) \
    { name, offsetof(dlpi_cuda_calls, field) }
static const dlpi_symbol dlpi_cuda_symbols[] = {
    DLPI_CU(init, "cuInit"),
    DLPI_CU(error_name, "cuGetErrorName"),
    DLPI_CU(device_get, "cuDeviceGet"),
    DLPI_CU(device_count, "cuDeviceGetCount"),
    DLPI_CU(device_name, "cuDeviceGetName"),
    DLPI_CU(primary_retain, "cuDevicePrimaryCtxRetain"),
    DLPI_CU(primary_release, "cuDevicePrimaryCtxRelease"),
    DLPI_CU(ctx_device, "cuCtxGetDevice"),
    DLPI_CU(ctx_push, "cuCtxPushCurrent_v2"),
    DLPI_CU(ctx_pop, "cuCtxPopCurrent_v2"),
    DLPI_CU(stream_create, "cuStreamCreate"),
    DLPI_CU(stream_destroy, "cuStreamDestroy_v2"),
    DLPI_CU(stream_wait, "cuStreamWaitEvent"),
    DLPI_CU(stream_sync, "cuStreamSynchronize"),
    DLPI_CU(event_create, "cuEventCreate"),
    DLPI_CU(event_destroy, "cuEventDestroy_v2"),
    DLPI_CU(event_record, "cuEventRecord"),
    DLPI_CU(event_query, "cuEventQuery"),
    DLPI_CU(event_sync, "cuEventSynchronize"),
    DLPI_CU(mem_alloc, "cuMemAlloc_v2"),
    DLPI_CU(mem_free, "cuMemFree_v2"),
    DLPI_CU(mem_info, "cuMemGetInfo_v2"),
    DLPI_CU(host_register, "cuMemHostRegister_v2"),
    DLPI_CU(host_unregister, "cuMemHostUnregister"),
    DLPI_CU(copy, "cuMemcpyHtoDAsync_v2"),
    DLPI_CU(copy_within, "cuMemcpyDtoDAsync_v2"),
};
#undef DLPI_CU

enum {
    DLPI_CU_NOT_READY = 600,
    DLPI_CU_STREAM_NON_BLOCKING = 1,
    DLPI_CU_EVENT_DISABLE_TIMING = 2,
    DLPI_CU_REGISTER_PORTABLE = 1
};

typedef struct dlpi_cuda {
    dlpi_gpu gpu; /* first */
    dlpi_cuda_calls call;
    void *context, *stream, *consumer;
    int has_consumer, own_stream, retained, device;
    const dlp_cuda_desc *later; /* the driver is called for the first time by open; NULL: it was */
    void *copied[DLPI_DEVICE_BUFFERS];  /* event after the copies into a buffer */
    void *readers[DLPI_DEVICE_BUFFERS]; /* event after the work that reads it */
} dlpi_cuda;

static void dlpi_cuda_words(const dlpi_cuda *c, int rc, const char *what, char *out, size_t size) {
    const char *name = NULL;
    if (c->call.error_name(rc, &name) != 0 || name == NULL) name = "unknown error";
    snprintf(out, size, "%s: %s (%d)", what, name, rc);
}

/* Return rc. If it is not 0, note in the device's name that the call `what` has failed. */
static int dlpi_cuda_said(dlpi_cuda *c, int rc, const char *what) {
    char words[96];
    if (rc == 0) return 0;
    dlpi_cuda_words(c, rc, what, words, sizeof words);
    dlpi_gpu_note(&c->gpu, words);
    return rc;
}

DLPI_COLD static int dlpi_cuda_fail(const dlpi_cuda *c, int rc, const char *what, int code,
                                    const char *field, dlp_error *err) {
    char words[96];
    dlpi_cuda_words(c, rc, what, words, sizeof words);
    return dlpi_error_set(err, code, field, "%s", words);
}

static int dlpi_cuda_enter(dlpi_cuda *c) {
    return dlpi_cuda_said(c, c->call.ctx_push(c->context), "cuCtxPushCurrent");
}

/* Leave the context. Returns rc or, if rc is 0, the error of the leave. */
static int dlpi_cuda_leave(dlpi_cuda *c, int rc) {
    void *was;
    int popped = c->call.ctx_pop(&was);
    return rc != 0 ? rc : dlpi_cuda_said(c, popped, "cuCtxPopCurrent");
}

/* Wait until nothing enqueued can touch the slots or the buffers, before they go. */
DLPI_COLD static void dlpi_cuda_drain(dlpi_cuda *c) {
    if (!c->gpu.dirty) return;
    c->gpu.dirty = 0;
    c->call.stream_sync(c->stream);
    if (c->has_consumer) c->call.stream_sync(c->consumer);
    for (uint32_t i = 0; i < DLPI_DEVICE_BUFFERS; i++)
        if (c->gpu.due[i]) c->call.event_sync(c->readers[i]);
}

/* Unpin memory that dlpi_cuda_register pinned, once no copy can read it. */
DLPI_COLD static void dlpi_cuda_unregister(void *user, void *mem, uint64_t bytes DLPI_UNREAD) {
    dlpi_cuda *c = user;
    if (!c->gpu.info.pinned || dlpi_cuda_enter(c) != 0) return;
    dlpi_cuda_drain(c);
    c->call.host_unregister(mem);
    c->gpu.info.pinned = 0;
    dlpi_cuda_leave(c, 0);
}

/* Pin memory, if it can be: pageable copies are right, too. Returns 0, or if a push fails, its
   error. */
DLPI_COLD static int dlpi_cuda_register(void *user, void *mem, uint64_t bytes) {
    dlpi_cuda *c = user;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    rc = c->call.host_register(mem, (size_t)bytes, DLPI_CU_REGISTER_PORTABLE);
    c->gpu.info.pinned = rc == 0;
    if (rc != 0)
        dlpi_cuda_words(c, rc, "cuMemHostRegister", c->gpu.info.unpinned,
                        sizeof c->gpu.info.unpinned);
    rc = dlpi_cuda_leave(c, 0);
    if (rc != 0) dlpi_cuda_unregister(c, mem, bytes);
    return rc;
}

/* Allocate device memory, at least one byte. Returns 0 or a CUresult; *dev is then untouched. */
DLPI_COLD static int dlpi_cuda_alloc(void *user, uint64_t bytes, void **dev) {
    dlpi_cuda *c = user;
    unsigned long long address = 0;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    rc = dlpi_cuda_said(c, c->call.mem_alloc(&address, bytes ? (size_t)bytes : 1), "cuMemAlloc");
    if (rc == 0) *dev = (void *)(uintptr_t)address;
    return dlpi_cuda_leave(c, rc);
}

/* Set *bytes to the free memory of the device. Returns 0 or a CUresult. */
DLPI_COLD static int dlpi_cuda_room(void *user, uint64_t *bytes) {
    dlpi_cuda *c = user;
    size_t left = 0, all = 0;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    rc = dlpi_cuda_said(c, c->call.mem_info(&left, &all), "cuMemGetInfo");
    if (rc == 0) *bytes = left;
    return dlpi_cuda_leave(c, rc);
}

/* Free device memory, once no enqueued copy can touch it. */
DLPI_COLD static void dlpi_cuda_free(void *user, void *dev) {
    dlpi_cuda *c = user;
    if (dlpi_cuda_enter(c) != 0) return;
    dlpi_cuda_drain(c);
    c->call.mem_free((unsigned long long)(uintptr_t)dev);
    dlpi_cuda_leave(c, 0);
}

/* Put the copies that follow after all that still reads the buffer. Returns a CUresult. */
static int dlpi_cuda_order(dlpi_cuda *c, uint32_t buffer) {
    void *event = c->readers[buffer];
    int rc = 0;
    if (c->gpu.ordered[buffer]) return 0;
    if (c->gpu.due[buffer])
        rc = dlpi_cuda_said(c, c->call.stream_wait(c->stream, event, 0), "cuStreamWaitEvent");
    if (rc == 0 && c->has_consumer) { /* which may be another stream than release_after's */
        rc = dlpi_cuda_said(c, c->call.event_record(event, c->consumer), "cuEventRecord");
        if (rc == 0)
            rc = dlpi_cuda_said(c, c->call.stream_wait(c->stream, event, 0), "cuStreamWaitEvent");
    }
    if (rc != 0) return rc;
    c->gpu.due[buffer] = 0;
    c->gpu.ordered[buffer] = 1;
    return 0;
}

/* Begin to copy host memory into device memory, after the readers of the buffer. The host memory
   must stay as it is until the copy is done. Returns 0 or a CUresult. */
static int dlpi_cuda_copy(void *user, void *dev, const void *host, uint64_t bytes,
                          uint32_t buffer) {
    dlpi_cuda *c = user;
    unsigned long long to = (unsigned long long)(uintptr_t)dev;
    int rc;
    if (bytes == 0) return 0;
    if ((rc = dlpi_cuda_enter(c)) != 0) return rc;
    rc = dlpi_cuda_order(c, buffer);
    c->gpu.dirty = 1;
    if (rc == 0)
        rc = dlpi_cuda_said(c, c->call.copy(to, host, (size_t)bytes, c->stream),
                            "cuMemcpyHtoDAsync");
    return dlpi_cuda_leave(c, rc);
}

/* Begin to copy bytes between two places of device memory, after the readers of the buffer. Returns
   0 or a CUresult. */
static int dlpi_cuda_copy_within(void *user, void *to, uint64_t to_at, void *from, uint64_t from_at,
                                 uint64_t bytes, uint32_t buffer) {
    dlpi_cuda *c = user;
    unsigned long long at = (unsigned long long)(uintptr_t)to + to_at;
    unsigned long long source = (unsigned long long)(uintptr_t)from + from_at;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    rc = dlpi_cuda_order(c, buffer);
    c->gpu.dirty = 1;
    if (rc == 0)
        rc = dlpi_cuda_said(c, c->call.copy_within(at, source, (size_t)bytes, c->stream),
                            "cuMemcpyDtoDAsync");
    return dlpi_cuda_leave(c, rc);
}

/* Mark the end of the copies into a buffer, for dlpi_cuda_done. The next copy waits for the
   buffer's readers again. Returns 0 or a CUresult. */
static int dlpi_cuda_record(void *user, uint32_t buffer) {
    dlpi_cuda *c = user;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    c->gpu.ordered[buffer] = 0;
    rc = dlpi_cuda_said(c, c->call.event_record(c->copied[buffer], c->stream), "cuEventRecord");
    return dlpi_cuda_leave(c, rc);
}

/* Return 1 if the copies into the buffer are done, 0 if not yet, or a negative error. */
static int dlpi_cuda_done(void *user, uint32_t buffer) {
    dlpi_cuda *c = user;
    int rc = dlpi_cuda_enter(c), query;
    if (rc != 0) return -rc;
    query = c->call.event_query(c->copied[buffer]);
    rc = query == DLPI_CU_NOT_READY ? 0 : dlpi_cuda_said(c, query, "cuEventQuery");
    rc = dlpi_cuda_leave(c, rc);
    if (rc != 0) return -rc;
    return query != DLPI_CU_NOT_READY;
}

/* Put the buffer's next copies after the present work of a stream. Returns 0 or a code. */
static int dlpi_cuda_release_after(void *user, uint32_t buffer, void *stream, dlp_error *err) {
    dlpi_cuda *c = user;
    void *was;
    int rc = c->call.ctx_push(c->context);
    if (rc != 0) return dlpi_cuda_fail(c, rc, "cuCtxPushCurrent", DLP_ERR_DEVICE, "", err);
    if (c->gpu.due[buffer]) /* of another view of the same chunk: after both */
        rc = c->call.stream_wait(stream, c->readers[buffer], 0);
    if (rc == 0) rc = c->call.event_record(c->readers[buffer], stream);
    c->call.ctx_pop(&was);
    if (rc != 0) return dlpi_cuda_fail(c, rc, "cuEventRecord", DLP_ERR_DEVICE, "stream", err);
    c->gpu.due[buffer] = 1;
    return DLP_OK;
}

/* Free all that dlpi_cuda_begin has made, which may have failed half-way. */
static void dlpi_cuda_drop(dlpi_cuda *c) {
    void *was;
    if (c->context && c->call.ctx_push(c->context) == 0) {
        for (int i = 0; i < DLPI_DEVICE_BUFFERS; i++) {
            if (c->copied[i]) c->call.event_destroy(c->copied[i]);
            if (c->readers[i]) c->call.event_destroy(c->readers[i]);
        }
        if (c->own_stream) c->call.stream_destroy(c->stream);
        c->call.ctx_pop(&was);
    }
    if (c->retained) c->call.primary_release(c->device);
    memset(c->copied, 0, sizeof c->copied);
    memset(c->readers, 0, sizeof c->readers);
    c->context = c->stream = NULL;
    c->own_stream = c->retained = 0;
}

/* Find the device and its context. Returns 0, or a code with *err filled. */
static int dlpi_cuda_find(dlpi_cuda *c, const dlp_cuda_desc *d, dlp_error *err) {
    int count = 0, rc = c->call.init(0);
    if (rc != 0) return dlpi_cuda_fail(c, rc, "cuInit", DLP_ERR_UNSUPPORTED, "", err);
    if ((c->context = d->context) != NULL) return DLP_OK;
    if ((rc = c->call.device_count(&count)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDeviceGetCount", DLP_ERR_DEVICE, "", err);
    if (count == 0)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "no CUDA device is visible");
    if (d->device < 0 || d->device >= count)
        return dlpi_error_set(err, DLP_ERR_ARG, "device", "device is %d, must be 0..%d",
                              (int)d->device, count - 1);
    if ((rc = c->call.device_get(&c->device, d->device)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDeviceGet", DLP_ERR_DEVICE, "device", err);
    if ((rc = c->call.primary_retain(&c->context, c->device)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDevicePrimaryCtxRetain", DLP_ERR_DEVICE, "device", err);
    c->retained = 1;
    return DLP_OK;
}

/* Make the stream and the events. The context is current. Returns a CUresult; *what is its call. */
static int dlpi_cuda_make(dlpi_cuda *c, const dlp_cuda_desc *d, const char **what) {
    int rc;
    *what = "cuCtxGetDevice";
    if (d->context && (rc = c->call.ctx_device(&c->device)) != 0) return rc;
    *what = "cuDeviceGetName";
    rc = c->call.device_name(c->gpu.info.name, sizeof c->gpu.info.name - 1, c->device);
    if (rc != 0) return rc;
    *what = "cuStreamCreate";
    if ((c->stream = d->stream) == NULL) {
        rc = c->call.stream_create(&c->stream, DLPI_CU_STREAM_NON_BLOCKING);
        if (rc != 0) return rc;
        c->own_stream = 1;
    }
    *what = "cuEventCreate";
    for (int i = 0; i < DLPI_DEVICE_BUFFERS; i++) {
        rc = c->call.event_create(&c->copied[i], DLPI_CU_EVENT_DISABLE_TIMING);
        if (rc == 0) rc = c->call.event_create(&c->readers[i], DLPI_CU_EVENT_DISABLE_TIMING);
        if (rc != 0) return rc;
    }
    return 0;
}

/* Find the context, make the stream and the events, and describe the device. Returns 0, or a
   DLP_ERR code with *err filled. If it fails, the caller must call dlpi_cuda_drop. */
static int dlpi_cuda_begin(dlpi_cuda *c, const dlp_cuda_desc *d, dlp_error *err) {
    const char *what = "cuCtxPushCurrent", *popping = "cuCtxPopCurrent";
    void *was;
    int rc = dlpi_cuda_find(c, d, err), popped;
    if (rc != DLP_OK) return rc;
    if ((rc = c->call.ctx_push(c->context)) == 0) {
        rc = dlpi_cuda_make(c, d, &what);
        popped = c->call.ctx_pop(&was);
        if (rc == 0 && popped != 0) rc = popped, what = popping;
    }
    if (rc != 0) return dlpi_cuda_fail(c, rc, what, DLP_ERR_DEVICE, "", err);
    c->consumer = d->consumer;
    c->has_consumer = d->has_consumer || d->consumer;
    c->gpu.info.kind = "cuda";
    c->gpu.info.device = c->device;
    c->gpu.info.context = c->context;
    c->gpu.info.queue = c->stream;
    snprintf(c->gpu.base, sizeof c->gpu.base, "cuda:%d", c->device);
    dlpi_copy_text(c->gpu.name, sizeof c->gpu.name, c->gpu.base);
    return DLP_OK;
}

/* Take the device for a pipe. With `later` the first call also begins the device. Returns 0 or a
   DLP_ERR code; the device's name then tells why. */
static int dlpi_cuda_open(void *user) {
    dlpi_cuda *c = user;
    dlp_error e;
    int rc = dlpi_gpu_open(&c->gpu);
    if (rc != 0) return rc;
    c->gpu.info.unpinned[0] = 0;
    if (c->later == NULL) return 0;
    if ((rc = dlpi_cuda_begin(c, c->later, &e)) != DLP_OK) {
        dlpi_cuda_drop(c);
        dlpi_gpu_note(&c->gpu, e.message);
        dlpi_gpu_leave(c);
        return rc;
    }
    c->later = NULL;
    return 0;
}

/* Find the calls; call the driver unless that comes later. Returns 0, or a code with *err
   filled. */
static int dlpi_cuda_load(dlpi_cuda *c, const dlp_cuda_desc *d, dlp_error *err) {
    const char *library = d->library ? d->library : "libcuda.so.1";
    size_t n = sizeof dlpi_cuda_symbols / sizeof *dlpi_cuda_symbols;
    int rc = dlpi_gpu_load(&c->call, dlpi_cuda_symbols, n, library, err);
    if (rc != DLP_OK) return rc;
    if (d->later < 0 || d->later > 1)
        return dlpi_error_set(err, DLP_ERR_ARG, "later", "later is %d, not 0 or 1", (int)d->later);
    if (!d->later) return dlpi_cuda_begin(c, d, err);
    c->later = d;
    c->gpu.info.kind = "cuda";
    dlpi_copy_text(c->gpu.base, sizeof c->gpu.base, "cuda");
    dlpi_copy_text(c->gpu.name, sizeof c->gpu.name, c->gpu.base);
    return DLP_OK;
}

DLPDEF int dlp_device_cuda(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err) {
    dlp_cuda_desc zero;
    dlpi_cuda *c;
    int rc;
    memset(&zero, 0, sizeof zero);
    if (out == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    if ((c = calloc(1, sizeof *c)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the device failed");
    if ((rc = dlpi_cuda_load(c, desc ? desc : &zero, err)) != DLP_OK) {
        dlpi_cuda_drop(c);
        free(c);
        return rc;
    }
    *out = (dlp_device){.name = c->gpu.name,
                        .open = dlpi_cuda_open,
                        .close = dlpi_gpu_leave,
                        .register_memory = dlpi_cuda_register,
                        .unregister_memory = dlpi_cuda_unregister,
                        .alloc = dlpi_cuda_alloc,
                        .free = dlpi_cuda_free,
                        .copy = dlpi_cuda_copy,
                        .record = dlpi_cuda_record,
                        .done = dlpi_cuda_done,
                        .user = c,
                        .copy_within = dlpi_cuda_copy_within,
                        .room = c->later ? NULL : dlpi_cuda_room};
    return DLP_OK;
}

static bool dlpi_is_cuda(const dlp_device *d) { return d->copy == dlpi_cuda_copy; }

#else

DLPDEF int dlp_device_cuda(dlp_device *out DLPI_UNREAD, const dlp_cuda_desc *desc DLPI_UNREAD,
                           dlp_error *err) {
    return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                          "compiled without CUDA; define DLPIPE_CUDA beside DLPIPE_IMPLEMENTATION");
}
#endif /* DLPIPE_CUDA */

/* Return the make of a device: 1 for CUDA, 2 for OpenCL, 0 for another. */
static int dlpi_gpu_make(const dlp_device *d DLPI_UNREAD) {
#ifdef DLPIPE_CUDA
    if (dlpi_is_cuda(d)) return 1;
#endif
#ifdef DLPIPE_OPENCL
    if (dlpi_is_cl(d)) return 2;
#endif
    return 0;
}

DLPI_COLD DLPDEF int dlp_device_describe(const dlp_device *device, dlp_device_info *out) {
    if (device == NULL || out == NULL || dlpi_gpu_make(device) == 0) return DLP_ERR_ARG;
    *out = ((const dlpi_gpu *)device->user)->info;
    return DLP_OK;
}

DLPI_COLD DLPDEF int dlp_device_close(dlp_device *device) {
    if (device == NULL || (device->copy == NULL && device->user == NULL)) return DLP_OK;
    if (dlpi_gpu_make(device) == 0) return DLP_ERR_ARG;
    if (DLPI_LOAD_SEQ(&((dlpi_gpu *)device->user)->used) != 0) return DLP_ERR_BUSY; /* U1 <- U1 */
#ifdef DLPIPE_CUDA
    if (dlpi_is_cuda(device)) {
        dlpi_cuda_drop(device->user);
        free(device->user);
        device->user = NULL;
    }
#endif
#ifdef DLPIPE_OPENCL
    if (device->user && dlpi_is_cl(device)) dlpi_cl_end(device->user);
#endif
    memset(device, 0, sizeof *device);
    return DLP_OK;
}
