/* needs: parts tokens arrays files lines split */
/* What a state knows of its data: it is not resumed with other files, with files in another order,
   of other sizes or of other bytes, and the error says which. What may change may change. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/array_views.h"
#include "../../rig/check.h"
#include "../../rig/inside.h"
#include "../../rig/source_rig.h"
#include <stdlib.h>
#include <string.h>

enum { TOKENS, LLMC, LINES, TAR, NPY, CIFAR, CHUNKS, FILES, PARTS, TAR_PARTS, KINDS };
enum { SHARDS = 4, ITEMS = 16, ROOM = 1 << 16 };

static const char *const kind_names[KINDS] = {"tokens", "llm.c",  "lines", "tar",   "npy",
                                              "cifar",  "chunks", "files", "parts", "tar parts"};

/* ---- files of one size, whose bytes follow from `base` ---- */

static size_t tar_of(uint8_t *b, int base) {
    size_t n = 0;
    for (int i = 0; i < ITEMS; i++, n += 1024) {
        uint8_t *h = b + n;
        uint32_t sum = 0;
        memset(h, 0, 1024);
        snprintf((char *)h, 100, "%04d.txt", i);
        memcpy(h + 100, "0000644", 7);
        memcpy(h + 124, "00000000010", 11);
        memcpy(h + 148, "        ", 8);
        h[156] = '0';
        memcpy(h + 257, "ustar\00000", 8);
        for (int k = 0; k < 512; k++) sum += h[k];
        snprintf((char *)h + 148, 8, "%06o", sum);
        snprintf((char *)h + 512, 9, "%08d", base + i);
    }
    memset(b + n, 0, 1024);
    return n + 1024;
}

/* Return the bytes of a shard of a kind. */
static size_t shard_of(int kind, int base, uint8_t *b) {
    static const char head[] = "\x93NUMPY\x01\x00\x46\x00{'descr': '|u1', 'fortran_order': False, "
                               "'shape': (16,), }";
    size_t n = 0;
    switch (kind) {
    case LLMC: {
        int32_t h[256] = {20240520, 1, ITEMS * 8 + 1};
        memcpy(b, h, n = sizeof h);
    } /* fall through */
    case TOKENS:
        for (int i = 0; i <= ITEMS * 8; i++, n += 2) {
            const uint16_t t = (uint16_t)(base * 7 + i % 30 + 20);
            memcpy(b + n, &t, 2);
        }
        return n;
    case LINES:
        for (int i = 0; i < ITEMS; i++) n += (size_t)sprintf((char *)b + n, "%08d\n", base + i);
        return n;
    case TAR:
    case TAR_PARTS: return tar_of(b, base);
    case NPY:
    case CHUNKS:
        memset(b, ' ', 80);
        memcpy(b, head, sizeof head - 1);
        b[79] = '\n';
        for (int i = 0; i < ITEMS; i++) b[80 + i] = (uint8_t)(base + i);
        return 80 + ITEMS;
    case CIFAR:
        for (n = 0; n < ITEMS * 3073; n++) b[n] = (uint8_t)((size_t)base + n / 3073);
        return n;
    default: return (size_t)sprintf((char *)b, "%08d", base);
    }
}

static const char *folder_ = "a";

static void write_shard(int kind, const char *name, int base) {
    static uint8_t bytes[ROOM];
    char path[100];
    snprintf(path, sizeof path, "%s/%s", folder_, name);
    rig_write(path, bytes, shard_of(kind, base, bytes));
}

/* ---- a pipe of files ---- */

typedef struct opened {
    dlp_source *source; /* or NULL */
    dlp_pipe *p;
    dlp_error err;
    const char *paths[SHARDS];
    dlp_part_file file[SHARDS];
    dlp_part_files files;
    dlp_tar_parts tar;
    dlp_tar_desc tar_desc;
} opened;

static const dlp_field text_ = {.name = "txt", .dtype = DLP_U8, .ndim = 1, .shape = {8}};

