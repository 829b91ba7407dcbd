#pragma once
#include "api/queues.h"
#include "base/platform.h"
#include "base/clock.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   Futexes and the heavy barrier first, then lanes, then bundles. */

#define DLPI_SLEEP_MAX_NS 100000000u /* every sleep ends by then: a waker can die before it wakes */

/* Futex words are plain uint32_t. The waker changes the word before it wakes, so that a sleeper
   that has not slept yet sees another value than it expects. */
#ifndef DLPIPE_NO_FUTEX
/* The kernel's numbers (futex(2)), so that no kernel header is needed. */
enum { DLPI_FUTEX_WAIT_BITSET = 9, DLPI_FUTEX_WAKE_BITSET = 10, DLPI_FUTEX_PRIVATE = 128 };

static int dlpi_futex_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                           int shared) {
    uint64_t until = dlpi_now_ns() + (timeout_ns < UINT64_MAX / 4 ? timeout_ns : UINT64_MAX / 4);
    struct timespec t;
    t.tv_sec = (time_t)(until / 1000000000u);
    t.tv_nsec = (long)(until % 1000000000u);
    int op = DLPI_FUTEX_WAIT_BITSET | (shared ? 0 : DLPI_FUTEX_PRIVATE);
    int saved = errno;
    long r = syscall(SYS_futex, word, op, expect, &t, NULL, bits);
    int timed_out = r != 0 && errno == ETIMEDOUT;
    errno = saved;
    return timed_out;
}

static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared) {
    int op = DLPI_FUTEX_WAKE_BITSET | (shared ? 0 : DLPI_FUTEX_PRIVATE);
    int saved = errno;
    (void)syscall(SYS_futex, word, op, n, NULL, NULL, bits);
    errno = saved;
}

#else /* DLPIPE_NO_FUTEX */

/* A parking lot: threads that wait stand in a list of their word's bucket, each with a condition
   variable on its stack. Other processes cannot see it: they look again after short sleeps. */
#define DLPI_PARK_BUCKETS 64u

typedef struct dlpi_lot_waiter {
    struct dlpi_lot_waiter *next;
    uint32_t *word;
    uint32_t bits;
    int woken;
    pthread_cond_t cond;
} dlpi_lot_waiter;

static struct {
    pthread_mutex_t lock;
    dlpi_lot_waiter *first;
} dlpi_park_lot[DLPI_PARK_BUCKETS];
static pthread_once_t dlpi_park_once = PTHREAD_ONCE_INIT;

static void dlpi_park_begin(void) {
    for (uint32_t i = 0; i < DLPI_PARK_BUCKETS; i++)
        pthread_mutex_init(&dlpi_park_lot[i].lock, NULL);
}

static uint32_t dlpi_park_bucket(const uint32_t *word) {
    return (uint32_t)(((uintptr_t)word * UINT64_C(0x9E3779B97F4A7C15)) >> 58);
}

static int dlpi_lot_nap(const uint32_t *word, uint32_t expect, uint64_t timeout_ns) {
    uint64_t begin = dlpi_now_ns(), nap = 50000;
    while (DLPI_LOAD_SEQ(word) == expect) { /* W1, any change of the word */
        uint64_t gone = dlpi_now_ns() - begin;
        if (gone >= timeout_ns) return 1;
        if (nap > timeout_ns - gone) nap = timeout_ns - gone;
        struct timespec t = {(time_t)(nap / 1000000000u), (long)(nap % 1000000000u)};
        nanosleep(&t, NULL);
        if (nap < 1000000) nap *= 2;
    }
    return 0;
}

static int dlpi_lot_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns) {
    pthread_mutex_t *lock = &dlpi_park_lot[dlpi_park_bucket(word)].lock;
    dlpi_lot_waiter **list = &dlpi_park_lot[dlpi_park_bucket(word)].first;
    dlpi_lot_waiter me = {NULL, word, bits, 0, PTHREAD_COND_INITIALIZER};
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t at = (uint64_t)t.tv_nsec + (timeout_ns < UINT64_MAX / 4 ? timeout_ns : UINT64_MAX / 4);
    t.tv_sec += (time_t)(at / 1000000000u);
    t.tv_nsec = (long)(at % 1000000000u);
    int timed_out = 0;
    pthread_mutex_lock(lock);
    if (DLPI_LOAD_SEQ(word) == expect) { /* W1, under the waker's lock */
        me.next = *list;
        *list = &me;
        while (!me.woken && !timed_out)
            timed_out = pthread_cond_timedwait(&me.cond, lock, &t) == ETIMEDOUT;
        if (!me.woken) {
            while (*list != &me) list = &(*list)->next;
            *list = me.next;
        }
        timed_out = !me.woken;
    }
    pthread_mutex_unlock(lock);
    pthread_cond_destroy(&me.cond);
    return timed_out;
}

static int dlpi_futex_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                           int shared) {
    if (shared) return dlpi_lot_nap(word, expect, timeout_ns);
    pthread_once(&dlpi_park_once, dlpi_park_begin);
    return dlpi_lot_wait(word, expect, bits, timeout_ns);
}

