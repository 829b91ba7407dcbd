/* needs: parts split guard join scratch pack pictures */
/* Every call that >>threads lets any thread make, made by other threads while pipes of every make
   run, seek, leave epochs, are tuned and are stopped. It is for the thread sanitizer, which sees
   what is read while another thread writes it; alone it checks that what is read makes sense. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../rig/pipe_rig.h"

enum { ITEMS = 600, ROWS = 10, LOOKERS = 2 };

enum {
    INLINE,
    ECONOMIC,
    IN_TURN,
    CLASSIC,
    CONCURRENT,
    ASYNC,
    COLLATE,
    UNORDERED,
    CACHE,
    TUNED,
    STREAM,
    MAPS,
    SAMPLER_THREAD,
    BATCH_SAMPLER,
    TRANSFER,
    TRANSFER_THREAD,
    PARTS,
    PARTS_COLLATE,
    UNCOUNTED,
    EXPAND,
    FILTER,
    PACK,
    GUARD,
    SCRATCH,
    JOIN,
    CHUNKS,
    CHUNKS_ROWS,
    CHUNKS_STAY,
    CHUNKS_DEVICE,
    CHUNKS_DEVICE_INLINE,
    CHUNKS_STAY_DEVICE,
    KINDS
};
static const char *const kind_names[KINDS] = {"inline",
                                              "economic",
                                              "in turn",
                                              "classic",
                                              "concurrent",
                                              "async",
                                              "collate",
                                              "unordered",
                                              "cache",
                                              "tuned",
                                              "stream",
                                              "maps",
                                              "sampler thread",
                                              "batch sampler",
                                              "transfer",
                                              "transfer thread",
                                              "parts",
                                              "parts, collate",
                                              "parts, counted on load",
                                              "expand",
                                              "filter",
                                              "pack",
                                              "guard",
                                              "scratch",
                                              "join",
                                              "chunks",
                                              "chunks, rows shuffled",
                                              "chunks that stay",
                                              "chunks, device",
                                              "chunks, device inline",
                                              "chunks that stay, device"};

static const dlp_field one_field[1] = {{"word", DLP_U64, 1, {4}, 0, 0}};

/* ---- sources: some items fail for good, some once ---- */

static int item_fails(const dlp_item *it) {
    if (it->index % 97 == 5) return dlp_fail(it->call, 5, "item %d is bad", (int)it->index);
    if (it->index % 31 == 7 && it->attempt == 0) return dlp_fail(it->call, 11, "not yet");
    return 0;
}

static int any_fetch(void *user, dlp_item *it) {
    (void)user;
    if (it->index % 16 == 0) test_pause(20000);
    memcpy(it->data[0], &it->index, sizeof it->index);
    return item_fails(it);
}

static int stream_fetch(void *user, dlp_item *it) {
    return it->index >= ITEMS ? DLP_END : any_fetch(user, it);
}

static int any_part(void *user, dlp_part *part) {
    (void)user;
    part->bytes = 8;
    memcpy(part->data, &part->index, 8);
    return part->index == 3 ? dlp_fail(part->call, 5, "part 3 is bad") : 0;
}

/* So that their numbers are known when they are loaded. */
static int uncounted_part(void *user, dlp_part *part) {
    part->items = 40 + part->index;
    return any_part(user, part);
}

static int any_expand(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t i = x->item->index % 3; i < 3; i++) {
        dlp_item *it = dlp_expand_add(x);
        memcpy(it->data[0], &x->item->index, sizeof x->item->index);
    }
    return 0;
}

static int any_filter(void *user, dlp_item *it) {
    int rc = any_fetch(user, it);
    return rc == 0 && it->index % 5 == 0 ? DLP_SKIP : rc;
}

static int any_document(void *user, dlp_item *it) {
    it->length[0] = it->index % 40;
    memset(it->data[0], 1, (size_t)it->length[0] * 4);
    (void)user;
    return item_fails(it);
}

static int any_chunk(void *user, dlp_chunk *c) {
    (void)user;
    test_pause(50000);
    memset(c->data[0], 1, (size_t)c->count * 32);
    return 0;
}

