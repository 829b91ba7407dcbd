/* Deadlines and time-outs; what a worker is given: init and exit, name, cores, stack; warnings. */
#include "../../rig/pipe_life.h"

static struct {
    uint64_t slow_index; /* this item takes slow_ms */
    uint32_t slow_ms;
    uint32_t item_us;
    uint32_t shut; /* D1: while 1, the slow item waits */
} work;

static int work_fetch(void *user, dlp_item *it) {
    if (work.item_us) sleep_us(work.item_us);
    if (it->index == work.slow_index) {
        uint64_t until = now_ms() + work.slow_ms;
        while (now_ms() < until && DLPI_LOAD_SEQ(&work.shut) != 0) sleep_us(1000); /* D1 */
    }
    return rig_fetch(user, it);
}
static int slow_later(void *user, dlp_item *it) {
    if (it->epoch == 19) sleep_us(25000);
    return rig_fetch(user, it);
}
static int work_map(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)state;
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t until = now_ms() + work.slow_ms;
        if (b->index[i] != work.slow_index) continue;
        while (now_ms() < until && DLPI_LOAD_SEQ(&work.shut) != 0) sleep_us(1000); /* D1 */
    }
    return 0;
}
static void work_set(uint64_t slow_index, uint32_t slow_ms, uint32_t item_us) {
    work.slow_index = slow_index;
    work.slow_ms = slow_ms;
    work.item_us = item_us;
    DLPI_STORE_SEQ(&work.shut, 1u); /* D1 */
}

/* ---- deadlines ---- */

/* Another item is past its deadline too if its worker has lost its processor for so long: is it the
   slow one that is named, and soon? */
static int names_slow_item(int workers, int dispatch) {
    rig r;
    dlp_pipe *p = NULL;
    const dlp_error *e;
    uint64_t from = now_ms(), took, batches = 0;
    dlp_permutation order;
    int slow;
    rig_default(&r);
    work_set(37, 20000, 0);
    r.dataset.fetch = work_fetch;
    r.fetch.workers.num_workers = workers;
    r.fetch.workers.dispatch = dispatch ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    r.fetch.workers.deadline_ms = 80;
    r.fetch.workers.name = "reader";
    r.sampler.order = DLP_ORDER_SHUFFLED;
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(rig_drain(p, &batches) == DLP_ERR_DEADLINE);
    took = now_ms() - from;
    CHECK(took >= 75 && batches < 10);
    e = dlp_pipe_error(p);
    CHECK(e->code == DLP_ERR_DEADLINE && strcmp(e->stage, "reader") == 0);
    CHECK(e->worker >= 0 && e->worker < workers && e->has_item);
    CHECK(strstr(e->message, "80") != NULL);
    /* the place in the order is that of the item */
    CHECK(dlp_permutation_init(&order, 100, r.sampler.seed, e->epoch) == DLP_OK);
    CHECK(e->epoch == 0 && dlp_permutation_at(&order, e->position) == e->index);
    slow = e->index == 37;
    if (!slow || took >= 400) printf("  item %" PRIu64 ", %" PRIu64 " ms\n", e->index, took);
    DLPI_STORE_SEQ(&work.shut, 0u); /* D1 */
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return slow && took < 400;
}

static void next__item_past_deadline__names_stage_worker_and_item(void) {
    for (int workers = 1; workers <= 4; workers += 3)
        for (int dispatch = 0; dispatch < 2; dispatch++)
            CHECK_ONE_OF_5(names_slow_item(workers, dispatch));
}

static int names_slow_batch(void) {
    rig r;
    dlp_pipe *p = NULL;
    uint64_t batches = 0;
    rig_default(&r);
    work_set(55, 20000, 0);
    r.has_batch_map = 1;
    r.batch_map.map.batch = work_map;
    r.batch_map.workers.num_workers = 2;
    r.batch_map.workers.deadline_ms = 50;
    r.batch_map.workers.name = "scale";
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(rig_drain(p, &batches) == DLP_ERR_DEADLINE && batches <= 5);
    CHECK(strcmp(dlp_pipe_error(p)->stage, "scale") == 0 && !dlp_pipe_error(p)->has_item);
    CHECK(dlp_pipe_error(p)->worker >= 0 && dlp_pipe_error(p)->worker < 2);
    DLPI_STORE_SEQ(&work.shut, 0u); /* D1 */
    CHECK(dlp_pipe_close(p) == DLP_OK);
    if (batches != 5) printf("  after %" PRIu64 " batches\n", batches);
    return batches == 5;
}

