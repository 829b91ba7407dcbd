/* needs: parts pack split out */
/* What dlp_stats_explain says of made-up statistics, word for word: texts.golden has the texts.
   Arguments: none to compare; "write" to write that file again. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN "tests/system/report/texts.golden"

enum { SECOND = 1000000000, RUN = 10 }; /* RUN: seconds that a run takes */

/* A run of 10 s with batches of 32 rows, of which the consumer waits the given share. */
static void begin(dlp_stats *s, uint64_t batches, double wait) {
    const double ns = (double)RUN * SECOND;
    memset(s, 0, sizeof *s);
    s->elapsed_ns = (uint64_t)RUN * SECOND + 5000000;
    s->batches = batches;
    s->items = 32 * batches;
    s->bytes = 4096 * s->items;
    s->wait_ns = (uint64_t)(ns * wait);
    s->step_ns = (uint64_t)(ns * (1 - wait));
    if (batches > 0) s->step_p50_ns = s->step_p95_ns = s->step_ns / batches;
    s->batch_size = 32;
    s->prefetch_factor = 4;
    s->max_held = 1;
    s->slots = 5;
    s->cpus = 8;
    s->plan_bytes = 3 << 20;
}

/* A stage whose workers are busy for a share of the run, and compute for a share of that. */
static dlp_stage_stats *stage(dlp_stats *s, const char *name, int kind, int workers, double busy,
                              double cpu) {
    dlp_stage_stats *g = &s->stages[s->n_stages++];
    snprintf(g->name, sizeof g->name, "%s", name);
    g->kind = kind;
    g->workers = workers;
    g->unit_is_batch = kind == DLP_STAGE_BATCH || kind == DLP_STAGE_TRANSFER;
    g->items = g->unit_is_batch ? s->batches : s->items;
    g->busy_ns = (uint64_t)(busy * RUN * SECOND * (workers > 0 ? workers : 1));
    g->cpu_ns = (uint64_t)(cpu * (double)g->busy_ns);
    if (g->items > 0) g->p50_ns = g->p95_ns = g->p99_ns = g->busy_ns / g->items;
    s->n_workers += (uint32_t)workers;
    return g;
}

/* ---- an inline stage ---- */

static void inline_waits(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.9, 0.02);
}

static void inline_computes(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.9, 1);
}

/* A stage of which setting bytes to 0 takes a share of its time: most of it for the field "x", with
   a room of 4 KiB. spared: the part of it that writes_all_bytes = 1 would leave out. */
static void clears(dlp_stage_stats *g, double share, double spared, uint64_t cleared,
                   uint64_t used) {
    g->clears = (dlp_clear_stats){.ns = (uint64_t)(share * (double)g->busy_ns),
                                  .field = "x",
                                  .room = 4096,
                                  .cleared = cleared,
                                  .used = used};
    g->clears.spared_ns = (uint64_t)(spared * (double)g->clears.ns);
}

static void inline_clears(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.9, 1), 0.62, 1, 4096, 4096);
}

/* A batch is 450 ns of work. */
static void inline_tiny_batches(dlp_stats *s) {
    begin(s, 20000000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.9, 1);
}

static void inline_steps_are_slow(dlp_stats *s) {
    begin(s, 1000, 0.4);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.4, 0.1);
}

static void inline_on_one_core(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.9, 1);
    s->cpus = 1;
}

static void inline_kept_from_the_core(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.9, 0.3)->core_wait_ns = UINT64_C(6300000000);
    s->cpus = 4;
}

static void inline_beside_a_slow_stage(dlp_stats *s) {
    begin(s, 1000, 0.5);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.5, 0.1);
    stage(s, "batch", DLP_STAGE_BATCH, 1, 0.9, 0.1);
}

static void inline_beside_a_full_stage(dlp_stats *s) {
    begin(s, 1000, 0.1);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.1, 0.1);
    stage(s, "batch", DLP_STAGE_BATCH, 1, 0.995, 0.1);
}

static void inline_not_to_be_simulated(dlp_stats *s) {
    begin(s, 1000, 0.5);
    stage(s, "map", DLP_STAGE_MAP_ITEM, 0, 0.45, 0.1);
    stage(s, "batch", DLP_STAGE_BATCH, 0, 0.05, 0.1);
    s->stages[0].items /= 3;
    s->stages[0].busy_ns *= 2;
}

static void inline_transfer(dlp_stats *s) {
    begin(s, 1000, 0.6);
    stage(s, "fetch", DLP_STAGE_FETCH, 8, 0.2, 0.1);
    stage(s, "transfer", DLP_STAGE_TRANSFER, 0, 0.6, 0.1);
}

