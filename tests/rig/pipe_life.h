/* dlpipe.h with its calls to the allocator and the system counted, each of which can be made to
   fail; a pipe with every desc at hand; what the process has of threads, files and mappings. */
#ifndef PIPE_LIFE_H
#define PIPE_LIFE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include "posix.h"

#define RIG_UNUSED __attribute__((unused))

#ifndef _WIN32 /* there nothing is counted, and no call fails */
/* ---- the seam ---- */

static struct {
    pthread_mutex_t lock;
    long calls;      /* since seam_arm */
    long fail_at;    /* this call fails, 0: none */
    int fail_on;     /* and all after it */
    char failed[32]; /* the call that failed last */
    int failed_errno;
    long blocks, maps, files, threads; /* alive */
    long allocations;                  /* blocks and mappings ever had */
    long bytes;                        /* and their sizes */
} seam = {PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, "", 0, 0, 0, 0, 0, 0, 0};

RIG_UNUSED static void seam_arm(long fail_at, int fail_on) {
    pthread_mutex_lock(&seam.lock);
    seam.calls = 0;
    seam.fail_at = fail_at;
    seam.fail_on = fail_on;
    seam.failed[0] = 0;
    pthread_mutex_unlock(&seam.lock);
}

/* Is it this call's turn to fail? */
static int seam_fails(const char *what, int errnum) {
    int fails;
    pthread_mutex_lock(&seam.lock);
    seam.calls++;
    fails = seam.fail_at != 0 &&
            (seam.calls == seam.fail_at || (seam.fail_on && seam.calls > seam.fail_at));
    if (fails && seam.failed[0] == 0) {
        snprintf(seam.failed, sizeof seam.failed, "%s", what);
        seam.failed_errno = errnum;
    }
    pthread_mutex_unlock(&seam.lock);
    if (fails) errno = errnum;
    return fails;
}

static void seam_add(long *counter, long n) {
    pthread_mutex_lock(&seam.lock);
    *counter += n;
    if (n > 0 && (counter == &seam.blocks || counter == &seam.maps)) seam.allocations++;
    pthread_mutex_unlock(&seam.lock);
}

RIG_UNUSED static long seam_read(const long *counter) {
    long v;
    pthread_mutex_lock(&seam.lock);
    v = *counter;
    pthread_mutex_unlock(&seam.lock);
    return v;
}

RIG_UNUSED static void seam_had(size_t bytes) {
    seam_add(&seam.blocks, 1);
    seam_add(&seam.bytes, (long)bytes);
}

