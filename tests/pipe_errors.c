/* Failing callbacks: every policy, with every number of workers and both dispatch rules, gives what can be told
   beforehand from (seed, epoch, position), tries and replacements among them. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include "pipe_rig.h"

static const int workers_of[] = {0, 1, 2, 7, 16};

#define N_ITEMS 203u
enum { STAGES = 3 }; /* fetch and two maps */

/* How often item i fails in a stage before it succeeds; ALWAYS: never does, LEAVES: asks to be left out. */
enum { ALWAYS = 100, LEAVES = 101 };
typedef struct fault {
    uint8_t fails[STAGES][N_ITEMS];
    uint32_t seen[STAGES][N_ITEMS]; /* calls */
    int sleep_us;
} fault;

typedef struct stage_fault {
    fault *plan;
    int stage;
} stage_fault;

static void nap_us(int us) {
    struct timespec t = {us / 1000000, (us % 1000000) * 1000l};
    nanosleep(&t, NULL);
}

static int maybe_fail(const stage_fault *f, const dlp_item *it) {
    uint8_t fails = f->plan->fails[f->stage][it->index];
    __atomic_add_fetch(&f->plan->seen[f->stage][it->index], 1, __ATOMIC_RELAXED);
    if (f->plan->sleep_us && it->index % 16 == 0) nap_us(f->plan->sleep_us);
    if (fails == LEAVES) return DLP_SKIP;
    if (fails == ALWAYS || it->attempt < fails)
        return dlp_item_fail(it, 5, "stage %d cannot have item %d", f->stage, (int)it->index);
    return 0;
}

static int fault_fetch(void *user, dlp_item *it) {
    int rc;
    rig_fetch(NULL, it);
    rc = maybe_fail(user, it);
    if (rc != 0) memset(it->data[0], 0xee, 8); /* what a failed callback leaves must not come out */
    return rc;
}

static int fault_map(void *user, dlp_item *it) {
    int rc;
    rig_item_map(NULL, it);
    rc = maybe_fail(user, it);
    if (rc != 0) memset(it->data[0], 0xdd, 8);
    return rc;
}

/* An idempotent map: gives the same however often it runs on a row, failed tries among them. */
static int fault_map_again(void *user, dlp_item *it) {
    uint64_t words[3];
    rig_words(it->seed, it->index, it->epoch, it->position, words);
    words[2] = words[2] * 3 + it->index;
    if (((const stage_fault *)user)->stage == 2) words[2] = words[2] * 3 + it->index;
    CHECK(memcmp(it->data[0], words, 16) == 0); /* the row is the item's that it says */
    memcpy(it->data[0], words, sizeof words);
    return maybe_fail(user, it);
}

static void plan_faults(fault *f, uint64_t *random, int n_stages, int most) {
    memset(f, 0, sizeof *f);
    for (int s = 0; s < n_stages; s++)
        for (uint32_t i = 0; i < N_ITEMS; i++) {
            uint32_t die = test_pick(random, 12);
            if (die == 0) f->fails[s][i] = (uint8_t)(1 + test_pick(random, (uint32_t)most));
            if (die == 1 && test_pick(random, 3) == 0) f->fails[s][i] = ALWAYS;
            if (die == 2 && test_pick(random, 3) == 0) f->fails[s][i] = LEAVES;
        }
}

/* Does the item get through all stages? Tries are counted per item over all stages. */
static int gets_through(const rig *r, const fault *f, uint64_t index) {
    for (int s = 0; s <= r->n_item_maps; s++) {
        const dlp_workers_desc *w = s == 0 ? &r->fetch : &r->item_map[s - 1].workers;
        if (f->fails[s][index] > w->retries) return 0;
    }
    return 1;
}

/* The index that stands at a position in the end: the k-th replacement is the one at a keyed position. */
static uint64_t final_index(rig *r, const fault *f, uint64_t epoch, uint64_t position, uint64_t *skips) {
    uint64_t index = rig_index(r, epoch, position);
    for (uint32_t k = 1; k <= DLPI_REPLACE_MAX && !gets_through(r, f, index); k++) {
        uint64_t key = dlpi_hash_in(DLPI_DOMAIN_REPLACEMENT, r->sampler.seed, epoch);
        uint64_t random = dlpi_absorb(dlpi_absorb(key, position), k);
        index = rig_index(r, epoch, dlpi_below(dlpi_range_of(rig_samples(r)), random));
        ++*skips;
    }
    return index;
}

static int row_is(rig *r, const dlp_batch *b, uint32_t row, uint64_t position, uint64_t index) {
    uint64_t words[3], got[3];
    uint32_t label;
    rig_words(r->sampler.seed, index, b->epoch, position, words);
    for (int i = 0; i < r->n_item_maps; i++) words[2] = words[2] * 3 + index;
    memcpy(got, (const uint8_t *)b->fields[0].data + row * sizeof got, sizeof got);
    memcpy(&label, (const uint8_t *)b->fields[1].data + row * sizeof label, sizeof label);
    return b->index[row] == index && b->valid[row] == 1 && memcmp(words, got, sizeof got) == 0 && label == index;
}

static int row_is_empty(const dlp_batch *b, uint32_t row) {
    static const uint8_t zero[24];
    return b->valid[row] == 0 && memcmp((const uint8_t *)b->fields[0].data + row * 24, zero, 24) == 0 &&
           memcmp((const uint8_t *)b->fields[1].data + row * 4, zero, 4) == 0;
}

