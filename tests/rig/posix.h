/* The system's headers, and time: what tests want of them without the implementation. */
#ifndef POSIX_H
#define POSIX_H
#ifdef _WIN32
#include "windows.h"
#else

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sanitizers.h"

#define O_BINARY 0         /* files have no other mode */
#define TEST_FORKS 1       /* a test may start processes of its own */
#ifdef DLPIPE_THREADS_ONLY /* are there worker processes? */
#define TEST_PROCESSES 0
#else
#define TEST_PROCESSES 1
#endif

static inline uint64_t test_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Set the time of a file's last change, in seconds since 1970. Returns 0 or -1. */
static inline int test_set_time(const char *path, long seconds) {
    const struct timespec t[2] = {{seconds, 0}, {seconds, 0}};
    return utimensat(AT_FDCWD, path, t, 0);
}

static inline void test_pause(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

#endif

#if !TEST_PROCESSES
/* As dlpipe_shm.h has it, for descs that no case uses then. */
typedef struct dlp_shm_desc {
    const char *name;
    int32_t allow_fork_with_threads, max_kills, grace_ms, huge_pages, share, max_subscribers,
        serve_only, wait_subscribers;
} dlp_shm_desc;
#endif
#endif
