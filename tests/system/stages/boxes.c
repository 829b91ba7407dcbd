/* needs: parts */
/* Items that are copied into boxes: the rows and states of a pipe with boxes are those of the same
   pipe without, with any wiring; workers that die while they copy, also at each instruction;
   resumes, seeks, set_epoch; boxes that are just enough, and one less; what plans choose.
   boxes [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/inside.h"
#include "../../rig/inside_parts.h"
#include "../../rig/shm_rig.h"
#include "../../rig/inputs_rig.h"
#include <ucontext.h>

enum { INPUTS = 120, BATCHES = 8000, CELLS = 6000 };

typedef struct shared {
    uint64_t copies;                  /* of workers, into boxes */
    uint32_t kill_every, kills, torn; /* of so many copies one kills; inputs that can't be read */
    uint32_t most;                    /* items of an input, at most */
    int32_t parent;                   /* the process of the scheduler */
    uint32_t death, far;              /* the worker dies at this instruction; the farthest one */
    uint32_t sweeps;                  /* times that a worker lived to the end of its steps */
    uint32_t longer;                  /* ragged fields have so many rows more */
} shared;

static shared *seen;

/* ---- what comes: items of 8 bytes, some that are larger, or ragged ---- */

enum { SMALL, LARGE, RAGGED, SHAPES };

static const dlp_field in_field = {"base", DLP_U64, 0, {0}, 0, 0};
static const dlp_field small_field = {"v", DLP_U64, 0, {0}, 0, 0};
static const dlp_field large_fields[2] = {{"v", DLP_U64, 0, {0}, 0, 0},
                                          {"page", DLP_U8, 1, {5000}, 0, 0}};
static const dlp_field ragged_fields[3] = {
    {"v", DLP_U64, 0, {0}, 0, 0}, {"text", DLP_U8, 1, {300}, 1, 0}, {"few", DLP_U32, 1, {3}, 1, 0}};

static uint64_t value(uint64_t index, uint64_t k) { return dlp_hash(index, k, 5, 0); }

/* Of most inputs few items are made, of some as many as there may be. */
static uint32_t made(uint64_t index) {
    const uint64_t h = value(index, 77), few = h / 8 % (seen->most / 8 + 2);
    if (h % 7 == 0 || few > seen->most) return seen->most;
    return h % 5 == 0 ? 0 : (uint32_t)few;
}

static int fetch(void *user, dlp_item *it) {
    (void)user;
    if (seen->torn != 0 && value(it->index, 3) % seen->torn == 0)
        return dlp_fail(it->call, 5, "torn");
    *(uint64_t *)it->data[0] = value(it->index, 0);
    return 0;
}

static int keep(void *user, dlp_item *it) { /* 1 in 4 */
    const int rc = fetch(user, it);
    return rc != 0 ? rc : value(it->index, 9) % 4 ? DLP_SKIP : 0;
}

static int expand(void *user, dlp_expand *x) {
    const uint64_t index = x->item->index;
    (void)user;
    for (uint32_t k = 0, n = made(index); k < n; k++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return 0;
        *(uint64_t *)it->data[0] = value(index, k);
        if (it->n_fields == 2) memset(it->data[1], (int)(value(index, k) % 255), 5000);
        if (it->n_fields != 3) continue;
        it->length[1] = value(index, k) % 301;
        if (it->length[1] < 200) it->length[1] += seen->longer;
        it->length[2] = k % 4;
        memset(it->data[1], (int)(k + 1), it->length[1]);
        for (uint32_t i = 0; i < k % 4; i++) ((uint32_t *)it->data[2])[i] = (uint32_t)index + i;
    }
    return 0;
}

/* A worker that copies dies in the middle of it, and leaves garbage. */
static void copied(void *to, uint64_t bytes) {
    uint64_t n;
    if ((int32_t)getpid() == seen->parent && seen->kill_every != 0) return;
    n = __atomic_add_fetch(&seen->copies, 1, __ATOMIC_SEQ_CST);
    if (seen->kill_every == 0 || n % seen->kill_every != 0) return;
    __atomic_add_fetch(&seen->kills, 1, __ATOMIC_SEQ_CST);
    memset(to, (int)n, (size_t)(bytes / 2 + 1));
    raise(SIGKILL);
}

