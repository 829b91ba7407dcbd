/* The data that the programs of examples/snippets read, made in the folder where one begins to run:
   linked to it by tests/compile/readme, with SNIPPET_name defined. */
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

#ifdef SNIPPET_tar /* two of the shards that examples/tar.c makes, by its functions */
#define main tar_main
#include "tar.c"
#undef main
BEFORE_MAIN make_tars(void) {
    if (!make_shards() || symlink(made[0], "train-0.tar") || symlink(made[1], "train-1.tar"))
        exit(2);
    atexit(remove_shards);
}
#endif

#ifdef SNIPPET_s3 /* a bucket of ITEMS objects: its list, and the bytes of each */
#include "dlpipe_s3.h"
#include "s3_mock.h"
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
int first_device(dlp_device *out, const dlp_cuda_desc *desc, dlp_error *err) {
    int code = dlp_device_cuda(out, desc, err);
    if (code != DLP_ERR_UNSUPPORTED) return code;
    *out = *dlp_device_host();
    return DLP_OK;
}
#endif

#ifdef SNIPPET_ranks /* the second rank of two */
BEFORE_MAIN launch(void) {
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
}
#endif
