/* dlpipe.h - v0.1.0 - data-loading pipelines for C11 - MIT licence - header-only, no dependencies

   >>use        DO THIS, THEN THAT
   In exactly one C file:   #define DLPIPE_IMPLEMENTATION
                            #include "dlpipe.h"
   everywhere else just include it. Link with -lpthread where libc wants it.

   >>contents
*/

#if defined(DLPIPE_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* asked for here, before the first system header; taken back at the end */
#define DLPI_ASKED_GNU_SOURCE
#endif

#ifndef DLPIPE_H
#define DLPIPE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define DLPIPE_VERSION_MAJOR 0
#define DLPIPE_VERSION_MINOR 1
#define DLPIPE_VERSION_PATCH 0

/* DLPIPE_STATIC [impl and all TUs]: make every function static, for use inside one file. */
#ifdef DLPIPE_STATIC
#define DLPDEF static
#elif defined(__cplusplus)
#define DLPDEF extern "C"
#else
#define DLPDEF extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
   >>errors     CODES AND ERROR RECORDS
   0 is OK, positive is flow control, negative is an error. */

#define DLP_CODES(X) \
    X(OK, 0, "ok", "") \
    X(FULL, 1, "queue is full", "take records out, or wait") \
    X(EMPTY, 2, "queue is empty", "put records in, or wait") \
    X(TIMEOUT, 3, "nothing came within the time-out", "call again, or look at dlp_pipe_explain") \
    X(END, 4, "no more batches", "close the pipe") \
    X(EPOCH_END, 5, "an epoch ended", "call next again for the next epoch") \
    X(STOPPED, 6, "the pipe was stopped", "close the pipe") \
    X(SKIP, 7, "this item is left out", "returned by a callback, see the error policies") \
    X(ERR_ARG, -1, "a parameter or desc field is out of range", "the message names it") \
    X(ERR_MEMORY, -2, "memory could not be had", "ask for fewer or smaller batches") \
    X(ERR_LIMIT, -3, "the plan is above a byte limit", "lower prefetch_factor or batch_size") \
    X(ERR_GRAPH, -4, "the stages do not form a pipeline", "link every stage once, in order") \
    X(ERR_STATE, -5, "a call came at the wrong time", "see the function's documentation") \
    X(ERR_HELD, -6, "max_held batches are held already", "release one, or raise max_held") \
    X(ERR_CALLBACK, -7, "a callback failed", "the message names stage, worker and item") \
    X(ERR_LENGTH, -8, "a callback wrote a wrong length", "the message names the item and field") \
    X(ERR_DEADLINE, -9, "a callback is past its deadline", "the message names the item") \
    X(ERR_BUSY, -10, "a callback is still running", "call close again when it has returned") \
    X(ERR_RESUME, -11, "a saved state does not fit", "the message names the field that differs") \
    X(ERR_CORRUPT, -12, "shared memory or a state is damaged", "do not use it") \
    X(ERR_SYSTEM, -13, "a system call failed", "the message has the call and errno") \
    X(ERR_DEVICE, -14, "the device backend failed", "the message has its words") \
    X(ERR_BUDGET, -15, "more items failed than max_skips allows", "mend the data or raise it") \
    X(ERR_UNSUPPORTED, -16, "not available on this system", "the message says what is missing")

enum {
#define DLPI_X(name, value, text, hint) DLP_##name = value,
    DLP_CODES(DLPI_X)
#undef DLPI_X
    DLP_CODES_END_ = 127
};

/* Special values. Zero always means the documented default. */
#define DLP_NONE (-1)    /* none of it */
#define DLP_FOREVER (-2) /* without end */
#define DLP_NOWAIT (-1)  /* for time-outs: do not wait */

#define DLP_MAX_FIELDS 16
#define DLP_MAX_DIMS 8
#define DLP_MAX_STAGES 16
#define DLP_MAX_WORKERS 1024 /* per stage */

/* What went wrong first, with its place. Strings are always terminated. Fields that do not apply
   are 0, worker -1. */
typedef struct dlp_error {
    int32_t code;       /* DLP_ERR_*, or 0 */
    int32_t errnum;     /* errno, or 0 */
    int32_t worker;     /* worker number in its stage, -1: none */
    int32_t has_item;   /* 1: index, epoch, position say which item */
    uint64_t index, epoch, position;
    char stage[32];     /* stage name, or "" */
    char field[48];     /* desc or dataset field at fault, or "" */
    char message[256];  /* what happened, in words; the user's own message where there is one */
} dlp_error;

/* Name ("DLP_ERR_ARG"), text and hint of a code; "unknown code" for others. Any thread. */
DLPDEF const char *dlp_code_name(int code);
DLPDEF const char *dlp_code_text(int code);
DLPDEF const char *dlp_code_hint(int code);

/* Write one line that says all an error record knows, ended by the hint. Returns the length that
   the whole line has, like snprintf. err, buf: borrowed. Any thread. */
DLPDEF int dlp_error_format(const dlp_error *err, char *buf, size_t size);

/* ---------------------------------------------------------------------------------------------
   >>queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   QUEUES-PUBLIC-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>order      HASHES, KEYED PERMUTATIONS
   ORDER-PUBLIC-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>dataset    FIELDS, DATASETS, ITEMS */

/* Element type: DLPack's type code and bits (https://dmlc.github.io/dlpack). */
typedef uint32_t dlp_dtype;
#define DLP_DTYPE(code, bits) ((uint32_t)(code) << 16 | (uint32_t)(bits))
#define DLP_U8 DLP_DTYPE(1, 8)
#define DLP_U16 DLP_DTYPE(1, 16)
#define DLP_U32 DLP_DTYPE(1, 32)
#define DLP_U64 DLP_DTYPE(1, 64)
#define DLP_I8 DLP_DTYPE(0, 8)
#define DLP_I16 DLP_DTYPE(0, 16)
#define DLP_I32 DLP_DTYPE(0, 32)
#define DLP_I64 DLP_DTYPE(0, 64)
#define DLP_F16 DLP_DTYPE(2, 16)
#define DLP_F32 DLP_DTYPE(2, 32)
#define DLP_F64 DLP_DTYPE(2, 64)
#define DLP_BF16 DLP_DTYPE(4, 16)
#define DLP_BOOL DLP_DTYPE(6, 8)

/* One array of an item. An item of a fixed-size field has shape[0..ndim-1]; ndim 0 is a scalar.
   Of a ragged field (ragged = 1) shape[0] is the most rows an item may have. */
typedef struct dlp_field {
    const char *name;                /* copied; required, unique, under 32 bytes */
    dlp_dtype dtype;                 /* 0: DLP_U8 */
    int32_t ndim;                    /* 0..DLP_MAX_DIMS-1 */
    int64_t shape[DLP_MAX_DIMS];     /* elements, each 1 or more */
    int32_t ragged;                  /* 1: an item's first dimension varies from 0 to shape[0] */
    int64_t max_per_batch;           /* ragged with an out-of-place collate: most rows (of dimension
                                        0, all items together) in a batch; 0: batch_size * shape[0] */
} dlp_field;

/* An item that a callback is to write or change. Valid during the call only. */
typedef struct dlp_item {
    uint64_t index;      /* dataset index */
    uint64_t epoch;
    uint64_t position;   /* place in the epoch's global order */
    uint32_t row;        /* row in its batch */
    uint32_t attempt;    /* 0, then 1.. for each retry */
    uint32_t n_fields;
    uint32_t worker;     /* worker number in its stage */
    void *worker_state;  /* what worker_init left */
    void **data;         /* [n_fields] where each field of this item is, 64-bit aligned at least */
    uint64_t *length;    /* [n_fields] ragged fields: rows written, to be set by fetch; others: leave */
    uint64_t seed;       /* the pipe's seed */
    void *internal;
} dlp_item;

/* A random number for augmenting this item, from (seed, epoch, position) alone: the same whatever
   worker runs it. salt tells several draws apart. Any thread. */
DLPDEF uint64_t dlp_item_random(const dlp_item *item, uint64_t salt);

/* Say why a callback fails; returns DLP_ERR_CALLBACK, to be returned by it. errnum: errno or 0;
   format: as printf's, cut at 255 bytes. Called inside the callback only. */
DLPDEF int dlp_item_fail(const dlp_item *item, int errnum, const char *format, ...);

/* Write the item. Called by many workers at once. Returns 0, DLP_SKIP to leave the item out, or any
   other value for failure (dlp_item_fail). */
typedef int (*dlp_item_fn)(void *user, dlp_item *item);

typedef struct dlp_dataset {
    uint64_t n_items;         /* 1..2^48 */
    const dlp_field *fields;  /* [n_fields] copied */
    uint32_t n_fields;        /* 1..DLP_MAX_FIELDS */
    uint32_t fills_rows;      /* 0: each row is zeroed before fetch. 1: fetch promises to write every byte
                                 of every fixed-size field, and nothing is zeroed first */
    dlp_item_fn fetch;
    void *user;               /* borrowed until close */
} dlp_dataset;

/* ---------------------------------------------------------------------------------------------
   >>batch      WHAT THE CALLER GETS */

typedef struct dlp_tensor {
    const char *name;
    void *data;                   /* 64-byte aligned; on the device after a transfer stage */
    uint64_t bytes;               /* bytes in use */
    dlp_dtype dtype;
    int32_t ndim;
    int64_t shape[DLP_MAX_DIMS];  /* [count, item shape...], or as a collate made it */
    const uint64_t *lengths;      /* ragged: [count] rows of each item, else NULL; host memory */
    const uint64_t *offsets;      /* packed: [count + 1] where each item begins, else NULL; host memory */
} dlp_tensor;

enum { DLP_BATCH_LAST = 1 /* last batch of its epoch */ };

/* A batch lent to the caller until released. Read its fields; do not change them (data may be
   written, it is the caller's until release). */
typedef struct dlp_batch {
    uint64_t sequence;       /* 0.. over the life of the pipe, in the order of the sampler */
    uint64_t epoch;
    uint64_t position;       /* first row's place in the epoch's global order */
    uint64_t in_epoch;       /* number of this batch in its epoch */
    uint32_t count;          /* rows */
    uint32_t valid_count;    /* rows with valid[] = 1 */
    uint32_t flags;          /* DLP_BATCH_LAST */
    uint32_t n_fields;
    const dlp_tensor *fields;    /* [n_fields] */
    const uint64_t *index;       /* [count] dataset index of each row */
    const uint8_t *valid;        /* [count] 0: padding, or left out by DLP_ON_ERROR_SHORT */
    void *internal;
} dlp_batch;

/* ---------------------------------------------------------------------------------------------
   >>state      RESUME */

/* Everything up to some batch is consumed: save it anywhere, give it back as .resume. The same bytes
   on every rank. Versioned and checksummed; opaque. */
typedef struct dlp_state {
    uint8_t bytes[248];
} dlp_state;

/* ---------------------------------------------------------------------------------------------
   >>samplers   WHICH ITEMS, IN WHICH ORDER */

enum {
    DLP_ORDER_SEQUENTIAL = 0,
    DLP_ORDER_SHUFFLED,     /* a keyed permutation of the epoch: each index once */
    DLP_ORDER_REPLACEMENT,  /* uniform with replacement */
    DLP_ORDER_WEIGHTED,     /* with replacement, by integer weights */
    DLP_ORDER_FUNCTION,     /* the user's pure function of (epoch, position) */
    DLP_ORDER_BATCHES       /* the user's batch sampler */
};

enum {
    DLP_LAST_SHORT = 0, /* the last batch of an epoch may be short */
    DLP_LAST_DROP,      /* ... is dropped */
    DLP_LAST_PAD        /* ... is filled from the epoch's beginning; valid[] is 0 there */
};

#define DLP_SAMPLER_STATE_BYTES 128

