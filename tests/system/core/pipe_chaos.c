/* Random pipes whose every atomic access may be late. All bytes are computed a second time without
   a pipe. pipe_chaos [seed [seconds]] */
/* own: hook: each access of an atomic may be late */
#include "../../rig/late_hook.h"
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include <stdio.h>
#include <stdlib.h>
#include "../../rig/pipe_rig.h"

/* ---- stages that fail: each row `need` times, and "bad" items for ever, in one of the stages
   ---- */

static struct {
    uint64_t seed;
    int bad_stage; /* 0: fetch, 1..: item maps, -1: none is bad */
    int retries, idempotent;
    int on_error;
} plan;

static int stage_numbers[RIG_MAPS + 1] = {0, 1, 2, 3};

static int row_bad(uint64_t index, int stage) {
    return stage == plan.bad_stage && dlp_hash(plan.seed, index, 77, 0) % 13 == 0;
}

static int row_fails(const dlp_item *it, int stage) {
    uint64_t h = dlp_hash(plan.seed, it->index, it->epoch * 131 + it->position, (uint64_t)stage);
    uint32_t need = h % 7 == 0 ? (uint32_t)(h >> 32) % (uint32_t)(plan.retries + 1) : 0;
    return row_bad(it->index, stage) || it->attempt < need;
}

static int chaos_fetch(void *user, dlp_item *it) {
    int rc = rig_fetch(user, it);
    if (!row_fails(it, 0)) return rc;
    memset(it->data[0], 0x5a, 24);
    return dlp_fail(it->call, 0, "fetch fails");
}

static int chaos_map(void *user, dlp_item *it) {
    if (!row_fails(it, *(int *)user)) return rig_item_map(NULL, it);
    if (!plan.idempotent) memset(it->data[0], 0xa5, 24);
    return dlp_fail(it->call, 0, "map fails");
}

/* ---- a device whose copies take a while ---- */

static int slow_alloc(void *user, uint64_t bytes, void **dev) {
    (void)user;
    return posix_memalign(dev, 64, bytes ? (size_t)bytes : 1);
}
static void slow_free(void *user, void *dev) {
    (void)user;
    free(dev);
}
static int slow_copy(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer) {
    (void)user;
    (void)buffer;
    if (bytes) memcpy(dev, host, bytes);
    return 0;
}
static int slow_record(void *user, uint32_t buffer) {
    (void)user;
    (void)buffer;
    return 0;
}
static int slow_done(void *user, uint32_t buffer) {
    static uint64_t calls;
    (void)user;
    return dlp_hash(__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED), buffer, 0, 0) % 3 == 0;
}
static const dlp_device slow_device = {.name = "slow",
                                       .alloc = slow_alloc,
                                       .free = slow_free,
                                       .copy = slow_copy,
                                       .record = slow_record,
                                       .done = slow_done};

/* ---- what must come out ---- */

/* Which item takes a position in the end; *valid: is there any. */
static uint64_t final_index(rig *r, uint64_t epoch, uint64_t position, int *valid) {
    uint64_t index = rig_index(r, epoch, position);
    dlpi_order order;
    *valid = 1;
    if (plan.bad_stage < 0) return index;
    if (plan.on_error == DLP_ON_ERROR_DROP) {
        *valid = !row_bad(index, plan.bad_stage);
        return index;
    }
    dlpi_order_init(&order, &r->sampler, r->dataset.n_items, r->table);
    for (uint32_t k = 1; row_bad(index, plan.bad_stage); k++)
        index = dlpi_order_replacement(&order, epoch, position, k);
    return index;
}

static int row_right(rig *r, const dlp_batch *b, uint32_t row, uint64_t position) {
    uint64_t words[3] = {0, 0, 0}, got[3];
    int valid, real = position < rig_samples(r);
    uint64_t at = position % rig_samples(r), index = final_index(r, b->epoch, at, &valid);
    uint32_t label;
    if (valid) {
        rig_words(r->sampler.seed, index, b->epoch, at, words);
        for (int i = 0; i < r->n_item_maps; i++) words[2] = words[2] * 3 + index;
    }
    for (int i = 0; i < r->n_batch_maps; i++) words[2] = words[2] * 5 + index + b->in_epoch;
    memcpy(got, (const uint8_t *)b->fields[0].data + row * sizeof got, sizeof got);
    memcpy(&label, (const uint8_t *)b->fields[1].data + row * sizeof label, sizeof label);
    return b->index[row] == index && memcmp(words, got, sizeof got) == 0 &&
           label == (valid ? (uint32_t)index : 0) && b->valid[row] == (valid && real);
}

