/* needs: parts */
/* Random pushes: producers as threads, children, other programs by the path, and programs in pid
   and mount namespaces of their own. Their lives are cut by SIGKILL and by close, and successors go
   on.
   Rivals want numbers that living producers have. A third program cuts and writes what it finds at
   the path. Some streams are given up for good. Each item that was pushed comes once, in its
   producer's order; and nothing hangs. Behind half of the pushes stand filters and expanders, of
   which some run in processes that are killed: what they make is what a loop makes of the items.

     push_random [CONFIGURATIONS [SEED]]; push_random = SEED runs one and says what it is */
#define _GNU_SOURCE
#include "../../../dlpipe_shm.h"
#include "../../rig/push_rig.h"
#include <sys/mman.h>

enum { PRODUCERS = 4, LIVES = 4, LOST_MS = 400 };
enum { THREAD, CHILD, BY_PATH, APART, WAYS };
enum { FILTERS = 1, EXPANDS = 2, MADE = 4 }; /* fewer than MADE items of one */
enum { KILL_AT_ONCE, KILL_IN_AN_ITEM, CLOSE, ENDS };
static const char *const ways[] = {"thread", "child", "path", "apart"};
static const char *const fates[] = {"killed", "killed in an item", "closed"};

typedef struct life {
    int way, fate; /* of the last one: it says the end */
    uint64_t until;
} life;

typedef struct config {
    uint32_t producers, batch, rivals;
    uint64_t capacity;
    int workers, has_path, full, spoils, numbered;
    uint32_t given_up; /* the producer that has no last life; 0: none */
    int makers;        /* of FILTERS, EXPANDS; 0: none */
    int processes, deaths;
    int lives[PRODUCERS];
    life life[PRODUCERS][LIVES];
} config;

typedef struct run {
    const config *c;
    const dlp_push *push;
    const char *path;
    uint32_t number;
    int bad;
} run;

static uint64_t draw_, draws_;
static uint64_t draw(uint64_t n) { return dlp_hash(draw_, draws_++, 7, 7) % n; }

static void draw_config(config *c, uint64_t seed) {
    draw_ = seed;
    draws_ = 0;
    memset(c, 0, sizeof *c);
    c->producers = 1 + (uint32_t)draw(PRODUCERS);
    c->batch = 1 + (uint32_t)draw(20);
    c->capacity = UINT64_C(1) << draw(7);
    c->workers = (int)draw(2);
    c->has_path = draw(3) > 0;
    c->full = draw(3) == 0 ? DLP_PUSH_REFUSE : DLP_PUSH_WAIT;
    c->rivals = (uint32_t)draw(3);
    c->spoils = c->has_path && draw(2);
    c->makers = (int)draw(2) * (1 + (int)draw(3));
    if (c->makers) c->workers = (int)draw(4);
    c->processes = c->makers && draw(3) == 0;
    c->deaths = c->processes ? (int)draw(4) : 0;
    if (draw(5) == 0) c->given_up = 1 + (uint32_t)draw(c->producers);
    for (uint32_t i = 0; i < c->producers; i++) {
        uint64_t at = 0;
        c->lives[i] = 1 + (int)draw(LIVES);
        if (c->given_up == i + 1 && c->lives[i] < 2) c->lives[i] = 2; /* or it never comes */
        for (int k = 0; k < c->lives[i]; k++) {
            life *l = &c->life[i][k];
            l->way = (int)draw(!c->has_path ? BY_PATH : may_be_apart() ? WAYS : APART);
            l->fate = l->way == THREAD ? CLOSE : (int)draw(ENDS);
            l->until = at += draw(150);
        }
    }
}

static void describe(const config *c) {
    printf("  %u producers, batch %u, capacity %" PRIu64 ", %d workers%s%s%s, %u rivals",
           c->producers, c->batch, c->capacity, c->workers, c->has_path ? ", a path" : "",
           c->spoils ? " that is cut" : "", c->full ? ", refuse" : "", c->rivals);
    if (c->given_up) printf(", %u is given up", c->given_up);
    if (c->makers & FILTERS) printf(", filtered");
    if (c->makers & EXPANDS) printf(", expanded");
    if (c->processes) printf(" by processes, of which %d die", c->deaths);
    printf("\n");
    for (uint32_t i = 0; i < c->producers; i++) {
        printf("  %u:", i + 1);
        for (int k = 0; k < c->lives[i]; k++)
            printf(" %s to %" PRIu64 " %s;", ways[c->life[i][k].way], c->life[i][k].until,
                   k + 1 < c->lives[i] ? fates[c->life[i][k].fate] : "the end");
        printf("\n");
    }
}

