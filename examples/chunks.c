/* Train a softmax classifier from chunks: synchronously, then with loading, copying and training
   side by side, and print both times and the gain. Then evaluate it, and predict.

   chunks [-e epochs] [-w loaders] [-c chunk-rows] [-b batch] [-p preload] [-n images] [directory]

   directory: the four IDX files of Fashion-MNIST, unpacked (examples/get_fashion_mnist.sh); without
   it, n images (20000) are made up and written to a temporary file. A chunk is one pread of many
   images, turned into floats; the batches are views into it. The weights come out the same to the
   last bit, whichever way they were trained. preload: 0 none, 1 CPU, 2 device, 3 what fits.
   Ctrl-C ends training after the step under way; what was learnt until then is evaluated. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIXELS = 28 * 28, CLASSES = 10, IMAGES_HEADER = 16, LABELS_HEADER = 8 };

/* ---- images: bytes in a file, and labels ---- */

typedef struct images {
    int fd;
    off_t at; /* of the first image */
    uint64_t n;
    uint8_t *labels; /* [n] */
} images;

static bool read_all(int fd, void *to, size_t n, off_t at) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (uint8_t *)to + done, n - done, at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* Of an IDX pair: as many images as both files have. */
static bool images_open(images *im, const char *dir, const char *set) {
    char path[512];
    struct stat st;
    int labels;
    snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte", dir, set);
    im->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (im->fd < 0 || fstat(im->fd, &st) != 0 || st.st_size < IMAGES_HEADER + PIXELS) {
        fprintf(stderr, "%s: %s\n", path, im->fd < 0 ? strerror(errno) : "no images");
        return false;
    }
    im->at = IMAGES_HEADER;
    im->n = (uint64_t)(st.st_size - IMAGES_HEADER) / PIXELS;
    snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte", dir, set);
    labels = open(path, O_RDONLY | O_CLOEXEC);
    im->labels = malloc(im->n);
    if (labels < 0 || !im->labels || !read_all(labels, im->labels, im->n, LABELS_HEADER)) {
        fprintf(stderr, "%s: not %" PRIu64 " labels\n", path, im->n);
        return false;
    }
    close(labels);
    for (uint64_t i = 0; i < im->n; i++) im->labels[i] %= CLASSES;
    return true;
}

/* Made up: each class has bright pixels of its own, and there is noise. */
static bool images_make(images *im, uint64_t n, uint64_t seed) {
    FILE *f = tmpfile();
    uint8_t pixels[PIXELS];
    im->n = n;
    im->at = 0;
    im->labels = malloc(n);
    if (!f || !im->labels) return false;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t r = dlp_hash(seed, i, 0, 0);
        im->labels[i] = (uint8_t)(r % CLASSES);
        for (uint64_t p = 0; p < PIXELS; p++) {
            uint64_t z = (r = r * UINT64_C(6364136223846793005) + 1442695040888963407u) >> 56;
            bool bright = dlp_hash(1, im->labels[i], p, 0) % 16 == 0;
            pixels[p] = (uint8_t)(z / 2 + (bright ? 60 : 0));
        }
        if (fwrite(pixels, 1, PIXELS, f) != PIXELS) return false;
    }
    fflush(f);
    im->fd = dup(fileno(f));
    fclose(f);
    return im->fd >= 0;
}

/* The loader: all images of the chunk in one read, then as floats, each with mean 0. */
static int load(void *user, dlp_chunk *c) {
    const images *im = user;
    uint8_t *bytes = malloc(c->count * PIXELS), *label = c->data[1];
    float *out = c->data[0];
    if (bytes == NULL)
        return dlp_fail(c->call, ENOMEM, "no memory for %" PRIu64 " images", c->count);
    if (!read_all(im->fd, bytes, c->count * PIXELS, im->at + (off_t)(c->first * PIXELS))) {
        free(bytes);
        return dlp_fail(c->call, errno, "cannot read %" PRIu64 " images", c->count);
    }
    for (uint64_t i = 0; i < c->count; i++) {
        const uint8_t *pixels = bytes + i * PIXELS;
        float mean = 0;
        for (int p = 0; p < PIXELS; p++) mean += (float)pixels[p];
        mean /= PIXELS;
        for (int p = 0; p < PIXELS; p++)
            out[i * PIXELS + (uint64_t)p] = ((float)pixels[p] - mean) / 128.0f;
        label[i] = im->labels[c->first + i];
    }
    free(bytes);
    return 0;
}

/* ---- the model: softmax of a linear map, cross-entropy, stochastic gradient descent ---- */

