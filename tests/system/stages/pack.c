/* needs: parts pack pictures */
/* Packing: every byte of rows against a list written down by a direct program of the rule, with
   workers killed inside fetch, resumed behind every batch with other workers and ranks; what is
   planned, told and refused. pack [seed] */
/* own: hook: allocations are counted */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

static long ever_had; /* bytes of all blocks and mappings ever had */
static void *count_malloc(size_t n) {
    __atomic_add_fetch(&ever_had, (long)n, __ATOMIC_SEQ_CST);
    return malloc(n);
}
static void *count_calloc(size_t n, size_t size) {
    __atomic_add_fetch(&ever_had, (long)(n * size), __ATOMIC_SEQ_CST);
    return calloc(n, size);
}
static int count_memalign(void **at, size_t align, size_t n) {
    __atomic_add_fetch(&ever_had, (long)n, __ATOMIC_SEQ_CST);
    return posix_memalign(at, align, n);
}
static void *count_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    __atomic_add_fetch(&ever_had, (long)n, __ATOMIC_SEQ_CST);
    return mmap(at, n, prot, flags, fd, offset);
}
#define malloc count_malloc
#define calloc count_calloc
#define posix_memalign count_memalign
#define mmap count_mmap
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"
#undef malloc
#undef calloc
#undef posix_memalign
#undef mmap

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/inputs_rig.h"

#define MOST 200   /* documents */
#define LONGEST 96 /* tokens of one */
#define ROWS 6000  /* of a stream, written down */
#define STREAMS 8
#define SEGMENTS 32

typedef struct seen_all { /* in memory that all processes see */
    uint32_t length[MOST];
    uint32_t calls, kill_every, fail, uneven, slow;
    int spoils; /* 1: fetch writes over all that it is given */
} seen_all;

static seen_all *seen;

static const dlp_field two_fields[2] = {{"tokens", DLP_U16, 1, {LONGEST}, 1, 0},
                                        {"mask", DLP_U8, 2, {LONGEST, 3}, 1, 0}};

static uint16_t token(uint64_t document, uint64_t number) {
    return (uint16_t)dlp_hash(document, number, 5, 0);
}

/* From life to life other bytes, and another length. */
static int fetch(void *user, dlp_item *it) {
    uint32_t call = __atomic_add_fetch(&seen->calls, 1, __ATOMIC_SEQ_CST);
    uint32_t n = seen->length[it->index];
    uint16_t *tokens = it->data[0];
    (void)user;
    if (seen->kill_every && call % seen->kill_every == 0) {
        memset(tokens, 255, LONGEST * 2);
        it->length[0] = call % (LONGEST + 1);
        raise(SIGKILL);
    }
    if (seen->fail == it->index + 1) return dlp_fail(it->call, 5, "torn");
    if (n == UINT32_MAX) return DLP_SKIP;
    for (uint32_t i = 0; i < n; i++) tokens[i] = token(it->index, i);
    it->length[0] = n;
    for (uint32_t i = 0; i < n * 3 && it->n_fields > 1; i++)
        ((uint8_t *)it->data[1])[i] = (uint8_t)(tokens[i / 3] + i);
    if (it->n_fields > 1) it->length[1] = n - (seen->uneven == it->index + 1);
    if (seen->spoils) item_spoil(it);
    return 0;
}

static int add_one(void *user, dlp_item *it) { /* a map in place, which is not idempotent */
    (void)user;
    ++*(uint16_t *)it->data[0];
    return 0;
}

static void init(rig2 *r, uint32_t documents, uint32_t t) {
    memset(r, 0, sizeof *r);
    memset(seen, 0, sizeof *seen);
    r->sampler.order = DLP_ORDER_SHUFFLED;
    r->sampler.seed = 7;
    r->packs = 1;
    r->pack.tokens = t;
    r->by.num_workers = 2;
    r->dataset.n_items = documents;
    r->dataset.fields = two_fields;
    r->dataset.n_fields = 2;
    r->dataset.fetch = fetch;
    r->fetch.num_workers = 1;
    r->batch.batch_size = 8;
    for (uint32_t i = 0; i < MOST; i++) { /* 0, 1, T, T + 1, 3 T, left out, and others */
        const uint32_t some[] = {0, 1, t, t + 1, 3 * t, UINT32_MAX, i % t, i % (2 * t)};
        seen->length[i] = some[dlp_hash(i, 1, 1, 1) % 8];
    }
}

/* ---- the order, written down ---- */

typedef struct piece2 {
    uint32_t document, first, tokens;
} piece2;

typedef struct row2 {
    uint32_t n, tokens;
    piece2 at[SEGMENTS];
} row2;

static row2 rows[STREAMS][ROWS];
static uint64_t n_rows[STREAMS];

