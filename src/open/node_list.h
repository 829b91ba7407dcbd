#pragma once
/* tests: system/core/tables */
#include "open/table.h"
#include "open/node_range.h" /* needs: parts */
#include "open/add.h"
#include "order/mixed.h"
/* ---- list: the sampler and the epochs ---- */

/* Set function_id of the order to the id of a fetch's source, so that a saved state knows its data.
   Nothing is done if function_id is the user's number of an order. Returns 0 or a DLP_ERR code. */
static int dlpi_source_id(const dlpi_table *t, const dlp_node *node, const dlp_source *source,
                          dlp_sampler_desc *s) {
    if (source == NULL || source->id == 0 || s->function != NULL || s->batches.next != NULL)
        return DLP_OK;
    if (s->function_id != 0 && s->function_id != source->id)
        return dlpi_bad(t->p, node->name, "list.order.function_id", "0: the source says it",
                        (int64_t)s->function_id);
    s->function_id = source->id;
    return DLP_OK;
}

/* Write into *s the order of a list row, with the pipe's seed. Sets t->n_items. Returns 0 or a
   DLP_ERR code. */
static int dlpi_list_order(dlpi_table *t, const dlp_node *node, dlp_sampler_desc *s) {
    const dlp_node_list *l = &node->list;
    const bool later = node != t->nodes; /* then the pipe has a seed, which may be 0 */
    bool plain;
    int rc = DLP_OK;
    t->n_items = l->mix != NULL ? l->mix->total : l->n_items;
    if (l->order != NULL) *s = *l->order;
    plain = s->subset == NULL && l->mix == NULL && s->order == DLP_ORDER_SEQUENTIAL;
    if (l->mix != NULL &&
        ((l->order != NULL && s->order != DLP_ORDER_BATCHES) || l->shuffle != 0 || l->n_items != 0))
        return dlpi_not_null(t->p, node->name, "list.mix",
                             "beside shuffle, n_items and order, unless that is batches of a mix");
    if (l->mix != NULL && t->ops->mix == NULL)
        return dlpi_not_null(t->p, node->name, "list.mix",
                             "with DLPIPE_NO_MIX; compile without it");
    if (l->mix != NULL && l->order == NULL) t->ops->mix(l->mix, s);
    if (l->mix != NULL && l->order == NULL && (t->d->seed != 0 || later) && s->seed != t->d->seed)
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "list.mix",
                           "the mix has seed %" PRIu64 ", and the pipe has seed %" PRIu64
                           "; set both alike%s",
                           s->seed, t->d->seed, later ? "" : ", or only the mix's");
    if (s->threaded != 0)
        return dlpi_bad(t->p, node->name, "list.order.threaded",
                        "0; set workers.num_workers of the list", s->threaded);
    if (s->seed != 0 && t->d->seed != 0 && s->seed != t->d->seed)
        return dlpi_bad(t->p, node->name, "list.order.seed", "0; set the pipe's seed",
                        (int64_t)s->seed);
    if (l->shuffle != 0 && l->order != NULL && s->order != DLP_ORDER_SEQUENTIAL)
        return dlpi_bad(t->p, node->name, "list.shuffle", "0 beside list.order", l->shuffle);
    if (t->load != NULL && !plain)
        return dlpi_not_null(t->p, node->name,
                             l->mix != NULL      ? "list.mix"
                             : s->subset != NULL ? "list.order.subset"
                                                 : "list.order",
                             "before a load node: list.shuffle says the order");
    if (l->shuffle != 0) s->order = DLP_ORDER_SHUFFLED;
    if (t->load != NULL && t->makes == 0 && t->joins == NULL) s->order = DLP_ORDER_PARTS;
    if (t->n > 1 && node[1].verb == DLP_FETCH &&
        (rc = dlpi_source_id(t, node, node[1].fetch.source, s)) != DLP_OK)
        return rc;
    s->threaded = node->workers.num_workers;
    if (t->d->seed != 0) s->seed = t->d->seed;
    rc = dlpi_list_range(t, node, s); /* needs: parts */
    return rc;
}

/* Add the sampler and repeat stages of a table that begins with a list. Sets t->load, t->makes and
   t->n_items. Returns a stage number or a DLP_ERR code. */
static int dlpi_node_list_add(dlpi_table *t, const dlp_node *node) {
    dlp_sampler_desc s = {.order = DLP_ORDER_SEQUENTIAL};
    const int32_t open_end = node->list.open_end;
    const bool counts = t->n > 1 && node[1].verb == DLP_FETCH && node[1].fetch.source != NULL;
    int rc;
    t->load = dlpi_node_next(t, 1, DLPI_NODE_LOADS);
    t->makes = dlpi_table_makes(t);
    if ((rc = dlpi_list_order(t, node, &s)) != DLP_OK) return rc;
    t->p->d.seed = s.seed;
    t->order = s;
    t->p->datasets.mix = node->list.mix;
    if (t->joins != NULL && !dlpi_order_plain(&s)) /* the branch has it */
        s = (dlp_sampler_desc){
            .seed = s.seed, .function_id = s.function_id, .threaded = s.threaded};
    if (open_end &&
        (t->load != NULL || t->n_items != 0 || node->list.shuffle != 0 || node->list.first != 0))
        return dlpi_bad(t->p, node->name, "list.open_end",
                        "0 before a load node, and with n_items, first, shuffle or mix", 1);
    if (t->n_items == 0 && !open_end && !counts && t->load == NULL)
        return dlpi_bad(t->p, node->name, "list.n_items", "1..2^48, or 0 with a source", 0);
    return dlpi_add_sampler(t->p, &s);
}