static int any_map(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)state;
    ((uint64_t *)b->fields[0].data)[0]++;
    return 0;
}

typedef struct held {
    dlp_item *item[8];
    int n;
} held;
static int held_init(void *user, int worker, void **state) {
    held *h = calloc(1, sizeof *h);
    (void)user;
    (void)worker;
    *state = h;
    return h == NULL;
}
static void held_exit(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    free(state);
}
static int held_submit(void *user, void *state, dlp_item *it) {
    held *h = state;
    (void)user;
    if (h->n == 8) return DLP_FULL;
    h->item[h->n++] = it;
    return 0;
}
static int held_reap(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    held *h = state;
    int n = 0;
    (void)ms;
    for (; n < max && h->n > 0; n++) {
        done[n] = h->item[--h->n];
        code[n] = any_fetch(user, done[n]);
    }
    return n;
}

static int64_t list_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    uint64_t *at = user;
    (void)epoch;
    if (*at >= ITEMS) return (int64_t)(*at = 0);
    for (uint64_t i = 0; i < max; i++) index[i] = (*at)++;
    return (int64_t)max;
}

/* ---- pipes ---- */

static int any_chunks(int kind, dlp_pipe **p, dlp_error *e) {
    dlp_chunks_desc d = {.n_items = ITEMS,
                         .fields = one_field,
                         .n_fields = 1,
                         .chunk_rows = 50,
                         .batch_size = ROWS,
                         .load = any_chunk,
                         .shuffle_chunks = 1,
                         .epochs = 4,
                         .workers = {.num_workers = 3},
                         .pipe = {.max_held = 2}};
    if (kind >= CHUNKS_DEVICE) d.device = dlp_device_host();
    d.shuffle_rows = kind == CHUNKS_ROWS || kind == CHUNKS_DEVICE;
    if (kind == CHUNKS_STAY) d.preload = DLP_PRELOAD_CPU;
    if (kind == CHUNKS_STAY_DEVICE) d.preload = DLP_PRELOAD_DEVICE;
    if (kind == CHUNKS_DEVICE_INLINE) d.transfer_inline = 1;
    return dlp_chunks_open(p, &d, e);
}

static int any_maps(dlp_pipe **p) {
    rig r;
    rig_init(&r, ITEMS, ROWS);
    rig_workers(&r, 2, DLP_DISPATCH_BATCHES);
    r.dataset.fields = one_field;
    r.dataset.n_fields = 1;
    r.dataset.fetch = any_fetch;
    r.fetch.on_error = DLP_ON_ERROR_REPLACE;
    r.item_map[0].map.item = any_fetch; /* writes the index again; some fail */
    r.item_map[0].workers.on_error = DLP_ON_ERROR_DROP;
    r.batch_map[0].map.batch = any_map;
    r.n_item_maps = r.n_batch_maps = 1;
    r.pipe.epochs = 4;
    return rig_try(&r, p, NULL);
}

