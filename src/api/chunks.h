/* needs: split */
#pragma once
#include "api/split.h"
/* ---------------------------------------------------------------------------------------------
   >>chunks     BATCHES THAT ARE VIEWS INTO CHUNKS
   For data that is best read in large pieces. A chunk of many rows is loaded at once into a CPU
   buffer, copied at once to the device, and cut there: a batch is a view into it, and nothing is
   copied row by row. Loading chunk k + 2, copying k + 1 and computing on k go on side by side.

     sampler ----> load --------> transfer --------> split ----> next() ... release()
     loadable      free CPU       filled CPU         filled device        a chunk's last view
     chunks        buffers        buffers            buffers              gives its buffer back

   A CPU buffer is free again when its chunk is on the device; without a device views lie in it. The
   loaders go ahead until all CPU buffers and all device buffers are full: prefetch_factor is
   cpu_buffers + device_buffers - max_held. With a preload it is cpu_buffers.
   The pipe's items are chunks: the sampler orders them, errors name them, workers' counters count
   them. Batches are views everywhere else.

   An epoch's rows are those of its chunks, one after the other. The order is that of the chunks
   (sequential, or a keyed permutation of each epoch), and in a chunk that of its rows (as they are,
   or a keyed permutation of each chunk and epoch). Every batch has batch_size of them, but the last
   of an epoch. Most lie in one chunk and are views, aligned to their row; one that spans chunks is
   copied into a seam buffer of its view's (a line of the plan; dlp_chunk_stats and dlp_pipe_explain
   count the copies), and there is none where batch_size divides the rows of every chunk. With
   within_chunks no batch spans chunks: what is left of each is a shorter batch, or none, and
   nothing is copied. Where the last chunk has fewer rows than the others, batches of a shuffled
   order span chunks, even if batch_size divides chunk_rows.

   Position counts the rows delivered before. Of a global batch of n rows rank r of W has rows
   r * n / W and so on, and loads no others.

   Rows that lie in memory already, a file that is mapped for one, need no load and no CPU buffers:
   rows_at says where those of a chunk are, and batches are views into that memory (for mapped npy,
   IDX and CIFAR files: dlp_arrays_chunks_open). It stays as it is until the pipe is closed and its
   last batch is released; the consumer only reads it. load, if there is one, is called all the
   same, ahead of the consumer: to read in what is not in memory yet, say. With shuffle_rows, a
   device or a preload, where a view cannot be of that memory, loaders copy rows from there after
   load. */

/* Rows that a callback is to load. Valid during the call only. */
typedef struct dlp_chunk {
    uint64_t index; /* chunk */
    uint64_t first; /* dataset index of the first row to be written; see dlp_chunk_row */
    uint64_t count; /* rows; of one rank all that are wanted of the chunk */
    uint64_t chunk_first, chunk_rows; /* the chunk as it is in the dataset: first row, rows */
    uint64_t epoch;
    uint64_t seed;    /* the pipe's */
    uint32_t attempt; /* 0, then 1.. for each retry */
    uint32_t n_fields;
    uint32_t worker;    /* worker number */
    int32_t shuffled;   /* 1: ask dlp_chunk_row which rows */
    void *worker_state; /* what worker_init left */
    void **data;        /* [n_fields] where row 0 of each field goes, the others after it */
    dlp_call *call;     /* for dlp_fail */
    const void *internal;
} dlp_chunk;

/* Return the dataset index of the k-th row to be written: first + k, or, with shuffle_rows, the row
   that the chunk's permutation has there.
   k: 0..count - 1 - returns UINT64_MAX for others - in the callback - does not wait. */
DLPDEF uint64_t dlp_chunk_row(const dlp_chunk *c, uint64_t k);

/* Write rows. Called once a chunk; with ranks, once for each batch of it.
   user: chunks_desc.user - returns 0, DLP_SKIP, or failure, as a fetch does - called by all workers
   at once; may block. */
typedef int (*dlp_chunk_fn)(void *user, dlp_chunk *c);

/* Say where the rows of a whole chunk lie: field `field` of its first row, aligned to its dtype,
   the others after it, in the order of the dataset. The same for the same chunk, as long as the
   pipe is open; worker processes ask in memory that was there when the pipe started. Not NULL.
   user: chunks_desc.user - called by the consumer, for each batch, and by workers - does not
   wait. */
typedef const void *(*dlp_chunk_at_fn)(void *user, uint64_t chunk, uint32_t field);

enum {
    DLP_PRELOAD_NONE = 0,
    DLP_PRELOAD_CPU,    /* each chunk has a CPU buffer of its own and is loaded once */
    DLP_PRELOAD_DEVICE, /* each has a device buffer of its own: loaded and copied once */
    DLP_PRELOAD_AUTO    /* DEVICE, else CPU, else NONE: the first whose plan fits in limit_bytes,
                           where that is set, and in three quarters of what the memory cgroup, the
                           system and, for its buffers, the device have left (dlp_device.room; a
                           device of one's own without it: limit_bytes must be set). A warning and
                           dlp_pipe_explain tell which */
};

