/* What the tests of topologies and fetchers share: a loader in any topology over items that may
   fail, and digests of all that it gives. */
#ifndef FETCHERS_H
#define FETCHERS_H

#include <signal.h>
#include <unistd.h>

#include "digest.h"

enum {
    FINE,
    RETRIES,
    BACKS_OFF,
    REPLACES,
    SHORTENS,
    SKIPS,
    RAISES,
    POLICIES,
    POISON_REPLACED = POLICIES,
    POISON_LEFT_OUT
};
enum { CLASSIC, CONCURRENT, THREADS, ASYNC, ECONOMIC_THREADS, ECONOMIC_ASYNC, KINDS };
#define MOST 512

static const dlp_field job_fields[2] = {{"words", DLP_U64, 1, {3}, 0, 0},
                                        {"ragged", DLP_U8, 1, {5}, 1, 0}};

typedef struct job {
    dlp_loader_desc d;
    int policy;
    int kills;        /* 1: a bad item kills its process, 2: it never returns, 0: it fails */
    int pause_us;     /* each item takes so long */
    uint64_t ends;    /* a stream of so many items; 0: none */
    int still;        /* items are the same in each epoch */
    uint32_t *worker; /* [n_items]: who fetched an index last; may be shared memory */
} job;

/* What came out of a pipe. */
typedef struct digest {
    int n, rc;
    uint64_t of[MOST], skips, restarts;
    uint32_t worker[MOST]; /* of each batch, UINT32_MAX: several had parts of it */
    dlp_error err;
    dlp_stats stats;
} digest;

static inline int job_fails(const job *j, const dlp_item *it) {
    uint64_t bad = dlp_hash(it->index, 5, 5, 5) % (j->policy >= POLICIES ? 61 : 11);
    if (bad != 0 || j->policy == FINE) return 0;
    if (j->kills == 1) raise(SIGKILL);
    while (j->kills == 2) pause();
    if (j->policy == RETRIES || j->policy == BACKS_OFF)
        return it->attempt < 1 + it->index % 3
                   ? dlp_fail(it->call, 5, "item %d fails", (int)it->index)
                   : 0;
    if (j->policy == SKIPS) return DLP_SKIP;
    return dlp_fail(it->call, 7, "item %d is bad", (int)it->index);
}

static inline int job_item(const job *j, const dlp_item *it) {
    uint64_t words[3];
    int rc;
    if (j->ends && it->index >= j->ends) return DLP_END;
    rc = job_fails(j, it);
    __atomic_store_n(&j->worker[it->index], it->worker, __ATOMIC_RELAXED);
    if (j->pause_us) test_pause((uint64_t)j->pause_us * 1000u);
    memset(it->data[0], 0xee, sizeof words); /* what a failed item leaves must not be seen */
    if (rc != 0) return rc;
    if (j->still)
        rig_words(it->seed, it->index, 0, 0, words);
    else
        rig_words(it->seed, it->index, it->epoch, it->position, words);
    memcpy(it->data[0], words, sizeof words);
    it->length[1] = it->index % 6;
    memset(it->data[1], (int)it->index, it->length[1]);
    return 0;
}

static inline int job_fetch(void *user, dlp_item *it) { return job_item(*(job *const *)user, it); }

/* The job that runs now: what callbacks get as user is the address of this. */
static job *job_now;

static inline void job_init(job *j, int policy) {
    static uint32_t workers[1024];
    dlp_loader_desc *d = &j->d;
    memset(j, 0, sizeof *j);
    job_now = j;
    j->worker = workers;
    j->policy = policy;
    d->dataset.n_items = 300;
    d->dataset.fields = job_fields;
    d->dataset.n_fields = 2;
    d->dataset.fetch = job_fetch;
    d->dataset.user = &job_now;
    d->batch_size = 14;
    d->epochs = 2;
    d->seed = 9;
    d->shuffle = 1;
    d->drop_last = DLP_LAST_PARTIAL;
    d->collate = dlp_collate_pad;
    if (policy == RETRIES || policy == BACKS_OFF) d->workers.retries = 3;
    if (policy == BACKS_OFF) d->workers.retry_backoff_ms = 1;
    if (policy == REPLACES || policy == POISON_REPLACED) d->workers.on_error = DLP_ON_ERROR_REPLACE;
    if (policy == SHORTENS || policy == SKIPS || policy == POISON_LEFT_OUT)
        d->workers.on_error = DLP_ON_ERROR_DROP;
}

/* ---- an asynchronous source in memory: it gives items back in any order, a few at a time, has
   little room at times, and fails some at once ---- */

