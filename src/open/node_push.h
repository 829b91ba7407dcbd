/* needs: parts */
#pragma once
/* tests: system/source/push, system/source/push_makers */
#include "open/node_fetch.h"
#include "source/push.h"
/* ---- push: what producers give ---- */

static int dlpi_node_push_add(dlpi_table *t, const dlp_node *node) {
    const int32_t asked = node->queue.full;
    dlp_fetch_desc f;
    int32_t full;
    int rc;
    if (node->push.source == NULL)
        return dlpi_missing(t->p, node->name, "push.source", "what dlp_push_open has made");
    full = dlpi_push_full(node->push.source);
    if (asked != 0 && asked != full)
        return dlpi_bad(t->p, node->name, "queue.full", "0, or as dlp_push_desc.full", asked);
    t->makes = dlpi_table_makes(t);
    if (t->makes > 0) t->p->node = NULL; /* the stage that reads has the name, and no other one */
    rc = dlpi_add_sampler(t->p, &(dlp_sampler_desc){.seed = t->d->seed});
    if (rc < 0) return rc;
    if ((rc = dlpi_node_repeat(t)) < 0) return rc;
    if (t->makes > 0) return t->makes == 1 ? t->ops->makes(t, node) : rc;
    t->p->node = node->name;
    f = dlp_push_source(node->push.source)->fetch;
    f.workers = dlpi_node_workers(t, node);
    t->fetchers = f.workers.num_workers;
    rc = dlpi_fetch_workers(t, node, dlp_push_source(node->push.source), &f.workers);
    if (rc != DLP_OK) return rc;
    t->fetched = true;
    return dlpi_add_fetch(t->p, &f);
}
