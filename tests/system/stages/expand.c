/* needs: parts */
/* Expanders and filters: bytes and order against a list written down by a direct program, with
   workers killed inside fetch and expand, resumed behind every batch; what is refused. expand
   [seed] */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/inside_parts.h"
#include "../../rig/shm_rig.h"
#include "../../rig/inputs_rig.h"
#include <malloc.h>

#define INPUTS 300

enum { NOTHING, FAILS, DIES };

typedef struct seen_all {
    uint32_t calls, kill_every, over, fail;
    uint32_t torn;           /* one in so many inputs can't be read; 0: none */
    uint32_t runs;           /* longest run of inputs that a cell had */
    uint64_t now;            /* with set_epoch: the epoch that it began, UINT64_MAX while it runs */
    uint32_t running, wrong; /* callbacks; those of another epoch than now */
    int set;                 /* there is a set_epoch */
    int longer;              /* not 0: field longer - 1 of each made item gets a length of 9 */
    int spoils;              /* 1: callbacks write over all that they are given */
    int first;               /* what the first call of each input does: */
    uint8_t called[INPUTS];  /* with first: calls of each input */
} seen_all;

static seen_all *seen; /* shared */

static const dlp_field in_fields[1] = {{"base", DLP_U64, 0, {0}, 0, 0}};
static const dlp_field out_fields[2] = {{"word", DLP_U64, 1, {2}, 0, 0},
                                        {"tail", DLP_U8, 1, {7}, 1, 0}};

static uint64_t base(uint64_t index) { return dlp_hash(index, 5, 0, 0); }
static int torn(uint64_t index) { return seen->torn != 0 && base(index) / 16 % seen->torn == 0; }
static uint32_t made(uint64_t index) {
    if (torn(index)) return 0;
    return base(index) % 3 == 0 ? 0 : (uint32_t)(base(index) % 6);
}

/* From life to life other bytes, and another count. */
static int dies(void) {
    uint32_t n = __atomic_add_fetch(&seen->calls, 1, __ATOMIC_SEQ_CST);
    return seen->kill_every != 0 && n % seen->kill_every == 0;
}

/* With `first`: each input fails, or kills its worker, once. */
static int first_call(const dlp_item *it) {
    uint8_t *called = &seen->called[it->index];
    if (seen->first == NOTHING) return 0;
    if (it->attempt != (seen->first == FAILS ? *called : 0)) seen->wrong++;
    if ((*called)++ > 0) return 0;
    if (seen->first == DIES) raise(SIGKILL);
    return dlp_fail(it->call, 5, "the first call");
}

/* ---- set_epoch: no callback runs beside it, or before it for its epoch ---- */

static void epoch_check(uint64_t epoch) {
    if (seen->set && __atomic_load_n(&seen->now, __ATOMIC_SEQ_CST) != epoch)
        __atomic_add_fetch(&seen->wrong, 1, __ATOMIC_SEQ_CST);
}

static void epoch_enter(uint64_t epoch) {
    __atomic_add_fetch(&seen->running, 1, __ATOMIC_SEQ_CST);
    epoch_check(epoch);
    if (seen->set && epoch % 2 == 0) usleep(50);
}

static void epoch_leave(uint64_t epoch) {
    epoch_check(epoch);
    __atomic_sub_fetch(&seen->running, 1, __ATOMIC_SEQ_CST);
}

static int epoch_set(void *user, uint64_t epoch) {
    (void)user;
    if (__atomic_load_n(&seen->running, __ATOMIC_SEQ_CST) != 0) seen->wrong++;
    __atomic_store_n(&seen->now, UINT64_MAX, __ATOMIC_SEQ_CST);
    usleep(2000);
    __atomic_store_n(&seen->now, epoch, __ATOMIC_SEQ_CST);
    return 0;
}

static int fetch(void *user, dlp_item *it) {
    (void)user;
    epoch_enter(it->epoch);
    epoch_leave(it->epoch);
    if (first_call(it) != 0) return DLP_ERR_CALLBACK;
    if (seen->fail == it->index + 1 || torn(it->index)) return dlp_fail(it->call, 5, "torn");
    *(uint64_t *)it->data[0] = dies() ? 1 : base(it->index);
    if (*(uint64_t *)it->data[0] == 1) raise(SIGKILL);
    if (seen->spoils) item_spoil(it);
    return 0;
}

/* Write over what an expander sees, and over an item that it has made. */
static void spoil(dlp_expand *x, dlp_item *it) {
    static const uint32_t made[] = {0, 1, 4, 8000000, UINT32_MAX};
    if (!seen->spoils) return;
    x->n_made = made[base(x->n_made) % 5];
    x->item = NULL;
    x->call = NULL;
    if (it != NULL) item_spoil(it);
}

