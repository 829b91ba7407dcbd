#pragma once
/* tests: system/formats/lines, system/formats/tar */
#include "api/files.h"
#include "formats/index.h"
/* ---------------------------------------------------------------------------------------------
   >>formats-impl-indexed   A SOURCE OF FILES THAT HAVE AN INDEX
   It is a source of >>files, which reads stretches of files: locate finds the stretch of an item
   in the index, and decode, which each format has, makes the item. The source is a copy of that
   of the files, with a dataset and a close of its own. */

typedef struct dlpi_indexed_file {
    char *path;
    uint64_t bytes, first; /* first: number of its first item */
    dlpi_index index;
    int fd;        /* -1: not open */
    int unwritten; /* errno: why its index file could not be written; 0: it was, or need not be */
    bool found;    /* its items were found now */
} dlpi_indexed_file;

typedef struct dlpi_indexed {
    dlp_source source; /* first */
    dlp_source *files; /* what reads */
    dlp_dataset dataset;
    uint64_t n_files, n_items, most, found, id;
    dlpi_indexed_file *file;
    /* What the format sets. */
    uint64_t kind;         /* DLPI_INDEX_* */
    uint64_t skip, before; /* items left out at each file's beginning; bytes to read before one */
    const char *directory; /* for index files, as in the desc; only while it is opened */
    int threads;
    int (*find)(struct dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err); /* fill f->index */
    char warning[256];
} dlpi_indexed;

/* ---- threads that find items ---- */

typedef struct dlpi_jobs {
    pthread_mutex_t lock;
    uint64_t next, n;
    uint64_t failed; /* the first one that failed; n: none */
    int rc;
    dlp_error *err;
    int (*run)(void *user, uint64_t i, dlp_error *err);
    void *user;
} dlpi_jobs;

static void *dlpi_jobs_thread(void *arg) {
    dlpi_jobs *j = arg;
    dlp_error err;
    for (;;) {
        uint64_t i;
        int rc;
        pthread_mutex_lock(&j->lock);
        i = j->rc == DLP_OK ? j->next++ : j->n;
        pthread_mutex_unlock(&j->lock);
        if (i >= j->n) return NULL;
        if ((rc = j->run(j->user, i, &err)) == DLP_OK) continue;
        pthread_mutex_lock(&j->lock);
        if (i < j->failed) {
            j->failed = i;
            j->rc = rc;
            if (j->err != NULL) *j->err = err;
        }
        pthread_mutex_unlock(&j->lock);
    }
}

/* Run jobs 0..n - 1 in threads, of which this one is the first. Returns what the first job that
   failed returned. */
static int dlpi_jobs_run(uint64_t n, int threads, int (*run)(void *, uint64_t, dlp_error *),
                         void *user, dlp_error *err) {
    dlpi_jobs j = {PTHREAD_MUTEX_INITIALIZER, 0, n, n, DLP_OK, err, run, user};
    pthread_t others[256];
    int n_others = 0;
    while (n_others < threads - 1 && (uint64_t)n_others + 1 < n &&
           pthread_create(&others[n_others], NULL, dlpi_jobs_thread, &j) == 0)
        n_others++;
    dlpi_jobs_thread(&j);
    for (int i = 0; i < n_others; i++) pthread_join(others[i], NULL);
    pthread_mutex_destroy(&j.lock);
    return j.rc;
}

static int dlpi_jobs_threads(int32_t given) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (given > 0) return given;
    return cpus < 1 ? 1 : cpus > 16 ? 16 : (int)cpus;
}

/* ---- open ---- */

static int dlpi_indexed_stat(const dlpi_indexed_file *f, struct stat *st, dlp_error *err) {
    if (fstat(f->fd, st) != 0) return dlpi_formats_system(err, f->path, "fstat", errno);
    if (S_ISREG(st->st_mode)) return DLP_OK;
    return dlpi_formats_error(err, DLP_ERR_ARG, 0, "path", "%s: is %s", dlpi_formats_name(f->path),
                              S_ISDIR(st->st_mode) ? "a directory" : "no regular file");
}

