/* needs: split */
#pragma once
#include "api/split.h"
/* ---------------------------------------------------------------------------------------------
   >>chunks     BATCHES THAT ARE VIEWS INTO CHUNKS
   This is for data that is best read in large pieces. A chunk of many rows is loaded at once into a
   CPU buffer, is copied at once to the device, and is cut there. A batch is a view into the chunk:
   nothing is copied row by row. Three steps overlap: loading chunk k + 2, copying chunk k + 1 and
   computing on chunk k.

     sampler ----> load --------> transfer --------> split ----> next() ... release()
     loadable      free CPU       filled CPU         filled device        a chunk's last view
     chunks        buffers        buffers            buffers              gives its buffer back

   A CPU buffer is free again when its chunk is on the device. Without a device the views lie in the
   CPU buffer. The loaders go ahead until all CPU buffers and all device buffers are full:
   prefetch_factor is cpu_buffers + device_buffers - max_held. With a preload it is cpu_buffers. The
   items of the pipe are chunks: the sampler orders them, errors name them, and the counters of
   workers count them. Batches are views everywhere else.

   An epoch's rows are the rows of its chunks, one chunk after the other. The chunks come in
   sequence, or in a keyed permutation of each epoch. The rows of a chunk come in their order, or in
   a keyed permutation of each chunk and epoch. Every batch has batch_size rows; only the last batch
   of an epoch may have fewer. Most batches lie in one chunk and are views, aligned to their rows. A
   batch that spans chunks is copied into a seam buffer. Each view has one seam buffer, which is a
   line of the plan. dlp_chunk_stats and dlp_pipe_explain count these copies. If batch_size divides
   the rows of every chunk, there are no seam buffers.

   With within_chunks no batch spans chunks, and nothing is copied. The rest of each chunk is then a
   shorter batch, or no batch. If the last chunk has fewer rows than the others, batches of a
   shuffled order span chunks, even if batch_size divides chunk_rows.

   Position counts the rows that were delivered before. Rank r of W has part r of a global batch: of
   n rows, the rows from r * n / W on, up to the next rank's. It loads no other rows.

   Rows may lie in memory already, such as a mapped file. Such rows need no load and no CPU buffers:
   rows_at says where the rows of a chunk are, and batches are views into that memory. (For mapped
   npy, IDX and CIFAR files see dlp_arrays_chunks_open.) The memory must stay as it is until the
   pipe is closed and its last batch is released. The consumer only reads it. If load is set, it is
   still called, ahead of the consumer: it can read in what is not in memory yet. With shuffle_rows,
   a device or a preload a view cannot lie in that memory. Loaders then copy rows from there after
   load. */

/* Rows that a load callback writes. Valid during the call only. */
typedef struct dlp_chunk {
    uint64_t index; /* number of the chunk */
    uint64_t first; /* dataset index of the first row to write; see dlp_chunk_row */
    uint64_t count; /* rows to write; with one rank all rows that are wanted of the chunk */
    uint64_t chunk_first, chunk_rows; /* the whole chunk in the dataset: its first row, its rows */
    uint64_t epoch;
    uint64_t seed;    /* seed of the pipe */
    uint32_t attempt; /* 0, then 1, 2 and so on for each retry */
    uint32_t n_fields;
    uint32_t worker;    /* number of the worker */
    int32_t shuffled;   /* 1: dlp_chunk_row says which rows to write */
    void *worker_state; /* the state that worker_init set */
    void **data;        /* [n_fields] place of row 0 of each field; the other rows follow it */
    dlp_call *call;     /* for dlp_fail */
    const void *internal;
} dlp_chunk;

/* Return the dataset index of the k-th row to write: first + k or, with shuffle_rows, the row that
   the chunk's permutation has there.
   k: 0..count - 1. Returns UINT64_MAX for other values. In the callback only. Does not wait. */
DLPDEF uint64_t dlp_chunk_row(const dlp_chunk *c, uint64_t k);

/* Write the rows of a chunk. It is called once for each chunk; with several ranks, once for each
   batch of the chunk.
   user: dlp_chunks_desc.user. Returns 0, DLP_SKIP, or failure, as a fetch does. All workers call it
   at once. It may block. */
typedef int (*dlp_chunk_fn)(void *user, dlp_chunk *c);

/* Return the address of field `field` of the first row of a chunk. The address is aligned to the
   dtype. The other rows follow it, in the order of the dataset. The address of a chunk must not
   change as long as the pipe is open. Worker processes use it too: the memory must exist when the
   pipe starts. Must not return NULL.
   user: dlp_chunks_desc.user. The consumer calls it for each batch, and workers call it. Does not
   wait. */
typedef const void *(*dlp_chunk_at_fn)(void *user, uint64_t chunk, uint32_t field);

enum {
    DLP_PRELOAD_NONE = 0,
    DLP_PRELOAD_CPU,    /* each chunk has its own CPU buffer and is loaded once */
    DLP_PRELOAD_DEVICE, /* each chunk has its own device buffer; it is loaded and copied once */
    DLP_PRELOAD_AUTO    /* the first of DEVICE, CPU and NONE whose plan fits. It must fit in
                           limit_bytes, if that is set. It must also fit in three quarters of the
                           memory that the memory cgroup, the system and, for device buffers, the
                           device have left (dlp_device.room). For a device without room limit_bytes
                           must be set. A warning and dlp_pipe_explain tell the choice */
};

enum {
    DLP_PASS_TRAIN = 0,
    DLP_PASS_EVALUATE, /* one epoch in the dataset's order, each row once */
    DLP_PASS_PREDICT   /* one epoch in the dataset's order, each row once */
};

