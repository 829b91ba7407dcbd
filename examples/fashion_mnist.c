/* Train a classifier of Fashion-MNIST: a network of one hidden layer in plain C, fed by dlpipe.

   fashion_mnist [-v] [-e epochs] [-w workers] [-b batch] [-s seed] [-o folder] data-directory

   Workers read images from the file with pread, shift and mirror them at random, and write them as
   floats straight into the batch that the trainer gets. The random numbers come from the place of
   an image in the epoch, so any number of workers gives the same losses, digit for digit. Ends with
   the accuracy on the test images, and with words and a picture of where the time went. With -v it
   begins with the plan: what the pipe will use, in bytes. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, HIDDEN = 128, CLASSES = 10, OUTPUTS = 16 };
enum { MAX_BATCH = 4096 };

/* ---------------------------------------------------------------------------------------------
   The images: two IDX files, checked before they are believed */

typedef struct images {
    int fd;
    uint32_t n;
    uint8_t *labels; /* [n] each under CLASSES */
    bool augment;
    char path[512];
} images;

enum { IMAGES_HEADER = 16, LABELS_HEADER = 8 };

static bool complain(const char *path, const char *what) {
    fprintf(stderr, "%s: %s\n", path, what);
    return false;
}

static uint32_t big_endian(const uint8_t *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static bool read_all(int fd, void *to, size_t n, off_t at) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (uint8_t *)to + done, n - done, at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (got == 0) {
            errno = ENODATA;
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

/* Open an IDX file of n_dims dimensions, the first of which is the number of items. Returns the
   file descriptor, or -1 having said what is wrong with the file. */
static int open_idx(const char *path, int n_dims, uint64_t item_bytes, uint32_t *n) {
    uint8_t head[IMAGES_HEADER];
    char words[128];
    struct stat st;
    size_t head_bytes = 4u + 4u * (size_t)n_dims;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !read_all(fd, head, head_bytes, 0)) {
        complain(path, strerror(errno));
        goto bad;
    }
    if (big_endian(head) != 0x0800u + (uint32_t)n_dims) {
        complain(path, n_dims == 3 ? "not an IDX file of images" : "not an IDX file of labels");
        goto bad;
    }
    if (n_dims == 3 && (big_endian(head + 8) != SIDE || big_endian(head + 12) != SIDE)) {
        complain(path, "the images are not of 28 x 28 pixels");
        goto bad;
    }
    *n = big_endian(head + 4);
    uint64_t want = head_bytes + *n * item_bytes;
    if (*n == 0 || (uint64_t)st.st_size != want) {
        snprintf(words, sizeof words, "%lld bytes long, but its header promises %llu",
                 (long long)st.st_size, (unsigned long long)want);
        complain(path, *n == 0 ? "holds no items" : words);
        goto bad;
    }
    return fd;
bad:
    if (fd >= 0) close(fd);
    return -1;
}

static bool read_labels(images *im, const char *path) {
    uint32_t n = 0;
    bool good = false;
    int fd = open_idx(path, 1, 1, &n);
    if (fd < 0) return false;
    if (n != im->n) {
        complain(path, "has another number of items than the images");
        goto done;
    }
    im->labels = malloc(n);
    if (!im->labels || !read_all(fd, im->labels, n, LABELS_HEADER)) {
        complain(path, strerror(errno));
        goto done;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (im->labels[i] >= CLASSES) {
            complain(path, "has a label above 9");
            goto done;
        }
    }
    good = true;
done:
    close(fd);
    return good;
}

static bool images_open(images *im, const char *dir, const char *set, bool augment) {
    char path[512];
    *im = (images){.fd = -1, .augment = augment};
    snprintf(im->path, sizeof im->path, "%s/%s-images-idx3-ubyte", dir, set);
    snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte", dir, set);
    im->fd = open_idx(im->path, 3, PIXELS, &im->n);
    return im->fd >= 0 && read_labels(im, path);
}

static void images_close(images *im) {
    if (im->fd >= 0) close(im->fd);
    free(im->labels);
}

/* The dataset's callback, run by the item workers: write image and label into their batch. */
static int fetch(void *user, dlp_item *item) {
    const images *im = user;
    uint8_t pixels[PIXELS];
    float *out = item->data[0];
    int dx = 0, dy = 0;
    bool mirror = false;

    if (!read_all(im->fd, pixels, PIXELS, IMAGES_HEADER + (off_t)item->index * PIXELS))
        return dlp_fail(item->call, errno, "cannot read %s", im->path);
    if (im->augment) {
        uint64_t r = dlp_item_random(item, 0);
        dx = (int)(r % 3) - 1;
        dy = (int)((r >> 16) % 3) - 1;
        mirror = r >> 63;
    }
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            int from_x = (mirror ? SIDE - 1 - x : x) + dx, from_y = y + dy;
            bool inside = from_x >= 0 && from_x < SIDE && from_y >= 0 && from_y < SIDE;
            float v = inside ? (float)pixels[from_y * SIDE + from_x] : 0.0f;
            out[y * SIDE + x] = (v / 255.0f - 0.286f) / 0.353f; /* mean and deviation of the set */
        }
    }
    *(uint8_t *)item->data[1] = im->labels[item->index];
    return 0;
}

