/* needs: parts pack */
/* Ranks that agree on where an epoch ends: each in a thread, with an all-reduce for agree and one
   for its training step, so that whatever waits for something else than a step of the others hangs,
   which is told. Equal steps, rows as written down, ends, failures, resumes. agree [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/found_rig.h"
#include "../../rig/reduce.h"

#define RANKS 4
#define EPOCHS 3
#define STEPS 600

static found_seen *seen; /* shared */
static found_order orders[EPOCHS];
static uint64_t batches[EPOCHS];

/* ---- an all-reduce ---- */

static reduce ends, steps; /* of agree; of training steps */

static int64_t agree(void *user, int64_t mine, int most) {
    (void)user;
    return reduce_all(&ends, mine, most);
}

/* ---- ranks ---- */

typedef struct rank2 {
    found_rig r;
    dlp_pipe *p;
    pthread_t thread;
    int64_t most; /* steps to take; then it seeks to `to`, or leaves the epoch, or closes */
    int rc, ok;
    int64_t n;
    uint64_t first_epoch, first_batch;
    dlp_state states[STEPS];
    dlp_error err;
} rank2;

static rank2 ranks[RANKS];
static uint32_t world;
static int any_rows;         /* what they are does not matter */
static uint32_t fetch_fails; /* part + 1 */

/* Take a step, as training does: all ranks are at the same one. */
static int step(const dlp_batch *b) {
    int64_t at = (int64_t)(b->epoch << 32 | b->in_epoch);
    int64_t least = reduce_all(&steps, at, 0);
    return least == at && steps.out_most == at;
}

static void pause_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* The last rank asks again and again: a time-out is no step. */
static int next_of(const rank2 *k, dlp_batch **b) {
    int rc = DLP_TIMEOUT;
    if (k != &ranks[world - 1]) return dlp_pipe_next_timeout(k->p, b, 30000);
    for (int i = 0; i < 30000 && rc == DLP_TIMEOUT; i++) rc = dlp_pipe_next_timeout(k->p, b, 1);
    return rc;
}

static void *train(void *arg) {
    rank2 *k = arg;
    dlp_batch *b;
    while (k->n < k->most && (k->rc = next_of(k, &b)) == DLP_OK) {
        bool last = b->in_epoch + 1 == batches[b->epoch];
        k->ok &= any_rows || found_batch_same(&k->r, b, &orders[b->epoch]);
        k->ok &= any_rows || ((b->flags & DLP_BATCH_LAST) != 0) == last;
        k->ok &= k->n < STEPS && dlp_pipe_state(k->p, b, &k->states[k->n]) == DLP_OK;
        k->ok &= step(b);
        k->ok &= dlp_pipe_release(k->p, b) == DLP_OK;
        if (!k->ok) break;
        k->n++;
    }
    k->err = *dlp_pipe_error(k->p);
    return NULL;
}

/* What the epochs of all ranks are. */
static int64_t write_all_down(const found_rig *r) {
    int64_t all = 0, epochs = r->d.epochs ? r->d.epochs : 1;
    found_rig whole = *r;
    whole.d.pipe.world_size = 0;
    whole.d.pipe.rank = 0;
    for (int64_t e = 0; e < epochs; e++)
        all += (int64_t)(batches[e] = found_write_down(&whole, (uint64_t)e, &orders[e]));
    return all;
}

static void ranks_open(const found_rig *r, const dlp_state *resume) {
    reduce_init(&ends, world);
    reduce_init(&steps, world);
    for (uint32_t i = 0; i < world; i++) {
        rank2 *k = &ranks[i];
        k->r = *r;
        k->r.d.pipe.rank = i;
        k->r.d.pipe.world_size = world;
        k->r.d.pipe.resume = resume;
        k->r.d.pipe.agree = agree;
        k->p = NULL;
        k->ok = 1;
        k->n = 0;
        k->most = INT64_MAX;
        CHECK(found_open(&k->r, &k->p) == DLP_OK);
    }
}

