/* Data-parallel training of a classifier of Fashion-MNIST under MPI, which may be stopped and go on
   with another number of ranks: the same images in the same steps, whatever that number is.

   mpirun -n 4 mpi_train [-n steps] [-e epochs] [-w workers] [-i] CHECKPOINT-FILE DATA-DIRECTORY
   mpicc -O2 mpi_train.c -lpthread -lm

   The global batch is 48 images. Of each, rank r of W gets 48 / W, one after another in the global
   order, and the gradients are summed by MPI_Allreduce; so any W that divides 48 trains the same
   steps, but for the rounding of sums. The images are mirrored at random, by numbers that come from
   their places in the epoch, not from ranks. -n ends a life after that many steps of the whole
   training, and so does SIGTERM or SIGUSR1 to any one rank, or SIGTERM to mpirun, which sends it on
   to all (Open MPI kills those that are left a second later; -mca odls_base_sigkill_timeout 10
   gives them ten). Rank 0 then writes the checkpoint: the weights, and the place, whose 248 bytes
   are the same on every rank. -i prints each step's images.

   Next is not woken by the signal here, as examples/checkpoint.c has it: all ranks must stop behind
   the same step, else those that go on wait in MPI_Allreduce for ever. Whether one was told to is a
   number in the sum that they take anyway. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, WEIGHTS = CLASSES * (PIXELS + 1) };
enum { BATCH = 48, SEED = 5, EVERY = 200 /* steps between checkpoints that nobody asked for */ };

static uint32_t rank, world;

