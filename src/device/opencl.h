/* needs: transfer */
#pragma once
/* tests: system/device/device_opencl */
#include "device/gpu.h"
#ifdef DLPIPE_OPENCL

typedef struct dlpi_cl_calls {
    int32_t (*platforms)(uint32_t room, void **out, uint32_t *n);
    int32_t (*devices)(void *platform, uint64_t type, uint32_t room, void **out, uint32_t *n);
    int32_t (*device_info)(void *device, uint32_t what, size_t size, void *out, size_t *used);
    void *(*context_create)(const intptr_t *properties, uint32_t n, void *const *devices,
                            void (*notify)(const char *, const void *, size_t, void *), void *user,
                            int32_t *rc);
    int32_t (*context_info)(void *context, uint32_t what, size_t size, void *out, size_t *used);
    int32_t (*context_retain)(void *context);
    int32_t (*context_release)(void *context);
    void *(*queue_create)(void *context, void *device, uint64_t properties, int32_t *rc);
    int32_t (*queue_info)(void *queue, uint32_t what, size_t size, void *out, size_t *used);
    int32_t (*queue_retain)(void *queue);
    int32_t (*queue_release)(void *queue);
    void *(*buffer_create)(void *context, uint64_t flags, size_t size, void *host, int32_t *rc);
    int32_t (*buffer_release)(void *buffer);
    int32_t (*write)(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size,
                     const void *from, uint32_t n_wait, void *const *wait, void **event);
    int32_t (*copy)(void *queue, void *from, void *to, size_t from_at, size_t to_at, size_t size,
                    uint32_t n_wait, void *const *wait, void **event);
    int32_t (*marker)(void *queue, uint32_t n_wait, void *const *wait, void **event);
    int32_t (*event_info)(void *event, uint32_t what, size_t size, void *out, size_t *used);
    int32_t (*event_release)(void *event);
    int32_t (*events_wait)(uint32_t n, void *const *events);
    int32_t (*flush)(void *queue);
    int32_t (*finish)(void *queue);
} dlpi_cl_calls;

#define DLPI_CL(field, name) \
    { name, offsetof(dlpi_cl_calls, field) }
static const dlpi_symbol dlpi_cl_symbols[] = {
    DLPI_CL(platforms, "clGetPlatformIDs"),
    DLPI_CL(devices, "clGetDeviceIDs"),
    DLPI_CL(device_info, "clGetDeviceInfo"),
    DLPI_CL(context_create, "clCreateContext"),
    DLPI_CL(context_info, "clGetContextInfo"),
    DLPI_CL(context_retain, "clRetainContext"),
    DLPI_CL(context_release, "clReleaseContext"),
    DLPI_CL(queue_create, "clCreateCommandQueue"),
    DLPI_CL(queue_info, "clGetCommandQueueInfo"),
    DLPI_CL(queue_retain, "clRetainCommandQueue"),
    DLPI_CL(queue_release, "clReleaseCommandQueue"),
    DLPI_CL(buffer_create, "clCreateBuffer"),
    DLPI_CL(buffer_release, "clReleaseMemObject"),
    DLPI_CL(write, "clEnqueueWriteBuffer"),
    DLPI_CL(copy, "clEnqueueCopyBuffer"),
    DLPI_CL(marker, "clEnqueueMarkerWithWaitList"),
    DLPI_CL(event_info, "clGetEventInfo"),
    DLPI_CL(event_release, "clReleaseEvent"),
    DLPI_CL(events_wait, "clWaitForEvents"),
    DLPI_CL(flush, "clFlush"),
    DLPI_CL(finish, "clFinish"),
};
#undef DLPI_CL

enum {
    DLPI_CL_PLATFORM_NOT_FOUND = -1001,
    DLPI_CL_DEVICE_NOT_FOUND = -1,
    DLPI_CL_CONTEXT_DEVICES = 0x1081,
    DLPI_CL_QUEUE_CONTEXT = 0x1090,
    DLPI_CL_QUEUE_DEVICE = 0x1091,
    DLPI_CL_DEVICE_NAME = 0x102B,
    DLPI_CL_EVENT_STATUS = 0x11D3,
    DLPI_CL_READ_WRITE = 1,
    DLPI_CL_ROOM = 32 /* platforms, and devices of each, that are looked at */
};
#define DLPI_CL_ALL_DEVICES UINT64_C(0xFFFFFFFF)

