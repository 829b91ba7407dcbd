/* A trainer that can be told to stop at any moment and goes on exactly where it was, with worker
   processes.

   checkpoint [-w workers] [-e epochs] CHECKPOINT-FILE
   cc -O2 checkpoint.c -lpthread -lm

   On SIGTERM (Slurm, Kubernetes, a spot instance that is taken away) or SIGINT (Ctrl-C) it finishes
   the step it is in, writes the checkpoint and ends with 75, which says: start me again. Started
   again it trains the batches that would have followed, to the last bit, with any number of
   workers. On SIGUSR1 (Slurm's --signal=USR1@120: the time is nearly over) it writes the checkpoint
   behind the step it is in and goes on. Such signals often go to every process of the job, not to
   the trainer alone. The workers of dlpipe ignore them: they live on until the trainer closes the
   pipe. A checkpoint is written now and then as well; so SIGKILL costs the steps since the last
   one, and no more.

   The hash in what it prints is of every byte of every batch so far, in their order: stopped and
   resumed however often, the last line is that of an undisturbed run. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include "../dlpipe_shm.h" /* worker processes: this, and .placement below */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ITEMS = 4000, FEATURES = 16, BATCH = 32, SEED = 11 };
enum { EVERY = 50 /* steps between checkpoints that nobody asked for */ };
enum { AGAIN = 75 /* the exit code EX_TEMPFAIL of sysexits.h */ };

/* ---- the data: points, and the side of a plane that they lie on ---- */

static void work_for(
    long us) { /* stands for work: reading and decoding here, a training step below */
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

static int fetch(void *user, dlp_item *item) { /* runs in a worker process */
    float *x = item->data[0], *y = item->data[1], side = 0;
    (void)user;
    for (uint64_t i = 0; i < FEATURES; i++) {
        float noise = (float)(dlp_item_random(item, i) % 1000) * 0.0002f;
        x[i] = (float)(dlp_hash(SEED, item->index, i, 0) % 2001) * 0.001f - 1 + noise;
        side += i % 2 ? x[i] : -x[i];
    }
    *y = side > 0 ? 1.0f : 0.0f;
    work_for(100);
    return 0;
}

/* ---- all that a run is made of: where it is, and what it has learned ---- */

typedef struct checkpoint {
    char magic[8];   /* another number once this struct changes */
    dlp_state place; /* what of the data is consumed */
    uint64_t steps;  /* 0: no place yet */
    uint64_t hash;
    float weight[FEATURES], bias, loss; /* the model; a real one has its optimizer's state, too */
} checkpoint;

static const char magic[8] = "dlpchk1";

/* Returns false where there is a file that is none of ours, or cannot be read: better to stop than
   to begin again and write over it. */
static bool checkpoint_load(const char *path, checkpoint *c) {
    FILE *f = fopen(path, "rb");
    *c = (checkpoint){.hash = 14695981039346656037u};
    memcpy(c->magic, magic, sizeof magic);
    if (!f) return errno == ENOENT;
    bool ok = fread(c, sizeof *c, 1, f) == 1 && fgetc(f) == EOF;
    fclose(f);
    return ok && memcmp(c->magic, magic, sizeof magic) == 0;
}

static bool write_all(int fd, const void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t wrote = write(fd, (const char *)bytes + done, n - done);
        if (wrote < 0 && errno != EINTR) return false;
        if (wrote > 0) done += (size_t)wrote;
    }
    return true;
}

/* Beside the old one, to the disk, then in its place in one go: whenever we are killed, there is
   one that is whole. */
static bool checkpoint_save(const char *path, const checkpoint *c) {
    char fresh[1024];
    if (snprintf(fresh, sizeof fresh, "%s.new", path) >= (int)sizeof fresh) return false;
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    bool ok = write_all(fd, c, sizeof *c) && fsync(fd) == 0;
    ok = close(fd) == 0 && ok;
    return ok && rename(fresh, path) == 0;
}

/* ---- signals ---- */

static dlp_pipe *running; /* for the handler */
static volatile sig_atomic_t told_to_stop, told_to_save;

/* dlp_pipe_stop may be called here; it also wakes a dlp_pipe_next that waits for slow data, so that
   the checkpoint is written long before SIGKILL follows. */
static void on_signal(int signal) {
    if (signal == SIGUSR1) {
        told_to_save = 1;
        return;
    }
    told_to_stop = 1;
    if (running) dlp_pipe_stop(running);
}

static void signals_install(void) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &act, NULL);
    act.sa_flags = 0;
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
}

