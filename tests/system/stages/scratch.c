/* needs: scratch parts */
/* Two fetches in a row: one reads into scratch fields, a map decodes what lies there. Bytes and
   order with any number of workers of both, in threads and processes; errors of either; few cells;
   deaths in either callback, and at each of the accesses by which cells come and go.
   scratch [N]: death at the N-th access alone. */
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
#include "../../rig/sources.h"

#define ITEMS 203u
#define RAW 48

static const dlp_field batch_fields[2] = {{"words", DLP_U64, 1, {3}, 0, 0},
                                          {"label", DLP_U32, 0, {0}, 0, 0}};
static const dlp_field raw_fields[2] = {{"raw", DLP_U8, 1, {RAW}, 1, 0},
                                        {"size", DLP_U32, 0, {0}, 0, 0}};

/* Of all processes. */
typedef struct shared {
    uint64_t read[ITEMS], decoded[ITEMS]; /* calls */
    uint64_t wrong;                       /* bytes that decode found other than read wrote them */
    uint64_t reads, decodes;              /* to die at, 0: none; counted down */
    uint64_t leaves;                      /* stores of a cell, to die behind; as those */
    int64_t seen, at;                     /* accesses since the first of a cell; to die at */
    int64_t in_runs;                      /* since the first when a batch has runs of rows */
} shared;

static shared *all;
static dlp_pipe *now;
static pid_t parent;

