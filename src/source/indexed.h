/* needs: lines */
#pragma once
/* tests: system/source/lines, system/source/tar */
#include "api/files.h"
#include "api/item_index.h"
#include "source/files.h"
#include "source/index_turn.h"
#include "source/identity.h"
#include "source/item_index.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-indexed   A SOURCE OF FILES THAT HAVE AN INDEX
   The items of such a source are stretches of files, and >>files reads them. Its locate finds the
   stretch of an item in the index. Its decode calls the splitter of the format, which makes the
   item. The source is a copy of the source of >>files, with an id and a close of its own. */

typedef struct dlpi_indexed_file {
    dlpi_mapped m;  /* the file; it is mapped if the desc says `maps` */
    uint64_t first; /* items of the files before it */
    dlpi_index index;
    int unwritten; /* errno of the failed write of its index file; 0: nothing failed */
    int unlocked;  /* errno of the failed lock beside its index file; 0: nothing failed */
    char *note;    /* what is doubtful in the file, for a warning; NULL: nothing; owned */
    bool found;    /* the file was searched for its items; false: an index file had them */
    bool busy;     /* another process finds its items: it is waited for behind the other files */
} dlpi_indexed_file;

struct dlpi_splitter;
typedef struct dlpi_indexed {
    dlp_source source; /* first */
    dlp_source *files; /* the source of >>files that reads the stretches */
    dlp_identity identity;
    dlp_indexed_desc d; /* its paths, index and log are valid only during open */
    const struct dlpi_splitter *how;
    uint64_t kind;      /* DLPI_INDEX_*, and in its high half the version of the rules by which
                           items are found: other rules make another index */
    uint64_t tail;      /* most bytes that are read of an item, its last ones; 0: all are read */
    dlp_field line;     /* the field of a source whose desc gives no fields: the item's bytes */
    dlpi_progress tell; /* log of the desc; valid only during open */
    int threads;
    bool alone; /* a worker has one item at a time in hand */
    char warning[256];
    dlp_index_info info;
    uint64_t n_files;
    dlpi_indexed_file file[]; /* [n_files] */
} dlpi_indexed;

/* What one format, lines or tar, does in its own way. */
typedef struct dlpi_splitter {
    uint64_t kind;   /* DLPI_INDEX_* */
    uint64_t before; /* bytes read before an item */
    uint64_t around; /* bytes of an item that max_bytes does not count, at most */
    bool alone;      /* a worker reads one item at a time, unless the desc has in_flight */
    bool together;   /* threads search several files at once; else all search one file */
    /* Look at a file that was opened, whether it has an index file or not; may be NULL. */
    int (*look)(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err);
    int (*find)(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err); /* fill f->index */
    /* Make an item of the n bytes that were read of its bytes [from, to) in the file. Returns 0 or
       a failure's code. */
    int (*item)(const dlpi_indexed *x, const dlpi_indexed_file *f, void *state, dlp_item *item,
                const void *bytes, uint64_t n, uint64_t from, uint64_t to);
} dlpi_splitter;

/* ---- threads that find items ---- */

typedef struct dlpi_jobs {
    dlpi_mutex lock;
    uint64_t next, n; /* the next job that a thread takes; number of jobs */
    uint64_t failed;  /* number of the first job that failed; n: none failed */
    int rc;
    dlp_error *err;
    int (*run)(void *user, uint64_t i, dlp_error *err);
    void *user;
} dlpi_jobs;

/* Run one job after the other until none is left or one has failed. The error of the failed job
   with the lowest number is kept. */
DLPI_COLD static void *dlpi_jobs_thread(void *arg) {
    dlpi_jobs *j = arg;
    dlp_error err;
    for (;;) {
        uint64_t i;
        int rc;
        dlpi_mutex_lock(&j->lock);
        i = j->rc == DLP_OK ? j->next++ : j->n;
        dlpi_mutex_unlock(&j->lock);
        if (i >= j->n) return NULL;
        if ((rc = j->run(j->user, i, &err)) == DLP_OK) continue;
        dlpi_mutex_lock(&j->lock);
        if (i < j->failed) {
            j->failed = i;
            j->rc = rc;
            if (j->err != NULL) *j->err = err;
        }
        dlpi_mutex_unlock(&j->lock);
    }
}

