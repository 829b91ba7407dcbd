/* One of many processes under mpirun, torchrun or srun: each gets its part of each batch.
   batch_size is that of all ranks together. A state (resume.c) is one for all ranks, of which there
   may be others at the next start. examples/ranks.c saves it.

   cc -O2 -I. examples/snippets/ranks.c dlpipe.o -lpthread */
#include "dlpipe.h"
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
         .workers = {.num_workers = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 500}},
    };
    if (dlp_ranks_from_env(&desc.rank, &desc.world_size, &err)) return puts(err.message), 1;
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
