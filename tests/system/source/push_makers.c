/* needs: parts pack pictures */
/* A push in front of filters, expanders, windows and packing, as a branch of a zip, or of several
   who take its batches: each record once, in its producer's order, whatever the workers, their
   placement and their deaths, at each atomic access, too; ragged records; full batches at once;
   back-pressure, NEWEST, ends, errors; and what is refused. */
/* own: hook: a worker dies at an access of an atomic */
#define _GNU_SOURCE
#include "../../rig/atomics_hook.h"

static void death_here(void);

static inline void atomics_hook(int kind, const void *at) {
    (void)kind;
    (void)at;
    death_here();
}

#define DLPIPE_NO_DEBUG
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include "../../rig/sanitizers.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PRODUCERS = 3, MOST = 4000, WORDS = 9, SOON_MS = 20000 };
enum {
    FILTERS = 1,
    EXPANDS = 2,
    MIXES = 4,
    CUTS = 8,
    FITS = 16,
    MAPS = 32,
    OUTS = 64,
    SHARES = 128,
    ZIPS = 256,
    LOADS = 512 /* with EXPANDS: instead of an expand */
};

static const dlp_field record_fields[] = {
    {.name = "words", .dtype = DLP_U32, .ndim = 1, .shape = {WORDS}, .ragged = 1},
    {.name = "number", .dtype = DLP_U64}};
static const dlp_field made_field = {.name = "made", .dtype = DLP_U64};
static const dlp_field label_field = {.name = "label", .dtype = DLP_U64};
static const dlp_field map_field = {.name = "twice", .dtype = DLP_U64};

typedef struct shared { /* of all processes */
    uint32_t calls, kills;
} shared;

static struct {
    int kind; /* of FILTERS .. MAPS */
    dlp_workers_desc workers;
    dlp_push_desc push;
    uint32_t producers, batch, cells, records, max_kills, labels;
    int32_t last;
    int steps;       /* the worker that has record 78 dies after so many atomic accesses */
    uint32_t deaths; /* it dies in the callback, so many times */
    uint64_t fails;  /* the filter fails for this record, so many times */
    uint32_t times;
    int slow; /* 1: the filter takes its time */
    int keeps_none;
    int says_no_end;
} how;

static shared *all;
static int steps_left; /* atomic accesses until this process dies; 0: it does not */
static uint32_t was_seen[PRODUCERS + 1][MOST][WORDS];
static uint64_t order_; /* digest of what the rows have, in their order */

static void death_here(void) {
    if (steps_left == 0 || --steps_left > 0) return;
    all->kills++;
    kill(getpid(), SIGKILL);
}

/* ---- producers ---- */

static dlp_push *push_;

/* Token i of record n of a producer. Record n has n % 10 of them. */
static uint32_t token(uint32_t who, uint32_t n, uint32_t i) { return who << 24 | n << 4 | i; }

static int push_one(dlp_pusher *u, uint32_t n, int timeout_ms) {
    const uint32_t who = dlp_pusher_number(u);
    const uint64_t number = (uint64_t)who << 32 | n, length[2] = {n % 10, 7};
    uint32_t words[WORDS];
    const void *data[2] = {words, &number};
    void *to[2];
    int rc;
    CHECK(dlp_pusher_lengths(u, length) == DLP_OK);
    for (uint32_t i = 0; i < WORDS; i++) words[i] = i < n % 10 ? token(who, n, i) : UINT32_MAX;
    if (n % 2 == 0) return dlp_pusher_push(u, data, timeout_ms);
    if ((rc = dlp_pusher_begin(u, to, timeout_ms)) != DLP_OK) return rc;
    memcpy(to[0], words, sizeof words);
    if ((how.kind & (CUTS | FITS)) == 0) memcpy(to[1], &number, sizeof number);
    return dlp_pusher_commit(u);
}

static void *produce(void *number) {
    dlp_pusher *u = NULL;
    dlp_error err;
    int rc =
        dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push_, .number = *(uint32_t *)number}, &err);
    for (uint32_t n = 0; n < how.records && rc >= 0; n++) {
        while ((rc = push_one(u, n, SOON_MS)) == DLP_FULL) usleep(100);
        if (rc != DLP_OK) break;
    }
    if (rc == DLP_OK && !how.says_no_end) rc = dlp_pusher_end(u, SOON_MS);
    dlp_pusher_close(u);
    return rc == DLP_OK ? NULL : number;
}

/* ---- what stands behind the push ---- */

static uint64_t number_of(const dlp_item *it) { return ((const uint64_t *)it->data[1])[0]; }

/* A worker has a record. What it does to the item before it dies is not seen. */
static void may_die(const dlp_item *it) {
    __atomic_add_fetch(&all->calls, 1, __ATOMIC_RELAXED);
    if (it->index == 78 && how.steps > 0 && all->kills == 0) steps_left = how.steps;
    if (it->index != 78 || all->kills >= how.deaths) return;
    all->kills++;
    memset(it->data[0], 0xff, 4);
    it->length[0] = 0;
    kill(getpid(), SIGKILL);
}

static int keep(void *user, const dlp_item *it) {
    const uint32_t *words = it->data[0];
    const uint32_t n = it->length[0] > 0 ? words[0] >> 4 & 0xfffff : 0;
    (void)user;
    may_die(it);
    if (how.slow) usleep(1000);
    if (it->index == how.fails && it->attempt < how.times) return dlp_fail(it->call, 0, "no");
    for (uint64_t i = 0; i < it->length[0]; i++)
        if ((words[i] & 15) != i || (words[i] >> 4 & 0xfffff) != n) return DLP_ERR_CALLBACK;
    return !how.keeps_none && it->length[0] % 3 != 1;
}

static int make(void *user, dlp_expand *x) {
    const uint64_t number = number_of(x->item);
    (void)user;
    if ((how.kind & FILTERS) == 0) may_die(x->item);
    for (uint32_t i = 0; i < x->item->length[0]; i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        ((uint64_t *)it->data[0])[0] = token((uint32_t)(number >> 32), (uint32_t)number, i);
    }
    return 0;
}

/* The record says what its part has: a word for each item. */
static int load_words(void *user, dlp_part *part) {
    const uint64_t n = part->of->length[0];
    (void)user;
    if ((how.kind & FILTERS) == 0) may_die(part->of);
    if (part->index != part->of->index || part->of->n_fields != 2) return DLP_ERR_CALLBACK;
    memcpy(part->data, part->of->data[0], n * 4);
    part->bytes = n * 4;
    part->items = n;
    return 0;
}

static int made_of_part(void *user, dlp_item *it) {
    const uint64_t number = number_of(it->part->of), k = it->part->item;
    (void)user;
    ((uint64_t *)it->data[0])[0] = token((uint32_t)(number >> 32), (uint32_t)number, (uint32_t)k);
    return ((const uint32_t *)it->part->data)[k] == ((uint32_t *)it->data[0])[0]
               ? 0
               : dlp_fail(it->call, 0, "another part");
}

