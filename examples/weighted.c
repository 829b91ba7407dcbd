/* Class imbalance: of 10,000 items 9,000 are of class 0, 900 of class 1 and 100 of class 2. Each
   item has a weight, and items are drawn with replacement, so each class makes a third of an epoch.
   An item of class 2 then comes 33 times in an epoch. So augment it: dlp_item_random gives each
   draw random numbers of its own.

     weighted [shuffled]     shuffled: each item once in an epoch, to compare
     cc -O2 weighted.c -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <stdio.h>

enum { ITEMS = 10000, CLASSES = 3 };

static int fetch(void *user, dlp_item *item) {
    const uint32_t *label = user;
    float *x = item->data[0];
    *x = (float)(dlp_item_random(item, 1) % 1000) / 1000; /* stands for the augmented picture */
    *(uint32_t *)item->data[1] = label[item->index];
    return 0;
}

int main(int argc, char **argv) {
    (void)argv;
    static uint32_t label[ITEMS];
    static uint64_t weight[ITEMS], seen[CLASSES], of_class[CLASSES];
    const dlp_field fields[] = {{.name = "x", .dtype = DLP_F32}, {.name = "y", .dtype = DLP_U32}};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    int code;

    for (int i = 0; i < ITEMS; i++) {
        label[i] = i % 100 == 0 ? 2 : i % 10 == 0 ? 1 : 0;
        of_class[label[i]]++;
    }
    /* The weight of an item is one over the size of its class, as an integer. */
    for (int i = 0; i < ITEMS; i++) weight[i] = 1000000 / of_class[label[i]];

    dlp_loader_desc desc = {
        .dataset =
            {.n_items = ITEMS, .fields = fields, .n_fields = 2, .fetch = fetch, .user = label},
        .sampler = {.order = argc > 1 ? DLP_ORDER_SHUFFLED : DLP_ORDER_WEIGHTED,
                    .seed = 1,
                    .weights = argc > 1 ? NULL : weight},
        .batch_size = 100,
        .num_workers = 2,
    };
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        const uint32_t *y = batch->fields[1].data;
        for (uint32_t i = 0; i < batch->count; i++) seen[y[i]]++;
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    for (int c = 0; c < CLASSES; c++)
        printf("class %d: %4d items, %4.1f %% of the epoch\n", c, (int)of_class[c],
               100. * (double)seen[c] / (double)ITEMS);
    return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
}
