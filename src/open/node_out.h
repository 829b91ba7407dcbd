#pragma once
/* tests: system/core/outs, system/core/tables */
#include "open/table.h"
#include "open/open.h"
/* ---- out: the last rows of a table ---- */

/* Return the row that an out reads, or NULL if no row above has that name. */
static const dlp_node *dlpi_out_reads(const dlpi_table *t, const dlp_node *node) {
    if (node->from == NULL) return node - 1;
    for (uint32_t i = 0; i < t->at; i++)
        if (strcmp(t->nodes[i].name, node->from[0]) == 0) return &t->nodes[i];
    return NULL;
}

/* Add an out row. The first out has no stage of its own: dlp_pipe_next gives its batches, and its
   capacity is max_held. Returns DLP_OK, a stage number, or a
   DLP_ERR code. */
static int dlpi_node_out_add(dlpi_table *t, const dlp_node *node) {
    const int32_t asked = t->d->max_held, each = (int32_t)node->queue.capacity;
    const dlp_node *reads = dlpi_out_reads(t, node), *last = t->nodes, *host;
    bool first;
    while (last[1].verb != DLP_OUT) last++; /* this row is one */
    host = last->verb == DLP_TRANSFER ? last - 1 : NULL;
    first = node == last + 1;
    if (!t->batched) return dlpi_node_bad(t, node, "has no batch node before it; add one");
    if (t->at + 1 < t->n && node[1].verb != DLP_OUT)
        return dlpi_node_bad(t, node, "has a row behind it that is no out; outs are the last rows");
    if (reads != NULL && reads->verb == DLP_OUT)
        return dlpi_node_bad(t, node, "stands behind an out; name in from the node that it reads");
    if (reads != last && (reads != host || host == NULL || first))
        return dlpi_refuse(t->p, DLP_ERR_GRAPH, node->name, "from",
                           "from is \"%.31s\"; %s out may read \"%s\"%s%s%s",
                           node->from != NULL ? node->from[0] : "", first ? "the first" : "an",
                           last->name, host && !first ? " or \"" : "",
                           host && !first ? host->name : "", host && !first ? "\"" : "");
    if (first && node->queue.full != DLP_FULL_WAIT)
        return dlpi_bad(t->p, node->name, "queue.full",
                        "DLP_FULL_WAIT in the first out, which has each batch", node->queue.full);
    if (first && asked != 0 && each != 0 && asked != each)
        return dlpi_bad(t->p, node->name, "queue.capacity", "0, or as max_held of the pipe's desc",
                        each);
    if (first) {
        if (each != 0) t->p->d.max_held = each;
        return DLP_OK;
    }
    if (reads == last && host != NULL)
        return dlpi_refuse(t->p, DLP_ERR_GRAPH, node->name, "from",
                           "from is \"%s\", whose buffers go to the first out; read \"%s\"",
                           last->name, host->name);
    if (t->ops->out == NULL)
        return dlpi_node_bad(t, node, "is a second out; compile without DLPIPE_NO_OUT");
    return t->ops->out(t->p, &node->queue, reads == host);
}