/* Run jobs 0..n - 1 in threads, of which this one is the first. Returns DLP_OK, or the code of the
   lowest-numbered job that failed, with its error in *err. */
DLPI_COLD static int dlpi_jobs_run(uint64_t n, int threads,
                                   int (*run)(void *, uint64_t, dlp_error *), void *user,
                                   dlp_error *err) {
    dlpi_jobs j = {DLPI_MUTEX_INIT, 0, n, n, DLP_OK, err, run, user};
    dlpi_thread others[256];
    int n_others = 0;
    while (n_others < threads - 1 && (uint64_t)n_others + 1 < n &&
           dlpi_thread_start(&others[n_others], dlpi_jobs_thread, &j, 0) == 0)
        n_others++;
    dlpi_jobs_thread(&j);
    for (int i = 0; i < n_others; i++) dlpi_thread_join(&others[i]);
    return j.rc;
}

/* ---- open ---- */

/* Keep a text about the file for a warning, unless it has one. Returns 0, or DLP_ERR_MEMORY and
   *err. */
DLPI_COLD static int dlpi_indexed_note(dlpi_indexed_file *f, const char *text, dlp_error *err) {
    if (text[0] == 0 || f->note != NULL) return DLP_OK;
    f->note = dlpi_string_copy(text);
    return f->note != NULL ? DLP_OK : dlpi_mapped_system(err, f->m.path, "strdup", ENOMEM);
}

/* Find the items of a file, and write its index file. A file about which the search has a note gets
   none, so that each open tells it again. path: of the index file; "": none is written.
   Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_indexed_find(dlpi_indexed *x, dlpi_indexed_file *f,
                                       const dlpi_index_key *key, const char *path, dlpi_scan *scan,
                                       dlp_error *err) {
    dlpi_facts now;
    dlpi_index map;
    const bool noted = f->note != NULL;
    int rc;
    f->m.scan = scan;
    rc = x->how->find(x, f, err);
    f->m.scan = NULL;
    if (rc != DLP_OK) return rc;
    if ((rc = dlpi_mapped_stat(&f->m, &now)) != 0)
        return dlpi_mapped_system(err, f->m.path, "fstat", rc);
    if (!dlpi_mapped_same(&f->m, &now))
        return dlpi_error_set(err, DLP_ERR_CORRUPT, "paths",
                              "%s: changed while its items were found", dlpi_path_end(f->m.path));
    f->found = true;
    if (path[0] == 0 || (f->note != NULL && !noted)) return DLP_OK;
    f->unwritten = dlpi_index_write(&f->index, path, key, scan);
    if (f->unwritten != 0 || !dlpi_index_map(&map, path, key)) return DLP_OK;
    dlpi_index_free(&f->index);
    f->index = map;
    return DLP_OK;
}

/* Take the index file of a file that is open, or find its items, unless another process does. Then
   the file is busy; if it was busy before, wait for its index. Returns 0, or a DLP_ERR code and
   *err. */
DLPI_COLD static int dlpi_indexed_index(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err) {
    char path[DLPI_PATH_MAX] = ""; /* of the index file; "": there is none, and nobody waits */
    const dlpi_index_key key = {x->kind, f->m.size, f->m.time_ns};
    dlpi_turn t = {.scan = {dlpi_turn_seen},
                   .tell = &x->tell,
                   .file = f->m.path,
                   .size = f->m.size,
                   .waits = f->busy,
                   .fd = -1};
    int rc = DLPI_TURN_MINE;
    if ((x->d.index == NULL || x->d.index[0] != 0) && !dlpi_index_path(path, x->d.index, f->m.path))
        return dlpi_mapped_system(err, f->m.path, "name of its index", ENAMETOOLONG);
    if (path[0] != 0 && !dlpi_index_map(&f->index, path, &key))
        rc = dlpi_turn_take(&t, &f->index, path, &key);
    f->busy = rc == DLPI_TURN_BUSY;
    if (rc != DLPI_TURN_MINE || f->index.mapped > 0) return DLP_OK;
    rc = dlpi_indexed_find(x, f, &key, path, &t.scan, err);
    f->unlocked = t.unlocked;
    dlpi_turn_end(&t, f->index.mapped > 0);
    return rc;
}

