#pragma once
#include "api/cache.h"
#include "api/join.h"
#include "api/parts.h" /* needs: parts */
/* ---------------------------------------------------------------------------------------------
   >>loader     ALL IN ONE CALL
   A loader gives items to N item workers in one of three ways. The order and the bytes of the
   batches do not depend on the way.

   economic     Any worker takes the next items of the oldest batch that has some left. So the
                oldest batch is whole soonest.
                Memory: prefetch_factor + max_held batches, for any number of workers.
   classic      Each worker gets whole batches in turn, as in PyTorch's DataLoader: worker b % N
                makes all of batch b. Use it if the source is faster for neighbouring items of one
                worker, or to compare.
                Memory: N x prefetch_factor + max_held batches.
   concurrent   As classic, and each worker has in_flight items under way at once, by a fetcher. The
                items belong to one batch, or to the batches of a batch pool. Use it for sources
                with latency: object stores, networks.
                Memory: as classic, and a record for each item in flight. prefetch_factor is
                raised to batch_pool / rows. If neither is given, it is 1 + in_flight / rows,
                rounded up, and at least 2. */

struct dlp_node;
enum { DLP_TOPOLOGY_ECONOMIC = 0, DLP_TOPOLOGY_CLASSIC, DLP_TOPOLOGY_CONCURRENT };

/* A loader's desc says each value once. Some structs in it have fields for values that stand
   elsewhere in the desc. Leave these fields 0: workers.num_workers, pipe.epochs and pipe.seed. An
   error names the row of the loader's table (dlp_loader_nodes) and the row's field:
   list.order.weights for sampler.weights, queue.capacity for device_buffers. */
typedef struct dlp_loader_desc {
    dlp_dataset dataset; /* required without source. With a source only its filter may be set */
    const dlp_source *source; /* source that has the items; borrowed until close. Then
                                   workers.worker_* and sampler.function_id are 0. function_id may
                                   be set beside an order of the program (DLP_ORDER_FUNCTION,
                                   _BATCHES). fetcher is 0 if the source has one. NULL: dataset has
                                   the items */
    uint32_t batch_size;      /* required; rows of the global batch, of all ranks */
    int32_t num_workers;      /* item workers. 0 or DLP_NONE: items are fetched inline, in next; a
                                   fetcher needs workers */
    int32_t shuffle;          /* 1: shuffled; sampler.order is then 0 */
    int32_t drop_last;        /* DLP_LAST_*. 1 (DLP_LAST_DROP): drop a short last batch. 0 with
                                   DLP_ORDER_BATCHES, whose lists say it */
    int64_t epochs;           /* number of epochs; 0: 1; DLP_FOREVER */
    uint64_t seed;            /* any number; sampler.seed is then 0 or the same number */
    int32_t topology; /* DLP_TOPOLOGY_*. All but the economic one set dispatch of the workers */
    dlp_sampler_desc sampler; /* another order, or a thread for the sampler */
    dlp_workers_desc workers; /* how the item workers run, and what becomes of failures; its
                                   num_workers is 0 */
    int32_t fetcher;          /* DLP_FETCH_*; THREADS and ASYNC need num_workers of 1 or more. The
                                   classic topology takes none */
    int32_t in_flight;   /* THREADS, ASYNC: items at once in a worker, at most 1024. 0: as many as
                                   the source says, or 16 */
    uint32_t batch_pool; /* batch_pool of dlp_source; only in the concurrent topology */
    dlp_async async;     /* ASYNC; the struct is copied; dataset.fetch may be NULL then */
    /* The cache of items. bytes 0: there is none. */
    dlp_node_cache cache;
    dlp_collate_fn collate;      /* makes a batch of items. NULL: rows are written in place, and
                                   nothing is copied */
    void *collate_user;          /* passed to collate; borrowed until close */
    const dlp_field *out_fields; /* [n_out_fields] fields of the batch, with a collate; copied.
                                   NULL: the dataset's */
    uint32_t n_out_fields;
    dlp_workers_desc batch_workers; /* workers that collate. num_workers 0: min(prefetch_factor,
                                   64), or inline if items are inline. Without a collate the last
                                   item worker closes the batch, num_workers must be 0, and there
                                   are no callbacks, retries or limits. placement 0: that of
                                   workers */
    const dlp_device *device;       /* copied; NULL: no transfer stage */
    int32_t device_buffers;         /* buffers on the device, max_held + 1..64; 0: max_held + 1 */
    int32_t transfer_thread;        /* 1: a thread copies to the device; 0: next of the consumer */
    dlp_pipe_desc pipe; /* prefetch_factor counts all batches in the economic topology, and
                                   batches of each worker in the others: num_workers *
                                   prefetch_factor is then at most 4096 */
    /* [n_rows] rows of the table behind the fetch, in this order: second fetches (>>join), maps,
       guards. topology does not change their workers. Copied. In a mix of several fetches (of),
       sampler is that of dlp_mix_sampler, and dataset is the first of the mix. */
    const struct dlp_node *rows;
    uint32_t n_rows;
    /* The part queue (>>parts). sampler.order is then 0, and dataset.n_items is 0 or the sum of the
       counts. shuffle then shuffles the parts and the items of each part. All zeros: the dataset
       has no parts. */
    dlp_node_load parts;
} dlp_loader_desc;

/* Open a loader: fill its table (dlp_loader_nodes) and open the table (dlp_pipe_open). The stages
   are sampler -> repeat [-> parts] -> fetch [-> rows] [-> cache] -> batch [-> transfer].
   out: set to a running pipe; close it with dlp_pipe_close. desc: required; copied as far as
   dlp_pipe_open copies a table. err: written on failure; may be NULL.
   Returns the codes of dlp_pipe_open. On failure there is nothing to close.
   Any thread may call it, and is then the consumer. It allocates all memory of the pipe, and calls
   parts.count.
   Source: RFC-0001-economic-dataloader (github.com/pytorch/rfcs, pull request 69): items go to any
   free worker, so memory depends on prefetch_factor and not on the number of workers. The classic
   topology is that of torch.utils.data.DataLoader. The part queue is that of distributed training:
   the next files of a shuffled list are read into a bounded queue, while items come from the
   present file. */
DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err);
