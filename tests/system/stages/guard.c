/* needs: guard */
/* The guard: what it finds and says, that each bad item is counted once by all policies, in threads
   and in processes, and when a worker dies at any of the accesses of a count and behind it.
   guard [N]: that death alone. */
/* own: hook: a worker dies at an access of an atomic */
#include "../../rig/atomics_hook.h"

static void death_here(const void *at);

static inline void atomics_hook(int kind, const void *at) {
    (void)kind;
    death_here(at);
}

#define DLPIPE_NO_DEBUG
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include <math.h>
#include <signal.h>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifndef TSAN
#define TSAN 0 /* it has a thread of its own, and follows no fork */
#endif

#define ITEMS 60
#define GUARD_STAGE 3 /* behind the two of the list, and the fetch */

static const dlp_field fields_[3] = {
    {"x", DLP_F32, 1, {4}, 0, 0}, {"n", DLP_I16, 0, {0}, 0, 0}, {"h", DLP_F16, 1, {2}, 1, 0}};

/* Of ten items one each has a NaN, an infinity, a number below and one above. */
static int fetch_bad(void *user, dlp_item *it) {
    float *x = it->data[0];
    int16_t n = (int16_t)(it->index % 100);
    uint16_t half[2] = {0x3c00, 0x7e00}; /* 1, NaN: behind the length */
    (void)user;
    for (int i = 0; i < 4; i++) x[i] = (float)it->index;
    if (it->index % 10 == 3) x[2] = NAN;
    if (it->index % 10 == 5) half[0] = 0xfc00; /* minus infinity */
    if (it->index % 10 == 7) n = -3;
    if (it->index % 10 == 9) n = 101;
    memcpy(it->data[1], &n, sizeof n);
    memcpy(it->data[2], half, sizeof half);
    it->length[2] = 1;
    return 0;
}

static const dlp_guard_field checks_[3] = {
    {"x", 0, 0, 0, 0}, {"n", 0, 100, 0, 0}, {"h", 0, 0, 0, 0}};

/* ---- a death in a worker process ---- */

static struct deaths {
    int64_t seen, at; /* accesses since the first of a count; the one to die at, 0: none */
} * deaths_;
static dlp_pipe *pipe_;
static pid_t first_;

static void death_here(const void *at) {
    static int begun;
    const uint8_t *from, *to;
    if (deaths_ == NULL || deaths_->at == 0 || pipe_ == NULL || getpid() == first_) return;
    from = dlpi_area_at(pipe_, DLPI_OWN(GUARD_STAGE, DLPI_GUARD_WORDS), 0);
    to = from + dlpi_area_bytes(pipe_, DLPI_OWN(GUARD_STAGE, DLPI_GUARD_WORDS));
    if ((const uint8_t *)at >= from && (const uint8_t *)at < to) begun = 1;
    if (begun && __atomic_add_fetch(&deaths_->seen, 1, __ATOMIC_SEQ_CST) == deaths_->at)
        raise(SIGKILL);
}

typedef struct found {
    dlp_guard_stats of[3];
    uint64_t own[4], items, restarts;
} found;

/* What a monitor sees is what the pipe's statistics say. */
static void monitor_sees(const dlp_stats *s, int guard) {
    char who[16];
    dlp_monitor *m;
    dlp_error e;
    dlp_stats seen;
    snprintf(who, sizeof who, "%d", (int)getpid());
    CHECK(dlp_monitor_open(&m, who, &e) == DLP_OK);
    CHECK(dlp_monitor_stats(m, &seen) == DLP_OK);
    CHECK(memcmp(seen.stages[guard].own, s->stages[guard].own, sizeof seen.stages[guard].own) == 0);
    CHECK(seen.stages[guard].own[DLPI_GUARD_NAN] > 0);
    dlp_monitor_close(m);
}