/* The user's own batch sampler. Called by one thread at a time. */
typedef struct dlp_batch_sampler {
    /* Fill index[0..max-1] with the next batch of this epoch (global: all ranks see the same list).
       Returns the number of indices (1..max), 0 at the epoch's end, negative for failure. */
    int64_t (*next)(void *user, uint64_t epoch, uint64_t *index, uint64_t max);
    /* Begin an epoch. May be NULL. Returns 0, or negative for failure. */
    int (*begin)(void *user, uint64_t epoch);
    /* Save all that the sampler needs to go on (at most DLP_SAMPLER_STATE_BYTES, returned as length),
       and take it back. Both or neither; with neither, resume replays the epoch's batches. */
    int (*save)(void *user, void *bytes);
    int (*restore)(void *user, const void *bytes, size_t n);
    void *user;
} dlp_batch_sampler;

typedef struct dlp_sampler_desc {
    int32_t order;             /* DLP_ORDER_* */
    int32_t threaded;          /* 0: inline in the caller's next/release; 1: a thread of its own */
    uint64_t seed;             /* any value */
    uint64_t samples_per_epoch;/* REPLACEMENT, WEIGHTED, FUNCTION: draws per epoch; 0: the number of items */
    const uint64_t *subset;    /* NULL: all items; else the order runs over subset[0..n_subset-1]; borrowed until close */
    uint64_t n_subset;
    const uint64_t *weights;   /* WEIGHTED: [items or n_subset] integer weights, sum 1..2^63; copied at start */
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position); /* FUNCTION: index of a position; pure; any thread */
    void *function_user;
    uint64_t function_id;      /* FUNCTION, BATCHES: the user's number for this order, part of a state's fingerprint */
    dlp_batch_sampler batches; /* BATCHES */
    uint32_t rank, world_size; /* 0, 0: one rank */
    int32_t allow_uneven;      /* 1: batch_size need not be divisible by world_size */
} dlp_sampler_desc;

typedef struct dlp_repeat_desc {
    int64_t epochs;            /* 0: one; DLP_FOREVER */
    int32_t epoch_end;         /* 1: next returns DLP_EPOCH_END once after each epoch's last batch */
} dlp_repeat_desc;

/* ---------------------------------------------------------------------------------------------
   >>stages     WHO DOES THE WORK */

enum {
    DLP_ON_ERROR_RAISE = 0, /* next returns the error when it reaches the batch */
    DLP_ON_ERROR_REPLACE,   /* another item takes the row, chosen by (seed, epoch, position, k) alone */
    DLP_ON_ERROR_SHORT      /* the row is left out: zero bytes, valid[] = 0 */
};

enum {
    DLP_DISPATCH_CLAIM = 0, /* workers claim runs of items by compare-and-swap */
    DLP_DISPATCH_LANES      /* items are dealt to the worker with the least queued and outstanding work */
};

enum { DLP_PLACE_THREADS = 0, DLP_PLACE_PROCESSES = 1 /* dlpipe_shm.h */ };

/* How the workers of a stage run; the same part in each stage's desc. */
typedef struct dlp_workers_desc {
    int32_t num_workers;      /* 0: inline in the caller's next; at most DLP_MAX_WORKERS */
    int32_t placement;        /* DLP_PLACE_* */
    int32_t dispatch;         /* DLP_DISPATCH_* */
    int32_t on_error;         /* DLP_ON_ERROR_* */
    int32_t retries;          /* more tries of a failed item; 0..100 */
    int32_t retry_backoff_ms; /* wait before the first retry, doubled each time to at most 64 times; 0: none */
    int64_t max_skips;        /* items that may be replaced or left out before DLP_ERR_BUDGET; 0: no limit; DLP_NONE: none */
    int32_t deadline_ms;      /* 0: none; a callback that takes longer makes next return DLP_ERR_DEADLINE */
    int32_t idempotent;       /* a stage that changes a cell may be run on it again after a failure */
    int (*worker_init)(void *user, int worker, void **state); /* in the worker, before its first item; 0 or failure */
    void (*worker_exit)(void *user, int worker, void *state); /* in the worker, after its last item */
    void *worker_user;        /* borrowed until close */
    const int32_t *affinity;  /* [n_affinity] CPU of worker i is affinity[i % n_affinity]; copied */
    int32_t n_affinity;
    uint64_t stack_bytes;     /* 0: the system's */
    const char *name;         /* stage name, copied; NULL: "fetch", "batch", ...; at most 11 bytes show in thread names */
} dlp_workers_desc;

typedef struct dlp_fetch_desc {
    const dlp_dataset *dataset; /* copied */
    dlp_workers_desc workers;
} dlp_fetch_desc;

/* What a collate sees. Valid during the call only. */
typedef struct dlp_collate {
    uint64_t sequence, epoch, position;
    uint32_t count;
    uint32_t worker;
    void *worker_state;
    const uint64_t *index;      /* [count] */
    const uint8_t *valid;       /* [count] */
    uint32_t n_in, n_out;
    const struct dlp_collate_in {
        const dlp_field *field;
        const void *data;       /* row i is at data + i * stride */
        uint64_t stride;        /* bytes */
        const uint64_t *lengths;/* ragged: [count], else NULL */
    } *in;
    struct dlp_collate_out {
        const dlp_field *field;
        void *data;
        uint64_t capacity;      /* bytes */
        int32_t ndim;           /* to be set, with shape; preset to the field's [count, shape...] */
        int64_t shape[DLP_MAX_DIMS];
        uint64_t *lengths;      /* [count], preset to zero */
        uint64_t *offsets;      /* [count + 1]; a collate that packs sets has_offsets */
        int32_t has_offsets;
    } *out;
    void *internal;
} dlp_collate;

typedef int (*dlp_collate_fn)(void *user, dlp_collate *c);
/* Built-in collates. pad: ragged fields become [count, longest in the batch, ...], zeros behind the
   shorter. pack: [rows of all items, ...] with offsets. Fixed fields are copied as they are. */
DLPDEF int dlp_collate_pad(void *user, dlp_collate *c);
DLPDEF int dlp_collate_pack(void *user, dlp_collate *c);
/* As dlp_item_fail, for a collate. */
DLPDEF int dlp_collate_fail(const dlp_collate *c, int errnum, const char *format, ...);

typedef struct dlp_batch_desc {
    uint32_t batch_size;        /* rows of the global batch (all ranks together); required, 1..2^20 */
    int32_t last;               /* DLP_LAST_* */
    dlp_collate_fn collate;     /* NULL: rows are written in place, nothing is copied */
    void *collate_user;
    const dlp_field *out_fields;/* with a collate: fields of the batch, [n_out_fields]; NULL: the dataset's; copied */
    uint32_t n_out_fields;
    int32_t batch_workers;      /* 0: without a collate none (the last item worker closes the batch), with one
                                   prefetch_factor of them (inline if items are inline); DLP_NONE: inline */
    dlp_workers_desc workers;   /* num_workers is set from batch_workers */
} dlp_batch_desc;

/* A 1:1 stage of the user's. Give item (before the assembler) or batch (after it). Cells are changed in place. */
typedef struct dlp_map_desc {
    dlp_item_fn item;
    int (*batch)(void *user, dlp_batch *batch, void *worker_state);
    void *user;
    dlp_workers_desc workers;
} dlp_map_desc;

/* A device, as the transfer stage sees it. Called by the stage's one thread, but for close and what says otherwise.
   Functions return 0 or failure. dlp_device_host is a backend that copies to host memory. */
typedef struct dlp_device {
    const char *name;
    int (*open)(void *user);
    void (*close)(void *user);
    int (*register_memory)(void *user, void *mem, uint64_t bytes);   /* may be NULL: copies are pageable */
    void (*unregister_memory)(void *user, void *mem, uint64_t bytes);
    int (*alloc)(void *user, uint64_t bytes, void **dev);
    void (*free)(void *user, void *dev);
    int (*copy)(void *user, void *dev, const void *host, uint64_t bytes, uint32_t buffer); /* begin a copy */
    int (*record)(void *user, uint32_t buffer);  /* an event behind the copies of this buffer */
    int (*done)(void *user, uint32_t buffer);    /* 1: event passed, 0: not yet, negative: failure */
    void *user;
} dlp_device;
DLPDEF const dlp_device *dlp_device_host(void);

typedef struct dlp_transfer_desc {
    const dlp_device *device;  /* copied; NULL: dlp_device_host() */
    int32_t device_buffers;    /* 0: max_held + 1; max_held + 1..64 */
    int32_t threaded;          /* 0: inline; 1: a thread */
} dlp_transfer_desc;

/* ---------------------------------------------------------------------------------------------
   >>pipe       WIRING, RUNNING */

typedef struct dlp_pipe dlp_pipe;
typedef int32_t dlp_stage; /* a stage of a pipe; negative: DLP_ERR_*, see dlp_pipe_error */

/* A byte limit that several pipes share; zero used before the first. */
typedef struct dlp_budget {
    uint64_t limit_bytes;
    uint64_t used_bytes;       /* kept by dlpipe */
} dlp_budget;

typedef struct dlp_pipe_desc {
    int32_t prefetch_factor;   /* batches between sampler and next; 0: 2 (1 when all is inline); at most 4096 */
    int32_t max_held;          /* batches the caller may hold at once; 0: 1; at most 256 */
    int32_t unordered;         /* 1: batches come in the order of completion */
    int32_t close_timeout_ms;  /* 0: 5000; DLP_NOWAIT; DLP_FOREVER: wait for running callbacks */
    uint64_t limit_bytes;      /* 0: none; the plan must fit */
    dlp_budget *budget;        /* NULL: none; borrowed until close */
    uint32_t trace_bytes;      /* trace ring of each worker; 0: 4096; at most 64 MiB */
    int32_t no_memfd;          /* 1: anonymous memory, cannot be observed from outside */
    const dlp_state *resume;   /* NULL: from the beginning; copied */
    void (*log)(void *user, const char *message); /* warnings; NULL: kept for dlp_pipe_warning only */
    void *log_user;
    const char *name;          /* copied; for people */
} dlp_pipe_desc;

