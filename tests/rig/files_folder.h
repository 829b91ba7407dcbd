/* needs: files */
/* Random trees of directories, and the classes and files that a reader finds there. The files are
   then read through >>files. Behind files_random.h. */
#ifndef FILES_FOLDER_H
#define FILES_FOLDER_H

enum { FOLDER_ROOM = 1 << 15, FOLDER_DEPTH = 12 };

typedef struct folder_case {
    const char *root;
    dlp_folder_desc d;
    int depth_most;
} folder_case;

/* ---- the writer ---- */

/* Return "dir/name", which stays until the case ends. */
static const char *below(const char *dir, const char *name) {
    const size_t n = strlen(dir) + strlen(name) + 2;
    char *path = keep(n);
    snprintf(path, n, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *path, uint64_t n) {
    blob b = {NULL, 0, 0};
    FILE *f = fopen(path, "wb");
    put_random(&b, n);
    CHECK(f != NULL && fwrite(b.at, 1, b.n, f) == b.n && fclose(f) == 0);
}

static const char *file_name(void) {
    static const char *const plain[] = {"0001.jpg", "0002.jpg", "a.png",  "b.JPEG", "c.bmp",
                                        "d.webp",   "e.ppm",    "10.jpg", "2.jpg",  "Z.jpg"};
    static const char *const odd[] = {
        "a.jpg.txt",    "b.txt.jpg",   " c.jpg",    "-d.png",  "\xc3\xa9.jpg", "n\nl.jpg",
        "x.jpg ",       ".hidden.jpg", "README",    ".jpg",    "a.",           "jpg",
        "\xff\xfe.jpg", "%s%n.jpg",    "q'\"`.png", "a!b.jpg", "labels.csv",   "a.tiff"};
    return has(F_FOLDER_NAMES, 4) ? odd[draw(18)] : plain[draw(10)];
}

/* Write a symbolic link into a directory: to a file, a directory, nowhere, or back. */
static void write_link(const folder_case *c, const char *dir) {
    static const char *const names[] = {"l.jpg", "link", "m.png"};
    static const char *const targets[] = {"0001.jpg", "nowhere", "../", "/dev/null", "."};
    const uint64_t to = draw(7);
    const char *target = to < 5 ? targets[to] : to == 5 ? dir : below(c->root, "shared");
    if (to == 6 && mkdir(target, 0755) == 0) write_file(below(target, "s.jpg"), draw(100));
    if (symlink(target, below(dir, names[draw(3)])) != 0) CHECK(errno == EEXIST);
}

/* Fill a directory. */
static void write_tree(const folder_case *c, const char *dir, int depth) {
    static const char *const names[] = {"sub", "more.jpg", "a", ".git", "b b"};
    if (has(F_FOLDER_EMPTY, 15)) return;
    for (uint64_t n = draw(6) + (depth == 1); n > 0; n--)
        write_file(below(dir, file_name()), has(F_OUTLIER, 60) ? 30000 : draw(60));
    for (uint64_t n = draw(3); n > 0 && depth < c->depth_most; n--) {
        const char *sub = below(dir, names[draw(5)]);
        if (mkdir(sub, 0755) == 0) write_tree(c, sub, depth + 1);
    }
    if (has(F_FOLDER_LINKS, 8)) write_link(c, dir);
}

static const char *const folder_classes[] = {"cat",      "dog", "Cat", "a b", "10", "2",
                                             "\xc3\xa4", "a",   "a!",  "ab",  "-x", ".hidden"};
static const char *const folder_systems[] = {"__MACOSX", "@eaDir", "lost+found", "$RECYCLE.BIN",
                                             "System Volume Information"};

/* Name the classes of another folder, in an order of their own. Some may be unknown there. */
static void give_classes(folder_case *c) {
    static const char *given[14];
    const uint64_t from = draw(12), lacks = has(F_FOLDER_UNKNOWN, 3) ? draw(12) : 99;
    uint32_t n = 0;
    for (uint64_t i = 0; i < 12; i++)
        if (i != lacks) given[n++] = folder_classes[(5 * i + from) % 12];
    if (draw(3) == 0) given[n++] = folder_systems[draw(5)];
    c->d.classes = given;
    c->d.n_classes = n;
    say(" classes of another folder;");
}

static void write_folder(const folder_case *c) {
    CHECK(mkdir(c->root, 0755) == 0);
    for (uint64_t n = draw(5); n > 0; n--) {
        const char *dir = below(c->root, folder_classes[draw(12)]);
        if (mkdir(dir, 0755) == 0) write_tree(c, dir, 1);
    }
    if (has(F_FOLDER_SYSTEM, 4)) {
        const char *dir = below(c->root, folder_systems[draw(5)]);
        if (mkdir(dir, 0755) == 0) write_tree(c, dir, 1);
    }
    if (has(F_FOLDER_NAMES, 3)) write_file(below(c->root, file_name()), 9);
}

/* ---- the reader ---- */

typedef struct folder_reader {
    const char *path[4096];
    uint32_t label[4096];
    uint64_t n;
    const char *classes[64];
    uint64_t n_classes;
    int told;        /* 1: a warning is due: a directory left out, a link, a class without files */
    const char *bad; /* what is wrong in the tree; NULL: nothing */
} folder_reader;

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int is_picture(const folder_case *c, const char *name) {
    static const char *const usual[] = {"jpg", "jpeg", "png", "bmp", "ppm", "webp"};
    const char *dot = strrchr(name, '.');
    for (uint32_t i = 0; dot != NULL && i < (c->d.extensions ? c->d.n_extensions : 6); i++)
        if (strcasecmp(dot + 1, c->d.extensions ? c->d.extensions[i] : usual[i]) == 0) return 1;
    return 0;
}

static int is_system(const char *name) {
    for (int k = 0; k < 5; k++)
        if (strcmp(name, folder_systems[k]) == 0) return 1;
    return 0;
}

/* True if the desc names this class. */
static int is_given(const folder_case *c, const char *name) {
    for (uint32_t i = 0; i < c->d.n_classes; i++)
        if (strcmp(c->d.classes[i], name) == 0) return 1;
    return 0;
}

/* List what counts in a directory. depth 0: the classes; else files, of all below. */
static void read_tree(const folder_case *c, folder_reader *r, const char *dir, int depth) {
    struct stat st, at;
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        const char *path = below(dir, e->d_name), *up = dir;
        if ((e->d_name[0] == '.' || is_system(e->d_name)) &&
            !(depth == 0 && is_given(c, e->d_name))) {
            r->told |= depth == 0 && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                       stat(path, &st) == 0 && S_ISDIR(st.st_mode);
            continue;
        }
        if (stat(path, &st) != 0) {
            if (depth == 0 || is_picture(c, e->d_name)) r->bad = "a link that leads nowhere";
            r->told = 1;
            continue;
        }
        if (S_ISREG(st.st_mode) && depth > 0 && is_picture(c, e->d_name) && r->n < 4096)
            r->path[r->n++] = path;
        if (!S_ISDIR(st.st_mode)) continue;
        for (int k = depth; k >= 0; k--) { /* does it lie in itself? */
            if (stat(up, &at) == 0 && at.st_ino == st.st_ino && at.st_dev == st.st_dev)
                r->bad = "a link that leads back";
            up = copy_bytes((const uint8_t *)up, (size_t)(strrchr(up, '/') - up));
        }
        if (r->bad != NULL) break;
        if (depth == 0 && r->n_classes < 64)
            r->classes[r->n_classes++] = copy_bytes((const uint8_t *)e->d_name, strlen(e->d_name));
        else
            read_tree(c, r, path, depth + 1);
    }
    if (d != NULL) closedir(d);
}

