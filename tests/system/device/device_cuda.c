/* needs: split */
/* The CUDA device against a driver made here, which executes streams late and out of step, watches
   contexts, events and memory, and fails call by call; what is said without a driver; and, where
   there is one, the real thing. */
/* own: hook: the library of a device is the test */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

static void *fake_dlopen(const char *name, int flags);
static void *fake_dlsym(void *lib, const char *name);
#define dlopen fake_dlopen
#define dlsym fake_dlsym
#define DLPIPE_CUDA
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#undef dlopen
#undef dlsym
#include "../../rig/pipe_rig.h"

/* ---- the driver ---- */

enum { COPY, RECORD, WAIT, KERNEL };
enum { CTX_A = 0xA0, CTX_B = 0xB0, FAILS = 700, NO_NAME = 3 };

typedef struct fake_event {
    int alive;
    uint64_t recorded, passed; /* how often */
} fake_event;

typedef struct op {
    int what;
    void *to;
    const void *from;
    size_t bytes;
    fake_event *event;
    uint64_t number; /* of the recording */
    uint64_t sum;    /* what a kernel must read */
} op;

typedef struct fake_stream {
    int alive, stuck, users;
    uint64_t head, tail;
    op ops[256];
} fake_stream;

static struct {
    pthread_mutex_t lock;
    int on;                  /* else the real one is asked */
    int no_library, missing; /* symbol that is not there, from 1 */
    long calls, fail_at;     /* the n-th call fails */
    char failed[48];         /* and this was it */
    int register_fails, init_fails, no_devices;
    long pushes, pops, retained, buffers, registers, copies, waits, records, primary_uses;
    int wrong; /* uses that no driver would forgive */
    uint64_t pinned_from, pinned_to;
    long unpinned_copies, joins;
    size_t bytes_left;   /* as cuMemGetInfo tells */
    long queries_needed; /* ops executed per query: 1 of so many */
    long queries;
    void *memory[64];
    fake_event events[512];
    fake_stream streams[8]; /* 0: the default stream */
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local void *current[4];
static _Thread_local int depth;

static void wrong(const char *why) {
    if (gpu.wrong++ < 5) printf("driver: %s\n", why);
}

static uint64_t sum_of(const void *mem, size_t bytes) {
    uint64_t h = bytes;
    const uint8_t *at = mem;
    for (size_t i = 0; i < bytes; i++) h = (h ^ at[i]) * UINT64_C(1099511628211);
    return h;
}

/* Execute the next op of a stream if it may be. */
static int execute(fake_stream *s) {
    op *o = &s->ops[s->head % 256];
    if (s->head == s->tail || (o->what == KERNEL && s->stuck)) return 0;
    if (o->what == WAIT && o->event->passed < o->number) return 0;
    if (o->what == COPY) memcpy(o->to, o->from, o->bytes);
    if (o->what == RECORD && o->event->passed < o->number) o->event->passed = o->number;
    if (o->what == KERNEL && sum_of(o->from, o->bytes) != o->sum)
        wrong("a kernel reads what is not its batch");
    s->head++;
    return 1;
}

static void execute_all(void) {
    for (int moved = 1; moved;) {
        moved = 0;
        for (int i = 0; i < 8; i++)
            while (execute(&gpu.streams[i])) moved = 1;
    }
}

static fake_stream *stream_of(void *stream) {
    uintptr_t i = (uintptr_t)stream;
    if (i >= 8 || !gpu.streams[i].alive) {
        wrong("no such stream");
        i = 0;
    }
    return &gpu.streams[i];
}

static op *enqueue(void *stream, int what) {
    fake_stream *s = stream_of(stream);
    op *o = &s->ops[s->tail++ % 256];
    if (s->tail - s->head > 256) wrong("too much in a stream");
    memset(o, 0, sizeof *o);
    o->what = what;
    return o;
}

/* Begin a call: count it, and say whether it is to fail. */
static int enter(const char *name, int in_context) {
    int fails;
    pthread_mutex_lock(&gpu.lock);
    fails = ++gpu.calls == gpu.fail_at;
    if (fails) snprintf(gpu.failed, sizeof gpu.failed, "%s", name);
    if (in_context && depth == 0) wrong(name);
    return fails ? FAILS : 0;
}
static int leave(int rc) {
    pthread_mutex_unlock(&gpu.lock);
    return rc;
}

static int f_init(unsigned flags) {
    int rc = enter("cuInit", 0);
    return leave(gpu.init_fails ? 100 : rc ? rc : flags != 0);
}
static int f_error_name(int rc, const char **name) {
    if (rc == NO_NAME) return 1;
    *name = rc == FAILS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : rc == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : rc == 100 ? "CUDA_ERROR_NO_DEVICE"
                        : "CUDA_ERROR_OTHER";
    return 0;
}
static int f_device_get(int *device, int ordinal) {
    int rc = enter("cuDeviceGet", 0);
    *device = ordinal;
    return leave(rc);
}
static int f_device_count(int *count) {
    int rc = enter("cuDeviceGetCount", 0);
    *count = gpu.no_devices ? 0 : 2;
    return leave(rc);
}
static int f_device_name(char *name, int size, int device) {
    int rc = enter("cuDeviceGetName", 0);
    snprintf(name, (size_t)size, "Fake %d", device);
    return leave(rc);
}
static int f_primary_retain(void **context, int device) {
    int rc = enter("cuDevicePrimaryCtxRetain", 0);
    if (rc == 0) {
        *context = (void *)(uintptr_t)(CTX_A + device);
        gpu.retained++;
    }
    return leave(rc);
}
static int f_primary_release(int device) {
    int rc = enter("cuDevicePrimaryCtxRelease", 0);
    (void)device;
    gpu.retained--;
    return leave(rc);
}
static int f_ctx_device(int *device) {
    int rc = enter("cuCtxGetDevice", 1);
    *device = 1;
    return leave(rc);
}
static int f_ctx_push(void *context) {
    int rc = enter("cuCtxPushCurrent", 0);
    if (rc == 0) {
        if (depth >= 4)
            wrong("contexts are not popped");
        else
            current[depth++] = context;
        gpu.pushes++;
    }
    return leave(rc);
}
static int f_ctx_pop(void **context) {
    int rc = enter("cuCtxPopCurrent", 1);
    if (depth > 0) *context = current[--depth]; /* also where it fails: the test goes on */
    gpu.pops++;
    return leave(rc);
}
static int f_stream_create(void **stream, unsigned flags) {
    int rc = enter("cuStreamCreate", 1);
    if (flags != 1) wrong("the stream would wait for the default stream");
    for (uintptr_t i = 1; rc == 0 && i < 8; i++) {
        if (gpu.streams[i].alive) continue;
        gpu.streams[i].alive = 1;
        *stream = (void *)i;
        break;
    }
    return leave(rc);
}
static int f_stream_destroy(void *stream) {
    int rc = enter("cuStreamDestroy", 1);
    if (stream_of(stream)->head != stream_of(stream)->tail) wrong("destroyed with work in it");
    stream_of(stream)->alive = 0;
    return leave(rc);
}
static int f_stream_wait(void *stream, void *event, unsigned flags) {
    int rc = enter("cuStreamWaitEvent", 1);
    gpu.waits++;
    if (rc == 0) {
        op *o = enqueue(stream, WAIT);
        o->event = event;
        o->number = o->event->recorded;
    }
    return leave(rc ? rc : flags != 0);
}
static int f_stream_sync(void *stream) {
    int rc = enter("cuStreamSynchronize", 1);
    (void)stream_of(stream);
    for (int i = 0; i < 8; i++) gpu.streams[i].stuck = 0; /* kernels end some time */
    execute_all();
    return leave(rc);
}
static int f_event_create(void **event, unsigned flags) {
    int rc = enter("cuEventCreate", 1);
    if (flags != 2) wrong("an event that takes the time");
    for (int i = 0; rc == 0 && i < 512; i++) {
        if (gpu.events[i].alive) continue;
        memset(&gpu.events[i], 0, sizeof gpu.events[i]);
        gpu.events[i].alive = 1;
        *event = &gpu.events[i];
        break;
    }
    return leave(rc);
}
static int f_event_destroy(void *event) {
    int rc = enter("cuEventDestroy", 1);
    ((fake_event *)event)->alive = 0;
    return leave(rc);
}
static int f_event_record(void *event, void *stream) {
    int rc = enter("cuEventRecord", 1);
    gpu.records++;
    if (rc == 0) {
        op *o = enqueue(stream, RECORD);
        o->event = event;
        o->number = ++o->event->recorded;
    }
    return leave(rc);
}
static int f_event_query(void *event) {
    fake_event *e = event;
    int rc = enter("cuEventQuery", 1);
    if (gpu.queries_needed > 0 && ++gpu.queries % gpu.queries_needed == 0)
        for (int i = 0; i < 8; i++) execute(&gpu.streams[i]);
    if (!e->alive || e->recorded == 0) wrong("asks for an event that was never recorded");
    return leave(rc ? rc : e->passed == e->recorded ? 0 : 600);
}
static int f_event_sync(void *event) {
    int rc = enter("cuEventSynchronize", 1);
    for (int i = 0; i < 8; i++) gpu.streams[i].stuck = 0;
    execute_all();
    if (((fake_event *)event)->passed != ((fake_event *)event)->recorded) wrong("never passes");
    return leave(rc);
}
static int f_mem_alloc(unsigned long long *address, size_t bytes) {
    int rc = enter("cuMemAlloc", 1);
    void *mem = NULL;
    if (bytes == 0) wrong("allocates nothing");
    if (rc == 0) {
        CHECK(posix_memalign(&mem, 256, bytes) == 0);
        memset(mem, 0xEE, bytes);
        *address = (uintptr_t)mem;
        gpu.memory[gpu.buffers++ % 64] = mem;
    }
    return leave(rc == FAILS ? 2 : rc);
}
static int f_mem_free(unsigned long long address) {
    int rc = enter("cuMemFree", 1);
    for (int i = 0; i < 8; i++)
        if (gpu.streams[i].head != gpu.streams[i].tail) wrong("memory freed with work queued");
    for (int i = 0; i < 64; i++)
        if ((uintptr_t)gpu.memory[i] == address) gpu.memory[i] = NULL;
    free((void *)(uintptr_t)address);
    gpu.buffers--;
    return leave(rc);
}
static int f_host_register(void *mem, size_t bytes, unsigned flags) {
    int rc = enter("cuMemHostRegister", 1);
    if (flags != 1) wrong("not portable");
    if (gpu.register_fails) return leave(NO_NAME);
    if (rc == 0) {
        gpu.pinned_from = (uintptr_t)mem;
        gpu.pinned_to = (uintptr_t)mem + bytes;
        gpu.registers++;
    }
    return leave(rc);
}
static int f_mem_info(size_t *left, size_t *all) {
    int rc = enter("cuMemGetInfo", 1);
    *left = gpu.bytes_left;
    *all = (size_t)1 << 30;
    return leave(rc);
}
static int f_host_unregister(void *mem) {
    int rc = enter("cuMemHostUnregister", 1);
    for (int i = 0; i < 8; i++)
        if (gpu.streams[i].head != gpu.streams[i].tail) wrong("unregistered with work queued");
    if ((uintptr_t)mem != gpu.pinned_from) wrong("unregisters what was not registered");
    gpu.pinned_from = gpu.pinned_to = 0;
    gpu.registers--;
    return leave(rc);
}
static int f_copy(unsigned long long to, const void *from, size_t bytes, void *stream) {
    int rc = enter("cuMemcpyHtoDAsync", 1);
    gpu.copies++;
    if ((uintptr_t)from < gpu.pinned_from || (uintptr_t)from + bytes > gpu.pinned_to)
        gpu.unpinned_copies++;
    if (rc == 0) {
        op *o = enqueue(stream, COPY);
        o->to = (void *)(uintptr_t)to;
        o->from = from;
        o->bytes = bytes;
    }
    return leave(rc);
}

static int f_copy_within(unsigned long long to, unsigned long long from, size_t bytes,
                         void *stream) {
    int rc = enter("cuMemcpyDtoDAsync", 1);
    gpu.joins++;
    if (rc == 0) {
        op *o = enqueue(stream, COPY);
        o->to = (void *)(uintptr_t)to;
        o->from = (void *)(uintptr_t)from;
        o->bytes = bytes;
    }
    return leave(rc);
}

static void *fake_dlopen(const char *name, int flags) {
    if (gpu.on) return gpu.no_library ? NULL : &gpu;
    return dlopen(name, flags);
}

static void *fake_dlsym(void *lib, const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } all[] = {
#define F(symbol, f) {symbol, (void (*)(void))f}
        F("cuInit", f_init),
        F("cuGetErrorName", f_error_name),
        F("cuDeviceGet", f_device_get),
        F("cuDeviceGetCount", f_device_count),
        F("cuDeviceGetName", f_device_name),
        F("cuDevicePrimaryCtxRetain", f_primary_retain),
        F("cuDevicePrimaryCtxRelease", f_primary_release),
        F("cuCtxGetDevice", f_ctx_device),
        F("cuCtxPushCurrent_v2", f_ctx_push),
        F("cuCtxPopCurrent_v2", f_ctx_pop),
        F("cuStreamCreate", f_stream_create),
        F("cuStreamDestroy_v2", f_stream_destroy),
        F("cuStreamWaitEvent", f_stream_wait),
        F("cuStreamSynchronize", f_stream_sync),
        F("cuEventCreate", f_event_create),
        F("cuEventDestroy_v2", f_event_destroy),
        F("cuEventRecord", f_event_record),
        F("cuEventQuery", f_event_query),
        F("cuEventSynchronize", f_event_sync),
        F("cuMemAlloc_v2", f_mem_alloc),
        F("cuMemFree_v2", f_mem_free),
        F("cuMemGetInfo_v2", f_mem_info),
        F("cuMemHostRegister_v2", f_host_register),
        F("cuMemHostUnregister", f_host_unregister),
        F("cuMemcpyHtoDAsync_v2", f_copy),
        F("cuMemcpyDtoDAsync_v2", f_copy_within),
    };
    if (lib != &gpu) return dlsym(lib, name);
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
        void *out;
        if (strcmp(all[i].name, name) != 0 || i + 1 == gpu.missing) continue;
        memcpy(&out, &all[i].function, sizeof out);
        return out;
    }
    return NULL;
}

