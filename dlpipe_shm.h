/* dlpipe_shm.h - v0.1.0 - worker processes for dlpipe.h - MIT licence - header-only, Linux 5.4+

   The same pipeline with workers as processes in shared memory: killed workers cost time, not data.
   And a view from outside: monitors that look at a running or stuck pipe, consumers that share one.

   >>shm-use        DO THIS, THEN THAT
   1  Copy this file beside dlpipe.h. In the one C file that has the implementation:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"
          #include "dlpipe_shm.h"
   2  Say .placement = DLP_PLACE_PROCESSES in the dlp_workers_desc of a stage. That is all.
   3  A name, several consumers, start by exec, huge pages: dlp_pipe_desc.shm, a dlp_shm_desc.

   >>contents       search for the anchor
   >>shm-use        DO THIS, THEN THAT
   >>shm-start      FORK, EARLY FORK, EXEC
   >>shm-names      NAMED PIPES
   >>shm-monitor    LOOKING IN FROM OUTSIDE
   >>shm-consumer   SEVERAL CONSUMERS OF ONE PIPE
   >>shm-impl-names       RECORDS AND LOCKS
   >>shm-impl-monitor     COPY, CHECK, THEN USE
   >>shm-impl-consumer    WHO HOLDS WHAT
   >>shm-impl-supervisor  WORKERS ARE STARTED, WATCHED AND REPLACED
   >>shm-impl-exec        A SECOND PROGRAM THAT IS THE SAME
   >>shm-impl-public      THE PUBLIC CALLS
*/

#ifndef DLPIPE_SHM_H
#define DLPIPE_SHM_H

#include "dlpipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
   >>shm-start      FORK, EARLY FORK, EXEC */

enum {
    DLP_SHM_FORK = 0, /* workers are forks of this process: they see its memory as it was then */
    DLP_SHM_EXEC      /* workers are this program, begun anew: see dlp_shm_main */
};

enum {
    DLP_HUGE_NONE = 0,
    DLP_HUGE_TRANSPARENT, /* ask the kernel (madvise); a warning if it declines */
    DLP_HUGE_RESERVED     /* from the pool of reserved huge pages; start fails if it is too small */
};

enum {
    DLP_SHARE_NONE = 0,
    DLP_SHARE_EACH, /* every consumer gets every batch; the slowest sets the pace */
    DLP_SHARE_ONE   /* each batch goes to one consumer */
};

/* A callback as it is registered for DLP_SHM_EXEC. */
typedef void (*dlp_shm_fn)(void);

/* Make the user pointer of the callbacks in a worker process that began by exec.
   blob, bytes: a copy of dlp_shm_desc.blob, in shared memory: read only; user: what all of the
   pipe's callbacks get in that process in place of their desc's - returns 0, or failure:
   DLP_ERR_CALLBACK - in each worker process, before worker_init. */
typedef int (*dlp_shm_init_fn)(const void *blob, uint64_t bytes, void **user);

typedef struct dlp_shm_desc {
    const char *name;       /* NULL: none; 1..63 of A-Z a-z 0-9 . _ -, not beginning with a dot */
    int32_t start;          /* DLP_SHM_FORK, DLP_SHM_EXEC */
    int32_t allow_fork_with_threads; /* 1: fork though the process has threads. Locks that they hold
                               stay locked in the workers for ever: know what you do */
    int32_t max_kills;      /* times that an item may kill its worker before it counts as failed
                               (DLP_ERR_KILLED), and a worker die in worker_init; 0: 3; 1..100 */
    int32_t grace_ms;       /* close: how long workers may finish before they are killed; 0: 300 */
    int32_t huge_pages;     /* DLP_HUGE_* */
    int32_t share;          /* DLP_SHARE_*; named pipes without a transfer stage */
    int32_t max_consumers;  /* with share: 1..64 programs at once; 0: 8 */
    int32_t serve_only;     /* with share: 1: this process takes no batches, see dlp_shm_serve */
    dlp_shm_init_fn init;   /* DLP_SHM_EXEC: NULL or registered */
    const void *blob;       /* DLP_SHM_EXEC: for init; copied at start */
    uint64_t blob_bytes;    /* 0..2^30 */
} dlp_shm_desc;

/* Start the worker processes now, before start: for programs that make threads or open a device in
   between. What workers see of this process's memory is how it is at this moment. The pipe's wiring
   is complete; afterwards only start may follow.
   Returns what dlp_pipe_start returns of checking and allocating; DLP_ERR_STATE: called before, or
   after start - caller - allocates all that is shared. */
