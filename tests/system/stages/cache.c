/* needs: cache */
/* The cache behind fetch: what it keeps, what it does not, and that no byte of a batch depends on
   it. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/cache_rig.h"

static void cache__all_fit__each_item_is_fetched_once(void) {
    for (int kind = 0; kind < 16; kind++) {
        cache_case c;
        cache_run with, without;
        cache_case_init(&c, 96, 8);
        c.workers = kind & 1 ? 3 : 0;
        c.dispatch = kind >> 1 & 1;
        c.ragged = kind >> 2 & 1;
        c.collate = kind >> 3 & 1;
        c.maps = 1;
        c.epochs = 3;
        without = cache_go(&c);
        c.bytes = 1 << 20;
        with = cache_go(&c);
        CHECK(with.rc == DLP_END && with.rows == 3 * 96 && with.digest == without.digest);
        /* an item of the next epoch may be asked for while its fetch still runs */
        CHECK(with.calls >= 96 && with.calls <= (c.workers ? 96 + 8 * 2 : 96));
        CHECK(without.calls == 3 * 96);
        CHECK(with.s.cache_misses == with.calls && with.s.cache_hits == 3 * 96 - with.calls);
        CHECK(with.s.cache_bytes == with.s.cache_capacity && with.s.cache_capacity > 0);
        CHECK(with.s.cache_all_bytes == with.s.cache_capacity);
        CHECK(without.s.cache_capacity == 0 && without.s.cache_misses == 0);
    }
}

static void cache__part_fits__that_share_hits(void) {
    for (int kind = 0; kind < 4; kind++) {
        cache_case c;
        cache_run with, without;
        uint64_t cell = 8 + 24 + 8, slack;
        cache_case_init(&c, 90, 8);
        c.workers = kind & 1 ? 3 : 0;
        c.shuffle = kind >> 1;
        c.epochs = 3;
        without = cache_go(&c);
        c.bytes = 30 * cell + 7;
        with = cache_go(&c);
        slack = c.workers ? 16 : 0;
        CHECK(with.rc == DLP_END && with.digest == without.digest);
        CHECK(with.s.cache_capacity == 30 * cell && with.s.cache_bytes == 30 * cell);
        CHECK(with.s.cache_all_bytes == 90 * cell);
        CHECK(with.s.cache_hits <= 60 && with.s.cache_hits + slack >= 60);
        CHECK(with.s.cache_hits + with.s.cache_misses == 270 && with.calls == with.s.cache_misses);
        CHECK(strstr(with.words, "room for 33 % of the items; cache.bytes = 3600 would") != NULL);
    }
}

/* Workers that ask for the same few items at once: none gets half of one. */
static void cache__few_cells_many_workers__bytes_are_whole(void) {
    cache_case c;
    cache_run with, without;
    cache_case_init(&c, 40, 16);
    c.order = DLP_ORDER_REPLACEMENT;
    c.samples = 4000;
    c.workers = 4;
    c.prefetch = 4;
    without = cache_go(&c);
    for (uint64_t cells = 1; cells <= 40; cells += 13) {
        c.bytes = cells * 40;
        with = cache_go(&c);
        CHECK(with.rc == DLP_END && with.digest == without.digest);
        CHECK(with.s.cache_hits > 0 && with.s.cache_bytes == cells * 40);
    }
}

static void cache__items_fail__neither_kept_nor_under_another_index(void) {
    for (int kind = 0; kind < 12; kind++) {
        cache_case c;
        cache_run with, without;
        cache_case_init(&c, 90, 8);
        c.workers = kind & 1 ? 3 : 0;
        c.fail_every = 9;
        c.skip = kind >> 1 & 1;
        c.on_error = kind < 4 ? DLP_ON_ERROR_DROP : DLP_ON_ERROR_REPLACE;
        c.retries = kind >= 8 ? 2 : 0;
        c.maps = 1;
        c.epochs = 3;
        without = cache_go(&c);
        c.bytes = 1 << 20;
        with = cache_go(&c);
        CHECK(with.rc == DLP_END && with.digest == without.digest);
        CHECK(with.s.cache_bytes == 80 * 40); /* and their 10 cells are empty */
        CHECK(with.bad_calls == without.bad_calls && with.bad_calls >= 30);
    }
}

/* A fetch that succeeds at the second attempt only: then it is kept. */
static void cache__retried_item__kept_once_it_succeeds(void) {
    for (int workers = 0; workers <= 2; workers += 2) {
        cache_case c;
        cache_run with;
        cache_case_init(&c, 64, 8);
        c.workers = workers;
        c.flaky = 1;
        c.retries = 1;
        c.epochs = 2;
        c.bytes = 1 << 20;
        with = cache_go(&c);
        CHECK(with.rc == DLP_END && with.rows == 128 && with.s.cache_bytes == 64 * 40);
        CHECK(with.calls >= 128 && with.calls <= (workers ? 128 + 32 : 128));
    }
}

static void cache__fetch_draws__nothing_is_kept(void) {
    cache_case c;
    cache_run with, without;
    cache_case_init(&c, 64, 8);
    c.draws = 1;
    c.epochs = 3;
    without = cache_go(&c);
    c.bytes = 1 << 20;
    with = cache_go(&c);
    CHECK(with.digest == without.digest && with.s.cache_hits == 0 && with.s.cache_bytes == 0);
    CHECK(with.calls == 192 && with.s.cache_misses == 192);
    c.draw_every = 4; /* some of them do */
    with = cache_go(&c);
    c.bytes = 0;
    without = cache_go(&c);
    CHECK(with.digest == without.digest && with.s.cache_hits == 2 * 48);
}