static void gpu_reset(void) {
    for (int i = 0; i < 64; i++) free(gpu.memory[i]); /* what a failed push kept from being freed */
    memset((char *)&gpu + sizeof gpu.lock, 0, sizeof gpu - sizeof gpu.lock);
    gpu.on = 1;
    gpu.streams[0].alive = 1;
    gpu.queries_needed = 1;
    depth = 0;
}

/* Is everything given back? */
static int gpu_clean(void) {
    int alive = 0;
    for (int i = 0; i < 512; i++) alive += gpu.events[i].alive;
    for (int i = 1; i < 8; i++) alive += gpu.streams[i].alive != gpu.streams[i].users;
    return alive == 0 && gpu.buffers == 0 && gpu.registers == 0 && gpu.retained == 0 &&
           gpu.pushes == gpu.pops && depth == 0 && gpu.wrong == 0;
}

static void gpu_work(int ops) {
    pthread_mutex_lock(&gpu.lock);
    for (int k = 0; k < ops; k++)
        for (int i = 0; i < 8; i++) execute(&gpu.streams[i]);
    pthread_mutex_unlock(&gpu.lock);
}

/* A stream of the user's, who keeps it. */
static void *user_stream(uintptr_t i) {
    gpu.streams[i].alive = gpu.streams[i].users = 1;
    return (void *)i;
}

