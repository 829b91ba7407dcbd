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

static void dlpi_chunks_keep(dlpi_split *to, const dlp_chunks_desc *d) {
    to->load = d->load;
    to->rows_at = d->rows_at;
    to->user = d->user;
    to->preload = d->preload;
    to->writes_all_bytes = (int)d->writes_all_bytes;
}

static int dlpi_node_split_add(dlpi_table *t, const dlp_node *node) {
    const dlp_chunks_desc *d = node->split.chunks;
    const int rc = dlpi_add_split(t->p, &node->split);
    if (rc < 0 || d == NULL) return rc;
    dlpi_chunks_keep(t->p->stages[rc].self, d);
    dlpi_chunks_ahead(t->p, d, t->p->stages[rc].self);
    if (d->preload == DLP_PRELOAD_DEVICE && t->n_items <= INT32_MAX) /* one for each chunk */
        dlpi_transfer_of(&t->p->stages[rc - 1])->d.device_buffers = (int32_t)t->n_items;
    return rc;
}
