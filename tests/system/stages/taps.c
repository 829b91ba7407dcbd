/* needs: parts cache mix pack */
/* A window directly behind fetches gives what it gives behind a filter that keeps all: the same
   rows, bytes and states, whatever the rows above say of their workers, and in any order. A pack
   behind a window packs the documents that a table with the window alone gives, in that order. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../rig/digest.h"
#include "../../rig/sanitizers.h"

enum { ITEMS = 300, BATCHES = 400, STEP = RIG_ASAN || RIG_TSAN ? 30 : 3 }; /* of resumes */

typedef struct shared { /* by all processes */
    uint32_t calls, kill_every, kills;
} shared;

static shared *shared_;

/* ---- what is fetched ---- */

static const dlp_field fields_[2] = {
    {.name = "v", .dtype = DLP_U64},
    {.name = "t", .dtype = DLP_U16, .ndim = 1, .shape = {9}, .ragged = 1}};
static const dlp_field more_[1] = {{.name = "w", .dtype = DLP_U64}};

static int fetch_item(void *user, dlp_item *it) {
    const uint32_t n = __atomic_add_fetch(&shared_->calls, 1, __ATOMIC_SEQ_CST);
    (void)user;
    if (shared_->kill_every > 0 && n % shared_->kill_every == 0) {
        __atomic_add_fetch(&shared_->kills, 1, __ATOMIC_SEQ_CST);
        raise(SIGKILL);
    }
    *(uint64_t *)it->data[0] = dlp_item_random(it, 1) ^ it->index;
    it->length[1] = it->index % 10;
    memset(it->data[1], (int)(it->index % 250), it->length[1] * 2);
    return 0;
}

/* Some items come at the second try, and some never. */
static int fetch_torn(void *user, dlp_item *it) {
    const uint64_t h = dlp_hash(it->index, 1, 2, 3);
    if (h % 7 == 0) return dlp_fail(it->call, 5, "never");
    if (h % 5 == 0 && it->attempt == 0) return dlp_fail(it->call, 5, "once");
    return fetch_item(user, it);
}

static int fetch_more(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index * 3;
    return 0;
}

static int map_item(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] += it->index + it->epoch;
    return 0;
}

static int keep_item(void *user, const dlp_item *it) { return (void)user, (void)it, 1; }

typedef struct requests { /* of a worker */
    dlp_item *at[8];
    int n;
} requests;

static int enter(void *user, int worker, void **state) {
    (void)user, (void)worker;
    return (*state = calloc(1, sizeof(requests))) == NULL;
}
static void leave(void *user, int worker, void *state) {
    (void)user, (void)worker;
    free(state);
}
static int submit(void *user, void *state, dlp_item *it) {
    requests *r = state;
    (void)user;
    if (r->n == 8) return DLP_FULL;
    r->at[r->n++] = it;
    return 0;
}
static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    requests *r = state;
    int n = 0;
    (void)timeout_ms;
    while (r->n > 0 && n < max) {
        done[n] = r->at[--r->n];
        code[n] = fetch_item(user, done[n]);
        n++;
    }
    return n;
}

static int load_part(void *user, dlp_part *part) {
    (void)user;
    part->items = part->index % 5;
    *(uint64_t *)part->data = part->index;
    return 0;
}
static int fetch_of_part(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = *(const uint64_t *)it->part->data * 100 + it->part->item;
    it->length[1] = 1;
    *(uint16_t *)it->data[1] = (uint16_t)it->index;
    return 0;
}

static uint64_t index_at(void *user, uint64_t epoch, uint64_t position) {
    (void)user;
    return (position * 7 + epoch) % ITEMS;
}

/* ---- tables ---- */

enum { PLAIN, MAPPED, TWICE, THREADS, REQUESTS, TRIES, DEADLINE, CACHED, LOADED, ALONE, WAYS };

typedef struct wiring {
    int way, order, steps, workers, processes, filter, cells;
    uint32_t window, streams;
} wiring;

static uint64_t weights_[ITEMS], subset_[ITEMS / 2];
static const dlp_async async_ = {submit, reap};
static dlp_node nodes_[12];

