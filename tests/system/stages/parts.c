/* needs: parts split */
/* Part queues: the order against one that is written down the slow way, what is loaded when, what
   becomes of a load that fails, where the consumer waits and where not. parts [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/inside_parts.h"
#include "../../rig/parts_rig.h"

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
        {1, 0, 1, 0, {204, 200, 205, 203}, UINT64_C(0x18eb932526d3c36e)},
        {4, 0, 1, 0, {204, 200, 189, 192}, UINT64_C(0x4448dbe1c305f72a)},
        {4, 0, 1, 3, {167, 163, 18, 8}, UINT64_C(0x4bc2cdef2fde2334)},
        {2, 90, 1, 1, {314, 329, 313, 324}, UINT64_C(0x8ff2a4caf58e14f4)},
    };
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        parts_rig r;
        uint64_t hash;
        int before = test_failures;
        parts_init(&r, &seen, 37, NULL);
        r.d.pipe.streams = golden[i].streams;
        r.d.pipe.steps_per_epoch = golden[i].steps;
        r.d.shuffle = golden[i].shuffle;
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
    r.d.pipe.streams = 4;
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
    static const int32_t workers[] = {DLP_NONE, 1, 2, 5};
    parts_rig r;
    uint64_t items[PARTS_MAX], n = 1 + test_pick(random, 40);
    int before = test_failures;
    if (before > 5) return;
    for (uint64_t i = 0; i < n; i++) items[i] = test_pick(random, 4) ? test_pick(random, 30) : 0;
    items[test_pick(random, (uint32_t)n)] = 9;
    parts_init(&r, &seen, n, items);
    r.d.pipe.streams = streams[test_pick(random, 4)];
    r.d.batch_size = 8 * (1 + test_pick(random, 5));
    r.d.drop_last = r.total >= r.d.batch_size ? (int32_t)test_pick(random, 3) : 0;
    if (test_pick(random, 4) == 0) r.d.pipe.steps_per_epoch = 1 + test_pick(random, 12);
    r.d.shuffle = (int32_t)test_pick(random, 2);
    r.d.parts.shuffle_items = (int32_t)test_pick(random, 2);
    r.d.parts.queue_size = test_pick(random, 2) ? 0 : 50;
    r.d.parts.workers.num_workers = workers[test_pick(random, 4)];
    r.d.num_workers = workers[test_pick(random, 4)];
    r.d.sampler.threaded = (int32_t)test_pick(random, 2);
    r.d.epochs = 1 + test_pick(random, 4);
    r.d.pipe.prefetch_factor = (int32_t)test_pick(random, 5);
    r.d.pipe.unordered = test_pick(random, 4) == 0;
    if (test_pick(random, 4) == 0) r.d.collate = dlp_collate_pad;
    if (test_pick(random, 4) == 0) r.d.workers.dispatch = DLP_DISPATCH_BATCHES;
    r.d.pipe.world_size = 1 + test_pick(random, 4);
    r.d.pipe.allow_uneven = 1;
    if (r.total < r.d.pipe.streams) r.d.pipe.steps_per_epoch = 0;
    for (uint32_t rank = 0; rank < r.d.pipe.world_size; rank++) {
        r.d.pipe.rank = rank;
        CHECK(parts_run_on(&r, 0) == (int64_t)parts_batches(&r) * r.d.epochs);
    }
    if (test_failures != before)
        printf("  parts %d items %d streams %u batch %u last %d steps %d queue %u workers %d %d "
               "threaded %d world %u prefetch %d\n",
               (int)n, (int)r.total, r.d.pipe.streams, r.d.batch_size, r.d.drop_last,
               (int)r.d.pipe.steps_per_epoch, r.d.parts.queue_size, r.d.parts.workers.num_workers,
               r.d.num_workers, r.d.sampler.threaded, r.d.pipe.world_size,
               r.d.pipe.prefetch_factor);
}

static void run__any_wiring__as_written_down(uint64_t seed) {
    for (int i = 0; i < test_share(240, 5000); i++) any_case(&seed);
}

/* ---- ranks ---- */

/* Four streams: one, two, four ranks see the same global rows, and load no more parts than
   theirs. */
static void ranks__streams_divided__same_rows_fewer_loads(void) {
    uint64_t items[32];
    for (int i = 0; i < 32; i++) items[i] = 16;
    for (uint32_t world = 1; world <= 4; world *= 2) {
        parts_rig r;
        uint32_t most = 0;
        parts_init(&r, &seen, 32, items);
        r.d.pipe.streams = 4;
        r.d.pipe.world_size = world;
        for (uint32_t rank = 0; rank < world; rank++) {
            r.d.pipe.rank = rank;
            seen.loads = 0;
            CHECK(parts_run_on(&r, 0) == 64);
            if (seen.loads > most) most = seen.loads;
        }
        CHECK(most == 32 / world); /* no part lies across a border here */
    }
}

/* ---- resume ---- */

