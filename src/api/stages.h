#pragma once
#include "api/batch.h"
/* ---------------------------------------------------------------------------------------------
   >>stages     WHO DOES THE WORK */

enum {
    DLP_ON_ERROR_RAISE = 0, /* next returns the error when it reaches the batch */
    DLP_ON_ERROR_REPLACE,   /* another item takes the row, chosen by (seed, epoch, position, k)
                               alone; an item may so come twice in an epoch. 100 a row at most */
    DLP_ON_ERROR_DROP       /* the row is left out: zero bytes, valid[] = 0 */
};

enum {
    DLP_DISPATCH_CLAIM = 0,  /* workers claim runs of items by compare-and-swap */
    DLP_DISPATCH_BATCHES = 2 /* a whole batch to each worker in turn: worker i of n works on batches
                                whose sequence % n is i, and on no others */
};

enum { DLP_PLACE_THREADS = 0, DLP_PLACE_PROCESSES = 1 /* needs dlpipe_shm.h */ };

/* How the workers of a stage run; the same part in each stage's desc. */
typedef struct dlp_workers_desc {
    int32_t num_workers;      /* 0: as the stage's desc says, inline unless it says otherwise;
                                 DLP_NONE: inline, in the consumer's next; DLP_MAX_WORKERS most */
    int32_t placement;        /* DLP_PLACE_* */
    int32_t dispatch;         /* DLP_DISPATCH_* */
    int32_t on_error;         /* DLP_ON_ERROR_*; stages of whole batches: DLP_ON_ERROR_RAISE */
    int32_t retries;          /* more tries of an item that failed in this stage; 0..100; failures
                                 in other stages do not count. From a map that is not idempotent
                                 the row goes back to fetch, the batch to its collate, or to fetch,
                                 and through all stages again */
    int32_t retry_backoff_ms; /* wait before the first retry, doubled each time to at most 64 times;
                                 0..3600000; 0: none. Items wait, not their worker; batches do */
    int64_t max_skips;        /* failed items, of all stages together, that may be replaced or left
                                 out before one that fails here is DLP_ERR_BUDGET; 0: no limit here;
                                 DLP_NONE: none. Those that a callback left by DLP_SKIP do not
                                 count */
    int32_t deadline_ms;      /* 0: none. Threads: a callback that takes longer makes next return
                                 DLP_ERR_DEADLINE; looked at while next waits. Processes: the worker
                                 is killed, the item has failed */
    int32_t idempotent;       /* 1: a stage that changes a cell may run on it again */
    int (*worker_init)(void *user, int worker, void **state); /* in the worker, before its first
                                 item; returns 0, or failure: DLP_ERR_CALLBACK. May be NULL */
    void (*worker_exit)(void *user, int worker, void *state); /* in the worker, at its end */
    void *worker_user;                                        /* borrowed until close */
    const int32_t *affinity; /* [n_affinity] CPU 0..1023 of worker i is affinity[i % n_affinity];
                                 copied; a hint, on Linux */
    int32_t n_affinity;      /* 0..4096; 0: wherever the system likes */
    uint64_t stack_bytes;    /* of each thread, under 4 GiB; 0: the system's */
    const char *name;        /* stage name, copied, cut at 31 bytes; NULL: "fetch", "batch", "map";
                                 11 bytes of it show in thread names */
    int32_t workers_min;     /* 0: 1; at most num_workers; 0 if workers_max is */
    int32_t workers_max;     /* 0: num_workers for good. Else next adds and retires workers of this
                                 stage between these two, from num_workers on, by what the last
                                 moments showed (>>impl-tune, dlp_pipe_explain). Memory, threads or
                                 processes, and worker_init are for all workers_max from the start;
                                 those in excess sleep. At most DLP_MAX_WORKERS; not with
                                 DLP_DISPATCH_BATCHES (classic, concurrent) */
    int (*tell)(void *user, char *buf, size_t size); /* what these workers wait for now, such as a
                                 server that is away, as a line of dlp_pipe_explain; returns as
                                 snprintf, 0: nothing. user: worker_user. In the thread that
                                 calls explain, until close; must not wait. May be NULL */
} dlp_workers_desc;

/* How a worker fetches: one item after the other, or up to in_flight of them at once. */
enum {
    DLP_FETCH_SEQUENTIAL = 0,
    DLP_FETCH_THREADS, /* dataset.fetch, in in_flight threads of the worker's, which share its
                          worker_state: for callbacks that wait */
    DLP_FETCH_ASYNC    /* dlp_async: requests are begun and given back, all in the worker itself */
};

