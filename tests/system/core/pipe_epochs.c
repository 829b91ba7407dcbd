/* needs: parts split */
/* Epochs: repeat, marks, leaving one early, batch samplers whose length nobody knows, unordered
   delivery; and epochs that begin by set_epoch. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/parts_rig.h"

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
    r->transfer.workers.num_workers = kind >> 4 & 1;
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
            r.pipe.epochs = epochs;
            r.pipe.epoch_end = 1;
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
    r.pipe.epochs = DLP_FOREVER;
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
        r.pipe.epochs = 4;
        r.pipe.epoch_end = kind >> 1 & 1;
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
                if (r.pipe.epoch_end) CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_EPOCH_END);
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
        r.pipe.epochs = 5;
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
        r.transfer.workers.num_workers = threaded;
        r.pipe.unordered = 1;
        r.pipe.prefetch_factor = 6;
        r.pipe.epochs = 3;
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
        r.pipe.epochs = 6;
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

/* ---- epochs that begin by set_epoch: the data belongs to one epoch at a time ---- */

typedef struct turn { /* in memory that worker processes see, too */
    uint64_t now;     /* the epoch that set_epoch said last */
    uint64_t calls, epoch[16];
    uint64_t taken[16]; /* batches that next had returned by then */
    uint64_t batches;   /* that next has returned */
    uint32_t running;   /* callbacks */
    uint32_t wrong;     /* callbacks of another epoch than now, or while set_epoch ran */
    uint32_t kill;      /* n: the n-th fetch ends its process */
    uint32_t fetched;
    uint32_t fail_at; /* set_epoch fails at this call, counted from 1 */
    uint32_t sleep_us;
} turn;

static int turn_set(void *user, uint64_t epoch) {
    turn *t = user;
    t->wrong += __atomic_load_n(&t->running, __ATOMIC_SEQ_CST) != 0;
    __atomic_store_n(&t->now, UINT64_MAX, __ATOMIC_SEQ_CST);
    if (t->calls < 16) t->epoch[t->calls] = epoch;
    if (t->calls < 16) t->taken[t->calls] = t->batches;
    t->calls++;
    if (t->sleep_us) parts_pause(t->sleep_us);
    __atomic_store_n(&t->now, epoch, __ATOMIC_SEQ_CST);
    return t->calls == t->fail_at ? 7 : 0;
}

static void turn_check(turn *t, uint64_t epoch) {
    if (__atomic_load_n(&t->now, __ATOMIC_SEQ_CST) != epoch)
        __atomic_add_fetch(&t->wrong, 1, __ATOMIC_SEQ_CST);
}

static int turn_fetch(void *user, dlp_item *it) {
    turn *t = user;
    int rc;
    if (__atomic_add_fetch(&t->fetched, 1, __ATOMIC_SEQ_CST) == t->kill) raise(SIGKILL);
    __atomic_add_fetch(&t->running, 1, __ATOMIC_SEQ_CST);
    turn_check(t, it->epoch);
    rc = slow_fetch(NULL, it);
    turn_check(t, it->epoch);
    __atomic_sub_fetch(&t->running, 1, __ATOMIC_SEQ_CST);
    return rc;
}

static void turn_rig(rig *r, turn *t, int kind) {
    rig_init(r, 75, 8);
    memset(t, 0, sizeof *t);
    t->now = UINT64_MAX;
    vary(r, kind);
    r->dataset.fetch = turn_fetch;
    r->dataset.user = t;
    r->pipe.epochs = 3;
    r->pipe.set_epoch = turn_set;
    r->pipe.set_epoch_user = t;
}

/* Take n batches of an epoch from `first` on. */
static void turn_take(rig *r, turn *t, dlp_pipe *p, uint64_t epoch, uint64_t first, uint64_t n) {
    for (uint64_t k = first; k < first + n; k++) {
        dlp_batch *b;
        int rc = dlp_pipe_next_timeout(p, &b, 20000);
        if (rc != DLP_OK) rig_say(p, rc);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) return;
        t->batches++;
        CHECK(b->epoch == epoch && rig_batch_same(r, b, epoch, b->in_epoch));
        CHECK(r->pipe.unordered || b->in_epoch == k);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
}

static void turn_close(turn *t, dlp_pipe *p) {
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(t->wrong == 0);
}