static void resume__behind_any_batch__goes_on_exactly(void) {
    parts_rig r;
    dlp_state states[64];
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0, all;
    parts_init(&r, &seen, 20, NULL);
    r.d.pipe.streams = 2;
    r.d.epochs = 2;
    all = 2 * parts_batches(&r);
    CHECK(all < 64);
    if (parts_open(&r, &p) != DLP_OK) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        CHECK(dlp_pipe_state(p, b, &states[n++]) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    CHECK(n == all && dlp_pipe_close(p) == DLP_OK);
    for (uint64_t i = 0; i < all; i++) {
        r.d.pipe.resume = &states[i];
        r.d.num_workers = (int32_t)(i % 3);
        r.d.parts.workers.num_workers = so_many(i % 4);
        r.d.parts.queue_size = i % 2 ? 20 : 0;
        r.d.pipe.world_size = 1 + i % 2;
        CHECK(parts_run_on(&r, 0) == (int64_t)(all - i - 1));
    }
}

static void resume_refused(parts_rig *r, const char *field) {
    dlp_pipe *p = NULL;
    dlp_error err;
    int rc = dlp_loader_open(&p, &r->d, &err);
    CHECK(rc == DLP_ERR_RESUME && strstr(err.field, field) != NULL && p == NULL);
    if (rc == DLP_OK) dlp_pipe_close(p);
}

static void resume__other_parts__names_the_field(void) {
    parts_rig r, other;
    dlp_state state;
    dlp_pipe *p;
    parts_init(&r, &seen, 20, NULL);
    CHECK(parts_open(&r, &p) == DLP_OK);
    CHECK(dlp_pipe_state(p, NULL, &state) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    r.d.pipe.resume = &state;
    other = r, other.d.parts.items = other.items, other.items[3]++, other.items[4]--;
    resume_refused(&other, "parts");
    other = r, other.d.parts.manifest_id = 1;
    resume_refused(&other, "manifest_id");
    other = r, other.d.pipe.streams = 2;
    resume_refused(&other, "streams");
    other = r, other.d.pipe.steps_per_epoch = 3;
    resume_refused(&other, "steps_per_epoch");
    other = r, other.d.shuffle = 0, other.d.parts.shuffle_parts = 1;
    resume_refused(&other, "shuffle_items");
}

/* ---- epochs that are left ---- */

static void next_epoch__anywhere__next_one_is_whole(void) {
    uint64_t random = 5;
    for (int i = 0; i < test_share(40, 400); i++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t stay = test_pick(&random, 9), n = 0, epoch = UINT64_MAX;
        int rc, ok = 1;
        parts_init(&r, &seen, 20, NULL);
        r.d.epochs = 5;
        r.d.parts.workers.num_workers = so_many(test_pick(&random, 3));
        r.d.num_workers = (int32_t)test_pick(&random, 3);
        r.d.sampler.threaded = (int32_t)test_pick(&random, 2);
        r.d.pipe.prefetch_factor = 1 + (int32_t)test_pick(&random, 4);
        if (parts_open(&r, &p) != DLP_OK) break;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            uint64_t k = b->in_epoch, e = b->epoch;
            if (e != epoch) parts_order(&r, epoch = e, order);
            ok &= parts_batch_same(&r, b, order, 0) && b->position == k * 8;
            dlp_pipe_release(p, b);
            n++;
            if (e % 2 == 0 && k == stay) ok &= dlp_pipe_next_epoch(p) == DLP_OK;
        }
        CHECK(rc == DLP_END && ok && seen.wrong == 0);
        CHECK(n == 3 * (stay + 1) + 2 * parts_batches(&r));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- seek ---- */

/* A part queue with as many cells as a batch needs or a few more, and places in a batch beyond the
   hints for them. */
static void seek_rig(parts_rig *r, uint64_t *random, uint32_t short_part) {
    static const uint32_t streams[] = {1, 8, 72, 72};
    uint64_t items[PARTS_MAX], n;
    uint32_t c = streams[test_pick(random, 4)];
    n = 12 + test_pick(random, test_pick(random, 2) ? 12 : PARTS_MAX - 12);
    for (uint64_t i = 0; i < n; i++) items[i] = 1 + test_pick(random, 30);
    parts_init(r, &seen, n, items);
    seen.fail_part = short_part;
    r->d.parts.workers.on_error = DLP_ON_ERROR_DROP;
    r->d.pipe.streams = c;
    r->d.batch_size = c == 72 ? 72 : 8 * (1 + test_pick(random, 4));
    if (test_pick(random, 4) == 0) r->d.pipe.steps_per_epoch = 2 + test_pick(random, 12);
    if (r->total < c) r->d.pipe.steps_per_epoch = 0;
    r->d.parts.workers.num_workers = so_many(test_pick(random, 3));
    r->d.num_workers = (int32_t)test_pick(random, 3);
    r->d.sampler.threaded = (int32_t)test_pick(random, 2);
    r->d.pipe.prefetch_factor = 1 + (int32_t)test_pick(random, 4);
    r->d.pipe.unordered = test_pick(random, 4) == 0;
    r->d.epochs = 6;
}

/* As few cells as will do, and up to 2 more. */
static int seek_open(parts_rig *r, dlp_pipe **p, uint32_t more) {
    dlp_stats s;
    int rc = parts_open(r, p);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) return 0;
    CHECK(dlp_pipe_stats(*p, &s) == DLP_OK);
    r->d.parts.queue_size = (uint32_t)s.stages[2].cells - 1 + more;
    if (r->d.parts.queue_size < 2) r->d.parts.queue_size = 2;
    CHECK(dlp_pipe_close(*p) == DLP_OK);
    CHECK((rc = parts_open(r, p)) == DLP_OK);
    return rc == DLP_OK;
}

/* Part 0 is loading for epoch 3 while the caller goes to epoch 0, which needs it, too, and back. A
   batch needs as many parts as there are cells: none may be in two. */
static void seek__part_still_loading__takes_no_second_cell(void) {
    static const uint64_t items[4] = {24, 16, 16, 24}; /* rows 0..: 0 0 1 2 3; 8..: 0 1 2 3 3 */
    parts_rig r;
    dlp_state states[2];
    dlp_pipe *p;
    dlp_batch *b = NULL;
    parts_init(&r, &seen, 4, items);
    r.d.pipe.streams = r.d.batch_size = 5;
    r.d.parts.queue_size = 4;
    r.d.parts.workers.num_workers = 4;
    r.d.shuffle = 0;
    r.d.epochs = 4;
    CHECK(parts_open(&r, &p) == DLP_OK);
    CHECK(dlp_pipe_state_at(p, 3, 0, &states[0]) == DLP_OK);
    CHECK(dlp_pipe_state_at(p, 0, 8, &states[1]) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    r.d.pipe.resume = &states[0];
    seen.loads = 0;
    seen.gate = seen.gate_part = 1;
    CHECK(parts_open(&r, &p) == DLP_OK);
    while (__atomic_load_n(&seen.loads, __ATOMIC_SEQ_CST) < 3) parts_pause(500);
    CHECK(dlp_pipe_seek(p, &states[1], NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 30) == DLP_TIMEOUT);
    CHECK(dlp_pipe_seek(p, &states[0], NULL) == DLP_OK);
    __atomic_store_n(&seen.gate, 0, __ATOMIC_SEQ_CST);
    CHECK(dlp_pipe_next_timeout(p, &b, 5000) == DLP_OK && b->epoch == 3 && b->in_epoch == 0);
    CHECK(seen.loads == 4);
    CHECK(dlp_pipe_close(p) == DLP_OK && (b == NULL || dlp_pipe_release(p, b) == DLP_OK));
}

/* Back and forth over epochs, often twice or to where it is already, with and without leaving the
   epoch: each batch is the one sought, and the queue never stands still. */
static void seek__at_random__goes_on_there(uint64_t seed) {
    uint64_t random = seed;
    for (int i = 0; i < test_share(60, 2000) && test_failures == 0; i++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_state at;
        uint32_t short_part = test_pick(&random, 2) ? 0 : 1 + test_pick(&random, 12);
        uint64_t n, epoch = 0, from = 0, known = UINT64_MAX;
        int rc = DLP_OK;
        seek_rig(&r, &random, short_part);
        n = parts_batches(&r);
        if (!seek_open(&r, &p, test_pick(&random, 2) ? test_pick(&random, 3) : 20)) return;
        __atomic_store_n(&seen.sleep_us, test_pick(&random, 4) ? 0 : 200, __ATOMIC_SEQ_CST);
        for (int k = 0; k < 120; k++) {
            uint32_t what = test_pick(&random, 8);
            if (what < 3) {
                epoch = test_pick(&random, 6);
                from = test_pick(&random, (uint32_t)n);
                CHECK(dlp_pipe_state_at(p, epoch, from, &at) == DLP_OK);
                CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
            }
            if (what == 2) continue; /* seek again */
            if (what == 3) {
                bool open = inside_epoch_open(p);
                CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
                if (open) epoch++, from = 0;
            }
            rc = dlp_pipe_next_timeout(p, &b, 10000);
            CHECK(rc == (epoch < 6 ? DLP_OK : DLP_END));
            if (rc != DLP_OK && rc != DLP_END) break;
            if (rc == DLP_END) {
                epoch = 0, from = 0;
                CHECK(dlp_pipe_state_at(p, 0, 0, &at) == DLP_OK);
                CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
                continue;
            }
            if (b->epoch != known) parts_order(&r, known = b->epoch, order);
            CHECK(b->epoch == epoch && parts_batch_same(&r, b, order, short_part));
            if (!r.d.pipe.unordered) CHECK(b->in_epoch == from);
            CHECK(b->position == b->in_epoch * r.d.batch_size);
            if (r.d.pipe.unordered) /* who knows which were taken? From here on again */
                from = n;
            else if (++from == n)
                from = 0, epoch++;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            if (!r.d.pipe.unordered) continue;
            CHECK(dlp_pipe_state(p, NULL, &at) == DLP_OK && dlp_pipe_seek(p, &at, NULL) == DLP_OK);
            epoch = inside_epoch_after(p);
        }
        CHECK(seen.wrong == 0);
        if (rc < 0) parts_say(rc, dlp_pipe_error(p));
        CHECK(dlp_pipe_close(p) == DLP_OK);
        if (test_failures)
            printf("  run %d: parts %d streams %u batch %u cells %u steps %d workers %d %d "
                   "threaded %d prefetch %d unordered %d short %u\n",
                   i, (int)r.d.parts.n_parts, r.d.pipe.streams, r.d.batch_size,
                   r.d.parts.queue_size, (int)r.d.pipe.steps_per_epoch,
                   r.d.parts.workers.num_workers, r.d.num_workers, r.d.sampler.threaded,
                   r.d.pipe.prefetch_factor, r.d.pipe.unordered, short_part);
    }
}

/* ---- what is loaded when ---- */

static uint64_t now_ms(void) { return test_now_ns() / 1000000; }

/* Nobody takes batches: the queue fills up, and no part more. */
/* One part worker that loads ahead, unless the desc says otherwise. */
static void workers__of_parts__one_by_default(void) {
    static const int32_t says[] = {0, DLP_NONE, 1, 3}, are[] = {1, 0, 1, 3};
    for (size_t i = 0; i < 4; i++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_stats s;
        dlp_workers_desc back;
        parts_init(&r, &seen, 20, NULL);
        r.d.parts.workers.num_workers = says[i];
        r.d.num_workers = 0;
        CHECK(dlp_loader_open(&p, &r.d, NULL) == DLP_OK && dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.stages[2].kind == DLP_STAGE_PARTS && s.stages[2].workers == are[i]);
        CHECK(s.stages[3].kind == DLP_STAGE_FETCH && s.stages[3].workers == 0);
        CHECK(dlp_stage_resolved(p, 2, &back) == DLP_OK);
        CHECK(back.num_workers == so_many((uint64_t)are[i]));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void queue__full__workers_wait(void) {
    for (int32_t threaded = 0; threaded < 2; threaded++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_stats s;
        dlp_worker_stats w;
        uint64_t until = now_ms() + 20000, items[30];
        int blocked = 0;
        for (int i = 0; i < 30; i++) items[i] = 20; /* more than the two batches that are fed */
        parts_init(&r, &seen, 30, items);
        r.d.parts.queue_size = 7;
        r.d.sampler.threaded = threaded;
        if (parts_open(&r, &p) != DLP_OK) return;
        while ((blocked < 2 || __atomic_load_n(&seen.loads, __ATOMIC_SEQ_CST) < 7) &&
               now_ms() < until) {
            parts_pause(5000);
            blocked = 0;
            for (uint32_t i = 0; dlp_pipe_worker_stats(p, i, &w) == DLP_OK; i++)
                if (w.stage == 2) /* part workers */
                    blocked += w.state == DLP_WORKER_BLOCKED;
        }
        CHECK(blocked == 2 && __atomic_load_n(&seen.loads, __ATOMIC_SEQ_CST) == 7);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.stages[2].kind == DLP_STAGE_PARTS && s.stages[2].cells == 7);
        CHECK(s.stages[2].loaded == 7 && s.stages[2].items == 7);
        CHECK(s.stages[2].unit_is_batch == 0 && s.part_wait_ns == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void queue__empty__consumer_waits_and_is_told(void) {
    for (int32_t threaded = 0; threaded < 2; threaded++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b = NULL;
        dlp_stats s;
        char text[2000];
        parts_init(&r, &seen, 37, NULL);
        seen.gate = 1;
        r.d.sampler.threaded = threaded;
        if (parts_open(&r, &p) != DLP_OK) return;
        while (__atomic_load_n(&seen.begun, __ATOMIC_SEQ_CST) == 0) parts_pause(1000);
        parts_pause(5000); /* the scheduler, too, is where it waits */
        CHECK(dlp_pipe_next_timeout(p, &b, 30) == DLP_TIMEOUT && b == NULL);
        __atomic_store_n(&seen.gate, 0, __ATOMIC_SEQ_CST);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.part_wait_ns > 25000000);
        CHECK(s.part_wait_ns <= s.wait_ns);
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
        CHECK(strstr(text, "no part is ready: the consumer waits for parts") != NULL);
        char *change = strstr(text, "Change: ");
        CHECK(change == NULL || strstr(change + 1, "Change: ") == NULL); /* one advice */
        CHECK(strstr(text, "workers.num_workers (") != NULL);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* At no moment are more parts loaded than are used up, and queue_size. */
static void queue__any_moment__no_more_ahead_than_its_size(void) {
    uint64_t items[40];
    for (int i = 0; i < 40; i++) items[i] = 12;
    for (uint32_t size = 2; size < 6; size++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint32_t parts = 0;
        parts_init(&r, &seen, 40, items);
        r.d.parts.queue_size = size;
        r.d.sampler.threaded = size % 2;
        if (parts_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            uint32_t begun = __atomic_load_n(&seen.begun, __ATOMIC_SEQ_CST);
            parts = (uint32_t)((b->position + b->count + 11) / 12);
            CHECK(begun >= parts);
            if (!r.d.sampler.threaded) /* what lies behind this batch is not given up yet */
                CHECK(begun <= parts + 2 + size);
            dlp_pipe_release(p, b);
        }
        CHECK(parts == 40 && seen.begun == 40);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* A load takes half as long as the steps on one part: hidden, but for the first. */
static double wait_share(uint32_t sleep_us) {
    uint64_t items[10], waited = 0, from, all;
    parts_rig r;
    dlp_pipe *p;
    dlp_batch *b;
    for (int i = 0; i < 10; i++) items[i] = 64;
    parts_init(&r, &seen, 10, items);
    seen.sleep_us = sleep_us;
    r.d.parts.queue_size = 3;
    r.d.parts.workers.num_workers = 1;
    if (parts_open(&r, &p) != DLP_OK || dlp_pipe_next_timeout(p, &b, 20000) != DLP_OK) return 1;
    all = test_now_ns();
    for (int rc = DLP_OK; rc == DLP_OK;) {
        parts_pause(1000);
        dlp_pipe_release(p, b);
        from = test_now_ns();
        rc = dlp_pipe_next_timeout(p, &b, 20000);
        waited += test_now_ns() - from;
    }
    all = test_now_ns() - all;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return (double)waited / (double)all;
}

static void queue__loads_faster_than_steps__no_stall_at_borders(void) {
    double share = 1;
    for (int tries = 0; share > 0.2 && tries < 30; tries++) { /* of 100 ms, if nobody disturbs */
        double now = wait_share(4000);
        if (now < share) share = now;
    }
    printf("  the consumer waits %.2f %% where loads take half as long as steps\n", share * 100);
    CHECK(share <= 0.2); /* one after another: a third; a sanitizer alone takes 7 % */
}

/* Parts that all fit are loaded once. */
static void queue__all_parts_fit__each_is_loaded_once(void) {
    parts_rig r;
    parts_init(&r, &seen, 20, NULL);
    r.d.parts.queue_size = 20;
    r.d.epochs = 4;
    CHECK(parts_run_on(&r, 0) == 4 * (int64_t)parts_batches(&r));
    CHECK(seen.loads == 19); /* one is empty */
}

/* ---- loads that fail ---- */

static const int32_t part_workers[] = {DLP_NONE, 2};

/* The first batch that needs a part, in epoch 0. */
static uint64_t first_need(const parts_rig *r, uint64_t part) {
    uint64_t n = parts_order(r, 0, order);
    for (uint64_t i = 0; i < n; i++)
        if (order[i] >= r->first[part] && order[i] < r->first[part + 1]) return i / r->d.batch_size;
    return UINT64_MAX;
}

/* Runs until an error; returns the batches before it. short_part: as parts_batch_same. */
static uint64_t run_to_error(parts_rig *r, uint64_t short_part, dlp_error *err) {
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0;
    memset(err, 0, sizeof *err);
    if (parts_open(r, &p) != DLP_OK) return UINT64_MAX;
    parts_order(r, 0, order);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        CHECK(parts_batch_same(r, b, order, short_part));
        dlp_pipe_release(p, b);
        n++;
    }
    *err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return n;
}

static void load_error__raise__comes_with_the_first_batch_in_need(void) {
    for (int i = 0; i < 2; i++)
        for (uint32_t part = 1; part < 20; part += 3) {
            parts_rig r;
            dlp_error err;
            char words[40];
            parts_init(&r, &seen, 20, NULL);
            seen.fail_part = part + 1;
            r.d.parts.workers.num_workers = part_workers[i];
            CHECK(run_to_error(&r, 0, &err) == first_need(&r, part));
            snprintf(words, sizeof words, "part %u: shard-%u is torn", part, part);
            CHECK(err.code == DLP_ERR_CALLBACK && strcmp(err.stage, "parts") == 0);
            CHECK(err.errnum == 5 && strcmp(err.message, words) == 0);
        }
}

/* Words of a part that was loaded well are not told of the next one. */
static int chatty_load(void *user, dlp_part *part) {
    if (part->index == 3) dlp_fail(part->call, 12, "all is well");
    return part->index == 4 ? -3 : parts_load(user, part);
}

static void load_error__words_of_another_part__not_told(void) {
    for (int w = 0; w < 2; w++) {
        parts_rig r;
        dlp_error err;
        parts_init(&r, &seen, 20, NULL);
        r.d.shuffle = 0;
        r.d.parts.load = chatty_load;
        r.d.parts.workers.num_workers = so_many((uint64_t)w);
        run_to_error(&r, 0, &err);
        CHECK(err.code == DLP_ERR_CALLBACK && err.errnum == 0);
        CHECK(strstr(err.message, "part 4: the callback returned -3") != NULL);
    }
}

static void load_error__too_many_bytes__length(void) {
    parts_rig r;
    dlp_error err;
    parts_init(&r, &seen, 20, NULL);
    seen.fail_part = 4;
    seen.fail_how = (uint32_t)-DLP_ERR_LENGTH;
    CHECK(run_to_error(&r, 0, &err) == first_need(&r, 3) && err.code == DLP_ERR_LENGTH);
    CHECK(strstr(err.message, "part 3") && strstr(err.message, "max_part_bytes"));
}

static void load_error__short__rows_are_left_out(void) {
    for (int how = 0; how < 3; how++) { /* an error, DLP_SKIP under raise, both in two epochs */
        parts_rig r;
        parts_init(&r, &seen, 20, NULL);
        seen.fail_part = 4;
        if (how == 1) seen.fail_how = DLP_SKIP;
        if (how != 1) r.d.parts.workers.on_error = DLP_ON_ERROR_DROP;
        r.d.epochs = 1 + how / 2;
        r.d.parts.workers.num_workers = part_workers[how % 2];
        CHECK(parts_run_on(&r, 4) == (int64_t)parts_batches(&r) * r.d.epochs);
    }
}

static void load_error__short__is_counted_up_to_the_budget(void) {
    parts_rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    dlp_skip skips[64];
    uint64_t total = 0;
    dlp_error err;
    parts_init(&r, &seen, 20, NULL); /* part 3 has 21 items */
    seen.fail_part = 4;
    r.d.parts.workers.on_error = DLP_ON_ERROR_DROP;
    r.d.parts.workers.max_skips = 21;
    CHECK(parts_open(&r, &p) == DLP_OK);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.stages[2].left_out == 21);
    CHECK(dlp_pipe_skips(p, skips, 64, &total) == 21 && total == 21);
    CHECK(skips[0].stage == 2 && skips[0].new_index == UINT64_MAX && skips[0].errnum == 5);
    CHECK(skips[0].index >= r.first[3] && skips[0].index < r.first[4]);
    CHECK(dlp_pipe_error(p)->code == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    r.d.parts.workers.max_skips = 20;
    run_to_error(&r, 4, &err);
    CHECK(err.code == DLP_ERR_BUDGET && strstr(err.message, "part 3") != NULL);
    CHECK(strstr(err.message, "; the first left out or replaced was item ") != NULL);
}

static void load_error__retries__part_comes(void) {
    for (int i = 0; i < 4; i++) {
        parts_rig r;
        uint64_t from;
        parts_init(&r, &seen, 20, NULL);
        seen.fail_part = 4;
        seen.fail_times = 2;
        r.d.parts.workers.retries = 2;
        r.d.parts.workers.retry_backoff_ms = i < 2 ? 0 : 20;
        r.d.parts.workers.num_workers = part_workers[i % 2];
        from = now_ms();
        CHECK(parts_run_on(&r, 0) == (int64_t)parts_batches(&r));
        CHECK(i < 2 || now_ms() - from >= 59); /* 20, then 40 */
        CHECK(seen.loaded[3] == 1);
    }
}

/* Although the part is in a cell all the time: the next epoch tries again. */
static void load_error__next_epoch__another_try(void) {
    for (int i = 0; i < 4; i++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t left[3] = {0, 0, 0};
        parts_init(&r, &seen, 20, NULL);
        r.d.parts.queue_size = 20;
        r.d.parts.workers.num_workers = part_workers[i % 2];
        r.d.parts.workers.on_error = DLP_ON_ERROR_DROP;
        r.d.sampler.threaded = i / 2;
        r.d.epochs = 3;
        seen.fail_part = 4;
        seen.fail_first = 2;
        if (parts_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            left[b->epoch] += b->count - b->valid_count;
            dlp_pipe_release(p, b);
        }
        CHECK(left[0] == 21 && left[1] == 21 && left[2] == 0 && seen.wrong == 0);
        CHECK(dlp_pipe_error(p)->code == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    }
}

/* set_epoch waits for the loads of an epoch that is left in its middle. */
static uint32_t loads_running, loads_beside;

static int load_counted(void *user, dlp_part *part) {
    int rc;
    __atomic_add_fetch(&loads_running, 1, __ATOMIC_SEQ_CST);
    rc = parts_load(user, part);
    __atomic_sub_fetch(&loads_running, 1, __ATOMIC_SEQ_CST);
    return rc;
}

static int epoch_set(void *user, uint64_t epoch) {
    (void)user;
    (void)epoch;
    loads_beside += __atomic_load_n(&loads_running, __ATOMIC_SEQ_CST);
    parts_pause(3000);
    loads_beside += __atomic_load_n(&loads_running, __ATOMIC_SEQ_CST);
    return 0;
}

static void set_epoch__epochs_left__no_load_beside_it(void) {
    for (int i = 0; i < 8; i++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        parts_init(&r, &seen, 30, NULL);
        r.d.parts.load = load_counted;
        r.d.parts.queue_size = 8;
        r.d.parts.workers.num_workers = i % 2 ? DLP_NONE : 3;
        r.d.epochs = 4;
        r.d.pipe.set_epoch = epoch_set;
        seen.sleep_us = 2000;
        CHECK(parts_open(&r, &p) == DLP_OK);
        for (uint64_t e = 0; e < 4; e++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->epoch == e);
            CHECK(dlp_pipe_release(p, b) == DLP_OK && dlp_pipe_next_epoch(p) == DLP_OK);
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK && loads_beside == 0 && loads_running == 0);
    }
}

/* A batch map that is not idempotent fails at first: the batch is fetched again, from its parts. */
static int map_twice(void *user, dlp_batch *b, void *state) {
    uint32_t *tries = user;
    (void)state;
    ((uint64_t *)b->fields[0].data)[0] = 1; /* half done */
    return tries[b->sequence % 256]++ == 0 && b->in_epoch % 3 == 1 ? -1 : 0;
}

static void batch__fetched_again__its_parts_are_there(void) {
    for (int i = 0; i < 8; i++) {
        static uint32_t tries[256];
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        rig_table t = {.n = 0};
        dlp_node map = {.verb = DLP_MAP, .map = {.batch = map_twice, .user = tries}};
        uint64_t n = 0, items[30];
        for (int k = 0; k < 30; k++) items[k] = 10;
        parts_init(&r, &seen, 30, items);
        memset(tries, 0, sizeof tries);
        map.workers.num_workers = 1;
        map.workers.retries = 1;
        map.workers.retry_backoff_ms = i / 2 % 2; /* 1: others overtake it meanwhile */
        r.d.parts.queue_size = 2 + (uint32_t)i % 3;
        r.d.shuffle = 0;
        r.d.seed = 0;
        r.d.pipe.prefetch_factor = 8;
        table_list(&t, &(dlp_sampler_desc){.threaded = i % 2});
        table_load(&t, &r.d.parts);
        table_fetch(
            &t, &(dlp_source){.dataset = &r.d.dataset, .workers = {.num_workers = 1 + i / 4}}, 0);
        table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 8}});
        table_row(&t, map);
        CHECK(table_pipe(&t, &p, &r.d.pipe, NULL) == DLP_OK);
        CHECK(dlp_pipe_start(p) == DLP_OK);
        parts_order(&r, 0, order);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            /* as the map left it: 1 */
            ((uint64_t *)b->fields[0].data)[0] = parts_word(b->index[0]);
            CHECK(parts_batch_same(&r, b, order, 0) && b->in_epoch == n++);
            dlp_pipe_release(p, b);
        }
        CHECK(n == parts_batches(&r) && seen.wrong == 0 && dlp_pipe_error(p)->code == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int fetch_sometimes(void *user, dlp_item *it) {
    if (it->index % 5 == 3) return dlp_fail(it->call, 0, "no item");
    return parts_fetch(user, it);
}

/* An item that fails gets another of its part, the same whoever runs it. */
static void fetch_error__replace__item_of_the_same_part(void) {
    uint64_t hashes[3];
    for (int i = 0; i < 3; i++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t h = 0, items[10];
        for (int k = 0; k < 10; k++) items[k] = 30;
        parts_init(&r, &seen, 10, items);
        r.d.dataset.fetch = fetch_sometimes;
        r.d.workers.on_error = DLP_ON_ERROR_REPLACE;
        r.d.num_workers = i;
        r.d.workers.dispatch = i % 2 ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
        parts_order(&r, 0, order);
        if (parts_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            const uint64_t *words = b->fields[0].data;
            for (uint32_t k = 0; k < b->count; k++) {
                uint64_t was = order[b->position + k], is = b->index[k];
                CHECK(words[k] == parts_word(is) && is / 30 == was / 30);
                CHECK(is % 5 != 3 && (is == was || was % 5 == 3));
                h = dlp_hash(h, is, 0, 0);
            }
            dlp_pipe_release(p, b);
        }
        hashes[i] = h;
        CHECK(seen.wrong == 0 && dlp_pipe_error(p)->code == 0 && dlp_pipe_close(p) == DLP_OK);
    }
    CHECK(hashes[0] == hashes[1] && hashes[1] == hashes[2]);
}

/* ---- descs ---- */

static void refused(parts_rig *r, int code, const char *stage, const char *field,
                    const char *words) {
    dlp_pipe *p = NULL;
    dlp_error err;
    int rc = dlp_loader_open(&p, &r->d, &err);
    int ok = rc == code && p == NULL && strcmp(err.stage, stage) == 0 &&
             strcmp(err.field, field) == 0 && strstr(err.message, words) != NULL;
    CHECK(ok);
    if (!ok) parts_say(rc, &err);
    if (rc == DLP_OK) dlp_pipe_close(p);
}

static int count_some(void *user, uint64_t part, uint64_t *items) {
    *items = ((const uint64_t *)user)[part];
    return part == 5 && *items == 99 ? 7 : 0;
}

static void open__desc_out_of_range__names_field(void) {
    parts_rig good, r;
    parts_init(&good, &seen, 20, NULL);
#define REFUSED(set, code, stage, field, words) \
    (r = good, r.d.parts.items = r.items, (void)(set), refused(&r, code, stage, field, words))
    REFUSED(r.d.parts.n_parts = 0, DLP_ERR_ARG, "parts", "n_parts", "is 0");
    REFUSED(r.d.parts.max_part_bytes = 0, DLP_ERR_ARG, "parts", "max_part_bytes", "is 0");
    REFUSED(r.d.parts.load = NULL, DLP_ERR_ARG, "parts", "load", "the function");
    REFUSED(r.d.parts.items = NULL, DLP_ERR_ARG, "parts", "items", "count");
    REFUSED(r.d.parts.queue_size = 1, DLP_ERR_ARG, "parts", "queue.capacity", "is 1");
    REFUSED(r.d.parts.queue_size = 2, DLP_ERR_ARG, "parts", "queue.capacity", "may need 4 parts");
    REFUSED(r.d.pipe.streams = 3, DLP_ERR_ARG, "", "streams", "multiple of streams");
    REFUSED(r.d.parts.workers.on_error = DLP_ON_ERROR_REPLACE, DLP_ERR_ARG, "parts", "on_error",
            "");
    REFUSED(r.d.parts.workers.dispatch = DLP_DISPATCH_BATCHES, DLP_ERR_ARG, "parts", "dispatch",
            "");
    REFUSED(r.d.parts.workers.workers_max = 4, DLP_ERR_ARG, "parts", "workers_max", "not tuned");
    REFUSED(r.d.dataset.open_end = 1, DLP_ERR_GRAPH, "parts", "list.open_end",
            "must be 0 with stage");
    REFUSED(r.d.dataset.n_items = 5, DLP_ERR_ARG, "fetch", "source.dataset.n_items", "have 226");
    REFUSED(r.items[7] = UINT64_C(1) << 48, DLP_ERR_ARG, "parts", "items", "2^48");
    r = good;
    r.items[5] = 99;
    r.d.parts.items = NULL;
    r.d.parts.count = count_some;
    r.d.parts.user = r.items;
    refused(&r, DLP_ERR_CALLBACK, "parts", "count", "part 5: count returned 7");
    r = good;
    r.d.sampler.order = DLP_ORDER_SHUFFLED; /* shuffle, or parts.shuffle_*, says it */
    refused(&r, DLP_ERR_ARG, "sampler", "list.shuffle", "must be 0 beside list.order");
}

static void open__order_without_queue__refused(void) {
    rig r;
    dlp_pipe *p;
    dlp_error err;
    rig_init(&r, 100, 10);
    r.sampler.order = DLP_ORDER_PARTS;
    CHECK(rig_try(&r, &p, &err) == DLP_ERR_ARG && strcmp(err.field, "list.order.order") == 0);
}

/* Parts beside other stages that look at items in their own way. */
static void wiring__parts_and_cache__same_bytes(void) {
    parts_rig r;
    parts_init(&r, &seen, 20, NULL);
    r.d.epochs = 3;
    r.d.cache.bytes = 800; /* some of the items */
    CHECK(parts_run_on(&r, 0) == 3 * (int64_t)parts_batches(&r));
}

/* Items of parts that are chunks themselves: each is cut into views. */
static int fetch_chunk(void *user, dlp_item *it) {
    uint64_t *row = it->data[0], word;
    (void)user;
    memcpy(&word, (const uint8_t *)it->part->data + it->part->item * 8, 8);
    for (uint64_t i = 0; i < 6; i++) row[i] = word + i;
    return 0;
}

static void wiring__parts_and_split__views_of_items(int within) {
    parts_rig r;
    dlp_field field = {"words", DLP_U64, 1, {6}, 0, 0};
    const dlp_pipe_desc desc = {.seed = 42, .epochs = 2};
    const dlp_dataset set = {.fields = &field, .n_fields = 1, .fetch = fetch_chunk};
    const dlp_source fetch = {.dataset = &set, .workers = {.num_workers = 2}};
    rig_table t = {.n = 0};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_state state;
    uint64_t n = 0, epoch = UINT64_MAX, each;
    parts_init(&r, &seen, 20, NULL);
    each = within ? 2 * r.total : (6 * r.total + 3) / 4; /* batches */
    r.d.parts.shuffle_parts = r.d.parts.shuffle_items = 1;
    r.d.batch_size = 1;
    table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_PARTS});
    table_load(&t, &r.d.parts);
    table_fetch(&t, &fetch, 0);
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 1}});
    table_row(&t, (dlp_node){.verb = DLP_SPLIT,
                             .split = {.chunk_rows = 6, .batch_size = 4, .within_chunks = within}});
    CHECK(table_pipe(&t, &p, &desc, NULL) == DLP_OK);
    CHECK(dlp_pipe_start(p) == DLP_OK);
    CHECK(dlp_pipe_batches_per_epoch(p) == (int64_t)each);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        const uint64_t *words = b->fields[0].data;
        uint64_t k = n % each, at = within ? k / 2 * 6 + k % 2 * 4 : k * 4;
        uint64_t count = 6 * r.total - at < 4 ? 6 * r.total - at : 4;
        if (b->epoch != epoch) parts_order(&r, epoch = b->epoch, order);
        CHECK(b->in_epoch == k && b->count == (within && k % 2 ? 2 : count));
        for (uint32_t i = 0; i < b->count; i++) {
            uint64_t item = order[(at + i) / 6];
            CHECK(words[i] == parts_word(item) + (at + i) % 6);
            CHECK(b->index[i] == item * 6 + (at + i) % 6);
        }
        dlp_pipe_release(p, b);
        if (++n != 3 * each / 2) continue; /* back to a view that is not its chunk's first */
        CHECK(dlp_pipe_state_at(p, 0, each - 3, &state) == DLP_OK);
        CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_OK);
        n = 3 * each - 3;
    }
    CHECK(n == 4 * each && dlp_pipe_close(p) == DLP_OK);
}

static void plan__cells__on_lines_of_their_own(void) {
    parts_rig r;
    dlp_pipe *p;
    dlp_plan plan;
    uint64_t sum = 0;
    int found = 0;
    parts_init(&r, &seen, 20, NULL);
    r.d.parts.queue_size = 9;
    CHECK(parts_open(&r, &p) == DLP_OK && dlp_pipe_plan(p, &plan) == DLP_OK);
    for (uint32_t i = 0; i < plan.n_lines; i++) {
        const dlp_plan_line *l = &plan.lines[i];
        sum += l->bytes;
        found += strcmp(l->what, "part cells") == 0 && l->count == 9 &&
                 l->bytes_each == 4096 + inside_input_guard();
        found += strcmp(l->what, "part tables") == 0 && l->bytes >= 3 * 21 * 8;
    }
    CHECK(found == 2 && sum == plan.total_bytes);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void stop__at_any_moment__ends(void) {
    uint64_t random = 9;
    for (int i = 0; i < test_share(30, 500); i++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint32_t n = test_pick(&random, 60);
        parts_init(&r, &seen, 20, NULL);
        seen.sleep_us = test_pick(&random, 300);
        r.d.parts.workers.num_workers = so_many(test_pick(&random, 4));
        r.d.sampler.threaded = (int32_t)test_pick(&random, 2);
        r.d.epochs = DLP_FOREVER;
        if (parts_open(&r, &p) != DLP_OK) return;
        for (uint32_t k = 0; k < n && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; k++)
            dlp_pipe_release(p, b);
        if (i % 2) dlp_pipe_stop(p);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- files ---- */

static void files__whole_or_ranges__read(void) {
    for (int ranges = 0; ranges < 2; ranges++) {
        parts_rig r;
        dlp_part_files f;
        parts_init(&r, &seen, 20, NULL);
        parts_files(&r, &f, ranges);
        CHECK(parts_files_write(&r, ranges));
        CHECK(parts_run_on(&r, 0) == (int64_t)parts_batches(&r));
        parts_dir_clear(0);
    }
}

static parts_rig *downloads_of;
static uint32_t downloads[PARTS_MAX], downloads_fail, downloads_once;

/* Slowly, so that several want it at once. */
static int download(void *user, const dlp_part *part, const char *path, int fd) {
    const char *name = strrchr(path, '/') + 1;
    uint32_t n;
    (void)user;
    CHECK(strcmp(name, parts_names[part->index]) == 0 && lseek(fd, 0, SEEK_END) == 0);
    n = __atomic_add_fetch(&downloads[part->index], 1, __ATOMIC_SEQ_CST);
    parts_pause(300);
    if (downloads_fail == part->index + 1 && (!downloads_once || n == 1))
        return dlp_fail(part->call, 110, "the server is away");
    return parts_write(downloads_of, part->index, fd);
}

static void files__downloads__each_once_under_its_name(void) {
    parts_rig r;
    dlp_part_files f;
    char path[128];
    parts_init(&r, &seen, 20, NULL);
    parts_files(&r, &f, 0);
    f.download = download;
    downloads_of = &r;
    r.d.pipe.streams = 8; /* parts across borders are wanted by two at once */
    r.d.parts.queue_size = 12;
    r.d.parts.workers.num_workers = 6;
    r.d.epochs = 2;
    parts_path(path, parts_names[7], ".tmp");
    CHECK(close(open(path, O_WRONLY | O_CREAT, 0600)) == 0); /* somebody died over it */
    CHECK(parts_run_on(&r, 0) == 2 * (int64_t)parts_batches(&r));
    for (uint64_t k = 0; k < 20; k++) {
        CHECK(downloads[k] == (r.items[k] > 0));
        parts_path(path, parts_names[k], ".tmp");
        CHECK(access(path, F_OK) != 0);
        parts_path(path, parts_names[k], "");
        CHECK((access(path, F_OK) == 0) == (r.items[k] > 0));
    }
    parts_dir_clear(0);
}

static dlp_part_files wanted;

/* One of those who want the file at once; its own part, which has no pipe but a worker's block. */
static void *want_file(void *arg) {
    static uint64_t bytes[8][32];
    static char messages[8][256];
    static int32_t errnums[8];
    uint64_t me = (uint64_t)(uintptr_t)arg;
    dlp_part part;
    int rc;
    memset(&part, 0, sizeof part);
    part.data = bytes[me];
    part.index = 3;
    part.capacity = sizeof bytes[me];
    part.call = inside_call((int)me, messages[me], &errnums[me]);
    rc = dlp_part_files_load(&wanted, &part);
    if (rc == 0 && part.bytes == 21 * 8)
        for (uint64_t i = 0; i < 21; i++)
            rc |= bytes[me][i] != parts_word(downloads_of->first[3] + i);
    return (void *)(intptr_t)rc;
}

/* Many want one file, whose first download fails: one more download, all read the whole of it. */
static void files__wanted_at_once__one_download(void) {
    parts_rig r;
    char path[128];
    parts_init(&r, &seen, 20, NULL);
    parts_files(&r, &wanted, 0);
    wanted.download = download;
    downloads_of = &r;
    parts_path(path, parts_names[3], "");
    for (int round = 0; round < test_share(40, 1000); round++) {
        pthread_t threads[8];
        int failures = 0;
        downloads[3] = 0;
        downloads_fail = round % 2 ? 4 : 0;
        downloads_once = 1;
        for (uint64_t i = 0; i < 8; i++)
            CHECK(pthread_create(&threads[i], NULL, want_file, (void *)(uintptr_t)i) == 0);
        for (int i = 0; i < 8; i++) {
            void *rc;
            pthread_join(threads[i], &rc);
            failures += rc != NULL;
        }
        CHECK(failures == round % 2 && downloads[3] == 1 + (uint32_t)failures);
        CHECK(unlink(path) == 0);
        parts_path(path, parts_names[3], ".tmp");
        CHECK(access(path, F_OK) != 0);
        parts_path(path, parts_names[3], "");
    }
    downloads_fail = downloads_once = 0;
}

static void files__errors__name_the_path(void) {
    static const char *const words[] = {"shard-3: open: No such file",
                                        "shard-3: 99 bytes from 1000",
                                        "shard-3: the part has 176 bytes, max_part_bytes is 170",
                                        "shard-3: the server is away", "shard-3.tmp: open: "};
    for (int i = 0; i < 5; i++) {
        parts_rig r;
        dlp_part_files f;
        dlp_error err;
        char path[128];
        parts_init(&r, &seen, 20, NULL);
        parts_files(&r, &f, 0);
        CHECK(parts_files_write(&r, 0));
        parts_path(path, parts_names[3], "");
        if (i == 0 || i >= 3) unlink(path);
        if (i == 1) parts_list[3].offset = 1000, parts_list[3].bytes = 99;
        if (i == 2) r.d.parts.max_part_bytes = 170;
        if (i >= 3) f.download = download;
        downloads_of = &r;
        downloads_fail = 4;
        parts_path(path, parts_names[3], ".tmp");
        if (i == 4) CHECK(symlink("nowhere/at/all", path) == 0);
        run_to_error(&r, 0, &err);
        CHECK(err.code == (i == 2 ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK));
        if (i != 2)
            CHECK(strstr(err.message, words[i]) != NULL);
        else
            CHECK(strstr(err.message, "max_part_bytes is 170") != NULL);
        CHECK(strstr(err.message, parts_dir) != NULL && strncmp(err.message, "part ", 5) == 0);
        CHECK(err.errnum == (i == 3 ? 110 : i == 0 ? ENOENT : i == 4 ? ELOOP : 0));
        if (i == 3) CHECK(access(path, F_OK) != 0);
        parts_dir_clear(0);
    }
    downloads_fail = 0;
}

/* ---- names that others have put something under ---- */

enum { PLANT_LINK, PLANT_HARD_LINK, PLANT_FIFO, PLANT_FOREIGN, PLANT_FOREIGN_LINK, PLANTS };

/* uid: whose it is to be, where this process may say so. */
static int plant(int what, const char *at, const char *victim, uid_t uid) {
    int fd;
    if (what == PLANT_LINK || what == PLANT_FOREIGN_LINK) {
        if (symlink(victim, at) != 0) return 0;
    } else if (what == PLANT_HARD_LINK) {
        return link(victim, at) == 0;
    } else if (what == PLANT_FIFO) {
        return mkfifo(at, 0666) == 0;
    } else {
        if ((fd = open(at, O_WRONLY | O_CREAT | O_EXCL, 0666)) < 0) return 0;
        if (write(fd, "planted", 7) != 7 || fchmod(fd, 0666) != 0) return 0;
        close(fd);
    }
    return what < PLANT_FOREIGN || lchown(at, uid, (gid_t)-1) == 0;
}

static int holds(const char *path, const char *text) {
    char got[64] = "";
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, got, sizeof got - 1);
    close(fd);
    return n == (ssize_t)strlen(text) && strcmp(got, text) == 0;
}

/* Want part 3, whose download works. */
static int want_once(int *errnum) {
    static uint64_t bytes[32];
    static char message[256];
    dlp_part part;
    int rc;
    memset(&part, 0, sizeof part);
    message[0] = 0;
    *errnum = 0;
    part.data = bytes;
    part.index = 3;
    part.capacity = sizeof bytes;
    part.call = inside_call(0, message, errnum);
    rc = dlp_part_files_load(&wanted, &part);
    return rc;
}

/* What lies under a download's names is neither followed nor written, whoever put it there; in a
   directory of all, what others put there is not read either. */
static void files__planted_names__nothing_is_followed(void) {
    parts_rig r;
    char tmp[128], path[128], victim[128];
    parts_init(&r, &seen, 20, NULL);
    parts_files(&r, &wanted, 0);
    wanted.download = download;
    downloads_of = &r;
    parts_path(tmp, parts_names[3], ".tmp");
    parts_path(path, parts_names[3], "");
    parts_path(victim, "victim", "");
    for (int shared = 0; shared < 2; shared++)
        for (int what = 0; what < PLANTS; what++)
            for (int final = 0; final < 2; final++) {
                bool refused = !final || (shared && what >= PLANT_FOREIGN);
                int fd = open(victim, O_WRONLY | O_CREAT | O_EXCL, 0600), errnum, rc;
                if (what >= PLANT_FOREIGN && geteuid() != 0) refused = false;
                if (what == PLANT_FOREIGN && !shared && !final) refused = false; /* as a group's */
                CHECK(write(fd, "precious", 8) == 8 && close(fd) == 0);
                CHECK(chmod(parts_dir, shared ? 01777 : 0700) == 0);
                if (!(final && what == PLANT_FIFO) && plant(what, final ? path : tmp, victim, 12)) {
                    rc = want_once(&errnum);
                    if (refused != (rc != 0))
                        printf("  what %d, final %d, shared %d: %d\n", what, final, shared, rc);
                    CHECK(refused == (rc != 0));
                    if (refused) CHECK(errnum == EACCES || errnum == ELOOP);
                    CHECK(holds(victim, "precious"));
                    if (refused && what == PLANT_FOREIGN)
                        CHECK(holds(final ? path : tmp, "planted"));
                }
                parts_dir_clear(0);
            }
    CHECK(chmod(parts_dir, 0700) == 0);
}

/* In a directory of all a file of this user's alone; elsewhere as the umask has it. */
static void files__downloaded__mode_follows_the_directory(void) {
    parts_rig r;
    char path[128];
    mode_t was = umask(022);
    parts_init(&r, &seen, 20, NULL);
    parts_files(&r, &wanted, 0);
    wanted.download = download;
    downloads_of = &r;
    parts_path(path, parts_names[3], "");
    for (int shared = 0; shared < 2; shared++) {
        struct stat st;
        int errnum;
        CHECK(chmod(parts_dir, shared ? 01777 : 0700) == 0);
        CHECK(want_once(&errnum) == 0 && want_once(&errnum) == 0);
        CHECK(lstat(path, &st) == 0 && (st.st_mode & 0777) == (shared ? 0600 : 0644));
        parts_dir_clear(0);
    }
    CHECK(chmod(parts_dir, 0700) == 0);
    umask(was);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    order__golden__never_changes();
    order__every_epoch__each_item_once_in_another_order();
    run__any_wiring__as_written_down(seed);
    ranks__streams_divided__same_rows_fewer_loads();
    resume__behind_any_batch__goes_on_exactly();
    resume__other_parts__names_the_field();
    next_epoch__anywhere__next_one_is_whole();
    seek__part_still_loading__takes_no_second_cell();
    seek__at_random__goes_on_there(seed);
    workers__of_parts__one_by_default();
    queue__full__workers_wait();
    queue__empty__consumer_waits_and_is_told();
    queue__any_moment__no_more_ahead_than_its_size();
    queue__loads_faster_than_steps__no_stall_at_borders();
    queue__all_parts_fit__each_is_loaded_once();
    load_error__raise__comes_with_the_first_batch_in_need();
    load_error__words_of_another_part__not_told();
    load_error__too_many_bytes__length();
    load_error__short__rows_are_left_out();
    load_error__short__is_counted_up_to_the_budget();
    load_error__retries__part_comes();
    load_error__next_epoch__another_try();
    set_epoch__epochs_left__no_load_beside_it();
    batch__fetched_again__its_parts_are_there();
    fetch_error__replace__item_of_the_same_part();
    open__desc_out_of_range__names_field();
    open__order_without_queue__refused();
    wiring__parts_and_cache__same_bytes();
    wiring__parts_and_split__views_of_items(0);
    wiring__parts_and_split__views_of_items(1);
    plan__cells__on_lines_of_their_own();
    stop__at_any_moment__ends();
    CHECK(parts_dir_make());
    files__whole_or_ranges__read();
    files__downloads__each_once_under_its_name();
    files__wanted_at_once__one_download();
    files__planted_names__nothing_is_followed();
    files__downloaded__mode_follows_the_directory();
    files__errors__name_the_path();
    parts_dir_clear(1);
    return test_end("parts");
}
