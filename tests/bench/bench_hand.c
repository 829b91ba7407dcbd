/* bench_hand: a loader of dlpipe.h beside what C++ programmers write by hand (bench_hand_peers.cc):
   the same items out of memory in a shuffled order, into the same number of batches in memory, to
   the same consumer, which reads a word of each line of a batch.

   bench_hand [-o lines.jsonl]
   One JSON object per line on standard output and in the file; progress on standard error. QUICK=1:
   shorter samples, fewer rounds. BUSY=1: others use the machine, so all rounds count, as "busy".
   Before the first sample the items of an epoch are counted and their words summed, weighted by
   their places in a row, for ours and each peer; and by their places in the order for a peer that
   keeps it. A peer that delivers others fails.

   Forms: "default" is the loader as it comes, which clears each row before fetch, prefetch 2;
   "fast" does not clear, prefetch 16. A third one, "ahead", is fast, and ours and the peers that
   fill several rows prefetch the row that comes four rows later. "rows" is that, and ours makes the
   rows of a run in one call, by fetch_rows, with prefetch 16 and 2. "helps" is "rows" where ours
   has one worker, and the consumer helps (consumer_helps). Peers never clear. Their order is made
   before the clock starts and repeats in each epoch; dlpipe shuffles each epoch while it runs.
   The lines hand_cpu_* say what all threads used of the processor while the clock ran. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_hand.h"
#include "bench_rig.h"
#include <sys/prctl.h>
#include <sys/wait.h>

enum { WORKERS = 2 };
#define SOURCE_BYTES (256 * MIB)

static double sample_s = 0.05;

/* ---- the consumer ---------------------------------------------------------------------------- */

struct consumer {
    const struct hand_work *w;
    bool checks;
    uint64_t batches, warm, stride, sum, order_sum, lines_sum;
    double begin, cpu_begin, rate, cpu_ns;
};

/* Sum the words of a row, weighted by their places in it. */
static uint64_t row_sum(const uint8_t *at, uint64_t bytes) {
    uint64_t sum = 0;
    for (uint64_t k = 0; k < bytes / 8; k++) {
        uint64_t word;
        memcpy(&word, at + 8 * k, 8);
        sum += word * (2 * k + 1);
    }
    return sum;
}

static bool take_and_check(struct consumer *c, const uint8_t *rows) {
    const struct hand_work *w = c->w;
    for (uint64_t r = 0, at = c->batches * w->batch; r < w->batch; r++, at++) {
        uint64_t sum = row_sum(rows + r * w->row_bytes, w->row_bytes);
        c->sum += sum;
        c->order_sum += sum * (2 * at + 1);
    }
    return ++c->batches < w->n_items / w->batch;
}

bool hand_take(void *consumer, const uint8_t *rows) {
    struct consumer *c = consumer;
    if (c->checks) { return take_and_check(c, rows); }
    uint64_t sum = 0, bytes = c->w->batch * c->w->row_bytes;
    for (uint64_t at = 0; at < bytes; at += 64) { sum += rows[at]; }
    c->lines_sum += sum;
    if (++c->batches == c->warm) {
        c->cpu_begin = own_cpu_seconds();
        c->begin = seconds_now();
    }
    if (c->batches <= c->warm || (c->batches - c->warm) % c->stride != 0) { return true; }
    double took = seconds_now() - c->begin;
    if (took < sample_s || c->batches < 3 * c->warm) { return true; }
    double items = (double)((c->batches - c->warm) * c->w->batch);
    c->rate = items / took;
    c->cpu_ns = (own_cpu_seconds() - c->cpu_begin) * 1e9 / items;
    return false;
}

/* ---- ours ------------------------------------------------------------------------------------ */

static void die(const char *what, const dlp_error *err) {
    char text[512] = "";
    if (err != NULL) { dlp_error_format(err, text, sizeof text); }
    say("%s: %s\n", what, text);
    exit(1);
}

static int fetch_item(void *user, dlp_item *item) {
    const struct hand_work *w = user;
    for (uint64_t next; w->ahead && (next = dlp_item_ahead(item)) != UINT64_MAX;)
        hand_prefetch(w, next);
    hand_item(user, item->index, item->data[0]);
    return 0;
}

/* The same for several items: a fetch_rows. */
static int fetch_items(void *user, dlp_item *items, uint32_t n, uint32_t *made) {
    const struct hand_work *w = user;
    (void)made;
    for (uint32_t i = 0; i < n && i < HAND_AHEAD; i++) { hand_prefetch(w, items[i].index); }
    for (uint32_t i = 0; i < n; i++) {
        if (i + HAND_AHEAD < n) { hand_prefetch(w, items[i + HAND_AHEAD].index); }
        hand_item(user, items[i].index, items[i].data[0]);
    }
    return 0;
}

