/* needs: join scratch */
/* A row that says nothing in workers has the workers and the retries of the row before, in whose
   attempt it runs or not. Its callback fails once for item 3: all batches come, and no call is in
   the consumer's thread, unless the row before runs there. In a cell a row has a deadline_ms of its
   own, which holds for its callback alone. Each row has retries, a back-off, on_error and max_skips
   of its own, in rows and in cells: what comes, and who is named, is what a direct count says. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef SIGKILL
#define SIGKILL SIGABRT /* no process is killed there */
#endif

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
    nodes[2].workers = (dlp_workers_desc){.deadline_ms = 5, .num_workers = 1};
    CHECK(dlp_nodes_plan(nodes, 4, NULL, &plan, &e) == DLP_ERR_ARG);
    CHECK(strstr(e.message, "share workers") != NULL);
    nodes[2].workers = (dlp_workers_desc){.deadline_ms = -5};
    CHECK(dlp_nodes_plan(nodes, 4, NULL, &plan, &e) == DLP_ERR_ARG);
    CHECK(strcmp(e.stage, "row") == 0 && strcmp(e.field, "deadline_ms") == 0);
}

/* ---- each row has a policy of its own: what comes is what a direct count says ---- */

enum { BADS = 2, MADE = 2, ROWS_MOST = 6, INPUTS = 8, OTHER = 1000, BUMP = 10000 };
enum { IN_ROWS, IN_CELLS, IN_PARTS, IN_A_BRANCH, BEHIND_A_MIX, CHAINS };

typedef struct verb { /* a row of a chain */
    const char *name;
    int32_t verb;
    int behind; /* its callback gets each of the MADE items of an input */
} verb;

static const verb rows_[] = {
    {"f", DLP_FETCH, 0}, {"m", DLP_MAP, 0}, {"g", DLP_FETCH, 0}, {"n", DLP_MAP, 0}};
static const verb cells_[] = {{"f", DLP_FETCH, 0},  {"g", DLP_FETCH, 0}, {"k", DLP_FILTER, 0},
                              {"x", DLP_EXPAND, 0}, {"m", DLP_MAP, 1},   {"l", DLP_FILTER, 1}};
static const verb parts_[] = {
    {"p", DLP_LOAD, 0}, {"f", DLP_FETCH, 1}, {"m", DLP_MAP, 1}, {"k", DLP_FILTER, 1}};
static const verb behind_[] = {{"f", DLP_FETCH, 0},  {"m", DLP_MAP, 0}, {"k", DLP_FILTER, 0},
                               {"x", DLP_EXPAND, 0}, {"n", DLP_MAP, 1}, {"l", DLP_FILTER, 1}};
static const struct {
    const verb *row;
    uint32_t n;
} chains_[CHAINS] = {{rows_, 4}, {cells_, 6}, {parts_, 4}, {cells_, 6}, {behind_, 6}};
static const uint64_t bad_[BADS] = {3, 5}; /* inputs for which callbacks fail */

typedef struct count { /* how often each row fails for each item of these inputs from now on */
    uint32_t left[ROWS_MOST][BADS][MADE];
} count;

static count *all_;     /* shared with worker processes */
static uint32_t kills_; /* 1 + the row whose callback ends its process; 0: none */
static int once_;       /* it does so once for each item, and max_kills allows it */

static int fail(const void *user, uint64_t value) {
    const uintptr_t row = (uintptr_t)user;
    for (uint32_t b = 0; b < BADS; b++) {
        uint32_t *left = &all_->left[row][b][value % MADE];
        if (value % BUMP / MADE != bad_[b] || __atomic_load_n(left, __ATOMIC_SEQ_CST) == 0)
            continue;
        if (kills_ == row + 1 && !once_) raise(SIGKILL);
        __atomic_fetch_sub(left, 1, __ATOMIC_SEQ_CST);
        if (kills_ == row + 1) raise(SIGKILL);
        return -7;
    }
    return 0;
}
static int one_fetch(void *user, dlp_item *it) {
    const uint64_t part = it->part != NULL ? it->part->index : it->index;
    const uint64_t value = part * MADE + (it->part != NULL ? it->part->item : 0);
    *(uint64_t *)it->data[0] = value;
    return fail(user, value);
}
/* It changes the item in place, and then fails: another try must begin with the fetch. */
static int one_map(void *user, dlp_item *it) {
    return fail(user, *(uint64_t *)it->data[0] += BUMP);
}
static int one_keep(void *user, const dlp_item *it) {
    const int rc = fail(user, *(const uint64_t *)it->data[0]);
    return rc != 0 ? rc : 1;
}
static int one_load(void *user, dlp_part *part) {
    part->items = MADE;
    part->bytes = 1;
    return fail(user, part->index * MADE);
}
static int one_expand(void *user, dlp_expand *x) {
    const uint64_t value = *(const uint64_t *)x->item->data[0];
    const int rc = fail(user, value);
    for (uint64_t j = 0; j < MADE && rc == 0; j++)
        *(uint64_t *)dlp_expand_add(x)->data[0] = value + j;
    return rc;
}
static int other_fetch(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = OTHER;
    return 0;
}

