#pragma once
/* tests: system/open/loader_nodes, system/core/pipe_badinput */
#include "api/loader.h"
#include "open/graph.h"
#include "open/loader_rows.h"
/* ---- the loader ---- */

/* What a dataset beside a source must not say. It may say that it filters. */
static const dlpi_bound dlpi_source_says[] = {
    {DLPI_ZERO(dlp_loader_desc, dataset.n_items)},
    {DLPI_ZERO(dlp_loader_desc, dataset.fields)},
    {DLPI_ZERO(dlp_loader_desc, dataset.n_fields)},
    {DLPI_ZERO(dlp_loader_desc, dataset.writes_all_bytes)},
    {DLPI_ZERO(dlp_loader_desc, dataset.fetch)},
    {DLPI_ZERO(dlp_loader_desc, dataset.user)},
    {DLPI_ZERO(dlp_loader_desc, dataset.open_end)},
    {DLPI_ZERO(dlp_loader_desc, dataset.warning)},
    {DLPI_ZERO(dlp_loader_desc, dataset.identity)},
    {DLPI_ZERO(dlp_loader_desc, dataset.worker_bytes)},
    {DLPI_ZERO(dlp_loader_desc, dataset.reader)},
};

/* Take into *l, a copy of a loader's desc, what its source says: the dataset and, if the source has
   one, the fetcher. A filter, and the items in flight, may be set beside the source. Returns 0, or
   DLP_ERR_ARG and *err. */
static int dlpi_loader_source(dlp_loader_desc *l, dlp_error *err) {
    const dlp_source *from = l->source;
    const dlpi_bound *b = dlpi_out_of_bounds(l, DLPI_ROWS(dlpi_source_says));
    const char *twice = from->fetcher != 0 && l->fetcher != 0 ? "fetcher"
                        : b != NULL                           ? b->field
                                                              : NULL;
    const int32_t filter = l->dataset.filter;
    if (twice != NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, twice,
                              "%s is given, must be 0 or NULL: source says it; set it there",
                              twice);
    if (from->dataset != NULL) l->dataset = *from->dataset;
    if (filter != 0) l->dataset.filter = filter;
    if (from->fetcher == DLP_FETCH_SEQUENTIAL) return DLP_OK;
    l->fetcher = from->fetcher;
    l->async = from->async;
    if (l->in_flight == 0) l->in_flight = from->in_flight;
    return DLP_OK;
}

/* Check the numbers of a loader's desc that its rows do not have, or have under another name.
   Returns 0, or DLP_ERR_ARG and *err. */
static int dlpi_loader_check(const dlp_loader_desc *l, dlp_error *err) {
    const bool sequential = l->topology == DLP_TOPOLOGY_CLASSIC || l->dataset.filter != 0;
    const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_loader_desc, shuffle), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_loader_desc, drop_last), DLP_LAST_PARTIAL, DLP_LAST_PAD, "DLP_LAST_*"},
        {DLPI_AT(dlp_loader_desc, topology), 0, DLP_TOPOLOGY_CONCURRENT, "DLP_TOPOLOGY_*"},
        {DLPI_AT(dlp_loader_desc, workers.num_workers), 0, 0, "0: num_workers says it"},
        {DLPI_AT(dlp_loader_desc, fetcher), INT16_MIN, sequential ? 0 : INT32_MAX,
         "DLP_FETCH_SEQUENTIAL in the classic topology, and with dataset.filter"},
        {DLPI_AT(dlp_loader_desc, dataset.filter), 0, !dlpi_parts_given(&l->parts),
         "0 or 1, and 0 with parts, whose load may leave items out"},
        {DLPI_AT(dlp_loader_desc, pipe.epochs), 0, 0, "0: epochs says it"},
        {DLPI_AT(dlp_loader_desc, pipe.seed), 0, 0, "0: seed says it"},
        {DLPI_AT(dlp_loader_desc, n_rows), l->rows != NULL, l->rows ? DLP_MAX_STAGES : 0,
         "1..16 with rows, 0 without"},
        {DLPI_AT(dlp_loader_desc, device_buffers), 0, l->device ? 256 : 0, "0 without a device"},
        {DLPI_AT(dlp_loader_desc, transfer_thread), 0, l->device != NULL,
         "0 or 1, and 0 without a device"},
    };
    const dlpi_bound *b = dlpi_out_of_bounds(l, DLPI_ROWS(bounds));
    if (b == NULL) return DLP_OK;
    return dlpi_error_set(err, DLP_ERR_ARG, b->field, "%s is %" PRId64 ", must be %s", b->field,
                          dlpi_bound_got(b, l), b->words);
}

/* Return how many batches each worker of the concurrent topology has ahead: so many that the items
   in flight fit. */
static int32_t dlpi_loader_ahead(const dlp_loader_desc *l) {
    const uint64_t world = l->pipe.world_size ? l->pipe.world_size : 1;
    const uint64_t rows = (l->batch_size + world - 1) / world;
    const int32_t ahead = l->pipe.prefetch_factor;
    uint64_t need = 1;
    if (rows > 0 && l->batch_pool > 0)
        need = l->batch_pool / rows;
    else if (rows > 0 && ahead == 0 && l->fetcher != DLP_FETCH_SEQUENTIAL)
        need = 1 + ((uint64_t)dlpi_fetch_many(l->in_flight) + rows - 1) / rows;
    if (need <= (uint64_t)(ahead > 0 ? ahead : 2)) return ahead != 0 ? ahead : 2;
    return need < INT32_MAX ? (int32_t)need : INT32_MAX;
}

