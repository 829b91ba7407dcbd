/* What copies beside a pipe cost: GB/s beside a loop of the driver's calls, batches a second with a
   transfer and without, and how much of copying and computing goes on at once. Items are empty, so
   nothing but the pipe and the copies is measured. */
#ifndef GPU_RATES_H
#define GPU_RATES_H

#include "gpu_rig.h"

typedef struct run {
    uint64_t batch_bytes; /* of ROWS items of one field */
    uint64_t spin_ns;     /* a kernel that lasts so long reads each batch; 0: none */
    int n;                /* batches that are timed */
    int32_t transfer;     /* 0: none; 1: a thread copies; 2: inline */
    int32_t buffers, prefetch;
    bool pageable, explain;
} run;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One batch more, which goes back when the kernel has read it. */
static void step(dlp_pipe *p, uint64_t spin_ns) {
    dlp_batch *b;
    must(next(p, &b), "next");
    if (spin_ns > 0) gpu_spin(spin_ns);
    if (spin_ns > 0)
        must(dlp_pipe_release_after(p, b, gpu.stream, NULL), "release_after");
    else
        must(dlp_pipe_release(p, b), "release");
}

/* Seconds for a batch of a pipe. */
static double piped_once(const run *r) {
    kind k = kind_of(r->batch_bytes / ROWS);
    dlp_cuda_desc cuda = {.library = library};
    dlp_loader_desc desc = loader_of(&k, 1 << 20, quick ? 1 : 2);
    dlp_device d = device_of(&cuda);
    dlp_pipe *p = NULL;
    dlp_error err;
    uint64_t begin;
    double took;
    k.empty = true;
    desc.dataset.n_fields = 1;
    desc.epochs = DLP_FOREVER;
    desc.pipe.prefetch_factor = r->prefetch;
    if (r->pageable) d.register_memory = NULL; /* as a device of the user's that has no such call */
    if (r->transfer > 0)
        desc.device = &d, desc.transfer_thread = r->transfer == 1, desc.device_buffers = r->buffers;
    opened(dlp_loader_open(&p, &desc, &err), &err);
    for (int i = 0; i < r->n / 8 + 8; i++) step(p, r->spin_ns);
    CU(gpu.call.stream_sync(gpu.stream));
    begin = test_now_ns();
    for (int i = 0; i < r->n; i++) step(p, r->spin_ns);
    CU(gpu.call.stream_sync(gpu.stream));
    took = (double)(test_now_ns() - begin) * 1e-9 / r->n;
    if (r->explain) explained(p);
    ended(p, &d);
    return took;
}

/* Seconds for a batch of a loop that copies: three buffers of the host to two of the device. */
static double looped_once(const run *r) {
    size_t bytes = (size_t)r->batch_bytes, all = 3 * bytes;
    uint8_t *host = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned long long device[2] = {0, 0};
    uint64_t begin;
    double took;
    must(host == MAP_FAILED, "mmap");
    memset(host, 0xA5, all);
    if (!r->pageable) CU(gpu.call.host_register(host, all, 1));
    for (int i = 0; i < 2; i++) CU(gpu.call.mem_alloc(&device[i], bytes));
    begin = test_now_ns();
    for (int i = 0; i < r->n + r->n / 8 + 8; i++) {
        if (i == r->n / 8 + 8) {
            CU(gpu.call.stream_sync(gpu.stream));
            begin = test_now_ns();
        }
        CU(gpu.call.to_device(device[i % 2], host + (size_t)(i % 3) * bytes, bytes, gpu.stream));
    }
    CU(gpu.call.stream_sync(gpu.stream));
    took = (double)(test_now_ns() - begin) * 1e-9 / r->n;
    for (int i = 0; i < 2; i++) CU(gpu.call.mem_free(device[i]));
    if (!r->pageable) CU(gpu.call.host_unregister(host));
    munmap(host, all);
    return took;
}

/* The median of some. */
static double median(double (*once)(const run *r), run r) {
    double took[5];
    int n = quick ? 1 : 5;
    for (int i = 0; i < n; i++) {
        took[i] = once(&r);
        r.explain = false;
    }
    qsort(took, (size_t)n, sizeof *took, by_value);
    return took[n / 2];
}