RIG_UNUSED static void *seam_malloc(size_t n) {
    void *at = seam_fails("malloc", ENOMEM) ? NULL : malloc(n);
    if (at) seam_had(n);
    return at;
}
RIG_UNUSED static void *seam_calloc(size_t n, size_t size) {
    void *at = seam_fails("calloc", ENOMEM) ? NULL : calloc(n, size);
    if (at) seam_had(n * size);
    return at;
}
RIG_UNUSED static void *seam_realloc(void *old, size_t n) {
    void *at = seam_fails("realloc", ENOMEM) ? NULL : realloc(old, n);
    if (at && !old) seam_had(n);
    return at;
}
RIG_UNUSED static int seam_posix_memalign(void **at, size_t align, size_t n) {
    int rc = seam_fails("posix_memalign", ENOMEM) ? ENOMEM : posix_memalign(at, align, n);
    if (rc == 0) seam_had(n);
    return rc;
}
RIG_UNUSED static void seam_free(void *at) {
    if (at) seam_add(&seam.blocks, -1);
    free(at);
}
RIG_UNUSED static void *seam_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    void *got = seam_fails("mmap", ENOMEM) ? MAP_FAILED : mmap(at, n, prot, flags, fd, offset);
    if (got != MAP_FAILED) {
        seam_add(&seam.maps, 1);
        seam_add(&seam.bytes, (long)n);
    }
    return got;
}
RIG_UNUSED static int seam_munmap(void *at, size_t n) {
    seam_add(&seam.maps, -1);
    return munmap(at, n);
}
RIG_UNUSED static int seam_ftruncate(int fd, off_t n) {
    return seam_fails("ftruncate", ENOSPC) ? -1 : ftruncate(fd, n);
}
RIG_UNUSED static int seam_fcntl(int fd, int what, ...) {
    va_list args;
    long arg; /* or a pointer; of calls that take none it is not looked at */
    va_start(args, what);
    arg = va_arg(args, long);
    va_end(args);
    return seam_fails("fcntl", EINVAL) ? -1 : fcntl(fd, what, arg);
}
RIG_UNUSED static int seam_close(int fd) {
    seam_add(&seam.files, -1);
    return close(fd);
}
static const char *(*seam_path)(const char *path); /* another file in place of this one, or NULL */
RIG_UNUSED static int seam_open(const char *path, int flags, ...) {
    int fd, mode = 0;
    va_list args;
    va_start(args, flags);
    if (flags & O_CREAT) mode = va_arg(args, int);
    va_end(args);
    /* threads look at their own waits from time to time: no call of the case that counts calls */
    if (strstr(path, "schedstat") == NULL && seam_fails("open", EMFILE)) return -1;
    fd = open(seam_path ? seam_path(path) : path, flags, mode);
    if (fd >= 0) seam_add(&seam.files, 1);
    return fd;
}
RIG_UNUSED static FILE *seam_fopen(const char *path, const char *mode) {
    FILE *f = seam_fails("fopen", EMFILE) ? NULL : fopen(seam_path ? seam_path(path) : path, mode);
    if (f) seam_add(&seam.files, 1);
    return f;
}
RIG_UNUSED static int seam_fclose(FILE *f) {
    seam_add(&seam.files, -1);
    return fclose(f);
}
static size_t seam_stack; /* of the thread created last, as its attributes have it */
RIG_UNUSED static int seam_pthread_create(pthread_t *t, const pthread_attr_t *attr,
                                          void *(*run)(void *), void *arg) {
    int fails = seam_fails("pthread_create", EAGAIN);
    int rc = fails ? EAGAIN : pthread_create(t, attr, run, arg);
    if (fails) errno = 0; /* it returns the number instead */
    if (attr) {
        size_t bytes = 0;
        pthread_attr_getstacksize(attr, &bytes);
        __atomic_store_n(&seam_stack, bytes, __ATOMIC_SEQ_CST);
    }
    if (rc == 0) seam_add(&seam.threads, 1);
    return rc;
}
RIG_UNUSED static int seam_pthread_join(pthread_t t, void **result) {
    seam_add(&seam.threads, -1);
    return pthread_join(t, result);
}
RIG_UNUSED static int seam_attr_init(pthread_attr_t *attr) {
    int fails = seam_fails("pthread_attr_init", ENOMEM);
    if (fails) errno = 0; /* it returns the number instead */
    return fails ? ENOMEM : pthread_attr_init(attr);
}
static int seam_file_fails(long number) { /* memfd_create, pidfd_open */
    if (number != SYS_memfd_create && number != 434) return 0;
    if (seam_fails(number == 434 ? "pidfd_open" : "memfd_create", ENFILE)) return 1;
    seam_add(&seam.files, 1);
    return 0;
}

/* What the process has alive of what goes through the seam. */
typedef struct seam_alive {
    long blocks, maps, files, threads;
} seam_alive;

RIG_UNUSED static seam_alive seam_now(void) {
    seam_alive a = {seam_read(&seam.blocks), seam_read(&seam.maps), seam_read(&seam.files),
                    seam_read(&seam.threads)};
    return a;
}
/* The same once it is steady: a worker that falls asleep may just have a file open. */
RIG_UNUSED static seam_alive seam_steady(void) {
    for (seam_alive a = seam_now(), b;; a = b) {
        usleep(2000);
        b = seam_now();
        if (memcmp(&a, &b, sizeof a) == 0) return a;
    }
}
RIG_UNUSED static int seam_same(seam_alive a) {
    seam_alive b = seam_now();
    if (a.blocks == b.blocks && a.maps == b.maps && a.files == b.files && a.threads == b.threads)
        return 1;
    printf(
        "alive before and now: blocks %ld %ld, mappings %ld %ld, files %ld %ld, threads %ld %ld\n",
        a.blocks, b.blocks, a.maps, b.maps, a.files, b.files, a.threads, b.threads);
    return 0;
}

