/* Several datasets in one pipe. Each has its own workers, and its own way to fetch.

     join [-k in_flight] [-w workers]

   First zipped: a row has a picture and its label. Pictures come from a store that only exists here
   and answers after 5 ms; one thread has in_flight of these requests under way. Labels come from an
   array in memory, in the consumer. Then mixed by weights: three rows of a quick dataset for each
   row of a slow dataset, which has workers of its own. Each node counts its rows.
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

/* A fetch sees the fields that its own node adds, from 0 on. */
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

/* Take all of a pipe. Returns the number of rows, or -1. wrong: true if a row has other data. */
static int take_all(dlp_pipe *p, int (*wrong)(const dlp_batch *b, uint32_t row, void *user),
                    void *user, int *n_wrong) {
    dlp_batch *b;
    int rc, rows = 0;
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++) *n_wrong += wrong(b, i, user);
        rows += (int)b->count;
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) puts(dlp_pipe_error(p)->message);
    return rc == DLP_END ? rows : -1;
}

static int zip_wrong(const dlp_batch *b, uint32_t row, void *user) {
    const int32_t *labels = user;
    return ((const uint8_t *)b->fields[0].data)[row * SIDE * SIDE] != pixel(b->index[row]) ||
           ((const int32_t *)b->fields[1].data)[row] != labels[b->index[row]];
}

static int zipped(uint32_t in_flight) {
    static int32_t labels[PICTURES];
    dlp_field picture = {.name = "picture", .dtype = DLP_U8, .ndim = 2, .shape = {SIDE, SIDE}};
    dlp_field label = {.name = "label", .dtype = DLP_I32};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = PICTURES, .shuffle = 1}},
        {.name = "pictures",
         .verb = DLP_FETCH,
         .fetch = {.fetch = ask_store, .fields = &picture, .n_fields = 1, .in_flight = in_flight},
         .workers = {.num_workers = 1}},
        {.name = "labels",
         .verb = DLP_FETCH,
         .fetch = {.fetch = look_up, .user = labels, .fields = &label, .n_fields = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 32}},
    };
    dlp_error err;
    dlp_pipe *p;
    int rows, wrong = 0;
    for (int32_t i = 0; i < PICTURES; i++) labels[i] = i * 7 % 10;
    if (dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.seed = 1}, &err) != DLP_OK)
        return puts(err.message), -1;
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
    const dlp_mix_desc by_weights = {
        .n = 2, .n_items = n_items, .weights = weights, .shuffle = 1, .seed = 1};
    dlp_field field = {.name = "number", .dtype = DLP_U32, .ndim = 1, .shape = {2}};
    int rows, wrong = 0;
    dlp_error err;
    dlp_stats s;
    dlp_mix *mix;
    dlp_pipe *p;
    if (dlp_mix_open(&mix, &by_weights, &err) != DLP_OK) return puts(err.message), -1;
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.mix = mix}},
        {.name = "quick",
         .verb = DLP_FETCH,
         .fetch = {.of = 1, .fetch = numbered, .user = &number[0], .fields = &field, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "slow",
         .verb = DLP_FETCH,
         .fetch = {.of = 2, .fetch = numbered, .user = &number[1], .fields = &field, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 40}, .queue = {.capacity = 4}},
    };
    if (dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err) != DLP_OK) return puts(err.message), -1;
    rows = take_all(p, mix_wrong, mix, &wrong);
    if (dlp_pipe_stats(p, &s) == DLP_OK)
        printf("mixed: %d rows, %d wrong; quick %d, slow %d\n", rows, wrong,
               (int)s.stages[dlp_node_stage(p, "quick")].items,
               (int)s.stages[dlp_node_stage(p, "slow")].items);
    dlp_pipe_close(p);
    dlp_mix_close(mix);
    return rows > 0 ? wrong : -1;
}

int main(int argc, char **argv) {
    uint32_t in_flight = 32;
    int32_t workers = 4;
    int c;
    while ((c = getopt(argc, argv, "k:w:")) != -1) {
        if (c == 'k') in_flight = (uint32_t)strtol(optarg, NULL, 10);
        if (c == 'w') workers = (int32_t)strtol(optarg, NULL, 10);
        if (c == '?') return fputs("usage: join [-k in_flight] [-w workers]\n", stderr), 2;
    }
    return zipped(in_flight) != 0 || mixed(workers) != 0;
}
