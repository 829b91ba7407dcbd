#pragma once
#include "api/devices.h"
#include "build/region_map.h"
#include "stages/transfer.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-devices    GPUS: CUDA, OPENCL
   Types and numbers of both are as their headers have had them since CUDA 4 and OpenCL 1.2; only
   the calls used here are declared, and looked up by name. Callbacks of a device run in one thread
   at a time (start; then the transfer thread, or next; then close), so its record has no atomics,
   but for the word that says whether a pipe has it. What dlp_pipe_release_after writes of a buffer
   is the consumer's until its release frees the buffer (C2), which the transfer then takes.

   A callback can return a number only. What it stands for is added to the device's name, which is
   in the message that the pipe makes of the number. */

typedef struct dlpi_gpu {
    char name[160]; /* of dlp_device: "cuda:0", and after a failure what failed */
    char base[24];
    uint32_t used; /* U1: a pipe has it open */
    int dirty;     /* copies were enqueued since open */
    dlp_device_info info;
    uint8_t ordered[DLPI_PARK]; /* a copy into the buffer has waited for its readers */
    uint8_t due[DLPI_PARK];     /* release_after left an event for the next copy */
} dlpi_gpu;

#if defined(DLPIPE_CUDA) || defined(DLPIPE_OPENCL)
#include <dlfcn.h>

typedef struct dlpi_symbol {
    const char *name;
    size_t at; /* of the pointer in the table of calls */
} dlpi_symbol;

/* Load a library and fill a table of calls. */
static int dlpi_gpu_load(void *calls, const dlpi_symbol *symbols, size_t n, const char *library,
                         dlp_error *err) {
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        const char *why = dlerror();
        dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "library", "no driver: %s", why ? why : library);
        return DLP_ERR_UNSUPPORTED;
    }
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(lib, symbols[i].name);
        if (symbol == NULL) {
            dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "library",
                           "%s has no %s: the driver is too old", library, symbols[i].name);
            return DLP_ERR_UNSUPPORTED;
        }
        memcpy((char *)calls + symbols[i].at, &symbol, sizeof symbol);
    }
    return DLP_OK;
}

/* Take the device for a pipe. */
static int dlpi_gpu_open(dlpi_gpu *g) {
    if (DLPI_XCHG_SEQ(&g->used, 1u) != 0) return DLP_ERR_BUSY; /* U1 <- U1 */
    memcpy(g->name, g->base, sizeof g->base);
    memset(g->ordered, 0, sizeof g->ordered);
    memset(g->due, 0, sizeof g->due);
    g->dirty = 0;
    return 0;
}

static void dlpi_gpu_leave(void *user) {
    DLPI_STORE_SEQ(&((dlpi_gpu *)user)->used, 0u); /* U1 -> U1 */
}

static void dlpi_gpu_note(dlpi_gpu *g, const char *what) {
    size_t n = strlen(g->base);
    if (strcmp(g->name, g->base) == 0) /* the first failure stays */
        snprintf(g->name + n, sizeof g->name - n, ": %s", what);
}
#endif

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
    void *copied[DLPI_PARK];  /* event behind the copies into a buffer */
    void *readers[DLPI_PARK]; /* event behind the work that reads it */
} dlpi_cuda;

static void dlpi_cuda_words(const dlpi_cuda *c, int rc, const char *what, char *out, size_t size) {
    const char *name = NULL;
    if (c->call.error_name(rc, &name) != 0 || name == NULL) name = "unknown error";
    snprintf(out, size, "%s: %s (%d)", what, name, rc);
}

/* A call of a callback returned rc. */
static int dlpi_cuda_said(dlpi_cuda *c, int rc, const char *what) {
    char words[96];
    if (rc == 0) return 0;
    dlpi_cuda_words(c, rc, what, words, sizeof words);
    dlpi_gpu_note(&c->gpu, words);
    return rc;
}

static int dlpi_cuda_fail(const dlpi_cuda *c, int rc, const char *what, int code, const char *field,
                          dlp_error *err) {
    char words[96];
    dlpi_cuda_words(c, rc, what, words, sizeof words);
    return dlpi_error_set(err, code, field, "%s", words);
}

