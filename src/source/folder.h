/* needs: files */
#pragma once
/* tests: system/source/folder */
#include "api/folder.h"
#include "order/order.h"
#include "source/mapped.h"
#include <dirent.h>
/* ---------------------------------------------------------------------------------------------
   >>impl-folder     FOLDERS OF PICTURES
   All directories stand in one list, which is read from its beginning. Each directory is read to
   its end and closed before the next. So one descriptor is open at a time, and a deep tree needs no
   stack. Each entry of the list has the number of its parent. A directory with the device and inode
   of one of its ancestors is a loop. */

enum { DLPI_FOLDER_DIRS = 1 << 20 }; /* directories, at most */

typedef struct dlpi_folder_dir {
    char *path;
    uint64_t parent; /* number of the parent in the list; the root has its own number */
    uint32_t label;
    dev_t dev;
    ino_t ino;
} dlpi_folder_dir;

typedef struct dlpi_folder_file {
    char *path;
    uint32_t label;
} dlpi_folder_file;

typedef struct dlpi_folder {
    dlp_folder shown; /* first: what the caller has */
    dlp_folder_desc d;
    dlpi_folder_dir *dirs;
    uint64_t n_dirs, dirs_room;
    dlpi_folder_file *files;
    uint64_t n_files, files_room;
    char **paths;
    uint32_t *labels;
    char **classes;
    uint64_t *class_files;
} dlpi_folder;

static int dlpi_folder_memory(dlp_error *err) {
    dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory for the list of files");
    if (err) err->errnum = ENOMEM;
    return DLP_ERR_MEMORY;
}

static int dlpi_folder_system(dlp_error *err, const char *path, const char *what, int errnum) {
    dlpi_error_set(err, DLP_ERR_SYSTEM, "path", "%s: %s: %s%s", dlpi_path_end(path), what,
                   strerror(errnum), dlpi_path_cure(errnum));
    if (err) err->errnum = errnum;
    return DLP_ERR_SYSTEM;
}

/* Make room for one more record in an array of n records. Returns the array, which may have moved,
   or NULL if there is no memory: then the old one stays. */
static void *dlpi_folder_room(void *array, uint64_t n, uint64_t *room, size_t each) {
    uint64_t more = *room ? 2 * *room : 64;
    void *grown;
    if (n < *room) return array;
    grown = realloc(array, (size_t)dlpi_times(more, each));
    if (grown) *room = more;
    return grown;
}

/* Return "dir/name" in memory that the caller frees, or NULL if there is no memory. */
static char *dlpi_folder_join(const char *dir, const char *name) {
    size_t bytes = strlen(dir) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s/%s", dir, name);
    return path;
}

/* True if two texts are equal but for the case of ASCII letters. The locale does not matter. */
static bool dlpi_folder_same(const char *a, const char *b) {
    for (;; a++, b++) {
        char x = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a;
        char y = *b >= 'A' && *b <= 'Z' ? (char)(*b + 32) : *b;
        if (x != y) return false;
        if (x == 0) return true;
    }
}

static bool dlpi_folder_counts(const dlp_folder_desc *d, const char *name) {
    static const char *const usual[] = {"jpg", "jpeg", "png", "bmp", "ppm", "webp"};
    const char *const *of = d->extensions ? d->extensions : usual;
    uint32_t n = d->extensions ? d->n_extensions : sizeof usual / sizeof *usual;
    const char *dot = strrchr(name, '.');
    for (uint32_t i = 0; dot && i < n; i++)
        if (dlpi_folder_same(dot + 1, of[i])) return true;
    return false;
}

/* Append a file to the list. path: f frees it, always. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_add_file(dlpi_folder *f, char *path, uint32_t label, dlp_error *err) {
    dlpi_folder_file *files;
    if (f->n_files >= f->d.max_files) {
        free(path);
        return dlpi_error_set(err, DLP_ERR_LIMIT, "max_files",
                              "%s: has more than %" PRIu64 " files; raise max_files",
                              dlpi_path_end(f->d.path), f->d.max_files);
    }
    files = dlpi_folder_room(f->files, f->n_files, &f->files_room, sizeof *files);
    if (files == NULL) {
        free(path);
        return dlpi_folder_memory(err);
    }
    f->files = files;
    files[f->n_files++] = (dlpi_folder_file){path, label};
    return DLP_OK;
}

/* Append a directory to the list. path: is freed by f, also after a failure. parent: its number.
   st: of the directory. Returns 0 or a DLP_ERR code, also if the directory lies in itself. */
