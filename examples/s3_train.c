/* Train a classifier of Fashion-MNIST whose images lie in an S3 bucket.

   s3_train -u [-k images an object] [-n images] data-directory s3://bucket/prefix
       fill the bucket, which is made if need be, out of the four files that
       examples/get_fashion_mnist.sh gets: one object an image, or, with -k, shards of many
   s3_train [-e epochs] [-w workers] [-f in flight] [-b batch] [-p] [-o out-directory]
            [-m list-file] s3://bucket/prefix
       train on what is there; -p: worker processes in place of threads; -m: keep the list of the
       images beside (list-file.train, .test), and go by it the next time
   cc -O3 s3_train.c -lpthread -lm       (https: -DDLPIPE_S3_OPENSSL, and -lssl -lcrypto)

   Endpoint, region and keys come from where AWS' tools look: AWS_ENDPOINT_URL, AWS_REGION,
   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ~/.aws, the machine's role.

   An image is 785 bytes, its label first. Each worker has up to -f of them under way at once, in
   one thread: so it is bandwidth that limits, and not the time that a request takes. Of shards,
   neighbours that are wanted at about the same time are one request. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include "../dlpipe_shm.h"
#include "../dlpipe_s3.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIXELS = 784, IMAGE = 1 + PIXELS, HIDDEN = 128, CLASSES = 10 };
enum { TRAIN, TEST };

typedef struct options {
    bool upload, processes;
    int per_object, images, epochs, workers, in_flight, batch;
    const char *data, *out;
    char bucket[64], prefix[512], list[512];
} options;

static const char *const set_name[] = {"train", "test"};

static bool complain(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return false;
}

static bool complain_s3(const dlp_s3_error *err) {
    char line[1024];
    dlp_s3_error_format(err, line, sizeof line);
    return complain("S3", line);
}

static void say(void *user, const char *line) { /* what requests wait for */
    (void)user;
    fprintf(stderr, "%s\n", line);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------------------------------------
   Filling the bucket: many PUT requests under way, in one thread */

enum { PUTS = 64 };

/* One of the files of a set, unpacked, without its header; NULL: having said why. */
static uint8_t *idx_read(const char *dir, const char *name, size_t header, size_t *bytes) {
    char path[512];
    uint8_t *all = NULL;
    long size = -1;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (f && fseek(f, 0, SEEK_END) == 0) size = ftell(f);
    if (size > (long)header) all = malloc((size_t)size);
    if (!all || fseek(f, 0, SEEK_SET) != 0 || fread(all, 1, (size_t)size, f) != (size_t)size ||
        all[0] != 0 || all[1] != 0 || all[2] != 8 || all[3] != (header == 16 ? 3 : 1)) {
        complain(path, all ? "not such a file" : "cannot be read");
        free(all);
        all = NULL;
    } else {
        *bytes = (size_t)size - header;
        memmove(all, all + header, *bytes);
    }
    if (f) fclose(f);
    return all;
}

/* A set's images, each behind its label. Returns how many, 0: none. */
static size_t set_read(const options *opt, int set, uint8_t **out) {
    const char *images = set == TRAIN ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
    const char *labels = set == TRAIN ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    size_t n_pixels = 0, n = 0;
    uint8_t *pixel = idx_read(opt->data, images, 16, &n_pixels);
    uint8_t *label = pixel ? idx_read(opt->data, labels, 8, &n) : NULL;
    if (label && n_pixels != n * PIXELS) n = 0;
    if (opt->images && n > (size_t)opt->images) n = (size_t)opt->images;
    *out = n ? malloc(n * IMAGE) : NULL;
    for (size_t i = 0; *out && i < n; i++) {
        (*out)[i * IMAGE] = label[i];
        memcpy(*out + i * IMAGE + 1, pixel + i * PIXELS, PIXELS);
    }
    free(pixel);
    free(label);
    return *out ? n : 0;
}

typedef struct put {
    dlp_s3_request request;
    char key[640];
} put;

/* Begin to write object number `object` of a set. */
static int put_begin(dlp_s3_io *io, put *p, const options *opt, int set, size_t object,
                     uint8_t *images, size_t n) {
    size_t first = object * (size_t)opt->per_object, left = n - first;
    if (left > (size_t)opt->per_object) left = (size_t)opt->per_object;
    memset(&p->request, 0, sizeof p->request);
    snprintf(p->key, sizeof p->key, "%s%s/%06zu", opt->prefix, set_name[set], object);
    p->request.method = DLP_S3_PUT;
    p->request.bucket = opt->bucket;
    p->request.key = p->key;
    p->request.body = images + first * IMAGE;
    p->request.capacity = left * IMAGE;
    p->request.user = p;
    return dlp_s3_submit(io, &p->request);
}

