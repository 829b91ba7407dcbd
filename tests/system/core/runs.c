/* needs: runs join mix parts */
/* fetch_rows: the items of several rows are written by one call. The rows are those of a fetch, in
   threads, processes and inline, with failures, retries, maps in the same attempt, later fetches,
   mixes, ragged fields and deaths. A call that fails names its item. Tables in which there can be
   no such call are refused. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../../dlpipe_shm.h"
#include "../../rig/check.h"
#include "../../rig/pipe_rig.h"
#include <signal.h>
#include <sys/mman.h>

enum { ITEMS = 500, WIDE = 5 };

/* What calls have seen and done, of all processes. */
typedef struct seen {
    uint64_t calls, items, most; /* calls; items asked for; most items of a call */
    uint64_t deaths;
    uint64_t wrong;                   /* items that were not as they must be */
    uint64_t asked[ITEMS], at[ITEMS]; /* by index: times asked for; times alone in a call */
} seen;

static seen *seen_;

typedef struct work { /* user of the callbacks */
    uint32_t fails;   /* n: each n-th item fails, by `code`; 0: none */
    int code, tries;  /* at so many attempts; 0: at all */
    int says, ragged, spoils, kills, bad_made;
    uint32_t slow;  /* us that each item takes */
    uint64_t least; /* no item below it fails */
    uint64_t first; /* added to the index in what is written: of a later dataset */
} work;

static uint64_t word_of(uint64_t index, uint64_t k) { return dlp_hash(index, k, 3, 4) | 1; }
static uint64_t length_of(uint64_t index) { return index % (WIDE + 1); }

static void count(const dlp_item *items, uint32_t n) {
    __atomic_add_fetch(&seen_->calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&seen_->items, n, __ATOMIC_RELAXED);
    for (uint64_t most = seen_->most; n > most;)
        if (__atomic_compare_exchange_n(&seen_->most, &most, n, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            break;
    for (uint32_t i = 0; i < n; i++) {
        __atomic_add_fetch(&seen_->asked[items[i].index % ITEMS], 1, __ATOMIC_RELAXED);
        if (n == 1) __atomic_add_fetch(&seen_->at[items[i].index % ITEMS], 1, __ATOMIC_RELAXED);
    }
}

/* Write an item: "x" has WIDE words, all of them, or as many as its length if it is ragged. */
static void write_item(const work *w, dlp_item *it) {
    uint64_t *x = it->data[0], n = w->ragged ? length_of(it->index + w->first) : WIDE;
    int wrong = w->ragged ? it->length[0] != 0 : 0;
    for (uint64_t k = 0; k < (w->ragged ? 0 : n); k++) wrong |= x[k] != 0; /* it was cleared */
    if (wrong) __atomic_add_fetch(&seen_->wrong, 1, __ATOMIC_RELAXED);
    for (uint64_t k = 0; k < n; k++) x[k] = word_of(it->index + w->first, k);
    if (w->ragged) it->length[0] = n;
}

static int fails_at(const work *w, const dlp_item *it) {
    return w->fails > 0 && it->index >= w->least && it->index % w->fails == 3 &&
           (w->tries == 0 || (int)it->attempt < w->tries);
}

/* Items are written in no order, and some of those behind a failed one, too. */
static int fetch_rows(void *user, dlp_item *items, uint32_t n, uint32_t *made) {
    const work *w = user;
    uint32_t bad = n;
    if (*made != 0 || n < 1 || n > 32) __atomic_add_fetch(&seen_->wrong, 1, __ATOMIC_RELAXED);
    count(items, n);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && (items[i].row <= items[i - 1].row || items[i].epoch != items[0].epoch))
            __atomic_add_fetch(&seen_->wrong, 1, __ATOMIC_RELAXED);
        if (n > 1 && dlp_item_ahead(&items[i]) != UINT64_MAX) seen_->wrong++; /* they are here */
        if (!w->kills || items[i].index % 100 != 77) continue;
        __atomic_add_fetch(&seen_->deaths, 1, __ATOMIC_SEQ_CST);
        raise(SIGKILL);
    }
    if (w->slow) usleep(w->slow * n);
    for (uint32_t i = n; i-- > 0;) {
        write_item(w, &items[i]);
        if (fails_at(w, &items[i])) bad = i;
    }
    *made = w->bad_made ? n : bad;
    if (bad < n && w->says) dlp_fail(items[bad].call, 5, "item %d is bad", (int)items[bad].index);
    for (uint32_t i = 0; w->spoils && i < n; i++) {
        for (uint32_t f = 0; f < items[i].n_fields; f++) items[i].data[f] = NULL;
        uint64_t *length = items[i].length;
        memset(&items[i], 0x77, sizeof items[i]);
        if (w->ragged == 0) *length = 0;
    }
    return bad < n ? w->code : 0;
}

