/* needs: parts cache split join scratch */
/* Random legal configurations of everything that the headers offer, each run in a process of its
   own and compared with a model that tells order, bytes and errors from the documentation.
     differential                 as many as fit in some seconds (SOAK=1: in an hour)
     differential N [SEED]        N of them, from that seed on; N with an s behind it: seconds
     differential = SEED [DROP]   one of them, without the features of DROP (two numbers in hex)
     differential shrink SEED     leave out features while it still fails */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>

#include "../../rig/pipe_rig.h"
#include "../../rig/digest.h"
#include "../../rig/shm_rig.h"

#include "../../rig/keyed.h"
#include "../../rig/differential.h"
static dlp_error open_err_;
#include "../../rig/differential_model.h"
#include "../../rig/differential_calls.h"
#include "../../rig/differential_run.h"

#define HANG_S 25

typedef struct tally {
    uint64_t n, with[FEATURES_N], failed;
} tally;

static int processes_ = 1;

static void show(const cfg *c) {
    static char text[4000];
    describe(c, text, sizeof text);
    printf("  %s\n", text);
}

/* In a process of its own. */
static void child(cfg *c) {
    int failed;
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    failed = run_configuration(c);
    fflush(stdout);
    _exit(failed);
}

static int left_behind(pid_t session, int named, int failed) { /* processes, for a second; names */
    char path[100];
    int n = 1;
    for (int i = 0; i < 150 && (n = shm_session(session, 0, 0)) > 0; i++) poll(NULL, 0, 10);
    if (n > 0) shm_session(session, 0, 1);
    if (!named) return n;
    snprintf(path, sizeof path, "/dev/shm/dlpipe.differential.%d", (int)session);
    if (access(path, F_OK) != 0) return n;
    if (!failed) printf("  left: %s\n", path); /* who fails holds batches */
    remove(path);
    return n + 1;
}

static void end_session(pid_t session) { /* what is left of a run that has hung */
    DIR *d = opendir("/proc");
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        int pid = atoi(e->d_name);
        if (pid > 1 && getsid(pid) == session) kill(pid, SIGKILL);
    }
    if (d) closedir(d);
}

/* Wait for its end. Returns 0: it agreed. */
static int watch(pid_t pid) {
    uint64_t last = UINT64_MAX, since = test_now_ns();
    int status = 0, looked = 0;
    for (;;) {
        uint64_t now = test_now_ns(),
                 progress = __atomic_load_n(&words_->progress, __ATOMIC_SEQ_CST);
        if (waitpid(pid, &status, WNOHANG) == pid) break;
        if (progress != last) last = progress, since = now;
        if (now - since > UINT64_C(1000000000) * HANG_S) {
            printf("  wrong: it hangs\n");
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            end_session(pid);
            return 1;
        }
        poll(NULL, 0, looked++ < 20 ? 1 : 5);
    }
    if (WIFSIGNALED(status)) printf("  wrong: ended by signal %d\n", WTERMSIG(status));
    return status != 0;
}

static int run_one(uint64_t seed, const uint64_t *drop, cfg *c) {
    pid_t pid;
    int failed;
    draw(c, seed, drop, processes_);
    memset(words_, 0, sizeof *words_);
    fflush(stdout);
    pid = fork();
    if (pid == 0) child(c);
    if (pid < 0) return 1;
    failed = watch(pid);
    if (any_stage(c, 2) && left_behind(pid, has_NAMED(c), failed) > 0) {
        end_session(pid);
        failed = 1;
    }
    return failed;
}

static void tell(uint64_t seed, const uint64_t *drop, const cfg *c) {
    printf("failed: build/tests/differential = %llu %llx %llx\n", (unsigned long long)seed,
           (unsigned long long)drop[0], (unsigned long long)drop[1]);
    show(c);
    fflush(stdout);
}

static void shrink(uint64_t seed) {
    uint64_t drop[2] = {0, 0};
    cfg c;
    if (!run_one(seed, drop, &c)) {
        printf("it agrees\n");
        return;
    }
    for (int changed = 1; changed;) {
        changed = 0;
        for (int i = 0; i < FEATURES_N; i++) {
            uint64_t bit = UINT64_C(1) << i % 64, was = drop[i / 64];
            int fails = 0;
            draw(&c, seed, drop, processes_);
            if ((was & bit) || !feature_has[i](&c)) continue;
            drop[i / 64] = was | bit;
            for (int k = 0; k < 3 && !fails; k++) fails = run_one(seed, drop, &c);
            if (!fails)
                drop[i / 64] = was;
            else
                changed = 1;
        }
    }
    draw(&c, seed, drop, processes_);
    tell(seed, drop, &c);
}

static void table(const tally *t) {
    printf("%llu configurations, %llu differ\n", (unsigned long long)t->n,
           (unsigned long long)t->failed);
    for (int i = 0; i < FEATURES_N; i++)
        printf("%8llu %-36s%s", (unsigned long long)t->with[i], feature_text[i], i % 2 ? "\n" : "");
    printf("\n");
}

static int many(uint64_t n, double seconds, uint64_t seed) {
    const uint64_t none[2] = {0, 0};
    static tally t;
    uint64_t until = test_now_ns() + (uint64_t)(seconds * 1e9);
    for (uint64_t i = 0; i < n && test_now_ns() < until && t.failed < 20; i++) {
        cfg c;
        int failed = run_one(seed + i, none, &c);
        t.n++;
        t.failed += failed != 0;
        for (int f = 0; f < FEATURES_N; f++) t.with[f] += feature_has[f](&c) != 0;
        if (failed) tell(seed + i, none, &c);
    }
    table(&t);
    return t.failed != 0;
}

static int prepare(void) {
    const char *missing = shm_missing();
    processes_ = missing == NULL;
    if (missing) printf("no worker processes: %s\n", missing);
    words_ = mmap(NULL, sizeof *words_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return words_ == MAP_FAILED ? -1 : 0;
}

int main(int argc, char **argv) {
    uint64_t drop[2] = {0, 0}, seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    double seconds = test_share(10, 3600);
    if (prepare() != 0) return 77;
    for (int i = 0; i < 2 && argc > 3 + i; i++) drop[i] = strtoull(argv[3 + i], NULL, 16);
    if (argc > 2 && strcmp(argv[1], "shrink") == 0) {
        shrink(seed);
        return 1;
    }
    if (argc > 2 && strcmp(argv[1], "=") == 0) {
        cfg c;
        int failed = run_one(seed, drop, &c);
        show(&c);
        for (int l = 0; l < 2; l++)
            printf("  life %d: rank %u of %u, stop at %d, prefetch %d, held %d\n", l, c.w[l].rank,
                   c.w[l].world, c.stop_at, c.w[l].prefetch, c.w[l].held);
        printf("%s\n", failed ? "it differs" : "it agrees");
        return failed;
    }
    if (argc < 2) return many(UINT64_MAX, seconds, getenv("SOAK") ? (uint64_t)time(NULL) : 1);
    if (argv[1][0] && argv[1][strlen(argv[1]) - 1] == 's')
        return many(UINT64_MAX, atof(argv[1]), seed);
    return many(strtoull(argv[1], NULL, 0), 1e6, seed);
}