static const dlp_field ab_[] = {{.name = "a", .dtype = DLP_U64}, {.name = "b", .dtype = DLP_U64}};

typedef struct policies {
    int chain, processes;
    uint32_t by; /* the row that names the workers */
    dlp_workers_desc w[ROWS_MOST];
} policies;

static dlp_node node_of(const policies *q, uint32_t i) {
    const verb *v = &chains_[q->chain].row[i];
    void *user = (void *)(uintptr_t)i;
    dlp_node node = {.name = v->name, .verb = v->verb, .workers = q->w[i]};
    if (i == q->by) node.workers.num_workers = 1;
    if (i == q->by && q->processes) node.workers.placement = DLP_PLACE_PROCESSES;
    switch (v->verb) {
    case DLP_FETCH:
        node.fetch = (dlp_node_fetch){.fetch = one_fetch,
                                      .user = user,
                                      .fields = strcmp(v->name, "g") ? &ab_[0] : &ab_[1],
                                      .n_fields = q->chain == BEHIND_A_MIX ? 2 : 1};
        break;
    case DLP_MAP: node.map = (dlp_node_map){.item = one_map, .user = user}; break;
    case DLP_FILTER: node.filter = (dlp_node_filter){.keep = one_keep, .user = user}; break;
    case DLP_EXPAND:
        node.expand = (dlp_node_expand){.expand = one_expand, .user = user, .max_out = MADE};
        break;
    default:
        node.load =
            (dlp_node_load){.load = one_load, .user = user, .max_items = MADE, .max_part_bytes = 8};
    }
    return node;
}

/* Write a branch of other items, with a policy of its own. Returns its number of rows. */
static uint32_t others_of(const policies *q, dlp_node *to) {
    to[0] = (dlp_node)LIST;
    to[0].name = "others";
    to[0].list.n_items = 8 * INPUTS;
    to[1] = (dlp_node)FETCH("o", ab_, other_fetch);
    to[1].fetch.n_fields = 2;
    to[1].workers = (dlp_workers_desc){.num_workers = 1, .retries = 3};
    to[1].workers.placement = q->processes ? DLP_PLACE_PROCESSES : 0;
    return 2;
}

/* Write the table into to[]. Returns its number of rows. */
static uint32_t table_of(const policies *q, dlp_node *to) {
    static const char *const a_branch[] = {"o", "l", NULL}, *const behind[] = {"f", "o", NULL};
    const dlp_node mix = {
        .name = "mix", .verb = DLP_MIX, .from = q->chain == IN_A_BRANCH ? a_branch : behind};
    uint32_t n = q->chain == IN_A_BRANCH ? others_of(q, to) : 0;
    to[n++] = (dlp_node)LIST;
    for (uint32_t i = 0; i < chains_[q->chain].n; i++) {
        to[n++] = node_of(q, i);
        if (q->chain != BEHIND_A_MIX || i > 0) continue;
        n += others_of(q, to + n);
        to[n++] = mix;
    }
    if (q->chain == IN_A_BRANCH) to[n++] = mix;
    to[n] = (dlp_node)BATCH;
    to[n++].batch.batch_size = 1;
    return n;
}

typedef struct outcome {
    int code;
    const char *stage; /* the row that is named */
    uint32_t bad;      /* how many of the bad inputs came to their end */
    uint64_t skips;    /* inputs that are listed as left out, as a whole or in part */
    uint64_t values[INPUTS * MADE];
    uint32_t n;
} outcome;

/* Return what holds for row i: what it says, else what the row with the workers says. */
static const dlp_workers_desc *policy_of(const policies *q, uint32_t i) {
    const dlp_workers_desc *w = &q->w[i];
    const int own = w->retries != 0 || w->retry_backoff_ms != 0 || w->on_error || w->max_skips;
    return own ? w : &q->w[q->by];
}

