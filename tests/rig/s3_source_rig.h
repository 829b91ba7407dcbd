/* What the tests of S3 as a source share: a bucket of objects whose bytes follow from their names,
   a manifest over it, and loaders that read it from the mock server, or those bytes from memory. */
#ifndef S3_SOURCE_RIG_H
#define S3_SOURCE_RIG_H

#include <inttypes.h>
#include <sys/prctl.h>

#include "digest.h"
#include "sources.h"

enum { WORLD = 240, WORLD_ROW = 6000, WORLD_SHARD = 8 };
enum { WORLD_KINDS = 7 }; /* of topology and fetcher */
enum { PARTS = 6, PART_ROW = 500, CHUNK_ROW = 24, CHUNK_LABEL = 4, CHUNK_OBJECTS = 5 };

typedef struct world {
    dlp_s3_manifest *manifest;
    struct {
        char path[64]; /* as the server sees it; "": there is none */
        uint64_t at, n;
    } item[WORLD];
    int gone; /* some objects are not there */
} world;

static inline uint64_t world_size(int i) {
    return i % 50 == 3 ? 0 : 500 + (uint64_t)(i * 37 % 5400);
}

/* Eight kinds of items: whole objects of known and unknown size, with odd keys too; the end of one;
   ranges of shards, neighbours and not. */
static inline void world_item(world *w, int i, char *key, size_t size, dlp_s3_entry *e) {
    const int shard = i / WORLD_SHARD, place = i % WORLD_SHARD;
    uint64_t n = world_size(i);
    *e = (dlp_s3_entry){key, 0, 0, 0, NULL};
    w->item[i].at = 0;
    w->item[i].n = n;
    snprintf(key, size, "k/%d", i);
    snprintf(w->item[i].path, sizeof w->item[i].path, "/photos/k/%d", i);
    if (shard % 2 == 1) { /* 300 bytes each, 40 between them; the last ones far away */
        w->item[i].at = e->offset = (uint64_t)place * 340 + (place > 5 ? 200000 : 0);
        w->item[i].n = e->length = 300;
        snprintf(key, size, "shards/%d", shard);
        snprintf(w->item[i].path, sizeof w->item[i].path, "/photos/shards/%d", shard);
    } else if (place == 1 && n > 0) {
        e->offset = DLP_S3_WHOLE;
        e->length = n;
    } else if (place == 2) {
        snprintf(key, size, "odd/+ %%?\t%d\xc3\xa9", i);
        snprintf(w->item[i].path, sizeof w->item[i].path,
                 "/photos/odd/%%2B%%20%%25%%3F%%09%d%%C3%%A9", i);
    } else if (place == 3 && n > 400) {
        e->offset = w->item[i].at = 400;
        w->item[i].n = n - 400;
    }
    if (w->gone && i % 41 == 7) {
        snprintf(key, size, "gone/%d", i);
        w->item[i].path[0] = 0;
        e->offset = e->length = 0;
    }
}

static inline void world_open(world *w, int gone) {
    char key[64];
    dlp_s3_entry e;
    memset(w, 0, sizeof *w);
    w->gone = gone;
    CHECK(dlp_s3_manifest_open(&w->manifest, NULL) == DLP_OK);
    for (int i = 0; i < WORLD; i++) {
        world_item(w, i, key, sizeof key, &e);
        CHECK(dlp_s3_manifest_add(w->manifest, &e, NULL) == DLP_OK);
    }
}

/* The server's side. */
static inline void world_fill(s3_mock *m) {
    static world w;
    char key[64];
    dlp_s3_entry e;
    for (int i = 0; i < WORLD; i++) {
        int shard = i / WORLD_SHARD % 2;
        world_item(&w, i, key, sizeof key, &e);
        s3_mock_object(m, w.item[i].path, shard ? 210000 : world_size(i));
    }
    for (int i = 0; i < PARTS; i += 2) {
        snprintf(key, sizeof key, "/photos/parts/%d", i);
        s3_mock_object(m, key, (uint64_t)(i + 1) * PART_ROW);
    }
    s3_mock_object(m, "/photos/parts/many", 60000);
    for (int i = 0; i < CHUNK_OBJECTS; i++) {
        snprintf(key, sizeof key, "/photos/rows/%d", i);
        s3_mock_object(m, key, (uint64_t)(i + 1) * 100 * CHUNK_ROW + (i % 2 ? 7 : 0));
    }
    s3_mock_object(m, "/photos/labels", 1500 * CHUNK_LABEL);
}

