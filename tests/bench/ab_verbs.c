/* ab_verbs: one pipe of a verb, for counting what an item costs in instructions.

   ab_verbs VERB ITEMS WORKERS
   The pipes are those of bench_compose. Two runs that differ in ITEMS alone give the cost of an
   item, without start and close. As in ab_items the program has a clock of its own. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 64,
    PREFETCH = 16,
    MADE = 4,
    WINDOW = 4096,
    ITEM_NS = 25,
    BATCH_NS = 300,
    READ_NS = 30
};

static uint64_t now_ns = 1000000000, items, sum;
static int workers;
static const dlp_field word = {"word", DLP_U64, 0, {0}, 0, 0};

int clock_gettime(clockid_t id, struct timespec *t) {
    (void)id;
    now_ns += READ_NS;
    *t = (struct timespec){(time_t)(now_ns / 1000000000), (long)(now_ns % 1000000000)};
    return 0;
}
static int fetch(void *user, dlp_item *it) {
    (void)user;
    now_ns += ITEM_NS;
    *(uint64_t *)it->data[0] = it->index;
    return 0;
}
static int half(void *user, dlp_item *it) {
    (void)user;
    now_ns += ITEM_NS;
    *(uint64_t *)it->data[0] = it->index;
    return it->index & 1 ? DLP_SKIP : 0;
}
static int expand(void *user, dlp_expand *x) {
    (void)user;
    now_ns += ITEM_NS;
    for (uint64_t i = 0; i < MADE; i++)
        *(uint64_t *)dlp_expand_add(x)->data[0] = x->item->index * MADE + i;
    return 0;
}
static int next_one(void *user, dlp_item *it) {
    (void)user;
    now_ns += ITEM_NS;
    ++*(uint64_t *)it->data[0];
    return 0;
}
static int even(void *user, const dlp_item *it) {
    (void)user;
    now_ns += ITEM_NS;
    return (it->index & 1) == 0;
}
static int decode(void *user, dlp_item *it) { /* it sees raw, then word */
    (void)user;
    now_ns += ITEM_NS;
    *(uint64_t *)it->data[1] = *(const uint64_t *)it->data[0];
    return 0;
}
static int take_all(dlp_pipe *p) {
    dlp_batch *b;
    int rc;
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        const uint64_t *words = b->fields[0].data;
        now_ns += BATCH_NS;
        for (uint32_t i = 0; i < b->count; i++) sum += words[i];
        dlp_pipe_release(p, b);
    }
    dlp_pipe_close(p);
    return rc != DLP_END;
}
static int table(const dlp_node *nodes, uint32_t n) {
    const dlp_pipe_desc d = {.prefetch_factor = PREFETCH};
    dlp_pipe *p;
    dlp_error err;
    if (dlp_pipe_open(&p, nodes, n, &d, &err) != DLP_OK)
        return fprintf(stderr, "%s\n", err.message);
    return take_all(p);
}
static int classic(bool filters) {
    dlp_loader_desc d = {.dataset = {.n_items = items, .fields = &word, .n_fields = 1},
                         .batch_size = BATCH,
                         .num_workers = workers};
    dlp_pipe *p;
    dlp_error err;
    d.dataset.fetch = filters ? half : fetch;
    d.dataset.filter = filters;
    d.pipe.prefetch_factor = PREFETCH;
    if (dlp_loader_open(&p, &d, &err) != DLP_OK) return fprintf(stderr, "%s\n", err.message);
    return take_all(p);
}
#define LIST \
    { \
        .name = "items", .verb = DLP_LIST, .list = {.n_items = items } \
    }
#define END \
    { \
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH } \
    }
#define MADE_END \
    { \
        .name = "batch", .verb = DLP_BATCH, .batch = { \
            .batch_size = BATCH, \
            .copy_workers = DLP_NONE \
        } \
    }
static int map(bool own) {
    const dlp_node nodes[] = {LIST,
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1},
                               .workers = {.num_workers = workers}},
                              {.name = "map",
                               .verb = DLP_MAP,
                               .map = {.item = next_one},
                               .workers = {.num_workers = own ? workers : 0}},
                              END};
    return table(DLP_NODES(nodes));
}
static int window(bool windows) {
    const dlp_node nodes[] = {LIST,
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1}},
                              {.name = "filter",
                               .verb = DLP_FILTER,
                               .filter = {.keep = even},
                               .workers = {.num_workers = workers}},
                              {.name = "window", .verb = DLP_WINDOW, .window = {WINDOW}},
                              MADE_END};
    const dlp_node without[] = {nodes[0], nodes[1], nodes[2], nodes[4]};
    return windows ? table(DLP_NODES(nodes)) : table(DLP_NODES(without));
}
static int expander(void) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = items / MADE}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1}},
        {.name = "expand",
         .verb = DLP_EXPAND,
         .expand = {.expand = expand, .max_out = MADE},
         .workers = {.num_workers = workers}},
        MADE_END};
    return table(DLP_NODES(nodes));
}
static int joined(bool mixes) {
    static const dlp_field other = {"other", DLP_U64, 0, {0}, 0, 0};
    const uint64_t halves[2] = {items / 2, items / 2};
    const dlp_mix_desc by_halves = {.n = 2, .n_items = halves};
    dlp_mix *mix = NULL;
    dlp_error err;
    if (mixes && dlp_mix_open(&mix, &by_halves, &err) != DLP_OK) return 1;
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = mixes ? 0 : items, .mix = mix}},
        {.name = "first",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1, .of = mixes},
         .workers = {.num_workers = workers}},
        {.name = "second",
         .verb = DLP_FETCH,
         .fetch =
             {.fetch = fetch, .fields = mixes ? &word : &other, .n_fields = 1, .of = mixes ? 2 : 0},
         .workers = {.num_workers = workers}},
        END};
    return table(DLP_NODES(nodes));
}
static int in_a_row(bool own) {
    static const dlp_field raw = {"raw", DLP_U64, 0, {0}, 0, 0};
    const dlp_node nodes[] = {
        LIST,
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &raw, .n_fields = 1},
         .workers = {.num_workers = workers}},
        {.name = "decode",
         .verb = DLP_MAP,
         .map = {.item = decode, .fields = &word, .n_fields = 1, .ends = "raw"},
         .workers = {.num_workers = own ? workers : 0, .idempotent = 1}},
        END};
    return table(DLP_NODES(nodes));
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    items = strtoull(argv[2], NULL, 10);
    workers = atoi(argv[3]);
    int rc = !strcmp(argv[1], "plain")     ? classic(false)
             : !strcmp(argv[1], "filter")  ? classic(true)
             : !strcmp(argv[1], "map")     ? map(true)
             : !strcmp(argv[1], "map0")    ? map(false)
             : !strcmp(argv[1], "keep")    ? window(false)
             : !strcmp(argv[1], "window")  ? window(true)
             : !strcmp(argv[1], "expand")  ? expander()
             : !strcmp(argv[1], "zip")     ? joined(false)
             : !strcmp(argv[1], "mix")     ? joined(true)
             : !strcmp(argv[1], "scratch") ? in_a_row(true)
                                           : in_a_row(false);
    printf("%s %llu: %d, sum %llu, clock %llu\n", argv[1], (unsigned long long)items, rc,
           (unsigned long long)sum, (unsigned long long)now_ns);
    return rc;
}
