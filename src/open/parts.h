/* needs: parts */
#pragma once
/* tests: system/stages/parts */
#include "stages/parts.h"
#include "stages/found.h"
#include "open/expand.h"
#include "inputs/table.h"
static dlp_stage dlpi_add_parts(dlp_pipe *p, const dlp_part_desc *desc) {
    const bool found = desc->items == NULL && desc->count == NULL && desc->max_items > 0;
    dlpi_stage *st =
        dlpi_add(p, found ? &dlpi_found_ops : &dlpi_parts_ops, "parts", &desc->workers);
    if (st == NULL) return p->err.code;
    return dlpi_added(p, st, found ? dlpi_found_take(p, st, desc) : dlpi_parts_take(p, st, desc));
}

/* ---- the rows of a loader ---- */

/* The part queue of a loader. What the list, the run and the queue say is no field of the row. */
static void dlpi_loader_parts(const dlp_loader_desc *d, dlp_nodes *to) {
    dlp_part_desc *load = &to->nodes[1].load;
    dlp_node_list *list = &to->nodes[0].list;
    dlp_pipe_desc *run = &to->pipe;
    if (d->parts.load == NULL && d->parts.n_parts == 0 && d->parts.max_part_bytes == 0) return;
    dlpi_nodes_row(to, DLP_LOAD, "parts", &d->parts.workers)->queue.capacity = d->parts.queue_size;
    *load = d->parts;
    list->n_items = load->n_parts;
    list->shuffle = d->shuffle == 1 ? 1 : load->shuffle_parts;
    if (d->shuffle == 1) load->shuffle_items = 1;
    to->order.order = DLP_ORDER_SEQUENTIAL;
    run->streams = load->streams;
    run->steps_per_epoch = load->steps_per_epoch;
    run->uneven = load->uneven;
    run->shared_streams = load->shared_streams;
    run->agree = load->agree;
    run->agree_user = load->agree_user;
    if (load->window > 0)
        dlpi_nodes_row(to, DLP_WINDOW, "window", NULL)->window.items = load->window;
    load->n_parts = 0;
    load->steps_per_epoch = 0;
    load->queue_size = load->streams = load->window = 0;
    load->shuffle_parts = load->uneven = load->shared_streams = 0;
    load->agree = NULL;
    load->agree_user = NULL;
    load->workers = (dlp_workers_desc){.num_workers = 0};
}

/* The fetch of a loader whose dataset is a filter: a filter row makes the items. It has the
   workers. */
static int dlpi_loader_filter(dlp_pipe *p, const dlp_fetch_desc *d, dlp_nodes *to) {
    dlp_fetch_desc f = *d;
    dlp_node *node;
    if (to->n > 1)
        return dlpi_bad(p, "", "dataset.filter", "0 with parts, whose load may leave items out", 1);
    if (f.fetcher != DLP_FETCH_SEQUENTIAL)
        return dlpi_bad(p, "", "fetch.fetcher",
                        "DLP_FETCH_SEQUENTIAL (and in_flight 0) with dataset.filter", f.fetcher);
    if (f.workers.dispatch == DLP_DISPATCH_BATCHES)
        return dlpi_bad(p, "", "dataset.filter",
                        "0 with whole batches to each worker (topology, dispatch)", 1);
    f.workers = (dlp_workers_desc){.num_workers = 0};
    dlpi_nodes_fetch(to, "fetch", &f);
    node = dlpi_nodes_row(to, DLP_FILTER, "filter", &d->workers);
    if (node->workers.num_workers == 0) node->workers.num_workers = DLP_NONE;
    return DLP_OK;
}