/* What is kept is what a map in front of the cache made of it. */
static void cache__behind_a_map__each_item_is_decoded_once(void) {
    for (int kind = 0; kind < 16; kind++) {
        cache_case c;
        cache_run with, without;
        cache_case_init(&c, 96, 8);
        c.decodes = 1;
        c.workers = kind & 1 ? 3 : 0;
        c.maps = kind >> 1 & 1;
        c.ragged = kind >> 2 & 1;
        c.collate = kind >> 3;
        c.epochs = 3;
        without = cache_go(&c);
        CHECK(without.rc == DLP_END && c.count->decoded == 3 * 96);
        c.bytes = 1 << 20;
        with = cache_go(&c);
        CHECK(with.rc == DLP_END && with.digest == without.digest);
        CHECK(with.calls <= 96 + 16 && c.count->decoded == with.calls);
        CHECK(kind & 1 || with.calls == 96);
        CHECK(with.s.cache_hits + with.s.cache_misses == 3 * 96);
        c.decodes = 2;
        with = cache_go(&c);
        c.bytes = 0;
        without = cache_go(&c);
        CHECK(with.digest == without.digest && with.s.cache_hits == 0 && with.s.cache_bytes == 0);
    }
}

static void cache__behind_a_map_that_fails__neither_kept_nor_under_another_index(void) {
    for (int kind = 0; kind < 8; kind++) {
        cache_case c;
        cache_run with, without;
        cache_case_init(&c, 96, 8);
        c.decodes = 1;
        c.workers = kind & 1 ? 3 : 0;
        c.on_error = kind & 2 ? DLP_ON_ERROR_REPLACE : DLP_ON_ERROR_DROP;
        c.draws = kind >> 2;
        c.draw_every = 2;
        c.fail_every = 8;
        c.epochs = 3;
        c.maps = 1;
        without = cache_go(&c);
        c.bytes = 1 << 20;
        with = cache_go(&c);
        CHECK(with.rc == DLP_END && with.digest == without.digest);
        CHECK(with.s.cache_hits > 0 && with.calls < without.calls);
    }
}

static void cache__resumed__cold_and_the_same_bytes(void) {
    for (uint64_t at = 1; at < 22; at += 5) {
        cache_case c;
        cache_run whole, head, tail;
        cache_case_init(&c, 90, 8);
        c.epochs = 2;
        c.maps = 1;
        c.workers = 2;
        whole = cache_go(&c);
        c.bytes = 2000;
        c.stop_after = at;
        head = cache_go(&c);
        c.stop_after = 0;
        c.resume = &head.state;
        c.digest = head.digest;
        tail = cache_go(&c);
        CHECK(head.rc == DLP_OK && tail.rc == DLP_END && tail.digest == whole.digest);
        CHECK(head.rows + tail.rows == whole.rows);
        c.bytes = 0; /* a cache is no part of the order: with or without */
        c.digest = head.digest;
        tail = cache_go(&c);
        CHECK(tail.digest == whole.digest);
    }
}

static void cache__wrong_descs__refused_by_name(void) {
    cache_case c;
    dlp_pipe *p;
    dlp_plan plan;
    dlp_error err;
    dlp_loader_desc desc;
    rig_table t = {.n = 0};
    int found = 0;
    cache_case_init(&c, 90, 8);
    c.bytes = 39;
    CHECK(cache_try(&c, &p, &err) == DLP_ERR_ARG && strcmp(err.field, "cache.bytes") == 0);
    CHECK(strstr(err.message, "40 (one item)") != NULL);
    cache_descs(&c);
    table_list(&t, &c.sampler);
    table_fetch(&t, &c.fetch, 0);
    table_row(&t, c.map);
    table_row(&t, (dlp_node){.verb = DLP_CACHE});
    CHECK(table_pipe(&t, &p, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "cache.bytes") == 0);
    t.nodes[t.n - 1].cache.bytes = 4096;
    table_row(&t, t.nodes[t.n - 1])->name = "again"; /* one is all that a pipe has */
    table_row(&t, c.batch);
    CHECK(dlp_pipe_open(&p, t.nodes, t.n, NULL, &err) == DLP_ERR_GRAPH);
    memset(&desc, 0, sizeof desc);
    desc.dataset = c.dataset;
    desc.batch_size = 8;
    desc.cache.bytes = 400;
    desc.pipe.limit_bytes = UINT64_C(1) << 40;
    CHECK(dlp_loader_open(&p, &desc, &err) == DLP_OK);
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
    for (uint32_t i = 0; i < plan.n_lines; i++)
        found |= strcmp(plan.lines[i].what, "cache cells") == 0 && plan.lines[i].count == 10 &&
                 plan.lines[i].bytes_each == 40;
    CHECK(found && dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    cache__all_fit__each_item_is_fetched_once();
    cache__part_fits__that_share_hits();
    cache__few_cells_many_workers__bytes_are_whole();
    cache__items_fail__neither_kept_nor_under_another_index();
    cache__retried_item__kept_once_it_succeeds();
    cache__fetch_draws__nothing_is_kept();
    cache__behind_a_map__each_item_is_decoded_once();
    cache__behind_a_map_that_fails__neither_kept_nor_under_another_index();
    cache__resumed__cold_and_the_same_bytes();
    cache__wrong_descs__refused_by_name();
    return test_end("cache");
}
