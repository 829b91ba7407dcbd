/* needs: split */
#pragma once
/* tests: system/stages/chunks, system/stages/parts */
#include "stages/split.h"
#include "build/check.h"
/* ---- a split stage ---- */

/* Check the numbers of a desc of a split. Returns 0 or a DLP_ERR code. */
static int dlpi_split_check(dlp_pipe *p, const char *stage, const dlp_node_split *d) {
    const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_node_split, chunk_rows), d->rows == NULL, DLPI_MAX_ITEMS,
         "1..2^48, or 0 with rows"},
        {DLPI_AT(dlp_node_split, n_rows), 0, DLPI_MAX_ITEMS, "0..2^48"},
        {DLPI_AT(dlp_node_split, n_chunks), d->rows != NULL, d->rows != NULL ? INT32_MAX : 0,
         "1..2^31 - 1 with rows, and 0 without rows"},
        {DLPI_AT(dlp_node_split, batch_size), 1, 1 << 20, "1..1048576"},
        {DLPI_AT(dlp_node_split, last), DLP_LAST_PARTIAL, DLP_LAST_DROP,
         "DLP_LAST_DEFAULT, _PARTIAL or _DROP"},
        {DLPI_AT(dlp_node_split, within_chunks), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_node_split, shuffle_rows), 0, 1, "0 or 1"},
    };
    return dlpi_check_bounds(p, stage, d, DLPI_ROWS(bounds));
}

/* Allocate and fill *first, the rows before each chunk, if the desc gives a count for each; else
   *first is NULL. Returns 0 or a DLP_ERR code. */
static int dlpi_split_sums(dlp_pipe *p, const char *stage, const dlp_node_split *d,
                           uint64_t **first) {
    uint64_t sum = 0;
    *first = NULL;
    if (d->rows == NULL) return DLP_OK;
    *first = calloc((size_t)d->n_chunks + 1, sizeof **first);
    if (*first == NULL) return dlpi_no_memory(p, "rows", "the chunks' counts");
    for (uint64_t c = 0; c < d->n_chunks; c++) {
        uint64_t most = DLPI_MAX_ITEMS - sum;
        if (d->chunk_rows != 0 && d->chunk_rows < most) most = d->chunk_rows;
        if (d->rows[c] > most)
            return dlpi_bad(p, stage, "rows", "at most chunk_rows each, and 2^48 together",
                            (int64_t)d->rows[c]);
        (*first)[c + 1] = sum += d->rows[c];
    }
    if (sum == 0) return dlpi_bad(p, stage, "rows", "1 or more, of all chunks together", 0);
    if (d->n_rows == 0 || d->n_rows == sum) return DLP_OK;
    return dlpi_bad(p, stage, "n_rows", "0 or the sum of rows", (int64_t)d->n_rows);
}
