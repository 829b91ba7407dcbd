/* needs: lines */
#pragma once
/* tests: system/source/lines */
#include "api/lines.h"
#include "source/foreign.h"
#include "source/indexed.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-lines     LINES
   Threads search line ends, each in a stretch of the file. A place of the index is the byte behind
   a line end. If empty lines are no items, they belong to the item of the next line: they lie
   before its text. */

/* Bytes: of a thread's stretch, at most and at least; read at once. */
enum { DLPI_LINES_STRETCH = 64 << 20, DLPI_LINES_LEAST = 64 << 10, DLPI_LINES_BLOCK = 1 << 20 };

enum {
    DLPI_LINES_ZEROS = 64, /* zeros in a row that are no text: data that were not written */
    DLPI_LINES_MARK = 3    /* bytes of the UTF-8 byte order mark */
};

/* ---- text that is none ---- */

/* True if a file with these first n bytes begins with the UTF-8 byte order mark, which belongs to
   no line. */
static bool dlpi_lines_marked(const void *bytes, uint64_t n) {
    return n >= DLPI_LINES_MARK && memcmp(bytes, "\xef\xbb\xbf", DLPI_LINES_MARK) == 0;
}

/* Return the first of DLPI_LINES_ZEROS zeros in a row, or NULL. */
static const uint8_t *dlpi_lines_zeros(const uint8_t *at, const uint8_t *end) {
    while ((at = memchr(at, 0, (size_t)(end - at))) != NULL) {
        const uint8_t *behind = at;
        while (behind < end && *behind == 0)
            if (++behind - at == DLPI_LINES_ZEROS) return at;
        at = behind;
    }
    return NULL;
}

DLPI_COLD static int dlpi_lines_unwritten(const dlpi_mapped *m, uint64_t at, dlp_error *err) {
    return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, at,
                             "zeros; it must be text. Copy the file again, or set insist = 1");
}

/* Refuse a file that ends in a zero, by the first of its last zeros. Returns 0, or a DLP_ERR code
   and *err. */
DLPI_COLD static int dlpi_lines_tail(const dlpi_mapped *m, dlp_error *err) {
    char b[4096];
    uint64_t at = m->size, k = 0;
    while (at > 0 && k == 0) {
        uint64_t n = at < sizeof b ? at : sizeof b;
        int64_t got = dlpi_mapped_pread(m, at - n, n, b);
        if (got < 0) return dlpi_mapped_system(err, m->path, "read", (int)-got);
        if (got < (int64_t)n) return DLP_OK; /* it was cut: the caller sees that it has changed */
        for (k = n; k > 0 && b[k - 1] == 0;) k--;
        at -= n - k;
    }
    return at < m->size ? dlpi_lines_unwritten(m, at, err) : DLP_OK;
}

/* Refuse a file that is no text, and note an empty one. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_lines_look(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err) {
    const char *doubt = NULL;
    char words[80];
    int rc;
    if (x->d.insist) return DLP_OK;
    rc = dlpi_foreign_refuse(&f->m, DLPI_TAKES_TEXT, "lines of text", true, &doubt, err);
    if (rc == DLP_OK) rc = dlpi_lines_tail(&f->m, err);
    if (rc == DLP_OK && doubt != NULL) {
        snprintf(words, sizeof words, "%s. insist = 1 takes it as it is", doubt);
        rc = dlpi_indexed_note(f, words, err);
    }
    if (rc == DLP_OK && f->m.size == 0) rc = dlpi_indexed_note(f, "is empty", err);
    return rc;
}

/* ---- line ends ---- */

typedef struct dlpi_lines_find {
    const dlpi_indexed *x;
    const dlpi_indexed_file *f;
    uint64_t stretch;  /* bytes of a stretch */
    dlpi_places *ends; /* line ends of each stretch */
} dlpi_lines_find;

/* Find the line ends in n bytes, before which 2 more bytes lie, and add their places to *e. begins:
   byte of the file. Returns false if there is no memory. */
