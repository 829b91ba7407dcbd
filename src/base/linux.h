#pragma once
/* tests: system/core/pipe_fault, system/open/fields */
#include "base/system_posix.h"
#if DLPI_ON_LINUX
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
/* ---- time and threads, by Linux ---- */

static inline uint64_t dlpi_coarse_ns(void) { return dlpi_clock_ns(CLOCK_MONOTONIC_COARSE); }

static void dlpi_thread_name(const char *name) { prctl(PR_SET_NAME, name); }
static void dlpi_thread_prompt(void) { prctl(PR_SET_TIMERSLACK, 1000ul); } /* ns; else 50,000 */
static uint64_t dlpi_thread_number(void) { return (uint64_t)syscall(SYS_gettid); }

#if DLPI_HAS_AFFINITY
static void dlpi_thread_pin(uint32_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}
#endif

#if DLPI_PORTABLE_WAIT
/* Begin a condition whose waits end by the monotonic clock. */
static void dlpi_cond_begin(dlpi_cond *c) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->at, &attr);
    pthread_condattr_destroy(&attr);
}

static bool dlpi_cond_wait_until(dlpi_cond *c, dlpi_mutex *m, uint64_t until) {
    const struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    return pthread_cond_timedwait(&c->at, &m->at, &t) == 0;
}
#endif

/* ---- to sleep on a word, by futex(2), and the heavy barrier, by membarrier(2) ---- */

/* The kernel's numbers, so that no kernel header is needed. */
enum { DLPI_FUTEX_WAIT_BITSET = 9, DLPI_FUTEX_WAKE_BITSET = 10, DLPI_FUTEX_PRIVATE = 128 };
enum { DLPI_MB_GLOBAL = 2, DLPI_MB_REGISTER_GLOBAL = 4 };
enum { DLPI_MB_PRIVATE = 8, DLPI_MB_REGISTER_PRIVATE = 16 };

/* Sleep as dlpi_futex_wait says, in the kernel. */
static int dlpi_kernel_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                            int shared) {
    uint64_t until = dlpi_wait_end(timeout_ns);
    struct timespec t;
    t.tv_sec = (time_t)(until / 1000000000u);
    t.tv_nsec = (long)(until % 1000000000u);
    int op = DLPI_FUTEX_WAIT_BITSET | (shared ? 0 : DLPI_FUTEX_PRIVATE);
    int saved = errno;
    long r = syscall(SYS_futex, word, op, expect, &t, NULL, bits);
    int timed_out = r != 0 && errno == ETIMEDOUT;
    errno = saved;
    return timed_out;
}

static void dlpi_kernel_wake(uint32_t *word, int n, uint32_t bits, int shared) {
    int op = DLPI_FUTEX_WAKE_BITSET | (shared ? 0 : DLPI_FUTEX_PRIVATE);
    int saved = errno;
    (void)syscall(SYS_futex, word, op, n, NULL, NULL, bits);
    errno = saved;
}

#if !DLPI_PORTABLE_WAIT
static int dlpi_futex_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                           int shared) {
    return dlpi_kernel_wait(word, expect, bits, timeout_ns, shared);
}
static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared) {
    dlpi_kernel_wake(word, n, bits, shared);
}
#endif

static int dlpi_membarrier(int command) {
    int saved = errno;
    long r = syscall(SYS_membarrier, command, 0, 0);
    errno = saved;
    return r == 0;
}

static int dlpi_heavy_register(int shared) {
    return dlpi_membarrier(shared ? DLPI_MB_REGISTER_GLOBAL : DLPI_MB_REGISTER_PRIVATE);
}
static int dlpi_heavy_barrier(int shared) {
    return dlpi_membarrier(shared ? DLPI_MB_GLOBAL : DLPI_MB_PRIVATE);
}

/* ---- memory, by Linux ---- */

static int dlpi_pages_huge(void *at, uint64_t bytes) {
    return madvise(at, (size_t)bytes, 14) == 0 ? 0 : errno; /* MADV_HUGEPAGE */
}
static void dlpi_page_mark(void *at, uint64_t bytes) {
    madvise(at, (size_t)bytes, 18); /* MADV_WIPEONFORK (Linux 4.14) */
    *(uint8_t *)at = 1;
}
DLPI_INLINE bool dlpi_page_marked(const void *at) { return *(const uint8_t *)at != 0; }

