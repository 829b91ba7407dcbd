/* "make scale": what the memory plan and the order cost for datasets of 10^6 to 10^12 items and
   jobs of 1 to 1,024 ranks, as a table for README.md. Plans are computed, not allocated. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#define ROWS 32 /* of a rank's batch */

static const dlp_field fields[] = {{.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {1024}},
                                   {.name = "label", .dtype = DLP_I32}};

static int fetch(void *user, dlp_item *item) {
    (void)user;
    (void)item;
    return 0;
}

static uint64_t plan_bytes(uint64_t n_items, uint32_t ranks) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = n_items, .shuffle = 1}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = fields, .n_fields = 2},
         .workers = {.num_workers = 8}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS * ranks}}};
    const dlp_pipe_desc desc = {.rank = ranks - 1, .world_size = ranks};
    dlp_plan plan = {0};
    dlp_error err;
    if (dlp_nodes_plan(DLP_NODES(nodes), &desc, &plan, &err) != DLP_OK) puts(err.message);
    return plan.total_bytes;
}

static uint64_t sink;

/* A shuffled index, of a batch somewhere in the epoch; here and below the best of nine runs. */
static double shuffled_ns(uint64_t n_items) {
    static dlp_permutation p;
    uint64_t out[ROWS], place = 1;
    double best = 1e9;
    dlp_permutation_init(&p, n_items, 1, 2);
    for (int run = 0; run < 9; run++) {
        uint64_t from = dlpi_now_ns();
        for (int i = 0; i < 20000; i++) {
            place = dlp_hash(place, 1, 2, 3);
            dlp_permutation_block(&p, place % (n_items - ROWS), ROWS, out);
            sink += out[0];
        }
        from = dlpi_now_ns() - from;
        if ((double)from < best * 20000 * ROWS) best = (double)from / (20000.0 * ROWS);
    }
    return best;
}

/* An index of a mix of four datasets. */
static double mixed_ns(uint64_t n_items, uint64_t *bytes) {
    uint64_t items[] = {n_items / 2, n_items / 4, n_items / 8, n_items / 8};
    static const uint64_t weights[] = {40, 30, 20, 9};
    dlp_mix_desc d = {.n = 4, .n_items = items, .weights = weights, .shuffle = 1};
    dlp_mix *m = NULL;
    double best = 1e9;
    if (dlp_mix_open(&m, &d, NULL) != DLP_OK) return 0;
    for (int run = 0; run < 9; run++) {
        uint64_t from = dlpi_now_ns();
        for (uint64_t i = 0; i < 200000; i++) sink += dlp_mix_at(m, i & 7, i * 1001);
        from = dlpi_now_ns() - from;
        if ((double)from < best * 200000) best = (double)from / 200000.0;
    }
    *bytes = sizeof *m + m->n * sizeof *m->part + m->period * sizeof *m->schedule;
    dlp_mix_close(m);
    return best;
}

int main(void) {
    static const uint64_t sizes[] = {1000000, 1000000000, UINT64_C(1000000000000)};
    static const char *const names[] = {"10^6", "10^9", "10^12"};
    static const uint32_t ranks[] = {1, 32, 1024};
    printf("| items | plan of a rank of 1, 32, 1024 | shuffled order | mix of four | state |\n"
           "|---|---|---|---|---|\n");
    for (int i = 0; i < 3; i++) {
        dlp_sampler_desc order = {.order = DLP_ORDER_SHUFFLED};
        uint64_t mix_bytes = 0;
        double shuffled = shuffled_ns(sizes[i]), mixed = mixed_ns(sizes[i], &mix_bytes);
        printf("| %s |", names[i]);
        for (int k = 0; k < 3; k++)
            printf("%s %" PRIu64, k ? "," : "", plan_bytes(sizes[i], ranks[k]));
        printf(" bytes | %" PRIu64 " bytes, %.1f ns an index | %" PRIu64
               " bytes, %.0f ns an index | %zu bytes |\n",
               dlpi_order_table_bytes(&order, sizes[i]), shuffled, mix_bytes, mixed,
               sizeof(dlp_state));
    }
    return sink == 1;
}