static void ranks_train(void) {
    for (uint32_t i = 0; i < world; i++)
        CHECK(pthread_create(&ranks[i].thread, NULL, train, &ranks[i]) == 0);
    for (uint32_t i = 0; i < world; i++) CHECK(pthread_join(ranks[i].thread, NULL) == 0);
    CHECK(ends.hung == 0 && steps.hung == 0);
}

static void ranks_close(void) {
    uint32_t calls = ends.calls;
    for (uint32_t i = 0; i < world; i++) CHECK(dlp_pipe_close(ranks[i].p) == DLP_OK);
    CHECK(ends.calls == calls && seen->wrong == 0);
}

/* All ranks, to the end: so many steps each. */
static void ranks_run(const found_rig *r, const dlp_state *resume, int64_t want) {
    ranks_open(r, resume);
    ranks_train();
    for (uint32_t i = 0; i < world; i++) {
        CHECK(ranks[i].ok && ranks[i].rc == DLP_END && ranks[i].n == want);
        if (ranks[i].rc != DLP_END) found_say(ranks[i].rc, &ranks[i].err);
    }
    ranks_close();
}

/* ---- ends ---- */

/* Streams of any length, wired in any way; 0: no such epochs. */
static int any_rig(found_rig *r, uint64_t *random) {
    static const int32_t workers[] = {0, 1, 4}, prefetch[] = {1, 2, 16};
    uint64_t least = UINT64_MAX;
    uint32_t m = 1 + test_pick(random, 3);
    world = 1 + test_pick(random, RANKS);
    found_init(r, seen, 16 + test_pick(random, 40), 1 + test_pick(random, 30));
    for (uint32_t i = 0; i < r->d.parts.n_parts; i++)
        seen->counts[i] = test_pick(random, (uint32_t)r->d.parts.max_items + 1);
    r->d.pipe.streams = world * (1 + test_pick(random, 3));
    r->d.batch_size = m * r->d.pipe.streams;
    r->d.drop_last = (int32_t)test_pick(random, 3);
    r->d.epochs = 1 + test_pick(random, EPOCHS);
    r->d.shuffle = (int32_t)test_pick(random, 2);
    if (test_pick(random, 3) == 0) r->d.parts.window = 1 + test_pick(random, 60);
    r->d.parts.workers.num_workers = (int32_t)test_pick(random, 4) - 1;
    r->d.num_workers = workers[test_pick(random, 3)];
    r->d.pipe.prefetch_factor = prefetch[test_pick(random, 3)];
    r->d.sampler.threaded = (int32_t)test_pick(random, 2);
    if (write_all_down(r) >= STEPS) return 0;
    for (int64_t e = 0; e < r->d.epochs; e++)
        if (batches[e] < least) least = batches[e];
    return least > 0;
}

static void say_rig(const found_rig *r) {
    printf(
        "  world %u, parts %d, most %d, streams %u, batch %u, epochs %d, workers %d %d, prefetch "
        "%d, threaded %d, window %u, last %d\n",
        world, (int)r->d.parts.n_parts, (int)r->d.parts.max_items, r->d.pipe.streams,
        r->d.batch_size, (int)r->d.epochs, r->d.parts.workers.num_workers, r->d.num_workers,
        r->d.pipe.prefetch_factor, r->d.sampler.threaded, r->d.parts.window, r->d.drop_last);
}

static void end__any_ranks__equal_steps(uint64_t seed, int processes) {
    dlp_shm_desc shm;
    int64_t taken = 0, asked = 0;
    memset(&shm, 0, sizeof shm);
    shm.max_kills = 100;
    shm.allow_fork_with_threads = 1;
    for (int i = 0; i < test_share(processes ? 12 : 160, processes ? 300 : 5000); i++) {
        found_rig r;
        int64_t want;
        if (!any_rig(&r, &seed)) continue;
        want = write_all_down(&r);
        if (processes) {
            r.d.parts.workers.placement = DLP_PLACE_PROCESSES;
            r.d.workers.placement = DLP_PLACE_PROCESSES;
            r.d.pipe.shm = &shm;
            if (r.d.parts.workers.num_workers > 0) seen->kill_every = 5 + test_pick(&seed, 9);
        }
        ranks_run(&r, NULL, want);
        CHECK((ends.calls == 0) == (world == 1));
        if (world > 1) taken += want, asked += ends.calls;
        if (test_failures) {
            say_rig(&r);
            return;
        }
    }
    printf("  %s: %.1f steps an all-reduce\n", processes ? "processes" : "threads",
           (double)taken / (double)asked);
}

