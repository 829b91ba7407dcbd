/* needs: guard */
#pragma once
/* tests: system/stages/guard */
#include "stages/guard.h"
#include "build/check.h"
#include "open/table.h"
DLPDEF dlp_stage dlp_pipe_add_guard(dlp_pipe *p, const dlp_guard_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_guard_ops, "guard", &desc->workers)) == NULL)
        return dlpi_add_refused(p);
    st->item = dlpi_guard_item;
    st->w.idempotent = 1; /* it changes nothing */
    return dlpi_added(p, st, dlpi_guard_take(p, st, desc));
}

DLPDEF int dlp_pipe_guard_stats(dlp_pipe *p, dlp_stage guard, uint32_t field,
                                dlp_guard_stats *out) {
    const dlpi_guard *g;
    if (p == NULL || out == NULL || guard < 0 || guard >= p->n_stages) return DLP_ERR_ARG;
    if (p->stages[guard].ops != &dlpi_guard_ops) return DLP_ERR_ARG;
    g = p->stages[guard].self;
    if (field >= g->n) return DLP_ERR_ARG;
    if (!p->started) return DLP_ERR_STATE;
    memset(out, 0, sizeof *out);
    for (int w = 0; w < p->stages[guard].n_workers; w++) {
        const dlpi_guard_block *b =
            dlpi_area_at(p, DLPI_OWN(guard, DLPI_GUARD_BLOCKS), (uint64_t)w);
        out->nan += DLPI_LOAD_RLX(&b->counts[field][DLPI_GUARD_NAN]); /* statistics, as below */
        out->inf += DLPI_LOAD_RLX(&b->counts[field][DLPI_GUARD_INF]);
        out->below += DLPI_LOAD_RLX(&b->counts[field][DLPI_GUARD_BELOW]);
        out->above += DLPI_LOAD_RLX(&b->counts[field][DLPI_GUARD_ABOVE]);
    }
    return DLP_OK;
}

static int dlpi_node_guard_add(dlpi_table *t, const dlp_node *node) {
    const dlp_guard_desc d = {.fields = node->guard.fields,
                              .n_fields = node->guard.n_fields,
                              .workers = dlpi_node_workers(t, node)};
    return dlp_pipe_add_guard(t->p, &d);
}
