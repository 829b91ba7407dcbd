#pragma once
#include "api/parts.h"
#include "build/check.h"
/* ---- the loader ---- */

static int dlpi_loader_check(dlp_pipe *p, const dlp_loader_desc *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_loader_desc, shuffle), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_loader_desc, drop_last), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_loader_desc, topology), 0, DLP_TOPOLOGY_CONCURRENT, "DLP_TOPOLOGY_*"},
    };
    int rc = dlpi_check_bounds(p, "", d, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    /* what can be said twice is said the same, or once */
    if (d->workers.num_workers != 0 && d->workers.num_workers != d->num_workers)
        return dlpi_bad(p, "", "workers.num_workers", "0, or as the loader's num_workers",
                        d->workers.num_workers);
    if (d->shuffle && d->sampler.order != 0 && d->sampler.order != DLP_ORDER_SHUFFLED)
        return dlpi_bad(p, "", "sampler.order", "0 or DLP_ORDER_SHUFFLED with shuffle",
                        d->sampler.order);
    if (d->seed != 0 && d->sampler.seed != 0 && d->seed != d->sampler.seed)
        return dlpi_bad(p, "", "sampler.seed", "0, or as the loader's seed",
                        (int64_t)d->sampler.seed);
    if (d->drop_last && d->last != DLP_LAST_SHORT && d->last != DLP_LAST_DROP)
        return dlpi_bad(p, "", "last", "0 or DLP_LAST_DROP with drop_last", d->last);
    return DLP_OK;
}

/* The stages of a loader, as its desc has them; a topology changes some of it before they are
   added. */
typedef struct dlpi_loader {
    dlp_sampler_desc sampler;
    dlp_repeat_desc repeat;
    dlp_fetch_desc fetch;
    dlp_batch_desc batch;
    dlp_transfer_desc transfer;
    dlp_cache_desc cache;
} dlpi_loader;

static void dlpi_loader_stages(const dlp_loader_desc *d, dlpi_loader *l) {
    memset(l, 0, sizeof *l);
    l->sampler = d->sampler;
    if (d->shuffle) l->sampler.order = DLP_ORDER_SHUFFLED;
    if (d->seed) l->sampler.seed = d->seed;
    l->repeat.epochs = d->epochs;
    l->repeat.epoch_end = d->epoch_end;
    l->fetch.dataset = &d->dataset;
    l->fetch.workers = d->workers;
    l->fetch.workers.num_workers = d->num_workers;
    l->fetch.fetcher = d->fetcher;
    l->fetch.in_flight = d->in_flight;
    l->fetch.batch_pool = d->batch_pool;
    l->fetch.async = d->async;
    l->batch.batch_size = d->batch_size;
    l->batch.last = d->drop_last ? DLP_LAST_DROP : d->last;
    l->batch.collate = d->collate;
    l->batch.collate_user = d->collate_user;
    l->batch.out_fields = d->out_fields;
    l->batch.n_out_fields = d->n_out_fields;
    l->batch.batch_workers = d->batch_workers;
    l->batch.workers.placement = d->workers.placement;
    l->transfer.device = d->device;
    l->transfer.device_buffers = d->device_buffers;
    l->transfer.threaded = d->transfer_threaded;
    l->cache.bytes = d->cache_bytes;
}

/* A whole batch to each worker in turn; each has a worker beside it that collates its batches. */
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

/* Classic, and several items at once in each worker: as many batches for each as these are of. */
static int dlpi_loader_concurrent(dlp_pipe *p, dlpi_loader *l) {
    uint64_t world = l->sampler.world_size ? l->sampler.world_size : 1;
    uint64_t rows = (l->batch.batch_size + world - 1) / world, many = 16, need = 1;
    if (l->fetch.in_flight > 0) many = (uint64_t)l->fetch.in_flight;
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
    rc = dlpi_within(p, "", "fetcher", d->fetcher, 0, 0,
                     "DLP_FETCH_SEQUENTIAL in the classic topology (the concurrent has others)");
    return rc == DLP_OK ? dlpi_loader_classic(p, l) : rc;
}

/* parts: of dlp_parts_open, or NULL. */
static int dlpi_loader_wire(dlp_pipe *p, const dlp_loader_desc *d, const dlp_part_desc *parts) {
    dlpi_loader l;
    int rc;
    dlpi_loader_stages(d, &l);
    if (parts) l.sampler.order = DLP_ORDER_PARTS;
    if ((rc = dlpi_loader_topology(p, d, &l)) != DLP_OK) return rc;
    dlp_pipe_add_sampler(p, &l.sampler);
    dlp_pipe_add_repeat(p, &l.repeat);
    if (parts) dlp_pipe_add_parts(p, parts);
    dlp_pipe_add_fetch(p, &l.fetch);
    if (d->cache_bytes > 0) dlp_pipe_add_cache(p, &l.cache);
    dlp_pipe_add_batch(p, &l.batch);
    if (d->device) dlp_pipe_add_transfer(p, &l.transfer);
    return dlp_pipe_start(p); /* or the code of what could not be added */
}

static int dlpi_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, const dlp_part_desc *parts,
                            dlp_error *err) {
    dlp_pipe *p;
    int rc;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, out ? "desc" : "out", "%s is NULL",
                              out ? "desc" : "out");
    if ((rc = dlp_pipe_open(&p, &desc->pipe, err)) != DLP_OK) return rc;
    rc = dlpi_loader_check(p, desc);
    if (rc == DLP_OK) rc = dlpi_loader_wire(p, desc, parts);
    if (rc != DLP_OK) {
        if (err) *err = p->err;
        dlp_pipe_close(p);
        return rc;
    }
    *out = p;
    return DLP_OK;
}