DLPDEF int dlp_pipe_open(dlp_pipe **out, const dlp_pipe_desc *desc, dlp_error *err);
DLPDEF dlp_stage dlp_pipe_add_sampler(dlp_pipe *p, const dlp_sampler_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_repeat(dlp_pipe *p, const dlp_repeat_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_fetch(dlp_pipe *p, const dlp_fetch_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_map(dlp_pipe *p, const dlp_map_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_batch(dlp_pipe *p, const dlp_batch_desc *desc);
DLPDEF dlp_stage dlp_pipe_add_transfer(dlp_pipe *p, const dlp_transfer_desc *desc);
DLPDEF int dlp_pipe_link(dlp_pipe *p, dlp_stage from, dlp_stage to);

/* One line of a memory plan. */
typedef struct dlp_plan_line {
    char what[48];
    uint64_t count, bytes_each, bytes;
} dlp_plan_line;
typedef struct dlp_plan {
    uint64_t total_bytes, limit_bytes;
    uint64_t slots;              /* prefetch_factor + max_held */
    uint64_t slot_bytes;         /* one batch with its per-row records */
    uint32_t n_lines;
    dlp_plan_line lines[32];
} dlp_plan;
DLPDEF int dlp_pipe_plan(dlp_pipe *p, dlp_plan *out);
DLPDEF int dlp_plan_format(const dlp_plan *plan, char *buf, size_t size);

DLPDEF int dlp_pipe_start(dlp_pipe *p);
DLPDEF int dlp_pipe_next(dlp_pipe *p, dlp_batch **out, int timeout_ms);
DLPDEF int dlp_pipe_release(dlp_pipe *p, dlp_batch *batch);
DLPDEF int dlp_pipe_next_epoch(dlp_pipe *p);
DLPDEF void dlp_pipe_stop(dlp_pipe *p);
DLPDEF int dlp_pipe_close(dlp_pipe *p);
DLPDEF const dlp_error *dlp_pipe_error(const dlp_pipe *p);
DLPDEF const char *dlp_pipe_warning(const dlp_pipe *p, int i); /* i-th warning, NULL behind the last */
DLPDEF int dlp_pipe_state(dlp_pipe *p, const dlp_batch *batch, dlp_state *out);
DLPDEF int64_t dlp_pipe_batches_per_epoch(const dlp_pipe *p); /* -1: not known */

/* ---------------------------------------------------------------------------------------------
   >>loader     ALL IN ONE CALL */

typedef struct dlp_loader_desc {
    dlp_dataset dataset;         /* required */
    uint32_t batch_size;         /* required; global batch */
    int32_t num_workers;         /* item workers; 0: inline */
    int32_t shuffle;             /* 1: DLP_ORDER_SHUFFLED; same as sampler.order */
    int32_t drop_last;           /* 1: DLP_LAST_DROP; same as last */
    int32_t last;                /* DLP_LAST_* */
    int64_t epochs;              /* 0: one; DLP_FOREVER */
    int32_t epoch_end;           /* 1: next returns DLP_EPOCH_END between epochs */
    uint64_t seed;               /* same as sampler.seed */
    dlp_sampler_desc sampler;
    dlp_workers_desc workers;    /* num_workers is set from above */
    dlp_collate_fn collate;
    void *collate_user;
    const dlp_field *out_fields;
    uint32_t n_out_fields;
    int32_t batch_workers;
    const dlp_device *device;    /* not NULL: a transfer stage on this device */
    int32_t device_buffers;
    int32_t transfer_threaded;
    dlp_pipe_desc pipe;
} dlp_loader_desc;

/* Open and start the economic topology. */
DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err);

/* ---------------------------------------------------------------------------------------------
   >>stats      COUNTERS, TRACE, PICTURES, WORDS */

enum { DLP_WORKER_IDLE = 0, DLP_WORKER_STARTING, DLP_WORKER_BUSY, DLP_WORKER_STARVED, DLP_WORKER_BLOCKED, DLP_WORKER_EXITED };

typedef struct dlp_worker_stats {
    int32_t stage, worker;      /* stage as added; worker in its stage */
    int32_t state;              /* DLP_WORKER_* */
    int32_t tid;                /* for display */
    uint64_t items;             /* items done (batches for batch stages) */
    uint64_t bytes;
    uint64_t busy_ns;           /* in callbacks */
    uint64_t starved_ns;        /* waiting for input */
    uint64_t blocked_ns;        /* waiting for a free cell behind it */
    uint64_t cpu_ns;            /* of its thread, 0 if not known */
    uint64_t current_index;     /* item in work, UINT64_MAX: none */
    uint64_t current_age_ns;
    uint64_t queued;            /* tickets in its lanes */
} dlp_worker_stats;

typedef struct dlp_stage_stats {
    char name[32];
    int32_t kind;               /* DLP_STAGE_* */
    int32_t workers;            /* 0: inline */
    int32_t unit_is_batch;      /* 1: items count batches */
    uint64_t items, bytes, retried, replaced, left_out;
    uint64_t busy_ns, starved_ns, blocked_ns, cpu_ns;   /* summed over workers */
    uint64_t p50_ns, p95_ns, p99_ns, max_ns;            /* time of one item, 0: not known yet */
    uint64_t ready;             /* items (batches) waiting before it */
} dlp_stage_stats;

enum { DLP_STAGE_SAMPLER = 1, DLP_STAGE_REPEAT, DLP_STAGE_FETCH, DLP_STAGE_MAP_ITEM, DLP_STAGE_BATCH, DLP_STAGE_MAP_BATCH, DLP_STAGE_TRANSFER };

typedef struct dlp_stats {
    uint64_t elapsed_ns;        /* since start */
    uint64_t batches, items;    /* delivered */
    uint64_t bytes;             /* of fields delivered */
    uint64_t wait_ns;           /* the caller waited in next */
    uint64_t step_ns;           /* the caller held batches, or was elsewhere, between next and next */
    uint64_t step_p50_ns, step_p95_ns;
    uint64_t first_batch_ns;    /* from start to the first batch */
    uint64_t epoch;             /* of the batch delivered last */
    uint32_t batch_size;        /* rows of this rank's full batch */
    uint32_t prefetch_factor, max_held;
    uint32_t in_flight;         /* batches between sampler and next */
    uint32_t ready;             /* ... of them complete */
    uint32_t held;
    uint32_t slots;
    uint32_t cpus;              /* that the process may use */
    uint32_t n_stages, n_workers;
    uint64_t plan_bytes;
    dlp_stage_stats stages[DLP_MAX_STAGES];
} dlp_stats;

DLPDEF int dlp_pipe_stats(dlp_pipe *p, dlp_stats *out);
DLPDEF int dlp_pipe_worker_stats(dlp_pipe *p, uint32_t i, dlp_worker_stats *out); /* i < n_workers */

/* An item that was replaced or left out. */
typedef struct dlp_skip {
    uint64_t epoch, position, index, new_index; /* new_index UINT64_MAX: left out */
    int32_t code, errnum, stage, worker;
} dlp_skip;
/* Copy the newest skips (at most max, of a ring of 64); *total: how many there were. Returns the number copied. */
DLPDEF int dlp_pipe_skips(dlp_pipe *p, dlp_skip *out, int max, uint64_t *total);

/* Say in words which stage limits throughput and what to change: lines, the first beginning "Limit: ".
   buf, size: borrowed; cut and terminated like snprintf's; NULL with size 0 asks for the length - returns
   the length of the whole text, or DLP_ERR_ARG (explain: or dlp_pipe_stats' error) - any thread - does
   not wait or allocate. */
DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size);
DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size);

enum { DLP_TRACE_WORK = 1, DLP_TRACE_WAIT, DLP_TRACE_STEP, DLP_TRACE_EPOCH, DLP_TRACE_STARVED, DLP_TRACE_BLOCKED };

/* A stretch of time in a lane (a worker, or the trainer). Stretches of a lane do not overlap. */
typedef struct dlp_trace_event {
    uint64_t begin_ns, end_ns;  /* since start */
    uint64_t sequence;          /* batch */
    uint32_t epoch;
    uint16_t kind;              /* DLP_TRACE_* */
    uint16_t items;             /* done in it, of one batch */
} dlp_trace_event;

/* Lane 0 is the trainer; the others are workers in the order of stages. Copies the newest events, oldest first;
   returns their number, or negative. name: [32], may be NULL. */
DLPDEF int dlp_pipe_trace_lanes(const dlp_pipe *p);
DLPDEF int dlp_pipe_trace(dlp_pipe *p, int lane, dlp_trace_event *out, int max, char *name);
/* Write the trace as Chrome trace-event JSON (for Perfetto), or as one self-contained SVG of the newest
   stretch. path: borrowed; a new or regular file is written as path.tmp and renamed, anything else
   (device, pipe, link) in place - returns 0, DLP_ERR_ARG, DLP_ERR_MEMORY, DLP_ERR_SYSTEM with errno, or
   dlp_pipe_trace's error; after a failure the old file is there as it was - progress: allocates for the
   length of the call and writes a file; keep it off the step path. */
DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path);
DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path);

#ifdef __cplusplus
}
#endif
#endif /* DLPIPE_H */

/* =============================================================================================
   IMPLEMENTATION */
#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_IMPLEMENTATION_DONE)
#define DLPIPE_IMPLEMENTATION_DONE

/* ---------------------------------------------------------------------------------------------
   >>impl-platform   SYSTEM HEADERS, SWITCHES */

#include <errno.h>
#if defined(__GLIBC__) && !defined(__USE_GNU)
#error "dlpipe: include dlpipe.h with DLPIPE_IMPLEMENTATION before any system header, or compile that file with -D_GNU_SOURCE"
#endif
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

/* DLPIPE_NO_FUTEX, DLPIPE_NO_MEMBARRIER, DLPIPE_NO_MEMFD [impl]: use the portable fall-back. */
#if !defined(__linux__)
#ifndef DLPIPE_NO_FUTEX
#define DLPIPE_NO_FUTEX
#endif
#ifndef DLPIPE_NO_MEMBARRIER
#define DLPIPE_NO_MEMBARRIER
#endif
#ifndef DLPIPE_NO_MEMFD
#define DLPIPE_NO_MEMFD
#endif
#endif

#define DLPI_LINE 128u /* two cache lines: the adjacent-line prefetcher moves pairs */
#define DLPI_UNUSED(x) ((void)(x))
#define DLPI_LIKELY(x) __builtin_expect(!!(x), 1)
#define DLPI_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---------------------------------------------------------------------------------------------
   >>impl-atomics    THE ONE SHIM OVER THE COMPILER'S ATOMICS
   Each use carries a label and names its partner. A checker may define these before inclusion. */
#ifndef DLPI_LOAD_RLX
#define DLPI_LOAD_RLX(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define DLPI_LOAD_ACQ(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define DLPI_LOAD_SEQ(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define DLPI_STORE_RLX(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define DLPI_STORE_REL(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define DLPI_STORE_SEQ(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_XCHG_SEQ(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_SEQ(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_RLX(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define DLPI_OR_SEQ(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_AND_SEQ(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
/* Strong compare-and-swap; *e gets the value found on failure. */
#define DLPI_CAS_SEQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define DLPI_CAS_ACQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#endif

static inline void dlpi_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

static inline uint64_t dlpi_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-errors     CODES AND ERROR RECORDS
   IMPL-ERRORS-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>impl-queues     SPSC LANES, MPSC BUNDLES, BLOCKING WAIT
   IMPL-QUEUES-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>impl-order      HASHES, KEYED PERMUTATIONS, SAMPLERS' ARITHMETIC
   IMPL-ORDER-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>impl-core       REGION, STAGES, WORKERS, PIPE
   IMPL-CORE-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>impl-pictures   TRACE, TIMELINE, WORDS
   Nothing here runs on a hot path: it reads what stats and trace give, may allocate for the length
   of a call, and writes files. No figure is printed with %f: the decimal point would follow the
   caller's locale, and neither JSON nor SVG may. */

#include <sys/stat.h>

/* One lane of a trace: a worker's events in the order of time. group: stage, -1 for the trainer. */
typedef struct dlpi_lane {
    char name[32];
    int group;
    const dlp_trace_event *events;
    int n;
} dlpi_lane;

/* A number as text, by value, to stand in an argument list. */
typedef struct dlpi_num {
    char s[40];
} dlpi_num;

/* v with three digits or more: 0.12, 4.56, 12.3, 1234, 56,789, 1.23 million. */
static dlpi_num dlpi_num_of(double v) {
    dlpi_num r;
    const char *unit = "";
    if (!(v > 0)) {
        v = 0;
    }
    if (v >= 1e15) {
        v = 1e15;
    }
    if (v >= 1e6) {
        v /= 1e6;
        unit = " million";
    }
    uint64_t q = v < 9.995 ? 100 : v < 99.95 ? 10 : 1;
    uint64_t x = (uint64_t)(v * (double)q + 0.5);
    if (q == 1 && x >= 10000 && x < 1000000) {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ",%03u%s", x / 1000, (unsigned)(x % 1000), unit);
    } else if (q == 1) {
        snprintf(r.s, sizeof r.s, "%" PRIu64 "%s", x, unit);
    } else if (q == 10) {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ".%u%s", x / 10, (unsigned)(x % 10), unit);
    } else {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ".%02u%s", x / 100, (unsigned)(x % 100), unit);
    }
    return r;
}

/* A share as a percentage without its sign: 0, 0.4, 12, 99.6, 100. */
static dlpi_num dlpi_num_percent(double share) {
    dlpi_num r;
    double p = share > 1 ? 100 : share > 0 ? share * 100 : 0;
    uint64_t x = (uint64_t)(p * 10 + 0.5);
    if (x == 0 || x == 1000 || (x >= 100 && x < 990)) {
        snprintf(r.s, sizeof r.s, "%" PRIu64, (x + 5) / 10);
    } else {
        snprintf(r.s, sizeof r.s, "%" PRIu64 ".%" PRIu64, x / 10, x % 10);
    }
    return r;
}

static dlpi_num dlpi_num_bytes(double v) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; v >= 1024 && u < 4; u++) {
        v /= 1024;
    }
    dlpi_num n = dlpi_num_of(v), r;
    if (u == 0) {
        snprintf(n.s, sizeof n.s, "%d", (int)(v + 0.5));
    }
    snprintf(r.s, sizeof r.s, "%.24s %s", n.s, units[u]);
    return r;
}

