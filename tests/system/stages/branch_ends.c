/* needs: parts */
/* How an epoch of a zip or mix ends: with an error that names a branch without an item, with a
   warning if a branch was out before a tenth of all items had come, and else as it should. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <string.h>

enum { SOON_MS = 20000, LONG = 1000 };

/* What makes the items of the second branch. */
enum { A_FILTER, AN_EXPAND, A_FETCH, KINDS };

static struct {
    int zip, kind, swapped, behind, workers, last;
    uint32_t streams, world, batch;
    uint64_t n, every, epoch; /* of n inputs each `every`-th has an item; 0: none; in epoch: none */
    int64_t steps, epochs;
    int uneven, agrees;
    uint64_t weights[3]; /* of a, b and a */
} how;

static const dlp_state *resume_;

static void reset(void) {
    memset(&how, 0, sizeof how);
    how.workers = DLP_NONE;
    how.streams = how.world = 1;
    how.batch = 4;
    how.n = LONG;
    how.epoch = UINT64_MAX;
    how.weights[0] = how.weights[2] = 3;
    how.weights[1] = 1;
    resume_ = NULL;
}

static int is_made(uint64_t index, uint64_t epoch) {
    return how.every > 0 && index % how.every == how.every - 1 && epoch != how.epoch;
}
static int fetch(void *user, dlp_item *it) {
    const uint64_t word[2] = {it->index, it->epoch};
    (void)user;
    memcpy(it->data[0], word, sizeof word);
    return 0;
}
static int fetch_some(void *user, dlp_item *it) {
    fetch(user, it);
    return is_made(it->index, it->epoch) ? 0 : dlp_fail(it->call, 2, "no such file");
}
static int keep_some(void *user, const dlp_item *it) {
    const uint64_t *word = it->data[0];
    (void)user;
    return is_made(word[0], word[1]);
}
static int keep_all(void *user, const dlp_item *it) {
    (void)user;
    (void)it;
    return 1;
}
static int make_some(void *user, dlp_expand *x) {
    (void)user;
    if (!is_made(x->item->index, x->item->epoch)) return 0;
    return fetch(user, dlp_expand_add(x));
}
static int64_t agree(void *user, int64_t mine, int most) {
    (void)user;
    (void)most;
    return mine;
}

static uint32_t table(dlp_node *to) {
    static const dlp_field fields[2] = {{.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {2}},
                                        {.name = "y", .dtype = DLP_U64, .ndim = 1, .shape = {2}}};
    static const char *from[3];
    const dlp_workers_desc w = {.num_workers = how.workers, .on_error = DLP_ON_ERROR_DROP};
    uint32_t n = 0;
    for (int k = 0; k < 2; k++) {
        const int some = k != how.swapped; /* the second branch's rows stand first, if swapped */
        const dlp_field *f = &fields[how.zip ? some : 0];
        to[n++] = (dlp_node){.name = some ? "list b" : "list a",
                             .verb = DLP_LIST,
                             .list = {.n_items = some ? how.n : LONG}};
        to[n++] = (dlp_node){.name = some ? "b" : "a",
                             .verb = DLP_FETCH,
                             .fetch = {.fetch = fetch, .fields = f, .n_fields = 1},
                             .workers = {.num_workers = how.workers}};
        if (some && how.kind == A_FETCH) to[n - 1].fetch.fetch = fetch_some;
        if (how.kind == A_FETCH) to[n - 1].workers = w;
        if (some && how.kind == AN_EXPAND) {
            to[n - 1].verb = DLP_EXPAND;
            to[n - 1].expand =
                (dlp_node_expand){.expand = make_some, .max_out = 1, .fields = f, .n_fields = 1};
        }
        if (some && how.kind == A_FILTER) {
            to[n - 1].name = "fetch b";
            to[n++] = (dlp_node){.name = "b", .verb = DLP_FILTER, .filter = {.keep = keep_some}};
        }
        from[k] = to[n - 1].name;
    }
    to[n++] = (dlp_node){.name = "both", .from = from, .verb = how.zip ? DLP_ZIP : DLP_MIX};
    if (!how.zip) to[n - 1].mix.weights = how.weights + how.swapped;
    if (how.behind)
        to[n++] = (dlp_node){.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_all}};
    to[n++] = (dlp_node){
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = how.batch, .last = how.last}};
    return n;
}

typedef struct told {
    int rc;
    uint64_t rows, batches;
    char warning[160], explain[2000];
    dlp_error err;
    dlp_state state; /* behind the last batch but one */
} told;

