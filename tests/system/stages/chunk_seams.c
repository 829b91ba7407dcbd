/* needs: split */
/* Batches that span chunks, and chunks of unequal rows: order, bytes, copies that are counted,
   resume and seek in the middle of a seam, holding, devices, ranks, what is refused. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/chunks_rig.h"

static const uint64_t with_none[] = {20, 0, 1, 33, 13, 0, 30, 0};
static const uint64_t of_ones[] = {1, 1, 0, 1, 1, 1, 0, 0, 1, 1};
static const uint64_t one_large[] = {3, 80, 2, 1, 11};
static const uint64_t none_first[] = {0, 0, 24, 7, 0, 50, 16};

/* Rows of the dataset and of a chunk, or of each; and of a batch. */
static const struct shape {
    uint64_t n_items, chunk_rows;
    const uint64_t *rows;
    uint64_t n_chunks;
    uint32_t batch;
} shapes[] = {
    {97, 20, NULL, 0, 6},       {97, 20, NULL, 0, 21},       {97, 20, NULL, 0, 60},
    {97, 20, NULL, 0, 97},      {97, 20, NULL, 0, 200},      {100, 25, NULL, 0, 25},
    {63, 20, NULL, 0, 5},       {41, 1, NULL, 0, 6},         {97, 0, with_none, 8, 6},
    {13, 20, NULL, 0, 21},      {97, 0, with_none, 8, 40},   {7, 0, of_ones, 10, 2},
    {7, 0, of_ones, 10, 5},     {97, 100, one_large, 5, 12}, {97, 0, none_first, 7, 10},
    {97, 0, none_first, 7, 24},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

static void kit_shape(kit *k, uint32_t kind, size_t s) {
    kit_init(k, shapes[s].n_items, shapes[s].chunk_rows, shapes[s].batch);
    kit_vary(k, kind);
    if (shapes[s].rows != NULL) k->s->chunk_rows = 0;
    k->d.rows = shapes[s].rows;
    k->d.n_chunks = shapes[s].n_chunks;
    if (kind % 3 == 0 && shapes[s].rows != NULL) k->d.n_items = 0; /* their sum */
    if (k->d.last == DLP_LAST_DROP && shapes[s].batch > shapes[s].n_items)
        k->d.last = DLP_LAST_PARTIAL;
    k->d.within_chunks = kind % 4 == 3;
    for (uint64_t c = 0; c < chunk_count(&k->d); c++)
        if (k->d.within_chunks && shapes[s].batch <= chunk_rows_of(&k->d, c)) return;
    k->d.within_chunks = 0;
}

/* The chunk that has a row. */
static uint64_t chunk_of(const dlp_chunks_desc *d, uint64_t row) {
    uint64_t c = 0;
    while (row >= chunk_first(d, c) + chunk_rows_of(d, c)) c++;
    return c;
}

/* Are this rank's rows of a batch of several chunks? */
static bool spans(const dlp_chunks_desc *d, const dlp_batch *b) {
    for (uint32_t r = 1; r < b->count; r++)
        if (chunk_of(d, b->index[r]) != chunk_of(d, b->index[0])) return true;
    return false;
}

/* All batches from (epoch, batch) on, some held for a while; only those that span chunks were
   copied. */
static void drain_holding(kit *k, dlp_pipe *p, uint64_t epoch, uint64_t batch) {
    uint64_t random = epoch + batch + k->d.batch_size, seams = 0, bytes = 0;
    int most = k->d.pipe.max_held > 0 ? k->d.pipe.max_held : 1, n = 0, rc;
    dlp_batch *held[8], *b;
    dlp_stats s;
    expected e;
    oracle(&k->d, 0, 0, &e);
    CHECK(dlp_pipe_batches_per_epoch(p) == (int64_t)e.per_epoch);
    for (;;) {
        while (n > 0 && (n == most || test_pick(&random, 2))) {
            int i = (int)test_pick(&random, (uint32_t)n);
            CHECK(bytes_same(held[i]) && dlp_pipe_release(p, held[i]) == DLP_OK);
            held[i] = held[--n];
        }
        if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_OK) break;
        CHECK(view_same(&k->d, b, epoch, batch));
        if (++batch == e.per_epoch) batch = 0, epoch++;
        if (spans(&k->d, b)) seams++, bytes += b->fields[0].bytes + b->fields[1].bytes;
        held[n++] = b;
    }
    while (n > 0) CHECK(bytes_same(held[--n]) && dlp_pipe_release(p, held[n]) == DLP_OK);
    CHECK(rc == DLP_END && batch == 0 && epoch == (uint64_t)k->d.epochs && k->s->failures == 0);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    CHECK(s.chunks.seams == seams && s.chunks.seam_bytes == bytes);
    CHECK(seams == 0 || s.chunks.seam_buffers == (uint64_t)most);
}

