/* needs: parts */
#pragma once
/* tests: system/stages/parts, system/shm/shm_parts, system/source/descriptors */
#include "api/parts.h"
#include "order/identity.h"
#include "source/new_file.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-part-files PART QUEUE: FILES, DOWNLOADS
   A worker that downloads a file holds the lock of its temporary name. After it waited for the
   lock, the worker looks again: the file may be there by now, and the file that the worker has open
   may have been renamed or removed. A file gets its own name by one rename, after its bytes are on
   disk. So a worker that dies before that leaves nothing under that name, and the kernel frees the
   lock. */

DLPI_COLD static int dlpi_file_fail(const dlp_part *part, const char *path, const char *call,
                                    int errnum) {
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

/* Open, lock and empty the temporary file. Returns its descriptor; -1 after a failure, which is
   said in the part's call; or -2 if `path` is there by now. */
static int dlpi_download_begin(const dlp_part *part, const char *path, const char *tmp) {
    for (;;) {
        dlpi_handle fd;
        dlpi_facts st;
        int rc = dlpi_lock_open(&fd, tmp, DLPI_READ | DLPI_WRITE);
        if (rc != 0) return dlpi_file_fail(part, tmp, "open", rc), -1;
        rc = dlpi_handle_lock(fd, true);
        if (rc == 0 && dlpi_path_facts(path, true, &st) == 0) {
            if (dlpi_file_is(fd, tmp)) dlpi_path_remove(tmp);
            dlpi_handle_close(fd);
            return -2;
        }
        if (rc == 0 && dlpi_file_is(fd, tmp) && (rc = dlpi_handle_cut(fd)) == 0) return fd;
        if (rc != 0) dlpi_file_fail(part, tmp, "flock or ftruncate", rc);
        dlpi_handle_close(fd);
        if (rc != 0) return -1;
    }
}

/* Let the user write the file, by a descriptor of the C library. Returns 0 or a failure's code. */
static int dlpi_download(const dlp_part_files *f, const dlp_part *part, const char *path,
                         dlpi_handle file) {
    int fd = -1, rc, errnum = dlpi_handle_to(&fd, file);
    if (errnum != 0) return dlpi_file_fail(part, path, "open", errnum);
    rc = f->download(f->user, part, path, fd);
    dlpi_handle_to_end(fd);
    return rc == 0 ? 0 : dlpi_download_fail(part, path, rc);
}

/* Download a part's file to `path`, unless another process has. Returns 0 or a failure's code. */
static int dlpi_download_file(const dlp_part_files *f, const dlp_part *part, const char *path) {
    char tmp[DLPI_PATH_MAX], dir[DLPI_PATH_MAX];
    int fd, rc, errnum;
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return dlpi_file_fail(part, path, "open", ENAMETOOLONG);
    if ((fd = dlpi_download_begin(part, path, tmp)) < 0) return fd == -2 ? 0 : DLP_ERR_CALLBACK;
    dlpi_directory_of(dir, path);
    rc = dlpi_download(f, part, path, fd);
    if (rc == 0 && (errnum = dlpi_handle_sync(fd)) != 0)
        rc = dlpi_file_fail(part, tmp, "fsync", errnum);
    if (rc == 0 && (errnum = dlpi_path_rename(tmp, path)) != 0)
        rc = dlpi_file_fail(part, path, "rename", errnum);
    if (rc == 0 && (errnum = dlpi_directory_sync(dir)) != 0)
        rc = dlpi_file_fail(part, path, "fsync of its directory", errnum);
    if (rc != 0) dlpi_path_remove(tmp); /* while the lock is ours */
    dlpi_handle_close(fd);
    return rc;
}

/* Read bytes [offset, offset + n) of the file into the part. Returns 0 or a failure's code. */
static int dlpi_file_read(const dlp_part *part, int fd, const char *path, uint64_t offset,
                          uint64_t n) {
    uint64_t got;
    const int rc = dlpi_handle_read(fd, part->data, n, offset, &got);
    if (rc != 0) return dlpi_file_fail(part, path, "read", rc);
    if (got == n) return 0;
    return dlp_fail(part->call, 0, "%s: it was cut while it was read", dlpi_path_end(path));
}

/* Read the part's stretch of an open file. Returns 0 or a failure's code. */
static int dlpi_part_read(const dlp_part_file *file, dlp_part *part, int fd, const char *path) {
    dlpi_facts st;
    uint64_t size, n = file->bytes;
    const int rc = dlpi_handle_facts(fd, &st);
    if (rc != 0) return dlpi_file_fail(part, path, "fstat", rc);
    size = st.bytes;
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
   shared directory. Returns 0 or errno. */
static int dlpi_part_open(dlpi_handle *to, const dlp_part_files *f, const char *path) {
    dlpi_facts st;
    unsigned how = DLPI_READ;
    *to = -1;
    if (f->download && dlpi_path_facts(path, false, &st) == 0) {
        if (!dlpi_file_trusted(&st, path)) return EACCES;
        if (st.kind != DLPI_IS_LINK) how |= DLPI_NO_LINK;
    }
    return dlpi_handle_open(to, path, how);
}

DLPDEF int dlp_part_files_load(void *files, dlp_part *part) {
    const dlp_part_files *f = files;
    char path[DLPI_PATH_MAX];
    const char *name;
    dlpi_handle fd;
    int rc, errnum;
    if (part->index >= f->n_files)
        return dlp_fail(part->call, 0, "n_files is %" PRIu64 ", must be n_parts", f->n_files);
    name = f->files[part->index].path;
    if (snprintf(path, sizeof path, "%s%s%s", f->dir ? f->dir : "", f->dir ? "/" : "", name) >=
        (int)sizeof path)
        return dlpi_file_fail(part, name, "open", ENAMETOOLONG);
    errnum = dlpi_part_open(&fd, f, path);
    if (errnum == ENOENT && f->download) {
        if ((rc = dlpi_download_file(f, part, path)) != 0) return rc;
        errnum = dlpi_part_open(&fd, f, path);
    }
    if (errnum != 0) return dlpi_file_fail(part, path, "open", errnum);
    rc = dlpi_part_read(&f->files[part->index], part, fd, path);
    dlpi_handle_close(fd);
    return rc;
}

/* ---- what the files are ---- */

/* Return the files of a load, or NULL if another function loads the parts. */
static const dlp_part_files *dlpi_part_files_of(dlp_part_fn load, const void *user) {
    return load == dlp_part_files_load ? user : NULL;
}

/* Add to *to what the files of parts are: their names, and the ranges. A file may be downloaded
   later, so none is opened. f: may be NULL. */
static void dlpi_part_files_identify(dlp_identity *to, const dlp_part_files *f) {
    dlp_identity id = {.sizes = 0};
    if (f == NULL || f->files == NULL) return;
    const dlpi_names names = {f->files, f->n_files, sizeof *f->files, NULL}; /* each has its path */
    dlpi_identity_names(&id, &names);
    for (uint64_t i = 0; i < f->n_files; i++)
        id.sizes = dlpi_absorb(dlpi_absorb(id.sizes, f->files[i].offset), f->files[i].bytes);
    id.sizes = dlpi_known(id.sizes);
    id.moved = f->moved;
    dlpi_identity_add(to, &id);
}
