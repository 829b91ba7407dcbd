/* Workers killed at random: SIGKILL to workers of item and batch stages, ten or more a second, at
   any moment. Every position comes once, in order, with its bytes; callbacks write garbage that
   differs from life to life before the right bytes, so that a row shown too early is seen. Prints
   what of the undisturbed throughput is left (stretches with and without kills take turns), how
   long it is from a kill to the replacement's first item, and, as its floor, how long a bare fork
   takes to run at the same moments: one JSON object a line.
   shm_chaos [seconds with kills [kills a second [wiring]]] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include <inttypes.h>

/* How often an item may kill its worker. These kills hit whoever runs: an item that was hit once is
   hit again if a kill comes while it runs again. It then takes some 50 us, and on a machine that is
   overbooked, where it waits for a core, hardly 20 ms. With 20 kills a second a second hit has
   probability 0.4 then; all hits but the first of a false poison need 600 * 0.4^(K - 1) < 1e-6, so
   K = 24. (Undisturbed: 600 * 0.001^(K - 1), so 4 were enough.) */
#define MAX_KILLS 24
#define MOST 20000
#define WORKERS 16
#define SPIN 700 /* rounds of work in an item: about 20 us */

typedef struct chaos {
    uint64_t killed_ns[WORKERS]; /* when this worker was killed; 0: its replacement has an item */
    int32_t pid[WORKERS];        /* noted by worker_init; 0: it was killed */
    uint32_t armed, over;        /* the killer kills; ends */
    uint32_t kills, n_first, n_begun, n_forked;
    uint64_t first_ns[MOST];  /* kill to the replacement's first item */
    uint64_t begun_ns[MOST];  /* kill to its worker_init */
    uint64_t forked_ns[MOST]; /* a bare fork to where its child runs */
    uint64_t sink;
} chaos;

static chaos *shared_;

/* ---- callbacks ---- */

static int me_ = -1; /* of this process: its worker's number over all stages */
static uint64_t garbage_;

static int first_of[8] = {0, 4, 8, 12}; /* of each stage: its first worker */

static void note(uint64_t *list, uint32_t *n, uint64_t ns) {
    uint32_t i = __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
    if (i < MOST) list[i] = ns;
}

static int chaos_init(void *user, int worker, void **state) {
    uint64_t killed;
    (void)state;
    me_ = *(const int *)user + worker;
    garbage_ = (uint64_t)getpid() * UINT64_C(0x9e3779b97f4a7c15) | 1;
    if (me_ >= WORKERS) return -1;
    killed = __atomic_load_n(&shared_->killed_ns[me_], __ATOMIC_RELAXED);
    if (killed) note(shared_->begun_ns, &shared_->n_begun, test_now_ns() - killed);
    __atomic_store_n(&shared_->pid[me_], (int32_t)getpid(), __ATOMIC_SEQ_CST);
    return 0;
}

/* An item or batch begins. */
static void begins(void) {
    uint64_t killed;
    if (me_ < 0) return; /* a thread, or inline */
    killed = __atomic_load_n(&shared_->killed_ns[me_], __ATOMIC_RELAXED);
    if (killed == 0) return;
    note(shared_->first_ns, &shared_->n_first, test_now_ns() - killed);
    __atomic_store_n(&shared_->killed_ns[me_], UINT64_C(0), __ATOMIC_RELAXED);
}

static void scribble(void *at, uint64_t bytes) {
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        garbage_ = garbage_ * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy((uint8_t *)at + i, &garbage_, 8);
    }
    __asm__ __volatile__("" ::: "memory"); /* it is really written */
}

static void work(int rounds) {
    uint64_t h = 1;
    for (int i = 0; i < rounds; i++) h = dlp_hash(h, 1, 2, 3);
    if (h == 1) shared_->sink = h;
}

static int chaos_fetch(void *user, dlp_item *it) {
    begins();
    scribble(it->data[0], 24);
    work(SPIN);
    return rig_fetch(user, it);
}

static int chaos_item_map(void *user, dlp_item *it) {
    uint64_t words[3];
    begins();
    memcpy(words, it->data[0], 24);
    scribble(it->data[0], 24);
    work(SPIN / 4);
    memcpy(it->data[0], words, 24);
    return rig_item_map(user, it);
}

static int chaos_batch_map(void *user, dlp_batch *b, void *state) {
    begins();
    for (uint32_t r = 0; r < b->count; r++) {
        uint64_t words[3];
        uint8_t *at = (uint8_t *)b->fields[0].data + 24 * r;
        memcpy(words, at, 24);
        scribble(at, 24);
        work(SPIN / 64);
        memcpy(at, words, 24);
    }
    return rig_batch_map(user, b, state);
}