#if DLPI_HAS_SHARING
/* Make a memfd, set its size, seal it and map it. In huge pages some kernels seal none. */
static int dlpi_memory_file(int *fd, void **at, const char *name, uint64_t bytes, bool huge,
                            const char **call) {
    *at = NULL;
    *fd = -1;
    *call = "memfd_create";
    if (!dlpi_file_may_be(bytes)) return EFBIG;
    /* close on exec, may be sealed, huge pages */
    *fd = dlpi_fd_above((int)syscall(SYS_memfd_create, name, huge ? 7u : 3u));
    if (*fd < 0) return errno;
    *call = "ftruncate";
    if (ftruncate(*fd, (off_t)bytes) != 0) return errno;
    *call = "fcntl (F_ADD_SEALS)";
    if (fcntl(*fd, 1033, 6) != 0 && !huge) return errno; /* no shrink, no growth */
    *call = "mmap";
    return dlpi_pages_of(at, bytes, *fd, 0);
}

/* Open the file of a descriptor again, with an open file description of its own. Returns 0 or
   errno. */
static int dlpi_handle_again(int *to, int fd) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *to = dlpi_fd_above(open(path, O_RDWR | O_CLOEXEC));
    return *to < 0 ? errno : 0;
}

/* True if nobody can cut this file of another program, which is mapped here. */
static bool dlpi_memory_file_stays(int fd) {
    const int seals = fcntl(fd, 1034);     /* F_GET_SEALS */
    return seals >= 0 && (seals & 2) != 0; /* F_SEAL_SHRINK */
}

/* Allocate piece by piece. Any signal interrupts a call (before Linux 6.13), and undoes it: of a
   whole region a program with a timer would get none. */
static int dlpi_memory_file_fill(int fd, uint64_t bytes) {
    const uint64_t piece = 2u << 20;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t n = bytes - at < piece ? bytes - at : piece;
        int rc = posix_fallocate(fd, (off_t)at, (off_t)n);
        if (rc == 0) at += n;
        if (rc != 0 && rc != EINTR) return rc;
    }
    return 0;
}
#endif

/* ---- files, by Linux ---- */

_Static_assert(POSIX_FADV_RANDOM == 1 && POSIX_FADV_SEQUENTIAL == 2, "DLPI_AS_USUAL, ...");
static void dlpi_handle_advise(dlpi_handle f, uint64_t at, uint64_t n, int advice) {
    (void)posix_fadvise(f, (off_t)at, (off_t)n, advice);
}

static int dlpi_handle_sync(dlpi_handle f) { return fsync(f) == 0 ? 0 : errno; }

/* Have pages read into memory (Linux 5.14). Returns 0, EFAULT if they cannot be read, or errno. */
static int dlpi_mapping_load(const uint8_t *map, uint64_t at, uint64_t n) {
    return dlpi_mapping_call(map, at, n, 22); /* MADV_POPULATE_READ */
}

/* Read a byte, but not if that would wait for the disk (Linux 4.14). Without a descriptor the
   kernel says it of files that this user may write. */
static bool dlpi_handle_is_here(dlpi_handle f, const uint8_t *map, uint64_t at) {
    if (DLPI_UNLIKELY(f < 0)) {
        const uint64_t from = at - at % (uint64_t)sysconf(_SC_PAGESIZE);
        unsigned char in = 1;
        return mincore((void *)(uintptr_t)(map + from), 1, &in) != 0 || (in & 1) != 0;
    }
#if defined(SYS_preadv2)
    char byte;
    struct iovec to = {&byte, 1};
    return syscall(SYS_preadv2, f, &to, 1L, (long)at, 0L, 8L) >= 0 || /* RWF_NOWAIT */
           errno != EAGAIN;
#else
    return false;
#endif
}

#if DLPI_HAS_RING
#ifndef SYS_io_uring_setup /* the same everywhere but on alpha */
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif

/* A ring opens a path from the working directory on, as dlpi_handle_open opens it to read. */
enum { DLPI_RING_HERE = AT_FDCWD, DLPI_RING_OPEN = O_RDONLY | O_CLOEXEC | O_NONBLOCK };

static int dlpi_ring_setup(dlpi_handle *to, uint32_t n, void *params) {
    *to = dlpi_fd_above((int)syscall(SYS_io_uring_setup, n, params));
    return *to < 0 ? errno : 0;
}
static bool dlpi_ring_probe(dlpi_handle f, void *probe, uint32_t n) {
    return syscall(SYS_io_uring_register, f, 8, probe, n) == 0; /* IORING_REGISTER_PROBE */
}