/* Set up the topology of a loader. In all but the economic one each worker gets whole batches in
   turn, and with a collate a batch worker for each collates them. Inline, one worker has all
   batches. Returns 0, or DLP_ERR_ARG and *err. */
static int dlpi_loader_topology(dlp_loader_desc *l, dlp_error *err) {
    const int32_t n = l->num_workers;
    if (l->topology == DLP_TOPOLOGY_ECONOMIC) return DLP_OK;
    if (l->topology == DLP_TOPOLOGY_CONCURRENT) l->pipe.prefetch_factor = dlpi_loader_ahead(l);
    if (n < 1 || n > DLP_MAX_WORKERS) return DLP_OK;
    if (l->pipe.prefetch_factor == 0) l->pipe.prefetch_factor = 2;
    if (l->pipe.prefetch_factor < 1 || l->pipe.prefetch_factor > 4096 / n)
        return dlpi_error_set(err, DLP_ERR_ARG, "prefetch_factor",
                              "prefetch_factor is %" PRId32 ", must be at most 4096 / num_workers",
                              l->pipe.prefetch_factor);
    l->pipe.prefetch_factor *= n;
    l->workers.dispatch = l->batch_workers.dispatch = DLP_DISPATCH_BATCHES;
    if (l->collate && l->batch_workers.num_workers == 0) l->batch_workers.num_workers = n;
    return DLP_OK;
}

/* ---- the rows of a loader's table ---- */

/* Fill the table *to with the rows of a loader. */
static void dlpi_loader_rows(const dlp_loader_desc *l, dlp_nodes *to) {
    dlp_node *node = dlpi_nodes_row(to, DLP_LIST, "sampler", NULL);
    const int32_t none = dlpi_parts_given(&l->parts) ? DLP_NONE : 0; /* not those of the parts */
    const dlp_source fetch = {.dataset = &to->dataset,
                              .fetcher = l->fetcher,
                              .in_flight = l->in_flight,
                              .batch_pool = l->batch_pool,
                              .async = l->async};
    dlp_workers_desc w = l->workers;
    to->order = l->sampler;
    to->order.threaded = 0;
    to->dataset = l->dataset;
    to->pipe = l->pipe;
    to->pipe.epochs = l->epochs;
    to->pipe.seed = l->seed != 0 ? l->seed : l->sampler.seed;
    node->list.order = &to->order;
    node->list.shuffle = l->shuffle;
    node->workers.num_workers = l->sampler.threaded;
    w.num_workers = l->num_workers == DLP_NONE || l->num_workers == 0 ? none : l->num_workers;
    if (dlpi_parts_given(&l->parts)) dlpi_loader_parts(l, to);
    dlpi_nodes_fetch(to, "fetch", &fetch, l->dataset.filter != 0 ? NULL : &w, l->source);
    if (l->dataset.filter != 0) { /* then the filter has the workers */
        node = dlpi_nodes_row(to, DLP_FILTER, "filter", &w);
        if (node->workers.num_workers == 0) node->workers.num_workers = DLP_NONE;
    }
    dlpi_loader_more(l, to);
    if (l->cache.bytes > 0) dlpi_nodes_row(to, DLP_CACHE, "cache", NULL)->cache = l->cache;
    node = dlpi_nodes_row(to, DLP_BATCH, "batch", &l->batch_workers);
    if (node->workers.placement == 0) node->workers.placement = l->workers.placement;
    node->batch = (dlp_node_batch){.batch_size = l->batch_size,
                                   .last = l->drop_last,
                                   .collate = l->collate,
                                   .collate_user = l->collate_user,
                                   .out_fields = l->out_fields,
                                   .n_out_fields = l->n_out_fields};
    dlpi_nodes_transfer(to, l->device, l->device_buffers, l->transfer_thread);
}

DLPDEF int dlp_loader_nodes(dlp_nodes *to, const dlp_loader_desc *desc, dlp_error *err) {
    dlp_loader_desc l;
    int rc = dlpi_open_args(to, to, "", desc, err);
    if (rc != DLP_OK) return rc;
    l = *desc;
    memset(to, 0, sizeof *to);
    if (l.source != NULL && (rc = dlpi_loader_source(&l, err)) != DLP_OK) return rc;
    if ((rc = dlpi_loader_check(&l, err)) != DLP_OK) return rc;
    if ((rc = dlpi_loader_topology(&l, err)) == DLP_OK) dlpi_loader_rows(&l, to);
    return rc;
}

DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err) {
    dlp_nodes to;
    int rc = dlpi_open_args(out, out, "", desc, err);
    if (rc != DLP_OK || (rc = dlp_loader_nodes(&to, desc, err)) != DLP_OK) return rc;
    return dlp_pipe_open(out, to.nodes, to.n, &to.pipe, err);
}