/* ---------------------------------------------------------------------------------------------
   The network: 784 pixels, 128 hidden units (rectified), 10 classes; softmax, cross-entropy,
   stochastic gradient descent with momentum. Weights lie [from][to], outputs padded to 16. */

typedef struct layer {
    float *weight, *velocity; /* [in][out] */
    float *bias, *bias_velocity;
    int in, out;
} layer;

typedef struct network {
    layer hidden, output;
    float *h;     /* [batch][HIDDEN] */
    float *dh;    /* [batch][HIDDEN] */
    float *logit; /* [batch][OUTPUTS], then its gradient */
} network;

static float uniform(uint64_t *state) { /* in -1..1; splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((z ^ z >> 31) >> 40) / 8388608.0f - 1.0f;
}

static bool layer_init(layer *l, int in, int out, int used, uint64_t seed) {
    size_t n = (size_t)in * (size_t)out;
    *l = (layer){.in = in, .out = out};
    l->weight = calloc(n, sizeof(float));
    l->velocity = calloc(n, sizeof(float));
    l->bias = calloc((size_t)out, sizeof(float));
    l->bias_velocity = calloc((size_t)out, sizeof(float));
    if (!l->weight || !l->velocity || !l->bias || !l->bias_velocity) return false;
    float scale = sqrtf(6.0f / (float)in);
    for (size_t i = 0; i < n; i++)
        if ((int)(i % (size_t)out) < used) l->weight[i] = scale * uniform(&seed);
    return true;
}

static void layer_free(layer *l) {
    free(l->weight);
    free(l->velocity);
    free(l->bias);
    free(l->bias_velocity);
}

static bool network_init(network *net, uint32_t batch, uint64_t seed) {
    *net = (network){0};
    net->h = calloc((size_t)batch * HIDDEN, sizeof(float));
    net->dh = calloc((size_t)batch * HIDDEN, sizeof(float));
    net->logit = calloc((size_t)batch * OUTPUTS, sizeof(float));
    return layer_init(&net->hidden, PIXELS, HIDDEN, HIDDEN, seed) &&
           layer_init(&net->output, HIDDEN, OUTPUTS, CLASSES, seed + 1) && net->h && net->dh &&
           net->logit;
}

static void network_free(network *net) {
    layer_free(&net->hidden);
    layer_free(&net->output);
    free(net->h);
    free(net->dh);
    free(net->logit);
}

enum { TILE_ROWS = 4, TILE_COLUMNS = 8 };

/* acc[r][c] = sum over k < n of a[r][k * step] * b[k * width + c]. The sums stay in registers, and
   compilers make vector code of the inner loops. */
static void tile(float acc[TILE_ROWS][TILE_COLUMNS], const float *const a[TILE_ROWS], int step,
                 const float *b, int width, int n) {
    float sum[TILE_ROWS][TILE_COLUMNS] = {{0}};
    for (int k = 0; k < n; k++)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int c = 0; c < TILE_COLUMNS; c++) sum[r][c] += a[r][k * step] * b[k * width + c];
    memcpy(acc, sum, sizeof sum);
}

/* out[rows][l->out] = in[rows][l->in] * weight + bias */
static void forward(const layer *l, const float *in, float *out, int rows) {
    float acc[TILE_ROWS][TILE_COLUMNS];
    for (int i = 0; i < rows; i += TILE_ROWS) {
        const float *a[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++) /* the last tile may repeat the last row */
            a[r] = in + (i + r < rows ? i + r : rows - 1) * l->in;
        for (int j = 0; j < l->out; j += TILE_COLUMNS) {
            tile(acc, a, 1, l->weight + j, l->out, l->in);
            for (int r = 0; r < TILE_ROWS && i + r < rows; r++)
                for (int c = 0; c < TILE_COLUMNS; c++)
                    out[(i + r) * l->out + j + c] = acc[r][c] + l->bias[j + c];
        }
    }
}

