/* needs: files lines */
/* Random text files, and the lines that a reader finds in them. Behind files_random.h. */
#ifndef FILES_LINES_H
#define FILES_LINES_H
#include "files_index.h"

typedef struct lines_case {
    dlp_lines_desc d;
    dlp_loader_desc l;
    const char *paths[3];
    blob file[3];
} lines_case;

/* ---- the writer ---- */

/* Append the bytes of a line, without an end of a line. */
static void write_line(blob *b, uint64_t n) {
    static const char *const pieces[] = {"{\"a\": 1}", "\xc3\xa4",     "\t", ",",    "x",
                                         "\r",         "\xe2\x82\xac", " ",  "\x7f", "-"};
    const size_t end = b->n + n;
    while (b->n < end) put_text(b, pieces[draw(10)]);
    b->n = end;
    if (has(F_LINES_NULS, 30)) put(b, "a\0b", 3);
}

/* Write a text of n lines. */
static void write_text(blob *b, uint64_t n) {
    static const char *const ends[] = {"\n", "\r\n", "\n", "\r\r\n"};
    const uint64_t style = draw(4), mean = draw(30);
    const uint64_t outlier = has(F_OUTLIER, 12) ? draw(n) : UINT64_MAX;
    if (has(F_LINES_MARK, 6)) put_text(b, "\xef\xbb\xbf");
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t length = i == outlier ? 1000 * (mean + 1) : draw(2 * mean + 1);
        const size_t at = b->n;
        write_line(b, length);
        if (b->n > at && at < 4) b->at[at] = 'T'; /* not the first bytes of another kind */
        put_text(b, style == 3 ? ends[draw(4)] : ends[style]);
    }
    if (draw(3) == 0) write_line(b, 1 + draw(9));
    if (has(F_LINES_ZEROS, 12)) put(b, NULL, draw(2) ? 1 + draw(5) : 60 + draw(5000));
    if (has(F_LINES_ZEROS, 12)) put_text(b, "\nbehind\n");
}

/* ---- the reader ---- */

/* State what of a file is no text. */
static void judge_text(want *w, const blob *b, int alone) {
    uint64_t row = 0, controls = 0, zeros = 0, head = b->n < 512 ? b->n : 512, tail = 0;
    refuse_foreign(w, b, alone);
    for (uint64_t i = 0; i < b->n; i++) {
        row = b->at[i] == 0 ? row + 1 : 0;
        if (row == 64) worse(w, BAD, "it has 64 zeros in a row");
        zeros += i < head && b->at[i] == 0;
        controls += i < head && (b->at[i] < '\t' || (b->at[i] > '\r' && b->at[i] < ' '));
    }
    while (tail < b->n && b->at[b->n - 1 - tail] == 0) tail++;
    if (tail > 0) worse(w, BAD, "it ends in zeros");
    if (b->n >= 2 && (!memcmp(b->at, "\xff\xfe", 2) || !memcmp(b->at, "\xfe\xff", 2)))
        worse(w, BAD, "it is UTF-16");
    if (zeros > 1 && 8 * zeros + 7 >= head) worse(w, PERHAPS, "it has many zeros");
    w->may_warn += controls > 0;
    w->warns += b->n == 0;
}

/* Find the lines of a file. A line ends with \n or \r\n, or with the file. */
static void read_lines(want *w, const blob *b, const dlp_lines_desc *d) {
    uint64_t number = 0;
    size_t at = b->n >= 3 && memcmp(b->at, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, end, next;
    for (; at < b->n; at = next) {
        blob *item;
        for (end = at; end < b->n && b->at[end] != '\n'; end++) continue;
        next = end + 1;
        if (end < b->n && end > at && b->at[end - 1] == '\r') end--;
        if (d->no_empty && end == at) continue;
        if (number++ < d->skip) continue;
        item = items_add(&w->x);
        put_number(item, end - at, 8, 0);
        put(item, b->at + at, end - at);
        if (d->max_bytes > 0 && end - at > d->max_bytes) worse(w, BAD, "a line is too long");
    }
    if (!d->insist) judge_text(w, b, d->n_paths == 1);
}

static void want_lines(want *w, const void *of) {
    const lines_case *c = of;
    for (uint64_t i = 0; i < c->d.n_paths; i++) read_lines(w, &c->file[i], &c->d);
    if (w->x.n == 0) worse(w, BAD, "there are no lines");
}

/* ---- the library ---- */

static uint64_t open_lines(got *g, const void *of, uint64_t most) {
    const lines_case *c = of;
    dlp_source *s = NULL;
    dlp_error err = {0};
    uint64_t found = 0;
    got_begin(g, 0);
    if (dlp_lines_open(&s, &c->d, &err) != DLP_OK) {
        got_error(g, &err);
        return 0;
    }
    collect(g, s, &c->l, most);
    found = dlp_index_describe(s)->found;
    close_source(s, g);
    return found;
}

static int lines_case_run(void) {
    static lines_case c;
    const int mutated = has(F_MUTATED, 3);
    memset(&c, 0, sizeof c);
    c.d.paths = c.paths;
    c.d.n_paths = 1 + draw(3);
    c.d.skip = draw(4) == 0 ? (uint32_t)draw(3) : 0;
    c.d.no_empty = draw(3) == 0;
    c.d.max_bytes = draw(6) == 0 ? 1 + draw(60) : 0;
    c.d.insist = draw(5) == 0;
    c.d.threads = (int)draw(3);
    c.d.in_flight = draw(2) ? (int)draw(5) : 0; /* such requests need workers */
    c.d.use_threads = draw(3) == 0;
    say("lines: %" PRIu64 " files, skip %u, no_empty %d, max_bytes %" PRIu64
        ", insist %d, threads %d, in_flight %d, use_threads %d;",
        c.d.n_paths, c.d.skip, c.d.no_empty, c.d.max_bytes, c.d.insist, c.d.threads, c.d.in_flight,
        c.d.use_threads);
    c.l = draw_loader(c.d.in_flight > 0);
    for (uint64_t i = 0; i < c.d.n_paths; i++) {
        c.paths[i] = case_path("text", i, "");
        write_text(&c.file[i], draw(30));
        if (mutated && draw(c.d.n_paths) == 0) mutate(&c.file[i], 1, 1);
        if (has(F_LINES_FOREIGN, 20)) make_foreign(&c.file[i]);
        write_at(c.paths[i], &c.file[i]);
    }
    return run_indexed(&(indexed_case){want_lines, open_lines, &c, &c.d.index, c.paths, c.file,
                                       c.d.n_paths, 1, mutated, c.d.skip > 0, NULL});
}

#endif
