/* needs: scratch join */
/* Scratch fields in a pipe of several datasets: a zip between fetch and the map that reads them, a
   zip that writes them, a mix whose datasets all write them, and both. Bytes and order with any
   number of workers of each stage, in threads and processes; errors of each stage, by each policy;
   few cells; resume at each batch with other workers; deaths in each callback, and at each of the
   accesses by which cells come and go; the plan; what is refused.
   scratch_join [N]: death at the N-th access alone. */
/* own: hook: a worker dies at an access of an atomic */
#include "../../rig/atomics_hook.h"

static void death_here(int kind, const void *at);

static inline void atomics_hook(int kind, const void *at) { death_here(kind, at); }

#define DLPIPE_IMPLEMENTATION
#define DLPI_RUN_NS UINT64_C(8000000000) /* however long items take, they come in runs */
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/digest.h"

#define ITEMS 173u
#define RAW 48
#define CELL_BYTES (64u + 64u + 64u) /* lengths; 48 of raw; 4 of size, each from 64 on */

/* Which stages there are, in their order. */
enum {
    ZIP_BETWEEN,     /* fetch, scratch, zip, map */
    ZIP_WRITES,      /* fetch, zip, scratch, map */
    MIX,             /* fetch, mix, scratch, map */
    MIX_ZIP_BETWEEN, /* fetch, mix, mix, scratch, zip, map */
    MIX_ZIP_WRITES,  /* fetch, mix, zip, scratch, map */
    MAP_ZIP_WRITES,  /* fetch, map, zip, scratch, zip, map */
    WIRINGS
};
enum { AT_FETCH, AT_MIX, AT_ZIP, AT_MAP, AT_END };

static const dlp_field batch_fields[2] = {{"words", DLP_U64, 1, {3}, 0, 0},
                                          {"label", DLP_U32, 0, {0}, 0, 0}};
static const dlp_field raw_fields[2] = {{"raw", DLP_U8, 1, {RAW}, 1, 0},
                                        {"size", DLP_U32, 0, {0}, 0, 0}};
static const dlp_field more_fields[2] = {{"more", DLP_U8, 1, {9}, 0, 0},
                                         {"more", DLP_U8, 1, {9}, 1, 0}};
static const dlp_field other_field = {"other", DLP_U8, 0, {0}, 0, 0};
static const uint64_t of_mix[3] = {60, 70, 43};

/* Of all processes. */
typedef struct shared {
    uint64_t calls[AT_END][ITEMS];
    uint64_t wrong;       /* bytes that the map found other than they were written */
    uint64_t die[AT_END]; /* call to die at, 0: none; counted down */
    int64_t seen, at;     /* accesses since the first of a cell; to die at */
} shared;

typedef struct source { /* a dataset: its first item's number, fields, whether it writes scratch */
    uint64_t first;
    int at, fields, writes;
} source;

typedef struct one {
    int wiring, n[AT_END], place[AT_END], fetcher[AT_END];
    uint32_t cells;
    int idempotent, batches, ragged, collate, cached, later;
    int fails[AT_END], retries, on_error, back_off; /* fails: every so many items */
    int slow;                                       /* the map takes 2 ms */
    uint64_t stop_after;
    const dlp_state *resume;
} one;

typedef struct result {
    int rc;
    uint64_t digest, rows, valid, restarts, own[2];
    dlp_error err;
    dlp_state state;
} result;

static shared *all;
static dlp_pipe *now;
static pid_t parent;
static one *job;
static source sources[5];
static dlp_dataset sets[5];

