/* needs: parts */
#pragma once
/* tests: system/core/tables */
#include "work/collate.h"
/* ---- maps of batches that add fields ---- */

/* Let the fields that a map adds to batch t begin as zeros, one row for each row of the batch. */
static void dlpi_batch_widens(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const uint64_t rows = dlpi_slot_rows(p, t->slot);
    for (uint32_t f = w->st->scope.own; f < w->st->scope.n_fields; f++) {
        const dlpi_field *d = &p->batches.at[f];
        const uint64_t bytes = rows * d->row_bytes;
        uint8_t *at = dlpi_batch_cell(p, t->slot) + d->offset;
        if (dlpi_clears_timed(w))
            dlpi_clear_timed(w, d, at, bytes, rows, false);
        else
            memset(at, 0, (size_t)bytes);
        dlpi_field_made(p, t->slot, f, rows);
    }
}
