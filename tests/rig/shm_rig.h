/* What the tests of worker processes share, beside pipe_rig.h: whether this machine can run them,
   memory that all processes see, which processes are left. */
#ifndef SHM_RIG_H
#define SHM_RIG_H

#include "posix.h"
#if TEST_PROCESSES
#include <sys/prctl.h>
#endif

#define SHM_RIG_UNUSED __attribute__((unused))

#if !TEST_PROCESSES
static inline const char *shm_missing(void) { return "worker processes are left out"; }
SHM_RIG_UNUSED static int shm_mappings(void) { return 0; }
#else

SHM_RIG_UNUSED static int shm_entries(const char *dir) { /* files in a directory */
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* Why worker processes can't be tested here, NULL: they can. */
static inline const char *shm_missing(void) {
    int fd, sig = 0;
    pid_t pid, got;
    struct pollfd p;
    if (shm_entries("/proc/self/task") > 1) return "an emulator has threads of its own";
    if (RIG_TSAN) return "the thread sanitizer has a thread of its own and follows no fork";
    pid = fork();
    if (pid < 0) return "fork";
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    fd = (int)syscall(434, pid, 0u);
    p.fd = fd;
    p.events = POLLIN;
    p.revents = 0;
    kill(pid, SIGKILL);
    if (fd < 0 || poll(&p, 1, 5000) != 1) {
        waitpid(pid, NULL, 0);
        return "no pidfd (Linux 5.4, not emulated)";
    }
    close(fd);
    got = waitpid(pid, &sig, 0);
    return got == pid && WIFSIGNALED(sig) ? NULL : "waitpid";
}

/* Processes of a session that are not dead yet, but for one of them. Workers and supervisor stay in
   the session of the program that started them, whoever becomes their parent. */
SHM_RIG_UNUSED static int shm_session(pid_t session, pid_t but_for, int say) {
    DIR *d = opendir("/proc");
    int n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[300], line[512], state = 0;
        int pid = atoi(e->d_name), ppid, pgrp, sid = 0;
        const char *after;
        FILE *f;
        if (pid <= 0 || pid == but_for) continue;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        if ((f = fopen(path, "r")) == NULL) continue;
        if (fgets(line, sizeof line, f) && (after = strrchr(line, ')')) != NULL &&
            sscanf(after + 1, " %c %d %d %d", &state, &ppid, &pgrp, &sid) == 4 && sid == session &&
            state != 'Z' && state != 'X') {
            n++;
            if (say) printf("  left: %s", line);
        }
        fclose(f);
    }
    if (d) closedir(d);
    return n;
}

/* Wait until a process is in this state ('T': it has stopped), for 20 s. */
SHM_RIG_UNUSED static int shm_state(pid_t pid, char want) {
    for (int i = 0; i < 20000; i++) {
        char path[300], line[512], state = 0;
        const char *after;
        FILE *f;
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        if ((f = fopen(path, "r")) == NULL) return 0;
        if (fgets(line, sizeof line, f) && (after = strrchr(line, ')')) != NULL)
            sscanf(after + 1, " %c", &state);
        fclose(f);
        if (state == want) return 1;
        poll(NULL, 0, 1);
    }
    return 0;
}

SHM_RIG_UNUSED static int shm_mappings(void) { /* of dlpipe's regions, in this process */
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, "memfd:dlpipe") != NULL;
    if (f) fclose(f);
    return n;
}
#endif

#define SHM_NEEDS(name) \
    do { \
        const char *missing_ = shm_missing(); \
        if (missing_) { \
            printf(name ": unavailable: %s\n", missing_); \
            return 78; \
        } \
    } while (0)

/* Zeroed memory that this process and all its children share. */
SHM_RIG_UNUSED static void *shm_shared(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) return at;
    perror("mmap");
    exit(1);
}

/* All stages that have workers have processes; n: how many each, in_turn: as in
   rig_workers. */
SHM_RIG_UNUSED static void shm_processes(rig *r, int n, int in_turn) {
    rig_workers(r, n, in_turn);
    r->fetch.placement = DLP_PLACE_PROCESSES;
    r->batch_by.placement = DLP_PLACE_PROCESSES;
    for (int i = 0; i < RIG_MAPS; i++) {
        r->item_map[i].workers.placement = DLP_PLACE_PROCESSES;
        r->batch_map[i].workers.placement = DLP_PLACE_PROCESSES;
    }
}

#endif