static void inline_transfer_of_chunks(dlp_stats *s) {
    inline_transfer(s);
    s->chunks.cpu_buffers = 4;
}

static void inline_batch_gives_nothing(dlp_stats *s) {
    begin(s, 1000, 0.3);
    stage(s, "transfer", DLP_STAGE_TRANSFER, 0, 0.12, 1);
    s->stages[0].busy_ns = UINT64_C(1200000000);
    stage(s, "map", DLP_STAGE_MAP_BATCH, 2, 0.9, 1);
    s->step_ns = UINT64_C(8000000000);
    s->wait_ns = UINT64_C(500000000);
    s->cpus = 2;
}

static void inline_reader(dlp_stats *s) {
    begin(s, 1000, 0.8);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.8, 0.1)->own[2] = 4;
}

static void inline_sampler(dlp_stats *s) {
    begin(s, 1000, 0.8);
    stage(s, "sampler", DLP_STAGE_SAMPLER, 0, 0.8, 1);
}

static void inline_alone_but_waits(dlp_stats *s) {
    begin(s, 1000, 0.7);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.4, 0.1);
}

/* ---- a stage with workers ---- */

static void workers_fetch(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.98, 0.1);
}

static void workers_one(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 1, 0.98, 0.1);
}

static void workers_clear(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.99, 1), 0.3, 1, 4096, 4096);
}

static void workers_clear_ragged(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.99, 1), 0.5, 0.8, 420, 400);
}

/* Bytes behind the lengths are written, so whole rooms are cleared. */
static void workers_clear_whole_rooms(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.99, 1), 0.5, 0.1, 3900, 400);
}

static void workers_clear_what_a_map_adds(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.99, 1), 0.5, 0, 4096, 4096);
}

static void batches_clear(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.3, 1);
    clears(stage(s, "batch", DLP_STAGE_BATCH, 2, 0.99, 1), 0.7, 0, 4096, 4096);
}

static void cores_clear(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 8, 0.99, 1), 0.4, 1, 4096, 4096);
}

/* Less than three tenths of the time of the limit. */
static void workers_clear_less(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.99, 1), 0.29, 1, 4096, 4096);
}

/* Less than a tenth: nothing is said of it. */
static void workers_clear_little(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.99, 1), 0.09, 1, 4096, 4096);
}

/* The consumer is the limit: nothing is said of it. */
static void consumer_while_workers_clear(dlp_stats *s) {
    begin(s, 4000000, 0.01);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.5, 1), 0.9, 1, 4096, 4096);
}

static void prefetch_clears(dlp_stats *s) {
    begin(s, 4000000, 0.9);
    clears(stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.5, 1), 0.9, 1, 4096, 4096);
}

static void workers_then_the_consumer(dlp_stats *s) {
    begin(s, 1000, 0.3);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.97, 0.1);
}

static void workers_then_another_stage(dlp_stats *s) {
    begin(s, 1000, 0.8);
    stage(s, "fetch", DLP_STAGE_FETCH, 4, 0.97, 0.1);
    stage(s, "batch", DLP_STAGE_BATCH, 1, 0.9, 0.1);
}

static void workers_then_the_cores(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.97, 1);
    s->cpus = 3;
    s->stages[0].cpu_ns = UINT64_C(18000000000);
}

static void workers_one_more_gives_nothing(dlp_stats *s) {
    begin(s, 1000, 0.8);
    stage(s, "fetch", DLP_STAGE_FETCH, 4, 0.97, 0.1);
    stage(s, "batch", DLP_STAGE_BATCH, 1, 0.965, 0.1);
}

static void workers_transfer(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "transfer", DLP_STAGE_TRANSFER, 1, 0.95, 0.1);
}

static void workers_reader(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 1, 0.95, 0.1)->own[2] = 2;
}

static void workers_tuned(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.95, 0.1);
    s->stages[0].workers_min = 1;
    s->stages[0].workers_max = 8;
    s->tunes = 7;
    s->tune[0] = (dlp_tune_note){1, 0, 9, 9, DLP_TUNE_BUSY};
    for (int i = 1; i < 5; i++)
        s->tune[2 + i] = (dlp_tune_note){(uint64_t)i * 100000000u, 0, i, i + 1, i};
    s->tune[4].stage = 3;
}

