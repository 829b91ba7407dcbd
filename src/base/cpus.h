#pragma once
/* tests: system/core/pipe_deadline, system/report/predict, unit/queue/queue_wait */
#include "base/system.h"
/* ---- what cgroups and /proc say ---- */

/* Read the beginning of a file, as text. Returns false if the file cannot be opened. */
static bool dlpi_read_text(const char *path, char *text, size_t size) {
    size_t len = 0;
    ssize_t got;
    int fd = dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0) return false;
    while ((got = read(fd, text + len, size - 1 - len)) > 0) len += (size_t)got;
    close(fd);
    text[len] = 0;
    return true;
}

/* Read the first n numbers, 1 or 2, of a text. Returns false if there are fewer. It does without
   sscanf, which takes pages of stack: each thread would have them for good. */
static bool dlpi_numbers_in(const char *text, uint64_t *to, int n) {
    uint64_t number[2] = {0, 0};
    for (int i = 0; i < n; i++) {
        char *end;
        number[i] = strtoull(text, &end, 10);
        if (end == text) return false;
        text = end;
    }
    memcpy(to, number, (size_t)n * sizeof *to);
    return true;
}

/* Read the n numbers, 1 or 2, that a file begins with. Returns false if there are fewer. */
static bool dlpi_read_first(const char *path, uint64_t *to, int n) {
    char text[64];
    return dlpi_read_text(path, text, sizeof text) && dlpi_numbers_in(text, to, n);
}

/* Read n numbers, 1 or 2, behind `key` at the start of a line, or, if key is NULL, of the first
   line. Returns false if they are not there. */
static bool dlpi_numbers_behind(const char *text, const char *key, uint64_t *to, int n) {
    size_t skip = key ? strlen(key) : 0;
    while (skip > 0 && strncmp(text, key, skip) != 0) {
        if ((text = strchr(text, '\n')) == NULL) return false;
        text++;
    }
    return dlpi_numbers_in(text + skip, to, n);
}

/* Read n numbers, 1 or 2, behind `key` (NULL: on the first line) of a small file. Returns false if
   they are not there. Allocates nothing. */
static bool dlpi_read_numbers(const char *path, const char *key, uint64_t *to, int n) {
    char text[4096];
    return dlpi_read_text(path, text, sizeof text) && dlpi_numbers_behind(text, key, to, n);
}

static uint64_t dlpi_read_number(const char *path, const char *key) { /* UINT64_MAX: not there */
    uint64_t value;
    return dlpi_read_numbers(path, key, &value, 1) ? value : UINT64_MAX;
}

static uint64_t dlpi_cgroup_number(const char *dir, const char *file, const char *key) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return dlpi_read_number(path, key);
}

/* Return the path of this process's cgroup in a line of /proc/self/cgroup ("4:cpu,cpuacct:/a",
   "0::/a"). Returns NULL if the line is another controller's, or if the path is the root. */
static const char *dlpi_cgroup_place(const char *controller, const char *line) {
    size_t n = strlen(controller);
    const char *kind = strchr(line, ':'), *place = kind ? strchr(kind + 1, ':') : NULL;
    if (place == NULL || place[1] != '/' || place[2] == 0) return NULL;
    while (++kind, strncmp(kind, controller, n) != 0 || (kind[n] != ',' && kind[n] != ':')) {
        kind += strcspn(kind, ",:");
        if (kind == place) return NULL;
    }
    return place + 1;
}

/* Return what the cgroup in `dir` leaves; UINT64_MAX means no limit. v1: a cgroup of version 1. */
typedef uint64_t (*dlpi_cgroup_fn)(const char *dir, bool v1);

/* Return the least that this process's cgroup and those above it leave; UINT64_MAX if no limit is
   known. controller: names the line of /proc/self/cgroup; "" means cgroups of version 2. */
static uint64_t dlpi_cgroup_least(const char *controller, dlpi_cgroup_fn leaves) {
    char dir[512], line[480];
    uint64_t least = UINT64_MAX;
    FILE *f = dlpi_stream_open("/proc/self/cgroup", O_RDONLY, "r");
    const size_t root = (size_t)snprintf(dir, sizeof dir, "/sys/fs/cgroup%s%s",
                                         controller[0] ? "/" : "", controller);
    while (f && fgets(line, sizeof line, f)) {
        const char *place;
        line[strcspn(line, "\n")] = 0;
        if ((place = dlpi_cgroup_place(controller, line)) != NULL)
            snprintf(dir + root, sizeof dir - root, "%s", place);
    }
    if (f) fclose(f);
    for (;;) {
        uint64_t left = leaves(dir, controller[0] != 0);
        if (left < least) least = left;
        if (strlen(dir) <= root) return least;
        *strrchr(dir, '/') = 0;
    }
}