static void init(rig2 *r, int shape, int filter, uint32_t most) {
    memset(r, 0, sizeof *r);
    memset(seen, 0, sizeof *seen);
    seen->parent = (int32_t)getpid();
    seen->most = most;
    r->sampler.order = DLP_ORDER_SHUFFLED;
    r->sampler.seed = 7;
    if (!filter) {
        r->expand.expand = expand;
        r->expand.max_out = most;
        r->expand.fields = shape == SMALL   ? &small_field
                           : shape == LARGE ? large_fields
                                            : ragged_fields;
        r->expand.n_fields = shape == SMALL ? 1 : shape == LARGE ? 2 : 3;
    }
    r->by.num_workers = 2;
    r->dataset.n_items = INPUTS;
    r->dataset.fields = &in_field;
    r->dataset.n_fields = 1;
    r->dataset.fetch = filter ? keep : fetch;
    r->fetch.num_workers = 1;
    r->batch.batch_size = 8;
    r->pipe.streams = 1;
    r->pipe.epochs = 1;
}

/* ---- two runs are compared ---- */

typedef struct kept {
    uint64_t rows;
    dlp_state state;
} kept;

static kept base[BATCHES], other[BATCHES];

static uint64_t rows_of(const dlp_batch *b) {
    uint64_t h = b->count;
    for (uint32_t f = 0; f < b->n_fields; f++) {
        const dlp_tensor *x = &b->fields[f];
        const uint64_t row = b->count > 0 ? x->bytes / b->count : 0;
        for (uint32_t r = 0; r < b->count; r++) {
            const uint8_t *at = (const uint8_t *)x->data + r * row;
            if (!b->valid[r]) continue;
            if (x->lengths) h = dlp_hash(h, x->lengths[r], f, r);
            for (uint64_t k = 0; k < row; k += 4) {
                uint32_t v = 0;
                memcpy(&v, at + k, row - k < 4 ? row - k : 4);
                h = (h ^ v) * UINT64_C(0x100000001b3);
            }
        }
    }
    for (uint32_t r = 0; r < b->count; r++)
        h = dlp_hash(h, b->valid[r] ? b->index[r] : UINT64_MAX, b->valid[r], 0);
    return h;
}

/* Open a pipe and start it. boxes: it must have some; -1: it may. */
static int begin(rig2 *r, dlp_pipe **p, int boxes) {
    dlp_error err;
    int rc = open_pipe(r, p, &err);
    if (rc != DLP_OK) printf("%s %s: %s\n", err.stage, err.field, err.message);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) return rc;
    if (boxes >= 0) CHECK((inside_boxes_each(*p) > 0) == boxes);
    return rc;
}

/* Run a pipe to its end. Returns the batches, or -1; those that came are in `to`. */
static int64_t run(rig2 *r, kept *to, int boxes) {
    dlp_pipe *p;
    dlp_batch *b;
    int64_t n = 0;
    int rc, ok = 1;
    if (begin(r, &p, boxes) != DLP_OK) return -1;
    while (n < BATCHES && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        to[n].rows = rows_of(b);
        ok &= dlp_pipe_state(p, b, &to[n].state) == DLP_OK;
        dlp_pipe_release(p, b);
        n++;
    }
    if (rc != DLP_END) printf("%d %s\n", rc, dlp_pipe_error(p)->message);
    ok &= dlp_pipe_close(p) == DLP_OK && rc == DLP_END;
    return ok ? n : -1;
}

/* Run a pipe without boxes. Returns the batches that came. */
static int64_t known(rig2 *r) {
    int64_t n;
    r->cells = CELLS;
    r->expand.max_bytes = 0;
    n = run(r, base, 0);
    CHECK(n > 0);
    return n;
}

