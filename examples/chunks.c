/* Train a small network as people do: a pass over the training images, then one over the validation
   images, epoch by epoch; at each epoch's end the best weights are kept, the learning rate falls,
   training stops early where nothing gets better, and a checkpoint is written. Interrupted anywhere
   (Ctrl-C, or -k steps) and started again, it ends with the same weights to the last bit.

   chunks [-e epochs] [-q patience] [-b batch] [-c chunk-rows] [-w loaders] [-p preload]
          [-s checkpoint] [-k steps] [-n images] [directory]
   cc -O2 chunks.c -lpthread -lm

   directory: CIFAR-10, binary version (data_batch_1.bin to data_batch_5.bin, test_batch.bin);
   without one, n images of that format (6000) are made up, in a temporary directory. A chunk is
   many images read at once, whichever files they are in; batches are views into it. Loading a
   chunk, copying one and training on a third go on side by side; with -w 0 they follow each other,
   and the weights come out the same. preload: 0 none, 1 CPU, 2 device, 3 what fits. */
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
#include <unistd.h>

enum { FILES = 6, SIDE = 32, PLANE = SIDE * SIDE, RECORD = 1 + 3 * PLANE, CLASSES = 10 };
enum { POOL = 4, INPUTS = 3 * (SIDE / POOL) * (SIDE / POOL) };

/* ---- images: records of a label and three planes of 32 x 32 bytes ---- */

typedef struct images { /* some of those in several files that follow each other */
    int fd[FILES], files;
    uint64_t in_file[FILES];
    uint64_t first, n;
} images;

static void name_of(char path[512], const char *dir, int file) {
    if (file < FILES - 1) snprintf(path, 512, "%s/data_batch_%d.bin", dir, file + 1);
    if (file == FILES - 1) snprintf(path, 512, "%s/test_batch.bin", dir);
}

static bool images_open(images *im, const char *dir, int file, int files) {
    char path[512];
    struct stat st;
    for (; im->files < files; im->files++) {
        name_of(path, dir, file + im->files);
        int fd = im->fd[im->files] = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0 || st.st_size == 0 || st.st_size % RECORD != 0) {
            fprintf(stderr, "%s: %s\n", path, fd < 0 ? strerror(errno) : "not CIFAR-10's format");
            return false;
        }
        im->n += im->in_file[im->files] = (uint64_t)st.st_size / RECORD;
    }
    return true;
}

/* Made up: each class has a faint pattern of large squares, under strong noise of each image's own;
   one label in ten is wrong. */
static void record_make(uint8_t record[RECORD], uint64_t file, uint64_t i) {
    uint64_t r = dlp_hash(7, file, i, 0), class = r % CLASSES, square[INPUTS];
    record[0] = (uint8_t)(r % 7919 % 10 == 0 ? r / 16 % CLASSES : class);
    for (uint64_t s = 0; s < INPUTS; s++)
        square[s] = dlp_hash(8, file, i, s) % 160 + dlp_hash(1, class, s, 0) % 32;
    for (int p = 0; p < 3 * PLANE; p++) {
        r = r * UINT64_C(6364136223846793005) + 1442695040888963407u;
        record[1 + p] =
            (uint8_t)(square[p / PLANE * 64 + p % PLANE / 128 * 8 + p % SIDE / 4] + (r >> 58));
    }
}

static bool images_make(const char *dir, uint64_t n) {
    uint8_t record[RECORD];
    char path[512];
    for (int file = 0; file < FILES; file++) {
        name_of(path, dir, file);
        FILE *f = fopen(path, "wb");
        bool good = f != NULL;
        for (uint64_t i = 0; good && i < n / (FILES - 1); i++) {
            record_make(record, (uint64_t)file, i);
            good = fwrite(record, 1, RECORD, f) == RECORD;
        }
        if (f == NULL || fclose(f) != 0 || !good) return perror(path), false;
    }
    return true;
}

static void images_unlink(const char *dir) {
    char path[512];
    for (int file = 0; file < FILES; file++) name_of(path, dir, file), unlink(path);
    rmdir(dir);
}

/* Records first.. of all files, as if they were one. */
static bool images_read(const images *im, uint8_t *to, uint64_t first, uint64_t n) {
    for (int f = 0; f < im->files; first -= first < im->in_file[f] ? first : im->in_file[f], f++) {
        while (n > 0 && first < im->in_file[f]) {
            uint64_t some = im->in_file[f] - first < n ? im->in_file[f] - first : n;
            ssize_t got = pread(im->fd[f], to, some * RECORD, (off_t)(first * RECORD));
            if (got < RECORD) return false;
            some = (uint64_t)got / RECORD; /* what is left of a record is read again */
            first += some, n -= some, to += some * RECORD;
        }
    }
    return n == 0;
}