static bool set_upload(dlp_s3_io *io, const options *opt, int set) {
    static put puts[PUTS];
    put *idle[PUTS];
    dlp_s3_request *done[PUTS];
    uint8_t *images;
    size_t n = set_read(opt, set, &images), next = 0, over = 0;
    size_t objects = (n + (size_t)opt->per_object - 1) / (size_t)opt->per_object;
    double began = seconds(), said = began;
    int n_idle = PUTS, came = 0;
    bool good = n > 0;
    for (int i = 0; i < PUTS; i++) idle[i] = &puts[i];
    while (good && over < objects) {
        while (n_idle > 0 && next < objects) {
            int code = put_begin(io, idle[n_idle - 1], opt, set, next, images, n);
            if (code == DLP_FULL) break;
            if (code != DLP_OK) good = complain_s3(&idle[n_idle - 1]->request.error);
            if (!good) break;
            n_idle--;
            next++;
        }
        came = dlp_s3_reap(io, done, PUTS, 1000);
        for (int i = 0; i < came && good; i++) {
            if (done[i]->code != DLP_OK) good = complain_s3(&done[i]->error);
            idle[n_idle++] = done[i]->user;
            over++;
        }
        if (good && (over == objects || seconds() - said > 2)) {
            said = seconds();
            printf("%s: %zu of %zu objects, %.0f a second\n", set_name[set], over, objects,
                   (double)over / (said - began));
            fflush(stdout);
        }
    }
    free(images);
    return good;
}

static bool upload(dlp_s3 *s3, const options *opt) {
    dlp_s3_request make = {.method = DLP_S3_PUT, .bucket = opt->bucket, .key = ""};
    dlp_s3_error err;
    dlp_s3_io *io = NULL;
    bool good = false;
    if (dlp_s3_io_open(&io, s3, &err) != DLP_OK) return complain_s3(&err);
    if (dlp_s3_do(io, &make) == DLP_OK || make.error.http_status == 409) /* 409: it is there */
        good = set_upload(io, opt, TRAIN) && set_upload(io, opt, TEST);
    else
        complain_s3(&make.error);
    dlp_s3_io_close(io);
    return good;
}

/* ---------------------------------------------------------------------------------------------
   The images: what a list of the bucket says, decoded by the workers */

/* Where -m keeps what a list call said of a set. */
static struct path { char s[544]; } list_path(const options *opt, int set) {
    struct path p;
    snprintf(p.s, sizeof p.s, "%s.%s", opt->list, set_name[set]);
    return p;
}

/* Which images there are, and where: from the file of -m, where there is one. */
static void manifest_say(const dlp_s3_manifest *m, int set) {
    dlp_s3_entry first;
    if (dlp_s3_manifest_get(m, 0, &first) != DLP_OK) return;
    printf("%s: %" PRIu64 " images, the first in %s; list %016" PRIx64 ", %" PRIu64 " bytes\n",
           set_name[set], dlp_s3_manifest_count(m), first.key, dlp_s3_manifest_id(m),
           dlp_s3_manifest_bytes(m));
}

/* An object of k * 785 bytes has k images. */
static bool manifest_fill(dlp_s3_manifest *m, dlp_s3 *s3, const options *opt, int set) {
    char prefix[600];
    dlp_s3_list_desc desc = {.bucket = opt->bucket, .prefix = prefix};
    dlp_s3_list *list = NULL;
    dlp_s3_io *io = NULL;
    dlp_s3_object o;
    dlp_s3_error err;
    if (opt->list[0] && access(list_path(opt, set).s, R_OK) == 0)
        return dlp_s3_manifest_read(m, list_path(opt, set).s, &err) == DLP_OK || complain_s3(&err);
    snprintf(prefix, sizeof prefix, "%s%s/", opt->prefix, set_name[set]);
    int code = dlp_s3_io_open(&io, s3, &err);
    if (code == DLP_OK) code = dlp_s3_list_open(&list, io, &desc, &err);
    while (code == DLP_OK && (code = dlp_s3_list_next(list, &o, &err)) == DLP_OK)
        for (uint64_t at = 0; code == DLP_OK && at + IMAGE <= o.bytes; at += IMAGE)
            code = dlp_s3_manifest_add(
                m, &(dlp_s3_entry){.key = o.key, .offset = at, .length = IMAGE}, &err);
    dlp_s3_list_close(list);
    dlp_s3_io_close(io);
    if (code != DLP_END) return complain_s3(&err);
    if (dlp_s3_manifest_count(m) == 0) return complain(prefix, "no images there; -u uploads some");
    if (opt->list[0] && dlp_s3_manifest_write(m, list_path(opt, set).s, &err) != DLP_OK)
        return complain_s3(&err);
    return true;
}

