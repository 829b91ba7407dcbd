/* needs: split */
/* Chunks that lie in memory already: batches are views into it, which nobody writes; where they
   cannot be, rows are copied from it. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/chunks_rig.h"

/* ---- all rows, in memory that is only to be read ---- */

enum { ROWS = 128 };
typedef struct table {
    uint64_t words[ROWS][3];
    uint32_t label[ROWS];
} table;
static table *rows;

static void make_rows(void) {
    rows = mmap(NULL, sizeof *rows, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rows == MAP_FAILED) exit(2);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (int i = 0; i < 3; i++) rows->words[r][i] = word_of(r, i);
        rows->label[r] = r;
    }
    if (mprotect(rows, sizeof *rows, PROT_READ) != 0) exit(2);
}

static const void *rows_at(void *user, uint64_t chunk, uint32_t field) {
    uint64_t first = chunk * ((source *)user)->chunk_rows;
    return field == 0 ? (const void *)rows->words[first] : (const void *)&rows->label[first];
}

/* Is what a callback or the consumer is given row `row` where it lies? */
static bool is_there(const void *data, int field, uint64_t row) {
    return data == (field == 0 ? (const void *)rows->words[row] : (const void *)&rows->label[row]);
}

/* A load that has nothing to do: some chunks are bad. */
static int load_there(void *user, dlp_chunk *c) {
    source *s = user;
    __atomic_add_fetch(&s->rows, c->count, __ATOMIC_RELAXED);
    for (int f = 0; f < 2; f++)
        if (!is_there(c->data[f], f, c->chunk_first))
            __atomic_add_fetch(&s->failures, 1, __ATOMIC_RELAXED);
    for (int f = 0; f < 2; f++) c->data[f] = NULL; /* nobody looks at what load makes of it */
    if (s->bad_times && (uint64_t)s->bad_chunk == c->index)
        return dlp_fail(c->call, 5, "chunk %d is bad", s->bad_chunk);
    return 0;
}

static void kit_there(kit *k, uint64_t n, uint64_t chunk_rows, uint32_t batch) {
    kit_init(k, n, chunk_rows, batch);
    k->d.rows_at = rows_at;
    k->d.load = load_there;
}

/* ---- tests ---- */

static const uint64_t shapes[][3] = {{100, 25, 8}, {97, 20, 6}, {60, 20, 5}, {23, 40, 6},
                                     {41, 20, 6},  {30, 7, 12}, {64, 16, 1}};

static void order__every_kind__as_with_load(void) {
    uint32_t n = (uint32_t)test_share(60, 600);
    for (uint32_t kind = 0; kind < n; kind++)
        for (uint32_t world = 1; world <= 3; world++)
            for (uint32_t rank = 0; rank < world; rank++) {
                const uint64_t *shape = shapes[(kind + kind / 7) % 7];
                kit k;
                expected e;
                dlp_pipe *p;
                kit_there(&k, shape[0], shape[1], (uint32_t)shape[2]);
                kit_vary(&k, kind);
                if (kind % 11 == 0) k.d.load = NULL;
                if (shape[2] > shape[1]) k.d.within_chunks = 0;
                if (kind % 4 == 3 && world == 1 && !k.d.shuffle_rows)
                    k.d.preload = k.d.device ? DLP_PRELOAD_DEVICE : DLP_PRELOAD_CPU;
                k.d.pipe.rank = rank;
                k.d.pipe.world_size = world;
                k.d.pipe.allow_uneven = shape[2] % world != 0;
                if (!oracle(&k.d, 0, 0, &e)) continue;
                if ((p = kit_open(&k)) == NULL) return;
                drain_from(&k, p, 0, 0);
                kit_close(&k, p);
            }
}

/* Nothing is copied: the batch is where the rows are, of all ranks, in any order of chunks. */
static void views__within_chunks__are_the_memory(void) {
    for (uint32_t rank = 0; rank < 2; rank++) {
        kit k;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_plan plan;
        uint64_t n = 0;
        kit_there(&k, 100, 20, 10);
        k.d.shuffle_chunks = k.d.within_chunks = 1;
        k.d.pipe.world_size = 2;
        k.d.pipe.rank = rank;
        k.d.workers.num_workers = 2;
        if ((p = kit_open(&k)) == NULL) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            for (int f = 0; f < 2; f++) CHECK(is_there(b->fields[f].data, f, b->index[0]));
            n += b->count;
            dlp_pipe_release(p, b);
        }
        CHECK(n == 100 && k.s->failures == 0);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        for (uint32_t i = 0; i < plan.n_lines; i++) /* but one, of zeros */
            CHECK(strcmp(plan.lines[i].what, "CPU chunk buffers") != 0);
        kit_close(&k, p);
    }
}

