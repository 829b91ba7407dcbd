/* ab_items: one loader without workers, for counting what an item costs in instructions.

   ab_items BATCH EPOCHS
   It takes that many epochs of ITEMS items of 8 bytes, in shuffled order. Two runs that differ in
   EPOCHS alone give what an item costs, without start and close. It keeps to what dlpipe.h has had
   from the beginning, so that it compiles in trees of all ages. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 65536 };

/* The call that waits, with a timeout where it has one. */
typedef int (*next_waits)(dlp_pipe *, dlp_batch **);
typedef int (*next_within)(dlp_pipe *, dlp_batch **, int);

static int next_batch(dlp_pipe *p, dlp_batch **b) {
    /* not laid out by clang-format, which takes the types of _Generic for labels */
    void (*call)(void) = (void (*)(void))dlp_pipe_next;
    /* clang-format off */
    bool waits = _Generic(&dlp_pipe_next, next_waits: 1, default: 0);
    /* clang-format on */
    return waits ? ((next_waits)call)(p, b) : ((next_within)call)(p, b, 30000);
}

static int fetch(void *user, dlp_item *item) {
    (void)user;
    memcpy(item->data[0], &item->index, sizeof item->index);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) { return 2; }
    const dlp_field field = {.name = "x", .ndim = 1, .shape = {8}};
    const dlp_loader_desc desc = {
        .dataset = {.n_items = ITEMS, .fields = &field, .n_fields = 1, .fetch = fetch},
        .batch_size = (uint32_t)strtoul(argv[1], NULL, 10),
        .epochs = strtol(argv[2], NULL, 10),
        .shuffle = 1,
        .seed = 20250131};
    dlp_pipe *p = NULL;
    dlp_error err;
    uint64_t sum = 0;
    if (dlp_loader_open(&p, &desc, &err) != DLP_OK) { return 1; }
    for (dlp_batch *b; next_batch(p, &b) == DLP_OK; dlp_pipe_release(p, b)) {
        for (uint32_t row = 0; row < b->count; row++) { sum += b->index[row]; }
    }
    /* Every item, as often as there are epochs. */
    bool whole = sum == (uint64_t)desc.epochs * (uint64_t)ITEMS * (ITEMS - 1) / 2;
    return dlp_pipe_close(p) == DLP_OK && whole ? 0 : 1;
}