/* An asynchronous source: many requests in flight in one thread of the worker. user: dataset.user;
   worker_state: what worker_init left. Both are called by that thread alone. Rows are zeroed before
   submit, as before a fetch. Behind a stop reap is called until nothing is out, then worker_exit.
   In worker processes nothing may write to an item once its process is dead: let requests that the
   kernel ends later fill buffers of your own. */
typedef struct dlp_async {
    /* Begin to fetch an item; it stays valid, at its place, until reap gives it back. Returns 0:
       begun; DLP_FULL: no room now, it will be offered again after a reap; DLP_SKIP, DLP_END
       (of a stream) or failure: it is over. */
    int (*submit)(void *user, void *worker_state, dlp_item *item);
    /* Give back items that are over, done[i] with code[i] (as fetch returns it), 0..max of them.
       Waits at most timeout_ms for the first (DLP_NOWAIT: not at all). Negative: the source is
       broken, and touches no item any more. */
    int (*reap)(void *user, void *worker_state, dlp_item **done, int *code, int max,
                int timeout_ms);
} dlp_async;

typedef struct dlp_fetch_desc {
    const dlp_dataset *dataset; /* copied; required */
    dlp_workers_desc workers;
    int32_t fetcher;     /* DLP_FETCH_*; but for the sequential, num_workers is 1 or more */
    int32_t in_flight;   /* THREADS, ASYNC: items at once in a worker; 0: 16; at most 1024 */
    uint32_t batch_pool; /* with DLP_DISPATCH_BATCHES: items of the batches that a worker has
                                   open at once, counted from the oldest that is not whole (256: 4
                                   batches of 64); 0: as many batches as keep in_flight items under
                                   way; less than a batch: one. Not with another dispatch */
    dlp_async async;     /* ASYNC; the struct is copied, dataset.fetch may be NULL then */
} dlp_fetch_desc;

struct dlp_part_desc;
struct dlp_chunks_desc;

/* Where items come from: a folder of files (>>files), token shards (>>tokens), arrays (>>arrays),
   objects (>>s3-source). It is source of a fetch node or a loader, of any number of pipes at once,
   and borrowed until these are closed. Its fields are read-only. To fetch in another way, make a
   copy of the struct and change fetcher and in_flight of the copy. DLP_FETCH_SEQUENTIAL with
   in_flight 0 takes one item at a time, also inline.
   A program may make a source of its own: it sets fetch.dataset (with fetch and user), id and
   close; the other fields are 0 or as in dlp_fetch_desc. Items of files can be left to >>files: a
   copy of such a source, with another close, is a source (>>lines and >>tar are two of these). */
typedef struct dlp_source {
    dlp_fetch_desc fetch; /* dataset, fetcher, async, and of its workers worker_*, and tell */
    uint64_t id;          /* the function_id of its order: a number that states know its data by; 0:
                             none */
    int (*close)(struct dlp_source *source); /* of dlp_source_close */
    /* What the source says of its parts (.load = {.source}) and chunks (dlp_chunks_desc.source);
       NULL: it has none. */
    void (*parts)(const struct dlp_source *source, struct dlp_part_desc *parts);
    void (*chunks)(const struct dlp_source *source, struct dlp_chunks_desc *chunks);
} dlp_source;

/* Free a source.
   source: as its open call gave it, no copy. NULL is DLP_OK. Close all pipes of it first.
   Returns DLP_OK, or DLP_ERR_BUSY: a worker of this process uses it. A worker that has not begun is
   not seen. Any thread; does not wait. */
DLPDEF int dlp_source_close(dlp_source *source);

/* What a collate sees. Valid during the call only. It reads in, writes out; its cells are zeroed
   before. Rows with valid[] = 0 hold padding, or zeros. */
typedef struct dlp_collate {
    uint64_t sequence, epoch, position;
    uint32_t count;
    uint32_t worker;
    void *worker_state;
    const uint64_t *index; /* [count] */
    const uint8_t *valid;  /* [count] */
    uint32_t n_in, n_out;
    const struct dlp_collate_in {
        const dlp_field *field;
        const void *data;        /* row i is at data + i * stride */
        uint64_t stride;         /* bytes */
        const uint64_t *lengths; /* ragged: [count], else NULL */
    } * in;
    struct dlp_collate_out {
        const dlp_field *field;
        void *data;
        uint64_t capacity; /* bytes */
        int32_t ndim;      /* to be set, with shape; preset to the field's [count, shape...] */
        int64_t shape[DLP_MAX_DIMS];
        uint64_t *lengths; /* [count], preset to zero */
        uint64_t *offsets; /* [count + 1]; a collate that packs sets has_offsets */
        int32_t has_offsets;
    } * out;
    dlp_call *call; /* for dlp_fail */
} dlp_collate;

