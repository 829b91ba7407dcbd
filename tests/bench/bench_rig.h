/* What the benchmarks share: samples in interleaved rounds and their lines of JSON, programs run as
   children, the PyTorch side as a child that answers, the memory of a process and all below it.
   After dlpipe.h.

   A round takes one sample of every contender in turn, so that a machine which slows down slows all
   of them down. The distance between two cores is probed before and after each round, because it is
   worth more than most things measured here: rounds are only compared within one regime. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "bench_probe.h"

#define MIB ((uint64_t)1 << 20)
#define WAIT_MS 30000
#define MAX_ROUNDS 16
#define MAX_CONTENDERS 64

static FILE *lines_file;
static bool quick __attribute__((unused));
static int failures __attribute__((unused)); /* samples of ours that could not be taken */

static inline void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fflush(stderr);
}

static inline bool asked_for(const char *variable) {
    return getenv(variable) != NULL && strcmp(getenv(variable), "1") == 0;
}

static inline double seconds_now(void) { return (double)dlpi_now_ns() * 1e-9; }

/* The value below which a share of them lies. Sorts. */
static inline double quantile(double *v, size_t n, double share) {
    if (n == 0) { return NAN; }
    qsort(v, n, sizeof *v, bench_by_value);
    size_t at = (size_t)(share * (double)n);
    return v[at < n ? at : n - 1];
}

static inline double own_cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return bench_cpu_seconds(&u);
}

/* ---- rounds and lines ------------------------------------------------------------------------ */

typedef double (*sample_fn)(void *arg); /* not a number: the sample could not be taken */

struct contender {
    const char *name, *version;
    sample_fn sample;
    void *arg;
};

struct series {
    struct contender who[MAX_CONTENDERS];
    int n_who, n_rounds;
    bool any_distance; /* rounds of minutes, items of much more than a line's way: near or far;
                          no sample is taken twice in a round */
    double value[MAX_CONTENDERS][MAX_ROUNDS];
    double before_ns[MAX_ROUNDS], after_ns[MAX_ROUNDS]; /* round trips */
    enum regime regime[MAX_ROUNDS];
};

static inline void compete(struct series *s, const char *name, const char *version,
                           sample_fn sample, void *arg) {
    s->who[s->n_who++] = (struct contender){name, version, sample, arg};
}

/* What became of a round: the regime before and after, and the cores that others used in it. */
static inline enum regime judge(double rtt_before, double rtt_after, double others) {
    return others > BENCH_OTHERS_MOST ? LOADED : bench_regime_between(rtt_before, rtt_after);
}

/* Take the samples of a round, of all contenders in turn, and again until the round is long enough
   to tell what others used. A value is the mean of its samples. */
static inline void take_round(struct series *s, int r) {
    double begin = seconds_now();
    int turns = 0;
    do {
        for (int w = 0; w < s->n_who; w++) {
            double *value = &s->value[w][r];
            if (turns > 0 && isnan(*value)) { continue; } /* it is not asked again */
            double x = s->who[w].sample(s->who[w].arg);
            *value = turns == 0 ? x : (*value * turns + x) / (turns + 1);
        }
        turns++;
    } while (!s->any_distance && seconds_now() - begin < BENCH_ROUND_S);
    for (int w = 0; w < s->n_who; w++) { say(" %s %.5g", s->who[w].name, s->value[w][r]); }
}

/* Take the samples. A round that was disturbed is taken again; as many as there are rounds, at
   most. A single round is not. */
static inline void run_rounds(struct series *s, const char *title, int rounds) {
    int good = 0, most = rounds > 1 ? 2 * rounds : 1;
    double before = bench_round_trip_ns();
    for (int r = 0; good < rounds && r < most && r < MAX_ROUNDS; r++) {
        double others = bench_others_seconds(), begin = seconds_now();
        say("%-36s round %d:", title, r + 1);
        take_round(s, r);
        double took = seconds_now() - begin, share = (bench_others_seconds() - others) / took;
        double after = bench_round_trip_ns();
        s->before_ns[r] = before;
        s->after_ns[r] = after;
        s->regime[r] = judge(before, after, share);
        if (s->any_distance && s->regime[r] != LOADED) { s->regime[r] = ANY; }
        if (asked_for("BUSY")) { s->regime[r] = BUSY; }
        say(" (%s, %.0f ns, others %.0f %%, %.2g s)\n", regime_name[s->regime[r]], after,
            100 * share, took);
        before = after;
        good += s->regime[r] < MIXED;
        s->n_rounds = r + 1;
    }
}