static int dlpi_folder_add_dir(dlpi_folder *f, char *path, uint64_t parent, const struct stat *st,
                               dlp_error *err) {
    dlpi_folder_dir *dirs;
    int rc = DLP_OK;
    for (uint64_t i = parent; f->n_dirs > 0 && rc == DLP_OK; i = f->dirs[i].parent) {
        if (f->dirs[i].dev == st->st_dev && f->dirs[i].ino == st->st_ino)
            rc = dlpi_folder_system(err, path, "leads back to a directory that it lies in", ELOOP);
        if (f->dirs[i].parent == i) break;
    }
    if (rc == DLP_OK && f->n_dirs == DLPI_FOLDER_DIRS)
        rc = dlpi_error_set(err, DLP_ERR_LIMIT, "path", "%s: has more than 2^20 directories",
                            dlpi_path_end(f->d.path));
    dirs = rc == DLP_OK ? dlpi_folder_room(f->dirs, f->n_dirs, &f->dirs_room, sizeof *dirs) : NULL;
    if (dirs == NULL) {
        free(path);
        return rc == DLP_OK ? dlpi_folder_memory(err) : rc;
    }
    f->dirs = dirs;
    dirs[f->n_dirs] =
        (dlpi_folder_dir){path, parent, f->n_dirs ? dirs[parent].label : 0, st->st_dev, st->st_ino};
    f->n_dirs++;
    return DLP_OK;
}

/* Take a name of directory k: directory, file or neither. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_entry(dlpi_folder *f, uint64_t k, const char *name, dlp_error *err) {
    bool counts = k > 0 && dlpi_folder_counts(&f->d, name);
    char *path;
    struct stat st;
    if (name[0] == '.') {
        f->shown.left_out += strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
        return DLP_OK;
    }
    if ((path = dlpi_folder_join(f->dirs[k].path, name)) == NULL) return dlpi_folder_memory(err);
    if (stat(path, &st) != 0) {
        int errnum = errno, rc = DLP_OK;
        if (counts || (errnum != ENOENT && errnum != ELOOP))
            rc = dlpi_folder_system(err, path, "stat", errnum);
        else
            f->shown.left_out++; /* a link that leads nowhere, of a name that does not count */
        free(path);
        return rc;
    }
    if (S_ISDIR(st.st_mode)) return dlpi_folder_add_dir(f, path, k, &st, err);
    if (counts && S_ISREG(st.st_mode)) return dlpi_folder_add_file(f, path, f->dirs[k].label, err);
    f->shown.left_out++;
    free(path);
    return DLP_OK;
}

/* Read all names of directory k. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_read(dlpi_folder *f, uint64_t k, dlp_error *err) {
    int fd = dlpi_fd_above(open(f->dirs[k].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;
    int rc = DLP_OK;
    if (dir == NULL) {
        rc = dlpi_folder_system(err, f->dirs[k].path, "open", errno);
        if (fd >= 0) close(fd);
        return rc;
    }
    while (rc == DLP_OK && (errno = 0, e = readdir(dir)) != NULL)
        rc = dlpi_folder_entry(f, k, e->d_name, err);
    if (rc == DLP_OK && errno != 0) rc = dlpi_folder_system(err, f->dirs[k].path, "read", errno);
    closedir(dir);
    return rc;
}

static int dlpi_folder_by_path(const void *a, const void *b) {
    return strcmp(((const dlpi_folder_dir *)a)->path, ((const dlpi_folder_dir *)b)->path);
}

static int dlpi_folder_by_class(const void *a, const void *b) {
    const dlpi_folder_file *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* Sort and number the classes, the root's directories. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_classes(dlpi_folder *f, dlp_error *err) {
    uint64_t n = f->n_dirs - 1;
    size_t root = strlen(f->dirs[0].path) + 1;
    if (n == 0)
        return dlpi_error_set(
            err, DLP_ERR_ARG, "path",
            "%s: has no directories, which are the classes; give the path above them",
            dlpi_path_end(f->d.path));
    qsort(f->dirs + 1, (size_t)n, sizeof *f->dirs, dlpi_folder_by_path);
    f->classes = calloc((size_t)n, sizeof *f->classes);
    f->class_files = calloc((size_t)n, sizeof *f->class_files);
    if (f->classes == NULL || f->class_files == NULL) return dlpi_folder_memory(err);
    f->shown.n_classes = (uint32_t)n;
    for (uint64_t i = 0; i < n; i++) {
        f->dirs[i + 1].label = (uint32_t)i;
        if ((f->classes[i] = strdup(f->dirs[i + 1].path + root)) == NULL)
            return dlpi_folder_memory(err);
    }
    return DLP_OK;
}

static uint64_t dlpi_folder_hash(uint64_t h, const char *text) {
    for (; *text; text++) h = dlpi_absorb(h, (uint8_t)*text);
    return dlpi_absorb(h, 256); /* no byte: the end of this one */
}

