/* needs: tokens */
/* Random shards of tokens, and the windows that a reader cuts out of them. Behind
   files_random.h. */
#ifndef FILES_TOKENS_H
#define FILES_TOKENS_H

enum { LLMC_BYTES = 1024 };

typedef struct tokens_case {
    dlp_tokens_desc d;
    const char *paths[4];
    blob file[4];
    uint64_t n;
    int32_t written; /* the format that the writer wrote; d.format may leave it to be guessed */
    int big, wide;   /* llm.c: of the other byte order; tokens of 4 bytes */
} tokens_case;

/* ---- the writer ---- */

/* Write a shard of n tokens in its format. */
static void write_shard(const tokens_case *c, blob *b, uint64_t n) {
    static const uint64_t others[] = {20240522, 20240326, 20240327, 20240328};
    const int wide = c->wide, zeros = has(F_TOKENS_ZEROS, 20);
    if (c->written == DLP_TOKENS_LLMC) {
        const uint64_t magic = wide ? 20240801 : 20240520;
        put_number(b,
                   c->big                      ? magic
                   : has(F_TOKENS_FOREIGN, 12) ? others[draw(4)]
                                               : magic,
                   4, c->big);
        put_number(b, wide ? 7 : 1, 4, c->big);
        put_number(b, n, 4, c->big);
        for (int i = 3; i < 256; i++) put_number(b, draw(4) ? 0 : draw(1000), 4, c->big);
    } else {
        put_random(b, c->d.header_bytes);
    }
    for (uint64_t i = 0; i < n; i++)
        put_number(b, zeros ? 0 : 1000 + draw(wide ? 100000 : 49000), wide ? 4 : 2, c->big);
}

/* ---- the reader ---- */

/* Cut the windows out of a shard. *width: bytes of a token, 0 before the first shard. */
static void read_shard(want *w, const tokens_case *c, const blob *b, int32_t *format, int *width) {
    const dlp_tokens_desc *d = &c->d;
    const uint64_t magic = b->n >= 4 ? number_at(b->at, 4, 0) : 0;
    const uint64_t windows = d->windows ? d->windows : 1,
                   stride = d->stride ? d->stride : d->length;
    const uint64_t multiple = d->multiple ? d->multiple : 1;
    uint64_t header = d->header_bytes, tokens, n = 0;
    int bytes = d->format == DLP_TOKENS_U32 ? 4 : 2;
    if (*format == DLP_TOKENS_AUTO)
        *format = magic == 20240520 || magic == 20240801 ? DLP_TOKENS_LLMC : DLP_TOKENS_NANOGPT;
    if (*format == DLP_TOKENS_LLMC) {
        bytes = magic == 20240801 ? 4 : 2;
        header = LLMC_BYTES;
        if (magic != 20240520 && magic != 20240801) worse(w, BAD, "no magic of llm.c");
        if (b->n < header || number_at(b->at + 4, 4, 0) != (bytes == 4 ? 7 : 1))
            worse(w, BAD, "no version of llm.c");
        else if (b->n != header + number_at(b->at + 8, 4, 0) * (uint64_t)bytes)
            worse(w, BAD, "the number of tokens is not that of the header");
    }
    if (*width != 0 && *width != bytes) worse(w, BAD, "tokens of two widths");
    *width = bytes;
    if (b->n < header || (b->n - header) % (uint64_t)bytes != 0) worse(w, BAD, "half a token");
    if (w->verdict == BAD) return;
    tokens = (b->n - header) / (uint64_t)bytes;
    while ((n * windows + windows - 1) * stride + d->length + 1 <= tokens) n++;
    for (uint64_t i = 0; i < n - n % multiple; i++) {
        blob *item = items_add(&w->x);
        for (uint64_t k = 0; k < windows; k++)
            for (uint64_t t = 0; t <= d->length; t++) {
                const uint64_t at = (i * windows + k) * stride + t;
                put_number(item, number_at(b->at + header + at * (uint64_t)bytes, bytes, 0),
                           d->widen ? 4 : bytes, 0);
            }
    }
}