struct measure {
    const char *bench, *unit;
    bool lower_is_better;
    char extra[640]; /* more keys, each beginning with a comma */
    double ideal;    /* the figure that nothing can beat; 0: not known */
};

/* Every line ends in the keys of the machine. */
static inline void put_line_to(FILE *f, const char *line) {
    if (f == NULL) { return; }
    fprintf(f, "%.*s%s}\n", (int)strlen(line) - 1, line, bench_machine());
    fflush(f);
}

static inline void put_line(const char *line) {
    put_line_to(stdout, line);
    put_line_to(lines_file, line);
}

static inline void put_skipped(const char *bench, const char *peer, const char *why,
                               const char *extra) {
    char line[1536];
    size_t n = (size_t)snprintf(line, sizeof line,
                                "{\"bench\":\"%s\",\"peer\":\"%s\",\"skipped\":\"", bench, peer);
    for (; *why != '\0' && n < sizeof line - 700; why++) {
        if (*why == '"' || *why == '\\') { line[n++] = '\\'; }
        line[n++] = (unsigned char)*why < ' ' ? ' ' : *why;
    }
    snprintf(line + n, sizeof line - n, "\"%s}", extra);
    put_line(line);
}

/* The rounds of one regime: ours (contender a), and a peer's (contender b >= 0) or ones. */
struct rounds {
    double ours[MAX_ROUNDS], theirs[MAX_ROUNDS], ratio[MAX_ROUNDS];
    double before_ns[MAX_ROUNDS], after_ns[MAX_ROUNDS];
    size_t n;
};

static inline void rounds_of_regime(struct rounds *k, const struct series *s, int a, int b,
                                    enum regime regime, bool lower_is_better) {
    k->n = 0;
    for (int r = 0; r < s->n_rounds; r++) {
        double x = s->value[a][r], y = b < 0 ? 1 : s->value[b][r];
        if (s->regime[r] != regime || isnan(x) || isnan(y)) { continue; }
        k->ours[k->n] = x;
        k->theirs[k->n] = y;
        k->ratio[k->n] = lower_is_better ? y / x : x / y;
        k->before_ns[k->n] = s->before_ns[r];
        k->after_ns[k->n++] = s->after_ns[r];
    }
}

/* Write the line of one regime: ours (contender a) alone, or beside a peer (contender b >= 0). The
   ratio is that of the two medians; with the range of the rounds' own, in which it lies. */
static inline int put_regime(const struct measure *m, const struct series *s, int a, int b,
                             enum regime regime) {
    struct rounds k;
    rounds_of_regime(&k, s, a, b, regime, m->lower_is_better);
    if (k.n == 0) { return 0; }
    char peer[256] = "", figures[256];
    double ours = quantile(k.ours, k.n, 0.5), theirs = quantile(k.theirs, k.n, 0.5);
    quantile(k.ratio, k.n, 0.5);
    if (b >= 0) {
        snprintf(peer, sizeof peer, "\"peer\":\"%s\",\"peer_version\":\"%s\",", s->who[b].name,
                 s->who[b].version);
        snprintf(figures, sizeof figures,
                 "\"theirs\":%.6g,\"ratio\":%.4g,\"ratio_min\":%.4g,\"ratio_max\":%.4g", theirs,
                 m->lower_is_better ? theirs / ours : ours / theirs, k.ratio[0], k.ratio[k.n - 1]);
    } else {
        snprintf(figures, sizeof figures, "\"ours_min\":%.6g,\"ours_max\":%.6g", k.ours[0],
                 k.ours[k.n - 1]);
    }
    char line[1536], ideal[64] = "";
    if (m->ideal > 0) {
        snprintf(ideal, sizeof ideal, ",\"ideal\":%.6g,\"of_ideal\":%.3f", m->ideal,
                 ours / m->ideal);
    }
    snprintf(line, sizeof line,
             "{\"bench\":\"%s\",%s\"regime\":\"%s\",\"unit\":\"%s\",\"ours\":%.6g,%s,"
             "\"rounds\":%zu,\"rtt_before_ns\":%.0f,\"rtt_after_ns\":%.0f%s%s%s}",
             m->bench, peer, regime_name[regime], m->unit, ours, figures, k.n,
             quantile(k.before_ns, k.n, 0.5), quantile(k.after_ns, k.n, 0.5), ideal, m->extra,
             quick ? ",\"quick\":1" : "");
    put_line(line);
    return (int)k.n;
}

