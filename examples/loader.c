/* The shortest whole program: 1,000 items, shuffled again in each of two epochs, in batches of 64,
   fetched by four threads. The example of dlpipe.h is this program.
   cc -O2 loader.c -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h" /* before any system header */
#include <stdio.h>

static int fetch(void *user, dlp_item *item) { /* called by many workers at once */
    float *x = item->data[0];                  /* this item's place in the batch */
    for (int i = 0; i < 3; i++) x[i] = (float)item->index * ((float *)user)[i];
    return 0;
}

int main(void) {
    float scale[3] = {1, 10, 100};
    dlp_field field = {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {3}};
    dlp_loader_desc desc = {
        .dataset =
            {.n_items = 1000, .fields = &field, .n_fields = 1, .fetch = fetch, .user = scale},
        .batch_size = 64,
        .num_workers = 4,
        .shuffle = 1,
        .epochs = 2,
        .pipe.log = dlp_log_stderr, /* warnings, as lines on stderr */
    };
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const float *x = batch->fields[0].data; /* [count][3] */
        printf("epoch %d: %d items, the first %g\n", (int)batch->epoch, (int)batch->count,
               (double)x[0]);
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
}