static void next__batch_past_deadline__names_stage_and_worker(void) {
    CHECK_ONE_OF_5(names_slow_batch());
}

static int none_is_late(int kind) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    int n = 0, rc;
    rig_default(&r);
    work_set(UINT64_MAX, 0, 2000);
    r.dataset.n_items = 40;
    r.dataset.fetch = work_fetch;
    r.fetch.workers.num_workers = kind == 2 ? 0 : 2;
    r.fetch.workers.deadline_ms = 100;
    if (kind == 3) { /* items so fast that a worker takes many in one go, until they are slow */
        r.dataset.fetch = slow_later;
        r.fetch.workers.num_workers = 1;
        r.dataset.n_items = 20;
        r.pipe.epochs = 20;
    }
    if (kind == 2) { /* inline fetch, and behind it a worker that takes longer than fetch may */
        r.has_batch_map = 1;
        r.batch_map.map.batch = work_map;
        r.batch_map.workers.num_workers = 1;
        work.slow_index = 15;
        work.slow_ms = 350;
    }
    CHECK(rig_start(&r, &p) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (kind == 1 && n == 1) sleep_us(250000); /* the workers idle longer than the deadline */
        n++;
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) printf("  kind %d: %s\n", kind, dlp_pipe_error(p)->message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc == DLP_END && n == (kind == 3 ? 40 : 4);
}

/* Items below the deadline, idle workers, and inline workers that wait for others are not past it;
   a worker that lost its processor in an item is. */
static void next__nothing_past_deadline__no_error(void) {
    for (int kind = 0; kind < 4; kind++) CHECK_ONE_OF_5(none_is_late(kind));
}

static int computing_fetch(void *user, dlp_item *it) { return rig_compute(user, it, work.slow_ms); }

/* Wait for the only item. hangs: it takes too long. Returns 0 if next said so, or waited for it. */
static int next_goes_on(int hangs, int ready) {
    rig r;
    dlp_pipe *p;
    uint64_t batches;
    rig_default(&r);
    work_set(0, hangs ? 20000 : 300, 0);
    r.dataset.n_items = 1;
    r.dataset.fetch = hangs ? work_fetch : computing_fetch;
    r.fetch.workers.num_workers = 1;
    r.fetch.workers.deadline_ms = 600;
    if (rig_start(&r, &p) != DLP_OK) return 2;
    if (write(ready, "", 1) != 1) return 3;
    return rig_drain(p, &batches) != (hangs ? DLP_ERR_DEADLINE : DLP_END);
}

static void next__process_was_stopped__time_does_not_count(void) {
    for (int hangs = 0; hangs < 2; hangs++) CHECK_ONE_OF_5(rig_stopped(next_goes_on, hangs, 900));
}

/* ---- time-outs ---- */

static void next__timeout__exact_enough(void) {
    static const int timeouts[] = {0, 1, 50};
    for (int threaded = 0; threaded < 2; threaded++)
        for (int i = 0; i < 3; i++) {
            uint64_t best = UINT64_MAX, least = UINT64_MAX, want = (uint64_t)timeouts[i] * 1000;
            rig r;
            dlp_pipe *p = NULL;
            dlp_batch *b = NULL;
            rig_default(&r);
            work_set(0, 20000, 0);
            r.dataset.fetch = work_fetch;
            r.fetch.workers.num_workers = 2;
            r.sampler.threaded = threaded;
            CHECK(rig_start(&r, &p) == DLP_OK);
            for (int k = 0; k < 3 || (k < 100 && best >= want + 3000); k++) {
                uint64_t from = test_now_ns(), took;
                CHECK(dlp_pipe_next_timeout(p, &b, timeouts[i]) == DLP_TIMEOUT && b == NULL);
                took = (test_now_ns() - from) / 1000;
                if (took < best) best = took;
                if (took < least) least = took;
            }
            if (!CHECK(least >= want && best < want + 3000))
                printf("  %" PRIu64 " us for %d ms\n", best, timeouts[i]);
            DLPI_STORE_SEQ(&work.shut, 0u);                       /* D1 */
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK); /* a time-out did no harm */
            CHECK(dlp_pipe_close(p) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
        }
}

