#pragma once
#include "api/cache.h"
#include "api/join.h"
#include "api/parts.h" /* needs: parts */
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

/* What most programs say stands first, by its short name; all the rest in the descs of the stages.
   What has two places is said in either, 0 in the other, or the same in both. */
typedef struct dlp_loader_desc {
    dlp_dataset dataset; /* required, here or by source: then only filter of this one may be set */
    uint32_t batch_size; /* required; global batch; batch.batch_size */
    int32_t num_workers; /* item workers; 0, DLP_NONE: inline (not with a fetcher);
                          fetch.workers.num_workers */
    int32_t shuffle;     /* 1: sampler.order DLP_ORDER_SHUFFLED */
    int32_t drop_last;   /* 1: batch.last DLP_LAST_DROP */
    int64_t epochs;      /* 0: one; DLP_FOREVER; pipe.epochs */
    uint64_t seed;       /* pipe.seed, sampler.seed */
    int32_t topology;    /* DLP_TOPOLOGY_*; sets dispatch of the workers, but for the economic */
    dlp_sampler_desc sampler;
    dlp_fetch_desc fetch; /* dataset: NULL; fetcher: not in the classic topology; batch_pool: in the
                                   concurrent only */
    /* bytes 0: no cache */
    dlp_cache_desc cache;       /* needs: cache */
    dlp_batch_desc batch;       /* workers.placement: 0: as fetch.workers has it */
    dlp_transfer_desc transfer; /* device NULL: no transfer stage */
    const dlp_source *source;   /* what has the items; borrowed until close. fetch.workers.worker_*
                                   and sampler.function_id are then 0, but for the function_id of an
                                   order of one's own. So is fetch.fetcher, if the source has one.
                                   NULL: dataset */
    dlp_pipe_desc pipe;         /* prefetch_factor is for each worker in a topology other than the
                                   economic; num_workers times that is at most 4096 */
    /* [n_joins] datasets joined, in this order; a mix: sampler is dlp_mix_sampler's. Workers and
       dispatch of each are its own: num_workers above and topology do not change them */
    const dlp_join_desc *joins; /* needs: join */
    uint32_t n_joins;           /* needs: join */
    /* The part queue (>>parts), with sampler.order 0 and dataset.n_items 0 or the sum of the
       counts; shuffle: parts and items are shuffled. All zeros: the dataset is not in parts */
    dlp_part_desc parts; /* needs: parts */
} dlp_loader_desc;

/* Fill the table of a loader (dlp_loader_nodes), and open it: sampler -> repeat [-> parts] -> fetch
   [-> joins] [-> cache] -> batch [-> transfer].
   out: a pipe that runs, to be closed; desc: copied as a table is; err: written on failure, may be
   NULL - returns as dlp_pipe_open; then nothing is left to close - any thread, which is then the
   consumer - allocates all there is; calls parts.count.
   Source: RFC-0001-economic-dataloader (github.com/pytorch/rfcs, pull request 69), whose items go
   to any free worker, so that memory follows prefetch_factor and not the number of workers; for the
   classic topology torch.utils.data.DataLoader. The part queue is that of distributed training: the
   next files of a shuffled list are read into a bounded queue, while items come from the present
   one. */
DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err);