static void read_folder(const folder_case *c, folder_reader *r) {
    memset(r, 0, sizeof *r);
    read_tree(c, r, c->root, 0);
    qsort(r->classes, r->n_classes, sizeof *r->classes, by_text);
    for (uint64_t i = 0; c->d.classes != NULL && i < r->n_classes; i++)
        if (!is_given(c, r->classes[i])) r->bad = "a class that the other folder does not have";
    if (r->n_classes == 0 && r->bad == NULL) r->bad = "there are no classes";
    for (uint32_t i = 0; i < c->d.n_classes; i++) r->classes[i] = c->d.classes[i];
    if (c->d.classes != NULL) r->n_classes = c->d.n_classes;
    for (uint64_t i = 0; i < r->n_classes; i++) {
        const uint64_t first = r->n;
        read_tree(c, r, below(c->root, r->classes[i]), 1);
        qsort(r->path + first, r->n - first, sizeof *r->path, by_text);
        for (uint64_t k = first; k < r->n; k++) r->label[k] = (uint32_t)i;
        r->told |= r->n == first;
    }
    if (r->n == 0 && r->bad == NULL) r->bad = "there are no pictures";
}

/* ---- the library ---- */

/* Compare a list with the reader's. Returns 0 if it is well. */
static int judge_folder(const dlp_folder *f, const folder_reader *r) {
    int bad = f->n_files != r->n || f->n_classes != r->n_classes;
    for (uint64_t i = 0; !bad && i < r->n; i++)
        bad = strcmp(f->paths[i], r->path[i]) != 0 || f->labels[i] != r->label[i];
    for (uint32_t i = 0; !bad && i < f->n_classes; i++) {
        uint64_t n = 0;
        for (uint64_t k = 0; k < r->n; k++) n += r->label[k] == i;
        bad = strcmp(f->classes[i], r->classes[i]) != 0 || f->class_files[i] != n;
    }
    if (r->told && f->warning == NULL) {
        say("\n  wrong: no warning");
        return 1;
    }
    if (bad)
        say("\n  wrong: %" PRIu64 " files of %u classes; the reader has %" PRIu64 " of %" PRIu64,
            f->n_files, f->n_classes, r->n, r->n_classes);
    return bad;
}

