#pragma once
/* tests: system/core/fetchers, system/core/pipe_badinput */
#include "inputs/dataset.h"
#include "observe/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-fetch      FETCH: ROWS WRITTEN FOR THE FIRST TIME */

/* What a reader says of those who write: in the fetch stage's record of its own. */
typedef struct dlpi_reader_words { /* in region: the worker's words, for people */
    uint64_t alone;                /* 1: it waits, and no writer lives that has not said its end */
    uint64_t ended, writers; /* ends that were read, of so many; writers 0: nothing is read on */
    uint64_t last;           /* the number of a writer that is gone without an end; 0: none */
} dlpi_reader_words;

enum { DLPI_READER_WORDS = 1, DLPI_READER_ROWS = DLPI_OWN_HIDDEN }; /* areas of that stage */

/* What is read on has one reader: a thread or the consumer, with one row after the other, once. */
static int dlpi_fetch_one_reader(dlp_pipe *p, const dlpi_stage *st) {
    const char *words = "0 or 1: what is read on has one worker";
    dlpi_within(p, st->name, "num_workers", st->w.num_workers, 0, 1, words);
    dlpi_within(p, st->name, "placement", st->w.placement, DLP_PLACE_THREADS, DLP_PLACE_THREADS,
                "DLP_PLACE_THREADS: what is read on is read by a thread or inline");
    dlpi_within(p, st->name, "fetcher", st->ops->row_by_row, 0, 0,
                "DLP_FETCH_SEQUENTIAL: what is read on comes one item after the other");
    dlpi_within(p, "repeat", "epochs", p->repeat->epochs, 0, 1,
                "0 or 1: what is read on comes once");
    return p->err.code;
}

static int dlpi_fetch_chain(dlp_pipe *p, dlpi_stage *st) {
    int rc = dlpi_reader_wired(st->dataset) ? dlpi_fetch_one_reader(p, st) : DLP_OK;
    return rc == DLP_OK ? dlpi_open_end_check(p) : rc;
}

/* Workers, or items that they have at once, beyond what is under way have nothing to do. */
static void dlpi_fetch_live(dlp_pipe *p, dlpi_stage *st) {
    uint64_t items = (uint64_t)p->prefetch * p->batch_rows, n = (uint64_t)st->n_workers;
    if (n > items)
        dlpi_warn(p,
                  "num_workers %d is more than prefetch_factor x batch_size = %" PRIu64
                  " items in flight: the rest will idle",
                  st->n_workers, items);
    else if (n * (uint64_t)st->in_flight > items)
        dlpi_warn(
            p,
            "num_workers %d x in_flight %d is more than prefetch_factor x batch_size = %" PRIu64
            " items",
            st->n_workers, st->in_flight, items);
    else if (st->w.dispatch == DLP_DISPATCH_BATCHES && n > p->prefetch)
        dlpi_warn(p,
                  "num_workers %d is more than prefetch_factor %" PRIu32
                  " batches in flight: workers that have no batch idle",
                  st->n_workers, p->prefetch);
}

/* What comes once, comes to one rank. */
static int dlpi_fetch_read_chain(dlp_pipe *p, dlpi_stage *st) {
    uint32_t world = dlpi_sampler_of(p)->world_size;
    if (world > 1 && dlpi_reader_wired(st->dataset))
        return dlpi_bad(p, p->sampler->name, "sampler.world_size",
                        "1 with a dataset that is read on: what comes once has no ranks", world);
    return dlpi_fetch_chain(p, st);
}

/* Rows of a reader that a later stage may ask for again. */
static void dlpi_fetch_kept(dlp_pipe *p, dlpi_stage *st) {
    uint64_t rows = dlpi_times(p->n_slots, p->batch_rows), each = 8;
    for (uint32_t f = 0; f < p->items.n; f++)
        each = dlpi_sum(each, dlpi_round_up(p->items.at[f].row_bytes, 8));
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_READER_ROWS), DLPI_PLAN_OWN, st->dataset->reader->words,
                   each, p->rows_end != st ? rows : 0, DLPI_LINE);
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_READER_WORDS), sizeof(dlpi_reader_words), 1, DLPI_LINE);
}

/* Copy, for an observer, what the reader of a push says of its writers (dlpi_reader_words). Returns
   false if the words of the region are not whole. */
static bool dlpi_fetch_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const int id = DLPI_OWN(stage, DLPI_READER_WORDS);
    return words->areas[id].count == 0 ||
           dlpi_words_copy(words, id, 0, s->figures.stages[stage].own, sizeof(dlpi_reader_words));
}

/* What a reader has for the rows of a claimed unit; what it leaves the callback has. */
static uint32_t dlpi_fetch_read(dlpi_worker *w, const dlpi_unit *t) {
    const dlpi_reader *r = w->st->dataset->reader;
    if (w->st->item != r->fetch || dlpi_row_has_special(w)) return 0;
    return r->read(w->st->user, w, t);
}

/* Who writes what is read wants a core, too. */
static void dlpi_fetch_read_live(dlp_pipe *p, dlpi_stage *st) {
    const dlp_dataset *d = st->dataset;
    uint64_t writers = dlpi_reader_wired(d) ? d->reader->writers(d->user) : 1;
    p->wait.only_yields = writers + (uint64_t)p->wait.threads > (uint64_t)p->cpus;
    dlpi_fetch_live(p, st);
}

static int32_t dlpi_fetch_foretold(const dlp_predict_desc *d) { return d->num_workers; }

#define DLPI_OPS_OF_FETCH \
    .kind = DLP_STAGE_FETCH, .rank = 4, .at = offsetof(dlp_pipe, fetch), \
    .self_bytes = sizeof(dlpi_fetch), .foretold = dlpi_fetch_foretold, .seen = dlpi_fetch_seen, \
    .words = {.more = "num_workers", .out = "num_workers = 1", .many = "in_flight = 16"}

static const dlpi_stage_ops dlpi_fetch_ops = {DLPI_OPS_OF_FETCH, .check = dlpi_fetch_chain,
                                              .live = dlpi_fetch_live, DLPI_OPS_OF_ROWS};
static const dlpi_stage_ops dlpi_fetch_read_ops = {
    DLPI_OPS_OF_FETCH,         .check = dlpi_fetch_read_chain, .live = dlpi_fetch_read_live,
    .layout = dlpi_fetch_kept, .bulk = dlpi_fetch_read,        DLPI_OPS_OF_ROWS};
static const dlpi_stage_ops dlpi_fetch_many_ops = {DLPI_OPS_OF_FETCH, .check = dlpi_fetch_chain,
                                                   .live = dlpi_fetch_live, DLPI_OPS_OF_IN_FLIGHT};

static const dlpi_stage_ops *dlpi_fetch_ops_of(const dlp_fetch_desc *d) {
    if (d->fetcher) return &dlpi_fetch_many_ops;
    return dlpi_reader_of(d->dataset) ? &dlpi_fetch_read_ops : &dlpi_fetch_ops;
}
