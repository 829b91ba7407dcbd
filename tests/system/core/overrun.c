/* needs: parts split */
/* DLPIPE_DEBUG: each kind of callback, wherever it runs, writes past or before what it was given,
   and is named; what was released is overwritten; who keeps to its row gives the same bytes. */
/* own: hook: another one, with DLPIPE_DEBUG */
#define DLPIPE_DEBUG
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/parts_rig.h"
#include "../../rig/shm_rig.h"

#define WRONG 77u /* the item, or item of the batch, at which it happens */

/* How far a stray write goes from the field's end; negative: from its beginning. */
static const int far[] = {1, 200, -1, -200};
enum { FARS = sizeof far / sizeof *far };

typedef struct culprit {
    int field, by; /* by 0: nobody is one */
    int rc;        /* what it returns then */
    uint64_t bytes[2];
} culprit;
static culprit now; /* set before a pipe starts */

/* The byte is changed, whatever it was. */
static void stray(void *const *data, int by) {
    uint8_t *at = data[now.field];
    at[by > 0 ? (int64_t)now.bytes[now.field] + by - 1 : (int64_t)by] ^= 0x40;
}

static int bad_item(dlp_item *it, int rc) {
    if (rc != 0 || now.by == 0 || it->index != WRONG) return rc;
    stray(it->data, now.by);
    return now.rc;
}
/* What is left of its item is of no use to anybody. */
static int bad_fetch(void *user, dlp_item *it) {
    int rc = bad_item(it, rig_fetch(user, it));
    memset(it, 0, sizeof *it);
    return rc;
}
static int bad_map(void *user, dlp_item *it) { return bad_item(it, rig_item_map(user, it)); }

static int has_wrong(const dlp_batch *b) {
    for (uint32_t r = 0; r < b->count; r++)
        if (b->index[r] == WRONG) return 1;
    return 0;
}
static int bad_batch(void *user, dlp_batch *b, void *state) {
    void *data[2] = {b->fields[0].data, b->fields[1].data};
    rig_batch_map(user, b, state);
    if (now.by == 0 || !has_wrong(b)) return 0;
    stray(data, now.by);
    return now.rc;
}

/* What dlp_collate_pad does, into batches of the same fields. */
static int bad_collate(void *user, dlp_collate *c) {
    void *data[2] = {c->out[0].data, c->out[1].data};
    int rc = dlp_collate_pad(user, c);
    for (uint32_t r = 0; r < c->count && rc == 0; r++)
        if (c->index[r] == WRONG && now.by != 0) {
            stray(data, now.by);
            rc = now.rc;
        }
    return rc;
}

/* An asynchronous source that has done all it was given when it is asked. */
enum { ROOM = 8 };
typedef struct room {
    dlp_item *item[ROOM];
    int n;
} room;
static int room_init(void *user, int worker, void **state) {
    (void)user;
    (void)worker;
    *state = calloc(1, sizeof(room));
    return *state == NULL;
}
static void room_exit(void *user, int worker, void *state) {
    (void)user;
    (void)worker;
    free(state);
}
static int room_submit(void *user, void *state, dlp_item *it) {
    room *s = state;
    (void)user;
    if (s->n == ROOM) return DLP_FULL;
    s->item[s->n++] = it;
    return 0;
}
static int room_reap(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    room *s = state;
    int n = 0;
    (void)ms;
    while (n < max && s->n > 0) {
        done[n] = s->item[--s->n];
        code[n] = bad_fetch(user, done[n]);
        n++;
    }
    return n;
}

enum { INLINE, THREADED, PROCESSES };
static int places = PROCESSES + 1; /* PROCESSES where there are none */
enum { PLAIN, BY_THREADS, BY_ASYNC, FETCHERS };
enum { FETCH, MAP, BATCH_MAP, COLLATE, KINDS };
static const char *const who[KINDS] = {"fetch", "map", "batch map", "batch"};