/* Change a file that is listed: cut, grown, removed, a directory in its place. */
static void spoil_listed(const dlp_folder *f) {
    const char *path = f->paths[draw(f->n_files)];
    const uint64_t how = draw(5);
    say(" listed file spoilt, way %" PRIu64 ";", how);
    if (how == 0) CHECK(truncate(path, (off_t)draw(30)) == 0);
    if (how == 1) write_file(path, FOLDER_ROOM + draw(3));
    if (how >= 2) CHECK(unlink(path) == 0);
    if (how == 3) CHECK(mkdir(path, 0755) == 0);
    if (how == 4) CHECK(symlink("nowhere", path) == 0);
}

/* Read the files of a list. Returns 0 if each item is its file. */
static int read_listed(const dlp_folder *f) {
    static const dlp_field field = {"bytes", DLP_U8, 1, {FOLDER_ROOM}, 1, 0};
    const dlp_files_desc d = {.n_items = f->n_files,
                              .paths = f->paths,
                              .fields = &field,
                              .n_fields = 1,
                              .in_flight = (int)draw(5),
                              .use_threads = draw(3) == 0};
    const dlp_loader_desc l = draw_loader(1);
    dlp_source *s = NULL;
    dlp_error err = {0};
    want w = {.verdict = GOOD};
    got g;
    if (has(F_MUTATED, 3)) spoil_listed(f);
    for (uint64_t i = 0; i < f->n_files; i++) {
        blob *item = items_add(&w.x), b = read_blob(f->paths[i]);
        struct stat st;
        put_number(item, b.n, 8, 0);
        put(item, b.at, b.n);
        if (stat(f->paths[i], &st) != 0 || !S_ISREG(st.st_mode)) worse(&w, BAD, "it is no file");
        if (b.n > FOLDER_ROOM) worse(&w, BAD, "it is too long");
    }
    CHECK(dlp_files_open(&s, &d, &err) == DLP_OK);
    collect(&g, s, &l, w.x.n);
    close_source(s, &g);
    return judge(&w, &g, strrchr(rig_dir, '/'));
}

static int folder_case_run(void) {
    static const char *const extensions[] = {"jpg", "TXT", "jpg "};
    static folder_reader r;
    folder_case c = {.root = in_rig("root"), .depth_most = 1 + (int)draw(4)};
    dlp_folder *f = NULL;
    dlp_error err = {0};
    int failed = 0, rc;
    c.root = copy_bytes((const uint8_t *)c.root, strlen(c.root));
    c.d.path = draw(4) ? c.root : below(c.root, "");
    if (draw(4) == 0) c.d.extensions = extensions, c.d.n_extensions = 3;
    say("folder: %s, %u extensions, depth %d;", c.d.path, c.d.n_extensions, c.depth_most);
    if (has(F_FOLDER_CLASSES, 3)) give_classes(&c);
    write_folder(&c);
    read_folder(&c, &r);
    rc = dlp_folder_open(&f, &c.d, &err);
    if ((rc != DLP_OK) != (r.bad != NULL)) {
        say("\n  wrong: code %d (%s), the reader: %s", rc, err.message, r.bad ? r.bad : "well");
        failed = 1;
    } else if (rc != DLP_OK && strstr(err.message, c.root) == NULL) {
        say("\n  wrong: an error that names no path: %s", err.message);
        failed = 1;
    } else if (rc == DLP_OK) {
        failed = judge_folder(f, &r) || read_listed(f);
    }
    dlp_folder_close(f);
    return failed;
}

#endif
