/* bench_peers: a loader of dlpipe.h beside the loaders that the field would name, on the same work:
   rows of 784 B in batches of 64 at prefetch 2 and 16, rows of 1 MiB in batches of 16; out of
   memory, in a shuffled order, by two workers; the same beside a thread of the trainer that takes
   half a core. Then what an epoch's border, a resume and a state cost. Floors: two threads that do
   nothing but copy rows into slots, and numpy's own indexing.

   bench_peers [-o lines.jsonl] [-l libtorch] [-t bench_peers.py] [peer...]
   One JSON object per line on standard output and in the file; progress on standard error. QUICK=1:
   shorter samples, fewer rounds. PYTHON: who has the peers. Each peer is a process that lives on
   (bench_peers.py, bench_peer_libtorch.cc): nothing is started in a sample. Before the first, the
   items of an epoch are counted and their words summed, weighted by their places in a row, for ours
   and each peer; one that delivers others is not compared. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_rig.h"

enum { WORKERS = 2, BORDERS = 9 };

/* A peer is asked for by the first word of its name. libtorch: what max_jobs is. */
static const struct {
    const char *name, *form, *libtorch;
} known[] = {{"libtorch, max_jobs = prefetch", "C++, get_batch", "prefetch"},
             {"libtorch, max_jobs = prefetch x workers", "C++, get_batch", "product"},
             {"tfdata", "tf.gather of a batch of indices", NULL},
             {"spdl", "a batch of indices", NULL},
             {"grain", "items", NULL},
             {"nodes", "torchdata.nodes, a batch of indices", NULL},
             {"stateful", "StatefulDataLoader, __getitems__", NULL},
             {"torch_bulk", "__getitems__", NULL},
             {"torch", "__getitem__", NULL},
             {"webdataset", "tar shards in memory", NULL},
             {"numpy", "indexing, no loader", NULL}};
enum { PEERS = sizeof known / sizeof *known };

/* The work, and what it adds up to. */
struct work {
    uint64_t n_items, row_bytes;
    uint32_t batch;
    int prefetch;
    const uint8_t *source;
    uint64_t sum;
};

static uint64_t slots_of(const struct work *w) { return (uint64_t)w->prefetch + 1; }

struct peer {
    struct torch child;
    const struct work *work;
    bool compared;
};
static struct peer peers[PEERS];
static double sample_s = 0.4;

/* ---- a peer's side --------------------------------------------------------------------------- */

/* bench_rig.h talks to one child: this one, for a command. */
static bool peer_ask(struct peer *p, double *answer, int n, const char *command) {
    torch = p->child;
    bool good = torch_ask(answer, n, "%s", command);
    p->child = torch;
    return good;
}

static bool is_named(int peer, const char *word) {
    size_t n = strlen(word);
    return strcspn(known[peer].name, ",") == n && memcmp(known[peer].name, word, n) == 0;
}

static void peers_begin(const char *libtorch, char **wanted, int n_wanted) {
    for (int i = 0; i < PEERS; i++) {
        bool asked = n_wanted == 0;
        for (int k = 0; k < n_wanted; k++) { asked |= is_named(i, wanted[k]); }
        torch = (struct torch){.in = -1, .out = -1};
        if (!asked) {
            snprintf(torch.missing, sizeof torch.missing, "it was not asked for");
        } else if (known[i].libtorch != NULL) {
            torch_begin_as((const char *const[]){libtorch, known[i].libtorch, NULL});
        } else {
            torch_begin_as(
                (const char *const[]){python_path(), "-uB", torch_script, known[i].name, NULL});
        }
        peers[i].child = torch;
        say("%-12s %s %s\n", known[i].name, torch.version, torch.missing);
    }
}

static void peers_end(void) {
    for (int i = 0; i < PEERS; i++) {
        torch = peers[i].child;
        torch_end("");
    }
}

/* Have it make the source and start; it must deliver an epoch's items, every byte. */
static bool peer_open(struct peer *p, const struct work *w) {
    char command[128];
    double got[3];
    snprintf(command, sizeof command, "open %" PRIu64 " %" PRIu64 " %u %d %d", w->n_items,
             w->row_bytes, w->batch, WORKERS, w->prefetch);
    if (p->child.pid <= 0 || !peer_ask(p, NULL, 0, command) || !peer_ask(p, got, 3, "check")) {
        return false;
    }
    uint64_t sum = (uint64_t)got[1] << 32 | (uint64_t)got[2];
    bool same = (uint64_t)got[0] == w->n_items && sum == w->sum;
    if (!same) {
        say("%.0f items, sum %016" PRIx64 " instead of %" PRIu64 ", %016" PRIx64 "\n", got[0], sum,
            w->n_items, w->sum);
        failures++;
    }
    return same;
}