#define SOURCE_ROOM 64

typedef struct source {
    dlp_item *item[SOURCE_ROOM];
    int n, calls;
    uint64_t random;
} source;

static inline int source_init(void *user, int worker, void **state) {
    source *s = calloc(1, sizeof *s);
    DLPI_UNUSED(user);
    if (s == NULL) return -1;
    s->random = (uint64_t)worker + 77;
    *state = s;
    return 0;
}

static inline void source_exit(void *user, int worker, void *state) {
    const source *s = state;
    DLPI_UNUSED(user);
    DLPI_UNUSED(worker);
    CHECK(s->n == 0);
    free(state);
}

static inline int source_submit(void *user, void *state, dlp_item *it) {
    source *s = state;
    const job *j = *(job *const *)user;
    CHECK(it->worker_state == state);
    if (s->n > 0 && (s->n == SOURCE_ROOM || test_pick(&s->random, 8) == 0)) return DLP_FULL;
    if (j->policy != FINE && it->index % 5 == 0 && (j->ends == 0 || it->index < j->ends)) {
        int rc = job_fails(j, it);
        if (rc != 0) {
            __atomic_store_n(&j->worker[it->index], it->worker, __ATOMIC_RELAXED);
            return rc;
        }
    }
    s->item[s->n++] = it;
    return 0;
}

static inline int source_reap(void *user, void *state, dlp_item **done, int *code, int max,
                              int timeout_ms) {
    source *s = state;
    int n = 0;
    const job *j = *(job *const *)user;
    if (s->n > 0 && ++s->calls % 3 == 0 && timeout_ms > 0) return 0; /* nothing came */
    while (s->n > 0 && n < max && (n == 0 || test_pick(&s->random, 2))) {
        int i = (int)test_pick(&s->random, (uint32_t)s->n);
        done[n] = s->item[i];
        code[n] = job_item(j, done[n]);
        s->item[i] = s->item[--s->n];
        n++;
    }
    return n;
}

static inline void job_kind(job *j, int kind) {
    dlp_loader_desc *d = &j->d;
    d->topology = kind == CLASSIC ? DLP_TOPOLOGY_CLASSIC : DLP_TOPOLOGY_CONCURRENT;
    if (kind >= ECONOMIC_THREADS) d->topology = DLP_TOPOLOGY_ECONOMIC;
    d->fetcher = kind == THREADS || kind == ECONOMIC_THREADS ? DLP_FETCH_THREADS
                 : kind == ASYNC || kind == ECONOMIC_ASYNC   ? DLP_FETCH_ASYNC
                                                             : DLP_FETCH_SEQUENTIAL;
    if (d->fetcher != DLP_FETCH_ASYNC) return;
    d->dataset.fetch = NULL;
    d->async.submit = source_submit;
    d->async.reap = source_reap;
    d->workers.worker_init = source_init;
    d->workers.worker_exit = source_exit;
}

static inline void digest_take(const job *j, digest *out, const dlp_batch *b) {
    uint32_t who;
    if (out->n == MOST) return;
    who = __atomic_load_n(&j->worker[b->index[0]], __ATOMIC_RELAXED);
    for (uint32_t r = 1; r < b->count; r++)
        if (__atomic_load_n(&j->worker[b->index[r]], __ATOMIC_RELAXED) != who) who = UINT32_MAX;
    out->worker[out->n] = who;
    out->of[out->n++] = digest_batch(b);
}

/* Open the loader, take all of it. */
static inline void job_run(job *j, digest *out) {
    dlp_pipe *p;
    dlp_batch *b;
    memset(out, 0, sizeof *out);
    job_now = j;
    out->rc = dlp_loader_open(&p, &j->d, &out->err);
    if (out->rc != DLP_OK) {
        char text[700];
        dlp_error_format(&out->err, text, sizeof text);
        printf("open: %s\n", text);
        return;
    }
    while ((out->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        digest_take(j, out, b);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    out->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_skips(p, NULL, 0, &out->skips) == 0);
    CHECK(dlp_pipe_stats(p, &out->stats) == DLP_OK);
    out->restarts = inside_restarts(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Do both say the same? Which row of the first batch that fails is named is nobody's promise. */
static inline int digest_same(const digest *a, const digest *b) {
    if (a->rc != b->rc || a->n != b->n || memcmp(a->of, b->of, sizeof a->of) != 0) return 0;
    if (a->rc == DLP_END) return a->skips == b->skips;
    return a->err.errnum == b->err.errnum && strncmp(a->err.message, b->err.message, 5) == 0;
}

#endif
