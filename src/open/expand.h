/* needs: parts */
#pragma once
#include "api/expand.h"
#include "stages/expand.h"
#include "build/check.h"
DLPDEF dlp_stage dlp_pipe_add_expand(dlp_pipe *p, const dlp_expand_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, &dlpi_expand_ops, "expand", &desc->workers);
    if (st == NULL) return dlpi_add_refused(p);
    return dlpi_added(p, st, dlpi_expand_take(p, st, desc));
}

DLPDEF dlp_item *dlp_expand_add(dlp_expand *x) {
    dlpi_making *m = (dlpi_making *)(void *)x;
    const dlpi_expand *by = m->by;
    if (x->n_made >= by->d.max_out) {
        m->above = true;
        return NULL;
    }
    m->item = *x->item;
    dlpi_expand_begin(&m->item, m->cell + x->n_made * by->out_bytes, &by->out, by->out_at,
                      &m->fields, true);
    x->n_made++;
    return &m->item;
}

/* For a loader whose fetch is a filter: its workers make the items, two copy them into their rows.
   source: what else says what the rows are, or NULL. */
static dlp_stage dlpi_filter_fetch(dlp_pipe *p, dlp_fetch_desc *fetch, const void *source) {
    dlp_expand_desc d = {.workers = fetch->workers};
    int32_t n = d.workers.num_workers;
    if (source != NULL)
        return dlpi_bad(p, "", "dataset.filter", "0 with parts, whose load may leave items out", 1);
    if (d.workers.name == NULL) d.workers.name = "filter";
    if (n == 0) d.workers.num_workers = DLP_NONE;
    fetch->workers =
        (dlp_workers_desc){.num_workers = n < 2 ? n : 2, .placement = d.workers.placement};
    return dlp_pipe_add_expand(p, &d);
}
