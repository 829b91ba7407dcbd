/* needs: tokens */
/* Tokens out of shards: each format, width, stride and order gives the windows that a plain loop
   over the files gives; files that are none of the kind are refused by name and byte; states know
   their shards. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../../dlpipe_shm.h"
#include "../../rig/check.h"
#include "../../rig/source_rig.h"
#include "../../rig/tokens_loader.h"
#ifndef _WIN32
#include <glob.h>
#endif

enum { SHARDS = 5, MOST = 3000 };

/* The thread sanitizer has a thread of its own, which a fork would lose. */
#if defined(__SANITIZE_THREAD__)
#define MAY_FORK 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MAY_FORK 0
#endif
#endif
#ifndef MAY_FORK
#define MAY_FORK TEST_PROCESSES
#endif

static const uint32_t lengths[SHARDS] = {1000, 0, 2500, 17, 1234};
static uint32_t all[SHARDS][MOST]; /* what is in them */
static const char *shard_paths[SHARDS];
static char kept[SHARDS][200];

static void put32(uint8_t *to, uint32_t word) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(word >> 8 * i);
}

/* A shard of n tokens: `header` bytes, llm.c's if that is 1024. */
static size_t make_shard(uint8_t *to, const uint32_t *tokens, uint32_t n, size_t header, int wide) {
    memset(to, 0xee, header);
    if (header == 1024) {
        memset(to, 0, header);
        put32(to, wide ? 20240801 : 20240520);
        put32(to + 4, wide ? 7 : 1);
        put32(to + 8, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint8_t word[4];
        put32(word, tokens[i]);
        memcpy(to + header + i * (wide ? 4u : 2u), word, wide ? 4 : 2);
    }
    return header + n * (wide ? 4u : 2u);
}

static void make_shards(size_t header, int wide) {
    static uint8_t bytes[1024 + 4 * MOST];
    for (int s = 0; s < SHARDS; s++) {
        char name[32];
        for (uint32_t i = 0; i < MOST; i++) {
            uint32_t word = (uint32_t)dlp_hash(5, (uint64_t)s, i, 0);
            all[s][i] = wide ? word & 0x7fffffff : word & 0xffff;
        }
        snprintf(name, sizeof name, "shard_%d.bin", s);
        snprintf(kept[s], sizeof kept[s], "%s",
                 rig_write(name, bytes, make_shard(bytes, all[s], lengths[s], header, wide)));
        shard_paths[s] = kept[s];
    }
}

/* ---- what must come out ---- */

/* Token k of window w of the item, by the plain rule. Returns 0 if there is no such item. */
static int expected(const dlp_tokens_info *info, uint64_t item, uint64_t *shard, uint64_t *token) {
    for (uint64_t s = 0; s < SHARDS; s++) {
        uint64_t windows = 0, items;
        for (uint64_t at = 0; at + info->length + 1 <= lengths[s]; at += info->stride) windows++;
        items = windows / info->windows;
        if (item < items) {
            *shard = s;
            *token = item * info->windows * info->stride;
            return 1;
        }
        item -= items;
    }
    return 0;
}

static int row_is(const dlp_tokens_info *info, const dlp_batch *b, uint32_t row) {
    uint64_t shard, token, n = info->length + 1;
    if (!expected(info, b->index[row], &shard, &token)) return 0;
    for (uint64_t w = 0; w < info->windows; w++)
        for (uint64_t k = 0; k < n; k++) {
            uint64_t at = ((uint64_t)row * info->windows + w) * n + k;
            uint32_t is = info->dtype == DLP_U16 ? ((const uint16_t *)b->fields[0].data)[at]
                                                 : ((const uint32_t *)b->fields[0].data)[at];
            if (is != all[shard][token + w * info->stride + k]) return 0;
        }
    return 1;
}

static int batch_is(const dlp_tokens_info *info, const dlp_batch *b) {
    const dlp_tensor *t = &b->fields[0];
    int ok = b->n_fields == 1 && t->dtype == info->dtype &&
             t->ndim == (info->windows > 1 ? 3 : 2) && strcmp(t->name, "tokens") == 0 &&
             t->shape[t->ndim - 1] == (int64_t)info->length + 1;
    for (uint32_t row = 0; ok && row < b->count; row++) ok = row_is(info, b, row);
    return ok;
}

static dlp_source *must_open(const dlp_tokens_desc *desc) {
    dlp_source *t = NULL;
    dlp_error err;
    int rc = dlp_tokens_open(&t, desc, &err);
    if (rc != DLP_OK) printf("%s: %s\n", dlp_code_name(rc), err.message);
    CHECK(rc == DLP_OK);
    return t;
}

/* All batches are right, and each item comes once an epoch. */
static void check_pipe(const tokens_loader *desc) {
    dlp_source *t = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    dlp_error err = {0};
    uint64_t rows = 0, sum = 0, wrong = 0;
    int rc = tokens_loader_open(&p, &t, desc, &err);
    const dlp_tokens_info *info;
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) {
        printf("%s\n", err.message);
        return;
    }
    info = dlp_tokens_describe(t);
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        wrong += !batch_is(info, b);
        rows += b->count;
        for (uint32_t i = 0; i < b->count; i++) sum += b->index[i];
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_END && wrong == 0);
    CHECK(rows == info->n_items && sum == rows * (rows - 1) / 2);
    CHECK(dlp_source_close(t) == DLP_ERR_BUSY);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(t) == DLP_OK);
}

static void tokens__every_format__is_the_plain_loop(void) {
    static const struct {
        size_t header;
        int wide, format;
    } kinds[] = {{1024, 0, DLP_TOKENS_LLMC}, {1024, 1, DLP_TOKENS_LLMC}, {1024, 1, DLP_TOKENS_AUTO},
                 {0, 0, DLP_TOKENS_AUTO},    {0, 0, DLP_TOKENS_NANOGPT}, {7, 0, DLP_TOKENS_U16},
                 {5, 1, DLP_TOKENS_U32}};
    int before = rig_fds();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        make_shards(kinds[k].header, kinds[k].wide);
        for (int i = 0; i < 16; i++) {
            tokens_loader d = {
                .tokens = {.paths = shard_paths,
                           .n_paths = SHARDS,
                           .format = kinds[k].format,
                           .header_bytes = kinds[k].format >= DLP_TOKENS_U16 ? kinds[k].header : 0,
                           .length = i & 1 ? 64 : 19,
                           .stride = i & 2 ? 30 : 0,
                           .windows = i & 4 ? 3 : 0,
                           .widen = (int32_t)k % 2 ^ (i >> 1 & 1),
                           .reads = i >> 3 & 1},
                .loader = {.batch_size = 8, .num_workers = i % 3, .shuffle = i & 1, .seed = 3}};
            check_pipe(&d);
        }
    }
    CHECK(rig_fds() == before);
}