/* A kernel that reads the batch, some time. */
static void kernel(void *stream, const dlp_batch *b) {
    pthread_mutex_lock(&gpu.lock);
    for (uint32_t f = 0; f < b->n_fields; f++) {
        op *o = enqueue(stream, KERNEL);
        o->from = b->fields[f].data;
        o->bytes = b->fields[f].bytes;
        o->sum = sum_of(o->from, o->bytes);
    }
    pthread_mutex_unlock(&gpu.lock);
}

/* ---- a pipe over a device ---- */

/* Read the pipe to its end, `held` batches at a time; each is what it must be. release: how. */
enum { PLAIN, AFTER };
static int drain(rig *r, dlp_pipe *p, int held, int release, void *stream) {
    dlp_batch *have[8], *b;
    uint64_t n = 0, each = rig_batches(r);
    int rc, n_have = 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(rig_batch_same(r, b, n / each, n % each));
        n++;
        if (stream) kernel(stream, b);
        have[n_have++] = b;
        if (n_have < held) continue;
        if (release == AFTER)
            rc = dlp_pipe_release_after(p, have[0], stream, NULL);
        else
            rc = dlp_pipe_release(p, have[0]);
        if (rc != DLP_OK) {
            CHECK(rc == DLP_ERR_DEVICE);
            CHECK(dlp_pipe_release(p, have[0]) == DLP_OK); /* it is still held */
        }
        memmove(have, have + 1, (size_t)--n_have * sizeof *have);
    }
    while (n_have > 0) CHECK(dlp_pipe_release(p, have[--n_have]) == DLP_OK);
    if (rc == DLP_END) CHECK(n == 2 * each);
    return rc;
}