static void set_epoch__every_wiring__nothing_before(void) {
    for (int kind = 0; kind < 128; kind++) {
        rig r;
        turn t;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_stats s;
        turn_rig(&r, &t, kind);
        r.pipe.unordered = kind >> 5 & 1;
        if (kind & 64) r.batch.collate = dlp_collate_pad;
        r.pipe.epoch_end = kind >> 1 & 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(t.calls == 0);
        for (uint64_t e = 0; e < 3; e++) {
            turn_take(&r, &t, p, e, 0, 10);
            if (r.pipe.epoch_end) CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_EPOCH_END);
            CHECK(t.calls == e + 1 && t.epoch[e] == e && t.taken[e] == e * 10);
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END && t.calls == 3);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.epoch_borders == 2);
        CHECK(s.epoch_wait_ns > 0 && s.epoch_wait_ns <= s.wait_ns + s.step_ns);
        turn_close(&t, p);
    }
}

/* Left, sought, resumed: it is told of each epoch that is begun, and of no other. */
static void set_epoch__next_epoch_and_seek__told_again(void) {
    for (int kind = 0; kind < 32; kind++) {
        static const uint64_t told[] = {0, 1, 0, 0, 2};
        rig r;
        turn t;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_state at, end;
        turn_rig(&r, &t, kind);
        if (rig_open(&r, &p) != DLP_OK) return;
        turn_take(&r, &t, p, 0, 0, 4);
        CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
        turn_take(&r, &t, p, 1, 0, 10);
        CHECK(dlp_pipe_state_at(p, 0, 7, &at) == DLP_OK && dlp_pipe_state_at(p, 2, 9, &end) == 0);
        CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
        turn_take(&r, &t, p, 0, 7, 2);
        CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK); /* the same epoch */
        turn_take(&r, &t, p, 0, 7, 1);
        CHECK(dlp_pipe_seek(p, &end, NULL) == DLP_OK);
        turn_take(&r, &t, p, 2, 9, 1);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(t.calls == 5 && memcmp(t.epoch, told, sizeof told) == 0);
        turn_close(&t, p);
        turn_rig(&r, &t, kind);
        r.pipe.resume = &at;
        if (rig_open(&r, &p) != DLP_OK) return;
        turn_take(&r, &t, p, 0, 7, 3);
        turn_take(&r, &t, p, 1, 0, 1);
        CHECK(t.calls == 2 && t.epoch[0] == 0 && t.epoch[1] == 1);
        turn_close(&t, p);
    }
}

/* A next that doesn't wait begins the epoch; nothing begins it but next. */
static void set_epoch__no_timeout__begins_without_waiting(void) {
    rig r;
    turn t;
    dlp_pipe *p;
    dlp_batch *b = NULL;
    turn_rig(&r, &t, 1);
    if (rig_open(&r, &p) != DLP_OK) return;
    parts_pause(20000);
    CHECK(t.calls == 0 && t.fetched == 0);
    CHECK(dlp_pipe_next_timeout(p, &b, 0) == DLP_TIMEOUT && t.calls == 1);
    for (int i = 0; i < 2000 && __atomic_load_n(&t.fetched, __ATOMIC_SEQ_CST) < 8; i++)
        parts_pause(1000);
    CHECK(t.fetched >= 8);
    turn_take(&r, &t, p, 0, 0, 10);
    parts_pause(20000);
    CHECK(t.calls == 1 && t.fetched == 75);
    turn_take(&r, &t, p, 1, 0, 1);
    turn_close(&t, p);
}

static void set_epoch__fails__error_says_who(void) {
    for (int kind = 0; kind < 8; kind++) {
        rig r;
        turn t;
        dlp_pipe *p;
        dlp_batch *b;
        const dlp_error *e;
        turn_rig(&r, &t, kind);
        t.fail_at = 2;
        if (rig_open(&r, &p) != DLP_OK) return;
        turn_take(&r, &t, p, 0, 0, 10);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
        e = dlp_pipe_error(p);
        CHECK(e->epoch == 1 && strcmp(e->field, "set_epoch") == 0);
        CHECK(strcmp(e->message, "set_epoch returned 7") == 0 && t.fetched == 75);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK && t.calls == 2);
        turn_close(&t, p);
    }
}

