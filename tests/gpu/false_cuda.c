/* A false libcuda.so.1 for machines without a GPU. Memory of the device is the host's, each stream
   is a thread, and a copy takes as long as its bytes at FALSE_GB_S. The two kernels of gpu_rig.h
   are functions here. What it cannot do ends the program. FALSE_SPOILS=n: the n-th copy of each
   process has a wrong byte, its last one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../rig/posix.h"

#define FALSE_GB_S 2.0
#define ROOM 4096

enum { COPY, RECORD, WAIT, WRONG_WORDS, SPIN };

typedef struct event {
    uint64_t recorded, passed; /* how often */
} event;

typedef struct op {
    int what;
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    event *e;
    uint64_t number, seed, *count;
    unsigned char spoilt; /* bits of its last byte */
} op;

typedef struct stream {
    pthread_t thread;
    uint64_t head, tail;
    bool over;
    op ops[ROOM];
} stream;

int cuInit(unsigned flags);
int cuGetErrorName(int rc, const char **name);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetCount(int *n);
int cuDeviceGetName(char *name, int size, int device);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease(int device);
int cuCtxGetDevice(int *device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuStreamCreate(void **out, unsigned flags);
int cuStreamDestroy_v2(void *s);
int cuStreamWaitEvent(void *s, void *e, unsigned flags);
int cuStreamSynchronize(void *s);
int cuEventCreate(void **out, unsigned flags);
int cuEventDestroy_v2(void *e);
int cuEventRecord(void *e, void *s);
int cuEventQuery(void *e);
int cuEventSynchronize(void *e);
int cuMemAlloc_v2(unsigned long long *out, size_t bytes);
int cuMemFree_v2(unsigned long long at);
int cuMemGetInfo_v2(size_t *left, size_t *all);
int cuMemHostRegister_v2(void *mem, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *mem);
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *s);
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void *s);
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes);
int cuMemsetD8_v2(unsigned long long to, unsigned char byte, size_t bytes);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *s, void **params, void **extra);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct {
    const unsigned char *from;
    size_t bytes;
} pinned[64];
static pid_t owner; /* who called cuInit */
static long copies, spoils;
static char context;
static const char function_names[2][16] = {"wrong_words", "spin"};
static _Thread_local int depth;

static void never(const char *why) {
    fprintf(stderr, "false driver: %s\n", why);
    abort();
}

static void until(uint64_t ns) {
    uint64_t now;
    while ((now = test_now_ns()) < ns) test_pause(ns - now > 1000 ? ns - now : 1000);
}

static void wrong_words(const op *o) {
    const uint64_t *at = (const uint64_t *)(const void *)o->from;
    for (uint64_t i = 0; i < o->bytes; i++) {
        uint64_t z = o->seed + i * UINT64_C(0x9E3779B97F4A7C15);
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        *o->count += at[i] != (z ^ z >> 31);
    }
}

/* What takes time: without the lock. */
static void execute(const op *o) {
    uint64_t begin = test_now_ns();
    if (o->what == COPY) {
        memcpy(o->to, o->from, o->bytes);
        o->to[o->bytes - 1] ^= o->spoilt;
        until(begin + (uint64_t)((double)o->bytes / FALSE_GB_S));
    }
    if (o->what == WRONG_WORDS) wrong_words(o);
    if (o->what == SPIN) until(begin + o->number);
}

