/* The snippets of README.md that are no whole programs, each in the function that the text around
   it stands for, on data that is made here. tests/compile/readme takes each out of README.md into
   NAME.inc, compiles this, and runs it in an empty directory: readme NAME. */
#define DLPIPE_IMPLEMENTATION
#define DLPIPE_CUDA
#include "dlpipe.h"
#include "dlpipe_shm.h"
#include "dlpipe_s3.h"
#include "s3_mock.h"

#define main tar_main /* the example's functions, which the README says to copy */
#define run tar_run
#define say tar_say
#include "../../examples/tar.c"
#undef main
#undef run
#undef say

enum { ITEMS = 40, SIDE = 4, SHARD_TOKENS = 5000, SHARDS = 3 };

/* ---- running what a snippet has wired ---- */

/* Drain a pipe that is open, and close it: it must give so many rows. */
static int drain(dlp_pipe *pipe, uint64_t rows) {
    dlp_batch *batch = NULL;
    int code;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        rows -= batch->valid_count;
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) return puts(dlp_pipe_error(pipe)->message), 1;
    if (rows != 0) printf("%" PRId64 " rows are missing\n", (int64_t)rows);
    return dlp_pipe_close(pipe) != DLP_OK || rows != 0;
}

static int run(const dlp_loader_desc *desc, uint64_t rows) {
    dlp_pipe *pipe = NULL;
    dlp_error err;
    if (dlp_loader_open(&pipe, desc, &err) != DLP_OK) return puts(err.message), 1;
    return drain(pipe, rows);
}

static const dlp_field fields[2] = {
    {.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {SIDE}},
    {.name = "label", .dtype = DLP_U32},
};

/* A picture, or an object, is its number in the first byte, and more of them. */
static int decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    (void)state;
    if (n < SIDE) return dlp_fail(item->call, 0, "%d bytes", (int)n);
    memcpy(item->data[0], bytes, SIDE);
    if (user) memcpy(item->data[1], &((dlp_folder *)user)->labels[item->index], sizeof(uint32_t));
    return 0;
}

static int fetch(void *user, dlp_item *item) {
    (void)user;
    memset(item->data[0], (int)item->index, SIDE);
    memset(item->data[1], 0, sizeof(uint32_t));
    return 0;
}

static dlp_loader_desc counted(void) { /* the loader of the README's program */
    return (dlp_loader_desc){
        .dataset = {.n_items = ITEMS, .fields = fields, .n_fields = 2, .fetch = fetch},
        .batch_size = 8,
        .num_workers = 2,
        .shuffle = 1};
}

static void make(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) exit(2);
}

/* ---- the snippets ---- */

static int folder_of_images(void) {
    dlp_loader_desc desc = {.batch_size = 8, .num_workers = 2};
    dlp_folder *folder = NULL;
    dlp_source *files = NULL;
    dlp_error err;
    char path[64];
    for (int i = 0; i < ITEMS; i++) {
        mkdir("train", 0700);
        snprintf(path, sizeof path, "train/%s", i % 2 ? "dog" : "cat");
        mkdir(path, 0700);
        snprintf(path, sizeof path, "train/%s/%d.jpg", i % 2 ? "dog" : "cat", i);
        make(path, "picture", 7);
    }
#include "folder.inc"
    int bad = run(&desc, ITEMS) || folder->n_classes != 2;
    bad |= dlp_source_close(files) != DLP_OK;
    dlp_folder_close(folder);
    return bad;
}

static int token_shards(void) {
    static uint16_t shard[SHARD_TOKENS];
    dlp_source *tokens = NULL;
    dlp_pipe *pipe = NULL;
    dlp_error err;
    char path[64];
    mkdir("shards", 0700);
    for (int i = 0; i < SHARDS; i++) {
        snprintf(path, sizeof path, "shards/train_%d.bin", i);
        make(path, shard, sizeof shard);
    }
#include "tokens.inc"
    int bad = drain(pipe, 2 * dlp_tokens_describe(tokens)->n_items);
    return dlp_source_close(tokens) != DLP_OK || bad;
}

/* A .npy of version 1.0: magic, length of the header, header, numbers. */
static void make_npy(const char *path, const char *shape) {
    char file[128 + ITEMS * 16] = "\x93NUMPY\x01";
    file[8] = 118;
    snprintf(file + 10, 119, "%-117s\n", shape);
    make(path, file, sizeof file);
}

static int arrays_of_rows(void) {
    dlp_source *arrays = NULL;
    dlp_pipe *pipe = NULL;
    dlp_error err;
    make_npy("x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (40, 4), }");
    make_npy("y.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (40, 2), }");
#include "arrays.inc"
    int bad = drain(pipe, ITEMS);
    return dlp_source_close(arrays) != DLP_OK || bad;
}

/* Shards as examples/tar.c writes and reads them, with its functions. */
static int tar_shards(void) {
    static const dlp_field fields[2] = {
        {.name = "pixels", .dtype = DLP_U8, .ndim = 1, .shape = {PIXELS}},
        {.name = "label", .dtype = DLP_I32},
    };
    enum { n_shards = 6, samples = 6 * 100 + 10 * (1 + 2 + 3 + 4 + 5) };
    dlp_part_file shard_files[n_shards] = {{0}};
    const uint64_t largest = 1 << 20;
    dlp_pipe *pipe = NULL;
    dlp_error err;
    if (!make_shards()) return 1;
    for (int i = 0; i < n_shards; i++) shard_files[i].path = made[i];
#include "tar.inc"
    int bad = drain(pipe, samples);
    for (int i = 0; i < n_shards; i++) free(all.of[i].at);
    free(all.of);
    remove_shards();
    return bad;
}