/* Wait until so many are ready on each rank. */
static void ranks_ready(uint32_t n) {
    dlp_stats s;
    for (uint32_t i = 0; i < world; i++)
        for (int k = 0; k < 20000; k++, pause_ms(1)) {
            if (dlp_pipe_stats(ranks[i].p, &s) != DLP_OK || s.ready >= n) break;
        }
}

/* Batches that are ready ahead are asked for at once: one all-reduce an epoch here. */
static void end__batches_ahead__few_all_reduces(void) {
    found_rig r;
    world = 2;
    found_init(&r, seen, 8, 8);
    for (int i = 0; i < 8; i++) seen->counts[i] = 8;
    r.d.pipe.streams = 2;
    r.d.parts.queue_size = 100;
    r.d.drop_last = DLP_LAST_DROP;
    r.d.epochs = 3;
    r.d.pipe.prefetch_factor = 24;
    r.d.sampler.threaded = 1;
    CHECK(write_all_down(&r) == 24);
    ranks_open(&r, NULL);
    ranks_ready(24);
    ranks_train();
    CHECK(ranks[0].n == 24 && ranks[1].n == 24 && ends.calls == 3);
    ranks_close();
}

/* A rank without any item goes along with holes; where no rank has one, all say so. */
static void end__rank_without_items__holes_to_the_end(void) {
    for (int last = 0; last < 3; last++) {
        found_rig r;
        if (last == DLP_LAST_DROP) continue;
        world = 2;
        found_init(&r, seen, 20, 9);
        for (int i = 0; i < 20; i++) seen->counts[i] = i % 2 ? 0 : 9;
        r.d.shuffle = 0;
        r.d.pipe.streams = 2;
        r.d.drop_last = last;
        r.d.epochs = 2;
        CHECK(write_all_down(&r) == 2 * 23); /* 90 items by 4 */
        ranks_run(&r, NULL, 2 * 23);
        memset(seen->counts, 0, sizeof seen->counts);
        ranks_open(&r, NULL);
        ranks_train();
        for (uint32_t i = 0; i < world; i++) {
            CHECK(ranks[i].n == 0 && ranks[i].rc == DLP_ERR_CALLBACK);
            CHECK(strstr(ranks[i].err.message, "no rank has an item") != NULL);
        }
        ranks_close();
    }
}

/* ---- resume ---- */

/* From behind any batch, by as many ranks and by others. */
static void resume__mid_epoch__goes_on_exactly(uint64_t seed) {
    for (int i = 0; i < test_share(24, 600); i++) {
        static const uint32_t worlds[] = {1, 2, 4};
        static dlp_state each[RANKS];
        dlp_state merged;
        dlp_error err;
        found_rig r;
        int64_t want, at;
        uint32_t others = worlds[test_pick(&seed, 3)];
        if (!any_rig(&r, &seed)) continue;
        r.d.pipe.streams = 4;
        r.d.batch_size = 4 + 4 * test_pick(&seed, 3);
        world = worlds[test_pick(&seed, 3)];
        want = write_all_down(&r);
        for (int64_t e = 0; e < r.d.epochs; e++)
            if (batches[e] == 0) want = 0;
        if (want < 2 || want >= STEPS) continue;
        ranks_run(&r, NULL, want);
        at = test_pick(&seed, (uint32_t)want - 1);
        for (uint32_t k = 0; k < world; k++) each[k] = ranks[k].states[at];
        CHECK(dlp_state_merge(&merged, each, world, &err) == DLP_OK);
        r.d.num_workers = (int32_t)test_pick(&seed, 3);
        r.d.pipe.prefetch_factor = 1 + (int32_t)test_pick(&seed, 5);
        world = others;
        ranks_run(&r, &merged, want - at - 1);
        if (test_failures) {
            say_rig(&r);
            return;
        }
    }
}