/* The loader: the chunk in one read; its images as 3 x 8 x 8 floats, in the order asked for. */
static int load(void *user, dlp_chunk *c) {
    const images *im = user;
    uint8_t *bytes = malloc(c->chunk_rows * RECORD), *label = c->data[1];
    float *out = c->data[0];
    if (bytes == NULL || !images_read(im, bytes, im->first + c->chunk_first, c->chunk_rows)) {
        free(bytes);
        return dlp_fail(c->call, errno, "cannot read %" PRIu64 " images", c->chunk_rows);
    }
    for (uint64_t k = 0; k < c->count; k++, out += INPUTS) {
        const uint8_t *record = bytes + (dlp_chunk_row(c, k) - c->chunk_first) * RECORD;
        label[k] = record[0] % CLASSES;
        for (int i = 0; i < INPUTS; i++) {
            const uint8_t *at =
                record + 1 + i / 64 * PLANE + i % 64 / 8 * POOL * SIDE + i % 8 * POOL;
            int sum = 0;
            for (int p = 0; p < POOL * POOL; p++) sum += at[p / POOL * SIDE + p % POOL];
            out[i] = ((float)sum / (POOL * POOL) - 120.0f) / 60.0f;
        }
    }
    free(bytes);
    return 0;
}

/* ---- the model: softmax of a linear map, cross-entropy ---- */

typedef struct model {
    float weight[CLASSES][INPUTS], bias[CLASSES];
} model;

/* The classes' probabilities for an image; returns the likeliest. */
static int predict(const model *m, const float *x, float p[CLASSES]) {
    float most, sum = 0;
    int best = 0;
    for (int c = 0; c < CLASSES; c++) {
        float s[8] = {m->bias[c]};
        for (int i = 0; i < INPUTS; i += 8)
            for (int k = 0; k < 8; k++) s[k] += m->weight[c][i + k] * x[i + k];
        p[c] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
        if (p[c] > p[best]) best = c;
    }
    most = p[best];
    for (int c = 0; c < CLASSES; c++) sum += p[c] = expf(p[c] - most);
    for (int c = 0; c < CLASSES; c++) p[c] /= sum;
    return best;
}

static void descend(model *m, const float *x, const float *p, int label, float rate) {
    for (int c = 0; c < CLASSES; c++) {
        float step = rate * ((c == label ? 1.0f : 0.0f) - p[c]);
        for (int i = 0; i < INPUTS; i++) m->weight[c][i] += step * x[i];
        m->bias[c] += step;
    }
}

/* ---- fit ---- */

typedef struct tally { /* sums over images */
    double loss;
    uint64_t seen, right;
} tally;

typedef struct learnt { /* all that a checkpoint has */
    char magic[8];
    dlp_state place; /* how much of the training data is consumed */
    model now, best;
    tally train;                /* of the epoch so far */
    double best_loss;           /* 0: no epoch has ended */
    uint64_t steps, since_best; /* epochs */
    float rate;
} learnt;

static struct {
    learnt l;
    images train, validation, test;
    tally valid;
    dlp_chunks_desc desc;
    dlp_pipe *training, *validating;
    uint64_t patience, most_steps;
    const char *checkpoint;
    bool failed;
} fit = {.l = {.magic = "chunks1", .rate = 0.1f}, .patience = 3};

/* Add a batch's loss and accuracy. rate: to learn from it, too; 0: not to. */
static int take(model *m, const dlp_batch *b, tally *t, float rate) {
    const float *x = b->fields[0].data;
    const uint8_t *label = b->fields[1].data;
    for (uint32_t r = 0; r < b->count; r++, x += INPUTS) {
        float p[CLASSES];
        t->right += predict(m, x, p) == label[r];
        t->loss -= log((double)p[label[r]] + 1e-12);
        t->seen++;
        if (rate > 0) descend(m, x, p, label[r], rate / (float)b->count);
    }
    return 0;
}

static int train_step(void *user, dlp_batch *b) {
    learnt *l = user;
    l->steps++;
    return take(&l->now, b, &l->train, l->rate);
}

static int validate_step(void *user, dlp_batch *b) { return take(&fit.l.now, b, user, 0); }

static int test_step(void *user, dlp_batch *b) {
    return take(fit.l.best_loss > 0 ? &fit.l.best : &fit.l.now, b, user, 0);
}

static int one_epoch(void *user, uint64_t epoch) {
    (void)user, (void)epoch;
    return 1; /* the run stops; the pipe loads the next epoch's first chunks meanwhile */
}