/* Call io_uring_enter as long as the kernel takes requests. */
static int dlpi_ring_enter(dlpi_handle f, uint32_t *queued) {
    while (*queued > 0) {
        const long n = syscall(SYS_io_uring_enter, f, *queued, 0u, 0u, NULL, (size_t)0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EBUSY ? 0 : errno;
        if (n == 0) break;
        *queued -= (uint32_t)n;
    }
    return 0;
}

static void dlpi_ring_wait(dlpi_handle f, int timeout_ms) {
    struct pollfd p = {f, POLLIN, 0};
    (void)poll(&p, 1, timeout_ms);
}

/* Move a file that was opened with O_NONBLOCK above descriptor 2, and take this flag back: io_uring
   would take it for a wish not to wait for the disk. */
static int dlpi_ring_handle(int fd) {
    fd = dlpi_fd_above(fd);
    if (fd < 0) return -errno;
    (void)fcntl(fd, F_SETFL, 0);
    return fd;
}
#endif

static int dlpi_handle_become(dlpi_handle f, dlpi_handle as) {
    const int rc = dup3(as, f, O_CLOEXEC) >= 0 ? 0 : errno;
    close(as);
    return rc;
}

static const void *dlpi_last_byte(const void *at, int byte, size_t n) {
    return memrchr(at, byte, n);
}

/* ---- the machine, by Linux ---- */

DLPI_INLINE int dlpi_cpu_here(void) { return sched_getcpu(); }

static bool dlpi_random(void *to, size_t n) {
    return syscall(SYS_getrandom, to, n, 1) == (long)n; /* GRND_NONBLOCK */
}

#if DLPI_HAS_AFFINITY
/* Ask the kernel, whose sets have the same form. */
static int dlpi_cpus_of(int64_t process, dlpi_cpus *to) {
    cpu_set_t set;
    _Static_assert(sizeof set == sizeof *to, "a set of as many CPUs as the kernel's");
    if (sched_getaffinity((pid_t)process, sizeof set, &set) != 0) return 0;
    memcpy(to, &set, sizeof set);
    return CPU_COUNT(&set);
}
#endif

/* ---- what cgroups and /proc say ---- */

/* Read the beginning of a file, as text. Returns false if the file cannot be opened. */
static bool dlpi_read_text(const char *path, char *text, size_t size) {
    size_t len = 0;
    ssize_t got;
    int fd = dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0) return false;
    while ((got = read(fd, text + len, size - 1 - len)) > 0) len += (size_t)got;
    close(fd);
    text[len] = 0;
    return true;
}

/* Read the first n numbers, 1 or 2, of a text. Returns false if there are fewer. It does without
   sscanf, which takes pages of stack: each thread would have them for good. */
static bool dlpi_numbers_in(const char *text, uint64_t *to, int n) {
    uint64_t number[2] = {0, 0};
    for (int i = 0; i < n; i++) {
        char *end;
        number[i] = strtoull(text, &end, 10);
        if (end == text) return false;
        text = end;
    }
    memcpy(to, number, (size_t)n * sizeof *to);
    return true;
}

/* Read the n numbers, 1 or 2, that a file begins with. Returns false if there are fewer. */
static bool dlpi_read_first(const char *path, uint64_t *to, int n) {
    char text[64];
    return dlpi_read_text(path, text, sizeof text) && dlpi_numbers_in(text, to, n);
}

/* Read n numbers, 1 or 2, behind `key` at the start of a line, or, if key is NULL, of the first
   line. Returns false if they are not there. */
static bool dlpi_numbers_behind(const char *text, const char *key, uint64_t *to, int n) {
    size_t skip = key ? strlen(key) : 0;
    while (skip > 0 && strncmp(text, key, skip) != 0) {
        if ((text = strchr(text, '\n')) == NULL) return false;
        text++;
    }
    return dlpi_numbers_in(text + skip, to, n);
}

/* Read n numbers, 1 or 2, behind `key` (NULL: on the first line) of a small file. Returns false if
   they are not there. Allocates nothing. */
static bool dlpi_read_numbers(const char *path, const char *key, uint64_t *to, int n) {
    char text[4096];
    return dlpi_read_text(path, text, sizeof text) && dlpi_numbers_behind(text, key, to, n);
}

static uint64_t dlpi_read_number(const char *path, const char *key) { /* UINT64_MAX: not there */
    uint64_t value;
    return dlpi_read_numbers(path, key, &value, 1) ? value : UINT64_MAX;
}

static uint64_t dlpi_cgroup_number(const char *dir, const char *file, const char *key) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return dlpi_read_number(path, key);
}