static void tokens__counts__windows_do_not_cross_shards(void) {
    const dlp_tokens_info *info;
    dlp_source *t;
    dlp_tokens_desc d = {.paths = shard_paths, .n_paths = SHARDS, .length = 100};
    static const uint64_t windows[SHARDS] = {9, 0, 24, 0, 12}, left[SHARDS] = {99, 0, 99, 17, 33};
    uint64_t first = 0;
    make_shards(1024, 0);
    t = must_open(&d);
    info = dlp_tokens_describe(t);
    CHECK(info->n_items == 45 && info->n_shards == SHARDS && info->tokens == 4751);
    CHECK(info->left_out == 99 + 99 + 17 + 33 && info->stride == 100 && info->windows == 1);
    CHECK(info->stored == DLP_U16 && info->dtype == DLP_U16);
    for (int s = 0; s < SHARDS; s++) {
        const dlp_tokens_shard *shard = &info->shards[s];
        CHECK(shard->items == windows[s] && shard->left_out == left[s] &&
              shard->first_item == first && shard->tokens == lengths[s] &&
              shard->header_bytes == 1024 && strcmp(shard->path, shard_paths[s]) == 0);
        first += windows[s];
    }
    CHECK(dlp_source_close(t) == DLP_OK);
    d.windows = 5; /* 1, 0, 4, 0, 2 */
    t = must_open(&d);
    info = dlp_tokens_describe(t);
    CHECK(info->n_items == 7 && info->shards[0].left_out == 1000 - 501 &&
          info->shards[2].left_out == 2500 - 2001 && info->shards[4].left_out == 1234 - 1001);
    CHECK(dlp_source_close(t) == DLP_OK);
    d.windows = 0;
    d.stride = 1000; /* one of 1000 tokens, 3 and 2 */
    t = must_open(&d);
    CHECK(dlp_tokens_describe(t)->n_items == 6);
    CHECK(dlp_tokens_describe(t)->shards[4].left_out == 1234 - 1101);
    CHECK(dlp_source_close(t) == DLP_OK);
    d.length = 999; /* exactly one window */
    t = must_open(&d);
    CHECK(dlp_tokens_describe(t)->shards[0].items == 1);
    CHECK(dlp_tokens_describe(t)->shards[0].left_out == 0);
    CHECK(dlp_source_close(t) == DLP_OK);
}

/* With the global batch's size as multiple no batch has items of two shards, on any rank. */
static void tokens__multiple__the_rest_of_each_shard_is_left_out(void) {
    static const uint64_t items[SHARDS] = {8, 0, 24, 0, 12};
    dlp_tokens_desc d = {.paths = shard_paths, .n_paths = SHARDS, .length = 100};
    const dlp_tokens_info *info;
    dlp_source *plain, *t;
    make_shards(1024, 0);
    plain = must_open(&d);
    d.multiple = 1;
    t = must_open(&d);
    CHECK(dlp_tokens_describe(t)->id == dlp_tokens_describe(plain)->id);
    CHECK(dlp_source_close(t) == DLP_OK);
    d.multiple = 4; /* of 9, 0, 24, 0 and 12 */
    t = must_open(&d);
    info = dlp_tokens_describe(t);
    CHECK(info->n_items == 44 && info->left_out == 99 + 100 + 99 + 17 + 33);
    for (int s = 0; s < SHARDS; s++)
        CHECK(info->shards[s].items == items[s] && info->shards[s].first_item % 4 == 0);
    CHECK(info->id != dlp_tokens_describe(plain)->id);
    CHECK(dlp_source_close(t) == DLP_OK && dlp_source_close(plain) == DLP_OK);
    for (uint32_t rank = 0; rank < 2; rank++) { /* the tokens of each batch lie in one shard */
        dlp_loader_desc l = {.batch_size = 4, .pipe = {.rank = rank, .world_size = 2}};
        dlp_pipe *p = NULL;
        dlp_batch *b;
        t = must_open(&d);
        l.source = t;
        info = dlp_tokens_describe(t);
        CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
        for (uint64_t n = 0; n < 11; n++) {
            int shard = 0;
            CHECK(dlp_pipe_next(p, &b) == DLP_OK && b->count == 2);
            while (4 * n >= info->shards[shard].first_item + info->shards[shard].items) shard++;
            for (int i = 0; i < 2; i++)
                CHECK(b->index[i] - info->shards[shard].first_item < info->shards[shard].items);
            dlp_pipe_release(p, b);
        }
        CHECK(dlp_pipe_next(p, &b) == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(t) == DLP_OK);
    }
}

static void tokens__pattern__in_the_order_of_bytes(void) {
    static const char *const names[] = {"g_B.bin", "g__.bin", "g_a.bin", "g_\xc3\xa4.bin"};
    const uint16_t tokens[16] = {0};
    dlp_source *t = NULL;
    dlp_error err;
    char pattern[200];
    dlp_tokens_desc d = {.pattern = pattern, .length = 4};
    for (int i = 3; i >= 0; i--) rig_write(names[i], tokens, sizeof tokens);
    snprintf(pattern, sizeof pattern, "%s/g_*.bin", rig_dir);
    t = must_open(&d);
    CHECK(dlp_tokens_describe(t)->n_shards == 4);
    for (int i = 0; i < 4; i++)
        CHECK(strstr(dlp_tokens_describe(t)->shards[i].path, names[i]) != NULL);
    CHECK(dlp_source_close(t) == DLP_OK);
    snprintf(pattern, sizeof pattern, "%s/none_*", rig_dir);
    CHECK(dlp_tokens_open(&t, &d, &err) == DLP_ERR_ARG && strcmp(err.field, "pattern") == 0);
    CHECK(rig_says(
        &err, (const char *const[]){
                  "none_*", "no file matches; check the pattern and the working directory", ""}));
}

