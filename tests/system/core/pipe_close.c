/* Stop and close at any moment: nothing is left, memory in use stays, and it is over within a
   second, unless a thread lost its processor: what took longer is done again, up to five times. */
#include "../../rig/pipe_life.h"

#define SECOND 1000

/* ---- a gate that callbacks block at ---- */

static struct {
    uint32_t shut;    /* G1 */
    uint32_t waiting; /* G1: callbacks that stand at it */
    int where;        /* which callback goes through the gate, of enum at_gate */
    uint32_t item_us; /* time of an item */
} gate;

enum at_gate {
    AT_NONE,
    AT_FETCH,
    AT_ITEM_MAP,
    AT_BATCH_MAP,
    AT_COLLATE,
    AT_INIT,
    AT_EXIT,
    AT_SAMPLER,
    AT_COPY,
    AT_DONE,
    AT_COUNT
};
static const char *const gate_stage[] = {"",      "fetch", "map",     "map",      "batch",
                                         "fetch", "fetch", "sampler", "transfer", "transfer"};

static void gate_set(int where, uint32_t item_us) {
    gate.where = where;
    gate.item_us = item_us;
    DLPI_STORE_SEQ(&gate.shut, where != AT_NONE ? 1u : 0u); /* G1 */
    DLPI_STORE_SEQ(&gate.waiting, 0u);                      /* G1 */
}
static void gate_open(void) { DLPI_STORE_SEQ(&gate.shut, 0u); } /* G1 */
static void gate_pass(int where) {
    if (gate.where != where) return;
    DLPI_ADD_SEQ(&gate.waiting, 1u);                      /* G1 */
    while (DLPI_LOAD_SEQ(&gate.shut) != 0) sleep_us(500); /* G1 */
}
static void gate_await(void) {
    for (int i = 0; i < 20000 && DLPI_LOAD_SEQ(&gate.waiting) == 0; i++) sleep_us(500); /* G1 */
    CHECK(DLPI_LOAD_SEQ(&gate.waiting) > 0);                                            /* G1 */
}

static int slow_fetch(void *user, dlp_item *it) {
    if (gate.item_us) sleep_us(gate.item_us);
    gate_pass(AT_FETCH);
    return rig_fetch(user, it);
}
static int gate_item_map(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    gate_pass(AT_ITEM_MAP);
    return 0;
}
static int gate_batch_map(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)b;
    (void)state;
    gate_pass(AT_BATCH_MAP);
    return 0;
}
static int gate_collate(void *user, dlp_collate *c) {
    gate_pass(AT_COLLATE);
    return dlp_collate_pad(user, c);
}
static int gate_init(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    *state = NULL;
    gate_pass(AT_INIT);
    return 0;
}
static void gate_exit(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    (void)state;
    gate_pass(AT_EXIT);
}
static int64_t gate_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    (void)user;
    (void)epoch;
    gate_pass(AT_SAMPLER);
    for (uint64_t i = 0; i < max; i++) index[i] = i;
    return (int64_t)max;
}
static int gate_copy(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer) {
    gate_pass(AT_COPY);
    return dlp_device_host()->copy(user, dev, host, bytes, buffer);
}
static int gate_done(void *user, uint32_t buffer) {
    (void)user;
    (void)buffer;
    gate_pass(AT_DONE);
    return 1;
}

/* ---- pipes of all kinds ---- */

enum {
    PLAIN,
    SAMPLER_THREAD,
    TRANSFER,
    TRANSFER_THREAD,
    COLLATE,
    IN_TURN,
    MAPS,
    UNORDERED,
    VARIANTS
};

static dlp_device gate_device;

