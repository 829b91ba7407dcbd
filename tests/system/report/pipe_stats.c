/* needs: parts split */
/* Counters that add up, a look from outside at a worker that blocks, traces without overlaps, and
   words that name the right stage and foretell what one more worker gives. What judges the times of
   cores is left out on Windows. */
#include "../../rig/pipe_life.h"

static uint32_t item_us, map_us, collate_us;
static uint64_t slow_item = UINT64_MAX; /* it takes 200 ms more */
static uint64_t block_at = UINT64_MAX;
static uint32_t shut; /* S1: while 1, the item block_at waits, and all do if that is BLOCK_ALL */
#define BLOCK_ALL (UINT64_MAX - 1)

static uint64_t took_ns[256]; /* what each item took in truth, by its index */

static int stat_fetch(void *user, dlp_item *it) {
    if (it->index == slow_item) sleep_us(200000);
    if (item_us) {
        uint64_t from = test_now_ns();
        sleep_us(item_us);
        if (it->index < 256) took_ns[it->index] = test_now_ns() - from;
    }
    if (it->index == block_at || block_at == BLOCK_ALL)
        while (DLPI_LOAD_SEQ(&shut) != 0) sleep_us(500); /* S1 */
    return rig_fetch(user, it);
}
static int stat_map(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    if (map_us) sleep_us(map_us);
    return 0;
}
static int stat_collate(void *user, dlp_collate *c) {
    if (collate_us) sleep_us(collate_us);
    return dlp_collate_pad(user, c);
}

static void stat_rig(rig *r, int workers) {
    rig_default(r);
    item_us = map_us = collate_us = 0;
    block_at = UINT64_MAX;
    DLPI_STORE_SEQ(&shut, 1u); /* S1 */
    r->dataset.fetch = stat_fetch;
    r->item_map.map.item = stat_map;
    r->fetch.workers.num_workers = workers;
}

