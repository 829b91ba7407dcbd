/* needs: join cache */
/* Random pipes of several datasets, each against the same pipe without workers: mixes, zips and
   mixes that are zipped, maps between and behind, a cache, faults of any of them by policies of
   their own, workers killed from outside, seeks, and resumed by another wiring. Each batch is known
   by its place. join_random [N [SEED]]: so many, from there on. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/join_rig.h"
#include "../../rig/shm_rig.h"

#define EPOCHS 3
#define BATCHES 800

typedef struct places { /* of each batch, 0: not there */
    uint64_t digest[EPOCHS][BATCHES];
    uint64_t rows;
    int rc;
} places;

typedef struct script {
    int seeks, kills, stop; /* stop: behind so many batches */
    uint64_t random;
} script;

static const dlp_shm_desc shm_ = {.max_kills = 100};

static uint64_t digest_rows(const setup *s, const dlp_batch *b) {
    uint64_t h = b->count;
    for (uint32_t r = 0; r < b->count; r++) {
        h = dlp_hash(h, b->index[r], b->valid[r], r);
        CHECK(!b->valid[r] || row_is(s, b, r));
    }
    return h;
}

static void kill_one(dlp_pipe *p, uint64_t *random) {
    dlp_worker_stats w;
    pid_t pid[64];
    uint32_t n = 0;
    for (uint32_t i = 0; n < 64 && dlp_pipe_worker_stats(p, i, &w) == DLP_OK; i++)
        if (w.process && w.pid > 1) pid[n++] = w.pid;
    if (n > 0) kill(pid[test_pick(random, n)], SIGKILL);
}