/* Find the items of a file, and write the index file if there is to be one. */
static int dlpi_indexed_find(dlpi_indexed *x, dlpi_indexed_file *f, const dlpi_index_key *key,
                             const char *path, dlp_error *err) {
    struct stat st;
    dlpi_index_key now;
    dlpi_index map;
    int rc = x->find(x, f, err);
    if (rc != DLP_OK || (rc = dlpi_indexed_stat(f, &st, err)) != DLP_OK) return rc;
    now = dlpi_index_key_of(&st, x->kind);
    if (memcmp(&now, key, sizeof now) != 0)
        return dlpi_formats_error(err, DLP_ERR_CORRUPT, 0, "path",
                                  "%s: changed while its items were found",
                                  dlpi_formats_name(f->path));
    f->found = true;
    if (path[0] == 0) return DLP_OK;
    f->unwritten = dlpi_index_write(&f->index, path, key);
    if (f->unwritten != 0 || !dlpi_index_map(&map, path, key)) return DLP_OK;
    dlpi_index_free(&f->index);
    f->index = map;
    return DLP_OK;
}

/* Open file i, and take its index or find its items. */
static int dlpi_indexed_one(void *user, uint64_t i, dlp_error *err) {
    dlpi_indexed *x = user;
    dlpi_indexed_file *f = &x->file[i];
    char path[DLPI_FORMATS_PATH] = "";
    dlpi_index_key key;
    struct stat st;
    int rc;
    if ((f->fd = dlpi_formats_open(f->path)) < 0)
        return dlpi_formats_system(err, f->path, "open", errno);
    if ((rc = dlpi_indexed_stat(f, &st, err)) != DLP_OK) return rc;
    f->bytes = (uint64_t)st.st_size;
    key = dlpi_index_key_of(&st, x->kind);
    if ((x->directory == NULL || x->directory[0] != 0) &&
        !dlpi_index_path(path, x->directory, f->path))
        return dlpi_formats_system(err, f->path, "name of its index", ENAMETOOLONG);
    if (path[0] != 0 && dlpi_index_map(&f->index, path, &key)) return DLP_OK;
    return dlpi_indexed_find(x, f, &key, path, err);
}

/* Count the items of all files. */
static void dlpi_indexed_count(dlpi_indexed *x) {
    x->id = dlp_hash(x->kind, x->skip, x->n_files, 0);
    for (uint64_t i = 0; i < x->n_files; i++) {
        dlpi_indexed_file *f = &x->file[i];
        const uint64_t n = f->index.n > x->skip ? f->index.n - x->skip : 0;
        f->first = x->n_items;
        x->n_items += n;
        if (n > 0 && f->index.most > x->most) x->most = f->index.most;
        x->found += f->found;
        x->id = dlp_hash(x->id, n, f->bytes, 0);
        if (f->unwritten != 0 && x->warning[0] == 0)
            snprintf(x->warning, sizeof x->warning,
                     "%s: its index file cannot be written (%s); it is made again by each open",
                     dlpi_formats_name(f->path), strerror(f->unwritten));
    }
}

/* Free a source, also one that was opened in part. */
static void dlpi_indexed_free(dlpi_indexed *x) {
    for (uint64_t i = 0; i < x->n_files; i++) {
        dlpi_index_free(&x->file[i].index);
        if (x->file[i].fd >= 0) close(x->file[i].fd);
        free(x->file[i].path);
    }
    free(x->file);
    free(x);
}

/* Is a list of files given, by one path or by several? Else say what is wrong. */
static const char *dlpi_indexed_wrong(const char *path, const char *const *paths, uint64_t n,
                                      int32_t threads, const char **field) {
    if ((path == NULL) == (paths == NULL)) return *field = "path", "one of path and paths";
    if (path != NULL && n != 0) return *field = "n_paths", "0 with path";
    if (paths != NULL && (n == 0 || n > 1u << 20)) return *field = "n_paths", "1 to 2^20";
    for (uint64_t i = 0; i < n; i++)
        if (paths[i] == NULL) return *field = "paths", "none of them NULL";
    if (threads < 0 || threads > 256) return *field = "threads", "0 to 256";
    return NULL;
}