#define SEAM_FIRST(first, ...) (first)
#define malloc seam_malloc
#define calloc seam_calloc
#define realloc seam_realloc
#define posix_memalign seam_posix_memalign
#define free seam_free
#define mmap seam_mmap
#define munmap seam_munmap
#define ftruncate seam_ftruncate
#define fcntl seam_fcntl
#define close seam_close
#define open seam_open
#define fopen seam_fopen
#define fclose seam_fclose
#define pthread_create seam_pthread_create
#define pthread_join seam_pthread_join
#define pthread_attr_init seam_attr_init
#define syscall(...) (seam_file_fails(SEAM_FIRST(__VA_ARGS__, 0)) ? -1L : (syscall)(__VA_ARGS__))

#endif

#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "rows.h"
#include "tries.h"

/* ---- checks ---- */

static int test_failures;
static int test_checks;

static int check_that(int ok, const char *file, int line, const char *where, const char *what) {
    test_checks++;
    if (ok) return 1;
    if (++test_failures < 20) printf("%s:%d: %s: failed: %s\n", file, line, where, what);
    return 0;
}
#define CHECK(x) check_that(!!(x), __FILE__, __LINE__, __func__, #x)

RIG_UNUSED static int test_end(const char *name) {
    printf("%s: %d checks, %d failed\n", name, test_checks, test_failures);
    return test_failures != 0;
}

RIG_UNUSED static int is_short(void) { return getenv("SHORT") != NULL; } /* under a sanitizer */

/* ---- what the kernel says of this process ---- */

static int proc_entries(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2;
}

static int proc_regions(void) {
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, "memfd:dlpipe") != NULL;
    if (f) fclose(f);
    return n;
}

typedef struct proc_count {
    int threads, files, regions;
} proc_count;

RIG_UNUSED static proc_count proc_now(void) {
    proc_count c = {proc_entries("/proc/self/task"), proc_entries("/proc/self/fd"), proc_regions()};
    return c;
}
/* A joined thread may stand in /proc for a moment still: now, or already when a was counted. */
RIG_UNUSED static int proc_same(proc_count a) {
    proc_count b = proc_now();
    for (int i = 0; i < 20000 && b.threads > a.threads; i++) {
        usleep(1000);
        b = proc_now();
    }
    if (a.threads >= b.threads && a.files == b.files && a.regions == b.regions) return 1;
    printf("before and now: threads %d %d, files %d %d, regions %d %d\n", a.threads, b.threads,
           a.files, b.files, a.regions, b.regions);
    return 0;
}

RIG_UNUSED static uint64_t now_ms(void) { return test_now_ns() / 1000000u; }

RIG_UNUSED static void sleep_us(int64_t us) {
#ifdef _WIN32
    test_pause((uint64_t)us * 1000);
#else
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) continue;
#endif
}

static void *warm_thread(void *user) { return user; }
/* A sanitizer begins a thread of its own with the first one: let it, before threads are counted. */
RIG_UNUSED static void rig_warm(void) {
    pthread_t t;
    if (pthread_create(&t, NULL, warm_thread, NULL) == 0) pthread_join(t, NULL);
}

/* ---- a pipe with every desc at hand ---- */

typedef struct rig {
    dlp_pipe_desc pipe;
    dlp_sampler_desc sampler;
    dlp_dataset dataset;
    dlp_field fields[DLP_MAX_FIELDS + 1];
    dlp_source fetch;
    dlp_node item_map, batch_map;
    int has_item_map, has_batch_map, has_transfer;
    dlp_node_batch batch;
    dlp_workers_desc batch_by;
    dlp_node transfer;
} rig;

