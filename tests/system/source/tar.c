/* needs: parts files lines */
/* Samples of tar shards: the system's tar writes them in each of its formats, and each way to read
   them gives the bytes of the files. A shard that is cut at any block, or is no tar, is an error
   that names it. Bytes that are made up never read outside a buffer. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../../dlpipe_shm.h"
#include "../../rig/check.h"
#include "../../rig/inside.h"
#include "../../rig/source_rig.h"
#include "../../rig/indexed_rig.h"

enum { SAMPLES = 23, MOST = 3000, BLOCK = 512, SHARDS = 3 };

static int has_tar;

/* ---- shards by the system's tar ---- */

static int shell(const char *format, ...) {
    char command[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

/* Bytes of a member: of sample k of all, or of its class. */
static uint64_t member_bytes(uint64_t k) { return dlp_hash(1, k, 0, 0) % MOST; }
static uint8_t member_byte(uint64_t k, uint64_t i) { return (uint8_t)dlp_hash(k, i, 7, 0); }

/* Where the files of a sample lie below the directory. long: a name of more than 100, 255 bytes. */
static void sample_name(char *to, size_t size, uint64_t k, int longer) {
    static const char *const parts[3] = {
        "", "a-directory-with-a-name-of-some-length/and-one-more-of-these-in-it-for-the-prefix/",
        "dir-of-60-bytes-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/"
        "dir-of-60-bytes-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/"
        "dir-of-60-bytes-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/"
        "dir-of-60-bytes-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/"};
    snprintf(to, size, "%ssample-of-a-name-%06d", parts[longer], (int)k);
}

/* Write the files of samples [from, to) and a shard of them. options: of tar. */
static const char *make_shard(const char *name, const char *options, uint64_t from, uint64_t to,
                              int longer) {
    char base[600], path[1000];
    CHECK(shell("rm -rf '%s/files' && mkdir -p '%s/files'", rig_dir, rig_dir) == 0);
    for (uint64_t k = from; k < to; k++) {
        FILE *f;
        sample_name(base, sizeof base, k, longer);
        snprintf(path, sizeof path, "files/%s", base);
        CHECK(shell("mkdir -p \"$(dirname '%s/%s')\"", rig_dir, path) == 0);
        snprintf(path, sizeof path, "%s/files/%s.Bin", rig_dir, base);
        CHECK((f = fopen(path, "wb")) != NULL);
        for (uint64_t i = 0; f && i < member_bytes(k); i++) putc(member_byte(k, i), f);
        if (f) fclose(f);
        snprintf(path, sizeof path, "%s/files/%s.cls", rig_dir, base);
        CHECK((f = fopen(path, "wb")) != NULL && fprintf(f, "%04d", (int)k) == 4);
        if (f) fclose(f);
    }
    CHECK(shell("cd '%s/files' && tar %s --sort=name -cf ../%s *", rig_dir, options, name) == 0);
    return in_rig(name);
}

static const dlp_field fields[] = {{"bin", DLP_U8, 1, {MOST}, 1, 0},
                                   {"cls", DLP_U32, 0, {0}, 0, 0}};

static int is_member(const uint8_t *at, uint64_t k) {
    uint64_t i = 0;
    while (i < member_bytes(k) && at[i] == member_byte(k, i)) i++;
    return i == member_bytes(k);
}

/* All rows of a pipe of samples, whatever its indices: sample k, which its class says, is row k. */
static void check_pipe(const dlp_loader_desc *desc, uint64_t n) {
    uint8_t seen[SAMPLES] = {0};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    uint64_t rows = 0;
    int rc = dlp_loader_open(&p, desc, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("%s: %s\n", err.field, err.message);
    while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++) {
            char text[5] = "";
            const uint8_t *at = (const uint8_t *)b->fields[0].data + (size_t)i * MOST;
            uint64_t k;
            if (!b->valid[i]) continue;
            memcpy(text, (const uint32_t *)b->fields[1].data + i, 4);
            k = (uint64_t)atoi(text);
            CHECK(k < SAMPLES && !seen[k] && b->fields[0].lengths[i] == member_bytes(k));
            CHECK(is_member(at, k));
            seen[k % SAMPLES] = 1;
            rows++;
        }
        dlp_pipe_release(p, b);
    }
    CHECK(rows == n);
    if (p != NULL) {
        if (dlp_pipe_error(p)->code) printf("%s\n", dlp_pipe_error(p)->message);
        CHECK(dlp_pipe_error(p)->code == 0 && dlp_pipe_close(p) == DLP_OK);
    }
}

/* Three shards in one format. */
static void make_shards(const char *paths[SHARDS], const char *options, int longer) {
    static char kept[SHARDS][300];
    static const uint64_t cut[SHARDS + 1] = {0, 1, 12, SAMPLES};
    for (int i = 0; i < SHARDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "shard-%d.tar", i);
        snprintf(kept[i], sizeof kept[i], "%s",
                 make_shard(name, options, cut[i], cut[i + 1], longer));
        paths[i] = kept[i];
    }
}