static uint32_t most_segments(const rig2 *r) {
    uint32_t s = r->pack.max_segments ? r->pack.max_segments : 2048 / r->batch.batch_size;
    return s < r->pack.tokens ? s : r->pack.tokens;
}

static void row_put(row2 *row, uint32_t document, uint32_t first, uint32_t tokens) {
    row->at[row->n++] = (piece2){document, first, tokens};
    row->tokens += tokens;
}

/* All tokens of a stream, one by one: (document, number), and where documents begin. */
static uint32_t all[4 * ROWS * SEGMENTS][2];
static uint8_t first_of[4 * ROWS * SEGMENTS];
static uint64_t n_all;
static uint32_t documents[4 * ROWS * SEGMENTS]; /* those that have tokens, in their order */
static uint64_t n_documents;

static void write_stream(const rig2 *r, uint64_t epoch, uint64_t s, uint64_t want) {
    static dlp_permutation order;
    uint64_t c = r->pipe.streams ? r->pipe.streams : 1, n = r->dataset.n_items;
    n_all = n_documents = 0;
    for (uint64_t pass = 0; pass == 0 || (n_all < want && pass < 20000); pass++) {
        dlp_permutation_init(&order, n, inside_hash(INSIDE_PARTS, 7, pass), epoch);
        for (uint64_t j = s; j < n; j += c) {
            uint64_t i = r->sampler.order == DLP_ORDER_SHUFFLED ? dlp_permutation_at(&order, j) : j;
            uint32_t len = seen->length[i] == UINT32_MAX ? 0 : seen->length[i];
            if (seen->fail == i + 1) len = 0; /* left out */
            if (r->pack.longer == DLP_PACK_LONGER_DROP && len > r->pack.tokens) len = 0;
            if (len > 0) documents[n_documents++] = (uint32_t)i;
            for (uint32_t k = 0; k < len; k++, n_all++) {
                first_of[n_all] = k == 0;
                all[n_all][0] = (uint32_t)i;
                all[n_all][1] = k;
            }
        }
    }
}

static void write_cut(const rig2 *r, uint64_t s) {
    uint64_t b = 0, e = 0;
    for (n_rows[s] = 0; e < n_all && n_rows[s] < ROWS; b = e - r->pack.overlap) {
        row2 *row = &rows[s][n_rows[s]++];
        row->n = row->tokens = 0;
        for (e = b; e < n_all && e - b < r->pack.tokens; e++) {
            if (e > b && !first_of[e]) {
                row->at[row->n - 1].tokens++;
                row->tokens++;
            } else if (row->n < most_segments(r)) {
                row_put(row, all[e][0], all[e][1], 1);
            } else {
                break;
            }
        }
    }
}

/* The next of n pieces: the longest, and of these the first; taken out. */
static piece2 longest(piece2 *p, uint32_t n) {
    uint32_t best = 0;
    piece2 x;
    for (uint32_t i = 0; i < n; i++)
        if (p[i].tokens > p[best].tokens) best = i;
    x = p[best];
    p[best].tokens = 0;
    return x;
}

static void write_window(const rig2 *r, uint64_t s, const uint32_t *of, uint64_t n) {
    static piece2 p[MOST * LONGEST];
    uint64_t from = n_rows[s];
    uint32_t k = 0, t = r->pack.tokens;
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t at = 0, len = seen->length[of[i]]; at < len; at += t)
            p[k++] = (piece2){of[i], at, len - at < t ? len - at : t};
    for (uint32_t i = 0; i < k; i++) {
        piece2 x = longest(p, k);
        row2 *best = NULL;
        for (uint64_t q = from; q < n_rows[s]; q++) {
            row2 *row = &rows[s][q];
            if (row->tokens + x.tokens > t || row->n == most_segments(r)) continue;
            if (best == NULL || row->tokens > best->tokens) best = row;
        }
        if (best == NULL) {
            if (n_rows[s] == ROWS) return;
            best = &rows[s][n_rows[s]++];
            best->n = best->tokens = 0;
        }
        row_put(best, x.document, x.first, x.tokens);
    }
}

static void write_down(const rig2 *r, uint64_t epoch) {
    uint64_t c = r->pipe.streams ? r->pipe.streams : 1, m = r->batch.batch_size / c;
    uint64_t want = (uint64_t)r->pipe.steps_per_epoch * m * r->pack.tokens;
    for (uint64_t s = 0; s < c; s++) {
        write_stream(r, epoch, s, want ? want + MOST * LONGEST : 0);
        n_rows[s] = 0;
        if (r->pack.rule == DLP_PACK_CUT) write_cut(r, s);
        for (uint64_t i = 0; r->pack.rule == DLP_PACK_FIT && i < n_documents;) {
            uint64_t n = n_documents - i, window = r->pack.window ? r->pack.window : 256;
            if (n > window) n = window;
            write_window(r, s, documents + i, n);
            i += n;
        }
    }
}