static int part_fetch(void *user, dlp_item *it) {
    (void)user;
    memcpy(it->data[0], it->part->data, 8);
    return 0;
}

static int zeros_fetch(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 0, 8);
    return 0;
}

/* Open the source of a kind. */
static void open_source(opened *o, int kind, int32_t moved) {
    const dlp_array_column column = {.name = kind == CIFAR ? NULL : "x",
                                     .paths = o->paths,
                                     .n_paths = SHARDS,
                                     .format = kind == CIFAR ? DLP_ARRAY_CIFAR10 : 0};
    int rc = DLP_OK;
    o->tar_desc =
        (dlp_tar_desc){.paths = o->paths, .n_paths = SHARDS, .fields = &text_, .n_fields = 1};
    if (kind == TOKENS || kind == LLMC) {
        const dlp_tokens_desc d = {.paths = o->paths,
                                   .n_paths = SHARDS,
                                   .length = 8,
                                   .insist = 1,
                                   .moved = moved,
                                   .format = kind == LLMC ? DLP_TOKENS_LLMC : DLP_TOKENS_U16};
        rc = dlp_tokens_open(&o->source, &d, &o->err);
    } else if (kind == LINES) {
        const dlp_lines_desc d = {
            .paths = o->paths, .n_paths = SHARDS, .index = "", .moved = moved};
        rc = dlp_lines_open(&o->source, &d, &o->err);
    } else if (kind == TAR) {
        dlp_tar_desc d = o->tar_desc;
        d.index = "";
        d.moved = moved;
        rc = dlp_tar_open(&o->source, &d, &o->err);
    } else if (kind == NPY || kind == CIFAR) {
        const dlp_arrays_desc d = {.columns = &column, .n_columns = 1, .moved = moved};
        rc = dlp_arrays_open(&o->source, &d, &o->err);
    } else if (kind == FILES) {
        const dlp_files_desc d = {
            .n_items = SHARDS, .paths = o->paths, .fields = &text_, .n_fields = 1, .moved = moved};
        rc = dlp_files_open(&o->source, &d, &o->err);
    }
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("  %s: %s\n", kind_names[kind], o->err.message);
}

/* Open a pipe of the parts of a kind. */
static int open_parts(opened *o, int kind, int32_t moved, const dlp_pipe_desc *run) {
    static const uint64_t one[SHARDS] = {1, 1, 1, 1}, many[SHARDS] = {16, 16, 16, 16};
    const dlp_field *field = &text_;
    for (int i = 0; i < SHARDS; i++) o->file[i] = (dlp_part_file){.path = o->paths[i]};
    o->files = (dlp_part_files){.files = o->file, .n_files = SHARDS, .moved = moved};
    o->tar = (dlp_tar_parts){.desc = &o->tar_desc, .load = dlp_part_files_load, .user = &o->files};
    const int tar = kind == TAR_PARTS;
    const dlp_node nodes[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = SHARDS}},
                              {.name = "load",
                               .verb = DLP_LOAD,
                               .load = {.items = tar ? many : one,
                                        .max_part_bytes = ROOM,
                                        .load = tar ? dlp_tar_load : dlp_part_files_load,
                                        .user = tar ? (void *)&o->tar : (void *)&o->files}},
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = tar ? dlp_tar_fetch : part_fetch,
                                         .user = tar ? &o->tar : NULL,
                                         .fields = field,
                                         .n_fields = 1}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}}};
    return dlp_pipe_open(&o->p, DLP_NODES(nodes), run, &o->err);
}