static void workers_tuned_many_notes(dlp_stats *s) {
    workers_tuned(s);
    s->tunes = 100;
    for (int i = 0; i < DLP_TUNE_NOTES; i++)
        s->tune[i] = (dlp_tune_note){(uint64_t)i * 1000u, 0, i, i + 1, 1 + i % 5};
}

static void workers_for_each_batch(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "batch", DLP_STAGE_BATCH, 4, 0.95, 0.1);
}

static void workers_for_each_item(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 128, 0.95, 0.01);
}

static void workers_of_more_items_than_there_are(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 200, 0.62, 0.01);
}

static void workers_of_an_unknown_kind(dlp_stats *s) {
    begin(s, 1000, 0.9);
    stage(s, "a stage with quite a long name", 99, 3, 0.95, 0.1);
}

static void in_flight_all_out(dlp_stats *s) {
    dlp_stage_stats *g;
    begin(s, 1000, 0.9);
    g = stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.99, 0.05);
    g->in_flight = 16;
    g->in_flight_ns = 15 * g->busy_ns;
    g->p50_ns = 4000000;
}

static void in_flight_few_out(dlp_stats *s) {
    in_flight_all_out(s);
    s->stages[0].workers = 1;
    s->stages[0].busy_ns /= 2;
    s->stages[0].in_flight_ns = 3 * s->stages[0].busy_ns;
}

/* ---- the consumer, the cores, prefetch_factor, nothing ---- */

static void consumer(dlp_stats *s) {
    begin(s, 1000, 0.02);
    stage(s, "fetch", DLP_STAGE_FETCH, 4, 0.4, 0.1);
}

static void training_step(dlp_stats *s) {
    begin(s, 1000, 0.001);
    stage(s, "fetch", DLP_STAGE_FETCH, 4, 0.4, 0.1);
}

static void consumer_alone(dlp_stats *s) {
    begin(s, 1000, 0.03);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.03, 0.1);
}

static void cores(dlp_stats *s) {
    begin(s, 1000, 0.85);
    stage(s, "fetch", DLP_STAGE_FETCH, 8, 0.9, 1);
}

static void cores_taken_by_others(dlp_stats *s) {
    begin(s, 1000, 0.85);
    stage(s, "fetch", DLP_STAGE_FETCH, 8, 0.9, 0.5);
    s->stages[0].core_wait_ns = s->stages[0].busy_ns / 2;
}

static void cores_without_workers(dlp_stats *s) {
    begin(s, 1000, 0.8);
    stage(s, "fetch", DLP_STAGE_FETCH, 0, 0.2, 1)->cpu_ns = UINT64_C(8000000000);
    s->cpus = 1;
}

static void prefetch(dlp_stats *s) {
    begin(s, 1000, 0.5);
    stage(s, "fetch", DLP_STAGE_FETCH, 8, 0.6, 0.1);
}

static void prefetch_of_few_items(dlp_stats *s) {
    begin(s, 1000, 0.5);
    stage(s, "fetch", DLP_STAGE_FETCH, 300, 0.3, 0.01);
    s->prefetch_factor = 0;
}

static void prefetch_and_skew(dlp_stats *s) {
    begin(s, 1000, 0.8);
    s->prefetch_factor = 1;
    stage(s, "fetch", DLP_STAGE_FETCH, 8, 0.5, 0.01);
    s->stages[0].p50_ns = 300000;
    s->stages[0].p95_ns = 350000;
    s->stages[0].p99_ns = UINT64_C(40000000);
}

/* A slow one in a hundred: whether p99 has it is chance. */
static void prefetch_and_a_slow_item(dlp_stats *s) {
    begin(s, 1000, 0.8);
    s->prefetch_factor = 1;
    stage(s, "fetch", DLP_STAGE_FETCH, 8, 0.5, 0.01);
    s->stages[0].max_ns = 20 * s->stages[0].p50_ns;
    s->stages[0].max_index = 4711;
}

/* One item in a hundred takes 30 ms, which p99 does not show. Twice as many batches in flight give
   next to nothing. */
static void prefetch_and_one_slow_item_in_a_hundred(dlp_stats *s) {
    dlp_stage_stats *g;
    begin(s, 6250, 0.998);
    s->items = 4 * s->batches;
    s->prefetch_factor = 2;
    g = stage(s, "fetch", DLP_STAGE_FETCH, 4, 0.41, 0.01);
    g->p50_ns = g->p95_ns = 360000;
    g->p99_ns = 2000000;
    g->max_ns = 30000000;
    g->max_index = 450;
}