static dlp_source *opened(const dlp_tar_desc *d) {
    static int times;
    dlp_tar_desc how = *d;
    dlp_source *s = NULL;
    dlp_error err;
    int rc;
    how.maps = d->in_flight == 0 && times++ % 2 > 0; /* every second one is mapped */
    rc = dlp_tar_open(&s, &how, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("%s\n", err.message);
    return s;
}

static int refused(const dlp_tar_desc *d, int code, const char *word) {
    dlp_source *s = NULL;
    dlp_error err;
    int rc = dlp_tar_open(&s, d, &err);
    int well = rc == code && s == NULL && strstr(err.message, word) != NULL;
    CHECK(well);
    if (!well) printf("%d (not %d): '%s' is not in '%s'\n", rc, code, word, rc ? err.message : "");
    if (rc == DLP_OK) CHECK(dlp_source_close(s) == DLP_OK);
    return well;
}

/* ---- the three ways to read samples ---- */

static void at_random(const dlp_tar_desc *d, const dlp_workers_desc *w) {
    dlp_source *s = opened(d);
    dlp_loader_desc l = {.source = s, .batch_size = 5, .num_workers = 2, .shuffle = 1, .seed = 3};
    if (s == NULL) return;
    l.workers = *w;
    CHECK(dlp_index_describe(s)->n_items == SAMPLES);
    check_pipe(&l, SAMPLES);
    CHECK(dlp_source_close(s) == DLP_OK);
}

/* Shards as parts, which load reads from files. Without max_items their counts are given. */
static dlp_loader_desc whole(dlp_tar_parts *t, dlp_part_files *files, dlp_part_file *file,
                             const dlp_tar_desc *d) {
    dlp_loader_desc l = {.dataset = {.fields = d->fields,
                                     .n_fields = d->n_fields,
                                     .fetch = dlp_tar_fetch,
                                     .user = t},
                         .batch_size = 5,
                         .num_workers = 2,
                         .parts = {.n_parts = d->n_paths,
                                   .max_part_bytes = 1 << 18,
                                   .max_items = 64,
                                   .load = dlp_tar_load,
                                   .user = t,
                                   .shuffle_parts = 1,
                                   .shuffle_items = 1}};
    for (uint64_t i = 0; i < d->n_paths; i++) file[i] = (dlp_part_file){.path = d->paths[i]};
    *files = (dlp_part_files){.files = file, .n_files = d->n_paths};
    *t = (dlp_tar_parts){.desc = d, .load = dlp_part_files_load, .user = files};
    return l;
}

static void as_parts(const dlp_tar_desc *d) {
    static const uint64_t counts[SHARDS] = {1, 11, SAMPLES - 12};
    dlp_part_file file[SHARDS];
    dlp_part_files files;
    dlp_tar_parts t;
    dlp_loader_desc l = whole(&t, &files, file, d);
    check_pipe(&l, SAMPLES);
    l.parts.max_items = 0;
    l.parts.items = counts;
    check_pipe(&l, SAMPLES);
}

static void expanded(const dlp_tar_desc *d) {
    static const dlp_field shard = {"shard", DLP_U8, 1, {1 << 18}, 1, 0};
    const dlp_files_desc f = {
        .n_items = d->n_paths, .paths = d->paths, .fields = &shard, .n_fields = 1};
    dlp_source *s = NULL;
    dlp_error err;
    CHECK(dlp_files_open(&s, &f, &err) == DLP_OK);
    const dlp_node nodes[] = {{.name = "shards", .verb = DLP_LIST},
                              {.name = "read", .verb = DLP_FETCH, .fetch = {.source = s}},
                              {.name = "samples",
                               .verb = DLP_EXPAND,
                               .expand = {.expand = dlp_tar_expand,
                                          .user = (void *)(uintptr_t)d,
                                          .max_out = 64,
                                          .fields = d->fields,
                                          .n_fields = d->n_fields},
                               .workers = {.num_workers = 2}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 5}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint64_t rows = 0;
    int rc = dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("%s: %s\n", err.stage, err.message);
    while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++, rows++) {
            const uint8_t *at = (const uint8_t *)b->fields[0].data + (size_t)i * MOST;
            CHECK(b->fields[0].lengths[i] == member_bytes(rows)); /* in the order of the shards */
            CHECK(is_member(at, rows));
        }
        dlp_pipe_release(p, b);
    }
    CHECK(rows == SAMPLES && (p == NULL || dlp_pipe_error(p)->code == 0));
    if (p != NULL && dlp_pipe_error(p)->code) printf("%s\n", dlp_pipe_error(p)->message);
    CHECK((p == NULL || dlp_pipe_close(p) == DLP_OK) && dlp_source_close(s) == DLP_OK);
}

static void tar__each_format_and_name_and_way__the_bytes_of_the_files(void) {
    static const struct {
        const char *options;
        int longer;
    } runs[] = {{"--format=v7", 0},
                {"--format=ustar", 0},
                {"--format=gnu", 0},
                {"--format=oldgnu", 0},
                {"--format=pax", 0},
                {"--format=ustar", 1},
                {"--format=gnu", 1},
                {"--format=pax", 1},
                {"--format=gnu", 2},
                {"--format=pax", 2},
                {"--format=pax --pax-option=comment=words", 0},
                {"--format=pax --pax-option=globexthdr.name=g,comment:=words", 1},
                {"-b 1", 0}};
    static const char *const extensions[] = {"jpg bin", "txt cls"};
    const char *paths[SHARDS];
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        dlp_tar_desc d = {.paths = paths, .n_paths = SHARDS, .fields = fields, .n_fields = 2};
        dlp_workers_desc w = {.placement =
                                  i == 3 && TEST_PROCESSES && !RIG_TSAN ? DLP_PLACE_PROCESSES : 0};
        make_shards(paths, runs[i].options, runs[i].longer);
        if (i % 2) d.extensions = extensions;
        d.in_flight = (int)i;
        d.use_threads = i == 5;
        d.threads = (int)i % 4;
        at_random(&d, &w);
        as_parts(&d);
        expanded(&d);
    }
}

/* ---- samples ---- */

/* Count the rows of a shard, with the bytes that decode writes. */
typedef struct decoder {
    int begun;
} decoder;

static int decoder_init(void *user, int worker, void **state) {
    (void)worker;
    __atomic_add_fetch(&((decoder *)user)->begun, 1, __ATOMIC_RELAXED);
    *state = user;
    return 0;
}

static void decoder_exit(void *user, int worker, void *state) {
    (void)worker;
    CHECK(user == state);
    __atomic_add_fetch(&((decoder *)user)->begun, -1, __ATOMIC_RELAXED);
}

static int decode(void *user, void *state, dlp_item *item, const dlp_tar_sample *s) {
    CHECK(user == state && s->n_members == 2);
    CHECK(strcmp(s->members[0].extension, "Bin") == 0 && s->members[1].bytes == 4);
    item->length[0] = (uint64_t)snprintf(item->data[0], MOST, "%s %.4s", s->key,
                                         (const char *)s->members[1].data);
    return 0;
}

static void tar__a_decode__gets_key_and_members(void) {
    static const dlp_field text = {"text", DLP_U8, 1, {MOST}, 1, 0};
    decoder state = {0};
    dlp_tar_desc d = {.path = make_shard("decode.tar", "--format=ustar", 0, 5, 1),
                      .fields = &text,
                      .n_fields = 1,
                      .decode = decode,
                      .user = &state,
                      .worker_init = decoder_init,
                      .worker_exit = decoder_exit};
    dlp_source *s = opened(&d);
    rig_rows *r;
    if (s == NULL) return;
    r = rows_of(s, &(dlp_loader_desc){.num_workers = 3});
    CHECK(r->n == 5 && r->err.code == 0 && state.begun == 0);
    for (uint64_t k = 0; k < 5; k++) {
        char want[700], base[600];
        sample_name(base, sizeof base, k, 1);
        snprintf(want, sizeof want, "%s %04d", base, (int)k);
        CHECK(r->row[k] && strcmp(r->row[k], want) == 0);
    }
    rows_free(r);
    CHECK(dlp_source_close(s) == DLP_OK);
}

