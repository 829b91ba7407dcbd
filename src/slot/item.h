#pragma once
/* tests: system/open/pipe_ranks, system/core/pipe_epochs, unit/order/order */
#include "pipe/pipe.h"
/* Which rows of a global batch are this rank's, whether epochs are over, an item's random
   numbers. */

/* Set which rows of a global batch of c rows are this rank's: [first, first + count). */
static void dlpi_rank_rows(const dlp_pipe *p, uint64_t c, uint64_t *first, uint32_t *count) {
    *count = dlpi_rows_of_rank(p->rank, p->world, c, first);
}

static bool dlpi_epochs_over(const dlp_pipe *p, uint64_t epoch) {
    int64_t n = p->d.epochs;
    if (n == DLP_FOREVER) return false;
    return epoch >= (uint64_t)(n == 0 ? 1 : n);
}

#define DLPI_AHEAD_ROWS 4u /* rows between the one that is fetched and one that is told, at most */

/* The body of dlp_item_ahead. */
static inline uint64_t dlpi_item_ahead(const dlp_item *item) {
    dlpi_worker *w = item->call != NULL ? item->call->w : NULL;
    uint64_t index;
    uint32_t row, own;
    if (w == NULL) return UINT64_MAX; /* a program fetches by itself */
    own = w->ahead_own > 0 ? w->ahead_own - 1 : item->row;
    row = w->ahead_row > own ? w->ahead_row : own + 1;
    if (row >= w->ahead_end || row > own + DLPI_AHEAD_ROWS) return UINT64_MAX;
    w->ahead_row = row + 1;
    if (w->ahead_own > 0) return w->index[row];
    index = w->index[row] - w->st->scope.first;
    return index < w->st->scope.n_items ? index : UINT64_MAX; /* of another dataset */
}

DLPDEF uint64_t dlp_item_ahead(const dlp_item *item) { return dlpi_item_ahead(item); }

DLPDEF uint64_t dlp_item_random(const dlp_item *item, uint64_t salt) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_ITEM, item->seed, item->epoch);
    if (item->call != NULL) /* also by threads of the callback's own */
        DLPI_STORE_RLX(&item->call->used_random, 1u);
    return dlpi_absorb(dlpi_absorb(h, item->position), salt);
}
