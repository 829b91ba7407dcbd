#pragma once
/* tests: system/shm/shm_deaths, system/shm/shm_chaos */
#include "inputs/check.h"
#include "work/workers.h"
#include "work/recover.h"
#include "api/shm_start.h"
#include "base/places.h"
#include "shm/names.h"
#include "shm/platform.h"
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
   It keeps a spare process that is forked already and waits to take a dead worker's place: on busy
   cores one that slept is run at once, one just forked waits for its turn.
   Spare and supervisor ask for short time slices (Linux 6.12): where workers fill the cores, a
   replacement would else wait milliseconds for its first turn.
   There is no journal: what a dead worker had is read off the words of claims and completion, each
   written by one store (dlpipe.h, >>impl-recover); giving it back may be interrupted, and done
   again.
   Nobody's death is concluded from a clock, and none from a number: a pid may be another's by then.
   The end of all of them is seen by a pipe (alive) of which each holds the writing end. */

typedef struct dlpi_proc { /* the supervisor's record of a worker process */
    dlpi_worker *w;
    pid_t pid;              /* 0: there is no process now */
    uint32_t deaths;        /* deaths in a row of processes that completed no item */
    uint64_t items;         /* items that the worker had completed when this process began */
    dlpi_lost held;         /* the unit that it had at its death, if no callback ran */
    uint32_t held_deaths;   /* deaths in a row of workers that had this unit */
    uint64_t due_ns;        /* time at which it may be replaced; 0: it lives, or will not be */
    uint64_t watched_item;  /* for the deadline: the item that runs */
    uint32_t watched_op;    /* the row whose callback runs */
    uint64_t watched_since; /* time at which the worker says that this item began */
    uint64_t ran_ns;        /* ns for which the supervisor itself saw the item run */
    bool late;              /* the process was killed because the item was past its deadline */
} dlpi_proc;

typedef struct dlpi_shm_state { /* dlp_pipe.shm */
    dlp_shm_desc d;
    pid_t supervisor;
    int caller_fd, supervisor_fd; /* pidfds */
    int nudge[2], alive[2];       /* [0] is read, [1] written */
    int n_procs;
    dlpi_proc *procs;      /* [n_procs] */
    struct pollfd *fds;    /* [n_procs + 3] caller, nudge, workers, spare: after procs */
    pid_t spare;           /* a process that waits to replace a worker; 0: none */
    int task;              /* socket that tells the spare process which worker it replaces */
    uint64_t spare_due_ns; /* time at which the next spare process may be forked */
    uint64_t restart_ns;   /* time of the last restart that a turn was given to */
    /* The scheduler's record of subscribers. */
    uint64_t bound;     /* a bit for each subscriber that is admitted */
    uint64_t unwaited;  /* a bit for each of these that the pipe does not wait for */
    uint64_t looked_ns; /* time of the last look at their locks */
    uint64_t frees;     /* counts batches that were handed back, for new words of takers */
    uint64_t left_at;   /* cursor of the subscriber that left last */
    bool enough;        /* wait_subscribers subscribers have come */
} dlpi_shm_state;

static dlpi_shm_state *dlpi_shm_of(const dlp_pipe *p) { return p->shm; }

static void dlpi_fd_close(int *fd) {
    if (*fd < 0) return; /* and not written: in a worker the page would have to be copied */
    close(*fd);
    *fd = -1;
}

static int dlpi_shm_fail(dlp_pipe *p, int code, const char *field, const char *message) {
    return dlpi_refuse(p, code, "", field, "%s", message);
}

static size_t dlpi_procs_bytes(const dlpi_shm_state *s) {
    size_t n = (size_t)s->n_procs;
    return n * sizeof *s->procs + (n + 3) * sizeof *s->fds;
}

/* Allocate the records of worker processes. The memory is shared, though the supervisor alone uses
   it: private pages that it writes between two forks would be copied, and each worker would keep
   one of its own. */
