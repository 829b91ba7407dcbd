#pragma once
/* tests: system/stages/parts, system/report/pictures */
#include "base/system.h"
#include "fail/fail.h"
/* ---- paths; new files, also in directories that all may write to ---- */

#include <sys/stat.h>

#define DLPI_PATH_MAX 4096

/* Return the last 150 bytes of a path, which say more than the first. */
static const char *dlpi_path_end(const char *path) {
    size_t n = strlen(path);
    return n > 150 ? path + n - 150 : path;
}

/* Return what to do about a path that cannot be opened, to be put behind the words of its errno; ""
   if there is nothing to say. */
static const char *dlpi_path_cure(int errnum) { return errnum == ENOENT ? "; check the path" : ""; }

/* Write the directory of a path into dir, which has DLPI_PATH_MAX bytes. */
static void dlpi_directory_of(char *dir, const char *path) {
    char *slash;
    dlpi_copy_text(dir, DLPI_PATH_MAX, path);
    slash = strrchr(dir, '/');
    if (slash == NULL)
        dlpi_copy_text(dir, DLPI_PATH_MAX, ".");
    else
        slash[slash == dir] = 0;
}

/* True if all may write to the directory of a path; *dir describes it. There others may have put
   anything under any name. So a file or link counts only if it is this user's or the directory
   owner's (the rule of Linux' protected_symlinks). */
static bool dlpi_directory_shared(const char *path, struct stat *dir) {
    char name[DLPI_PATH_MAX];
    dlpi_directory_of(name, path);
    return stat(name, dir) == 0 && (dir->st_mode & S_IWOTH) != 0;
}

static bool dlpi_file_trusted(const struct stat *file, const char *path) {
    struct stat dir;
    return !dlpi_directory_shared(path, &dir) || file->st_uid == geteuid() ||
           file->st_uid == dir.st_uid;
}

/* Create a file; fail if anything has its name. Returns its descriptor, or -1 with errno. */
static int dlpi_file_new(const char *path, mode_t mode) {
    return dlpi_fd_above(open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

/* Create a file in place of a leftover of its name. Returns its descriptor, or -1 with errno. */
static int dlpi_file_afresh(const char *path) {
    return unlink(path) == 0 || errno == ENOENT ? dlpi_file_new(path, 0666) : -1;
}