static told run(void) {
    const dlp_pipe_desc d = {.streams = how.streams,
                             .world_size = how.world > 1 ? how.world : 0,
                             .steps_per_epoch = how.steps,
                             .epochs = how.epochs,
                             .uneven = how.uneven,
                             .agree = how.agrees ? agree : NULL,
                             .resume = resume_};
    told x;
    dlp_node nodes[9];
    dlp_state now;
    dlp_pipe *p;
    dlp_batch *b;
    memset(&x, 0, sizeof x);
    x.rc = dlp_pipe_open(&p, nodes, table(nodes), &d, &x.err);
    if (x.rc != DLP_OK) printf("  %s %s: %s\n", x.err.stage, x.err.field, x.err.message);
    CHECK(x.rc == DLP_OK);
    if (x.rc != DLP_OK) return x;
    while ((x.rc = dlp_pipe_next_timeout(p, &b, SOON_MS)) == DLP_OK) {
        x.rows += b->valid_count;
        if (x.batches++ > 0) x.state = now;
        CHECK(dlp_pipe_state(p, b, &now) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    x.err = *dlp_pipe_error(p);
    for (int i = 0; dlp_pipe_warning(p, i) != NULL; i++)
        if (strstr(dlp_pipe_warning(p, i), "ended after") != NULL)
            snprintf(x.warning, sizeof x.warning, "%s", dlp_pipe_warning(p, i));
    dlp_pipe_explain(p, x.explain, sizeof x.explain);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return x;
}

static int names_b(const told *x, uint64_t inputs) {
    char text[100];
    snprintf(text, sizeof text, "branch \"b\" has no item: its %d inputs made none", (int)inputs);
    return x->rc == DLP_ERR_CALLBACK && strcmp(x->err.stage, "b") == 0 &&
           strstr(x->err.message, text) != NULL && strstr(x->explain, text) != NULL;
}

/* Whatever makes the items of the branch, and wherever it stands. */
static void branch__no_item__an_error_that_names_it(void) {
    for (int k = 0; k < 96; k++) {
        told x;
        reset();
        how.kind = k % KINDS;
        how.swapped = k / 3 & 1;
        how.zip = k / 6 & 1 && how.kind != A_FETCH; /* a zip has a row for an input left out */
        how.behind = k / 12 & 1;
        how.workers = k / 24 & 1 ? 2 : DLP_NONE;
        how.streams = k / 48 ? 4 : 1;
        how.last = k / 2 % 3;
        x = run();
        CHECK(names_b(&x, LONG));
        CHECK(how.kind != A_FETCH || strstr(x.err.message, "no such file") != NULL);
        CHECK(x.rows <= 3 * how.streams);
    }
}

/* Only the epoch in which it has no item fails, behind the whole epochs before. */
static void branch__no_item_in_a_later_epoch__fails_there(void) {
    for (int k = 0; k < 4; k++) {
        told x;
        reset();
        how.behind = k & 1;
        how.workers = k & 2 ? 2 : DLP_NONE;
        how.every = 2;
        how.epochs = 3;
        how.epoch = 1;
        x = run();
        CHECK(names_b(&x, LONG) && x.err.epoch == 1 && x.warning[0] == 0);
        CHECK(x.rows > 1300 && x.rows < 1345); /* of the first epoch: 1000 and 333 */
    }
}

/* With steps the branch is named, too. */
static void branch__no_item_with_steps__named(void) {
    for (int k = 0; k < 4; k++) {
        told x;
        reset();
        how.zip = k & 1;
        how.behind = k / 2;
        how.steps = 50;
        x = run();
        CHECK(x.rc == DLP_ERR_CALLBACK && strcmp(x.err.stage, "b") == 0);
        CHECK(strstr(x.err.message, "branch \"b\" on ") != NULL);
        how.every = 10;
        x = run();
        CHECK(x.rc == DLP_END && x.rows == 200 && x.warning[0] == 0);
    }
}

/* A branch that has few items ends the epoch early: the warning has both numbers. */
static void branch__out_early__a_warning_with_both_numbers(void) {
    for (int k = 0; k < 48; k++) {
        told x;
        unsigned came = 0, all = 0, epoch = 9;
        reset();
        how.zip = k & 1;
        how.swapped = k / 2 & 1;
        how.behind = k / 4 & 1;
        how.workers = k / 8 & 1 ? 2 : DLP_NONE;
        how.streams = k / 16 == 2 ? 2 : 1;
        how.kind = k / 16 & 1;
        how.epochs = 2;
        how.every = 100;
        x = run();
        CHECK(x.rc == DLP_END);
        CHECK(sscanf(x.warning, "epoch %u ended after %u of about %u items", &epoch, &came, &all) ==
              3);
        CHECK(epoch == 0 && strstr(x.warning, "branch \"b\" was out") != NULL);
        CHECK(how.zip ? came == 20 : came >= 28 && came <= 48);
        CHECK(all == LONG + 10 && x.rows == (how.zip ? 20 : x.rows));
        CHECK(strstr(x.explain, x.warning) != NULL);
    }
}

/* Epochs that end as they were meant, or of which only a part was seen. */
static void branch__enough_items__no_word(void) {
    for (int k = 0; k < 8; k++) {
        told x, y;
        reset();
        how.zip = k & 1;
        how.behind = k / 2 & 1;
        how.workers = k / 4 ? 2 : DLP_NONE;
        how.every = how.zip ? 8 : 3;
        x = run();
        CHECK(x.rc == DLP_END && x.warning[0] == 0);
        CHECK(how.zip ? x.rows == 125 : x.rows > 1300);
        how.every = 100;
        x = run();
        CHECK(x.rc == DLP_END && x.warning[0] != 0);
        resume_ = &x.state;
        y = run();
        CHECK(y.rc == DLP_END && y.warning[0] == 0 && y.batches == 1);
    }
    for (int k = 0; k < 2; k++) { /* a resume between the draws of a branch without an item */
        told x;
        reset();
        how.epoch = 1;
        how.every = 2;
        how.epochs = 1;
        how.behind = k;
        x = run();
        CHECK(x.rc == DLP_END);
        resume_ = &x.state;
        how.every = 0; /* the rest of the data is gone: of the whole epoch that says nothing */
        x = run();
        CHECK(x.rc == DLP_END || x.rc == DLP_ERR_RESUME);
    }
}

/* A rank of several may have the few inputs of a branch that made no item: it only warns. Many
   inputs without an item are an error, by itself or where ranks agree. */
static void branch__no_item_on_a_rank__few_inputs_prove_nothing(void) {
    for (int k = 0; k < 8; k++) {
        told x;
        reset();
        how.world = 2;
        how.streams = 2;
        how.batch = 8;
        how.uneven = k & 1;
        how.agrees = !how.uneven;
        how.weights[0] = 40; /* the branch is not drawn first */
        how.n = k & 2 ? 4000 : 200;
        how.behind = k / 4;
        x = run();
        if (how.n == 4000)
            CHECK(names_b(&x, 2000));
        else if (x.batches > 0)
            CHECK(x.rc == DLP_END && strstr(x.warning, "branch \"b\" was out") != NULL);
    }
}

/* Two branches of a zip are out at the same row. The first of them has ended the epoch: it had an
   item, so what is wrong is that no row was whole. */
static void branches__out_at_one_row__the_first_one_ended_it(void) {
    static const dlp_field fields[3] = {{.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {2}},
                                        {.name = "y", .dtype = DLP_U64, .ndim = 1, .shape = {2}},
                                        {.name = "z", .dtype = DLP_U64, .ndim = 1, .shape = {2}}};
    static const char *const names[3][2] = {{"la", "a"}, {"lb", "b"}, {"lc", "c"}};
    const char *from[] = {"a", "b", "c", NULL};
    dlp_node nodes[8] = {{0}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error e;
    reset(); /* fetch_some fails at each input */
    for (int k = 0; k < 3; k++) {
        nodes[2 * k] =
            (dlp_node){.name = names[k][0], .verb = DLP_LIST, .list = {.n_items = k == 0 ? 9 : 1}};
        nodes[2 * k + 1] = (dlp_node){
            .name = names[k][1],
            .verb = DLP_FETCH,
            .fetch = {.fetch = k == 1 ? fetch : fetch_some, .fields = &fields[k], .n_fields = 1},
            .workers = {.on_error = DLP_ON_ERROR_DROP}};
    }
    nodes[6] = (dlp_node){.name = "both", .from = from, .verb = DLP_ZIP};
    nodes[7] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}};
    CHECK(dlp_pipe_open(&p, nodes, 8, NULL, &e) == DLP_OK);
    if (p == NULL) return;
    CHECK(dlp_pipe_next_timeout(p, &b, SOON_MS) == DLP_OK && b->valid_count == 0);
    CHECK((b->flags & DLP_BATCH_LAST) != 0);
    dlp_pipe_release(p, b);
    CHECK(dlp_pipe_next_timeout(p, &b, SOON_MS) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "has no valid row") != NULL);
    dlp_pipe_close(p);
}