static void variant(rig *r, int kind, int workers) {
    rig_default(r);
    gate_device = *dlp_device_host();
    gate_device.copy = gate_copy;
    gate_device.done = gate_done;
    r->transfer.transfer.device = &gate_device;
    r->pipe.max_held = 2;
    r->pipe.epochs = DLP_FOREVER;
    r->dataset.fetch = slow_fetch;
    r->fetch.workers.num_workers = workers;
    r->fetch.workers.worker_init = gate_init;
    r->fetch.workers.worker_exit = gate_exit;
    r->item_map.map.item = gate_item_map;
    r->batch_map.map.batch = gate_batch_map;
    if (kind == SAMPLER_THREAD) r->sampler.threaded = 1;
    if (kind == TRANSFER || kind == TRANSFER_THREAD) r->has_transfer = 1;
    if (kind == TRANSFER_THREAD) r->transfer.workers.num_workers = 1;
    if (kind == COLLATE) r->batch.collate = gate_collate;
    if (kind == IN_TURN) r->fetch.workers.dispatch = DLP_DISPATCH_BATCHES;
    if (kind == MAPS) {
        r->has_item_map = r->has_batch_map = 1;
        r->item_map.workers.num_workers = workers / 2;
        r->batch_map.workers.num_workers = workers / 2;
    }
    if (kind == UNORDERED) r->pipe.unordered = 1;
}

static int n_slow; /* what took longer than it should since quick began */

static void is_quick(uint64_t from_ms, uint64_t within_ms) {
    uint64_t took = now_ms() - from_ms;
    n_slow += took >= within_ms;
    CHECK(took < 20 * SECOND);
}

/* Close, whatever that takes, and see that it took under a second. */
static void close_quickly(dlp_pipe *p) {
    uint64_t from = now_ms();
    int rc;
    while ((rc = dlp_pipe_close(p)) == DLP_ERR_BUSY && now_ms() - from < 20 * SECOND)
        continue; /* its time-out is short in some cases */
    CHECK(rc == DLP_OK);
    is_quick(from, SECOND);
}

#define QUICK(call) CHECK_ONE_OF_5((n_slow = 0, call, n_slow == 0))

enum {
    WIRED,
    PREPARED, /* its memory is there, and no thread */
    PLANNED,
    STARTED,
    ONE_NEXT,
    ONE_HELD,
    TWO_HELD,
    SEVERAL,
    STOPPED,
    FULL,
    MOMENTS
};

static void check_content(const dlp_batch *b) {
    const uint64_t *words = b->fields[0].data;
    for (uint32_t i = 0; i < b->count; i++) CHECK(words[2 * i] == b->index[i]);
}

static void close_at(int kind, int workers, int moment) {
    seam_alive alive = seam_now();
    proc_count proc = proc_now();
    rig r;
    dlp_pipe *p = NULL;
    dlp_plan plan;
    dlp_batch *b[2];
    int held = moment == TWO_HELD ? 2 : moment == ONE_HELD ? 1 : 0;
    variant(&r, kind, workers);
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK && p != NULL);
    if (moment >= PREPARED) CHECK(inside_pipe_fork(p) == DLP_OK);
    if (moment == PLANNED) CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    if (moment >= STARTED) CHECK(dlp_pipe_start(p) == DLP_OK);
    for (int i = 0; i < held; i++) CHECK(dlp_pipe_next_timeout(p, &b[i], 20000) == DLP_OK);
    for (int i = 0; i < (moment == SEVERAL                         ? 25
                         : moment == ONE_NEXT || moment == STOPPED ? 1
                                                                   : 0);
         i++) {
        CHECK(dlp_pipe_next_timeout(p, &b[0], 20000) == DLP_OK);
        CHECK(dlp_pipe_release(p, b[0]) == DLP_OK);
    }
    if (moment == STOPPED) dlp_pipe_stop(p);
    if (moment == FULL) sleep_us(3000); /* workers sleep now */
    close_quickly(p);
    for (int i = 0; i < held; i++) {
        CHECK(seam_now().blocks > alive.blocks);
        check_content(b[i]);
        CHECK(dlp_pipe_next(p, &b[1 - i]) == DLP_ERR_STATE);
        CHECK(dlp_pipe_release(p, b[i]) == DLP_OK);
    }
    if (!(CHECK(seam_same(alive)) & CHECK(proc_same(proc))))
        printf("  kind %d, workers %d, moment %d\n", kind, workers, moment);
}