/* Stages that a loader has no desc for. */
static int any_wired(int kind, dlp_pipe **p, dlp_error *e) {
    static const dlp_field document[1] = {{"tokens", DLP_I32, 1, {40}, 1, 0}},
                           other[1] = {{"other", DLP_U64, 0, {0}, 0, 0}};
    const dlp_workers_desc drops = {.num_workers = 2, .on_error = DLP_ON_ERROR_DROP, .retries = 1};
    const dlp_pipe_desc desc = {
        .max_held = 2, .trace_bytes = 512, .epochs = 4, .streams = kind == EXPAND ? 2 : 0};
    const int makes = kind == EXPAND || kind == FILTER || kind == PACK;
    dlp_dataset ds = {.n_items = ITEMS, .fields = one_field, .n_fields = 1, .fetch = any_fetch};
    dlp_dataset more = {.n_items = ITEMS, .fields = other, .n_fields = 1, .fetch = any_fetch};
    const dlp_guard_field of = {.name = "word", .high = 500};
    dlp_source fetch = {.dataset = &ds};
    rig_table t = {.n = 0};
    int rc;
    if (kind == PACK) ds.fields = document, ds.fetch = any_document;
    if (kind == FILTER) ds.fetch = any_filter, ds.filter = 1;
    if (!makes) fetch.workers = drops;
    table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_SHUFFLED, .threaded = 1});
    table_fetch(&t, &fetch, 0);
    if (kind == EXPAND)
        table_row(&t, (dlp_node){.verb = DLP_EXPAND,
                                 .expand = {.expand = any_expand, .max_out = 4},
                                 .workers = drops});
    if (kind == EXPAND) table_row(&t, (dlp_node){.verb = DLP_WINDOW, .window = {.items = 20}});
    if (kind == FILTER) table_row(&t, (dlp_node){.verb = DLP_FILTER, .workers = drops});
    if (kind == PACK)
        table_row(&t, (dlp_node){.verb = DLP_PACK,
                                 .pack = {.tokens = 20, .rule = DLP_PACK_FIT, .window = 8},
                                 .workers = drops});
    if (kind == GUARD)
        table_row(&t, (dlp_node){.verb = DLP_GUARD,
                                 .guard = {.fields = &of, .n_fields = 1},
                                 .workers = drops});
    if (kind == SCRATCH) table_ends(&t, other, 1, 0);
    if (kind == SCRATCH)
        table_row(&t, (dlp_node){.verb = DLP_MAP, .map = {.item = any_fetch}, .workers = drops});
    if (kind == JOIN) table_fetch(&t, &(dlp_source){.dataset = &more, .workers = drops}, 0);
    table_row(&t, (dlp_node){.verb = DLP_BATCH,
                             .batch = {.batch_size = ROWS, .copy_workers = makes ? 2 : 0}});
    rc = table_pipe(&t, p, &desc, e);
    if (rc != DLP_OK) return rc;
    rc = dlp_pipe_start(*p);
    if (rc != DLP_OK) *e = *dlp_pipe_error(*p);
    return rc;
}

static uint64_t list_at;

static void any_topology(int kind, dlp_loader_desc *d) {
    if (kind == INLINE) d->num_workers = 0;
    if (kind == IN_TURN) d->workers.dispatch = DLP_DISPATCH_BATCHES;
    if (kind == CLASSIC) d->topology = DLP_TOPOLOGY_CLASSIC;
    if (kind == CONCURRENT) d->topology = DLP_TOPOLOGY_CONCURRENT;
    if (kind == CONCURRENT) d->fetcher = DLP_FETCH_THREADS, d->in_flight = 4;
    if (kind == ASYNC) {
        d->fetcher = DLP_FETCH_ASYNC, d->in_flight = 16;
        d->async = (dlp_async){held_submit, held_reap};
        d->workers.worker_init = held_init, d->workers.worker_exit = held_exit;
    }
    if (kind == TUNED) d->workers.workers_max = 5;
}