/* A pipe that ends on a device. */
typedef struct bed {
    rig r;
    dlp_device d;
    dlp_pipe *p;
} bed;

static int bed_open(bed *t, const dlp_cuda_desc *desc, int threaded, int held, int buffers) {
    CHECK(dlp_device_cuda(&t->d, desc, NULL) == DLP_OK);
    rig_device(&t->r, &t->d, threaded, held);
    t->r.transfer.queue.capacity = (uint32_t)buffers;
    return rig_open(&t->r, &t->p);
}

static void bed_close(bed *t) {
    CHECK(dlp_pipe_close(t->p) == DLP_OK && dlp_device_close(&t->d) == DLP_OK);
    CHECK(gpu_clean());
    rig_free(&t->r);
}

static void pipe__all_placements__bytes_and_calls_right(void) {
    for (int k = 0; k < 8; k++) {
        int threaded = k & 1, held = k & 2 ? 3 : 1;
        bed t;
        dlp_device_info info = {0};
        gpu_reset();
        gpu.queries_needed = k & 4 ? 7 : 1;
        if (bed_open(&t, NULL, threaded, held, k & 4 ? 5 : 0) != DLP_OK) return;
        CHECK(strcmp(t.d.name, "cuda:0") == 0);
        CHECK(dlp_device_describe(&t.d, &info) == DLP_OK && info.pinned == 1 &&
              info.unpinned[0] == 0 && strcmp(info.name, "Fake 0") == 0 &&
              info.context == (void *)(uintptr_t)CTX_A && strcmp(info.kind, "cuda") == 0);
        CHECK(gpu.registers == 1 && gpu.buffers == 2 * (k & 4 ? 5 : held + 1));
        CHECK(dlp_device_close(&t.d) == DLP_ERR_BUSY);
        CHECK(drain(&t.r, t.p, held, PLAIN, NULL) == DLP_END);
        CHECK(gpu.copies == 2 * 26 && gpu.records == 26 && gpu.unpinned_copies == 0);
        CHECK(gpu.waits == 0);
        CHECK(dlp_pipe_close(t.p) == DLP_OK);
        CHECK(gpu.buffers == 0 && gpu.registers == 0 && gpu.retained == 1);
        CHECK(dlp_device_close(&t.d) == DLP_OK && t.d.user == NULL);
        CHECK(dlp_device_close(&t.d) == DLP_OK);
        CHECK(gpu_clean());
        rig_free(&t.r);
    }
}

static void release_after__kernels_late__buffer_not_written(void) {
    for (int k = 0; k < 4; k++) {
        int threaded = k & 1, held = k & 2 ? 3 : 1;
        bed t;
        gpu_reset();
        if (bed_open(&t, NULL, threaded, held, 0) != DLP_OK) return;
        CHECK(drain(&t.r, t.p, held, AFTER, user_stream(7)) == DLP_END);
        CHECK(gpu.waits > 0);
        bed_close(&t);
    }
}

