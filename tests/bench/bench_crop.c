/* bench_crop: the middle 224 x 224 of JPEG files of 500 x 375, read, decoded and batched by two
   workers: ours decoding whole pictures, ours decoding what is kept, tf.data's decode_and_crop_jpeg
   (bench_peers.py tf_crop), by the accurate integer DCT with fancy upsampling. Checked by weighted
   sums of an epoch's words: both of ours give the same bytes; so does tf.data but for the last
   column, which it upsamples without its neighbour on the right, and which is left out there.

   bench_crop [-o lines.jsonl] [-t bench_peers.py] [-j folder] [-p photos | -p made] [-n pictures]
   QUICK=1: shorter. PYTHON: who has tensorflow. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_jpeg.h"

#if !HAVE_JPEG
int main(void) {
    printf("skipped: compiled without libjpeg (libjpeg62-turbo-dev)\n");
    return 77;
}
#else
#include "bench_rig.h"

enum { WORKERS = 2, BATCH = 64, PREFETCH = 4 };

static const char *folder = "build/bench/crops";
static uint32_t n_pictures = 1024;
static double sample_s = 1.5;

static void die(const char *what) {
    say("%s\n", what);
    exit(1);
}

/* ---- ours ------------------------------------------------------------------------------------ */

struct way {
    bool crops;
    uint64_t sum, sum_less; /* of all bytes, and without the last column */
};

struct reader {
    struct decoder decoder;
    uint8_t file[1 << 20];
};

static int reader_init(void *user, int worker, void **state) {
    struct reader *r = calloc(1, sizeof *r);
    (void)worker;
    if (r == NULL) { return 1; }
    r->decoder.crops = ((const struct way *)user)->crops;
    *state = r;
    return 0;
}

static void reader_exit(void *user, int worker, void *state) {
    struct reader *r = state;
    (void)user;
    (void)worker;
    decoder_end(&r->decoder);
    free(r);
}

static int fetch(void *user, dlp_item *item) {
    struct reader *r = item->worker_state;
    char path[512];
    (void)user;
    snprintf(path, sizeof path, "%s/%05u.jpg", folder, (unsigned)item->index);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, r->file, sizeof r->file);
    if (fd >= 0) { close(fd); }
    if (n <= 0) { return dlp_fail(item->call, errno, "%s cannot be read", path); }
    const char *why = decode(&r->decoder, r->file, (size_t)n, item->data[0]);
    return why == NULL ? 0 : dlp_fail(item->call, 1, "%s: %s", path, why);
}

static dlp_pipe *ours_open(struct way *way, int64_t epochs) {
    const dlp_field field = {.name = "x", .dtype = DLP_U8, .ndim = 3, .shape = {SIDE, SIDE, 3}};
    const dlp_loader_desc desc = {
        .dataset = {.n_items = n_pictures,
                    .fields = &field,
                    .n_fields = 1,
                    .writes_all_bytes = 1,
                    .fetch = fetch,
                    .user = way},
        .batch_size = BATCH,
        .num_workers = WORKERS,
        .shuffle = 1,
        .epochs = epochs,
        .workers = {.worker_init = reader_init, .worker_exit = reader_exit, .worker_user = way},
        .pipe.prefetch_factor = PREFETCH};
    dlp_pipe *p = NULL;
    dlp_error err;
    if (dlp_loader_open(&p, &desc, &err) != DLP_OK) { die(err.message); }
    return p;
}

static dlp_batch *ours_next(dlp_pipe *p) {
    dlp_batch *b = NULL;
    int code = dlp_pipe_next_timeout(p, &b, WAIT_MS);
    if (code != DLP_OK && code != DLP_END) { die(dlp_pipe_error(p)->message); }
    return code == DLP_OK ? b : NULL;
}

static double sample_ours(void *arg) {
    dlp_pipe *p = ours_open(arg, DLP_FOREVER);
    uint64_t items = 0;
    for (int i = 0; i < 2 * PREFETCH; i++) { dlp_pipe_release(p, ours_next(p)); }
    double begin = seconds_now(), now = begin;
    for (; now - begin < sample_s; now = seconds_now()) {
        dlp_batch *b = ours_next(p);
        items += b->count;
        dlp_pipe_release(p, b);
    }
    dlp_pipe_close(p);
    return (double)items / (now - begin);
}

static uint64_t weighted_sum(const uint8_t *at) {
    uint64_t sum = 0;
    for (uint64_t k = 0; k < PICTURE_BYTES / 8; k++) {
        uint64_t word;
        memcpy(&word, at + 8 * k, 8);
        sum += word * (2 * k + 1);
    }
    return sum;
}

