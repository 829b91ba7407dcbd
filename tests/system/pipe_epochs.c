/* Epochs: repeat, marks, leaving one early, batch samplers whose length nobody knows, unordered
   delivery. */
#define _GNU_SOURCE
#include "../../dlpipe.h"

#include "../rig/pipe_rig.h"

static int init_calls;

static int count_init(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    (void)state;
    __atomic_add_fetch(&init_calls, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Items at some positions are slow, so that batches are in flight, and overtake each other. */
static int slow_fetch(void *user, dlp_item *it) {
    if (it->position % 24 == 3) {
        struct timespec t = {0, 1000000};
        nanosleep(&t, NULL);
    }
    return rig_fetch(user, it);
}

static void vary(rig *r, int kind) {
    rig_order(r, DLP_ORDER_SHUFFLED);
    rig_workers(r, kind & 1 ? 3 : 0, kind >> 1 & 1);
    r->sampler.threaded = kind >> 2 & 1;
    r->n_transfers = kind >> 3 & 1;
    r->transfer.threaded = kind >> 4 & 1;
    r->pipe.prefetch_factor = 3;
    r->fetch.worker_init = count_init;
    r->dataset.fetch = slow_fetch;
}

static void epochs__finite__marked_and_ended(void) {
    for (int kind = 0; kind < 32; kind++)
        for (int64_t epochs = 0; epochs < 4; epochs += 3) {
            rig r;
            dlp_pipe *p;
            dlp_batch *b;
            int rc, marks = 0;
            uint64_t n = 0, all = (uint64_t)(epochs ? epochs : 1), per;
            rig_init(&r, 75, 8);
            vary(&r, kind);
            r.repeat.epochs = epochs;
            r.repeat.epoch_end = 1;
            per = rig_batches(&r);
            if (rig_open(&r, &p) != DLP_OK) return;
            CHECK(dlp_pipe_batches_per_epoch(p) == (int64_t)per);
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK || rc == DLP_EPOCH_END) {
                if (rc == DLP_EPOCH_END) {
                    /* once, right behind the epoch's last batch */
                    CHECK(n == per * (uint64_t)++marks);
                    continue;
                }
                CHECK(rig_batch_same(&r, b, n / per, n % per) && b->sequence == n);
                CHECK(b->flags == (n % per + 1 == per ? DLP_BATCH_LAST : 0));
                n++;
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(rc == DLP_END && n == all * per && marks == (int)all);
            CHECK(dlp_pipe_next(p, &b) == DLP_END);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

static void epochs__for_ever__goes_on_with_the_same_workers(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    rig_init(&r, 30, 8);
    vary(&r, 1);
    r.repeat.epochs = DLP_FOREVER;
    r.dataset.fetch = rig_fetch;
    init_calls = 0;
    if (rig_open(&r, &p) != DLP_OK) return;
    for (uint64_t n = 0; n < 4 * 200; n++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && rig_batch_same(&r, b, n / 4, n % 4));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(init_calls == 3);
}

/* Take an epoch to its end: each batch once, in order unless unordered, LAST on the one that comes
   last and on no other, nothing of another epoch. */
static int take_epoch(rig *r, dlp_pipe *p, uint64_t epoch) {
    uint64_t n = rig_batches(r), seen = 0;
    int ok = 1;
    for (uint64_t i = 0; i < n; i++) {
        dlp_batch *b;
        int rc = dlp_pipe_next_timeout(p, &b, 20000);
        if (rc != DLP_OK) {
            rig_say(p, rc);
            return 0;
        }
        ok &= b->epoch == epoch && b->in_epoch < n && (seen >> b->in_epoch & 1) == 0;
        ok &= r->pipe.unordered || b->in_epoch == i;
        ok &= rig_batch_same(r, b, epoch, b->in_epoch);
        ok &= b->flags == (i + 1 == n ? DLP_BATCH_LAST : 0);
        seen |= UINT64_C(1) << b->in_epoch;
        ok &= dlp_pipe_release(p, b) == DLP_OK;
    }
    return ok && seen == (UINT64_C(1) << n) - 1;
}

static void epochs__left_at_any_batch__next_one_whole(void) {
    for (int kind = 0; kind < 64; kind++) {
        rig r;
        uint64_t n;
        rig_init(&r, 75, 8);
        vary(&r, kind);
        r.pipe.unordered = kind >> 5;
        r.pipe.max_held = 2;
        r.repeat.epochs = 4;
        r.repeat.epoch_end = kind >> 1 & 1;
        n = rig_batches(&r);
        for (uint64_t stop = 0; stop <= n; stop += kind & 3 ? 3 : 1) {
            dlp_pipe *p;
            dlp_batch *b, *held = NULL;
            uint64_t left = 0, first = stop == 0 ? 0 : 1;
            init_calls = 0;
            if (rig_open(&r, &p) != DLP_OK) return;
            for (; left < stop; left++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK &&
                      rig_batch_same(&r, b, 0, b->in_epoch));
                if (left == 0)
                    held = b; /* still in hand when the epoch is left */
                else
                    CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            /* before the first, and behind the last: nothing to leave */
            CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
            CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
            if (held) CHECK(rig_batch_same(&r, held, 0, held->in_epoch));
            if (held) CHECK(dlp_pipe_release(p, held) == DLP_OK);
            for (uint64_t e = first; e < 4; e++) {
                CHECK(take_epoch(&r, p, e));
                if (r.repeat.epoch_end) CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_EPOCH_END);
                if (e == 2) { /* and leave the last one too */
                    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->epoch == 3);
                    CHECK(dlp_pipe_release(p, b) == DLP_OK);
                    CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
                    break;
                }
            }
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            CHECK(init_calls == (kind & 1 ? 3 : 1)); /* nobody was started again */
        }
    }
}

static void epochs__unordered__no_mixing(void) {
    for (int kind = 0; kind < 32; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        rig_init(&r, 75, 8);
        vary(&r, kind);
        r.pipe.unordered = 1;
        r.pipe.prefetch_factor = 1 + kind % 7;
        r.repeat.epochs = 5;
        if (kind & 1) r.batch.collate = dlp_collate_pad;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (uint64_t e = 0; e < 5; e++) CHECK(take_epoch(&r, p, e));
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* The last batch of an epoch is slow, those of the next are ready: they must not take all device
   buffers. */
static int last_is_slow(void *user, dlp_item *it) {
    if (it->position == 74) {
        struct timespec t = {0, 30000000};
        nanosleep(&t, NULL);
    }
    return rig_fetch(user, it);
}

static void epochs__unordered_behind_few_device_buffers__goes_on(void) {
    for (int threaded = 0; threaded < 2; threaded++) {
        rig r;
        dlp_pipe *p;
        rig_init(&r, 75, 8);
        vary(&r, 1);
        r.dataset.fetch = last_is_slow;
        r.n_transfers = 1;
        r.transfer.threaded = threaded;
        r.pipe.unordered = 1;
        r.pipe.prefetch_factor = 6;
        r.repeat.epochs = 3;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (uint64_t e = 0; e < 3; e++) CHECK(take_epoch(&r, p, e));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* An unordered pipe does let batches overtake: one slow item does not hold the others up. */
static void epochs__unordered_slow_batch__others_first(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    int place = -1;
    rig_init(&r, 75, 8);
    rig_workers(&r, 2, 0);
    r.pipe.unordered = 1;
    r.pipe.prefetch_factor = 4;
    r.dataset.fetch = last_is_slow;
    r.dataset.n_items = 600;
    if (rig_open(&r, &p) != DLP_OK) return;
    for (int i = 0; i < 75; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        if (b->in_epoch == 9) place = i;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(place > 10); /* batch 9 has position 74 */
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- a batch sampler: as many lists as it likes ---- */

typedef struct lists {
    uint64_t n, at, many, begun;
} lists;

static int lists_begin(void *user, uint64_t epoch) {
    lists *l = user;
    l->at = 0;
    l->many = 3 + epoch % 4;
    l->begun++;
    return 0;
}

static int64_t lists_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    lists *l = user;
    uint64_t count = 1 + (l->at + epoch) % max;
    if (l->at == l->many) return 0;
    for (uint64_t i = 0; i < count; i++) index[i] = (epoch * 100 + l->at * 10 + i) % l->n;
    l->at++;
    return (int64_t)count;
}

static int list_same(rig *r, const dlp_batch *b, uint64_t epoch, uint64_t k) {
    uint64_t position = 0, count = 1 + (k + epoch) % 8;
    int ok = b->epoch == epoch && b->in_epoch == k && b->count == count && b->valid_count == count;
    for (uint64_t i = 0; i < k; i++) position += 1 + (i + epoch) % 8;
    ok &= b->position == position;
    for (uint32_t i = 0; ok && i < count; i++) {
        uint64_t words[3], index = (epoch * 100 + k * 10 + i) % 75;
        rig_words(r->sampler.seed, index, epoch, position + i, words);
        ok &= b->index[i] == index &&
              memcmp((const uint8_t *)b->fields[0].data + 24 * i, words, 24) == 0;
    }
    return ok;
}

static void epochs__batch_sampler__as_long_as_it_says(void) {
    for (int kind = 0; kind < 64; kind++) {
        rig r;
        lists l = {75, 0, 0, 0};
        dlp_pipe *p;
        dlp_batch *b;
        rig_init(&r, 75, 8);
        vary(&r, kind);
        r.sampler.order = DLP_ORDER_BATCHES;
        r.sampler.batches.next = lists_next;
        r.sampler.batches.begin = lists_begin;
        r.sampler.batches.user = &l;
        r.repeat.epochs = 6;
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(dlp_pipe_batches_per_epoch(p) == -1);
        for (uint64_t e = 0; e < 6; e++) {
            /* leave epoch 2 early */
            uint64_t many = 3 + e % 4, until = kind >> 5 && e == 2 ? 2 : many;
            for (uint64_t k = 0; k < until; k++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && list_same(&r, b, e, k));
                CHECK(b->flags == (k + 1 == many ? DLP_BATCH_LAST : 0));
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(until == many || dlp_pipe_next_epoch(p) == DLP_OK);
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(l.begun == 6);
    }
}

int main(void) {
    epochs__finite__marked_and_ended();
    epochs__for_ever__goes_on_with_the_same_workers();
    epochs__left_at_any_batch__next_one_whole();
    epochs__unordered__no_mixing();
    epochs__unordered_behind_few_device_buffers__goes_on();
    epochs__unordered_slow_batch__others_first();
    epochs__batch_sampler__as_long_as_it_says();
    return test_end("pipe_epochs");
}
