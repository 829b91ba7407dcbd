#pragma once
/* tests: system/source/push_life, system/shm/shm_subscriber */
#include "base/linux.h"
#if DLPI_HAS_SHARING
/* ---------------------------------------------------------------------------------------------
   >>impl-places     PLACES: WHO LIVES
   A place is a byte of a file that processes share, whether or not the file is so long. The process
   that has the place holds a lock on this byte, by an open file description of its own. The kernel
   frees the lock when the last process that has the description is gone. So no process number says
   who lives, and processes of other pid namespaces may take places, too. A child that was forked by
   the holder, and has not called exec, has the description as well. */

#define DLPI_PUSH_THREAD "dlp-push" /* name of the thread that answers producers of a push */

static struct flock dlpi_place(uint32_t i, short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)i, .l_len = 1};
}

/* Take place i. Returns false if another description has it. */
static bool dlpi_place_take(int fd, uint32_t i) {
    struct flock f = dlpi_place(i, F_WRLCK);
    return fcntl(fd, F_OFD_SETLK, &f) == 0;
}

/* True if another description has place i, or if the kernel does not say. */
static bool dlpi_place_taken(int fd, uint32_t i) {
    struct flock f = dlpi_place(i, F_WRLCK);
    return fcntl(fd, F_OFD_GETLK, &f) != 0 || f.l_type != F_UNLCK;
}

/* Give place i back, also for children that have the description. */
static void dlpi_place_free(int fd, uint32_t i) {
    struct flock f = dlpi_place(i, F_UNLCK);
    (void)fcntl(fd, F_OFD_SETLK, &f);
}

/* True if the process of a pidfd is gone. fd: -1 means not known, so false. */
static bool dlpi_process_gone(int fd) {
    struct pollfd look = {.fd = fd, .events = POLLIN};
    return poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0;
}

/* Open a pidfd of the process (Linux 5.3). Returns -1 with errno set if this fails. */
static int dlpi_pidfd_open(pid_t pid) { return dlpi_fd_above((int)syscall(434, pid, 0u)); }

/* Open a pidfd of the process. Returns 0 or errno. */
static int dlpi_process_watch(int *to, int32_t process) {
    *to = dlpi_pidfd_open((pid_t)process);
    return *to < 0 ? errno : 0;
}
#endif
