/* Ranks that agree on where an epoch ends, under MPI: a dataset of which a filter keeps some items,
   how many nobody knows before they are read. Each rank has streams of its own, whose items are not
   as many as the others'; but a training step is one of all ranks, so all must take as many.

   mpirun -n 4 mpi_filter [-d] [-e epochs] [-w workers]
   mpicc -O2 mpi_filter.c -lpthread -lm

   -d drops the last batches: the epoch ends before the first batch that is not full on some rank.
   Without it every item that is kept comes once, and ranks that are out have rows of holes (valid
   0) until the last is. Rank 0 prints for each epoch its steps and the items that all ranks had. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <inttypes.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ITEMS = 10000, BATCH = 48, STREAMS = 12 /* the most ranks that share them evenly */ };

static void give_up(const dlp_error *err) {
    char line[768];
    dlp_error_format(err, line, sizeof line);
    fprintf(stderr, "mpi_filter: %s\n", line);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* One all-reduce of an integer; next calls it, so MPI needs no more than one thread. */
static int64_t agree(void *user, int64_t mine, int most) {
    (void)user;
    MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT64_T, most ? MPI_MAX : MPI_MIN, MPI_COMM_WORLD);
    return mine;
}

static int fetch(void *user, dlp_item *item) {
    (void)user;
    *(uint64_t *)item->data[0] = item->index;
    return 0;
}

static int keep(void *user, const dlp_item *item) {
    (void)user;
    return dlp_hash(item->index, 1, 2, 3) % 3 == 0; /* a third is of use */
}

static dlp_pipe *open_pipe(bool drop, int epochs, int workers) {
    static const dlp_field field = {.name = "number", .dtype = DLP_U64};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &field, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "filter", .verb = DLP_FILTER, .filter = {.keep = keep}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = BATCH, .last = drop ? DLP_LAST_DROP : DLP_LAST_PARTIAL}}};
    dlp_pipe_desc desc = {.seed = 7, .epochs = epochs, .streams = STREAMS, .agree = agree};
    dlp_pipe *p = NULL;
    dlp_error err;
    if (dlp_ranks_from_env(&desc.rank, &desc.world_size, &err) != DLP_OK ||
        dlp_pipe_open(&p, DLP_NODES(nodes), &desc, &err) != DLP_OK)
        give_up(&err);
    return p;
}

/* All ranks have come to the end of an epoch: of each its steps, items and their sum. */
static void tell(uint64_t epoch, uint64_t *mine) {
    uint64_t least, most, all[2];
    MPI_Allreduce(&mine[0], &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&mine[0], &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&mine[1], all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("epoch %" PRIu64 ": %" PRIu64 " to %" PRIu64 " steps, %" PRIu64
               " items, sum %" PRIu64 "\n",
               epoch, least, most, all[0], all[1]);
    mine[0] = mine[1] = mine[2] = 0;
}

int main(int argc, char **argv) {
    int option, threads, epochs = 2, workers = 2, code;
    bool drop = false;
    uint64_t mine[3] = {0, 0, 0};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    while ((option = getopt(argc, argv, "de:w:")) != -1) {
        if (option == 'd') drop = true;
        if (option == 'e') epochs = atoi(optarg);
        if (option == 'w') workers = atoi(optarg);
        if (option == '?') MPI_Abort(MPI_COMM_WORLD, 2);
    }
    dlp_pipe *p = open_pipe(drop, epochs, workers);
    dlp_batch *b = NULL;
    while ((code = dlp_pipe_next(p, &b)) == DLP_OK) {
        const uint64_t *number = b->fields[0].data;
        bool last = (b->flags & DLP_BATCH_LAST) != 0;
        uint64_t epoch = b->epoch;
        for (uint32_t i = 0; i < b->count; i++)
            if (b->valid[i]) mine[1]++, mine[2] += number[i];
        mine[0]++;
        MPI_Barrier(MPI_COMM_WORLD); /* a step of training: gradients are summed */
        dlp_pipe_release(p, b);
        if (last) tell(epoch, mine);
    }
    if (code != DLP_END) give_up(dlp_pipe_error(p));
    dlp_pipe_close(p);
    MPI_Finalize();
    return 0;
}