/* ---- shards by hand ---- */

typedef struct shard {
    uint8_t *bytes;
    uint64_t n;
} shard;

static void seal(uint8_t *h) {
    unsigned sum = 0;
    memset(h + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum & 0777777);
}

/* Add a member. bytes NULL: none follow. */
static uint8_t *add(shard *s, const char *name, char type, const char *bytes, uint64_t n) {
    uint64_t data = bytes ? (n + BLOCK - 1) / BLOCK * BLOCK : 0;
    uint8_t *h;
    s->bytes = realloc(s->bytes, s->n + BLOCK + data);
    h = s->bytes + s->n;
    memset(h, 0, BLOCK + data);
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 124, 12, "%011" PRIo64, n);
    h[156] = (uint8_t)type;
    memcpy(h + 257,
           "ustar\0"
           "00",
           8);
    if (bytes && n) memcpy(h + BLOCK, bytes, n);
    seal(h);
    s->n += BLOCK + data;
    return h;
}

static void end(shard *s) {
    s->bytes = realloc(s->bytes, s->n + 2 * BLOCK);
    memset(s->bytes + s->n, 0, 2 * BLOCK);
    s->n += 2 * BLOCK;
}

/* The shard as a file, which is opened: rows, or what is wrong. Frees it. */
static rig_rows *rows_of_shard(shard *s, const dlp_tar_desc *desc) {
    dlp_tar_desc d = *desc;
    dlp_source *source;
    rig_rows *r = NULL;
    d.path = rig_write("hand.tar", s->bytes, s->n);
    d.index = "";
    if ((source = opened(&d)) != NULL) {
        r = rows_of(source, &(dlp_loader_desc){.num_workers = 1});
        CHECK(dlp_source_close(source) == DLP_OK);
    }
    free(s->bytes);
    *s = (shard){NULL, 0};
    return r;
}

static void shard_refused(shard *s, int code, const char *word) {
    dlp_tar_desc d = {.fields = fields, .n_fields = 2, .index = ""};
    d.path = rig_write("hand.tar", s->bytes, s->n);
    if (refused(&d, code, word)) refused(&d, code, "/hand.tar: byte ");
    free(s->bytes);
    *s = (shard){NULL, 0};
}

static void pax(shard *s, char type, const char *records) {
    add(s, "PaxHeader", type, records, strlen(records));
}

static void tar__headers_by_hand__read_or_refused_in_words(void) {
    static const dlp_tar_desc d = {.fields = fields, .n_fields = 1};
    static char path[5001];
    shard s = {NULL, 0};
    rig_rows *r;
    uint8_t *h;
    add(&s, "a/", '5', NULL, 0); /* a directory, links, a device, names without a key */
    add(&s, "a/b.bin", '0', "first", 5);
    add(&s, "a/c.txt", '1', NULL, 700); /* which no field wants */
    add(&s, "a/c.txt", '2', NULL, 0);
    add(&s, "a/c", '1', NULL, 0);
    add(&s, "a/c.bin", '5', NULL, 0);
    add(&s, "a.x/README", '0', "no dot", 6);
    add(&s, "a/.hidden", '0', "a dot in front", 14);
    pax(&s, 'x', "9 size=9\n"); /* of the directory alone */
    add(&s, "dir/", '5', NULL, 0);
    add(&s, "dir/", 0, NULL, 0);
    h = add(&s, "x.bin", 0, "second", 6);
    memset(h + 124, 0, 12); /* base 256 */
    h[124] = 0x80;
    h[135] = 6;
    memset(h + 157, 0xff, 100); /* the largest bytes in a row that a header has */
    seal(h);
    pax(&s, 'g', "16 comment=word\n");
    pax(&s, 'x', "18 path=dir/y.bin\n9 size=5\n");
    h = add(&s, "wrong", '0', "third", 5);
    memset(h + 124, '7', 11); /* pax says the size */
    seal(h);
    h = add(&s, "z.BIN", '7', "fourth", 6);
    memset(h + 157, 0xff, 100); /* the sum of old programs: of signed bytes */
    memset(h + 340, 0xff, 4);
    seal(h);
    {
        int sum = 0;
        memset(h + 148, ' ', 8);
        for (int i = 0; i < BLOCK; i++) sum += (int8_t)h[i];
        snprintf((char *)h + 148, 8, "%06o", (unsigned)sum);
    }
    end(&s);
    r = rows_of_shard(&s, &d);
    CHECK(r != NULL && r->n == 4 && r->err.code == 0);
    if (r != NULL && r->n == 4)
        CHECK(!strcmp(r->row[0], "first") && !strcmp(r->row[1], "second") &&
              !strcmp(r->row[2], "third") && !strcmp(r->row[3], "fourth"));
    rows_free(r);

    add(&s, "a.bin", '0', "x", 1);
    h = add(&s, "b.bin", '0', NULL, 0);
    memset(h + 124, 0, 12);
    h[124] = 0x80;
    h[131] = 2; /* 8 GiB */
    seal(h);
    end(&s);
    shard_refused(&s, DLP_ERR_CORRUPT, "it was cut: b.bin has 8589934592 bytes, 1024 are there");
    h = add(&s, "b.bin", '0', NULL, 0);
    memset(h + 124, 0xff, 12);
    seal(h);
    shard_refused(&s, DLP_ERR_CORRUPT, "the size in this header is no number");
    h = add(&s, "b.bin", '0', NULL, 0);
    memset(h + 124, 0, 12);
    h[124] = 0x80;
    h[125] = 1; /* 2^80 */
    seal(h);
    shard_refused(&s, DLP_ERR_CORRUPT, "the size in this header is no number");
    pax(&s, 'x', "22 GNU.sparse.major=1\n");
    shard_refused(&s, DLP_ERR_UNSUPPORTED, "a sparse file; make the shard without --sparse");
    add(&s, "a.bin", 'S', NULL, 0);
    shard_refused(&s, DLP_ERR_UNSUPPORTED, "a sparse file");
    add(&s, "a.bin", 'M', NULL, 0);
    shard_refused(&s, DLP_ERR_UNSUPPORTED, "began in another volume");
    add(&s, "a.bin", 'Q', NULL, 0);
    shard_refused(&s, DLP_ERR_UNSUPPORTED, "type 81, which is not known");
    pax(&s, 'g', "12 path=a.b\n");
    shard_refused(&s, DLP_ERR_CORRUPT, "for all members");
    pax(&s, 'x', "13 path=a.b\n");
    shard_refused(&s, DLP_ERR_CORRUPT, "a wrong length");
    pax(&s, 'x', "99999999 a=b\n");
    shard_refused(&s, DLP_ERR_CORRUPT, "a wrong length");
    pax(&s, 'x', "0 a=b\n");
    shard_refused(&s, DLP_ERR_CORRUPT, "a wrong length");
    memset(path, 'x', sizeof path - 1);
    memcpy(path, "5000 path=", 10);
    path[4999] = '\n';
    pax(&s, 'x', path);
    shard_refused(&s, DLP_ERR_CORRUPT, "a name here");
    add(&s, "long", 'L', path, 4096);
    shard_refused(&s, DLP_ERR_CORRUPT, "a name here");
    add(&s, "long", 'L', path, 4097);
    shard_refused(&s, DLP_ERR_UNSUPPORTED, "a header of 4097 bytes");
    pax(&s, 'x', "6 abc\n");
    shard_refused(&s, DLP_ERR_CORRUPT, "without =");
    pax(&s, 'x', "10 size=x\n");
    shard_refused(&s, DLP_ERR_CORRUPT, "no number");
    pax(&s, 'x', "12 path=a.b\n");
    end(&s);
    shard_refused(&s, DLP_ERR_CORRUPT, "ends behind a pax header");
    add(&s, "long", 'L', "", 0);
    shard_refused(&s, DLP_ERR_CORRUPT, "a name here");
    h = add(&s, "a.bin", '0', "x", 1);
    h[3]++;
    shard_refused(&s, DLP_ERR_CORRUPT, "is no tar: the sum of its first header is wrong");
    s = (shard){calloc(1, 600), 600};
    memcpy(s.bytes, "\x1f\x8b\x08", 3);
    shard_refused(&s, DLP_ERR_CORRUPT, "byte 0: is gzip; it must be a tar. Unpack it first");
    s = (shard){calloc(1, 600), 600};
    memcpy(s.bytes, "PK\3\4", 4);
    shard_refused(&s, DLP_ERR_CORRUPT, "byte 0: is zip (or .npz, .pt); it must be a tar.");
    s = (shard){calloc(1, 20), 20}; /* shorter than a header */
    memcpy(s.bytes, "\x1f\x8b\x08", 3);
    shard_refused(&s, DLP_ERR_CORRUPT, "byte 0: is gzip; it must be a tar. Unpack it first");
    s = (shard){calloc(1, 4000), 4000};
    strcpy((char *)s.bytes, "<!DOCTYPE html>\n<html>");
    memset(s.bytes + 22, 'x', 3978);
    shard_refused(&s, DLP_ERR_CORRUPT, "byte 0: is a page of HTML; it must be a tar.");
    end(&s);
    {
        dlp_tar_desc none = {.fields = fields, .n_fields = 2, .index = ""};
        none.path = rig_write("none.tar", s.bytes, s.n);
        refused(&none, DLP_ERR_ARG, "/none.tar: no items in this file");
    }
    free(s.bytes);
}