/* All batches of a pipe with a guard; returns what next returned last. */
static int run(int policy, int workers, int placement, found *to) {
    const dlp_dataset ds = {.n_items = ITEMS, .fields = fields_, .n_fields = 3, .fetch = fetch_bad};
    const dlp_source fetch = {.dataset = &ds, .workers = {.num_workers = workers}};
    rig_table t = {.n = 0};
    dlp_stats s;
    dlp_batch *b;
    dlp_pipe *p;
    int rc, guard;
    memset(to, 0, sizeof *to);
    table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_SEQUENTIAL});
    table_fetch(&t, &fetch, 0);
    table_row(&t,
              (dlp_node){
                  .verb = DLP_GUARD,
                  .guard = {.fields = checks_, .n_fields = 3},
                  .workers = {.num_workers = workers, .placement = placement, .on_error = policy}});
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 8}});
    first_ = getpid();
    pipe_ = NULL;
    CHECK(table_pipe(&t, &p, NULL, NULL) == DLP_OK);
    guard = dlp_node_stage(p, "guard");
    CHECK(guard == GUARD_STAGE);
    pipe_ = p;
    if ((rc = dlp_pipe_start(p)) != DLP_OK) rig_say(p, rc);
    CHECK(rc == DLP_OK);
    while (rc == DLP_OK && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++) to->items += b->valid[r] != 0;
        dlp_pipe_release(p, b);
    }
    for (uint32_t f = 0; f < 3; f++) CHECK(dlp_pipe_guard_stats(p, guard, f, &to->of[f]) == DLP_OK);
    CHECK(dlp_pipe_guard_stats(p, guard, 3, &to->of[0]) == DLP_ERR_ARG);
    CHECK(dlp_pipe_guard_stats(p, 0, 0, &to->of[0]) == DLP_ERR_ARG);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    memcpy(to->own, s.stages[guard].own, sizeof to->own);
    to->restarts = s.stages[guard].restarts;
    if (workers == 3) monitor_sees(&s, guard);
    if (policy == DLP_ON_ERROR_RAISE) {
        const dlp_error *e = dlp_pipe_error(p);
        CHECK(e->index == 3 && strcmp(e->message, "field \"x\" element 2 is NaN") == 0);
    }
    pipe_ = NULL;
    dlp_pipe_close(p);
    return rc;
}

static int same(const found *a, const found *b) {
    return memcmp(a->of, b->of, sizeof a->of) == 0 && memcmp(a->own, b->own, sizeof a->own) == 0 &&
           a->items == b->items;
}

static void guard__each_policy__each_bad_item_is_counted_once(void) {
    static const int policies[2] = {DLP_ON_ERROR_DROP, DLP_ON_ERROR_REPLACE};
    found want, got;
    CHECK(run(DLP_ON_ERROR_RAISE, 0, 0, &got) == DLP_ERR_CALLBACK);
    CHECK(got.of[0].nan == 1);
    for (int k = 0; k < 2; k++) {
        CHECK(run(policies[k], 0, 0, &want) == DLP_END);
        CHECK(k == 1 || (want.of[0].nan == ITEMS / 10 && want.of[2].inf == ITEMS / 10 &&
                         want.of[1].below == ITEMS / 10 && want.of[1].above == ITEMS / 10 &&
                         want.items == ITEMS / 10 * 6 && want.own[0] == ITEMS / 10));
        CHECK(k == 0 || (want.items == ITEMS && want.of[0].nan >= ITEMS / 10));
        CHECK(run(policies[k], 3, DLP_PLACE_THREADS, &got) == DLP_END && same(&got, &want));
        if (TSAN) continue;
        CHECK(run(policies[k], 2, DLP_PLACE_PROCESSES, &got) == DLP_END && same(&got, &want));
    }
}

/* One worker dies at access k since its first of a count. */
static void guard__worker_dies_at_any_access__counts_are_exact(int64_t only) {
    const int64_t most = getenv("SHORT") ? 40 : 120;
    found want, got;
    uint64_t died = 0;
    for (int policy = DLP_ON_ERROR_REPLACE; policy <= DLP_ON_ERROR_DROP; policy++) {
        deaths_->at = 0;
        CHECK(run(policy, 0, 0, &want) == DLP_END);
        for (int64_t k = 1; k <= most; k++) {
            if (only != 0 && k != only) continue;
            deaths_->seen = 0;
            deaths_->at = k;
            CHECK(run(policy, 2, DLP_PLACE_PROCESSES, &got) == DLP_END);
            died += got.restarts;
            CHECK(same(&got, &want));
            if (!same(&got, &want)) printf("guard %d: policy %d\n", (int)k, policy);
        }
    }
    deaths_->at = 0;
    CHECK(died >= (only ? 1u : (uint64_t)most));
}

static void guard__bad_descs__named(void) {
    const dlp_guard_field f = {"x", 1, 0, 0, 0};
    const dlp_dataset ds = {.n_items = ITEMS, .fields = fields_, .n_fields = 3, .fetch = fetch_bad};
    for (int given = 0; given < 2; given++) {
        rig_table t = {.n = 0};
        dlp_pipe *p;
        dlp_error e;
        table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_SEQUENTIAL});
        table_fetch(&t, &(dlp_source){.dataset = &ds}, 0);
        table_row(&t, (dlp_node){.verb = DLP_GUARD});
        if (given) t.nodes[2].guard = (dlp_node_guard){.fields = &f, .n_fields = 1};
        CHECK(table_pipe(&t, &p, NULL, &e) == DLP_ERR_ARG);
        CHECK(strcmp(e.stage, "guard") == 0);
        CHECK(strcmp(e.field, given ? "fields[].low" : "n_fields") == 0);
    }
}

int main(int argc, char **argv) {
    deaths_ =
        mmap(NULL, sizeof *deaths_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 2) {
        guard__bad_descs__named();
        guard__each_policy__each_bad_item_is_counted_once();
    }
    if (!TSAN) guard__worker_dies_at_any_access__counts_are_exact(argc > 1 ? atoll(argv[1]) : 0);
    return test_end("guard");
}