static int any_open(int kind, dlp_pipe **p, dlp_error *e) {
    static uint64_t items[12] = {50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50};
    const dlp_node_load parts = {.n_parts = 12,
                                 .items = items,
                                 .max_part_bytes = 64,
                                 .load = any_part,
                                 .queue_size = 5,
                                 .workers = {.num_workers = 2, .on_error = DLP_ON_ERROR_DROP}};
    dlp_loader_desc q = {.batch_size = 0}, *d = &q;
    if (kind >= CHUNKS) return any_chunks(kind, p, e);
    if (kind == MAPS) return any_maps(p);
    if (kind > UNCOUNTED) return any_wired(kind, p, e);
    d->dataset =
        (dlp_dataset){.n_items = ITEMS, .fields = one_field, .n_fields = 1, .fetch = any_fetch};
    d->batch_size = ROWS;
    d->num_workers = 3;
    d->shuffle = kind != STREAM && kind != BATCH_SAMPLER;
    d->epochs = 4;
    d->workers.retries = 2;
    d->workers.on_error = kind % 2 && kind != STREAM ? DLP_ON_ERROR_REPLACE : DLP_ON_ERROR_DROP;
    d->pipe.prefetch_factor = kind == CLASSIC || kind == CONCURRENT ? 0 : 4;
    d->pipe.max_held = 2;
    d->pipe.trace_bytes = 512;
    any_topology(kind, d);
    if (kind == COLLATE || kind == PARTS_COLLATE) d->collate = dlp_collate_pad;
    if (kind == UNORDERED) d->pipe.unordered = 1;
    if (kind == CACHE) d->cache.bytes = 1 << 20;
    if (kind == STREAM) {
        d->dataset.n_items = 0;
        d->dataset.open_end = 1;
        d->dataset.fetch = stream_fetch;
    }
    d->sampler.threaded =
        kind == SAMPLER_THREAD || kind == UNORDERED || kind == PARTS || kind == UNCOUNTED;
    if (kind >= PARTS) d->parts = parts, d->pipe.streams = 2;
    if (kind == UNCOUNTED) {
        q.parts.load = uncounted_part;
        q.parts.items = NULL;
        q.parts.max_items = 60;
        q.parts.queue_size = 0;
    }
    if (kind == BATCH_SAMPLER) {
        list_at = 0;
        d->sampler.order = DLP_ORDER_BATCHES;
        d->sampler.batches.next = list_next;
        d->sampler.batches.user = &list_at;
        d->sampler.threaded = 1;
    }
    if (kind == TRANSFER || kind == TRANSFER_THREAD) d->device = dlp_device_host();
    d->transfer_thread = kind == TRANSFER_THREAD;
    if (kind >= PARTS) d->dataset.n_items = 0;
    return dlp_loader_open(p, d, e);
}

/* ---- who looks ---- */

typedef struct look {
    dlp_pipe *p;
    int *over, *rounds, stop, number, kind;
} look;

static void look_at_workers(dlp_pipe *p, const dlp_stats *s) {
    dlp_trace_event events[64];
    char name[32];
    for (uint32_t i = 0; i < s->n_workers; i++) {
        dlp_worker_stats w = {0};
        CHECK(dlp_pipe_worker_stats(p, i, &w) == DLP_OK);
        CHECK(w.stage >= 0 && w.stage < (int)s->n_stages);
    }
    CHECK(dlp_pipe_trace_lanes(p) == (int)s->n_workers + 1);
    for (int lane = 0; lane <= (int)s->n_workers; lane++) {
        int n = dlp_pipe_trace(p, lane, events, 64, name);
        CHECK(n >= 0);
        for (int i = 0; i < n; i++) CHECK(events[i].begin_ns <= events[i].end_ns);
    }
}

static void look_at_pictures(dlp_pipe *p, const char *path) {
    static const dlp_trace_window windows[] = {{.what = DLP_WINDOW_TIME, .to = 1000000},
                                               {.what = DLP_WINDOW_BATCHES, .from = 3, .to = 9},
                                               {.what = DLP_WINDOW_EPOCH},
                                               {.what = DLP_WINDOW_STALL}};
    CHECK(dlp_pipe_write_trace(p, path, NULL) == DLP_OK);
    CHECK(dlp_pipe_write_timeline(p, path, NULL) == DLP_OK);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        CHECK(dlp_pipe_write_window(p, path, &windows[i], NULL) == DLP_OK);
    CHECK(unlink(path) == 0);
}

static void look_once(dlp_pipe *p, int kind, int number, int round) {
    dlp_stats s;
    dlp_predict would;
    dlp_guard_stats guard;
    dlp_skip skips[64];
    uint64_t total;
    char text[4096], path[64];
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    CHECK(s.in_flight <= s.prefetch_factor && s.ready <= s.in_flight);
    look_at_workers(p, &s);
    CHECK(dlp_pipe_skips(p, skips, 64, &total) >= 0);
    CHECK(dlp_pipe_explain(p, text, sizeof text) > 0 && strstr(text, "Limit: "));
    CHECK(dlp_stats_explain(&s, text, sizeof text) > 0);
    CHECK(dlp_pipe_guard_stats(p, 3, 0, &guard) == (kind == GUARD ? DLP_OK : DLP_ERR_ARG));
    if (round % 8 != 0) return;
    (void)dlp_stats_predict(&s, NULL, &would);
    snprintf(path, sizeof path, "/tmp/any_thread.%d.%d", (int)getpid(), number);
    look_at_pictures(p, path);
}

