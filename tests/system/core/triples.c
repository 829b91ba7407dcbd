/* needs: parts pack cache join files lines tar push mix */
/* How many tables that people would write are refused? Each table is planned only.
   Triples: a kind of source, how two of them are joined, an order of each list, and the rows
   behind. Grid: ways to fetch, with and without an expand, one of them or two joined, and the rows
   behind. A refused table must name a row and have a sentence that fits into 160 bytes.
     triples            counts, by source and join
     triples list       and each refused table with its words */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- callbacks: none is called, since each table is planned only ---- */

static int fetch_item(void *user, dlp_item *it) { return (void)user, (void)it, 0; }
static int keep_item(void *user, const dlp_item *it) { return (void)user, (void)it, 1; }
static int expand_item(void *user, dlp_expand *x) { return (void)user, (void)x, 0; }
static int load_part(void *user, dlp_part *part) { return (void)user, (void)part, 0; }
static int parse_line(void *user, void *state, dlp_item *it, const char *line, uint64_t n) {
    return (void)user, (void)state, (void)it, (void)line, (void)n, 0;
}
static int submit(void *user, void *state, dlp_item *it) {
    return (void)user, (void)state, (void)it, DLP_FULL;
}
static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    return (void)user, (void)state, (void)done, (void)code, (void)max, (void)timeout_ms, 0;
}
static int enter(void *user, int worker, void **state) {
    return (void)user, (void)worker, (void)state, 0;
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
    node->map.item = fetch_item;
    if (!ends) return;
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
    node->fetch =
        kind == CALLBACK
            ? (dlp_node_fetch){.fetch = fetch_item, .fields = &fields_[field], .n_fields = 1}
            : (dlp_node_fetch){.source = opened_[kind][branch][field]};
    node->workers.num_workers = 1;
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
    if (second) fetch_row(kind, 1, 1)->workers.num_workers = 0;
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
    nodes_[2].workers.num_workers = 1;
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
static const char *shard(const char *name) {
    static uint8_t bytes[(2 * ITEMS + 1) * 1024];
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < 2 * ITEMS; i++) {
        uint8_t *h = bytes + (size_t)i * 1024;
        unsigned sum = 0;
        snprintf((char *)h, 100, "s%03d.%s", i / 2, fields_[i % 2].name);
        memcpy(h + 100, "0000644\0000000000\0000000000\00000000000001\00000000000000\0        0",
               57);
        memcpy(h + 257, "ustar\00000", 8);
        for (int k = 0; k < 512; k++) sum += h[k];
        snprintf((char *)h + 148, 8, "%06o", sum);
        h[512] = 'x';
    }
    return rig_write(name, bytes, sizeof bytes);
}

static const char *text(const char *name) {
    char lines[ITEMS * 12];
    size_t n = 0;
    for (int i = 0; i < ITEMS; i++) n += (size_t)sprintf(lines + n, "line %d\n", i);
    return rig_write(name, lines, n);
}

static void open_source(int kind, int branch, int field, const char *const *paths) {
    static dlp_dataset datasets[2][2];
    static dlp_source own[2][2];
    const dlp_field *f = &fields_[field];
    dlp_source **to = &opened_[kind][branch][field];
    dlp_error err = {.code = 0};
    int rc = DLP_OK;
    if (kind == FILES)
        rc = dlp_files_open(
            to, &(dlp_files_desc){.n_items = ITEMS, .fields = f, .n_fields = 1, .paths = paths},
            &err);
    if (kind == LINES)
        rc = dlp_lines_open(to,
                            &(dlp_lines_desc){.path = paths[ITEMS + 2 + branch],
                                              .fields = f,
                                              .n_fields = 1,
                                              .parse = parse_line,
                                              .index = ""},
                            &err);
    if (kind == TAR)
        rc = dlp_tar_open(
            to,
            &(dlp_tar_desc){.path = paths[ITEMS + branch], .fields = f, .n_fields = 1, .index = ""},
            &err);
    if (kind == S3) { /* it has the shape of an S3 source, and needs no server */
        datasets[branch][field] = (dlp_dataset){.n_items = ITEMS,
                                                .fields = f,
                                                .n_fields = 1,
                                                .fetch = fetch_item,
                                                .user = &own[branch][field]};
        own[branch][field] =
            (dlp_source){.dataset = &datasets[branch][field],
                         .fetcher = DLP_FETCH_ASYNC,
                         .async = {submit, reap},
                         .workers = {.worker_init = enter, .worker_user = &own[branch][field]},
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
    static char names[ITEMS + 4][100]; /* a path of the rig is valid for a while only */
    const char *paths[ITEMS + 4];
    for (int i = 0; i < ITEMS + 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        snprintf(names[i], sizeof names[i], "%s",
                 i < ITEMS       ? rig_write(name, "abc", 3)
                 : i < ITEMS + 2 ? shard(name)
                                 : text(name));
        paths[i] = names[i];
    }
    for (int kind = 0; kind < PUSH; kind++)
        for (int branch = 0; branch < 2; branch++)
            for (int field = 0; field < 2; field++) open_source(kind, branch, field, paths);
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
    triples__each__refused_ones_counted(list);
    grid__each__refused_ones_counted(list);
    close_all();
    rig_end();
    return test_end("triples");
}
