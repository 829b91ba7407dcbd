/* needs: join scratch */
/* A row that says nothing in workers has the workers and the retries of the row before, in whose
   attempt it runs or not. Its callback fails once for item 3: all batches come, and no call is in
   the consumer's thread, unless the row before runs there. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

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

int main(void) {
    attempts__rows_behind_makers__are_tried_as_the_row_before();
    attempts__rows_that_say_nothing__are_tried_as_the_row_before();
    return test_end("attempts");
}