static void order__every_shape__as_the_oracle_says(void) {
    for (size_t s = 0; s < SHAPES; s++)
        for (uint32_t kind = 0; kind < (uint32_t)test_share(24, 240); kind++)
            for (uint32_t world = 1; world <= 3; world++) {
                uint64_t loaded = 0;
                for (uint32_t rank = 0; rank < world; rank++) {
                    kit k;
                    dlp_pipe *p;
                    kit_shape(&k, kind, s);
                    k.d.pipe.rank = rank;
                    k.d.pipe.world_size = world;
                    k.d.pipe.allow_uneven = k.d.batch_size % world != 0;
                    k.d.pipe.max_held = 1 + (int32_t)(kind % 3);
                    if ((p = kit_open(&k)) == NULL) return;
                    drain_holding(&k, p, 0, 0);
                    loaded += k.s->rows;
                    kit_close(&k, p);
                    if (rank + 1 == world && k.d.last <= DLP_LAST_DEFAULT)
                        CHECK(loaded == 2 * shapes[s].n_items);
                }
            }
}

/* A state behind each batch, taken up by a pipe of other workers, device and ranks, and sought by
   one that runs. */
static void resume__at_every_batch__goes_on(void) {
    for (size_t s = 0; s < SHAPES; s++)
        for (uint32_t kind = (uint32_t)s % 3; kind < (uint32_t)test_share(12, 48); kind += 3) {
            dlp_state states[100], all;
            uint64_t n = 0;
            expected e;
            kit k, other;
            dlp_pipe *p;
            dlp_batch *b;
            kit_shape(&k, kind, s);
            oracle(&k.d, 0, 0, &e);
            if ((p = kit_open(&k)) == NULL) return;
            while (n < 100 && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
                CHECK(dlp_pipe_state(p, b, &states[n]) == DLP_OK);
                CHECK(dlp_pipe_state(p, NULL, &all) == DLP_OK);
                CHECK(memcmp(&all, &states[n], sizeof all) == 0);
                CHECK(dlp_pipe_state_at(p, (n + 1) / e.per_epoch, (n + 1) % e.per_epoch, &all) ==
                      DLP_OK);
                CHECK(memcmp(&all, &states[n++], sizeof all) == 0);
                dlp_pipe_release(p, b);
            }
            CHECK(n == 2 * e.per_epoch);
            for (uint64_t i = n - 1; i-- > 0;) {
                CHECK(dlp_pipe_seek(p, &states[i], NULL) == DLP_OK);
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
                CHECK(view_same(&k.d, b, (i + 1) / e.per_epoch, (i + 1) % e.per_epoch));
                dlp_pipe_release(p, b);
            }
            kit_close(&k, p);
            for (uint64_t i = 0; i + 1 < n; i++) {
                kit_shape(&other, kind, s);
                other.d.workers.num_workers = so_many(i % 3);
                other.d.device = NULL;
                kit_device(&other, (int)(i % DEV_KINDS));
                other.d.pipe.world_size = i % 2 ? 3 : 1;
                other.d.pipe.rank = (uint32_t)(i % other.d.pipe.world_size);
                other.d.pipe.allow_uneven = 1;
                other.d.pipe.resume = &states[i];
                if ((p = kit_open(&other)) == NULL) return;
                CHECK(dlp_pipe_state(p, NULL, &all) == DLP_OK);
                CHECK(memcmp(&all, &states[i], sizeof all) == 0);
                drain_holding(&other, p, (i + 1) / e.per_epoch, (i + 1) % e.per_epoch);
                kit_close(&other, p);
            }
        }
}

