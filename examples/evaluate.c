/* Evaluate beside training, with two pipes. One gives the training items, in another order in each
   epoch. The other gives the validation items in their order, each once in an epoch. Its workers
   have the first batches ready when an epoch of training ends. Training stops early when the
   validation loss has not fallen for three epochs: both pipes are closed with epochs left.

     evaluate [-e epochs] [-w workers]
     cc -O2 evaluate.c -lpthread

   The numbers are the same for any number of workers. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FEATURES = 48, TRAINING = 96, VALIDATION = 250, BATCH = 16, PATIENCE = 3 };

/* A number between -1 and 1 that looks random. */
static float noise(uint64_t a, uint64_t b) {
    return (float)((double)(dlp_hash(a, b, 7, 0) >> 11) / (double)(UINT64_C(1) << 52) - 1);
}

/* Items of a part of the data: user says where the part begins. The last number is what is to be
   learned: a sum of the features by their weights, and noise. */
static int fetch(void *user, dlp_item *item) {
    const uint64_t i = *(const uint64_t *)user + item->index;
    float *x = item->data[0], y = 3 * noise(i, 1000);
    for (uint64_t k = 0; k < FEATURES; k++) y += noise(2000, k) * (x[k] = noise(i, k));
    x[FEATURES] = y;
    return 0;
}

static float guess(const float *w, const float *x) {
    float y = 0;
    for (int k = 0; k < FEATURES; k++) y += w[k] * x[k];
    return y;
}

/* One epoch of a pipe: its mean squared error. step: how far to go to lessen it; 0: only look.
   Returns below 0 if the pipe fails. */
static double epoch(dlp_pipe *p, float *w, float step, int *items) {
    double sum = 0;
    for (*items = 0;;) {
        dlp_batch *b;
        if (dlp_pipe_next(p, &b) != DLP_OK) return puts(dlp_pipe_error(p)->message), -1;
        const float *x = b->fields[0].data;
        const int last = (b->flags & DLP_BATCH_LAST) != 0;
        for (uint32_t i = 0; i < b->count; i++, x += FEATURES + 1) {
            const float off = guess(w, x) - x[FEATURES];
            sum += (double)(off * off);
            for (int k = 0; k < FEATURES; k++) w[k] -= step * off * x[k];
        }
        *items += (int)b->count;
        dlp_pipe_release(p, b);
        if (last) return sum / *items;
    }
}

int main(int argc, char **argv) {
    static uint64_t first[2] = {0, TRAINING}; /* where each part of the data begins */
    const dlp_field field = {.name = "x, y", .dtype = DLP_F32, .ndim = 1, .shape = {FEATURES + 1}};
    dlp_loader_desc training = {.dataset = {.n_items = TRAINING,
                                            .fields = &field,
                                            .n_fields = 1,
                                            .fetch = fetch,
                                            .user = &first[0]},
                                .batch_size = BATCH,
                                .num_workers = 2,
                                .epochs = 100};
    dlp_loader_desc validation = training;
    dlp_pipe *train = NULL, *check = NULL;
    dlp_error err;
    float w[FEATURES] = {0};
    double best = -1;
    int c, items, best_epoch = 0, at = 0;
    while ((c = getopt(argc, argv, "e:w:")) != -1) {
        if (c == 'e') training.epochs = strtol(optarg, NULL, 10);
        if (c == 'w') training.num_workers = (int32_t)strtol(optarg, NULL, 10);
        if (c == '?') return fputs("usage: evaluate [-e epochs] [-w workers]\n", stderr), 2;
    }
    validation.num_workers = training.num_workers;
    validation.epochs = training.epochs;
    validation.dataset.n_items = VALIDATION; /* the last batch is short: each item once */
    validation.dataset.user = &first[1];
    training.shuffle = training.drop_last = 1;
    if (dlp_loader_open(&train, &training, &err) != DLP_OK ||
        dlp_loader_open(&check, &validation, &err) != DLP_OK)
        return puts(err.message), 1;
    for (; at < training.epochs && at <= best_epoch + PATIENCE; at++) {
        const double t = epoch(train, w, 0.01f, &items);
        const double v = t < 0 ? t : epoch(check, w, 0, &items);
        if (v < 0) return 1;
        printf("epoch %d: training %.3f, validation %.3f of %d items\n", at, t, v, items);
        if (best < 0 || v < best) best = v, best_epoch = at;
    }
    printf("%s after epoch %d, the best was %d\n", at < training.epochs ? "stopped early" : "done",
           at - 1, best_epoch);
    c = dlp_pipe_close(check) != DLP_OK; /* both have epochs left, and end in the middle of them */
    return dlp_pipe_close(train) != DLP_OK || c;
}
