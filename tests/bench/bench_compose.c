/* Nanoseconds an item: a map of each item, a filter that keeps half of its inputs, the same with a
   window of 4,096 behind it, an expander that makes four items of each, two datasets zipped and
   mixed half and half, two fetches in a row (one reads into scratch fields, the other makes the
   item of them), a map and a zip that run in the attempt of the fetch (fused), and push, beside a
   plain chain of the same rounds: items of 8 bytes, batches of 64, 16 of them ahead, 1 to 16
   workers (of each stage; what filters and expanders make the consumer copies). A filter's ns are
   those of an input, an expander's those of an item; push is beside a bare bundle of lanes, too,
   and once more without a worker (push_inline): next reads the lanes.
   Ratios are medians of rounds. Items of 784 bytes and of 16 KiB show copies, too: a filter, a mix
   of two branches, an expander of 0 to 4 items, and a filter with a window of 1,024, each beside
   the same written by hand (bench_compose_hand.h). Their ns are those of an input. Windows of 2^16
   and of 2^20 items behind the filter are beside that of 4,096. A sample of theirs has six windows,
   and says what was planned and how much more memory the process had at its peak.

   The clock starts when a pipe has delivered WARM batches: no start of a thread is in a sample.
   A sample is of as many items as take 0.3 s, by the sample before, and takes 0.2 s at least.

     bench_compose [rounds [most workers]] */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_rig.h"
#include "../rig/push_loader.h"

enum {
    BATCH = 64,
    PREFETCH = 16,
    MADE = 4,
    WINDOW = 4096,
    LANE = 4096, /* what a push of 8 bytes has where its desc says nothing */
    PRODUCERS = 4,
    WARM = 4 * PREFETCH
};

static uint64_t items, checksum;
static double sample_s = 0.3;
static const dlp_field word = {"word", DLP_U64, 0, {0}, 0, 0};

#include "bench_compose_hand.h"

static int fetch(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index;
    return 0;
}

static int half(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index;
    return it->index & 1 ? DLP_SKIP : 0;
}

static int expand(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t i = 0; i < MADE; i++)
        *(uint64_t *)dlp_expand_add(x)->data[0] = x->item->index * MADE + i;
    return 0;
}

/* Take all batches. Returns the ns of each of n, which all rows together stand for. */
static double take_all(dlp_pipe *p, uint64_t n) {
    uint64_t begin = 0, batches = 0, rows = 0, warm = 0;
    dlp_batch *b;
    int rc;
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        const uint64_t *words = b->fields[0].data;
        if (made.source != NULL) checksum += made_sum(b->fields[0].data, b->count);
        for (uint32_t i = 0; made.source == NULL && i < b->count; i++) checksum += words[i];
        rows += b->count;
        dlp_pipe_release(p, b);
        if (++batches == WARM) {
            begin = dlpi_now_ns();
            warm = rows;
        }
    }
    if (rc != DLP_END || rows <= warm || begin == 0) failures++;
    return (double)(dlpi_now_ns() - begin) * (double)rows / (double)(rows - warm) / (double)n;
}

static double closed(dlp_pipe *p, double ns) {
    dlp_pipe_close(p);
    return ns;
}

static double plain(int workers) {
    dlp_loader_desc d = {.dataset = {.n_items = items, .fields = &word, .n_fields = 1},
                         .batch_size = BATCH,
                         .num_workers = workers};
    dlp_pipe *p;
    dlp_error err;
    d.dataset.fetch = fetch;
    d.pipe.prefetch_factor = PREFETCH;
    if (dlp_loader_open(&p, &d, &err) != DLP_OK) return NAN;
    return closed(p, take_all(p, items));
}

static double filter(int workers) {
    dlp_loader_desc d = {.dataset = {.n_items = items, .fields = &word, .n_fields = 1},
                         .batch_size = BATCH,
                         .num_workers = workers};
    dlp_pipe *p;
    dlp_error err;
    d.dataset.fetch = half;
    d.dataset.filter = 1;
    d.pipe.prefetch_factor = PREFETCH;
    if (dlp_loader_open(&p, &d, &err) != DLP_OK) return NAN;
    return closed(p, take_all(p, items));
}

static double table(const dlp_node *nodes, uint32_t n) {
    const dlp_pipe_desc d = {.prefetch_factor = PREFETCH};
    dlp_pipe *p;
    dlp_error err;
    if (dlp_pipe_open(&p, nodes, n, &d, &err) != DLP_OK) return NAN;
    return closed(p, take_all(p, items));
}

static int next_one(void *user, dlp_item *it) {
    (void)user;
    ++*(uint64_t *)it->data[0];
    return 0;
}