RIG_UNUSED static int rig_fetch(void *user, dlp_item *it) {
    (void)user;
    memcpy(it->data[0], &it->index, sizeof it->index);
    return 0;
}
RIG_UNUSED static int rig_item_map(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}
RIG_UNUSED static int rig_batch_map(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)b;
    (void)state;
    return 0;
}

/* 100 items of 16 bytes in batches of 10, all inline. */
RIG_UNUSED static void rig_default(rig *r) {
    memset(r, 0, sizeof *r);
    r->fields[0].name = "index";
    r->fields[0].dtype = DLP_U64;
    r->fields[0].ndim = 1;
    r->fields[0].shape[0] = 2;
    r->dataset.n_items = 100;
    r->dataset.n_fields = 1;
    r->dataset.fetch = rig_fetch;
    r->item_map = (dlp_node){.verb = DLP_MAP, .map = {.item = rig_item_map}};
    r->batch_map = (dlp_node){.verb = DLP_MAP, .map = {.batch = rig_batch_map}};
    r->transfer.verb = DLP_TRANSFER;
    r->batch.batch_size = 10;
    r->batch.last = DLP_LAST_PARTIAL;
}

/* Add the rows of the rig's pipe to an empty table. */
RIG_UNUSED static void rig_rows(rig *r, rig_table *t) {
    r->dataset.fields = r->dataset.fields ? r->dataset.fields : r->fields;
    r->fetch.dataset = &r->dataset;
    table_list(t, &r->sampler);
    table_fetch(t, &r->fetch, 0);
    if (r->has_item_map) table_row(t, r->item_map);
    table_row(t, (dlp_node){.verb = DLP_BATCH, .batch = r->batch, .workers = r->batch_by});
    if (r->has_batch_map) table_row(t, r->batch_map);
    if (r->has_transfer) table_row(t, r->transfer);
}

/* Make a pipe that is not started. Returns DLP_OK, or the first refusal and *err. */
RIG_UNUSED static int rig_wire(rig *r, dlp_pipe **out, dlp_error *err) {
    rig_table t = {.n = 0};
    rig_rows(r, &t);
    return table_pipe(&t, out, &r->pipe, err);
}

/* Open, wire and start; says why not. */
RIG_UNUSED static int rig_start(rig *r, dlp_pipe **out) {
    dlp_error e;
    char text[700];
    int rc = rig_wire(r, out, &e);
    if (rc == DLP_OK) {
        rc = dlp_pipe_start(*out);
        if (rc == DLP_OK) return rc;
        e = *dlp_pipe_error(*out);
        dlp_pipe_close(*out);
    }
    dlp_error_format(&e, text, sizeof text);
    printf("%s\n", text);
    return rc;
}

/* Take batches to the end; returns what next said last. */
RIG_UNUSED static int rig_drain(dlp_pipe *p, uint64_t *batches) {
    dlp_batch *b;
    int rc;
    *batches = 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        ++*batches;
        dlp_pipe_release(p, b);
    }
    return rc;
}

#ifndef _WIN32
/* ---- a process that is stopped ---- */

/* Fetch an item in so many milliseconds of the thread's own processor time, which does not pass
   while the process is stopped. */
RIG_UNUSED static int rig_compute(void *user, dlp_item *it, uint32_t ms) {
    struct timespec t;
    double end = 0, now;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
        if (end == 0) end = now + ms;
    } while (now < end);
    return rig_fetch(user, it);
}

/* Run work(how, ready) in another process. 20 ms after it has written a byte to `ready`, stop the
   process for so many milliseconds. Returns whether work returned 0. */
RIG_UNUSED static int rig_stopped(int (*work)(int how, int ready), int how, uint32_t ms) {
    int ready[2], status = -1;
    char byte;
    pid_t child;
    CHECK(pipe(ready) == 0);
    if ((child = fork()) == 0) _exit(work(how, ready[1]));
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    sleep_us(20000);
    kill(child, SIGSTOP);
    sleep_us(ms * 1000);
    kill(child, SIGCONT);
    CHECK(waitpid(child, &status, 0) == child);
    close(ready[0]);
    return status == 0;
}
#endif

#endif