static uint32_t table(const wiring *k, dlp_sampler_desc *order) {
    uint32_t n = 0;
    dlp_node *read;
    *order = (dlp_sampler_desc){.order = k->order};
    if (k->order == DLP_ORDER_WEIGHTED) order->weights = weights_;
    if (k->order == DLP_ORDER_FUNCTION) order->function = index_at;
    if (k->order == DLP_ORDER_SHUFFLED && k->steps)
        order->subset = subset_, order->n_subset = ITEMS / 2;
    nodes_[n++] =
        (dlp_node){.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS, .order = order}};
    if (k->way == LOADED) {
        nodes_[0].list.order = NULL;
        nodes_[n++] = (dlp_node){.name = "load",
                                 .verb = DLP_LOAD,
                                 .load = {.load = load_part, .max_items = 4, .max_part_bytes = 8},
                                 .workers = {.num_workers = k->workers}};
    }
    read = &nodes_[n++];
    *read = (dlp_node){.name = "read",
                       .verb = DLP_FETCH,
                       .fetch = {.fetch = fetch_item, .fields = fields_, .n_fields = 2},
                       .queue = {.capacity = (uint32_t)k->cells},
                       .workers = {.num_workers = k->workers}};
    if (k->processes) read->workers.placement = DLP_PLACE_PROCESSES;
    if (k->way == THREADS) {
        read->fetch.in_flight = 3;
        if (k->workers == DLP_NONE) read->workers.num_workers = 1;
    }
    if (k->way == REQUESTS) {
        read->fetch.fetch = NULL;
        read->fetch.async = &async_;
        read->fetch.in_flight = 6;
        read->workers.worker_init = enter;
        read->workers.worker_exit = leave;
        if (k->workers == DLP_NONE) read->workers.num_workers = 1;
    }
    if (k->way == TRIES) {
        read->fetch.fetch = fetch_torn;
        read->workers.retries = 2;
        read->workers.on_error = DLP_ON_ERROR_DROP;
    }
    if (k->way == DEADLINE && k->processes) read->workers.deadline_ms = 20000;
    if (k->way == ALONE) read->workers.num_workers = DLP_NONE;
    if (k->way == LOADED) {
        read->fetch.fetch = fetch_of_part;
        read->workers = (dlp_workers_desc){.num_workers = 0};
    }
    if (k->way == TWICE)
        nodes_[n++] = (dlp_node){.name = "more",
                                 .verb = DLP_FETCH,
                                 .fetch = {.fetch = fetch_more, .fields = more_, .n_fields = 1}};
    if (k->way == MAPPED)
        nodes_[n++] = (dlp_node){.name = "map", .verb = DLP_MAP, .map = {.item = map_item}};
    if (k->filter)
        nodes_[n++] = (dlp_node){.name = "all", .verb = DLP_FILTER, .filter = {.keep = keep_item}};
    if (k->way == CACHED)
        nodes_[n++] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = 1 << 16}};
    nodes_[n++] = (dlp_node){.name = "mixed", .verb = DLP_WINDOW, .window = {.items = k->window}};
    nodes_[n++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 12}};
    return n;
}

/* ---- runs ---- */

typedef struct kept {
    uint64_t rows, end;
    dlp_state state;
} kept;

static kept base_[BATCHES], other_[BATCHES];

/* Run a table, from a state on if there is one, and note each batch. Returns how many there are, or
   a code. */