static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared) {
    if (shared) return;
    pthread_once(&dlpi_park_once, dlpi_park_begin);
    uint32_t bucket = dlpi_park_bucket(word);
    pthread_mutex_lock(&dlpi_park_lot[bucket].lock);
    dlpi_lot_waiter **at = &dlpi_park_lot[bucket].first;
    while (*at && n > 0) {
        dlpi_lot_waiter *sleeper = *at;
        if (sleeper->word == word && (sleeper->bits & bits)) {
            *at = sleeper->next;
            sleeper->woken = 1;
            pthread_cond_signal(&sleeper->cond);
            n--;
        } else {
            at = &sleeper->next;
        }
    }
    pthread_mutex_unlock(&dlpi_park_lot[bucket].lock);
}
#endif /* DLPIPE_NO_FUTEX */

/* fd, or a copy of it that is none of the first three, as are all descriptors of ours: where a
   program has closed those (a daemon), what somebody prints would go into our file. -1: as fd, or
   there is no other; errno tells. */
static int dlpi_fd_above(int fd) {
    int above, errnum;
    if (fd < 0 || fd > 2) return fd;
    above = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    errnum = errno;
    close(fd);
    errno = errnum;
    return above;
}

/* The same for two, of pipe2 or socketpair, which returned rc. Returns 0, or -1 with errno. */
__attribute__((unused)) static int dlpi_pair_above(int rc, int *fd) {
    if (rc != 0) return rc;
    fd[0] = dlpi_fd_above(fd[0]);
    fd[1] = dlpi_fd_above(fd[1]);
    if (fd[0] >= 0 && fd[1] >= 0) return 0;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    fd[0] = fd[1] = -1;
    return -1;
}

/* What the environment says of paths, credentials, servers, processes: nothing where the program
   has more rights than who started it (setuid), and wrote that. */
__attribute__((unused)) static const char *dlpi_env(const char *name) {
#if defined(__linux__)
    return secure_getenv(name);
#else
    return getenv(name);
#endif
}

/* May a file be as large as that? Growing it past the limit on files (ulimit -f) would end the
   program, by SIGXFSZ. If not, errno is EFBIG. */