static int same_row(const rig2 *r, const dlp_batch *b, uint32_t i, const row2 *row) {
    const uint32_t t = r->pack.tokens, s = most_segments(r);
    const uint16_t *tokens = (const uint16_t *)b->fields[0].data + (uint64_t)i * t;
    const uint8_t *mask = (const uint8_t *)b->fields[1].data + (uint64_t)i * t * 3;
    const int32_t *cu = (const int32_t *)b->fields[2].data + (uint64_t)i * (s + 1);
    const int32_t *at = (const int32_t *)b->fields[3].data + (uint64_t)i * t;
    uint32_t n = 0;
    int ok = b->fields[0].lengths[i] == row->tokens && b->fields[1].lengths[i] == row->tokens;
    ok &= row->tokens <= t && row->n <= s && cu[0] == 0 && b->index[i] == row->at[0].document;
    for (uint32_t k = 0; k < row->n && ok; k++) {
        const piece2 *x = &row->at[k];
        for (uint32_t j = 0; j < x->tokens; j++, n++) {
            uint16_t v = token(x->document, x->first + j);
            ok &= tokens[n] == (uint16_t)(v + (r->map && n == 0));
            for (uint32_t y = 0; y < 3; y++)
                ok &= mask[n * 3 + y] == (uint8_t)(v + (x->first + j) * 3 + y);
            ok &= at[n] == (int32_t)(j + (r->pack.positions ? x->first : 0));
        }
        ok &= cu[k + 1] == (int32_t)n;
    }
    for (uint32_t k = row->n; k < s; k++) ok &= cu[k + 1] == (int32_t)n;
    for (; n < t; n++) ok &= tokens[n] == 0 && at[n] == 0 && mask[n * 3 + 2] == 0;
    return ok;
}

static int same(const rig2 *r, const dlp_batch *b) {
    uint64_t c = r->pipe.streams ? r->pipe.streams : 1, m = r->batch.batch_size / c;
    uint32_t world = r->pipe.world_size ? r->pipe.world_size : 1;
    int ok = 1;
    for (uint32_t i = 0; i < b->count && ok; i++) {
        uint64_t g = (uint64_t)r->pipe.rank * (r->batch.batch_size / world) + i;
        uint64_t at = b->in_epoch * m + g % m;
        if (at >= n_rows[g / m])
            ok &= b->valid[i] == 0;
        else
            ok &= b->valid[i] == 1 && same_row(r, b, i, &rows[g / m][at]);
    }
    return ok;
}

/* The whole batch's bounds, against those of its rows, by another way: each token's segment. */
static int same_flat(const rig2 *r, const dlp_batch *b) {
    static int32_t flat[16 * (SEGMENTS + 1) + 1];
    const uint32_t t = r->pack.tokens, s = most_segments(r);
    const int32_t *cu = b->fields[2].data;
    int32_t longest, most = 0;
    int n = dlp_pack_flatten(b, flat, b->count * (s + 1) + 1, &longest), k = 0;
    int ok = n >= (int)b->count && flat[0] == 0 && flat[n] == (int32_t)(b->count * t);
    for (uint32_t i = 0; i < b->count && ok; i++)
        for (uint32_t j = 0; j < t; j++) {
            int begins = j == 0 || (b->valid[i] && j == b->fields[0].lengths[i]);
            for (uint32_t y = 0; y < s; y++) begins |= b->valid[i] && cu[i * (s + 1) + y] == (int)j;
            if (begins) ok &= flat[k++] == (int32_t)(i * t + j);
        }
    for (int i = 0; i < n; i++)
        if (flat[i + 1] - flat[i] > most) most = flat[i + 1] - flat[i];
    return ok && k == n && longest == most;
}

/* Batches of an epoch that is written down, of this rank's streams. */
static uint64_t batches_of(const rig2 *r) {
    uint64_t c = r->pipe.streams ? r->pipe.streams : 1, m = r->batch.batch_size / c;
    uint64_t least = UINT64_MAX, most = 0, world = r->pipe.world_size;
    if (r->pipe.steps_per_epoch) return (uint64_t)r->pipe.steps_per_epoch;
    if (world == 0) world = 1;
    for (uint64_t s = c / world * r->pipe.rank; s < c / world * (r->pipe.rank + 1); s++) {
        if (n_rows[s] / m < least) least = n_rows[s] / m;
        if ((n_rows[s] + m - 1) / m > most) most = (n_rows[s] + m - 1) / m;
    }
    return r->batch.last == DLP_LAST_DROP ? least : most;
}

