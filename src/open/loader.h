#pragma once
/* tests: system/open/loader_nodes, system/core/pipe_badinput */
#include "api/loader.h"
#include "open/graph.h"
#include "open/loader_joins.h" /* needs: join */
/* ---- the loader ---- */

/* The descs of a loader's stages, copied from its own desc. The topology of the loader changes some
   numbers before the stages are added. */
typedef struct dlpi_loader {
    dlp_sampler_desc sampler;
    dlp_dataset dataset; /* the one that `fetch` points to */
    dlp_fetch_desc fetch;
    dlp_batch_desc batch;
    dlp_pipe_desc run;
} dlpi_loader;

/* Give the fields of a loader's stages the values of the short names that stand for them. Refuse a
   short name and a field that differ. Returns 0 or a DLP_ERR code. */
static int dlpi_loader_short(dlp_pipe *p, const dlp_loader_desc *d, dlpi_loader *l) {
    struct {
        const char *field, *wants;
        int64_t brief, full;
    } both[] = {
        {"batch.batch_size", "0, or as the loader's batch_size", d->batch_size,
         l->batch.batch_size},
        {"fetch.workers.num_workers", "0, or as the loader's num_workers", d->num_workers,
         l->fetch.workers.num_workers},
        {"sampler.order", "0 or DLP_ORDER_SHUFFLED with shuffle",
         d->shuffle ? DLP_ORDER_SHUFFLED : 0, l->sampler.order},
        {"batch.last", "0 or DLP_LAST_DROP with drop_last", d->drop_last ? DLP_LAST_DROP : 0,
         l->batch.last},
        {"pipe.epochs", "0, or as the loader's epochs", d->epochs, l->run.epochs},
        {"sampler.seed", "0, or as the loader's seed", (int64_t)d->seed, (int64_t)l->sampler.seed},
        {"pipe.seed", "0, or as the loader's seed", (int64_t)d->seed, (int64_t)l->run.seed},
        {"batch.workers.num_workers", "0: batch.batch_workers says it", l->batch.batch_workers,
         l->batch.workers.num_workers},
    };
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        int64_t brief = both[i].brief, full = both[i].full;
        if (brief != 0 && full != 0 && brief != full)
            return dlpi_bad(p, "", both[i].field, both[i].wants, full);
        if (full == 0) both[i].full = brief;
    }
    if (l->sampler.seed != 0 && l->run.seed != 0 && l->sampler.seed != l->run.seed)
        return dlpi_bad(p, "", "pipe.seed", "0, or as sampler.seed", (int64_t)l->run.seed);
    l->batch.batch_size = (uint32_t)both[0].full;
    /* inline, whichever way it was said */
    l->fetch.workers.num_workers = both[1].full == DLP_NONE ? 0 : (int32_t)both[1].full;
    l->sampler.order = (int32_t)both[2].full;
    l->batch.last = (int32_t)both[3].full;
    l->run.epochs = both[4].full;
    l->run.seed = (uint64_t)(both[5].full != 0 ? both[5].full : both[6].full);
    l->batch.batch_workers = (int32_t)both[7].full;
    return DLP_OK;
}

/* Return the name of the first field of a dataset that is set, or NULL if none is. filter does not
   count: it may be set beside a source's dataset. */
static const char *dlpi_dataset_given(const dlp_dataset *d) {
    if (d->n_items != 0) return "dataset.n_items";
    if (d->fields != NULL) return "dataset.fields";
    if (d->n_fields != 0) return "dataset.n_fields";
    if (d->writes_all_bytes != 0) return "dataset.writes_all_bytes";
    if (d->fetch != NULL) return "dataset.fetch";
    if (d->user != NULL) return "dataset.user";
    if (d->open_end != 0) return "dataset.open_end";
    if (d->warning != NULL) return "dataset.warning";
    return d->reader != NULL ? "dataset.reader" : NULL;
}

/* Take the dataset of a loader, its own or that of its source, into *l. A filter may be set beside
   the source. A source that has a fetcher says how it fetches, but not how many items are in
   flight. Returns 0 or a DLP_ERR code. */
static int dlpi_loader_dataset(dlp_pipe *p, const dlp_loader_desc *d, dlpi_loader *l) {
    const dlp_fetch_desc *from = d->source != NULL ? &d->source->fetch : NULL;
    const char *given = from != NULL ? dlpi_dataset_given(&d->dataset) : NULL;
    if (from != NULL && from->fetcher != 0 && d->fetch.fetcher != 0) given = "fetch.fetcher";
    if (d->fetch.dataset != NULL) given = "fetch.dataset";
    if (given != NULL)
        return dlpi_refuse(p, DLP_ERR_ARG, "", given,
                           "%s is given, must be 0 or NULL: %s says it; set it there", given,
                           from != NULL ? "source" : "dataset");
    if (from != NULL && from->dataset != NULL) l->dataset = *from->dataset;
    if (d->dataset.filter != 0) l->dataset.filter = d->dataset.filter;
    if (from == NULL || from->fetcher == DLP_FETCH_SEQUENTIAL) return DLP_OK;
    l->fetch.fetcher = from->fetcher;
    l->fetch.async = from->async;
    if (l->fetch.in_flight == 0) l->fetch.in_flight = from->in_flight;
    return DLP_OK;
}