/* An epoch's sums. */
static void ours_sum(struct way *way) {
    dlp_pipe *p = ours_open(way, 1);
    way->sum = way->sum_less = 0;
    for (dlp_batch *b; (b = ours_next(p)) != NULL; dlp_pipe_release(p, b)) {
        uint8_t *at = b->fields[0].data;
        for (uint32_t row = 0; row < b->count; row++, at += PICTURE_BYTES) {
            way->sum += weighted_sum(at);
            for (size_t y = 0; y < SIDE; y++) { memset(at + (y * SIDE + SIDE - 1) * 3, 0, 3); }
            way->sum_less += weighted_sum(at);
        }
    }
    dlp_pipe_close(p);
}

/* ---- tf.data --------------------------------------------------------------------------------- */

static double sample_tf(void *arg) {
    double rate;
    (void)arg;
    return torch_ask(&rate, 1, "rate %d", (int)(sample_s * 1e3)) ? rate : NAN;
}

static bool tf_opened(struct size size, uint64_t want) {
    double got[3];
    setenv("PICTURES", folder, 1);
    torch_begin_as((const char *const[]){python_path(), "-uB", torch_script, "tf_crop", NULL});
    if (torch.pid <= 0 ||
        !torch_ask(NULL, 0, "open %u %u %u %d %d %d", n_pictures, size.width, size.height, BATCH,
                   WORKERS, PREFETCH) ||
        !torch_ask(got, 3, "check")) {
        return false;
    }
    uint64_t sum = (uint64_t)got[1] << 32 | (uint64_t)got[2];
    say("tf.data: %.0f pictures, sum %016" PRIx64 "\n", got[0], sum);
    if (sum == want && (uint64_t)got[0] == n_pictures) { return true; }
    failures++;
    torch_end("it delivers other bytes");
    return false;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void measure(struct way *whole, struct way *crop, bool with_tf) {
    struct series s = {0};
    struct measure m = {.bench = "crop_whole", .unit = "item/s"};
    snprintf(m.extra, sizeof m.extra, ",\"workers\":%d,\"batch\":%d,\"prefetch\":%d", WORKERS,
             BATCH, PREFETCH);
    compete(&s, "whole", "", sample_ours, whole);
    compete(&s, "crop", "", sample_ours, crop);
    if (with_tf) { compete(&s, "tf.data", torch.version, sample_tf, NULL); }
    run_rounds(&s, "crop", quick ? 3 : 7);
    for (int who = 0; who < 2; who++) {
        m.bench = who ? "crop_kept" : "crop_whole";
        if (with_tf) {
            put(&m, &s, who, 2);
        } else {
            put(&m, &s, who, -1);
            put_skipped(m.bench, "tf.data", torch_reason(), m.extra);
        }
    }
    m.bench = "crop_kept";
    put(&m, &s, 1, 0);
}

int main(int argc, char **argv) {
    const char *photos = "/usr/share/backgrounds";
    torch_script = "tests/bench/bench_peers.py";
    quick = asked_for("QUICK");
    sample_s = quick ? 0.6 : 1.5;
    for (int c; (c = getopt(argc, argv, "o:t:j:p:n:")) != -1;) {
        switch (c) {
        case 'o':
            if (!lines_to(optarg, "w")) { return 1; }
            break;
        case 't': torch_script = optarg; break;
        case 'j': folder = optarg; break;
        case 'p': photos = optarg; break;
        case 'n': n_pictures = (uint32_t)atoi(optarg); break;
        default: return 2;
        }
    }
    struct size size = {CUT_WIDTH, CUT_HEIGHT};
    mkdir(folder, 0777);
    if (!pictures_cut(photos, size, n_pictures, folder) &&
        !pictures_cut("made", size, n_pictures, folder)) {
        die("no pictures");
    }
    signal(SIGPIPE, SIG_IGN);
    struct way whole = {.crops = false}, crop = {.crops = true};
    ours_sum(&whole), ours_sum(&crop);
    say("whole %016" PRIx64 ", kept %016" PRIx64 "\n", whole.sum, crop.sum);
    if (whole.sum != crop.sum) { die("decoding what is kept gives other bytes"); }
    measure(&whole, &crop, tf_opened(size, crop.sum_less));
    torch_end("");
    say("%d failures\n", failures);
    return failures != 0;
}
#endif
