/* Items that take long to come and cost nothing: how many a second, by topology and fetcher.

     concurrent [-n items] [-w workers] [-k in_flight] [-l latency_ms] [DIR]

   Without DIR the items come from a store that only exists here, which answers after 30 ms,
   whatever else it has to do. With DIR they are the files of that directory, the first 64 KiB of
   each, read after as many ms (-l 0: at once). Every row of the table reads the same items in the
   same order, and the program says so.
   cc -O2 concurrent.c -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BATCH 32
#define MOST_FILES 100000
#define BYTES 65536 /* of a file */
#define MOST_OUT 1024

typedef struct store {
    int latency_ms;
    const char *dir; /* NULL: there are no files */
    char **file;
    uint64_t n;
} store;

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static int open_file(const store *s, const dlp_item *item) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", s->dir, s->file[item->index]);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* What the store answers. fd: the file, which is closed; -1: of the store that only exists here. */
static int answer(const store *s, dlp_item *item, int fd) {
    ssize_t n = sizeof(uint64_t);
    if (s->dir == NULL) {
        uint64_t word = dlp_item_random(item, 1);
        memcpy(item->data[0], &word, sizeof word);
    } else {
        if (fd >= 0) n = pread(fd, item->data[0], BYTES, 0);
        if (fd < 0 || n < 0)
            n = dlp_fail(item->call, errno, "%s: can't be read", s->file[item->index]);
        if (fd >= 0) close(fd);
    }
    if (n < 0) return (int)n;
    item->length[0] = (uint64_t)n;
    return 0;
}

/* ---- one after the other, and in threads: a callback that waits ---- */

static int fetch(void *user, dlp_item *item) {
    const store *s = user;
    poll(NULL, 0, s->latency_ms);
    return answer(s, item, s->dir ? open_file(s, item) : -1);
}

/* ---- asynchronous: a worker's own list of what it asked for, oldest first ---- */

typedef struct request {
    dlp_item *item;
    uint64_t due_ms;
    int fd;
} request;

typedef struct requests {
    request at[MOST_OUT];
    unsigned begun, over;
} requests;

static int begin(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    *state = calloc(1, sizeof(requests));
    return *state ? 0 : -1;
}

static void end(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    free(state);
}

/* The kernel begins to read the file; nobody waits for it. */
static int submit(void *user, void *state, dlp_item *item) {
    const store *s = user;
    requests *r = state;
    request *q = &r->at[r->begun % MOST_OUT];
    if (r->begun - r->over == MOST_OUT) return DLP_FULL;
    q->item = item;
    q->due_ms = now_ms() + (uint64_t)s->latency_ms;
    q->fd = s->dir ? open_file(s, item) : -1;
#ifdef POSIX_FADV_WILLNEED /* macOS has no such call */
    if (q->fd >= 0) posix_fadvise(q->fd, 0, BYTES, POSIX_FADV_WILLNEED);
#endif
    r->begun++;
    return 0;
}

static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    const store *s = user;
    requests *r = state;
    uint64_t now = now_ms(), due;
    int n = 0;
    if (r->begun == r->over) return 0;
    due = r->at[r->over % MOST_OUT].due_ms;
    if (timeout_ms > 0 && due > now) {
        poll(NULL, 0, due - now < (uint64_t)timeout_ms ? (int)(due - now) : timeout_ms);
        now = now_ms();
    }
    for (; n < max && r->begun != r->over && r->at[r->over % MOST_OUT].due_ms <= now; n++) {
        request *q = &r->at[r->over++ % MOST_OUT];
        done[n] = q->item;
        code[n] = answer(s, q->item, q->fd);
    }
    return n;
}

/* ---- the table ---- */

static int list_files(store *s) {
    DIR *d = opendir(s->dir);
    const struct dirent *e;
    s->file = calloc(MOST_FILES, sizeof *s->file);
    s->n = 0;
    while (d && s->file && s->n < MOST_FILES && (e = readdir(d)) != NULL) {
        struct stat st;
        if (fstatat(dirfd(d), e->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode)) continue;
        if ((s->file[s->n] = strdup(e->d_name)) != NULL) s->n++;
    }
    if (d) closedir(d);
    return s->n > 0;
}

static void forget_files(store *s) {
    for (uint64_t i = 0; s->file && i < s->n; i++) free(s->file[i]);
    free(s->file);
}