/* The error of the only item of a shard. */
static void item_fails(shard *s, const dlp_tar_desc *d, int code, const char *word) {
    rig_rows *r;
    end(s);
    r = rows_of_shard(s, d);
    CHECK(r != NULL && r->err.code == code && strstr(r->err.message, word) != NULL);
    if (r && (r->err.code != code || !strstr(r->err.message, word)))
        printf("%s: %s\n", word, r->err.message);
    rows_free(r);
}

static void tar__members_that_fit_no_field__errors_of_items(void) {
    static const dlp_field pairs = {"pairs", DLP_U16, 2, {2, 3}, 1, 0};
    static const char *const extensions[] = {"png jpg", "cls"};
    dlp_tar_desc d = {.fields = fields, .n_fields = 2};
    shard s = {NULL, 0};
    rig_rows *r;
    add(&s, "a.bin", '0', "x", 1);
    item_fails(&s, &d, DLP_ERR_CALLBACK, "/hand.tar: a has no member .cls");
    add(&s, "a.cls", '0', "1234", 4);
    item_fails(&s, &d, DLP_ERR_CALLBACK, "a has no member .bin; name the field after an extension");
    add(&s, "a.cls", '0', "12345", 5);
    add(&s, "a.bin", '0', "x", 1);
    item_fails(&s, &d, DLP_ERR_LENGTH,
               "/hand.tar: a.cls has 5 bytes; field cls takes 4; change its shape");
    add(&s, "a.bin", '0', "x", 1);
    add(&s, "a.BIN", '0', "x", 1);
    item_fails(&s, &d, DLP_ERR_CALLBACK, "byte 1024: a second member a.BIN");
    d.extensions = extensions;
    add(&s, "a.cls", '0', "1234", 4);
    item_fails(&s, &d, DLP_ERR_CALLBACK, "a has no member .png jpg");
    d.optional = 1;
    add(&s, "a.cls", '0', "1234", 4);
    end(&s);
    r = rows_of_shard(&s, &d);
    CHECK(r && r->n == 1 && r->err.code == 0 && r->bytes[0] == 0);
    rows_free(r);
    add(&s, "a.jpg", '0', "x", 1); /* a field of a fixed size is never optional */
    item_fails(&s, &d, DLP_ERR_CALLBACK, "a has no member .cls");
    d.n_fields = 1;
    add(&s, "meta.json", '0', "{}", 2);
    item_fails(&s, &d, DLP_ERR_CALLBACK, "/hand.tar: meta.json belongs to no field; leave it out");
    d = (dlp_tar_desc){.fields = &pairs, .n_fields = 1};
    add(&s, "a.pairs", '0', "1234567", 7);
    item_fails(&s, &d, DLP_ERR_LENGTH, "field pairs takes whole rows, up to 12");
    add(&s, "a.pairs", '0', "123456789012345678", 18);
    item_fails(&s, &d, DLP_ERR_LENGTH, "field pairs takes whole rows, up to 12");
    d.max_bytes = 600;
    d.in_flight = 1; /* it is read: a mapped item needs no room */
    add(&s, "a.pairs", '0', "123456789012", 12);
    item_fails(&s, &d, DLP_ERR_LENGTH, "/hand.tar: has 1024 bytes, the most are 600");
    for (int i = 0; i < 257; i++) {
        char name[20];
        snprintf(name, sizeof name, "a.%d", i);
        add(&s, name, '0', "", 0);
    }
    d.max_bytes = 0;
    d.in_flight = 0;
    item_fails(&s, &d, DLP_ERR_CALLBACK, "more than 256 members of a");
}

/* ---- every byte of a shard ---- */

