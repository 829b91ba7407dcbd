/* needs: split cache */
/* Chunks: batches that are views, in every wiring: order, resume, holding, preloads, errors. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/chunks_rig.h"

static const uint64_t shapes[][3] = {/* items, rows of a chunk, batch */
                                     {100, 25, 8}, {97, 20, 6}, {60, 20, 5}, {23, 40, 6},
                                     {41, 20, 6},  {30, 7, 12}, {64, 16, 1}};

static void order__every_kind__as_the_oracle_says(void) {
    uint32_t n = (uint32_t)test_share(60, 600);
    for (uint32_t kind = 0; kind < n; kind++)
        for (uint32_t world = 1; world <= 3; world++) {
            const uint64_t *shape = shapes[(kind + kind / 7) % 7];
            uint64_t loaded = 0;
            for (uint32_t rank = 0; rank < world; rank++) {
                kit k;
                expected e;
                dlp_pipe *p;
                kit_init(&k, shape[0], shape[1], (uint32_t)shape[2]);
                kit_vary(&k, kind);
                if (shape[2] > shape[1]) k.d.within_chunks = 0;
                k.d.pipe.rank = rank;
                k.d.pipe.world_size = world;
                k.d.pipe.allow_uneven = shape[2] % world != 0;
                if (!oracle(&k.d, 0, 0, &e)) continue;
                k.s->whole = world == 1 && k.d.last <= DLP_LAST_DEFAULT;
                if ((p = kit_open(&k)) == NULL) return;
                CHECK(dlp_pipe_batches_per_epoch(p) == (int64_t)e.per_epoch);
                drain_from(&k, p, 0, 0);
                loaded += k.s->rows;
                kit_close(&k, p);
                /* each row once an epoch, by one of the ranks */
                if (rank + 1 == world && k.d.last <= DLP_LAST_DEFAULT)
                    CHECK(loaded == 2 * shape[0]);
            }
        }
}

/* The numbers of an order, for ever. */
static void order__golden__stays(void) {
    static const uint64_t golden[2] = {UINT64_C(0x801ca0948a19c17b), UINT64_C(0x96b6f951352f60f9)};
    for (int within = 0; within < 2; within++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t h = 0;
        kit_init(&k, 97, 20, 6);
        k.d.shuffle_chunks = k.d.shuffle_rows = 1;
        k.d.within_chunks = within;
        if ((p = kit_open(&k)) == NULL) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++)
                h = dlp_hash(h, b->index[r], b->position, b->epoch);
            dlp_pipe_release(p, b);
        }
        CHECK(h == golden[within]);
        if (h != golden[within]) printf("within %d: %016" PRIx64 "\n", within, h);
        kit_close(&k, p);
    }
}

/* A state behind each batch, taken up by a pipe of other workers, device and ranks. */
static void resume__at_every_batch__goes_on(void) {
    for (uint32_t kind = 0; kind < (uint32_t)test_share(8, 64); kind++) {
        dlp_state states[64], all;
        uint64_t n = 0;
        expected e;
        kit k, other;
        dlp_pipe *p;
        dlp_batch *b;
        kit_init(&k, 97, 20, 6);
        kit_vary(&k, kind * 5 + 1);
        oracle(&k.d, 0, 0, &e);
        if ((p = kit_open(&k)) == NULL) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            batch_spoil(b);
            CHECK(dlp_pipe_state(p, b, &states[n]) == DLP_OK);
            CHECK(dlp_pipe_state(p, NULL, &all) == DLP_OK);
            CHECK(memcmp(&all, &states[n], sizeof all) == 0);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            n++;
        }
        kit_close(&k, p);
        CHECK(n == 2 * e.per_epoch);
        for (uint64_t i = 0; i + 1 < n; i++) {
            kit_init(&other, 97, 20, 6);
            kit_vary(&other, kind * 5 + 1);
            other.d.workers.num_workers = so_many(i % 3);
            kit_device(&other, (int)(i % DEV_KINDS));
            if (i % 4 == 3 && !other.d.shuffle_rows &&
                (other.d.within_chunks || !other.d.shuffle_chunks)) /* three ranks: refused */
                other.d.preload = DLP_PRELOAD_CPU;
            other.d.pipe.world_size = i % 2 ? 3 : 1;
            other.d.pipe.rank = (uint32_t)(i % other.d.pipe.world_size);
            other.d.pipe.resume = &states[i];
            if ((p = kit_open(&other)) == NULL) return;
            CHECK(dlp_pipe_state(p, NULL, &all) == DLP_OK);
            CHECK(memcmp(&all, &states[i], sizeof all) == 0); /* the same bytes on every rank */
            drain_from(&other, p, (i + 1) / e.per_epoch, (i + 1) % e.per_epoch);
            kit_close(&other, p);
        }
    }
}

static void resume__of_another_order__is_refused(void) {
    static const char *const fields[] = {"n_items",
                                         "batch_size",
                                         "last",
                                         "order",
                                         "seed",
                                         "params (rows, shuffle_rows, within_chunks)",
                                         "params (rows, shuffle_rows, within_chunks)",
                                         "params (rows, shuffle_rows, within_chunks)",
                                         "params (rows, shuffle_rows, within_chunks)"};
    static const uint64_t rows[5] = {24, 25, 23, 0, 24};
    for (int what = 0; what < 9; what++) {
        kit k;
        dlp_pipe *p;
        dlp_state state;
        dlp_error err;
        kit_init(&k, 96, 24, what == 7 ? 7 : 6);
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_pipe_state(p, NULL, &state) == DLP_OK);
        kit_close(&k, p);
        if (what == 0) k.d.n_items = 95;
        if (what == 1) k.d.batch_size = 8;
        if (what == 2) k.d.last = DLP_LAST_DROP;
        if (what == 3) k.d.shuffle_chunks = 1;
        if (what == 4) k.d.seed = 5;
        if (what == 5) k.d.shuffle_rows = 1;
        if (what == 6) k.d.chunk_rows = 30;
        if (what == 7) k.d.within_chunks = 1;
        if (what == 8) k.d.rows = rows, k.d.n_chunks = 5, k.d.chunk_rows = 0;
        k.d.pipe.resume = &state;
        CHECK(dlp_chunks_open(&p, &k.d, &err) == DLP_ERR_RESUME);
        CHECK(strncmp(err.field, fields[what], sizeof err.field - 1) == 0);
    }
}

