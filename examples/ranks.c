/* One of many processes that read a dataset together, whatever has started them, and that can be
   stopped and go on in another number.

   ranks [-a] [-n steps] [-e epochs] [-t microseconds of a step] DIRECTORY LAUNCH
   cc -O2 ranks.c -lpthread

     mpirun -n 4 ./ranks out 1
     torchrun --no-python --nproc-per-node 4 ./ranks out 1
     srun --ntasks-per-node=4 ./ranks out 1
     sbatch --array=0-3 script: ./ranks -a out 1     each by itself, a rank for each task

   On SIGUSR1 (Slurm's --signal=USR1@120) or SIGTERM to any rank all finish the step they are in,
   rank 0 writes DIRECTORY/state, and all end with 75: start me again, as many as you like, as
   launch 2. A batch script of Slurm's:

     #SBATCH --ntasks-per-node=4 --signal=USR1@120 --requeue
     srun ./ranks out "${SLURM_RESTART_COUNT:-0}"
     [ $? -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"

   What a rank has read stands in DIRECTORY/LAUNCH.RANK, a line for each item: epoch, position in
   the epoch, index, a hash of its bytes, step. Those of all ranks, sorted, are those of one.
   Killed, a run goes on from its last checkpoint: the lines of later steps come again.

   Where a training has its allreduce, here the ranks meet in files. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ITEMS = 1000, FEATURES = 4, BATCH = 24 /* of all ranks */, SEED = 5, EVERY = 10 };
enum { AGAIN = 75 /* the exit code EX_TEMPFAIL of sysexits.h */ };

static dlp_ranks who;

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "ranks: rank %u: %s: %s\n", who.rank, what, why);
    exit(1);
}

static void give_up_on(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    give_up("dlpipe", line);
}

static void pause_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static int fetch(void *user, dlp_item *item) { /* called by many workers at once */
    float *x = item->data[0];
    (void)user;
    for (uint64_t i = 0; i < FEATURES; i++)
        x[i] = (float)(item->index * FEATURES + i) + (float)(dlp_item_random(item, i) % 64) / 64;
    return 0;
}

/* ---- who we are ---- */

/* Slurm tells the tasks of an array apart by numbers, of which the user has chosen first and step:
   as ranks they are from 0 on. */
static long array_number(const char *name) {
    const char *text = getenv(name);
    char *end;
    long n = text ? strtol(text, &end, 10) : -1;
    if (!text || *text == 0 || *end != 0 || n < 0) give_up(name, "is not set, or no number");
    return n;
}

static void find_rank(bool array) {
    dlp_error err;
    if (dlp_ranks_describe(&who, &err) != DLP_OK) give_up(err.field, err.message);
    if (!array) return;
    long min = array_number("SLURM_ARRAY_TASK_MIN"), step = array_number("SLURM_ARRAY_TASK_STEP");
    long id = array_number("SLURM_ARRAY_TASK_ID"), n = array_number("SLURM_ARRAY_TASK_COUNT");
    if (step < 1 || id < min || (id - min) / step >= n || (id - min) % step != 0)
        give_up("SLURM_ARRAY_TASK_ID", "is not one of the array's");
    who.rank = (uint32_t)((id - min) / step);
    who.world_size = (uint32_t)n;
}

/* ---- all that a run is made of: here, its place ---- */

typedef struct checkpoint {
    char magic[8];
    dlp_state place;
    uint64_t steps; /* 0: no place yet */
} checkpoint;

static const char magic[8] = "dlprnk1";

static void checkpoint_load(checkpoint *c, const char *path) {
    FILE *f = fopen(path, "rb");
    memset(c, 0, sizeof *c);
    memcpy(c->magic, magic, sizeof magic);
    if (!f && errno == ENOENT) return;
    if (!f || fread(c, sizeof *c, 1, f) != 1 || memcmp(c->magic, magic, sizeof magic) != 0)
        give_up(path, "is no checkpoint of ours");
    fclose(f);
}

/* Beside the old one, to the disk, then in its place in one go. */
static void checkpoint_save(checkpoint *c, dlp_pipe *pipe, const char *path) {
    char fresh[1100];
    if (dlp_pipe_state(pipe, NULL, &c->place) != DLP_OK) give_up_on(dlp_pipe_error(pipe));
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *f = fopen(fresh, "wb");
    bool good = f && fwrite(c, sizeof *c, 1, f) == 1 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    if (!f || fclose(f) != 0 || !good || rename(fresh, path) != 0) give_up(path, strerror(errno));
}

/* ---- do all go on? ---- */

static volatile sig_atomic_t told_to_stop;
static void on_signal(int signal) {
    (void)signal;
    told_to_stop = 1;
}

/* Each rank has a file with a byte for each step since the start: was it told to stop by then? So
   all that look at a step see the same, whenever they look. */
static char meeting[1024]; /* "DIRECTORY/LAUNCH.steps"; empty: nobody to meet */
static int *files;         /* [world_size]; -1: not seen yet */

static void meeting_open(const char *dir, const char *launch) {
    char path[1100];
    files = malloc(who.world_size * sizeof *files);
    if (!files) give_up("malloc", strerror(errno));
    for (uint32_t r = 0; r < who.world_size; r++) files[r] = -1;
    snprintf(meeting, sizeof meeting, "%s/%s.steps", dir, launch);
    snprintf(path, sizeof path, "%s.%u", meeting, who.rank);
    files[who.rank] = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (files[who.rank] < 0) give_up(path, strerror(errno));
}

