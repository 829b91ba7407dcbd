/* Every field of every desc just out of its range, and on its bounds; graphs that are none; calls
   at
   the wrong time: the error names the culprit, outputs stay as they were, nothing leaks. */
#include "../../rig/pipe_life.h"

#define INTACT 0x5a

static int is_intact(const void *at, size_t n) {
    const unsigned char *bytes = at;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != INTACT) return 0;
    return 1;
}

static int error_is(const dlp_error *e, int code, const char *stage, const char *field) {
    int ok = e->code == code && strcmp(e->stage, stage) == 0 && strcmp(e->field, field) == 0 &&
             e->message[0] != 0 && e->worker == -1;
    if (!ok)
        printf("  got %s stage \"%s\" field \"%s\" worker %d message \"%s\"\n",
               dlp_code_name(e->code), e->stage, e->field, e->worker, e->message);
    return ok;
}

/* The pipe of r is refused, by whichever call sees it first, and by all after it. */
static int is_refused(rig *r, int code, const char *stage, const char *field) {
    seam_alive alive = seam_now();
    proc_count proc = proc_now();
    union {
        dlp_pipe *p;
        unsigned char bytes[sizeof(dlp_pipe *)];
    } out;
    rig_table t = {.n = 0};
    dlp_plan plan;
    dlp_error e;
    dlp_batch *b = NULL;
    int ok = 1, rc;
    memset(&out, INTACT, sizeof out);
    memset(&plan, INTACT, sizeof plan);
    memset(&e, INTACT, sizeof e);
    rig_rows(r, &t);
    rc = table_pipe(&t, &out.p, &r->pipe, &e);
    if (rc != DLP_OK) {
        ok &= CHECK(rc == code) & CHECK(is_intact(out.bytes, sizeof out.bytes));
        ok &= CHECK(error_is(&e, code, stage, field));
        ok &= CHECK(table_pipe(&t, &out.p, &r->pipe, NULL) == code);
        memset(&e, INTACT, sizeof e);
        ok &= CHECK(dlp_pipe_open(&out.p, t.nodes, t.n, &r->pipe, &e) == code);
        ok &= CHECK(is_intact(out.bytes, sizeof out.bytes));
        ok &= CHECK(error_is(&e, code, stage, field));
        memset(&e, INTACT, sizeof e);
        ok &= CHECK(dlp_nodes_plan(t.nodes, t.n, &r->pipe, &plan, &e) == code);
        ok &= CHECK(is_intact(&plan, sizeof plan)) & CHECK(error_is(&e, code, stage, field));
        ok &= CHECK(e.message[0] != 0);
        return ok & CHECK(seam_same(alive)) & CHECK(proc_same(proc));
    }
    ok &= CHECK(is_intact(&e, sizeof e));
    ok &= CHECK(dlp_pipe_plan(out.p, &plan) == code);
    ok &= CHECK(error_is(dlp_pipe_error(out.p), code, stage, field));
    ok &= CHECK(dlp_pipe_plan(out.p, &plan) == code) & CHECK(is_intact(&plan, sizeof plan));
    ok &= CHECK(dlp_pipe_start(out.p) == code);
    ok &= CHECK(dlp_nodes_plan(t.nodes, t.n, &r->pipe, &plan, NULL) == code);
    ok &= CHECK(dlp_pipe_next_timeout(out.p, &b, 0) == DLP_ERR_STATE) & CHECK(b == NULL);
    ok &= CHECK(error_is(dlp_pipe_error(out.p), code, stage, field)); /* the first one stays */
    ok &= CHECK(dlp_pipe_close(out.p) == DLP_OK);
    return ok & CHECK(seam_same(alive)) & CHECK(proc_same(proc));
}

/* It is taken: as far as its plan, for not every bound fits this machine. */
static int is_taken(rig *r) {
    seam_alive alive = seam_now();
    dlp_pipe *p;
    dlp_plan plan;
    dlp_error e;
    int ok = 1;
    memset(&e, 0, sizeof e);
    if (!CHECK(rig_wire(r, &p, &e) == DLP_OK)) {
        printf("  %s\n", e.message);
        return 0;
    }
    ok &= CHECK(p != NULL);
    ok &= CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    if (!ok) printf("  %s\n", dlp_pipe_error(p)->message);
    ok &= CHECK(dlp_pipe_close(p) == DLP_OK);
    return ok & CHECK(seam_same(alive));
}

#define REFUSED(r, code, stage, field) \
    do { \
        if (!is_refused(&(r), code, stage, field)) printf("  at line %d\n", __LINE__); \
    } while (0)
#define TAKEN(r) \
    do { \
        if (!is_taken(&(r))) printf("  at line %d\n", __LINE__); \
    } while (0)

/* path is low .. high: both taken, one past each refused. setup comes first. */
#define BAD(setup, path, value, stage, field) \
    do { \
        rig r; \
        rig_default(&r); \
        setup; \
        r.path = (value); \
        REFUSED(r, DLP_ERR_ARG, stage, field); \
    } while (0)
#define GOOD(setup, path, value) \
    do { \
        rig r; \
        rig_default(&r); \
        setup; \
        r.path = (value); \
        TAKEN(r); \
    } while (0)
#define BOUNDS(setup, path, low, high, stage, field) \
    do { \
        GOOD(setup, path, low); \
        GOOD(setup, path, high); \
        BAD(setup, path, (low)-1, stage, field); \
        BAD(setup, path, (high) + 1, stage, field); \
    } while (0)

static void open__pipe_desc_out_of_range__names_field(void) {
    BOUNDS((void)0, pipe.prefetch_factor, 0, 4096, "", "prefetch_factor");
    BOUNDS((void)0, pipe.max_held, 0, 256, "", "max_held");
    BOUNDS((void)0, pipe.unordered, 0, 1, "", "unordered");
    BOUNDS((void)0, pipe.no_memfd, 0, 1, "", "no_memfd");
    BOUNDS((void)0, pipe.trace_rows, 0, 1, "", "trace_rows");
    GOOD((void)0, pipe.stall_ms, DLP_FOREVER);
    GOOD((void)0, pipe.stall_ms, INT32_MAX);
    GOOD((void)0, pipe.stall_ms, DLP_NONE);
    BAD((void)0, pipe.stall_ms, DLP_FOREVER - 1, "", "stall_ms");
    BAD((void)0, pipe.stall_ms, INT32_MIN, "", "stall_ms");
    GOOD((void)0, pipe.close_timeout_ms, DLP_FOREVER);
    GOOD((void)0, pipe.close_timeout_ms, INT32_MAX);
    BAD((void)0, pipe.close_timeout_ms, DLP_FOREVER - 1, "", "close_timeout_ms");
    BAD((void)0, pipe.close_timeout_ms, INT32_MIN, "", "close_timeout_ms");
    GOOD((void)0, pipe.trace_bytes, 64u << 20);
    BAD((void)0, pipe.trace_bytes, (64u << 20) + 1u, "", "trace_bytes");
    BAD((void)0, pipe.trace_bytes, UINT32_MAX, "", "trace_bytes");
    GOOD(r.pipe.unordered = 1, pipe.prefetch_factor, 320);
    BAD(r.pipe.unordered = 1, pipe.prefetch_factor, 321, "", "prefetch_factor");
}

