/* Claim and gather alone: what it costs to hand out the units of batches to workers, and to put
   them together again in their order. One writer, which is the reader, too; 1 to 4 workers, as
   threads and as processes; batches of 64 units of a row each, which nobody works on, in 4 slots.

     claim          units are claimed; a slot is free when all of its units are
     gather         worker w of n completes units w, w + n, ... of each batch: no claims
     claim_gather   both, as in a pipe

   Beside it the same by a counter (a ticket for each unit, a count-down for each batch: a unit is
   lost with the worker that died over it), and by a process-shared mutex around that. Of ours there
   is a second line, NAME_trips: in round trips of a line between two cores, probed before and after
   each round. One JSON object per line on standard output, and added to build/bench/queue.jsonl.
   Arguments: [-r rounds] [-t sample_ms] [scenario prefix ...]. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_rig.h"

enum { SLOTS = 4, ROWS = 64, WORDS = ROWS / 32, MOST = 4 };
enum part { CLAIM = 1, GATHER = 2, BOTH = 3 };
enum by { OURS, COUNTER, MUTEX, WAYS };

struct slot {
    _Alignas(DLPI_LINE) dlpi_claim_word head;
    dlpi_gather_word ready; /* as a pipe's slot has them */
    dlpi_claim_word cursor;
    dlpi_gather_word done[WORDS];
    dlpi_claim_word owner[ROWS];
    uint64_t scan;
    _Alignas(DLPI_LINE) uint64_t left; /* COUNTER, MUTEX: rows that are done */
};

struct line {
    _Alignas(DLPI_LINE) uint64_t n;
};

struct link { /* in memory that processes share */
    struct slot slot[SLOTS];
    struct line tail;       /* T1 batches published */
    struct line past[MOST]; /* V1 batches that a worker found claimed */
    struct line took[MOST]; /* units, when it is over */
    struct line ticket;     /* COUNTER, MUTEX: units handed out */
    pthread_mutex_t lock;
    uint32_t come, go;
    double ns; /* a unit */
};

struct shape {
    enum part part;
    uint32_t workers;
    bool processes, crowded; /* crowded: more of them than cores */
};

struct sample {
    struct shape shape;
    enum by by;
    uint64_t n; /* batches of the next sample */
};

static struct link *shared;
static double sample_ms = 20;

/* On a failed try: a pause; where there are more threads than cores, make way at times. */
static inline void lost(const struct shape *s, uint32_t *failed) {
    if (s->crowded && ++*failed % 64 == 0)
        sched_yield();
    else
        dlpi_pause();
}

/* ---- a worker ---- */

struct worker {
    struct link *l;
    const struct shape *shape;
    uint64_t n, b, tail, took; /* batches there will be; which it is at; seen */
    uint32_t me, row, failed;
};

/* Is batch w->b there? */
static inline bool published(struct worker *w) {
    if (w->b != w->tail) return true;
    w->tail = dlpi_credit_seen(&w->l->tail.n); /* T1 <- T1 */
    if (w->b != w->tail) return true;
    lost(w->shape, &w->failed);
    return false;
}

static inline bool claim_in(struct worker *w, struct slot *s) {
    uint32_t u = dlpi_claim_cursor(&s->cursor, w->b), from = u;
    if (dlpi_gen(dlpi_claim_head(&s->head)) != (w->b & DLPI_GEN_MASK)) return false;
    for (; u < ROWS; u++) {
        uint64_t owner = dlpi_claim_look(&s->owner[u]); /* O1 <- O1 */
        if (!dlpi_older(dlpi_gen(owner), w->b)) {
            from += u == from;
        } else if (dlpi_claim_take(&s->owner[u], owner, dlpi_gen_word(w->b, w->me + 1u))) {
            if (u == from) dlpi_claim_advance(&s->cursor, w->b, u + 1);
            w->row = u;
            return true;
        }
    }
    return false;
}

