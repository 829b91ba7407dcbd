/* Counters that come round: a pipe whose next batch stands just below the wrap of its generations
   (2^39), of the done words' (2^32), or far up at 2^44, runs across it as any other. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"

typedef struct hook {
    dlp_pipe *p;
    uint64_t start;
} hook;

static int hook_open(void *user) { /* the transfer's device is opened before the threads start */
    hook *h = user;
    inside_place(h->p, h->start);
    return 0;
}

/* as is an inline worker, when all are inline */
static int hook_init(void *user, int worker, void **state) {
    hook *h = user;
    (void)worker;
    (void)state;
    inside_place(h->p, h->start);
    return 0;
}

static int flaky_map(void *user, dlp_item *it) {
    if (it->attempt == 0 && it->index % 11 == 4) return -1;
    if (it->index % 13 == 5) return DLP_SKIP;
    return rig_item_map(user, it);
}

static int flaky_row_same(rig *r, const dlp_batch *b, uint32_t row) {
    uint64_t position = b->position + row, index = rig_index(r, b->epoch, position);
    uint64_t words[3];
    for (uint32_t k = 1; index % 13 == 5; k++)
        index =
            rig_index(r, b->epoch, inside_replacement(r->sampler.seed, b->epoch, position, k, 203));
    rig_words(r->sampler.seed, index, b->epoch, position, words);
    words[2] = words[2] * 3 + index;
    return b->index[row] == index &&
           memcmp((const uint8_t *)b->fields[0].data + 24 * row, words, 24) == 0;
}

static void run_across(uint64_t start, int kind) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_device device = *dlp_device_host();
    hook h;
    int rc, flaky = kind >> 5 & 1;
    uint64_t n = 0, seen = 0, per;
    if (test_failures > 10) return; /* it is said by now */
    rig_init(&r, 203, 33);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    rig_workers(&r, kind & 1 ? 3 : 0, kind >> 1 & 1);
    r.sampler.threaded = kind >> 2 & 1;
    r.pipe.unordered = kind >> 3 & 1;
    r.n_batch_maps = flaky ? 0 : kind >> 4 & 1;
    if (flaky) {
        r.n_item_maps = 1;
        r.item_map[0].map.item = flaky_map;
        r.item_map[0].workers.on_error = DLP_ON_ERROR_REPLACE;
        r.item_map[0].workers.retries = 1;
        r.item_map[0].workers.retry_backoff_ms = kind >> 4 & 1;
    }
    r.pipe.epochs = 4;
    r.pipe.max_held = 2;
    h.start = start;
    if (kind >> 6) {
        r.n_transfers = 1;
        device.open = hook_open;
        device.user = &h;
        r.transfer.transfer.device = &device;
        r.transfer.workers.num_workers = kind & 1;
    } else {
        r.fetch.num_workers = 0;
        r.sampler.threaded = 0;
        r.fetch.worker_init = hook_init;
        r.fetch.worker_user = &h;
    }
    if (rig_wire(&r, &p, NULL) != DLP_OK) {
        CHECK(0);
        return;
    }
    h.p = p;
    CHECK(dlp_pipe_start(p) == DLP_OK);
    per = rig_batches(&r);
    while ((rc = dlp_pipe_next_timeout(p, &b, 10000)) == DLP_OK) {
        int ok = b->epoch == n / per;
        CHECK(r.pipe.unordered || b->sequence == start + n);
        CHECK(r.pipe.unordered || b->in_epoch == n % per);
        if (flaky)
            for (uint32_t row = 0; row < b->count; row++) ok &= flaky_row_same(&r, b, row);
        else
            ok &= rig_batch_same(&r, b, n / per, b->in_epoch);
        CHECK(ok);
        seen |= UINT64_C(1) << (b->sequence - start);
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (rc != DLP_END || n != 4 * per) {
        printf("  start %llx kind %d: %d batches, then ", (unsigned long long)start, kind, (int)n);
        rig_say(p, rc);
    }
    CHECK(rc == DLP_END && n == 4 * per && seen == (UINT64_C(1) << n) - 1);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void wrap__every_counter__runs_across(void) {
    static const uint64_t wraps[] = {UINT64_C(1) << 32, UINT64_C(1) << 40, UINT64_C(1) << 44,
                                     UINT64_C(1) << 31, UINT64_C(1) << 39, UINT64_C(5) << 39};
    for (int i = 0; i < 6; i++)
        for (uint64_t below = 1; below < 8; below += 5)
            for (int kind = 0; kind < 128; kind += getenv("SHORT") ? 9 : getenv("SOAK") ? 1 : 3)
                run_across(wraps[i] - below, kind);
}

int main(void) {
    wrap__every_counter__runs_across();
    return test_end("pipe_wrap");
}