static void step(float *weight, float *velocity, float gradient, float rate) {
    *velocity = 0.9f * *velocity - rate * gradient;
    *weight += *velocity;
}

/* Take a step against the gradient in^T * d_out. */
static void update(layer *l, const float *in, const float *d_out, int rows, float rate) {
    float acc[TILE_ROWS][TILE_COLUMNS];
    for (int i = 0; i < l->in; i += TILE_ROWS) {
        const float *a[TILE_ROWS] = {in + i, in + i + 1, in + i + 2, in + i + 3};
        for (int j = 0; j < l->out; j += TILE_COLUMNS) {
            tile(acc, a, l->in, d_out + j, l->out, rows);
            for (int r = 0; r < TILE_ROWS; r++)
                for (int c = 0; c < TILE_COLUMNS; c++) {
                    size_t w = (size_t)(i + r) * (size_t)l->out + (size_t)(j + c);
                    step(&l->weight[w], &l->velocity[w], acc[r][c], rate);
                }
        }
    }
    for (int j = 0; j < l->out; j++) {
        float sum = 0;
        for (int i = 0; i < rows; i++) sum += d_out[i * l->out + j];
        step(&l->bias[j], &l->bias_velocity[j], sum, rate);
    }
}

static void predict(network *net, const float *image, int rows) {
    forward(&net->hidden, image, net->h, rows);
    for (int i = 0; i < rows * HIDDEN; i++) net->h[i] = net->h[i] > 0 ? net->h[i] : 0;
    forward(&net->output, net->h, net->logit, rows);
}

/* Turn the logits of a row into the gradient of its loss; returns the loss. */
static float softmax_loss(float *logit, int label, float scale) {
    float top = logit[0], sum = 0;
    for (int c = 1; c < CLASSES; c++) top = logit[c] > top ? logit[c] : top;
    float loss = top - logit[label];
    for (int c = 0; c < CLASSES; c++) sum += logit[c] = expf(logit[c] - top);
    for (int c = 0; c < CLASSES; c++) logit[c] = scale * (logit[c] / sum - (c == label ? 1.0f : 0));
    for (int c = CLASSES; c < OUTPUTS; c++) logit[c] = 0;
    return loss + logf(sum);
}

/* One step of training; returns the batch's mean loss. */
static float train(network *net, const float *image, const uint8_t *label, int rows, float rate) {
    float loss = 0;
    predict(net, image, rows);
    for (int i = 0; i < rows; i++)
        loss += softmax_loss(net->logit + i * OUTPUTS, label[i], 1.0f / (float)rows);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < HIDDEN; j++) {
            float d = 0;
            for (int c = 0; c < CLASSES; c++)
                d += net->logit[i * OUTPUTS + c] * net->output.weight[j * OUTPUTS + c];
            net->dh[i * HIDDEN + j] = net->h[i * HIDDEN + j] > 0 ? d : 0;
        }
    }
    update(&net->output, net->h, net->logit, rows, rate);
    update(&net->hidden, image, net->dh, rows, rate);
    return loss / (float)rows;
}

static int count_right(network *net, const dlp_batch *batch) {
    const uint8_t *label = batch->fields[1].data;
    int right = 0;
    predict(net, batch->fields[0].data, (int)batch->count);
    for (uint32_t i = 0; i < batch->count; i++) {
        const float *logit = net->logit + i * OUTPUTS;
        int best = 0;
        for (int c = 1; c < CLASSES; c++) best = logit[c] > logit[best] ? c : best;
        right += batch->valid[i] && best == label[i];
    }
    return right;
}

/* ---------------------------------------------------------------------------------------------
   The pipes */

typedef struct options {
    const char *data, *out;
    int epochs, workers, batch;
    bool plan; /* say the plan first */
    uint64_t seed;
} options;

static dlp_pipe *running; /* for the signal handler */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
    if (running) dlp_pipe_stop(running);
}

/* Let SIGINT in, or keep it out. Workers start while it is kept out, and so never run the handler:
   it cannot meet a pipe that the main thread is closing. */
static void interrupts(bool in) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(in ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
}

static const dlp_field image_fields[2] = {
    {.name = "image", .dtype = DLP_F32, .ndim = 2, .shape = {SIDE, SIDE}},
    {.name = "label", .dtype = DLP_U8},
};