/* A kernel that does not end: nothing is delivered out of its buffer, the others go on. */
static void release_after__kernel_stuck__its_buffer_waits(void) {
    bed t;
    dlp_batch *b;
    void *stream;
    int n = 0, rc;
    long queries;
    gpu_reset();
    stream = user_stream(7);
    if (bed_open(&t, NULL, 1, 1, 3) != DLP_OK) return;
    gpu.streams[7].stuck = 1;
    CHECK(dlp_pipe_next(t.p, &b) == DLP_OK);
    kernel(stream, b);
    CHECK(dlp_pipe_release_after(t.p, b, stream, NULL) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(t.p, &b, 200)) == DLP_OK && n++ < 10)
        dlp_pipe_release(t.p, b);
    CHECK(rc == DLP_TIMEOUT && n < 5);
    pthread_mutex_lock(&gpu.lock);
    queries = gpu.queries;
    pthread_mutex_unlock(&gpu.lock);
    test_pause(200000000); /* a copy that has been late for 200 ms is asked for each ms */
    pthread_mutex_lock(&gpu.lock);
    CHECK(gpu.queries > queries && gpu.queries - queries < 2000);
    gpu.streams[7].stuck = 0;
    pthread_mutex_unlock(&gpu.lock);
    while ((rc = dlp_pipe_next_timeout(t.p, &b, 20000)) == DLP_OK) {
        n++;
        CHECK(rig_batch_same(&t.r, b, (uint64_t)n / 13, (uint64_t)n % 13));
        dlp_pipe_release(t.p, b);
    }
    CHECK(rc == DLP_END && n == 25);
    bed_close(&t);
}

static void consumer__plain_release__buffer_not_written(void) {
    for (int k = 0; k < 4; k++) {
        bed t;
        dlp_batch *b;
        uint64_t n = 0;
        dlp_cuda_desc desc = {0};
        gpu_reset();
        if (k & 2)
            desc.consumer = user_stream(7);
        else
            desc.has_consumer = 1; /* the default stream */
        if (bed_open(&t, &desc, k & 1, 2, 0) != DLP_OK) return;
        gpu_work(3);
        while (dlp_pipe_next_timeout(t.p, &b, 20000) == DLP_OK) {
            CHECK(rig_batch_same(&t.r, b, n / 13, n % 13));
            n++;
            kernel(desc.consumer, b);
            CHECK(dlp_pipe_release(t.p, b) == DLP_OK);
        }
        CHECK(n == 26 && gpu.waits == 26);
        bed_close(&t);
    }
}

static void desc__own_context_and_stream__used_and_kept(void) {
    bed t;
    dlp_device_info info = {0};
    dlp_cuda_desc desc = {.context = (void *)(uintptr_t)CTX_B};
    gpu_reset();
    desc.stream = user_stream(5);
    CHECK(dlp_device_cuda(&t.d, &desc, NULL) == DLP_OK);
    CHECK(strcmp(t.d.name, "cuda:1") == 0 && gpu.retained == 0);
    CHECK(dlp_device_describe(&t.d, &info) == DLP_OK && info.context == desc.context &&
          info.queue == desc.stream && info.device == 1 && info.pinned == 0);
    rig_device(&t.r, &t.d, 1, 1);
    if (rig_open(&t.r, &t.p) != DLP_OK) return;
    CHECK(drain(&t.r, t.p, 1, PLAIN, desc.stream) == DLP_END); /* kernels and copies take turns */
    bed_close(&t);
    CHECK(gpu.streams[5].alive);
}

/* A device that is made before the driver may be called: for worker processes, which fork first. */
static void later__start_calls_the_driver__with_the_desc_of_then(void) {
    bed t;
    dlp_device_info info = {0};
    dlp_error err;
    dlp_cuda_desc desc = {.later = 1};
    gpu_reset();
    CHECK(dlp_device_cuda(&t.d, &desc, NULL) == DLP_OK && dlp_device_close(&t.d) == DLP_OK);
    CHECK(dlp_device_cuda(&t.d, &desc, NULL) == DLP_OK && gpu.calls == 0);
    CHECK(strcmp(t.d.name, "cuda") == 0 && t.d.room == NULL);
    CHECK(dlp_device_describe(&t.d, &info) == DLP_OK && info.context == NULL &&
          strcmp(info.kind, "cuda") == 0);
    rig_device(&t.r, &t.d, 1, 1);
    gpu.init_fails = 1;
    CHECK(rig_try(&t.r, &t.p, &err) == DLP_ERR_DEVICE);
    CHECK(strstr(err.message, "cuInit: CUDA_ERROR_NO_DEVICE (100)") && gpu_clean());
    gpu.init_fails = 0;
    desc.context = (void *)(uintptr_t)CTX_B;
    desc.stream = user_stream(5);
    for (int k = 0; k < 2; k++) { /* the second pipe finds it made */
        if (rig_open(&t.r, &t.p) != DLP_OK) return;
        CHECK(strcmp(t.d.name, "cuda:1") == 0 && gpu.retained == 0);
        CHECK(dlp_device_describe(&t.d, &info) == DLP_OK && info.context == desc.context &&
              info.queue == desc.stream && info.device == 1 && info.pinned == 1);
        CHECK(drain(&t.r, t.p, 1, PLAIN, desc.stream) == DLP_END);
        if (k == 0) CHECK(dlp_pipe_close(t.p) == DLP_OK);
    }
    bed_close(&t);
    CHECK(gpu.streams[5].alive);
    for (desc.later = -1; desc.later < 3; desc.later += 3)
        CHECK(dlp_device_cuda(&t.d, &desc, &err) == DLP_ERR_ARG && strcmp(err.field, "later") == 0);
}