static void resume__of_a_pipe_that_loads__goes_on(void) {
    for (uint64_t at = 1; at < 13; at++) {
        kit loads, there;
        dlp_state state;
        dlp_pipe *p;
        dlp_batch *b;
        kit_init(&loads, 41, 20, 6);
        kit_there(&there, 41, 20, 6);
        loads.d.shuffle_chunks = there.d.shuffle_chunks = 1;
        if ((p = kit_open(&loads)) == NULL) return;
        for (uint64_t i = 0; i < at; i++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
            CHECK(dlp_pipe_state(p, b, &state) == DLP_OK);
            dlp_pipe_release(p, b);
        }
        kit_close(&loads, p);
        there.d.pipe.resume = &state;
        if ((p = kit_open(&there)) == NULL) return;
        drain_from(&there, p, at / 7, at % 7);
        kit_close(&there, p);
    }
}

/* A chunk that is left out is zeros of the pipe's, not what lies there. */
static void errors__chunk_left_out__zeros(void) {
    kit k;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t zeros = 0, n = 0;
    static const uint8_t none[6 * 24];
    kit_there(&k, 97, 20, 6);
    k.s->bad_chunk = 2;
    k.s->bad_times = -1;
    k.d.workers.on_error = DLP_ON_ERROR_DROP;
    k.d.workers.max_skips = 2;
    k.d.within_chunks = 1;
    if ((p = kit_open(&k)) == NULL) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        bool bad = b->index[0] / 20 == 2;
        CHECK(b->valid_count == (bad ? 0 : b->count));
        CHECK(is_there(b->fields[0].data, 0, b->index[0]) == !bad);
        CHECK(bad ? memcmp(b->fields[0].data, none, b->fields[0].bytes) == 0 : bytes_same(b));
        zeros += bad ? b->count : 0;
        n += b->count;
        dlp_pipe_release(p, b);
    }
    CHECK(n == 2 * 97 && zeros == 2 * 20);
    kit_close(&k, p);
}

/* In the place of a chunk comes another, from where that lies. */
static void errors__chunk_replaced__is_the_other(void) {
    kit k;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0;
    kit_there(&k, 100, 20, 5);
    k.s->bad_chunk = 2;
    k.s->bad_times = -1;
    k.d.workers.on_error = DLP_ON_ERROR_REPLACE;
    k.d.workers.max_skips = 2;
    if ((p = kit_open(&k)) == NULL) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        CHECK(b->index[0] / 20 != 2 && b->valid_count == 5 && bytes_same(b));
        CHECK(is_there(b->fields[0].data, 0, b->index[0]));
        n += b->count;
        dlp_pipe_release(p, b);
    }
    CHECK(n == 200);
    kit_close(&k, p);
}

static const void *nowhere(void *user, uint64_t chunk, uint32_t field) {
    return chunk == 3 && field == 1 ? NULL : rows_at(user, chunk, field);
}

static void errors__null__names_the_chunk(void) {
    kit k;
    dlp_pipe *p;
    dlp_batch *b;
    kit_there(&k, 97, 20, 20);
    k.d.rows_at = nowhere;
    k.d.load = NULL;
    if ((p = kit_open(&k)) == NULL) return;
    for (int i = 0; i < 3; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "NULL for field 1 of chunk 3") != NULL);
    kit_close(&k, p);
}

static void dlpack__of_a_view__is_read_only(void) {
    for (int in_place = 0; in_place < 2; in_place++) {
        dlp_managed_tensor_v1 *t = NULL;
        dlp_batch *b;
        dlp_pipe *p;
        kit k;
        if (in_place)
            kit_there(&k, 97, 20, 5);
        else
            kit_init(&k, 97, 20, 5);
        if ((p = kit_open(&k)) == NULL) return;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        CHECK(dlp_batch_dlpack_v1(p, b, 0, &t) == DLP_OK);
        if (t == NULL) return;
        CHECK(t->flags == (uint64_t)in_place);
        t->deleter(t);
        kit_close(&k, p);
    }
}

static void preload__auto__keeps_none(void) {
    kit k;
    dlp_pipe *p;
    kit_there(&k, 97, 20, 6);
    k.d.preload = DLP_PRELOAD_AUTO;
    if ((p = kit_open(&k)) == NULL) return;
    CHECK(strstr(dlp_pipe_warning(p, 0), "rows_at") != NULL);
    drain_from(&k, p, 0, 0);
    kit_close(&k, p);
}

int main(void) {
    make_rows();
    order__every_kind__as_with_load();
    views__within_chunks__are_the_memory();
    resume__of_a_pipe_that_loads__goes_on();
    errors__chunk_left_out__zeros();
    errors__chunk_replaced__is_the_other();
    errors__null__names_the_chunk();
    dlpack__of_a_view__is_read_only();
    preload__auto__keeps_none();
    return test_end("rows_at");
}