/* A time in the unit that suits `reference`, with decimals enough to tell `resolution` apart. */
static dlpi_num dlpi_num_time(uint64_t ns, uint64_t reference, uint64_t resolution) {
    const char *name = reference >= 1000000000u ? "s"
                       : reference >= 1000000u  ? "ms"
                       : reference >= 1000u     ? "us"
                                                : "ns";
    uint64_t unit = *name == 's'   ? 1000000000u
                    : *name == 'm' ? 1000000u
                    : *name == 'u' ? 1000u
                                   : 1u,
             q = unit;
    char fraction[12] = ".000000000";
    int decimals = 0;
    dlpi_num r;
    for (; q > resolution && q > 1; q /= 10) {
        decimals++;
    }
    uint64_t v = ns / q + (ns % q >= (q + 1) / 2 ? 1 : 0), scale = unit / q, rest = v % scale;
    fraction[decimals > 0 ? decimals + 1 : 0] = 0;
    for (int i = decimals; i > 0; i--, rest /= 10) {
        fraction[i] = (char)('0' + rest % 10);
    }
    snprintf(r.s, sizeof r.s, "%" PRIu64 "%s %s", v / scale, fraction, name);
    return r;
}

/* A duration with about three digits. */
static dlpi_num dlpi_num_ns(uint64_t ns) {
    return dlpi_num_time(ns, ns, ns / 100);
}

/* ---- a file that is whole or not there ---- */

typedef struct dlpi_out {
    int fd;
    int errnum; /* first failure; nothing is written after it */
    size_t n;
    char *temporary; /* renamed at the end; NULL: written in place */
    const char *path;
    char buf[8192];
} dlpi_out;

static void dlpi_out_flush(dlpi_out *o) {
    size_t done = 0;
    while (done < o->n && o->errnum == 0) {
        ssize_t k = write(o->fd, o->buf + done, o->n - done);
        if (k > 0) {
            done += (size_t)k;
        } else if (k == 0 || errno != EINTR) {
            o->errnum = k == 0 ? EIO : errno;
        }
    }
    o->n = 0;
}

static void dlpi_out_bytes(dlpi_out *o, const char *s, size_t n) {
    if (n > sizeof o->buf - o->n) {
        dlpi_out_flush(o);
    }
    memcpy(o->buf + o->n, s, n);
    o->n += n;
}

/* Print at most 1023 bytes: strings of unknown length go through dlpi_out_escaped. */
__attribute__((format(printf, 2, 3)))
static void dlpi_out_print(dlpi_out *o, const char *format, ...) {
    char line[1024];
    va_list a;
    va_start(a, format);
    int n = vsnprintf(line, sizeof line, format, a);
    va_end(a);
    if (n < 0 || (size_t)n >= sizeof line) {
        o->errnum = o->errnum ? o->errnum : EOVERFLOW;
        return;
    }
    dlpi_out_bytes(o, line, (size_t)n);
}

/* A regular or new file is written beside itself and renamed, so that a failure leaves what was there.
   Anything else (a device, a pipe, a link such as /dev/stdout) is written in place: renaming over it
   would put a file where the device was. */
static int dlpi_out_open(dlpi_out *o, const char *path) {
    struct stat st;
    o->errnum = 0;
    o->n = 0;
    o->path = path;
    o->temporary = NULL;
    bool in_place = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (in_place) {
        o->fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
        return o->fd < 0 ? DLP_ERR_SYSTEM : DLP_OK;
    }
    size_t n = strlen(path);
    if ((o->temporary = malloc(n + 5)) == NULL) {
        return DLP_ERR_MEMORY;
    }
    memcpy(o->temporary, path, n);
    memcpy(o->temporary + n, ".tmp", 5);
    /* A leftover is replaced; a link planted there is not followed. */
    if (unlink(o->temporary) == 0 || errno == ENOENT) {
        o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } else {
        o->fd = -1;
    }
    if (o->fd < 0) {
        int e = errno;
        free(o->temporary);
        errno = e;
        return DLP_ERR_SYSTEM;
    }
    return DLP_OK;
}

static int dlpi_out_close(dlpi_out *o) {
    dlpi_out_flush(o);
    if (close(o->fd) != 0 && o->errnum == 0) {
        o->errnum = errno;
    }
    if (o->temporary != NULL) {
        if (o->errnum == 0 && rename(o->temporary, o->path) != 0) {
            o->errnum = errno;
        }
        if (o->errnum != 0) {
            unlink(o->temporary);
        }
        free(o->temporary);
    }
    if (o->errnum != 0) {
        errno = o->errnum;
        return DLP_ERR_SYSTEM;
    }
    return DLP_OK;
}

/* Step over one character and return its code point; 0xFFFD for whatever is not well-formed UTF-8, and
   for characters that no picture should carry: controls, marks that turn the writing direction, and
   what XML forbids. */
static uint32_t dlpi_utf8_next(const char **s, const char *end) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    uint32_t c = (unsigned char)*(*s)++;
    int more = c < 0x80 ? 0 : c >= 0xf0 && c < 0xf8 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c >= 0x80 && (c < 0xc2 || c >= 0xf8)) {
        return 0xfffd;
    }
    c &= more == 3 ? 7u : more == 2 ? 15u : more == 1 ? 31u : 127u;
    for (int i = 0; i < more; i++) {
        if (*s == end || ((unsigned char)**s & 0xc0) != 0x80) {
            return 0xfffd;
        }
        c = c << 6 | ((unsigned char)*(*s)++ & 0x3f);
    }
    bool bad = c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ||
               (c & 0xfffe) == 0xfffe || c < 0x20 || (c >= 0x7f && c < 0xa0) ||
               (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
               (c >= 0x2066 && c <= 0x2069);
    return bad ? 0xfffd : c;
}

/* Width of a text in units that no common sans-serif font exceeds at 0.66 em each. */
static int dlpi_text_units(const char *s, size_t n) {
    int units = 0;
    for (const char *end = s + n; s != end;) {
        units += dlpi_utf8_next(&s, end) < 0x250 ? 1 : 2;
    }
    return units;
}

