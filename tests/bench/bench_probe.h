/* What near and far are, and which machine a figure is of: for all benchmarks, in C and in C++.
   After dlpipe.h, with dirent.h, pthread.h, sched.h, stdio.h, stdlib.h, string.h, sys/resource.h,
   time.h and unistd.h.

   The probe: one line goes from the first core that this process may use to the second and back,
   8 times 2,000 round trips after 500 that are not counted; the lower quartile of the 8 means, in
   ns, so that what interrupts a stretch is not taken for distance. Cores of a virtual machine are
   moved: below BENCH_NEAR_NS the two share a cache, above it they do not. Seen on the machine of
   README.md: 55 to 105 ns, and 310 to 560 ns, for seconds each, with nothing in between. */
#ifndef BENCH_PROBE_H
#define BENCH_PROBE_H

#define BENCH_NEAR_NS 200.0

enum { BENCH_PROBE_WARM = 500, BENCH_PROBE_TRIPS = 2000, BENCH_PROBE_STRETCHES = 8 };

struct bench_probe {
    size_t cpu[2];
    double mean_ns[BENCH_PROBE_STRETCHES];
    char before[DLPI_LINE];
    uint64_t ball; /* has lines to itself */
    char after[2 * DLPI_LINE];
};

static inline void bench_pin(size_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static inline double bench_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline void *bench_probe_echo(void *arg) {
    struct bench_probe *p = (struct bench_probe *)arg;
    const uint64_t n = BENCH_PROBE_WARM + BENCH_PROBE_TRIPS * BENCH_PROBE_STRETCHES;
    bench_pin(p->cpu[1]);
    for (uint64_t i = 0; i < n; i++) {
        while (DLPI_LOAD_ACQ(&p->ball) != 2 * i + 1) { /* A1 <- R1 */
        }
        DLPI_STORE_REL(&p->ball, 2 * i + 2); /* R2 -> A2 */
    }
    return NULL;
}

/* One round trip, after which the ball is at 2 * (i + 1). */
static inline void bench_probe_trip(struct bench_probe *p, uint64_t i) {
    DLPI_STORE_REL(&p->ball, 2 * i + 1);           /* R1 -> A1 */
    while (DLPI_LOAD_ACQ(&p->ball) != 2 * i + 2) { /* A2 <- R2 */
    }
}

static inline void *bench_probe_serve(void *arg) {
    struct bench_probe *p = (struct bench_probe *)arg;
    uint64_t i = 0;
    bench_pin(p->cpu[0]);
    for (; i < BENCH_PROBE_WARM; i++) { bench_probe_trip(p, i); }
    for (size_t k = 0; k < BENCH_PROBE_STRETCHES; k++) {
        double begin = bench_now_ns();
        for (int trip = 0; trip < BENCH_PROBE_TRIPS; trip++) { bench_probe_trip(p, i++); }
        p->mean_ns[k] = (bench_now_ns() - begin) / BENCH_PROBE_TRIPS;
    }
    return NULL;
}

/* The first two cores that this process may use. Returns how many there are of them. */
static inline int bench_two_cpus(size_t cpu[2]) {
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) { return 0; }
    for (size_t i = 0; i < CPU_SETSIZE && n < 2; i++) {
        if (CPU_ISSET(i, &set)) { cpu[n++] = i; }
    }
    return n;
}

static inline int bench_by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds for a cache line to go to another core and back; 0 where there is only one core. Both
   ends are threads of their own: the caller's affinity stays what it is. */
static inline double bench_round_trip_ns(void) {
    static struct bench_probe p;
    pthread_t echo, serve;
    memset(&p, 0, sizeof p);
    if (bench_two_cpus(p.cpu) < 2) { return 0; }
    if (pthread_create(&echo, NULL, bench_probe_echo, &p) != 0) { return 0; }
    if (pthread_create(&serve, NULL, bench_probe_serve, &p) != 0) {
        fprintf(stderr, "no thread for the probe\n");
        exit(1); /* the other end waits for it */
    }
    pthread_join(serve, NULL);
    pthread_join(echo, NULL);
    qsort(p.mean_ns, BENCH_PROBE_STRETCHES, sizeof *p.mean_ns, bench_by_value);
    return p.mean_ns[BENCH_PROBE_STRETCHES / 4];
}

/* ---- who else uses the machine --------------------------------------------------------------- */

/* Children of all threads of a process. Returns how many were stored. */
static inline int bench_children_of(pid_t pid, pid_t *out, int max) {
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char file[384];
        int child;
        if (e->d_name[0] == '.') { continue; }
        snprintf(file, sizeof file, "%s/%s/children", path, e->d_name);
        FILE *f = fopen(file, "r");
        while (f != NULL && n < max && fscanf(f, "%d", &child) == 1) { out[n++] = child; }
        if (f != NULL) { fclose(f); }
    }
    if (dir != NULL) { closedir(dir); }
    return n;
}