enum {
    DLP_PASS_TRAIN = 0,
    DLP_PASS_EVALUATE, /* one epoch in the dataset's order, each row once */
    DLP_PASS_PREDICT   /* the same */
};

typedef struct dlp_chunks_desc {
    uint64_t n_items;        /* rows of the dataset; required, 1..2^48; with rows 0 or their sum */
    const dlp_field *fields; /* [n_fields] of a row; ndim at most DLP_MAX_DIMS - 2; copied */
    uint32_t n_fields;
    /* 0: zeroed before load; 1: load writes every byte of its rows */
    uint32_t writes_all_bytes;
    uint64_t chunk_rows;    /* rows of a chunk, on all ranks together; required, 1..2^46; with
                                    rows 0 or the most that any has */
    const uint64_t *rows;   /* [n_chunks] rows of each chunk, 0 or more, where they differ; copied.
                                    NULL: chunk_rows each, the last what is left */
    uint64_t n_chunks;      /* 1..2^31 - 1; 0 without rows */
    uint32_t batch_size;    /* rows of the global batch; required, 1..2^20 */
    int32_t last;           /* DLP_LAST_PARTIAL or _DROP, for what is left of the epoch, or, with
                                    within_chunks, of each chunk */
    int32_t within_chunks;  /* 1: batches span no chunks, and batch_size is at most a chunk's rows
                                    */
    int32_t shuffle_chunks; /* 1: the chunks' order is a permutation of each epoch */
    int32_t shuffle_rows;   /* 1: so is that of the rows in a chunk; not with a preload */
    dlp_chunk_fn load; /* required, but with rows_at. Then chunk.data is where that says, of the
                                    chunk's first row */
    void *user;        /* borrowed until close */
    dlp_workers_desc workers; /* loaders; num_workers 0: 1, which loads ahead of the consumer;
                                    DLP_NONE: inline. Errors are a chunk's; with a
                                    preload on_error is DLP_ON_ERROR_RAISE */
    int32_t cpu_buffers;      /* 0: 2, without a device max_held + 1, which is the least then;
                                    with a preload this and max_held are at most 64 together */
    int32_t device_buffers;   /* 0: max_held + 1; max_held + 1..64 */
    const dlp_device *device; /* not NULL: a transfer stage on this device */
    int32_t transfer_inline;  /* 0: a thread of its own copies; 1: the consumer does */
    int32_t preload;          /* DLP_PRELOAD_* */
    int64_t epochs;           /* pipe.epochs */
    int32_t pass;             /* DLP_PASS_*; EVALUATE, PREDICT: one epoch, shuffle_*, last and
                                    epochs are not read */
    uint64_t seed;            /* pipe.seed */
    dlp_pipe_desc pipe;       /* max_held counts views; prefetch_factor and unordered stay 0 */
    const struct dlp_source *source; /* has the rows (objects: >>s3-chunks); borrowed until close.
                                  It gives n_items (0, or as many) and worker_* (NULL), and, where
                                  it is NULL, load with user. NULL: load reads them */
    dlp_chunk_at_fn rows_at; /* NULL: load writes rows into buffers; else where they lie. Views of
                                  it: cpu_buffers counts chunks that load is called for, ahead */
} dlp_chunks_desc;

/* Fill the table of chunks (dlp_chunks_nodes), and open it: list -> load -> batch [-> transfer] ->
   split.
   out: a pipe that runs, to be closed; desc: copied as the stages' are; err: written on failure,
   may be NULL - returns as dlp_pipe_open; then nothing is left to close - any thread, which is then
   the consumer - allocates all there is.
   Source: chunked loading with double buffering, as deepcpp does it. */
DLPDEF int dlp_chunks_open(dlp_pipe **out, const dlp_chunks_desc *desc, dlp_error *err);

/* What a run came to. */
typedef struct dlp_run_result {
    uint64_t steps, items; /* batches and rows that on_step took */
    uint64_t epochs;       /* ended in this run */
    uint64_t elapsed_ns;
    dlp_state state; /* after the last step that was made */
} dlp_run_result;

typedef struct dlp_run_desc {
    int (*on_step)(void *user, dlp_batch *batch); /* required. Not 0: stop after this step */
    int (*on_epoch)(void *user, uint64_t epoch);  /* after an epoch's last step; or NULL. Not 0:
                                                      stop */
    void *user;                                   /* borrowed */
    uint64_t max_steps;                           /* stop after so many; 0: no limit */
    dlp_run_result *result;                       /* written in any case; NULL: not wanted */
} dlp_run_desc;

/* Drive a pipe: a step for each batch, which is released after it, until the epochs are over.
   p: any pipe that runs, with no batch held - returns DLP_END: all is done; DLP_OK: a callback or
   max_steps stopped it, and another run goes on after the last step; DLP_STOPPED: dlp_pipe_stop
   did, from any thread or signal handler (result.state says where to resume); DLP_ERR_ARG; or what
   dlp_pipe_next returns - consumer - waits for batches; does not allocate. */
DLPDEF int dlp_chunks_run(dlp_pipe *p, const dlp_run_desc *desc);