static int same(const kept *a, const kept *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (a[i].rows != b[i].rows || memcmp(&a[i].state, &b[i].state, sizeof a->state) != 0)
            return 0;
    return 1;
}

/* So few cells that a table has boxes. */
static void boxed(rig2 *r, uint32_t more) {
    const uint32_t world = r->pipe.world_size ? r->pipe.world_size : 1;
    const uint32_t own = r->pipe.streams > world ? r->pipe.streams / world : 1;
    const uint32_t each = r->batch.batch_size / r->pipe.streams;
    if (r->expand.n_fields == 3 && more % 2) /* items lie in cells by their true lengths */
        r->expand.max_bytes = seen->most * (8 + 300 + 3 * 4) - (seen->most > 1 ? 1 : 0);
    r->cells = own + (more < own * (each - 1) ? more : 0);
}

static void any_table(rig2 *r, uint64_t *random) {
    static const uint32_t most[] = {1, 5, 60, 700}, streams[] = {1, 1, 2, 4};
    const int filter = test_pick(random, 4) == 0, shape = (int)test_pick(random, SHAPES);
    init(r, shape, filter,
         shape == SMALL ? most[test_pick(random, 4)] : most[test_pick(random, 3)]);
    r->pipe.epochs = 1 + test_pick(random, 2);
    if (test_pick(random, 2)) r->window = 1 + test_pick(random, test_pick(random, 2) ? 50 : 600);
    if (r->window % 2 && shape == RAGGED && !filter) { /* groups of similar length */
        r->group = 1 + r->window % 7;
        r->window += r->group - r->window % r->group;
        r->group_by = "text";
    }
    r->sampler.order = (int32_t)test_pick(random, 2);
    r->expand.shuffle_items = !filter && test_pick(random, 2);
    r->pipe.streams = streams[test_pick(random, 4)];
    r->batch.batch_size = 8 * (1 + test_pick(random, 5));
    r->batch.last = test_pick(random, 2) ? DLP_LAST_PARTIAL : DLP_LAST_PAD;
    if (test_pick(random, 2)) r->pipe.steps_per_epoch = 1 + test_pick(random, 20);
    if (test_pick(random, 4) == 0) { /* of some ranks, of which two may share a stream */
        r->pipe.world_size = 2u << test_pick(random, 2);
        r->pipe.rank = test_pick(random, r->pipe.world_size);
        r->pipe.shared_streams = 1;
        r->pipe.uneven = r->pipe.steps_per_epoch == 0;
    }
    if (test_pick(random, 3) == 0) {
        r->by.on_error = DLP_ON_ERROR_DROP;
        seen->torn = 2 + test_pick(random, 20);
    }
    r->by.num_workers = (int32_t)test_pick(random, 4);
    r->fetch.num_workers = (int32_t)test_pick(random, 3);
}

static void run__any_table__as_without_boxes(uint64_t seed) {
    for (int i = 0; i < test_share(60, 2000); i++) {
        rig2 r;
        int64_t n;
        any_table(&r, &seed);
        if ((n = known(&r)) <= 0) continue;
        boxed(&r, test_pick(&seed, 4));
        CHECK(run(&r, other, 1) == n && same(base, other, n));
    }
}

/* Resume behind each third batch, with boxes and without, and with other workers. */
static void resume__behind_any_batch__goes_on(uint64_t seed) {
    for (int i = 0; i < test_share(10, 200); i++) {
        rig2 r;
        int64_t n;
        any_table(&r, &seed);
        if ((n = known(&r)) <= 0) continue;
        for (int64_t k = (int64_t)test_pick(&seed, 3); k < n; k += 3 + k / 4) {
            const int boxes = test_pick(&seed, 4) > 0;
            r.pipe.resume = &base[k].state;
            r.by.num_workers = (int32_t)test_pick(&seed, 4);
            if (boxes)
                boxed(&r, test_pick(&seed, 3));
            else
                r.cells = CELLS;
            CHECK(run(&r, other, boxes) == n - k - 1 && same(base + k + 1, other, n - k - 1));
        }
    }
}