static int fetch(void *user, dlp_item *it) {
    const work *w = user;
    write_item(w, it);
    return fails_at(w, it) ? w->code : 0;
}

/* ---- a run, and what came of it ---- */

typedef struct came {
    uint64_t rows, sum, valid, indices[4 * ITEMS];
    uint8_t ok[4 * ITEMS];
    int rc;
    dlp_error error;
} came;

static came by_row_, by_run_;

static const dlp_field x_ = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {WIDE}};
static const dlp_field ragged_ = {
    .name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {WIDE}, .ragged = 1};

static void take(came *c, const dlp_batch *b) {
    for (uint32_t r = 0; r < b->count && c->rows < 4 * ITEMS; r++) {
        for (uint32_t f = 0; f < b->n_fields; f++) {
            const uint64_t bytes = b->fields[f].bytes / b->count;
            const uint8_t *at = (const uint8_t *)b->fields[f].data + r * bytes;
            for (uint64_t k = 0; k < bytes; k++) c->sum = c->sum * 31 + at[k];
        }
        c->indices[c->rows] = b->index[r];
        c->valid += b->valid[r];
        c->ok[c->rows++] = b->valid[r];
    }
}

static void run_table(came *c, const dlp_node *nodes, uint32_t n, const dlp_pipe_desc *d) {
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    memset(c, 0, sizeof *c);
    c->sum = 1;
    c->rc = dlp_pipe_open(&p, nodes, n, d, &c->error);
    if (p == NULL) return;
    while ((c->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK || c->rc == DLP_EPOCH_END) {
        if (c->rc == DLP_EPOCH_END) continue;
        take(c, b);
        dlp_pipe_release(p, b);
    }
    if (c->rc != DLP_END) c->error = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void forget(void) { memset(seen_, 0, sizeof *seen_); }

/* ---- tables ---- */

#define LIST \
    { \
        .name = "list", .verb = DLP_LIST, .list = {.n_items = ITEMS, .shuffle = 1 } \
    }
#define FETCH(named, field, w) \
    { \
        .name = named, .verb = DLP_FETCH, .fetch = {.user = w, .fields = field, .n_fields = 1 } \
    }
#define BATCH(rows) \
    { \
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = rows } \
    }

static void by_rows(dlp_node *node, bool rows) {
    node->fetch.fetch = rows ? NULL : fetch;
    node->fetch.fetch_rows = rows ? fetch_rows : NULL;
}

/* Run the table with a fetch and with a fetch_rows, and compare all that comes. at: [n_at] numbers
   of the fetch rows. */
static void compare(dlp_node *nodes, uint32_t n, const uint32_t *at, uint32_t n_at,
                    const dlp_pipe_desc *d) {
    for (uint32_t i = 0; i < n_at; i++) by_rows(&nodes[at[i]], false);
    run_table(&by_row_, nodes, n, d);
    forget();
    for (uint32_t i = 0; i < n_at; i++) by_rows(&nodes[at[i]], true);
    run_table(&by_run_, nodes, n, d);
    CHECK(by_row_.rc == DLP_END && by_run_.rc == DLP_END && seen_->wrong == 0);
    if (by_run_.rc != DLP_END) printf("  %s\n", by_run_.error.message);
    CHECK(by_row_.rows > 0 && by_row_.rows == by_run_.rows && by_row_.sum == by_run_.sum);
    CHECK(memcmp(by_row_.indices, by_run_.indices, sizeof by_row_.indices) == 0);
    CHECK(memcmp(by_row_.ok, by_run_.ok, sizeof by_row_.ok) == 0);
}

static void runs__any_workers__rows_as_by_a_fetch(void) {
    static const int workers[] = {DLP_NONE, 1, 2, 5};
    static const uint32_t batches[] = {1, 2, 31, 64, 200};
    const uint32_t at = 1;
    for (int i = 0; i < 2 * 4 * 5 * 2 * 2; i++) {
        const int ragged = i & 1, processes = i >> 1 & 1, turns = i >> 2 & 1;
        work w = {.ragged = ragged, .spoils = !ragged};
        dlp_node t[] = {LIST, FETCH("f", ragged ? &ragged_ : &x_, &w), BATCH(batches[i / 8 % 5])};
        const dlp_pipe_desc d = {.seed = 7, .epochs = 3};
        t[1].workers.num_workers = workers[i / 40];
        if (workers[i / 40] < 1 && (processes || turns)) continue;
        if (processes) t[1].workers.placement = DLP_PLACE_PROCESSES;
        if (turns) t[0].queue.deal = DLP_DEAL_TURNS;
        compare(t, 3, &at, 1, &d);
        CHECK(seen_->items >= by_run_.rows);
        /* a run is measured first; then it is as long as a batch and the workers allow */
        if (batches[i / 8 % 5] == 64) CHECK(seen_->most >= (workers[i / 40] == 5 ? 8 : 16));
        if (batches[i / 8 % 5] == 1) CHECK(seen_->most == 1);
    }
}

static void runs__items_take_long__calls_for_all_that_workers_leave(void) {
    for (int32_t workers = 1; workers <= 8; workers *= 2) {
        work w = {.slow = 100};
        dlp_node t[] = {LIST, FETCH("f", &x_, &w), BATCH(64)};
        t[1].workers.num_workers = workers;
        by_rows(&t[1], true);
        forget();
        run_table(&by_run_, t, 3, NULL);
        CHECK(by_run_.rc == DLP_END && by_run_.rows == ITEMS);
        CHECK(seen_->most == (workers > 2 ? 64u / (uint32_t)workers : 32u));
    }
}

/* ---- failures ---- */

static void runs__items_fail__policy_of_each(void) {
    static const struct {
        int32_t on_error, retries, tries, code;
    } cases[] = {
        {DLP_ON_ERROR_DROP, 0, 0, 5},        {DLP_ON_ERROR_DROP, 2, 0, 5},
        {DLP_ON_ERROR_DROP, 2, 1, 5},        {DLP_ON_ERROR_REPLACE, 0, 0, 5},
        {DLP_ON_ERROR_DROP, 0, 0, DLP_SKIP}, {DLP_ON_ERROR_RAISE, 3, 2, 5},
    };
    const uint32_t at = 1;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const int ragged = i & 1;
        work w = {
            .fails = 7, .code = cases[i / 2].code, .tries = cases[i / 2].tries, .ragged = ragged};
        dlp_node t[] = {LIST, FETCH("f", ragged ? &ragged_ : &x_, &w), BATCH(64)};
        const dlp_pipe_desc d = {.seed = 7, .epochs = 2};
        const int32_t r = w.code == DLP_SKIP ? 0 : cases[i / 2].retries;
        t[1].workers.num_workers = 2;
        t[1].workers.on_error = cases[i / 2].on_error;
        t[1].workers.retries = cases[i / 2].retries;
        compare(t, 3, &at, 1, &d);
        CHECK(seen_->most > 8);
        if (cases[i / 2].on_error == DLP_ON_ERROR_REPLACE) continue;
        /* a retry asks for the failed item alone */
        for (uint64_t k = 3; k < ITEMS; k += 7)
            CHECK(seen_->at[k] >= 2 * (uint64_t)(w.tries > 0 ? w.tries : r));
    }
}