/* Open a pipe of the files names[]. Returns the code. */
static int open_pipe(opened *o, int kind, const char *const *names, int32_t moved,
                     const dlp_state *resume) {
    const dlp_pipe_desc run = {.resume = resume}, seeded = {.seed = 3, .resume = resume};
    memset(o, 0, sizeof *o);
    for (int i = 0; i < SHARDS; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s", folder_, names[i]);
        o->paths[i] = in_rig(path);
    }
    if (kind == CHUNKS) {
        const dlp_array_column column = {.name = "x", .paths = o->paths, .n_paths = SHARDS};
        const array_views d = {.arrays = {.columns = &column, .n_columns = 1, .moved = moved},
                               .chunks = {.batch_size = 4, .seed = 3, .pipe = run}};
        return array_views_open(&o->p, &o->source, &d, &o->err);
    }
    open_source(o, kind, moved);
    if (o->source == NULL) return open_parts(o, kind, moved, &seeded);
    const dlp_loader_desc d = {.source = o->source,
                               .batch_size = kind == FILES ? 2 : 4,
                               .num_workers = 1,
                               .shuffle = 1,
                               .seed = 3,
                               .pipe = run};
    return dlp_loader_open(&o->p, &d, &o->err);
}

static void close_pipe(opened *o) {
    CHECK(dlp_pipe_close(o->p) == DLP_OK);
    CHECK(dlp_source_close(o->source) == DLP_OK);
}

/* The warning of a resume, or NULL. */
static const char *warned(const dlp_pipe *p) {
    const char *text;
    for (int i = 0; (text = dlp_pipe_warning(p, i)) != NULL; i++)
        if (strncmp(text, "resume: ", 8) == 0) return text;
    return NULL;
}

/* The state behind the first batch. */
static void save(int kind, const char *const *names, dlp_state *to) {
    opened o;
    dlp_batch *b;
    int rc = open_pipe(&o, kind, names, 0, NULL);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("  %s: %s: %s\n", kind_names[kind], o.err.field, o.err.message);
    if (rc == DLP_OK && (rc = dlp_pipe_next(o.p, &b)) == DLP_OK) dlp_pipe_release(o.p, b);
    CHECK(rc == DLP_OK && dlp_pipe_state(o.p, NULL, to) == DLP_OK);
    CHECK(warned(o.p) == NULL);
    close_pipe(&o);
}

/* True if a resume ends with this error in this field (NULL: it succeeds), and if it succeeds, with
   these words in a warning (NULL: there is none). */
static int resumes(int kind, const char *const *names, int32_t moved, const dlp_state *from,
                   const char *field, const char *warning) {
    opened o;
    const int rc = open_pipe(&o, kind, names, moved, from);
    const char *said = rc == DLP_OK ? warned(o.p) : NULL;
    int ok = field != NULL ? rc == DLP_ERR_RESUME && strcmp(o.err.field, field) == 0 &&
                                 strlen(o.err.message) <= 160
                           : rc == DLP_OK && (warning != NULL) == (said != NULL) &&
                                 (said == NULL || strstr(said, warning) != NULL);
    dlp_batch *b;
    if (!ok)
        printf("  %s: %s, %s: %s; %s\n", kind_names[kind], dlp_code_name(rc), o.err.field,
               o.err.message, said ? said : "no warning");
    if (rc == DLP_OK && dlp_pipe_next(o.p, &b) == DLP_OK)
        CHECK(b->in_epoch == 1 && dlp_pipe_release(o.p, b) == DLP_OK);
    close_pipe(&o);
    return ok;
}

/* A state as an older version saved it. */
static void forget(dlp_state *state) {
    inside_state s;
    memcpy(&s, state, sizeof s);
    s.epoch &= (UINT64_C(1) << 48) - 1;
    s.sampler_bytes &= 0xff;
    s.global_batch &= 0xffffff;
    s.batch &= (UINT64_C(1) << 48) - 1;
    s.last &= 0xff;
    s.order &= 0xff;
    inside_state_seal(&s);
    CHECK(memcmp(&s, state, sizeof s) != 0); /* it knew something */
    memcpy(state, &s, sizeof s);
}

static const char *const abcd[] = {"x/a", "b", "c", "d"};

