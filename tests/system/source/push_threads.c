/* needs: parts */
/* A push whose producers are threads of this program: places are taken and given back, numbers are
   those of one producer at a time, a stream goes on and ends. It runs with memory that processes
   could share, and without (DLPIPE_THREADS_ONLY, portable/push_threads). */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <pthread.h>
#include <string.h>

#ifdef _WIN32
#define SYSTEM "Windows"
#else
#define SYSTEM "Linux"
#endif
enum { THREADS = 4, EACH = 3000, BATCH = 8 };

static const dlp_field field_ = {.name = "x", .dtype = DLP_U64};

typedef struct producer {
    pthread_t thread;
    dlp_push *push;
    uint32_t number;
} producer;

static int push_one(dlp_pusher *u, uint64_t value, int timeout_ms) {
    const void *data[1] = {&value};
    return dlp_pusher_push(u, data, timeout_ms);
}

static uint32_t attached(const dlp_push *push) {
    dlp_push_stats s;
    CHECK(dlp_push_look(push, 0, &s) == DLP_OK);
    return s.attached;
}

static void *produce(void *arg) {
    const producer *me = arg;
    const dlp_pusher_desc d = {.push = me->push, .number = me->number};
    dlp_pusher *u = NULL;
    for (uint64_t i = 0; i < EACH; i++) {
        if (i % 1000 == 0) { /* it goes away, and comes again with its number */
            dlp_pusher_close(u);
            CHECK(dlp_pusher_open(&u, &d, NULL) == DLP_OK);
        }
        CHECK(push_one(u, (uint64_t)me->number << 32 | i, 20000) == DLP_OK);
    }
    CHECK(dlp_pusher_end(u, 20000) == DLP_OK);
    dlp_pusher_close(u);
    return NULL;
}

/* Each thread's items come in its order, and the pipe ends when all streams have ended. */
static void threads__come_and_go__each_in_its_order(void) {
    const dlp_push_desc pd = {
        .fields = &field_, .n_fields = 1, .writers = THREADS, .max_producers = THREADS};
    uint64_t next[THREADS + 1] = {0}, rows = 0;
    producer p[THREADS];
    dlp_push *push = NULL;
    dlp_pipe *pipe = NULL;
    dlp_batch *b = NULL;
    int rc;
    CHECK(dlp_push_open(&push, &pd, NULL) == DLP_OK);
    const dlp_loader_desc d = {
        .source = dlp_push_source(push), .batch_size = BATCH, .num_workers = 1};
    CHECK(dlp_loader_open(&pipe, &d, NULL) == DLP_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        p[i] = (producer){.push = push, .number = i + 1};
        CHECK(pthread_create(&p[i].thread, NULL, produce, &p[i]) == 0);
    }
    while ((rc = dlp_pipe_next_timeout(pipe, &b, 20000)) == DLP_OK) {
        const uint64_t *x = b->fields[0].data;
        for (uint32_t i = 0; i < b->count; i++, rows++) {
            const uint64_t from = x[i] >> 32;
            CHECK(from >= 1 && from <= THREADS && (uint32_t)x[i] == next[from]++);
        }
        dlp_pipe_release(pipe, b);
    }
    CHECK(rc == DLP_END && rows == THREADS * EACH);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(p[i].thread, NULL) == 0);
    CHECK(attached(push) == 0);
    CHECK(dlp_pipe_close(pipe) == DLP_OK && dlp_push_close(push) == DLP_OK);
}