static void *looker(void *user) {
    const look *l = user;
    int round = 0;
    while (!__atomic_load_n(l->over, __ATOMIC_ACQUIRE)) {
        look_once(l->p, l->kind, l->number, round++);
        __atomic_add_fetch(l->rounds, 1, __ATOMIC_RELAXED);
        if (l->stop && l->number == 0 && round == 3) dlp_pipe_stop(l->p);
    }
    return NULL;
}

/* ---- the caller, who does what only it may ---- */

static int may_seek(int kind) { return kind != STREAM && kind != BATCH_SAMPLER; }

static int drive(dlp_pipe *p, int kind, int stop, const int *rounds) {
    uint64_t n = 0;
    dlp_batch *b = NULL;
    dlp_state first, s;
    int rc, sought = 0;
    CHECK(dlp_pipe_state(p, NULL, &first) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(dlp_pipe_state(p, b, &s) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        if (++n == 90) CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
        if (n == 100 && kind == TUNED) CHECK(dlp_pipe_set_workers(p, 2, 1 + (int)n % 3) == DLP_OK);
        if (n % 8 == 0) test_pause(100000);
        if (n >= 150 && may_seek(kind) && sought < 20 &&
            (sought < 1 || __atomic_load_n(rounds, __ATOMIC_RELAXED) < 16)) {
            CHECK(dlp_pipe_seek(p, &first, NULL) == DLP_OK);
            sought++;
            n = 0;
        }
    }
    CHECK(sought > 0 || stop || !may_seek(kind));
    return rc;
}

static void run(int kind, int stop) {
    dlp_pipe *p = NULL;
    dlp_error e = {0};
    pthread_t threads[LOOKERS];
    look l[LOOKERS];
    int over = 0, rounds = 0, rc = any_open(kind, &p, &e);
    if (rc != DLP_OK) printf("%s: %s\n", kind_names[kind], e.message);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) return;
    for (int i = 0; i < LOOKERS; i++) {
        l[i] = (look){p, &over, &rounds, stop, i, kind};
        CHECK(pthread_create(&threads[i], NULL, looker, &l[i]) == 0);
    }
    rc = drive(p, kind, stop, &rounds);
    if (rc != DLP_END && rc != DLP_STOPPED)
        printf("%s: %d %s\n", kind_names[kind], rc, dlp_pipe_error(p)->message);
    CHECK(rc == DLP_END || (stop && rc == DLP_STOPPED));
    while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) < 4) test_pause(1000000);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < LOOKERS; i++) pthread_join(threads[i], NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void calls__of_any_thread__beside_every_make_of_pipe(void) {
    for (int kind = 0; kind < KINDS; kind++) run(kind, 0);
}

static void stop__of_any_thread__beside_every_make_of_pipe(void) {
    for (int kind = 0; kind < KINDS; kind++) run(kind, 1);
}

/* ---- stop from the moment of open on; opens side by side, under one budget ---- */

typedef struct stopping {
    dlp_pipe *p;
    uint64_t after_ns;
} stopping;

static void *stop_later(void *user) {
    stopping *s = user;
    test_pause(s->after_ns % 300000);
    dlp_pipe_stop(s->p);
    return NULL;
}

static int wire(dlp_pipe **p) {
    dlp_dataset ds = {.n_items = ITEMS, .fields = one_field, .n_fields = 1, .fetch = any_fetch};
    const dlp_source fetch = {.dataset = &ds,
                              .workers = {.num_workers = 2, .on_error = DLP_ON_ERROR_DROP}};
    rig_table t = {.n = 0};
    table_list(&t, &(dlp_sampler_desc){.seed = 0});
    table_fetch(&t, &fetch, 0);
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = ROWS}});
    return table_pipe(&t, p, NULL, NULL);
}