/* A window of groups is made again by its lengths: with others there, no row comes. */
static void resume__groups_with_other_lengths__refused(void) {
    for (int i = 0; i < 4; i++) {
        dlp_batch *b = NULL;
        dlp_pipe *p;
        rig2 r;
        init(&r, RAGGED, 0, 60);
        r.window = 60;
        r.group = i < 2 ? 20 : 0;
        r.group_by = i < 2 ? "text" : NULL;
        if (known(&r) <= 0) continue;
        r.pipe.resume = &base[3].state; /* 24 rows are given */
        seen->longer = (uint32_t)i % 2;
        if (begin(&r, &p, -1) != DLP_OK) continue;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == (i == 1 ? DLP_ERR_RESUME : DLP_OK));
        CHECK(i != 1 || strstr(dlp_pipe_error(p)->message, "the window of stream 0 has changed"));
        if (b != NULL) dlp_pipe_release(p, b);
        dlp_pipe_close(p);
    }
}

/* A state that says more rows of a window than its batches have given was never saved. */
static void resume__more_of_a_window_than_was_given__refused(void) {
    inside_state never, next;
    dlp_pipe *p = NULL;
    dlp_error err;
    dlp_state state;
    rig2 r;
    init(&r, SMALL, 0, 5);
    r.window = 60;
    if (known(&r) <= 0) return;
    memcpy(&never, &base[0].state, sizeof never); /* 8 rows are given */
    memcpy(&next, &base[1].state, sizeof next);   /* 16 */
    memcpy(never.sampler, next.sampler, sizeof never.sampler);
    never.sampler_bytes = next.sampler_bytes;
    inside_state_seal(&never);
    memset(&state, 0, sizeof state);
    memcpy(&state, &never, sizeof never);
    r.pipe.resume = &state;
    CHECK(open_pipe(&r, &p, &err) == DLP_ERR_CORRUPT);
    CHECK(strstr(err.message, "no pipe saves such a sampler") != NULL);
}

/* A copy takes long: it goes on when the stream is elsewhere. */
static void slow(void *to, uint64_t bytes) {
    (void)to, (void)bytes;
    if (__atomic_add_fetch(&seen->copies, 1, __ATOMIC_SEQ_CST) % 32 == 0) usleep(4000);
}

/* A pipe with boxes goes to places of its states, also before what it asked for has come. */
static void seek__anywhere__goes_on(uint64_t seed, int processes) {
    for (int i = 0; i < test_share(processes ? 3 : 8, 200); i++) {
        dlp_shm_desc shm = {.max_kills = 100};
        dlp_pipe *p;
        dlp_error err;
        rig2 r;
        int64_t n;
        int ok = 1;
        any_table(&r, &seed);
        r.pipe.epochs = 3;
        if (i % 2 && r.expand.expand != NULL) {
            r.expand.max_out = seen->most = 600;
            r.by.num_workers = 3;
        }
        if ((n = known(&r)) <= 0) continue;
        boxed(&r, i % 2 ? 3 : test_pick(&seed, 3));
        if (processes) {
            r.pipe.shm = &shm;
            r.by.placement = r.fetch.placement = DLP_PLACE_PROCESSES;
        }
        inside_box_copies = i % 2 ? slow : NULL;
        if (begin(&r, &p, 1) != DLP_OK) continue;
        for (int k = 0; k < 40 && ok; k++) {
            const int64_t to = (int64_t)test_pick(&seed, (uint32_t)n);
            ok &= dlp_pipe_seek(p, &base[to].state, &err) == DLP_OK;
            for (int64_t j = to + 1; j < n && j <= to + (int64_t)test_pick(&seed, 7) && ok; j++) {
                dlp_batch *b;
                ok = dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK;
                if (ok) ok = rows_of(b) == base[j].rows && dlp_pipe_release(p, b) == DLP_OK;
            }
        }
        CHECK(ok && dlp_pipe_close(p) == DLP_OK);
        inside_box_copies = NULL;
    }
}

