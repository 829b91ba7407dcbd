/* needs: parts cache */
/* Workers that die at every instruction. A worker process is single-stepped through one step of a
   stage. What it has changed of the shared region after each instruction is all that would be left
   of it, had it been killed there: nothing else of a dead process reaches anybody. Of each such
   image that differs from the one before, a process of its own makes its region. There the dead
   worker is recovered as the supervisor does it, in several ways:
     at once              and then all workers, its replacement among them, work to the end
     others first         they work as far as they can before the death is noticed
     beside a peer        another worker is stopped at some atomic access of its own step, and
                          goes on when all is recovered, and the others have done a bit
     twice                the replacement is stepped and killed in the same way
   And it lives: stopped at each atomic access, while another that had nothing to do dies and is
   recovered.
   Workers with several items out, fills of a cache, the end of a stream and workers that load parts
   are among the scenes.
   Some deaths are real: SIGKILL at instruction k of one worker while another, which began before
   it, stands at access j. In the end every row of every batch is there once, in order, with
   its bytes. Callbacks write garbage first, which differs from life to life, so that what is shown
   too early is seen; counters never go back. shm_steps [seed [case]] */
/* own: hook: a worker dies at each access of an atomic */
#include "../../rig/atomics_hook.h"

/* A process may be told to stop before one of its atomic accesses, where that is near enough: it is
   much cheaper than to step it. */
static unsigned long stop_before_; /* the n-th; 0: none */
static void stop_here(void);

static inline void atomics_hook(int kind, const void *at) {
    (void)at;
    if (kind != -1 && __builtin_expect(stop_before_ != 0, 0) && --stop_before_ == 0) stop_here();
}

#define DLPIPE_NO_DEBUG /* whole regions are copied here, what was released too */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include <sys/ptrace.h>

#define ROWS 8
#define BATCHES 5

/* FLAKY: left out, unless it has killed a worker: then it succeeds */
enum { MODE_NONE, MODE_RETRY, MODE_REPLACE, MODE_SHORT, MODE_SKIP, MODE_FLAKY, MODE_RAISE, MODES };

typedef struct scene { /* what is wired, who dies, and when */
    int item_maps, batch_maps, collate, in_turn;
    int idempotent;  /* all maps */
    int mode, fails; /* how its stage `fails` (place among those with workers) fails */
    int backoff;
    int victim;     /* stage; PARTS: that of the parts */
    int who;        /* 0, 1: which of its workers */
    int before;     /* steps that another worker of that stage does before */
    int warm;       /* batches that go through before */
    int sleeps;     /* the victim is in worker_sleep: 1 with work to find, 2 without */
    int asleep;     /* the others sleep: who passes work on wakes them */
    int rewound;    /* somebody has died just before: all look without hints */
    uint64_t start; /* first batch */
    int in_flight;  /* 1: fetch has several items at once */
    int cache;      /* 1: of all items, 2: of a few */
    int stream;     /* 1: whose last batch is short */
    int parts;      /* 1: items come out of parts, 2: which fail to load at first */
    int ragged;     /* 1: with a third field, whose room is larger than its items */
} scene;

enum { PARTS = 99, PART_ITEMS = 5 };

static scene now_;
static dlp_pipe *pipe_;
static dlpi_worker *pristine_; /* what the workers were before anybody ran: so does a fork begin */

static struct common { /* shared by all processes */
    uint32_t phase[4096];
    uint64_t next_phase;
    int64_t instructions, images, trials, kills, failures;
} * common;

static uint64_t random_;

static void stop_here(void) { raise(SIGSTOP); }

/* ---- callbacks: two words a row; garbage first ---- */

#define ROOM 70

static const dlp_field step_fields[3] = {{"v", DLP_U64, 0, {0}, 0, 0},
                                         {"m", DLP_U64, 0, {0}, 0, 0},
                                         {"ragged", DLP_U64, 1, {ROOM}, 1, 0}};

static uint64_t garbage(void) {
    static uint64_t life;
    if (life == 0) life = (uint64_t)getpid() << 32;
    return ++life * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

/* another store to the same place, which the compiler may not leave out */
static inline void put(uint64_t *to, uint64_t v) {
    atomics_hook(HOOK_STORE, to);
    __atomic_store_n(to, v, __ATOMIC_RELAXED);
}

static uint64_t fetched(uint64_t index, uint64_t position) {
    return index * 1000003 + (now_.cache ? 0 : position);
}

static uint32_t batch_rows(uint64_t k) { return now_.stream && k == BATCHES - 1 ? ROWS - 3 : ROWS; }

static int row_bad(uint64_t index) { return index % 3 == 1; }

static int stage_fails(int stage, const dlp_item *it) {
    if (now_.mode == MODE_NONE || now_.fails != stage || !row_bad(it->index)) return 0;
    if (now_.mode == MODE_RETRY && it->attempt > 0) return 0;
    if (now_.mode == MODE_FLAKY) {
        const dlpi_worker *w = it->call->w;
        uint32_t s = (uint32_t)(w->block->running >> 32);
        if (dlpi_fate_kills(dlpi_slot_fate(pipe_, s)[it->row]) > 0) return 0;
    }
    return now_.mode == MODE_SKIP ? DLP_SKIP : -5;
}

/* A part is the indices of its items. */
static int step_load(void *user, dlp_part *part) {
    uint64_t *to = part->data;
    (void)user;
    for (uint64_t i = 0; i < part->items; i++) put(&to[i], garbage());
    if (now_.parts == 2 && part->attempt == 0) return dlp_fail(part->call, 0, "not yet");
    for (uint64_t i = 0; i < part->items; i++) put(&to[i], part->first + i);
    part->bytes = part->items * sizeof *to;
    return 0;
}

static uint64_t ragged_rows(uint64_t index) { return 1 + index * 5 % 12; }

/* Garbage in all of the room, which is gone again where the item has no bytes. So only an item that
   comes to its end keeps to its length. */
static int ragged_fetch(dlp_item *it) {
    static const uint64_t far[] = {0, 11, 45, ROOM - 1};
    uint64_t *to = it->data[2];
    int rc;
    for (int i = 0; i < 4; i++) put(&to[far[i]], garbage());
    if ((rc = now_.mode != MODE_NONE ? stage_fails(0, it) : 0) != 0) return rc;
    for (int i = 0; i < 4; i++) put(&to[far[i]], 0);
    for (uint64_t k = 0; k < ragged_rows(it->index); k++) put(&to[k], it->index + k + 1);
    it->length[2] = ragged_rows(it->index);
    return 0;
}

static int step_fetch(void *user, dlp_item *it) {
    uint64_t *v = it->data[0], *m = it->data[1];
    (void)user;
    if (now_.parts && ((const uint64_t *)it->part->data)[it->part->item] != it->index) return -7;
    if (now_.stream && it->index >= ROWS * BATCHES - 3) return DLP_END;
    put(v, garbage());
    put(m, garbage());
    if (now_.mode != MODE_NONE && !now_.ragged) {
        int rc = stage_fails(0, it);
        if (rc != 0) return rc;
    }
    put(m, 0);
    put(v, fetched(it->index, it->position));
    return now_.ragged ? ragged_fetch(it) : 0;
}

/* A source of a worker with several in flight: it has room for three, gives the last back first,
   and keeps one, if it has several. */
static struct {
    dlp_item *item[3];
    int n;
} source_[2];

static int step_submit(void *user, void *state, dlp_item *it) {
    (void)user;
    (void)state;
    if (source_[it->worker].n == 3) return DLP_FULL;
    source_[it->worker].item[source_[it->worker].n++] = it;
    return 0;
}

static int step_reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    int n = 0, who = (int)(intptr_t)state, *has = &source_[who].n;
    (void)user;
    (void)timeout_ms;
    for (; *has > (n > 0) && n < max; n++) {
        done[n] = source_[who].item[--*has];
        code[n] = step_fetch(NULL, done[n]);
    }
    return n;
}

