/* needs: parts */
/* Parts of unknown count: order and bytes against a list written down by a direct program, resumed
   behind every batch, by other numbers of ranks, with as few cells as will do; epochs' ends; part
   workers killed. found [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/inside_parts.h"
#include "../../rig/shm_rig.h"
#include "../../rig/found_rig.h"

static found_seen *seen; /* shared */
static found_order order;

/* All batches of all epochs, of the present rank. */
static int64_t batches(const found_rig *r) {
    uint64_t n = 0, epochs = r->d.epochs ? (uint64_t)r->d.epochs : 1;
    for (uint64_t e = 0; e < epochs; e++) n += found_write_down(r, e, &order);
    return (int64_t)n;
}

/* ---- order ---- */

/* As many as items, or nothing to do with them; some are 0, some alike. */
static const uint64_t *any_weights(uint64_t *random) {
    static uint64_t weights[FOUND_MAX];
    uint32_t how = test_pick(random, 3);
    for (uint32_t i = 0; i < FOUND_MAX; i++)
        weights[i] = how == 0 ? seen->counts[i] : how == 1 ? test_pick(random, 4) : 7;
    return weights;
}

/* Whoever changes these numbers breaks every saved state. */
static void order__golden__never_changes(void) {
    static const uint64_t golden[6] = {UINT64_C(0x947d5a4448dc6a80), UINT64_C(0x3e98e12c537cf4a5),
                                       UINT64_C(0xf9e68331c57ebe0b), UINT64_C(0x63e47f0abf8d9949),
                                       UINT64_C(0xb7b0e43e97d7d56e), UINT64_C(0xd81f85274ef6aecd)};
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t steps = i % 2;
        uint64_t random = 7;
        found_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t h = 0;
        found_init(&r, seen, 20, 9);
        r.d.pipe.streams = 4;
        r.d.pipe.steps_per_epoch = 40 * steps;
        r.d.parts.window = i / 2 % 2 * 23;
        if (i >= 4) r.d.parts.weights = any_weights(&random);
        r.d.epochs = 2;
        CHECK(found_open(&r, &p) == DLP_OK);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            const uint64_t *words = b->fields[0].data;
            for (uint32_t k = 0; k < b->count; k++) h = dlp_hash(h, words[k], b->index[k], k);
            dlp_pipe_release(p, b);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(h == golden[i]);
        if (h != golden[i]) printf("  UINT64_C(0x%" PRIx64 ")\n", h);
    }
}

/* Counts: any, all of them the most, all 1, none but the last. */
static void counts(found_rig *r, uint32_t how, uint64_t *random) {
    uint32_t n = (uint32_t)r->d.parts.n_parts, most = (uint32_t)r->d.parts.max_items;
    for (uint32_t i = 0; i < n; i++)
        seen->counts[i] = how == 0   ? (test_pick(random, 3) ? test_pick(random, most + 1) : 0)
                          : how == 1 ? most
                          : how == 2 ? 1
                          : how == 3 ? (i + 1 == n ? most : 0)
                                     : most / 2 + i % (most / 2 + 1);
}

/* Has each stream, of all ranks, what the rule of its epoch's end wants? */
static int can_run(const found_rig *r) {
    uint64_t c = r->d.pipe.streams, m = r->d.batch_size / c, any = 0, with = 0;
    for (uint64_t i = 0; i < r->d.parts.n_parts; i++) with += seen->counts[i] > 0;
    if (c > 1 && with < c && r->d.pipe.steps_per_epoch) return 0; /* passes without any: an error */
    for (uint64_t e = 0; e < 3; e++)
        for (uint64_t s = 0; s < c; s++) {
            found_stream(r, e, s, found_want(r), &order);
            if (order.n[s] < found_want(r)) return 0;
            if (order.n[s] < m && r->d.drop_last == DLP_LAST_DROP) return 0;
            if (order.n[s] == 0 && r->d.pipe.world_size > 1) return 0;
            any += order.n[s];
        }
    return any > 0;
}

static void any_case(uint64_t *random, int processes) {
    static const uint32_t streams[] = {1, 2, 4, 8};
    static const int32_t workers[] = {0, 1, 4, 16}, loaders[] = {DLP_NONE, 1, 4, 16};
    dlp_shm_desc shm;
    found_rig r;
    uint32_t how = test_pick(random, 5), world = 1u << test_pick(random, 3);
    int before = test_failures;
    if (before > 5) return;
    memset(&shm, 0, sizeof shm);
    shm.max_kills = 100;
    found_init(&r, seen, 8 + test_pick(random, 40), 2 + test_pick(random, 30));
    counts(&r, how, random);
    if (how == 4) r.d.parts.min_items = r.d.parts.max_items / 2;
    r.d.pipe.streams = streams[test_pick(random, 4)];
    r.d.batch_size = 8 * (1 + test_pick(random, 5));
    r.d.drop_last = (int32_t)test_pick(random, 3);
    if (test_pick(random, 2)) r.d.pipe.steps_per_epoch = 1 + test_pick(random, 60);
    if (test_pick(random, 2)) r.d.parts.window = 1 + test_pick(random, 120);
    if (test_pick(random, 3) == 0) r.d.parts.weights = any_weights(random);
    r.d.shuffle = (int32_t)test_pick(random, 2);
    r.d.parts.workers.num_workers = loaders[test_pick(random, processes ? 3 : 4)];
    r.d.num_workers = workers[test_pick(random, processes ? 3 : 4)];
    r.d.sampler.threaded = (int32_t)test_pick(random, 2);
    r.d.epochs = 1 + test_pick(random, 3);
    r.d.pipe.prefetch_factor = (int32_t)test_pick(random, 5);
    if (test_pick(random, 4) == 0) r.d.collate = dlp_collate_pad;
    if (test_pick(random, 4) == 0) r.d.workers.dispatch = DLP_DISPATCH_BATCHES;
    while (world > r.d.pipe.streams) world /= 2;
    r.d.pipe.world_size = world;
    r.d.pipe.uneven = world > 1 && r.d.pipe.steps_per_epoch == 0;
    if (!can_run(&r)) return;
    if (processes) {
        r.d.parts.workers.placement = r.d.workers.placement = DLP_PLACE_PROCESSES;
        r.d.pipe.shm = &shm;
        if (r.d.parts.workers.num_workers > 0) seen->kill_every = 3 + test_pick(random, 9);
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        r.d.pipe.rank = rank;
        CHECK(found_run(&r, INT64_MAX, NULL) == batches(&r));
    }
    if (test_failures != before)
        printf("  parts %d most %d how %u streams %u batch %u last %d steps %d shuffle %d workers "
               "%d %d threaded %d epochs %d world %u prefetch %d collate %d kill %u window %u "
               "weights %d\n",
               (int)r.d.parts.n_parts, (int)r.d.parts.max_items, how, r.d.pipe.streams,
               r.d.batch_size, r.d.drop_last, (int)r.d.pipe.steps_per_epoch, r.d.shuffle,
               r.d.parts.workers.num_workers, r.d.num_workers, r.d.sampler.threaded,
               (int)r.d.epochs, world, r.d.pipe.prefetch_factor, r.d.collate != NULL,
               seen->kill_every, r.d.parts.window, r.d.parts.weights != NULL);
}