/* The first copy of a worker stands still while `state` is 1. */
static struct held {
    uint8_t *to;
    uint64_t bytes;
    int32_t state, beside;
} held_;

static void hold(void *to, uint64_t bytes) {
    uint8_t *at = to;
    int32_t none = 0;
    if (__atomic_compare_exchange_n(&held_.state, &none, 2, 0, __ATOMIC_SEQ_CST, 0)) {
        held_.to = at;
        held_.bytes = bytes;
        __atomic_store_n(&held_.state, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&held_.state, __ATOMIC_SEQ_CST) == 1) usleep(200);
    } else if (none == 1 && at < held_.to + held_.bytes && held_.to < at + bytes) {
        __atomic_add_fetch(&held_.beside, 1, __ATOMIC_SEQ_CST);
    }
}

/* A seek leaves a stream while a worker copies. Its boxes get no other items before it is done. */
static void seek__while_a_worker_copies__its_boxes_wait(void) {
    for (int i = 0; i < 8; i++) {
        dlp_pipe *p;
        dlp_batch *b;
        dlp_error err;
        rig2 r;
        int64_t n, at = -1;
        int ok = 1, rc = DLP_TIMEOUT;
        init(&r, SMALL, 0, 600 + (uint32_t)i * 20); /* so large cells that workers copy */
        r.by.num_workers = 3;
        if ((n = known(&r)) <= 0) return;
        boxed(&r, 3);
        memset(&held_, 0, sizeof held_);
        inside_box_copies = hold;
        if (begin(&r, &p, 1) != DLP_OK) return;
        while (__atomic_load_n(&held_.state, __ATOMIC_SEQ_CST) != 1)
            if ((rc = dlp_pipe_next_timeout(p, &b, 20)) == DLP_OK) dlp_pipe_release(p, b);
        at = n / 9 * i;
        ok &= dlp_pipe_seek(p, &base[at].state, &err) == DLP_OK;
        for (int k = 0; k < 20 && ok && at + 1 < n; k++) { /* as far as other boxes go */
            if (dlp_pipe_next_timeout(p, &b, 10) != DLP_OK) break;
            ok = rows_of(b) == base[++at].rows && dlp_pipe_release(p, b) == DLP_OK;
        }
        CHECK(held_.beside == 0);
        __atomic_store_n(&held_.state, 3, __ATOMIC_SEQ_CST);
        while (ok && ++at < n && (ok = dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK))
            ok = rows_of(b) == base[at].rows && dlp_pipe_release(p, b) == DLP_OK;
        CHECK(ok && dlp_pipe_close(p) == DLP_OK);
        inside_box_copies = NULL;
    }
}

static int32_t now_running;

static int epoch_set(void *user, uint64_t epoch) {
    (void)user, (void)epoch;
    CHECK(__atomic_load_n(&now_running, __ATOMIC_SEQ_CST) == 0);
    usleep(1000);
    CHECK(__atomic_load_n(&now_running, __ATOMIC_SEQ_CST) == 0);
    return 0;
}

/* No worker copies beside set_epoch. */
static void beside(void *to, uint64_t bytes) {
    (void)to, (void)bytes;
    __atomic_add_fetch(&now_running, 1, __ATOMIC_SEQ_CST);
    usleep(20);
    __atomic_sub_fetch(&now_running, 1, __ATOMIC_SEQ_CST);
}

static void set_epoch__with_boxes__no_copy_beside_it(uint64_t seed) {
    for (int i = 0; i < test_share(8, 100); i++) {
        dlp_pipe *p;
        dlp_batch *b;
        rig2 r;
        uint64_t last = UINT64_MAX, epochs = 0;
        int rc;
        any_table(&r, &seed);
        r.pipe.epochs = 3;
        r.pipe.set_epoch = epoch_set;
        boxed(&r, test_pick(&seed, 4));
        inside_box_copies = beside;
        if (begin(&r, &p, 1) != DLP_OK) continue;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            epochs += b->epoch != last;
            last = b->epoch;
            dlp_pipe_release(p, b);
            if (i % 3 == 2 && test_pick(&seed, 2) && dlp_pipe_next_epoch(p) != DLP_OK) break;
        }
        if (rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
        CHECK(rc == DLP_END && epochs == 3 && dlp_pipe_close(p) == DLP_OK);
        inside_box_copies = NULL;
    }
}