/* Add a sample NAME.bin, whose bytes are its name, and NAME.cls. */
static void add_sample(shard *s, const char *name) {
    char path[100];
    snprintf(path, sizeof path, "%s.bin", name);
    add(s, path, '0', name, strlen(name));
    snprintf(path, sizeof path, "%s.cls", name);
    add(s, path, '0', "0000", 4);
}

static void add_zeros(shard *s, uint64_t n) {
    s->bytes = realloc(s->bytes, s->n + n);
    memset(s->bytes + s->n, 0, n);
    s->n += n;
}

static int load_bytes(void *user, dlp_part *part) {
    const shard *s = user;
    if (s->n > part->capacity) return DLP_ERR_LENGTH;
    memcpy(part->data, s->bytes, s->n);
    part->bytes = s->n;
    return 0;
}

/* Load a shard as a part does. room: bytes behind it for places. part->data is to be freed. */
static int load_shard(const shard *s, dlp_part *part, dlp_tar_parts *t, const dlp_tar_desc *d,
                      uint64_t room) {
    *part = (dlp_part){.capacity = s->n + room};
    part->data = malloc(part->capacity + 1);
    *t = (dlp_tar_parts){.desc = d, .load = load_bytes, .user = (void *)(uintptr_t)s};
    return dlp_tar_load(t, part);
}

/* Expand a file by a pipe. Returns the rows, in text: of field 0, with a blank behind each; or the
   error's message. */
static const char *expanded_text(const char *path, const dlp_tar_desc *d) {
    static char text[4000];
    static const dlp_field field = {"shard", DLP_U8, 1, {1 << 23}, 1, 0};
    const dlp_files_desc f = {.n_items = 1, .paths = &path, .fields = &field, .n_fields = 1};
    dlp_source *s = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    CHECK(dlp_files_open(&s, &f, NULL) == DLP_OK);
    const dlp_node nodes[] = {{.name = "shards", .verb = DLP_LIST},
                              {.name = "read", .verb = DLP_FETCH, .fetch = {.source = s}},
                              {.name = "samples",
                               .verb = DLP_EXPAND,
                               .expand = {.expand = dlp_tar_expand,
                                          .user = (void *)(uintptr_t)d,
                                          .max_out = 64,
                                          .fields = d->fields,
                                          .n_fields = d->n_fields}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}}};
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    text[0] = 0;
    while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
        sprintf(text + strlen(text), "%.*s ", (int)b->fields[0].lengths[0],
                (const char *)b->fields[0].data);
        dlp_pipe_release(p, b);
    }
    if (p != NULL && dlp_pipe_error(p)->code != 0) {
        CHECK(text[0] == 0);
        snprintf(text, sizeof text, "%s", dlp_pipe_error(p)->message);
    }
    CHECK((p == NULL || dlp_pipe_close(p) == DLP_OK) && dlp_source_close(s) == DLP_OK);
    return text;
}

/* Read a shard in each way: it gives these samples, and a warning with these words. NULL: no
   warning. Frees it. */
static void shard_gives(shard *s, const dlp_tar_desc *desc, const char *want, const char *warning) {
    dlp_tar_desc d = *desc;
    const char *path = rig_write("hand.tar", s->bytes, s->n), *told;
    dlp_tar_parts t;
    dlp_part part;
    uint64_t n = 0;
    char text[4000] = "";
    d.path = path;
    d.fields = fields;
    d.n_fields = 2;
    for (const char *c = want; *c; c++) n += *c == ' ';
    CHECK(load_shard(s, &part, &t, &d, 1000) == 0 && part.items == n);
    free(part.data);
    CHECK(strcmp(expanded_text(path, &d), want) == 0);
    for (int open = 0; open < 2; open++) { /* also behind an index */
        dlp_source *source = opened(&d);
        rig_rows *r;
        if (source == NULL) continue;
        text[0] = 0;
        told = dlp_index_describe(source)->warning;
        CHECK(warning == NULL ? told == NULL : told != NULL && strstr(told, warning) != NULL);
        CHECK(warning != NULL || dlp_index_describe(source)->found == 1u - (unsigned)open);
        r = rows_of(source, &(dlp_loader_desc){.num_workers = 1});
        for (uint64_t i = 0; i < r->n; i++) sprintf(text + strlen(text), "%s ", r->row[i]);
        CHECK(r->err.code == 0 && strcmp(text, want) == 0);
        if (r->err.code) printf("%s\n", r->err.message);
        rows_free(r);
        CHECK(dlp_source_close(source) == DLP_OK);
    }
    CHECK(unlink(in_rig("hand.tar.dlpidx")) == (warning == NULL ? 0 : -1));
    free(s->bytes);
    *s = (shard){NULL, 0};
}

/* Read a shard in each way: it is refused with these words. Frees it. */
static void shard_is_refused(shard *s, const dlp_tar_desc *desc, int code, const char *words) {
    dlp_tar_desc d = *desc;
    const char *told;
    dlp_tar_parts t;
    dlp_part part;
    d.path = rig_write("hand.tar", s->bytes, s->n);
    d.fields = fields;
    d.n_fields = 2;
    refused(&d, code, words);
    refused(&d, code, "/hand.tar: byte ");
    CHECK(access(in_rig("hand.tar.dlpidx"), F_OK) != 0);
    CHECK(load_shard(s, &part, &t, &d, 1000) == DLP_ERR_CALLBACK);
    free(part.data);
    told = expanded_text(d.path, &d);
    CHECK(strstr(told, words) != NULL);
    if (strstr(told, words) == NULL) printf("'%s' is not in '%s'\n", words, told);
    free(s->bytes);
    *s = (shard){NULL, 0};
}

