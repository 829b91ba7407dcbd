/* Who may die, when, and what is left of it: nothing, within a second. Each case is a program in a
   session of its own, so that all its processes can be found whoever becomes their parent. Other
   programs may have the cores for a while: what was late is tried again, up to five times, of which
   one must be in time; and after 20 s nothing may be left at all.
   shm_deaths [case] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

/* ---- programs under test ---- */

static struct common { /* shared by the test and its programs */
    int32_t ready;     /* the program is where the case wants it */
    int32_t go;        /* the test did what it wanted to */
    int32_t supervisor, worker[8];
    int32_t inits;
    int32_t file_size;
    int32_t late; /* this was, since last asked */
    uint64_t counter;
} * common;

static uint64_t slowest_ms_;

static void set(int32_t *word, int32_t v) { __atomic_store_n(word, v, __ATOMIC_SEQ_CST); }
static int32_t get(const int32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static int await(const int32_t *word, int32_t v, int ms) {
    for (int i = 0; i < ms && get(word) != v; i++) test_pause(1000000);
    return get(word) == v;
}

#define TRIES 5
#define A_SECOND UINT64_C(1000000000)
#define AT_MOST (20 * A_SECOND)

static void was_late(const char *what) {
    printf("  late: %s\n", what);
    __atomic_add_fetch(&common->late, 1, __ATOMIC_SEQ_CST);
}

/* What began at from has taken a second at most. */
static void in_a_second(uint64_t from, const char *what) {
    uint64_t ns = test_now_ns() - from;
    CHECK(ns < AT_MOST);
    if (ns > A_SECOND) was_late(what);
}

/* Was the try number tries late, and is there to be another? */
static bool again(int tries) {
    bool late = get(&common->late) != 0;
    set(&common->late, 0);
    CHECK(!late || tries < TRIES);
    return late && tries < TRIES;
}

static void await_restarts(dlp_pipe *p, uint64_t n) {
    for (int i = 0; i < 20000 && inside_restarts(p) < n; i++) test_pause(1000000);
}

/* Signal a process, or the group of one, that the program told of. */
static void signal_to(int32_t pid, int sig) {
    CHECK(pid > 1);
    if (pid > 1) kill(pid, sig);
}
static void signal_to_group(int32_t pid, int sig) {
    CHECK(pid > 1);
    if (pid > 1) kill(-pid, sig);
}

typedef void (*program)(int arg);

static pid_t launch(program run, int arg) {
    pid_t pid;
    int32_t late = get(&common->late);
    memset(common, 0, sizeof *common);
    set(&common->late, late);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        setsid();
        alarm(50); /* should all go wrong */
        test_failures = 0;
        run(arg);
        fflush(stdout);
        _exit(test_failures != 0);
    }
    CHECK(pid > 0);
    return pid;
}

/* All but but_for of the program's processes are gone, within a second. */
static void expect_gone(pid_t session, pid_t but_for, const char *what, int arg) {
    uint64_t from = test_now_ns(), ms;
    int left;
    while ((left = shm_session(session, but_for, 0)) > 0 && test_now_ns() - from < AT_MOST)
        test_pause(2000000);
    ms = (test_now_ns() - from) / 1000000;
    if (ms > slowest_ms_) slowest_ms_ = ms;
    CHECK(left == 0);
    if (left == 0 && ms > 1000) was_late(what);
    if (left == 0) return;
    printf("  %s %d: %d processes are left\n", what, arg, left);
    shm_session(session, but_for, 1);
    for (int i = 0; i < 8; i++)
        if (get(&common->worker[i]) > 0 && getsid(get(&common->worker[i])) == session)
            signal_to(get(&common->worker[i]), SIGKILL);
    if (get(&common->supervisor) > 0 && getsid(get(&common->supervisor)) == session)
        signal_to(get(&common->supervisor), SIGKILL);
}

/* Run it to its end: it says itself what is wrong. */
static void run_whole(program run, int arg, const char *what) {
    int tries = 0;
    do {
        int status = 0;
        pid_t pid = launch(run, arg);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (status != 0) printf("  %s %d ended with %x\n", what, arg, (unsigned)status);
        expect_gone(pid, 0, what, arg);
    } while (again(++tries));
}

/* ---- what a program has ---- */

static int files_; /* descriptors that it had before */

static void tell_pids(dlp_pipe *p) {
    for (int i = 0; i < inside_workers(p) && i < 8; i++) {
        for (int k = 0; k < 20000 && inside_is_process(p, i) && inside_pid(p, i) == 0; k++)
            test_pause(1000000);
        set(&common->worker[i], inside_pid(p, i));
    }
    set(&common->supervisor, inside_supervisor(p));
}

/* After close: no child, descriptor or mapping is left. */
static void nothing_left(void) {
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    CHECK(shm_entries("/proc/self/fd") == files_);
    CHECK(shm_mappings() == 0);
}

/* close takes at most a second. */
static void close_in_time(dlp_pipe *p) {
    uint64_t from = test_now_ns();
    CHECK(dlp_pipe_close(p) == DLP_OK);
    in_a_second(from, "close");
}

static void simple_rig(rig *r) {
    rig_init(r, 3000, 16);
    rig_order(r, DLP_ORDER_SHUFFLED);
    shm_processes(r, 2, 0);
    r->n_batch_maps = 1;
    r->pipe.epochs = DLP_FOREVER;
    files_ = shm_entries("/proc/self/fd");
}

static dlp_pipe *open_simple(rig *r) {
    dlp_pipe *p = NULL;
    simple_rig(r);
    if (rig_open(r, &p) != DLP_OK) _exit(1);
    tell_pids(p);
    return p;
}

/* Take n batches, each as it must be. Returns what next said last. */
static int take(rig *r, dlp_pipe *p, uint64_t *k, int n) {
    int rc = DLP_OK;
    while (n-- > 0 && rc == DLP_OK) {
        dlp_batch *b;
        uint64_t per = rig_batches(r);
        if ((rc = dlp_pipe_next_timeout(p, &b, 10000)) != DLP_OK) break;
        CHECK(rig_batch_same(r, b, *k / per, *k % per));
        ++*k;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    return rc;
}

/* ---- the supervisor dies ---- */

static void supervisor_killed(int kind) {
    rig r;
    dlp_pipe *p = open_simple(&r);
    uint64_t k = 0, from;
    int rc;
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    if (kind == 1) /* and the user waits for any child */
        signal(SIGCHLD, SIG_IGN);
    signal_to(get(&common->supervisor), SIGKILL);
    from = test_now_ns();
    rc = take(&r, p, &k, 1000000);
    CHECK(rc == DLP_ERR_KILLED && strstr(dlp_pipe_error(p)->message, "supervisor") != NULL);
    in_a_second(from, "the supervisor's death is told");
    if (kind == 2)
        while (waitpid(-1, NULL, 0) > 0) continue;
    CHECK(take(&r, p, &k, 1) == DLP_ERR_KILLED);
    dlp_pipe_stop(p); /* tells nobody, and dies of no SIGPIPE */
    close_in_time(p);
    nothing_left();
}

/* ---- the caller dies ---- */

static void name_of(pid_t session, char *name, size_t size) {
    snprintf(name, size, "deaths-%d", (int)session);
}

static int name_there(pid_t session) {
    char name[64], path[100];
    name_of(session, name, sizeof name);
    snprintf(path, sizeof path, "/dev/shm/dlpipe.%s", name);
    return access(path, F_OK) == 0;
}

static void runs_for_ever(int kind) {
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    if (kind == 3) { /* it has a name */
        char name[64];
        dlp_shm_desc shm = {.name = name};
        name_of(getpid(), name, sizeof name);
        simple_rig(&r);
        r.pipe.shm = &shm;
        if (rig_open(&r, &p) != DLP_OK) _exit(1);
        tell_pids(p);
        CHECK(take(&r, p, &k, 5) == DLP_OK);
        set(&common->ready, 1);
        for (;;) pause();
    }
    if (kind == 1) { /* early fork, never started */
        simple_rig(&r);
        if (rig_wire(&r, &p, NULL) != DLP_OK || inside_pipe_fork(p) != DLP_OK) _exit(1);
        tell_pids(p);
        set(&common->ready, 1);
        for (;;) pause();
    }
    p = open_simple(&r);
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    set(&common->ready, 1);
    if (kind == 2)
        for (;;) pause(); /* workers sleep, all slots are full */
    take(&r, p, &k, 1 << 30);
    _exit(1);
}

static void caller_killed(void) {
    for (int kind = 0; kind < 4; kind++) {
        pid_t pid = launch(runs_for_ever, kind);
        CHECK(await(&common->ready, 1, 20000));
        CHECK(name_there(pid) == (kind == 3));
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, NULL, 0) == pid);
        expect_gone(pid, 0, "the caller was killed", kind);
        CHECK(!name_there(pid));
    }
}