/* A line per regime. Disturbed rounds count only if there are no others. */
static inline void put(const struct measure *m, const struct series *s, int a, int b) {
    static const enum regime steady[] = {NEAR, FAR, SINGLE, ANY, BUSY};
    int n = 0;
    for (size_t i = 0; i < sizeof steady / sizeof *steady; i++) {
        n += put_regime(m, s, a, b, steady[i]);
    }
    for (enum regime left = MIXED; n == 0 && left <= LOADED; left++) {
        n = put_regime(m, s, a, b, left);
    }
    if (n == 0) {
        put_skipped(m->bench, b < 0 ? "none" : s->who[b].name, "no sample could be taken",
                    m->extra);
    }
}

/* Where lines go beside standard output. */
static inline bool lines_to(const char *path, const char *mode) {
    lines_file = fopen(path, mode);
    if (lines_file == NULL) { say("%s: %s\n", path, strerror(errno)); }
    return lines_file != NULL;
}

static inline void sleep_us(uint64_t us) {
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

static inline int cpus_allowed(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* ---- a child that runs to its end ------------------------------------------------------------ */

struct child {
    uint64_t (*bytes_of)(pid_t pid); /* look at its memory every so many ms; NULL: do not */
    int every_ms, most_s;            /* kill it after so many seconds; 0: do not */
    uint64_t peak_bytes;
    struct rusage used;
};

/* Run a program; what it prints goes to text. Returns whether it ended well. */
static inline bool run_child(struct child *c, const char *path, const char *const *argv, char *text,
                             size_t size) {
    int fd[2], status = 0;
    size_t n = 0;
    if (pipe2(fd, O_CLOEXEC) != 0) { return false; }
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 1);
        execv(path, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(fd[1]);
    double until = c->most_s > 0 ? seconds_now() + c->most_s : INFINITY;
    for (bool open = pid > 0; open && seconds_now() < until;) {
        struct pollfd f = {fd[0], POLLIN, 0};
        if (poll(&f, 1, c->bytes_of != NULL ? c->every_ms : 1000) > 0) {
            ssize_t got = read(fd[0], text + n, size - 1 - n);
            open = got > 0;
            n += got > 0 ? (size_t)got : 0;
        } else if (c->bytes_of != NULL) {
            uint64_t now = c->bytes_of(pid);
            c->peak_bytes = now > c->peak_bytes ? now : c->peak_bytes;
        }
    }
    text[n] = '\0';
    close(fd[0]);
    if (pid > 0 && seconds_now() >= until) { kill(pid, SIGKILL); }
    return pid > 0 && wait4(pid, &status, 0, &c->used) == pid && status == 0;
}

/* ---- PyTorch: a child that answers one command at a time ------------------------------------- */

static const char *torch_script;

static struct torch {
    pid_t pid;
    int in, out;
    char version[64];
    char missing[256]; /* why there is none; "" if there is */
} torch = {.in = -1, .out = -1};

/* Read one line. Returns false at the end of the stream, or if none comes in time. */
static inline bool torch_line(char *line, size_t size, int timeout_ms) {
    size_t n = 0;
    double until = seconds_now() + timeout_ms * 1e-3;
    for (;;) {
        struct pollfd fd = {torch.out, POLLIN, 0};
        int left = (int)((until - seconds_now()) * 1e3);
        char c;
        if (left <= 0 || poll(&fd, 1, left) <= 0 || read(torch.out, &c, 1) != 1) { return false; }
        if (c == '\n') {
            line[n] = '\0';
            return true;
        }
        if (n + 1 < size) { line[n++] = c; }
    }
}

static inline void torch_end(const char *why) {
    if (torch.pid > 0) {
        close(torch.in); /* the end of its input ends it */
        if (why[0] != '\0') { kill(torch.pid, SIGTERM); }
        waitpid(torch.pid, NULL, 0);
        close(torch.out);
        torch.pid = 0;
    }
    snprintf(torch.missing, sizeof torch.missing, "%s", why);
}

/* Start a program that answers commands. */
static inline void torch_begin_as(const char *const *argv) {
    int to[2], from[2];
    char line[256];
    if (access(argv[0], X_OK) != 0 || pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
        snprintf(torch.missing, sizeof torch.missing, "no %.200s", argv[0]);
        return;
    }
    torch.pid = fork();
    if (torch.pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    torch.in = to[1], torch.out = from[0];
    if (torch.pid < 0 || !torch_line(line, sizeof line, 60000)) {
        torch_end("it did not start");
    } else if (sscanf(line, "ready %63s", torch.version) != 1) {
        torch_end(line);
    }
}

static inline const char *python_path(void) {
    return getenv("PYTHON") != NULL ? getenv("PYTHON") : "/usr/bin/python3";
}

static inline void torch_begin(void) {
    torch_begin_as((const char *const[]){python_path(), "-uB", torch_script, NULL});
}

/* Send a command and take n numbers of its answer. Returns false, and says why, on failure. */
static inline bool torch_ask(double *answer, int n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline bool torch_ask(double *answer, int n, const char *format, ...) {
    char command[256], line[512];
    va_list args;
    if (torch.pid <= 0) { return false; }
    va_start(args, format);
    int length = vsnprintf(command, sizeof command - 1, format, args);
    va_end(args);
    command[length++] = '\n';
    if (write(torch.in, command, (size_t)length) != length ||
        !torch_line(line, sizeof line, 120000)) {
        torch_end("it ended, or did not answer within 120 s");
        return false;
    }
    char *at = line + 2;
    bool good = strncmp(line, "ok", 2) == 0;
    for (int i = 0; good && i < n; i++) {
        char *end;
        answer[i] = strtod(at, &end);
        good = end != at;
        at = end;
    }
    if (!good) { say(" [torch: %s: %s]", command, line); }
    return good;
}

static inline const char *torch_reason(void) {
    return torch.missing[0] != '\0' ? torch.missing : "it failed";
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Add a process's proportional set size: what is its own, and what is memory shared on purpose. */
static inline void add_pss(pid_t pid, uint64_t *own, uint64_t *shared) {
    char path[64], line[256];
    unsigned long long kib, total = 0, shmem = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) { return; }
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "Pss: %llu", &kib) == 1) {
            total = kib;
        } else if (sscanf(line, "Pss_Shmem: %llu", &kib) == 1) {
            shmem = kib;
        }
    }
    fclose(f);
    *own += 1024 * (total - shmem);
    *shared += 1024 * shmem;
}

static inline uint64_t dev_shm_bytes(void) {
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0) { return 0; }
    return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_frsize;
}