/* One process dies: that which takes *left from 1 to 0. */
static void dies(uint64_t *left) {
    uint64_t n = __atomic_load_n(left, __ATOMIC_SEQ_CST);
    if (getpid() == parent) return;
    while (n > 0 &&
           !__atomic_compare_exchange_n(left, &n, n - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
    if (n == 1) raise(SIGKILL);
}

/* Some batch has come in runs of more than a row. */
static bool has_runs(void) {
    for (uint32_t s = 0; s < now->n_slots; s++)
        if (dlpi_header_shift(dlpi_slot_at(now, s)->header) > 0) return true;
    return false;
}

static void death_here(int kind, const void *at) {
    static _Thread_local int last;
    static int begun;
    const uint8_t *from, *to;
    bool stored = kind == -1 && last == HOOK_STORE;
    last = kind;
    /* Of the parent's threads some still run when there is no pipe now. */
    if (all == NULL || (all->at == 0 && all->leaves == 0) || getpid() == parent || now == NULL ||
        now->holder_stage == NULL)
        return;
    from = dlpi_area_at(now, DLPI_OWN(now->holder_stage->id, DLPI_SCRATCH_HEAD), 0);
    to = from + dlpi_area_bytes(now, DLPI_OWN(now->holder_stage->id, DLPI_SCRATCH_HEAD));
    if ((const uint8_t *)at >= from && (const uint8_t *)at < to) {
        if (kind != HOOK_LOAD && (!all->in_runs || has_runs())) begun = 1;
        if (stored) dies(&all->leaves);
    }
    if (begun && all->at != 0 && __atomic_add_fetch(&all->seen, 1, __ATOMIC_SEQ_CST) == all->at)
        raise(SIGKILL);
}

typedef struct one {
    int fetchers, decoders, fetcher, in_flight;         /* workers; DLP_FETCH_* */
    int place_fetch, place_decode, idempotent, batches; /* batches 1: DLP_DISPATCH_BATCHES */
    uint32_t cells, batch;
    int read_fails, decode_fails, retries, on_error, back_off; /* every so many items */
    int maps, collate,
        long_one; /* maps 1: another map behind, which fails once for each 17th item */
    int slow_us, cached, joined, last; /* DLP_LAST_* */
    int guarded; /* 1: a guard between scratch and the map; 2: it drops some items */
    uint64_t stop_after;
    const dlp_state *resume;
} one;

typedef struct result {
    int rc;
    uint64_t digest, rows, valid, restarts, own[4];
    dlp_error err;
    dlp_state state;
} result;

static one *job;

static uint32_t raw_length(uint64_t index) { return (uint32_t)(1 + index * 7 % (RAW - 1)); }
static uint8_t raw_byte(uint64_t index, uint32_t i) { return (uint8_t)(index * 31 + i * 7 + 3); }

static int fails(int every, const dlp_item *it, uint32_t attempts) {
    return every > 0 && it->index % (uint64_t)every == 5 && it->attempt < attempts;
}

static int read_item(void *user, dlp_item *it) {
    const uint32_t n = raw_length(it->index);
    uint8_t *raw = it->data[2];
    (void)user;
    __atomic_add_fetch(&all->read[it->index], 1, __ATOMIC_RELAXED);
    CHECK(it->n_fields == 4 && (uintptr_t)raw % 64 == 0);
    if (job->slow_us) test_pause((uint64_t)job->slow_us * 1000u);
    memset(raw, 0xee, RAW);
    dies(&all->reads);
    if (fails(job->read_fails, it, job->retries ? 1 : 1000))
        return dlp_fail(it->call, 5, "no read");
    for (uint32_t i = 0; i < n; i++) raw[i] = raw_byte(it->index, i);
    memcpy(it->data[3], &n, sizeof n);
    it->length[2] = n;
    if (it->index == 77 && (job->long_one == 1 || it->attempt < (uint32_t)job->long_one / 2))
        it->length[2] = RAW + 1; /* 2: once */
    return 0;
}

static int decode_item(void *user, dlp_item *it) {
    const uint8_t *raw = it->data[2];
    uint64_t words[3] = {it->index, 0, it->length[2]}, wrong = 0;
    uint32_t n, label = (uint32_t)it->index ^ 0x55;
    (void)user;
    __atomic_add_fetch(&all->decoded[it->index], 1, __ATOMIC_RELAXED);
    memcpy(&n, it->data[3], sizeof n);
    wrong += it->n_fields != 4 || n != raw_length(it->index) || it->length[2] != n;
    for (uint32_t i = 0; i < raw_length(it->index); i++) {
        wrong += raw[i] != raw_byte(it->index, i);
        words[1] = words[1] * 5 + raw[i];
    }
    if (job->slow_us) test_pause((uint64_t)job->slow_us * 1000u);
    dies(&all->decodes);
    if (wrong) __atomic_add_fetch(&all->wrong, wrong, __ATOMIC_RELAXED);
    if (fails(job->decode_fails, it, job->retries ? 1 : 1000))
        return dlp_fail(it->call, 6, "no decode");
    memcpy(it->data[0], words, sizeof words);
    memcpy(it->data[1], &label, sizeof label);
    return 0;
}

static int later_item(void *user, dlp_item *it) {
    uint64_t words[3];
    (void)user;
    CHECK(it->n_fields == 2);
    memcpy(words, it->data[0], sizeof words);
    words[1] += it->index;
    memcpy(it->data[0], words, sizeof words);
    return it->index % 17 == 3 && it->attempt == 0 ? dlp_fail(it->call, 0, "once more") : 0;
}

/* ---- an asynchronous source: what it has is given back last first ---- */

static struct {
    dlp_item *item[64];
    int n;
} source_;

static int submit(void *user, void *state, dlp_item *it) {
    (void)user;
    (void)state;
    if (source_.n == 5) return DLP_FULL;
    source_.item[source_.n++] = it;
    return 0;
}

static int reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    int n = 0;
    (void)state;
    (void)timeout_ms;
    for (; n < max && source_.n > 0; n++) {
        done[n] = source_.item[--source_.n];
        code[n] = read_item(user, done[n]);
    }
    return n;
}

/* ---- a pipe ---- */

static one ordinary(int fetchers, int decoders) {
    one o;
    memset(&o, 0, sizeof o);
    o.fetchers = fetchers;
    o.decoders = decoders;
    o.batch = 14;
    o.last = DLP_LAST_PARTIAL;
    return o;
}

/* Of another dataset, zipped after the map. */
static const dlp_field joined_field = {"more", DLP_U64, 0, {0}, 0, 0}; /* needs: join */
static int join_item(void *user, dlp_item *it) {                       /* needs: join */
    uint64_t more = it->index * 7 + 1;                                 /* needs: join */
    (void)user;                                                        /* needs: join */
    CHECK(it->n_fields == 1);                                          /* needs: join */
    memcpy(it->data[0], &more, sizeof more);                           /* needs: join */
    return 0;                                                          /* needs: join */
} /* needs: join */
static const dlp_dataset joined_set = {
    .n_items = ITEMS, .fields = &joined_field, .n_fields = 1, .fetch = join_item};
static void zip(const one *o, rig_table *t) {
    table_fetch(t,
                &(dlp_source){.dataset = &joined_set,
                              .workers = {.num_workers = o->decoders ? 2 : DLP_NONE}},
                0);
}
static bool zipped(const dlp_batch *b) {
    const uint64_t *more = b->fields[2].data;
    for (uint32_t r = 0; r < b->count; r++)
        if (b->valid[r] && more[r] != b->index[r] * 7 + 1) return false;
    return true;
}

/* Right behind the fetch: it looks at what was read. */
static void guard(const one *o, rig_table *t, dlp_workers_desc w) {
    static const dlp_guard_field f[2][2] = {{{"size", 1, RAW, 0, 0}, {"raw", 0, 255, 0, 0}},
                                            {{"size", 1, 40, 0, 0}, {"raw", 0, 254, 0, 0}}};
    dlp_node row = {.verb = DLP_GUARD, .workers = w};
    row.guard = (dlp_node_guard){.fields = f[o->guarded == 2], .n_fields = 2};
    if (o->guarded == 2) row.workers.on_error = DLP_ON_ERROR_DROP;
    table_row(t, row);
}
/* Does it let the item pass where it drops some? */ /* needs: guard */
static bool is_few(uint64_t index) {                 /* needs: guard */
    for (uint32_t i = 0; i < raw_length(index); i++) /* needs: guard */
        if (raw_byte(index, i) == 255) return false; /* needs: guard */
    return raw_length(index) <= 40;                  /* needs: guard */
} /* needs: guard */

static void dress(const one *o, dlp_workers_desc *w, int n, int place) {
    w->num_workers = n;
    w->placement = place;
    w->retries = o->retries;
    w->retry_backoff_ms = o->back_off;
    w->on_error = o->on_error;
    w->dispatch = o->batches ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
}

static int start(one *o, dlp_pipe **to, dlp_error *err) {
    const dlp_pipe_desc pipe = {.resume = o->resume, .prefetch_factor = 3, .epochs = 2};
    const dlp_dataset ds = {
        .n_items = ITEMS, .fields = batch_fields, .n_fields = 2, .fetch = read_item};
    dlp_source fetch = {.dataset = &ds, .fetcher = o->fetcher, .in_flight = o->in_flight};
    dlp_node decode = {.verb = DLP_MAP, .map = {.item = decode_item}};
    dlp_node later = {.verb = DLP_MAP, .map = {.item = later_item}};
    rig_table t = {.n = 0};
    int rc;
    job = o;
    parent = getpid();
    fetch.async = (dlp_async){submit, reap};
    dress(o, &fetch.workers, o->fetchers, o->place_fetch);
    dress(o, &decode.workers, o->decoders, o->place_decode);
    decode.workers.idempotent = o->idempotent;
    dress(o, &later.workers, o->decoders, o->place_decode);
    later.workers.retries = 2;
    table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_SHUFFLED, .seed = 4});
    table_fetch(&t, &fetch, 0);
    table_ends(&t, raw_fields, 2, o->cells);
    if (o->guarded) guard(o, &t, decode.workers); /* needs: guard */
    table_row(&t, decode);
    if (o->cached) table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = {.bytes = 1 << 20}});
    if (o->maps) table_row(&t, later);
    if (o->joined) zip(o, &t); /* needs: join */
    table_row(&t, (dlp_node){.verb = DLP_BATCH,
                             .batch = {.batch_size = o->batch,
                                       .last = o->last,
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

static result go(one *o) {
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    result r;
    uint64_t n = 0;
    memset(&r, 0, sizeof r);
    memset(all->read, 0, sizeof all->read);
    memset(all->decoded, 0, sizeof all->decoded);
    all->wrong = 0;
    if ((r.rc = start(o, &p, &r.err)) != DLP_OK) return r;
    while ((r.rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        r.digest = dlp_hash(r.digest, digest_batch(b), 0, 0);
        r.rows += b->count;
        r.valid += b->valid_count;
        CHECK(b->n_fields == 2 + (uint32_t)o->joined && (!o->joined || zipped(b)));
        dlp_pipe_release(p, b);
        if (++n == o->stop_after) break;
    }
    r.err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_state(p, NULL, &r.state) == DLP_OK);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    for (int i = 0; i < 500 && r.rc == DLP_END && s.stages[3].own[0] != 0; i++) {
        usleep(10000); /* one that looks for more has a cell in hand until it sees the end */
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    }
    for (int i = 2; i < 6; i++) r.restarts += s.stages[i].restarts;
    memcpy(r.own, s.stages[3].own, sizeof r.own);
    now = NULL;
    dlp_pipe_close(p);
    CHECK(all->wrong == 0);
    return r;
}

static result expected(one o) {
    o.fetchers = o.decoders = o.place_fetch = o.place_decode = o.fetcher = o.batches = 0;
    o.cells = 0;
    return go(&o);
}

static void same(const result *got, const result *want, const char *who) {
    bool good = got->rc == want->rc && got->digest == want->digest && got->rows == want->rows &&
                got->valid == want->valid;
    CHECK(good);
    if (!good)
        printf("%s: rc %d, want %d; rows %d, want %d\n", who, got->rc, want->rc, (int)got->rows,
               (int)want->rows);
}

static void scratch__any_workers_and_cells__same_order_and_bytes(void) {
    static const int counts[4] = {0, 1, 4, 16};
    static const uint32_t cells[4] = {1, 2, 7, 0};
    one o = ordinary(0, 0);
    result want = expected(o), got;
    CHECK(want.rc == DLP_END && want.valid == 2 * ITEMS);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            for (int c = 0; c < 4; c++) {
                o = ordinary(counts[i], counts[k]);
                o.cells = cells[c];
                o.batches = (i + k + c) % 3 == 1;
                o.collate = (i + k) % 2;
                if (o.collate) o.batches = 0;
                got = go(&o);
                CHECK(got.own[0] == 0 && (o.cells == 0 || got.own[1] == o.cells));
                if (o.collate) want = expected(o);
                same(&got, &want, "threads");
                if (o.collate) want = expected(ordinary(0, 0));
                for (uint64_t x = 0; x < ITEMS; x++)
                    CHECK(all->read[x] == 2 && all->decoded[x] == 2);
            }
}

static void scratch__many_in_flight__same(void) {
    static const uint32_t cells[3] = {1, 3, 0};
    result want = expected(ordinary(0, 0)), got;
    for (int k = 0; k < 6; k++) {
        one o = ordinary(k % 2 ? 1 : 3, k);
        o.fetcher = DLP_FETCH_THREADS;
        if (k % 2) o.fetcher = DLP_FETCH_ASYNC;
        o.in_flight = 6;
        o.cells = cells[k / 2];
        got = go(&o);
        same(&got, &want, "in flight");
        CHECK(got.own[1] == (o.cells ? o.cells : (uint64_t)(o.fetchers * 6 + 2 * (k ? k : 1))) ||
              got.own[1] == 3 * 14);
    }
}

static void scratch__errors_of_either__by_policy(void) {
    for (int k = 0; k < 48; k++) {
        one o = ordinary(k % 2 ? 3 : 0, k % 4 > 1 ? 2 : 0);
        result want, got;
        o.cells = k % 5 ? 2 : 1;
        if (k % 5 > 2) o.cells = 0; /* in runs, of which some rows fail */
        o.fetcher = k % 2 && k % 3 == 0 && o.cells ? DLP_FETCH_THREADS : 0;
        *(k / 4 % 2 ? &o.read_fails : &o.decode_fails) = 19;
        o.on_error = k / 8 % 3;
        o.retries = k / 24 % 2;
        o.back_off = o.retries && k % 3 == 0;
        o.idempotent = k % 3 == 1 || o.cells == 0;
        want = expected(o);
        got = go(&o);
        same(&got, &want, "errors");
        CHECK(got.own[0] == 0 || o.on_error == DLP_ON_ERROR_RAISE);
        if (o.retries) CHECK(want.rc == DLP_END && want.valid == 2 * ITEMS);
        if (o.retries || o.on_error == DLP_ON_ERROR_DROP) CHECK(got.rc == DLP_END);
        if (!o.retries && o.on_error == DLP_ON_ERROR_RAISE)
            CHECK(got.rc == DLP_ERR_CALLBACK && got.err.index % 19 == 5 && /* of two, either */
                  got.err.position / o.batch == want.err.position / o.batch &&
                  strcmp(got.err.message, o.read_fails ? "no read" : "no decode") == 0);
    }
}

/* No row of a padded batch has gone back: a worker that lacks a cell keeps its hints for the next
   look, and does not go over all rows of all batches each time. */
static void scratch__padded_batch__looked_through_once(void) {
    one o = ordinary(0, 0);
    dlpi_unit first, second;
    dlpi_worker *w;
    dlp_error e;
    dlp_pipe *p;
    o.cells = 1;
    o.batch = ITEMS + 1;
    o.last = DLP_LAST_PAD;
    if (start(&o, &p, &e) != DLP_OK) return;
    w = &p->workers[p->work[0]->first_worker];
    CHECK(dlpi_find(w, &first) && !first.untouched); /* with the only cell */
    CHECK(!dlpi_find(w, &second));
    CHECK(w->rescan_seen == dlpi_claim_rescans(&w->waiters->rescan));
    now = NULL;
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void scratch__stage_behind_sends_back__read_again(void) {
    for (int k = 0; k < 8; k++) {
        one o = ordinary(k % 2 ? 3 : 0, k / 2);
        result want, got;
        o.maps = 1;
        o.cells = 1 + (uint32_t)k % 3;
        want = expected(o);
        got = go(&o);
        same(&got, &want, "sent back");
        CHECK(got.rc == DLP_END && got.valid == 2 * ITEMS && all->read[3] == 4 && got.own[0] == 0);
    }
}

static void scratch__cache_behind__read_and_decoded_once(bool processes) {
    for (int k = 0; k < 6; k++) {
        one o = ordinary(processes ? 2 : k, processes ? 2 : k / 2);
        result want = expected(ordinary(0, 0)), got;
        uint64_t calls = 0, each = 2;
        each = 1; /* needs: cache */
        if (processes) o.place_fetch = o.place_decode = DLP_PLACE_PROCESSES;
        o.fetcher = k % 3 == 2 ? DLP_FETCH_THREADS : 0;
        o.cells = (uint32_t)k;
        o.cached = 1;
        o.idempotent = k % 2;
        if (processes) *(k % 4 < 2 ? &all->decodes : &all->reads) = 30 + (uint64_t)k;
        got = go(&o);
        same(&got, &want, "cached");
        for (uint64_t x = 0; x < ITEMS; x++) calls += all->read[x];
        CHECK(got.own[0] == 0 && calls >= each * ITEMS && calls <= each * ITEMS + 42 + processes);
    }
}

static void scratch__zipped_after_the_map__same(bool processes) {              /* needs: join */
    for (int k = 0; k < 12; k++) {                                             /* needs: join */
        one o = ordinary(k % 4, k % 3);                                        /* needs: join */
        result want, got;                                                      /* needs: join */
        o.joined = 1;                                                          /* needs: join */
        o.cells = (uint32_t)k % 5;                                             /* needs: join */
        o.maps = k % 5 == 4;                                                   /* needs: join */
        o.cached = k % 4 == 3 && !o.maps;                                      /* needs: join */
        o.fetcher = k % 4 == 1 ? DLP_FETCH_THREADS : 0;                        /* needs: join */
        o.idempotent = k % 2;                                                  /* needs: join */
        want = expected(o);                                                    /* needs: join */
        if (processes) o.fetchers = o.decoders = 2;                            /* needs: join */
        if (processes) o.place_fetch = o.place_decode = DLP_PLACE_PROCESSES;   /* needs: join */
        uint64_t *dies_at = k % 4 < 2 ? &all->decodes : &all->reads;           /* needs: join */
        if (processes) *dies_at = 30 + (uint64_t)k;                            /* needs: join */
        got = go(&o);                                                          /* needs: join */
        same(&got, &want, "zipped");                                           /* needs: join */
        CHECK(got.rc == DLP_END && got.valid == 2 * ITEMS && got.own[0] == 0); /* needs: join */
    }                                                                          /* needs: join */
} /* needs: join */

static void scratch__guard_between__sees_what_was_read(bool processes) {     /* needs: guard */
    uint64_t few = 0;                                                        /* needs: guard */
    for (uint64_t x = 0; x < ITEMS; x++) few += is_few(x);                   /* needs: guard */
    CHECK(few > 20 && few < ITEMS - 20);                                     /* needs: guard */
    for (int k = 0; k < 12; k++) {                                           /* needs: guard */
        one o = ordinary(processes ? 2 : k / 3, processes ? 2 : k % 4);      /* needs: guard */
        result want = expected(o), got;                                      /* needs: guard */
        if (processes) o.place_fetch = o.place_decode = DLP_PLACE_PROCESSES; /* needs: guard */
        o.cells = (uint32_t)k % 4;                                           /* needs: guard */
        o.idempotent = k % 2;                                                /* needs: guard */
        o.guarded = 1 + k / 2 % 2;                                           /* needs: guard */
        if (processes && o.guarded == 1) all->decodes = 20 + (uint64_t)k;    /* needs: guard */
        got = go(&o);                                                        /* needs: guard */
        if (o.guarded == 2) want.valid = 2 * few;                            /* needs: guard */
        if (o.guarded == 2) want.digest = got.digest;                        /* needs: guard */
        same(&got, &want, "guarded");                                        /* needs: guard */
        CHECK(got.own[0] == 0 && all->decodes == 0);                         /* needs: guard */
        CHECK(got.restarts == (processes && o.guarded == 1));                /* needs: guard */
    }                                                                        /* needs: guard */
} /* needs: guard */

static void scratch__too_long__error_names_field(void) {
    for (int k = 0; k < 3; k++) {
        one o = ordinary(k, 1);
        result got;
        o.long_one = 1;
        o.fetcher = k == 2 ? DLP_FETCH_THREADS : 0;
        got = go(&o);
        CHECK(got.rc == DLP_ERR_LENGTH && got.err.index == 77 && strcmp(got.err.field, "raw") == 0);
    }
}

static void scratch__too_long_once__tried_again(void) {
    result want = expected(ordinary(0, 0)), got;
    for (int k = 0; k < 6; k++) {
        one o = ordinary(k % 3, 1);
        o.long_one = 2;
        o.retries = 1;
        o.cells = k < 3 ? 0 : 2; /* in runs, or in groups of one */
        o.back_off = k % 2;
        o.fetcher = k == 5 ? DLP_FETCH_THREADS : 0;
        got = go(&o);
        same(&got, &want, "too long once");
    }
}

static void scratch__resumed__goes_on_exactly(void) {
    one o = ordinary(3, 2);
    result first, rest, want = expected(o);
    o.cells = 2;
    o.stop_after = 9;
    first = go(&o);
    o.stop_after = 0;
    o.resume = &first.state;
    o.fetchers = 1;
    rest = go(&o);
    CHECK(first.rc == DLP_OK && rest.rc == DLP_END && first.rows + rest.rows == want.rows);
    o = ordinary(0, 0);
    o.resume = &first.state;
    want = go(&o);
    same(&rest, &want, "resumed");
}

static void plan_of(uint32_t cells, uint64_t *count, uint64_t *each, uint64_t *slot) {
    one o = ordinary(2, 3);
    dlp_plan plan;
    dlp_error e;
    dlp_pipe *p;
    *count = 0;
    o.cells = cells;
    if (start(&o, &p, &e) != DLP_OK) return;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    for (uint32_t i = 0; i < plan.n_lines; i++) {
        if (strcmp(plan.lines[i].what, "scratch cells") != 0) continue;
        *count = plan.lines[i].count;
        *each = plan.lines[i].bytes_each;
    }
    *slot = p->areas[DLPI_REC_CELLS].stride;
    now = NULL;
    dlp_pipe_close(p);
}

static void scratch__plan__cells_to_the_byte(void) {
    uint64_t n, each, slot;
    plan_of(5, &n, &each, &slot);
    CHECK(n == 5 && each == 64 + 64 + 64); /* lengths; 48 of raw; 4 of size, each from 64 on */
    plan_of(0, &n, &each, &slot);
    CHECK(n == 42 &&        /* of 3 * 14 items under way, 4 times */
          each == 4 * 192); /* for runs of 4 rows: of 8 there were fewer than 2 + 2 * 3 */
    plan_of(1000, &n, &each, &slot);
    CHECK(n == 21 && each == 2 * 192); /* at most 3 * 14, and twice as many groups */
    CHECK(slot == 4096);               /* nothing of them is in a batch */
}

/* ---- refusals ---- */

/* The error of a table in which these fields end. maps: 1 map in which they end, 2 such maps; 0: a
   cache stands before the map. */
static dlp_error refused(const dlp_field *f, uint32_t n, uint32_t cells, int maps) {
    const dlp_dataset ds = {
        .n_items = ITEMS, .fields = batch_fields, .n_fields = 2, .fetch = read_item};
    rig_table t = {.n = 0};
    dlp_error e = {.code = 0};
    dlp_plan plan;
    dlp_pipe *p = NULL;
    table_list(&t, &(dlp_sampler_desc){.seed = 4});
    table_fetch(&t, &(dlp_source){.dataset = &ds}, 0);
    table_ends(&t, f, n, cells);
    if (n == 0) strcpy(t.ends, "none");
    if (maps == 0) table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = {.bytes = 1 << 20}});
    table_row(&t, (dlp_node){.verb = DLP_MAP, .map = {.item = decode_item}});
    if (maps == 2)
        table_row(&t, (dlp_node){.verb = DLP_MAP, .map = {.item = decode_item}})->map.ends = t.ends;
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 4}});
    if (table_pipe(&t, &p, NULL, &e) == DLP_OK && dlp_pipe_plan(p, &plan) != DLP_OK)
        e = *dlp_pipe_error(p);
    CHECK(e.code < 0);
    dlp_pipe_close(p);
    return e;
}