/* A rank is resumed where its stream is out by now, and the next part of the other rank fails. The
   epoch ends before the batch that would fail, as in a pipe that has both streams. */
static void resume__at_an_end_beside_a_failure__the_end(void) {
    for (int epochs = 1; epochs <= 2; epochs++) {
        dlp_state each[2], merged;
        dlp_error err;
        found_rig r;
        world = 2;
        any_rows = 1;
        found_init(&r, seen, 4, 3);
        for (int i = 0; i < 4; i++) seen->counts[i] = 3;
        r.d.pipe.streams = 2;
        r.d.batch_size = 2;
        r.d.drop_last = DLP_LAST_DROP;
        r.d.epochs = epochs;
        r.d.shuffle = 0;
        seen->fail_part = 3; /* the second of stream 0 */
        ranks_open(&r, NULL);
        ranks_train();
        for (uint32_t i = 0; i < world; i++) {
            CHECK(ranks[i].ok && ranks[i].n == 3 && ranks[i].rc == DLP_ERR_CALLBACK);
            each[i] = ranks[i].states[2];
        }
        ranks_close();
        CHECK(dlp_state_merge(&merged, each, 2, &err) == DLP_OK);
        seen->counts[2] = 0;
        seen->fail_part = 4; /* the second of stream 1 */
        ranks_run(&r, &merged, epochs == 1 ? 0 : 3);
        any_rows = 0;
    }
}

/* All leave an epoch at the same step, and all go back to a state: what was agreed on is void. */
static void seek__and_next_epoch__asked_again(void) {
    for (int prefetch = 1; prefetch <= 32; prefetch *= 2) {
        static dlp_state back[RANKS];
        found_rig r;
        world = 2;
        found_init(&r, seen, 20, 9);
        r.d.pipe.streams = 4;
        r.d.batch_size = 4;
        r.d.drop_last = DLP_LAST_DROP;
        r.d.epochs = 3;
        r.d.pipe.prefetch_factor = prefetch;
        r.d.parts.queue_size = 100; /* all parts of several epochs */
        r.d.sampler.threaded = prefetch > 4;
        write_all_down(&r);
        for (int e = 0; e < 3; e++) CHECK(batches[e] > 9 && batches[e] < 32);
        ranks_open(&r, NULL);
        if (prefetch == 32) ranks_ready(32); /* all of the epoch is agreed on at once */
        for (uint32_t i = 0; i < world; i++) ranks[i].most = 7;
        ranks_train();
        for (uint32_t i = 0; i < world; i++) {
            back[i] = ranks[i].states[2];
            CHECK(dlp_pipe_next_epoch(ranks[i].p) == DLP_OK);
            ranks[i].most = 7 + 5;
        }
        CHECK(prefetch < 32 || ends.calls == 1);
        ranks_train();
        for (uint32_t i = 0; i < world; i++) {
            CHECK(dlp_pipe_seek(ranks[i].p, &back[i], NULL) == DLP_OK);
            ranks[i].most = INT64_MAX;
        }
        ranks_train();
        for (uint32_t i = 0; i < world; i++)
            CHECK(ranks[i].ok && ranks[i].rc == DLP_END &&
                  ranks[i].n == 12 - 3 + (int64_t)(batches[0] + batches[1] + batches[2]));
        ranks_close();
    }
}

/* ---- failures ---- */

/* Late, when batches behind its own may be whole already. */
static int fetch_torn(void *user, dlp_item *it) {
    if (it->part->index + 1 != fetch_fails) return found_fetch(user, it);
    pause_ms(1);
    return dlp_fail(it->call, 5, "torn");
}

