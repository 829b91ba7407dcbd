/* A pipe that is too slow, and what it says about itself: to decode an item takes one worker 4 ms,
   and a training step of 10 ms takes 8 items. Sleep stands for work, so that it is the same on each
   machine.

   slow [picture.svg]

   Prints what dlp_pipe_explain says, and draws the last batches. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <stdio.h>
#include <time.h>

static void work_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static int read_item(void *user, dlp_item *item) {
    (void)user;
    *(float *)item->data[0] = (float)item->index;
    return 0;
}

static int decode(void *user, dlp_item *item) {
    (void)user;
    work_ms(4);
    *(float *)item->data[0] *= 2;
    return 0;
}

int main(int argc, char **argv) {
    const dlp_field x = {.name = "x", .dtype = DLP_F32};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = 800, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_item, .fields = &x, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "decode", .verb = DLP_MAP, .map = {.item = decode}, .workers = {.num_workers = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}, .queue = {.capacity = 4}},
    };
    const dlp_trace_window end = {.what = DLP_WINDOW_BATCHES, .from = 94, .to = 99};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    char text[4096];
    int code;
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), NULL, &err) != DLP_OK) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        work_ms(10); /* the training step */
        dlp_pipe_release(pipe, batch);
    }
    if (dlp_pipe_explain(pipe, text, sizeof text) > 0) printf("%s", text);
    if (argc > 1 && dlp_pipe_write_window(pipe, argv[1], &end, &err) != DLP_OK)
        return puts(err.message), 1;
    return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
}
