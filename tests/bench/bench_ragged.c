/* Ragged items of 8 to 1,000 bytes (mean 504) in rooms of 1,000 bytes to 1 MiB, and lines of text
   of which one is long, beside a thread that packs the same bytes by hand (peer "memcpy"). An item
   should cost what its bytes cost, whatever the room. Arguments: rounds (5, at most 16), workers
   (0). One JSON object per line on standard output and in build/bench/ragged.jsonl. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_rig.h"

enum { ITEMS = 60000, LINES = 6001, BATCH = 64, SAMPLE_NS = 120000000 };

static const char lines_path[] = "build/bench/ragged_lines.tmp";
static uint8_t *bytes;
static uint64_t begins[ITEMS + 1], sink;
static int workers;

/* A way to have the items. room 0: packed by hand; lines: of a file, one of them so long. */
struct way {
    const char *name;
    int64_t room;
    bool zeroed, lines;
    uint64_t longest;
};

static int ragged_fetch(void *user, dlp_item *it) {
    const uint64_t n = begins[it->index + 1] - begins[it->index];
    (void)user;
    memcpy(it->data[0], bytes + begins[it->index], n);
    it->length[0] = n;
    return 0;
}

static double by_hand(void *arg) {
    static uint8_t packed[9][BATCH * 1000];
    static uint64_t at[BATCH];
    static dlp_permutation order;
    const uint64_t begin = dlpi_now_ns();
    uint64_t n = 0, now = begin;
    (void)arg;
    if (order.n == 0) dlp_permutation_init(&order, ITEMS, 1, 0);
    for (uint64_t b = 0; now - begin < SAMPLE_NS; b++, n += BATCH, now = dlpi_now_ns()) {
        uint64_t index[BATCH], end = 0;
        dlp_permutation_block(&order, b * BATCH % (ITEMS - BATCH), BATCH, index);
        for (int i = 0; i < BATCH; i++) {
            const uint64_t bytes_of = begins[index[i] + 1] - begins[index[i]];
            memcpy(packed[b % 9] + end, bytes + begins[index[i]], bytes_of);
            at[i] = end;
            end += bytes_of;
        }
        for (int i = 0; i < BATCH; i++) sink += packed[b % 9][at[i]];
    }
    return (double)(now - begin) / (double)n;
}

/* Drain an endless pipe for a while. Returns the ns of an item. */
static double drain(dlp_pipe *p) {
    dlp_batch *b;
    uint64_t n = 0, begin = 0, now = 0;
    for (int k = 0; k < 64 || now - begin < SAMPLE_NS; k++) {
        if (dlp_pipe_next(p, &b) != DLP_OK) return NAN;
        const uint64_t wide = b->fields[0].bytes / b->count;
        for (uint32_t i = 0; i < b->count; i++)
            sink += b->fields[0].lengths[i] + ((const uint8_t *)b->fields[0].data)[i * wide];
        n = k < 64 ? 0 : n + b->count;
        dlp_pipe_release(p, b);
        now = dlpi_now_ns();
        if (k < 64) begin = now;
    }
    return (double)(now - begin) / (double)n;
}

static void write_lines(uint64_t longest) {
    FILE *f = fopen(lines_path, "w");
    for (uint64_t i = 0; f != NULL && i < LINES; i++) {
        uint64_t n = longest > 0 && i == LINES / 2 ? longest : begins[i + 1] - begins[i];
        while (n-- > 0) putc('w', f);
        putc('\n', f);
    }
    if (f == NULL || fclose(f) != 0) say("%s: %s\n", lines_path, strerror(errno));
}

static double ours(void *arg) {
    const struct way *w = arg;
    const dlp_field field = {
        .name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {w->room}, .ragged = 1};
    dlp_loader_desc d = {.batch_size = BATCH,
                         .num_workers = workers,
                         .shuffle = 1,
                         .epochs = DLP_FOREVER,
                         .pipe.prefetch_factor = 8};
    dlp_lines_desc lines = {.path = lines_path, .index = ""};
    dlp_pipe *p;
    dlp_error e;
    double ns = NAN;
    if (w->lines) write_lines(w->longest);
    if (w->lines && dlp_lines_open((dlp_source **)(void *)&d.source, &lines, &e) != DLP_OK)
        return NAN;
    if (!w->lines)
        d.dataset = (dlp_dataset){.n_items = ITEMS,
                                  .fields = &field,
                                  .n_fields = 1,
                                  .fetch = ragged_fetch,
                                  .writes_all_bytes = !w->zeroed};
    if (dlp_loader_open(&p, &d, &e) == DLP_OK) {
        ns = drain(p);
        dlp_pipe_close(p);
    } else {
        say("%s: %s\n", w->name, e.message);
    }
    if (w->lines) dlp_source_close((dlp_source *)(uintptr_t)d.source);
    return ns;
}

int main(int argc, char **argv) {
    static struct way ways[] = {{.name = "ragged_1000", .room = 1000},
                                {.name = "ragged_4k", .room = 4 << 10},
                                {.name = "ragged_64k", .room = 64 << 10},
                                {.name = "ragged_64k_zeroed", .room = 64 << 10, .zeroed = true},
                                {.name = "ragged_1m", .room = 1 << 20},
                                {.name = "lines_short", .lines = true},
                                {.name = "lines_one_long", .lines = true, .longest = 1 << 20}};
    enum { WAYS = sizeof ways / sizeof *ways };
    static struct series s;
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    workers = argc > 2 ? atoi(argv[2]) : 0;
    quick = asked_for("QUICK");
    if (quick) rounds = 1;
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 5;
    for (uint64_t i = 0; i < ITEMS; i++) begins[i + 1] = begins[i] + 8 + dlp_hash(1, i, 0, 0) % 993;
    if ((bytes = malloc(begins[ITEMS])) == NULL) return 1;
    for (uint64_t i = 0; i < begins[ITEMS]; i++) bytes[i] = (uint8_t)(1 + i % 255);
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    if (!lines_to("build/bench/ragged.jsonl", "w")) return 1;
    for (int i = 0; i < WAYS; i++) compete(&s, ways[i].name, "", ours, &ways[i]);
    compete(&s, "memcpy", "", by_hand, NULL);
    run_rounds(&s, "ragged", rounds);
    for (int i = 0; i < WAYS; i++) {
        struct measure m = {.bench = ways[i].name, .unit = "ns", .lower_is_better = true};
        snprintf(m.extra, sizeof m.extra, ",\"workers\":%d", workers);
        put(&m, &s, i, WAYS);
    }
    unlink(lines_path);
    free(bytes);
    fprintf(stderr, "checksum %llx\n", (unsigned long long)sink);
    return fclose(lines_file) != 0;
}
