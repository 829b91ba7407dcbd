/* needs: join files */
/* Joins and those who mean ill: a cache in front that writes what is not its own, states of another
   mix, plans against what is asked of the system, callbacks that say odd things, files that are
   joined, descs that are refused in words. */
/* own: hook: allocations are counted */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

static long ever_had; /* bytes of all blocks and mappings ever had */
static void *count_malloc(size_t n) {
    __atomic_add_fetch(&ever_had, (long)n, __ATOMIC_SEQ_CST);
    return malloc(n);
}
static void *count_calloc(size_t n, size_t size) {
    __atomic_add_fetch(&ever_had, (long)(n * size), __ATOMIC_SEQ_CST);
    return calloc(n, size);
}
static void *count_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    __atomic_add_fetch(&ever_had, (long)n, __ATOMIC_SEQ_CST);
    return mmap(at, n, prot, flags, fd, offset);
}
#define malloc count_malloc
#define calloc count_calloc
#define mmap count_mmap
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"
#undef malloc
#undef calloc
#undef mmap

#include "../../rig/join_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/sources.h"

/* ---- whose bytes ---- */

#define PLACES 64

static struct place { /* of a joined field's row: what its own callback has left there */
    const void *at;
    uint64_t word;
} place_[PLACES];
static int strange_;

static struct place *place_of(const void *at) {
    struct place *k = place_;
    while (k->at != NULL && k->at != at) k++;
    k->at = at;
    return k;
}

static int fetch_plain(void *user, dlp_item *it) {
    uint64_t word = it->index * 3;
    (void)user;
    memcpy(it->data[0], &word, 8);
    return 0;
}

/* It promises to write all, so nobody else has to: what it finds is what it left. */
static int fetch_watched(void *user, dlp_item *it) {
    uint64_t word = dlp_hash(it->index, it->epoch, 1, 1), found;
    struct place *k = place_of(it->data[0]);
    (void)user;
    memcpy(&found, it->data[0], 8);
    strange_ += found != k->word;
    memcpy(it->data[0], &word, 8);
    k->word = word;
    return 0;
}

/* A cache in front of a join keeps the fields before it, and gives those alone. */
static void join_hostile__found_in_cache__joined_bytes_untouched(void) { /* needs: cache */
    dlp_field a = {"a", DLP_U64, 0, {0}, 0, 0}, b = {"b", DLP_U64, 0, {0}, 0, 0};
    dlp_dataset ds[2] = {{.n_items = 40, .fields = &a, .n_fields = 1, .fetch = fetch_plain},
                         {.n_items = 40, .fields = &b, .n_fields = 1, .fetch = fetch_watched}};
    dlp_sampler_desc sampler = {.order = DLP_ORDER_SHUFFLED};
    const dlp_pipe_desc desc = {.epochs = 3};
    rig_table t = {.n = 0};
    dlp_batch *got;
    dlp_stats stats;
    dlp_pipe *p;
    ds[0].writes_all_bytes = ds[1].writes_all_bytes = 1;
    table_list(&t, &sampler);
    table_fetch(&t, &(dlp_source){.dataset = &ds[0]}, 0);
    table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = {.bytes = 1 << 16}});
    table_fetch(&t, &(dlp_source){.dataset = &ds[1]}, 0);
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 8}});
    CHECK(table_pipe(&t, &p, &desc, NULL) == DLP_OK);
    CHECK(dlp_pipe_start(p) == DLP_OK);
    while (dlp_pipe_next(p, &got) == DLP_OK) dlp_pipe_release(p, got);
    CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && stats.cache_hits == 80);
    if (!DLPI_DEBUG) CHECK(strange_ == 0); /* there rows are copies, and released ones poisoned */
    dlp_pipe_close(p);
} /* needs: cache */

static int fetch_fixed(void *user, dlp_item *it) {
    const source *s = user;
    uint64_t word = source_word(s, it->index);
    memcpy(it->data[0], &word, sizeof word);
    memset(it->data[1], 7, 5);
    return 0;
}

/* Items of fields of fixed sizes, which have no lengths. A row that passes the last stage is kept
   there. */
static void join_hostile__mix_of_fixed_fields_kept__rows_whole(void) { /* needs: cache */
    static const uint64_t items[] = {40, 31};
    for (int k = 0; k < 4; k++) {
        dlp_batch *b;
        dlp_pipe *p;
        uint64_t rows = 0;
        setup s;
        int rc;
        setup_mix(&s, 2, items, NULL);
        for (int i = 0; i < 2; i++) s.of[i].fields[1].ragged = 0;
        s.gate = fetch_fixed;
        s.cache = 1;
        s.epochs = 3;
        workers_all(&s, k, 0);
        if (k == 3) s.fetcher[1] = DLP_FETCH_THREADS;
        p = setup_open(&s);
        rc = dlp_pipe_start(p);
        while (rc == DLP_OK && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) {
                uint64_t i = b->index[r], word = ((const uint64_t *)b->fields[0].data)[r];
                CHECK(b->valid[r] &&
                      word == (i < 40 ? source_word(&s.of[0], i) : source_word(&s.of[1], i - 40)));
            }
            rows += b->count;
            dlp_pipe_release(p, b);
        }
        if (rc != DLP_END) rig_say(p, rc);
        CHECK(rc == DLP_END && rows > 3 * 71);
        dlp_pipe_close(p);
        dlp_mix_close(s.mix);
    }
} /* needs: cache */

