/* needs: join cache */
/* Maps and later fetches that name no workers run in the attempt of the fetch before them. Their
   rows are the same bytes as with a stage for each of them (DLP_NONE), with threads, several reads
   in a worker, or processes that die; resumed, tried again, left out, replaced and kept. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <signal.h>

enum { ITEMS = 120, ROWS = 8, EPOCHS = 2, BATCHES = ITEMS / ROWS * EPOCHS, MOST = 7 };

static const char *const names[] = {"items", "read", "add", "labels", "turn"};
static const dlp_field fixed_fields[] = {{"x", DLP_U64, 0, {0}, 0, 0},
                                         {"text", DLP_U8, 1, {MOST}, 0, 0}};
static const dlp_field base_fields[] = {{"x", DLP_U64, 0, {0}, 0, 0},
                                        {"text", DLP_U8, 1, {MOST}, 1, 0}};
static const dlp_field sum_field = {"sum", DLP_U64, 0, {0}, 0, 0};
static const dlp_field label_field = {"label", DLP_U32, 0, {0}, 0, 0};
static const dlp_field tail_fields[] = {{"tail", DLP_U8, 1, {MOST}, 1, 0},
                                        {"tail", DLP_U8, 1, {MOST}, 0, 0}};

static struct shared {
    uint32_t fetched, summed, labelled, turned, wrong, kills;
    uint32_t tried[ITEMS];
} * all;

static struct how {
    int32_t own; /* num_workers of the rows behind the fetch: 0, or DLP_NONE */
    uint32_t in_flight;
    int32_t workers, placement, on_error, retries, deadline_ms;
    int deal, async;            /* async: the fetch is an asynchronous source */
    dlp_workers_desc policy[5]; /* what rows 2 to 4 say of their failures */
    int fails, rc;  /* this row fails at each tenth item: 1 fetch, 2 sum, 3 label, 4 turn */
    int words;      /* ... by dlp_fail */
    uint32_t until; /* ... in so many attempts; 0: in all */
    uint32_t kill_every;
    uint64_t cache, too_long;
    int bad_length; /* 1 + the field of fixed size whose length the last row sets */
    int dies;       /* this row kills its process at item 33 */
    int hangs;      /* this row takes long at item 33 */
    int slow;       /* this row takes 500 ms at item 44 */
    int stuck;      /* this row takes long at each item of the first epoch's fifth batch */
} how;

static int fixed; /* 1: no field is ragged */
static int only;  /* not 0: the number of the node that alone stands behind the fetch */
static pthread_t consumer;
static pid_t caller;

static uint32_t count(uint32_t *n) { return __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }

static void see(const dlp_item *it, uint32_t n) {
    const bool here = getpid() == caller && pthread_equal(pthread_self(), consumer);
    if (it->n_fields != n || it->worker_state != NULL || it->row != it->position % ROWS)
        count(&all->wrong);
    if (n > 1 && (how.own == 0) == (here != 0) && how.workers > 0) count(&all->wrong);
}

/* Write over all of an item that a callback may write over: nobody else sees it. */
static int spoiled(dlp_item *it, int rc) {
    for (uint32_t f = 0; f < it->n_fields; f++) it->data[f] = NULL;
    memset(it, 0xff, sizeof *it);
    return rc;
}

static int maybe_fails(int row, const dlp_item *it) {
    if (how.kill_every > 0 && row == 4 && count(&all->kills) % how.kill_every == 0) {
        if (getpid() != caller) kill(getpid(), SIGKILL);
    }
    if (how.dies == row && it->index == 33 && getpid() != caller) kill(getpid(), SIGKILL);
    if (how.hangs == row && it->index == 33)
        for (int i = 0; i < 300 && how.hangs != 0; i++) usleep(20000);
    if (how.slow == row && it->index == 44) usleep(500000);
    if (how.stuck == row && it->epoch == 0 && it->position / ROWS == 4) usleep(10000000);
    if (how.fails != row || it->index % 10 != 7) return 0;
    if (how.until > 0 && count(&all->tried[it->index]) > how.until) return 0;
    if (how.words) return dlp_fail(it->call, 5, "item %d is bad", (int)it->index);
    return how.rc;
}

static int fetch(void *user, dlp_item *it) {
    (void)user;
    if (it->n_fields != 2 || it->row != it->position % ROWS) count(&all->wrong);
    if (how.workers > 0 && getpid() == caller && pthread_equal(pthread_self(), consumer))
        count(&all->wrong);
    count(&all->fetched);
    *(uint64_t *)it->data[0] = it->index * 1000 + dlp_item_random(it, 1) % 7;
    if (!fixed) it->length[1] = it->index % (MOST + 1);
    memset(it->data[1], (int)it->index, MOST); /* also behind the length */
    if (how.fails > 0) dlp_fail(it->call, 9, "it went well after all");
    if (how.too_long && it->index == 33) it->length[1] = MOST + 1;
    return spoiled(it, 0);
}