static uint64_t mapped_v(uint64_t v, uint64_t index) { return now_.idempotent ? v : v * 3 + index; }
static uint64_t mapped_m(uint64_t v, uint64_t m, uint64_t index) {
    return now_.idempotent ? v * 7 + index : m;
}

static int step_map(void *user, dlp_item *it) {
    uint64_t *v = it->data[0], *m = it->data[1], was = *v, was_m = *m;
    int rc = stage_fails(*(int *)user, it);
    put(now_.idempotent ? m : v, garbage());
    if (now_.ragged) put((uint64_t *)it->data[2] + ROOM - 1, garbage());
    if (rc != 0) return rc;
    if (now_.ragged) put((uint64_t *)it->data[2] + ROOM - 1, 0);
    if (now_.ragged && !now_.idempotent) it->length[2] /= 2;
    put(m, mapped_m(was, was_m, it->index));
    put(v, mapped_v(was, it->index));
    return 0;
}

static uint32_t slot_tries(uint32_t s) {
    return dlpi_fate_tries(DLPI_LOAD_RLX(&dlpi_slot_at(pipe_, s)->batch_fate));
}

static int batch_fails(int stage, uint64_t in_epoch, uint32_t tries) {
    if (now_.mode == MODE_NONE || now_.fails != stage) return 0;
    if (now_.mode == MODE_RETRY) return tries > 0 ? 0 : -6;
    return in_epoch % 2 == 0 ? 0 : -6;
}

static int step_collate(void *user, dlp_collate *c) {
    const dlpi_area *slots = &pipe_->areas[DLPI_REC_SLOTS];
    uint64_t at = (uint64_t)((const uint8_t *)c->index - pipe_->region) - slots->offset;
    uint32_t s = (uint32_t)(at / slots->stride);
    for (uint32_t r = 0; r < c->count; r++)
        for (int f = 0; f < 2; f++) {
            uint64_t *to = (uint64_t *)c->out[f].data + r;
            put(to, garbage());
            put(to, *(const uint64_t *)(const void *)((const uint8_t *)c->in[f].data +
                                                      r * c->in[f].stride));
        }
    return batch_fails(*(int *)user, dlpi_slot_at(pipe_, s)->in_epoch, slot_tries(s));
}

static int step_batch_map(void *user, dlp_batch *b, void *state) {
    uint64_t *v = b->fields[0].data, *m = b->fields[1].data;
    int rc = batch_fails(*(int *)user, b->in_epoch, slot_tries((uint32_t)(uintptr_t)b->internal));
    (void)state;
    for (uint32_t r = 0; r < b->count; r++) {
        uint64_t was = v[r], was_m = m[r];
        put(now_.idempotent ? &m[r] : &v[r], garbage());
        if (rc != 0) return rc;
        put(&m[r], mapped_m(was, was_m, b->index[r]));
        put(&v[r], mapped_v(was, b->index[r]));
    }
    return rc;
}

/* ---- what must come out ---- */

static int is_item_stage(int stage) { return stage <= now_.item_maps; }

/* Does the pipe end with an error? A stage of batches that fails for good is always one. */
static bool scene_raises(void) {
    if (now_.mode == MODE_NONE || now_.mode == MODE_RETRY) return false;
    return now_.mode == MODE_RAISE || !is_item_stage(now_.fails);
}

/* Zeros lie behind the length, whatever was there before. */
static int ragged_right(const dlp_batch *b, uint32_t row, uint64_t index, int left) {
    const uint64_t *at = (const uint64_t *)b->fields[2].data + (uint64_t)row * ROOM;
    uint64_t n = left ? 0 : ragged_rows(index);
    for (int i = 0; i < now_.item_maps && !now_.idempotent; i++) n /= 2;
    for (uint64_t k = 0; k < ROOM; k++)
        if (at[k] != (k < n ? index + k + 1 : 0)) return 0;
    return b->fields[2].lengths[row] == n;
}

