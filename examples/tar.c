/* Samples out of tar shards, as WebDataset writes them: members that follow each other and have one
   name up to the first dot (000017.bin, 000017.cls) are one sample. Prints what each class has.

   tar [-w workers] [-b batch] [-q shards-at-once] [SHARD.tar ...]
   cc -O2 tar.c -lpthread

   Part workers read whole shards ahead, batches mix samples of two of them, and fetch reads members
   where they lie in memory. Where each sample begins is found once, at the start, by reading the
   headers. Here a sample is 64 bytes (.bin) and a number in text (.cls); decode something else in
   fetch_sample. Without shards the program makes some up, and removes them. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512, PIXELS = 64, CLASSES = 10 };

/* ---- tar: a header of 512 bytes (name, size in octal, checksum, type), the bytes, padding ---- */

static uint64_t octal(const unsigned char *text, int n) {
    uint64_t value = 0;
    int i = 0;
    while (i < n && text[i] == ' ') i++;
    for (; i < n && text[i] >= '0' && text[i] <= '7'; i++)
        value = value * 8 + (uint64_t)(text[i] - '0');
    return value;
}

static bool is_header(const unsigned char *h) {
    uint64_t sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : h[i];
    return h[0] != 0 && sum == octal(h + 148, 8);
}

static bool is_file(const unsigned char *h) { return h[156] == '0' || h[156] == 0; }

/* From one header to the next. */
static uint64_t stride(const unsigned char *h) {
    return BLOCK + (octal(h + 124, 12) + BLOCK - 1) / BLOCK * BLOCK;
}

/* What of a name says which sample it is of: up to the first dot after the last slash. */
static size_t stem(const unsigned char *h) {
    size_t n = 0, slash = 0;
    for (size_t i = 0; i < 100 && h[i]; i++)
        if (h[i] == '/') slash = i + 1;
    for (n = slash; n < 100 && h[n] && h[n] != '.'; n++) {}
    return n;
}

static bool same_sample(const unsigned char *a, const unsigned char *b) {
    size_t n = stem(a);
    return n == stem(b) && memcmp(a, b, n) == 0;
}

/* ---- shards: their samples, found once ---- */

typedef struct shard {
    uint64_t bytes, n;
    uint64_t *at; /* [n] the header of each sample's first member */
} shard;

typedef struct shards {
    dlp_part_files files; /* first: what dlp_part_files_load is given */
    shard *of;            /* [files.n_files] */
} shards;