static uint64_t any_index(void *user, uint64_t epoch, uint64_t position) {
    (void)user;
    (void)epoch;
    return position;
}
static int64_t any_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    (void)user;
    (void)epoch;
    (void)max;
    index[0] = 0;
    return 0;
}
static int any_save(void *user, void *bytes) {
    (void)user;
    (void)bytes;
    return 0;
}

static void plan__sampler_desc_out_of_range__names_field(void) {
    static const uint64_t subset[3] = {0, 99, 42}, past[3] = {0, 42, 100};
    static uint64_t ones[100], zeros[100], huge[100];
    for (int i = 0; i < 100; i++) ones[i] = 1;
    huge[3] = UINT64_C(1) << 63;
    BAD((void)0, sampler.order, -1, "sampler", "list.order.order");
    BAD((void)0, sampler.order, 6, "sampler", "list.order.order");
    BOUNDS((void)0, sampler.threaded, 0, 1, "sampler", "workers.num_workers");
    BOUNDS((void)0, pipe.allow_uneven, 0, 1, "", "allow_uneven");
    GOOD(r.sampler.order = DLP_ORDER_REPLACEMENT, sampler.samples_per_epoch, UINT64_C(1) << 48);
    BAD(r.sampler.order = DLP_ORDER_REPLACEMENT, sampler.samples_per_epoch, (UINT64_C(1) << 48) + 1,
        "sampler", "list.order.samples_per_epoch");
    GOOD((void)0, sampler.samples_per_epoch, 100);
    BAD((void)0, sampler.samples_per_epoch, 99, "sampler", "list.order.samples_per_epoch");
    GOOD(r.sampler.n_subset = 3, sampler.subset, subset);
    BAD(r.sampler.n_subset = 3, sampler.subset, past, "sampler", "list.order.subset");
    BAD(r.sampler.subset = subset, sampler.n_subset, 0, "sampler", "list.order.n_subset");
    BAD(r.sampler.subset = subset, sampler.n_subset, (UINT64_C(1) << 48) + 1, "sampler",
        "list.order.n_subset");
    BAD((void)0, sampler.n_subset, 3, "sampler", "list.order.n_subset");
    GOOD(r.sampler.order = DLP_ORDER_WEIGHTED, sampler.weights, ones);
    GOOD(r.sampler.order = DLP_ORDER_WEIGHTED, sampler.weights, huge);
    BAD(r.sampler.order = DLP_ORDER_WEIGHTED, sampler.weights, NULL, "sampler",
        "list.order.weights");
    BAD(r.sampler.order = DLP_ORDER_WEIGHTED, sampler.weights, zeros, "sampler",
        "list.order.weights");
    BAD((void)0, sampler.weights, ones, "sampler", "list.order.weights");
    huge[50] = 1;
    BAD(r.sampler.order = DLP_ORDER_WEIGHTED, sampler.weights, huge, "sampler",
        "list.order.weights");
    huge[50] = UINT64_MAX;
    BAD(r.sampler.order = DLP_ORDER_WEIGHTED, sampler.weights, huge, "sampler",
        "list.order.weights");
    GOOD(r.sampler.order = DLP_ORDER_FUNCTION, sampler.function, any_index);
    BAD(r.sampler.order = DLP_ORDER_FUNCTION, sampler.function, NULL, "sampler",
        "list.order.function");
    BAD((void)0, sampler.function, any_index, "sampler", "list.order.function");
    GOOD(r.sampler.order = DLP_ORDER_BATCHES, sampler.batches.next, any_next);
    BAD(r.sampler.order = DLP_ORDER_BATCHES, sampler.batches.next, NULL, "sampler",
        "list.order.batches.next");
    BAD((r.sampler.order = DLP_ORDER_BATCHES, r.sampler.batches.next = any_next),
        sampler.batches.save, any_save, "sampler", "list.order.batches.restore");
    GOOD(r.pipe.world_size = 5, pipe.rank, 4);
    BAD(r.pipe.world_size = 5, pipe.rank, 5, "", "rank");
    BAD((void)0, pipe.rank, 1, "", "rank");
    GOOD(r.pipe.allow_uneven = 1, pipe.world_size, 3);
    GOOD(r.pipe.allow_uneven = 1, pipe.world_size, UINT32_MAX);
}

static void plan__world_does_not_divide_batch__names_both(void) {
    rig r;
    dlp_pipe *p;
    rig_default(&r);
    r.pipe.world_size = 3;
    REFUSED(r, DLP_ERR_ARG, "", "world_size");
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    CHECK(dlp_pipe_start(p) == DLP_ERR_ARG);
    CHECK(strstr(dlp_pipe_error(p)->message, "batch_size 10") != NULL);
    CHECK(strstr(dlp_pipe_error(p)->message, "world_size 3") != NULL);
    dlp_pipe_close(p);
}

static void add__repeat_desc_out_of_range__names_field(void) {
    GOOD((void)0, pipe.epochs, DLP_FOREVER);
    GOOD((void)0, pipe.epochs, 0);
    GOOD((void)0, pipe.epochs, INT64_MAX);
    BAD((void)0, pipe.epochs, DLP_NONE, "", "epochs");
    BAD((void)0, pipe.epochs, DLP_FOREVER - 1, "", "epochs");
    BOUNDS((void)0, pipe.epoch_end, 0, 1, "", "epoch_end");
}

static void add__dataset_out_of_range__names_field(void) {
    GOOD((void)0, dataset.n_items, 1);
    GOOD((void)0, dataset.n_items, UINT64_C(1) << 48);
    BAD((void)0, dataset.n_items, 0, "fetch", "source.dataset.n_items");
    BAD((void)0, dataset.n_items, (UINT64_C(1) << 48) + 1, "fetch", "source.dataset.n_items");
    BAD((void)0, dataset.n_items, UINT64_MAX, "fetch", "source.dataset.n_items");
    BAD((void)0, dataset.n_fields, 0, "fetch", "source.dataset.n_fields");
    BAD((void)0, dataset.n_fields, DLP_MAX_FIELDS + 1, "fetch", "source.dataset.n_fields");
    BAD((void)0, dataset.fetch, NULL, "fetch", "fetch.fetch");
    BOUNDS((void)0, dataset.writes_all_bytes, 0u, 1u, "fetch", "fetch.writes_all_bytes");
}

static void add__dataset_missing__named(void) {
    dlp_pipe *p;
    dlp_error e;
    dlp_source fetch;
    dlp_dataset ds;
    memset(&fetch, 0, sizeof fetch);
    memset(&ds, 0, sizeof ds);
    for (int given = 0; given < 2; given++) {
        rig_table t = {.n = 0};
        table_list(&t, &(dlp_sampler_desc){.seed = 1});
        table_fetch(&t, &fetch, 0);
        CHECK(table_pipe(&t, &p, NULL, &e) == DLP_ERR_ARG);
        CHECK(error_is(&e, DLP_ERR_ARG, "fetch", given ? "source.dataset.fields" : "dataset"));
        CHECK(
            strstr(e.message, given ? "dataset.fields is NULL: give " : "dataset is NULL: give "));
        CHECK(dlp_nodes_plan(t.nodes, t.n, NULL, &(dlp_plan){.n_lines = 0}, NULL) == DLP_ERR_ARG);
        ds.n_items = ds.n_fields = 1;
        ds.fetch = rig_fetch;
        fetch.dataset = &ds;
    }
}