/* The oldest item has been in work for 1,000 times as long as p99, and a little less. */
static void one_item_hangs(dlp_stats *s) {
    prefetch(s);
    s->stages[0].p99_ns = 3000000;
    s->longest = (dlp_worker_stats){
        .worker = 2, .tid = 11, .pid = 7, .current_index = 300, .current_age_ns = 3000000000};
}

static void one_item_is_slow(dlp_stats *s) {
    one_item_hangs(s);
    s->longest.current_age_ns -= 3000000;
}

/* Below a second the oldest item hangs if it has taken twice as long as the slowest one. */
static void one_item_hangs_for_a_while(dlp_stats *s) {
    prefetch(s);
    s->stages[0].p50_ns = 15000;
    s->stages[0].p99_ns = 30000;
    s->stages[0].max_ns = 100000000;
    s->longest = (dlp_worker_stats){
        .worker = 2, .tid = 11, .pid = 7, .current_index = 300, .current_age_ns = 200000000};
}

static void one_item_is_late(dlp_stats *s) {
    one_item_hangs_for_a_while(s);
    s->longest.current_age_ns -= 2;
}

static void one_item_is_young(dlp_stats *s) {
    one_item_hangs_for_a_while(s);
    s->stages[0].max_ns = 30000;
    s->longest.current_age_ns = 99999999;
}

static void prefetch_and_skewed_parts(dlp_stats *s) {
    dlp_stage_stats *g;
    begin(s, 1000, 0.5);
    g = stage(s, "parts", DLP_STAGE_PARTS, 4, 0.6, 0.1);
    g->cells = 8;
    g->p50_ns = 20000000;
    g->p99_ns = 190000000;
    s->part_wait_ns = UINT64_C(3000000000);
}

static void prefetch_of_chunks(dlp_stats *s) {
    begin(s, 1000, 0.5);
    stage(s, "load", DLP_STAGE_FETCH, 4, 0.6, 0.1);
    s->stages[0].items = 500;
    s->stages[0].p50_ns = 1000000;
    s->stages[0].p99_ns = 8000000;
    s->chunks.taken = 500;
    s->chunks.cpu_buffers = 6;
}

static void nothing_yet(dlp_stats *s) {
    memset(s, 0, sizeof *s);
    s->elapsed_ns = 12345678;
}

static void one_batch(dlp_stats *s) {
    begin(s, 1, 0.5);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.9, 0.1);
}

static void four_batches(dlp_stats *s) {
    begin(s, 4, 0.5);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.9, 0.1);
}

static void no_producer_lives(dlp_stats *s) {
    workers_fetch(s);
    s->stages[0].own[0] = 1;
    s->stages[0].own[1] = 3;
    s->stages[0].own[2] = 5;
}

static void no_producer_lives_the_last_is_known(dlp_stats *s) {
    no_producer_lives(s);
    s->batches = s->items = 0;
    s->stages[0].own[3] = 2;
}

static void no_producer_lives_and_no_batch_came(dlp_stats *s) {
    begin(s, 0, 0.9);
    stage(s, "sampler", DLP_STAGE_SAMPLER, 0, 0, 0);
    stage(s, "fetch", DLP_STAGE_FETCH, 1, 0, 0);
    s->stages[1].own[0] = 1;
    s->stages[1].own[2] = 5;
}

/* The reader of a push waits for its producers nearly all the time. */
static void producers(dlp_stats *s) {
    dlp_stage_stats *g;
    begin(s, 1000, 0.9);
    g = stage(s, "fetch", DLP_STAGE_FETCH, 1, 0.05, 0.9);
    g->starved_ns = UINT64_C(9400000000);
    g->own[2] = 4;
    g->producers = 3;
}

static void producers_nobody_has_come(dlp_stats *s) {
    producers(s);
    s->stages[0].producers = 0;
}

static void producers_then_another_stage(dlp_stats *s) {
    producers(s);
    s->stages[0].kind = DLP_STAGE_PUSH;
    stage(s, "pack", DLP_STAGE_PACK, 1, 0.79, 0.1);
}

static void producers_of_two_pushes(dlp_stats *s) {
    dlp_stage_stats *g;
    producers(s);
    g = stage(s, "other", DLP_STAGE_PUSH, 1, 0.05, 0.9);
    g->starved_ns = UINT64_C(1000000000);
    g->own[2] = 4;
    g->producers = 7;
}

static void producers_inline_reader(dlp_stats *s) {
    producers(s);
    s->stages[0].workers = 0;
}

