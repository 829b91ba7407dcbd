/* needs: files */
#pragma once
/* tests: system/source/folder */
#include "api/folder.h"
#include "order/order.h"
#include "source/foreign.h"
#include "source/mapped.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-folder     FOLDERS OF PICTURES
   All directories stand in one list, which is read from its beginning. Each directory is read to
   its end and closed before the next. So one descriptor is open at a time, and a deep tree needs no
   stack. Each entry of the list has the number of its parent. A directory with the device and inode
   of one of its ancestors is a loop. Entries that are left out, and that somebody may miss, are
   counted. The first name of each kind is kept, and the warning tells both. */

enum { DLPI_FOLDER_DIRS = 1 << 20 }; /* directories, at most */

typedef struct dlpi_folder_dir {
    char *path;
    uint64_t parent; /* number of the parent in the list; the root has its own number */
    uint32_t label;
    uint64_t volume, number; /* of the directory */
} dlpi_folder_dir;

typedef struct dlpi_folder_file {
    char *path;
    uint32_t label;
} dlpi_folder_file;

/* A class that the desc names. */
typedef struct dlpi_folder_class {
    const char *name; /* borrowed from the desc */
    uint32_t label;
} dlpi_folder_class;

/* What the warning counts. */
enum {
    DLPI_FOLDER_LEFT,
    DLPI_FOLDER_LOOSE,
    DLPI_FOLDER_NOWHERE,
    DLPI_FOLDER_EMPTY,
    DLPI_FOLDER_KINDS
};

typedef struct dlpi_folder_note {
    uint64_t n;
    char first[24]; /* name of the first one, cut */
} dlpi_folder_note;