DLPDEF int dlp_pipe_fork(dlp_pipe *p);

#ifdef __cplusplus
}
#endif
#endif /* DLPIPE_SHM_H */

/* =============================================================================================
   IMPLEMENTATION */
#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_SHM_IMPLEMENTATION_DONE)
#define DLPIPE_SHM_IMPLEMENTATION_DONE

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-supervisor  WORKERS ARE STARTED, WATCHED AND REPLACED
   caller --fork--> supervisor --fork--> workers

   The supervisor has one thread, works on no item, and sleeps in poll. It sees
     a worker's death    by the worker's pidfd: waits for it, gives back what it had (dlpi_recover),
                         forks another in its place
     the caller's death  by the caller's pidfd, which the caller opened before the fork: kills the
                         workers and ends. Also if the caller becomes another program by exec: then
                         the nudge socket, whose other end is the caller's, closes
     its own             that is the kernel's work: the workers get SIGKILL with their parent
   and the caller sees the supervisor's death by its pidfd while it waits in next.
   Nobody's death is concluded from a clock, and none from a number: a pid may be another's by then.
   The end of all of them is seen by a pipe (life) of which each holds the writing end. */

typedef struct dlpi_proc { /* a worker process, as the supervisor knows it */
    dlpi_worker *w;
    pid_t pid;             /* 0: none */
    uint32_t init_deaths;  /* in a row */
    uint64_t watched_item; /* for the deadline: what runs, since when it says so, */
    uint64_t watched_since;
    uint64_t ran_ns;       /* and how long the supervisor itself saw it run */
    bool late;             /* it was killed for that */
} dlpi_proc;

typedef struct dlpi_shm_state { /* dlp_pipe.shm */
    dlp_shm_desc d;
    pid_t owner;
    pid_t supervisor;
    int caller_fd, supervisor_fd; /* pidfds */
    int nudge[2], life[2];        /* [0] is read, [1] written */
    int n_procs;
    dlpi_proc *procs;             /* [n_procs] */
    struct pollfd *fds;           /* [n_procs + 2] */
} dlpi_shm_state;

static dlpi_shm_state *dlpi_shm_of(const dlp_pipe *p) { return p->shm; }

static int dlpi_pidfd_open(pid_t pid) { return (int)syscall(434, pid, 0u); } /* Linux 5.3 */

static void dlpi_fd_close(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* ---- a worker process ---- */

_Noreturn static void dlpi_process_worker(dlp_pipe *p, dlpi_worker *w, pid_t supervisor) {
    int began;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(1); /* it died before we asked */
    w->started = w->process = 1;
    DLPI_STORE_RLX(&w->wb->pid, (int32_t)getpid()); /* for people */
    dlpi_thread_dress(w);
    if (dlpi_lanes_again(w) != DLP_OK) _exit(1);
    began = dlpi_worker_begin(w);
    while (began == DLP_OK && !dlpi_stopped(p))
        if (!dlpi_step(w)) dlpi_worker_wait(w);
    dlpi_worker_end(w, began);
    _exit(began == DLP_OK ? 0 : 2);
}

/* ---- the supervisor ---- */

/* Signals as a new program has them; SIGINT and SIGTERM to the group are the caller's business. */
static void dlpi_process_signals(void) {
    sigset_t none;
    for (int i = 1; i < 65; i++)
        if (i != SIGKILL && i != SIGSTOP) signal(i, SIG_DFL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void dlpi_process_stdin(void) {
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd > 0) dup2(fd, 0);
    if (fd > 0) close(fd);
}

/* Fork worker process k. Returns 0, or errno. */
static int dlpi_proc_start(dlp_pipe *p, int k) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_proc *proc = &s->procs[k];
    pid_t me = getpid(), pid;
    DLPI_STORE_RLX(&proc->w->wb->state, DLP_WORKER_STARTING); /* for people, and for its death */
    DLPI_STORE_RLX(&proc->w->wb->process, 1);                 /* for people */
    pid = fork();
    if (pid == 0) dlpi_process_worker(p, proc->w, me);
    if (pid < 0) return errno;
    proc->pid = pid;
    proc->late = false;
    proc->watched_item = proc->ran_ns = 0;
    s->fds[k + 2].fd = dlpi_pidfd_open(pid);
    if (s->fds[k + 2].fd >= 0) return 0;
    kill(pid, SIGKILL); /* no descriptor is left to watch it by */
    waitpid(pid, NULL, 0);
    proc->pid = 0;
    return EMFILE;
}

static void dlpi_proc_fail(dlp_pipe *p, const dlpi_worker *w, int code, int errnum,
                           const char *what) {
    dlp_error e;
    dlpi_error_set(&e, code, "", "%s%s%s", what, errnum ? ": " : "",
                   errnum ? strerror(errnum) : "");
    e.errnum = errnum;
    e.worker = w->id;
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    dlpi_ctl_fail(p, DLPI_NOBODY, &e);
}

/* Fork, and again for a while where the system is short of something. */
static void dlpi_proc_restart(dlp_pipe *p, int k) {
    dlpi_proc *proc = &dlpi_shm_of(p)->procs[k];
    int errnum = dlpi_proc_start(p, k);
    for (int i = 0; errnum != 0 && i < 50 && !dlpi_stopped(p); i++) {
        dlpi_nap(10000000);
        errnum = dlpi_proc_start(p, k);
    }
    if (errnum != 0)
        dlpi_proc_fail(p, proc->w, DLP_ERR_SYSTEM, errnum, "a worker process can't be replaced");
}

/* Worker k has ended: is it to be replaced? */
static bool dlpi_proc_wanted(dlp_pipe *p, dlpi_proc *proc, int state, int status) {
    char text[128];
    if (dlpi_stopped(p)) return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) return false; /* worker_init has failed */
    if (state != DLP_WORKER_STARTING) proc->init_deaths = 0;
    else if (++proc->init_deaths >= p->max_kills) {
        snprintf(text, sizeof text, "the worker process died %u times in worker_init (%s)",
                 proc->init_deaths,
                 dlpi_signal_text(WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0));
        dlpi_proc_fail(p, proc->w, DLP_ERR_KILLED, 0, text);
        return false;
    }
    return true;
}

