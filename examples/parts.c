/* A directory of shard files, each with many records, and a trainer that does not wait when one
   shard ends and the next begins: the next ones are read while items come from the present ones.

     parts [-w N] [-q N] [-m N] [-e N] [-p] DIR

   -w part workers (2; 0: read in the trainer's own next), -q part cells (0: as many as needed and
   one more), -m ms that each read takes longer, as from a network (0), -e epochs (3), -p workers
   are processes. An empty DIR gets 24 shards, 30,000 small images of ten kinds, made up.

   A shard is "SHRD", the number of records (32 bits, little-endian), and records of a label byte
   and 16 x 16 bytes of an image. The model is one softmax layer, in plain C. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include "../dlpipe_shm.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIDE 16
#define PIXELS (SIDE * SIDE)
#define RECORD (1 + PIXELS)
#define HEADER 8
#define KINDS 10
#define BATCH 64
#define STREAMS 4 /* a batch mixes images of so many shards */
#define SHARDS 4096

typedef struct shards {
    dlp_part_files files; /* first: it is what dlp_part_files_load gets */
    dlp_part_file list[SHARDS];
    char names[SHARDS][64];
    uint64_t n;
    uint64_t largest;           /* bytes */
    uint64_t first[SHARDS + 1]; /* items before each */
    int slow_ms;
} shards;

/* ---- the shards ---- */

/* Made-up images: a pattern for each kind, and noise. */
static void make_record(uint64_t number, uint8_t *record) {
    uint32_t kind = (uint32_t)(dlp_hash(number, 1, 0, 0) % KINDS);
    record[0] = (uint8_t)kind;
    for (uint32_t i = 0; i < PIXELS; i++) {
        uint32_t pattern = (uint32_t)(dlp_hash(kind, i / 2, 2, 0) % 140);
        record[1 + i] = (uint8_t)(pattern + dlp_hash(number, i, 3, 0) % 116);
    }
}

static int make_shard(const char *path, uint64_t first, uint32_t count) {
    FILE *f = fopen(path, "wb");
    uint8_t record[RECORD];
    int ok = f != NULL;
    for (int i = 0; i < 4; i++)
        record[i] = (uint8_t) "SHRD"[i], record[4 + i] = (uint8_t)(count >> 8 * i);
    ok = ok && fwrite(record, HEADER, 1, f) == 1;
    for (uint32_t i = 0; ok && i < count; i++) {
        make_record(first + i, record);
        ok = fwrite(record, RECORD, 1, f) == 1;
    }
    if (f != NULL && fclose(f) != 0) ok = 0;
    if (!ok) perror(path);
    return ok;
}

