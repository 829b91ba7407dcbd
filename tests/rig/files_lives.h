/* needs: files lines tokens arrays parts */
/* Runs that are resumed, in another life of the program, on files that are the same, have moved or
   are others. Behind the headers of lines, tar, tokens and arrays. */
#ifndef FILES_LIVES_H
#define FILES_LIVES_H

enum { LIVES_LINES, LIVES_TAR, LIVES_TOKENS, LIVES_ARRAYS, LIVES_KINDS };
enum { SAME, TOUCHED, MOVED, NAMED, GROWN, SWAPPED, RENAMED, REPLACED }; /* up to NAMED: goes on */

typedef struct lives_case {
    int kind, moved; /* moved: the desc says that names may differ */
    uint64_t n;
    const char *dir, *paths[3];
    blob file[3];
    lines_case lines;
    tar_case tar;
    tokens_case tokens;
    arrays_case arrays;
} lives_case;

/* ---- files ---- */

/* Write file i of a case, with `items` items. */
static void lives_write(lives_case *c, uint64_t i, uint64_t each) {
    const uint64_t shape[] = {3};
    blob *b = &c->file[i];
    FILE *f;
    b->n = 0;
    if (c->kind == LIVES_LINES) write_text(b, each);
    if (c->kind == LIVES_TAR) write_tar(&c->tar, b, each);
    if (c->kind == LIVES_TOKENS) write_shard(&c->tokens, b, 5 * each + 1);
    if (c->kind == LIVES_ARRAYS) write_array(b, DLP_ARRAY_NPY, 4, each, shape, 1);
    f = fopen(c->paths[i], "wb");
    CHECK(f != NULL && fwrite(b->at, 1, b->n, f) == b->n && fclose(f) == 0);
}

/* Give the paths and bytes of all files to the descs and readers. */
static void lives_bind(lives_case *c) {
    c->lines = (lines_case){.d = {.paths = c->paths, .n_paths = c->n, .index = ""}};
    c->tar.d = (dlp_tar_desc){.paths = c->paths,
                              .n_paths = c->n,
                              .index = "",
                              .fields = tar_whole,
                              .n_fields = 1,
                              .decode = tar_decode};
    c->tokens.n = c->n;
    c->tokens.d = (dlp_tokens_desc){
        .paths = c->paths, .n_paths = c->n, .format = c->tokens.written, .length = 5};
    c->arrays.d = (dlp_arrays_desc){.columns = c->arrays.desc, .n_columns = 1};
    c->arrays.desc[0] = (dlp_array_column){
        .name = "x", .paths = c->paths, .n_paths = c->n, .format = DLP_ARRAY_NPY};
    c->arrays.column[0].n = c->n;
    c->lines.d.moved = c->tar.d.moved = c->tokens.d.moved = c->arrays.d.moved = c->moved;
    for (uint64_t i = 0; i < c->n; i++)
        c->lines.file[i] = c->tar.file[i] = c->tokens.file[i] = c->arrays.column[0].file[i] =
            c->file[i];
}

static void lives_want(want *w, const lives_case *c) {
    if (c->kind == LIVES_LINES) want_lines(w, &c->lines);
    if (c->kind == LIVES_TAR) want_tar(w, &c->tar);
    if (c->kind == LIVES_TOKENS) want_tokens(w, &c->tokens);
    if (c->kind == LIVES_ARRAYS) want_arrays(w, &c->arrays);
}

static int lives_open(dlp_source **s, const lives_case *c, dlp_error *err) {
    switch (c->kind) {
    case LIVES_LINES: return dlp_lines_open(s, &c->lines.d, err);
    case LIVES_TAR: return dlp_tar_open(s, &c->tar.d, err);
    case LIVES_TOKENS: return dlp_tokens_open(s, &c->tokens.d, err);
    default: return dlp_arrays_open(s, &c->arrays.d, err);
    }
}

/* Return path i below the case's directory, under a number of its own. */
static const char *lives_path(const lives_case *c, uint64_t number) {
    char name[24];
    snprintf(name, sizeof name, "part-%" PRIu64, number);
    return below(c->dir, name);
}

/* Write another file of the same length and name. Returns 0 if that cannot be. */
static int lives_replace(const lives_case *c, uint64_t i) {
    const blob *b = &c->file[i];
    const uint8_t *head = b->at;
    uint64_t at = b->n - 1; /* of the last number, or of the last line's text */
    FILE *f;
    if (c->kind == LIVES_LINES && b->at[at] == '\n') at = 0;
    if (c->kind == LIVES_TAR) {
        if (head[156] != '0' || read_octal(head + 124, 12) - 1 > 1000) return 0;
        at = TAR_BLOCK; /* the first member's data */
    }
    b->at[at] ^= 1;
    f = fopen(c->paths[i], "wb");
    CHECK(f != NULL && fwrite(b->at, 1, b->n, f) == b->n && fclose(f) == 0);
    return 1;
}