static int base(void *user, dlp_item *it) {
    const int rc = maybe_fails(1, it);
    return rc != 0 ? rc : fetch(user, it);
}

/* A source that answers later, the last first. */
static _Thread_local struct {
    dlp_item *item[7];
    int n;
} out_;

static int submit(void *user, void *state, dlp_item *it) {
    (void)user;
    if (state != NULL) count(&all->wrong);
    if (out_.n == 7) return DLP_FULL;
    out_.item[out_.n++] = it;
    return 0;
}
static int reap(void *user, void *state, dlp_item **done, int *code, int most, int timeout_ms) {
    int n = 0;
    (void)state, (void)timeout_ms;
    for (; out_.n > 0 && n < most; n++) {
        done[n] = out_.item[--out_.n];
        code[n] = base(user, done[n]);
    }
    return n;
}
static const dlp_async async_ = {submit, reap};

static int sum(void *user, dlp_item *it) { /* sees x, text, sum */
    uint64_t *to = it->data[2];
    const uint8_t *text = it->data[1];
    (void)user;
    see(it, 3);
    count(&all->summed);
    if (*to != 0 || it->length[1] > MOST) count(&all->wrong);
    *to = *(uint64_t *)it->data[0] + dlp_item_random(it, 2) % 5;
    for (uint64_t i = 0; i < MOST; i++) *to += text[i] * (i + 1); /* zeros behind the length */
    if (it->index % 4 == 1 && !fixed) it->length[1] = MOST;
    return spoiled(it, maybe_fails(2, it));
}

static int label(void *user, dlp_item *it) { /* sees label alone */
    (void)user;
    see(it, 1);
    count(&all->labelled);
    if (*(uint32_t *)it->data[0] != 0) count(&all->wrong);
    *(uint32_t *)it->data[0] = (uint32_t)it->index + 3;
    return spoiled(it, maybe_fails(3, it));
}

static int turn(void *user, dlp_item *it) { /* sees x, text, sum, label, tail; shortens text */
    uint8_t *text = it->data[1];
    (void)user;
    see(it, 5);
    count(&all->turned);
    if (*(uint32_t *)it->data[3] != it->index + 3 || it->length[4] != 0) count(&all->wrong);
    it->length[4] = it->length[1] / 2;
    memcpy(it->data[4], text, it->length[4]);
    if (it->length[1] > 0) it->length[1]--;
    *(uint64_t *)it->data[0] += 1;
    const int rc = maybe_fails(4, it);
    if (how.bad_length > 0 && it->index == 33) it->length[how.bad_length - 1] = 2;
    return spoiled(it, rc);
}

static int open_table(dlp_pipe **p, const dlp_state *resume, dlp_error *err) {
    const dlp_workers_desc own = {.num_workers = how.own, .idempotent = 0};
    dlp_node nodes[8] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = base, .fields = fixed ? fixed_fields : base_fields, .n_fields = 2},
         .workers = {.num_workers = how.workers,
                     .placement = how.placement,
                     .on_error = how.on_error,
                     .deadline_ms = how.deadline_ms,
                     .retries = how.retries}},
        {.name = "add", .verb = DLP_MAP, .map = {.item = sum, .fields = &sum_field, .n_fields = 1}},
        {.name = "labels",
         .verb = DLP_FETCH,
         .fetch = {.fetch = label, .fields = &label_field, .n_fields = 1}},
        {.name = "turn",
         .verb = DLP_MAP,
         .map = {.item = turn, .fields = &tail_fields[fixed], .n_fields = 1}}};
    uint32_t n = 5;
    if (only != 0) nodes[2] = nodes[only], n = 3;
    for (uint32_t i = 2; i < n; i++) {
        nodes[i].workers = only == 0 ? how.policy[i] : own;
        nodes[i].workers.num_workers = how.own;
    }
    if (how.async) {
        nodes[1].fetch.fetch = NULL;
        nodes[1].fetch.async = &async_;
    }
    nodes[0].queue.deal = how.deal;
    nodes[1].fetch.in_flight = how.in_flight;
    nodes[1].fetch.writes_all_bytes = how.in_flight == 0;
    if (how.cache > 0)
        nodes[n++] = (dlp_node){.name = "kept", .verb = DLP_CACHE, .cache = {how.cache}};
    nodes[n++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS}};
    memset(all, 0, sizeof *all);
    return dlp_pipe_open(p, nodes, n,
                         &(dlp_pipe_desc){.seed = 5, .epochs = EPOCHS, .resume = resume}, err);
}