/* Runs in a worker, on bytes that have come. */
static int decode(void *user, void *worker_state, dlp_item *item, const void *bytes, uint64_t n) {
    const uint8_t *at = bytes;
    float *out = item->data[0];
    (void)user, (void)worker_state;
    if (n != IMAGE || at[0] >= CLASSES) return dlp_fail(item->call, 0, "not an image with a label");
    for (int i = 0; i < PIXELS; i++) out[i] = (float)at[1 + i] / 255.0f;
    *(uint8_t *)item->data[1] = at[0];
    return 0;
}

typedef struct images {
    dlp_s3_manifest *manifest;
    dlp_source *source;
    dlp_pipe *pipe;
} images;

static void images_close(images *im) {
    dlp_pipe_close(im->pipe);
    dlp_source_close(im->source);
    dlp_s3_manifest_close(im->manifest);
}

static bool images_open(images *im, dlp_s3 *s3, const options *opt, int set) {
    static const dlp_field fields[2] = {
        {.name = "image", .dtype = DLP_F32, .ndim = 1, .shape = {PIXELS}},
        {.name = "label", .dtype = DLP_U8}};
    dlp_s3_source_desc source = {.s3 = s3,
                                 .bucket = opt->bucket,
                                 .fields = fields,
                                 .n_fields = 2,
                                 .decode = decode,
                                 .writes_all_bytes = 1,
                                 .in_flight = opt->in_flight};
    dlp_loader_desc desc = {
        .batch_size = (uint32_t)opt->batch,
        .num_workers = opt->workers,
        .workers = {.placement = opt->processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS},
        .shuffle = set == TRAIN,
        .drop_last = set == TRAIN ? DLP_LAST_DROP : DLP_LAST_PARTIAL,
        .epochs = set == TRAIN ? opt->epochs : 1,
        .seed = 1,
        .pipe = {.prefetch_factor = 4, .name = set_name[set]},
    };
    dlp_s3_error s3_err;
    dlp_error err;
    char line[768];
    *im = (images){NULL, NULL, NULL};
    if (dlp_s3_manifest_open(&im->manifest, &s3_err) != DLP_OK) return complain_s3(&s3_err);
    if (!manifest_fill(im->manifest, s3, opt, set)) return false;
    manifest_say(im->manifest, set);
    source.manifest = im->manifest;
    if (dlp_s3_source_open(&im->source, &source, &s3_err) != DLP_OK) return complain_s3(&s3_err);
    desc.source = im->source;
    if (dlp_loader_open(&im->pipe, &desc, &err) == DLP_OK) return true;
    dlp_error_format(&err, line, sizeof line);
    return complain("pipe", line);
}

/* ---------------------------------------------------------------------------------------------
   The network: 784 pixels, 128 hidden units (rectified), 10 classes; stochastic gradient descent */

static struct network {
    float hidden[PIXELS][HIDDEN], hidden_bias[HIDDEN];
    float output[HIDDEN][CLASSES], output_bias[CLASSES];
} net, step; /* step: the sum of a batch's gradients, with the momentum of those before */

static void network_init(void) {
    for (int i = 0; i < PIXELS; i++)
        for (int j = 0; j < HIDDEN; j++)
            net.hidden[i][j] = ((float)(dlp_hash(1, (uint64_t)i, (uint64_t)j, 0) % 2001) - 1000) /
                               (1000 * sqrtf(PIXELS / 6.0f));
    for (int j = 0; j < HIDDEN; j++)
        for (int c = 0; c < CLASSES; c++)
            net.output[j][c] = ((float)(dlp_hash(2, (uint64_t)j, (uint64_t)c, 0) % 2001) - 1000) /
                               (1000 * sqrtf(HIDDEN / 6.0f));
}

