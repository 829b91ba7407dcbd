/* needs: scratch join */
/* Fields that end in rows of a mix: each fetch of a dataset writes them, and a map behind the last
   fetch reads them. The rows are those of a plain program, whatever the workers, threads or
   processes, requests in flight and cells, whoever dies; resumed after each batch; tried again,
   failed or left out. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SETS = 3, RAW = 24, BATCH = 7, MOST = 400, EPOCHS = 2 };
static const uint64_t items[SETS] = {50, 20, 9}, weights[SETS] = {5, 2, 1};

/* raw and its size end, label stays. The order is not that of a row, where fields that end come
   last. */
static const dlp_field read_fields[] = {
    {.name = "raw", .dtype = DLP_U8, .ndim = 1, .shape = {RAW}, .ragged = 1},
    {.name = "label", .dtype = DLP_U32},
    {.name = "size", .dtype = DLP_U64}};
static const dlp_field x_field = {.name = "x", .dtype = DLP_U64};

static struct shared { uint32_t calls, kills, wrong; } * all;
static uint32_t kill_every, fails_in, fails_for; /* 1: a fetch, 2: the map; in so many attempts */
static pid_t caller;

static uint64_t hash_of(uint64_t set, uint64_t index) { return dlp_hash(set, index, 1, 1); }
static uint64_t size_of(uint64_t set, uint64_t index) { return hash_of(set, index) % (RAW + 1); }
static uint64_t x_of(uint64_t set, uint64_t index) {
    const uint64_t byte = (uint8_t)hash_of(set, index), size = size_of(set, index);
    return size > 0 ? size * 1000 + byte : 0;
}

static int fails(const dlp_item *it, uint32_t in, uint64_t index) {
    const uint32_t call = __atomic_add_fetch(&all->calls, 1, __ATOMIC_RELAXED);
    if (kill_every != 0 && call % kill_every == 0 && getpid() != caller) {
        __atomic_add_fetch(&all->kills, 1, __ATOMIC_RELAXED);
        kill(getpid(), SIGKILL);
    }
    return fails_in == in && index % 10 == 3 && it->attempt < fails_for;
}

static int read_set(uint64_t set, dlp_item *it) {
    const uint64_t size = size_of(set, it->index);
    const uint32_t label = (uint32_t)(set * 1000 + it->index);
    if (it->n_fields != 3) all->wrong++;
    memset(it->data[0], 0xee, RAW); /* what a failed attempt leaves */
    if (fails(it, 1, it->index)) return dlp_fail(it->call, 5, "no bytes");
    memset(it->data[0], (uint8_t)hash_of(set, it->index), size);
    it->length[0] = size;
    memcpy(it->data[1], &label, sizeof label);
    memcpy(it->data[2], &size, sizeof size);
    return 0;
}
static int read_0(void *user, dlp_item *it) { return read_set(user != NULL, it); }
static int read_1(void *user, dlp_item *it) { return read_set(1 + (user != NULL), it); }
static int read_2(void *user, dlp_item *it) { return read_set(2 + (user != NULL), it); }

static int decode(void *user, dlp_item *it) {
    const uint8_t *raw = it->data[0];
    uint64_t size, x;
    uint32_t label;
    (void)user;
    memcpy(&label, it->data[1], sizeof label);
    memcpy(&size, it->data[2], sizeof size);
    if (it->n_fields != 4 || it->length[0] != size) all->wrong++;
    for (uint64_t i = 1; i < size; i++)
        if (raw[i] != raw[0]) all->wrong++;
    if (fails(it, 2, label % 1000)) return dlp_fail(it->call, 5, "no decoding");
    x = size * 1000 + (size > 0 ? raw[0] : 0);
    memcpy(it->data[3], &x, sizeof x);
    return 0;
}

/* ---- tables ---- */

static dlp_mix *mix;

static uint32_t table(dlp_node *to, const dlp_workers_desc *w, uint32_t cells, uint32_t in_flight) {
    static const dlp_item_fn reads[SETS] = {read_0, read_1, read_2};
    static const char *const names[SETS] = {"first", "second", "third"};
    uint32_t n = 0;
    to[n++] = (dlp_node){.name = "list", .verb = DLP_LIST, .list = {.mix = mix}};
    for (uint32_t k = 0; k < SETS; k++)
        to[n++] = (dlp_node){.name = names[k],
                             .verb = DLP_FETCH,
                             .fetch = {.fetch = reads[k],
                                       .fields = read_fields,
                                       .n_fields = 3,
                                       .of = k + 1,
                                       .in_flight = in_flight},
                             .workers = *w,
                             .queue = {.capacity = k == 1 ? cells : 0}};
    to[n++] =
        (dlp_node){.name = "decode",
                   .verb = DLP_MAP,
                   .map = {.item = decode, .fields = &x_field, .n_fields = 1, .ends = "raw size"},
                   .workers = *w};
    to[n++] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}};
    return n;
}

