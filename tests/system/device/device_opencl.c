/* needs: split */
/* The OpenCL device on whatever OpenCL there is (PoCL will do): bytes read back, buffers that late
   readers still need, failures call by call, and that all is given back. */
/* own: hook: the calls of a device are watched */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

static void *watched_dlsym(void *lib, const char *name);
#define dlsym watched_dlsym
#define DLPIPE_OPENCL
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#undef dlsym
#include "../../rig/pipe_rig.h"

/* What a driver of the machine keeps is not the header's: of the address sanitizer. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libOpenCL\n"; }

/* ---- the calls, counted on their way ---- */

static dlpi_cl_calls real;
static struct {
    long calls, fail_at; /* since arm; the n-th fails */
    char failed[48];
    long contexts, queues, buffers, events, writes, waited, joins;
    const char *missing;
    int no_platform;
} watch;

enum { FAILS = -5 };

static void watch_reset(void) { memset(&watch, 0, sizeof watch); }

static void count(long *what, long n) { __atomic_add_fetch(what, n, __ATOMIC_SEQ_CST); }

static int fails(const char *name) {
    if (__atomic_add_fetch(&watch.calls, 1, __ATOMIC_SEQ_CST) != watch.fail_at) return 0;
    snprintf(watch.failed, sizeof watch.failed, "%s", name);
    return 1;
}

#define RELEASE(of, counter) \
    static int32_t w_##of##_release(void *it) { \
        count(&watch.counter, -1); \
        return real.of##_release(it); \
    }
RELEASE(context, contexts)
RELEASE(queue, queues)
RELEASE(buffer, buffers)
RELEASE(event, events)

static int32_t w_platforms(uint32_t room, void **out, uint32_t *n) {
    if (watch.no_platform) return DLPI_CL_PLATFORM_NOT_FOUND;
    return fails("clGetPlatformIDs") ? FAILS : real.platforms(room, out, n);
}
static int32_t w_devices(void *p, uint64_t type, uint32_t room, void **out, uint32_t *n) {
    return fails("clGetDeviceIDs") ? FAILS : real.devices(p, type, room, out, n);
}
static int32_t w_device_info(void *d, uint32_t what, size_t size, void *out, size_t *used) {
    return fails("clGetDeviceInfo") ? FAILS : real.device_info(d, what, size, out, used);
}
static void *w_context_create(const intptr_t *properties, uint32_t n, void *const *devices,
                              void (*notify)(const char *, const void *, size_t, void *),
                              void *user, int32_t *rc) {
    void *out = NULL;
    if (fails("clCreateContext"))
        *rc = FAILS;
    else
        out = real.context_create(properties, n, devices, notify, user, rc);
    count(&watch.contexts, out != NULL);
    return out;
}
static int32_t w_context_info(void *c, uint32_t what, size_t size, void *out, size_t *used) {
    return fails("clGetContextInfo") ? FAILS : real.context_info(c, what, size, out, used);
}
static int32_t w_context_retain(void *c) {
    if (fails("clRetainContext")) return FAILS;
    count(&watch.contexts, 1);
    return real.context_retain(c);
}
static void *w_queue_create(void *c, void *device, uint64_t properties, int32_t *rc) {
    void *out = NULL;
    if (fails("clCreateCommandQueue"))
        *rc = FAILS;
    else
        out = real.queue_create(c, device, properties, rc);
    count(&watch.queues, out != NULL);
    return out;
}
static int32_t w_queue_info(void *q, uint32_t what, size_t size, void *out, size_t *used) {
    return fails("clGetCommandQueueInfo") ? FAILS : real.queue_info(q, what, size, out, used);
}
static int32_t w_queue_retain(void *q) {
    if (fails("clRetainCommandQueue")) return FAILS;
    count(&watch.queues, 1);
    return real.queue_retain(q);
}
static void *w_buffer_create(void *c, uint64_t flags, size_t size, void *host, int32_t *rc) {
    void *out = NULL;
    if (fails("clCreateBuffer"))
        *rc = FAILS;
    else
        out = real.buffer_create(c, flags, size, host, rc);
    count(&watch.buffers, out != NULL);
    return out;
}
static int32_t w_write(void *q, void *buffer, uint32_t blocking, size_t offset, size_t size,
                       const void *from, uint32_t n_wait, void *const *wait, void **event) {
    CHECK(!blocking);
    count(&watch.writes, 1);
    count(&watch.waited, n_wait);
    return fails("clEnqueueWriteBuffer")
               ? FAILS
               : real.write(q, buffer, blocking, offset, size, from, n_wait, wait, event);
}
static int32_t w_copy(void *q, void *from, void *to, size_t from_at, size_t to_at, size_t size,
                      uint32_t n_wait, void *const *wait, void **event) {
    count(&watch.joins, 1);
    return fails("clEnqueueCopyBuffer")
               ? FAILS
               : real.copy(q, from, to, from_at, to_at, size, n_wait, wait, event);
}
static int32_t w_marker(void *q, uint32_t n_wait, void *const *wait, void **event) {
    int32_t rc = fails("clEnqueueMarkerWithWaitList") ? FAILS : real.marker(q, n_wait, wait, event);
    count(&watch.events, rc == 0);
    return rc;
}
static int32_t w_event_info(void *e, uint32_t what, size_t size, void *out, size_t *used) {
    return fails("clGetEventInfo") ? FAILS : real.event_info(e, what, size, out, used);
}
static int32_t w_events_wait(uint32_t n, void *const *events) {
    return real.events_wait(n, events);
}
static int32_t w_flush(void *q) { return fails("clFlush") ? FAILS : real.flush(q); }
static int32_t w_finish(void *q) { return real.finish(q); }