static int make_shards(const char *dir) {
    uint64_t first = 0;
    for (uint32_t k = 0; k < 24; k++) {
        char path[512];
        uint32_t count = 900 + k % 7 * 117;
        snprintf(path, sizeof path, "%s/shard-%03u", dir, k);
        if (!make_shard(path, first, count)) return 0;
        first += count;
    }
    return 1;
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

/* The files of a directory that are called shard-..., in the order of their names. */
static int list_shards(shards *s, const char *dir) {
    DIR *d = opendir(dir);
    if (d == NULL) return perror(dir), 0;
    s->n = 0;
    for (struct dirent *e = readdir(d); e && s->n < SHARDS; e = readdir(d))
        if (strncmp(e->d_name, "shard-", 6) == 0 && strlen(e->d_name) < sizeof *s->names &&
            strchr(e->d_name, '.') == NULL)
            memcpy(s->names[s->n++], e->d_name, strlen(e->d_name) + 1);
    closedir(d);
    qsort(s->names, (size_t)s->n, sizeof *s->names, by_name);
    for (uint64_t k = 0; k < s->n; k++) s->list[k].path = s->names[k];
    s->files.files = s->list;
    s->files.n_files = s->n;
    s->files.dir = dir;
    return 1;
}

/* How many records a shard has: its size says so, and its header must say the same. */
static int count_records(void *user, uint64_t part, uint64_t *items) {
    shards *s = user;
    char path[512];
    uint8_t head[HEADER] = {0};
    long bytes = -1;
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", s->files.dir, s->names[part]);
    f = fopen(path, "rb");
    if (f != NULL && fread(head, HEADER, 1, f) == 1 && fseek(f, 0, SEEK_END) == 0) bytes = ftell(f);
    if (f != NULL) fclose(f);
    if (bytes < HEADER || memcmp(head, "SHRD", 4) != 0) return -1;
    *items = (uint64_t)head[4] | (uint64_t)head[5] << 8 | (uint64_t)head[6] << 16 |
             (uint64_t)head[7] << 24;
    if ((uint64_t)bytes != HEADER + *items * RECORD) return -2;
    if ((uint64_t)bytes > s->largest) s->largest = (uint64_t)bytes;
    s->first[part + 1] = s->first[part] + *items;
    return 0;
}

/* ---- what the workers do ---- */

static int load(void *user, dlp_part *part) {
    const shards *s = user;
    struct timespec t = {s->slow_ms / 1000, s->slow_ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
    return dlp_part_files_load(user, part);
}

static int fetch(void *user, dlp_item *item) {
    const uint8_t *record = (const uint8_t *)item->part->data + HEADER + item->part->item * RECORD;
    float *image = item->data[0];
    (void)user;
    for (int i = 0; i < PIXELS; i++) image[i] = (float)record[1 + i] / 255.0f - 0.5f;
    *(uint8_t *)item->data[1] = record[0];
    return 0;
}

/* ---- the trainer ---- */

static float weights[KINDS][PIXELS + 1];

/* One step of gradient descent on a batch; returns how many it had right before. */
static uint32_t step(const dlp_batch *b, float rate) {
    const float *images = b->fields[0].data;
    const uint8_t *labels = b->fields[1].data;
    uint32_t right = 0;
    for (uint32_t r = 0; r < b->count; r++, images += PIXELS) {
        float p[KINDS], sum = 0, most = -1e30f;
        int best = 0;
        for (int k = 0; k < KINDS; k++) {
            p[k] = weights[k][PIXELS];
            for (int i = 0; i < PIXELS; i++) p[k] += weights[k][i] * images[i];
            if (p[k] > most) most = p[k], best = k;
        }
        right += best == labels[r];
        for (int k = 0; k < KINDS; k++) sum += p[k] = expf(p[k] - most);
        for (int k = 0; k < KINDS; k++) {
            float d = rate * ((k == labels[r] ? 1.0f : 0.0f) - p[k] / sum);
            for (int i = 0; i < PIXELS; i++) weights[k][i] += d * images[i];
            weights[k][PIXELS] += d;
        }
    }
    return right;
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Does the batch have an item of a part that the one before had none of? Keeps which it has. */
static int part_changes(const shards *s, const dlp_batch *b, uint8_t *had) {
    uint8_t has[SHARDS] = {0};
    int changes = 0;
    for (uint32_t r = 0; r < b->count; r++) {
        uint64_t part = 0;
        while (b->index[r] >= s->first[part + 1]) part++;
        changes |= !had[part];
        has[part] = 1;
    }
    memcpy(had, has, SHARDS);
    return changes;
}

typedef struct waits {
    double sum, most;
    int n;
} waits;

static void note(waits *w, double ms) {
    w->sum += ms;
    w->n++;
    if (ms > w->most) w->most = ms;
}

static int train(dlp_pipe *pipe, const shards *s) {
    static uint8_t had[SHARDS];
    waits change = {0, 0, 0}, other = {0, 0, 0}, *of;
    uint64_t items = 0, right = 0;
    double begin = now_ms();
    dlp_batch *b;
    int rc;
    for (;;) {
        double from = now_ms(), waited;
        if ((rc = dlp_pipe_next(pipe, &b)) != DLP_OK) break;
        waited = now_ms() - from;
        of = part_changes(s, b, had) ? &change : &other;
        if (b->sequence == 0)
            printf("first batch after %.1f ms\n", now_ms() - begin);
        else
            note(of, waited);
        right += step(b, 0.002f);
        items += b->count;
        if (b->flags & DLP_BATCH_LAST) {
            printf("epoch %d: %.1f %% right\n", (int)b->epoch,
                   100.0 * (double)right / (double)items);
            items = right = 0;
        }
        dlp_pipe_release(pipe, b);
    }
    printf("%d batches with a new shard: waited %.2f ms each, %.2f at most\n", change.n,
           change.n ? change.sum / change.n : 0, change.most);
    printf("%d others: waited %.2f ms each, %.2f at most; all in %.0f ms\n", other.n,
           other.n ? other.sum / other.n : 0, other.most, now_ms() - begin);
    return rc == DLP_END ? 0 : 1;
}

static int run(shards *s, dlp_loader_desc *desc) {
    static const dlp_field fields[] = {
        {.name = "image", .dtype = DLP_F32, .ndim = 2, .shape = {SIDE, SIDE}},
        {.name = "label", .dtype = DLP_U8}};
    char words[2000];
    dlp_pipe *pipe = NULL;
    dlp_error err;
    int wrong;
    desc->parts.n_parts = s->n;
    desc->parts.count = count_records;
    desc->parts.load = load;
    desc->parts.user = s;
    desc->pipe.streams = STREAMS;
    desc->parts.max_part_bytes = s->largest;
    desc->dataset.fields = fields;
    desc->dataset.n_fields = 2;
    desc->dataset.fetch = fetch;
    desc->dataset.writes_all_bytes = 1;
    desc->batch_size = BATCH;
    desc->shuffle = 1;
    desc->seed = 1;
    if (dlp_loader_open(&pipe, desc, &err) != DLP_OK) {
        dlp_error_format(&err, words, sizeof words);
        return fprintf(stderr, "%s\n", words), 1;
    }
    wrong = train(pipe, s);
    if (dlp_pipe_explain(pipe, words, sizeof words) > 0) fputs(words, stdout);
    if (dlp_pipe_error(pipe)->code != DLP_OK) {
        dlp_error_format(dlp_pipe_error(pipe), words, sizeof words);
        fprintf(stderr, "%s\n", words);
    }
    return dlp_pipe_close(pipe) == DLP_OK ? wrong : 1;
}

/* The shards and their sizes; the largest is the size of a part cell. */
static int look_at(shards *s, const char *dir) {
    uint64_t items;
    if (!list_shards(s, dir)) return 0;
    if (s->n == 0 && (!make_shards(dir) || !list_shards(s, dir))) return 0;
    for (uint64_t k = 0; k < s->n; k++)
        if (count_records(s, k, &items) != 0)
            return fprintf(stderr, "%s/%s is no shard\n", dir, s->names[k]), 0;
    printf("%d shards, %d images\n", (int)s->n, (int)s->first[s->n]);
    return 1;
}

static int usage(void) {
    fputs("usage: parts [-w workers] [-q cells] [-m ms] [-e epochs] [-p] DIR\n"
          "an empty DIR gets shards that are made up; -p: workers are processes\n",
          stderr);
    return 2;
}

int main(int argc, char **argv) {
    static shards s;
    dlp_loader_desc desc = {
        .parts = {.workers = {.num_workers = 2}}, .num_workers = 1, .epochs = 3};
    for (int c; (c = getopt(argc, argv, "w:q:m:e:p")) != -1;) {
        if (c == 'w') desc.parts.workers.num_workers = atoi(optarg) ? atoi(optarg) : DLP_NONE;
        if (c == 'q') desc.parts.queue_size = (uint32_t)atoi(optarg);
        if (c == 'm') s.slow_ms = atoi(optarg);
        if (c == 'e') desc.epochs = atoi(optarg);
        if (c == 'p') desc.parts.workers.placement = desc.workers.placement = DLP_PLACE_PROCESSES;
        if (c == '?') return usage();
    }
    if (optind + 1 != argc) return usage();
    return look_at(&s, argv[optind]) ? run(&s, &desc) : 1;
}