/* fetch, from memory. */
static inline int world_fetch(void *user, dlp_item *item) {
    const world *w = user;
    const char *path = w->item[item->index].path;
    if (path[0] == 0) return dlp_fail(item->call, 0, "s3://photos/ is not there");
    s3_mock_fill(path, 0, w->item[item->index].at, item->data[0], w->item[item->index].n);
    item->length[0] = w->item[item->index].n;
    return 0;
}

static const dlp_field world_field = {"bytes", DLP_U8, 1, {WORLD_ROW}, 1, 0};

/* A loader's way to fetch, 0..WORLD_KINDS - 1. */
static inline void world_kind(dlp_loader_desc *d, int kind) {
    static const struct {
        int topology, fetcher;
    } of[WORLD_KINDS] = {{DLP_TOPOLOGY_ECONOMIC, DLP_FETCH_SEQUENTIAL},
                         {DLP_TOPOLOGY_ECONOMIC, DLP_FETCH_THREADS},
                         {DLP_TOPOLOGY_ECONOMIC, DLP_FETCH_ASYNC},
                         {DLP_TOPOLOGY_CLASSIC, DLP_FETCH_SEQUENTIAL},
                         {DLP_TOPOLOGY_CONCURRENT, DLP_FETCH_SEQUENTIAL},
                         {DLP_TOPOLOGY_CONCURRENT, DLP_FETCH_THREADS},
                         {DLP_TOPOLOGY_CONCURRENT, DLP_FETCH_ASYNC}};
    d->topology = of[kind].topology;
    d->fetcher = of[kind].fetcher;
    d->in_flight = d->fetcher ? 8 : 0;
}

static inline dlp_loader_desc world_loader(void) {
    dlp_loader_desc d;
    memset(&d, 0, sizeof d);
    d.batch_size = 12;
    d.num_workers = 2;
    d.shuffle = 1;
    d.drop_last = DLP_LAST_PARTIAL;
    d.seed = 5;
    return d;
}

static inline void world_memory(dlp_loader_desc *d, world *w) {
    d->num_workers = 0;
    d->dataset = (dlp_dataset){
        .n_items = WORLD, .fields = &world_field, .n_fields = 1, .fetch = world_fetch, .user = w};
}

static inline dlp_source *world_source(const world *w, dlp_s3 *s3) {
    dlp_s3_source_desc d = {.s3 = s3,
                            .bucket = "photos",
                            .manifest = w->manifest,
                            .fields = &world_field,
                            .n_fields = 1};
    dlp_source *source = NULL;
    dlp_s3_error err;
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_OK);
    return source;
}

/* What came out of a pipe. */
typedef struct outcome {
    int rc, n;
    uint64_t of[128], skips, restarts;
    dlp_error err;
} outcome;