static int expand(void *user, dlp_expand *x) {
    uint64_t index = x->item->index, b = *(const uint64_t *)x->item->data[0];
    uint32_t n = made(index) + (seen->over == index + 1 ? 9 : 0);
    int die = dies();
    (void)user;
    epoch_enter(x->item->epoch);
    epoch_leave(x->item->epoch);
    spoil(x, NULL);
    for (uint32_t i = 0; i < n; i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return 0;
        ((uint64_t *)it->data[0])[0] = die ? 1 : index;
        ((uint64_t *)it->data[0])[1] = b + i;
        memset(it->data[1], (int)(i + 1), (i + b) % 8);
        it->length[1] = (i + b) % 8;
        if (seen->longer != 0) it->length[seen->longer - 1] = 9;
        spoil(x, it);
    }
    if (die && dlp_expand_add(x) != NULL) raise(SIGKILL);
    if (die) raise(SIGKILL);
    return 0;
}

static int keep(void *user, dlp_item *it) { /* 1 in 10 */
    uint64_t b;
    (void)user;
    epoch_enter(it->epoch);
    epoch_leave(it->epoch);
    if (dies()) {
        memset(it->data[0], 255, 8);
        raise(SIGKILL);
    }
    b = *(uint64_t *)it->data[0] = base(it->index);
    if (seen->spoils) item_spoil(it);
    return b % 10 ? DLP_SKIP : 0;
}

static int add_one(void *user, dlp_item *it) { /* a map in place, which is not idempotent */
    (void)user;
    ++*(uint64_t *)it->data[0];
    return 0;
}

static void init(rig2 *r, int filter) {
    memset(r, 0, sizeof *r);
    memset(seen, 0, sizeof *seen);
    r->sampler.order = DLP_ORDER_SHUFFLED;
    r->sampler.seed = 7;
    r->expand.expand = filter ? NULL : expand;
    r->expand.max_out = filter ? 0 : 5;
    r->expand.fields = filter ? NULL : out_fields;
    r->expand.n_fields = filter ? 0 : 2;
    r->by.num_workers = 2;
    r->dataset.n_items = INPUTS;
    r->dataset.fields = in_fields;
    r->dataset.n_fields = 1;
    r->dataset.fetch = filter ? keep : fetch;
    r->fetch.num_workers = 1;
    r->batch.batch_size = 8;
}

/* ---- the order, written down ---- */

typedef struct item2 {
    uint64_t index, number;
    uint64_t ordinal, used; /* of its input in the stream; items of that up to it */
} item2;

static item2 list[16][INPUTS * 50];
static uint64_t n_list[16];
static uint64_t first_torn; /* the first input of the epoch that can't be read; INPUTS: none */

/* What is cut every `window` items of stream s, permuted. */
static void mix(uint64_t s, uint64_t window, uint64_t epoch) {
    static item2 was[INPUTS * 50];
    static dlp_permutation order;
    memcpy(was, list[s], n_list[s] * sizeof *was);
    for (uint64_t from = 0; from < n_list[s]; from += window) {
        uint64_t k = n_list[s] - from < window ? n_list[s] - from : window;
        uint64_t h = inside_hash(INSIDE_SHUFFLE_WINDOW, 7, s);
        h = inside_absorb(h, from ? was[from - 1].ordinal : 0);
        h = inside_absorb(h, from ? was[from - 1].used : 0);
        dlp_permutation_init(&order, k, h, epoch);
        for (uint64_t i = 0; i < k; i++)
            list[s][from + i] = was[from + dlp_permutation_at(&order, i)];
    }
}

static void write_down(const rig2 *r, uint64_t epoch) {
    static dlp_permutation order, items;
    uint64_t c = r->pipe.streams ? r->pipe.streams : 1, m = r->batch.batch_size / c;
    for (uint64_t s = 0; s < c; s++) {
        n_list[s] = 0;
        for (uint64_t pass = 0; pass == 0 || n_list[s] < (uint64_t)r->pipe.steps_per_epoch * m;
             pass++) {
            dlp_permutation_init(&order, INPUTS, inside_hash(INSIDE_PARTS, 7, pass), epoch);
            for (uint64_t j = s; j < INPUTS; j += c) {
                uint64_t i =
                    r->sampler.order == DLP_ORDER_SHUFFLED ? dlp_permutation_at(&order, j) : j;
                uint32_t n = r->expand.expand ? made(i) : base(i) % 10 == 0;
                if (n > 0)
                    dlp_permutation_init(&items, n,
                                         inside_absorb(inside_hash(INSIDE_PART_ITEMS, 7, i), pass),
                                         epoch);
                for (uint32_t k = 0; k < n && n_list[s] < INPUTS * 50; k++) {
                    item2 x = {i, r->expand.shuffle_items ? dlp_permutation_at(&items, k) : k,
                               pass * ((INPUTS - s + c - 1) / c) + j / c, k + 1u};
                    list[s][n_list[s]++] = x;
                }
            }
        }
        if (r->pipe.steps_per_epoch && n_list[s] > (uint64_t)r->pipe.steps_per_epoch * m)
            n_list[s] = (uint64_t)r->pipe.steps_per_epoch * m;
        if (r->window) mix(s, r->window, epoch);
    }
}