/* Take batches; of want NULL keep what they are, else compare. Returns what next returned. */
static int walk(setup *s, script *k, places *mine, const places *want, uint64_t *e, uint64_t *at,
                dlp_state *state) {
    dlp_pipe *p = setup_open(s);
    dlp_batch *b;
    int rc = dlp_pipe_start(p), n = 0;
    if (rc != DLP_OK) rig_say(p, rc);
    while (rc == DLP_OK && (k->stop == 0 || n < k->stop)) {
        if (k->kills > 0 && test_pick(&k->random, 3) == 0) k->kills--, kill_one(p, &k->random);
        if (n > 0 && k->seeks > 0 && test_pick(&k->random, 6) == 0) {
            dlp_state to;
            uint64_t batches = 0;
            k->seeks--;
            *e = test_pick(&k->random, (uint32_t)s->epochs);
            while (batches < BATCHES && want->digest[*e][batches] != 0) batches++;
            *at = test_pick(&k->random, (uint32_t)batches);
            CHECK(dlp_pipe_state_at(p, *e, *at, &to) == DLP_OK);
            CHECK(dlp_pipe_seek(p, &to, NULL) == DLP_OK);
        }
        if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_OK) break;
        if (want != NULL && (*at == BATCHES || want->digest[*e][*at] == 0)) *e += 1, *at = 0;
        CHECK(b->epoch < EPOCHS && b->in_epoch < BATCHES);
        if (want != NULL) {
            CHECK(b->epoch == *e && b->in_epoch == *at);
            CHECK(digest_rows(s, b) == want->digest[b->epoch][b->in_epoch]);
            *at += 1;
        } else {
            mine->digest[b->epoch][b->in_epoch] = digest_rows(s, b);
            for (uint32_t r = 0; r < b->count; r++) mine->rows += b->valid[r];
        }
        n++;
        dlp_pipe_release(p, b);
    }
    CHECK(rc != DLP_TIMEOUT);
    if (rc == DLP_OK) CHECK(dlp_pipe_state(p, NULL, state) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

/* Which datasets, of how many items. */
static void draw_datasets(setup *s, uint64_t *d) {
    uint64_t items[MOST], weights[MOST], sum = 0;
    int mixed = (int)test_pick(d, MOST + 1), n = 2 + (int)test_pick(d, MOST - 1);
    if (mixed < 2) {
        setup_zip(s, n, 10 + test_pick(d, 80));
    } else {
        for (int i = 0; i < mixed; i++) {
            items[i] = 5 + test_pick(d, 40);
            weights[i] = 1 + test_pick(d, 9);
            sum += items[i];
        }
        setup_mix(s, mixed, items, weights);
        s->shuffled = test_pick(d, 3) == 0;
        if (n > mixed) {
            s->n = mixed + 1;
            source_init(&s->of[mixed], (uint64_t)mixed, sum, 0);
        }
    }
    s->batch = 1 + test_pick(d, 40);
    s->epochs = 1 + (int)test_pick(d, EPOCHS);
    s->middle = test_pick(d, 2) != 0;
    s->map = test_pick(d, 3) == 0;
}

static void draw_faults(setup *s, uint64_t *d) {
    s->policies = 1;
    s->retries = (int)test_pick(d, 4);
    for (int i = 0; i < s->n; i++) {
        s->of_policy[i] = 1 + (int)test_pick(d, 2);
        s->of[i].spoils = test_pick(d, 2) != 0;
        if (test_pick(d, 2)) s->of[i].bad = 3 + test_pick(d, 9);
        if (s->retries > 0 && test_pick(d, 2))
            s->of[i].fails = 1 + test_pick(d, (uint32_t)s->retries);
        if (test_pick(d, 6) == 0) s->of[i].sleep_us = 20 + test_pick(d, 300);
    }
    s->backoff_ms = test_pick(d, 3) == 0;
}

static void draw_wiring(setup *s, uint64_t *d, int processes) {
    for (int i = 0; i < s->n; i++) {
        s->workers[i] = (int)test_pick(d, 4);
        s->placement[i] = s->workers[i] > 0 && processes && test_pick(d, 2) ? 1 : 0;
        s->fetcher[i] = s->workers[i] > 0 ? (int)test_pick(d, 3) : 0;
    }
    s->map_workers = (int)test_pick(d, 3);
    s->cache = test_pick(d, 2) ? 1 + (int)test_pick(d, 2) : 0;
    if (s->cache == 2 && s->of[1].mixed) s->cache = 1;
    s->dispatch = test_pick(d, 4) == 0 ? DLP_DISPATCH_BATCHES : 0;
    s->prefetch = test_pick(d, 6);
    s->shm = processes ? &shm_ : NULL;
}

static void inline_again(setup *s) {
    workers_all(s, 0, 0);
    memset(s->fetcher, 0, sizeof s->fetcher);
    s->map_workers = s->cache = s->dispatch = 0;
    s->prefetch = 0;
    s->shm = NULL;
}

static void join_random__another_wiring__same_batches(uint64_t seed, int processes) {
    uint64_t d = dlp_hash(seed, 4, 4, 4), e = 0, at = 0;
    script k = {0, 0, 0, seed}, none = {0, 0, 0, 1};
    static places want;
    dlp_state state;
    setup s;
    int rc, heals;
    draw_datasets(&s, &d);
    if (test_pick(&d, 3)) draw_faults(&s, &d);
    heals = s.backoff_ms;
    s.backoff_ms = 0;
    memset(&want, 0, sizeof want);
    want.rc = walk(&s, &none, &want, NULL, &e, &at, &state);
    s.backoff_ms = heals;
    draw_wiring(&s, &d, processes);
    k.kills = processes ? (int)test_pick(&d, 4) : 0;
    k.seeks = want.rc == DLP_END ? (int)test_pick(&d, 3) : 0;
    k.stop = test_pick(&d, 2) ? 1 + (int)test_pick(&d, 12) : 0;
    if ((rc = walk(&s, &k, NULL, &want, &e, &at, &state)) == DLP_OK) {
        s.resume = &state;
        inline_again(&s);
        draw_wiring(&s, &d, processes);
        k.stop = k.seeks = 0;
        rc = walk(&s, &k, NULL, &want, &e, &at, &state);
    }
    CHECK(rc == want.rc);
    if (rc == DLP_END) CHECK(e + 1 == (uint64_t)s.epochs && want.digest[e][at] == 0);
    if (s.mix) dlp_mix_close(s.mix);
}

int main(int argc, char **argv) {
    uint64_t n = (uint64_t)(argc > 1 ? atoll(argv[1]) : test_share(120, 4000));
    uint64_t seed = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    int processes = shm_missing() == NULL;
    for (uint64_t i = seed; i < seed + n; i++) {
        int before = test_failures;
        join_random__another_wiring__same_batches(i, processes);
        if (test_failures > before) printf("join_random 1 %llu\n", (unsigned long long)i);
    }
    return test_end("join_random");
}
