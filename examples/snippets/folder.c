/* A folder of images with a directory for each class: train/cat/1.jpg. decode is where a picture
   becomes pixels; examples/folder.c decodes JPEGs.

   cc -O2 -I. examples/snippets/folder.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include <stdio.h>
#include <string.h>

static int decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    const dlp_folder *folder = user;
    const uint64_t most = 224 * 224 * 3;
    (void)state;
    memcpy(item->data[0], bytes, n < most ? n : most); /* decode n bytes into these pixels */
    *(uint32_t *)item->data[1] = folder->labels[item->index];
    return 0;
}

int main(void) {
    dlp_field image[] = {{.name = "image", .dtype = DLP_U8, .ndim = 3, .shape = {224, 224, 3}},
                         {.name = "label", .dtype = DLP_U32}};
    dlp_folder_desc train = {.path = "train"};
    dlp_folder *folder = NULL;
    dlp_source *files = NULL;
    dlp_pipe_desc desc = {.log = dlp_log_stderr /* warnings */, .seed = 1, .epochs = 2};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_folder_open(&folder, &train, &err)) return puts(err.message), 1;
    dlp_files_desc all = {.n_items = folder->n_files,
                          .paths = folder->paths,
                          .user = folder,
                          .fields = image,
                          .n_fields = 2,
                          .decode = decode,
                          .max_bytes = 1 << 24,
                          .warning = folder->warning};
    if (dlp_files_open(&files, &all, &err)) return puts(err.message), 1;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.source = files, .in_flight = 16},
         .workers = {.num_workers = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, &err)) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const uint32_t *labels = batch->fields[1].data;
        printf("epoch %d: %d items, the first a %s\n", (int)batch->epoch, (int)batch->count,
               folder->classes[labels[0]]);
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    code = dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
    dlp_source_close(files); /* after the pipe */
    dlp_folder_close(folder);
    return code;
}