/* Epochs left after any number of their batches, the last view of a chunk among them. */
static void next_epoch__anywhere__begins_the_next(void) {
    for (uint32_t kind = 0; kind < (uint32_t)test_share(30, 300); kind++) {
        kit k;
        expected e;
        dlp_pipe *p;
        dlp_batch *b, *kept = NULL;
        kit_init(&k, 97, 20, 6);
        kit_vary(&k, kind);
        k.d.epochs = 8;
        k.d.pipe.epoch_end = 1;
        k.d.pipe.max_held = 2;
        k.d.cpu_buffers = 4;
        if (kind % 4 == 0) k.d.shuffle_rows = 0, k.d.preload = DLP_PRELOAD_CPU;
        if (kind % 4 == 1 && k.d.device) k.d.shuffle_rows = 0, k.d.preload = DLP_PRELOAD_DEVICE;
        oracle(&k.d, 0, 0, &e);
        if ((p = kit_open(&k)) == NULL) return;
        for (uint64_t epoch = 0; epoch < 8; epoch++) {
            uint64_t n = (kind + epoch * 5) % (e.per_epoch + 1);
            for (uint64_t i = 0; i < n; i++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK &&
                      view_same(&k.d, b, epoch, i));
                if (kept) CHECK(bytes_same(kept));
                if (kept) dlp_pipe_release(p, kept);
                kept = b;
            }
            CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
            if (n == 0) epoch--, kind++; /* nothing of it was delivered: it is still to come */
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END && kept && bytes_same(kept));
        if (kept) dlp_pipe_release(p, kept);
        kit_close(&k, p);
    }
}

/* Seeks to any batch, twice or to where it is already, with a chunk half cut and views held, behind
   the end, and from a resume on before the first batch: each view is the one sought, those held
   stay, and a state that is made is the one that a batch has. */
static void seek__at_random__goes_on_there(void) {
    uint64_t random = 3;
    for (uint32_t kind = 0; kind < (uint32_t)test_share(60, 600); kind++) {
        kit k;
        expected x;
        dlp_pipe *p;
        dlp_batch *b, *kept[3] = {NULL, NULL, NULL};
        dlp_state at, made;
        uint64_t epoch = 0, from = 0;
        kit_init(&k, 97, 20, 6);
        kit_vary(&k, kind);
        k.d.epochs = 4;
        k.d.pipe.epoch_end = (int32_t)test_pick(&random, 2);
        k.d.pipe.max_held = 3;
        k.d.cpu_buffers = 4 + (int32_t)test_pick(&random, 3);
        if (kind % 4 == 0) k.d.shuffle_rows = 0, k.d.preload = DLP_PRELOAD_CPU;
        if (kind % 4 == 1 && k.d.device) k.d.shuffle_rows = 0, k.d.preload = DLP_PRELOAD_DEVICE;
        oracle(&k.d, 0, 0, &x);
        if ((p = kit_open(&k)) == NULL) return;
        if (kind % 3 == 0) { /* the same from a resume on */
            epoch = 1, from = kind % x.per_epoch;
            CHECK(dlp_pipe_state_at(p, epoch, from, &at) == DLP_OK);
            kit_close(&k, p);
            k.d.pipe.resume = &at;
            if ((p = kit_open(&k)) == NULL) return;
        }
        for (int i = 0; i < 150; i++) {
            uint32_t what = test_pick(&random, 10), h = test_pick(&random, 3);
            int rc;
            if (what < 3) {
                if (what > 0 || test_pick(&random, 2))
                    epoch = test_pick(&random, 5), from = test_pick(&random, (uint32_t)x.per_epoch);
                if (epoch == 4) from = 0;
                CHECK(dlp_pipe_state_at(p, epoch, from, &at) == DLP_OK);
                CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
                CHECK(dlp_pipe_state(p, NULL, &made) == DLP_OK);
                CHECK(memcmp(&at, &made, sizeof at) == 0);
            }
            if (what == 2) continue;
            if (what == 3) {
                CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
                if (from > 0) epoch++, from = 0;
            }
            if (kept[h]) CHECK(bytes_same(kept[h]) && dlp_pipe_release(p, kept[h]) == DLP_OK);
            kept[h] = NULL;
            if (kept[0] && kept[1] && kept[2]) continue;
            do rc = dlp_pipe_next_timeout(p, &b, 20000);
            while (rc == DLP_EPOCH_END);
            CHECK(rc == (epoch < 4 ? DLP_OK : DLP_END));
            if (rc == DLP_END) continue;
            if (rc != DLP_OK) break;
            CHECK(view_same(&k.d, b, epoch, from));
            if (++from == x.per_epoch) from = 0, epoch++;
            CHECK(dlp_pipe_state(p, b, &made) == DLP_OK);
            CHECK(dlp_pipe_state_at(p, epoch, from, &at) == DLP_OK); /* the end is told there */
            CHECK((memcmp(&at, &made, sizeof at) == 0) == (from > 0 || !k.d.pipe.epoch_end));
            for (h = 0; kept[h]; h++) continue;
            kept[h] = b;
        }
        for (int h = 0; h < 3; h++)
            if (kept[h]) CHECK(bytes_same(kept[h]) && dlp_pipe_release(p, kept[h]) == DLP_OK);
        CHECK(k.s->failures == 0);
        kit_close(&k, p);
    }
}

/* Views held and released in any order: what they show stays, and no more than max_held are
   lent. */
static void hold__random__bytes_stay(void) {
    for (uint32_t kind = 0; kind < (uint32_t)test_share(40, 400); kind++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *held[4];
        uint64_t random = kind, k_at = 0;
        int n = 0, most = 1 + (int)(kind % 4), rc;
        expected e;
        kit_init(&k, 97, 20, 6);
        kit_vary(&k, kind);
        k.d.pipe.max_held = most;
        k.d.epochs = 4;
        if (kind % 5 == 0) k.d.shuffle_rows = 0, k.d.preload = DLP_PRELOAD_CPU;
        if (kind % 5 == 1 && k.d.device) k.d.shuffle_rows = 0, k.d.preload = DLP_PRELOAD_DEVICE;
        oracle(&k.d, 0, 0, &e);
        if ((p = kit_open(&k)) == NULL) return;
        for (;;) {
            dlp_batch *b;
            if (n > 0 && (n == most || test_pick(&random, 2))) {
                int i = (int)test_pick(&random, (uint32_t)n);
                if (n == most) CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_HELD);
                CHECK(bytes_same(held[i]));
                CHECK(dlp_pipe_release(p, held[i]) == DLP_OK);
                CHECK(dlp_pipe_release(p, held[i]) == DLP_ERR_ARG);
                held[i] = held[--n];
            }
            if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_OK) break;
            CHECK(view_same(&k.d, b, k_at / e.per_epoch, k_at % e.per_epoch));
            k_at++;
            held[n++] = b;
        }
        CHECK(rc == DLP_END && k_at == 4 * e.per_epoch);
        for (int i = 0; i < n; i++) CHECK(bytes_same(held[i]));
        if (kind & 1) /* after close the last release frees the pipe */
            CHECK(dlp_pipe_close(p) == DLP_OK);
        for (int i = 0; i < n; i++) CHECK(bytes_same(held[i]) && !dlp_pipe_release(p, held[i]));
        if (!(kind & 1)) CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(k.l.live == 0);
    }
}