/* Count a failure of row i that may be left out. Returns false if it is an error, in *o. */
static int count_left(const policies *q, uint32_t i, uint32_t first, uint64_t *failed, outcome *o) {
    const int64_t most = policy_of(q, i)->max_skips;
    if (most != DLP_NONE && (++*failed <= (uint64_t)most || most == 0)) return 1;
    o->code = DLP_ERR_BUDGET;
    o->stage = chains_[q->chain].row[first].name;
    return 0;
}

/* Come to the end of bad input b, as the library is to. Returns false at an error, in *o. */
static int count_input(const policies *q, count *c, uint32_t b, uint64_t *failed, outcome *o) {
    const verb *row = chains_[q->chain].row;
    const uint32_t n = chains_[q->chain].n, items = q->chain == IN_ROWS ? 1 : MADE;
    for (int32_t tries = 0;; tries++) {
        uint32_t left[MADE], n_left = 0, at = ROWS_MOST, kept = o->n;
        for (uint32_t i = 0; i < n && at == ROWS_MOST; i++)
            if (!row[i].behind && c->left[i][b][0] > 0) at = i;
        if (at < ROWS_MOST) c->left[at][b][0] -= kills_ == 0;
        for (uint32_t j = 0; j < items && at == ROWS_MOST; j++) {
            uint32_t i = 0;
            while (i < n && (!row[i].behind || c->left[i][b][j] == 0)) i++;
            if (i == n) {
                o->values[kept++] = bad_[b] * MADE + j;
                continue;
            }
            c->left[i][b][j] -= kills_ == 0;
            if (kills_ == 0 && policy_of(q, i)->on_error == DLP_ON_ERROR_DROP &&
                tries >= policy_of(q, i)->retries)
                left[n_left++] = i;
            else
                at = i;
        }
        if (at == ROWS_MOST) {
            for (uint32_t k = 0; k < n_left; k++)
                if (!count_left(q, left[k], left[0], failed, o)) return 0;
            o->n = kept;
            o->skips += n_left > 0;
            return 1;
        }
        if (kills_ == 0 && tries < policy_of(q, at)->retries) continue;
        o->skips += policy_of(q, at)->on_error == DLP_ON_ERROR_DROP;
        if (policy_of(q, at)->on_error == DLP_ON_ERROR_DROP)
            return count_left(q, at, at, failed, o);
        o->code = kills_ ? DLP_ERR_KILLED : DLP_ERR_CALLBACK;
        o->stage = row[at].name;
        return 0;
    }
}

static outcome count_all(const policies *q, count *c) {
    outcome o = {.code = DLP_END, .stage = ""};
    uint64_t failed = 0;
    for (uint64_t k = 0; k < INPUTS; k++) {
        uint32_t b = 0;
        while (b < BADS && bad_[b] != k) b++;
        if (b < BADS && !count_input(q, c, b, &failed, &o)) break;
        o.bad += b < BADS;
        for (uint32_t j = 0; b == BADS && j < (q->chain == IN_ROWS ? 1 : MADE); j++)
            o.values[o.n++] = k * MADE + j;
    }
    return o;
}