/* Bytes of the memfds that a process has open. Those of a pipe are all in its caller: workers have
   them from there. */
static inline uint64_t memfd_bytes(pid_t pid) {
    uint64_t bytes = 0;
    char path[300];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char target[64] = "";
        struct stat st;
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, e->d_name);
        if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:", 7) == 0 &&
            stat(path, &st) == 0) {
            bytes += (uint64_t)st.st_blocks * 512;
        }
    }
    if (dir != NULL) { closedir(dir); }
    return bytes;
}

/* Bytes of a process and all below it: of caller, supervisor and workers. A page that a fork
   left to several of them is counted once (each has its share of it in its PSS) until one of them
   writes it: then also the copy. Shared memory is counted once: pages of /dev/shm and of memfds
   that are mapped are in the PSS too, those that nobody has mapped, or that are in flight between
   two processes, are in no PSS. The kernel's own memory for a process (page tables, stacks, some
   100 KiB each) is in neither side's figure. */
static inline uint64_t resident_bytes(pid_t pid) {
    enum { MAX_PIDS = 256 };
    pid_t pids[MAX_PIDS] = {pid};
    uint64_t own = 0, shared = 0, files;
    int n = 1;
    for (int i = 0; i < n; i++) {
        n += bench_children_of(pids[i], pids + n, MAX_PIDS - n);
        add_pss(pids[i], &own, &shared);
    }
    files = dev_shm_bytes() + memfd_bytes(pid);
    return own + (shared > files ? shared : files);
}