/* Open file i, and take its index file or find its items. If the file is open, wait for its items
   if another process finds them. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_indexed_one(void *user, uint64_t i, dlp_error *err) {
    dlpi_indexed *x = user;
    dlpi_indexed_file *f = &x->file[i];
    int rc = DLP_OK;
    if (f->m.path != NULL) return f->busy ? dlpi_indexed_index(x, f, err) : DLP_OK;
    rc = dlpi_mapped_open(&f->m, x->d.paths != NULL ? x->d.paths[i] : x->d.path, !x->d.maps,
                          x->n_files - i, err);
    if (rc == DLP_OK && x->how->look != NULL) rc = x->how->look(x, f, err);
    return rc == DLP_OK ? dlpi_indexed_index(x, f, err) : rc;
}

/* Note in the warning what was wrong with the index file of a file, unless another one is told. */
DLPI_COLD static void dlpi_indexed_warn(dlpi_indexed *x, const dlpi_indexed_file *f) {
    const char *path = dlpi_path_end(f->m.path);
    if (x->warning[0] != 0) return;
    if (f->unwritten != 0)
        snprintf(x->warning, sizeof x->warning,
                 "%s: its index file cannot be written (%s); it is made again by each open", path,
                 strerror(f->unwritten));
    else if (f->unlocked == ETIMEDOUT)
        snprintf(x->warning, sizeof x->warning,
                 "%s: the process that makes its index stood still; its items were found here, too",
                 path);
    else if (f->unlocked != 0)
        snprintf(x->warning, sizeof x->warning,
                 "%s: no lock beside its index (%s); each process finds its items itself", path,
                 strerror(f->unlocked));
}

/* Number the items of all files, compute the data's id, and note a warning of index files. */
DLPI_COLD static void dlpi_indexed_count(dlpi_indexed *x) {
    dlp_index_info *to = &x->info;
    to->id = dlp_hash((uint32_t)x->kind, x->d.skip, x->n_files, 0);
    for (uint64_t i = 0; i < x->n_files; i++) {
        dlpi_indexed_file *f = &x->file[i];
        const uint64_t n = f->index.n > x->d.skip ? f->index.n - x->d.skip : 0;
        f->first = to->n_items;
        to->n_items += n;
        if (n > 0 && f->index.most > to->longest) to->longest = f->index.most;
        to->found += f->found;
        to->id = dlp_hash(to->id, n, f->m.size, 0);
        dlpi_indexed_warn(x, f);
        if (f->note != NULL && x->warning[0] == 0)
            snprintf(x->warning, sizeof x->warning, "%s: %s", dlpi_path_end(f->m.path), f->note);
    }
}

/* Free a source, also one that was opened in part. */
DLPI_COLD static void dlpi_indexed_free(dlpi_indexed *x) {
    for (uint64_t i = 0; i < x->n_files; i++) {
        dlpi_index_free(&x->file[i].index);
        free(x->file[i].note);
        dlpi_mapped_close(&x->file[i].m);
    }
    free(x);
}

/* True if one of n texts is NULL. */
DLPI_COLD static bool dlpi_indexed_gap(const char *const *texts, uint64_t n) {
    for (uint64_t i = 0; texts != NULL && i < n; i++)
        if (texts[i] == NULL) return true;
    return false;
}

