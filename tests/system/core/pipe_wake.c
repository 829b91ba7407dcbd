/* needs: out parts */
/* A wake-up reaches somebody who can work: workers that are busy, or hold all the failed rows they
   may, must not take it in place of one that sleeps. The moments are arranged by hand. So are slots
   and cells of inputs that somebody has left half done. What a stopped out costs is counted. */
/* own: hook: workers are held at an access of an atomic; accesses are counted by another clock */
#define _GNU_SOURCE
#include <stdint.h>
#include <time.h>
#include "../../rig/atomics_hook.h"

static uint64_t clock_ns; /* of a clock on which each reading takes 30 ns; 0: the machine's */

static int clock_read(clockid_t id, struct timespec *t) {
    if (clock_ns == 0) return clock_gettime(id, t);
    clock_ns += 30;
    *t = (struct timespec){(time_t)(clock_ns / 1000000000), (long)(clock_ns % 1000000000)};
    return 0;
}
#define clock_gettime clock_read

#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include <stdio.h>
#include <stdlib.h>
#include "../../rig/pipe_rig.h"
#include "../../rig/parts_rig.h"

#define NOTE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_SEQ_CST)
enum { MOST_BESIDE = 22 }; /* accesses of a batch beside a stopped out, at most */

#define LOOK(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)

static _Thread_local int role = -1; /* worker + 1 */
static int gate[2], at_gate[2];     /* of workers 0 and 1: closed; who stands there */
static const void *gate_word;       /* the mask of the wake word */

static const dlpi_ctl *schedulers;              /* the words that its thread looks at */
static _Thread_local int sleeps, says, falling; /* it is its thread; it is about to say; it has */
static int looked_loads, looked_cancel, loose;  /* looks behind that; of loads, not ordered by it */

static _Thread_local uint64_t accesses; /* of atomics, by this thread */

static int worker_role(void *user, int worker, void **state) {
    (void)user;
    *state = NULL;
    role = worker + 1;
    return 0;
}

static void scheduler_looks(const dlpi_ctl *ctl, int kind, const void *at) {
    if (kind == HOOK_OR && at == &ctl->scheduler.mask) sleeps = 1;
    if (kind >= 0 && sleeps && at == &ctl->scheduler.mask) says = 1;
    if (kind == -1 && says) falling = (int)LOOK(ctl->scheduler.mask), says = 0;
    if (!falling) return;
    if (kind == HOOK_LOAD && at == &ctl->source_moves)
        __atomic_add_fetch(&loose, 1, __ATOMIC_SEQ_CST);
    if (kind == HOOK_LOAD_SEQ && at == &ctl->source_moves)
        __atomic_add_fetch(&looked_loads, 1, __ATOMIC_SEQ_CST);
    if (kind == HOOK_LOAD_SEQ && at == &ctl->cancel)
        __atomic_add_fetch(&looked_cancel, 1, __ATOMIC_SEQ_CST);
}

static dlp_pipe *epochs; /* its scheduler's thread is late */
static int late;         /* it stands there */