static void preload__any__loads_each_chunk_once(void) {
    for (uint32_t kind = 0; kind < (uint32_t)test_share(36, 300); kind++) {
        int preload = kind % 2 ? DLP_PRELOAD_CPU : DLP_PRELOAD_DEVICE;
        kit k;
        dlp_pipe *p;
        dlp_stats s;
        int chunks = kind % 5 == 0 ? 1 : kind % 5 == 1 ? 2 : 5;
        kit_init(&k, chunks > 2 ? 97 : (uint64_t)chunks * 20 - 3, 20, 6);
        kit_vary(&k, kind);
        k.d.shuffle_rows = 0;
        k.d.last = DLP_LAST_PARTIAL;
        k.d.epochs = 5;
        k.d.preload = preload;
        k.d.cpu_buffers = 4; /* of one chunk, the same one is on its way for several epochs */
        k.s->sleep_us = kind % 4 < 2 ? 0 : 300;
        if (k.d.device == NULL) k.d.preload = DLP_PRELOAD_CPU;
        if ((p = kit_open(&k)) == NULL) return;
        drain_from(&k, p, 0, 0);
        for (int c = 0; c < chunks; c++) CHECK(k.s->calls[c] == 1);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.chunks.preload == k.d.preload);
        if (k.d.preload == DLP_PRELOAD_DEVICE && k.d.device->user)
            CHECK(k.l.copies == 2 * chunks && s.chunks.device_free == 0);
        if (k.d.preload == DLP_PRELOAD_CPU) CHECK(s.chunks.cpu_free == 0);
        kit_close(&k, p);
    }
}

/* Chunks that are loaded, but not on the device when their epoch is left, get there all the
   same. */
static void preload__epoch_left__copies_what_is_loaded(void) {
    kit k;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    kit_init(&k, 97, 20, 6);
    kit_device(&k, DEV_HOST_INLINE); /* copies go when next waits */
    k.d.workers.num_workers = 1;
    k.d.cpu_buffers = 4;
    k.d.epochs = 3;
    k.d.preload = DLP_PRELOAD_DEVICE;
    if ((p = kit_open(&k)) == NULL) return;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
    for (int i = 0; i < 20000; i++) {
        dlp_pipe_stats(p, &s);
        if (s.chunks.cpu_filled > 0 && s.chunks.cpu_loading == 0) break;
        sleep_us(1000);
    }
    dlp_pipe_release(p, b);
    CHECK(s.chunks.cpu_filled > 0 && dlp_pipe_next_epoch(p) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && view_same(&k.d, b, 1, 0));
    dlp_pipe_release(p, b);
    drain_from(&k, p, 1, 1);
    for (int c = 0; c < 5; c++) CHECK(k.s->calls[c] == 1);
    kit_close(&k, p);
}

static int skips_at_first(void *user, dlp_chunk *c) {
    int rc = load(user, c);
    return c->index == 2 && c->epoch == 0 ? DLP_SKIP : rc;
}

static int skips_at_first_of_two(void *user, dlp_chunk *c) {
    int rc = load(user, c);
    return c->index == 0 && c->epoch == 0 ? DLP_SKIP : rc;
}

/* A chunk that load leaves out is zeros for this epoch, and is loaded in the next. */
static void preload__chunk_left_out__zeros_then_loaded(void) {
    for (int kind = 0; kind < 2 * DEV_KINDS; kind++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        kit_init(&k, 97, 20, 6);
        kit_device(&k, kind / 2);
        k.d.epochs = 2;
        k.d.load = skips_at_first;
        k.d.within_chunks = 1;
        k.d.workers.num_workers = so_many((uint64_t)kind % 2);
        k.d.preload = k.d.device ? DLP_PRELOAD_DEVICE : DLP_PRELOAD_CPU;
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            bool left = b->index[0] / 20 == 2 && b->epoch == 0;
            CHECK(b->valid_count == (left ? 0 : b->count));
            CHECK(left ? field_at(b, 0)[0] == 0 && field_at(b, 1)[0] == 0 : bytes_same(b));
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_END && k.s->failures == 0);
        kit_close(&k, p);
    }
}

/* A view of a chunk that was left out is zeros for as long as it is held, while later epochs load
   the chunk: among several, and where one that is left out is on its way beside the same again. */
static void preload__chunk_left_out_is_held__stays_zeros(void) {
    for (int kind = 0; kind < 12; kind++) {
        static const uint8_t zeros[6 * 24];
        kit k;
        dlp_pipe *p;
        dlp_batch *b, *held = NULL;
        int rc, two = kind >= 6;
        kit_init(&k, two ? 40 : 97, 20, 6); /* one chunk: its epoch would have no valid row */
        if (two) k.s->sleep_us = 100;
        k.d.epochs = 20;
        k.d.load = two ? skips_at_first_of_two : skips_at_first;
        k.d.within_chunks = 1;
        k.d.workers.num_workers = so_many((uint64_t)kind % 3);
        k.d.pipe.max_held = 2;
        k.d.cpu_buffers = 3 + kind % 2;
        k.d.preload = DLP_PRELOAD_CPU;
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            bool left = b->index[0] / 20 == (two ? 0 : 2) && b->epoch == 0;
            CHECK(b->valid_count == (left ? 0 : b->count));
            CHECK(left || bytes_same(b));
            if (left && held == NULL)
                held = b;
            else
                dlp_pipe_release(p, b);
            if (held != NULL) CHECK(memcmp(field_at(held, 0), zeros, held->fields[0].bytes) == 0);
            if (held != NULL) CHECK(memcmp(field_at(held, 1), zeros, held->fields[1].bytes) == 0);
        }
        CHECK(rc == DLP_END && k.s->failures == 0 && held != NULL);
        if (held != NULL) dlp_pipe_release(p, held);
        kit_close(&k, p);
    }
}

static int fails_always(void *user, dlp_chunk *c) {
    load(user, c);
    return dlp_fail(c->call, 5, "no such file");
}

