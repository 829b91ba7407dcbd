/* Samples out of tar shards, as WebDataset writes them. Prints what each class has.

   webdataset [-w workers] [-b batch] [-s] [-m MIB] [SHARD.tar ...]
   cc -O2 webdataset.c -lpthread
   cc -O2 -DUSE_ZLIB webdataset.c -lpthread -lz      with -s: also shards that are gzipped

   A sample is 64 bytes (.bin) and a number in text (.cls). By default the order is a shuffle over
   all samples of all shards, whose places are kept in SHARD.tar.dlpidx. With -s part workers load
   whole shards ahead, of at most so many MiB (64), and batches mix samples of two of them: nothing
   is kept, and a shard may come from anywhere. Without shards the program makes some up, and
   removes them. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef USE_ZLIB
#include <zlib.h>
#endif

enum { PIXELS = 64, CLASSES = 10, SHARDS = 6 };

static const dlp_field fields[] = {
    {.name = "bin", .dtype = DLP_U8, .ndim = 1, .shape = {PIXELS}},
    {.name = "cls", .dtype = DLP_U8, .ndim = 1, .shape = {4}, .ragged = 1},
};

static int say(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    fprintf(stderr, "webdataset: %s\n", line);
    return 1;
}

/* Drain a pipe; a training step would be here. */
static int run(const dlp_loader_desc *desc) {
    uint64_t of_class[CLASSES] = {0}, sum[CLASSES] = {0};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_loader_open(&pipe, desc, &err) != DLP_OK) return say(&err);
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const unsigned char *x = batch->fields[0].data; /* [count][PIXELS] */
        const char *label = batch->fields[1].data;      /* [count][4], zeros behind a text */
        for (uint32_t i = 0; i < batch->count; i++) {
            int c = label[i * 4] - '0';
            if (c < 0 || c >= CLASSES) continue;
            of_class[c]++;
            sum[c] += x[(size_t)i * PIXELS];
        }
        dlp_pipe_release(pipe, batch);
    }
    int bad = code != DLP_END && say(dlp_pipe_error(pipe));
    for (int c = 0; c < CLASSES && !bad; c++)
        printf("class %d: %llu samples, first bytes sum to %llu\n", c,
               (unsigned long long)of_class[c], (unsigned long long)sum[c]);
    return dlp_pipe_close(pipe) != DLP_OK || bad;
}

/* All samples of all shards, shuffled. */
static int run_at_random(const dlp_tar_desc *tar, dlp_loader_desc desc) {
    dlp_source *source = NULL;
    dlp_error err;
    if (dlp_tar_open(&source, tar, &err) != DLP_OK) return say(&err);
    desc.source = source;
    desc.shuffle = 1;
    int bad = run(&desc);
    return dlp_source_close(source) != DLP_OK || bad;
}

/* Load the bytes of a shard. zlib unpacks it, if it is gzipped. */
#ifdef USE_ZLIB
static int load(void *user, dlp_part *part) {
    const char *path = ((const dlp_tar_desc *)user)->paths[part->index];
    gzFile f = gzopen(path, "rb");
    int n = 1;
    if (f == NULL) return dlp_fail(part->call, 0, "%s: gzopen failed", path);
    for (part->bytes = 0; n > 0 && part->bytes < part->capacity; part->bytes += (uint64_t)n) {
        uint64_t rest = part->capacity - part->bytes;
        n = gzread(f, (char *)part->data + part->bytes, rest < 1 << 30 ? (unsigned)rest : 1 << 30);
        if (n < 0) break;
    }
    if (gzclose(f) != Z_OK || n < 0) return dlp_fail(part->call, 0, "%s: gzread failed", path);
    return n == 0 ? 0 : DLP_ERR_LENGTH;
}
#else
static int load(void *user, dlp_part *part) {
    const char *path = ((const dlp_tar_desc *)user)->paths[part->index];
    FILE *f = fopen(path, "rb");
    if (f == NULL) return dlp_fail(part->call, 0, "%s: fopen failed", path);
    part->bytes = fread(part->data, 1, part->capacity, f);
    int whole = part->bytes < part->capacity || getc(f) == EOF, failed = ferror(f);
    fclose(f);
    if (failed) return dlp_fail(part->call, 0, "%s: fread failed", path);
    return whole ? 0 : DLP_ERR_LENGTH;
}
#endif

