/* needs: parts */
/* How many workers a table has if it does not say it: those that copy made items, and those of
   branches, take the cores that the workers of the table leave, and no more. What a table says
   stays. The rows are the same with any number of cores. */
/* own: pinning: it gives itself few processors */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <sched.h>
#include <string.h>

enum { BRANCHES = 3, WIDE = 98, ITEMS = 512 };

static const dlp_field x_ = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {WIDE}};

static int fetch_item(void *user, dlp_item *it) {
    const uint64_t *first = user;
    ((uint64_t *)it->data[0])[0] = it->index + *first;
    return 0;
}
static int keep_item(void *user, const dlp_item *it) { return (void)user, it->index % 3 != 0; }

static int usable_; /* cores that the process may use: fewer than processors if it has a quota */

/* Ask a pipe for the cores that the process may use. */
static int usable(void) {
    static uint64_t zero;
    const dlp_node t[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 1}},
        {.name = "f",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch_item, .user = &zero, .fields = &x_, .n_fields = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}}};
    dlp_stats stats = {.cpus = 0};
    dlp_pipe *p = NULL;
    CHECK(dlp_pipe_open(&p, t, 3, NULL, NULL) == DLP_OK);
    if (p == NULL) return 1;
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    return (int)stats.cpus;
}

/* Let the process run on the first n of these processors. Returns false if it may use fewer. */
static bool cores(const cpu_set_t *all, int n) {
    cpu_set_t few;
    if (n > usable_) return false;
    CPU_ZERO(&few);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&few) < n; c++)
        if (CPU_ISSET((size_t)c, all)) CPU_SET((size_t)c, &few);
    return CPU_COUNT(&few) == n && sched_setaffinity(0, sizeof few, &few) == 0;
}

/* Return the workers of the plan's stage of this name, or of the stage that copies; -2: none. */
static int workers_of(const dlp_plan *plan, const char *name) {
    for (uint32_t i = 0; i < plan->n_stages; i++)
        if (strcmp(name ? plan->stages[i].name : plan->stages[i].what, name ? name : "copy") == 0)
            return plan->stages[i].workers;
    return -2;
}

static uint64_t sum_of(const dlp_node *nodes, uint32_t n) {
    dlp_pipe_desc d = {.seed = 3, .steps_per_epoch = 4};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint64_t sum = 1;
    CHECK(dlp_pipe_open(&p, nodes, n, &d, NULL) == DLP_OK);
    while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++)
            sum = sum * 31 + ((const uint64_t *)b->fields[0].data)[r * WIDE];
        dlp_pipe_release(p, b);
    }
    CHECK(p != NULL && dlp_pipe_close(p) == DLP_OK);
    return sum;
}

static void staff__copies_not_said__cores_that_are_left(const cpu_set_t *all) {
    uint64_t zero = 0, sum = 0;
    dlp_node t[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
                    {.name = "f",
                     .verb = DLP_FETCH,
                     .fetch = {.fetch = fetch_item, .user = &zero, .fields = &x_, .n_fields = 1}},
                    {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_item}},
                    {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 64}}};
    const dlp_pipe_desc d = {.seed = 3, .steps_per_epoch = 4};
    for (int n = 1; cores(all, n); n++)
        for (int32_t makers = 1; makers <= 4; makers++) {
            const int spare = n > makers ? n - makers : 0, most = makers < 2 ? makers : 2;
            dlp_plan plan;
            t[1].workers.num_workers = makers;
            CHECK(dlp_nodes_plan(t, 4, &d, &plan, NULL) == DLP_OK);
            CHECK(workers_of(&plan, "keep") == makers);
            CHECK(workers_of(&plan, NULL) == (spare < most ? spare : most));
            t[3].batch.copy_workers = 2; /* it is said */
            CHECK(dlp_nodes_plan(t, 4, &d, &plan, NULL) == DLP_OK);
            CHECK(workers_of(&plan, NULL) == 2);
            t[3].batch.copy_workers = 0;
            t[3].batch.batch_size = 2048; /* above 1 MiB: the consumer never copies it */
            CHECK(dlp_nodes_plan(t, 4, &d, &plan, NULL) == DLP_OK);
            CHECK(workers_of(&plan, NULL) == (spare > 1 && most > 1 ? 2 : 1));
            t[3].batch.batch_size = 64;
            if (sum == 0) sum = sum_of(t, 4);
            CHECK(sum == sum_of(t, 4));
        }
}

static void staff__branches_that_say_nothing__one_each_while_a_core_is_left(const cpu_set_t *all) {
    static uint64_t first[BRANCHES] = {0, 1000, 2000};
    static char names[BRANCHES][2][8];
    const char *from[BRANCHES + 1] = {NULL};
    dlp_node t[2 * BRANCHES + 2];
    uint64_t sum = 0;
    memset(t, 0, sizeof t);
    for (int k = 0; k < BRANCHES; k++) {
        snprintf(names[k][0], 8, "list%d", k);
        snprintf(names[k][1], 8, "f%d", k);
        t[2 * k] = (dlp_node){
            .name = names[k][0], .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}};
        t[2 * k + 1] = (dlp_node){
            .name = names[k][1],
            .verb = DLP_FETCH,
            .fetch = {.fetch = fetch_item, .user = &first[k], .fields = &x_, .n_fields = 1}};
        from[k] = names[k][1];
    }
    t[2 * BRANCHES] = (dlp_node){.name = "mix", .from = from, .verb = DLP_MIX};
    t[2 * BRANCHES + 1] =
        (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 64}};
    const dlp_pipe_desc d = {.seed = 3, .steps_per_epoch = 4};
    for (int n = 1; cores(all, n); n++)
        for (int32_t said = 0; said <= 3; said++) {
            const int spare = n > said ? n - said : said == 0, unsaid = BRANCHES - (said > 0);
            dlp_plan plan;
            t[3].workers.num_workers = said;
            CHECK(dlp_nodes_plan(t, 2 * BRANCHES + 2, &d, &plan, NULL) == DLP_OK);
            CHECK(workers_of(&plan, "mix") == said + (unsaid < spare ? unsaid : spare));
            if (sum == 0) sum = sum_of(t, 2 * BRANCHES + 2);
            CHECK(sum == sum_of(t, 2 * BRANCHES + 2));
        }
}

int main(void) {
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    usable_ = usable();
    CHECK(usable_ >= 1);
    staff__copies_not_said__cores_that_are_left(&all);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    staff__branches_that_say_nothing__one_each_while_a_core_is_left(&all);
    return test_end("staff");
}
