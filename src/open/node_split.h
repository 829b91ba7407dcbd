/* needs: split */
#pragma once
/* tests: system/stages/chunks, system/open/rows_at */
#include "open/split.h"
#include "open/table.h"
#include "stages/transfer.h"
/* ---- split: batches that are views of a chunk ---- */

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