/* ---- states ---- */

static int resumed(const uint64_t *items, int n, const dlp_state *state, char *message) {
    setup s;
    dlp_pipe *p;
    int rc;
    if (n > 1)
        setup_mix(&s, n, items, NULL);
    else
        setup_zip(&s, 2, items[0]);
    s.shuffled = 1;
    s.resume = state;
    p = setup_open(&s);
    rc = dlp_pipe_start(p);
    snprintf(message, 256, "%.255s", dlp_pipe_error(p)->message);
    dlp_pipe_close(p);
    if (s.mix) dlp_mix_close(s.mix);
    return rc;
}

/* Numbers 0..70 in the same order, and other items behind them. */
static void join_hostile__state_of_another_mix__refused(void) {
    static const uint64_t items[] = {40, 31}, other[] = {31, 40}, three[] = {40, 30, 1}, all = 71;
    char message[256];
    setup s;
    outcome o;
    setup_mix(&s, 2, items, NULL);
    s.shuffled = 1;
    o = drain(&s, 3);
    CHECK(o.rc == DLP_OK);
    CHECK(resumed(items, 2, &o.state, message) == DLP_OK);
    CHECK(resumed(other, 2, &o.state, message) == DLP_ERR_RESUME);
    CHECK(strstr(message, "datasets mixed") != NULL);
    CHECK(resumed(three, 3, &o.state, message) == DLP_ERR_RESUME);
    CHECK(resumed(&all, 1, &o.state, message) == DLP_ERR_RESUME);
    dlp_mix_close(s.mix);
    setup_zip(&s, 2, 71);
    o = drain(&s, 3);
    CHECK(resumed(&all, 1, &o.state, message) == DLP_OK);
    CHECK(resumed(items, 2, &o.state, message) == DLP_ERR_RESUME);
}

/* ---- memory ---- */

