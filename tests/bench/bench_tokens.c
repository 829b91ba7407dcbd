/* Windows of tokens out of shards in the page cache, in shuffled order, against what a plain loop
   does (peer "fread", as dataloader.h of llm.c: seek to a shuffled batch, fread B * T + 1 tokens
   into a buffer, widen them twice, into int inputs and targets; "fread_only" leaves them as they
   are; "fread_rows" does so for each of the B windows apart, as a shuffle of all windows wants).
   Ours: u16 rows, or widened to int32; inline, or by one worker with the default prefetch; and as
   micro-batches, a batch an item.

   Arguments: rounds (9, at most 16), directory for the shards (build/bench), 128 MiB. One JSON
   object per line on standard output and in build/bench/tokens.jsonl: million tokens a second, by
   the clock, and in rows that end in _cpu by processor time. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "bench_rig.h"
#include "../rig/tokens_loader.h"

enum { SHARDS = 4, TOKENS = 16 << 20, HEADER = 1024, SAMPLE_NS = 200000000 };

static char dir[400], paths[SHARDS][440];
static uint64_t sink;

/* A way to have windows: how is of the plain loop, the others are ours. */
struct way {
    const char *name;
    int how, workers, beside; /* the row that it is held against; -1: none */
    bool widen, micro;
    uint64_t b, t, samples;
    double cpu[MAX_ROUNDS]; /* million tokens a second of processor time, of each sample */
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void make_shards(const char *where) {
    uint16_t *tokens = malloc(TOKENS * sizeof *tokens);
    int32_t head[256] = {20240520, 1, TOKENS};
    snprintf(dir, sizeof dir, "%s/tokens-XXXXXX", where);
    if (tokens == NULL || mkdtemp(dir) == NULL) fail(dir);
    for (int s = 0; s < SHARDS; s++) {
        for (uint64_t i = 0; i < TOKENS; i++) tokens[i] = (uint16_t)dlp_hash(1, i, 0, 0);
        snprintf(paths[s], sizeof paths[s], "%s/shard_%d.bin", dir, s);
        FILE *f = fopen(paths[s], "wb");
        if (f == NULL || fwrite(head, sizeof head, 1, f) != 1 ||
            fwrite(tokens, sizeof *tokens, TOKENS, f) != TOKENS || fclose(f) != 0)
            fail(paths[s]);
    }
    free(tokens);
}

static void remove_shards(void) {
    for (int s = 0; s < SHARDS; s++) unlink(paths[s]);
    rmdir(dir);
}

static double process_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum { WIDENED, ONLY, ROWS, OURS };

/* What of llm.c's loader is in a step. */
static uint64_t plain(FILE *const *f, uint64_t b, uint64_t t, int how, uint64_t k) {
    static uint16_t *buffer;
    static int *inputs, *targets;
    static uint64_t room;
    uint64_t n = b * t, each = TOKENS / n - 1;
    if (room < n + 1) {
        free(buffer), free(inputs), free(targets);
        buffer = malloc((n + 1) * sizeof *buffer);
        inputs = malloc(n * sizeof *inputs);
        targets = malloc(n * sizeof *targets);
        room = n + 1;
        if (!buffer || !inputs || !targets) fail("malloc");
    }
    for (uint64_t i = 0; i < (how == ROWS ? b : 1); i++) {
        FILE *from = f[(k + i) % SHARDS];
        uint64_t at = dlp_hash(2, k, i, 0) % each, most = how == ROWS ? t : n; /* of a list */
        fseek(from, (long)(HEADER + at * n * 2), SEEK_SET);
        if (fread(buffer + i * t, sizeof *buffer, most + 1, from) != most + 1) fail("fread");
    }
    for (uint64_t i = 0; how == WIDENED && i < n; i++) {
        inputs[i] = (int)buffer[i];
        targets[i] = (int)buffer[i + 1];
    }
    sink += how == WIDENED ? (uint64_t)targets[n - 1] : buffer[n];
    return n;
}

static double by_plain(void *arg) {
    struct way *w = arg;
    FILE *files[SHARDS];
    uint64_t tokens = 0, begin, k = 0;
    double cpu;
    for (int s = 0; s < SHARDS; s++)
        if ((files[s] = fopen(paths[s], "rb")) == NULL) fail(paths[s]);
    for (; k < 20; k++) plain(files, w->b, w->t, w->how, k);
    cpu = process_cpu();
    begin = dlpi_now_ns();
    while (dlpi_now_ns() - begin < SAMPLE_NS)
        for (int i = 0; i < 20; i++) tokens += plain(files, w->b, w->t, w->how, k++);
    w->cpu[w->samples++] = (double)tokens * 1e3 / (process_cpu() - cpu);
    double rate = (double)tokens * 1e3 / (double)(dlpi_now_ns() - begin);
    for (int s = 0; s < SHARDS; s++) fclose(files[s]);
    return rate;
}

/* Take batches for a while. Returns million tokens a second. */
static double take_windows(dlp_pipe *p, struct way *w) {
    dlp_batch *batch;
    uint64_t n = 0, begin = dlpi_now_ns();
    double cpu = process_cpu();
    while (dlpi_now_ns() - begin < SAMPLE_NS) {
        if (dlp_pipe_next(p, &batch) != DLP_OK) fail("next");
        sink += *(const uint16_t *)batch->fields[0].data;
        n += w->b * w->t;
        dlp_pipe_release(p, batch);
    }
    w->cpu[w->samples] = (double)n * 1e3 / (process_cpu() - cpu);
    return (double)n * 1e3 / (double)(dlpi_now_ns() - begin);
}

static double by_pipe(void *arg) {
    struct way *w = arg;
    char pattern[420];
    tokens_loader d = {.tokens = {.pattern = pattern,
                                  .length = w->t,
                                  .widen = w->widen,
                                  .windows = w->micro ? (uint32_t)w->b : 0},
                       .loader = {.batch_size = w->micro ? 1 : (uint32_t)w->b,
                                  .num_workers = w->workers,
                                  .shuffle = 1,
                                  .seed = w->samples + 1,
                                  .drop_last = 1,
                                  .epochs = DLP_FOREVER}};
    dlp_source *tokens;
    dlp_pipe *p;
    dlp_error err;
    snprintf(pattern, sizeof pattern, "%s/*.bin", dir);
    if (tokens_loader_open(&p, &tokens, &d, &err) != DLP_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    take_windows(p, w); /* the mapping's pages are met */
    double rate = take_windows(p, w);
    w->samples++;
    if (dlp_pipe_close(p) != DLP_OK || dlp_source_close(tokens) != DLP_OK) fail("close");
    return rate;
}

static void put_rows(const struct way *way, const struct series *s, const char *suffix) {
    for (int k = 0; k < s->n_who; k++) {
        char name[64];
        struct measure m = {.bench = name, .unit = "Mtoken/s"};
        const struct way *w = &way[k];
        snprintf(name, sizeof name, "tokens_%s_b%d_t%d%s", w->name, (int)w->b, (int)w->t, suffix);
        put(&m, s, k, w->beside);
        if (w->workers > 0) { put(&m, s, k, k - 1); } /* beside the same without a worker */
    }
}

static void measure(uint64_t b, uint64_t t, int rounds) {
    struct way way[] = {
        {.name = "fread", .how = WIDENED, .beside = -1},
        {.name = "inline_u16", .how = OURS},
        {.name = "worker_u16", .how = OURS, .workers = 1},
        {.name = "inline_i32", .how = OURS, .widen = true},
        {.name = "worker_i32", .how = OURS, .widen = true, .workers = 1},
        {.name = "inline_u16_micro", .how = OURS, .micro = true},
        {.name = "fread_only", .how = ONLY, .beside = -1},
        {.name = "fread_rows", .how = ROWS},
    };
    static struct series s;
    s = (struct series){0};
    for (size_t k = 0; k < sizeof way / sizeof *way; k++) {
        way[k].b = b, way[k].t = t;
        compete(&s, way[k].name, "", way[k].how == OURS ? by_pipe : by_plain, &way[k]);
    }
    run_rounds(&s, "tokens", rounds);
    put_rows(way, &s, "");
    for (int k = 0; k < s.n_who; k++) memcpy(s.value[k], way[k].cpu, sizeof s.value[k]);
    put_rows(way, &s, "_cpu");
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    if (rounds < 1 || rounds > MAX_ROUNDS) return 2;
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    if (!lines_to("build/bench/tokens.jsonl", "w")) return 1;
    make_shards(argc > 2 ? argv[2] : "build/bench");
    measure(64, 1024, rounds);
    measure(4, 64, rounds);
    remove_shards();
    fprintf(stderr, "checksum %llx\n", (unsigned long long)sink);
    return fclose(lines_file) == 0 ? 0 : 1;
}