/* Shard after shard, two at a time. */
static int run_whole(const dlp_tar_desc *tar, dlp_loader_desc desc, uint64_t most) {
    dlp_tar_parts parts = {.desc = tar, .load = load, .user = (void *)(uintptr_t)tar};
    desc.dataset =
        (dlp_dataset){.fields = fields, .n_fields = 2, .fetch = dlp_tar_fetch, .user = &parts};
    desc.parts = (dlp_node_load){.n_parts = tar->n_paths,
                                 .load = dlp_tar_load,
                                 .user = &parts,
                                 .max_part_bytes = most,
                                 .max_items = 1 << 20, /* nobody has counted them */
                                 /* a shard with fewer is an error: the more, the fewer cells */
                                 .min_items = desc.batch_size / 4 + 1,
                                 .shuffle_parts = 1,
                                 .shuffle_items = 1};
    desc.pipe.streams = tar->n_paths > 1 ? 2 : 1;
    return run(&desc);
}

/* ---- shards that are made up ---- */

static void put_member(FILE *f, const char *name, const void *bytes, size_t n) {
    unsigned char h[512] = {0}, zeros[512] = {0};
    unsigned sum = 8 * ' ';
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 124, 12, "%011o", (unsigned)n);
    h[156] = '0';
    for (int i = 0; i < 512; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    fwrite(h, 512, 1, f);
    fwrite(bytes, n, 1, f);
    fwrite(zeros, (512 - n % 512) % 512, 1, f);
}

static char made_dir[] = "/tmp/webdataset-XXXXXX", made[SHARDS][64];

static int make_shards(void) {
    if (mkdtemp(made_dir) == NULL) return perror(made_dir), 1;
    for (int i = 0; i < SHARDS; i++) {
        unsigned char pixels[PIXELS], zeros[1024] = {0};
        char name[32], label[8];
        snprintf(made[i], sizeof made[i], "%s/shard-%06d.tar", made_dir, i);
        FILE *f = fopen(made[i], "wb");
        if (f == NULL) return perror(made[i]), 1;
        for (int k = 0; k < 100 + 10 * i; k++) {
            memset(pixels, k, sizeof pixels);
            snprintf(label, sizeof label, "%d", k % CLASSES);
            snprintf(name, sizeof name, "%06d.bin", k);
            put_member(f, name, pixels, PIXELS);
            snprintf(name, sizeof name, "%06d.cls", k);
            put_member(f, name, label, strlen(label));
        }
        fwrite(zeros, sizeof zeros, 1, f);
        if (fclose(f) != 0) return perror(made[i]), 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *paths[SHARDS];
    dlp_tar_desc tar = {.paths = paths, .n_paths = SHARDS, .fields = fields, .n_fields = 2};
    dlp_loader_desc desc = {.batch_size = 32, .num_workers = 2};
    uint64_t most = UINT64_C(64) << 20;
    int option, whole = 0, bad = 0, make = 0;
    while ((option = getopt(argc, argv, "w:b:sm:")) != -1) {
        if (option == 'w') desc.num_workers = atoi(optarg);
        if (option == 'b') desc.batch_size = (uint32_t)atoi(optarg);
        if (option == 's') whole = 1;
        if (option == 'm') most = (uint64_t)atoi(optarg) << 20;
        if (option == '?') return 2;
    }
    if (optind < argc) {
        tar.paths = (const char *const *)&argv[optind];
        tar.n_paths = (uint64_t)(argc - optind);
    } else {
        make = 1;
        most = 1 << 20;
        tar.index = "";
        bad = make_shards();
        for (int i = 0; i < SHARDS; i++) paths[i] = made[i];
    }
    if (!bad) bad = whole ? run_whole(&tar, desc, most) : run_at_random(&tar, desc);
    for (int i = 0; i < SHARDS && make; i++) unlink(made[i]);
    if (make) rmdir(made_dir);
    return bad;
}
