/* needs: files */
/* What random files of all sources share: draws, bytes, items, features that can be switched off,
   mutations, and the comparison of a source's rows with the items that a reader states. Nothing
   here calls the library but collect. Behind dlpipe.h, check.h and source_rig.h. */
#ifndef FILES_RANDOM_H
#define FILES_RANDOM_H

/* What a random file may have. 0 behind a feature: the library is known to be wrong there, so that
   no file has it. */
#define FEATURES(X) \
    X(MUTATED, "files that are cut, changed, grown, or of another kind", 1) \
    X(OUTLIER, "one item 1,000 times as long as the others", 1) \
    X(AGAIN, "a second open, by index files", 1) \
    X(OTHER_FIELDS, "a second open that wants other fields", 1) \
    X(INDEX_MUTATED, "index files that are cut, changed, or those of other files", 1) \
    X(LINES_MARK, "lines: a byte order mark", 1) \
    X(LINES_NULS, "lines: bytes of 0 among others", 1) \
    X(LINES_ZEROS, "lines: many zeros, or zeros at the end", 1) \
    X(LINES_FOREIGN, "lines: files of other kinds", 1) \
    X(TAR_LONG, "tar: long names of GNU and pax, prefixes of ustar", 1) \
    X(TAR_OTHERS, "tar: members that are no files, names without a key", 1) \
    X(TAR_BARE, "tar: ./ or / in front of some names", 1) \
    X(TAR_UNSORTED, "tar: samples that lack members", 1) \
    X(TAR_BEHIND, "tar: lone blocks of zeros, archives one behind the other", 1) \
    X(TAR_LINKS, "tar: links", 1) \
    X(TAR_AGAIN, "tar: keys that come again", 1) \
    X(TAR_STRAY, "tar: samples without any field, with optional", 1) \
    X(TAR_META, "tar: names of what is no sample, such as __name__", 1) \
    X(TOKENS_FOREIGN, "tokens: files of other kinds", 1) \
    X(TOKENS_ZEROS, "tokens: shards of zeros alone", 1) \
    X(ARRAYS_DIALECT, "arrays: npy headers of numpy's other dialects", 1) \
    X(ARRAYS_FOREIGN, "arrays: files of other kinds", 1) \
    X(FOLDER_NAMES, "folder: odd names, hidden ones, other extensions", 1) \
    X(FOLDER_LINKS, "folder: symbolic links, also loops and dead ones", 1) \
    X(FOLDER_EMPTY, "folder: classes without a file", 1) \
    X(FOLDER_CLASSES, "folder: classes of another folder", 1) \
    X(FOLDER_UNKNOWN, "folder: a class that the other folder may not have", 1) \
    X(FOLDER_SYSTEM, "folder: directories of other systems, such as lost+found", 1) \
    X(LIVES_NAMES, "lives: shards in another order, or under other names", 1) \
    X(LIVES_CONTENT, "lives: other shards of the same names and lengths", 1)

#define FEATURE_ENUM(name, text, on) F_##name,
#define FEATURE_TEXT(name, text, on) text,
#define FEATURE_ON(name, text, on) on,
enum { FEATURES(FEATURE_ENUM) FEATURES_N };
static const char *const feature_text[] = {FEATURES(FEATURE_TEXT)};
static const int feature_on[] = {FEATURES(FEATURE_ON)};

/* ---- draws ---- */

static uint64_t draw_state_;    /* of the case that runs */
static uint64_t features_drop_; /* a bit for each feature that is switched off */
static uint64_t features_had_;  /* a bit for each feature that the case has */

/* Return a number below n, by splitmix64. n 0 or 1: 0. */
static uint64_t draw(uint64_t n) {
    uint64_t z = draw_state_ += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return n > 1 ? (z ^ z >> 31) % n : 0;
}

/* True in one of n draws, if the feature is on. The draws that follow are the same without it. */
static int has(int feature, uint64_t n) {
    const int drawn = draw(n) == 0;
    if (!drawn || (features_drop_ >> feature & 1) != 0) return 0;
    features_had_ |= UINT64_C(1) << feature;
    return 1;
}

/* ---- words about a case ---- */

static char said_[4000];

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    const size_t n = strlen(said_);
    va_list args;
    va_start(args, format);
    vsnprintf(said_ + n, sizeof said_ - n, format, args);
    va_end(args);
}

/* ---- memory of a case, and bytes that grow ---- */

static struct kept {
    struct kept *next;
    uint64_t align;
} * kept_;

static void *keep(size_t n) {
    struct kept *k = calloc(1, sizeof *k + n);
    if (k == NULL) exit(1);
    k->next = kept_;
    kept_ = k;
    return k + 1;
}