/* All chunks of an epoch are left out: views are zeros, and behind the last one is an error. */
static void chunks__all_left_out__an_error(void) {
    for (int workers = 0; workers < 3; workers += 2) {
        uint64_t rows = 0;
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        kit_init(&k, 97, 20, 6);
        k.d.epochs = 2;
        k.d.load = fails_always;
        k.d.workers.num_workers = so_many((uint64_t)workers);
        k.d.workers.on_error = DLP_ON_ERROR_DROP;
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(b->valid_count == 0 && b->epoch == 0);
            rows += b->count;
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_ERR_CALLBACK && rows == 97);
        CHECK(strstr(dlp_pipe_error(p)->message, "all its 97 items were left out") != NULL);
        kit_close(&k, p);
    }
}

/* AUTO takes what fits: the plan says how much that is. */
static void preload__auto__takes_what_fits(void) {
    uint64_t limit[2] = {0, 0};
    int preload[2] = {DLP_PRELOAD_DEVICE, DLP_PRELOAD_NONE};
    for (int i = 0; i < 2; i++) {
        kit k;
        dlp_pipe *p;
        dlp_stats s;
        kit_init(&k, 2000, 100, 10);
        kit_device(&k, DEV_HOST);
        k.d.preload = preload[i];
        if ((p = kit_open(&k)) == NULL) return;
        dlp_pipe_stats(p, &s);
        limit[i] = s.plan_bytes;
        kit_close(&k, p);
    }
    CHECK(limit[0] > limit[1]);
    for (int i = 0; i < 3; i++) {
        const char *said = i == 1 ? "preload: AUTO keeps no chunks" : "preload: AUTO keeps all 20";
        kit k;
        dlp_pipe *p;
        dlp_stats s;
        char text[4096];
        kit_init(&k, 2000, 100, 10);
        kit_device(&k, DEV_HOST);
        k.d.preload = DLP_PRELOAD_AUTO;
        k.d.pipe.limit_bytes = i == 2 ? 0 : limit[i] + 16384;
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.chunks.preload_auto == 1);
        CHECK(s.chunks.preload == (i == 1 ? DLP_PRELOAD_NONE : DLP_PRELOAD_DEVICE));
        CHECK(strncmp(dlp_pipe_warning(p, 0), said, strlen(said)) == 0);
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
        CHECK(strstr(text, i == 1 ? "AUTO found no room" : "AUTO found room for all") != NULL);
        drain_from(&k, p, 0, 0);
        kit_close(&k, p);
    }
}

static int no_room(void *user, uint64_t *bytes) {
    (void)user;
    *bytes = 4106; /* three quarters: fewer than the 5 * 22 * 28 of five chunks */
    return 0;
}
static int enough_room(void *user, uint64_t *bytes) {
    (void)user;
    *bytes = 4110;
    return 0;
}

/* What AUTO may take of a device is what that says; of one that says nothing, what the limit
   has. */
static void preload__auto_of_a_device__asks_it(void) {
    static const struct {
        int (*room)(void *user, uint64_t *bytes);
        uint64_t limit;
        int preload;
        const char *why;
    } all[] = {{NULL, 0, DLP_PRELOAD_CPU, "in CPU memory"},
               {NULL, 1 << 26, DLP_PRELOAD_DEVICE, "on the device"},
               {no_room, 0, DLP_PRELOAD_CPU, "in CPU memory"},
               {enough_room, 0, DLP_PRELOAD_DEVICE, "on the device"}};
    for (size_t i = 0; i < 4; i++) {
        kit k;
        dlp_pipe *p;
        dlp_stats s;
        kit_init(&k, 108, 22, 11);
        kit_device(&k, DEV_LATE);
        k.device.room = all[i].room;
        k.d.pipe.limit_bytes = all[i].limit;
        k.d.preload = DLP_PRELOAD_AUTO;
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK && s.chunks.preload == all[i].preload);
        CHECK(strstr(dlp_pipe_warning(p, 0), all[i].why) != NULL);
        drain_from(&k, p, 0, 0);
        kit_close(&k, p);
    }
}

/* What stands in the way is told: not memory alone. */
static void preload__auto_with_shuffled_rows__says_why_not(void) {
    kit k;
    dlp_pipe *p;
    kit_init(&k, 97, 20, 6);
    k.d.preload = DLP_PRELOAD_AUTO;
    k.d.shuffle_rows = 1;
    if ((p = kit_open(&k)) == NULL) return;
    CHECK(strstr(dlp_pipe_warning(p, 0), "no chunks: shuffle_rows is 1") != NULL);
    drain_from(&k, p, 0, 0);
    kit_close(&k, p);
}

/* One loader that loads ahead, unless the desc says otherwise. */
static void workers__of_chunks__one_by_default(void) {
    static const int32_t says[] = {0, DLP_NONE, 1, 3}, are[] = {1, 0, 1, 3};
    for (size_t i = 0; i < 4; i++) {
        kit k;
        dlp_pipe *p;
        dlp_stats s;
        kit_init(&k, 97, 20, 6);
        k.d.workers.num_workers = says[i];
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
        CHECK(s.stages[2].kind == DLP_STAGE_FETCH && s.stages[2].workers == are[i]);
        drain_from(&k, p, 0, 0);
        kit_close(&k, p);
    }
}

static void errors__raise__names_the_chunk(void) {
    for (int kind = 0; kind < 6; kind++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        int rc;
        kit_init(&k, 97, 20, 6);
        k.d.within_chunks = kind / 3;
        k.d.workers.num_workers = so_many((uint64_t)kind % 3);
        kit_device(&k, kind % DEV_KINDS);
        k.s->bad_chunk = 3;
        k.s->bad_times = -1;
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(view_same(&k.d, b, 0, n++));
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_ERR_CALLBACK && n == (kind / 3 ? 12 : 10));
        CHECK(dlp_pipe_error(p)->index == 3);
        CHECK(strcmp(dlp_pipe_error(p)->message, "chunk 3 is bad") == 0);
        CHECK(strcmp(dlp_pipe_error(p)->stage, "load") == 0 && dlp_pipe_error(p)->errnum == 5);
        kit_close(&k, p);
    }
}

/* Retries give the same batches; SHORT leaves a chunk's rows out, and counts them; REPLACE shows
   another chunk, never a shorter one. */