#ifndef _WIN32 /* which has no glob(3) */
/* The shards that match are those that glob(3) finds. */
static void tokens__any_pattern__finds_what_glob_finds(void) {
    static const char *const files[] = {"g_B.bin", "g_a.bin", ".hidden", "a b[1]",  "x*y",
                                        "g_-.bin", "g_].bin", "sub/one", "sub/two", "sub/deep/one"};
    static const char *const patterns[] = {
        "*",         "g_*",        "*.bin",      "g_?.bin", "g_[a-z].bin", "g_[!a-z].bin",
        "g_[]].bin", "g_[^]].bin", "g_[a-].bin", "sub/*",   "*/one",       "*/*/one",
        "s?b//o*",   "sub/one",    "./sub/o*",   ".h*",     "[.]hidden",   "a b\\[1]",
        "a b[[]1]",  "x\\*y",      "x[*]y",      "*a*",     "g_[",         "**n",
        "sub/../g*", "none/*",     "g_a.bin/*",  "*/",      "sub/*/",      "g_[Aa-cB].bin"};
    const uint16_t tokens[16] = {0};
    char pattern[400];
    dlp_tokens_desc d = {.pattern = pattern, .length = 4};
    mkdir(in_rig("pat"), 0700);
    mkdir(in_rig("pat/sub"), 0700);
    mkdir(in_rig("pat/sub/deep"), 0700);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[40];
        snprintf(name, sizeof name, "pat/%s", files[i]);
        rig_write(name, tokens, sizeof tokens);
    }
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        dlp_source *t = NULL;
        dlp_error err;
        glob_t want;
        snprintf(pattern, sizeof pattern, "%s/pat/%s", rig_dir, patterns[i]);
        const int none = glob(pattern, GLOB_NOSORT, NULL, &want) != 0;
        const int rc = dlp_tokens_open(&t, &d, &err);
        uint64_t same = 0;
        for (size_t k = 0; !none && rc == DLP_OK && k < want.gl_pathc; k++)
            for (uint64_t n = 0; n < dlp_tokens_describe(t)->n_shards; n++)
                same += strcmp(want.gl_pathv[k], dlp_tokens_describe(t)->shards[n].path) == 0;
        const bool good = none ? rc == DLP_ERR_ARG && strstr(err.message, "no file matches") != NULL
                          : rc == DLP_OK
                              ? same == want.gl_pathc && dlp_tokens_describe(t)->n_shards == same
                              : strstr(err.message, "is a directory") != NULL;
        if (!good) printf("pattern %s: %s\n", patterns[i], rc == DLP_OK ? "" : err.message);
        CHECK(good);
        if (!none) globfree(&want);
        dlp_source_close(t);
    }
}
#endif

/* ---- what is refused ---- */

static void refused(const dlp_tokens_desc *d, int code, const char *const *words) {
    dlp_source *t = NULL;
    dlp_error err = {0};
    int before = rig_fds(), rc = dlp_tokens_open(&t, d, &err);
    if (rc != code) printf("%s: %s\n", dlp_code_name(rc), err.message);
    CHECK(rc == code && t == NULL && err.code == code && rig_says(&err, words));
    CHECK(dlp_tokens_open(&t, d, NULL) == code && t == NULL && rig_fds() == before);
}

static void refused_file(const char *name, int format, uint64_t header, int code,
                         const char *const *words) {
    const char *const paths[] = {kept[0], in_rig(name)};
    dlp_tokens_desc d = {.paths = paths + 1, .n_paths = 1, .format = format, .length = 10};
    d.header_bytes = header;
    refused(&d, code, words);
    d.reads = 1;
    refused(&d, code, words);
}

static void tokens__files_of_another_kind__are_refused(void) {
    static uint8_t b[2048];
    make_shards(1024, 0);
#define LLMC(name, code, ...) \
    refused_file(name, DLP_TOKENS_LLMC, 0, code, (const char *const[]){name, __VA_ARGS__, ""})
    make_shard(b, all[0], 100, 1024, 0);
    b[0] ^= 1;
    rig_write("magic", b, 1224);
    LLMC("magic", DLP_ERR_CORRUPT, "byte 0", "magic is 20240521");
    make_shard(b, all[0], 100, 1024, 0);
    put32(b + 4, 7);
    rig_write("version", b, 1224);
    LLMC("version", DLP_ERR_CORRUPT, "byte 4", "version is 7");
    make_shard(b, all[0], 100, 1024, 0);
    rig_write("short", b, 1222);
    LLMC("short", DLP_ERR_CORRUPT, "byte 8", "100 tokens want 1224 bytes, the file has 1222");
    rig_write("long", b, 1226);
    LLMC("long", DLP_ERR_CORRUPT, "byte 8", "1226");
    put32(b + 8, UINT32_MAX);
    rig_write("many", b, 1224);
    LLMC("many", DLP_ERR_CORRUPT, "byte 8", "4294967295 tokens want 8589935614 bytes");
    put32(b, 20240801);
    put32(b + 4, 7);
    put32(b + 8, 0x40000000); /* times 4 is 0 in 32 bits */
    rig_write("wraps", b, 1024);
    LLMC("wraps", DLP_ERR_CORRUPT, "byte 8", "4294968320 bytes, the file has 1024");
    rig_write("head", b, 1000);
    LLMC("head", DLP_ERR_CORRUPT, "byte 1000", "ends in its header of 1024");
    rig_write("empty", b, 0);
    LLMC("empty", DLP_ERR_CORRUPT, "byte 0", "ends in its header");
    LLMC("nowhere", DLP_ERR_SYSTEM, "open", "No such file");
    mkdir(in_rig("dir"), 0700);
    LLMC("dir", DLP_ERR_ARG, "is a directory");
#ifndef _WIN32 /* whose folders have no pipes */
    CHECK(mkfifo(in_rig("fifo"), 0600) == 0);
    LLMC("fifo", DLP_ERR_ARG, "is no regular file");
#endif
#define RAW(name, format, header, code, ...) \
    refused_file(name, format, header, code, (const char *const[]){name, __VA_ARGS__, ""})
    RAW("short", DLP_TOKENS_NANOGPT, 0, DLP_ERR_CORRUPT, "byte 0", "is llm.c (DLP_TOKENS_LLMC)");
    rig_write("odd", b + 8, 1001);
    RAW("odd", DLP_TOKENS_NANOGPT, 0, DLP_ERR_CORRUPT, "byte 1000", "ends in 1 bytes of a token");
    RAW("odd", DLP_TOKENS_AUTO, 0, DLP_ERR_CORRUPT, "byte 1000", "ends in 1 bytes");
    RAW("odd", DLP_TOKENS_U32, 2, DLP_ERR_CORRUPT, "byte 998", "ends in 3 bytes of a token of 4");
    RAW("odd", DLP_TOKENS_U16, 1002, DLP_ERR_CORRUPT, "byte 1001", "its header of 1002");
    RAW("odd", DLP_TOKENS_U16, UINT64_C(1) << 61, DLP_ERR_CORRUPT, "byte 1001", "its header of");
}

