#pragma once
/* tests: system/report/texts, system/report/pictures */
#include "api/stats.h"
#include "build/kinds.h"
#include "report/text.h"
#include "stages/fetch.h"
/* ---- the names of stages and of their settings in texts ---- */

/* True if stages get chunks in place of batches of rows, because a stage splits them later. */
static bool dlpi_of_chunks(const dlp_stats *s) {
    return s->chunks.cpu_buffers > 0 || s->chunks.taken > 0;
}

static const dlpi_stage_ops *dlpi_words_ops(const dlp_stage_stats *g) {
    static const dlpi_stage_ops unknown = {.unit = DLPI_UNIT_ROWS};
    const dlpi_stage_ops *ops = dlpi_kind_ops(g->kind);
    return ops != NULL ? ops : &unknown;
}

static bool dlpi_stage_takes_batches(const dlp_stage_stats *g) {
    return g->unit_is_batch || dlpi_words_ops(g)->unit == DLPI_UNIT_BATCHES;
}

/* True if each worker of the stage has several items at once. */
static bool dlpi_stage_has_many(const dlp_stage_stats *g) { return g->in_flight > 1; }

/* Return what the reader of a push says of its producers; zeros for another stage. */
static dlpi_reader_words dlpi_stage_reader(const dlp_stage_stats *g) {
    dlpi_reader_words words = {0, 0, 0, 0, g->producers};
    if (g->kind == DLP_STAGE_FETCH || g->kind == DLP_STAGE_PUSH)
        memcpy(&words, g->own, sizeof g->own);
    return words;
}

/* True if the callbacks of items hardly compute: each waits for its item, and many could wait at
   once. */
static bool dlpi_stage_sleeps(const dlp_stats *s, const dlp_stage_stats *g) {
    return dlpi_words_ops(g)->words.many != NULL && (g->workers > 0 || g->cpu_ns > 0) &&
           !dlpi_stage_has_many(g) && !dlpi_of_chunks(s) && g->cpu_ns < g->busy_ns / 5;
}

/* True if one worker of several takes far longer for each item than the others. */
static bool dlpi_stage_lags(const dlp_stage_stats *g) {
    return g->others_ns > 0 && g->slowest_ns / 3 >= g->others_ns;
}

/* True if one worker is far slower (dlpi_stage_lags) and still makes as many items as each of the
   others. Then batches go to the workers in turn, and the others wait for it. */
static bool dlpi_stage_turns(const dlp_stage_stats *g) {
    return dlpi_stage_lags(g) && (double)g->slowest_items * g->workers > 0.7 * (double)g->items;
}

/* Return the advice for a stage that can have one worker only; NULL if it can have more. */
static const char *dlpi_stage_slow(const dlp_stage_stats *g) {
    return dlpi_stage_reader(g).writers > 0
               ? "what is pushed has one reader; push fewer and larger items"
               : dlpi_words_ops(g)->words.slow;
}
