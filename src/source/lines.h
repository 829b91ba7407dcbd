/* needs: files lines */
#pragma once
/* tests: system/source/lines */
#include "api/lines.h"
#include "source/indexed.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-lines     LINES
   Threads search line ends, each in a stretch of the file. A place of the index is the byte behind
   a line end. If empty lines are no items, they belong to the item of the next line: they lie
   before its text. */

/* Bytes: of a thread's stretch, at most and at least; read at once. */
enum { DLPI_LINES_STRETCH = 64 << 20, DLPI_LINES_LEAST = 64 << 10, DLPI_LINES_BLOCK = 1 << 20 };

typedef struct dlpi_lines {
    dlpi_indexed x; /* first */
    dlp_lines_desc d;
    dlp_field field; /* the field of a source whose desc gives no fields: the line's bytes */
} dlpi_lines;

/* ---- line ends ---- */

typedef struct dlpi_lines_find {
    const dlpi_lines *l;
    const dlpi_indexed_file *f;
    uint64_t stretch;  /* bytes of a stretch */
    dlpi_places *ends; /* line ends of each stretch */
} dlpi_lines_find;

/* Find the line ends in n bytes, before which 2 more bytes lie, and add their places to *e. begins:
   byte of the file. Returns false if there is no memory. */
static bool dlpi_lines_block(const dlpi_lines *l, dlpi_places *e, const uint8_t *bytes, uint64_t n,
                             uint64_t begins) {
    const uint8_t *at = bytes, *end = bytes + n;
    while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        bool empty = at[-1] == '\n' || (at[-1] == '\r' && at[-2] == '\n');
        at++;
        if (empty && l->d.no_empty) continue;
        if (!dlpi_places_add(e, begins + (uint64_t)(at - bytes))) return false;
    }
    return true;
}

/* Return the next byte of a file, from `at` on, that is not in a hole, or `end`. before: the 2
   bytes before it, which become zeros behind a hole. */
static uint64_t dlpi_lines_data(const dlpi_indexed_file *f, uint64_t at, uint64_t end,
                                uint8_t before[2]) {
    off_t data = at < end ? lseek(f->m.fd, (off_t)at, SEEK_DATA) : (off_t)at;
    if (data < 0) return errno == ENXIO ? end : at; /* nothing but a hole; or nobody knows */
    if ((uint64_t)data > at) memset(before, 0, 2);
    return (uint64_t)data;
}

/* Find the line ends of stretch i of *user, a dlpi_lines_find. Returns 0, or a code and *err. */
static int dlpi_lines_stretch(void *user, uint64_t i, dlp_error *err) {
    const dlpi_lines_find *find = user;
    const dlpi_indexed_file *f = find->f;
    const uint64_t most = find->stretch;
    uint64_t at = i * most, end = f->m.size - at < most ? f->m.size : at + most;
    uint8_t *buffer = malloc(DLPI_LINES_BLOCK + 2);
    int rc = DLP_OK;
    if (buffer == NULL) return dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
    memset(buffer, '\n', 2); /* as if a line had ended before the first one */
    if (at > 0 && dlpi_mapped_pread(&f->m, at - 2, 2, buffer) != 2)
        rc = dlpi_mapped_system(err, f->m.path, "read", errno);
    while (rc == DLP_OK && (at = dlpi_lines_data(f, at, end, buffer)) < end) {
        uint64_t n = end - at < DLPI_LINES_BLOCK ? end - at : DLPI_LINES_BLOCK;
        int64_t got = dlpi_mapped_pread(&f->m, at, n, buffer + 2);
        if (got < 0) rc = dlpi_mapped_system(err, f->m.path, "read", errno);
        if (got < (int64_t)n) break; /* it was cut: the caller sees that it has changed */
        if (!dlpi_lines_block(find->l, &find->ends[i], buffer + 2, n, at))
            rc = dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
        memmove(buffer, buffer + n, 2);
        at += n;
    }
    free(buffer);
    return rc;
}

