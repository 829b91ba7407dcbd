#pragma once
#include "api/batch.h"
/* ---------------------------------------------------------------------------------------------
   >>stages     WHO DOES THE WORK */

enum {
    DLP_ON_ERROR_RAISE = 0, /* next returns the error when it reaches the batch */
    DLP_ON_ERROR_REPLACE,   /* another item takes the row, up to 100 times a row; it follows from
                               (seed, epoch, position, k) alone. An item may come twice in an
                               epoch so */
    DLP_ON_ERROR_DROP       /* the row is left out: zero bytes, valid[] = 0. An epoch of which all
                               items are left out is an error (dlp_pipe_next) */
};

enum {
    DLP_DISPATCH_CLAIM = 0,  /* workers claim runs of items by compare-and-swap */
    DLP_DISPATCH_BATCHES = 2 /* workers get whole batches in turn: worker i of n works on the
                                batches whose sequence % n is i, and on no others */
};

enum { DLP_PLACE_THREADS = 0, DLP_PLACE_PROCESSES = 1 /* needs dlpipe_shm.h */ };

/* How the workers of a stage run. The desc of each stage has this struct. */
typedef struct dlp_workers_desc {
    int32_t num_workers; /* number of workers; 0: as the stage's desc says, else inline;
                                 DLP_NONE: inline, in the consumer's next; at most
                                 DLP_MAX_WORKERS */
    int32_t placement;   /* DLP_PLACE_* */
    int32_t dispatch;    /* DLP_DISPATCH_* */
    int32_t on_error;    /* DLP_ON_ERROR_*; a stage of whole batches: DLP_ON_ERROR_RAISE; a row
                                 up to the last maker: not REPLACE */
    int32_t retries;     /* more tries of an item that failed in this stage, 0..100; failures in
                                 other stages do not count. If a map that is not idempotent
                                 fails, the row is fetched again, or the batch is collated or
                                 fetched again. It then passes all stages again */
    int32_t retry_backoff_ms; /* milliseconds before the first retry, 0..3600000; 0: none. Each
                                 retry doubles the wait, up to 64 times the first. The worker of an
                                 item does other work meanwhile; the worker of a batch waits */
    int64_t max_skips;        /* failed items, of all stages together, that may be replaced or left
                                 out. If an item fails here beyond them, the error is
                                 DLP_ERR_BUDGET. 0: no limit here; DLP_NONE: none may. Items that
                                 a callback left out by DLP_SKIP do not count */
    int32_t deadline_ms;      /* longest time of a callback, or of a request of dlp_async, in
                                 milliseconds; 0: no limit. Threads: next returns
                                 DLP_ERR_DEADLINE; next looks while it waits. Processes: the worker
                                 is killed, and the item has failed. If the program is stopped
                                 while next waits, that time does not count */
    int32_t idempotent;       /* 1: a stage that changes a cell may run on it again */
    int (*worker_init)(void *user, int worker, void **state); /* called in the worker, before its
                                 first item; returns 0, or failure: DLP_ERR_CALLBACK. May be NULL */
    void (*worker_exit)(void *user, int worker, void *state); /* called in the worker, at its end.
                                 May be NULL */
    void *worker_user;                                        /* borrowed until close */
    const int32_t *affinity; /* [n_affinity] CPUs, 0..1023; worker i gets affinity[i % n_affinity];
                                 copied; a hint, on Linux */
    int32_t n_affinity;      /* 0..4096; 0: the system chooses the CPUs */
    int32_t consumer_helps;  /* 1: where next would wait, it works on items itself, beside threads.
                                 It is worker num_workers, with a worker_state of its own: the
                                 thread that opens calls worker_init, the one that closes
                                 worker_exit. It helps while an item takes at most 16 us, so that
                                 it is late by a run of items at most. Its own items have no
                                 deadline_ms. An item of its own that waits for a retry goes on in
                                 next; who else takes batches waits for it. Order and states are
                                 the same. Only in stages of rows with workers; not with processes,
                                 a fetcher, DLP_DISPATCH_BATCHES, workers_max or a push */
    uint64_t stack_bytes; /* bytes of each thread's stack, below 4 GiB; 0: the system's default */
    const char *name;     /* name of the stage; copied, cut at 31 bytes; NULL: "fetch", "batch",
                                 "map". Thread names show 11 bytes of it */
    int32_t workers_min;  /* fewest workers of a tuned stage; 0: 1; at most num_workers; 0 if
                                 workers_max is 0 */
    int32_t workers_max;  /* most workers of a tuned stage, at most DLP_MAX_WORKERS; 0: num_workers
                                 for good. next adds and retires workers between workers_min and
                                 workers_max, from num_workers on, by its last measurements
                                 (>>impl-tune, dlp_pipe_explain). From the start there are memory,
                                 threads or processes, and worker_init for all workers_max; those
                                 in excess sleep. Not with DLP_DISPATCH_BATCHES (classic,
                                 concurrent) */
    int (*tell)(void *user, char *buf, size_t size); /* writes a line for dlp_pipe_explain: what
                                 these workers wait for now, such as a server that is away. Returns
                                 as snprintf; 0: nothing. user is worker_user. Runs in the thread
                                 that calls explain, until close; must not wait. May be NULL */
} dlp_workers_desc;