/* Return the name of an error code, as CL/cl.h has it without "CL_"; "ERROR" if it is not known. */
static const char *dlpi_cl_name(int32_t rc) {
    static const char *const low[] = {"DEVICE_NOT_FOUND",
                                      "DEVICE_NOT_AVAILABLE",
                                      "COMPILER_NOT_AVAILABLE",
                                      "MEM_OBJECT_ALLOCATION_FAILURE",
                                      "OUT_OF_RESOURCES",
                                      "OUT_OF_HOST_MEMORY",
                                      "PROFILING_INFO_NOT_AVAILABLE",
                                      "MEM_COPY_OVERLAP",
                                      "IMAGE_FORMAT_MISMATCH",
                                      "IMAGE_FORMAT_NOT_SUPPORTED",
                                      "BUILD_PROGRAM_FAILURE",
                                      "MAP_FAILURE",
                                      "MISALIGNED_SUB_BUFFER_OFFSET",
                                      "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"};
    static const char *const high[] = {
        "INVALID_VALUE",         "INVALID_DEVICE_TYPE", "INVALID_PLATFORM",
        "INVALID_DEVICE",        "INVALID_CONTEXT",     "INVALID_QUEUE_PROPERTIES",
        "INVALID_COMMAND_QUEUE", "INVALID_HOST_PTR",    "INVALID_MEM_OBJECT"};
    if (rc < 0 && rc >= -14) return low[-1 - rc];
    if (rc <= -30 && rc >= -38) return high[-30 - rc];
    switch (rc) {
    case -57: return "INVALID_EVENT_WAIT_LIST";
    case -58: return "INVALID_EVENT";
    case -59: return "INVALID_OPERATION";
    case -61: return "INVALID_BUFFER_SIZE";
    case DLPI_CL_PLATFORM_NOT_FOUND: return "PLATFORM_NOT_FOUND_KHR";
    default: return "ERROR";
    }
}

typedef struct dlpi_cl {
    dlpi_gpu gpu; /* first */
    dlpi_cl_calls call;
    void *context, *queue, *consumer;
    void *copied[DLPI_DEVICE_BUFFERS];   /* marker after the copies into a buffer */
    void *readers[DLPI_DEVICE_BUFFERS];  /* marker after the work that reads it, of release_after */
    void *consumed[DLPI_DEVICE_BUFFERS]; /* the same, of the consumer */
} dlpi_cl;

/* Return rc, the code of the OpenCL call `what`. If rc is not 0, add the call and the code to the
   device's name. */
static int dlpi_cl_said(dlpi_cl *c, int32_t rc, const char *what) {
    char words[96];
    if (rc == 0) return 0;
    snprintf(words, sizeof words, "%s: CL_%s (%d)", what, dlpi_cl_name(rc), (int)rc);
    dlpi_gpu_note(&c->gpu, words);
    return rc;
}

static int dlpi_cl_fail(int32_t rc, const char *what, int code, const char *field, dlp_error *err) {
    return dlpi_error_set(err, code, field, "%s: CL_%s (%d)", what, dlpi_cl_name(rc), (int)rc);
}

static int dlpi_cl_open(void *user) { return dlpi_gpu_open(&((dlpi_cl *)user)->gpu); }

static void dlpi_cl_forget(dlpi_cl *c, void **event) {
    if (*event) c->call.event_release(*event);
    *event = NULL;
}

/* Wait until nothing enqueued can touch the slots or the buffers, before they go. */
static void dlpi_cl_drain(dlpi_cl *c) {
    if (!c->gpu.dirty) return;
    c->gpu.dirty = 0;
    c->call.finish(c->queue);
    if (c->consumer) c->call.finish(c->consumer);
    for (int i = 0; i < DLPI_DEVICE_BUFFERS; i++) {
        if (c->readers[i]) c->call.events_wait(1, &c->readers[i]);
        dlpi_cl_forget(c, &c->copied[i]);
        dlpi_cl_forget(c, &c->readers[i]);
        dlpi_cl_forget(c, &c->consumed[i]);
    }
}

/* Allocate a buffer of device memory, of at least one byte. Returns 0 or an OpenCL code; *dev is
   then untouched. */
static int dlpi_cl_alloc(void *user, uint64_t bytes, void **dev) {
    dlpi_cl *c = user;
    int32_t rc = 0;
    void *buffer =
        c->call.buffer_create(c->context, DLPI_CL_READ_WRITE, bytes ? (size_t)bytes : 1, NULL, &rc);
    if (rc != 0) return dlpi_cl_said(c, rc, "clCreateBuffer");
    *dev = buffer;
    return 0;
}

