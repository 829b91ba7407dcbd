/* ab_verbs: one pipe of bench_compose, for counting what an item costs in instructions.

   ab_verbs VERB ITEMS WORKERS
   VERB is plain, map, map_fused, filter, window, expand, zip, zip_fused, mix or scratch. Two runs
   under callgrind that differ in ITEMS alone give the cost of an item, without start and close. As
   in ab_items the program has a clock of its own, here one that goes on by as much with each
   reading. So items seem short to the pipe, as they are on a real machine. */
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

int main(int argc, char **argv) {
    static const struct chain verbs[] = {
        {.name = "plain", .ns = plain},         {.name = "map", .ns = map},
        {.name = "filter", .ns = filter},       {.name = "window", .ns = window},
        {.name = "expand", .ns = expander},     {.name = "zip", .ns = zipped},
        {.name = "mix", .ns = mixed},           {.name = "scratch", .ns = in_a_row},
        {.name = "map_fused", .ns = map_fused}, {.name = "zip_fused", .ns = zip_fused}};
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