/* A bucket of ITEMS objects: its list, and the bytes of each. */
static void answer(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    static char list[8192];
    int n = snprintf(list, sizeof list, "<ListBucketResult><IsTruncated>false</IsTruncated>");
    (void)user;
    if (strstr(q->query, "list-type=2") == NULL) return;
    for (int i = 10; i < 10 + ITEMS; i++)
        n += snprintf(list + n, sizeof list - (size_t)n,
                      "<Contents><Key>train/%d</Key><Size>100</Size></Contents>", i);
    snprintf(list + n, sizeof list - (size_t)n, "</ListBucketResult>");
    r->status = 200;
    r->body = list;
}

static int s3_bucket(void) {
    dlp_loader_desc desc = {.batch_size = 8, .num_workers = 2};
    dlp_s3_manifest *manifest = NULL;
    dlp_source *source = NULL;
    dlp_s3_io *io = NULL;
    dlp_s3_error e;
    s3_mock *mock = s3_mock_start();
    mock->script = answer;
    mock->default_bytes = 100;
    setenv("AWS_ENDPOINT_URL_S3", mock->url, 1);
    setenv("AWS_REGION", "us-east-1", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "example", 1);
#include "s3.inc"
    int bad = run(&desc, ITEMS);
    bad |= dlp_source_close(source) != DLP_OK;
    dlp_s3_manifest_close(manifest);
    dlp_s3_io_close(io);
    bad |= dlp_s3_close(source_desc.s3) != DLP_OK;
    s3_mock_stop(mock);
    return bad;
}

static int slow_disk(void) {
    dlp_loader_desc desc = counted();
#include "disk.inc"
    desc.epochs = 3;
    return run(&desc, 3 * ITEMS);
}

/* The first GPU, or where there is none, host memory in its place. */
static int first_device(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err) {
    int code = dlp_device_cuda(out, desc, err);
    if (code != DLP_ERR_UNSUPPORTED) return code;
    *out = *dlp_device_host();
    return DLP_OK;
}
#define dlp_device_cuda first_device

static int a_gpu(void) {
    dlp_loader_desc desc = counted();
    dlp_device gpu;
    dlp_error err;
#include "gpu.inc"
    int bad = run(&desc, ITEMS);
    if (gpu.alloc != dlp_device_host()->alloc) bad |= dlp_device_close(&gpu) != DLP_OK;
    return bad;
}

/* The first rank of two, behind the first batch. */
static int several_machines(void) {
    dlp_loader_desc desc = counted();
    dlp_state saved;
    dlp_pipe *pipe = NULL;
    dlp_error err;
    desc.batch_size = 1024;
    desc.dataset.n_items = 10240;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    if (dlp_pipe_state_at(pipe, 0, 1, &saved) != DLP_OK || dlp_pipe_close(pipe) != DLP_OK) return 1;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
#include "ranks.inc"
    return run(&desc, 9 * 512);
}

static int python(void) {
    dlp_loader_desc desc = counted();
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    if (dlp_pipe_next(pipe, &batch) != DLP_OK) return 1;
#include "python.inc"
    bool right = tensor->dl_tensor.ndim == 2 && tensor->dl_tensor.shape[0] == 8;
    tensor->deleter(tensor);
    return drain(pipe, ITEMS - 8) || !right;
}

/* A shard has its number in each of four bytes; of it four games are made, and two are good. */
static int read_shard(void *user, dlp_item *item) {
    (void)user;
    memset(item->data[0], (int)item->index, SIDE);
    return 0;
}
static int unpack(void *user, dlp_expand *x) {
    const uint8_t *packed = x->item->data[0];
    (void)user;
    for (int i = 0; i < SIDE; i++) {
        dlp_item *item = dlp_expand_add(x);
        if (item == NULL) return DLP_ERR_LENGTH;
        *(uint32_t *)item->data[0] = packed[i] * 10u + (uint32_t)i;
    }
    return 0;
}
static int is_good(void *user, const dlp_item *item) {
    (void)user;
    return *(const uint32_t *)item->data[0] % 2 == 0;
}

static int table_of_nodes(void) {
    const uint64_t n_shards = ITEMS;
    const dlp_field packed = fields[0], game = fields[1];
    dlp_pipe *pipe = NULL;
    dlp_error err;
#include "graph.inc"
    return drain(pipe, UINT64_C(2) * ITEMS * SIDE / 2);
}

static int processes(void) {
    dlp_loader_desc desc = counted();
#include "processes.inc"
    return run(&desc, ITEMS);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } snippets[] = {
        {"folder", folder_of_images},
        {"tokens", token_shards},
        {"arrays", arrays_of_rows},
        {"tar", tar_shards},
        {"s3", s3_bucket},
        {"disk", slow_disk},
        {"gpu", a_gpu},
        {"ranks", several_machines},
        {"python", python},
        {"graph", table_of_nodes},
        {"processes", processes},
    };
    for (size_t i = 0; argc == 2 && i < sizeof snippets / sizeof *snippets; i++)
        if (strcmp(argv[1], snippets[i].name) == 0) return snippets[i].run();
    printf("%s: no function runs it\n", argc == 2 ? argv[1] : "NAME");
    return 1;
}