/* The chances of each class. */
static void predict(const float *x, float *h, float *out) {
    float most, sum = 0;
    memcpy(h, net.hidden_bias, sizeof net.hidden_bias);
    memcpy(out, net.output_bias, sizeof net.output_bias);
    for (int i = 0; i < PIXELS; i++) {
        if (x[i] == 0) continue; /* half of the pixels */
        for (int j = 0; j < HIDDEN; j++) h[j] += x[i] * net.hidden[i][j];
    }
    for (int j = 0; j < HIDDEN; j++) {
        h[j] = h[j] > 0 ? h[j] : 0;
        for (int c = 0; c < CLASSES; c++) out[c] += h[j] * net.output[j][c];
    }
    most = out[0];
    for (int c = 1; c < CLASSES; c++) most = out[c] > most ? out[c] : most;
    for (int c = 0; c < CLASSES; c++) sum += out[c] = expf(out[c] - most);
    for (int c = 0; c < CLASSES; c++) out[c] /= sum;
}

/* Add an image's gradient to the step. Returns its loss. */
static float learn(const float *x, int label, float rate) {
    float h[HIDDEN], out[CLASSES], d[HIDDEN];
    predict(x, h, out);
    float loss = -logf(out[label] + 1e-9f);
    out[label] -= 1;
    for (int j = 0; j < HIDDEN; j++) {
        d[j] = 0;
        for (int c = 0; c < CLASSES; c++) {
            d[j] += h[j] > 0 ? out[c] * net.output[j][c] : 0;
            step.output[j][c] -= rate * out[c] * h[j];
        }
        step.hidden_bias[j] -= rate * d[j];
    }
    for (int c = 0; c < CLASSES; c++) step.output_bias[c] -= rate * out[c];
    for (int i = 0; i < PIXELS; i++) {
        if (x[i] == 0) continue;
        for (int j = 0; j < HIDDEN; j++) step.hidden[i][j] -= rate * x[i] * d[j];
    }
    return loss;
}

static float train_batch(const dlp_batch *b, float rate) {
    const float *x = b->fields[0].data;
    const uint8_t *label = b->fields[1].data;
    float loss = 0, *weight = (float *)&net, *change = (float *)&step;
    for (uint32_t r = 0; r < b->count; r++)
        loss += learn(x + r * PIXELS, label[r], rate / (float)b->count);
    for (size_t i = 0; i < sizeof net / sizeof *weight; i++) {
        weight[i] += change[i];
        change[i] *= 0.9f;
    }
    return loss / (float)b->count;
}

/* ---------------------------------------------------------------------------------------------
   The run */

static bool say_pipe_error(dlp_pipe *p) {
    char line[768];
    dlp_error_format(dlp_pipe_error(p), line, sizeof line);
    return complain("pipe", line);
}

static bool train(dlp_pipe *p, const options *opt) {
    const int64_t steps = dlp_pipe_batches_per_epoch(p);
    double said = seconds(), began = said, waited = 0, loss = 0;
    uint64_t items = 0;
    dlp_batch *b = NULL;
    int code;
    for (;;) {
        double before = seconds();
        if ((code = dlp_pipe_next(p, &b)) != DLP_OK) break;
        double now = seconds(), part = (double)b->sequence / (double)(steps * opt->epochs);
        waited += now - before;
        loss += 0.02 * ((double)train_batch(b, 0.03f * (float)(1 - part)) - loss);
        if (b->sequence == 0) loss *= 50;
        items += b->count;
        if (now - said > 2 || (b->flags & DLP_BATCH_LAST) != 0) {
            printf("epoch %d of %d  step %4d of %d  %6.0f items/s  consumer waited %2.0f %%  "
                   "loss %.3f\n",
                   (int)b->epoch + 1, opt->epochs, (int)b->in_epoch + 1, (int)steps,
                   (double)items / (now - said), 100 * waited / (now - said), loss);
            fflush(stdout);
            said = now;
            waited = 0;
            items = 0;
        }
        dlp_pipe_release(p, b);
    }
    if (code != DLP_END) return say_pipe_error(p);
    printf("trained in %.1f s; the loss is %.6f\n", seconds() - began, loss);
    return true;
}

