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
   >>shm-impl-start       THE CALLER: START, WATCH, CLOSE
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

/* Register a callback under its own name, before main begins: at file scope, in any file.
   DLP_SHM_CALLBACK(fetch); */
#define DLP_SHM_CALLBACK(function) \
    __attribute__((constructor)) static void dlp_shm_register_##function(void) { \
        dlp_shm_register(#function, (dlp_shm_fn)(function)); \
    } \
    struct dlp_shm_register_semicolon

/* The same by a call, before dlp_shm_main.
   name: 1..63 bytes, copied - returns DLP_OK; DLP_ERR_ARG; DLP_ERR_STATE: another function has that
   name; DLP_ERR_MEMORY: 256 are registered - one thread at a time - does not wait or allocate. */
DLPDEF int dlp_shm_register(const char *name, dlp_shm_fn fn);

/* For DLP_SHM_EXEC: the first line of main. In a process that was begun as a pipe's supervisor it
   becomes that, and does not return; else it does nothing. A program that leaves it out is told so
   by start; it never runs twice. Worker processes see nothing of this process's memory: their
   callbacks are those registered, and get what shm.init makes of shm.blob as their user. */
DLPDEF void dlp_shm_main(int argc, char **argv);

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
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-supervisor  WORKERS ARE STARTED, WATCHED AND REPLACED
   caller --fork--> supervisor --fork--> workers

   The supervisor has one thread, works on no item, and sleeps in poll. It sees
     a worker's death    by the worker's pidfd: waits for it, gives back what it had (dlpi_recover),
                         forks another in its place
     the caller's death  by the caller's pidfd, which the caller opened before the fork: kills the
                         workers and ends. Also if the caller becomes another program by exec: then
                         the nudge pipe, whose other end is the caller's, closes
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

struct dlpi_exec_spec;