/* The epoch is left, another place sought, or the same, while half of a batch is there. */
static void seam__half_there__left_or_taken_up(void) {
    for (int how = 0; how < 5; how++)
        for (int device = 0; device < DEV_KINDS; device++) {
            kit k;
            dlp_pipe *p;
            dlp_batch *b = NULL;
            dlp_state at;
            dlp_stats s;
            int rc;
            kit_init(&k, 97, 20, 30);
            kit_device(&k, device);
            k.d.workers.num_workers = 1;
            k.d.epochs = 3;
            if ((p = kit_open(&k)) == NULL) return;
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && view_same(&k.d, b, 0, 0));
            dlp_pipe_release(p, b);
            __atomic_store_n(&k.s->sleep_us, 3000, __ATOMIC_RELAXED); /* rows 60.. come late */
            do rc = dlp_pipe_next_timeout(p, &b, 0);
            while (rc == DLP_TIMEOUT && dlp_pipe_stats(p, &s) == DLP_OK && s.chunks.taken < 3);
            if (rc == DLP_OK) { /* it was quicker */
                CHECK(view_same(&k.d, b, 0, 1) && dlp_pipe_release(p, b) == DLP_OK);
                do rc = dlp_pipe_next_timeout(p, &b, 0);
                while (rc == DLP_TIMEOUT && dlp_pipe_stats(p, &s) == DLP_OK && s.chunks.taken < 4);
                if (rc == DLP_OK) dlp_pipe_release(p, b);
            }
            __atomic_store_n(&k.s->sleep_us, 0, __ATOMIC_RELAXED);
            CHECK(dlp_pipe_state(p, NULL, &at) == DLP_OK);
            if (how == 0) CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
            if (how == 1) CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
            if (how == 2) CHECK(dlp_pipe_state_at(p, 2, 1, &at) == DLP_OK);
            if (how == 2) CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
            if (how == 4) dlp_pipe_stop(p);
            rc = dlp_pipe_next_timeout(p, &b, 20000);
            CHECK(rc == (how == 4 ? DLP_STOPPED : DLP_OK));
            if (rc == DLP_OK) {
                expected e;
                bool same = oracle(&k.d, b->epoch, b->in_epoch, &e);
                CHECK(same && view_same(&k.d, b, b->epoch, b->in_epoch));
                CHECK(how == 0   ? b->epoch == 1 && b->in_epoch == 0
                      : how == 2 ? b->epoch == 2 && b->in_epoch == 1
                                 : b->epoch == 0);
                dlp_pipe_release(p, b);
            }
            kit_close(&k, p);
        }
}

/* A copy within the device that takes long: next comes back in time, and has it later. */
static void seam__late_copy__next_keeps_its_timeout(void) {
    kit k;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t longest = 0, n = 0;
    int rc, waited = 0;
    kit_init(&k, 60, 20, 30);
    kit_device(&k, DEV_LATE);
    k.l.copy_ns = 300000000;
    k.d.epochs = 1;
    if ((p = kit_open(&k)) == NULL) return;
    do {
        uint64_t from = test_now_ns(), took;
        rc = dlp_pipe_next_timeout(p, &b, 1);
        took = test_now_ns() - from;
        if (took > longest) longest = took;
        waited += rc == DLP_TIMEOUT && k.l.joins > 0;
        if (rc == DLP_OK) CHECK(view_same(&k.d, b, 0, n++) && dlp_pipe_release(p, b) == DLP_OK);
    } while (rc == DLP_OK || rc == DLP_TIMEOUT);
    CHECK(rc == DLP_END && n == 2 && waited > 0 && longest < 200000000);
    kit_close(&k, p);
}