static void keep_nothing(void) {
    while (kept_ != NULL) {
        struct kept *next = kept_->next;
        free(kept_);
        kept_ = next;
    }
}

typedef struct blob {
    uint8_t *at;
    size_t n, room;
} blob;

/* Append n bytes, and return where they are. from NULL: zeros. */
static uint8_t *put(blob *b, const void *from, size_t n) {
    if (b->n + n + 1 > b->room) {
        const size_t room = 2 * (b->n + n) + 64;
        uint8_t *more = keep(room);
        if (b->n > 0) memcpy(more, b->at, b->n);
        b->at = more;
        b->room = room;
    }
    if (from != NULL && n > 0) memcpy(b->at + b->n, from, n);
    if (from == NULL) memset(b->at + b->n, 0, n);
    b->n += n;
    return b->at + b->n - n;
}

static void put_text(blob *b, const char *text) { put(b, text, strlen(text)); }

/* Append a number of `width` bytes. big: its first byte is the highest. */
static void put_number(blob *b, uint64_t v, int width, int big) {
    uint8_t *at = put(b, NULL, (size_t)width);
    for (int i = 0; i < width; i++) at[big ? width - 1 - i : i] = (uint8_t)(v >> 8 * i);
}

static void put_random(blob *b, size_t n) {
    uint8_t *at = put(b, NULL, n);
    for (size_t i = 0; i < n; i++) at[i] = (uint8_t)draw(256);
}

static uint64_t number_at(const uint8_t *at, int width, int big) {
    uint64_t v = 0;
    for (int i = 0; i < width; i++) v = v << 8 | at[big ? i : width - 1 - i];
    return v;
}

/* Return a copy of n bytes with a 0 behind them. */
static const char *copy_bytes(const uint8_t *at, size_t n) {
    char *to = keep(n + 1);
    memcpy(to, at, n);
    return to;
}

/* ---- items, and what must be ---- */

typedef struct items {
    blob *item; /* [room] */
    uint64_t n, room;
} items;

static blob *items_add(items *x) {
    if (x->n == x->room) {
        blob *more = keep(sizeof *more * (2 * x->room + 16));
        if (x->n > 0) memcpy(more, x->item, sizeof *more * x->n);
        x->item = more;
        x->room = 2 * x->room + 16;
    }
    x->item[x->n] = (blob){NULL, 0, 0};
    return &x->item[x->n++];
}

/* What a reader says of files. The items stand in their order, as far as they could be read. */
enum { GOOD, PERHAPS, BAD }; /* these items; these, or an error; these at most, and an error */
typedef struct want {
    items x;
    int verdict;
    int warns;         /* files of which a warning is due, if there is no error */
    int may_warn;      /* files of which one may come */
    const char *named; /* what an error must name, besides a file; NULL: nothing */
    int nameless;      /* 1: an error need not name a file */
    int anywhere;      /* 1: before an error an item may come under the number of another one */
    char why[120];     /* the verdict */
} want;

/* Make the verdict worse, with its reason. */
__attribute__((format(printf, 3, 4))) static void worse(want *w, int verdict, const char *format,
                                                        ...) {
    va_list args;
    if (verdict <= w->verdict) return;
    w->verdict = verdict;
    va_start(args, format);
    vsnprintf(w->why, sizeof w->why, format, args);
    va_end(args);
}

/* What the library gave: rows by their index, or in the order in which they came. */
typedef struct got {
    items x;
    uint64_t most;  /* most items of x; a row of a higher index fails the case */
    uint8_t *came;  /* [most] */
    uint64_t n;     /* rows that came */
    int by_arrival; /* 1: the number of a row is that of its arrival */
    int in_order;   /* 1: indices must ascend */
    int code;       /* of the error; 0: none */
    char message[256], warning[256];
    int wrong;
} got;

static int wrong(got *g, const char *what, uint64_t i) {
    if (g->wrong++ == 0) say("\n  wrong: %s (%" PRIu64 ")", what, i);
    return 1;
}

static void got_begin(got *g, uint64_t most) {
    memset(g, 0, sizeof *g);
    g->most = most;
    g->came = keep(most + 1);
    for (uint64_t i = 0; i < most; i++) items_add(&g->x);
}

static void got_error(got *g, const dlp_error *err) {
    g->code = err->code;
    memcpy(g->message, err->message, sizeof g->message);
}

static uint64_t element_bytes(dlp_dtype t) { return ((t & 0xffff) + 7) / 8; }