typedef struct dlpi_shm_state { /* dlp_pipe.shm */
    dlp_shm_desc d;
    const struct dlpi_exec_spec *spec; /* in processes that began by exec */
    pid_t owner;
    pid_t supervisor;
    int caller_fd, supervisor_fd; /* pidfds */
    int nudge[2], life[2];        /* pipes: [0] is read, [1] written */
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

static int dlpi_shm_fail(dlp_pipe *p, int code, const char *field, const char *message) {
    dlp_error e;
    dlpi_error_set(&e, code, field, "%s", message);
    return dlpi_pipe_fail(p, &e);
}

/* Records of the worker processes. */
static int dlpi_procs_alloc(dlp_pipe *p) {
    dlpi_shm_state *s = p->shm;
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
    return DLP_OK;
}

/* ---- a worker process ---- */

static int dlpi_exec_user(dlp_pipe *p, dlpi_worker *w);

_Noreturn static void dlpi_process_worker(dlp_pipe *p, dlpi_worker *w, pid_t supervisor) {
    int began;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(1); /* it died before we asked */
    w->started = w->process = 1;
    DLPI_STORE_RLX(&w->wb->pid, (int32_t)getpid()); /* for people */
    dlpi_thread_dress(w);
    if (dlpi_shm_of(p)->spec && dlpi_exec_user(p, w) != DLP_OK) _exit(2);
    w->started = w->process = 1;
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

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-exec        A SECOND PROGRAM THAT IS THE SAME
   For a process that has threads, or a device, before the pipe starts. The supervisor is this very
   program (/proc/self/exe), begun anew: dlp_shm_main finds in the environment that it is one, and
   does not return. What it must know lies in a memory file of its own, which only it is given, not
   in the region, at which others may look: a copy of the pipe's record, whose pointers it replaces
   (callbacks by their registered names), the sampler's subset, the blob. */

#define DLPI_EXEC_ENV "DLPIPE_SHM_SUPERVISOR"
#define DLPI_EXEC_MAGIC UINT64_C(0x6365786570696c64)
#define DLPI_NAMES 256

enum { DLPI_CB_ITEM, DLPI_CB_BATCH, DLPI_CB_COLLATE, DLPI_CB_INIT, DLPI_CB_EXIT, DLPI_CB_FUNCTION,
       DLPI_CB_COUNT };

typedef struct dlpi_callback {
    char name[64];
    dlp_shm_fn fn;
} dlpi_callback;

/* Registered before main begins, or by it; not changed afterwards. */
static dlpi_callback dlpi_callbacks[DLPI_NAMES];
static int dlpi_n_callbacks;
static const char *dlpi_program; /* argv[0], once dlp_shm_main was called */

/* Bytes behind it: affinity numbers of all stages, subset, blob. */
typedef struct dlpi_exec_spec {
    uint64_t magic, layout, pipe_bytes, total_bytes;
    int64_t owner;
    uint64_t self; /* the record's address in the caller */
    uint64_t affinity_at, subset_at, blob_at, blob_bytes;
    char init[64];
    char names[DLP_MAX_STAGES][DLPI_CB_COUNT][64];
    dlp_shm_desc desc;
    struct dlp_pipe pipe;
} dlpi_exec_spec;

static dlp_shm_fn dlpi_callback_find(const char *name) {
    for (int i = 0; i < dlpi_n_callbacks; i++)
        if (strcmp(dlpi_callbacks[i].name, name) == 0) return dlpi_callbacks[i].fn;
    return NULL;
}

static const char *dlpi_callback_name(dlp_shm_fn fn) {
    for (int i = 0; i < dlpi_n_callbacks; i++)
        if (dlpi_callbacks[i].fn == fn) return dlpi_callbacks[i].name;
    return NULL;
}

/* Write down the name of a callback; NULL has the name "". */
static int dlpi_callback_note(dlp_pipe *p, const dlpi_stage *st, const char *field, dlp_shm_fn fn,
                              char *name) {
    const char *found = fn ? dlpi_callback_name(fn) : "";
    dlp_error e;
    name[0] = 0;
    if (found != NULL) {
        dlpi_copy_text(name, 64, found);
        return DLP_OK;
    }
    dlpi_error_set(&e, DLP_ERR_ARG, field,
                   "workers that begin by exec find callbacks by name, and this one has none: say "
                   "DLP_SHM_CALLBACK(function) in its file");
    if (st) dlpi_copy_text(e.stage, sizeof e.stage, st->name);
    return dlpi_pipe_fail(p, &e);
}

/* The names of all that runs in worker processes. */
static int dlpi_exec_names(dlp_pipe *p, dlpi_exec_spec *x) {
    int rc = dlpi_callback_note(p, NULL, "shm.init", (dlp_shm_fn)x->desc.init, x->init);
    for (int i = 0; i < p->n_work && rc == DLP_OK; i++) {
        const dlpi_stage *st = p->work[i];
        char(*names)[64] = x->names[st->id];
        if (st->w.num_workers == 0 || st->w.placement != DLP_PLACE_PROCESSES) continue;
        rc = dlpi_callback_note(p, st, "fetch or item", (dlp_shm_fn)st->item, names[DLPI_CB_ITEM]);
        if (rc == DLP_OK)
            rc = dlpi_callback_note(p, st, "batch", (dlp_shm_fn)st->batch, names[DLPI_CB_BATCH]);
        if (rc == DLP_OK)
            rc = dlpi_callback_note(p, st, "collate", (dlp_shm_fn)st->collate,
                                    names[DLPI_CB_COLLATE]);
        if (rc == DLP_OK)
            rc = dlpi_callback_note(p, st, "worker_init", (dlp_shm_fn)st->w.worker_init,
                                    names[DLPI_CB_INIT]);
        if (rc == DLP_OK)
            rc = dlpi_callback_note(p, st, "worker_exit", (dlp_shm_fn)st->w.worker_exit,
                                    names[DLPI_CB_EXIT]);
        if (rc == DLP_OK && i == 0)
            rc = dlpi_callback_note(p, p->sampler, "sampler.function",
                                    (dlp_shm_fn)p->sampler->sampler.function,
                                    x->names[p->sampler->id][DLPI_CB_FUNCTION]);
    }
    return rc;
}

static uint64_t dlpi_exec_bytes(const dlp_pipe *p) {
    uint64_t bytes = sizeof(dlpi_exec_spec) + dlpi_shm_of(p)->d.blob_bytes + 64;
    if (p->sampler->sampler.subset) bytes += p->sampler->sampler.n_subset * 8;
    for (int i = 0; i < p->n_stages; i++)
        bytes += (uint64_t)p->stages[i].w.n_affinity * sizeof(int32_t);
    return bytes;
}

static uint64_t dlpi_shm_bytes(const dlp_pipe *p) {
    return dlpi_shm_of(p)->d.start == DLP_SHM_EXEC && p->n_procs > 0 ? dlpi_exec_bytes(p) : 0;
}

static void dlpi_exec_put(uint8_t *to, uint64_t *at, const void *from, uint64_t bytes) {
    if (bytes > 0) memcpy(to + *at, from, (size_t)bytes);
    *at = (*at + bytes + 7) & ~UINT64_C(7);
}

/* Fill the memory file. */
static int dlpi_exec_fill(dlp_pipe *p, dlpi_exec_spec *x) {
    const dlpi_shm_state *s = dlpi_shm_of(p);
    const dlp_sampler_desc *d = &p->sampler->sampler;
    uint64_t at = sizeof *x;
    int rc;
    x->magic = DLPI_EXEC_MAGIC;
    x->layout = dlpi_layout_hash();
    x->pipe_bytes = sizeof *p;
    x->total_bytes = dlpi_exec_bytes(p);
    x->owner = getpid();
    x->self = (uint64_t)(uintptr_t)p;
    x->desc = s->d;
    x->pipe = *p;
    if ((rc = dlpi_exec_names(p, x)) != DLP_OK) return rc;
    x->affinity_at = at;
    for (int i = 0; i < p->n_stages; i++)
        dlpi_exec_put((uint8_t *)x, &at, p->stages[i].affinity,
                      (uint64_t)p->stages[i].w.n_affinity * sizeof(int32_t));
    x->subset_at = at;
    dlpi_exec_put((uint8_t *)x, &at, d->subset, d->subset ? d->n_subset * 8 : 0);
    x->blob_at = at;
    x->blob_bytes = s->d.blob_bytes;
    dlpi_exec_put((uint8_t *)x, &at, s->d.blob, s->d.blob_bytes);
    return DLP_OK;
}

/* Make the memory file. Returns its descriptor, or negative. */
static int dlpi_exec_file(dlp_pipe *p) {
    uint64_t bytes = dlpi_exec_bytes(p);
    int fd = (int)syscall(SYS_memfd_create, "dlpipe-start", 1u), rc;
    void *at = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        rc = dlpi_system_fail(p, DLP_ERR_MEMORY, "mmap of what workers are told");
    } else {
        rc = dlpi_exec_fill(p, at);
        munmap(at, (size_t)bytes);
    }
    if (rc == DLP_OK) return fd;
    dlpi_fd_close(&fd);
    return rc;
}

/* The environment of this process, and one line more. NULL: no memory. */
static char **dlpi_exec_environ(char *line) {
    extern char **environ;
    size_t n = 0;
    char **env;
    while (environ && environ[n]) n++;
    env = malloc((n + 2) * sizeof *env);
    if (env == NULL) return NULL;
    for (size_t i = 0; i < n; i++) env[i] = environ[i];
    env[n] = line;
    env[n + 1] = NULL;
    return env;
}

/* Begin the supervisor. fds: of the memory file, the region, caller_fd, nudge[0], life[1], name. */
static int dlpi_exec_spawn(dlp_pipe *p, const int *fds, int n) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t all, none;
    char line[160], program[256], flag[] = "--dlpipe-supervisor", **env;
    char *argv[] = {program, flag, NULL};
    int rc = 0;
    dlpi_copy_text(program, sizeof program, dlpi_program);
    snprintf(line, sizeof line, DLPI_EXEC_ENV "=%d %d %d %d %d %d", fds[0], fds[1], fds[2], fds[3],
             fds[4], fds[5]);
    env = dlpi_exec_environ(line);
    if (env == NULL) return ENOMEM;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    for (int i = 0; i < n && rc == 0; i++) /* the same number: no longer closed on exec */
        if (fds[i] >= 0) rc = posix_spawn_file_actions_adddup2(&files, fds[i], fds[i]);
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETPGROUP);
    if (rc == 0) rc = posix_spawn(&s->supervisor, "/proc/self/exe", &files, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    free(env);
    return rc;
}