static void dlpi_proc_ended(dlp_pipe *p, int k) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_proc *proc = &s->procs[k];
    dlpi_wblock *wb = proc->w->wb;
    dlpi_death why;
    int status = 0, state;
    while (waitpid(proc->pid, &status, 0) < 0 && errno == EINTR) continue;
    proc->pid = 0;
    dlpi_fd_close(&s->fds[k + 2].fd);
    why.signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
    why.late = proc->late;
    state = DLPI_LOAD_RLX(&wb->state); /* of a dead process */
    if (!dlpi_stopped(p)) dlpi_recover(proc->w, &why);
    if (!dlpi_proc_wanted(p, proc, state, status)) return;
    DLPI_STORE_RLX(&wb->restarts, DLPI_LOAD_RLX(&wb->restarts) + 1); /* statistics */
    dlpi_bump(&p->ctl->restarts, 1);
    dlpi_proc_restart(p, k);
}

/* Kill workers whose callback runs past its deadline. Only time that we ourselves ran counts. */
static void dlpi_procs_deadlines(dlp_pipe *p, uint64_t passed) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    for (int k = 0; k < s->n_procs; k++) {
        dlpi_proc *proc = &s->procs[k];
        const dlpi_wblock *wb = proc->w->wb;
        uint64_t limit = (uint64_t)proc->w->st->w.deadline_ms * 1000000u;
        uint64_t item = DLPI_LOAD_RLX(&wb->running), since = DLPI_LOAD_RLX(&wb->since_ns); /* X2 */
        if (limit == 0 || proc->pid == 0 || proc->late) continue;
        if (item == 0 || item != proc->watched_item || since != proc->watched_since)
            proc->ran_ns = 0;
        else proc->ran_ns += passed;
        proc->watched_item = item;
        proc->watched_since = since;
        if (proc->ran_ns < limit || DLPI_LOAD_RLX(&wb->state) != DLP_WORKER_BUSY) continue;
        proc->late = true;
        kill(proc->pid, SIGKILL);
    }
}

static int dlpi_procs_alive(const dlpi_shm_state *s) {
    int n = 0;
    for (int k = 0; k < s->n_procs; k++) n += s->procs[k].pid != 0;
    return n;
}

static void dlpi_procs_kill(dlpi_shm_state *s) {
    for (int k = 0; k < s->n_procs; k++)
        if (s->procs[k].pid != 0) kill(s->procs[k].pid, SIGKILL);
}

_Noreturn static void dlpi_supervisor_end(dlp_pipe *p, int code) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_procs_kill(s);
    for (int k = 0; k < s->n_procs; k++)
        if (s->procs[k].pid != 0) waitpid(s->procs[k].pid, NULL, 0);
    _exit(code);
}