/* ---- makers ---- */

static int *deaths_; /* of all processes: so many are still to be */
static const dlp_field made_ = {.name = "made", .dtype = DLP_U64};

static uint64_t number_of(const dlp_item *it) { return *(const uint64_t *)it->data[0]; }

/* Does a worker die with this item? One that does dies with one item in 8. */
static void may_die(uint64_t number) {
    if (dlp_hash(number, 1, 2, 3) % 8 != 0 || __atomic_load_n(deaths_, __ATOMIC_SEQ_CST) <= 0)
        return;
    if (__atomic_fetch_sub(deaths_, 1, __ATOMIC_SEQ_CST) > 0) raise(SIGKILL);
}

static int is_kept(const config *c, uint64_t number) {
    return !(c->makers & FILTERS) || dlp_hash(number, 0, 0, 1) % 3 != 0;
}
static uint64_t n_made(const config *c, uint64_t number) {
    return c->makers & EXPANDS ? dlp_hash(number, 0, 0, 2) % MADE : 1;
}

static int keep(void *user, const dlp_item *it) {
    may_die(number_of(it));
    for (uint64_t k = 0; k < PIXELS; k++)
        if (((const uint8_t *)it->data[1])[k] != (uint8_t)dlp_hash(number_of(it), k, 0, 0))
            return DLP_ERR_CALLBACK;
    return is_kept(user, number_of(it));
}

static int make(void *user, dlp_expand *x) {
    const uint64_t number = number_of(x->item), n = n_made(user, number);
    may_die(number);
    for (uint64_t i = 0; i < n; i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        *(uint64_t *)it->data[0] = number * MADE + i;
    }
    return 0;
}

static rig begin_makers(dlp_push_desc push, config *c) {
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, .max_kills = 9};
    const dlp_pipe_desc desc = {.shm = &shm};
    const dlp_workers_desc w = {.num_workers = c->workers,
                                .placement = c->processes ? DLP_PLACE_PROCESSES : 0};
    dlp_node nodes[4];
    uint32_t n = 0;
    rig r = {NULL, NULL};
    dlp_error err = {0};
    push.fields = FIELDS;
    push.n_fields = 2;
    CHECK(dlp_push_open(&r.push, &push, &err) == DLP_OK);
    nodes[n++] = (dlp_node){.name = "push", .verb = DLP_PUSH, .push = {.source = r.push}};
    if (c->makers & FILTERS)
        nodes[n++] = (dlp_node){.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep}};
    if (c->makers & FILTERS) nodes[n - 1].filter.user = c;
    if (c->makers & EXPANDS)
        nodes[n++] = (dlp_node){
            .name = "make",
            .verb = DLP_EXPAND,
            .expand = {
                .expand = make, .user = c, .max_out = MADE, .fields = &made_, .n_fields = 1}};
    nodes[1].workers = w;
    nodes[n++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = c->batch}};
    *deaths_ = c->deaths;
    if (dlp_pipe_open(&r.pipe, nodes, n, &desc, &err) != DLP_OK)
        printf("%s %s: %s\n", err.stage, err.field, err.message);
    CHECK(r.pipe != NULL);
    return r;
}

/* What is to come next of producer who, from (n, made) on: next has both in one number. */
static void settle(const config *c, uint64_t who, uint64_t *next) {
    for (uint64_t n; (n = *next / MADE) < 4096; *next = (n + 1) * MADE)
        if (is_kept(c, who << 32 | n) && *next % MADE < n_made(c, who << 32 | n)) return;
}

/* As take_all, of what the makers make. Afterwards next: items. */
static int take_made(const config *c, dlp_pipe *p, uint64_t *next) {
    const uint64_t each = c->makers & EXPANDS ? MADE : 1;
    dlp_batch *b = NULL;
    int rc, shorter = 0;
    for (uint64_t who = 1; who <= 16; who++) settle(c, who, &next[who]);
    while ((rc = dlp_pipe_next_timeout(p, &b, SOON_MS)) == DLP_OK) {
        const uint64_t *value = b->fields[0].data;
        CHECK(!shorter && b->count >= 1 && b->count <= c->batch);
        shorter = b->count < c->batch;
        for (uint32_t i = 0; i < b->count; i++) {
            const uint64_t number = value[i] / each, who = number >> 32;
            const uint64_t at = (number & 0xffffffff) * MADE + value[i] % each;
            CHECK(who >= 1 && who <= 16 && at == next[who > 16 ? 0 : who]);
            next[who > 16 ? 0 : who] = at + 1;
            if (who <= 16) settle(c, who, &next[who]);
        }
        dlp_pipe_release(p, b);
    }
    if (rc < 0) printf("%s\n", dlp_pipe_error(p)->message);
    for (uint64_t who = 1; who <= 16; who++) next[who] /= MADE;
    return rc;
}