/* ---- workers die while they copy ---- */

/* Run a table with boxes in worker processes, which die in `dies`, at a copy. The batches are the n
   ones of `base`. */
static void run_killed(rig2 *r, int64_t n, void (*dies)(void *to, uint64_t bytes)) {
    const dlp_shm_desc shm = {.max_kills = 100};
    dlp_pipe *p;
    dlp_batch *b;
    int64_t k = 0;
    int ok = 1, rc;
    r->pipe.shm = &shm;
    r->by.placement = r->fetch.placement = DLP_PLACE_PROCESSES;
    inside_box_copies = dies;
    if (begin(r, &p, 1) != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        ok &= k < n && rows_of(b) == base[k].rows;
        dlp_pipe_release(p, b);
        k++;
    }
    inside_box_copies = NULL;
    if (rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
    CHECK(rc == DLP_END && ok && k == n && dlp_pipe_close(p) == DLP_OK);
}

static void kill__while_it_copies__same_rows(uint64_t seed) {
    uint32_t kills = 0;
    for (int i = 0; i < test_share(8, 200); i++) {
        rig2 r;
        int64_t n;
        any_table(&r, &seed);
        if (r.expand.max_out < 60) r.expand.max_out = seen->most = 600;
        if (r.expand.expand == NULL) continue;
        if ((n = known(&r)) <= 0) continue;
        boxed(&r, test_pick(&seed, 3));
        if (r.by.num_workers == 0) r.by.num_workers = 2;
        seen->kill_every = 60 + test_pick(&seed, 60); /* more than a grant has boxes */
        run_killed(&r, n, copied);
        kills += seen->kills;
    }
    CHECK(kills > 5);
}

/* ---- a worker dies at each instruction from a copy on ---- */

#ifdef __x86_64__
enum { STEPS = 3000 }; /* a grant is copied, the cell offered, and work looked for, in fewer */

static volatile uint32_t stepped;

/* The worker has made an instruction. */
static void step(int number, siginfo_t *info, void *context) {
    const uint32_t n = ++stepped;
    (void)number, (void)info;
    if (n == seen->death) {
        seen->death += (uint32_t)test_share(13, 1);
        if (seen->far < n) seen->far = n;
        raise(SIGKILL);
    }
    if (n < STEPS) return;
    seen->death = 1 + seen->sweeps++ % 13;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100; /* the trap flag */
}

/* A worker that copies makes one instruction at a time from here on. Between two deaths another
   grant is copied whole, so that no cell counts too many of them. */
static void step_from_here(void *to, uint64_t bytes) {
    const struct sigaction traps = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
    (void)to, (void)bytes;
    if ((int32_t)getpid() == seen->parent || stepped > 0) return;
    if (__atomic_add_fetch(&seen->copies, 1, __ATOMIC_SEQ_CST) % seen->kill_every != 0) return;
    seen->kills++;
    sigaction(SIGTRAP, &traps, NULL);
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq;"
                     "lea 128(%%rsp), %%rsp" ::
                         : "memory", "cc");
}

/* A cell has up to 600 items, so a grant has up to 19 boxes of 32. */
static void kill__at_each_instruction_of_a_copy__same_rows(void) {
    rig2 r;
    int64_t n;
    init(&r, SMALL, 0, 600);
    r.batch.batch_size = 64;
    r.pipe.epochs = test_share(2, 36);
    if ((n = known(&r)) <= 0) return;
    boxed(&r, 0);
    seen->death = 1;
    seen->kill_every = 25; /* more than a grant has boxes */
    run_killed(&r, n, step_from_here);
    printf("boxes: %u deaths, up to instruction %u, %u sweeps\n", seen->kills, seen->far,
           seen->sweeps);
    CHECK(seen->kills > (uint32_t)test_share(20, 500) && seen->far > 20);
}
#endif