static void run_ours(const struct hand_work *w, bool is_fast, void *consumer) {
    const dlp_field field = {
        .name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {(int64_t)w->row_bytes}};
    const dlp_loader_desc desc = {.dataset = {.n_items = w->n_items,
                                              .fields = &field,
                                              .n_fields = 1,
                                              .writes_all_bytes = is_fast,
                                              .fetch = w->by_rows ? NULL : fetch_item,
                                              .fetch_rows = w->by_rows ? fetch_items : NULL,
                                              .user = (void *)(uintptr_t)w},
                                  .batch_size = w->batch,
                                  .num_workers = (int)w->workers - w->helps,
                                  .workers = {.consumer_helps = w->helps},
                                  .shuffle = 1,
                                  .epochs = DLP_FOREVER,
                                  .seed = 20250131,
                                  .pipe = {.prefetch_factor = (int)w->slots - 1}};
    dlp_pipe *p = NULL;
    dlp_error err;
    if (dlp_loader_open(&p, &desc, &err) != DLP_OK) { die("open", &err); }
    for (bool more = true; more;) {
        dlp_batch *b = NULL;
        if (dlp_pipe_next_timeout(p, &b, WAIT_MS) != DLP_OK) { die("next", dlp_pipe_error(p)); }
        more = hand_take(consumer, b->fields[0].data);
        dlp_pipe_release(p, b);
    }
    dlp_pipe_close(p);
}

/* ---- contenders ------------------------------------------------------------------------------ */

/* peer: NULL for ours. cpu: of each round; round: the number of the current one. */
struct contestant {
    const struct hand_peer *peer;
    const struct hand_work *work;
    bool is_fast;
    double *cpu;
    const int *round;
};

static void run_one(const struct contestant *who, struct consumer *c) {
    if (who->peer == NULL) {
        run_ours(who->work, who->is_fast, c);
    } else {
        who->peer->run(who->work, c);
    }
}

static double sample_rate(void *arg) {
    const struct contestant *who = arg;
    const struct hand_work *w = who->work;
    struct consumer c = {.w = w, .warm = 2 * w->slots};
    c.stride = w->batch * w->row_bytes < MIB ? 16 : 1;
    run_one(who, &c);
    who->cpu[*who->round] = c.cpu_ns;
    return c.rate;
}

/* True if it delivers each item of an epoch once, and in the order if it says so. */
static bool is_same(const struct contestant *who, uint64_t sum, uint64_t order_sum) {
    struct consumer c = {.w = who->work, .checks = true};
    run_one(who, &c);
    return c.sum == sum &&
           (who->peer == NULL || !who->peer->is_ordered || c.order_sum == order_sum);
}

/* ---- rows of the table ----------------------------------------------------------------------- */

static uint32_t turns_of_us; /* turns of hand_compute in a microsecond */

/* Take the fastest of a few runs: others use the machine, too. */
static void calibrate(void) {
    double best = INFINITY;
    uint64_t x = 1, turns = 1000000;
    for (int i = 0; i < 20; i++) {
        double begin = seconds_now();
        x = hand_compute(x, turns);
        double took = seconds_now() - begin;
        best = took < best ? took : best;
    }
    turns_of_us = x == 0 ? 0 : (uint32_t)((double)turns * 1e-6 / best);
    say("%u turns of computing are a microsecond\n", turns_of_us);
}

static uint8_t *make_source(void) {
    uint64_t *words = malloc(SOURCE_BYTES);
    if (words == NULL) { die("memory", NULL); }
    for (uint64_t i = 0; i < SOURCE_BYTES / 8; i++) { words[i] = hand_compute(i + 1, 2); }
    return (uint8_t *)words;
}

static uint32_t *make_order(uint64_t n) {
    uint32_t *order = malloc(n * sizeof *order);
    dlp_permutation shuffled;
    if (order == NULL) { die("memory", NULL); }
    dlp_permutation_init(&shuffled, n, 20250131, 0);
    for (uint64_t i = 0; i < n; i++) { order[i] = (uint32_t)dlp_permutation_at(&shuffled, i); }
    return order;
}

static const char *form_of(const struct hand_work *w, bool is_fast) {
    return w->helps     ? "helps"
           : w->by_rows ? "rows"
           : w->ahead   ? "ahead"
           : is_fast    ? "fast"
                        : "default";
}

static void put_all(struct measure m, const struct hand_work *w, bool is_fast,
                    const struct series *s, const int *at) {
    for (int i = 0; i < hand_n_peers; i++) {
        snprintf(m.extra, sizeof m.extra,
                 ",\"variant\":\"%s\",\"item_bytes\":%" PRIu64
                 ",\"batch\":%u,\"prefetch\":%u,\"threads\":%u",
                 form_of(w, is_fast), w->row_bytes, w->batch, w->slots - 1, w->workers);
        if (at[i] > 0) {
            put(&m, s, 0, at[i]);
        } else if (hand_peers[i].missing != NULL) {
            put_skipped(m.bench, hand_peers[i].name, hand_peers[i].missing, m.extra);
        }
    }
}