static void errors__policies__keep_the_count(void) {
    for (int kind = 0; kind < 48; kind++) {
        int policy = kind % 3, bad = kind / 3 % 2 ? 4 : 2; /* 4: the chunk that is not full */
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        expected e = {0};
        int rc;
        kit_init(&k, 97, 20, 6);
        k.d.within_chunks = 1;
        k.d.epochs = 1;
        k.d.seed = (uint64_t)kind;
        k.d.workers.num_workers = so_many((uint64_t)kind / 6 % 3);
        kit_device(&k, kind % DEV_KINDS);
        k.s->bad_chunk = bad;
        k.s->bad_times = policy == 0 ? 2 : -1;
        k.d.workers.on_error = policy;
        k.d.workers.retries = policy == 0 ? 3 : 0;
        if (policy == 0 && kind % 2) k.d.preload = DLP_PRELOAD_CPU;
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            oracle(&k.d, 0, n, &e);
            CHECK(b->count == e.count && b->position == e.position && b->in_epoch == n++);
            bool hit = e.index[0] / 20 == (uint64_t)bad;
            if (policy == 0 || !hit) CHECK(b->index[0] == e.index[0] && b->valid_count == b->count);
            if (policy == DLP_ON_ERROR_DROP && hit) {
                CHECK(b->valid_count == 0 && b->valid[0] == 0 && b->valid[b->count - 1] == 0);
                CHECK(field_at(b, 0)[0] == 0 && field_at(b, 1)[0] == 0);
            } else {
                CHECK(bytes_same(b));
            }
            if (policy == DLP_ON_ERROR_REPLACE && hit) CHECK(b->index[0] / 20 != (uint64_t)bad);
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_END && n == e.per_epoch && k.s->failures == 0);
        kit_close(&k, p);
    }
}

static void errors__of_the_device__end_it(void) {
    for (int preload = 0; preload <= DLP_PRELOAD_DEVICE; preload++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        kit_init(&k, 97, 20, 6);
        kit_device(&k, DEV_LATE);
        k.l.fail_at = 6;
        k.d.preload = preload;
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_ERR_DEVICE && strcmp(dlp_pipe_error(p)->stage, "transfer") == 0);
        kit_close(&k, p);
    }
}

static void descs__bad__are_refused(void) {
    static const char *const fields[] = {
        "load",           "n_items",     "chunk_rows",           "batch_size",
        "last",           "cpu_buffers", "pipe.prefetch_factor", "preload",
        "queue.capacity", "world_size",  "shuffle_rows",         "on_error",
        "last",           "rank",        "fields[].ndim",        "batch_size"};
    for (int what = 0; what < 16; what++) {
        kit k;
        dlp_pipe *p = NULL;
        dlp_error err;
        dlp_field deep = {"deep", DLP_U8, DLP_MAX_DIMS - 1, {1, 1, 1, 1, 1, 1, 1}, 0, 0};
        kit_init(&k, 97, 20, 6);
        if (what == 0) k.d.load = NULL;
        if (what == 1) k.d.n_items = 0;
        if (what == 2) k.d.chunk_rows = 0;
        if (what == 3) k.d.batch_size = 0;
        if (what == 4) k.d.last = DLP_LAST_PAD;
        if (what == 5) k.d.cpu_buffers = 1;
        if (what == 6) k.d.pipe.prefetch_factor = 2;
        if (what == 7) k.d.preload = DLP_PRELOAD_DEVICE;
        if (what == 8) kit_device(&k, DEV_HOST), k.d.device_buffers = 1;
        if (what == 9) k.d.pipe.world_size = 4;
        if (what == 10) k.d.preload = DLP_PRELOAD_CPU, k.d.shuffle_rows = 1;
        if (what == 11) k.d.preload = DLP_PRELOAD_CPU, k.d.workers.on_error = DLP_ON_ERROR_DROP;
        if (what == 12) k.d.last = DLP_LAST_DROP, k.d.n_items = 5;
        if (what == 13) k.d.pipe.rank = 1, k.d.pipe.world_size = 1;
        if (what == 14) k.d.fields = &deep, k.d.n_fields = 1;
        if (what == 15) k.d.within_chunks = 1, k.d.batch_size = 21; /* it would be 20 */
        CHECK(dlp_chunks_open(&p, &k.d, &err) == DLP_ERR_ARG && p == NULL);
        CHECK(strcmp(err.field, fields[what]) == 0);
        if (strcmp(err.field, fields[what]) != 0)
            printf("%d: %s: %s\n", what, err.field, err.message);
    }
}

/* Stop, or close, at any moment. */
static void stop__any_moment__ends(void) {
    for (uint32_t kind = 0; kind < (uint32_t)test_share(60, 2000); kind++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b = NULL;
        uint64_t random = kind;
        int rc = DLP_OK;
        kit_init(&k, 97, 20, 6);
        kit_vary(&k, kind);
        k.d.epochs = DLP_FOREVER;
        k.s->sleep_us = test_pick(&random, 3) * 200;
        if (kind % 3 == 1) k.d.shuffle_rows = 0, k.d.preload = DLP_PRELOAD_CPU;
        if ((p = kit_open(&k)) == NULL) return;
        for (uint32_t n = test_pick(&random, 60); n > 0; n--) {
            if (dlp_pipe_next_timeout(p, &b, 20000) != DLP_OK) break;
            if (n > 1) dlp_pipe_release(p, b), b = NULL;
        }
        if (kind & 1) {
            dlp_pipe_stop(p);
            if (b) dlp_pipe_release(p, b);
            b = NULL;
            rc = dlp_pipe_next_timeout(p, &b, 20000);
            CHECK(rc == DLP_STOPPED);
            b = NULL;
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        if (b) CHECK(dlp_pipe_release(p, b) == DLP_OK);
        CHECK(k.l.live == 0);
    }
}

/* Handles cannot be added to: views say how far behind they begin, and tensors of DLPack too. */
static void handles__views__have_offsets(void) {
    for (int handles = 0; handles < 2; handles++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_managed_tensor *t = NULL;
        uint8_t *first = NULL;
        kit_init(&k, 97, 20, 6);
        kit_device(&k, handles ? DEV_HANDLES : DEV_LATE);
        if ((p = kit_open(&k)) == NULL) return;
        for (uint64_t i = 0; i < 3; i++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
            if (i == 0) first = b->fields[0].data;
            CHECK((uint8_t *)b->fields[0].data == first + (handles ? 0 : i * 6 * 24));
            CHECK(b->fields[0].byte_offset == (handles ? i * 6 * 24 : 0));
            CHECK(dlp_batch_dlpack(p, b, 0, &t) == DLP_OK);
            CHECK(t->dl_tensor.byte_offset == b->fields[0].byte_offset);
            CHECK(t->dl_tensor.data == b->fields[0].data && t->dl_tensor.shape[0] == 6);
            CHECK(dlp_pipe_release(p, b) == DLP_OK); /* the tensor keeps it */
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_HELD);
            t->deleter(t);
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && view_same(&k.d, b, 0, 3));
        CHECK(dlp_batch_dlpack(p, b, 1, &t) == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK && k.l.live > 0);
        t->deleter(t); /* the last of them frees the pipe */
        CHECK(k.l.live == 0);
    }
}