static int64_t batches(const rig2 *r) {
    uint64_t n = 0;
    for (int64_t e = 0; e < r->pipe.epochs; e++) {
        write_down(r, (uint64_t)e);
        n += batches_of(r);
    }
    return (int64_t)n;
}

/* What a batch has, added to what the stage should have counted. */
static void count(const rig2 *r, const dlp_batch *b, uint64_t *own) {
    for (uint32_t i = 0; i < b->count; i++) {
        const int32_t *cu =
            (const int32_t *)b->fields[2].data + (uint64_t)i * (most_segments(r) + 1);
        if (!b->valid[i]) continue;
        own[DLP_PACK_ROWS]++;
        own[DLP_PACK_TOKENS] += b->fields[0].lengths[i];
        own[DLP_PACK_PADDING] += r->pack.tokens - b->fields[0].lengths[i];
        for (uint32_t k = 0; k < most_segments(r); k++) own[DLP_PACK_SEGMENTS] += cu[k + 1] > cu[k];
    }
}

/* At most `most` batches, or to the end, each as written down; returns how many, or -1. */
static int64_t run_some(rig2 *r, dlp_state *states, int64_t most) {
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    dlp_plan plan;
    dlp_stats stats;
    int64_t n = 0;
    uint64_t epoch = UINT64_MAX, own[4] = {0};
    long from = ever_had, begun;
    int rc = open_pipe(r, &p, &err), ok = 1;
    if (rc != DLP_OK) {
        printf("%s %s: %s\n", err.stage, err.field, err.message);
        return -1;
    }
    begun = ever_had;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    if (r->pipe.shm == NULL) /* shared memory is no block of this process */
        CHECK((uint64_t)(begun - from) <= plan.total_bytes &&
              plan.total_bytes < (uint64_t)(begun - from) + 64);
    while (n < most && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (b->epoch != epoch) write_down(r, epoch = b->epoch);
        ok &= same(r, b) && same_flat(r, b);
        count(r, b, own);
        if (states) ok &= dlp_pipe_state(p, b, &states[n]) == DLP_OK;
        dlp_pipe_release(p, b);
        n++;
    }
    if (rc == DLP_END) {
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
        CHECK(memcmp(stats.stages[2].own, own, sizeof own) == 0);
    } else if (rc != DLP_OK) {
        printf("%s\n", dlp_pipe_error(p)->message);
    }
    CHECK(ever_had == begun); /* nothing is allocated after the start */
    ok &= dlp_pipe_close(p) == DLP_OK && (rc == DLP_END || n == most);
    return ok ? n : -1;
}

static int64_t run(rig2 *r, dlp_state *states) { return run_some(r, states, INT64_MAX); }

/* ---- any wiring ---- */

static void any_rule(rig2 *r, uint64_t *random, int rule) {
    const uint32_t t = r->pack.tokens;
    r->pack.rule = rule;
    r->pack.positions = (int32_t)test_pick(random, 2);
    if (rule == DLP_PACK_CUT && test_pick(random, 2)) r->pack.overlap = test_pick(random, t / 2);
    if (test_pick(random, 2)) r->pack.max_segments = r->pack.overlap + 1 + test_pick(random, t);
    if (rule == DLP_PACK_CUT) return;
    r->pack.window = 1 + test_pick(random, test_pick(random, 2) ? 60 : 8);
    r->pack.longer = (int32_t)test_pick(random, 2);
}

static void any_case(uint64_t *random, int rule, int processes) {
    static const int32_t workers[] = {DLP_NONE, 1, 4, 16};
    static const uint32_t streams[] = {1, 2, 4, 8};
    dlp_shm_desc shm;
    rig2 r;
    int64_t n, want;
    memset(&shm, 0, sizeof shm);
    shm.max_kills = 100;
    init(&r, 8 + test_pick(random, MOST - 8), 4u << test_pick(random, 3));
    any_rule(&r, random, rule);
    if (test_pick(random, 4) == 0) /* streams that have nothing, or nearly */
        for (uint32_t i = 0; i < MOST; i++) seen->length[i] = i % 11 == 3;
    r.pipe.epochs = 1 + test_pick(random, 2);
    r.map = test_pick(random, 2) ? add_one : NULL;
    r.sampler.order = (int32_t)test_pick(random, 2);
    r.pipe.streams = streams[test_pick(random, 4)];
    r.batch.batch_size = 8 * (1 + test_pick(random, 2));
    r.batch.last = (int32_t)test_pick(random, 2) ? DLP_LAST_PARTIAL : DLP_LAST_PAD;
    if (test_pick(random, 2) && r.pipe.streams <= 2)
        r.pipe.steps_per_epoch = 1 + test_pick(random, 20);
    r.by.num_workers = workers[test_pick(random, processes ? 3 : 4)];
    r.fetch.num_workers = workers[test_pick(random, processes ? 3 : 4)];
    seen->spoils = (int)(*random >> 63);
    if (processes) {
        r.pipe.shm = &shm;
        r.by.placement = r.fetch.placement = DLP_PLACE_PROCESSES;
        if (r.by.num_workers > 0) seen->kill_every = 40 + test_pick(random, 90);
    }
    want = batches(&r);
    n = run(&r, NULL);
    CHECK(n == want);
    if (n != want)
        printf("  rule %d, T %u, S %u, overlap %u, window %u, longer %d, streams %u, steps %u, "
               "documents %u, workers %d %d: %d batches, wanted %d\n",
               rule, r.pack.tokens, most_segments(&r), r.pack.overlap, r.pack.window, r.pack.longer,
               r.pipe.streams, (unsigned)r.pipe.steps_per_epoch, (unsigned)r.dataset.n_items,
               r.by.num_workers, r.fetch.num_workers, (int)n, (int)want);
}

