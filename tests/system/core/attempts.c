/* needs: join scratch */
/* A row that says nothing in workers has the workers and the retries of the row before, in whose
   attempt it runs or not. Its callback fails once for item 3: all batches come, and no call is in
   the consumer's thread, unless the row before runs there. In a cell a row has a deadline_ms of its
   own, which holds for its callback alone. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ITEMS = 8, ROWS = 2, WORKERS = 2, RETRIES = 2 };

static pthread_t consumer_;
static int inline_, failed_; /* calls in the consumer's thread; failures of the row */

static int first(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index;
    return 0;
}
static int make_one(void *user, dlp_expand *x) {
    dlp_item *it = dlp_expand_add(x);
    (void)user;
    *(uint64_t *)it->data[0] = *(const uint64_t *)x->item->data[0];
    return 0;
}
static int change_nothing(void *user, dlp_item *it) { return (void)user, (void)it, 0; }

/* The row in question. */
static int fail_once(void *user, dlp_item *it) {
    (void)user;
    if (pthread_equal(pthread_self(), consumer_)) __atomic_add_fetch(&inline_, 1, __ATOMIC_SEQ_CST);
    if (it->attempt != 0 || it->index != 3) return 0;
    __atomic_add_fetch(&failed_, 1, __ATOMIC_SEQ_CST);
    return 5;
}

/* Run a table. own: the row has a stage of its own. here: it runs in the consumer. */
static void run(const char *what, const dlp_node *nodes, uint32_t n, int own, int here) {
    dlp_error e = {.code = 0};
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    int batches = 0, rc;
    consumer_ = pthread_self();
    inline_ = failed_ = 0;
    CHECK(dlp_pipe_open(&p, nodes, n, NULL, &e) == DLP_OK);
    if (p == NULL) {
        printf("  %s: %s\n", what, e.message);
        return;
    }
    CHECK((dlp_node_stage(p, "row") >= 0) == own);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (strcmp(b->fields[0].name, "a") == 0)
            for (uint32_t i = 0; i < b->count; i++)
                CHECK(((const uint64_t *)b->fields[0].data)[i] == b->index[i]);
        batches++;
        dlp_pipe_release(p, b);
    }
    CHECK(failed_ == 1);
    CHECK(rc == DLP_END && batches == ITEMS / ROWS && (inline_ != 0) == here);
    if (rc != DLP_END) printf("  %s: %s\n", what, dlp_pipe_error(p)->message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static const dlp_field a_ = {.name = "a", .dtype = DLP_U64}, b_ = {.name = "b", .dtype = DLP_U64},
                       c_ = {.name = "c", .dtype = DLP_U64};
static const dlp_workers_desc some_ = {.num_workers = WORKERS, .retries = RETRIES};

#define LIST \
    { \
        .name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS } \
    }
#define BATCH \
    { \
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS } \
    }
#define FETCH(named, f, call) \
    { \
        .name = named, .verb = DLP_FETCH, .fetch = {.fetch = call, .fields = f, .n_fields = 1 } \
    }
#define MAP(named, call) \
    { \
        .name = named, .verb = DLP_MAP, .map = {.item = call } \
    }

static void attempts__rows_that_say_nothing__are_tried_as_the_row_before(void) {
    dlp_node second[] = {LIST, FETCH("f", &a_, first), FETCH("row", &b_, fail_once),
                         MAP("m", change_nothing), BATCH};
    dlp_node map[] = {LIST, FETCH("f", &a_, first), MAP("row", fail_once), BATCH};
    dlp_node behind[] = {LIST, FETCH("f", &a_, first), FETCH("g", &b_, first),
                         MAP("row", fail_once), BATCH};
    dlp_node maps[] = {LIST, FETCH("f", &a_, first), MAP("m", change_nothing),
                       MAP("row", fail_once), BATCH};
    second[1].workers = second[3].workers = map[1].workers = some_;
    behind[1].workers = behind[2].workers = maps[1].workers = maps[2].workers = some_;
    second[3].map.fields = &c_;
    second[3].map.n_fields = 1;
    run("a second fetch", second, 5, 0, 0);
    run("a map behind a fetch", map, 4, 0, 0);
    run("a map behind a map with workers", maps, 5, 0, 0);
    second[3].map.ends = "a";
    second[0].list.n_items = ITEMS;
    run("a second fetch, whose first field ends", second, 5, 1, 0);
    run("a map behind a second fetch with workers", behind, 5, 1, 0);
}

/* Behind a maker the row has a stage of its own. */
static void attempts__rows_behind_makers__are_tried_as_the_row_before(void) {
    for (int here = 0; here < 2; here++) {
        dlp_node rows[] = {
            LIST,
            FETCH("f", &a_, first),
            {.name = "one", .verb = DLP_EXPAND, .expand = {.expand = make_one, .max_out = 1}},
            MAP("row", fail_once),
            BATCH};
        rows[1].workers = some_;
        if (here) rows[1].workers.num_workers = DLP_NONE;
        run("a map behind an expand", rows, 5, 1, here);
    }
}

/* ---- a deadline of one row, among rows that run in the cells of inputs ---- */

enum { LIMIT_MS = 200 };

static unsigned hangs_ms_; /* the row's callback takes so long for item 3 */