/* ---- runs ---- */

typedef struct course {
    const dlp_chunks_desc *d;
    uint64_t steps, epochs, items, stop_at, stop_epoch, first;
    dlp_pipe *interrupt;
    int wrong;
} course;

static int on_step(void *user, dlp_batch *b) {
    course *c = user;
    expected e;
    uint64_t k = c->first + c->steps++;
    oracle(c->d, 0, 0, &e);
    if (!view_same(c->d, b, k / e.per_epoch, k % e.per_epoch)) c->wrong++;
    c->items += b->count;
    batch_spoil(b);
    if (c->steps == c->stop_at && c->interrupt) dlp_pipe_stop(c->interrupt); /* as a signal would */
    return c->steps == c->stop_at && !c->interrupt;
}
static int on_epoch(void *user, uint64_t epoch) {
    course *c = user;
    if (epoch != c->epochs++) c->wrong++;
    return c->epochs == c->stop_epoch;
}

static void run__interrupted_anywhere__goes_on(void) {
    for (uint64_t at = 1; at < 30; at += 4)
        for (int how = 0; how < 3; how++) {
            kit k;
            dlp_pipe *p;
            course c;
            dlp_run_result r;
            dlp_run_desc run = {on_step, on_epoch, &c, 0, &r};
            dlp_state state;
            expected x;
            kit_init(&k, 97, 20, 6);
            kit_vary(&k, (uint32_t)at);
            k.d.last = DLP_LAST_PARTIAL;
            oracle(&k.d, 0, 0, &x);
            k.d.pipe.epoch_end = 1;
            memset(&c, 0, sizeof c);
            c.d = &k.d;
            if ((p = kit_open(&k)) == NULL) return;
            if (how < 2) c.stop_at = at;
            if (how == 1) c.interrupt = p;
            if (how == 2) run.max_steps = at;
            CHECK(dlp_chunks_run(p, &run) == (how == 1 ? DLP_STOPPED : DLP_OK));
            CHECK(r.steps == at && c.steps == at && c.wrong == 0 && r.items == c.items);
            if (how == 1) { /* a new pipe goes on behind the last step */
                state = r.state;
                kit_close(&k, p);
                k.d.pipe.resume = &state;
                if ((p = kit_open(&k)) == NULL) return;
            }
            c.stop_at = 0;
            run.max_steps = 0;
            CHECK(dlp_chunks_run(p, &run) == DLP_END);
            CHECK(c.wrong == 0 && c.steps == 2 * x.per_epoch && c.epochs == 2);
            CHECK(r.steps == 2 * x.per_epoch - at);
            kit_close(&k, p);
        }
}

/* A state saved in the last step of an epoch, before on_epoch: the run that goes on calls it first.
   A state that a run gives back knows that on_epoch was called. */
static void run__resumed_before_the_end__calls_on_epoch(void) {
    kit k;
    dlp_pipe *p;
    dlp_batch *b;
    course c;
    dlp_run_result r;
    dlp_run_desc run = {on_step, on_epoch, &c, 0, &r};
    dlp_state due, told;
    expected x;
    int rc;
    kit_init(&k, 97, 20, 6);
    oracle(&k.d, 0, 0, &x);
    k.d.pipe.epoch_end = 1;
    memset(&c, 0, sizeof c);
    c.d = &k.d;
    if ((p = kit_open(&k)) == NULL) return;
    for (uint64_t i = 0; i < x.per_epoch; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
        CHECK(dlp_pipe_state(p, NULL, &due) == DLP_OK);
    }
    kit_close(&k, p);
    k.d.pipe.resume = &due;
    for (int again = 0; again < 2; again++) {
        c.epochs = (uint64_t)again;
        c.steps = 0;
        c.first = x.per_epoch;
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_chunks_run(p, &run) == DLP_END && c.wrong == 0 && c.epochs == 2);
        CHECK(c.steps == x.per_epoch && r.epochs == (uint64_t)(2 - again));
        kit_close(&k, p);
        if (again) break;
        k.d.pipe.resume = NULL; /* the same from a run that ended with the epoch */
        run.max_steps = x.per_epoch;
        c.epochs = 0;
        c.steps = c.first = 0;
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_chunks_run(p, &run) == DLP_OK && c.wrong == 0 && c.epochs == 1);
        told = r.state;
        kit_close(&k, p);
        run.max_steps = 0;
        k.d.pipe.resume = &told;
    }
    if ((p = kit_open(&k)) == NULL) return; /* and without a run, next says it or does not */
    rc = dlp_pipe_next_timeout(p, &b, 20000);
    CHECK(rc == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_seek(p, &due, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_EPOCH_END);
    kit_close(&k, p);
}

static void run__epoch_callback__stops_behind_the_epoch(void) {
    kit k;
    dlp_pipe *p;
    course c;
    dlp_run_result r;
    dlp_run_desc run = {on_step, on_epoch, &c, 0, &r};
    kit_init(&k, 97, 20, 6);
    memset(&c, 0, sizeof c);
    c.d = &k.d;
    c.stop_epoch = 1;
    if ((p = kit_open(&k)) == NULL) return;
    CHECK(dlp_chunks_run(p, &run) == DLP_OK && r.epochs == 1 && r.items == 97 && c.wrong == 0);
    CHECK(dlp_chunks_run(p, &run) == DLP_END && r.epochs == 1 && c.wrong == 0);
    CHECK(dlp_chunks_run(p, NULL) == DLP_ERR_ARG && dlp_chunks_run(NULL, &run) == DLP_ERR_ARG);
    kit_close(&k, p);
}

/* Evaluate and predict: each row once, in order, whatever train says. */
static void passes__evaluate__in_order(void) {
    for (int pass = DLP_PASS_EVALUATE; pass <= DLP_PASS_PREDICT; pass++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t row = 0;
        kit_init(&k, 97, 20, 6);
        kit_vary(&k, 14);
        k.d.shuffle_chunks = k.d.shuffle_rows = 1;
        k.d.last = DLP_LAST_DROP;
        k.d.epochs = 7;
        k.d.pass = pass;
        if ((p = kit_open(&k)) == NULL) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) CHECK(b->index[r] == row++);
            CHECK(bytes_same(b));
            dlp_pipe_release(p, b);
        }
        CHECK(row == 97);
        kit_close(&k, p);
    }
}