typedef struct dlp_chunks_desc {
    uint64_t n_items;        /* number of rows of the dataset; required, 1..2^48. With rows: 0 or
                                the sum of rows */
    const dlp_field *fields; /* [n_fields] fields of a row; ndim at most DLP_MAX_DIMS - 2; copied */
    uint32_t n_fields;
    /* 0: the buffer is zeroed before load; 1: load writes every byte of its rows */
    uint32_t writes_all_bytes;
    uint64_t chunk_rows;    /* rows of a chunk, on all ranks together; required, 1..2^46. With rows:
                                    0 or the most rows of a chunk */
    const uint64_t *rows;   /* [n_chunks] rows of each chunk, 0 or more, if chunks differ; copied.
                                    NULL: chunk_rows each, and the rest in the last chunk */
    uint64_t n_chunks;      /* number of chunks, 1..2^31 - 1; 0 without rows */
    uint32_t batch_size;    /* rows of the global batch; required, 1..2^20 */
    int32_t last;           /* DLP_LAST_DEFAULT, _PARTIAL or _DROP, for the rest of the epoch or,
                                    with within_chunks, of each chunk */
    int32_t within_chunks;  /* 1: batches span no chunks, and batch_size is at most the rows of a
                                    chunk */
    int32_t shuffle_chunks; /* 1: each epoch has the chunks in a permutation of its own */
    int32_t shuffle_rows;   /* 1: likewise the rows in a chunk; not with a preload */
    dlp_chunk_fn load; /* required, unless rows_at is set. With rows_at chunk.data is its address of
                                    the first row of the chunk */
    void *user;        /* borrowed until close */
    dlp_workers_desc workers; /* loaders. num_workers 0: 1, which loads ahead of the consumer;
                                    DLP_NONE: inline. An error is an error of a chunk. With a
                                    preload on_error is DLP_ON_ERROR_RAISE */
    int32_t cpu_buffers;      /* number of CPU buffers, at most 4096. 0: 2 or, without a device,
                                    max_held + 1, which is the least then. With a preload
                                    cpu_buffers and max_held are at most 64 together */
    int32_t device_buffers;   /* number of device buffers, max_held + 1..64; 0: max_held + 1 */
    const dlp_device *device; /* device of a transfer stage; NULL: no transfer stage */
    int32_t transfer_inline;  /* 0: a thread of its own copies; 1: the consumer copies */
    int32_t preload;          /* DLP_PRELOAD_*; a preload has at most 65535 chunks */
    int64_t epochs;           /* number of epochs; 0: 1; DLP_FOREVER */
    int32_t pass;             /* DLP_PASS_*. EVALUATE and PREDICT have one epoch and ignore
                                    shuffle_*, last and epochs */
    uint64_t seed;            /* any number */
    dlp_pipe_desc
        pipe; /* max_held counts views. prefetch_factor, unordered, seed and epochs must be 0 */
    const struct dlp_source *source; /* source of the rows (objects: >>s3-chunks); borrowed until
                                  close. The source sets n_items (give 0 or its number); worker_*
                                  must be NULL. If load is NULL, it sets load and user. NULL: load
                                  reads the rows */
    dlp_chunk_at_fn rows_at; /* address of rows that lie in memory. Batches are then views of it,
                                  and cpu_buffers counts the chunks that load is called for ahead of
                                  the consumer. NULL: load writes rows into buffers */
    const dlp_identity *identity; /* what the rows are, for states; borrowed until open returns.
                                  NULL: what the source says, if there is one */
} dlp_chunks_desc;

/* Open a pipe of chunks: fill the table of chunks (dlp_chunks_nodes) and open it. The stages are
   list -> load -> batch [-> transfer] -> split.
   out: a running pipe, which you close. desc: copied as the descs of stages are. err: written on
   failure; may be NULL. Returns as dlp_pipe_open; after a failure nothing is left to close. Any
   thread; it becomes the consumer. Allocates all memory of the pipe.
   Source: chunked loading with double buffering, as deepcpp does it. */
DLPDEF int dlp_chunks_open(dlp_pipe **out, const dlp_chunks_desc *desc, dlp_error *err);

/* Results of dlp_chunks_run. */
typedef struct dlp_run_result {
    uint64_t steps, items; /* batches and rows that on_step got */
    uint64_t epochs;       /* epochs that ended in this run */
    uint64_t elapsed_ns;   /* nanoseconds of the run */
    dlp_state state;       /* state after the last step */
} dlp_run_result;

typedef struct dlp_run_desc {
    int (*on_step)(void *user, dlp_batch *batch); /* called for each batch; required. Not 0: stop
                                  after this step */
    int (*on_epoch)(void *user, uint64_t epoch);  /* called after the last step of an epoch; or
                                                      NULL. Not 0: stop. With epoch_end also for an
                                                      epoch whose end a resumed state did not have
                                                      yet */
    void *user;                                   /* argument of both callbacks; borrowed during the
                                  call */
    uint64_t max_steps;                           /* steps after which the run stops; 0: no limit */
    dlp_run_result *result;                       /* written once the run has begun, also if it
                                  fails; NULL: not wanted */
} dlp_run_desc;

/* Run a pipe until its epochs are over: call on_step for each batch, then release the batch.
   p: any running pipe, with no batch held. Returns:
     DLP_END       all epochs are over
     DLP_OK        a callback or max_steps stopped the run; another run goes on after the last step
     DLP_STOPPED   dlp_pipe_stop stopped it, from any thread or signal handler; resume from
                   result.state
     DLP_ERR_ARG   p, desc or on_step is NULL
     another code  as dlp_pipe_state, _next or _release returned it
   Consumer. Waits for batches. Does not allocate. */
DLPDEF int dlp_chunks_run(dlp_pipe *p, const dlp_run_desc *desc);
