/* needs: parts pack cache */
/* expand.max_bytes: items lie in a cell by their true lengths. What comes is what comes without it:
   rows, states, and numbers of items, behind a filter, a window, groups, a pack, a cache, in a
   branch and behind a mix. The plan has cells of so many bytes. An input with one byte more fails,
   with its row and its items named, and no part of it comes. Callbacks that lie spoil nothing.
   Random tables have max_bytes in stacks, cell_ends, branch_chains and boxes. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 200, MOST = 40, LONGEST = 900, ALL = 4000, BATCHES = 4000 };

static int well(int ok) {
    CHECK(ok);
    return ok;
}

/* ---- what comes: ids, texts, and as many marks as a text has bytes ---- */

static uint64_t h_of(uint64_t index, uint64_t k) { return dlp_hash(index, k, 11, 0); }

static struct {
    uint32_t lie;   /* what the callback does that it must not */
    uint64_t input; /* the last item but one of this input has `more` marks more */
    uint64_t more;
    int attempts; /* it has them in the first attempt only */
} how;

enum { NO_LIE, TOO_LONG, BEHIND, TOO_MANY };

/* Items of an input: few long ones, or many short ones; without a lie they fit into ALL bytes. */
static uint32_t items_of(uint64_t index) { return index % 5 == 0 ? 4 : (uint32_t)(index % MOST); }
static uint64_t length_of(uint64_t index, uint64_t k) {
    return index % 5 == 0 ? (k < 2 ? LONGEST : 0) : h_of(index, k) % (ALL / 2 / MOST - 4);
}

static int make(void *user, dlp_expand *x) {
    const uint64_t index = x->item->index, n = items_of(index);
    const int more = index == how.input && (!how.attempts || x->item->attempt == 0);
    (void)user;
    for (uint64_t k = 0; k < n + (how.lie == TOO_MANY && index == how.input ? MOST : 0); k++) {
        dlp_item *it = dlp_expand_add(x);
        const uint64_t bytes = length_of(index, k);
        if (it == NULL) return 0;
        *(uint64_t *)it->data[0] = h_of(index, k);
        it->length[1] = it->length[2] = bytes;
        if (more && k + 2 == n) it->length[2] += how.more;
        if (bytes > 0) memset(it->data[1], (int)(1 + k), bytes);
        if (it->length[2] > 0) memset(it->data[2], (int)(101 + k), it->length[2]);
        if (how.lie == TOO_LONG && index == how.input && k == 2) it->length[1] = LONGEST + 1;
        if (how.lie == BEHIND && bytes + 9 < LONGEST) ((uint8_t *)it->data[1])[bytes + 8] = 77;
    }
    return 0;
}

static int odd(void *user, const dlp_item *it) {
    (void)user;
    return *(const uint64_t *)it->data[0] % 4 != 0;
}
static int add_sum(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[3] = *(const uint64_t *)it->data[0] ^ it->length[1];
    return 0;
}
static int nothing(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}

static const dlp_field made[3] = {{.name = "id", .dtype = DLP_U64},
                                  {"text", DLP_U8, 1, {LONGEST}, 1, 0},
                                  {"marks", DLP_U8, 1, {LONGEST}, 1, 0}};
static const dlp_field sum_field = {.name = "sum", .dtype = DLP_U64};

/* ---- tables ---- */

enum { PLAIN, FILTERED, ADDED, WINDOW, GROUPS, KEPT, PACKED, ZIPPED, BEHIND_MIX, TABLES };

static dlp_node expand_row(const char *name, uint64_t max_bytes, int32_t workers) {
    return (dlp_node){.name = name,
                      .verb = DLP_EXPAND,
                      .expand = {.expand = make,
                                 .fields = made,
                                 .n_fields = 3,
                                 .max_out = MOST,
                                 .max_bytes = max_bytes},
                      .workers = {.num_workers = workers}};
}

static dlp_node list_row(const char *name) {
    return (dlp_node){.name = name, .verb = DLP_LIST, .list = {.n_items = INPUTS, .shuffle = 1}};
}