static double sample_peer_rate(void *arg) {
    char command[32];
    double rate;
    snprintf(command, sizeof command, "rate %d", (int)(sample_s * 1e3));
    return peer_ask(arg, &rate, 1, command) ? rate : NAN;
}

static double sample_peer_gap(void *arg) {
    char command[32];
    double us;
    snprintf(command, sizeof command, "gap %d", BORDERS);
    return peer_ask(arg, &us, 1, command) ? us : NAN;
}

static double peer_resume(void *arg, int figure) {
    double answer[2];
    return peer_ask(arg, answer, 2, "resume") ? answer[figure] : NAN;
}

static double sample_peer_resume(void *arg) { return peer_resume(arg, 0); }
static double sample_peer_state(void *arg) { return peer_resume(arg, 1); }

/* ---- ours ------------------------------------------------------------------------------------ */

static int fetch_copy(void *user, dlp_item *item) {
    const struct work *w = user;
    memcpy(item->data[0], w->source + item->index * w->row_bytes, w->row_bytes);
    return 0;
}

static void die(const char *what, const dlp_error *err) {
    char text[512] = "";
    if (err != NULL) { dlp_error_format(err, text, sizeof text); }
    say("%s: %s\n", what, text);
    exit(1);
}

static dlp_pipe *ours_open(const struct work *w, int64_t epochs, const dlp_state *resume) {
    const dlp_field field = {
        .name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {(int64_t)w->row_bytes}};
    const dlp_loader_desc desc = {.dataset = {.n_items = w->n_items,
                                              .fields = &field,
                                              .n_fields = 1,
                                              .writes_all_bytes = 1,
                                              .fetch = fetch_copy,
                                              .user = (void *)(uintptr_t)w},
                                  .batch_size = w->batch,
                                  .num_workers = WORKERS,
                                  .shuffle = 1,
                                  .epochs = epochs,
                                  .seed = 20250131,
                                  .pipe = {.prefetch_factor = w->prefetch, .resume = resume}};
    dlp_pipe *p = NULL;
    dlp_error err;
    if (dlp_loader_open(&p, &desc, &err) != DLP_OK) { die("open", &err); }
    return p;
}

/* The next batch; NULL at the end. */
static dlp_batch *ours_next(dlp_pipe *p) {
    dlp_batch *b = NULL;
    int code = dlp_pipe_next_timeout(p, &b, WAIT_MS);
    if (code != DLP_OK && code != DLP_END) { die("next", dlp_pipe_error(p)); }
    return code == DLP_OK ? b : NULL;
}

static uint64_t ours_take(dlp_pipe *p, uint64_t batches) {
    uint64_t items = 0;
    for (uint64_t i = 0; i < batches; i++) {
        dlp_batch *b = ours_next(p);
        items += b->count;
        dlp_pipe_release(p, b);
    }
    return items;
}

static double sample_ours(void *arg) {
    const struct work *w = arg;
    dlp_pipe *p = ours_open(w, DLP_FOREVER, NULL);
    uint64_t items = 0, stride = w->row_bytes < 4096 ? 32 : 2;
    ours_take(p, 2 * slots_of(w));
    double begin = seconds_now(), now = begin;
    for (; now - begin < sample_s; now = seconds_now()) { items += ours_take(p, stride); }
    dlp_pipe_close(p);
    return (double)items / (now - begin);
}

static uint64_t weighted_sum(const void *rows, uint64_t n, uint64_t row_bytes) {
    const uint8_t *at = rows;
    uint64_t sum = 0;
    for (uint64_t r = 0; r < n; r++) {
        for (uint64_t k = 0; k < row_bytes / 8; k++, at += 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            sum += word * (2 * k + 1);
        }
    }
    return sum;
}

static void ours_check(const struct work *w) {
    dlp_pipe *p = ours_open(w, 1, NULL);
    uint64_t items = 0, sum = 0;
    for (dlp_batch *b; (b = ours_next(p)) != NULL; dlp_pipe_release(p, b)) {
        items += b->count;
        sum += weighted_sum(b->fields[0].data, b->count, w->row_bytes);
    }
    dlp_pipe_close(p);
    if (items != w->n_items || sum != w->sum) { die("other items than the source's", NULL); }
    say("every byte: %" PRIu64 " items, sum %016" PRIx64 "\n", items, sum);
}