static int row_right(const dlp_batch *b, uint32_t row) {
    uint64_t position = b->position + row, index, v, m = 0, got_v, got_m;
    int left = 0, policy = now_.mode != MODE_NONE && is_item_stage(now_.fails);
    if (now_.parts)
        index = position;
    else
        dlpi_order_block(&dlpi_near_of(&pipe_->workers[0])->order, b->epoch, position, 1, &index);
    if (policy && now_.mode == MODE_REPLACE)
        for (uint32_t k = 1; row_bad(index); k++)
            index = dlpi_order_replacement(&dlpi_near_of(&pipe_->workers[0])->order, b->epoch,
                                           position, k);
    if (policy && (now_.mode == MODE_SHORT || now_.mode == MODE_SKIP)) left = row_bad(index);
    if (policy && now_.mode == MODE_FLAKY) left = row_bad(index) && !b->valid[row];
    v = fetched(index, position);
    for (int i = 0; i < now_.item_maps; i++) {
        m = mapped_m(v, m, index);
        v = mapped_v(v, index);
    }
    if (left) v = m = 0;
    if (now_.ragged && !ragged_right(b, row, index, left)) return 0;
    for (int i = 0; i < now_.batch_maps; i++) {
        m = mapped_m(v, m, index);
        v = mapped_v(v, index);
    }
    got_v = ((const uint64_t *)b->fields[0].data)[row];
    got_m = ((const uint64_t *)b->fields[1].data)[row];
    return b->index[row] == index && got_v == v && got_m == m && b->valid[row] == !left;
}

/* ---- the rig: a pipe with worker processes that nobody supervises ---- */

static int steps_begin(dlp_pipe *p) {
    if (now_.start > 0) inside_place(p, now_.start);
    p->workers[0].block->item_ns = 1; /* so that runs have several rows */
    return DLP_OK;
}
static int steps_look(dlp_pipe *p) { return p == NULL; } /* nobody is missed */
static void steps_nothing(dlp_pipe *p) { (void)p; }

static dlpi_beside_ops steps_table;