static int twice(void *user, dlp_item *it) {
    (void)user;
    ((uint64_t *)it->data[it->n_fields - 1])[0] =
        2 * ((const uint64_t *)it->data[it->n_fields - 2])[0];
    return 0;
}

static int label(void *user, dlp_item *it) {
    (void)user;
    memcpy(it->data[0], &it->index, sizeof it->index);
    return 0;
}

/* A second branch, and the zip of the two. */
static uint32_t table_zip(dlp_node *to, uint32_t n) {
    static const char *from[3];
    from[0] = to[n - 1].name;
    from[1] = "label";
    to[n++] = (dlp_node){
        .name = "others", .verb = DLP_LIST, .list = {.n_items = how.labels ? how.labels : 100000}};
    to[n++] = (dlp_node){.name = "label",
                         .verb = DLP_FETCH,
                         .fetch = {.fetch = label, .fields = &label_field, .n_fields = 1}};
    if (n == 3) to[2].workers = how.workers;
    to[n++] = (dlp_node){.name = "both", .from = from, .verb = DLP_ZIP};
    return n;
}

static uint32_t table(dlp_node *to) {
    static const char *const batch[] = {"batch", NULL};
    const dlp_workers_desc w = how.workers, none = {.num_workers = 0};
    uint32_t n = 0;
    to[n++] = (dlp_node){.name = "docs", .verb = DLP_PUSH, .push = {.source = push_}};
    if (how.kind & FILTERS)
        to[n++] =
            (dlp_node){.name = "good", .verb = DLP_FILTER, .filter = {.keep = keep}, .workers = w};
    if (how.kind & LOADS) {
        to[n++] = (dlp_node){
            .name = "load",
            .verb = DLP_LOAD,
            .load = {.load = load_words, .max_items = WORDS, .max_part_bytes = 4 * WORDS},
            .workers = how.kind & FILTERS ? none : w};
        to[n++] =
            (dlp_node){.name = "item",
                       .verb = DLP_FETCH,
                       .fetch = {.fetch = made_of_part, .fields = &made_field, .n_fields = 1}};
    } else if (how.kind & EXPANDS)
        to[n++] = (dlp_node){
            .name = "make",
            .verb = DLP_EXPAND,
            .expand = {.expand = make, .max_out = WORDS, .fields = &made_field, .n_fields = 1},
            .workers = how.kind & FILTERS ? none : w};
    if (how.kind & (CUTS | FITS))
        to[n++] = (dlp_node){.name = "rows",
                             .verb = DLP_PACK,
                             .pack = {.tokens = 20,
                                      .rule = how.kind & FITS ? DLP_PACK_FIT : DLP_PACK_CUT,
                                      .window = how.kind & FITS ? 16 : 0},
                             .workers = how.kind & FILTERS ? none : w};
    if (n > 1) to[n - 1].queue.capacity = how.cells;
    if (how.kind & ZIPS) n = table_zip(to, n);
    if (how.kind & MIXES)
        to[n++] = (dlp_node){.name = "mixed", .verb = DLP_WINDOW, .window = {.items = 16}};
    if (how.kind & MAPS)
        to[n++] = (dlp_node){.name = "twice",
                             .verb = DLP_MAP,
                             .map = {.item = twice, .fields = &map_field, .n_fields = 1},
                             .workers = {.num_workers = 1, .placement = w.placement}};
    to[n++] = (dlp_node){
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = how.batch, .last = how.last}};
    if ((how.kind & OUTS) == 0) return n;
    to[n++] = (dlp_node){.name = "train", .verb = DLP_OUT};
    to[n++] = (dlp_node){.name = "log", .from = batch, .verb = DLP_OUT};
    return n;
}

/* ---- a run ---- */

static dlp_pipe *pipe_;
static dlp_error err_;

static int open_with(const dlp_pipe_desc *desc) {
    const int packs = (how.kind & (CUTS | FITS)) != 0;
    dlp_node nodes[12];
    int rc;
    how.push.fields = record_fields;
    how.push.n_fields = packs ? 1 : 2;
    if (how.push.writers == 0) how.push.writers = how.producers;
    memset(&err_, 0, sizeof err_);
    memset(all, 0, sizeof *all);
    memset(was_seen, 0, sizeof was_seen);
    order_ = 0;
    CHECK(dlp_push_open(&push_, &how.push, &err_) == DLP_OK);
    rc = dlp_pipe_open(&pipe_, nodes, table(nodes), desc, &err_);
    if (rc != DLP_OK) CHECK(dlp_push_close(push_) == DLP_OK);
    return rc;
}

static const char *shared_name(void) {
    static char name[40];
    snprintf(name, sizeof name, "push_makers.%d", (int)getpid());
    return name;
}

static int open_run(void) {
    const int share = (how.kind & SHARES) != 0;
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1,
                              .max_kills = (int32_t)how.max_kills,
                              .name = share ? shared_name() : NULL,
                              .share = share ? DLP_SHARE_EACH : 0,
                              .wait_subscribers = share};
    const dlp_pipe_desc desc = {.seed = 5, .shm = &shm};
    const int rc = open_with(&desc);
    if (rc != DLP_OK) printf("%s %s: %s\n", err_.stage, err_.field, err_.message);
    CHECK(rc == DLP_OK);
    return rc;
}

/* One more of what the rows have: in its producer's order, if nothing shuffles. */
static void take_one(uint32_t value, uint32_t *last) {
    const uint32_t who = value >> 24, n = value >> 4 & 0xfffff, i = value & 15;
    const int whole = how.kind & (EXPANDS | CUTS | FITS);
    CHECK(who >= 1 && who <= PRODUCERS && n < MOST && i < WORDS);
    if (who < 1 || who > PRODUCERS || n >= MOST || i >= WORDS) return;
    CHECK(i == 0 || whole);
    order_ = dlp_hash(order_, value, 0, 0);
    CHECK(was_seen[who][n][i]++ == 0);
    if ((how.kind & (MIXES | FITS)) == 0) CHECK(last[who] < (n << 4 | i) + 1);
    last[who] = (n << 4 | i) + 1;
}