static void run__any_wiring__as_written_down(uint64_t seed, int rule) {
    for (int i = 0; i < test_share(200, 4000); i++) any_case(&seed, rule, 0);
}

static void kill__inside_fetch__as_written_down(uint64_t seed, int rule) {
    for (int i = 0; i < test_share(24, 500); i++) any_case(&seed, rule, 1);
}

/* With the fewest cells there may be, which one less is not. */
static void run__fewest_cells__gets_on(int rule) {
    for (uint32_t overlap = 0; overlap < (rule == DLP_PACK_CUT ? 3 : 1); overlap++)
        for (uint32_t ones = 0; ones < 2; ones++) {
            rig2 r;
            dlp_error err;
            uint32_t need;
            init(&r, MOST, 8);
            if (ones)
                for (uint32_t i = 0; i < MOST; i++) seen->length[i] = overlap ? overlap : 1;
            r.pack.rule = rule;
            r.pack.overlap = overlap;
            r.pack.max_segments = 4;
            r.pack.window = rule == DLP_PACK_FIT ? 7 : 0;
            r.pipe.streams = 2;
            r.pipe.epochs = 2;
            r.pipe.steps_per_epoch = 20; /* R = 4 */
            need = overlap ? 4 * 3 + 1 : 4 * 4;
            if (rule == DLP_PACK_FIT) need = 3 * 4 + 7;
            r.cells = 2 * need - 1;
            CHECK(open_pipe(&r, &(dlp_pipe *){NULL}, &err) == DLP_ERR_ARG);
            CHECK(strcmp(err.field, "queue.capacity") == 0);
            r.cells = 2 * need;
            CHECK(run(&r, NULL) == 40);
        }
}

/* What is said of rows, of a window that can be larger, of one that can't, and of none. */
static void explain__of_packing__says_padding(int rule) {
    for (uint32_t window = rule == DLP_PACK_FIT ? 5 : 0; window < 400; window += 195) {
        rig2 r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_error err;
        char text[4096];
        init(&r, 100, 10), r.batch.batch_size = 1, r.pipe.epochs = 1;
        for (uint32_t i = 0; i < 100; i++) seen->length[i] = i % 4 ? 6 : 8; /* none with another */
        r.pack.rule = rule, r.pack.window = window;
        CHECK(open_pipe(&r, &p, &err) == DLP_OK);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
        CHECK(strstr(text, "'pack' makes 6.50 tokens of each input; 0 % of the inputs have none") !=
              NULL);
        CHECK(strstr(text, rule == DLP_PACK_FIT
                               ? "Packing: 35 % of the tokens are padding, 1.00 "
                                 "segments a row"
                               : "Packing: 0 % of the tokens are padding, 2.") != NULL);
        CHECK((strstr(text, "; a window larger than 5 makes that less.") != NULL) == (window == 5));
        CHECK((strstr(text, "; a window larger") != NULL) == (window == 5));
        CHECK((strstr(text, "for windows of 200 documents") != NULL) == (window == 200));
        CHECK((strstr(text, "for windows") == NULL) == (window == 0));
        CHECK(dlp_pipe_close(p) == DLP_OK);
        if (test_failures) printf("%s\n", text);
        if (rule == DLP_PACK_CUT) return;
    }
}

/* ---- states ---- */

#define KEPT 200
static dlp_state states[4][KEPT];

static void resume_rig(rig2 *r, int rule, int variant) {
    init(r, 120, 16);
    for (uint32_t i = 0; i < MOST; i++) /* no long ones: many rows have many documents */
        if (i % 3 && seen->length[i] != UINT32_MAX) seen->length[i] %= 13;
    r->pack.rule = rule;
    r->pack.window = rule == DLP_PACK_FIT ? 9 : 0;
    r->pack.overlap = rule == DLP_PACK_FIT || variant == 0 ? 0 : variant == 1 ? 5 : 13;
    r->pack.max_segments = variant == 1 ? 6 : 0;
    r->pipe.epochs = 2;
    r->pipe.streams = 4;
    r->batch.last = DLP_LAST_PAD;
    r->pipe.steps_per_epoch = variant == 1 ? 12 : 0;
    if (variant == 2) r->dataset.n_items = 40; /* where rows are many, and streams end with one */
}