static int dlpi_procs_alloc(dlp_pipe *p) {
    dlpi_shm_state *s = p->shm;
    int n = 0;
    void *at;
    s->n_procs = p->n_procs;
    at = mmap(NULL, dlpi_procs_bytes(s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return dlpi_shm_fail(p, DLP_ERR_MEMORY, "", "mmap of the processes' records failed");
    s->procs = at;
    s->fds = (struct pollfd *)(void *)(s->procs + s->n_procs);
    for (int i = 0; i < p->n_staffed; i++) {
        const dlpi_stage *st = p->work[i];
        if (st->w.num_workers == 0 || st->w.placement != DLP_PLACE_PROCESSES) continue;
        for (int k = 0; k < st->n_workers; k++) s->procs[n++].w = &p->workers[st->first_worker + k];
    }
    return DLP_OK;
}

typedef struct dlpi_sched_attr { /* sched_setattr(2), Linux */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} dlpi_sched_attr;

/* Run in slices of ns (0: the system's). A thread with short slices gets a core sooner when it
   wakes, or is forked (Linux 6.12; before that, nothing changes). Where workers fill the cores, a
   replacement would else wait some ms for a core, and its supervisor before it. */
static void dlpi_slice(uint64_t ns) {
    dlpi_sched_attr attr = {.size = sizeof attr};
    if (syscall(SYS_sched_getscheduler, 0) != 0) return; /* the user has another policy */
    attr.nice = getpriority(PRIO_PROCESS, 0);
    attr.runtime = ns;
    syscall(SYS_sched_setattr, 0, &attr, 0u);
}

/* ---- a worker process ---- */

/* Be the process of worker w until the pipe stops. The exit status is 2 if the worker cannot begin.
   */
_Noreturn static void dlpi_process_worker(dlp_pipe *p, dlpi_worker *w) {
    int began;
    /* threads that are begun here are to run as everybody else: they would inherit the slice */
    if (w->st->w.worker_init || w->st->in_flight > 0 || w->seat != NULL) dlpi_slice(0);
    DLPI_STORE_RLX(&w->block->pid, (int32_t)getpid()); /* for people */
    dlpi_thread_dress(w);
    began = dlpi_worker_begin(w);
    if (began == DLP_OK && !dlpi_stopped(p) && !w->st->ops->step(w)) dlpi_worker_wait(w);
    dlpi_slice(0); /* it has begun: from here on as everybody else */
    while (began == DLP_OK && !dlpi_stopped(p))
        if (!w->st->ops->step(w)) dlpi_worker_wait(w);
    dlpi_worker_end(w, began);
    _exit(began == DLP_OK ? 0 : 2);
}

/* ---- the supervisor ---- */

/* Set *set to the signals that are sent to all of a job and are the caller's business. */
static void dlpi_job_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGUSR2);
}

/* Handle signals as a new program does, but ignore those of a job; unblock all of them. */
static void dlpi_process_signals(void) {
    sigset_t none, job;
    dlpi_job_signals(&job);
    for (int i = 1; i < 65; i++)
        if (i != SIGKILL && i != SIGSTOP) signal(i, sigismember(&job, i) == 1 ? SIG_IGN : SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void dlpi_process_stdin(void) {
    int fd = dlpi_fd_above(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (fd > 0) dup2(fd, 0);
    if (fd > 0) close(fd);
}

/* Be the spare process: wait to be told which worker to be. task: the socket that tells it. */
_Noreturn static void dlpi_process_spare(dlp_pipe *p, int task) {
    int k = 0;
    ssize_t n;
    prctl(PR_SET_NAME, "dlpipe-spare");
    while ((n = read(task, &k, sizeof k)) < 0 && errno == EINTR) continue;
    if (n != (ssize_t)sizeof k) _exit(0);
    close(task);
    dlpi_process_worker(p, dlpi_shm_of(p)->procs[k].w);
}

/* Give back what a dead worker had. We killed it for no fault of its item, so no item is blamed. */
static void dlpi_recover_blameless(dlpi_worker *w) {
    const dlpi_death why = {SIGKILL, false, NULL};
    dlpi_running_forget(w);
    dlpi_recover(w, &why);
}

/* Fork, and watch the child. The child is worker k or, if k is n_procs, the spare, which reads its
   task from `task`. Returns the child's pid, or -errno. */
static pid_t dlpi_proc_fork(dlp_pipe *p, int k, int task) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    pid_t me = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* die with the supervisor */
        /* it died before we asked; by a call that is bound already: else each of them looks for
           getppid in the C library, for ten page faults */
        if (syscall(SYS_getppid) != me) _exit(1);
        dlpi_fd_close(&s->task);
        if (k < s->n_procs) dlpi_process_worker(p, s->procs[k].w);
        dlpi_process_spare(p, task);
    }
    if (pid < 0) return -errno;
    s->fds[k + 2].fd = dlpi_pidfd_open(pid);
    if (s->fds[k + 2].fd >= 0) return pid;
    kill(pid, SIGKILL); /* no descriptor is left to watch it by; but it may have had work */
    waitpid(pid, NULL, 0);
    if (k < s->n_procs) dlpi_recover_blameless(s->procs[k].w);
    return -EMFILE;
}

/* Make the spare process worker k. Returns its pid, or 0 if there is no spare. */
static pid_t dlpi_spare_take(dlp_pipe *p, int k) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    pid_t pid = s->spare;
    ssize_t n;
    if (pid == 0) return 0;
    n = send(s->task, &k, sizeof k, MSG_NOSIGNAL); /* fails: it is dead, and will be seen to be */
    DLPI_UNUSED(n);
    dlpi_fd_close(&s->task);
    s->fds[k + 2].fd = s->fds[s->n_procs + 2].fd;
    s->fds[s->n_procs + 2].fd = -1;
    s->spare = 0;
    return pid;
}