/* Parts of one rank fail at any place: all end after the same step, and say why. */
static void fail__one_rank__all_return_an_error(uint64_t seed) {
    int failed = 0;
    for (int i = 0; i < test_share(60, 1000); i++) {
        found_rig r;
        int64_t n = -1;
        int torn = 0;
        if (!any_rig(&r, &seed) || world == 1) continue;
        fetch_fails = 1 + test_pick(&seed, (uint32_t)r.d.parts.n_parts);
        if (i % 2) seen->fail_part = fetch_fails;
        if (i % 2 == 0) r.d.dataset.fetch = fetch_torn;
        any_rows = 1;
        ranks_open(&r, NULL);
        ranks_train();
        any_rows = 0;
        for (uint32_t k = 0; k < world; k++) {
            const rank2 *x = &ranks[k];
            bool own = strstr(x->err.message, "torn") != NULL;
            torn += own;
            if (n < 0) n = x->n;
            CHECK(x->n == n && x->ok && (x->rc == DLP_ERR_CALLBACK || x->rc == DLP_END));
            if (x->rc == DLP_ERR_CALLBACK && !own)
                CHECK(strstr(x->err.message, "another rank") && strcmp(x->err.field, "agree") == 0);
        }
        for (uint32_t k = 1; k < world; k++) CHECK(ranks[k].rc == ranks[0].rc);
        CHECK(torn == (ranks[0].rc == DLP_ERR_CALLBACK));
        failed += torn;
        ranks_close();
        if (test_failures) {
            say_rig(&r);
            return;
        }
    }
    CHECK(failed > 0);
}

/* One part of a stream that two ranks share fails, at each place. Also where all rows before it
   fill whole batches, so that the batch which fails has no row: no epoch ends before it. */
static void fail__no_rows_before_it__is_no_end(void) {
    for (uint32_t part = 1; part <= 12; part++)
        for (int32_t last = 0; last < 3; last++) {
            found_rig r;
            world = 2;
            found_init(&r, seen, 12, 4);
            r.d.pipe.shared_streams = 1;
            for (uint32_t i = 0; i < 12; i++) seen->counts[i] = 4;
            seen->fail_part = part;
            r.d.drop_last = last;
            r.d.batch_size = 8;
            any_rows = 1;
            ranks_open(&r, NULL);
            ranks_train();
            any_rows = 0;
            CHECK(ranks[0].rc == DLP_ERR_CALLBACK && ranks[1].rc == DLP_ERR_CALLBACK);
            CHECK(strstr(ranks[0].err.message, "torn") || strstr(ranks[1].err.message, "torn"));
            ranks_close();
        }
}

static int64_t answer, second, asked;

static int64_t agree_nonsense(void *user, int64_t mine, int most) {
    (void)user;
    CHECK(most ? mine >= 0 : mine >= 2);
    asked++;
    if (most) return second == INT64_MIN ? mine - 1 : second;
    return answer == INT64_MAX ? mine + 1 : answer;
}

/* A rank alone, told whatever. */
static int alone(dlp_error *err, int64_t says, int32_t last) {
    found_rig r;
    dlp_pipe *p;
    dlp_batch *b;
    int rc;
    found_init(&r, seen, 20, 9);
    r.d.pipe.streams = 2;
    r.d.pipe.agree = agree_nonsense;
    r.d.pipe.world_size = 2;
    r.d.drop_last = last;
    answer = says;
    CHECK(found_open(&r, &p) == DLP_OK);
    rc = dlp_pipe_next_timeout(p, &b, 30000);
    *err = *dlp_pipe_error(p);
    if (rc == DLP_OK) dlp_pipe_release(p, b);
    asked = 0;
    dlp_pipe_stop(p);
    CHECK(dlp_pipe_next(p, &b) == (rc == DLP_OK ? DLP_STOPPED : rc));
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(asked == 0); /* neither in error, nor stopped, nor by close */
    return rc;
}

static void fail__agree_returns_nonsense__named(void) {
    static const int64_t wrong[] = {INT64_MAX, INT64_MIN, -2, 0, 1};
    dlp_error err;
    for (uint32_t i = 0; i < 5; i++) {
        CHECK(alone(&err, wrong[i], DLP_LAST_DROP) == DLP_ERR_CALLBACK);
        CHECK(strcmp(err.field, "agree") == 0 && strstr(err.message, "agree returned") != NULL);
    }
    CHECK(alone(&err, -1, DLP_LAST_DROP) == DLP_ERR_CALLBACK &&
          strstr(err.message, "another rank") != NULL);
    CHECK(alone(&err, 2, DLP_LAST_DROP) == DLP_OK);
    CHECK(alone(&err, 3, DLP_LAST_DROP) == DLP_OK);
    second = INT64_MIN; /* less than this rank said; more than can follow; right */
    CHECK(alone(&err, 2, DLP_LAST_PAD) == DLP_ERR_CALLBACK &&
          strstr(err.message, "the most of all"));
    second = 3;
    CHECK(alone(&err, 2, DLP_LAST_PAD) == DLP_ERR_CALLBACK &&
          strstr(err.message, "the most of all"));
    second = 2;
    CHECK(alone(&err, 2, DLP_LAST_PAD) == DLP_OK);
    CHECK(alone(&err, 3, DLP_LAST_PAD) == DLP_OK);
}

