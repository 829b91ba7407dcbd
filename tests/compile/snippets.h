/* What the snippets of README.md call and read, but leave to their reader: included above main in
   the program that tests/compile/readme pastes a snippet into, with SNIPPET_name defined. The data
   are made in the folder where the program begins to run. */
#include "dlpipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ITEMS = 40 };

static inline void make(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) exit(2);
}

#define BEFORE_MAIN __attribute__((constructor)) static void

#ifdef SNIPPET_folder
BEFORE_MAIN make_pictures(void) {
    char path[64];
    for (int i = 0; i < ITEMS; i++) {
        mkdir("train", 0700);
        snprintf(path, sizeof path, "train/%s", i % 2 ? "dog" : "cat");
        mkdir(path, 0700);
        snprintf(path, sizeof path, "train/%s/%d.jpg", i % 2 ? "dog" : "cat", i);
        make(path, "picture", 7);
    }
}
#endif

#ifdef SNIPPET_tokens
BEFORE_MAIN make_shards_of_tokens(void) { /* 3 with 4 windows each, and the next token */
    static uint16_t shard[4 * 1024 + 1];
    char path[64];
    mkdir("shards", 0700);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "shards/train_%d.bin", i);
        make(path, shard, sizeof shard);
    }
}
#endif

#ifdef SNIPPET_arrays
/* A .npy of version 1.0: magic, length of the header, header, numbers. */
static void make_npy(const char *path, const char *shape) {
    char file[128 + ITEMS * 16] = "\x93NUMPY\x01";
    file[8] = 118;
    snprintf(file + 10, 119, "%-117s\n", shape);
    make(path, file, sizeof file);
}
BEFORE_MAIN make_arrays(void) {
    make_npy("x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (40, 4), }");
    make_npy("y.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (40, 2), }");
}
#endif

#ifdef SNIPPET_csv
BEFORE_MAIN make_points(void) {
    char points[ITEMS * 9 + 1] = "";
    for (int i = 0; i < ITEMS; i++) strcat(points, "1.5,2,-3\n");
    make("points.csv", points, strlen(points));
}
#endif

#ifdef SNIPPET_tar /* shards as examples/tar.c makes them, with its functions */
#define main tar_main
#include "tar.c"
#undef main
enum { n = 6 };
static const char *paths[n];
static void remove_tars(void) {
    char index[128];
    for (int i = 0; i < n; i++) {
        snprintf(index, sizeof index, "%s.dlpidx", paths[i]);
        unlink(index);
    }
    remove_shards();
}
BEFORE_MAIN make_tars(void) {
    if (!make_shards()) exit(2);
    for (int i = 0; i < n; i++) paths[i] = made[i];
    atexit(remove_tars);
}
#endif

#ifdef SNIPPET_s3 /* a bucket of ITEMS objects: its list, and the bytes of each */
#include "dlpipe_s3.h"
#include "s3_mock.h"
static const dlp_field image[] = {{.name = "image", .dtype = DLP_U8, .ndim = 1, .shape = {4}},
                                  {.name = "label", .dtype = DLP_U32}};
static int decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    (void)user, (void)state;
    memcpy(item->data[0], bytes, n < 4 ? n : 4);
    return 0;
}
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
BEFORE_MAIN make_bucket(void) {
    s3_mock *mock = s3_mock_start();
    mock->script = answer;
    mock->default_bytes = 100;
    setenv("AWS_ENDPOINT_URL_S3", mock->url, 1);
    setenv("AWS_REGION", "us-east-1", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "example", 1);
}
#endif

#ifdef SNIPPET_gpu /* the first GPU, or where there is none, host memory in its place */
static int first_device(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err) {
    int code = dlp_device_cuda(out, desc, err);
    if (code == DLP_OK) exit(0); /* batches of a real one are not to be read by this program */
    if (code != DLP_ERR_UNSUPPORTED) return code;
    *out = *dlp_device_host();
    return DLP_OK;
}
#define dlp_device_cuda first_device
#endif

#ifdef SNIPPET_ranks /* the first rank of two, after the first batch */
static dlp_state saved;
static int fetch(void *user, dlp_item *item);
BEFORE_MAIN save(void) {
    float scale[3] = {0};
    dlp_field x = {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {3}};
    dlp_pipe_desc desc = {.epochs = 2, .seed = 1};
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = 1000, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .user = scale, .fields = &x, .n_fields = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 500}},
    };
    dlp_pipe *pipe = NULL;
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, NULL) != DLP_OK) exit(2);
    if (dlp_pipe_state_at(pipe, 0, 1, &saved) != DLP_OK || dlp_pipe_close(pipe) != DLP_OK) exit(2);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
}
#endif

#ifdef SNIPPET_graph /* four games of each shard; of these, two are good */
static const dlp_field packed = {.name = "packed", .dtype = DLP_U8, .ndim = 1, .shape = {4}};
static const dlp_field game = {.name = "game", .dtype = DLP_U32};
static int read_shard(void *user, dlp_item *item) {
    (void)user;
    memset(item->data[0], (int)item->index, 4);
    return 0;
}
static int unpack(void *user, dlp_expand *x) {
    const uint8_t *bytes = x->item->data[0];
    (void)user;
    for (int i = 0; i < 4; i++) {
        dlp_item *item = dlp_expand_add(x);
        if (item == NULL) return DLP_ERR_LENGTH;
        *(uint32_t *)item->data[0] = bytes[i] * 10u + (uint32_t)i;
    }
    return 0;
}
static int is_good(void *user, const dlp_item *item) {
    (void)user;
    return *(const uint32_t *)item->data[0] % 2 == 0;
}
#endif