static void register__refused__pageable_and_told(void) {
    bed t;
    dlp_device_info info = {0};
    gpu_reset();
    gpu.register_fails = 1;
    if (bed_open(&t, NULL, 1, 1, 0) != DLP_OK) return;
    CHECK(dlp_device_describe(&t.d, &info) == DLP_OK && info.pinned == 0);
    CHECK(strcmp(info.unpinned, "cuMemHostRegister: unknown error (3)") == 0);
    CHECK(drain(&t.r, t.p, 1, PLAIN, NULL) == DLP_END);
    CHECK(gpu.unpinned_copies == 52);
    bed_close(&t);
}

static void close__batches_held__with_the_last_release(void) {
    for (int after = 0; after < 2; after++) {
        bed t;
        dlp_batch *b[2];
        void *stream;
        gpu_reset();
        stream = user_stream(6);
        if (bed_open(&t, NULL, 1, 2, 0) != DLP_OK) return;
        CHECK(dlp_pipe_next(t.p, &b[0]) == DLP_OK);
        CHECK(dlp_pipe_next(t.p, &b[1]) == DLP_OK);
        CHECK(dlp_pipe_close(t.p) == DLP_OK);
        CHECK(dlp_device_close(&t.d) == DLP_ERR_BUSY && gpu.buffers > 0);
        CHECK(rig_batch_same(&t.r, b[1], 0, 1));
        gpu.streams[6].stuck = 1;
        kernel(stream, b[1]);
        CHECK(dlp_pipe_release(t.p, b[0]) == DLP_OK);
        CHECK(dlp_device_close(&t.d) == DLP_ERR_BUSY);
        if (after) {
            CHECK(dlp_pipe_release_after(t.p, b[1], stream, NULL) == DLP_OK);
        } else {
            gpu.streams[6].stuck = 0;
            gpu_work(10);
            CHECK(dlp_pipe_release(t.p, b[1]) == DLP_OK);
        }
        CHECK(gpu.buffers == 0 && gpu.registers == 0);
        CHECK(dlp_device_close(&t.d) == DLP_OK);
        CHECK(gpu_clean());
        rig_free(&t.r);
    }
}

static void device__second_pipe__refused_then_taken(void) {
    bed t;
    dlp_pipe *q;
    dlp_error err;
    gpu_reset();
    if (bed_open(&t, NULL, 0, 1, 0) != DLP_OK) return;
    CHECK(rig_try(&t.r, &q, &err) == DLP_ERR_DEVICE && strstr(err.message, "open returned -10"));
    CHECK(drain(&t.r, t.p, 1, PLAIN, NULL) == DLP_END && dlp_pipe_close(t.p) == DLP_OK);
    if (rig_open(&t.r, &t.p) != DLP_OK) return;
    CHECK(drain(&t.r, t.p, 1, PLAIN, NULL) == DLP_END);
    bed_close(&t);
}

/* ---- failures ---- */