/* A chunk that is left out has no valid rows in a batch that has rows of others, and is zeros. */
static void seam__chunk_left_out__its_rows_not_valid(void) {
    for (int kind = 0; kind < 2 * DEV_KINDS; kind++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t n = 0;
        int rc;
        kit_init(&k, 97, 20, 30);
        kit_device(&k, kind / 2);
        k.d.workers.num_workers = so_many((uint64_t)kind % 2);
        k.d.workers.on_error = DLP_ON_ERROR_DROP;
        k.d.epochs = 1;
        k.s->bad_chunk = 2;
        k.s->bad_times = -1;
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            uint32_t valid = 0;
            for (uint32_t r = 0; r < b->count; r++) {
                bool left = b->index[r] / 20 == 2;
                uint32_t label;
                memcpy(&label, field_at(b, 1) + r * 4, 4);
                CHECK(b->index[r] == n++ && b->valid[r] == !left);
                CHECK(label == (left ? 0 : b->index[r]));
                valid += !left;
            }
            CHECK(b->valid_count == valid);
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_END && n == 97);
        kit_close(&k, p);
    }
}

/* Chunks that stay are loaded whole, once, though epochs end in the middle of other ones. */
static void preload__seams__each_chunk_loaded_once(void) {
    for (size_t s = 0; s < SHAPES; s++)
        for (uint32_t kind = 0; kind < 12; kind++) {
            kit k;
            dlp_pipe *p;
            kit_shape(&k, kind, s);
            k.d.within_chunks = 0;
            k.d.shuffle_rows = 0;
            k.d.shuffle_chunks = kind % 2;
            k.d.epochs = 4;
            k.d.preload = k.d.device && kind % 3 ? DLP_PRELOAD_DEVICE : DLP_PRELOAD_CPU;
            if ((p = kit_open(&k)) == NULL) return;
            drain_holding(&k, p, 0, 0);
            for (uint64_t c = 0; c < chunk_count(&k.d); c++) {
                bool dropped = k.d.last == DLP_LAST_DROP && !k.d.shuffle_chunks && c == 3 &&
                               k.d.batch_size == 5 &&
                               k.d.rows == NULL; /* the 3 rows of 63 in chunks of 20 */
                CHECK(k.s->calls[c] == (chunk_rows_of(&k.d, c) > 0 && !dropped));
            }
            kit_close(&k, p);
        }
}

static uint64_t line_of(const dlp_plan *plan, const char *what, uint64_t *count) {
    for (uint32_t i = 0; i < plan->n_lines; i++)
        if (strcmp(plan->lines[i].what, what) == 0) {
            *count = plan->lines[i].count;
            return plan->lines[i].bytes_each;
        }
    return *count = 0;
}

/* Seam buffers are in the plan, where batches span chunks and only there; explain tells of them. */
static void plan__seams__buffers_of_a_batch_each(void) {
    for (int device = 0; device < 2; device++)
        for (int seams = 0; seams < 2; seams++) {
            kit k;
            dlp_pipe *p;
            dlp_batch *b;
            dlp_plan plan;
            dlp_stats s;
            char text[4096];
            uint64_t count, each;
            kit_init(&k, 100, 20, seams ? 30 : 5);
            kit_device(&k, device ? DEV_LATE : DEV_NONE);
            k.d.pipe.max_held = 3;
            if ((p = kit_open(&k)) == NULL) return;
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
            CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && dlp_pipe_stats(p, &s) == DLP_OK);
            CHECK(plan.total_bytes == s.plan_bytes);
            each = line_of(&plan, device ? "device seam buffers" : "seam buffers", &count);
            CHECK(count == (seams ? 3 : 0));
            if (seams) CHECK(each == (device ? 30 * 28 : 768 + 128));
            line_of(&plan, device ? "seam buffers" : "device seam buffers", &count);
            CHECK(count == 0);
            CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
            CHECK((strstr(text, "Seams: 1 batch spanned chunks and was copied, 840 bytes") !=
                   NULL) == (seams == 1));
            if (seams) CHECK(((uintptr_t)b->fields[1].data & 63) == 0 || device);
            dlp_pipe_release(p, b);
            kit_close(&k, p);
        }
}

/* Where no batch spans a chunk, within_chunks changes nothing: states are the same, byte by byte.
   Nor do counts that are alike. */