static void all_killed(void) {
    pid_t pid = launch(runs_for_ever, 0);
    CHECK(await(&common->ready, 1, 20000));
    signal_to_group(get(&common->supervisor), SIGKILL);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    expect_gone(pid, 0, "all were killed", 0);
}

/* The kernel continues a stopped process group that nobody is left to continue, by SIGHUP first. */
static void caller_killed_supervisor_stopped(void) {
    pid_t pid = launch(runs_for_ever, 2);
    CHECK(await(&common->ready, 1, 20000));
    signal_to(get(&common->supervisor), SIGSTOP);
    CHECK(shm_state(get(&common->supervisor), 'T')); /* a signal is not taken at once */
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    expect_gone(pid, 0, "the caller was killed, the supervisor stopped", 0);
}

static void becomes_another(int kind) {
    rig r;
    dlp_pipe *p = open_simple(&r);
    uint64_t k = 0;
    (void)kind;
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    set(&common->ready, 1);
    execl("/bin/sleep", "sleep", "20", (char *)NULL);
    execlp("sleep", "sleep", "20", (char *)NULL);
    _exit(1);
}

static void caller_execs(void) {
    pid_t pid = launch(becomes_another, 0);
    CHECK(await(&common->ready, 1, 20000));
    expect_gone(pid, pid, "the caller became another program", 0);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* ---- at any moment of start and close ---- */

static void opens_and_closes(int kind) {
    for (;;) {
        rig r;
        dlp_pipe *p;
        uint64_t k = 0;
        simple_rig(&r);
        if (kind == 1) {
            if (rig_wire(&r, &p, NULL) != DLP_OK || inside_pipe_fork(p) != DLP_OK) _exit(1);
            if (dlp_pipe_start(p) != DLP_OK) _exit(1);
        } else if (rig_open(&r, &p) != DLP_OK) {
            _exit(1);
        }
        set(&common->ready, 1);
        CHECK(take(&r, p, &k, 2) == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void killed_at_any_moment(void) {
    uint64_t random = 7;
    int n = test_share(120, 3000);
    for (int i = 0; i < n; i++) {
        pid_t pid = launch(opens_and_closes, i & 1);
        if (i % 4 < 2) CHECK(await(&common->ready, 1, 20000));
        test_pause(test_pick(&random, 6000000));
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, NULL, 0) == pid);
        expect_gone(pid, 0, "killed at any moment", i);
    }
    if (get(&common->late) <= n / 10) set(&common->late, 0);
}

/* A supervisor that dies while start waits for it, or while close does. */
static void supervisor_killed_early(int kind) {
    uint64_t random = (uint64_t)kind + 1;
    int least = test_share(16, 400);
    /* as often as it takes for one to be killed early enough to be noticed */
    for (int i = 0; i < least || (i < 400 && get(&common->inits) == 0); i++) {
        rig r;
        dlp_pipe *p = NULL;
        dlp_error err;
        uint64_t k = 0;
        pid_t killer, me = getpid();
        int rc, one = DLP_OK, status;
        simple_rig(&r);
        killer = fork();
        if (killer == 0) { /* kills the other child of its parent, as soon as there is one */
            char path[64], line[256];
            while (get(&common->go) <= i) {
                int pid = 0;
                FILE *f;
                snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)me, (int)me);
                f = fopen(path, "r");
                if (f && fgets(line, sizeof line, f))
                    for (char *at = line; *at; at += strcspn(at, " "), at += *at == ' ')
                        if (atoi(at) != getpid()) pid = atoi(at);
                if (f) fclose(f);
                if (pid) {
                    test_pause(test_pick(&random, 3000000));
                    kill(pid, SIGKILL);
                    _exit(0);
                }
                test_pause(100000);
            }
            _exit(0);
        }
        test_random(&random);
        rc = rig_try(&r, &p, &err);
        if (rc == DLP_OK) {
            one = take(&r, p, &k, 3);
            CHECK(one == DLP_OK || one == DLP_ERR_KILLED);
            while (one == DLP_OK && test_pick(&random, 2) == 0) one = take(&r, p, &k, 20);
            close_in_time(p);
        } else {
            CHECK(rc == DLP_ERR_KILLED);
        }
        __atomic_add_fetch(&common->inits, rc != DLP_OK || one != DLP_OK, __ATOMIC_SEQ_CST);
        set(&common->go, i + 1);
        CHECK(waitpid(killer, &status, 0) == killer);
        nothing_left();
    }
    CHECK(get(&common->inits) > 0);
}

/* ---- stopped ones ---- */

static int slow_fetch(void *user, dlp_item *it) {
    test_pause(500000);
    return rig_fetch(user, it);
}