/* Loading, copying and computing of the same length take as long as one of them. Sleepers need no
   cores, but wake late where there are few; so the best of three tries counts. */
static void overlap__equal_parts__take_the_longest(void) {
    const uint64_t each = 6000, chunks = 12;
    double best = 1e9, bound = getenv("SHORT") ? 2.0 : 1.1;
    for (int try = 0; try < 30 && best > bound; try++) { /* of 80 ms, if nobody disturbs */
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t begin, n = 0;
        double ratio;
        kit_init(&k, chunks * 8, 8, 4);
        k.d.epochs = 1;
        k.d.workers.num_workers = 1;
        k.s->sleep_us = (uint32_t)each;
        kit_device(&k, DEV_LATE);
        k.l.copy_ns = each * 1000;
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        begin = test_now_ns(); /* the first chunk has come: from here on everything overlaps */
        do {
            sleep_us(each / 2);
            dlp_pipe_release(p, b);
            n++;
        } while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        CHECK(n == 2 * chunks);
        ratio = (double)(test_now_ns() - begin) / (double)(chunks * each * 1000);
        if (ratio < best) best = ratio;
        kit_close(&k, p);
    }
    CHECK(best <= bound);
    printf("overlap: %.3f x the longest of the three\n", best);
}

/* While the consumer holds its first batch, all buffers fill: those of the device, and those of the
   CPU, whose chunks have nowhere to go. None is left empty, and the loaders begin no other. */
static void lookahead__consumer_holds_a_batch__all_buffers_fill(void) {
    for (int i = 0, before = test_failures; i < 24 && test_failures == before; i++) {
        const int cpu = 1 + i % 4, device = 2 + i / 4 % 3;
        dlp_stats s;
        dlp_plan plan;
        dlp_pipe *p;
        dlp_batch *b;
        int calls = 0;
        kit k;
        kit_init(&k, 400, 20, 20);
        kit_device(&k, i % 3 == 0 ? DEV_LATE : DEV_HOST);
        k.d.shuffle_chunks = 1;
        k.d.workers.num_workers = 1 + i / 12 * 2;
        k.d.workers.dispatch = i % 5 == 0 ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
        k.d.cpu_buffers = cpu;
        k.d.device_buffers = device;
        k.d.epochs = 1;
        k.s->whole = 1;
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && view_same(&k.d, b, 0, 0));
        for (int try = 0; try < 10000; try++) {
            dlp_pipe_stats(p, &s);
            if (s.chunks.cpu_filled == (uint64_t)cpu &&
                s.chunks.device_filled == (uint64_t)device - 1)
                break;
            sleep_us(1000);
        }
        sleep_us(2000); /* a loader that went on would have begun by now */
        dlp_pipe_stats(p, &s);
        for (int c = 0; c < 20; c++) calls += __atomic_load_n(&k.s->calls[c], __ATOMIC_RELAXED);
        CHECK(calls == cpu + device);
        CHECK(s.chunks.cpu_filled == (uint64_t)cpu && s.chunks.cpu_free == 0);
        CHECK(s.chunks.device_filled == (uint64_t)device - 1 && s.chunks.device_free == 0);
        CHECK(s.chunks.cpu_loading == 0 && s.chunks.loadable == 20 - (uint64_t)calls);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        for (uint32_t l = 0; l < plan.n_lines; l++) {
            if (strcmp(plan.lines[l].what, "CPU chunk buffers") == 0)
                CHECK(plan.lines[l].count == (uint64_t)cpu);
            if (strcmp(plan.lines[l].what, "device chunk buffers") == 0)
                CHECK(plan.lines[l].bytes == (uint64_t)device * 20 * 28);
        }
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        kit_close(&k, p);
    }
}

static void stats__of_chunks__tell_the_queues(void) {
    kit k;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    dlp_plan plan;
    char text[4096];
    int cpu = 0, device = 0;
    kit_init(&k, 200, 20, 6);
    k.d.within_chunks = 1;
    kit_device(&k, DEV_HOST);
    k.d.workers.num_workers = 1;
    k.d.cpu_buffers = 3;
    if ((p = kit_open(&k)) == NULL) return;
    for (uint64_t i = 0; i < 6; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        if (i < 5) dlp_pipe_release(p, b);
    }
    for (int i = 0; i < 20000; i++) { /* until all that can go ahead has done so */
        dlp_pipe_stats(p, &s);
        if (s.chunks.cpu_filled == 3 && s.chunks.device_filled == 1) break;
        sleep_us(1000);
    }
    CHECK(s.batches == 6 && s.items == 32 && s.held == 1 && s.batch_size == 6);
    CHECK(s.chunks.taken == 2 && s.chunks.loadable == 4 && s.chunks.in_use == 1);
    CHECK(s.chunks.cpu_buffers == 3 && s.chunks.cpu_filled == 3 && s.chunks.cpu_free == 0);
    CHECK(s.chunks.device_buffers == 2 && s.chunks.device_filled == 1 && s.chunks.device_free == 0);
    CHECK(s.chunks.cpu_loading == 0 && s.chunks.device_copying == 0);
    CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
    CHECK(strstr(text, "Chunks: 4 loadable in this epoch; 3 CPU chunk buffers: 0 free, 0 loading, "
                       "3 filled; 2 device chunk buffers: 0 free, 0 being copied, 1 filled; 1 in "
                       "use.") != NULL);
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && plan.total_bytes == s.plan_bytes);
    for (uint32_t i = 0; i < plan.n_lines; i++) {
        cpu += strcmp(plan.lines[i].what, "CPU chunk buffers") == 0 && plan.lines[i].count == 3;
        device += strcmp(plan.lines[i].what, "device chunk buffers") == 0 &&
                  plan.lines[i].bytes == 2 * 20 * 28;
    }
    CHECK(cpu == 1 && device == 1);
    CHECK(dlp_pipe_write_timeline(p, "/dev/null", NULL) == DLP_OK);
    dlp_pipe_release(p, b);
    kit_close(&k, p);
}

