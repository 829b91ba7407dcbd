/* The loader of a chess network: gzipped shards of positions, of which nobody has counted those
   that are worth learning from. Nine in ten are left out, what is kept is shuffled in windows, and
   batches are full all the same. Several ranks read it together, and go on exactly where they were.

     positions [-r ranks] [-w N] [-n steps] [-s FILE] [-k steps] [-f shards] [-p] DIR
     cc -O2 positions.c -lpthread -lm -lz

   -r processes that read together, 1, 2 or 4 (2), -w part workers of each (1), -n steps in all
   (1000), -s: a file that has the state behind the last step, and is gone on from, -k: end after so
   many steps of this life, -f shards to be made in an empty DIR (120), -p: no comparison with two
   plain threads that do the same without a pipe, and without an order.

   A shard is a gzipped file of records of 32 bytes. load reads it, fetch takes a record, and a
   filter keeps the quiet positions. A map turns a record into the numbers of its features, and the
   record ends there. A window shuffles. One sum over all rows and their places
   tells what the ranks learn from. It is equal for any number of ranks, workers and lives. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum {
    BATCH = 1024,  /* rows of all ranks */
    STREAMS = 4,   /* ranks divide it */
    WINDOW = 4096, /* positions of a stream that are shuffled at a time */
    MOST = 8000,   /* records of a shard, at most */
    FEATURES = 32
};

typedef struct record {
    uint64_t occupied;  /* a bit for each square */
    uint8_t pieces[16]; /* 4 bits for each of them */
    int16_t score;
    uint16_t ply;
    uint8_t check, capture, result, pad;
} record;

typedef struct options {
    const char *dir, *state;
    int ranks, workers, steps, life, shards, plain;
} options;

/* What the ranks leave to the process that has started them. */
typedef struct said {
    dlp_state state;
    uint64_t sum, rows, ns; /* ns: those from its first batch on, and rows of that time: */
    uint64_t timed;
} said;

typedef struct saved { /* the file */
    char magic[8];
    uint64_t sum, rows, steps;
    dlp_state state;
} saved;

static uint64_t n_shards;
static const char *shard_dir;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the shards ---- */

static const char *shard_path(uint64_t shard, char path[600]) {
    snprintf(path, 600, "%s/games-%04" PRIu64 ".gz", shard_dir, shard);
    return path;
}

static void make_record(uint64_t number, record *r) {
    uint64_t h = dlp_hash(number, 1, 0, 0);
    memset(r, 0, sizeof *r);
    r->occupied = dlp_hash(number / 8, 2, 0, 0) & dlp_hash(number, 3, 0, 0) & ~UINT64_C(0xff00);
    for (uint32_t i = 0; i < 16; i++)
        r->pieces[i] = (uint8_t)(dlp_hash(number / 8, i, 4, 0) & 0xbb);
    r->score = (int16_t)(h % 6000 - 3000);
    r->ply = (uint16_t)(h >> 16 & 127);
    r->check = (h >> 24) % 8 == 0;
    r->capture = (h >> 32) % 16 < 12;
    r->result = (uint8_t)((h >> 40) % 3);
}

static int make_shard(uint64_t shard) {
    char path[600];
    uint32_t n = 6000 + (uint32_t)(dlp_hash(shard, 5, 0, 0) % 2001);
    gzFile f = gzopen(shard_path(shard, path), "wb1");
    for (uint32_t i = 0; f != NULL && i < n; i++) {
        record r;
        make_record(shard * MOST + i, &r);
        if (gzwrite(f, &r, sizeof r) != (int)sizeof r) break;
    }
    if (f != NULL && gzclose(f) == Z_OK) return 1;
    return fprintf(stderr, "positions: can't write %s\n", path), 0;
}

static int find_shards(const options *o) {
    char path[600];
    shard_dir = o->dir;
    if (access(shard_path(0, path), F_OK) != 0)
        for (uint64_t i = 0; i < (uint64_t)o->shards; i++)
            if (!make_shard(i)) return 0;
    while (access(shard_path(n_shards, path), R_OK) == 0) n_shards++;
    return n_shards >= STREAMS || (fprintf(stderr, "positions: too few shards\n"), 0);
}

/* ---- what is done with them, with a pipe and without one ---- */

static int worth_it(const record *r) {
    return !r->check && !r->capture && r->ply >= 16 && r->score > -2000 && r->score < 2000;
}

/* Read the records of a shard. Returns how many there are, -1: it can't be read. */
static int read_shard(uint64_t shard, record *to) {
    char path[600];
    gzFile f = gzopen(shard_path(shard, path), "rb");
    const int each = (int)sizeof *to, bytes = f != NULL ? gzread(f, to, MOST * sizeof *to) : -1;
    if (f != NULL && gzclose(f) != Z_OK) return -1;
    return bytes > 0 && bytes % each == 0 ? bytes / each : -1;
}