/* ---- what a run gives ---- */

typedef struct run {
    int opened, rc;
    uint64_t n, valid, hash[BATCHES];
    dlp_state state[BATCHES];
    dlp_error err;
} run;

static uint64_t hash_of(const dlp_batch *b) {
    uint64_t h = dlp_hash(b->count, b->epoch, b->in_epoch, b->n_fields);
    for (uint32_t f = 0; f < b->n_fields; f++) {
        const uint8_t *at = b->fields[f].data;
        for (uint64_t i = 0; i < b->fields[f].bytes; i++) h = dlp_hash(h, at[i], i, f);
        for (uint32_t r = 0; b->fields[f].lengths != NULL && r < b->count; r++)
            h = dlp_hash(h, b->fields[f].lengths[r], r, f);
    }
    for (uint32_t r = 0; r < b->count; r++) h = dlp_hash(h, b->index[r], b->valid[r], r);
    return h;
}

/* from: the batch after which it is resumed, of `before`; -1: from the beginning. */
static void take(run *r, int from, const run *before) {
    dlp_pipe *p = NULL;
    dlp_batch *b;
    memset(r, 0, sizeof *r);
    consumer = pthread_self();
    caller = getpid();
    r->opened = open_table(&p, from < 0 ? NULL : &before->state[from], &r->err);
    if (r->opened != DLP_OK) return;
    for (int i = only == 0 ? 2 : only; i <= (only == 0 ? 4 : only); i++)
        CHECK((dlp_node_stage(p, names[i]) == DLP_ERR_ARG) == (how.own == 0));
    while ((r->rc = dlp_pipe_next_timeout(p, &b, 60000)) == DLP_OK && r->n < BATCHES) {
        const uint64_t k = (uint64_t)(from + 1) + r->n;
        CHECK(b->sequence == r->n && k < BATCHES);
        if (k >= BATCHES) break;
        r->hash[k] = hash_of(b);
        CHECK(dlp_pipe_state(p, b, &r->state[k]) == DLP_OK);
        for (uint32_t i = 0; i < b->count; i++) r->valid += b->valid[i];
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        r->n++;
    }
    if (r->rc != DLP_END) r->err = *dlp_pipe_error(p);
    how.hangs = 0;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(all->wrong == 0);
}

static run one, two, three;

static void same_from(int from) {
    for (int k = from; k < BATCHES; k++)
        CHECK(one.hash[k] == two.hash[k] &&
              memcmp(&one.state[k], &two.state[k], sizeof one.state[k]) == 0);
}

/* The same with a stage for each row, in one; and fused, in two. */
static void both(void) {
    how.own = DLP_NONE;
    take(&one, -1, NULL);
    how.own = 0;
    take(&two, -1, NULL);
    CHECK(one.opened == DLP_OK && two.opened == DLP_OK);
    CHECK(one.rc == two.rc && one.n == two.n && one.valid == two.valid);
    same_from(0);
}