/* What is done at each epoch's end, in this order: 0, or 1: stop, or -1: failed. */

static int validate(uint64_t epoch) { /* by a pipe that lives as long as training does */
    dlp_run_desc r = {.on_step = validate_step, .on_epoch = one_epoch, .user = &fit.valid};
    fit.valid = (tally){0, 0, 0};
    if (dlp_chunks_run(fit.validating, &r) != DLP_OK) return -1;
    printf("epoch %2" PRIu64 ": rate %.4f, training loss %.4f and accuracy %.2f %%, "
           "validation loss %.4f and accuracy %.2f %%\n",
           epoch, (double)fit.l.rate, fit.l.train.loss / (double)fit.l.train.seen,
           100.0 * (double)fit.l.train.right / (double)fit.l.train.seen,
           fit.valid.loss / (double)fit.valid.seen,
           100.0 * (double)fit.valid.right / (double)fit.valid.seen);
    fit.l.train = (tally){0, 0, 0};
    return 0;
}

static int keep_best(uint64_t epoch) {
    double loss = fit.valid.loss / (double)fit.valid.seen;
    (void)epoch;
    fit.l.since_best++;
    if (fit.l.best_loss > 0 && loss >= fit.l.best_loss) return 0;
    fit.l.best = fit.l.now;
    fit.l.best_loss = loss;
    fit.l.since_best = 0;
    return 0;
}

static int set_rate(uint64_t epoch) { /* of the next epoch */
    fit.l.rate = 0.1f * powf(0.9f, (float)(epoch + 1));
    return 0;
}

static int save(uint64_t epoch) { /* beside the old checkpoint, then in its place in one go */
    char fresh[512];
    FILE *to;
    (void)epoch;
    if (fit.checkpoint == NULL) return 0;
    if (dlp_pipe_state(fit.training, NULL, &fit.l.place) != DLP_OK) return -1;
    snprintf(fresh, sizeof fresh, "%s.new", fit.checkpoint);
    to = fopen(fresh, "wb");
    bool good = to && fwrite(&fit.l, sizeof fit.l, 1, to) == 1 && fflush(to) == 0;
    good = good && fsync(fileno(to)) == 0;
    if (to && fclose(to) != 0) good = false;
    if (good && rename(fresh, fit.checkpoint) == 0) return 0;
    perror(fresh);
    return -1;
}

static int stop_early(uint64_t epoch) {
    if (fit.l.since_best < fit.patience) return 0;
    printf("epoch %2" PRIu64 ": nothing better for %" PRIu64 " epochs: training stops\n", epoch,
           fit.l.since_best);
    return 1;
}

static int at_epoch_end(void *user, uint64_t epoch) {
    static int (*const callbacks[])(uint64_t epoch) = {validate, keep_best, set_rate, save,
                                                       stop_early};
    int rc = 0;
    (void)user;
    for (size_t i = 0; rc == 0 && i < sizeof callbacks / sizeof *callbacks; i++)
        rc = callbacks[i](epoch);
    if (rc < 0) fit.failed = true;
    return rc;
}

static void on_signal(int number) {
    (void)number;
    dlp_pipe_stop(fit.training);
}

/* A pipe over some images. */
static dlp_pipe *opened(images *im, int64_t epochs, const dlp_state *resume) {
    dlp_chunks_desc d = fit.desc;
    dlp_pipe *p = NULL;
    dlp_error err;
    d.n_items = im->n;
    d.user = im;
    d.epochs = epochs;
    d.pass = im == &fit.test ? DLP_PASS_EVALUATE : DLP_PASS_TRAIN;
    d.shuffle_chunks = im == &fit.train;
    d.shuffle_rows = im == &fit.train && d.preload == DLP_PRELOAD_NONE;
    d.pipe.resume = resume;
    if (dlp_chunks_open(&p, &d, &err) != DLP_OK) fprintf(stderr, "%s\n", err.message);
    return p;
}

/* From the beginning, or a checkpoint, until it is over, or stopped. */
static bool train(void) {
    dlp_run_result r;
    dlp_run_desc d = {train_step, at_epoch_end, &fit.l, fit.most_steps, &r};
    fit.training = opened(&fit.train, fit.desc.epochs, fit.l.steps > 0 ? &fit.l.place : NULL);
    fit.validating = opened(&fit.validation, DLP_FOREVER, NULL);
    if (fit.training == NULL || fit.validating == NULL) return false;
    if (fit.l.since_best >= fit.patience) return true; /* it was over before */
    int rc = dlp_chunks_run(fit.training, &d);
    fprintf(stderr, "%" PRIu64 " steps in %.3f s\n", r.steps, (double)r.elapsed_ns / 1e9);
    if (rc < 0 || fit.failed) return fprintf(stderr, "training failed: %d\n", rc), false;
    if (rc != DLP_STOPPED && r.steps != fit.most_steps) return true;
    printf("stopped after %" PRIu64 " steps\n", fit.l.steps);
    return save(0) == 0;
}