/* How long poll may sleep, in ms. */
static int dlpi_supervisor_nap(const dlp_pipe *p, uint64_t kill_at) {
    uint64_t ns = DLPI_SLEEP_NS, now;
    if (p->deadline_ns != 0 && p->deadline_ns / 4 < ns) ns = p->deadline_ns / 4;
    if (kill_at != 0) {
        now = dlpi_now_ns();
        if (kill_at < now + ns) ns = kill_at > now ? kill_at - now : 0;
    }
    return (int)((ns + 999999) / 1000000);
}

/* Watch until the pipe stops and no worker is left. */
_Noreturn static void dlpi_supervise(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    uint64_t kill_at = 0, looked = dlpi_now_ns(), now;
    for (;;) {
        char byte[64];
        int nap = dlpi_supervisor_nap(p, kill_at);
        int n = poll(s->fds, (nfds_t)s->n_procs + 2, nap);
        if (n < 0 && errno != EINTR) dlpi_supervisor_end(p, 1);
        if (n > 0 && s->fds[0].revents != 0) dlpi_supervisor_end(p, 0); /* the caller is dead */
        if (n > 0 && (s->fds[1].revents & POLLIN) != 0 &&
            read(s->nudge[0], byte, sizeof byte) < 0 && errno != EAGAIN && errno != EINTR)
            dlpi_supervisor_end(p, 1);
        if (n > 0 && (s->fds[1].revents & (POLLHUP | POLLERR)) != 0) dlpi_supervisor_end(p, 0);
        for (int k = 0; n > 0 && k < s->n_procs; k++)
            if (s->procs[k].pid != 0 && s->fds[k + 2].revents != 0) dlpi_proc_ended(p, k);
        now = dlpi_now_ns();
        if (p->deadline_ns != 0) { /* a nap that was much longer: we were stopped, too */
            uint64_t most = (uint64_t)nap * 2000000u, passed = now - looked;
            dlpi_procs_deadlines(p, passed < most ? passed : most);
        }
        looked = now;
        if (!dlpi_stopped(p)) continue;
        if (dlpi_procs_alive(s) == 0) _exit(0);
        if (kill_at == 0 && DLPI_LOAD_ACQ(&p->ctl->closing) != 0) /* J2 <- J2 */
            kill_at = now + (uint64_t)s->d.grace_ms * 1000000u;
        if (kill_at != 0 && now >= kill_at) dlpi_procs_kill(s);
    }
}

_Noreturn static void dlpi_supervisor(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int errnum = 0;
    setpgid(0, 0);
    dlpi_process_signals();
    dlpi_process_stdin();
    prctl(PR_SET_NAME, "dlpipe");
    dlpi_fd_close(&s->nudge[1]);
    dlpi_fd_close(&s->life[0]);
    s->fds[0] = (struct pollfd){s->caller_fd, POLLIN, 0};
    s->fds[1] = (struct pollfd){s->nudge[0], POLLIN, 0};
    for (int k = 0; k < s->n_procs; k++) s->fds[k + 2] = (struct pollfd){-1, POLLIN, 0};
    for (int k = 0; errnum == 0 && k < s->n_procs; k++) {
        errnum = dlpi_proc_start(p, k);
        if (errnum != 0)
            dlpi_proc_fail(p, s->procs[k].w, DLP_ERR_SYSTEM, errnum,
                           "a worker process can't be started");
    }
    DLPI_STORE_REL(&p->ctl->processes, errnum == 0 ? 1u : 2u); /* J1 -> J1 */
    dlpi_wake_word(&p->ctl->processes_word);
    if (errnum != 0) dlpi_supervisor_end(p, 1);
    dlpi_supervise(p);
}

/* ---- the caller ---- */