static void run__any_wiring__as_written_down(uint64_t seed) {
    for (int i = 0; i < test_share(300, 5000); i++) any_case(&seed, 0);
}

static void kill__part_workers_with_other_counts__as_written_down(uint64_t seed) {
    for (int i = 0; i < test_share(12, 1000); i++) any_case(&seed, 1);
}

/* ---- weights ---- */

#define SPREAD 32 /* streams */

/* What an epoch leaves out of 1,000 parts of 0..5,000 items where it ends with its shortest stream,
   and where it has as many steps as streams have on average; shares of all items, times 10^4. */
static void weights__spread(uint64_t seed, bool weighed, uint64_t *drop, uint64_t *mean) {
    uint64_t of[SPREAD] = {0}, items[1000], all = 0, least = UINT64_MAX, above = 0;
    const uint64_t key = seed;
    uint32_t stream[1000];
    for (uint32_t i = 0; i < 1000; i++) all += items[i] = test_pick(&seed, 5001);
    CHECK(inside_found_streams(weighed ? items : NULL, 1000, SPREAD, key, stream));
    for (uint32_t i = 0; i < 1000; i++) of[stream[i]] += items[i];
    for (uint64_t s = 0; s < SPREAD; s++) {
        if (of[s] < least) least = of[s];
        if (of[s] > all / SPREAD) above += of[s] - all / SPREAD;
    }
    *drop += (all - least * SPREAD) * 10000 / all;
    *mean += above * 10000 / all;
}

static void weights__of_items__streams_end_together(void) {
    uint64_t drop[2] = {0, 0}, mean[2] = {0, 0};
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int weighed = 0; weighed < 2; weighed++)
            weights__spread(seed, weighed != 0, &drop[weighed], &mean[weighed]);
    printf(
        "  left out by DROP: %.2f %%, by weights %.2f %%; by the mean of steps: %.2f %%, %.2f %%\n",
        (double)drop[0] / 2000, (double)drop[1] / 2000, (double)mean[0] / 2000,
        (double)mean[1] / 2000);
    CHECK(drop[0] > 20 * 1000 && drop[0] < 20 * 3000 && drop[1] < 20 * 20);
    CHECK(mean[0] > 20 * 200 && mean[0] < 20 * 900 && mean[1] < 20 * 10);
}

/* ---- cells ---- */

static void cells__one_less_than_the_least__refused(void) {
    found_rig r;
    dlp_pipe *p = NULL;
    dlp_error err;
    for (int last = 0; last < 3; last++) {
        /* 4 streams, 4 rows: of PARTIAL and PAD one more tells the end, of DROP 4 */
        uint32_t least = 4 * (last == DLP_LAST_DROP ? 8 : 5);
        found_init(&r, seen, 40, 9);
        for (int i = 0; i < 40; i++) seen->counts[i] = 1;
        r.d.pipe.streams = 4;
        r.d.batch_size = 16;
        r.d.drop_last = last;
        r.d.parts.queue_size = least - 1;
        CHECK(dlp_loader_open(&p, &r.d, &err) == DLP_ERR_ARG);
        CHECK(strcmp(err.field, "queue.capacity") == 0);
        CHECK(strstr(err.message, last == DLP_LAST_DROP ? "32 parts" : "20 parts") != NULL);
        r.d.parts.queue_size = least;
        for (int workers = 0; workers < 3; workers++) {
            r.d.parts.workers.num_workers = workers ? workers : DLP_NONE;
            r.d.num_workers = workers;
            CHECK(found_run(&r, INT64_MAX, NULL) == batches(&r));
        }
    }
}

/* min_items is taken for what it says: where it is not so, load is told. */
static void cells__min_items__fewer_are_enough(void) {
    found_rig r;
    found_init(&r, seen, 40, 9);
    for (int i = 0; i < 40; i++) seen->counts[i] = i % 3 ? 4 + (uint32_t)i % 6 : 0;
    r.d.parts.min_items = 4;
    r.d.parts.queue_size = 3; /* 9 rows: from within a part, two more */
    CHECK(found_run(&r, INT64_MAX, NULL) == batches(&r));
}

/* So many rows, from anywhere in a part on, lie in so many parts. */
static uint32_t lie_in(uint32_t rows, uint32_t least) { return 1 + (rows - 1 + least - 1) / least; }

/* Cells that a stream needs, which is asked for `look` rows at once. */
static uint32_t cells_needed(const found_rig *r, uint32_t look) {
    const uint32_t least = r->d.parts.min_items > 0 ? (uint32_t)r->d.parts.min_items : 1;
    const uint32_t steps = (uint32_t)r->d.pipe.steps_per_epoch, window = r->d.parts.window;
    const uint32_t streams = r->d.pipe.streams, m = r->d.batch_size / streams;
    const uint32_t each = ((uint32_t)r->d.parts.n_parts + streams - 1) / streams;
    uint32_t rows = look, need, w;
    if (window == 0) return lie_in(look, least);
    rows = (window - 1 + look + window - 1) / window * window;
    if (steps > 0 && rows > steps * m) rows = steps * m;
    need = lie_in(rows, least);
    w = lie_in(window, least);
    if (look <= window && need > w + (look - 1 < w ? look - 1 : w))
        need = w + (look - 1 < w ? look - 1 : w);
    return steps == 0 && need > each ? each : need;
}