/* ---- producers ---- */

/* A rival may have the place for a moment. */
static dlp_pusher *open_number(const run *r, int way) {
    dlp_pusher_desc d = {.number = r->number};
    dlp_pusher *u = NULL;
    dlp_error err;
    int rc = DLP_ERR_BUSY;
    if (way >= BY_PATH)
        d.path = r->path, d.fields = FIELDS, d.n_fields = 2;
    else
        d.push = r->push;
    for (int i = 0; i < 10000 && rc == DLP_ERR_BUSY; i++) {
        if ((rc = dlp_pusher_open(&u, &d, &err)) == DLP_ERR_BUSY) usleep(1000);
    }
    if (rc != DLP_OK) printf("producer %u (%s): %s\n", r->number, ways[way], err.message);
    return u;
}

/* Of two that live one has the number: a second one here and now is refused. */
static int push_on(const run *r, dlp_pusher *u, uint64_t from, uint64_t to) {
    dlp_pusher_desc d = {.push = r->push, .number = r->number};
    dlp_pusher *second = NULL;
    if (dlp_pusher_open(&second, &d, NULL) != DLP_ERR_BUSY) return 4;
    while (from < to) {
        int rc = push_one(u, from, SOON_MS);
        if (rc == DLP_FULL) usleep(200);
        if (rc == DLP_OK) from++;
        if (rc == DLP_OK || rc == DLP_FULL) continue;
        printf("producer %u: item %" PRIu64 ": %s\n", r->number, from, dlp_code_name(rc));
        return 5;
    }
    return 0;
}

/* Returns 0 if it did what it is to do; killed ones do not return. */
static int live(const run *r, const life *l, uint64_t from, int is_last) {
    dlp_pusher *u = open_number(r, l->way);
    void *data[2];
    int rc;
    if (u == NULL) return 3;
    if ((rc = push_on(r, u, from, l->until)) != 0) return rc;
    if (is_last && dlp_pusher_end(u, SOON_MS) != DLP_OK) return 6;
    if (!is_last && l->fate != CLOSE) {
        if (l->fate == KILL_IN_AN_ITEM && dlp_pusher_begin(u, data, DLP_NOWAIT) == DLP_OK)
            *(uint64_t *)data[0] = UINT64_MAX; /* nobody is to see it */
        raise(SIGKILL);
    }
    dlp_pusher_close(u);
    return 0;
}

static int live_apart(const run *r, const life *l, uint64_t from, int is_last) {
    const int dies = !is_last && l->fate != CLOSE;
    pid_t pid = l->way == APART ? fork_apart() : fork();
    int status;
    if (pid == 0) {
        int rc = live(r, l, from, is_last);
        fflush(stdout);
        _exit(rc);
    }
    status = status_of(pid);
    if (status != (dies ? WAS_KILLED : 0)) printf("producer %u ended %d\n", r->number, status);
    return status == (dies ? WAS_KILLED : 0) ? 0 : 7;
}

static void *lives(void *arg) {
    run *r = arg;
    const config *c = r->c;
    const int n = c->lives[r->number - 1];
    uint64_t from = 0;
    for (int k = 0; k < n && r->bad == 0; k++) {
        const life *l = &c->life[r->number - 1][k];
        const int is_last = k + 1 == n;
        if (is_last && c->given_up == r->number) break;
        r->bad = (l->way == THREAD ? live : live_apart)(r, l, from, is_last);
        from = l->until;
    }
    return NULL;
}

/* ---- others ---- */

static int over_; /* 1: rivals end */

