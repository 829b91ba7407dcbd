/* needs: files lines */
#pragma once
/* tests: system/source/lines, system/source/tar */
#include "api/files.h"
#include "api/item_index.h"
#include "source/item_index.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-indexed   A SOURCE OF FILES THAT HAVE AN INDEX
   The items of such a source are stretches of files, and >>files reads them. Its locate finds the
   stretch of an item in the index. Its decode, which each format has, makes the item. The source is
   a copy of the source of >>files, with a dataset and a close of its own. */

typedef struct dlpi_indexed_file {
    dlpi_mapped m;  /* the file; it is read, not mapped */
    uint64_t first; /* items of the files before it */
    dlpi_index index;
    int unwritten; /* errno of the failed write of its index file; 0: nothing failed */
    bool found;    /* the file was searched for its items; false: an index file had them */
} dlpi_indexed_file;

typedef struct dlpi_indexed {
    dlp_source source; /* first */
    dlp_source *files; /* the source of >>files that reads the stretches */
    dlp_dataset dataset;
    /* most: bytes of the longest item; found: files that were searched; id: of the source */
    uint64_t n_files, n_items, most, found, id;
    dlpi_indexed_file *file; /* [n_files] */
    /* The format (lines, tar) sets all that follows. */
    uint64_t kind;         /* DLPI_INDEX_* */
    uint64_t skip, before; /* first items left out of each file; bytes read before an item */
    const char *directory; /* directory of index files, from the desc; valid only during open */
    const char *path, *const *paths; /* the files, from the desc; valid only during open */
    int threads;
    int (*worker_init)(void *user, int worker, void **state); /* of the user, or NULL */
    void (*worker_exit)(void *user, int worker, void *state);
    void *user;
    int (*find)(struct dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err); /* fill f->index */
    int (*make)(struct dlpi_indexed *x, dlp_error *err); /* the source, by dlpi_indexed_source */
    char warning[256];
    dlp_index_info info;
} dlpi_indexed;

/* ---- threads that find items ---- */

typedef struct dlpi_jobs {
    pthread_mutex_t lock;
    uint64_t next, n; /* the next job that a thread takes; number of jobs */
    uint64_t failed;  /* number of the first job that failed; n: none failed */
    int rc;
    dlp_error *err;
    int (*run)(void *user, uint64_t i, dlp_error *err);
    void *user;
} dlpi_jobs;