/* Files whose first bytes say that they are something else; header_bytes or insist take them. */
static void tokens__magic_of_another_format__is_refused(void) {
    static const struct {
        const char *magic, *words;
        size_t bytes;
    } kinds[] = {{"\x93NUMPY\x01", "NumPy", 7},
                 {"PK\x03\x04", "zip", 4},
                 {"\x1f\x8b\x08", "gzip", 3},
                 {"\x28\xb5\x2f\xfd", "zstd", 4},
                 {"\x89HDF\r\n", "HDF5", 6},
                 {"PAR1", "Parquet", 4},
                 {"MMIDIDX", "Megatron", 7},
                 {"\x8a\xd8\x34\x01\x01\0\0\0", "an evaluation set of llm.c", 8},
                 {"\xc6\xd7\x34\x01\x03\0\0\0", "a model of llm.c", 8},
                 {"\xc8\xd7\x34\x01\x01\0\0\0", "a tokenizer of llm.c", 8},
                 {"\x8f\xd8\x34\x01\x01\0\0\0", "a training state of llm.c", 8},
                 {"\x01\x34\xd8\x88\0\0\0\x01", "llm.c in the other byte order", 8},
                 {"\x01\x34\xd9\xa1\0\0\0\x07", "llm.c in the other byte order", 8},
                 {"BZh91AY&SY", "bzip2", 10},
                 {"\xfd\x37zXZ\0", "xz", 6},
                 {"SQLite format 3\0", "SQLite", 16},
                 {"version https://git-lfs.github.com/spec/v1\noid sha256:", "git LFS", 54},
                 {"<?xml version='1.0'?><Error><Code>AccessDenied<", "the error of a server", 47}};
    static uint8_t b[128 + 2 * 100];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int format = DLP_TOKENS_AUTO; format <= DLP_TOKENS_U32; format++) {
            const char *const path = in_rig("other");
            dlp_tokens_desc d = {.paths = &path, .n_paths = 1, .format = format, .length = 10};
            dlp_source *t;
            make_shard(b, all[0], 100, 128, 0);
            memcpy(b, kinds[k].magic, kinds[k].bytes);
            rig_write("other", b, sizeof b);
            refused(&d, DLP_ERR_CORRUPT,
                    (const char *const[]){"other", "byte 0", kinds[k].words, "insist", ""});
            d.insist = 1;
            if (format == DLP_TOKENS_LLMC)
                refused(&d, DLP_ERR_CORRUPT, (const char *const[]){"other", "byte ", ""});
            else
                CHECK((t = must_open(&d)) != NULL && dlp_source_close(t) == DLP_OK);
            d.insist = 0;
            if (format < DLP_TOKENS_U16) continue;
            d.header_bytes = 128;
            CHECK((t = must_open(&d)) != NULL && dlp_source_close(t) == DLP_OK);
        }
}

/* Ids of 32 bits that begin like a mark of UTF-16 or UTF-32, or like a length and JSON. */
static void tokens__ids_that_begin_like_another_format__are_taken(void) {
    static const uint32_t firsts[][3] = {
        {65279, 7, 7}, {130815, 7, 7}, {65534, 7, 7}, {300, 0, 8827}, {300, 0, 32123}};
    static const char page[] = "\xff\xfe<\0p\0>\0t\0e\0x\0t\0 \0t\0e\0x\0t\0 \0\n\0";
    static uint8_t b[4000];
    const char *const path = in_rig("ids");
    dlp_tokens_desc d = {.paths = &path, .n_paths = 1, .format = DLP_TOKENS_U32, .length = 10};
    dlp_source *t;
    for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++)
        for (uint32_t most = 1000; most < 200000; most *= 5) { /* small ids have more zeros */
            for (uint32_t i = 0; i < sizeof b / 4; i++)
                put32(b + 4 * i, i < 3 ? firsts[k][i] : (uint32_t)(dlp_hash(k, i, 0, 0) % most));
            rig_write("ids", b, sizeof b);
            if ((t = must_open(&d)) != NULL) CHECK(dlp_source_close(t) == DLP_OK);
        }
    rig_write("ids", page, sizeof page - 1); /* text, indeed */
    refused(&d, DLP_ERR_CORRUPT, (const char *const[]){"ids", "is UTF-16", ""});
}

enum {
    TOKENS16,
    TOKENS32,
    TOKENS64,
    LARGE32,
    BIG32,
    BIG16,
    BIG_FEW16,
    FEW16,
    PADDED16,
    ZEROS,
    TEXT,
    CHINESE,
    CONTENTS
};

