#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>loader     ALL IN ONE CALL
   Three ways to give items to N item workers. Order and bytes of the batches are the same.

   economic     any worker takes the next items of any batch, oldest first: it is whole soonest.
                Memory: prefetch_factor + max_held batches, however many workers there are.
   classic      a whole batch to each worker in turn, as PyTorch's DataLoader does; batch b is all
                worker b % N's. For sources that like to see neighbours together, and to compare.
                Memory: N x prefetch_factor + max_held batches.
   concurrent   classic, and inside each worker in_flight items at once, by a fetcher; of one batch,
                or of the several of a batch pool. For sources with latency: stores, networks.
                Memory: as classic, prefetch_factor being batch_pool / rows if that is more, or,
                where neither is given, 1 + in_flight / rows rounded up (2 at least); and the
                records of the items in flight. */

enum { DLP_TOPOLOGY_ECONOMIC = 0, DLP_TOPOLOGY_CLASSIC, DLP_TOPOLOGY_CONCURRENT };

typedef struct dlp_loader_desc {
    dlp_dataset dataset; /* required */
    uint32_t batch_size; /* required; global batch */
    int32_t num_workers; /* item workers; 0: inline (not with a fetcher) */
    int32_t shuffle;     /* 1: DLP_ORDER_SHUFFLED; same as sampler.order */
    int32_t drop_last;   /* 1: DLP_LAST_DROP; last is then that, or 0 */
    int32_t last;        /* DLP_LAST_* */
    int64_t epochs;      /* 0: one; DLP_FOREVER */
    int32_t epoch_end;   /* 1: next returns DLP_EPOCH_END between epochs */
    uint64_t seed;       /* same as sampler.seed; 0: that one */
    dlp_sampler_desc sampler;
    dlp_workers_desc workers; /* num_workers: 0, or as above */
    dlp_collate_fn collate;   /* from here as in dlp_batch_desc */
    void *collate_user;
    const dlp_field *out_fields;
    uint32_t n_out_fields;
    int32_t batch_workers;
    const dlp_device *device; /* not NULL: a transfer stage on this device */
    int32_t device_buffers;
    int32_t transfer_threaded;
    dlp_pipe_desc pipe; /* pipe.prefetch_factor is for each worker in a topology other than
                                    the economic; num_workers times that is at most 4096 */
    int32_t topology;   /* DLP_TOPOLOGY_*; sets workers.dispatch, but for the economic */
    int32_t fetcher;    /* from here as in dlp_fetch_desc; not in the classic topology */
    int32_t in_flight;
    uint32_t batch_pool; /* the concurrent topology only */
    dlp_async async;
    uint64_t cache_bytes; /* 0: no cache; else as dlp_cache_desc.bytes */
} dlp_loader_desc;

/* Open, wire and start sampler -> repeat -> fetch [-> cache] -> batch [-> transfer].
   out: a pipe that runs, to be closed; desc: copied as the stages' are; err: written on failure,
   may be NULL - returns DLP_OK, or what dlp_pipe_open, _add_*, _link and _start return; then
   nothing is left to close - any thread, which is the caller - allocates all there is to allocate.
   Source: RFC-0001-economic-dataloader (github.com/pytorch/rfcs, pull request 69), whose items go
   to any free worker, so that memory follows prefetch_factor and not the number of workers; for the
   classic topology torch.utils.data.DataLoader. */
DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err);