/* Return the bytes of a stretch, so that there are a few for each thread. */
static uint64_t dlpi_lines_stretch_bytes(uint64_t bytes, int threads) {
    const uint64_t each = bytes / (4 * (uint64_t)threads);
    if (each > DLPI_LINES_STRETCH) return DLPI_LINES_STRETCH;
    return each < DLPI_LINES_LEAST ? DLPI_LINES_LEAST : each;
}

/* Put the line ends of n stretches together into the file's index. tail: a line without an end
   follows the last line end. Returns 0, or DLP_ERR_MEMORY and *err. */
DLPI_COLD static int dlpi_lines_join(dlpi_indexed_file *f, const dlpi_places *ends, uint64_t n,
                                     bool tail, dlp_error *err) {
    uint64_t lines = tail, *at, k = 0;
    for (uint64_t i = 0; i < n; i++) lines += ends[i].n;
    if ((at = malloc((size_t)(lines + 1) * sizeof *at)) == NULL)
        return dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
    at[k++] = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (ends[i].n > 0) memcpy(at + k, ends[i].at, (size_t)ends[i].n * sizeof *at);
        k += ends[i].n;
    }
    if (tail) at[k] = f->m.size;
    f->index = dlpi_index_of(at, lines);
    return DLP_OK;
}

/* Fill a file's index with its lines, in threads. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_lines_find_all(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err) {
    dlpi_lines *l = (dlpi_lines *)(void *)x;
    const uint64_t stretch = dlpi_lines_stretch_bytes(f->m.size, x->threads);
    const uint64_t n = f->m.size / stretch + (f->m.size % stretch != 0);
    dlpi_lines_find find = {l, f, stretch, calloc((size_t)n + 1, sizeof *find.ends)};
    char last = '\n';
    int rc;
    if (find.ends == NULL) return dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
    rc = dlpi_jobs_run(n, x->threads, dlpi_lines_stretch, &find, err);
    if (rc == DLP_OK && f->m.size > 0 && dlpi_mapped_pread(&f->m, f->m.size - 1, 1, &last) < 0)
        rc = dlpi_mapped_system(err, f->m.path, "read", errno);
    if (rc == DLP_OK) rc = dlpi_lines_join(f, find.ends, n, last != '\n', err);
    for (uint64_t i = 0; i < n; i++) free(find.ends[i].at);
    free(find.ends);
    return rc;
}

/* ---- items ---- */

/* Find the line in the *n bytes at *line of an item, and set both to it. at: the item's first byte
   in the file, before which one more byte was read. Returns false if the bytes are no line. */
static bool dlpi_lines_cut(const dlpi_lines *l, const dlpi_indexed_file *f, uint64_t at,
                           const char **line, uint64_t *n) {
    const char *from = *line, *end = from + *n;
    uint64_t rest = f->m.size - at;
    if (at > 0 && *from++ != '\n') return false;
    while (l->d.no_empty && from < end &&
           (*from == '\n' || (*from == '\r' && end - from > 1 && from[1] == '\n')))
        from += *from == '\n' ? 1 : 2;
    if (from == end) return false;
    if (end[-1] == '\n') {
        end--;
        if (end > from && end[-1] == '\r') end--;
    } else if ((uint64_t)(end - *line) - (at > 0) != rest) {
        return false; /* only the last line of a file has no end */
    }
    *line = from;
    *n = (uint64_t)(end - from);
    return memchr(from, '\n', (size_t)*n) == NULL;
}

static int dlpi_lines_decode(void *user, void *state, dlp_item *item, const void *bytes,
                             uint64_t n) {
    const dlpi_lines *l = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(&l->x, item->index);
    const char *line = bytes;
    uint64_t at, to, most = l->d.max_bytes;
    if (!dlpi_index_item(&f->index, f->m.size, item->index - f->first + l->x.skip, &at, &to) ||
        n != to - at + (at > 0) || !dlpi_lines_cut(l, f, at, &line, &n))
        return dlpi_indexed_unlike(f, item, at);
    if (most > 0 && n > most) return dlpi_indexed_long(f, item, at, n, most);
    if (l->d.parse != NULL) return l->d.parse(l->d.user, state, item, line, n);
    most = (uint64_t)l->x.dataset.fields->shape[0];
    if (n > most) return dlpi_indexed_long(f, item, at, n, most);
    if (n > 0) memcpy(item->data[0], line, (size_t)n);
    item->length[0] = n;
    return 0;
}