static void stop__while_it_starts__stopped(void) {
    uint64_t seed = 5;
    for (int i = 0; i < test_share(80, 2000); i++) {
        stopping s = {NULL, test_random(&seed)};
        pthread_t t;
        dlp_batch *b = NULL;
        int rc;
        CHECK(wire(&s.p) == DLP_OK);
        CHECK(pthread_create(&t, NULL, stop_later, &s) == 0);
        CHECK(dlp_pipe_start(s.p) == DLP_OK);
        while ((rc = dlp_pipe_next_timeout(s.p, &b, 20000)) == DLP_OK) dlp_pipe_release(s.p, b);
        CHECK(rc == DLP_STOPPED || rc == DLP_END);
        pthread_join(t, NULL);
        CHECK(dlp_pipe_close(s.p) == DLP_OK);
    }
}

static dlp_budget budget = {UINT64_C(1) << 30, 0};

static void *open_and_close(void *user) {
    for (int i = 0; i < 4; i++) {
        dlp_pipe *p = NULL;
        dlp_batch *b = NULL;
        dlp_loader_desc d = {
            .dataset = {.n_items = 50, .fields = one_field, .n_fields = 1, .fetch = any_fetch},
            .batch_size = ROWS,
            .num_workers = 2,
            .collate = dlp_collate_pad,
            .workers = {.on_error = DLP_ON_ERROR_DROP},
            .pipe = {.budget = &budget}};
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    return user;
}

static void open__in_several_threads__each_its_own(void) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&t[i], NULL, open_and_close, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK(budget.used_bytes == 0);
}

/* ---- tensors are given back by any thread, also once their pipe is closed ---- */

/* ---- two consumers ---- */

static struct {
    dlp_pipe *p;
    pthread_barrier_t begin;
    uint32_t taken[2], refused[2];
} two;

/* Take batches until the end. While the other thread is in next or release, calls are refused. */
static void *take_all(void *user) {
    const int me = user != NULL;
    dlp_batch *b = NULL;
    int rc;
    pthread_barrier_wait(&two.begin);
    while ((rc = dlp_pipe_next(two.p, &b)) != DLP_END) {
        two.refused[me] += rc == DLP_ERR_STATE;
        if (rc == DLP_ERR_STATE) {
            const dlp_error *e = dlp_pipe_error(two.p);
            CHECK(e->code == DLP_ERR_STATE && strstr(e->message, "another thread"));
            sched_yield();
            continue;
        }
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) break;
        two.taken[me]++;
        while ((rc = dlp_pipe_release(two.p, b)) == DLP_ERR_STATE) sched_yield();
        CHECK(rc == DLP_OK);
    }
    return NULL;
}

static void next__in_two_threads_at_once__one_is_refused(void) {
    uint32_t refused = 0;
    for (int round = 0; round < 40 && refused < 20; round++) {
        pthread_t other;
        rig r;
        rig_init(&r, 4000, 4);
        rig_workers(&r, round % 3, DLP_DISPATCH_CLAIM);
        r.pipe.max_held = 2;
        r.n_transfers = 1; /* so that release is a call of its own, too */
        memset(two.taken, 0, sizeof two.taken);
        memset(two.refused, 0, sizeof two.refused);
        if (rig_open(&r, &two.p) != DLP_OK) return;
        CHECK(pthread_barrier_init(&two.begin, NULL, 2) == 0);
        CHECK(pthread_create(&other, NULL, take_all, &two) == 0);
        take_all(NULL);
        CHECK(pthread_join(other, NULL) == 0 && pthread_barrier_destroy(&two.begin) == 0);
        CHECK(two.taken[0] + two.taken[1] == 1000);
        CHECK(dlp_pipe_close(two.p) == DLP_OK);
        refused += two.refused[0] + two.refused[1];
    }
    CHECK(refused > 0);
}

/* The pipe's callback stays in item 0 until `go`, and fails item `fails`. */
static struct {
    dlp_pipe *p;
    int in, go, rc;
    uint64_t fails;
} stay;

static int stay_fetch(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 1, 4);
    if (it->index == stay.fails) return dlp_fail(it->call, 0, "item of its own");
    if (it->index != 0) return 0;
    __atomic_store_n(&stay.in, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&stay.go, __ATOMIC_ACQUIRE)) test_pause(100000);
    return 0;
}

