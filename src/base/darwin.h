#pragma once
/* tests: compile/macos */
#include "base/linux.h"
#if defined(__APPLE__)
#include <sys/random.h>
/* ---- time and threads, by macOS ---- */

static inline uint64_t dlpi_coarse_ns(void) { return dlpi_clock_ns(CLOCK_UPTIME_RAW_APPROX); }

static void dlpi_thread_name(const char *name) { (void)pthread_setname_np(name); }
static void dlpi_thread_prompt(void) {}

/* Return the number by which debuggers name the thread. */
static uint64_t dlpi_thread_number(void) {
    uint64_t number = 0;
    (void)pthread_threadid_np(NULL, &number);
    return number;
}

static void dlpi_cond_begin(dlpi_cond *c) { pthread_cond_init(&c->at, NULL); }

/* Wait for as long as is left: the conditions of macOS know no other clock. */
static bool dlpi_cond_wait_until(dlpi_cond *c, dlpi_mutex *m, uint64_t until) {
    const uint64_t now = dlpi_now_ns(), left = until > now ? until - now : 0;
    const struct timespec t = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    return pthread_cond_timedwait_relative_np(&c->at, &m->at, &t) == 0;
}

/* Its barriers for all threads are private calls. */
static int dlpi_heavy_register(int shared) { return (void)shared, 0; }
static int dlpi_heavy_barrier(int shared) { return (void)shared, 0; }

/* ---- memory, by macOS ---- */

static int dlpi_pages_huge(void *at, uint64_t bytes) { return (void)at, (void)bytes, ENOTSUP; }

/* A child inherits the page as it is, but has another number. */
static void dlpi_page_mark(void *at, uint64_t bytes) {
    const int32_t process = dlpi_process_number();
    (void)bytes;
    memcpy(at, &process, sizeof process);
}
static bool dlpi_page_marked(const void *at) {
    const int32_t process = dlpi_process_number();
    return memcmp(at, &process, sizeof process) == 0;
}

/* ---- files, by macOS ---- */

/* Read ahead what will be needed, and switch the read-ahead of a file on and off. */
static void dlpi_handle_advise(dlpi_handle f, uint64_t at, uint64_t n, int advice) {
    struct radvisory next = {(off_t)at, n < INT_MAX ? (int)n : INT_MAX};
    if (advice == DLPI_WILL_NEED)
        (void)fcntl(f, F_RDADVISE, &next);
    else
        (void)fcntl(f, F_RDAHEAD, advice != DLPI_AT_RANDOM);
}

/* Have the disk write its cache, too, which fsync does not. Some file systems know only fsync. */
static int dlpi_handle_sync(dlpi_handle f) {
    return fcntl(f, F_FULLFSYNC) == 0 || fsync(f) == 0 ? 0 : errno;
}

static int dlpi_mapping_load(const uint8_t *map, uint64_t at, uint64_t n) {
    return (void)map, (void)at, (void)n, ENOTSUP;
}

/* Ask for the page of a mapping. For a file that is read, the system does not say it. */
static bool dlpi_handle_is_here(dlpi_handle f, const uint8_t *map, uint64_t at) {
    const uint64_t from = at - at % (uint64_t)sysconf(_SC_PAGESIZE);
    char in = MINCORE_INCORE;
    (void)f;
    return map == NULL || mincore(map + from, 1, &in) != 0 || (in & MINCORE_INCORE) != 0;
}

static int dlpi_handle_become(dlpi_handle f, dlpi_handle as) {
    const int rc = dup2(as, f) >= 0 && fcntl(f, F_SETFD, FD_CLOEXEC) == 0 ? 0 : errno;
    close(as);
    return rc;
}

/* ---- the machine, by macOS ---- */

static int dlpi_cpu_here(void) { return -1; }
static uint64_t dlpi_cpu_quota(void) { return UINT64_MAX; }

static int dlpi_cpu_count(void) {
    const int n = dlpi_cpus_online();
    return n < 1 ? 1 : n;
}

/* n: at most 256 */
static bool dlpi_random(void *to, size_t n) { return getentropy(to, n) == 0; }

/* The system tells a thread's time alone. */
static void dlpi_thread_times(uint64_t *used_ns, uint64_t *waited_ns, uint64_t *sleeps) {
    (void)waited_ns, (void)sleeps;
    if (used_ns != NULL) *used_ns = dlpi_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t dlpi_cpu_place(int cpu) { return (uint64_t)cpu; }
static uint64_t dlpi_memory_limit(void) { return UINT64_MAX; }
static uint64_t dlpi_memory_allowed(void) { return UINT64_MAX; }
static uint64_t dlpi_memory_available(void) { return UINT64_MAX; }

static int64_t dlpi_process_parent(int64_t process) { return process == 0 ? getppid() : 0; }
static bool dlpi_process_began_with(int64_t process, const char *entry) {
    return (void)process, (void)entry, false;
}
#endif