static int dlpi_threads_here(void) {
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    if (d == NULL) return 1;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int dlpi_shm_fail(dlp_pipe *p, int code, const char *field, const char *message) {
    dlp_error e;
    dlpi_error_set(&e, code, field, "%s", message);
    return dlpi_pipe_fail(p, &e);
}

#define DLPI_SHM_RANGE(v, lo, hi, field, range) \
    if ((int64_t)(v) < (lo) || (int64_t)(v) > (hi)) \
    return dlpi_bad(p, "", "shm." field, range, (int64_t)(v))

static int dlpi_shm_check(dlp_pipe *p, const dlp_shm_desc *d) {
    DLPI_SHM_RANGE(d->start, 0, 1, "start", "DLP_SHM_*");
    DLPI_SHM_RANGE(d->allow_fork_with_threads, 0, 1, "allow_fork_with_threads", "0 or 1");
    DLPI_SHM_RANGE(d->max_kills, 0, 100, "max_kills", "0..100");
    DLPI_SHM_RANGE(d->grace_ms, 0, 3600000, "grace_ms", "0..3600000");
    DLPI_SHM_RANGE(d->huge_pages, 0, 2, "huge_pages", "DLP_HUGE_*");
    DLPI_SHM_RANGE(d->share, 0, 2, "share", "DLP_SHARE_*");
    DLPI_SHM_RANGE(d->max_consumers, 0, 64, "max_consumers", "0..64");
    DLPI_SHM_RANGE(d->serve_only, 0, 1, "serve_only", "0 or 1");
    DLPI_SHM_RANGE(d->blob_bytes, 0, INT64_C(1) << 30, "blob_bytes", "0..2^30");
    return DLP_OK;
}

static int dlpi_shm_open(dlp_pipe *p) {
    dlpi_shm_state *s;
    int rc;
    if (p->d.shm && (rc = dlpi_shm_check(p, p->d.shm)) != DLP_OK) return rc;
    s = calloc(1, sizeof *s);
    if (s == NULL) return dlpi_shm_fail(p, DLP_ERR_MEMORY, "", "calloc of a record failed");
    if (p->d.shm) s->d = *p->d.shm;
    if (s->d.max_kills) p->max_kills = (uint32_t)s->d.max_kills;
    if (s->d.grace_ms == 0) s->d.grace_ms = 300;
    p->huge_pages = s->d.huge_pages;
    s->caller_fd = s->supervisor_fd = -1;
    s->nudge[0] = s->nudge[1] = s->life[0] = s->life[1] = -1;
    p->shm = s;
    return DLP_OK;
}

static int dlpi_shm_may_fork(dlp_pipe *p) {
    char text[256];
    int n = dlpi_threads_here();
    if (n <= 1 || dlpi_shm_of(p)->d.allow_fork_with_threads) return DLP_OK;
    snprintf(text, sizeof text,
             "the process has %d threads, and a fork copies their locks as they are: start workers "
             "earlier (dlp_pipe_fork), by exec (shm.start), or set shm.allow_fork_with_threads", n);
    return dlpi_shm_fail(p, DLP_ERR_STATE, "placement", text);
}

static int dlpi_shm_prepare(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int n = 0;
    s->n_procs = p->n_procs;
    s->procs = calloc((size_t)p->n_procs, sizeof *s->procs);
    s->fds = calloc((size_t)p->n_procs + 2, sizeof *s->fds);
    if (s->procs == NULL || s->fds == NULL)
        return dlpi_shm_fail(p, DLP_ERR_MEMORY, "", "calloc of the processes' records failed");
    for (int i = 0; i < p->n_work; i++) {
        dlpi_stage *st = p->work[i];
        if (st->w.num_workers == 0 || st->w.placement != DLP_PLACE_PROCESSES) continue;
        for (int k = 0; k < st->n_workers; k++) s->procs[n++].w = &p->workers[st->first_worker + k];
    }
    s->owner = getpid();
    s->caller_fd = dlpi_pidfd_open(s->owner);
    if (s->caller_fd < 0) return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pidfd_open (Linux 5.4)");
    /* a socket: writing to a pipe whose reader has died would raise SIGPIPE in the caller */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s->nudge) != 0)
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, "socketpair");
    if (pipe2(s->life, O_CLOEXEC) != 0) return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pipe2");
    return DLP_OK;
}

/* Has the supervisor ended? */
static bool dlpi_supervisor_gone(const dlpi_shm_state *s) {
    struct pollfd fd = {s->supervisor_fd, POLLIN, 0};
    return s->supervisor_fd >= 0 && poll(&fd, 1, 0) > 0;
}

static int dlpi_shm_look(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int rc;
    if (!dlpi_supervisor_gone(s) || dlpi_stopped(p)) return DLP_OK;
    if ((rc = dlpi_next_error(p, true)) != DLP_OK) return rc; /* why it ended */
    return dlpi_shm_fail(p, DLP_ERR_KILLED, "",
                         "the supervisor process was killed, and the worker processes with it");
}