/* Everything once. Returns the first code that is none of success. */
static int life(int threaded, int consumer, int later, dlp_error *err) {
    rig r;
    dlp_device d;
    dlp_pipe *p = NULL;
    dlp_cuda_desc desc = {.has_consumer = consumer, .later = later};
    int rc = dlp_device_cuda(&d, &desc, err), made;
    if (rc != DLP_OK) return rc;
    rig_device(&r, &d, threaded, 2);
    made = rc = rig_try(&r, &p, err);
    if (made == DLP_OK) {
        rc = drain(&r, p, 2, AFTER, NULL);
        *err = *dlp_pipe_error(p);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    CHECK(dlp_device_close(&d) == DLP_OK);
    rig_free(&r);
    return rc == DLP_END ? DLP_OK : rc;
}

/* Does the message name the call that failed, its error and number? */
static int says(const dlp_error *e) {
    return strstr(e->message, gpu.failed) && strstr(e->message, "CUDA_ERROR_") &&
           (strstr(e->message, "(700)") || strstr(e->message, "(2)"));
}

static void fault__each_call__told_and_nothing_left(void) {
    static const char *const forgiven[] = {"cuMemHostRegister",   "cuStreamSynchronize",
                                           "cuEventSynchronize",  "cuEventDestroy",
                                           "cuStreamDestroy",     "cuMemFree",
                                           "cuMemHostUnregister", "cuDevicePrimaryCtxRelease"};
    long told = 0, n = 1;
    for (int k = 0; k < 5; k++) {
        for (n = 1;; n += n < 150 ? 1 : getenv("SHORT") ? 25 : 5) {
            dlp_error err;
            int rc, spared = 0;
            gpu_reset();
            gpu.fail_at = n;
            memset(&err, 0, sizeof err);
            rc = life(k & 1, k >> 1 & 1, k >> 2, &err);
            if (gpu.failed[0] == 0) {
                CHECK(rc == DLP_OK);
                break;
            }
            for (int i = 0; i < 8; i++) spared |= strcmp(gpu.failed, forgiven[i]) == 0;
            /* a record that release_after wanted is told to its caller; a push or pop of the end
               can be told to nobody */
            if (rc == DLP_OK && strcmp(gpu.failed, "cuEventRecord") != 0 &&
                strncmp(gpu.failed, "cuCtx", 5) != 0 && !spared) {
                printf("call %ld, %s: nobody was told\n", n, gpu.failed);
                CHECK(0);
            }
            if (rc != DLP_OK) {
                told++;
                CHECK(rc == DLP_ERR_DEVICE || (rc == DLP_ERR_UNSUPPORTED && n == 1 && k < 4));
                CHECK(err.code == rc);
                if (!says(&err)) printf("%s: %s\n", gpu.failed, err.message);
                CHECK(says(&err));
            }
            if (strcmp(gpu.failed, "cuCtxPushCurrent") != 0) { /* else nothing can be freed */
                if (!gpu_clean()) printf("call %ld, %s: something is left\n", n, gpu.failed);
                CHECK(gpu_clean());
            }
        }
    }
    CHECK(told > 300 || getenv("SHORT"));
    printf("%ld calls in a life, %ld failures told\n", n - 1, told);
}

static void driver__missing_or_empty__unsupported_in_words(void) {
    dlp_device d;
    dlp_error err;
    dlp_cuda_desc desc = {.library = "libdlpipe-nothing.so.7"};
    memset(&d, 0x55, sizeof d);
    gpu_reset();
    gpu.on = 0;
    CHECK(dlp_device_cuda(&d, &desc, &err) == DLP_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "no driver") && strcmp(err.field, "library") == 0);
    for (int i = 1; i <= 26; i++) {
        gpu_reset();
        gpu.missing = i;
        CHECK(dlp_device_cuda(&d, NULL, &err) == DLP_ERR_UNSUPPORTED);
        CHECK(strstr(err.message, "has no cu") && gpu.calls == 0);
    }
    gpu_reset();
    gpu.init_fails = 1;
    CHECK(dlp_device_cuda(&d, NULL, &err) == DLP_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "cuInit: CUDA_ERROR_NO_DEVICE (100)") && gpu_clean());
    gpu_reset();
    gpu.no_devices = 1;
    CHECK(dlp_device_cuda(&d, NULL, &err) == DLP_ERR_UNSUPPORTED && gpu_clean());
    CHECK(((unsigned char *)&d)[0] == 0x55); /* untouched */
}

static void calls__bad_arguments__refused(void) {
    dlp_device d, host = *dlp_device_host(), none;
    dlp_device_info info = {0};
    dlp_error err;
    dlp_pipe *p;
    dlp_batch *b;
    rig r;
    memset(&none, 0, sizeof none);
    gpu_reset();
    for (int i = -1; i < 3; i += 3) {
        dlp_cuda_desc desc = {.device = i};
        CHECK(dlp_device_cuda(&d, &desc, &err) == DLP_ERR_ARG);
        CHECK(strcmp(err.field, "device") == 0 && strstr(err.message, "0..1") && gpu_clean());
    }
    CHECK(dlp_device_cuda(NULL, NULL, &err) == DLP_ERR_ARG);
    CHECK(dlp_device_describe(&host, &info) == DLP_ERR_ARG);
    CHECK(dlp_device_close(&host) == DLP_ERR_ARG && dlp_device_close(NULL) == DLP_OK);
    CHECK(dlp_device_close(&none) == DLP_OK);
    rig_device(&r, &host, 0, 1);
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_pipe_release_after(NULL, b, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_release_after(p, NULL, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_release_after(p, b, NULL, &err) == DLP_ERR_UNSUPPORTED && err.message[0]);
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_release_after(p, b, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
    CHECK(dlp_device_opencl(&d, NULL, &err) == DLP_ERR_UNSUPPORTED &&
          strstr(err.message, "DLPIPE_OPENCL"));
}

/* ---- what is left of its memory ---- */

static int one_chunk(void *user, dlp_chunk *c) {
    (void)user;
    memset(c->data[0], 7, c->count);
    return 0;
}

/* DLP_PRELOAD_AUTO takes three quarters of it at most. */
static void preload__auto__what_the_device_has_left(void) {
    static const dlp_field field = {"x", DLP_U8, 0, {0}, 0, 0};
    for (int i = 0; i < 3; i++) {
        dlp_chunks_desc desc = {.n_items = 300,
                                .fields = &field,
                                .n_fields = 1,
                                .chunk_rows = 100,
                                .batch_size = 10,
                                .load = one_chunk,
                                .preload = DLP_PRELOAD_AUTO};
        dlp_device d;
        dlp_pipe *p = NULL;
        dlp_stats s;
        gpu_reset();
        CHECK(dlp_device_cuda(&d, NULL, NULL) == DLP_OK);
        desc.device = &d;
        gpu.bytes_left = i == 0 ? 400 : 399;
        if (i == 2) gpu.bytes_left = 400, gpu.fail_at = gpu.calls + 2; /* cuMemGetInfo */
        CHECK(dlp_chunks_open(&p, &desc, NULL) == DLP_OK);
        if (p == NULL) return;
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.chunks.preload == (i == 0 ? DLP_PRELOAD_DEVICE : DLP_PRELOAD_CPU));
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_device_close(&d) == DLP_OK && gpu_clean());
    }
}