static void take_batch(const dlp_batch *b, uint32_t *last) {
    const int packs = (how.kind & (CUTS | FITS)) != 0, expands = (how.kind & EXPANDS) != 0;
    for (uint32_t r = 0; r < b->count; r++) {
        const uint32_t *words = (const uint32_t *)b->fields[0].data + r * (packs ? 20u : WORDS);
        const uint64_t *number = b->fields[expands ? 0 : 1].data;
        if (!b->valid[r]) continue;
        if (how.kind & ZIPS && !(how.kind & MIXES)) {
            const uint64_t *y = b->fields[expands ? 1 : 2].data;
            CHECK(y[r] == b->position + r);
        }
        if (packs)
            for (uint64_t i = 0; i < b->fields[0].lengths[r]; i++) take_one(words[i], last);
        else if (expands)
            take_one((uint32_t)number[r], last);
        else
            take_one(token((uint32_t)(number[r] >> 32), (uint32_t)number[r], 0), last);
        if (packs || expands) continue;
        CHECK(b->fields[0].lengths[r] == (uint32_t)number[r] % 10);
        for (uint32_t i = 0; i < WORDS; i++)
            CHECK(words[i] == (i < (uint32_t)number[r] % 10
                                   ? token((uint32_t)(number[r] >> 32), (uint32_t)number[r], i)
                                   : 0));
        if (how.kind & MAPS) CHECK(((const uint64_t *)b->fields[2].data)[r] == 2 * number[r]);
    }
}

static uint64_t mixed(uint64_t h, const dlp_batch *b) {
    h = dlp_hash(h, b->sequence, b->count, b->valid_count);
    for (uint32_t i = 0; i < b->count; i++) h = dlp_hash(h, b->index[i], b->valid[i], 0);
    for (uint64_t i = 0; i < b->fields[0].bytes; i++)
        h = dlp_hash(h, ((const uint8_t *)b->fields[0].data)[i], 0, 0);
    return h;
}

/* The batches that the consumer had, and those of somebody who takes them, too. */
static uint64_t had_, heard_;

static void *takes_too(void *arg) {
    const int outs = (how.kind & OUTS) != 0;
    dlp_subscriber *c = NULL;
    dlp_out *out = NULL;
    dlp_batch *b;
    (void)arg;
    heard_ = 0;
    CHECK((outs ? dlp_out_find(pipe_, "log", &out)
                : dlp_subscriber_open(&c, shared_name(), NULL, NULL)) == DLP_OK);
    while ((outs ? dlp_out_next(out, &b, SOON_MS) : dlp_subscriber_next_timeout(c, &b, SOON_MS)) ==
           DLP_OK) {
        heard_ = mixed(heard_, b);
        CHECK((outs ? dlp_out_release(out, b) : dlp_subscriber_release(c, b)) == DLP_OK);
    }
    if (outs) dlp_out_close(out);
    dlp_subscriber_close(c);
    return NULL;
}

static int take_all(void) {
    uint32_t last[PRODUCERS + 1] = {0};
    dlp_batch *b;
    int rc, shorter = 0;
    had_ = 0;
    while ((rc = dlp_pipe_next_timeout(pipe_, &b, SOON_MS)) == DLP_OK) {
        CHECK(!shorter && b->count >= 1 && b->count <= how.batch);
        shorter = b->count < how.batch;
        CHECK(!shorter || how.last <= DLP_LAST_DEFAULT);
        take_batch(b, last);
        if (how.kind & (OUTS | SHARES)) had_ = mixed(had_, b);
        dlp_pipe_release(pipe_, b);
    }
    err_ = *dlp_pipe_error(pipe_);
    return rc;
}

/* Has each record made what it is to make? most: of all, so many are missing at most. */
static int all_seen(uint32_t most) {
    uint32_t missing = 0, wrong = 0;
    for (uint32_t who = 1; who <= how.producers; who++)
        for (uint32_t n = 0; n < how.records; n++)
            for (uint32_t i = 0; i < WORDS; i++) {
                const int kept = !(how.kind & FILTERS) || (!how.keeps_none && n % 10 % 3 != 1);
                const int whole = how.kind & (EXPANDS | CUTS | FITS);
                const uint32_t want = kept && (whole ? i < n % 10 : i == 0);
                missing += was_seen[who][n][i] < want;
                wrong += was_seen[who][n][i] > want;
            }
    if (missing > most || wrong > 0) printf("  %u missing, %u wrong\n", missing, wrong);
    return missing <= most && wrong == 0;
}

static int run_all(void) {
    static const uint32_t numbers[] = {1, 2, 3};
    pthread_t t[PRODUCERS], listener;
    const int listened = (how.kind & (OUTS | SHARES)) != 0;
    void *bad = NULL;
    int rc;
    if (open_run() != DLP_OK) return DLP_ERR_STATE;
    if (listened) CHECK(pthread_create(&listener, NULL, takes_too, NULL) == 0);
    for (uint32_t i = 0; i < how.producers; i++)
        CHECK(pthread_create(&t[i], NULL, produce, (void *)(uintptr_t)&numbers[i]) == 0);
    rc = take_all();
    if (rc < 0) dlp_push_stop(push_);
    if (listened) CHECK(pthread_join(listener, NULL) == 0 && heard_ == had_);
    for (uint32_t i = 0; i < how.producers; i++) {
        CHECK(pthread_join(t[i], &bad) == 0);
        CHECK(bad == NULL || rc < 0);
    }
    CHECK(dlp_pipe_close(pipe_) == DLP_OK && dlp_push_close(push_) == DLP_OK);
    return rc;
}

static void reset(int kind) {
    memset(&how, 0, sizeof how);
    how.kind = kind;
    how.producers = 1;
    how.batch = 8;
    how.records = 400;
    how.fails = UINT64_MAX;
    how.times = UINT32_MAX;
    how.push.capacity = 16;
    how.workers.num_workers = 2;
}

static const int kinds[] = {FILTERS,
                            EXPANDS,
                            FILTERS | EXPANDS,
                            FILTERS | MIXES,
                            CUTS,
                            FITS,
                            FILTERS | CUTS,
                            FILTERS | FITS,
                            FILTERS | MAPS,
                            EXPANDS | MIXES,
                            MIXES,
                            OUTS,
                            SHARES,
                            MAPS | SHARES,
                            MIXES | OUTS,
                            ZIPS,
                            ZIPS | FILTERS | EXPANDS,
                            ZIPS | FILTERS | MIXES,
                            ZIPS | OUTS,
                            EXPANDS | LOADS,
                            FILTERS | EXPANDS | LOADS | ZIPS,
                            EXPANDS | LOADS | MIXES | OUTS};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- what is tested ---- */

/* Records 0 to n - 1 of producer 1, by this thread. */
static void push_some(dlp_pusher **u, uint32_t n) {
    dlp_error err;
    CHECK(dlp_pusher_open(u, &(dlp_pusher_desc){.push = push_, .number = 1}, &err) == DLP_OK);
    for (uint32_t i = 0; i < n; i++) CHECK(push_one(*u, i, SOON_MS) == DLP_OK);
}

static void end_run(dlp_pusher *u) {
    dlp_pusher_close(u);
    CHECK(dlp_pipe_close(pipe_) == DLP_OK && dlp_push_close(push_) == DLP_OK);
}