/* Wait until all workers were forked, or the error why not. */
static int dlpi_shm_started(dlp_pipe *p) {
    dlpi_ctl *ctl = p->ctl;
    for (;;) {
        uint32_t word = DLPI_LOAD_SEQ(&ctl->processes_word); /* J1 <- J1 */
        int rc;
        if (DLPI_LOAD_ACQ(&ctl->processes) == 1) return DLP_OK; /* J1 <- J1 */
        if ((rc = dlpi_next_error(p, true)) != DLP_OK) return rc;
        if ((rc = dlpi_shm_look(p)) != DLP_OK) return rc;
        if (dlpi_stopped(p) && dlpi_supervisor_gone(dlpi_shm_of(p))) return DLP_OK;
        dlpi_futex_wait(&ctl->processes_word, word, UINT32_MAX, DLPI_SLEEP_NS, 1);
    }
}

static int dlpi_shm_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    sigset_t all, before;
    int rc;
    if (p->n_procs == 0) return DLP_OK;
    if ((rc = dlpi_shm_may_fork(p)) != DLP_OK) return rc;
    if ((rc = dlpi_shm_prepare(p)) != DLP_OK) return rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of the user's runs in the child */
    s->supervisor = fork();
    if (s->supervisor == 0) dlpi_supervisor(p);
    rc = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = rc;
    if (s->supervisor < 0) return dlpi_system_fail(p, DLP_ERR_SYSTEM, "fork of the supervisor");
    setpgid(s->supervisor, s->supervisor);
    s->supervisor_fd = dlpi_pidfd_open(s->supervisor);
    dlpi_fd_close(&s->nudge[0]);
    dlpi_fd_close(&s->life[1]);
    if (s->supervisor_fd < 0) return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pidfd_open");
    return dlpi_shm_started(p);
}

static void dlpi_shm_nudge(dlp_pipe *p) {
    ssize_t n = 0;
    if (dlpi_shm_of(p)->nudge[1] >= 0) n = send(dlpi_shm_of(p)->nudge[1], "", 1, MSG_NOSIGNAL);
    DLPI_UNUSED(n); /* full: it is awake; nobody there: there is nothing to be told */
}

/* Wait until no process has the life pipe, at most ms. */
static bool dlpi_shm_dead(const dlpi_shm_state *s, int ms) {
    uint64_t until = dlpi_now_ns() + (uint64_t)ms * 1000000u, now;
    for (;;) {
        struct pollfd fd = {s->life[0], POLLIN, 0};
        if (poll(&fd, 1, ms) > 0) return true;
        now = dlpi_now_ns();
        if (now >= until) return false;
        ms = (int)((until - now) / 1000000u) + 1;
    }
}

static void dlpi_shm_await(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    siginfo_t info;
    if (s->supervisor <= 0) return;
    DLPI_STORE_REL(&p->ctl->closing, 1u); /* J2 -> J2 */
    dlpi_shm_nudge(p);
    if (!dlpi_shm_dead(s, s->d.grace_ms + 400)) { /* it may be stopped: then so are its duties */
        kill(-s->supervisor, SIGKILL);
        dlpi_shm_dead(s, 1000);
    }
    if (s->supervisor_fd >= 0) /* the user may have waited for it, or ignore SIGCHLD */
        while (waitid((idtype_t)3, (id_t)s->supervisor_fd, &info, WEXITED) < 0 && errno == EINTR)
            continue; /* 3: P_PIDFD */
    s->supervisor = 0;
}

static void dlpi_shm_end(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_fd_close(&s->caller_fd);
    dlpi_fd_close(&s->supervisor_fd);
    for (int i = 0; i < 2; i++) {
        dlpi_fd_close(&s->nudge[i]);
        dlpi_fd_close(&s->life[i]);
    }
    free(s->procs);
    free(s->fds);
    free(s);
    p->shm = NULL;
}

static const dlpi_shm_calls dlpi_shm_table = {dlpi_shm_open,  dlpi_shm_begin, dlpi_shm_look,
                                              dlpi_shm_nudge, dlpi_shm_await, dlpi_shm_end};
static const dlpi_shm_calls *dlpi_shm = &dlpi_shm_table;

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-public      THE PUBLIC CALLS */

DLPDEF int dlp_pipe_fork(dlp_pipe *p) {
    if (p == NULL) return DLP_ERR_ARG;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->prepared) return p->err.code != 0 ? p->err.code : DLP_ERR_STATE;
    return dlpi_prepare(p);
}

#endif /* DLPIPE_IMPLEMENTATION */
