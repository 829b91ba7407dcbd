#pragma once
/* tests: system/core/pipe_fault, unit/queue/queue_wait */
#include "base/descriptors.h"
#include "base/errors.h"
#include "base/system.h"
#if !defined(_WIN32)
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#if defined(__APPLE__)
#define DLPI_MONOTONIC CLOCK_UPTIME_RAW
#define DLPI_STAT_TIME st_mtimespec /* of struct stat */
#else
#define DLPI_MONOTONIC CLOCK_MONOTONIC
#define DLPI_STAT_TIME st_mtim
#endif
/* ---- time ---- */

static inline uint64_t dlpi_clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t dlpi_now_ns(void) { return dlpi_clock_ns(DLPI_MONOTONIC); }
static inline uint64_t dlpi_real_ns(void) { return dlpi_clock_ns(CLOCK_REALTIME); }

/* Return the time at which a wait that begins now ends. */
static inline uint64_t dlpi_wait_end(uint64_t timeout_ns) {
    return dlpi_now_ns() + (timeout_ns < UINT64_MAX / 4 ? timeout_ns : UINT64_MAX / 4);
}

static void dlpi_sleep(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

DLPI_INLINE void dlpi_yield(void) { sched_yield(); }

/* ---- threads ---- */

struct dlpi_thread {
    pthread_t at;
};
struct dlpi_mutex {
    pthread_mutex_t at;
};
struct dlpi_cond {
    pthread_cond_t at;
};
#define DLPI_MUTEX_INIT \
    { PTHREAD_MUTEX_INITIALIZER }
#define DLPI_COND_INIT \
    { PTHREAD_COND_INITIALIZER }

/* Start a thread that has the default attributes, but maybe for its stack. */
DLPI_COLD static int dlpi_thread_start(dlpi_thread *t, void *(*run)(void *), void *arg,
                                       uint64_t stack_bytes) {
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0) return rc;
    if (stack_bytes != 0) rc = pthread_attr_setstacksize(&attr, (size_t)stack_bytes);
    if (rc == 0) rc = pthread_create(&t->at, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return rc;
}
static void dlpi_thread_join(const dlpi_thread *t) { pthread_join(t->at, NULL); }

DLPI_INLINE void dlpi_mutex_lock(dlpi_mutex *m) { pthread_mutex_lock(&m->at); }
DLPI_INLINE bool dlpi_mutex_try(dlpi_mutex *m) { return pthread_mutex_trylock(&m->at) == 0; }
DLPI_INLINE void dlpi_mutex_unlock(dlpi_mutex *m) { pthread_mutex_unlock(&m->at); }
DLPI_INLINE void dlpi_cond_wait(dlpi_cond *c, dlpi_mutex *m) { pthread_cond_wait(&c->at, &m->at); }
DLPI_INLINE void dlpi_cond_signal(dlpi_cond *c) { pthread_cond_signal(&c->at); }
DLPI_INLINE void dlpi_cond_broadcast(dlpi_cond *c) { pthread_cond_broadcast(&c->at); }

#if DLPI_PORTABLE_WAIT
static void dlpi_cond_end(dlpi_cond *c) { pthread_cond_destroy(&c->at); }

static void dlpi_forked_call(void (*call)(void)) { pthread_atfork(NULL, NULL, call); }
#endif

/* ---- memory ---- */

/* Map memory of `fd`, or new memory if fd is -1. If that fails, *at is NULL. */
static int dlpi_pages_of(void **at, uint64_t bytes, int fd, uint64_t from) {
    const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *map = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)from);
    const int failed = errno;
    *at = map == MAP_FAILED ? NULL : map;
    if (*at != NULL) return 0;
    return failed != 0 ? failed : ENOMEM;
}

static int dlpi_pages(void **at, uint64_t bytes) { return dlpi_pages_of(at, bytes, -1, 0); }
static void dlpi_pages_free(void *at, uint64_t bytes) { munmap(at, (size_t)bytes); }

static void *dlpi_aligned(size_t align, uint64_t bytes) {
    void *at;
    return posix_memalign(&at, align, (size_t)bytes) == 0 ? at : NULL;
}
static void dlpi_aligned_free(void *at) { free(at); }

/* ---- texts and bytes ---- */