/* The trainer waits, as a second out has four of its batches, and does not take them. */
static void out_is_slow(dlp_stats *s) {
    dlp_stage_stats *g;
    begin(s, 1000, 0.9);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.2, 0.1);
    g = stage(s, "log", DLP_STAGE_OUT, 0, 0, 0);
    g->own[DLP_OUT_CAPACITY] = g->own[DLP_OUT_HELD] = g->ready = 2;
    g->own[DLP_OUT_FULL] = DLP_FULL_WAIT;
    g->unit_is_batch = 1;
    g->items = 995;
    s->slots = 7;
    s->in_flight = 0;
}

static void out_was_never_found(dlp_stats *s) {
    out_is_slow(s);
    s->batches = 6;
    s->items = 6 * 32;
    s->stages[1].items = s->stages[1].ready = s->stages[1].own[DLP_OUT_HELD] = 0;
}

static void out_one_of_two(dlp_stats *s) {
    dlp_stage_stats *g;
    out_is_slow(s);
    g = &s->stages[s->n_stages++];
    *g = s->stages[1];
    snprintf(g->name, sizeof g->name, "%s", "view");
    g->items = 993;
}

static void out_first_of_two(dlp_stats *s) {
    out_one_of_two(s);
    s->stages[1].items = 991;
}

/* It takes all at once, or the pipe does not wait for it: then something else is the limit. */
static void out_keeps_up(dlp_stats *s) {
    out_is_slow(s);
    s->stages[1].items = 1000;
    s->in_flight = 4;
    s->ready = 0;
}

static void out_misses(dlp_stats *s) {
    out_is_slow(s);
    s->stages[1].own[DLP_OUT_FULL] = DLP_FULL_KEEP_NEWEST;
}

/* One worker of four is slow. */
static void worker_slow_in_turn(dlp_stats *s) {
    dlp_stage_stats *g;
    begin(s, 1000, 0.9);
    g = stage(s, "fetch", DLP_STAGE_FETCH, 4, 0.33, 0.01);
    g->slowest = 2;
    g->slowest_ns = 19000000;
    g->others_ns = 2000000;
    g->slowest_items = g->items / 4;
}

static void worker_slow(dlp_stats *s) {
    worker_slow_in_turn(s);
    s->stages[0].slowest_items = 500;
}

static void worker_slow_in_turn_but_steps_are_slower(dlp_stats *s) {
    worker_slow_in_turn(s);
    s->wait_ns /= 100;
    s->step_ns = UINT64_C(9900000000);
}

static void worker_hardly_slower(dlp_stats *s) {
    worker_slow_in_turn(s);
    s->stages[0].slowest_ns = 5000000;
}

static void workers_wait_for_one_request_each(dlp_stats *s) {
    workers_fetch(s);
    s->stages[0].in_flight = 1;
    s->stages[0].cpu_ns /= 10;
}

/* ---- what holds whatever the limit is ---- */

static void longest(dlp_stats *s) {
    workers_fetch(s);
    s->longest = (dlp_worker_stats){.stage = 0,
                                    .worker = 1,
                                    .tid = 77,
                                    .pid = 76,
                                    .current_index = 123456,
                                    .current_age_ns = 150000000};
}

static void longest_of_a_stage_that_is_not_there(dlp_stats *s) {
    longest(s);
    s->longest.stage = 9;
    s->longest.current_age_ns = UINT64_C(2500000000);
    s->stages[0].p99_ns = 0;
    s->stages[0].unit_is_batch = 1;
}

static void longest_but_short(dlp_stats *s) {
    longest(s);
    s->stages[0].p99_ns = 100000000;
}

static dlp_stage_stats *inputs(dlp_stats *s, int kind) {
    dlp_stage_stats *g;
    workers_fetch(s);
    g = stage(s, "made", kind, 1, 0.1, 0.1);
    g->inputs = 4000;
    g->inputs_items = 10000;
    g->inputs_empty = 100;
    g->cells = 6;
    g->cell_bytes = 6 << 20;
    return g;
}

static void inputs_counted(dlp_stats *s) { inputs(s, DLP_STAGE_EXPAND); }

static void inputs_windows(dlp_stats *s) { inputs(s, DLP_STAGE_EXPAND)->window = 512; }

static void inputs_filtered(dlp_stats *s) {
    dlp_stage_stats *g = inputs(s, DLP_STAGE_FOUND);
    g->inputs_items = 1000;
    g->inputs_empty = 3000;
}

static void inputs_packed(dlp_stats *s) {
    dlp_stage_stats *g = inputs(s, DLP_STAGE_PACK);
    g->own[DLP_PACK_ROWS] = 100;
    g->own[DLP_PACK_TOKENS] = 99000;
    g->own[DLP_PACK_PADDING] = 3400;
    g->own[DLP_PACK_SEGMENTS] = 730;
    g->window = 256;
}