/* Median time between the batches around an epoch's border, us. */
static double sample_ours_gap(void *arg) {
    const struct work *w = arg;
    dlp_pipe *p = ours_open(w, BORDERS + 1, NULL);
    double gaps[BORDERS], last = 0;
    uint64_t epoch = 0;
    size_t n = 0;
    for (dlp_batch *b; (b = ours_next(p)) != NULL; dlp_pipe_release(p, b)) {
        double now = seconds_now() * 1e6;
        if (b->epoch != epoch && n < BORDERS) { gaps[n++] = now - last; }
        epoch = b->epoch;
        last = now;
    }
    dlp_pipe_close(p);
    return quantile(gaps, n, 0.5);
}

/* ms from a state in the middle of an epoch to the next batch: open, threads and all. */
static double sample_ours_resume(void *arg) {
    const struct work *w = arg;
    dlp_pipe *p = ours_open(w, 1, NULL);
    dlp_state state;
    ours_take(p, 19);
    dlp_batch *b = ours_next(p);
    if (dlp_pipe_state(p, b, &state) != DLP_OK) { die("state", dlp_pipe_error(p)); }
    dlp_pipe_release(p, b);
    dlp_pipe_close(p);
    double begin = seconds_now();
    p = ours_open(w, 1, &state);
    b = ours_next(p);
    double took = seconds_now() - begin;
    if (b->in_epoch != 20) { die("it did not resume", NULL); }
    dlp_pipe_release(p, b);
    dlp_pipe_close(p);
    return took * 1e3;
}

static double sample_ours_state(void *arg) {
    (void)arg;
    return sizeof(dlp_state);
}

/* ---- the floor: two threads that copy -------------------------------------------------------- */

struct copier {
    const struct work *w;
    uint64_t seed, at, batches;
    uint8_t *slots;
    dlp_permutation order;
    pthread_barrier_t *begin;
    double rate;
};

/* Copy rows into the next slots, a number of batches. */
static void copy_batches(struct copier *c, uint64_t n) {
    const struct work *w = c->w;
    for (uint64_t end = c->batches + n; c->batches < end; c->batches++) {
        uint8_t *to = c->slots + c->batches % slots_of(w) * w->batch * w->row_bytes;
        for (uint32_t row = 0; row < w->batch; row++, c->at = (c->at + 1) % w->n_items) {
            memcpy(to + row * w->row_bytes,
                   w->source + dlp_permutation_at(&c->order, c->at) * w->row_bytes, w->row_bytes);
        }
    }
}

/* Each slot is written twice before the clock starts, so that no page is met first in the sample.
   All threads start together. */
static void *copy_rows(void *arg) {
    struct copier *c = arg;
    const struct work *w = c->w;
    c->slots = malloc(slots_of(w) * w->batch * w->row_bytes);
    if (c->slots == NULL) { die("memory", NULL); }
    dlp_permutation_init(&c->order, w->n_items, c->seed, 0);
    copy_batches(c, 2 * slots_of(w));
    pthread_barrier_wait(c->begin);
    double begin = seconds_now(), now = begin;
    uint64_t first = c->batches;
    for (; now - begin < sample_s; now = seconds_now()) { copy_batches(c, 1); }
    c->rate = (double)((c->batches - first) * w->batch) / (now - begin);
    free(c->slots);
    return NULL;
}

static double sample_copy(void *arg) {
    struct copier c[WORKERS];
    pthread_t thread[WORKERS];
    pthread_barrier_t begin;
    double rate = 0;
    pthread_barrier_init(&begin, NULL, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        c[i] = (struct copier){.w = arg, .seed = (uint64_t)i, .begin = &begin};
        if (pthread_create(&thread[i], NULL, copy_rows, &c[i]) != 0) { die("thread", NULL); }
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(thread[i], NULL);
        rate += c[i].rate;
    }
    pthread_barrier_destroy(&begin);
    return rate;
}

/* ---- a thread of the trainer beside ---------------------------------------------------------- */

/* It computes for 2 ms and sleeps for 2 ms. */
static bool beside_over;