/* The reader has the name of the push in statistics, errors and numbers. */
static void makers__plan_and_stages__have_their_names(void) {
    static dlp_stats s;
    dlp_plan plan;
    uint64_t bytes = 0;
    reset(FILTERS);
    how.cells = 50;
    if (open_run() != DLP_OK) return;
    CHECK(dlp_pipe_plan(pipe_, &plan) == DLP_OK);
    for (uint32_t i = 0; i < plan.n_lines; i++)
        if (strcmp(plan.lines[i].what, "part cells") == 0) bytes = plan.lines[i].bytes_each;
    /* an item and its record: two lengths, nine words, a number; both from a multiple of 64 on */
    CHECK(bytes == 64 + 64);
    CHECK(strcmp(plan.links[2].to, "docs") == 0 && plan.links[2].kind == DLP_LINK_SPSC);
    CHECK(strcmp(plan.links[3].from, "docs") == 0 && strcmp(plan.links[3].to, "good") == 0);
    CHECK(plan.links[2].capacity == 50 && plan.links[3].kind == DLP_LINK_CLAIM);
    CHECK(dlp_pipe_stats(pipe_, &s) == DLP_OK);
    CHECK(s.stages[0].kind == DLP_STAGE_SAMPLER && strcmp(s.stages[0].name, "docs") == 0);
    CHECK(s.stages[dlp_node_stage(pipe_, "docs")].kind == DLP_STAGE_PUSH);
    CHECK(s.stages[dlp_node_stage(pipe_, "good")].cells == 50);
    CHECK(s.stages[dlp_node_stage(pipe_, "copy")].kind == DLP_STAGE_FETCH);
    end_run(NULL);
}

/* The records of a branch come from the reader of its push, inputs of the other one from a list. */
static void branches__of_a_push_and_a_list__links_of_each(void) {
    dlp_plan plan;
    reset(FILTERS | ZIPS);
    if (open_run() != DLP_OK) return;
    CHECK(dlp_pipe_plan(pipe_, &plan) == DLP_OK && plan.n_links == 7);
    CHECK(strcmp(plan.links[0].from, "producers") == 0 && strcmp(plan.links[0].to, "docs") == 0);
    CHECK(plan.links[2].from_stage == 0 && strcmp(plan.links[2].to, "docs") == 0);
    CHECK(plan.links[3].from_stage == dlp_node_stage(pipe_, "docs"));
    CHECK(strcmp(plan.links[3].from, "good") == 0 && strcmp(plan.links[3].to, "both") == 0);
    CHECK(plan.links[4].from_stage == 0 && strcmp(plan.links[4].from, "label") == 0);
    CHECK(strcmp(plan.links[4].to, "both") == 0);
    end_run(NULL);
}

/* The lanes are the first link of the plan. In statistics the records are in it that nobody has
   read. A monitor has the same links, but does not see what is in the lanes. */
static void lanes__before_their_reader__are_the_first_link(void) {
    static const struct {
        int push, link;
        const char *says;
    } full[] = {{DLP_PUSH_WAIT, DLP_FULL_WAIT, " bytes\n"},
                {DLP_PUSH_REFUSE, DLP_FULL_REFUSE, ", refuses what is new\n"},
                {DLP_PUSH_NEWEST, DLP_FULL_KEEP_NEWEST, ", keeps the newest\n"}};
    static dlp_stats s, seen;
    static dlp_plan plan;
    for (int k = 0; k < 6; k++) {
        const dlp_link *l = plan.links;
        dlp_pusher *u = NULL;
        dlp_monitor *m = NULL;
        dlp_push_stats lanes = {.waiting = 0};
        char text[8192], who[24];
        reset(k % 2 ? FILTERS : 0);
        how.push.max_producers = 3;
        how.push.full = full[k / 2].push;
        if (open_run() != DLP_OK) return;
        CHECK(dlp_pipe_plan(pipe_, &plan) == DLP_OK && plan.n_links == (k % 2 ? 6 : 4));
        CHECK(strcmp(l->from, "producers") == 0 && l->from_stage == -2);
        CHECK(strcmp(l->to, "docs") == 0 && l->to_stage == dlp_node_stage(pipe_, "docs"));
        CHECK(l->kind == DLP_LINK_MPSC && l->writers == 3 && l->readers == 1);
        CHECK(l->rule == full[k / 2].link && l->capacity == 3 * 16 && l->depth == 0);
        CHECK(l->bytes == dlp_mpsc_bytes(8 + 2 * 8 + 40 + 8, 16, 3));
        CHECK(l[1].from_stage == -1 && l[1].to_stage == 0);
        CHECK(dlp_plan_format(&plan, text, sizeof text) > 0);
        CHECK(strstr(text, "\nlink producers -> docs ") != NULL);
        CHECK(strstr(text, full[k / 2].says) != NULL);
        CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push_}, &err_) == DLP_OK);
        for (uint32_t n = 0; n < 1000 && push_one(u, n, 20) == DLP_OK;) n++;
        for (int i = 0; i < 300 && (i == 0 || s.links[0].depth != lanes.waiting); i++) {
            usleep(i == 0 ? 0 : 10000);
            CHECK(dlp_pipe_stats(pipe_, &s) == DLP_OK);
            CHECK(dlp_push_look(push_, 0, &lanes) == DLP_OK);
        }
        CHECK(s.links[0].depth == lanes.waiting && lanes.waiting > 0);
        snprintf(who, sizeof who, "%d", (int)getpid());
        CHECK(dlp_monitor_open(&m, who, &err_) == DLP_OK);
        if (m != NULL) {
            CHECK(dlp_monitor_stats(m, &seen) == DLP_OK && seen.n_links == s.n_links);
            CHECK(seen.links[0].depth == UINT64_MAX);
            for (uint32_t i = 0; i < s.n_links; i++) s.links[i].depth = seen.links[i].depth = 0;
            CHECK(memcmp(s.links, seen.links, sizeof s.links) == 0);
            CHECK(memcmp(s.links, plan.links, sizeof s.links) == 0);
        }
        dlp_monitor_close(m);
        end_run(u);
    }
}

static void makers__any_workers__each_record_once(void) {
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 6; i++) {
            static const int32_t workers[] = {DLP_NONE, 0, 1, 4, 1, 3};
            if (k > 9 && i % 3 != 1) continue;
            reset(kinds[k]);
            how.workers.num_workers = workers[i];
            how.workers.placement = i > 3 && !RIG_TSAN ? DLP_PLACE_PROCESSES : 0;
            how.producers = 1 + (uint32_t)(i + k) % PRODUCERS;
            how.records = i > 3 ? 400 : 3000;
            how.batch = 1 + (uint32_t)(i * 5 + k) % 17;
            how.push.capacity = UINT64_C(1) << (i + k) % 8;
            how.push.full = i % 2 ? DLP_PUSH_REFUSE : DLP_PUSH_WAIT;
            const int rc = run_all();
            if (rc != DLP_END || !all_seen(0)) {
                printf("  kind %d, workers %d: %d %s\n", kinds[k], (int)workers[i], rc,
                       err_.message);
                CHECK(0);
            }
        }
}

