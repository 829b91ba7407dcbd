/* needs: cache */
/* The cache shared by worker processes; one that dies with a cell half written. Processes that are
   added, retired and killed while the pipe runs. A subscriber that is late. */
/* own: hook: a worker dies, or a subscriber is late, at an access of an atomic */
#include "../../rig/atomics_hook.h"
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/cache_rig.h"

typedef struct shared {
    cache_count count;
    uint32_t armed; /* 1: who claims a cell next dies, 2: it did */
    uint32_t cells; /* claimed while armed */
} shared;

static shared *all;
static dlp_pipe *now; /* the pipe that runs, as a worker sees it */
static pid_t parent;

/* The scheduler's thread stands still before it schedules batch gate_, and a subscriber does behind
   its look at a slot until that thread has scheduled all before gate_. */
static dlp_pipe *scheduler_of_; /* NULL: they do not */
static uint64_t gate_;
static const void *behind_;       /* the header of the slot */
static _Thread_local int others_; /* of this program's threads: not the scheduler's */

static void late(int kind, const void *at) {
    dlp_pipe *p = __atomic_load_n(&scheduler_of_, __ATOMIC_SEQ_CST);
    const void *behind = __atomic_load_n(&behind_, __ATOMIC_SEQ_CST);
    if (p == NULL) return;
    if (!others_ && kind == HOOK_LOAD && at == &p->ctl->base)
        while (p->schedule.published >= __atomic_load_n(&gate_, __ATOMIC_SEQ_CST))
            test_pause(100000);
    if (kind != -1 || behind == NULL || at != behind) return;
    __atomic_store_n(&behind_, NULL, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&gate_, 2, __ATOMIC_SEQ_CST);
    for (int ms = 0; ms < 5000 && dlpi_credit_seen(&p->ctl->tail) < gate_; ms++)
        test_pause(1000000);
}