/* How a worker fetches: one item after the other, or up to in_flight items at once. */
enum {
    DLP_FETCH_SEQUENTIAL = 0,
    DLP_FETCH_THREADS, /* for callbacks that wait: the worker has in_flight threads, which call
                          dataset.fetch and share its worker_state */
    DLP_FETCH_ASYNC    /* dlp_async: the worker itself begins requests and gets them back */
};

/* An asynchronous source: many requests in flight in one thread of the worker. That thread alone
   calls submit and reap. user: dataset.user; worker_state: what worker_init left. Rows are zeroed
   before submit, as before a fetch. After a stop, reap is called until no item is in flight. Then
   worker_exit is called. In worker processes nothing may write to an item once its process is dead.
   If the kernel ends requests later, let them fill buffers of your own. */
typedef struct dlp_async {
    /* Begin to fetch an item. The item stays valid, at its place, until reap gives it back. Returns
       0: begun; DLP_FULL: no room now; the item is offered again after a reap; DLP_SKIP, DLP_END
       (of a stream) or failure: the item is over. */
    int (*submit)(void *user, void *worker_state, dlp_item *item);
    /* Give back 0..max items that are over: done[i] with code[i], as fetch returns it. Waits at
       most timeout_ms for the first item (DLP_NOWAIT: does not wait). Returns their number, or a
       negative code: the source is broken, and touches no item any more. */
    int (*reap)(void *user, void *worker_state, dlp_item **done, int *code, int max,
                int timeout_ms);
} dlp_async;

struct dlp_node_load;
struct dlp_chunks_desc;

/* A source of items: a folder of files (>>files), token shards (>>tokens), arrays (>>arrays),
   objects (>>s3-source). A fetch node or a loader has it as its source. Any number of pipes may
   have it at once. It is borrowed until these pipes are closed. Its fields are read-only. To fetch
   in another way, copy the struct, and change fetcher and in_flight of the copy.
   DLP_FETCH_SEQUENTIAL with in_flight 0 takes one item at a time, also inline.
   A program may make a source of its own. It sets dataset (with fetch and user; identity, if states
   shall know the data), id and close; the other fields may be 0. If its items lie in files, >>files
   can read them: a copy of a source of >>files, with another close, is a source, too. So >>lines
   and >>tar are made. */
typedef struct dlp_source {
    const dlp_dataset *dataset; /* the items; required */
    dlp_workers_desc workers;   /* worker_init, worker_exit, worker_user and tell; no other field */
    int32_t fetcher;            /* DLP_FETCH_*; THREADS and ASYNC need num_workers of 1 or more */
    int32_t in_flight;          /* THREADS, ASYNC: items at once in a worker; 0: 16; at most 1024 */
    uint32_t batch_pool; /* items of the batches that a worker has open at once, counted from its
                                   oldest unfinished batch (256: 4 batches of 64). Less than a
                                   batch: one batch. 0: as many batches as keep in_flight items
                                   under way. Only with DLP_DISPATCH_BATCHES */
    dlp_async async;     /* ASYNC; the struct is copied; dataset.fetch may be NULL then */
    uint64_t id; /* number by which states know the data: function_id of the order; 0: none */
    int (*close)(struct dlp_source *source); /* called by dlp_source_close */
    /* Fill what the source says of its parts (.load = {.source}) and of its chunks
       (dlp_chunks_desc.source). NULL: the source has none. */
    void (*parts)(const struct dlp_source *source, struct dlp_node_load *parts);
    void (*chunks)(const struct dlp_source *source, struct dlp_chunks_desc *chunks);
} dlp_source;

/* Free a source. Close all its pipes first.
   source: from its open call, not a copy; NULL is DLP_OK.
   Returns DLP_OK, or DLP_ERR_BUSY: a worker of this process uses it. A worker that has not begun is
   not seen. Any thread. Does not wait. */