/* The features of a position: piece and square of each piece; 65535 where there are fewer. */
static void decode(const record *r, uint16_t *features, float *target) {
    uint64_t left = r->occupied;
    int n = 0;
    for (; left != 0 && n < FEATURES; left &= left - 1, n++) {
        unsigned square = (unsigned)__builtin_ctzll(left);
        unsigned piece = r->pieces[n / 2] >> 4 * (n % 2) & 15u;
        features[n] = (uint16_t)(piece << 6 | square);
    }
    for (; n < FEATURES; n++) features[n] = 65535;
    *target = 0.7f * (float)r->score / 2000.0f + 0.3f * ((float)r->result - 1);
}

/* One number of a row and its place: a model would have learnt from it. */
static uint64_t learn(uint64_t place, const uint16_t *features, float target) {
    uint64_t h = place * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(int64_t)(target * 1e6f), word;
    for (size_t i = 0; i < FEATURES; i += 4) {
        memcpy(&word, features + i, 8);
        h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return h;
}

static int load(void *user, dlp_part *part) {
    int n = read_shard(part->index, part->data);
    char path[600];
    (void)user;
    if (n < 0) return dlp_fail(part->call, 0, "can't read %s", shard_path(part->index, path));
    part->items = (uint64_t)n;
    part->bytes = part->items * sizeof(record);
    return 0;
}

static int fetch(void *user, dlp_item *item) {
    const record *r = item->part->data;
    (void)user;
    memcpy(item->data[0], &r[item->part->item], sizeof *r);
    return 0;
}

static int keep(void *user, const dlp_item *item) {
    (void)user;
    return worth_it(item->data[0]);
}

/* Decode the record of an item into the fields that this node adds. */
static int map(void *user, dlp_item *item) {
    (void)user;
    decode(item->data[0], item->data[1], item->data[2]);
    return 0;
}

/* ---- one rank ---- */

static int run_rank(const options *o, int rank, const dlp_state *from, said *to) {
    static const dlp_field raw = {"record", DLP_U8, 1, {sizeof(record)}, 0, 0};
    static const dlp_field fields[] = {{"features", DLP_U16, 1, {FEATURES}, 0, 0},
                                       {"target", DLP_F32, 0, {0}, 0, 0}};
    const dlp_node nodes[] = {
        {.name = "shards", .verb = DLP_LIST, .list = {.n_items = n_shards, .shuffle = 1}},
        {.name = "parts",
         .verb = DLP_LOAD,
         .load = {.load = load, .max_part_bytes = MOST * sizeof(record), .max_items = MOST},
         .workers = {.num_workers = o->workers}},
        {.name = "records",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &raw, .n_fields = 1}},
        {.name = "quiet", .verb = DLP_FILTER, .filter = {.keep = keep}},
        {.name = "decode",
         .verb = DLP_MAP,
         .map = {.item = map, .fields = fields, .n_fields = 2, .ends = "record"}},
        {.name = "window", .verb = DLP_WINDOW, .window = {.items = WINDOW}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}},
    };
    const dlp_pipe_desc desc = {.seed = 3,
                                .streams = STREAMS,
                                .steps_per_epoch = o->steps,
                                .rank = (uint32_t)rank,
                                .world_size = (uint32_t)o->ranks,
                                .resume = from};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    uint64_t begin = 0;
    int n = 0, rc = dlp_pipe_open(&p, DLP_NODES(nodes), &desc, &err);
    if (rc != DLP_OK)
        return fprintf(stderr, "positions: %s %s: %s\n", err.stage, err.field, err.message), 1;
    while (n < o->life && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        const uint16_t *features = b->fields[0].data;
        const float *target = b->fields[1].data;
        for (uint32_t i = 0; i < b->count; i++)
            to->sum += learn(b->position + i, features + i * FEATURES, target[i]);
        to->rows += b->count;
        if (n++ == 0)
            begin = now_ns(); /* behind the first windows */
        else
            to->timed += b->count;
        to->ns = now_ns() - begin;
        if (dlp_pipe_state(p, b, &to->state) != DLP_OK) return 1;
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_OK && rc != DLP_END)
        fprintf(stderr, "positions: %s\n", dlp_pipe_error(p)->message);
    if (rank == 0) {
        char text[4096], *line;
        dlp_pipe_explain(p, text, sizeof text);
        if ((line = strstr(text, "Inputs: ")) != NULL)
            printf("rank 0: %.*s\n", (int)strcspn(line, "\n"), line);
        fflush(stdout);
    }
    return dlp_pipe_close(p) != DLP_OK || (rc != DLP_OK && rc != DLP_END);
}

/* All ranks, each in a process. Returns whether all went well. */
static int run_ranks(const options *o, const dlp_state *from, said *all) {
    int good = 1, status;
    for (int rank = 0; rank < o->ranks; rank++) {
        pid_t pid = fork();
        if (pid == 0) _exit(run_rank(o, rank, from, &all[rank]));
        if (pid < 0) return perror("fork"), 0;
    }
    while (wait(&status) > 0) good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return good;
}

/* ---- the same without a pipe ---- */

static pthread_mutex_t plain_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t plain_next, plain_rows, plain_want, plain_sum;