/* Return what the field *field of a desc must be, if the field is wrong; else NULL. */
DLPI_COLD static const char *dlpi_indexed_wrong(const dlp_indexed_desc *d, const dlpi_splitter *how,
                                                const char **field) {
    const bool tar = how->kind == DLPI_INDEX_TAR;
    const struct {
        const char *name;
        bool given, tar;
    } own[] = {{"parse", d->parse != NULL, false},          {"skip", d->skip != 0, false},
               {"no_empty", d->no_empty != 0, false},       {"optional", d->optional != 0, true},
               {"extensions", d->extensions != NULL, true}, {"decode", d->decode != NULL, true}};
    if ((d->path == NULL) == (d->paths == NULL))
        return *field = "paths", "given, or path, but not both";
    if (d->path != NULL && d->n_paths != 0) return *field = "n_paths", "0 with path";
    if (d->paths != NULL && (d->n_paths == 0 || d->n_paths > 1u << 20))
        return *field = "n_paths", "1 to 2^20";
    if (dlpi_indexed_gap(d->paths, d->n_paths)) return *field = "paths", "without a NULL";
    if (d->threads < 0 || d->threads > 256) return *field = "threads", "0 to 256";
    if (d->max_bytes > UINT64_C(1) << 40) return *field = "max_bytes", "0 to 2^40";
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].given && own[i].tar != tar)
            return *field = own[i].name, tar ? "0 or NULL for tar shards" : "0 or NULL for lines";
    if (d->moved < 0 || d->moved > 1) return *field = "moved", "0 or 1";
    if (d->no_empty < 0 || d->no_empty > 1) return *field = "no_empty", "0 or 1";
    if (d->optional < 0 || d->optional > 1) return *field = "optional", "0 or 1";
    if (d->insist < 0 || d->insist > 1) return *field = "insist", "0 or 1";
    if (d->maps < 0 || d->maps > 1) return *field = "maps", "0 or 1";
    if (tar && d->fields == NULL) return *field = "fields", "given: the fields of a sample";
    if (tar && (d->n_fields < 1 || d->n_fields > DLP_MAX_FIELDS))
        return *field = "n_fields", "1 to 16";
    if (dlpi_indexed_gap(d->extensions, d->n_fields))
        return *field = "extensions", "without a NULL";
    if ((d->fields == NULL) != (d->n_fields == 0))
        return *field = "n_fields", "0 without fields, else above 0";
    if (d->parse != NULL && d->n_fields == 0) return *field = "fields", "given: what parse writes";
    if (!tar && d->parse == NULL && d->n_fields > 0 &&
        (d->n_fields > 1 || !d->fields->ragged || d->fields->ndim != 1 ||
         (d->fields->dtype & 0xffff) != 8))
        return *field = "fields",
               "one field without a parse: ragged, of one dimension and one byte an element";
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

/* Return the first byte that is read of an item at bytes [from, to). The byte before the item may
   belong to it. If many empty lines lie before a line, only the end is read. */
static inline uint64_t dlpi_indexed_from(const dlpi_indexed *x, uint64_t from, uint64_t to) {
    if (from >= x->how->before) from -= x->how->before;
    return x->tail > 0 && to - from > x->tail ? to - x->tail : from;
}

/* Say where the bytes of an item are: its file, offset and length. Returns 0 or a failure's code,
   said in the item's call. */
static int dlpi_indexed_locate(void *user, const dlp_item *item, dlp_extent *out) {
    const dlpi_indexed *x = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(x, item->index);
    uint64_t from, to;
    if (!dlpi_index_item(&f->index, f->m.size, item->index - f->first + x->d.skip, &from, &to))
        return dlpi_indexed_unlike(f, item, from);
    out->fd = dlpi_mapped_fd(&f->m);
    out->path = f->m.path;
    out->offset = dlpi_indexed_from(x, from, to);
    out->length = to - out->offset;
    return 0;
}

/* Make an item of the n bytes that were read for it. Returns 0 or a failure's code, said in the
   item's call. */
static int dlpi_indexed_decode(void *user, void *state, dlp_item *item, const void *bytes,
                               uint64_t n) {
    const dlpi_indexed *x = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(x, item->index);
    uint64_t from, to;
    if (!dlpi_index_item(&f->index, f->m.size, item->index - f->first + x->d.skip, &from, &to))
        return dlpi_indexed_unlike(f, item, from);
    return x->how->item(x, f, state, item, bytes, n, from, to);
}

/* Ask the processor for the items that come soon. */
static inline void dlpi_indexed_touch(const dlpi_indexed *x, const dlp_item *item) {
    for (uint64_t next, from, to; (next = dlpi_item_ahead(item)) != UINT64_MAX;) {
        const dlpi_indexed_file *f = dlpi_indexed_file_of(x, next);
        if (dlpi_index_item(&f->index, f->m.size, next - f->first + x->d.skip, &from, &to))
            dlpi_mapped_touch(f->m.bytes + from, to - from);
    }
}

