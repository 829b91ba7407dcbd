/* needs: parts */
#pragma once
/* tests: system/source/push_makers */
#include "inputs/items.h"
#include "inputs/reader.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-push-cells A PUSH BEFORE A MAKER: ITS READER
   A stage of one thread: the reader. It calls the push's fetch, as the fetch stage does in a pipe
   without makers, and this call writes the next record into a cell (>>impl-arrivals). The stage
   after it makes items of the record. */

/* Have the push's fetch write record k into cell c. Returns 0, DLP_END, DLP_STOPPED or a code. */
static int dlpi_arrive_one(dlpi_worker *w, const dlpi_expand *x, uint32_t c, uint32_t k) {
    const dlpi_arrivals *a = w->st->self;
    dlpi_item_arrays by;
    dlp_item in = {.index = a->records,
                   .position = a->records,
                   .worker_state = w->state,
                   .seed = x->found.plan.seed,
                   .call = &w->note};
    dlpi_words_forget(w);
    DLPI_STORE_RLX(&w->block->current, a->records); /* for observers */
    dlpi_input_item(&in, &by, x->n_fetched);
    return dlpi_input_asks(w, x, &in, dlpi_arrived_at(w->p, x, c, k), &by, false, false);
}

/* Wait for a record, and have it written into cell c. Records that are there behind it follow, up
   to the cell's run. Returns 0, or the code that came in place of the first record. */
static int dlpi_arrive_all(dlpi_worker *w, uint32_t c, dlpi_input *cell) {
    dlpi_arrivals *a = w->st->self;
    const dlpi_expand *x = a->x;
    uint32_t n = 0;
    int rc;
    while ((rc = dlpi_arrive_one(w, x, c, n)) == 0) {
        dlpi_input_indices(cell)[n++] = a->records++;
        dlpi_items_count(w->block, 1, x->level->bytes);
        if (n == cell->run || !x->input.reader->more(x->input.user)) break;
    }
    if (n == 0) return rc;
    cell->run = n;
    return 0;
}

/* Complete a cell for which no record came. rc: DLP_END if the stream has ended, else the code of
   the failure. The cell becomes LOADED without an input, or FAILED. */
static void dlpi_arrive_none(dlpi_worker *w, dlpi_input *cell, uint64_t ticket, int rc) {
    dlpi_arrivals *a = w->st->self;
    uint32_t low = DLPI_INPUT_LOADED;
    a->over = rc == DLP_END;
    cell->run = a->over ? 0 : 1;
    if (!a->over) {
        cell->index = dlpi_input_indices(cell)[0] = a->records++;
        dlpi_input_error(w, cell, dlpi_returned(w, rc));
        low = DLPI_INPUT_FAILED;
    }
    dlpi_claim_done(&cell->state, dlpi_gen_word(ticket, low)); /* Q1 -> Q1, B1 */
    dlpi_credit_add(&w->p->ctl->source_moves);                 /* Q2 -> Q2 */
    dlpi_wake_scheduling(w->p);
}

/* Fill one cell that the scheduler has given to the reader. Returns false if there is none. */
static bool dlpi_arrive_step(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    dlpi_arrivals *a = w->st->self;
    const uint32_t c = dlpi_arrivals_next(a);
    const uint64_t first = a->records;
    dlpi_input *cell;
    uint64_t ticket;
    int rc;
    if (c == DLPI_FOUND_NONE) return false;
    cell = dlpi_input_at(p, c);
    ticket = dlpi_gen(dlpi_claim_owner(&cell->state)); /* Q4 <- Q4: the scheduler's last word */
    dlpi_clock_in(w);
    rc = dlpi_arrive_all(w, c, cell);
    dlpi_clock_out(w, first, 0, (uint32_t)(a->records - first));
    if (rc == DLP_STOPPED) return true;
    a->taken++;
    if (rc != 0) {
        dlpi_arrive_none(w, cell, ticket, rc);
        return true;
    }
    dlpi_input_offer(p, c, ticket);
    dlpi_found_wake(p, 1);
    return true;
}

/* Check the desc of a push before makers, and refuse what has no meaning for records that come
   once. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_arrive_check(dlp_pipe *p, dlpi_stage *st) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_workers_desc, on_error), 0, 0, "DLP_ON_ERROR_RAISE; set it in a maker"},
        {DLPI_AT(dlp_workers_desc, retries), 0, 0, "0: a pushed item is read once"},
        {DLPI_AT(dlp_workers_desc, max_skips), 0, 0, "0; set it in a maker"},
        {DLPI_AT(dlp_workers_desc, deadline_ms), 0, 0, "0: this stage waits for producers"},
        {DLPI_AT(dlp_workers_desc, workers_max), 0, 0, "0: pushed items have one reader"},
    };
    const char *once = "0: pushed items come once";
    dlpi_arrivals *a = st->self;
    a->st = st;
    st->dataset = &a->x->input;
    st->item = st->dataset->fetch;
    dlpi_found_of(p)->arrives = true;
    int rc = dlpi_check_bounds(p, st->name, &st->w, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    dlpi_within(p, st->name, "num_workers", st->w.num_workers, 1, 1,
                "0 or 1: one thread reads pushed items for the rows that make items");
    dlpi_within(p, "", "epoch_end", p->d.epoch_end, 0, 0, once);
    if (p->d.resume != NULL) dlpi_not_null(p, "", "resume", "with a push: pushed items come once");
    return p->err.code != 0 ? p->err.code : dlpi_reader_alone(p, st);
}

DLPI_COLD static void dlpi_arrive_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_arrivals *a = st->self;
    a->n = a->x->found.n_cells;
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_OWN_LINK), sizeof *a->cells, a->n, DLPI_LINE);
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_READER_WORDS), sizeof(dlpi_reader_words), 1, DLPI_LINE);
}

DLPI_COLD static void dlpi_arrive_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_arrivals *a = st->self;
    a->cells = dlpi_area_at(p, DLPI_OWN(st->id, DLPI_OWN_LINK), 0);
    dlpi_reader_live(p, st, &a->x->input);
}

static const dlpi_stage_ops dlpi_push_ops = {
    .kind = DLP_STAGE_PUSH,
    .rank = 2,
    .many = 1,
    .unit = DLPI_UNIT_CELLS,
    .workers = 1,
    .in_order = 1,
    .self_bytes = sizeof(dlpi_arrivals),
    .check = dlpi_arrive_check,
    .layout = dlpi_arrive_layout,
    .live = dlpi_arrive_live,
    .step = dlpi_arrive_step,
    .seen = dlpi_reader_seen,
    .words = {.slow = "what is pushed has one reader; push fewer and larger items"},
};
