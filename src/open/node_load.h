/* needs: parts */
#pragma once
/* tests: system/core/tables, system/stages/taps, system/stages/parts */
#include "open/node_fetch.h"
#include "open/open.h"
#include "stages/parts.h"
#include "stages/expand.h"
#include "stages/found.h"
/* ---- load, window: rows of items of unknown count ---- */

/* Return the items of the window behind the rows that are being added; 0 if none stands there. */
static uint32_t dlpi_window_after(const dlpi_table *t) {
    const dlp_node *node = dlpi_table_window(t, t->at);
    return node != NULL ? node->window.items : 0;
}

/* Let the windows of plan q have the groups that a window row asks for, if it does. f: the n fields
   of the items. Returns 0 or a DLP_ERR code. */
static int dlpi_window_groups(dlpi_table *t, const dlp_node *node, const dlp_field *f, uint32_t n,
                              dlpi_found_plan *q) {
    const dlp_node_window *d = &node->window;
    const int rc = dlpi_check_pair(t->p, node->name, "window.by", d->by, "window.group", d->group);
    if (rc != DLP_OK || d->group == 0) return rc;
    if (d->items % d->group != 0)
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "window.group",
                           "window.group is %" PRIu32 ", must be a divisor of window.items, "
                           "%" PRIu32,
                           d->group, d->items);
    for (uint32_t k = 0; k < n; k++)
        if (f[k].ragged && f[k].shape[0] <= UINT32_MAX && strcmp(f[k].name, d->by) == 0) {
            q->group = d->group;
            q->by = k;
            return DLP_OK;
        }
    return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "window.by",
                       "window.by is \"%.32s\", must be a ragged field that a row above writes, "
                       "of less than 2^32 rows; move \"%s\" behind that row",
                       d->by, node->name);
}

/* Check that a window row before or behind a pack has no groups. node: NULL: there is none. */
static int dlpi_window_ungrouped(const dlpi_table *t, const dlp_node *node) {
    if (node == NULL || (node->window.group == 0 && node->window.by == NULL)) return DLP_OK;
    return dlpi_bad(t->p, node->name, "window.group",
                    "0, without `by`, beside a pack, whose rows are full", node->window.group);
}

/* Check a window row. The row adds no stage: the stage above it takes its items. Returns 0 or a
   DLP_ERR code. */
static int dlpi_node_window_add(dlpi_table *t, const dlp_node *node) {
    const dlp_node *before = node - 1;
    if (before->verb == DLP_CACHE) before--;
    if (!dlpi_node_is(t, before, DLPI_NODE_FINDS) && t->makes != t->at - (before < node - 1)) {
        const dlp_node *cache = node;
        while (cache > t->nodes && cache->verb != DLP_CACHE && cache->verb != DLP_BATCH) cache--;
        if (cache->verb == DLP_CACHE && cache < before)
            return dlpi_refuse(t->p, DLP_ERR_GRAPH, node->name, "",
                               "\"%s\" stands behind \"%s\", which changes what the cache \"%s\" "
                               "keeps; move \"%s\" above \"%s\", or \"%s\" directly behind it",
                               node->name, before->name, cache->name, before->name, cache->name,
                               node->name);
        return dlpi_node_bad(t, node,
                             "must stand before the batch, directly after push, load, fetch, map, "
                             "expand, filter or pack");
    }
    return DLP_OK;
}

/* Take into *d what the source of a load row says of its parts. Returns 0 or a DLP_ERR code. */
static int dlpi_load_source(dlpi_table *t, const dlp_node *node, dlp_node_load *d) {
    const dlp_source *source = d->source;
    if (source->parts == NULL)
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "load.source",
                           "the source of \"%s\" has no parts; set load.load, or give the source "
                           "to a fetch node",
                           node->name);
    source->parts(source, d);
    if (t->n_items != 0 && t->n_items != d->n_parts)
        return dlpi_refuse(t->p, DLP_ERR_ARG, t->list->name, "list.n_items",
                           "list.n_items is %" PRIu64 ", and the source of \"%s\" has %" PRIu64
                           " parts; set 0, which takes that number",
                           t->n_items, node->name, d->n_parts);
    t->n_items = d->n_parts;
    return DLP_OK;
}

/* Add to *to what the files are that a load without a source reads. Returns the load's source, or
   NULL. */
static const dlp_source *dlpi_load_identify(const dlp_node_load *d, dlp_identity *to) {
    const dlp_part_files *f = dlpi_part_files_of(d->load, d->user);
    if (f == NULL) f = dlpi_tar_files_of(d->load, d->user); /* needs: tar */
    if (d->source == NULL) dlpi_part_files_identify(to, f);
    return d->source;
}

/* Write into *d the desc of a load row, with its count of parts. Returns 0 or a DLP_ERR code. */
static int dlpi_load_desc(dlpi_table *t, const dlp_node *node, dlp_node_load *d) {
    *d = node->load;
    if (node != t->load) return dlpi_node_bad(t, node, "must stand directly after the list");
    if (d->source != NULL) return dlpi_load_source(t, node, d);
    d->n_parts = t->n_items;
    return DLP_OK;
}

/* Add the stage of a load row, which reads parts. Returns a stage number or a DLP_ERR code. */
static int dlpi_node_load_add(dlpi_table *t, const dlp_node *node) {
    dlp_node_load d;
    dlpi_stage *st;
    bool found;
    int rc = dlpi_load_desc(t, node, &d);
    if (rc != DLP_OK) return rc;
    d.queue_size = node->queue.capacity;
    d.workers = node->workers;
    if ((rc = dlpi_fetch_workers(t, node, d.source, &d.workers)) != DLP_OK) return rc;
    d.shuffle_parts = t->nodes->list.shuffle;
    d.window = dlpi_window_after(t);
    if (d.window > 0 &&
        (rc = dlpi_window_groups(t, dlpi_table_window(t, t->at), NULL, 0, NULL)) != DLP_OK)
        return rc;
    t->unknown = true;
    found = d.items == NULL && d.count == NULL && d.max_items > 0;
    st = dlpi_add(t->p, found ? &dlpi_found_ops : &dlpi_parts_ops, "parts", &d.workers);
    if (st == NULL) return t->p->err.code;
    return dlpi_added(t->p, st, (found ? dlpi_found_take : dlpi_parts_take)(t->p, st, &d));
}

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