/* Negative is without end, as for poll(2), also what DLP_NOWAIT and DLP_FOREVER are elsewhere. */
static void next__negative_timeout__waits(void) {
    static const int timeouts[] = {-1, DLP_FOREVER, INT_MIN};
    for (int i = 0; i < 3; i++) {
        rig r;
        dlp_pipe *p = NULL;
        dlp_batch *b = NULL;
        rig_default(&r);
        work_set(0, 30, 0);
        r.dataset.fetch = work_fetch;
        r.fetch.workers.num_workers = 2;
        CHECK(rig_start(&r, &p) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 0) == DLP_TIMEOUT && b == NULL);
        CHECK(dlp_pipe_next_timeout(p, &b, timeouts[i]) == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    }
}

/* ---- init and exit ---- */

#define MOST 16
static struct {
    int fails_at; /* worker whose init fails, -1 none */
    uint32_t inits, exits, wrong;
    int32_t tid[MOST];
    uint64_t states[MOST];
} life;

static int32_t my_tid(void) { return (int32_t)(syscall)(SYS_gettid); }

static int life_init(void *user, int worker, void **state) {
    if (user != &life) DLPI_ADD_SEQ(&life.wrong, 1u); /* L1 counters */
    DLPI_ADD_SEQ(&life.inits, 1u);                    /* L1 */
    if (worker == life.fails_at) return 42;
    life.tid[worker] = my_tid();
    life.states[worker] = 1000 + (uint64_t)worker;
    *state = &life.states[worker];
    return 0;
}
static void life_exit(void *user, int worker, void *state) {
    DLPI_ADD_SEQ(&life.exits, 1u); /* L1 */
    if (user != &life || state != &life.states[worker] ||
        life.states[worker] != 1000 + (uint64_t)worker || life.tid[worker] != my_tid())
        DLPI_ADD_SEQ(&life.wrong, 1u); /* L1 */
    life.states[worker] = 0;
}
static int life_fetch(void *user, dlp_item *it) {
    if (it->worker >= MOST || it->worker_state != &life.states[it->worker] ||
        *(uint64_t *)it->worker_state != 1000 + it->worker || life.tid[it->worker] != my_tid())
        DLPI_ADD_SEQ(&life.wrong, 1u); /* L1 */
    return rig_fetch(user, it);
}
static int life_map(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)b;
    if (*(uint64_t *)state < 1000 || *(uint64_t *)state >= 1000 + MOST)
        DLPI_ADD_SEQ(&life.wrong, 1u); /* L1 */
    return 0;
}
static int life_collate(void *user, dlp_collate *c) {
    if (c->worker_state != &life.states[c->worker]) DLPI_ADD_SEQ(&life.wrong, 1u); /* L1 */
    return dlp_collate_pad(user, c);
}
static void life_set(dlp_workers_desc *w, int workers, int fails_at) {
    memset(&life, 0, sizeof life);
    life.fails_at = fails_at;
    w->num_workers = workers;
    w->worker_init = life_init;
    w->worker_exit = life_exit;
    w->worker_user = &life;
}

/* A worker that begins when all has been done still does begin; not if the pipe is closed first. */
static void await_inits(uint32_t n) {
    for (int i = 0; i < 20000 && DLPI_LOAD_SEQ(&life.inits) < n; i++) sleep_us(1000); /* L1 */
}

static void worker__init_and_exit__paired_with_state(void) {
    for (int stage = 0; stage < 3; stage++)
        for (int workers = 0; workers <= MOST; workers = workers ? workers * 4 : 1) {
            rig r;
            dlp_pipe *p = NULL;
            uint64_t batches;
            uint32_t n = workers ? (uint32_t)workers : 1;
            rig_default(&r);
            r.dataset.fetch = stage == 0 ? life_fetch : rig_fetch;
            r.has_batch_map = stage == 1;
            r.batch_map.map.batch = life_map;
            if (stage == 2) {
                r.batch.collate = life_collate;
                r.batch_by.num_workers = workers ? workers : DLP_NONE;
            }
            life_set(stage == 0   ? &r.fetch.workers
                     : stage == 1 ? &r.batch_map.workers
                                  : &r.batch_by,
                     workers, -1);
            CHECK(rig_start(&r, &p) == DLP_OK);
            CHECK(rig_drain(p, &batches) == DLP_END && batches == 10);
            await_inits(n);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            CHECK(life.inits == n && life.exits == n);
            if (!CHECK(life.wrong == 0)) printf("  stage %d, workers %d\n", stage, workers);
        }
}