/* Return the path of this process's cgroup in a line of /proc/self/cgroup ("4:cpu,cpuacct:/a",
   "0::/a"). Returns NULL if the line is another controller's, or if the path is the root. */
static const char *dlpi_cgroup_place(const char *controller, const char *line) {
    size_t n = strlen(controller);
    const char *kind = strchr(line, ':'), *place = kind ? strchr(kind + 1, ':') : NULL;
    if (place == NULL || place[1] != '/' || place[2] == 0) return NULL;
    while (++kind, strncmp(kind, controller, n) != 0 || (kind[n] != ',' && kind[n] != ':')) {
        kind += strcspn(kind, ",:");
        if (kind == place) return NULL;
    }
    return place + 1;
}

/* Return what the cgroup in `dir` leaves; UINT64_MAX means no limit. v1: a cgroup of version 1. */
typedef uint64_t (*dlpi_cgroup_fn)(const char *dir, bool v1);

/* Return the least that this process's cgroup and those above it leave; UINT64_MAX if no limit is
   known. controller: names the line of /proc/self/cgroup; "" means cgroups of version 2. */
static uint64_t dlpi_cgroup_least(const char *controller, dlpi_cgroup_fn leaves) {
    char dir[512], line[480];
    uint64_t least = UINT64_MAX;
    FILE *f = dlpi_stream_open("/proc/self/cgroup", O_RDONLY, "r");
    const size_t root = (size_t)snprintf(dir, sizeof dir, "/sys/fs/cgroup%s%s",
                                         controller[0] ? "/" : "", controller);
    while (f && fgets(line, sizeof line, f)) {
        const char *place;
        line[strcspn(line, "\n")] = 0;
        if ((place = dlpi_cgroup_place(controller, line)) != NULL)
            snprintf(dir + root, sizeof dir - root, "%s", place);
    }
    if (f) fclose(f);
    for (;;) {
        uint64_t left = leaves(dir, controller[0] != 0);
        if (left < least) least = left;
        if (strlen(dir) <= root) return least;
        *strrchr(dir, '/') = 0;
    }
}

/* Return the least that the cgroups of both versions leave; UINT64_MAX if no limit is known. */
static uint64_t dlpi_cgroups_least(const char *controller, dlpi_cgroup_fn leaves) {
    uint64_t one = dlpi_cgroup_least(controller, leaves), two = dlpi_cgroup_least("", leaves);
    return one < two ? one : two;
}

/* Return how many CPUs the quota of cgroup directory `dir` allows, rounded up. Returns UINT64_MAX
   if there is no quota. v1: the files are those of cgroup version 1. */
static uint64_t dlpi_cgroup_cpus(const char *dir, bool v1) {
    char path[600];
    uint64_t n[2] = {UINT64_MAX, UINT64_MAX}; /* a quota, and its period */
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (!v1) { /* "max 100000", or two numbers */
        dlpi_read_numbers(path, NULL, n, 2);
    } else { /* a quota of -1: none */
        n[0] = dlpi_cgroup_number(dir, "cpu.cfs_quota_us", NULL);
        n[1] = dlpi_cgroup_number(dir, "cpu.cfs_period_us", NULL);
    }
    if (n[0] == UINT64_MAX || n[1] == UINT64_MAX || n[1] == 0) return UINT64_MAX;
    return n[0] > n[1] ? (n[0] - 1) / n[1] + 1 : 1;
}

/* Return the cores that quotas of this process's cgroups allow; UINT64_MAX if no limit is known. */
static uint64_t dlpi_cpu_quota(void) { return dlpi_cgroups_least("cpu", dlpi_cgroup_cpus); }

/* Return the cores that this process may use, by its affinity mask and its cgroups; at least 1. */
static int dlpi_cpu_count(void) {
    uint64_t quota = dlpi_cpu_quota();
    dlpi_cpus set;
    int n = dlpi_cpus_of(0, &set);
    if (n < 1) n = dlpi_cpus_online();
    return n < 1 ? 1 : quota < (uint64_t)n ? (int)quota : n;
}

/* Return the bytes of files that the cgroup in `dir` has in its cache; 0 if they are not known. v1:
   the cgroup is of version 1. */
static uint64_t dlpi_cgroup_files(const char *dir, bool v1) {
    static const char *const given[2] = {"total_inactive_file", "total_active_file"};
    char path[600], text[4096];
    uint64_t sum = 0, bytes;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    if (!dlpi_read_text(path, text, sizeof text)) return 0;
    for (int i = 0; i < 2; i++) /* version 2 has no other totals */
        if (dlpi_numbers_behind(text, given[i] + (v1 ? 0 : 6), &bytes, 1))
            sum = dlpi_sum(sum, bytes);
    return sum;
}