/* State what of a shard is another kind of file. */
static void doubt_shard(want *w, const tokens_case *c, const blob *b, int32_t format) {
    static const uint64_t known[] = {20240520, 20240801, 20240522, 20240326, 20240327, 20240328};
    const uint64_t little = b->n >= 4 ? number_at(b->at, 4, 0) : 0;
    const uint64_t big = b->n >= 4 ? number_at(b->at, 4, 1) : 0;
    uint64_t zeros = format == DLP_TOKENS_LLMC ? LLMC_BYTES : c->d.header_bytes;
    const uint64_t from = zeros;
    if (c->d.insist) return;
    while (zeros < b->n && b->at[zeros] == 0) zeros++;
    w->warns += zeros - from >= 128 && zeros == b->n; /* all ids are 0 */
    if (c->d.header_bytes > 0) return;
    for (int i = 0; i < 6; i++) {
        if (little == known[i] && (i > 1 || format != DLP_TOKENS_LLMC))
            worse(w, BAD, "another file of llm.c");
        if (big == known[i]) worse(w, BAD, "the other byte order");
    }
    refuse_foreign(w, b, c->n == 1);
}

static void want_tokens(want *w, const tokens_case *c) {
    int32_t format = c->d.format;
    int width = 0;
    for (uint64_t i = 0; i < c->n; i++) {
        read_shard(w, c, &c->file[i], &format, &width);
        doubt_shard(w, c, &c->file[i], format);
    }
    if (w->x.n == 0) worse(w, BAD, "no shard has an item");
    w->nameless = w->x.n == 0;
}

/* ---- the library ---- */

static void draw_tokens(tokens_case *c) {
    static const int32_t formats[] = {DLP_TOKENS_LLMC, DLP_TOKENS_LLMC, DLP_TOKENS_NANOGPT,
                                      DLP_TOKENS_U16, DLP_TOKENS_U32};
    memset(c, 0, sizeof *c);
    c->n = 1 + draw(4);
    c->written = c->d.format = formats[draw(5)];
    c->wide = c->written == DLP_TOKENS_U32 || (c->written == DLP_TOKENS_LLMC && draw(2));
    if (c->written <= DLP_TOKENS_NANOGPT && draw(2)) c->d.format = DLP_TOKENS_AUTO;
    c->big = c->written == DLP_TOKENS_LLMC && has(F_TOKENS_FOREIGN, 12);
    if (c->written >= DLP_TOKENS_U16) c->d.header_bytes = draw(2) ? draw(100) : 0;
    c->d.length = 1 + draw(20);
    c->d.stride = draw(3) ? 0 : 1 + draw(30);
    c->d.windows = draw(3) ? 0 : (uint32_t)draw(4);
    c->d.multiple = draw(3) ? 0 : (uint32_t)draw(4);
    c->d.widen = draw(3) == 0;
    c->d.reads = draw(3) == 0;
    c->d.insist = draw(4) == 0;
    c->d.read_ahead = draw(3) == 0 ? DLP_NONE : (int32_t)draw(9);
    say("tokens: %" PRIu64 " shards of format %d as %d, header %" PRIu64 ", length %" PRIu64
        ", stride %" PRIu64 ", windows %u, multiple %u, widen %d, reads %d, insist %d;",
        c->n, c->written, c->d.format, c->d.header_bytes, c->d.length, c->d.stride, c->d.windows,
        c->d.multiple, c->d.widen, c->d.reads, c->d.insist);
}

static int tokens_case_run(void) {
    static tokens_case c;
    const int mutated = has(F_MUTATED, 3);
    dlp_loader_desc l;
    dlp_source *s = NULL;
    dlp_error err = {0};
    want w = {.verdict = GOOD};
    got g;
    draw_tokens(&c);
    l = draw_loader(0);
    for (uint64_t i = 0; i < c.n; i++) {
        c.paths[i] = case_path("shard", i, ".bin");
        write_shard(&c, &c.file[i], has(F_OUTLIER, 30) ? 20000 : draw(200));
        if (mutated && draw(c.n) == 0) mutate(&c.file[i], 2, 1);
        if (has(F_TOKENS_FOREIGN, 30)) make_foreign(&c.file[i]);
        write_at(c.paths[i], &c.file[i]);
    }
    if (draw(3) == 0) {
        c.d.pattern = in_rig("shard[0-9].bin");
    } else {
        c.d.paths = c.paths;
        c.d.n_paths = c.n;
    }
    want_tokens(&w, &c);
    if (mutated) worse(&w, PERHAPS, "it was changed");
    got_begin(&g, 0);
    if (dlp_tokens_open(&s, &c.d, &err) != DLP_OK)
        got_error(&g, &err);
    else
        collect(&g, s, &l, w.x.n);
    close_source(s, &g);
    return judge(&w, &g, strrchr(rig_dir, '/'));
}

#endif
