/* Part queues: the order against one that is written down the slow way, what is loaded when, what
   becomes of a load that fails, where the trainer waits and where not. parts [seed] */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <signal.h>
#include <stdlib.h>

#include "pipe_rig.h"
#include "parts_rig.h"

static parts_seen seen;
static uint64_t order[2 * PARTS_ITEMS];

/* ---- order ---- */

static uint64_t order_hash(const parts_rig *r, uint64_t epoch) {
    uint64_t h = 0, n = parts_order(r, epoch, order);
    for (uint64_t i = 0; i < n; i++) h = dlp_hash(h, order[i], i, 0);
    return h;
}

/* Whoever changes these numbers breaks every saved state. */
static void order__golden__never_changes(void) {
    static const struct {
        uint32_t streams, steps;
        int shuffle;
        uint64_t epoch, first[4], hash;
    } golden[] = {
        {1, 0, 0, 0, {0, 1, 2, 3}, UINT64_C(0x71c60a366d63e070)},
        {1, 0, 1, 0, {193, 194, 196, 195}, UINT64_C(0xf9ad8f6126a118de)},
        {4, 0, 1, 0, {193, 194, 275, 285}, UINT64_C(0x90adf5aa82e806c)},
        {4, 0, 1, 3, {274, 279, 85, 89}, UINT64_C(0x20db844f1a51a206)},
        {2, 90, 1, 1, {298, 296, 295, 297}, UINT64_C(0x6f0bb6ec0fd4221c)},
    };
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        parts_rig r;
        uint64_t hash;
        int before = test_failures;
        parts_init(&r, &seen, 37, NULL);
        r.d.parts.streams = golden[i].streams;
        r.d.parts.steps_per_epoch = golden[i].steps;
        r.d.loader.shuffle = golden[i].shuffle;
        hash = order_hash(&r, golden[i].epoch);
        CHECK(memcmp(order, golden[i].first, sizeof golden[i].first) == 0);
        CHECK(hash == golden[i].hash);
        if (before != test_failures)
            printf("  {%u, %u, %d, %d, {%d, %d, %d, %d}, UINT64_C(0x%" PRIx64 ")},\n",
                   golden[i].streams, golden[i].steps, golden[i].shuffle, (int)golden[i].epoch,
                   (int)order[0], (int)order[1], (int)order[2], (int)order[3], hash);
    }
}

static void order__every_epoch__each_item_once_in_another_order(void) {
    parts_rig r;
    uint8_t times[PARTS_ITEMS];
    uint64_t before = 0;
    parts_init(&r, &seen, 37, NULL);
    r.d.parts.streams = 4;
    for (uint64_t e = 0; e < 3; e++) {
        uint64_t n = parts_order(&r, e, order), once = 0, h = order_hash(&r, e);
        memset(times, 0, sizeof times);
        for (uint64_t i = 0; i < n; i++) once += times[order[i]]++ == 0;
        CHECK(n == r.total && once == n && h != before);
        before = h;
    }
}

static void any_case(uint64_t *random) {
    static const uint32_t streams[] = {1, 2, 4, 8};
    static const int32_t workers[] = {0, 1, 2, 5};
    parts_rig r;
    uint64_t items[PARTS_MAX], n = 1 + test_pick(random, 40);
    int before = test_failures;
    if (before > 5) return;
    for (uint64_t i = 0; i < n; i++) items[i] = test_pick(random, 4) ? test_pick(random, 30) : 0;
    items[test_pick(random, (uint32_t)n)] = 9;
    parts_init(&r, &seen, n, items);
    r.d.parts.streams = streams[test_pick(random, 4)];
    r.d.loader.batch_size = 8 * (1 + test_pick(random, 5));
    r.d.loader.last = r.total >= r.d.loader.batch_size ? (int32_t)test_pick(random, 3) : 0;
    if (test_pick(random, 4) == 0) r.d.parts.steps_per_epoch = 1 + test_pick(random, 12);
    r.d.loader.shuffle = (int32_t)test_pick(random, 2);
    r.d.parts.shuffle_items = (int32_t)test_pick(random, 2);
    r.d.parts.queue_size = test_pick(random, 2) ? 0 : 50;
    r.d.parts.workers.num_workers = workers[test_pick(random, 4)];
    r.d.loader.num_workers = workers[test_pick(random, 4)];
    r.d.loader.sampler.threaded = (int32_t)test_pick(random, 2);
    r.d.loader.epochs = 1 + test_pick(random, 4);
    r.d.loader.pipe.prefetch_factor = (int32_t)test_pick(random, 5);
    if (test_pick(random, 4) == 0) r.d.loader.collate = dlp_collate_pad;
    if (test_pick(random, 4) == 0) r.d.loader.workers.dispatch = DLP_DISPATCH_LANES;
    r.d.loader.sampler.world_size = 1 + test_pick(random, 4);
    r.d.loader.sampler.allow_uneven = 1;
    if (r.total < r.d.parts.streams) r.d.parts.steps_per_epoch = 0;
    for (uint32_t rank = 0; rank < r.d.loader.sampler.world_size; rank++) {
        r.d.loader.sampler.rank = rank;
        CHECK(parts_run_on(&r, 0) == (int64_t)parts_batches(&r) * r.d.loader.epochs);
    }
    if (test_failures != before)
        printf("  parts %d items %d streams %u batch %u last %d steps %d queue %u workers %d %d "
               "threaded %d world %u prefetch %d\n", (int)n, (int)r.total, r.d.parts.streams,
               r.d.loader.batch_size, r.d.loader.last, (int)r.d.parts.steps_per_epoch,
               r.d.parts.queue_size, r.d.parts.workers.num_workers, r.d.loader.num_workers,
               r.d.loader.sampler.threaded, r.d.loader.sampler.world_size,
               r.d.loader.pipe.prefetch_factor);
}

static void run__any_wiring__as_written_down(uint64_t seed) {
    for (int i = 0; i < test_share(240, 5000); i++) any_case(&seed);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    order__golden__never_changes();
    order__every_epoch__each_item_once_in_another_order();
    run__any_wiring__as_written_down(seed);
    return test_end("parts");
}