static void fused__any_workers__the_bytes_and_states_of_stages(void) {
    static const struct how ways[] = {
        {.workers = 0},
        {.workers = 1},
        {.workers = 3},
        {.workers = 2, .deal = DLP_DEAL_TURNS},
        {.workers = 2, .in_flight = 5},
        {.workers = 2, .placement = DLP_PLACE_PROCESSES},
        {.workers = 2, .placement = DLP_PLACE_PROCESSES, .in_flight = 4},
        {.workers = 1, .in_flight = 5, .async = 1},
        {.workers = 3, .in_flight = 16, .async = 1},
        {.workers = 2, .placement = DLP_PLACE_PROCESSES, .in_flight = 4, .async = 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        how = ways[i];
        both();
        CHECK(two.rc == DLP_END && two.n == BATCHES && two.valid == ITEMS * EPOCHS);
        CHECK(only != 0 || (all->turned == ITEMS * EPOCHS && all->summed == all->turned));
        for (int from = 3; from < BATCHES; from += 11) {
            take(&three, from, &one);
            for (int k = from + 1; k < BATCHES; k++) CHECK(three.hash[k] == one.hash[k]);
        }
    }
}

static void process__dies_in_the_last_row__no_byte_differs(void) {
    how = (struct how){.workers = 2, .placement = DLP_PLACE_PROCESSES};
    take(&one, -1, NULL);
    for (int many = 0; many < 9; many += 4) {
        how.in_flight = (uint32_t)many;
        how.async = many == 8;
        how.kill_every = 70;
        take(&two, -1, NULL);
        CHECK(two.rc == DLP_END && two.n == BATCHES && all->kills > ITEMS * EPOCHS);
        same_from(0);
    }
}

/* ---- callbacks that fail ---- */

static void row__fails__the_policy_of_the_stage_and_the_name_of_the_row(void) {
    for (int many = 0; many < 9; many += 4)
        for (int row = 1; row <= 4; row++) {
            if (only != 0 && row != 1 && row != only) continue;
            how = (struct how){.workers = 2, .fails = row, .rc = -7, .words = row % 2};
            how.in_flight = (uint32_t)many;
            how.async = many == 8;
            take(&two, -1, NULL);
            CHECK(two.rc == DLP_ERR_CALLBACK && strcmp(two.err.stage, names[row]) == 0);
            CHECK(two.err.has_item && two.err.index % 10 == 7);
            CHECK(strncmp(two.err.message, row % 2 ? "item " : "the callback returned -7",
                          row % 2 ? 5 : 24) == 0);
            CHECK(row % 2 == 0 || strstr(two.err.message, "7 is bad") != NULL);
            CHECK(two.err.errnum == (row % 2 ? 5 : 0));
        }
}

static void row__fails_once__fetch_and_all_rows_are_tried_again(void) {
    for (int row = 2; row <= 4; row++) {
        how = (struct how){.workers = 2};
        take(&one, -1, NULL);
        how = (struct how){.workers = 2, .retries = 2, .fails = row, .rc = -7, .until = 2};
        take(&two, -1, NULL);
        CHECK(two.rc == DLP_END && two.valid == ITEMS * EPOCHS);
        CHECK(all->fetched == ITEMS * EPOCHS + 2 * ITEMS / 10);
        same_from(0);
    }
}

static int set_sum(void *user, dlp_item *it) { /* may run on the item again */
    (void)user;
    *(uint64_t *)it->data[2] = *(uint64_t *)it->data[0];
    return 0;
}

static int add_one(void *user, dlp_item *it) { /* may not */
    (void)user;
    *(uint64_t *)it->data[0] += 1;
    return it->index % 3 != 0 && count(&all->tried[it->index]) % 2 == 1 ? -7 : 0;
}

static void idempotent_map__a_row_behind_it_is_not__each_item_is_changed_once(void) {
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = fixed ? fixed_fields : base_fields, .n_fields = 2}},
        {.name = "set",
         .verb = DLP_MAP,
         .map = {.item = set_sum, .fields = &sum_field, .n_fields = 1},
         .workers = {.num_workers = 2, .retries = 1, .idempotent = 1}},
        {.name = "one", .verb = DLP_MAP, .map = {.item = add_one}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS}}};
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0;
    how = (struct how){.workers = 0};
    memset(all, 0, sizeof *all);
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    CHECK(dlp_node_stage(p, "set") > 0 && dlp_node_stage(p, "one") == DLP_ERR_ARG);
    while (dlp_pipe_next_timeout(p, &b, 60000) == DLP_OK) {
        const uint64_t *x = b->fields[0].data, *set = b->fields[2].data;
        for (uint32_t i = 0; i < b->count; i++, n++) CHECK(x[i] == set[i] + 1 && b->index[i] == n);
        dlp_pipe_release(p, b);
    }
    CHECK(n == ITEMS && all->fetched == ITEMS + 2 * ITEMS / 3);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void row__is_left_out_or_replaced__as_by_a_stage_of_its_own(void) {
    static const int32_t policies[] = {DLP_ON_ERROR_DROP, DLP_ON_ERROR_REPLACE};
    for (int i = 0; i < 2; i++) {
        how = (struct how){.workers = 2, .on_error = policies[i], .fails = 1, .rc = -7};
        take(&one, -1, NULL); /* by fetch itself */
        how.fails = 4;
        take(&two, -1, NULL);
        CHECK(two.rc == DLP_END && two.valid == one.valid && two.n == one.n);
        CHECK(two.valid == (uint64_t)(i == 0 ? ITEMS - ITEMS / 10 : ITEMS) * EPOCHS);
        same_from(0);
    }
    how = (struct how){.workers = 2, .on_error = DLP_ON_ERROR_REPLACE, .fails = 4, .rc = DLP_SKIP};
    how.policy[4].on_error = DLP_ON_ERROR_DROP; /* of the row, so nothing takes its item's place */
    take(&two, -1, NULL);
    CHECK(two.rc == DLP_END && two.valid == (ITEMS - ITEMS / 10) * EPOCHS);
    how = (struct how){.workers = 2, .fails = 3, .rc = DLP_SKIP};
    both();
    CHECK(two.rc == DLP_END && two.valid == (ITEMS - ITEMS / 10) * EPOCHS);
    how = (struct how){.workers = 2, .fails = 3, .rc = DLP_END};
    take(&two, -1, NULL);
    CHECK(two.rc == DLP_ERR_CALLBACK && strcmp(two.err.stage, "labels") == 0);
}