static bool test(void) { /* the test images, once each; and a hash of all weights */
    tally t = {0, 0, 0};
    dlp_run_desc d = {.on_step = test_step, .user = &t};
    dlp_pipe *p = opened(&fit.test, 1, NULL);
    uint64_t hash = 0;
    bool good = p && dlp_chunks_run(p, &d) == DLP_END;
    uint32_t word;
    for (size_t i = 0; i < sizeof fit.l.now; i += sizeof word) {
        memcpy(&word, (const char *)&fit.l.now + i, sizeof word);
        hash = dlp_hash(hash, word, i, 0);
    }
    printf("test accuracy %.2f %% of %" PRIu64 ", weights %016" PRIx64 "\n",
           100.0 * (double)t.right / (double)t.seen, t.seen, hash);
    return dlp_pipe_close(p) == DLP_OK && good;
}

/* ---- the program ---- */

static bool resume(void) { /* false: a file that is none of ours */
    const char *path = fit.checkpoint;
    FILE *from = path ? fopen(path, "rb") : NULL;
    if (from == NULL) return true;
    bool good = fread(&fit.l, sizeof fit.l, 1, from) == 1 && fgetc(from) == EOF &&
                memcmp(fit.l.magic, "chunks1", 8) == 0;
    fclose(from);
    if (!good) fprintf(stderr, "%s: not a file that this program has written\n", path);
    return good;
}

static bool arguments(int argc, char **argv, uint64_t *made) {
    static const dlp_field fields[2] = {{"pixels", DLP_F32, 1, {INPUTS}, 0, 0},
                                        {"label", DLP_U8, 0, {0}, 0, 0}};
    int option;
    fit.desc = (dlp_chunks_desc){.fields = fields,
                                 .n_fields = 2,
                                 .writes_all_bytes = 1,
                                 .chunk_rows = 1000,
                                 .batch_size = 50,
                                 .load = load,
                                 .workers.num_workers = 1,
                                 .device = dlp_device_host(),
                                 .epochs = 30,
                                 .seed = 1,
                                 .pipe.limit_bytes = UINT64_C(2) << 30};
    while ((option = getopt(argc, argv, "e:q:b:c:w:p:s:k:n:")) != -1) {
        uint64_t n = optarg ? strtoull(optarg, NULL, 10) : 0;
        if (option == '?') return false;
        if (option == 'e') fit.desc.epochs = (int64_t)n;
        if (option == 'q') fit.patience = n;
        if (option == 'b') fit.desc.batch_size = (uint32_t)n;
        if (option == 'c') fit.desc.chunk_rows = n;
        if (option == 'w') fit.desc.workers.num_workers = n > 0 ? (int32_t)n : DLP_NONE;
        if (option == 'p') fit.desc.preload = (int32_t)n;
        if (option == 's') fit.checkpoint = optarg;
        if (option == 'k') fit.most_steps = n;
        if (option == 'n') *made = n;
    }
    fit.desc.transfer_inline = fit.desc.workers.num_workers == DLP_NONE;
    return argc - optind <= 1;
}

int main(int argc, char **argv) {
    char made[] = "/tmp/chunks-XXXXXX";
    const char *dir;
    uint64_t n = 6000;
    struct sigaction action = {.sa_handler = on_signal};
    if (!arguments(argc, argv, &n))
        return fprintf(stderr, "usage: chunks [-e epochs] [-q patience] [-b batch] [-c chunk-rows] "
                               "[-w loaders] [-p preload] [-s checkpoint] [-k steps] [-n images] "
                               "[directory]\n"),
               1;
    dir = optind < argc ? argv[optind] : mkdtemp(made);
    sigaction(SIGINT, &action, NULL);
    bool good = dir && (dir != made || images_make(dir, n)) &&
                images_open(&fit.train, dir, 0, FILES - 1) &&
                images_open(&fit.test, dir, FILES - 1, 1);
    if (dir == made) images_unlink(dir); /* they stay until they are closed */
    fit.validation = fit.train;          /* the last tenth */
    fit.validation.n = fit.train.n / 10;
    fit.train.n -= fit.validation.n;
    fit.validation.first = fit.train.n;
    good = good && resume() && train() && test();
    dlp_pipe_close(fit.validating);
    dlp_pipe_close(fit.training);
    return good ? 0 : 1;
}