static void *watched_dlsym(void *lib, const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
        size_t at;
    } all[] = {
#define W(symbol, field) {symbol, (void (*)(void))w_##field, offsetof(dlpi_cl_calls, field)}
        W("clGetPlatformIDs", platforms),
        W("clGetDeviceIDs", devices),
        W("clGetDeviceInfo", device_info),
        W("clCreateContext", context_create),
        W("clGetContextInfo", context_info),
        W("clRetainContext", context_retain),
        W("clReleaseContext", context_release),
        W("clCreateCommandQueue", queue_create),
        W("clGetCommandQueueInfo", queue_info),
        W("clRetainCommandQueue", queue_retain),
        W("clReleaseCommandQueue", queue_release),
        W("clCreateBuffer", buffer_create),
        W("clReleaseMemObject", buffer_release),
        W("clEnqueueWriteBuffer", write),
        W("clEnqueueCopyBuffer", copy),
        W("clEnqueueMarkerWithWaitList", marker),
        W("clGetEventInfo", event_info),
        W("clReleaseEvent", event_release),
        W("clWaitForEvents", events_wait),
        W("clFlush", flush),
        W("clFinish", finish),
    };
    if (watch.missing && strcmp(watch.missing, name) == 0) return NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *out = dlsym(lib, name);
        if (strcmp(all[i].name, name) != 0) continue;
        memcpy((char *)&real + all[i].at, &out, sizeof out);
        memcpy(&out, &all[i].function, sizeof out);
        return out;
    }
    printf("%s is not watched\n", name);
    CHECK(0);
    return NULL;
}

static int clean(void) {
    return watch.contexts == 0 && watch.queues == 0 && watch.buffers == 0 && watch.events == 0;
}

/* What the tests call besides. */
static int32_t (*cl_read)(void *q, void *buffer, uint32_t blocking, size_t offset, size_t size,
                          void *to, uint32_t n_wait, void *const *wait, void **event);
static int32_t (*cl_copy)(void *q, void *from, void *to, size_t from_at, size_t to_at, size_t size,
                          uint32_t n_wait, void *const *wait, void **event);
static void *(*cl_user_event)(void *context, int32_t *rc);
static int32_t (*cl_set_event)(void *event, int32_t status);

static void find(void *out, const char *name) {
    void *symbol = dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), name);
    CHECK(symbol != NULL);
    memcpy(out, &symbol, sizeof symbol);
}

/* ---- a pipe over a device ---- */

/* Is what lies in these buffers batch number n of the pipe? */
static int same(rig *r, void *queue, const dlp_batch *b, void *const *buffers, uint64_t n) {
    static uint8_t host[2][512] __attribute__((aligned(64)));
    dlp_batch copy = *b;
    dlp_tensor fields[2] = {b->fields[0], b->fields[1]};
    memset(host, 0xAA, sizeof host);
    for (int f = 0; f < 2; f++) {
        if (cl_read(queue, buffers[f], 1, 0, (size_t)fields[f].bytes, host[f], 0, NULL, NULL) != 0)
            return 0;
        fields[f].data = host[f];
    }
    copy.fields = fields;
    return rig_batch_same(r, &copy, n / 13, n % 13);
}