static void *beside_run(void *arg) {
    while (!__atomic_load_n(&beside_over, __ATOMIC_RELAXED)) {
        double until = seconds_now() + 2e-3;
        while (seconds_now() < until) {}
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return arg;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Ours first, then each peer that delivers the same; at[] tells which contender it is. */
static void gather(struct series *s, struct work *w, sample_fn ours, sample_fn theirs, int *at) {
    compete(s, "ours", "", ours, w);
    for (int i = 0; i < PEERS; i++) {
        at[i] = peers[i].compared ? s->n_who : -1;
        if (peers[i].compared) {
            compete(s, known[i].name, peers[i].child.version, theirs, &peers[i]);
        }
    }
}

static void put_all(const struct measure *row, const struct series *s, const int *at) {
    for (int i = 0; i < PEERS; i++) {
        struct measure m = *row;
        size_t n = strlen(m.extra);
        snprintf(m.extra + n, sizeof m.extra - n, ",\"form\":\"%s\"", known[i].form);
        if (at[i] < 0) {
            const char *why = peers[i].child.missing;
            put_skipped(m.bench, known[i].name, why[0] != '\0' ? why : "it failed", m.extra);
        } else {
            put(&m, s, 0, at[i]);
        }
    }
}

static void rates(const char *name, struct work *w, bool beside) {
    struct series s = {0};
    pthread_t thread;
    struct measure m = {.bench = name, .unit = "item/s"};
    int at[PEERS];
    snprintf(m.extra, sizeof m.extra,
             ",\"item_bytes\":%" PRIu64 ",\"batch\":%u,\"prefetch\":%d,\"workers\":%d",
             w->row_bytes, w->batch, w->prefetch, WORKERS);
    beside_over = false;
    if (beside && pthread_create(&thread, NULL, beside_run, NULL) != 0) { die("thread", NULL); }
    gather(&s, w, sample_ours, sample_peer_rate, at);
    compete(&s, "copy", "", sample_copy, w);
    run_rounds(&s, name, quick ? 3 : 7);
    __atomic_store_n(&beside_over, true, __ATOMIC_RELAXED);
    if (beside) { pthread_join(thread, NULL); }
    put(&m, &s, 0, s.n_who - 1);
    put_all(&m, &s, at);
}

/* Of an epoch of 100 batches; the peers that keep no state are named. */
static void places(struct work *w) {
    static const struct {
        const char *name, *unit;
        sample_fn ours, theirs;
    } rows[] = {{"peers_epoch_gap", "us", sample_ours_gap, sample_peer_gap},
                {"peers_resume", "ms", sample_ours_resume, sample_peer_resume},
                {"peers_state", "B", sample_ours_state, sample_peer_state}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct series s = {0};
        struct measure m = {.bench = rows[i].name, .unit = rows[i].unit, .lower_is_better = true};
        int at[PEERS];
        gather(&s, w, rows[i].ours, rows[i].theirs, at);
        run_rounds(&s, m.bench, quick || i == 2 ? 1 : 3);
        put(&m, &s, 0, -1);
        put_all(&m, &s, at);
    }
}

/* Rates, alone and beside a thread, or without a name borders, resumes and states. */
static void rows_of(const char *name, const char *beside, struct work *w) {
    uint64_t n = w->n_items * w->row_bytes / 8, *source = malloc(n * 8);
    if (source == NULL) { die("memory", NULL); }
    for (uint64_t i = 0; i < n; i++) { source[i] = mixed(i + 0x9e3779b97f4a7c15u); }
    w->source = (uint8_t *)source;
    w->sum = weighted_sum(source, w->n_items, w->row_bytes);
    ours_check(w);
    for (int i = 0; i < PEERS; i++) {
        double begin = seconds_now();
        peers[i].compared = peer_open(&peers[i], w);
        if (peers[i].compared) {
            say("%s: the same, %.1f s\n", known[i].name, seconds_now() - begin);
        }
    }
    if (name != NULL) {
        rates(name, w, false);
        rates(beside, w, true);
    } else {
        places(w);
    }
    free(source);
}

int main(int argc, char **argv) {
    const char *libtorch = "build/bench/bench_peer_libtorch";
    torch_script = "tests/bench/bench_peers.py";
    quick = asked_for("QUICK");
    sample_s = quick ? 0.15 : 0.4;
    for (int c; (c = getopt(argc, argv, "o:l:t:")) != -1;) {
        if (c == '?' || (c == 'o' && !lines_to(optarg, "w"))) { return 2; }
        libtorch = c == 'l' ? optarg : libtorch;
        torch_script = c == 't' ? optarg : torch_script;
    }
    signal(SIGPIPE, SIG_IGN);
    double begin = seconds_now();
    peers_begin(libtorch, argv + optind, argc - optind);
    struct work small = {.n_items = 60000, .row_bytes = 784, .batch = 64, .prefetch = 2};
    struct work large = {.n_items = 256, .row_bytes = MIB, .batch = 16, .prefetch = 2};
    struct work few = {.n_items = 6400, .row_bytes = 784, .batch = 64, .prefetch = 2};
    rows_of("peers_small", "peers_small_beside", &small);
    small.prefetch = 16;
    rows_of("peers_small", "peers_small_beside", &small);
    rows_of("peers_large", "peers_large_beside", &large);
    rows_of(NULL, NULL, &few);
    peers_end();
    say("%d failures, %.0f s\n", failures, seconds_now() - begin);
    return failures != 0;
}