static int row_chunk(void *user, dlp_chunk *c) {
    uint8_t *rows = c->data[0];
    (void)user;
    for (uint64_t k = 0; k < c->count; k++) memset(rows + 64 * k, (int)dlp_chunk_row(c, k), 64);
    return 0;
}

/* Kernels that run late still read the seam buffer of a batch that was given back: the copies of
   the next one wait for them. */
static void seams__kernels_late__buffer_not_written(void) {
    static const dlp_field field = {"x", DLP_U8, 1, {64}, 0, 0};
    for (int k = 0; k < 8; k++) {
        dlp_chunks_desc desc = {.n_items = 240,
                                .fields = &field,
                                .n_fields = 1,
                                .chunk_rows = 10,
                                .batch_size = 15,
                                .load = row_chunk,
                                .transfer_inline = k & 1,
                                .preload = k & 4 ? DLP_PRELOAD_DEVICE : DLP_PRELOAD_NONE,
                                .epochs = 2,
                                .pipe = {.max_held = 2}};
        dlp_cuda_desc cuda = {0};
        dlp_device d;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        uint64_t row = 0;
        gpu_reset();
        if (k & 2) cuda.consumer = user_stream(7);
        CHECK(dlp_device_cuda(&d, &cuda, NULL) == DLP_OK);
        desc.device = &d;
        CHECK(dlp_chunks_open(&p, &desc, NULL) == DLP_OK);
        if (p == NULL) return;
        gpu_work(3);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            const uint8_t *x = b->fields[0].data;
            for (uint32_t r = 0; r < b->count; r++, row++)
                CHECK(x[64 * r] == row % 240 && x[64 * r + 63] == row % 240);
            kernel(user_stream(7), b);
            CHECK((k & 2 ? dlp_pipe_release(p, b)
                         : dlp_pipe_release_after(p, b, user_stream(7), NULL)) == DLP_OK);
        }
        CHECK(row == 480 && gpu.joins >= 32 && gpu.wrong == 0);
        gpu_work(0);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_device_close(&d) == DLP_OK && gpu_clean());
    }
}

/* ---- a real one, if there is one ---- */

static void real__all_placements__bytes_right(void) {
    int (*read_back)(void *, unsigned long long, size_t) = NULL;
    dlp_error err;
    dlp_device d;
    dlp_device_info info = {0};
    void *lib, *symbol;
    gpu_reset();
    gpu.on = 0;
    if (dlp_device_cuda(&d, NULL, &err) != DLP_OK) {
        printf("no real device: %s\n", err.message);
        CHECK(err.code == DLP_ERR_UNSUPPORTED && err.message[0]);
        return;
    }
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    symbol = dlsym(lib, "cuMemcpyDtoH_v2");
    memcpy(&read_back, &symbol, sizeof symbol);
    for (int k = 0; k < 4; k++) {
        static uint8_t host[2][4096] __attribute__((aligned(64)));
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        void *was;
        rig_device(&r, &d, k & 1, k & 2 ? 3 : 1);
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(dlp_device_describe(&d, &info) == DLP_OK);
        printf("%s: %s%s\n", info.name, info.pinned ? "pinned" : "pageable: ", info.unpinned);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            dlp_batch copy = *b;
            dlp_tensor fields[2] = {b->fields[0], b->fields[1]};
            dlpi_cuda *c = d.user;
            CHECK(c->call.ctx_push(info.context) == 0);
            for (int f = 0; f < 2; f++) {
                CHECK(read_back(host[f], (unsigned long long)(uintptr_t)fields[f].data,
                                (size_t)fields[f].bytes) == 0);
                fields[f].data = host[f];
            }
            CHECK(c->call.ctx_pop(&was) == 0);
            copy.fields = fields;
            CHECK(rig_batch_same(&r, &copy, n / 13, n % 13));
            n++;
            CHECK(dlp_pipe_release_after(p, b, k & 1 ? NULL : info.queue, &err) == DLP_OK);
        }
        CHECK(n == 26 && dlp_pipe_close(p) == DLP_OK);
        rig_free(&r);
    }
    CHECK(dlp_device_close(&d) == DLP_OK);
}

int main(void) {
    pipe__all_placements__bytes_and_calls_right();
    release_after__kernels_late__buffer_not_written();
    release_after__kernel_stuck__its_buffer_waits();
    consumer__plain_release__buffer_not_written();
    desc__own_context_and_stream__used_and_kept();
    later__start_calls_the_driver__with_the_desc_of_then();
    register__refused__pageable_and_told();
    close__batches_held__with_the_last_release();
    device__second_pipe__refused_then_taken();
    fault__each_call__told_and_nothing_left();
    driver__missing_or_empty__unsupported_in_words();
    calls__bad_arguments__refused();
    preload__auto__what_the_device_has_left();
    seams__kernels_late__buffer_not_written();
    real__all_placements__bytes_right();
    return test_end("device_cuda");
}
