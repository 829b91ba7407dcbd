/* Workers that may be killed: by a memory limit, or by a codec that crashes. The item is fetched
   again by another worker. dlpipe.c includes dlpipe_shm.h, too.

   cc -O2 -I. examples/snippets/processes.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include "dlpipe_shm.h"
#include <stdio.h>

static int fetch(void *user, dlp_item *item) { /* many threads call it at once */
    float *x = (float *)item->data[0];         /* this item's place in its batch */
    for (int i = 0; i < 3; i++) x[i] = (float)item->index * ((float *)user)[i];
    return 0;
}

int main(void) {
    float scale[3] = {1, 10, 100};
    dlp_field x = {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {3}};
    dlp_pipe_desc desc = {.log = dlp_log_stderr /* warnings */, .seed = 1, .epochs = 2};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = 1000, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .user = scale, .fields = &x, .n_fields = 1},
         .workers = {.num_workers = 2, .placement = DLP_PLACE_PROCESSES}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 500}},
    };
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, &err)) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const float *rows = (const float *)batch->fields[0].data; /* [count][3] */
        printf("epoch %d: %d items, the first %g\n", (int)batch->epoch, (int)batch->count,
               (double)rows[0]);
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
}