/* Make the record of a source. bytes: of the record that begins with dlpi_indexed. */
static void *dlpi_indexed_new(size_t bytes, const char *path, const char *const *paths,
                              uint64_t n_paths) {
    dlpi_indexed *x = calloc(1, bytes);
    const uint64_t n = path != NULL ? 1 : n_paths;
    if (x == NULL) return NULL;
    x->file = calloc((size_t)n, sizeof *x->file);
    for (uint64_t i = 0; x->file != NULL && i < n; i++) {
        x->file[i].fd = -1;
        x->n_files = i + 1;
        if ((x->file[i].path = strdup(path != NULL ? path : paths[i])) != NULL) continue;
        dlpi_indexed_free(x);
        return NULL;
    }
    if (x->file != NULL) return x;
    free(x);
    return NULL;
}

/* Open all files. together: several files at once, or each file by several threads. */
static int dlpi_indexed_open(dlpi_indexed *x, bool together, dlp_error *err) {
    int rc = dlpi_jobs_run(x->n_files, together ? x->threads : 1, dlpi_indexed_one, x, err);
    if (rc != DLP_OK) return rc;
    dlpi_indexed_count(x);
    if (x->n_items > 0) return DLP_OK;
    return dlpi_formats_error(err, DLP_ERR_ARG, 0, "path", "%s: no items in %s",
                              dlpi_formats_name(x->file[0].path),
                              x->n_files > 1 ? "this and the other files" : "this file");
}

/* ---- items ---- */

/* The file of an item: the last one that begins at it or before, among those that have items. */
static inline const dlpi_indexed_file *dlpi_indexed_file_of(const dlpi_indexed *x, uint64_t index) {
    uint64_t low = 0, n = x->n_files;
    while (n > 1) {
        uint64_t half = n / 2;
        low = x->file[low + half].first <= index ? low + half : low;
        n -= half;
    }
    return &x->file[low];
}

/* Say that what is at an item is not what the index promises. */
static int dlpi_indexed_unlike(const dlpi_indexed_file *f, const dlp_item *item, uint64_t at) {
    return dlp_fail(item->call, 0,
                    "%s: byte %" PRIu64 ": the index does not fit the file; remove its .dlpidx",
                    dlpi_formats_name(f->path), at);
}

/* Say that an item is too long. */
static int dlpi_indexed_long(const dlpi_indexed_file *f, const dlp_item *item, uint64_t at,
                             uint64_t n, uint64_t most) {
    dlp_fail(item->call, 0, "%s: byte %" PRIu64 ": %" PRIu64 " bytes, %" PRIu64 " are the most",
             dlpi_formats_name(f->path), at, n, most);
    return DLP_ERR_LENGTH;
}

static int dlpi_indexed_locate(void *user, const dlp_item *item, dlp_extent *out) {
    const dlpi_indexed *x = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(x, item->index);
    uint64_t from, to;
    if (!dlpi_index_item(&f->index, f->bytes, item->index - f->first + x->skip, &from, &to))
        return dlpi_indexed_unlike(f, item, from);
    if (from >= x->before) from -= x->before;
    out->fd = f->fd;
    out->path = f->path;
    out->offset = from;
    out->length = to - from;
    return 0;
}

/* ---- the source ---- */

static int dlpi_indexed_close(dlpi_indexed *x) {
    const int rc = dlp_source_close(x->files);
    if (rc == DLP_OK) dlpi_indexed_free(x);
    return rc;
}

/* Make the source. desc: what >>files needs beyond the places of items. */
static int dlpi_indexed_source(dlpi_indexed *x, const dlp_files_desc *desc,
                               int (*close_it)(dlp_source *), dlp_error *err) {
    dlp_files_desc d = *desc;
    int rc;
    d.n_items = x->n_items;
    d.locate = dlpi_indexed_locate;
    d.user = x;
    if ((rc = dlp_files_open(&x->files, &d, err)) != DLP_OK) return rc;
    x->dataset = *x->files->fetch.dataset;
    x->dataset.warning = x->warning[0] ? x->warning : NULL;
    x->source = *x->files;
    x->source.fetch.dataset = &x->dataset;
    x->source.id = x->id;
    x->source.close = close_it;
    return DLP_OK;
}