static dlp_pipe *open_pipe(images *im, const options *opt, bool training) {
    dlp_loader_desc desc = {
        .dataset = {.n_items = im->n,
                    .fields = image_fields,
                    .n_fields = 2,
                    .writes_all_bytes = 1,
                    .fetch = fetch,
                    .user = im},
        .batch_size = (uint32_t)opt->batch,
        .num_workers = opt->workers,
        .shuffle = training,
        .drop_last = training ? DLP_LAST_DROP : DLP_LAST_PARTIAL,
        .epochs = training ? opt->epochs : 1,
        .seed = opt->seed,
        .pipe = {.prefetch_factor = 4,
                 .name = training ? "training" : "test",
                 .counters = &(dlp_counter){.name = "loss"}, /* a lane of the pictures */
                 .n_counters = 1},
    };
    dlp_pipe *pipe = NULL;
    dlp_error err;
    interrupts(false);
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) {
        char line[768];
        dlp_error_format(&err, line, sizeof line);
        fprintf(stderr, "%s\n", line);
        pipe = NULL;
    }
    running = pipe;
    if (pipe && interrupted) dlp_pipe_stop(pipe);
    interrupts(true);
    return pipe;
}

static void close_pipe(dlp_pipe *pipe) {
    interrupts(false);
    running = NULL;
    interrupts(true);
    dlp_pipe_close(pipe);
}

static void say_error(dlp_pipe *pipe) {
    char line[768];
    dlp_error_format(dlp_pipe_error(pipe), line, sizeof line);
    fprintf(stderr, "\n%s\n", line);
}

static void say_plan(dlp_pipe *pipe) {
    dlp_plan plan;
    char text[4096];
    if (dlp_pipe_plan(pipe, &plan) != DLP_OK) return;
    dlp_plan_format(&plan, text, sizeof text);
    printf("%s\n", text);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

typedef struct progress {
    bool tty, open; /* open: a line without its end is on the screen */
    uint64_t said_ns, items, wait_ns;
    float loss; /* smoothed */
} progress;

/* Say how far we are, when it is time or when forced: in place on a terminal, else a line every
   10 s. */
static void say_progress(progress *pr, dlp_pipe *pipe, const options *opt, const dlp_batch *batch,
                         bool force) {
    uint64_t now = now_ns(), passed = now - pr->said_ns;
    dlp_stats stats;
    if (!force && passed < (pr->tty ? 100 : 10000) * (uint64_t)1000000) return;
    if (passed == 0 || dlp_pipe_stats(pipe, &stats) != DLP_OK) return;
    printf("%sepoch %d of %d  step %4d of %d  %6.0f items/s  consumer waited %2.0f %%  loss %.3f",
           pr->open ? "\r" : "", (int)batch->epoch + 1, opt->epochs, (int)batch->in_epoch + 1,
           (int)dlp_pipe_batches_per_epoch(pipe),
           (double)(stats.items - pr->items) * 1e9 / (double)passed,
           100.0 * (double)(stats.wait_ns - pr->wait_ns) / (double)passed, (double)pr->loss);
    pr->open = pr->tty && !(batch->flags & DLP_BATCH_LAST);
    if (!pr->open) printf("\n");
    fflush(stdout);
    pr->said_ns = now;
    pr->items = stats.items;
    pr->wait_ns = stats.wait_ns;
}

/* Train to the end, or to an interrupt. Returns what ended it: DLP_END, DLP_STOPPED or an error. */
static int train_all(network *net, dlp_pipe *pipe, const options *opt, double *last_loss) {
    progress pr = {.tty = isatty(1), .said_ns = now_ns()};
    double steps = (double)opt->epochs * (double)dlp_pipe_batches_per_epoch(pipe);
    dlp_batch *batch = NULL;
    int code;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        float rate = 0.03f * (1.0f - (float)((double)batch->sequence / steps));
        float loss =
            train(net, batch->fields[0].data, batch->fields[1].data, (int)batch->count, rate);
        pr.loss = batch->sequence ? 0.98f * pr.loss + 0.02f * loss : loss;
        say_progress(&pr, pipe, opt, batch, batch->flags & DLP_BATCH_LAST);
        *last_loss = (double)pr.loss;
        dlp_pipe_count(pipe, 0, *last_loss);
        if (interrupted) say_progress(&pr, pipe, opt, batch, true);
        dlp_pipe_release(pipe, batch);
    }
    if (pr.open) printf("\n");
    return code;
}

/* True if training waited for data, but for the first batch, in more than 2 % of its time. */
static bool stalled(dlp_pipe *pipe) {
    dlp_stats stats;
    return dlp_pipe_stats(pipe, &stats) == DLP_OK && stats.wait_ns > stats.first_batch_ns &&
           (stats.wait_ns - stats.first_batch_ns) * 50 > stats.elapsed_ns;
}

