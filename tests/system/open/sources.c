/* needs: parts tokens arrays files */
/* Sources: one object for files, tokens and arrays. A loader and a table take it in one field, and
   give the same batches and states; what the source says cannot be said twice. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/source_rig.h"
#include <stdlib.h>
#include <string.h>

enum { FILES, TOKENS, ARRAYS, KINDS, ROWS = 50, LENGTH = 7 };

static const char *paths[ROWS];
static const char *shards[2], *npy;
static const dlp_field line = {.name = "line", .dtype = DLP_U8, .ndim = 1, .shape = {8}};

static int no_line(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 0, 8);
    return 0;
}

static void make_files(void) {
    static uint16_t tokens[400];
    static uint8_t array[80 + ROWS];
    static const char head[] = "\x93NUMPY\x01\x00\x46\x00{'descr': '|u1', 'fortran_order': False, "
                               "'shape': (50,), }";
    for (int i = 0; i < 400; i++) tokens[i] = (uint16_t)(i * 3 + 1);
    for (int i = 0; i < ROWS; i++) {
        char name[16], text[9];
        snprintf(name, sizeof name, "f%d", i);
        snprintf(text, sizeof text, "%08d", i);
        rig_write(name, text, 8);
        paths[i] = strdup(in_rig(name));
    }
    shards[0] = strdup(in_rig("shard_0"));
    shards[1] = strdup(in_rig("shard_1"));
    rig_write("shard_0", tokens, sizeof tokens);
    rig_write("shard_1", tokens, sizeof tokens / 2);
    memset(array, ' ', 80);
    memcpy(array, head, sizeof head - 1);
    array[79] = '\n';
    for (int i = 0; i < ROWS; i++) array[80 + i] = (uint8_t)(i * 5);
    npy = strdup(in_rig("x.npy"));
    rig_write("x.npy", array, sizeof array);
}

static dlp_source *open_source(int kind) {
    dlp_array_column column = {.name = "x", .path = npy};
    dlp_source *s = NULL;
    dlp_error e = {.code = 0};
    int rc =
        kind == FILES
            ? dlp_files_open(&s,
                             &(dlp_files_desc){
                                 .n_items = ROWS, .paths = paths, .fields = &line, .n_fields = 1},
                             &e)
        : kind == TOKENS
            ? dlp_tokens_open(
                  &s,
                  &(dlp_tokens_desc){.paths = shards, .n_paths = 2, .length = LENGTH, .insist = 1},
                  &e)
            : dlp_arrays_open(&s, &(dlp_arrays_desc){.columns = &column, .n_columns = 1}, &e);
    CHECK(rc == DLP_OK && s != NULL);
    if (rc != DLP_OK) printf("  %d: %s\n", kind, e.message);
    return s;
}

typedef struct given {
    uint64_t hash, rows;
    dlp_state state;
} given;

static void take(dlp_pipe *p, given *g) {
    dlp_batch *b = NULL;
    memset(g, 0, sizeof *g);
    g->hash = 7;
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        const dlp_tensor *t = &b->fields[0];
        uint64_t bytes = (t->dtype & 0xffff) / 8;
        for (int32_t k = 0; k < t->ndim; k++) bytes *= (uint64_t)t->shape[k];
        for (uint64_t i = 0; i < bytes; i++)
            g->hash = (g->hash ^ ((const uint8_t *)t->data)[i]) * UINT64_C(0x100000001b3);
        g->rows += b->count;
        CHECK(dlp_pipe_state(p, b, &g->state) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_error(p)->code == 0 && g->rows > 0);
}

/* A loader, a table, and a table that says the number for the states by hand. */
static void source__of_each_kind__same_by_loader_and_table(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        dlp_source *s = open_source(kind);
        const dlp_loader_desc d = {.source = s,
                                   .batch_size = 4,
                                   .num_workers = 2,
                                   .shuffle = 1,
                                   .seed = 3,
                                   .sampler.samples_per_epoch = 0};
        const dlp_sampler_desc by_hand = {.order = DLP_ORDER_SHUFFLED,
                                          .function_id = s != NULL ? s->id : 0};
        const dlp_node nodes[] = {{.name = "items", .verb = DLP_LIST, .list = {.shuffle = 1}},
                                  {.name = "read",
                                   .verb = DLP_FETCH,
                                   .fetch = {.source = s},
                                   .workers = {.num_workers = 2}},
                                  {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
        dlp_node order[3];
        dlp_pipe *p = NULL;
        given a, b, c;
        if (s == NULL) continue;
        memcpy(order, nodes, sizeof nodes);
        order[0].list = (dlp_node_list){.order = &by_hand};
        CHECK((s->id != 0) == (kind != FILES));
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        take(p, &a);
        CHECK(dlp_source_close(s) == DLP_ERR_BUSY);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.seed = 3}, NULL) == DLP_OK);
        take(p, &b);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(dlp_pipe_open(&p, DLP_NODES(order), &(dlp_pipe_desc){.seed = 3}, NULL) == DLP_OK);
        take(p, &c);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(a.rows == b.rows && a.hash == b.hash && b.hash == c.hash);
        CHECK(memcmp(&a.state, &b.state, sizeof a.state) == 0);
        CHECK(memcmp(&b.state, &c.state, sizeof b.state) == 0);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
}