static int dlpi_exec_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int fds[6], rc;
    if (dlpi_program == NULL)
        return dlpi_shm_fail(
            p, DLP_ERR_STATE, "shm.start",
            "DLP_SHM_EXEC needs dlp_shm_main(argc, argv) as the first line of main");
    fds[0] = dlpi_exec_file(p);
    if (fds[0] < 0) return p->err.code;
    fds[1] = p->memfd;
    fds[2] = s->caller_fd;
    fds[3] = s->nudge[0];
    fds[4] = s->life[1];
    fds[5] = -1;
    rc = dlpi_exec_spawn(p, fds, 6);
    close(fds[0]);
    if (rc == 0) return DLP_OK;
    s->supervisor = 0;
    errno = rc;
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, "posix_spawn of the supervisor");
}

/* ---- the other side ---- */

/* A pointer into the caller's record, made one into ours. */
static void *dlpi_exec_moved(dlp_pipe *p, uint64_t self, const void *at) {
    return at == NULL ? NULL : (uint8_t *)p + ((uint64_t)(uintptr_t)at - self);
}

static dlp_shm_fn dlpi_exec_callback(dlp_pipe *p, const dlpi_stage *st, const char *name) {
    dlp_shm_fn fn = name[0] ? dlpi_callback_find(name) : NULL;
    dlp_error e;
    if (fn != NULL || name[0] == 0) return fn;
    dlpi_error_set(&e, DLP_ERR_ARG, "", "callback %s is not registered in the worker processes, "
                   "which run main only up to dlp_shm_main", name);
    dlpi_copy_text(e.stage, sizeof e.stage, st->name);
    dlpi_ctl_fail(p, DLPI_NOBODY, &e);
    return NULL;
}