static void dlpi_cl_free(void *user, void *dev) {
    dlpi_cl *c = user;
    dlpi_cl_drain(c);
    c->call.buffer_release(dev);
}

/* Mark the consumer's queue for a buffer, if not done yet: each copy into the buffer waits for the
   mark, since copies may overtake each other. The flush sends the mark to the device. Returns 0 or
   rc. */
static int dlpi_cl_order(dlpi_cl *c, uint32_t buffer) {
    int32_t rc;
    if (c->gpu.ordered[buffer] || c->consumer == NULL) return 0;
    rc = c->call.marker(c->consumer, 0, NULL, &c->consumed[buffer]);
    if (rc != 0) return dlpi_cl_said(c, rc, "clEnqueueMarkerWithWaitList");
    c->gpu.ordered[buffer] = 1;
    return dlpi_cl_said(c, c->call.flush(c->consumer), "clFlush");
}

/* Set wait[2] to the *n events that a copy into the buffer must wait for. Returns 0 or an error. */
static int dlpi_cl_waits(dlpi_cl *c, uint32_t buffer, void **wait, uint32_t *n) {
    int rc;
    *n = 0;
    c->gpu.dirty = 1;
    if ((rc = dlpi_cl_order(c, buffer)) != 0) return rc;
    if (c->readers[buffer]) wait[(*n)++] = c->readers[buffer];
    if (c->consumed[buffer]) wait[(*n)++] = c->consumed[buffer];
    return 0;
}

/* Begin to copy bytes between two buffers of device memory, after the readers of the buffer.
   Returns 0 or an OpenCL code. */
static int dlpi_cl_copy_within(void *user, void *to, uint64_t to_at, void *from, uint64_t from_at,
                               uint64_t bytes, uint32_t buffer) {
    dlpi_cl *c = user;
    void *wait[2];
    uint32_t n;
    int rc = dlpi_cl_waits(c, buffer, wait, &n);
    if (rc != 0) return rc;
    return dlpi_cl_said(c,
                        c->call.copy(c->queue, from, to, (size_t)from_at, (size_t)to_at,
                                     (size_t)bytes, n, n ? wait : NULL, NULL),
                        "clEnqueueCopyBuffer");
}

/* Begin to copy host memory into device memory, after the readers of the buffer. The host memory
   must stay as it is until the copy is done. Returns 0 or an OpenCL code. */
static int dlpi_cl_copy(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer) {
    dlpi_cl *c = user;
    void *wait[2];
    uint32_t n;
    int rc;
    if (bytes == 0) return 0;
    if ((rc = dlpi_cl_waits(c, buffer, wait, &n)) != 0) return rc;
    return dlpi_cl_said(
        c, c->call.write(c->queue, dev, 0, 0, (size_t)bytes, host, n, n ? wait : NULL, NULL),
        "clEnqueueWriteBuffer");
}

/* Mark the end of the copies into a buffer, for dlpi_cl_done, and send them to the device. The
   buffer's readers are then forgotten. Returns 0 or an OpenCL code. */
static int dlpi_cl_record(void *user, uint32_t buffer) {
    dlpi_cl *c = user;
    int32_t rc = c->call.marker(c->queue, 0, NULL, &c->copied[buffer]);
    if (rc != 0) return dlpi_cl_said(c, rc, "clEnqueueMarkerWithWaitList");
    c->gpu.ordered[buffer] = 0;
    dlpi_cl_forget(c, &c->readers[buffer]); /* the runtime keeps what commands wait for */
    dlpi_cl_forget(c, &c->consumed[buffer]);
    return dlpi_cl_said(c, c->call.flush(c->queue), "clFlush");
}

/* Return 1 if the copies into the buffer are done, 0 if not yet, or a negative error. */
static int dlpi_cl_done(void *user, uint32_t buffer) {
    dlpi_cl *c = user;
    int32_t status = 0;
    int32_t rc =
        c->call.event_info(c->copied[buffer], DLPI_CL_EVENT_STATUS, sizeof status, &status, NULL);
    if (rc != 0) return dlpi_cl_said(c, rc, "clGetEventInfo");
    if (status > 0) return 0;
    dlpi_cl_forget(c, &c->copied[buffer]);
    return status == 0 ? 1 : dlpi_cl_said(c, status, "the copy ended with");
}

/* Put the buffer's next copies after the present work of a queue. Returns 0, or a DLP_ERR code with
   *err filled. */