static int64_t told_last;

static int64_t agree_as_alone(void *user, int64_t mine, int most) {
    (void)user;
    (void)most;
    return told_last = mine;
}
static int copy_index(void *user, dlp_expand *x) {
    dlp_item *it = dlp_expand_add(x);
    (void)user;
    memcpy(it->data[0], &x->item->index, 8);
    return 0;
}
static int fail_always(void *user, dlp_item *it) {
    (void)user;
    return dlp_fail(it->call, 5, "no such file");
}

/* All items of a rank are left out in an epoch. The other ranks learn of it where they ask next:
   not behind the last epoch, where no rank asks. */
static void fail__epoch_without_a_valid_row__told_where_ranks_ask(void) {
    static const dlp_field x = {.name = "x", .dtype = DLP_U64};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 64}},
        {.name = "make",
         .verb = DLP_EXPAND,
         .expand = {.expand = copy_index, .max_out = 1, .fields = &x, .n_fields = 1}},
        {.name = "map",
         .verb = DLP_MAP,
         .map = {.item = fail_always},
         .workers = {.num_workers = 2, .on_error = DLP_ON_ERROR_DROP}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
    for (int epochs = 1; epochs < 3; epochs++) {
        const dlp_pipe_desc d = {
            .epochs = epochs, .streams = 2, .world_size = 2, .agree = agree_as_alone};
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &d, NULL) == DLP_OK);
        while ((rc = dlp_pipe_next_timeout(p, &b, 30000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_ERR_CALLBACK && strcmp(dlp_pipe_error(p)->stage, "map") == 0);
        CHECK(strstr(dlp_pipe_error(p)->message, "no valid row on rank 0: all its 32 items") !=
              NULL);
        CHECK(epochs == 1 ? told_last > 0 : told_last == -3);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- a callback that takes its time ---- */

typedef struct slow_rank {
    dlp_pipe *p;
    uint32_t in, go, calls; /* in: agree waits for go */
    int rc;
} slow_rank;

/* Asks after its own pipe, as a training loop's log may, and waits for what the test says. */
static int64_t agree_slowly(void *user, int64_t mine, int most) {
    static dlp_stats s;
    slow_rank *k = user;
    char text[3000];
    (void)most;
    k->calls++;
    CHECK(dlp_pipe_stats(k->p, &s) == DLP_OK);
    CHECK(dlp_pipe_explain(k->p, text, sizeof text) > 0);
    __atomic_store_n(&k->in, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 20000 && !__atomic_load_n(&k->go, __ATOMIC_SEQ_CST); i++) pause_ms(1);
    return mine;
}

static void *next_slowly(void *arg) {
    slow_rank *k = arg;
    dlp_batch *b;
    k->rc = dlp_pipe_next_timeout(k->p, &b, 30000);
    if (k->rc == DLP_OK) dlp_pipe_release(k->p, b);
    return NULL;
}

/* Stopped by another thread while it asks: next comes back once the others have answered, and
   nobody is asked again. */
static void stop__while_it_asks__not_asked_again(void) {
    for (int threaded = 0; threaded < 2; threaded++) {
        static slow_rank k;
        found_rig r;
        pthread_t thread;
        dlp_batch *b;
        memset(&k, 0, sizeof k);
        found_init(&r, seen, 20, 9);
        r.d.pipe.streams = 2;
        r.d.pipe.agree = agree_slowly;
        r.d.pipe.agree_user = &k;
        r.d.pipe.world_size = 2;
        r.d.sampler.threaded = threaded;
        r.d.drop_last = DLP_LAST_DROP;
        CHECK(found_open(&r, &k.p) == DLP_OK);
        pthread_create(&thread, NULL, next_slowly, &k);
        for (int i = 0; i < 20000 && !__atomic_load_n(&k.in, __ATOMIC_SEQ_CST); i++) pause_ms(1);
        dlp_pipe_stop(k.p);
        __atomic_store_n(&k.go, 1, __ATOMIC_SEQ_CST);
        pthread_join(thread, NULL);
        CHECK(k.rc == DLP_OK || k.rc == DLP_STOPPED);
        CHECK(dlp_pipe_next(k.p, &b) == DLP_STOPPED && k.calls == 1);
        CHECK(dlp_pipe_close(k.p) == DLP_OK && k.calls == 1);
    }
}

/* All have come to the end, which nobody asks about again; all go back, and reach it once more. */
static void seek__after_the_end__comes_to_it_again(void) {
    for (int last = 0; last < 3; last++) {
        found_rig r;
        dlp_batch *b;
        int64_t want;
        uint32_t calls;
        world = 3;
        found_init(&r, seen, 30, 9);
        r.d.pipe.streams = 3;
        r.d.batch_size = 6;
        r.d.drop_last = last;
        r.d.epochs = 2;
        want = write_all_down(&r);
        ranks_open(&r, NULL);
        ranks_train();
        calls = ends.calls;
        for (uint32_t i = 0; i < world; i++) {
            CHECK(ranks[i].ok && ranks[i].n == want && dlp_pipe_next(ranks[i].p, &b) == DLP_END);
            CHECK(ends.calls == calls);
            CHECK(dlp_pipe_seek(ranks[i].p, &ranks[i].states[want / 2], NULL) == DLP_OK);
        }
        ranks_train();
        for (uint32_t i = 0; i < world; i++)
            CHECK(ranks[i].ok && ranks[i].rc == DLP_END &&
                  ranks[i].n == want + want - want / 2 - 1);
        ranks_close();
    }
}

/* ---- filters, packing ---- */

typedef struct other { /* a pipe of one of two ranks, with a filter or packing */
    dlp_pipe *p;
    pthread_t thread;
    int64_t n, last;
    int rc;
} other;

static int kept(uint64_t index) { return index % 2 ? index % 5 == 0 : index % 7 != 0; }

static int fetch_kept(void *user, dlp_item *it) {
    (void)user;
    memcpy(it->data[0], &it->index, 8);
    return kept(it->index) ? 0 : DLP_SKIP;
}

/* A document of 1..9 tokens. */
static int fetch_document(void *user, dlp_item *it) {
    (void)user;
    it->length[0] = 1 + (it->index % 2 ? it->index % 3 : it->index % 9);
    memset(it->data[0], (int)it->index & 127, it->length[0]);
    return 0;
}

static void *train_other(void *arg) {
    other *k = arg;
    dlp_batch *b;
    while ((k->rc = dlp_pipe_next_timeout(k->p, &b, 30000)) == DLP_OK) {
        k->n++;
        k->last += (b->flags & DLP_BATCH_LAST) != 0;
        if (!step(b)) return NULL;
        dlp_pipe_release(k->p, b);
    }
    return NULL;
}

static void other_open(other *k, uint32_t rank, int pack) {
    dlp_field word = {"word", DLP_U64, 0, {0}, 0, 0}, tokens = {"tokens", DLP_U8, 1, {9}, 1, 0};
    dlp_dataset data = {.n_items = 300, .fields = pack ? &tokens : &word, .n_fields = 1};
    const dlp_pipe_desc desc = {.prefetch_factor = 3,
                                .rank = rank,
                                .world_size = 2,
                                .epochs = 2,
                                .streams = 2,
                                .agree = agree};
    rig_table t = {.n = 0};
    memset(k, 0, sizeof *k);
    data.fetch = pack ? fetch_document : fetch_kept;
    data.filter = !pack;
    table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_SEQUENTIAL});
    table_fetch(&t, &(dlp_source){.dataset = &data}, 0);
    if (pack)
        table_row(&t, (dlp_node){.verb = DLP_PACK, .pack = {.tokens = 8}});
    else
        table_row(&t, (dlp_node){.verb = DLP_FILTER});
    table_row(&t, (dlp_node){.verb = DLP_BATCH,
                             .batch = {.batch_size = 6, .last = DLP_LAST_DROP, .copy_workers = 2}});
    CHECK(table_pipe(&t, &k->p, &desc, NULL) == DLP_OK);
    CHECK(dlp_pipe_start(k->p) == DLP_OK);
}

