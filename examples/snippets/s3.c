/* Objects of a bucket, with the keys and the region that AWS' tools find. dlpipe.c includes
   dlpipe_s3.h, too; for https compile it with -DDLPIPE_S3_OPENSSL, and link -lssl -lcrypto.

   cc -O2 -I. examples/snippets/s3.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include "dlpipe_s3.h"
#include <stdio.h>
#include <string.h>

static int decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    (void)user, (void)state;
    memcpy(item->data[0], bytes, n < 64 ? n : 64); /* decode n bytes of the object */
    return 0;
}

int main(void) {
    dlp_field image = {.name = "image", .dtype = DLP_U8, .ndim = 1, .shape = {64}};
    dlp_s3_io *io = NULL;
    dlp_s3_manifest *keys = NULL;
    dlp_source *bucket = NULL;
    dlp_s3_error e;
    dlp_s3_list_desc list = {.bucket = "photos", .prefix = "train/"};
    dlp_s3_source_desc all = {
        .bucket = "photos", .fields = &image, .n_fields = 1, .decode = decode};
    dlp_pipe_desc desc = {.log = dlp_log_stderr /* warnings */, .seed = 1, .epochs = 2};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_s3_open(&all.s3, NULL, &e) || dlp_s3_io_open(&io, all.s3, &e) ||
        dlp_s3_manifest_open(&keys, &e) || dlp_s3_manifest_list(keys, io, &list, &e))
        return puts(e.message), 1;
    all.manifest = keys;
    if (dlp_s3_source_open(&bucket, &all, &e)) return puts(e.message), 1;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.source = bucket, .in_flight = 16},
         .workers = {.num_workers = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, &err)) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        printf("epoch %d: %d items\n", (int)batch->epoch, (int)batch->count);
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    code = dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
    dlp_source_close(bucket); /* after the pipe */
    dlp_s3_manifest_close(keys);
    dlp_s3_io_close(io);
    dlp_s3_close(all.s3);
    return code;
}
