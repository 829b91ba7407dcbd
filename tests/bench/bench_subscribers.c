/* Items a second of a pipe whose batches other programs take: one, two or three of them, each of
   whom gets all (each), or all together (one), beside the same pipe with its own consumer in the
   same rounds. Items of 784 bytes, batches of 64, 16 of them ahead, two worker threads. A program
   reads a word of each item. The rate of "each" is that of the slowest. Ratios are medians of
   rounds.

     bench_subscribers [rounds] */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"

#include "bench_rig.h"

enum { BATCH = 64, PREFETCH = 16, WORKERS = 2, MOST = 3, WORDS = 98 };

static uint64_t items = 8000000; /* a sample of 0.3 s and more */

/* What programs tell: in memory that they share. */
static struct taken { uint64_t begin, end, items, checksum; } * taken;

static int fetch(void *user, dlp_item *it) {
    uint64_t *to = it->data[0];
    (void)user;
    for (int i = 0; i < WORDS; i++) to[i] = it->index;
    return 0;
}

static void look_at(struct taken *t, const dlp_batch *b) {
    const uint64_t *words = b->fields[0].data;
    if (t->items == 0) t->begin = dlpi_now_ns();
    for (uint32_t i = 0; i < b->count; i++) t->checksum += words[(size_t)i * WORDS + i];
    t->items += b->count;
    t->end = dlpi_now_ns();
}

static int open_pipe(dlp_pipe **p, dlp_shm_desc *shm) {
    static const dlp_field field = {"words", DLP_U64, 1, {WORDS}, 0, 0};
    dlp_loader_desc d = {.dataset = {.n_items = items, .fields = &field, .n_fields = 1},
                         .batch_size = BATCH,
                         .num_workers = WORKERS};
    dlp_error err;
    int rc;
    d.dataset.fetch = fetch;
    d.pipe.prefetch_factor = PREFETCH;
    d.pipe.shm = shm;
    if (shm != NULL && shm->share == DLP_SHARE_ONE) d.pipe.max_held = shm->wait_subscribers;
    rc = dlp_loader_open(p, &d, &err);
    if (rc != DLP_OK) say("%s\n", err.message);
    return rc;
}

/* Items a second of those that t tells of. */
static double rate_of(const struct taken *t) {
    return t->end > t->begin ? (double)t->items * 1e9 / (double)(t->end - t->begin) : NAN;
}

static double sample_plain(void *unused) {
    dlp_pipe *p;
    dlp_batch *b;
    int rc;
    (void)unused;
    memset(taken, 0, sizeof *taken);
    if (open_pipe(&p, NULL) != DLP_OK) return NAN;
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        look_at(taken, b);
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END || taken->items != items) failures++;
    dlp_pipe_close(p);
    return rate_of(taken);
}

/* A program that takes batches, from when there is a pipe of that name. */
static int take(const char *name, struct taken *t) {
    dlp_subscriber *c = NULL;
    dlp_batch *b;
    dlp_error err;
    int rc = DLP_ERR_SYSTEM;
    for (int i = 0; i < 5000 && rc != DLP_OK; i++) {
        rc = dlp_subscriber_open(&c, name, NULL, &err);
        if (rc != DLP_OK) sleep_us(1000);
    }
    if (rc != DLP_OK) return 1;
    while ((rc = dlp_subscriber_next_timeout(c, &b, WAIT_MS)) == DLP_OK) {
        look_at(t, b);
        dlp_subscriber_release(c, b);
    }
    dlp_subscriber_close(c);
    return rc != DLP_END;
}

struct shared {
    int share, subscribers;
};

/* Of each: the slowest; of one: all together. */
static double rate_of_all(const struct shared *how) {
    struct taken all = {UINT64_MAX, 0, 0, 0};
    double slowest = INFINITY;
    for (int i = 0; i < how->subscribers; i++) {
        if (how->share == DLP_SHARE_EACH && taken[i].items != items) failures++;
        if (taken[i].items == 0) continue;
        slowest = fmin(slowest, rate_of(&taken[i]));
        if (taken[i].begin < all.begin) all.begin = taken[i].begin;
        if (taken[i].end > all.end) all.end = taken[i].end;
        all.items += taken[i].items;
    }
    if (how->share == DLP_SHARE_EACH) return slowest;
    if (all.items != items) failures++;
    return rate_of(&all);
}

static double sample_shared(void *user) {
    const struct shared *how = user;
    char name[32];
    dlp_shm_desc shm = {
        .name = name, .share = how->share, .serve_only = 1, .wait_subscribers = how->subscribers};
    dlp_pipe *p;
    int status, rc;
    snprintf(name, sizeof name, "bench.%d", (int)getpid());
    memset(taken, 0, MOST * sizeof *taken);
    for (int i = 0; i < how->subscribers; i++)
        if (fork() == 0) _exit(take(name, &taken[i]));
    if (open_pipe(&p, &shm) != DLP_OK) return NAN;
    rc = dlp_shm_serve(p, WAIT_MS);
    if (rc != DLP_END) failures++;
    dlp_pipe_close(p);
    for (int i = 0; i < how->subscribers; i++)
        if (wait(&status) < 0 || status != 0) failures++;
    return rate_of_all(how);
}

static void put_shared(const struct series *s, const char *bench, int subscribers, int a) {
    struct measure m = {.bench = bench, .unit = "items/s"};
    snprintf(m.extra, sizeof m.extra, ",\"subscribers\":%d", subscribers);
    put(&m, s, a, 0);
}

int main(int argc, char **argv) {
    static struct shared each[MOST], one[MOST];
    int rounds = argc > 1 ? atoi(argv[1]) : 7;
    struct series s = {0};
    struct measure plain = {.bench = "subscribers_none", .unit = "items/s"};
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 7;
    quick = asked_for("QUICK");
    if (quick) items = 5000000;
    taken =
        mmap(NULL, MOST * sizeof *taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    if (taken == MAP_FAILED || !lines_to("build/bench/subscribers.jsonl", "w")) return 1;
    compete(&s, "plain", "", sample_plain, NULL);
    for (int i = 0; i < MOST; i++) {
        each[i] = (struct shared){DLP_SHARE_EACH, i + 1};
        one[i] = (struct shared){DLP_SHARE_ONE, i + 1};
        compete(&s, "each", "", sample_shared, &each[i]);
        compete(&s, "one", "", sample_shared, &one[i]);
    }
    run_rounds(&s, "subscribers", rounds);
    put(&plain, &s, 0, -1);
    for (int i = 0; i < MOST; i++) put_shared(&s, "subscribers_each", i + 1, 1 + 2 * i);
    for (int i = 0; i < MOST; i++) put_shared(&s, "subscribers_one", i + 1, 2 + 2 * i);
    return fclose(lines_file) != 0 || failures > 0;
}