/* 4,000 bytes of something. */
static void contents(int what, uint8_t *b) {
    static const char *const texts[] = {"To be, or not to be:\n\tthat is the question. ",
                                        "\xe5\xad\xa6\xe8\x80\x8c\xe6\x97\xb6\xe4\xb9\xa0\n"};
    uint64_t each = what == TOKENS64                                       ? 8
                    : what == TOKENS32 || what == LARGE32 || what == BIG32 ? 4
                                                                           : 2;
    memset(b, 0, 4000);
    for (uint64_t i = 0; i < 4000 / each; i++) {
        const int few = what == FEW16 || what == BIG_FEW16;
        const int big = what == BIG32 || what == BIG16 || what == BIG_FEW16;
        uint64_t id = dlp_hash(6, i, 0, 0) % (what == LARGE32 ? 151936 : few ? 4 : 50257);
        if ((what == PADDED16 && i > 20) || what == ZEROS) id = 0;
        for (uint64_t k = 0; k < each; k++)
            b[i * each + (big ? each - 1 - k : k)] = (uint8_t)(id >> 8 * k);
    }
    for (size_t i = 0; what >= TEXT && i < 4000; i++)
        b[i] = (uint8_t)texts[what - TEXT][i % strlen(texts[what - TEXT])];
}

static void keep_warning(void *user, const char *message) {
    char *told = user;
    if (strstr(message, "tokens: ") != NULL) strcat(strcat(told, message), "\n");
}

/* Warnings of a pipe of the second of two shards that hold this: in words, and in no words. */
static void warned_of(int what, int format, uint64_t header, const char *words) {
    static uint8_t b[4096];
    char told[1000] = "", good[200];
    const char *paths[] = {good, in_rig("doubtful")};
    tokens_loader d = {
        .tokens = {.paths = paths, .n_paths = 2, .format = format, .header_bytes = header},
        .loader = {.batch_size = 8, .pipe = {.log = keep_warning, .log_user = told}}};
    contents(format == DLP_TOKENS_U32 ? TOKENS32 : TOKENS16, b + header);
    snprintf(good, sizeof good, "%s", rig_write("good", b, header + 4000));
    contents(what, b + header);
    rig_write("doubtful", b, header + 4000);
    d.tokens.length = 10;
    for (int insist = 0; insist < 2; insist++)
        for (int reads = 0; reads < 2; reads++) {
            dlp_source *t = NULL;
            dlp_pipe *p = NULL;
            int wanted = words != NULL && !insist;
            d.tokens.insist = insist;
            d.tokens.reads = reads;
            told[0] = 0;
            CHECK(tokens_loader_open(&p, &t, &d, NULL) == DLP_OK);
            CHECK((dlp_tokens_describe(t)->warning != NULL) == wanted && (told[0] != 0) == wanted);
            if ((told[0] != 0) != wanted || (wanted && !strstr(told, words)))
                printf("contents %d as format %d: %s", what, format, told[0] ? told : "nothing\n");
            if (wanted)
                CHECK(strstr(told, words) && strstr(told, "doubtful") && strlen(told) < 160);
            CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(t) == DLP_OK);
        }
}

static void tokens__contents_of_another_kind__a_warning_unless_told_to_insist(void) {
    static const char *const as16[CONTENTS] = {[TOKENS32] = "32-bit",  [TOKENS64] = "32-bit",
                                               [LARGE32] = "32-bit",   [BIG32] = "32-bit",
                                               [TEXT] = "text",        [CHINESE] = "text",
                                               [BIG16] = "byte order", [BIG_FEW16] = "byte order",
                                               [ZEROS] = "all 0"};
    static const char *const as32[CONTENTS] = {
        [TOKENS16] = "16-bit", [TOKENS64] = "64-bit", [BIG32] = "big-endian or 16-bit",
        [BIG16] = "16-bit",    [ZEROS] = "all 0",     [TEXT] = "text",
        [CHINESE] = "text"};
    for (int what = 0; what < CONTENTS; what++) {
        warned_of(what, DLP_TOKENS_AUTO, 0, as16[what]);
        warned_of(what, DLP_TOKENS_NANOGPT, 0, as16[what]);
        warned_of(what, DLP_TOKENS_U16, 10, as16[what]);
        if (what != FEW16 && what != BIG_FEW16 && what != PADDED16)
            warned_of(what, DLP_TOKENS_U32, 12, as32[what]);
    }
}

/* A shard whose end was not written, with a header that is well; and one without tokens. */
static void tokens__zeros_at_the_end__a_warning(void) {
    static uint8_t b[1024 + 2 * 100000];
    const char *const path = in_rig("preallocated");
    dlp_tokens_desc d = {.paths = &path, .n_paths = 1, .length = 10};
    const char *const both[] = {path, in_rig("none")};
    dlp_source *t;
    for (uint64_t begun = 0; begun <= 100000; begun += 50000) {
        make_shard(b, all[0], 100, 1024, 0);
        put32(b + 8, 100000);
        for (size_t i = 1024; i < sizeof b; i++)
            b[i] = i < 1024 + 2 * begun ? (uint8_t)dlp_hash(3, i, 0, 0) : 0;
        rig_write("preallocated", b, sizeof b);
        for (d.insist = 0; d.insist < 2; d.insist++) {
            const char *told;
            if ((t = must_open(&d)) == NULL) continue;
            told = dlp_tokens_describe(t)->warning;
            if (d.insist || begun == 100000)
                CHECK(told == NULL);
            else
                CHECK(told &&
                      strstr(told, begun ? "last 64 KiB are zeros" : "first ids are all 0"));
            CHECK(dlp_source_close(t) == DLP_OK);
        }
    }
    rig_write("preallocated", b + 1024, 4000);
    rig_write("none", b, 0);
    d = (dlp_tokens_desc){.paths = both, .n_paths = 2, .length = 10};
    if ((t = must_open(&d)) == NULL) return;
    CHECK(strstr(dlp_tokens_describe(t)->warning, "/none: it has no tokens") != NULL);
    CHECK(dlp_source_close(t) == DLP_OK);
}

/* What is wired by hand has its warning, too, and so has each stage of a join. */
static void tokens__wired_by_hand__warns_all_the_same(void) {
    static uint8_t b[4000];
    char told[1000] = "";
    const char *path = in_rig("text");
    dlp_tokens_desc d = {.paths = &path, .n_paths = 1, .length = 10};
    dlp_loader_desc loader = {.batch_size = 8, .pipe = {.log = keep_warning, .log_user = told}};
    dlp_source *t;
    dlp_pipe *p = NULL;
    contents(TEXT, b);
    rig_write("text", b, sizeof b);
    if ((t = must_open(&d)) == NULL) return;
    source_items(t, &loader.dataset, &loader.workers);
    loader.sampler.function_id = t->id;
    CHECK(dlp_loader_open(&p, &loader, NULL) == DLP_OK);
    CHECK(strstr(told, "text") != NULL && dlp_pipe_warning(p, 0) != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(t) == DLP_OK);
}

