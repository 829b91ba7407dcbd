/* needs: parts pack cache join files lines tar push mix */
/* How many tables that people would write are refused?
   Triples: a kind of source, how two of them are joined, an order of each list, and the rows
   behind. Grid: ways to fetch, with and without an expand, one of them or two joined, and the rows
   behind. These are planned only. A refused table must name a row and have a sentence that fits
   into 200 bytes.
   Of the accepted triples some are run: out of files, lines, a tar, asynchronous requests. Each
   gives the same batches as its table with a callback; resumed behind any batch by other workers;
   and by worker processes, of which one is killed.
     triples [n [seed]]  counts, by source and join; n triples are run
     triples list        and each refused table with its words */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../rig/digest.h"
#include "../../rig/source_rig.h"

/* Refused tables. These numbers may only fall. */
enum { TRIPLES_REFUSED = 330, GRID_REFUSED = 32 };
enum { TRIPLES = 2296, GRID = 504 };

enum { FILES, LINES, TAR, S3, PUSH, CALLBACK, SOURCES };
enum { ONE, MIX, ZIP, SECOND, JOINS };
enum { SEQUENTIAL, SHUFFLED, SUBSET, WEIGHTED, REPLACEMENT, FUNCTION, LIST_MIX, BATCHES, ORDERS };
enum {
    NOTHING,
    MAP,
    MAP_ENDS,
    FILTER,
    EXPAND,
    WINDOW,
    CUT,
    FIT,
    CACHE,
    FILTER_WINDOW,
    FILTER_CUT,
    WINDOW_CUT,
    CUT_WINDOW,
    FILTER_CACHE,
    TAILS
};
enum { PLAIN, THREADS, ASYNC, INIT, LOADED, PUSHED, WAYS };
enum { ITEMS = 100 };

static const char *const sources_[] = {"files", "lines", "tar", "s3", "push", "callback"};
static const char *const joins_[] = {"one", "mix", "zip", "second fetch"};
static const char *const orders_[] = {"sequential",  "shuffled", "subset",   "weighted",
                                      "replacement", "function", "list.mix", "batches"};
static const char *const tails_[] = {
    "nothing",      "map",          "map, ends",    "filter",       "expand",
    "window",       "cut",          "fit",          "cache",        "filter, window",
    "filter, pack", "window, pack", "pack, window", "filter, cache"};
static const char *const ways_[] = {"fetch",       "in_flight",   "async",
                                    "worker_init", "load, fetch", "push"};

/* ---- callbacks. The text of an item says its number, its branch and its field ---- */

typedef struct origin {
    int branch, field;
} origin;

static const origin origins_[2][2] = {{{0, 0}, {0, 1}}, {{1, 0}, {1, 1}}};

static uint64_t write_text(char *to, uint64_t index, const origin *of) {
    char all[40];
    const int n = snprintf(all, sizeof all, "%u:%c%cxxxxxxxxx", (unsigned)index, "ab"[of->branch],
                           "tu"[of->field]) -
                  (int)(index * 7 % 9);
    memcpy(to, all, (size_t)n);
    return (uint64_t)n;
}

static int fetch_item(void *user, dlp_item *it) {
    it->length[0] = write_text(it->data[0], it->index, user);
    return 0;
}
static int change_item(void *user, dlp_item *it) {
    uint8_t *at = it->data[0], *image = it->data[it->n_fields - 1];
    for (uint64_t k = 0; k < it->length[0]; k++) at[k] ^= 0x40;
    if (user != NULL) *image = (uint8_t)(it->length[0] + at[0]);
    return 0;
}
static int keep_item(void *user, const dlp_item *it) {
    return (void)user, ((const uint8_t *)it->data[0])[0] % 3 != 1;
}
static int expand_item(void *user, dlp_expand *x) {
    const uint64_t n = x->item->length[0], some = n % 4;
    (void)user;
    for (uint64_t k = 0; k < some; k++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return 0;
        memcpy(it->data[0], x->item->data[0], (size_t)(n - k));
        it->length[0] = n - k;
    }
    return 0;
}
static int load_part(void *user, dlp_part *part) { return (void)user, (void)part, 0; }
static int parse_line(void *user, void *state, dlp_item *it, const char *line, uint64_t n) {
    (void)user, (void)state;
    memcpy(it->data[0], line, (size_t)n);
    it->length[0] = n;
    return 0;
}