/* Inputs go to two streams in turn: what each has, and so an epoch's batches. */
static int64_t other_batches(int pack) {
    uint64_t of[2] = {0, 0};
    for (uint64_t i = 0; i < 300; i++)
        of[i % 2] += pack ? 1 + (i % 2 ? i % 3 : i % 9) : (uint64_t)kept(i);
    for (int s = 0; s < 2; s++) of[s] = pack ? (of[s] + 7) / 8 : of[s];
    CHECK(of[0] != of[1]);
    return (int64_t)((of[0] < of[1] ? of[0] : of[1]) / 3);
}

static void end__filters_and_packing__equal_steps(void) {
    for (int pack = 0; pack < 2; pack++) {
        static other two[2];
        int64_t want = 2 * other_batches(pack);
        reduce_init(&ends, 2);
        reduce_init(&steps, 2);
        for (uint32_t i = 0; i < 2; i++) other_open(&two[i], i, pack);
        for (uint32_t i = 0; i < 2; i++) pthread_create(&two[i].thread, NULL, train_other, &two[i]);
        for (uint32_t i = 0; i < 2; i++) {
            pthread_join(two[i].thread, NULL);
            CHECK(two[i].rc == DLP_END && two[i].n == want && two[i].last == 2);
            CHECK(dlp_pipe_close(two[i].p) == DLP_OK);
        }
        CHECK(ends.hung == 0 && steps.hung == 0);
    }
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

static void desc__what_has_no_meaning__refused(void) {
    static const uint64_t items[20] = {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5};
    found_rig r, x;
    found_init(&r, seen, 20, 9);
    r.d.pipe.streams = 2;
    r.d.pipe.world_size = 2;
    r.d.drop_last = DLP_LAST_DROP;
    x = r, refused(&x, "steps_per_epoch", "or agree");
    r.d.pipe.agree = agree;
    x = r, x.d.pipe.steps_per_epoch = 3, refused(&x, "agree", "steps_per_epoch");
    x = r, x.d.pipe.steps_per_epoch = DLP_FOREVER, refused(&x, "agree", "steps_per_epoch");
    x = r, x.d.pipe.uneven = 1, refused(&x, "agree", "uneven");
    x = r, x.d.parts.max_items = 0, x.d.parts.items = items, refused(&x, "agree", "items or count");
    {
        dlp_shm_desc shm;
        memset(&shm, 0, sizeof shm);
        shm.name = "agree_test";
        shm.share = DLP_SHARE_EACH;
        x = r, x.d.pipe.shm = &shm, refused(&x, "shm.share", "agree");
    }
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    SHM_NEEDS("agree");
    seen = shm_shared(sizeof *seen);
    end__any_ranks__equal_steps(seed, 0);
    end__any_ranks__equal_steps(seed, 1);
    end__batches_ahead__few_all_reduces();
    end__rank_without_items__holes_to_the_end();
    resume__mid_epoch__goes_on_exactly(seed);
    resume__at_an_end_beside_a_failure__the_end();
    seek__and_next_epoch__asked_again();
    fail__one_rank__all_return_an_error(seed);
    fail__no_rows_before_it__is_no_end();
    fail__agree_returns_nonsense__named();
    fail__epoch_without_a_valid_row__told_where_ranks_ask();
    stop__while_it_asks__not_asked_again();
    seek__after_the_end__comes_to_it_again();
    end__filters_and_packing__equal_steps();
    desc__what_has_no_meaning__refused();
    CHECK(shm_mappings() == 0);
    return test_end("agree");
}
