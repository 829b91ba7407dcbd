/* needs: parts */
#pragma once
/* tests: system/source/push_makers */
#include "inputs/lists.h"
#include "wait/waiters.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-arrivals   INPUTS THAT ARRIVE
   If makers stand behind a push, an input is a pushed record, and the time of the next record is
   not known. The scheduler gives free cells to the reader of the push, which is a stage with one
   thread, in the order of the stream's list. The reader waits for a record. It copies the records
   that have come into the next cell, as many as one cell may have, and opens the cell. From then on
   the cell is like any other input cell: if a worker dies, the records stay, and the next worker
   makes items of them again.

   Records are numbered in the order of reading. The number is the input's index and its ordinal. A
   cell without a record tells that the stream has ended. If a record cannot be read, its cell
   becomes FAILED.

   label  atomic    written by             read by (partner)
   Q4     wanted    scheduler: cells that  the reader, who then has the cell and its number in
                    it has given           `cells`, until Q1 says OPEN, LOADED or FAILED

   Why a place of `cells` is not written before it is read. A cell is given again only after it was
   taken off the stream's list, and that is after the reader has opened it. So at most n cells are
   with the reader, and the place of the first of them is still its own. */

typedef struct dlpi_arrivals {
    uint64_t wanted; /* Q4: number of cells given to the reader so far */
    uint64_t *cells; /* [n] cell number k of these is cells[k % n]; in the region, for observers */
    uint32_t n;
    const dlpi_stage *st;  /* the stage of the reader */
    struct dlpi_expand *x; /* the source whose inputs the records are */
    uint8_t pad[DLPI_LINE];
    uint64_t taken, records; /* written by the reader: cells that it filled, records that it read */
    bool over;               /* written by the reader: it has read the end of the stream */
} dlpi_arrivals;

/* Scheduler: close cell c and give it to the reader, which may fill it with as many records as the
   cell's run has. ticket: that of the cell. */
static void dlpi_arrivals_want(dlp_pipe *p, dlpi_arrivals *a, uint32_t c, uint64_t ticket) {
    dlpi_claim_done(&dlpi_input_at(p, c)->state, dlpi_gen_word(ticket, DLPI_INPUT_CLOSED)); /* Q1 */
    a->cells[a->wanted % a->n] = c;
    dlpi_credit_publish(&a->wanted, a->wanted + 1); /* Q4 -> Q4, B1 */
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