static void tokens__shards_that_differ__are_refused(void) {
    static uint8_t b[2048];
    const char *const paths[] = {kept[0], in_rig("wide")};
    dlp_tokens_desc d = {.paths = paths, .n_paths = 2, .length = 10};
    make_shards(1024, 0);
    rig_write("wide", b, make_shard(b, all[0], 100, 1024, 1));
    refused(&d, DLP_ERR_CORRUPT,
            (const char *const[]){"wide", "byte 0", "tokens of 4 bytes", "have 2", ""});
    rig_write("wide", b, 1001); /* AUTO goes by the first */
    refused(&d, DLP_ERR_CORRUPT, (const char *const[]){"wide", "byte 1001", "header", ""});
}

static void tokens__descs_out_of_range__name_their_field(void) {
    static const char *const none[] = {NULL};
    const dlp_tokens_desc good = {.paths = shard_paths, .n_paths = SHARDS, .length = 10};
    dlp_tokens_desc d;
    make_shards(1024, 0);
#define WRONG(field_, ...) \
    d = good; \
    __VA_ARGS__; \
    refused(&d, DLP_ERR_ARG, (const char *const[]){field_, ""})
    WRONG("pattern", d.pattern = "x");
    WRONG("pattern", d.paths = none[0] ? none : NULL);
    WRONG("n_paths", d.n_paths = 0);
    WRONG("n_paths", d.n_paths = (1 << 20) + 1);
    WRONG("n_paths", d.paths = NULL; d.pattern = "x"; d.n_paths = 1);
    WRONG("format", d.format = 5);
    WRONG("format", d.format = -1);
    WRONG("windows", d.windows = (1 << 20) + 1);
    WRONG("header_bytes", d.header_bytes = 1);
    WRONG("header_bytes", d.format = DLP_TOKENS_U16; d.header_bytes = UINT64_MAX);
    WRONG("length", d.length = 0);
    WRONG("length", d.length = UINT64_MAX);
    WRONG("stride", d.stride = UINT64_MAX);
    WRONG("widen", d.widen = 2);
    WRONG("reads", d.reads = -1);
    WRONG("insist", d.insist = 2);
    WRONG("multiple", d.multiple = (1 << 20) + 1);
    WRONG("none has 'multiple' items of 1 windows", d.multiple = 1000);
    WRONG("read_ahead", d.read_ahead = -2);
    WRONG("5 shards have 4751 tokens, and none has one item of 1 windows of 2501", d.length = 2500);
    WRONG("none has one item of 1048576 windows", d.windows = 1 << 20);
    d = good;
    d.length = UINT64_C(1) << 30; /* no sum of it comes round */
    d.stride = UINT64_C(1) << 48;
    refused(&d, DLP_ERR_ARG, (const char *const[]){"none has one item", ""});
    CHECK(dlp_tokens_open(NULL, &good, NULL) == DLP_ERR_ARG);
    CHECK(dlp_source_close(NULL) == DLP_OK);
}

static void cannot_be_read(void) {
    char pattern[200];
    dlp_tokens_desc d = {.pattern = pattern, .length = 10};
    snprintf(pattern, sizeof pattern, "%s/shard_*", rig_dir);
    refused(&d, DLP_ERR_SYSTEM, (const char *const[]){"shard_0.bin", "open: Permission", ""});
    snprintf(pattern, sizeof pattern, "%s/closed/*", rig_dir);
    refused(&d, DLP_ERR_SYSTEM, (const char *const[]){"closed", "opendir: Permission", ""});
}

static void tokens__unreadable__is_refused(void) {
    make_shards(1024, 0);
    chmod(shard_paths[0], 0);
    mkdir(in_rig("closed"), 0700);
    chmod(in_rig("closed"), 0);
    chmod(rig_dir, 0755);
    rig_as_nobody(cannot_be_read);
    chmod(shard_paths[0], 0600);
    chmod(in_rig("closed"), 0700);
}

static void tokens__loader_that_fails__leaves_nothing(void) {
    tokens_loader d = {.tokens = {.paths = shard_paths, .n_paths = SHARDS, .length = 10}};
    dlp_source *t = NULL;
    dlp_pipe *p = NULL;
    dlp_error err;
    int before = rig_fds();
    make_shards(1024, 0);
    CHECK(tokens_loader_open(&p, &t, &d, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "batch_size") == 0 && p == NULL && t == NULL && rig_fds() == before);
    d.loader.batch_size = UINT32_MAX;
    CHECK(tokens_loader_open(&p, &t, &d, &err) == DLP_ERR_ARG && rig_fds() == before);
    CHECK(dlp_tokens_open(NULL, &d.tokens, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "out") == 0);
}

/* ---- a shard that is cut while a pipe runs ---- */

static void cut_shard(int reads, int placement) {
    tokens_loader d = {
        .tokens = {.paths = shard_paths, .n_paths = SHARDS, .length = 100, .reads = reads},
        .loader = {.batch_size = 4, .num_workers = placement, .workers = {.placement = placement}}};
    const struct timespec ticks = {0, 30 * 1000000};
    dlp_source *t = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    int rc;
    make_shards(1024, 0);
    CHECK(tokens_loader_open(&p, &t, &d, NULL) == DLP_OK);
    if (p == NULL) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
#ifdef _WIN32 /* which cuts no mapped file */
    if (!reads) {
        CHECK(truncate(shard_paths[2], 0) != 0);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(t) == DLP_OK);
        return;
    }
#endif
    CHECK(truncate(shard_paths[2], reads ? 1024 + 200 * 20 : 0) == 0);
    nanosleep(&ticks, NULL);
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(rc == DLP_ERR_CALLBACK);
    if (reads) /* window 19 of it wants tokens 1900 to 2000 of 2000 */
        CHECK(dlp_pipe_error(p)->index == 28 &&
              rig_says(dlp_pipe_error(p),
                       (const char *const[]){"shard_2.bin", "ended at byte 5024", "6024", ""}));
    else /* workers may be a few windows into it: a worker process that is killed is told, too */
        CHECK(rig_says(dlp_pipe_error(p),
                       (const char *const[]){"shard_2.bin", "was cut to 0 bytes", "6024", ""}));
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(t) == DLP_OK);
}