DLPI_COLD static void *dlpi_jobs_thread(void *arg) {
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

/* Run jobs 0..n - 1 in threads, of which this one is the first. Returns DLP_OK, or the code of the
   lowest-numbered job that failed, with its error in *err. */
DLPI_COLD static int dlpi_jobs_run(uint64_t n, int threads,
                                   int (*run)(void *, uint64_t, dlp_error *), void *user,
                                   dlp_error *err) {
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

DLPI_COLD static int dlpi_jobs_threads(int32_t given) {
    const int cpus = given > 0 ? given : dlpi_cpu_count();
    return given > 0 || cpus < 16 ? cpus : 16;
}

/* ---- open ---- */

/* Write the file's kind, length and time into *key. Returns 0, or DLP_ERR_SYSTEM and *err. */
DLPI_COLD static int dlpi_indexed_key(const dlpi_indexed *x, const dlpi_indexed_file *f,
                                      dlpi_index_key *key, dlp_error *err) {
    struct stat st;
    if (fstat(f->m.fd, &st) != 0) return dlpi_mapped_system(err, f->m.path, "fstat", errno);
    *key = dlpi_index_key_of(&st, x->kind);
    return DLP_OK;
}

/* Find the items of a file, and write its index file. path: of the index file; "": none is written.
   Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_indexed_find(dlpi_indexed *x, dlpi_indexed_file *f,
                                       const dlpi_index_key *key, const char *path,
                                       dlp_error *err) {
    dlpi_index_key now;
    dlpi_index map;
    int rc = x->find(x, f, err);
    if (rc == DLP_OK) rc = dlpi_indexed_key(x, f, &now, err);
    if (rc != DLP_OK) return rc;
    if (memcmp(&now, key, sizeof now) != 0)
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "paths",
                              "%s: changed while its items were found", dlpi_path_end(f->m.path));
    f->found = true;
    if (path[0] == 0) return DLP_OK;
    f->unwritten = dlpi_index_write(&f->index, path, key);
    if (f->unwritten != 0 || !dlpi_index_map(&map, path, key)) return DLP_OK;
    dlpi_index_free(&f->index);
    f->index = map;
    return DLP_OK;
}

/* Open file i, and take its index file or find its items. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_indexed_one(void *user, uint64_t i, dlp_error *err) {
    dlpi_indexed *x = user;
    dlpi_indexed_file *f = &x->file[i];
    char path[DLPI_PATH_MAX] = "";
    dlpi_index_key key;
    int rc = dlpi_mapped_open(&f->m, x->paths != NULL ? x->paths[i] : x->path, true, err);
    if (rc == DLP_OK) rc = dlpi_indexed_key(x, f, &key, err);
    if (rc != DLP_OK) return rc;
    if ((x->directory == NULL || x->directory[0] != 0) &&
        !dlpi_index_path(path, x->directory, f->m.path))
        return dlpi_mapped_system(err, f->m.path, "name of its index", ENAMETOOLONG);
    if (path[0] != 0 && dlpi_index_map(&f->index, path, &key)) return DLP_OK;
    return dlpi_indexed_find(x, f, &key, path, err);
}

/* Number the items of all files, compute the data's id, and note a warning of index files. */
DLPI_COLD static void dlpi_indexed_count(dlpi_indexed *x) {
    x->id = dlp_hash(x->kind, x->skip, x->n_files, 0);
    for (uint64_t i = 0; i < x->n_files; i++) {
        dlpi_indexed_file *f = &x->file[i];
        const uint64_t n = f->index.n > x->skip ? f->index.n - x->skip : 0;
        f->first = x->n_items;
        x->n_items += n;
        if (n > 0 && f->index.most > x->most) x->most = f->index.most;
        x->found += f->found;
        x->id = dlp_hash(x->id, n, f->m.size, 0);
        if (f->unwritten != 0 && x->warning[0] == 0)
            snprintf(x->warning, sizeof x->warning,
                     "%s: its index file cannot be written (%s); it is made again by each open",
                     dlpi_path_end(f->m.path), strerror(f->unwritten));
    }
}

/* Free a source, also one that was opened in part. */
DLPI_COLD static void dlpi_indexed_free(dlpi_indexed *x) {
    for (uint64_t i = 0; i < x->n_files; i++) {
        dlpi_index_free(&x->file[i].index);
        dlpi_mapped_close(&x->file[i].m);
    }
    free(x->file);
    free(x);
}

/* Return what is wrong with a list of files, which is one path or n paths, and set *field to the
   field's name; NULL if nothing is wrong. */
DLPI_COLD static const char *dlpi_indexed_wrong(const char *path, const char *const *paths,
                                                uint64_t n, int32_t threads, const char **field) {
    if ((path == NULL) == (paths == NULL)) return *field = "paths", "given, or path, but not both";
    if (path != NULL && n != 0) return *field = "n_paths", "0 with path";
    if (paths != NULL && (n == 0 || n > 1u << 20)) return *field = "n_paths", "1 to 2^20";
    for (uint64_t i = 0; i < n; i++)
        if (paths[i] == NULL) return *field = "paths", "without a NULL";
    if (threads < 0 || threads > 256) return *field = "threads", "0 to 256";
    return NULL;
}

/* Allocate the record of a source, with none of its files open. bytes: of the whole record, which
   begins with dlpi_indexed. Returns NULL if there is no memory. */
DLPI_COLD static void *dlpi_indexed_new(size_t bytes, const char *path, const char *const *paths,
                                        uint64_t n_paths) {
    dlpi_indexed *x = calloc(1, bytes);
    if (x == NULL) return NULL;
    x->path = path;
    x->paths = paths;
    x->n_files = path != NULL ? 1 : n_paths;
    x->file = calloc((size_t)x->n_files, sizeof *x->file);
    for (uint64_t i = 0; x->file != NULL && i < x->n_files; i++) x->file[i].m.fd = -1;
    if (x->file != NULL) return x;
    free(x);
    return NULL;
}

/* ---- items ---- */

/* Return the file that has an item. A file without items begins where the next one does. */
static inline const dlpi_indexed_file *dlpi_indexed_file_of(const dlpi_indexed *x, uint64_t index) {
    return &x->file[dlpi_file_of(&x->file->first, sizeof *x->file, x->n_files, index)];
}

/* Say in the item's call that the index is wrong at byte `at`. Returns the failure's code. */
DLPI_COLD static int dlpi_indexed_unlike(const dlpi_indexed_file *f, const dlp_item *item,
                                         uint64_t at) {
    return dlp_fail(item->call, 0,
                    "%s: byte %" PRIu64 ": the index does not fit the file; remove its .dlpidx",
                    dlpi_path_end(f->m.path), at);
}

/* Say in the item's call that an item of n bytes is longer than `most`. Returns DLP_ERR_LENGTH. */
DLPI_COLD static int dlpi_indexed_long(const dlpi_indexed_file *f, const dlp_item *item,
                                       uint64_t at, uint64_t n, uint64_t most) {
    dlp_fail(item->call, 0,
             "%s: byte %" PRIu64 ": the item has %" PRIu64 " bytes, must have at most %" PRIu64,
             dlpi_path_end(f->m.path), at, n, most);
    return DLP_ERR_LENGTH;
}

static int dlpi_indexed_locate(void *user, const dlp_item *item, dlp_extent *out) {
    const dlpi_indexed *x = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(x, item->index);
    uint64_t from, to;
    if (!dlpi_index_item(&f->index, f->m.size, item->index - f->first + x->skip, &from, &to))
        return dlpi_indexed_unlike(f, item, from);
    if (from >= x->before) from -= x->before;
    out->fd = f->m.fd;
    out->path = f->m.path;
    out->offset = from;
    out->length = to - from;
    return 0;
}

/* ---- the source ---- */

DLPI_COLD static int dlpi_indexed_close(dlp_source *source) {
    dlpi_indexed *x = (dlpi_indexed *)(void *)source;
    const int rc = dlp_source_close(x->files);
    if (rc == DLP_OK) dlpi_indexed_free(x);
    return rc;
}

/* Call the user's worker_init with the user's pointer: decode gets the source. Returns its code. */
static int dlpi_indexed_enter(void *user, int worker, void **state) {
    const dlpi_indexed *x = user;
    return x->worker_init(x->user, worker, state);
}

static void dlpi_indexed_leave(void *user, int worker, void *state) {
    const dlpi_indexed *x = user;
    x->worker_exit(x->user, worker, state);
}

/* Make the source of the items that were found. desc: what >>files needs beyond the places of
   items. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_indexed_source(dlpi_indexed *x, const dlp_files_desc *desc,
                                         dlp_error *err) {
    dlp_files_desc d = *desc;
    int rc;
    d.n_items = x->n_items;
    d.locate = dlpi_indexed_locate;
    d.user = x;
    d.worker_init = x->worker_init != NULL ? dlpi_indexed_enter : NULL;
    d.worker_exit = x->worker_exit != NULL ? dlpi_indexed_leave : NULL;
    if ((rc = dlp_files_open(&x->files, &d, err)) != DLP_OK) return rc;
    x->dataset = *x->files->fetch.dataset;
    x->dataset.warning = x->warning[0] ? x->warning : NULL;
    x->source = *x->files;
    x->source.fetch.dataset = &x->dataset;
    x->source.id = x->id;
    x->source.close = dlpi_indexed_close;
    x->info = (dlp_index_info){.n_items = x->n_items,
                               .longest = x->most,
                               .found = x->found,
                               .worker_bytes = dlp_files_worker_bytes(x->files),
                               .id = x->id,
                               .warning = x->dataset.warning};
    return DLP_OK;
}

/* Open all files and make the source in *out. together: threads open several files at once; else
   one file after the other, each searched by several threads. Returns 0, or a DLP_ERR code and
   *err; then x is freed. */
DLPI_COLD static int dlpi_indexed_open(dlp_source **out, dlpi_indexed *x, bool together,
                                       dlp_error *err) {
    int rc = dlpi_jobs_run(x->n_files, together ? x->threads : 1, dlpi_indexed_one, x, err);
    if (rc == DLP_OK) dlpi_indexed_count(x);
    if (rc == DLP_OK && x->n_items == 0)
        rc = dlpi_error_set(err, DLP_ERR_ARG, "paths", "%s: no items in %s",
                            dlpi_path_end(x->file[0].m.path),
                            x->n_files > 1 ? "this and the other files" : "this file");
    if (rc == DLP_OK) rc = x->make(x, err);
    if (rc == DLP_OK)
        *out = &x->source;
    else
        dlpi_indexed_free(x);
    return rc;
}

DLPI_COLD DLPDEF const dlp_index_info *dlp_index_describe(const dlp_source *source) {
    return source != NULL && source->close == dlpi_indexed_close
               ? &((const dlpi_indexed *)(const void *)source)->info
               : NULL;
}