/* ---- open ---- */

DLPI_COLD static const char *dlpi_lines_wrong(const dlp_lines_desc *d, const char **field) {
    const char *wrong = dlpi_indexed_wrong(d->path, d->paths, d->n_paths, d->threads, field);
    if (wrong != NULL) return wrong;
    if (d->max_bytes > UINT64_C(1) << 40) return *field = "max_bytes", "0 to 2^40";
    if (d->no_empty < 0 || d->no_empty > 1) return *field = "no_empty", "0 or 1";
    if ((d->fields == NULL) != (d->n_fields == 0))
        return *field = "n_fields", "0 without fields, else above 0";
    if (d->parse != NULL && d->n_fields == 0) return *field = "fields", "given: what parse writes";
    if (d->parse == NULL && d->n_fields > 0 &&
        (d->n_fields > 1 || !d->fields->ragged || d->fields->ndim != 1 ||
         (d->fields->dtype & 0xffff) != 8))
        return *field = "fields",
               "one field without a parse: ragged, of one dimension and one byte an element";
    return NULL;
}

/* Make the source of the lines that were found. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_lines_source(dlpi_indexed *x, dlp_error *err) {
    dlpi_lines *l = (dlpi_lines *)(void *)x;
    const dlp_lines_desc *d = &l->d;
    const bool alone = d->in_flight == 0;
    const uint64_t most =
        d->max_bytes > 0 && d->max_bytes < l->x.most ? d->max_bytes + 2 : l->x.most;
    dlp_files_desc files = {.fields = d->fields,
                            .n_fields = d->n_fields,
                            .use_threads = d->use_threads,
                            .decode = dlpi_lines_decode,
                            .max_bytes = most + 1}; /* and the byte before */
    int rc;
    files.in_flight = d->in_flight;
    if (alone) files.in_flight = 1;
    l->field = (dlp_field){.name = "line", .dtype = DLP_U8, .ndim = 1, .ragged = 1};
    l->field.shape[0] = (int64_t)(d->max_bytes > 0 ? d->max_bytes : l->x.most);
    if (d->n_fields == 0) {
        files.fields = &l->field;
        files.n_fields = 1;
    }
    rc = dlpi_indexed_source(&l->x, &files, err);
    if (rc != DLP_OK) return rc;
    if (alone) { /* the worker reads; short lines of a file in memory take less than a ring */
        l->x.source.fetch.fetcher = DLP_FETCH_SEQUENTIAL;
        l->x.source.fetch.in_flight = 0;
    }
    return DLP_OK;
}

DLPI_COLD DLPDEF int dlp_lines_open(dlp_source **out, const dlp_lines_desc *desc, dlp_error *err) {
    const char *field = "", *wrong;
    dlpi_lines *l;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, "", "out or desc is NULL");
    if ((wrong = dlpi_lines_wrong(desc, &field)) != NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, field, "%s must be %s", field, wrong);
    l = dlpi_indexed_new(sizeof *l, desc->path, desc->paths, desc->n_paths);
    if (l == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "malloc failed");
    l->d = *desc;
    l->x.kind = desc->no_empty ? DLPI_INDEX_NO_EMPTY : DLPI_INDEX_LINES;
    l->x.skip = desc->skip;
    l->x.before = 1;
    l->x.directory = desc->index;
    l->x.worker_init = desc->worker_init;
    l->x.worker_exit = desc->worker_exit;
    l->x.user = desc->user;
    l->x.threads = dlpi_jobs_threads(desc->threads);
    l->x.find = dlpi_lines_find_all;
    l->x.make = dlpi_lines_source;
    return dlpi_indexed_open(out, &l->x, false, err);
}