/* own: workers of the map; 0: it runs in the attempt of the fetch. */
static double mapped(int workers, int own) {
    const dlp_node nodes[] = {{.name = "items", .verb = DLP_LIST, .list = {.n_items = items}},
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1},
                               .workers = {.num_workers = workers}},
                              {.name = "map",
                               .verb = DLP_MAP,
                               .map = {.item = next_one},
                               .workers = {.num_workers = own}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return table(DLP_NODES(nodes));
}

static int even(void *user, const dlp_item *it) {
    (void)user;
    return (it->index & 1) == 0;
}

/* Memory of the last pipe with a window of 4,096, 2^16, 2^20 items: what was planned, and what the
   process had at its peak above what it had before. */
enum { WINDOWS = 3 };
static double plan_bytes[WINDOWS], peak_bytes[WINDOWS];

/* Return the bytes that a line of /proc/self/status tells. */
static double status_bytes(const char *key) {
    char line[256];
    double kib = NAN;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) kib = strtod(line + strlen(key), NULL);
    if (f != NULL) fclose(f);
    return kib * 1024;
}

/* Let the peak begin again at what the process has now. */
static void peak_forget(void) {
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "5", 1) != 1) failures++;
    if (fd >= 0) close(fd);
}

static double windowed(int workers, int which) {
    static const uint32_t window_items[WINDOWS] = {WINDOW, 1 << 16, 1 << 20};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = items}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1}},
        {.name = "filter",
         .verb = DLP_FILTER,
         .filter = {.keep = even},
         .workers = {.num_workers = workers}},
        {.name = "window", .verb = DLP_WINDOW, .window = {.items = window_items[which]}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = BATCH, .copy_workers = DLP_NONE}}};
    const dlp_pipe_desc d = {.prefetch_factor = PREFETCH};
    const double before = status_bytes("VmRSS:");
    dlp_plan plan;
    double ns;
    if (dlp_nodes_plan(DLP_NODES(nodes), &d, &plan, NULL) != DLP_OK) return NAN;
    peak_forget();
    ns = table(DLP_NODES(nodes));
    plan_bytes[which] = (double)plan.total_bytes;
    peak_bytes[which] = status_bytes("VmHWM:") - before;
    return ns;
}

static double window(int workers) { return windowed(workers, 0); }
static double window_2_16(int workers) { return windowed(workers, 1); }
static double window_2_20(int workers) { return windowed(workers, 2); }

static double expander(int workers) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = items / MADE}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1}},
        {.name = "expand",
         .verb = DLP_EXPAND,
         .expand = {.expand = expand, .max_out = MADE},
         .workers = {.num_workers = workers}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = BATCH, .copy_workers = DLP_NONE}}};
    return table(DLP_NODES(nodes));
}

/* Half of a mix's items are each dataset's; a zip has another field. own: workers of the second
   fetch; 0: it runs in the attempt of the first. */
static double joined(int workers, int own, bool mixes) {
    static const dlp_field other = {"other", DLP_U64, 0, {0}, 0, 0};
    const uint64_t halves[2] = {items / 2, items / 2};
    const dlp_mix_desc by_halves = {.n = 2, .n_items = halves};
    dlp_mix *mix = NULL;
    dlp_error err;
    double ns;
    if (mixes && dlp_mix_open(&mix, &by_halves, &err) != DLP_OK) return NAN;
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = mixes ? 0 : items, .mix = mix}},
        {.name = "first",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1, .of = mixes},
         .workers = {.num_workers = workers}},
        {.name = "second",
         .verb = DLP_FETCH,
         .fetch =
             {.fetch = fetch, .fields = mixes ? &word : &other, .n_fields = 1, .of = mixes ? 2 : 0},
         .workers = {.num_workers = own}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    ns = table(DLP_NODES(nodes));
    dlp_mix_close(mix);
    return ns;
}

static int decode(void *user, dlp_item *it) { /* it sees raw, then word */
    (void)user;
    *(uint64_t *)it->data[1] = *(const uint64_t *)it->data[0];
    return 0;
}

static double in_a_row(int workers) {
    static const dlp_field raw = {"raw", DLP_U64, 0, {0}, 0, 0};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = items}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &raw, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "decode",
         .verb = DLP_MAP,
         .map = {.item = decode, .fields = &word, .n_fields = 1, .ends = "raw"},
         .workers = {.num_workers = workers, .idempotent = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return table(DLP_NODES(nodes));
}

/* ---- push ---- */

typedef struct producer {
    dlp_push *push;
    void *bundle;
    uint64_t bytes, n;
    int number;
} producer;