static bool dlpi_lines_block(const dlpi_indexed *x, dlpi_places *e, uint8_t *bytes, uint64_t n,
                             uint64_t begins) {
    const uint8_t *at = bytes, *end = bytes + n;
    if (begins == 0 && dlpi_lines_marked(bytes, n)) {
        at += DLPI_LINES_MARK;
        memset(bytes + DLPI_LINES_MARK - 2, '\n', 2); /* the first line begins here */
    }
    while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        bool empty = at[-1] == '\n' || (at[-1] == '\r' && at[-2] == '\n');
        at++;
        if (empty && x->d.no_empty) continue;
        if (!dlpi_places_add(e, begins + (uint64_t)(at - bytes))) return false;
    }
    return true;
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
    const int64_t two = at > 0 ? dlpi_mapped_pread(&f->m, at - 2, 2, buffer) : 2;
    if (two != 2) rc = dlpi_mapped_system(err, f->m.path, "read", two < 0 ? (int)-two : EIO);
    while (rc == DLP_OK && at < end) {
        const uint64_t data = dlpi_mapped_data(&f->m, at, end);
        uint64_t n = end - data < DLPI_LINES_BLOCK ? end - data : DLPI_LINES_BLOCK;
        const uint8_t *zeros;
        int64_t got;
        if (data - at >= DLPI_LINES_ZEROS && !find->x->d.insist)
            rc = dlpi_lines_unwritten(&f->m, at, err);
        if (data > at) memset(buffer, 0, 2); /* a hole has zeros */
        at = data;
        if (at == end || rc != DLP_OK) break;
        got = dlpi_mapped_pread(&f->m, at, n, buffer + 2);
        if (got < 0) rc = dlpi_mapped_system(err, f->m.path, "read", (int)-got);
        if (got < (int64_t)n) break; /* it was cut: the caller sees that it has changed */
        zeros = find->x->d.insist ? NULL : dlpi_lines_zeros(buffer + 2, buffer + 2 + n);
        if (zeros != NULL)
            rc = dlpi_lines_unwritten(&f->m, at + (uint64_t)(zeros - (buffer + 2)), err);
        if (!dlpi_lines_block(find->x, &find->ends[i], buffer + 2, n, at))
            rc = dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
        memmove(buffer, buffer + n, 2);
        at += n;
    }
    if (rc == DLP_OK && at == f->m.size && buffer[1] != '\n' && /* a last line without an end */
        !dlpi_places_add(&find->ends[i], at))
        rc = dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
    free(buffer);
    return rc;
}

/* Return the bytes of a stretch, so that there are a few for each thread. */
static uint64_t dlpi_lines_stretch_bytes(uint64_t bytes, int threads) {
    const uint64_t each = bytes / (4 * (uint64_t)threads);
    if (each > DLPI_LINES_STRETCH) return DLPI_LINES_STRETCH;
    return each < DLPI_LINES_LEAST ? DLPI_LINES_LEAST : each;
}

/* Put the line ends of n stretches together into the file's index. Returns 0, or DLP_ERR_MEMORY and
   *err. */
DLPI_COLD static int dlpi_lines_join(dlpi_indexed_file *f, const dlpi_places *ends, uint64_t n,
                                     dlp_error *err) {
    uint64_t lines = 0, *at, k = 0;
    for (uint64_t i = 0; i < n; i++) lines += ends[i].n;
    if ((at = malloc((size_t)(lines + 1) * sizeof *at)) == NULL)
        return dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
    at[k++] = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (ends[i].n > 0) memcpy(at + k, ends[i].at, (size_t)ends[i].n * sizeof *at);
        k += ends[i].n;
    }
    f->index = dlpi_index_of(at, lines);
    return DLP_OK;
}

/* Fill a file's index with its lines, in threads. Returns 0, or a DLP_ERR code and *err. */
DLPI_COLD static int dlpi_lines_find_all(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err) {
    const uint64_t stretch = dlpi_lines_stretch_bytes(f->m.size, x->threads);
    const uint64_t n = f->m.size / stretch + (f->m.size % stretch != 0);
    dlpi_lines_find find = {x, f, stretch, calloc((size_t)n + 1, sizeof *find.ends)};
    int rc;
    if (find.ends == NULL) return dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
    rc = dlpi_jobs_run(n, x->threads, dlpi_lines_stretch, &find, err);
    if (rc == DLP_OK) rc = dlpi_lines_join(f, find.ends, n, err);
    for (uint64_t i = 0; i < n; i++) free(find.ends[i].at);
    free(find.ends);
    return rc;
}