/* Keep the handler away while `running` changes. A signal that comes then is delivered after. */
static void signals_wait(bool wait) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(wait ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* ---- the pipe ---- */

static void say(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    fprintf(stderr, "checkpoint: %s\n", line);
}

static dlp_pipe *open_pipe(const checkpoint *c, int workers, int epochs) {
    const dlp_field fields[] = {
        {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {FEATURES}},
        {.name = "y", .dtype = DLP_F32},
    };
    const dlp_loader_desc desc = {
        .dataset = {.n_items = ITEMS,
                    .fields = fields,
                    .n_fields = 2,
                    .writes_all_bytes = 1,
                    .fetch = fetch},
        .batch_size = BATCH,
        .num_workers = workers,
        .shuffle = 1,
        .seed = SEED,
        .epochs = epochs,
        .workers = {.placement = DLP_PLACE_PROCESSES},
        .pipe = {.prefetch_factor = 4, .resume = c->steps ? &c->place : NULL},
    };
    dlp_pipe *pipe = NULL;
    dlp_error err;
    signals_wait(true);
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) {
        say(&err);
        pipe = NULL;
    }
    running = pipe;
    signals_wait(false);
    if (pipe && told_to_stop) dlp_pipe_stop(pipe); /* it came before there was a pipe */
    return pipe;
}

static int close_pipe(dlp_pipe *pipe) { /* leaves no process behind */
    signals_wait(true);
    running = NULL;
    signals_wait(false);
    return dlp_pipe_close(pipe);
}

/* ---- training ---- */

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n) { /* FNV-1a */
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
    return h;
}

static void step(checkpoint *c, const dlp_batch *b) {
    const float *x = b->fields[0].data, *y = b->fields[1].data;
    float loss = 0, slope[FEATURES + 1] = {0};
    for (uint32_t row = 0; row < b->count; row++, x += FEATURES) {
        float sum = c->bias, p;
        for (int i = 0; i < FEATURES; i++) sum += c->weight[i] * x[i];
        p = 1 / (1 + expf(-sum));
        loss -= logf((y[row] > 0 ? p : 1 - p) + 1e-7f) / (float)b->count;
        for (int i = 0; i < FEATURES; i++) slope[i] += (p - y[row]) * x[i] / (float)b->count;
        slope[FEATURES] += (p - y[row]) / (float)b->count;
    }
    for (int i = 0; i < FEATURES; i++) c->weight[i] -= 0.5f * slope[i];
    c->bias -= 0.5f * slope[FEATURES];
    c->loss = c->steps ? 0.98f * c->loss + 0.02f * loss : loss;
    c->hash = hash_bytes(c->hash, b->index, b->count * sizeof *b->index);
    for (uint32_t i = 0; i < b->n_fields; i++)
        c->hash = hash_bytes(c->hash, b->fields[i].data, (size_t)b->fields[i].bytes);
    c->steps++;
    work_for(2000);
}

/* Model and place belong together: both are of the moment when this batch is consumed and no other
   is. */
static bool save(checkpoint *c, dlp_pipe *pipe, const char *path) {
    if (c->steps == 0) return true; /* nothing is learned yet: the next run begins */
    if (dlp_pipe_state(pipe, NULL, &c->place) == DLP_OK && checkpoint_save(path, c)) return true;
    fprintf(stderr, "checkpoint: %s: %s\n", path, strerror(errno));
    return false;
}

static int usage(void) {
    fputs("usage: checkpoint [-w workers] [-e epochs] CHECKPOINT-FILE\n", stderr);
    return 2;
}

static void say_place(const char *what, const checkpoint *c) {
    printf("%s: %" PRIu64 " steps, hash %016" PRIx64 ", loss %.6f\n", what, c->steps, c->hash,
           (double)c->loss);
    fflush(stdout);
}

/* Train to the end, or until told to stop. Returns an exit code. A batch that next has given is
   trained and counts as consumed, also when the signal comes in its step. */
static int train(checkpoint *c, dlp_pipe *pipe, const char *path) {
    dlp_batch *b = NULL;
    int code;
    while ((code = dlp_pipe_next(pipe, &b)) == DLP_OK) {
        step(c, b);
        if (b->flags & DLP_BATCH_LAST) say_place("an epoch is over", c);
        dlp_pipe_release(pipe, b);
        bool told = told_to_save != 0;
        if (c->steps % EVERY != 0 && !told) continue;
        told_to_save = 0;
        if (!save(c, pipe, path)) return 1;
        if (told) say_place("saved", c);
    }
    if (code < 0) say(dlp_pipe_error(pipe)); /* what was trained is worth a checkpoint even so */
    if (!save(c, pipe, path) || code < 0) return 1;
    say_place(code == DLP_END ? "trained" : "stopped", c);
    return code == DLP_END ? 0 : AGAIN;
}

int main(int argc, char **argv) {
    int workers = 4, epochs = 2, option, code;
    checkpoint c;
    signals_install(); /* first of all: from here on no signal ends us without a checkpoint */
    while ((option = getopt(argc, argv, "w:e:")) != -1) {
        if (option == 'w')
            workers = atoi(optarg);
        else if (option == 'e')
            epochs = atoi(optarg);
        else
            return usage();
    }
    if (optind != argc - 1) return usage();
    if (!checkpoint_load(argv[optind], &c))
        return fprintf(stderr, "checkpoint: %s is no checkpoint of ours\n", argv[optind]), 1;
    if (c.steps) say_place("resumed", &c);
    dlp_pipe *pipe = open_pipe(&c, workers, epochs);
    if (!pipe) return 1;
    code = train(&c, pipe, argv[optind]);
    return close_pipe(pipe) == DLP_OK ? code : 1;
}