static int dlpi_loader_stages(dlp_pipe *p, const dlp_loader_desc *d, dlpi_loader *l) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_loader_desc, shuffle), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_loader_desc, drop_last), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_loader_desc, topology), 0, DLP_TOPOLOGY_CONCURRENT, "DLP_TOPOLOGY_*"},
        {DLPI_AT(dlp_loader_desc, n_joins), 0, DLP_MAX_STAGES, "0..16"}, /* needs: join */
    };
    int rc = dlpi_check_bounds(p, "", d, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    rc = dlpi_check_pair(p, "", "joins", d->joins, "n_joins", d->n_joins); /* needs: join */
    if (rc != DLP_OK) return rc;                                           /* needs: join */
    if ((rc = dlpi_loader_dataset(p, d, l)) != DLP_OK) return rc;
    if (l->batch.workers.placement == 0) l->batch.workers.placement = l->fetch.workers.placement;
    return dlpi_loader_short(p, d, l);
}

/* Set up the classic topology: each worker gets whole batches in turn, and with a collate a batch
   worker for each collates them. Returns 0 or a DLP_ERR code. */
static int dlpi_loader_classic(dlp_pipe *p, dlpi_loader *l) {
    int64_t n = l->fetch.workers.num_workers, each = p->d.prefetch_factor;
    int rc = dlpi_within(p, "", "num_workers", n, 0, DLP_MAX_WORKERS, "0..1024");
    if (rc != DLP_OK || n == 0) return rc; /* inline: one worker has all, whatever the topology */
    if (each == 0) each = 2;
    rc = dlpi_within(p, "", "prefetch_factor", each, 1, 4096 / n, "at most 4096 / num_workers");
    if (rc != DLP_OK) return rc;
    p->d.prefetch_factor = (int32_t)(n * each);
    l->fetch.workers.dispatch = DLP_DISPATCH_BATCHES;
    l->batch.workers.dispatch = DLP_DISPATCH_BATCHES;
    if (l->batch.collate && l->batch.batch_workers == 0) l->batch.batch_workers = (int32_t)n;
    return DLP_OK;
}

/* Set up the concurrent topology: the classic one, with several items in flight in each worker, and
   so many batches for each that these items fit. Returns 0 or a DLP_ERR code. */
static int dlpi_loader_concurrent(dlp_pipe *p, dlpi_loader *l) {
    uint64_t world = l->run.world_size ? l->run.world_size : 1;
    uint64_t rows = (l->batch.batch_size + world - 1) / world, need = 1;
    const uint64_t many = (uint64_t)dlpi_fetch_many(&l->fetch);
    if (rows > 0 && l->fetch.batch_pool > 0)
        need = l->fetch.batch_pool / rows;
    else if (rows > 0 && p->d.prefetch_factor == 0 && l->fetch.fetcher != DLP_FETCH_SEQUENTIAL)
        need = 1 + (many + rows - 1) / rows;
    if (p->d.prefetch_factor == 0) p->d.prefetch_factor = 2;
    if (need > (uint64_t)p->d.prefetch_factor)
        p->d.prefetch_factor = need < INT32_MAX ? (int32_t)need : INT32_MAX;
    return dlpi_loader_classic(p, l);
}

static int dlpi_loader_topology(dlp_pipe *p, const dlp_loader_desc *d, dlpi_loader *l) {
    int rc;
    if (d->topology == DLP_TOPOLOGY_ECONOMIC) return DLP_OK;
    if (d->topology == DLP_TOPOLOGY_CONCURRENT) return dlpi_loader_concurrent(p, l);
    rc = dlpi_within(p, "", "fetch.fetcher", l->fetch.fetcher, 0, 0,
                     "DLP_FETCH_SEQUENTIAL in the classic topology (the concurrent has others)");
    return rc == DLP_OK ? dlpi_loader_classic(p, l) : rc;
}

/* ---- the rows of a loader's table ---- */

/* Add the row of the list, and copy the desc of the run. */
static void dlpi_loader_list(const dlpi_loader *l, dlp_nodes *to) {
    dlp_node *node = dlpi_nodes_row(to, DLP_LIST, "sampler", NULL);
    node->workers.num_workers = l->sampler.threaded;
    node->list.order = &to->order;
    to->order = l->sampler;
    to->order.threaded = 0;
    to->order.seed = 0;
    to->pipe = l->run;
}

