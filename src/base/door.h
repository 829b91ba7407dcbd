/* needs: parts */
#pragma once
/* tests: system/source/push, system/source/push_life */
#include "base/places.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-door       HOW ANOTHER PROGRAM COMES IN
   A path is a socket. A thread of the program that has made it answers each program that connects:
   one message with a word that tells what it is, a file, and a pidfd. So the file has no name by
   which a third program could cut it, and the other program may be in another pid or mount
   namespace. The thread answers also while the program pauses.

   A socket that nobody listens at was left by a program that was killed; a new one takes its path
   over. A child that the killed program forked may still have the socket: since Linux 6.5 the
   socket tells whether the program that listened lives. Two programs that make or remove the same
   path at the same time are kept apart by a lock on the directory. */

#if DLPI_HAS_SHARING
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { DLPI_DOOR_MS = 5000 }; /* ms to wait for the lock of a directory, or for an answer */

/* Bytes of a path, at most. */
#define DLPI_DOOR_PATH ((int)sizeof(((struct sockaddr_un *)0)->sun_path) - 1)

typedef struct dlpi_door {
    int fd;             /* the listening socket; -1: there is no door */
    int memory, reader; /* descriptors that it hands out: a file, a pidfd; borrowed */
    uint64_t hello;     /* the word that an answer begins with */
    dev_t dev;          /* device and inode of the socket at the path */
    ino_t ino;
    dlpi_thread thread;
} dlpi_door;

/* ---- the path ---- */

/* Write the socket address of a path into *to. Returns false if the path is empty or too long. */
static bool dlpi_door_address(struct sockaddr_un *to, const char *path) {
    size_t n = strlen(path);
    memset(to, 0, sizeof *to);
    to->sun_family = AF_UNIX;
    if (n == 0 || n >= sizeof to->sun_path) return false;
    memcpy(to->sun_path, path, n);
    return true;
}

