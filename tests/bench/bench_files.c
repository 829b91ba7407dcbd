/* Items out of files: 3,000 of about 100 KiB in shuffled order, by a pipe with one worker or two,
   whose workers read by a ring or by threads, each with K under way, against a loop of open, fstat,
   pread, close (peer "pread"); out of memory (warm) and after posix_fadvise DONTNEED (cold:
   contents, not directories). The pipe starts and ends within a sample.

   Then small items, beside threads by hand (bench_files_small.h).

   Arguments: rounds (5, at most 16), directory for the files (build/bench). One JSON object per
   line on standard output and in build/bench/files.jsonl; bytes_per_item is the mean
   file's, cpu_us (of all cores, a file) is of ours, cpu_us_theirs of the loop. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "bench_rig.h"

enum { FILES = 3000, LEAST = 70 * 1024, MOST = 130 * 1024, ROWS = 64, BATCH = 32 };

static char dir[400];
static char *paths[FILES];
static uint64_t total;
static uint8_t *rows; /* [ROWS][MOST] as a few batches are */

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void make_files(const char *where) {
    uint8_t *bytes = malloc(MOST);
    snprintf(dir, sizeof dir, "%s/files-XXXXXX", where);
    if (mkdtemp(dir) == NULL || bytes == NULL) fail(dir);
    memset(bytes, 42, MOST);
    for (uint64_t i = 0; i < FILES; i++) {
        char path[500];
        size_t n = (size_t)(LEAST + dlp_hash(1, i, 0, 0) % (MOST - LEAST));
        int fd;
        snprintf(path, sizeof path, "%s/%04d", dir, (int)i);
        paths[i] = strdup(path);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || close(fd) != 0) fail(path);
        total += n;
    }
    free(bytes);
    sync();
}

static void remove_files(void) {
    for (int i = 0; i < FILES; i++) unlink(paths[i]);
    rmdir(dir);
}

static void prepare(int cold) {
    for (int i = 0; i < FILES; i++) {
        int fd = open(paths[i], O_RDONLY);
        if (fd < 0) fail(paths[i]);
        if (cold)
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        else
            while (read(fd, rows, MOST) > 0) continue;
        close(fd);
    }
}

/* How files are read, and what it took. */
struct way {
    int cold, threads, k, workers;
    uint64_t samples;
    double cpu_s;
};

/* Each sample has an order of its own. */
static dlp_permutation order_of(const struct way *w) {
    dlp_permutation order;
    dlp_permutation_init(&order, FILES, 1, w->samples);
    return order;
}

static double pread_all(const dlp_permutation *order) {
    uint64_t begin = dlpi_now_ns();
    for (uint64_t i = 0; i < FILES; i++) {
        const char *path = paths[dlp_permutation_at(order, i)];
        struct stat st;
        off_t at = 0;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0) fail(path);
        while (at < st.st_size) {
            ssize_t n = pread(fd, rows + i % ROWS * MOST + at, (size_t)(st.st_size - at), at);
            if (n <= 0) fail(path);
            at += n;
        }
        close(fd);
    }
    return FILES * 1e9 / (double)(dlpi_now_ns() - begin);
}

static double by_pread(void *arg) {
    struct way *w = arg;
    const dlp_permutation order = order_of(w);
    prepare(w->cold);
    double cpu = own_cpu_seconds(), rate = pread_all(&order);
    w->cpu_s += own_cpu_seconds() - cpu;
    w->samples++;
    return rate;
}

/* Take all files from a pipe, and read a byte of each. */
static double source_all(uint64_t seed, const struct way *w) {
    static const dlp_field field = {"bytes", DLP_U8, 1, {MOST}, 1, 0};
    const dlp_files_desc desc = {.n_items = FILES,
                                 .paths = (const char *const *)paths,
                                 .fields = &field,
                                 .n_fields = 1,
                                 .use_threads = w->threads,
                                 .in_flight = w->k};
    dlp_loader_desc loader = {.batch_size = BATCH,
                              .num_workers = w->workers,
                              .shuffle = 1,
                              .seed = seed,
                              .pipe = {.prefetch_factor = 2 * ROWS / BATCH}};
    dlp_source *files;
    dlp_pipe *p;
    dlp_batch *batch;
    uint64_t begin, over = 0;
    if (dlp_files_open(&files, &desc, NULL) != DLP_OK) fail("dlp_files_open");
    loader.source = files;
    begin = dlpi_now_ns();
    if (dlp_loader_open(&p, &loader, NULL) != DLP_OK) fail("dlp_loader_open");
    while (dlp_pipe_next(p, &batch) == DLP_OK) {
        const uint8_t *row = batch->fields[0].data;
        for (uint32_t i = 0; i < (uint32_t)batch->count; i++, row += MOST) over += *row == 42;
        dlp_pipe_release(p, batch);
    }
    begin = dlpi_now_ns() - begin;
    dlp_pipe_close(p);
    dlp_source_close(files);
    if (over != FILES) fail("a file");
    return FILES * 1e9 / (double)begin;
}

static double by_source(void *arg) {
    struct way *w = arg;
    prepare(w->cold);
    double cpu = own_cpu_seconds(), rate = source_all(w->samples, w);
    w->cpu_s += own_cpu_seconds() - cpu;
    w->samples++;
    return rate;
}

static void measure(int cold, int threads, int k, int workers, int rounds) {
    struct way ours = {cold, threads, k, workers, 0, 0}, theirs = ours;
    struct series s = {0};
    char name[64];
    struct measure m = {.bench = name, .unit = "file/s"};
    snprintf(name, sizeof name, "files_100k_%s_%s_k%d", cold ? "cold" : "warm",
             threads ? "threads" : "ring", k);
    compete(&s, "ours", "", by_source, &ours);
    compete(&s, "pread", "", by_pread, &theirs);
    run_rounds(&s, name, rounds);
    snprintf(m.extra, sizeof m.extra,
             ",\"workers\":%d,\"bytes_per_item\":%.0f,\"cpu_us\":%.3g,\"cpu_us_theirs\":%.3g",
             workers, (double)total / FILES, ours.cpu_s * 1e6 / FILES / (double)ours.samples,
             theirs.cpu_s * 1e6 / FILES / (double)theirs.samples);
    put(&m, &s, 0, 1);
}

#include "bench_files_small.h"

int main(int argc, char **argv) {
    static const int depth[] = {4, 16};
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    if (rounds < 1 || rounds > MAX_ROUNDS) return 2;
    rows = malloc((size_t)ROWS * MOST);
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    if (rows == NULL || !lines_to("build/bench/files.jsonl", "w")) return 1;
    memset(rows, 1, (size_t)ROWS * MOST);
    make_files(argc > 2 ? argv[2] : "build/bench");
    for (int cold = 1; cold >= 0; cold--)
        for (int workers = 1; workers <= 2; workers++)
            for (int i = 0; i < 2; i++)
                for (int threads = 0; threads < 2; threads++)
                    measure(cold, threads, depth[i], workers, rounds);
    small_measure(rounds);
    remove_files();
    fprintf(stderr, "checksum %llx\n", (unsigned long long)small_sink);
    return fclose(lines_file) == 0 ? 0 : 1;
}