__attribute__((unused)) static bool dlpi_file_may_be(uint64_t bytes) {
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
        bytes <= most.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* A stream for files that are read or written as text. mode: as flags. NULL: errno. */
static FILE *dlpi_stream_open(const char *path, int flags, const char *mode) {
    int fd = dlpi_fd_above(open(path, flags | O_CLOEXEC, 0666));
    FILE *f = fd >= 0 ? fdopen(fd, mode) : NULL;
    if (f == NULL && fd >= 0) close(fd);
    return f;
}

/* ---- what cgroups and /proc say ---- */

/* The first n numbers, 1 or 2, behind key on its line of a small file; key NULL: on the first line.
   Allocates nothing. */
static bool dlpi_read_numbers(const char *path, const char *key, uint64_t *to, int n) {
    char text[4096];
    size_t skip = key ? strlen(key) : 0, len = 0;
    uint64_t number[2];
    const char *line = text;
    ssize_t got;
    int fd = dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0) return false;
    while ((got = read(fd, text + len, sizeof text - 1 - len)) > 0) len += (size_t)got;
    close(fd);
    text[len] = 0;
    while (skip > 0 && strncmp(line, key, skip) != 0) {
        if ((line = strchr(line, '\n')) == NULL) return false;
        line++;
    }
    if (sscanf(line + skip, "%" SCNu64 " %" SCNu64, &number[0], &number[1]) < n) return false;
    memcpy(to, number, (size_t)n * sizeof *to);
    return true;
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

/* A controller's cgroups, of one version of them. */
typedef struct dlpi_cgroups {
    const char *controller; /* names the line of /proc/self/cgroup; "": version 2 */
    const char *root;
    uint64_t (*leaves)(const char *dir); /* what the one in dir leaves; UINT64_MAX: no limit */
} dlpi_cgroups;

/* The place of this process in a line of /proc/self/cgroup ("4:cpu,cpuacct:/a", "0::/a"); NULL:
   another controller's. */
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

/* The least that this process's cgroup and those above it leave; UINT64_MAX: no limit is known. */
static uint64_t dlpi_cgroup_least(const dlpi_cgroups *v) {
    char dir[512], line[480];
    const size_t root = strlen(v->root);
    uint64_t least = UINT64_MAX;
    FILE *f = dlpi_stream_open("/proc/self/cgroup", O_RDONLY, "r");
    snprintf(dir, sizeof dir, "%s", v->root);
    while (f && fgets(line, sizeof line, f)) {
        const char *place;
        line[strcspn(line, "\n")] = 0;
        if ((place = dlpi_cgroup_place(v->controller, line)) != NULL)
            snprintf(dir + root, sizeof dir - root, "%s", place);
    }
    if (f) fclose(f);
    for (;;) {
        uint64_t left = v->leaves(dir);
        if (left < least) least = left;
        if (strlen(dir) <= root) return least;
        *strrchr(dir, '/') = 0;
    }
}

/* Cores that a quota stands for, rounded up. */
static uint64_t dlpi_quota_cpus(uint64_t quota, uint64_t period) {
    if (quota == UINT64_MAX || period == UINT64_MAX || period == 0) return UINT64_MAX;
    return quota > period ? (quota - 1) / period + 1 : 1;
}

static uint64_t dlpi_cgroup_cpu_v2(const char *dir) { /* "max 100000", or two numbers */
    char path[600];
    uint64_t n[2];
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    return dlpi_read_numbers(path, NULL, n, 2) ? dlpi_quota_cpus(n[0], n[1]) : UINT64_MAX;
}

static uint64_t dlpi_cgroup_cpu_v1(const char *dir) { /* a quota of -1: none */
    return dlpi_quota_cpus(dlpi_cgroup_number(dir, "cpu.cfs_quota_us", NULL),
                           dlpi_cgroup_number(dir, "cpu.cfs_period_us", NULL));
}

/* Cores that this process may use: its affinity mask, and the quotas of its cgroups. */
static int dlpi_cpu_count(void) {
#if defined(__linux__)
    static const dlpi_cgroups v1 = {"cpu", "/sys/fs/cgroup/cpu", dlpi_cgroup_cpu_v1};
    static const dlpi_cgroups v2 = {"", "/sys/fs/cgroup", dlpi_cgroup_cpu_v2};
    uint64_t one = dlpi_cgroup_least(&v1), two = dlpi_cgroup_least(&v2);
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    if (n < 1) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (one > two) one = two;
    return n < 1 ? 1 : one < (uint64_t)n ? (int)one : n;
#else
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
#endif
}

/* ---- the heavy barrier: makes every other participant's T1 or H1 visible, paid by who goes to
   sleep ---- */

#ifndef DLPIPE_NO_MEMBARRIER
/* The kernel's numbers (membarrier(2)). */
enum {
    DLPI_MB_GLOBAL = 1 << 1,
    DLPI_MB_REGISTER_GLOBAL = 1 << 2,
    DLPI_MB_PRIVATE = 1 << 3,
    DLPI_MB_REGISTER_PRIVATE = 1 << 4
};

static int dlpi_membarrier(int command) {
    int saved = errno;
    long r = syscall(SYS_membarrier, command, 0, 0);
    errno = saved;
    return r == 0;
}

/* Let this process take part. Returns 0 where the kernel or a filter refuses. */
static int dlpi_heavy_register(int shared) {
    return dlpi_membarrier(shared ? DLPI_MB_REGISTER_GLOBAL : DLPI_MB_REGISTER_PRIVATE);
}

static int dlpi_heavy_barrier(int shared) {
    return dlpi_membarrier(shared ? DLPI_MB_GLOBAL : DLPI_MB_PRIVATE);
}
#else
static int dlpi_heavy_register(int shared) {
    DLPI_UNUSED(shared);
    return 0;
}

static int dlpi_heavy_barrier(int shared) {
    DLPI_UNUSED(shared);
    return 0;
}
#endif

/* ---- bells: an event count for one sleeper ----
   A bell is a futex word. DLPI_BELL_SLEEPER: its owner sleeps or is about to. DLPI_BELL_RMW: some
   participant has no heavy barrier; it is set once and stays, and makes every waker come to
   dlpi_bell_ring, whose read-modify-write (B2) then is the order.
   Sleeper: B3 sets the bit; heavy barrier; looks again (T2 or H2); sleeps while the word is
   unchanged.
   Waker:   T1 or H1; B1.
   With the barrier: either B1 comes before it in the waker's program, and then so does T1, which
   the barrier makes visible to the sleeper's second look; or B1 comes after it and sees the bit.
   Without: B2 and B3 are one order. If B2 is later it sees the bit. If B3 is later it reads what B2
   wrote, or later, and the second look sees T1, which came before B2.
   A participant that sets DLPI_BELL_RMW while others run may miss a wake-up until they have seen
   the bit; so may anyone whose waker dies between T1 and B2. Both end with the sleep, within 100
   ms. */
#define DLPI_BELL_SLEEPER 1u
#define DLPI_BELL_RMW 2u

static void dlpi_bell_join(uint32_t *bell, int shared) {
    if (!dlpi_heavy_register(shared)) DLPI_OR_SEQ(bell, DLPI_BELL_RMW); /* -> B1 */
}

DLPDEF void dlpi_bell_ring(uint32_t *bell, uint32_t shared) {
    if (DLPI_AND_SEQ(bell, ~DLPI_BELL_SLEEPER) & DLPI_BELL_SLEEPER) /* B2 <- B3 */
        dlpi_futex_wake(bell, 1, ~0u, (int)shared);
}

/* Wake a producer that sleeps on a full lane, once half of it is free. */
DLPDEF void dlpi_spsc_room_bell(dlp_spsc_rx *rx) {
    uint32_t *bell = &rx->lane->producer_bell;
    if (!(DLPI_OR_SEQ(bell, 0u) & DLPI_BELL_SLEEPER)) /* B2 <- B3 */
        return;
    uint64_t used = DLPI_LOAD_ACQ(&rx->lane->tail) - rx->head; /* T2 <- T1 */
    if (used <= rx->capacity / 2 || used > rx->capacity) dlpi_bell_ring(bell, rx->shared);
}

/* One who waits: on which bell, how patiently, and for what. */
typedef struct dlpi_waiter {
    uint32_t *bell;
    uint32_t shared, spin_ns, yields;
    int (*look)(void *handle); /* not 0: it has come, or an error has */
    void *handle;
} dlpi_waiter;

static int dlpi_await_awake(const dlpi_waiter *w, uint64_t begin, uint64_t until) {
    uint64_t end = until - begin < w->spin_ns ? until : begin + w->spin_ns;
    if (w->spin_ns > 0) {
        for (uint32_t i = 1;; i++) {
            if (w->look(w->handle)) return 1;
            if (i % 16 == 0 && dlpi_now_ns() >= end) break;
            dlpi_pause();
        }
    }
    for (uint32_t i = 0; i < w->yields; i++) {
        if (w->look(w->handle)) return 1;
        sched_yield();
    }
    return w->look(w->handle);
}

static int dlpi_await_asleep(const dlpi_waiter *w, uint64_t until) {
    for (;;) {
        uint32_t set = DLPI_OR_SEQ(w->bell, DLPI_BELL_SLEEPER); /* B3 -> B1, B2 */
        set |= DLPI_BELL_SLEEPER;
        if (!(set & DLPI_BELL_RMW) && !dlpi_heavy_barrier((int)w->shared)) {
            DLPI_OR_SEQ(w->bell, DLPI_BELL_RMW); /* -> B1 */
            set |= DLPI_BELL_RMW;
        }
        int come = w->look(w->handle);
        uint64_t now = come ? 0 : dlpi_now_ns();
        if (come || now >= until) {
            DLPI_AND_SEQ(w->bell, ~DLPI_BELL_SLEEPER); /* takes B3 back */
            return come ? DLP_OK : DLP_TIMEOUT;
        }
        uint64_t most = until - now < DLPI_SLEEP_MAX_NS ? until - now : DLPI_SLEEP_MAX_NS;
        dlpi_futex_wait(w->bell, set, ~0u, most, (int)w->shared);
        if (w->look(w->handle)) { /* before the bit is set again, which would ask for a wake-up */
            if (DLPI_LOAD_RLX(w->bell) & DLPI_BELL_SLEEPER) /* B3, own bit, if no waker took it */
                DLPI_AND_SEQ(w->bell, ~DLPI_BELL_SLEEPER);
            return DLP_OK;
        }
    }
}

/* Wait until look says so. Returns DLP_OK or DLP_TIMEOUT. */
static int dlpi_await(const dlpi_waiter *w, int timeout_ms) {
    if (w->look(w->handle)) return DLP_OK;
    if (timeout_ms == DLP_NOWAIT) return DLP_TIMEOUT;
    uint64_t begin = dlpi_now_ns(), until = UINT64_MAX;
    if (timeout_ms > 0) until = begin + (uint64_t)timeout_ms * 1000000u;
    if (dlpi_await_awake(w, begin, until)) return DLP_OK;
    return dlpi_await_asleep(w, until);
}

/* How patiently to wait where this many threads take part: on spare cores a spin about as long as a
   wake-up takes; else make way soon, but a few times before paying for sleep. */
static void dlpi_wait_policy(uint32_t peers, uint32_t *spin_ns, uint32_t *yields) {
    static uint32_t cpus;
    uint32_t n = DLPI_LOAD_RLX(&cpus); /* C1, any value read twice is the same */
    if (n == 0) {
        n = (uint32_t)dlpi_cpu_count();
        DLPI_STORE_RLX(&cpus, n); /* C1 */
    }
    *spin_ns = peers <= n ? 10000 : 1000;
    *yields = peers <= n ? 0 : 50;
}

/* ---- lanes: layout, attach, wait ---- */

#define DLPI_SPSC_MAGIC UINT64_C(0x31656e616c706c64) /* "dlplane1" */
#define DLPI_MPSC_MAGIC UINT64_C(0x316c646e62706c64) /* "dlpbndl1" */
#define DLPI_QUEUE_VERSION 1u
/* Sizes and places that sharers must agree on, in one number. */
#define DLPI_QUEUE_LAYOUT \
    ((uint32_t)(sizeof(dlp_spsc) << 16 ^ sizeof(dlp_mpsc) << 4 ^ DLPI_LINE ^ sizeof(size_t) << 28))

_Static_assert(sizeof(dlp_spsc) == 5 * DLPI_LINE, "lane header");
_Static_assert(offsetof(dlp_spsc, tail) == DLPI_LINE, "one writer per block");
_Static_assert(offsetof(dlp_spsc, head) == 2 * DLPI_LINE, "one writer per block");
_Static_assert(offsetof(dlp_spsc, producer_bell) == 3 * DLPI_LINE, "waiters' own block");
_Static_assert(offsetof(dlp_spsc, consumer_bell) == 4 * DLPI_LINE, "waiters' own block");
_Static_assert(sizeof(dlp_mpsc) == 2 * DLPI_LINE, "bundle header");
_Static_assert(offsetof(dlp_mpsc, consumer_bell) == DLPI_LINE, "waiter's own block");
_Static_assert(sizeof(dlp_spsc_tx) == 256 && sizeof(dlp_spsc_rx) == 256, "handles are padded");

static uint64_t dlpi_line_up(uint64_t bytes) { return dlpi_round_up(bytes, DLPI_LINE); }

static int dlpi_queue_mem_ok(const void *mem) {
    return mem && (uintptr_t)mem % DLP_QUEUE_ALIGN == 0;
}

DLPDEF uint64_t dlp_spsc_bytes(uint32_t record_bytes, uint64_t capacity) {
    if (record_bytes == 0 || record_bytes % 8 || record_bytes > DLP_QUEUE_MAX_RECORD ||
        capacity == 0 || (capacity & (capacity - 1)) || capacity > DLP_QUEUE_MAX_CAPACITY)
        return 0;
    return dlpi_line_up(dlpi_sum(sizeof(dlp_spsc), dlpi_times(record_bytes, capacity)));
}

DLPDEF int dlp_spsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         int shared) {
    uint64_t need = dlp_spsc_bytes(record_bytes, capacity);
    if (!dlpi_queue_mem_ok(mem) || need == 0 || need > bytes || need > SIZE_MAX) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    memset(lane, 0, sizeof *lane);
    lane->version = DLPI_QUEUE_VERSION;
    lane->layout = DLPI_QUEUE_LAYOUT;
    lane->record_bytes = record_bytes;
    lane->shared = shared != 0;
    lane->capacity = capacity;
    lane->slots_offset = sizeof(dlp_spsc);
    lane->total_bytes = need;
    DLPI_STORE_REL(&lane->magic, DLPI_SPSC_MAGIC); /* M1 -> M2 */
    return DLP_OK;
}