static int same_now(rig *r, void *queue, const dlp_batch *b, uint64_t n) {
    void *buffers[2] = {b->fields[0].data, b->fields[1].data};
    return same(r, queue, b, buffers, n);
}

static void *new_queue(void *context, void *device) {
    int32_t rc;
    void *q = real.queue_create(context, device, 0, &rc);
    CHECK(rc == 0);
    return q;
}

/* A device of its own making, and a queue beside its own. */
static void *begin(dlp_device *d, dlp_device_info *info) {
    watch_reset();
    memset(info, 0, sizeof *info);
    CHECK(dlp_device_opencl(d, NULL, NULL) == DLP_OK);
    CHECK(dlp_device_describe(d, info) == DLP_OK);
    return new_queue(info->context, info->device_id);
}

static void pipe__all_placements__bytes_right(void) {
    for (int k = 0; k < 8; k++) {
        int held = k & 2 ? 3 : 1, n_have = 0;
        rig r;
        dlp_device d;
        dlp_pipe *p;
        dlp_batch *b, *have[3];
        dlp_device_info info = {0};
        uint64_t n = 0;
        void *queue;
        queue = begin(&d, &info);
        CHECK(strcmp(d.name, "opencl") == 0 && info.name[0] && !info.pinned &&
              strcmp(info.kind, "opencl") == 0 && info.unpinned[0]);
        if (k == 0) printf("device: %s\n", info.name);
        rig_device(&r, &d, k & 1, held);
        r.transfer.queue.capacity = k & 4 ? 6 : 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(watch.buffers == 2 * (k & 4 ? 6 : held + 1));
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            CHECK(same_now(&r, queue, b, n));
            n++;
            have[n_have++] = b;
            if (n_have < held) continue;
            CHECK(same_now(&r, queue, have[0], n - (uint64_t)n_have)); /* still */
            CHECK(dlp_pipe_release(p, have[0]) == DLP_OK);
            memmove(have, have + 1, (size_t)--n_have * sizeof *have);
        }
        while (n_have > 0) CHECK(dlp_pipe_release(p, have[--n_have]) == DLP_OK);
        CHECK(n == 26 && watch.writes == 52 && watch.waited == 0);
        CHECK(dlp_device_close(&d) == DLP_ERR_BUSY);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(watch.buffers == 0 && watch.events == 0 && watch.contexts == 1);
        CHECK(dlp_device_close(&d) == DLP_OK && clean());
        real.queue_release(queue);
        rig_free(&r);
    }
}

/* A reader that does not begin: batches come out of the other buffers, none out of its own, and
   what it reads in the end is its batch. consumer: plain release, with desc.consumer. */
static void late_reader__its_buffer_waits(int threaded, int consumer) {
    rig r;
    dlp_device d, first;
    dlp_pipe *p;
    dlp_batch *b, seen;
    dlp_tensor seen_fields[2];
    dlp_device_info info = {0};
    dlp_opencl_desc desc = {0};
    void *queue, *reader, *gate, *kept[2];
    int32_t cl;
    uint64_t n = 1;
    int rc;
    queue = begin(&first, &info);
    reader = new_queue(info.context, info.device_id);
    desc.context = info.context;
    if (consumer) desc.consumer = reader;
    CHECK(dlp_device_opencl(&d, &desc, NULL) == DLP_OK);
    CHECK(dlp_device_close(&first) == DLP_OK); /* the context is retained */
    rig_device(&r, &d, threaded, 1);
    r.transfer.queue.capacity = 3;
    if (rig_open(&r, &p) != DLP_OK) return;
    gate = cl_user_event(desc.context, &cl);
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    for (int f = 0; f < 2; f++) {
        kept[f] = real.buffer_create(desc.context, DLPI_CL_READ_WRITE, 512, NULL, &cl);
        CHECK(cl_copy(reader, b->fields[f].data, kept[f], 0, 0, (size_t)b->fields[f].bytes, 1,
                      &gate, NULL) == 0);
        seen_fields[f] = b->fields[f];
    }
    seen = *b;
    seen.fields = seen_fields;
    seen.flags = 0;
    uint64_t index[8];
    uint8_t valid[8];
    memcpy(index, b->index, sizeof index);
    memcpy(valid, b->valid, sizeof valid);
    seen.index = index;
    seen.valid = valid;
    if (consumer)
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    else
        CHECK(dlp_pipe_release_after(p, b, reader, NULL) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 150)) == DLP_OK && n < 12) {
        CHECK(same_now(&r, queue, b, n));
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_TIMEOUT && n < 6);
    CHECK(cl_set_event(gate, 0) == 0);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(same_now(&r, queue, b, n));
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END && n == 26);
    CHECK(watch.waited == (consumer ? 52 : 2));
    CHECK(real.finish(reader) == 0);
    CHECK(same(&r, queue, &seen, kept, 0));
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_device_close(&d) == DLP_OK && clean());
    for (int f = 0; f < 2; f++) real.buffer_release(kept[f]);
    real.event_release(gate);
    real.queue_release(reader);
    real.queue_release(queue);
    rig_free(&r);
}