/* All kinds have all the stages, so that who is named is not the only one. */
static void one_init(rig *r, int kind, int place, int fetcher) {
    rig_init(r, 200, 16);
    rig_order(r, DLP_ORDER_SHUFFLED);
    r->n_item_maps = 1;
    r->n_batch_maps = 1;
    r->batch_map[0].name = "batch map";
    if (place == PROCESSES)
        shm_processes(r, 2, DLP_DISPATCH_CLAIM);
    else
        rig_workers(r, place == THREADED ? 2 : 0, DLP_DISPATCH_CLAIM);
    if (fetcher != PLAIN) r->fetcher = fetcher == BY_ASYNC ? DLP_FETCH_ASYNC : DLP_FETCH_THREADS;
    if (fetcher != PLAIN) r->in_flight = 4;
    r->dataset.fetch = fetcher == BY_ASYNC ? NULL : kind == FETCH ? bad_fetch : rig_fetch;
    if (fetcher == BY_ASYNC) {
        r->async.submit = room_submit;
        r->async.reap = room_reap;
        r->fetch.worker_init = room_init;
        r->fetch.worker_exit = room_exit;
    }
    if (kind == MAP) r->item_map[0].map.item = bad_map;
    if (kind == BATCH_MAP) r->batch_map[0].map.batch = bad_batch;
    if (kind == COLLATE) {
        r->batch.collate = bad_collate;
        r->batch_by.num_workers = place == INLINE ? DLP_NONE : 2;
    }
}

/* What a stray write of `by` bytes is said to be. */
static void said_of(char *text, size_t size, const char *stage, const char *field, int by,
                    const char *what, uint64_t number) {
    int n = by < 0 ? -by : by;
    snprintf(text, size, "%s wrote %d byte%s %s field \"%s\" of %s %d", stage, n, n == 1 ? "" : "s",
             by < 0 ? "before" : "past", field, what, (int)number);
}

/* Run it to its end; batches until then are as they should be. */
static int drain(rig *r, dlp_pipe *p, uint64_t *n) {
    uint64_t per_epoch = rig_batches(r);
    dlp_batch *b;
    int rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        CHECK(rig_batch_same(r, b, *n / per_epoch, *n % per_epoch));
        CHECK(b->sequence == *n);
        ++*n;
        dlp_pipe_release(p, b);
    }
    return rc;
}

static uint64_t batch_of_wrong(rig *r) {
    for (uint64_t i = 0;; i++)
        if (rig_index(r, 0, i) == WRONG) return i / r->batch.batch_size;
}

static void run_wrong(rig *r, int kind) {
    const char *const names[2] = {"words", "label"};
    uint64_t n = 0, at = batch_of_wrong(r);
    char text[200];
    dlp_pipe *p;
    if (rig_open(r, &p) == DLP_OK) {
        const dlp_error *e = dlp_pipe_error(p);
        int rc = drain(r, p, &n);
        said_of(text, sizeof text, who[kind], names[now.field], now.by,
                kind == FETCH || kind == MAP ? "item" : "batch",
                kind == FETCH || kind == MAP ? WRONG : at);
        CHECK(rc == DLP_ERR_CORRUPT && n == at);
        CHECK(strcmp(e->message, text) == 0 && strcmp(e->stage, who[kind]) == 0);
        CHECK(strcmp(e->field, names[now.field]) == 0);
        if (kind == FETCH || kind == MAP) CHECK(e->has_item && e->index == WRONG);
        if (strcmp(e->message, text) != 0) printf("want: %s\n", text), rig_say(p, rc);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    rig_free(r);
}

static void set_now(rig *r, int kind, int field, int by) {
    uint64_t rows = kind == FETCH || kind == MAP ? 1 : r->batch.batch_size;
    memset(&now, 0, sizeof now);
    now.field = field;
    now.by = by;
    now.bytes[0] = 24 * rows;
    now.bytes[1] = 4 * rows;
}

static void callback__writes_outside_its_field__named(void) {
    for (int place = 0; place < places; place++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; i < 2 * FARS; i++) {
                rig r;
                if (place == PROCESSES && i % 4 != 0) continue;
                one_init(&r, kind, place, PLAIN);
                set_now(&r, kind, i % 2, far[i / 2]);
                run_wrong(&r, kind);
            }
}

static void fetcher__writes_outside_its_field__named(void) {
    for (int place = THREADED; place < places; place++)
        for (int fetcher = BY_THREADS; fetcher < FETCHERS; fetcher++)
            for (int i = 0; i < 2 * FARS; i++) {
                rig r;
                if (place == PROCESSES && i % 4 != 0) continue;
                one_init(&r, FETCH, place, fetcher);
                set_now(&r, FETCH, i % 2, far[i / 2]);
                run_wrong(&r, FETCH);
            }
}

/* It is no failure of the item's that the error policy could deal with. */
static void policy__replaces_or_retries__raised_all_the_same(void) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int rc = 0; rc < 3; rc++) {
            static const int codes[] = {0, DLP_SKIP, -5};
            rig r;
            one_init(&r, kind, THREADED, kind == FETCH && rc == 1 ? BY_ASYNC : PLAIN);
            set_now(&r, kind, 0, 5);
            now.rc = codes[rc];
            r.fetch.retries = r.item_map[0].workers.retries = r.batch_by.retries = 3;
            r.batch_map[0].workers.retries = 3;
            r.fetch.on_error = rc == 1 ? DLP_ON_ERROR_DROP : DLP_ON_ERROR_REPLACE;
            r.item_map[0].workers.on_error = r.fetch.on_error;
            run_wrong(&r, kind);
        }
}