static int add_one(void *user, dlp_item *it) {
    const work *w = user;
    uint64_t *x = it->data[0], *y = it->data[1];
    if (it->n_fields != 2 || *y != 0) __atomic_add_fetch(&seen_->wrong, 1, __ATOMIC_RELAXED);
    *y = it->length[0] > 1 || x[WIDE - 1] != 0 ? ++x[1] * 3 + it->position : 0;
    return fails_at(w, it) ? w->code : 0;
}

static void runs__a_call_fails__its_item_is_named(void) {
    for (int says = 0; says < 3; says++) {
        work w = {.fails = 250, .least = 200, .code = 5, .says = says == 1, .bad_made = says == 2};
        dlp_node t[] = {LIST, FETCH("f", &x_, &w), BATCH(32)};
        const dlp_pipe_desc d = {.seed = 7};
        t[0].list.shuffle = 0;
        t[1].workers.num_workers = says == 0 ? DLP_NONE : 1;
        by_rows(&t[1], true);
        forget();
        run_table(&by_run_, t, 3, &d);
        CHECK(by_run_.rc == DLP_ERR_CALLBACK && by_run_.error.has_item);
        CHECK(strcmp(by_run_.error.stage, "f") == 0);
        CHECK(by_run_.error.index == by_run_.error.position);
        if (says < 2) CHECK(by_run_.error.index == 253);
        CHECK(strstr(by_run_.error.message, says == 0   ? "returned 5"
                                            : says == 1 ? "item 253 is bad"
                                                        : "fetch_rows returned 5 and set *made"));
    }
}

