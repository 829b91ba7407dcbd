/* needs: parts */
#pragma once
/* tests: system/stages/parts, system/shm/shm_parts */
#include "api/parts.h"
#include "source/new_file.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-part-files PART QUEUE: FILES, DOWNLOADS
   A worker that downloads a file holds the lock of its temporary name. After it waited for the
   lock, the worker looks again: the file may be there by now, and the file that the worker has open
   may have been renamed or removed. A file gets its own name by one rename, after its bytes are on
   disk. So a worker that dies before that leaves nothing under that name, and the kernel frees the
   lock. */

#include <sys/file.h>

DLPI_COLD static int dlpi_file_fail(const dlp_part *part, const char *path, const char *call) {
    int errnum = errno;
    return dlp_fail(part->call, errnum, "%s: %s: %s%s", dlpi_path_end(path), call, strerror(errnum),
                    dlpi_path_cure(errnum));
}

/* Say in the part's call what the download said, with the path before it. rc: what the download
   returned. Returns the failure's code. */
static int dlpi_download_fail(const dlp_part *part, const char *path, int rc) {
    char text[256];
    memcpy(text, part->call->message, sizeof text);
    if (text[0] == 0) snprintf(text, sizeof text, "download returned %d", rc);
    dlp_fail(part->call, *part->call->errnum, "%s: %.100s", dlpi_path_end(path), text);
    return rc == DLP_ERR_LENGTH ? rc : DLP_ERR_CALLBACK; /* no part is left out by a download */
}