/* A state of other weights is refused in words, with whole names. */
static void resume__other_weights__told_in_words(void) {
    dlp_node nodes[9];
    dlp_pipe_desc d = {.steps_per_epoch = 20};
    dlp_state state;
    dlp_error e;
    dlp_pipe *p;
    dlp_batch *b;
    reset();
    how.every = 2;
    CHECK(dlp_pipe_open(&p, nodes, table(nodes), &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, SOON_MS) == DLP_OK);
    CHECK(dlp_pipe_state(p, b, &state) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    how.weights[0] = 2;
    d.resume = &state;
    CHECK(dlp_pipe_open(&p, nodes, table(nodes), &d, &e) == DLP_ERR_RESUME);
    CHECK(strstr(e.message, "other values of streams, steps_per_epoch, weights, ") != NULL);
    CHECK(strlen(e.message) <= 160 && strpbrk(e.message, "0123456789") == NULL);
    CHECK(strncmp(e.field, "streams, steps_per_epoch, weights", 33) == 0 && strlen(e.field) < 47);
}

int main(void) {
    branch__no_item__an_error_that_names_it();
    branch__no_item_in_a_later_epoch__fails_there();
    branch__no_item_with_steps__named();
    branch__out_early__a_warning_with_both_numbers();
    branch__enough_items__no_word();
    branch__no_item_on_a_rank__few_inputs_prove_nothing();
    branches__out_at_one_row__the_first_one_ended_it();
    resume__other_weights__told_in_words();
    return test_end("branch_ends");
}