/* The first spare waits until the workers are likely to have begun: it would take their cores. */
#define DLPI_SPARE_NS UINT64_C(20000000)

/* Fork the spare process, if there is none and its time has come. A failure is no error: the next
   call tries again. */
static void dlpi_spare_keep(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int task[2], rc;
    pid_t pid;
    if (s->spare != 0 || dlpi_stopped(p) || dlpi_now_ns() < s->spare_due_ns) return;
    /* a socket, as nudge is */
    rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, task);
    if (dlpi_pair_above(rc, task) != 0) return;
    s->task = task[1];
    pid = dlpi_proc_fork(p, s->n_procs, task[0]);
    close(task[0]);
    s->spare = pid > 0 ? pid : 0;
    if (pid <= 0) dlpi_fd_close(&s->task);
}

#define DLPI_TURN_NS UINT64_C(10000000)

/* Return when a process that died may be replaced: at once; but whatever it is that makes processes
   die, for long they are not forked more often than 100 times a second. Each death gets a turn, 10
   ms after the one before; of the turns that nobody took, one for each worker and 64 more are
   kept. */
static uint64_t dlpi_restart_turn(dlpi_shm_state *s) {
    uint64_t now = dlpi_now_ns(), saved = (64 + (uint64_t)s->n_procs) * DLPI_TURN_NS;
    if (now > saved && s->restart_ns < now - saved) s->restart_ns = now - saved;
    s->restart_ns += DLPI_TURN_NS;
    return s->restart_ns > now ? s->restart_ns : now;
}

/* Note that the spare process has ended, and when the next one may be forked. */
static void dlpi_spare_ended(dlpi_shm_state *s) {
    waitpid(s->spare, NULL, 0);
    s->spare_due_ns = dlpi_restart_turn(s);
    s->spare = 0;
    dlpi_fd_close(&s->task);
    dlpi_fd_close(&s->fds[s->n_procs + 2].fd);
}

/* Start worker k, as the spare or by a fork. Returns 0 or errno. */
static int dlpi_proc_start(dlp_pipe *p, int k) {
    dlpi_proc *proc = &dlpi_shm_of(p)->procs[k];
    pid_t pid;
    DLPI_STORE_RLX(&proc->w->block->state, DLP_WORKER_STARTING); /* for people, and for its death */
    DLPI_STORE_RLX(&proc->w->block->process, 1);                 /* for people */
    proc->items = DLPI_LOAD_RLX(&proc->w->block->items);         /* of a dead process */
    proc->due_ns = 0;
    pid = dlpi_spare_take(p, k);
    if (pid == 0) pid = dlpi_proc_fork(p, k, -1);
    if (pid < 0) return -pid;
    proc->pid = pid;
    proc->late = false;
    proc->watched_item = proc->ran_ns = 0;
    return 0;
}

