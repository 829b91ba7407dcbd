#pragma once
/* tests: system/core/pipe_fault, system/shm/shm_deaths */
#include "base/platform.h"
#ifndef DLPI_DESCRIPTORS /* both dlpipe.h and dlpipe_s3.h have it */
#define DLPI_DESCRIPTORS
#if !defined(_WIN32)

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Return fd or, if it is 0, 1 or 2, a copy of it above 2, and close fd. So no descriptor of ours is
   one of the first three: if a program has closed those (a daemon), what somebody prints would go
   into our file. Returns -1 with errno if fd is -1 or no descriptor is left. */
DLPI_UNREAD static int dlpi_fd_above(int fd) {
    int above, errnum;
    if (fd < 0 || fd > 2) return fd;
    above = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    errnum = errno;
    close(fd);
    errno = errnum;
    return above;
}

/* Move two descriptors above 2. rc: what pipe2 or socketpair, which opened them, returned. Returns
   0, or -1 with errno; then both are closed. */
DLPI_UNREAD static int dlpi_pair_above(int rc, int *fd) {
    if (rc != 0) return rc;
    fd[0] = dlpi_fd_above(fd[0]);
    fd[1] = dlpi_fd_above(fd[1]);
    if (fd[0] >= 0 && fd[1] >= 0) return 0;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    fd[0] = fd[1] = -1;
    return -1;
}

/* Return the limit on the numbers of descriptors (ulimit -n) of this process. */
DLPI_UNREAD static uint64_t dlpi_fd_limit(void) {
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    return most.rlim_cur;
}

/* True if a file may be as large as that. If not, errno is EFBIG. Growing a file past the limit on
   files (ulimit -f) would end the program, by SIGXFSZ. */
DLPI_UNREAD static bool dlpi_file_may_be(uint64_t bytes) {
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
        bytes <= most.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* Open a text file as a stream. flags: for open; mode: for fdopen. Returns NULL with errno. */
DLPI_UNREAD static FILE *dlpi_stream_open(const char *path, int flags, const char *mode) {
    int fd = dlpi_fd_above(open(path, flags | O_CLOEXEC, 0666));
    FILE *f = fd >= 0 ? fdopen(fd, mode) : NULL;
    if (f == NULL && fd >= 0) close(fd);
    return f;
}

#endif
#endif
