/* needs: mix */
#pragma once
/* tests: system/inputs/traced, system/shm/shm_outs */
#include "order/mixing.h"
#include "row/rows.h"
/* ---- where a row came from: trace_rows ----
   A slot then has for each row the number of its item, and that of its list. The first stage writes
   them with the index. They follow from what the index follows from: the row's fate, and what the
   scheduler has written into the slot. If a row is done again, the same is written. They are
   written in those calls of the source's table that give indices. A pipe that traces rows has a
   copy of this table, and others pay nothing. */

/* Return the source's own table. */
static const dlpi_source_ops *dlpi_origin_of(const dlp_pipe *p) {
    return p->source_stage->ops->source;
}

/* Write where the item of row `row` of slot s comes from. index: that of the item. epoch, position,
   k: as in dlpi_source_ops.item. A row that was left out before its fetch has zeros. */
static void dlpi_origin_row(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t index,
                            uint64_t epoch, uint64_t position, uint32_t k) {
    const dlp_pipe *p = w->p;
    uint32_t *numbers = dlpi_slot_numbers(p, s), list = 0, number = 0;
    uint64_t item;
    if (dlpi_fate_state(dlpi_slot_fate(p, s)[row]) != DLPI_ROW_LEFT) {
        dlp_mix_locate(p->datasets.mix, index, &list, &item);
        if (dlpi_origin_of(p)->origin != NULL)
            number = dlpi_origin_of(p)->origin(w, s, row, epoch, position, k, &list);
    }
    numbers[row] = number;
    ((uint16_t *)(void *)(numbers + p->batch_rows))[row] = (uint16_t)list;
}

static void dlpi_origin_indices(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_origin_of(w->p)->indices(w, t);
    for (uint32_t r = t->row; r < t->end; r++)
        dlpi_origin_row(w, t->slot, r, dlpi_slot_index(w->p, t->slot)[r], 0, 0, 0);
}

/* Return the index of a row's item, as the source does. A later stage that gives the row to another
   item writes nothing: it may die before the row's fate says so, and sends the row to the first
   stage otherwise. */
static uint64_t dlpi_origin_item(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                                 uint64_t position, uint32_t k) {
    const uint64_t index = dlpi_origin_of(w->p)->item(w, s, row, epoch, position, k);
    if (dlpi_writes_first(w)) dlpi_origin_row(w, s, row, index, epoch, position, k);
    return index;
}

/* Have rows traced from now on, if the pipe's desc asks for it. */
DLPI_COLD static void dlpi_origin_begin(dlp_pipe *p) {
    const dlp_sampler_desc *s = dlpi_sampler_of(p);
    if (p->datasets.origins == NULL) return;
    if (s->function == dlpi_mix_function) p->datasets.mix = s->function_user;
    *p->datasets.origins = *p->source;
    p->datasets.origins->indices = dlpi_origin_indices;
    p->datasets.origins->item = dlpi_origin_item;
    p->source = p->datasets.origins;
}