typedef struct dlpi_folder {
    dlp_folder shown; /* first: what the caller has */
    dlp_folder_desc d;
    dlpi_folder_class *given; /* [d.n_classes] sorted by name, or NULL */
    dlpi_folder_note notes[DLPI_FOLDER_KINDS];
    char warning[160];
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

/* Return the last 40 bytes of a path, for messages that say more. */
static const char *dlpi_folder_tail(const char *path) {
    const size_t n = strlen(path);
    return n > 40 ? path + n - 40 : path;
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

/* True if a file of this name is an item: its ending is one of the desc's, or of the usual
   pictures'. */
static bool dlpi_folder_counts(const dlp_folder_desc *d, const char *name) {
    static const char *const usual[] = {"jpg", "jpeg", "png", "bmp", "ppm", "webp"};
    const char *const *of = d->extensions ? d->extensions : usual;
    uint32_t n = d->extensions ? d->n_extensions : sizeof usual / sizeof *usual;
    const char *dot = strrchr(name, '.');
    for (uint32_t i = 0; dot && i < n; i++)
        if (dlpi_folder_same(dot + 1, of[i])) return true;
    return false;
}

static void dlpi_folder_note_add(dlpi_folder *f, int kind, const char *name) {
    dlpi_folder_note *note = &f->notes[kind];
    if (note->n++ == 0) dlpi_copy_text(note->first, sizeof note->first, name);
}

/* ---- names of classes ---- */

static int dlpi_folder_by_name(const void *a, const void *b) {
    return strcmp(((const dlpi_folder_class *)a)->name, ((const dlpi_folder_class *)b)->name);
}

/* Return the class of the desc that has a name, or NULL. */
static const dlpi_folder_class *dlpi_folder_find(const dlpi_folder *f, const char *name) {
    const dlpi_folder_class key = {name, 0};
    if (f->given == NULL) return NULL;
    return bsearch(&key, f->given, f->d.n_classes, sizeof key, dlpi_folder_by_name);
}

/* Check the classes of the desc, and sort them. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_given(dlpi_folder *f, dlp_error *err) {
    const uint32_t n = f->d.n_classes;
    if (n == 0) return DLP_OK;
    if ((f->given = calloc(n, sizeof *f->given)) == NULL) return dlpi_folder_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = f->d.classes[i];
        f->given[i] = (dlpi_folder_class){name, i};
        if (name == NULL || name[0] == 0 || name[strcspn(name, DLPI_SLASHES)] != 0 ||
            strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return dlpi_error_set(
                err, DLP_ERR_ARG, "classes",
                "classes[%" PRIu32 "] is %.40s%s; it must be the name of a directory", i,
                name == NULL ? "NULL" : name, name != NULL && name[0] == 0 ? "empty" : "");
    }
    qsort(f->given, n, sizeof *f->given, dlpi_folder_by_name);
    for (uint32_t i = 1; i < n; i++)
        if (strcmp(f->given[i - 1].name, f->given[i].name) == 0)
            return dlpi_error_set(err, DLP_ERR_ARG, "classes",
                                  "classes has \"%.80s\" twice; give each name once",
                                  f->given[i].name);
    return DLP_OK;
}

/* Set the label of a directory directly below path, or note that it is left out. Returns 0 and sets
   *out, or DLP_ERR_ARG and *err if the desc has classes and the directory is none of them. */
static int dlpi_folder_label(dlpi_folder *f, const char *name, uint32_t *label, dlp_error *err) {
    const dlpi_folder_class *c = dlpi_folder_find(f, name);
    *label = c != NULL ? c->label : 0;
    if (c != NULL || f->given == NULL) return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_ARG, "classes",
                          "%s: directory \"%.60s\" is none of the %" PRIu32
                          " classes; add it to classes, or move it away",
                          dlpi_folder_tail(f->d.path), name, f->d.n_classes);
}

/* ---- the lists ---- */

/* Append a file to the list. path: f frees it, always. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_add_file(dlpi_folder *f, char *path, uint32_t label, dlp_error *err) {
    dlpi_folder_file *files;
    if (f->n_files >= f->d.max_files) {
        free(path);
        return dlpi_error_set(err, DLP_ERR_LIMIT, "max_files",
                              "%s: has more than %" PRIu64 " files; raise max_files",
                              dlpi_path_end(f->d.path), f->d.max_files);
    }
    files = dlpi_room_for(f->files, f->n_files, &f->files_room, sizeof *files);
    if (files == NULL) {
        free(path);
        return dlpi_folder_memory(err);
    }
    f->files = files;
    files[f->n_files++] = (dlpi_folder_file){path, label};
    return DLP_OK;
}

/* Append a directory to the list. path: is freed by f, also after a failure. parent: its number.
   label: its class. st: of the directory. Returns 0 or a DLP_ERR code, also if the directory lies
   in itself. */
static int dlpi_folder_add_dir(dlpi_folder *f, char *path, uint64_t parent, uint32_t label,
                               const dlpi_facts *st, dlp_error *err) {
    dlpi_folder_dir *dirs;
    int rc = DLP_OK;
    for (uint64_t i = parent; f->n_dirs > 0 && rc == DLP_OK; i = f->dirs[i].parent) {
        if (f->dirs[i].volume == st->volume && f->dirs[i].number == st->number)
            rc = dlpi_folder_system(err, path, "leads back to a directory that it lies in", ELOOP);
        if (f->dirs[i].parent == i) break;
    }
    if (rc == DLP_OK && f->n_dirs == DLPI_FOLDER_DIRS)
        rc = dlpi_error_set(err, DLP_ERR_LIMIT, "path", "%s: has more than 2^20 directories",
                            dlpi_path_end(f->d.path));
    dirs = rc == DLP_OK ? dlpi_room_for(f->dirs, f->n_dirs, &f->dirs_room, sizeof *dirs) : NULL;
    if (dirs == NULL) {
        free(path);
        return rc == DLP_OK ? dlpi_folder_memory(err) : rc;
    }
    f->dirs = dirs;
    dirs[f->n_dirs++] = (dlpi_folder_dir){path, parent, label, st->volume, st->number};
    return DLP_OK;
}

/* True if a name of directory k is passed over. It is counted. A hidden file is nothing that the
   warning tells; a hidden directory may be meant as a class. */
static bool dlpi_folder_passes(dlpi_folder *f, uint64_t k, const char *name) {
    dlpi_facts st;
    char *path;
    if (name[0] != '.' && !dlpi_foreign_directory(name, strlen(name), false)) return false;
    if (k == 0 && dlpi_folder_find(f, name) != NULL) return false;
    f->shown.left_out++;
    path = dlpi_folder_join(f->dirs[k].path, name);
    if (path != NULL && (k == 0 || name[0] != '.') && dlpi_path_facts(path, true, &st) == 0 &&
        st.kind == DLPI_IS_DIRECTORY)
        dlpi_folder_note_add(f, DLPI_FOLDER_LEFT, name);
    free(path);
    return true;
}

typedef struct dlpi_folder_names { /* the names of a directory, as they are read */
    dlpi_folder *f;
    uint64_t k; /* number of the directory */
    dlp_error *err;
} dlpi_folder_names;

/* Take a name of a directory: directory, file or neither. user: a dlpi_folder_names. Returns 0, or
   a DLP_ERR code and *err. */
static int dlpi_folder_entry(void *user, const char *name) {
    const dlpi_folder_names *in = user;
    dlpi_folder *f = in->f;
    dlp_error *err = in->err;
    const uint64_t k = in->k;
    const bool picture = dlpi_folder_counts(&f->d, name), counts = k > 0 && picture;
    uint32_t label = f->dirs[k].label;
    char *path;
    dlpi_facts st;
    int errnum;
    if (dlpi_folder_passes(f, k, name)) return DLP_OK;
    if ((path = dlpi_folder_join(f->dirs[k].path, name)) == NULL) return dlpi_folder_memory(err);
    if ((errnum = dlpi_path_facts(path, true, &st)) != 0) {
        int rc = DLP_OK;
        const bool link = dlpi_path_facts(path, false, &st) == 0; /* else it is gone by now */
        if (counts || (k == 0 && link) || (errnum != ENOENT && errnum != ELOOP)) {
            rc = dlpi_folder_system(err, path, "stat", errnum);
        } else { /* below a class: a directory of files is missing, or a file that does not count */
            if (link) dlpi_folder_note_add(f, DLPI_FOLDER_NOWHERE, name);
            f->shown.left_out++;
        }
        free(path);
        return rc;
    }
    if (st.kind == DLPI_IS_DIRECTORY) {
        int rc = k == 0 ? dlpi_folder_label(f, name, &label, err) : DLP_OK;
        if (rc == DLP_OK) return dlpi_folder_add_dir(f, path, k, label, &st, err);
        free(path);
        return rc;
    }
    if (counts && st.kind == DLPI_IS_FILE) return dlpi_folder_add_file(f, path, label, err);
    if (picture && st.kind == DLPI_IS_FILE) dlpi_folder_note_add(f, DLPI_FOLDER_LOOSE, name);
    f->shown.left_out++;
    free(path);
    return DLP_OK;
}

/* Read all names of directory k. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_read(dlpi_folder *f, uint64_t k, dlp_error *err) {
    dlpi_folder_names in = {f, k, err};
    const char *call;
    int rc = dlpi_directory_list(f->dirs[k].path, dlpi_folder_entry, &in, &call);
    return call != NULL ? dlpi_folder_system(err, f->dirs[k].path, call, rc) : rc;
}

static int dlpi_folder_by_path(const void *a, const void *b) {
    return strcmp(((const dlpi_folder_dir *)a)->path, ((const dlpi_folder_dir *)b)->path);
}

static int dlpi_folder_by_class(const void *a, const void *b) {
    const dlpi_folder_file *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* Number the classes: those of the desc, else the root's directories in the order of their names.
   Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_classes(dlpi_folder *f, dlp_error *err) {
    const size_t root = strlen(f->dirs[0].path) + 1;
    const uint64_t found = f->n_dirs - 1, n = f->given != NULL ? f->d.n_classes : found;
    if (found == 0)
        return dlpi_error_set(
            err, DLP_ERR_ARG, "path",
            "%s: has no directories, which are the classes; give the path above them",
            dlpi_path_end(f->d.path));
    qsort(f->dirs + 1, (size_t)found, sizeof *f->dirs, dlpi_folder_by_path);
    f->classes = calloc((size_t)n, sizeof *f->classes);
    f->class_files = calloc((size_t)n, sizeof *f->class_files);
    if (f->classes == NULL || f->class_files == NULL) return dlpi_folder_memory(err);
    f->shown.n_classes = (uint32_t)n;
    for (uint64_t i = 0; i < n; i++) {
        const char *name = f->given != NULL ? f->d.classes[i] : f->dirs[i + 1].path + root;
        if (f->given == NULL) f->dirs[i + 1].label = (uint32_t)i;
        if ((f->classes[i] = dlpi_string_copy(name)) == NULL) return dlpi_folder_memory(err);
    }
    return DLP_OK;
}

static uint64_t dlpi_folder_hash(uint64_t h, const char *text) {
    for (; *text; text++) h = dlpi_absorb(h, (uint8_t)*text);
    return dlpi_absorb(h, 256); /* no byte: the end of this one */
}