/* Run the table, whose rows fail as *all_ says, and compare with the count. */
static void policies_run(const policies *q, uint64_t k) {
#if TEST_PROCESSES
    dlp_shm_desc shm = {.max_kills = once_ ? 100 : 1};
    const dlp_pipe_desc d = {.shm = &shm};
#else
    const dlp_pipe_desc d = {.seed = 0};
#endif
    count c = *all_;
    if (once_) memset(&c, 0, sizeof c); /* no item fails for good */
    const outcome want = count_all(q, &c);
    uint64_t maps = 0, skips;
    dlp_node nodes[16];
    const uint32_t n = table_of(q, nodes);
    dlp_error e = {.code = 0};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint32_t got = 0, wrong = 0;
    int rc;
    for (uint32_t i = 0; i < chains_[q->chain].n; i++)
        maps += chains_[q->chain].row[i].verb == DLP_MAP;
    CHECK(dlp_pipe_open(&p, nodes, n, &d, &e) == DLP_OK);
    if (p == NULL) {
        printf("  chain %d, case %u: %s: %s\n", q->chain, (unsigned)k, e.stage, e.message);
        return;
    }
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        const uint64_t value = *(const uint64_t *)b->fields[0].data;
        if (b->valid[0] && value % BUMP < OTHER)
            wrong += got >= want.n || want.values[got] + maps * BUMP != value, got++;
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) e = *dlp_pipe_error(p);
    CHECK(dlp_pipe_skips(p, NULL, 0, &skips) == 0);
    wrong += rc == DLP_END && skips != want.skips;
    wrong += got != want.n || rc != want.code || strcmp(e.stage, want.stage) != 0;
    for (uint32_t i = 0; i < ROWS_MOST; i++)
        for (uint32_t j = 0; j < BADS * MADE && j / MADE <= want.bad; j++)
            wrong += all_->left[i][j / MADE][j % MADE] != c.left[i][j / MADE][j % MADE];
    CHECK(wrong == 0);
    if (wrong > 0)
        printf("  chain %d, case %u: %d of \"%s\", %u rows; must be %d of \"%s\", %u: %s\n",
               q->chain, (unsigned)k, rc, e.stage, got, want.code, want.stage, want.n, e.message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void rows__each_has_its_own_policy__as_a_direct_count_says(void) {
    static const int64_t skips[] = {0, 0, 1, 1, 2, 3, DLP_NONE};
    const uint64_t cases = getenv("SOAK") ? 2000 : getenv("SHORT") ? 12 : 64;
    for (uint64_t k = 0; k < cases * CHAINS; k++) {
        policies q = {.chain = (int)(k % CHAINS),
                      .processes = TEST_PROCESSES && k / CHAINS % 12 == 0};
        const verb *row = chains_[q.chain].row;
        const uint32_t n = chains_[q.chain].n;
        const int fixed = q.chain == IN_ROWS || q.chain == BEHIND_A_MIX;
        memset(all_, 0, sizeof *all_);
        q.by = fixed ? 0 : (uint32_t)(dlp_hash(1, k, 0, 0) % n);
        for (uint32_t i = 0; i < n; i++) {
            if (dlp_hash(2, k, i, 0) % 3 > 0)
                q.w[i] = (dlp_workers_desc){
                    .retries = (int32_t)(dlp_hash(3, k, i, 0) % 4),
                    .retry_backoff_ms = (int32_t)(dlp_hash(4, k, i, 0) % 8 == 0),
                    .on_error = dlp_hash(5, k, i, 0) % 4 > 0 ? DLP_ON_ERROR_DROP : 0,
                    .max_skips = skips[dlp_hash(6, k, i, 0) % 7]};
            if (q.chain == IN_ROWS && q.w[i].max_skips > 0) q.w[i].max_skips = 9; /* no order */
            for (uint32_t j = 0; j < BADS * MADE; j++)
                if ((row[i].behind || j % MADE == 0) && dlp_hash(7, k, i, j) % 3 == 0 &&
                    (i > 0 || q.chain != BEHIND_A_MIX))
                    all_->left[i][j / MADE][j % MADE] = (uint32_t)(dlp_hash(8, k, i, j) % 4);
        }
        policies_run(&q, k);
    }
}

#if TEST_PROCESSES
/* A row's callback ends its process for an item, always or once: the row is named, its on_error
   holds, and no map has changed an item twice. */
static void processes__die_in_a_row__its_policy_holds(void) {
    for (uint32_t k = 0; k < 36; k++) {
        policies q = {.chain = (int)(k / 12), .processes = 1};
        const uint32_t n = chains_[q.chain].n, row = k % n;
        if (q.chain != IN_ROWS) q.by = (k + 3) % n;
        memset(all_, 0, sizeof *all_);
        once_ = k % 3 == 0;
        kills_ = 1 + row;
        all_->left[row][0][0] = 1;
        all_->left[row][1][chains_[q.chain].row[row].behind ? MADE - 1 : 0] = (uint32_t)once_;
        for (uint32_t i = 0; i < n; i++) q.w[i].retries = 1;
        q.w[row].on_error = k / 6 % 2 == 0 ? DLP_ON_ERROR_DROP : 0;
        policies_run(&q, k);
    }
    kills_ = 0;
    once_ = 0;
}

static int dies_at_3(void *user, dlp_item *it) {
    if (it->index == 3) raise(SIGKILL);
    return first(user, it);
}

/* A process dies in the first row of a cell that has only a fetch, a map and a filter, or an
   expand. Its policy holds already at the first death: the item is left out, and nothing else. */
static void processes__die_in_a_fetch_before_a_maker__its_policy_holds(int expands) {
    static const dlp_node makers[] = {
        {.name = "k", .verb = DLP_FILTER, .filter = {.keep = keep_all}},
        {.name = "x", .verb = DLP_EXPAND, .expand = {.expand = make_one, .max_out = 1}}};
    dlp_node nodes[] = {LIST, FETCH("f", &a_, dies_at_3), MAP("m", change_nothing), makers[expands],
                        BATCH};
    dlp_shm_desc shm = {.max_kills = 1};
    const dlp_pipe_desc d = {.shm = &shm};
    dlp_error e = {.code = 0};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    uint64_t skips, rows = 0;
    dlp_skip skip;
    int rc;
    nodes[1].workers.on_error = DLP_ON_ERROR_DROP;
    nodes[3].workers =
        (dlp_workers_desc){.num_workers = 1, .placement = DLP_PLACE_PROCESSES, .retries = 1};
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &d, &e) == DLP_OK);
    if (p == NULL) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        rows += b->valid_count;
        dlp_pipe_release(p, b);
    }
    CHECK(rc == DLP_END && rows == ITEMS - 1);
    if (rc != DLP_END) printf("  %s: %s\n", dlp_pipe_error(p)->stage, dlp_pipe_error(p)->message);
    CHECK(dlp_pipe_skips(p, &skip, 1, &skips) == 1 && skips == 1);
    CHECK(skip.index == 3 && skip.code == DLP_ERR_KILLED);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}