static void desc__own_queue__used_and_kept(void) {
    rig r;
    dlp_device d, first;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_device_info info, mine;
    dlp_opencl_desc desc = {0};
    uint64_t n = 0;
    desc.queue = begin(&first, &info);
    CHECK(dlp_device_opencl(&d, &desc, NULL) == DLP_OK);
    CHECK(dlp_device_describe(&d, &mine) == DLP_OK && mine.queue == desc.queue &&
          mine.context == info.context && mine.device_id == info.device_id);
    rig_device(&r, &d, 1, 1);
    if (rig_open(&r, &p) != DLP_OK) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        CHECK(same_now(&r, desc.queue, b, n));
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(n == 26 && dlp_pipe_close(p) == DLP_OK && dlp_device_close(&d) == DLP_OK);
    CHECK(dlp_device_close(&first) == DLP_OK && clean());
    CHECK(real.finish(desc.queue) == 0); /* it is still the user's */
    real.queue_release(desc.queue);
    rig_free(&r);
}

static void close__batches_held__with_the_last_release(void) {
    rig r;
    dlp_device d;
    dlp_pipe *p;
    dlp_batch *b[2];
    dlp_device_info info = {0};
    void *queue;
    queue = begin(&d, &info);
    rig_device(&r, &d, 1, 2);
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next(p, &b[0]) == DLP_OK);
    CHECK(dlp_pipe_next(p, &b[1]) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_device_close(&d) == DLP_ERR_BUSY);
    CHECK(same_now(&r, queue, b[1], 1) && same_now(&r, queue, b[0], 0));
    CHECK(dlp_pipe_release(p, b[0]) == DLP_OK && dlp_device_close(&d) == DLP_ERR_BUSY);
    CHECK(dlp_pipe_release_after(p, b[1], queue, NULL) == DLP_OK);
    CHECK(dlp_device_close(&d) == DLP_OK && clean());
    real.queue_release(queue);
    rig_free(&r);
}

/* ---- chunks: batches are views into a device buffer ---- */

enum { CHUNK_ITEMS = 100, CHUNK_ROWS = 32, CHUNK_BATCH = 12 };
static const dlp_field chunk_fields[2] = {{"words", DLP_U32, 1, {3}, 0, 0},
                                          {"bytes", DLP_U8, 1, {5}, 0, 0}};

static int load_chunk(void *user, dlp_chunk *c) {
    (void)user;
    for (uint64_t k = 0; k < c->count; k++) {
        uint64_t row = dlp_chunk_row(c, k);
        uint32_t words[3] = {(uint32_t)row, (uint32_t)row * 7 + 1, ~(uint32_t)row};
        memcpy((uint8_t *)c->data[0] + k * sizeof words, words, sizeof words);
        memset((uint8_t *)c->data[1] + k * 5, (int)(row & 0xFF), 5);
    }
    return 0;
}