static void tar__archives_behind_each_other__all_samples(void) {
    const dlp_tar_desc d = {0}, insist = {.insist = 1};
    shard s = {NULL, 0};
    add_sample(&s, "a");
    end(&s);
    add_zeros(&s, 8192);
    add_sample(&s, "b");
    add_sample(&s, "c");
    end(&s);
    shard_gives(&s, &d, "a b c ", NULL);
    add_sample(&s, "a"); /* a lone block, between samples and in one */
    add_zeros(&s, BLOCK);
    add(&s, "b.bin", '0', "b", 1);
    add_zeros(&s, BLOCK);
    add(&s, "b.cls", '0', "0000", 4);
    end(&s);
    shard_gives(&s, &d, "a b ", NULL);
    add_zeros(&s, BLOCK); /* zeros in front */
    add_sample(&s, "a");
    end(&s);
    add_zeros(&s, 100000); /* and much behind */
    shard_gives(&s, &d, "a ", NULL);
    add_sample(&s, "a");
    end(&s);
    add_zeros(&s, 4 << 20);
    add_sample(&s, "b");
    end(&s);
    shard_is_refused(&s, &d, DLP_ERR_CORRUPT, "zeros up to byte 4197376, where members follow");
    for (int run = 0; run < 4; run++) {
        char words[100];
        add_sample(&s, "a");
        end(&s);
        s.bytes = realloc(s.bytes, s.n + 2000);
        memset(s.bytes + s.n, 0, 2000);
        s.n += run == 3 ? 2000 : 1000;
        s.bytes[run == 0 ? 2 * BLOCK * 3 : run == 1 ? 4000 : s.n - 1] = 7;
        snprintf(words, sizeof words,
                 "byte %d: no header, behind the end of the archive at byte %d",
                 run == 0   ? 6 * BLOCK
                 : run == 1 ? 7 * BLOCK
                            : (int)((s.n - 1) / BLOCK * BLOCK),
                 4 * BLOCK);
        if (run == 3)
            shard_gives(&s, &insist, "a ", NULL);
        else
            shard_is_refused(&s, &d, DLP_ERR_CORRUPT, words);
    }
    pax(&s, 'x', "12 path=b.c\n");
    add_zeros(&s, BLOCK);
    add_sample(&s, "a");
    end(&s);
    shard_is_refused(&s, &d, DLP_ERR_CORRUPT, "ends behind a pax header");
}

static void tar__a_key_that_comes_again__told(void) {
    const dlp_tar_desc d = {.optional = 1}, insist = {.optional = 1, .insist = 1};
    const dlp_tar_desc *const both[] = {&d, &insist};
    shard s = {NULL, 0};
    add(&s, "b.cls", '0', "0000", 4); /* one sample, in two places */
    add(&s, "b.bin", '0', "b", 1);
    add(&s, "a.cls", '0', "0000", 4);
    add(&s, "b.txt", '0', "b", 1);
    end(&s);
    shard_is_refused(&s, &d, DLP_ERR_CORRUPT,
                     "byte 3072: b has members at byte 0 too; they must lie together. Sort");
    for (int i = 0; i < 2; i++) { /* two archives with the same names */
        for (int k = 0; k < 2; k++) {
            add_sample(&s, "a");
            add_sample(&s, "b");
            end(&s);
        }
        shard_gives(&s, both[i], "a b a b ",
                    i ? NULL : "/hand.tar: byte 5120: the key a comes again; it is 2 samples");
    }
    add_sample(&s, "a"); /* the same key, next to each other, in two archives */
    end(&s);
    add_sample(&s, "a");
    end(&s);
    shard_gives(&s, &insist, "a a ", NULL);
    add(&s, "./a.bin", '0', "a", 1); /* names that programs write in other ways */
    add(&s, "a.cls", '0', "0000", 4);
    add(&s, "b.bin", '0', "b", 1);
    add(&s, "/.//b.cls", '0', "0000", 4);
    end(&s);
    shard_gives(&s, &d, "a b ", NULL);
    add_sample(&s, "./a");
    add_sample(&s, "b");
    add(&s, "a.txt", '0', "0000", 4);
    end(&s);
    shard_is_refused(&s, &d, DLP_ERR_CORRUPT, "a has members at byte 0 too");
    add_sample(&s, "10"); /* any order, without a key twice */
    add_sample(&s, "9");
    add_sample(&s, "9a");
    add_sample(&s, "1");
    end(&s);
    shard_gives(&s, &d, "10 9 9a 1 ", NULL);
}

static void tar__members_that_are_no_files_of_a_sample__left_out_or_refused(void) {
    const dlp_tar_desc insist = {.insist = 1};
    static const struct {
        char type;
        const char *words;
    } kinds[] = {
        {'1', "byte 2048: b.bin is a hard link, without bytes; make the shard with --hard"},
        {'2', "byte 2048: b.bin is a symbolic link; make the shard with --dereference"},
        {'3', "b.bin is a device or a pipe"},
        {'4', "b.bin is a device or a pipe"},
        {'6', "b.bin is a device or a pipe"}};
    const dlp_tar_desc d = {.optional = 1};
    shard s = {NULL, 0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        add_sample(&s, "a");
        add(&s, "b.bin", kinds[i].type, NULL, 0);
        add(&s, "b.cls", '0', "0000", 4);
        end(&s);
        shard_is_refused(&s, &d, DLP_ERR_UNSUPPORTED, kinds[i].words);
    }
    add_sample(&s, "a");
    add(&s, "b.bin", '2', NULL, 0);
    end(&s);
    shard_gives(&s, &insist, "a ", NULL);
    add(&s, "__index__.json", '0', "{}", 2);
    add(&s, "./__MACOSX/a.bin", '0', "x", 1);
    add(&s, "__MACOSX/a.bin", '0', "x", 1);
    add(&s, "x/@eaDir/a.bin", '0', "x", 1);
    add(&s, "x/PaxHeaders.77/a.bin", '0', "x", 1);
    add(&s, "._a.bin", '0', "x", 1);
    add_sample(&s, "__a");
    add_sample(&s, "a__");
    add_sample(&s, "__MACOSX2/b");
    add(&s, "x/__meta__.bin", '0', "x", 1);
    add(&s, "a.c.d/x", '0', "x", 1);
    add(&s, "a.c.d/x.bin", '0', "x", 1);
    add(&s, "a.c.d/x.cls", '0', "0000", 4);
    end(&s);
    shard_gives(&s, &d, "__a a__ __MACOSX2/b x ", NULL);
}

/* An index is made for fields that want no link. It stands for fields that want one, too. */
static void tar__an_index_of_other_fields__a_link_is_still_refused(void) {
    const dlp_tar_desc first = {.fields = fields + 1, .n_fields = 1};
    const dlp_tar_desc both = {.fields = fields, .n_fields = 2, .optional = 1};
    for (int where = 0; where < 3; where++) { /* in front of all, between two, behind */
        dlp_tar_desc d = first;
        shard s = {NULL, 0};
        dlp_source *source;
        rig_rows *r;
        for (int i = 0; i < 3; i++) {
            if (i == where) add(&s, "a.bin", '1', NULL, 0);
            if (i < 2) add(&s, i == 0 ? "a.cls" : "b.cls", '0', "0000", 4);
        }
        end(&s);
        remove(in_rig("links.tar.dlpidx"));
        d.path = rig_write("links.tar", s.bytes, s.n);
        if ((source = opened(&d)) != NULL) {
            CHECK(dlp_index_describe(source)->n_items == 2);
            CHECK(dlp_source_close(source) == DLP_OK);
        }
        d = both;
        d.path = in_rig("links.tar");
        if ((source = opened(&d)) != NULL) {
            CHECK(dlp_index_describe(source)->found == 0);
            r = rows_of(source, &(dlp_loader_desc){.num_workers = 1});
            CHECK(r->err.code == DLP_ERR_CALLBACK &&
                  strstr(r->err.message, "a.bin is a hard link"));
            rows_free(r);
            CHECK(dlp_source_close(source) == DLP_OK);
        }
        free(s.bytes);
    }
}