/* Write a table. max_bytes: of its items, with 8 bytes more in a table that adds a field. */
static uint32_t table(int kind, uint64_t max_bytes, int32_t workers, dlp_node *to) {
    static const char *const from[] = {"makes", "makes 2", NULL};
    uint32_t n = 0;
    if (kind == ADDED && max_bytes > 0) max_bytes += MOST * 8;
    to[n++] = list_row("inputs");
    if (kind != BEHIND_MIX) to[n++] = expand_row("makes", max_bytes, workers);
    if (kind == ZIPPED || kind == BEHIND_MIX) {
        const dlp_field number = {.name = "number", .dtype = DLP_U64};
        static dlp_field own[3];
        memcpy(own, made, sizeof own);
        own[0].name = "id 2", own[1].name = "text 2", own[2].name = "marks 2";
        if (kind == BEHIND_MIX) {
            static dlp_field in;
            in = number;
            to[n++] = (dlp_node){.name = "makes",
                                 .verb = DLP_FETCH,
                                 .fetch = {.fetch = nothing, .fields = &in, .n_fields = 1},
                                 .workers = {.num_workers = workers}};
            to[n++] = list_row("inputs 2");
            to[n] = to[n - 2];
            to[n++].name = "makes 2";
            to[n++] = (dlp_node){.name = "both", .verb = DLP_MIX, .from = from};
            to[n++] = expand_row("behind", max_bytes, 0);
            to[n - 1].workers.num_workers = 0;
        } else {
            to[n++] = list_row("inputs 2");
            to[n++] = expand_row("makes 2", max_bytes, workers);
            to[n - 1].expand.fields = own;
            to[n++] = (dlp_node){.name = "both", .verb = DLP_ZIP, .from = from};
        }
    }
    if (kind == FILTERED)
        to[n++] = (dlp_node){.name = "odd", .verb = DLP_FILTER, .filter = {.keep = odd}};
    if (kind == ADDED) {
        to[n++] = (dlp_node){.name = "sum",
                             .verb = DLP_MAP,
                             .map = {.item = add_sum, .fields = &sum_field, .n_fields = 1}};
        to[n++] = (dlp_node){.name = "odd", .verb = DLP_FILTER, .filter = {.keep = odd}};
    }
    if (kind == KEPT) to[n++] = (dlp_node){.name = "keep", .verb = DLP_CACHE, .cache = {1 << 20}};
    if (kind == WINDOW)
        to[n++] = (dlp_node){.name = "window", .verb = DLP_WINDOW, .window = {.items = 64}};
    if (kind == GROUPS)
        to[n++] = (dlp_node){.name = "window",
                             .verb = DLP_WINDOW,
                             .window = {.items = 64, .group = 8, .by = "text"}};
    if (kind == PACKED) {
        to[n++] = (dlp_node){.name = "texts", .verb = DLP_MAP, .map = {.item = nothing}};
        to[n - 1].map.ends = "id";
        to[n++] = (dlp_node){.name = "pack", .verb = DLP_PACK, .pack = {.tokens = 700}};
    }
    to[n++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}};
    return n;
}

/* ---- runs are compared ---- */

typedef struct kept {
    uint64_t rows;
    dlp_state state;
} kept;

static kept base[BATCHES], other[BATCHES];

static uint64_t rows_of(const dlp_batch *b) {
    uint64_t h = b->count;
    for (uint32_t f = 0; f < b->n_fields; f++) {
        const dlp_tensor *x = &b->fields[f];
        const uint8_t *at = x->data;
        for (uint32_t r = 0; x->lengths != NULL && r < b->count; r++)
            h = dlp_hash(h, x->lengths[r], f, r);
        for (uint64_t k = 0; k < x->bytes; k++) h = (h ^ at[k]) * UINT64_C(0x100000001b3);
    }
    for (uint32_t r = 0; r < b->count; r++)
        h = dlp_hash(h, b->valid[r] ? b->index[r] : UINT64_MAX,
                     b->number != NULL ? b->number[r] : 0, b->valid[r]);
    return h;
}

/* Run a table to its end, or an error, which goes to *err. Returns the batches. */
static int64_t run(const dlp_node *t, uint32_t n, const dlp_pipe_desc *d, kept *to,
                   dlp_error *err) {
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int64_t got = 0;
    int rc = dlp_pipe_open(&p, t, n, d, err);
    if (!well(rc == DLP_OK)) printf("  %s: %s: %s\n", err->stage, err->field, err->message);
    if (rc != DLP_OK) return -1;
    while (got < BATCHES && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        to[got].rows = rows_of(b);
        CHECK(dlp_pipe_state(p, b, &to[got].state) == DLP_OK);
        dlp_pipe_release(p, b);
        got++;
    }
    memset(err, 0, sizeof *err);
    if (rc != DLP_END) *err = *dlp_pipe_error(p);
    dlp_pipe_close(p);
    return got;
}

static int same(const kept *a, const kept *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (a[i].rows != b[i].rows || memcmp(&a[i].state, &b[i].state, sizeof a->state) != 0)
            return 0;
    return n > 0;
}

