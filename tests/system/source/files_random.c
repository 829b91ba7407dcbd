/* needs: files lines tokens arrays parts */
/* Random files of each source, written by small programs that know the format's odd corners, and
   read by others that know nothing of the library. A source gives exactly the reader's items in
   their order, or an error in words. Files that were cut, changed or exchanged: the same, or an
   error. Never a wrong item, a lost one or one that is made up, and never a crash.

     files_random                        as many cases as fit in some seconds (SOAK=1: ten minutes)
     files_random N [SEED]               N of them, from that seed on, told by a line of progress
     files_random N SEED DROP [KIND]     without the features of DROP (a hex number), of one kind
     files_random = SEED [DROP [KIND]]   one of them
     files_random features               a list of the features, with their bits */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/source_rig.h"
#include <ftw.h>
#include <stdarg.h>
#include <sys/prctl.h>

#include "../../rig/files_random.h"
#include "../../rig/files_lines.h"
#include "../../rig/files_tar.h"
#include "../../rig/files_tokens.h"
#include "../../rig/files_arrays.h"
#include "../../rig/files_folder.h"
#include "../../rig/files_lives.h"

static const struct {
    const char *name;
    int (*run)(void);
} kinds[] = {{"lines", lines_case_run},   {"tar", tar_case_run},       {"tokens", tokens_case_run},
             {"arrays", arrays_case_run}, {"folder", folder_case_run}, {"lives", lives_case_run}};
enum { KINDS_N = sizeof kinds / sizeof *kinds, HANG_S = 60 };

/* What the process that runs cases tells the one that watches it. */
typedef struct progress {
    uint64_t seed;   /* of the case that runs */
    uint64_t failed; /* cases */
    uint64_t had[FEATURES_N], kinds[KINDS_N];
} progress;

static progress *told_;
static uint64_t one_kind_ = KINDS_N; /* the kind of all cases; KINDS_N: in turn */

/* ---- one case ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st;
    (void)type;
    return where->level > 0 ? remove(path) : 0;
}

static void describe(uint64_t seed) {
    printf("build/tests/files_random = %" PRIu64 " %" PRIx64 "%s%s\n  %s\n", seed, features_drop_,
           one_kind_ < KINDS_N ? " " : "", one_kind_ < KINDS_N ? kinds[one_kind_].name : "", said_);
    for (int f = 0; f < FEATURES_N; f++)
        if (features_had_ >> f & 1)
            printf("  %" PRIx64 ": %s\n", UINT64_C(1) << f, feature_text[f]);
    fflush(stdout);
}

/* Run one case. Returns 0 if it is well. */
static int run_one(uint64_t seed) {
    const int failures = test_failures, files = rig_fds();
    const uint64_t kind = one_kind_ < KINDS_N ? one_kind_ : seed % KINDS_N;
    int failed;
    __atomic_store_n(&told_->seed, seed, __ATOMIC_SEQ_CST);
    alarm(HANG_S);
    draw_state_ = seed;
    features_had_ = 0;
    said_[0] = 0;
    failed = kinds[kind].run();
    if (rig_fds() != files) {
        say("\n  wrong: %d descriptors are left", rig_fds() - files);
        failed = 1;
    }
    told_->kinds[kind]++;
    for (int f = 0; f < FEATURES_N; f++) told_->had[f] += features_had_ >> f & 1;
    CHECK(nftw(rig_dir, remove_one, 20, FTW_DEPTH | FTW_PHYS) == 0);
    keep_nothing();
    return failed || test_failures != failures;
}

/* ---- many cases, in a process that may crash ---- */

static void cases(uint64_t from, uint64_t to, uint64_t until_ns) {
    rig_begin("files_random");
    for (uint64_t seed = from; seed < to && test_now_ns() < until_ns && told_->failed < 10;
         seed++) {
        if (run_one(seed) == 0) continue;
        told_->failed++;
        printf("failed: ");
        describe(seed);
    }
    __atomic_store_n(&told_->seed, to, __ATOMIC_SEQ_CST);
    rig_end();
}

/* Run cases [from, to) until a time in a process of its own. Returns the seed behind the last one,
   which is earlier than `to` if the process crashed or hung. */
static uint64_t cases_apart(uint64_t from, uint64_t to, uint64_t until_ns) {
    int status = -1;
    pid_t pid;
    fflush(stdout);
    if ((pid = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        cases(from, to, until_ns);
        fflush(stdout);
        exit(test_failures != 0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (status == 0 || (WIFEXITED(status) && told_->seed >= to)) {
        CHECK(status == 0);
        return to;
    }
    told_->failed++;
    printf("failed: build/tests/files_random = %" PRIu64 " %" PRIx64 " %s (%s %d)\n", told_->seed,
           features_drop_, WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "hangs" : "crashes",
           WIFSIGNALED(status) ? "signal" : "exit code",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return told_->seed + 1;
}

static void many(uint64_t n, double seconds, uint64_t seed, int tells) {
    const uint64_t began = test_now_ns(), until = began + (uint64_t)(seconds * 1e9);
    const uint64_t each = tells ? 2000 : n;
    uint64_t at = seed;
    printf("files_random: from seed %" PRIu64 " on\n", seed);
    while (at - seed < n && test_now_ns() < until && told_->failed < 10) {
        const uint64_t rest = n - (at - seed);
        at = cases_apart(at, at + (rest < each ? rest : each), until);
        if (tells)
            printf("files_random: %" PRIu64 " cases, %" PRIu64 " failed, %.0f s\n", at - seed,
                   told_->failed, (double)(test_now_ns() - began) / 1e9);
    }
}

static void table(void) {
    for (int k = 0; k < KINDS_N; k++) printf("%8" PRIu64 " %s\n", told_->kinds[k], kinds[k].name);
    for (int f = 0; f < FEATURES_N; f++)
        printf("%8" PRIu64 " %s%s\n", told_->had[f], feature_text[f],
               feature_on[f] ? "" : " (off: known to fail)");
}

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? 1e6 : getenv("SOAK") ? 600 : getenv("SHORT") ? 1.5 : 4;
    const uint64_t soak = getenv("SOAK") ? (uint64_t)time(NULL) : 1;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : soak;
    told_ = mmap(NULL, sizeof *told_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told_ != MAP_FAILED);
    for (int f = 0; f < FEATURES_N; f++)
        if (!feature_on[f]) features_drop_ |= UINT64_C(1) << f;
    if (argc > 3) features_drop_ = strtoull(argv[3], NULL, 16);
    for (uint64_t k = 0; argc > 4 && k < KINDS_N; k++)
        if (strcmp(argv[4], kinds[k].name) == 0) one_kind_ = k;
    if (argc > 1 && argv[1][0] == 'f') {
        for (int f = 0; f < FEATURES_N; f++)
            printf("%8" PRIx64 " %s%s\n", UINT64_C(1) << f, feature_text[f],
                   feature_on[f] ? "" : " (off)");
    } else if (argc > 1 && argv[1][0] == '=') {
        rig_begin("files_random");
        CHECK(run_one(seed) == 0);
        describe(seed);
        rig_end();
    } else {
        many(argc > 1 ? strtoull(argv[1], NULL, 0) : UINT64_MAX / 2, seconds, seed, argc > 1);
        table();
        CHECK(told_->failed == 0);
    }
    return test_end("files_random");
}