/* One process dies: that which takes *left from 1 to 0. */
static void dies(uint64_t *left) {
    uint64_t n = __atomic_load_n(left, __ATOMIC_SEQ_CST);
    if (getpid() == parent) return;
    while (n > 0 &&
           !__atomic_compare_exchange_n(left, &n, n - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
    if (n == 1) raise(SIGKILL);
}

static void death_here(int kind, const void *at) {
    static int begun;
    const uint8_t *from, *to;
    /* Of the parent's threads some still run when there is no pipe now. */
    if (all == NULL || all->at == 0 || getpid() == parent || now == NULL ||
        now->holder_stage == NULL)
        return;
    from = dlpi_area_at(now, DLPI_OWN(now->holder_stage->id, DLPI_SCRATCH_HEAD), 0);
    to = from + dlpi_area_bytes(now, DLPI_OWN(now->holder_stage->id, DLPI_SCRATCH_HEAD));
    if ((const uint8_t *)at >= from && (const uint8_t *)at < to && kind != HOOK_LOAD) begun = 1;
    if (begun && __atomic_add_fetch(&all->seen, 1, __ATOMIC_SEQ_CST) == all->at) raise(SIGKILL);
}

/* ---- callbacks ---- */

static bool mixes(const one *o) {
    return o->wiring == MIX || o->wiring == MIX_ZIP_BETWEEN || o->wiring == MIX_ZIP_WRITES;
}
static bool zips(const one *o) { return o->wiring != MIX; }
static bool zip_writes(const one *o) {
    return o->wiring == ZIP_WRITES || o->wiring == MIX_ZIP_WRITES || o->wiring == MAP_ZIP_WRITES;
}

static uint32_t raw_length(uint64_t index) { return (uint32_t)(1 + index * 7 % (RAW - 1)); }
static uint8_t raw_byte(uint64_t index, uint32_t i) { return (uint8_t)(index * 31 + i * 7 + 3); }

static int fails(int at, const dlp_item *it) {
    const int every = job->fails[at];
    return every > 0 && it->index % (uint64_t)every == 5 &&
           it->attempt < (job->retries ? 1u : 1000u);
}

/* What a map finds zipped: 9 bytes, or as many as the index says. */
static uint64_t more_length(uint64_t index) { return job->ragged ? index % 9 : 9; }
static void more_put(dlp_item *it) {
    memset(it->data[0], 0xab, 9);
    memset(it->data[0], (int)(it->index * 5 & 255), (size_t)more_length(it->index));
    if (job->ragged) it->length[0] = more_length(it->index);
}
static bool more_is(const uint8_t *more, uint64_t index) {
    const uint64_t n = more_length(index);
    for (uint64_t i = 0; i < 9; i++)
        if (more[i] != (i < n ? (uint8_t)(index * 5) : 0)) return false;
    return true;
}

static int fetch_item(void *user, dlp_item *it) {
    const source *s = user;
    uint32_t n;
    uint8_t *raw = it->data[s->fields];
    CHECK(it->n_fields == (uint32_t)s->fields + (s->writes ? 2u : 0u));
    for (uint32_t f = 0; f < it->n_fields; f++) CHECK(it->length[f] == 0);
    it->index += s->first;
    n = raw_length(it->index);
    __atomic_add_fetch(&all->calls[s->at][it->index], 1, __ATOMIC_RELAXED);
    if (s->writes) memset(raw, 0xee, RAW);
    dies(&all->die[s->at]);
    if (fails(s->at, it)) return dlp_fail(it->call, 5, "stage %d", s->at);
    if (s->fields == 1 && s->first == 0) more_put(it);
    if (!s->writes) return 0;
    CHECK((uintptr_t)raw % 64 == 0);
    for (uint32_t i = 0; i < n; i++) raw[i] = raw_byte(it->index, i);
    memcpy(it->data[s->fields + 1], &n, sizeof n);
    it->length[s->fields] = n;
    return 0;
}

static int other_item(void *user, dlp_item *it) {
    (void)user;
    CHECK(it->n_fields == 1);
    *(uint8_t *)it->data[0] = (uint8_t)it->index;
    return 0;
}

/* A map in front of the fields sees none of them. */
static int early_item(void *user, dlp_item *it) {
    (void)user;
    CHECK(it->n_fields == 2);
    return 0;
}

static int map_item(void *user, dlp_item *it) {
    const uint32_t zipped = zips(job) ? job->wiring == MAP_ZIP_WRITES ? 2u : 1u : 0u;
    const uint32_t f = zip_writes(job) ? 3 : 2, more = zip_writes(job) ? 2 : 4; /* in table order */
    const uint8_t *raw = it->data[f];
    uint64_t words[3] = {it->index, 0, it->length[f]}, wrong = it->n_fields != 4 + zipped;
    uint32_t n, label = (uint32_t)it->index ^ 0x55;
    (void)user;
    __atomic_add_fetch(&all->calls[AT_MAP][it->index], 1, __ATOMIC_RELAXED);
    memcpy(&n, it->data[f + 1], sizeof n);
    wrong += n != raw_length(it->index) || it->length[f] != n;
    for (uint32_t i = 0; i < raw_length(it->index); i++) {
        wrong += raw[i] != raw_byte(it->index, i);
        words[1] = words[1] * 5 + raw[i];
    }
    if (zipped) {
        wrong += !more_is(it->data[more], it->index);
        wrong += job->ragged && it->length[more] != more_length(it->index);
        label += *(const uint8_t *)it->data[more];
    }
    if (zipped == 2) wrong += *(const uint8_t *)it->data[5] != (uint8_t)it->index;
    if (job->slow) test_pause(2000000);
    dies(&all->die[AT_MAP]);
    if (wrong) __atomic_add_fetch(&all->wrong, wrong, __ATOMIC_RELAXED);
    if (fails(AT_MAP, it)) return dlp_fail(it->call, 6, "stage %d", AT_MAP);
    memcpy(it->data[0], words, sizeof words);
    memcpy(it->data[1], &label, sizeof label);
    return 0;
}

/* Behind it all, not idempotent: some of its items go back to fetch. */
static int later_item(void *user, dlp_item *it) {
    uint64_t words[3];
    (void)user;
    memcpy(words, it->data[0], sizeof words);
    words[1] += it->index;
    memcpy(it->data[0], words, sizeof words);
    return it->index % 17 == 3 && it->attempt == 0 ? dlp_fail(it->call, 0, "once more") : 0;
}

/* ---- an asynchronous source of one worker: what it has is given back last first ---- */

static struct {
    dlp_item *item[64];
    int n;
} waiting;

static int submit(void *user, void *state, dlp_item *it) {
    (void)user;
    (void)state;
    if (waiting.n == 5) return DLP_FULL;
    waiting.item[waiting.n++] = it;
    return 0;
}

static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    int n = 0;
    (void)state;
    (void)timeout_ms;
    for (; n < max && waiting.n > 0; n++) {
        done[n] = waiting.item[--waiting.n];
        code[n] = fetch_item(user, done[n]);
    }
    return n;
}

/* ---- a pipe ---- */

static one ordinary(int wiring, int workers) {
    one o;
    memset(&o, 0, sizeof o);
    o.wiring = wiring;
    for (int i = 0; i < AT_END; i++) o.n[i] = workers;
    return o;
}

static void dress(const one *o, dlp_workers_desc *w, int at) {
    w->num_workers = o->n[at] ? o->n[at] : DLP_NONE;
    w->placement = o->n[at] ? o->place[at] : 0;
    w->retries = o->retries;
    w->retry_backoff_ms = o->back_off;
    w->on_error = o->on_error;
    w->dispatch = o->batches ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
}

/* Add the fetch of source i, which has n items and these fields. of: its number in a mix. */
static void add_fetch(const one *o, rig_table *t, int i, uint64_t n, const dlp_field *fields,
                      uint32_t of) {
    source *s = &sources[i];
    dlp_source d = {.dataset = &sets[i], .fetcher = o->fetcher[s->at]};
    sets[i] = (dlp_dataset){.n_items = n,
                            .fields = fields,
                            .n_fields = (uint32_t)s->fields,
                            .fetch = fetch_item,
                            .user = s};
    if (d.fetcher) d.in_flight = 6;
    d.async = (dlp_async){submit, reap};
    dress(o, &d.workers, s->at);
    table_fetch(t, &d, of);
    if (s->writes) table_ends(t, raw_fields, 2, o->cells);
}
static void add_mix(const one *o, rig_table *t, int i, uint64_t n) {
    uint64_t first = of_mix[0] + (i == 2 ? of_mix[1] : 0);
    sources[i] = (source){first, AT_MIX, 2, !zip_writes(o)};
    add_fetch(o, t, i, n, batch_fields, (uint32_t)i + 1);
}
static void add_zip(const one *o, rig_table *t) {
    sources[3] = (source){0, AT_ZIP, 1, zip_writes(o)};
    add_fetch(o, t, 3, ITEMS, &more_fields[o->ragged], 0);
}
static void add_other(const one *o, rig_table *t) {
    dlp_source d = {.dataset = &sets[4]};
    sets[4] =
        (dlp_dataset){.n_items = ITEMS, .fields = &other_field, .n_fields = 1, .fetch = other_item};
    dress(o, &d.workers, AT_ZIP);
    table_fetch(t, &d, 0);
}
static void add_map(const one *o, rig_table *t, dlp_item_fn fn, int retries) {
    dlp_node row = {.verb = DLP_MAP, .map = {.item = fn}};
    dress(o, &row.workers, AT_MAP);
    row.workers.idempotent = o->idempotent;
    if (retries) row.workers.retries = retries, row.workers.idempotent = 0;
    table_row(t, row);
}
static void add_first(const one *o, rig_table *t) {
    sources[0] = (source){0, AT_FETCH, 2, !zip_writes(o)};
    add_fetch(o, t, 0, mixes(o) ? of_mix[0] : ITEMS, batch_fields, mixes(o));
}
static void add_cache(rig_table *t) {
    table_row(t, (dlp_node){.verb = DLP_CACHE, .cache = {.bytes = 1 << 20}});
}

static void add_rows(const one *o, rig_table *t) {
    add_first(o, t);
    if (mixes(o)) add_mix(o, t, 1, o->wiring == MIX_ZIP_BETWEEN ? of_mix[1] : ITEMS - of_mix[0]);
    if (o->wiring == MIX_ZIP_BETWEEN) add_mix(o, t, 2, of_mix[2]);
    if (o->wiring == MAP_ZIP_WRITES) add_map(o, t, early_item, 0);
    if (zips(o)) add_zip(o, t);
    if (o->wiring == MAP_ZIP_WRITES) add_other(o, t);
    add_map(o, t, map_item, 0);
    if (o->cached) add_cache(t); /* needs: cache */
    if (o->later) add_map(o, t, later_item, 2);
}

static int start(one *o, dlp_pipe **to, dlp_error *err) {
    const dlp_pipe_desc pipe = {.resume = o->resume, .prefetch_factor = 3, .epochs = 2};
    rig_table t = {.n = 0};
    int rc;
    job = o;
    parent = getpid();
    table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_SHUFFLED, .seed = 4});
    add_rows(o, &t);
    table_row(&t, (dlp_node){.verb = DLP_BATCH,
                             .batch = {.batch_size = 14,
                                       .last = DLP_LAST_PARTIAL,
                                       .collate = o->collate ? dlp_collate_pad : NULL}});
    if ((rc = table_pipe(&t, to, &pipe, err)) != DLP_OK) return rc;
    now = *to;
    rc = dlp_pipe_start(*to);
    if (rc == DLP_OK) return rc;
    *err = *dlp_pipe_error(*to);
    now = NULL;
    dlp_pipe_close(*to);
    return rc;
}