/* Replace the pointers of stage i. The callbacks' names are looked up when the region is there. */
static void dlpi_exec_stage_point(dlp_pipe *p, int i, const dlpi_exec_spec *x) {
    dlpi_stage *st = &p->stages[i];
    st->w.name = st->name;
    for (int f = 0; f < DLP_MAX_FIELDS; f++) st->fields[f].name = st->field_names[f];
    if (st->dataset.fields) st->dataset.fields = st->fields;
    if (st->batching.out_fields) st->batching.out_fields = st->fields;
    st->affinity = NULL;
    st->w.affinity = NULL;
    st->sampler.weights = NULL;
    if (st->sampler.subset) {
        const uint8_t *at = (const uint8_t *)x + x->subset_at;
        st->sampler.subset = (const uint64_t *)(const void *)at;
    }
}

static void dlpi_exec_callbacks(dlp_pipe *p, const dlpi_exec_spec *x) {
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        dlp_shm_fn fn[DLPI_CB_COUNT];
        for (int k = 0; k < DLPI_CB_COUNT; k++) fn[k] = dlpi_exec_callback(p, st, x->names[i][k]);
        st->item = (dlp_item_fn)fn[DLPI_CB_ITEM];
        st->batch = (int (*)(void *, dlp_batch *, void *))fn[DLPI_CB_BATCH];
        st->collate = (dlp_collate_fn)fn[DLPI_CB_COLLATE];
        st->w.worker_init = (int (*)(void *, int, void **))fn[DLPI_CB_INIT];
        st->w.worker_exit = (void (*)(void *, int, void *))fn[DLPI_CB_EXIT];
        st->sampler.function = (uint64_t(*)(void *, uint64_t, uint64_t))fn[DLPI_CB_FUNCTION];
    }
}

/* A pipe's record of this process's own, from that of the caller. */
static dlp_pipe *dlpi_exec_pipe(const dlpi_exec_spec *x, int memfd) {
    dlp_pipe *p = malloc(sizeof *p);
    if (p == NULL) return NULL;
    *p = x->pipe;
    memset(&p->d.resume, 0, sizeof p->d.resume);
    p->d.budget = NULL;
    p->d.log = NULL;
    p->d.shm = NULL;
    p->d.name = p->name;
    p->budget_bytes = 0;
    p->alive = NULL;
    p->memfd = memfd;
    p->sampler = dlpi_exec_moved(p, x->self, p->sampler);
    p->repeat = dlpi_exec_moved(p, x->self, p->repeat);
    p->fetch = dlpi_exec_moved(p, x->self, p->fetch);
    p->batcher = dlpi_exec_moved(p, x->self, p->batcher);
    p->xfer = dlpi_exec_moved(p, x->self, p->xfer);
    p->cell_end = dlpi_exec_moved(p, x->self, p->cell_end);
    for (int i = 0; i < p->n_work; i++) p->work[i] = dlpi_exec_moved(p, x->self, p->work[i]);
    for (int i = 0; i < p->n_stages; i++) dlpi_exec_stage_point(p, i, x);
    for (uint32_t f = 0; f < p->items.n; f++) p->items.at[f].f.name = p->items.at[f].name;
    for (uint32_t f = 0; f < p->batches.n; f++) p->batches.at[f].f.name = p->batches.at[f].name;
    return p;
}

