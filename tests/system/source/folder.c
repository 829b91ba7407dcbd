/* needs: files */
/* Folders: classes and files in the order of bytes, whatever the directory gives first; what counts
   and what does not; loops, links that lead nowhere, directories that cannot be read are refused by
   name; and a loader of them. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/source_rig.h"
#include "../../rig/sources.h"

static void make(const char *path) { /* and the directories before it; its bytes are its path */
    char dir[200];
    snprintf(dir, sizeof dir, "%s", path);
    for (char *at = dir; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = 0;
        mkdir(in_rig(dir), 0700);
    }
    if (path[strlen(path) - 1] != '/') rig_write(path, path, strlen(path));
}

static dlp_folder *must_list(const dlp_folder_desc *desc) {
    dlp_folder *f = NULL;
    dlp_error err = {0};
    int rc = dlp_folder_open(&f, desc, &err);
    if (rc != DLP_OK) printf("%s\n", err.message);
    CHECK(rc == DLP_OK);
    return f;
}

static void refused(const dlp_folder_desc *d, int code, const char *const *words) {
    dlp_folder *f = NULL;
    dlp_error err = {0};
    int before = rig_fds();
    CHECK(dlp_folder_open(&f, d, &err) == code && f == NULL && rig_says(&err, words));
    CHECK(dlp_folder_open(&f, d, NULL) == code && f == NULL && rig_fds() == before);
}

static void refused_tree(const char *name, int code, const char *word, const char *other) {
    const dlp_folder_desc d = {.path = in_rig(name)};
    refused(&d, code, (const char *const[]){word, other, ""});
}

static void folder__a_tree__classes_and_files_in_order(void) {
    static const struct {
        const char *path;
        uint32_t label;
    } want[] = {{"B/z.jpg", 0},      {"_/x.ppm", 1},   {"a/0.JPG", 2},
                {"a/1.jpeg", 2},     {"a/B.Png", 2},   {"a/a-b/1.jpg", 2},
                {"a/a/b/2.webp", 2}, {"a/a/c.bmp", 2}, {"a/b.jpg.jpg", 2}};
    static const char *const names[] = {"B", "_", "a", "empty"};
    static const char *const other[] = {"t/a/notes.txt", "t/a/.hidden.jpg", "t/a/jpg",
                                        "t/a/x.jp",      "t/loose.jpg",     "t/a/end.jpg."};
    char path[300], link[300];
    dlp_folder_desc d = {.path = path};
    dlp_folder *f;
    uint64_t id;
    int before = rig_fds();
    for (size_t i = sizeof want / sizeof *want; i-- > 0;) {
        snprintf(path, sizeof path, "t/%s", want[i].path);
        make(path);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) make(other[i]);
    make("t/empty/");
    make("t/.class/x.jpg"); /* neither a class nor looked into */
    make("t/a/.more/x.jpg");
    CHECK(mkfifo(in_rig("t/a/fifo.jpg"), 0600) == 0);
    CHECK(symlink("nowhere", in_rig("t/a/nowhere.txt")) == 0);
    for (int slashes = 0; slashes < 2; slashes++) {
        snprintf(path, sizeof path, "%s/t%s", rig_dir, slashes ? "//" : "");
        f = must_list(&d);
        if (f == NULL) return;
        path[strlen(rig_dir) + 2] = 0;
        CHECK(f->n_files == sizeof want / sizeof *want && f->n_classes == 4);
        for (uint64_t i = 0; i < f->n_files; i++) {
            snprintf(link, sizeof link, "%.200s/%s", path, want[i].path);
            CHECK(strcmp(f->paths[i], link) == 0 && f->labels[i] == want[i].label);
        }
        for (uint32_t i = 0; i < f->n_classes; i++) CHECK(strcmp(f->classes[i], names[i]) == 0);
        CHECK(f->class_files[0] == 1 && f->class_files[1] == 1 && f->class_files[2] == 7 &&
              f->class_files[3] == 0);
        CHECK(f->left_out == 6 + 2 + 2);
        CHECK(f->warning != NULL &&
              strstr(f->warning, "t: directories left out: 1 (.class); files in no class: 1 "
                                 "(loose.jpg); dead links: 1 (nowhere.txt); "
                                 "classes without files: 1 (empty)"));
        id = f->id;
        dlp_folder_close(f);
    }
    make("t/a/new.jpg");
    f = must_list(&d);
    CHECK(f->id != id && f->class_files[2] == 8);
    dlp_folder_close(f);
    unlink(in_rig("t/a/new.jpg"));
    snprintf(link, sizeof link, "%s/other", rig_dir); /* the same files elsewhere */
    CHECK(rename(path, link) == 0);
    d.path = link;
    f = must_list(&d);
    CHECK(f->id == id);
    dlp_folder_close(f);
    d.extensions = (const char *const[]){"TXT", "jp"};
    d.n_extensions = 2;
    unlink(in_rig("other/a/nowhere.txt"));
    f = must_list(&d);
    CHECK(f->n_files == 2 && strstr(f->paths[0], "a/notes.txt") && strstr(f->paths[1], "a/x.jp"));
    dlp_folder_close(f);
    dlp_folder_close(NULL);
    CHECK(rig_fds() == before);
}