static int dlpi_cl_release_after(void *user, uint32_t buffer, void *queue, dlp_error *err) {
    dlpi_cl *c = user;
    void *event = NULL;
    int32_t rc;
    if (queue == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "stream", "the queue is NULL");
    rc = c->call.marker(queue, 0, NULL, &event);
    if (rc == 0 && c->readers[buffer]) { /* of another view of the same chunk: after both */
        void *both[2] = {event, c->readers[buffer]};
        rc = c->call.marker(queue, 2, both, &event);
        c->call.event_release(both[0]);
    }
    if (rc != 0)
        return dlpi_cl_fail(rc, "clEnqueueMarkerWithWaitList", DLP_ERR_DEVICE, "stream", err);
    if ((rc = c->call.flush(queue)) != 0) {
        c->call.event_release(event);
        return dlpi_cl_fail(rc, "clFlush", DLP_ERR_DEVICE, "stream", err);
    }
    dlpi_cl_forget(c, &c->readers[buffer]);
    c->readers[buffer] = event;
    return DLP_OK;
}

/* Wait for enqueued work, and free all that dlpi_cl_begin has made, which may have failed half-way.
   */
static void dlpi_cl_end(dlpi_cl *c) {
    dlpi_cl_drain(c);
    if (c->consumer) c->call.queue_release(c->consumer);
    if (c->queue) c->call.queue_release(c->queue);
    if (c->context) c->call.context_release(c->context);
    free(c);
}

/* Find the n-th device, counted over all platforms. Returns 0, or a code with *err filled. */
static int dlpi_cl_nth(dlpi_cl *c, int32_t nth, dlp_error *err) {
    void *platforms[DLPI_CL_ROOM], *devices[DLPI_CL_ROOM];
    uint32_t n_platforms = 0, seen = 0;
    int32_t rc = c->call.platforms(DLPI_CL_ROOM, platforms, &n_platforms);
    if (rc == DLPI_CL_PLATFORM_NOT_FOUND)
        n_platforms = 0;
    else if (rc != 0)
        return dlpi_cl_fail(rc, "clGetPlatformIDs", DLP_ERR_UNSUPPORTED, "", err);
    if (n_platforms > DLPI_CL_ROOM) n_platforms = DLPI_CL_ROOM;
    for (uint32_t i = 0; i < n_platforms; i++) {
        uint32_t n = 0;
        rc = c->call.devices(platforms[i], DLPI_CL_ALL_DEVICES, DLPI_CL_ROOM, devices, &n);
        if (rc == DLPI_CL_DEVICE_NOT_FOUND) continue;
        if (rc != 0) return dlpi_cl_fail(rc, "clGetDeviceIDs", DLP_ERR_DEVICE, "", err);
        if (n > DLPI_CL_ROOM) n = DLPI_CL_ROOM;
        if (nth >= 0 && (uint32_t)nth - seen < n) {
            c->gpu.info.device_id = devices[(uint32_t)nth - seen];
            return DLP_OK;
        }
        seen += n;
    }
    if (seen == 0)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "no OpenCL %s",
                              n_platforms ? "device" : "platform is installed");
    return dlpi_error_set(err, DLP_ERR_ARG, "device", "device is %d, must be 0..%u", (int)nth,
                          seen - 1);
}

/* Find context and device: of the user's queue or context, or new. Returns 0, or a code and
   *err. */