/* The fields of the two descs have opposite names: what is said is what may be set there. */
static void explain__inline_transfer__names_the_field_of_the_desc(void) {
    dlp_stats s = {.batches = 100,
                   .items = 1000,
                   .wait_ns = 900000000,
                   .step_ns = 100000000,
                   .prefetch_factor = 2,
                   .cpus = 8,
                   .n_stages = 1};
    char text[4096];
    s.stages[0].kind = DLP_STAGE_TRANSFER;
    s.stages[0].busy_ns = 900000000;
    CHECK(dlp_stats_explain(&s, text, sizeof text) > 0);
    CHECK(strstr(text, "set transfer.threaded = 1;") != NULL);
    s.chunks.cpu_buffers = 2;
    CHECK(dlp_stats_explain(&s, text, sizeof text) > 0);
    CHECK(strstr(text, "set transfer_inline = 0;") != NULL);
}

static void open__transfer_inline__neither_0_nor_1__refused(void) {
    static const int32_t wrong[] = {DLP_NONE, 2};
    for (size_t i = 0; i < 2; i++) {
        kit k;
        dlp_pipe *p = NULL;
        dlp_error e;
        kit_init(&k, 20, 20, 6);
        kit_device(&k, DEV_HOST);
        k.d.transfer_inline = wrong[i];
        CHECK(dlp_chunks_open(&p, &k.d, &e) == DLP_ERR_ARG && p == NULL);
        CHECK(strcmp(e.field, "transfer_inline") == 0);
        kit_close(&k, p);
    }
}

/* ---- a wiring of one's own: items that are rows of a table, with a map before the splitter
   ---- */

static int fetch_table(void *user, dlp_item *it) {
    uint32_t *cell = it->data[0];
    (void)user;
    for (uint32_t i = 0; i < 10; i++) cell[i] = (uint32_t)it->index * 10 + i;
    return 0;
}
static int double_it(void *user, dlp_item *it) {
    uint32_t *cell = it->data[0];
    (void)user;
    for (uint32_t i = 0; i < 10; i++) cell[i] *= 2;
    return 0;
}

static uint64_t own_cache; /* bytes; 0: none */

static int own_wire(dlp_pipe **p, const dlp_pipe_desc *desc, const dlp_sampler_desc *sampler,
                    const dlp_node_split *split, uint32_t batch_size) {
    const dlp_field field = {"x", DLP_U32, 1, {10}, 0, 0};
    const dlp_dataset set = {
        .n_items = 7, .fields = &field, .n_fields = 1, .writes_all_bytes = 1, .fetch = fetch_table};
    const dlp_source fetch = {.dataset = &set, .workers = {.num_workers = 2}};
    rig_table t = {.n = 0};
    table_list(&t, sampler);
    table_fetch(&t, &fetch, 0);
    if (own_cache) table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = {.bytes = own_cache}});
    table_row(&t, (dlp_node){.verb = DLP_MAP, .map = {.item = double_it}});
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = batch_size}});
    table_row(&t, (dlp_node){.verb = DLP_SPLIT, .split = *split});
    return dlp_pipe_open(p, t.nodes, t.n, desc, NULL);
}

static void split__own_wiring__cuts_items(uint64_t cache, int within) {
    dlp_sampler_desc sampler = {0};
    dlp_node_split split = {0};
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t weights[7] = {1, 0, 2, 0, 1, 0, 3}, n = 0, batches = within ? 21 : 18;
    own_cache = cache;
    sampler.order = DLP_ORDER_WEIGHTED; /* any order will do where all items are full */
    sampler.weights = weights;
    split.chunk_rows = 10;
    split.batch_size = 4;
    split.within_chunks = within;
    CHECK(own_wire(&p, NULL, &sampler, &split, 1) == DLP_OK);
    CHECK(p != NULL);
    CHECK(dlp_pipe_batches_per_epoch(p) == (int64_t)batches);
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        const uint32_t *x = b->fields[0].data;
        CHECK(b->count == ((within ? n % 3 == 2 : n == 17) ? 2u : 4u) &&
              weights[b->index[0] / 10] > 0);
        for (uint32_t r = 0; r < b->count; r++) CHECK(x[r] == 2 * b->index[r]);
        dlp_pipe_release(p, b);
        n++;
    }
    CHECK(n == batches && dlp_pipe_close(p) == DLP_OK);
}

static void split__bad_wirings__are_refused(void) {
    for (int what = 0; what < 6; what++) {
        dlp_sampler_desc sampler = {0};
        dlp_node_split split = {0};
        dlp_pipe_desc pipe = {0};
        dlp_pipe *p = NULL;
        split.chunk_rows = what == 0 ? 11 : 10; /* the field has room for 10 */
        split.batch_size = 4;
        split.n_rows = what == 1 ? 71 : what == 2 ? 69 : 0;
        if (what == 2) sampler.order = DLP_ORDER_REPLACEMENT;
        pipe.unordered = what == 4;
        split.shuffle_rows = what == 5;
        own_cache = what == 5 ? 1000 : 0; /* would keep the rows of one epoch for all */
        CHECK(own_wire(&p, &pipe, &sampler, &split, what == 3 ? 2 : 1) == DLP_ERR_ARG);
        CHECK(p == NULL);
    }
}

int main(void) {
    order__every_kind__as_the_oracle_says();
    order__golden__stays();
    resume__at_every_batch__goes_on();
    resume__of_another_order__is_refused();
    next_epoch__anywhere__begins_the_next();
    seek__at_random__goes_on_there();
    hold__random__bytes_stay();
    preload__any__loads_each_chunk_once();
    preload__epoch_left__copies_what_is_loaded();
    preload__chunk_left_out__zeros_then_loaded();
    preload__chunk_left_out_is_held__stays_zeros();
    chunks__all_left_out__an_error();
    preload__auto__takes_what_fits();
    preload__auto_of_a_device__asks_it();
    preload__auto_with_shuffled_rows__says_why_not();
    workers__of_chunks__one_by_default();
    errors__raise__names_the_chunk();
    errors__policies__keep_the_count();
    errors__of_the_device__end_it();
    descs__bad__are_refused();
    stop__any_moment__ends();
    handles__views__have_offsets();
    run__interrupted_anywhere__goes_on();
    run__resumed_before_the_end__calls_on_epoch();
    run__epoch_callback__stops_behind_the_epoch();
    passes__evaluate__in_order();
    overlap__equal_parts__take_the_longest();
    lookahead__consumer_holds_a_batch__all_buffers_fill();
    stats__of_chunks__tell_the_queues();
    explain__inline_transfer__names_the_field_of_the_desc();
    open__transfer_inline__neither_0_nor_1__refused();
    for (int within = 0; within < 2; within++) {
        split__own_wiring__cuts_items(0, within);
        split__own_wiring__cuts_items(1000, within);
    }
    split__bad_wirings__are_refused();
    return test_end("chunks");
}
