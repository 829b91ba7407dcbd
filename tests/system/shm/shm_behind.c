/* Subscribers that the pipe does not wait for, threads of the consumer's own process and programs:
   what they hold stays as it is, the rest they miss and count, and the consumer is not slowed. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"

#include <pthread.h>

static char name[64];
static uint32_t *held; /* [2] shared: a program holds its batch */

static void shared_rig(rig *r, dlp_shm_desc *d, int serve, int place) {
    static int number;
    snprintf(name, sizeof name, "test-behind-%d-%d", (int)getpid(), number++);
    if (held == NULL) held = shm_shared(4096);
    memset(held, 0, 2 * sizeof *held);
    memset(d, 0, sizeof *d);
    rig_init(r, 3001, 16);
    rig_order(r, DLP_ORDER_SHUFFLED);
    rig_workers(r, 2, DLP_DISPATCH_CLAIM);
    r->n_item_maps = 1;
    r->fetch.placement = r->item_map[0].workers.placement = place;
    r->pipe.prefetch_factor = 4;
    r->pipe.max_held = 3;
    r->pipe.close_timeout_ms = 5000;
    r->pipe.epochs = getenv("SHORT") ? 1 : 2;
    d->name = name;
    d->share = DLP_SHARE_EACH;
    d->serve_only = serve;
    r->pipe.shm = d;
}

static int same(rig *r, const dlp_batch *b) {
    return rig_batch_same(r, b, b->sequence / rig_batches(r), b->sequence % rig_batches(r));
}

static uint64_t all_batches(const rig *r) { return rig_batches(r) * (uint64_t)r->pipe.epochs; }

/* The consumer takes n batches, with a step between. Returns the time. */
static uint64_t take(rig *r, dlp_pipe *p, uint64_t n, uint64_t step_ns) {
    uint64_t from = test_now_ns();
    dlp_batch *b;
    for (; n > 0; n--) {
        int rc = dlp_pipe_next_timeout(p, &b, 20000);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) break;
        CHECK(same(r, b));
        if (step_ns) test_pause(step_ns);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    return test_now_ns() - from;
}

static dlp_subscriber *subscribe(int when_behind, int max_held) {
    dlp_subscriber_desc desc = {max_held, when_behind};
    dlp_subscriber *c = NULL;
    dlp_error err;
    int rc = dlp_subscriber_open(&c, name, &desc, &err);
    if (rc != DLP_OK) printf("open: %s\n", err.message);
    CHECK(rc == DLP_OK);
    return c;
}

/* ---- in the consumer's thread, one after the other ---- */