static void atomics_hook(int kind, const void *at) {
    static _Thread_local int last;
    const uint8_t *cells;
    bool in_cells;
    uint32_t one = 1;
    int kept;
    late(kind, at);
    if (kind >= 0) {
        last = kind;
        return;
    }
    if (all == NULL || getpid() == parent || now == NULL || now->region == NULL) return;
    kept = DLPI_OWN(now->keeper_stage->id, DLPI_CACHE_CELLS);
    cells = dlpi_area_at(now, kept, 0);
    in_cells =
        (const uint8_t *)at >= cells && (const uint8_t *)at < cells + dlpi_area_bytes(now, kept);
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
    dlp_stats s, shown;
    dlp_error err;
    char who[16];
    processes(&c, 32);
    snprintf(who, sizeof who, "%d", (int)getpid());
    c.bytes = 20 * 40;
    if (cache_open(&c, &p) != DLP_OK) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.cache_hits > 0 && s.cache_capacity == 800);
    CHECK(dlp_monitor_open(&m, who, &err) == DLP_OK);
    if (m != NULL) {
        CHECK(dlp_monitor_stats(m, &shown) == DLP_OK);
        CHECK(shown.cache_hits == s.cache_hits);
        CHECK(shown.cache_capacity == 800 && shown.cache_all_bytes == 32 * 40);
        CHECK(shown.cache_bytes == 800 && shown.cache_misses == s.cache_misses);
        dlp_monitor_close(m);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void tuned(rig *r) {
    rig_init(r, 203, 8);
    rig_order(r, DLP_ORDER_SHUFFLED);
    r->n_item_maps = 1;
    r->pipe.epochs = DLP_FOREVER;
    r->pipe.prefetch_factor = 3;
    r->fetch.workers_max = r->item_map[0].workers.workers_max = 4;
    shm_processes(r, 2, 0);
}

static void kill_worker(dlp_pipe *p, uint32_t i) {
    dlp_worker_stats w;
    for (int ms = 0; ms < 20000; ms++) { /* it may not have begun yet */
        CHECK(dlp_pipe_worker_stats(p, i, &w) == DLP_OK);
        if (w.process) break;
        test_pause(1000000);
    }
    CHECK(w.process);
    if (w.pid > 1) kill(w.pid, SIGKILL);
}

/* Workers come, go and die: parked ones, and those at work. */
static void shm_tuning__changed_and_killed__same_order_and_bytes(void) {
    uint64_t seed = 9;
    rig r;
    dlp_pipe *p;
    dlp_stats s;
    uint64_t per, n = (uint64_t)test_share(240, 6000);
    tuned(&r);
    if (rig_open(&r, &p) != DLP_OK) return;
    per = rig_batches(&r);
    for (uint64_t i = 0; i < n; i++) {
        dlp_batch *b;
        int rc = dlp_pipe_next_timeout(p, &b, 20000);
        if (rc != DLP_OK) rig_say(p, rc);
        CHECK(rc == DLP_OK && rig_batch_same(&r, b, i / per, i % per));
        if (rc != DLP_OK) break;
        CHECK(dlp_pipe_set_workers(p, 2 + (int)test_pick(&seed, 2), (int)test_pick(&seed, 4) + 1) ==
              DLP_OK);
        if (i % 24 == 5) kill_worker(p, test_pick(&seed, 8));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    for (int i = 0; i < 2000; i++) {
        struct timespec t = {0, 10000000};
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        if (s.stages[2].restarts + s.stages[3].restarts > 0) break;
        nanosleep(&t, NULL);
    }
    CHECK(s.stages[2].restarts + s.stages[3].restarts > 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

/* What a monitor tells of the number at work, and why. */
static void shm_tuning__monitored__number_and_notes(void) {
    rig r;
    dlp_pipe *p;
    dlp_monitor *m = NULL;
    dlp_stats s;
    dlp_error err;
    char who[16], words[4096];
    tuned(&r);
    snprintf(who, sizeof who, "%d", (int)getpid());
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_monitor_open(&m, who, &err) == DLP_OK);
    CHECK(dlp_pipe_set_workers(p, 2, 3) == DLP_OK);
    if (m != NULL) {
        CHECK(dlp_monitor_refresh(m, &err) == DLP_OK);
        CHECK(dlp_monitor_stats(m, &s) == DLP_OK);
        CHECK(s.stages[2].workers == 3 && s.stages[2].workers_min == 1);
        CHECK(s.stages[2].workers_max == 4 && s.stages[3].workers == 2);
        CHECK(s.tunes == 1 && s.tune[0].from == 2 && s.tune[0].to == 3 && s.tune[0].stage == 2);
        CHECK(dlp_monitor_explain(m, words, sizeof words) > 0);
        CHECK(strstr(words, "'fetch' 2 -> 3: set by dlp_pipe_set_workers") != NULL);
        dlp_monitor_close(m);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

/* A cell that somebody writes is neither read nor claimed; recovery empties the dead one's only. */
static void cache__cell_being_written__left_alone_until_its_writer_is_dead(void) {
    cache_case c;
    dlp_pipe *p;
    dlpi_cache_cell *cell;
    dlpi_worker *w;
    dlpi_unit t;
    uint64_t words[3] = {11, 22, 33}, label = 0;
    cache_case_init(&c, 16, 8);
    c.bytes = 1 << 20;
    if (cache_open(&c, &p) != DLP_OK) return;
    w = &p->workers[p->fetch->first_worker];
    cell = dlpi_cache_cell_at(p, dlpi_cache_at(p, 0, 5));
    memset(&t, 0, sizeof t);
    w->item.index = 5;
    w->data[0] = words;
    w->data[1] = &label;
    cell->word = dlpi_cache_full(5) | 9; /* of worker 8 */
    CHECK(!dlpi_cache_get(w, &t, 0));
    dlpi_cache_put(w, 0, 0, false);
    CHECK(cell->word == (dlpi_cache_full(5) | 9) && w->block->kept_bytes == 0);
    w->block->kept_cell = 6; /* we died before our swap: the cell is the other's */
    dlpi_cache_recover(w);
    CHECK(cell->word == (dlpi_cache_full(5) | 9) && w->block->kept_cell == 0);
    cell->word = dlpi_cache_full(5) | ((uint64_t)w->global + 1);
    w->block->kept_cell = 6; /* we died behind it */
    dlpi_cache_recover(w);
    CHECK(cell->word == 0 && w->block->kept_cell == 0);
    dlpi_cache_put(w, 0, 0, false);
    CHECK(cell->word == dlpi_cache_full(5) && w->block->kept_bytes > 0 && w->block->kept_cell == 0);
    w->block->kept_cell = 6; /* we died behind the full word */
    dlpi_cache_recover(w);
    words[0] = label = 1;
    CHECK(cell->word == dlpi_cache_full(5) && dlpi_cache_get(w, &t, 0) && words[0] == 11);
    w->item.index = 5 + (UINT64_C(1) << 48); /* no tag is ever taken for another */
    CHECK(dlpi_cache_full(5 + (UINT64_C(1) << 48)) != dlpi_cache_full(5));
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- subscribers ---- */

static int not_the_scheduler(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    others_ = 1;
    *state = NULL;
    return 0;
}

static void *serve(void *p) {
    others_ = 1;
    CHECK(dlp_shm_serve(p, 20000) == DLP_END);
    return NULL;
}

/* A subscriber has looked at a slot when the scheduler puts batch 4 into that one and batch 5 into
   one behind it. */
static void share_one__older_batch_in_a_slot_looked_at__taken_first(void) {
    char name[64];
    dlp_shm_desc shm = {.share = DLP_SHARE_ONE, .serve_only = 1};
    rig r;
    dlp_pipe *p;
    dlp_subscriber *s = NULL;
    dlp_batch *b, *held[4] = {NULL, NULL, NULL, NULL};
    dlp_error err;
    pthread_t owner;
    const dlp_subscriber_desc d = {.max_held = 5};
    rig_init(&r, 48, 8);
    rig_workers(&r, 1, DLP_DISPATCH_CLAIM);
    snprintf(name, sizeof name, "shm_cache.%d", (int)getpid());
    shm.name = name;
    r.pipe.shm = &shm;
    r.pipe.prefetch_factor = 2;
    r.pipe.max_held = 5;
    r.fetch.worker_init = not_the_scheduler;
    r.sampler.threaded = 1;
    others_ = 1;
    if (rig_open(&r, &p) != DLP_OK) return;
    pthread_create(&owner, NULL, serve, p);
    gate_ = 4;
    __atomic_store_n(&scheduler_of_, p, __ATOMIC_SEQ_CST);
    CHECK(dlp_subscriber_open(&s, name, &d, &err) == DLP_OK);
    for (int i = 0; s != NULL && i < 6; i++) {
        const void *header = &dlpi_subscriber_slot(&s->s, 4)->header;
        if (i == 4) __atomic_store_n(&behind_, header, __ATOMIC_SEQ_CST);
        if (i == 4) s->back = 0; /* it searches all slots, as after a hand-back */
        CHECK(dlp_subscriber_next_timeout(s, &b, 20000) == DLP_OK && b->in_epoch == (uint64_t)i);
        if (i == 4) CHECK(dlpi_slot_of(p, 4) == 4 && dlpi_slot_of(p, 5) > 4);
        if (i < 4) held[i] = b;
        if (i >= 4) CHECK(dlp_subscriber_release(s, b) == DLP_OK);
    }
    __atomic_store_n(&gate_, UINT64_MAX, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 4; i++) CHECK(dlp_subscriber_release(s, held[i]) == DLP_OK);
    CHECK(dlp_subscriber_next_timeout(s, &b, 20000) == DLP_END);
    pthread_join(owner, NULL);
    __atomic_store_n(&scheduler_of_, NULL, __ATOMIC_SEQ_CST);
    dlp_subscriber_close(s);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

int main(void) {
    SHM_NEEDS("shm_cache");
    parent = getpid();
    all = shm_shared(sizeof *all);
    cache__cell_being_written__left_alone_until_its_writer_is_dead();
    shm_cache__processes__share_what_each_fetched();
    shm_cache__writer_killed__cell_is_kept_by_another();
    shm_cache__monitored__hits_and_room();
    shm_tuning__changed_and_killed__same_order_and_bytes();
    shm_tuning__monitored__number_and_notes();
    share_one__older_batch_in_a_slot_looked_at__taken_first();
    return test_end("shm_cache");
}
