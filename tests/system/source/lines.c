/* needs: files lines */
/* Lines of text files: each file gives the lines that a plain loop over it gives, in any order,
   found by any number of threads; an index file is used again only if it is that of the file, and
   one that is cut, old or made up is made again, or is an error of an item. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../../dlpipe_shm.h"
#include "../../rig/check.h"
#include "../../rig/source_rig.h"
#include "../../rig/indexed_rig.h"

/* ---- the direct program ---- */

typedef struct text {
    char *bytes;
    uint64_t n;
} text;

/* Compare rows first.. with the lines of a text. Returns the index behind its last line. */
static uint64_t same_lines(const rig_rows *r, uint64_t first, text t, uint32_t skip, int no_empty) {
    uint64_t at = 0, k = first;
    while (at < t.n) {
        const char *line = t.bytes + at, *end = memchr(line, '\n', t.n - at);
        uint64_t n = end != NULL ? (uint64_t)(end - line) : t.n - at;
        at += n + 1;
        if (end != NULL && n > 0 && line[n - 1] == '\r') n--;
        if (n == 0 && no_empty) continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        CHECK(k < ROWS_MOST && r->row[k] != NULL && r->bytes[k] == n &&
              memcmp(r->row[k], line, n) == 0);
        k++;
    }
    return k;
}

/* A text of n bytes, more or less, in which everything comes that lines may have. */
static text random_text(uint64_t seed, uint64_t n) {
    text t = {malloc(n + 65), 0};
    while (t.n < n) {
        uint64_t r = dlp_hash(seed, t.n, 1, 2), some = 1 + (r >> 8 & 63);
        char *at = t.bytes + t.n;
        switch (r & 7) {
        case 0: memcpy(at, "\n", some = 1); break;
        case 1: memcpy(at, "\r\n", some = 2); break;
        case 2: memcpy(at, "\r", some = 1); break;
        case 3: memcpy(at, "\n\r\n\n", some = 4); break;
        default:
            for (uint64_t i = 0; i < some; i++) at[i] = (char)(dlp_hash(seed, t.n, i, 3) % 255);
        }
        t.n += some;
    }
    return t;
}

static int maps; /* 1: sources that make no requests are mapped */