static void *produce(void *user) {
    const producer *from = user;
    dlp_pusher_desc d = {.push = from->push};
    dlp_pusher *to;
    dlp_error err;
    if (dlp_pusher_open(&to, &d, &err) != DLP_OK) return NULL;
    for (uint64_t i = 0; i < from->n; i++) {
        const void *data = &i;
        if (dlp_pusher_push(to, &data, DLP_FOREVER) != DLP_OK) break;
    }
    dlp_pusher_end(to, DLP_FOREVER);
    dlp_pusher_close(to);
    return NULL;
}

static void *produce_bare(void *user) {
    const producer *from = user;
    dlp_mpsc_tx to;
    if (dlp_mpsc_attach_tx(&to, from->bundle, from->bytes, from->number) < 0) return NULL;
    for (uint64_t i = 0; i < from->n; i++)
        if (dlp_mpsc_push(&to, &i, DLP_FOREVER) != DLP_OK) break;
    dlp_mpsc_detach_tx(&to);
    return NULL;
}

static double pushed_to(int producers, int workers) {
    push_loader d = {.push = {.fields = &word, .n_fields = 1},
                     .loader = {.batch_size = BATCH, .num_workers = workers}};
    producer from[PRODUCERS];
    pthread_t thread[PRODUCERS];
    dlp_pipe *p;
    dlp_push *push;
    dlp_error err;
    double ns;
    d.push.max_producers = d.push.writers = (uint32_t)producers;
    d.loader.pipe.prefetch_factor = PREFETCH;
    if (push_loader_open(&p, &push, &d, &err) != DLP_OK) return NAN;
    for (int i = 0; i < producers; i++) {
        from[i] = (producer){.push = push, .n = items / (uint64_t)producers};
        pthread_create(&thread[i], NULL, produce, &from[i]);
    }
    ns = take_all(p, items);
    for (int i = 0; i < producers; i++) pthread_join(thread[i], NULL);
    dlp_pipe_close(p);
    dlp_push_close(push);
    return ns;
}

static double pushed(int producers) { return pushed_to(producers, 1); }
static double pushed_inline(int producers) { return pushed_to(producers, 0); }

static double bare(int producers) {
    uint64_t bytes = dlp_mpsc_bytes(8, LANE, (uint32_t)producers), begin, value, left, all;
    void *bundle = aligned_alloc(DLP_QUEUE_ALIGN, bytes);
    producer from[PRODUCERS];
    pthread_t thread[PRODUCERS];
    dlp_spsc_rx lanes[PRODUCERS];
    dlp_mpsc_rx rx;
    dlp_mpsc_init(bundle, bytes, 8, LANE, (uint32_t)producers, 0);
    if (dlp_mpsc_attach_rx(&rx, lanes, (uint32_t)producers, bundle, bytes) != DLP_OK) return NAN;
    left = items / (uint64_t)producers * (uint64_t)producers;
    begin = 0;
    for (int i = 0; i < producers; i++) {
        from[i] = (producer){
            .bundle = bundle, .bytes = bytes, .n = items / (uint64_t)producers, .number = i};
        pthread_create(&thread[i], NULL, produce_bare, &from[i]);
    }
    for (all = left; left > 0 && dlp_mpsc_pop(&rx, &value, NULL, DLP_FOREVER) == DLP_OK; left--) {
        checksum += value;
        if (all - left == WARM * BATCH) begin = dlpi_now_ns();
    }
    begin = dlpi_now_ns() - begin;
    for (int i = 0; i < producers; i++) pthread_join(thread[i], NULL);
    free(bundle);
    return (double)begin / (double)(all - WARM * BATCH - 1);
}

/* ---- items of 784 bytes and more, beside the same by hand ---- */

static int made_fetch(void *user, dlp_item *it) {
    (void)user;
    memcpy(it->data[0], made_at(it->index), made.item_bytes);
    return 0;
}

static int made_keep(void *user, const dlp_item *it) {
    (void)user;
    return made_keeps(it->data[0]);
}

static int made_expand(void *user, dlp_expand *x) {
    const uint64_t n = made_count(made_at(x->item->index));
    (void)user;
    for (uint64_t i = 0; i < n; i++)
        memcpy(dlp_expand_add(x)->data[0], made_at(x->item->index * MADE + i), made.item_bytes);
    return 0;
}