/* Fail the pipe because of a worker process. errnum: errno, or 0. */
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

/* Start worker k, and try again for half a second if that fails. Then the pipe has the error. */
static void dlpi_proc_restart(dlp_pipe *p, int k) {
    dlpi_proc *proc = &dlpi_shm_of(p)->procs[k];
    int errnum = dlpi_proc_start(p, k);
    for (int i = 0; errnum != 0 && i < 50 && !dlpi_stopped(p); i++) {
        dlpi_sleep(10000000);
        errnum = dlpi_proc_start(p, k);
    }
    if (errnum != 0)
        dlpi_proc_fail(p, proc->w, DLP_ERR_SYSTEM, errnum, "a worker process can't be replaced");
}

/* True if the worker may be replaced after its process ended. state: the worker's at its end. */
static bool dlpi_proc_again(dlp_pipe *p, dlpi_proc *proc, int state, uint32_t signal_) {
    char text[128];
    if (dlpi_stopped(p)) return false;
    if (state == DLP_WORKER_EXITED) return false; /* worker_init has failed */
    if (state != DLP_WORKER_STARTING || ++proc->deaths < p->max_kills) return true;
    snprintf(text, sizeof text, "the worker process died %u times in worker_init (%s)",
             proc->deaths, dlpi_signal_text(signal_));
    dlpi_proc_fail(p, proc->w, DLP_ERR_KILLED, 0, text);
    return false;
}

/* Return how many workers of this stage in a row, with this one, died with the same undone work
   *h. */
static uint32_t dlpi_held_deaths(dlpi_shm_state *s, dlpi_proc *proc, const dlpi_lost *h) {
    uint32_t most = 0;
    for (int k = 0; k < s->n_procs; k++) {
        const dlpi_proc *q = &s->procs[k];
        bool same = q->w->st == proc->w->st && q->held.b == h->b && q->held.slot == h->slot &&
                    q->held.unit == h->unit && q->held.missing == h->missing;
        if (same && q->held_deaths > most) most = q->held_deaths;
    }
    proc->held = *h;
    proc->held_deaths = most + 1;
    return most + 1;
}

/* Write into `text` which work a dead worker had; the text is empty if it had none. */
static void dlpi_held_text(dlp_pipe *p, const dlpi_proc *proc, const dlpi_lost *h, char *text,
                           size_t size) {
    const dlpi_bslot *slot;
    uint32_t first = 0;
    text[0] = 0;
    if (h->missing == 0) return;
    if (proc->w->st->ops->unit == DLPI_UNIT_CELLS) {
        proc->w->st->ops->tell(p, h->slot, text, size);
        return;
    }
    slot = dlpi_slot_at(p, h->slot);
    if (dlpi_is_item_stage(p, proc->w->st))
        first = h->unit << dlpi_header_shift(DLPI_LOAD_RLX(&slot->header)); /* it is not done */
    snprintf(text, size, " (epoch %" PRIu64 ", positions from %" PRIu64 ")", slot->epoch,
             slot->position + first);
}

/* True if workers died too often to be replaced; then the pipe has the error. A worker died at
   work, and no callback of its stage ran: in what else the library calls (the sampler's functions),
   or because its memory was overwritten. No item is to blame, and the next one dies there, too. So
   deaths with the same work count, whoever had it; or, without work, in lives that completed
   nothing. */
static bool dlpi_proc_hopeless(dlp_pipe *p, dlpi_proc *proc, int state, const dlpi_death *why) {
    const dlpi_lost *h = why->lost;
    bool works = state == DLP_WORKER_BUSY || state == DLP_WORKER_STARTING; /* else it slept */
    char text[256], what[80];
    uint32_t n;
    if (!works || h->ran || why->late) {
        proc->deaths = 0;
        return false;
    }
    if (h->missing != 0)
        n = dlpi_held_deaths(dlpi_shm_of(p), proc, h);
    else if (state == DLP_WORKER_STARTING)
        return false; /* counted by dlpi_proc_again */
    else if (DLPI_LOAD_RLX(&proc->w->block->items) != proc->items)
        n = proc->deaths = 0; /* dead */
    else
        n = ++proc->deaths;
    if (n < p->max_kills) return false;
    dlpi_held_text(p, proc, h, what, sizeof what);
    snprintf(text, sizeof text,
             "worker processes died %u times at the same work%s, last by %s, but not in the "
             "stage's callback; look at functions of the sampler",
             n, what, dlpi_signal_text(why->signal));
    dlpi_proc_fail(p, proc->w, DLP_ERR_KILLED, 0, text);
    return true;
}