/* A copy that fetches one item after the other, in the consumer. */
static void source__copy_that_fetches_one_by_one__same_rows(void) {
    dlp_source *s = open_source(FILES), one;
    dlp_loader_desc d = {.source = s, .batch_size = 4, .num_workers = 1};
    dlp_pipe *p = NULL;
    given a, b;
    if (s == NULL) return;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    take(p, &a);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    one = *s;
    one.fetcher = DLP_FETCH_SEQUENTIAL;
    one.in_flight = 0;
    d.source = &one;
    d.num_workers = 0;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    take(p, &b);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(a.rows == ROWS && a.rows == b.rows && a.hash == b.hash);
    CHECK(dlp_source_close(s) == DLP_OK);
}

static int enter(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    *state = NULL;
    return 0;
}
static void leave(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    (void)state;
}
static int nothing(void *user, char *buf, size_t size) {
    (void)user;
    (void)buf;
    (void)size;
    return 0;
}

/* What a source says is refused by its name where the loader says it, too. */
static void source__what_it_says__is_not_said_twice(void) {
    static const char *const fields[] = {"dataset.n_items",       "dataset.fields",
                                         "dataset.fetch",         "fetcher",
                                         "workers.worker_init",   "workers.worker_init",
                                         "workers.worker_init",   "workers.worker_init",
                                         "list.order.function_id"};
    for (int i = 0; i < 9; i++) {
        dlp_source *s = open_source(i == 8 ? TOKENS : FILES);
        dlp_loader_desc d = {.source = s, .batch_size = 4, .num_workers = 1};
        dlp_pipe *p = NULL;
        dlp_error e = {.code = 0};
        if (i == 0) d.dataset.n_items = ROWS;
        if (i == 1) d.dataset.fields = &line;
        if (i == 2) d.dataset.fetch = s->dataset->fetch;
        if (i == 3) d.fetcher = DLP_FETCH_THREADS;
        if (i == 4) d.workers.worker_init = enter;
        if (i == 5) d.workers.worker_exit = leave;
        if (i == 6) d.workers.worker_user = &p;
        if (i == 7) d.workers.tell = nothing;
        if (i == 8) d.sampler.function_id = 8;
        CHECK(dlp_loader_open(&p, &d, &e) == DLP_ERR_ARG && strcmp(e.field, fields[i]) == 0);
        CHECK(strstr(e.message, "source") != NULL && p == NULL);
        CHECK(dlp_source_close(s) == DLP_OK);
    }
}