/* Fields of cells must end there: behind a maker (push NULL), and of what is pushed. */
static dlp_error behind_cells(dlp_push *push) {
    static const dlp_guard_field f = {"label", 0, 1e9, 0, 0};
    const dlp_dataset ds = {.n_items = ITEMS,
                            .fields = &batch_fields[1],
                            .n_fields = 1,
                            .filter = 1,
                            .fetch = read_item};
    rig_table t = {.n = 0};
    dlp_error e = {.code = 0};
    dlp_pipe *p;
    if (push == NULL) {
        table_list(&t, &(dlp_sampler_desc){.seed = 4});
        table_fetch(&t, &(dlp_source){.dataset = &ds}, 0);
        table_row(&t, (dlp_node){.verb = DLP_FILTER});
    } else {
        table_row(&t, (dlp_node){.verb = DLP_PUSH, .push = {push}});
    }
    table_row(&t, (dlp_node){.verb = DLP_GUARD, .guard = {.fields = &f, .n_fields = 1}});
    table_row(&t, (dlp_node){.verb = DLP_MAP, .map = {.item = decode_item, .ends = "label"}});
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 4}});
    CHECK(table_pipe(&t, &p, NULL, &e) < 0);
    return e;
}

static void scratch__fetch_only_copies__refused(void) {
    const dlp_push_desc desc = {.fields = &batch_fields[1], .n_fields = 1, .writers = 1};
    dlp_push *push;
    dlp_error e;
    e = behind_cells(NULL);                                           /* needs: parts */
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "map.ends") == 0); /* needs: parts */
    CHECK(strstr(e.message, "must end above") != NULL);               /* needs: parts */
    CHECK(dlp_push_open(&push, &desc, &e) == DLP_OK);
    e = behind_cells(push);
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "map.ends") == 0);
    CHECK(strstr(e.message, "must end above") != NULL);
    CHECK(dlp_push_close(push) == DLP_OK);
}

