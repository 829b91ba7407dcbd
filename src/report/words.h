#pragma once
/* tests: system/report/pictures, system/report/pipe_stats */
#include "api/stats.h"
#include "build/kinds.h"
#include "report/lanes.h"
/* ---- words: of kinds of stages, and of what batches are ---- */

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

/* What batches are to stages: batches of rows or, where a lender splits them, chunks. */
typedef struct dlpi_batch_words {
    const char *batch, *item;  /* a unit of a stage that takes batches, of one that takes rows */
    const char *prefetch;      /* what raises their number */
    const char *more, *beside; /* what hides uneven times */
    const char *sink_out;      /* what takes the sink out of the consumer */
    const char *memory;
    bool of_rows;
} dlpi_batch_words;

static const dlpi_batch_words *dlpi_batch_words_of(const dlp_stats *s) {
    static const dlpi_batch_words rows = {
        .batch = "batch",
        .item = "item",
        .prefetch = "prefetch_factor",
        .more = "more batches in flight",
        .beside = ", or unordered = 1",
        .sink_out = "transfer.threaded = 1",
        .memory = "Memory: %s are planned, with %u batch slots (prefetch_factor %u + "
                  "max_held %u).\n",
        .of_rows = true,
    };
    static const dlpi_batch_words chunks = {
        .batch = "chunk",
        .item = "chunk",
        .prefetch = "cpu_buffers, and so prefetch_factor",
        .more = "more chunks in flight",
        .beside = "",
        .sink_out = "transfer_inline = 0",
        .memory = "Memory: %s are planned, with records of %u chunks (prefetch_factor %u + "
                  "max_held %u).\n",
    };
    return s->chunks.cpu_buffers > 0 || s->chunks.taken > 0 ? &chunks : &rows;
}

/* How many of them the consumer has taken. */
static uint64_t dlpi_batches_taken(const dlp_stats *s) {
    return s->chunks.taken > 0 ? s->chunks.taken : s->batches;
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
    if (ops->sink != NULL) return dlpi_batch_words_of(s)->sink_out;
    return ops->words.out != NULL ? ops->words.out : "workers.num_workers = 1";
}

/* What a unit of a stage's work is called. */
static const char *dlpi_stage_unit(const dlp_stats *s, const dlp_stage_stats *g) {
    const dlpi_batch_words *words = dlpi_batch_words_of(s);
    if (g->cells > 0) return "part";
    return dlpi_stage_takes_batches(g) ? words->batch : words->item;
}

/* Where the chunks are: the queues of a pipe that splits. */
static void dlpi_explain_chunks(dlpi_text *t, const dlp_chunk_stats *c) {
    if (c->cpu_buffers == 0) return;
    dlpi_text_add(t,
                  "Chunks: %" PRIu64 " loadable in this epoch; %" PRIu64
                  " CPU chunk buffers: %" PRIu64 " free, %" PRIu64 " loading, %" PRIu64 " filled",
                  c->loadable, c->cpu_buffers, c->cpu_free, c->cpu_loading, c->cpu_filled);
    if (c->device_buffers > 0)
        dlpi_text_add(t,
                      "; %" PRIu64 " device chunk buffers: %" PRIu64 " free, %" PRIu64
                      " being copied, %" PRIu64 " filled",
                      c->device_buffers, c->device_free, c->device_copying, c->device_filled);
    dlpi_text_add(t, "; %" PRIu64 " in use.%s%s\n", c->in_use,
                  c->preload ? " Chunks are loaded once and stay." : "",
                  c->preload_auto == 0 ? ""
                  : c->preload         ? " DLP_PRELOAD_AUTO found room for all."
                                       : " DLP_PRELOAD_AUTO found no room for all: none stays.");
    if (c->seam_buffers > 0)
        dlpi_text_add(t,
                      "Seams: %" PRIu64 " batch%s spanned chunks and %s copied, %s in all; a "
                      "batch_size that divides the rows of every chunk has none.\n",
                      c->seams, c->seams == 1 ? "" : "es", c->seams == 1 ? "was" : "were",
                      dlpi_num_bytes((double)c->seam_bytes).s);
}