/* True if it was killed for a late item that it finished in the end, and had begun another one. */
static bool dlpi_proc_next_item(const dlpi_proc *proc) {
    const dlpi_worker_block *block = proc->w->block;
    return proc->late &&
           (DLPI_LOAD_RLX(&block->running) != proc->watched_item || /* X2 of the dead */
            DLPI_LOAD_RLX(&block->since_ns) != proc->watched_since);
}

/* Give back what worker k had, whose process has ended, and start a new process if it may be
   replaced. Only the supervisor may call this. */
static void dlpi_proc_ended(dlp_pipe *p, int k) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_proc *proc = &s->procs[k];
    dlpi_worker_block *block = proc->w->block;
    dlpi_lost held = {0};
    dlpi_death why = {0, proc->late, &held};
    int status = 0, state;
    bool again;
    while (waitpid(proc->pid, &status, 0) < 0 && errno == EINTR) continue;
    proc->pid = 0;
    dlpi_fd_close(&s->fds[k + 2].fd);
    why.signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
    state = DLPI_LOAD_RLX(&block->state); /* of a dead process */
    again = dlpi_proc_again(p, proc, state, why.signal);
    if (again) { /* said before others go on: what they make of it may be the caller's last batch */
        DLPI_STORE_RLX(&block->died_by, (int32_t)why.signal);                  /* statistics */
        DLPI_STORE_RLX(&block->restarts, DLPI_LOAD_RLX(&block->restarts) + 1); /* statistics */
        dlpi_bump(&p->ctl->restarts, 1);
    }
    if (!dlpi_stopped(p) && dlpi_proc_next_item(proc))
        dlpi_recover_blameless(proc->w);
    else if (!dlpi_stopped(p))
        dlpi_recover(proc->w, &why);
    if (!again || dlpi_proc_hopeless(p, proc, state, &why)) return;
    proc->due_ns = dlpi_restart_turn(s);
    if (proc->due_ns <= dlpi_now_ns()) dlpi_proc_restart(p, k);
}

static void dlpi_procs_due(dlp_pipe *p, uint64_t now) {
    const dlpi_shm_state *s = dlpi_shm_of(p);
    for (int k = 0; k < s->n_procs && !dlpi_stopped(p); k++)
        if (s->procs[k].due_ns != 0 && s->procs[k].due_ns <= now) dlpi_proc_restart(p, k);
}

/* Return when the first process that waits for a turn may start; UINT64_MAX if none waits. */
static uint64_t dlpi_next_turn(const dlp_pipe *p) {
    const dlpi_shm_state *s = dlpi_shm_of(p);
    uint64_t due = UINT64_MAX;
    if (dlpi_stopped(p)) return due;
    if (s->spare == 0 && s->spare_due_ns > dlpi_now_ns()) due = s->spare_due_ns;
    for (int k = 0; k < s->n_procs; k++)
        if (s->procs[k].due_ns != 0 && s->procs[k].due_ns < due) due = s->procs[k].due_ns;
    return due;
}

