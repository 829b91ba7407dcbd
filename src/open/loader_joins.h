/* needs: join */
#pragma once
/* tests: system/stages/join */
#include "api/loader.h"
#include "open/table.h"
/* ---- the joins of a loader become rows ---- */

/* Add a row to `to` for each join of a loader's desc. Returns 0 or a DLP_ERR code. */
static int dlpi_loader_joins(dlp_pipe *p, const dlp_loader_desc *d, dlp_nodes *to) {
    dlp_node *first = &to->nodes[to->n - 1]; /* or a filter, which no join may follow */
    uint32_t of = 1;
    for (uint32_t i = 0; i < d->n_joins && i < DLP_MAX_STAGES; i++) {
        dlp_node *node = dlpi_nodes_fetch(to, "join", &d->joins[i].fetch, NULL);
        const int rc = dlpi_within(p, node->name, "how", d->joins[i].how, 0, DLP_JOIN_MIX,
                                   "DLP_JOIN_ZIP or DLP_JOIN_MIX");
        if (rc != DLP_OK) return rc;
        if (d->joins[i].how != DLP_JOIN_MIX) continue;
        node->fetch.of = ++of;
        if (first->verb == DLP_FETCH) first->fetch.of = 1;
    }
    return DLP_OK;
}