typedef struct model {
    float weight[CLASSES][PIXELS], bias[CLASSES];
    float rate;
    double loss; /* sum over what was trained on in this epoch */
    uint64_t seen, right;
    uint64_t predicted[CLASSES];
    bool quiet;
} model;

static void scores(const model *m, const float *x, float *p) {
    float most = -INFINITY, sum = 0;
    for (int c = 0; c < CLASSES; c++) {
        float s[8] = {m->bias[c]};
        for (int i = 0; i < PIXELS; i += 8)
            for (int k = 0; k < 8; k++) s[k] += m->weight[c][i + k] * x[i + k];
        p[c] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
        if (p[c] > most) most = p[c];
    }
    for (int c = 0; c < CLASSES; c++) sum += p[c] = expf(p[c] - most);
    for (int c = 0; c < CLASSES; c++) p[c] /= sum;
}

static int best_of(const float *p) {
    int best = 0;
    for (int c = 1; c < CLASSES; c++) best = p[c] > p[best] ? c : best;
    return best;
}

static int train_step(void *user, dlp_batch *b) {
    model *m = user;
    const float *x = b->fields[0].data;
    const uint8_t *label = b->fields[1].data;
    float rate = m->rate / (float)b->count;
    for (uint32_t r = 0; r < b->count; r++, x += PIXELS) {
        float p[CLASSES];
        scores(m, x, p);
        m->loss -= log((double)p[label[r]] + 1e-12);
        m->seen++;
        for (int c = 0; c < CLASSES; c++) {
            float step = rate * ((c == label[r] ? 1.0f : 0.0f) - p[c]);
            for (int i = 0; i < PIXELS; i++) m->weight[c][i] += step * x[i];
            m->bias[c] += step;
        }
    }
    return 0;
}

static int train_epoch(void *user, uint64_t epoch) {
    model *m = user;
    if (!m->quiet)
        printf("  epoch %" PRIu64 ": mean loss %.6f\n", epoch, m->loss / (double)m->seen);
    m->loss = 0;
    m->seen = 0;
    return 0;
}

static int evaluate_step(void *user, dlp_batch *b) {
    model *m = user;
    const uint8_t *label = b->fields[1].data;
    for (uint32_t r = 0; r < b->count; r++) {
        float p[CLASSES];
        scores(m, (const float *)b->fields[0].data + (size_t)r * PIXELS, p);
        m->right += best_of(p) == label[r];
        m->seen++;
    }
    return 0;
}

static int predict_step(void *user, dlp_batch *b) { /* rows come in the dataset's order */
    model *m = user;
    for (uint32_t r = 0; r < b->count; r++) {
        float p[CLASSES];
        scores(m, (const float *)b->fields[0].data + (size_t)r * PIXELS, p);
        m->predicted[best_of(p)]++;
    }
    return 0;
}

/* ---- runs ---- */

static dlp_pipe *running; /* what Ctrl-C stops */
static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    (void)number;
    stopped = 1;
    dlp_pipe_stop(running);
}

/* One run over a pipe: returns its seconds, or -1. */
static double run(const dlp_chunks_desc *d, const dlp_run_desc *r, bool explain) {
    dlp_error err;
    dlp_run_result result = {0};
    dlp_run_desc desc = *r;
    char words[2048];
    int rc = dlp_chunks_open(&running, d, &err);
    if (rc == DLP_OK) {
        desc.result = &result;
        rc = dlp_chunks_run(running, &desc);
        if (rc == DLP_STOPPED) printf("stopped after %" PRIu64 " steps\n", result.steps);
        if (rc < 0) err = *dlp_pipe_error(running);
        if (explain && dlp_pipe_explain(running, words, sizeof words) > 0) printf("%s", words);
        dlp_pipe *done = running;
        running = NULL;
        dlp_pipe_close(done);
    }
    if (rc < 0) {
        dlp_error_format(&err, words, sizeof words);
        fprintf(stderr, "%s\n", words);
        return -1;
    }
    return (double)result.elapsed_ns / 1e9;
}

typedef struct settings {
    int64_t epochs;
    int32_t loaders, preload;
    uint64_t chunk_rows;
    uint32_t batch;
    uint64_t images;
} settings;

static dlp_chunks_desc chunks_of(const settings *s, images *im) {
    static const dlp_field fields[2] = {{"pixels", DLP_F32, 1, {PIXELS}, 0, 0},
                                        {"label", DLP_U8, 0, {0}, 0, 0}};
    return (dlp_chunks_desc){.n_items = im->n,
                             .fields = fields,
                             .n_fields = 2,
                             .writes_all_bytes = 1,
                             .chunk_rows = s->chunk_rows,
                             .batch_size = s->batch,
                             .load = load,
                             .user = im,
                             .seed = 1,
                             .shuffle_chunks = 1,
                             .device = dlp_device_host(),
                             .epochs = s->epochs,
                             .workers.num_workers = s->loaders,
                             .preload = s->preload,
                             .pipe.limit_bytes = UINT64_C(2) << 30};
}