/* Each row may have retries and on_error of its own; a row that says nothing has those of the
   fetch. One row fails so many times at each tenth item. What comes is what a count says. */
static void rows__policies_of_their_own__as_a_count_says(void) {
    static const int32_t on_errors[] = {DLP_ON_ERROR_RAISE, DLP_ON_ERROR_DROP};
    for (uint64_t k = 0; k < 48; k++) {
        const dlp_workers_desc *policy;
        uint32_t dropped = 0, failed = 0, left;
        how = (struct how){.workers = 2, .rc = -7};
        how.fails = 1 + (int)(k % 4);
        how.until = 1 + (uint32_t)(dlp_hash(1, k, 0, 0) % 5);
        how.in_flight = k / 4 % 4 < 2 ? 0 : 4;
        how.async = k / 4 % 4 == 3;
        how.placement = k / 4 % 3 == 1 ? DLP_PLACE_PROCESSES : 0;
        for (uint64_t row = 1; row <= 4; row++)
            if (dlp_hash(2, k, row, 0) % 3 > 0)
                how.policy[row] =
                    (dlp_workers_desc){.retries = (int32_t)(dlp_hash(3, k, row, 0) % 4),
                                       .retry_backoff_ms = (int32_t)(dlp_hash(4, k, row, 0) % 2),
                                       .on_error = on_errors[dlp_hash(5, k, row, 0) % 2]};
        how.on_error = how.policy[1].on_error;
        how.retries = how.policy[1].retries;
        policy = &how.policy[how.fails];
        if (policy->retries == 0 && policy->on_error == 0 && policy->retry_backoff_ms == 0)
            policy = &how.policy[1];
        left = how.until;
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            const uint32_t tries = (uint32_t)policy->retries + 1;
            dropped += left >= tries;
            failed += left < tries ? left : tries;
            left -= left < tries ? left : tries;
        }
        take(&two, -1, NULL);
        if (dropped > 0 && policy->on_error == DLP_ON_ERROR_RAISE) {
            CHECK(two.rc == DLP_ERR_CALLBACK && strcmp(two.err.stage, names[how.fails]) == 0);
            continue;
        }
        CHECK(two.rc == DLP_END && two.n == BATCHES);
        CHECK(two.valid == (uint64_t)EPOCHS * ITEMS - (uint64_t)dropped * ITEMS / 10);
        CHECK(how.fails == 1 || all->fetched == EPOCHS * ITEMS + (failed - dropped) * ITEMS / 10);
    }
}

/* ---- who dies, and who takes too long ---- */

/* The error names the row in whose callback the process died, and what that row says holds. */
static void process__dies_in_a_row__the_error_names_the_row(void) {
    for (int k = 0; k < 24; k++) {
        const int row = 1 + k % 4;
        how = (struct how){.workers = 2, .placement = DLP_PLACE_PROCESSES, .dies = row};
        how.in_flight = k / 4 % 3 > 0 ? 4 : 0;
        how.async = how.in_flight > 0;
        if (k / 12 == 1) how.policy[row].on_error = DLP_ON_ERROR_DROP;
        if (row == 1) how.on_error = how.policy[row].on_error;
        take(&two, -1, NULL);
        if (k / 12 == 0) {
            CHECK(two.rc == DLP_ERR_KILLED && strcmp(two.err.stage, names[row]) == 0);
            CHECK(two.err.has_item && two.err.index == 33);
        } else {
            CHECK(two.rc == DLP_END && two.valid == EPOCHS * (ITEMS - 1));
        }
    }
}

/* A deadline of a row holds for its callback alone: other rows of the attempt may take longer, or
   have the deadline of the fetch. */
