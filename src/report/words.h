#pragma once
/* tests: system/report/texts, system/report/pictures */
#include "api/stats.h"
#include "build/kinds.h"
#include "report/text.h"
#include "stages/fetch.h"
/* ---- words: how stages and their fields are called ---- */

/* True if stages get chunks in place of batches of rows: a lender splits them. */
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

/* Has each of its workers several items at once? */
static bool dlpi_stage_has_many(const dlp_stage_stats *g) { return g->in_flight > 1; }

/* The desc field that gives a stage more workers. */
static const char *dlpi_stage_field(const dlp_stage_stats *g) {
    const char *more = dlpi_words_ops(g)->words.more;
    return more != NULL ? more : "workers.num_workers";
}

/* What takes a stage out of the consumer. */
static const char *dlpi_stage_setting(const dlp_stats *s, const dlp_stage_stats *g) {
    const dlpi_stage_ops *ops = dlpi_words_ops(g);
    if (ops->sink != NULL)
        return dlpi_of_chunks(s) ? "transfer_inline = 0" : "transfer.threaded = 1";
    return ops->words.out != NULL ? ops->words.out : "workers.num_workers = 1";
}

/* What a unit of a stage's work is called. */
static const char *dlpi_stage_unit(const dlp_stats *s, const dlp_stage_stats *g) {
    if (g->cells > 0) return dlpi_words_ops(g)->expands ? "input" : "part";
    return dlpi_of_chunks(s) ? "chunk" : dlpi_stage_takes_batches(g) ? "batch" : "item";
}

/* What the reader of a push says of those who write; zeros in another stage. */
static dlpi_reader_words dlpi_stage_reader(const dlp_stage_stats *g) {
    dlpi_reader_words words = {0, 0, 0, 0, g->producers};
    if (g->kind == DLP_STAGE_FETCH) memcpy(&words, g->own, sizeof g->own);
    if (g->kind == DLP_STAGE_PUSH) memcpy(&words, g->own, sizeof g->own); /* needs: parts */
    return words;
}

/* True if workers hardly compute: they wait, each for one item, and could have many. */
static bool dlpi_stage_sleeps(const dlp_stats *s, const dlp_stage_stats *g) {
    return dlpi_words_ops(g)->words.many != NULL && g->workers > 0 && !dlpi_stage_has_many(g) &&
           !dlpi_of_chunks(s) && g->cpu_ns < g->busy_ns / 5;
}

/* True if one worker of several takes far longer for each item than the others. */
static bool dlpi_stage_lags(const dlp_stage_stats *g) {
    return g->others_ns > 0 && g->slowest_ns / 3 >= g->others_ns;
}

/* True if that worker makes as many items as the others all the same: batches go to the workers in
   turn, and the others wait for it. */
static bool dlpi_stage_turns(const dlp_stage_stats *g) {
    return dlpi_stage_lags(g) && (double)g->slowest_items * g->workers > 0.7 * (double)g->items;
}

/* True if one item took far longer than others. */
static bool dlpi_stage_jumps(const dlp_stage_stats *g) {
    return g->max_ns >= 1000000 && g->max_ns / 16 >= g->p50_ns;
}

/* What else to change if the stage can have one worker only; NULL if it can have more. */
static const char *dlpi_stage_slow(const dlp_stage_stats *g) {
    return dlpi_stage_reader(g).writers > 0
               ? "what is pushed has one reader; push fewer and larger items"
               : dlpi_words_ops(g)->words.slow;
}