/* CPU numbers lie behind the record. */
static int dlpi_exec_affinity(dlp_pipe *p, const dlpi_exec_spec *x) {
    const uint8_t *at = (const uint8_t *)x + x->affinity_at;
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        size_t n = (size_t)st->w.n_affinity * sizeof(int32_t);
        if (n == 0) continue;
        if ((st->affinity = malloc(n)) == NULL) return DLP_ERR_MEMORY;
        memcpy(st->affinity, at, n);
        at += (n + 7) & ~(size_t)7;
    }
    return DLP_OK;
}

/* In a worker process that began by exec: what the callbacks get as user. */
static int dlpi_exec_user(dlp_pipe *p, dlpi_worker *w) {
    const dlpi_exec_spec *x = dlpi_shm_of(p)->spec;
    dlp_shm_init_fn init = (dlp_shm_init_fn)dlpi_exec_callback(p, w->st, x->init);
    void *user = NULL;
    int rc = init ? init((const uint8_t *)x + x->blob_at, x->blob_bytes, &user) : 0;
    dlp_error e;
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        st->user = st->w.worker_user = st->sampler.function_user = st->dataset.user = user;
    }
    dlpi_worker_init(p, w->st, w->id, w->global);
    if (rc == 0) return DLP_OK;
    dlpi_error_set(&e, DLP_ERR_CALLBACK, "shm.init", "init returned %d", rc);
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    e.worker = w->id;
    dlpi_ctl_fail(p, (uint32_t)w->global, &e);
    return DLP_ERR_CALLBACK;
}

/* What the caller wrote down; NULL: it is not from this program. */
static const dlpi_exec_spec *dlpi_exec_map(int fd) {
    struct stat st;
    const dlpi_exec_spec *x;
    void *at;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof *x) return NULL;
    at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return NULL;
    x = at;
    if (x->magic != DLPI_EXEC_MAGIC || x->layout != dlpi_layout_hash() ||
        x->pipe_bytes != sizeof(struct dlp_pipe) || x->total_bytes != (uint64_t)st.st_size)
        return NULL;
    return x;
}

static bool dlpi_exec_region(dlp_pipe *p) {
    void *at = mmap(NULL, (size_t)p->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->memfd, 0);
    if (at == MAP_FAILED) return false;
    p->region = at;
    return dlpi_private_alloc(p) == DLP_OK;
}

/* Become the supervisor. fds: as dlpi_exec_spawn gives them. */
_Noreturn static void dlpi_exec_supervisor(const int *fds) {
    const dlpi_exec_spec *x = dlpi_exec_map(fds[0]);
    dlp_pipe *p = x ? dlpi_exec_pipe(x, fds[1]) : NULL;
    dlpi_shm_state *s = calloc(1, sizeof *s);
    for (int i = 0; i < 6; i++)
        if (fds[i] >= 0) fcntl(fds[i], F_SETFD, FD_CLOEXEC);
    if (p == NULL || s == NULL || !dlpi_exec_region(p)) _exit(3);
    close(fds[0]);
    s->d = x->desc;
    s->spec = x;
    s->owner = (pid_t)x->owner;
    s->caller_fd = fds[2];
    s->nudge[0] = fds[3];
    s->life[1] = fds[4];
    s->nudge[1] = s->life[0] = s->supervisor_fd = -1;
    p->shm = s;
    dlpi_live_point(p);
    dlpi_live_workers(p);
    dlpi_exec_callbacks(p, x);
    if (dlpi_exec_affinity(p, x) != DLP_OK || dlpi_procs_alloc(p) != DLP_OK) _exit(3);
    dlpi_supervisor(p);
}

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-start       THE CALLER: START, WATCH, CLOSE */

