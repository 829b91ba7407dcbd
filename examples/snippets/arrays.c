/* Rows of .npy files; IDX files of MNIST and CIFAR's files work alike.

   cc -O2 -I. examples/snippets/arrays.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include <stdio.h>

int main(void) {
    dlp_source *arrays = NULL;
    dlp_array_column columns[] = {{.name = "x", .path = "x.npy"}, {.name = "y", .path = "y.npy"}};
    dlp_arrays_desc both = {.columns = columns, .n_columns = 2};
    dlp_pipe_desc desc = {.log = dlp_log_stderr /* warnings */, .seed = 1, .epochs = 2};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_arrays_open(&arrays, &both, &err)) return puts(err.message), 1;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.source = arrays},
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
    dlp_source_close(arrays); /* after the pipe */
    return code;
}