/* Kill workers whose callback runs past its deadline. Only time that we ourselves ran counts. */
static void dlpi_procs_deadlines(dlp_pipe *p, uint64_t passed) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    for (int k = 0; k < s->n_procs; k++) {
        dlpi_proc *proc = &s->procs[k];
        const dlpi_worker_block *block = proc->w->block;
        const uint32_t op = DLPI_LOAD_RLX(&block->op); /* X4 */
        const int32_t ms = dlpi_limit_ms(proc->w->st, dlpi_row_numbered(p, op));
        const uint64_t limit = (uint64_t)ms * 1000000u;
        uint64_t item = DLPI_LOAD_RLX(&block->running),
                 since = DLPI_LOAD_RLX(&block->since_ns); /* X2 */
        if (limit == 0 || proc->pid == 0 || proc->late) continue;
        if (item == 0 || item != proc->watched_item || since != proc->watched_since ||
            op != proc->watched_op)
            proc->ran_ns = 0;
        else
            proc->ran_ns += passed;
        proc->watched_item = item;
        proc->watched_op = op;
        proc->watched_since = since;
        if (proc->ran_ns < limit || DLPI_LOAD_RLX(&block->state) != DLP_WORKER_BUSY) continue;
        proc->late = true;
        kill(proc->pid, SIGKILL);
    }
}

static void dlpi_procs_kill(dlpi_shm_state *s) {
    for (int k = 0; k < s->n_procs; k++)
        if (s->procs[k].pid != 0) kill(s->procs[k].pid, SIGKILL);
    if (s->spare != 0) kill(s->spare, SIGKILL);
}

/* Kill all worker processes, wait for their deaths, and exit with this code. */
_Noreturn static void dlpi_supervisor_end(dlp_pipe *p, int code) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    dlpi_procs_kill(s);
    for (int k = 0; k < s->n_procs; k++)
        if (s->procs[k].pid != 0) waitpid(s->procs[k].pid, NULL, 0);
    if (s->spare != 0) waitpid(s->spare, NULL, 0);
    _exit(code);
}

/* End all after the caller's death: kill the workers and remove the name. Nobody else will. */
_Noreturn static void dlpi_caller_dead(dlp_pipe *p) {
    dlpi_procs_kill(dlpi_shm_of(p));
    dlpi_name_remove(p);
    dlpi_supervisor_end(p, 0);
}

static bool dlpi_caller_gone(const dlpi_shm_state *s) {
    struct pollfd fds[2] = {s->fds[0], s->fds[1]};
    if (poll(fds, 2, 0) <= 0) return false;
    return fds[0].revents != 0 || (fds[1].revents & (POLLHUP | POLLERR)) != 0;
}

/* Return the ms that poll may sleep. kill_at: when to kill the workers, or 0. All that happens
   wakes it by a descriptor, and a check costs as much as a worker's; so only deadlines want it
   often. */
static int dlpi_supervisor_sleep(const dlp_pipe *p, uint64_t kill_at) {
    uint64_t ns = p->deadline_ns != 0 ? DLPI_SLEEP_NS : 10 * DLPI_SLEEP_NS, now = dlpi_now_ns();
    uint64_t turn = dlpi_next_turn(p);
    if (p->deadline_ns != 0 && p->deadline_ns / 4 < ns) ns = p->deadline_ns / 4;
    if (turn < now + ns) ns = turn > now ? turn - now : 0;
    if (kill_at != 0 && kill_at < now + ns)
        ns = kill_at > now ? kill_at - now : 10000000; /* they die slowly */
    return (int)((ns + 999999) / 1000000);
}

/* Sleep until something happens, at most ms. Returns how many have events; -1 after a signal. Where
   poll refuses all at once (more than the limit of descriptors, which others may lower; no memory),
   look at each by itself, 100 times a second: our end would be that of the pipe. */
static int dlpi_supervisor_poll(const dlpi_shm_state *s, int ms) {
    int n = poll(s->fds, (nfds_t)s->n_procs + 3, ms);
    if (n >= 0 || errno == EINTR) return n;
    dlpi_sleep(ms < 10 ? (uint64_t)ms * 1000000u : 10000000u);
    n = 0;
    for (int k = 0; k < s->n_procs + 3; k++) {
        s->fds[k].revents = 0;
        n += s->fds[k].fd >= 0 && poll(&s->fds[k], 1, 0) > 0;
    }
    return n;
}