static bool batch_is(const one *o, const dlp_batch *b) {
    for (uint32_t r = 0; r < b->count && zips(o); r++) {
        const uint8_t *more = b->fields[2].data;
        const uint64_t wide = (uint64_t)b->fields[2].shape[1];
        if (b->valid[r] && wide == 9 && !more_is(more + 9 * r, b->index[r])) return false;
    }
    return b->n_fields == 2u + zips(o) + (o->wiring == MAP_ZIP_WRITES);
}

/* digest: of what was delivered before. */
static result go(one *o, uint64_t digest) {
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    result r;
    int id;
    memset(&r, 0, sizeof r);
    memset(all->calls, 0, sizeof all->calls);
    all->wrong = 0;
    r.digest = digest;
    if ((r.rc = start(o, &p, &r.err)) != DLP_OK) printf("%s: %s\n", r.err.stage, r.err.message);
    if (r.rc != DLP_OK) return r;
    id = p->holder_stage->id;
    for (uint64_t n = 0; o->stop_after == 0 || n < o->stop_after; n++) {
        if ((r.rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_OK) break;
        r.digest = dlp_hash(r.digest, digest_batch(b), 0, 0);
        r.rows += b->count;
        r.valid += b->valid_count;
        CHECK(batch_is(o, b));
        dlp_pipe_release(p, b);
    }
    r.err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_state(p, NULL, &r.state) == DLP_OK);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    for (int i = 0; i < 500 && r.rc == DLP_END && s.stages[id].own[0] != 0; i++) {
        usleep(10000); /* one that looks for more has a cell in hand until it sees the end */
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    }
    for (uint32_t i = 0; i < s.n_stages; i++) r.restarts += s.stages[i].restarts;
    memcpy(r.own, s.stages[id].own, sizeof r.own);
    now = NULL;
    dlp_pipe_close(p);
    CHECK(all->wrong == 0);
    return r;
}