static void join_hostile__plan__all_that_is_asked_for(void) {
    static const uint64_t items[] = {40, 31, 20};
    for (int k = 0; k < 12; k++) {
        dlp_plan plan, after;
        uint64_t sum = 0;
        dlp_batch *b;
        setup s;
        dlp_pipe *p;
        long from, asked;
        if (k % 2)
            setup_mix(&s, 3, items, NULL);
        else
            setup_zip(&s, 3, 50);
        workers_all(&s, k / 4, 0);
        for (int i = 0; k / 4 > 0 && i < 3; i++) s.fetcher[i] = (k + i) % 3;
        s.retries = k % 3;
        s.cache = k % 4 == 3 ? 1 : 0;
        from = ever_had;
        p = setup_open(&s);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        for (uint32_t i = 0; i < plan.n_lines; i++) sum += plan.lines[i].bytes;
        CHECK(sum == plan.total_bytes && dlp_pipe_start(p) == DLP_OK);
        asked = ever_had - from;
        CHECK((uint64_t)asked <= plan.total_bytes && plan.total_bytes < (uint64_t)asked + 64);
        if ((uint64_t)asked > plan.total_bytes || plan.total_bytes >= (uint64_t)asked + 64)
            printf("setup %d: planned %" PRIu64 ", asked %ld\n", k, plan.total_bytes, asked);
        from = ever_had;
        while (dlp_pipe_next(p, &b) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(ever_had == from); /* nothing is allocated after the start */
        CHECK(dlp_pipe_plan(p, &after) == DLP_OK && after.total_bytes == plan.total_bytes);
        dlp_pipe_close(p);
        if (s.mix) dlp_mix_close(s.mix);
    }
}

/* ---- odd callbacks ---- */

static int odd_code_, odd_length_;

static int fetch_odd(void *user, dlp_item *it) {
    const source *s = user;
    uint64_t word = source_word(s, it->index);
    memcpy(it->data[0], &word, sizeof word);
    it->length[1] = word % 5;
    memset(it->data[1], (int)(word & 255), (size_t)it->length[1]);
    if (it->index % 7 != 2) return 0;
    if (odd_length_) it->length[odd_length_ - 1] = odd_length_ == 1 ? 1 : 6;
    return odd_code_;
}

static void join_hostile__odd_codes_and_lengths__by_policy_and_named(void) {
    static const int codes[] = {DLP_END,        DLP_SKIP,       DLP_TIMEOUT,    DLP_FULL,
                                DLP_ERR_KILLED, DLP_ERR_BUDGET, DLP_ERR_LENGTH, DLP_ERR_DEADLINE,
                                INT32_MIN,      INT32_MAX,      12345,          -1};
    for (int k = 0; k < 3 * (int)(sizeof codes / sizeof *codes) + 6; k++) {
        const int n = (int)(sizeof codes / sizeof *codes);
        setup s;
        dlp_pipe *p;
        dlp_batch *b;
        int rc, left = 0;
        dlp_dataset ds[2];
        dlp_source fetch;
        rig_table t = {.n = 0};
        odd_code_ = k < 3 * n ? codes[k / 3] : 0;
        odd_length_ = k < 3 * n ? 0 : 1 + (k - 3 * n) / 3;
        setup_zip(&s, 2, 50);
        s.policy = k % 3;
        s.workers[1] = k % 2;
        s.fetcher[1] = k % 2 ? DLP_FETCH_THREADS : 0;
        table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_SHUFFLED});
        fetch_desc(&s, 0, &ds[0], &fetch);
        table_fetch(&t, &fetch, 0);
        fetch_desc(&s, 1, &ds[1], &fetch);
        ds[1].fetch = fetch_odd;
        table_fetch(&t, &fetch, 0);
        table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 8}});
        CHECK(table_pipe(&t, &p, NULL, NULL) == DLP_OK);
        rc = dlp_pipe_start(p);
        while (rc == DLP_OK && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) {
                left += !b->valid[r];
                if (b->valid[r]) CHECK(b->index[r] % 7 != 2 && row_is(&s, b, r));
            }
            dlp_pipe_release(p, b);
        }
        if (s.policy == DLP_ON_ERROR_RAISE && odd_code_ != DLP_SKIP) {
            CHECK(rc ==
                  (odd_length_ || odd_code_ == DLP_ERR_LENGTH ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK));
            CHECK(strcmp(dlp_pipe_error(p)->stage, "labels") == 0);
            CHECK(dlp_pipe_error(p)->index % 7 == 2);
            if (odd_length_)
                CHECK(strcmp(dlp_pipe_error(p)->field, s.of[1].names[odd_length_ - 1]) == 0);
        } else {
            CHECK(rc == DLP_END && left == (s.policy == DLP_ON_ERROR_REPLACE ? 0 : 7));
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- files ---- */

static void join_hostile__files_joined__bytes_of_each(void) {
    static const dlp_field bytes = {"bytes", DLP_U8, 1, {16}, 1, 0};
    char dir[] = "/tmp/dlpipe_join_XXXXXX", path[9][64];
    const char *paths[9];
    CHECK(mkdtemp(dir) != NULL);
    for (int i = 0; i < 9; i++) {
        FILE *f;
        snprintf(path[i], sizeof path[i], "%s/%d", dir, i);
        paths[i] = path[i];
        f = fopen(path[i], "w");
        for (int k = 0; f && k <= i; k++) fputc('a' + i, f);
        if (f) fclose(f);
    }
    for (int k = 0; k < 4; k++) {
        dlp_files_desc d = {.n_items = 9, .fields = &bytes, .n_fields = 1, .paths = paths};
        dlp_source fetch, join = {.in_flight = 0};
        rig_table t = {.n = 0};
        dlp_dataset ds;
        dlp_source *files;
        dlp_batch *b;
        dlp_pipe *p;
        setup s;
        int rc, rows = 0;
        d.use_threads = k / 2;
        setup_zip(&s, 1, 9);
        CHECK(dlp_files_open(&files, &d, NULL) == DLP_OK);
        source_into(files, &join);
        join.workers.num_workers = 1 + k % 2;
        table_list(&t, &(dlp_sampler_desc){.order = DLP_ORDER_SHUFFLED});
        fetch_desc(&s, 0, &ds, &fetch);
        table_fetch(&t, &fetch, 0);
        table_fetch(&t, &join, 0);
        table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = 4}});
        CHECK(table_pipe(&t, &p, NULL, NULL) == DLP_OK);
        CHECK(dlp_node_stage(p, "join") > 0);
        rc = dlp_pipe_start(p);
        if (rc != DLP_OK) rig_say(p, rc);
        while (rc == DLP_OK && (rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++, rows++) {
                uint64_t i = b->index[r], n = b->fields[2].lengths[r];
                const char *at = (const char *)b->fields[2].data + 16 * r;
                CHECK(n == i + 1 && at[0] == (char)('a' + (int)i) && at[n - 1] == at[0]);
                CHECK(at[n] == 0);
            }
            dlp_pipe_release(p, b);
        }
        CHECK(rc == DLP_END && rows == 9);
        dlp_pipe_close(p);
        dlp_source_close(files);
    }
    for (int i = 0; i < 9; i++) remove(path[i]);
    remove(dir);
}