/* Write the warning. It tells the entries that are left out, and the classes without files. The
   first name of each kind stands for all. */
static void dlpi_folder_warn(dlpi_folder *f) {
    static const char *const words[DLPI_FOLDER_KINDS] = {
        "directories left out", "files in no class", "dead links", "classes without files"};
    size_t at, n = sizeof f->warning;
    for (uint32_t i = 0; i < f->shown.n_classes; i++)
        if (f->class_files[i] == 0) dlpi_folder_note_add(f, DLPI_FOLDER_EMPTY, f->classes[i]);
    dlpi_copy_text(f->warning, n, dlpi_folder_tail(f->dirs[0].path));
    for (int k = 0; k < DLPI_FOLDER_KINDS; k++) {
        const dlpi_folder_note *note = &f->notes[k];
        if (note->n == 0) continue;
        at = strlen(f->warning);
        snprintf(f->warning + at, n - at, "%s%s: %" PRIu64 " (%s%s)",
                 f->shown.warning == NULL ? ": " : "; ", words[k], note->n, note->first,
                 note->n > 1 ? ", .." : "");
        f->shown.warning = f->warning;
    }
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
    dlpi_folder_warn(f);
    return DLP_OK;
}

/* Free the lists of directories and files, and forget them. */
static void dlpi_folder_dirs_free(dlpi_folder *f) {
    for (uint64_t i = 0; i < f->n_dirs; i++) free(f->dirs[i].path);
    for (uint64_t i = 0; i < f->n_files; i++) free(f->files[i].path);
    free(f->dirs);
    free(f->files);
    free(f->given);
    f->given = NULL;
    f->dirs = NULL;
    f->files = NULL;
    f->n_dirs = f->n_files = 0;
}

/* Read the whole tree. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_folder_list(dlpi_folder *f, dlp_error *err) {
    dlpi_facts st;
    char *root;
    int rc;
    if ((rc = dlpi_folder_given(f, err)) != DLP_OK) return rc;
    if ((rc = dlpi_path_facts(f->d.path, true, &st)) != 0)
        return dlpi_folder_system(err, f->d.path, "stat", rc);
    if ((root = dlpi_string_copy(f->d.path)) == NULL) return dlpi_folder_memory(err);
    for (size_t n = strlen(root); n > 1 && dlpi_is_slash(root[n - 1]); n--) root[n - 1] = 0;
    if ((rc = dlpi_folder_add_dir(f, root, 0, 0, &st, err)) != DLP_OK) return rc;
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
    if ((desc->classes == NULL) != (desc->n_classes == 0) || desc->n_classes > DLPI_FOLDER_DIRS)
        return dlpi_error_set(err, DLP_ERR_ARG, "classes",
                              "classes, n_classes: give both, or neither; at most 2^20 names");
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