/* A call that is about another kind of source has no answer. */
/* A mix of two branches whose second one has a source with this id. */
static int open_mix(dlp_pipe **p, uint64_t id, const dlp_state *resume, dlp_error *err) {
    static dlp_dataset ds = {.n_items = 20, .fields = &line, .n_fields = 1};
    dlp_source source = {.dataset = &ds, .id = id};
    const dlp_pipe_desc desc = {.seed = 1, .resume = resume};
    const dlp_node nodes[] = {
        {.name = "some", .verb = DLP_LIST, .list = {.n_items = 20}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = no_line, .fields = &line, .n_fields = 1}},
        {.name = "more", .verb = DLP_LIST},
        {.name = "source", .verb = DLP_FETCH, .fetch = {.source = &source}},
        {.name = "both", .verb = DLP_MIX, .from = (const char *[]){"read", "source", NULL}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    ds.fetch = no_line;
    return dlp_pipe_open(p, DLP_NODES(nodes), &desc, err);
}

static void source__of_a_later_branch__its_id_is_part_of_states(void) {
    dlp_state state;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    CHECK(open_mix(&p, 7, NULL, &err) == DLP_OK && dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_pipe_state(p, b, &state) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(open_mix(&p, 8, &state, &err) == DLP_ERR_RESUME);
    CHECK(open_mix(&p, 7, &state, &err) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
}

static void source__of_another_kind__no_answer(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        dlp_source *s = open_source(kind);
        if (s == NULL) continue;
        CHECK((dlp_tokens_describe(s) != NULL) == (kind == TOKENS));
        CHECK((dlp_arrays_describe(s) != NULL) == (kind == ARRAYS));
        CHECK((dlp_files_backend(s) != NULL) == (kind == FILES));
        CHECK((dlp_files_worker_bytes(s) != 0) == (kind == FILES));
        CHECK(dlp_source_close(s) == DLP_OK);
    }
    CHECK(dlp_source_close(NULL) == DLP_OK);
    CHECK(dlp_tokens_describe(NULL) == NULL && dlp_arrays_describe(NULL) == NULL);
    CHECK(dlp_files_backend(NULL) == NULL && dlp_files_worker_bytes(NULL) == 0);
}

static int keep_all(void *user, const dlp_item *it) {
    (void)user;
    (void)it;
    return 1;
}

static void source__warnings__are_told_by_all_branches(void) {
    dlp_files_desc d = {.n_items = ROWS, .paths = paths, .fields = &line, .n_fields = 1};
    dlp_source *s[2] = {NULL, NULL};
    dlp_pipe *p = NULL;
    dlp_error e = {.code = 0};
    for (int i = 0; i < 2; i++) {
        d.warning = i == 0 ? "of the first" : "of the second";
        CHECK(dlp_files_open(&s[i], &d, &e) == DLP_OK);
    }
    const dlp_node nodes[] = {
        {.name = "l", .verb = DLP_LIST},
        {.name = "a", .verb = DLP_FETCH, .fetch.source = s[0]},
        {.name = "k", .verb = DLP_FILTER, .filter.keep = keep_all},
        {.name = "m", .verb = DLP_LIST},
        {.name = "b", .verb = DLP_FETCH, .fetch.source = s[1]},
        {.name = "x", .verb = DLP_MIX, .from = (const char *const[]){"k", "b", NULL}},
        {.name = "batch", .verb = DLP_BATCH, .batch.batch_size = 4}};
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &e) == DLP_OK);
    CHECK(p != NULL && dlp_pipe_warning(p, 0) != NULL && dlp_pipe_warning(p, 1) != NULL &&
          strcmp(dlp_pipe_warning(p, 0), "of the first") == 0 &&
          strcmp(dlp_pipe_warning(p, 1), "of the second") == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    for (int i = 0; i < 2; i++) CHECK(dlp_source_close(s[i]) == DLP_OK);
}

int main(void) {
    rig_begin("sources");
    make_files();
    source__of_each_kind__same_by_loader_and_table();
    source__copy_that_fetches_one_by_one__same_rows();
    source__what_it_says__is_not_said_twice();
    source__of_a_later_branch__its_id_is_part_of_states();
    source__warnings__are_told_by_all_branches();
    source__of_another_kind__no_answer();
    for (int i = 0; i < ROWS; i++) free((void *)(uintptr_t)paths[i]);
    free((void *)(uintptr_t)shards[0]);
    free((void *)(uintptr_t)shards[1]);
    free((void *)(uintptr_t)npy);
    rig_end();
    return test_end("sources");
}