static void dlpi_out_char(dlpi_out *o, uint32_t c, bool json) {
    char b[8];
    if (json && (c == '"' || c == '\\')) {
        dlpi_out_print(o, "\\%c", (int)c);
    } else if (!json && (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')) {
        dlpi_out_print(o, "&#%d;", (int)c);
    } else if (c < 0x80) {
        b[0] = (char)c;
        dlpi_out_bytes(o, b, 1);
    } else {
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        b[0] = (char)((more == 1 ? 0xc0u : more == 2 ? 0xe0u : 0xf0u) | c >> (6 * more));
        for (int i = 1; i <= more; i++) {
            b[i] = (char)(0x80u | (c >> (6 * (more - i)) & 0x3f));
        }
        dlpi_out_bytes(o, b, (size_t)more + 1);
    }
}

/* Write a name of at most `max` bytes, cut to `units` of width, as JSON or XML text. */
static void dlpi_out_escaped(dlpi_out *o, const char *s, size_t max, int units, bool json) {
    size_t n = strnlen(s, max);
    const char *end = s + n;
    bool cut = dlpi_text_units(s, n) > units;
    int used = 0;
    while (s != end) {
        uint32_t c = dlpi_utf8_next(&s, end);
        used += c < 0x250 ? 1 : 2;
        if (cut && used > units - 2) {
            dlpi_out_char(o, 0x2026, json);
            return;
        }
        dlpi_out_char(o, c, json);
    }
}

/* ---- Chrome trace-event JSON: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ---- */

static void dlpi_json_event(dlpi_out *o, int tid, const dlp_trace_event *e) {
    static const char *const kinds[] = {"other", "work",    "wait",   "step",
                                        "epoch", "starved", "blocked"};
    const char *kind = kinds[e->kind < 7 ? e->kind : 0];
    uint64_t dur = e->end_ns > e->begin_ns ? e->end_ns - e->begin_ns : 0;
    dlpi_out_print(o,
                   ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64
                   ".%03u,\"cat\":\"%s\",",
                   tid, e->begin_ns / 1000, (unsigned)(e->begin_ns % 1000), dur / 1000,
                   (unsigned)(dur % 1000), kind);
    if (e->kind == DLP_TRACE_WORK || e->kind == DLP_TRACE_STEP) {
        dlpi_out_print(o, "\"name\":\"%s %" PRIu64 "\"",
                       e->kind == DLP_TRACE_WORK ? "batch" : "step", e->sequence);
    } else if (e->kind == DLP_TRACE_EPOCH) {
        dlpi_out_print(o, "\"name\":\"epoch %" PRIu32 "\"", e->epoch);
    } else {
        dlpi_out_print(o, "\"name\":\"%s\"", kind);
    }
    dlpi_out_print(o, ",\"args\":{\"sequence\":%" PRIu64 ",\"epoch\":%" PRIu32 ",\"items\":%u}}",
                   e->sequence, e->epoch, (unsigned)e->items);
}

static void dlpi_json_write(dlpi_out *o, const dlpi_lane *lanes, int n_lanes) {
    dlpi_out_print(
        o,
        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"writer\":\"dlpipe "
        "%d.%d.%d\"},\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"dlpipe\"}}",
        DLPIPE_VERSION_MAJOR, DLPIPE_VERSION_MINOR, DLPIPE_VERSION_PATCH);
    for (int i = 0; i < n_lanes; i++) {
        dlpi_out_print(
            o,
            ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"",
            i + 1);
        dlpi_out_escaped(o, lanes[i].name, sizeof lanes[i].name, INT_MAX, true);
        dlpi_out_print(o,
                       "\"}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_sort_index\","
                       "\"args\":{\"sort_index\":%d}}",
                       i + 1, i);
        for (int k = 0; k < lanes[i].n; k++) {
            dlpi_json_event(o, i + 1, &lanes[i].events[k]);
        }
    }
    dlpi_out_print(o, "\n]}\n");
}

static int dlpi_lanes_write_trace(const dlpi_lane *lanes, int n_lanes, const char *path) {
    dlpi_out o;
    int rc = dlpi_out_open(&o, path);
    if (rc != DLP_OK) {
        return rc;
    }
    dlpi_json_write(&o, lanes, n_lanes);
    return dlpi_out_close(&o);
}

/* ---- the timeline: one SVG ---- */

enum {
    DLPI_SVG_LEFT = 160, /* px: lane names */
    DLPI_SVG_PLOT = 1000,
    DLPI_SVG_WIDTH = 1200,
    DLPI_SVG_TOP = 84, /* title, window, legend */
    DLPI_SVG_AXIS = 20,
    DLPI_SVG_HEADING = 22,
    DLPI_SVG_GAP = 6,
    DLPI_SVG_BORDERS = 200,  /* epoch borders drawn at most */
    DLPI_SVG_BORDER = 14,    /* the line of epoch numbers */
    DLPI_SVG_LANES = 512,    /* drawn at most */
    DLPI_SVG_EVENTS = 16000, /* aimed at in the window */
    DLPI_SVG_STEPS = 32,     /* of the trainer, aimed at */
    DLPI_SVG_RECTS = 40000,  /* never more */
    DLPI_SVG_COLOURS = 6
};

/* What is drawn: a window of time, and how large. */
typedef struct dlpi_view {
    uint64_t t0, t1;
    uint64_t least_ns; /* what is narrower is merged with its neighbours */
    double scale;      /* hundredths of a pixel per ns */
    int pitch, bar, font;
    int trainer_pitch;
    int per_group; /* lanes drawn of each group */
    int height;
    int n_borders;
    struct {
        int x;
        uint32_t epoch;
    } borders[DLPI_SVG_BORDERS];
    const char *which; /* words for the choice of the window */
} dlpi_view;

static int dlpi_u64_compare(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static const char *dlpi_group_name(const dlp_stats *s, int group) {
    if (group < 0) {
        return "trainer";
    }
    return s != NULL && group < DLP_MAX_STAGES && (uint32_t)group < s->n_stages
               ? s->stages[group].name
               : "stage";
}

/* Lanes from i on that belong to one group. */
static int dlpi_group_size(const dlpi_lane *lanes, int n_lanes, int i) {
    int k = i;
    while (k < n_lanes && lanes[k].group == lanes[i].group) {
        k++;
    }
    return k - i;
}

static int dlpi_view_pitch(const dlpi_view *v, const dlpi_lane *lane) {
    return lane->group < 0 ? v->trainer_pitch : v->pitch;
}

/* Height of a lane's stretches; the rest of its pitch is white. */
static int dlpi_view_bar(const dlpi_view *v, const dlpi_lane *lane) {
    int pitch = dlpi_view_pitch(v, lane);
    return pitch - (pitch >= 11 ? 3 : 1);
}

/* The event with which the newest part of a lane begins that can be told apart: so many events of a
   worker, so many steps of the trainer. */
static int dlpi_lane_first(const dlpi_lane *lane, int limit) {
    int i = lane->n, left = lane->group < 0 ? DLPI_SVG_STEPS : limit;
    while (i > 0 && left > 0) {
        i--;
        left -= lane->group >= 0 || lane->events[i].kind == DLP_TRACE_STEP;
    }
    return i;
}

/* Choose the newest stretch of time in which every lane has records and no more of them than can be
   told apart. One lane whose ring reaches back far less than the others' (tiny items) does not decide:
   then the middle lane does, and that lane begins late. */
static int dlpi_view_window(dlpi_view *v, const dlpi_lane *lanes, int n_lanes) {
    uint64_t *starts = malloc(((size_t)n_lanes + 1) * sizeof *starts), oldest = UINT64_MAX;
    int limit = DLPI_SVG_EVENTS / (n_lanes + 1), m = 0;
    if (starts == NULL) {
        return DLP_ERR_MEMORY;
    }
    limit = limit > 240 ? 240 : limit < 40 ? 40 : limit;
    v->t0 = v->t1 = 0;
    for (int i = 0; i < n_lanes; i++) {
        int n = lanes[i].n;
        if (n > 0) {
            const dlp_trace_event *e = lanes[i].events;
            starts[m++] = e[dlpi_lane_first(&lanes[i], limit)].begin_ns;
            oldest = e[0].begin_ns < oldest ? e[0].begin_ns : oldest;
            v->t1 = e[n - 1].end_ns > v->t1 ? e[n - 1].end_ns : v->t1;
        }
    }
    v->which = "all that is recorded";
    if (m > 0) {
        qsort(starts, (size_t)m, sizeof *starts, dlpi_u64_compare);
        uint64_t last = starts[m - 1], middle = starts[m / 2];
        bool most = last >= v->t1 || (v->t1 > middle && (v->t1 - last) < (v->t1 - middle) / 8);
        v->t0 = most ? middle : last;
        v->t0 = v->t0 < v->t1 ? v->t0 : oldest < v->t1 ? oldest : v->t1;
        if (v->t0 > oldest) {
            v->which = most ? "the newest stretch that most lanes have recorded"
                            : "the newest stretch that all lanes have recorded";
        }
    }
    free(starts);
    return DLP_OK;
}

/* Hundredths of a pixel. Monotone in t, so stretches that do not overlap in time do not overlap in x. */
static int dlpi_view_x(const dlpi_view *v, uint64_t t) {
    t = t < v->t0 ? v->t0 : t > v->t1 ? v->t1 : t;
    return DLPI_SVG_LEFT * 100 + (int)((double)(t - v->t0) * v->scale);
}

static void dlpi_view_border(dlpi_view *v, uint64_t t, uint32_t epoch) {
    int x = dlpi_view_x(v, t) / 100, n = v->n_borders;
    if (t > v->t0 && t < v->t1 && n < DLPI_SVG_BORDERS &&
        (n == 0 || x >= v->borders[n - 1].x + 4)) {
        v->borders[n].x = x;
        v->borders[n].epoch = epoch;
        v->n_borders++;
    }
}

/* Borders are where the trainer's steps change epoch: at the border's own event if there is one between
   the two steps, else where the second begins. */
static void dlpi_view_borders(dlpi_view *v, const dlpi_lane *trainer) {
    bool known = false;
    uint32_t epoch = 0;
    uint64_t border = UINT64_MAX;
    for (int i = 0; i < trainer->n; i++) {
        const dlp_trace_event *e = &trainer->events[i];
        if (e->kind == DLP_TRACE_EPOCH) {
            border = e->begin_ns;
        } else if (e->kind == DLP_TRACE_STEP) {
            if (known && e->epoch != epoch) {
                dlpi_view_border(v, border != UINT64_MAX ? border : e->begin_ns, e->epoch);
            }
            known = true;
            epoch = e->epoch;
            border = UINT64_MAX;
        }
    }
}

static void dlpi_view_layout(dlpi_view *v, const dlpi_lane *lanes, int n_lanes) {
    static const struct {
        int lanes, pitch;
    } sizes[] = {{6, 26}, {12, 20}, {24, 16}, {48, 13}, {100, 11}, {200, 6}, {INT_MAX, 4}};
    int groups = 0, drawn = 0, trainers = 0, s = 0;
    for (int i = 0; i < n_lanes; i += dlpi_group_size(lanes, n_lanes, i)) {
        groups++;
    }
    v->per_group = groups > 0 ? DLPI_SVG_LANES / groups : 0;
    v->per_group = v->per_group < 1 ? 1 : v->per_group;
    for (int i = 0, n; i < n_lanes; i += n) {
        n = dlpi_group_size(lanes, n_lanes, i);
        int shown = n < v->per_group ? n : v->per_group;
        drawn += shown;
        trainers += lanes[i].group < 0 ? shown : 0;
    }
    while (drawn > sizes[s].lanes) {
        s++;
    }
    v->pitch = sizes[s].pitch;
    v->trainer_pitch = v->pitch > 22 ? v->pitch : 22;
    v->font = v->pitch < 12 ? 9 : v->pitch < 15 ? 10 : 12;
    if (v->t1 > v->t0) {
        v->scale = DLPI_SVG_PLOT * 100.0 / (double)(v->t1 - v->t0);
        if (n_lanes > 0 && lanes[0].group < 0) {
            dlpi_view_borders(v, &lanes[0]);
        }
    }
    v->height = DLPI_SVG_TOP + 2 * DLPI_SVG_AXIS + groups * (DLPI_SVG_HEADING + DLPI_SVG_GAP) +
                (drawn - trainers) * v->pitch + trainers * v->trainer_pitch +
                (v->n_borders > 0 ? DLPI_SVG_BORDER : 0);
    if (v->t1 > v->t0) {
        uint64_t length = v->t1 - v->t0;
        /* Two rects may follow for each least_ns of a lane: one merged, one that was wide. */
        int most = DLPI_SVG_RECTS / 2 / (drawn + 1);
        v->least_ns = length / (uint64_t)(most > 2000 ? 2000 : most < 20 ? 20 : most) + 1;
    }
}

static void dlpi_svg_text(dlpi_out *o, const char *kind, int x, int y, const char *s, int units) {
    dlpi_out_print(o, "<text class=\"%s\" x=\"%d\" y=\"%d\">", kind, x, y);
    dlpi_out_escaped(o, s, 512, units, false);
    dlpi_out_print(o, "</text>\n");
}

static void dlpi_svg_style(dlpi_out *o, const dlpi_view *v) {
    dlpi_out_print(o,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                   "viewBox=\"0 0 %d %d\" "
                   "font-family=\"Helvetica,Arial,sans-serif\">\n<style>\n",
                   DLPI_SVG_WIDTH, v->height, DLPI_SVG_WIDTH, v->height);
    /* The palette of Okabe and Ito (https://jfly.uni-koeln.de/color), in an order in which neighbours differ
       in lightness too. */
    dlpi_out_print(
        o,
        ".w0{fill:#0072b2}.w1{fill:#e69f00}.w2{fill:#009e73}.w3{fill:#56b4e9}.w4{fill:#d55e00}.w5{"
        "fill:#cc79a7}\n"
        ".q{fill:#333}.s{fill:#c9d3de}.b{fill:#e8c9a0}.e{fill:#888}.t{fill:#f4f5f6}.bg{fill:#fff}\n"
        ".grid{stroke:#dcdfe3;stroke-width:1}.border{stroke:#333;stroke-width:1.2;stroke-dasharray:"
        "5 3}\n");
    dlpi_out_print(o,
                   "text{fill:#222;font-size:11px}.title{font-size:16px;font-weight:bold}\n"
                   ".sub,.tick{fill:#555}.epoch{font-weight:bold}.tick,.epoch,.num0,.num1{text-"
                   "anchor:middle}.head{font-size:12px;font-weight:bold}\n"
                   ".lane{font-size:%dpx;text-anchor:end}.num0,.num1{font-size:9px;pointer-events:"
                   "none}.num0{fill:#fff}\n"
                   "</style>\n",
                   v->font);
    dlpi_out_print(o, "<rect class=\"bg\" x=\"0\" y=\"0\" width=\"%d\" height=\"%d\"/>\n",
                   DLPI_SVG_WIDTH, v->height);
}

/* Time that a lane spent in each kind, inside the window. */
static void dlpi_lane_sums(const dlpi_lane *lane, const dlpi_view *v, uint64_t sum[7]) {
    uint64_t seen = v->t0;
    for (int i = 0; i < lane->n; i++) {
        uint64_t b = lane->events[i].begin_ns, e = lane->events[i].end_ns;
        b = b < seen ? seen : b;
        e = e > v->t1 ? v->t1 : e;
        if (e > b && lane->events[i].kind < 7) {
            sum[lane->events[i].kind] += e - b;
            seen = e;
        }
    }
}

static void dlpi_svg_header(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lanes, int n_lanes,
                            const dlp_stats *s) {
    char line[400];
    uint64_t length = v->t1 - v->t0, sum[7] = {0};
    int at = 0;
    if (n_lanes > 0 && lanes[0].group < 0) {
        dlpi_lane_sums(&lanes[0], v, sum);
    }
    uint64_t trainer = sum[DLP_TRACE_WAIT] + sum[DLP_TRACE_STEP];
    if (s != NULL && s->items > 0 && s->elapsed_ns > 0) {
        double run = (double)s->wait_ns + (double)s->step_ns;
        at = snprintf(line, sizeof line, "%s items/s; the trainer waited %s %% of the run",
                      dlpi_num_of((double)s->items * 1e9 / (double)s->elapsed_ns).s,
                      dlpi_num_percent(run > 0 ? (double)s->wait_ns / run : 0).s);
    } else {
        at = snprintf(line, sizeof line, "%s", length > 0 ? "Timeline" : "Nothing is recorded yet");
    }
    if (trainer > 0) {
        snprintf(line + at, sizeof line - (size_t)at, "%s%s %% of this window",
                 at > 8 ? ", " : "; the trainer waited ",
                 dlpi_num_percent((double)sum[DLP_TRACE_WAIT] / (double)trainer).s);
    }
    dlpi_svg_text(o, "title", 16, 27, line, 104);
    if (length == 0) {
        return;
    }
    at = snprintf(line, sizeof line, "Shown: %s, from %s after the start, %s.",
                  dlpi_num_ns(length).s, dlpi_num_time(v->t0, v->t1, length / 100).s, v->which);
    if (s != NULL) {
        snprintf(line + at, sizeof line - (size_t)at,
                 " batch_size %u, prefetch_factor %u, %u worker%s.", (unsigned)s->batch_size,
                 (unsigned)s->prefetch_factor, (unsigned)s->n_workers,
                 s->n_workers == 1 ? "" : "s");
    }
    dlpi_svg_text(o, "sub", 16, 46, line, 158);
}

static void dlpi_svg_legend(dlpi_out *o) {
    static const struct {
        const char *kind, *text;
        int y, height;
    } keys[] = {{NULL, "work and steps, a colour and number per batch", 0, 0},
                {"s", "starved: no input", 10, 4},
                {"b", "blocked: no free cell", 0, 4},
                {"q", "the trainer waits", 0, 14},
                {"e", "between epochs", 0, 14}};
    int x = 16, y = 56;
    for (int i = 0; i < (int)(sizeof keys / sizeof *keys); i++) {
        if (keys[i].kind == NULL) {
            for (int c = 0; c < DLPI_SVG_COLOURS; c++, x += 10) {
                dlpi_out_print(
                    o, "<rect class=\"w%d\" x=\"%d\" y=\"%d\" width=\"9\" height=\"14\"/>\n", c, x,
                    y);
            }
        } else {
            dlpi_out_print(o, "<rect class=\"t\" x=\"%d\" y=\"%d\" width=\"18\" height=\"14\"/>\n",
                           x, y);
            dlpi_out_print(o, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"18\" height=\"%d\"/>\n",
                           keys[i].kind, x, y + keys[i].y, keys[i].height);
            x += 18;
        }
        dlpi_svg_text(o, "key", x + 5, y + 11, keys[i].text, 60);
        x += 5 + (int)strlen(keys[i].text) * 7 + 18;
    }
}

/* 1, 2 or 5 times a power of ten ns, so that at most ten fit. */
static uint64_t dlpi_tick_step(uint64_t length) {
    uint64_t step = 1;
    for (int i = 0; length / step > 10; i++) {
        step = i % 3 == 1 ? step / 2 * 5 : step * 2;
    }
    return step;
}

static void dlpi_svg_ticks(dlpi_out *o, const dlpi_view *v, int y) {
    uint64_t length = v->t1 - v->t0, step = dlpi_tick_step(length);
    for (uint64_t t = 0;; t += step) {
        int x = dlpi_view_x(v, v->t0 + t);
        dlpi_svg_text(o, "tick", x / 100, y, dlpi_num_time(t, length, step).s, 11);
        if (length - t < step) {
            break;
        }
    }
}

static void dlpi_svg_grid(dlpi_out *o, const dlpi_view *v, int y, int height) {
    uint64_t length = v->t1 - v->t0, step = dlpi_tick_step(length);
    dlpi_out_print(o, "<path class=\"grid\" d=\"");
    for (uint64_t t = 0;; t += step) {
        dlpi_out_print(o, "M%d.5 %dv%d", dlpi_view_x(v, v->t0 + t) / 100, y, height);
        if (length - t < step) {
            break;
        }
    }
    dlpi_out_print(o, "\"/>\n");
}

/* Neighbouring stretches that are drawn as one rect. */
typedef struct dlpi_run {
    uint64_t begin, end;
    uint64_t sum[7];    /* ns of each kind */
    uint64_t low, high; /* batches worked on */
    uint64_t sequence, longest;
    uint64_t items;
    uint32_t epoch;
    int n; /* stretches; 0: none open */
} dlpi_run;

static int dlpi_run_kind(const dlpi_run *r) {
    int best = 1;
    for (int k = 2; k < 7; k++) {
        best = r->sum[k] > r->sum[best] ? k : best;
    }
    return best;
}

static void dlpi_run_title(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane,
                           const dlpi_run *r, int kind) {
    static const char *const words[] = {"",        "work",   "waiting", "step", "between epochs",
                                        "starved", "blocked"};
    uint64_t length = r->end - r->begin;
    bool on_batch = kind == DLP_TRACE_WORK || kind == DLP_TRACE_STEP;
    dlpi_out_print(o, "<title>");
    dlpi_out_escaped(o, lane->name, sizeof lane->name, 32, false);
    dlpi_out_print(o, ": ");
    if (r->n > 1) {
        dlpi_out_print(o, "%d stretches, %s %% ", r->n,
                       dlpi_num_percent((double)r->sum[kind] / (double)length).s);
    }
    dlpi_out_print(o, "%s", words[kind]);
    if (on_batch && r->low == r->high) {
        dlpi_out_print(o, ", batch %" PRIu64 " of epoch %" PRIu32, r->sequence, r->epoch);
    } else if (on_batch) {
        dlpi_out_print(o, ", batches %" PRIu64 " to %" PRIu64, r->low, r->high);
    }
    if (r->items > 0 && on_batch) {
        dlpi_out_print(o, ", %" PRIu64 " item%s", r->items, r->items == 1 ? "" : "s");
    }
    dlpi_out_print(o, ", %s, at %s</title>", dlpi_num_ns(length).s,
                   dlpi_num_time(r->begin - v->t0, v->t1 - v->t0, (v->t1 - v->t0) / 10000).s);
}

/* Whether no epoch border crosses these pixels. */
static bool dlpi_view_clear(const dlpi_view *v, int x, int end) {
    for (int i = 0; i < v->n_borders; i++) {
        if (v->borders[i].x + 1 >= x && v->borders[i].x <= end) {
            return false;
        }
    }
    return true;
}

static void dlpi_run_draw(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane, const dlpi_run *r,
                          int y) {
    static const char *const kinds[] = {"", "w", "q", "w", "e", "s", "b"};
    int kind = dlpi_run_kind(r), a = dlpi_view_x(v, r->begin), w = dlpi_view_x(v, r->end) - a;
    int h = dlpi_view_bar(v, lane), thin = h * 3 / 10 < 1 ? 1 : h * 3 / 10;
    char number[24];
    if (w <= 0) {
        return;
    }
    w -= w > 300 ? 50 : 0; /* a hair of white between neighbours */
    if (kind == DLP_TRACE_STARVED || kind == DLP_TRACE_BLOCKED) {
        y += kind == DLP_TRACE_STARVED ? h - thin : 0;
        h = thin;
    }
    dlpi_out_print(o, "<rect class=\"%s", kinds[kind]);
    int colour = (int)(r->sequence % DLPI_SVG_COLOURS);
    bool on_batch = kind == DLP_TRACE_WORK || kind == DLP_TRACE_STEP;
    if (on_batch) {
        dlpi_out_print(o, "%d", colour);
    }
    dlpi_out_print(o, "\" x=\"%d.%02d\" y=\"%d\" width=\"%d.%02d\" height=\"%d\">", a / 100,
                   a % 100, y, w / 100, w % 100, h);
    dlpi_run_title(o, v, lane, r, kind);
    dlpi_out_print(o, "</rect>\n");
    int digits = snprintf(number, sizeof number, "%" PRIu64, r->sequence);
    int x = (a + w / 2) / 100, half = digits * 3;
    if (on_batch && r->n == 1 && h >= 11 && w > digits * 600 + 250 &&
        dlpi_view_clear(v, x - half, x + half)) {
        dlpi_svg_text(o, colour % 2 ? "num1" : "num0", x, y + h / 2 + 3, number, 24);
    }
}

static void dlpi_run_add(dlpi_run *r, const dlp_trace_event *e, uint64_t begin, uint64_t end) {
    if (r->n == 0) {
        memset(r, 0, sizeof *r);
        r->begin = begin;
        r->low = UINT64_MAX;
    }
    r->n++;
    r->end = end;
    r->sum[e->kind] += end - begin;
    if (e->kind != DLP_TRACE_WORK && e->kind != DLP_TRACE_STEP) {
        return;
    }
    r->items += e->items;
    r->low = e->sequence < r->low ? e->sequence : r->low;
    r->high = e->sequence > r->high ? e->sequence : r->high;
    if (end - begin > r->longest) {
        r->longest = end - begin;
        r->sequence = e->sequence;
        r->epoch = e->epoch;
    }
}

/* Draw what of a lane lies in the window. Events are not trusted to be in order: each begins no
   earlier than the last one ended. */
static void dlpi_svg_lane(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane, int y) {
    dlpi_run r;
    uint64_t seen = v->t0;
    r.n = 0;
    for (int i = 0; i < lane->n; i++) {
        const dlp_trace_event *e = &lane->events[i];
        uint64_t b = e->begin_ns < seen ? seen : e->begin_ns,
                 end = e->end_ns > v->t1 ? v->t1 : e->end_ns;
        if (e->kind < 1 || e->kind > 6 || end <= b) {
            continue;
        }
        bool wide = end - b >= v->least_ns;
        if (r.n > 0 && (wide || b - r.end >= v->least_ns || r.end - r.begin >= v->least_ns)) {
            dlpi_run_draw(o, v, lane, &r, y);
            r.n = 0;
        }
        dlpi_run_add(&r, e, b, end);
        seen = end;
    }
    if (r.n > 0) {
        dlpi_run_draw(o, v, lane, &r, y);
    }
}

static void dlpi_svg_heading(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lanes, int n,
                             const dlp_stats *s, int y) {
    uint64_t sum[7] = {0};
    int silent = 0;
    double whole = (double)(v->t1 - v->t0) * n;
    for (int i = 0; i < n; i++) {
        dlpi_lane_sums(&lanes[i], v, sum);
        silent += lanes[i].n == 0;
    }
    dlpi_out_print(o, "<text class=\"head\" x=\"16\" y=\"%d\">", y + 14);
    dlpi_out_escaped(o, dlpi_group_name(s, lanes[0].group), 32, 24, false);
    dlpi_out_print(o, "<tspan font-weight=\"normal\" fill=\"#555\">");
    if (lanes[0].group < 0) {
        dlpi_out_print(o, ": in its step %s %%, waiting %s %% of this window",
                       dlpi_num_percent((double)sum[DLP_TRACE_STEP] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_WAIT] / whole).s);
    } else {
        dlpi_out_print(o, ": %d worker%s, at work %s %%, starved %s %%, blocked %s %%", n,
                       n == 1 ? "" : "s", dlpi_num_percent((double)sum[DLP_TRACE_WORK] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_STARVED] / whole).s,
                       dlpi_num_percent((double)sum[DLP_TRACE_BLOCKED] / whole).s);
    }
    if (lanes[0].group < 0 && s != NULL && s->n_workers == 0) {
        dlpi_out_print(o, "; without workers, that is where items are fetched");
    }
    if (silent > 0 && n > 1) {
        dlpi_out_print(o, "; %d recorded nothing", silent);
    }
    if (n > v->per_group) {
        dlpi_out_print(o, "; the first %d are drawn", v->per_group);
    }
    dlpi_out_print(o, "</tspan></text>\n");
}

