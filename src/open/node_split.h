/* needs: split */
#pragma once
/* tests: system/stages/chunks, system/open/rows_at, system/stages/parts */
#include "open/table.h"
#include "stages/split.h"
#include "stages/transfer.h"
/* ---- split: batches that are views of a chunk ---- */

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

/* Set how many chunks may be under way, and how many of these in CPU buffers. With a device these
   are the CPU buffers, and those device buffers that the consumer does not hold. */
static void dlpi_chunks_ahead(dlp_pipe *p, const dlp_chunks_desc *d, dlpi_split *to) {
    const int32_t held = d->pipe.max_held > 0 ? d->pipe.max_held : 1;
    int64_t cpu = d->cpu_buffers, there = d->device_buffers;
    if (d->device == NULL) {
        p->d.prefetch_factor = cpu > held ? (int32_t)cpu - held : 1;
        return;
    }
    if (cpu == 0) cpu = 2;
    if (there <= held) there = held + 1;
    p->d.prefetch_factor = (int32_t)cpu;
    if (d->preload != DLP_PRELOAD_NONE) return;
    to->cpu_buffers = (uint32_t)cpu;
    p->d.prefetch_factor = cpu + there - held < 4096 ? (int32_t)(cpu + there - held) : 4096;
}

/* Add the stage of a split row, with the running sums of its chunks' rows. If it has chunks, also
   set how many chunks may be under way. Returns a stage number or a DLP_ERR code. */
static int dlpi_node_split_add(dlpi_table *t, const dlp_node *node) {
    const dlp_chunks_desc *d = node->split.chunks;
    dlpi_stage *st = dlpi_add(t->p, &dlpi_split_ops, "split", NULL);
    dlpi_split *c;
    int rc;
    if (st == NULL) return t->p->err.code;
    c = st->self;
    c->d = node->split;
    rc = dlpi_split_check(t->p, st->name, &c->d);
    if (rc == DLP_OK) rc = dlpi_check_ranks(t->p, c->d.batch_size);
    if (rc == DLP_OK) rc = dlpi_split_sums(t->p, st->name, &c->d, &c->first);
    for (const dlpi_stage *map = t->p->stages; rc == DLP_OK && map < st; map++)
        if (map->batch != NULL && map->n_fields > 0)
            rc = dlpi_bad(t->p, map->name, "map.n_fields",
                          "0 before a split, which cuts fields of items alone", map->n_fields);
    rc = dlpi_added(t->p, st, rc);
    if (rc < 0 || d == NULL) return rc;
    c->chunks = *d;
    dlpi_chunks_ahead(t->p, d, c);
    if (d->preload == DLP_PRELOAD_DEVICE && t->n_items <= INT32_MAX) /* one for each chunk */
        dlpi_transfer_of(st - 1)->buffers = (int32_t)t->n_items;
    return rc;
}