/* A dlp_dataset.fetch of files that are mapped: make an item of its bytes where they lie. Returns 0
   or a failure's code, said in the item's call. */
static int dlpi_indexed_mapped(void *user, dlp_item *item) {
    const dlpi_indexed *x = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(x, item->index);
    const dlpi_files_worker *w = item->worker_state;
    uint64_t from, to, at;
    int rc;
    if (w == NULL || &w->files->source != x->files) return dlpi_files_no_worker(item);
    if ((rc = dlpi_mapped_check((dlpi_mapped *)(uintptr_t)&f->m, item)) != 0) return rc;
    if (!dlpi_index_item(&f->index, f->m.size, item->index - f->first + x->d.skip, &from, &to))
        return dlpi_indexed_unlike(f, item, from);
    dlpi_indexed_touch(x, item);
    at = dlpi_indexed_from(x, from, to);
    return x->how->item(x, f, w->state, item, f->m.bytes + at, to - at, from, to);
}

/* A dlpi_files.again: open the item's file again, whose handle is dead. Returns 0 or a failure's
   code, said in the item's call. */
DLPI_COLD static int dlpi_indexed_again(void *user, const dlp_item *item, int used, int errnum) {
    const dlpi_indexed_file *f = dlpi_indexed_file_of(user, item->index);
    return dlpi_mapped_again(&f->m, used, errnum) ? 0 : dlpi_mapped_lost(&f->m, item, errnum);
}

/* ---- the source ---- */

DLPI_COLD static int dlpi_indexed_close(dlp_source *source) {
    dlpi_indexed *x = (dlpi_indexed *)(void *)source;
    const int rc = dlp_source_close(x->files);
    if (rc == DLP_OK) dlpi_indexed_free(x);
    return rc;
}

#define DLPI_LINES_TIMES 32u /* times the mean: a longest line above it is told */

/* Return the number, from 1, of the longest item of a file. */
DLPI_COLD static uint64_t dlpi_indexed_longest(const dlpi_indexed_file *f) {
    uint64_t from, to, most = 0, item = 0;
    for (uint64_t i = 0; i < f->index.n; i++) {
        if (!dlpi_index_item(&f->index, f->m.size, i, &from, &to) || to - from <= most) continue;
        most = to - from;
        item = i + 1;
    }
    return item;
}

/* Note a warning if each row has room for one line that is many times as long as the others. */
DLPI_COLD static void dlpi_indexed_warn_room(dlpi_indexed *x) {
    const dlpi_indexed_file *longest = x->file;
    const uint64_t most = x->info.longest;
    uint64_t bytes = 0, mean;
    if (x->d.max_bytes > 0 || x->warning[0] != 0) return;
    for (uint64_t i = 0; i < x->n_files; i++) {
        bytes += x->file[i].m.size;
        if (x->file[i].index.most > longest->index.most) longest = &x->file[i];
    }
    mean = bytes / x->info.n_items + 1;
    if (most < 4096 || most / DLPI_LINES_TIMES <= mean) return;
    snprintf(x->warning, sizeof x->warning,
             "%.60s: line %" PRIu64 " takes %" PRIu64 " bytes, the mean is %" PRIu64
             "; each row has room for it. Cut it, or set max_bytes",
             dlpi_path_end(longest->m.path), dlpi_indexed_longest(longest), most, mean);
}