static void state__no_seams__the_same_however_it_is_said(void) {
    static const uint64_t alike[] = {20, 20, 20, 20, 17};
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        dlp_state first, state;
        for (int how = 0; how < 3; how++) {
            kit k;
            dlp_pipe *p;
            dlp_batch *b;
            kit_init(&k, shuffled ? 100 : 97, 20, 5);
            k.d.shuffle_chunks = k.d.shuffle_rows = shuffled;
            k.d.within_chunks = how == 1;
            if (how == 2 && !shuffled) {
                k.d.rows = alike;
                k.d.n_chunks = 5;
                k.d.chunk_rows = 0;
            }
            if ((p = kit_open(&k)) == NULL) return;
            for (int i = 0; i < 7; i++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
                CHECK(view_same(&k.d, b, 0, (uint64_t)i) && dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(dlp_pipe_state(p, NULL, how == 0 ? &first : &state) == DLP_OK);
            if (how > 0) CHECK(memcmp(&state, &first, sizeof state) == 0);
            kit_close(&k, p);
        }
    }
}

static void errors__of_a_copy_within__end_it(void) {
    for (int at = 1; at < 24; at++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        kit_init(&k, 97, 20, 30);
        kit_device(&k, DEV_LATE);
        k.l.fail_join_at = at;
        k.d.epochs = at < 12 ? 1 : 2;
        if ((p = kit_open(&k)) == NULL) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_ERR_DEVICE && strcmp(dlp_pipe_error(p)->stage, "transfer") == 0);
        CHECK(strstr(dlp_pipe_error(p)->message, "copy_within returned 5") != NULL);
        kit_close(&k, p);
    }
}

static void descs__bad__are_refused(void) {
    static const uint64_t zeros[2], two[2] = {10, 30}, many[2] = {UINT64_C(1) << 48, 1};
    static const char *const fields[] = {"device",  "queue.capacity", "n_chunks",     "n_chunks",
                                         "rows",    "n_rows",         "rows",         "rows",
                                         "preload", "n_chunks",       "within_chunks"};
    for (int what = 0; what < 11; what++) {
        kit k;
        dlp_pipe *p = NULL;
        dlp_error err;
        kit_init(&k, 40, 20, 15);
        if (what == 0) kit_device(&k, DEV_LATE), k.device.copy_within = NULL;
        if (what == 1) kit_device(&k, DEV_LATE), k.d.device_buffers = 64;
        if (what >= 2 && what != 8) k.d.rows = two, k.d.n_chunks = 2, k.d.chunk_rows = 0;
        if (what == 2) k.d.n_chunks = 0;
        if (what == 3) k.d.n_chunks = UINT64_C(1) << 31;
        if (what == 4) k.d.chunk_rows = 29;
        if (what == 5) k.d.n_items = 41;
        if (what == 6) k.d.rows = zeros, k.d.n_items = 0;
        if (what == 7) k.d.rows = many, k.d.n_items = 0;
        if (what == 8)
            k.d.shuffle_chunks = 1, k.d.pipe.world_size = 3, k.d.preload = DLP_PRELOAD_CPU;
        if (what == 9) k.d.rows = NULL, k.d.chunk_rows = 20;
        if (what == 10) k.d.within_chunks = 2;
        CHECK(dlp_chunks_open(&p, &k.d, &err) == DLP_ERR_ARG && p == NULL);
        if (strcmp(err.field, fields[what]) != 0)
            printf("%d: %s: %s\n", what, err.field, err.message);
        CHECK(strcmp(err.field, fields[what]) == 0);
        if (what == 0) CHECK(strstr(err.message, "set within_chunks, or a batch_size") != NULL);
    }
}

int main(void) {
    order__every_shape__as_the_oracle_says();
    resume__at_every_batch__goes_on();
    seam__half_there__left_or_taken_up();
    seam__late_copy__next_keeps_its_timeout();
    seam__chunk_left_out__its_rows_not_valid();
    preload__seams__each_chunk_loaded_once();
    plan__seams__buffers_of_a_batch_each();
    state__no_seams__the_same_however_it_is_said();
    errors__of_a_copy_within__end_it();
    descs__bad__are_refused();
    return test_end("chunk_seams");
}