static dlp_chunks_desc chunks_desc(const dlp_device *d, int threaded) {
    dlp_chunks_desc c = {.n_items = CHUNK_ITEMS,
                         .fields = chunk_fields,
                         .n_fields = 2,
                         .writes_all_bytes = 1,
                         .chunk_rows = CHUNK_ROWS,
                         .batch_size = CHUNK_BATCH,
                         .shuffle_chunks = 1,
                         .load = load_chunk,
                         .workers = {.num_workers = 2},
                         .device = d,
                         .transfer_inline = !threaded,
                         .epochs = 3,
                         .seed = 5,
                         .pipe = {.max_held = 2}};
    return c;
}

/* Are the rows where the view says that they are? */
static int view_same(void *queue, const dlp_batch *b) {
    uint32_t words[CHUNK_BATCH][3];
    uint8_t bytes[CHUNK_BATCH][5];
    const dlp_tensor *f = b->fields;
    if (f[0].bytes != b->count * sizeof *words || f[1].bytes != b->count * sizeof *bytes) return 0;
    if (cl_read(queue, f[0].data, 1, (size_t)f[0].byte_offset, (size_t)f[0].bytes, words, 0, NULL,
                NULL) != 0 ||
        cl_read(queue, f[1].data, 1, (size_t)f[1].byte_offset, (size_t)f[1].bytes, bytes, 0, NULL,
                NULL) != 0)
        return 0;
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t row = (uint32_t)b->index[i];
        if (words[i][0] != row || words[i][1] != row * 7 + 1 || words[i][2] != ~row) return 0;
        if (bytes[i][0] != (row & 0xFF) || memcmp(bytes[i], bytes[i] + 1, 4) != 0) return 0;
    }
    return 1;
}

/* Loaded in turn or kept on the device, by an inline copier or a thread; views are given back by
   calls, or behind a reader's queue. */
static void chunks__views__bytes_right(void) {
    for (int k = 0; k < 16; k++) {
        dlp_device d;
        dlp_device_info info = {0};
        dlp_pipe *p;
        dlp_batch *b, *have[2] = {NULL, NULL};
        dlp_error err;
        uint64_t rows = 0, views = 0;
        dlp_chunks_desc c = chunks_desc(&d, (k & 2) == 0);
        void *queue;
        int rc;
        queue = begin(&d, &info);
        c.within_chunks = k < 8;
        if (k & 1)
            c.preload = DLP_PRELOAD_DEVICE;
        else
            c.shuffle_rows = 1;
        rc = dlp_chunks_open(&p, &c, &err);
        if (rc != DLP_OK) printf("%s\n", err.message);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            CHECK(view_same(queue, b));
            rows += b->count;
            views++;
            if (have[0]) {
                CHECK(view_same(queue, have[0])); /* still, while another is held */
                CHECK((k & 4 ? dlp_pipe_release_after(p, have[0], queue, NULL)
                             : dlp_pipe_release(p, have[0])) == DLP_OK);
            }
            have[0] = b;
        }
        CHECK(have[0] != NULL && dlp_pipe_release(p, have[0]) == DLP_OK);
        CHECK(rows == 3 * CHUNK_ITEMS && views == (k < 8 ? 3 * (3 * 3 + 1) : 3 * 9));
        CHECK(k < 8 ? watch.joins == 0 : watch.joins > 0); /* batches that span chunks */
        CHECK(watch.writes == (k & 1 ? 4 : 12) * 2); /* chunks x fields; those that stay once */
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_device_close(&d) == DLP_OK && clean());
        real.queue_release(queue);
    }
}

/* A reader of two views of a chunk that does not begin: their buffer is not written to, also when
   all views have been given back, until it has read. */