/* The thread has seen that an epoch is held, and goes on when set_epoch has returned. */
static void scheduler_is_late(const dlp_pipe *p, int kind, const void *at) {
    if (kind != -1 || at != &p->epoch_begun || LOOK(p->schedule.epoch_asked) == UINT64_MAX) return;
    for (int i = 0; i < 20000 && LOOK(p->schedule.epoch_asked) != LOOK(p->epoch_begun); i++) {
        NOTE(late, 1);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
}

/* Worker 0 stops before it says that it sleeps, worker 1 when it has been woken. */
static void atomics_hook(int kind, const void *at) {
    const dlpi_ctl *ctl = LOOK(schedulers);
    int i = role - 1;
    const dlp_pipe *p = LOOK(epochs);
    accesses += kind >= 0;
    if (ctl) scheduler_looks(ctl, kind, at);
    if (p) scheduler_is_late(p, kind, at);
    if (i < 0 || at != LOOK(gate_word) || kind != (i == 0 ? HOOK_OR : HOOK_LOAD_SEQ)) return;
    while (__atomic_load_n(&gate[i], __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&at_gate[i], 1, __ATOMIC_SEQ_CST);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    __atomic_store_n(&at_gate[i], 0, __ATOMIC_SEQ_CST);
}

static uint64_t now_ms(void) { return test_now_ns() / 1000000u; }

#define AWAIT(x, ms) \
    do { \
        uint64_t until = now_ms() + (ms); \
        while (!(x) && now_ms() < until) nanosleep(&(struct timespec){0, 50000}, NULL); \
    } while (0)

static int begun[4096];
static int open_all; /* callbacks need not stay longer */
static int slow_index = -1;
static int failed_rows;

static int wake_fetch(void *user, dlp_item *it) {
    NOTE(begun[it->index], 1);
    if ((int)it->index == LOOK(slow_index)) AWAIT(LOOK(open_all), 20000);
    return rig_fetch(user, it);
}

/* Worker 0 fails whatever it gets for the first time. Worker 1 leaves it the first forty. */
static int wake_fetch_fails(void *user, dlp_item *it) {
    NOTE(begun[it->index], 1);
    if (it->worker == 0 && it->attempt == 0) {
        __atomic_add_fetch(&failed_rows, 1, __ATOMIC_SEQ_CST);
        return DLP_ERR_CALLBACK;
    }
    if (it->worker == 1) AWAIT(LOOK(failed_rows) >= 33, 20000);
    return rig_fetch(user, it);
}

static void wake_rig(rig *r) {
    rig_init(r, 4096, 1);
    rig_order(r, DLP_ORDER_SEQUENTIAL);
    rig_workers(r, 2, DLP_DISPATCH_CLAIM);
    r->fetch.worker_init = worker_role;
    memset(begun, 0, sizeof begun);
    NOTE(open_all, 0);
    NOTE(slow_index, -1);
    NOTE(failed_rows, 0);
}

/* Worker 1 is woken for a batch that worker 0, about to sleep, takes. The batch after it is
   worker 1's. Worker 1 may have claimed the first one itself, in the last look before a sleep. Then
   it stands at its gate with that batch, and the moment is missed. */
static int next_one_wakes_another(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b[4];
    uint64_t *mask;
    int ok, n = 0;
    wake_rig(&r);
    r.pipe.prefetch_factor = 2;
    r.pipe.max_held = 4;
    r.dataset.fetch = wake_fetch;
    NOTE(slow_index, 2);
    if (rig_open(&r, &p) != DLP_OK) return 0;
    mask = &p->waiters[0].group[0].at.mask;
    AWAIT(LOOK(begun[1]) && LOOK(*mask) == 3, 20000);
    NOTE(gate_word, (const void *)mask);
    NOTE(gate[0], 1);
    AWAIT(LOOK(at_gate[0]) && LOOK(*mask) == 2, 20000);
    CHECK(LOOK(at_gate[0]));
    NOTE(gate[1], 1);
    CHECK(dlp_pipe_next_timeout(p, &b[n++], 20000) == DLP_OK); /* feeds batch 2, wakes worker 1 */
    AWAIT(LOOK(at_gate[1]), 20000);
    NOTE(gate[0], 0);
    AWAIT(LOOK(begun[2]), 2000); /* worker 0 has it */
    ok = LOOK(at_gate[1]) && LOOK(begun[2]);
    NOTE(gate[1], 0);
    if (ok) {
        AWAIT((LOOK(*mask) & 2u) != 0, 20000); /* worker 1 sleeps again */
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        CHECK(dlp_pipe_next_timeout(p, &b[n++], 20000) == DLP_OK); /* feeds batch 3 */
        AWAIT(LOOK(begun[3]), 60);
        ok = LOOK(begun[3]);
    }
    NOTE(open_all, 1);
    NOTE(gate_word, NULL);
    for (int i = 0; i < n; i++) CHECK(dlp_pipe_release(p, b[i]) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return ok || test_failures > 0;
}

static void wake__taken_while_falling_asleep__next_one_wakes_another(void) {
    CHECK_ONE_OF_5(next_one_wakes_another());
}

/* Worker 0 keeps 33 failed rows and takes no more until they are due. */
static int another_is_woken(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int ok = 1;
    wake_rig(&r);
    r.pipe.prefetch_factor = 80;
    r.pipe.unordered = 1;
    r.dataset.fetch = wake_fetch_fails;
    r.fetch.retries = 1;
    r.fetch.retry_backoff_ms = 2000;
    if (rig_open(&r, &p) != DLP_OK) return 0;
    AWAIT(LOOK(begun[79]), 20000);
    for (int i = 80; i < 85; i++) {
        nanosleep(&(struct timespec){0, 30000000}, NULL); /* worker 1 falls asleep */
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        AWAIT(LOOK(begun[i]), 60);
        ok &= LOOK(begun[i]);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return ok;
}

static void wake__first_worker_is_full__another_is_woken(void) {
    CHECK_ONE_OF_5(another_is_woken());
}

/* It takes long enough that the scheduler, who waits awake at first, falls asleep over it. */
static int wake_load(void *user, dlp_part *part) {
    (void)user;
    AWAIT(LOOK(looked_loads) > 0 && LOOK(looked_cancel) > 0, 5000);
    memset(part->data, 0, part->capacity);
    part->bytes = part->capacity;
    return 0;
}

/* Between saying that it sleeps and sleeping, the scheduler's thread looks once more at what others
   write before they ring. A look that is not ordered behind the word might be made before it, and
   then neither it nor they would see the other: the thread would sleep its 100 ms. */
static void sleep__last_look_of_the_scheduler__ordered_behind_its_word(void) {
    uint64_t items[8] = {4, 4, 4, 4, 4, 4, 4, 4};
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    rig_init(&r, 32, 4);
    rig_order(&r, DLP_ORDER_PARTS);
    rig_workers(&r, 1, DLP_DISPATCH_CLAIM);
    r.sampler.threaded = 1;
    r.parts.n_parts = 8;
    r.parts.items = items;
    r.parts.max_part_bytes = 64;
    r.parts.queue_size = 2;
    r.parts.load = wake_load;
    r.parts.workers.num_workers = 1;
    if (rig_open(&r, &p) != DLP_OK) return;
    NOTE(schedulers, p->ctl);
    while (dlp_pipe_next_timeout(p, &b, 2000) == DLP_OK) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    NOTE(schedulers, NULL);
    CHECK(LOOK(looked_loads) > 0 && LOOK(looked_cancel) > 0 && LOOK(loose) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static int wake_set_epoch(void *user, uint64_t epoch) {
    (void)user;
    (void)epoch;
    AWAIT(LOOK(late), 2000);
    return 0;
}

static int wake_filter(void *user, dlp_item *it) {
    *(uint32_t *)it->data[0] = (uint32_t)it->index;
    (void)user;
    return it->index % 2 ? DLP_SKIP : 0;
}

/* set_epoch returns while the scheduler's thread looks for inputs that it may ask for. It found
   none, since the epoch was held, but the epoch is held no more: it must look again. */
static void epoch__begins_during_a_search__searched_again(void) {
    const dlp_field field = {.name = "x", .dtype = DLP_U32};
    dlp_loader_desc d = {.batch_size = 4, .num_workers = 1, .epochs = 3};
    uint32_t n = 0;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    int rc;
    d.dataset = (dlp_dataset){.n_items = 16, .fetch = wake_filter, .filter = 1};
    d.dataset.fields = &field;
    d.dataset.n_fields = 1;
    d.sampler.threaded = 1;
    d.pipe.set_epoch = wake_set_epoch;
    NOTE(late, 0);
    CHECK(dlp_loader_open(&p, &d, &err) == DLP_OK);
    if (p == NULL) return;
    NOTE(epochs, p);
    while ((rc = dlp_pipe_next_timeout(p, &b, 2000)) == DLP_OK) {
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END && n == 6 && LOOK(late));
    NOTE(epochs, NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Waiters, by hand: new batches and freed units wake those who may take them, and they alone. */
static void wake__by_hand__right_waiters(void) {
    rig r;
    dlp_pipe *p;
    uint64_t *mask;
    rig_init(&r, 300, 10);
    rig_workers(&r, 5, DLP_DISPATCH_BATCHES);
    r.pipe.prefetch_factor = 9;
    if (rig_wire(&r, &p, NULL) != DLP_OK || dlpi_prepare(p) != DLP_OK) abort();
    mask = &p->waiters[0].group[0].at.mask;
    p->schedule.published = 18;
    for (uint64_t n = 1; n < 8; n++) {
        uint64_t want = 31;
        for (uint64_t b = 18 - n; b < 18; b++) want &= ~(UINT64_C(1) << b % 5);
        *mask = 31;
        dlpi_schedule_wake(p, n);
        CHECK(*mask == want);
    }
    *mask = 31;
    dlpi_wake_stage(p, p->work[0], 13, 2);
    CHECK(*mask == (31 & ~(1u << 3)));
    *mask = 31;
    dlpi_rescan(p, 0, 0);
    CHECK(*mask == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* A completer that was held up until its slot went on, to a batch without rows, closes nothing. */
static void close__late_completer__leaves_a_newer_batch_alone(void) {
    rig r;
    dlp_pipe *p;
    dlpi_unit t = {0, 0, 0, 0, 1, false};
    dlpi_stage_words *words;
    rig_init(&r, 100, 1);
    if (rig_open(&r, &p) != DLP_OK) return;
    t.b = 0;
    t.slot = dlpi_slot_of(p, 0);
    words = dlpi_stage_words_at(p, t.slot, p->work[0]);
    CHECK(dlpi_slot_at(p, t.slot)->sequence == 0 && words->ready == 0);
    words->ready = 8; /* batch 7, which had no rows and touched no done word, is there */
    dlpi_complete(&p->workers[0], &t, 1);
    CHECK(words->ready == 8);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- cells of inputs ---- */

static parts_seen seen_;

/* What a dead worker had, by hand: at each place where it may have died. */
static void recover__each_step__part_is_loaded_again(void) {
    for (int step = 0; step < 4; step++) {
        parts_rig r;
        dlp_pipe *p;
        dlp_batch *b;
        dlpi_worker *w;
        dlpi_unit t;
        const dlpi_death why = {9, false, NULL};
        dlpi_input *cell;
        uint64_t n = 0, loads;
        parts_init(&r, &seen_, 20, NULL);
        r.d.parts.workers.num_workers = r.d.num_workers = DLP_NONE;
        if (parts_open(&r, &p) != DLP_OK) return;
        w = &p->workers[p->source_stage->first_worker];
        CHECK(dlpi_input_find(w, &t)); /* claimed */
        cell = dlpi_input_at(p, t.slot);
        if (step >= 1) w->block->running = (uint64_t)t.slot << 32 | UINT32_MAX;
        if (step >= 2) CHECK(p->source->load(w, t.slot) == 0);
        if (step >= 3) cell->state = dlpi_gen_word(t.b, DLPI_INPUT_LOADED); /* nobody was told */
        if (step == 2) w->block->running = (uint64_t)t.slot << 32 | UINT32_MAX;
        loads = p->ctl->source_moves;
        dlpi_input_recover(w, &why);
        CHECK(p->ctl->source_moves > loads); /* a scheduler that found no free cell looks again */
        dlpi_input_recover(w, &why);         /* may be done twice */
        CHECK(dlpi_gen_low(cell->state) == (step < 3 ? DLPI_INPUT_OPEN : DLPI_INPUT_LOADED));
        CHECK(dlpi_gen(cell->state) == t.b);
        CHECK(dlpi_fate_kills(cell->rec) == (step == 1 || step == 2));
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b), n++;
        CHECK(n == parts_batches(&r) && seen_.wrong == 0 && dlp_pipe_close(p) == DLP_OK);
    }
}

static void claim__of_an_older_ticket__fails(void) {
    parts_rig r;
    dlp_pipe *p;
    dlpi_worker *w;
    dlpi_unit t;
    dlpi_input *cell;
    uint64_t read;
    parts_init(&r, &seen_, 20, NULL);
    r.d.parts.workers.num_workers = r.d.num_workers = DLP_NONE;
    if (parts_open(&r, &p) != DLP_OK) return;
    w = &p->workers[p->source_stage->first_worker];
    CHECK(dlpi_input_find(w, &t));
    cell = dlpi_input_at(p, t.slot);
    read = dlpi_gen_word(t.b, DLPI_INPUT_OPEN);              /* what another has read */
    cell->state = dlpi_gen_word(t.b + 100, DLPI_INPUT_OPEN); /* given to another part */
    CHECK(!DLPI_CAS_SEQ(&cell->state, &read, dlpi_gen_word(t.b, 1)));
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- an out that has stopped ---- */

static int write_index(void *user, dlp_item *it) {
    (void)user;
    memcpy(it->data[0], &it->index, sizeof it->index);
    clock_ns += 25;
    return 0;
}

/* Accesses of atomics for `n` batches of a pipe that is one thread. out: there is a second out,
   which holds a batch and never asks again. A pipe goes by the time that items take, so the clock
   is the test's: each run makes the same accesses. */
static uint64_t accesses_for(uint64_t n, int out) {
    static const dlp_field x = {.name = "x", .dtype = DLP_U64};
    const dlp_node nodes[] = {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 1024}},
                              {.name = "read",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = write_index, .fields = &x, .n_fields = 1},
                               .workers = {.num_workers = DLP_NONE}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}},
                              {.name = "train", .verb = DLP_OUT},
                              {.name = "log",
                               .from = (const char *[]){"batch", NULL},
                               .verb = DLP_OUT,
                               .queue = {.capacity = 1, .full = DLP_FULL_KEEP_NEWEST}}};
    const dlp_pipe_desc desc = {.epochs = DLP_FOREVER};
    dlp_out *log = NULL;
    dlp_batch *b;
    dlp_pipe *p = NULL;
    uint64_t before = 0;
    clock_ns = UINT64_C(1) << 40;
    CHECK(dlp_pipe_open(&p, nodes, out ? 5 : 4, &desc, NULL) == DLP_OK);
    if (p == NULL) return 0;
    for (uint64_t k = 0; k < n + 100; k++) {
        if (k == 100) before = accesses;
        CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
        if (!out || k > 0) continue;
        CHECK(dlp_out_find(p, "log", &log) == DLP_OK);
        CHECK(dlp_out_next(log, &b, 1000) == DLP_OK);
    }
    before = accesses - before;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    dlp_out_close(log);
    clock_ns = 0;
    return before;
}

/* It costs a batch as many looks, however far the out is behind. */
static void out__stopped__the_trainer_makes_few_accesses_more(void) {
    const uint64_t n = 1000, without = accesses_for(n, 0), with = accesses_for(n, 1);
    const uint64_t longer = accesses_for(10 * n, 1);
    printf("  a batch takes %.2f accesses of atomics, with a stopped out %.2f\n",
           (double)without / (double)n, (double)with / (double)n);
    CHECK(without > 0 && with <= without + MOST_BESIDE * n && longer <= 10 * with + n);
}

/* This program has no dlpipe_shm.h. */
static void alone__worker_processes__refused(void) {
    parts_rig r;
    dlp_pipe *p = NULL;
    dlp_error err;
    parts_init(&r, &seen_, 20, NULL);
    r.d.parts.workers.placement = DLP_PLACE_PROCESSES;
    CHECK(dlp_loader_open(&p, &r.d, &err) == DLP_ERR_UNSUPPORTED && p == NULL);
    CHECK(strcmp(err.stage, "parts") == 0 && strcmp(err.field, "placement") == 0);
}

int main(void) {
    sleep__last_look_of_the_scheduler__ordered_behind_its_word();
    epoch__begins_during_a_search__searched_again();
    wake__taken_while_falling_asleep__next_one_wakes_another();
    wake__first_worker_is_full__another_is_woken();
    wake__by_hand__right_waiters();
    close__late_completer__leaves_a_newer_batch_alone();
    recover__each_step__part_is_loaded_again();
    claim__of_an_older_ticket__fails();
    alone__worker_processes__refused();
    out__stopped__the_trainer_makes_few_accesses_more();
    return test_end("pipe_wake");
}