/* Random counts with the least cells. */
static void cells__least__as_written_down(uint64_t seed) {
    static const uint32_t streams[] = {1, 2, 4, 8};
    for (int i = 0; i < test_share(100, 2000); i++) {
        found_rig r;
        uint32_t steps, look, window = test_pick(&seed, 2) ? 1 + test_pick(&seed, 40) : 0;
        const uint32_t most = 1 + test_pick(&seed, 12), least = 1 + test_pick(&seed, 4);
        found_init(&r, seen, 8 + test_pick(&seed, 40), most);
        counts(&r, test_pick(&seed, 4), &seed);
        if (least > 1 && least <= most) {
            r.d.parts.min_items = least;
            for (uint64_t k = 0; k < r.d.parts.n_parts; k++)
                if (seen->counts[k] > 0 && seen->counts[k] < least) seen->counts[k] = least;
        }
        r.d.pipe.streams = streams[test_pick(&seed, 4)];
        r.d.batch_size = 8 * (1 + test_pick(&seed, 3));
        r.d.drop_last = (int32_t)test_pick(&seed, 3);
        steps = test_pick(&seed, 2) ? 1 + test_pick(&seed, 40) : 0;
        look = r.d.batch_size / r.d.pipe.streams;
        if (steps == 0) look = r.d.drop_last == DLP_LAST_DROP ? 2 * look : look + 1;
        r.d.pipe.steps_per_epoch = steps;
        r.d.parts.window = window;
        r.d.parts.queue_size = cells_needed(&r, look) * r.d.pipe.streams;
        if (r.d.parts.queue_size > 1) { /* one less is refused */
            dlp_pipe *p = NULL;
            dlp_error err;
            r.d.parts.queue_size--;
            CHECK(dlp_loader_open(&p, &r.d, &err) == DLP_ERR_ARG);
            CHECK(strcmp(err.field, "queue.capacity") == 0);
            r.d.parts.queue_size++;
        }
        r.d.parts.workers.num_workers = (int32_t)test_pick(&seed, 4) - 1;
        r.d.num_workers = (int32_t)test_pick(&seed, 3);
        r.d.epochs = 2;
        if (!can_run(&r)) continue;
        CHECK(found_run(&r, INT64_MAX, NULL) == batches(&r));
    }
}

/* ---- resume ---- */

#define STATES 400
static dlp_state states[STATES], others[STATES];

static void resume__behind_any_batch__goes_on_exactly(void) {
    for (uint32_t i = 0; i < 6; i++) {
        static const uint32_t windows[] = {0, 17, 1000};
        found_rig r;
        int64_t all;
        uint64_t random = i;
        found_init(&r, seen, 30, 11);
        r.d.pipe.streams = 2;
        r.d.pipe.steps_per_epoch = i % 2 ? 50 : 0;
        r.d.parts.window = windows[i / 2];
        if (i % 3 == 1) r.d.parts.weights = any_weights(&random);
        r.d.epochs = 2;
        all = batches(&r);
        CHECK(all < STATES && found_run(&r, INT64_MAX, states) == all);
        r.d.parts.workers.num_workers = 5; /* the same states, whatever the schedule */
        r.d.parts.queue_size = i < 2 ? 60 : 1000;
        CHECK(found_run(&r, INT64_MAX, others) == all);
        CHECK(memcmp(states, others, (size_t)all * sizeof *states) == 0);
        for (int64_t k = 0; k < all; k++) {
            r.d.pipe.resume = &states[k];
            r.d.num_workers = (int32_t)(k % 3);
            r.d.parts.workers.num_workers = (int32_t)(k % 5) - 1;
            r.d.parts.queue_size = i < 2 && k % 2 ? 30 : 0;
            CHECK(found_run(&r, INT64_MAX, NULL) == all - k - 1);
        }
    }
}

/* The world size changes every few batches, through merged states, to the end. */
static void resume__other_ranks__goes_on_exactly(void) {
    for (uint32_t turns = 0; turns < 6; turns++) {
        uint64_t random = turns;
        int64_t steps = turns < 4 ? (int32_t)(turns % 2 * 40) : DLP_FOREVER;
        found_rig r;
        dlp_state merged, each[4];
        int64_t at = 0, all;
        uint32_t turn = 0;
        dlp_error err;
        found_init(&r, seen, 40, 11);
        if (steps == 0)
            for (int i = 0; i < 40; i++) seen->counts[i] = 6; /* all ranks' epochs are as long */
        r.d.pipe.streams = 4;
        r.d.pipe.steps_per_epoch = steps;
        r.d.pipe.uneven = 1;
        if (turns % 4 == 1) r.d.parts.weights = any_weights(&random);
        r.d.parts.window = turns % 4 / 2 * 13 + turns / 5 * 13;
        r.d.epochs = 2;
        all = steps == DLP_FOREVER ? 150 : batches(&r);
        while (at < all) {
            uint32_t world = 1u << turn % 3;
            int64_t n = 1 + turn++ % 4 < all - at ? 1 + turn % 4 : all - at;
            if (n > all - at) n = all - at;
            r.d.pipe.world_size = world;
            r.d.pipe.resume = at ? &merged : NULL;
            for (uint32_t rank = 0; rank < world; rank++) {
                r.d.pipe.rank = rank;
                CHECK(found_run(&r, n, states) == n);
                each[world - 1 - rank] = states[n - 1];
            }
            CHECK(dlp_state_merge(&merged, each, world, &err) == DLP_OK);
            at += n;
            if (test_failures > 5) return;
        }
        CHECK(at == all);
    }
}

static void state__of_other_ranks__named(void) {
    found_rig r;
    dlp_state two[2], out;
    dlp_error err;
    dlp_pipe *p = NULL;
    found_init(&r, seen, 40, 11);
    r.d.pipe.streams = 4;
    r.d.pipe.steps_per_epoch = 20;
    r.d.pipe.world_size = 2;
    for (uint32_t rank = 0; rank < 2; rank++) {
        r.d.pipe.rank = rank;
        CHECK(found_run(&r, 3, states) == 3);
        two[rank] = states[2];
    }
    r.d.pipe.resume = &two[0]; /* rank 1 with rank 0's */
    CHECK(dlp_loader_open(&p, &r.d, &err) == DLP_ERR_RESUME);
    CHECK(strstr(err.message, "stream 2") && strstr(err.message, "dlp_state_merge"));
    r.d.pipe.rank = 0;
    CHECK(dlp_state_merge(&out, two, 2, &err) == DLP_OK);
    two[1] = states[1]; /* a batch before */
    CHECK(dlp_state_merge(&out, two, 2, &err) == DLP_ERR_RESUME &&
          strstr(err.message, "states[1]"));
    two[1].bytes[100] ^= 1;
    CHECK(dlp_state_merge(&out, two, 2, &err) == DLP_ERR_CORRUPT);
    CHECK(dlp_state_merge(&out, NULL, 2, &err) == DLP_ERR_ARG);
}

