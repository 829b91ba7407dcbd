/* needs: parts */
#pragma once
/* tests: system/inputs/list_orders, system/core/tables */
#include "open/table.h"
/* ---- a list of a range of the source; a map of batches with fields ---- */

/* Return how many items, or parts, the source behind a list has. It is that of a load, or the first
   one of the list's fetch rows. 0: no source says it. */
static uint64_t dlpi_list_counts(const dlpi_table *t, const dlp_node *node) {
    const dlp_node *row = node + 1, *end = t->nodes + t->n;
    if (row < end && row->verb == DLP_LOAD) {
        dlp_node_load of = row->load;
        if (of.source == NULL || of.source->parts == NULL) return 0;
        of.source->parts(of.source, &of);
        return of.n_parts;
    }
    while (row < end && row->verb == DLP_FETCH && row->fetch.source == NULL) row++;
    if (row == end || row->verb != DLP_FETCH || row->fetch.of != 0) return 0;
    return row->fetch.source->dataset != NULL ? row->fetch.source->dataset->n_items : 0;
}

/* Let the order *s of a list run over a range of the source's items, if the row asks for less than
   all. Sets t->n_items to all items. Returns 0 or a DLP_ERR code. */
static int dlpi_list_range(dlpi_table *t, const dlp_node *node, dlp_sampler_desc *s) {
    const dlp_node_list *l = &node->list;
    const uint64_t all = dlpi_list_counts(t, node);
    const uint64_t n = l->n_items > 0 ? l->n_items : all > l->first ? all - l->first : 0;
    const bool once =
        l->mix == NULL && dlpi_order_plain(s) && (t->load == NULL || t->load->load.weights == NULL);
    if (l->first == 0 && (!once || n == 0 || n >= all)) return DLP_OK;
    if (t->n > 1 && node[1].verb == DLP_FETCH && node[1].fetch.of != 0 && l->mix == NULL)
        return dlpi_bad(t->p, node->name, "list.first",
                        "0 with fetch.of, where the items of several sources are numbered together",
                        (int64_t)l->first);
    if (!once)
        return dlpi_bad(t->p, node->name, "list.first",
                        t->load != NULL
                            ? "0 with weights, or before a load whose fetch has no filter, expand, "
                              "window or pack behind it"
                            : "0 with a mix, a subset, or an order that draws",
                        (int64_t)l->first);
    if (all == 0 && n == 0) return DLP_OK; /* n_items is missing */
    if (all > 0 && (l->first >= all || n > all - l->first))
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "list.first",
                           "list.first is %" PRIu64 " and %" PRIu64 " items follow, but the source "
                           "has %" PRIu64 " items; lower list.first or list.n_items",
                           l->first, n, all);
    s->subset = dlpi_order_range;
    s->n_subset = n;
    s->function_user = (void *)(uintptr_t)l->first;
    s->function_id = dlpi_absorb(dlpi_absorb(s->function_id, l->first), ~n); /* for states */
    t->n_items = all > 0 ? all : l->first + n;
    return DLP_OK;
}

/* Refuse ragged fields of a map behind the batch. Returns 0 or a DLP_ERR code. */
static int dlpi_batch_map_given(dlpi_table *t, const dlp_node *node) {
    const dlp_field *f = node->map.fields;
    for (uint32_t k = 0; k < node->map.n_fields; k++)
        if (f[k].ragged != 0)
            return dlpi_bad_field(t->p, node->name, k, f[k].name, "ragged",
                                  "ragged is %d, must be 0 after the batch; give the most rows, "
                                  "and the lengths in a field of their own",
                                  f[k].ragged);
    return DLP_OK;
}