static int dlpi_threads_here(void) {
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    if (d == NULL) return 1;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
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
    if (getenv(DLPI_EXEC_ENV))
        return dlpi_shm_fail(p, DLP_ERR_STATE, "shm.start",
                             "this process was begun as a worker: dlp_shm_main(argc, argv) must be "
                             "the first line of main");
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
    int rc = dlpi_procs_alloc(p);
    if (rc != DLP_OK) return rc;
    s->owner = getpid();
    s->caller_fd = dlpi_pidfd_open(s->owner);
    if (s->caller_fd < 0) return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pidfd_open (Linux 5.4)");
    if (pipe2(s->nudge, O_CLOEXEC | O_NONBLOCK) != 0 || pipe2(s->life, O_CLOEXEC) != 0)
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pipe2");
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

static int dlpi_fork_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    sigset_t all, before;
    int rc = dlpi_shm_may_fork(p);
    if (rc != DLP_OK) return rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of the user's runs in the child */
    s->supervisor = fork();
    if (s->supervisor == 0) dlpi_supervisor(p);
    rc = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = rc;
    if (s->supervisor > 0) return DLP_OK;
    s->supervisor = 0;
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, "fork of the supervisor");
}

static int dlpi_shm_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int rc;
    if (p->n_procs == 0) return DLP_OK;
    if ((rc = dlpi_shm_prepare(p)) != DLP_OK) return rc;
    rc = s->d.start == DLP_SHM_EXEC ? dlpi_exec_begin(p) : dlpi_fork_begin(p);
    if (rc != DLP_OK) return rc;
    setpgid(s->supervisor, s->supervisor); /* here, too: whoever comes first */
    s->supervisor_fd = dlpi_pidfd_open(s->supervisor);
    dlpi_fd_close(&s->nudge[0]);
    dlpi_fd_close(&s->life[1]);
    if (s->supervisor_fd < 0) return dlpi_system_fail(p, DLP_ERR_SYSTEM, "pidfd_open");
    return dlpi_shm_started(p);
}

static void dlpi_shm_nudge(dlp_pipe *p) {
    ssize_t n = 0;
    if (dlpi_shm_of(p)->nudge[1] >= 0) n = write(dlpi_shm_of(p)->nudge[1], "", 1);
    DLPI_UNUSED(n); /* full: it is awake */
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

static const dlpi_shm_calls dlpi_shm_table = {dlpi_shm_open,  dlpi_shm_bytes, dlpi_shm_begin,
                                              dlpi_shm_look,  dlpi_shm_nudge, dlpi_shm_await,
                                              dlpi_shm_end};
static const dlpi_shm_calls *dlpi_shm = &dlpi_shm_table;

/* ---------------------------------------------------------------------------------------------
   >>shm-impl-public      THE PUBLIC CALLS */

DLPDEF int dlp_shm_register(const char *name, dlp_shm_fn fn) {
    dlp_shm_fn known;
    if (name == NULL || fn == NULL || name[0] == 0 || strlen(name) >= 64) return DLP_ERR_ARG;
    known = dlpi_callback_find(name);
    if (known != NULL) return known == fn ? DLP_OK : DLP_ERR_STATE;
    if (dlpi_n_callbacks == DLPI_NAMES) return DLP_ERR_MEMORY;
    dlpi_copy_text(dlpi_callbacks[dlpi_n_callbacks].name, 64, name);
    dlpi_callbacks[dlpi_n_callbacks++].fn = fn;
    return DLP_OK;
}

DLPDEF void dlp_shm_main(int argc, char **argv) {
    const char *line = getenv(DLPI_EXEC_ENV);
    int fds[6];
    dlp_shm_register("dlp_collate_pad", (dlp_shm_fn)dlp_collate_pad);
    dlp_shm_register("dlp_collate_pack", (dlp_shm_fn)dlp_collate_pack);
    dlpi_program = argc > 0 && argv != NULL && argv[0] != NULL ? argv[0] : "dlpipe";
    if (line == NULL) return;
    if (sscanf(line, "%d %d %d %d %d %d", &fds[0], &fds[1], &fds[2], &fds[3], &fds[4], &fds[5]) !=
        6)
        _exit(3);
    unsetenv(DLPI_EXEC_ENV); /* programs that a callback runs are none */
    dlpi_exec_supervisor(fds);
}

DLPDEF int dlp_pipe_fork(dlp_pipe *p) {
    if (p == NULL) return DLP_ERR_ARG;
    if (dlpi_forked(p)) return DLP_ERR_FORKED;
    if (p->prepared) return p->err.code != 0 ? p->err.code : DLP_ERR_STATE;
    return dlpi_prepare(p);
}

#endif /* DLPIPE_IMPLEMENTATION */