static void callback__keeps_to_its_row__same_bytes(void) {
    for (int place = 0; place < places; place++)
        for (int fetcher = 0; fetcher < FETCHERS; fetcher++)
            for (int kind = 0; kind < KINDS; kind += COLLATE) {
                rig r;
                dlp_pipe *p;
                uint64_t n = 0;
                if (fetcher != PLAIN && place == INLINE) continue;
                one_init(&r, kind, place, fetcher);
                memset(&now, 0, sizeof now);
                r.pipe.epochs = 2;
                r.dataset.writes_all_bytes = kind == FETCH;
                if (rig_open(&r, &p) == DLP_OK) {
                    int rc = drain(&r, p, &n);
                    CHECK(rc == DLP_END && n == 2 * rig_batches(&r));
                    if (rc != DLP_END) rig_say(p, rc);
                    dlp_pipe_close(p);
                }
                rig_free(&r);
            }
}

/* ---- ragged fields: the maximum is the end ---- */

static int ragged_fetch(void *user, dlp_item *it) {
    uint8_t *at = it->data[0];
    uint64_t n = it->index % 7;
    (void)user;
    if (now.by != 0 && it->index == WRONG) n = 7; /* the most are 6 */
    memset(at, (int)it->index, n);
    it->length[0] = n < 7 ? n : 6;
    return 0;
}

static void ragged__one_past_the_maximum__named(void) {
    static const dlp_field field = {"tokens", DLP_U8, 1, {6}, 1, 0};
    for (now.by = 0; now.by < 2; now.by++) {
        dlp_loader_desc d;
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        memset(&d, 0, sizeof d);
        d.dataset.n_items = 200;
        d.dataset.fields = &field;
        d.dataset.n_fields = 1;
        d.dataset.fetch = ragged_fetch;
        d.batch_size = 16;
        d.num_workers = 2;
        d.collate = dlp_collate_pack;
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == (now.by ? DLP_ERR_CORRUPT : DLP_END));
        if (now.by)
            CHECK(strcmp(dlp_pipe_error(p)->message,
                         "fetch wrote 1 byte past field \"tokens\" of item 77") == 0);
        dlp_pipe_close(p);
    }
}

/* Writes `by` bytes behind the length that it sets, and within its room. */
static int behind_fetch(void *user, dlp_item *it) {
    const uint64_t n = 10 + it->index % 50, by = it->index == WRONG ? (uint64_t)now.by : 0;
    (void)user;
    memset(it->data[0], 1 + (int)(it->index % 100), n + by);
    it->length[0] = n;
    return 0;
}
static int shorter_map(void *user, dlp_item *it) {
    (void)user;
    it->length[0] /= 2;
    return 0;
}

static void ragged__behind_its_length__named(void) {
    static const dlp_field field = {"tokens", DLP_U8, 1, {1000}, 1, 0};
    for (int k = 0; k < 12; k++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        rig_init(&r, 200, 16);
        rig_workers(&r, k & 1 ? 2 : 0, DLP_DISPATCH_CLAIM);
        now.by = k / 4 == 2 ? 0 : k / 4 == 1 ? 300 : 1;
        r.dataset.fields = &field;
        r.dataset.n_fields = 1;
        r.dataset.fetch = behind_fetch;
        r.dataset.writes_all_bytes = k / 2 & 1;
        r.pipe.epochs = 2;
        r.n_item_maps = 1;
        r.item_map[0].map.item = shorter_map;
        if (k & 1) r.fetcher = DLP_FETCH_THREADS, r.in_flight = 3;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == (now.by ? DLP_ERR_CORRUPT : DLP_END));
        if (now.by)
            CHECK(strcmp(dlp_pipe_error(p)->message,
                         now.by == 1
                             ? "fetch wrote 1 byte behind the length 37 of field \"tokens\" of "
                               "item 77"
                             : "fetch wrote 300 bytes behind the length 37 of field \"tokens\" of "
                               "item 77") == 0);
        if (now.by) CHECK(strcmp(dlp_pipe_error(p)->field, "tokens") == 0);
        dlp_pipe_close(p);
    }
    now.by = 0;
}