/* A source of requests: it has room for three, and gives the last one back first. */
typedef struct requests {
    dlp_item *item[3];
    int n;
} requests;

static int submit(void *user, void *state, dlp_item *it) {
    requests *has = state;
    (void)user;
    if (has->n == 3) return DLP_FULL;
    has->item[has->n++] = it;
    return 0;
}
static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    requests *has = state;
    int n = 0;
    (void)timeout_ms;
    for (; has->n > 0 && n < max; n++) {
        done[n] = has->item[--has->n];
        code[n] = fetch_item(user, done[n]);
    }
    return n;
}
static int enter(void *user, int worker, void **state) {
    (void)user, (void)worker;
    return (*state = calloc(1, sizeof(requests))) != NULL ? 0 : -1;
}
static void leave(void *user, int worker, void *state) {
    (void)user, (void)worker;
    free(state);
}
static uint64_t index_at(void *user, uint64_t epoch, uint64_t position) {
    return (void)user, (void)epoch, position % ITEMS;
}
static int64_t next_list(void *user, uint64_t epoch, uint64_t *index, uint64_t capacity) {
    return (void)user, (void)epoch, (void)capacity, index[0] = 0, 1;
}

/* ---- what all tables share ---- */

static const dlp_field fields_[2] = {
    {.name = "t", .dtype = DLP_U8, .ndim = 1, .shape = {16}, .ragged = 1},
    {.name = "u", .dtype = DLP_U8, .ndim = 1, .shape = {16}, .ragged = 1}};
static const dlp_field image_ = {.name = "image", .dtype = DLP_U8};
static const dlp_async async_ = {submit, reap};
static int32_t workers_; /* of each fetch */
static int32_t placement_;
static dlp_source *opened_[SOURCES][2][2]; /* by kind, branch and field */
static dlp_push *pushes_[2];               /* by field */
static dlp_mix *mix_;
static dlp_sampler_desc samplers_[ORDERS];

static dlp_node nodes_[32];
static char names_[32][16];
static uint32_t n_nodes_;

static dlp_node *row(int32_t verb) {
    dlp_node *node = &nodes_[n_nodes_];
    snprintf(names_[n_nodes_], sizeof names_[0], "n%u", (unsigned)n_nodes_);
    *node = (dlp_node){.name = names_[n_nodes_++], .verb = verb};
    return node;
}

static void join_rows(int32_t verb, uint32_t first, uint32_t second) {
    static const char *from[3];
    from[0] = names_[first];
    from[1] = names_[second];
    row(verb)->from = from;
}

static void window_row(void) { row(DLP_WINDOW)->window.items = 16; }
static void filter_row(void) { row(DLP_FILTER)->filter.keep = keep_item; }
static void cache_row(void) { row(DLP_CACHE)->cache.bytes = 1 << 20; }

static void pack_row(int32_t rule) {
    dlp_node *node = row(DLP_PACK);
    node->pack.tokens = 32;
    node->pack.rule = rule;
}

static void expand_row(const dlp_field *field) {
    dlp_node *node = row(DLP_EXPAND);
    node->expand =
        (dlp_node_expand){.expand = expand_item, .max_out = 4, .fields = field, .n_fields = 1};
}

static void map_row(int ends) {
    dlp_node *node = row(DLP_MAP);
    node->map.item = change_item;
    if (!ends) return;
    node->map.user = (void *)(uintptr_t)&image_;
    node->map.fields = &image_;
    node->map.n_fields = 1;
    node->map.ends = "t";
}

static void tail_rows(int tail) {
    switch (tail) {
    case MAP: map_row(0); break;
    case MAP_ENDS: map_row(1); break;
    case FILTER: filter_row(); break;
    case EXPAND: expand_row(fields_); break;
    case WINDOW: window_row(); break;
    case CUT: pack_row(DLP_PACK_CUT); break;
    case FIT: pack_row(DLP_PACK_FIT); break;
    case CACHE: cache_row(); break;
    case FILTER_WINDOW: filter_row(), window_row(); break;
    case FILTER_CUT: filter_row(), pack_row(DLP_PACK_CUT); break;
    case WINDOW_CUT: window_row(), pack_row(DLP_PACK_CUT); break;
    case CUT_WINDOW: pack_row(DLP_PACK_CUT), window_row(); break;
    case FILTER_CACHE: filter_row(), cache_row(); break;
    default: break;
    }
    row(DLP_BATCH)->batch.batch_size = 4;
}