static void inputs_packed_full(dlp_stats *s) {
    inputs_packed(s);
    s->stages[1].own[DLP_PACK_PADDING] = 10;
}

static void streams(dlp_stats *s) {
    inputs(s, DLP_STAGE_FOUND)->spread = (dlp_stream_stats){.streams = 4,
                                                            .counted = 3,
                                                            .all = 8,
                                                            .drops = 1,
                                                            .items = 3000,
                                                            .least = 900,
                                                            .most = 1100,
                                                            .left_out = 300,
                                                            .weights = 100,
                                                            .weights_least = 5,
                                                            .weights_most = 30};
}

static void streams_alike(dlp_stats *s) {
    streams(s);
    s->stages[1].spread.most = 900;
    s->stages[1].spread.left_out = 0;
    s->stages[1].spread.drops = 0;
}

static void streams_of_all_ranks(dlp_stats *s) {
    streams(s);
    s->stages[1].kind = DLP_STAGE_PACK;
    s->stages[1].spread.drops = 2;
    s->stages[1].spread.all = 1;
}

static void streams_one(dlp_stats *s) {
    streams(s);
    s->stages[1].spread.streams = s->stages[1].spread.counted = 1;
    s->stages[1].spread.left_out = 0;
}

static void parts_queue_empty(dlp_stats *s) {
    dlp_stage_stats *g;
    workers_fetch(s);
    g = stage(s, "parts", DLP_STAGE_PARTS, 2, 0.9, 0.1);
    g->items = 200;
    g->p50_ns = 90000000;
    g->cells = 4;
    s->part_wait_ns = UINT64_C(4000000000);
}

static void parts_inline(dlp_stats *s) {
    dlp_stage_stats *g;
    begin(s, 1000, 0.8);
    g = stage(s, "parts", DLP_STAGE_PARTS, 0, 0.7, 0.1);
    g->items = 200;
    g->cells = 4;
    s->part_wait_ns = UINT64_C(6900000000);
}

static void short_batches(dlp_stats *s) {
    begin(s, 1000000, 0.7);
    stage(s, "fetch", DLP_STAGE_FETCH, 2, 0.1, 1);
}

/* One worker, whose work is more than half of what a batch takes. It is no stage of its own. */
static void short_batches_one_worker(dlp_stats *s) {
    begin(s, 500000, 0.9);
    stage(s, "sampler", DLP_STAGE_SAMPLER, 0, 0, 0);
    stage(s, "fetch", DLP_STAGE_FETCH, 1, 0.6, 1);
}

static void short_batches_few_cores(dlp_stats *s) {
    short_batches(s);
    s->cpus = 3;
}

static void idle_items(dlp_stats *s) {
    begin(s, 1000, 0.5);
    stage(s, "fetch", DLP_STAGE_FETCH, 160, 0.4, 0.01);
}

static void idle_batches(dlp_stats *s) {
    begin(s, 1000, 0.5);
    stage(s, "batch", DLP_STAGE_BATCH, 9, 0.2, 0.01);
}

static void errors(dlp_stats *s) {
    workers_fetch(s);
    s->stages[0].retried = 12;
    s->stages[0].replaced = 3;
    s->first_skip.code = DLP_ERR_CALLBACK;
    snprintf(s->first_skip.stage, sizeof s->first_skip.stage, "fetch");
    snprintf(s->first_skip.message, sizeof s->first_skip.message, "the file is not there");
}

/* No row is valid: what limits the rate is no question. */
static void all_left_out(dlp_stats *s) {
    errors(s);
    s->stages[0].left_out = s->items;
}

static void deaths(dlp_stats *s) {
    errors(s);
    s->stages[0].retried = s->stages[0].replaced = 0;
    s->stages[0].restarts = 2;
    s->stages[0].died_by = 9;
}

static void cache_of_all(dlp_stats *s) {
    workers_fetch(s);
    s->cache_hits = 900;
    s->cache_misses = 100;
    s->cache_bytes = 5 << 20;
    s->cache_capacity = s->cache_all_bytes = 8 << 20;
}

static void cache_of_some(dlp_stats *s) {
    cache_of_all(s);
    s->cache_hits = s->cache_misses = 0;
    s->cache_all_bytes = UINT64_C(123456789012);
}

static void cache_of_some_hits(dlp_stats *s) {
    cache_of_some(s);
    s->cache_hits = 300;
    s->cache_misses = 700;
    s->cache_all_bytes = 9 << 20;
}