static void *stay_next(void *user) {
    dlp_batch *b = NULL;
    CHECK(dlp_pipe_next(stay.p, &b) == DLP_OK && dlp_pipe_release(stay.p, b) == DLP_OK);
    CHECK(dlp_pipe_error(stay.p)->code == 0); /* the refusal is not this thread's */
    return user;
}

static void stay_open(uint64_t fails) {
    static const dlp_field x = {.name = "x", .dtype = DLP_F32, .ndim = 0};
    dlp_loader_desc d = {
        .dataset = {.n_items = 8, .fields = &x, .n_fields = 1, .fetch = stay_fetch},
        .batch_size = 2};
    stay.in = stay.go = 0;
    stay.fails = fails;
    stay.p = NULL;
    CHECK(dlp_loader_open(&stay.p, &d, NULL) == DLP_OK);
}

/* While another thread is in next, each call is refused, and says why in the thread that called
   alone. It does so until the pipe lets the thread in, whose own errors are then told. */
static void error__of_a_refused_call__told_to_its_thread(void) {
    pthread_t other;
    dlp_batch *b = NULL;
    const dlp_error *e;
    stay_open(4);
    CHECK(pthread_create(&other, NULL, stay_next, NULL) == 0);
    while (!__atomic_load_n(&stay.in, __ATOMIC_ACQUIRE)) test_pause(100000);
    CHECK(dlp_pipe_next(stay.p, &b) == DLP_ERR_STATE && b == NULL);
    e = dlp_pipe_error(stay.p);
    CHECK(e->code == DLP_ERR_STATE && e->worker == -1 && strstr(e->message, "another thread"));
    CHECK(dlp_pipe_error(stay.p)->code == DLP_ERR_STATE); /* it stays */
    CHECK(dlp_pipe_next_epoch(stay.p) == DLP_ERR_STATE);
    CHECK(dlp_pipe_close(stay.p) == DLP_ERR_BUSY);
    CHECK(dlp_pipe_error(stay.p)->code == DLP_ERR_BUSY);
    __atomic_store_n(&stay.go, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(dlp_pipe_error(stay.p)->code == DLP_ERR_BUSY); /* no call of this thread was let in */
    CHECK(dlp_pipe_next(stay.p, &b) == DLP_OK && dlp_pipe_error(stay.p)->code == 0);
    CHECK(dlp_pipe_release(stay.p, b) == DLP_OK);
    CHECK(dlp_pipe_next(stay.p, &b) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(stay.p)->message, "item of its own"));
    CHECK(dlp_pipe_close(stay.p) == DLP_OK);
}

/* A callback that calls its own pipe is refused in the consumer's thread, too. Behind its call next
   tells the pipe's own error. */
static int calls_fetch(void *user, dlp_item *it) {
    dlp_batch *b = NULL;
    (void)user;
    CHECK(dlp_pipe_next(stay.p, &b) == DLP_ERR_STATE);
    CHECK(strstr(dlp_pipe_error(stay.p)->message, "callback"));
    return dlp_fail(it->call, 0, "gave up");
}