/* ---- shards that are cut ---- */

static void tar__cut_at_each_block__an_error_that_names_it(void) {
    const dlp_tar_desc by_field = {.fields = fields, .n_fields = 2};
    dlp_tar_desc d = {.fields = fields, .n_fields = 2, .index = ""};
    const char *path = make_shard("whole.tar", "--format=pax -b 1", 0, 4, 2);
    shard s = {calloc(1, 1 << 18), rig_bytes(path)};
    FILE *f = fopen(path, "rb");
    uint64_t last = 0, well = 0;
    CHECK(f && fread(s.bytes, 1, s.n, f) == s.n && fclose(f) == 0 && s.n > 20 * BLOCK);
    for (uint64_t i = 0; i < s.n; i++)
        if (s.bytes[i]) last = i;
    last = (last / BLOCK + 1) * BLOCK; /* the first block of zeros, or data that ends with them */
    for (uint64_t n = 0; n <= s.n; n += n % BLOCK == 0 || n % BLOCK == 511 ? 1 : 510) {
        shard cut = {s.bytes, n};
        dlp_tar_parts t;
        dlp_part part;
        int rc = load_shard(&cut, &part, &t, &by_field, 100);
        CHECK((rc == 0) == (n >= last + BLOCK) && (rc != 0 || part.items == 4));
        free(part.data);
        d.path = rig_write("cut.tar", s.bytes, n);
        if (n < last + BLOCK)
            refused(&d, DLP_ERR_CORRUPT, n == 0 ? "/cut.tar: byte 0: it was cut" : "it was cut");
        else
            well++;
    }
    CHECK(well > 0);
    free(s.bytes);
}

static void tar__a_part_or_input_that_is_cut__its_name_in_the_error(void) {
    const char *paths[1];
    dlp_tar_desc d = {.paths = paths, .n_paths = 1, .fields = fields, .n_fields = 2};
    dlp_part_files files;
    dlp_part_file file;
    dlp_tar_parts t;
    dlp_loader_desc l;
    dlp_batch *b;
    dlp_pipe *p;
    paths[0] = strdup(make_shard("part.tar", "", 0, 4, 0));
    CHECK(truncate(paths[0], 3 * BLOCK) == 0);
    l = whole(&t, &files, &file, &d);
    CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK && dlp_pipe_next(p, &b) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "/part.tar: byte 1536: it was cut") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    make_shard("part.tar", "", 0, 4, 0);
    l.parts.items = (const uint64_t[]){3}; /* a count that is not that of the shard */
    l.parts.max_items = 0;
    CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK && dlp_pipe_next(p, &b) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message,
                 "/part.tar: the shard has 4 samples, the part says 3") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    l.parts.items = NULL;
    l.parts.max_items = 9;
    l.parts.max_part_bytes = rig_bytes(paths[0]) + 8;
    CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK && dlp_pipe_next(p, &b) == DLP_ERR_LENGTH);
    CHECK(strstr(dlp_pipe_error(p)->message, "too little for") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    free((char *)(uintptr_t)paths[0]);
}

static void tar__sparse_members__refused_in_words(void) {
    static const char *const options[] = {"--format=gnu -S", "--format=pax -S",
                                          "--format=pax --sparse-version=0.1 -S"};
    dlp_tar_desc d = {.fields = fields, .n_fields = 2};
    CHECK(shell("cd '%s' && truncate -s 1M hole.bin && printf x >>hole.bin", rig_dir) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(shell("cd '%s' && tar %s -cf sparse.tar hole.bin", rig_dir, options[i]) == 0);
        d.path = in_rig("sparse.tar");
        refused(&d, DLP_ERR_UNSUPPORTED, "make the shard without --sparse");
    }
}

/* ---- indexes ---- */

static void hear(void *user, const char *line) {
    CHECK(strstr(line, "shard-") != NULL && strstr(line, "finds its items: ") != NULL);
    ++*(int *)user;
}

