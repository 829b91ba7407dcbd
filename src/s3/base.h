#pragma once
#include "api/s3_client.h"
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-base         SYSTEM HEADERS, SMALL THINGS */

#include <errno.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef DLPIPE_IMPLEMENTATION_DONE /* dlpipe.h's, for programs without it */
/* fd, or a copy of it that is none of the first three, as are all descriptors of ours: where a
   program has closed those (a daemon), what somebody prints would go into our file. -1: as fd, or
   there is no other; errno tells. */
__attribute__((unused)) static int dlpi_fd_above(int fd) {
    int above, errnum;
    if (fd < 0 || fd > 2) return fd;
    above = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    errnum = errno;
    close(fd);
    errno = errnum;
    return above;
}

/* The same for two, of pipe2 or socketpair, which returned rc. Returns 0, or -1 with errno. */
__attribute__((unused)) static int dlpi_pair_above(int rc, int *fd) {
    if (rc != 0) return rc;
    fd[0] = dlpi_fd_above(fd[0]);
    fd[1] = dlpi_fd_above(fd[1]);
    if (fd[0] >= 0 && fd[1] >= 0) return 0;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    fd[0] = fd[1] = -1;
    return -1;
}

/* What the environment says of paths, credentials, servers, processes: nothing where the program
   has more rights than who started it (setuid), and wrote that. */
__attribute__((unused)) static const char *dlpi_env(const char *name) {
#if defined(__linux__)
    return secure_getenv(name);
#else
    return getenv(name);
#endif
}
#endif

#define DLPI_S3_LINE 128u     /* what different threads write lies so far apart */
#define DLPI_S3_MS 1000000ull /* in nanoseconds */

static inline uint64_t dlpi_s3_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Unix time. */
static inline int64_t dlpi_s3_real_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

/* Copy a string, cut where it is too long, always terminated. Returns whether all of it fitted. */
__attribute__((unused)) static bool dlpi_s3_copy(char *to, size_t size, const char *from) {
    size_t n = strlen(from), take;
    if (size == 0) return false;
    take = n < size ? n : size - 1;
    memmove(to, from, take);
    to[take] = '\0';
    return n < size;
}

/* Have no control byte in what is one line: keys may hold any. */
static inline void dlpi_s3_one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127) *text = '?';
}

/* Zero what was secret. explicit_bzero is a call that the optimiser does not take out. */
static inline void dlpi_s3_wipe(void *at, size_t n) { explicit_bzero(at, n); }

/* Fill in code, errnum and message, if there is a record to fill in. Returns code. */
__attribute__((unused, format(printf, 4, 5))) static int dlpi_s3_set_error(dlp_s3_error *err,
                                                                           int code, int errnum,
                                                                           const char *format,
                                                                           ...) {
    va_list args;
    if (!err) return code;
    err->code = code;
    err->errnum = errnum;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

/* The next of a series of random numbers (xorshift64*; Vigna 2016). state: not 0. */
static inline uint64_t dlpi_s3_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1Dull;
}
