// The declarations in C++, used as a program would use them, linked with an implementation in C.
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"
#include "../../dlpipe_s3.h"

static int fetch(void *user, dlp_item *item) {
    *static_cast<uint64_t *>(item->data[0]) = item->index * *static_cast<uint64_t *>(user);
    return 0;
}

int main() {
    uint64_t factor = 3, sum = 0;
    dlp_field field = dlp_field();
    field.name = "x";
    field.dtype = DLP_U64;
    dlp_loader_desc desc = dlp_loader_desc();
    desc.dataset.n_items = 100;
    desc.dataset.fields = &field;
    desc.dataset.n_fields = 1;
    desc.dataset.fetch = fetch;
    desc.dataset.user = &factor;
    desc.batch_size = 10;
    desc.num_workers = 2;
#if __cplusplus >= 202002L
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
    dlp_loader_desc nested = {
        .dataset = {.n_items = 100, .fields = &field, .n_fields = 1, .fetch = fetch},
        .batch_size = 10,
        .num_workers = 2,
        .sampler = {.threaded = 1},
        .workers = {.retries = 1},
        .fetcher = DLP_FETCH_THREADS,
        .in_flight = 4,
        .collate = dlp_collate_pad,
    };
    if (nested.in_flight != 4 || nested.batch_workers.num_workers != 0) return 1;
#endif
    dlp_shm_desc shm = dlp_shm_desc(); // as a C++ program would fill it
    shm.grace_ms = 100;
    if (shm.share != DLP_SHARE_NONE) return 1;

    dlp_s3_desc s3 = dlp_s3_desc();
    s3.endpoint = "ftp://not.http";
    s3.anonymous = 1;
    dlp_s3 *client = nullptr;
    dlp_s3_error s3_err = dlp_s3_error();
    if (dlp_s3_open(&client, &s3, &s3_err) != DLP_ERR_ARG || s3_err.message[0] == 0) return 1;
    dlp_s3_request request = dlp_s3_request();
    request.method = DLP_S3_GET;
    if (request.code != DLP_OK || dlp_s3_close(client) != DLP_OK) return 1;

    dlp_pipe *pipe = nullptr;
    dlp_batch *batch = nullptr;
    dlp_error err;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return 1;
    while (dlp_pipe_next(pipe, &batch) == DLP_OK) {
        const uint64_t *x = dlp_u64(batch, "x");
        if (x != batch->fields[0].data || dlp_f32(batch, "x") != nullptr) return 1;
        for (uint32_t i = 0; i < batch->count; i++) sum += x[i];
        dlp_pipe_release(pipe, batch);
    }
    if (dlp_pipe_close(pipe) != DLP_OK) return 1;
    return sum == 3 * 99 * 100 / 2 ? 0 : 1;
}