static int plan(dlp_error *err) {
    const dlp_pipe_desc desc = {.seed = 1};
    dlp_plan planned;
    memset(err, 0, sizeof *err);
    return dlp_nodes_plan(nodes_, n_nodes_, &desc, &planned, err);
}

/* True if the error names a row of the table and fits. */
static int named(const dlp_error *err) {
    for (uint32_t i = 0; i < n_nodes_; i++) {
        char quoted[24];
        snprintf(quoted, sizeof quoted, "\"%s\"", names_[i]);
        if (strcmp(err->stage, names_[i]) == 0 || strstr(err->message, quoted) != NULL)
            return strlen(err->message) <= 200;
    }
    return 0;
}

/* Count a planned table. Returns 1 if it is refused. */
static int counted(int code, const dlp_error *err, const char *what) {
    if (code == DLP_OK) return 0;
    CHECK(named(err));
    if (!named(err)) printf("names no row: %s: %s\n", what, err->message);
    return 1;
}

/* ---- triples ---- */

static dlp_node *fetch_row(int kind, int branch, int field) {
    dlp_node *node = row(DLP_FETCH);
    node->fetch = kind == CALLBACK
                      ? (dlp_node_fetch){.fetch = fetch_item,
                                         .user = (void *)(uintptr_t)&origins_[branch][field],
                                         .fields = &fields_[field],
                                         .n_fields = 1}
                      : (dlp_node_fetch){.source = opened_[kind][branch][field]};
    node->workers.num_workers = workers_;
    node->workers.placement = placement_;
    return node;
}

static void source_rows(int kind, int order, int branch, int field, int second) {
    dlp_node *list;
    if (kind == PUSH) {
        row(DLP_PUSH)->push.source = pushes_[field];
        if (second) fetch_row(CALLBACK, 1, 1);
        return;
    }
    list = row(DLP_LIST);
    if (kind == CALLBACK && order != LIST_MIX) list->list.n_items = ITEMS;
    if (order == SHUFFLED)
        list->list.shuffle = 1;
    else if (order == LIST_MIX)
        list->list.mix = mix_;
    else if (order != SEQUENTIAL)
        list->list.order = &samplers_[order];
    fetch_row(kind, branch, field);
    if (second) fetch_row(kind, 1, 1)->workers = (dlp_workers_desc){.num_workers = 0};
}

/* Plan one table. A second fetch may have its own workers, or those of the first: either will do.
   Returns 0 or the code of the first. */
static int triple(int join, int kind, int order, int tail, dlp_error *err) {
    dlp_error other;
    uint32_t first;
    int code;
    n_nodes_ = 0;
    source_rows(kind, order, 0, 0, join == SECOND);
    first = n_nodes_ - 1;
    if (join == MIX || join == ZIP) {
        source_rows(kind == PUSH ? CALLBACK : kind, order, 1, join == ZIP, 0);
        join_rows(join == MIX ? DLP_MIX : DLP_ZIP, first, n_nodes_ - 1);
    }
    tail_rows(tail);
    code = plan(err);
    if (code == DLP_OK || join != SECOND) return code;
    nodes_[2].workers.num_workers = workers_;
    nodes_[2].workers.placement = placement_;
    return plan(&other) == DLP_OK ? DLP_OK : code;
}

static void triples__each__refused_ones_counted(int list) {
    int all = 0, refused = 0;
    for (int join = 0; join < JOINS; join++)
        for (int kind = 0; kind < SOURCES; kind++) {
            const int before = refused, first = all;
            for (int order = 0; order < (kind == PUSH ? 1 : ORDERS); order++)
                for (int tail = 0; tail < TAILS; tail++, all++) {
                    char what[100];
                    dlp_error err;
                    const int code = triple(join, kind, order, tail, &err);
                    snprintf(what, sizeof what, "%s, %s, %s, %s", sources_[kind], joins_[join],
                             orders_[order], tails_[tail]);
                    refused += counted(code, &err, what);
                    if (list && code != DLP_OK) printf("  %s: %s\n", what, err.message);
                }
            printf("%-13s %-9s %3d of %3d refused\n", joins_[join], sources_[kind],
                   refused - before, all - first);
        }
    printf("triples: %d of %d refused\n", refused, all);
    CHECK(all == TRIPLES && refused <= TRIPLES_REFUSED);
}