/* ---- boxes that are just enough, and one less ---- */

static int ends(rig2 *r, int64_t spare) {
    dlp_pipe *p;
    dlp_batch *b;
    int64_t n = 0;
    int rc, ok = 1;
    inside_boxes = spare;
    if (begin(r, &p, spare < 0 ? -1 : 1) != DLP_OK) return -1;
    while ((rc = dlp_pipe_next_timeout(p, &b, spare < 0 ? 300 : 20000)) == DLP_OK) {
        ok &= rows_of(b) == base[n++].rows;
        dlp_pipe_release(p, b);
    }
    inside_boxes = INSIDE_BOXES;
    CHECK(dlp_pipe_close(p) == DLP_OK && ok);
    return rc;
}

static void boxes__least__enough_and_one_less_not(void) {
    static const struct {
        uint32_t batch, window, most;
        int32_t last;
    } of[] = {
        {8, 0, 1, 0},     {64, 0, 60, 0},  {96, 0, 700, 0},           {40, 0, 60, DLP_LAST_DROP},
        {8, 8, 60, 0},    {24, 5, 60, 0},  {16, 40, 700, 0},          {40, 100, 700, 0},
        {70, 64, 700, 0}, {33, 7, 700, 0}, {8, 90, 60, DLP_LAST_DROP}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (uint32_t streams = 1; streams <= 2; streams++) {
            rig2 r;
            init(&r, SMALL, 0, of[i].most);
            r.pipe.epochs = 3;
            r.pipe.streams = streams;
            r.batch.batch_size = of[i].batch * streams;
            r.batch.last = of[i].last;
            r.window = of[i].window;
            if (known(&r) <= 0) continue;
            boxed(&r, 0);
            CHECK(ends(&r, 0) == DLP_END);
            CHECK(ends(&r, -1) == DLP_TIMEOUT);
        }
}

/* As the model of the design has them. */
static void boxes__least__numbers(void) {
    CHECK(inside_boxes_least(32, 0, 1) == 1 && inside_boxes_least(32, 0, 2) == 2);
    CHECK(inside_boxes_least(32, 0, 33) == 2 && inside_boxes_least(32, 0, 34) == 3);
    CHECK(inside_boxes_least(32, 65536, 8193) == 4096);
    CHECK(inside_boxes_least(3, 8, 12) == 3 * 2 + 3 && inside_boxes_least(3, 8, 9) == 6);
    CHECK(inside_boxes_least(1, 4, 4) == 4 + 3);
}

/* ---- plans ---- */

static uint64_t planned(const dlp_field *in, const dlp_field *out, uint32_t most, uint64_t n,
                        uint32_t window, uint32_t batch) {
    static dlp_plan plan;
    dlp_error err;
    dlp_pipe_desc d = {.name = NULL};
    const dlp_workers_desc two = {.num_workers = 2};
    dlp_node t[6] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = n, .shuffle = 1}},
        {.name = "read", .verb = DLP_FETCH, .fetch = {.fetch = fetch, .fields = in, .n_fields = 1}},
    };
    uint32_t k = 2;
    if (out != NULL)
        t[k++] =
            (dlp_node){.name = "games",
                       .verb = DLP_EXPAND,
                       .workers = two,
                       .expand = {.expand = expand, .max_out = most, .fields = out, .n_fields = 1}};
    else
        t[k++] =
            (dlp_node){.name = "good",
                       .verb = DLP_FILTER,
                       .workers = two,
                       .filter = {.keep = (int (*)(void *, const dlp_item *))(void (*)(void))keep}};
    if (window)
        t[k++] = (dlp_node){.name = "mixed", .verb = DLP_WINDOW, .window = {.items = window}};
    t[k++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = batch}};
    CHECK(dlp_nodes_plan(t, k, &d, &plan, &err) == DLP_OK);
    return plan.total_bytes;
}