/* Return the least that the cgroups of both versions leave; UINT64_MAX if no limit is known. */
static uint64_t dlpi_cgroups_least(const char *controller, dlpi_cgroup_fn leaves) {
    uint64_t one = dlpi_cgroup_least(controller, leaves), two = dlpi_cgroup_least("", leaves);
    return one < two ? one : two;
}

static uint64_t dlpi_cgroup_cpus(const char *dir, bool v1) {
    char path[600];
    uint64_t n[2] = {UINT64_MAX, UINT64_MAX}; /* a quota, and its period */
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (!v1) { /* "max 100000", or two numbers */
        dlpi_read_numbers(path, NULL, n, 2);
    } else { /* a quota of -1: none */
        n[0] = dlpi_cgroup_number(dir, "cpu.cfs_quota_us", NULL);
        n[1] = dlpi_cgroup_number(dir, "cpu.cfs_period_us", NULL);
    }
    if (n[0] == UINT64_MAX || n[1] == UINT64_MAX || n[1] == 0) return UINT64_MAX;
    return n[0] > n[1] ? (n[0] - 1) / n[1] + 1 : 1;
}

/* Return the cores that quotas of this process's cgroups allow; UINT64_MAX if no limit is known. */
static uint64_t dlpi_cpu_quota(void) { return dlpi_cgroups_least("cpu", dlpi_cgroup_cpus); }

/* Return the cores that this process may use, by its affinity mask and its cgroups; at least 1. */
static int dlpi_cpu_count(void) {
    uint64_t quota = dlpi_cpu_quota();
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    if (n < 1) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : quota < (uint64_t)n ? (int)quota : n;
}

/* ---- how long a thread used a core, and waited for one ---- */

#define DLPI_CPU_PROBE_NS UINT64_C(5000000)

/* A thread's use of the cores, as it was noted last. A thread that does other work too is probed
   every 5 ms: one stretch of the work is measured. The work until the next probe is taken to be
   like it. */
typedef struct dlpi_cpu {
    uint64_t noted_ns, used_ns, waited_ns; /* time of the last note; the sums at that time */
    uint64_t sleeps; /* 1 + sleeps of the thread when the probe began; 0: no probe */
    double used_share, waited_share; /* parts of the time of the last probe, 0..1 */
} dlpi_cpu;

/* Read how long the calling thread has used a core. If `file` is set, also read from a file how
   long the thread was ready to run while others had the cores. A field that the system does not
   tell stays as it is. */
static void dlpi_cpu_read(dlpi_cpu *cpu, bool file) {
    struct timespec t;
    uint64_t sched[2];
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
        cpu->used_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (file && dlpi_read_first("/proc/thread-self/schedstat", sched, 2)) cpu->waited_ns = sched[1];
}

/* Return how often the calling thread has slept; 0 if the system does not tell. */
static uint64_t dlpi_cpu_sleeps(void) {
    struct rusage use;
    return getrusage(RUSAGE_THREAD, &use) == 0 ? (uint64_t)use.ru_nvcsw : 0;
}

/* Begin a probe. Returns false if it is too early for one. */
static bool dlpi_cpu_probe_begin(dlpi_cpu *cpu, uint64_t now) {
    if (now - cpu->noted_ns < DLPI_CPU_PROBE_NS) return false;
    cpu->noted_ns = now;
    cpu->sleeps = dlpi_cpu_sleeps() + 1;
    dlpi_cpu_read(cpu, true);
    return true;
}

/* If a probe is under way, forget it, and let the next one begin at once. */
static void dlpi_cpu_probe_drop(dlpi_cpu *cpu) {
    if (cpu->sleeps != 0) cpu->noted_ns = 0;
    cpu->sleeps = 0;
}

/* If a probe is under way, end it. ns: the length of the measured work, more than 0. A thread that
   never slept had a core, or waited for one, all the time; many kernels tell no more. */
static void dlpi_cpu_probe_end(dlpi_cpu *cpu, uint64_t ns) {
    const dlpi_cpu last = *cpu;
    uint64_t used, waited;
    if (cpu->sleeps == 0) return;
    dlpi_cpu_read(cpu, true);
    used = cpu->used_ns - last.used_ns;
    if (used > ns) used = ns;
    waited = cpu->waited_ns - last.waited_ns;
    if (waited > ns - used || dlpi_cpu_sleeps() + 1 == cpu->sleeps) waited = ns - used;
    cpu->used_share = (double)used / (double)ns;
    cpu->waited_share = (double)waited / (double)ns;
    cpu->sleeps = 0;
}