static int stage_number[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static dlp_pipe *scene_open(void) {
    static const dlp_shm_desc shm = {.max_kills = 100};
    rig r;
    dlp_pipe *p = NULL;
    dlp_workers_desc *w[8];
    int n = 0;
    rig_init(&r, ROWS * BATCHES, ROWS);
    shm_processes(&r, 2, now_.in_turn);
    r.dataset.fields = step_fields;
    r.dataset.n_fields = now_.ragged ? 3 : 2;
    r.dataset.fetch = step_fetch;
    r.dataset.writes_all_bytes = 1;
    r.pipe.shm = &shm;
    r.pipe.trace_bytes = 128;
    r.pipe.prefetch_factor = 2;
    r.n_item_maps = now_.item_maps;
    r.n_batch_maps = now_.batch_maps;
    w[n++] = &r.fetch;
    for (int i = 0; i < now_.item_maps; i++) {
        r.item_map[i].map.item = step_map;
        r.item_map[i].map.user = &stage_number[n];
        w[n++] = &r.item_map[i].workers;
    }
    if (now_.collate) r.batch.collate = step_collate;
    if (now_.in_flight) r.fetcher = DLP_FETCH_ASYNC;
    r.in_flight = now_.in_flight ? 4 : 0;
    r.async.submit = step_submit;
    r.async.reap = step_reap;
    if (now_.cache)
        r.cache.bytes =
            (now_.cache == 1 ? ROWS * BATCHES : 7u) * (now_.ragged ? 32u + ROOM * 8 : 24u);
    r.dataset.open_end = now_.stream;
    if (now_.parts) {
        static const uint64_t items[ROWS * BATCHES / PART_ITEMS] = {5, 5, 5, 5, 5, 5, 5, 5};
        r.sampler.order = DLP_ORDER_PARTS;
        r.parts = (dlp_node_load){.n_parts = ROWS * BATCHES / PART_ITEMS,
                                  .items = items,
                                  .max_part_bytes = PART_ITEMS * 8,
                                  .load = step_load,
                                  .workers = r.fetch};
        r.parts.workers.dispatch = DLP_DISPATCH_CLAIM;
        r.parts.workers.retries = now_.parts == 2 ? 1 : 0;
        r.parts.workers.retry_backoff_ms = now_.parts == 2 ? now_.backoff : 0;
    }
    r.batch.collate_user = &stage_number[n];
    if (now_.collate) {
        r.batch_by.num_workers = 2;
        w[n++] = &r.batch_by;
    }
    for (int i = 0; i < now_.batch_maps; i++) {
        r.batch_map[i].map.batch = step_batch_map;
        r.batch_map[i].map.user = &stage_number[n];
        w[n++] = &r.batch_map[i].workers;
    }
    for (int i = 0; i < n; i++) {
        bool items = i <= now_.item_maps;
        w[i]->retries = now_.mode == MODE_RETRY ? 5 : 0;
        w[i]->retry_backoff_ms = now_.backoff;
        w[i]->idempotent = now_.idempotent;
        if (items && now_.mode == MODE_REPLACE) w[i]->on_error = DLP_ON_ERROR_REPLACE;
        if (items && (now_.mode == MODE_SHORT || now_.mode == MODE_FLAKY))
            w[i]->on_error = DLP_ON_ERROR_DROP;
    }
    steps_table = dlpi_shm_table;
    steps_table.begin = steps_begin;
    steps_table.look = steps_look;
    steps_table.nudge = steps_table.await = steps_nothing;
    dlpi_shm = &steps_table;
    if (rig_open(&r, &p) != DLP_OK) return NULL;
    return p;
}

/* Worker i of the stage that somebody dies in. */
static dlpi_worker *scene_worker(int i) {
    const dlpi_stage *st = pipe_->work[now_.victim == PARTS ? pipe_->n_work : now_.victim];
    return &pipe_->workers[st->first_worker + i];
}

/* ---- counters never go back ---- */

typedef struct watch {
    uint64_t tail, base, delivered, items[32];
    uint64_t out[8]; /* by slot: 1 + batch that was delivered */
} watch;
static watch watch_;

static const char *watch_look(void) {
    const dlp_pipe *p = pipe_;
    watch *w = &watch_;
    if (p->ctl->tail < w->tail) return "tail went back";
    if (p->ctl->base < w->base) return "base went back";
    if (p->ctl->delivered < w->delivered) return "delivered went back";
    w->tail = p->ctl->tail;
    w->base = p->ctl->base;
    w->delivered = p->ctl->delivered;
    for (int i = 0; i < p->n_workers && i < 32; i++) {
        if (p->workers[i].block->items < w->items[i]) return "a worker's items went back";
        w->items[i] = p->workers[i].block->items;
    }
    for (uint32_t s = 0; s < p->n_slots && s < 8; s++) {
        uint64_t ready = dlpi_stage_words_at(p, s, p->work[p->n_work - 1])->ready;
        if (w->out[s] && !dlpi_ready_past(ready, w->out[s] - 1))
            return "ready of a batch that was delivered went back";
    }
    return NULL;
}

/* ---- work to the end ---- */

static uint64_t taken_; /* batches */
static const char *wrong_;

static void wrong(const char *what) {
    if (wrong_ == NULL) wrong_ = what;
}

static void take_batch(dlp_batch *b) {
    uint64_t k = taken_++;
    if (b->sequence != now_.start + k || b->in_epoch != k) wrong("a batch out of order");
    if (b->count != batch_rows(k)) wrong("a batch of another count");
    for (uint32_t r = 0; r < b->count; r++)
        if (!row_right(b, r)) wrong("wrong bytes");
    watch_.out[(uintptr_t)b->internal & 7] = b->sequence + 1;
    if (dlp_pipe_release(pipe_, b) != DLP_OK) wrong("release");
}

/* What next gives at the end of what it may give: END, or the error that was wanted. */
static void the_end(int rc) {
    bool raises = scene_raises();
    const dlp_error *e = dlp_pipe_error(pipe_);
    if (!raises && rc == DLP_END && taken_ == BATCHES) return;
    if (raises && rc == DLP_ERR_CALLBACK && e->worker >= 0 && e->message[0] != 0) return;
    wrong(rc == DLP_END ? "it ends too early" : dlp_code_name(rc));
    if (rc < 0) wrong(e->message);
}

/* One round of everybody but two; whether anything moved. *rc: what next said. */
static bool one_round(const dlpi_worker *dead, const dlpi_worker *busy, int *rc) {
    dlp_pipe *p = pipe_;
    dlp_batch *b;
    bool moved = false;
    uint32_t from;
    *rc = dlp_pipe_next_timeout(p, &b, 0);
    if (*rc == DLP_OK) take_batch(b), moved = true;
    from = test_pick(&random_, (uint32_t)p->n_workers); /* in any order */
    for (int i = 0; i < p->n_workers; i++) {
        dlpi_worker *w = &p->workers[(from + (uint32_t)i) % (uint32_t)p->n_workers];
        const char *bad;
        if (w == dead || w == busy) continue;
        if (w->st->ops->step(w)) moved = true;
        dlpi_clock_stop(w);
        if ((bad = watch_look()) != NULL) wrong(bad);
    }
    return moved;
}

static void work_to_the_end(void) {
    int idle = 0;
    for (int n = 0; n < 5000 && wrong_ == NULL; n++) {
        int rc;
        bool moved = one_round(NULL, NULL, &rc);
        if (rc != DLP_OK && rc != DLP_TIMEOUT) {
            the_end(rc);
            return;
        }
        if (moved)
            idle = 0;
        else if (now_.backoff && idle++ < 40)
            test_pause(1000000);
        else
            break;
    }
    wrong("work was lost: nothing moves any more");
}

/* ---- processes that are stepped ---- */

static void act(dlpi_worker *w) {
    if (now_.sleeps && w->st->work == now_.victim)
        dlpi_wait_once(&dlpi_worker_waits, &(dlpi_idle_worker){.w = w}, dlpi_worker_group(w),
                       dlpi_worker_bit(w));
    else
        w->st->ops->step(w);
}

static uint32_t *new_phase(void) {
    uint64_t n = __atomic_fetch_add(&common->next_phase, 1, __ATOMIC_RELAXED) % 4096;
    __atomic_store_n(&common->phase[n], 0u, __ATOMIC_RELAXED);
    return &common->phase[n];
}

/* A life of worker w that is about to do its step. */
static pid_t life_begin(dlpi_worker *w, uint32_t *phase) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(78);
        raise(SIGSTOP);
        __atomic_store_n(phase, 1u, __ATOMIC_SEQ_CST);
        act(w);
        __atomic_store_n(phase, 2u, __ATOMIC_SEQ_CST);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        printf("shm_steps: unavailable: ptrace\n");
        exit(78);
    }
    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)0x100000); /* EXITKILL */
    return pid;
}

/* One instruction; false: the step is over. */
static bool life_step(pid_t pid, const uint32_t *phase) {
    int status;
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid ||
        !WIFSTOPPED(status)) {
        wrong("a worker that was stepped ended");
        return false;
    }
    if (WSTOPSIG(status) != SIGTRAP) {
        wrong("a worker that was stepped got a signal");
        return false;
    }
    return __atomic_load_n(phase, __ATOMIC_SEQ_CST) < 2;
}

/* To the first instruction of the step. */
static void life_approach(pid_t pid, const uint32_t *phase) {
    while (__atomic_load_n(phase, __ATOMIC_SEQ_CST) == 0 && life_step(pid, phase)) continue;
}

static void life_kill(pid_t pid) {
    int status;
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) == pid && !WIFEXITED(status) && !WIFSIGNALED(status)) continue;
}

/* A life of worker w that does its step up to atomic access n and stops there. Returns its pid, 0:
   it has fewer. Not traced. */
static pid_t life_to(dlpi_worker *w, uint64_t n) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        stop_before_ = n;
        act(w);
        stop_before_ = 0;
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, WUNTRACED) != pid) wrong("fork");
    if (WIFSTOPPED(status)) return pid;
    if (status != 0) wrong("a worker ended");
    return 0;
}

static void life_on(pid_t pid) {
    int status = 1;
    if (pid <= 0) return;
    kill(pid, SIGCONT);
    if (waitpid(pid, &status, 0) != pid || status != 0) wrong("a worker ended");
}

/* ---- recovery, and what it must leave ---- */

/* Claims of living workers that work on their units: of the first stage, and the collate. Nobody
   may take them away. Compared with what was there before, if compare. */