/* ---- several at once, by threads or by requests that are answered at once ---- */

static int not_clear_;

static int clear_fetch(void *user, dlp_item *it) {
    uint64_t *x = it->data[0];
    (void)user;
    if (*x != 0) __atomic_add_fetch(&not_clear_, 1, __ATOMIC_RELAXED);
    *x = it->index + 1;
    memset(it->data[1], 7, 5);
    it->length[1] = 5;
    return 0;
}
static int any_item(void *user, dlp_item *it) { return (void)user, (void)it, 0; }
static int shorten(void *user, dlp_item *it) {
    (void)user;
    it->length[1] = 2;
    return 0;
}

static _Thread_local struct {
    dlp_item *item[4];
    int n;
} out_;

static int ask(void *user, void *state, dlp_item *it) {
    (void)user, (void)state;
    if (out_.n == 4) return DLP_FULL;
    out_.item[out_.n++] = it;
    return 0;
}
static int answers(void *user, void *state, dlp_item **done, int *code, int most, int timeout_ms) {
    int n = 0;
    (void)state, (void)timeout_ms;
    for (; out_.n > 0 && n < most; n++) {
        done[n] = out_.item[--out_.n];
        code[n] = clear_fetch(user, done[n]);
    }
    return n;
}

/* A fetch finds zeros, and a row behind it may shorten a field: no byte is out of place. */
static void fetches_at_once__keep_to_their_rows__no_overrun(void) {
    static const dlp_field fields[] = {{"x", DLP_U64, 0, {0}, 0, 0}, {"t", DLP_U8, 1, {9}, 1, 0}};
    static const dlp_async async = {ask, answers};
    for (int k = 0; k < 4; k++) {
        const dlp_node nodes[] = {
            {.name = "items", .verb = DLP_LIST, .list = {.n_items = 200, .shuffle = 1}},
            {.name = "read",
             .verb = DLP_FETCH,
             .fetch = {.fetch = k & 1 ? NULL : clear_fetch,
                       .async = k & 1 ? &async : NULL,
                       .in_flight = 4,
                       .fields = fields,
                       .n_fields = 2},
             .workers = {.num_workers = 2}},
            {.name = "cut", .verb = DLP_MAP, .map = {.item = k & 2 ? shorten : any_item}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}}};
        dlp_pipe *p = NULL;
        dlp_batch *b;
        int rc;
        not_clear_ = 0;
        CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.epochs = 3}, NULL) == DLP_OK);
        if (p == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_END && not_clear_ == 0);
        if (rc != DLP_END) printf("  %d: %s\n", k, dlp_pipe_error(p)->message);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int past_mark(void *user, dlp_item *it) {
    (void)user;
    if (it->index == WRONG) ((uint8_t *)it->data[1])[4] ^= 0x40;
    return 0;
}

static void row__in_the_attempt_of_another_writes_outside__all_rows_named(void) {
    static const dlp_field field = {"tokens", DLP_U8, 1, {6}, 1, 0};
    static const dlp_field mark = {"mark", DLP_U32, 0, {0}, 0, 0};
    const dlp_node nodes[] = {{.name = "items", .verb = DLP_LIST, .list = {.n_items = 200}},
                              {.name = "read",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = ragged_fetch, .fields = &field, .n_fields = 1},
                               .workers = {.num_workers = 1}},
                              {.name = "marks",
                               .verb = DLP_MAP,
                               .map = {.item = past_mark, .fields = &mark, .n_fields = 1}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 16}}};
    dlp_pipe *p;
    dlp_batch *b;
    int rc;
    now.by = 0;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    CHECK(rc == DLP_ERR_CORRUPT && strcmp(dlp_pipe_error(p)->field, "mark") == 0);
    CHECK(strcmp(dlp_pipe_error(p)->message,
                 "read, marks wrote 1 byte past field \"mark\" of item 77") == 0);
    dlp_pipe_close(p);
}