static void tar__an_index__used_again_and_made_again(void) {
    const char *paths[SHARDS];
    int told = 0;
    dlp_tar_desc d = {.paths = paths,
                      .n_paths = SHARDS,
                      .fields = fields,
                      .n_fields = 2,
                      .log = hear,
                      .log_user = &told};
    static const uint64_t found[] = {SHARDS, 0, 1, 0};
    make_shards(paths, "", 0);
    CHECK(shell("rm -f '%s'/*.dlpidx", rig_dir) == 0);
    inside_index_tell_ns = 1;
    for (int i = 0; i < 4; i++) {
        dlp_source *s;
        told = 0;
        if (i == 2) rig_time(paths[1], 1000);
        if ((s = opened(&d)) == NULL) continue;
        CHECK(dlp_index_describe(s)->found == found[i] &&
              dlp_index_describe(s)->longest % BLOCK == 0);
        CHECK((told > 0) == (found[i] > 0));
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    inside_index_tell_ns = UINT64_C(2000000000);
    CHECK(rig_bytes(in_rig("shard-1.tar.dlpidx")) == 8 * (8 + 11 + 1));
}

/* Places that are made up, with a head that is well: samples, or errors that name the shard. */
static void tar__an_index_that_is_made_up__errors_of_items(void) {
    dlp_tar_desc d = {.path = strdup(make_shard("m.tar", "--format=pax", 0, 9, 0)),
                      .fields = fields,
                      .n_fields = 2};
    dlp_loader_desc l = {.num_workers = 1, .workers = {.on_error = DLP_ON_ERROR_DROP}};
    uint64_t words[18], bad[18], errors = 0;
    char *index = strdup(in_rig("m.tar.dlpidx"));
    dlp_source *s = opened(&d);
    FILE *f = fopen(index, "rb");
    CHECK(s && dlp_source_close(s) == DLP_OK);
    CHECK(f && fread(words, 1, sizeof words, f) == sizeof words && fclose(f) == 0);
    for (uint64_t run = 0; run < 100; run++) {
        rig_rows *r;
        memcpy(bad, words, sizeof bad);
        for (uint64_t i = 0; i <= run % 3; i++) {
            uint64_t to = dlp_hash(run, i, 0, 0), at = 8 + to % 10;
            bad[at] = run % 2 ? bad[at] + (to >> 9) % 5 * 256 - 512 : to >> (to & 63);
        }
        rig_write("m.tar.dlpidx", bad, sizeof bad);
        if ((s = opened(&d)) == NULL) continue;
        CHECK(dlp_index_describe(s)->found == 0);
        r = rows_of(s, &l);
        CHECK(r->err.code == 0);
        errors += 9 - r->n;
        rows_free(r);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    CHECK(errors > 50);
    free((char *)(uintptr_t)d.path);
    free(index);
}

/* ---- bytes that are made up ---- */

static void fuzz_one(uint64_t seed, const shard *from, const dlp_tar_desc *d) {
    uint64_t data[2][512], length[2] = {0, 0};
    void *at[2] = {data[0], data[1]};
    dlp_item item = {.n_fields = 2, .data = at, .length = length};
    shard s = {malloc(from->n + 1), from->n - dlp_hash(seed, 1, 0, 0) % 3 * BLOCK};
    dlp_tar_parts t;
    dlp_part part;
    memcpy(s.bytes, from->bytes, s.n);
    for (uint64_t i = 0; i < 1 + seed % 6; i++) {
        uint64_t r = dlp_hash(seed, i, 2, 0), block = r % (s.n / BLOCK) * BLOCK;
        uint64_t place = r >> 32 & 3 ? block + (r >> 20) % BLOCK : block + 124 + (r >> 20) % 33;
        s.bytes[place] = r >> 40 & 1 ? (uint8_t)(r >> 48) : (uint8_t) "0127xgLKS5\0\x80 "[r % 13];
        if (r >> 41 & 3) seal(s.bytes + block);
    }
    if (load_shard(&s, &part, &t, d, 8 * (seed % 9)) == 0) {
        part.call = NULL;
        item.part = &part;
        for (part.item = 0; part.item <= part.items; part.item++) {
            int rc = dlp_tar_fetch(&t, &item);
            CHECK(part.item < part.items || rc != 0);
        }
    }
    free(part.data);
    free(s.bytes);
}

static void tar__bytes_that_are_made_up__no_read_outside(void) {
    static const dlp_field small[] = {{"bin", DLP_U8, 1, {4000}, 1, 0},
                                      {"cls", DLP_U8, 1, {4000}, 1, 0}};
    const dlp_tar_desc d = {.fields = small, .n_fields = 2, .optional = 1};
    const uint64_t runs = getenv("SOAK") ? 3000000 : RIG_ASAN ? 30000 : 60000;
    shard s = {NULL, 0};
    pax(&s, 'g', "16 comment=word\n");
    for (int i = 0; i < 3; i++) {
        char name[20];
        snprintf(name, sizeof name, "a%d.bin", i);
        if (i == 1) pax(&s, 'x', "12 path=b.c\n9 size=9\n");
        if (i == 2) add(&s, "L", 'L', "a/long/name.bin", 16);
        add(&s, name, '0', "some bytes", 10);
        name[2] = 0;
        strcat(name, ".cls");
        add(&s, name, '0', "7", 1);
    }
    end(&s);
    for (uint64_t seed = 0; seed < runs; seed++) fuzz_one(seed, &s, &d);
    free(s.bytes);
}

/* ---- descs ---- */

static int parse_nothing(void *user, void *state, dlp_item *item, const char *line, uint64_t n) {
    return user == state && item == NULL && line == NULL && n == 0;
}

static void tar__wrong_descs__refused_by_name(void) {
    static const char *const none[] = {NULL};
    dlp_tar_desc d = {.fields = fields, .n_fields = 1};
    refused(&d, DLP_ERR_ARG, "path");
    d.path = in_rig("nowhere.tar");
    refused(&d, DLP_ERR_SYSTEM, "/nowhere.tar: open: No such file");
    d.fields = NULL;
    refused(&d, DLP_ERR_ARG, "fields");
    d.fields = fields;
    d.n_fields = 17;
    refused(&d, DLP_ERR_ARG, "n_fields");
    d.n_fields = 1;
    d.optional = 2;
    refused(&d, DLP_ERR_ARG, "optional");
    d.optional = 0;
    d.insist = -1;
    refused(&d, DLP_ERR_ARG, "insist");
    d.insist = 0;
    d.extensions = none;
    refused(&d, DLP_ERR_ARG, "extensions");
    d.extensions = NULL;
    d.max_bytes = UINT64_MAX;
    refused(&d, DLP_ERR_ARG, "max_bytes");
    d.max_bytes = 0;
    d.threads = -1;
    refused(&d, DLP_ERR_ARG, "threads");
    d.threads = 0;
    d.parse = parse_nothing; /* a field of lines */
    refused(&d, DLP_ERR_ARG, "parse must be 0 or NULL for tar shards");
    d.parse = NULL;
    d.skip = 1;
    refused(&d, DLP_ERR_ARG, "skip must be 0 or NULL for tar shards");
    d.skip = 0;
    d.no_empty = 1;
    refused(&d, DLP_ERR_ARG, "no_empty must be 0 or NULL for tar shards");
    CHECK(dlp_tar_open(NULL, &d, NULL) == DLP_ERR_ARG && dlp_index_describe(NULL) == NULL);
}

int main(void) {
    int fds = rig_fds();
    rig_begin("tar");
    has_tar = system("tar --version 2>/dev/null | grep -q 'GNU tar'") == 0;
    if (has_tar) {
        tar__each_format_and_name_and_way__the_bytes_of_the_files();
        tar__a_decode__gets_key_and_members();
        tar__cut_at_each_block__an_error_that_names_it();
        tar__a_part_or_input_that_is_cut__its_name_in_the_error();
        tar__sparse_members__refused_in_words();
        tar__an_index__used_again_and_made_again();
        tar__an_index_that_is_made_up__errors_of_items();
    } else if (TEST_FORKS) {
        test_skip("there is no GNU tar");
    }
    tar__headers_by_hand__read_or_refused_in_words();
    tar__members_that_fit_no_field__errors_of_items();
    tar__archives_behind_each_other__all_samples();
    tar__a_key_that_comes_again__told();
    tar__members_that_are_no_files_of_a_sample__left_out_or_refused();
    tar__an_index_of_other_fields__a_link_is_still_refused();
    tar__bytes_that_are_made_up__no_read_outside();
    tar__wrong_descs__refused_by_name();
    CHECK(rig_fds() == fds);
    rig_end();
    return test_end("tar");
}