static void close__any_moment__nothing_left(void) {
    static const int workers[] = {0, 1, 2, 16};
    for (int kind = 0; kind < VARIANTS; kind++)
        for (int w = 0; w < 4; w++)
            for (int moment = 0; moment < MOMENTS; moment++) {
                gate_set(AT_NONE, moment % 2 ? 300 : 0);
                QUICK(close_at(kind, workers[w], moment));
            }
}

static void close__workers_in_sleeping_items__waits_for_them(void) {
    for (int workers = 1; workers <= 16; workers *= 4) {
        gate_set(AT_NONE, 100000);
        QUICK(close_at(PLAIN, workers, STARTED));
    }
    gate_set(AT_NONE, 20000);
    QUICK(close_at(SAMPLER_THREAD, 3, FULL));
}

/* ---- callbacks that block ---- */

static void gate_rig(rig *r, int where) {
    int kind = where == AT_ITEM_MAP || where == AT_BATCH_MAP ? MAPS
               : where == AT_COLLATE                         ? COLLATE
               : where == AT_COPY || where == AT_DONE        ? TRANSFER_THREAD
                                                             : PLAIN;
    variant(r, kind, 2);
    if (where == AT_SAMPLER) {
        r->sampler.order = DLP_ORDER_BATCHES;
        r->sampler.batches.next = gate_next;
        r->sampler.threaded = 1;
    }
    if (where == AT_BATCH_MAP) r->has_item_map = 0;
    if (where == AT_ITEM_MAP) r->has_batch_map = 0;
}

/* Does it name whoever stands at the gate? It may name another who has not ended in time, if that
   one lost its processor. */
static int is_busy(dlp_pipe *p, int where, int timeout_ms) {
    uint64_t from = now_ms();
    const dlp_error *e;
    int ok;
    CHECK(dlp_pipe_close(p) == DLP_ERR_BUSY);
    CHECK(now_ms() - from + 2 >= (uint64_t)timeout_ms);
    is_quick(from, (uint64_t)timeout_ms + 500);
    e = dlp_pipe_error(p);
    CHECK(e->code == DLP_ERR_BUSY && e->message[0] != 0);
    CHECK(e->worker >= 0 && e->worker < 2);
    CHECK(e->index < 100);
    ok = strcmp(e->stage, gate_stage[where]) == 0 &&
         e->has_item == (where == AT_FETCH || where == AT_ITEM_MAP);
    if (!ok) printf("  %s, item %d, gate %d\n", e->stage, e->has_item, where);
    return ok;
}

static int names_who_blocks(int where) {
    seam_alive alive = seam_now(), running;
    proc_count proc = proc_now();
    rig r;
    dlp_pipe *p;
    int ok;
    gate_rig(&r, where);
    r.pipe.close_timeout_ms = 60;
    gate_set(where, 0);
    n_slow = 0;
    CHECK(rig_start(&r, &p) == DLP_OK);
    if (where != AT_EXIT) gate_await();
    running = seam_now();
    ok = is_busy(p, where, 60);
    ok &= is_busy(p, where, 60);
    CHECK(seam_now().blocks == running.blocks && seam_now().maps == running.maps);
    CHECK(dlp_pipe_next(p, &(dlp_batch *){NULL}) == DLP_ERR_STATE);
    gate_open();
    close_quickly(p);
    if (!(CHECK(seam_same(alive)) & CHECK(proc_same(proc)))) printf("  gate %d\n", where);
    return ok && n_slow == 0;
}

static void close__callback_blocks__busy_names_it_and_again_succeeds(void) {
    for (int where = AT_FETCH; where < AT_COUNT; where++) CHECK_ONE_OF_5(names_who_blocks(where));
}

