/* needs: files lines */
/* Sources that have index files: opened, opened again by the index, by an index that was changed,
   and with data that were changed behind an index. Behind files_random.h. */
#ifndef FILES_INDEX_H
#define FILES_INDEX_H

typedef struct indexed_case {
    void (*want)(want *w, const void *of); /* the reader */
    uint64_t (*open)(got *g, const void *of,
                     uint64_t most); /* returns how many files were searched */
    void *of;
    const char **index;       /* the desc's directory of index files */
    const char *const *paths; /* [n] */
    blob *file;               /* [n] */
    uint64_t n, unit;
    int mutated; /* an error is no fault */
    int hidden;  /* a part of a file is in no item, so that nobody notices a change there */
    void (*other)(void *of); /* change what is wanted of the same files; NULL: nothing can be */
} indexed_case;

/* Run the reader and the library once, and compare. again: only files with a warning, which have no
   index, may be searched. */
static int run_once(const indexed_case *c, int perhaps, int anywhere, int again) {
    want w = {.verdict = GOOD, .anywhere = anywhere};
    got g;
    uint64_t found;
    c->want(&w, c->of);
    if (perhaps) worse(&w, PERHAPS, "it was changed");
    found = c->open(&g, c->of, w.x.n + (anywhere ? 100 : 0));
    if (again && g.code == 0 && found > (uint64_t)(w.warns + w.may_warn))
        wrong(&g, "files were searched again", found);
    return judge(&w, &g, strrchr(rig_dir, '/'));
}

/* The path of the index of file i. */
static const char *index_of(const indexed_case *c, uint64_t i) {
    char *to = keep(500);
    snprintf(to, 500, "%s.dlpidx", c->paths[i]);
    return to;
}

/* Change an index file: its bytes, or that of another file in its place. */
static void spoil_index(const indexed_case *c, uint64_t i) {
    blob b = read_blob(index_of(c, i));
    if (draw(4) == 0 && c->n > 1) {
        b = read_blob(index_of(c, (i + 1) % c->n));
        say(" the index of another file;");
    } else if (draw(5) == 0) {
        make_foreign(&b);
    } else {
        say(" index:");
        mutate(&b, 8, 1);
    }
    write_at(index_of(c, i), &b);
}

/* Change a file's bytes, but not its length. later_ns: how much later its time is; 0: its old time,
   so that nobody sees the change. */
static void change(const indexed_case *c, uint64_t i, long later_ns) {
    struct stat st;
    struct timespec t[2];
    blob *b = &c->file[i];
    if (b->n == 0 || stat(c->paths[i], &st) != 0) return;
    t[0] = t[1] = st.st_mtim;
    t[1].tv_nsec += t[1].tv_nsec < 500000000 ? later_ns : -later_ns;
    for (uint64_t k = 1 + draw(5); k > 0; k--) b->at[draw(b->n)] = (uint8_t)(draw(3) ? '\n' : 'x');
    say(" changed, %ld ns later;", later_ns);
    write_at(c->paths[i], b);
    CHECK(utimensat(AT_FDCWD, c->paths[i], t, 0) == 0);
}

static int run_indexed(const indexed_case *c) {
    const int again = has(F_AGAIN, 3);
    const uint64_t spoiled = draw(c->n), how = draw(4);
    const int spoils = has(F_INDEX_MUTATED, 2);
    *c->index = again ? NULL : "";
    if (run_once(c, c->mutated, 0, 0) != 0) return 1;
    if (!again || c->mutated) return 0;
    say(" again;");
    if (run_once(c, 0, 0, 1) != 0) return 1;
    if (c->other != NULL && has(F_OTHER_FIELDS, 3)) {
        c->other(c->of);
        return run_once(c, 0, 0, 0);
    }
    if (!spoils) return 0;
    if (how == 1) {
        change(c, spoiled, 1);
        return run_once(c, c->unit > 1 || (features_had_ >> F_LINES_FOREIGN & 1), 0, 0);
    }
    if (how == 0 && !c->hidden && read_blob(index_of(c, spoiled)).n > 8 * 9) /* it has an item */
        change(c, spoiled, 0);
    else
        spoil_index(c, spoiled);
    return run_once(c, 1, 1, 0);
}

#endif