/* Return the ns of an input: what by_hand does, by a table. */
static double by_table(enum made_verb verb, int workers) {
    static const char *const from[] = {"a", "b", NULL};
    const dlp_field row = {"row", DLP_U8, 1, {(int64_t)made.item_bytes}, 0, 0};
    const bool mixes = verb == MIXED_IN, expands = verb == EXPANDED;
    const dlp_node fetched = {.name = "a",
                              .verb = DLP_FETCH,
                              .fetch = {.fetch = expands ? fetch : made_fetch,
                                        .fields = expands ? &word : &row,
                                        .n_fields = 1,
                                        .writes_all_bytes = 1},
                              .workers = {.num_workers = mixes ? (workers + 1) / 2 : 0}};
    dlp_node nodes[8];
    uint32_t n = 0;
    for (int i = 0; i <= mixes; i++) {
        nodes[n++] = (dlp_node){.name = i ? "others" : "items",
                                .verb = DLP_LIST,
                                .list = {.n_items = mixes ? items / 2 : items}};
        nodes[n] = fetched;
        nodes[n++].name = from[i];
    }
    if (mixes) nodes[n++] = (dlp_node){.name = "mix", .verb = DLP_MIX, .from = from};
    if (expands)
        nodes[n++] = (dlp_node){.name = "expand",
                                .verb = DLP_EXPAND,
                                .expand = {.expand = made_expand,
                                           .max_out = MADE,
                                           .fields = &row,
                                           .n_fields = 1,
                                           .writes_all_bytes = 1},
                                .workers = {.num_workers = workers}};
    if (!mixes && !expands)
        nodes[n++] = (dlp_node){.name = "filter",
                                .verb = DLP_FILTER,
                                .filter = {.keep = made_keep},
                                .workers = {.num_workers = workers}};
    if (verb == WINDOWED)
        nodes[n++] =
            (dlp_node){.name = "window", .verb = DLP_WINDOW, .window = {.items = HAND_WINDOW}};
    nodes[n++] = (dlp_node){.name = "batch",
                            .verb = DLP_BATCH,
                            .batch = {.batch_size = BATCH, .last = DLP_LAST_PARTIAL}};
    return table(nodes, n);
}

/* ---- rounds ---- */

static double map(int workers) { return mapped(workers, workers); }
static double map_fused(int workers) { return mapped(workers, 0); }
static double zipped(int workers) { return joined(workers, workers, false); }
static double zip_fused(int workers) { return joined(workers, 0, false); }
static double mixed(int workers) { return joined(workers, workers, true); }

struct chain {
    const char *name;
    double (*ns)(int n); /* of an item, with n workers or producers */
    int n;
    uint64_t items; /* of the next sample, which is to take sample_s */
};

static uint64_t least_items; /* that a sample has; 0: as many as its verbs need */

/* A sample that was too short is taken again with more items. */
static double sample_chain(void *user) {
    struct chain *c = user;
    const double least = least_items > 0       ? (double)least_items
                         : made.source != NULL ? 300 * BATCH
                                               : 2e5;
    double ns, took, most;
    do {
        items = c->items;
        ns = c->ns(c->n);
        took = ns * (double)items * 1e-9;
        most = sample_s * 1e9 / ns;
        if (ns > 0) c->items = most > least ? (uint64_t)most / 1024 * 1024 : (uint64_t)least;
    } while (took < 0.2 && c->items > items);
    return ns;
}

static void put_beside(const struct series *s, const char *bench, const char *key, int n, int a,
                       int b) {
    struct measure m = {.bench = bench, .unit = "ns", .lower_is_better = true};
    snprintf(m.extra, sizeof m.extra, ",\"%s\":%d", key, n);
    put(&m, s, a, b);
}

static void by_workers(int workers, int rounds) {
    struct chain chains[] = {
        {"plain", plain, workers, 200000},         {"map", map, workers, 200000},
        {"filter", filter, workers, 200000},       {"window", window, workers, 200000},
        {"expand", expander, workers, 200000},     {"zip", zipped, workers, 200000},
        {"mix", mixed, workers, 200000},           {"scratch", in_a_row, workers, 200000},
        {"map_fused", map_fused, workers, 200000}, {"zip_fused", zip_fused, workers, 200000}};
    enum { CHAINS = sizeof chains / sizeof *chains };
    struct series s = {0};
    for (int i = 0; i < CHAINS; i++) compete(&s, chains[i].name, "", sample_chain, &chains[i]);
    run_rounds(&s, "compose", rounds);
    for (int i = 0; i < CHAINS; i++) {
        char bench[32];
        snprintf(bench, sizeof bench, "compose_%s", chains[i].name);
        put_beside(&s, bench, "workers", workers, i, i == 0 ? -1 : 0);
    }
}