static result expected(one o) {
    memset(o.n, 0, sizeof o.n);
    memset(o.place, 0, sizeof o.place);
    memset(o.fetcher, 0, sizeof o.fetcher);
    o.batches = 0;
    o.cells = 0;
    return go(&o, 0);
}

static void same(const one *o, const result *got, const result *want, const char *who, int k) {
    bool good = got->rc == want->rc && got->digest == want->digest && got->rows == want->rows &&
                got->valid == want->valid;
    good = good && (got->own[0] == 0 || got->rc != DLP_END);
    CHECK(good);
    if (!good)
        printf("%s %d, wiring %d: rc %d, want %d; valid %d, want %d; %d cells left; %s\n", who, k,
               o->wiring, got->rc, want->rc, (int)got->valid, (int)want->valid, (int)got->own[0],
               got->err.message);
}

/* How often each callback has had each item. */
static bool called(const one *o, uint64_t times) {
    for (uint64_t x = 0; x < ITEMS; x++) {
        const bool mixed = mixes(o) && x >= of_mix[0];
        if (all->calls[AT_FETCH][x] != (mixed ? 0 : times)) return false;
        if (all->calls[AT_MIX][x] != (mixed ? times : 0)) return false;
        if (all->calls[AT_ZIP][x] != (zips(o) ? times : 0)) return false;
        if (all->calls[AT_MAP][x] != times) return false;
    }
    return true;
}