/* The header as read once, checked against the bytes there are. */
static int dlpi_spsc_check(const dlp_spsc *lane, uint64_t bytes, dlp_spsc *copy) {
    if (bytes < sizeof *lane || DLPI_LOAD_ACQ(&lane->magic) != DLPI_SPSC_MAGIC) /* M2 <- M1 */
        return DLP_ERR_CORRUPT;
    copy->version = DLPI_LOAD_RLX(&lane->version); /* M3, six words that init wrote before M1 */
    copy->layout = DLPI_LOAD_RLX(&lane->layout);
    copy->record_bytes = DLPI_LOAD_RLX(&lane->record_bytes);
    copy->shared = DLPI_LOAD_RLX(&lane->shared);
    copy->capacity = DLPI_LOAD_RLX(&lane->capacity);
    copy->slots_offset = DLPI_LOAD_RLX(&lane->slots_offset);
    copy->total_bytes = DLPI_LOAD_RLX(&lane->total_bytes);
    uint64_t need = dlp_spsc_bytes(copy->record_bytes, copy->capacity);
    if (copy->version != DLPI_QUEUE_VERSION || copy->layout != DLPI_QUEUE_LAYOUT ||
        copy->shared > 1 || need == 0 || need > bytes || copy->total_bytes != need ||
        copy->slots_offset != sizeof *lane)
        return DLP_ERR_CORRUPT;
    copy->head = DLPI_LOAD_ACQ(&lane->head); /* H2 <- H1, before tail: head never passes tail */
    copy->tail = DLPI_LOAD_ACQ(&lane->tail); /* T2 <- T1 */
    return DLP_OK;
}