/* A batch is held while close finds a callback running. Whoever comes last frees, and only then. */
static void close_while_held(int order) {
    seam_alive alive = seam_now();
    proc_count proc = proc_now();
    rig r;
    dlp_pipe *p;
    dlp_batch *b, *more;
    variant(&r, PLAIN, 2);
    r.pipe.close_timeout_ms = 30;
    gate_set(AT_NONE, 0);
    gate.where = AT_FETCH; /* open until the first batch is here */
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    DLPI_STORE_SEQ(&gate.waiting, 0u);                                  /* G1 */
    DLPI_STORE_SEQ(&gate.shut, 1u);                                     /* G1 */
    for (int i = 0; i < 1000 && DLPI_LOAD_SEQ(&gate.waiting) == 0; i++) /* G1 */
        if (dlp_pipe_next_timeout(p, &more, 20) == DLP_OK) dlp_pipe_release(p, more);
    gate_await();
    CHECK(dlp_pipe_close(p) == DLP_ERR_BUSY);
    if (order == 0 || order == 1) CHECK(dlp_pipe_release(p, b) == DLP_OK);
    if (order == 1) CHECK(dlp_pipe_close(p) == DLP_ERR_BUSY);
    gate_open();
    if (order == 2) { /* the threads end by themselves before the release */
        for (int i = 0; i < 20000 && proc_now().threads > proc.threads; i++) sleep_us(1000);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    close_quickly(p);
    if (order == 3) {
        check_content(b);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (!(CHECK(seam_same(alive)) & CHECK(proc_same(proc)))) printf("  order %d\n", order);
}

static void close__blocked_and_batch_held__freed_by_the_last(void) {
    for (int order = 0; order < 4; order++) QUICK(close_while_held(order));
}

static void *opener(void *user) {
    (void)user;
    sleep_us(150000);
    gate_open();
    return NULL;
}

static int closes_as_they_say(void) {
    seam_alive alive = seam_now();
    rig r;
    dlp_pipe *p;
    pthread_t t;
    uint64_t from;
    int rc, ok;
    n_slow = 0;
    variant(&r, PLAIN, 2);
    r.pipe.close_timeout_ms = DLP_FOREVER;
    gate_set(AT_FETCH, 0);
    CHECK(rig_start(&r, &p) == DLP_OK);
    gate_await();
    from = now_ms();
    CHECK(pthread_create(&t, NULL, opener, NULL) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK && now_ms() - from >= 100);
    pthread_join(t, NULL);
    r.pipe.close_timeout_ms = DLP_NOWAIT;
    gate_set(AT_FETCH, 0);
    CHECK(rig_start(&r, &p) == DLP_OK);
    gate_await();
    ok = is_busy(p, AT_FETCH, 0);
    gate_open();
    from = now_ms();
    while ((rc = dlp_pipe_close(p)) == DLP_ERR_BUSY && now_ms() - from < 20 * SECOND)
        sleep_us(1000);
    is_quick(from, SECOND);
    CHECK(rc == DLP_OK);
    CHECK(seam_same(alive));
    return ok && n_slow == 0;
}

static void close__forever_and_nowait__as_they_say(void) { CHECK_ONE_OF_5(closes_as_they_say()); }

/* ---- the process is stopped while close waits ---- */

static int working_fetch(void *user, dlp_item *it) {
    DLPI_ADD_SEQ(&gate.waiting, 1u); /* G1 */
    return rig_compute(user, it, 60);
}

/* Close while callbacks run. Returns 0 if close waited for them. */
static int close_goes_on(int how, int ready) {
    rig r;
    dlp_pipe *p;
    variant(&r, PLAIN, how);
    r.dataset.fetch = working_fetch;
    r.pipe.close_timeout_ms = 1000;
    gate_set(AT_NONE, 0);
    if (rig_start(&r, &p) != DLP_OK) return 2;
    gate_await();
    if (write(ready, "", 1) != 1) return 3;
    return dlp_pipe_close(p) != DLP_OK;
}

static void close__process_was_stopped__goes_on_waiting(void) {
    CHECK_ONE_OF_5(rig_stopped(close_goes_on, 2, 1300));
}

static int failing_map(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)b;
    (void)state;
    DLPI_ADD_SEQ(&gate.waiting, 1u); /* G1 */
    return 1;
}
static int failing_fetch(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    DLPI_ADD_SEQ(&gate.waiting, 1u); /* G1 */
    return 1;
}

static void close_between_tries(int batch) {
    rig r;
    dlp_pipe *p;
    gate_set(AT_NONE, 0);
    variant(&r, PLAIN, 2);
    r.has_batch_map = batch;
    r.batch_map.map.batch = failing_map;
    r.batch_map.workers.num_workers = 1;
    r.batch_map.workers.idempotent = 1;
    r.dataset.fetch = batch ? slow_fetch : failing_fetch;
    r.fetch.workers.retries = r.batch_map.workers.retries = 100;
    r.fetch.workers.retry_backoff_ms = r.batch_map.workers.retry_backoff_ms = 3600000;
    CHECK(rig_start(&r, &p) == DLP_OK);
    gate_await();
    close_quickly(p);
}

/* A retry due in an hour is no reason to wait. */
static void close__retry_is_far_off__quick(void) {
    for (int batch = 0; batch < 2; batch++) QUICK(close_between_tries(batch));
}

/* ---- stop ---- */

typedef struct stopper {
    dlp_pipe *p;
    uint64_t after_us;
    uint64_t at_ns; /* when stop was called */
} stopper;

static void *stop_later(void *user) {
    stopper *s = user;
    sleep_us((int64_t)s->after_us);
    s->at_ns = test_now_ns();
    dlp_pipe_stop(s->p);
    return NULL;
}

/* A batch takes long, and may come all the same if whoever stops is late. */
static int next_until_stopped(dlp_pipe *p) {
    dlp_batch *b;
    int rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    return rc;
}

static void stop_from_a_thread(int kind, int workers, uint64_t after_us) {
    rig r;
    dlp_pipe *p;
    pthread_t t;
    stopper s;
    uint64_t took;
    variant(&r, kind, workers);
    gate_set(AT_NONE, 10000);
    r.pipe.max_held = 1;
    r.batch.batch_size = 1000;
    r.dataset.n_items = 100000;
    CHECK(rig_start(&r, &p) == DLP_OK);
    s.p = p;
    s.after_us = after_us;
    CHECK(pthread_create(&t, NULL, stop_later, &s) == 0);
    CHECK(next_until_stopped(p) == DLP_STOPPED);
    took = test_now_ns();
    pthread_join(t, NULL);
    took -= s.at_ns;
    if (took > 100000000) printf("  %" PRIu64 " us, kind %d\n", took / 1000, kind);
    n_slow += took > 100000000;
    close_quickly(p);
}

static void stop__from_another_thread__next_returns_within_100_ms(void) {
    static const int workers[] = {0, 1, 2, 16};
    for (int kind = 0; kind < VARIANTS; kind++)
        for (int w = 0; w < 4; w++)
            QUICK(stop_from_a_thread(kind, workers[w], (uint64_t)(5000 + 700 * w)));
}

static dlp_pipe *signal_pipe;
static struct {
    long calls; /* through the seam, by the handler */
    uint64_t at_ns;
    uint32_t came; /* G2 */
} handled;

/* Between two readings nothing may go through the seam, which has a lock of its own: only counters
   are compared. */
static void on_signal(int number) {
    int was = errno, saved;
    long before = seam.calls;
    (void)number;
    errno = 4711;
    handled.at_ns = test_now_ns();
    dlp_pipe_stop(signal_pipe);
    saved = errno;
    handled.calls += seam.calls - before + (saved != 4711);
    DLPI_STORE_SEQ(&handled.came, 1u); /* G2 */
    errno = was;
}

static void stop_from_a_handler(int kind, int workers) {
    struct itimerval when = {{0, 0}, {0, 15000}};
    rig r;
    variant(&r, kind, workers);
    gate_set(AT_NONE, 10000);
    r.batch.batch_size = 1000;
    r.dataset.n_items = 100000;
    memset(&handled, 0, sizeof handled);
    CHECK(rig_start(&r, &signal_pipe) == DLP_OK);
    setitimer(ITIMER_REAL, &when, NULL);
    CHECK(next_until_stopped(signal_pipe) == DLP_STOPPED);
    for (int i = 0; i < 20000 && DLPI_LOAD_SEQ(&handled.came) == 0; i++) sleep_us(1000); /* G2 */
    CHECK(DLPI_LOAD_SEQ(&handled.came) == 1);                                            /* G2 */
    is_quick(handled.at_ns / 1000000, 500);
    CHECK(handled.calls == 0);
    close_quickly(signal_pipe);
}

/* Before start, and before the first next. */
static void stop_by_raise(int moment) {
    rig r;
    dlp_batch *b;
    variant(&r, PLAIN, 2);
    gate_set(AT_NONE, 0);
    CHECK(rig_wire(&r, &signal_pipe, NULL) == DLP_OK);
    if (moment == 0) raise(SIGINT);
    CHECK(dlp_pipe_start(signal_pipe) == DLP_OK);
    if (moment == 1) raise(SIGINT);
    CHECK(dlp_pipe_next_timeout(signal_pipe, &b, 20000) == DLP_STOPPED);
    close_quickly(signal_pipe);
}

static void stop__in_signal_handler__no_allocation_and_next_returns(void) {
    struct sigaction act, old_alarm, old_int;
    memset(&act, 0, sizeof act);
    act.sa_handler = on_signal;
    sigaction(SIGALRM, &act, &old_alarm);
    sigaction(SIGINT, &act, &old_int);
    for (int kind = 0; kind < VARIANTS; kind++)
        for (int workers = 0; workers <= 2; workers += 2) QUICK(stop_from_a_handler(kind, workers));
    for (int moment = 0; moment < 2; moment++) QUICK(stop_by_raise(moment));
    sigaction(SIGALRM, &old_alarm, NULL);
    sigaction(SIGINT, &old_int, NULL);
}

static int init_that_stops(void *user, int worker, void **state) {
    (void)worker;
    *state = NULL;
    dlp_pipe_stop(*(dlp_pipe **)user);
    return 0;
}

static void stop_in_start(int workers) {
    rig r;
    dlp_pipe *p = NULL;
    variant(&r, PLAIN, workers);
    gate_set(AT_NONE, 0);
    r.fetch.workers.worker_init = init_that_stops;
    r.fetch.workers.worker_user = &p;
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    CHECK(dlp_pipe_start(p) == DLP_OK);
    CHECK(next_until_stopped(p) == DLP_STOPPED); /* a worker may begin late */
    close_quickly(p);
}

static void stop__while_start_runs__stopped(void) {
    for (int workers = 0; workers <= 4; workers += 2) QUICK(stop_in_start(workers));
}

/* ---- many times ---- */

static long resident_kib(void) {
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void open_close(int i) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    variant(&r, i % VARIANTS, i % 4);
    CHECK(rig_start(&r, &p) == DLP_OK);
    for (int k = 0; k < i % 3; k++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    close_quickly(p);
}

static void open_close__500_times__nothing_grows(void) {
    seam_alive alive = seam_now();
    proc_count proc = proc_now();
    int cycles = is_short() ? 100 : 500;
    long early = 0;
    gate_set(AT_NONE, 0);
    for (int i = 0; i < cycles; i++) {
        QUICK(open_close(i));
        if (i == cycles / 5) early = resident_kib();
    }
    CHECK(seam_same(alive));
    CHECK(proc_same(proc));
    if (!is_short()) CHECK(resident_kib() < early + 1024);
}

int main(void) {
    rig_warm();
    close__any_moment__nothing_left();
    close__workers_in_sleeping_items__waits_for_them();
    close__callback_blocks__busy_names_it_and_again_succeeds();
    close__blocked_and_batch_held__freed_by_the_last();
    close__forever_and_nowait__as_they_say();
    close__process_was_stopped__goes_on_waiting();
    close__retry_is_far_off__quick();
    stop__from_another_thread__next_returns_within_100_ms();
    stop__in_signal_handler__no_allocation_and_next_returns();
    stop__while_start_runs__stopped();
    open_close__500_times__nothing_grows();
    return test_end("pipe_close");
}