static bool evaluate(dlp_pipe *p) {
    dlp_batch *b = NULL;
    int code, right = 0, seen = 0;
    while ((code = dlp_pipe_next(p, &b)) == DLP_OK) {
        const uint8_t *label = b->fields[1].data;
        for (uint32_t r = 0; r < b->count; r++) {
            float h[HIDDEN], out[CLASSES];
            int best = 0;
            predict((const float *)b->fields[0].data + r * PIXELS, h, out);
            for (int c = 1; c < CLASSES; c++) best = out[c] > out[best] ? c : best;
            right += best == label[r];
            seen++;
        }
        dlp_pipe_release(p, b);
    }
    if (code != DLP_END) return say_pipe_error(p);
    printf("test accuracy %.2f %% (%d of %d images)\n", 100.0 * right / seen, right, seen);
    return true;
}

static void say_time(dlp_s3 *s3, dlp_pipe *p, const options *opt) {
    char text[4096], path[512];
    dlp_s3_stats s;
    dlp_s3_stats_get(s3, &s);
    printf("\n%" PRIu64 " requests, %" PRIu64 " connections, %.1f MB; %" PRIu64 " retries, %" PRIu64
           " hedges\n",
           s.requests, s.connections, (double)s.bytes / 1e6, s.retries, s.hedges);
    if (dlp_pipe_explain(p, text, sizeof text) > 0) printf("%s\n", text);
    if (!opt->out) return;
    snprintf(path, sizeof path, "%s/timeline.svg", opt->out);
    if (dlp_pipe_write_timeline(p, path, NULL) == DLP_OK)
        printf("a picture of the end: %s\n", path);
}

static bool run(dlp_s3 *s3, const options *opt) {
    images training, test;
    bool good = images_open(&training, s3, opt, TRAIN);
    network_init();
    good = good && train(training.pipe, opt);
    if (good) say_time(s3, training.pipe, opt);
    images_close(&training);
    if (!good) return false;
    good = images_open(&test, s3, opt, TEST) && evaluate(test.pipe);
    images_close(&test);
    return good;
}

/* s3://bucket/prefix */
static bool parse_url(options *opt, const char *url) {
    const char *bucket = url + 5, *slash;
    size_t n;
    if (strncmp(url, "s3://", 5) != 0) return false;
    slash = strchr(bucket, '/');
    n = slash ? (size_t)(slash - bucket) : strlen(bucket);
    if (n == 0 || n >= sizeof opt->bucket) return false;
    memcpy(opt->bucket, bucket, n);
    if (!slash || !slash[1]) return true;
    n = strlen(slash + 1);
    if (n + 2 > sizeof opt->prefix) return false;
    snprintf(opt->prefix, sizeof opt->prefix, "%s%s", slash + 1, slash[n] == '/' ? "" : "/");
    return true;
}

static bool parse(options *opt, int argc, char **argv) {
    for (int c; (c = getopt(argc, argv, "upk:n:e:w:f:b:o:m:")) != -1;) {
        int v = optarg ? atoi(optarg) : 0;
        if (c == 'u')
            opt->upload = true;
        else if (c == 'p')
            opt->processes = true;
        else if (c == 'o')
            opt->out = optarg;
        else if (c == 'm')
            snprintf(opt->list, sizeof opt->list, "%s", optarg);
        else if (c == '?' || v < 1 || v > 60000)
            return false;
        if (c == 'k') opt->per_object = v;
        if (c == 'n') opt->images = v;
        if (c == 'e') opt->epochs = v;
        if (c == 'w') opt->workers = v;
        if (c == 'f') opt->in_flight = v;
        if (c == 'b') opt->batch = v;
    }
    if (optind != argc - 1 - opt->upload) return false;
    opt->data = argv[optind];
    return parse_url(opt, argv[argc - 1]);
}

int main(int argc, char **argv) {
    options opt = {.per_object = 1, .epochs = 2, .workers = 4, .in_flight = 16, .batch = 64};
    dlp_s3_desc desc = {.log = say};
    dlp_s3 *s3 = NULL;
    dlp_s3_error err;
    bool good;
    if (!parse(&opt, argc, argv)) {
        fprintf(stderr, "usage: s3_train -u [-k images-an-object] [-n images] data-directory "
                        "s3://bucket/prefix\n"
                        "       s3_train [-e epochs] [-w workers] [-f in-flight] [-b batch] [-p] "
                        "[-o out-directory] [-m list-file] s3://bucket/prefix\n");
        return 2;
    }
    if (dlp_s3_open(&s3, &desc, &err) != DLP_OK) return complain_s3(&err), 1;
    good = opt.upload ? upload(s3, &opt) : run(s3, &opt);
    dlp_s3_close(s3);
    return good ? 0 : 1;
}