static int run(const wiring *k, const dlp_state *from, kept *to, dlp_error *err) {
    dlp_sampler_desc order;
    const dlp_shm_desc shm = {.max_kills = 100};
    const uint32_t n = table(k, &order);
    const dlp_pipe_desc desc = {.seed = 5,
                                .epochs = 2,
                                .streams = k->streams,
                                .steps_per_epoch = k->steps,
                                .resume = from,
                                .shm = k->processes ? &shm : NULL};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc = dlp_pipe_open(&p, nodes_, n, &desc, err), batches = 0;
    while (rc == DLP_OK && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        to[batches].rows = digest_batch(b);
        to[batches].end = b->epoch << 32 | b->in_epoch;
        CHECK(dlp_pipe_state(p, b, &to[batches++].state) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    if (p != NULL && rc != DLP_END) *err = *dlp_pipe_error(p);
    if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc == DLP_END ? batches : rc;
}

static int alike(const kept *a, const kept *b) {
    return a->rows == b->rows && a->end == b->end &&
           memcmp(&a->state, &b->state, sizeof a->state) == 0;
}

/* Compare a table with itself behind a filter, and go on from each third of the filter's states. */
static void compared(wiring k, const char *what) {
    static const int workers[] = {1, 3, DLP_NONE, 2};
    dlp_error err = {.code = 0};
    const int same = test_failures, n = (k.filter = 1, run(&k, NULL, base_, &err));
    CHECK(n > 4);
    k.filter = 0;
    CHECK(run(&k, NULL, other_, &err) == n);
    for (int i = 0; i < n; i++) CHECK(alike(&base_[i], &other_[i]));
    for (int at = 0; at < n; at += STEP) {
        wiring other = k;
        other.workers = k.processes ? 2 : workers[at / 3 % 4];
        CHECK(run(&other, &base_[at].state, other_, &err) == n - at - 1);
        for (int i = at + 1; i < n; i++) CHECK(alike(&base_[i], &other_[i - at - 1]));
    }
    if (test_failures != same) printf("%s: %d: %s\n", what, n, err.message);
}

static void window__behind_fetches__as_behind_a_filter(void) {
    static const char *const ways[WAYS] = {"plain",    "map",   "two fetches", "threads",
                                           "requests", "tries", "deadline",    "cache",
                                           "load",     "alone"};
    for (int way = 0; way < WAYS; way++)
        for (int by = 0; by < 4; by++) {
            const wiring k = {.way = way,
                              .order = by % 2 ? DLP_ORDER_SHUFFLED : DLP_ORDER_SEQUENTIAL,
                              .steps = by == 3 ? 17 : 0,
                              .workers = 2,
                              .window = by == 0   ? 64
                                        : by == 1 ? 7
                                                  : 100,
                              .streams = by == 2 ? 3 : 1};
            compared(k, ways[way]);
        }
}

static void window__any_order__as_behind_a_filter(void) {
    static const int orders[] = {DLP_ORDER_WEIGHTED, DLP_ORDER_REPLACEMENT, DLP_ORDER_FUNCTION};
    for (int i = 0; i < 3; i++)
        compared((wiring){.order = orders[i], .workers = 2, .window = 40, .streams = 1}, "order");
}

static void window__workers_killed__same_rows(void) {
    shared_->kill_every = 37;
    compared(
        (wiring){
            .order = DLP_ORDER_SHUFFLED, .workers = 2, .processes = 1, .window = 50, .streams = 1},
        "killed");
    compared((wiring){.way = DEADLINE, .workers = 2, .processes = 1, .window = 50, .streams = 1},
             "killed");
    CHECK(shared_->kills > (STEP > 3 ? 5 : 50));
    shared_->kill_every = 0;
}

/* ---- documents in the order of a window, then a pack ---- */

enum { ONE, MIX, ZIP, SECOND, EXPANDED, KEPT, SHAPES_OF };
enum { DOCUMENTS = 150, LONGEST = 20, MOST_MADE = 3 };

typedef struct packing {
    int shape, workers, processes, last;
    uint32_t window, tokens, overlap, segments, streams,
        cells; /* tokens 0: documents, one by one */
    int64_t steps;
} packing;

static const dlp_field documents_[2] = {
    {.name = "t", .dtype = DLP_U16, .ndim = 1, .shape = {LONGEST}, .ragged = 1},
    {.name = "u", .dtype = DLP_U16, .ndim = 1, .shape = {LONGEST}, .ragged = 1}};
static uint32_t longest_ = LONGEST; /* of the documents that are made now */

static void document(dlp_item *it, uint64_t key) {
    const uint32_t n = 1 + (uint32_t)(dlp_hash(it->index, key % 8, 4, 4) % longest_);
    const uint32_t calls = __atomic_add_fetch(&shared_->calls, 1, __ATOMIC_SEQ_CST);
    if (shared_->kill_every > 0 && calls % shared_->kill_every == 0) {
        __atomic_add_fetch(&shared_->kills, 1, __ATOMIC_SEQ_CST);
        raise(SIGKILL);
    }
    for (uint32_t f = 0; f < it->n_fields; f++) {
        it->length[f] = n;
        for (uint32_t k = 0; k < n; k++)
            ((uint16_t *)it->data[f])[k] = (uint16_t)(it->index * 131 + key * 17 + k + 1000 * f);
    }
}
static int fetch_document(void *user, dlp_item *it) {
    return document(it, user != NULL ? 9 : 1), 0; /* the other list of a mix has other words */
}
static int fetch_base(void *user, dlp_item *it) {
    (void)user;
    it->length[0] = 1;
    *(uint16_t *)it->data[0] = (uint16_t)it->index;
    return 0;
}
static int expand_documents(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t k = 0; k < dlp_hash(x->item->index, 6, 6, 6) % (MOST_MADE + 1); k++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return -1;
        document(it, k);
    }
    return 0;
}

static void document_branch(const packing *k, uint32_t *n, int branch, uint32_t first,
                            uint32_t many) {
    static const char *const lists[] = {"list", "list 2"}, *const reads[] = {"read", "read 2"};
    nodes_[(*n)++] = (dlp_node){.name = lists[branch],
                                .verb = DLP_LIST,
                                .list = {.n_items = DOCUMENTS, .shuffle = k->shape != ZIP}};
    nodes_[(*n)++] = (dlp_node){
        .name = reads[branch],
        .verb = DLP_FETCH,
        .fetch = {.fetch = k->shape == EXPANDED ? fetch_base : fetch_document,
                  .user = k->shape == MIX && branch ? &shared_ : NULL,
                  .fields = &documents_[first],
                  .n_fields = many},
        .queue = {.capacity = k->shape == MIX || k->shape == ZIP ? 0 : k->cells},
        .workers = {.num_workers = k->workers,
                    .placement = k->processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS}};
}

static uint32_t pack_table(const packing *k) {
    static const char *const both[] = {"read", "read 2", NULL};
    uint32_t n = 0;
    document_branch(k, &n, 0, 0, 1);
    if (k->shape == MIX || k->shape == ZIP) document_branch(k, &n, 1, k->shape == ZIP, 1);
    if (k->shape == MIX || k->shape == ZIP)
        nodes_[n++] = (dlp_node){.name = "both",
                                 .verb = k->shape == MIX ? DLP_MIX : DLP_ZIP,
                                 .from = both,
                                 .queue = {.capacity = 0}};
    if (k->shape == SECOND)
        nodes_[n++] =
            (dlp_node){.name = "second",
                       .verb = DLP_FETCH,
                       .fetch = {.fetch = fetch_document, .fields = &documents_[1], .n_fields = 1}};
    if (k->shape == EXPANDED)
        nodes_[n++] = (dlp_node){.name = "docs",
                                 .verb = DLP_EXPAND,
                                 .expand = {.expand = expand_documents, .max_out = MOST_MADE}};
    if (k->shape == KEPT)
        nodes_[n++] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {.bytes = 1 << 16}};
    nodes_[n++] = (dlp_node){.name = "mixed", .verb = DLP_WINDOW, .window = {.items = k->window}};
    if (k->tokens > 0)
        nodes_[n++] = (dlp_node){
            .name = "pack",
            .verb = DLP_PACK,
            .pack = {.tokens = k->tokens, .overlap = k->overlap, .max_segments = k->segments}};
    nodes_[n++] = (dlp_node){.name = "batch",
                             .verb = DLP_BATCH,
                             .batch = {.batch_size = k->tokens > 0 ? 4 : 1, .last = k->last}};
    return n;
}