/* What a lane has recorded is on grey ground; what its ring has forgotten is white. */
static void dlpi_svg_track(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lane, int y) {
    int a = lane->n > 0 ? dlpi_view_x(v, lane->events[0].begin_ns) : INT_MAX,
        end = (DLPI_SVG_LEFT + DLPI_SVG_PLOT) * 100;
    if (a < end) {
        dlpi_out_print(
            o, "<rect class=\"t\" x=\"%d.%02d\" y=\"%d\" width=\"%d.%02d\" height=\"%d\"/>\n",
            a / 100, a % 100, y, (end - a) / 100, (end - a) % 100, dlpi_view_bar(v, lane));
    }
}

/* One group: heading, tracks, grid, lanes, epoch borders. Returns the y below it. */
static int dlpi_svg_group(dlpi_out *o, const dlpi_view *v, const dlpi_lane *lanes, int n,
                          const dlp_stats *s, int y) {
    int drawn = n < v->per_group ? n : v->per_group, pitch = dlpi_view_pitch(v, lanes),
        bar = dlpi_view_bar(v, lanes);
    int font = pitch > v->font ? v->font : 9, every = pitch >= 11 ? 1 : (font + 1 + pitch) / pitch;
    dlpi_svg_heading(o, v, lanes, n, s, y);
    y += DLPI_SVG_HEADING;
    for (int i = 0; i < drawn; i++) {
        dlpi_svg_track(o, v, &lanes[i], y + i * pitch);
    }
    dlpi_svg_grid(o, v, y, drawn * pitch);
    for (int i = 0; i < drawn; i++) {
        int top = y + i * pitch;
        if (i % every == 0) {
            dlpi_out_print(o, "<text class=\"lane\" x=\"%d\" y=\"%d\">", DLPI_SVG_LEFT - 8,
                           top + bar / 2 + font * 4 / 10);
            dlpi_out_escaped(o, lanes[i].name, sizeof lanes[i].name,
                             (DLPI_SVG_LEFT - 16) * 100 / (66 * font), false);
            dlpi_out_print(o, "</text>\n");
        }
        dlpi_svg_lane(o, v, &lanes[i], top);
    }
    for (int i = 0; i < v->n_borders; i++) {
        dlpi_out_print(o, "<path class=\"border\" d=\"M%d.5 %dv%d\"/>\n", v->borders[i].x, y - 2,
                       drawn * pitch + 2);
    }
    return y + drawn * pitch + DLPI_SVG_GAP;
}