static int dlpi_door_socket(int flags) {
    return dlpi_fd_above(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

/* Connect to the socket at an address, without a wait. Returns the descriptor, or -1 with errno:
   ECONNREFUSED if no program listens, EAGAIN if too many others wait for an answer. */
static int dlpi_door_knock(const struct sockaddr_un *at) {
    int errnum, fd = dlpi_door_socket(SOCK_NONBLOCK);
    if (fd < 0 || connect(fd, (const struct sockaddr *)(const void *)at, sizeof *at) == 0)
        return fd;
    errnum = errno;
    close(fd);
    errno = errnum;
    return -1;
}

/* True if the program that listens is gone, and only a child of it has the socket still. */
static bool dlpi_door_deserted(int connected) {
    int pidfd = -1;
    socklen_t bytes = sizeof pidfd;
    bool gone;
    if (getsockopt(connected, SOL_SOCKET, 77, &pidfd, &bytes) != 0) /* SO_PEERPIDFD (Linux 6.5) */
        return errno == ESRCH || errno == EINVAL; /* it is not even a zombie any more */
    gone = dlpi_process_gone(pidfd);
    close(pidfd);
    return gone;
}

/* True if the socket at the address was left by a program that is gone, or if nothing is there.
   Returns false with errno EEXIST if it is no socket or is in use. */
static bool dlpi_door_stale(const struct sockaddr_un *at) {
    struct stat st;
    bool stale;
    int fd;
    if (lstat(at->sun_path, &st) != 0) return errno == ENOENT;
    errno = EEXIST;
    if (!S_ISSOCK(st.st_mode)) return false;
    fd = dlpi_door_knock(at);
    stale = fd >= 0 ? dlpi_door_deserted(fd) : errno == ECONNREFUSED;
    if (fd >= 0) close(fd);
    errno = EADDRINUSE;
    return stale;
}

/* Open the directory of the path, and lock it, within DLPI_DOOR_MS. Returns the descriptor, or -1
   with errno. */
static int dlpi_door_lock(const char *path) {
    char name[DLPI_PATH_MAX];
    int fd, errnum = 0;
    dlpi_directory_of(name, path);
    fd = dlpi_fd_above(open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0) return -1;
    for (int i = 0; i < DLPI_DOOR_MS / 2; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        errnum = errno;
        if (errnum != EWOULDBLOCK && errnum != EINTR) break;
        dlpi_sleep(2000000);
    }
    close(fd);
    errno = errnum;
    return -1;
}

static void dlpi_door_unlock(int directory) {
    flock(directory, LOCK_UN); /* a child that was forked in between has it, too */
    close(directory);
}

/* ---- the reader's side ---- */

/* Send the two descriptors to the producer at `connected`. It is no error if the producer does not
   take them, or is gone. */
static void dlpi_door_give(const dlpi_door *d, int connected) {
    uint64_t hello = d->hello;
    const int fds[2] = {d->memory, d->reader};
    struct iovec part = {&hello, sizeof hello};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof fds)];
    } to;
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &to, .msg_controllen = sizeof to.room};
    memset(&to, 0, sizeof to);
    to.head.cmsg_level = SOL_SOCKET;
    to.head.cmsg_type = SCM_RIGHTS;
    to.head.cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(&to.head), fds, sizeof fds);
    (void)sendmsg(connected, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Answer producers, until the socket is shut down. The thread takes no lock, not even that of an
   allocation: worker processes may be forked meanwhile (shm/start.h). */
static void *dlpi_door_serve(void *arg) {
    const dlpi_door *d = arg;
    dlpi_thread_name(DLPI_PUSH_THREAD);
    for (;;) {
        int fd = dlpi_fd_above(accept4(d->fd, NULL, NULL, SOCK_CLOEXEC));
        if (fd < 0 && errno == EINVAL) return NULL; /* it is shut down */
        if (fd < 0 && errno != EINTR) dlpi_sleep(10000000);
        if (fd < 0) continue;
        dlpi_door_give(d, fd);
        close(fd);
    }
}

/* Start the thread, with all signals blocked. Returns 0 or errno. */
static int dlpi_door_start(dlpi_door *d) {
    sigset_t all, before;
    int rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = dlpi_thread_start(&d->thread, dlpi_door_serve, d, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* Listen at the path, which is locked. Returns 0 or errno. */
static int dlpi_door_listen(dlpi_door *d, const struct sockaddr_un *at) {
    const struct sockaddr *name = (const struct sockaddr *)(const void *)at;
    struct stat st;
    int rc = bind(d->fd, name, sizeof *at);
    if (rc != 0 && errno == EADDRINUSE && dlpi_door_stale(at)) {
        unlink(at->sun_path);
        rc = bind(d->fd, name, sizeof *at);
    }
    if (rc != 0) return errno;
    if (chmod(at->sun_path, 0600) == 0 && lstat(at->sun_path, &st) == 0 && listen(d->fd, 64) == 0) {
        d->dev = st.st_dev;
        d->ino = st.st_ino;
        if ((rc = dlpi_door_start(d)) == 0) return 0;
        errno = rc;
    }
    rc = errno;
    unlink(at->sun_path);
    return rc;
}

/* Make a socket at `path`, and start the thread that lets programs in. d: says what it hands out,
   and must stay at its address until close. Returns 0 or errno: ENAMETOOLONG if the path is empty
   or longer than DLPI_DOOR_PATH, EEXIST if a file is there, EADDRINUSE if a program listens there.
 */
static int dlpi_door_begin(dlpi_door *d, const char *path) {
    struct sockaddr_un at;
    int directory, errnum;
    d->fd = -1;
    if (!dlpi_door_address(&at, path)) return ENAMETOOLONG;
    if ((directory = dlpi_door_lock(path)) < 0) return errno;
    d->fd = dlpi_door_socket(0);
    errnum = d->fd < 0 ? errno : dlpi_door_listen(d, &at);
    dlpi_door_unlock(directory);
    if (errnum == 0) return 0;
    if (d->fd >= 0) close(d->fd);
    d->fd = -1;
    return errnum;
}

/* Remove the path, if it still leads to this socket, and end the thread. */
static void dlpi_door_close(dlpi_door *d, const char *path) {
    struct stat st;
    int directory;
    if (d->fd < 0) return;
    directory = dlpi_door_lock(path);
    if (lstat(path, &st) == 0 && st.st_dev == d->dev && st.st_ino == d->ino) unlink(path);
    if (directory >= 0) dlpi_door_unlock(directory);
    shutdown(d->fd, SHUT_RDWR);
    dlpi_thread_join(&d->thread);
    close(d->fd);
    d->fd = -1;
}

/* ---- a producer's side ---- */

/* Read the answer, and its two descriptors into fds[2]. Returns 0, EPROTO if the answer does not
   begin as expected, or an errno. */
static int dlpi_door_hear(int connected, uint64_t expects, int *fds) {
    uint64_t hello = 0;
    struct iovec part = {&hello, sizeof hello};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(2 * sizeof *fds)];
    } from;
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &from,
                       .msg_controllen = sizeof from.room};
    size_t bytes = 0;
    ssize_t n = recvmsg(connected, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int errnum = errno;
    if (n < 0) return errnum;
    if (m.msg_controllen >= sizeof from.head && from.head.cmsg_type == SCM_RIGHTS)
        bytes = from.head.cmsg_len - CMSG_LEN(0);
    memcpy(fds, CMSG_DATA(&from.head), bytes < 2 * sizeof *fds ? bytes : 2 * sizeof *fds);
    for (size_t i = 0; i < 2 && (i + 1) * sizeof *fds <= bytes; i++) fds[i] = dlpi_fd_above(fds[i]);
    return n == sizeof hello && hello == expects && fds[0] >= 0 && fds[1] >= 0 ? 0 : EPROTO;
}

/* Ask what listens at the path for the file and the pidfd. Returns as dlpi_door_hear; also
   ETIMEDOUT, and ENAMETOOLONG. fds: [2] written, -1 where there is none. */
static int dlpi_door_ask(const char *path, uint64_t hello, int *fds) {
    struct sockaddr_un at;
    uint64_t until = dlpi_now_ns() + UINT64_C(1000000) * DLPI_DOOR_MS, now;
    int fd, errnum = ETIMEDOUT;
    fds[0] = fds[1] = -1;
    if (!dlpi_door_address(&at, path)) return ENAMETOOLONG;
    while ((fd = dlpi_door_knock(&at)) < 0 && errno == EAGAIN && dlpi_now_ns() < until)
        dlpi_sleep(2000000);
    if (fd < 0) return errno;
    while (errnum == ETIMEDOUT && (now = dlpi_now_ns()) < until) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        if (poll(&look, 1, (int)((until - now) / 1000000u) + 1) > 0)
            errnum = dlpi_door_hear(fd, hello, fds);
    }
    close(fd);
    return errnum;
}
/* True if what is at the path is no socket. */
static bool dlpi_door_none(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode);
}
#else
enum { DLPI_DOOR_PATH = 0 };

typedef struct dlpi_door { /* there is none */
    int fd, memory, reader;
    uint64_t hello;
} dlpi_door;

static int dlpi_door_begin(dlpi_door *d, const char *path) {
    (void)d, (void)path;
    return ENOSYS;
}
static void dlpi_door_close(dlpi_door *d, const char *path) { (void)d, (void)path; }
#endif