/* Make a batch out of items. Returns 0, or any other value for failure, best by dlp_fail; a
   shape that does not fit capacity is DLP_ERR_LENGTH - called by all batch workers at once. */
typedef int (*dlp_collate_fn)(void *user, dlp_collate *c);

/* Built-in collates, to be given as batch_desc.collate. pad: ragged fields become [count, longest
   in the batch, ...], zeros after the shorter. pack: [rows of all items, ...] with offsets. Fixed
   fields are copied as they are.
   user: not used; out_fields must be NULL or the dataset's - returns 0, or DLP_ERR_CALLBACK: other
   out_fields, or more rows than max_per_batch (the message names the item). */
DLPDEF int dlp_collate_pad(void *user, dlp_collate *c);
DLPDEF int dlp_collate_pack(void *user, dlp_collate *c);

typedef struct dlp_batch_desc {
    uint32_t batch_size;         /* rows of the global batch (of all ranks); required, 1..2^20 */
    int32_t last;                /* DLP_LAST_*; not for DLP_ORDER_BATCHES, whose lists say it */
    dlp_collate_fn collate;      /* NULL: rows are written in place, nothing is copied */
    void *collate_user;          /* borrowed until close */
    const dlp_field *out_fields; /* with a collate: fields of the batch, [n_out_fields]; NULL: the
                                   dataset's; copied */
    uint32_t n_out_fields;
    int32_t batch_workers;    /* 0: without a collate none (the last item worker closes it), with
                                   one min(prefetch_factor, 64) of them (inline if items are
                                   inline), as the plan tells; DLP_NONE: inline; at most
                                   DLP_MAX_WORKERS */
    dlp_workers_desc workers; /* num_workers 0: it is set from batch_workers. Without a collate or
                                 batch_workers there is nobody: no callbacks, retries or limits */
} dlp_batch_desc;

/* A device, as the transfer stage sees it. open, register_memory, alloc: called by start; free,
   unregister_memory, close: by close (or the last release); copy, record, done: by the transfer
   thread, or, inline, by next. Functions return 0 or failure (DLP_ERR_DEVICE). */
typedef struct dlp_device {
    const char *name;                                                 /* borrowed until close */
    int (*open)(void *user);                                          /* may be NULL */
    void (*close)(void *user);                                        /* may be NULL */
    int (*register_memory)(void *user, void *mem, uint64_t bytes);    /* NULL: pageable copies */
    void (*unregister_memory)(void *user, void *mem, uint64_t bytes); /* or NULL */
    int (*alloc)(void *user, uint64_t bytes, void **dev);
    void (*free)(void *user, void *dev);
    /* Begin a copy. Put an event after the copies of this buffer. 1: it passed, 0: not yet. */
    int (*copy)(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer);
    int (*record)(void *user, uint32_t buffer);
    int (*done)(void *user, uint32_t buffer);
    void *user;      /* borrowed until close */
    int32_t handles; /* 1: what alloc gives is a handle that nothing can be added to (cl_mem) */
    /* As copy, from byte from_at of one buffer of alloc to byte to_at of another: of batches that
       span chunks. By next, but never beside another callback. NULL: such batches are refused. */
    int (*copy_within)(void *user, void *to, uint64_t to_at, void *from, uint64_t from_at,
                       uint64_t bytes, uint32_t buffer);
    int (*room)(void *user, uint64_t *bytes); /* what alloc has left, before open, by whoever opens
                                                 the pipe: for DLP_PRELOAD_AUTO. May be NULL */
} dlp_device;

/* Return a device whose memory is the host's and whose copies are memcpy. Static; any thread. */
DLPDEF const dlp_device *dlp_device_host(void);

typedef struct dlp_transfer_desc {
    const dlp_device *device; /* copied; NULL: dlp_device_host() */
    int32_t device_buffers;   /* 0: max_held + 1; max_held + 1..64 */
    int32_t threaded;         /* 0: inline; 1: a thread */
} dlp_transfer_desc;