static void wait__takes_nothing__consumer_waits(void) {
    rig r;
    dlp_shm_desc d;
    dlp_pipe *p;
    dlp_subscriber *c;
    dlp_batch *b;
    shared_rig(&r, &d, 0, DLP_PLACE_THREADS);
    d.wait_subscribers = 1;
    if (rig_open(&r, &p) != DLP_OK) return;
    c = subscribe(DLP_BEHIND_WAIT, 1);
    take(&r, p, 7, 0); /* prefetch_factor + max_held slots */
    CHECK(dlp_pipe_next_timeout(p, &b, 50) == DLP_TIMEOUT);
    CHECK(dlp_subscriber_next_timeout(c, &b, 20000) == DLP_OK && b->sequence == 0 && same(&r, b));
    CHECK(dlp_subscriber_release(c, b) == DLP_OK && dlp_subscriber_missed(c) == 0);
    take(&r, p, 1, 0);
    dlp_subscriber_close(c);
    take(&r, p, 20, 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* One that keeps up misses nothing, whatever it does when it is behind. */
static void keeps_up__misses_none(int when_behind) {
    rig r;
    dlp_shm_desc d;
    dlp_pipe *p;
    dlp_subscriber *c;
    dlp_batch *b, *last = NULL;
    shared_rig(&r, &d, 0, DLP_PLACE_THREADS);
    d.wait_subscribers = 1;
    r.pipe.prefetch_factor = 1; /* else more may be ready than it goes back for */
    if (rig_open(&r, &p) != DLP_OK) return;
    c = subscribe(when_behind, 2);
    for (uint64_t n = 0; n < all_batches(&r); n++) {
        CHECK(dlp_subscriber_next_timeout(c, &b, 20000) == DLP_OK);
        CHECK(b->sequence == n && same(&r, b));
        take(&r, p, 1, 0);
        if (last) CHECK(dlp_subscriber_release(c, last) == DLP_OK);
        last = b;
    }
    CHECK(dlp_subscriber_release(c, last) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
    CHECK(dlp_subscriber_next_timeout(c, &b, 20000) == DLP_END && dlp_subscriber_missed(c) == 0);
    dlp_subscriber_close(c);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* 40 batches behind: its places have the oldest two; then come those that are still there. */
static void drop_new__behind__has_the_oldest(int place) {
    rig r;
    dlp_shm_desc d;
    dlp_pipe *p;
    dlp_subscriber *c;
    dlp_batch *b[2], *next;
    shared_rig(&r, &d, 0, place);
    d.wait_subscribers = 1;
    if (rig_open(&r, &p) != DLP_OK) return;
    c = subscribe(DLP_BEHIND_DROP_NEW, 2);
    take(&r, p, 40, 0);
    for (uint64_t i = 0; i < 2; i++)
        CHECK(dlp_subscriber_next_timeout(c, &b[i], 20000) == DLP_OK && b[i]->sequence == i);
    CHECK(dlp_subscriber_next_timeout(c, &next, 0) == DLP_ERR_HELD);
    take(&r, p, 40, 0);
    CHECK(same(&r, b[0]) && same(&r, b[1]) && dlp_subscriber_missed(c) == 0);
    CHECK(dlp_subscriber_release(c, b[0]) == DLP_OK);
    CHECK(dlp_subscriber_next_timeout(c, &b[0], 20000) == DLP_OK && same(&r, b[0]));
    CHECK(b[0]->sequence >= 80 - 7 && b[0]->sequence < 80 + 7);
    CHECK(dlp_subscriber_missed(c) == b[0]->sequence - 2);
    CHECK(dlp_subscriber_release(c, b[0]) == DLP_OK && dlp_subscriber_release(c, b[1]) == DLP_OK);
    take(&r, p, all_batches(&r) - 80, 0);
    CHECK(dlp_pipe_next_timeout(p, &next, 20000) == DLP_END);
    dlp_subscriber_close(c);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void keep_newest__behind__has_the_newest(int place) {
    rig r;
    dlp_shm_desc d;
    dlp_pipe *p;
    dlp_subscriber *c;
    dlp_batch *b, *next;
    dlp_stats stats;
    shared_rig(&r, &d, 0, place);
    d.wait_subscribers = 1;
    if (rig_open(&r, &p) != DLP_OK) return;
    c = subscribe(DLP_BEHIND_KEEP_NEWEST, 2);
    take(&r, p, 40, 0);
    for (int i = 0; i < 20000; i++) { /* all that may be ready is */
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
        if (stats.ready == 4) break;
        test_pause(1000000);
    }
    CHECK(dlp_subscriber_next_timeout(c, &b, 20000) == DLP_OK && b->sequence == 42 && same(&r, b));
    CHECK(dlp_subscriber_missed(c) == 42);
    CHECK(dlp_subscriber_next_timeout(c, &next, 20000) == DLP_OK && next->sequence == 43);
    CHECK(dlp_subscriber_release(c, next) == DLP_OK);
    CHECK(dlp_subscriber_next_timeout(c, &next, 20) == DLP_TIMEOUT); /* nothing newer */
    take(&r, p, 60, 0);
    CHECK(same(&r, b)); /* held: as it was, 60 batches later */
    CHECK(dlp_subscriber_release(c, b) == DLP_OK);
    CHECK(dlp_subscriber_next_timeout(c, &b, 20000) == DLP_OK && b->sequence >= 98 && same(&r, b));
    take(&r, p, all_batches(&r) - 100, 0);
    CHECK(dlp_pipe_next_timeout(p, &next, 20000) == DLP_END);
    dlp_subscriber_close(c);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- a logger in a thread of its own ---- */

typedef struct logger {
    rig *r;
    int when_behind;
    uint64_t pause_ns, got, missed, wrong;
    int ended;
    uint32_t opened;
} logger;

static void *log_batches(void *arg) {
    logger *l = arg;
    dlp_subscriber *c = subscribe(l->when_behind, 1);
    rig copy = *l->r; /* whose permutation of an epoch is the thread's own */
    uint64_t next = 0;
    dlp_batch *b;
    copy.permutation_ready = 0;
    __atomic_store_n(&l->opened, 1u, __ATOMIC_SEQ_CST);
    while (c != NULL && (l->ended = dlp_subscriber_next_timeout(c, &b, 20000)) == DLP_OK) {
        l->wrong += (same(&copy, b) ? 0u : 1u) + (b->sequence < next ? 1u : 0u);
        next = b->sequence + 1;
        if (l->pause_ns) test_pause(l->pause_ns);
        l->wrong += same(&copy, b) ? 0u : 1u;
        l->got++;
        CHECK(dlp_subscriber_release(c, b) == DLP_OK);
    }
    l->missed = dlp_subscriber_missed(c);
    dlp_subscriber_close(c);
    return NULL;
}

/* The consumer's time for all batches, beside a logger that sleeps 20 ms over each; -1: none. */
static uint64_t beside(int when_behind, uint64_t *got) {
    rig r;
    dlp_shm_desc d;
    dlp_pipe *p;
    dlp_batch *b;
    pthread_t thread;
    logger l = {&r, when_behind, 20000000, 0, 0, 0, 0, 0};
    uint64_t ns;
    shared_rig(&r, &d, 0, DLP_PLACE_THREADS);
    d.wait_subscribers = when_behind >= 0;
    if (rig_open(&r, &p) != DLP_OK) return 1;
    if (when_behind >= 0) CHECK(pthread_create(&thread, NULL, log_batches, &l) == 0);
    while (when_behind >= 0 && !__atomic_load_n(&l.opened, __ATOMIC_SEQ_CST)) test_pause(1000000);
    ns = take(&r, p, all_batches(&r), 200000);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
    if (when_behind >= 0) CHECK(pthread_join(thread, NULL) == 0);
    CHECK(l.wrong == 0 && (when_behind < 0 || l.ended == DLP_END));
    if (when_behind >= 0) CHECK(l.got > 1 && l.got + l.missed == all_batches(&r));
    if (got) *got = l.got;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return ns;
}

/* To wait for the logger would take 20 ms a batch, 50 times as long. */
static void slow_logger__consumer_is_not_slowed(int when_behind) {
    double best = 1e9;
    uint64_t got = 0;
    for (int tries = 0; tries < 4 && best > 2; tries++) { /* others may have the cores */
        uint64_t alone = beside(-1, NULL), with = beside(when_behind, &got);
        double ratio = (double)with / (double)alone;
        if (ratio < best) best = ratio;
    }
    printf("  slow logger, policy %d: the consumer takes %.2f times as long, %d batches logged\n",
           when_behind, best, (int)got);
    CHECK(best < 5);
}

/* ---- programs ---- */

static pid_t sitter(int me, int when_behind) {
    pid_t pid = fork();
    dlp_subscriber *c;
    dlp_batch *b;
    if (pid != 0) return pid;
    for (int i = 0; i < 20000 && me == 1 && !__atomic_load_n(&held[0], __ATOMIC_SEQ_CST); i++)
        test_pause(1000000); /* the second gets another batch */
    for (int i = 0; i < 4000; i++) {
        dlp_subscriber_desc desc = {1, when_behind};
        if (dlp_subscriber_open(&c, name, &desc, NULL) == DLP_OK) break;
        test_pause(5000000);
    }
    if (dlp_subscriber_next_timeout(c, &b, 20000) != DLP_OK) _exit(1);
    __atomic_store_n(&held[me], 1u, __ATOMIC_SEQ_CST);
    for (;;) pause();
}

/* Two sit on the only slots: the consumer waits for what they hold, and goes on once they die. */
static void killed_holding__slots_are_free(int place, int when_behind) {
    rig r;
    dlp_shm_desc d;
    dlp_pipe *p;
    dlp_batch *b;
    pid_t pid[2];
    uint64_t n = 0;
    int rc;
    shared_rig(&r, &d, 0, place);
    d.wait_subscribers = 1;
    r.pipe.prefetch_factor = r.pipe.max_held = 1; /* two slots */
    for (int i = 0; i < 2; i++) pid[i] = sitter(i, when_behind);
    if (rig_open(&r, &p) != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 300)) == DLP_OK) {
        CHECK(b->sequence == n++ && same(&r, b));
        if (!__atomic_load_n(&held[1], __ATOMIC_SEQ_CST)) test_pause(20000000);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_TIMEOUT && n < all_batches(&r) && held[0] && held[1]);
    for (int i = 0; i < 2; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
    take(&r, p, all_batches(&r) - n, 0);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* A pipe without a consumer of its own waits for a subscriber that it waits for; at the end it does
   not wait for the others. */
static void serve_only__logger_alone__nothing_begins(void) {
    rig r;
    dlp_shm_desc d;
    dlp_pipe *p;
    dlp_subscriber *late, *c;
    dlp_batch *b, *kept = NULL;
    uint64_t n = 0;
    int rc;
    shared_rig(&r, &d, 1, DLP_PLACE_THREADS);
    if (rig_open(&r, &p) != DLP_OK) return;
    late = subscribe(DLP_BEHIND_DROP_NEW, 1);
    CHECK(dlp_subscriber_next_timeout(late, &b, 100) == DLP_TIMEOUT && inside_scheduled(p) == 0);
    c = subscribe(DLP_BEHIND_WAIT, 1);
    while ((rc = dlp_subscriber_next_timeout(c, &b, 20000)) == DLP_OK) {
        CHECK(b->sequence == n++ && same(&r, b));
        if (kept == NULL) CHECK(dlp_subscriber_next_timeout(late, &kept, 20000) == DLP_OK);
        CHECK(dlp_subscriber_release(c, b) == DLP_OK);
    }
    CHECK(rc == DLP_END && n == all_batches(&r));
    CHECK(dlp_shm_serve(p, 20000) == DLP_END); /* though one holds a batch */
    CHECK(kept != NULL && kept->sequence == 0 && same(&r, kept));
    dlp_subscriber_close(c);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(kept != NULL && same(&r, kept)); /* until it closes */
    dlp_subscriber_close(late);
}

static void desc__does_not_fit__names_the_field(void) {
    rig r;
    dlp_shm_desc d;
    dlp_pipe *p;
    dlp_subscriber *c = NULL;
    dlp_subscriber_desc desc = {1, 3};
    dlp_error err;
    shared_rig(&r, &d, 1, DLP_PLACE_THREADS);
    d.share = DLP_SHARE_ONE;
    if (rig_open(&r, &p) != DLP_OK) return;
    for (int i = 0; i < 3; i++) {
        static const int bad[] = {3, -1, DLP_BEHIND_KEEP_NEWEST};
        desc.when_behind = bad[i];
        CHECK(dlp_subscriber_open(&c, name, &desc, &err) == DLP_ERR_ARG && c == NULL);
        CHECK(strcmp(err.field, "when_behind") == 0);
    }
    CHECK(dlp_subscriber_missed(NULL) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    SHM_NEEDS("shm_behind");
    wait__takes_nothing__consumer_waits();
    keeps_up__misses_none(DLP_BEHIND_DROP_NEW);
    keeps_up__misses_none(DLP_BEHIND_KEEP_NEWEST);
    for (int place = 0; place < 2; place++) {
        drop_new__behind__has_the_oldest(place);
        keep_newest__behind__has_the_newest(place);
        killed_holding__slots_are_free(place, DLP_BEHIND_DROP_NEW);
        killed_holding__slots_are_free(place, DLP_BEHIND_KEEP_NEWEST);
    }
    slow_logger__consumer_is_not_slowed(DLP_BEHIND_DROP_NEW);
    slow_logger__consumer_is_not_slowed(DLP_BEHIND_KEEP_NEWEST);
    serve_only__logger_alone__nothing_begins();
    desc__does_not_fit__names_the_field();
    return test_end("shm_behind");
}
