/* Windows of tokens out of shards in the page cache, in shuffled order, against what a plain loop
   does (peer "fread", as dataloader.h of llm.c: seek to a shuffled batch, fread B * T + 1 tokens
   into a buffer, widen them twice, into int inputs and targets; "fread_only" leaves them as they
   are; "fread_rows" does so for each of the B windows apart, as a shuffle of all windows wants).
   Ours: u16 rows, or widened to int32; inline, or by one worker with the default prefetch; and as
   micro-batches, a batch an item.

   Arguments: rounds (9, at most 16), directory for the shards (build/bench), 128 MiB. A table on
   standard error; one JSON object per line on standard output and in build/bench/tokens.jsonl.
   Million tokens a second, by the clock and by processor time, and the ratios to the peer and of
   one worker to inline, each the median of its rounds. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "bench_rig.h"

enum { SHARDS = 4, TOKENS = 16 << 20, HEADER = 1024, KINDS = 8, SAMPLE_NS = 150000000 };

static char dir[400], paths[SHARDS][440];
static uint64_t sink;

struct figure {
    double wall[MAX_ROUNDS], cpu[MAX_ROUNDS]; /* tokens a us */
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

static double thread_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum { WIDENED, ONLY, ROWS };

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

static void by_plain(uint64_t b, uint64_t t, int how, struct figure *f, int round) {
    FILE *files[SHARDS];
    uint64_t tokens = 0, begin, k = 0;
    double cpu;
    for (int s = 0; s < SHARDS; s++)
        if ((files[s] = fopen(paths[s], "rb")) == NULL) fail(paths[s]);
    for (; k < 20; k++) plain(files, b, t, how, k);
    cpu = thread_cpu();
    begin = dlpi_now_ns();
    while (dlpi_now_ns() - begin < SAMPLE_NS)
        for (int i = 0; i < 20; i++) tokens += plain(files, b, t, how, k++);
    f->cpu[round] = (double)tokens * 1e3 / (thread_cpu() - cpu);
    f->wall[round] = (double)tokens * 1e3 / (double)(dlpi_now_ns() - begin);
    for (int s = 0; s < SHARDS; s++) fclose(files[s]);
}

static void by_pipe(uint64_t b, uint64_t t, bool widen, int workers, bool micro, struct figure *f,
                    int round) {
    char pattern[420];
    dlp_tokens_loader_desc d = {.tokens = {.pattern = pattern,
                                           .length = t,
                                           .widen = widen,
                                           .windows = micro ? (uint32_t)b : 0},
                                .loader = {.batch_size = micro ? 1 : (uint32_t)b,
                                           .num_workers = workers,
                                           .shuffle = 1,
                                           .seed = (uint64_t)round + 1,
                                           .drop_last = 1,
                                           .epochs = DLP_FOREVER}};
    dlp_tokens *tokens;
    dlp_pipe *p;
    dlp_batch *batch;
    dlp_error err;
    uint64_t n = 0, begin = 0;
    double cpu = 0;
    snprintf(pattern, sizeof pattern, "%s/*.bin", dir);
    if (dlp_tokens_loader_open(&p, &tokens, &d, &err) != DLP_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    for (int phase = 0; phase < 2; phase++) { /* first the mapping's pages are met */
        n = 0;
        cpu = thread_cpu();
        begin = dlpi_now_ns();
        while (dlpi_now_ns() - begin < SAMPLE_NS) {
            if (dlp_pipe_next(p, &batch) != DLP_OK) fail("next");
            sink += *(const uint16_t *)batch->fields[0].data;
            n += b * t;
            dlp_pipe_release(p, batch);
        }
    }
    f->wall[round] = (double)n * 1e3 / (double)(dlpi_now_ns() - begin);
    f->cpu[round] = (double)n * 1e3 / (thread_cpu() - cpu);
    if (dlp_pipe_close(p) != DLP_OK || dlp_tokens_close(tokens) != DLP_OK) fail("close");
}

static double median_ratio(const double *a, const double *b, int rounds) {
    double r[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) r[i] = a[i] / b[i];
    return quantile(r, (size_t)rounds, 0.5);
}

static double median(const double *a, int rounds) {
    double r[MAX_ROUNDS];
    memcpy(r, a, (size_t)rounds * sizeof *r);
    return quantile(r, (size_t)rounds, 0.5);
}

static void measure(uint64_t b, uint64_t t, int rounds) {
    static const struct {
        const char *name;
        int peer, inline_; /* contenders to hold it against; -1: none */
    } kind[KINDS] = {{"fread", -1, -1},           {"fread_only", -1, -1}, {"inline_u16", 0, -1},
                     {"inline_i32", 0, -1},       {"worker_u16", 0, 2},   {"worker_i32", 0, 3},
                     {"inline_u16_micro", 0, -1}, {"fread_rows", 0, -1}};
    static struct figure f[KINDS];
    for (int r = 0; r < rounds; r++) {
        by_plain(b, t, WIDENED, &f[0], r);
        by_pipe(b, t, false, 0, false, &f[2], r);
        by_pipe(b, t, false, 1, false, &f[4], r);
        by_pipe(b, t, true, 0, false, &f[3], r);
        by_pipe(b, t, true, 1, false, &f[5], r);
        by_pipe(b, t, false, 0, true, &f[6], r);
        by_plain(b, t, ONLY, &f[1], r);
        by_plain(b, t, ROWS, &f[7], r);
    }
    fprintf(stderr, "B %d, T %d: million tokens a second\n%-18s %9s %9s %9s %9s %9s\n", (int)b,
            (int)t, "", "clock", "cpu", "of fread", "(cpu)", "of inline");
    for (int k = 0; k < KINDS; k++) {
        char line[512], ratio[128] = "";
        double all = median(f[k].wall, rounds), cpu = median(f[k].cpu, rounds), of_peer = 0,
               of_cpu = 0, of_inline = 0;
        if (kind[k].peer >= 0) {
            of_peer = median_ratio(f[k].wall, f[kind[k].peer].wall, rounds);
            of_cpu = median_ratio(f[k].cpu, f[kind[k].peer].cpu, rounds);
            snprintf(ratio, sizeof ratio,
                     ",\"peer\":\"fread\",\"theirs\":%.4g,\"ratio\":%.3g,\"ratio_cpu\":%.3g",
                     median(f[kind[k].peer].wall, rounds), of_peer, of_cpu);
        }
        if (kind[k].inline_ >= 0)
            of_inline = median_ratio(f[k].wall, f[kind[k].inline_].wall, rounds);
        fprintf(stderr, "%-18s %9.1f %9.1f %9.2f %9.2f %9.2f\n", kind[k].name, all, cpu, of_peer,
                of_cpu, of_inline);
        snprintf(line, sizeof line,
                 "{\"bench\":\"tokens_%s_b%d_t%d\",\"unit\":\"Mtoken/s\",\"ours\":%.4g,"
                 "\"cpu\":%.4g%s,\"of_inline\":%.3g,\"rounds\":%d}",
                 kind[k].name, (int)b, (int)t, all, cpu, ratio, of_inline, rounds);
        put_line(line);
    }
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