static void resume__behind_any_batch__goes_on_exactly(int rule) {
    for (int variant = 0; variant < (rule == DLP_PACK_CUT ? 3 : 2); variant++) {
        rig2 r;
        int64_t n;
        resume_rig(&r, rule, variant);
        n = batches(&r);
        CHECK(n > 8 && n <= KEPT && run(&r, states[0]) == n);
        for (int64_t i = 0; i < n; i++) {
            r.pipe.resume = &states[0][i];
            r.by.num_workers = (int32_t)(i % 5) - 1;
            CHECK(run(&r, states[1]) == n - i - 1);
            for (int64_t k = 0; k < n - i - 1; k++) /* no schedule shows in a state */
                CHECK(memcmp(&states[1][k], &states[0][i + 1 + k], sizeof(dlp_state)) == 0);
        }
    }
}

/* The consumer goes where it likes, by what it saved; states that follow are the same. */
static void wander(rig2 *r, int64_t n_states, uint64_t *random) {
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    dlp_state state;
    uint64_t epoch = UINT64_MAX;
    int64_t at = 0; /* of the next batch; -1: that of another epoch */
    int rc = open_pipe(r, &p, &err), ok = rc == DLP_OK;
    for (int i = 0; i < 40 && ok; i++) {
        for (uint32_t n = test_pick(random, 5); n > 0 && ok; n--) {
            rc = dlp_pipe_next_timeout(p, &b, test_pick(random, 4) ? 20000 : 0);
            if (rc == DLP_TIMEOUT || rc == DLP_END) break;
            if (rc == DLP_OK && b->epoch != epoch) write_down(r, epoch = b->epoch);
            ok = rc == DLP_OK && same(r, b) && dlp_pipe_state(p, b, &state) == DLP_OK;
            if (at >= 0) ok &= memcmp(&state, &states[0][at++], sizeof state) == 0;
            if (rc == DLP_OK) ok &= dlp_pipe_release(p, b) == DLP_OK;
        }
        if (rc == DLP_END || test_pick(random, 3)) {
            at = test_pick(random, (uint32_t)n_states) + 1;
            ok &= dlp_pipe_seek(p, &states[0][at - 1], &err) == DLP_OK;
        } else {
            ok &= dlp_pipe_next_epoch(p) == DLP_OK;
            at = -1;
        }
    }
    if (!ok) printf("%s\n", dlp_pipe_error(p)->message);
    CHECK(ok && dlp_pipe_close(p) == DLP_OK);
}

static void seek__anywhere__as_written_down(int rule, uint64_t seed) {
    static const uint32_t streams[] = {1, 2, 4};
    for (int i = 0; i < test_share(24, 1000); i++) {
        dlp_shm_desc shm = {.max_kills = 100};
        rig2 r;
        int64_t n;
        init(&r, 20 + test_pick(&seed, 80), 4u << test_pick(&seed, 3));
        any_rule(&r, &seed, rule);
        r.sampler.order = (int32_t)test_pick(&seed, 2);
        r.pipe.streams = streams[test_pick(&seed, 3)];
        r.pipe.epochs = 3;
        r.batch.last = DLP_LAST_PAD;
        if (r.pipe.streams <= 2 && test_pick(&seed, 2)) r.pipe.steps_per_epoch = 12;
        n = batches(&r);
        if (n < 4 || n > KEPT) continue;
        CHECK(run(&r, states[0]) == n);
        r.by.num_workers = (int32_t)test_pick(&seed, 5) - 1;
        if (i % 4 == 3 && !RIG_TSAN && r.by.num_workers > 0) {
            r.pipe.shm = &shm;
            r.by.placement = r.fetch.placement = DLP_PLACE_PROCESSES;
            seen->kill_every = 200;
        }
        wander(&r, n, &seed);
    }
}