static bool has_made(uint32_t other, off_t step, char *told) {
    char path[1100];
    if (files[other] < 0) {
        snprintf(path, sizeof path, "%s.%u", meeting, other);
        files[other] = open(path, O_RDONLY | O_CLOEXEC);
    }
    return files[other] >= 0 && pread(files[other], told, 1, step) == 1;
}

/* After the n-th step since the start, from 0: waits until all ranks have made it. Returns whether
   any was told to stop before. */
static bool any_told(off_t n) {
    char all = told_to_stop != 0, told = 0;
    if (meeting[0] == 0) return all;
    if (pwrite(files[who.rank], &all, 1, n) != 1) give_up(meeting, strerror(errno));
    for (uint32_t r = 0; r < who.world_size; r++) {
        for (int waits = 0; !has_made(r, n, &told); waits++) {
            if (waits == 100000) give_up("another rank", "is gone");
            pause_us(200);
        }
        all |= told;
    }
    return all;
}

static void meeting_close(void) {
    for (uint32_t r = 0; files && r < who.world_size; r++)
        if (files[r] >= 0) close(files[r]);
    free(files);
}

/* ---- the run ---- */

typedef struct options {
    uint64_t steps;
    long step_us;
    int epochs;
    bool array;
} options;

static dlp_pipe *open_pipe(const checkpoint *c, const options *opt) {
    const dlp_field fields[] = {{.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {FEATURES}}};
    const dlp_loader_desc desc = {
        .dataset = {.n_items = ITEMS,
                    .fields = fields,
                    .n_fields = 1,
                    .writes_all_bytes = 1,
                    .fetch = fetch},
        .batch_size = BATCH,
        .num_workers = who.cores,
        .workers = {.affinity = who.cpus, .n_affinity = who.confined ? 0 : who.n_cpus},
        .shuffle = 1,
        .seed = SEED,
        .epochs = opt->epochs,
        .pipe = {.rank = who.rank,
                 .world_size = who.world_size,
                 .resume = c->steps ? &c->place : NULL},
    };
    dlp_pipe *pipe = NULL;
    dlp_error err;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) give_up_on(&err);
    return pipe;
}

static void write_rows(FILE *rows, const dlp_batch *b, uint64_t step) {
    const uint8_t *bytes = b->fields[0].data;
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t h = 14695981039346656037u; /* FNV-1a */
        for (size_t k = 0; k < FEATURES * sizeof(float); k++) h = (h ^ *bytes++) * 1099511628211u;
        fprintf(rows, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %016" PRIx64 " %" PRIu64 "\n", b->epoch,
                b->position + i, b->index[i], h, step);
    }
    fflush(rows);
}

/* Returns an exit code. */
static int run(checkpoint *c, dlp_pipe *pipe, const options *opt, const char *path, FILE *rows) {
    bool stop = false, saves = who.rank == 0 || opt->array;
    dlp_batch *b = NULL;
    off_t n = 0;
    int code = DLP_OK;
    while (!stop && (code = dlp_pipe_next(pipe, &b)) == DLP_OK) {
        write_rows(rows, b, ++c->steps);
        pause_us(opt->step_us);
        dlp_pipe_release(pipe, b);
        stop = any_told(n++) || c->steps == opt->steps;
        if (saves && (stop || c->steps % EVERY == 0)) checkpoint_save(c, pipe, path);
    }
    if (code < 0) give_up_on(dlp_pipe_error(pipe));
    if (code == DLP_END && saves) checkpoint_save(c, pipe, path);
    printf("rank %u of %u, %u of %u here, %d cores: %s after %" PRIu64 " steps\n", who.rank,
           who.world_size, who.local_rank, who.local_world_size, (int)who.cores,
           stop ? "stopped" : "done", c->steps);
    return stop ? AGAIN : 0;
}

static bool parse(options *opt, int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "an:e:t:")) != -1) {
        if (option == 'a')
            opt->array = true;
        else if (option == 'n')
            opt->steps = strtoull(optarg, NULL, 10);
        else if (option == 'e')
            opt->epochs = atoi(optarg);
        else if (option == 't')
            opt->step_us = atol(optarg);
        else
            return false;
    }
    return optind == argc - 2;
}

int main(int argc, char **argv) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    options opt = {.epochs = 2, .step_us = 1000};
    char state[1024], name[1024];
    checkpoint c;
    sigaction(SIGUSR1, &act, NULL); /* first of all: from here on no signal ends us */
    sigaction(SIGTERM, &act, NULL);
    if (!parse(&opt, argc, argv)) give_up("usage", "ranks [-a] [-n -e -t number] DIRECTORY LAUNCH");
    const char *dir = argv[optind], *launch = argv[optind + 1];
    find_rank(opt.array);
    if (!opt.array && who.world_size > 1) meeting_open(dir, launch);
    snprintf(state, sizeof state, opt.array ? "%s/state.%u" : "%s/state", dir, who.rank);
    checkpoint_load(&c, state);
    snprintf(name, sizeof name, "%s/%s.%u", dir, launch, who.rank);
    FILE *rows = fopen(name, "w");
    if (!rows) give_up(name, strerror(errno));
    dlp_pipe *pipe = open_pipe(&c, &opt);
    int code = run(&c, pipe, &opt, state, rows);
    meeting_close();
    if (fclose(rows) != 0) give_up(name, strerror(errno));
    return dlp_pipe_close(pipe) == DLP_OK ? code : 1;
}