/* What it costs is told; a pipe without it has no such line. */
static void set_epoch__slow__told_by_statistics(void) {
    for (int with = 0; with < 2; with++) {
        rig r;
        turn t;
        dlp_pipe *p;
        dlp_stats s;
        dlp_trace_event event[256];
        char words[4096];
        int n, borders = 0;
        turn_rig(&r, &t, 1);
        t.sleep_us = 20000;
        if (!with) r.pipe.set_epoch = NULL;
        r.dataset.fetch = rig_fetch;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (uint64_t e = 0; e < 3; e++) turn_take(&r, &t, p, e, 0, 10);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.epoch_borders == (with ? 2 : 0));
        CHECK(with ? s.set_epoch_ns >= 60000000 : s.set_epoch_ns == 0);
        CHECK(with ? s.epoch_wait_ns >= 40000000 : s.epoch_wait_ns == 0);
        CHECK(s.epoch_wait_ns <= s.elapsed_ns);
        CHECK(dlp_pipe_explain(p, words, sizeof words) > 0);
        CHECK((strstr(words, "Epoch borders: ") != NULL) == with);
        n = dlp_pipe_trace(p, 0, event, 256, NULL);
        for (int i = 0; i < n; i++) {
            if (event[i].kind != DLP_TRACE_EPOCH) continue;
            CHECK(event[i].epoch == (uint32_t)borders++);
            CHECK(event[i].end_ns - event[i].begin_ns >= 20000000);
            CHECK(i == 0 || event[i].begin_ns >= event[i - 1].end_ns);
        }
        CHECK(borders == (with ? 3 : 0));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Ranks of one world, one of them without rows in the last batch. */
static void set_epoch__ranks__each_told(void) {
    for (uint32_t rank = 0; rank < 3; rank++) {
        rig r;
        turn t;
        dlp_pipe *p;
        turn_rig(&r, &t, 1);
        r.dataset.n_items = 73; /* the last batch has one row */
        r.pipe.rank = rank;
        r.pipe.world_size = 3;
        r.pipe.allow_uneven = 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (uint64_t e = 0; e < 3; e++) turn_take(&r, &t, p, e, 0, 10);
        CHECK(t.calls == 3);
        turn_close(&t, p);
    }
}

/* A batch sampler begins its epoch behind set_epoch. */
static turn *lists_turn;

static int lists_begin_behind(void *user, uint64_t epoch) {
    turn_check(lists_turn, epoch);
    return lists_begin(user, epoch);
}

static void set_epoch__batch_sampler__begun_behind_it(void) {
    for (int kind = 0; kind < 32; kind++) {
        rig r;
        turn t;
        lists l = {75, 0, 0, 0};
        dlp_pipe *p;
        dlp_batch *b;
        turn_rig(&r, &t, kind);
        lists_turn = &t;
        r.sampler.order = DLP_ORDER_BATCHES;
        r.sampler.batches.next = lists_next;
        r.sampler.batches.begin = lists_begin_behind;
        r.sampler.batches.user = &l;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (uint64_t e = 0; e < 3; e++)
            for (uint64_t k = 0; k < 3 + e; k++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && list_same(&r, b, e, k));
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(t.calls == 3 && l.begun == 3);
        turn_close(&t, p);
    }
}

/* A stream, whose end only a row finds. */
static int turn_stream(void *user, dlp_item *it) {
    return it->position >= 20 + 5 * it->epoch ? DLP_END : turn_fetch(user, it);
}

static void set_epoch__stream__begun_behind_its_end(void) {
    for (int workers = 0; workers < 3; workers++) {
        rig r;
        turn t;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t rows[3] = {0, 0, 0};
        int rc;
        turn_rig(&r, &t, 0);
        r.sampler.order = DLP_ORDER_SEQUENTIAL;
        rig_workers(&r, workers, 0);
        r.dataset.open_end = 1;
        r.dataset.fetch = turn_stream;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(b->epoch < 3 && t.calls == b->epoch + 1);
            rows[b->epoch] += b->count;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_END && rows[0] == 20 && rows[1] == 25 && rows[2] == 30);
        turn_close(&t, p);
    }
}

/* Of the next epoch's parts none is loaded before. */
static turn *parts_turn;

static int turn_load(void *user, dlp_part *part) {
    int rc;
    __atomic_add_fetch(&parts_turn->running, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&parts_turn->now, __ATOMIC_SEQ_CST) == UINT64_MAX)
        __atomic_add_fetch(&parts_turn->wrong, 1, __ATOMIC_SEQ_CST);
    rc = parts_load(user, part);
    __atomic_sub_fetch(&parts_turn->running, 1, __ATOMIC_SEQ_CST);
    return rc;
}