static void scratch__what_does_not_fit__named(void) {
    const dlp_field twice[2] = {raw_fields[0], raw_fields[0]}, label = batch_fields[1];
    dlp_field many[15];
    dlp_error e = refused(raw_fields, 0, 0, 1);
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "map.ends") == 0);
    for (int i = 0; i < 15; i++) many[i] = raw_fields[0];
    e = refused(many, 15, 0, 1);
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "source.dataset.n_fields") == 0);
    e = refused(raw_fields, 1, (1 << 20) + 1, 1);
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "queue.capacity") == 0);
    e = refused(twice, 2, 0, 1);
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "fields[].name") == 0);
    e = refused(&label, 1, 0, 1);
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "map.ends") == 0);
    e = refused(raw_fields, 2, 0, 0);
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "map.ends") == 0);
    e = refused(raw_fields, 2, 0, 2);
    CHECK(e.code == DLP_ERR_ARG && strcmp(e.field, "map.ends") == 0);
}

/* ---- rows of a run ---- */

/* What the callbacks of a run do: */
typedef struct short_rows {
    bool ragged;    /* the first field is; else it has a fixed size */
    uint64_t wrong; /* length that the fetch sets for "size" of item 50; 0: none */
    int marked;     /* the map sets the length of this one of the fields that it sees, of item 50;
                          -1: of none */
    const char *field; /* the error names this field; NULL: there is no error */
} short_rows;