/* Wants each number again and again. If it gets one, its producer was dead or closed. */
static void *rival(void *arg) {
    run *r = arg;
    for (uint32_t i = 0; !__atomic_load_n(&over_, __ATOMIC_SEQ_CST); i++) {
        dlp_pusher_desc d = {.push = r->push, .number = 1 + i % r->c->producers};
        dlp_pusher *u = NULL;
        int rc = dlp_pusher_open(&u, &d, NULL);
        if (rc == DLP_OK) dlp_pusher_close(u);
        if (rc != DLP_OK && rc != DLP_ERR_BUSY && rc != DLP_ERR_STATE && rc != DLP_STOPPED)
            r->bad = 1;
        usleep(2000);
    }
    return NULL;
}

static uint64_t pushed_by(const config *c, uint32_t i) {
    int n = c->lives[i] - (c->given_up == i + 1);
    return n > 0 ? c->life[i][n - 1].until : 0;
}

static int run_one(uint64_t seed, config *c) {
    const int before = test_failures, files = rig_fds();
    const char *path;
    uint64_t next[17] = {0};
    run runs[PRODUCERS + 2];
    pthread_t t[PRODUCERS + 2];
    pid_t third = 0;
    dlp_push_desc d;
    rig r;
    int rc;
    draw_config(c, seed);
    path = c->has_path ? in_rig("push") : NULL;
    d = (dlp_push_desc){.path = path,
                        .capacity = c->capacity,
                        .writers = c->producers,
                        .full = c->full,
                        .lost_ms = c->given_up ? LOST_MS : 10000};
    r = c->makers ? begin_makers(d, c) : begin(d, c->workers, c->batch);
    __atomic_store_n(&over_, 0, __ATOMIC_SEQ_CST);
    if (c->spoils) third = spoiler(path);
    for (uint32_t i = 0; i < c->producers + c->rivals; i++) {
        runs[i] = (run){c, r.push, path, i + 1, 0};
        CHECK(pthread_create(&t[i], NULL, i < c->producers ? lives : rival, &runs[i]) == 0);
    }
    rc = c->makers ? take_made(c, r.pipe, next) : take_all(r.pipe, next, c->batch);
    CHECK(rc == (c->given_up ? DLP_ERR_CALLBACK : DLP_END));
    for (uint32_t i = 0; i < c->producers + c->rivals; i++) {
        if (i == c->producers) __atomic_store_n(&over_, 1, __ATOMIC_SEQ_CST);
        CHECK(pthread_join(t[i], NULL) == 0 && (runs[i].bad == 0 || c->given_up));
    }
    for (uint32_t i = 0; i < c->producers; i++) {
        uint64_t all = pushed_by(c, i);
        if (c->makers) { /* the first item after those that makes something */
            all *= MADE;
            settle(c, i + 1, &all);
            all /= MADE;
        }
        /* the pipe that has failed may leave others in the middle, on a busy machine */
        CHECK(c->given_up ? next[i + 1] <= all : next[i + 1] == all);
    }
    if (third) CHECK(kill(third, SIGKILL) == 0 && status_of(third) == WAS_KILLED);
    end(&r);
    CHECK(rig_fds() == files);
    return test_failures != before;
}

static uint64_t now_seed_;
static void hung(int signal_number) {
    (void)signal_number;
    printf("failed: build/tests/push_random = %" PRIu64 " hangs\n", now_seed_);
    fflush(stdout);
    _exit(1);
}

int main(int argc, char **argv) {
    static config c;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, most = UINT64_MAX, ran = 0;
    double seconds = argc > 1 ? 1e6 : getenv("SOAK") ? 600 : getenv("SHORT") ? 1 : 4;
    uint64_t began = test_now_ns();
    int failed = 0;
    deaths_ =
        mmap(NULL, sizeof *deaths_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(deaths_ != MAP_FAILED);
    signal(SIGALRM, hung);
    rig_begin("push_random");
    if (argc < 2 && getenv("SOAK")) seed = (uint64_t)time(NULL);
    if (argc > 1) most = argv[1][0] == '=' ? 1 : strtoull(argv[1], NULL, 0);
    for (; ran < most && failed < 10 && (double)(test_now_ns() - began) < seconds * 1e9; ran++) {
        now_seed_ = seed + ran;
        alarm(60);
        if (run_one(now_seed_, &c)) {
            failed++;
            printf("failed: build/tests/push_random = %" PRIu64 "\n", now_seed_);
            describe(&c);
        }
        fflush(stdout);
    }
    alarm(0);
    if (argc > 1 && argv[1][0] == '=') describe(&c);
    printf("  %" PRIu64 " configurations, %d failed\n", ran, failed);
    rig_end();
    return test_end("push_random");
}
