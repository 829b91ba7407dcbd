/* What the checks on a GPU share: the driver's calls that a user of CUDA makes beside dlpipe, two
   kernels, items whose every word is known, and batches compared with them. After dlpipe.h. */
#ifndef GPU_RIG_H
#define GPU_RIG_H

#include <dlfcn.h>

#include "../rig/check.h"

#define MIB ((uint64_t)1 << 20)
#define ROWS 64
#define WAIT_MS 20000

static const char *library = "libcuda.so.1";
static bool quick; /* less of everything */

/* ---- the driver ---- */

typedef struct driver {
    int (*init)(unsigned flags);
    int (*device_get)(int *device, int ordinal);
    int (*primary_retain)(void **context, int device);
    int (*ctx_push)(void *context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_sync)(void *stream);
    int (*module_load)(void **module, const void *image);
    int (*function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **params, void **extra);
    int (*mem_alloc)(unsigned long long *address, size_t bytes);
    int (*mem_free)(unsigned long long address);
    int (*host_register)(void *mem, size_t bytes, unsigned flags);
    int (*host_unregister)(void *mem);
    int (*to_device)(unsigned long long to, const void *from, size_t bytes, void *stream);
    int (*to_host)(void *to, unsigned long long from, size_t bytes);
    int (*fill)(unsigned long long to, unsigned char byte, size_t bytes);
} driver;

static const struct {
    const char *name;
    size_t at;
} driver_calls[] = {
    {"cuInit", offsetof(driver, init)},
    {"cuDeviceGet", offsetof(driver, device_get)},
    {"cuDevicePrimaryCtxRetain", offsetof(driver, primary_retain)},
    {"cuCtxPushCurrent_v2", offsetof(driver, ctx_push)},
    {"cuStreamCreate", offsetof(driver, stream_create)},
    {"cuStreamSynchronize", offsetof(driver, stream_sync)},
    {"cuModuleLoadData", offsetof(driver, module_load)},
    {"cuModuleGetFunction", offsetof(driver, function)},
    {"cuLaunchKernel", offsetof(driver, launch)},
    {"cuMemAlloc_v2", offsetof(driver, mem_alloc)},
    {"cuMemFree_v2", offsetof(driver, mem_free)},
    {"cuMemHostRegister_v2", offsetof(driver, host_register)},
    {"cuMemHostUnregister", offsetof(driver, host_unregister)},
    {"cuMemcpyHtoDAsync_v2", offsetof(driver, to_device)},
    {"cuMemcpyDtoH_v2", offsetof(driver, to_host)},
    {"cuMemsetD8_v2", offsetof(driver, fill)},
};