static int check_replaced(rig *r, const fault *f, const dlp_batch *b, uint64_t *skips) {
    int ok = b->valid_count == b->count;
    for (uint32_t row = 0; row < b->count; row++)
        ok &= row_is(r, b, row, b->position + row, final_index(r, f, b->epoch, b->position + row, skips));
    return ok;
}

static int check_short(rig *r, const fault *f, const dlp_batch *b, uint64_t *skips) {
    int ok = 1;
    uint32_t valid = 0;
    for (uint32_t row = 0; row < b->count; row++) {
        uint64_t index = rig_index(r, b->epoch, b->position + row);
        int through = gets_through(r, f, index);
        ok &= through ? row_is(r, b, row, b->position + row, index) : b->index[row] == index && row_is_empty(b, row);
        valid += (uint32_t)through;
        *skips += !through;
    }
    return ok && b->valid_count == valid;
}

/* Run to the end under a policy; next must always come within 20 s, so that a lost row fails the test. */
static int run_policy(rig *r, fault *f) {
    dlp_pipe *p;
    dlp_batch *b;
    int ok = 1, rc, policy = r->fetch.on_error;
    uint64_t batches = 0, skips = 0, total = 0;
    if (rig_open(r, &p) != DLP_OK) return 0;
    while ((rc = dlp_pipe_next(p, &b, 20000)) == DLP_OK) {
        ok &= policy == DLP_ON_ERROR_REPLACE ? check_replaced(r, f, b, &skips) : check_short(r, f, b, &skips);
        if (!r->pipe.unordered) ok &= b->in_epoch == batches % rig_batches(r);
        batches++;
        ok &= dlp_pipe_release(p, b) == DLP_OK;
    }
    if (rc != DLP_END) rig_say(p, rc);
    ok &= rc == DLP_END && batches == rig_batches(r) * (uint64_t)r->repeat.epochs;
    ok &= dlp_pipe_skips(p, NULL, 0, &total) == 0 && total == skips;
    ok &= dlp_pipe_close(p) == DLP_OK;
    return ok;
}

static void wire_faults(rig *r, fault *f, stage_fault *sf, int n_maps, const dlp_workers_desc *w) {
    for (int s = 0; s < STAGES; s++) {
        sf[s].plan = f;
        sf[s].stage = s;
    }
    r->n_item_maps = n_maps;
    r->fetch = *w;
    r->dataset.fetch = fault_fetch;
    r->dataset.user = &sf[0];
    for (int s = 1; s < STAGES; s++) {
        r->item_map[s - 1].item = w->idempotent ? fault_map_again : fault_map;
        r->item_map[s - 1].user = &sf[s];
        r->item_map[s - 1].workers = *w;
    }
}

static void one_case(uint64_t *random, int workers, int dispatch, int policy, int backoff, int idempotent) {
    rig r;
    fault f;
    stage_fault sf[STAGES];
    dlp_workers_desc w;
    uint64_t before = *random;
    static const uint32_t sizes[] = {1, 8, 33, 64, 203};
    memset(&w, 0, sizeof w);
    w.num_workers = workers;
    w.dispatch = dispatch;
    w.on_error = policy;
    w.retries = (int32_t)test_pick(random, 4);
    w.retry_backoff_ms = backoff;
    w.idempotent = idempotent;
    rig_init(&r, N_ITEMS, sizes[test_pick(random, 5)]);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    r.repeat.epochs = 2;
    r.pipe.prefetch_factor = (int32_t)(1 + test_pick(random, 4));
    r.pipe.unordered = (int32_t)test_pick(random, 2);
    r.sampler.threaded = (int32_t)test_pick(random, 2);
    r.dataset.fills_rows = test_pick(random, 2);
    plan_faults(&f, random, STAGES, 4);
    f.sleep_us = test_pick(random, 4) == 0 ? 50 : 0;
    wire_faults(&r, &f, sf, (int)test_pick(random, 3), &w);
    if (workers > 0 && test_pick(random, 4) == 0) r.item_map[0].workers.num_workers = 0;
    if (test_pick(random, 4) == 0) r.item_map[0].workers.dispatch = !dispatch;
    {
        uint64_t began = dlpi_now_ns();
        int ok = run_policy(&r, &f);
        CHECK(ok);
        if (!ok || dlpi_now_ns() - began > UINT64_C(3000000000))
            printf("  %s: workers %d dispatch %d policy %d backoff %d idempotent %d maps %d retries %d batch %u "
                   "prefetch %d unordered %d random %#llx\n", ok ? "slow" : "bad", workers, dispatch, policy,
                   backoff, idempotent, r.n_item_maps, w.retries, r.batch.batch_size, r.pipe.prefetch_factor,
                   r.pipe.unordered, (unsigned long long)before);
    }
}

static void errors__random_failures__bytes_foretold(uint64_t seed) {
    uint64_t random = seed;
    int rounds = test_share(4, 100);
    for (int round = 0; round < rounds; round++)
        for (int w = 0; w < 5; w++)
            for (int dispatch = 0; dispatch < 2; dispatch++)
                for (int policy = DLP_ON_ERROR_REPLACE; policy <= DLP_ON_ERROR_SHORT; policy++)
                    for (int kind = 0; kind < 4; kind++)
                        one_case(&random, workers_of[w], dispatch, policy, kind & 1, kind >> 1);
}

int main(int argc, char **argv) {
    errors__random_failures__bytes_foretold(argc > 1 ? strtoull(argv[1], NULL, 0) : 1);
    return test_end("pipe_errors");
}