typedef struct told {
    int rc;
    uint32_t rows, n, left_out;
    uint32_t label[MOST], ends[MOST]; /* ends: rows up to the end of each batch */
    uint64_t x[MOST];
    dlp_state state[MOST];
    dlp_error err;
} told;

static told want, got;

static void run(const dlp_node *nodes, uint32_t n, const dlp_state *resume, told *t) {
    const dlp_shm_desc shm = {.allow_fork_with_threads = 1, .max_kills = 100};
    const dlp_pipe_desc d = {.seed = 3, .epochs = EPOCHS, .resume = resume, .shm = &shm};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    memset(t, 0, sizeof *t);
    if ((t->rc = dlp_pipe_open(&p, nodes, n, &d, &t->err)) != DLP_OK) return;
    while ((t->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(b->n_fields == 2 && strcmp(b->fields[0].name, "label") == 0);
        for (uint32_t r = 0; r < b->count && t->rows < MOST; r++, t->rows++) {
            if (b->valid[r]) t->label[t->rows] = ((const uint32_t *)b->fields[0].data)[r];
            if (b->valid[r]) t->x[t->rows] = ((const uint64_t *)b->fields[1].data)[r];
            if (!b->valid[r]) t->label[t->rows] = UINT32_MAX, t->left_out++;
        }
        t->ends[t->n] = t->rows;
        CHECK(dlp_pipe_state(p, b, &t->state[t->n++]) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    t->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Each row's x is that of its label; each item of a set comes as often as it should. */
static void plain_holds(const told *t) {
    static uint32_t times[SETS * 1000];
    uint32_t all_items = 0;
    memset(times, 0, sizeof times);
    CHECK(t->rc == DLP_END);
    if (t->rc < 0) printf("  %s %s: %s\n", t->err.stage, t->err.field, t->err.message);
    for (uint32_t r = 0; r < t->rows; r++) {
        if (t->label[r] == UINT32_MAX) continue;
        CHECK(t->x[r] == x_of(t->label[r] / 1000, t->label[r] % 1000));
        times[t->label[r]]++;
    }
    for (uint64_t k = 0; k < SETS; k++)
        for (uint64_t i = 0; i < items[k]; i++) all_items += times[k * 1000 + i] >= 1;
    CHECK(t->rows > 100 && all_items >= 60);
}

static int same(uint32_t from) {
    const uint32_t rows = from > 0 ? want.ends[from - 1] : 0;
    return got.rc == want.rc && got.n == want.n - from && got.rows == want.rows - rows &&
           memcmp(got.label, want.label + rows, got.rows * sizeof *got.label) == 0 &&
           memcmp(got.x, want.x + rows, got.rows * sizeof *got.x) == 0 &&
           memcmp(got.state, want.state + from, got.n * sizeof *got.state) == 0;
}

static void is_same(uint32_t from, const char *what) {
    const int is = same(from);
    CHECK(is);
    if (!is)
        printf("  %s: %u rows (%d) not %u: %s %s\n", what, got.rows, got.rc, want.rows,
               got.err.stage, got.err.message);
}

static void mix__fields_end__the_rows_of_a_loop(void) {
    const dlp_workers_desc some[] = {{.num_workers = 0},
                                     {.num_workers = 1},
                                     {.num_workers = 4},
                                     {.num_workers = 1, .placement = DLP_PLACE_PROCESSES},
                                     {.num_workers = 3, .placement = DLP_PLACE_PROCESSES}};
    dlp_node nodes[8];
    for (uint32_t i = 0; i < sizeof some / sizeof *some; i++) {
        for (uint32_t cells = 0; cells < 40; cells += 20) {
            dlp_workers_desc w = some[i];
            w.idempotent = i > 2 && cells == 0;
            run(nodes, table(nodes, &w, cells, 0), NULL, i + cells == 0 ? &want : &got);
            if (i + cells == 0)
                plain_holds(&want);
            else
                is_same(0, "workers");
            if (i == 0) continue;
            if (w.placement == 0) run(nodes, table(nodes, &w, cells, 3), NULL, &got);
            is_same(0, "in flight");
            if (w.placement == 0) continue;
            kill_every = 61;
            run(nodes, table(nodes, &w, cells, 0), NULL, &got);
            kill_every = 0;
            is_same(0, "killed");
        }
    }
    for (uint32_t k = 0; k + 1 < want.n; k++) {
        run(nodes, table(nodes, &some[k % 3], 0, 0), &want.state[k], &got);
        is_same(k + 1, "resumed");
    }
}

static void mix__a_callback_fails__tried_again_left_out_or_told(void) {
    dlp_node nodes[8];
    for (fails_in = 1; fails_in <= 2; fails_in++) {
        dlp_workers_desc w = {.num_workers = 2, .retries = 2};
        uint32_t row = 0;
        fails_for = 2;
        run(nodes, table(nodes, &w, 0, 0), NULL, &got);
        is_same(0, "tried again");
        fails_for = 1000;
        run(nodes, table(nodes, &w, 0, 0), NULL, &got);
        CHECK(got.rc == DLP_ERR_CALLBACK);
        CHECK(strcmp(got.err.stage, "decode") == 0 ? fails_in == 2 : fails_in == 1);
        w.on_error = DLP_ON_ERROR_DROP;
        run(nodes, table(nodes, &w, 0, 0), NULL, &got);
        CHECK(got.rc == DLP_END && got.rows == want.rows && got.left_out > 5);
        for (; row < got.rows; row++) {
            const int drops = want.label[row] % 1000 % 10 == 3;
            CHECK(got.label[row] == (drops ? UINT32_MAX : want.label[row]));
            CHECK(got.x[row] == (drops ? 0 : want.x[row]));
        }
    }
    fails_in = 0;
}

/* ---- what is refused ---- */

static void mix__other_fields__refused_in_words(void) {
    static const dlp_field longer[] = {
        {.name = "raw", .dtype = DLP_U8, .ndim = 1, .shape = {RAW + 1}, .ragged = 1},
        {.name = "label", .dtype = DLP_U32},
        {.name = "size", .dtype = DLP_U64}};
    static const dlp_guard_field guarded = {.name = "label"};
    const dlp_workers_desc w = {.num_workers = 1};
    for (int at = 0; at < 5; at++) {
        dlp_node nodes[8], extra;
        dlp_error err = {.code = 0};
        dlp_plan plan;
        uint32_t n = table(nodes, &w, 0, 0);
        if (at == 0) nodes[2].fetch.fields = longer;
        if (at == 1) nodes[2].fetch.fields = &read_fields[1], nodes[2].fetch.n_fields = 1;
        if (at == 2) nodes[1].fetch.fields = &read_fields[1], nodes[1].fetch.n_fields = 1;
        if (at == 3) nodes[3].fetch.n_fields = 2;
        if (at == 4) {
            extra = (dlp_node){
                .name = "look", .verb = DLP_GUARD, .guard = {.fields = &guarded, .n_fields = 1}};
            memmove(nodes + 3, nodes + 2, (n - 2) * sizeof *nodes);
            nodes[2] = extra;
            n++;
        }
        CHECK(dlp_nodes_plan(nodes, n, NULL, &plan, &err) < 0);
        CHECK(strcmp(err.stage, at == 3 ? "third" : "second") == 0);
        CHECK(strstr(err.message, "fields end in \"decode\"") != NULL);
        if (test_failures > 0) printf("  %d: %s %s: %s\n", at, err.stage, err.field, err.message);
    }
}

static void mix__another_seed__refused_in_words(void) {
    const dlp_workers_desc w = {.num_workers = 1};
    dlp_error err = {.code = 0};
    dlp_node nodes[8];
    dlp_plan plan;
    const uint32_t n = table(nodes, &w, 0, 0);
    CHECK(dlp_nodes_plan(nodes, n, &(dlp_pipe_desc){.seed = 4}, &plan, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "list.mix") == 0 && strstr(err.message, "has seed 3") != NULL);
}

/* A byte more of a field that ends is one in each cell, and none in slots. */
static void mix__plan__cells_of_fields_that_end(void) {
    const dlp_workers_desc w = {.num_workers = 1};
    static dlp_plan plan;
    dlp_node nodes[8];
    uint64_t bytes = 0;
    CHECK(dlp_nodes_plan(nodes, table(nodes, &w, 8, 0), NULL, &plan, NULL) == DLP_OK);
    for (uint32_t i = 0; i < plan.n_lines; i++)
        if (strcmp(plan.lines[i].what, "scratch cells") == 0) bytes = plan.lines[i].bytes;
    CHECK(bytes == 8 * 192); /* each field begins at a multiple of 64, behind two lengths */
}

int main(void) {
    const dlp_mix_desc d = {
        .n = SETS, .n_items = items, .weights = weights, .seed = 3, .shuffle = 1};
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    caller = getpid();
    CHECK(dlp_mix_open(&mix, &d, NULL) == DLP_OK);
    mix__another_seed__refused_in_words();
    mix__fields_end__the_rows_of_a_loop();
    mix__a_callback_fails__tried_again_left_out_or_told();
    mix__other_fields__refused_in_words();
    mix__plan__cells_of_fields_that_end();
    CHECK(all->wrong == 0 && all->kills > 5);
    dlp_mix_close(mix);
    return test_end("mix_ends");
}
