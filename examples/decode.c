/* Read, then decode: what takes waiting and what takes computing, each with workers of its own.

     decode [-k in_flight] [-w workers] [-c cells]

   A store that only exists here answers after 10 ms with a packed picture of 100 to 4000 bytes. One
   thread has in_flight of these requests under way; worker threads unpack what has come. Packed
   bytes lie in a few scratch cells: no batch has room for them. Labels come from a second source,
   with a worker of its own, which writes its own field of the same items: two datasets zipped.
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
    uint8_t *to = item->data[2]; /* behind the dataset's own fields */
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
    item->length[2] = n;
    return 0;
}

static int unpack(void *user, dlp_item *item) {
    const uint8_t *from = item->data[2];
    float *to = item->data[0];
    uint32_t at = 0;
    (void)user;
    for (uint64_t i = 0; i + 1 < item->length[2]; i += 2)
        for (uint32_t k = 0; k < from[i] && at < SIDE * SIDE; k++)
            to[at++] = (float)from[i + 1] / 255.0f;
    return at == SIDE * SIDE ? 0 : dlp_fail(item->call, 0, "%u of %u pixels", at, SIDE * SIDE);
}

/* The second source: a table. */
static int look_up(void *user, dlp_item *item) {
    const int32_t *labels = user;
    memcpy(item->data[1], &labels[item->index], sizeof *labels);
    return 0;
}

int main(int argc, char **argv) {
    static int32_t labels[ITEMS];
    dlp_field fields[2] = {{.name = "picture", .ndim = 2, .shape = {SIDE, SIDE}, .dtype = DLP_F32},
                           {.name = "label", .dtype = DLP_I32}};
    dlp_field packed = {
        .name = "packed", .ndim = 1, .shape = {PACKED}, .dtype = DLP_U8, .ragged = 1};
    dlp_dataset items = {.n_items = ITEMS, .fields = fields, .n_fields = 2, .fetch = read_packed};
    dlp_sampler_desc sampler = {.order = DLP_ORDER_SHUFFLED, .seed = 1};
    dlp_fetch_desc fetch = {.dataset = &items, .fetcher = DLP_FETCH_THREADS, .in_flight = 32};
    dlp_scratch_desc scratch = {.fields = &packed, .n_fields = 1};
    dlp_map_desc map = {.item = unpack}, zip = {.item = look_up, .user = labels};
    dlp_batch_desc batch = {.batch_size = 32};
    dlp_plan plan;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    double sum = 0;
    int c, rc, wrong = 0;
    for (int32_t i = 0; i < ITEMS; i++) labels[i] = i * 7 % 10;
    items.writes_all_bytes = 1; /* unpack does, or fails */
    fetch.workers.num_workers = 1;
    map.workers.num_workers = 2;
    map.workers.idempotent = 1; /* it only reads what was packed, and writes the picture whole */
    zip.workers.num_workers = 1;
    zip.workers.idempotent = 1;
    while ((c = getopt(argc, argv, "k:w:c:")) != -1) {
        if (c == 'k') fetch.in_flight = (int32_t)strtol(optarg, NULL, 10);
        if (c == 'w') map.workers.num_workers = (int32_t)strtol(optarg, NULL, 10);
        if (c == 'c') scratch.n_cells = (uint32_t)strtol(optarg, NULL, 10);
        if (c != '?') continue;
        fputs("usage: decode [-k in_flight] [-w workers] [-c cells]\n", stderr);
        return 2;
    }
    if (dlp_pipe_open(&p, NULL, NULL) != DLP_OK) return 1;
    dlp_pipe_add_sampler(p, &sampler);
    dlp_pipe_add_fetch(p, &fetch);
    dlp_pipe_add_scratch(p, &scratch);
    dlp_pipe_add_map(p, &map);
    dlp_pipe_add_map(p, &zip);
    dlp_pipe_add_batch(p, &batch);
    if ((rc = dlp_pipe_start(p)) == DLP_OK && dlp_pipe_plan(p, &plan) == DLP_OK)
        for (uint32_t i = 0; i < plan.n_lines && i < 3; i++)
            printf("%-28s %5d x %8d bytes\n", plan.lines[i].what, (int)plan.lines[i].count,
                   (int)plan.lines[i].bytes_each);
    while (rc == DLP_OK && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        const float *pixels = b->fields[0].data;
        for (uint32_t i = 0; i < b->count * SIDE * SIDE; i++) sum += (double)pixels[i];
        for (uint32_t i = 0; i < b->count; i++)
            wrong += ((const int32_t *)b->fields[1].data)[i] != labels[b->index[i]];
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
    if (rc == DLP_END && dlp_pipe_stats(p, &s) == DLP_OK)
        printf("%.0f pictures a second, a mean of %.4f, %d labels wrong\n",
               (double)s.items * 1e9 / (double)s.elapsed_ns, sum / (double)(s.items * SIDE * SIDE),
               wrong);
    dlp_pipe_close(p);
    return rc != DLP_END;
}