/* The state of a rank after three batches of the one stream that two ranks share. Each part has
   `items` items there. */
static void shared_state(uint32_t rank, uint32_t items, dlp_state *to) {
    found_rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    found_init(&r, seen, 40, 11);
    for (int i = 0; i < 40; i++) seen->counts[i] = items;
    r.d.pipe.shared_streams = 1;
    r.d.pipe.steps_per_epoch = 20;
    r.d.pipe.world_size = 2;
    r.d.pipe.rank = rank;
    CHECK(found_open(&r, &p) == DLP_OK);
    for (int i = 0; i < 3 && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; i++) {
        CHECK(dlp_pipe_state(p, b, to) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* With shared streams this is all that tells two ranks that they read other data. */
static void merge__of_ranks_with_other_data__refused(void) {
    dlp_state two[2], out;
    dlp_error err;
    shared_state(0, 6, &two[0]);
    shared_state(1, 6, &two[1]);
    CHECK(memcmp(&two[0], &two[1], sizeof *two) == 0);
    CHECK(dlp_state_merge(&out, two, 2, &err) == DLP_OK);
    CHECK(memcmp(&out, &two[0], sizeof out) == 0);
    shared_state(1, 7, &two[1]);
    CHECK(dlp_state_merge(&out, two, 2, &err) == DLP_ERR_RESUME);
    CHECK(strstr(err.message, "states[1] has stream 0") && strstr(err.message, "another place"));
}

static void resume__fewer_items_than_given__names_the_part(void) {
    found_rig r;
    dlp_error err;
    dlp_pipe *p = NULL;
    int rc;
    found_init(&r, seen, 4, 30);
    for (int i = 0; i < 4; i++) seen->counts[i] = 30;
    r.d.shuffle = 0;
    CHECK(found_run(&r, 5, states) == 5); /* 40 rows: 10 of part 1 */
    seen->counts[1] = 9;
    r.d.pipe.resume = &states[4];
    rc = dlp_loader_open(&p, &r.d, &err);
    if (rc == DLP_OK) {
        dlp_batch *b;
        rc = dlp_pipe_next_timeout(p, &b, 20000);
        err = *dlp_pipe_error(p);
        dlp_pipe_close(p);
    }
    CHECK(rc == DLP_ERR_RESUME && strstr(err.message, "part 1 has 9 items") != NULL);
    seen->counts[1] = 10; /* as many: nothing of it is left, and it goes on */
    CHECK(found_open(&r, &p) == DLP_OK);
    dlp_pipe_close(p);
}

/* Another part has the items of a window half given, or fewer items are left of it than were. */
static void resume__other_items_in_the_window__refused(void) {
    found_rig r;
    dlp_pipe *p;
    dlp_batch *b;
    found_init(&r, seen, 12, 30);
    for (int i = 0; i < 12; i++) seen->counts[i] = 5;
    r.d.parts.window = 30;
    r.d.shuffle = 0;
    CHECK(found_run(&r, 6, states) == 6); /* 8 each: the second window has 18 of its rows given */
    r.d.pipe.resume = &states[5];
    for (int how = 0; how < 3; how++) {
        for (uint32_t i = 0; i < 12; i++)
            seen->counts[i] = i < 8 || how == 2 ? 5 : how == 0 ? 5 + i % 2 : 0;
        CHECK(found_open(&r, &p) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == (how == 2 ? DLP_OK : DLP_ERR_RESUME));
        if (how < 2) CHECK(strstr(dlp_pipe_error(p)->message, "window of stream 0") != NULL);
        if (how == 2) dlp_pipe_release(p, b);
        dlp_pipe_close(p);
    }
}

static void resume_refused(found_rig *r, const char *field) {
    dlp_pipe *p = NULL;
    dlp_error err;
    int rc = dlp_loader_open(&p, &r->d, &err);
    CHECK(rc == DLP_ERR_RESUME && strstr(err.message, field) != NULL);
    if (rc == DLP_OK)
        dlp_pipe_close(p);
    else if (rc != DLP_ERR_RESUME)
        found_say(rc, &err);
}

static void resume__other_order__names_the_field(void) {
    static uint64_t weights[20];
    found_rig r, other;
    found_init(&r, seen, 20, 9);
    CHECK(found_run(&r, 3, states) == 3);
    r.d.pipe.resume = &states[2];
    other = r, other.d.parts.n_parts--, resume_refused(&other, "n_items");
    other = r, other.d.parts.manifest_id = 1, resume_refused(&other, "manifest");
    other = r, other.d.pipe.streams = 2, resume_refused(&other, "streams");
    other = r, other.d.pipe.steps_per_epoch = 9, resume_refused(&other, "steps_per_epoch");
    other = r, other.d.parts.max_items = 10, resume_refused(&other, "max_items");
    other = r, other.d.parts.window = 3, resume_refused(&other, "window");
    other = r, other.d.seed = 1, resume_refused(&other, "seed");
    other = r, other.d.parts.weights = weights, resume_refused(&other, "weights");
    r.d.parts.weights = weights;
    r.d.pipe.resume = NULL;
    CHECK(found_run(&r, 3, states) == 3);
    r.d.pipe.resume = &states[2];
    CHECK(found_run(&r, 3, NULL) == 3);
    weights[19]++;
    resume_refused(&r, "weights");
}

/* ---- epochs that are left, seeks ---- */

static void seek__to_a_state__goes_on_exactly(uint32_t window) {
    found_rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    dlp_state at;
    uint64_t random = 3;
    int64_t all;
    found_init(&r, seen, 30, 11);
    r.d.pipe.streams = 2;
    r.d.parts.window = window;
    r.d.epochs = 3;
    all = batches(&r);
    CHECK(found_run(&r, INT64_MAX, states) == all);
    CHECK(found_open(&r, &p) == DLP_OK);
    for (int i = 0; i < test_share(60, 600); i++) {
        int64_t to = test_pick(&random, (uint32_t)all - 6);
        CHECK(dlp_pipe_seek(p, &states[to], &err) == DLP_OK);
        for (int k = 0; k < 3; k++) {
            if (dlp_pipe_next_timeout(p, &b, 20000) != DLP_OK) break;
            found_write_down(&r, b->epoch, &order);
            CHECK(found_batch_same(&r, b, &order));
            CHECK(dlp_pipe_state(p, b, &at) == DLP_OK);
            CHECK(memcmp(&at, &states[to + 1 + k], sizeof at) == 0);
            dlp_pipe_release(p, b);
        }
        if (i % 8 == 0) CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
    }
    CHECK(dlp_pipe_state_at(p, 1, 2, &at) == DLP_ERR_UNSUPPORTED);
    CHECK(dlp_pipe_state_at(p, 1, 0, &at) == DLP_OK && dlp_pipe_seek(p, &at, &err) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->epoch == 1 && b->in_epoch == 0);
    dlp_pipe_release(p, b);
    CHECK(dlp_pipe_batches_per_epoch(p) == -1);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void next_epoch__anywhere__next_one_is_whole(void) {
    uint64_t random = 5;
    for (int i = 0; i < test_share(40, 400); i++) {
        found_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t stay = test_pick(&random, 9), n = 0, epoch = UINT64_MAX, whole = 0;
        int rc, ok = 1;
        found_init(&r, seen, 20, 12);
        r.d.epochs = 5;
        r.d.pipe.steps_per_epoch = i % 2 ? 20 : 0;
        r.d.parts.window = test_pick(&random, 2) * test_pick(&random, 50);
        r.d.parts.workers.num_workers = (int32_t)test_pick(&random, 4) - 1;
        r.d.num_workers = (int32_t)test_pick(&random, 3);
        r.d.sampler.threaded = (int32_t)test_pick(&random, 2);
        r.d.pipe.prefetch_factor = 1 + (int32_t)test_pick(&random, 4);
        if (found_open(&r, &p) != DLP_OK) break;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            uint64_t k = b->in_epoch, e = b->epoch;
            if (e != epoch) whole = found_write_down(&r, epoch = e, &order);
            ok &= found_batch_same(&r, b, &order);
            dlp_pipe_release(p, b);
            n++;
            if (e % 2 == 0 && k == stay) ok &= dlp_pipe_next_epoch(p) == DLP_OK;
        }
        CHECK(rc == DLP_END && ok && seen->wrong == 0 && n == 3 * (stay + 1) + 2 * whole);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- ends ---- */

static void end__streams_of_any_length__rules_hold(void) {
    for (int last = 0; last < 3; last++)
        for (uint32_t streams = 1; streams <= 4; streams *= 2) {
            found_rig r;
            found_init(&r, seen, 4, 100);
            r.d.shuffle = 0;
            r.d.pipe.streams = streams;
            r.d.drop_last = last;
            r.d.epochs = 2;
            seen->counts[0] = 100; /* far longer, 0, one, some */
            seen->counts[1] = last == DLP_LAST_DROP ? 9 : 0;
            seen->counts[2] = last == DLP_LAST_DROP ? 4 : 1;
            seen->counts[3] = 7;
            CHECK(found_run(&r, INT64_MAX, NULL) == batches(&r));
            if (streams == 4) CHECK(batches(&r) == 2 * (last == DLP_LAST_DROP ? 2 : 50));
        }
}

/* Passes without an end: states behind hundreds of batches of them, at which others go on. */
static void end__forever__passes_follow_each_other(void) {
    static dlp_state far[600];
    for (uint32_t i = 0; i < 6; i++) {
        static const uint32_t windows[] = {0, 13, 200};
        found_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_monitor *m = NULL;
        char who[64];
        found_init(&r, seen, 12, 9); /* 63 items or so a pass */
        r.d.pipe.streams = 1 + i % 2;
        r.d.parts.window = windows[i / 2];
        r.d.pipe.steps_per_epoch = DLP_FOREVER;
        r.d.pipe.prefetch_factor = 1 + (int32_t)i;
        CHECK(found_run(&r, 600, far) == 600); /* 70 passes and more, and none is marked as last */
        for (uint32_t k = 1; k < 600; k += 37) {
            r.d.pipe.resume = &far[k];
            r.d.parts.workers.num_workers = (int32_t)(k % 4) - 1;
            r.d.sampler.threaded = k % 2 != 0;
            CHECK(found_run(&r, 30, states) == 30);
            for (uint32_t j = 0; j < 30 && k + 1 + j < 600; j++)
                CHECK(memcmp(&states[j], &far[k + 1 + j], sizeof *states) == 0);
        }
        r.d.pipe.resume = NULL;
        r.d.pipe.name = "endless";
        CHECK(found_open(&r, &p) == DLP_OK);
        CHECK(dlp_pipe_batches_per_epoch(p) == DLP_FOREVER);
        snprintf(who, sizeof who, "%d:endless", (int)getpid());
        CHECK(dlp_monitor_open(&m, who, NULL) == DLP_OK);
        CHECK(dlp_monitor_batches_per_epoch(m) == DLP_FOREVER);
        dlp_monitor_close(m);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
        CHECK(dlp_pipe_next_epoch(p) == DLP_OK); /* the only one */
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* As of any other order: a state of another rule of its end does not fit. */
static void end__forever__other_rule_refused(void) {
    found_rig r;
    found_init(&r, seen, 20, 9);
    r.d.pipe.steps_per_epoch = DLP_FOREVER;
    CHECK(found_run(&r, 3, states) == 3);
    r.d.pipe.resume = &states[2];
    r.d.pipe.steps_per_epoch = INT64_C(1) << 40;
    resume_refused(&r, "steps_per_epoch");
    r.d.pipe.steps_per_epoch = 0;
    resume_refused(&r, "steps_per_epoch");
}

static int fails(found_rig *r, dlp_error *err) {
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc = dlp_loader_open(&p, &r->d, err);
    if (rc != DLP_OK) return rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    *err = *dlp_pipe_error(p);
    dlp_pipe_close(p);
    return rc;
}

/* Each pass deals the inputs again. All streams are here, so two passes are enough. While a thread
   that loads stands still, the other streams go on to look; so the least of a few runs counts. */
static void end__nothing_in_any_stream__found_in_two_passes(void) {
    for (uint32_t world = 1; world <= 4; world *= 2) {
        const uint32_t most = (world == 1 ? 8 : 16) * 40; /* up to 64 were asked for ahead */
        uint32_t least = UINT32_MAX;
        for (int t = 0; t < 10 && least >= most; t++) {
            found_rig r;
            dlp_error err;
            found_init(&r, seen, 40, 5);
            memset(seen->counts, 0, sizeof seen->counts);
            r.d.pipe.streams = 4;
            r.d.pipe.steps_per_epoch = 3;
            r.d.parts.queue_size = 64;
            r.d.pipe.world_size = world;
            CHECK(fails(&r, &err) == DLP_ERR_CALLBACK && strstr(err.message, "rank 0") != NULL);
            CHECK(strstr(err.message, " inputs of rank 0 gave no item") != NULL);
            if (seen->begun < least) least = seen->begun;
        }
        CHECK(least < most);
    }
}

/* One part in 40 has items. Which stream has it changes with each pass, so each waits for some. */
static void end__few_items__are_waited_for(void) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        found_rig r;
        found_init(&r, seen, 40, 5);
        memset(seen->counts, 0, sizeof seen->counts);
        seen->counts[7] = 5;
        r.d.pipe.streams = 2;
        r.d.pipe.steps_per_epoch = 12;
        r.d.seed = seed;
        r.d.batch_size = 4;
        CHECK(found_run(&r, INT64_MAX, NULL) == 12);
    }
}

static void end__nothing_at_all__an_error(void) {
    found_rig r;
    dlp_error err;
    found_init(&r, seen, 8, 5);
    memset(seen->counts, 0, sizeof seen->counts);
    CHECK(fails(&r, &err) == DLP_ERR_CALLBACK && strstr(err.message, "no item") != NULL);
    r.d.pipe.steps_per_epoch = DLP_FOREVER;
    CHECK(fails(&r, &err) == DLP_ERR_CALLBACK && strstr(err.message, "rank 0") != NULL);
    seen->begun = 0;
    r.d.pipe.steps_per_epoch = 3;
    CHECK(fails(&r, &err) == DLP_ERR_CALLBACK && strstr(err.message, "rank 0") != NULL);
    CHECK(seen->begun < 100); /* two passes, and what was asked for ahead */
    r.d.pipe.steps_per_epoch = 0;
    r.d.drop_last = DLP_LAST_DROP;
    seen->counts[3] = 5;
    CHECK(fails(&r, &err) == DLP_ERR_CALLBACK && strstr(err.message, "no full batch") != NULL);
}

/* ---- failures ---- */

static int load_none(void *user, dlp_part *part) {
    (void)user;
    return dlp_fail(part->call, ENOENT, "no such file");
}

static void fail__raise__error_of_the_batch_that_wants_it(void) {
    found_rig r;
    dlp_pipe *p;
    dlp_batch *b;
    int n = 0, rc;
    found_init(&r, seen, 8, 10);
    for (int i = 0; i < 8; i++) seen->counts[i] = 10;
    r.d.shuffle = 0;
    seen->fail_part = 3; /* items 0..19 come before: batches 0 and 1 */
    CHECK(found_open(&r, &p) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        dlp_pipe_release(p, b);
        n++;
    }
    CHECK(n == 2 && rc == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "part 2: torn") != NULL);
    CHECK(dlp_pipe_error(p)->position == 20);
    CHECK(dlp_pipe_error(p)->has_item == 1 && dlp_pipe_error(p)->index == 2);
    dlp_pipe_close(p);
}

/* Batches until the pipe ends or fails; *err: why. */
static int64_t batches_before(found_rig *r, dlp_error *err, int *rc) {
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int64_t n = 0;
    if ((*rc = dlp_loader_open(&p, &r->d, err)) != DLP_OK) return -1;
    while ((*rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        n++;
        dlp_pipe_release(p, b);
    }
    *err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return n;
}

/* A part that can't be read has rows that nobody knows: its epoch does not end before it. */
static void fail__last_of_its_stream__is_never_lost(void) {
    static const uint32_t each[] = {20, 24}; /* the rows before end inside a batch, or with one */
    for (int i = 0; i < 2 * 2 * 2 * 3; i++) {
        found_rig r;
        dlp_error err;
        int rc;
        const uint64_t window = i / 4 % 2 ? 10 : 0, rows = 3 * each[i % 2];
        int64_t n;
        found_init(&r, seen, 4, 24);
        for (int k = 0; k < 4; k++) seen->counts[k] = each[i % 2];
        seen->fail_part = 4;
        r.d.shuffle = 0;
        r.d.epochs = 2;
        r.d.drop_last = i / 8 == 0 ? DLP_LAST_DROP : i / 8 == 1 ? DLP_LAST_PARTIAL : DLP_LAST_PAD;
        r.d.parts.window = (uint32_t)window;
        r.d.parts.workers.num_workers = i / 2 % 2 ? DLP_NONE : 2;
        n = batches_before(&r, &err, &rc);
        CHECK(rc == DLP_ERR_CALLBACK && strstr(err.message, "part 3: torn") != NULL);
        CHECK(err.has_item == 1 && err.index == 3 && err.epoch == 0);
        CHECK(n == (int64_t)((window ? rows / window * window : rows) / 8));
        CHECK(err.position == (window ? rows / window * window : rows));
    }
}

/* If another stream ends before the failed part would give a row, the epoch ends there, whichever
   of the two is known first. */
static void fail__behind_the_end__epoch_ends(void) {
    for (int i = 0; i < 8; i++) {
        found_rig r;
        dlp_error err;
        int rc;
        const bool fails_first = i % 2;
        found_init(&r, seen, 8, 10);
        for (int k = 0; k < 8; k++) seen->counts[k] = 10;
        seen->fail_part = 5; /* the third of stream 0, which gives 20 rows before it */
        for (int k = 1; k < 8; k += 2) seen->counts[k] = fails_first ? 10 : 4; /* stream 1 */
        seen->sleep_us = i / 2 % 2 ? 2000 : 0; /* stream 0 is slow */
        r.d.shuffle = 0;
        r.d.drop_last = DLP_LAST_DROP;
        r.d.pipe.streams = 2;
        r.d.parts.workers.num_workers = i / 4 ? 3 : 1;
        CHECK(batches_before(&r, &err, &rc) == (fails_first ? 5 : 4));
        CHECK(rc == (fails_first ? DLP_ERR_CALLBACK : DLP_END));
        if (fails_first) CHECK(err.index == 4 && err.position == 40);
    }
}

/* Inputs that can't be read take the place of no rows, so none is waited for behind them. */
static void fail__all__returns_the_cause(void) {
    found_rig r;
    dlp_error err;
    int rc;
    found_init(&r, seen, FOUND_MAX, 100);
    r.d.parts.load = load_none;
    r.d.parts.min_items = 100;
    r.d.batch_size = 64;
    for (int i = 0; i < 4; i++) {
        r.d.drop_last = i % 2 ? DLP_LAST_DROP : DLP_LAST_PARTIAL;
        r.d.pipe.steps_per_epoch = i / 2 ? 10 : 0;
        CHECK(batches_before(&r, &err, &rc) == 0 && rc == DLP_ERR_CALLBACK);
        CHECK(strstr(err.message, "no such file") != NULL && err.has_item == 1);
    }
    r.d.parts.workers.on_error = DLP_ON_ERROR_DROP;
    r.d.pipe.steps_per_epoch = 0;
    CHECK(batches_before(&r, &err, &rc) == 0 && rc == DLP_ERR_CALLBACK);
    CHECK(strstr(err.message, "the first left out") && strstr(err.message, "no such file"));
}

/* The error of an epoch without a batch tells the first part that was left out. */
static void fail__drop__epoch_of_nothing_tells_the_cause(void) {
    found_rig r;
    dlp_error err;
    int rc;
    found_init(&r, seen, 8, 10);
    for (int k = 0; k < 8; k++) seen->counts[k] = k == 2 ? 7 : 0;
    seen->fail_part = 7;
    r.d.drop_last = DLP_LAST_DROP;
    r.d.parts.workers.on_error = DLP_ON_ERROR_DROP;
    CHECK(batches_before(&r, &err, &rc) == 0 && rc == DLP_ERR_CALLBACK);
    CHECK(strstr(err.message, "no full batch") && strstr(err.message, "the first left out"));
    CHECK(strstr(err.message, "part 6: torn") != NULL);
}

static void fail__drop__has_no_items_and_is_counted(void) {
    found_rig r;
    dlp_error err;
    found_init(&r, seen, 20, 10);
    seen->fail_part = 4;
    r.d.epochs = 2;
    r.d.parts.workers.on_error = DLP_ON_ERROR_DROP;
    r.d.parts.workers.max_skips = 2;
    CHECK(found_run(&r, INT64_MAX, NULL) == batches(&r));
    r.d.parts.workers.max_skips = 1;
    CHECK(fails(&r, &err) == DLP_ERR_BUDGET);
}

static int load_wrong(void *user, dlp_part *part) {
    int rc = found_load(user, part);
    if (part->index == 2) part->items = *(uint32_t *)&((found_seen *)user)->sleep_us;
    return rc;
}

static void fail__items_out_of_range__names_the_part(void) {
    found_rig r;
    dlp_error err;
    found_init(&r, seen, 8, 10);
    r.d.parts.load = load_wrong;
    r.d.parts.workers.num_workers = DLP_NONE;
    seen->sleep_us = 11;
    CHECK(fails(&r, &err) == DLP_ERR_LENGTH && strstr(err.message, "part 2: load set items to 11"));
    r.d.parts.min_items = 3;
    for (int i = 0; i < 8; i++) seen->counts[i] = 3;
    seen->sleep_us = 2;
    CHECK(fails(&r, &err) == DLP_ERR_LENGTH && strstr(err.message, "min_items is 3"));
}

/* ---- windows of very many inputs ---- */

enum { WIDE_WINDOW = 70000, WIDE_ITEMS = 300000 };

static int wide_fetch(void *user, dlp_item *item) {
    (void)user;
    *(uint64_t *)item->data[0] = item->index;
    return 0;
}

static int wide_keep(void *user, const dlp_item *item) {
    (void)user;
    return *(const uint64_t *)item->data[0] % 2 == 0;
}

/* Behind a filter each item has a cell of its own. A window and the rows of a batch are enough of
   them, and each window has just its own items. */
static void window__of_70000_inputs__in_cells_of_one_window(void) {
    static uint8_t times[WIDE_ITEMS / 2];
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = WIDE_ITEMS}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = wide_fetch, .fields = &field, .n_fields = 1, .writes_all_bytes = 1}},
        {.name = "keep",
         .verb = DLP_FILTER,
         .filter = {.keep = wide_keep},
         .workers = {.num_workers = 2}},
        {.name = "window", .verb = DLP_WINDOW, .window = {.items = WIDE_WINDOW}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 50}}};
    const dlp_pipe_desc run = {.prefetch_factor = 2};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    dlp_plan plan;
    uint64_t n = 0, wrong = 0, moved = 0;
    if (RIG_ASAN) return; /* a cell has red zones of pages */
    CHECK(dlp_nodes_plan(nodes, 5, &run, &plan, &err) == DLP_OK);
    CHECK(plan.total_bytes < UINT64_C(1000) * WIDE_WINDOW);
    if (dlp_pipe_open(&p, nodes, 5, &run, &err) != DLP_OK) found_say(1, &err);
    CHECK(p != NULL);
    while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        const uint64_t *x = b->fields[0].data;
        for (uint32_t i = 0; i < b->count && n < WIDE_ITEMS / 2; i++, n++) {
            const uint64_t kept = x[i] / 2;
            wrong += kept >= WIDE_ITEMS / 2 || kept / WIDE_WINDOW != n / WIDE_WINDOW;
            moved += kept != n;
            if (kept < WIDE_ITEMS / 2) times[kept]++;
        }
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    for (uint32_t i = 0; i < WIDE_ITEMS / 2; i++) wrong += times[i] != 1;
    CHECK(n == WIDE_ITEMS / 2 && wrong == 0 && moved > n / 2);
    if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Return the most cells that the only stage with cells had loaded or was loading, as the pipe was
   taken to its end; after `from` batches. *cells: number of its cells. */
static uint32_t most_loaded(dlp_pipe *p, int from, uint32_t *cells) {
    uint32_t most = 0;
    dlp_stats s;
    dlp_batch *b;
    for (int n = 0; dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; n++) {
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        if (n < from || n % 8 != 0) continue;
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        for (uint32_t i = 0; i < s.n_stages; i++) {
            const dlp_stage_stats *st = &s.stages[i];
            if (st->cells == 0) continue;
            *cells = st->cells;
            if (st->loaded + st->loading > most) most = st->loaded + st->loading;
        }
    }
    return most;
}

/* A window needs a cell for each of its items at worst. Cheap inputs share cells, so it uses few of
   them, and these stay in a cache. On a busy machine inputs may look dear: then each has its own.
   Returns true if a part of the cells was enough. */
static bool window_of_cheap_inputs(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U64};
    const dlp_node nodes[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = 1 << 18}},
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = wide_fetch, .fields = &field, .n_fields = 1}},
                              {.name = "keep",
                               .verb = DLP_FILTER,
                               .filter = {.keep = wide_keep},
                               .workers = {.num_workers = 1}},
                              {.name = "window", .verb = DLP_WINDOW, .window = {.items = 4096}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 64}}};
    const dlp_pipe_desc run = {.prefetch_factor = 4};
    dlp_pipe *p = NULL;
    dlp_error err;
    uint32_t cells = 0, most;
    if (dlp_pipe_open(&p, nodes, 5, &run, &err) != DLP_OK) found_say(1, &err);
    CHECK(p != NULL);
    if (p == NULL) return true;
    most = most_loaded(p, 1024, &cells);
    CHECK(cells >= 4096 && most > 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return most <= cells / 4 * 3;
}