static int same(const rig2 *r, const dlp_batch *b) {
    uint64_t c = r->pipe.streams ? r->pipe.streams : 1, m = r->batch.batch_size / c;
    uint32_t world = r->pipe.world_size ? r->pipe.world_size : 1;
    const uint64_t *words = b->fields[0].data;
    int ok = 1;
    for (uint32_t i = 0; i < b->count && ok; i++) {
        uint64_t g = (uint64_t)r->pipe.rank * (r->batch.batch_size / world) + i;
        uint64_t at = b->in_epoch * m + g % m;
        const item2 *x = &list[g / m][at];
        if (at >= n_list[g / m]) {
            ok &= b->valid[i] == 0;
        } else if (r->expand.expand) {
            const uint8_t *tail = (const uint8_t *)b->fields[1].data + i * 7;
            uint64_t v = base(x->index), len = (x->number + v) % 8;
            ok &= words[2 * i] == x->index + (r->map ? 1 : 0) && words[2 * i + 1] == v + x->number;
            ok &= b->fields[1].lengths[i] == len && b->index[i] == x->index;
            for (uint64_t k = 0; k < 7; k++) ok &= tail[k] == (k < len ? x->number + 1 : 0);
        } else {
            ok &= words[i] == base(x->index) + (r->map ? 1 : 0) && b->index[i] == x->index;
        }
    }
    return ok;
}

static int64_t batches(const rig2 *r) {
    uint64_t c = r->pipe.streams ? r->pipe.streams : 1, m = r->batch.batch_size / c, n = 0;
    if (r->pipe.steps_per_epoch) return (int64_t)r->pipe.steps_per_epoch * r->pipe.epochs;
    for (int64_t e = 0; e < r->pipe.epochs; e++) {
        uint64_t most = 0;
        write_down(r, (uint64_t)e);
        for (uint64_t s = 0; s < c; s++)
            if ((n_list[s] + m - 1) / m > most) most = (n_list[s] + m - 1) / m;
        n += most;
    }
    return (int64_t)n;
}

static int64_t run(rig2 *r, dlp_state *states) {
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    int64_t n = 0;
    uint64_t epoch = UINT64_MAX;
    int rc = open_pipe(r, &p, &err), ok = 1;
    if (rc != DLP_OK) {
        printf("%s %s: %s\n", err.stage, err.field, err.message);
        return -1;
    }
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (b->epoch != epoch) write_down(r, epoch = b->epoch);
        ok &= same(r, b);
        if (states) ok &= dlp_pipe_state(p, b, &states[n]) == DLP_OK;
        dlp_pipe_release(p, b);
        n++;
    }
    if (rc != DLP_END) printf("%s\n", dlp_pipe_error(p)->message);
    if (inside_input_run(p) > seen->runs) seen->runs = inside_input_run(p);
    ok &= dlp_pipe_close(p) == DLP_OK && rc == DLP_END;
    return ok ? n : -1;
}

static void any_case(uint64_t *random, int processes) {
    static const int32_t workers[] = {0, 1, 4, 16}, makers[] = {DLP_NONE, 1, 4, 16};
    static const uint32_t streams[] = {1, 2, 4, 8};
    dlp_shm_desc shm;
    rig2 r;
    int filter = (int)test_pick(random, 2);
    memset(&shm, 0, sizeof shm);
    shm.max_kills = 100;
    init(&r, filter);
    r.pipe.epochs = 1 + test_pick(random, 2);
    r.map = test_pick(random, 2) ? add_one : NULL;
    if (test_pick(random, 2)) r.window = 1 + test_pick(random, test_pick(random, 2) ? 50 : 5000);
    r.sampler.order = (int32_t)test_pick(random, 2);
    r.expand.shuffle_items = (int32_t)test_pick(random, 2);
    r.pipe.streams = streams[test_pick(random, 4)];
    r.batch.batch_size = 8 * (1 + test_pick(random, 3));
    if (test_pick(random, 2)) r.pipe.steps_per_epoch = 1 + test_pick(random, 20);
    r.by.num_workers = makers[test_pick(random, processes ? 3 : 4)];
    r.fetch.num_workers = workers[test_pick(random, 3)];
    if (r.window == 0 && test_pick(random, 4) == 0)
        r.cells = 200;
    else if (test_pick(random, 3) == 0) /* there are boxes then, which workers fill */
        r.cells = r.pipe.streams + test_pick(random, 4), r.expand.max_out = filter ? 0 : 300;
    if (test_pick(random, 3) == 0) {
        r.by.on_error = DLP_ON_ERROR_DROP;
        seen->torn = 2 + test_pick(random, 20);
    }
    seen->spoils = (int)(*random >> 63);
    if (processes) {
        r.pipe.shm = &shm;
        r.by.placement = r.fetch.placement = DLP_PLACE_PROCESSES;
        if (r.by.num_workers > 0) seen->kill_every = 40 + test_pick(random, 90);
    }
    CHECK(run(&r, NULL) == batches(&r));
}

static void run__any_wiring__as_written_down(uint64_t seed) {
    uint32_t most = 0;
    for (int i = 0; i < test_share(80, 2000); i++) {
        any_case(&seed, 0);
        if (seen->runs > most) most = seen->runs;
    }
    CHECK(most > 1 || inside_debug()); /* how many, clocks say */
}

