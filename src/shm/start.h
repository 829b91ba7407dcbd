#pragma once
/* tests: system/shm/shm_deaths, system/shm/shm_basic */
#include "shm/subscriber.h"
#include "shm/supervisor.h"
#include "build/start.h"
#include "queue/claim.h"
#include "shm/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-impl-start       THE CALLER: START, WATCH, CLOSE */

/* True if a thread has left, or will once it has a core: a thread that was joined is in the
   kernel's list until then. It has no lock of the program by then. */
static bool dlpi_thread_leaves(const char *tid) {
    char path[64], line[512];
    const char *at;
    unsigned flags = 0;
    bool there;
    FILE *f;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", tid);
    if ((f = dlpi_stream_open(path, O_RDONLY, "r")) == NULL) return errno == ENOENT;
    there = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    if (!there) return true; /* it has left in between */
    at = strrchr(line, ')');
    if (at == NULL || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1) return false;
    return (flags & 4) != 0; /* PF_EXITING */
}

/* True if a thread is the library's own that answers the producers of a push. It takes no lock, so
   a fork copies none that it holds. */
static bool dlpi_thread_answers(const char *tid) {
    char path[64], name[20];
    ssize_t n;
    int fd;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", tid);
    if ((fd = dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC))) < 0) return false;
    n = read(fd, name, sizeof name);
    close(fd);
    return n == (ssize_t)sizeof DLPI_PUSH_THREAD &&
           memcmp(name, DLPI_PUSH_THREAD, (size_t)n - 1) == 0;
}

/* Return how many threads the process has that may hold a lock. Returns 1 if that cannot be found
   out. */
static int dlpi_threads_here(void) {
    DIR *d = dlpi_dir_open(open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int n = 0;
    if (d == NULL) return 1;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.' && !dlpi_thread_leaves(e->d_name) &&
             !dlpi_thread_answers(e->d_name);
    closedir(d);
    return n;
}

/* Check a shm desc by itself. Returns 0 or the code of the first error. */
static int dlpi_shm_check(dlp_pipe *p, const dlp_shm_desc *d) {
    static const dlpi_bound bounds[] = {
        {"shm.allow_fork_with_threads", DLPI_IN(dlp_shm_desc, allow_fork_with_threads), 0, 1,
         "0 or 1"},
        {"shm.max_kills", DLPI_IN(dlp_shm_desc, max_kills), 0, 100, "0..100"},
        {"shm.grace_ms", DLPI_IN(dlp_shm_desc, grace_ms), 0, 3600000, "0..3600000"},
        {"shm.huge_pages", DLPI_IN(dlp_shm_desc, huge_pages), 0, 2, "DLP_HUGE_*"},
        {"shm.share", DLPI_IN(dlp_shm_desc, share), 0, 2, "DLP_SHARE_*"},
        {"shm.max_subscribers", DLPI_IN(dlp_shm_desc, max_subscribers), 0, 64, "0..64"},
        {"shm.serve_only", DLPI_IN(dlp_shm_desc, serve_only), 0, 1, "0 or 1"},
    };
    dlpi_check_bounds(p, "", d, DLPI_ROWS(bounds));
    dlpi_within(p, "", "shm.wait_subscribers", d->wait_subscribers, 0,
                d->max_subscribers ? d->max_subscribers : 8, "0..max_subscribers");
    if (d->name != NULL && !dlpi_name_ok(d->name))
        dlpi_refuse(p, DLP_ERR_ARG, "", "shm.name",
                    "shm.name must have 1 to 63 of A-Z a-z 0-9 . _ -, no dot first");
    return p->err.code; /* the first of them */
}

/* Make the state for the shm desc, or for worker processes. Returns 0, or the pipe's error. */
static int dlpi_shm_make(dlp_pipe *p) {
    dlpi_shm_state *s;
    int rc;
    if (p->d.shm && (rc = dlpi_shm_check(p, p->d.shm)) != DLP_OK) return rc;
    s = calloc(1, sizeof *s);
    if (s == NULL) return dlpi_shm_fail(p, DLP_ERR_MEMORY, "", "calloc of a record failed");
    if (p->d.shm) s->d = *p->d.shm;
    dlpi_copy_text(p->shm_name, sizeof p->shm_name, s->d.name);
    s->d.name = NULL;
    if (s->d.max_kills) p->max_kills = (uint32_t)s->d.max_kills;
    if (s->d.grace_ms == 0) s->d.grace_ms = 300;
    if (s->d.max_subscribers == 0) s->d.max_subscribers = 8;
    if (s->d.share != DLP_SHARE_NONE) p->sharing = &dlpi_share_ops;
    p->huge_pages = s->d.huge_pages;
    s->caller_fd = s->supervisor_fd = -1;
    s->nudge[0] = s->nudge[1] = s->alive[0] = s->alive[1] = -1;
    p->shm = s;
    p->needs_file = 1;
    return DLP_OK;
}

static int dlpi_shm_open(dlp_pipe *p) { return p->d.shm ? dlpi_shm_make(p) : DLP_OK; }

static int dlpi_shm_processes(dlp_pipe *p DLPI_UNREAD, const dlpi_stage *st DLPI_UNREAD) {
    return DLP_OK;
}

static int dlpi_shm_resolve(dlp_pipe *p) {
    int rc = p->n_procs > 0 && p->shm == NULL ? dlpi_shm_make(p) : DLP_OK;
    p->others = p->n_procs > 0;
    return rc == DLP_OK && p->shm ? dlpi_shm_share_resolve(p) : rc;
}

/* Refuse to fork a process of several threads, unless the desc allows it. Returns 0 or a code. */
static int dlpi_shm_may_fork(dlp_pipe *p) {
    char text[256];
    int n = dlpi_threads_here();
    if (dlpi_shm_of(p)->d.allow_fork_with_threads) return DLP_OK;
    /* a thread that was joined may be in the kernel's list for a moment more */
    for (int i = 0; n > 1 && i < 20; i++, n = dlpi_threads_here()) dlpi_sleep(1000000);
    if (n <= 1) return DLP_OK;
    snprintf(text, sizeof text,
             "the process has %d threads, and a fork copies their locks; start workers earlier "
             "(later of the pipe's desc), or set shm.allow_fork_with_threads",
             n);
    return dlpi_shm_fail(p, DLP_ERR_STATE, "placement", text);
}

/* Make what the supervisor needs before it is forked: its table, sockets, and a descriptor of this
   process. Returns 0 or a DLP_ERR code. */
static int dlpi_shm_prepare(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int rc = dlpi_procs_alloc(p);
    if (rc != DLP_OK) return rc;
    s->caller_fd = dlpi_pidfd_open(getpid());
    if (s->caller_fd < 0)
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "pidfd_open (Linux 5.4)");
    /* a socket: writing to a pipe whose reader has died would raise SIGPIPE in the caller */
    rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s->nudge);
    if (dlpi_pair_above(rc, s->nudge) != 0)
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "socketpair");
    if (dlpi_pair_above(pipe2(s->alive, O_CLOEXEC), s->alive) != 0)
        return dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "pipe2");
    return DLP_OK;
}

