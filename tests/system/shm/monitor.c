/* needs: pictures */
/* What a monitor tells of a pipe is what the pipe tells of itself: of all kinds of pipes, from the
   same process and from another, of one that hangs or is stopped; of several in a process, of a
   newer layout, and of one that is gone. */
/* own: inside: regions of a newer version, and damaged ones, are written */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_shm.h"
#include "../../rig/pipe_rig.h"
#include <signal.h>
#include <sys/wait.h>

static uint64_t fail_every; /* items of which one fails, 0: none */

static void sleep_ms(uint32_t ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static int watch_fetch(void *user, dlp_item *it) {
    if (fail_every && it->index % fail_every == 3) return dlp_fail(it->call, EIO, "torn page");
    return rig_fetch(user, it);
}

/* The thread sanitizer has a thread of its own. */
static const dlp_shm_desc any_fork = {.allow_fork_with_threads = 1};

/* workers: below 0 as many processes. */
static void watch_rig(rig *r, int workers, int kind) {
    int processes = workers < 0;
    if (processes) workers = -workers;
    rig_init(r, 403, 8);
    rig_order(r, DLP_ORDER_SHUFFLED);
    rig_workers(r, workers, kind & 1 ? DLP_DISPATCH_BATCHES : 0);
    r->dataset.fetch = watch_fetch;
    r->pipe.name = "watched";
    r->pipe.shm = &any_fork;
    r->pipe.prefetch_factor = 4;
    r->pipe.max_held = 2;
    r->pipe.unordered = kind >> 1 & 1;
    r->pipe.epochs = 3;
    r->n_item_maps = kind >> 2 & 1;
    r->n_batch_maps = kind >> 3 & 1;
    r->n_transfers = kind >> 4 & 1;
    r->transfer.workers.num_workers = workers > 0 && !processes;
    r->fetch.placement = processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
    for (int i = 0; i < RIG_MAPS; i++)
        r->item_map[i].workers.placement = r->batch_map[i].workers.placement = r->fetch.placement;
    r->pipe.trace_bytes = kind & 1 ? 0 : 300;
    r->fetch.on_error = DLP_ON_ERROR_REPLACE;
    if (fail_every != (kind & 1 ? 50u : 0)) fail_every = kind & 1 ? 50 : 0; /* others may run */
}

static int stages_same(const dlp_stage_stats *a, const dlp_stage_stats *b) {
    return strcmp(a->name, b->name) == 0 && a->kind == b->kind && a->workers == b->workers &&
           a->unit_is_batch == b->unit_is_batch && a->items == b->items && a->bytes == b->bytes &&
           a->retried == b->retried && a->replaced == b->replaced && a->left_out == b->left_out &&
           a->busy_ns == b->busy_ns && a->starved_ns == b->starved_ns &&
           a->blocked_ns == b->blocked_ns && a->p50_ns == b->p50_ns && a->p95_ns == b->p95_ns &&
           a->p99_ns == b->p99_ns && a->max_ns == b->max_ns && a->ready == b->ready;
}

/* All but the moment: cpu_ns moves on while workers check. */
static int stats_same(const dlp_stats *a, const dlp_stats *b) {
    int same = a->batches == b->batches && a->items == b->items && a->bytes == b->bytes &&
               a->wait_ns == b->wait_ns && a->step_ns == b->step_ns &&
               a->step_p50_ns == b->step_p50_ns && a->step_p95_ns == b->step_p95_ns &&
               a->first_batch_ns == b->first_batch_ns && a->epoch == b->epoch &&
               a->batch_size == b->batch_size && a->prefetch_factor == b->prefetch_factor &&
               a->max_held == b->max_held && a->in_flight == b->in_flight && a->ready == b->ready &&
               a->held == b->held && a->slots == b->slots && a->cpus == b->cpus &&
               a->n_stages == b->n_stages && a->n_workers == b->n_workers &&
               a->plan_bytes == b->plan_bytes && a->n_links == b->n_links &&
               memcmp(a->links, b->links, sizeof a->links) == 0;
    for (uint32_t i = 0; same && i < a->n_stages; i++)
        same = stages_same(&a->stages[i], &b->stages[i]);
    return same;
}

static int workers_same(dlp_pipe *p, const dlp_monitor *m, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        dlp_worker_stats a, b;
        if (dlp_pipe_worker_stats(p, i, &a) != DLP_OK) return 0;
        if (dlp_monitor_worker_stats(m, i, &b) != DLP_OK) return 0;
        if (a.stage != b.stage || a.worker != b.worker || a.state != b.state || a.tid != b.tid ||
            a.items != b.items || a.bytes != b.bytes || a.busy_ns != b.busy_ns ||
            a.current_index != b.current_index || a.process != b.process || a.pid != b.pid ||
            a.restarts != b.restarts)
            return 0;
        if ((a.pid == getpid()) == (a.process != 0) || a.pid <= 0 || a.restarts != 0) return 0;
    }
    return 1;
}

