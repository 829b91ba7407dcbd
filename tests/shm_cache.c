/* The cache shared by worker processes; and one that dies with a cell half written. */
#include "atomics_hook.h"
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe_shm.h"

#include "pipe_rig.h"
#include "shm_rig.h"
#include "cache_rig.h"

typedef struct shared {
    cache_count count;
    uint32_t armed; /* 1: who claims a cell next dies, 2: it did */
    uint32_t cells; /* claimed while armed */
} shared;

static shared *all;
static dlp_pipe *now; /* the pipe that runs, as a worker sees it */
static pid_t parent;

static void atomics_hook(int kind, const void *at) {
    static int last;
    bool in_cells;
    uint32_t one = 1;
    if (kind >= 0) {
        last = kind;
        return;
    }
    if (all == NULL || getpid() == parent || now == NULL || now->region == NULL) return;
    in_cells = (const uint8_t *)at >= now->region + now->off_cache &&
               (const uint8_t *)at <
                   now->region + now->off_cache + now->cache_cells * now->cache_cell_bytes;
    if (!in_cells || last != HOOK_CHANGE) return;
    if (__atomic_load_n(&all->armed, __ATOMIC_SEQ_CST) != 1) return;
    if (__atomic_add_fetch(&all->cells, 1, __ATOMIC_SEQ_CST) < 20) return;
    if (__atomic_compare_exchange_n(&all->armed, &one, 2, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        kill(getpid(), SIGKILL);
}

static void processes(cache_case *c, uint64_t n_items) {
    memset(all, 0, sizeof *all);
    cache_case_init(c, n_items, 8);
    c->count = &all->count;
    c->placement = DLP_PLACE_PROCESSES;
    c->workers = 2;
    c->maps = 1;
    c->epochs = 3;
}

static void shm_cache__processes__share_what_each_fetched(void) {
    for (int kind = 0; kind < 4; kind++) {
        cache_case c;
        cache_run with, without;
        processes(&c, 96);
        c.collate = kind & 1;
        c.ragged = kind >> 1;
        c.placement = DLP_PLACE_THREADS;
        without = cache_go(&c);
        c.bytes = 1 << 20;
        c.placement = DLP_PLACE_PROCESSES;
        with = cache_go(&c);
        CHECK(with.rc == DLP_END && with.digest == without.digest);
        CHECK(with.calls >= 96 && with.calls <= 96 + 16 && with.s.cache_misses == with.calls);
        CHECK(with.s.cache_bytes == with.s.cache_capacity);
    }
}

static void shm_cache__writer_killed__cell_is_kept_by_another(void) {
    cache_case c;
    cache_run with, without;
    processes(&c, 96);
    c.placement = DLP_PLACE_THREADS;
    without = cache_go(&c);
    memset(all, 0, sizeof *all);
    c.bytes = 1 << 20;
    c.placement = DLP_PLACE_PROCESSES;
    all->armed = 1;
    if (cache_open(&c, &now) != DLP_OK) return;
    with = cache_take(&c, now);
    now = NULL;
    CHECK(all->armed == 2 && with.rc == DLP_END && with.digest == without.digest);
    CHECK(with.s.cache_bytes == with.s.cache_capacity);
    CHECK(with.s.stages[2].restarts == 1 && with.s.stages[2].died_by == SIGKILL);
}

/* What a monitor tells of it. */
static void shm_cache__monitored__hits_and_room(void) {
    cache_case c;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_monitor *m = NULL;
    dlp_stats s, seen;
    dlp_error err;
    char who[16];
    processes(&c, 32);
    snprintf(who, sizeof who, "%d", (int)getpid());
    c.bytes = 20 * 40;
    if (cache_open(&c, &p) != DLP_OK) return;
    while (dlp_pipe_next(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.cache_hits > 0 && s.cache_capacity == 800);
    CHECK(dlp_monitor_open(&m, who, &err) == DLP_OK);
    if (m != NULL) {
        CHECK(dlp_pipe_stats(dlp_monitor_pipe(m), &seen) == DLP_OK && seen.cache_hits == s.cache_hits);
        CHECK(seen.cache_capacity == 800 && seen.cache_all_bytes == 32 * 40);
        CHECK(seen.cache_bytes == 800 && seen.cache_misses == s.cache_misses);
        dlp_monitor_close(m);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    SHM_NEEDS("shm_cache");
    parent = getpid();
    all = shm_shared(sizeof *all);
    shm_cache__processes__share_what_each_fetched();
    shm_cache__writer_killed__cell_is_kept_by_another();
    shm_cache__monitored__hits_and_room();
    return test_end("shm_cache");
}