/* Rows before the failed one go on in a map, which may have words of its own. */
static void runs__a_call_fails_before_a_map__its_words_are_kept(void) {
    static const dlp_field y = {.name = "y", .dtype = DLP_U64};
    work w = {.fails = 250, .least = 200, .code = 5, .says = 1}, m = {.fails = 0};
    dlp_node t[] = {LIST,
                    FETCH("f", &x_, &w),
                    {.name = "m",
                     .verb = DLP_MAP,
                     .map = {.item = add_one, .user = &m, .fields = &y, .n_fields = 1}},
                    BATCH(32)};
    t[0].list.shuffle = 0;
    t[1].workers.num_workers = 1;
    by_rows(&t[1], true);
    forget();
    run_table(&by_run_, t, 4, NULL);
    CHECK(seen_->most > 8 && seen_->at[253] == 0);
    CHECK(by_run_.rc == DLP_ERR_CALLBACK && by_run_.error.index == 253);
    CHECK(strcmp(by_run_.error.stage, "f") == 0 && by_run_.error.errnum == 5);
    CHECK(strcmp(by_run_.error.message, "item 253 is bad") == 0);
}

/* A fixed field has no length. */
static int fetch_lengths(void *user, dlp_item *items, uint32_t n, uint32_t *made) {
    (void)user, (void)made;
    for (uint32_t i = 0; i < n; i++)
        if (items[i].index == 133) items[i].length[0] = 2;
    return 0;
}

static void runs__a_length_is_wrong__its_row_is_named(void) {
    work w = {.fails = 0};
    dlp_node t[] = {LIST, FETCH("f", &x_, &w), BATCH(32)};
    t[1].fetch.fetch_rows = fetch_lengths;
    t[1].workers.num_workers = 1;
    run_table(&by_run_, t, 3, NULL);
    CHECK(by_run_.rc == DLP_ERR_LENGTH && by_run_.error.index == 133);
    CHECK(strcmp(by_run_.error.field, "x") == 0);
}

/* ---- other rows of the table ---- */

