/* What the tests of part queues share: parts whose every byte follows from their number, and the
   order written down the slow way, to hold a pipe's against it. Needs pipe_rig.h. */
#ifndef PARTS_RIG_H
#define PARTS_RIG_H

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARTS_MAX 64
#define PARTS_ITEMS 2048 /* of all parts, at most */

/* What load and fetch do beside their work, in memory that all processes see. */
typedef struct parts_seen {
    uint32_t loads, begun, failed, used[PARTS_MAX], loaded[PARTS_MAX];
    uint32_t gate;       /* 1: load waits until it is 0, */
    uint32_t gate_part;  /* that of this part + 1; 0: of any */
    uint32_t fail_part;  /* part + 1 that fails, and */
    uint32_t fail_times; /* so often; 0: always */
    uint32_t fail_first; /* n: only the first n loads of it fail */
    uint32_t fail_how;   /* code that load returns; 0: by dlp_fail */
    uint32_t sleep_us;   /* of each load */
    uint32_t kill_every; /* n: every n-th load ends its process */
    uint32_t poison;     /* part + 1 that ends each process that loads it */
    uint32_t wrong;      /* what fetch saw that it must not */
    uint32_t stuck_part; /* part + 1 whose first load never ends */
} parts_seen;

typedef struct parts_rig {
    dlp_loader_desc d;
    uint64_t items[PARTS_MAX + 1], first[PARTS_MAX + 1], total;
    dlp_field field;
    parts_seen *seen;
} parts_rig;

static inline uint64_t parts_word(uint64_t index) { return dlp_hash(index, 77, 0, 0); }

static inline void parts_pause(uint32_t us) {
    struct timespec t = {us / 1000000u, (long)(us % 1000000u) * 1000};
    nanosleep(&t, NULL);
}

static inline int parts_load(void *user, dlp_part *part) {
    parts_seen *s = user;
    uint64_t *to = part->data;
    uint32_t n = __atomic_add_fetch(&s->begun, 1, __ATOMIC_SEQ_CST);
    uint32_t us = __atomic_load_n(&s->sleep_us, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&s->gate, __ATOMIC_SEQ_CST) &&
           (s->gate_part == 0 || s->gate_part == part->index + 1))
        parts_pause(500);
    if (us) parts_pause(us);
    if (s->stuck_part == part->index + 1 && part->attempt == 0) parts_pause(60000000);
    if (s->fail_part == part->index + 1 && (s->fail_times == 0 || part->attempt < s->fail_times) &&
        (s->fail_first == 0 ||
         __atomic_fetch_add(&s->failed, 1, __ATOMIC_SEQ_CST) < s->fail_first)) {
        part->bytes = part->capacity;
        if (s->fail_how == 0) return dlp_fail(part->call, 5, "shard-%d is torn", (int)part->index);
        if (s->fail_how != (uint32_t)-DLP_ERR_LENGTH) return (int)s->fail_how;
        part->bytes = part->capacity + 1;
        return 0;
    }
    memset(to, (int)getpid() & 255, (size_t)part->items * 8); /* from life to life another */
    for (uint64_t i = 0; i < part->items; i++) {
        to[i] = parts_word(part->first + i);
        if (i == part->items / 2 &&
            (s->poison == part->index + 1 || (s->kill_every && n % s->kill_every == 0)))
            raise(SIGKILL);
    }
    part->bytes = part->items * 8;
    __atomic_add_fetch(&s->loads, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&s->loaded[part->index], 1, __ATOMIC_SEQ_CST);
    return 0;
}

static inline int parts_fetch(void *user, dlp_item *it) {
    parts_seen *s = user;
    const dlp_part *part = it->part;
    const uint64_t *from = part->data;
    if (part->item >= part->items || part->first + part->item != it->index ||
        part->bytes != part->items * 8)
        __atomic_add_fetch(&s->wrong, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&s->used[part->index], 1, __ATOMIC_SEQ_CST);
    memcpy(it->data[0], &from[part->item], 8);
    return 0;
}