static void cache_of_an_eighth(dlp_stats *s) {
    cache_of_some_hits(s);
    s->cache_all_bytes = 80 << 20;
}

static void cache_of_some_inline(dlp_stats *s) {
    cache_of_some_hits(s);
    s->stages[0].workers = 0;
    s->stages[0].busy_ns /= 2;
}

static void cache_of_some_in_flight(dlp_stats *s) {
    in_flight_all_out(s);
    s->cache_hits = 300;
    s->cache_misses = 700;
    s->cache_bytes = s->cache_capacity = 5 << 20;
    s->cache_all_bytes = 10 << 20;
}

static void chunks(dlp_stats *s) {
    consumer(s);
    s->chunks = (dlp_chunk_stats){.taken = 40,
                                  .loadable = 7,
                                  .cpu_buffers = 6,
                                  .cpu_free = 1,
                                  .cpu_loading = 2,
                                  .cpu_filled = 3,
                                  .in_use = 1};
}

static void chunks_on_a_device(dlp_stats *s) {
    chunks(s);
    s->chunks.device_buffers = 3;
    s->chunks.device_free = 2;
    s->chunks.device_copying = 1;
    s->chunks.preload_auto = 1;
    s->chunks.seam_buffers = 4;
    s->chunks.seams = 1;
    s->chunks.seam_bytes = 77000;
}

static void chunks_preloaded(dlp_stats *s) {
    chunks(s);
    s->chunks.preload = 1;
    s->chunks.seam_buffers = 4;
    s->chunks.seams = 12;
}

static void chunks_preloaded_by_choice(dlp_stats *s) {
    chunks(s);
    s->chunks.preload = s->chunks.preload_auto = 1;
}

static void epoch_borders(dlp_stats *s) {
    workers_fetch(s);
    s->epoch_borders = 4;
    s->epoch_wait_ns = UINT64_C(200000000);
}

static void no_plan(dlp_stats *s) {
    workers_fetch(s);
    s->plan_bytes = 0;
}

