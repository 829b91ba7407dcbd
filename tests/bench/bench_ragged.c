/* Ragged items of 8 to 1,000 bytes (mean 504) in rooms of 1,000 bytes to 1 MiB, and each source of
   items of any length with one item of 1 MiB among 6,000, beside a thread that packs the same bytes
   by hand (peer "memcpy"). An item should cost what its bytes cost, whatever the room. Arguments:
   rounds (5, at most 16), workers (1). One JSON object per line on standard output and in
   build/bench/ragged.jsonl. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_rig.h"

enum { ITEMS = 60000, LINES = 6001, BATCH = 64, SAMPLE_NS = 120000000 };

enum source { CALLBACK, LINES_OF, SAMPLES_OF, EXTENTS_OF };

static const char file_path[] = "build/bench/ragged.tmp";
static uint8_t *bytes;
static uint64_t begins[ITEMS + 1], sink, longest_; /* longest_: of the items of this way */
static int workers;

/* A way to have the items. longest: bytes of one item; 0: it is like the others. */
struct way {
    const char *name;
    int64_t room;
    bool zeroed;
    enum source of;
    uint64_t longest;
};

/* Return the bytes of an item. */
static uint64_t item_bytes(uint64_t i) {
    return longest_ > 0 && i == LINES / 2 ? longest_ : begins[i + 1] - begins[i];
}

static int ragged_fetch(void *user, dlp_item *it) {
    const uint64_t n = item_bytes(it->index);
    (void)user;
    memcpy(it->data[0], bytes + (n == longest_ ? 0 : begins[it->index]), n);
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

/* Write the header of a member of a tar. */
static void write_header(FILE *f, uint64_t i, uint64_t n) {
    char h[512];
    unsigned sum = 0;
    memset(h, 0, sizeof h);
    snprintf(h, 100, "%06d.x", (int)i);
    snprintf(h + 100, 8, "%07o", 0644);
    snprintf(h + 124, 12, "%011o", (unsigned)n);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257,
           "ustar\0"
           "00",
           8);
    for (size_t k = 0; k < sizeof h; k++) sum += (unsigned char)h[k];
    snprintf(h + 148, 8, "%06o", sum);
    fwrite(h, 1, sizeof h, f);
}

/* Write the items into a file: lines, or members of a tar. */
static void write_items(bool tar) {
    static const char zeros[1024];
    FILE *f = fopen(file_path, "w");
    for (uint64_t i = 0; f != NULL && i < LINES; i++) {
        const uint64_t bytes_of = item_bytes(i);
        if (tar) write_header(f, i, bytes_of);
        for (uint64_t k = 0; k < bytes_of; k++) putc('w', f);
        if (!tar) putc('\n', f);
        if (tar) fwrite(zeros, 1, (512 - bytes_of % 512) % 512, f);
    }
    if (f != NULL && tar) fwrite(zeros, 1, sizeof zeros, f);
    if (f == NULL || fclose(f) != 0) say("%s: %s\n", file_path, strerror(errno));
}

static int file_fd = -1;

/* The items lie in the file of lines, one behind the other, as they lie in memory. */
static int extent_of(void *user, const dlp_item *it, dlp_extent *out) {
    (void)user;
    *out =
        (dlp_extent){.fd = file_fd, .offset = begins[it->index], .length = item_bytes(it->index)};
    return 0;
}

static int open_source(const struct way *w, const dlp_field *field, dlp_source **out) {
    dlp_lines_desc lines = {.path = file_path, .index = ""};
    dlp_tar_desc tar = {
        .path = file_path, .index = "", .fields = field, .n_fields = 1, .in_flight = 1};
    dlp_files_desc files = {
        .n_items = LINES, .fields = field, .n_fields = 1, .locate = extent_of, .in_flight = 1};
    dlp_error e = {.code = 0};
    int rc;
    write_items(w->of == SAMPLES_OF);
    if (file_fd >= 0) close(file_fd);
    file_fd = open(file_path, O_RDONLY | O_CLOEXEC);
    rc = w->of == LINES_OF     ? dlp_lines_open(out, &lines, &e)
         : w->of == SAMPLES_OF ? dlp_tar_open(out, &tar, &e)
                               : dlp_files_open(out, &files, &e);
    if (rc != DLP_OK) say("%s: %s\n", w->name, e.message);
    return rc;
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
    dlp_source *source = NULL;
    dlp_pipe *p;
    dlp_error e;
    double ns = NAN;
    longest_ = w->longest;
    if (w->of != CALLBACK && open_source(w, &field, &source) != DLP_OK) return NAN;
    d.source = source;
    if (w->of == CALLBACK)
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
    if (source != NULL) dlp_source_close(source);
    return ns;
}

int main(int argc, char **argv) {
    static struct way ways[] = {
        {.name = "ragged_1000", .room = 1000},
        {.name = "ragged_4k", .room = 4 << 10},
        {.name = "ragged_64k", .room = 64 << 10},
        {.name = "ragged_64k_zeroed", .room = 64 << 10, .zeroed = true},
        {.name = "ragged_1m", .room = 1 << 20},
        {.name = "ragged_one_long", .room = 1 << 20, .longest = 1 << 20},
        {.name = "lines_short", .of = LINES_OF},
        {.name = "lines_one_long", .of = LINES_OF, .longest = 1 << 20},
        {.name = "tar_short", .room = 1000, .of = SAMPLES_OF},
        {.name = "tar_one_long", .room = 1 << 20, .of = SAMPLES_OF, .longest = 1 << 20},
        {.name = "files_short", .room = 1000, .of = EXTENTS_OF},
        {.name = "files_one_long", .room = 1 << 20, .of = EXTENTS_OF, .longest = 1 << 20}};
    enum { WAYS = sizeof ways / sizeof *ways };
    static struct series s;
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    workers = argc > 2 ? atoi(argv[2]) : 1;
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
    unlink(file_path);
    free(bytes);
    fprintf(stderr, "checksum %llx\n", (unsigned long long)sink);
    return fclose(lines_file) != 0;
}
