/* needs: files */
/* Names beyond ASCII, and a path of more than 260 bytes: a folder's classes, its files read by a
   loader, the order, the bytes and the state. The numbers are the same on each system
   (windows/paths_utf8), so a state that one writes is the state of the others. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/digest.h"
#include "../../rig/source_rig.h"
#include "../../rig/sources.h"

#undef LONG
#define LONG "0123456789012345678901234567890123456789012345678901234567890123456789012345678901"
#define SEED UINT64_C(0xcbf29ce484222325)

static const char *const names_[] = {/* in the order of their bytes; the first part is the class */
                                     "a/" LONG "/" LONG "/" LONG "/" LONG "/x.jpg", "a/b.jpg",
                                     "gr\xc3\xb6\xc3\x9f"
                                     "e/\xc3\xa4.jpg",
                                     "gr\xc3\xb6\xc3\x9f"
                                     "e/\xf0\x9f\x90\xa7.jpg",
                                     "\xe6\x97\xa5\xe6\x9c\xac/\xe5\xad\x97/1.jpg"};
enum { FILES = sizeof names_ / sizeof *names_ };

/* Make a file below t, and its directories. Its bytes are its name. */
static void make(const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/t/%s", rig_dir, name);
    for (char *at = path + strlen(rig_dir) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL && fwrite(name, 1, strlen(name), f) == strlen(name) && fclose(f) == 0);
}

static int decode_name(void *user, void *own, dlp_item *item, const void *bytes, uint64_t n) {
    const dlp_folder *f = user;
    (void)own;
    uint32_t label = f->labels[item->index];
    memset(item->data[0], 0, 512);
    memcpy(item->data[0], bytes, (size_t)n);
    memcpy(item->data[1], &label, sizeof label);
    return 0;
}

/* Classes, labels and paths are those that were made, in the order of their bytes. */
static void check_list(const dlp_folder *f) {
    CHECK(f->n_files == FILES && f->n_classes == 3);
    for (uint64_t i = 0; i < f->n_files && i < FILES; i++) {
        const size_t of = strlen(f->paths[i]), n = strlen(names_[i]);
        CHECK(of > n && strcmp(f->paths[i] + of - n, names_[i]) == 0);
        CHECK(strncmp(f->classes[f->labels[i]], names_[i], strcspn(names_[i], "/")) == 0);
    }
}

static void paths__beyond_ascii_and_long__same_bytes_and_state(void) {
    static const dlp_field fields[] = {{.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {512}},
                                       {.name = "label", .dtype = DLP_U32}};
    const dlp_folder_desc fd = {.path = in_rig("t")};
    dlp_loader_desc d = {.batch_size = 2, .num_workers = 2, .shuffle = 1, .seed = 7, .epochs = 3};
    dlp_folder *f = NULL;
    dlp_source *files = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    dlp_state state;
    dlp_error e = {.code = 0};
    uint64_t bytes = SEED, saved = SEED;
    int n = 0;
    for (int i = FILES; i-- > 0;) make(names_[i]);
    CHECK(dlp_folder_open(&f, &fd, &e) == DLP_OK);
    if (f == NULL) {
        printf("%s\n", e.message);
        return;
    }
    check_list(f);
    dlp_files_desc files_desc = {.n_items = f->n_files,
                                 .paths = f->paths,
                                 .fields = fields,
                                 .n_fields = 2,
                                 .decode = decode_name,
                                 .max_bytes = 512,
                                 .user = f};
    CHECK(dlp_files_open(&files, &files_desc, NULL) == DLP_OK);
    d.source = files;
    CHECK(dlp_loader_open(&p, &d, &e) == DLP_OK);
    for (; p != NULL && dlp_pipe_next(p, &b) == DLP_OK; n++) {
        bytes = dlp_hash(bytes, digest_batch(b), 0, 0);
        if (n == 3) {
            CHECK(dlp_pipe_state(p, b, &state) == DLP_OK);
            saved = digest_add(saved, &state, sizeof state);
        }
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (p != NULL && dlp_pipe_error(p)->code != 0) printf("%s\n", dlp_pipe_error(p)->message);
    printf("bytes %016" PRIx64 ", state %016" PRIx64 "\n", bytes, saved);
    CHECK(n == 9 && bytes == UINT64_C(0x148fec30510c0f84));
    CHECK(saved == UINT64_C(0x22bf4b0a6184de2e));
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(files) == DLP_OK);
    dlp_folder_close(f);
}