/* Nobody is left waiting for a rank that cannot go on. */
static void give_up(const char *what, const char *why) {
    fprintf(stderr, "mpi_train: rank %u: %s: %s\n", rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void give_up_on(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    give_up("the pipe", line);
}

/* ---- the data: two IDX files ---- */

typedef struct images {
    int pixels, labels; /* file descriptors */
    uint64_t n;
} images;

enum { PIXELS_AT = 16, LABELS_AT = 8 };

static int open_idx(const char *dir, const char *name, off_t begin, off_t each, uint64_t *n) {
    char path[1024];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) give_up(path, strerror(errno));
    if (st.st_size <= begin || (st.st_size - begin) % each != 0)
        give_up(path, "has not the length of a file of such items");
    *n = (uint64_t)((st.st_size - begin) / each);
    return fd;
}

static void images_open(images *im, const char *dir) {
    uint64_t n;
    im->pixels = open_idx(dir, "train-images-idx3-ubyte", PIXELS_AT, PIXELS, &im->n);
    im->labels = open_idx(dir, "train-labels-idx1-ubyte", LABELS_AT, 1, &n);
    if (n != im->n) give_up(dir, "has not as many labels as images");
}

static int fetch(void *user, dlp_item *item) { /* called by many workers at once */
    const images *im = user;
    uint8_t pixel[PIXELS], *label = item->data[1];
    float *x = item->data[0];
    bool mirror = dlp_item_random(item, 0) & 1;
    if (pread(im->pixels, pixel, PIXELS, PIXELS_AT + (off_t)item->index * PIXELS) != PIXELS ||
        pread(im->labels, label, 1, LABELS_AT + (off_t)item->index) != 1)
        return dlp_fail(item->call, errno, "cannot read the image");
    if (*label >= CLASSES) return dlp_fail(item->call, 0, "has a label of %d", *label);
    for (int i = 0; i < PIXELS; i++)
        x[i] = (float)pixel[mirror ? i - i % SIDE + SIDE - 1 - i % SIDE : i] / 255.0f;
    return 0;
}

/* ---- all that a run is made of: where it is, and what it has learned ---- */

typedef struct checkpoint {
    char magic[8];
    dlp_state place;
    uint64_t steps; /* 0: no place yet */
    double loss;    /* smoothed */
    double weight[WEIGHTS];
} checkpoint;

static const char magic[8] = "dlpmpi1";

/* Rank 0 reads it and tells the others: they need not see its disk. */
static void checkpoint_load(checkpoint *c, const char *path) {
    memset(c, 0, sizeof *c);
    memcpy(c->magic, magic, sizeof magic);
    FILE *f = rank == 0 ? fopen(path, "rb") : NULL;
    if (f) {
        bool whole = fread(c, sizeof *c, 1, f) == 1 && fgetc(f) == EOF;
        if (!whole || memcmp(c->magic, magic, sizeof magic) != 0)
            give_up(path, "is no checkpoint of ours");
        fclose(f);
    } else if (rank == 0 && errno != ENOENT) {
        give_up(path, strerror(errno));
    }
    MPI_Bcast(c, (int)sizeof *c, MPI_BYTE, 0, MPI_COMM_WORLD);
}

/* Beside the old one, to the disk, then in its place in one go. */
static void checkpoint_save(checkpoint *c, dlp_pipe *pipe, const char *path) {
    char fresh[1024];
    if (rank != 0 || c->steps == 0) return;
    if (dlp_pipe_state(pipe, NULL, &c->place) != DLP_OK) give_up_on(dlp_pipe_error(pipe));
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *f = fopen(fresh, "wb");
    if (!f) give_up(fresh, strerror(errno));
    bool good = fwrite(c, sizeof *c, 1, f) == 1 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    if (fclose(f) != 0 || !good || rename(fresh, path) != 0) give_up(path, strerror(errno));
}

/* ---- the model: ten sums of pixels, softmax ---- */

static double one_image(const double *weight, const float *x, int label, double *slope) {
    double sum[CLASSES], top = -1e300, all = 0;
    for (int k = 0; k < CLASSES; k++) {
        const double *w = weight + k * (PIXELS + 1);
        sum[k] = w[PIXELS];
        for (int i = 0; i < PIXELS; i++) sum[k] += w[i] * (double)x[i];
        top = sum[k] > top ? sum[k] : top;
    }
    for (int k = 0; k < CLASSES; k++) all += exp(sum[k] - top);
    for (int k = 0; k < CLASSES; k++) {
        double *s = slope + k * (PIXELS + 1), d = exp(sum[k] - top) / all - (k == label);
        for (int i = 0; i < PIXELS; i++) s[i] += d * (double)x[i];
        s[PIXELS] += d;
    }
    return log(all) + top - sum[label];
}

/* What the ranks add up in a step. */
typedef struct sums {
    double slope[WEIGHTS], loss, told_to_stop;
} sums;

static volatile sig_atomic_t told_to_stop;
static void on_signal(int signal) {
    (void)signal;
    told_to_stop = 1;
}

/* Returns whether any rank was told to stop. */
static bool step(checkpoint *c, const dlp_batch *b) {
    static sums own, all;
    const float *x = b->fields[0].data;
    const uint8_t *label = b->fields[1].data;
    memset(&own, 0, sizeof own);
    for (uint32_t i = 0; i < b->count; i++)
        own.loss += one_image(c->weight, x + i * PIXELS, label[i], own.slope);
    own.told_to_stop = told_to_stop;
    MPI_Allreduce(&own, &all, (int)(sizeof all / sizeof(double)), MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
    for (int i = 0; i < WEIGHTS; i++) c->weight[i] -= 0.05 / BATCH * all.slope[i];
    c->loss = c->steps ? 0.98 * c->loss + 0.02 * all.loss / BATCH : all.loss / BATCH;
    c->steps++;
    return all.told_to_stop > 0;
}

/* ---- the run ---- */

typedef struct options {
    uint64_t steps;
    int epochs, workers;
    bool print;
    const char *path, *data;
} options;

static dlp_pipe *open_pipe(images *im, const checkpoint *c, const options *opt) {
    const dlp_field fields[] = {
        {.name = "image", .dtype = DLP_F32, .ndim = 1, .shape = {PIXELS}},
        {.name = "label", .dtype = DLP_U8},
    };
    const dlp_loader_desc desc = {
        .dataset = {.n_items = im->n,
                    .fields = fields,
                    .n_fields = 2,
                    .writes_all_bytes = 1,
                    .fetch = fetch,
                    .user = im},
        .batch_size = BATCH, /* of all ranks together */
        .num_workers = opt->workers,
        .shuffle = 1,
        .drop_last = 1, /* so that every rank has as many rows in every step */
        .seed = SEED,
        .epochs = opt->epochs,
        .pipe = {.rank = rank, .world_size = world, .resume = c->steps ? &c->place : NULL},
    };
    dlp_pipe *pipe = NULL;
    dlp_error err;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) give_up_on(&err);
    return pipe;
}

/* Rank 0 prints the images of all ranks: those of the global batch, in its order. */
static void print_step(const checkpoint *c, const dlp_batch *b) {
    uint64_t index[BATCH];
    MPI_Gather(b->index, (int)b->count, MPI_UINT64_T, index, (int)b->count, MPI_UINT64_T, 0,
               MPI_COMM_WORLD);
    if (rank != 0) return;
    printf("step %" PRIu64 ":", c->steps);
    for (uint32_t i = 0; i < b->count * world; i++) printf(" %" PRIu64, index[i]);
    printf("\n");
}

static void train(checkpoint *c, dlp_pipe *pipe, const options *opt) {
    dlp_batch *b = NULL;
    const char *end = "stopped";
    int code = DLP_OK;
    bool stop = false;
    while (!stop && (opt->steps == 0 || c->steps < opt->steps)) {
        code = dlp_pipe_next(pipe, &b);
        if (code != DLP_OK) break;
        stop = step(c, b);
        if (opt->print) print_step(c, b);
        dlp_pipe_release(pipe, b);
        if (c->steps % EVERY == 0) checkpoint_save(c, pipe, opt->path);
    }
    if (code == DLP_END)
        end = "trained";
    else if (code != DLP_OK)
        give_up_on(dlp_pipe_error(pipe));
    checkpoint_save(c, pipe, opt->path);
    if (rank == 0)
        printf("%s: %u ranks, %" PRIu64 " steps, loss %.9f\n", end, world, c->steps, c->loss);
}

static bool parse(options *opt, int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "n:e:w:i")) != -1) {
        if (option == 'n')
            opt->steps = strtoull(optarg, NULL, 10);
        else if (option == 'e')
            opt->epochs = atoi(optarg);
        else if (option == 'w')
            opt->workers = atoi(optarg);
        else if (option == 'i')
            opt->print = true;
        else
            return false;
    }
    if (optind != argc - 2) return false;
    opt->path = argv[optind];
    opt->data = argv[optind + 1];
    return true;
}

/* The launcher's environment says who we are; MPI must say the same. */
static void find_rank(void) {
    dlp_error err;
    int mpi_rank = 0, mpi_world = 1;
    if (dlp_ranks_from_env(&rank, &world, &err) != DLP_OK) give_up(err.field, err.message);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi_world);
    if ((uint32_t)mpi_rank != rank || (uint32_t)mpi_world != world)
        give_up("the environment", "says another rank than MPI does");
}

int main(int argc, char **argv) {
    static checkpoint c;
    options opt = {.epochs = 1, .workers = 2};
    struct sigaction act = {.sa_handler = on_signal};
    images im;
    int threads;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads); /* workers never call MPI */
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGUSR1, &act, NULL);
    find_rank();
    if (!parse(&opt, argc, argv))
        give_up("usage", "mpi_train [-n steps] [-e epochs] [-w workers] [-i] CHECKPOINT-FILE "
                         "DATA-DIRECTORY");
    images_open(&im, opt.data);
    checkpoint_load(&c, opt.path);
    dlp_pipe *pipe = open_pipe(&im, &c, &opt);
    train(&c, pipe, &opt);
    dlp_pipe_close(pipe);
    close(im.pixels);
    close(im.labels);
    MPI_Finalize();
    return 0;
}