static bool dlpi_file_is(int fd, const char *path) {
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Make a rename in the directory of a path last on disk. Returns 0, or -1 with errno. */
static int dlpi_directory_sync(const char *path) {
    char dir[DLPI_PATH_MAX];
    int fd, rc;
    dlpi_directory_of(dir, path);
    fd = dlpi_fd_above(open(dir, O_RDONLY | O_CLOEXEC));
    if (fd < 0) return -1;
    rc = fsync(fd);
    close(fd);
    return rc;
}

/* Open the temporary file, new or as another download left it. Returns its descriptor, or -1 with
   errno if what has that name can't be such a file. */
static int dlpi_download_open(const char *tmp) {
    struct stat st;
    mode_t mode = dlpi_directory_shared(tmp, &st) ? 0600 : 0666; /* nobody else is to lock it */
    int fd;
    do {
        if ((fd = dlpi_file_new(tmp, mode)) >= 0 || errno != EEXIST) return fd;
        fd = dlpi_fd_above(open(tmp, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    } while (fd < 0 && errno == ENOENT); /* it got its own name in between */
    if (fd < 0) return -1;
    /* a second name of it would be a file that is somebody's, to be written over */
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink <= 1 &&
        dlpi_file_trusted(&st, tmp))
        return fd;
    close(fd);
    errno = EACCES;
    return -1;
}

/* Open, lock and empty the temporary file. Returns its descriptor; -1 after a failure, which is
   said in the part's call; or -2 if `path` is there by now. */
static int dlpi_download_begin(const dlp_part *part, const char *path, const char *tmp) {
    for (;;) {
        int fd = dlpi_download_open(tmp), rc;
        if (fd < 0) return dlpi_file_fail(part, tmp, "open"), -1;
        while ((rc = flock(fd, LOCK_EX)) != 0 && errno == EINTR) continue;
        if (rc == 0 && access(path, F_OK) == 0) {
            if (dlpi_file_is(fd, tmp)) unlink(tmp);
            close(fd);
            return -2;
        }
        if (rc == 0 && dlpi_file_is(fd, tmp)) {
            if (ftruncate(fd, 0) == 0) return fd;
            rc = -1;
        }
        if (rc != 0) dlpi_file_fail(part, tmp, "flock or ftruncate");
        close(fd);
        if (rc != 0) return -1;
    }
}

/* Download a part's file to `path`, unless another process has. Returns 0 or a failure's code. */
static int dlpi_download(const dlp_part_files *f, const dlp_part *part, const char *path) {
    char tmp[DLPI_PATH_MAX];
    int fd, rc;
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp) {
        errno = ENAMETOOLONG;
        return dlpi_file_fail(part, path, "open");
    }
    if ((fd = dlpi_download_begin(part, path, tmp)) < 0) return fd == -2 ? 0 : DLP_ERR_CALLBACK;
    rc = f->download(f->user, part, path, fd);
    if (rc != 0)
        rc = dlpi_download_fail(part, path, rc);
    else if (fsync(fd) != 0)
        rc = dlpi_file_fail(part, tmp, "fsync");
    else if (rename(tmp, path) != 0)
        rc = dlpi_file_fail(part, path, "rename");
    else if (dlpi_directory_sync(path) != 0)
        rc = dlpi_file_fail(part, path, "fsync of its directory");
    if (rc != 0) unlink(tmp); /* while the lock is ours */
    close(fd);
    return rc;
}

/* Read bytes [offset, offset + n) of the file into the part. Returns 0 or a failure's code. */
static int dlpi_file_read(const dlp_part *part, int fd, const char *path, uint64_t offset,
                          uint64_t n) {
    uint8_t *to = part->data;
    while (n > 0) {
        ssize_t got = pread(fd, to, n < (1u << 30) ? (size_t)n : 1u << 30, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return dlpi_file_fail(part, path, "read");
        if (got == 0)
            return dlp_fail(part->call, 0, "%s: it was cut while it was read", dlpi_path_end(path));
        to += got;
        offset += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

/* Read the part's stretch of an open file. Returns 0 or a failure's code. */
static int dlpi_part_read(const dlp_part_file *file, dlp_part *part, int fd, const char *path) {
    struct stat st;
    uint64_t size, n = file->bytes;
    if (fstat(fd, &st) != 0) return dlpi_file_fail(part, path, "fstat");
    size = (uint64_t)st.st_size;
    if (file->offset > size || n > size - file->offset)
        return dlp_fail(part->call, 0,
                        "%s: %" PRIu64 " bytes from %" PRIu64 " on, the file has %" PRIu64,
                        dlpi_path_end(path), n, file->offset, size);
    if (n == 0) n = size - file->offset;
    part->bytes = n;
    if (n <= part->capacity) return dlpi_file_read(part, fd, path, file->offset, n);
    dlp_fail(part->call, 0, "%s: the part has %" PRIu64 " bytes, max_part_bytes is %" PRIu64,
             dlpi_path_end(path), n, part->capacity);
    return DLP_ERR_LENGTH;
}

/* Open the file of a part for reading. With a download the file must not be another user's in a
   shared directory. Returns the descriptor, or -1 with errno. */
static int dlpi_part_open(const dlp_part_files *f, const char *path) {
    struct stat st;
    int more = 0;
    if (f->download && lstat(path, &st) == 0) {
        errno = EACCES;
        if (!dlpi_file_trusted(&st, path)) return -1;
        more = S_ISLNK(st.st_mode) ? 0 : O_NOFOLLOW | O_NONBLOCK;
    }
    return dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC | more));
}

DLPDEF int dlp_part_files_load(void *files, dlp_part *part) {
    const dlp_part_files *f = files;
    char path[DLPI_PATH_MAX];
    const char *name;
    int fd, rc = 0;
    if (part->index >= f->n_files)
        return dlp_fail(part->call, 0, "n_files is %" PRIu64 ", must be n_parts", f->n_files);
    name = f->files[part->index].path;
    if (snprintf(path, sizeof path, "%s%s%s", f->dir ? f->dir : "", f->dir ? "/" : "", name) >=
        (int)sizeof path) {
        errno = ENAMETOOLONG;
        return dlpi_file_fail(part, name, "open");
    }
    fd = dlpi_part_open(f, path);
    if (fd < 0 && errno == ENOENT && f->download) {
        if ((rc = dlpi_download(f, part, path)) != 0) return rc;
        fd = dlpi_part_open(f, path);
    }
    if (fd < 0) return dlpi_file_fail(part, path, "open");
    rc = dlpi_part_read(&f->files[part->index], part, fd, path);
    close(fd);
    return rc;
}
