/* Names of pipes: made, found, in use, stale and taken over, removed; records that are not ours or
   damaged; a full /dev/shm; many creators at once. */
#define _GNU_SOURCE
#include "../../../dlpipe_shm.h"
#include "../../rig/pipe_rig.h"
#include <sys/file.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

static char base[32]; /* what this test's names begin with */

static const char *name_of(const char *rest) {
    static char name[4][64];
    static unsigned turn;
    char *to = name[turn++ % 4];
    snprintf(to, sizeof name[0], "%s-%s", base, rest);
    return to;
}
static const char *path_of(const char *rest) {
    static char path[4][INSIDE_NAME_PATH];
    static unsigned turn;
    char *to = path[turn++ % 4];
    inside_name_path(name_of(rest), to);
    return to;
}

static void sleep_ms(uint32_t ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static dlp_error last; /* of the pipe that was not made */

/* A pipe of this name that runs; NULL: *rc and last say why not. */
static dlp_pipe *named(const char *rest, int *rc) {
    dlp_shm_desc shm = {.name = name_of(rest)};
    rig r;
    dlp_pipe *p = NULL;
    rig_init(&r, 64, 8);
    r.fetch.num_workers = 1;
    r.pipe.name = "named";
    r.pipe.shm = &shm;
    *rc = rig_try(&r, &p, &last);
    return p;
}
static int unname(dlp_pipe *p) { return p ? dlp_pipe_close(p) : DLP_ERR_ARG; }

static int there(const char *rest) {
    struct stat st;
    return lstat(path_of(rest), &st) == 0;
}

/* What the list says of one name: 1 if it is there. */
static int listed(const char *rest, dlp_shm_name *out) {
    static dlp_shm_name all[4096];
    int n = dlp_shm_names(all, 4096), found = 0;
    CHECK(n >= 0);
    for (int i = 0; i < n && i < 4096; i++)
        if (strcmp(all[i].name, name_of(rest)) == 0) {
            *out = all[i];
            found++;
        }
    return found;
}

/* ---- one name ---- */

static void name__made__leads_to_its_pipe_and_goes(void) {
    int rc;
    dlp_pipe *p = named("one", &rc);
    dlp_batch *b;
    dlp_monitor *m = NULL;
    dlp_monitor_info about;
    dlp_shm_name l;
    dlp_stats s;
    dlp_error e;
    struct stat st;
    CHECK(rc == DLP_OK && inside_name_fd(p) >= 0);
    CHECK(lstat(path_of("one"), &st) == 0 && (st.st_mode & 07777) == 0600 && S_ISREG(st.st_mode) &&
          st.st_uid == geteuid());
    CHECK((fcntl(inside_name_fd(p), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(listed("one", &l) == 1 && l.pid == getpid() && l.alive == 1 && l.uid == geteuid() &&
          l.age_ms < 60000);
    CHECK(dlp_shm_remove_stale(name_of("one")) == 0 && there("one"));
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    CHECK(dlp_monitor_open(&m, name_of("one"), &e) == DLP_OK);
    if (m) {
        CHECK(dlp_monitor_about(m, &about) == DLP_OK);
        CHECK(strcmp(about.shm_name, name_of("one")) == 0);
        CHECK(strcmp(about.name, "named") == 0 && about.pid == getpid());
        CHECK(dlp_monitor_stats(m, &s) == DLP_OK && s.batches == 1 && s.held == 1);
    }
    dlp_monitor_close(m);
    CHECK(dlp_pipe_release(p, b) == DLP_OK && unname(p) == DLP_OK && !there("one"));
    CHECK(listed("one", &l) == 0);
    m = NULL;
    CHECK(dlp_monitor_open(&m, name_of("one"), &e) == DLP_ERR_SYSTEM && e.errnum == ENOENT);
}

static void name__in_use__names_who_has_it(void) {
    int rc, other;
    dlp_pipe *p = named("busy", &rc), *q = named("busy", &other);
    char pid[16];
    snprintf(pid, sizeof pid, " %d", (int)getpid());
    CHECK(rc == DLP_OK && other == DLP_ERR_STATE && q == NULL);
    CHECK(strstr(last.message, name_of("busy")) != NULL && strstr(last.message, pid) != NULL);
    CHECK(strcmp(last.field, "shm.name") == 0 && strstr(last.message, "choose another"));
    CHECK(there("busy"));
    CHECK(unname(p) == DLP_OK && !there("busy"));
}

/* The lock is the owner's and its children's: killing the owner alone frees nothing. */
static void name__owner_killed__is_stale_when_its_children_are_gone(void) {
    int rc, tube[2], status;
    char byte;
    pid_t owner, worker = 0;
    dlp_shm_name l;
    dlp_monitor *m = NULL;
    dlp_error e;
    dlp_pipe *p;
    CHECK(pipe(tube) == 0);
    fflush(NULL);
    if ((owner = fork()) == 0) {
        named("killed", &rc);
        if (rc == DLP_OK && (worker = fork()) == 0)
            for (;;) pause();
        if (write(tube[1], &worker, sizeof worker) != sizeof worker) _exit(1);
        for (;;) pause();
    }
    CHECK(read(tube[0], &worker, sizeof worker) == sizeof worker && worker > 0);
    CHECK(listed("killed", &l) == 1 && l.alive == 1 && l.pid == owner);
    CHECK(kill(owner, SIGKILL) == 0 && waitpid(owner, &status, 0) == owner);
    CHECK(listed("killed", &l) == 1 && l.alive == 1);
    CHECK(dlp_shm_remove_stale(name_of("killed")) == 0);
    p = named("killed", &rc);
    CHECK(rc == DLP_ERR_STATE && p == NULL);
    CHECK(kill(worker, SIGKILL) == 0);
    close(tube[1]);
    CHECK(read(tube[0], &byte, 1) == 0); /* the worker is gone */
    close(tube[0]);
    for (int i = 0; i < 20000 && listed("killed", &l) == 1 && l.alive; i++) sleep_ms(1);
    CHECK(listed("killed", &l) == 1 && l.alive == 0 && l.pid == owner);
    CHECK(dlp_monitor_open(&m, name_of("killed"), &e) == DLP_ERR_STATE &&
          strstr(e.message, "gone") != NULL);
    p = named("killed", &rc); /* taken over */
    CHECK(rc == DLP_OK && listed("killed", &l) == 1 && l.alive == 1 && l.pid == getpid());
    CHECK(unname(p) == DLP_OK && !there("killed"));
}

static void put(const char *rest, const void *bytes, size_t n, mode_t mode) {
    int fd = open(path_of(rest), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && fchmod(fd, mode) == 0);
    close(fd);
}

static void stale__removed_by_lock_alone(void) {
    dlp_shm_name l;
    int rc;
    dlp_pipe *p = named("live", &rc);
    put("stale-a", "", 0, 0600);
    put("stale-b", "x", 1, 0600);
    CHECK(listed("stale-a", &l) == 1 && l.alive == 0 && l.pid == 0 && l.age_ms == 0);
    CHECK(dlp_shm_remove_stale(name_of("stale-a")) == 1 && !there("stale-a"));
    CHECK(dlp_shm_remove_stale(name_of("stale-a")) == 0);
    CHECK(dlp_shm_remove_stale(NULL) >= 0 && !there("stale-b") && there("live"));
    CHECK(dlp_shm_remove_stale("../x") == DLP_ERR_ARG && dlp_shm_remove_stale("") == DLP_ERR_ARG);
    CHECK(dlp_shm_names(NULL, 1) == DLP_ERR_ARG && dlp_shm_names(NULL, -1) == DLP_ERR_ARG);
    CHECK(dlp_shm_names(NULL, 0) >= 1);
    CHECK(unname(p) == DLP_OK);
}

/* ---- records that are not what they should be ---- */

static void record__damaged__is_an_error_and_taken_over(void) {
    inside_name_rec good;
    int rc;
    dlp_pipe *p = named("good", &rc);
    int fd = open(path_of("good"), O_RDONLY | O_CLOEXEC);
    CHECK(rc == DLP_OK && read(fd, &good, sizeof good) == sizeof good);
    close(fd);
    for (int kind = 0; kind < 8; kind++) {
        inside_name_rec bad = good;
        unsigned char junk[512];
        size_t n = sizeof bad;
        dlp_monitor *m = NULL;
        dlp_pipe *q;
        dlp_error e;
        memset(junk, 0xa5, sizeof junk);
        snprintf(bad.name, sizeof bad.name, "%s", name_of("bad"));
        inside_name_seal(&bad);
        if (kind == 0) n = 0;
        if (kind == 1) n = sizeof bad - 1;
        if (kind == 2) bad.check ^= 1;
        if (kind == 3) memset(bad.name, 'a', sizeof bad.name);
        if (kind == 4) bad.pid = -1;
        if (kind == 5) bad.format++;
        if (kind == 3 || kind == 4 || kind == 5) inside_name_seal(&bad);
        put("bad", kind == 6 ? (void *)junk : (void *)&bad, kind == 6 ? sizeof junk : n, 0600);
        fd = open(path_of("bad"), O_RDWR | O_CLOEXEC);
        CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0); /* as if it were alive */
        rc = dlp_monitor_open(&m, name_of("bad"), &e);
        if (kind == 7)
            CHECK(rc == DLP_OK); /* nothing is wrong with this one */
        else if (kind == 0)
            CHECK(rc == DLP_ERR_STATE); /* it was not written in time */
        else
            CHECK(rc == (kind == 5 ? DLP_ERR_UNSUPPORTED : DLP_ERR_CORRUPT) && e.message[0] != 0);
        dlp_monitor_close(m);
        close(fd);
        q = named("bad", &rc);
        CHECK(rc == DLP_OK && unname(q) == DLP_OK && !there("bad"));
    }
    CHECK(unname(p) == DLP_OK);
}

/* A name is made and locked before its record is written: who comes in between waits. */
static void record__not_written_yet__waited_for(void) {
    inside_name_rec r;
    int rc, fd, status = 1;
    dlp_pipe *p = named("good", &rc);
    dlp_monitor *m = NULL;
    pid_t pid;
    CHECK(rc == DLP_OK && pread(inside_name_fd(p), &r, sizeof r, 0) == sizeof r);
    snprintf(r.name, sizeof r.name, "%s", name_of("late"));
    inside_name_seal(&r);
    put("late", &r, 0, 0600);
    fd = open(path_of("late"), O_RDWR | O_CLOEXEC);
    CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
    pid = fork();
    if (pid == 0) {
        test_pause(50000000);
        _exit(pwrite(fd, &r, sizeof r, 0) != sizeof r);
    }
    CHECK(dlp_monitor_open(&m, name_of("late"), NULL) == DLP_OK);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    dlp_monitor_close(m);
    unlink(path_of("late"));
    close(fd);
    CHECK(unname(p) == DLP_OK);
}

/* A record of another pipe than the one at its pid and number (a pid used again). */
static void record__of_another_pipe__does_not_lead_to_this_one(void) {
    int rc;
    dlp_pipe *p = named("token", &rc);
    dlp_monitor *m = NULL;
    inside_name_rec r;
    dlp_error e;
    CHECK(rc == DLP_OK && pread(inside_name_fd(p), &r, sizeof r, 0) == sizeof r);
    r.token[1] ^= 1;
    inside_name_seal(&r);
    CHECK(pwrite(inside_name_fd(p), &r, sizeof r, 0) == sizeof r);
    CHECK(dlp_monitor_open(&m, name_of("token"), &e) == DLP_ERR_STATE && m == NULL);
    CHECK(unname(p) == DLP_OK);
}

/* Not ours: nothing is made, read or removed. */
static void refused(const char *what) {
    int rc;
    dlp_monitor *m = NULL;
    dlp_error e;
    dlp_pipe *p = named("foreign", &rc);
    if (rc != DLP_ERR_SYSTEM) printf("%s: made: %d\n", what, rc);
    CHECK(rc == DLP_ERR_SYSTEM && p == NULL && last.errnum != 0 && there("foreign"));
    rc = dlp_monitor_open(&m, name_of("foreign"), &e);
    if (rc == DLP_OK || e.message[0] == 0) printf("%s: opened: %d\n", what, rc);
    CHECK(rc < 0 && m == NULL && e.message[0] != 0);
    CHECK(dlp_shm_remove_stale(name_of("foreign")) == DLP_ERR_SYSTEM && there("foreign"));
    dlp_shm_remove_stale(NULL);
    CHECK(there("foreign"));
    CHECK(unlink(path_of("foreign")) == 0 || rmdir(path_of("foreign")) == 0);
}

static void record__not_ours__is_left_alone(void) {
    char victim[64];
    struct stat st;
    int fd;
    snprintf(victim, sizeof victim, "/tmp/dlpipe-names-victim-%d", (int)getpid());
    fd = open(victim, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "mine", 4) == 4);
    close(fd);
    CHECK(symlink(victim, path_of("foreign")) == 0);
    refused("a link");
    CHECK(stat(victim, &st) == 0 && st.st_size == 4);
    unlink(victim);
    put("foreign", "x", 1, 0666);
    refused("others may write");
    put("foreign", "x", 1, 0640);
    refused("others may read");
    CHECK(mkdir(path_of("foreign"), 0700) == 0);
    refused("a directory");
    CHECK(mkfifo(path_of("foreign"), 0600) == 0);
    refused("a pipe");
    if (geteuid() != 0) return;
    put("foreign", "x", 1, 0600);
    CHECK(chown(path_of("foreign"), 12345, 12345) == 0);
    refused("another user's");
}

/* ---- many at once ---- */

/* Each of several processes makes and removes the same name: one has it at a time. */
static void name__many_creators__one_at_a_time(void) {
    uint32_t *inside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint32_t least = (uint32_t)test_share(150, 3000), most = 100 * least;
    int processes = 4, status;
    pid_t sweeper;
    CHECK(inside != MAP_FAILED);
    fflush(NULL);
    if ((sweeper = fork()) == 0)
        while (getppid() != 1) dlp_shm_remove_stale(name_of("many"));
    for (int i = 0; i < processes; i++) {
        if (fork() != 0) continue;
        /* who has it may get no core for as long as the others need for all their tries */
        for (uint32_t k = 0; k < least || (k < most && inside[1] < least); k++) {
            char why[256];
            int fd, rc = inside_name_create(name_of("many"), &fd, why);
            if (rc == DLP_OK) {
                if (__atomic_add_fetch(&inside[0], 1, __ATOMIC_SEQ_CST) != 1) _exit(1);
                __atomic_add_fetch(&inside[1], 1, __ATOMIC_SEQ_CST);
                if (k % 3 == 0) sched_yield();
                __atomic_sub_fetch(&inside[0], 1, __ATOMIC_SEQ_CST);
                if (k % 5 == 0)
                    close(fd); /* as a death would: stale */
                else
                    inside_name_remove(name_of("many"), fd);
            } else if (rc != DLP_ERR_STATE) {
                printf("%s\n", why);
                _exit(2);
            }
        }
        _exit(0);
    }
    for (int i = 0; i < processes; i++) {
        pid_t pid = wait(&status);
        CHECK(pid > 0 && pid != sweeper && status == 0);
    }
    CHECK(kill(sweeper, SIGKILL) == 0 && waitpid(sweeper, NULL, 0) == sweeper);
    CHECK(inside[1] >= least);
    dlp_shm_remove_stale(name_of("many"));
    CHECK(!there("many"));
    munmap(inside, 4096);
}

/* ---- a full /dev/shm ---- */

static int write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? write(fd, text, strlen(text)) : -1;
    if (fd >= 0) close(fd);
    return n > 0;
}

/* A mount namespace of our own, with a user namespace where that is needed. */
static int own_mounts(void) {
    char map[64];
    uid_t uid = geteuid();
    if (unshare(CLONE_NEWNS) == 0) return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 0;
    snprintf(map, sizeof map, "0 %d 1", (int)uid);
    return write_file("/proc/self/uid_map", map) &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* In a child. options: of the tmpfs; fill: bytes that are written there first. */
static void full_child(const char *options, int fill) {
    static char zero[8192];
    int rc, fd;
    dlp_pipe *p;
    if (!own_mounts() || mount("none", "/dev/shm", "tmpfs", 0, options) != 0) _exit(78);
    if (fill > 0) {
        fd = open("/dev/shm/filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        while (write(fd, zero, sizeof zero) > 0) continue;
        close(fd);
    }
    p = named("full", &rc);
    CHECK(rc == DLP_ERR_SYSTEM && p == NULL && last.errnum == ENOSPC &&
          strstr(last.message, "No space left") != NULL);
    CHECK(!there("full"));
    unlink("/dev/shm/filler");
    if (fill > 0) {
        p = named("full", &rc);
        CHECK(rc == DLP_OK && unname(p) == DLP_OK);
    }
    umount("/dev/shm");
    _exit(test_failures != 0);
}

static int shm__full__is_an_error_that_leaves_nothing(void) {
    int status, seen = 1;
    for (int kind = 0; kind < 2; kind++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) full_child(kind ? "size=64k,nr_inodes=1" : "size=8k", kind == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        if (WIFEXITED(status) && WEXITSTATUS(status) == 78)
            seen = 0;
        else
            CHECK(WEXITSTATUS(status) == 0);
    }
    return seen;
}

int main(void) {
    int full;
    snprintf(base, sizeof base, "test%d", (int)getpid());
    if (dlp_shm_names(NULL, 0) < 0) {
        printf("no /dev/shm on this machine\n");
        return 78;
    }
    name__owner_killed__is_stale_when_its_children_are_gone();
    full = shm__full__is_an_error_that_leaves_nothing();
    name__many_creators__one_at_a_time();
    name__made__leads_to_its_pipe_and_goes();
    name__in_use__names_who_has_it();
    stale__removed_by_lock_alone();
    record__damaged__is_an_error_and_taken_over();
    record__not_written_yet__waited_for();
    record__of_another_pipe__does_not_lead_to_this_one();
    record__not_ours__is_left_alone();
    if (test_end("names") != 0) return 1;
    if (full) return 0;
    printf("all passed, but this machine allows no tmpfs of our own to fill\n");
    return 78;
}
