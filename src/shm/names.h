#pragma once
/* tests: system/shm/names, fuzz/fuzz_region */
#include "base/descriptors.h"
#include "fail/fail.h"
#include "api/shm_names.h"
#include "shm/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-impl-names       RECORDS AND LOCKS
   A name is a file. The process that holds its lock (flock, on the open file description) owns the
   name. After it got the lock, a process looks whether the path still leads to the file that it
   locked. If not, the name was removed in between, and the process begins again. The lock is
   inherited by fork. The kernel frees it when the last process that has it is gone.
     The file is made by O_EXCL, then locked, then written. A creator that dies in between leaves a
     stale name, complete or not. A name whose lock is free is taken over in place. Only the holder
     of the lock removes a name.
   A process that lists names takes each lock for a moment. So a creator that finds the lock held
   looks again for 50 ms. */

#ifndef DLPI_SHM_DIR
#define DLPI_SHM_DIR "/dev/shm"
#endif
#define DLPI_NAME_PREFIX "dlpipe."
#define DLPI_NAME_PATH (sizeof DLPI_SHM_DIR + sizeof DLPI_NAME_PREFIX + 64)
#define DLPI_NAME_MAGIC UINT64_C(0x656d616e706c6400)
#define DLPI_NAME_FORMAT 1u

/* Open the directory of a descriptor that was just opened, or is -1. Returns NULL with errno. */
static DIR *dlpi_dir_open(int fd) {
    DIR *dir;
    fd = dlpi_fd_above(fd);
    dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL && fd >= 0) close(fd);
    return dir;
}

typedef struct dlpi_name_rec {
    uint64_t magic;
    uint32_t format, bytes;
    char name[64];
    int32_t pid, memfd;
    uint32_t uid, pad0;
    uint64_t token[2];
    uint64_t started_real; /* CLOCK_REALTIME of the start, ns */
    uint64_t check;        /* hash of all fields before it */
} dlpi_name_rec;
_Static_assert(sizeof(dlpi_name_rec) == 128, "record layout");

/* True if a name has 1 to 63 of A-Z a-z 0-9 . _ - and no dot first. It may then be part of a path.
   */
static bool dlpi_name_ok(const char *name) {
    size_t n = name ? strnlen(name, 64) : 0;
    if (n < 1 || n > 63 || name[0] == '.') return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!letter && c != '.' && c != '_' && c != '-') return false;
    }
    return true;
}

/* Write the path of a name into path[DLPI_NAME_PATH]. A signal handler may call this. */
static void dlpi_name_path(const char *name, char *path) {
    static const char head[] = DLPI_SHM_DIR "/" DLPI_NAME_PREFIX;
    size_t n = strnlen(name, 63);
    memcpy(path, head, sizeof head - 1);
    memcpy(path + sizeof head - 1, name, n);
    path[sizeof head - 1 + n] = 0;
}

/* True if the path leads to the file that is open as fd. A signal handler may call this. */
static bool dlpi_name_is(const char *path, int fd) {
    struct stat at, open_file;
    return fstat(fd, &open_file) == 0 && lstat(path, &at) == 0 && at.st_dev == open_file.st_dev &&
           at.st_ino == open_file.st_ino;
}

/* True if only this user can write the record fd; else errno tells. reads: root reads
   everybody's. */
static bool dlpi_name_ours(int fd, bool reads) {
    struct stat st;
    if (fstat(fd, &st) != 0) return false;
    errno = EACCES;
    if (st.st_uid != geteuid() && !(reads && geteuid() == 0)) return false;
    return S_ISREG(st.st_mode) && (st.st_mode & 077) == 0;
}

static uint64_t dlpi_name_check(const dlpi_name_rec *r) {
    uint64_t words[offsetof(dlpi_name_rec, check) / 8], h = DLPI_NAME_MAGIC;
    memcpy(words, r, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++) h = dlp_hash(h, words[i], i, 1);
    return h;
}