/* Watch the processes until the pipe stops and no worker is left; then end this process. */
_Noreturn static void dlpi_supervise(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    uint64_t kill_at = 0, looked = dlpi_now_ns(), now;
    for (;;) {
        char byte[64];
        bool alive = false;
        int sleep = dlpi_supervisor_sleep(p, kill_at);
        int n = dlpi_supervisor_poll(s, sleep);
        if (n > 0 && s->fds[0].revents != 0) dlpi_caller_dead(p);
        if (n > 0 && (s->fds[1].revents & POLLIN) != 0 &&
            read(s->nudge[0], byte, sizeof byte) < 0 && errno != EAGAIN && errno != EINTR)
            dlpi_supervisor_end(p, 1);
        if (n > 0 && (s->fds[1].revents & (POLLHUP | POLLERR)) != 0) dlpi_caller_dead(p);
        for (int k = 0; n > 0 && k < s->n_procs; k++)
            if (s->procs[k].pid != 0 && s->fds[k + 2].revents != 0) dlpi_proc_ended(p, k);
        if (n > 0 && s->spare != 0 && s->fds[s->n_procs + 2].revents != 0) dlpi_spare_ended(s);
        now = dlpi_now_ns();
        dlpi_procs_due(p, now);
        dlpi_spare_keep(p);
        if (p->deadline_ns != 0) { /* a sleep that was much longer: we were stopped, too */
            uint64_t most = (uint64_t)sleep * 2000000u + 10000000u, passed = now - looked;
            dlpi_procs_deadlines(p, passed < most ? passed : 0);
        }
        looked = now;
        if (!dlpi_stopped(p)) continue;
        for (int k = 0; k < s->n_procs && !alive; k++) alive = s->procs[k].pid != 0;
        if (!alive) dlpi_supervisor_end(p, 0);
        if (kill_at == 0 && DLPI_LOAD_ACQ(&p->ctl->closing) != 0) /* J2 <- J2 */
            kill_at = now + (uint64_t)s->d.grace_ms * 1000000u;
        if (kill_at != 0 && now >= kill_at) dlpi_procs_kill(s);
    }
}

/* Start workers for the first time: the first of each stage (first), or the others (!first).
   Returns 0, or errno: then the pipe has the error. */
static int dlpi_procs_begin(dlp_pipe *p, bool first) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int errnum = 0;
    for (int k = 0; errnum == 0 && k < s->n_procs && (first || !dlpi_stopped(p)); k++) {
        const dlpi_worker *w = s->procs[k].w;
        if (dlpi_caller_gone(s)) dlpi_caller_dead(p);
        if ((w->id == 0) != first || (errnum = dlpi_proc_start(p, k)) == 0) continue;
        dlpi_proc_fail(p, w, DLP_ERR_SYSTEM, errnum, "a worker process can't be started");
    }
    return errnum;
}

/* Be the supervisor process. The first worker of each stage is there before start returns; the
   others come meanwhile: a fork of a large program takes long, 17 ms a GiB. */
_Noreturn static void dlpi_supervisor(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int errnum;
    setpgid(0, 0);
    dlpi_process_signals();
    dlpi_process_stdin();
    dlpi_slice(100000);
    prctl(PR_SET_NAME, "dlpipe");
    dlpi_fd_close(&s->nudge[1]);
    dlpi_fd_close(&s->alive[0]);
    s->fds[0] = (struct pollfd){s->caller_fd, POLLIN, 0};
    s->fds[1] = (struct pollfd){s->nudge[0], POLLIN, 0};
    for (int k = 0; k <= s->n_procs; k++) s->fds[k + 2] = (struct pollfd){-1, POLLIN, 0};
    s->task = -1;
    s->spare_due_ns = dlpi_now_ns() + DLPI_SPARE_NS;
    p->in_worker = 1; /* of its children: this process runs no callback */
    sched_yield();    /* bound here, once: else each worker has a page of its own to note it in */
    errnum = dlpi_procs_begin(p, true);
    DLPI_STORE_REL(&p->ctl->processes, errnum == 0 ? 1u : 2u); /* J1 -> J1 */
    dlpi_event_ring(&p->ctl->processes_word, UINT32_MAX, 1);
    if (errnum == 0) errnum = dlpi_procs_begin(p, false);
    if (errnum != 0) dlpi_supervisor_end(p, 1);
    dlpi_supervise(p);
}
