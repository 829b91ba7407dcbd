/* needs: parts */
#pragma once
/* tests: system/source/push_makers */
#include "inputs/lists.h"
#include "wait/waiters.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-arrivals   INPUTS THAT ARRIVE
   Behind a push an input is a record, and nobody knows when the next one comes. The scheduler gives
   free cells to the reader of the push, one stage with one thread, in the order of the stream's
   list. The reader waits for records, copies those that are at hand into the next cell, as many as
   one cell may have, and opens the cell. From there on the cell is as any other one: a worker that
   dies leaves the records where they are, and the next worker makes items of them again.

   A record keeps its number, the order in which it was read. That is the input's index and its
   ordinal. A cell of no record says that the stream has ended. A record that cannot be read makes
   its cell FAILED.

   label  atomic    written by             read by (partner)
   Q4     wanted    scheduler: cells that  the reader, who then has the cell and its number in
                    it has given           `cells`, until Q1 says OPEN, LOADED or FAILED

   Why a place of `cells` is not written before it is read. A cell is given again only after it was
   taken off the stream's list, and that is after the reader has opened it. So at most n cells are
   with the reader, and the place of the first of them is still its own. */

typedef struct dlpi_arrivals {
    uint64_t wanted; /* Q4 */
    uint64_t *cells; /* [n] the cell of each number, modulo n; in the region, for observers */
    uint32_t n;
    const dlpi_stage *st;  /* the reader's */
    struct dlpi_expand *x; /* whose inputs the records are */
    uint8_t pad[DLPI_LINE];
    uint64_t taken, records; /* the reader's: cells, and records, so far */
    bool over;               /* the reader's: it has said that the stream has ended */
} dlpi_arrivals;

/* Scheduler: close cell c and give it to the reader, which may fill it with as many records as the
   cell's run has. ticket: that of the cell. */
static void dlpi_arrivals_want(dlp_pipe *p, dlpi_arrivals *a, uint32_t c, uint64_t ticket) {
    dlpi_claim_done(&dlpi_input_at(p, c)->state, dlpi_gen_word(ticket, DLPI_INPUT_CLOSED)); /* Q1 */
    a->cells[a->wanted % a->n] = c;
    dlpi_credit_publish(&a->wanted, a->wanted + 1); /* Q4 -> Q4, B1 */
}

/* Scheduler: copy from cell c how many records the reader put into it, and the number of the first
   record. c is the first cell of its stream whose count is not taken. */
static void dlpi_arrivals_learn(dlp_pipe *p, dlpi_found_cell *u, uint32_t c) {
    u->run = dlpi_input_at(p, c)->run;
    u->ordinal = dlpi_input_indices(dlpi_input_at(p, c))[0];
}

/* Scheduler: end stream x before its first cell whose count is not taken. This cell and all cells
   behind it leave the stream's list. */
static void dlpi_arrivals_end(dlpi_found *q, dlpi_found_stream *x) {
    while (x->known != DLPI_FOUND_NONE) {
        const uint32_t c = x->known;
        x->known = q->use[c].next;
        dlpi_found_shed(q, x, c);
    }
    x->epoch++;
    x->next = 0;
}

/* Reader: return the cell that it fills next, or DLPI_FOUND_NONE if it has no cell or has ended the
   stream. The cell stays the same until `taken` is raised. */
static uint32_t dlpi_arrivals_next(const dlpi_arrivals *a) {
    if (a->over || a->taken == dlpi_credit_seen(&a->wanted))
        return DLPI_FOUND_NONE; /* Q4 <- Q4, B1 */
    return (uint32_t)a->cells[a->taken % a->n];
}
