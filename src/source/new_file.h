#pragma once
/* tests: system/stages/parts, system/report/pictures */
#include "base/cpus.h"
#include "fail/fail.h"
/* ---- lists that grow; paths; new files, also in directories that all may write to ---- */

/* Make room for one more record in an array of n records. Returns the array, which may have moved,
   or NULL if there is no memory: then the old one stays. */
static void *dlpi_room_for(void *array, uint64_t n, uint64_t *room, size_t each) {
    uint64_t more = *room ? 2 * *room : 64;
    void *grown;
    if (n < *room) return array;
    grown = realloc(array, (size_t)dlpi_times(more, each));
    if (grown) *room = more;
    return grown;
}

/* Return the last 150 bytes of a path, which say more than the first. */
static const char *dlpi_path_end(const char *path) {
    size_t n = strlen(path);
    return n > 150 ? path + n - 150 : path;
}

/* Return what to do about a path that cannot be opened, to be put behind the words of its errno; ""
   if there is nothing to say. */
static const char *dlpi_path_cure(int errnum) {
    switch (errnum) {
    case ENOENT: return "; check the path";
    case EMFILE: return "; raise ulimit -n, or open fewer files";
    case ENFILE: return "; the whole system has too many open files: raise fs.file-max";
    default: return "";
    }
}

/* True if errno says that a descriptor will never read again. Its server came back with new
   handles, its file system was mounted again, or somebody closed it. The path may lead to the same
   file. */
static bool dlpi_handle_dead(int errnum) {
    return errnum == ESTALE || errnum == ENOTCONN || errnum == ESHUTDOWN ||
           errnum == ECONNABORTED || errnum == ENODEV || errnum == EBADF;
}

/* True if all may write to the directory of a path; *dir describes it. There others may have put
   anything under any name. So a file or link counts only if it is this user's or the directory
   owner's (the rule of Linux' protected_symlinks). */
static bool dlpi_directory_shared(const char *path, dlpi_facts *dir) {
    char name[DLPI_PATH_MAX];
    dlpi_directory_of(name, path);
    return dlpi_path_facts(name, true, dir) == 0 && dir->all_may_write;
}

static bool dlpi_file_trusted(const dlpi_facts *file, const char *path) {
    dlpi_facts dir;
    return !dlpi_directory_shared(path, &dir) || file->owner == dlpi_user_number() ||
           file->owner == dir.owner;
}

/* Create a file to write, in no place that has a file. how: 0 or DLPI_OWN. Returns 0 or errno. */
static int dlpi_file_new(dlpi_handle *to, const char *path, unsigned how) {
    return dlpi_handle_open(to, path, DLPI_READ | DLPI_WRITE | DLPI_NEW | DLPI_NO_LINK | how);
}

/* Create a file in place of a leftover of its name. Returns 0 or errno; then *to is -1. */
static int dlpi_file_afresh(dlpi_handle *to, const char *path) {
    const int rc = dlpi_path_remove(path);
    *to = -1;
    return rc == 0 || rc == ENOENT ? dlpi_file_new(to, path, 0) : rc;
}

/* True if a path still leads to the file of a descriptor. */
DLPI_UNREAD static bool dlpi_file_is(dlpi_handle fd, const char *path) {
    dlpi_facts open_one, named;
    return dlpi_handle_facts(fd, &open_one) == 0 && dlpi_path_facts(path, false, &named) == 0 &&
           open_one.volume == named.volume && open_one.number == named.number;
}

/* Open a file that processes lock, new or as another process left it. how: DLPI_READ | DLPI_WRITE,
   or DLPI_READ to open another user's. Returns 0, or errno if what has that name can't be such a
   file. */
DLPI_UNREAD static int dlpi_lock_open(dlpi_handle *to, const char *path, unsigned how) {
    dlpi_facts st;
    const unsigned own = dlpi_directory_shared(path, &st) ? DLPI_OWN : 0; /* no one else locks it */
    int rc;
    do {
        if ((rc = dlpi_file_new(to, path, own)) != EEXIST) return rc;
        rc = dlpi_handle_open(to, path, how | DLPI_NO_LINK);
    } while (rc == ENOENT); /* it was renamed or removed in between */
    if (rc != 0) return rc;
    /* a second name of it would be a file that is somebody's, to be written over */
    if (dlpi_handle_facts(*to, &st) == 0 && st.kind == DLPI_IS_FILE && st.links <= 1 &&
        dlpi_file_trusted(&st, path))
        return 0;
    dlpi_handle_close(*to);
    *to = -1;
    return EACCES;
}