static void worker_stopped(int deadline) {
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    int rc = DLP_OK;
    simple_rig(&r);
    r.fetch.num_workers = 1;
    r.fetch.deadline_ms = deadline;
    r.fetch.retries = 5;
    r.dataset.fetch = slow_fetch;
    if (rig_open(&r, &p) != DLP_OK) return;
    tell_pids(p);
    CHECK(take(&r, p, &k, 2) == DLP_OK);
    /* between two items it is not late: stop it again */
    for (int i = 0; i < 200 && rc == DLP_OK && inside_restarts(p) == 0; i++) {
        signal_to(inside_pid(p, 0), SIGSTOP);
        if (deadline == 0) break;
        test_pause((uint64_t)deadline * 3000000u);
        if (inside_restarts(p) == 0) signal_to(inside_pid(p, 0), SIGCONT);
        rc = take(&r, p, &k, 2);
    }
    if (deadline) {
        CHECK(rc == DLP_OK && inside_restarts(p) > 0);
        CHECK(take(&r, p, &k, 10) == DLP_OK);
    } else {
        dlp_batch *b;
        while ((rc = dlp_pipe_next_timeout(p, &b, 300)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_TIMEOUT); /* nobody guesses that it is dead */
    }
    close_in_time(p);
    nothing_left();
}

static void supervisor_stopped(int kind) {
    rig r;
    dlp_pipe *p = open_simple(&r);
    uint64_t k = 0;
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    signal_to(get(&common->supervisor), SIGSTOP);
    CHECK(take(&r, p, &k, 50) == DLP_OK); /* the workers work on */
    if (kind == 1) {                      /* a worker dies, which nobody sees until it goes on */
        signal_to(get(&common->worker[0]), SIGKILL);
        signal_to(get(&common->worker[1]), SIGKILL);
        test_pause(20000000);
        signal_to(get(&common->supervisor), SIGCONT);
        CHECK(take(&r, p, &k, 200) == DLP_OK);
        await_restarts(p, 2); /* these 200 may have come by one of them */
        CHECK(inside_restarts(p) == 2);
        signal_to(get(&common->supervisor), SIGSTOP);
    }
    close_in_time(p);
    nothing_left();
}

/* ---- the user's own processes, waits and signals ---- */

static void user_waits(int kind) {
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    pid_t mine;
    if (kind == 1) signal(SIGCHLD, SIG_IGN);
    p = open_simple(&r);
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    mine = fork();
    if (mine == 0) _exit(0);
    signal_to(get(&common->worker[0]), SIGKILL);
    CHECK(take(&r, p, &k, 200) == DLP_OK);
    if (kind == 0) {
        for (int i = 0; i < 20000 && waitpid(-1, NULL, WNOHANG) != mine; i++) test_pause(1000000);
        dlp_pipe_stop(p); /* the supervisor ends, and is waited for here */
        for (int i = 0; i < 20000 && waitpid(-1, NULL, WNOHANG) >= 0; i++) test_pause(1000000);
    }
    close_in_time(p);
    if (kind == 1) CHECK(waitpid(mine, NULL, 0) == -1); /* it has ended */
    nothing_left();
}

/* A child that was forked after start gets an error from every call and tears nothing down. */
static void user_forks(int kind) {
    rig r;
    dlp_pipe *p = open_simple(&r);
    dlp_batch *b, *held;
    uint64_t k = 0;
    int status = 0;
    pid_t mine;
    dlp_stats stats;
    dlp_worker_stats ws;
    dlp_state state;
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &held, 10000) == DLP_OK);
    fflush(stdout);
    mine = fork();
    if (mine == 0) {
        test_failures = 0;
        CHECK(dlp_pipe_next(p, &b) == DLP_ERR_FORKED);
        CHECK(dlp_pipe_release(p, held) == DLP_ERR_FORKED);
        CHECK(dlp_pipe_next_epoch(p) == DLP_ERR_FORKED);
        CHECK(dlp_pipe_state(p, NULL, &state) == DLP_ERR_FORKED);
        CHECK(dlp_pipe_start(p) == DLP_ERR_FORKED);
        CHECK(dlp_pipe_stats(p, &stats) == DLP_ERR_FORKED);
        CHECK(dlp_pipe_worker_stats(p, 0, &ws) == DLP_ERR_FORKED);
        CHECK(dlp_pipe_skips(p, NULL, 0, NULL) == DLP_ERR_FORKED);
        CHECK(dlp_pipe_trace(p, 0, NULL, 0, NULL) == DLP_ERR_FORKED);
        dlp_pipe_stop(p);
        CHECK(dlp_pipe_close(p) == DLP_ERR_FORKED);
        fflush(stdout);
        if (kind == 1) { /* lives longer than the pipe */
            await(&common->go, 1, 10000);
            _exit(test_failures != 0);
        }
        _exit(test_failures != 0);
    }
    if (kind == 0) CHECK(waitpid(mine, &status, 0) == mine && status == 0);
    CHECK(rig_batch_same(&r, held, 0, k++) && dlp_pipe_release(p, held) == DLP_OK);
    CHECK(take(&r, p, &k, 300) == DLP_OK);
    signal_to(get(&common->worker[1]), SIGKILL);
    CHECK(take(&r, p, &k, 300) == DLP_OK);
    close_in_time(p);
    set(&common->go, 1);
    if (kind == 1) CHECK(waitpid(mine, &status, 0) == mine && status == 0);
    nothing_left();
}

static volatile sig_atomic_t signals_;
static void on_signal(int n) { signals_ += n > 0; }

/* A signal to all of the program's processes: the caller's business. */
static void group_signalled(int kind) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    int sig = signals[kind];
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    signal(sig, on_signal);
    p = open_simple(&r);
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    kill(0, sig);
    signal_to_group(get(&common->supervisor), sig);
    for (int i = 0; i < 3; i++) signal_to(get(&common->worker[i]), sig);
    CHECK(take(&r, p, &k, 300) == DLP_OK);
    CHECK(signals_ == 1 && inside_restarts(p) == 0);
    CHECK(getpgid(get(&common->worker[0])) == get(&common->supervisor));
    close_in_time(p);
    nothing_left();
}

/* Of the first three descriptors of a process, those that are anything but /dev/null. */
static int low_descriptors(int pid) {
    int n = 0;
    for (int fd = 0; fd < 3; fd++) {
        char path[64], to[64] = "";
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
        n += readlink(path, to, sizeof to - 1) > 0 && strcmp(to, "/dev/null") != 0;
    }
    return n;
}

/* A daemon has closed its first three descriptors (0), or one of them (1..3): none of ours takes
   its place, where all that is printed would be written to. */
static void stdio_closed(int kind) {
    int out = fcntl(1, F_DUPFD, 100), err = fcntl(2, F_DUPFD, 100), failures;
    char name[32], trace[64];
    dlp_shm_desc shm = {.name = name};
    dlp_monitor *m = NULL;
    rig r;
    dlp_pipe *p = NULL;
    uint64_t k = 0;
    name_of(getpid(), name, sizeof name);
    snprintf(trace, sizeof trace, "/tmp/%s.json", name);
    fflush(stdout);
    simple_rig(&r);
    r.pipe.shm = &shm;
    for (int fd = 0; fd < 3; fd++)
        if (kind == 0 || kind == fd + 1) close(fd);
    if (rig_try(&r, &p, NULL) != DLP_OK) _exit(1);
    tell_pids(p);
    failures = take(&r, p, &k, 50) != DLP_OK;
    for (int fd = 0; fd < 3; fd++)
        if (kind == 0 || kind == fd + 1) {
            failures += fcntl(fd, F_GETFD) != -1;
            failures += write(fd, "lost", 4) != -1;
        }
    if (kind == 0) failures += low_descriptors(get(&common->supervisor)) != 0;
    for (int i = 0; i < 3 && kind == 0; i++)
        failures += low_descriptors(get(&common->worker[i])) != 0;
    failures += dlp_monitor_open(&m, name, NULL) != DLP_OK;
    if (kind == 0) failures += low_descriptors(getpid()) != 0;
    dlp_monitor_close(m);
    failures += dlp_pipe_write_trace(p, trace, NULL) != DLP_OK || unlink(trace) != 0;
    signal_to(get(&common->worker[0]), SIGKILL);
    await_restarts(p, 1);
    failures += take(&r, p, &k, 50) != DLP_OK || dlp_pipe_close(p) != DLP_OK;
    dup2(out, 1);
    dup2(err, 2);
    if (kind == 0 || kind == 1) failures += open("/dev/null", O_RDWR) != 0;
    close(out);
    close(err);
    files_ -= 2; /* simple_rig counted these two */
    CHECK(failures == 0);
    nothing_left();
}

/* ---- threads ---- */

static void *thread_waits(void *arg) {
    await(arg, 1, 10000);
    return NULL;
}

/* The pipe of a rig as a table, which open does not start. */
static int open_later(const rig *r, dlp_pipe **p) {
    dlp_node nodes[] = {
        {.name = "sampler",
         .verb = DLP_LIST,
         .list = {.n_items = r->dataset.n_items, .order = &r->sampler}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = r->dataset.fetch,
                   .user = r->dataset.user,
                   .fields = r->dataset.fields,
                   .n_fields = r->dataset.n_fields},
         .workers = r->fetch},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = r->batch.batch_size, .last = r->batch.last},
         .workers = r->batch_by},
        {.name = "map",
         .verb = DLP_MAP,
         .map = {.batch = r->batch_map[0].map.batch, .user = r->batch_map[0].map.user},
         .workers = r->batch_map[0].workers}};
    dlp_pipe_desc d = r->pipe;
    dlp_error err;
    d.later = 1;
    d.epochs = r->pipe.epochs;
    if (dlp_pipe_open(p, DLP_NODES(nodes), &d, &err) == DLP_OK) return DLP_OK;
    return printf("  %s.%s: %s\n", err.stage, err.field, err.message), err.code;
}