static void window__of_cheap_inputs__uses_few_cells(void) {
    int tries = 1;
    if (RIG_ASAN) return; /* no input is cheap */
    while (!window_of_cheap_inputs() && tries < 20) tries++;
    CHECK(tries < 20);
}

/* ---- refusals ---- */

static void refused(found_rig *r, const char *field, const char *words) {
    dlp_pipe *p = NULL;
    dlp_error err;
    int rc = dlp_loader_open(&p, &r->d, &err);
    CHECK(rc != DLP_OK && strstr(err.field, field) != NULL && strstr(err.message, words) != NULL);
    if (rc == DLP_OK)
        dlp_pipe_close(p);
    else if (strstr(err.field, field) == NULL || strstr(err.message, words) == NULL)
        found_say(rc, &err);
}

static void desc__what_is_not_possible__refused(void) {
    static uint64_t weights[40];
    found_rig r, x;
    found_init(&r, seen, 20, 9);
    x = r, x.d.pipe.unordered = 1, refused(&x, "unordered", "rows come in order");
    x = r, x.d.cache.bytes = 1 << 20, refused(&x, "", "share workers"); /* needs: cache */
    x = r, x.d.pipe.streams = 3, refused(&x, "streams", "multiple of streams");
    x = r, x.d.pipe.streams = 2, x.d.pipe.world_size = 4;
    refused(&x, "streams", "multiple of world_size");
    x = r, x.d.pipe.streams = 4, x.d.pipe.world_size = 4;
    refused(&x, "steps_per_epoch", "uneven = 1");
    x = r, x.d.pipe.steps_per_epoch = -1, refused(&x, "steps_per_epoch", "or DLP_FOREVER");
    x = r, x.d.pipe.steps_per_epoch = -3, refused(&x, "steps_per_epoch", "or DLP_FOREVER");
    x = r, x.d.parts.min_items = 10, refused(&x, "min_items", "0..max_items");
    x = r, x.d.parts.n_parts = 4, x.d.pipe.streams = 8,
    refused(&x, "streams", "number of parts, 4");
    x = r, x.d.dataset.n_items = 7, refused(&x, "n_items", "must be 0");
    x = r, x.d.parts.workers.on_error = DLP_ON_ERROR_REPLACE, refused(&x, "on_error", "_DROP");
    x = r, x.d.parts.n_parts = 64, x.d.pipe.streams = 64, x.d.batch_size = 64;
    x.d.parts.max_items = UINT64_C(1) << 30, x.d.pipe.steps_per_epoch = INT64_C(1) << 30;
    refused(&x, "streams", "a state has room for");
    x = r, x.d.parts.n_parts = 1 << 24, x.d.parts.window = 5000000;
    refused(&x, "queue.capacity", "a batch and its windows may need 5000008 parts");
    x = r, x.d.parts.window = (1 << 24) + 1, refused(&x, "window", "0..2^24");
    x = r, x.d.parts.max_items = 0, refused(&x, "items", "max_items");
    weights[7] = (UINT64_C(1) << 62) + 1;
    x = r, x.d.parts.weights = weights, refused(&x, "weights", "weights[7] = 4611686018427387905");
    x = r, x.d.parts.weights = weights, x.d.parts.max_items = 0, x.d.parts.items = weights + 20;
    refused(&x, "weights", "with items or count");
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    SHM_NEEDS("found");
    seen = shm_shared(sizeof *seen);
    order__golden__never_changes();
    run__any_wiring__as_written_down(seed);
    kill__part_workers_with_other_counts__as_written_down(seed);
    weights__of_items__streams_end_together();
    cells__one_less_than_the_least__refused();
    cells__min_items__fewer_are_enough();
    cells__least__as_written_down(seed);
    window__of_70000_inputs__in_cells_of_one_window();
    window__of_cheap_inputs__uses_few_cells();
    resume__behind_any_batch__goes_on_exactly();
    resume__other_ranks__goes_on_exactly();
    state__of_other_ranks__named();
    merge__of_ranks_with_other_data__refused();
    resume__fewer_items_than_given__names_the_part();
    resume__other_items_in_the_window__refused();
    resume__other_order__names_the_field();
    seek__to_a_state__goes_on_exactly(0);
    seek__to_a_state__goes_on_exactly(19);
    next_epoch__anywhere__next_one_is_whole();
    end__streams_of_any_length__rules_hold();
    end__forever__passes_follow_each_other();
    end__forever__other_rule_refused();
    end__few_items__are_waited_for();
    end__nothing_at_all__an_error();
    end__nothing_in_any_stream__found_in_two_passes();
    fail__raise__error_of_the_batch_that_wants_it();
    fail__last_of_its_stream__is_never_lost();
    fail__behind_the_end__epoch_ends();
    fail__all__returns_the_cause();
    fail__drop__epoch_of_nothing_tells_the_cause();
    fail__drop__has_no_items_and_is_counted();
    fail__items_out_of_range__names_the_part();
    desc__what_is_not_possible__refused();
    CHECK(shm_mappings() == 0);
    return test_end("found");
}