/* Behind each batch the ranks are another number. */
static void resume__other_ranks_each_batch__same_rows(int rule) {
    static const uint32_t worlds[] = {4, 1, 2};
    for (int variant = 0; variant < (rule == DLP_PACK_CUT ? 3 : 2); variant++) {
        dlp_state merged, last[4];
        rig2 r;
        int64_t n = 18; /* of the second epoch, too, where both have equal steps */
        resume_rig(&r, rule, variant);
        r.pipe.uneven = 1;
        write_down(&r, 0);
        for (uint32_t s = 0; s < 4 && variant != 1; s++)
            if ((int64_t)n_rows[s] / 2 < n) n = (int64_t)n_rows[s] / 2;
        for (int64_t i = 0; i < n; i++) {
            uint32_t world = worlds[i % 3];
            for (uint32_t rank = 0; rank < world; rank++) {
                r.pipe.rank = rank;
                r.pipe.world_size = world;
                r.by.num_workers = (int32_t)((i + rank) % 4) - 1;
                r.pipe.resume = i > 0 ? &merged : NULL;
                CHECK(run_some(&r, &last[rank], 1) == 1);
            }
            CHECK(dlp_state_merge(&merged, last, world, NULL) == DLP_OK);
        }
    }
}

static int fails(rig2 *r, dlp_error *err) {
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc = open_pipe(r, &p, err);
    if (rc != DLP_OK) return rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    *err = *dlp_pipe_error(p);
    dlp_pipe_close(p);
    return rc;
}

static void resume__documents_that_changed__refused(int rule) {
    int refused = 0;
    for (uint32_t i = 0; i < MOST; i += 3) {
        rig2 r;
        dlp_error err;
        int rc;
        int64_t n;
        uint32_t len;
        resume_rig(&r, rule, 0);
        r.pipe.epochs = 1;
        n = batches(&r);
        CHECK(run(&r, states[0]) == n);
        r.pipe.resume = &states[0][n / 2];
        len = seen->length[i];
        seen->length[i] = len == UINT32_MAX ? 3 : len / 2;
        if (seen->length[i] == len) continue;
        rc = fails(&r, &err);
        CHECK(rc == DLP_END || rc == DLP_ERR_RESUME);
        if (rc != DLP_ERR_RESUME) continue;
        refused++;
        CHECK(strstr(err.message, rule == DLP_PACK_CUT ? "document" : "window") != NULL);
    }
    CHECK(refused > 0);
    if (rule == DLP_PACK_FIT) CHECK(refused > 3);
}

static void resume__of_another_packing__refused(int rule) {
    rig2 r;
    dlp_error err;
    resume_rig(&r, rule, 0);
    CHECK(run(&r, states[0]) == batches(&r));
    r.pipe.resume = &states[0][3];
    r.pack.tokens = 17;
    CHECK(fails(&r, &err) == DLP_ERR_RESUME);
    r.pack.tokens = 16, r.pack.max_segments = 7;
    CHECK(fails(&r, &err) == DLP_ERR_RESUME);
    r.pack.max_segments = 0, r.pack.id = 1;
    CHECK(fails(&r, &err) == DLP_ERR_RESUME);
}

/* ---- what fails ---- */

static void fail__by_document__named(int rule) {
    rig2 r;
    dlp_error err;
    init(&r, 50, 8), seen->length[11] = 5, r.pack.rule = rule, seen->fail = 12;
    CHECK(fails(&r, &err) == DLP_ERR_CALLBACK && strstr(err.message, "document 11: torn") != NULL);
    init(&r, 50, 8), seen->length[11] = 5, r.pack.rule = rule, seen->uneven = 12;
    CHECK(fails(&r, &err) == DLP_ERR_LENGTH && strstr(err.message, "document 11: ") != NULL);
    init(&r, 50, 8), seen->length[11] = 5, r.pack.rule = rule, seen->fail = 12;
    r.by.on_error = DLP_ON_ERROR_DROP, r.pipe.epochs = 1; /* the others come */
    CHECK(run(&r, NULL) == batches(&r));
}