static void plan__few_items_of_large_cells__little_memory(void) {
    static const dlp_field position = {"position", DLP_U8, 1, {32}, 0, 0};
    static const dlp_field gz = {"gz", DLP_U8, 1, {700000}, 1, 0};
    if (inside_debug()) return; /* guard bytes, and no runs of inputs */
    CHECK(planned(&in_field, &position, 440000, 1000, 65536, 8192) < 120000000);
    CHECK(planned(&in_field, &position, 440000, 1000, 0, 8192) < 120000000);
    CHECK(planned(&gz, &position, 5000, 100000, 65536, 1024) < 60000000);
    CHECK(planned(&in_field, NULL, 0, 10000000, 1 << 20, 256) < 40000000);
    CHECK(planned(&in_field, NULL, 0, 10000000, 1 << 22, 256) < 160000000);
}

/* Cells of small items have many inputs. Behind a window they have few, so the items go to boxes,
   which the scheduler fills. The rows are the same. */
static void window__small_items__boxes_and_the_same_rows(void) {
    const dlp_field fields[2] = {in_field, {"rest", DLP_U8, 1, {776}, 0, 0}};
    rig2 r;
    if (inside_debug()) return; /* no runs of inputs */
    for (uint32_t window = 0; window <= 1024; window += 1024) {
        init(&r, SMALL, 1, 0);
        r.dataset.fields = fields;
        r.dataset.n_fields = 2;
        r.dataset.n_items = 9000;
        r.window = window;
        const int64_t n = known(&r);
        r.cells = 0;
        CHECK(run(&r, other, window > 0) == n);
        CHECK(same(base, other, n));
    }
}

/* Fewer cells than streams are refused, and the error says how many are enough. */
static void cells__fewer_than_streams__refused_with_the_streams(void) {
    for (uint32_t cells = 1; cells <= 4; cells++) {
        dlp_field fields[] = {in_field, small_field};
        const dlp_node t[] = {
            {.name = "list", .verb = DLP_LIST, .list = {.n_items = INPUTS}},
            {.name = "read",
             .verb = DLP_FETCH,
             .fetch = {.fetch = fetch, .fields = fields, .n_fields = 1}},
            {.name = "make",
             .verb = DLP_EXPAND,
             .queue = {.capacity = cells},
             .expand = {.expand = expand, .max_out = 5, .fields = fields + 1, .n_fields = 1}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 64}}};
        const dlp_pipe_desc d = {.streams = 4};
        dlp_plan plan;
        dlp_error e = {.code = 0};
        const int rc = dlp_nodes_plan(t, 4, &d, &plan, &e);
        CHECK(rc == (cells < 4 ? DLP_ERR_ARG : DLP_OK));
        if (cells == 4) continue;
        CHECK(strcmp(e.field, "queue.capacity") == 0);
        CHECK(strstr(e.message, "need 4 inputs at once; set 0 (up to 2^22), or change streams"));
    }
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    SHM_NEEDS("boxes");
    seen = shm_shared(sizeof *seen);
    boxes__least__numbers();
    cells__fewer_than_streams__refused_with_the_streams();
    plan__few_items_of_large_cells__little_memory();
    window__small_items__boxes_and_the_same_rows();
    run__any_table__as_without_boxes(seed);
    resume__behind_any_batch__goes_on(seed);
    resume__groups_with_other_lengths__refused();
    resume__more_of_a_window_than_was_given__refused();
    seek__anywhere__goes_on(seed, 0);
    seek__anywhere__goes_on(seed, 1);
    seek__while_a_worker_copies__its_boxes_wait();
    set_epoch__with_boxes__no_copy_beside_it(seed);
    kill__while_it_copies__same_rows(seed);
#ifdef __x86_64__
    kill__at_each_instruction_of_a_copy__same_rows();
#endif
    boxes__least__enough_and_one_less_not();
    CHECK(shm_mappings() == 0);
    return test_end("boxes");
}