static char *dlpi_string_copy(const char *s) { return strdup(s); }
static bool dlpi_string_alike(const char *a, const char *b, size_t n) {
    return strncasecmp(a, b, n) == 0;
}
static size_t dlpi_string_length(const char *s, size_t most) { return strnlen(s, most); }

/* ---- the machine ---- */

static inline int32_t dlpi_process_number(void) { return (int32_t)getpid(); }
static uint32_t dlpi_user_number(void) { return (uint32_t)geteuid(); }
static int dlpi_cpus_online(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

static void dlpi_host_name(char *to, size_t size) {
    to[size - 1] = 0;
    if (gethostname(to, size - 1) != 0 || to[0] == 0) snprintf(to, size, "?");
}

#if defined(DLPIPE_CUDA) || defined(DLPIPE_OPENCL)
#include <dlfcn.h>

static void *dlpi_library(const char *name, const char **why) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    *why = library == NULL ? dlerror() : NULL;
    return library;
}
static void *dlpi_library_symbol(void *library, const char *name) { return dlsym(library, name); }
#endif

/* ---- files ---- */

/* Note in *to what was found. rc: what stat returned. */
static int dlpi_facts_of(dlpi_facts *to, const struct stat *st, int rc) {
    const mode_t mode = st->st_mode;
    *to = (dlpi_facts){.bytes = 0};
    if (rc != 0) return errno;
    to->bytes = (uint64_t)st->st_size;
    to->changed_ns = (uint64_t)st->DLPI_STAT_TIME.tv_sec * 1000000000u;
    to->changed_ns += (uint64_t)st->DLPI_STAT_TIME.tv_nsec;
    to->volume = (uint64_t)st->st_dev;
    to->number = (uint64_t)st->st_ino;
    to->links = (uint64_t)st->st_nlink;
    to->owner = (uint32_t)st->st_uid;
    to->all_may_write = (mode & S_IWOTH) != 0;
    to->kind = S_ISREG(mode)   ? DLPI_IS_FILE
               : S_ISDIR(mode) ? DLPI_IS_DIRECTORY
               : S_ISLNK(mode) ? DLPI_IS_LINK
                               : DLPI_IS_OTHER;
    return 0;
}

static int dlpi_handle_facts(dlpi_handle f, dlpi_facts *to) {
    struct stat st = {0};
    return dlpi_facts_of(to, &st, fstat(f, &st));
}

/* Write the path up to its last slash, or ".". */
static void dlpi_directory_of(char *dir, const char *path) {
    char *slash;
    dlpi_copy_text(dir, DLPI_PATH_MAX, path);
    slash = strrchr(dir, '/');
    if (slash == NULL)
        dlpi_copy_text(dir, DLPI_PATH_MAX, ".");
    else
        slash[slash == dir] = 0;
}

static int dlpi_path_facts(const char *path, bool follow, dlpi_facts *to) {
    struct stat st = {0};
    return dlpi_facts_of(to, &st, follow ? stat(path, &st) : lstat(path, &st));
}

/* Open a file. Without O_NONBLOCK open would wait for ever, if nobody writes to a pipe. */
static int dlpi_handle_open(dlpi_handle *to, const char *path, unsigned how) {
    int fd, flags = O_CLOEXEC | (how & DLPI_CUT ? O_TRUNC : how & DLPI_NEW ? 0 : O_NONBLOCK);
    if (how & DLPI_WRITE) flags |= how & DLPI_READ ? O_RDWR : O_WRONLY;
    if (how & DLPI_NEW) flags |= O_CREAT | O_EXCL;
    if (how & DLPI_NO_LINK) flags |= O_NOFOLLOW;
    do fd = open(path, flags, how & DLPI_OWN ? 0600 : 0666);
    while (fd < 0 && errno == EINTR);
    *to = dlpi_fd_above(fd);
    return *to < 0 ? errno : 0;
}

static int dlpi_handle_from(int fd) { return fd; }
static int dlpi_handle_to(int *fd, dlpi_handle f) { return *fd = f, 0; }
static void dlpi_handle_to_end(int fd) { (void)fd; }
static int dlpi_handle_close(dlpi_handle f) { return f < 0 || close(f) == 0 ? 0 : errno; }