/* Return the memory limit of the cgroup in `dir`; UINT64_MAX if no limit is known. */
static uint64_t dlpi_cgroup_memory_limit(const char *dir, bool v1) {
    uint64_t max = dlpi_cgroup_number(dir, v1 ? "memory.limit_in_bytes" : "memory.max", NULL);
    return max > INT64_MAX / 2 ? UINT64_MAX : max; /* version 1 has a large number for none */
}

/* Return the bytes that the memory limit of the cgroup in `dir` leaves; UINT64_MAX if no limit is
   known. v1: the cgroup is of version 1. Its cache of files counts as free, for the kernel gives it
   up. Without a limit the used bytes are not read: the kernel adds them up first, which takes
   longer than the rest of a start. */
static uint64_t dlpi_cgroup_memory(const char *dir, bool v1) {
    uint64_t max = dlpi_cgroup_memory_limit(dir, v1), used, files;
    if (max == UINT64_MAX) return UINT64_MAX;
    used = dlpi_cgroup_number(dir, v1 ? "memory.usage_in_bytes" : "memory.current", NULL);
    if (used == UINT64_MAX) return UINT64_MAX;
    files = dlpi_cgroup_files(dir, v1);
    used = files < used ? used - files : 0;
    return used > max ? 0 : max - used;
}

static uint64_t dlpi_memory_limit(void) {
    return dlpi_cgroups_least("memory", dlpi_cgroup_memory_limit);
}
static uint64_t dlpi_memory_allowed(void) {
    return dlpi_cgroups_least("memory", dlpi_cgroup_memory);
}

static uint64_t dlpi_memory_available(void) {
    uint64_t kib = dlpi_read_number("/proc/meminfo", "MemAvailable:");
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

/* Ask /sys: threads of a core, and cores of a socket, lie together. */
static uint64_t dlpi_cpu_place(int cpu) {
    static const char *const files[] = {"physical_package_id", "core_id"};
    uint64_t place = 0;
    for (int i = 0; i < 2; i++) {
        char path[96];
        uint64_t n;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, files[i]);
        n = dlpi_read_number(path, NULL);
        place = place << 24 | (n < 1u << 24 ? n : 0);
    }
    return place << 12 | (uint64_t)cpu;
}

/* Read the time of the thread's clock. Read schedstat of /proc and rusage only if they are asked
   for. */
static void dlpi_thread_times(uint64_t *used_ns, uint64_t *waited_ns, uint64_t *sleeps) {
    struct timespec t;
    struct rusage use;
    uint64_t sched[2];
    if (used_ns != NULL && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
        *used_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (waited_ns != NULL && dlpi_read_first("/proc/thread-self/schedstat", sched, 2))
        *waited_ns = sched[1];
    if (sleeps != NULL && getrusage(RUSAGE_THREAD, &use) == 0) *sleeps = (uint64_t)use.ru_nvcsw;
}

/* ---- other processes, by /proc ---- */

/* Look for an entry of the environment with which the process began. */
static bool dlpi_process_began_with(int64_t process, const char *entry) {
    char path[64], *one = NULL;
    size_t room = 0;
    bool has = false;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/environ", process);
    FILE *f = dlpi_stream_open(path, O_RDONLY, "r");
    if (f == NULL) return false;
    while (!has && getdelim(&one, &room, 0, f) > 0) has = strcmp(one, entry) == 0;
    free(one);
    fclose(f);
    return has;
}

/* Ask /proc for all processes but this one. */
static int64_t dlpi_process_parent(int64_t process) {
    char path[64];
    uint64_t up;
    if (process == 0) return getppid();
    snprintf(path, sizeof path, "/proc/%" PRId64 "/status", process);
    up = dlpi_read_number(path, "PPid:");
    return up < INT32_MAX ? (int64_t)up : 0;
}

/* Ask /proc in which system call the thread is. A lock that others have is a futex. */
static uint64_t dlpi_thread_lock(int64_t process, int64_t thread) {
    char path[80], text[256], *at = text;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/task/%" PRId64 "/syscall", process, thread);
    if (!dlpi_read_text(path, text, sizeof text)) return 0; /* "202 0x55d5358 0x80 ..." */
    return strtol(at, &at, 10) == SYS_futex ? strtoull(at, NULL, 16) : 0;
}
#endif