/* ---- */

static void scratch_join__any_workers_and_cells__same_order_and_bytes(void) {
    static const int counts[4] = {0, 1, 4, 16};
    static const uint32_t cells[4] = {1, 2, 7, 0};
    for (int i = 0; i < WIRINGS; i++) {
        for (int k = 0; k < 16; k++) {
            one o = ordinary(i, 0);
            result want, got;
            o.n[AT_FETCH] = counts[k % 4];
            o.n[AT_MAP] = counts[k / 4 % 4];
            o.n[AT_MIX] = counts[(k + k / 4) % 4];
            o.n[AT_ZIP] = counts[(k + k / 4 + 1 + k / 16) % 4];
            o.cells = cells[(k + k / 8) % 4];
            o.ragged = k % 3 == 2;
            o.collate = k % 5 == 4;
            o.batches = k % 7 == 6;
            want = expected(o);
            CHECK(want.rc == DLP_END && want.valid == 2 * ITEMS && called(&o, 2));
            got = go(&o, 0);
            same(&o, &got, &want, "threads", k);
            CHECK(called(&o, 2) && (o.cells == 0 || got.own[1] == o.cells));
        }
    }
}

/* Whoever lacks a cell is woken by the one that gives it up, once for each item here. Unwoken it
   would sleep until its time is over, hundreds of times. */
static void scratch_join__one_cell__woken_at_once(void) {
    for (int i = ZIP_WRITES; i < WIRINGS; i++)
        for (int k = 0; k < 2 && i % 3 != 0; k++) {
            one o = ordinary(i, 2);
            result want = expected(o), got;
            uint64_t began = dlpi_now_ns();
            o.cells = 1;
            o.slow = 1;
            if (k) o.n[zip_writes(&o) ? AT_ZIP : AT_FETCH] = 0;
            got = go(&o, 0);
            same(&o, &got, &want, "few cells", k);
            CHECK(dlpi_now_ns() - began < UINT64_C(8000000000));
        }
}