typedef struct lines { /* tokens of rows, or of documents */
    uint32_t n, tokens[8 * DOCUMENTS];
    uint16_t at[8 * DOCUMENTS][64];
} lines;

static lines docs_, rows_, packed_;

/* Run a table, and keep the tokens of its rows, and what `to` keeps. Returns the batches, or a
   code. */
static int run_packing(const packing *k, const dlp_state *from, kept *to, lines *keep,
                       dlp_error *err) {
    const dlp_shm_desc shm = {.max_kills = 100};
    const uint32_t n = pack_table(k);
    const dlp_pipe_desc desc = {.seed = 11,
                                .epochs = keep != NULL ? 1 : 2,
                                .streams = k->streams,
                                .steps_per_epoch = k->steps,
                                .resume = from,
                                .shm = k->processes ? &shm : NULL};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc = dlp_pipe_open(&p, nodes_, n, &desc, err), batches = 0;
    while (rc == DLP_OK && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        for (uint32_t r = 0; keep != NULL && r < b->count; r++) {
            keep->tokens[keep->n] = (uint32_t)b->fields[0].lengths[r];
            memcpy(keep->at[keep->n++],
                   (const uint8_t *)b->fields[0].data + r * (b->fields[0].bytes / b->count),
                   b->fields[0].bytes / b->count);
        }
        if (to != NULL) {
            to[batches].rows = digest_batch(b);
            to[batches].end = b->epoch << 32 | b->in_epoch;
            CHECK(dlp_pipe_state(p, b, &to[batches].state) == DLP_OK);
        }
        batches++;
        dlp_pipe_release(p, b);
    }
    if (p != NULL && rc != DLP_END) *err = *dlp_pipe_error(p);
    if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc == DLP_END ? batches : rc;
}