static inline bool claim_ours(struct worker *w) {
    while (w->b < w->n) {
        if (!published(w)) continue;
        if (claim_in(w, &w->l->slot[w->b % SLOTS])) return true;
        dlpi_credit_publish_quiet(&w->l->past[w->me].n, ++w->b); /* V1 -> V1 */
    }
    return false;
}

static inline bool claim_ticket(struct worker *w, bool locked) {
    uint64_t *ticket = &w->l->ticket.n, at;
    if (!locked) {
        at = DLPI_ADD_SEQ(ticket, UINT64_C(1)); /* a number of its own */
        w->b = at / ROWS;
        while (w->b < w->n && w->b >= w->tail) {
            w->tail = dlpi_credit_seen(&w->l->tail.n); /* T1 <- T1 */
            if (w->b >= w->tail) lost(w->shape, &w->failed);
        }
    } else {
        for (;;) {
            pthread_mutex_lock(&w->l->lock);
            at = DLPI_LOAD_RLX(ticket); /* behind the lock, but for the writer's look */
            if (at < w->l->tail.n * ROWS || at == w->n * ROWS) break;
            pthread_mutex_unlock(&w->l->lock);
            lost(w->shape, &w->failed);
        }
        if (at < w->n * ROWS) DLPI_STORE_RLX(ticket, at + 1);
        pthread_mutex_unlock(&w->l->lock);
        w->b = at / ROWS;
    }
    w->row = (uint32_t)(at % ROWS);
    return w->b < w->n;
}

/* The next of the worker's own rows, where nobody claims. */
static inline bool claim_none(struct worker *w) {
    if (w->row >= ROWS) {
        w->row = w->me;
        w->b++;
    }
    while (w->b < w->n && !published(w)) continue;
    return w->b < w->n;
}

static inline void done_ours(struct worker *w) {
    struct slot *s = &w->l->slot[w->b % SLOTS];
    uint32_t i = w->row / DLPI_WORD_ROWS;
    uint32_t bits = dlpi_gather_publish(&s->done[i], w->b, dlpi_unit_mask(w->row, w->row + 1));
    uint64_t seen;
    if (bits != dlpi_word_full(ROWS, i)) return;
    seen = dlpi_gather_look(&s->ready); /* Y1 <- Y1 */
    if (!dlpi_ready_past(seen, w->b) && dlpi_gather_full(s->done, &s->scan, w->b, ROWS, seen))
        dlpi_gather_close(&s->ready, seen, w->b);
}

static inline void done_counted(struct worker *w, bool locked) {
    struct slot *s = &w->l->slot[w->b % SLOTS];
    bool last;
    if (locked) {
        pthread_mutex_lock(&w->l->lock);
        last = ++s->left == ROWS;
        if (last) s->left = 0;
        if (last) dlpi_gather_put(&s->ready, w->b); /* Y1 -> Y1 */
        pthread_mutex_unlock(&w->l->lock);
        return;
    }
    last = DLPI_ADD_SEQ(&s->left, UINT64_C(1)) == ROWS - 1; /* by the last all others are seen */
    if (last) DLPI_STORE_RLX(&s->left, UINT64_C(0));        /* before Y1 */
    if (last) dlpi_gather_put(&s->ready, w->b);             /* Y1 -> Y1 */
}

/* part and by are constants where it is called. */
DLPI_INLINE void work(struct worker *w, enum part part, enum by by) {
    uint32_t step = w->shape->workers;
    w->row = w->me;
    while (part == GATHER ? claim_none(w)
           : by == OURS   ? claim_ours(w)
                          : claim_ticket(w, by == MUTEX)) {
        w->took++;
        if (part != CLAIM && by == OURS) done_ours(w);
        if (part != CLAIM && by != OURS) done_counted(w, by == MUTEX);
        if (part == GATHER) w->row += step;
    }
}

DLPI_INLINE void work_by(struct worker *w, enum part part, enum by by) {
    if (by == OURS) work(w, part, OURS);
    if (by == COUNTER) work(w, part, COUNTER);
    if (by == MUTEX) work(w, part, MUTEX);
}