static int dlpi_cuda_enter(dlpi_cuda *c) {
    return dlpi_cuda_said(c, c->call.ctx_push(c->context), "cuCtxPushCurrent");
}

/* rc: of what was done inside. */
static int dlpi_cuda_leave(dlpi_cuda *c, int rc) {
    void *was;
    int popped = c->call.ctx_pop(&was);
    return rc != 0 ? rc : dlpi_cuda_said(c, popped, "cuCtxPopCurrent");
}

static int dlpi_cuda_open(void *user) {
    dlpi_cuda *c = user;
    int rc = dlpi_gpu_open(&c->gpu);
    if (rc == 0) c->gpu.info.unpinned[0] = 0;
    return rc;
}

/* Nothing enqueued may touch the slots or the buffers when they go. */
static void dlpi_cuda_drain(dlpi_cuda *c) {
    if (!c->gpu.dirty) return;
    c->gpu.dirty = 0;
    c->call.stream_sync(c->stream);
    if (c->has_consumer) c->call.stream_sync(c->consumer);
    for (uint32_t i = 0; i < DLPI_PARK; i++)
        if (c->gpu.due[i]) c->call.event_sync(c->readers[i]);
}

static void dlpi_cuda_unregister(void *user, void *mem, uint64_t bytes) {
    dlpi_cuda *c = user;
    DLPI_UNUSED(bytes);
    if (!c->gpu.info.pinned || dlpi_cuda_enter(c) != 0) return;
    dlpi_cuda_drain(c);
    c->call.host_unregister(mem);
    c->gpu.info.pinned = 0;
    dlpi_cuda_leave(c, 0);
}