static bool dlpi_supervisor_gone(const dlpi_shm_state *s) {
    struct pollfd fd = {s->supervisor_fd, POLLIN, 0};
    return s->supervisor_fd >= 0 && poll(&fd, 1, 0) > 0;
}

/* Fail the pipe if the supervisor was killed. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_shm_look(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int rc;
    if (s == NULL || !dlpi_supervisor_gone(s) || dlpi_stopped(p)) return DLP_OK;
    if ((rc = dlpi_next_error(p, true)) != DLP_OK) return rc; /* why it ended */
    return dlpi_shm_fail(p, DLP_ERR_KILLED, "",
                         "the supervisor process was killed, and the worker processes with it");
}

/* Wait until each stage has a worker process. Returns 0, or a code if the start has failed. */
static int dlpi_shm_started(dlp_pipe *p) {
    dlpi_ctl *ctl = p->ctl;
    for (;;) {
        uint32_t word = dlpi_event_count(&ctl->processes_word); /* J1 <- J1 */
        int rc;
        if (DLPI_LOAD_ACQ(&ctl->processes) == 1) return DLP_OK; /* J1 <- J1 */
        if ((rc = dlpi_next_error(p, true)) != DLP_OK) return rc;
        if ((rc = dlpi_shm_look(p)) != DLP_OK) return rc;
        if (dlpi_stopped(p) && dlpi_supervisor_gone(dlpi_shm_of(p))) return DLP_OK;
        dlpi_futex_wait(&ctl->processes_word, word, UINT32_MAX, DLPI_SLEEP_NS, 1);
    }
}

/* Fork the supervisor, with all signals blocked. Returns 0 or a DLP_ERR code. The child never
   returns. */
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
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "fork of the supervisor");
}

/* Prepare and fork the supervisor, and close the ends of its sockets that only the supervisor uses.
   Returns 0 or a DLP_ERR code. */
static int dlpi_supervisor_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int rc;
    if ((rc = dlpi_shm_prepare(p)) != DLP_OK) return rc;
    if ((rc = dlpi_fork_begin(p)) != DLP_OK) return rc;
    setpgid(s->supervisor, s->supervisor); /* here, too: whoever comes first */
    s->supervisor_fd = dlpi_pidfd_open(s->supervisor);
    dlpi_fd_close(&s->nudge[0]);
    dlpi_fd_close(&s->alive[1]);
    return s->supervisor_fd < 0 ? dlpi_system_fail(p, DLP_ERR_SYSTEM, errno, "pidfd_open") : DLP_OK;
}