static void kill__inside_fetch_and_expand__as_written_down(uint64_t seed) {
    for (int i = 0; i < test_share(12, 500); i++) any_case(&seed, 1);
}

static void ranks__streams_divided__same_rows(void) {
    for (uint32_t world = 1; world <= 4; world *= 2)
        for (uint32_t rank = 0; rank < world; rank++) {
            rig2 r;
            init(&r, 0);
            r.pipe.epochs = 2;
            r.pipe.rank = rank;
            r.pipe.world_size = world;
            r.pipe.streams = 4;
            r.pipe.steps_per_epoch = 30;
            CHECK(run(&r, NULL) == 60);
        }
}

static void resume__behind_any_batch__goes_on_exactly(void) {
    static dlp_state states[400];
    for (int i = 0; i < 4; i++) {
        rig2 r;
        int64_t all;
        init(&r, i % 2);
        r.window = i < 2 ? 0 : 21;
        r.pipe.epochs = 2;
        r.pipe.streams = 2;
        all = batches(&r);
        CHECK(all < 400 && run(&r, states) == all);
        for (int64_t k = 0; k < all; k += 1 + k / 16) {
            r.pipe.resume = &states[k];
            r.by.num_workers = (int32_t)(k % 5) - 1;
            CHECK(run(&r, NULL) == all - k - 1);
        }
    }
}

/* The consumer goes where it likes, by what it saved, while runs are half made. */
static void wander(rig2 *r, const dlp_state *states, int64_t all, uint64_t *random) {
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    uint64_t epoch = UINT64_MAX;
    int rc = open_pipe(r, &p, &err), ok = rc == DLP_OK;
    for (int i = 0; i < 60 && ok; i++) {
        for (uint32_t n = test_pick(random, 6); n > 0 && ok; n--) {
            rc = dlp_pipe_next_timeout(p, &b, test_pick(random, 4) ? 20000 : 0);
            if (rc == DLP_TIMEOUT || rc == DLP_END) break;
            if (rc == DLP_OK && b->epoch != epoch) write_down(r, epoch = b->epoch);
            ok = rc == DLP_OK && same(r, b) && dlp_pipe_release(p, b) == DLP_OK;
        }
        if (rc == DLP_END || test_pick(random, 3))
            ok &= dlp_pipe_seek(p, &states[test_pick(random, (uint32_t)all)], &err) == DLP_OK;
        else
            ok &= dlp_pipe_next_epoch(p) == DLP_OK;
    }
    if (!ok) printf("%s\n", dlp_pipe_error(p)->message);
    CHECK(ok && dlp_pipe_close(p) == DLP_OK);
}

static void seek__inside_runs__as_written_down(uint64_t seed) {
    static dlp_state states[1000];
    for (int i = 0; i < test_share(24, 500); i++) {
        dlp_shm_desc shm = {.max_kills = 100};
        rig2 r;
        int64_t all;
        init(&r, i % 2);
        r.pipe.epochs = 3;
        r.pipe.streams = 1u << test_pick(&seed, 3);
        r.window = test_pick(&seed, 2) ? 0 : 1 + test_pick(&seed, 40);
        r.pipe.steps_per_epoch = test_pick(&seed, 3) ? 0 : 20;
        if (test_pick(&seed, 2)) {
            r.by.on_error = DLP_ON_ERROR_DROP;
            seen->torn = 4;
        }
        all = batches(&r);
        CHECK(all < 1000 && run(&r, states) == all);
        r.by.num_workers = (int32_t)test_pick(&seed, 5) - 1;
        if (i % 3 == 2) {
            r.pipe.shm = &shm;
            r.by.placement = r.fetch.placement = DLP_PLACE_PROCESSES;
            if (r.by.num_workers > 0) seen->kill_every = 500; /* restarts take their turns */
        }
        wander(&r, states, all, &seed);
    }
}

/* The loader's one word for it. */
static void loader__filter__batches_are_full(void) {
    for (int workers = 0; workers < 4; workers++) {
        dlp_loader_desc d = {.batch_size = 8, .num_workers = workers, .shuffle = 1, .seed = 7};
        rig2 r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_error err;
        uint64_t n = 0;
        init(&r, 1);
        r.pipe.epochs = d.epochs = 3;
        d.dataset = r.dataset;
        d.dataset.filter = 1;
        CHECK(dlp_loader_open(&p, &d, &err) == DLP_OK);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            if (b->in_epoch == 0) write_down(&r, b->epoch);
            CHECK(same(&r, b) && (b->count == 8 || (b->flags & DLP_BATCH_LAST)));
            dlp_pipe_release(p, b);
            n++;
        }
        CHECK((int64_t)n == batches(&r) && dlp_pipe_close(p) == DLP_OK);
    }
}

static int keep_all(void *user, dlp_item *it) {
    (void)user;
    *(uint8_t *)it->data[0] = (uint8_t)it->index;
    return 0;
}

/* Copies of a small batch are the consumer's. Larger ones have workers, two at most, and no more
   than the cores that the makers leave. */
