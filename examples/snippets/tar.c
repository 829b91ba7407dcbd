/* Tar shards as WebDataset writes them. A field has the name of an extension: 0001.bin, 0001.cls.
   examples/webdataset.c decodes what it finds.

   cc -O2 -I. examples/snippets/tar.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include <stdio.h>

int main(void) {
    const char *paths[] = {"train-0.tar", "train-1.tar"};
    dlp_field parts[] = {{.name = "bin", .dtype = DLP_U8, .ndim = 1, .shape = {64}},
                         {.name = "cls", .dtype = DLP_U8, .ndim = 1, .shape = {8}, .ragged = 1}};
    dlp_source *samples = NULL;
    dlp_tar_desc shards = {.paths = paths, .n_paths = 2, .fields = parts, .n_fields = 2};
    dlp_pipe_desc desc = {.log = dlp_log_stderr /* warnings */, .seed = 1, .epochs = 2};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_tar_open(&samples, &shards, &err)) return puts(err.message), 1;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.source = samples},
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
    dlp_source_close(samples); /* after the pipe */
    return code;
}