static void places__taken__given_back_by_close(void) {
    const dlp_push_desc pd = {
        .fields = &field_, .n_fields = 1, .writers = 1, .max_producers = 2, .capacity = 16};
    dlp_push *push = NULL;
    dlp_pusher *a = NULL, *b = NULL, *c = NULL;
    dlp_error e = {.code = 0};
    CHECK(dlp_push_open(&push, &pd, NULL) == DLP_OK);
    dlp_pusher_desc d = {.push = push, .number = 2};
    CHECK(dlp_pusher_open(&a, &d, NULL) == DLP_OK && attached(push) == 1);
    CHECK(dlp_pusher_open(&b, &d, &e) == DLP_ERR_BUSY && strcmp(e.field, "number") == 0);
    CHECK(attached(push) == 1);
    d.number = 0;
    CHECK(dlp_pusher_open(&b, &d, NULL) == DLP_OK && dlp_pusher_number(b) == 1);
    CHECK(dlp_pusher_open(&c, &d, &e) == DLP_ERR_BUSY && attached(push) == 2);
    CHECK(push_one(a, 5, 0) == DLP_OK && push_one(b, 6, 0) == DLP_OK);
    dlp_pusher_close(a);
    CHECK(attached(push) == 1);
    CHECK(dlp_pusher_open(&c, &d, NULL) == DLP_OK && dlp_pusher_number(c) == 2);
    CHECK(push_one(c, 7, 0) == DLP_OK && attached(push) == 2);
    dlp_pusher_close(b);
    dlp_pusher_close(c);
    CHECK(attached(push) == 0 && dlp_push_close(push) == DLP_OK);
}

/* A path wants memory that processes share. */
static void path__threads_only__refused(void) {
#ifdef DLPIPE_THREADS_ONLY
    const dlp_push_desc pd = {.fields = &field_, .n_fields = 1, .writers = 1, .path = "push"};
    const dlp_pusher_desc d = {.path = "push", .fields = &field_, .n_fields = 1};
    dlp_push *push = NULL;
    dlp_pusher *u = NULL;
    dlp_error e = {.code = 0};
    CHECK(dlp_push_open(&push, &pd, &e) == DLP_ERR_UNSUPPORTED && push == NULL);
    CHECK(strcmp(e.field, "path") == 0 && strstr(e.message, "DLPIPE_THREADS_ONLY") != NULL);
    CHECK(dlp_pusher_open(&u, &d, &e) == DLP_ERR_UNSUPPORTED && u == NULL);
#endif
}

static int fetch_zero(void *user, dlp_item *item) {
    (void)user;
    memset(item->data[0], 0, sizeof(uint64_t));
    return 0;
}

static const int32_t cpu_ = 0;
static const dlp_loader_desc loader_ = {
    .dataset = {.n_items = 8, .fields = &field_, .n_fields = 1, .fetch = fetch_zero},
    .batch_size = 2,
    .num_workers = 1,
    .workers = {.affinity = &cpu_, .n_affinity = 1}};

/* Worker processes want it, too. The error names the system. */
static void processes__threads_only__refused(void) {
#ifdef DLPIPE_THREADS_ONLY
    dlp_loader_desc d = loader_;
    dlp_pipe *p = NULL;
    dlp_error e = {.code = 0};
    d.workers.placement = DLP_PLACE_PROCESSES;
    CHECK(dlp_loader_open(&p, &d, &e) == DLP_ERR_UNSUPPORTED && p == NULL);
    CHECK(strcmp(e.field, "placement") == 0 && strstr(e.message, "This is " SYSTEM) != NULL);
#endif
}

static void note(void *user, const char *text) {
    if (strstr(text, "affinity has no effect: Linux") != NULL) ++*(int *)user;
}

/* A system that binds no thread to a CPU: a warning says so. The portable build is one. */
static void affinity__of_no_effect__warned(void) {
    dlp_loader_desc d = loader_;
    dlp_pipe *p = NULL;
    int said = 0;
    d.pipe.log = note;
    d.pipe.log_user = &said;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
#if defined(DLPIPE_THREADS_ONLY) && defined(__linux__)
    CHECK(said == 1);
#else
    CHECK(said == 0);
#endif
}

int main(void) {
    threads__come_and_go__each_in_its_order();
    places__taken__given_back_by_close();
    path__threads_only__refused();
    processes__threads_only__refused();
    affinity__of_no_effect__warned();
    return test_end("push_threads");
}