static int batch_right(rig *r, const dlp_batch *b) {
    uint64_t first, from, count;
    int ok;
    rig_share(r, b->in_epoch, &first, &from, &count);
    ok = b->in_epoch < rig_batches(r) && b->position == first + from && b->count == count &&
         b->fields[0].bytes == 24 * count;
    for (uint32_t row = 0; ok && row < count; row++) ok = row_right(r, b, row, first + from + row);
    return ok;
}

/* ---- one random pipe ---- */

static void make_rig(rig *r, uint64_t *random) {
    static const uint32_t sizes[] = {1, 2, 5, 9, 16, 31, 32, 33, 40, 70};
    uint32_t batch = sizes[test_pick(random, 10)];
    rig_init(r, 1 + test_pick(random, 8 * batch), batch);
    rig_order(r, test_pick(random, 2) ? DLP_ORDER_SHUFFLED : DLP_ORDER_SEQUENTIAL);
    r->sampler.seed = test_random(random);
    r->sampler.threaded = (int32_t)test_pick(random, 2);
    if (test_pick(random, 3) == 0) {
        r->pipe.world_size = 1 + test_pick(random, 3);
        r->pipe.rank = test_pick(random, r->pipe.world_size);
        r->pipe.allow_uneven = 1;
    }
    r->pipe.epochs = 2 + test_pick(random, 6);
    r->batch.last = (int32_t)test_pick(random, 3);
    if (r->batch.last == DLP_LAST_DROP && r->dataset.n_items < batch)
        r->batch.last = DLP_LAST_PARTIAL;
    r->pipe.prefetch_factor = (int32_t)test_pick(random, 9);
    r->pipe.max_held = 1 + (int32_t)test_pick(random, 3);
    r->pipe.unordered = (int32_t)test_pick(random, 2);
    rig_workers(r, (int)test_pick(random, 5), (int)test_pick(random, 2));
    r->n_item_maps = (int)test_pick(random, 3);
    r->n_batch_maps = (int)test_pick(random, 2);
    r->n_transfers = (int)test_pick(random, 2);
    r->transfer.workers.num_workers = (int32_t)test_pick(random, 2);
    if (test_pick(random, 2)) r->transfer.transfer.device = &slow_device;
    if (test_pick(random, 3) == 0) r->batch.collate = dlp_collate_pad;
    if (test_pick(random, 3) == 0) r->batch_by.num_workers = 1 + (int32_t)test_pick(random, 3);
    if (r->batch.collate == NULL) r->batch_by.num_workers = 0;
    if (test_pick(random, 4) == 0)
        r->item_map[0].workers.num_workers = (int32_t)test_pick(random, 3);
    if (test_pick(random, 4) == 0)
        r->item_map[1].workers.dispatch =
            test_pick(random, 2) ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
}

static void make_failures(rig *r, uint64_t *random) {
    dlp_workers_desc *w[RIG_MAPS + 1];
    int32_t backoff = test_pick(random, 3) == 0;
    w[0] = &r->fetch;
    plan.seed = test_random(random);
    plan.retries = (int)test_pick(random, 4);
    plan.on_error = test_pick(random, 2) ? DLP_ON_ERROR_REPLACE : DLP_ON_ERROR_DROP;
    plan.bad_stage = (int)test_pick(random, 4) - 1;
    plan.idempotent = (int)test_pick(random, 2);
    if (plan.bad_stage > r->n_item_maps) plan.bad_stage = -1;
    if (r->dataset.n_items < 40 && plan.on_error == DLP_ON_ERROR_REPLACE) plan.bad_stage = -1;
    r->dataset.fetch = chaos_fetch;
    for (int i = 0; i < RIG_MAPS; i++) {
        w[i + 1] = &r->item_map[i].workers;
        r->item_map[i].map.item = chaos_map;
        r->item_map[i].map.user = &stage_numbers[i + 1];
    }
    for (int i = 0; i <= RIG_MAPS; i++) {
        w[i]->retries = plan.retries;
        w[i]->retry_backoff_ms = backoff;
        w[i]->on_error = plan.on_error;
        w[i]->idempotent = plan.idempotent;
    }
}