static void tokens__cut_since_it_was_opened__is_an_error_that_names_it(void) {
    for (int reads = 0; reads < 2; reads++)
        for (int placement = 0; placement <= MAY_FORK; placement++) cut_shard(reads, placement);
}

/* ---- order, ranks, states ---- */

static const tokens_loader shuffled = {
    .tokens = {.paths = shard_paths, .n_paths = SHARDS, .length = 20},
    .loader = {.batch_size = 8, .shuffle = 1, .seed = 9, .epochs = 2}};

static void tokens__shuffle__is_over_all_shards(void) {
    dlp_permutation order;
    dlp_source *t = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    uint64_t wrong = 0;
    make_shards(1024, 0);
    CHECK(tokens_loader_open(&p, &t, &shuffled, NULL) == DLP_OK);
    for (int rc; (rc = dlp_pipe_next(p, &b)) == DLP_OK; dlp_pipe_release(p, b)) {
        dlp_permutation_init(&order, dlp_tokens_describe(t)->n_items, 9, b->epoch);
        for (uint32_t i = 0; i < b->count; i++)
            wrong += b->index[i] != dlp_permutation_at(&order, b->position + i);
        wrong += !batch_is(dlp_tokens_describe(t), b);
    }
    CHECK(wrong == 0 && dlp_pipe_close(p) == DLP_OK && dlp_source_close(t) == DLP_OK);
}

/* Hash of the batches [from, to) of a run as `world` ranks see them, and the state behind each. */
static uint64_t run(const tokens_loader *from, uint32_t world, int batches, dlp_state *state) {
    dlp_pipe *p[4] = {NULL};
    dlp_source *t[4] = {NULL};
    uint64_t hash = 7;
    for (uint32_t r = 0; r < world; r++) {
        tokens_loader d = *from;
        d.loader.pipe.rank = r;
        d.loader.pipe.world_size = world;
        d.loader.num_workers = (int32_t)world - 1;
        CHECK(tokens_loader_open(&p[r], &t[r], &d, NULL) == DLP_OK);
        if (p[r] == NULL) return 0;
    }
    for (int rc = DLP_OK; rc == DLP_OK && batches != 0; batches--)
        for (uint32_t r = 0; r < world; r++) {
            dlp_batch *b = NULL;
            if ((rc = dlp_pipe_next(p[r], &b)) != DLP_OK) continue;
            for (uint32_t i = 0; i < b->count; i++)
                hash = dlp_hash(hash, b->index[i], b->epoch,
                                ((const uint16_t *)b->fields[0].data)[21 * i + 20]);
            CHECK(batch_is(dlp_tokens_describe(t[r]), b));
            if (state) CHECK(dlp_pipe_state(p[r], b, state) == DLP_OK);
            dlp_pipe_release(p[r], b);
        }
    for (uint32_t r = 0; r < world; r++)
        CHECK(dlp_pipe_close(p[r]) == DLP_OK && dlp_source_close(t[r]) == DLP_OK);
    return hash;
}

static void tokens__resume__with_other_ranks(void) {
    dlp_state state;
    tokens_loader d = shuffled;
    uint64_t whole[5], head;
    make_shards(1024, 0);
    whole[1] = run(&d, 1, -1, NULL);
    CHECK(run(&d, 2, -1, NULL) == whole[1] && run(&d, 4, -1, NULL) == whole[1]);
    head = run(&d, 1, 40, &state);
    CHECK(head != whole[1]);
    d.loader.pipe.resume = &state;
    for (uint32_t world = 1; world <= 4; world *= 2) whole[world] = run(&d, world, -1, NULL);
    CHECK(whole[1] == whole[2] && whole[2] == whole[4] && whole[1] != head);
}

static void resume_refused(tokens_loader d, const dlp_state *state, const char *field) {
    dlp_source *t = NULL;
    dlp_pipe *p = NULL;
    dlp_error err = {0};
    d.loader.pipe.resume = state;
    CHECK(tokens_loader_open(&p, &t, &d, &err) == DLP_ERR_RESUME);
    CHECK(strncmp(err.field, field, strlen(field)) == 0 && p == NULL && t == NULL);
}

static void tokens__state_of_other_shards__is_refused(void) {
    static uint8_t bytes[1024 + 2 * MOST];
    static const char *other[SHARDS];
    dlp_state state;
    tokens_loader d = shuffled;
    make_shards(1024, 0);
    run(&d, 1, 3, &state);
    d.tokens.widen = 1; /* is the same data */
    d.tokens.reads = 1;
    d.loader.pipe.resume = &state;
    run(&d, 1, 1, NULL);
    d = shuffled;
    d.tokens.n_paths--;
    resume_refused(d, &state, "n_items");
    /* As many items, in other places. */
    d = shuffled;
    for (int s = 0; s < SHARDS; s++) other[s] = kept[SHARDS - 1 - s];
    d.tokens.paths = other;
    resume_refused(d, &state, "source.order");
    rig_write("shard_3.bin", bytes, make_shard(bytes, all[3], 18, 1024, 0));
    resume_refused(shuffled, &state, "source.sizes");
}

/* ---- read-ahead ---- */

#ifndef _WIN32 /* which tells no program what of a file is in memory */
static int is_in_memory(const char *path, uint64_t at, uint64_t n) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = at / page * page;
    size_t bytes = (size_t)(at + n - from);
    unsigned char here[1024] = {0};
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)from);
    int all_here = map != MAP_FAILED && mincore(map, bytes, here) == 0;
    for (size_t i = 0; i < (bytes + page - 1) / page; i++) all_here &= here[i] & 1;
    if (map != MAP_FAILED) munmap(map, bytes);
    close(fd);
    return all_here;
}

static int evict(const char *path, uint64_t bytes) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fsync(fd) == 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return !is_in_memory(path, bytes / 2, 1);
}

enum { BIG = 16 << 20, WINDOW = 4 * 4096 - 1 };

/* Fetch `items` items of a file that is not in memory. Returns how many of `later` items after them
   are there afterwards; -1: the file stays in memory. A busy machine reads late, so it waits until
   `wanted` are there, 3 s at most. */
