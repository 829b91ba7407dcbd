#pragma once
/* tests: system/core/fetchers, system/core/pipe_badinput */
#include "inputs/reader.h"
#include "inputs/chain.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-fetch      FETCH: ROWS WRITTEN FOR THE FIRST TIME */

static int dlpi_fetch_chain(dlp_pipe *p, dlpi_stage *st DLPI_UNREAD) {
    int rc = DLP_OK;
    if (dlpi_reader_wired(st->dataset) && st->item == st->dataset->fetch) /* needs: parts */
        rc = dlpi_reader_alone(p, st);                                    /* needs: parts */
    return rc == DLP_OK ? dlpi_open_end_check(p) : rc;
}

/* Warn if the stage has more workers, or items in flight, than the pipe has rows or batches under
   way. Called as the pipe starts. */
DLPI_COLD static void dlpi_fetch_live(dlp_pipe *p, dlpi_stage *st) {
    uint64_t items = (uint64_t)p->prefetch * p->batch_rows, n = (uint64_t)st->n_workers;
    if (n > items)
        dlpi_warn(p,
                  "num_workers %d is above prefetch_factor x batch_size = %" PRIu64 " items in "
                  "flight, so some idle; raise prefetch_factor",
                  st->n_workers, items);
    else if (n * (uint64_t)st->in_flight > items)
        dlpi_warn(p,
                  "num_workers %d x in_flight %d is above prefetch_factor x batch_size = %" PRIu64
                  " items; raise prefetch_factor",
                  st->n_workers, st->in_flight, items);
    else if (st->w.dispatch == DLP_DISPATCH_BATCHES && n > p->prefetch)
        dlpi_warn(p,
                  "num_workers %d is above prefetch_factor %" PRIu32 " batches in flight, so some "
                  "idle; raise prefetch_factor",
                  st->n_workers, p->prefetch);
}

/* Refuse a world_size above 1 if the stage reads a push, because pushed items go to one rank. Then
   check as any fetch. Returns 0 or a DLP_ERR code. */
static int dlpi_fetch_read_chain(dlp_pipe *p, dlpi_stage *st) {
    uint32_t world = p->d.world_size;
    if (world > 1 && dlpi_reader_wired(st->dataset))
        return dlpi_bad(p, "", "world_size", "1 with a push: pushed items go to one rank", world);
    return dlpi_fetch_chain(p, st);
}

/* Add the area of the region that keeps the rows of a reader, because a later stage may send them
   back and a push gives them once. It is empty if no stage can. Add the reader's words. */
DLPI_COLD static void dlpi_fetch_area(dlp_pipe *p, dlpi_stage *st) {
    uint64_t rows = dlpi_times(p->n_slots, p->batch_rows), each = 8;
    for (uint32_t f = 0; f < p->items.n; f++)
        each = dlpi_sum(each, dlpi_round_up(p->items.at[f].row_bytes, 8));
    if (p->items.any_ragged) each = dlpi_sum(each, p->items.n * UINT64_C(8));
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_READER_ROWS), DLPI_PLAN_OWN, st->dataset->reader->words,
                   each, p->rows_end != st ? rows : 0, DLPI_LINE);
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_READER_WORDS), sizeof(dlpi_reader_words), 1, DLPI_LINE);
}

/* Let the reader write leading rows of a claimed unit at once. Returns how many rows it has
   written; the callback writes the rest. */
static uint32_t dlpi_fetch_read(dlpi_worker *w, const dlpi_unit *t) {
    const dlpi_reader *r = w->st->dataset->reader;
    if (w->st->item != r->fetch || w->st->scope.zeroes || w->asks != DLPI_ASK_NOTHING) return 0;
    return r->read(w->st->user, w, t);
}

DLPI_COLD static void dlpi_fetch_read_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_reader_live(p, st, st->dataset);
    dlpi_fetch_live(p, st);
}

typedef struct dlpi_fetch_rows { /* the record of a fetch stage */
    dlpi_fetch fetch;            /* first: common functions read the record as a dlpi_fetch */
    dlpi_program program;        /* maps and fetches that run in the attempt of this stage */
} dlpi_fetch_rows;

static int32_t dlpi_fetch_foretold(const dlp_predict_desc *d) { return d->num_workers; }

#define DLPI_OPS_OF_FETCH \
    .kind = DLP_STAGE_FETCH, .rank = 4, .at = offsetof(dlp_pipe, fetch), \
    .self_bytes = sizeof(dlpi_fetch_rows), .foretold = dlpi_fetch_foretold, \
    .seen = dlpi_reader_seen, \
    .words = {.more = "num_workers", .out = "num_workers = 1", .many = "in_flight = 16"}

#define DLPI_OPS_OF_PROGRAM \
    .program_at = offsetof(dlpi_fetch_rows, program), .widens = dlpi_chain_widens, \
    .what = dlpi_chain_what
#define DLPI_OPS_OF_CHAINS DLPI_OPS_OF_PROGRAM, .chained = dlpi_unit_pairs
#define DLPI_FETCH_RUNS \
    { \
        DLPI_OPS_OF_FETCH, .check = dlpi_fetch_chain, .live = dlpi_fetch_live, \
                           DLPI_OPS_OF_PROGRAM, DLPI_OPS_OF_RUNS, DLPI_OPS_OF_ROWS \
    }

static const dlpi_stage_ops dlpi_fetch_ops = {DLPI_OPS_OF_FETCH, .check = dlpi_fetch_chain,
                                              .live = dlpi_fetch_live, DLPI_OPS_OF_CHAINS,
                                              DLPI_OPS_OF_ROWS};
#define DLPI_FETCH_READ \
    { \
        DLPI_OPS_OF_FETCH, .check = dlpi_fetch_read_chain, .live = dlpi_fetch_read_live, \
                           .layout = dlpi_fetch_area, .bulk = dlpi_fetch_read, DLPI_OPS_OF_ROWS \
    }
static const dlpi_stage_ops dlpi_fetch_read_ops = DLPI_FETCH_READ; /* needs: parts */
#define DLPI_FETCH_MANY \
    { \
        DLPI_OPS_OF_FETCH, .check = dlpi_fetch_chain, .live = dlpi_fetch_live, DLPI_OPS_OF_CHAINS, \
                           DLPI_OPS_OF_IN_FLIGHT \
    }
static const dlpi_stage_ops dlpi_fetch_many_ops = DLPI_FETCH_MANY; /* needs: fetchers */

static const dlpi_stage_ops dlpi_fetch_runs_ops = DLPI_FETCH_RUNS; /* needs: runs */

/* Return the table of a fetch stage with this desc. */
static const dlpi_stage_ops *dlpi_fetch_ops_of(const dlp_source *d DLPI_UNREAD) {
    const dlp_dataset *ds = d->dataset;                                    /* needs: runs */
    if (d->fetcher) return &dlpi_fetch_many_ops;                           /* needs: fetchers */
    if (ds != NULL && ds->fetch_rows != NULL) return &dlpi_fetch_runs_ops; /* needs: runs */
    if (dlpi_reader_of(d->dataset) != NULL) return &dlpi_fetch_read_ops;   /* needs: parts */
    return &dlpi_fetch_ops;
}