/* The items of a part: dlp_node_load.count. Returns as all callbacks do. */
static int count_samples(void *user, uint64_t part, uint64_t *items) {
    const shards *all = user;
    shard *s = &all->of[part];
    unsigned char h[BLOCK], before[BLOCK] = {0};
    uint64_t room = 0;
    int fd = open(all->files.files[part].path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 1;
    for (uint64_t at = 0; pread(fd, h, BLOCK, (off_t)at) == BLOCK && is_header(h);
         at += stride(h)) {
        if (!is_file(h)) continue; /* a directory, or what pax says of the next member */
        if (s->n == room) {
            uint64_t *more = realloc(s->at, (room = 2 * room + 64) * sizeof *more);
            if (more == NULL) return close(fd), 1;
            s->at = more;
        }
        if (s->n == 0 || !same_sample(h, before)) s->at[s->n++] = at;
        memcpy(before, h, BLOCK);
    }
    *items = s->n;
    return close(fd) != 0;
}

/* Find the member of a sample that has an extension. NULL: it has none, or the shard is cut. */
static const unsigned char *member(const dlp_part *part, uint64_t at, const char *extension,
                                   uint64_t *size) {
    const unsigned char *bytes = part->data, *first = bytes + at;
    while (at + BLOCK <= part->bytes && is_header(bytes + at)) {
        const unsigned char *h = bytes + at;
        size_t n = stem(h), m = strlen(extension);
        *size = octal(h + 124, 12);
        if (is_file(h) && !same_sample(h, first)) return NULL;
        if (is_file(h) && n + m < 100 && memcmp(h + n, extension, m + 1) == 0)
            return *size <= part->bytes - at - BLOCK ? h + BLOCK : NULL;
        at += stride(h);
    }
    return NULL;
}

/* Write a sample: fetch, of a shard that is loaded. */
static int fetch_sample(void *user, dlp_item *item) {
    const shards *all = user;
    const dlp_part *part = item->part;
    uint64_t at = all->of[part->index].at[part->item], n, digits;
    const unsigned char *pixels = member(part, at, ".bin", &n);
    const unsigned char *label = member(part, at, ".cls", &digits);
    if (pixels == NULL || n != PIXELS || label == NULL || digits == 0)
        return dlp_fail(item->call, 0, "sample %llu of %s: no %s of the right size",
                        (unsigned long long)part->item, all->files.files[part->index].path,
                        pixels && n == PIXELS ? ".cls" : ".bin");
    memcpy(item->data[0], pixels, PIXELS);
    *(int32_t *)item->data[1] = 0;
    for (uint64_t i = 0; i < digits && label[i] >= '0' && label[i] <= '9'; i++)
        *(int32_t *)item->data[1] = (*(int32_t *)item->data[1] * 10 + label[i] - '0') % CLASSES;
    return 0;
}

/* ---- shards that are made up ---- */

static void put_member(FILE *f, const char *name, const void *bytes, size_t n) {
    static const char magic[8] = {'u', 's', 't', 'a', 'r', 0, '0', '0'};
    unsigned char h[BLOCK] = {0}, zeros[BLOCK] = {0};
    unsigned sum = 8 * ' ';
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 100, 8, "%07o", 0644);
    snprintf((char *)h + 124, 12, "%011o", (unsigned)n);
    h[156] = '0';
    memcpy(h + 257, magic, sizeof magic);
    for (int i = 0; i < BLOCK; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    fwrite(h, BLOCK, 1, f);
    fwrite(bytes, n, 1, f);
    fwrite(zeros, (BLOCK - n % BLOCK) % BLOCK, 1, f);
}

static char made_dir[] = "/tmp/tar-XXXXXX", made[6][48];

static bool make_shards(void) {
    if (mkdtemp(made_dir) == NULL) return false;
    for (int i = 0; i < 6; i++) {
        snprintf(made[i], sizeof made[i], "%s/shard-%06d.tar", made_dir, i);
        FILE *f = fopen(made[i], "wb");
        if (f == NULL) return false;
        for (int k = 0; k < 100 + 10 * i; k++) {
            unsigned char pixels[PIXELS], zeros[2 * BLOCK] = {0};
            char name[32], label[8];
            memset(pixels, k, sizeof pixels);
            snprintf(label, sizeof label, "%d", k % CLASSES);
            snprintf(name, sizeof name, "%06d.bin", k);
            put_member(f, name, pixels, PIXELS);
            snprintf(name, sizeof name, "%06d.cls", k);
            put_member(f, name, label, strlen(label));
            if (k + 1 == 100 + 10 * i) fwrite(zeros, sizeof zeros, 1, f);
        }
        if (fclose(f) != 0) return false;
    }
    return true;
}

static void remove_shards(void) {
    for (int i = 0; i < 6; i++) unlink(made[i]);
    rmdir(made_dir);
}

/* ---- the program ---- */

static int say(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    fprintf(stderr, "tar: %s\n", line);
    return 1;
}

static int run(const dlp_loader_desc *desc) {
    uint64_t of_class[CLASSES] = {0}, sum[CLASSES] = {0};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_loader_open(&pipe, desc, &err) != DLP_OK) return say(&err);
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const unsigned char *x = batch->fields[0].data; /* [count][PIXELS] */
        const int32_t *label = batch->fields[1].data;   /* [count] */
        for (uint32_t i = 0; i < batch->count; i++) {
            of_class[label[i]]++;
            sum[label[i]] += x[(size_t)i * PIXELS];
        }
        dlp_pipe_release(pipe, batch);
    }
    int bad = code != DLP_END && say(dlp_pipe_error(pipe));
    for (int c = 0; c < CLASSES && !bad; c++)
        printf("class %d: %llu samples, first bytes sum to %llu\n", c,
               (unsigned long long)of_class[c], (unsigned long long)sum[c]);
    return dlp_pipe_close(pipe) != DLP_OK || bad;
}

static int open_and_run(const char **paths, int n, dlp_loader_desc desc) {
    dlp_part_file *files = calloc((size_t)n, sizeof *files);
    shards all = {.files = {.files = files, .n_files = (uint64_t)n},
                  .of = calloc((size_t)n, sizeof *all.of)};
    struct stat st;
    int bad = files == NULL || all.of == NULL;
    for (int i = 0; i < n && !bad; i++) {
        files[i].path = paths[i];
        bad = stat(paths[i], &st) != 0;
        if (bad)
            perror(paths[i]);
        else if ((uint64_t)st.st_size > desc.parts.max_part_bytes)
            desc.parts.max_part_bytes = (uint64_t)st.st_size;
    }
    desc.parts.n_parts = (uint64_t)n;
    desc.parts.user = &all;
    desc.dataset.user = &all;
    if (!bad) bad = run(&desc);
    for (int i = 0; i < n && all.of; i++) free(all.of[i].at);
    free(all.of);
    free(files);
    return bad;
}

int main(int argc, char **argv) {
    static const dlp_field fields[] = {
        {.name = "pixels", .dtype = DLP_U8, .ndim = 1, .shape = {PIXELS}},
        {.name = "label", .dtype = DLP_I32},
    };
    dlp_loader_desc desc = {
        .parts = {.count = count_samples,
                  .load = dlp_part_files_load,
                  .shuffle_parts = 1,
                  .shuffle_items = 1,
                  .workers = {.num_workers = 2}},
        .dataset = {.fields = fields, .n_fields = 2, .fetch = fetch_sample, .writes_all_bytes = 1},
        .batch_size = 32,
        .num_workers = 2,
        .pipe = {.streams = 2}, /* batches mix samples of two shards */
    };
    const char *paths[6];
    int option;
    while ((option = getopt(argc, argv, "w:b:q:")) != -1) {
        if (option == 'w') desc.num_workers = atoi(optarg);
        if (option == 'b') desc.batch_size = (uint32_t)atoi(optarg);
        if (option == 'q') desc.parts.queue_size = (uint32_t)atoi(optarg);
        if (option == '?') return 2;
    }
    if (optind < argc) return open_and_run((const char **)&argv[optind], argc - optind, desc);
    for (int i = 0; i < 6; i++) paths[i] = made[i];
    int bad = !make_shards() || open_and_run(paths, 6, desc);
    remove_shards();
    return bad;
}