static void threads_there(int kind) {
    static const dlp_shm_desc allow = {.allow_fork_with_threads = 1};
    rig r;
    dlp_pipe *p = NULL;
    dlp_error err;
    uint64_t k = 0;
    pthread_t t;
    int rc;
    simple_rig(&r);
    if (kind == 2) { /* the pipe forks before there is a thread */
        dlp_batch *b;
        dlp_plan plan;
        if (open_later(&r, &p) != DLP_OK) _exit(1);
        CHECK(dlp_pipe_next_timeout(p, &b, 0) == DLP_ERR_STATE);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && plan.total_bytes > 0);
    }
    if (pthread_create(&t, NULL, thread_waits, &common->go) != 0) _exit(1);
    if (kind == 1) r.pipe.shm = &allow;
    rc = kind == 2 ? dlp_pipe_start(p) : rig_try(&r, &p, &err);
    if (kind == 0) {
        CHECK(rc == DLP_ERR_STATE);
        CHECK(strstr(err.message, "later") != NULL);
        CHECK(strstr(err.message, "allow_fork_with_threads") != NULL);
    } else {
        CHECK(rc == DLP_OK && take(&r, p, &k, 300) == DLP_OK);
        close_in_time(p);
    }
    set(&common->go, 1);
    pthread_join(t, NULL);
    nothing_left();
}

/* ---- callbacks that kill ---- */

enum { POISON_KILL, POISON_ABORT, POISON_FAULT, POISON_EXIT0, POISON_EXIT2, POISON_STUCK, POISONS };

static int poison_; /* kind */

static void take_poison(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    switch (poison_) {
    case POISON_KILL: raise(SIGKILL); break;
    case POISON_ABORT:
        signal(SIGABRT, SIG_DFL);
        kill(getpid(), SIGABRT);
        break;
    case POISON_FAULT:
        signal(SIGSEGV, SIG_DFL);
        kill(getpid(), SIGSEGV);
        break;
    case POISON_EXIT0: _exit(0);
    case POISON_EXIT2: _exit(2);
    default:
        for (;;) pause();
    }
}

static int poison_fetch(void *user, dlp_item *it) {
    if (it->index % 100 == 37) take_poison();
    return rig_fetch(user, it);
}
static int poison_map(void *user, dlp_item *it) {
    if (it->index % 100 == 37) take_poison();
    return rig_item_map(user, it);
}
static int poison_batch(void *user, dlp_batch *b, void *state) {
    if (b->in_epoch == 4) take_poison();
    return rig_batch_map(user, b, state);
}

/* Was another item late than the stuck ones? It had no core for that long, then. */
static bool innocent_late(dlp_pipe *p, int where, int policy) {
    const dlp_error *e = dlp_pipe_error(p);
    dlp_skip skips[64];
    uint64_t total = 0;
    if (poison_ != POISON_STUCK) return false;
    if (policy == DLP_ON_ERROR_RAISE && e->code == DLP_ERR_DEADLINE)
        return where == 2 ? e->position != 80 : e->index != 37;
    if (dlp_pipe_skips(p, skips, 64, &total) < 0) return false;
    for (uint64_t i = 0; i < total && i < 64; i++)
        if (skips[i].code == DLP_ERR_DEADLINE && skips[i].index % 100 != 37) return true;
    return false;
}

