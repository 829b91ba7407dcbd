/* needs: parts split */
/* Every allocation and system call between open and the last batch fails, one after the other,
   until none is left that was not tried; then each and all that come after it; then the device's
   calls. */
#include "../../rig/pipe_loaders.h"

enum { SIMPLE, EVERYTHING, NO_FILE, KINDS };

static const int32_t cpus[2] = {0, 0};
static uint64_t weights[100];

static void fault_rig(rig *r, int kind) {
    rig_default(r);
    if (kind != EVERYTHING) {
        r->fetch.workers.num_workers = 2;
        r->pipe.no_memfd = kind == NO_FILE;
        return;
    }
    for (int i = 0; i < 100; i++) weights[i] = 1 + (uint64_t)i % 3;
    r->sampler.order = DLP_ORDER_WEIGHTED;
    r->sampler.weights = weights;
    r->sampler.threaded = 1;
    r->pipe.max_held = 2;
    r->fetch.workers.num_workers = 2;
    r->fetch.workers.dispatch = DLP_DISPATCH_BATCHES;
    r->fetch.workers.affinity = cpus;
    r->fetch.workers.n_affinity = 2;
    r->fetch.workers.stack_bytes = 256 * 1024;
    r->has_item_map = r->has_batch_map = r->has_transfer = 1;
    r->item_map.workers.num_workers = 1;
    r->item_map.workers.affinity = cpus;
    r->item_map.workers.n_affinity = 1;
    r->batch_map.workers.num_workers = 1;
    r->batch.collate = dlp_collate_pad;
    r->transfer.workers.num_workers = 1;
}

static int is_optional(const char *call) {
    static const char *const calls[] = {"open", "fopen", "memfd_create", "ftruncate", "fcntl"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(call, calls[i]) == 0) return 1;
    return 0;
}

/* The error tells the call and its errno. The C library's name for memory is the same for all. */
static int tells(const dlp_error *e, const char *call) {
    const char *name = strcmp(call, "calloc") == 0 || strcmp(call, "malloc") == 0 ? "alloc" : call;
    if (strcmp(call, "pthread_attr_init") == 0) name = "pthread_create"; /* a thread's start */
    int ok = e->code < 0 && e->errnum == seam.failed_errno && strstr(e->message, name) != NULL;
    if (e->code == DLP_ERR_DEVICE)
        ok = strstr(e->message, "alloc returned") != NULL && e->stage[0] != 0;
    if (!ok)
        printf("  %s failed, and the error is %s, errno %d: %s\n", call, dlp_code_name(e->code),
               e->errnum, e->message);
    return ok;
}

/* The pipe with its n-th call failing. Returns whether a call failed. */
static int run_with_fault(int kind, long n, int and_all_after) {
    seam_alive alive = seam_now();
    rig r;
    dlp_pipe *p = NULL;
    dlp_error e;
    dlp_stats stats;
    uint64_t batches = 0;
    char call[32];
    int rc;
    fault_rig(&r, kind);
    seam_arm(n, and_all_after);
    rc = rig_wire(&r, &p, &e);
    if (rc == DLP_OK) {
        rc = dlp_pipe_start(p);
        e = *dlp_pipe_error(p);
    } else {
        CHECK(p == NULL);
        CHECK(e.code == rc);
    }
    snprintf(call, sizeof call, "%s", seam.failed);
    if (rc != DLP_OK) {
        CHECK(call[0] != 0 && e.code == rc && e.message[0] != 0);
        if (!and_all_after) CHECK(tells(&e, call) && !is_optional(call));
        if (and_all_after) CHECK(rc == DLP_ERR_DEVICE || e.errnum != 0);
        if (p) dlp_pipe_stats(p, &stats); /* after a failed start, too, looking does no harm */
        if (p) CHECK(dlp_pipe_next(p, &(dlp_batch *){NULL}) < 0);
    } else {
        if (call[0] != 0 && !and_all_after) CHECK(is_optional(call) || strcmp(call, "mmap") == 0);
        CHECK(rig_drain(p, &batches) == DLP_END && batches == 10);
        CHECK(strcmp(seam.failed, call) == 0); /* nothing was called after start that could fail */
    }
    if (p) CHECK(dlp_pipe_close(p) == DLP_OK);
    snprintf(call, sizeof call, "%s", seam.failed);
    seam_arm(0, 0);
    if (!CHECK(seam_same(alive))) printf("  call %ld (%s) of kind %d\n", n, call, kind);
    return call[0] != 0;
}