/* Run one epoch; returns the hash of all that came, 0 after an error. */
static uint64_t run(const dlp_loader_desc *desc, const char *name) {
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    dlp_error err;
    uint64_t hash = 1;
    int rc = dlp_loader_open(&p, desc, &err);
    if (rc != DLP_OK) return printf("%s: %s: %s\n", name, err.field, err.message), 0;
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++) {
            uint64_t word;
            memcpy(&word, (const uint8_t *)b->fields[0].data + i * (b->fields[0].bytes / b->count),
                   sizeof word);
            hash = dlp_hash(hash, b->index[i], word, b->fields[0].lengths[i]);
        }
        dlp_pipe_release(p, b);
    }
    if (rc == DLP_END && dlp_pipe_stats(p, &s) == DLP_OK)
        printf("%-11s %-11s %9.0f items/s %9.1f MB planned, %3u batches\n", name,
               desc->fetcher == DLP_FETCH_ASYNC     ? "async"
               : desc->fetcher == DLP_FETCH_THREADS ? "threads"
                                                    : "sequential",
               (double)s.items * 1e9 / (double)s.elapsed_ns, (double)s.plan_bytes / 1e6, s.slots);
    else
        printf("%s: %s\n", name, dlp_pipe_error(p)->message);
    dlp_pipe_close(p);
    return rc == DLP_END ? hash : 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int topology, fetcher;
    } rows[] = {{"economic", DLP_TOPOLOGY_ECONOMIC, DLP_FETCH_SEQUENTIAL},
                {"economic", DLP_TOPOLOGY_ECONOMIC, DLP_FETCH_THREADS},
                {"economic", DLP_TOPOLOGY_ECONOMIC, DLP_FETCH_ASYNC},
                {"classic", DLP_TOPOLOGY_CLASSIC, DLP_FETCH_SEQUENTIAL},
                {"concurrent", DLP_TOPOLOGY_CONCURRENT, DLP_FETCH_THREADS},
                {"concurrent", DLP_TOPOLOGY_CONCURRENT, DLP_FETCH_ASYNC}};
    store s = {.latency_ms = 30, .n = 1280};
    dlp_field field = {.name = "bytes", .dtype = DLP_U8, .ndim = 1, .shape = {8}, .ragged = 1};
    int workers = 4, in_flight = 16, c, wrong = 0;
    uint64_t first = 0;
    while ((c = getopt(argc, argv, "n:w:k:l:")) != -1) {
        if (c == 'n') s.n = strtoull(optarg, NULL, 10);
        if (c == 'w') workers = (int)strtol(optarg, NULL, 10);
        if (c == 'k') in_flight = (int)strtol(optarg, NULL, 10);
        if (c == 'l') s.latency_ms = (int)strtol(optarg, NULL, 10);
        if (c == '?') optind = argc + 1;
        if (c == '?') break;
    }
    if (optind > argc || argc - optind > 1) {
        fputs("usage: concurrent [-n items] [-w workers] [-k in_flight] [-l latency_ms] [DIR]\n",
              stderr);
        return 2;
    }
    s.dir = optind < argc ? argv[optind] : NULL;
    if (s.dir) field.shape[0] = BYTES;
    if (s.dir && !list_files(&s)) {
        printf("%s: no files\n", s.dir);
        forget_files(&s);
        return 1;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dlp_loader_desc desc = {
            .dataset =
                {.n_items = s.n, .fields = &field, .n_fields = 1, .fetch = fetch, .user = &s},
            .batch_size = BATCH,
            .num_workers = workers,
            .shuffle = 1,
            .workers = {.worker_init = begin, .worker_exit = end},
            .topology = rows[i].topology,
            .fetcher = rows[i].fetcher,
            .in_flight = rows[i].fetcher ? in_flight : 0,
            .async = {submit, reap},
            /* as many batches as the workers have items in flight, and as many again */
            .pipe = {.prefetch_factor =
                         rows[i].topology ? 0 : 2 * (workers * in_flight + BATCH - 1) / BATCH},
        };
        uint64_t hash = run(&desc, rows[i].name);
        if (i == 0) first = hash;
        wrong += hash == 0 || hash != first;
    }
    forget_files(&s);
    puts(wrong ? "the rows differ" : "each row read the same items in the same order");
    return wrong != 0;
}
