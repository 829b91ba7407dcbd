/* The pipe end to end: the bytes that (seed, epoch, position) tell, in order, whatever the
   wiring. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"

static const int workers_of[] = {0, 1, 2, 7, 16};
static const int prefetch_of[] = {1, 2, 3, 16};
static const int held_of[] = {1, 2, 5};
static const uint32_t batch_of[] = {1, 7, 13, 29, 32, 33, 64, 100, 1000};

typedef struct held {
    dlp_batch *batch;
    uint64_t epoch, k;
} held;

/* Run to the end: each batch is checked when it comes and again when it goes, in any order. */
static int run_through(rig *r, uint64_t *random) {
    dlp_pipe *p;
    held in_hand[8];
    uint64_t sequence = 0, epochs = r->pipe.epochs ? (uint64_t)r->pipe.epochs : 1;
    int n_held = 0, most = r->pipe.max_held ? r->pipe.max_held : 1, rc = DLP_OK, ok = 1;
    if (rig_open(r, &p) != DLP_OK) return 0;
    for (;;) {
        uint64_t epoch = sequence / rig_batches(r), k = sequence % rig_batches(r);
        dlp_batch *b;
        if (n_held == most || (n_held > 0 && test_pick(random, 3) == 0)) {
            int i = (int)test_pick(random, (uint32_t)n_held);
            ok &= rig_batch_same(r, in_hand[i].batch, in_hand[i].epoch, in_hand[i].k);
            ok &= dlp_pipe_release(p, in_hand[i].batch) == DLP_OK;
            in_hand[i] = in_hand[--n_held];
        }
        rc = dlp_pipe_next_timeout(p, &b, 20000);
        if (rc != DLP_OK) break;
        ok &= b->sequence == sequence && rig_batch_same(r, b, epoch, k);
        ok &= b->flags == (k + 1 == rig_batches(r) ? DLP_BATCH_LAST : 0);
        in_hand[n_held].batch = b;
        in_hand[n_held].epoch = epoch;
        in_hand[n_held++].k = k;
        sequence++;
    }
    if (rc != DLP_END) rig_say(p, rc);
    ok &= rc == DLP_END && sequence == epochs * rig_batches(r);
    while (n_held > 0) ok &= dlp_pipe_release(p, in_hand[--n_held].batch) == DLP_OK;
    return dlp_pipe_close(p) == DLP_OK && ok;
}

static void one_case(int order, int last, int workers, int dispatch, uint32_t batch,
                     uint64_t *random) {
    rig r;
    int before = test_failures;
    if (before > 10) return; /* it is said by now */
    rig_init(&r, 203, batch);
    rig_order(&r, order);
    rig_workers(&r, workers, dispatch);
    r.batch.last = last == DLP_LAST_DROP && batch > 203 ? DLP_LAST_PAD : last;
    r.pipe.epochs = 2;
    r.sampler.threaded = (int32_t)test_pick(random, 2);
    r.pipe.prefetch_factor = prefetch_of[test_pick(random, 4)];
    r.pipe.max_held = held_of[test_pick(random, 3)];
    r.n_item_maps = (int)test_pick(random, 3);
    r.n_batch_maps = (int)test_pick(random, 2);
    r.n_transfers = test_pick(random, 3) > 0;
    r.transfer.workers.num_workers = (int32_t)test_pick(random, 2);
    r.dataset.writes_all_bytes = test_pick(random, 2);
    if (test_pick(random, 3) == 0) r.batch_by.num_workers = workers_of[test_pick(random, 5)];
    if (test_pick(random, 3) == 0)
        r.batch.collate = test_pick(random, 2) ? dlp_collate_pad : dlp_collate_pack;
    if (r.batch.collate == NULL) r.batch_by.num_workers = 0;
    if (test_pick(random, 4) == 0)
        r.item_map[0].workers.num_workers = workers_of[test_pick(random, 3)];
    if (test_pick(random, 4) == 0)
        r.item_map[1].workers.dispatch = DLP_DISPATCH_BATCHES - r.fetch.dispatch;
    if (test_pick(random, 4) == 0)
        r.batch_map[0].workers.num_workers = workers_of[test_pick(random, 3)];
    CHECK(run_through(&r, random));
    if (test_failures != before)
        printf("  order %d last %d workers %d dispatch %d batch %u: threaded %d prefetch %d held "
               "%d maps %d %d "
               "transfer %d %d collate %d batch_workers %d\n",
               order, last, workers, dispatch, batch, r.sampler.threaded, r.pipe.prefetch_factor,
               r.pipe.max_held, r.n_item_maps, r.n_batch_maps, r.n_transfers,
               r.transfer.workers.num_workers, r.batch.collate != NULL, r.batch_by.num_workers);
    rig_free(&r);
}

