/* ab_items: one loader without workers, for counting what an item costs in instructions.

   ab_items BATCH EPOCHS [real]
   It takes EPOCHS epochs of ITEMS items of 8 bytes, in shuffled order. Two runs that differ in
   EPOCHS alone give the cost of an item, without start and close. It keeps to what dlpipe.h has had
   from the beginning, so that it compiles in trees of all ages.

   A pipe chooses its path by the time that items take, and a program under callgrind is 50 times as
   slow. So this program has a clock of its own: an item, a batch and a reading of the clock take
   fixed times, about what they take on a real machine. Each run then executes the same
   instructions. The program prints how often the pipe read the clock. With "real" the clock is the
   machine's; if the two numbers are alike, the pipe took the same path. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

enum { ITEMS = 65536, ITEM_NS = 25, BATCH_NS = 300, READ_NS = 30 };

static uint64_t now_ns = 1000000000, reads;
static bool real;

/* The program's function takes the place of the C library's, also within dlpipe.h. */
int clock_gettime(clockid_t id, struct timespec *t) {
    reads++;
    if (real) { return (int)syscall(SYS_clock_gettime, id, t); }
    now_ns += READ_NS;
    *t = (struct timespec){(time_t)(now_ns / 1000000000), (long)(now_ns % 1000000000)};
    return 0;
}

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
    now_ns += ITEM_NS;
    memcpy(item->data[0], &item->index, sizeof item->index);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) { return 2; }
    real = argc > 3;
    const dlp_field field = {.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {8}};
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
        now_ns += BATCH_NS;
        for (uint32_t row = 0; row < b->count; row++) { sum += b->index[row]; }
    }
    /* Every item, as often as there are epochs. */
    bool whole = sum == (uint64_t)desc.epochs * (uint64_t)ITEMS * (ITEMS - 1) / 2;
    printf("reads %llu\n", (unsigned long long)reads);
    return dlp_pipe_close(p) == DLP_OK && whole ? 0 : 1;
}