static void poisoned(int arg) {
    static const char *const text[POISONS] = {"SIGKILL",        "SIGABRT",        "SIGSEGV",
                                              "a call of exit", "a call of exit", "deadline_ms"};
    static const char *const stages[] = {"fetch", "map", "batch map"};
    static const dlp_shm_desc shm = {.max_kills = 2};
    int where = arg / 100, policy = arg / 10 % 10, rc, n = 0, bad = 0, wrong = 0;
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    const dlp_error *e;
    dlp_workers_desc *w;
    char words[2000], want[80];
    const char *said;
    int code;
    poison_ = arg % 10;
    said = text[poison_];
    code = poison_ == POISON_STUCK ? DLP_ERR_DEADLINE : DLP_ERR_KILLED;
    rig_init(&r, 200, 20);
    shm_processes(&r, 2, where == 1);
    r.pipe.shm = &shm;
    r.n_item_maps = r.n_batch_maps = 1;
    r.batch_map[0].name = stages[2];
    w = where == 0 ? &r.fetch : where == 1 ? &r.item_map[0].workers : &r.batch_map[0].workers;
    w->on_error = policy;
    if (poison_ == POISON_STUCK) w->deadline_ms = 30;
    if (where == 0) r.dataset.fetch = poison_fetch;
    if (where == 1) r.item_map[0].map.item = poison_map;
    if (where == 2) r.batch_map[0].map.batch = poison_batch;
    files_ = shm_entries("/proc/self/fd");
    if (rig_open(&r, &p) != DLP_OK) return;
    tell_pids(p);
    while ((rc = dlp_pipe_next_timeout(p, &b, 10000)) == DLP_OK) {
        for (uint32_t row = 0; row < b->count; row++) {
            bool hit = (b->position + row) % 100 == 37;
            if (!hit)
                wrong += !rig_row_same(&r, b, row, b->position + row) || !b->valid[row];
            else if (policy == DLP_ON_ERROR_DROP)
                wrong += b->valid[row] != 0;
            else if (policy == DLP_ON_ERROR_REPLACE)
                wrong += !b->valid[row] || b->index[row] % 100 == 37;
            bad += hit;
        }
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (innocent_late(p, where, policy)) {
        was_late("an item that is not stuck");
        CHECK(dlp_pipe_close(p) == DLP_OK);
        return;
    }
    CHECK(wrong == 0);
    e = dlp_pipe_error(p);
    if (policy == DLP_ON_ERROR_RAISE) {
        CHECK(rc == code && n == (where == 2 ? 4 : 1));
        CHECK(strstr(e->message, text[poison_]) != NULL && (e->worker == 0 || e->worker == 1));
        CHECK(where == 2 ? e->position == 80 : e->has_item && e->index == 37 && e->position == 37);
        CHECK(strcmp(e->stage, stages[where]) == 0);
    } else {
        dlp_skip skips[64];
        uint64_t total = 0;
        CHECK(rc == DLP_END && n == 10 && bad == 2);
        CHECK(dlp_pipe_skips(p, skips, 64, &total) >= 2 && total >= 2);
        for (uint64_t i = 0; i < total && i < 64; i++)
            CHECK(skips[i].code == code && skips[i].index % 100 == 37);
    }
    if (test_failures) {
        printf("  poison %d, policy %d, stage %d: ", poison_, policy, where);
        rig_say(p, rc);
    }
    CHECK(dlp_pipe_explain(p, words, sizeof words) > 0);
    if (poison_ == POISON_STUCK) said = "died by SIGKILL";
    snprintf(want, sizeof want, "Deaths: workers of '%s' were replaced ", stages[where]);
    CHECK(strstr(words, want) != NULL && strstr(words, said) != NULL);
    close_in_time(p);
    nothing_left();
}

static void poisons(void) {
    for (int kind = 0; kind < POISONS; kind++)
        for (int where = 0; where < 3; where++)
            for (int policy = 0; policy < (where == 2 ? 1 : 3); policy++) {
                if (getenv("SHORT") && (kind + where + policy) % 5 != 0) continue;
                run_whole(poisoned, where * 100 + policy * 10 + kind, "poison");
            }
}

/* Late once, then in time: a retry. */
static int late_once(void *user, dlp_item *it) {
    if (it->index == 37 && it->attempt == 0)
        for (;;) pause();
    return rig_fetch(user, it);
}

static void late_retried(int kind) {
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    int rc;
    simple_rig(&r);
    r.pipe.epochs = 1;
    r.fetch.deadline_ms = 40;
    r.fetch.retries = 1;
    r.fetch.retry_backoff_ms = kind;
    r.dataset.fetch = late_once;
    if (rig_open(&r, &p) != DLP_OK) return;
    rc = take(&r, p, &k, 10000);
    CHECK(inside_restarts(p) > 0);
    if (inside_restarts(p) > 1)
        was_late("an item that does not wait");
    else
        CHECK(rc == DLP_END && k == rig_batches(&r));
    close_in_time(p);
    nothing_left();
}

static int deadly_init(void *user, int worker, void **state) {
    (void)state;
    __atomic_add_fetch(&common->inits, 1, __ATOMIC_SEQ_CST);
    if (worker == 0 || user != NULL) raise(SIGKILL);
    return 0;
}

static void dies_in_init(int kind) {
    static const dlp_shm_desc shm = {.max_kills = 4};
    rig r;
    dlp_pipe *p = NULL;
    dlp_error err;
    uint64_t k = 0;
    int rc;
    simple_rig(&r);
    r.pipe.shm = &shm;
    r.fetch.worker_init = deadly_init;
    r.fetch.worker_user = kind ? &files_ : NULL; /* all of them */
    rc = rig_try(&r, &p, &err);
    if (rc == DLP_OK) {
        rc = take(&r, p, &k, 1 << 30);
        err = *dlp_pipe_error(p);
        close_in_time(p);
    }
    CHECK(rc == DLP_ERR_KILLED && strstr(err.message, "worker_init") != NULL);
    CHECK(strstr(err.message, "4 times") && strcmp(err.stage, "fetch") == 0);
    CHECK(get(&common->inits) >= 4 && get(&common->inits) <= (kind ? 8 : 5));
    nothing_left();
}

/* ---- what kills outside of the stage's callback ---- */

static uint64_t deadly_function(void *user, uint64_t epoch, uint64_t position) {
    (void)user;
    if (position == 137) raise(SIGKILL);
    return position + epoch * 0;
}
static uint64_t deadly_replacement(void *user, uint64_t epoch, uint64_t position, uint64_t random) {
    (void)user;
    (void)epoch;
    (void)random;
    raise(SIGKILL);
    return position;
}
static uint64_t harmless_function(void *user, uint64_t epoch, uint64_t position) {
    (void)user;
    return position + epoch * 0;
}
static int picky(void *user, dlp_item *it) {
    return it->index == 137 ? dlp_fail(it->call, 0, "not this one") : rig_fetch(user, it);
}
static int picky_map(void *user, dlp_item *it) {
    return it->index == 137 ? dlp_fail(it->call, 0, "not this one") : rig_item_map(user, it);
}

/* The sampler's function dies at one position (0; 2: unordered; 4: among threads that fetch), or
   its replacement does (1; 3: of a later stage; 5: among threads): an error that names the stage,
   after so many deaths. */
static void function_dies(int kind) {
    static const dlp_shm_desc shm = {.max_kills = 4};
    bool replaces = kind % 2 != 0;
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    const dlp_error *e;
    uint64_t from = test_now_ns();
    int rc;
    rig_init(&r, 3000, 16);
    rig_order(&r, DLP_ORDER_FUNCTION);
    shm_processes(&r, 2, 0);
    r.pipe.shm = &shm;
    r.sampler.function = replaces ? harmless_function : deadly_function;
    r.sampler.replacement = replaces ? deadly_replacement : NULL;
    r.fetch.on_error = r.item_map[0].workers.on_error = DLP_ON_ERROR_REPLACE;
    r.n_item_maps = 1;
    r.pipe.unordered = kind == 2;
    if (kind == 3)
        r.item_map[0].map.item = picky_map;
    else if (replaces)
        r.dataset.fetch = picky;
    if (kind >= 4) {
        r.fetcher = DLP_FETCH_THREADS;
        r.in_flight = 3;
    }
    files_ = shm_entries("/proc/self/fd");
    if (rig_open(&r, &p) != DLP_OK) return;
    tell_pids(p);
    while ((rc = dlp_pipe_next_timeout(p, &b, 3000)) == DLP_OK) dlp_pipe_release(p, b);
    e = dlp_pipe_error(p);
    CHECK(rc == DLP_ERR_KILLED && strcmp(e->stage, kind == 3 ? "map" : "fetch") == 0);
    CHECK(strstr(e->message, "SIGKILL") != NULL);
    CHECK(inside_restarts(p) >= 3 && inside_restarts(p) < 64);
    if (rc != DLP_ERR_KILLED || getenv("SAY")) {
        rig_say(p, rc);
        printf("  kind %d: %d restarts in %d ms\n", kind, (int)inside_restarts(p),
               (int)((test_now_ns() - from) / 1000000));
    }
    close_in_time(p);
    nothing_left();
}

static int deadly_once(void *user, dlp_item *it) {
    if (it->attempt == 0) raise(SIGKILL);
    return rig_fetch(user, it);
}

/* A worker says what is wrong with item 40, and dies before it returns: these are the words of no
   other failure, be it of the same item (0), the next one (1), the one in that row of the next
   batch (2), or of the worker_init of who takes its place (3); the same in a map, and among threads
   that fetch. */
static int last_words(const int *kind, const dlp_item *it) {
    if (it->index == 40 && get(&common->go) == 0) {
        set(&common->go, 1);
        dlp_fail(it->call, EIO, "famous last words");
        raise(SIGKILL);
    }
    return *kind < 3 && it->index == (const uint64_t[]){40, 41, 56}[*kind] ? -3 : 0;
}
static int last_words_fetch(void *user, dlp_item *it) {
    rig_fetch(NULL, it);
    return last_words(user, it);
}
static int last_words_map(void *user, dlp_item *it) {
    rig_item_map(NULL, it);
    return last_words(user, it);
}
static int last_words_init(void *user, int worker, void **state) {
    (void)worker;
    (void)state;
    return *(const int *)user == 3 && get(&common->go) != 0 ? -3 : 0;
}

static void words_of_the_dead(int arg) {
    int rc, kind = arg % 4, map = arg / 4 == 1;
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    const dlp_error *e;
    dlp_workers_desc *w = map ? &r.item_map[0].workers : &r.fetch;
    rig_init(&r, 3000, 16);
    shm_processes(&r, 1, 0);
    set(&common->go, 0);
    r.n_item_maps = map;
    r.dataset.user = r.item_map[0].map.user = &kind;
    if (map)
        r.item_map[0].map.item = last_words_map;
    else
        r.dataset.fetch = last_words_fetch;
    w->worker_init = last_words_init;
    w->worker_user = &kind;
    if (arg / 4 == 2) {
        r.fetcher = DLP_FETCH_THREADS;
        r.in_flight = 3;
    }
    files_ = shm_entries("/proc/self/fd");
    if (rig_open(&r, &p) != DLP_OK) return;
    tell_pids(p);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    e = dlp_pipe_error(p);
    CHECK(rc == DLP_ERR_CALLBACK && e->errnum == 0 && strstr(e->message, "returned -3") != NULL);
    if (e->errnum != 0) rig_say(p, rc);
    CHECK(inside_restarts(p) > 0);
    set(&common->go, 0);
    close_in_time(p);
    nothing_left();
}

/* The only worker has done all that it can do before another batch is taken, and sleeps. */
static void await_rest(dlp_pipe *p, int32_t but_for) {
    for (int i = 0; i < 20000; i++) {
        dlp_stats s;
        int state = inside_worker_state(p, 0);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        if (inside_pid(p, 0) != but_for &&
            s.stages[2].items == 16 * (s.batches + s.prefetch_factor) &&
            (state == DLP_WORKER_STARVED || state == DLP_WORKER_BLOCKED))
            return;
        test_pause(1000000);
    }
    CHECK(0);
}

/* A worker dies at work, and had nothing in hand: an error after so many deaths in a row (0), but
   not if it slept (1), or had completed something in each life (2). */
static void dies_holding_nothing(int kind) {
    static const dlp_shm_desc shm = {.max_kills = 4};
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    int rc = DLP_OK, deaths = kind == 0 ? 5 : 12; /* of the first life something is done */
    int32_t pid = 0;
    rig_init(&r, 3000, 16);
    shm_processes(&r, 1, 0);
    r.pipe.shm = &shm;
    r.pipe.epochs = DLP_FOREVER;
    files_ = shm_entries("/proc/self/fd");
    if (rig_open(&r, &p) != DLP_OK) return;
    tell_pids(p);
    for (int i = 0; i < deaths; i++) {
        await_rest(p, pid);
        pid = inside_pid(p, 0);
        signal_to(pid, SIGSTOP);
        CHECK(shm_state(pid, 'T'));
        if (kind != 1) inside_worker_says(p, 0, DLP_WORKER_BUSY);
        signal_to(pid, SIGKILL);
        await_restarts(p, (uint64_t)i + 1);
        if (kind != 2) continue;
        await_rest(p, pid);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    }
    for (int i = 0; i < 100 && rc == DLP_OK; i++)
        if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(rc == (kind == 0 ? DLP_ERR_KILLED : DLP_OK));
    CHECK(kind != 0 || strstr(dlp_pipe_error(p)->message, "died 4 times at the same work, last"));
    close_in_time(p);
    nothing_left();
}

/* Each item kills a worker once and is left out then: deaths for ever, and work done between any
   two of them. They are replaced at once, until there are too many of them. */
static void dies_all_the_time(int kind) {
    static const dlp_shm_desc shm = {.max_kills = 1};
    uint64_t from = test_now_ns(), ms = 0, n = 0, early = 0;
    rig r;
    dlp_pipe *p;
    simple_rig(&r);
    r.pipe.shm = &shm;
    r.dataset.fetch = deadly_once;
    r.fetch.on_error = DLP_ON_ERROR_DROP;
    (void)kind;
    if (rig_open(&r, &p) != DLP_OK) return;
    tell_pids(p);
    while (ms < 1500) {
        dlp_batch *b;
        if (dlp_pipe_next_timeout(p, &b, 100) == DLP_OK) dlp_pipe_release(p, b);
        ms = (test_now_ns() - from) / 1000000;
        n = inside_restarts(p);
        if (ms < 750) early = n;
    }
    CHECK(n < 64 + 4 + 4 + ms / 10);
    if (early < 64 || n < 100) was_late("a replacement");
    if (getenv("SAY")) printf("  %d restarts in %d ms, %d in 750\n", (int)n, (int)ms, (int)early);
    close_in_time(p);
    nothing_left();
}

/* ---- what the system refuses ---- */

static void no_more_processes(int allowed) { /* beside the caller */
    struct rlimit limit = {(rlim_t)allowed + 1, (rlim_t)allowed + 1};
    rig r;
    dlp_pipe *p = NULL;
    dlp_error err;
    int rc;
    if (getuid() == 0 && (setgid(61234) != 0 || setuid(61234) != 0)) return;
    setrlimit(RLIMIT_NPROC, &limit);
    prctl(PR_SET_DUMPABLE, 1); /* /proc/self stays readable */
    simple_rig(&r);
    rc = rig_try(&r, &p, &err);
    CHECK(rc == DLP_ERR_SYSTEM && err.errnum == EAGAIN);
    if (rc == DLP_OK) dlp_pipe_close(p);
    nothing_left();
}

/* The system lets the supervisor fork no more: for a while (0), for good (1). */
static void no_replacement(int kind) {
    struct rlimit none = {0, 0}, before;
    rig r;
    dlp_pipe *p;
    uint64_t k = 0, from, lifted;
    int rc = DLP_OK;
    if (getuid() == 0 && (setgid(61235) != 0 || setuid(61235) != 0)) return;
    prctl(PR_SET_DUMPABLE, 1);
    p = open_simple(&r);
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    CHECK(prlimit(get(&common->supervisor), RLIMIT_NPROC, NULL, &before) == 0);
    none.rlim_max = before.rlim_max;
    CHECK(prlimit(get(&common->supervisor), RLIMIT_NPROC, &none, NULL) == 0);
    from = test_now_ns();
    for (int i = 0; i < 2; i++) /* one has a spare, perhaps, the other has not */
        signal_to(get(&common->worker[i]), SIGKILL);
    while (rc == DLP_OK && test_now_ns() - from < UINT64_C(150000000)) {
        dlp_batch *b;
        rc = dlp_pipe_next_timeout(p, &b, 20);
        if (rc == DLP_OK) {
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            k++;
        }
        if (rc == DLP_TIMEOUT) rc = DLP_OK;
    }
    if (kind == 0) {
        prlimit(get(&common->supervisor), RLIMIT_NPROC, &before, NULL);
        lifted = test_now_ns(); /* it tries for half a second */
        if (rc == DLP_OK) rc = take(&r, p, &k, 300);
        if (lifted - from > 400000000)
            was_late("the limit is lifted");
        else
            CHECK(rc == DLP_OK);
    } else {
        CHECK(rc == DLP_OK);
        rc = take(&r, p, &k, 1 << 30);
        CHECK(rc == DLP_ERR_SYSTEM && dlp_pipe_error(p)->errnum == EAGAIN);
        CHECK(strstr(dlp_pipe_error(p)->message, "replaced") != NULL);
    }
    close_in_time(p);
    nothing_left();
}

static void limits_hold(int kind) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_error err;
    dlp_budget budget = {100000, 0};
    int rc;
    simple_rig(&r);
    if (kind == 0) r.pipe.limit_bytes = 20000;
    if (kind == 1) r.pipe.budget = &budget;
    rc = rig_try(&r, &p, &err);
    CHECK(rc == DLP_ERR_LIMIT && budget.used_bytes == 0);
    nothing_left();
}

