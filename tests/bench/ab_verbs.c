/* ab_verbs: one pipe of bench_compose, for counting what an item costs in instructions.

   ab_verbs VERB ITEMS WORKERS
   VERB is plain, map, map_fused, filter, window, expand, zip, zip_fused, mix, scratch, or one of
   two long programs: chain, a fetch and three maps in one attempt; stack, a cell with a fetch, a
   map, a filter, an expand of 4, a map and a filter. Two runs under callgrind that differ in ITEMS
   alone give the cost of an item, without start and close. As in ab_items the program has a clock
   of its own, here one that goes on by as much with each reading. So items seem short to the pipe,
   as they are on a real machine. */
int compose_main(int argc, char **argv);
#define main compose_main
#include "bench_compose.c"
#undef main

enum { READ_NS = 30 };

int clock_gettime(clockid_t id, struct timespec *t) {
    static uint64_t now_ns = 1000000000;
    (void)id;
    now_ns += READ_NS;
    *t = (struct timespec){(time_t)(now_ns / 1000000000), (long)(now_ns % 1000000000)};
    return 0;
}

static int keep_all(void *user, const dlp_item *it) {
    (void)user, (void)it;
    return 1;
}

#define MAP(named) \
    { \
        .name = named, .verb = DLP_MAP, .map = {.item = next_one } \
    }
#define FILTER(named) \
    { \
        .name = named, .verb = DLP_FILTER, .filter = {.keep = keep_all } \
    }

/* A fetch and three maps, which run in its attempt. */
static double chained(int workers) {
    const dlp_node nodes[] = {{.name = "items", .verb = DLP_LIST, .list = {.n_items = items}},
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1},
                               .workers = {.num_workers = workers}},
                              MAP("a"),
                              MAP("b"),
                              MAP("c"),
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    return table(DLP_NODES(nodes));
}

/* Rows before a maker and behind it, all in one cell. */
static double stacked(int workers) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = items / MADE}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &word, .n_fields = 1}},
        MAP("a"),
        FILTER("first"),
        {.name = "expand", .verb = DLP_EXPAND, .expand = {.expand = expand, .max_out = MADE}},
        MAP("b"),
        {.name = "last",
         .verb = DLP_FILTER,
         .filter = {.keep = keep_all},
         .workers = {.num_workers = workers}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = BATCH, .copy_workers = DLP_NONE}}};
    return table(DLP_NODES(nodes));
}

int main(int argc, char **argv) {
    static const struct chain verbs[] = {
        {.name = "plain", .ns = plain},         {.name = "map", .ns = map},
        {.name = "filter", .ns = filter},       {.name = "window", .ns = window},
        {.name = "expand", .ns = expander},     {.name = "zip", .ns = zipped},
        {.name = "mix", .ns = mixed},           {.name = "scratch", .ns = in_a_row},
        {.name = "map_fused", .ns = map_fused}, {.name = "zip_fused", .ns = zip_fused},
        {.name = "chain", .ns = chained},       {.name = "stack", .ns = stacked}};
    if (argc < 4) return 2;
    items = strtoull(argv[2], NULL, 10);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[1], verbs[i].name) != 0) continue;
        (void)verbs[i].ns(atoi(argv[3]));
        printf("checksum %llx\n", (unsigned long long)checksum);
        return failures > 0 || checksum == 0;
    }
    fprintf(stderr, "ab_verbs: there is no verb %s\n", argv[1]);
    return 2;
}