static void live_claims(const dlpi_worker *dead, bool compare) {
    static uint64_t was[2][8][ROWS];
    dlp_pipe *p = pipe_;
    for (int i = 0; i < (p->has_item_cells ? 2 : 1); i++)
        for (uint32_t s = 0; s < p->n_slots && s < 8; s++) {
            const dlpi_stage *st = i == 0 ? p->work[0] : p->batcher;
            dlpi_stage_words *words = dlpi_stage_words_at(p, s, st);
            uint64_t header = dlpi_slot_at(p, s)->header, b = dlpi_gen_batch(p, dlpi_gen(header));
            for (uint32_t u = 0; u < dlpi_stage_units(p, st->work, header) && u < ROWS; u++) {
                uint64_t own = dlpi_owners(p, words)[u];
                uint32_t who = dlpi_gen_low(own);
                dlpi_unit t = {b, s, u, 0, 0, false};
                bool works = dlpi_gen(own) == dlpi_gen(header) &&
                             (who & (DLPI_REDO | DLPI_FREED)) == 0 &&
                             who != (uint32_t)dead->global + 1u;
                if (compare && was[i][s][u] != 0 && was[i][s][u] != own)
                    wrong("a living worker lost its claim");
                dlpi_unit_rows(p, st, dlpi_header_count(header), dlpi_header_shift(header), &t);
                if (i == 0)
                    works = works && dlpi_unit_missing(dlpi_done(words), &t) != 0;
                else
                    works = works && !dlpi_ready_past(words->ready, b);
                was[i][s][u] = works ? own : 0;
            }
        }
}

static void recover(dlpi_worker *w) {
    static const dlpi_death why = {SIGKILL, false, NULL};
    dlp_pipe *p = pipe_;
    uint32_t words[16], caller = p->ctl->consumer.word;
    for (int i = 0; i < p->n_work; i++) words[i] = p->waiters[i].group[0].at.word;
    live_claims(w, false);
    dlpi_recover(w, &why);
    live_claims(w, true);
    for (uint64_t i = 0; p->keeper_stage && i < dlpi_cache_of(p)->n_cells; i++)
        if ((dlpi_cache_cell_at(p, i)->word & 0x7fff) == (uint64_t)w->global + 1)
            wrong("a dead worker has a cell of the cache");
    for (uint32_t i = 0; i < w->n_at_once; i++)
        if (w->at_once[i] != 0) wrong("a dead worker has an item out");
    for (int i = 0; i < p->n_work; i++)
        if (p->waiters[i].group[0].at.word == words[i]) wrong("a waiter was not woken");
    if (p->ctl->consumer.word == caller) wrong("the caller was not woken");
    if (w->waiters->group[0].at.mask & UINT64_C(1) << w->id)
        wrong("a dead worker is taken for a sleeper");
    *w = pristine_[w->global]; /* a replacement is a fork of what was before it began */
    if (w->st->ops->worker) w->st->ops->worker(w);
    if (w->at_once) source_[w->id].n = 0;
}

/* This process has a region of its own from now on; its children share it, if it will have any. */
static void own_region(const void *image, bool children) {
    dlp_pipe *p = pipe_;
    size_t bytes = (size_t)p->region_bytes;
    int flags = (children ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(p->region, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != p->region) wrong("mmap");
    memcpy(p->region, image, bytes);
    *p->alive = 1; /* else it is a fork, which may not touch the pipe */
}

/* All others do a few rounds, then the peer finishes its step, and is dead, too. */
static void peer_goes_on(pid_t peer, dlpi_worker *w, uint64_t dice) {
    uint64_t rounds = dlp_hash(dice, 10, 11, 12) % 8;
    int rc;
    while (rounds-- > 0 && wrong_ == NULL && one_round(w, NULL, &rc)) continue;
    life_on(peer);
    recover(w); /* what it kept for itself is gone */
}

enum { AT_ONCE, OTHERS_FIRST, BESIDE_A_PEER, TWICE };
static const char *const way_text[] = {"at once", "others first", "beside a peer", "twice"};

static void explore(dlpi_worker *w, int depth);

/* In a process of its own: worker w has died. Never returns. */
_Noreturn static void trial(dlpi_worker *w, int way, int depth, uint64_t dice) {
    dlp_pipe *p = pipe_;
    pid_t peer = 0;
    dlpi_worker *other = &p->workers[dlp_hash(dice, 1, 2, 3) % (uint64_t)p->n_workers];
    int rc;
    if (way == OTHERS_FIRST)
        for (int i = 0; i < 200 && wrong_ == NULL && one_round(w, NULL, &rc); i++) continue;
    if (way == BESIDE_A_PEER && other == w) other = scene_worker(!w->id);
    if (way == BESIDE_A_PEER) peer = life_to(other, 1 + dlp_hash(dice, 4, 5, 6) % 100);
    if (wrong_ == NULL) recover(w);
    if (way == BESIDE_A_PEER) peer_goes_on(peer, other, dice);
    if (way == TWICE) {
        explore(w, depth + 1);
        if (wrong_ == NULL) recover(w); /* it was killed at the end of its step */
    }
    if (wrong_ == NULL) work_to_the_end();
    if (wrong_ != NULL) {
        printf("  died %s: %s\n", way_text[way], wrong_);
        fflush(stdout);
    }
    _exit(wrong_ != NULL);
}

/* Run a trial of the state in image and wait for it. */
static void try_image(dlpi_worker *w, const void *image, int way, int depth, uint64_t k) {
    uint64_t dice = test_random(&random_);
    int status = 0;
    pid_t pid;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        own_region(image, way == BESIDE_A_PEER || way == TWICE);
        random_ = dice;
        trial(w, way, depth, dice);
    }
    __atomic_fetch_add(&common->trials, 1, __ATOMIC_RELAXED);
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0) return;
    if (__atomic_fetch_add(&common->failures, 1, __ATOMIC_RELAXED) < 12)
        printf("  death %d at instruction %d of worker %d of stage %d, %s (status %x)\n", depth,
               (int)k, w->id, w->st->work, way_text[way], (unsigned)status);
    wrong("a death went wrong");
}