/* Every order, last rule, worker count and dispatch, each time with other batches and stages
   around them. */
static void pipe__any_wiring__same_bytes(uint64_t seed) {
    uint64_t random = seed;
    int rounds = test_share(3, 60);
    for (int round = 0; round < rounds; round++)
        for (int order = 0; order <= DLP_ORDER_FUNCTION; order++)
            for (int last = 0; last < 3; last++)
                for (int w = 0; w < 5; w++)
                    for (int dispatch = 0; dispatch < 2; dispatch++)
                        one_case(order, last, workers_of[w], dispatch,
                                 batch_of[test_pick(&random, 9)], &random);
}

/* Words of a slot lie one behind the other: none is written past its place, whatever their
   number. */
static void pipe__every_small_batch__same_bytes(void) {
    uint64_t random = 9;
    for (uint32_t batch = 1; batch <= 70; batch++)
        one_case(DLP_ORDER_SHUFFLED, 0, 0, 0, batch, &random);
}

/* With a sampler of its own thread, an inline fetch is told of new batches, and need not find
   out. */
/* Two fields, the second of *user bytes. The callback leaves garbage in all of a row, and fails if
   the row did not begin as zeros. */
static int leave_garbage(void *user, dlp_item *it) {
    const size_t bytes[2] = {8, *(const size_t *)user};
    uint8_t any = 0;
    for (int f = 0; f < 2; f++) {
        uint8_t *at = it->data[f];
        for (size_t i = 0; i < bytes[f]; i++) any |= at[i];
        memset(at, 0xa5, bytes[f]);
    }
    return any ? dlp_fail(it->call, 0, "the row has bytes of another one") : 0;
}

/* Slots are used again and again; rows of few bytes are cleared together, others one by one. */
static void row__not_all_bytes_written__begins_as_zeros(void) {
    static size_t bytes[] = {1, 784, 3000};
    for (size_t i = 0; i < 3; i++)
        for (size_t b = 0; b < sizeof batch_of / sizeof *batch_of; b++)
            for (int32_t workers = 0; workers <= 2; workers += 2) {
                const dlp_field fields[2] = {
                    {.name = "a", .dtype = DLP_U64},
                    {.name = "b", .dtype = DLP_U8, .ndim = 1, .shape = {(int64_t)bytes[i]}}};
                const dlp_loader_desc d = {.dataset = {.n_items = 700,
                                                       .fields = fields,
                                                       .n_fields = 2,
                                                       .fetch = leave_garbage,
                                                       .user = &bytes[i]},
                                           .batch_size = batch_of[b],
                                           .num_workers = workers,
                                           .epochs = 4};
                dlp_pipe *p = NULL;
                dlp_batch *batch;
                int rc;
                CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
                if (p == NULL) return;
                while ((rc = dlp_pipe_next(p, &batch)) == DLP_OK)
                    CHECK(dlp_pipe_release(p, batch) == DLP_OK);
                CHECK(rc == DLP_END);
                CHECK(dlp_pipe_close(p) == DLP_OK);
            }
}

static int does_not_doze(void) {
    rig r;
    uint64_t random = 5, began = test_now_ns();
    rig_init(&r, 200, 1);
    r.sampler.threaded = 1;
    r.pipe.prefetch_factor = 1;
    CHECK(run_through(&r, &random));
    /* each sleep that nobody ends takes 100 ms */
    return test_now_ns() - began < UINT64_C(2000000000);
}

static void pipe__inline_fetch_behind_threaded_sampler__does_not_doze(void) {
    CHECK_ONE_OF_5(does_not_doze());
}

/* Inline work that takes longer than the caller would wait, and makes the batch ready, gives it. */
static int slow_fetch(void *user, dlp_item *it) {
    test_pause(20000000);
    return rig_fetch(user, it);
}

