/* needs: parts */
#pragma once
/* tests: system/stages/expand */
#include "api/expand.h"
#include "stages/expand.h"
#include "build/check.h"
#define DLPI_FILTER_INLINE 4096u /* bytes of a batch up to which the consumer copies it */

DLPI_COLD static dlp_stage dlpi_add_expand(dlp_pipe *p, const dlp_expand_desc *desc,
                                           const dlpi_cells_desc *cells) {
    dlpi_stage *st = dlpi_add(p, &dlpi_expand_ops, "expand", &cells->workers);
    if (st == NULL) return p->err.code;
    return dlpi_added(p, st, dlpi_expand_take(p, st, desc, cells));
}

DLPDEF dlp_item *dlp_expand_add(dlp_expand *x) {
    dlpi_making *m = (dlpi_making *)(void *)x;
    const dlpi_level *to = m->to;
    dlpi_making_pass(m);
    if (DLPI_UNLIKELY(m->wrong != 0 || m->made >= to[-1].maker.max_out))
        return m->above |= m->wrong == 0, NULL;
    m->item = m->shown; /* whole: the callback may have changed any of it */
    dlpi_input_zero(m->at, to);
    dlpi_input_lay(&m->item, m->at, to, &m->fields, false);
    m->added++;
    x->n_made = ++m->made;
    return &m->item;
}

/* Return the bytes of so many rows of a dataset. Its fields may not be checked yet; if they are
   wrong the number has no meaning. */
DLPI_COLD static uint64_t dlpi_filter_bytes(const dlp_dataset *ds, uint64_t rows) {
    uint64_t sum = 0;
    for (uint32_t i = 0; ds->fields != NULL && i < ds->n_fields && i < DLP_MAX_FIELDS; i++) {
        const dlp_field *f = &ds->fields[i];
        uint64_t bytes = dlpi_dtype_bytes(f->dtype);
        for (int32_t k = 0; k < f->ndim && k < DLP_MAX_DIMS; k++)
            bytes = dlpi_times(bytes, (uint64_t)f->shape[k]);
        sum = dlpi_sum(sum, bytes);
    }
    return dlpi_times(sum, rows);
}