/* How much of all that could be tried is tried: 1 of so many. */
static uint32_t rarely(uint32_t usual) {
    if (getenv("SOAK")) return 1;
    return getenv("SHORT") ? usual * 8 : usual;
}

static void image_ways(dlpi_worker *w, const void *image, int depth, uint64_t k) {
    bool redo = now_.mode == MODE_RETRY || now_.mode == MODE_REPLACE; /* the delicate ones */
    if (getenv("SHORT") && test_pick(&random_, 7) != 0) return;
    try_image(w, image, AT_ONCE, depth, k);
    if (wrong_ != NULL) return;
    if (depth > 1 && test_pick(&random_, rarely(4)) != 0) return;
    try_image(w, image, OTHERS_FIRST, depth, k);
    for (int i = 0; i < (getenv("SOAK") ? 20 : redo ? 6 : 1); i++)
        if (redo || i > 0 || test_pick(&random_, 2)) try_image(w, image, BESIDE_A_PEER, depth, k);
    if (depth == 1 && test_pick(&random_, rarely(40)) == 0) try_image(w, image, TWICE, depth, k);
}

/* Step worker w through its step; try each state of the region that it leaves on its way. */
static void explore(dlpi_worker *w, int depth) {
    size_t bytes = (size_t)pipe_->region_bytes;
    uint8_t *image = malloc(bytes);
    uint32_t *phase = new_phase();
    pid_t pid = life_begin(w, phase);
    bool more = true;
    const char *bad;
    if (image == NULL) abort();
    life_approach(pid, phase);
    memset(image, 0xff, bytes);
    for (uint64_t k = 0; more && wrong_ == NULL; k++) {
        __atomic_fetch_add(&common->instructions, 1, __ATOMIC_RELAXED);
        if (memcmp(image, pipe_->region, bytes) != 0) {
            if ((bad = watch_look()) != NULL) wrong(bad);
            memcpy(image, pipe_->region, bytes);
            __atomic_fetch_add(&common->images, 1, __ATOMIC_RELAXED);
            if (depth == 1 || test_pick(&random_, rarely(3)) == 0) image_ways(w, image, depth, k);
        }
        if (k > 200000) wrong("a step without end");
        more = life_step(pid, phase);
    }
    life_kill(pid);
    free(image);
}

/* ---- it lives, and another dies ---- */

/* Exits with 2 when the step has fewer than n atomic accesses. */
_Noreturn static void stopped(dlpi_worker *w, uint64_t n, uint64_t dice) {
    dlp_pipe *p = pipe_;
    dlpi_worker *dead = &p->workers[dlp_hash(dice, 1, 2, 3) % (uint64_t)p->n_workers];
    pid_t pid = life_to(w, n);
    if (dead == w) dead = scene_worker(!now_.who);
    if (pid == 0 && wrong_ == NULL) _exit(2);
    recover(dead);
    peer_goes_on(pid, w, dice);
    if (wrong_ == NULL) work_to_the_end();
    if (wrong_ != NULL) {
        printf("  another died: %s\n", wrong_);
        fflush(stdout);
    }
    _exit(wrong_ != NULL);
}

/* Before each of its atomic accesses. */
static void stopped_everywhere(dlpi_worker *w, const void *image) {
    int status = 0;
    for (uint64_t n = 1; status == 0 && n < 2000; n++) {
        uint64_t dice = test_random(&random_);
        pid_t pid;
        if (test_pick(&random_, getenv("SHORT") ? 7 : 1) != 0) continue;
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            own_region(image, true);
            random_ = dice;
            stopped(w, n, dice);
        }
        __atomic_fetch_add(&common->trials, 1, __ATOMIC_RELAXED);
        if (pid < 0 || waitpid(pid, &status, 0) != pid) status = 1;
        if (status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 2)) continue;
        if (__atomic_fetch_add(&common->failures, 1, __ATOMIC_RELAXED) < 12)
            printf("  stopped at access %d of worker %d of stage %d (status %x)\n", (int)n, w->id,
                   w->st->work, (unsigned)status);
    }
}

/* ---- real deaths, beside a worker that began before ---- */

_Noreturn static void real_death(dlpi_worker *w, uint64_t dice) {
    dlp_pipe *p = pipe_;
    uint32_t *phase = new_phase();
    dlpi_worker *other = &p->workers[dlp_hash(dice, 1, 2, 3) % (uint64_t)p->n_workers];
    uint64_t k = dlp_hash(dice, 4, 5, 6) % 900;
    pid_t pid, peer;
    if (other == w) other = scene_worker(!w->id);
    peer = life_to(other, 1 + dlp_hash(dice, 7, 8, 9) % 100);
    pid = life_begin(w, phase);
    life_approach(pid, phase);
    while (k-- > 0 && life_step(pid, phase)) continue;
    life_kill(pid);
    recover(w);
    peer_goes_on(peer, other, dice);
    if (wrong_ == NULL) work_to_the_end();
    if (wrong_ != NULL) {
        printf("  a real death: %s\n", wrong_);
        fflush(stdout);
    }
    _exit(wrong_ != NULL);
}

static void real_deaths(dlpi_worker *w, int n) {
    for (int i = 0; i < n; i++) {
        uint64_t dice = test_random(&random_);
        int status = 0;
        pid_t pid;
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            uint8_t *image = malloc((size_t)pipe_->region_bytes);
            if (image == NULL) abort();
            memcpy(image, pipe_->region, (size_t)pipe_->region_bytes);
            own_region(image, true);
            random_ = dice;
            real_death(w, dice);
        }
        __atomic_fetch_add(&common->kills, 1, __ATOMIC_RELAXED);
        if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0) continue;
        if (__atomic_fetch_add(&common->failures, 1, __ATOMIC_RELAXED) < 12)
            printf("  real death with dice %llx (status %x)\n", (unsigned long long)dice,
                   (unsigned)status);
    }
}

/* ---- scenes ---- */