/* Check the n bytes of a record's file. *out is written on success only. Returns 0 or a code. */
static int dlpi_name_parse(const void *bytes, size_t n, dlpi_name_rec *out) {
    dlpi_name_rec r;
    if (n < sizeof r) return DLP_ERR_CORRUPT;
    memcpy(&r, bytes, sizeof r);
    if (r.magic != DLPI_NAME_MAGIC) return DLP_ERR_CORRUPT;
    if (r.format != DLPI_NAME_FORMAT) return DLP_ERR_UNSUPPORTED;
    if (r.bytes < sizeof r || r.check != dlpi_name_check(&r)) return DLP_ERR_CORRUPT;
    if (!dlpi_name_ok(r.name)) return DLP_ERR_CORRUPT; /* nor is it terminated, then */
    if (r.pid <= 0 || r.memfd < 0) return DLP_ERR_CORRUPT;
    *out = r;
    return DLP_OK;
}

/* Read all of `bytes` bytes at an offset of a file. Returns false if they are not there. */
static bool dlpi_shm_read(int fd, void *to, uint64_t bytes, uint64_t offset) {
    uint8_t *at = to;
    while (bytes > 0) {
        ssize_t n = pread(fd, at, bytes < (1u << 30) ? (size_t)bytes : 1u << 30, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return true;
}

static int dlpi_name_read(int fd, dlpi_name_rec *out) {
    dlpi_name_rec r;
    if (!dlpi_shm_read(fd, &r, sizeof r, 0)) return DLP_ERR_CORRUPT;
    return dlpi_name_parse(&r, sizeof r, out);
}

/* Open, or make, the file at path and lock it. Returns its descriptor, or -1 with errno.
   EWOULDBLOCK means that another process holds the lock: then *owner is its pid, or 0. */
static int dlpi_name_lock(const char *path, int32_t *owner) {
    const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    struct timespec pause = {0, 2000000};
    int held = 0;
    for (int tries = 0; held < 25 && tries < 1000; tries++) {
        int errnum, fd = dlpi_fd_above(open(path, flags | O_CREAT | O_EXCL, 0600));
        if (fd >= 0)
            fchmod(fd, 0600); /* whatever the umask */
        else if (errno == EEXIST)
            fd = dlpi_fd_above(open(path, flags));
        if (fd < 0 && errno == ENOENT) continue; /* removed in between */
        if (fd < 0) return -1;
        errnum = dlpi_name_ours(fd, false) ? 0 : errno;
        if (errnum == 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) errnum = errno;
        if (errnum == 0 && dlpi_name_is(path, fd)) return fd;
        if (errnum == EWOULDBLOCK) {
            dlpi_name_rec r;
            *owner = dlpi_name_read(fd, &r) == DLP_OK ? r.pid : 0;
            held++;
            nanosleep(&pause, NULL);
        }
        close(fd);
        errno = errnum;
        if (errnum != 0 && errnum != EWOULDBLOCK) return -1;
    }
    errno = held > 0 ? EWOULDBLOCK : ENOENT; /* or there is no such directory */
    return -1;
}

/* Fail the pipe because of its name. errnum: errno, or 0. Returns code. */
static int dlpi_name_fail(dlp_pipe *p, int code, int errnum, const char *what) {
    dlp_error e;
    dlpi_error_set(&e, code, "shm.name", "%s%s%s: " DLPI_SHM_DIR "/" DLPI_NAME_PREFIX "%s", what,
                   errnum ? ": " : "", errnum ? strerror(errnum) : "", p->shm_name);
    e.errnum = errnum;
    return dlpi_pipe_fail(p, &e);
}

static int dlpi_name_clash(dlp_pipe *p, int32_t owner) {
    char what[96] = "the name is taken; choose another";
    if (owner > 0)
        snprintf(what, sizeof what, "process %d has the name; choose another", (int)owner);
    return dlpi_name_fail(p, DLP_ERR_STATE, 0, what);
}

/* Make the pipe's name known. p->shm_name is checked, the region has its token. Leaves p->name_fd
   open and locked, to be inherited by fork. Only one process removes it. Returns 0 or a code. */
static int dlpi_name_create(dlp_pipe *p) {
    const dlpi_pipe_rec *pipe = dlpi_area_at(p, DLPI_REC_PIPE, 0);
    char path[DLPI_NAME_PATH];
    dlpi_name_rec r;
    int32_t owner = 0;
    int fd;
    if (p->memfd < 0) return dlpi_name_fail(p, DLP_ERR_UNSUPPORTED, 0, "a name needs a memfd");
    dlpi_name_path(p->shm_name, path);
    fd = dlpi_name_lock(path, &owner);
    if (fd < 0 && errno == EWOULDBLOCK) return dlpi_name_clash(p, owner);
    if (fd < 0) return dlpi_name_fail(p, DLP_ERR_SYSTEM, errno, "the name can't be made");
    memset(&r, 0, sizeof r);
    r.magic = DLPI_NAME_MAGIC;
    r.format = DLPI_NAME_FORMAT;
    r.bytes = sizeof r;
    dlpi_copy_text(r.name, sizeof r.name, p->shm_name);
    r.pid = pipe->pid;
    r.memfd = p->memfd;
    r.uid = pipe->uid;
    memcpy(r.token, pipe->token, sizeof r.token);
    r.started_real = pipe->started_real;
    r.check = dlpi_name_check(&r);
    p->name_fd = fd;
    errno = 0;
    if (ftruncate(fd, 0) == 0 && pwrite(fd, &r, sizeof r, 0) == (ssize_t)sizeof r) return DLP_OK;
    owner = errno ? errno : ENOSPC;
    unlink(path);
    close(fd);
    p->name_fd = -1;
    return dlpi_name_fail(p, DLP_ERR_SYSTEM, owner, "the name can't be written");
}

/* Remove the name while its lock is held, then close its file. A signal handler may call this. */
static void dlpi_name_remove(dlp_pipe *p) {
    char path[DLPI_NAME_PATH];
    int saved = errno;
    if (p->name_fd < 0) return;
    dlpi_name_path(p->shm_name, path);
    if (dlpi_name_is(path, p->name_fd)) unlink(path);
    close(p->name_fd);
    p->name_fd = -1;
    errno = saved;
}

/* Describe the record at path. Returns DLP_OK, or DLP_ERR_SYSTEM with errno if none of ours is
   there. */
static int dlpi_name_look(const char *path, dlp_shm_name *out) {
    struct stat st;
    dlpi_name_rec r;
    int fd;
    if (lstat(path, &st) != 0) return DLP_ERR_SYSTEM;
    errno = EINVAL;
    if (!S_ISREG(st.st_mode)) return DLP_ERR_SYSTEM;
    out->uid = (uint32_t)st.st_uid;
    out->alive = -1;
    fd = dlpi_fd_above(open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0) return errno == EACCES ? DLP_OK : DLP_ERR_SYSTEM;
    out->alive = flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (dlpi_name_read(fd, &r) == DLP_OK) {
        uint64_t ns = dlpi_real_ns();
        out->pid = r.pid;
        out->age_ms = ns > r.started_real ? (ns - r.started_real) / 1000000u : 0;
    }
    close(fd);
    return DLP_OK;
}

/* Remove a name without an owner. Returns 1 if it is removed, 0 if it is in use or not there;
   DLP_ERR_SYSTEM with errno if it is not ours. */
static int dlpi_name_sweep(const char *path) {
    int removed = 0, errnum, fd;
    fd = dlpi_fd_above(open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0) return errno == ENOENT ? 0 : DLP_ERR_SYSTEM;
    errnum = dlpi_name_ours(fd, false) ? 0 : errno;
    if (errnum == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        removed = dlpi_name_is(path, fd) && unlink(path) == 0;
    close(fd);
    errno = errnum;
    return errnum ? DLP_ERR_SYSTEM : removed;
}