static int traces_same(dlp_pipe *p, const dlp_monitor *m, int least) {
    static dlp_trace_event a[4096], b[4096];
    int lanes = dlp_pipe_trace_lanes(p), events = 0;
    if (lanes < 1 || dlp_monitor_trace_lanes(m) != lanes) return 0;
    for (int i = 0; i < lanes; i++) {
        char name[2][32];
        int n = dlp_pipe_trace(p, i, a, 4096, name[0]);
        int k = dlp_monitor_trace(m, i, b, 4096, name[1]);
        if (n != k || strcmp(name[0], name[1]) != 0) return 0;
        if (n > 0 && memcmp(a, b, (size_t)n * sizeof *a) != 0) return 0;
        events += n;
    }
    return events >= least;
}

static int skips_same(dlp_pipe *p, const dlp_monitor *m, int least) {
    dlp_skip a[64], b[64];
    uint64_t total[2] = {0, 0};
    int n = dlp_pipe_skips(p, a, 64, &total[0]), k = dlp_monitor_skips(m, b, 64, &total[1]);
    if (n != k || total[0] != total[1] || n < least) return 0;
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Wait until nothing moves: two looks 12 ms apart that are the same. */
static void settle(dlp_pipe *p, dlp_stats *s) {
    for (int i = 0; i < 500; i++) {
        dlp_stats before;
        dlp_pipe_stats(p, &before);
        sleep_ms(12);
        dlp_pipe_stats(p, s);
        if (stats_same(&before, s)) return;
    }
    printf("the pipe does not settle\n");
    CHECK(0);
}

/* What of the two is not the same, NULL: nothing. */
static const char *look(dlp_pipe *p, dlp_monitor *m, int ran, dlp_stats *a, dlp_stats *b) {
    dlp_error e;
    settle(p, a);
    if (dlp_monitor_refresh(m, &e) != DLP_OK) printf("refresh: %s\n", e.message);
    CHECK(dlp_monitor_refresh(m, &e) == DLP_OK);
    CHECK(dlp_monitor_stats(m, b) == DLP_OK);
    if (!stats_same(a, b)) return "statistics";
    if (!workers_same(p, m, a->n_workers)) return "workers";
    if (!traces_same(p, m, ran)) return "traces";
    return skips_same(p, m, ran && fail_every) ? NULL : "skips";
}

/* Numbers, words and pictures of the two are the same now; ran: there are events and skips. A
   worker that had no core while the pipe settled may go on between two looks: then it is looked
   again. */
static void looks_same(dlp_pipe *p, dlp_monitor *m, int ran) {
    dlp_stats a, b;
    dlp_plan plan;
    char words[2][4096];
    const char *differs = look(p, m, ran, &a, &b);
    for (int i = test_failures ? 98 : 0; i < 100 && differs != NULL; i++)
        differs = look(p, m, ran, &a, &b);
    if (differs) printf("not the same: %s\n", differs);
    CHECK(differs == NULL);
    CHECK(b.elapsed_ns >= a.elapsed_ns && b.elapsed_ns < a.elapsed_ns + UINT64_C(60000000000));
    CHECK(dlp_pipe_batches_per_epoch(p) == dlp_monitor_batches_per_epoch(m));
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && plan.n_links == b.n_links && plan.n_links > 2);
    for (uint32_t i = 0; i < b.n_links; i++) plan.links[i].depth = b.links[i].depth;
    CHECK(memcmp(plan.links, b.links, sizeof b.links) == 0);
    b.elapsed_ns = a.elapsed_ns;
    for (uint32_t i = 0; i < a.n_stages; i++) {
        b.stages[i].cpu_ns = a.stages[i].cpu_ns;
        b.stages[i].core_wait_ns = a.stages[i].core_wait_ns;
    }
    CHECK(dlp_stats_explain(&a, words[0], sizeof words[0]) > 0);
    CHECK(dlp_stats_explain(&b, words[1], sizeof words[1]) > 0);
    CHECK(strcmp(words[0], words[1]) == 0);
    CHECK(dlp_monitor_explain(m, words[1], sizeof words[1]) > 0);
    CHECK(strncmp(words[1], "Limit: ", 7) == 0);
}

static int open_own(dlp_monitor **m, const char *rest) {
    char who[64];
    dlp_error e;
    int rc;
    snprintf(who, sizeof who, "%d%s", (int)getpid(), rest);
    rc = dlp_monitor_open(m, who, &e);
    if (rc != DLP_OK) printf("open %s: %s\n", who, e.message);
    return rc;
}

static void monitor__every_kind_of_pipe__agrees(void) {
    for (int kind = 0; kind < 32; kind += getenv("SHORT") ? 5 : 1) {
        for (int workers = -2; workers <= 3; workers += 2 + (workers == 0)) {
            rig r;
            dlp_pipe *p = NULL;
            dlp_batch *b[2];
            dlp_monitor *m = NULL;
            watch_rig(&r, workers, kind);
            if (rig_open(&r, &p) != DLP_OK) continue;
            CHECK(open_own(&m, "") == DLP_OK);
            if (m) looks_same(p, m, 0);
            for (int i = 0; i < 20; i++) {
                CHECK(dlp_pipe_next_timeout(p, &b[0], 20000) == DLP_OK);
                CHECK(dlp_pipe_release(p, b[0]) == DLP_OK);
            }
            CHECK(dlp_pipe_next_timeout(p, &b[0], 20000) == DLP_OK);
            CHECK(dlp_pipe_next_timeout(p, &b[1], 20000) == DLP_OK);
            if (m) looks_same(p, m, 1);
            CHECK(dlp_pipe_release(p, b[1]) == DLP_OK);
            if (m) looks_same(p, m, 1);
            CHECK(dlp_pipe_release(p, b[0]) == DLP_OK);
            while (dlp_pipe_next_timeout(p, &b[0], 20000) == DLP_OK) dlp_pipe_release(p, b[0]);
            if (m) looks_same(p, m, 1);
            dlp_monitor_close(m);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            rig_free(&r);
        }
    }
}