static void row__has_a_deadline__the_error_names_it(void) {
    for (int k = 0; k < 18; k++) {
        const int row = 2 + k % 3, processes = k / 3 % 2;
        const int32_t of_fetch = k / 6 != 0 ? 200 : 0; /* then it is that of the rows, too */
        how = (struct how){.workers = 2, .hangs = row};
        how.placement = processes ? DLP_PLACE_PROCESSES : 0;
        how.in_flight = of_fetch == 0 && k % 4 == 1 ? 4 : 0;
        how.async = how.in_flight > 0;
        how.deadline_ms = of_fetch;
        how.policy[row].deadline_ms = 200;
        how.slow = of_fetch == 0 ? row % 3 + 2 : 0;
        if (of_fetch > 0)
            how.policy[row].deadline_ms = 0, how.policy[row % 3 + 2].deadline_ms = 900;
        if (k >= 12) how.policy[row % 3 + 2].deadline_ms = 0; /* no row gives one */
        take(&two, -1, NULL);
        CHECK(two.rc == DLP_ERR_DEADLINE && strcmp(two.err.stage, names[row]) == 0);
        CHECK(strstr(two.err.message, "deadline_ms is 200") != NULL ||
              strstr(two.err.message, "deadline_ms 200") != NULL);
        if (two.rc != DLP_ERR_DEADLINE || strcmp(two.err.stage, names[row]) != 0)
            printf("  %d: %d %s: %s\n", k, two.rc, two.err.stage, two.err.message);
    }
}

/* The fetch raises, and a row has its items replaced: as if the fetch had failed, and replaced. */
/* Workers are killed over several rows of a batch before the first of the rows is looked at. */
static void rows_of_a_batch__are_late_together__each_is_left_out_by_its_policy(void) {
    how = (struct how){.workers = 4, .placement = DLP_PLACE_PROCESSES, .stuck = 4};
    how.policy[4] = (dlp_workers_desc){.deadline_ms = 300, .on_error = DLP_ON_ERROR_DROP};
    take(&two, -1, NULL);
    CHECK(two.rc == DLP_END && two.n == BATCHES && two.valid == ITEMS * EPOCHS - ROWS);
    if (two.rc != DLP_END) printf("  %d %s: %s\n", two.rc, two.err.stage, two.err.message);
}

static void row__replaces__as_the_fetch_would(void) {
    for (int k = 0; k < 9; k++) {
        const int row = 2 + k % 3;
        how = (struct how){.workers = 2, .on_error = DLP_ON_ERROR_REPLACE, .fails = 1, .rc = -7};
        how.in_flight = k / 3 > 0 ? 4 : 0;
        how.async = k / 3 == 2;
        take(&one, -1, NULL);
        how.on_error = 0;
        how.fails = row;
        how.policy[row].on_error = DLP_ON_ERROR_REPLACE;
        take(&two, -1, NULL);
        CHECK(one.rc == DLP_END && two.rc == DLP_END && two.valid == (uint64_t)ITEMS * EPOCHS);
        same_from(0);
    }
}

/* ---- a deadline, and rows behind that take their time ---- */

static int reap_first(void *user, void *state, dlp_item **done, int *code, int most,
                      int timeout_ms) {
    (void)state, (void)most, (void)timeout_ms;
    if (out_.n == 0) return 0;
    usleep(40000);
    done[0] = out_.item[0]; /* the oldest alone */
    memmove(out_.item, out_.item + 1, (size_t)--out_.n * sizeof *out_.item);
    *(uint64_t *)done[0]->data[0] = done[0]->index;
    return code[0] = 0, (void)user, 1;
}
static int take_long(void *user, dlp_item *it) {
    (void)user, (void)it;
    usleep(40000);
    return 0;
}

/* What was answered waits while rows behind other answers run: that is no time of the source. Of 7
   requests the last comes back after 280 ms in reap, and 560 ms in all. */