/* ---- accepted triples are run ---- */

enum { MOST_BATCHES = 600, EPOCHS = 2 };

typedef struct ran {
    int rc;
    uint32_t n;
    uint64_t of[MOST_BATCHES];
    dlp_state state[MOST_BATCHES]; /* behind each batch */
} ran;

/* Run the table that was planned last. kill: behind this batch a worker process dies; 0: none. */
static void run_table(const dlp_state *resume, uint32_t kill_at, ran *to) {
    static const dlp_shm_desc shm = {.max_kills = 8};
    dlp_pipe_desc d = {.seed = 1, .epochs = EPOCHS, .resume = resume};
    dlp_worker_stats s;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    to->n = 0;
    if (placement_ != 0) d.shm = &shm;
    to->rc = dlp_pipe_open(&p, nodes_, n_nodes_, &d, &err);
    if (to->rc != DLP_OK) printf("  %s, %s: %s\n", err.stage, err.field, err.message);
    if (to->rc != DLP_OK) return;
    while ((to->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK && to->n < MOST_BATCHES) {
        to->of[to->n] = digest_batch(b);
        CHECK(dlp_pipe_state(p, b, &to->state[to->n++]) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        if (kill_at != to->n) continue;
        for (uint32_t w = 0; dlp_pipe_worker_stats(p, w, &s) == DLP_OK; w++)
            if (s.pid > 0 && s.pid != getpid()) {
                CHECK(kill(s.pid, SIGKILL) == 0);
                break;
            }
    }
    if (to->rc != DLP_END) printf("  %s\n", dlp_pipe_error(p)->message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* The batches of b from number `from` on are all of a. */
static int equal_from(const ran *a, const ran *b, uint32_t from) {
    return a->rc == DLP_END && b->rc == DLP_END && a->n + from == b->n &&
           memcmp(a->of, b->of + from, a->n * sizeof a->of[0]) == 0;
}

/* Run one triple in each way. Returns 0 if it is refused. */
static int run_triple(int join, int kind, int order, int tail, uint64_t *random) {
    static ran want, got, rest;
    const int packs = tail == CUT || tail == FIT || (tail >= FILTER_CUT && tail <= CUT_WINDOW);
    dlp_error err;
    int ok;
    if (join == ZIP && packs) return 0; /* documents of two lists have different lengths */
    workers_ = 1, placement_ = 0;
    if (triple(join, kind, order, tail, &err) != DLP_OK ||
        triple(join, CALLBACK, order, tail, &err) != DLP_OK)
        return 0;
    run_table(NULL, 0, &want);
    workers_ = (int32_t)test_pick(random, 3) + 1;
    triple(join, kind, order, tail, &err);
    run_table(NULL, 0, &got);
    ok = want.n > 0 && equal_from(&got, &want, 0);
    for (uint32_t k = 0; ok && k < got.n;
         k += getenv("SOAK") ? 3 : 1 + test_pick(random, 2 * got.n)) {
        workers_ = (int32_t)test_pick(random, 3) + 1;
        placement_ = test_pick(random, 3) == 0 && shm_missing() == NULL ? DLP_PLACE_PROCESSES : 0;
        if (triple(join, kind, order, tail, &err) != DLP_OK) continue;
        run_table(&got.state[k], placement_ != 0 ? 1 + test_pick(random, 8) : 0, &rest);
        ok = equal_from(&rest, &want, k + 1);
    }
    if (!ok)
        printf("differs: %s, %s, %s, %s\n", sources_[kind], joins_[join], orders_[order],
               tails_[tail]);
    CHECK(ok);
    return 1;
}

static void run__accepted_ones__as_by_a_callback(int most, uint64_t seed) {
    int n = 0;
    for (int tries = 0; n < most && tries < 20 * most; tries++) {
        const uint32_t kind = test_pick(&seed, PUSH + 1);
        n += run_triple((int)test_pick(&seed, JOINS), kind == PUSH ? CALLBACK : (int)kind,
                        (int)test_pick(&seed, BATCHES), (int)test_pick(&seed, TAILS), &seed);
    }
    workers_ = 1, placement_ = 0;
    CHECK(n == most);
}

/* ---- grid ---- */

static void way_rows(int way, int expands, int branch, int zip, dlp_push *push) {
    const dlp_field *field = &fields_[zip && branch];
    dlp_node *node;
    if (way == PUSHED) {
        row(DLP_PUSH)->push.source = push;
    } else {
        row(DLP_LIST)->list.n_items = ITEMS;
        if (way == LOADED) {
            node = row(DLP_LOAD);
            node->load = (dlp_node_load){.load = load_part, .max_items = 8, .max_part_bytes = 256};
            node->workers.num_workers = 2;
        }
        node = row(DLP_FETCH);
        node->fetch = (dlp_node_fetch){.fetch = way == ASYNC ? NULL : fetch_item,
                                       .async = way == ASYNC ? &async_ : NULL,
                                       .in_flight = way == ASYNC     ? 8
                                                    : way == THREADS ? 4
                                                                     : 0,
                                       .fields = field,
                                       .n_fields = 1};
        node->workers.num_workers = way == LOADED ? 0 : 2;
        if (way == INIT) {
            node->workers.worker_init = enter;
            node->workers.worker_user = &opened_[0][branch][0];
        }
    }
    if (expands) expand_row(field);
}

static int cell(int join, int expands, int way, int tail, dlp_error *err) {
    uint32_t first;
    n_nodes_ = 0;
    way_rows(way, expands, 0, join == ZIP, pushes_[0]);
    first = n_nodes_ - 1;
    if (join != ONE) {
        way_rows(way == PUSHED ? PLAIN : way, expands, 1, join == ZIP, pushes_[1]);
        join_rows(join == MIX ? DLP_MIX : DLP_ZIP, first, n_nodes_ - 1);
    }
    tail_rows(tail);
    return plan(err);
}

static void grid__each__refused_ones_counted(int list) {
    int all = 0, refused = 0;
    for (int join = ONE; join <= ZIP; join++)
        for (int expands = 0; expands < 2; expands++)
            for (int way = 0; way < WAYS; way++)
                for (int tail = 0; tail < TAILS; tail++, all++) {
                    char what[100];
                    dlp_error err;
                    const int code = cell(join, expands, way, tail, &err);
                    snprintf(what, sizeof what, "%s%s, %s, %s", ways_[way],
                             expands ? ", expand" : "", joins_[join], tails_[tail]);
                    refused += counted(code, &err, what);
                    if (list && code != DLP_OK) printf("  %s: %s\n", what, err.message);
                }
    printf("grid: %d of %d refused\n", refused, all);
    CHECK(all == GRID && refused <= GRID_REFUSED);
}

/* ---- the sources ---- */

/* Write a shard of ITEMS samples, each with a member of both fields. */
static const char *shard(const char *name, int branch) {
    static uint8_t bytes[(2 * ITEMS * 2 + 2) * 512];
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < 2 * ITEMS; i++) {
        uint8_t *h = bytes + (size_t)i * 1024;
        const uint64_t n = write_text((char *)h + 512, (uint64_t)i / 2, &origins_[branch][i % 2]);
        unsigned sum = 0;
        snprintf((char *)h, 100, "s%03d.%s", i / 2, fields_[i % 2].name);
        memcpy(h + 100, "0000644\0000000000\0000000000\00000000000000\00000000000000\0        0",
               57);
        snprintf((char *)h + 124, 12, "%011o", (unsigned)n);
        memcpy(h + 257, "ustar\00000", 8);
        for (int k = 0; k < 512; k++) sum += h[k];
        snprintf((char *)h + 148, 8, "%06o", sum);
    }
    return rig_write(name, bytes, sizeof bytes);
}

static const char *text(const char *name, const origin *of) {
    char lines[ITEMS * 24];
    size_t n = 0;
    for (uint64_t i = 0; i < ITEMS; i++) {
        n += write_text(lines + n, i, of);
        lines[n++] = '\n';
    }
    return rig_write(name, lines, n);
}

static void open_source(int kind, int branch, int field) {
    static char names[2][2][ITEMS][100]; /* borrowed by the source */
    static const char *paths[2][2][ITEMS];
    static dlp_dataset datasets[2][2];
    static dlp_source own[2][2];
    const origin *of = &origins_[branch][field];
    const dlp_field *f = &fields_[field];
    dlp_source **to = &opened_[kind][branch][field];
    dlp_error err = {.code = 0};
    char name[32];
    int rc = DLP_OK;
    snprintf(name, sizeof name, "%d-%d-%d", kind, branch, field);
    for (int i = 0; kind == FILES && i < ITEMS; i++) {
        char path[64], bytes[40];
        snprintf(path, sizeof path, "%s-%d", name, i);
        snprintf(names[branch][field][i], 100, "%s",
                 rig_write(path, bytes, (size_t)write_text(bytes, (uint64_t)i, of)));
        paths[branch][field][i] = names[branch][field][i];
    }
    if (kind == FILES)
        rc = dlp_files_open(
            to,
            &(dlp_files_desc){
                .n_items = ITEMS, .fields = f, .n_fields = 1, .paths = paths[branch][field]},
            &err);
    if (kind == LINES)
        rc = dlp_lines_open(to,
                            &(dlp_lines_desc){.path = text(name, of),
                                              .fields = f,
                                              .n_fields = 1,
                                              .parse = parse_line,
                                              .index = ""},
                            &err);
    if (kind == TAR)
        rc = dlp_tar_open(
            to,
            &(dlp_tar_desc){.path = shard(name, branch), .fields = f, .n_fields = 1, .index = ""},
            &err);
    if (kind == S3) { /* it has the shape of an S3 source, and needs no server */
        void *user = (void *)(uintptr_t)of;
        datasets[branch][field] = (dlp_dataset){
            .n_items = ITEMS, .fields = f, .n_fields = 1, .fetch = fetch_item, .user = user};
        own[branch][field] = (dlp_source){
            .dataset = &datasets[branch][field],
            .fetcher = DLP_FETCH_ASYNC,
            .async = {submit, reap},
            .workers = {.worker_init = enter, .worker_exit = leave, .worker_user = user},
            .id = 7 + (uint64_t)branch};
        *to = &own[branch][field];
    }
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("%s: %s\n", sources_[kind], err.message);
}

static void open_orders(void) {
    static uint64_t subset[ITEMS / 2], weights[ITEMS];
    static const uint64_t parts[] = {ITEMS / 2, ITEMS / 2};
    const dlp_mix_desc mix = {.n = 2, .shuffle = 1, .n_items = parts, .seed = 1};
    for (uint64_t i = 0; i < ITEMS; i++) weights[i] = 1 + i % 3;
    for (uint64_t i = 0; i < ITEMS / 2; i++) subset[i] = 2 * i;
    CHECK(dlp_mix_open(&mix_, &mix, NULL) == DLP_OK);
    samplers_[SUBSET] =
        (dlp_sampler_desc){.order = DLP_ORDER_SHUFFLED, .subset = subset, .n_subset = ITEMS / 2};
    samplers_[WEIGHTED] = (dlp_sampler_desc){.order = DLP_ORDER_WEIGHTED, .weights = weights};
    samplers_[REPLACEMENT].order = DLP_ORDER_REPLACEMENT;
    samplers_[FUNCTION] = (dlp_sampler_desc){.order = DLP_ORDER_FUNCTION, .function = index_at};
    samplers_[BATCHES] =
        (dlp_sampler_desc){.order = DLP_ORDER_BATCHES, .batches = {.next = next_list}};
}

static void open_all(void) {
    for (int kind = 0; kind < PUSH; kind++)
        for (int branch = 0; branch < 2; branch++)
            for (int field = 0; field < 2; field++) open_source(kind, branch, field);
    for (int k = 0; k < 2; k++) {
        const dlp_push_desc push = {.fields = &fields_[k], .n_fields = 1, .writers = 1};
        CHECK(dlp_push_open(&pushes_[k], &push, NULL) == DLP_OK);
    }
    open_orders();
}

static void close_all(void) {
    for (int kind = 0; kind < S3; kind++)
        for (int i = 0; i < 4; i++) dlp_source_close(opened_[kind][i / 2][i % 2]);
    for (int k = 0; k < 2; k++) dlp_push_close(pushes_[k]);
    dlp_mix_close(mix_);
}

int main(int argc, char **argv) {
    const int list = argc > 1 && strcmp(argv[1], "list") == 0;
    rig_begin("triples");
    open_all();
    workers_ = 1;
    triples__each__refused_ones_counted(list);
    grid__each__refused_ones_counted(list);
    run__accepted_ones__as_by_a_callback(argc > 1 && !list ? atoi(argv[1]) : test_share(300, 2000),
                                         argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
    close_all();
    rig_end();
    return test_end("triples");
}