/* One producer: the order and the rows follow from its records and the seed. */
static void makers__one_producer__the_order_of_its_records(void) {
    for (int k = 0; k < KINDS; k++) {
        uint64_t want = 0;
        for (int i = 0; i < 4; i += 1 + (k > 9)) {
            reset(kinds[k]);
            how.workers.num_workers = i == 0 ? DLP_NONE : i == 1 ? 1 : 4;
            how.push.capacity = i % 2 ? 256 : 4;
            how.cells = i == 3 ? 300 : 0;
            CHECK(run_all() == DLP_END && all_seen(0));
            CHECK(i == 0 || order_ == want);
            want = order_;
        }
    }
}

static void makers__worker_dies_in_its_callback__each_record_once(void) {
    static const int some[] = {
        FILTERS,          EXPANDS,        FILTERS | CUTS,         FILTERS | MIXES | MAPS,
        FILTERS | SHARES, ZIPS | FILTERS, ZIPS | FILTERS | MIXES, EXPANDS | LOADS};
    for (int k = 0; k < 8; k++) {
        reset(some[k]);
        how.workers.placement = DLP_PLACE_PROCESSES;
        how.deaths = 2;
        how.max_kills = 5;
        CHECK(run_all() == DLP_END && all_seen(0));
        CHECK(all->kills == 2);
    }
    reset(FILTERS); /* more often than may be: the record is left out, or an error */
    how.workers.placement = DLP_PLACE_PROCESSES;
    how.deaths = 9;
    how.max_kills = 2;
    how.workers.on_error = DLP_ON_ERROR_DROP;
    CHECK(run_all() == DLP_END && all_seen(1) && was_seen[1][78][0] == 0);
    how.workers.on_error = DLP_ON_ERROR_RAISE;
    CHECK(run_all() < 0 && strstr(err_.message, "input 78") != NULL);
}

static void makers__worker_dies_at_each_access__each_record_once(void) {
    static const int some[] = {FILTERS, EXPANDS, FILTERS | FITS, ZIPS | FILTERS};
    for (int k = 0; k < 4; k++)
        for (int steps = 1, died = 1; died; steps += k == 3                     ? 13
                                                     : getenv("SHORT") || k > 0 ? 5
                                                                                : 1) {
            reset(some[k]);
            how.workers.placement = DLP_PLACE_PROCESSES;
            how.records = 120;
            how.steps = steps;
            CHECK(run_all() == DLP_END && all_seen(0));
            died = all->kills > 0 && steps < 150;
            CHECK(all->kills == 1 || steps > 10);
        }
}

static void makers__full_batch__given_without_another_record(void) {
    for (int i = 0; i <= 2 * DLP_LAST_DROP + 1; i++) {
        dlp_pusher *u;
        dlp_batch *b;
        reset(i % 2 ? EXPANDS | ZIPS : EXPANDS);
        how.batch = 10;
        how.last = i / 2;
        if (open_run() != DLP_OK) return;
        push_some(&u, 5); /* of 0, 1, 2, 3, 4 items */
        CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK && b->count == 10);
        CHECK((b->flags & DLP_BATCH_LAST) == 0);
        dlp_pipe_release(pipe_, b);
        CHECK(dlp_pipe_next_timeout(pipe_, &b, 30) == DLP_TIMEOUT);
        CHECK(dlp_pusher_end(u, SOON_MS) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_END);
        CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_END);
        end_run(u);
    }
}

/* The end of one of two streams is at hand behind records: these do not wait for the other one. */
static void makers__one_of_two_ends__what_came_is_given(void) {
    uint32_t n = 0;
    dlp_pusher *u[2];
    dlp_batch *b;
    reset(FILTERS);
    how.producers = 2;
    how.batch = 1;
    how.push.capacity = 1024;
    if (open_run() != DLP_OK) return;
    push_some(&u[0], 1000);
    CHECK(dlp_pusher_open(&u[1], &(dlp_pusher_desc){.push = push_, .number = 2}, NULL) == DLP_OK);
    CHECK(dlp_pusher_end(u[0], SOON_MS) == DLP_OK);
    for (; n < 700 && dlp_pipe_next_timeout(pipe_, &b, SOON_MS / 10) == DLP_OK; n++)
        dlp_pipe_release(pipe_, b);
    CHECK(n == 700);
    CHECK(dlp_pipe_next_timeout(pipe_, &b, 30) == DLP_TIMEOUT);
    CHECK(dlp_pusher_end(u[1], SOON_MS) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_END);
    dlp_pusher_close(u[1]);
    end_run(u[0]);
}

/* The list of the other branch ends first. */
static void zip__other_branch_ends__the_end(void) {
    for (int kind = ZIPS; kind <= (ZIPS | FILTERS); kind += FILTERS) {
        dlp_pusher *u = NULL;
        reset(kind);
        how.labels = 10;
        if (open_run() != DLP_OK) return;
        push_some(&u, 20); /* the filter keeps 14 of them */
        CHECK(take_all() == DLP_END);
        CHECK(was_seen[1][kind == ZIPS ? 9 : 13][0] == 1 &&
              was_seen[1][kind == ZIPS ? 10 : 15][0] == 0);
        end_run(u);
    }
}