static void start__nth_call_fails__error_or_without_it(void) {
    proc_count proc = proc_now();
    for (int kind = 0; kind < KINDS; kind++)
        for (int after = 0; after < 2; after++) {
            long n = 1;
            while (run_with_fault(kind, n, after) && n < 1000) n++;
            CHECK(n > 15 && n < 1000);
            CHECK(proc_same(proc));
        }
}

static void loader__nth_call_fails__nothing_left(void) {
    for (long n = 1; n < 1000; n++) {
        seam_alive alive = seam_now();
        rig r;
        dlp_loader_desc d;
        dlp_pipe *p = NULL;
        dlp_error e;
        int rc, failed;
        rig_default(&r);
        memset(&d, 0, sizeof d);
        d.dataset = r.dataset;
        d.dataset.fields = r.fields;
        d.batch_size = 10;
        d.num_workers = 2;
        seam_arm(n, 0);
        rc = dlp_loader_open(&p, &d, &e);
        failed = seam.failed[0] != 0;
        if (rc != DLP_OK)
            CHECK(p == NULL && tells(&e, seam.failed));
        else
            CHECK(dlp_pipe_close(p) == DLP_OK);
        seam_arm(0, 0);
        CHECK(seam_same(alive));
        if (!failed) break;
        CHECK(n < 999);
    }
}

/* Each make of loader. What a worker's own threads come to is told by next. */
static void loaders__nth_call_fails__nothing_left(void) {
    proc_count proc = proc_now();
    for (int kind = 0; kind < LIFE_KINDS; kind++) {
        long n = 1;
        int failed = 1;
        for (; failed && n < 1000; n++) {
            seam_alive alive = seam_now();
            dlp_pipe *p = NULL;
            dlp_error e;
            uint64_t batches = 0;
            int rc;
            seam_arm(n, 0);
            rc = life_open(kind, &p, &e);
            if (rc != DLP_OK) {
                CHECK(p == NULL && seam.failed[0] != 0 && tells(&e, seam.failed));
            } else {
                rc = rig_drain(p, &batches);
                CHECK(rc == DLP_END
                          ? batches == 10
                          : kind == LIFE_CONCURRENT && tells(dlp_pipe_error(p), seam.failed));
                CHECK(dlp_pipe_close(p) == DLP_OK);
            }
            failed = seam.failed[0] != 0;
            seam_arm(0, 0);
            if (!CHECK(seam_same(alive))) printf("  call %ld of kind %d\n", n, kind);
        }
        CHECK(n > 15 && n < 1000);
        CHECK(proc_same(proc));
    }
}