/* Append row i of a batch to an item: of a ragged field its length and its rows. */
static void put_row(blob *to, const dlp_batch *b, uint32_t i) {
    for (uint32_t f = 0; f < b->n_fields; f++) {
        const dlp_tensor *t = &b->fields[f];
        uint64_t row = element_bytes(t->dtype), cell;
        for (int k = t->lengths != NULL ? 2 : 1; k < t->ndim; k++) row *= (uint64_t)t->shape[k];
        cell = t->lengths != NULL ? row * (uint64_t)t->shape[1] : row;
        if (t->lengths != NULL) put_number(to, t->lengths[i], 8, 0);
        put(to, (const uint8_t *)t->data + i * cell,
            t->lengths != NULL ? row * t->lengths[i] : row);
    }
}

/* Take the rows of a batch. */
static void take_batch(got *g, const dlp_batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t k = g->by_arrival ? g->n : b->index[i];
        if (!b->valid[i]) {
            wrong(g, "a row is not valid, of item", k);
        } else if (k >= g->most) {
            wrong(g, "a row that no reader found, of item", k);
        } else if (g->came[k]++ != 0) {
            wrong(g, "an item came twice", k);
        } else {
            if (g->in_order && k != g->n) wrong(g, "an item out of its order", k);
            put_row(&g->x.item[k], b, i);
        }
        g->n++;
    }
}

/* Drain a pipe and close it. */
static void drain(got *g, dlp_pipe *p) {
    dlp_batch *b;
    int rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        take_batch(g, b);
        dlp_pipe_release(p, b);
    }
    if (rc == DLP_TIMEOUT) wrong(g, "no batch within 20 s, behind row", g->n);
    got_error(g, dlp_pipe_error(p));
    if ((rc != DLP_END) != (g->code != 0)) wrong(g, "the code of next and of the pipe", g->n);
    if (dlp_pipe_warning(p, 0) != NULL)
        snprintf(g->warning, sizeof g->warning, "%s", dlp_pipe_warning(p, 0));
    if (dlp_pipe_close(p) != DLP_OK) wrong(g, "close failed, behind row", g->n);
}

/* Draw how a source is read: batches, workers (at least so many), order. */
static dlp_loader_desc draw_loader(int workers) {
    dlp_loader_desc l = {.batch_size = 1 + (uint32_t)draw(9), .num_workers = (int)draw(3)};
    if (l.num_workers < workers) l.num_workers = workers;
    l.shuffle = draw(3) == 0;
    l.seed = draw(1000);
    say(" batch %u, %d workers%s;", l.batch_size, l.num_workers, l.shuffle ? ", shuffled" : "");
    return l;
}

/* Read all rows of a source, or take the error of its open. most: number of the reader's items. */
static void collect(got *g, const dlp_source *s, const dlp_loader_desc *desc, uint64_t most) {
    dlp_loader_desc l = *desc;
    dlp_error err = {0};
    dlp_pipe *p = NULL;
    got_begin(g, most);
    g->in_order = !l.shuffle;
    l.source = s;
    if (dlp_loader_open(&p, &l, &err) != DLP_OK)
        got_error(g, &err);
    else
        drain(g, p);
}

static void close_source(dlp_source *s, got *g) {
    if (s != NULL && dlp_source_close(s) != DLP_OK) wrong(g, "the source does not close", 0);
}

static int same_bytes(const blob *a, const blob *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->at, b->at, a->n) == 0);
}

/* True if a row that came is item i, or any item where that is allowed. */
static int is_item(const want *w, const got *g, uint64_t i) {
    if (i < w->x.n && same_bytes(&w->x.item[i], &g->x.item[i])) return 1;
    for (uint64_t k = 0; w->anywhere && g->code != 0 && k < w->x.n; k++)
        if (same_bytes(&w->x.item[k], &g->x.item[i])) return 1;
    return 0;
}

/* Compare what came with what must be. Returns 0 if it is well. */
static int judge(const want *w, got *g, const char *names) {
    for (uint64_t i = 0; i < g->most; i++)
        if (g->came[i] && !is_item(w, g, i)) wrong(g, "an item has other bytes", i);
    for (uint64_t i = 0; i < w->x.n && g->code == 0; i++)
        if (i >= g->most || !g->came[i]) wrong(g, "an item is lost", i);
    if (g->code == 0 && w->verdict == BAD) {
        wrong(g, "no error", w->x.n);
        say(", but %s", w->why);
    }
    if (g->code == 0 && w->warns > 0 && g->warning[0] == 0) wrong(g, "no warning", w->x.n);
    if (g->code != 0 && w->verdict == GOOD) wrong(g, "an error of files that are well", w->x.n);
    if (g->code != 0 && (g->code > 0 || strlen(g->message) < 10))
        wrong(g, "an error without words", (uint64_t)-g->code);
    if (g->code != 0 && !w->nameless && strstr(g->message, names) == NULL)
        wrong(g, "an error that names no file", 0);
    if (g->code != 0 && w->named != NULL && strstr(g->message, w->named) == NULL)
        wrong(g, "an error that does not say what the file is", 0);
    if (g->wrong)
        say("\n  %" PRIu64 " items by the reader (%s), %" PRIu64 " rows; error %d: %s", w->x.n,
            w->why[0] ? w->why : "well", g->n, g->code, g->message);
    return g->wrong;
}