static void set_epoch__parts__not_loaded_before(void) {
    for (int workers = 0; workers < 3; workers++) {
        static uint64_t items[6] = {40, 40, 40, 40, 40, 40};
        parts_rig r;
        parts_seen seen;
        turn t;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        int rc;
        memset(&t, 0, sizeof t);
        t.now = UINT64_MAX;
        parts_turn = &t;
        parts_init(&r, &seen, 6, items);
        r.d.parts.workers.num_workers = workers;
        r.d.parts.load = turn_load;
        r.d.epochs = 3;
        r.d.pipe.set_epoch = turn_set;
        r.d.pipe.set_epoch_user = &t;
        if (parts_open(&r, &p) != DLP_OK) return;
        for (; (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK; n++) {
            t.batches++;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            if (n == 29) parts_pause(10000);
            if (n == 29) CHECK(__atomic_load_n(&seen.begun, __ATOMIC_SEQ_CST) == 6);
        }
        CHECK(rc == DLP_END && n == 90 && t.calls == 3 && t.taken[1] == 30 && t.taken[2] == 60);
        turn_close(&t, p);
    }
}

/* Chunks: what next gives are views, several of each. */
static int turn_chunk(void *user, dlp_chunk *c) {
    turn_check(user, c->epoch);
    memset(c->data[0], 0, c->count);
    return 0;
}

static void set_epoch__chunks__behind_the_last_view(void) {
    static const dlp_field field = {"x", DLP_U8, 0, {0}, 0, 0};
    for (int kind = 0; kind < 4; kind++) {
        turn t;
        dlp_chunks_desc d = {.n_items = 100, .fields = &field, .n_fields = 1, .chunk_rows = 30};
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        int rc;
        memset(&t, 0, sizeof t);
        d.batch_size = 8;
        d.load = turn_chunk;
        d.user = &t;
        d.epochs = 3;
        d.pipe.set_epoch = turn_set;
        d.pipe.set_epoch_user = d.user;
        d.shuffle_chunks = d.within_chunks = 1;
        d.workers.num_workers = kind & 1 ? 2 : 0;
        d.device = kind & 2 ? dlp_device_host() : NULL;
        CHECK(dlp_chunks_open(&p, &d, NULL) == DLP_OK);
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(t.calls == b->epoch + 1);
            t.batches = ++n;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_END && n == 42 && t.calls == 3 && t.taken[1] == 14 && t.taken[2] == 28);
        turn_close(&t, p);
    }
}

/* Worker processes, of which one is killed in each run: what set_epoch writes to memory that was
   shared before start, they see. */
static void set_epoch__processes_killed__exact(void) {
    turn *t = shm_shared(sizeof *t);
    for (int kind = 0; kind < 8 && shm_missing() == NULL; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        turn_rig(&r, t, 0);
        shm_processes(&r, 3, 0);
        r.sampler.threaded = kind & 1;
        r.fetch.worker_init = NULL;
        t->kill = 60 + 10 * (uint32_t)kind; /* near the border */
        if (rig_open(&r, &p) != DLP_OK) return;
        for (uint64_t e = 0; e < 3; e++) turn_take(&r, t, p, e, 0, 10);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(t->calls == 3 && t->taken[1] == 10 && t->taken[2] == 20);
        CHECK(inside_restarts(p) == 1);
        turn_close(t, p);
    }
}

static void set_epoch__subscribers__refused(void) {
    rig r;
    turn t;
    dlp_pipe *p;
    dlp_error err;
    dlp_shm_desc shm = {.share = DLP_SHARE_EACH, .name = "dlpipe-set-epoch"};
    turn_rig(&r, &t, 1);
    r.pipe.shm = &shm;
    CHECK(rig_try(&r, &p, &err) == DLP_ERR_ARG && strstr(err.message, "set_epoch"));
}

/* ---- epochs without a valid row ---- */

/* Which items fail, or are skipped (skips): all of this epoch, but for those below `good`. */
typedef struct bad {
    uint64_t epoch, good;
    int skips, stage; /* stage 1: in the map behind the fetch */
} bad;

static int bad_item(const bad *x, const dlp_item *it) {
    if (it->epoch != x->epoch || it->index < x->good) return 0;
    return x->skips ? DLP_SKIP : dlp_fail(it->call, 5, "no such file %d", (int)it->index);
}
static int bad_fetch(void *user, dlp_item *it) {
    const bad *x = user;
    const int rc = rig_fetch(NULL, it);
    return x->stage == 0 && rc == 0 ? bad_item(x, it) : rc;
}
static int bad_map(void *user, dlp_item *it) {
    const int rc = rig_item_map(NULL, it);
    return rc == 0 ? bad_item(user, it) : rc;
}
static int bad_stream(void *user, dlp_item *it) {
    return it->index < 40 ? bad_fetch(user, it) : DLP_END;
}

static void bad_rig(rig *r, bad *x, uint64_t n, int workers) {
    rig_init(r, n, 8);
    rig_workers(r, workers, 0);
    r->dataset.fetch = bad_fetch;
    r->dataset.user = x;
    r->fetch.on_error = DLP_ON_ERROR_DROP;
    r->item_map[0].map.item = bad_map;
    r->item_map[0].map.user = x;
    r->item_map[0].workers.on_error = DLP_ON_ERROR_DROP;
    r->n_item_maps = x->stage;
    r->pipe.epochs = 3;
}

