/* needs: parts */
#pragma once
/* tests: system/stages/parts */
#include "stages/parts.h"
#include "stages/expand.h"
#include "stages/found.h"
#include "build/check.h"
/* ---- parts before a maker: the items of a part are made into other items in the same cell ---- */

/* Get the counts of all parts from the desc, as sums in x->firsts. Returns 0 or a DLP_ERR code. */
static int dlpi_expand_take_counts(dlp_pipe *p, dlpi_expand *x, const dlpi_stage *st) {
    const dlp_node_load d = x->part;
    uint64_t items = 0;
    int rc = dlpi_parts_bounds(p, st, &d);
    if (rc != DLP_OK) return rc;
    x->firsts = calloc((size_t)d.n_parts + 1, sizeof *x->firsts);
    if (x->firsts == NULL) return dlpi_no_memory(p, "items", "the parts' counts");
    for (uint64_t i = 0; i < d.n_parts && rc == DLP_OK; i++) {
        rc = dlpi_parts_count_one(p, st, &d, i, DLPI_MAX_ITEMS - x->firsts[i], &items);
        x->firsts[i + 1] = x->firsts[i] + items;
        if (items > x->part.max_items) x->part.max_items = items;
    }
    return rc;
}

/* Let the stage make its items out of the items of parts. Returns 0 or a DLP_ERR code. */
static int dlpi_expand_take_parts(dlp_pipe *p, dlpi_stage *st, const dlp_node_load *d) {
    dlpi_expand *x = st->self;
    uint64_t *id = &x->found.d.manifest_id;
    const bool counts = d->items == NULL && d->count == NULL && d->max_items > 0;
    int rc;
    x->part = *d;
    rc = counts ? dlpi_found_bounds(p, st, d) : dlpi_expand_take_counts(p, x, st);
    if (rc != DLP_OK) return rc;
    x->part.items = NULL;
    x->found.d.load = d->load;
    x->found.most_items = x->part.max_items;
    x->found.plan.n_inputs = d->n_parts;
    *id = dlpi_absorb(dlpi_absorb(*id, d->manifest_id), (uint64_t)d->shuffle_items);
    if (!counts) *id = dlpi_order_hash_array(*id, x->firsts, d->n_parts + 1);
    return counts && d->weights != NULL ? dlpi_found_take_weights(p, st, d->weights) : DLP_OK;
}
