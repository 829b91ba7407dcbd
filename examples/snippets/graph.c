/* A pipeline of your own: shards become games, bad ones are left out, good ones are mixed in a
   window. examples/graph.c has eight more.

   cc -O2 -I. examples/snippets/graph.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include <stdio.h>
#include <string.h>

static int read_shard(void *user, dlp_item *item) { /* a shard's number into its bytes */
    (void)user;
    memset(item->data[0], (int)item->index, 4);
    return 0;
}

static int unpack(void *user, dlp_expand *x) { /* a shard into its games */
    const uint8_t *bytes = x->item->data[0];
    (void)user;
    for (int i = 0; i < 4; i++) {
        dlp_item *item = dlp_expand_add(x);
        if (item == NULL) return DLP_ERR_LENGTH;
        *(uint32_t *)item->data[0] = bytes[i] * 10u + (uint32_t)i;
    }
    return 0;
}

static int is_good(void *user, const dlp_item *item) {
    (void)user;
    return *(const uint32_t *)item->data[0] % 2 == 0;
}

int main(void) {
    dlp_field packed = {.name = "packed", .dtype = DLP_U8, .ndim = 1, .shape = {4}};
    dlp_field game = {.name = "game", .dtype = DLP_U32};
    dlp_pipe_desc desc = {.log = dlp_log_stderr /* warnings */, .seed = 1, .epochs = 2};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;
    dlp_node nodes[] = {
        {.name = "shards", .verb = DLP_LIST, .list = {.n_items = 40, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_shard, .fields = &packed, .n_fields = 1}},
        {.name = "games",
         .verb = DLP_EXPAND,
         .expand = {.expand = unpack, .max_out = 500, .fields = &game, .n_fields = 1},
         .workers = {.num_workers = 2}},
        {.name = "good", .verb = DLP_FILTER, .filter = {.keep = is_good}},
        {.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 64}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
    };
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, &err)) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        printf("epoch %d: %d items\n", (int)batch->epoch, (int)batch->count);
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
}