/* Cut documents into rows, as >>pack says it. */
static void cut(const packing *k, const lines *from, lines *to) {
    uint32_t d = 0, at = 0;
    to->n = 0;
    while (d < from->n) {
        uint32_t tokens = 0, segments = 0, back = k->overlap;
        memset(to->at[to->n], 0, sizeof to->at[0]);
        while (d < from->n && tokens < k->tokens && segments < k->segments) {
            for (segments++; at < from->tokens[d] && tokens < k->tokens; at++)
                to->at[to->n][tokens++] = from->at[d][at];
            if (at == from->tokens[d]) d++, at = 0;
        }
        to->tokens[to->n++] = tokens;
        if (d == from->n) return;
        for (; back > 0; back--) {
            if (at == 0) at = from->tokens[--d];
            at--;
        }
    }
}

static void pack__behind_window__its_documents_in_order(void) {
    for (int shape = 0; shape < SHAPES_OF; shape++)
        for (uint32_t i = 0; i < 4; i++) {
            const packing k = {.shape = shape,
                               .workers = i % 2 ? 2 : DLP_NONE,
                               .window = i == 0   ? 30
                                         : i == 1 ? 7
                                         : i == 2 ? 1
                                                  : 1000,
                               .tokens = i == 1 ? 11 : 32,
                               .overlap = i * 2 % 5,
                               .segments = i < 2 ? 11 : 5,
                               .last = DLP_LAST_PARTIAL};
            packing plain = k;
            dlp_error err = {.code = 0};
            const int before = test_failures;
            plain.tokens = 0;
            docs_.n = rows_.n = 0;
            memset(&rows_, 0, sizeof rows_);
            CHECK(run_packing(&plain, NULL, NULL, &docs_, &err) > DOCUMENTS / 2);
            CHECK(run_packing(&k, NULL, NULL, &rows_, &err) > 0);
            cut(&k, &docs_, &packed_);
            CHECK(rows_.n == packed_.n && packed_.n > 20);
            for (uint32_t r = 0; r < packed_.n; r++)
                CHECK(rows_.tokens[r] == packed_.tokens[r] &&
                      memcmp(rows_.at[r], packed_.at[r], k.tokens * 2) == 0);
            if (test_failures > before)
                printf("shape %d, %u: %u and %u rows: %s\n", shape, i, rows_.n, packed_.n,
                       err.message);
        }
}