/* ---- mutations ---- */

static const struct {
    const char *name, *bytes; /* name: as an error must have it */
    size_t n;
} foreign[] = {{"gzip", "\x1f\x8b\x08\0\0\0\0\0\0\3", 10},
               {"zstd", "\x28\xb5\x2f\xfd\x04\x58\x31\0", 8},
               {"zip", "PK\3\4\x14\0\0\0\x08\0", 10},
               {"Parquet", "PAR1\x15\4\x15\x10\x15\x14", 10},
               {"HDF5", "\x89HDF\r\n\x1a\n\0\0", 10},
               {"NumPy", "\x93NUMPY\1\0\x16\0", 10},
               {"bzip2", "BZh91AY&SY", 10},
               {"xz",
                "\xfd"
                "7zXZ\0\0\4\xe6\xd6",
                10},
               {"lz4",
                "\4\"M\x18"
                "d@\xa7"
                "abc",
                10},
               {"an index file of dlpipe", "dlpipx1\1\1\0\0\0\0\0\0\0", 16}};
enum { FOREIGN_N = sizeof foreign / sizeof *foreign };

/* Return the number of the other kind that a file is of, or -1. */
static int foreign_kind(const blob *b) {
    for (int k = 0; k < FOREIGN_N; k++)
        if (b->n >= foreign[k].n && memcmp(b->at, foreign[k].bytes, foreign[k].n) == 0) return k;
    return -1;
}

/* State that a file of another kind is refused by its name. alone: nothing else is wrong. */
static void refuse_foreign(want *w, const blob *b, int alone) {
    const int k = foreign_kind(b);
    if (k < 0) return;
    if (w->verdict < BAD && alone) w->named = foreign[k].name;
    worse(w, BAD, "it is %s", foreign[k].name);
}

/* Replace a file by one of another kind. */
static void make_foreign(blob *b) {
    const uint64_t k = draw(FOREIGN_N);
    b->n = 0;
    put(b, foreign[k].bytes, foreign[k].n);
    put_random(b, draw(2000));
    say(" foreign: %s;", foreign[k].name);
}

/* Change a file as disks, networks and people do. unit: bytes of what it is made of, such as
   blocks. grows: bytes may be added at its end. */
static void mutate(blob *b, uint64_t unit, int grows) {
    const uint64_t kind = draw(grows ? 6 : 4);
    if (kind == 0 || kind == 1) {
        b->n = draw(b->n + 1);
        if (kind == 1) b->n -= b->n % unit;
        say(" cut to %zu;", b->n);
    } else if (kind == 2 || kind == 3) {
        const uint64_t most = kind == 3 && b->n > 600 ? 600 : b->n;
        for (uint64_t i = 1 + draw(3); i > 0 && b->n > 0; i--) {
            const uint64_t at = draw(most);
            b->at[at] = draw(2) ? (uint8_t)(b->at[at] ^ 1u << draw(8)) : (uint8_t)draw(256);
            say(" byte %" PRIu64 " changed;", at);
        }
    } else {
        const uint64_t n = draw(2) ? 1 + draw(40) : unit * (1 + draw(3));
        if (kind == 4)
            put_random(b, n);
        else
            put(b, NULL, n);
        say(" %" PRIu64 " %s behind the end;", n, kind == 4 ? "bytes" : "zeros");
    }
}

static const char *write_blob(const char *name, const blob *b) {
    return rig_write(name, b->n > 0 ? (const void *)b->at : "", b->n);
}

/* The path of file i of a case; it stays until the case ends. */
static const char *case_path(const char *name, uint64_t i, const char *ending) {
    char text[80];
    char *path = keep(400);
    snprintf(text, sizeof text, "%s%" PRIu64 "%s", name, i, ending);
    snprintf(path, 400, "%s", in_rig(text));
    return path;
}

static void write_at(const char *path, const blob *b) {
    const char *slash = strrchr(path, '/');
    write_blob(slash + 1, b);
}

static blob read_blob(const char *path) {
    blob b = {NULL, 0, 0};
    FILE *f = fopen(path, "rb");
    char buffer[4096];
    size_t n;
    while (f != NULL && (n = fread(buffer, 1, sizeof buffer, f)) > 0) put(&b, buffer, n);
    if (f != NULL) fclose(f);
    return b;
}

#endif