static int chaos_collate(void *user, dlp_collate *c) {
    begins();
    for (uint32_t f = 0; f < c->n_out; f++) scribble(c->out[f].data, c->count * c->in[f].stride);
    work(SPIN);
    return dlp_collate_pad(user, c);
}

/* ---- the killer: a process of its own ---- */

/* What nobody can be faster than who forks a replacement. */
static void bare_fork(void) {
    uint64_t from = test_now_ns();
    pid_t pid = fork();
    if (pid == 0) {
        note(shared_->forked_ns, &shared_->n_forked, test_now_ns() - from);
        _exit(0);
    }
    if (pid > 0) waitpid(pid, NULL, 0);
}

_Noreturn static void killer(double per_second) {
    chaos *c = shared_;
    uint64_t random = test_now_ns();
    while (!__atomic_load_n(&c->over, __ATOMIC_RELAXED)) {
        uint64_t mean = (uint64_t)(1e9 / per_second);
        int at = (int)test_pick(&random, WORKERS), pid, tries = 0;
        test_pause(mean / 2 + test_random(&random) % mean);
        if (!__atomic_load_n(&c->armed, __ATOMIC_RELAXED)) continue;
        /* one that lives, and has had work since its last death */
        while (tries++ < WORKERS && (__atomic_load_n(&c->pid[at], __ATOMIC_SEQ_CST) == 0 ||
                                     __atomic_load_n(&c->killed_ns[at], __ATOMIC_RELAXED) != 0))
            at = (at + 1) % WORKERS;
        if (tries > WORKERS) continue;
        pid = __atomic_exchange_n(&c->pid[at], 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&c->killed_ns[at], test_now_ns(), __ATOMIC_RELAXED);
        if (pid > 0 && kill(pid, SIGKILL) == 0) __atomic_add_fetch(&c->kills, 1, __ATOMIC_RELAXED);
        bare_fork();
    }
    _exit(0);
}

/* ---- wirings ---- */

typedef struct wiring {
    const char *name;
    int fetchers, item_maps, mappers, map_threads, batch_maps, batch_mappers, collate, in_turn;
    int threaded, transfers;
} wiring;

static const wiring wirings[] = {
    {"items", 2, 0, 0, 0, 0, 0, 0, 0, 0, 0}, /* the figures */
    {"batches", 2, 0, 0, 0, 1, 2, 0, 0, 0, 0},
    {"in turn", 2, 1, 2, 0, 1, 1, 1, 1, 0, 0},
    {"mixed", 2, 1, 2, 1, 1, 1, 0, 0, 1, 1},
};
#define WIRINGS ((int)(sizeof wirings / sizeof *wirings))

static const dlp_shm_desc shm_ = {.max_kills = MAX_KILLS};

static void wire(rig *r, const wiring *w) {
    dlp_workers_desc *all[4];
    rig_init(r, 100003, 64);
    rig_order(r, DLP_ORDER_SHUFFLED);
    shm_processes(r, w->fetchers, w->in_turn);
    all[0] = &r->fetch;
    all[1] = &r->item_map[0].workers;
    all[2] = &r->batch_by;
    all[3] = &r->batch_map[0].workers;
    for (int i = 0; i < 4; i++) {
        all[i]->worker_init = chaos_init;
        all[i]->worker_user = &first_of[i];
    }
    if (!w->collate) all[2]->worker_init = NULL, all[2]->worker_user = NULL;
    if (w->map_threads) {
        all[1]->placement = DLP_PLACE_THREADS;
        all[1]->worker_init = NULL;
    }
    all[1]->num_workers = w->mappers;
    all[3]->num_workers = w->batch_mappers;
    r->dataset.fetch = chaos_fetch;
    r->item_map[0].map.item = chaos_item_map;
    r->batch_map[0].map.batch = chaos_batch_map;
    r->n_item_maps = w->item_maps;
    r->n_batch_maps = w->batch_maps;
    r->n_transfers = w->transfers;
    r->sampler.threaded = w->threaded;
    if (w->collate) {
        r->batch.collate = chaos_collate;
        r->batch_by.num_workers = 2;
    }
    r->pipe.epochs = DLP_FOREVER;
    r->pipe.prefetch_factor = 8;
    r->pipe.shm = &shm_;
}

/* ---- stretches with and without kills ---- */

typedef struct tally {
    uint64_t batches, items;
    uint64_t ns[2], rows[2]; /* without kills, with */
    double share[1024];      /* of each pair of stretches */
    int n;
} tally;