/* Read piece by piece: a call reads at most 2 GiB. */
static int dlpi_handle_read(dlpi_handle f, void *to, uint64_t n, uint64_t at, uint64_t *got) {
    for (*got = 0; *got < n;) {
        const uint64_t rest = n - *got < (1u << 30) ? n - *got : 1u << 30;
        ssize_t k = pread(f, (uint8_t *)to + *got, (size_t)rest, (off_t)(at + *got));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return k < 0 ? errno : 0;
        *got += (uint64_t)k;
    }
    return 0;
}

_Static_assert(MADV_RANDOM == 1 && MADV_SEQUENTIAL == 2 && MADV_WILLNEED == 3, "DLPI_AS_USUAL");
static int dlpi_handle_map(dlpi_handle f, uint64_t bytes, const uint8_t **at) {
    void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, f, 0);
    *at = map == MAP_FAILED ? NULL : map;
    return map == MAP_FAILED ? errno : 0;
}
static void dlpi_handle_unmap(const uint8_t *at, uint64_t bytes) {
    munmap((void *)(uintptr_t)at, (size_t)bytes);
}
static void dlpi_handle_map_again(dlpi_handle f, const uint8_t *at, uint64_t bytes) {
    (void)mmap((void *)(uintptr_t)at, (size_t)bytes, PROT_READ, MAP_SHARED | MAP_FIXED, f, 0);
}

static uint64_t dlpi_handle_data(dlpi_handle f, uint64_t at) {
    off_t data = lseek(f, (off_t)at, SEEK_DATA);
    return data >= 0 ? (uint64_t)data : errno == ENXIO ? UINT64_MAX : at;
}

/* Call madvise for the pages that have these bytes. Returns 0 or errno. */
static int dlpi_mapping_call(const uint8_t *map, uint64_t at, uint64_t n, int how) {
    const uint64_t from = at - at % (uint64_t)sysconf(_SC_PAGESIZE);
    return madvise((void *)(uintptr_t)(map + from), (size_t)(at + n - from), how) ? errno : 0;
}

static void dlpi_mapping_advise(const uint8_t *map, uint64_t at, uint64_t n, int advice) {
    (void)dlpi_mapping_call(map, at, n, advice);
}

/* Write piece by piece, as a read. */
static int dlpi_handle_write(dlpi_handle f, const void *from, uint64_t n, uint64_t at) {
    for (uint64_t done = 0; done < n;) {
        const uint64_t rest = n - done < (1u << 30) ? n - done : 1u << 30;
        const uint8_t *next = (const uint8_t *)from + done;
        ssize_t k = at == UINT64_MAX ? write(f, next, (size_t)rest)
                                     : pwrite(f, next, (size_t)rest, (off_t)(at + done));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return k < 0 ? errno : EIO;
        done += (uint64_t)k;
    }
    return 0;
}

static int dlpi_handle_cut(dlpi_handle f) { return ftruncate(f, 0) == 0 ? 0 : errno; }
static int dlpi_path_rename(const char *from, const char *to) {
    return rename(from, to) ? errno : 0;
}
static int dlpi_path_remove(const char *path) { return unlink(path) == 0 ? 0 : errno; }

static int dlpi_handle_lock(dlpi_handle f, bool wait) {
    int rc;
    do rc = flock(f, wait ? LOCK_EX : LOCK_EX | LOCK_NB);
    while (wait && rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : errno;
}
static void dlpi_handle_unlock(dlpi_handle f) { (void)flock(f, LOCK_UN); }

/* Open the directory to sync it. */
static int dlpi_directory_sync(const char *path) {
    dlpi_handle f;
    int rc = dlpi_handle_open(&f, path, DLPI_READ);
    if (rc == 0) rc = dlpi_handle_sync(f);
    dlpi_handle_close(f);
    return rc;
}

/* Read the names of a directory to its end. */
static int dlpi_directory_list(const char *path, int (*each)(void *user, const char *name),
                               void *user, const char **call) {
    int rc = 0, fd = dlpi_fd_above(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;
    *call = "open";
    if (dir == NULL) {
        rc = errno;
        if (fd >= 0) close(fd);
        return rc;
    }
    *call = NULL;
    while (rc == 0 && (errno = 0, e = readdir(dir)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) rc = each(user, e->d_name);
    if (rc == 0 && errno != 0) {
        *call = "read";
        rc = errno;
    }
    closedir(dir);
    return rc;
}
#endif