/* wrong_words counts the words of data that differ from word(seed, 0..n - 1). spin lasts for ns. */
static const char kernels[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry wrong_words(.param .u64 data, .param .u64 n, .param .u64 seed,\n"
    "                            .param .u64 count) {\n"
    ".reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %d<16>;\n"
    "ld.param.u64 %d0, [data]; ld.param.u64 %d1, [n];\n"
    "ld.param.u64 %d2, [seed]; ld.param.u64 %d3, [count];\n"
    "cvta.to.global.u64 %d0, %d0; cvta.to.global.u64 %d3, %d3;\n"
    "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n"
    "mad.lo.u32 %r4, %r0, %r1, %r2; mul.lo.u32 %r5, %r1, %r3;\n"
    "cvt.u64.u32 %d4, %r4; cvt.u64.u32 %d5, %r5;\n"
    "next: setp.ge.u64 %p0, %d4, %d1; @%p0 bra over;\n"
    "mul.lo.u64 %d6, %d4, 0x9E3779B97F4A7C15; add.u64 %d6, %d6, %d2;\n"
    "shr.u64 %d7, %d6, 30; xor.b64 %d6, %d6, %d7; mul.lo.u64 %d6, %d6, 0xBF58476D1CE4E5B9;\n"
    "shr.u64 %d7, %d6, 27; xor.b64 %d6, %d6, %d7; mul.lo.u64 %d6, %d6, 0x94D049BB133111EB;\n"
    "shr.u64 %d7, %d6, 31; xor.b64 %d6, %d6, %d7;\n"
    "shl.b64 %d8, %d4, 3; add.u64 %d8, %d8, %d0; ld.global.u64 %d9, [%d8];\n"
    "setp.eq.u64 %p1, %d9, %d6; @%p1 bra same;\n"
    "mov.u64 %d10, 1; atom.global.add.u64 %d11, [%d3], %d10;\n"
    "same: add.u64 %d4, %d4, %d5; bra next;\n"
    "over: ret;\n}\n"
    ".visible .entry spin(.param .u64 ns) {\n"
    ".reg .pred %p; .reg .u64 %t<4>;\n"
    "ld.param.u64 %t2, [ns]; mov.u64 %t0, %globaltimer;\n"
    "more: mov.u64 %t1, %globaltimer; sub.u64 %t3, %t1, %t0;\n"
    "setp.lt.u64 %p, %t3, %t2; @%p bra more;\n"
    "ret;\n}\n";

static struct gpu {
    driver call;
    void *context, *stream; /* the stream of the user's kernels */
    void *wrong_words, *spin;
    unsigned long long count; /* on the device: what wrong_words adds to */
    uint64_t checked;         /* bytes that were compared */
} gpu;

/* All calls of the driver must succeed. */
#define CU(call) must(call, #call)
static void must(int rc, const char *what) {
    __atomic_add_fetch(&test_checks, 1, __ATOMIC_RELAXED);
    if (rc == 0) return;
    printf("%s returned %d\n", what, rc);
    exit(1);
}

static uint64_t wrong_so_far(void) {
    uint64_t n = 0;
    CU(gpu.call.stream_sync(gpu.stream));
    CU(gpu.call.to_host(&n, gpu.count, sizeof n));
    return n;
}

/* As a program that trains does: the primary context, a stream, kernels. */
static void gpu_begin(void) {
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL), *module;
    int device = 0;
    if (lib == NULL) must(-1, dlerror());
    for (size_t i = 0; i < sizeof driver_calls / sizeof *driver_calls; i++) {
        void *symbol = dlsym(lib, driver_calls[i].name);
        if (symbol == NULL) must(-1, driver_calls[i].name);
        memcpy((char *)&gpu.call + driver_calls[i].at, &symbol, sizeof symbol);
    }
    CU(gpu.call.init(0));
    CU(gpu.call.device_get(&device, 0));
    CU(gpu.call.primary_retain(&gpu.context, device));
    CU(gpu.call.ctx_push(gpu.context));
    CU(gpu.call.stream_create(&gpu.stream, 1));
    CU(gpu.call.module_load(&module, kernels));
    CU(gpu.call.function(&gpu.wrong_words, module, "wrong_words"));
    CU(gpu.call.function(&gpu.spin, module, "spin"));
    CU(gpu.call.mem_alloc(&gpu.count, sizeof(uint64_t)));
    CU(gpu.call.fill(gpu.count, 0, sizeof(uint64_t)));
}

static void gpu_spin(uint64_t ns) {
    void *params[] = {&ns};
    CU(gpu.call.launch(gpu.spin, 1, 1, 1, 1, 1, 1, 0, gpu.stream, params, NULL));
}

/* ---- items ---- */

/* Word i of what begins with seed. */
static inline uint64_t word(uint64_t seed, uint64_t i) {
    uint64_t z = seed + i * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Items have two fields of words, of this many. */
typedef struct kind {
    uint64_t words[2], pause_ns; /* pause: how long an item takes besides */
    dlp_field fields[2];
    bool empty; /* fetch writes nothing */
} kind;

static kind kind_of(uint64_t bytes) {
    kind k = {.words = {bytes / 8, 2}};
    for (int f = 0; f < 2; f++)
        k.fields[f] = (dlp_field){.name = f == 0 ? "x" : "label",
                                  .dtype = DLP_U64,
                                  .ndim = 1,
                                  .shape = {(int64_t)k.words[f]}};
    return k;
}

static uint64_t seed_of(uint64_t index, uint64_t field) { return dlp_hash(9, index, field, 0); }

static void write_row(uint64_t *to, uint64_t index, uint64_t field, uint64_t words) {
    uint64_t seed = seed_of(index, field);
    for (uint64_t i = 0; i < words; i++) to[i] = word(seed, i);
}

static int fetch(void *user, dlp_item *item) {
    const kind *k = user;
    if (k->empty) return 0;
    if (k->pause_ns > 0) test_pause(k->pause_ns);
    for (uint32_t f = 0; f < 2; f++) write_row(item->data[f], item->index, f, k->words[f]);
    return 0;
}

static dlp_loader_desc loader_of(kind *k, uint64_t n_items, int workers) {
    return (dlp_loader_desc){.dataset = {.n_items = n_items,
                                         .fields = k->fields,
                                         .n_fields = 2,
                                         .writes_all_bytes = 1,
                                         .fetch = fetch,
                                         .user = k},
                             .batch_size = ROWS,
                             .num_workers = workers,
                             .shuffle = 1,
                             .seed = 5};
}

/* ---- batches ---- */

/* Copy a field back from the device. Returns memory to be freed. */
static void *copied_back(const dlp_tensor *t) {
    void *host = malloc(t->bytes + 1);
    if (host == NULL) must(-1, "malloc");
    CU(gpu.call.to_host(host, (unsigned long long)(uintptr_t)t->data, (size_t)t->bytes));
    gpu.checked += t->bytes;
    return host;
}

static bool field_right(const dlp_batch *b, const kind *k, uint32_t f, const uint64_t *host) {
    for (uint32_t r = 0; r < b->count; r++) {
        uint64_t seed = seed_of(b->index[r], f);
        for (uint64_t i = 0; i < k->words[f]; i++)
            if (*host++ != word(seed, i)) return false;
    }
    return true;
}

/* True if each byte of the batch, which lies on the device, is right. */
static bool batch_right(const dlp_batch *b, const kind *k) {
    bool right = b->n_fields == 2;
    for (uint32_t f = 0; f < 2 && right; f++) {
        uint64_t *host = copied_back(&b->fields[f]);
        right = b->fields[f].bytes == b->count * k->words[f] * 8 && field_right(b, k, f, host);
        free(host);
    }
    return right;
}

/* The same, but by a kernel for each row of the first field, some time: wrong_so_far tells. */
static void check_on_device(const dlp_batch *b, const kind *k) {
    uint64_t *label = copied_back(&b->fields[1]);
    CHECK(b->n_fields == 2 && field_right(b, k, 1, label));
    free(label);
    for (uint32_t r = 0; r < b->count; r++) {
        uint64_t n = k->words[0], seed = seed_of(b->index[r], 0);
        unsigned long long at = (unsigned long long)(uintptr_t)b->fields[0].data + r * n * 8;
        void *params[] = {&at, &n, &seed, &gpu.count};
        CU(gpu.call.launch(gpu.wrong_words, 64, 1, 1, 256, 1, 1, 0, gpu.stream, params, NULL));
        gpu.checked += n * 8;
    }
}

/* A hash of all bytes, which lie on the device. */
static uint64_t digest_of(const dlp_batch *b) {
    uint64_t h = b->count;
    for (uint32_t f = 0; f < b->n_fields; f++) {
        uint64_t *host = copied_back(&b->fields[f]);
        for (uint64_t i = 0; i < b->fields[f].bytes / 8; i++) h = word(h ^ host[i], i);
        free(host);
    }
    return h;
}

/* ---- pipes ---- */

/* desc: library is set; NULL: the defaults. */
static dlp_device device_of(dlp_cuda_desc *desc) {
    dlp_cuda_desc defaults = {.library = library};
    dlp_device d;
    dlp_error err;
    memset(&d, 0, sizeof d);
    if (desc == NULL) desc = &defaults;
    desc->library = library;
    if (dlp_device_cuda(&d, desc, &err) != DLP_OK) must(err.code, err.message);
    return d;
}

static void opened(int rc, const dlp_error *err) {
    if (rc != DLP_OK) printf("%s.%s: %s\n", err->stage, err->field, err->message);
    must(rc, "open");
}

static int next(dlp_pipe *p, dlp_batch **b) {
    int rc = dlp_pipe_next_timeout(p, b, WAIT_MS);
    if (rc < 0) printf("next: %s\n", dlp_pipe_error(p)->message);
    return rc;
}

static void explained(dlp_pipe *p) {
    char text[4096];
    CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
    printf("%s%s", text, text[strlen(text) - 1] == '\n' ? "" : "\n");
}

static void pinned_is(const dlp_device *d, int pinned) {
    dlp_device_info info;
    memset(&info, 0, sizeof info);
    CHECK(dlp_device_describe(d, &info) == DLP_OK && info.context == gpu.context);
    if (info.pinned != pinned) printf("not pinned: %s\n", info.unpinned);
    CHECK(info.pinned == pinned);
}

static void ended(dlp_pipe *p, dlp_device *d) {
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_device_close(d) == DLP_OK);
}

#endif
