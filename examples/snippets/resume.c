/* Exact resume: the program ends after each batch, and goes on at its next start, until the run is
   over. The state has 248 bytes. examples/checkpoint.c saves it with the model, and for signals.

   cc -O2 -I. examples/snippets/resume.c dlpipe.o -lpthread */
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
    dlp_state saved;
    FILE *file = fopen("state", "rb");
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
    if (file && fread(&saved, sizeof saved, 1, file) == 1) desc.resume = &saved;
    if (file) fclose(file);
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, &err)) return puts(err.message), 1;
    if ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const float *rows = (const float *)batch->fields[0].data;
        printf("epoch %d: %d items, the first %g\n", (int)batch->epoch, (int)batch->count,
               (double)rows[0]);
        code = dlp_pipe_state(pipe, batch, &saved); /* this batch is done */
        file = fopen("state", "wb");
        if (!file || fwrite(&saved, sizeof saved, 1, file) != 1 || fclose(file))
            return perror("state"), 1;
        dlp_pipe_release(pipe, batch);
    }
    if (code < 0) puts(dlp_pipe_error(pipe)->message);
    return dlp_pipe_close(pipe) == DLP_OK && code >= 0 ? 0 : 1;
}