typedef struct seen_run {
    int rc, ends; /* ends: of epochs */
    uint64_t batches, valid;
    dlp_error err;
    char warning[160];
} seen_run;

static seen_run bad_run(rig *r) {
    seen_run x = {.rc = 0};
    dlp_pipe *p;
    dlp_batch *b;
    if (rig_open(r, &p) != DLP_OK) return x;
    while ((x.rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK || x.rc == DLP_EPOCH_END) {
        x.ends += x.rc == DLP_EPOCH_END;
        if (x.rc == DLP_EPOCH_END) continue;
        x.batches++;
        x.valid += b->valid_count;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    x.err = *dlp_pipe_error(p);
    CHECK(x.err.code == (x.rc < 0 ? x.rc : 0) && dlp_pipe_next(p, &b) == x.rc);
    for (int i = 0; dlp_pipe_warning(p, i) != NULL; i++)
        if (strstr(dlp_pipe_warning(p, i), "no valid row") != NULL)
            snprintf(x.warning, sizeof x.warning, "%s", dlp_pipe_warning(p, i));
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return x;
}

/* Says the error of an epoch of 40 items, and of the first of them, what it should? */
static int bad_told(const seen_run *x, const bad *how) {
    char text[80];
    snprintf(text, sizeof text, "epoch %d has no valid row: all its 40 items were left out; ",
             (int)how->epoch);
    return x->rc == DLP_ERR_CALLBACK && strncmp(x->err.message, text, strlen(text)) == 0 &&
           strstr(x->err.message, how->skips ? "DLP_SKIP" : "no such file") != NULL &&
           x->err.errnum == (how->skips ? 0 : 5) && x->err.epoch == how->epoch &&
           strcmp(x->err.stage, how->stage ? "map" : "fetch") == 0 &&
           strcmp(x->err.field, "on_error") == 0 && strncmp(x->warning, text, strlen(text)) == 0;
}

/* All items of an epoch are left out, in any stage, with any workers: the epochs before end as
   they should, and it is an error. One item that is not left out makes the epoch a good one. */
static void valid__none_in_an_epoch__an_error_with_the_first_cause(void) {
    for (int kind = 0; kind < 96; kind++) {
        bad how = {(uint64_t)kind % 3, 0, kind / 3 & 1, kind / 6 & 1};
        const int last = kind & 1 ? DLP_LAST_PAD : DLP_LAST_PARTIAL;
        seen_run x;
        rig r;
        bad_rig(&r, &how, 40, kind / 12 & 1 ? 3 : 0);
        if (kind & 1) r.batch.batch_size = 12;
        r.batch.last = last;
        r.pipe.epoch_end = 1;
        r.pipe.unordered = kind / 24 & 1;
        r.n_transfers = kind / 48;
        x = bad_run(&r);
        CHECK(bad_told(&x, &how));
        CHECK(x.valid == 40 * how.epoch && x.ends == (int)how.epoch);
        CHECK(x.batches == (how.epoch + 1) * rig_batches(&r));
        how.good = 1;
        x = bad_run(&r);
        CHECK(x.rc == DLP_END && x.ends == 3 && x.valid == 81);
        CHECK(x.warning[0] == 0);
    }
}

/* As many items as one may fail do, or REPLACE finds no other item: as before. */
static void valid__max_skips_or_replace__as_they_say(void) {
    bad how = {0, 0, 0, 0};
    seen_run x;
    rig r;
    bad_rig(&r, &how, 40, 2);
    r.fetch.max_skips = 39;
    x = bad_run(&r);
    CHECK(x.rc == DLP_ERR_BUDGET);
    r.fetch.max_skips = 40;
    x = bad_run(&r);
    CHECK(bad_told(&x, &how));
    r.fetch.on_error = DLP_ON_ERROR_REPLACE;
    r.fetch.max_skips = 0;
    x = bad_run(&r);
    CHECK(x.rc == DLP_ERR_CALLBACK && strstr(x.err.message, "100 replacements") != NULL);
}

/* A pipe that goes on inside an epoch, at its end, or leaves it, has not seen that it was none. */
static void valid__epoch_not_seen_whole__no_error(void) {
    for (int kind = 0; kind < 8; kind++) {
        bad how = {1, kind & 1 ? 32 : 0, 0, 0};
        dlp_state inside, behind;
        dlp_pipe *p;
        dlp_batch *b;
        seen_run x;
        rig r;
        bad_rig(&r, &how, 40, kind / 2 & 1 ? 2 : 0);
        r.pipe.unordered = kind / 4 & 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int k = 0; k < 10 && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; k++) {
            dlp_pipe_release(p, b);
            if (k == 8) CHECK(dlp_pipe_state(p, NULL, &inside) == DLP_OK);
        }
        CHECK(dlp_pipe_state(p, NULL, &behind) == DLP_OK);
        CHECK(dlp_pipe_seek(p, &inside, NULL) == DLP_OK); /* 32 items of the epoch are behind it */
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->valid_count == 0);
        dlp_pipe_release(p, b);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->epoch == 2);
        dlp_pipe_release(p, b);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        for (int k = 0; k < 2; k++) {
            r.pipe.resume = k ? &behind : &inside;
            x = bad_run(&r);
            CHECK(x.rc == DLP_END && x.valid == 40 && x.batches == (k ? 5 : 6));
        }
        r.pipe.resume = NULL;
        how.good = 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int k = 0; k < 7 && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; k++)
            dlp_pipe_release(p, b);
        CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
        for (int k = 0; k < 5; k++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->valid_count == 8);
            dlp_pipe_release(p, b);
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* A state behind an epoch without a valid row, which is an error, is that of another pipe which has
   not seen the whole epoch. With epoch_end, and only then, the end is still to be told. */
