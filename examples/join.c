/* Several datasets in one pipe, each with workers and a way to fetch of its own.

     join [-k in_flight] [-w workers]

   First zipped: pictures come from a store that only exists here and answers after 5 ms; one thread
   has in_flight of these requests under way. Labels come from an array in memory, and their stage
   runs inline, in the consumer. A row has the fields of both. Then mixed by weights: three rows of
   a quick dataset for one of a slow one, which has workers of its own; each stage counts its rows.
   cc -O2 join.c -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIDE 32u
#define PICTURES 600
#define QUICK 900
#define SLOW 300

static uint8_t pixel(uint64_t index) { return (uint8_t)(index * 31 % 251); }

static int ask_store(void *user, dlp_item *item) {
    (void)user;
    poll(NULL, 0, 5);
    memset(item->data[0], pixel(item->index), SIDE * SIDE);
    return 0;
}

/* A join's callback sees its own dataset's fields, from 0 on. */
static int look_up(void *user, dlp_item *item) {
    const int32_t *labels = user;
    memcpy(item->data[0], &labels[item->index], sizeof *labels);
    return 0;
}

/* Which dataset, and its own item; a slow one takes 2 ms. */
static int numbered(void *user, dlp_item *item) {
    const uint32_t which = *(const uint32_t *)user;
    uint32_t both[2] = {which, (uint32_t)item->index};
    if (which == 1) poll(NULL, 0, 2);
    memcpy(item->data[0], both, sizeof both);
    return 0;
}

/* Start the pipe and take all of it. Returns the rows, or -1; wrong counts those that are not what
   they should be. */
static int take_all(dlp_pipe *p, int (*wrong)(const dlp_batch *b, uint32_t row, void *user),
                    void *user, int *n_wrong) {
    dlp_batch *b;
    int rc = dlp_pipe_start(p), rows = 0;
    while (rc == DLP_OK && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++) *n_wrong += wrong(b, i, user);
        rows += (int)b->count;
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
    return rc == DLP_END ? rows : -1;
}

static int zip_wrong(const dlp_batch *b, uint32_t row, void *user) {
    const int32_t *labels = user;
    return ((const uint8_t *)b->fields[0].data)[row * SIDE * SIDE] != pixel(b->index[row]) ||
           ((const int32_t *)b->fields[1].data)[row] != labels[b->index[row]];
}

static int zipped(int32_t in_flight) {
    static int32_t labels[PICTURES];
    dlp_field picture = {.name = "picture", .dtype = DLP_U8, .ndim = 2, .shape = {SIDE, SIDE}};
    dlp_field label = {.name = "label", .dtype = DLP_I32};
    dlp_dataset store = {.n_items = PICTURES, .fields = &picture, .n_fields = 1};
    dlp_dataset table = {.n_items = PICTURES, .fields = &label, .n_fields = 1, .user = labels};
    dlp_sampler_desc sampler = {.order = DLP_ORDER_SHUFFLED, .seed = 1};
    dlp_fetch_desc fetch = {.dataset = &store, .fetcher = DLP_FETCH_THREADS};
    dlp_join_desc join = {.fetch = {.dataset = &table}, .how = DLP_JOIN_ZIP};
    dlp_batch_desc batch = {.batch_size = 32};
    dlp_pipe *p;
    int rows, wrong = 0;
    for (int32_t i = 0; i < PICTURES; i++) labels[i] = i * 7 % 10;
    store.fetch = ask_store;
    table.fetch = look_up;
    fetch.in_flight = in_flight;
    fetch.workers = (dlp_workers_desc){.num_workers = 1, .name = "pictures"};
    join.fetch.workers.name = "labels"; /* num_workers 0: inline */
    if (dlp_pipe_open(&p, NULL, NULL) != DLP_OK) return -1;
    dlp_pipe_add_sampler(p, &sampler);
    dlp_pipe_add_fetch(p, &fetch);
    dlp_pipe_add_join(p, &join);
    dlp_pipe_add_batch(p, &batch);
    rows = take_all(p, zip_wrong, labels, &wrong);
    printf("zipped: %d rows, %d wrong\n", rows, wrong);
    dlp_pipe_close(p);
    return rows == PICTURES ? wrong : -1;
}

static int mix_wrong(const dlp_batch *b, uint32_t row, void *user) {
    const uint32_t *both = (const uint32_t *)b->fields[0].data + 2 * row;
    uint32_t which;
    uint64_t item;
    return dlp_mix_locate(user, b->index[row], &which, &item) != DLP_OK || both[0] != which ||
           both[1] != (uint32_t)item;
}

static int mixed(int32_t workers) {
    static uint32_t number[2] = {0, 1};
    const uint64_t n_items[2] = {QUICK, SLOW}, weights[2] = {3, 1};
    dlp_mix_desc by_weights = {
        .n = 2, .n_items = n_items, .weights = weights, .shuffle = 1, .seed = 1};
    dlp_field field = {.name = "number", .dtype = DLP_U32, .ndim = 1, .shape = {2}};
    dlp_dataset quick = {.n_items = QUICK, .fields = &field, .n_fields = 1, .user = &number[0]};
    dlp_dataset slow = {.n_items = SLOW, .fields = &field, .n_fields = 1, .user = &number[1]};
    dlp_sampler_desc sampler = {0};
    dlp_fetch_desc fetch = {.dataset = &quick};
    dlp_join_desc join = {.fetch = {.dataset = &slow}, .how = DLP_JOIN_MIX};
    dlp_batch_desc batch = {.batch_size = 40};
    dlp_pipe_desc desc = {.prefetch_factor = 4};
    dlp_stats s;
    dlp_mix *mix;
    dlp_pipe *p;
    int rows, wrong = 0;
    quick.fetch = slow.fetch = numbered;
    fetch.workers = (dlp_workers_desc){.num_workers = 1, .name = "quick"};
    join.fetch.workers = (dlp_workers_desc){.num_workers = workers, .name = "slow"};
    if (dlp_mix_open(&mix, &by_weights, NULL) != DLP_OK) return -1;
    dlp_mix_sampler(mix, &sampler);
    if (dlp_pipe_open(&p, &desc, NULL) != DLP_OK) return -1;
    dlp_pipe_add_sampler(p, &sampler);
    dlp_pipe_add_fetch(p, &fetch);
    dlp_pipe_add_join(p, &join);
    dlp_pipe_add_batch(p, &batch);
    rows = take_all(p, mix_wrong, mix, &wrong);
    if (dlp_pipe_stats(p, &s) == DLP_OK)
        printf("mixed: %d rows, %d wrong; %s %d, %s %d\n", rows, wrong, s.stages[1].name,
               (int)s.stages[1].items, s.stages[2].name, (int)s.stages[2].items);
    dlp_pipe_close(p);
    dlp_mix_close(mix);
    return rows > 0 ? wrong : -1;
}

int main(int argc, char **argv) {
    int32_t in_flight = 32, workers = 4;
    int c;
    while ((c = getopt(argc, argv, "k:w:")) != -1) {
        if (c == 'k') in_flight = (int32_t)strtol(optarg, NULL, 10);
        if (c == 'w') workers = (int32_t)strtol(optarg, NULL, 10);
        if (c != '?') continue;
        fputs("usage: join [-k in_flight] [-w workers]\n", stderr);
        return 2;
    }
    return zipped(in_flight) != 0 || mixed(workers) != 0;
}
