/* A slow source, read once: items that fit are kept from the first epoch on, and the workers that
   it takes are found while training runs.

     examples/cache [SHARE]   percent of the items that the cache may hold (100) */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ITEMS = 2000, WORDS = 64, FETCH = 2 /* behind sampler and repeat */ };

static void sleep_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

/* What comes from the index alone may be kept; so augmentation has no place here. */
static int fetch(void *user, dlp_item *item) {
    float *x = item->data[0];
    (void)user;
    sleep_us(500); /* a disk, a network */
    for (int i = 0; i < WORDS; i++) x[i] = (float)item->index + (float)i;
    return 0;
}

int main(int argc, char **argv) {
    char *end = "";
    long share = argc > 1 ? strtol(argv[1], &end, 10) : 100;
    dlp_field field = {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {WORDS}};
    dlp_loader_desc desc = {
        .dataset = {.n_items = ITEMS, .fields = &field, .n_fields = 1, .fetch = fetch},
        .batch_size = 50,
        .num_workers = 1,
        .workers = {.workers_max = 16},
        .shuffle = 1,
        .epochs = 5,
        .pipe.epoch_end = 1,
        .cache.bytes = (uint64_t)share * ITEMS * (WORDS * sizeof(float) + 8) / 100,
    };
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    dlp_stats s, before = {0};
    char words[4096];
    int rc;
    if (argc > 2 || *end || share < 0 || share > 100)
        return fprintf(stderr, "usage: cache [SHARE]   percent that may be cached, 0 to 100\n"), 2;
    puts("(workers run up to two batches ahead, into the next epoch: so do hits and fetches)");
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    dlp_pipe_set_workers(pipe, FETCH, 8); /* nothing is kept yet: at first many fetch */
    while ((rc = dlp_pipe_next(pipe, &batch)) == DLP_OK || rc == DLP_EPOCH_END) {
        if (rc == DLP_OK) {
            int enough = batch->epoch == 4 && batch->in_epoch == 9;
            sleep_us(2000); /* a training step */
            dlp_pipe_release(pipe, batch);
            if (enough) dlp_pipe_next_epoch(pipe); /* the rest of the last epoch is not wanted */
            continue;
        }
        dlp_pipe_set_workers(pipe, FETCH, 0); /* from now on as many as it takes */
        dlp_pipe_stats(pipe, &s);
        printf("epoch %d: %.2f s, %d hits, %d fetched, %d workers\n", (int)s.epoch,
               (double)(s.elapsed_ns - before.elapsed_ns) / 1e9,
               (int)(s.cache_hits - before.cache_hits), (int)(s.cache_misses - before.cache_misses),
               (int)s.stages[FETCH].workers);
        before = s;
    }
    if (dlp_pipe_explain(pipe, words, sizeof words) > 0) fputs(words, stdout);
    return dlp_pipe_close(pipe) == DLP_OK && rc == DLP_END ? 0 : 1;
}