static void valid__state_behind_an_epoch_that_was_none__as_of_any_pipe(void) {
    for (int ends = 0; ends < 2; ends++) {
        bad how = {0, 0, 0, 0};
        dlp_state behind[3]; /* before the last batch; behind it, by either pipe */
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        rig r;
        memset(behind, 0, sizeof behind);
        bad_rig(&r, &how, 40, 2);
        r.pipe.epoch_end = ends;
        for (int k = 0; k < 2; k++) { /* the second pipe begins at the last batch */
            if (rig_open(&r, &p) != DLP_OK) return;
            for (int i = k ? 4 : 0; i < 5; i++) {
                if (i == 4) CHECK(dlp_pipe_state(p, NULL, &behind[0]) == DLP_OK);
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->valid_count == 0);
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(dlp_pipe_state(p, NULL, &behind[1 + k]) == DLP_OK);
            rc = dlp_pipe_next_timeout(p, &b, 20000);
            CHECK(rc == (k == 0 ? DLP_ERR_CALLBACK : ends ? DLP_EPOCH_END : DLP_OK));
            CHECK(dlp_pipe_close(p) == DLP_OK);
            r.pipe.resume = &behind[0];
        }
        CHECK(memcmp(&behind[1], &behind[2], sizeof behind[1]) == 0);
        r.pipe.epoch_end = 1;
        r.pipe.resume = &behind[1];
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == (ends ? DLP_EPOCH_END : DLP_OK));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* A rank without an item ends as before. Of a rank whose items were all left out, many are an
   error, and few a warning: the other ranks may have had valid rows. */
static void valid__ranks__none_has_an_honest_end(void) {
    for (uint32_t rank = 0; rank < 4; rank++)
        for (int n = 1; n <= 400; n += 399) {
            bad how = {0, 0, 0, 0};
            seen_run x;
            rig r;
            bad_rig(&r, &how, (uint64_t)n, 2);
            r.pipe.rank = rank;
            r.pipe.world_size = 4;
            r.batch.last = n == 1 && rank % 2 ? DLP_LAST_PAD : DLP_LAST_PARTIAL;
            x = bad_run(&r);
            if (n == 1) CHECK(x.rc == DLP_END);
            if (n == 1)
                CHECK((x.warning[0] != 0) == (r.batch.last == DLP_LAST_PAD ? 0 : rank == 3));
            if (n == 400) CHECK(x.rc == DLP_ERR_CALLBACK && strstr(x.err.message, "on rank "));
            how.skips = 1;
            x = bad_run(&r);
            CHECK(x.rc == DLP_END); /* under 1000 skips */
            CHECK(n == 1 || strstr(x.warning, "DLP_SKIP") != NULL);
        }
}

/* The end of a stream is found by a row. An empty stream is no error. */
static void valid__streams__judged_at_their_end(void) {
    for (int kind = 0; kind < 8; kind++) {
        bad how = {(uint64_t)kind & 1, 0, 0, kind >> 2};
        seen_run x;
        rig r;
        bad_rig(&r, &how, 100, kind & 2 ? 2 : 0);
        r.dataset.fetch = bad_stream;
        r.dataset.open_end = 1;
        r.batch.batch_size = kind & 2 ? 8 : 16; /* the last batch has no row, or some */
        r.pipe.epochs = 2;
        r.pipe.epoch_end = 1;
        x = bad_run(&r);
        CHECK(bad_told(&x, &how) && x.valid == 40 * how.epoch && x.ends == (int)how.epoch);
        how.good = 1;
        x = bad_run(&r);
        CHECK(x.rc == DLP_END && x.valid == 41 && x.ends == 2);
    }
}

static void valid__processes__an_error_with_the_first_cause(void) {
    bad how = {1, 0, 0, 0};
    seen_run x;
    rig r;
    if (shm_missing() != NULL) return;
    bad_rig(&r, &how, 40, 2);
    shm_processes(&r, 2, 0);
    x = bad_run(&r);
    CHECK(bad_told(&x, &how) && x.valid == 40);
}

/* ---- a short last batch that nobody has asked for ---- */

static char short_words[512];
static int short_told, short_preload;

static void short_note(void *user, const char *message) {
    (void)user;
    if (strstr(message, "the last batch has") == NULL) return;
    short_told++;
    snprintf(short_words, sizeof short_words, "%s", message);
}

/* Open and close a pipe of `items` by `batch` with this `last`. Returns how many warnings came. */
static int short_open(uint64_t items, uint32_t batch, int32_t last, dlp_state *state) {
    rig r;
    dlp_pipe *p;
    rig_init(&r, items, batch);
    r.batch.last = last;
    r.pipe.log = short_note;
    short_told = 0;
    if (rig_open(&r, &p) != DLP_OK) return -1;
    CHECK(dlp_pipe_state(p, NULL, state) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return short_told;
}

static int short_load(void *user, dlp_chunk *c) {
    (void)user;
    memset(c->data[0], 0, (size_t)c->count * 4);
    return 0;
}

/* The same for a loader, and for chunks of 25 rows whose batches span them, or do not. */
static int short_loader(int32_t last) {
    rig r;
    dlp_pipe *p;
    dlp_loader_desc d = {.batch_size = 30, .drop_last = last, .pipe.log = short_note};
    rig_init(&r, 1000, 1);
    d.dataset = r.dataset;
    short_told = 0;
    if (dlp_loader_open(&p, &d, NULL) != DLP_OK) return -1;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return short_told;
}

static int short_chunks(uint64_t rows, int within, int32_t last, int32_t pass) {
    const dlp_field field = {.name = "x", .dtype = DLP_F32};
    dlp_pipe *p;
    dlp_error e;
    dlp_chunks_desc d = {.load = short_load,
                         .fields = &field,
                         .n_fields = 1,
                         .n_items = rows,
                         .chunk_rows = 25,
                         .batch_size = 10,
                         .last = last,
                         .within_chunks = within,
                         .pass = pass,
                         .preload = short_preload,
                         .pipe.log = short_note};
    short_told = 0;
    if (dlp_chunks_open(&p, &d, &e) != DLP_OK) return puts(e.message), -1;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return short_told;
}

static int short_fetch(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 0, 4);
    return 0;
}

static int short_keep(void *user, const dlp_item *it) {
    (void)user;
    return it->index % 4 != 3;
}

enum { SHORT_ZIP, SHORT_MIX, SHORT_FILTER, SHORT_TABLES };

/* Run two epochs of joined lists, or of a filter that keeps 3 of 4, by batches of 30. Returns how
   many warnings came before the first epoch ended, or -1 if more came behind it. */
static int short_table(int kind, uint64_t items, int32_t last) {
    static const dlp_field x = {.name = "x", .dtype = DLP_F32}, y = {.name = "y", .dtype = DLP_F32};
    const dlp_node_fetch fetch = {.fetch = short_fetch, .fields = &x, .n_fields = 1};
    dlp_node t[6] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = items}},
        {.name = "a", .verb = DLP_FETCH, .fetch = fetch},
        {.name = "list2", .verb = DLP_LIST, .list = {.n_items = items}},
        {.name = "b", .verb = DLP_FETCH, .fetch = fetch},
        {.name = "both",
         .verb = kind == SHORT_ZIP ? DLP_ZIP : DLP_MIX,
         .from = (const char *const[]){"a", "b", NULL}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 30, .last = last}}};
    const dlp_pipe_desc d = {.seed = 1, .epochs = 2, .log = short_note};
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    int first = -1;
    if (kind == SHORT_ZIP) t[3].fetch.fields = &y;
    if (kind == SHORT_FILTER)
        t[2] = (dlp_node){.name = "some", .verb = DLP_FILTER, .filter = {.keep = short_keep}},
        t[3] = t[5];
    short_told = 0;
    CHECK(dlp_pipe_open(&p, t, kind == SHORT_FILTER ? 4 : 6, &d, NULL) == DLP_OK);
    while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
        CHECK(b->epoch > 0 || last != DLP_LAST_DEFAULT || short_told == (b->count < 30));
        if (b->flags & DLP_BATCH_LAST && first < 0) first = short_told;
        dlp_pipe_release(p, b);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return first == short_told ? first : -1;
}