static void dlpi_loader_batch(const dlp_batch_desc *d, dlp_nodes *to) {
    dlp_node *node = dlpi_nodes_row(to, DLP_BATCH, "batch", &d->workers);
    node->workers.num_workers = d->batch_workers;
    node->batch = (dlp_node_batch){.batch_size = d->batch_size,
                                   .last = d->last,
                                   .collate = d->collate,
                                   .collate_user = d->collate_user,
                                   .out_fields = d->out_fields,
                                   .n_out_fields = d->n_out_fields};
}

/* Add the transfer row, if the loader has a device. Returns 0 or a DLP_ERR code. */
static int dlpi_loader_device(dlp_pipe *p, const dlp_transfer_desc *d, dlp_nodes *to) {
    dlp_node *node;
    if (d->device == NULL && (d->device_buffers != 0 || d->threaded != 0))
        return dlpi_bad(p, "", d->threaded ? "transfer.threaded" : "transfer.device_buffers",
                        "0 while transfer.device is NULL. Give a device (dlp_device_host is one).",
                        d->threaded ? d->threaded : d->device_buffers);
    if (d->device == NULL) return DLP_OK;
    node = dlpi_nodes_row(to, DLP_TRANSFER, "transfer", NULL);
    node->transfer.device = d->device;
    node->queue.capacity = (uint32_t)d->device_buffers;
    node->workers.num_workers = d->threaded;
    return DLP_OK;
}

/* Fill the table *to with the rows of a loader. Returns 0 or a DLP_ERR code. */
static int dlpi_loader_rows(dlp_pipe *p, const dlp_loader_desc *d, dlp_nodes *to) {
    dlpi_loader l = {d->sampler, d->dataset, d->fetch, d->batch, d->pipe};
    int rc = dlpi_loader_stages(p, d, &l);
    if (rc != DLP_OK || (rc = dlpi_loader_topology(p, d, &l)) != DLP_OK) return rc;
    l.run.prefetch_factor = p->d.prefetch_factor;
    dlpi_loader_list(&l, to);
    to->dataset = l.dataset;
    l.fetch.dataset = &to->dataset;
    if ((rc = dlpi_loader_parts(p, d, to)) != DLP_OK) return rc; /* needs: parts */
    if (to->dataset.filter == 0)                                 /* needs: parts */
        dlpi_nodes_fetch(to, "fetch", &l.fetch, d->source);
    else                                                                /* needs: parts */
        rc = dlpi_loader_filter(p, &l.fetch, d->source, to);            /* needs: parts */
    if (rc == DLP_OK) rc = dlpi_loader_joins(p, d, to);                 /* needs: join */
    if (d->cache.bytes > 0)                                             /* needs: cache */
        dlpi_nodes_row(to, DLP_CACHE, "cache", NULL)->cache = d->cache; /* needs: cache */
    dlpi_loader_batch(&l.batch, to);
    return rc == DLP_OK ? dlpi_loader_device(p, &d->transfer, to) : rc;
}

/* Fill the table *to as a loader's desc says. *p becomes a pipe without stages; it has the error,
   if there is one. If no pipe can be made *p stays NULL, and *err has the error. Returns 0 or a
   DLP_ERR code. */
static int dlpi_loader_fill(dlp_pipe **p, const dlp_loader_desc *d, dlp_nodes *to, dlp_error *err) {
    const int rc = dlpi_pipe_make(p, &d->pipe, err);
    memset(to, 0, sizeof *to);
    return rc == DLP_OK ? dlpi_loader_rows(*p, d, to) : rc;
}

DLPDEF int dlp_source_close(dlp_source *source) {
    return source != NULL && source->close != NULL ? source->close(source) : DLP_OK;
}

DLPDEF int dlp_loader_nodes(dlp_nodes *to, const dlp_loader_desc *desc, dlp_error *err) {
    dlp_pipe *p = NULL;
    int rc = dlpi_open_args(to, to, "", desc, err);
    if (rc != DLP_OK) return rc;
    rc = dlpi_loader_fill(&p, desc, to, err);
    return dlpi_opened(NULL, p, rc, err);
}

DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err) {
    dlp_nodes to;
    dlp_pipe *p = NULL;
    int rc = dlpi_open_args(out, out, "", desc, err);
    if (rc != DLP_OK) return rc;
    rc = dlpi_loader_fill(&p, desc, &to, err);
    if (rc == DLP_OK) rc = dlpi_table_add(p, to.nodes, to.n, &to.pipe);
    if (rc == DLP_OK) rc = dlpi_table_start(p);
    return dlpi_opened(out, p, rc, err);
}
