/* bench_s3_pipe: what a loader makes of a store with latency. JPEG objects, shuffled, decoded, in
   batches of 64, prefetch 4: the economic topology with 16 items in flight in each of 4 workers,
   and the classic one (whole batches to 4 workers, one item at a time), as most loaders work.

   bench_s3_pipe [-o lines.jsonl] [-s folder] [-j folder] [-p photos] [-n pictures] [-e epochs]
   The server is that of AWS_ENDPOINT_URL. Uploads the pictures (of -j; where it has none, they are
   cut out of photographs), then each sample is a process of its own, which opens a pipe, takes all
   epochs, 10 (QUICK=1: 1), with a step that sleeps 2 ms a batch, and says what it saw; those that
   end in _step take 2, with 100 ms a batch, which a loader can keep up with. The rate is all items
   by all the time from before open. Memory: growth of the PSS since before open. Timelines of the
   end, as SVG, into the folder of -s. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_s3.h"

#include "bench_jpeg.h"

#if !HAVE_JPEG
int main(void) {
    printf("skipped: compiled without libjpeg (libjpeg62-turbo-dev)\n");
    return 77;
}
#else
#include "bench_rig.h"
#include "../rig/sources.h"
#include "bench_sample.h"

enum { BATCH = 64, WORKERS = 4, PREFETCH = 4, IN_FLIGHT = 16, PUTS = 64 };
enum { STEP_US = 2000, LONG_STEP_US = 100000 };

static const char *const bucket = "pictures";

static struct {
    const char *folder, *photos, *svg;
    uint32_t n;
    int epochs;
} plan = {
    .folder = "build/bench/jpegs", .photos = "/usr/share/backgrounds", .n = 3000, .epochs = 10};

static bool complain(const dlp_s3_error *err) {
    char line[1024];
    dlp_s3_error_format(err, line, sizeof line);
    say(" [%s]", line);
    return false;
}

/* ---- the objects ----------------------------------------------------------------------------- */

/* Cut what the folder does not have. */
static bool pictures_ready(void) {
    struct size size = {CUT_WIDTH, CUT_HEIGHT};
    char path[512];
    snprintf(path, sizeof path, "%s/%05u.jpg", plan.folder, plan.n - 1);
    if (access(path, R_OK) == 0) { return true; }
    mkdir(plan.folder, 0777);
    if (pictures_cut(plan.photos, size, plan.n, plan.folder)) { return true; }
    say("no photographs in %s: made pictures\n", plan.photos);
    return pictures_cut("made", size, plan.n, plan.folder);
}

struct put {
    dlp_s3_request request;
    char key[32];
    void *bytes;
};

static bool put_read(struct put *p, uint32_t i) {
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "%s/%05u.jpg", plan.folder, i);
    FILE *f = fopen(path, "rb");
    bool good = f != NULL && fstat(fileno(f), &st) == 0;
    free(p->bytes);
    p->bytes = good ? malloc((size_t)st.st_size) : NULL;
    good = p->bytes != NULL && fread(p->bytes, 1, (size_t)st.st_size, f) == (size_t)st.st_size;
    if (f != NULL) { fclose(f); }
    snprintf(p->key, sizeof p->key, "%05u.jpg", i);
    p->request = (dlp_s3_request){.method = DLP_S3_PUT,
                                  .bucket = bucket,
                                  .key = p->key,
                                  .body = p->bytes,
                                  .capacity = good ? (uint64_t)st.st_size : 0,
                                  .user = p};
    return good;
}

/* Returns bytes uploaded; 0: it failed. */
static uint64_t upload(dlp_s3 *s3) {
    static struct put put[PUTS];
    struct put *idle[PUTS];
    dlp_s3_request make = {.method = DLP_S3_PUT, .bucket = bucket, .key = ""}, *done[PUTS];
    dlp_s3_io *io = NULL;
    dlp_s3_error err;
    uint32_t begun = 0, over = 0;
    uint64_t bytes = 0;
    int n_idle = PUTS;
    bool good = dlp_s3_io_open(&io, s3, &err) == DLP_OK || complain(&err);
    if (good && dlp_s3_do(io, &make) != DLP_OK) {
        good = make.error.http_status == 409 || complain(&make.error);
    }
    for (int i = 0; i < PUTS; i++) { idle[i] = &put[i]; }
    while (good && over < plan.n) {
        while (good && n_idle > 0 && begun < plan.n) {
            good = put_read(idle[n_idle - 1], begun++) &&
                   dlp_s3_submit(io, &idle[n_idle - 1]->request) == DLP_OK;
            n_idle--;
        }
        int n = dlp_s3_reap(io, done, PUTS, 1000);
        for (int i = 0; i < n; i++, over++) {
            good = good && (done[i]->code == DLP_OK || complain(&done[i]->error));
            bytes += done[i]->capacity;
            idle[n_idle++] = done[i]->user;
        }
    }
    dlp_s3_io_close(io);
    for (int i = 0; i < PUTS; i++) { free(put[i].bytes); }
    return good ? bytes : 0;
}