static bool same_weights(const model *a, const model *b) {
    for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < PIXELS; i++)
            if (a->weight[c][i] != b->weight[c][i]) return false;
    return true;
}

static bool train(const settings *s, images *im, model *sync, model *async) {
    dlp_chunks_desc d = chunks_of(s, im);
    dlp_run_desc r = {train_step, train_epoch, sync, 0, NULL};
    double t[2];
    sync->rate = async->rate = 0.05f;
    sync->quiet = true;
    d.workers.num_workers = DLP_NONE; /* load, copy, train, one after the other */
    d.transfer_inline = 1;
    d.cpu_buffers = 1;
    if ((t[0] = run(&d, &r, false)) < 0) return false;
    if (stopped) return *async = *sync, true;
    d = chunks_of(s, im);
    r.user = async;
    if ((t[1] = run(&d, &r, true)) < 0) return false;
    if (stopped) return true;
    printf("synchronous   %8.3f s\nasynchronous  %8.3f s\ngain          %8.2f\n", t[0], t[1],
           t[0] / t[1]);
    printf("same weights: %s\n", same_weights(sync, async) ? "yes" : "NO");
    return true;
}

static bool test(const settings *s, images *im, model *m) {
    dlp_chunks_desc d = chunks_of(s, im);
    dlp_run_desc r = {evaluate_step, NULL, m, 0, NULL};
    d.pass = DLP_PASS_EVALUATE;
    m->seen = 0;
    if (run(&d, &r, false) < 0) return false;
    printf("test accuracy %.2f %% of %" PRIu64 "\n", 100.0 * (double)m->right / (double)m->seen,
           m->seen);
    d.pass = DLP_PASS_PREDICT;
    r.on_step = predict_step;
    if (run(&d, &r, false) < 0) return false;
    printf("predicted    ");
    for (int c = 0; c < CLASSES; c++) printf(" %" PRIu64, m->predicted[c]);
    printf("\n");
    return true;
}

static bool number(const char *text, int64_t least, int64_t most, int64_t *to) {
    char *end;
    long long n = strtoll(text, &end, 10);
    if (*end != 0 || end == text || n < least || n > most) return false;
    *to = n;
    return true;
}

static bool arguments(int argc, char **argv, settings *s) {
    int64_t n;
    int option;
    *s = (settings){3, 1, DLP_PRELOAD_NONE, 2000, 50, 20000};
    while ((option = getopt(argc, argv, "e:w:c:b:p:n:")) != -1) {
        if (option == '?' || !number(optarg, option == 'w' || option == 'p' ? 0 : 1, 1 << 20, &n))
            return false;
        if (option == 'e') s->epochs = n;
        if (option == 'w') s->loaders = (int32_t)n;
        if (option == 'c') s->chunk_rows = (uint64_t)n;
        if (option == 'b') s->batch = (uint32_t)n;
        if (option == 'p') s->preload = (int32_t)n;
        if (option == 'n') s->images = (uint64_t)n;
    }
    return argc - optind <= 1;
}

int main(int argc, char **argv) {
    images set[2] = {{.fd = -1}, {.fd = -1}};
    model *sync = calloc(1, sizeof *sync), *async = calloc(1, sizeof *async);
    struct sigaction action = {.sa_handler = on_signal};
    settings s;
    bool good = false;
    if (!sync || !async) goto done;
    if (!arguments(argc, argv, &s)) {
        fprintf(stderr, "usage: chunks [-e epochs] [-w loaders] [-c chunk-rows] [-b batch] "
                        "[-p preload] [-n images] [directory]\n");
        goto done;
    }
    sigaction(SIGINT, &action, NULL);
    if (optind < argc)
        good = images_open(&set[0], argv[optind], "train") &&
               images_open(&set[1], argv[optind], "t10k");
    else
        good = images_make(&set[0], s.images, 1) && images_make(&set[1], s.images / 8 + 1, 2);
    good = good && train(&s, &set[0], sync, async) && test(&s, &set[1], async);
done:
    for (int i = 0; i < 2; i++) {
        if (set[i].fd >= 0) close(set[i].fd);
        free(set[i].labels);
    }
    free(sync);
    free(async);
    return good ? 0 : 1;
}