static void folder__foreign_directories__are_no_classes(void) {
    static const char *const foreign[] = {"f/__MACOSX/a.jpg",  "f/@eaDir/a.jpg",
                                          "f/lost+found/",     "f/b/@eaDir/SYNO.jpg",
                                          "f/b/.thumbs/x.jpg", "f/.DS_Store"};
    const dlp_folder_desc d = {.path = in_rig("f")};
    const dlp_folder_desc named = {
        .path = in_rig("f"), .classes = (const char *const[]){"b", "__MACOSX"}, .n_classes = 2};
    dlp_folder *f;
    uint64_t id;
    make("f/a/1.jpg");
    make("f/b/1.jpg");
    f = must_list(&d);
    CHECK(f->n_classes == 2 && f->left_out == 0 && f->warning == NULL);
    id = f->id;
    dlp_folder_close(f);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) make(foreign[i]);
    chmod(in_rig("f/lost+found"), 0); /* as file systems make it: nobody may look into it */
    f = must_list(&d);
    CHECK(f->n_classes == 2 && f->n_files == 2 && f->left_out == 6 && f->id == id);
    CHECK(f->warning != NULL && strstr(f->warning, ": directories left out: 4 (") &&
          strstr(f->warning, ", ..)") && strstr(f->warning, "class") == NULL);
    dlp_folder_close(f);
    refused(&named, DLP_ERR_ARG, (const char *const[]){"directory \"a\" is none of the 2", ""});
    CHECK(rename(in_rig("f/a/1.jpg"), in_rig("f/a.jpg")) == 0 && rmdir(in_rig("f/a")) == 0);
    f = must_list(&named); /* a name that is given is a class, whatever it is */
    CHECK(f->n_classes == 2 && f->class_files[1] == 1 && f->n_files == 2);
    dlp_folder_close(f);
}

static void bad_classes(const char *const *classes, uint32_t n, const char *word) {
    const dlp_folder_desc d = {.path = in_rig("val"), .classes = classes, .n_classes = n};
    dlp_folder *f = NULL;
    dlp_error err = {0};
    CHECK(dlp_folder_open(&f, &d, &err) == DLP_ERR_ARG && strcmp(err.field, "classes") == 0);
    CHECK(rig_says(&err, (const char *const[]){word, ""}) && strlen(err.message) <= 160);
}