/* ---- chunks and parts ---- */

static int bad_load(void *user, dlp_chunk *c) {
    uint64_t *words = c->data[0];
    uint32_t *label = c->data[1];
    (void)user;
    for (uint64_t k = 0; k < c->count; k++) {
        label[k] = (uint32_t)dlp_chunk_row(c, k);
        for (int i = 0; i < 3; i++) words[3 * k + (uint64_t)i] = label[k];
    }
    if (now.by != 0 && c->index == 3) stray(c->data, now.by);
    return 0;
}

static void chunk_desc(dlp_chunks_desc *d, int place) {
    memset(d, 0, sizeof *d);
    d->fields = rig_fields;
    d->n_fields = 2;
    d->n_items = 200;
    d->chunk_rows = 32;
    d->batch_size = 8;
    d->load = bad_load;
    d->workers.num_workers = place == INLINE ? DLP_NONE : 2;
    if (place == PROCESSES) d->workers.placement = DLP_PLACE_PROCESSES;
}

static void chunk__load_writes_outside__named(void) {
    for (int i = 0; i < 2 * FARS * places; i++) {
        dlp_chunks_desc d;
        char text[200];
        dlp_pipe *p;
        dlp_batch *b;
        int n = 0, rc;
        memset(&now, 0, sizeof now);
        now.field = i % 2;
        now.by = far[i / 2 % FARS];
        now.bytes[0] = 32 * 24;
        now.bytes[1] = 32 * 4;
        chunk_desc(&d, i / (2 * FARS));
        d.preload = i % 3 == 0 ? DLP_PRELOAD_CPU : 0;
        CHECK(dlp_chunks_open(&p, &d, NULL) == DLP_OK);
        for (; (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK; n++) {
            const uint32_t *label = b->fields[1].data;
            for (uint32_t r = 0; r < b->count; r++) CHECK(label[r] == (uint32_t)b->index[r]);
            dlp_pipe_release(p, b);
        }
        said_of(text, sizeof text, "load", rig_fields[now.field].name, now.by, "chunk", 3);
        CHECK(rc == DLP_ERR_CORRUPT && n == 12);
        CHECK(strcmp(dlp_pipe_error(p)->message, text) == 0);
        if (strcmp(dlp_pipe_error(p)->message, text) != 0) rig_say(p, rc);
        dlp_pipe_close(p);
    }
}

static int bad_part(void *user, dlp_part *part) {
    uint8_t *at = part->data;
    int rc = parts_load(user, part);
    if (now.by == 0 || part->index != 2) return rc;
    if (now.by > 0)
        at[part->capacity + (uint64_t)now.by - 1] ^= 0x40;
    else
        *(at + now.by) ^= 0x40;
    return now.rc ? now.rc : rc;
}

static void part__load_writes_outside__named(void) {
    for (int place = 0; place < places; place++)
        for (int i = 0; i < 2 * FARS; i++) {
            static const uint64_t items[] = {40, 41, 39, 42, 38};
            parts_seen *seen = shm_shared(sizeof *seen);
            parts_rig r;
            char text[200];
            dlp_pipe *p;
            dlp_batch *b;
            int rc, by = far[i / 2];
            parts_init(&r, seen, 5, items);
            memset(&now, 0, sizeof now);
            now.by = by;
            now.rc = i % 2 ? -3 : 0;
            r.d.parts.load = bad_part;
            r.d.parts.workers.num_workers = r.d.num_workers = place == INLINE ? DLP_NONE : 2;
            if (i % 2) r.d.parts.workers.on_error = DLP_ON_ERROR_DROP;
            r.d.parts.workers.retries = 2;
            if (place == PROCESSES)
                r.d.parts.workers.placement = r.d.workers.placement = DLP_PLACE_PROCESSES;
            CHECK(dlp_loader_open(&p, &r.d, NULL) == DLP_OK);
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
            snprintf(text, sizeof text, "part 2: parts wrote %d byte%s %s the bytes of part 2",
                     abs(by), abs(by) == 1 ? "" : "s", by < 0 ? "before" : "past");
            CHECK(rc == DLP_ERR_CORRUPT && strcmp(dlp_pipe_error(p)->message, text) == 0);
            if (strcmp(dlp_pipe_error(p)->message, text) != 0) rig_say(p, rc);
            dlp_pipe_close(p);
            munmap(seen, sizeof *seen);
        }
}

/* ---- what was released ---- */

/* Does every byte say so? Under the address sanitizer a look would be its report. */
static int poisoned(const uint8_t *at, uint64_t n) {
#if DLPI_ASAN
    for (uint64_t i = 8; i + 8 < n; i++)
        if (!__asan_address_is_poisoned(at + i)) return 0;
    return n > 16;
#else
    for (uint64_t i = 0; i < n; i++)
        if (at[i] != DLPI_POISON) return 0;
    return n > 0;
#endif
}

static void batch__released__poisoned_until_it_is_used_again(void) {
    for (int kind = FETCH; kind < KINDS; kind += COLLATE) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t k = 0;
        one_init(&r, kind, INLINE, PLAIN);
        memset(&now, 0, sizeof now);
        if (rig_open(&r, &p) != DLP_OK) return;
        for (; dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; k++) {
            const uint8_t *words = b->fields[0].data, *label = b->fields[1].data;
            uint64_t n = b->fields[0].bytes, m = b->fields[1].bytes;
            CHECK(rig_batch_same(&r, b, 0, k));
            CHECK(!poisoned(words, n));
            dlp_pipe_release(p, b);
            CHECK(poisoned(words, n) && poisoned(label, m));
        }
        CHECK(k == rig_batches(&r));
        dlp_pipe_close(p);
        rig_free(&r);
    }
}