/* Begin n processes that compute without end, beside whatever is measured. */
static pid_t others[8];
static void begin_others(int n) {
    for (int i = 0; i < n; i++) {
        others[i] = fork();
        if (others[i] < 0) { die("fork", NULL); }
        if (others[i] > 0) { continue; }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile uint64_t x = 1;;) x = hand_compute(x, 1000);
    }
}

static void end_others(int n) {
    for (int i = 0; i < n; i++) {
        kill(others[i], SIGKILL);
        waitpid(others[i], NULL, 0);
    }
}

/* Measure one form of a row, ours and all peers in turn. */
static void one_form(const char *name, const struct hand_work *w, bool is_fast) {
    struct contestant who[MAX_CONTENDERS];
    int at[MAX_CONTENDERS] = {0};
    struct series s = {0}, cpu = {0};
    uint64_t sum = 0, order_sum = 0;
    for (uint64_t i = 0; i < w->n_items; i++) {
        uint64_t row = row_sum(w->source + w->order[i] * w->row_bytes, w->row_bytes);
        sum += row;
        order_sum += row * (2 * i + 1);
    }
    for (int i = -1; i < hand_n_peers; i++) {
        const struct hand_peer *peer = i < 0 ? NULL : &hand_peers[i];
        struct contestant *it = &who[s.n_who];
        *it = (struct contestant){peer, w, is_fast, cpu.value[s.n_who], &s.n_rounds};
        if (peer != NULL && peer->missing != NULL) { continue; }
        if (!is_same(it, sum, order_sum)) { die("other items", NULL); }
        if (peer != NULL) { at[i] = s.n_who; }
        compete(&s, peer == NULL ? "ours" : peer->name, peer == NULL ? "" : peer->version,
                sample_rate, it);
    }
    say("%s, %s: every byte is the same\n", name, form_of(w, is_fast));
    run_rounds(&s, name, quick ? 2 : 9);
    put_all((struct measure){.bench = name, .unit = "item/s"}, w, is_fast, &s, at);
    char cpu_name[64];
    snprintf(cpu_name, sizeof cpu_name, "hand_cpu_%s", name + strlen("hand_"));
    memcpy(s.value, cpu.value, sizeof s.value);
    put_all((struct measure){.bench = cpu_name, .unit = "ns an item", .lower_is_better = true}, w,
            is_fast, &s, at);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        uint64_t n_items, row_bytes;
        uint32_t batch, us;
        bool skewed;
        int others; /* busy processes beside it */
    } rows[] = {{"hand_8B", 1 << 20, 8, 64, 0, false, 0},
                {"hand_784B", 64000, 784, 64, 0, false, 0},
                {"hand_4KiB", 16384, 4096, 64, 0, false, 0},
                {"hand_100KB", 1280, 100000, 32, 0, false, 0},
                {"hand_1MiB", 256, MIB, 16, 0, false, 0},
                {"hand_784B_5us", 64000, 784, 64, 5, false, 0},
                {"hand_784B_skew", 64000, 784, 64, 2, true, 0},
                {"hand_784B_batch1", 64000, 784, 1, 0, false, 0},
                {"hand_784B_load8", 64000, 784, 64, 0, false, 8}};
    const char *only = NULL;
    quick = asked_for("QUICK");
    sample_s = quick ? 0.03 : 0.05;
    for (int c; (c = getopt(argc, argv, "o:r:")) != -1;) {
        if (c == 'r') { only = optarg; }
        if (c == '?' || (c == 'o' && !lines_to(optarg, "w"))) { return 2; }
    }
    double begin = seconds_now();
    calibrate();
    uint8_t *source = make_source();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double usual_s = sample_s;
        if (only != NULL && strcmp(only, rows[i].name) != 0) { continue; }
        if (rows[i].others > 0) { sample_s *= 10; } /* many time slices */
        begin_others(rows[i].others);
        uint32_t *order = make_order(rows[i].n_items);
        struct hand_work w = {.n_items = rows[i].n_items,
                              .row_bytes = rows[i].row_bytes,
                              .batch = rows[i].batch,
                              .workers = WORKERS,
                              .turns = rows[i].us * turns_of_us,
                              .skewed = rows[i].skewed,
                              .source = source,
                              .order = order};
        for (int form = 0; form < 7; form++) {
            w.slots = form > 0 && form != 4 && form != 6 ? 17 : 3;
            w.ahead = form > 1;
            w.by_rows = form > 2;
            w.helps = form > 4;
            if (form < 2 || strcmp(rows[i].name, "hand_784B") == 0)
                one_form(rows[i].name, &w, form > 0);
        }
        free(order);
        end_others(rows[i].others);
        sample_s = usual_s;
    }
    free(source);
    say("%d failures, %.0f s\n", failures, seconds_now() - begin);
    return failures != 0;
}