static double kernels_once(const run *r) {
    uint64_t begin;
    for (int i = 0; i < 4; i++) gpu_spin(r->spin_ns);
    CU(gpu.call.stream_sync(gpu.stream));
    begin = test_now_ns();
    for (int i = 0; i < r->n; i++) gpu_spin(r->spin_ns);
    CU(gpu.call.stream_sync(gpu.stream));
    return (double)(test_now_ns() - begin) * 1e-9 / r->n;
}

/* Copying while kernels run, where kernels take half as long as copies, as long, and twice. least:
   what must be reached; 0: nothing. With two buffers each copy waits for a kernel and each kernel
   for a copy, so times of calls and wake-ups show, all the more if batches are small. */
static void overlap_of(uint64_t batch_bytes, int32_t buffers, double least) {
    run r = {.batch_bytes = batch_bytes, .n = quick ? 12 : 100, .transfer = 1, .buffers = buffers};
    double copying;
    r.prefetch = buffers;
    copying = median(piped_once, r);
    for (int i = 0; i < 3; i++) {
        double computing, both, slower;
        r.spin_ns = (uint64_t)(copying * 1e9 * (i == 0 ? 0.5 : i == 1 ? 1 : 2));
        computing = median(kernels_once, r);
        both = median(piped_once, r);
        slower = copying > computing ? copying : computing;
        printf(
            "overlap   batches of %5.2f MiB, %d device buffers: copying %7.1f us, computing %7.1f "
            "us, both %7.1f us: %.3f of the slower side\n",
            (double)batch_bytes / (double)MIB, buffers, copying * 1e6, computing * 1e6, both * 1e6,
            slower / both);
        CHECK(slower / both >= least);
    }
}

static void overlap(void) {
    const double least = quick ? 0 : 0.95; /* quick: times say nothing */
    gpu_begin();
    for (int32_t buffers = 2; buffers < 4; buffers++) {
        overlap_of((quick ? 4 : 64) * MIB, buffers, least);
        if (!quick) overlap_of(8 * MIB, buffers, buffers > 2 ? least : 0);
        overlap_of(MIB, buffers, 0);
    }
}

/* GB/s from slots to the device. */
static void rates(void) {
    static const uint64_t sizes[] = {ROWS * 784, ROWS * 2048 + 0, ROWS * 16384, ROWS * 131072,
                                     ROWS * 1048576};
    gpu_begin();
    printf("rates     GB/s       pinned: pipe (4 buffers)  loop     pageable: pipe    loop\n");
    for (size_t i = 0; i < (quick ? 2 : 5); i++) {
        run r = {.batch_bytes = sizes[i], .transfer = 1};
        double got[5];
        uint64_t n = (UINT64_C(2) << 30) / sizes[i];
        r.n = quick ? 50 : n > 4000 ? 4000 : (int)n;
        for (int c = 0; c < 5; c++) {
            r.pageable = c > 2;
            r.buffers = c == 1 ? 4 : 0;
            r.prefetch = c == 1 ? 4 : 0;
            got[c] =
                (double)sizes[i] * 1e-9 / median(c == 2 || c == 4 ? looped_once : piped_once, r);
        }
        printf("rates     %9.3f MB: %12.2f %12.2f %7.2f %17.2f %7.2f\n", (double)sizes[i] * 1e-6,
               got[0], got[1], got[2], got[3], got[4]);
        CHECK(got[0] > 0 && got[3] > 0);
    }
}

/* Batches a second of small items. */
static void small(void) {
    static const struct {
        const char *name;
        int32_t transfer, buffers, prefetch;
    } ways[] = {{"no transfer", 0, 0, 0},      {"no transfer, prefetch 16", 0, 0, 16},
                {"a thread copies", 1, 0, 0},  {"... 4 buffers", 1, 4, 4},
                {"... 16 buffers", 1, 16, 16}, {"inline", 2, 0, 0},
                {"... 4 buffers", 2, 4, 4},    {"... 16 buffers", 2, 16, 16}};
    gpu_begin();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        run r = {.batch_bytes = ROWS * 784,
                 .n = quick ? 100 : 10000,
                 .transfer = ways[i].transfer,
                 .buffers = ways[i].buffers,
                 .prefetch = ways[i].prefetch,
                 .explain = !quick && i % 3 == 2};
        double took = median(piped_once, r);
        printf("small     %-26s %9.0f batches a second, %6.2f us each\n", ways[i].name, 1 / took,
               took * 1e6);
        CHECK(took > 0);
    }
}

#endif