static void view__released__poisoned_and_its_neighbours_not(void) {
    dlp_chunks_desc d;
    dlp_pipe *p;
    dlp_batch *b, *c;
    int n = 0;
    memset(&now, 0, sizeof now);
    chunk_desc(&d, INLINE);
    d.n_items = 192; /* an even number of views */
    d.pipe.max_held = 2;
    CHECK(dlp_chunks_open(&p, &d, NULL) == DLP_OK);
    for (; dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK &&
           dlp_pipe_next_timeout(p, &c, 20000) == DLP_OK;
         n++) {
        const uint8_t *words = b->fields[0].data;
        const uint32_t *label = c->fields[1].data;
        dlp_pipe_release(p, b);
        CHECK(poisoned(words, 8 * 24));
        for (uint32_t r = 0; r < c->count; r++) CHECK(label[r] == (uint32_t)c->index[r]);
        dlp_pipe_release(p, c);
    }
    CHECK(n == 12);
    dlp_pipe_close(p);
}

/* ---- the plan ---- */

static void plan__guarded_cells__have_a_line(void) {
    for (int fetcher = 0; fetcher < FETCHERS; fetcher++) {
        rig r;
        dlp_pipe *p;
        dlp_plan plan;
        uint64_t sum = 0, cells = 0;
        one_init(&r, FETCH, THREADED, fetcher);
        CHECK(rig_wire(&r, &p, NULL) == DLP_OK && dlp_pipe_plan(p, &plan) == DLP_OK);
        for (uint32_t i = 0; i < plan.n_lines; i++) {
            sum += plan.lines[i].bytes;
            if (strcmp(plan.lines[i].what, "guarded cells") == 0) cells = plan.lines[i].count;
        }
        /* two fetch workers, each with 4 items out and 64 parked, and two of the map */
        CHECK(cells == (fetcher == PLAIN ? 4 : 2 * 4 + 2));
        CHECK(sum == plan.total_bytes && sum == p->plan_bytes);
        dlp_pipe_close(p);
        rig_free(&r);
    }
}

int main(void) {
    const char *missing = shm_missing();
    if (missing) places = PROCESSES;
    if (missing) printf("without worker processes: %s\n", missing);
    callback__writes_outside_its_field__named();
    fetcher__writes_outside_its_field__named();
    policy__replaces_or_retries__raised_all_the_same();
    callback__keeps_to_its_row__same_bytes();
    ragged__one_past_the_maximum__named();
    ragged__behind_its_length__named();
    fetches_at_once__keep_to_their_rows__no_overrun();
    row__in_the_attempt_of_another_writes_outside__all_rows_named();
    chunk__load_writes_outside__named();
    part__load_writes_outside__named();
    batch__released__poisoned_until_it_is_used_again();
    view__released__poisoned_and_its_neighbours_not();
    plan__guarded_cells__have_a_line();
    return test_end("overrun");
}