static void loader__filter__small_batches_are_copied_by_next(void) {
    static const int rows[] = {1, 4096, 4097}, workers[] = {1, 4};
    for (size_t i = 0; i < 6; i++) {
        const int n = workers[i % 2], most = n < 2 ? n : 2;
        int spare;
        dlp_field field = {"x", DLP_U8, 1, {rows[i / 2]}, 0, 0};
        dlp_loader_desc d = {.dataset = {.n_items = 10, .fields = &field, .n_fields = 1},
                             .batch_size = 1,
                             .num_workers = n};
        dlp_stats stats;
        dlp_pipe *p;
        d.dataset.fetch = keep_all;
        d.dataset.filter = 1;
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
        spare = (int)stats.cpus > n ? (int)stats.cpus - n : 0;
        for (uint32_t k = 0; k < stats.n_stages; k++) {
            const dlp_stage_stats *st = &stats.stages[k];
            if (st->kind == DLP_STAGE_EXPAND) CHECK(st->workers == n);
            if (st->kind == DLP_STAGE_FETCH)
                CHECK(st->workers == (rows[i / 2] <= 4096 ? 0 : spare < most ? spare : most));
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- inputs of a run ---- */

enum {
    DIRTY = 400,
    DIRTY_EPOCHS = 200,    /* all cells come round */
    DIRTY_LAST = DIRTY - 6 /* fails without words, behind one that has some */
};

/* Write a byte of eight. Some inputs write all bytes, and fail the first time or are left out. Some
   have words, and are kept all the same. */
static int fetch_dirty(void *user, dlp_item *it) {
    uint8_t *bytes = it->data[0];
    const bool at_end = *(const bool *)user, skips = it->index % 5 == 2;
    const bool fails = it->index % 7 == 3 && it->attempt == 0 && !at_end;
    if (it->length[0] != 0) seen->wrong++;
    it->length[0] = 9; /* which nobody reads, for the field has no length */
    for (int i = 0; i < 8; i++) seen->wrong += bytes[i] != 0;
    if (fails || skips) memset(bytes, 0xa5, 8);
    bytes[it->index % 8] = 1;
    if (it->index % 4 == 1) dlp_fail(it->call, 5, "words of input %d", (int)it->index);
    if (it->index == DIRTY_LAST && it->epoch == 2 && at_end) return -1;
    return fails ? -1 : skips ? DLP_SKIP : 0;
}

static int expand_dirty(void *user, dlp_expand *x) {
    (void)user;
    for (int i = 0; i < 2; i++) {
        uint8_t *bytes = dlp_expand_add(x)->data[0];
        for (int k = 0; k < 8; k++) seen->wrong += bytes[k] != 0;
        memcpy(bytes, x->item->data[0], 8);
    }
    return 0;
}

/* The places of inputs, and of the items made of them, begin as zeros at each try, whatever lay in
   the cell before; an input's words are not those of the next one. */
static void run__places_and_words__each_input_has_its_own(bool expands, bool at_end) {
    const dlp_field field = {"bytes", DLP_U8, 1, {8}, 0, 0};
    dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = DIRTY}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch_dirty, .user = &at_end, .fields = &field, .n_fields = 1},
         .workers = {.num_workers = 1, .retries = !at_end}},
        {.name = "expand", .verb = DLP_EXPAND, .expand = {.expand = expand_dirty, .max_out = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
    dlp_pipe_desc d = {.epochs = DIRTY_EPOCHS};
    uint64_t rows = 0;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_error err;
    int rc;
    dlp_loader_desc filter = {
        .dataset = {.n_items = DIRTY, .fields = &field, .n_fields = 1, .filter = 1},
        .num_workers = 1,
        .workers = {.retries = !at_end},
        .batch_size = 8,
        .epochs = DIRTY_EPOCHS};
    filter.dataset.fetch = fetch_dirty;
    filter.dataset.user = &at_end;
    seen->wrong = 0;
    rc = expands ? dlp_pipe_open(&p, nodes, 4, &d, &err) : dlp_loader_open(&p, &filter, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t r = 0; r < b->count; r++, rows++) {
            const uint8_t *bytes = (const uint8_t *)b->fields[0].data + r * 8u;
            for (uint64_t i = 0; i < 8; i++)
                if (bytes[i] != (i == b->index[r] % 8)) seen->wrong++;
        }
        dlp_pipe_release(p, b);
    }
    CHECK(seen->wrong == 0);
    CHECK(rc == (at_end ? DLP_ERR_CALLBACK : DLP_END));
    if (at_end) CHECK(strstr(dlp_pipe_error(p)->message, "words") == NULL);
    if (!at_end) CHECK(rows == DIRTY_EPOCHS * (DIRTY - DIRTY / 5) * (uint64_t)(1 + expands));
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static dlp_pipe *stopped_; /* by a callback */
static uint64_t stops_at;

static int fetch_stops(void *user, dlp_item *it) {
    (void)user;
    if (seen->over) seen->wrong++;
    memset(it->data[0], 0, 8);
    if (it->index != stops_at) return 0;
    seen->over = 1;
    while (__atomic_load_n(&stopped_, __ATOMIC_SEQ_CST) == NULL) test_pause(1000);
    dlp_pipe_stop(stopped_);
    return 0;
}

static int keep_each(void *user, const dlp_item *it) {
    (void)user;
    (void)it;
    return 1;
}

/* Workers of makers go on while the consumer copies a batch of large items: there are cells for
   another one. The consumer copies each batch to where it has read the one before. */
static void loader__filter__cells_for_another_batch_and_one_slot(void) {
    const dlp_field field = {"x", DLP_U8, 1, {16384}, 0, 0};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = 300}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = keep_all, .fields = &field, .n_fields = 1}},
        {.name = "all",
         .verb = DLP_FILTER,
         .filter = {.keep = keep_each},
         .workers = {.num_workers = 1}},
        {.name = "batch",
         .verb = DLP_BATCH,
         .batch = {.batch_size = 16, .last = DLP_LAST_PARTIAL, .copy_workers = DLP_NONE}}};
    dlp_pipe_desc d = {.prefetch_factor = 8};
    const void *at = NULL;
    uint64_t cells = 0, n = 0;
    dlp_stats stats;
    dlp_pipe *p;
    dlp_batch *b, *held;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
    for (uint32_t k = 0; k < stats.n_stages; k++)
        if (stats.stages[k].kind == DLP_STAGE_EXPAND) cells = stats.stages[k].cells;
    CHECK(cells >= 2 * 16 + 1);
    for (; dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; n++) {
        const uint8_t *row = b->fields[0].data;
        for (uint32_t r = 0; r < b->count; r++)
            CHECK(row[r * 16384u] == (uint8_t)(n * 16 + r) && row[r * 16384u + 1] == 0);
        if (n == 0) at = b->fields[0].data;
        CHECK(b->fields[0].data == at);
        dlp_pipe_release(p, b);
    }
    CHECK(n == 300 / 16 + 1 && dlp_pipe_close(p) == DLP_OK);
    d.max_held = 2; /* another batch while one is held */
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &held, 20000) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    CHECK(b->fields[0].data != held->fields[0].data && *(uint8_t *)b->fields[0].data == 16);
    CHECK(*(uint8_t *)held->fields[0].data == 0);
    dlp_pipe_release(p, held);
    dlp_pipe_release(p, b);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* Inputs of a run after one that stops the pipe are not begun. */