#endif

/* What cannot hold for a row of a cell is refused by the row's name. */
static void cells__policy_that_cannot_hold__refused(void) {
    static const char *const from[] = {"k", "g", NULL};
    dlp_node nodes[] = {
        LIST,
        FETCH("f", &a_, first),
        {.name = "k", .verb = DLP_FILTER, .filter = {.keep = keep_all}},
        LIST,
        FETCH("g", &b_, first),
        {.name = "zip", .verb = DLP_ZIP, .from = from},
        BATCH,
    };
    dlp_node alone[] = {nodes[0], nodes[1], nodes[2], nodes[6]};
    dlp_plan plan;
    dlp_error e = {.code = 0};
    alone[1].workers.num_workers = 1;
    alone[2].workers.on_error = DLP_ON_ERROR_REPLACE;
    CHECK(dlp_nodes_plan(alone, 4, NULL, &plan, &e) == DLP_ERR_ARG);
    CHECK(strcmp(e.stage, "k") == 0 && strstr(e.message, "no replacement") != NULL);
    alone[2].workers = (dlp_workers_desc){.retries = 101};
    CHECK(dlp_nodes_plan(alone, 4, NULL, &plan, &e) == DLP_ERR_ARG);
    CHECK(strcmp(e.stage, "k") == 0 && strcmp(e.field, "retries") == 0);
    nodes[3].name = "list2";
    nodes[1].workers = (dlp_workers_desc){.num_workers = 1, .retries = 1};
    nodes[4].workers = (dlp_workers_desc){.num_workers = 1, .on_error = DLP_ON_ERROR_DROP};
    CHECK(dlp_nodes_plan(nodes, 7, NULL, &plan, &e) == DLP_OK);
    nodes[2].workers.on_error = DLP_ON_ERROR_DROP;
    CHECK(dlp_nodes_plan(nodes, 7, NULL, &plan, &e) == DLP_ERR_ARG);
    CHECK(strcmp(e.stage, "k") == 0 && strstr(e.message, "branch of a zip") != NULL);
}

int main(void) {
    all_ = mmap(NULL, sizeof *all_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int two = 0; two < 2; two++) {
        if (TEST_PROCESSES || !two) cells__row_has_a_deadline__it_holds_for_its_callback_alone(two);
        branches__row_has_a_deadline__it_holds_for_its_callback_alone(two);
    }
    cells__two_rows_name_workers__refused();
    cells__policy_that_cannot_hold__refused();
    rows__each_has_its_own_policy__as_a_direct_count_says();
#if TEST_PROCESSES
    processes__die_in_a_row__its_policy_holds();
    for (int expands = 0; expands < 2; expands++)
        processes__die_in_a_fetch_before_a_maker__its_policy_holds(expands);
#endif
    attempts__rows_behind_makers__are_tried_as_the_row_before();
    attempts__rows_that_say_nothing__are_tried_as_the_row_before();
    return test_end("attempts");
}