/* From making its sockets until the caller has closed the ends that are the supervisor's, a pipe
   keeps other threads from forking supervisors of theirs. They would inherit those ends: then close
   waits for the end of both, and of two that have each other's nudge neither sees the caller exec.
   Later supervisors inherit the caller's ends alone, of those before them: the last of them sees
   it, and at its end the one before. The word is the process's number: a child that another thread
   forks meanwhile finds its parent's, and nobody is there to take it back. */
static dlpi_claim_word dlpi_begins;

static void dlpi_begins_enter(void) {
    uint64_t own = (uint64_t)getpid(), was;
    while ((was = dlpi_claim_owner(&dlpi_begins)) == own || /* O1 <- O1 */
           !dlpi_claim_take(&dlpi_begins, was, own))        /* O1 */
        dlpi_sleep(100000);
}

/* Begin sharing, make the pipe's name, and start the worker processes. One pipe of a process forks
   at a time. Returns 0 or a DLP_ERR code. */
static int dlpi_shm_begin(dlp_pipe *p) {
    int rc;
    if (dlpi_shm_of(p) == NULL) return DLP_OK;
    if ((rc = dlpi_shm_share_begin(p)) != DLP_OK) return rc;
    if (p->shm_name[0] && (rc = dlpi_name_create(p)) != DLP_OK) return rc;
    if (p->n_procs == 0) return DLP_OK;
    dlpi_begins_enter();
    rc = dlpi_supervisor_begin(p);
    dlpi_claim_free(&dlpi_begins, 0); /* O1 -> O1 */
    return rc == DLP_OK ? dlpi_shm_started(p) : rc;
}

static void dlpi_shm_nudge(dlp_pipe *p) {
    ssize_t n = 0;
    if (dlpi_shm_of(p) == NULL) return;
    if (dlpi_shm_of(p)->nudge[1] >= 0) n = send(dlpi_shm_of(p)->nudge[1], "", 1, MSG_NOSIGNAL);
    DLPI_UNUSED(n); /* full: it is awake; nobody there: there is nothing to be told */
}

/* Wait until all processes are dead: none has the pipe `alive`. Returns false after ms. */
static bool dlpi_shm_dead(const dlpi_shm_state *s, int ms) {
    uint64_t until = dlpi_now_ns() + (uint64_t)ms * 1000000u, now;
    for (;;) {
        struct pollfd fd = {s->alive[0], POLLIN, 0};
        if (poll(&fd, 1, ms) > 0) return true;
        now = dlpi_now_ns();
        if (now >= until) return false;
        ms = (int)((until - now) / 1000000u) + 1;
    }
}

/* End the worker processes, and wait for the supervisor's death. If it does not end within the
   grace period, its process group is killed. */
static void dlpi_shm_await(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    siginfo_t info;
    if (s == NULL || s->supervisor <= 0) return;
    DLPI_STORE_REL(&p->ctl->closing, 1u); /* J2 -> J2 */
    dlpi_shm_nudge(p);
    if (!dlpi_shm_dead(s, s->d.grace_ms + 400)) { /* it may be stopped: then so are its duties */
        kill(-s->supervisor, SIGKILL);
        dlpi_shm_dead(s, 1000);
    }
    if (s->supervisor_fd >= 0) /* the user may have waited for it, or ignore SIGCHLD */
        while (waitid((idtype_t)3, (id_t)s->supervisor_fd, &info, WEXITED) < 0 && errno == EINTR)
            continue; /* 3: P_PIDFD */
    else
        waitpid(s->supervisor, NULL, 0);
    s->supervisor = 0;
}

/* Remove the pipe's name, and free all that the pipe's processes needed. The supervisor must have
   ended. */
static void dlpi_shm_end(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    if (s == NULL) return;
    dlpi_name_remove(p);
    dlpi_fd_close(&s->caller_fd);
    dlpi_fd_close(&s->supervisor_fd);
    for (int i = 0; i < 2; i++) {
        dlpi_fd_close(&s->nudge[i]);
        dlpi_fd_close(&s->alive[i]);
    }
    if (s->procs != NULL) munmap(s->procs, dlpi_procs_bytes(s));
    free(s);
    p->shm = NULL;
}

static const dlpi_beside_ops dlpi_shm_table = {
    .open = dlpi_shm_open,
    .processes = dlpi_shm_processes,
    .resolve = dlpi_shm_resolve,
    .layout = dlpi_shm_areas,
    .begin = dlpi_shm_begin,
    .look = dlpi_shm_look,
    .nudge = dlpi_shm_nudge,
    .await = dlpi_shm_await,
    .end = dlpi_shm_end,
};
static const dlpi_beside_ops *dlpi_shm = &dlpi_shm_table;