static void scratch_join__many_in_flight__same(void) {
    static const uint32_t cells[3] = {1, 3, 0};
    for (int i = 0; i < WIRINGS; i++)
        for (int k = 0; k < 9; k++) {
            one o = ordinary(i, 2);
            result want, got;
            o.fetcher[k % 3] = DLP_FETCH_THREADS;
            if (k / 3 == 1) o.fetcher[(k + 1) % 3] = DLP_FETCH_THREADS;
            if (k / 3 == 2) o.fetcher[k % 3] = DLP_FETCH_ASYNC, o.n[k % 3] = 1;
            if (k / 3 == 2 && i == MIX_ZIP_BETWEEN) o.fetcher[AT_MIX] = 0; /* two stages of it */
            o.cells = cells[(k + i) % 3];
            o.ragged = k % 2;
            want = expected(o);
            got = go(&o, 0);
            same(&o, &got, &want, "in flight", k);
        }
}

static void scratch_join__errors_of_each__by_policy(void) {
    for (int i = 0; i < WIRINGS; i++)
        for (int k = 0; k < 48; k++) {
            one o = ordinary(i, k % 2 ? 2 : 0);
            const int at = k / 2 % 4;
            result want, got;
            o.cells = (uint32_t)k % 3; /* 0: in runs, of which some rows fail */
            o.fails[at] = 19;
            if (k % 5 == 0) o.fails[(at + 1) % 4] = 23;
            o.on_error = k / 8 % 3;
            o.retries = k / 24;
            o.back_off = o.retries && k % 3 == 0;
            o.idempotent = k % 4 == 1 || k % 8 == 7;
            o.fetcher[AT_FETCH] = k % 2 && k % 5 == 3 ? DLP_FETCH_THREADS : 0;
            o.fetcher[AT_ZIP] = k % 2 && k % 7 == 3 ? DLP_FETCH_THREADS : 0;
            want = expected(o);
            got = go(&o, 0);
            if (want.rc == DLP_ERR_CALLBACK) {
                CHECK(got.rc == want.rc && got.err.position / 14 == want.err.position / 14 &&
                      strstr(got.err.message, "stage ") != NULL);
                continue;
            }
            same(&o, &got, &want, "errors", k);
            CHECK(want.rc == DLP_END);
            if (o.retries || o.on_error == DLP_ON_ERROR_REPLACE) CHECK(want.valid == 2 * ITEMS);
        }
}

static void scratch_join__stage_behind_sends_back__read_again(void) {
    for (int i = 0; i < WIRINGS; i++)
        for (int k = 0; k < 6; k++) {
            one o = ordinary(i, k % 3);
            result want, got;
            o.later = 1;
            o.cells = (uint32_t)k;
            o.idempotent = k % 2;
            want = expected(o);
            got = go(&o, 0);
            same(&o, &got, &want, "sent back", k);
            CHECK(got.rc == DLP_END && got.valid == 2 * ITEMS && all->calls[AT_MAP][3] == 4);
        }
}

static void scratch_join__cache_behind__once(void) { /* needs: cache */
    for (int i = 0; i < WIRINGS; i++)                /* needs: cache */
        for (int k = 0; k < 4; k++) {                /* needs: cache */
            one o = ordinary(i, k);                  /* needs: cache */
            result want, got;                        /* needs: cache */
            o.cells = (uint32_t)k;                   /* needs: cache */
            o.idempotent = k % 2;                    /* needs: cache */
            want = expected(o);                      /* needs: cache */
            o.cached = 1;                            /* needs: cache */
            got = go(&o, 0);                         /* needs: cache */
            same(&o, &got, &want, "cached", k);      /* needs: cache */
            for (uint64_t x = 0; x < ITEMS; x++)     /* needs: cache */
                CHECK(all->calls[AT_MAP][x] <= 2);   /* needs: cache */
        }                                            /* needs: cache */
} /* needs: cache */