/* Pageable copies are right, too: only a failed push fails. */
static int dlpi_cuda_register(void *user, void *mem, uint64_t bytes) {
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

static int dlpi_cuda_alloc(void *user, uint64_t bytes, void **dev) {
    dlpi_cuda *c = user;
    unsigned long long address = 0;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    rc = dlpi_cuda_said(c, c->call.mem_alloc(&address, bytes ? (size_t)bytes : 1), "cuMemAlloc");
    if (rc == 0) *dev = (void *)(uintptr_t)address;
    return dlpi_cuda_leave(c, rc);
}

static int dlpi_cuda_room(void *user, uint64_t *bytes) {
    dlpi_cuda *c = user;
    size_t left = 0, all = 0;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    rc = dlpi_cuda_said(c, c->call.mem_info(&left, &all), "cuMemGetInfo");
    if (rc == 0) *bytes = left;
    return dlpi_cuda_leave(c, rc);
}

static void dlpi_cuda_free(void *user, void *dev) {
    dlpi_cuda *c = user;
    if (dlpi_cuda_enter(c) != 0) return;
    dlpi_cuda_drain(c);
    c->call.mem_free((unsigned long long)(uintptr_t)dev);
    dlpi_cuda_leave(c, 0);
}

/* Put the copies that follow behind what still reads the buffer. */
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

static int dlpi_cuda_record(void *user, uint32_t buffer) {
    dlpi_cuda *c = user;
    int rc = dlpi_cuda_enter(c);
    if (rc != 0) return rc;
    c->gpu.ordered[buffer] = 0;
    rc = dlpi_cuda_said(c, c->call.event_record(c->copied[buffer], c->stream), "cuEventRecord");
    return dlpi_cuda_leave(c, rc);
}

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

static int dlpi_cuda_release_after(void *user, uint32_t buffer, void *stream, dlp_error *err) {
    dlpi_cuda *c = user;
    void *was;
    int rc = c->call.ctx_push(c->context);
    if (rc != 0) return dlpi_cuda_fail(c, rc, "cuCtxPushCurrent", DLP_ERR_DEVICE, "", err);
    if (c->gpu.due[buffer]) /* of another view of the same chunk: behind both */
        rc = c->call.stream_wait(stream, c->readers[buffer], 0);
    if (rc == 0) rc = c->call.event_record(c->readers[buffer], stream);
    c->call.ctx_pop(&was);
    if (rc != 0) return dlpi_cuda_fail(c, rc, "cuEventRecord", DLP_ERR_DEVICE, "stream", err);
    c->gpu.due[buffer] = 1;
    return DLP_OK;
}

static void dlpi_cuda_end(dlpi_cuda *c) {
    void *was;
    if (c->context && c->call.ctx_push(c->context) == 0) {
        for (int i = 0; i < DLPI_PARK; i++) {
            if (c->copied[i]) c->call.event_destroy(c->copied[i]);
            if (c->readers[i]) c->call.event_destroy(c->readers[i]);
        }
        if (c->own_stream) c->call.stream_destroy(c->stream);
        c->call.ctx_pop(&was);
    }
    if (c->retained) c->call.primary_release(c->device);
    free(c);
}

/* Find the device and its context. */
static int dlpi_cuda_find(dlpi_cuda *c, const dlp_cuda_desc *d, dlp_error *err) {
    const char *library = d->library ? d->library : "libcuda.so.1";
    size_t n = sizeof dlpi_cuda_symbols / sizeof *dlpi_cuda_symbols;
    int count = 0, rc = dlpi_gpu_load(&c->call, dlpi_cuda_symbols, n, library, err);
    if (rc != DLP_OK) return rc;
    if ((rc = c->call.init(0)) != 0)
        return dlpi_cuda_fail(c, rc, "cuInit", DLP_ERR_UNSUPPORTED, "", err);
    if ((c->context = d->context) != NULL) return DLP_OK;
    if ((rc = c->call.device_count(&count)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDeviceGetCount", DLP_ERR_DEVICE, "", err);
    if (count == 0) return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "no CUDA device");
    if (d->device < 0 || d->device >= count)
        return dlpi_error_set(err, DLP_ERR_ARG, "device", "%d: there are devices 0..%d",
                              (int)d->device, count - 1);
    if ((rc = c->call.device_get(&c->device, d->device)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDeviceGet", DLP_ERR_DEVICE, "device", err);
    if ((rc = c->call.primary_retain(&c->context, c->device)) != 0)
        return dlpi_cuda_fail(c, rc, "cuDevicePrimaryCtxRetain", DLP_ERR_DEVICE, "device", err);
    c->retained = 1;
    return DLP_OK;
}

/* Stream and events; the context is current. Returns a CUresult, *what is its call. */
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
    for (int i = 0; i < DLPI_PARK; i++) {
        rc = c->call.event_create(&c->copied[i], DLPI_CU_EVENT_DISABLE_TIMING);
        if (rc == 0) rc = c->call.event_create(&c->readers[i], DLPI_CU_EVENT_DISABLE_TIMING);
        if (rc != 0) return rc;
    }
    return 0;
}

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

DLPDEF int dlp_device_cuda(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err) {
    dlp_cuda_desc zero;
    dlpi_cuda *c;
    int rc;
    memset(&zero, 0, sizeof zero);
    if (out == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    if ((c = calloc(1, sizeof *c)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the device failed");
    if ((rc = dlpi_cuda_begin(c, desc ? desc : &zero, err)) != DLP_OK) {
        dlpi_cuda_end(c);
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
                        .room = dlpi_cuda_room};
    return DLP_OK;
}

static bool dlpi_is_cuda(const dlp_device *d) { return d->copy == dlpi_cuda_copy; }

#else

DLPDEF int dlp_device_cuda(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err) {
    DLPI_UNUSED(out);
    DLPI_UNUSED(desc);
    return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                          "compiled without DLPIPE_CUDA, which goes with DLPIPE_IMPLEMENTATION");
}
#endif /* DLPIPE_CUDA */

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

/* Names of error codes -1..-72, as CL/cl.h has them. */
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
    void *copied[DLPI_PARK];   /* marker behind the copies into a buffer */
    void *readers[DLPI_PARK];  /* marker behind the work that reads it, of release_after */
    void *consumed[DLPI_PARK]; /* the same, of the consumer */
} dlpi_cl;

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

/* Nothing enqueued may touch the slots or the buffers when they go. */
static void dlpi_cl_drain(dlpi_cl *c) {
    if (!c->gpu.dirty) return;
    c->gpu.dirty = 0;
    c->call.finish(c->queue);
    if (c->consumer) c->call.finish(c->consumer);
    for (int i = 0; i < DLPI_PARK; i++) {
        if (c->readers[i]) c->call.events_wait(1, &c->readers[i]);
        dlpi_cl_forget(c, &c->copied[i]);
        dlpi_cl_forget(c, &c->readers[i]);
        dlpi_cl_forget(c, &c->consumed[i]);
    }
}

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

/* Copies of a queue may overtake each other: each waits by itself. Waiting for the consumer's
   commands ends only if they have been sent to the device, hence the flush. */
static int dlpi_cl_order(dlpi_cl *c, uint32_t buffer) {
    int32_t rc;
    if (c->gpu.ordered[buffer] || c->consumer == NULL) return 0;
    rc = c->call.marker(c->consumer, 0, NULL, &c->consumed[buffer]);
    if (rc != 0) return dlpi_cl_said(c, rc, "clEnqueueMarkerWithWaitList");
    c->gpu.ordered[buffer] = 1;
    return dlpi_cl_said(c, c->call.flush(c->consumer), "clFlush");
}

static int dlpi_cl_copy(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer) {
    dlpi_cl *c = user;
    void *wait[2];
    uint32_t n = 0;
    int rc;
    if (bytes == 0) return 0;
    c->gpu.dirty = 1;
    if ((rc = dlpi_cl_order(c, buffer)) != 0) return rc;
    if (c->readers[buffer]) wait[n++] = c->readers[buffer];
    if (c->consumed[buffer]) wait[n++] = c->consumed[buffer];
    return dlpi_cl_said(
        c, c->call.write(c->queue, dev, 0, 0, (size_t)bytes, host, n, n ? wait : NULL, NULL),
        "clEnqueueWriteBuffer");
}

static int dlpi_cl_record(void *user, uint32_t buffer) {
    dlpi_cl *c = user;
    int32_t rc = c->call.marker(c->queue, 0, NULL, &c->copied[buffer]);
    if (rc != 0) return dlpi_cl_said(c, rc, "clEnqueueMarkerWithWaitList");
    c->gpu.ordered[buffer] = 0;
    dlpi_cl_forget(c, &c->readers[buffer]); /* the runtime keeps what commands wait for */
    dlpi_cl_forget(c, &c->consumed[buffer]);
    return dlpi_cl_said(c, c->call.flush(c->queue), "clFlush");
}

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

static int dlpi_cl_release_after(void *user, uint32_t buffer, void *queue, dlp_error *err) {
    dlpi_cl *c = user;
    void *event = NULL;
    int32_t rc;
    if (queue == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "stream", "the queue is NULL");
    rc = c->call.marker(queue, 0, NULL, &event);
    if (rc == 0 && c->readers[buffer]) { /* of another view of the same chunk: behind both */
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

static void dlpi_cl_end(dlpi_cl *c) {
    dlpi_cl_drain(c);
    if (c->consumer) c->call.queue_release(c->consumer);
    if (c->queue) c->call.queue_release(c->queue);
    if (c->context) c->call.context_release(c->context);
    free(c);
}

/* The n-th device of all platforms. */
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
    return dlpi_error_set(err, DLP_ERR_ARG, "device", "%d: there are devices 0..%u", (int)nth,
                          seen - 1);
}

/* Context and device of the user's queue, or of the user's context, or of their own. */
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
            return dlpi_error_set(err, DLP_ERR_ARG, "device", "%d: the context has %u devices",
                                  (int)d->device, (unsigned)(used / sizeof *devices));
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

/* Keep a queue of the user's. */
static int dlpi_cl_keep(dlpi_cl *c, void *queue, void **to, const char *field, dlp_error *err) {
    int32_t rc = c->call.queue_retain(queue);
    if (rc != 0) return dlpi_cl_fail(rc, "clRetainCommandQueue", DLP_ERR_DEVICE, field, err);
    *to = queue;
    return DLP_OK;
}

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
                        .handles = 1};
    return DLP_OK;
}

static bool dlpi_is_cl(const dlp_device *d) { return d->copy == dlpi_cl_copy; }

#else

DLPDEF int dlp_device_opencl(dlp_device *out, const dlp_opencl_desc *desc, dlp_error *err) {
    DLPI_UNUSED(out);
    DLPI_UNUSED(desc);
    return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "",
                          "compiled without DLPIPE_OPENCL, which goes with DLPIPE_IMPLEMENTATION");
}
#endif /* DLPIPE_OPENCL */

/* Which make a device is of: 0 another, 1 CUDA, 2 OpenCL. */
static int dlpi_gpu_make(const dlp_device *d) {
    DLPI_UNUSED(d);
#ifdef DLPIPE_CUDA
    if (dlpi_is_cuda(d)) return 1;
#endif
#ifdef DLPIPE_OPENCL
    if (dlpi_is_cl(d)) return 2;
#endif
    return 0;
}

DLPDEF int dlp_device_describe(const dlp_device *device, dlp_device_info *out) {
    if (device == NULL || out == NULL || dlpi_gpu_make(device) == 0) return DLP_ERR_ARG;
    *out = ((const dlpi_gpu *)device->user)->info;
    return DLP_OK;
}

DLPDEF int dlp_device_close(dlp_device *device) {
    if (device == NULL || (device->copy == NULL && device->user == NULL)) return DLP_OK;
    if (dlpi_gpu_make(device) == 0) return DLP_ERR_ARG;
    if (DLPI_LOAD_SEQ(&((dlpi_gpu *)device->user)->used) != 0) return DLP_ERR_BUSY; /* U1 <- U1 */
#ifdef DLPIPE_CUDA
    if (dlpi_is_cuda(device)) dlpi_cuda_end(device->user), device->user = NULL;
#endif
#ifdef DLPIPE_OPENCL
    if (device->user && dlpi_is_cl(device)) dlpi_cl_end(device->user);
#endif
    memset(device, 0, sizeof *device);
    return DLP_OK;
}

/* The number of the events of the buffer that batch s (of a split pipe, view s) lies in. */
__attribute__((unused)) /* without these devices */
static uint32_t
dlpi_release_buffer(const dlp_pipe *p, uint32_t s) {
    return dlpi_transfer_events(p, p->lender ? p->lender->ops->lender->slot(p, s) : s);
}

DLPDEF int dlp_pipe_release_after(dlp_pipe *p, dlp_batch *batch, void *stream, dlp_error *err) {
    const dlp_device *d;
    uint32_t s;
    int rc = DLP_OK, make;
    if (p == NULL || batch == NULL || !p->started)
        return dlpi_error_set(err, DLP_ERR_ARG, "batch", "no batch, or no pipe that was started");
    if (dlpi_forked(p)) return dlpi_error_set(err, DLP_ERR_FORKED, "", "forked after start");
    s = (uint32_t)(uintptr_t)batch->internal;
    if (s >= p->n_out || batch != &p->out[s] || !p->held[s])
        return dlpi_error_set(err, DLP_ERR_ARG, "batch", "not a batch that is held");
    d = dlpi_transfer_device(p);
    make = d ? dlpi_gpu_make(d) : 0;
    if (make == 0)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "the pipe's device is none of these");
#ifdef DLPIPE_CUDA
    if (make == 1) rc = dlpi_cuda_release_after(d->user, dlpi_release_buffer(p, s), stream, err);
#endif
#ifdef DLPIPE_OPENCL
    if (make == 2) rc = dlpi_cl_release_after(d->user, dlpi_release_buffer(p, s), stream, err);
#endif
    DLPI_UNUSED(stream);
    if (rc != DLP_OK) return rc;
    return dlp_pipe_release(p, batch);
}
