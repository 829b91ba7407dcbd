#pragma once
/* tests: system/report/texts, system/report/pictures */
#include "api/stats.h"
#include "build/kinds.h"
#include "report/lanes.h"
/* ---- words: text in a buffer, and how stages and their fields are called ---- */

/* Text built by several calls, cut like snprintf's. */
typedef struct dlpi_text {
    char *buf;
    size_t size, len;
} dlpi_text;

__attribute__((format(printf, 2, 3))) static void dlpi_text_add(dlpi_text *t, const char *format,
                                                                ...) {
    size_t room = t->len < t->size ? t->size - t->len : 0;
    va_list a;
    va_start(a, format);
    int n = vsnprintf(room > 0 ? t->buf + t->len : NULL, room, format, a);
    va_end(a);
    t->len += n > 0 ? (size_t)n : 0;
}

/* The length of the whole text, as snprintf tells it. */
static int dlpi_text_length(const dlpi_text *t) { return t->len < INT_MAX ? (int)t->len : INT_MAX; }

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
    if (g->cells > 0) return "part";
    return dlpi_of_chunks(s) ? "chunk" : dlpi_stage_takes_batches(g) ? "batch" : "item";
}

/* What the fetch stage's reader says of those who write; zeros in another stage. */
static dlpi_reader_words dlpi_stage_reader(const dlp_stage_stats *g) {
    dlpi_reader_words words = {0, 0, 0, 0};
    if (g->kind == DLP_STAGE_FETCH) memcpy(&words, g->own, sizeof words);
    return words;
}

/* What else to change if the stage can have one worker only; NULL if it can have more. */
static const char *dlpi_stage_slow(const dlp_stage_stats *g) {
    return dlpi_stage_reader(g).writers > 0
               ? "what is pushed has one reader; push fewer and larger items"
               : dlpi_words_ops(g)->words.slow;
}