static inline double bench_cpu_seconds(const struct rusage *u) {
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

/* Processor seconds of the reaped children of a process. Those of another process than this one
   are told in clock ticks. */
static inline double bench_reaped_seconds(pid_t pid) {
    char path[64], text[512];
    long long user = 0, kernel = 0;
    struct rusage u;
    if (pid == getpid()) { return getrusage(RUSAGE_CHILDREN, &u) == 0 ? bench_cpu_seconds(&u) : 0; }
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f != NULL && fgets(text, sizeof text, f) != NULL && strrchr(text, ')') != NULL) {
        sscanf(strrchr(text, ')'),
               ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %lld %lld", &user, &kernel);
    }
    if (f != NULL) { fclose(f); }
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

/* Processor seconds of a process, of its reaped children, and of all processes that live below it,
   but for one child (0: none) and what is below that one. */
static inline double bench_tree_seconds(pid_t pid, pid_t but_for) {
    enum { MAX_CHILDREN = 128 };
    pid_t child[MAX_CHILDREN];
    int n = bench_children_of(pid, child, MAX_CHILDREN);
    struct timespec t = {0, 0};
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock) == 0) { clock_gettime(clock, &t); }
    double sum = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + bench_reaped_seconds(pid);
    for (int i = 0; i < n; i++) {
        sum += child[i] == but_for ? 0 : bench_tree_seconds(child[i], but_for);
    }
    return sum;
}

/* Seconds that all cores have been idle, in clock ticks. The kernel adds up idle time by its clock,
   and rounds it down here; busy time it may only sample, once a tick. */
static inline double bench_idle_seconds(void) {
    unsigned long long idle = 0, io_wait = 0;
    FILE *f = fopen("/proc/stat", "r");
    if (f == NULL) { return 0; }
    int n = fscanf(f, "cpu %*u %*u %*u %llu %llu", &idle, &io_wait);
    fclose(f);
    return n == 2 ? (double)(idle + io_wait) / (double)sysconf(_SC_CLK_TCK) : 0;
}

/* Core seconds, from some moment on, that were not idle and that neither this process nor its
   children used. The difference of two readings is wrong by 20 ms at most: idle time is two numbers
   of ticks. BENCH_ROOT: the process instead, if servers run beside this one. */
static inline double bench_others_seconds(void) {
    const char *root = getenv("BENCH_ROOT");
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    return cores * bench_now_ns() * 1e-9 - bench_idle_seconds() -
           bench_tree_seconds(root != NULL ? (pid_t)atoi(root) : getpid(), 0);
}

/* A round lasts this long at least. Then what others used of it is wrong by 0.04 cores at most. */
#define BENCH_ROUND_S 0.5
#define BENCH_OTHERS_MOST 0.1 /* cores; if others used more, the round was loaded */

/* ANY: a round of minutes, in which the distance changes and weighs nothing. BUSY: the environment
   says BUSY=1, as others use the machine all the time; only the ratios mean something. MIXED: the
   distance changed during the round. LOADED: others used the machine during it. */
enum regime { NEAR, FAR, SINGLE, ANY, BUSY, MIXED, LOADED };
static const char *const regime_name[] = {"near", "far",   "single", "any",
                                          "busy", "mixed", "loaded"};

static inline enum regime bench_regime(double round_trip_ns) {
    return round_trip_ns <= 0 ? SINGLE : round_trip_ns < BENCH_NEAR_NS ? NEAR : FAR;
}

/* What lay between two probes. */
static inline enum regime bench_regime_between(double before_ns, double after_ns) {
    enum regime after = bench_regime(after_ns);
    return bench_regime(before_ns) == after ? after : MIXED;
}

/* The value of a line of /proc/cpuinfo; "" where there is none. Without quotes and backslashes. */
static inline void bench_cpuinfo(const char *name, char *out, size_t size) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    out[0] = '\0';
    while (f != NULL && fgets(line, (int)sizeof line, f) != NULL) {
        char *value = strchr(line, ':');
        size_t n = 0;
        if (value == NULL || strncmp(line, name, strlen(name)) != 0) { continue; }
        for (value += strspn(value, ": \t"); *value != '\0' && n + 1 < size; value++) {
            if (*value >= ' ' && *value != '"' && *value != '\\') { out[n++] = *value; }
        }
        out[n] = '\0';
        break;
    }
    if (f != NULL) { fclose(f); }
}

/* The keys that end every line: the machine, the compiler, the day. */
static inline const char *bench_machine(void) {
    static char text[320];
    char name[96], model[24], day[16] = "";
    time_t now = time(NULL);
    struct tm utc;
    cpu_set_t set;
    if (text[0] != '\0') { return text; }
    bench_cpuinfo("model name", name, sizeof name);
    bench_cpuinfo("model\t", model, sizeof model);
    if (gmtime_r(&now, &utc) != NULL) { strftime(day, sizeof day, "%Y-%m-%d", &utc); }
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    snprintf(text, sizeof text,
             ",\"machine\":\"%s, model %s, %d cores\",\"compiler\":\"%s %.12s\",\"date\":\"%s\"",
             name, model, cores,
#if defined(__clang__)
             "clang", __clang_version__,
#else
             "gcc", __VERSION__,
#endif
             day);
    return text;
}

#endif