static void scratch_join__resumed_at_each_batch__goes_on_exactly(void) {
    for (int i = 0; i < WIRINGS; i++) {
        one o = ordinary(i, 2);
        result first, rest, want = expected(o);
        for (uint64_t n = 1; n < 26; n += i % 2 ? 4 : 5) {
            o = ordinary(i, (int)n % 4);
            o.cells = 1 + (uint32_t)n % 3;
            o.stop_after = n;
            first = go(&o, 0);
            o = ordinary(i, (int)(n + 1) % 3);
            o.n[AT_ZIP] = (int)n % 2 + 1;
            o.resume = &first.state;
            rest = go(&o, first.digest);
            CHECK(first.rc == DLP_OK && first.rows + rest.rows == want.rows);
            rest.rows = want.rows;
            rest.valid += first.valid;
            same(&o, &rest, &want, "resumed", (int)n);
        }
    }
}

/* ---- the plan ---- */

static void plan_of(int wiring, uint32_t cells, uint64_t count, uint64_t each) {
    one o = ordinary(wiring, 2);
    dlp_plan plan;
    dlp_error e;
    dlp_pipe *p;
    uint32_t lines = 0;
    uint64_t sum = 0;
    o.cells = cells;
    o.n[AT_MIX] = o.n[AT_ZIP] = 3;
    if (start(&o, &p, &e) != DLP_OK) return;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    for (uint32_t i = 0; i < plan.n_lines; i++) {
        sum += plan.lines[i].bytes;
        if (strcmp(plan.lines[i].what, "scratch cells") != 0) continue;
        CHECK(plan.lines[i].count == count && plan.lines[i].bytes_each == each);
        if (plan.lines[i].count != count || plan.lines[i].bytes_each != each)
            printf("wiring %d: %d x %d\n", wiring, (int)plan.lines[i].count,
                   (int)plan.lines[i].bytes_each);
        lines++;
    }
    CHECK(lines == 1 && sum == plan.total_bytes);
    now = NULL;
    dlp_pipe_close(p);
}

/* 42 rows are under way. Where nobody says how many cells, there are groups for each worker that
   writes, and two for each that does not; of so few bytes cells for 4 x 42. */
static void scratch_join__plan__cells_to_the_byte(void) {
    plan_of(ZIP_BETWEEN, 0, 84, 2 * CELL_BYTES);     /* 2 + 2 * (3 + 2) are 12: of 4 were 10 */
    plan_of(ZIP_WRITES, 0, 42, 4 * CELL_BYTES);      /* 3 + 2 * 2; of 8 were 5 */
    plan_of(MIX, 0, 42, 4 * CELL_BYTES);             /* 2 + 3 + 2 * 2 */
    plan_of(MIX_ZIP_BETWEEN, 0, 84, 2 * CELL_BYTES); /* 2 + 2 * 3 + 2 * (3 + 2) */
    for (int i = 0; i < WIRINGS; i++) plan_of(i, 5, 5, CELL_BYTES);
}

/* ---- refusals ---- */

/* How a table of these rows is refused: f fetch whose fields end, z zip, Z zip whose fields end, x
   fetch of a mix, m map in which fields end, M another map, c cache. names: of the fields that
   end; NULL: those of the fetch. */
static dlp_error refused(const char *rows, const char *names) {
    one o = ordinary(ZIP_BETWEEN, 1), writes = ordinary(ZIP_WRITES, 1);
    rig_table t = {.n = 0};
    dlp_error e = {.code = 0};
    dlp_pipe *p;
    job = &o;
    table_list(&t, &(dlp_sampler_desc){.seed = 4});
    for (; *rows; rows++) {
        if (*rows == 'f') add_first(&o, &t);
        if (*rows == 'z') add_zip(&o, &t);
        if (*rows == 'Z') add_zip(&writes, &t);
        if (*rows == 'x') add_mix(&o, &t, 1, ITEMS - of_mix[0]);
        if (*rows == 'm' || *rows == 'M') add_map(&o, &t, map_item, 0);
        if (*rows == 'm') t.nodes[t.n - 1].map.ends = names ? names : "raw size";
        if (*rows == 'M') t.nodes[t.n - 1].map.ends = NULL;
        if (*rows == 'c') add_cache(&t); /* needs: cache */
    }
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 4}});
    CHECK(table_pipe(&t, &p, NULL, &e) < 0);
    return e;
}