static void rows_behind__take_long__no_request_is_past_its_deadline(void) {
    static const dlp_async async = {submit, reap_first};
    static const dlp_field x = {"x", DLP_U64, 0, {0}, 0, 0};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = 28}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.async = &async, .in_flight = 7, .fields = &x, .n_fields = 1},
         .workers = {.num_workers = 1, .deadline_ms = 450}},
        {.name = "long", .verb = DLP_MAP, .map = {.item = take_long}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 7}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    if (p == NULL) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(rc == DLP_END);
    if (rc != DLP_END) printf("  %s\n", dlp_pipe_error(p)->message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void fetch__sets_a_length_above_its_maximum__no_row_sees_it(void) {
    how = (struct how){.workers = 1, .too_long = 1};
    take(&two, -1, NULL); /* sum looks at the length */
    CHECK(two.rc == DLP_ERR_LENGTH && two.err.index == 33);
    CHECK(strstr(two.err.message, "\"text\" has 8 rows") != NULL);
}

static void last_row__sets_a_length_of_a_field_of_fixed_size__refused(void) {
    static const char *const fields[] = {"x", "text", "sum", "label", "tail"};
    fixed = 1;
    for (int f = 0; f < 5; f++) {
        how = (struct how){.workers = 1, .bad_length = f + 1};
        take(&two, -1, NULL);
        CHECK(two.rc == DLP_ERR_LENGTH && two.err.index == 33);
        CHECK(strstr(two.err.message, fields[f]) != NULL);
    }
    fixed = 0;
}

static int own_index(void *user, dlp_item *it) { /* user: NULL if rows are not cleared */
    if (user != NULL && *(uint64_t *)it->data[0] != 0) count(&all->wrong);
    *(uint64_t *)it->data[0] = it->index + 1;
    return 0;
}

static void mix__of_two_fetches__each_item_is_cleared_counts_once_and_is_kept(void) {
    static const uint64_t many[] = {30, 50};
    memset(all, 0, sizeof *all);
    for (int kept = 0; kept < 2; kept++) {
        static dlp_stats st;
        dlp_mix *mix = NULL;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        CHECK(dlp_mix_open(&mix, &(dlp_mix_desc){.n = 2, .n_items = many}, NULL) == DLP_OK);
        dlp_node nodes[5] = {{.name = "items", .verb = DLP_LIST, .list = {.mix = mix}},
                             {.name = "first", .verb = DLP_FETCH, .fetch = {.of = 1}},
                             {.name = "second", .verb = DLP_FETCH, .fetch = {.of = 2}},
                             {.name = "kept", .verb = DLP_CACHE, .cache = {1 << 16}}};
        for (int i = 1; i < 3; i++) {
            nodes[i].fetch.fetch = own_index;
            nodes[i].fetch.fields = fixed_fields;
            nodes[i].fetch.n_fields = 1;
        }
        nodes[1].fetch.writes_all_bytes = 1;
        nodes[2].fetch.user = all;
        nodes[3 + kept] =
            (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS}};
        CHECK(dlp_pipe_open(&p, nodes, 4 + (uint32_t)kept, &(dlp_pipe_desc){.epochs = 2}, NULL) ==
              DLP_OK);
        while (dlp_pipe_next_timeout(p, &b, 60000) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(dlp_pipe_stats(p, &st) == DLP_OK && st.items > 160);
        CHECK(st.stages[dlp_node_stage(p, "first")].items +
                  st.stages[dlp_node_stage(p, "second")].items ==
              st.items);
        CHECK(st.cache_misses == (kept ? 80 : 0) && st.cache_hits == (kept ? st.items - 80 : 0));
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(all->wrong == 0);
        dlp_mix_close(mix);
    }
}

static void cache__behind_the_rows__keeps_what_they_made(void) {
    how = (struct how){.workers = 1, .cache = 1 << 20};
    take(&two, -1, NULL);
    CHECK(two.rc == DLP_END && two.n == BATCHES && all->fetched > 0);
    CHECK(all->turned == all->fetched && all->summed == all->fetched);
}

/* ---- a fetch that writes all bytes, of rooms that are larger than its items ---- */

enum { ROOM = 5000, ROOM_ITEMS = 400 };
static uint32_t room_wrong; /* by several workers */

static uint64_t room_length(uint64_t index) {
    return index % 11 == 2 ? 0 : index % 7 == 1 ? ROOM : dlp_hash(7, index, 0, 0) % 300;
}

/* Most bytes are zeros. An item without rows does not set its length. */
static int room_fetch(void *user, dlp_item *it) {
    const uint64_t n = room_length(it->index);
    (void)user;
    if (it->length[0] != 0) count(&room_wrong);
    for (uint64_t k = 0; k < n; k++) ((uint8_t *)it->data[0])[k] = k % 256 < 200 ? 0 : 7;
    if (n > 0) it->length[0] = n;
    return 0;
}

static int room_same(const uint8_t *row, uint64_t index, uint64_t length) {
    const uint64_t n = room_length(index);
    int ok = length == n;
    for (uint64_t k = 0; k < ROOM; k++) ok &= row[k] == (k < n && k % 256 >= 200 ? 7 : 0);
    return ok;
}

static int room_map(void *user, dlp_item *it) {
    (void)user;
    if (!room_same(it->data[0], it->index, it->length[0])) count(&room_wrong);
    return 0;
}

static void row__adds_a_field_to_a_fetch_that_writes_all__finds_no_earlier_item(void) {
    static const dlp_field field = {"bytes", DLP_U8, 1, {ROOM}, 1, 0};
    for (int k = 0; k < 6; k++) {
        const int32_t n = k / 2 > 0 ? 2 : DLP_NONE;
        const dlp_node nodes[] = {
            {.name = "items", .verb = DLP_LIST, .list = {.n_items = ROOM_ITEMS, .shuffle = 1}},
            {.name = "read",
             .verb = DLP_FETCH,
             .fetch = {.fetch = room_fetch,
                       .fields = &field,
                       .n_fields = 1,
                       .in_flight = k / 2 == 2 ? 3 : 0,
                       .writes_all_bytes = 1},
             .workers = {.num_workers = n}},
            {.name = "add",
             .verb = DLP_MAP,
             .map = {.item = room_map, .fields = &sum_field, .n_fields = 1},
             .workers = {.num_workers = k % 2 ? DLP_NONE : 0}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS}}};
        dlp_pipe *p;
        dlp_batch *b;
        int rc, ok = 1;
        room_wrong = 0;
        CHECK(dlp_pipe_open(&p, nodes, 4, &(dlp_pipe_desc){.epochs = 2}, NULL) == DLP_OK);
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            const uint8_t *row = b->fields[0].data;
            for (uint32_t r = 0; r < b->count; r++, row += ROOM)
                ok &= room_same(row, b->index[r], b->fields[0].lengths[r]);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_END && ok && room_wrong == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- what a table may not say ---- */

static int same_item(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}

static int same_batch(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)b;
    (void)state;
    return 0;
}

static void table__has_too_many_rows_or_fields__refused_by_the_row(void) {
    static const char *const eight[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    dlp_field wide[16];
    dlp_node nodes[12] = {{.name = "items", .verb = DLP_LIST, .list = {.n_items = ITEMS}},
                          {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = fetch, .fields = base_fields, .n_fields = 2}}};
    dlp_error err = {.code = 0};
    dlp_pipe *p;
    for (uint32_t i = 0; i < 8; i++)
        nodes[2 + i] = (dlp_node){.name = eight[i], .verb = DLP_MAP, .map = {.item = same_item}};
    nodes[10] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS}};
    CHECK(dlp_pipe_open(&p, nodes, 11, NULL, &err) == DLP_ERR_GRAPH);
    CHECK(strcmp(err.stage, "h") == 0 && strstr(err.message, "give this one workers") != NULL);
    nodes[9].workers.num_workers = DLP_NONE;
    CHECK(dlp_pipe_open(&p, nodes, 11, NULL, &err) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    for (uint32_t i = 0; i < 16; i++) wide[i] = sum_field, wide[i].name = i == 0 ? "a" : "b";
    nodes[3] = nodes[10];
    nodes[2].map = (dlp_node_map){.item = same_item, .fields = wide, .n_fields = 15};
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.stage, "a") == 0 && strcmp(err.field, "n_fields") == 0);
    nodes[2].map.n_fields = 1;
    wide[0].name = "x";
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "fields[].name") == 0 && strcmp(err.stage, "a") == 0);
    wide[0].name = NULL;
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_ERR_ARG && strcmp(err.stage, "a") == 0);
    nodes[2].map = (dlp_node_map){.item = same_item, .batch = same_batch};
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_ERR_ARG);
    nodes[2].verb = DLP_FETCH;
    nodes[2].map = (dlp_node_map){.item = NULL};
    nodes[2].fetch = (dlp_node_fetch){.fetch = same_item, .fields = &sum_field, .n_fields = 1};
    nodes[2].fetch.writes_all_bytes = 2;
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "fetch.writes_all_bytes") == 0);
    nodes[2].fetch.writes_all_bytes = 1;
    nodes[2].fetch.batch_pool = 9;
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.stage, "a") == 0 && strcmp(err.field, "batch_pool") == 0);
}