static void next__inline_work_past_the_timeout__batch_it_made_is_given(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    rig_init(&r, 5, 1);
    r.pipe.prefetch_factor = 1;
    r.dataset.fetch = slow_fetch;
    if (rig_open(&r, &p) != DLP_OK) return;
    for (uint64_t i = 0; i < 5; i++) {
        int rc = dlp_pipe_next_timeout(p, &b, 5);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) break;
        CHECK(rig_batch_same(&r, b, 0, i) && dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- callbacks that the consumer runs ---- */

static struct meddler {
    dlp_pipe *p;
    dlp_batch *held;
    dlp_state state;
    uint32_t calls;
} own;

/* Calls of its own pipe, by a callback that a call of the consumer runs. */
static void meddle(void) {
    dlp_batch *b = NULL;
    dlp_error e;
    if (own.p == NULL) return;
    own.calls++;
    CHECK(dlp_pipe_close(own.p) == DLP_ERR_BUSY);
    CHECK(dlp_pipe_next(own.p, &b) == DLP_ERR_STATE && b == NULL);
    CHECK(dlp_pipe_next_epoch(own.p) == DLP_ERR_STATE);
    CHECK(dlp_pipe_start(own.p) == DLP_ERR_STATE);
    if (own.held == NULL) return;
    CHECK(dlp_pipe_release(own.p, own.held) == DLP_ERR_STATE);
    CHECK(dlp_pipe_seek(own.p, &own.state, &e) == DLP_ERR_STATE);
}
static int meddle_fetch(void *user, dlp_item *it) {
    meddle();
    return rig_fetch(user, it);
}
static int meddle_map(void *user, dlp_item *it) {
    meddle();
    return rig_item_map(user, it);
}
static int meddle_batch(void *user, dlp_batch *b, void *state) {
    meddle();
    return rig_batch_map(user, b, state);
}
static int meddle_collate(void *user, dlp_collate *c) {
    meddle();
    return dlp_collate_pad(user, c);
}
static int meddle_init(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    (void)state;
    meddle();
    return 0;
}
static void meddle_exit(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    (void)state;
    meddle();
}
static int meddle_epoch(void *user, uint64_t epoch) {
    (void)user;
    (void)epoch;
    meddle();
    return 0;
}
static void meddle_log(void *user, const char *message) {
    (void)user;
    (void)message;
    meddle();
}
static int64_t meddle_sampler(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    uint64_t *at = user;
    (void)epoch;
    meddle();
    if (*at == 24) return *at = 0, 0;
    for (uint64_t i = 0; i < max; i++) index[i] = (*at)++;
    return (int64_t)max;
}

/* What they ask for is refused, and the pipe goes on, and can be closed. */
static void callback__calls_its_own_pipe__refused(void) {
    for (int where = 0; where < 9; where++) {
        uint64_t at = 0;
        dlp_batch *b;
        dlp_pipe *p;
        int rc, n = 0;
        rig r;
        memset(&own, 0, sizeof own);
        rig_init(&r, 24, 8);
        r.pipe.epochs = 2;
        r.pipe.max_held = 2;
        r.n_item_maps = r.n_batch_maps = 1;
        if (where == 0) r.dataset.fetch = meddle_fetch;
        if (where == 1) r.item_map[0].map.item = meddle_map;
        if (where == 2) r.batch_map[0].map.batch = meddle_batch;
        if (where == 3) r.batch.collate = meddle_collate;
        if (where == 4) r.fetch.worker_init = meddle_init;
        if (where == 5) r.fetch.worker_exit = meddle_exit;
        if (where == 6) r.pipe.set_epoch = meddle_epoch;
        if (where == 7) r.pipe.log = meddle_log;
        if (where == 8) rig_order(&r, DLP_ORDER_BATCHES);
        if (where == 8)
            r.sampler.batches = (dlp_batch_sampler){.next = meddle_sampler, .user = &at};
        CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
        own.p = p;
        CHECK(dlp_pipe_start(p) == DLP_OK);
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            n++;
            if (own.held != NULL) CHECK(dlp_pipe_release(p, own.held) == DLP_OK);
            own.held = b;
            CHECK(dlp_pipe_state(p, b, &own.state) == DLP_OK);
        }
        CHECK(rc == DLP_END && n == 6);
        CHECK(dlp_pipe_close(p) == DLP_OK); /* it warns of the batch that is held */
        CHECK(own.calls > 0);
        own.p = NULL;
        CHECK(dlp_pipe_release(p, own.held) == DLP_OK);
    }
}

int main(int argc, char **argv) {
    next__inline_work_past_the_timeout__batch_it_made_is_given();
    pipe__any_wiring__same_bytes(argc > 1 ? strtoull(argv[1], NULL, 0) : 1);
    pipe__every_small_batch__same_bytes();
    row__not_all_bytes_written__begins_as_zeros();
    pipe__inline_fetch_behind_threaded_sampler__does_not_doze();
    callback__calls_its_own_pipe__refused();
    return test_end("pipe_basic");
}