static void scratch_join__what_does_not_fit__named(void) {
    CHECK(strstr(refused("fzm", "raw size more").message, "second fetch") != NULL);
    CHECK(strstr(refused("fMzm", NULL).message, "only fetch and guard") != NULL);
    CHECK(strstr(refused("fMm", NULL).message, "only fetch and guard") != NULL);
    CHECK(strstr(refused("fmm", NULL).message, "only fetch and guard") != NULL);
    CHECK(strstr(refused("fZm", NULL).message, "second fetch with fields that end") != NULL);
    CHECK(strstr(refused("fzcm", NULL).message, "only fetch and guard") != NULL); /* needs: cache */
    CHECK(strstr(refused("fcm", NULL).message, "only fetch and guard") != NULL);  /* needs: cache */
    CHECK(strstr(refused("fzxm", NULL).message, "must follow each other") != NULL);
    CHECK(strstr(refused("fm", "raw nothing").message, "only fetch and guard") != NULL);
}

/* ---- processes ---- */

static one placed(int wiring, int k) {
    one o = ordinary(wiring, 2);
    for (int i = 0; i < AT_END; i++) o.place[i] = (k + i) % 3 != 1 ? DLP_PLACE_PROCESSES : 0;
    o.idempotent = k % 2;
    o.cells = (uint32_t)k % 4;
    o.ragged = k % 5 == 4;
    return o;
}

static void scratch_join__processes__same(void) {
    static const int counts[4] = {0, 1, 4, 16};
    for (int i = 0; i < WIRINGS; i++)
        for (int k = 0; k < 4; k++) {
            one o = placed(i, k);
            result want = expected(o), got;
            for (int at = 0; at < AT_END; at++) o.n[at] = counts[(k + at) % (k == 3 ? 4 : 3)];
            got = go(&o, 0);
            same(&o, &got, &want, "processes", k);
        }
}

static void scratch_join__killed_in_each_callback__nothing_lost(void) {
    for (int i = 0; i < WIRINGS; i++)
        for (int k = 0; k < 16; k++) {
            one o = placed(i, k);
            const int at = k % 4;
            result want = expected(o), got;
            if ((at == AT_MIX && !mixes(&o)) || (at == AT_ZIP && !zips(&o))) continue;
            o.place[at] = DLP_PLACE_PROCESSES;
            o.fetcher[at % 3] = k % 5 == 4 && at != AT_MAP ? DLP_FETCH_THREADS : 0;
            all->die[at] = 1 + (uint64_t)k * 5;
            got = go(&o, 0);
            same(&o, &got, &want, "killed", k);
            CHECK(got.restarts == 1 && all->die[at] == 0);
        }
}

/* A worker dies at the k-th access since its first of a cell. */
static void scratch_join__dies_at_any_access__nothing_lost(int64_t only) {
    const int64_t most = test_share(72, 4000);
    uint64_t died = 0;
    for (int64_t k = 1; k <= most; k++) {
        one o = placed((int)(k % WIRINGS), (int)(k / WIRINGS));
        result want, got;
        if (only != 0 && k != only) continue;
        o.later = k % 5 == 2;
        want = expected(o);
        all->seen = 0;
        all->at = k;
        got = go(&o, 0);
        all->at = 0;
        died += got.restarts;
        same(&o, &got, &want, "dies", (int)k);
    }
    CHECK(died >= (only ? 1u : (uint64_t)most * 8 / 10));
}

int main(int argc, char **argv) {
    const char *why = shm_missing();
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 2) {
        scratch_join__what_does_not_fit__named();
        scratch_join__plan__cells_to_the_byte();
        scratch_join__any_workers_and_cells__same_order_and_bytes();
        scratch_join__one_cell__woken_at_once();
        scratch_join__many_in_flight__same();
        scratch_join__errors_of_each__by_policy();
        scratch_join__stage_behind_sends_back__read_again();
        scratch_join__cache_behind__once(); /* needs: cache */
        scratch_join__resumed_at_each_batch__goes_on_exactly();
    }
    if (why && !RIG_TSAN) test_skip(why);
    if (why == NULL && argc < 2) {
        scratch_join__processes__same();
        scratch_join__killed_in_each_callback__nothing_lost();
    }
    if (why == NULL) scratch_join__dies_at_any_access__nothing_lost(argc > 1 ? atoll(argv[1]) : 0);
    return test_end("scratch_join");
}