static void runs__a_map_behind__runs_in_the_attempt(void) {
    static const dlp_field y = {.name = "y", .dtype = DLP_U64};
    const uint32_t at = 1;
    for (int i = 0; i < 8; i++) {
        const int ragged = i & 1, fails = i >> 1 & 1, tries = i >> 2;
        work w = {.ragged = ragged}, m = {.fails = fails ? 11u : 0, .code = 5, .tries = tries};
        dlp_node t[] = {LIST,
                        FETCH("f", ragged ? &ragged_ : &x_, &w),
                        {.name = "m",
                         .verb = DLP_MAP,
                         .map = {.item = add_one, .user = &m, .fields = &y, .n_fields = 1}},
                        BATCH(64)};
        const dlp_pipe_desc d = {.seed = 7, .epochs = 2};
        t[1].workers.num_workers = 2;
        t[1].workers.retries = tries;
        t[1].workers.on_error = DLP_ON_ERROR_DROP;
        compare(t, 4, &at, 1, &d);
        if (!ragged) CHECK(seen_->most > 8);
        if (fails && tries == 0) CHECK(by_run_.valid < by_run_.rows);
    }
}

static void runs__a_later_fetch__rows_as_by_a_fetch(void) {
    static const dlp_field y = {.name = "y", .dtype = DLP_U64, .ndim = 1, .shape = {WIDE}};
    static const uint32_t at[] = {1, 2};
    for (int i = 0; i < 4; i++) {
        work w = {.ragged = 0}, v = {.fails = i & 2 ? 9u : 0, .code = 5, .first = ITEMS};
        dlp_node t[] = {LIST, FETCH("f", &x_, &w), FETCH("g", &y, &v), BATCH(64)};
        const dlp_pipe_desc d = {.seed = 7, .epochs = 2};
        t[1].workers.num_workers = 2;
        if (i & 1) t[2].workers.num_workers = 3;
        t[2].workers.on_error = DLP_ON_ERROR_DROP;
        compare(t, 4, at, 2, &d);
        CHECK(seen_->most > 4);
    }
}

static void runs__a_mix__each_call_has_items_of_its_dataset(void) {
    static const uint64_t n_items[] = {300, 200}, weights[] = {2, 1};
    static const uint32_t at[] = {1, 2};
    const dlp_mix_desc md = {
        .n = 2, .shuffle = 1, .n_items = n_items, .weights = weights, .seed = 7};
    dlp_mix *mix = NULL;
    CHECK(dlp_mix_open(&mix, &md, NULL) == DLP_OK);
    for (int i = 0; i < 4; i++) {
        work w = {.fails = i & 1 ? 13u : 0, .code = 5},
             v = {.fails = i & 2 ? 9u : 0, .code = 5, .first = 300};
        dlp_node t[] = {LIST, FETCH("f", &x_, &w), FETCH("g", &x_, &v), BATCH(64)};
        const dlp_pipe_desc d = {.seed = 7, .epochs = 2};
        t[0].list = (dlp_node_list){.mix = mix};
        for (int k = 1; k < 3; k++) {
            t[k].fetch.of = (uint32_t)k;
            t[k].workers.num_workers = 2;
            t[k].workers.on_error = DLP_ON_ERROR_DROP;
        }
        compare(t, 4, at, 2, &d);
        CHECK(seen_->most > 4);
    }
    dlp_mix_close(mix);
}

static void runs__a_deadline__items_one_by_one(void) {
    work w = {.ragged = 0};
    const uint32_t at = 1;
    dlp_node t[] = {LIST, FETCH("f", &x_, &w), BATCH(64)};
    t[1].workers.num_workers = 1;
    t[1].workers.deadline_ms = 60000;
    compare(t, 3, &at, 1, NULL);
    CHECK(seen_->most == 1 && seen_->calls == ITEMS);
}

/* ---- deaths ---- */

