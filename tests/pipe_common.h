/* What the tests of the pipe share: a dataset whose bytes tell the index, and a run that checks
   them. */
#ifndef PIPE_COMMON_H
#define PIPE_COMMON_H

static int test_failures;
static int test_checks;

#define CHECK(x) \
    do { \
        test_checks++; \
        if (!(x)) { \
            test_failures++; \
            if (test_failures < 20) \
                printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #x); \
        } \
    } while (0)

static int test_end(const char *name) {
    printf("%s: %d checks, %d failed\n", name, test_checks, test_failures);
    return test_failures != 0;
}

#define TEST_ROW 24

typedef struct test_shape {
    uint64_t n_items;
    uint32_t batch;
    int workers, dispatch, order, last, sampler_threaded, unordered, prefetch, max_held, maps,
        batch_maps;
    int map_workers, xfer, fills;
    int64_t epochs;
    uint64_t seed;
    uint32_t rank, world;
    const dlp_state *resume;
} test_shape;

static test_shape test_shape_default(void) {
    test_shape s;
    memset(&s, 0, sizeof s);
    s.n_items = 203;
    s.batch = 10;
    s.epochs = 2;
    s.seed = 42;
    return s;
}

static uint64_t test_mix(uint64_t h, uint64_t v) {
    h ^= v;
    h *= UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static int test_fetch(void *user, dlp_item *it) {
    uint64_t words[TEST_ROW / 8];
    (void)user;
    words[0] = it->index;
    words[1] = it->epoch << 32 | it->position;
    words[2] = dlp_item_random(it, 1);
    memcpy(it->data[0], words, sizeof words);
    memcpy(it->data[1], &it->index, 4);
    return 0;
}

static int test_map(void *user, dlp_item *it) {
    uint64_t words[TEST_ROW / 8];
    (void)user;
    memcpy(words, it->data[0], sizeof words);
    words[2] = words[2] * 3 + it->index;
    memcpy(it->data[0], words, sizeof words);
    return 0;
}

static int test_batch_map(void *user, dlp_batch *b, void *state) {
    uint64_t *words = b->fields[0].data;
    (void)user;
    (void)state;
    for (uint32_t r = 0; r < b->count; r++) words[3 * r + 2] ^= b->index[r] * 977;
    return 0;
}

static uint64_t test_weights[4096];
static uint64_t test_function(void *user, uint64_t epoch, uint64_t position) {
    uint64_t n = *(uint64_t *)user;
    return (position * 7 + epoch) % n;
}

static const dlp_field test_fields[2] = {{"words", DLP_U64, 1, {3}, 0, 0},
                                         {"label", DLP_U32, 0, {0}, 0, 0}};

/* Wire and start the pipe of a shape. */
static int test_open(test_shape *s, dlp_pipe **out) {
    dlp_pipe_desc pd;
    dlp_sampler_desc sd;
    dlp_repeat_desc rd;
    dlp_fetch_desc fd;
    dlp_batch_desc bd;
    dlp_dataset ds;
    dlp_stage at[12];
    int n = 0, rc;
    memset(&pd, 0, sizeof pd);
    memset(&sd, 0, sizeof sd);
    memset(&rd, 0, sizeof rd);
    memset(&fd, 0, sizeof fd);
    memset(&bd, 0, sizeof bd);
    memset(&ds, 0, sizeof ds);
    pd.prefetch_factor = s->prefetch;
    pd.max_held = s->max_held;
    pd.unordered = s->unordered;
    pd.resume = s->resume;
    sd.order = s->order;
    sd.threaded = s->sampler_threaded;
    sd.seed = s->seed;
    sd.rank = s->rank;
    sd.world_size = s->world;
    if (s->order == DLP_ORDER_WEIGHTED) {
        for (uint64_t i = 0; i < s->n_items; i++) test_weights[i] = i % 5;
        sd.weights = test_weights;
    }
    if (s->order == DLP_ORDER_FUNCTION) {
        sd.function = test_function;
        sd.function_user = &s->n_items;
    }
    rd.epochs = s->epochs;
    ds.n_items = s->n_items;
    ds.fields = test_fields;
    ds.n_fields = 2;
    ds.fills_rows = (uint32_t)s->fills;
    ds.fetch = test_fetch;
    fd.dataset = &ds;
    fd.workers.num_workers = s->workers;
    fd.workers.dispatch = s->dispatch;
    bd.batch_size = s->batch;
    bd.last = s->last;
    rc = dlp_pipe_open(out, &pd, NULL);
    if (rc != DLP_OK) return rc;
    at[n++] = dlp_pipe_add_sampler(*out, &sd);
    at[n++] = dlp_pipe_add_repeat(*out, &rd);
    at[n++] = dlp_pipe_add_fetch(*out, &fd);
    for (int i = 0; i < s->maps; i++) {
        dlp_map_desc md;
        memset(&md, 0, sizeof md);
        md.item = test_map;
        md.workers.num_workers = s->map_workers;
        md.workers.dispatch = s->dispatch;
        at[n++] = dlp_pipe_add_map(*out, &md);
    }
    at[n++] = dlp_pipe_add_batch(*out, &bd);
    for (int i = 0; i < s->batch_maps; i++) {
        dlp_map_desc md;
        memset(&md, 0, sizeof md);
        md.batch = test_batch_map;
        md.workers.num_workers = s->map_workers;
        md.workers.dispatch = s->dispatch;
        at[n++] = dlp_pipe_add_map(*out, &md);
    }
    if (s->xfer) {
        dlp_transfer_desc td;
        memset(&td, 0, sizeof td);
        td.threaded = s->xfer == 2;
        at[n++] = dlp_pipe_add_transfer(*out, &td);
    }
    for (int i = 0; i + 1 < n; i++) dlp_pipe_link(*out, at[i], at[i + 1]);
    rc = dlp_pipe_start(*out);
    if (rc != DLP_OK) {
        char text[600];
        dlp_error_format(dlp_pipe_error(*out), text, sizeof text);
        printf("start: %s\n", text);
        dlp_pipe_close(*out);
    }
    return rc;
}

/* A number for all that a batch holds. */
static uint64_t test_batch_sum(const dlp_batch *b, uint64_t h) {
    h = test_mix(h, b->epoch);
    h = test_mix(h, b->in_epoch);
    h = test_mix(h, b->position);
    h = test_mix(h, (uint64_t)b->count << 32 | b->flags);
    for (uint32_t f = 0; f < b->n_fields; f++)
        for (uint64_t i = 0; i < b->fields[f].bytes; i++)
            h = test_mix(h, ((uint8_t *)b->fields[f].data)[i]);
    for (uint32_t r = 0; r < b->count; r++) h = test_mix(h, b->index[r] * 2 + b->valid[r]);
    return h;
}

static uint64_t test_run(test_shape *s) {
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t h = 1, sequence = 0;
    int rc;
    if (test_open(s, &p) != DLP_OK) return 0;
    while ((rc = dlp_pipe_next(p, &b, 20000)) == DLP_OK) {
        CHECK(b->sequence == sequence++);
        for (uint32_t r = 0; r < b->count; r++) {
            uint32_t label;
            memcpy(&label, (uint8_t *)b->fields[1].data + 4 * r, 4);
            CHECK(label == b->index[r]);
        }
        h = test_batch_sum(b, h);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END);
    if (rc != DLP_END) printf("next: %s\n", dlp_code_name(rc));
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return h;
}

#endif