static inline void parts_init(parts_rig *r, parts_seen *seen, uint64_t n, const uint64_t *items) {
    memset(r, 0, sizeof *r);
    memset(seen, 0, sizeof *seen);
    r->seen = seen;
    for (uint64_t i = 0; i < n; i++) {
        r->items[i] = items ? items[i] : i * 7 % 23;
        r->first[i + 1] = r->first[i] + r->items[i];
        if (r->items[i] * 8 > r->d.parts.max_part_bytes)
            r->d.parts.max_part_bytes = r->items[i] * 8;
    }
    r->total = r->first[n];
    r->field.name = "word";
    r->field.dtype = DLP_U64;
    r->d.parts.n_parts = n;
    r->d.parts.items = r->items;
    r->d.parts.load = parts_load;
    r->d.parts.user = seen;
    r->d.pipe.streams = 1;
    r->d.parts.workers.num_workers = 2;
    r->d.dataset.fields = &r->field;
    r->d.dataset.n_fields = 1;
    r->d.dataset.fetch = parts_fetch;
    r->d.dataset.user = seen;
    r->d.batch_size = 8;
    r->d.num_workers = 2;
    r->d.shuffle = 1;
    r->d.seed = 42;
}

/* ---- the order, written down ---- */

static inline uint64_t parts_positions(const parts_rig *r) {
    uint64_t size = r->d.batch_size, n = r->total;
    if (r->d.pipe.steps_per_epoch) return (uint64_t)r->d.pipe.steps_per_epoch * size;
    if (r->d.drop_last == DLP_LAST_DROP) return n / size * size;
    return n;
}

/* All items of an epoch, part behind part. */
static inline void parts_items_of(const parts_rig *r, uint64_t epoch, uint64_t *all) {
    static dlp_permutation parts, items;
    bool shuffle = r->d.shuffle != 0;
    uint64_t n = 0, seed = r->d.seed;
    dlp_permutation_init(&parts, r->d.parts.n_parts, inside_hash(INSIDE_PARTS, seed, 0), epoch);
    for (uint64_t j = 0; j < r->d.parts.n_parts; j++) {
        uint64_t part = j;
        if (shuffle || r->d.parts.shuffle_parts) part = dlp_permutation_at(&parts, j);
        dlp_permutation_init(&items, r->items[part], inside_hash(INSIDE_PART_ITEMS, seed, part),
                             epoch);
        for (uint64_t i = 0; i < r->items[part]; i++) {
            uint64_t item = i;
            if (shuffle || r->d.parts.shuffle_items) item = dlp_permutation_at(&items, i);
            all[n++] = r->first[part] + item;
        }
    }
}

/* The dataset index of every position of an epoch; returns how many there are. */
static inline uint64_t parts_order(const parts_rig *r, uint64_t epoch, uint64_t *order) {
    static uint64_t all[PARTS_ITEMS];
    uint64_t c = r->d.pipe.streams, size = r->d.batch_size, each = size / c, n = 0;
    uint64_t steps = (uint64_t)r->d.pipe.steps_per_epoch, full = steps ? steps : r->total / size;
    parts_items_of(r, epoch, all);
    for (uint64_t k = 0; k < full; k++)
        for (uint64_t s = 0; s < c; s++)
            for (uint64_t i = 0; i < each; i++) {
                uint64_t from = s * r->total / c, to = (s + 1) * r->total / c;
                uint64_t at = k * each + i;
                order[n++] = all[from + (steps ? at % (to - from) : at)];
            }
    for (uint64_t s = 0; s < c && steps == 0; s++) {
        uint64_t from = s * r->total / c + full * each, to = (s + 1) * r->total / c;
        while (from < to) order[n++] = all[from++];
    }
    return parts_positions(r);
}

static inline uint64_t parts_batches(const parts_rig *r) {
    uint64_t size = r->d.batch_size;
    return (parts_positions(r) + size - 1) / size;
}

/* Is b, of rank 0 or another, what the order says? short_part: rows of this part + 1 are left
   out. */
static inline int parts_batch_same(const parts_rig *r, const dlp_batch *b, const uint64_t *order,
                                   uint64_t short_part) {
    const uint64_t *words = b->fields[0].data;
    uint64_t n = parts_positions(r);
    int ok = 1;
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t at = b->position + i, index = order[at % n], part = 0;
        while (index >= r->first[part + 1]) part++;
        ok &= b->index[i] == index;
        if (short_part == part + 1)
            ok &= b->valid[i] == 0 && words[i] == 0;
        else
            ok &= words[i] == parts_word(index) && b->valid[i] == (at < n);
    }
    return ok;
}