static void runs__a_call_dies__its_item_is_found(void) {
    for (int32_t kills = 1; kills <= 3; kills++) {
        work w = {.kills = 1};
        const dlp_shm_desc shm = {.max_kills = kills};
        dlp_node t[] = {LIST, FETCH("f", &x_, &w), BATCH(64)};
        const dlp_pipe_desc d = {.seed = 7, .shm = &shm};
        t[1].workers.num_workers = 2;
        t[1].workers.placement = DLP_PLACE_PROCESSES;
        t[1].workers.on_error = DLP_ON_ERROR_DROP;
        by_rows(&t[1], true);
        forget();
        run_table(&by_run_, t, 3, &d);
        CHECK(by_run_.rc == DLP_END && by_run_.rows == ITEMS);
        CHECK(by_run_.valid == ITEMS - 5); /* those that kill, and no others */
        for (uint64_t r = 0; r < by_run_.rows; r++)
            CHECK(by_run_.ok[r] == (by_run_.indices[r] % 100 != 77));
        CHECK(seen_->most > 8);
        /* the death of a call counts for each of its items */
        CHECK(seen_->deaths <= 5u * (uint64_t)(kills > 2 ? kills : 2));
    }
}

/* ---- tables that are refused ---- */

static int make_one(void *user, dlp_expand *x) {
    (void)user;
    return dlp_expand_add(x) == NULL;
}

static void runs__no_such_call__refused(void) {
    work w = {.ragged = 0};
    const dlp_dataset items = {
        .n_items = ITEMS, .fields = &x_, .n_fields = 1, .fetch = fetch, .user = &w};
    const dlp_source source = {.dataset = &items};
    dlp_node t[] = {LIST, FETCH("f", &x_, &w), BATCH(64)};
    dlp_node makes[] = {
        LIST,
        FETCH("f", &x_, &w),
        {.name = "e", .verb = DLP_EXPAND, .expand = {.expand = make_one, .max_out = 1}},
        BATCH(64)};
    t[1].workers.num_workers = 1;
    by_rows(&t[1], true);
    t[1].fetch.fetch = fetch;
    run_table(&by_run_, t, 3, NULL);
    CHECK(by_run_.rc == DLP_ERR_ARG && strcmp(by_run_.error.field, "fetch.fetch") == 0);
    t[1].fetch.fetch = NULL;
    t[1].fetch.in_flight = 4;
    run_table(&by_run_, t, 3, NULL);
    CHECK(by_run_.rc == DLP_ERR_ARG && strcmp(by_run_.error.field, "fetch.fetch_rows") == 0);
    t[1].fetch = (dlp_node_fetch){.source = &source, .fetch_rows = fetch_rows};
    run_table(&by_run_, t, 3, NULL);
    CHECK(by_run_.rc == DLP_ERR_ARG && strcmp(by_run_.error.field, "fetch.fetch_rows") == 0);
    CHECK(strstr(by_run_.error.message, "beside fetch.source") != NULL);
    by_rows(&makes[1], true);
    run_table(&by_run_, makes, 4, NULL);
    CHECK(by_run_.rc == DLP_ERR_GRAPH && strstr(by_run_.error.message, "fetch_rows") != NULL);
}

int main(void) {
    seen_ = mmap(NULL, sizeof *seen_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen_ != MAP_FAILED);
    runs__any_workers__rows_as_by_a_fetch();
    runs__items_take_long__calls_for_all_that_workers_leave();
    runs__items_fail__policy_of_each();
    runs__a_call_fails__its_item_is_named();
    runs__a_call_fails_before_a_map__its_words_are_kept();
    runs__a_length_is_wrong__its_row_is_named();
    runs__a_map_behind__runs_in_the_attempt();
    runs__a_later_fetch__rows_as_by_a_fetch();
    runs__a_mix__each_call_has_items_of_its_dataset();
    runs__a_deadline__items_one_by_one();
    runs__a_call_dies__its_item_is_found();
    runs__no_such_call__refused();
    return test_end("runs");
}
