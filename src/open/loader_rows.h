#pragma once
/* tests: system/stages/join */
#include "api/loader.h"
#include "open/table.h"
/* ---- the parts, filter and rows of a loader become rows of its table ---- */

/* True if a loader has parts. */
static bool dlpi_parts_given(const dlp_node_load *d) {
    return d->n_parts != 0 || d->items != NULL || d->count != NULL || d->manifest_id != 0 ||
           d->max_part_bytes != 0 || d->queue_size != 0 || d->shuffle_parts != 0 ||
           d->shuffle_items != 0 || d->load != NULL || d->user != NULL ||
           dlpi_workers_given(&d->workers) || d->max_items != 0 || d->min_items != 0 ||
           d->window != 0 || d->weights != NULL || d->source != NULL;
}

/* Add the load row of a loader with parts, and its window row. What list, run and queue say is left
   out of the load row. */
static void dlpi_loader_parts(const dlp_loader_desc *l, dlp_nodes *to) {
    dlp_node *node = dlpi_nodes_row(to, DLP_LOAD, "parts", &l->parts.workers);
    node->queue.capacity = l->parts.queue_size;
    node->load = l->parts;
    to->nodes[0].list.n_items = l->parts.n_parts;
    if (l->shuffle == 0) to->nodes[0].list.shuffle = l->parts.shuffle_parts;
    if (l->shuffle != 0) node->load.shuffle_items = 1;
    node->load.n_parts = 0;
    node->load.queue_size = node->load.window = 0;
    node->load.shuffle_parts = 0;
    node->load.workers = (dlp_workers_desc){.num_workers = 0};
    if (l->parts.window > 0)
        dlpi_nodes_row(to, DLP_WINDOW, "window", NULL)->window.items = l->parts.window;
}

/* Add the rows that a loader's desc has behind its fetch. A name that is too long is left as it is,
   for the table to refuse. If a row fetches a dataset of a mix, the first fetch has the first
   dataset. */
static void dlpi_loader_more(const dlp_loader_desc *l, dlp_nodes *to) {
    dlp_node *first = &to->nodes[to->n - 1]; /* or a filter, which no fetch may follow */
    for (uint32_t i = 0; i < l->n_rows; i++) {
        const dlp_node *row = &l->rows[i];
        dlp_node *node = dlpi_nodes_row(to, row->verb, row->name != NULL ? row->name : "row", NULL);
        const char *name = node->name;
        *node = *row;
        if (row->name == NULL || strlen(row->name) < sizeof to->names[0]) node->name = name;
        if (row->verb == DLP_FETCH && row->fetch.of > 0 && first->verb == DLP_FETCH)
            first->fetch.of = 1;
    }
}