static void max_bytes__any_table__rows_and_states_as_without(int kind, uint32_t lie) {
    for (int32_t workers = 0; workers < 3; workers += 2) {
        dlp_pipe_desc d = {.epochs = 2, .trace_rows = kind != PACKED};
        dlp_node t[12];
        dlp_error err;
        int64_t n, again;
        how.lie = lie;
        how.input = UINT64_MAX;
        n = run(t, table(kind, 0, workers ? workers : DLP_NONE, t), &d, base, &err);
        again = run(t, table(kind, ALL, workers ? workers : DLP_NONE, t), &d, other, &err);
        if (!well(n > 0 && n == again && same(base, other, n))) printf("  table %d\n", kind);
        for (int64_t k = 1; k < n - 1; k += 7 + n / 9) { /* a state fits with any max_bytes */
            d.resume = &base[k].state;
            again = run(t, table(kind, k % 2 ? ALL : 0, workers, t), &d, other, &err);
            if (!well(again == n - k - 1 && same(base + k + 1, other, again)))
                printf("  table %d, resumed behind %d\n", kind, (int)k);
        }
    }
    how.lie = NO_LIE;
}

/* ---- the plan ---- */

static uint64_t inputs_of(const dlp_node *t, uint32_t n) {
    dlp_plan plan;
    dlp_error err;
    uint64_t bytes = 0;
    const int rc = dlp_nodes_plan(t, n, NULL, &plan, &err);
    if (!well(rc == DLP_OK)) printf("  %s: %s\n", err.field, err.message);
    for (uint32_t i = 0; rc == DLP_OK && i < plan.n_lines; i++)
        if (strstr(plan.lines[i].what, "part cells") != NULL) bytes += plan.lines[i].bytes;
    return bytes;
}