/* Numbers of the epochs under their borders, as far as there is room. Returns the y below. */
static int dlpi_svg_epochs(dlpi_out *o, const dlpi_view *v, int y) {
    int last = -1000;
    for (int i = 0; i < v->n_borders; i++) {
        char words[40];
        int x = v->borders[i].x;
        if (x < last + 140) {
            continue;
        }
        snprintf(words, sizeof words, "epoch %" PRIu32, v->borders[i].epoch);
        last = x;
        dlpi_svg_text(o, "epoch", x > DLPI_SVG_WIDTH - 60 ? DLPI_SVG_WIDTH - 60 : x, y + 6, words,
                      16);
    }
    return v->n_borders > 0 ? y + DLPI_SVG_BORDER : y;
}

static int dlpi_svg_write(dlpi_out *o, const dlpi_lane *lanes, int n_lanes, const dlp_stats *s) {
    dlpi_view v;
    memset(&v, 0, sizeof v);
    int rc = dlpi_view_window(&v, lanes, n_lanes), y = DLPI_SVG_TOP + DLPI_SVG_AXIS;
    if (rc != DLP_OK) {
        return rc;
    }
    dlpi_view_layout(&v, lanes, n_lanes);
    if (v.t1 == v.t0) {
        v.height = DLPI_SVG_TOP;
    }
    dlpi_svg_style(o, &v);
    dlpi_svg_header(o, &v, lanes, n_lanes, s);
    if (v.t1 > v.t0) {
        dlpi_svg_legend(o);
        dlpi_svg_ticks(o, &v, y - 4);
        for (int i = 0, n; i < n_lanes; i += n) {
            n = dlpi_group_size(lanes, n_lanes, i);
            y = dlpi_svg_group(o, &v, lanes + i, n, s, y);
        }
        y = dlpi_svg_epochs(o, &v, y);
        dlpi_svg_ticks(o, &v, y + 10);
    }
    dlpi_out_print(o, "</svg>\n");
    return DLP_OK;
}

static int dlpi_lanes_write_timeline(const dlpi_lane *lanes, int n_lanes, const dlp_stats *s,
                                     const char *path) {
    dlpi_out o;
    int rc = dlpi_out_open(&o, path);
    if (rc != DLP_OK) {
        return rc;
    }
    rc = dlpi_svg_write(&o, lanes, n_lanes, s);
    if (rc != DLP_OK) {
        o.errnum = ENOMEM;
    }
    int closed = dlpi_out_close(&o);
    return rc != DLP_OK ? rc : closed;
}

/* ---- words ---- */

/* Text built by several calls, cut like snprintf's. */
typedef struct dlpi_text {
    char *buf;
    size_t size, len;
} dlpi_text;

__attribute__((format(printf, 2, 3)))
static void dlpi_text_add(dlpi_text *t, const char *format, ...) {
    size_t room = t->len < t->size ? t->size - t->len : 0;
    va_list a;
    va_start(a, format);
    int n = vsnprintf(room > 0 ? t->buf + t->len : NULL, room, format, a);
    va_end(a);
    t->len += n > 0 ? (size_t)n : 0;
}

/* What limits: a stage, or one of the names below. */
enum {
    DLPI_LIMIT_TRAINER = -1,
    DLPI_LIMIT_CORES = -2,
    DLPI_LIMIT_PREFETCH = -3,
    DLPI_LIMIT_UNKNOWN = -4
};

typedef struct dlpi_verdict {
    int limiting_stage; /* or DLPI_LIMIT_* */
    int next_limit; /* what bounds rate_plus_one; the same as limiting_stage: nothing else does */
    double rate;    /* items/s now */
    double
        rate_plus_one; /* items/s that one more worker of limiting_stage would give (moved out of the
                                caller, if it is inline); rate where no worker helps */
} dlpi_verdict;

/* dlp_stats as shares of the time the caller spent in next and in its steps. */
typedef struct dlpi_load {
    double ns;   /* that time */
    double rows; /* per batch */
    double rate;
    double wait;   /* share of the caller, inline stages included */
    double caller; /* share of the caller in steps and inline stages */
    double cores;  /* share of the process's cores */
    double util
        [DLP_MAX_STAGES]; /* busy share of the workers that can have work at once; 0 if inline */
    double useful[DLP_MAX_STAGES]; /* workers that can have work at once */
    int busiest;                   /* stage with the largest util, -1: none has workers */
    int heaviest;                  /* inline stage with the most time, -1: none has any */
    int n;
} dlpi_load;

static bool dlpi_stage_takes_batches(const dlp_stage_stats *g) {
    return g->unit_is_batch || g->kind == DLP_STAGE_BATCH || g->kind == DLP_STAGE_MAP_BATCH ||
           g->kind == DLP_STAGE_TRANSFER;
}

static void dlpi_load_of(dlpi_load *l, const dlp_stats *s) {
    memset(l, 0, sizeof *l);
    l->n = s->n_stages < DLP_MAX_STAGES ? (int)s->n_stages : DLP_MAX_STAGES;
    l->ns = (double)s->wait_ns + (double)s->step_ns;
    l->busiest = l->heaviest = -1;
    if (s->batches == 0 || !(l->ns > 0)) {
        return;
    }
    l->rows = (double)s->items / (double)s->batches;
    l->rate = (double)s->items * 1e9 / l->ns;
    l->wait = (double)s->wait_ns / l->ns;
    l->caller = (double)s->step_ns / l->ns;
    double cpu_ns = 0;
    bool device = false;
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        cpu_ns += (double)g->cpu_ns;
        device = device || g->kind == DLP_STAGE_TRANSFER;
        if (g->workers <= 0) {
            l->caller += (double)g->busy_ns / l->ns;
            if (g->busy_ns > 0 &&
                (l->heaviest < 0 || g->busy_ns > s->stages[l->heaviest].busy_ns)) {
                l->heaviest = i;
            }
            continue;
        }
        double most = s->prefetch_factor * (dlpi_stage_takes_batches(g) ? 1.0 : l->rows);
        l->useful[i] = most > 0 && most < g->workers ? most : g->workers;
        l->util[i] = (double)g->busy_ns / (l->useful[i] * l->ns);
        if (l->busiest < 0 || l->util[i] > l->util[l->busiest]) {
            l->busiest = i;
        }
    }
    /* A step on the host keeps a core busy; one behind a transfer stage keeps the device busy. */
    l->cores = (cpu_ns + (device ? 0 : (double)s->step_ns)) / (l->ns * (s->cpus > 0 ? s->cpus : 1));
    l->caller = l->caller > 1 ? 1 : l->caller;
}

/* Lower *rate to a bound and remember whose it is. */
static void dlpi_verdict_bound(dlpi_verdict *v, double bound, int whose) {
    if (bound < v->rate_plus_one) {
        v->rate_plus_one = bound;
        v->next_limit = whose;
    }
}

/* Predict one more worker: in proportion, until the next limit is as busy as this one is now. */
static void dlpi_verdict_predict(dlpi_verdict *v, const dlpi_load *l, const dlp_stats *s) {
    int i = v->limiting_stage;
    const dlp_stage_stats *g = &s->stages[i];
    double reach = g->workers > 0 ? (l->util[i] < 1 ? l->util[i] : 1) : 1, caller = l->caller;
    if (g->workers > 0) {
        double now = g->workers, more = l->useful[i] < now ? now : now + 1;
        double most = s->prefetch_factor * (dlpi_stage_takes_batches(g) ? 1.0 : l->rows);
        v->rate_plus_one = l->rate * more / now;
        dlpi_verdict_bound(v, l->rate * (most > now ? most / now : 1), DLPI_LIMIT_PREFETCH);
    } else {
        double share = (double)g->busy_ns / l->ns;
        caller -= share < caller ? share : caller;
        v->rate_plus_one = share > 0 ? l->rate / share : l->rate;
    }
    for (int k = 0; k < l->n; k++) {
        if (k != i && l->util[k] > 0) {
            dlpi_verdict_bound(v, l->rate * reach / l->util[k], k);
        }
    }
    if (caller > 0) {
        dlpi_verdict_bound(v, l->rate * reach / caller, DLPI_LIMIT_TRAINER);
    }
    if (l->cores > 0) {
        dlpi_verdict_bound(v, l->rate / l->cores, DLPI_LIMIT_CORES);
    }
    v->rate_plus_one = v->rate_plus_one > v->rate ? v->rate_plus_one : v->rate;
}

/* Find the limit. The caller is it when it hardly waits. Otherwise the cores, if they are full; a stage,
   if its workers hardly rest; and if everybody waits at times, there are too few batches in flight. */
static dlpi_verdict dlpi_verdict_of(const dlp_stats *s) {
    dlpi_load l;
    dlpi_load_of(&l, s);
    dlpi_verdict v = {DLPI_LIMIT_UNKNOWN, DLPI_LIMIT_UNKNOWN, l.rate, l.rate};
    if (s->batches == 0 || s->items == 0 || !(l.ns > 0) || s->batches <= s->prefetch_factor) {
        return v;
    }
    double inline_share = l.heaviest >= 0 ? (double)s->stages[l.heaviest].busy_ns / l.ns : 0;
    double busiest = l.busiest >= 0 ? l.util[l.busiest] : 0;
    if (l.caller >= 0.95 || (l.caller >= 0.9 && l.caller >= busiest)) {
        v.limiting_stage = inline_share >= 0.1 ? l.heaviest : DLPI_LIMIT_TRAINER;
    } else if (l.cores >= 0.9) {
        v.limiting_stage = DLPI_LIMIT_CORES;
    } else if (busiest >= 0.8) {
        v.limiting_stage =
            l.useful[l.busiest] < s->stages[l.busiest].workers ? DLPI_LIMIT_PREFETCH : l.busiest;
    } else {
        v.limiting_stage = l.busiest >= 0    ? DLPI_LIMIT_PREFETCH
                           : l.heaviest >= 0 ? l.heaviest
                                             : DLPI_LIMIT_UNKNOWN;
    }
    v.next_limit = v.limiting_stage;
    if (v.limiting_stage >= 0) {
        dlpi_verdict_predict(&v, &l, s);
    }
    return v;
}

static dlpi_num dlpi_limit_name(const dlp_stats *s, int limit) {
    dlpi_num r;
    const char *const names[] = {"the trainer", "the cores", "prefetch_factor", "not known"};
    if (limit < 0) {
        snprintf(r.s, sizeof r.s, "%s", names[-1 - limit]);
    } else {
        snprintf(r.s, sizeof r.s, "'%.31s'", s->stages[limit].name);
    }
    return r;
}

/* The desc field that gives a stage more workers. */
static const char *dlpi_stage_field(const dlp_stage_stats *g) {
    switch (g->kind) {
    case DLP_STAGE_SAMPLER: return "sampler.threaded";
    case DLP_STAGE_BATCH: return "batch_workers";
    case DLP_STAGE_TRANSFER: return "transfer_threaded";
    case DLP_STAGE_FETCH: return "num_workers";
    default: return "workers.num_workers";
    }
}

static void dlpi_explain_inline(dlpi_text *t, const dlp_stats *s, const dlpi_load *l,
                                const dlpi_verdict *v) {
    const dlp_stage_stats *g = &s->stages[v->limiting_stage];
    dlpi_text_add(t,
                  "Limit: stage '%.31s' runs inline in the caller (0 workers) and takes %s %% of "
                  "its time; steps take %s %%.\n",
                  g->name, dlpi_num_percent((double)g->busy_ns / l->ns).s,
                  dlpi_num_percent((double)s->step_ns / l->ns).s);
    if (v->rate_plus_one < v->rate * 1.05) {
        dlpi_text_add(t, "Change: a worker would give nothing: %s the limit already.\n",
                      v->next_limit == DLPI_LIMIT_CORES ? "the cores are" : "the rest is");
    } else {
        dlpi_text_add(
            t, "Change: set %s = 1; that should give about %s items/s; then the limit is %s.\n",
            dlpi_stage_field(g), dlpi_num_of(v->rate_plus_one).s,
            v->next_limit == v->limiting_stage ? "that worker"
                                               : dlpi_limit_name(s, v->next_limit).s);
    }
}