static void folder__classes_given__have_their_numbers(void) {
    static const char *const other[] = {"c", "none", "a", "b"};
    dlp_folder_desc d = {.path = in_rig("train")}, val = {.path = in_rig("val")};
    dlp_folder *train, *f;
    int before = rig_fds();
    make("train/a/1.jpg");
    make("train/b/1.jpg");
    make("train/c/1.jpg");
    make("val/b/1.jpg");
    make("val/c/x/1.jpg");
    make("val/c/2.jpg");
    train = must_list(&d);
    CHECK(train->warning == NULL);
    val.classes = train->classes;
    val.n_classes = train->n_classes;
    f = must_list(&val);
    CHECK(f->n_classes == 3 && f->n_files == 3 && strcmp(f->classes[0], "a") == 0);
    CHECK(f->labels[0] == 1 && f->labels[1] == 2 && f->labels[2] == 2 && f->class_files[0] == 0);
    CHECK(f->warning != NULL && strstr(f->warning, "val: classes without files: 1 (a)"));
    dlp_folder_close(f);
    d.classes = train->classes; /* the order that it has by itself */
    d.n_classes = train->n_classes;
    f = must_list(&d);
    CHECK(f->id == train->id && f->warning == NULL);
    dlp_folder_close(f);
    d.classes = other;
    d.n_classes = 4;
    f = must_list(&d);
    CHECK(f->id != train->id && f->n_classes == 4 && f->labels[0] == 0 && f->labels[1] == 2 &&
          f->labels[2] == 3 && strstr(f->paths[0], "/c/1.jpg"));
    CHECK(f->warning != NULL && strstr(f->warning, "classes without files: 1 (none)"));
    dlp_folder_close(f);
    dlp_folder_close(train);
    bad_classes(other, 0, "give both");
    bad_classes(NULL, 1, "give both");
    bad_classes(other, 1, "directory \"b\" is none of the 1 classes");
    bad_classes((const char *const[]){"a", "b", "c", "b"}, 4, "\"b\" twice");
    bad_classes((const char *const[]){"a", NULL}, 2, "classes[1] is NULL");
    bad_classes((const char *const[]){""}, 1, "classes[0] is empty");
    bad_classes((const char *const[]){"a", "b/c"}, 2, "classes[1] is b/c");
    bad_classes((const char *const[]){".."}, 1, "classes[0] is ..");
    CHECK(rig_fds() == before);
}

static void folder__links__are_followed_but_not_round(void) {
    dlp_folder *f;
    dlp_folder_desc d = {.path = in_rig("l")};
    make("l/a/1.jpg");
    make("l/b/c/2.jpg");
    CHECK(symlink("../a", in_rig("l/b/to_a")) == 0); /* a/1.jpg once more, of class b */
    CHECK(symlink("b/c", in_rig("l/d")) == 0);       /* a class */
    CHECK(symlink("../a/1.jpg", in_rig("l/b/3.jpg")) == 0);
    f = must_list(&d);
    CHECK(f->n_files == 5 && f->n_classes == 3 && f->class_files[1] == 3 && f->class_files[2] == 1);
    dlp_folder_close(f);
    CHECK(symlink("..", in_rig("l/b/c/up")) == 0);
    refused_tree("l", DLP_ERR_SYSTEM, "/up: leads back to a directory", "");
    unlink(in_rig("l/b/c/up"));
    CHECK(symlink("../..", in_rig("l/b/c/up")) == 0);
    refused_tree("l", DLP_ERR_SYSTEM, "/up: leads back", "");
    unlink(in_rig("l/b/c/up"));
    CHECK(symlink(".", in_rig("l/self")) == 0);
    refused_tree("l", DLP_ERR_SYSTEM, "l/self: leads back", "");
    unlink(in_rig("l/self"));
    CHECK(symlink("a.jpg", in_rig("l/a/a.jpg")) == 0); /* to itself */
    refused_tree("l", DLP_ERR_SYSTEM, "a.jpg: stat", "");
    unlink(in_rig("l/a/a.jpg"));
    CHECK(symlink("gone", in_rig("l/a/gone.jpg")) == 0);
    refused_tree("l", DLP_ERR_SYSTEM, "gone.jpg: stat: No such file", "");
    unlink(in_rig("l/a/gone.jpg"));
    CHECK(symlink("/gone/class", in_rig("l/bb")) == 0); /* it would move the numbers of others */
    refused_tree("l", DLP_ERR_SYSTEM, "l/bb: stat: No such file", "");
}

static void folder__nothing_there__is_refused(void) {
    dlp_folder_desc d = {.path = in_rig("none")};
    make("none/");
    refused_tree("nowhere", DLP_ERR_SYSTEM, "nowhere", "No such file");
    refused_tree("none", DLP_ERR_ARG, "none", "has no directories");
    make("none/x.jpg");
    refused_tree("none", DLP_ERR_ARG, "none", "has no directories");
    refused_tree("none/x.jpg", DLP_ERR_SYSTEM, "x.jpg: open", "Not a directory");
    make("none/class/notes.txt");
    refused_tree("none", DLP_ERR_ARG, "none", "no file below its 1 classes ends in jpg, jpeg");
    make("none/class/1.jpg");
    make("none/class/2.jpg");
    d.max_files = 1;
    refused(&d, DLP_ERR_LIMIT, (const char *const[]){"more than 1 files", ""});
    d.max_files = 2;
    dlp_folder_close(must_list(&d));
    d.path = NULL;
    refused(&d, DLP_ERR_ARG, (const char *const[]){"path", ""});
    d.path = in_rig("none");
    d.n_extensions = 1;
    refused(&d, DLP_ERR_ARG, (const char *const[]){"extensions", ""});
    CHECK(dlp_folder_open(NULL, &d, NULL) == DLP_ERR_ARG);
}