/* The item that takes more memory than there is. */
static int hungry_fetch(void *user, dlp_item *it) {
    const size_t bytes = (size_t)256 << 20;
    if (it->index == 77) {
        char *eats = malloc(bytes);
        for (size_t i = 0; eats && i < bytes; i += 4096) eats[i] = 1;
        free(eats);
    }
    return rig_fetch(user, it);
}

static int cgroup_write(const char *dir, const char *file, long number) {
    char path[300];
    FILE *f;
    int ok;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (access(path, W_OK) != 0 || (f = fopen(path, "w")) == NULL) return 0; /* it makes them */
    ok = fprintf(f, "%ld", number) > 0;
    return fclose(f) == 0 && ok;
}

/* A memory cgroup that leaves less than the plan; and one in which an item is too much: the system
   kills its worker, each time, and the error names it. */
static void in_small_cgroup(int version) {
    const char *root = version == 1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    const char *limit = version == 1 ? "memory.limit_in_bytes" : "memory.max";
    char dir[128];
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    int rc;
    snprintf(dir, sizeof dir, "%s/dlpipe_test_%d", root, (int)getpid());
    if (mkdir(dir, 0700) != 0 || !cgroup_write(dir, limit, 64 << 20) ||
        !cgroup_write(dir, "cgroup.procs", getpid())) {
        set(&common->go, 78);
        rmdir(dir);
        return;
    }
    simple_rig(&r);
    r.batch.batch_size = 1 << 20;
    r.pipe.prefetch_factor = 8;
    CHECK(rig_try(&r, &p, &err) == DLP_ERR_LIMIT && strstr(err.message, "cgroup"));
    nothing_left();
    simple_rig(&r);
    r.dataset.fetch = hungry_fetch;
    if (rig_open(&r, &p) == DLP_OK) {
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_ERR_KILLED && dlp_pipe_error(p)->index == 77);
        CHECK(strstr(dlp_pipe_error(p)->message, "SIGKILL") != NULL);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    nothing_left();
    cgroup_write(root, "cgroup.procs", getpid());
    rmdir(dir);
}

/* ulimit -f: an error in words of worker processes (0; 1: no files at all), no matter to
   threads (2), whose pictures are not written then; and no signal. */