static void say_time(dlp_pipe *pipe, const options *opt) {
    const dlp_trace_window stall = {.what = DLP_WINDOW_STALL};
    char text[4096], path[512];
    dlp_error err;
    if (dlp_pipe_explain(pipe, text, sizeof text) > 0) printf("\n%s\n", text);
    snprintf(path, sizeof path, "%s/timeline.svg", opt->out);
    if (dlp_pipe_write_timeline(pipe, path, &err) == DLP_OK)
        printf("the end as a picture: %s\n", path);
    else
        puts(err.message);
    snprintf(path, sizeof path, "%s/stall.svg", opt->out);
    if (!stalled(pipe))
        remove(path); /* that of an earlier run */
    else if (dlp_pipe_write_window(pipe, path, &stall, NULL) == DLP_OK)
        printf("its longest wait as a picture: %s\n", path);
    snprintf(path, sizeof path, "%s/trace.json", opt->out);
    if (dlp_pipe_write_trace(pipe, path, NULL) == DLP_OK)
        printf("all of it, for ui.perfetto.dev: %s\n", path);
}

static int evaluate(network *net, images *im, const options *opt) {
    int code, right = 0, seen = 0;
    dlp_batch *batch = NULL;
    dlp_pipe *pipe = open_pipe(im, opt, false);
    if (!pipe) return DLP_ERR_STATE;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        right += count_right(net, batch);
        seen += (int)batch->valid_count;
        dlp_pipe_release(pipe, batch);
    }
    if (code < 0) say_error(pipe);
    close_pipe(pipe);
    if (code == DLP_END)
        printf("\ntest accuracy %.2f %% (%d of %d images)\n", 100.0 * right / seen, right, seen);
    return code;
}

static int usage(void) {
    fprintf(stderr, "usage: fashion_mnist [-v] [-e epochs] [-w workers] [-b batch] [-s seed] "
                    "[-o folder] data-directory\n");
    return 2;
}

static bool parse(options *opt, int argc, char **argv) {
    int c;
    while ((c = getopt(argc, argv, "ve:w:b:s:o:")) != -1) {
        char *end = NULL;
        long v = c == 'o' || c == 'v' || c == '?' ? 0 : strtol(optarg, &end, 10);
        if (c == 'v') opt->plan = true;
        if (c == '?' || (end && (end == optarg || *end))) return false;
        if (c == 'e') opt->epochs = v > 0 && v < 10000 ? (int)v : 0;
        if (c == 'w') opt->workers = v >= 0 && v <= DLP_MAX_WORKERS ? (int)v : -1;
        if (c == 'b') opt->batch = v > 0 && v <= MAX_BATCH ? (int)v : 0;
        if (c == 's') opt->seed = (uint64_t)v;
        if (c == 'o') opt->out = optarg;
    }
    if (optind != argc - 1 || !opt->epochs || opt->workers < 0 || !opt->batch) return false;
    opt->data = argv[optind];
    return true;
}

int main(int argc, char **argv) {
    options opt = {.out = ".", .epochs = 5, .workers = 4, .batch = 64, .seed = 1};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores > 0 && cores < opt.workers) opt.workers = (int)cores; /* the images need computing */
    images training, test = {.fd = -1};
    network net = {0};
    dlp_pipe *pipe = NULL;
    double loss = 0;
    int code = DLP_ERR_STATE;
    if (!parse(&opt, argc, argv)) return usage();

    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &act, NULL); /* a second Ctrl-C ends the program at once */

    if (!images_open(&training, opt.data, "train", true)) goto done;
    if (!images_open(&test, opt.data, "t10k", false)) goto done;
    if (!network_init(&net, (uint32_t)opt.batch, opt.seed)) {
        complain("network", strerror(ENOMEM));
        goto done;
    }
    pipe = open_pipe(&training, &opt, true);
    if (!pipe) goto done;
    if (opt.plan) say_plan(pipe);
    code = train_all(&net, pipe, &opt, &loss);
    if (code < 0) say_error(pipe);
    if (code == DLP_STOPPED) printf("stopped; the loss was %.6f\n", loss);
    if (code == DLP_END) printf("trained; the loss is %.6f\n", loss);
    if (code == DLP_END) code = evaluate(&net, &test, &opt);
    if (code >= 0) say_time(pipe, &opt);

done:
    if (pipe) close_pipe(pipe);
    network_free(&net);
    images_close(&training);
    images_close(&test);
    return code == DLP_END ? 0 : interrupted ? 130 : 1;
}