static void state__of_each_source__only_with_its_files(void) {
    static const char *const turned[] = {"b", "x/a", "c", "d"};
    static const char *const other[] = {"x/a", "b", "e", "d"};
    const char *const *names[] = {abcd, turned, other};
    for (int kind = 0; kind < KINDS; kind++) {
        const int named = kind == FILES || kind == PARTS || kind == TAR_PARTS; /* not opened */
        dlp_state state, same;
        folder_ = "a";
        write_shard(kind, "x/a", 1000);
        write_shard(kind, "b", 2000);
        write_shard(kind, "c", 3000);
        write_shard(kind, "d", 4000);
        write_shard(kind, "e", 3000);
        save(kind, abcd, &state);
        CHECK(resumes(kind, abcd, 0, &state, NULL, NULL));
        CHECK(resumes(kind, names[1], 0, &state, "source.order", NULL));
        CHECK(resumes(kind, names[2], 0, &state, "source.names", NULL));
        CHECK(resumes(kind, names[2], 1, &state, NULL, NULL)); /* it was renamed, and has moved */
        CHECK(resumes(kind, names[1], 1, &state, named ? NULL : "source.content", NULL));
        write_shard(kind, "c", 3001);
        CHECK(resumes(kind, abcd, 0, &state, named ? NULL : "source.content", NULL));
        write_shard(kind, "c", 3000);
        folder_ = "other/folder"; /* all of it is somewhere else */
        write_shard(kind, "x/a", 1000);
        write_shard(kind, "b", 2000);
        write_shard(kind, "c", 3000);
        write_shard(kind, "d", 4000);
        CHECK(resumes(kind, abcd, 0, &state, NULL, NULL));
        save(kind, abcd, &same);
        CHECK(memcmp(&same, &state, sizeof same) == 0);
        folder_ = "a";
        forget(&state);
        CHECK(resumes(kind, abcd, 0, &state, NULL, "does not say from which files"));
        CHECK(resumes(kind, names[1], 0, &state, NULL, "does not say from which files"));
    }
}

/* Sizes alone: llm.c takes no other, and the items of lines follow from the lines. */
static void state__sizes__are_compared(void) {
    dlp_identity one = {.sizes = 5}, other = {.sizes = 6, .names = 9};
    dlp_dataset ds = {.n_items = 20, .fields = &text_, .n_fields = 1, .fetch = zeros_fetch};
    dlp_loader_desc d = {.batch_size = 4};
    dlp_pipe *p = NULL;
    dlp_state state;
    dlp_error err;
    ds.identity = &one;
    d.dataset = ds;
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_OK && dlp_pipe_state(p, NULL, &state) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    d.pipe.resume = &state;
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_OK && dlp_pipe_warning(p, 0) == NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    d.dataset.identity = &other;
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_ERR_RESUME);
    CHECK(strcmp(err.field, "source.sizes") == 0 && strstr(err.message, "other sizes"));
    other.moved = 1;
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_ERR_RESUME); /* only names have moved */
    d.dataset.identity = NULL;
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_OK);
    CHECK(dlp_pipe_warning(p, 0) != NULL && strstr(dlp_pipe_warning(p, 0), "no source"));
    CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_OK && dlp_pipe_warning(p, 1) == NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Several sources of a table: their order counts, and what one does not say is no error. */