static void say_scene(uint64_t number) {
    printf("scene %d: maps %d %d collate %d in_turn %d idempotent %d mode %d in %d "
           "backoff %d victim %d %d before %d warm %d sleeps %d asleep %d rewound %d start %llx "
           "in flight %d cache %d stream %d parts %d ragged %d\n",
           (int)number, now_.item_maps, now_.batch_maps, now_.collate, now_.in_turn,
           now_.idempotent, now_.mode, now_.fails, now_.backoff, now_.victim, now_.who, now_.before,
           now_.warm, now_.sleeps, now_.asleep, now_.rewound, (unsigned long long)now_.start,
           now_.in_flight, now_.cache, now_.stream, now_.parts, now_.ragged);
}

/* Bring the pipe to where the victim has something to do. */
static void scene_prepare(void) {
    dlp_pipe *p = pipe_;
    dlpi_worker *v = scene_worker(now_.who), *other = scene_worker(!now_.who);
    int rc;
    memset(&watch_, 0, sizeof watch_);
    taken_ = 0;
    wrong_ = NULL;
    for (int i = 0; i < 2000 && (int)taken_ < now_.warm && wrong_ == NULL; i++)
        if (!one_round(v, NULL, &rc)) {
            if (now_.backoff)
                test_pause(1000000);
            else if (!v->st->ops->step(v))
                break; /* what only it can do: its batch */
        }
    for (int i = 0; i < 400 && now_.victim != PARTS; i++) { /* those before it do all they can */
        bool moved = false;
        dlp_batch *b;
        for (int k = 0; k < p->n_workers; k++) {
            dlpi_worker *w = &p->workers[k];
            if ((w->st->ops->unit == DLPI_UNIT_CELLS || w->st->work < now_.victim) &&
                w->st->ops->step(w))
                moved = true;
        }
        if (moved && now_.parts && dlp_pipe_next_timeout(p, &b, 0) == DLP_OK) take_batch(b);
        if (!moved) break;
    }
    for (int i = 0; i < now_.before; i++) other->st->ops->step(other);
    for (int i = 0; i < p->n_workers; i++) dlpi_clock_stop(&p->workers[i]);
    for (int i = 0; now_.asleep && i < p->n_work; i++)
        p->waiters[i].group[0].at.mask = 1u << !now_.who;
    if (now_.rewound) dlpi_rescan(p, 0, p->n_work - 1);
    if (now_.asleep) p->ctl->consumer.mask = now_.asleep == 1 ? p->base + 1 : UINT64_MAX;
    if (now_.sleeps == 2) { /* nothing is left for it */
        for (int i = 0; i < 400 && other->st->ops->step(other); i++) continue;
    }
}

static void run_scene(uint64_t number) {
    int64_t before = common->failures;
    dlpi_worker *v;
    uint8_t *image;
    watch saw;
    pipe_ = scene_open();
    if (pipe_ == NULL) {
        say_scene(number);
        return;
    }
    for (int i = 0; i < pipe_->n_workers; i++)
        pipe_->workers[i].state = (void *)(intptr_t)pipe_->workers[i].id;
    memset(source_, 0, sizeof source_);
    pristine_ = malloc((size_t)pipe_->n_workers * sizeof *pristine_);
    if (pristine_ == NULL) abort();
    memcpy(pristine_, pipe_->workers, (size_t)pipe_->n_workers * sizeof *pristine_);
    scene_prepare();
    v = scene_worker(now_.who);
    if (wrong_ == NULL && !now_.sleeps) real_deaths(v, test_share(8, 400));
    image = malloc((size_t)pipe_->region_bytes);
    if (image == NULL) abort();
    memcpy(image, pipe_->region, (size_t)pipe_->region_bytes);
    saw = watch_;
    if (wrong_ == NULL) explore(v, 1);
    watch_ = saw; /* it begins once more */
    if (wrong_ == NULL && !now_.sleeps) stopped_everywhere(v, image);
    free(image);
    if (wrong_ != NULL || common->failures != before) {
        if (wrong_ && common->failures == before) printf("  %s\n", wrong_);
        say_scene(number);
        __atomic_fetch_add(&common->failures, 1, __ATOMIC_RELAXED);
    }
    dlp_pipe_close(pipe_);
    free(pristine_);
}

static int scene_stages(void) { return 1 + now_.item_maps + now_.collate + now_.batch_maps; }

/* The scenes that come first: a stage of each kind, and what can go wrong in it. */
static bool scene_listed(uint64_t number) {
    static const scene list[] = {
        {.ragged = 1, .warm = 3},
        {.ragged = 1, .item_maps = 1, .mode = MODE_RETRY, .fails = 1, .victim = 1, .warm = 3},
        {.ragged = 1, .in_flight = 1, .mode = MODE_REPLACE, .warm = 3},
        {.ragged = 1, .mode = MODE_SHORT, .before = 1, .warm = 3},
        {.ragged = 1, .cache = 2, .item_maps = 1, .warm = 3},
        {.parts = 1, .victim = PARTS},
        {.parts = 2, .victim = PARTS, .before = 1},
        {.parts = 2, .victim = PARTS, .backoff = 1},
        {.parts = 1, .before = 1},
        {.in_flight = 1, .before = 1},
        {.cache = 1, .before = 1},
        {.stream = 1, .warm = 3},
        {.stream = 1, .in_flight = 1, .warm = 3},
        {.in_flight = 1, .cache = 2, .mode = MODE_REPLACE},
        {.cache = 1, .item_maps = 1, .mode = MODE_RETRY, .fails = 1, .victim = 1},
        {.stream = 1, .collate = 1, .warm = 4, .victim = 1},
        {.stream = 1, .item_maps = 1, .warm = 3, .victim = 1},
        {.item_maps = 1, .mode = MODE_RETRY, .fails = 1, .victim = 1, .rewound = 1},
        {.item_maps = 1, .mode = MODE_REPLACE, .fails = 1, .victim = 1, .before = 1},
        {.item_maps = 1, .mode = MODE_REPLACE, .fails = 1, .victim = 1, .idempotent = 1},
        {.batch_maps = 1, .mode = MODE_RETRY, .fails = 1, .victim = 1, .rewound = 1},
        {.batch_maps = 1, .collate = 1, .mode = MODE_RETRY, .fails = 2, .victim = 2, .warm = 1},
        {.item_maps = 1, .mode = MODE_FLAKY, .fails = 1, .victim = 1, .idempotent = 1},
        {.mode = MODE_FLAKY, .before = 1},
        {.before = 1, .asleep = 1, .start = (UINT64_C(1) << 39) - 1},
        {.item_maps = 1, .victim = 1, .before = 1, .asleep = 2},
        {.item_maps = 2, .victim = 1, .asleep = 1, .in_turn = 1},
        {.batch_maps = 1, .victim = 1, .asleep = 1},
        {.batch_maps = 1, .collate = 1, .victim = 1, .asleep = 2, .in_turn = 1},
        {.batch_maps = 2, .collate = 1, .victim = 3, .warm = 2, .start = (UINT64_C(1) << 32) - 2},
        {.batch_maps = 1, .idempotent = 1, .victim = 1, .warm = 1},
        {.item_maps = 2, .mode = MODE_RETRY, .fails = 2, .victim = 2, .backoff = 1},
        {.mode = MODE_REPLACE},
        {.mode = MODE_RAISE, .before = 1},
        {.item_maps = 1, .mode = MODE_SHORT, .fails = 1, .victim = 1},
        {.item_maps = 1, .mode = MODE_RAISE, .fails = 1, .victim = 1},
        {.batch_maps = 1, .mode = MODE_RAISE, .fails = 1, .victim = 1},
        {.in_turn = 1, .item_maps = 1, .mode = MODE_RETRY, .fails = 1, .victim = 1},
        {.mode = MODE_RETRY, .backoff = 1},
        {.collate = 1, .mode = MODE_RETRY, .fails = 1, .victim = 1, .warm = 1},
    };
    if (number >= sizeof list / sizeof *list) return false;
    now_ = list[number];
    return true;
}