static void *work(void *user) {
    stream *s = user;
    pthread_mutex_lock(&lock);
    for (;;) {
        op *o = &s->ops[s->head % ROOM];
        bool idle = s->head == s->tail;
        if (idle && s->over) break;
        if (idle || (o->what == WAIT && o->e->passed < o->number)) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        execute(o);
        pthread_mutex_lock(&lock);
        if (o->what == RECORD && o->e->passed < o->number) o->e->passed = o->number;
        s->head++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Begin to add to a stream: with the lock. */
static op *add(stream *s, int what) {
    op *o;
    if (owner != getpid()) never("called in another process");
    if (s == NULL) never("the default stream");
    if (depth == 0) never("no context");
    pthread_mutex_lock(&lock);
    while (s->tail - s->head == ROOM) pthread_cond_wait(&changed, &lock);
    o = &s->ops[s->tail % ROOM];
    memset(o, 0, sizeof *o);
    o->what = what;
    return o;
}

static int added(stream *s) {
    s->tail++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void empty(stream *s) {
    uint64_t tail;
    pthread_mutex_lock(&lock);
    tail = s->tail;
    while (s->head < tail) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static bool is_pinned(const unsigned char *from, size_t bytes) {
    bool is = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 64; i++)
        is |= pinned[i].from != NULL && from >= pinned[i].from &&
              from + bytes <= pinned[i].from + pinned[i].bytes;
    pthread_mutex_unlock(&lock);
    return is;
}

int cuInit(unsigned flags) {
    if (owner != 0 && owner != getpid()) never("forked after cuInit");
    owner = getpid();
    spoils = getenv("FALSE_SPOILS") != NULL ? atol(getenv("FALSE_SPOILS")) : 0;
    return flags != 0;
}
int cuGetErrorName(int rc, const char **name) {
    *name = "CUDA_ERROR_FALSE";
    return rc == 0;
}
int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal != 0;
}
int cuDeviceGetCount(int *n) {
    *n = 1;
    return 0;
}
int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, (size_t)size, "a false driver's GPU %d", device);
    return 0;
}
int cuDevicePrimaryCtxRetain(void **out, int device) {
    *out = &context;
    return device != 0;
}
int cuDevicePrimaryCtxRelease(int device) { return device != 0; }
int cuCtxGetDevice(int *device) {
    *device = 0;
    return depth == 0;
}
int cuCtxPushCurrent_v2(void *c) {
    depth++;
    return c != &context;
}
int cuCtxPopCurrent_v2(void **c) {
    if (depth-- == 0) never("no context is left");
    *c = &context;
    return 0;
}
int cuStreamCreate(void **out, unsigned flags) {
    stream *s = calloc(1, sizeof *s);
    *out = s;
    return s == NULL || flags != 1 || pthread_create(&s->thread, NULL, work, s) != 0;
}
int cuStreamDestroy_v2(void *stream_) {
    stream *s = stream_;
    pthread_mutex_lock(&lock);
    s->over = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    free(s);
    return 0;
}
int cuStreamWaitEvent(void *s, void *e, unsigned flags) {
    op *o = add(s, WAIT);
    o->e = e;
    o->number = o->e->recorded;
    return added(s) + (flags != 0);
}
int cuStreamSynchronize(void *s) {
    empty(s);
    return 0;
}
int cuEventCreate(void **out, unsigned flags) {
    *out = calloc(1, sizeof(event));
    return *out == NULL || flags != 2;
}
int cuEventDestroy_v2(void *e) {
    free(e);
    return 0;
}
int cuEventRecord(void *e, void *s) {
    op *o = add(s, RECORD);
    o->e = e;
    o->number = ++o->e->recorded;
    return added(s);
}
int cuEventQuery(void *e_) {
    event *e = e_;
    bool passed;
    pthread_mutex_lock(&lock);
    passed = e->passed == e->recorded;
    pthread_mutex_unlock(&lock);
    return passed ? 0 : 600;
}
int cuEventSynchronize(void *e_) {
    event *e = e_;
    pthread_mutex_lock(&lock);
    while (e->passed < e->recorded) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}
int cuMemAlloc_v2(unsigned long long *out, size_t bytes) {
    void *mem = NULL;
    if (posix_memalign(&mem, 256, bytes) != 0) return 2;
    memset(mem, 0xEE, bytes);
    *out = (uintptr_t)mem;
    return 0;
}
int cuMemFree_v2(unsigned long long at) {
    free((void *)(uintptr_t)at);
    return 0;
}
int cuMemGetInfo_v2(size_t *left, size_t *all) {
    *left = *all = (size_t)1 << 30;
    return 0;
}
int cuMemHostRegister_v2(void *mem, size_t bytes, unsigned flags) {
    int rc = 1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 64 && rc != 0 && flags == 1; i++) {
        if (pinned[i].from != NULL) continue;
        pinned[i].from = mem;
        pinned[i].bytes = bytes;
        rc = 0;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
int cuMemHostUnregister(void *mem) {
    int rc = 1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 64; i++) {
        if (pinned[i].from != mem) continue;
        pinned[i].from = NULL;
        rc = 0;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
static int copy(void *to, const void *from, size_t bytes, void *s) {
    op *o = add(s, COPY);
    o->to = to;
    o->from = from;
    o->bytes = bytes;
    o->spoilt = ++copies == spoils;
    return added(s);
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *s) {
    int rc = copy((void *)(uintptr_t)to, from, bytes, s);
    if (!is_pinned(from, bytes)) empty(s); /* pageable: the caller takes part */
    return rc;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void *s) {
    return copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, s);
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) {
    if (depth == 0) never("no context");
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return 0;
}
int cuMemsetD8_v2(unsigned long long to, unsigned char byte, size_t bytes) {
    memset((void *)(uintptr_t)to, byte, bytes);
    return 0;
}
int cuModuleLoadData(void **module, const void *image) {
    *module = &context;
    return image == NULL;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    const bool spins = strcmp(name, function_names[1]) == 0;
    union {
        const char *from;
        void *to;
    } out = {function_names[spins]};
    *function = out.to;
    return module != &context || strcmp(name, function_names[spins]) != 0;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *s, void **params, void **extra) {
    bool spins = function == (const void *)function_names[1];
    op *o;
    if (gx * gy * gz * bx * by * bz == 0 || shared != 0 || extra != NULL) return 1;
    o = add(s, spins ? SPIN : WRONG_WORDS);
    if (spins) {
        o->number = *(uint64_t *)params[0];
        return added(s);
    }
    o->from = (void *)(uintptr_t) * (unsigned long long *)params[0];
    o->bytes = (size_t) * (uint64_t *)params[1]; /* words */
    o->seed = *(uint64_t *)params[2];
    o->count = (void *)(uintptr_t) * (unsigned long long *)params[3];
    return added(s);
}