/* A path that is no UTF-8: Windows has no such name; elsewhere it is a name like others. */
static void path__no_utf8__refused(void) {
    const dlp_folder_desc fd = {.path = in_rig("\xff\xfe")};
    dlp_folder *f = NULL;
    dlp_error e = {.code = 0};
    CHECK(dlp_folder_open(&f, &fd, &e) == DLP_ERR_SYSTEM && f == NULL);
#ifdef _WIN32
    CHECK(e.errnum == EILSEQ);
#else
    CHECK(e.errnum == ENOENT);
#endif
}

/* A text with the slashes that people write on this system, until the next call. */
static char *turned(const char *path) {
    static char to[600];
    snprintf(to, sizeof to, "%s", path);
#ifdef _WIN32
    for (char *c = to; *c; c++)
        if (*c == '/') *c = '\\';
#endif
    return to;
}

static void write_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(in_rig(name), "wb");
    CHECK(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

/* Return the hash of a state of all items of a source, and close the source. */
static uint64_t saved_of(int rc, dlp_source *source, const dlp_error *e) {
    dlp_loader_desc d = {.batch_size = 2, .seed = 7, .epochs = 3, .source = source};
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    dlp_state state;
    uint64_t saved = 0;
    if (rc != DLP_OK) printf("%s\n", e->message);
    CHECK(rc == DLP_OK && dlp_loader_open(&p, &d, NULL) == DLP_OK);
    if (p == NULL) return 0;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_state(p, b, &state) == DLP_OK);
    saved = digest_add(SEED, &state, sizeof state);
    CHECK(dlp_pipe_release(p, b) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    CHECK(dlp_source_close(source) == DLP_OK);
    return saved;
}

/* Paths with the slashes of this system, or with those of all. The state of both is the same on
   each system. */
static void paths__slashes_of_the_system__same_files_index_and_state(void) {
    static const char *const lines[] = {"s/a/x.txt", "s/b/x.txt"};
    static const uint16_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const char *paths[2];
    char *own[2] = {NULL, NULL};
    char directory[600], pattern[600];
    dlp_error e = {.code = 0};
    dlp_source *source = NULL;
    CHECK(mkdir(in_rig("s"), 0700) == 0 && mkdir(in_rig("s/index"), 0700) == 0);
    CHECK(mkdir(in_rig("s/a"), 0700) == 0 && mkdir(in_rig("s/b"), 0700) == 0);
    CHECK(mkdir(in_rig("s/a1"), 0700) == 0);
    for (int i = 0; i < 2; i++) write_file(lines[i], "one\r\ntwo\r\n", 10);
    write_file("s/a/y.bin", tokens, sizeof tokens);
    write_file("s/a1/y.bin", tokens, sizeof tokens);
    snprintf(directory, sizeof directory, "%s", turned(in_rig("s/index")));
    for (int all = 0; all < 3; all++) { /* the last time with both in one list */
        uint64_t saved;
        int rc;
        for (int i = 0; i < 2; i++) {
            free(own[i]);
            own[i] =
                strdup(all == 1 || (all == 2 && i) ? in_rig(lines[i]) : turned(in_rig(lines[i])));
            paths[i] = own[i];
        }
        const dlp_lines_desc ld = {.paths = paths, .n_paths = 2, .index = directory};
        rc = dlp_lines_open(&source, &ld, &e);
        CHECK(rc == DLP_OK && dlp_index_describe(source)->warning == NULL);
        saved = saved_of(rc, source, &e);
        printf("lines %016" PRIx64 "\n", saved);
        CHECK(saved == UINT64_C(0x69261544d4a9c91e));
        snprintf(pattern, sizeof pattern, "%s", in_rig("s/a*/y.bin"));
        const dlp_tokens_desc td = {.pattern = all == 1 ? pattern : turned(pattern),
                                    .format = DLP_TOKENS_U16,
                                    .length = 3,
                                    .insist = 1};
        rc = dlp_tokens_open(&source, &td, &e);
        saved = saved_of(rc, source, &e);
        printf("tokens %016" PRIx64 "\n", saved);
        CHECK(saved == UINT64_C(0xa23b098d891fd4e4));
    }
    for (int i = 0; i < 2; i++) free(own[i]);
}

int main(void) {
    rig_begin("utf8");
    paths__beyond_ascii_and_long__same_bytes_and_state();
    path__no_utf8__refused();
    paths__slashes_of_the_system__same_files_index_and_state();
    rig_end();
    return test_end("paths_utf8");
}
