/* A program of a project that has copied dlpipe.h: it includes it, and dlpipe.c is compiled into
   the project. 100 numbers in batches of 10. */
#include "dlpipe.h"
#include <stdio.h>

static int fetch(void *user, dlp_item *item) {
    (void)user;
    *(uint64_t *)item->data[0] = item->index * 2;
    return 0;
}

int main(void) {
    dlp_field field = {.name = "x", .dtype = DLP_U64};
    dlp_loader_desc desc = {
        .dataset = {.n_items = 100, .fields = &field, .n_fields = 1, .fetch = fetch},
        .batch_size = 10,
        .num_workers = 2,
        .shuffle = 1,
    };
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    unsigned long long sum = 0;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    while (dlp_pipe_next(pipe, &batch) == DLP_OK) {
        const uint64_t *x = batch->fields[0].data;
        for (uint32_t i = 0; i < batch->count; i++) sum += x[i];
        dlp_pipe_release(pipe, batch);
    }
    printf("dlpipe %s: the sum is %llu\n", dlp_version(), sum);
    return dlp_pipe_close(pipe) == DLP_OK && sum == 9900 ? 0 : 1;
}