/* Add what was done, and take the next shard; n_shards: it is enough. */
static uint64_t plain_take(uint64_t rows, uint64_t sum) {
    uint64_t shard = n_shards;
    pthread_mutex_lock(&plain_lock);
    plain_rows += rows;
    plain_sum += sum;
    if (plain_rows < plain_want) shard = plain_next++ % n_shards;
    pthread_mutex_unlock(&plain_lock);
    return shard;
}

static void *plain(void *user) {
    record *all = malloc(MOST * sizeof *all);
    uint64_t shard = all ? plain_take(0, 0) : n_shards;
    while (shard < n_shards) {
        uint64_t rows = 0, sum = 0;
        int n = read_shard(shard, all);
        for (int i = 0; i < n; i++) {
            uint16_t features[FEATURES];
            float target;
            if (!worth_it(&all[i])) continue;
            decode(&all[i], features, &target);
            sum += learn(rows++, features, target);
        }
        shard = n < 0 ? n_shards : plain_take(rows, sum);
    }
    free(all);
    return user;
}

/* Rows/s of two threads. */
static double run_plain(uint64_t rows) {
    pthread_t thread[2];
    uint64_t begin = now_ns();
    plain_want = rows;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, plain, NULL) != 0) return 0;
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    return (double)plain_rows * 1e9 / (double)(now_ns() - begin);
}

/* ---- the file with the state ---- */

static int read_state(const options *o, saved *s) {
    FILE *f = o->state ? fopen(o->state, "rb") : NULL;
    memset(s, 0, sizeof *s);
    if (f == NULL) return 1;
    if (fread(s, sizeof *s, 1, f) == 1 && memcmp(s->magic, "POSITION", 8) == 0) return !fclose(f);
    fprintf(stderr, "positions: %s: not a file that this program has written\n", o->state);
    fclose(f);
    return 0;
}

static int write_state(const options *o, const saved *s) {
    char path[600];
    FILE *f;
    int ok;
    if (o->state == NULL) return 1;
    snprintf(path, sizeof path, "%s.tmp", o->state);
    ok = (f = fopen(path, "wb")) != NULL && fwrite(s, sizeof *s, 1, f) == 1;
    if (f != NULL && fclose(f) != 0) ok = 0;
    if (ok && rename(path, o->state) == 0) return 1;
    return perror(path), 0;
}

static int parse(options *o, int argc, char **argv) {
    int c;
    *o = (options){NULL, NULL, 2, 1, 1000, 1 << 30, 120, 1};
    while ((c = getopt(argc, argv, "r:w:n:s:k:f:p")) != -1) switch (c) {
        case 'r': o->ranks = atoi(optarg); break;
        case 'w': o->workers = atoi(optarg); break;
        case 'n': o->steps = atoi(optarg); break;
        case 's': o->state = optarg; break;
        case 'k': o->life = atoi(optarg); break;
        case 'f': o->shards = atoi(optarg); break;
        case 'p': o->plain = 0; break;
        default: return 0;
        }
    if (optind + 1 != argc || o->ranks < 1 || STREAMS % o->ranks != 0 || o->workers < 1 ||
        o->steps < 1 || o->life < 1 || o->shards < 1)
        return 0;
    o->dir = argv[optind];
    return 1;
}

int main(int argc, char **argv) {
    options o;
    saved s;
    dlp_error err;
    dlp_state states[STREAMS];
    double rate = 0, alone;
    uint64_t rows = 0;
    said *all = mmap(NULL, STREAMS * sizeof *all, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!parse(&o, argc, argv)) {
        fprintf(stderr, "usage: positions [-r 1|2|4] [-w workers] [-n steps] [-s FILE] [-k steps] "
                        "[-f shards] [-p] DIR\n");
        return 2;
    }
    if (all == MAP_FAILED || !find_shards(&o) || !read_state(&o, &s)) return 1;
    if (s.steps >= (uint64_t)o.steps) return printf("all %d steps are done\n", o.steps), 0;
    if (!run_ranks(&o, s.steps ? &s.state : NULL, all)) return 1;
    for (int i = 0; i < o.ranks; i++) {
        states[i] = all[i].state;
        s.sum += all[i].sum;
        rows += all[i].rows;
        if (all[i].ns > 0) rate += (double)all[i].timed * 1e9 / (double)all[i].ns;
    }
    if (dlp_state_merge(&s.state, states, (uint32_t)o.ranks, &err) != DLP_OK)
        return fprintf(stderr, "positions: %s\n", err.message), 1;
    memcpy(s.magic, "POSITION", 8);
    s.rows += rows;
    s.steps += rows / BATCH;
    if (!write_state(&o, &s)) return 1;
    printf("%" PRIu64 " steps, %" PRIu64 " positions, sum %016" PRIx64 "\n", s.steps, s.rows,
           s.sum);
    if (!o.plain) return 0;
    alone = run_plain(rows);
    printf(
        "%.0f positions/s of %d ranks; two plain threads, without an order: %.0f; that is %.2f\n",
        rate, o.ranks, alone, rate / alone);
    return 0;
}