static void folder__deep_tree__takes_no_stack(void) {
    int levels = 0, at = open(rig_dir, O_RDONLY | O_CLOEXEC), next;
    dlp_folder_desc d = {.path = in_rig("deep")};
    dlp_folder *f;
    mkdirat(at, "deep", 0700);
    for (; levels < 1000 && at >= 0; levels++) { /* two bytes each */
        next = openat(at, levels ? "d" : "deep", O_RDONLY | O_CLOEXEC);
        close(at);
        mkdirat(at = next, "d", 0700);
    }
    next = openat(at, "x.jpg", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(at >= 0 && next >= 0);
    close(next);
    close(at);
    f = must_list(&d);
    CHECK(f->n_files == 1 && f->n_classes == 1);
    CHECK(f->n_files == 1 && strlen(f->paths[0]) > 2000);
    dlp_folder_close(f);
}

static void cannot_be_read(void) {
    refused_tree("closed", DLP_ERR_SYSTEM, "closed/a: open: Permission", "");
}

static void folder__unreadable__is_refused(void) {
    make("closed/a/1.jpg");
    chmod(rig_dir, 0755);
    chmod(in_rig("closed"), 0755);
    chmod(in_rig("closed/a"), 0);
    rig_as_nobody(cannot_be_read);
    chmod(in_rig("closed/a"), 0700);
}

/* ---- a loader of it ---- */

static int decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    const dlp_folder *f = user;
    (void)state;
    memcpy(item->data[0], bytes, n < 16 ? n : 16);
    memcpy(item->data[1], &f->labels[item->index], sizeof *f->labels);
    return 0;
}

static void folder__loader__bytes_and_labels(void) {
    static const dlp_field fields[] = {{.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {16}},
                                       {.name = "label", .dtype = DLP_U32}};
    dlp_loader_desc d = {.batch_size = 3, .num_workers = 2, .shuffle = 1};
    dlp_folder *f;
    dlp_source *files = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    int wrong = 0, rows = 0;
    char name[32];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "p/%c/%d.jpg", 'a' + i % 3, i);
        make(name);
    }
    make("p/.hidden/");
    f = must_list(&(dlp_folder_desc){.path = in_rig("p")});
    dlp_files_desc fd = {.n_items = f->n_files,
                         .paths = f->paths,
                         .fields = fields,
                         .n_fields = 2,
                         .decode = decode,
                         .max_bytes = 100,
                         .user = f,
                         .warning = f->warning};
    CHECK(dlp_files_open(&files, &fd, NULL) == DLP_OK);
    d.source = files;
    d.sampler.function_id = f->id;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_warning(p, 0) != NULL && strcmp(dlp_pipe_warning(p, 0), f->warning) == 0);
    for (; p && dlp_pipe_next(p, &b) == DLP_OK; dlp_pipe_release(p, b))
        for (uint32_t i = 0; i < b->count; i++, rows++) {
            const char *x = (const char *)b->fields[0].data + 16 * i;
            wrong += ((const uint32_t *)b->fields[1].data)[i] != (uint32_t)(x[2] - 'a');
            wrong += strstr(f->paths[b->index[i]], x) == NULL;
        }
    CHECK(wrong == 0 && rows == 20);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(files) == DLP_OK);
    dlp_folder_close(f);
}

int main(void) {
    rig_begin("folder");
    folder__a_tree__classes_and_files_in_order();
    folder__foreign_directories__are_no_classes();
    folder__classes_given__have_their_numbers();
    folder__links__are_followed_but_not_round();
    folder__nothing_there__is_refused();
    folder__deep_tree__takes_no_stack();
    folder__unreadable__is_refused();
    folder__loader__bytes_and_labels();
    rig_end();
    return test_end("folder");
}