static void worker__init_fails__names_stage_and_worker(void) {
    for (int workers = 0; workers <= 4; workers += 2)
        for (int fails_at = 0; fails_at < (workers ? workers : 1); fails_at++) {
            seam_alive alive = seam_now();
            rig r;
            dlp_pipe *p = NULL;
            uint64_t batches;
            const dlp_error *e;
            int rc;
            rig_default(&r);
            r.pipe.epochs = DLP_FOREVER;
            r.dataset.fetch = life_fetch;
            r.fetch.workers.name = "reader";
            life_set(&r.fetch.workers, workers, fails_at);
            CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
            rc = dlp_pipe_start(p);
            if (rc == DLP_OK) rc = rig_drain(p, &batches);
            CHECK(rc == DLP_ERR_CALLBACK);
            e = dlp_pipe_error(p);
            CHECK(e->code == rc && strcmp(e->stage, "reader") == 0 && e->worker == fails_at);
            CHECK(strstr(e->message, "worker_init") != NULL && strstr(e->message, "42") != NULL);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            CHECK(life.exits + 1 == life.inits); /* no exit without an init that went well */
            CHECK(life.wrong == 0);
            CHECK(seam_same(alive));
        }
}

/* ---- what a thread is given ---- */

static int named(const char *want) {
    char path[300], name[32] = "";
    int found = 0;
    struct dirent *entry;
    DIR *d = opendir("/proc/self/task");
    while (d && (entry = readdir(d)) != NULL) {
        FILE *f;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        f = fopen(path, "r");
        if (f && fscanf(f, "%31s", name) == 1 && strcmp(name, want) == 0) found++;
        if (f) fclose(f);
    }
    if (d) closedir(d);
    return found;
}

/* A thread names itself soon after it began, and stands in /proc for a moment when it is joined. */
static int await_named(const char *want, int n) {
    for (int i = 0; i < 20000 && named(want) != n; i++) sleep_us(1000);
    return named(want) == n;
}

static void thread__name__stage_and_worker(void) {
    rig r;
    dlp_pipe *p = NULL;
    rig_default(&r);
    r.fetch.workers.num_workers = 2;
    r.has_item_map = r.has_transfer = 1;
    r.item_map.workers.num_workers = 1;
    r.item_map.workers.name = "augmentation-of-images";
    r.sampler.threaded = 1;
    r.transfer.workers.num_workers = 1;
    r.pipe.epochs = DLP_FOREVER;
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(await_named("fetch-0", 1) && await_named("fetch-1", 1));
    CHECK(await_named("augmentatio-0", 1));
    CHECK(await_named("sampler-0", 1) && await_named("transfer-0", 1));
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(await_named("fetch-0", 0));
}

static struct {
    int cpu[MOST];
    size_t stack[MOST];
} given;

static int given_init(void *user, int worker, void **state) {
    cpu_set_t set;
    pthread_attr_t attr;
    (void)user;
    *state = NULL;
    given.cpu[worker] = -1;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1)
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET((size_t)i, &set)) given.cpu[worker] = i;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstacksize(&attr, &given.stack[worker]);
        pthread_attr_destroy(&attr);
    }
    return 0;
}

static void thread__affinity_and_stack__applied(void) {
    cpu_set_t set;
    int32_t cpus[3] = {-1, -1, -1};
    int n = 0;
    rig r;
    dlp_pipe *p = NULL;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET((size_t)i, &set)) cpus[n++] = i;
    cpus[n] = cpus[0];
    rig_default(&r);
    memset(&given, 0, sizeof given);
    r.fetch.workers.num_workers = 5;
    r.fetch.workers.worker_init = given_init;
    r.fetch.workers.affinity = cpus;
    r.fetch.workers.n_affinity = n + 1;
    r.fetch.workers.stack_bytes = 3 << 20;
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(seam_stack == 3 << 20);
    cpus[0] = 1023; /* it was copied */
    CHECK(dlp_pipe_close(p) == DLP_OK);
    cpus[0] = cpus[n];
    for (int i = 0; i < 5; i++) {
        if (given.stack[i] == 0) continue; /* stopped before it began */
        CHECK(given.cpu[i] == cpus[i % (n + 1)]);
        CHECK(given.stack[i] >=
              (3 << 20) - 65536); /* less a guard; the C library may reuse a larger one */
    }
}