/* Two pushes: record k of the one with record k of the other. */
static void zip__two_pushes__each_with_its_like(void) {
    const char *from[] = {"a", "b", NULL};
    const dlp_field fields[] = {{.name = "x", .dtype = DLP_U64}, {.name = "y", .dtype = DLP_U64}};
    dlp_node nodes[] = {{.name = "a", .verb = DLP_PUSH},
                        {.name = "b", .verb = DLP_PUSH},
                        {.name = "both", .from = from, .verb = DLP_ZIP},
                        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    dlp_push *push[2];
    dlp_pusher *u[2];
    dlp_error err = {.code = 0};
    dlp_batch *b;
    uint64_t n = 0;
    for (int i = 0; i < 2; i++) {
        const dlp_push_desc d = {.fields = &fields[i], .n_fields = 1, .writers = 1};
        CHECK(dlp_push_open(&push[i], &d, &err) == DLP_OK);
        CHECK(dlp_pusher_open(&u[i], &(dlp_pusher_desc){.push = push[i]}, &err) == DLP_OK);
        nodes[i].push.source = push[i];
    }
    CHECK(dlp_pipe_open(&pipe_, nodes, 4, NULL, &err) == DLP_OK);
    if (err.code != 0) printf("  %s %s: %s\n", err.stage, err.field, err.message);
    for (int i = 1; i >= 0; i--) {
        for (uint64_t k = 0; k < 50 + (uint64_t)i; k++) {
            const uint64_t x = k * 10 + (uint64_t)i;
            CHECK(dlp_pusher_push(u[i], (const void *[]){&x}, SOON_MS) == DLP_OK);
        }
        CHECK(dlp_pusher_end(u[i], SOON_MS) == DLP_OK);
        dlp_pusher_close(u[i]);
    }
    while (dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK) {
        const uint64_t *x = b->fields[0].data, *y = b->fields[1].data;
        for (uint32_t r = 0; r < b->count; r++, n++) CHECK(x[r] == n * 10 && y[r] == n * 10 + 1);
        dlp_pipe_release(pipe_, b);
    }
    CHECK(n == 50);
    CHECK(dlp_pipe_close(pipe_) == DLP_OK);
    for (int i = 0; i < 2; i++) CHECK(dlp_push_close(push[i]) == DLP_OK);
}

/* One of two pushes has ended: no row waits for a record of the other, whichever stands first. */
static void zip__one_of_two_pushes_ends__the_end(void) {
    const char *from[] = {"a", "b", NULL};
    const dlp_field fields[] = {{.name = "x", .dtype = DLP_U64}, {.name = "y", .dtype = DLP_U64}};
    dlp_node nodes[] = {{.name = "a", .verb = DLP_PUSH},
                        {.name = "b", .verb = DLP_PUSH},
                        {.name = "both", .from = from, .verb = DLP_ZIP},
                        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    for (int ends = 0; ends < 2; ends++) {
        dlp_push *push[2];
        dlp_pusher *u[2];
        dlp_batch *b;
        uint64_t n = 0;
        for (int i = 0; i < 2; i++) {
            const dlp_push_desc d = {.fields = &fields[i], .n_fields = 1, .writers = 1};
            CHECK(dlp_push_open(&push[i], &d, NULL) == DLP_OK);
            CHECK(dlp_pusher_open(&u[i], &(dlp_pusher_desc){.push = push[i]}, NULL) == DLP_OK);
            nodes[i].push.source = push[i];
        }
        CHECK(dlp_pipe_open(&pipe_, nodes, 4, NULL, NULL) == DLP_OK);
        for (uint64_t k = 0; k < 12; k++)
            CHECK(dlp_pusher_push(u[k % 2], (const void *[]){&k}, SOON_MS) == DLP_OK);
        CHECK(dlp_pusher_end(u[ends], SOON_MS) == DLP_OK);
        while (dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK) {
            n += b->count;
            dlp_pipe_release(pipe_, b);
        }
        CHECK(n == 6 && dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_END);
        CHECK(dlp_pipe_close(pipe_) == DLP_OK);
        for (int i = 0; i < 2; i++) {
            dlp_pusher_close(u[i]);
            CHECK(dlp_push_close(push[i]) == DLP_OK);
        }
    }
}

static int copy_one(void *user, dlp_expand *x) {
    dlp_item *it = dlp_expand_add(x);
    (void)user;
    memcpy(it->data[0], x->item->data[0], 8);
    return 0;
}
static int fail_always(void *user, dlp_item *it) {
    (void)user;
    return dlp_fail(it->call, 5, "no such file");
}

/* All records that were pushed are left out: an error. Nothing was pushed: an end. */
static void push__no_valid_row__error_if_anything_was_pushed(void) {
    const dlp_field x = {.name = "x", .dtype = DLP_U64}, y = {.name = "y", .dtype = DLP_U64};
    for (int k = 0; k < 6; k++) {
        const dlp_push_desc d = {.fields = &x, .n_fields = 1, .writers = 1};
        const uint64_t n = k / 2 ? 7 + (uint64_t)k / 4 : 0; /* the last batch is short, or full */
        dlp_push *push;
        dlp_pusher *u;
        dlp_batch *b;
        int rc;
        CHECK(dlp_push_open(&push, &d, NULL) == DLP_OK);
        CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = push}, NULL) == DLP_OK);
        {
            const dlp_node a = {.name = "a", .verb = DLP_PUSH, .push = {.source = push}};
            dlp_node nodes[4];
            uint32_t m = 0;
            nodes[m++] = a;
            if (k % 2)
                nodes[m++] = (dlp_node){
                    .name = "make",
                    .verb = DLP_EXPAND,
                    .expand = {.expand = copy_one, .max_out = 1, .fields = &y, .n_fields = 1}};
            nodes[m++] = (dlp_node){.name = "map",
                                    .verb = DLP_MAP,
                                    .map = {.item = fail_always},
                                    .workers = {.num_workers = 1, .on_error = DLP_ON_ERROR_DROP}};
            nodes[m++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}};
            CHECK(dlp_pipe_open(&pipe_, nodes, m, NULL, NULL) == DLP_OK);
        }
        for (uint64_t i = 0; i < n; i++)
            CHECK(dlp_pusher_push(u, (const void *[]){&i}, SOON_MS) == DLP_OK);
        CHECK(dlp_pusher_end(u, SOON_MS) == DLP_OK);
        while ((rc = dlp_pipe_next_timeout(pipe_, &b, SOON_MS)) == DLP_OK)
            dlp_pipe_release(pipe_, b);
        CHECK(rc == (n ? DLP_ERR_CALLBACK : DLP_END));
        CHECK(n == 0 || strstr(dlp_pipe_error(pipe_)->message, "has no valid row") != NULL);
        CHECK(dlp_pipe_close(pipe_) == DLP_OK);
        dlp_pusher_close(u);
        CHECK(dlp_push_close(push) == DLP_OK);
    }
}

static void makers__last_batch__as_its_rule_says(void) {
    for (int last = DLP_LAST_PARTIAL; last <= DLP_LAST_DROP; last++) {
        uint32_t rows[] = {0, 0};
        dlp_pusher *u;
        dlp_batch *b;
        reset(EXPANDS);
        how.last = last;
        if (open_run() != DLP_OK) return;
        push_some(&u, 6); /* 15 items, 8 in a batch */
        CHECK(dlp_pusher_end(u, SOON_MS) == DLP_OK);
        for (int i = 0; i < 2 && dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK; i++) {
            for (uint32_t r = 0; r < b->count; r++) rows[i] += b->valid[r];
            CHECK(i == 0 || b->count == (last <= DLP_LAST_DEFAULT ? 7 : 8));
            dlp_pipe_release(pipe_, b);
        }
        CHECK(rows[0] == 8 && rows[1] == (last == DLP_LAST_DROP ? 0 : 7));
        CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_END);
        end_run(u);
    }
}