/* Where nobody knows the length of an epoch before it ends, the first short batch is told. */
static void last__short_behind_makers__told_with_the_batch(void) {
    static const char *const words[SHORT_TABLES] = {
        "batch: 100 items by 30: the last batch has 10 rows",
        "batch: 200 items by 30: the last batch has 20 rows",
        "batch: 75 items by 30: the last batch has 15 rows"};
    for (int kind = 0; kind < SHORT_TABLES; kind++) {
        CHECK(short_table(kind, 100, DLP_LAST_DEFAULT) == 1);
        CHECK(strstr(short_words, words[kind]) != NULL);
        CHECK(short_table(kind, 120, DLP_LAST_DEFAULT) == 0);
        CHECK(short_table(kind, 100, DLP_LAST_DROP) == 0);
    }
    CHECK(short_table(SHORT_ZIP, 100, DLP_LAST_PARTIAL) == 0);
}

static void last__not_said_and_short__one_warning(void) {
    dlp_state by_default, partial, other;
    CHECK(short_open(1000, 30, DLP_LAST_DEFAULT, &by_default) == 1);
    CHECK(strstr(short_words, "1000 items by 30: the last batch has 10 rows") != NULL);
    CHECK(short_open(1000, 30, DLP_LAST_PARTIAL, &partial) == 0);
    CHECK(memcmp(&by_default, &partial, sizeof partial) == 0);
    CHECK(short_open(1000, 30, DLP_LAST_DROP, &other) == 0);
    CHECK(short_open(1000, 30, DLP_LAST_PAD, &other) == 0);
    CHECK(short_open(1000, 25, DLP_LAST_DEFAULT, &other) == 0);
    CHECK(short_loader(0) == 1 && short_loader(DLP_LAST_DROP) == 0);
    CHECK(short_loader(DLP_LAST_PARTIAL) == 0);
    CHECK(short_chunks(104, 0, 0, DLP_PASS_TRAIN) == 1);
    CHECK(strstr(short_words, "104 items by 10: the last batch has 4 rows") != NULL);
    CHECK(short_chunks(104, 0, DLP_LAST_PARTIAL, DLP_PASS_TRAIN) == 0);
    CHECK(short_chunks(104, 0, 0, DLP_PASS_EVALUATE) == 0);
    CHECK(short_chunks(104, 1, 0, DLP_PASS_TRAIN) == 0 && short_chunks(100, 0, 0, 0) == 0);
    short_preload = DLP_PRELOAD_AUTO; /* which makes a plan before it opens */
    CHECK(short_chunks(104, 0, 0, DLP_PASS_TRAIN) == 1);
    short_preload = DLP_PRELOAD_NONE;
}