static void stop__inside_a_run__no_input_more(void) {
    const dlp_node nodes[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = 4000}},
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.fetch = fetch_stops, .fields = in_fields, .n_fields = 1},
                               .workers = {.num_workers = 1}},
                              {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_each}},
                              {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 100}}};
    seen->wrong = 0;
    for (stops_at = 3000; stops_at < 3010; stops_at++) {
        dlp_pipe *p;
        dlp_batch *b;
        dlp_error err;
        int rc;
        seen->over = 0;
        stopped_ = NULL;
        rc = dlp_pipe_open(&p, nodes, 4, NULL, &err);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) return;
        __atomic_store_n(&stopped_, p, __ATOMIC_SEQ_CST); /* the worker may be there already */
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_STOPPED && seen->over == 1);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    CHECK(seen->wrong == 0);
    seen->over = 0;
}

/* Inputs and items are counted once, though workers die at theirs. */
static void stats__workers_killed__exact(void) {
    for (int filter = 0; filter < 2; filter++) {
        dlp_shm_desc shm;
        rig2 r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_error err;
        dlp_stats stats;
        char text[4096];
        const dlp_stage_stats *g = &stats.stages[2];
        memset(&shm, 0, sizeof shm);
        shm.max_kills = 100;
        init(&r, filter);
        r.pipe.shm = &shm;
        r.by.placement = r.fetch.placement = DLP_PLACE_PROCESSES;
        r.window = filter ? 0 : 10;
        r.pipe.epochs = 2;
        seen->kill_every = 50;
        CHECK(open_pipe(&r, &p, &err) == DLP_OK);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
        write_down(&r, 0);
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && g->kind == DLP_STAGE_EXPAND);
        CHECK(g->restarts > 0 && g->inputs == 2 * INPUTS && g->inputs_items == 2 * n_list[0]);
        CHECK(g->window == r.window && g->cell_bytes > 0);
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
        CHECK(strstr(text, filter ? "'expand' keeps 9.7 %: 10.3" : "'expand' makes 2.10 items") !=
              NULL);
        CHECK(strstr(text, filter ? "inputs a row.\n" : "for windows of 10 items") != NULL);
        if (test_failures) printf("%s\n", text);
        if (filter) CHECK(g->inputs_empty == 2 * INPUTS - g->inputs_items);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int fails(rig2 *r, dlp_error *err) {
    dlp_pipe *p = NULL;
    dlp_batch *b;
    int rc = open_pipe(r, &p, err);
    if (rc != DLP_OK) return rc;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
    *err = *dlp_pipe_error(p);
    dlp_pipe_close(p);
    return rc;
}

static void fail__by_input__named(void) {
    rig2 r;
    dlp_error err;
    init(&r, 0);
    seen->over = 12;
    CHECK(fails(&r, &err) == DLP_ERR_LENGTH && strstr(err.message, "input 11") != NULL);
    CHECK(strstr(err.message, "max_out 5") != NULL);
    for (int f = 0; f < 2; f++) {
        init(&r, 0);
        seen->longer = f + 1;
        CHECK(fails(&r, &err) == DLP_ERR_LENGTH && strcmp(err.field, out_fields[f].name) == 0);
        CHECK(strstr(err.message, f == 0 ? "fixed size, a length of 9" : "its maximum is 7"));
    }
    init(&r, 0);
    seen->fail = 12;
    CHECK(fails(&r, &err) == DLP_ERR_CALLBACK && strstr(err.message, "input 11: torn") != NULL);
}

/* The inputs of a run have tries and deaths of their own: an input that fails once, or kills its
   worker once, is no worse off behind others that did. */
static void fail__each_input_of_a_run_once__all_come(int first) {
    dlp_shm_desc shm = {.max_kills = 2};
    rig2 r;
    init(&r, 0);
    seen->first = first;
    r.pipe.epochs = 1;
    r.by.num_workers = 1;
    r.by.retries = 1;
    if (first == DIES) {
        r.pipe.shm = &shm;
        r.by.placement = r.fetch.placement = DLP_PLACE_PROCESSES;
    }
    CHECK(run(&r, NULL) == batches(&r));
    CHECK((seen->runs > 1 || inside_debug()) && seen->wrong == 0);
    for (int i = 0; i < INPUTS; i++) CHECK(seen->called[i] == 2);
}

/* Is batch n all there, or does it lack a row of the first input that can't be read, and fail? */
static int as_torn(const dlp_pipe *p, const dlp_batch *b, int rc, uint64_t n) {
    char words[32];
    if (first_torn < INPUTS && n * 8 + 8 > n_list[0]) {
        const dlp_error *e = dlp_pipe_error(p);
        snprintf(words, sizeof words, "input %d: torn", (int)first_torn);
        return rc == DLP_ERR_CALLBACK && strstr(e->message, words) != NULL && e->has_item == 1 &&
               e->index == first_torn && e->position == n_list[0];
    }
    for (uint32_t i = 0; rc == DLP_OK && i < b->count; i++)
        if (((const uint64_t *)b->fields[0].data)[2 * i] != list[0][n * 8 + i].index) return 0;
    return rc == DLP_OK;
}

/* The order of a shuffled epoch before the first input that can't be read, with windows or, 0,
   without. Of windows only those are known that end before that input. */
static void write_down_torn(uint64_t epoch, uint64_t window) {
    static dlp_permutation order;
    n_list[0] = 0;
    first_torn = INPUTS;
    dlp_permutation_init(&order, INPUTS, inside_hash(INSIDE_PARTS, 7, 0), epoch);
    for (uint64_t j = 0; j < INPUTS && first_torn == INPUTS; j++) {
        uint64_t i = dlp_permutation_at(&order, j);
        if (torn(i)) first_torn = i;
        for (uint32_t k = 0; k < made(i); k++) list[0][n_list[0]++] = (item2){i, k, j, k + 1u};
    }
    if (window && first_torn < INPUTS) n_list[0] = n_list[0] / window * window;
    if (window) mix(0, window, epoch);
}

static void fail__inside_runs__named_in_its_place(uint32_t window) {
    static const int32_t makers[] = {DLP_NONE, 1, 2, 4, 4};
    for (uint32_t i = 0; i < 20; i++) {
        rig2 r;
        dlp_pipe *p;
        dlp_batch *b = NULL;
        dlp_error err;
        uint64_t n = 0;
        int rc, ok = 1;
        init(&r, 0);
        seen->torn = 20 + i;
        write_down_torn(0, window);
        r.window = window;
        r.by.num_workers = makers[i % 5];
        r.cells = i % 5 == 4 && window == 0 ? 100 : 0;
        CHECK(open_pipe(&r, &p, &err) == DLP_OK);
        do {
            rc = dlp_pipe_next_timeout(p, &b, 20000);
            if (rc != DLP_END) ok &= as_torn(p, b, rc, n++);
            if (rc == DLP_OK) dlp_pipe_release(p, b);
        } while (ok && rc == DLP_OK);
        CHECK(ok && dlp_pipe_close(p) == DLP_OK);
    }
}

/* Epochs are left before the batch that would be an error, which is scheduled by then, and what is
   behind it asked for again. */
static void fail__ahead_of_an_epoch_that_is_left__unseen(uint64_t seed) {
    static const int32_t makers[] = {DLP_NONE, 1, 4};
    for (uint32_t i = 0; i < 12; i++) {
        rig2 r;
        dlp_pipe *p;
        dlp_batch *b = NULL;
        dlp_error err;
        int ok = 1;
        init(&r, 0);
        seen->torn = 20 + i;
        r.pipe.epochs = 8;
        r.by.num_workers = makers[i % 3];
        CHECK(open_pipe(&r, &p, &err) == DLP_OK);
        for (uint64_t epoch = 0; epoch < 8 && ok; epoch++) {
            uint64_t n = 0;
            write_down_torn(epoch, 0);
            while (ok && n < n_list[0] / 8 && (n == 0 || test_pick(&seed, 8))) {
                int rc = dlp_pipe_next_timeout(p, &b, 20000);
                ok &= rc == DLP_OK && b->epoch == epoch && as_torn(p, b, rc, n++);
                if (rc == DLP_OK) dlp_pipe_release(p, b);
            }
            if (n == 0) break; /* its first batch is an error */
            ok &= dlp_pipe_next_epoch(p) == DLP_OK;
        }
        CHECK(ok && dlp_pipe_close(p) == DLP_OK);
    }
}

/* Whatever ends an epoch: all streams, the first, steps, or the caller, who leaves it. */
static void set_epoch__any_end__no_callback_before_or_beside_it(void) {
    static const int32_t makers[] = {DLP_NONE, 1, 4};
    for (int i = 0; i < 48; i++) {
        rig2 r;
        dlp_pipe *p;
        dlp_batch *b = NULL;
        dlp_error err;
        uint64_t last = UINT64_MAX, epochs = 0;
        int n = 0, rc;
        init(&r, i % 2);
        seen->set = 1;
        seen->now = UINT64_MAX;
        r.pipe.epochs = 3;
        r.pipe.set_epoch = epoch_set;
        r.by.num_workers = makers[i / 2 % 3];
        r.pipe.streams = i % 4 ? 4 : 1;
        r.window = i / 6 % 2 ? 32 : 0;
        r.batch.last = i / 12 == 0 ? DLP_LAST_DROP : DLP_LAST_PARTIAL;
        r.pipe.steps_per_epoch = i / 12 == 1 ? 2 : 0;
        CHECK(open_pipe(&r, &p, &err) == DLP_OK);
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(b->epoch == seen->now);
            epochs += b->epoch != last;
            last = b->epoch;
            dlp_pipe_release(p, b);
            if (i / 12 == 3 && ++n % 2 == 0 && dlp_pipe_next_epoch(p) != DLP_OK) break;
        }
        CHECK(rc == DLP_END && epochs == 3);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(seen->wrong == 0);
    }
}