static void makers__nothing_comes_or_is_kept__the_end(void) {
    for (int i = 0; i < 4; i++) {
        reset(i < 2 ? FILTERS : FITS);
        how.records = i % 2 ? 100 : 0;
        how.keeps_none = 1;
        if (i == 3) how.records = 1; /* of no tokens */
        CHECK(run_all() == DLP_END && all_seen(0));
    }
    reset(FILTERS); /* a stop is an end, with what was pushed */
    how.records = 10;
    if (open_run() == DLP_OK) {
        dlp_pusher *u;
        push_some(&u, 10);
        dlp_push_stop(push_);
        CHECK(take_all() == DLP_END && all_seen(0));
        end_run(u);
    }
}

static void makers__consumer_is_slow__producers_wait(void) {
    dlp_push_stats s;
    dlp_pusher *u;
    uint32_t n = 0;
    int rc = DLP_OK;
    reset(FILTERS);
    how.cells = 8;
    how.push.full = DLP_PUSH_REFUSE;
    if (open_run() != DLP_OK) return;
    push_some(&u, 0);
    while (rc == DLP_OK || usleep(20000) == 0) { /* until it is full, and stays so */
        if ((rc = push_one(u, n, SOON_MS)) == DLP_OK) n++;
        if (rc == DLP_FULL && dlp_push_look(push_, 0, &s) == DLP_OK && s.refused > 20) break;
        if (rc < 0 || n > 1000) break;
    }
    CHECK(rc == DLP_FULL && s.waiting == 16); /* and n - 16 are in cells and slots */
    CHECK(n - 16 >= 8 && n - 16 <= 8 + 3 * 8 * 10 / 6 + 8);
    how.records = n;
    while (dlp_pusher_end(u, 1) == DLP_TIMEOUT) {
        uint32_t last[PRODUCERS + 1] = {0};
        dlp_batch *b;
        CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK);
        take_batch(b, last);
        dlp_pipe_release(pipe_, b);
    }
    CHECK(take_all() == DLP_END && all_seen(0));
    end_run(u);
}

static void makers__newest__older_ones_are_left(void) {
    reset(FILTERS);
    how.push.full = DLP_PUSH_NEWEST;
    how.push.keep = 2;
    how.cells = 8;
    how.slow = 1;
    how.records = 3000;
    how.workers.num_workers = 1;
    CHECK(run_all() == DLP_END && all_seen(UINT32_MAX));
    CHECK(all->calls < 3000 && was_seen[1][2999][0] == 1);
}

static void makers__item_fails__as_the_maker_says(void) {
    reset(FILTERS);
    how.fails = 50;
    CHECK(run_all() == DLP_ERR_CALLBACK && strcmp(err_.stage, "good") == 0);
    CHECK(err_.has_item && err_.index == 50);
    how.workers.on_error = DLP_ON_ERROR_DROP;
    CHECK(run_all() == DLP_END && all_seen(1) && was_seen[1][50][0] == 0);
    how.workers.on_error = DLP_ON_ERROR_RAISE;
    how.workers.retries = 2;
    how.times = 2;
    CHECK(run_all() == DLP_END && all_seen(0));
}

static void makers__no_producer_lives__an_error_after_what_came(void) {
    dlp_pusher *u;
    dlp_batch *b;
    for (int drops = 0; drops < 2; drops++) {
        reset(FILTERS);
        how.push.lost_ms = 150;
        how.workers.on_error = drops ? DLP_ON_ERROR_DROP : DLP_ON_ERROR_RAISE;
        if (open_run() != DLP_OK) return;
        push_some(&u, 20); /* 14 are kept */
        dlp_pusher_close(u);
        CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK && b->count == 8);
        dlp_pipe_release(pipe_, b);
        if (drops) {
            CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK && b->count == 6);
            dlp_pipe_release(pipe_, b);
            CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_END);
        } else {
            CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_ERR_CALLBACK);
            CHECK(strcmp(dlp_pipe_error(pipe_)->stage, "docs") == 0);
            CHECK(strstr(dlp_pipe_error(pipe_)->message, "no producer has lived") != NULL);
        }
        end_run(NULL);
    }
}

/* A pipe that fails, or is closed, is told to producers that wait for room. */
static void makers__pipe_is_over__producers_are_told(void) {
    for (int i = 0; i < 2; i++) {
        pthread_t t;
        void *bad = NULL;
        dlp_batch *b;
        uint32_t number = 1;
        reset(FILTERS);
        how.records = MOST;
        how.push.capacity = 4;
        how.cells = 8;
        how.fails = i == 0 ? 30 : UINT64_MAX;
        if (open_run() != DLP_OK) return;
        CHECK(pthread_create(&t, NULL, produce, &number) == 0);
        if (i == 0) {
            int rc;
            while ((rc = dlp_pipe_next_timeout(pipe_, &b, SOON_MS)) == DLP_OK)
                dlp_pipe_release(pipe_, b);
            CHECK(rc == DLP_ERR_CALLBACK);
            CHECK(pthread_join(t, &bad) == 0 && bad != NULL);
            CHECK(dlp_pipe_close(pipe_) == DLP_OK);
        } else {
            usleep(20000);
            CHECK(dlp_pipe_close(pipe_) == DLP_OK);
            CHECK(pthread_join(t, &bad) == 0 && bad != NULL);
        }
        CHECK(dlp_push_close(push_) == DLP_OK);
    }
}

static void makers__next_epoch_and_seek__the_end_and_refused(void) {
    dlp_pusher *u;
    dlp_batch *b;
    dlp_state state;
    dlp_error err;
    reset(FILTERS);
    if (open_run() != DLP_OK) return;
    push_some(&u, 12);
    CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK);
    CHECK(dlp_pipe_state(pipe_, b, &state) == DLP_OK);
    dlp_pipe_release(pipe_, b);
    CHECK(dlp_pipe_seek(pipe_, &state, &err) == DLP_ERR_CORRUPT);
    CHECK(dlp_pipe_state_at(pipe_, 0, 0, &state) == DLP_OK);
    CHECK(dlp_pipe_seek(pipe_, &state, &err) == DLP_ERR_CORRUPT);
    CHECK(dlp_pipe_next_epoch(pipe_) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_END);
    end_run(u);
}

/* Without a maker a push has ragged fields, too, and a map that dies has them again. */
static void ragged__no_maker__lengths_and_rows(void) {
    for (int i = 0; i < 3; i++) {
        reset(i > 0 ? MAPS : 0);
        how.workers.num_workers = 1;
        how.workers.placement = i > 1 && !RIG_TSAN ? DLP_PLACE_PROCESSES : 0;
        how.producers = 2;
        CHECK(run_all() == DLP_END && all_seen(0));
    }
}