static void files_limited(int kind) {
    struct rlimit most = {4096, 4096};
    char path[64];
    rig r;
    dlp_pipe *p = NULL;
    dlp_error err = {0};
    uint64_t k = 0;
    simple_rig(&r);
    if (kind == 2) r.fetch.placement = r.batch_map[0].workers.placement = DLP_PLACE_THREADS;
    if (kind == 1) most.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_FSIZE, &most) == 0);
    if (kind < 2) {
        CHECK(rig_try(&r, &p, &err) == DLP_ERR_LIMIT);
        CHECK(strstr(err.message, "ulimit -f") != NULL);
    } else if (rig_open(&r, &p) == DLP_OK) {
        CHECK(take(&r, p, &k, 300) == DLP_OK);
        snprintf(path, sizeof path, "/tmp/shm_deaths-%d.json", (int)getpid());
        CHECK(dlp_pipe_write_trace(p, path, NULL) == DLP_ERR_SYSTEM && errno == EFBIG);
        CHECK(access(path, F_OK) != 0);
        CHECK(dlp_pipe_write_trace(p, "/dev/null", NULL) == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    nothing_left();
}

static void huge_pages(int mode) {
    dlp_shm_desc shm = {.huge_pages = mode};
    rig r;
    dlp_pipe *p = NULL;
    dlp_error err;
    uint64_t k = 0, free_pages = inside_meminfo("HugePages_Free:");
    int rc;
    simple_rig(&r);
    r.pipe.shm = &shm;
    rc = rig_try(&r, &p, &err);
    if (mode == DLP_HUGE_RESERVED && (free_pages == UINT64_MAX || free_pages == 0)) {
        CHECK(rc == DLP_ERR_MEMORY && strstr(err.message, "nr_hugepages") != NULL);
    } else {
        CHECK(rc == DLP_OK && take(&r, p, &k, 100) == DLP_OK);
        CHECK(mode == DLP_HUGE_NONE || inside_region_bytes(p) % (2u << 20) == 0);
        tell_pids(p);
        signal_to(get(&common->worker[0]), SIGKILL);
        CHECK(take(&r, p, &k, 100) == DLP_OK);
        close_in_time(p);
    }
    nothing_left();
}

/* ---- a stop ---- */

static void stopped_by_signal(int n) {
    (void)n;
    dlp_pipe_stop((dlp_pipe *)(uintptr_t)common->counter);
}

static int sleepy_fetch(void *user, dlp_item *it) {
    if (it->index % 7 == 0) test_pause(UINT64_C(20000000000)); /* it is stuck */
    return rig_fetch(user, it);
}

/* Callbacks that would run for long are given grace_ms. */
static void stop_is_a_stop(int kind) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    int rc;
    struct itimerval t = {{0, 0}, {0, 50000}};
    simple_rig(&r);
    r.dataset.fetch = sleepy_fetch;
    if (rig_open(&r, &p) != DLP_OK) return;
    tell_pids(p);
    common->counter = (uint64_t)(uintptr_t)p;
    signal(SIGALRM, stopped_by_signal);
    if (kind == 1) {
        setitimer(ITIMER_REAL, &t, NULL);
        while ((rc = dlp_pipe_next_timeout(p, &b, 10000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_STOPPED);
    } else {
        CHECK(dlp_pipe_next_timeout(p, &b, 100) == DLP_TIMEOUT);
    }
    close_in_time(p);
    nothing_left();
}

/* The caller is large, so that its many workers take seconds to fork. */
static void begins_slowly(int workers) {
    const size_t bytes = (size_t)400 << 20;
    char *large = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rig r;
    dlp_pipe *p;
    if (large == MAP_FAILED) return;
    madvise(large, bytes, 15); /* MADV_NOHUGEPAGE: each page has an entry to be copied */
    memset(large, 1, bytes);
    simple_rig(&r);
    shm_processes(&r, workers, 0);
    r.pipe.prefetch_factor = workers;
    if (rig_open(&r, &p) != DLP_OK) return;
    set(&common->ready, 1);
    for (;;) pause();
}

static void caller_killed_while_workers_begin(void) {
    pid_t pid = launch(begins_slowly, 150);
    CHECK(await(&common->ready, 1, 20000));
    signal_to(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    expect_gone(pid, 0, "caller_killed_while_workers_begin", 0);
}

/* Who never waits is told, too. */
static void supervisor_killed_nowait(int kind) {
    rig r;
    dlp_pipe *p = open_simple(&r);
    dlp_batch *b;
    uint64_t from, k = 0;
    int rc;
    CHECK(take(&r, p, &k, 3) == DLP_OK);
    kill(get(&common->supervisor), SIGKILL);
    from = test_now_ns();
    while (((rc = dlp_pipe_next_timeout(p, &b, 0)) == DLP_OK || rc == DLP_TIMEOUT) &&
           test_now_ns() - from < AT_MOST) {
        if (rc == DLP_OK) dlp_pipe_release(p, b);
        if (kind == 1) test_pause(1000000);
    }
    CHECK(rc == DLP_ERR_KILLED);
    in_a_second(from, "the supervisor's death is told to who never waits");
    close_in_time(p);
    nothing_left();
}

/* The wait before a retry is not the callback's time. */
static int fails_twice(void *user, dlp_batch *b, void *state) {
    if (b->in_epoch == 2 && __atomic_fetch_add(&common->inits, 1, __ATOMIC_SEQ_CST) < 2) return 1;
    return rig_batch_map(user, b, state);
}

static void backoff_is_no_delay(int threads) {
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    int rc;
    simple_rig(&r);
    r.pipe.epochs = 1;
    r.batch_map[0].map.batch = fails_twice;
    r.batch_map[0].workers.idempotent = 1;
    r.batch_map[0].workers.deadline_ms = 60;
    r.batch_map[0].workers.retries = 2;
    r.batch_map[0].workers.retry_backoff_ms = 90;
    if (threads) r.batch_map[0].workers.placement = DLP_PLACE_THREADS;
    if (rig_open(&r, &p) != DLP_OK) return;
    rc = take(&r, p, &k, 10000);
    if (rc == DLP_ERR_DEADLINE || inside_restarts(p) > 0)
        was_late("a batch map that does not wait");
    else
        CHECK(rc == DLP_END && k == rig_batches(&r) && get(&common->inits) >= 3);
    close_in_time(p);
    nothing_left();
}

/* Each stage has its own retries. */
static int collate_fails_once(void *user, dlp_collate *c) {
    if (c->position == 32 && __atomic_fetch_add(&common->inits, 1, __ATOMIC_SEQ_CST) == 0) return 1;
    return dlp_collate_pad(user, c);
}

static int map_fails_once(void *user, dlp_batch *b, void *state) {
    if (b->in_epoch == 2 && __atomic_fetch_add(&common->file_size, 1, __ATOMIC_SEQ_CST) == 0)
        return 1;
    return rig_batch_map(user, b, state);
}

static void retries_of_each_stage(int idempotent) {
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    simple_rig(&r);
    r.pipe.epochs = 1;
    r.batch.collate = collate_fails_once;
    r.batch_by.num_workers = 2;
    r.batch_by.retries = 1;
    r.batch_map[0].map.batch = map_fails_once;
    r.batch_map[0].workers.retries = 1;
    r.batch_map[0].workers.idempotent = idempotent;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(take(&r, p, &k, 10000) == DLP_END && k == rig_batches(&r));
    CHECK(get(&common->inits) >= 2 && get(&common->file_size) >= 2);
    close_in_time(p);
    nothing_left();
}

/* The supervisor gets no descriptor to watch a new worker by: that one may have claimed work. late:
   it has a spare by then, so it goes on to wait, for more descriptors at once than the limit is. */
static int short_fetch(void *user, dlp_item *it) {
    test_pause(200000);
    return rig_fetch(user, it);
}

static void no_descriptors(int late) {
    struct rlimit few = {0, 0}, before;
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    int32_t supervisor;
    simple_rig(&r);
    r.pipe.epochs = 2;
    r.dataset.fetch = short_fetch;
    if (rig_open(&r, &p) != DLP_OK) return;
    tell_pids(p);
    supervisor = get(&common->supervisor);
    CHECK(take(&r, p, &k, 5) == DLP_OK);
    if (late) test_pause(100000000);
    CHECK(prlimit(supervisor, RLIMIT_NOFILE, NULL, &before) == 0);
    few = before;
    few.rlim_cur = 3;
    CHECK(prlimit(supervisor, RLIMIT_NOFILE, &few, NULL) == 0);
    CHECK(kill(supervisor, SIGSTOP) == 0 && kill(supervisor, SIGCONT) == 0); /* it polls again: 3
                                                      are too few to poll all that it watches */
    signal_to(get(&common->worker[0]), SIGKILL); /* the spare replaces it, and has no successor */
    await_restarts(p, 1);
    test_pause(5000000);
    signal_to(inside_pid(p, 0), SIGKILL);
    test_pause(100000000); /* some workers are begun in vain */
    CHECK(prlimit(supervisor, RLIMIT_NOFILE, &before, NULL) == 0);
    CHECK(take(&r, p, &k, 100000) == DLP_END && k == 2 * rig_batches(&r));
    close_in_time(p);
    nothing_left();
}

/* Another program signals the group while pipes start: the program's handler runs in the program
   alone, never in a process forked off it, which would take the program's end for its own. */
static int32_t program_, *strangers_;

static void notes_who(int sig) {
    (void)sig;
    if (getpid() != program_) __atomic_add_fetch(strangers_, 1, __ATOMIC_RELAXED);
}

static pid_t signals_group(void) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    signal(SIGWINCH, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (kill(0, SIGWINCH) == 0) continue;
    _exit(0);
}

static void group_is_signalled(int kind) {
    struct sigaction sa;
    pid_t other, rc;
    rig r;
    dlp_pipe *p;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = notes_who;
    sa.sa_flags = kind ? SA_RESTART : 0;
    program_ = getpid();
    strangers_ = shm_shared(4096);
    sigaction(SIGWINCH, &sa, NULL);
    other = signals_group();
    for (int n = 0; n < test_share(80, 800); n++) {
        simple_rig(&r);
        if (rig_open(&r, &p) != DLP_OK) _exit(1);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    kill(other, SIGKILL);
    do { rc = waitpid(other, NULL, 0); } while (rc < 0 && errno == EINTR);
    CHECK(rc == other);
    CHECK(*strangers_ == 0);
    munmap(strangers_, 4096);
    nothing_left();
}

/* A process forked in the moment in which another thread of its parent starts a pipe finds the word
   of that start. */
static void forked_while_one_starts(int kind) {
    int status = 0;
    pid_t child;
    rig r;
    (void)kind;
    simple_rig(&r);
    inside_begins(1);
    child = fork();
    if (child == 0) {
        dlp_pipe *p;
        alarm(20);
        _exit(rig_open(&r, &p) == DLP_OK && dlp_pipe_close(p) == DLP_OK ? 0 : 1);
    }
    inside_begins(0);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    nothing_left();
}

/* Signals arrive while the region's memory is reserved. */
static void ticks(int n) { (void)n; }

static void start_interrupted(int kind) {
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct sigaction sa;
    rig r;
    dlp_pipe *p;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = ticks;
    sa.sa_flags = kind;
    sigaction(SIGALRM, &sa, NULL);
    simple_rig(&r);
    r.batch.batch_size = 1024;
    r.dataset.n_items = 100000;
    rig_order(&r, DLP_ORDER_SEQUENTIAL);
    r.pipe.prefetch_factor = 2000;
    setitimer(ITIMER_REAL, &often, NULL);
    if (rig_open(&r, &p) == DLP_OK) {
        setitimer(ITIMER_REAL, &never, NULL);
        close_in_time(p);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    nothing_left();
}

/* A job that is stopped again and again: the item is slow by the clock alone. */
static int once_slow(void *user, dlp_item *it) {
    if (it->index == 37 && __atomic_fetch_add(&common->inits, 1, __ATOMIC_SEQ_CST) == 0) {
        set(&common->go, 1);
        for (int i = 0; i < 100; i++) test_pause(1000000);
    }
    return rig_fetch(user, it);
}

static void stopped_often(int kind) {
    rig r;
    dlp_pipe *p;
    uint64_t k = 0;
    pid_t stopper;
    int32_t group;
    int rc;
    simple_rig(&r);
    r.pipe.epochs = 1;
    r.fetch.deadline_ms = 400;
    r.dataset.fetch = once_slow;
    if (rig_open(&r, &p) != DLP_OK) return;
    group = inside_supervisor(p);
    stopper = fork();
    if (stopper == 0) {
        await(&common->go, 1, 10000);
        for (int i = 0; i < 8; i++) {
            kill(-group, SIGSTOP);
            test_pause(250000000);
            kill(-group, SIGCONT);
            test_pause(5000000);
        }
        _exit(kind);
    }
    rc = take(&r, p, &k, 10000);
    if (rc == DLP_ERR_DEADLINE || inside_restarts(p) > 0)
        was_late("an item of 100 ms");
    else
        CHECK(rc == DLP_END && k == rig_batches(&r));
    CHECK(waitpid(stopper, NULL, 0) == stopper);
    close_in_time(p);
    nothing_left();
}

static uint64_t said(const char *what, uint64_t from) {
    uint64_t now = test_now_ns();
    if (getenv("TIMES")) printf("%-40s %5d ms\n", what, (int)((now - from) / 1000000));
    return now;
}

#define WHOLE(run, n) \
    do { \
        for (int k_ = 0; k_ < (n); k_++) run_whole(run, k_, #run); \
        t = said(#run, t); \
    } while (0)
#define KILLED(run) \
    do { \
        int tries_ = 0; \
        do run(); \
        while (again(++tries_)); \
        t = said(#run, t); \
    } while (0)

int main(void) {
    uint64_t t = test_now_ns();
    SHM_NEEDS("shm_deaths");
    setvbuf(stdout, NULL, _IOLBF, 0);
    common = shm_shared(sizeof *common);
    WHOLE(supervisor_killed, 3);
    KILLED(caller_killed);
    KILLED(all_killed);
    KILLED(caller_killed_supervisor_stopped);
    KILLED(caller_execs);
    if (!RIG_ASAN && !getenv("SHORT")) KILLED(caller_killed_while_workers_begin);
    KILLED(killed_at_any_moment);
    WHOLE(supervisor_killed_early, 2);
    run_whole(worker_stopped, 0, "worker_stopped");
    run_whole(worker_stopped, 20, "worker_stopped");
    t = said("worker_stopped", t);
    WHOLE(supervisor_stopped, 2);
    WHOLE(user_waits, 2);
    WHOLE(user_forks, 2);
    WHOLE(group_signalled, 5);
    WHOLE(stdio_closed, 4);
    WHOLE(threads_there, 3);
    KILLED(poisons);
    WHOLE(late_retried, 2);
    WHOLE(dies_in_init, 2);
    WHOLE(function_dies, 6);
    WHOLE(dies_all_the_time, 1);
    WHOLE(words_of_the_dead, 12);
    WHOLE(dies_holding_nothing, 3);
    if (getuid() == 0 && !RIG_ASAN) WHOLE(no_more_processes, 3);
    if (getuid() == 0 && !RIG_ASAN) WHOLE(no_replacement, 2);
    WHOLE(limits_hold, 2);
    WHOLE(huge_pages, 3);
    WHOLE(files_limited, 3);
    WHOLE(stop_is_a_stop, 2);
    WHOLE(supervisor_killed_nowait, 2);
    WHOLE(backoff_is_no_delay, 2);
    WHOLE(retries_of_each_stage, 2);
    WHOLE(no_descriptors, 2);
    WHOLE(start_interrupted, 1);
    WHOLE(stopped_often, 1);
    WHOLE(group_is_signalled, 2);
    WHOLE(forked_while_one_starts, 1);
    run_whole(in_small_cgroup, 2, "in_small_cgroup");
    if (get(&common->go) == 78) {
        set(&common->go, 0);
        run_whole(in_small_cgroup, 1, "in_small_cgroup");
    }
    if (get(&common->go) == 78) printf("no memory cgroup can be made here: not tried\n");
    printf("the slowest to be gone took %d ms\n", (int)slowest_ms_);
    return test_end("shm_deaths");
}