/* A trace is written whole or not at all. */
static void write__nth_call_fails__error_and_nothing_left(void) {
    for (int svg = 0; svg < 2; svg++) {
        char path[64];
        rig r;
        dlp_pipe *p = NULL;
        uint64_t batches;
        long n;
        snprintf(path, sizeof path, "/tmp/pipe_fault.%ld", (long)getpid());
        rig_default(&r);
        r.fetch.workers.num_workers = 2;
        CHECK(rig_start(&r, &p) == DLP_OK);
        rig_drain(p, &batches);
        for (n = 1; n < 1000; n++) {
            seam_alive alive = seam_steady();
            int rc, failed;
            seam_arm(n, 0);
            rc = svg ? dlp_pipe_write_timeline(p, path, NULL) : dlp_pipe_write_trace(p, path, NULL);
            failed = seam.failed[0] != 0;
            seam_arm(0, 0);
            CHECK(seam_same(alive));
            CHECK(failed ? rc < 0 : rc == DLP_OK);
            CHECK((access(path, F_OK) == 0) == !failed);
            if (!failed) break;
        }
        CHECK(n > 3 && n < 1000);
        unlink(path);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- the device ---- */

enum { OPEN = 1, REGISTER, ALLOC, COPY, RECORD, DONE };
static const char *const device_calls[] = {"",       "open", "register_memory", "alloc", "copy",
                                           "record", "done"};

static struct {
    int fails; /* which kind of call */
    int at;    /* the how many-th of it */
    int seen;
    int opened, registered, allocated;
} dev;

static int dev_fails(int what) {
    return dev.fails == what && DLPI_ADD_SEQ(&dev.seen, 1) + 1 == dev.at; /* F1 a counter */
}
static int dev_open(void *user) {
    (void)user;
    if (dev_fails(OPEN)) return -7;
    dev.opened++;
    return 0;
}
static void dev_close(void *user) {
    (void)user;
    dev.opened--;
}
static int dev_register(void *user, void *mem, uint64_t bytes) {
    (void)user;
    if (dev_fails(REGISTER)) return -7;
    memset(mem, 0, (size_t)bytes); /* it must be there */
    dev.registered++;
    return 0;
}
static void dev_unregister(void *user, void *mem, uint64_t bytes) {
    (void)user;
    memset(mem, 0, (size_t)bytes); /* still */
    dev.registered--;
}
static int dev_alloc(void *user, uint64_t bytes, void **at) {
    if (dev_fails(ALLOC)) return -7;
    dev.allocated++;
    return dlp_device_host()->alloc(user, bytes, at);
}
static void dev_free(void *user, void *at) {
    dev.allocated--;
    dlp_device_host()->free(user, at);
}
static int dev_copy(void *user, void *to, const void *from, uint64_t bytes, uint32_t buffer) {
    if (dev_fails(COPY)) return -7;
    return dlp_device_host()->copy(user, to, from, bytes, buffer);
}
static int dev_record(void *user, uint32_t buffer) {
    (void)user;
    (void)buffer;
    return dev_fails(RECORD) ? -7 : 0;
}
static int dev_done(void *user, uint32_t buffer) {
    (void)user;
    (void)buffer;
    return dev_fails(DONE) ? -7 : 1;
}

/* One run with the at-th call of a kind failing. Returns whether it came to that. */
static int device_run(int what, int at, int threaded, int workers) {
    static const dlp_device device = {.name = "toy",
                                      .open = dev_open,
                                      .close = dev_close,
                                      .register_memory = dev_register,
                                      .unregister_memory = dev_unregister,
                                      .alloc = dev_alloc,
                                      .free = dev_free,
                                      .copy = dev_copy,
                                      .record = dev_record,
                                      .done = dev_done};
    seam_alive alive = seam_now();
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint64_t batches = 0;
    int rc, came;
    memset(&dev, 0, sizeof dev);
    dev.fails = what;
    dev.at = at;
    rig_default(&r);
    r.fetch.workers.num_workers = workers;
    r.has_transfer = 1;
    r.transfer.transfer.device = &device;
    r.transfer.workers.num_workers = threaded;
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    rc = dlp_pipe_start(p);
    if (rc == DLP_OK) rc = rig_drain(p, &batches);
    came = DLPI_LOAD_SEQ(&dev.seen) >= at; /* F1 */
    if (came) {
        const dlp_error *e = dlp_pipe_error(p);
        char text[64];
        snprintf(text, sizeof text, "\"toy\": %s returned -7", device_calls[what]);
        CHECK(rc == DLP_ERR_DEVICE && e->code == rc && strcmp(e->stage, "transfer") == 0);
        if (!CHECK(strstr(e->message, text) != NULL)) printf("  %s\n", e->message);
        CHECK(dlp_pipe_next(p, &b) == DLP_ERR_DEVICE);
        if (what == COPY || what == RECORD || what == DONE) CHECK(batches + 1 == (uint64_t)at);
    } else {
        CHECK(rc == DLP_END && batches == 10);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(dev.opened == 0 && dev.registered == 0 && dev.allocated == 0);
    CHECK(seam_same(alive));
    return came;
}

static void device__nth_call_fails__named_and_given_back(void) {
    for (int threaded = 0; threaded < 2; threaded++)
        for (int workers = 0; workers < 3; workers += 2)
            for (int what = OPEN; what <= DONE; what++) {
                int at = 1;
                while (at < 100 && device_run(what, at, threaded, workers)) at++;
                CHECK(at == (what == OPEN || what == REGISTER ? 2 : what == ALLOC ? 3 : 11));
            }
}

int main(void) {
    rig_warm();
    start__nth_call_fails__error_or_without_it();
    loader__nth_call_fails__nothing_left();
    loaders__nth_call_fails__nothing_left();
    write__nth_call_fails__error_and_nothing_left();
    device__nth_call_fails__named_and_given_back();
    return test_end("pipe_fault");
}