DLPDEF int dlp_spsc_attach_tx(dlp_spsc_tx *tx, void *mem, uint64_t bytes) {
    dlp_spsc copy;
    if (!tx || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    if (dlpi_spsc_check(lane, bytes, &copy) != DLP_OK || copy.tail - copy.head > copy.capacity)
        return DLP_ERR_CORRUPT;
    memset(tx, 0, sizeof *tx);
    tx->tail = copy.tail;
    tx->head_seen = copy.head;
    tx->capacity = copy.capacity;
    tx->slots = (unsigned char *)mem + copy.slots_offset;
    tx->lane = lane;
    tx->bell = &lane->consumer_bell;
    tx->record_bytes = copy.record_bytes;
    tx->shared = copy.shared;
    dlpi_wait_policy(2, &tx->spin_ns, &tx->yields);
    dlpi_bell_join(&lane->consumer_bell, (int)copy.shared);
    dlpi_bell_join(&lane->producer_bell, (int)copy.shared);
    return DLP_OK;
}

DLPDEF int dlp_spsc_attach_rx(dlp_spsc_rx *rx, void *mem, uint64_t bytes) {
    dlp_spsc copy;
    if (!rx || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    dlp_spsc *lane = (dlp_spsc *)mem;
    if (dlpi_spsc_check(lane, bytes, &copy) != DLP_OK || copy.tail - copy.head > copy.capacity)
        return DLP_ERR_CORRUPT;
    memset(rx, 0, sizeof *rx);
    rx->head = rx->published = copy.head;
    rx->tail_seen = copy.tail;
    rx->publish_every = copy.capacity >= 8 ? copy.capacity / 8 : 1;
    rx->slip_most = DLPI_SLIP_MOST;
    rx->capacity = copy.capacity;
    rx->slots = (unsigned char *)mem + copy.slots_offset;
    rx->lane = lane;
    rx->record_bytes = copy.record_bytes;
    rx->shared = copy.shared;
    dlpi_wait_policy(2, &rx->spin_ns, &rx->yields);
    dlpi_bell_join(&lane->consumer_bell, (int)copy.shared);
    dlpi_bell_join(&lane->producer_bell, (int)copy.shared);
    return DLP_OK;
}

static int dlpi_spsc_has_room(void *handle) {
    return dlpi_spsc_room((dlp_spsc_tx *)handle, 1) != 0;
}

static int dlpi_spsc_has_stock(void *handle) {
    return dlpi_spsc_stock((dlp_spsc_rx *)handle, 1) != 0;
}

DLPDEF int dlp_spsc_wait_tx(dlp_spsc_tx *tx, int timeout_ms) {
    dlpi_waiter w = {&tx->lane->producer_bell, tx->shared, tx->spin_ns, tx->yields,
                     dlpi_spsc_has_room,       tx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK && dlpi_spsc_room(tx, 1) < 0 ? DLP_ERR_CORRUPT : r;
}

DLPDEF int dlp_spsc_wait_rx(dlp_spsc_rx *rx, int timeout_ms) {
    dlpi_waiter w = {&rx->lane->consumer_bell, rx->shared, rx->spin_ns, rx->yields,
                     dlpi_spsc_has_stock,      rx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK && dlpi_spsc_stock(rx, 1) < 0 ? DLP_ERR_CORRUPT : r;
}

/* What is left of timeout_ms since begin, as a time-out again. */
static int dlpi_time_left(int timeout_ms, uint64_t *begin) {
    if (timeout_ms <= 0) return timeout_ms;
    uint64_t now = dlpi_now_ns();
    if (*begin == 0) *begin = now;
    uint64_t gone = (now - *begin) / 1000000u;
    return gone < (uint64_t)timeout_ms ? timeout_ms - (int)gone : DLP_NOWAIT;
}

DLPDEF int64_t dlp_spsc_push_burst(dlp_spsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms) {
    const unsigned char *from = (const unsigned char *)records;
    uint64_t done = 0, begin = 0;
    for (;;) {
        int64_t k = dlp_spsc_try_push_burst(tx, from + done * tx->record_bytes, n - done);
        if (k < 0) return k;
        done += (uint64_t)k;
        if (done == n) return (int64_t)done;
        int r = dlp_spsc_wait_tx(tx, dlpi_time_left(timeout_ms, &begin));
        if (r != DLP_OK) return r < 0 ? r : (int64_t)done;
    }
}

DLPDEF int64_t dlp_spsc_pop_burst(dlp_spsc_rx *rx, void *records, uint64_t max, int timeout_ms) {
    int64_t n = dlp_spsc_try_pop_burst(rx, records, max);
    if (n != 0 || max == 0) return n;
    int r = dlp_spsc_wait_rx(rx, timeout_ms);
    if (r != DLP_OK) return r < 0 ? r : 0;
    return dlp_spsc_try_pop_burst(rx, records, max);
}

/* ---- bundles ---- */

#ifndef DLPI_MPSC_SCAN      /* a checker may define these two before inclusion */
#define DLPI_MPSC_SCAN 16u  /* up to so many producers the consumer just looks at their tails */
#define DLPI_MPSC_SWEEP 64u /* every so many searches all lanes are looked at */
#endif
#define DLPI_MPSC_QUANTUM 64u

/* Offsets and sizes of a bundle; all 0 if a parameter is out of range. */
static dlp_mpsc dlpi_mpsc_plan(uint32_t record_bytes, uint64_t capacity, uint32_t producers) {
    dlp_mpsc plan;
    memset(&plan, 0, sizeof plan);
    uint64_t lane = dlp_spsc_bytes(record_bytes, capacity);
    if (lane == 0 || producers == 0 || producers > DLP_MPSC_MAX_PRODUCERS) return plan;
    plan.version = DLPI_QUEUE_VERSION;
    plan.layout = DLPI_QUEUE_LAYOUT;
    plan.record_bytes = record_bytes;
    plan.capacity = capacity;
    plan.producers = producers;
    plan.ready_words = producers > DLPI_MPSC_SCAN ? (producers + 63) / 64 : 0;
    plan.ready_offset = sizeof(dlp_mpsc);
    plan.owners_offset = plan.ready_offset + plan.ready_words * (uint64_t)DLPI_LINE;
    plan.lanes_offset = plan.owners_offset + dlpi_line_up(producers * sizeof(uint32_t));
    plan.lane_bytes = lane;
    plan.total_bytes = dlpi_sum(plan.lanes_offset, dlpi_times(lane, producers));
    return plan;
}

DLPDEF uint64_t dlp_mpsc_bytes(uint32_t record_bytes, uint64_t capacity, uint32_t producers) {
    return dlpi_mpsc_plan(record_bytes, capacity, producers).total_bytes;
}

static void *dlpi_at(void *mem, uint64_t offset) { return (unsigned char *)mem + offset; }

DLPDEF int dlp_mpsc_init(void *mem, uint64_t bytes, uint32_t record_bytes, uint64_t capacity,
                         uint32_t producers, int shared) {
    dlp_mpsc plan = dlpi_mpsc_plan(record_bytes, capacity, producers);
    if (!dlpi_queue_mem_ok(mem) || plan.total_bytes == 0 || plan.total_bytes > bytes ||
        plan.total_bytes > SIZE_MAX)
        return DLP_ERR_ARG;
    plan.shared = shared != 0;
    memset(mem, 0, (size_t)plan.lanes_offset);
    memcpy(mem, &plan, sizeof plan);
    for (uint32_t i = 0; i < producers; i++) {
        void *lane = dlpi_at(mem, plan.lanes_offset + i * plan.lane_bytes);
        int r = dlp_spsc_init(lane, plan.lane_bytes, record_bytes, capacity, shared);
        if (r != DLP_OK) return r;
    }
    DLPI_STORE_REL(&((dlp_mpsc *)mem)->magic, DLPI_MPSC_MAGIC); /* M1 -> M2 */
    return DLP_OK;
}

/* Check what lies in memory against what its few free parameters make of it. */
static int dlpi_mpsc_check(const dlp_mpsc *bundle, uint64_t bytes, dlp_mpsc *copy) {
    if (bytes < sizeof *bundle || DLPI_LOAD_ACQ(&bundle->magic) != DLPI_MPSC_MAGIC) /* M2 <- M1 */
        return DLP_ERR_CORRUPT;
    dlp_mpsc found;
    memcpy(&found, bundle, offsetof(dlp_mpsc, pad0)); /* what init wrote before M1 */
    *copy = dlpi_mpsc_plan(found.record_bytes, found.capacity, found.producers);
    if (copy->total_bytes == 0 || copy->total_bytes > bytes || found.shared > 1)
        return DLP_ERR_CORRUPT;
    copy->shared = found.shared;
    copy->magic = found.magic;
    return memcmp(copy, &found, offsetof(dlp_mpsc, pad0)) == 0 ? DLP_OK : DLP_ERR_CORRUPT;
}

static int dlpi_mpsc_claim(uint32_t *owners, uint32_t producers) {
    for (uint32_t i = 0; i < producers; i++) {
        uint32_t free_owner = 0;
        if (DLPI_CAS_SEQ(&owners[i], &free_owner, 1u)) /* O1 */
            return (int)i;
    }
    return DLP_ERR_BUSY;
}

DLPDEF int dlp_mpsc_attach_tx(dlp_mpsc_tx *tx, void *mem, uint64_t bytes, int producer) {
    dlp_mpsc copy;
    if (!tx || !dlpi_queue_mem_ok(mem) || producer < DLP_NONE) return DLP_ERR_ARG;
    dlp_mpsc *bundle = (dlp_mpsc *)mem;
    if (dlpi_mpsc_check(bundle, bytes, &copy) != DLP_OK) return DLP_ERR_CORRUPT;
    uint32_t *owners = (uint32_t *)dlpi_at(mem, copy.owners_offset);
    if (producer >= (int)copy.producers) return DLP_ERR_ARG;
    int mine = producer == DLP_NONE ? dlpi_mpsc_claim(owners, copy.producers) : producer;
    if (mine < 0) return mine;
    DLPI_STORE_SEQ(&owners[mine], 1u); /* O1 */
    memset(tx, 0, sizeof *tx);
    uint64_t at = copy.lanes_offset + (uint64_t)mine * copy.lane_bytes;
    int r = dlp_spsc_attach_tx(&tx->lane, dlpi_at(mem, at), copy.lane_bytes);
    if (r != DLP_OK || tx->lane.record_bytes != copy.record_bytes) return DLP_ERR_CORRUPT;
    tx->lane.bell = &bundle->consumer_bell;
    tx->lane.shared = copy.shared;
    tx->owner = &owners[mine];
    if (copy.ready_words) {
        uint64_t word = copy.ready_offset + (uint64_t)(mine / 64) * DLPI_LINE;
        tx->ready = (uint64_t *)dlpi_at(mem, word);
        tx->ready_bit = UINT64_C(1) << (mine % 64);
    }
    dlpi_wait_policy(copy.producers + 1, &tx->lane.spin_ns, &tx->lane.yields);
    dlpi_bell_join(&bundle->consumer_bell, (int)copy.shared);
    return mine;
}

DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx) { DLPI_STORE_SEQ(tx->owner, 0u); /* O1 */ }

DLPDEF int dlp_mpsc_attach_rx(dlp_mpsc_rx *rx, dlp_spsc_rx *lanes, uint32_t n_lanes, void *mem,
                              uint64_t bytes) {
    dlp_mpsc copy;
    if (!rx || !lanes || !dlpi_queue_mem_ok(mem)) return DLP_ERR_ARG;
    if (dlpi_mpsc_check((dlp_mpsc *)mem, bytes, &copy) != DLP_OK) return DLP_ERR_CORRUPT;
    if (n_lanes < copy.producers) return DLP_ERR_ARG;
    for (uint32_t i = 0; i < copy.producers; i++) {
        void *lane = dlpi_at(mem, copy.lanes_offset + i * copy.lane_bytes);
        int r = dlp_spsc_attach_rx(&lanes[i], lane, copy.lane_bytes);
        if (r != DLP_OK || lanes[i].record_bytes != copy.record_bytes) return DLP_ERR_CORRUPT;
        lanes[i].slip_most = 0; /* other lanes may have records */
    }
    memset(rx, 0, sizeof *rx);
    rx->bundle = (dlp_mpsc *)mem;
    rx->lanes = rx->at = lanes;
    rx->quantum = DLPI_MPSC_QUANTUM;
    rx->producers = copy.producers;
    rx->ready_words = copy.ready_words;
    rx->shared = copy.shared;
    dlpi_wait_policy(copy.producers + 1, &rx->spin_ns, &rx->yields);
    dlpi_bell_join(&rx->bundle->consumer_bell, (int)copy.shared);
    return DLP_OK;
}

/* Give lane i its turn if it has records. Returns DLP_OK, DLP_EMPTY, DLP_ERR_CORRUPT. */
static int dlpi_mpsc_try_turn(dlp_mpsc_rx *rx, uint32_t i) {
    int64_t stock = dlpi_spsc_stock(&rx->lanes[i], 1);
    if (stock <= 0) return stock == 0 ? DLP_EMPTY : DLP_ERR_CORRUPT;
    rx->at = &rx->lanes[i];
    rx->turn = i;
    rx->left = rx->quantum > 0 ? rx->quantum : 1;
    return DLP_OK;
}

/* Look at all lanes, from the one behind that in turn on. */
static int dlpi_mpsc_sweep(dlp_mpsc_rx *rx) {
    uint32_t i = rx->turn;
    for (uint32_t k = 0; k < rx->producers; k++) {
        i = i + 1 < rx->producers ? i + 1 : 0;
        int r = dlpi_mpsc_try_turn(rx, i);
        if (r != DLP_EMPTY) return r;
    }
    return DLP_EMPTY;
}

static uint64_t *dlpi_mpsc_ready_word(dlp_mpsc_rx *rx, uint32_t word) {
    return (uint64_t *)dlpi_at(rx->bundle, sizeof(dlp_mpsc) + word * (uint64_t)DLPI_LINE);
}

/* Go through the lanes whose bits are set. */
static int dlpi_mpsc_follow(dlp_mpsc_rx *rx) {
    for (uint32_t k = 0; k <= rx->ready_words; k++) {
        while (rx->bits) {
            uint32_t i = rx->word * 64 + (uint32_t)__builtin_ctzll(rx->bits);
            rx->bits &= rx->bits - 1;
            int r = i < rx->producers ? dlpi_mpsc_try_turn(rx, i) : DLP_EMPTY;
            if (r != DLP_EMPTY) return r;
        }
        rx->word = rx->word + 1 < rx->ready_words ? rx->word + 1 : 0;
        uint64_t *ready = dlpi_mpsc_ready_word(rx, rx->word);
        if (DLPI_LOAD_RLX(ready) != 0)                    /* R3, not worth a write if clear */
            rx->bits = DLPI_XCHG_SEQ(ready, (uint64_t)0); /* R3 <- R2 */
    }
    return DLP_EMPTY;
}

DLPDEF int dlpi_mpsc_find(dlp_mpsc_rx *rx) {
    if (rx->ready_words == 0) return dlpi_mpsc_sweep(rx);
    if (rx->left == 0 && rx->at->tail_seen != rx->at->head) /* its turn is over, but it has more */
        DLPI_OR_SEQ(dlpi_mpsc_ready_word(rx, rx->turn / 64), UINT64_C(1) << rx->turn % 64); /* R2 */
    rx->left = 0;
    int r = DLP_EMPTY;
    if (++rx->finds % DLPI_MPSC_SWEEP != 0) r = dlpi_mpsc_follow(rx);
    return r == DLP_EMPTY ? dlpi_mpsc_sweep(rx) : r;
}

static int dlpi_mpsc_has_stock(void *handle) {
    return dlpi_mpsc_turn((dlp_mpsc_rx *)handle) != DLP_EMPTY;
}

DLPDEF int dlp_mpsc_wait_tx(dlp_mpsc_tx *tx, int timeout_ms) {
    return dlp_spsc_wait_tx(&tx->lane, timeout_ms);
}

DLPDEF int dlp_mpsc_wait_rx(dlp_mpsc_rx *rx, int timeout_ms) {
    dlpi_waiter w = {&rx->bundle->consumer_bell, rx->shared, rx->spin_ns, rx->yields,
                     dlpi_mpsc_has_stock,        rx};
    int r = dlpi_await(&w, timeout_ms);
    return r == DLP_OK ? dlpi_mpsc_turn(rx) : r;
}

DLPDEF int64_t dlp_mpsc_push_burst(dlp_mpsc_tx *tx, const void *records, uint64_t n,
                                   int timeout_ms) {
    const unsigned char *from = (const unsigned char *)records;
    uint64_t done = 0, begin = 0;
    for (;;) {
        int64_t k = dlp_mpsc_try_push_burst(tx, from + done * tx->lane.record_bytes, n - done);
        if (k < 0) return k;
        done += (uint64_t)k;
        if (done == n) return (int64_t)done;
        int r = dlp_mpsc_wait_tx(tx, dlpi_time_left(timeout_ms, &begin));
        if (r != DLP_OK) return r < 0 ? r : (int64_t)done;
    }
}

DLPDEF int64_t dlp_mpsc_pop_burst(dlp_mpsc_rx *rx, void *records, uint64_t max, int timeout_ms) {
    int64_t n = dlp_mpsc_try_pop_burst(rx, records, max);
    if (n != 0 || max == 0) return n;
    int r = dlp_mpsc_wait_rx(rx, timeout_ms);
    if (r != DLP_OK) return r < 0 ? r : 0;
    return dlp_mpsc_try_pop_burst(rx, records, max);
}