static void dlpi_explain_stage(dlpi_text *t, const dlp_stats *s, const dlpi_load *l,
                               const dlpi_verdict *v) {
    const dlp_stage_stats *g = &s->stages[v->limiting_stage];
    int w = g->workers;
    bool batches = dlpi_stage_takes_batches(g);
    dlpi_text_add(t,
                  "Limit: stage '%.31s': its %d worker%s %s %% busy, and the trainer waits %s %% "
                  "of the time.\n",
                  g->name, w, w == 1 ? " is" : "s are",
                  dlpi_num_percent(l->util[v->limiting_stage]).s, dlpi_num_percent(l->wait).s);
    if (g->kind == DLP_STAGE_TRANSFER || g->kind == DLP_STAGE_SAMPLER ||
        g->kind == DLP_STAGE_REPEAT) {
        dlpi_text_add(
            t, g->kind == DLP_STAGE_TRANSFER
                   ? "Change: it has one thread: move fewer bytes (smaller dtypes, pad less), give "
                     "the device register_memory, or raise device_buffers.\n"
                   : "Change: it has one thread: make the sampler's own function cheaper.\n");
    } else if (batches && w >= (int)s->prefetch_factor) {
        dlpi_text_add(t,
                      "Change: raise prefetch_factor above %u, and %s with it: each batch in "
                      "flight has a worker already.\n",
                      (unsigned)s->prefetch_factor, dlpi_stage_field(g));
    } else if (v->next_limit == DLPI_LIMIT_PREFETCH) {
        dlpi_text_add(t,
                      "Change: raise prefetch_factor above %u, then %s: every item in flight has a "
                      "worker already.\n",
                      (unsigned)s->prefetch_factor, dlpi_stage_field(g));
    } else if (v->rate_plus_one < v->rate * 1.02) {
        dlpi_text_add(t,
                      "Change: make it cheaper; one more worker would give nothing, for %s would "
                      "be the limit.\n",
                      dlpi_limit_name(s, v->next_limit).s);
    } else {
        dlpi_text_add(t, "Change: raise %s; %d should give about %s items/s", dlpi_stage_field(g),
                      w + 1, dlpi_num_of(v->rate_plus_one).s);
        dlpi_text_add(t, v->next_limit == v->limiting_stage ? ".\n" : "; then the limit is %s.\n",
                      dlpi_limit_name(s, v->next_limit).s);
    }
}

static void dlpi_explain_prefetch(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    const dlp_stage_stats *g = &s->stages[l->busiest];
    dlpi_text_add(t,
                  "Limit: prefetch_factor = %u: the trainer waits %s %% of the time while the "
                  "workers of '%.31s' are only %s %% busy.\n",
                  (unsigned)s->prefetch_factor, dlpi_num_percent(l->wait).s, g->name,
                  dlpi_num_percent((double)g->busy_ns / (l->ns * g->workers)).s);
    double need = l->rows > 0 ? g->workers / l->rows : 0;
    uint64_t more = 2 * (uint64_t)s->prefetch_factor + (s->prefetch_factor == 0);
    while (more < 4096 && (double)more < need + 1) {
        more *= 2;
    }
    dlpi_text_add(t,
                  "Change: raise prefetch_factor, for instance to %" PRIu64
                  "; each batch more takes about %s.\n",
                  more > 4096 ? 4096 : more,
                  dlpi_num_bytes((double)s->bytes / (double)s->batches).s);
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *k = &s->stages[i];
        if (k->p50_ns > 0 && k->p99_ns / 4 >= k->p50_ns) {
            dlpi_text_add(t,
                          "Skew: times of '%.31s' are uneven (p50 %s, p99 %s): slow items hold up "
                          "the order; more batches in flight hide them, or unordered = 1.\n",
                          k->name, dlpi_num_ns(k->p50_ns).s, dlpi_num_ns(k->p99_ns).s);
        }
    }
}

static void dlpi_explain_cores(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    dlpi_text_add(t,
                  "Limit: the cores: workers and trainer keep %s of %u busy; more workers would "
                  "give nothing.\n",
                  dlpi_num_of(l->cores * s->cpus).s, (unsigned)s->cpus);
    if (l->busiest >= 0) {
        dlpi_text_add(t, "Change: make '%.31s' cheaper, or use more cores.\n",
                      s->stages[l->busiest].name);
    }
}

static void dlpi_explain_trainer(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    dlpi_text_add(t, "Limit: the trainer: it waits for batches only %s %% of the time.\n",
                  dlpi_num_percent(l->wait).s);
    dlpi_text_add(t, "Change: nothing in the pipe; steps take %s",
                  dlpi_num_ns(s->step_ns / s->batches).s);
    if (l->busiest >= 0) {
        dlpi_text_add(t, " and the busiest workers ('%.31s') are %s %% busy",
                      s->stages[l->busiest].name, dlpi_num_percent(l->util[l->busiest]).s);
    }
    dlpi_text_add(t, ".\n");
}

/* Figures and facts that hold whatever the limit is. */
static void dlpi_explain_rest(dlpi_text *t, const dlp_stats *s, const dlpi_load *l) {
    dlpi_text_add(t, "Measured: %s items/s (%s batches/s)", dlpi_num_of(l->rate).s,
                  dlpi_num_of(l->rows > 0 ? l->rate / l->rows : 0).s);
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->p50_ns > 0) {
            dlpi_text_add(t, "; '%.31s' takes p50 %s, p99 %s", g->name, dlpi_num_ns(g->p50_ns).s,
                          dlpi_num_ns(g->p99_ns).s);
        }
    }
    dlpi_text_add(t, ".\n");
    for (int i = 0; i < l->n; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->workers > 0 && g->workers - l->useful[i] >= 1) {
            dlpi_text_add(t,
                          "Idle: %d of the %d workers of '%.31s' never have work: only "
                          "prefetch_factor%s = %s %s are in flight.\n",
                          (int)(g->workers - l->useful[i]), g->workers, g->name,
                          dlpi_stage_takes_batches(g) ? "" : " x batch_size",
                          dlpi_num_of(l->useful[i]).s,
                          dlpi_stage_takes_batches(g) ? "batches" : "items");
        }
    }
}

static void dlpi_explain_errors(dlpi_text *t, const dlp_stats *s, int n_stages) {
    for (int i = 0; i < n_stages; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        if (g->retried + g->replaced + g->left_out > 0) {
            dlpi_text_add(t,
                          "Errors: stage '%.31s': %" PRIu64 " retried, %" PRIu64
                          " replaced, %" PRIu64 " left out; dlp_pipe_skips names the last two.\n",
                          g->name, g->retried, g->replaced, g->left_out);
        }
    }
}

static void dlpi_explain_memory(dlpi_text *t, const dlp_stats *s) {
    if (s->plan_bytes > 0) {
        dlpi_text_add(
            t, "Memory: %s are planned, with %u batch slots (prefetch_factor %u + max_held %u).\n",
            dlpi_num_bytes((double)s->plan_bytes).s, (unsigned)s->slots,
            (unsigned)s->prefetch_factor, (unsigned)s->max_held);
    }
}

DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    dlpi_load l;
    if (s == NULL || (buf == NULL && size > 0)) {
        return DLP_ERR_ARG;
    }
    dlpi_verdict v = dlpi_verdict_of(s);
    dlpi_load_of(&l, s);
    if (v.limiting_stage >= 0) {
        (s->stages[v.limiting_stage].workers > 0 ? dlpi_explain_stage
                                                 : dlpi_explain_inline)(&t, s, &l, &v);
    } else if (v.limiting_stage == DLPI_LIMIT_TRAINER) {
        dlpi_explain_trainer(&t, s, &l);
    } else if (v.limiting_stage == DLPI_LIMIT_CORES) {
        dlpi_explain_cores(&t, s, &l);
    } else if (v.limiting_stage == DLPI_LIMIT_PREFETCH) {
        dlpi_explain_prefetch(&t, s, &l);
    } else if (s->batches == 0) {
        dlpi_text_add(&t,
                      "Limit: not known: no batch has been delivered yet, %s after the start.\n",
                      dlpi_num_ns(s->elapsed_ns).s);
    } else {
        dlpi_text_add(&t,
                      "Limit: not known yet: %" PRIu64
                      " batch%s delivered, and the first prefetch_factor = %u are the start-up.\n",
                      s->batches, s->batches == 1 ? " is" : "es are", (unsigned)s->prefetch_factor);
    }
    if (l.rate > 0) {
        dlpi_explain_rest(&t, s, &l);
    }
    dlpi_explain_errors(&t, s, l.n);
    dlpi_explain_memory(&t, s);
    return t.len < INT_MAX ? (int)t.len : INT_MAX;
}

/* ---- of a pipe ---- */

static void dlpi_lanes_free(dlpi_lane *lanes, int n) {
    for (int i = 0; i < n; i++) {
        free((void *)lanes[i].events);
    }
    free(lanes);
}

/* Copy one lane's events. Their number is not known beforehand: ask again with more room until some is left. */
static int dlpi_lane_take(dlp_pipe *p, int i, dlpi_lane *lane) {
    for (int room = 256;; room *= 4) {
        dlp_trace_event *events = malloc((size_t)room * sizeof *events);
        if (events == NULL) {
            return DLP_ERR_MEMORY;
        }
        int n = dlp_pipe_trace(p, i, events, room, lane->name);
        if (n >= 0 && (n < room || room >= 1 << 22)) {
            lane->events = events;
            lane->n = n;
            return DLP_OK;
        }
        free(events);
        if (n < 0) {
            return n;
        }
    }
}

static int dlpi_lanes_take(dlp_pipe *p, dlpi_lane **out, int *n_out) {
    int n = dlp_pipe_trace_lanes(p), rc = DLP_OK;
    if (n < 0) {
        return n;
    }
    dlpi_lane *lanes = calloc((size_t)n + 1, sizeof *lanes);
    if (lanes == NULL) {
        return DLP_ERR_MEMORY;
    }
    for (int i = 0; i < n && rc == DLP_OK; i++) {
        dlp_worker_stats w;
        lanes[i].group =
            i == 0 || dlp_pipe_worker_stats(p, (uint32_t)(i - 1), &w) != DLP_OK ? -1 : w.stage;
        rc = dlpi_lane_take(p, i, &lanes[i]);
    }
    if (rc != DLP_OK) {
        dlpi_lanes_free(lanes, n);
        return rc;
    }
    *out = lanes;
    *n_out = n;
    return DLP_OK;
}

DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size) {
    dlp_stats s;
    int rc = dlp_pipe_stats(p, &s);
    return rc < 0 ? rc : dlp_stats_explain(&s, buf, size);
}

DLPDEF int dlp_pipe_write_trace(dlp_pipe *p, const char *path) {
    dlpi_lane *lanes;
    int n, rc = p == NULL || path == NULL ? DLP_ERR_ARG : dlpi_lanes_take(p, &lanes, &n);
    if (rc != DLP_OK) {
        return rc;
    }
    rc = dlpi_lanes_write_trace(lanes, n, path);
    dlpi_lanes_free(lanes, n);
    return rc;
}

DLPDEF int dlp_pipe_write_timeline(dlp_pipe *p, const char *path) {
    dlp_stats s;
    dlpi_lane *lanes;
    int n, rc = p == NULL || path == NULL ? DLP_ERR_ARG : dlp_pipe_stats(p, &s);
    if (rc == DLP_OK) {
        rc = dlpi_lanes_take(p, &lanes, &n);
    }
    if (rc != DLP_OK) {
        return rc;
    }
    rc = dlpi_lanes_write_timeline(lanes, n, &s, path);
    dlpi_lanes_free(lanes, n);
    return rc;
}

#ifdef DLPI_ASKED_GNU_SOURCE
#undef DLPI_ASKED_GNU_SOURCE
#undef _GNU_SOURCE
#endif
#endif /* DLPIPE_IMPLEMENTATION */

/* ---------------------------------------------------------------------------------------------
   >>licence
   MIT License. Copyright (c) 2026 the dlpipe authors.
   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so, subject to the following conditions:
   The above copyright notice and this permission notice shall be included in all copies or
   substantial portions of the Software.
   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
   NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