DLPDEF int dlp_source_close(dlp_source *source);

/* What a collate gets. It is valid during the call only. The collate reads `in` and writes `out`,
   whose cells are zeroed before. Rows with valid[] = 0 hold padding, or zeros. */
typedef struct dlp_collate {
    uint64_t sequence, epoch, position; /* as in dlp_batch */
    uint32_t count;                     /* rows of the batch */
    uint32_t worker;
    void *worker_state;
    const uint64_t *index; /* [count] dataset index of each row */
    const uint8_t *valid;  /* [count] */
    uint32_t n_in, n_out;
    const struct dlp_collate_in {
        const dlp_field *field;
        const void *data;        /* row i is at data + i * stride */
        uint64_t stride;         /* bytes */
        const uint64_t *lengths; /* [count] rows of each item; NULL: not ragged */
    } * in;
    struct dlp_collate_out {
        const dlp_field *field;
        void *data;
        uint64_t capacity; /* bytes */
        int32_t ndim;      /* set it, with shape; preset to the field's [count, shape...] */
        int64_t shape[DLP_MAX_DIMS];
        uint64_t *lengths; /* [count], preset to zero; of a ragged field [count, ...] at most the
                              greatest other dimension of the shape */
        uint64_t *offsets; /* [count + 1]; a collate that packs sets has_offsets. They rise, up to
                              the greatest dimension of the shape */
        int32_t has_offsets;
    } * out;
    dlp_call *call; /* for dlp_fail */
} dlp_collate;

/* Make a batch out of items. Returns 0, or any other value for failure, best by dlp_fail. If a
   shape does not fit capacity, or lengths or offsets do not fit the shape, the error is
   DLP_ERR_LENGTH. All batch workers call it at once. */
typedef int (*dlp_collate_fn)(void *user, dlp_collate *c);

/* Make a batch: a ready-made collate. Fixed-size fields are copied as they are. pad: a ragged
   field becomes [count, longest in the batch, ...], with zeros after shorter items. pack: it
   becomes [rows of all items, ...] with offsets.
   user: not used. out_fields must be NULL, or fields as the dataset's.
   Returns 0, or DLP_ERR_CALLBACK: other out_fields, or more rows than max_per_batch; the message
   names the item. */
DLPDEF int dlp_collate_pad(void *user, dlp_collate *c);
DLPDEF int dlp_collate_pack(void *user, dlp_collate *c);

/* A device, as the transfer stage sees it. Start calls open, register_memory and alloc. Close, or
   the last release, calls free, unregister_memory and close. The transfer thread, or next if the
   stage is inline, calls copy, record and done. Functions return 0, or failure (DLP_ERR_DEVICE). */
typedef struct dlp_device {
    const char *name;                                                 /* borrowed until close */
    int (*open)(void *user);                                          /* may be NULL */
    void (*close)(void *user);                                        /* may be NULL */
    int (*register_memory)(void *user, void *mem, uint64_t bytes);    /* NULL: pageable copies */
    void (*unregister_memory)(void *user, void *mem, uint64_t bytes); /* or NULL */
    int (*alloc)(void *user, uint64_t bytes, void **dev);
    void (*free)(void *user, void *dev);
    /* copy: begin a copy. record: put an event after the copies of this buffer. done: return 1 if
       the event has passed, 0 if it has not; any other value is failure. */
    int (*copy)(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer);
    int (*record)(void *user, uint32_t buffer);
    int (*done)(void *user, uint32_t buffer);
    void *user;      /* borrowed until close */
    int32_t handles; /* 1: alloc gives handles, to which no offset can be added (cl_mem) */
    /* Begin a copy, as copy does, from byte from_at of one buffer of alloc to byte to_at of
       another. It serves batches that span chunks. next calls it, but never beside another
       callback. NULL: such batches are refused. */
    int (*copy_within)(void *user, void *to, uint64_t to_at, void *from, uint64_t from_at,
                       uint64_t bytes, uint32_t buffer);
    int (*room)(void *user, uint64_t *bytes); /* sets *bytes to what alloc has left, for
                                                 DLP_PRELOAD_AUTO. The thread that opens the pipe
                                                 calls it, before open. May be NULL */
} dlp_device;

/* Return a device whose memory is the host's and whose copies are memcpy. It is static. Any
   thread. */
DLPDEF const dlp_device *dlp_device_host(void); /* needs: transfer */