static void say_case(const rig *r, uint64_t seed) {
    printf("  seed %llu: workers %d %d dispatch %d items %d batch %u threaded %d world %u/%u "
           "epochs %d last %d "
           "prefetch %d held %d unordered %d maps %d %d transfer %d %d collate %d batch_workers %d "
           "retries %d "
           "backoff %d on_error %d bad_stage %d idempotent %d\n",
           (unsigned long long)seed, r->fetch.num_workers, r->item_map[0].workers.num_workers,
           r->fetch.dispatch, (int)r->dataset.n_items, r->batch.batch_size, r->sampler.threaded,
           r->pipe.rank, r->pipe.world_size, (int)r->pipe.epochs, r->batch.last,
           r->pipe.prefetch_factor, r->pipe.max_held, r->pipe.unordered, r->n_item_maps,
           r->n_batch_maps, r->n_transfers, r->transfer.workers.num_workers,
           r->batch.collate != NULL, r->batch_by.num_workers, plan.retries,
           r->fetch.retry_backoff_ms, plan.on_error, plan.bad_stage, plan.idempotent);
}

typedef struct tally { /* of the epoch now */
    uint64_t epoch, got;
    uint8_t seen[600];
} tally;

/* Is b the next one, or, unordered, one of the epoch that was not there yet? */
static void take_one(rig *r, tally *t, const dlp_batch *b) {
    CHECK(b->epoch == t->epoch);
    CHECK(b->in_epoch < 600 && !t->seen[b->in_epoch]);
    if (!r->pipe.unordered) CHECK(b->in_epoch == t->got);
    if (b->in_epoch < 600) t->seen[b->in_epoch] = 1;
    t->got++;
    CHECK(((b->flags & DLP_BATCH_LAST) != 0) == (t->got == rig_batches(r)));
    CHECK(batch_right(r, b));
    if (t->got < rig_batches(r)) return;
    memset(t, 0, sizeof *t);
    t->epoch = b->epoch + 1;
}

static void one_pipe(uint64_t seed) {
    uint64_t random = seed;
    static tally t;
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *held[4] = {NULL, NULL, NULL, NULL}, *b;
    int rc, before = test_failures, skips, stop_after;
    make_rig(&r, &random);
    make_failures(&r, &random);
    skips = test_pick(&random, 3) == 0;
    stop_after = test_pick(&random, 4) == 0 ? (int)test_pick(&random, 30) : -1;
    memset(&t, 0, sizeof t);
    if (rig_open(&r, &p) != DLP_OK) {
        say_case(&r, seed);
        return;
    }
    while (stop_after-- != 0 && (rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_END &&
           test_failures == before) {
        int at = (int)test_pick(&random, (uint32_t)r.pipe.max_held);
        if (rc == DLP_ERR_HELD) {
            for (at = 0; held[at] == NULL;) at++;
            CHECK(dlp_pipe_release(p, held[at]) == DLP_OK);
            held[at] = NULL;
            continue;
        }
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) {
            rig_say(p, rc);
            break;
        }
        take_one(&r, &t, b);
        if (held[at]) CHECK(batch_right(&r, held[at]) && dlp_pipe_release(p, held[at]) == DLP_OK);
        held[at] = b;
        if (skips && test_pick(&random, 7) == 0) {
            CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
            if (t.got > 0) {
                uint64_t epoch = t.epoch + 1;
                memset(&t, 0, sizeof t);
                t.epoch = epoch;
            }
        }
    }
    for (int i = 0; i < 4; i++)
        if (held[i]) CHECK(batch_right(&r, held[i]) && dlp_pipe_release(p, held[i]) == DLP_OK);
    if (stop_after < -1 && test_failures == before)
        CHECK(t.epoch == (uint64_t)r.pipe.epochs && t.got == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    if (test_failures != before) say_case(&r, seed);
    rig_free(&r);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, began = test_now_ns();
    int seconds = argc > 2 ? atoi(argv[2]) : test_share(10, 600), n = 0;
    for (; n == 0 || test_now_ns() - began < (uint64_t)seconds * 1000000000u; n++) {
        static const uint32_t often[] = {0, 20, 200, 2000};
        __atomic_store_n(&late_often, often[(seed + (uint64_t)n) % 4], __ATOMIC_RELAXED);
        one_pipe(seed + (uint64_t)n);
        if (test_failures > 0) break;
    }
    printf("%d pipes\n", n);
    return test_end("pipe_chaos");
}