static int read_short(void *user, dlp_item *it) {
    const short_rows *how = user;
    memset(it->data[0], 0xee, 24);
    if (how->ragged) it->length[0] = it->index % 3; /* 0, too, in a cell that has had more */
    memcpy(it->data[1], &it->index, 8);
    if (it->index == 50) it->length[1] = how->wrong;
    return 0;
}

static int mark_odd(void *user, dlp_item *it) { /* it sees words, size, mark */
    const short_rows *how = user;
    uint64_t *mark = it->data[2];
    CHECK(it->length[0] == (how->ragged ? it->index % 3 : 0) && *mark == 0);
    CHECK(*(const uint64_t *)it->data[1] == it->index);
    if (it->index % 2) *mark = 1 + it->index;
    if (it->index == 50 && how->marked >= 0) it->length[how->marked] = 1;
    return 0;
}

/* Each row has its own lengths, though one is 0. The map's field begins as zeros in each slot. A
   length of a field of a fixed size is an error that names the field, unless the field ends. */
static void rows__lengths_and_zeros__of_each_row(short_rows how) {
    const dlp_field mark = {"mark", DLP_U64, 0, {0}, 0, 0};
    const dlp_field fields[2] = {{"words", DLP_U64, 1, {3}, how.ragged, 0},
                                 {"size", DLP_U64, 0, {0}, 0, 0}};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 960}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = read_short, .user = &how, .fields = fields, .n_fields = 2}},
        {.name = "mark",
         .verb = DLP_MAP,
         .map = {.item = mark_odd,
                 .user = &how,
                 .fields = &mark,
                 .n_fields = 1,
                 .ends = "words size"}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 32}}};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    int rc;
    CHECK(dlp_pipe_open(&p, nodes, 4, NULL, &err) == DLP_OK);
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++)
            CHECK(((const uint64_t *)b->fields[0].data)[r] ==
                  (b->index[r] % 2 ? 1 + b->index[r] : 0));
        dlp_pipe_release(p, b);
    }
    CHECK(rc == (how.field != NULL ? DLP_ERR_LENGTH : DLP_END));
    if (how.field != NULL) CHECK(strcmp(dlp_pipe_error(p)->field, how.field) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- processes ---- */

static one placed(int k) {
    one o = ordinary(2, 2);
    o.place_fetch = k % 3 != 1 ? DLP_PLACE_PROCESSES : 0;
    o.place_decode = k % 3 != 2 ? DLP_PLACE_PROCESSES : 0;
    o.idempotent = k % 2;
    o.cells = 1 + (uint32_t)k % 4;
    return o;
}

static void scratch__processes__same(void) {
    result want = expected(ordinary(0, 0)), got;
    for (int k = 0; k < 12; k++) {
        one o = placed(k);
        o.fetchers = k / 3;
        if (o.fetchers == 0) o.place_fetch = 0;
        got = go(&o);
        same(&got, &want, "processes");
        CHECK(got.own[0] == 0);
    }
}

static void scratch__killed_in_either_callback__nothing_lost(void) {
    result want = expected(ordinary(0, 0)), got;
    for (int k = 0; k < 24; k++) {
        one o = placed(k);
        bool decodes = k % 3 != 2 && (k % 3 == 1 || k / 3 % 2);
        uint64_t more = 0;
        if (k % 4 == 3 && !decodes) o.fetcher = DLP_FETCH_THREADS;
        *(decodes ? &all->decodes : &all->reads) = 1 + (uint64_t)k * 5;
        got = go(&o);
        same(&got, &want, "killed");
        CHECK(got.restarts == 1 && got.own[0] == 0 && all->reads == 0 && all->decodes == 0);
        for (uint64_t x = 0; x < ITEMS; x++) more += all->read[x] - 2;
        if (decodes) CHECK(more == (o.idempotent ? 0 : 1)); /* read again, or not */
    }
}

/* A map's worker has given up the cell, and dies before the row is done: nothing is left to decode
   once more. */
static void scratch__cell_given_up_by_the_dead__read_again(void) {
    result want = expected(ordinary(0, 0)), got;
    for (uint64_t k = 1; k < 40; k += 9) {
        one o = placed(1); /* fetch in threads, the map in processes, idempotent */
        uint64_t more = 0;
        o.decoders = k % 2 ? 1 : 3;
        all->leaves = k;
        got = go(&o);
        same(&got, &want, "given up");
        for (uint64_t x = 0; x < ITEMS; x++) more += all->read[x] - 2;
        CHECK(all->leaves == 0 && got.restarts == 1 && more == 1 && got.own[0] == 0);
    }
}

/* A worker dies at the k-th access since its first of a cell. */
static void scratch__dies_at_any_access__nothing_lost(int64_t only) {
    const int64_t most = test_share(96, 4000);
    result want = expected(ordinary(0, 0)), got;
    uint64_t died = 0;
    for (int64_t k = 1; k <= most; k++) {
        one o = placed((int)(k % 12));
        if (only != 0 && k != only) continue;
        o.maps = k % 5 == 2;
        o.guarded = k % 3 == 1; /* needs: guard */
        all->in_runs = k % 7 < 4;
        if (all->in_runs) o.cells = 0;
        if (o.maps) want = expected(o);
        all->seen = 0;
        all->at = k;
        got = go(&o);
        all->at = all->in_runs = 0;
        died += got.restarts;
        same(&got, &want, "dies");
        CHECK(got.own[0] == 0);
        if (got.digest != want.digest || got.own[0] != 0) printf("scratch %d\n", (int)k);
        if (o.maps) want = expected(ordinary(0, 0));
    }
    CHECK(died >= (only ? 1u : (uint64_t)most * 9 / 10));
}

static void scratch__monitored__cells_in_use(void) {
    one o = ordinary(2, 1);
    dlp_monitor *m = NULL;
    dlp_stats s;
    dlp_error e;
    dlp_pipe *p;
    char who[16];
    uint64_t most = 0;
    o.cells = 3;
    o.slow_us = 2000;
    if (start(&o, &p, &e) != DLP_OK) return;
    snprintf(who, sizeof who, "%d", (int)getpid());
    CHECK(dlp_monitor_open(&m, who, &e) == DLP_OK);
    for (int i = 0; i < 500 && most < 3; i++) {
        CHECK(dlp_monitor_refresh(m, &e) == DLP_OK && dlp_monitor_stats(m, &s) == DLP_OK);
        CHECK(s.stages[3].own[1] == 3);
        if (s.stages[3].own[0] > most) most = s.stages[3].own[0];
        test_pause(1000000);
    }
    CHECK(most == 3); /* two fetch, one decodes: all are in use */
    dlp_monitor_close(m);
    now = NULL;
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(int argc, char **argv) {
    const char *why = shm_missing();
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 2) {
        scratch__what_does_not_fit__named();
        rows__lengths_and_zeros__of_each_row((short_rows){true, 0, -1, NULL});
        rows__lengths_and_zeros__of_each_row((short_rows){false, 0, -1, NULL});
        rows__lengths_and_zeros__of_each_row((short_rows){false, 2, -1, "size"});
        rows__lengths_and_zeros__of_each_row((short_rows){false, 0, 0, NULL});
        rows__lengths_and_zeros__of_each_row((short_rows){false, 0, 1, NULL});
        rows__lengths_and_zeros__of_each_row((short_rows){false, 0, 2, "mark"});
        scratch__fetch_only_copies__refused();
        scratch__any_workers_and_cells__same_order_and_bytes();
        scratch__many_in_flight__same();
        scratch__errors_of_either__by_policy();
        scratch__padded_batch__looked_through_once();
        scratch__stage_behind_sends_back__read_again();
        scratch__cache_behind__read_and_decoded_once(false);
        scratch__zipped_after_the_map__same(false);        /* needs: join */
        scratch__guard_between__sees_what_was_read(false); /* needs: guard */
        scratch__too_long__error_names_field();
        scratch__too_long_once__tried_again();
        scratch__resumed__goes_on_exactly();
        scratch__plan__cells_to_the_byte();
        scratch__monitored__cells_in_use();
    }
    if (why && !RIG_TSAN) test_skip(why);
    if (why == NULL && argc < 2) {
        scratch__processes__same();
        scratch__cache_behind__read_and_decoded_once(true);
        scratch__zipped_after_the_map__same(true);        /* needs: join */
        scratch__guard_between__sees_what_was_read(true); /* needs: guard */
        scratch__killed_in_either_callback__nothing_lost();
        scratch__cell_given_up_by_the_dead__read_again();
    }
    if (why == NULL) scratch__dies_at_any_access__nothing_lost(argc > 1 ? atoll(argv[1]) : 0);
    return test_end("scratch");
}