/* Change the files between two lives. Returns what was changed. */
static int lives_change(lives_case *c, uint64_t each) {
    static const int safe[] = {SAME, TOUCHED, MOVED, GROWN, NAMED};
    const uint64_t i = draw(c->n);
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    const char *path = c->paths[0];
    int how = safe[draw(5)];
    if (has(F_LIVES_NAMES, 2)) how = c->n > 1 && draw(2) ? SWAPPED : RENAMED;
    if (how < SWAPPED && has(F_LIVES_CONTENT, 3)) how = REPLACED;
    c->moved = how == NAMED;
    if (how == TOUCHED) CHECK(utimensat(AT_FDCWD, c->paths[i], times, 0) == 0);
    if (how == GROWN) lives_write(c, i, each + 1 + draw(3));
    if (how == SWAPPED) c->paths[0] = c->paths[1], c->paths[1] = path;
    if (how == RENAMED || how == NAMED) {
        const char *to = lives_path(c, 9);
        CHECK(rename(c->paths[i], to) == 0);
        c->paths[i] = to;
    }
    if (how == MOVED) {
        const char *to = copy_bytes((const uint8_t *)in_rig("moved"), strlen(in_rig("moved")));
        CHECK(rename(c->dir, to) == 0);
        c->dir = to;
        for (uint64_t k = 0; k < c->n; k++) c->paths[k] = lives_path(c, k);
    }
    if (how == REPLACED && !lives_replace(c, i)) how = SAME;
    return how;
}

/* ---- lives ---- */

/* Run one life: `batches` batches, or all that are left. Returns 0, or the error's code. */
static int lives_run(const lives_case *c, dlp_loader_desc l, got *g, uint64_t batches,
                     dlp_state *state) {
    dlp_source *s = NULL;
    dlp_error err = {0};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc;
    if ((rc = lives_open(&s, c, &err)) == DLP_OK) {
        l.source = s;
        rc = dlp_loader_open(&p, &l, &err);
    }
    if (rc != DLP_OK) {
        got_error(g, &err);
    } else if (batches == UINT64_MAX) {
        drain(g, p);
    } else {
        for (; batches > 0 && (rc = dlp_pipe_next(p, &b)) == DLP_OK; batches--) {
            take_batch(g, b);
            if (batches == 1) CHECK(dlp_pipe_state(p, b, state) == DLP_OK);
            dlp_pipe_release(p, b);
        }
        if (rc != DLP_OK) got_error(g, dlp_pipe_error(p));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    close_source(s, g);
    return g->code;
}

/* After a change the run goes on exactly, or is refused. */
static int lives_judge(const want *w, got *g, int how) {
    const int refused =
        (g->code == DLP_ERR_RESUME || (how == GROWN && g->code < 0)) && strlen(g->message) > 10;
    if (how <= NAMED) return judge(w, g, rig_dir);
    if (!refused) {
        say("\n  wrong: not refused; code %d: %s", g->code, g->message);
        return 1;
    }
    return 0;
}

static int lives_case_run(void) {
    static const char *const kinds[] = {"lines", "tar", "tokens", "arrays"};
    static const char *const changes[] = {"the same", "touched", "moved",   "renamed and told",
                                          "grown",    "swapped", "renamed", "replaced"};
    static lives_case c;
    const uint64_t each = 4 + draw(12);
    dlp_loader_desc l;
    dlp_state state;
    want w = {.verdict = GOOD, .nameless = 1};
    got g;
    int how;
    memset(&c, 0, sizeof c);
    c.kind = (int)draw(LIVES_KINDS);
    c.n = 1 + draw(3);
    c.tokens.written = draw(2) ? DLP_TOKENS_LLMC : DLP_TOKENS_NANOGPT;
    c.dir = copy_bytes((const uint8_t *)in_rig("data"), strlen(in_rig("data")));
    CHECK(mkdir(c.dir, 0755) == 0);
    for (uint64_t i = 0; i < c.n; i++) {
        c.paths[i] = lives_path(&c, i);
        lives_write(&c, i, each);
    }
    lives_bind(&c);
    lives_want(&w, &c);
    say("lives: %" PRIu64 " files of %s;", c.n, kinds[c.kind]);
    l = draw_loader(c.kind == LIVES_TAR);
    if (w.verdict != GOOD || w.x.n < 2) return 0;
    if (l.batch_size >= w.x.n) l.batch_size = (uint32_t)w.x.n - 1;
    got_begin(&g, w.x.n);
    g.in_order = !l.shuffle;
    if (lives_run(&c, l, &g, 1 + draw((w.x.n - 1) / l.batch_size), &state) == 0) {
        how = lives_change(&c, each);
        say(" then %s;", changes[how]);
        lives_bind(&c);
        l.pipe.resume = &state;
        l.num_workers = (int)draw(3) + (c.kind == LIVES_TAR);
        lives_run(&c, l, &g, UINT64_MAX, NULL);
        return lives_judge(&w, &g, how);
    }
    return judge(&w, &g, rig_dir);
}

#endif