static void work_as(struct worker *w, enum part part, enum by by) {
    if (part == CLAIM) work_by(w, CLAIM, by);
    if (part == GATHER) work_by(w, GATHER, by);
    if (part == BOTH) work_by(w, BOTH, by);
    w->l->took[w->me].n = w->took;
}

/* ---- the writer, which is the reader ---- */

/* How many batches are over, of those before tail. */
static uint64_t over(const struct sample *s, struct link *l, uint64_t taken, uint64_t tail) {
    uint64_t most = taken;
    if (s->shape.part != CLAIM) {
        while (taken < tail &&
               dlpi_ready_is(dlpi_gather_ready(&l->slot[taken % SLOTS].ready), taken)) /* Y1 */
            taken++;
        return taken;
    }
    if (s->by != OURS) {
        most = DLPI_LOAD_RLX(&l->ticket.n) / ROWS; /* nothing goes with it */
        return most < tail ? most : tail;
    }
    for (uint32_t i = 0; i < s->shape.workers; i++) {
        uint64_t past = dlpi_credit_seen(&l->past[i].n); /* V1 <- V1 */
        if (past > most) most = past;
    }
    return most;
}

static void publish(const struct sample *s, struct link *l, uint64_t b) {
    dlpi_claim_publish(&l->slot[b % SLOTS].head, dlpi_header(b, ROWS, 0, 0)); /* P1 -> P1 */
    if (s->by == MUTEX) pthread_mutex_lock(&l->lock);
    dlpi_credit_publish(&l->tail.n, b + 1); /* T1 -> T1 */
    if (s->by == MUTEX) pthread_mutex_unlock(&l->lock);
}

static void serve(const struct sample *s, struct link *l) {
    uint64_t tail = 0, taken = 0, warm = s->n / 8, begin = 0;
    uint32_t failed = 0;
    while (taken < s->n) {
        uint64_t before = taken;
        taken = over(s, l, taken, tail);
        if (begin == 0 && taken >= warm) {
            begin = dlpi_now_ns();
            warm = taken;
        }
        for (; tail < s->n && tail - taken < SLOTS; tail++) publish(s, l, tail);
        if (taken == before) lost(&s->shape, &failed);
    }
    l->ns = (double)(dlpi_now_ns() - begin) / (double)((s->n - warm) * ROWS);
}

/* ---- a sample ---- */

struct member {
    const struct sample *s;
    uint32_t i; /* 0: the writer */
};

/* Each on a core of its own, as far as there are cores. */
static void *take_part(void *arg) {
    const struct member *m = arg;
    struct worker w = {shared, &m->s->shape, m->s->n, 0, 0, 0, m->i - 1, 0, 0};
    size_t cpu[2];
    if (m->s->shape.workers == 1 && bench_two_cpus(cpu) == 2) bench_pin(cpu[m->i]);
    DLPI_ADD_SEQ(&shared->come, 1u); /* all have come: no partner orders anything */
    while (DLPI_LOAD_SEQ(&shared->come) <= m->s->shape.workers) sched_yield();
    if (m->i == 0)
        serve(m->s, shared);
    else
        work_as(&w, m->s->shape.part, m->s->by);
    return NULL;
}

static bool run_members(const struct sample *s) {
    struct member m[MOST + 1];
    pthread_t thread[MOST + 1];
    uint32_t n = 0;
    bool good = true;
    for (; n <= s->shape.workers; n++) {
        m[n] = (struct member){s, n};
        if (s->shape.processes) {
            pid_t pid = fork();
            if (pid == 0) {
                take_part(&m[n]);
                _exit(0);
            }
            good = good && pid > 0;
        } else {
            good = good && pthread_create(&thread[n], NULL, take_part, &m[n]) == 0;
        }
        if (!good) exit(1); /* the others wait for it: an error of the machine */
    }
    for (uint32_t i = 0; i < n; i++) {
        int status = 0;
        if (!s->shape.processes)
            pthread_join(thread[i], NULL);
        else
            good = wait(&status) > 0 && status == 0 && good;
    }
    return good;
}