/* ---- a sample, in a process of its own ------------------------------------------------------- */

/* One process, with all of the pipe's memory mapped: nothing of it is elsewhere. */
static uint64_t pss_of(pid_t pid) {
    uint64_t own = 0, shared = 0;
    add_pss(pid, &own, &shared);
    return own + shared;
}

static const struct row { /* each is followed by the one to compare with */
    const char *name;
    int topology, fetcher;
    uint32_t step_us;
} rows[] = {{"economic_async", DLP_TOPOLOGY_ECONOMIC, DLP_FETCH_ASYNC, STEP_US},
            {"classic_seq", DLP_TOPOLOGY_CLASSIC, DLP_FETCH_SEQUENTIAL, STEP_US},
            {"economic_async_step", DLP_TOPOLOGY_ECONOMIC, DLP_FETCH_ASYNC, LONG_STEP_US},
            {"classic_seq_step", DLP_TOPOLOGY_CLASSIC, DLP_FETCH_SEQUENTIAL, LONG_STEP_US}};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int decoder_begin(void *user, int worker, void **state) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(worker);
    *state = calloc(1, sizeof(struct decoder));
    return *state == NULL;
}

static void decoder_over(void *user, int worker, void *state) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(worker);
    decoder_end(state);
    free(state);
}

static int decode_item(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    const char *why = decode(state, bytes, n, item->data[0]);
    DLPI_UNUSED(user);
    return why == NULL ? 0 : dlp_fail(item->call, 0, "%s", why);
}

/* The bucket's list says which items there are. */
static dlp_pipe *sample_open(const struct row *row, dlp_s3 *s3) {
    static const dlp_field field = {
        .name = "picture", .dtype = DLP_U8, .ndim = 3, .shape = {SIDE, SIDE, 3}};
    dlp_s3_list_desc list = {.bucket = bucket};
    dlp_s3_source_desc sd = {.s3 = s3,
                             .bucket = bucket,
                             .fields = &field,
                             .n_fields = 1,
                             .decode = decode_item,
                             .writes_all_bytes = 1,
                             .worker_init = decoder_begin,
                             .worker_exit = decoder_over,
                             .in_flight = row->fetcher == DLP_FETCH_ASYNC ? IN_FLIGHT : 1};
    dlp_loader_desc d = {.batch_size = BATCH,
                         .num_workers = WORKERS,
                         .shuffle = 1,
                         .drop_last = 1,
                         .epochs = plan.epochs,
                         .seed = 20250131,
                         .topology = row->topology,
                         .pipe = {.prefetch_factor = PREFETCH, .name = row->name}};
    dlp_s3_manifest *m = NULL;
    dlp_source *source = NULL;
    dlp_s3_io *io = NULL;
    dlp_s3_error e = {0};
    dlp_pipe *p = NULL;
    dlp_error err;
    if (dlp_s3_manifest_open(&m, &e) != DLP_OK || dlp_s3_io_open(&io, s3, &e) != DLP_OK ||
        dlp_s3_manifest_list(m, io, &list, &e) != DLP_OK) {
        complain(&e);
        return NULL;
    }
    dlp_s3_io_close(io);
    sd.manifest = m;
    if (dlp_s3_source_open(&source, &sd, &e) != DLP_OK) {
        complain(&e);
        return NULL;
    }
    d.fetcher = row->fetcher;
    source_own(&d, source);
    if (dlp_loader_open(&p, &d, &err) != DLP_OK) { say(" [%s]", err.message); }
    return p;
}

/* bench_s3_pipe --sample ROW EPOCHS [TIMELINE]: prints the figures. */
static int sample_main(char **argv) {
    const struct row *row = &rows[atoi(argv[2]) % N_ROWS];
    struct sample s = {0};
    dlp_s3 *s3 = NULL;
    dlp_s3_error e;
    dlp_s3_stats sent;
    plan.epochs = atoi(argv[3]);
    s.before_bytes = (double)pss_of(getpid());
    double begin = seconds_now();
    if (dlp_s3_open(&s3, NULL, &e) != DLP_OK) { return !complain(&e); }
    dlp_pipe *p = sample_open(row, s3);
    if (p == NULL || !sample_take(p, row->step_us, true, &s, begin)) { return 1; }
    dlp_s3_stats_get(s3, &sent);
    s.requests = (double)sent.requests;
    return sample_tell(p, &s, argv[4]);
}

/* ---- asking for samples ---------------------------------------------------------------------- */