static inline int parts_say(int rc, const dlp_error *err) {
    char text[700];
    dlp_error_format(err, text, sizeof text);
    printf("%s: %s\n", dlp_code_name(rc), text);
    return rc;
}

static inline int parts_open(parts_rig *r, dlp_pipe **p) {
    dlp_error err;
    int rc = dlp_loader_open(p, &r->d, &err);
    return rc == DLP_OK ? rc : parts_say(rc, &err);
}

/* Run to the end, from epoch 0 or where it resumes; all batches are as the order says. Returns how
   many there were, -1: something was not. */
static inline int64_t parts_run_on(parts_rig *r, uint64_t short_part) {
    static uint64_t order[2 * PARTS_ITEMS];
    dlp_pipe *p;
    dlp_batch *b;
    int64_t n = 0;
    uint64_t epoch = UINT64_MAX;
    int rc, ok = 1;
    if (parts_open(r, &p) != DLP_OK) return -1;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (b->epoch != epoch) parts_order(r, epoch = b->epoch, order);
        ok &= parts_batch_same(r, b, order, short_part);
        ok &= dlp_pipe_release(p, b) == DLP_OK;
        n++;
    }
    if (rc != DLP_END) parts_say(rc, dlp_pipe_error(p));
    ok &= rc == DLP_END && r->seen->wrong == 0;
    ok &= dlp_pipe_close(p) == DLP_OK;
    return ok ? n : -1;
}

/* ---- files ---- */

static char parts_dir[64]; /* made for this run, with nothing in it but what the test puts there */
static char parts_names[PARTS_MAX][32];
static dlp_part_file parts_list[PARTS_MAX];

static inline void parts_path(char *path, const char *name, const char *more) {
    snprintf(path, 128, "%s/%s%s", parts_dir, name, more);
}

static inline int parts_dir_make(void) {
    snprintf(parts_dir, sizeof parts_dir, "/tmp/parts-XXXXXX");
    return mkdtemp(parts_dir) != NULL;
}

static inline void parts_dir_clear(int remove_it) {
    char command[128];
    snprintf(command, sizeof command, remove_it ? "rm -rf %s" : "rm -f %s/*", parts_dir);
    if (system(command) != 0) puts(command);
}

/* Items of part k, from the file's beginning. */
static inline int parts_write(const parts_rig *r, uint64_t k, int fd) {
    for (uint64_t i = r->first[k]; i < r->first[k + 1]; i++) {
        uint64_t word = parts_word(i);
        if (write(fd, &word, 8) != 8) return 1;
    }
    return 0;
}

/* A file for each part, "shard-K", or with ranges one file for all, with bytes in front. */
static inline void parts_files(parts_rig *r, dlp_part_files *f, int ranges) {
    memset(f, 0, sizeof *f);
    for (uint64_t k = 0; k < r->d.parts.n_parts; k++) {
        snprintf(parts_names[k], sizeof parts_names[k], ranges ? "all" : "shard-%d", (int)k);
        parts_list[k].path = parts_names[k];
        parts_list[k].offset = ranges ? 5 + 8 * r->first[k] : 0;
        parts_list[k].bytes = ranges ? 8 * r->items[k] : 0;
    }
    f->files = parts_list;
    f->n_files = r->d.parts.n_parts;
    f->dir = parts_dir;
    r->d.parts.load = dlp_part_files_load;
    r->d.parts.user = f;
}

static inline int parts_files_write(const parts_rig *r, int ranges) {
    for (uint64_t k = 0; k < r->d.parts.n_parts; k++) {
        char path[128];
        int fd;
        parts_path(path, parts_names[k], "");
        fd = open(path, O_WRONLY | O_CREAT | (ranges ? O_APPEND : O_TRUNC), 0600);
        if (fd < 0 || (ranges && k == 0 && write(fd, "front", 5) != 5)) return 0;
        if (parts_write(r, k, fd) != 0 || close(fd) != 0) return 0;
    }
    return 1;
}

#endif
