/* needs: parts */
#pragma once
/* tests: system/source/push, system/source/push_makers */
#include "open/node_fetch.h"
#include "source/push.h"
/* ---- push: a table that begins with items which producers push ---- */

/* Check the desc of a push row. Returns 0 or a DLP_ERR code. */
static int dlpi_node_push_check(dlpi_table *t, const dlp_node *node) {
    const int32_t asked = node->queue.full;
    const int32_t full = dlpi_push_full(node->push.source);
    if (asked == 0 || asked == full) return DLP_OK;
    return dlpi_bad(t->p, node->name, "queue.full", "0, or as dlp_push_desc.full", asked);
}

/* Add the sampler and repeat stages of a table that begins with a push. Returns a stage number or a
   DLP_ERR code. */
static int dlpi_node_push_begin(dlpi_table *t, const dlp_node *node) {
    int rc = dlpi_node_push_check(t, node);
    if (rc != DLP_OK) return rc;
    t->makes = dlpi_table_makes(t);
    return dlpi_add_sampler(t->p, &(dlp_sampler_desc){.seed = t->d->seed});
}

/* Add the stages of a push row: sampler, repeat, and the fetch that takes pushed items. If later
   rows make items, they add the fetch. Returns a stage number or a DLP_ERR code. */
static int dlpi_node_push_add(dlpi_table *t, const dlp_node *node) {
    dlp_source f;
    int rc = dlpi_node_push_begin(t, node);
    if (rc < 0) return rc;
    if (t->makes > 0) return t->makes == 1 ? t->ops->makes(t, node) : rc;
    t->p->node = node->name;
    f = *dlp_push_source(node->push.source);
    f.workers = dlpi_node_workers(t, node);
    t->fetchers = f.workers.num_workers;
    rc = dlpi_fetch_workers(t, node, dlp_push_source(node->push.source), &f.workers);
    if (rc != DLP_OK) return rc;
    t->fetched = true;
    return dlpi_add_fetch(t->p, &f);
}