/* Take batches for ns, with or without kills. Returns rows a second, or a negative number. */
static double stretch(dlp_pipe *p, rig *r, tally *t, int kills, uint64_t ns) {
    uint64_t per = rig_batches(r), from, now, rows = 0;
    __atomic_store_n(&shared_->armed, (uint32_t)kills, __ATOMIC_RELAXED);
    from = now = test_now_ns();
    while (now - from < ns) {
        dlp_batch *b;
        int rc = dlp_pipe_next_timeout(p, &b, 20000);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) {
            rig_say(p, rc);
            return -1;
        }
        CHECK(b->sequence == t->batches);
        CHECK(rig_batch_same(r, b, t->batches / per, t->batches % per));
        rows += b->count;
        t->batches++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        if (test_failures) return -1;
        now = test_now_ns();
    }
    t->items += rows;
    t->ns[kills] += now - from;
    t->rows[kills] += rows;
    return (double)rows * 1e9 / (double)(now - from);
}

static int by_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static int by_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void say_ms(const char *bench, const char *wiring_name, uint64_t *ns, uint32_t n) {
    if (n > MOST) n = MOST;
    if (n == 0) return;
    qsort(ns, n, sizeof *ns, by_u64);
    printf("{\"bench\":\"%s\",\"regime\":\"%s\",\"unit\":\"ms\",\"ours\":%.3f,\"p95\":%.3f,"
           "\"worst\":%.3f,\"rounds\":%" PRIu32 "}\n",
           bench, wiring_name, (double)ns[n / 2] / 1e6, (double)ns[n - 1 - n / 20] / 1e6,
           (double)ns[n - 1] / 1e6, n);
}

static void say(const wiring *w, tally *t, dlp_pipe *p) {
    double total = (double)t->rows[1] / (double)t->ns[1] * (double)t->ns[0] / (double)t->rows[0];
    qsort(t->share, (size_t)t->n, sizeof *t->share, by_double);
    printf("%s: %" PRIu64 " items, each once, in order; %" PRIu32 " kills in %.1f s, %" PRIu64
           " restarts\n",
           w->name, t->items, shared_->kills, (double)t->ns[1] / 1e9, inside_restarts(p));
    if (t->n > 0)
        printf("{\"bench\":\"kills_throughput\",\"regime\":\"%s\",\"unit\":\"share\",\"ours\":%.4f,"
               "\"whole\":%.4f,\"kills_s\":%.1f,\"items_s\":%.0f,\"rounds\":%d}\n",
               w->name, t->share[t->n / 2], total, (double)shared_->kills * 1e9 / (double)t->ns[1],
               (double)t->rows[0] * 1e9 / (double)t->ns[0], t->n);
    say_ms("kills_first_item", w->name, shared_->first_ns, shared_->n_first);
    say_ms("kills_worker_back", w->name, shared_->begun_ns, shared_->n_begun);
    say_ms("kills_bare_fork", w->name, shared_->forked_ns, shared_->n_forked);
}

/* The killer, too, may get no core for a while: 20 s are too long. */
static bool has_killed(const tally *t) {
    return __atomic_load_n(&shared_->kills, __ATOMIC_RELAXED) > 0 ||
           t->ns[1] > UINT64_C(20000000000);
}

static void run(const wiring *w, double seconds, double per_second, uint64_t least) {
    static tally t;
    uint64_t piece = seconds >= 20 ? 1000000000u : 250000000u;
    rig r;
    dlp_pipe *p;
    pid_t pid;
    memset(&t, 0, sizeof t);
    memset(shared_, 0, sizeof *shared_);
    wire(&r, w);
    if (rig_open(&r, &p) != DLP_OK) return;
    fflush(stdout);
    pid = fork();
    if (pid == 0) killer(per_second);
    CHECK(pid > 0);
    stretch(p, &r, &t, 0, 100000000); /* it gets going */
    memset(t.ns, 0, sizeof t.ns);
    memset(t.rows, 0, sizeof t.rows);
    while (test_failures == 0 &&
           ((double)t.ns[1] < seconds * 1e9 || t.items < least || !has_killed(&t))) {
        double without = stretch(p, &r, &t, 0, piece / 2), with = stretch(p, &r, &t, 1, piece);
        if (without <= 0 || with <= 0) break;
        if (t.n < 1024) t.share[t.n++] = with / without;
    }
    __atomic_store_n(&shared_->over, 1u, __ATOMIC_RELAXED);
    if (pid > 0) CHECK(waitpid(pid, NULL, 0) == pid);
    say(w, &t, p);
    CHECK(shared_->kills > 0 && inside_restarts(p) + WORKERS >= shared_->kills);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : getenv("SOAK") ? 60 : getenv("SHORT") ? 0.5 : 2;
    double per_second = argc > 2 ? atof(argv[2]) : seconds >= 20 ? 12 : 40;
    SHM_NEEDS("shm_chaos");
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared_ = shm_shared(sizeof *shared_);
    for (int i = 0; i < WIRINGS && test_failures == 0; i++) {
        if (argc > 3 && atoi(argv[3]) != i) continue;
        run(&wirings[i], i == 0 ? seconds : seconds / 2, per_second,
            seconds >= 20 && i == 0 ? 200000 : 0);
    }
    return test_end("shm_chaos");
}