/* Make the source of the items that were found. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_indexed_source(dlpi_indexed *x, dlp_error *err) {
    const dlp_indexed_desc *d = &x->d;
    const uint64_t longest = x->info.longest;
    const uint64_t most =
        d->max_bytes > 0 && d->max_bytes < longest ? d->max_bytes + x->how->around : longest;
    dlp_files_desc files = {.n_items = x->info.n_items,
                            .fields = d->fields,
                            .n_fields = d->n_fields,
                            .use_threads = d->use_threads,
                            .writes_all_bytes = d->parse == NULL && d->decode == NULL,
                            .locate = dlpi_indexed_locate,
                            .decode = dlpi_indexed_decode,
                            .user = x,
                            .max_bytes = most + x->how->before,
                            .worker_init = d->worker_init,
                            .worker_exit = d->worker_exit};
    dlpi_files *f;
    int rc;
    files.in_flight = x->alone ? 1 : d->in_flight;
    x->tail = d->no_empty ? files.max_bytes : 0;
    if (d->maps) files.max_bytes = 1; /* a worker has no buffer to read into */
    if (d->n_fields == 0) {
        x->line = (dlp_field){.name = "line", .dtype = DLP_U8, .ndim = 1, .ragged = 1};
        x->line.shape[0] = (int64_t)(d->max_bytes > 0 ? d->max_bytes : longest);
        files.fields = &x->line;
        files.n_fields = 1;
        dlpi_indexed_warn_room(x);
    }
    if (x->warning[0] != 0) files.warning = x->info.warning = x->warning;
    if ((rc = dlp_files_open(&x->files, &files, err)) != DLP_OK) return rc;
    f = (dlpi_files *)(void *)x->files;
    f->again = dlpi_indexed_again;
    f->worker_user = d->user;
    f->dataset.identity = &x->identity;
    x->source = f->source;
    if (d->maps) {
        f->dataset.fetch = dlpi_indexed_mapped;
        f->dataset.user = x;
    }
    if (x->alone) { /* the worker reads; short lines of a file in memory take less than a ring */
        x->source.fetcher = DLP_FETCH_SEQUENTIAL;
        x->source.in_flight = 0;
    }
    x->source.id = x->info.id;
    x->source.close = dlpi_indexed_close;
    x->info.worker_bytes = dlp_files_worker_bytes(x->files);
    return DLP_OK;
}

/* Open all files, and take or find their items. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_indexed_files(dlpi_indexed *x, dlp_error *err) {
    int rc = DLP_OK;
    x->tell.lock = (dlpi_mutex)DLPI_MUTEX_INIT;
    x->tell.next_ns = dlpi_now_ns() + DLPI_INDEX_TELL_NS;
    for (int pass = 0; pass < 2 && rc == DLP_OK; pass++) /* then the files of other processes */
        rc = dlpi_jobs_run(x->n_files, x->how->together ? x->threads : 1, dlpi_indexed_one, x, err);
    if (rc != DLP_OK) return rc;
    dlpi_indexed_count(x);
    if (x->info.n_items == 0)
        return dlpi_error_set(err, DLP_ERR_ARG, "paths", "%s: no items in %s",
                              dlpi_path_end(x->file[0].m.path),
                              x->n_files > 1 ? "this and the other files" : "this file");
    dlpi_identity_files(&x->identity, x->file, x->n_files, sizeof *x->file, x->d.moved);
    return DLP_OK;
}

/* Check a desc, open its files and make the source in *out. how: the splitter of the format.
   Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_indexed_open(dlp_source **out, const dlp_indexed_desc *desc,
                                       const dlpi_splitter *how, dlp_error *err) {
    const char *field = "", *wrong;
    dlpi_indexed *x;
    uint64_t n;
    bool alone;
    int rc;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, "", "out or desc is NULL");
    wrong = dlpi_indexed_wrong(desc, how, &field);
    alone = desc->in_flight == 0 && (how->alone || desc->maps);
    if (wrong == NULL && desc->maps && !alone)
        field = "in_flight", wrong = "0 with maps, which makes no requests";
    if (wrong != NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, field, "%s must be %s", field, wrong);
    n = desc->path != NULL ? 1 : desc->n_paths;
    if ((x = calloc(1, sizeof *x + (size_t)n * sizeof *x->file)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "malloc failed");
    x->d = *desc;
    x->how = how;
    x->alone = alone;
    x->n_files = n;
    x->kind = (desc->no_empty ? (uint64_t)DLPI_INDEX_NO_EMPTY : how->kind) |
              (uint64_t)(1 + desc->insist) << 32; /* 0: without the rules about zeros and marks */
    x->threads = desc->threads > 0 ? desc->threads : dlpi_cpu_count();
    if (desc->threads == 0 && x->threads > 16) x->threads = 16;
    x->tell.log = desc->log;
    x->tell.user = desc->log_user;
    for (uint64_t i = 0; i < n; i++) dlpi_mapped_begin(&x->file[i].m);
    rc = dlpi_indexed_files(x, err);
    if (rc == DLP_OK) rc = dlpi_indexed_source(x, err);
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