/* Run a table, and again from each third of its states on, with other workers. */
static void resumed(packing k, int processes) {
    static const int workers[] = {1, 3, DLP_NONE, 2};
    dlp_error err = {.code = 0};
    const int before = test_failures, n = run_packing(&k, NULL, base_, NULL, &err);
    CHECK(n > 4);
    k.processes = processes;
    for (int at = 0; at < n; at += STEP) {
        packing other = k;
        other.workers = processes ? 2 : workers[at / 3 % 4];
        CHECK(run_packing(&other, &base_[at].state, other_, NULL, &err) == n - at - 1);
        for (int i = at + 1; i < n; i++) CHECK(alike(&base_[i], &other_[i - at - 1]));
    }
    if (test_failures > before) printf("shape %d: %d: %s\n", k.shape, n, err.message);
}

static void pack__behind_window_resumed__same_rows(void) {
    for (int shape = 0; shape < SHAPES_OF; shape++)
        for (uint32_t i = 0; i < 4; i++)
            resumed((packing){.shape = shape,
                              .workers = 2,
                              .window = i == 0   ? 30
                                        : i == 1 ? 7
                                        : i == 2 ? 1
                                                 : 1000,
                              .tokens = i == 1 ? 11 : 32,
                              .overlap = i * 2 % 5,
                              .segments = i < 2 ? 11 : 5,
                              .streams = i == 1 ? 2 : 1,
                              .steps = i == 1 ? 31 : 0,
                              .last = i == 2 ? DLP_LAST_DROP : DLP_LAST_PARTIAL},
                    0);
    longest_ = 1; /* as many windows as may be are open at once */
    resumed((packing){.workers = 2,
                      .window = 7,
                      .tokens = 32,
                      .segments = 5,
                      .streams = 1,
                      .last = DLP_LAST_PARTIAL},
            0);
    longest_ = LONGEST;
}

static void pack__behind_window_killed__same_rows(void) {
    const uint32_t kills = shared_->kills;
    for (int shape = 0; shape < SHAPES_OF; shape++) {
        const packing k = {.shape = shape,
                           .workers = 2,
                           .window = 40,
                           .tokens = 32,
                           .overlap = 3,
                           .segments = 9,
                           .streams = 1,
                           .last = DLP_LAST_PARTIAL};
        shared_->kill_every = 0;
        dlp_error err = {.code = 0};
        const int n = run_packing(&k, NULL, base_, NULL, &err);
        packing other = k;
        other.processes = 1;
        shared_->kill_every = 61;
        CHECK(run_packing(&other, &base_[n / 3].state, other_, NULL, &err) == n - n / 3 - 1);
        for (int i = n / 3 + 1; i < n; i++) CHECK(alike(&base_[i], &other_[i - n / 3 - 1]));
    }
    shared_->kill_every = 0;
    CHECK(shared_->kills > kills + 10);
}

/* Documents of one token: each row has as many as it may have. */
static void pack__behind_window_fewest_cells__comes_to_its_end(void) {
    longest_ = 1;
    for (uint32_t i = 0; i < 6; i++) {
        packing k = {.workers = 2,
                     .window = i % 3 == 0   ? 30
                               : i % 3 == 1 ? 7
                                            : 1,
                     .tokens = 32,
                     .overlap = i > 2 ? 2 : 0,
                     .segments = 5,
                     .streams = 1,
                     .last = i % 2 ? DLP_LAST_DROP : DLP_LAST_PARTIAL};
        const uint64_t rows = k.last == DLP_LAST_DROP ? 8 : 5;
        const uint64_t documents = k.overlap ? rows * 4 + 1 : rows * 5;
        dlp_error err = {.code = 0};
        k.cells = (uint32_t)documents - 1 + k.window;
        CHECK(run_packing(&k, NULL, NULL, NULL, &err) > 10);
        k.cells--;
        CHECK(run_packing(&k, NULL, NULL, NULL, &err) == DLP_ERR_ARG);
        CHECK(strstr(err.message, "queue.capacity") != NULL);
    }
    longest_ = LONGEST;
}

/* ---- memory, refusals ---- */

static int planned(dlp_plan *to, uint32_t n, int32_t open_end, dlp_error *err) {
    const dlp_pipe_desc desc = {.seed = 1};
    nodes_[0].list.open_end = open_end;
    if (open_end) nodes_[0].list.n_items = 0;
    return dlp_nodes_plan(nodes_, n, &desc, to, err);
}

