/* needs: parts */
/* What tests of pushes share: items that say which they are and whose, producers that push them as
   threads, children and other programs, and a consumer that checks all of them. */
#ifndef PUSH_RIG_H
#define PUSH_RIG_H

#include "../../dlpipe.h"

#include "check.h"
#include "source_rig.h"
#include "push_loader.h"
#include "sources.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

enum { PIXELS = 5, SOON_MS = 20000 };

static const dlp_field FIELDS[2] = {{.name = "number", .dtype = DLP_U64},
                                    {.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {PIXELS}}};

typedef struct rig {
    dlp_pipe *pipe;
    dlp_push *push;
} rig;

static inline rig begin(dlp_push_desc push, int workers, uint32_t batch) {
    push_loader d = {.push = push, .loader = {.batch_size = batch, .num_workers = workers}};
    rig r = {NULL, NULL};
    dlp_error err = {0};
    d.push.fields = FIELDS;
    d.push.n_fields = 2;
    if (d.push.writers == 0) d.push.writers = 1;
    if (push_loader_open(&r.pipe, &r.push, &d, &err) != DLP_OK)
        printf("%s: %s\n", err.field, err.message);
    CHECK(r.pipe != NULL && r.push != NULL);
    return r;
}

static inline void end(rig *r) {
    CHECK(dlp_pipe_close(r->pipe) == DLP_OK);
    CHECK(dlp_push_close(r->push) == DLP_OK);
}

static inline dlp_pusher *producer(const dlp_push *push, uint32_t number) {
    dlp_pusher *u = NULL;
    dlp_error err = {0};
    if (dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push, .number = number}, &err) != DLP_OK)
        printf("%s\n", err.message);
    CHECK(u != NULL);
    return u;
}

/* Item n of a producer: its number says both, its bytes follow from it. */
static inline int push_one(dlp_pusher *u, uint64_t n, int timeout_ms) {
    uint64_t number = (uint64_t)dlp_pusher_number(u) << 32 | n;
    uint8_t x[PIXELS];
    const void *data[2] = {&number, x};
    for (int i = 0; i < PIXELS; i++) x[i] = (uint8_t)dlp_hash(number, (uint64_t)i, 0, 0);
    return dlp_pusher_push(u, data, timeout_ms);
}

/* Items [from, to) of this producer, every other one without a copy, and maybe the end. */
static inline int push_all(dlp_pusher *u, uint64_t from, uint64_t to, int is_last) {
    int rc = DLP_OK;
    for (uint64_t n = from; n < to && rc == DLP_OK; n++) {
        void *data[2];
        uint64_t number = (uint64_t)dlp_pusher_number(u) << 32 | n;
        if (n % 2 == 0) {
            rc = push_one(u, n, SOON_MS);
            continue;
        }
        rc = dlp_pusher_begin(u, data, SOON_MS);
        if (rc != DLP_OK) break;
        *(uint64_t *)data[0] = number;
        for (int i = 0; i < PIXELS; i++)
            ((uint8_t *)data[1])[i] = (uint8_t)dlp_hash(number, (uint64_t)i, 0, 0);
        rc = dlp_pusher_commit(u);
    }
    return rc == DLP_OK && is_last ? dlp_pusher_end(u, SOON_MS) : rc;
}

/* Each producer's items come in its order; next: [17] which is due. Returns the code of the end. */
static inline int take_all(dlp_pipe *p, uint64_t *next, uint64_t batch) {
    dlp_batch *b = NULL;
    int rc, shorter = 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, SOON_MS)) == DLP_OK) {
        const uint64_t *number = b->fields[0].data;
        const uint8_t *x = b->fields[1].data;
        CHECK(!shorter && b->count >= 1 && b->count <= batch);
        shorter = b->count < batch;
        for (uint32_t i = 0; i < b->count; i++) {
            uint64_t who = number[i] >> 32;
            CHECK(who >= 1 && who <= 16 && (uint32_t)number[i] == next[who]);
            next[who > 16 ? 0 : who]++;
            for (int k = 0; k < PIXELS; k++)
                CHECK(x[i * PIXELS + (unsigned)k] ==
                      (uint8_t)dlp_hash(number[i], (uint64_t)k, 0, 0));
        }
        dlp_pipe_release(p, b);
    }
    if (rc < 0) printf("%s\n", dlp_pipe_error(p)->message);
    return rc;
}

static inline pid_t child(const dlp_push *push, const char *path, uint32_t number, uint64_t from,
                          uint64_t to, int is_last, int is_killed) {
    pid_t pid = fork();
    dlp_pusher_desc d = {.push = push, .path = path, .number = number};
    dlp_pusher *u = NULL;
    if (pid != 0) return pid;
    if (path) d.fields = FIELDS, d.n_fields = 2;
    if (dlp_pusher_open(&u, &d, NULL) != DLP_OK) _exit(2);
    if (push_all(u, from, to, is_last) != DLP_OK) _exit(3);
    if (is_killed && is_last) raise(SIGKILL);
    if (is_killed) {
        void *data[2];
        if (dlp_pusher_begin(u, data, SOON_MS) != DLP_OK) _exit(4);
        *(uint64_t *)data[0] = UINT64_MAX; /* nobody is to see it */
        raise(SIGKILL);
    }
    dlp_pusher_close(u);
    _exit(0);
}

static inline int ended_well(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- namespaces ---- */

enum { NO_NAMESPACE = 77, WAS_KILLED = 99 };

/* The exit status of a child as one number. */
static inline int status_of(pid_t pid) {
    int status = -1;
    if (waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : WAS_KILLED;
}

/* Fork a process into a pid namespace and a mount namespace of its own, with its own /proc: as
   another container has them. Returns 0 in it, and in the caller the pid of a process that ends as
   it does: NO_NAMESPACE where none may be made, WAS_KILLED if a signal ended it. */
static inline pid_t fork_apart(void) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* who kills this process kills all of it, here and below */
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) _exit(NO_NAMESPACE);
    if ((pid = fork()) != 0) _exit(pid < 0 ? NO_NAMESPACE : status_of(pid));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) _exit(NO_NAMESPACE);
    if (mount("proc", "/proc", "proc", 0, NULL) != 0) _exit(NO_NAMESPACE);
    if ((pid = fork()) != 0) _exit(pid < 0 ? NO_NAMESPACE : status_of(pid)); /* not its process 1 */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return 0;
}

static inline int may_be_apart(void) {
    static int may = -1;
    pid_t pid;
    if (may >= 0) return may;
    if ((pid = fork_apart()) == 0) _exit(0);
    may = status_of(pid) == 0;
    if (!may) test_skip("no pid namespace can be made here");
    return may;
}

/* A third program. It cuts, opens and writes what it finds at the path, as often as it can. */
static inline pid_t spoiler(const char *path) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int fd = open(path, O_RDWR | O_TRUNC | O_NONBLOCK);
        if (truncate(path, 0) == 0 && truncate(path, 100) != 0) _exit(1);
        if (fd >= 0 && (write(fd, "spoilt", 6) != 6 || close(fd) != 0)) _exit(2);
        usleep(100);
    }
}

#endif