static void state__of_two_sources__in_their_order(void) {
    const dlp_identity a = {.names = 1, .order = 2, .content = 3}, b = {.names = 4, .order = 5};
    const dlp_identity none = {.names = 0};
    const dlp_identity *pairs[][2] = {{&a, &b}, {&b, &a}, {&a, &none}, {&a, NULL}, {NULL, NULL}};
    const int rc_of[] = {DLP_OK, DLP_ERR_RESUME, DLP_ERR_RESUME, DLP_ERR_RESUME, DLP_OK};
    dlp_state state = {{0}};
    for (int k = 0; k < 5; k++) {
        dlp_dataset ds[2];
        dlp_source s[2];
        dlp_pipe *p = NULL;
        int rc;
        memset(s, 0, sizeof s);
        for (int i = 0; i < 2; i++) {
            ds[i] = (dlp_dataset){.n_items = 10,
                                  .fields = &text_,
                                  .n_fields = 1,
                                  .fetch = zeros_fetch,
                                  .identity = pairs[k][i]};
            s[i].dataset = &ds[i];
        }
        const dlp_node nodes[] = {
            {.name = "list", .verb = DLP_LIST},
            {.name = "one", .verb = DLP_FETCH, .fetch = {.source = &s[0], .of = 1}},
            {.name = "two", .verb = DLP_FETCH, .fetch = {.source = &s[1], .of = 2}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
        const dlp_pipe_desc run = {.resume = k > 0 ? &state : NULL};
        rc = dlp_pipe_open(&p, DLP_NODES(nodes), &run, NULL);
        CHECK(rc == rc_of[k]);
        if (rc != DLP_OK) continue;
        if (k == 0) CHECK(dlp_pipe_state(p, NULL, &state) == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Files by paths are not opened, but a file of another size is another file. One that is not there
   is no error. */
static void files__of_another_size__other_files(void) {
    opened o;
    dlp_state state;
    for (int i = 0; i < SHARDS; i++) write_shard(FILES, abcd[i], i);
    save(FILES, abcd, &state);
    rig_write("a/c", "123", 3);
    CHECK(resumes(FILES, abcd, 0, &state, "source.sizes", NULL));
    CHECK(unlink(in_rig("a/c")) == 0);
    CHECK(open_pipe(&o, FILES, abcd, 0, &state) == DLP_OK && warned(o.p) == NULL);
    close_pipe(&o);
}

static int keep_all(void *user, const dlp_item *item) {
    (void)user;
    (void)item;
    return 1;
}

/* Sources before makers, and one in each branch of a mix: as anywhere. */
static void state__of_rows_before_makers__has_all_sources(void) {
    static const char *const mixed[] = {"fetch", "other", NULL};
    static const uint64_t weights[] = {1, 1};
    for (int kind = 0; kind < 2; kind++) {
        dlp_identity ids[2] = {{.content = 3}, {.content = 4}};
        dlp_state state;
        for (int change = 0; change < 4; change++) {
            dlp_dataset ds[2];
            dlp_source s[2];
            dlp_pipe *p = NULL;
            dlp_error err;
            memset(s, 0, sizeof s);
            memset(&err, 0, sizeof err);
            for (int i = 0; i < 2; i++) {
                ds[i] = (dlp_dataset){.n_items = 10,
                                      .fields = &text_,
                                      .n_fields = 1,
                                      .fetch = zeros_fetch,
                                      .identity = &ids[i]};
                s[i].dataset = &ds[i];
            }
            if (change > 1) ids[change - 2].content = 9;
            const dlp_node filter[] = {
                {.name = "list", .verb = DLP_LIST},
                {.name = "fetch", .verb = DLP_FETCH, .fetch = {.source = &s[0]}},
                {.name = "filter", .verb = DLP_FILTER, .filter = {.keep = keep_all}},
                {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}}};
            const dlp_node mix[] = {
                {.name = "list", .verb = DLP_LIST},
                {.name = "fetch", .verb = DLP_FETCH, .fetch = {.source = &s[0]}},
                {.name = "list2", .verb = DLP_LIST},
                {.name = "other", .verb = DLP_FETCH, .fetch = {.source = &s[1]}},
                {.name = "mix", .verb = DLP_MIX, .from = mixed, .mix = {.weights = weights}},
                {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}}};
            const dlp_pipe_desc run = {.resume = change > 0 ? &state : NULL};
            const int rc = kind ? dlp_pipe_open(&p, DLP_NODES(mix), &run, &err)
                                : dlp_pipe_open(&p, DLP_NODES(filter), &run, &err);
            const int same = change < 2 || (kind == 0 && change == 3);
            CHECK(rc == (same ? DLP_OK : DLP_ERR_RESUME));
            if (rc != DLP_OK) CHECK(strcmp(err.field, "source.content") == 0);
            if (rc == DLP_OK && change == 0) CHECK(dlp_pipe_state(p, NULL, &state) == DLP_OK);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            ids[0].content = 3;
            ids[1].content = 4;
        }
    }
}

/* A flag that is neither 0 nor 1. */
static void moved__neither_0_nor_1__refused(void) {
    for (int kind = 0; kind < PARTS; kind++) {
        dlp_source *s = NULL;
        dlp_error err;
        const char *path = in_rig("a/b");
        const dlp_array_column column = {.name = "x", .path = path};
        const dlp_tokens_desc tokens = {.paths = &path, .n_paths = 1, .length = 8, .moved = 2};
        const dlp_lines_desc lines = {.path = path, .moved = 2};
        const dlp_tar_desc tar = {.path = path, .fields = &text_, .n_fields = 1, .moved = -1};
        const dlp_arrays_desc arrays = {.columns = &column, .n_columns = 1, .moved = 2};
        const dlp_files_desc files = {
            .n_items = 1, .paths = &path, .fields = &text_, .n_fields = 1, .moved = 2};
        const int rc = kind <= LLMC    ? dlp_tokens_open(&s, &tokens, &err)
                       : kind == LINES ? dlp_lines_open(&s, &lines, &err)
                       : kind == TAR   ? dlp_tar_open(&s, &tar, &err)
                       : kind < FILES  ? dlp_arrays_open(&s, &arrays, &err)
                                       : dlp_files_open(&s, &files, &err);
        CHECK(rc == DLP_ERR_ARG && strcmp(err.field, "moved") == 0);
    }
}

/* More files than are looked into, and files longer than what is looked at. */
static void content__of_many_and_long_files__a_part_of_it(void) {
    enum { MANY = 600, LONG = 40000 };
    static char bytes[LONG];
    static const char *paths[MANY];
    static const int at[] = {0, 4095, 20000, LONG - 4096, LONG - 1};
    dlp_identity was = {.names = 0}, is;
    dlp_source *s = NULL;
    dlp_lines_desc d = {.paths = paths, .n_paths = MANY, .index = ""};
    memset(bytes, 'x', sizeof bytes);
    for (int i = 0; i < MANY; i++) {
        char name[20];
        snprintf(name, sizeof name, "many/%d", i);
        paths[i] = strdup(rig_write(name, "x\n", 2));
    }
    for (int i = 0; i < 2; i++) {
        CHECK(dlp_lines_open(&s, &d, NULL) == DLP_OK);
        if (i == 0) was = *s->dataset->identity;
        is = *s->dataset->identity;
        CHECK((i == 0) == (was.content == is.content) && was.names == is.names);
        CHECK(was.sizes == is.sizes && was.content != 0);
        CHECK(dlp_source_close(s) == DLP_OK);
        rig_write("many/0", "y\n", 2);
    }
    d = (dlp_lines_desc){.path = in_rig("long"), .index = ""};
    for (int i = -1; i < 5; i++) {
        if (i >= 0) bytes[at[i]] = 'y';
        rig_write("long", bytes, LONG);
        CHECK(dlp_lines_open(&s, &d, NULL) == DLP_OK);
        is = *s->dataset->identity;
        if (i >= 0) CHECK((was.content != is.content) == (i != 2)); /* 2: in the middle */
        was = is;
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    for (int i = 0; i < MANY; i++) free((void *)(uintptr_t)paths[i]);
}

int main(void) {
    static const char *const folders[] = {"a",   "a/x", "other", "other/folder", "other/folder/x",
                                          "many"};
    rig_begin("identity");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        CHECK(mkdir(in_rig(folders[i]), 0700) == 0);
    state__of_each_source__only_with_its_files();
    state__sizes__are_compared();
    state__of_two_sources__in_their_order();
    state__of_rows_before_makers__has_all_sources();
    files__of_another_size__other_files();
    moved__neither_0_nor_1__refused();
    content__of_many_and_long_files__a_part_of_it();
    rig_end();
    return test_end("identity");
}