/* The copy is of one moment: what happens later is not in it before the next refresh. */
static void monitor__without_refresh__stands_still(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_monitor *m = NULL;
    dlp_stats before, after;
    watch_rig(&r, 2, 0);
    CHECK(rig_open(&r, &p) == DLP_OK && open_own(&m, "") == DLP_OK);
    CHECK(dlp_monitor_stats(m, &before) == DLP_OK);
    for (int i = 0; i < 9; i++)
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    sleep_ms(5);
    CHECK(dlp_monitor_stats(m, &after) == DLP_OK);
    CHECK(memcmp(&before, &after, sizeof before) == 0 && before.batches == 0);
    CHECK(dlp_monitor_refresh(m, NULL) == DLP_OK);
    CHECK(dlp_monitor_stats(m, &after) == DLP_OK && after.batches == 9);
    dlp_monitor_close(m);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

/* While the pipe runs at full speed, each copy is possible in itself. */
static void monitor__pipe_at_full_speed__is_never_impossible(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_monitor *m = NULL;
    uint64_t last = 0, looks = 0;
    watch_rig(&r, 2, 2);
    r.pipe.epochs = DLP_FOREVER;
    CHECK(rig_open(&r, &p) == DLP_OK && open_own(&m, "") == DLP_OK);
    for (int i = 0; i < test_share(4000, 100000); i++) {
        dlp_stats s;
        dlp_error e;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        dlp_pipe_release(p, b);
        if (i % 8 != 0) continue;
        if (dlp_monitor_refresh(m, &e) != DLP_OK) printf("%s\n", e.message);
        CHECK(dlp_monitor_refresh(m, &e) == DLP_OK);
        CHECK(dlp_monitor_stats(m, &s) == DLP_OK);
        CHECK(s.batches == (uint64_t)i + 1 && s.batches >= last && s.in_flight <= 4 &&
              s.ready <= s.in_flight && s.held == 0);
        CHECK(s.stages[2].items <= s.items + 5 * 8 + 8);
        last = s.batches;
        looks++;
    }
    CHECK(looks > 10);
    dlp_monitor_close(m);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

/* ---- another process ---- */

typedef struct shared {
    uint32_t step; /* the child's and the parent's turn */
    uint32_t shut;
    dlp_stats stats;
} shared;

static shared *board;

static void turn_set(uint32_t step) { __atomic_store_n(&board->step, step, __ATOMIC_SEQ_CST); }
static uint32_t turn(void) { return __atomic_load_n(&board->step, __ATOMIC_SEQ_CST); }
static int turn_await(uint32_t step) {
    for (int i = 0; i < 20000; i++) {
        if (__atomic_load_n(&board->step, __ATOMIC_SEQ_CST) >= step) return 1;
        sleep_ms(1);
    }
    return 0;
}

static int board_fetch(void *user, dlp_item *it) {
    if (it->index == 77)
        while (__atomic_load_n(&board->shut, __ATOMIC_SEQ_CST) != 0) sleep_ms(1);
    return rig_fetch(user, it);
}

/* Take 5 batches, hang at item 77, go on, close; wait for the parent at each of these. */
static void child(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_stats s;
    rig_init(&r, 100, 8);
    r.dataset.fetch = board_fetch;
    r.pipe.name = "child";
    r.fetch.num_workers = 2;
    if (rig_open(&r, &p) != DLP_OK) _exit(1);
    for (int i = 0; i < 5; i++)
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    do { /* until it was at rest */
        settle(p, &s);
        board->stats = s;
        turn_set(1);
        for (int i = 0; i < 20000 && turn() == 1; i++) sleep_ms(1);
    } while (turn() == 0);
    if (turn() == 1) _exit(1);
    for (int i = 5; i < 9; i++)
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    turn_set(3); /* the next batch hangs */
    if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    if (dlp_pipe_close(p) != DLP_OK) _exit(1);
    turn_set(5);
    turn_await(6);
    _exit(test_failures != 0);
}

/* Wait until one of n workers is seen to hang at item 77, and all have begun. */
static int await_hang(dlp_monitor *m, uint32_t n, dlp_worker_stats *w) {
    int hangs = 0, begun = 0;
    for (int i = 0; i < 2000 && (hangs != 1 || begun != (int)n); i++) {
        hangs = begun = 0;
        CHECK(dlp_monitor_refresh(m, NULL) == DLP_OK);
        for (uint32_t k = 0; k < n; k++) {
            CHECK(dlp_monitor_worker_stats(m, k, &w[k]) == DLP_OK);
            hangs += w[k].current_index == 77 && w[k].current_age_ns > 50000000;
            begun += w[k].pid > 0;
        }
        sleep_ms(10);
    }
    return hangs == 1 && begun == (int)n;
}

/* Does explain say, within its patience, a line with these words? */
static int await_words(dlp_monitor *m, const char *line, const char *one, const char *two) {
    char words[4096];
    const char *at = NULL;
    for (int i = 0; i < 500 && at == NULL; i++, sleep_ms(10)) {
        CHECK(dlp_monitor_refresh(m, NULL) == DLP_OK);
        CHECK(dlp_monitor_explain(m, words, sizeof words) > 0);
        at = strstr(words, line);
        if (at == NULL) at = strstr(words, "Limit: one item: "); /* it holds all for long */
        if (at == NULL) continue;
        words[at - words + (long)strcspn(at, "\n")] = 0;
    }
    return at != NULL && strstr(at, one) != NULL && strstr(at, two) != NULL;
}

static void monitor__of_another_process__runs_hangs_is_stopped_is_gone(void) {
    dlp_monitor *m = NULL, *late = NULL;
    dlp_worker_stats w[2];
    dlp_stats s;
    dlp_error e;
    char who[32];
    int status, hangs = 0;
    pid_t pid;
    memset(board, 0, sizeof *board);
    board->shut = 1;
    fflush(NULL);
    if ((pid = fork()) == 0) child();
    snprintf(who, sizeof who, "%d", (int)pid);
    CHECK(turn_await(1));
    CHECK(dlp_monitor_open(&m, who, &e) == DLP_OK);
    if (m == NULL) return;
    for (int i = 0; i < 100; i++) {
        CHECK(dlp_monitor_stats(m, &s) == DLP_OK);
        if (stats_same(&s, &board->stats)) break;
        turn_set(0); /* it was not at rest */
        CHECK(turn_await(1) && dlp_monitor_refresh(m, &e) == DLP_OK);
    }
    CHECK(stats_same(&s, &board->stats));
    CHECK(s.batches == 5 && s.items == 40);
    turn_set(2);
    CHECK(turn_await(3));
    CHECK(await_hang(m, 2, w));
    CHECK(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid);
    CHECK(dlp_monitor_refresh(m, &e) == DLP_OK);
    CHECK(dlp_monitor_open(&late, who, &e) == DLP_OK); /* stopped all the time */
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(dlp_monitor_worker_stats(late, i, &w[i]) == DLP_OK && w[i].pid == pid);
        if (w[i].current_index != 77) continue;
        hangs++;
        CHECK(w[i].state == DLP_WORKER_BUSY && w[i].current_age_ns > 50000000);
    }
    CHECK(hangs == 1);
    CHECK(dlp_monitor_stats(m, &s) == DLP_OK && s.batches == 9);
    CHECK(await_words(m, "Longest: ", "'fetch'", "item 77 for"));
    CHECK(kill(pid, SIGCONT) == 0);
    __atomic_store_n(&board->shut, 0, __ATOMIC_SEQ_CST);
    CHECK(turn_await(5));
    CHECK(dlp_monitor_refresh(m, &e) == DLP_ERR_STATE && strstr(e.message, "closed") != NULL);
    CHECK(dlp_monitor_stats(m, &s) == DLP_OK && s.batches == 9); /* the last copy */
    CHECK(m->fd < 0); /* and the pipe's memory is let go of */
    turn_set(6);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(dlp_monitor_refresh(late, &e) == DLP_ERR_STATE && strstr(e.message, "gone") != NULL);
    CHECK(dlp_monitor_open(&late, who, &e) == DLP_ERR_SYSTEM && e.errnum == ESRCH);
    dlp_monitor_close(late);
    dlp_monitor_close(m);
}

static void monitor__owner_killed__says_so(void) {
    dlp_monitor *m = NULL;
    dlp_error e;
    char who[32];
    pid_t pid;
    siginfo_t info;
    memset(board, 0, sizeof *board);
    fflush(NULL);
    if ((pid = fork()) == 0) child();
    snprintf(who, sizeof who, "%d:child", (int)pid);
    CHECK(turn_await(1) && dlp_monitor_open(&m, who, &e) == DLP_OK);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0); /* a zombie now */
    CHECK(dlp_monitor_refresh(m, &e) == DLP_ERR_STATE && strstr(e.message, "gone") != NULL);
    CHECK(dlp_monitor_refresh(m, &e) == DLP_ERR_STATE);
    CHECK(waitpid(pid, NULL, 0) == pid);
    dlp_monitor_close(m);
}