static int by_time(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static int is_about(double value, double want, double off) {
    return value >= want * (1 - off) && value <= want * (1 + off);
}

/* ---- counters ---- */

/* Does the worker work on nothing, by and by? It says so after its last row is out, and may lose
   its core in between. */
static int at_rest(dlp_pipe *p, uint32_t worker) {
    uint64_t until = test_now_ns() + UINT64_C(5000000000);
    dlp_worker_stats w;
    do {
        if (dlp_pipe_worker_stats(p, worker, &w) != DLP_OK) return 0;
        if (w.current_index == UINT64_MAX) return w.current_age_ns == 0;
    } while (test_now_ns() < until);
    return 0;
}

static void stats__at_the_end__add_up(void) {
    for (int workers = 0; workers <= 4; workers += 2) {
        rig r;
        dlp_pipe *p = NULL;
        dlp_stats s;
        dlp_worker_stats w;
        uint64_t batches, items = 0, busy = 0, bytes = 0;
        stat_rig(&r, workers);
        r.dataset.n_items = 1003;
        r.pipe.epochs = 3;
        r.has_item_map = 1;
        r.item_map.workers.num_workers = workers / 2;
        r.fetch.workers.dispatch = r.item_map.workers.dispatch =
            workers == 4 ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
        CHECK(rig_start(&r, &p) == DLP_OK);
        CHECK(rig_drain(p, &batches) == DLP_END && batches == 303);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.batches == 303 && s.items == 3009 && s.bytes == 3009 * 16 && s.epoch == 2);
        CHECK(s.in_flight == 0 && s.ready == 0 && s.held == 0 && s.n_stages == 5 &&
              s.batch_size == 10);
        CHECK(s.stages[2].items == 3009 && s.stages[3].items == 3009 &&
              s.stages[2].bytes == 3009 * 16);
        CHECK(s.stages[2].workers == workers && s.stages[2].unit_is_batch == 0);
        CHECK(strcmp(s.stages[2].name, "fetch") == 0 && s.stages[2].kind == DLP_STAGE_FETCH);
        CHECK(s.n_workers == (workers ? (uint32_t)workers * 3 / 2 : 2));
        CHECK(s.first_batch_ns > 0 && s.first_batch_ns <= s.elapsed_ns);
        CHECK(s.wait_ns + s.step_ns <= s.elapsed_ns);
        for (uint32_t i = 0; i < s.n_workers; i++) {
            CHECK(dlp_pipe_worker_stats(p, i, &w) == DLP_OK);
            if (w.stage != 2) continue;
            items += w.items;
            bytes += w.bytes;
            busy += w.busy_ns;
            CHECK(at_rest(p, i));
        }
        CHECK(items == 3009 && bytes == 3009 * 16 && busy == s.stages[2].busy_ns);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void stats__on_the_way__items_are_delivered_or_in_flight(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    stat_rig(&r, 2);
    r.pipe.prefetch_factor = 4;
    r.pipe.epochs = DLP_FOREVER;
    CHECK(rig_start(&r, &p) == DLP_OK);
    for (int i = 0; i < 300; i++) {
        dlp_stats s;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.batches == (uint64_t)i + 1 && s.items == 10 * s.batches && s.held == 1);
        CHECK(s.in_flight <= 4 && s.ready <= s.in_flight);
        CHECK(s.stages[2].items >= s.items && s.stages[2].items <= s.items + 10 * 4 + 10);
        dlp_pipe_release(p, b);
    }
    {
        dlp_stats s;
        for (int i = 0; i < 20000; i++) { /* until the workers have filled it */
            CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
            if (s.ready == 4 && s.stages[2].items == s.items + 40) break;
            sleep_us(1000);
        }
        CHECK(s.in_flight == 4 && s.ready == 4);
        CHECK(s.stages[2].items == s.items + 40);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Are the counters those of a run in which nobody lost the processor for long? */
static int tells_times(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_stats s;
    uint64_t batches;
    int ok = 1;
    stat_rig(&r, 2);
    item_us = 4000;
    r.dataset.n_items = 200;
    r.has_transfer = r.transfer.workers.num_workers = 1;
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(rig_drain(p, &batches) == DLP_END);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    qsort(took_ns, 200, sizeof *took_ns, by_time);
    ok &= is_about((double)s.stages[2].p50_ns, (double)took_ns[100], 0.3);
    ok &= is_about((double)s.stages[2].p95_ns, (double)took_ns[190], 0.5);
    CHECK(s.stages[2].p95_ns >= s.stages[2].p50_ns && s.stages[2].p99_ns >= s.stages[2].p95_ns);
    CHECK(s.stages[2].max_ns >= took_ns[199]);
    ok &= s.stages[2].max_ns < 2 * took_ns[199] + 100000000;
    ok &= is_about((double)s.wait_ns, (double)s.elapsed_ns, 0.1);
    for (uint32_t i = 0; i < 2; i++) {
        dlp_worker_stats w;
        CHECK(dlp_pipe_worker_stats(p, i, &w) == DLP_OK);
        CHECK(w.busy_ns >= w.items * 4000000);
        ok &= w.items > 50 && is_about((double)(w.busy_ns + w.starved_ns + w.blocked_ns),
                                       (double)s.elapsed_ns, 0.15);
        ok &= w.cpu_ns < w.busy_ns / 4; /* it slept */
        if (!ok)
            printf("  %" PRIu64 " items, busy %" PRIu64 " starved %" PRIu64 " of %" PRIu64 "\n",
                   w.items, w.busy_ns, w.starved_ns, s.elapsed_ns);
    }
    {
        dlp_worker_stats w; /* the transfer thread: idle nearly all the time */
        CHECK(dlp_pipe_worker_stats(p, 2, &w) == DLP_OK && w.items == 20 && w.tid != 0 &&
              w.bytes == 200 * 16);
        ok &= w.starved_ns > s.elapsed_ns / 2 && w.busy_ns < s.elapsed_ns / 4;
        CHECK(w.current_index == UINT64_MAX);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return ok;
}

static void stats__sleeping_items__times_and_percentiles(void) { CHECK_ONE_OF_5(tells_times()); }

/* ---- a look from another thread ---- */

typedef struct look {
    dlp_pipe *p;
    uint32_t seen; /* S2: the blocked item was seen with a growing age */
    uint32_t done; /* S2 */
} look;

static void *look_on(void *user) {
    look *l = user;
    while (DLPI_LOAD_SEQ(&l->done) == 0) { /* S2 */
        dlp_stats s;
        if (dlp_pipe_stats(l->p, &s) != DLP_OK || s.in_flight > 2 || s.ready > 2) continue;
        for (uint32_t i = 0; i < s.n_workers; i++) {
            dlp_worker_stats w;
            if (dlp_pipe_worker_stats(l->p, i, &w) != DLP_OK) continue;
            if (w.current_index == block_at && w.current_age_ns > 50000000 &&
                w.state == DLP_WORKER_BUSY)
                DLPI_STORE_SEQ(&l->seen, 1u); /* S2 */
        }
        sleep_us(1000);
    }
    return NULL;
}

static void worker_stats__callback_blocks__seen_from_another_thread(void) {
    for (int hangs = 0; hangs < 2; hangs++) { /* the caller waits in next, or is elsewhere */
        rig r;
        dlp_batch *b = NULL;
        pthread_t t;
        look l = {NULL, 0, 0};
        uint64_t until;
        int rc = DLP_OK;
        stat_rig(&r, 2);
        block_at = 43;
        r.pipe.epochs = DLP_FOREVER;
        CHECK(rig_start(&r, &l.p) == DLP_OK);
        CHECK(pthread_create(&t, NULL, look_on, &l) == 0);
        until = now_ms() + 20000;
        while (DLPI_LOAD_SEQ(&l.seen) == 0 && now_ms() < until) { /* S2 */
            if (rc == DLP_OK && (rc = dlp_pipe_next_timeout(l.p, &b, 100)) == DLP_OK)
                dlp_pipe_release(l.p, b);
            if (rc == DLP_TIMEOUT && hangs)
                sleep_us(1000);
            else if (rc == DLP_TIMEOUT)
                rc = DLP_OK;
        }
        CHECK(DLPI_LOAD_SEQ(&l.seen) == 1); /* S2 */
        DLPI_STORE_SEQ(&shut, 0u);          /* S1 */
        for (int i = 0; i < 500; i++)       /* and while all runs fast */
            if (dlp_pipe_next_timeout(l.p, &b, 5000) == DLP_OK) dlp_pipe_release(l.p, b);
        DLPI_STORE_SEQ(&l.done, 1u); /* S2 */
        pthread_join(t, NULL);
        CHECK(dlp_pipe_close(l.p) == DLP_OK);
    }
}

/* ---- traces ---- */

/* Do the events cover the run? Not if a thread lost the processor before it began, or between
   events. */
static int trace_covers(void) {
    int ok = 1;
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    static dlp_trace_event events[4096];
    dlp_stats s;
    char name[32];
    stat_rig(&r, 3);
    r.pipe.trace_bytes = 1 << 17;
    r.dataset.n_items = 300;
    r.pipe.epochs = 2;
    item_us = 1500;
    CHECK(rig_start(&r, &p) == DLP_OK);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        if (b->sequence % 4 == 0) sleep_us(3000);
        dlp_pipe_release(p, b);
    }
    CHECK(dlp_pipe_trace_lanes(p) == 4);
    for (int lane = 0; lane < 4; lane++) {
        int n = dlp_pipe_trace(p, lane, events, 4096, name);
        uint64_t covered = 0, last = 0, items = 0;
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(n < 4096);
        CHECK(lane == 0 ? strcmp(name, "consumer") == 0
                        : name[0] == 'f' && name[6] == (char)('0' + lane - 1));
        for (int i = 0; i < n; i++) {
            const dlp_trace_event *e = &events[i];
            CHECK(e->begin_ns < e->end_ns && e->begin_ns >= last && e->end_ns <= s.elapsed_ns);
            CHECK(e->kind >= DLP_TRACE_WORK && e->kind <= DLP_TRACE_BLOCKED && e->sequence <= 60 &&
                  e->epoch < 3);
            CHECK(lane == 0 ? e->kind != DLP_TRACE_WORK
                            : e->kind != DLP_TRACE_STEP && e->kind != DLP_TRACE_WAIT);
            last = e->end_ns;
            covered += e->end_ns - e->begin_ns;
            if (e->kind == DLP_TRACE_WORK) items += e->items;
        }
        ok &= is_about((double)covered, (double)s.elapsed_ns, 0.2) && n > 5;
        ok &= lane == 0 || items > 20;
        if (!ok)
            printf("  lane %d covers %" PRIu64 " of %" PRIu64 ", %" PRIu64 " items\n", lane,
                   covered, s.elapsed_ns, items);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return ok;
}

static void trace__real_run__ordered_and_covering(void) { CHECK_ONE_OF_5(trace_covers()); }

static uint64_t traced_items(dlp_pipe *p, int lanes) {
    static dlp_trace_event events[4096];
    uint64_t items = 0;
    for (int lane = 1; lane < lanes; lane++) {
        int n = dlp_pipe_trace(p, lane, events, 4096, NULL);
        for (int i = 0; i < n; i++) items += events[i].kind == DLP_TRACE_WORK ? events[i].items : 0;
    }
    return items;
}

/* Nothing that a worker did is missing once it sleeps, its last batch among that. */
static void trace__workers_asleep__has_all_items(void) {
    rig r;
    dlp_pipe *p = NULL;
    uint64_t batches, items = 0;
    stat_rig(&r, 3);
    r.pipe.trace_bytes = 1 << 17;
    r.dataset.n_items = 100;
    item_us = 100;
    CHECK(rig_start(&r, &p) == DLP_OK);
    CHECK(rig_drain(p, &batches) == DLP_END && batches == 10);
    for (int i = 0; i < 10000 && items != 100; i++) { /* they fall asleep */
        sleep_us(2000);
        items = traced_items(p, 4);
    }
    CHECK(items == 100);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Read while it is written: no torn event. */
static void trace__ring_runs_over_while_read__no_torn_event(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    uint64_t until;
    stat_rig(&r, 2);
    r.pipe.trace_bytes = 128; /* four events */
    r.batch.batch_size = 1;
    r.pipe.epochs = DLP_FOREVER;
    CHECK(rig_start(&r, &p) == DLP_OK);
    until = now_ms() + 400;
    while (now_ms() < until) {
        dlp_trace_event e[4];
        if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
        for (int lane = 1; lane < 3; lane++) {
            int n = dlp_pipe_trace(p, lane, e, 4, NULL);
            CHECK(n >= 0 && n <= 4);
            for (int i = 0; i < n; i++)
                CHECK(e[i].begin_ns < e[i].end_ns && (i == 0 || e[i].begin_ns >= e[i - 1].end_ns));
        }
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* A walk through JSON's grammar. */
static const char *json_value(const char *s, int depth) {
    while (s && (*s == ' ' || *s == '\n' || *s == '\r' || *s == '\t')) s++;
    if (s == NULL || depth > 8) return NULL;
    if (*s == '"') {
        for (s++; *s && *s != '"'; s++)
            if ((unsigned char)*s < 32 || (*s == '\\' && *++s == 0)) return NULL;
        return *s ? s + 1 : NULL;
    }
    if (*s == '{' || *s == '[') {
        char end = *s == '{' ? '}' : ']';
        int n = 0;
        for (s++;; n++) {
            s += strspn(s, " \n\r\t");
            if (*s == end) return s + 1;
            if (n > 0 && *s++ != ',') return NULL;
            if (end == '}') {
                s += strspn(s, " \n\r\t");
                if (*s != '"' || (s = json_value(s, depth + 1)) == NULL) return NULL;
                s += strspn(s, " \n\r\t");
                if (*s++ != ':') return NULL;
            }
            if ((s = json_value(s, depth + 1)) == NULL) return NULL;
        }
    }
    if (strncmp(s, "true", 4) == 0 || strncmp(s, "null", 4) == 0) return s + 4;
    if (strncmp(s, "false", 5) == 0) return s + 5;
    return strspn(s, "-+.eE0123456789") ? s + strspn(s, "-+.eE0123456789") : NULL;
}

static char *whole_file(const char *path) {
    static char text[1 << 20];
    FILE *f = (fopen)(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) (fclose)(f);
    text[n] = 0;
    return text;
}

static void write__real_run__valid_files(void) {
    char path[64];
    const char *text, *end;
    rig r;
    dlp_pipe *p = NULL;
    uint64_t batches;
    stat_rig(&r, 2);
    item_us = 300;
    snprintf(path, sizeof path, "/tmp/pipe_stats.%ld", (long)getpid());
    CHECK(rig_start(&r, &p) == DLP_OK && rig_drain(p, &batches) == DLP_END);
    CHECK(dlp_pipe_write_trace(p, path, NULL) == DLP_OK);
    text = whole_file(path);
    end = json_value(text, 0);
    CHECK(end != NULL && end[strspn(end, " \n")] == 0);
    CHECK(strstr(text, "consumer") != NULL && strstr(text, "fetch-1") != NULL);
    CHECK(dlp_pipe_write_timeline(p, path, NULL) == DLP_OK);
    text = whole_file(path);
    CHECK(strstr(text, "<svg") != NULL && strstr(text, "</svg>") != NULL &&
          strstr(text, "fetch") != NULL);
    unlink(path);
    CHECK(dlp_pipe_write_trace(p, "/nowhere/at/all", NULL) < 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- words ---- */

/* ---- who hangs: item, batch, part or chunk 13 of a kind of pipe ---- */

enum { IN_FETCH, IN_MAP, IN_COLLATE, IN_BATCH_MAP, IN_THREADS, IN_ASYNC, IN_PART, IN_CHUNK, HANGS };

static int hang_at(uint64_t which) {
    while (which == 13 && DLPI_LOAD_SEQ(&shut) != 0) sleep_us(500); /* S1 */
    return 0;
}
static int hang_item(void *user, dlp_item *it) {
    (void)user;
    return hang_at(it->index);
}
static int hang_part(void *user, dlp_part *part) {
    (void)user;
    return hang_at(part->index);
}
static int hang_chunk(void *user, dlp_chunk *c) {
    (void)user;
    return hang_at(c->index);
}
static int hang_batch(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)state;
    return hang_at(b->sequence);
}
static int hang_collate(void *user, dlp_collate *c) {
    return hang_at(c->sequence) || dlp_collate_pad(user, c);
}
static int no_fetch(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}

/* A source that gives all back but one. */
static dlp_item *kept[8];
static int keep_submit(void *user, void *state, dlp_item *it) {
    (void)user;
    (void)state;
    for (int i = 0; i < 8; i++)
        if (kept[i] == NULL) return kept[i] = it, 0;
    return DLP_FULL;
}
static int keep_reap(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    int n = 0;
    (void)user;
    (void)state;
    for (int i = 0; i < 8 && n < max; i++) {
        if (kept[i] == NULL) continue;
        if (kept[i]->index == 13 && DLPI_LOAD_SEQ(&shut) != 0) continue; /* S1 */
        code[n] = rig_fetch(NULL, kept[i]);
        done[n++] = kept[i];
        kept[i] = NULL;
    }
    if (n == 0) sleep_us(ms > 1 ? 1000 : 100);
    return n;
}

static int hang_part_open(dlp_pipe **p) {
    static uint64_t items[40];
    dlp_field field = {.name = "x", .dtype = DLP_U32};
    dlp_loader_desc d = {.parts = {.n_parts = 40,
                                   .items = items,
                                   .max_part_bytes = 8,
                                   .queue_size = 4,
                                   .load = hang_part,
                                   .workers = {.num_workers = 2}},
                         .dataset = {.fields = &field, .n_fields = 1, .fetch = no_fetch},
                         .batch_size = 1,
                         .num_workers = 2};
    for (int i = 0; i < 40; i++) items[i] = 1;
    return dlp_loader_open(p, &d, NULL);
}

static int hang_chunk_open(dlp_pipe **p) {
    dlp_field field = {.name = "x", .dtype = DLP_U32};
    dlp_chunks_desc d = {.n_items = 160,
                         .fields = &field,
                         .n_fields = 1,
                         .chunk_rows = 4,
                         .batch_size = 2,
                         .load = hang_chunk,
                         .workers = {.num_workers = 2}};
    return dlp_chunks_open(p, &d, NULL);
}

static int hang_open(int kind, dlp_pipe **p) {
    rig r;
    stat_rig(&r, kind == IN_ASYNC ? 1 : 2);
    r.dataset.n_items = 400;
    if (kind == IN_PART) return hang_part_open(p);
    if (kind == IN_CHUNK) return hang_chunk_open(p);
    if (kind == IN_FETCH || kind == IN_THREADS) r.dataset.fetch = hang_item;
    if (kind == IN_THREADS || kind == IN_ASYNC) {
        r.fetch.fetcher = kind == IN_ASYNC ? DLP_FETCH_ASYNC : DLP_FETCH_THREADS;
        r.fetch.in_flight = 8;
        r.fetch.async.submit = keep_submit;
        r.fetch.async.reap = keep_reap;
    }
    r.has_item_map = kind == IN_MAP;
    r.item_map.map.item = hang_item;
    r.item_map.workers.num_workers = 2;
    r.has_batch_map = kind == IN_BATCH_MAP;
    r.batch_map.map.batch = hang_batch;
    r.batch_map.workers.num_workers = 1;
    if (kind == IN_COLLATE) r.batch.collate = hang_collate;
    r.batch_by.num_workers = kind == IN_COLLATE ? 2 : 0;
    return rig_start(&r, p);
}

static void explain__something_hangs__named(void) {
    static const char *const names[HANGS][2] = {
        {"'fetch'", "item 13 for"}, {"'map'", "item 13 for"},   {"'batch'", "batch 13 for"},
        {"'map'", "batch 13 for"},  {"'fetch'", "item 13 for"}, {"'fetch'", "item 13 for"},
        {"'parts'", "part 13 for"}, {"'load'", "chunk 13 for"}};
    for (int kind = 0; kind < HANGS; kind++) {
        char text[4096], thread[64];
        const char *at = NULL;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_stats s;
        uint64_t until = now_ms() + 20000;
        int rc;
        if (!CHECK(hang_open(kind, &p) == DLP_OK)) continue;
        for (rc = DLP_OK; at == NULL && rc != DLP_END && now_ms() < until;) {
            if ((rc = dlp_pipe_next_timeout(p, &b, 50)) == DLP_OK) dlp_pipe_release(p, b);
            CHECK(dlp_pipe_explain(p, text, sizeof text) > 0 && dlp_pipe_stats(p, &s) == DLP_OK);
            at = strstr(text, "\nLongest: worker "); /* or, once it is what limits the pipe: */
            if (at == NULL) at = strstr(text, "Limit: one item: worker ");
        }
        if (at) text[at - text + 1 + (long)strcspn(at + 1, "\n")] = 0;
        snprintf(thread, sizeof thread, "(thread %d of process %d) has been", s.longest.tid,
                 (int)getpid());
        if (!CHECK(at && strstr(at, names[kind][0]) && strstr(at, names[kind][1]) &&
                   strstr(at, thread)))
            printf("  %s, %s: %s\n", names[kind][0], names[kind][1], at ? at : text);
        CHECK(s.longest.current_index == 13 && s.longest.current_age_ns > 100000000);
        DLPI_STORE_SEQ(&shut, 0u); /* S1 */
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_END);
        for (int i = 0; i < 5000 && s.longest.current_age_ns > 0; i++, sleep_us(1000))
            dlp_pipe_stats(p, &s);
        CHECK(s.longest.current_age_ns == 0); /* nobody is at work */
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0 && strstr(text, "Longest: ") == NULL);
        CHECK(strstr(text, "one item: ") == NULL);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static double rate; /* items a second of the last run */

static void run_and_explain(rig *r, uint32_t step_us, char *text, size_t size) {
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    dlp_stats s;
    text[0] = 0;
    memset(&s, 0, sizeof s);
    if (!CHECK(rig_start(r, &p) == DLP_OK)) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        if (step_us) sleep_us(step_us);
        dlp_pipe_release(p, b);
    }
    CHECK(dlp_pipe_explain(p, text, size) > 0);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    rate = (double)s.items * 1e9 / (double)(s.wait_ns + s.step_ns);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

enum { SLOW_FETCH, SLOW_CONSUMER, SLOW_COLLATE, SLOW_MAP, SMALL_PREFETCH, CASES };

static uint32_t case_rig(int which, rig *r) {
    stat_rig(r, which == SMALL_PREFETCH ? 8 : 2);
    if (which == SLOW_FETCH) item_us = 2000;
    if (which == SLOW_COLLATE) {
        collate_us = 15000;
        r->batch.collate = stat_collate;
        r->batch_by.num_workers = 1;
    }
    if (which == SLOW_MAP) {
        map_us = 3000;
        r->has_item_map = 1;
        r->item_map.workers.num_workers = 1;
    }
    if (which == SMALL_PREFETCH) {
        item_us = 8000;
        r->pipe.prefetch_factor = 1;
        r->batch.batch_size = 2;
        r->dataset.n_items = 60;
    }
    return which == SLOW_CONSUMER ? 10000 : 0;
}

static int tells_too_much(void *user, char *buf, size_t size) {
    (void)user;
    memset(buf, 'x', size);
    return (int)size + 100;
}
static int tells_nothing(void *user, char *buf, size_t size) {
    (void)user;
    (void)buf;
    (void)size;
    return 5;
}

/* What workers wait for is told by the user, who may leave out the end of the line. */
static void explain__tell_without_an_end__line_is_cut(void) {
    for (int nothing = 0; nothing < 2; nothing++) {
        char text[4096], x[256], line[320];
        dlp_pipe *p;
        rig r;
        stat_rig(&r, 1);
        r.fetch.workers.tell = nothing ? tells_nothing : tells_too_much;
        CHECK(rig_start(&r, &p) == DLP_OK);
        memset(x, 'x', 255);
        x[nothing ? 0 : 255] = 0;
        snprintf(line, sizeof line, "Waits: stage 'fetch': %s.\n", x);
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0 && strstr(text, line) != NULL);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void stats__one_slow_item__is_the_slowest(void) {
    for (int threads = 0; threads < 2; threads++) { /* fetched one by one, or by many threads */
        rig r;
        dlp_pipe *p = NULL;
        dlp_stats s;
        uint64_t batches;
        stat_rig(&r, 2);
        if (threads) {
            r.fetch.fetcher = DLP_FETCH_THREADS;
            r.fetch.in_flight = 4;
        }
        item_us = 200; /* each is timed by itself */
        slow_item = 71;
        CHECK(rig_start(&r, &p) == DLP_OK && rig_drain(p, &batches) == DLP_END);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.stages[2].max_ns >= 200000000);
        CHECK(s.stages[2].max_index == 71);
        slow_item = UINT64_MAX;
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void explain__real_runs__names_the_limit(void) {
    static const char *const limit[] = {"Limit: stage 'fetch'", "Limit: the ",
                                        "Limit: stage 'batch'", "Limit: stage 'map'",
                                        "Limit: prefetch_factor"};
    static const char *const change[] = {"raise num_workers", "nothing in the pipe",
                                         "raise workers.num_workers", "raise workers.num_workers",
                                         "raise prefetch_factor"};
    for (int which = 0; which < CASES; which++) {
        char text[4096];
        int ok = 0;
        for (int tries = 0; tries < 10 && !ok; tries++) { /* a noisy machine may spoil some */
            rig r;
            uint32_t step_us = case_rig(which, &r);
            run_and_explain(&r, step_us, text, sizeof text);
            ok = strstr(text, limit[which]) != NULL && strstr(text, change[which]) != NULL;
        }
        if (!CHECK(ok)) printf("  case %d:\n%s", which, text);
    }
}

static double foretold(const char *text) { /* "... 3 should give about 123 items/s" */
    const char *at = strstr(text, "should give about ");
    return at ? strtod(at + strlen("should give about "), NULL) : 0;
}

static void explain__one_more_worker__gives_what_was_foretold(void) {
    for (int workers = 1; workers <= 5; workers += 2) {
        char text[4096];
        double said = 0, off = 1;
        for (int tries = 0; tries < 10 && off > 0.25; tries++) { /* a noisy one may spoil some */
            rig r;
            stat_rig(&r, workers);
            item_us = 5000;
            r.dataset.n_items = 60 * (uint64_t)workers;
            run_and_explain(&r, 0, text, sizeof text);
            said = foretold(text);
            r.fetch.workers.num_workers = workers + 1;
            run_and_explain(&r, 0, text, sizeof text);
            off = said > rate ? said / rate - 1 : said > 0 ? rate / said - 1 : 1;
        }
        if (!CHECK(off <= 0.25))
            printf("  %d workers: foretold %.0f, got %.0f\n%s", workers, said, rate, text);
    }
}

/* A fetch that computes for item_us on its core. */
static int burning_fetch(void *user, dlp_item *it) {
    struct timespec t;
    uint64_t until = 0, now = 0;
    (void)user;
    memset(it->data[0], 1, 8);
    for (int i = 0; i == 0 || now < until; i++) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        if (i == 0) until = now + item_us * UINT64_C(1000);
    }
    return 0;
}

/* An inline stage is never busy for longer than there was time, however short the steps are and
   whichever call takes the batches. */
static void stats__inline__busy_for_no_longer_than_there_was_time(void) {
    for (int timed = 0; timed < 2; timed++) {
        rig r;
        dlp_pipe *p = NULL;
        dlp_batch *b = NULL;
        dlp_stats s;
        int rc;
        stat_rig(&r, 0);
        item_us = 300;
        r.batch.batch_size = 4;
        r.dataset.n_items = 160;
        if (!CHECK(rig_start(&r, &p) == DLP_OK)) return;
        const uint64_t begin = test_now_ns();
        while ((rc = timed ? dlp_pipe_next_timeout(p, &b, 20000) : dlp_pipe_next(p, &b)) == DLP_OK)
            dlp_pipe_release(p, b);
        const uint64_t took = test_now_ns() - begin;
        CHECK(rc == DLP_END && dlp_pipe_stats(p, &s) == DLP_OK && s.items == 160);
        CHECK(s.stages[2].busy_ns >= UINT64_C(160) * 300000 && s.stages[2].busy_ns <= took);
        CHECK(s.stages[2].cpu_ns <= took);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static uint64_t long_every;

/* One item of many computes for 300 us. */
static int seldom_long_fetch(void *user, dlp_item *it) {
    const uint64_t until = test_now_ns() + 300000;
    (void)user;
    memset(it->data[0], 1, 8);
    while (it->index % long_every == 0 && test_now_ns() < until) {}
    return 0;
}

/* The work of a call counts for the calls that were not timed, but for no longer than these took:
   else one batch of eight that takes long may count for all of them. */
static void stats__inline_and_batches_seldom_long__busy_for_no_longer(void) {
    for (long_every = 32; long_every <= 128; long_every += 8) {
        rig r;
        dlp_pipe *p = NULL;
        dlp_batch *b = NULL;
        dlp_stats s;
        stat_rig(&r, 0);
        r.dataset.fetch = seldom_long_fetch;
        r.batch.batch_size = 8;
        r.dataset.n_items = 4000;
        if (!CHECK(rig_start(&r, &p) == DLP_OK)) return;
        const uint64_t begin = test_now_ns();
        while (dlp_pipe_next(p, &b) == DLP_OK) dlp_pipe_release(p, b);
        const uint64_t took = test_now_ns() - begin;
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.items == 4000);
        if (!CHECK(s.stages[2].busy_ns <= took))
            printf("  every %" PRIu64 ": busy %" PRIu64 " of %" PRIu64 "\n", long_every,
                   s.stages[2].busy_ns, took);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* While next waits for threads, an inline stage has nothing to do, and is not busy. */
static void stats__inline_behind_threads__waits_are_no_work(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_stats s;
    uint64_t batches;
    stat_rig(&r, 2);
    item_us = 1000;
    r.has_item_map = 1;
    r.item_map.workers.num_workers = DLP_NONE;
    r.dataset.n_items = 400;
    if (!CHECK(rig_start(&r, &p) == DLP_OK)) return;
    const uint64_t begin = test_now_ns();
    CHECK(rig_drain(p, &batches) == DLP_END);
    const uint64_t took = test_now_ns() - begin;
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.stages[3].items == 400);
    CHECK(s.stages[3].workers == 0 && s.stages[3].busy_ns < took / 4);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

#ifndef _WIN32
/* Share of the time of fetch that it used a core, and that it waited for one. */
static double cores_of(const rig *r, double *waits) {
    rig once = *r;
    dlp_pipe *p = NULL;
    dlp_stats s;
    uint64_t batches;
    if (!CHECK(rig_start(&once, &p) == DLP_OK)) return 0;
    CHECK(rig_drain(p, &batches) == DLP_END && dlp_pipe_stats(p, &s) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    *waits = (double)s.stages[2].core_wait_ns / (double)s.stages[2].busy_ns;
    return (double)s.stages[2].cpu_ns / (double)s.stages[2].busy_ns;
}

/* What an inline stage uses of the cores is measured: where it sleeps, and where it computes. */
static void stats__inline__cores_in_use_are_known(void) {
    for (int burns = 0; burns < 2; burns++) {
        double share = -1, waits = 0;
        int ok = 0;
        for (int tries = 0; tries < 10 && !ok; tries++) {
            rig r;
            stat_rig(&r, 0);
            if (burns) r.dataset.fetch = burning_fetch;
            item_us = 500;
            r.dataset.n_items = 400;
            share = cores_of(&r, &waits);
            CHECK(share >= 0 && share <= 1.01 && waits >= 0 && waits <= 1.01);
            ok = burns ? share + waits > 0.8 && share > 0.1 : share > 0 && share < 0.3;
        }
        if (!CHECK(ok)) printf("  burns %d: %.2f of a core, waits %.2f\n", burns, share, waits);
    }
}

/* Seconds that others than this process have had of the cores, at any priority, other virtual
   machines of the host included. */
static double others_s(void) {
    double user = 0, nice = 0, kernel = 0, stolen = 0;
    FILE *f = fopen("/proc/stat", "r");
    if (f == NULL ||
        fscanf(f, "cpu %lf %lf %lf %*f %*f %*f %*f %lf", &user, &nice, &kernel, &stolen) != 4)
        user = 0;
    if (f != NULL) fclose(f);
    return (user + nice + kernel + stolen) / (double)sysconf(_SC_CLK_TCK) -
           (double)clock() / CLOCKS_PER_SEC;
}

/* The numbers of workers that explain names for an inline stage whose items sleep or compute,
   against what they then give. */
static void foretold_inline(int burns, uint32_t step_us) {
    char text[4096];
    const char *at;
    int tries = 0, ok = 0, quiet = 0;
    for (; tries < 6 && !ok; tries++) {
        double waits = 0, gives[8] = {0}, said[8] = {0}, now, others = others_s();
        const uint64_t begin = test_now_ns();
        int workers[8] = {0}, n = 0;
        rig r;
        stat_rig(&r, 0);
        r.dataset.fetch = burning_fetch;
        r.batch.batch_size = 4;
        r.dataset.n_items = 120;
        item_us = 4000;
        r.fetch.workers.num_workers = dlpi_cpu_count(); /* others may take one of the cores */
        (void)cores_of(&r, &waits);
        r.fetch.workers.num_workers = 0;
        if (!burns) {
            r.dataset.fetch = stat_fetch;
            r.dataset.n_items = 40;
            item_us = 20000; /* of which a busy machine makes 24 ms */
        }
        run_and_explain(&r, step_us, text, sizeof text);
        now = rate;
        at = strstr(text, "set num_workers; ");
        ok = burns && at == NULL && (waits > 0.05 || dlpi_cpu_count() < 2);
        while (at != NULL && n < 8 && (at = strpbrk(at, "0123456789")) != NULL) {
            char *end;
            workers[n] = (int)strtol(at, &end, 10);
            at = strstr(end, "about ") + strlen("about ");
            said[n++] = strtod(at, &end);
            at = strncmp(end, " items/s", 8) == 0 ? end + 8 : end;
            if (at[0] != ',') break;
        }
        for (int k = 0; k < n; k++) {
            r.fetch.workers.num_workers = workers[k];
            r.dataset.n_items = 40 * (uint64_t)(workers[k] < 4 ? 4 : workers[k]);
            run_and_explain(&r, step_us, text, sizeof text);
            gives[k] = rate;
            ok = is_about(said[k], gives[k], 0.25) && (k == 0 || ok);
        }
        ok = ok && (burns || n == (step_us ? 3 : 4));
        others = (others_s() - others) / ((double)(test_now_ns() - begin) / 1e9);
        quiet += waits < 0.05 && others < 0.1;
        for (int k = 0; k < n && (!ok || getenv("STATS_SAY")); k++)
            printf("  burns %d, step %u: inline %.0f, %d workers: foretold %.0f, got %.0f\n", burns,
                   step_us, now, workers[k], said[k], gives[k]);
    }
    if (!ok && quiet < 3)
        printf("  inline, burns %d: not judged, the machine is too busy\n", burns);
    else
        CHECK(ok);
}

static void explain__inline__gives_what_was_foretold(void) {
    foretold_inline(0, 0);
    foretold_inline(0, 30000);
    foretold_inline(1, 0);
}
#endif

/* Counters of batches with work_ns of work that come every all_ns. */
static int says_inline(uint64_t work_ns, uint64_t all_ns, const char *figure) {
    dlp_stats s;
    char text[2000];
    const char *at;
    memset(&s, 0, sizeof s);
    s.batches = 1000;
    s.items = 4000;
    s.step_ns = 100 * s.batches;
    s.wait_ns = s.elapsed_ns = (all_ns - 100) * s.batches;
    s.prefetch_factor = 2;
    s.cpus = 2;
    s.n_stages = 1;
    s.stages[0].kind = DLP_STAGE_FETCH;
    s.stages[0].workers = 1;
    s.stages[0].busy_ns = work_ns * s.batches;
    CHECK(dlp_stats_explain(&s, text, sizeof text) > 0);
    at = strstr(text, "num_workers = 0");
    return at != NULL && strstr(at, figure) != NULL;
}

static void explain__batches_shorter_than_the_way_to_the_consumer__says_what_inline_gives(void) {
    CHECK(says_inline(300, 2000, "every 400 ns"));
    CHECK(!says_inline(1950, 2000, ""));      /* that is what workers are for */
    CHECK(!says_inline(400000, 2000000, "")); /* what is missing here is no core's */
}

int main(void) {
    rig_warm();
    explain__batches_shorter_than_the_way_to_the_consumer__says_what_inline_gives();
    stats__at_the_end__add_up();
    stats__on_the_way__items_are_delivered_or_in_flight();
    stats__sleeping_items__times_and_percentiles();
    worker_stats__callback_blocks__seen_from_another_thread();
    trace__real_run__ordered_and_covering();
    trace__workers_asleep__has_all_items();
    trace__ring_runs_over_while_read__no_torn_event();
    write__real_run__valid_files();
    explain__something_hangs__named();
    stats__one_slow_item__is_the_slowest();
    explain__tell_without_an_end__line_is_cut();
    explain__real_runs__names_the_limit();
    stats__inline__busy_for_no_longer_than_there_was_time();
    stats__inline_and_batches_seldom_long__busy_for_no_longer();
    stats__inline_behind_threads__waits_are_no_work();
#ifndef _WIN32
    explain__one_more_worker__gives_what_was_foretold();
    stats__inline__cores_in_use_are_known();
    explain__inline__gives_what_was_foretold();
#endif
    return test_end("pipe_stats");
}