/* Take all of a pipe, or most batches of it, and close it. */
static inline void outcome_take(dlp_pipe *p, int most, outcome *out) {
    dlp_batch *b;
    while (out->n < most && (out->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (out->n < 128) out->of[out->n] = digest_batch(b);
        out->n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    out->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_skips(p, NULL, 0, &out->skips) == 0);
    out->restarts = inside_restarts(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static inline void outcome_run(const dlp_loader_desc *d, outcome *out) {
    dlp_pipe *p = NULL;
    memset(out, 0, sizeof *out);
    out->rc = dlp_loader_open(&p, d, &out->err);
    CHECK(out->rc == DLP_OK);
    if (p) outcome_take(p, 1000, out);
}

static inline int outcome_same(const outcome *a, const outcome *b, const char *what, int kind) {
    char text[700];
    int same = a->rc == b->rc && a->n == b->n && memcmp(a->of, b->of, sizeof a->of) == 0 &&
               a->skips == b->skips;
    if (same) return 1;
    dlp_error_format(&a->err, text, sizeof text);
    printf("  %s, kind %d: rc %d, %d batches, %d skips; not rc %d, %d, %d: %s\n", what, kind, a->rc,
           a->n, (int)a->skips, b->rc, b->n, (int)b->skips, text);
    return 0;
}

/* ---- parts, chunks ---- */

/* Part i has i + 1 items. Those of odd numbers are ranges of one object, others whole ones. */
static inline void parts_entry(int i, char *key, size_t size, dlp_s3_entry *e) {
    uint64_t n = (uint64_t)(i + 1) * PART_ROW;
    snprintf(key, size, i % 2 ? "parts/many" : "parts/%d", i);
    *e = (dlp_s3_entry){key, i % 2 ? (uint64_t)i * 5000 : DLP_S3_WHOLE, n, (uint64_t)i + 1, NULL};
}

static inline dlp_s3_manifest *parts_manifest(void) {
    dlp_s3_manifest *m = NULL;
    char key[32];
    dlp_s3_entry e;
    CHECK(dlp_s3_manifest_open(&m, NULL) == DLP_OK);
    for (int i = 0; i < PARTS; i++) {
        parts_entry(i, key, sizeof key, &e);
        CHECK(dlp_s3_manifest_add(m, &e, NULL) == DLP_OK);
    }
    return m;
}

/* load, from memory. */
static inline int parts_memory(void *user, dlp_part *part) {
    char key[32], path[64];
    dlp_s3_entry e;
    (void)user;
    parts_entry((int)part->index, key, sizeof key, &e);
    snprintf(path, sizeof path, "/photos/%s", key);
    s3_mock_fill(path, 0, e.offset == DLP_S3_WHOLE ? 0 : e.offset, part->data, e.length);
    part->bytes = e.length;
    return 0;
}

static inline int parts_fetch(void *user, dlp_item *item) {
    (void)user;
    if (item->part->bytes != item->part->items * PART_ROW)
        return dlp_fail(item->call, 0, "the part has %d bytes", (int)item->part->bytes);
    memcpy(item->data[0], (const uint8_t *)item->part->data + item->part->item * PART_ROW,
           PART_ROW);
    return 0;
}

static const dlp_field parts_field = {"bytes", DLP_U8, 1, {PART_ROW}, 0, 0};

static inline dlp_loader_desc parts_desc(const uint64_t *items) {
    dlp_loader_desc d;
    d = (dlp_loader_desc){.batch_size = 4,
                          .num_workers = 2,
                          .shuffle = 1,
                          .epochs = 2,
                          .pipe = {.streams = 2},
                          .dataset = {.fields = &parts_field, .n_fields = 1, .fetch = parts_fetch}};
    d.parts = (dlp_node_load){.n_parts = PARTS,
                              .items = items,
                              .max_part_bytes = PARTS * PART_ROW,
                              .load = parts_memory,
                              .workers = {.num_workers = 2}};
    return d;
}

static inline void parts_run(const dlp_loader_desc *d, outcome *out) {
    dlp_pipe *p = NULL;
    memset(out, 0, sizeof *out);
    out->rc = dlp_loader_open(&p, d, &out->err);
    CHECK(out->rc == DLP_OK);
    if (p) outcome_take(p, 1000, out);
}

/* Rows of a chunk: objects of 100, 200, .. rows; field 1 out of an object of its own. */
static inline dlp_s3_manifest *chunks_manifest(int field) {
    dlp_s3_manifest *m = NULL;
    CHECK(dlp_s3_manifest_open(&m, NULL) == DLP_OK);
    for (int i = 0; i < (field ? 1 : CHUNK_OBJECTS); i++) {
        char key[32];
        dlp_s3_entry e = {key, i % 2 ? 7 : DLP_S3_WHOLE, (uint64_t)(i + 1) * 100 * CHUNK_ROW, 0,
                          NULL};
        snprintf(key, sizeof key, field ? "labels" : "rows/%d", i);
        if (field) e.length = 1500 * CHUNK_LABEL;
        CHECK(dlp_s3_manifest_add(m, &e, NULL) == DLP_OK);
    }
    return m;
}

static inline void chunks_row(uint64_t row, uint8_t *out) {
    char path[64];
    uint64_t i = 0;
    while (row >= (i + 1) * 100) row -= ++i * 100;
    snprintf(path, sizeof path, "/photos/rows/%d", (int)i);
    s3_mock_fill(path, 0, (i % 2 ? 7 : 0) + row * CHUNK_ROW, out, CHUNK_ROW);
}

/* load, from memory. */
static inline int chunks_first(void *user, dlp_chunk *c) {
    (void)user;
    for (uint64_t k = 0; k < c->count; k++)
        chunks_row(dlp_chunk_row(c, k), (uint8_t *)c->data[0] + k * CHUNK_ROW);
    return 0;
}

static inline int chunks_memory(void *user, dlp_chunk *c) {
    for (uint64_t k = 0; k < c->count; k++)
        s3_mock_fill("/photos/labels", 0, dlp_chunk_row(c, k) * CHUNK_LABEL,
                     (uint8_t *)c->data[1] + k * CHUNK_LABEL, CHUNK_LABEL);
    return chunks_first(user, c);
}

static const dlp_field chunks_fields[2] = {{"rows", DLP_U8, 1, {CHUNK_ROW}, 0, 0},
                                           {"label", DLP_U32, 0, {0}, 0, 0}};

static inline dlp_chunks_desc chunks_desc(int shuffled, uint32_t world_size) {
    dlp_chunks_desc d;
    memset(&d, 0, sizeof d);
    d.n_items = 1500;
    d.fields = chunks_fields;
    d.n_fields = 2;
    d.chunk_rows = 390;
    d.batch_size = 60;
    d.shuffle_chunks = d.shuffle_rows = shuffled;
    d.load = chunks_memory;
    d.workers.num_workers = 2;
    d.epochs = 2;
    d.pipe.world_size = world_size;
    d.pipe.rank = world_size ? world_size - 1 : 0;
    return d;
}

/* load, of both fields. user: their sources. */
static inline int chunks_both(void *user, dlp_chunk *c) {
    dlp_source *const *s = user;
    int rc = dlp_s3_chunk_read(s[0], c, 0);
    return rc ? rc : dlp_s3_chunk_read(s[1], c, 1);
}

static inline dlp_source *chunks_source(dlp_s3 *s3, const dlp_s3_manifest *m, int field) {
    dlp_s3_source_desc d = {.s3 = s3,
                            .bucket = "photos",
                            .manifest = m,
                            .in_flight = 4,
                            .row_bytes = field ? CHUNK_LABEL : CHUNK_ROW,
                            .joint_bytes = 2000,
                            .gap_bytes = field ? DLP_NONE : 100};
    dlp_source *source = NULL;
    dlp_s3_error err;
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_OK);
    return source;
}

static inline void chunks_run(const dlp_chunks_desc *d, outcome *out) {
    dlp_pipe *p = NULL;
    memset(out, 0, sizeof *out);
    out->rc = dlp_chunks_open(&p, d, &out->err);
    CHECK(out->rc == DLP_OK);
    if (p) outcome_take(p, 1000, out);
}

/* A day on which all goes wrong: answers come after 30 ms, and 503 where more than 100 requests a
   second are made. */
static int world_hard; /* atomic, the server's */

static inline void world_script(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    static uint64_t second, asked;
    const uint64_t now = test_now_ns() / 1000000000u;
    (void)user;
    (void)q;
    if (!__atomic_load_n(&world_hard, __ATOMIC_RELAXED)) return;
    if (now != second) asked = 0;
    second = now;
    r->delay_ms = 30;
    if (++asked > 100) r->status = 503;
}

enum { WORLD_HARD = 'h', WORLD_EASY = 'e', WORLD_AWAY = 'a', WORLD_BACK = 'b' };

/* To a world's server. */
static inline void world_tell(int end, char what) { CHECK(write(end, &what, 1) == 1); }

static inline void world_hear(s3_mock *m, char what) {
    if (what == WORLD_AWAY) s3_mock_away(m, S3_MOCK_REFUSE);
    if (what == WORLD_BACK) s3_mock_away(m, S3_MOCK_KEEP);
    if (what == WORLD_HARD || what == WORLD_EASY)
        __atomic_store_n(&world_hard, what == WORLD_HARD, __ATOMIC_RELAXED);
}

/* Like s3_mock_start, in a process of its own, which ends with this one or when *end is closed: for
   pipes whose workers are processes, and want a parent without threads. */
static inline void world_server(char *url, size_t size, int *end) {
    int up[2], down[2];
    CHECK(pipe(up) == 0 && pipe(down) == 0);
    if (fork() == 0) {
        s3_mock *m;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(up[0]);
        close(down[1]);
        m = s3_mock_start();
        m->script = world_script;
        world_fill(m);
        if (write(up[1], m->url, strlen(m->url) + 1) < 0) _exit(1);
        while (read(down[0], url, 1) > 0) world_hear(m, url[0]);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    CHECK(read(up[0], url, size) > 0);
    close(up[0]);
    *end = down[1];
}

/* hedge_percent: -1 where requests are counted: on a busy machine the server may be slow. */
static inline dlp_s3 *world_client(const char *url, int hedge_percent) {
    dlp_s3_desc d = {.endpoint = url,
                     .access_key = "AKIDEXAMPLE",
                     .secret_key = "secret",
                     .hedge_percent = hedge_percent};
    dlp_s3_error err;
    dlp_s3 *s3 = NULL;
    CHECK(dlp_s3_open(&s3, &d, &err) == DLP_OK);
    return s3;
}

#endif