static void start__stack_too_small__names_stage(void) {
    rig r;
    dlp_pipe *p = NULL;
    seam_alive alive = seam_now();
    rig_default(&r);
    r.fetch.workers.num_workers = 2;
    r.fetch.workers.name = "reader";
    r.fetch.workers.stack_bytes = 1;
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    CHECK(dlp_pipe_start(p) == DLP_ERR_ARG);
    CHECK(strcmp(dlp_pipe_error(p)->stage, "reader") == 0);
    CHECK(strcmp(dlp_pipe_error(p)->field, "stack_bytes") == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK && seam_same(alive));
}

/* ---- warnings ---- */

static int logged;
static void count_log(void *user, const char *message) {
    CHECK(user == &logged && message[0] != 0);
    logged++;
}

static int has_warning(const dlp_pipe *p, const char *words) {
    const char *text;
    for (int i = 0; (text = dlp_pipe_warning(p, i)) != NULL; i++)
        if (strstr(text, words)) return 1;
    return 0;
}

/* explain says the warnings first, in order, also where there is room for a part of them alone. */
static void explained(dlp_pipe *p) {
    char whole[8192], part[8192];
    const char *at = whole, *text;
    CHECK(dlp_pipe_explain(p, whole, sizeof whole) == (int)strlen(whole));
    CHECK(dlp_pipe_explain(p, NULL, 0) > 0 && dlp_pipe_explain(p, NULL, 9) == DLP_ERR_ARG);
    for (int i = 0; (text = dlp_pipe_warning(p, i)) != NULL; i++) {
        CHECK(strncmp(at, "Warning: ", 9) == 0 && strncmp(at + 9, text, strlen(text)) == 0);
        at += 9 + strlen(text);
        CHECK(strncmp(at, ".\n", 2) == 0);
        at += 2;
    }
    CHECK(strncmp(at, "Limit: ", 7) == 0);
    for (long size = 1; size <= at - whole + 7; size += 13) {
        CHECK(dlp_pipe_explain(p, part, (size_t)size) > size);
        CHECK((long)strlen(part) == size - 1 && strncmp(part, whole, (size_t)size - 1) == 0);
    }
}