#define CASE(name) \
    { #name, name }
static const struct {
    const char *name;
    void (*make)(dlp_stats *);
} cases[] = {
    CASE(inline_waits),
    CASE(inline_computes),
    CASE(inline_clears),
    CASE(inline_tiny_batches),
    CASE(inline_steps_are_slow),
    CASE(inline_on_one_core),
    CASE(inline_kept_from_the_core),
    CASE(inline_beside_a_slow_stage),
    CASE(inline_beside_a_full_stage),
    CASE(inline_not_to_be_simulated),
    CASE(inline_transfer),
    CASE(inline_transfer_of_chunks),
    CASE(inline_batch_gives_nothing),
    CASE(inline_reader),
    CASE(inline_sampler),
    CASE(inline_alone_but_waits),
    CASE(workers_fetch),
    CASE(workers_one),
    CASE(workers_clear),
    CASE(workers_clear_ragged),
    CASE(workers_clear_whole_rooms),
    CASE(workers_clear_what_a_map_adds),
    CASE(batches_clear),
    CASE(cores_clear),
    CASE(workers_clear_less),
    CASE(workers_clear_little),
    CASE(consumer_while_workers_clear),
    CASE(prefetch_clears),
    CASE(workers_then_the_consumer),
    CASE(workers_then_another_stage),
    CASE(workers_then_the_cores),
    CASE(workers_one_more_gives_nothing),
    CASE(workers_transfer),
    CASE(workers_reader),
    CASE(workers_tuned),
    CASE(workers_tuned_many_notes),
    CASE(workers_for_each_batch),
    CASE(workers_for_each_item),
    CASE(workers_of_more_items_than_there_are),
    CASE(workers_of_an_unknown_kind),
    CASE(in_flight_all_out),
    CASE(in_flight_few_out),
    CASE(consumer),
    CASE(training_step),
    CASE(consumer_alone),
    CASE(cores),
    CASE(cores_taken_by_others),
    CASE(cores_without_workers),
    CASE(prefetch),
    CASE(prefetch_of_few_items),
    CASE(prefetch_and_skew),
    CASE(prefetch_and_a_slow_item),
    CASE(prefetch_and_one_slow_item_in_a_hundred),
    CASE(one_item_hangs),
    CASE(one_item_is_slow),
    CASE(one_item_hangs_for_a_while),
    CASE(one_item_is_late),
    CASE(one_item_is_young),
    CASE(prefetch_and_skewed_parts),
    CASE(prefetch_of_chunks),
    CASE(nothing_yet),
    CASE(one_batch),
    CASE(four_batches),
    CASE(no_producer_lives),
    CASE(no_producer_lives_the_last_is_known),
    CASE(no_producer_lives_and_no_batch_came),
    CASE(producers),
    CASE(producers_of_two_pushes),
    CASE(producers_nobody_has_come),
    CASE(producers_then_another_stage),
    CASE(producers_inline_reader),
    CASE(out_is_slow),
    CASE(out_was_never_found),
    CASE(out_one_of_two),
    CASE(out_first_of_two),
    CASE(out_keeps_up),
    CASE(out_misses),
    CASE(worker_slow_in_turn),
    CASE(worker_slow),
    CASE(worker_slow_in_turn_but_steps_are_slower),
    CASE(worker_hardly_slower),
    CASE(workers_wait_for_one_request_each),
    CASE(longest),
    CASE(longest_of_a_stage_that_is_not_there),
    CASE(longest_but_short),
    CASE(inputs_counted),
    CASE(inputs_windows),
    CASE(inputs_filtered),
    CASE(inputs_packed),
    CASE(inputs_packed_full),
    CASE(streams),
    CASE(streams_alike),
    CASE(streams_of_all_ranks),
    CASE(streams_one),
    CASE(parts_queue_empty),
    CASE(parts_inline),
    CASE(short_batches),
    CASE(short_batches_one_worker),
    CASE(short_batches_few_cores),
    CASE(idle_items),
    CASE(idle_batches),
    CASE(errors),
    CASE(all_left_out),
    CASE(deaths),
    CASE(cache_of_all),
    CASE(cache_of_some),
    CASE(cache_of_some_hits),
    CASE(cache_of_an_eighth),
    CASE(cache_of_some_inline),
    CASE(cache_of_some_in_flight),
    CASE(chunks),
    CASE(chunks_on_a_device),
    CASE(chunks_preloaded),
    CASE(chunks_preloaded_by_choice),
    CASE(epoch_borders),
    CASE(no_plan),
};
enum { N_CASES = sizeof cases / sizeof *cases };

static char golden[1 << 17];

static const char *text_of(int i) {
    static char text[8192];
    static dlp_stats s;
    cases[i].make(&s);
    CHECK(dlp_stats_explain(&s, text, sizeof text) == (int)strlen(text));
    return text;
}

/* What the file says of a case: up to the next line that begins with "== ". */
static const char *golden_of(const char *name) {
    static char text[8192];
    char head[128];
    const char *at, *end;
    snprintf(head, sizeof head, "== %s\n", name);
    if ((at = strstr(golden, head)) == NULL) return "";
    at += strlen(head);
    end = strstr(at, "== ");
    snprintf(text, sizeof text, "%.*s", (int)(end ? (size_t)(end - at) : strlen(at)), at);
    return text;
}

static void explain__each_shape__the_golden_text(void) {
    FILE *f = fopen(GOLDEN, "r");
    CHECK(f != NULL);
    if (f == NULL) return;
    CHECK(fread(golden, 1, sizeof golden - 1, f) > 1000);
    fclose(f);
    for (int i = 0; i < N_CASES; i++) {
        const char *got = text_of(i), *want = golden_of(cases[i].name);
        CHECK(strcmp(got, want) == 0);
        if (strcmp(got, want) != 0) printf("%s:\n%s-- and should be\n%s", cases[i].name, got, want);
        CHECK(strpbrk(got, "{}") == NULL);
    }
}

/* Of rows without a token no part is padding, so a larger window changes nothing. */
static void explain__packed_rows_without_tokens__no_advice(void) {
    static char text[8192];
    static dlp_stats s;
    inputs_packed(&s);
    s.stages[1].own[DLP_PACK_TOKENS] = s.stages[1].own[DLP_PACK_PADDING] = 0;
    CHECK(dlp_stats_explain(&s, text, sizeof text) > 0);
    CHECK(strstr(text, "Packing: 0 % of the tokens are padding, 7.30 segments a row.\n") != NULL);
}

static int write_golden(void) {
    FILE *f = fopen(GOLDEN, "w");
    if (f == NULL) return 1;
    for (int i = 0; i < N_CASES; i++) fprintf(f, "== %s\n%s", cases[i].name, text_of(i));
    return fclose(f) != 0 || test_failures;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "write") == 0) return write_golden();
    explain__each_shape__the_golden_text();
    explain__packed_rows_without_tokens__no_advice();
    return test_end("texts");
}