static int slow_first(void *user, dlp_item *it) {
    if (it->index == 1) usleep(2 * LIMIT_MS * 1000);
    return first(user, it);
}
static void hang(const dlp_item *it) {
    if (it->index == 3) usleep(hangs_ms_ * 1000);
}
static int map_hangs(void *user, dlp_item *it) { return (void)user, hang(it), 0; }
static int keep_hangs(void *user, const dlp_item *it) { return (void)user, hang(it), 1; }
static int make_hangs(void *user, dlp_expand *x) { return hang(x->item), make_one(user, x); }
static int keep_all(void *user, const dlp_item *it) { return (void)user, (void)it, 1; }
static int make_slowly(void *user, dlp_expand *x) {
    const int rc = make_one(user, x);
    if (x->item->index == 2) usleep(2 * LIMIT_MS * 1000);
    return rc;
}

/* Take all batches of a table whose row "row" hangs or not, and check the error if it hangs. */
static void take(const dlp_node *nodes, uint32_t n, const char *what) {
    for (hangs_ms_ = 0; hangs_ms_ <= 5 * LIMIT_MS; hangs_ms_ += 5 * LIMIT_MS) {
#if TEST_PROCESSES
        static dlp_shm_desc shm = {.max_kills = 1};
        const dlp_pipe_desc d = {.shm = &shm};
#else
        const dlp_pipe_desc d = {.seed = 0};
#endif
        dlp_error e = {.code = 0};
        dlp_pipe *p = NULL;
        dlp_batch *b;
        int rc;
        CHECK(dlp_pipe_open(&p, nodes, n, &d, &e) == DLP_OK);
        if (p == NULL) {
            printf("  %s: %s\n", what, e.message);
            return;
        }
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == (hangs_ms_ > 0 ? DLP_ERR_DEADLINE : DLP_END));
        if (rc != DLP_END) e = *dlp_pipe_error(p);
        if (hangs_ms_ > 0) CHECK(strcmp(e.stage, "row") == 0 && strstr(e.message, "200") != NULL);
        if (test_failures) printf("  %s, %u: %s: %s\n", what, hangs_ms_, e.stage, e.message);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void cells__row_has_a_deadline__it_holds_for_its_callback_alone(int processes) {
    const dlp_node filter = {.name = "all", .verb = DLP_FILTER, .filter = {.keep = keep_all}};
    const dlp_node slowly = {
        .name = "slow", .verb = DLP_EXPAND, .expand = {.expand = make_slowly, .max_out = 1}};
    const dlp_node row[3] = {
        MAP("row", map_hangs),
        {.name = "row", .verb = DLP_FILTER, .filter = {.keep = keep_hangs}},
        {.name = "row", .verb = DLP_EXPAND, .expand = {.expand = make_hangs, .max_out = 1}}};
    static const char *const names[] = {"a map", "a filter", "an expand"};
    for (int k = 0; k < 3; k++) {
        dlp_node nodes[] = {LIST, FETCH("f", &a_, slow_first), slowly, row[k], filter, BATCH};
        nodes[1].workers = (dlp_workers_desc){
            .num_workers = 1, .placement = processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS};
        nodes[3].workers = (dlp_workers_desc){.deadline_ms = LIMIT_MS, .idempotent = 1};
        take(nodes, 6, names[k]);
        memmove(&nodes[2], &nodes[3],
                3 * sizeof *nodes); /* the row alone makes items, or a filter */
        if (k > 0) nodes[3] = nodes[4];
        take(nodes, k > 0 ? 4 : 5, names[k]);
    }
}

/* The row stands in a branch of a zip, or behind the zip. */
static void branches__row_has_a_deadline__it_holds_for_its_callback_alone(int behind) {
    const dlp_node filter = {.name = "row",
                             .verb = DLP_FILTER,
                             .filter = {.keep = keep_hangs},
                             .workers = {.deadline_ms = LIMIT_MS}};
    const char *const from[] = {behind ? "f" : "row", "g", NULL};
    dlp_node nodes[8] = {
        LIST, FETCH("f", &a_, slow_first), filter,
        LIST, FETCH("g", &b_, first),      {.name = "zip", .verb = DLP_ZIP, .from = from},
        BATCH};
    nodes[3].name = "list2";
    nodes[1].workers.num_workers = nodes[4].workers.num_workers = 1;
    if (behind) {
        memmove(&nodes[2], &nodes[3], 3 * sizeof *nodes);
        nodes[5] = filter;
    }
    take(nodes, 7, behind ? "behind a zip" : "in a branch");
}

/* What does not hold for a callback alone is still said by one row. */
static void cells__two_rows_name_workers__refused(void) {
    dlp_node nodes[] = {LIST,
                        FETCH("f", &a_, first),
                        {.name = "row", .verb = DLP_FILTER, .filter = {.keep = keep_all}},
                        BATCH};
    dlp_plan plan;
    dlp_error e = {.code = 0};
    nodes[1].workers.num_workers = 1;
    nodes[2].workers = (dlp_workers_desc){.deadline_ms = 5, .retries = 1};
    CHECK(dlp_nodes_plan(nodes, 4, NULL, &plan, &e) == DLP_ERR_ARG);
    CHECK(strstr(e.message, "share workers") != NULL);
    nodes[2].workers = (dlp_workers_desc){.deadline_ms = -5};
    CHECK(dlp_nodes_plan(nodes, 4, NULL, &plan, &e) == DLP_ERR_ARG);
    CHECK(strcmp(e.stage, "row") == 0 && strcmp(e.field, "deadline_ms") == 0);
}

int main(void) {
    for (int two = 0; two < 2; two++) {
        if (TEST_PROCESSES || !two) cells__row_has_a_deadline__it_holds_for_its_callback_alone(two);
        branches__row_has_a_deadline__it_holds_for_its_callback_alone(two);
    }
    cells__two_rows_name_workers__refused();
    attempts__rows_behind_makers__are_tried_as_the_row_before();
    attempts__rows_that_say_nothing__are_tried_as_the_row_before();
    return test_end("attempts");
}