static void start__too_many_workers__warns(void) {
    for (int what = 0; what < 4;
         what++) { /* bit 0: more than cores, bit 1: more than items in flight */
        rig r;
        dlp_pipe *p = NULL;
        int cores = dlpi_cpu_count();
        rig_default(&r);
        logged = 0;
        r.pipe.log = count_log;
        r.pipe.log_user = &logged;
        r.pipe.prefetch_factor = 1;
        r.fetch.workers.num_workers = what & 1 ? cores + 1 : 1;
        r.batch.batch_size = (uint32_t)r.fetch.workers.num_workers;
        if (what & 2) {
            r.batch.batch_size = 1;
            if (what == 2) r.fetch.workers.num_workers = 2;
            if (what == 2 && cores < 2) continue;
        }
        CHECK(rig_start(&r, &p) == DLP_OK);
        CHECK(has_warning(p, "cores") == (what & 1));
        CHECK(has_warning(p, "prefetch_factor x batch_size") == (what >> 1 & 1));
        CHECK(logged == (what & 1) + (what >> 1 & 1));
        CHECK(dlp_pipe_warning(p, logged) == NULL && dlp_pipe_warning(p, -1) == NULL);
        explained(p);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void *open_later(void *user) {
    sleep_us(350000);
    DLPI_STORE_SEQ(&work.shut, 0u); /* D1 */
    return user;
}

/* An item hangs. The consumer waits for its batch in one call, or in many, until explain has to
   begin with this item: it is in work for a second, and 1,000 times as long as others. */
static void next__no_batch_for_stall_ms__warns_once_and_names_item(void) {
    static const int stalls[] = {100, 100, DLP_FOREVER, 60000};
    for (int how = 0; how < 4; how++) {
        char text[8192];
        rig r;
        dlp_pipe *p = NULL;
        dlp_batch *b = NULL;
        pthread_t opens;
        uint64_t batches = 0, from = now_ms();
        int warns = stalls[how] == 100;
        rig_default(&r);
        work_set(37, 20000, 0);
        logged = 0;
        r.pipe.log = count_log;
        r.pipe.log_user = &logged;
        r.pipe.stall_ms = stalls[how];
        r.dataset.fetch = work_fetch;
        r.fetch.workers.num_workers = 1;
        r.fetch.workers.name = "reader";
        CHECK(rig_start(&r, &p) == DLP_OK);
        for (int i = 0; i < 3; i++) /* items 0 to 29 */
            CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
        if (how == 0) {
            while (now_ms() < from + 1200) CHECK(dlp_pipe_next_timeout(p, &b, 50) == DLP_TIMEOUT);
            CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
            CHECK(strstr(text, "\nLimit: one item: worker 0 of 'reader' (thread ") != NULL);
            CHECK(strstr(text, ") has been at item 37 for ") != NULL && !strstr(text, "Longest:"));
            DLPI_STORE_SEQ(&work.shut, 0u); /* D1 */
        } else {
            CHECK(pthread_create(&opens, NULL, open_later, NULL) == 0);
        }
        CHECK(rig_drain(p, &batches) == DLP_END && batches == 7);
        if (how > 0) CHECK(pthread_join(opens, NULL) == 0);
        CHECK(logged == warns && has_warning(p, "no batch for ") == warns);
        CHECK(has_warning(p, " ms: worker 0 of \"reader\" (thread ") == warns);
        CHECK(has_warning(p, ") is at item 37 for ") == warns);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Nobody pushes, so no worker has an item. */
static void next__no_work_for_stall_ms__warns_of_no_worker(void) {
    const dlp_field x = {.name = "x", .dtype = DLP_U64};
    dlp_push *push = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    CHECK(dlp_push_open(&push, &(dlp_push_desc){.fields = &x, .n_fields = 1, .writers = 1}, NULL) ==
          DLP_OK);
    dlp_loader_desc d = {.source = dlp_push_source(push), .batch_size = 4, .num_workers = 1};
    d.pipe.stall_ms = 50;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 500) == DLP_TIMEOUT);
    CHECK(has_warning(p, " ms, and no worker is at work; dlp_pipe_explain says what is missing"));
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_push_close(push) == DLP_OK);
}

/* What dlp_log_stderr prints: a line for each warning. */
static void log__to_stderr__a_line_for_each_warning(void) {
    char path[64], text[400] = "", want[200];
    rig r;
    dlp_pipe *p = NULL;
    int kept = dup(2), to;
    snprintf(path, sizeof path, "/tmp/pipe_deadline.%d", (int)getpid());
    to = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(to >= 0 && dup2(to, 2) == 2);
    rig_default(&r);
    r.pipe.log = dlp_log_stderr;
    r.pipe.prefetch_factor = 1;
    r.batch.batch_size = 1;
    r.fetch.workers.num_workers = 2;
    CHECK(rig_start(&r, &p) == DLP_OK);
    fflush(stderr);
    CHECK(dup2(kept, 2) == 2 && pread(to, text, sizeof text - 1, 0) > 0);
    snprintf(want, sizeof want, "dlpipe: %s\n", dlp_pipe_warning(p, 0));
    CHECK(strncmp(text, want, strlen(want)) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    close(kept);
    close(to);
    remove(path);
}

int main(void) {
    rig_warm();
    next__item_past_deadline__names_stage_worker_and_item();
    next__batch_past_deadline__names_stage_and_worker();
    next__nothing_past_deadline__no_error();
    next__process_was_stopped__time_does_not_count();
    next__timeout__exact_enough();
    next__negative_timeout__waits();
    worker__init_and_exit__paired_with_state();
    worker__init_fails__names_stage_and_worker();
    thread__name__stage_and_worker();
    thread__affinity_and_stack__applied();
    start__stack_too_small__names_stage();
    start__too_many_workers__warns();
    next__no_batch_for_stall_ms__warns_once_and_names_item();
    next__no_work_for_stall_ms__warns_of_no_worker();
    log__to_stderr__a_line_for_each_warning();
    return test_end("pipe_deadline");
}