/* Sort the files, and fill in what the caller sees. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_finish(dlpi_folder *f, dlp_error *err) {
    uint64_t n = f->n_files, h = dlpi_absorb(n, f->shown.n_classes);
    size_t root = strlen(f->dirs[0].path);
    if (n == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, "path",
                              "%s: no file below its %" PRIu32 " classes ends in %s; %" PRIu64
                              " are left out",
                              dlpi_path_end(f->d.path), f->shown.n_classes,
                              f->d.extensions ? "one of the extensions"
                                              : "jpg, jpeg, png, bmp, ppm or webp (extensions)",
                              f->shown.left_out);
    qsort(f->files, (size_t)n, sizeof *f->files, dlpi_folder_by_class);
    f->paths = calloc((size_t)n, sizeof *f->paths);
    f->labels = calloc((size_t)n, sizeof *f->labels);
    if (f->paths == NULL || f->labels == NULL) return dlpi_folder_memory(err);
    for (uint64_t i = 0; i < n; i++) {
        f->paths[i] = f->files[i].path;
        f->labels[i] = f->files[i].label;
        f->class_files[f->labels[i]]++;
        h = dlpi_folder_hash(h, f->paths[i] + root);
    }
    f->n_files = 0; /* they are among paths now */
    for (uint32_t i = 0; i < f->shown.n_classes; i++) h = dlpi_folder_hash(h, f->classes[i]);
    f->shown.id = h;
    f->shown.n_files = n;
    f->shown.paths = (const char *const *)f->paths;
    f->shown.labels = f->labels;
    f->shown.classes = (const char *const *)f->classes;
    f->shown.class_files = f->class_files;
    return DLP_OK;
}

static void dlpi_folder_dirs_free(dlpi_folder *f) {
    for (uint64_t i = 0; i < f->n_dirs; i++) free(f->dirs[i].path);
    for (uint64_t i = 0; i < f->n_files; i++) free(f->files[i].path);
    free(f->dirs);
    free(f->files);
    f->dirs = NULL;
    f->files = NULL;
    f->n_dirs = f->n_files = 0;
}

/* Read the whole tree. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_list(dlpi_folder *f, dlp_error *err) {
    struct stat st;
    char *root;
    int rc;
    if (stat(f->d.path, &st) != 0) return dlpi_folder_system(err, f->d.path, "stat", errno);
    if ((root = strdup(f->d.path)) == NULL) return dlpi_folder_memory(err);
    for (size_t n = strlen(root); n > 1 && root[n - 1] == '/'; n--) root[n - 1] = 0;
    if ((rc = dlpi_folder_add_dir(f, root, 0, &st, err)) != DLP_OK) return rc;
    if ((rc = dlpi_folder_read(f, 0, err)) != DLP_OK) return rc;
    if ((rc = dlpi_folder_classes(f, err)) != DLP_OK) return rc;
    for (uint64_t k = 1; k < f->n_dirs && rc == DLP_OK; k++) rc = dlpi_folder_read(f, k, err);
    return rc == DLP_OK ? dlpi_folder_finish(f, err) : rc;
}

DLPDEF int dlp_folder_open(dlp_folder **out, const dlp_folder_desc *desc, dlp_error *err) {
    dlpi_folder *f;
    int rc;
    if (out == NULL || desc == NULL || desc->path == NULL || desc->path[0] == 0) {
        const char *name = out == NULL ? "out" : desc == NULL ? "desc" : "path";
        return dlpi_error_set(err, DLP_ERR_ARG, name, "%s is missing", name);
    }
    if ((desc->extensions == NULL) != (desc->n_extensions == 0))
        return dlpi_error_set(err, DLP_ERR_ARG, "extensions",
                              "extensions, n_extensions: give both, or neither");
    if ((f = calloc(1, sizeof *f)) == NULL) return dlpi_folder_memory(err);
    f->d = *desc;
    if (f->d.max_files == 0 || f->d.max_files > UINT64_C(1) << 31)
        f->d.max_files = UINT64_C(1) << 31;
    rc = dlpi_folder_list(f, err);
    dlpi_folder_dirs_free(f);
    if (rc != DLP_OK) {
        dlp_folder_close(&f->shown);
        return rc;
    }
    *out = &f->shown;
    return DLP_OK;
}

DLPDEF void dlp_folder_close(dlp_folder *folder) {
    dlpi_folder *f = (dlpi_folder *)(void *)folder;
    if (f == NULL) return;
    for (uint64_t i = 0; i < f->shown.n_files; i++) free(f->paths[i]);
    for (uint32_t i = 0; f->classes && i < f->shown.n_classes; i++) free(f->classes[i]);
    free(f->paths);
    free(f->labels);
    free(f->classes);
    free(f->class_files);
    free(f);
}