/* Scene by number. */
static void scene_make(uint64_t number, uint64_t seed) {
    static const uint64_t starts[] = {0, (UINT64_C(1) << 32) - 2, (UINT64_C(1) << 39) - 2,
                                      (UINT64_C(1) << 40) - 3, (UINT64_C(1) << 44) - 2};
    uint64_t random = dlp_hash(number, seed, 1, 1);
    if (scene_listed(number)) return;
    memset(&now_, 0, sizeof now_);
    now_.item_maps = (int)test_pick(&random, 3);
    now_.batch_maps = (int)test_pick(&random, 3);
    now_.collate = (int)test_pick(&random, 2);
    now_.in_turn = test_pick(&random, 3) == 0;
    now_.idempotent = test_pick(&random, 3) == 0;
    now_.mode = (int)test_pick(&random, MODES);
    now_.fails = (int)test_pick(&random, (uint32_t)scene_stages());
    now_.victim =
        test_pick(&random, 3) ? now_.fails : (int)test_pick(&random, (uint32_t)scene_stages());
    now_.backoff = now_.mode == MODE_RETRY && test_pick(&random, 4) == 0;
    now_.before = (int)test_pick(&random, is_item_stage(now_.victim) ? 4 : 2);
    now_.warm = scene_raises() ? 0 : (int)test_pick(&random, 4);
    now_.asleep = (int)test_pick(&random, 3);
    now_.who = (int)test_pick(&random, 2);
    now_.rewound = (int)test_pick(&random, 2);
    now_.start = starts[test_pick(&random, 5)];
    now_.in_flight = now_.mode != MODE_FLAKY && test_pick(&random, 4) == 0;
    now_.stream = now_.mode != MODE_REPLACE && test_pick(&random, 4) == 0;
    now_.cache = now_.stream ? 0 : (int)test_pick(&random, 3);
    now_.ragged = !now_.collate && test_pick(&random, 3) == 0;
    if (now_.stream || now_.start > 0 || now_.mode == MODE_REPLACE || test_pick(&random, 3)) return;
    now_.parts = 1 + (int)test_pick(&random, 2);
    if (test_pick(&random, 2)) now_.victim = PARTS, now_.warm = 0; /* so it has one to load */
}

static void scenes_of_sleep(void) {
    for (int sleeps = 1; sleeps < 3; sleeps++)
        for (int in_turn = 0; in_turn < 2; in_turn++) {
            memset(&now_, 0, sizeof now_);
            now_.item_maps = 1;
            now_.victim = sleeps == 1;
            now_.in_turn = in_turn;
            now_.sleeps = sleeps;
            now_.warm = now_.who = now_.asleep = 1;
            run_scene((uint64_t)(9000 + sleeps * 10 + in_turn));
        }
}

static int64_t can_step(void) { /* instructions stepped in a trial; 0: it can't be done here */
    int status, n = 0;
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(78);
        raise(SIGSTOP);
        for (;;) dlpi_pause();
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return 0;
    while (n < 100 && ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 &&
           waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP)
        n++;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return n == 100;
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, began = test_now_ns();
    uint64_t limit = (uint64_t)test_share(18, 1500) * 1000000000u, n = 0;
    SHM_NEEDS("shm_steps");
    if (!can_step()) {
        printf("shm_steps: unavailable: processes can't be single-stepped here\n");
        return 78;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    common = shm_shared(sizeof *common);
    random_ = seed;
    if (argc > 2) {
        scene_make(strtoull(argv[2], NULL, 0), seed);
        run_scene(strtoull(argv[2], NULL, 0));
    } else {
        scenes_of_sleep();
        for (; test_now_ns() - began < limit && common->failures < 12; n++) {
            scene_make(n, seed);
            run_scene(n);
        }
    }
    printf("%d scenes, %d instructions stepped, %d different states left behind, %d recovered in "
           "%d ways, %d real deaths, %d went wrong, %.1f s\n",
           (int)n, (int)common->instructions, (int)common->images, (int)common->images,
           (int)common->trials, (int)common->kills, (int)common->failures,
           (double)(test_now_ns() - began) / 1e9);
    CHECK(common->failures == 0);
    CHECK(argc > 2 || (common->images > 100 && common->trials > 20));
    return test_end("shm_steps");
}
