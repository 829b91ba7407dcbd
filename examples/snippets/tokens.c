/* Windows of a language model's token shards, as llm.c and nanoGPT write them. Targets are the same
   row, one token later. examples/tokens.c trains with it.

   cc -O2 -I. examples/snippets/tokens.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include <stdio.h>

int main(void) {
    dlp_source *tokens = NULL;
    dlp_tokens_desc shards = {.pattern = "shards/train_*.bin", .length = 1024};
    dlp_pipe_desc desc = {.log = dlp_log_stderr /* warnings */, .seed = 1, .epochs = 2};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    if (dlp_tokens_open(&tokens, &shards, &err)) return puts(err.message), 1;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.source = tokens},
         .workers = {.num_workers = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}},
    };
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, &err)) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const uint16_t *rows = batch->fields[0].data; /* [count][1025] */
        printf("epoch %d: %d items, the first token %d\n", (int)batch->epoch, (int)batch->count,
               rows[0]);
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    code = dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
    dlp_source_close(tokens); /* after the pipe */
    return code;
}