static void ragged__wrong_lengths__refused(void) {
    const uint64_t many[2] = {WORDS + 1, 0}, fits[2] = {WORDS, 0};
    const dlp_field plain = {.name = "number", .dtype = DLP_U64};
    const uint64_t number = 1;
    uint32_t words[WORDS];
    const void *data[2] = {words, &number};
    dlp_batch *b;
    dlp_pusher *u;
    dlp_push *other = NULL;
    for (uint32_t i = 0; i < WORDS; i++) words[i] = token(1, 0, i);
    reset(FILTERS);
    if (open_run() != DLP_OK) return;
    push_some(&u, 0);
    CHECK(dlp_pusher_lengths(u, many) == DLP_ERR_LENGTH && dlp_pusher_lengths(u, fits) == DLP_OK);
    CHECK(dlp_pusher_push(u, data, SOON_MS) == DLP_OK); /* the first has rows, the other none */
    CHECK(dlp_pusher_push(u, data, SOON_MS) == DLP_OK && dlp_pusher_end(u, SOON_MS) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(pipe_, &b, SOON_MS) == DLP_OK && b->count == 2);
    CHECK(b->fields[0].lengths[0] == WORDS && b->fields[0].lengths[1] == 0);
    dlp_pipe_release(pipe_, b);
    CHECK(dlp_pusher_lengths(NULL, fits) == DLP_ERR_ARG);
    CHECK(dlp_pusher_lengths(u, NULL) == DLP_ERR_ARG);
    end_run(u);
    CHECK(dlp_push_open(&other, &(dlp_push_desc){.fields = &plain, .n_fields = 1, .writers = 1},
                        NULL) == DLP_OK);
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = other}, NULL) == DLP_OK);
    CHECK(dlp_pusher_lengths(u, fits) == DLP_ERR_ARG);
    dlp_pusher_close(u);
    CHECK(dlp_push_close(other) == DLP_OK);
}

static void refused(const dlp_pipe_desc *desc, const char *word) {
    const int rc = open_with(desc);
    if (rc == DLP_OK || strstr(err_.message, word) == NULL)
        printf("  %d %s %s: %s\n", rc, err_.stage, err_.field, err_.message);
    CHECK(rc != DLP_OK && strstr(err_.message, word) != NULL);
}

/* Tables whose third row does not go together with a push and a filter. */
static void tables__what_needs_numbers__refused(void) {
    static const char *const words[] = {"pushed items have none", "needs the number of items",
                                        "directly after the list"};
    const dlp_node third[] = {
        {.verb = DLP_FETCH, .fetch = {.fetch = twice, .fields = &map_field, .n_fields = 1}},
        {.verb = DLP_CACHE},
        {.verb = DLP_LOAD}};
    for (int i = 0; i < 3; i++) {
        dlp_node nodes[4] = {{.name = "docs", .verb = DLP_PUSH},
                             {.name = "good", .verb = DLP_FILTER, .filter = {.keep = keep}},
                             third[i],
                             {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
        dlp_pipe *p = NULL;
        dlp_error err = {0};
        reset(FILTERS);
        how.push.fields = record_fields;
        how.push.n_fields = 2;
        how.push.writers = 1;
        CHECK(dlp_push_open(&push_, &how.push, &err) == DLP_OK);
        nodes[0].push.source = push_;
        nodes[2].name = "third";
        if (i == 1) nodes[2].cache.bytes = 1000;
        CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) < 0 && p == NULL);
        if (strstr(err.message, words[i]) == NULL) printf("  %s\n", err.message);
        CHECK(strcmp(err.stage, "third") == 0 && strstr(err.message, words[i]) != NULL);
        CHECK(dlp_push_close(push_) == DLP_OK);
    }
}

/* Counts are told before the start, of the parts of a list. */
static void load__of_counts__refused(void) {
    static const uint64_t items[] = {3};
    const dlp_field *f = &made_field;
    dlp_node nodes[4] = {{.name = "docs", .verb = DLP_PUSH},
                         {.name = "load",
                          .verb = DLP_LOAD,
                          .load = {.load = load_words, .items = items, .max_part_bytes = 8}},
                         {.name = "item",
                          .verb = DLP_FETCH,
                          .fetch = {.fetch = made_of_part, .fields = f, .n_fields = 1}},
                         {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    dlp_pipe *p = NULL;
    dlp_error err = {0};
    reset(EXPANDS);
    how.push.fields = record_fields;
    how.push.n_fields = 2;
    how.push.writers = 1;
    CHECK(dlp_push_open(&push_, &how.push, &err) == DLP_OK);
    nodes[0].push.source = push_;
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_ERR_ARG && p == NULL);
    CHECK(strcmp(err.stage, "load") == 0 && strstr(err.message, "no list of parts") != NULL);
    CHECK(dlp_push_close(push_) == DLP_OK);
}

static void descs__what_comes_once__refused(void) {
    static dlp_state state;
    reset(FILTERS);
    refused(&(dlp_pipe_desc){.epochs = 2}, "come once");
    refused(&(dlp_pipe_desc){.epoch_end = 1}, "come once");
    refused(&(dlp_pipe_desc){.world_size = 2}, "one rank");
    refused(&(dlp_pipe_desc){.resume = &state}, "come once");
    refused(&(dlp_pipe_desc){.streams = 2}, "one stream");
    refused(&(dlp_pipe_desc){.steps_per_epoch = 2}, "one stream");
    refused(&(dlp_pipe_desc){.uneven = 1}, "one stream");
    refused(&(dlp_pipe_desc){.unordered = 1}, "in order");
    how.cells = 2;
    refused(&(dlp_pipe_desc){.seed = 1}, "queue.capacity");
}

int main(void) {
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    makers__plan_and_stages__have_their_names();
    branches__of_a_push_and_a_list__links_of_each();
    lanes__before_their_reader__are_the_first_link();
    makers__any_workers__each_record_once();
    makers__one_producer__the_order_of_its_records();
    if (!RIG_TSAN) makers__worker_dies_in_its_callback__each_record_once();
    if (!RIG_TSAN) makers__worker_dies_at_each_access__each_record_once();
    makers__full_batch__given_without_another_record();
    makers__one_of_two_ends__what_came_is_given();
    zip__other_branch_ends__the_end();
    zip__two_pushes__each_with_its_like();
    zip__one_of_two_pushes_ends__the_end();
    push__no_valid_row__error_if_anything_was_pushed();
    makers__last_batch__as_its_rule_says();
    makers__nothing_comes_or_is_kept__the_end();
    makers__consumer_is_slow__producers_wait();
    makers__newest__older_ones_are_left();
    makers__item_fails__as_the_maker_says();
    makers__no_producer_lives__an_error_after_what_came();
    makers__pipe_is_over__producers_are_told();
    makers__next_epoch_and_seek__the_end_and_refused();
    ragged__no_maker__lengths_and_rows();
    ragged__wrong_lengths__refused();
    load__of_counts__refused();
    tables__what_needs_numbers__refused();
    descs__what_comes_once__refused();
    return test_end("push_makers");
}