static struct sample taken[N_ROWS];
static double peak_bytes[N_ROWS];

static int epochs_of(const struct row *row) {
    return row->step_us > STEP_US && plan.epochs > 2 ? 2 : plan.epochs;
}

static double sample_row(void *arg) {
    const struct row *row = arg;
    struct sample *s = &taken[row - rows];
    char number[2][16], svg[512];
    struct child child = {.bytes_of = pss_of, .every_ms = 100};
    snprintf(number[0], 16, "%d", (int)(row - rows));
    snprintf(number[1], 16, "%d", epochs_of(row));
    snprintf(svg, sizeof svg, "%s/timeline_s3_%s.svg", plan.svg ? plan.svg : "", row->name);
    const char *argv[] = {"bench_s3_pipe",       "--sample", number[0], number[1],
                          plan.svg ? svg : NULL, NULL};
    if (!sample_ask(&child, argv, s)) {
        failures++;
        return NAN;
    }
    peak_bytes[row - rows] = fmax((double)child.peak_bytes - s->before_bytes, 0);
    return s->rate;
}

static void row_put(const struct series *series, int i, double object_bytes) {
    const struct sample *s = &taken[i];
    char name[80];
    struct measure m = {.bench = name, .unit = "item/s"};
    snprintf(name, sizeof name, "topo_%s_threads_s3%s", rows[i & 1].name, i > 1 ? "_step" : "");
    snprintf(m.extra, sizeof m.extra,
             ",\"wait_share\":%.4f,\"peak_bytes\":%.0f,\"plan_bytes\":%.0f,\"first_batch_ms\":%.4g,"
             "\"epochs\":%d,\"items\":%u,\"object_bytes\":%.0f,\"requests\":%.0f",
             s->wait_share, peak_bytes[i], s->plan_bytes, s->first_ms, epochs_of(&rows[i]), plan.n,
             object_bytes, s->requests);
    put(&m, series, i, i % 2 == 0 ? i + 1 : -1);
    say("%-20s %7.1f item/s  waited %4.1f %%  peak %6.1f MB (%.1f planned)  first batch %4.0f ms  "
        "%.3f requests an item\n",
        rows[i].name, s->rate, 100 * s->wait_share, peak_bytes[i] * 1e-6, s->plan_bytes * 1e-6,
        s->first_ms, s->requests / ((double)epochs_of(&rows[i]) * (plan.n / BATCH * BATCH)));
}

static bool options(int argc, char **argv) {
    bool good = true;
    for (int c; (c = getopt(argc, argv, "o:s:j:p:n:e:")) != -1;) {
        switch (c) {
        case 'o': good = lines_to(optarg, "a"); break;
        case 's': plan.svg = optarg; break;
        case 'j': plan.folder = optarg; break;
        case 'p': plan.photos = optarg; break;
        case 'n': plan.n = (uint32_t)atoi(optarg); break;
        case 'e': plan.epochs = atoi(optarg); break;
        default: return false;
        }
    }
    return good && optind == argc && plan.n >= BATCH && plan.n < 100000 && plan.epochs > 0;
}

int main(int argc, char **argv) {
    struct series series = {.any_distance = true};
    dlp_s3 *s3 = NULL;
    dlp_s3_error e;
    if (argc > 3 && strcmp(argv[1], "--sample") == 0) { return sample_main(argv); }
    quick = asked_for("QUICK");
    plan.epochs = quick ? 1 : plan.epochs;
    if (!options(argc, argv)) {
        say("bench_s3_pipe [-o lines.jsonl] [-s folder] [-j folder] [-p photos] [-n pictures] "
            "[-e epochs]\n");
        return 2;
    }
    if (!pictures_ready() || dlp_s3_open(&s3, NULL, &e) != DLP_OK) {
        say("no pictures, or no client\n");
        return 1;
    }
    double begin = seconds_now();
    uint64_t bytes = upload(s3);
    dlp_s3_close(s3);
    if (bytes == 0) { return 1; }
    say("%u objects of %.1f KB uploaded in %.1f s, %d at once\n", plan.n,
        (double)bytes * 1e-3 / plan.n, seconds_now() - begin, PUTS);
    for (int i = 0; i < N_ROWS; i++) {
        compete(&series, rows[i].name, "", sample_row, (void *)(uintptr_t)&rows[i]);
    }
    run_rounds(&series, "S3", 1);
    for (int i = 0; i < N_ROWS; i++) { row_put(&series, i, (double)bytes / plan.n); }
    for (int i = 1; i < N_ROWS; i++) {
        if (taken[i].sum != taken[0].sum) {
            say("%s: the bytes of the first epoch differ\n", rows[i].name);
            failures++;
        }
    }
    return failures != 0;
}
#endif