static int read_ahead(const char *path, int shuffle, int ahead, uint64_t items, uint64_t later,
                      int wanted) {
    dlp_tokens_desc desc = {.paths = &path, .n_paths = 1, .length = WINDOW, .read_ahead = ahead};
    dlp_source *t = must_open(&desc);
    dlp_dataset dataset = {0};
    dlp_workers_desc workers = {0};
    dlp_permutation order;
    static uint16_t row[WINDOW + 1];
    void *data[1] = {row};
    const struct timespec wait = {0, 300 * 1000000};
    int there = 0;
    source_items(t, &dataset, &workers);
    dlp_permutation_init(&order, dataset.n_items, 1, 0);
    if (!evict(path, BIG)) there = -1;
    for (uint64_t i = 0; i < items && there == 0; i++) {
        dlp_item it = {.position = i, .seed = 1, .data = data};
        it.index = shuffle ? dlp_permutation_at(&order, i) : i;
        CHECK(dataset.fetch(dataset.user, &it) == 0);
    }
    for (int tries = 0; tries < 10 && there >= 0 && (tries == 0 || there < wanted); tries++) {
        nanosleep(&wait, NULL);
        there = 0;
        for (uint64_t i = items; i < items + later; i++) {
            uint64_t index = shuffle ? dlp_permutation_at(&order, i) : i;
            there += is_in_memory(path, index * WINDOW * 2, WINDOW * 2);
        }
    }
    CHECK(dlp_source_close(t) == DLP_OK);
    return there;
}

/* A machine that wants memory drops pages that were read ahead: then it is done again. */
static int read_ahead_well(const char *path, int shuffle, int ahead, uint64_t items, uint64_t later,
                           int wanted) {
    int there = 0;
    for (int tries = 0; tries < 5 && there >= 0 && there < wanted; tries++)
        there = read_ahead(path, shuffle, ahead, items, later, wanted);
    return there;
}

static void tokens__cold_shard__is_read_ahead(void) {
    static uint8_t bytes[BIG];
    const char *path = rig_write("cold.bin", bytes, sizeof bytes);
    char name[200];
    int there;
    snprintf(name, sizeof name, "%s", path);
    if (!evict(name, BIG)) {
        test_skip("files cannot be put out of memory here");
        return;
    }
    /* In order the kernel reads ahead by itself, too, and how far is the disk's setting. */
    there = read_ahead_well(name, 0, 0, 1, 30, 28);
    CHECK(there < 0 || there >= 28); /* 1 MiB is 32 windows */
    there = read_ahead_well(name, 1, 64, 128, 64, 48);
    CHECK(there < 0 || there >= 48);
    there = read_ahead(name, 1, DLP_NONE, 128, 64, 0);
    CHECK(there < 48); /* it is the read-ahead that did it */
}
#endif

/* ---- documents ---- */

static void tokens__documents__where_they_begin(void) {
    static const uint16_t narrow[8] = {7, 1, 2, 7, 3, 7, 7, 4};
    static const uint32_t wide[8] = {7, 1, 2, 7, 3, 7, 7, 4};
    int32_t s[9];
    for (int k = 0; k < 3; k++) {
        const void *row = k ? (const void *)wide : narrow;
        dlp_dtype type = k == 0 ? DLP_U16 : k == 1 ? DLP_U32 : DLP_I32;
        memset(s, -1, sizeof s);
        CHECK(dlp_tokens_documents(row, type, 8, 7, DLP_EOT_BEGINS, s, 9) == 4);
        CHECK(s[0] == 0 && s[1] == 3 && s[2] == 5 && s[3] == 6 && s[4] == 8 && s[5] == -1);
        CHECK(dlp_tokens_documents(row, type, 7, 7, DLP_EOT_ENDS, s, 9) == 4);
        CHECK(s[0] == 0 && s[1] == 1 && s[2] == 4 && s[3] == 6 && s[4] == 7 && s[5] == -1);
        CHECK(dlp_tokens_documents(row, type, 8, 9, DLP_EOT_ENDS, s, 9) == 1 && s[1] == 8);
        CHECK(dlp_tokens_documents(row, type, 1, 7, DLP_EOT_ENDS, s, 9) == 1 && s[1] == 1);
        memset(s, -1, sizeof s);
        CHECK(dlp_tokens_documents(row, type, 8, 7, DLP_EOT_BEGINS, s, 2) == 4);
        CHECK(s[0] == 0 && s[1] == 3 && s[2] == -1);
        CHECK(dlp_tokens_documents(row, type, 8, 7, DLP_EOT_BEGINS, NULL, 0) == 4);
    }
    CHECK(dlp_tokens_documents(narrow, DLP_U8, 8, 7, 0, s, 9) == 0);
    CHECK(dlp_tokens_documents(narrow, DLP_U16, 0, 7, 0, s, 9) == 0);
}

int main(void) {
    rig_begin("tokens");
    tokens__every_format__is_the_plain_loop();
    tokens__counts__windows_do_not_cross_shards();
    tokens__multiple__the_rest_of_each_shard_is_left_out();
    tokens__pattern__in_the_order_of_bytes();
#ifndef _WIN32
    tokens__any_pattern__finds_what_glob_finds();
#endif
    tokens__files_of_another_kind__are_refused();
    tokens__magic_of_another_format__is_refused();
    tokens__ids_that_begin_like_another_format__are_taken();
    tokens__contents_of_another_kind__a_warning_unless_told_to_insist();
    tokens__zeros_at_the_end__a_warning();
    tokens__wired_by_hand__warns_all_the_same();
    tokens__shards_that_differ__are_refused();
    tokens__descs_out_of_range__name_their_field();
    tokens__unreadable__is_refused();
    tokens__loader_that_fails__leaves_nothing();
    tokens__cut_since_it_was_opened__is_an_error_that_names_it();
    tokens__shuffle__is_over_all_shards();
    tokens__resume__with_other_ranks();
    tokens__state_of_other_shards__is_refused();
#ifndef _WIN32
    tokens__cold_shard__is_read_ahead();
#endif
    tokens__documents__where_they_begin();
    rig_end();
    return test_end("tokens");
}
