/* Read, then decode: one node waits, another computes, and each has workers of its own.

     decode [-k in_flight] [-w workers] [-c cells]

   A store that only exists here answers after 10 ms with a packed picture. One thread has in_flight
   of these requests under way. Worker threads unpack the pictures. The packed bytes end there: they
   lie in a few cells, and in no batch. Labels come from a second fetch. It is an item map: it adds
   a field to each item, which it finds by the item's index.
   cc -O2 decode.c -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIDE 64u
#define PACKED 4000
#define ITEMS 2000

/* The picture's bytes as runs: how many, of what. */
static int read_packed(void *user, dlp_item *item) {
    uint8_t *to = item->data[0];
    uint64_t n = 0;
    (void)user;
    poll(NULL, 0, 10);
    for (uint32_t left = SIDE * SIDE; left > 0; n += 2) {
        uint32_t run = 1 + (uint32_t)(dlp_hash(item->index, n, 0, 0) % (4 + item->index % 250));
        if (run > left) run = left;
        if (n + 2 > PACKED) return dlp_fail(item->call, 0, "%d bytes are too few", PACKED);
        to[n] = (uint8_t)run;
        to[n + 1] = (uint8_t)(item->index + n);
        left -= run;
    }
    item->length[0] = n;
    return 0;
}

/* The second fetch: a table. */
static int look_up(void *user, dlp_item *item) {
    const int32_t *labels = user;
    memcpy(item->data[0], &labels[item->index], sizeof *labels);
    return 0;
}

/* Sees the fields of the rows above it, packed and label, and then its own, picture. */
static int unpack(void *user, dlp_item *item) {
    const uint8_t *from = item->data[0];
    float *to = item->data[2];
    uint32_t at = 0;
    (void)user;
    for (uint64_t i = 0; i + 1 < item->length[0]; i += 2)
        for (uint32_t k = 0; k < from[i] && at < SIDE * SIDE; k++)
            to[at++] = (float)from[i + 1] / 255.0f;
    return at == SIDE * SIDE ? 0 : dlp_fail(item->call, 0, "%u of %u pixels", at, SIDE * SIDE);
}

int main(int argc, char **argv) {
    static int32_t labels[ITEMS];
    dlp_field packed = {
        .name = "packed", .ndim = 1, .shape = {PACKED}, .dtype = DLP_U8, .ragged = 1};
    dlp_field label = {.name = "label", .dtype = DLP_I32};
    dlp_field picture = {.name = "picture", .ndim = 2, .shape = {SIDE, SIDE}, .dtype = DLP_F32};
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_packed, .fields = &packed, .n_fields = 1, .in_flight = 32},
         .workers = {.num_workers = 1}},
        {.name = "labels",
         .verb = DLP_FETCH,
         .fetch = {.fetch = look_up, .user = labels, .fields = &label, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "unpack",
         .verb = DLP_MAP,
         .map = {.item = unpack, .fields = &picture, .n_fields = 1, .ends = "packed"},
         .workers = {.num_workers = 2, .idempotent = 1}}, /* it writes the picture whole */
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 32}},
    };
    dlp_error err;
    dlp_plan plan;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    double sum = 0;
    int c, rc, wrong = 0;
    for (int32_t i = 0; i < ITEMS; i++) labels[i] = i * 7 % 10;
    while ((c = getopt(argc, argv, "k:w:c:")) != -1) {
        if (c == 'k') nodes[1].fetch.in_flight = (uint32_t)strtol(optarg, NULL, 10);
        if (c == 'w') nodes[3].workers.num_workers = (int32_t)strtol(optarg, NULL, 10);
        if (c == 'c') nodes[1].queue.capacity = (uint32_t)strtol(optarg, NULL, 10);
        if (c == '?')
            return fputs("usage: decode [-k in_flight] [-w workers] [-c cells]\n", stderr), 2;
    }
    if (dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.seed = 1}, &err) != DLP_OK)
        return puts(err.message), 1;
    if (dlp_pipe_plan(p, &plan) == DLP_OK)
        for (uint32_t i = 0; i < plan.n_lines && i < 3; i++)
            printf("%-28s %5d x %8d bytes\n", plan.lines[i].what, (int)plan.lines[i].count,
                   (int)plan.lines[i].bytes_each);
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        const int32_t *label_of = b->fields[0].data;
        const float *pixels = b->fields[1].data;
        for (uint32_t i = 0; i < b->count * SIDE * SIDE; i++) sum += (double)pixels[i];
        for (uint32_t i = 0; i < b->count; i++) wrong += label_of[i] != labels[b->index[i]];
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) puts(dlp_pipe_error(p)->message);
    if (rc == DLP_END && dlp_pipe_stats(p, &s) == DLP_OK)
        printf("%.0f pictures a second, a mean of %.4f, %d labels wrong\n",
               (double)s.items * 1e9 / (double)s.elapsed_ns, sum / (double)(s.items * SIDE * SIDE),
               wrong);
    dlp_pipe_close(p);
    return rc != DLP_END;
}