static void chunks__late_reader__its_buffer_waits(int threaded) {
    dlp_device d = {0}, first;
    dlp_device_info info = {0};
    dlp_opencl_desc desc = {0};
    dlp_chunks_desc c = chunks_desc(&d, threaded);
    dlp_pipe *p;
    dlp_batch *b;
    void *queue, *reader, *gate, *kept[2];
    uint32_t words[CHUNK_BATCH][3];
    uint64_t index[2][CHUNK_BATCH], n = 0;
    uint32_t count[2] = {0, 0};
    int32_t cl;
    int rc;
    c.within_chunks = 1;
    queue = begin(&first, &info);
    reader = new_queue(info.context, info.device_id);
    desc.context = info.context;
    CHECK(dlp_device_opencl(&d, &desc, NULL) == DLP_OK && dlp_device_close(&first) == DLP_OK);
    gate = cl_user_event(desc.context, &cl);
    rc = dlp_chunks_open(&p, &c, NULL);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) return;
    for (; n < 2; n++) {
        CHECK(dlp_pipe_next(p, &b) == DLP_OK);
        kept[n] = real.buffer_create(desc.context, DLPI_CL_READ_WRITE, 512, NULL, &cl);
        CHECK(cl_copy(reader, b->fields[0].data, kept[n], (size_t)b->fields[0].byte_offset, 0,
                      (size_t)b->fields[0].bytes, 1, &gate, NULL) == 0);
        count[n] = b->count;
        memcpy(index[n], b->index, b->count * sizeof *b->index);
        CHECK(dlp_pipe_release_after(p, b, reader, NULL) == DLP_OK);
    }
    for (; (rc = dlp_pipe_next_timeout(p, &b, 150)) == DLP_OK; n++) {
        CHECK(view_same(queue, b) && dlp_pipe_release(p, b) == DLP_OK);
        if (n == 20) break;
    }
    CHECK(rc == DLP_TIMEOUT && n < 15); /* the other buffers went round, or at least once */
    CHECK(cl_set_event(gate, 0) == 0);
    for (; (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK; n++)
        CHECK(view_same(queue, b) && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(rc == DLP_END && n == 30 && real.finish(reader) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(cl_read(queue, kept[i], 1, 0, count[i] * sizeof *words, words, 0, NULL, NULL) == 0);
        for (uint32_t k = 0; k < count[i]; k++) CHECK(words[k][1] == index[i][k] * 7 + 1);
        real.buffer_release(kept[i]);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_device_close(&d) == DLP_OK && clean());
    real.event_release(gate);
    real.queue_release(reader);
    real.queue_release(queue);
}

/* ---- failures ---- */

/* Everything once. Returns the first code that is none of success. */
static int life(int k, dlp_error *err) {
    rig r;
    dlp_device d, first;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_device_info info = {0};
    dlp_opencl_desc desc = {0};
    int rc = dlp_device_opencl(&first, NULL, err);
    if (rc != DLP_OK) return rc;
    CHECK(dlp_device_describe(&first, &info) == DLP_OK);
    desc.consumer = k & 1 ? info.queue : NULL;
    desc.context = info.context;
    desc.queue = k & 2 ? info.queue : NULL;
    if ((rc = dlp_device_opencl(&d, &desc, err)) == DLP_OK) {
        rig_device(&r, &d, k & 1, 1);
        r.pipe.epochs = 1;
        if ((rc = rig_try(&r, &p, err)) == DLP_OK) {
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
                dlp_error why;
                if (dlp_pipe_release_after(p, b, info.queue, &why) == DLP_OK) continue;
                CHECK(why.code == DLP_ERR_DEVICE && strstr(why.message, watch.failed) &&
                      strstr(why.message, "CL_OUT_OF_RESOURCES (-5)"));
                CHECK(dlp_pipe_release(p, b) == DLP_OK); /* it is still held */
            }
            *err = *dlp_pipe_error(p);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
        CHECK(dlp_device_close(&d) == DLP_OK);
        rig_free(&r);
    }
    CHECK(dlp_device_close(&first) == DLP_OK);
    return rc == DLP_END ? DLP_OK : rc;
}

static void fault__each_call__told_and_nothing_left(void) {
    long told = 0, n = 0, forgiven = 0;
    for (int k = 0; k < 4; k++) {
        for (n = 1; n<4000; n += n> 30 ? (getenv("SHORT") ? 23 : 3) : 1) {
            dlp_error err;
            int rc;
            watch_reset();
            watch.fail_at = n;
            memset(&err, 0, sizeof err);
            rc = life(k, &err);
            if (!clean()) printf("call %ld, %s: something is left\n", n, watch.failed);
            CHECK(clean());
            if (watch.failed[0] == 0) {
                CHECK(rc == DLP_OK);
                break;
            }
            if (rc == DLP_OK) { /* a name that nobody needs, or told by release_after */
                forgiven++;
                CHECK(strcmp(watch.failed, "clGetDeviceInfo") == 0 ||
                      strcmp(watch.failed, "clFlush") == 0 ||
                      strcmp(watch.failed, "clEnqueueMarkerWithWaitList") == 0);
                continue;
            }
            told++;
            CHECK(rc == (n == 1 ? DLP_ERR_UNSUPPORTED : DLP_ERR_DEVICE) && err.code == rc);
            if (!strstr(err.message, watch.failed)) printf("%s: %s\n", watch.failed, err.message);
            CHECK(strstr(err.message, watch.failed) && strstr(err.message, "CL_OUT_OF_RESOURCES"));
        }
    }
    CHECK(told > 40 && forgiven > 0);
    printf("%ld calls in a life, %ld failures told\n", n, told);
}

static void driver__incomplete__unsupported_in_words(void) {
    static const char *const names[] = {"clGetPlatformIDs", "clEnqueueMarkerWithWaitList",
                                        "clFinish"};
    dlp_device d;
    dlp_error err;
    for (int i = 0; i < 3; i++) {
        watch_reset();
        watch.missing = names[i];
        CHECK(dlp_device_opencl(&d, NULL, &err) == DLP_ERR_UNSUPPORTED);
        CHECK(strstr(err.message, names[i]) && clean());
    }
    watch_reset();
    watch.no_platform = 1;
    CHECK(dlp_device_opencl(&d, NULL, &err) == DLP_ERR_UNSUPPORTED);
    CHECK(strcmp(err.message, "no OpenCL platform is installed") == 0 && clean());
}

static void calls__bad_arguments__refused(void) {
    dlp_device d, first;
    dlp_error err;
    dlp_device_info info = {0};
    dlp_pipe *p;
    dlp_batch *b;
    rig r;
    watch_reset();
    CHECK(dlp_device_opencl(&first, NULL, NULL) == DLP_OK);
    CHECK(dlp_device_describe(&first, &info) == DLP_OK);
    for (int i = -1; i < 5000; i += 5000) {
        dlp_opencl_desc desc = {.device = i};
        CHECK(dlp_device_opencl(&d, &desc, &err) == DLP_ERR_ARG);
        CHECK(strcmp(err.field, "device") == 0 && err.message[0]);
        desc.context = info.context;
        CHECK(dlp_device_opencl(&d, &desc, &err) == DLP_ERR_ARG);
    }
    CHECK(dlp_device_opencl(NULL, NULL, &err) == DLP_ERR_ARG);
    rig_device(&r, &first, 0, 1);
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_pipe_release_after(p, b, NULL, &err) == DLP_ERR_ARG);
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_device_close(&first) == DLP_OK && clean());
    CHECK(dlp_device_cuda(&d, NULL, &err) == DLP_ERR_UNSUPPORTED &&
          strstr(err.message, "DLPIPE_CUDA"));
    rig_free(&r);
}