static dlp_source *opened(const dlp_lines_desc *d) {
    dlp_lines_desc how = *d;
    dlp_source *s = NULL;
    dlp_error err;
    int rc;
    how.maps = maps && d->in_flight == 0;
    rc = dlp_lines_open(&s, &how, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("%s\n", err.message);
    return s;
}

/* The error of a desc, and words that its message has. */
static void refused(const dlp_lines_desc *d, int code, const char *word) {
    dlp_source *s = NULL;
    dlp_error err;
    int rc = dlp_lines_open(&s, d, &err);
    CHECK(rc == code && s == NULL && err.code == code && strstr(err.message, word) != NULL);
    if (rc != code || !strstr(err.message, word)) printf("%d: %s: %s\n", rc, word, err.message);
}

/* How many files have such a name?. */
static int files_named(const char *word) {
    DIR *d = opendir(rig_dir);
    int n = 0;
    CHECK(d != NULL);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += strstr(e->d_name, word) != NULL;
    if (d) closedir(d);
    return n;
}

/* ---- lines ---- */

static void lines__any_text__those_of_a_plain_loop(void) {
    static const char *const texts[] = {"a\nb\n", "a\nb",     "\n\n\n",     "\r\n\r\n",
                                        "a",      "a\r\nb\r", "\n\na\n\nb", "a\rb\r\n",
                                        "\r",     "x\n\n",    "\n",         "a\r\r\nb\n"};
    const char *paths[12];
    for (int no_empty = 0; no_empty < 2; no_empty++)
        for (uint32_t skip = 0; skip < 2; skip++) {
            dlp_lines_desc d = {
                .paths = paths, .n_paths = 12, .no_empty = no_empty, .skip = skip, .index = ""};
            dlp_loader_desc l = {.num_workers = 2 * (int)skip, .shuffle = 1};
            uint64_t k = 0;
            dlp_source *s;
            rig_rows *r;
            for (int i = 0; i < 12; i++) {
                char name[32];
                snprintf(name, sizeof name, "text%d", i);
                paths[i] = rig_write(name, texts[i], strlen(texts[i]));
            }
            if ((s = opened(&d)) == NULL) continue;
            r = rows_of(s, &l);
            CHECK(r->err.code == 0);
            for (int i = 0; i < 12; i++) {
                text t = {strdup(texts[i]), strlen(texts[i])};
                k = same_lines(r, k, t, skip, no_empty);
                free(t.bytes);
            }
            CHECK(k == r->n && k == dlp_index_describe(s)->n_items);
            CHECK(dlp_index_describe(s)->found == 12 && dlp_index_describe(s)->warning == NULL);
            rows_free(r);
            CHECK(dlp_source_close(s) == DLP_OK);
        }
}

static void lines__a_large_text_and_any_threads__the_same(void) {
    text t = random_text(7, 700000);
    const char *path = rig_write("large", t.bytes, t.n);
    for (int run = 0; run < 8; run++) {
        dlp_lines_desc d = {.path = path,
                            .threads = run / 2 * 3 + 1,
                            .no_empty = run % 2,
                            .index = "",
                            .in_flight = run + 1,
                            .use_threads = run == 3};
        dlp_loader_desc l = {
            .num_workers = run == 3 ? 3 : 1, .batch_size = 200, .shuffle = run > 3};
        dlp_source *s = opened(&d);
        rig_rows *r;
        if (s == NULL) continue;
        if (run == 5 && TEST_PROCESSES && !RIG_TSAN) l.workers.placement = DLP_PLACE_PROCESSES;
        r = rows_of(s, &l);
        CHECK(r->err.code == 0 && same_lines(r, 0, t, 0, d.no_empty) == r->n && r->n > 5000);
        if (r->err.code) printf("%s\n", r->err.message);
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    free(t.bytes);
}

/* Two numbers out of a line "A,B". */
typedef struct parser {
    int begun, ended;
} parser;

static int parser_init(void *user, int worker, void **state) {
    (void)worker;
    __atomic_add_fetch(&((parser *)user)->begun, 1, __ATOMIC_RELAXED);
    *state = user;
    return 0;
}

static void parser_exit(void *user, int worker, void *state) {
    (void)worker;
    __atomic_add_fetch(&((parser *)state)->ended, 1, __ATOMIC_RELAXED);
    CHECK(user == state);
}

static int parse_pair(void *user, void *state, dlp_item *item, const char *line, uint64_t n) {
    char copy[32] = "", *end;
    CHECK(user == state);
    if (n >= sizeof copy) return DLP_ERR_LENGTH;
    memcpy(copy, line, n);
    *(int32_t *)item->data[0] = (int32_t)strtol(copy, &end, 10);
    if (*end != ',') return dlp_fail(item->call, 0, "no comma in %s", copy);
    *(int32_t *)item->data[1] = (int32_t)strtol(end + 1, &end, 10);
    return 0;
}

static void lines__a_parse_of_two_fields__rows_of_both(void) {
    static const dlp_field fields[] = {{"a", DLP_I32, 0, {0}, 0, 0}, {"b", DLP_I32, 0, {0}, 0, 0}};
    static const char csv[] = "a,b\n1,10\n2,20\r\n3,30\n4,40";
    parser state = {0, 0};
    dlp_lines_desc d = {.path = rig_write("pairs.csv", csv, sizeof csv - 1),
                        .fields = fields,
                        .n_fields = 2,
                        .parse = parse_pair,
                        .user = &state,
                        .skip = 1,
                        .worker_init = parser_init,
                        .worker_exit = parser_exit};
    dlp_source *s = opened(&d);
    dlp_loader_desc l = {.source = s, .batch_size = 4, .num_workers = 2};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    if (s == NULL) return;
    CHECK(dlp_loader_open(&p, &l, &err) == DLP_OK && dlp_pipe_next(p, &b) == DLP_OK);
    for (int i = 0; i < 4; i++) {
        CHECK(((const int32_t *)b->fields[0].data)[i] == i + 1);
        CHECK(((const int32_t *)b->fields[1].data)[i] == 10 * (i + 1));
    }
    dlp_pipe_release(p, b);
    CHECK(dlp_source_close(s) == DLP_ERR_BUSY); /* its workers are there */
    CHECK(dlp_pipe_close(p) == DLP_OK && state.begun == 2 && state.ended == 2);
    CHECK(dlp_source_close(s) == DLP_OK && rig_bytes(in_rig("pairs.csv.dlpidx")) == 8 * (8 + 6));
}

static void lines__a_line_above_max_bytes__an_error_of_its_item(void) {
    dlp_lines_desc d = {.path = rig_write("long", "abc\nabcd\r\nabcde\nabcdefghij\n", 27),
                        .max_bytes = 4,
                        .index = ""};
    dlp_loader_desc l = {.num_workers = 1, .batch_size = 1};
    dlp_source *s = opened(&d);
    rig_rows *r = rows_of(s, &l);
    CHECK(r->err.code == DLP_ERR_LENGTH && r->err.index == 2 && strstr(r->err.message, "/long"));
    rows_free(r);
    l.workers.on_error = DLP_ON_ERROR_DROP;
    r = rows_of(s, &l);
    CHECK(r->err.code == 0 && r->n == 2 && strcmp(r->row[1], "abcd") == 0);
    rows_free(r);
    CHECK(dlp_source_close(s) == DLP_OK);
}

/* Empty lines that are no items lie before lines of just max_bytes bytes. They do not count. */
static void lines__empty_lines_before_a_line_of_max_bytes__the_line(void) {
    dlp_lines_desc d = {.max_bytes = 4, .no_empty = 1, .index = ""};
    text t = {malloc(3000), 0};
    for (uint64_t i = 0; i < 40; i++) {
        const char *ends[] = {"\n", "\r\n"};
        for (uint64_t k = 0; k < i * i % 37; k++)
            t.n += (uint64_t)sprintf(t.bytes + t.n, "%s", ends[dlp_hash(i, k, 0, 0) & 1]);
        t.n += (uint64_t)sprintf(t.bytes + t.n, "%04d%s", (int)i, i == 39 ? "" : ends[i % 2]);
    }
    d.path = rig_write("gaps", t.bytes, t.n);
    for (int run = 0; run < 3; run++) {
        dlp_source *s;
        rig_rows *r;
        d.in_flight = 2 * run;
        if ((s = opened(&d)) == NULL) continue;
        r = rows_of(s, &(dlp_loader_desc){.num_workers = 1, .shuffle = run == 1});
        CHECK(r->err.code == 0 && r->n == 40 && same_lines(r, 0, t, 0, 1) == r->n);
        if (r->err.code) printf("%s\n", r->err.message);
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
        if (run < 1) continue;
        d.max_bytes = 3; /* each line is too long */
        if ((s = opened(&d)) == NULL) continue;
        r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
        CHECK(r->err.code == DLP_ERR_LENGTH && r->n == 0 &&
              strstr(r->err.message, "/gaps") != NULL);
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
        d.max_bytes = 4;
    }
    free(t.bytes);
}

/* The last line has no end, so its '\r' is its own. What is read of it fills a worker's memory. */
static void lines__empty_lines_before_a_last_line_without_an_end__the_line(void) {
    dlp_lines_desc d = {.max_bytes = 58, .no_empty = 1, .index = "", .in_flight = 1};
    text t = {malloc(300), 300};
    dlp_source *s;
    memset(t.bytes, '\n', 300);
    memcpy(t.bytes + 290, "the last\r", 10);
    t.n = 299;
    d.use_threads = 1;
    d.path = rig_write("last", t.bytes, t.n);
    if ((s = opened(&d)) != NULL) {
        rig_rows *r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
        CHECK(r->err.code == 0 && r->n == 1 && r->bytes[0] == 9);
        CHECK(r->row[0] != NULL && memcmp(r->row[0], "the last\r", 9) == 0);
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    free(t.bytes);
}

/* Empty lines that are no items may lie between a mark and the first line. */
static void lines__a_mark_before_empty_lines__the_line(void) {
    dlp_lines_desc d = {.max_bytes = 4, .no_empty = 1, .index = ""};
    text t = {malloc(200), 0};
    t.n += (uint64_t)sprintf(t.bytes, "\xef\xbb\xbf");
    for (int k = 0; k < 80; k++)
        t.n += (uint64_t)sprintf(t.bytes + t.n, "%s", k % 3 ? "\n" : "\r\n");
    t.n += (uint64_t)sprintf(t.bytes + t.n, "word\nmore");
    d.path = rig_write("marked", t.bytes, t.n);
    for (d.in_flight = 0; d.in_flight < 3; d.in_flight += 2) {
        dlp_source *s = opened(&d);
        rig_rows *r;
        if (s == NULL) continue;
        r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
        CHECK(r->err.code == 0 && r->n == 2);
        if (r->err.code != 0) printf("%s\n", r->err.message);
        CHECK(r->row[0] != NULL && strcmp(r->row[0], "word") == 0);
        CHECK(r->row[1] != NULL && strcmp(r->row[1], "more") == 0);
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    free(t.bytes);
}

/* ---- descs ---- */

static int decode_nothing(void *user, void *state, dlp_item *item, const dlp_tar_sample *sample) {
    return user == state && item == NULL && sample == NULL;
}

static void lines__wrong_descs_and_files__refused_by_name(void) {
    static const dlp_field one = {"x", DLP_U8, 1, {9}, 1, 0}, wide = {"x", DLP_U16, 1, {9}, 1, 0};
    const char *path = rig_write("ok", "a\n", 2), *none[] = {NULL};
    dlp_lines_desc d = {0};
    dlp_error err;
    refused(&d, DLP_ERR_ARG, "path");
    d.path = path;
    d.n_paths = 1;
    refused(&d, DLP_ERR_ARG, "n_paths");
    d.n_paths = 0;
    d.max_bytes = UINT64_MAX;
    refused(&d, DLP_ERR_ARG, "max_bytes");
    d.max_bytes = 0;
    d.threads = 257;
    refused(&d, DLP_ERR_ARG, "threads");
    d.threads = 0;
    d.no_empty = 2;
    refused(&d, DLP_ERR_ARG, "no_empty");
    d.no_empty = 0;
    d.insist = 2;
    refused(&d, DLP_ERR_ARG, "insist");
    d.insist = 0;
    d.maps = 2;
    refused(&d, DLP_ERR_ARG, "maps must be 0 or 1");
    d.maps = 1;
    d.in_flight = 4;
    refused(&d, DLP_ERR_ARG, "in_flight must be 0 with maps");
    d.maps = d.in_flight = 0;
    d.optional = 1; /* a field of tar shards */
    refused(&d, DLP_ERR_ARG, "optional must be 0 or NULL for lines");
    d.optional = 0;
    d.extensions = none;
    refused(&d, DLP_ERR_ARG, "extensions must be 0 or NULL for lines");
    d.extensions = NULL;
    d.decode = decode_nothing;
    refused(&d, DLP_ERR_ARG, "decode must be 0 or NULL for lines");
    d.decode = NULL;
    d.fields = &one;
    refused(&d, DLP_ERR_ARG, "n_fields");
    d.fields = &wide;
    d.n_fields = 1;
    refused(&d, DLP_ERR_ARG, "fields");
    d.n_fields = 0;
    d.fields = NULL;
    d.parse = parse_pair;
    refused(&d, DLP_ERR_ARG, "fields");
    d.parse = NULL;
    d.in_flight = 257;
    refused(&d, DLP_ERR_ARG, "in_flight");
    d.in_flight = 0;
    d.skip = 1;
    refused(&d, DLP_ERR_ARG, "/ok: no items in this file");
    d.skip = 0;
    d.path = in_rig("nowhere");
    refused(&d, DLP_ERR_SYSTEM, "/nowhere: open: No such file or directory; check the path");
    d.path = rig_dir;
    refused(&d, DLP_ERR_ARG, "is a directory");
    d.path = "/dev/null";
    refused(&d, DLP_ERR_ARG, "/dev/null: is no regular file");
    d.path = NULL;
    d.paths = none;
    d.n_paths = 1;
    refused(&d, DLP_ERR_ARG, "paths");
    CHECK(dlp_lines_open(NULL, &d, &err) == DLP_ERR_ARG);
    CHECK(dlp_index_describe(NULL) == NULL);
}

/* ---- files that are no text ---- */

#define BYTES(text) text, sizeof(text) - 1

static void lines__a_file_of_another_format__refused_unless_told_to_insist(void) {
    static const struct {
        const char *words, *bytes;
        size_t n;
    } kinds[] = {
        {"gzip", BYTES("\x1f\x8b\x08\0\n")},
        {"zstd", BYTES("\x28\xb5\x2f\xfd\n7\n7")},
        {"zstd or lz4", BYTES("\x51\x2a\x4d\x18\4\0\0\0abcd")},
        {"lzop", BYTES("\x89LZO\0\r\n\x1a\n7\n")},
        {"xz", BYTES("\xfd\x37zXZ\0\0\4")},
        {"bzip2", BYTES("BZh91AY&SY\x01")},
        {"lz4", BYTES("\x04\x22\x4d\x18")},
        {"zip", BYTES("PK\x03\x04\n")},
        {"Parquet", BYTES("PAR1\n7\n7\n7\nPAR1")},
        {"Parquet", BYTES("PAR1\x15\x04\n")},
        {"Arrow", BYTES("ARROW1\0\0\n")},
        {"Arrow", BYTES("\xff\xff\xff\xff\x78\0\0\0\x10\0\0\0\0\0\n\0\x0c\0")},
        {"HDF5", BYTES("\x89HDF\r\n\x1a\n")},
        {"NumPy (dlp_arrays_open reads it)", BYTES("\x93NUMPY\x01")},
        {"SQLite", BYTES("SQLite format 3\0")},
        {"PDF", BYTES("%PDF-1.7\n")},
        {"PNG", BYTES("\x89PNG\r\n")},
        {"JPEG", BYTES("\xff\xd8\xff\xe0")},
        {"RIFF", BYTES("RIFF\x24\0\0\0WEBP")},
        {"an ELF program", BYTES("\x7f\x45LF\x02")},
        {"a Python pickle", BYTES("\x80\x04\x95\x0b\0\0\0\0\0\0\0]K\x01\x61.")},
        {"safetensors", BYTES("\x08\0\0\0\0\0\0\0{\"a\":{} }")},
        {"TFRecord", BYTES("\x04\0\0\0\0\0\0\0\x42\x45\x52\x04\x61\x61\x61\x61    ")},
        {"llm.c", BYTES("\x88\xd8\x34\x01\x01\0\0\0")},
        {"a pointer of git LFS",
         BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:ab\n")},
        {"a page of HTML", BYTES("\n<!DOCTYPE html>\n<HTML>\n<body>{}</body></HTML>\n")},
        {"a page of HTML", BYTES("<html><body>404</body></html>")},
        {"a page of HTML",
         BYTES("<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"x\">\n<html xmlns>")},
        {"the error of a server", BYTES("<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code>")},
        {"the error of a server", BYTES("<?xml version=\"1.0\"?>\n<Error>\n  <Code>AccessDenied")},
        {"UTF-16", BYTES("\xff\xfe\x61\0\n\0")},
        {"UTF-16", BYTES("\xfe\xff\0\x61\0\n")},
        {"UTF-32", BYTES("\xff\xfe\0\0\x61\0\0\0")},
        {"UTF-16 without a mark", BYTES("\x61\0\x62\0\n\0")},
    };
    char words[200];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        dlp_lines_desc d = {.path = rig_write("foreign", kinds[i].bytes, kinds[i].n)};
        dlp_source *s;
        snprintf(words, sizeof words, "/foreign: byte 0: is %s", kinds[i].words);
        if (strncmp(kinds[i].words, "UTF-16 w", 8) == 0)
            snprintf(words, sizeof words, "/foreign: byte 0: is binary, or %s", kinds[i].words);
        refused(&d, DLP_ERR_CORRUPT, words);
        refused(&d, DLP_ERR_CORRUPT, ", or set insist = 1");
        d.insist = 1;
        if ((s = opened(&d)) != NULL) CHECK(dlp_source_close(s) == DLP_OK);
        d.insist = 0; /* with an index, too */
        refused(&d, DLP_ERR_CORRUPT, words);
    }
}

static void lines__text_that_begins_like_another_format__taken(void) {
    static const char *const texts[] = {
        "PAR1 begins Parquet\n",
        "ORC and elf\n",
        "GIF89a\n",
        "RIFF raff\n",
        "BZh9 is bzip2\n",
        "version https://git-lfs.github.com/spec/v1\nand more\n",
        "version 1\n",
        "%PDF\n",
        "<html><p>a</html>\n<html><p>b</html>\n",
        "<!DOCTYPE html> begins a page\n",
        "<s>a</s>\n",
        "<!doctype html><html>a</html>\n<!doctype html><html>b</html>\n",
        "\x1b[1ma\x1b[0m\n",
        "<?xml version=\"1.0\"?>\n<pages>\n",
        "Gr\xf6\xdf\x65\n",
        "{}\n",
        "Obj\n",
        "II*\n",
        "<Error>\n<Codes>\n",
        "a\rb\nc\n",
        "\r\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dlp_lines_desc d = {.path = rig_write("alike", texts[i], strlen(texts[i])), .index = ""};
        text t = {(char *)(uintptr_t)texts[i], strlen(texts[i])};
        dlp_source *s = opened(&d);
        rig_rows *r;
        if (s == NULL) continue;
        CHECK(dlp_index_describe(s)->warning == NULL);
        r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
        CHECK(r->err.code == 0 && same_lines(r, 0, t, 0, 0) == r->n);
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
}

static void lines__bytes_at_random_or_none__a_warning(void) {
    const char *paths[2];
    char bytes[4096];
    dlp_lines_desc d = {.paths = paths, .n_paths = 2, .index = ""};
    dlp_source *s;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(dlp_hash(1, i, 0, 0) % 255 + 1);
    for (int run = 0; run < 2; run++) {
        paths[0] = rig_write("random", bytes, run == 0 ? sizeof bytes : 0);
        paths[1] = rig_write("text", "a\n", 2);
        for (d.insist = 0; d.insist < 2; d.insist++) {
            if ((s = opened(&d)) == NULL) continue;
            if (d.insist)
                CHECK(dlp_index_describe(s)->warning == NULL);
            else
                CHECK(strstr(dlp_index_describe(s)->warning,
                             run == 0 ? "/random: looks binary" : "/random: is empty") != NULL);
            CHECK(dlp_source_close(s) == DLP_OK);
        }
    }
}

/* The first line is longer than what is looked at: its CR is the last byte of that. */
static void lines__carriage_returns_alone__a_warning(void) {
    static const char old[] = "one\rtwo\rthree\r";
    char bytes[600];
    dlp_lines_desc d = {.path = rig_write("old", old, sizeof old - 1), .index = ""};
    dlp_source *s = opened(&d);
    if (s == NULL) return;
    CHECK(dlp_index_describe(s)->n_items == 1);
    CHECK(strstr(dlp_index_describe(s)->warning, "/old: has CR alone, which ends no line") != NULL);
    CHECK(dlp_source_close(s) == DLP_OK);
    for (int more = 0; more < 2; more++) { /* CR LF, then CR alone */
        memset(bytes, 'x', sizeof bytes);
        memcpy(bytes + 511 - more, "\r\n", 2);
        if (more) bytes[100] = '\r';
        if (more) bytes[511] = 'x';
        d.path = rig_write("long", bytes, sizeof bytes);
        if ((s = opened(&d)) == NULL) return;
        CHECK((dlp_index_describe(s)->warning != NULL) == (more == 1));
        CHECK(dlp_source_close(s) == DLP_OK);
    }
}

/* Refuse a file of n bytes by the byte at which zeros are; with insist it is taken. */
static void zeros_at(const char *bytes, uint64_t n, uint64_t at) {
    dlp_lines_desc d = {.path = rig_write("zeros", bytes, n), .threads = 3};
    dlp_source *s;
    char words[100];
    snprintf(words, sizeof words, "/zeros: byte %" PRIu64 ": zeros; it must be text. Copy", at);
    refused(&d, DLP_ERR_CORRUPT, words);
    d.insist = 1;
    if ((s = opened(&d)) != NULL) CHECK(dlp_source_close(s) == DLP_OK);
    d.insist = 0; /* the index of before is of other rules */
    refused(&d, DLP_ERR_CORRUPT, words);
}

static void lines__zeros_that_were_not_written__refused_by_their_byte(void) {
    const uint64_t mib = 1 << 20, n = 3 * mib;
    char *bytes = malloc(n);
    int fd;
    memset(bytes, 'x', n);
    for (uint64_t i = 99; i < n; i += 100) bytes[i] = '\n';
    memset(bytes + 5000, 0, 4);
    zeros_at(bytes, 5004, 5000); /* at the end */
    zeros_at(bytes, 5001, 5000);
    bytes[5000] = '\n';
    zeros_at(bytes, 5002, 5001); /* a line of one zero */
    memset(bytes + 5000, 0, 63);
    CHECK(bytes[5063] != 0);
    {
        dlp_lines_desc d = {.path = rig_write("few", bytes, 6000), .index = ""};
        dlp_source *s = opened(&d); /* a few zeros in the middle of text are a line's */
        if (s != NULL) CHECK(dlp_source_close(s) == DLP_OK);
    }
    bytes[5063] = 0;
    zeros_at(bytes, 6000, 5000);
    zeros_at(bytes, n, 5000);
    memset(bytes + 5000, 'x', 64);
    memset(bytes + mib - 100, 0, 4096); /* over blocks */
    zeros_at(bytes, n, mib - 100);
    memset(bytes + mib - 100, 'x', 4096);
    memset(bytes + n - 10000, 0, 10000);
    zeros_at(bytes, n, n - 10000);
    fd = open(rig_write("hole", bytes, 4096), O_WRONLY); /* a hole, that is not read */
    CHECK(fd >= 0 && pwrite(fd, "\nx\n", 3, (off_t)(256 * mib)) == 3 && close(fd) == 0);
    refused(&(dlp_lines_desc){.path = in_rig("hole"), .threads = 1}, DLP_ERR_CORRUPT,
            "/hole: byte ");
    CHECK(unlink(in_rig("hole")) == 0);
    free(bytes);
}

static void lines__a_byte_order_mark__belongs_to_no_line(void) {
    static const char *const texts[] = {"",  "a\nb\n",         "\nb", "\r\n\nb\n",
                                        "a", "\xef\xbb\xbf\n", "ab"};
    static const char mark[] = "\xef\xbb\xbf";
    const char *paths[7], *plain[7];
    for (int run = 0; run < 8; run++) {
        dlp_lines_desc d = {
            .paths = paths, .n_paths = 7, .no_empty = run & 1, .skip = run >> 1 & 1, .index = ""};
        dlp_lines_desc p = d;
        rig_rows *r, *want;
        dlp_source *s, *o;
        char name[32], all[32];
        d.insist = run >> 2;
        p.paths = plain;
        if (run == 0) d.max_bytes = 3; /* the mark does not count */
        for (int i = 0; i < 7; i++) {
            snprintf(name, sizeof name, "marked%d", i);
            snprintf(all, sizeof all, "%s%s", mark, texts[i]);
            paths[i] = rig_write(name, all, strlen(all));
            snprintf(name, sizeof name, "plain%d", i);
            plain[i] =
                rig_write(name, texts[i][0] == mark[0] ? "QQQ\n" : texts[i], strlen(texts[i]));
        }
        s = opened(&d);
        o = opened(&p);
        if (s == NULL || o == NULL) continue;
        r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
        want = rows_of(o, &(dlp_loader_desc){.num_workers = 1});
        CHECK(r->err.code == 0 && r->n == want->n && r->n > 0);
        if (r->err.code != 0 || r->n != want->n) printf("%d: %s\n", run, r->err.message);
        for (uint64_t i = 0; i < r->n; i++)
            CHECK(strcmp(r->row[i], strcmp(want->row[i], "QQQ") ? want->row[i] : mark) == 0);
        rows_free(r);
        rows_free(want);
        CHECK(dlp_source_close(s) == DLP_OK && dlp_source_close(o) == DLP_OK);
    }
}

/* ---- index files ---- */

/* Open, check that all lines come, close. Returns whether the lines were found again. */
static uint64_t found_again(const dlp_lines_desc *d, text t) {
    dlp_source *s = opened(d);
    uint64_t found;
    rig_rows *r;
    if (s == NULL) return UINT64_MAX;
    r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
    found = dlp_index_describe(s)->found;
    CHECK(r->err.code == 0 && same_lines(r, 0, t, 0, d->no_empty) == r->n);
    rows_free(r);
    CHECK(dlp_source_close(s) == DLP_OK);
    return found;
}

static void lines__an_index_that_fits__used_again(void) {
    text t = random_text(3, 3000);
    dlp_lines_desc d = {.path = rig_write("i", t.bytes, t.n)};
    char *index = strdup(in_rig("i.dlpidx"));
    CHECK(found_again(&d, t) == 1 && found_again(&d, t) == 0);
    rig_time(d.path, 1000); /* another time */
    CHECK(found_again(&d, t) == 1 && found_again(&d, t) == 0);
    d.no_empty = 1; /* other places */
    CHECK(found_again(&d, t) == 1 && found_again(&d, t) == 0);
    d.no_empty = 0;
    t.bytes[t.n - 1] = 'x'; /* grown, with the time of before */
    d.path = rig_write("i", t.bytes, t.n - 5);
    rig_time(d.path, 1000);
    CHECK(found_again(&d, (text){t.bytes, t.n - 5}) == 1);
    d.path = rig_write("i", t.bytes, t.n);
    rig_time(d.path, 1000);
    CHECK(found_again(&d, t) == 1 && found_again(&d, t) == 0);
    CHECK(unlink(index) == 0);
    d.index = ""; /* no index is written */
    CHECK(found_again(&d, t) == 1 && found_again(&d, t) == 1 && access(index, F_OK) != 0);
    d.index = strdup(in_rig("directory"));
    CHECK(mkdir(d.index, 0755) == 0);
    CHECK(found_again(&d, t) == 1 && found_again(&d, t) == 0 && rig_files(d.index) == 1);
    free((char *)(uintptr_t)d.index);
    free(index);
    free(t.bytes);
}

static void lines__no_room_for_an_index__a_warning(void) {
    dlp_lines_desc d = {.path = rig_write("w", "a\nb\n", 4), .index = in_rig("not/there")};
    dlp_source *s = opened(&d);
    dlp_loader_desc l = {.source = s, .batch_size = 2, .num_workers = 1};
    dlp_error err;
    dlp_pipe *p;
    if (s == NULL) return;
    CHECK(strstr(dlp_index_describe(s)->warning, "/w: its index file cannot be written (No such"));
    CHECK(dlp_loader_open(&p, &l, &err) == DLP_OK);
    CHECK(dlp_pipe_warning(p, 0) != NULL && strstr(dlp_pipe_warning(p, 0), "/w: its index"));
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(s) == DLP_OK);
}

/* One line that sets the memory of all rows is told when the pipe is opened. */
static void lines__one_is_very_long__a_warning(void) {
    for (int k = 0; k < 3; k++) {
        const size_t longest = k == 1 ? 600 : 9000;
        dlp_lines_desc d = {.index = "", .max_bytes = k == 2 ? 10000 : 0};
        static char bytes[201 * 21 + 9000];
        dlp_loader_desc l = {.batch_size = 20, .num_workers = 1};
        size_t n = 0, first = 0;
        dlp_source *s;
        dlp_pipe *p;
        dlp_batch *b;
        for (int i = 1; i <= 200; i++) {
            memset(bytes + n, 'w', i == 101 ? longest : 20);
            n += i == 101 ? longest : 20;
            bytes[n++] = '\n';
        }
        d.path = rig_write("long", bytes, n);
        if ((s = opened(&d)) == NULL) return;
        l.source = s;
        CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
        CHECK((dlp_pipe_warning(p, 0) != NULL) == (k == 0));
        if (k == 0)
            CHECK(strstr(
                      dlp_pipe_warning(p, 0),
                      "/long: line 101 takes 9001 bytes, the mean is 66; each row has room for it. "
                      "Cut it, or set max_bytes") != NULL);
        for (; dlp_pipe_next(p, &b) == DLP_OK; dlp_pipe_release(p, b))
            for (uint32_t r = 0; r < b->count; r++, first++) {
                const uint64_t wide = b->fields[0].bytes / b->count, got = b->fields[0].lengths[r];
                const char *row = (const char *)b->fields[0].data + r * wide;
                CHECK(got == (first == 100 ? longest : 20) && row[0] == 'w');
                for (uint64_t i = got; i < wide; i++) CHECK(row[i] == 0);
            }
        CHECK(first == 200 && dlp_pipe_close(p) == DLP_OK && dlp_source_close(s) == DLP_OK);
    }
}

/* The bytes of a file; freed by the caller. */
static uint64_t *words_of(const char *path, uint64_t *n) {
    uint64_t bytes = rig_bytes(path), *to = calloc(1, (size_t)bytes + 8);
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL && to != NULL && fread(to, 1, (size_t)bytes, f) == bytes);
    if (f) fclose(f);
    *n = bytes / 8;
    return to;
}

/* The check word of an index's head. */
static void seal(uint64_t head[8]) {
    head[7] = 0;
    for (int i = 0; i < 7; i++) head[7] = dlp_hash(head[7], head[i], 0, 0);
}

static void lines__an_index_that_is_cut_or_changed__made_again(void) {
    text t = random_text(4, 400);
    char *path = strdup(rig_write("h", t.bytes, t.n));
    dlp_lines_desc d = {.path = path};
    uint64_t n, *good;
    CHECK(found_again(&d, t) == 1);
    good = words_of(in_rig("h.dlpidx"), &n);
    for (uint64_t bytes = 0; bytes < 8 * n; bytes += 3) {
        rig_write("h.dlpidx", good, bytes);
        CHECK(found_again(&d, t) == 1);
    }
    for (uint64_t i = 0; i < 8; i++) { /* a head with a word changed */
        uint64_t was = good[i];
        good[i] ^= UINT64_C(1) << (5 * i + 1);
        rig_write("h.dlpidx", good, 8 * n);
        CHECK(found_again(&d, t) == 1);
        if (i < 6) { /* well sealed, but of another file */
            seal(good);
            rig_write("h.dlpidx", good, 8 * n);
            CHECK(found_again(&d, t) == 1);
        }
        good[i] = was;
        seal(good);
    }
    rig_write("h.dlpidx", good, 8 * n);
    CHECK(found_again(&d, t) == 0);
    CHECK(unlink(in_rig("h.dlpidx")) == 0 && mkdir(in_rig("h.dlpidx"), 0755) == 0);
    CHECK(found_again(&d, t) == 1); /* it cannot be written, and is a warning */
    free(good);
    free(path);
    free(t.bytes);
}

/* An index that a version without today's rules made, of a text with zeros that were not written.
 */
static void lines__an_index_of_older_rules__made_again(void) {
    char bytes[4000];
    dlp_lines_desc d = {.path = in_rig("old")};
    dlp_source *s = NULL;
    dlp_error e = {0};
    uint64_t n, *old;
    memset(bytes, 'x', sizeof bytes);
    bytes[999] = bytes[2999] = bytes[3999] = '\n';
    rig_write("old", bytes, sizeof bytes);
    rig_time(d.path, 1000);
    CHECK(found_again(&d, (text){bytes, sizeof bytes}) == 1);
    old = words_of(in_rig("old.dlpidx"), &n);
    old[1] &= UINT32_MAX; /* the kind alone */
    seal(old);
    rig_write("old.dlpidx", old, 8 * n);
    CHECK(found_again(&d, (text){bytes, sizeof bytes}) == 1);
    rig_write("old.dlpidx", old, 8 * n);
    memset(bytes + 1000, 0, 150);
    rig_write("old", bytes, sizeof bytes);
    rig_time(d.path, 1000);
    CHECK(dlp_lines_open(&s, &d, &e) == DLP_ERR_CORRUPT && strstr(e.message, "byte 1000: zeros"));
    if (s != NULL) CHECK(dlp_source_close(s) == DLP_OK);
    free(old);
}

/* Has the text such a line? */
static int is_line(text t, const char *line, uint64_t n) {
    const char *from = t.bytes, *end = t.bytes + t.n, *at;
    while ((at = memmem(from, (size_t)(end - from), line, n)) != NULL) {
        const char *behind = at + n;
        if ((at == t.bytes || at[-1] == '\n') &&
            (behind == end || *behind == '\n' || (*behind == '\r' && behind[1] == '\n')))
            return 1;
        from = at + 1;
    }
    return 0;
}

/* Places that are made up: each item is the line that it should be, or an error that names the
   file, and what comes is never what the file has not. */
static void lines__an_index_that_is_made_up__errors_of_items(void) {
    text t = random_text(5, 900);
    char *path = strdup(rig_write("m", t.bytes, t.n));
    dlp_lines_desc d = {.path = path};
    dlp_loader_desc l = {.num_workers = 1, .workers = {.on_error = DLP_ON_ERROR_DROP}};
    uint64_t n, *good, *bad, errors = 0;
    CHECK(found_again(&d, t) == 1);
    good = words_of(in_rig("m.dlpidx"), &n);
    bad = malloc(8 * n);
    for (uint64_t run = 0; run < 200; run++) {
        dlp_source *s;
        rig_rows *r;
        memcpy(bad, good, 8 * n);
        for (uint64_t i = 0; i <= run % 5; i++) {
            uint64_t at = 8 + dlp_hash(run, i, 0, 0) % (n - 8), to = dlp_hash(run, i, 1, 0);
            bad[at] = run % 2 ? bad[at] + to % 5 - 2 : run % 3 ? to % (t.n + 9) : to;
        }
        rig_write("m.dlpidx", bad, 8 * n);
        if ((s = opened(&d)) == NULL) continue;
        CHECK(dlp_index_describe(s)->found == 0);
        r = rows_of(s, &l);
        CHECK(r->err.code == 0);
        for (uint64_t i = 0; i < n - 9; i++) {
            if (r->row[i] == NULL) errors++;
            if (r->row[i] == NULL || r->bytes[i] == 0) continue;
            CHECK(is_line(t, r->row[i], r->bytes[i]));
            CHECK(memchr(r->row[i], '\n', r->bytes[i]) == NULL);
        }
        rows_free(r);
        l.workers.on_error = DLP_ON_ERROR_RAISE;
        r = rows_of(s, &l);
        CHECK(memcmp(good, bad, 8 * n) == 0 || r->err.code == 0 ||
              strstr(r->err.message, "/m: byte ") != NULL || r->err.code == DLP_ERR_LENGTH);
        l.workers.on_error = DLP_ON_ERROR_DROP;
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    CHECK(errors > 200);
    free(path);
    free(bad);
    free(good);
    free(t.bytes);
}

static void lines__a_file_that_changed_unseen__errors_of_items(void) {
    dlp_lines_desc d = {.path = rig_write("c", "aaa\nbbb\nccc\n", 12)};
    rig_rows *r;
    dlp_source *s;
    rig_time(d.path, 1000);
    CHECK(found_again(&d, (text){(char *)(uintptr_t) "aaa\nbbb\nccc\n", 12}) == 1);
    rig_write("c", "aaa\nbb\ncccc\n", 12);
    rig_time(d.path, 1000);
    if ((s = opened(&d)) == NULL) return;
    r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
    CHECK(r->err.code == DLP_ERR_CALLBACK && r->err.index == 1 &&
          strstr(r->err.message, "/c: byte 4: the index does not fit the file") != NULL);
    rows_free(r);
    r = rows_of(s,
                &(dlp_loader_desc){.num_workers = 1, .workers = {.on_error = DLP_ON_ERROR_DROP}});
    CHECK(r->n == 1 && r->row[0] && !strcmp(r->row[0], "aaa")); /* "ccc" begins in a line */
    rows_free(r);
    if (test_cut(d.path, 5, maps)) { /* it is cut while it is open */
        test_pause(20000000);        /* a mapped file is looked at in each tick of the clock */
        r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
        CHECK(r->err.code == DLP_ERR_CALLBACK &&
              strstr(r->err.message, maps ? "/c: was cut to 5 bytes" : "/c: ended after") != NULL);
        rows_free(r);
    }
    CHECK(dlp_source_close(s) == DLP_OK);
}

/* The line before an item loses its end, while the item is an empty line and its text as before. */
static void lines__a_line_before_that_goes_on__an_error_also_of_the_next_item(void) {
    dlp_lines_desc d = {.path = rig_write("g", "aaa\n\nbbb\n", 9), .no_empty = 1, .index = ""};
    dlp_source *s = opened(&d);
    FILE *f = fopen(d.path, "r+b"); /* in place: Windows cuts no file that is mapped */
    rig_rows *r;
    if (s == NULL) return;
    CHECK(f != NULL && fwrite("aaa\r\nbbb\n", 1, 9, f) == 9 && fclose(f) == 0);
    r = rows_of(s,
                &(dlp_loader_desc){.num_workers = 1, .workers = {.on_error = DLP_ON_ERROR_DROP}});
    CHECK(r->n == 0);
    rows_free(r);
    CHECK(dlp_source_close(s) == DLP_OK);
}

#ifndef _WIN32 /* which has no fork */
/* Processes that open a file at once, again and again, while others remove its index. */
static void lines__many_processes_at_once__one_index_and_no_leftovers(void) {
    text t = random_text(6, 200000);
    char *path = strdup(rig_write("many/p", t.bytes, t.n));
    char *index = strdup(in_rig("many/p.dlpidx"));
    pid_t pid[4];
    fflush(stdout);
    for (int k = 0; k < 4; k++) {
        if ((pid[k] = fork()) != 0) continue;
        for (int i = 0; i < 25; i++) {
            dlp_lines_desc d = {.path = path, .threads = 2, .insist = 1};
            dlp_source *s = opened(&d);
            if (i % 5 == k) unlink(index);
            CHECK(s != NULL && dlp_index_describe(s)->warning == NULL);
            if (i % 8 == 0) {
                rig_rows *r = rows_of(s, &(dlp_loader_desc){.batch_size = 300, .num_workers = 1});
                CHECK(r->err.code == 0 && same_lines(r, 0, t, 0, 0) == r->n);
                rows_free(r);
            }
            CHECK(dlp_source_close(s) == DLP_OK);
        }
        fflush(stdout);
        _exit(test_failures != 0);
    }
    for (int k = 0; k < 4; k++) {
        int status = -1;
        CHECK(waitpid(pid[k], &status, 0) == pid[k] && status == 0);
    }
    CHECK(rig_files(in_rig("many")) == 1 + (access(index, F_OK) == 0));
    free(index);
    free(path);
    free(t.bytes);
}
#endif

/* ---- large files ---- */

/* A worker has a buffer for the longest line only if it reads. */
static void lines__mapped__no_buffer_in_a_worker(void) {
    const uint64_t long_one = 1 << 20;
    char *text_ = malloc(long_one + 2);
    memset(text_, 'x', long_one);
    memcpy(text_ + long_one, "\na", 2);
    dlp_lines_desc d = {.path = rig_write("buffer", text_, long_one + 2), .index = ""};
    for (maps = 0; maps < 2; maps++) {
        dlp_source *s = opened(&d);
        rig_rows *r = rows_of(s, &(dlp_loader_desc){.num_workers = 1});
        CHECK((dlp_index_describe(s)->worker_bytes > long_one) == !maps);
        CHECK(r->n == 2 && r->bytes[0] == long_one && memcmp(r->row[0], text_, long_one) == 0);
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    maps = 0;
    free(text_);
}

static void lines__above_4_GiB__found(void) {
    const uint64_t far = UINT64_C(5) << 30;
    const char *path = rig_write("sparse", "first\n", 6);
    dlp_lines_desc d = {.path = path, .max_bytes = 100, .insist = 1}; /* zeros for a long line */
    dlp_loader_desc l = {.num_workers = 1, .workers = {.on_error = DLP_ON_ERROR_DROP}};
    int fd = open(path, O_WRONLY | O_BINARY);
    dlp_source *s;
    rig_rows *r;
    CHECK(fd >= 0 && pwrite(fd, "\nsecond\nthird", 13, (off_t)far) == 13 && close(fd) == 0);
    if ((s = opened(&d)) == NULL) return;
    CHECK(dlp_index_describe(s)->n_items == 4 && dlp_index_describe(s)->longest == far - 5);
    r = rows_of(s, &l);
    CHECK(r->err.code == 0 && r->n == 3 && r->row[0] != NULL && r->row[3] != NULL);
    CHECK(r->row[2] != NULL && strcmp(r->row[2], "second") == 0);
    CHECK(r->row[3] != NULL && strcmp(r->row[3], "third") == 0);
    rows_free(r);
    CHECK(dlp_source_close(s) == DLP_OK && unlink(path) == 0);
}

/* Line ends around the borders of blocks that are read at once. */
static void lines__ends_at_borders_of_blocks__found(void) {
    const uint64_t mib = 1 << 20;
    for (uint64_t run = 0; run < 12; run++) {
        text t = {malloc(9 * mib), 9 * mib};
        dlp_lines_desc d = {.threads = 1, .no_empty = run % 2, .index = "", .max_bytes = 5000};
        dlp_source *s;
        rig_rows *r;
        memset(t.bytes, 'x', t.n);
        for (uint64_t i = 4000; i < t.n; i += 4001) t.bytes[i] = '\n';
        for (uint64_t i = mib; i < t.n; i += mib)
            for (uint64_t k = i - 4; k < i + 4; k++)
                t.bytes[k] = "\n\n\rx"[dlp_hash(run, k, 0, 0) & 3];
        d.path = rig_write("borders", t.bytes, t.n);
        if ((s = opened(&d)) != NULL) {
            r = rows_of(s, &(dlp_loader_desc){.num_workers = 1, .batch_size = 64});
            CHECK(r->err.code == 0 && same_lines(r, 0, t, 0, d.no_empty) == r->n);
            rows_free(r);
            CHECK(dlp_source_close(s) == DLP_OK);
        }
        free(t.bytes);
    }
    CHECK(unlink(in_rig("borders")) == 0);
}

/* Another thread changes the time of the file all the while. */
static int changing;

static void *change(void *path) {
    for (long i = 0; __atomic_load_n(&changing, __ATOMIC_RELAXED); i++)
        rig_time(path, 1000 + i % 1000);
    return NULL;
}

/* Where cores are taken, the other thread may rest while items are found: then try again. */
static void lines__a_file_that_changes_meanwhile__an_error_and_no_index(void) {
    text t = random_text(8, 3000000);
    char *path = strdup(rig_write("busy", t.bytes, t.n));
    dlp_lines_desc d = {.path = path, .insist = 1};
    pthread_t thread;
    dlp_error err;
    int rc = DLP_OK;
    __atomic_store_n(&changing, 1, __ATOMIC_RELAXED);
    CHECK(pthread_create(&thread, NULL, change, path) == 0);
    for (int i = 0; i < 1000 && rc == DLP_OK; i++) {
        dlp_source *s = NULL;
        unlink(in_rig("busy.dlpidx"));
        rc = dlp_lines_open(&s, &d, &err);
        if (rc == DLP_OK) CHECK(dlp_source_close(s) == DLP_OK);
    }
    __atomic_store_n(&changing, 0, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK(rc == DLP_ERR_CORRUPT);
    CHECK(strstr(err.message, "/busy: changed while its items were found") != NULL);
    CHECK(access(in_rig("busy.dlpidx"), F_OK) != 0);
    free(path);
    free(t.bytes);
}

/* ---- states ---- */

static void lines__a_state_of_other_lines__refused(void) {
    dlp_lines_desc d = {.path = rig_write("s", "a\nb\nc\nd\n", 8)};
    dlp_source *s = opened(&d);
    dlp_loader_desc l = {.source = s, .batch_size = 2, .num_workers = 1};
    dlp_state state;
    dlp_error err;
    dlp_batch *b;
    dlp_pipe *p;
    if (s == NULL) return;
    CHECK(dlp_loader_open(&p, &l, &err) == DLP_OK && dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_pipe_state(p, b, &state) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(s) == DLP_OK);
    rig_write("s", "a\nb\nc\ndd\n", 9);
    l.pipe.resume = &state;
    l.source = s = opened(&d);
    CHECK(dlp_loader_open(&p, &l, &err) == DLP_ERR_RESUME && dlp_source_close(s) == DLP_OK);
    rig_write("s", "a\nb\nc\nd\n", 8);
    l.source = s = opened(&d);
    CHECK(dlp_loader_open(&p, &l, &err) == DLP_OK && dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(b->index[0] == 2 && dlp_pipe_close(p) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_source_close(s) == DLP_OK);
}

int main(void) {
    int fds = rig_fds();
    for (maps = 0; maps < 2; maps++) {
        rig_begin("lines");
        lines__any_text__those_of_a_plain_loop();
        lines__a_large_text_and_any_threads__the_same();
        lines__a_parse_of_two_fields__rows_of_both();
        lines__a_line_above_max_bytes__an_error_of_its_item();
        lines__empty_lines_before_a_line_of_max_bytes__the_line();
        lines__empty_lines_before_a_last_line_without_an_end__the_line();
        lines__a_mark_before_empty_lines__the_line();
        lines__a_byte_order_mark__belongs_to_no_line();
        lines__an_index_that_fits__used_again();
        lines__an_index_that_is_cut_or_changed__made_again();
        lines__an_index_that_is_made_up__errors_of_items();
        lines__a_file_that_changed_unseen__errors_of_items();
        lines__a_line_before_that_goes_on__an_error_also_of_the_next_item();
        lines__a_state_of_other_lines__refused();
        rig_end();
    }
    maps = 0;
    rig_begin("lines");
    CHECK(mkdir(in_rig("many"), 0755) == 0);
    lines__wrong_descs_and_files__refused_by_name();
    lines__a_file_of_another_format__refused_unless_told_to_insist();
    lines__text_that_begins_like_another_format__taken();
    lines__bytes_at_random_or_none__a_warning();
    lines__carriage_returns_alone__a_warning();
    lines__zeros_that_were_not_written__refused_by_their_byte();
    lines__no_room_for_an_index__a_warning();
    lines__one_is_very_long__a_warning();
    lines__an_index_of_older_rules__made_again();
#ifndef _WIN32
    if (!RIG_TSAN) lines__many_processes_at_once__one_index_and_no_leftovers();
#endif
    lines__mapped__no_buffer_in_a_worker();
    lines__above_4_GiB__found();
    lines__ends_at_borders_of_blocks__found();
    lines__a_file_that_changes_meanwhile__an_error_and_no_index();
    CHECK(files_named("new") == 0); /* no leftovers */
    CHECK(rig_fds() == fds);
    rig_end();
    return test_end("lines");
}