static void window__of_a_million__small(void) {
    const wiring k = {.window = 1 << 20, .workers = 2};
    dlp_sampler_desc order;
    dlp_plan plan;
    dlp_error err;
    const uint32_t n = table(&k, &order);
    nodes_[0].list.n_items = 1 << 24;
    nodes_[1].fetch.n_fields = 1;
    CHECK(planned(&plan, n, 0, &err) == DLP_OK);
    CHECK(STEP > 3 || plan.total_bytes < 40 << 20); /* guards of a debug build take more */
}

static int64_t next_list(void *user, uint64_t epoch, uint64_t *index, uint64_t capacity) {
    return (void)user, (void)epoch, (void)capacity, index[0] = 0, 1;
}

static void refused(uint32_t n, int32_t open_end, const char *words) {
    dlp_plan plan;
    dlp_error err = {.code = 0};
    CHECK(planned(&plan, n, open_end, &err) != DLP_OK);
    CHECK(strstr(err.message, words) != NULL);
    if (strstr(err.message, words) == NULL) printf("%s: %s\n", err.stage, err.message);
}

static int same(void *user, dlp_item *item) { return (void)user, (void)item, 0; }

static void window__not_behind_items__refused(void) {
    const wiring k = {.window = 9, .workers = 1};
    static const uint64_t parts[] = {ITEMS / 2, ITEMS / 2};
    dlp_sampler_desc order;
    dlp_mix *mix = NULL;
    uint32_t n = table(&k, &order);
    nodes_[1] = nodes_[2]; /* list, window */
    nodes_[2] = nodes_[3];
    refused(n - 1, 0, "must stand before the batch, directly after push, load, fetch");
    n = table(&k, &order);
    nodes_[5] = nodes_[3]; /* fetch, cache, map, window */
    nodes_[4] = nodes_[2];
    nodes_[2] = (dlp_node){.name = "keep", .verb = DLP_CACHE, .cache = {.bytes = 1 << 16}};
    nodes_[3] = (dlp_node){.name = "turn", .verb = DLP_MAP, .map = {.item = same}};
    refused(n + 2, 0, "move \"turn\" above \"keep\", or \"mixed\" directly behind it");
    n = table(&k, &order);
    nodes_[4] = nodes_[2]; /* behind the batch */
    nodes_[2] = nodes_[3];
    nodes_[3] = nodes_[4];
    refused(n, 0, "must stand before the batch");
    n = table(&k, &order);
    refused(n, 1, "open_end");
    n = table(&k, &order);
    order = (dlp_sampler_desc){.order = DLP_ORDER_BATCHES, .batches = {.next = next_list}};
    refused(n, 0, "lists of batches name rows by number");
    n = table(&(wiring){.way = TWICE, .window = 9, .workers = 1}, &order);
    CHECK(dlp_mix_open(&mix, &(dlp_mix_desc){.n = 2, .n_items = parts, .seed = 1}, NULL) == DLP_OK);
    nodes_[0].list = (dlp_node_list){.mix = mix};
    nodes_[2].fetch.fields = fields_;
    nodes_[2].fetch.n_fields = 1;
    nodes_[1].fetch.of = 1;
    nodes_[2].fetch.of = 2;
    refused(n, 0, "give all datasets the same fields");
    dlp_mix_close(mix);
}

int main(void) {
    shared_ =
        mmap(NULL, sizeof *shared_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint64_t i = 0; i < ITEMS; i++) weights_[i] = i % 4;
    for (uint64_t i = 0; i < ITEMS / 2; i++) subset_[i] = 2 * i + 1;
    window__behind_fetches__as_behind_a_filter();
    window__any_order__as_behind_a_filter();
    if (!RIG_TSAN) window__workers_killed__same_rows();
    pack__behind_window__its_documents_in_order();
    pack__behind_window_resumed__same_rows();
    if (!RIG_TSAN) pack__behind_window_killed__same_rows();
    pack__behind_window_fewest_cells__comes_to_its_end();
    window__of_a_million__small();
    window__not_behind_items__refused();
    return test_end("taps");
}