static int no_library(void) {
    dlp_opencl_desc desc = {.library = "libdlpipe-nothing.so.7"};
    dlp_device d;
    dlp_error err;
    CHECK(dlp_device_opencl(&d, &desc, &err) == DLP_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "no driver") && strcmp(err.field, "library") == 0);
    if (dlp_device_opencl(&d, NULL, &err) == DLP_OK) return dlp_device_close(&d);
    CHECK(err.code == DLP_ERR_UNSUPPORTED);
    if (test_failures) return 1;
    printf("skipped: %s (pocl-opencl-icd and ocl-icd-libopencl1 will do)\n", err.message);
    return dlopen("libc.so.6", RTLD_NOW) ? 77 : 78; /* 78: a program that can load no library */
}

int main(void) {
    int rc = no_library();
    if (rc != 0) return rc;
    find(&cl_read, "clEnqueueReadBuffer");
    find(&cl_copy, "clEnqueueCopyBuffer");
    find(&cl_user_event, "clCreateUserEvent");
    find(&cl_set_event, "clSetUserEventStatus");
    pipe__all_placements__bytes_right();
    for (int k = 0; k < 4; k++) late_reader__its_buffer_waits(k & 1, k >> 1);
    desc__own_queue__used_and_kept();
    close__batches_held__with_the_last_release();
    chunks__views__bytes_right();
    for (int k = 0; k < 2; k++) chunks__late_reader__its_buffer_waits(k);
    fault__each_call__told_and_nothing_left();
    driver__incomplete__unsupported_in_words();
    calls__bad_arguments__refused();
    return test_end("device_opencl");
}