static void error__of_a_callback_that_calls__the_pipes_own_behind_it(void) {
    static const dlp_field x = {.name = "x", .dtype = DLP_F32, .ndim = 0};
    dlp_loader_desc d = {
        .dataset = {.n_items = 8, .fields = &x, .n_fields = 1, .fetch = calls_fetch},
        .batch_size = 2};
    dlp_batch *b = NULL;
    CHECK(dlp_loader_open(&stay.p, &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_next(stay.p, &b) == DLP_ERR_CALLBACK);
    CHECK(strcmp(dlp_pipe_error(stay.p)->message, "gave up") == 0);
    CHECK(dlp_pipe_close(stay.p) == DLP_OK);
    CHECK(dlp_pipe_error(NULL)->code == DLP_ERR_ARG);
}

static void *stay_stopped(void *user) {
    dlp_batch *b = NULL;
    int rc;
    do rc = dlp_pipe_next(stay.p, &b);
    while (rc == DLP_ERR_STATE); /* the main thread looks whether this one is in next */
    CHECK(rc == DLP_STOPPED);
    return user;
}

/* A close that was refused is called again once the other thread has left. If a callback keeps it
   busy then, the error names the callback, and no thread that is gone. */
static void error__of_a_close_behind_a_refused_one__names_the_callback(void) {
    static const dlp_field x = {.name = "x", .dtype = DLP_F32, .ndim = 0};
    dlp_loader_desc d = {
        .dataset = {.n_items = 8, .fields = &x, .n_fields = 1, .fetch = stay_fetch},
        .batch_size = 2,
        .num_workers = 1,
        .pipe = {.close_timeout_ms = 20}};
    dlp_batch *b = NULL;
    pthread_t other;
    stay.in = stay.go = 0;
    stay.fails = UINT64_MAX;
    stay.p = NULL;
    CHECK(dlp_loader_open(&stay.p, &d, NULL) == DLP_OK);
    CHECK(pthread_create(&other, NULL, stay_stopped, NULL) == 0);
    while (!__atomic_load_n(&stay.in, __ATOMIC_ACQUIRE)) test_pause(100000);
    while (dlp_pipe_next_timeout(stay.p, &b, DLP_NOWAIT) != DLP_ERR_STATE) test_pause(1000000);
    CHECK(dlp_pipe_close(stay.p) == DLP_ERR_BUSY);
    CHECK(strstr(dlp_pipe_error(stay.p)->message, "another thread"));
    dlp_pipe_stop(stay.p);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(dlp_pipe_close(stay.p) == DLP_ERR_BUSY);
    CHECK(strstr(dlp_pipe_error(stay.p)->message, "another thread") == NULL);
    CHECK(dlp_pipe_error(stay.p)->index == 0 && dlp_pipe_error(stay.p)->worker >= 0);
    __atomic_store_n(&stay.go, 1, __ATOMIC_RELEASE);
    CHECK(dlp_pipe_close(stay.p) == DLP_OK);
}

static void *take_one(void *pipe) {
    dlp_batch *b = NULL;
    CHECK(dlp_pipe_next(pipe, &b) == DLP_OK && dlp_pipe_release(pipe, b) == DLP_OK);
    return NULL;
}

static void next__in_another_thread_each_time__goes_on(void) {
    dlp_batch *b = NULL;
    dlp_pipe *p;
    rig r;
    rig_init(&r, 200, 10);
    rig_workers(&r, 1, DLP_DISPATCH_CLAIM);
    if (rig_open(&r, &p) != DLP_OK) return;
    for (int i = 0; i < 20; i++) {
        pthread_t other;
        CHECK(pthread_create(&other, NULL, take_one, p) == 0 && pthread_join(other, NULL) == 0);
    }
    CHECK(dlp_pipe_next(p, &b) == DLP_END && dlp_pipe_close(p) == DLP_OK);
}

static void *give_back(void *user) {
    dlp_managed_tensor *t = user;
    if (t) t->deleter(t);
    return NULL;
}

static void deleter__of_any_thread__beside_the_pipe_and_behind_it(void) {
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    pthread_t t[60];
    int n = 0, rc;
    CHECK(any_open(ECONOMIC, &p, NULL) == DLP_OK);
    while (n < 60 && ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK || rc == DLP_ERR_HELD)) {
        dlp_managed_tensor *out = NULL;
        if (rc == DLP_ERR_HELD) {
            test_pause(100000);
            continue;
        }
        CHECK(dlp_batch_dlpack(p, b, 0, &out) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        CHECK(pthread_create(&t[n++], NULL, give_back, out) == 0);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
}

int main(void) {
    next__in_two_threads_at_once__one_is_refused();
    error__of_a_refused_call__told_to_its_thread();
    error__of_a_close_behind_a_refused_one__names_the_callback();
    error__of_a_callback_that_calls__the_pipes_own_behind_it();
    next__in_another_thread_each_time__goes_on();
    calls__of_any_thread__beside_every_make_of_pipe();
    stop__of_any_thread__beside_every_make_of_pipe();
    stop__while_it_starts__stopped();
    open__in_several_threads__each_its_own();
    deleter__of_any_thread__beside_the_pipe_and_behind_it();
    return test_end("any_thread");
}
