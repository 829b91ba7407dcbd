#pragma once
/* tests: system/core/pipe_fault, system/shm/shm_deaths */
#include "base/platform.h"
#ifndef DLPI_SYSTEM /* both dlpipe.h and dlpipe_s3.h have it */
#define DLPI_SYSTEM

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

/* May a file be as large as that? Growing it past the limit on files (ulimit -f) would end the
   program, by SIGXFSZ. If not, errno is EFBIG. */
__attribute__((unused)) static bool dlpi_file_may_be(uint64_t bytes) {
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
        bytes <= most.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* A stream for files that are read or written as text. mode: as flags. NULL: errno. */
__attribute__((unused)) static FILE *dlpi_stream_open(const char *path, int flags,
                                                      const char *mode) {
    int fd = dlpi_fd_above(open(path, flags | O_CLOEXEC, 0666));
    FILE *f = fd >= 0 ? fdopen(fd, mode) : NULL;
    if (f == NULL && fd >= 0) close(fd);
    return f;
}

#endif