static void plan__documents_of_any_length__cells_of_max_bytes(void) {
    const dlp_field text = {"text", DLP_U8, 1, {65536}, 1, 0};
    dlp_node t[] = {
        list_row("shards"),
        expand_row("documents", 0, 1),
        {.name = "pack", .verb = DLP_PACK, .pack = {.tokens = 2048, .min_documents = 64}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
    uint64_t all, tight, cells;
    t[1].expand.fields = &text;
    t[1].expand.n_fields = 1;
    t[1].expand.max_out = 4096;
    t[1].queue.capacity = 200;
    all = inputs_of(t, 4);
    t[1].expand.max_bytes = 1 << 20;
    tight = inputs_of(t, 4);
    cells = 200;
    CHECK(all > cells << 28); /* 256 MiB each */
    /* 1 MiB, a place of 64 KiB, 24 bytes for each document, where each ends, and a record */
    CHECK(tight > cells << 20);
    CHECK(tight <= cells * ((1 << 20) + 65536 + 4096 * (24 + 4) + 5 * 4096));
}

/* ---- what is refused ---- */

static void refused(const dlp_node *t, uint32_t n, const char *words) {
    dlp_plan plan;
    dlp_error err;
    CHECK(dlp_nodes_plan(t, n, NULL, &plan, &err) == DLP_ERR_ARG);
    if (!well(strcmp(err.stage, "makes") == 0 && strcmp(err.field, "expand.max_bytes") == 0 &&
              strstr(err.message, words) != NULL))
        printf("  %s: %s: %s\n", err.stage, err.field, err.message);
}

static void max_bytes__without_meaning__refused(void) {
    const uint64_t one = 8 + 2 * LONGEST;
    dlp_node t[12], more[5];
    uint32_t n = table(PLAIN, ALL, 1, t);
    dlp_plan plan;
    t[1].expand.max_bytes = one - 1;
    refused(t, n, "max_bytes is 1807, must be 1808..72320: from one item");
    t[1].expand.max_bytes = MOST * one + 1;
    refused(t, n, "max_bytes is 72321, must be 1808..72320");
    for (uint64_t bytes = one; bytes <= MOST * one; bytes += (MOST - 1) * one) {
        t[1].expand.max_bytes = bytes;
        CHECK(dlp_nodes_plan(t, n, NULL, &plan, NULL) == DLP_OK);
    }
    t[1].expand.n_fields = 1;
    refused(t, n, "must be 0: no field of the items is ragged");
    n = table(ADDED, ALL, 1, t);
    t[1].expand.max_bytes = one; /* the field that the map adds is one of the item's */
    refused(t, n, "max_bytes is 1808, must be 1816..");
    memcpy(more, t, 2 * sizeof *t);
    more[1].expand.max_bytes = ALL;
    more[2] = expand_row("more", 0, 0);
    more[2].expand.max_out = 2;
    more[3] = t[n - 1];
    refused(more, 4, "must be 0: \"more\" makes other items of the items; only the last expand");
}

/* ---- inputs with too much ---- */

/* Run a table of which one input has `over` bytes more than it may have. Returns the batches. */
static int64_t run_more(uint64_t over, int32_t on_error, int32_t retries, dlp_error *err) {
    dlp_node t[12];
    dlp_pipe_desc d = {.epochs = 1};
    const uint32_t n = table(FILTERED, ALL, 2, t);
    uint64_t all = 0;
    for (uint64_t k = 0; k < 4; k++) all += 8 + 2 * length_of(how.input, k);
    how.more = ALL - all + over;
    t[1].workers.on_error = on_error;
    t[1].workers.retries = retries;
    t[1].expand.max_bytes = ALL;
    return run(t, n, &d, other, err);
}

static int odd_but_it(void *user, const dlp_item *it) {
    return it->index != how.input && odd(user, it);
}

static void input__one_byte_above_max_bytes__fails_with_its_row_and_item(void) {
    dlp_node t[12];
    dlp_pipe_desc d = {.epochs = 1};
    dlp_error err;
    int64_t n, again;
    uint32_t rows = table(FILTERED, 0, 2, t);
    how.attempts = 0;
    how.input = 5; /* four items, and the filter keeps them */
    for (uint64_t k = 0; k < 4; k++)
        if (h_of(how.input, k) % 4 == 0) how.input += 5, k = UINT64_MAX;
    n = run_more(0, DLP_ON_ERROR_RAISE, 0, &err);
    CHECK(n > 0 && err.code == 0);
    CHECK(run_more(1, DLP_ON_ERROR_RAISE, 0, &err) < n);
    CHECK(err.code == DLP_ERR_LENGTH && strcmp(err.stage, "makes") == 0 && err.index == how.input);
    if (!well(strstr(err.message, ": item 3: the items of the input have 4001 bytes") != NULL &&
              strstr(err.message, "max_bytes is 4000; raise it") != NULL))
        printf("  %s\n", err.message);
    how.attempts = 1; /* the second try has no more than it may */
    CHECK(run_more(1, DLP_ON_ERROR_RAISE, 1, &err) == n && err.code == 0);
    how.attempts = 0;
    /* left out, it is left out as a whole */
    t[2].filter.keep = odd_but_it;
    how.more = 0;
    n = run(t, rows, &d, base, &err);
    again = run_more(1, DLP_ON_ERROR_DROP, 0, &err);
    CHECK(n == again && err.code == 0 && same(base, other, n));
}

static int make_two(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t k = 0; k < 2; k++) *(uint64_t *)dlp_expand_add(x)->data[0] = k;
    return 0;
}
static int make_long(void *user, dlp_expand *x) {
    (void)user;
    for (int k = 0; k < 2; k++) {
        dlp_item *it = dlp_expand_add(x);
        it->length[1] = it->length[2] = LONGEST;
    }
    return *(const uint64_t *)x->item->data[0] == 0 ? DLP_SKIP : 0;
}

/* An expand behind another one takes its items back: their bytes do not count. */
static void items__taken_back__leave_their_bytes(void) {
    const dlp_field number = {.name = "number", .dtype = DLP_U64};
    dlp_node t[] = {list_row("inputs"),
                    expand_row("two", 0, 1),
                    expand_row("makes", 2 * (8 + 2 * LONGEST), 0),
                    {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
    dlp_error err;
    t[1].expand.expand = make_two;
    t[1].expand.fields = &number;
    t[1].expand.n_fields = 1;
    t[1].expand.max_out = 2;
    t[2].expand.expand = make_long;
    t[2].expand.max_out = 2;
    CHECK(run(t, 4, &(dlp_pipe_desc){.epochs = 1}, other, &err) == INPUTS * 2 / 8);
    if (!well(err.code == 0)) printf("  %s\n", err.message);
}

static void callback__lies__fails_or_spoils_nothing(void) {
    dlp_error err;
    dlp_node t[12];
    dlp_pipe_desc d = {.epochs = 1};
    how.input = 7;
    how.more = 0;
    how.lie = TOO_LONG;
    run(t, table(PLAIN, ALL, 2, t), &d, other, &err);
    CHECK(err.code == DLP_ERR_LENGTH && err.index == 7);
    if (!well(strstr(err.message, "\"text\"") != NULL)) printf("  %s\n", err.message);
    how.lie = TOO_MANY;
    run(t, table(PLAIN, ALL, 2, t), &d, other, &err);
    CHECK(err.code == DLP_ERR_LENGTH && err.index == 7);
    if (!well(strstr(err.message, "more than max_out 40 items") != NULL))
        printf("  %s\n", err.message);
    how.lie = NO_LIE;
    how.input = UINT64_MAX;
}

int main(void) {
    how.input = UINT64_MAX;
    for (int kind = 0; kind < TABLES; kind++)
        max_bytes__any_table__rows_and_states_as_without(kind, NO_LIE);
    max_bytes__any_table__rows_and_states_as_without(PLAIN, BEHIND);
    plan__documents_of_any_length__cells_of_max_bytes();
    max_bytes__without_meaning__refused();
    input__one_byte_above_max_bytes__fails_with_its_row_and_item();
    items__taken_back__leave_their_bytes();
    callback__lies__fails_or_spoils_nothing();
    return test_end("expand_bytes");
}