static void plan__field_out_of_range__names_it(void) {
    const int64_t most = INT64_C(1) << 46;
    BAD((void)0, fields[0].name, NULL, "fetch", "fields[].name");
    BAD((void)0, fields[0].name, "", "fetch", "fields[].name");
    GOOD((void)0, fields[0].name, "a-name-of-thirty-one-bytes-long");
    BAD((void)0, fields[0].name, "a-name-of-thirty-two-bytes-long.", "fetch", "fields[].name");
    BAD((r.dataset.n_fields = 2, r.fields[1] = r.fields[0]), fields[1].name, "index", "fetch",
        "fields[].name");
    GOOD((r.dataset.n_fields = 2, r.fields[1] = r.fields[0]), fields[1].name, "other");
    BAD((void)0, fields[0].dtype, 0, "fetch", "fields[].dtype");
    GOOD((void)0, fields[0].dtype, DLP_BOOL);
    BAD((void)0, fields[0].dtype, DLP_DTYPE(1, 0), "fetch", "fields[].dtype");
    BAD((void)0, fields[0].dtype, DLP_DTYPE(1, 128), "fetch", "fields[].dtype");
    BAD((void)0, fields[0].dtype, DLP_DTYPE(7, 8), "fetch", "fields[].dtype");
    BAD((void)0, fields[0].dtype, UINT32_MAX, "fetch", "fields[].dtype");
    GOOD(r.fields[0].shape[0] = 1, fields[0].ndim, 0);
    BAD((void)0, fields[0].ndim, 0, "fetch", "fields[].shape"); /* a shape, and nobody counts it */
    BAD((void)0, fields[0].ndim, -1, "fetch", "fields[].ndim");
    BAD((void)0, fields[0].ndim, DLP_MAX_DIMS, "fetch", "fields[].ndim");
    BAD((void)0, fields[0].shape[0], 0, "fetch", "fields[].shape");
    BAD((void)0, fields[0].shape[0], -1, "fetch", "fields[].shape");
    BAD((void)0, fields[0].shape[0], most + 1, "fetch", "fields[].shape");
    BAD((void)0, fields[0].shape[0], INT64_MAX, "fetch", "fields[].shape");
    BAD((r.fields[0].ndim = 2, r.fields[0].shape[0] = 1 << 24), fields[0].shape[1], 1 << 23,
        "fetch", "fields[].shape");
    GOOD((r.fields[0].dtype = DLP_U8, r.batch.batch_size = 1), fields[0].shape[0], most);
    BAD((r.fields[0].dtype = DLP_U8, r.batch.batch_size = 2), fields[0].shape[0], most, "fetch",
        "fields[].shape");
    BOUNDS((void)0, fields[0].ragged, 0, 1, "fetch", "fields[].ragged");
    BAD(r.fields[0].ndim = 0, fields[0].ragged, 1, "fetch", "fields[].ragged");
    BOUNDS(r.fields[0].ragged = 1, fields[0].max_per_batch, 0, most, "fetch",
           "fields[].max_per_batch");
}