static void by_producers(int producers, int rounds) {
    struct chain chains[] = {{"plain", plain, 1, 200000},
                             {"mpsc", bare, producers, 200000},
                             {"push", pushed, producers, 200000},
                             {"push_inline", pushed_inline, producers, 200000}};
    struct series s = {0};
    for (int i = 0; i < 4; i++) compete(&s, chains[i].name, "", sample_chain, &chains[i]);
    run_rounds(&s, "compose_push", rounds);
    put_beside(&s, "compose_push", "producers", producers, 2, 0);
    put_beside(&s, "compose_push", "producers", producers, 2, 1);
    put_beside(&s, "compose_push_inline", "producers", producers, 3, 0);
}

/* Large windows beside the small one. A sample has six of the largest at least. */
static void by_window(int workers, int rounds) {
    const uint64_t six = UINT64_C(6) * 2 << 20;
    struct chain chains[WINDOWS] = {{"window", window, workers, six},
                                    {"window_2_16", window_2_16, workers, six},
                                    {"window_2_20", window_2_20, workers, six}};
    struct series s = {0};
    least_items = six;
    for (int i = 0; i < WINDOWS; i++) compete(&s, chains[i].name, "", sample_chain, &chains[i]);
    run_rounds(&s, "compose_window", rounds);
    least_items = 0;
    for (int i = 1; i < WINDOWS; i++) {
        char bench[32];
        struct measure m = {.bench = bench, .unit = "ns", .lower_is_better = true};
        snprintf(bench, sizeof bench, "compose_%s", chains[i].name);
        snprintf(m.extra, sizeof m.extra, ",\"workers\":%d,\"plan_bytes\":%.0f,\"peak_bytes\":%.0f",
                 workers, plan_bytes[i], peak_bytes[i]);
        put(&m, &s, i, 0);
    }
}

static double hand_filter(int n) { return by_hand(FILTERED, n); }
static double hand_mix(int n) { return by_hand(MIXED_IN, n); }
static double hand_expand(int n) { return by_hand(EXPANDED, n); }
static double hand_window(int n) { return by_hand(WINDOWED, n); }
static double made_filter(int n) { return by_table(FILTERED, n); }
static double made_mix(int n) { return by_table(MIXED_IN, n); }
static double made_expander(int n) { return by_table(EXPANDED, n); }
static double made_window(int n) { return by_table(WINDOWED, n); }

/* Items of 784 bytes and of 16 KiB, after a look whether both deliver the same items. */
static void by_bytes(uint64_t item_bytes, int workers, int rounds) {
    const uint64_t few = 300 * BATCH;
    struct chain chains[] = {
        {"filter", made_filter, workers, few},   {"hand_filter", hand_filter, workers, few},
        {"mix", made_mix, workers, few},         {"hand_mix", hand_mix, workers, few},
        {"expand", made_expander, workers, few}, {"hand_expand", hand_expand, workers, few},
        {"window", made_window, workers, few},   {"hand_window", hand_window, workers, few}};
    enum { CHAINS = sizeof chains / sizeof *chains };
    struct series s = {0};
    made_open(item_bytes);
    for (int i = 0; i < CHAINS; i++) {
        const uint64_t before = checksum;
        static uint64_t sum;
        items = few;
        (void)chains[i].ns(workers);
        if (i % 2 == 1 && checksum - before != sum) {
            say("%s: other items than those by hand\n", chains[i - 1].name);
            failures++;
        }
        sum = checksum - before;
        compete(&s, chains[i].name, "", sample_chain, &chains[i]);
    }
    run_rounds(&s, "compose_bytes", rounds);
    for (int i = 0; i < CHAINS; i += 2) {
        struct measure m = {.unit = "ns", .lower_is_better = true};
        char bench[32];
        snprintf(bench, sizeof bench, "compose_%s", chains[i].name);
        m.bench = bench;
        s.who[i + 1].name = "by hand";
        snprintf(m.extra, sizeof m.extra, ",\"workers\":%d,\"item_bytes\":%" PRIu64, workers,
                 item_bytes);
        put(&m, &s, i, i + 1);
    }
    free(made.source);
    made.source = NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 7, most = argc > 2 ? atoi(argv[2]) : 16;
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 7;
    quick = asked_for("QUICK");
    if (quick) sample_s = 0.22;
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    if (!lines_to("build/bench/compose.jsonl", "w")) return 1;
    by_bytes(784, 2, rounds);
    by_bytes(16384, 2, rounds);
    for (int workers = 1; workers <= most; workers *= 2) by_workers(workers, rounds);
    by_window(2, rounds);
    for (int producers = 1; producers <= PRODUCERS; producers *= 4) by_producers(producers, rounds);
    say("checksum %llx\n", (unsigned long long)checksum);
    return fclose(lines_file) != 0 || failures > 0;
}
