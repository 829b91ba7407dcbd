/* Two or three workers, a caller and a supervisor on the header's own code, in one thread: before
   each access of a slot's words or a rescan counter another may go on, or the worker may die. All
   runs with at most so many preemptions and deaths are tried (below, for each pipe); when one has
   nothing to do, is dead or done, it is the next one's turn, and another's is a preemption too. The
   caller moves as a whole. Memory is sequentially consistent; wake-ups are not modelled
   (tests/model/model_crash.pml has them).

   Checked: each row is written by one at a time and mapped once it is whole, batches arrive once,
   in order, complete; a run in which nobody has anything to do and a batch is missing is an error.
   SOAK=1: two preemptions in all of them; SHORT=1: one. With a pipe's name and a number: that run,
   told step by step. */
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE 1
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STEPS_UNAVAILABLE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define STEPS_UNAVAILABLE 1
#endif
#endif
#if !(defined(__linux__) && defined(__GLIBC__))
#define STEPS_UNAVAILABLE 1
#endif

#ifdef STEPS_UNAVAILABLE
int main(void) {
    printf("unavailable: sanitizers do not follow other stacks, or there is no makecontext\n");
    return 78;
}
#else
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "../rig/atomics_hook.h"

static void *arena_take(size_t n, size_t size);
static long no_syscall(long number, ...) {
    (void)number;
    return 0;
}
static void arena_free(void *at) { (void)at; }
static int no_thread(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
#define calloc arena_take
#define malloc(n) arena_take(1, n)
#define free arena_free
#define pthread_create no_thread
#define syscall no_syscall
#define clock_gettime(clock, t) ((void)(clock), (t)->tv_sec = 1, (t)->tv_nsec = 0, 0)
#define DLPIPE_IMPLEMENTATION
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-value"
#include "../../dlpipe.h"
#pragma GCC diagnostic pop
#undef free
#undef calloc
#undef malloc
#undef pthread_create
#undef syscall
#undef clock_gettime
#include "../rig/pipe_rig.h"

/* A worker that is to be one of ours. Its items are cheap: it will claim runs of several rows. */
static int no_thread(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg) {
    (void)a, (void)f;
    memset(t, 0, sizeof *t);
    ((dlpi_worker *)arg)->block->item_ns = 1;
    return 0;
}

/* ---- a run and its choices ---- */

enum { WORKERS = 3, CALLER = WORKERS, SUPERVISOR, ACTORS, CHOICES = 60000, STACK = 1 << 16 };

typedef struct plan {
    const char *name;
    uint32_t rows, batches;
    int fetchers, item_map, collate, batch_map; /* workers of each stage */
    int preemptions, deaths, fails;
    int mortal; /* 1 + who alone may die, 0: any. The fetcher then moves as a whole, and the others
                   from store to store */
} plan;

typedef struct actor {
    ucontext_t context;
    char *stack;
    enum { ABSENT, RUNS, IDLE, DEAD, DONE } state;
    int news; /* something was stored since it began to look */
} actor;

static const plan *is;
static dlp_pipe *pipe_;
static actor actors[ACTORS];
static ucontext_t main_context;
static int running = -1;
static int loud, over;
static char failure[256];
static uint32_t preempted, died, failed; /* in this run */

/* Choices: what was taken, of how many; the run's prefix is given, the rest are 0. */
static uint8_t taken[CHOICES], options[CHOICES];
static int n_choices, n_prefix;

static unsigned char arena[1 << 20], *arena_image, *region_image;
static size_t arena_used;

static void *arena_take(size_t n, size_t size) {
    size_t bytes = (n * size + 127) & ~(size_t)127;
    void *at = arena + arena_used;
    if (arena_used + bytes > sizeof arena) abort();
    arena_used += bytes;
    return at;
}

static void fail(const char *what) {
    if (!failure[0]) snprintf(failure, sizeof failure, "%s", what);
    over = 1;
}
#define MUST(x) ((x) ? (void)0 : fail(#x))

static int choose(int n) {
    int k = n_choices < n_prefix ? taken[n_choices] : 0;
    if (n_choices == CHOICES) {
        fail("a run does not end");
        return 0;
    }
    taken[n_choices] = (uint8_t)k;
    options[n_choices++] = (uint8_t)n;
    return k;
}

static void give_way(int to) {
    int from = running;
    if (to == from) return;
    running = to;
    if (swapcontext(from < 0 ? &main_context : &actors[from].context,
                    to < 0 ? &main_context : &actors[to].context) != 0)
        abort();
}

/* The next in turn, for nothing, or another; the main context when nobody can. */
static void next_actor(void) {
    int can[ACTORS], n = 0, k = 0;
    for (int i = 1; i <= ACTORS && !over; i++)
        if (actors[(running + ACTORS + i) % ACTORS].state == RUNS)
            can[n++] = (running + ACTORS + i) % ACTORS;
    if (n > 1 && preempted < (uint32_t)is->preemptions && (k = choose(n)) > 0) preempted++;
    give_way(n == 0 ? -1 : can[k]);
}

static void start(int i, void (*body)(void)) {
    actors[i].state = RUNS;
    getcontext(&actors[i].context);
    actors[i].context.uc_stack.ss_sp = actors[i].stack;
    actors[i].context.uc_stack.ss_size = STACK;
    actors[i].context.uc_link = NULL;
    makecontext(&actors[i].context, body, 0);
}

static void wake_idle(void) {
    for (int i = 0; i < ACTORS; i++) {
        actors[i].news = 1;
        if (actors[i].state == IDLE) actors[i].state = RUNS;
    }
}

static void supervisor(void);
static int dead_worker = -1;
static uint8_t row_by[8][64]; /* slot, row: worker + 1 */

static void die(void) {
    for (size_t i = 0; i < sizeof row_by; i++)
        if ((&row_by[0][0])[i] == running + 1) (&row_by[0][0])[i] = 0;
    actors[running].state = DEAD;
    died++;
    if (loud) printf("%d dies\n", running);
    if (dead_worker < 0) {
        dead_worker = running;
        start(SUPERVISOR, supervisor);
    }
    next_actor();
}

/* A step is about to be made. Choices: go on; another goes on; die. */
static void step_before(int may_give_way) {
    int can[ACTORS + 1], n = 1;
    if (running < 0 || running == CALLER || (running == 0 && is->mortal)) return;
    if (over) give_way(-1);
    for (int i = 0; i < ACTORS && may_give_way && preempted < (uint32_t)is->preemptions; i++)
        if (i != running && actors[i].state == RUNS) can[n++] = i;
    if (running < WORKERS && died < (uint32_t)is->deaths &&
        (!is->mortal || is->mortal == running + 1))
        can[n++] = -1;
    if (n == 1) return;
    n = choose(n);
    if (n == 0) return;
    if (can[n] < 0) {
        die();
        return;
    }
    preempted++;
    give_way(can[n]);
}

static void step(void) { step_before(1); }

/* Row records are their unit's owner's. */
static int is_record(const uint8_t *at) {
    for (uint32_t s = 0; s < pipe_->n_slots; s++) {
        const uint8_t *from = (const uint8_t *)dlpi_slot_fate(pipe_, s);
        if (at >= from && at < from + 4 * pipe_->batch_rows) return 1;
    }
    return 0;
}

static void atomics_hook(int kind, const void *at) {
    static const char *const kinds[] = {"load", "load", "store", "change", "or"};
    const uint8_t *a = at;
    const dlp_pipe *p = pipe_;
    const uint8_t *slots = p ? dlpi_area_at(p, DLPI_REC_SLOTS, 0) : NULL;
    const uint8_t *cells = p ? dlpi_area_at(p, DLPI_REC_CELLS, 0) : NULL;
    int ours = running >= 0 && p && a >= slots && a < cells && !is_record(a);
    for (int k = 0; running >= 0 && p && k < p->n_work; k++)
        ours = ours || at == &p->waiters[k].rescan;
    if (!ours) return;
    if (kind >= 0)
        step_before(kind >= HOOK_STORE || !is->mortal);
    else if (loud)
        printf("%d %llx at %td\n", running, (unsigned long long)*(const uint32_t *)at, a - slots);
    if (kind >= HOOK_STORE) wake_idle();
    if (kind >= 0 && loud) printf("%d %s ", running, kinds[kind]);
}

/* ---- callbacks: a row is 1000 + index, then times 3 by each map ---- */

enum { HALF = 7 };

static uint32_t slot_of(const void *data) {
    int area = pipe_->has_item_cells ? DLPI_REC_ITEM_CELLS : DLPI_REC_CELLS;
    const uint8_t *cells = dlpi_area_at(pipe_, area, 0);
    return (uint32_t)((uint64_t)((const uint8_t *)data - cells) / pipe_->areas[area].stride);
}

static void write_row(uint64_t *at, uint32_t slot, uint32_t row, uint64_t old, uint64_t value) {
    MUST(row_by[slot][row] == 0);
    MUST(old == 0 || *at == old);
    row_by[slot][row] = (uint8_t)(running + 1);
    *at = HALF;
    if (row == 0) step();
    MUST(row_by[slot][row] == running + 1 && *at == HALF);
    *at = value;
    row_by[slot][row] = 0;
}

static int may_fail(void) {
    if (failed >= (uint32_t)is->fails) return 0;
    failed++;
    return 1;
}

static int fetch(void *user, dlp_item *it) {
    (void)user;
    write_row(it->data[0], slot_of(it->data[0]), it->row, 0, 1000 + it->index);
    return 0;
}

static int item_map(void *user, dlp_item *it) {
    uint64_t *at = it->data[0];
    (void)user;
    write_row(at, slot_of(at), it->row, 1000 + it->index, (1000 + it->index) * 3);
    if (is->batch_map || !may_fail()) /* the last stage fails */
        return 0;
    *at = HALF;
    return -1;
}

static int batch_map(void *user, dlp_batch *b, void *state) {
    uint64_t *at = b->fields[0].data, from = is->item_map ? 3 : 1;
    (void)user, (void)state;
    for (uint32_t r = 0; r < b->count; r++) {
        MUST(at[r] == (1000 + b->index[r]) * from);
        MUST(is->collate || row_by[slot_of(at)][r] == 0);
        at[r] = HALF;
    }
    step();
    for (uint32_t r = 0; r < b->count; r++) {
        MUST(at[r] == HALF);
        at[r] = (1000 + b->index[r]) * from * 3;
    }
    return may_fail() ? -1 : 0;
}

static int collate(void *user, dlp_collate *c) {
    const uint64_t *in = c->in[0].data;
    uint64_t *out = c->out[0].data;
    (void)user;
    for (uint32_t r = 0; r < c->count; r++) {
        MUST(in[r] == (1000 + c->index[r]) * (is->item_map ? 3 : 1));
        MUST(row_by[slot_of(in)][r] == 0);
        out[r] = in[r];
        if (r == 0) step();
    }
    return 0;
}

/* ---- who moves ---- */

static void worker(void) {
    dlpi_worker *w = &pipe_->workers[running];
    for (;;) {
        if (over) give_way(-1);
        actors[running].news = 0;
        if (w->st->ops->step(w) || actors[running].news) continue;
        actors[running].state = IDLE;
        next_actor();
    }
}

static void supervisor(void) {
    for (;;) {
        static const dlpi_death why = {9, false, NULL};
        dlpi_worker *w = &pipe_->workers[dead_worker];
        dlpi_recover(w, &why);
        memcpy(w, arena_image + ((unsigned char *)w - arena), sizeof *w);
        start(dead_worker, worker);
        wake_idle();
        dead_worker = -1;
        for (int i = 0; i < WORKERS; i++)
            if (actors[i].state == DEAD) dead_worker = i;
        if (dead_worker >= 0) continue;
        actors[SUPERVISOR].state = DONE;
        next_actor();
        abort();
    }
}

static void caller(void) {
    uint64_t scale = (uint64_t)(is->item_map ? 3 : 1) * (uint64_t)(is->batch_map ? 3 : 1), n = 0;
    for (;;) {
        dlp_batch *b = NULL;
        int rc = dlp_pipe_next_timeout(pipe_, &b, 0);
        if (rc == DLP_END) {
            MUST(n == is->batches);
            over = 2;
            give_way(-1);
        }
        MUST(rc == DLP_OK || rc == DLP_TIMEOUT);
        if (rc == DLP_OK) {
            MUST(b->sequence == n++ && b->count == is->rows);
            for (uint32_t r = 0; r < b->count; r++)
                MUST(((uint64_t *)b->fields[0].data)[r] == (1000 + b->index[r]) * scale);
            dlp_pipe_release(pipe_, b);
            wake_idle();
            continue;
        }
        if (over) give_way(-1);
        actors[CALLER].state = IDLE;
        next_actor();
    }
}

/* ---- all runs ---- */

static int build(void) {
    static const dlp_field field = {"x", DLP_U64, 0, {0}, 0, 0};
    rig r;
    arena_used = 0;
    memset(arena, 0, sizeof arena);
    pipe_ = NULL;
    rig_init(&r, (uint64_t)is->rows * is->batches, is->rows);
    r.pipe.no_memfd = 1;
    r.pipe.prefetch_factor = 2;
    r.dataset.fields = &field;
    r.dataset.n_fields = 1;
    r.dataset.fetch = fetch;
    r.fetch.num_workers = is->fetchers;
    r.n_item_maps = is->item_map > 0;
    r.item_map[0].map.item = item_map;
    r.item_map[0].workers.num_workers = is->item_map;
    r.item_map[0].workers.retries = 3;
    r.n_batch_maps = is->batch_map > 0;
    r.batch_map[0].map.batch = batch_map;
    r.batch_map[0].workers.num_workers = is->batch_map;
    r.batch_map[0].workers.retries = 3;
    if (is->collate > 0) {
        r.batch.collate = collate;
        r.batch_by.num_workers = is->collate;
    }
    if (rig_open(&r, &pipe_) != DLP_OK) return 0;
    pipe_->wait.spin_ns = pipe_->wait.yields = 0; /* looks that the bound does not count */
    return pipe_->n_workers <= WORKERS;
}

static void keep_image(void) {
    arena_image = (realloc)(arena_image, sizeof arena);
    region_image = (realloc)(region_image, pipe_->region_bytes);
    if (!arena_image || !region_image) abort();
    memcpy(arena_image, arena, arena_used);
    memcpy(region_image, pipe_->region, pipe_->region_bytes);
}

static void run_once(void) {
    memcpy(arena, arena_image, arena_used);
    memcpy(pipe_->region, region_image, pipe_->region_bytes);
    memset(row_by, 0, sizeof row_by);
    n_choices = 0;
    preempted = died = failed = 0;
    dead_worker = -1;
    failure[0] = 0;
    over = 0;
    for (int i = 0; i < ACTORS; i++) actors[i].state = ABSENT;
    for (int i = 0; i < pipe_->n_workers; i++) start(i, worker);
    start(CALLER, caller);
    running = -1;
    next_actor();
    running = -1;
    if (!over) fail("nobody has anything to do, and a batch is missing");
}

/* The next run: the last choice that has more options takes the next of them. */
static int next_run(void) {
    for (n_prefix = n_choices; n_prefix > 0; n_prefix--)
        if (taken[n_prefix - 1] + 1 < options[n_prefix - 1]) {
            taken[n_prefix - 1]++;
            return 1;
        }
    return 0;
}

static int try_plan(const plan *p, uint64_t tell) {
    uint64_t runs = 0;
    is = p;
    if (!build()) return 1;
    keep_image();
    n_prefix = 0;
    do {
        loud = ++runs == tell;
        run_once();
    } while (!failure[0] && next_run());
    printf("%-44s %d preemptions, %d deaths: %9llu runs %s%s\n", p->name, p->preemptions, p->deaths,
           (unsigned long long)runs, failure[0] ? "FAILED: " : "", failure);
    fflush(stdout);
    return failure[0] != 0;
}

static const plan plans[] = {
    {"fetch__slots_go_round__all_delivered", 2, 3, 2, 0, 0, 0, 1, 1, 0, 0},
    {"fetch__two_words__all_delivered", 33, 1, 2, 0, 0, 0, 1, 1, 0, 0},
    {"item_map__dies__rows_go_back", 1, 3, 1, 1, 0, 0, 1, 1, 0, 0},
    {"item_map__fails_and_dies__rows_go_back", 1, 1, 1, 1, 0, 0, 1, 1, 1, 0},
    {"batch_map__dies__batch_goes_back", 1, 3, 1, 0, 0, 1, 1, 1, 0, 0},
    {"batch_map__dies_twice__batch_goes_back", 1, 1, 1, 0, 0, 1, 1, 2, 0, 0},
    {"batch_map__fails_and_dies__batch_goes_back", 1, 1, 1, 0, 0, 1, 1, 1, 1, 0},
    {"batch_map__fails_two_words__batch_goes_back", 33, 1, 2, 0, 0, 1, 2, 0, 1, 0},
    {"collate__dies__runs_again", 1, 3, 1, 0, 1, 0, 1, 1, 0, 0},
    {"collate_and_map__die__batch_goes_back", 1, 2, 1, 0, 1, 1, 1, 1, 0, 0},
    {"item_map_and_batch_map__die__go_back", 1, 2, 1, 1, 0, 1, 1, 1, 0, 0},
    {"item_map_dies__batch_map_fails__goes_back", 1, 1, 1, 1, 0, 1, 2, 1, 1, 2},
};

/* Arguments: a plan's name, the number of a run to tell. */
int main(int argc, char **argv) {
    int bad = 0, found = 0;
    for (int i = 0; i < ACTORS; i++)
        if (!(actors[i].stack = (malloc)(STACK))) abort();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        plan p = plans[i];
        if (argc > 1 && strcmp(argv[1], p.name) != 0) continue;
        if (getenv("EMULATED") && i % 4 != 0) continue;
        if (getenv("SOAK") && p.preemptions == 1) p.preemptions++;
        if (getenv("SHORT")) p.preemptions = 1;
        bad += try_plan(&p, argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
        found++;
    }
    printf("crash_steps: %s\n", bad || !found ? "FAILED" : "passed");
    return bad || !found;
}
#endif