int main(void) {
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (fixed = 0; fixed < 2; fixed++) {
        for (only = 0; only < 4; only += only == 0 ? 2 : 1) {
            fused__any_workers__the_bytes_and_states_of_stages();
            row__fails__the_policy_of_the_stage_and_the_name_of_the_row();
        }
        only = 0;
        process__dies_in_the_last_row__no_byte_differs();
        row__fails_once__fetch_and_all_rows_are_tried_again();
        row__is_left_out_or_replaced__as_by_a_stage_of_its_own();
        rows__policies_of_their_own__as_a_count_says();
        process__dies_in_a_row__the_error_names_the_row();
        row__replaces__as_the_fetch_would();
        idempotent_map__a_row_behind_it_is_not__each_item_is_changed_once();
    }
    fixed = 0;
    row__has_a_deadline__the_error_names_it();
    rows_of_a_batch__are_late_together__each_is_left_out_by_its_policy();
    rows_behind__take_long__no_request_is_past_its_deadline();
    fetch__sets_a_length_above_its_maximum__no_row_sees_it();
    last_row__sets_a_length_of_a_field_of_fixed_size__refused();
    mix__of_two_fetches__each_item_is_cleared_counts_once_and_is_kept();
    cache__behind_the_rows__keeps_what_they_made();
    row__adds_a_field_to_a_fetch_that_writes_all__finds_no_earlier_item();
    table__has_too_many_rows_or_fields__refused_by_the_row();
    return test_end("fused");
}