/* Which field of several it is, and which dimension. */
static void plan__one_of_many_fields_is_wrong__message_tells_which(void) {
    static const struct {
        dlp_field f;
        const char *words;
    } cases[] = {
        {{.name = "label", .dtype = DLP_U8, .ndim = 3, .shape = {4, 5, 0}},
         "fields[1] \"label\": shape[2] is 0"},
        {{.name = "label", .dtype = DLP_U8, .ndim = 3, .shape = {1 << 30, 1 << 15, 8}},
         "shape[2] is 8, so an item"},
        {{.name = "label", .dtype = DLP_U8, .ndim = 9}, "fields[1] \"label\": ndim is 9"},
        {{.name = "label", .dtype = 5}, "fields[1] \"label\": dtype is 0x5"},
        {{.name = "label"}, "fields[1] \"label\": dtype is 0"},
        {{.name = "index", .dtype = DLP_U8}, "fields[1] \"index\": name is that of fields[0]"},
        {{.name = ""}, "fields[1] \"\": name has 0 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlp_field fields[2] = {{.name = "index", .dtype = DLP_U64}, cases[i].f};
        dlp_loader_desc d = {
            .dataset = {.n_items = 9, .fields = fields, .n_fields = 2, .fetch = rig_fetch},
            .batch_size = 3};
        dlp_pipe *p;
        dlp_error e;
        CHECK(dlp_loader_open(&p, &d, &e) == DLP_ERR_ARG);
        if (!CHECK(strstr(e.message, cases[i].words) != NULL)) printf("  %s\n", e.message);
    }
}

/* The same checks for each stage that has workers. */
#define WORKERS(setup, path, stage) \
    do { \
        static const int32_t cpus[3] = {0, 1023, 0}, past[2] = {0, 1024}, below[2] = {-1, 0}; \
        BAD(setup, path.placement, -1, stage, "placement"); \
        BAD(setup, path.placement, 2, stage, "placement"); \
        GOOD(setup, path.dispatch, DLP_DISPATCH_BATCHES); \
        BAD(setup, path.dispatch, -1, stage, "dispatch"); \
        BAD(setup, path.dispatch, 1, stage, "dispatch"); /* by lanes, which is gone */ \
        BAD(setup, path.dispatch, 3, stage, "dispatch"); \
        BAD(setup, path.on_error, -1, stage, "on_error"); \
        BAD(setup, path.on_error, 3, stage, "on_error"); \
        BOUNDS((setup, r.path.idempotent = 1), path.retries, 0, 100, stage, "retries"); \
        BOUNDS(setup, path.retry_backoff_ms, 0, 3600000, stage, "retry_backoff_ms"); \
        GOOD(setup, path.max_skips, DLP_NONE); \
        GOOD(setup, path.max_skips, INT64_MAX); \
        BAD(setup, path.max_skips, DLP_NONE - 1, stage, "max_skips"); \
        GOOD(setup, path.deadline_ms, INT32_MAX); \
        BAD(setup, path.deadline_ms, -1, stage, "deadline_ms"); \
        BOUNDS(setup, path.idempotent, 0, 1, stage, "idempotent"); \
        GOOD((setup, r.path.n_affinity = 3), path.affinity, cpus); \
        BAD((setup, r.path.n_affinity = 2), path.affinity, past, stage, "affinity"); \
        BAD((setup, r.path.n_affinity = 2), path.affinity, below, stage, "affinity"); \
        BAD(setup, path.n_affinity, 1, stage, "affinity"); \
        BAD((setup, r.path.affinity = cpus), path.n_affinity, -1, stage, "n_affinity"); \
        BAD((setup, r.path.affinity = cpus), path.n_affinity, 4097, stage, "n_affinity"); \
        GOOD(setup, path.stack_bytes, UINT32_MAX); \
        BAD(setup, path.stack_bytes, UINT64_C(1) << 32, stage, "stack_bytes"); \
    } while (0)

static void add__workers_desc_out_of_range__names_stage_and_field(void) {
    WORKERS((void)0, fetch.workers, "fetch");
    BOUNDS((void)0, fetch.workers.num_workers, DLP_NONE, DLP_MAX_WORKERS, "fetch", "num_workers");
    WORKERS(r.has_item_map = 1, item_map.workers, "map");
    BOUNDS(r.has_item_map = 1, item_map.workers.num_workers, DLP_NONE, DLP_MAX_WORKERS, "map",
           "num_workers");
    WORKERS(r.has_batch_map = 1, batch_map.workers, "map");
    BOUNDS(r.has_batch_map = 1, batch_map.workers.num_workers, DLP_NONE, DLP_MAX_WORKERS, "map",
           "num_workers");
    WORKERS((r.batch_by.name = "assemble", r.batch.collate = dlp_collate_pad), batch_by,
            "assemble");
    GOOD(r.batch.collate = dlp_collate_pad, batch_by.num_workers, 2);
    BAD((void)0, batch_by.num_workers, 1, "batch", "workers.num_workers");
    BAD(r.has_batch_map = 1, batch_map.workers.on_error, 1, "map", "on_error");
    BAD((void)0, batch_by.on_error, 2, "batch", "on_error");
    BAD(r.has_batch_map = 1, batch_map.workers.retries, 101, "map", "retries");
    GOOD((void)0, fetch.workers.on_error, DLP_ON_ERROR_DROP);
}

static void add__processes__unsupported(void) {
    rig r;
    rig_default(&r);
    r.fetch.workers.placement = DLP_PLACE_PROCESSES;
    r.fetch.workers.name = "readers";
    REFUSED(r, DLP_ERR_UNSUPPORTED, "readers", "placement");
}

/* What add takes is copied: the caller may write over it before the pipe starts. */
/* Numbers without a lower bound in their table are as wrong as -1, and told by the same words. */
static void open__far_below_zero__told_as_minus_one(void) {
    static const int32_t below[] = {-1, -40000, INT32_MIN};
    for (int what = 0; what < 2; what++) {
        dlp_error e[3];
        for (int i = 0; i < 3; i++) {
            rig r;
            dlp_pipe *p;
            dlp_loader_desc d = {.batch_size = 10, .num_workers = 1};
            rig_default(&r);
            d.dataset = r.dataset;
            d.dataset.fields = r.fields;
            if (what == 0) d.workers.workers_min = below[i];
            if (what == 1) d.fetcher = below[i];
            CHECK(dlp_loader_open(&p, &d, &e[i]) == DLP_ERR_ARG && strstr(e[i].message, "must"));
            CHECK(strstr(e[i].message, "(null)") == NULL);
            CHECK(strcmp(e[i].field, e[0].field) == 0 && strcmp(e[i].stage, e[0].stage) == 0);
        }
    }
}

static void add__affinity_overwritten_before_start__not_seen(void) {
    int32_t cpus[1] = {0};
    rig r;
    dlp_pipe *p;
    dlp_plan plan;
    rig_default(&r);
    r.fetch.workers.affinity = cpus;
    r.fetch.workers.n_affinity = 1;
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    cpus[0] = 5000;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void add__batch_desc_out_of_range__names_field(void) {
    static const dlp_field out = {"out", DLP_F32, 0, {0}, 0, 0};
    static const dlp_field bad = {"", DLP_F32, 0, {0}, 0, 0};
    GOOD((void)0, batch.batch_size, 1);
    GOOD((void)0, batch.batch_size, 1u << 20);
    BAD((void)0, batch.batch_size, 0, "batch", "batch_size");
    BAD((void)0, batch.batch_size, (1u << 20) + 1u, "batch", "batch_size");
    BAD((void)0, batch.batch_size, UINT32_MAX, "batch", "batch_size");
    BOUNDS((void)0, batch.last, DLP_LAST_PARTIAL, DLP_LAST_PAD, "batch", "last");
    BOUNDS(r.batch.collate = dlp_collate_pad, batch_by.num_workers, DLP_NONE, DLP_MAX_WORKERS,
           "batch", "workers.num_workers");
    GOOD((r.batch.out_fields = &out, r.batch.n_out_fields = 1), batch.collate, dlp_collate_pad);
    BAD((r.batch.out_fields = &out, r.batch.n_out_fields = 1), batch.collate, NULL, "batch",
        "out_fields");
    BAD((r.batch.out_fields = &out, r.batch.collate = dlp_collate_pad), batch.n_out_fields, 0,
        "batch", "n_out_fields");
    BAD((r.batch.out_fields = &out, r.batch.collate = dlp_collate_pad), batch.n_out_fields,
        DLP_MAX_FIELDS + 1, "batch", "n_out_fields");
    BAD(r.batch.collate = dlp_collate_pad, batch.n_out_fields, 1, "batch", "n_out_fields");
    BAD((r.batch.n_out_fields = 1, r.batch.collate = dlp_collate_pad), batch.out_fields, &bad,
        "batch", "fields[].name");
    GOOD(r.dataset.n_items = 9, batch.last, DLP_LAST_PAD);
    BAD(r.dataset.n_items = 9, batch.last, DLP_LAST_DROP, "batch", "last");
}

static void add__map_desc_wrong__named(void) {
    BAD(r.has_item_map = 1, item_map.map.item, NULL, "map", "map.item");
    BAD(r.has_item_map = 1, item_map.map.batch, rig_batch_map, "map", "map.batch");
}

static void add__transfer_desc_out_of_range__names_field(void) {
    BOUNDS((r.has_transfer = 1, r.pipe.max_held = 3), transfer.queue.capacity, 4, 64, "transfer",
           "queue.capacity");
    BOUNDS(r.has_transfer = 1, transfer.workers.num_workers, 0, 1, "transfer",
           "workers.num_workers");
    BAD(r.has_transfer = 1, pipe.max_held, 64, "transfer", "queue.capacity");
    for (int missing = 0; missing < 5; missing++) {
        dlp_device d = *dlp_device_host();
        rig r;
        if (missing == 0) d.alloc = NULL;
        if (missing == 1) d.free = NULL;
        if (missing == 2) d.copy = NULL;
        if (missing == 3) d.record = NULL;
        if (missing == 4) d.done = NULL;
        rig_default(&r);
        r.has_transfer = 1;
        r.transfer.transfer.device = &d;
        REFUSED(r, DLP_ERR_ARG, "transfer", "device");
    }
}

/* Sizes whose products would not fit 32 bits: planned as they are, and refused for the memory. */
static void plan__largest_of_everything__no_overflow(void) {
    for (uint32_t less = 0; less < 2; less++) {
        rig r;
        dlp_pipe *p;
        dlp_plan plan;
        uint64_t sum = 0;
        rig_default(&r);
        r.pipe.prefetch_factor = 4096;
        r.pipe.max_held = 256;
        r.pipe.trace_bytes = 64u << 20;
        r.dataset.n_items = UINT64_C(1) << 48;
        r.batch.batch_size = (1u << 20) - less;
        r.fields[0].dtype = DLP_U8;
        r.fields[0].shape[0] = INT64_C(1) << 26;
        r.fetch.workers.num_workers = 4;
        CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        for (uint32_t i = 0; i < plan.n_lines; i++) sum += plan.lines[i].bytes;
        CHECK(sum == plan.total_bytes);
        CHECK(plan.total_bytes / 4352 >= (uint64_t)r.batch.batch_size << 26);
        CHECK(dlp_pipe_start(p) == DLP_ERR_LIMIT || dlp_pipe_error(p)->code == DLP_ERR_MEMORY);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- graphs ---- */

enum { S = 1, F, I, B, M, T, O }; /* list, fetch, item map, batch, batch map, transfer, out */

static void graph_row(rig_table *t, rig *r, int kind) {
    r->dataset.fields = r->fields;
    r->fetch.dataset = &r->dataset;
    switch (kind) {
    case S: table_list(t, &r->sampler); break;
    case F: table_fetch(t, &r->fetch, 0); break;
    case I: table_row(t, r->item_map); break;
    case B: table_row(t, (dlp_node){.verb = DLP_BATCH, .batch = r->batch}); break;
    case M: table_row(t, r->batch_map); break;
    case T: table_row(t, r->transfer); break;
    default: table_row(t, (dlp_node){.verb = DLP_OUT});
    }
}

/* Rows of these kinds, in this order; what open says. */
static int graph_code(const int *kinds, int n, const char *stage) {
    seam_alive alive = seam_now();
    rig r;
    rig_table t = {.n = 0};
    dlp_pipe *p = NULL;
    dlp_plan plan;
    dlp_error e;
    int rc;
    rig_default(&r);
    for (int i = 0; i < n; i++) graph_row(&t, &r, kinds[i]);
    CHECK(t.n == (uint32_t)n);
    rc = dlp_pipe_open(&p, t.nodes, t.n, &r.pipe, &e);
    CHECK(dlp_nodes_plan(t.nodes, t.n, &r.pipe, &plan, NULL) == rc);
    CHECK((p != NULL) == (rc == DLP_OK));
    if (rc != DLP_OK) {
        CHECK(e.code == rc && e.message[0] != 0);
        if (!CHECK(strcmp(e.stage, stage) == 0)) printf("  stage \"%s\": %s\n", e.stage, e.message);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(seam_same(alive));
    return rc;
}

#define GRAPH(code, stage, kinds) \
    if (!CHECK(graph_code(kinds, (int)(sizeof kinds / sizeof *kinds), stage) == (code))) \
    printf("  at line %d\n", __LINE__)

static void open__rows_in_another_order__says_where(void) {
    static const int plain[] = {S, F, B}, all[] = {S, F, I, I, B, M, M, T, O},
                     ended[] = {S, F, B, O}, mapped[] = {S, F, I, B};
    static const int no_list[] = {F, B}, no_fetch[] = {S, B}, no_batch[] = {S, F};
    static const int two_lists[] = {S, S, F, B}, two_fetches[] = {S, F, F, B},
                     two_batches[] = {S, F, B, B};
    static const int map_early[] = {S, I, F, B}, batch_map_early[] = {S, F, M, B},
                     item_map_late[] = {S, F, B, I};
    static const int transfer_early[] = {S, F, T, B}, two_transfers[] = {S, F, B, T, T};
    static const int fetch_first[] = {F, S, B};
    GRAPH(DLP_OK, "", plain);
    GRAPH(DLP_OK, "", ended);
    GRAPH(DLP_OK, "", mapped);
    GRAPH(DLP_OK, "", all);
    GRAPH(DLP_ERR_GRAPH, "fetch", no_list);
    GRAPH(DLP_ERR_ARG, "sampler", no_fetch); /* nobody says how many items */
    GRAPH(DLP_ERR_GRAPH, "", no_batch);
    GRAPH(DLP_ERR_GRAPH, "sampler-1", two_lists);
    GRAPH(DLP_ERR_ARG, "join", two_fetches); /* both write the same field */
    GRAPH(DLP_ERR_GRAPH, "batch-3", two_batches);
    GRAPH(DLP_ERR_ARG, "sampler", map_early);
    GRAPH(DLP_ERR_ARG, "map", batch_map_early);
    GRAPH(DLP_ERR_ARG, "map", item_map_late);
    GRAPH(DLP_ERR_GRAPH, "batch", transfer_early);
    GRAPH(DLP_ERR_GRAPH, "transfer-4", two_transfers);
    GRAPH(DLP_ERR_GRAPH, "fetch", fetch_first);
}

static void plan__one_row_more__more_memory(void) {
    rig r;
    rig_table t = {.n = 0};
    dlp_pipe *p;
    dlp_plan before, after;
    static const int kinds[] = {S, F, B};
    rig_default(&r);
    for (int i = 0; i < 3; i++) graph_row(&t, &r, kinds[i]);
    CHECK(dlp_nodes_plan(t.nodes, t.n, &r.pipe, &before, NULL) == DLP_OK);
    graph_row(&t, &r, T);
    CHECK(dlp_nodes_plan(t.nodes, t.n, &r.pipe, &after, NULL) == DLP_OK);
    CHECK(after.total_bytes > before.total_bytes);
    CHECK(table_pipe(&t, &p, &r.pipe, NULL) == DLP_OK);
    CHECK(dlp_pipe_plan(p, &before) == DLP_OK && before.total_bytes == after.total_bytes);
    CHECK(dlp_pipe_start(p) == DLP_OK);
    CHECK(dlp_pipe_plan(p, &after) == DLP_OK && before.total_bytes == after.total_bytes);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static const int most_rows[] = {S, F, I, I, I, I, I, B, M, M, M, M, M, M, T};

/* Row i of the most stages comes twice; 15 rows are 16 stages, as a list is two. */
static void open__too_many_stages__refused(void) {
    for (int twice = 2; twice <= 13; twice++) {
        rig r;
        rig_table t = {.n = 0};
        dlp_pipe *p;
        dlp_error e;
        if (most_rows[twice] == B) continue;
        rig_default(&r);
        for (int i = 0; i < DLP_MAX_STAGES - 1; i++) {
            graph_row(&t, &r, most_rows[i]);
            if (i == twice) graph_row(&t, &r, most_rows[i]);
        }
        CHECK(table_pipe(&t, &p, NULL, &e) == DLP_ERR_GRAPH);
        CHECK(error_is(&e, DLP_ERR_GRAPH, "transfer", "") &&
              strstr(e.message, "at most 16 stages"));
    }
}

static void open__most_stages__taken(void) {
    rig r;
    rig_table t = {.n = 0};
    dlp_pipe *p;
    uint64_t batches;
    rig_default(&r);
    for (int i = 0; i < DLP_MAX_STAGES - 1; i++) graph_row(&t, &r, most_rows[i]);
    CHECK(table_pipe(&t, &p, NULL, NULL) == DLP_OK);
    CHECK(dlp_pipe_start(p) == DLP_OK);
    CHECK(rig_drain(p, &batches) == DLP_END && batches == 10);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- byte limits ---- */

static uint64_t planned(rig *r) {
    dlp_pipe *p;
    dlp_plan plan;
    memset(&plan, 0, sizeof plan);
    CHECK(rig_wire(r, &p, NULL) == DLP_OK);
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return plan.total_bytes;
}

static int limit_code(rig *r, const char *field, uint64_t bytes) {
    char sum[32];
    dlp_pipe *p;
    int rc;
    snprintf(sum, sizeof sum, "%" PRIu64, bytes);
    CHECK(rig_wire(r, &p, NULL) == DLP_OK);
    rc = dlp_pipe_start(p);
    if (rc != DLP_OK) {
        CHECK(error_is(dlp_pipe_error(p), DLP_ERR_LIMIT, "", field));
        CHECK(strstr(dlp_pipe_error(p)->message, sum) != NULL);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

static void start__byte_limit__exact_fits_and_less_shows_sum(void) {
    rig r;
    uint64_t bytes;
    seam_alive alive = seam_now();
    rig_default(&r);
    bytes = planned(&r);
    r.pipe.limit_bytes = bytes;
    CHECK(limit_code(&r, "limit_bytes", bytes) == DLP_OK);
    r.pipe.limit_bytes = bytes - 1;
    CHECK(limit_code(&r, "limit_bytes", bytes) == DLP_ERR_LIMIT);
    r.pipe.limit_bytes = 1;
    CHECK(limit_code(&r, "limit_bytes", bytes) == DLP_ERR_LIMIT);
    CHECK(seam_same(alive));
}

static void start__budget_of_several_pipes__shared_and_given_back(void) {
    rig r;
    uint64_t bytes;
    dlp_budget budget;
    dlp_pipe *p[3];
    memset(&budget, 0, sizeof budget);
    rig_default(&r);
    bytes = planned(&r);
    budget.limit_bytes = 2 * bytes;
    r.pipe.budget = &budget;
    CHECK(rig_start(&r, &p[0]) == DLP_OK && budget.used_bytes == bytes);
    CHECK(rig_start(&r, &p[1]) == DLP_OK && budget.used_bytes == 2 * bytes);
    CHECK(limit_code(&r, "budget", bytes) == DLP_ERR_LIMIT);
    CHECK(budget.used_bytes == 2 * bytes);
    CHECK(dlp_pipe_close(p[0]) == DLP_OK && budget.used_bytes == bytes);
    CHECK(rig_start(&r, &p[2]) == DLP_OK && budget.used_bytes == 2 * bytes);
    CHECK(dlp_pipe_close(p[1]) == DLP_OK && dlp_pipe_close(p[2]) == DLP_OK);
    CHECK(budget.used_bytes == 0);
    budget.limit_bytes = bytes - 1;
    CHECK(limit_code(&r, "budget", bytes) == DLP_ERR_LIMIT && budget.used_bytes == 0);
    budget.limit_bytes = bytes;
    CHECK(limit_code(&r, "budget", bytes) == DLP_OK && budget.used_bytes == 0);
}

/* ---- calls at the wrong time, and with nothing ---- */

static void call__null__refused(void) {
    dlp_error e;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    dlp_state s;
    dlp_plan plan;
    dlp_stats stats;
    dlp_worker_stats ws;
    rig r;
    rig_default(&r);
    CHECK(dlp_pipe_open(NULL, &(dlp_node){.verb = DLP_LIST}, 1, NULL, &e) == DLP_ERR_ARG &&
          error_is(&e, DLP_ERR_ARG, "", "out"));
    CHECK(dlp_loader_open(NULL, NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_loader_open(&p, NULL, &e) == DLP_ERR_ARG && error_is(&e, DLP_ERR_ARG, "", "desc") &&
          p == NULL);
    CHECK(dlp_pipe_plan(NULL, &plan) == DLP_ERR_ARG);
    CHECK(dlp_plan_format(NULL, NULL, 0) == DLP_ERR_ARG);
    CHECK(dlp_pipe_start(NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_next(NULL, &b) == DLP_ERR_ARG);
    CHECK(dlp_pipe_next_timeout(NULL, &b, 0) == DLP_ERR_ARG);
    CHECK(dlp_pipe_release(NULL, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_next_epoch(NULL) == DLP_ERR_ARG);
    dlp_pipe_stop(NULL);
    CHECK(dlp_pipe_close(NULL) == DLP_OK);
    CHECK(error_is(dlp_pipe_error(NULL), DLP_ERR_ARG, "", "pipe"));
    CHECK(dlp_pipe_warning(NULL, 0) == NULL);
    CHECK(dlp_pipe_state(NULL, NULL, &s) == DLP_ERR_ARG);
    CHECK(dlp_pipe_batches_per_epoch(NULL) == -1);
    CHECK(dlp_pipe_stats(NULL, &stats) == DLP_ERR_ARG);
    CHECK(dlp_pipe_worker_stats(NULL, 0, &ws) == DLP_ERR_ARG);
    CHECK(dlp_pipe_skips(NULL, NULL, 0, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_explain(NULL, NULL, 0) == DLP_ERR_ARG);
    CHECK(dlp_stats_explain(NULL, NULL, 0) == DLP_ERR_ARG);
    CHECK(dlp_pipe_trace_lanes(NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_trace(NULL, 0, NULL, 0, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_write_trace(NULL, "/dev/null", NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_write_timeline(NULL, "/dev/null", NULL) == DLP_ERR_ARG);
}

static void call__before_start__state(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b = NULL, stray;
    dlp_state s;
    dlp_stats stats;
    dlp_worker_stats ws;
    rig_default(&r);
    memset(&stray, 0, sizeof stray);
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 0) == DLP_ERR_STATE && b == NULL);
    CHECK(dlp_pipe_release(p, &stray) < 0);
    CHECK(dlp_pipe_next_epoch(p) == DLP_ERR_STATE);
    CHECK(dlp_pipe_state(p, NULL, &s) == DLP_ERR_STATE);
    CHECK(dlp_pipe_stats(p, &stats) == DLP_ERR_STATE);
    CHECK(dlp_pipe_worker_stats(p, 0, &ws) == DLP_ERR_STATE);
    CHECK(dlp_pipe_skips(p, NULL, 0, NULL) == DLP_ERR_STATE);
    CHECK(dlp_pipe_explain(p, NULL, 0) == DLP_ERR_STATE);
    CHECK(dlp_pipe_trace_lanes(p) == DLP_ERR_STATE);
    CHECK(dlp_pipe_batches_per_epoch(p) == -1);
    dlp_error err = {0};
    CHECK(dlp_pipe_write_trace(p, "/dev/null", &err) == DLP_ERR_STATE);
    CHECK(err.code == DLP_ERR_STATE && strcmp(err.message, "the pipe has not started") == 0);
    CHECK(dlp_pipe_start(p) == DLP_OK); /* none of that did harm */
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void call__after_start__state(void) {
    rig r;
    dlp_pipe *p;
    dlp_worker_stats ws;
    uint64_t batches;
    rig_default(&r);
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(dlp_pipe_start(p) == DLP_ERR_STATE);
    CHECK(dlp_pipe_next(p, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_next_timeout(p, NULL, 0) == DLP_ERR_ARG);
    CHECK(dlp_pipe_worker_stats(p, 1, &ws) == DLP_ERR_ARG);
    CHECK(dlp_pipe_trace(p, -1, NULL, 0, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_trace(p, 2, NULL, 0, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_trace(p, 0, NULL, 1, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_skips(p, NULL, -1, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_error(p)->code == 0); /* a call refused does not harm a pipe that runs */
    CHECK(rig_drain(p, &batches) == DLP_END && batches == 10);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void release__foreign_or_released_batch__refused(void) {
    rig r;
    dlp_pipe *p = NULL, *other = NULL;
    dlp_batch *b = NULL, *foreign = NULL, copy;
    dlp_state s, was;
    rig_default(&r);
    r.pipe.max_held = 2;
    memset(&s, INTACT, sizeof s);
    was = s;
    CHECK(rig_start(&r, &p) == DLP_OK && rig_start(&r, &other) == DLP_OK);
    CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_next(other, &foreign) == DLP_OK);
    copy = *b;
    CHECK(dlp_pipe_release(p, foreign) == DLP_ERR_ARG);
    CHECK(dlp_pipe_state(p, foreign, &s) == DLP_ERR_ARG && memcmp(&s, &was, sizeof s) == 0);
    CHECK(dlp_pipe_release(p, &copy) == DLP_ERR_ARG);
    copy.internal = (void *)UINTPTR_MAX;
    CHECK(dlp_pipe_release(p, &copy) == DLP_ERR_ARG);
    CHECK(dlp_pipe_release(p, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_release(p, b) == DLP_ERR_ARG);
    CHECK(dlp_pipe_state(p, b, &s) == DLP_ERR_ARG && memcmp(&s, &was, sizeof s) == 0);
    CHECK(dlp_pipe_release(other, foreign) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_pipe_close(other) == DLP_OK);
}

static void next__max_held_batches_held__says_so_at_once(void) {
    for (int held = 1; held <= 3; held++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b[3], *more;
        uint64_t best = UINT64_MAX;
        rig_default(&r);
        r.pipe.max_held = held;
        r.fetch.workers.num_workers = 2;
        CHECK(rig_start(&r, &p) == DLP_OK);
        for (int i = 0; i < held; i++) CHECK(dlp_pipe_next(p, &b[i]) == DLP_OK);
        memset(&more, INTACT, sizeof more);
        for (int tries = 0; tries < 5 && best >= 100; tries++) {
            uint64_t from = now_ms();
            CHECK(dlp_pipe_next(p, &more) == DLP_ERR_HELD);
            if (now_ms() - from < best) best = now_ms() - from;
        }
        CHECK(best < 100);
        CHECK(is_intact(&more, sizeof more));
        CHECK(dlp_pipe_release(p, b[0]) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b[0], 20000) == DLP_OK); /* not an error that stays */
        CHECK(dlp_pipe_close(p) == DLP_OK);
        for (int i = 0; i < held; i++) CHECK(dlp_pipe_release(p, b[i]) == DLP_OK);
    }
}

static void next__after_stop__stopped(void) {
    for (int workers = 0; workers < 3; workers++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b, *more;
        rig_default(&r);
        r.pipe.max_held = 2;
        r.fetch.workers.num_workers = workers;
        CHECK(rig_start(&r, &p) == DLP_OK);
        CHECK(dlp_pipe_next(p, &b) == DLP_OK);
        dlp_pipe_stop(p);
        dlp_pipe_stop(p);
        memset(&more, INTACT, sizeof more);
        CHECK(dlp_pipe_next(p, &more) == DLP_STOPPED && is_intact(&more, sizeof more));
        CHECK(dlp_pipe_next_timeout(p, &more, 0) == DLP_STOPPED && is_intact(&more, sizeof more));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void loader__bad_desc__names_field_and_leaves_out(void) {
    for (int what = 0; what < 6; what++) {
        static const char *const fields[] = {"batch_size", "num_workers", "fetch.fetch",
                                             "max_held",   "shuffle",     "drop_last"};
        seam_alive alive = seam_now();
        rig r;
        dlp_loader_desc d;
        dlp_pipe *p;
        dlp_error e;
        rig_default(&r);
        memset(&d, 0, sizeof d);
        memset(&p, INTACT, sizeof p);
        d.dataset = r.dataset;
        d.dataset.fields = r.fields;
        d.batch_size = what == 0 ? 0 : 10;
        d.num_workers = what == 1 ? -2 : 0;
        d.dataset.fetch = what == 2 ? NULL : rig_fetch;
        d.pipe.max_held = what == 3 ? 257 : 0;
        d.shuffle = what == 4 ? 2 : 0;
        d.drop_last = what == 5 ? -2 : 0;
        CHECK(dlp_loader_open(&p, &d, &e) == DLP_ERR_ARG);
        if (!CHECK(strcmp(e.field, fields[what]) == 0))
            printf("  %s, not %s\n", e.field, fields[what]);
        CHECK(e.message[0] != 0 && is_intact(&p, sizeof p));
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_ERR_ARG);
        CHECK(seam_same(alive));
    }
}

/* The workers have their number in one place, and the last batch has one field. */
static void loader__workers_said_elsewhere__refused(void) {
    static const int cases[][4] = {{2, 0, 0, 1},           {2, 2, 0, 0}, {0, 2, 0, 0},
                                   {3, 2, 0, 0},           {1, 2, 0, 0}, {1, 0, DLP_LAST_DROP, 1},
                                   {1, 0, DLP_LAST_PAD, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlp_field field = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {2}};
        dlp_loader_desc d = {
            .dataset = {.n_items = 20, .fields = &field, .n_fields = 1, .fetch = rig_fetch},
            .batch_size = 5,
            .num_workers = cases[i][0],
            .workers = {.num_workers = cases[i][1]},
            .drop_last = cases[i][2]};
        dlp_pipe *p = NULL;
        dlp_error e = {0};
        CHECK(dlp_loader_open(&p, &d, &e) == (cases[i][3] ? DLP_OK : DLP_ERR_ARG));
        CHECK(cases[i][3] || strcmp(e.field, "workers.num_workers") == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void loader__order_or_seed_said_twice__refused(void) {
    static const struct {
        int shuffle, order;
        uint64_t seed, again;
        const char *field; /* NULL: taken */
    } cases[] = {{1, 0, 0, 0, NULL},
                 {0, DLP_ORDER_SHUFFLED, 7, 7, NULL},
                 {0, DLP_ORDER_REPLACEMENT, 0, 7, NULL},
                 {1, DLP_ORDER_REPLACEMENT, 0, 0, "list.shuffle"},
                 {1, 0, 7, 8, "list.order.seed"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlp_field field = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {2}};
        dlp_loader_desc d = {
            .dataset = {.n_items = 20, .fields = &field, .n_fields = 1, .fetch = rig_fetch},
            .batch_size = 5,
            .shuffle = cases[i].shuffle,
            .seed = cases[i].seed,
            .sampler = {.order = cases[i].order, .seed = cases[i].again}};
        dlp_pipe *p = NULL;
        dlp_error e = {0};
        CHECK(dlp_loader_open(&p, &d, &e) == (cases[i].field ? DLP_ERR_ARG : DLP_OK));
        if (cases[i].field) CHECK(strcmp(e.field, cases[i].field) == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void loader__epochs_seed_or_dataset_said_twice__refused(void) {
    for (int what = 0; what < 6; what++) {
        dlp_field field = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {2}};
        dlp_dataset same = {.n_items = 20, .fields = &field, .n_fields = 1, .fetch = rig_fetch};
        const dlp_source of = {.dataset = &same};
        dlp_loader_desc d = {.dataset = same,
                             .batch_size = 5,
                             .epochs = 2,
                             .pipe = {.epochs = what == 0 ? 2 : 0, .seed = what == 1 ? 6 : 0}};
        const char *fields[] = {"pipe.epochs", "pipe.seed", "dataset.n_items"};
        const char *names[] = {"0: epochs says it", "0: seed says it", "source says it"};
        dlp_pipe *p = NULL;
        dlp_error e = {0};
        if (what >= 2 && what <= 4) d.source = &of;
        if (what == 3 || what == 4) memset(&d.dataset, 0, sizeof d.dataset);
        if (what == 4) d.in_flight = 1;
        if (what == 5) d.epochs = 0;
        CHECK(dlp_loader_open(&p, &d, &e) == (what < 3 ? DLP_ERR_ARG : DLP_OK));
        if (what < 3)
            CHECK(strcmp(e.field, fields[what]) == 0 && strstr(e.message, names[what]) != NULL);
        else
            CHECK(dlp_pipe_batches_per_epoch(p) == 4);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Floats that are written into a field without a dtype are four times too many bytes. */
static void loader__field_without_dtype__refused(void) {
    for (int named = 0; named < 2; named++) {
        dlp_field field = {.name = "x", .dtype = named ? DLP_U8 : 0, .ndim = 1, .shape = {32}};
        dlp_loader_desc d = {
            .dataset = {.n_items = 20, .fields = &field, .n_fields = 1, .fetch = rig_fetch},
            .batch_size = 5};
        dlp_pipe *p = NULL;
        dlp_error e;
        CHECK(dlp_loader_open(&p, &d, &e) == (named ? DLP_OK : DLP_ERR_ARG));
        if (!named) CHECK(strcmp(e.field, "fields[].dtype") == 0 && strstr(e.message, "DLP_U8"));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* A name of 31 bytes is taken, and a longer one is refused, as in a table. */
static void loader__row_with_a_long_name__refused(void) {
    static const char name[] = "a_name_that_is_as_long_as_it_is";
    static const char longer[] = "a_name_that_is_as_long_as_it_is_";
    for (int k = 0; k < 2; k++) {
        dlp_field field = {.name = "x", .dtype = DLP_U64, .ndim = 1, .shape = {2}};
        const dlp_node row = {
            .name = k == 0 ? name : longer,
            .verb = DLP_FETCH,
            .fetch = {.fetch = rig_fetch,
                      .fields =
                          &(dlp_field){.name = "y", .dtype = DLP_U64, .ndim = 1, .shape = {2}},
                      .n_fields = 1}};
        dlp_loader_desc d = {
            .dataset = {.n_items = 20, .fields = &field, .n_fields = 1, .fetch = rig_fetch},
            .rows = &row,
            .n_rows = 1,
            .batch_size = 5};
        dlp_pipe *p = NULL;
        dlp_error e = {0};
        CHECK(dlp_loader_open(&p, &d, &e) == (k == 0 ? DLP_OK : DLP_ERR_ARG));
        CHECK(k == 0 || (strcmp(e.field, "name") == 0 && strstr(e.message, "a name of 32 bytes")));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int any_item(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}

/* A row that sets the member of another verb; a table that is a pointer, of which DLP_NODES makes 0
   rows. A loader has no rows. */
static void open__wrong_member_of_a_row__names_the_right_one(void) {
    const dlp_field x = {.name = "x", .dtype = DLP_F32};
    const dlp_node list = {.name = "items", .verb = DLP_LIST, .list = {.n_items = 9}};
    const dlp_node read = {.name = "read",
                           .verb = DLP_FETCH,
                           .fetch = {.fetch = any_item, .fields = &x, .n_fields = 1}};
    const dlp_node batch = {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 3}};
    const dlp_node wrong[][3] = {
        {{.name = "items", .verb = DLP_LIST, .fetch = read.fetch}, read, batch},
        {list, {.name = "read", .verb = DLP_FETCH, .list = list.list}, batch},
        {list, {.name = "read", .verb = DLP_FETCH, .map = {.item = any_item}}, batch},
        {list, read, {.name = "batch", .verb = DLP_BATCH, .fetch = read.fetch}},
        {list,
         read,
         {.name = "b",
          .verb = DLP_BATCH,
          .batch = {.batch_size = 3},
          .workers = {.num_workers = 2}}}};
    static const char *const words[] = {
        "; the verb of \"items\" reads .list", "; the verb of \"read\" reads .fetch",
        "; the verb of \"read\" reads .fetch", "; the verb of \"batch\" reads .batch",
        "num_workers is 2, but \"b\" has no collate, so its workers have nothing to do"};
    const dlp_node good[] = {list, read, batch}, *pointer = good;
    const dlp_loader_desc none = {.batch_size = 0, .dataset = {.n_items = 9}};
    dlp_pipe *p = NULL;
    dlp_error e;
    for (int i = 0; i < 5; i++) {
        CHECK(dlp_pipe_open(&p, DLP_NODES(wrong[i]), NULL, &e) == DLP_ERR_ARG && p == NULL);
        CHECK(strstr(e.message, words[i]) != NULL);
    }
    CHECK(dlp_pipe_open(&p, pointer, 0, NULL, &e) == DLP_ERR_ARG);
    CHECK(strstr(e.message, "DLP_NODES wants an array, not a pointer") != NULL);
    CHECK(dlp_pipe_open(&p, pointer, DLP_MAX_NODES + 1, NULL, &e) == DLP_ERR_ARG &&
          !strstr(e.message, "array"));
    CHECK(dlp_loader_open(&p, &none, &e) == DLP_ERR_ARG && !strstr(e.message, "the verb"));
    CHECK(dlp_pipe_open(&p, DLP_NODES(good), NULL, &e) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    loader__workers_said_elsewhere__refused();
    loader__order_or_seed_said_twice__refused();
    loader__epochs_seed_or_dataset_said_twice__refused();
    loader__field_without_dtype__refused();
    loader__row_with_a_long_name__refused();
    rig_warm();
    open__pipe_desc_out_of_range__names_field();
    plan__sampler_desc_out_of_range__names_field();
    plan__world_does_not_divide_batch__names_both();
    add__repeat_desc_out_of_range__names_field();
    add__dataset_out_of_range__names_field();
    add__dataset_missing__named();
    plan__field_out_of_range__names_it();
    plan__one_of_many_fields_is_wrong__message_tells_which();
    add__workers_desc_out_of_range__names_stage_and_field();
    add__processes__unsupported();
    open__far_below_zero__told_as_minus_one();
    add__affinity_overwritten_before_start__not_seen();
    add__batch_desc_out_of_range__names_field();
    add__map_desc_wrong__named();
    add__transfer_desc_out_of_range__names_field();
    plan__largest_of_everything__no_overflow();
    open__rows_in_another_order__says_where();
    plan__one_row_more__more_memory();
    open__too_many_stages__refused();
    open__most_stages__taken();
    start__byte_limit__exact_fits_and_less_shows_sum();
    start__budget_of_several_pipes__shared_and_given_back();
    call__null__refused();
    call__before_start__state();
    call__after_start__state();
    release__foreign_or_released_batch__refused();
    next__max_held_batches_held__says_so_at_once();
    next__after_stop__stopped();
    loader__bad_desc__names_field_and_leaves_out();
    open__wrong_member_of_a_row__names_the_right_one();
    return test_end("pipe_badinput");
}