static void link_init(struct link *l) {
    pthread_mutexattr_t attr;
    memset(l, 0, sizeof *l);
    for (uint32_t i = 0; i < SLOTS; i++) { /* of a generation before the first */
        l->slot[i].head = dlpi_header(DLPI_GEN_MASK, 0, 0, 0);
        l->slot[i].cursor = dlpi_gen_word(DLPI_GEN_MASK, 0);
        for (uint32_t u = 0; u < ROWS; u++) l->slot[i].owner[u] = dlpi_gen_word(DLPI_GEN_MASK, 0);
        for (uint32_t k = 0; k < WORDS; k++) l->slot[i].done[k] = UINT64_MAX << 32;
    }
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&l->lock, &attr);
}

/* ns a unit. */
static double take_sample(void *arg) {
    struct sample *s = arg;
    uint64_t took = 0;
    double most;
    link_init(shared);
    if (!run_members(s)) return NAN;
    for (uint32_t i = 0; i < s->shape.workers; i++) took += shared->took[i].n;
    if (took != s->n * ROWS) {
        say("%" PRIu64 " units were taken, not %" PRIu64 "\n", took, s->n * ROWS);
        exit(1);
    }
    most = sample_ms * 1e6 / (shared->ns * ROWS);
    s->n = most < 500 ? 500 : most > 1e6 ? 1000000 : (uint64_t)most;
    return shared->ns;
}

static void measure(const char *name, struct shape shape, int rounds) {
    static const char *const names[WAYS] = {"dlpipe", "counter", "mutex"};
    static struct series s;
    struct sample by[WAYS];
    struct measure m = {.bench = name, .unit = "ns", .lower_is_better = true};
    char trips[64];
    s.n_who = 0;
    for (int k = 0; k < WAYS; k++) {
        by[k] = (struct sample){shape, (enum by)k, 500};
        take_sample(&by[k]); /* finds how long it is to be */
        compete(&s, names[k], "", take_sample, &by[k]);
    }
    run_rounds(&s, name, rounds);
    put(&m, &s, OURS, COUNTER);
    put(&m, &s, OURS, MUTEX);
    snprintf(trips, sizeof trips, "%s_trips", name);
    m.bench = trips;
    m.unit = "line round trips";
    for (int r = 0; r < s.n_rounds; r++) s.value[OURS][r] /= s.after_ns[r];
    put(&m, &s, OURS, -1);
}

static bool wanted(const char *name, char **prefix, int n) {
    for (int i = 0; i < n; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0) return true;
    return n == 0;
}

int main(int argc, char **argv) {
    static const char *const parts[] = {"", "claim", "gather", "claim_gather"};
    int rounds = 7, n = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-r") == 0 && i + 1 < argc)
            rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "-t") == 0 && i + 1 < argc)
            sample_ms = atof(argv[++i]);
        else
            argv[n++] = argv[i];
    }
    quick = rounds < 7 || n > 0;
    if (cpus_allowed() < 2) {
        say("bench_claim: needs two cores\n");
        return 1;
    }
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !lines_to("build/bench/queue.jsonl", "a")) return 1;
    for (int processes = 0; processes < 2; processes++)
        for (int part = CLAIM; part <= BOTH; part++)
            for (uint32_t workers = 1; workers <= MOST; workers++) {
                struct shape shape = {(enum part)part, workers, processes != 0,
                                      (int)workers + 1 > cpus_allowed()};
                char name[64];
                snprintf(name, sizeof name, "%s_%" PRIu32 "w%s", parts[part], workers,
                         processes ? "_proc" : "");
                if (wanted(name, argv, n)) measure(name, shape, rounds);
            }
    return fclose(lines_file) != 0;
}