/* A pipe with worker processes, of which one hangs, one is killed, and all are stopped. */
static void monitor__worker_processes__are_seen(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_monitor *m = NULL;
    dlp_worker_stats w[3];
    int restarts = 0;
    memset(board, 0, sizeof *board);
    board->shut = 1;
    rig_init(&r, 100, 8);
    r.dataset.fetch = board_fetch;
    r.pipe.shm = &any_fork;
    r.fetch.num_workers = 3;
    r.fetch.placement = DLP_PLACE_PROCESSES;
    CHECK(rig_open(&r, &p) == DLP_OK && open_own(&m, "") == DLP_OK);
    if (m == NULL) return;
    for (int i = 0; i < 9; i++)
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(await_words(m, "Longest: ", "'fetch'", "item 77 for"));
    CHECK(await_hang(m, 3, w) && w[0].process && w[1].process && w[2].process);
    CHECK(w[0].pid != w[1].pid && w[1].pid != w[2].pid && w[0].pid > 0);
    for (uint32_t k = 0; k < 3; k++)
        if (w[k].current_index == 77) CHECK(kill(w[k].pid, SIGKILL) == 0);
    for (int i = 0; i < 2000 && restarts == 0; i++) {
        sleep_ms(10);
        CHECK(dlp_monitor_refresh(m, NULL) == DLP_OK);
        for (uint32_t k = 0; k < 3; k++) {
            dlp_worker_stats now;
            CHECK(dlp_monitor_worker_stats(m, k, &now) == DLP_OK);
            restarts += now.restarts == 1 && now.pid != w[k].pid && now.pid > 0;
        }
    }
    CHECK(restarts == 1);
    __atomic_store_n(&board->shut, 0, __ATOMIC_SEQ_CST);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(dlp_pipe_error(p)->code == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(dlp_monitor_refresh(m, NULL) == DLP_ERR_STATE);
    dlp_monitor_close(m);
}

/* ---- who ---- */

static void open__several_pipes__asks_which(void) {
    rig r[2];
    dlp_pipe *p[2] = {NULL, NULL};
    dlp_monitor *m = NULL;
    dlp_monitor_info about;
    dlp_error e;
    char who[32];
    int second;
    for (int i = 0; i < 2; i++) {
        watch_rig(&r[i], 1, 0);
        r[i].pipe.name = i ? "valid" : "train";
        CHECK(rig_open(&r[i], &p[i]) == DLP_OK);
    }
    snprintf(who, sizeof who, "%d", (int)getpid());
    CHECK(dlp_monitor_open(&m, who, &e) == DLP_ERR_ARG && m == NULL);
    CHECK(strstr(e.message, "\"train\"") && strstr(e.message, "\"valid\"") &&
          strcmp(e.field, "who") == 0);
    CHECK(open_own(&m, ":valid") == DLP_OK && dlp_monitor_about(m, &about) == DLP_OK);
    CHECK(strcmp(about.name, "valid") == 0 && about.pid == getpid() && about.memfd == p[1]->memfd &&
          about.uid == geteuid() && about.stopped == 0);
    dlp_pipe_stop(p[1]);
    CHECK(dlp_monitor_refresh(m, NULL) == DLP_OK && dlp_monitor_about(m, &about) == DLP_OK &&
          about.stopped == 1);
    dlp_monitor_close(m);
    snprintf(who, sizeof who, ":%d", p[0]->memfd);
    CHECK(open_own(&m, who) == DLP_OK && dlp_monitor_about(m, &about) == DLP_OK);
    CHECK(strcmp(about.name, "train") == 0);
    dlp_monitor_close(m);
    snprintf(who, sizeof who, "%d:other", (int)getpid());
    CHECK(dlp_monitor_open(&m, who, &e) == DLP_ERR_STATE);
    CHECK(dlp_pipe_close(p[1]) == DLP_OK);
    second = dup(p[0]->memfd); /* the same pipe twice is one */
    CHECK(second >= 0 && open_own(&m, "") == DLP_OK);
    dlp_monitor_close(m);
    close(second);
    CHECK(dlp_pipe_close(p[0]) == DLP_OK);
    for (int i = 0; i < 2; i++) rig_free(&r[i]);
}

static void open__nobody_there__says_what_is_wrong(void) {
    static const struct {
        const char *who;
        int code;
    } cases[] = {{"", DLP_ERR_ARG},
                 {"999999999", DLP_ERR_SYSTEM},
                 {"../x", DLP_ERR_ARG},
                 {".x", DLP_ERR_ARG},
                 {"12:", DLP_ERR_SYSTEM},
                 {"no-such-name-of-a-pipe", DLP_ERR_SYSTEM},
                 {"12345678901", DLP_ERR_SYSTEM},
                 {"a b", DLP_ERR_ARG},
                 {"x:y", DLP_ERR_ARG}};
    dlp_monitor *m = NULL;
    dlp_error e;
    char who[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = dlp_monitor_open(&m, cases[i].who, &e);
        if (strcmp(cases[i].who, "12:") == 0 && rc != DLP_ERR_SYSTEM) continue; /* pid 12 lives */
        if (rc != cases[i].code) printf("\"%s\": %d, %s\n", cases[i].who, rc, e.message);
        CHECK(rc == cases[i].code && e.code == rc && e.message[0] != 0 && m == NULL);
    }
    snprintf(who, sizeof who, "%d", (int)getpid());
    CHECK(dlp_monitor_open(&m, who, &e) == DLP_ERR_STATE && m == NULL); /* no pipe */
    CHECK(dlp_monitor_open(NULL, who, &e) == DLP_ERR_ARG);
    CHECK(dlp_monitor_open(&m, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_monitor_refresh(NULL, &e) == DLP_ERR_ARG);
    CHECK(dlp_monitor_about(NULL, NULL) == DLP_ERR_ARG);
    dlp_monitor_close(NULL);
}

/* Without a monitor, without room for the answer, of a worker that there is not. */
static void calls__wrong_arguments__are_refused(dlp_monitor *m) {
    dlp_stats s;
    dlp_worker_stats w;
    dlp_skip skip;
    dlp_trace_event event;
    uint64_t total = 77;
    char name[32];
    CHECK(dlp_monitor_stats(NULL, &s) == DLP_ERR_ARG && dlp_monitor_stats(m, NULL) == DLP_ERR_ARG);
    CHECK(dlp_monitor_stats(m, &s) == DLP_OK);
    CHECK(dlp_monitor_worker_stats(NULL, 0, &w) == DLP_ERR_ARG);
    CHECK(dlp_monitor_worker_stats(m, 0, NULL) == DLP_ERR_ARG);
    CHECK(dlp_monitor_worker_stats(m, s.n_workers, &w) == DLP_ERR_ARG);
    CHECK(dlp_monitor_worker_stats(m, s.n_workers - 1, &w) == DLP_OK);
    CHECK(dlp_monitor_skips(NULL, &skip, 1, &total) == DLP_ERR_ARG);
    CHECK(dlp_monitor_skips(m, &skip, -1, &total) == DLP_ERR_ARG);
    CHECK(dlp_monitor_skips(m, NULL, 1, &total) == DLP_ERR_ARG && total == 77);
    CHECK(dlp_monitor_skips(m, NULL, 0, &total) == 0 && total == 0);
    CHECK(dlp_monitor_explain(NULL, name, sizeof name) == DLP_ERR_ARG);
    CHECK(dlp_monitor_explain(m, NULL, 0) > 0);
    CHECK(dlp_monitor_trace_lanes(NULL) == DLP_ERR_ARG);
    CHECK(dlp_monitor_trace_lanes(m) == (int)s.n_workers + 1);
    CHECK(dlp_monitor_trace(NULL, 0, &event, 1, name) == DLP_ERR_ARG);
    CHECK(dlp_monitor_trace(m, 0, &event, -1, name) == DLP_ERR_ARG);
    CHECK(dlp_monitor_trace(m, 0, NULL, 1, name) == DLP_ERR_ARG);
    CHECK(dlp_monitor_trace(m, -1, &event, 1, name) == DLP_ERR_ARG);
    CHECK(dlp_monitor_trace(m, (int)s.n_workers + 1, &event, 1, name) == DLP_ERR_ARG);
    CHECK(dlp_monitor_trace(m, (int)s.n_workers, NULL, 0, NULL) == 0);
    CHECK(dlp_monitor_write_trace(NULL, "/dev/null", NULL) == DLP_ERR_ARG);
    CHECK(dlp_monitor_write_trace(m, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_monitor_write_timeline(NULL, "/dev/null", NULL) == DLP_ERR_ARG);
    CHECK(dlp_monitor_write_timeline(m, NULL, NULL) == DLP_ERR_ARG);
    dlp_error err = {0};
    CHECK(dlp_monitor_write_trace(m, "/nowhere/at/all", &err) == DLP_ERR_SYSTEM);
    CHECK(err.errnum == ENOENT && strstr(err.message, "/nowhere/at/all: ") == err.message);
    CHECK(dlp_monitor_batches_per_epoch(NULL) == -1);
    CHECK(dlp_monitor_error(NULL)->code == DLP_ERR_ARG && dlp_monitor_error(m)->code == DLP_OK);
}

/* It is opened read only, and not mapped a second time. */
static void monitor__region__is_read_only(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_monitor *m = NULL;
    dlp_batch *b = NULL;
    FILE *maps;
    char line[512];
    int mapped = 0;
    watch_rig(&r, 2, 0);
    CHECK(rig_open(&r, &p) == DLP_OK && open_own(&m, "") == DLP_OK);
    calls__wrong_arguments__are_refused(m);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK((fcntl(m->fd, F_GETFL) & O_ACCMODE) == O_RDONLY && (fcntl(m->fd, F_GETFD) & FD_CLOEXEC));
    maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) mapped += strstr(line, "/memfd:dlpipe") != NULL;
    if (maps) fclose(maps);
    CHECK(mapped == 1);
    dlp_monitor_close(m);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

/* Line by line, but for the one that has a rate since the start. */
static int files_same(const char *a, const char *b) {
    static char x[1 << 16], y[1 << 16];
    FILE *f = fopen(a, "re"), *g = fopen(b, "re");
    int lines = 0, same = f != NULL && g != NULL;
    while (same && fgets(x, sizeof x, f)) {
        lines++;
        same = fgets(y, sizeof y, g) != NULL &&
               (strcmp(x, y) == 0 || (strstr(x, "items/s") && strstr(y, "items/s")));
    }
    same = same && fgets(y, sizeof y, g) == NULL;
    if (f) fclose(f);
    if (g) fclose(g);
    unlink(a);
    unlink(b);
    return same && lines > 20;
}

/* Of a pipe without threads, which rests while nobody calls it: the same pictures. */
static void monitor__pictures__are_the_pipe_s(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_monitor *m = NULL;
    dlp_batch *b = NULL;
    char own[64], seen[64];
    snprintf(own, sizeof own, "build/monitor-%d-own", (int)getpid());
    snprintf(seen, sizeof seen, "build/monitor-%d-seen", (int)getpid());
    watch_rig(&r, 0, 4 + 8);
    r.pipe.trace_bytes = 0;
    CHECK(rig_open(&r, &p) == DLP_OK);
    for (int i = 0; i < 30; i++)
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(open_own(&m, "") == DLP_OK);
    CHECK(dlp_pipe_write_trace(p, own, NULL) == DLP_OK &&
          dlp_monitor_write_trace(m, seen, NULL) == DLP_OK);
    CHECK(files_same(own, seen));
    CHECK(dlp_pipe_write_timeline(p, own, NULL) == DLP_OK);
    CHECK(dlp_monitor_write_timeline(m, seen, NULL) == DLP_OK);
    CHECK(files_same(own, seen));
    dlp_monitor_close(m);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

static void monitor__pipe_in_error__has_the_error(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_monitor *m = NULL;
    const dlp_error *e;
    watch_rig(&r, 2, 1);
    r.fetch.on_error = DLP_ON_ERROR_RAISE;
    r.fetch.worker_init = NULL;
    CHECK(rig_open(&r, &p) == DLP_OK && open_own(&m, "") == DLP_OK);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(dlp_pipe_error(p)->code == DLP_ERR_CALLBACK);
    CHECK(dlp_monitor_refresh(m, NULL) == DLP_OK);
    e = dlp_monitor_error(m);
    CHECK(e->code == 0 || e->code == DLP_ERR_CALLBACK);
    dlp_monitor_close(m);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

/* ---- another version's region ---- */

/* A copy of the pipe's region in a file of its own, in which all that is observed has grown by
   `more` bytes: what a later version might make. */
static int grown_copy(const dlp_pipe *p, uint32_t more) {
    int fd = (int)syscall(SYS_memfd_create, "grown", 1u);
    const dlpi_region *from = (const dlpi_region *)(const void *)p->region;
    dlpi_region h = *from;
    uint64_t at = 1 << 20, records = sizeof h + more;
    uint32_t n = from->n_records;
    void *element = malloc(p->region_bytes);
    dlpi_record extra = {-1, 4711, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < n; i++) {
        dlpi_record r = from->records[i];
        const dlpi_record *old = &from->records[i];
        int id = dlpi_record_id(&r);
        if (id == DLPI_REC_CELLS || id == DLPI_REC_TABLE) continue;
        if (id != DLPI_REC_ORDER && id != DLPI_REC_TAKEN) r.stride += more;
        r.offset = at;
        for (uint64_t k = 0; k < r.count; k++)
            if (pread(p->memfd, element, (size_t)old->stride,
                      (off_t)(old->offset + k * old->stride)) != (ssize_t)old->stride ||
                pwrite(fd, element, (size_t)old->stride, (off_t)(at + k * r.stride)) !=
                    (ssize_t)old->stride)
                return -1;
        at = (at + r.count * r.stride + 127) / 64 * 64;
        if (pwrite(fd, &r, sizeof r, (off_t)(records + i * (sizeof r + more))) != sizeof r)
            return -1;
    }
    free(element);
    if (pwrite(fd, &extra, sizeof extra, (off_t)(records + n * (sizeof extra + more))) < 0)
        return -1;
    h.n_records = n + 1;
    h.record_bytes = (uint32_t)sizeof extra + more;
    h.records_at = records;
    h.header_bytes += more;
    h.layout ^= 1;
    h.total_bytes = at;
    if (pwrite(fd, &h, offsetof(dlpi_region, records), 0) < 0 || ftruncate(fd, (off_t)at) != 0)
        return -1;
    return fd;
}

/* dlp_monitor_open for a region that has no owner. */
static int open_image(dlp_monitor **out, int fd, dlp_error *e) {
    dlp_monitor *m = calloc(1, sizeof *m);
    int rc;
    m->fd = fd;
    m->proc = m->number = -1;
    if ((rc = dlpi_view_open(m, e)) == DLP_OK)
        *out = m;
    else
        dlp_monitor_close(m);
    return rc;
}

static void region__of_a_newer_version__is_read(void) {
    for (uint32_t more = 0; more <= 64; more += 64) {
        rig r;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_monitor *m = NULL;
        dlp_stats a, s;
        dlp_error e;
        int same = 0;
        watch_rig(&r, 2, 1 + 4 + 8);
        CHECK(rig_open(&r, &p) == DLP_OK);
        for (int i = 0; i < 30; i++)
            if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
        for (int i = 0; i < 100 && !same; i++) { /* until it was at rest */
            settle(p, &a);
            CHECK(open_image(&m, grown_copy(p, more), &e) == DLP_OK);
            if (m == NULL) printf("%s\n", e.message);
            if (m == NULL) break;
            CHECK(dlp_monitor_stats(m, &s) == DLP_OK);
            same = stats_same(&a, &s) && workers_same(p, m, a.n_workers) && traces_same(p, m, 1) &&
                   skips_same(p, m, 1);
            dlp_monitor_close(m);
        }
        CHECK(same);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        rig_free(&r);
    }
}

/* Links are what the owner has written: their numbers are checked, their names have an end. */
static void region__links__are_checked(void) {
    static const struct {
        size_t at;
        int32_t value;
        int code;
    } cases[] = {{offsetof(dlp_link, from_stage), -3, DLP_ERR_CORRUPT},
                 {offsetof(dlp_link, from_stage), DLP_MAX_STAGES, DLP_ERR_CORRUPT},
                 {offsetof(dlp_link, to_stage), -2, DLP_ERR_CORRUPT},
                 {offsetof(dlp_link, to_stage), DLP_MAX_STAGES, DLP_ERR_CORRUPT},
                 {offsetof(dlp_link, rule), 77, DLP_OK},
                 {offsetof(dlp_link, from) + 28, 0x78787878, DLP_OK},
                 {offsetof(dlp_link, to) + 28, 0x78787878, DLP_OK}};
    rig r;
    dlp_pipe *p = NULL;
    watch_rig(&r, 2, 0);
    CHECK(rig_open(&r, &p) == DLP_OK);
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
        const uint32_t n = UINT32_MAX;
        const int all = i == sizeof cases / sizeof *cases;
        dlp_monitor *m = NULL;
        dlpi_record at = {0, 0, 0, 0, 0};
        dlpi_region h;
        dlp_stats s;
        dlp_error e;
        int fd = grown_copy(p, 0);
        CHECK(pread(fd, &h, sizeof h, 0) == sizeof h);
        for (uint32_t k = 0; k < h.n_records && dlpi_record_id(&at) != DLPI_REC_PIPE; k++)
            CHECK(pread(fd, &at, sizeof at, (off_t)(h.records_at + k * sizeof at)) > 0);
        if (all)
            CHECK(pwrite(fd, &n, 4, (off_t)(at.offset + offsetof(dlpi_pipe_rec, n_links))) == 4);
        else
            CHECK(pwrite(fd, &cases[i].value, 4,
                         (off_t)(at.offset + sizeof(dlpi_pipe_rec) + cases[i].at)) == 4);
        CHECK(open_image(&m, fd, &e) == (all ? DLP_ERR_CORRUPT : cases[i].code));
        if (m == NULL) continue;
        CHECK(dlp_monitor_stats(m, &s) == DLP_OK && s.links[0].rule == 0);
        CHECK(strlen(s.links[0].from) < 32 && strlen(s.links[0].to) < 32);
        dlp_monitor_close(m);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

static void region__of_another_kind__is_refused(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_monitor *m = NULL;
    dlp_error e;
    static const struct {
        size_t at, bytes;
        int code;
    } cases[] = {{offsetof(dlpi_region, magic), 8, DLP_ERR_CORRUPT},
                 {offsetof(dlpi_region, format), 4, DLP_ERR_UNSUPPORTED},
                 {offsetof(dlpi_region, view), 8, DLP_ERR_UNSUPPORTED},
                 {offsetof(dlpi_region, total_bytes), 8, DLP_ERR_CORRUPT},
                 {offsetof(dlpi_region, n_records), 4, DLP_ERR_CORRUPT},
                 {offsetof(dlpi_region, records_at), 8, DLP_ERR_CORRUPT}};
    uint64_t ones = UINT64_MAX, zero = 0;
    watch_rig(&r, 2, 0);
    CHECK(rig_open(&r, &p) == DLP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = grown_copy(p, 0);
        CHECK(pwrite(fd, &ones, cases[i].bytes, (off_t)cases[i].at) > 0);
        CHECK(open_image(&m, fd, &e) == cases[i].code && e.message[0] != 0);
    }
    {
        int fd = grown_copy(p, 0);
        CHECK(pwrite(fd, &zero, 8, 0) == 8);
        CHECK(open_image(&m, fd, &e) == DLP_ERR_STATE); /* its magic is not written yet */
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

int main(void) {
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return 1;
    {
        rig r;
        dlp_pipe *p = NULL;
        watch_rig(&r, 0, 0);
        if (rig_open(&r, &p) == DLP_OK && p->memfd < 0) {
            printf("no memfd on this system\n");
            return 78;
        }
        dlp_pipe_close(p);
        rig_free(&r);
    }
    monitor__of_another_process__runs_hangs_is_stopped_is_gone();
    monitor__owner_killed__says_so();
    monitor__worker_processes__are_seen();
    open__nobody_there__says_what_is_wrong();
    open__several_pipes__asks_which();
    monitor__every_kind_of_pipe__agrees();
    monitor__without_refresh__stands_still();
    monitor__pipe_at_full_speed__is_never_impossible();
    monitor__region__is_read_only();
    monitor__pictures__are_the_pipe_s();
    monitor__pipe_in_error__has_the_error();
    region__of_a_newer_version__is_read();
    region__links__are_checked();
    region__of_another_kind__is_refused();
    return test_end("monitor");
}