int main(void) {
    last__short_behind_makers__told_with_the_batch();
    epochs__finite__marked_and_ended();
    epochs__for_ever__goes_on_with_the_same_workers();
    epochs__left_at_any_batch__next_one_whole();
    epochs__unordered__no_mixing();
    epochs__unordered_behind_few_device_buffers__goes_on();
    epochs__unordered_slow_batch__others_first();
    epochs__batch_sampler__as_long_as_it_says();
    set_epoch__every_wiring__nothing_before();
    set_epoch__next_epoch_and_seek__told_again();
    set_epoch__no_timeout__begins_without_waiting();
    set_epoch__fails__error_says_who();
    set_epoch__slow__told_by_statistics();
    set_epoch__ranks__each_told();
    set_epoch__batch_sampler__begun_behind_it();
    set_epoch__stream__begun_behind_its_end();
    set_epoch__parts__not_loaded_before();
    set_epoch__chunks__behind_the_last_view();
    set_epoch__processes_killed__exact();
    set_epoch__subscribers__refused();
    valid__none_in_an_epoch__an_error_with_the_first_cause();
    valid__max_skips_or_replace__as_they_say();
    valid__epoch_not_seen_whole__no_error();
    valid__state_behind_an_epoch_that_was_none__as_of_any_pipe();
    valid__ranks__none_has_an_honest_end();
    valid__streams__judged_at_their_end();
    valid__processes__an_error_with_the_first_cause();
    last__not_said_and_short__one_warning();
    return test_end("pipe_epochs");
}