/* It is the error of the first row that could have it; all rows before come. */
static void fail__of_a_row__those_before_come(int rule) {
    rig2 r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    int n = 0, rc;
    init(&r, 40, 8), seen->fail = 10;
    for (uint32_t i = 0; i < MOST; i++) seen->length[i] = 8;
    r.batch.batch_size = 1, r.sampler.order = DLP_ORDER_SEQUENTIAL, r.pack.rule = rule;
    r.pack.window = rule == DLP_PACK_FIT ? 6 : 0; /* of document 9: 6..11 */
    CHECK(open_pipe(&r, &p, &err) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b), n++;
    CHECK(rc == DLP_ERR_CALLBACK && n == (rule == DLP_PACK_FIT ? 6 : 9));
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* One that fails only when it is read again: its own error, not one of the state. */
static void fail__of_a_resumed_document__named(int rule) {
    for (int64_t i = 0; i < 5; i++) {
        rig2 r;
        dlp_error err;
        init(&r, 1, 16), seen->length[0] = LONGEST;
        r.batch.batch_size = 1, r.pack.rule = rule, r.pipe.epochs = 1;
        CHECK(run(&r, states[0]) == LONGEST / 16);
        r.pipe.resume = &states[0][i];
        seen->fail = 1;
        CHECK(fails(&r, &err) == DLP_ERR_CALLBACK && strstr(err.message, "torn") != NULL);
    }
}

static void longer__as_an_error__named(void) {
    rig2 r;
    dlp_error err;
    init(&r, 60, 16), r.pack.rule = DLP_PACK_FIT, r.pack.longer = DLP_PACK_LONGER_ERROR;
    CHECK(fails(&r, &err) == DLP_ERR_LENGTH && strstr(err.message, "a row has 16") != NULL);
    r.by.on_error = DLP_ON_ERROR_DROP;
    CHECK(fails(&r, &err) == DLP_END);
    r.pipe.epochs = 1;
    for (uint32_t i = 0; i < MOST; i++)
        if (seen->length[i] != UINT32_MAX && seen->length[i] > 16) seen->length[i] = 16;
    r.by.on_error = DLP_ON_ERROR_RAISE;
    CHECK(run(&r, NULL) == batches(&r));
}

static void desc__what_is_not_possible__refused(void) {
    static const dlp_field fixed[1] = {{"tokens", DLP_U16, 1, {8}, 0, 0}};
    static const dlp_field unlike[2] = {{"tokens", DLP_U16, 1, {8}, 1, 0},
                                        {"mask", DLP_U8, 1, {9}, 1, 0}};
    rig2 r;
    dlp_error err;
#define REFUSED(change, what) \
    init(&r, 20, 8), change; \
    CHECK(fails(&r, &err) == DLP_ERR_ARG && strcmp(err.field, what) == 0)
    REFUSED(r.pack.tokens = 0, "tokens");
    REFUSED(r.pack.tokens = 1, "tokens");
    REFUSED(r.pack.rule = 2, "rule");
    REFUSED(r.pack.overlap = 8, "overlap");
    REFUSED((r.pack.overlap = 4, r.pack.max_segments = 4), "max_segments");
    REFUSED(r.pack.max_segments = 4097, "max_segments");
    REFUSED(r.pack.window = 9, "window");
    REFUSED(r.pack.longer = 1, "longer");
    REFUSED((r.pack.rule = DLP_PACK_FIT, r.pack.longer = 3), "longer");
    REFUSED((r.pack.rule = DLP_PACK_FIT, r.pack.window = 5000), "window");
    REFUSED((r.pack.rule = DLP_PACK_FIT, r.pack.overlap = 1), "overlap");
    REFUSED((r.pack.rule = DLP_PACK_FIT, r.pack.window = 4096, r.batch.batch_size = 1 << 20),
            "queue.capacity");
    REFUSED(r.pack.positions = 2, "positions");
    REFUSED(r.pipe.uneven = 2, "uneven");
    REFUSED(r.cells = 5000000, "queue.capacity");
    REFUSED(r.cells = 3, "queue.capacity");
    REFUSED((r.batch.batch_size = 1 << 20, r.pack.tokens = 64), "queue.capacity");
    REFUSED(r.pipe.streams = 3, "streams");
    REFUSED((r.pipe.streams = 32, r.batch.batch_size = 32), "streams");
    REFUSED((r.pipe.world_size = 2, r.pipe.streams = 2), "steps_per_epoch");
    REFUSED(r.pipe.unordered = 1, "unordered");
    REFUSED(r.by.dispatch = 3, "dispatch");
    REFUSED(r.by.on_error = DLP_ON_ERROR_REPLACE, "on_error");
    REFUSED(r.sampler.order = DLP_ORDER_PARTS, "list.order.order");
    REFUSED(r.by.on_error = 3, "on_error");
    REFUSED((r.dataset.fields = fixed, r.dataset.n_fields = 1), "fields[].shape");
    REFUSED(r.dataset.fields = unlike, "fields[].shape");
}

static void all_of(int rule, uint64_t seed) {
    run__any_wiring__as_written_down(seed, rule);
    if (!RIG_TSAN) kill__inside_fetch__as_written_down(seed, rule); /* it follows no fork */
    run__fewest_cells__gets_on(rule);
    explain__of_packing__says_padding(rule);
    resume__behind_any_batch__goes_on_exactly(rule);
    seek__anywhere__as_written_down(rule, seed);
    resume__other_ranks_each_batch__same_rows(rule);
    resume__documents_that_changed__refused(rule);
    resume__of_another_packing__refused(rule);
    fail__by_document__named(rule);
    fail__of_a_row__those_before_come(rule);
    fail__of_a_resumed_document__named(rule);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    if (!RIG_TSAN) SHM_NEEDS("pack");
    seen = shm_shared(sizeof *seen);
    all_of(DLP_PACK_CUT, seed);
    all_of(DLP_PACK_FIT, seed + 1);
    longer__as_an_error__named();
    desc__what_is_not_possible__refused();
    CHECK(shm_mappings() == 0);
    return test_end("pack");
}