static int dlpi_cl_find(dlpi_cl *c, const dlp_opencl_desc *d, dlp_error *err) {
    void *devices[DLPI_CL_ROOM];
    void **device = &c->gpu.info.device_id, *context = d->context;
    size_t used = 0;
    int32_t rc = 0;
    if (d->queue) {
        rc = c->call.queue_info(d->queue, DLPI_CL_QUEUE_DEVICE, sizeof *device, device, NULL);
        if (rc == 0)
            rc =
                c->call.queue_info(d->queue, DLPI_CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
        if (rc != 0) return dlpi_cl_fail(rc, "clGetCommandQueueInfo", DLP_ERR_DEVICE, "queue", err);
    } else if (context) {
        rc = c->call.context_info(context, DLPI_CL_CONTEXT_DEVICES, sizeof devices, devices, &used);
        if (rc != 0) return dlpi_cl_fail(rc, "clGetContextInfo", DLP_ERR_DEVICE, "context", err);
        if (d->device < 0 || (size_t)d->device >= used / sizeof *devices)
            return dlpi_error_set(err, DLP_ERR_ARG, "device",
                                  "device is %d, the context has %u devices", (int)d->device,
                                  (unsigned)(used / sizeof *devices));
        *device = devices[d->device];
    } else {
        if ((rc = dlpi_cl_nth(c, d->device, err)) != DLP_OK) return rc;
        c->context = c->call.context_create(NULL, 1, device, NULL, NULL, &rc);
        if (rc == 0) return DLP_OK;
        c->context = NULL;
        return dlpi_cl_fail(rc, "clCreateContext", DLP_ERR_DEVICE, "device", err);
    }
    if ((rc = c->call.context_retain(context)) != 0)
        return dlpi_cl_fail(rc, "clRetainContext", DLP_ERR_DEVICE, "context", err);
    c->context = context;
    return DLP_OK;
}

/* Keep a queue of the user's as *to. Returns 0, or a code with *err filled. */
static int dlpi_cl_keep(dlpi_cl *c, void *queue, void **to, const char *field, dlp_error *err) {
    int32_t rc = c->call.queue_retain(queue);
    if (rc != 0) return dlpi_cl_fail(rc, "clRetainCommandQueue", DLP_ERR_DEVICE, field, err);
    *to = queue;
    return DLP_OK;
}

/* Load the library, find the device, make or keep the queues, and describe the device. Returns 0,
   or a DLP_ERR code with *err filled. If it fails, the caller must call dlpi_cl_end. */
static int dlpi_cl_begin(dlpi_cl *c, const dlp_opencl_desc *d, dlp_error *err) {
    const char *library = d->library ? d->library : "libOpenCL.so.1";
    size_t n = sizeof dlpi_cl_symbols / sizeof *dlpi_cl_symbols;
    dlp_device_info *info = &c->gpu.info;
    int32_t rc = dlpi_gpu_load(&c->call, dlpi_cl_symbols, n, library, err);
    if (rc != DLP_OK || (rc = dlpi_cl_find(c, d, err)) != DLP_OK) return rc;
    if (d->queue && (rc = dlpi_cl_keep(c, d->queue, &c->queue, "queue", err)) != DLP_OK) return rc;
    if (d->queue == NULL) {
        void *queue = c->call.queue_create(c->context, info->device_id, 0, &rc);
        if (rc != 0) return dlpi_cl_fail(rc, "clCreateCommandQueue", DLP_ERR_DEVICE, "", err);
        c->queue = queue;
    }
    if (d->consumer && (rc = dlpi_cl_keep(c, d->consumer, &c->consumer, "consumer", err)) != DLP_OK)
        return rc;
    rc = c->call.device_info(info->device_id, DLPI_CL_DEVICE_NAME, sizeof info->name - 1,
                             info->name, NULL);
    if (rc != 0) info->name[0] = 0; /* for people only, and it may be too long */
    info->kind = "opencl";
    info->context = c->context;
    info->queue = c->queue;
    dlpi_copy_text(info->unpinned, sizeof info->unpinned, "OpenCL cannot pin memory");
    dlpi_copy_text(c->gpu.base, sizeof c->gpu.base, "opencl");
    dlpi_copy_text(c->gpu.name, sizeof c->gpu.name, c->gpu.base);
    return DLP_OK;
}

DLPDEF int dlp_device_opencl(dlp_device *out, const dlp_opencl_desc *desc, dlp_error *err) {
    dlp_opencl_desc zero;
    dlpi_cl *c;
    int rc;
    memset(&zero, 0, sizeof zero);
    if (out == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    if ((c = calloc(1, sizeof *c)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the device failed");
    if ((rc = dlpi_cl_begin(c, desc ? desc : &zero, err)) != DLP_OK) {
        dlpi_cl_end(c);
        return rc;
    }
    *out = (dlp_device){.name = c->gpu.name,
                        .open = dlpi_cl_open,
                        .close = dlpi_gpu_leave,
                        .alloc = dlpi_cl_alloc,
                        .free = dlpi_cl_free,
                        .copy = dlpi_cl_copy,
                        .record = dlpi_cl_record,
                        .done = dlpi_cl_done,
                        .user = c,
                        .handles = 1,
                        .copy_within = dlpi_cl_copy_within};
    return DLP_OK;
}

static bool dlpi_is_cl(const dlp_device *d) { return d->copy == dlpi_cl_copy; }

#else

DLPDEF int dlp_device_opencl(dlp_device *out DLPI_UNREAD, const dlp_opencl_desc *desc DLPI_UNREAD,
                             dlp_error *err) {
    return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                          "no OpenCL; define DLPIPE_OPENCL beside DLPIPE_IMPLEMENTATION");
}
#endif /* DLPIPE_OPENCL */