/* ---- items ---- */

/* True if bytes [at, end) of a file are empty lines alone. A mark may begin the file. bytes: all of
   them in memory; NULL: they are read. */
static bool dlpi_lines_empty(const dlpi_indexed_file *f, uint64_t at, uint64_t end,
                             const char *bytes) {
    char b[512];
    bool cr = false;
    for (uint64_t n = end - at; at < end; at += n) {
        const char *c = bytes != NULL ? bytes : b;
        if (bytes == NULL) {
            n = end - at < sizeof b ? end - at : sizeof b;
            if (dlpi_mapped_pread(&f->m, at, n, b) != (int64_t)n) return false;
        }
        for (uint64_t i = at == 0 && dlpi_lines_marked(c, n) ? DLPI_LINES_MARK : 0; i < n; i++) {
            if (c[i] != '\n' && (c[i] != '\r' || cr)) return false;
            cr = c[i] == '\r';
        }
    }
    return !cr;
}

/* Find the line in the *n bytes at *line, which were read for bytes [at, to) of a file, and set
   both to it. The byte before was read, too. If many empty lines lie before the line, only the last
   x->tail bytes were read. Returns 0 or a failure's code. */
static int dlpi_lines_cut(const dlpi_indexed *x, const dlpi_indexed_file *f, const dlp_item *item,
                          uint64_t at, uint64_t to, const char **line, uint64_t *n) {
    const uint64_t begins = at - (at > 0);
    const bool whole = x->tail == 0 || to - begins <= x->tail;
    const char *end = *line + *n, *first = *line + (at > 0), *from;
    if (*n != (whole ? to - begins : x->tail) || (end[-1] != '\n' && to != f->m.size) ||
        (whole && at > 0 && **line != '\n')) /* the line before must end here */
        return dlpi_indexed_unlike(f, item, at);
    if (end[-1] == '\n') {
        end--;
        end -= end > *line && end[-1] == '\r';
    }
    if (at == 0 && whole && dlpi_lines_marked(*line, *n)) first += DLPI_LINES_MARK;
    from = dlpi_last_byte(*line, '\n', (size_t)(end - *line));
    if (from == NULL && !whole)
        return dlpi_indexed_long(f, item, at, (uint64_t)(end - *line), x->d.max_bytes);
    from = from != NULL ? from + 1 : first;
    *n -= (uint64_t)(from - *line); /* of bytes from the line on */
    if (x->d.no_empty ? from == end || !dlpi_lines_empty(f, begins, to - *n, whole ? *line : NULL)
                      : from != first)
        return dlpi_indexed_unlike(f, item, at);
    *line = from;
    *n = (uint64_t)(end - from);
    return 0;
}

/* Give one line to the user's `parse`, or copy it into the field. Returns 0 or a failure's code:
   the file has changed, the line is too long, or `parse` failed. */
static int dlpi_lines_decode(const dlpi_indexed *x, const dlpi_indexed_file *f, void *state,
                             dlp_item *item, const void *bytes, uint64_t n, uint64_t at,
                             uint64_t to) {
    const char *line = bytes;
    const int rc = dlpi_lines_cut(x, f, item, at, to, &line, &n);
    uint64_t most = x->d.max_bytes;
    if (rc != 0) return rc;
    if (most > 0 && n > most) return dlpi_indexed_long(f, item, at, n, most);
    if (x->d.parse != NULL) return x->d.parse(x->d.user, state, item, line, n);
    most = (uint64_t)x->source.dataset->fields->shape[0];
    if (n > most) return dlpi_indexed_long(f, item, at, n, most);
    if (n > 0) memcpy(item->data[0], line, (size_t)n);
    item->length[0] = n;
    return 0;
}

/* ---- open ---- */

DLPI_COLD DLPDEF int dlp_lines_open(dlp_source **out, const dlp_lines_desc *desc, dlp_error *err) {
    static const dlpi_splitter how = {.kind = DLPI_INDEX_LINES,
                                      .before = 1,
                                      .around = 2 + DLPI_LINES_MARK,
                                      .alone = true,
                                      .look = dlpi_lines_look,
                                      .find = dlpi_lines_find_all,
                                      .item = dlpi_lines_decode};
    return dlpi_indexed_open(out, desc, &how, err);
}