/* ---- refusals ---- */

static void odd_row(dlp_node *row, dlp_source *d, dlp_dataset *ds, int what) {
    switch (what) {
    case 0: d->dataset = NULL; break;
    case 1: ds->fetch = NULL; break;
    case 2: ds->fields = NULL; break;
    case 3: ds->n_fields = 0; break;
    case 4: ds->n_fields = 17; break;
    case 5: ds->open_end = -1; break;
    case 6: ds->filter = 7; break;
    case 7: ds->writes_all_bytes = 2; break;
    case 8: row->fetch.in_flight = 1025; break;
    case 9: row->fetch.fetch = source_fetch; break;
    case 10: d->fetcher = 9; break;
    case 11: d->fetcher = DLP_FETCH_ASYNC; break; /* inline, and without functions */
    case 12: d->in_flight = 5; break;
    case 13: row->workers.num_workers = -7; break;
    case 14: row->workers.on_error = 3; break;
    case 15: row->workers.retries = 101; break;
    case 16: ds->n_items = UINT64_MAX; break;
    case 17: d->batch_pool = 3; break;
    default: row->workers.stack_bytes = UINT64_MAX; break;
    }
}

static void join_hostile__odd_descs__refused_by_the_call(void) {
    static const char *const fields[] = {"dataset",
                                         "fetch.fetch",
                                         "source.dataset.fields",
                                         "source.dataset.n_fields",
                                         "source.dataset.n_fields",
                                         "list.open_end",
                                         "fetch.filter",
                                         "fetch.writes_all_bytes",
                                         "fetch.in_flight",
                                         "fetch.fetch",
                                         "fetcher",
                                         "num_workers",
                                         "in_flight",
                                         "num_workers",
                                         "on_error",
                                         "retries",
                                         "source.dataset.n_items",
                                         "batch_pool",
                                         "stack_bytes"};
    for (int k = 0; k < (int)(sizeof fields / sizeof *fields); k++) {
        dlp_source fetch;
        dlp_dataset ds[2];
        rig_table t = {.n = 0};
        dlp_error e;
        dlp_pipe *p;
        dlp_node *row;
        setup s;
        setup_zip(&s, 2, 50);
        table_list(&t, &(dlp_sampler_desc){.order = 0});
        fetch_desc(&s, 0, &ds[0], &fetch);
        table_fetch(&t, &fetch, 0);
        fetch_desc(&s, 1, &ds[1], &fetch);
        row = table_fetch(&t, &fetch, 0);
        odd_row(row, &t.sources[2], &ds[1], k);
        CHECK(table_pipe(&t, &p, NULL, &e) == DLP_ERR_ARG);
        CHECK(strcmp(e.field, fields[k]) == 0);
        CHECK(strcmp(e.stage, "labels") == 0);
        if (strcmp(e.field, fields[k]) != 0) printf("%d: %s: %s\n", k, e.field, e.message);
        CHECK(dlp_nodes_plan(t.nodes, t.n, NULL, &(dlp_plan){.n_lines = 0}, NULL) == DLP_ERR_ARG);
        CHECK(dlp_pipe_open(&p, t.nodes, t.n, NULL, NULL) == DLP_ERR_ARG);
    }
}

/* More items, or fields, than there may be: of all together. */
static void join_hostile__too_much_together__refused(void) {
    static const uint64_t items[2] = {1, 2};
    dlp_plan plan;
    setup s;
    dlp_pipe *p;
    setup_mix(&s, 2, items, NULL);
    s.of[0].n_items = s.of[1].n_items = (UINT64_C(1) << 47) + 1;
    s.shuffled = 1;
    p = setup_open(&s);
    CHECK(dlp_pipe_plan(p, &plan) == DLP_ERR_ARG);
    CHECK(strstr(dlp_pipe_error(p)->message, "at most 2^48 together with the datasets before") !=
          NULL);
    CHECK(dlp_pipe_start(p) == DLP_ERR_ARG);
    dlp_pipe_close(p);
    dlp_mix_close(s.mix);
}

int main(void) {
    join_hostile__odd_descs__refused_by_the_call();
    join_hostile__too_much_together__refused();
    join_hostile__found_in_cache__joined_bytes_untouched(); /* needs: cache */
    join_hostile__mix_of_fixed_fields_kept__rows_whole();   /* needs: cache */
    join_hostile__state_of_another_mix__refused();
    join_hostile__plan__all_that_is_asked_for();
    join_hostile__odd_codes_and_lengths__by_policy_and_named();
    join_hostile__files_joined__bytes_of_each();
    return test_end("join_hostile");
}