static void desc__what_is_not_possible__refused(void) {
    rig2 r;
    dlp_error err;
    init(&r, 0), r.expand.max_out = 0;
    CHECK(fails(&r, &err) == DLP_ERR_ARG && strcmp(err.field, "max_out") == 0);
    init(&r, 1), r.expand.n_fields = 2, r.expand.fields = out_fields;
    CHECK(fails(&r, &err) == DLP_ERR_ARG && strcmp(err.field, "expand.expand") == 0);
    init(&r, 1), r.pipe.unordered = 1;
    CHECK(fails(&r, &err) == DLP_ERR_ARG && strcmp(err.field, "unordered") == 0);
    init(&r, 1), r.by.dispatch = 3;
    CHECK(fails(&r, &err) == DLP_ERR_ARG && strcmp(err.field, "dispatch") == 0);
    init(&r, 1), r.sampler.order = DLP_ORDER_PARTS;
    CHECK(fails(&r, &err) == DLP_ERR_ARG && strcmp(err.field, "list.order.order") == 0);
    init(&r, 1), r.by.on_error = DLP_ON_ERROR_REPLACE;
    CHECK(fails(&r, &err) == DLP_ERR_ARG && strcmp(err.field, "on_error") == 0);
    init(&r, 0), r.map = add_one, r.map_on_error = DLP_ON_ERROR_REPLACE; /* by itself, always */
    CHECK(fails(&r, &err) == DLP_ERR_ARG && strcmp(err.field, "on_error") == 0);
    CHECK(strcmp(err.stage, "map") == 0);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    SHM_NEEDS("expand");
    inside_input_run_ns = UINT64_C(8000000000); /* however long they take, they come in runs */
#ifdef M_PERTURB
    mallopt(M_PERTURB, 0xa5); /* what is free is none of close's any more */
#endif
    seen = shm_shared(sizeof *seen);
    run__any_wiring__as_written_down(seed);
    kill__inside_fetch_and_expand__as_written_down(seed);
    ranks__streams_divided__same_rows();
    resume__behind_any_batch__goes_on_exactly();
    seek__inside_runs__as_written_down(seed);
    loader__filter__batches_are_full();
    loader__filter__small_batches_are_copied_by_next();
    loader__filter__cells_for_another_batch_and_one_slot();
    for (int i = 0; i < 4; i++) run__places_and_words__each_input_has_its_own(i & 1, i / 2);
    stop__inside_a_run__no_input_more();
    stats__workers_killed__exact();
    fail__by_input__named();
    fail__each_input_of_a_run_once__all_come(FAILS);
    fail__each_input_of_a_run_once__all_come(DIES);
    fail__inside_runs__named_in_its_place(0);
    fail__inside_runs__named_in_its_place(40); /* in its row of the window, and no other one */
    set_epoch__any_end__no_callback_before_or_beside_it();
    fail__ahead_of_an_epoch_that_is_left__unseen(seed);
    desc__what_is_not_possible__refused();
    CHECK(shm_mappings() == 0);
    return test_end("expand");
}
