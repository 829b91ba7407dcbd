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
   Everything here is a pure function of its arguments: the same numbers on every machine and
   compiler, for ever. A better algorithm will get a new name. */

/* Mix four numbers into 64 well-mixed bits.
   seed, a, b, c: any values; their order matters - returns the hash - any thread, never waits
   source: one round per word of "Mix13", D. Stafford, Better Bit Mixing (2011), the finaliser of
   SplitMix64: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (OOPSLA 2014). */
DLPDEF uint64_t dlp_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

#define DLP_PERMUTATION_TABLE 1024 /* smaller permutations are tables */
#define DLP_PERMUTATION_ROUNDS 10 /* at most */

/* A keyed permutation of 0..n-1, in the caller's memory. Read n, seed and epoch; leave the rest.
   After init it is read-only, holds no pointer and may be copied and shared. */
typedef struct dlp_permutation {
    uint64_t n, seed, epoch;                  /* as given to init */
    uint32_t right_bits;                      /* a number is left << right_bits | right */
    uint32_t left_values;                     /* left is 0..left_values-1 */
    uint32_t rounds;                          /* 0: table */
    uint32_t simd;                            /* which code runs a block; never which numbers */
    uint32_t key[2 * DLP_PERMUTATION_ROUNDS]; /* two of each round */
    uint16_t table[DLP_PERMUTATION_TABLE];    /* n < DLP_PERMUTATION_TABLE: all images */
} dlp_permutation;

/* Choose the permutation of 0..n-1 that belongs to (n, seed, epoch).
   p: written whole; n: 1..2^48; seed, epoch: any values - returns 0, or DLP_ERR_ARG with p
   untouched - any thread - never waits or allocates; some microseconds below DLP_PERMUTATION_TABLE
   numbers, else a tenth of one
   source: Fisher-Yates (Durstenfeld, CACM 7/1964) for tables; else a Feistel network on Z_a x Z_b
   with cycle walking (Black, Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002). */
DLPDEF int dlp_permutation_init(dlp_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch);

/* Return the number at a position.
   position: 0..n-1 - returns UINT64_MAX for others - any thread - never waits. */
DLPDEF uint64_t dlp_permutation_at(const dlp_permutation *p, uint64_t position);

/* Return the position of a number: the inverse of dlp_permutation_at.
   value: 0..n-1 - returns UINT64_MAX for others - any thread - never waits; below
   DLP_PERMUTATION_TABLE numbers looks through the table. */
DLPDEF uint64_t dlp_permutation_find(const dlp_permutation *p, uint64_t value);

/* Write the numbers at positions first .. first+count-1: as dlp_permutation_at, several times as
   fast where the processor has AVX2.
   first, count: any; UINT64_MAX is written for positions of n or more; out: [count], borrowed - any
   thread - never waits. */
DLPDEF void dlp_permutation_block(const dlp_permutation *p, uint64_t first, uint32_t count,
                                  uint64_t *out);

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

/* Say in words which stage limits throughput and what to change. Returns the length, as snprintf. */
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
/* Write the trace as Chrome trace-event JSON (for Perfetto), or as one self-contained SVG. */
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
   Two rules. Numbers drawn for different uses never share keys: each use has a domain word,
   absorbed right after the seed. And nothing here may ever change a number, or every saved state
   and published run changes with it; tests/order.c pins them. */

/* DLPIPE_NO_SIMD, DLPIPE_NO_INT128 [impl]: plain C only. Slower, same numbers. */
#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD)
#define DLPI_ORDER_AVX2
#include <immintrin.h>
#endif

#define DLPI_GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio, so that 0 is no fixed point */
#define DLPI_MAX_ITEMS ((uint64_t)1 << 48)

/* These numbers are part of every order. */
enum {
    DLPI_DOMAIN_PERMUTATION = 1,
    DLPI_DOMAIN_DRAW,
    DLPI_DOMAIN_WEIGHTED,
    DLPI_DOMAIN_REPLACEMENT,
    DLPI_DOMAIN_ITEM,
    DLPI_DOMAIN_PARAMS
};

static inline uint64_t dlpi_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One more word into a hash. For a fixed h a bijection of word, and the other way round. */
static inline uint64_t dlpi_absorb(uint64_t h, uint64_t word) {
    return dlpi_mix((h ^ word) + DLPI_GOLDEN);
}

static inline uint64_t dlpi_hash_in(uint64_t domain, uint64_t seed, uint64_t a) {
    return dlpi_absorb(dlpi_absorb(dlpi_absorb(0, seed), domain), a);
}

DLPDEF uint64_t dlp_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    return dlpi_absorb(dlpi_absorb(dlpi_absorb(dlpi_absorb(0, seed), a), b), c);
}

DLPDEF uint64_t dlp_item_random(const dlp_item *item, uint64_t salt) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_ITEM, item->seed, item->epoch);
    return dlpi_absorb(dlpi_absorb(h, item->position), salt);
}

/* The high half of a * b; the low half goes to *low. */
static inline uint64_t dlpi_multiply(uint64_t a, uint64_t b, uint64_t *low) {
#if defined(__SIZEOF_INT128__) && !defined(DLPIPE_NO_INT128)
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t other = a0 * b1 + (uint32_t)middle;
    *low = a * b;
    return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

/* A range 0..n-1 that numbers are drawn from without bias: the high half of random * n, where a
   random word whose low half is below `reject` = 2^64 mod n is drawn again, so that equally many
   words lead to every value (Lemire, ACM TOMACS 29/1, 2019). */
typedef struct dlpi_range {
    uint64_t n, reject;
} dlpi_range;

static inline dlpi_range dlpi_range_of(uint64_t n) {
    dlpi_range range = {n, (0 - n) % n};
    return range;
}

static inline uint64_t dlpi_below(dlpi_range range, uint64_t random) {
    uint64_t low, high = dlpi_multiply(random, range.n, &low);
    while (DLPI_UNLIKELY(low < range.reject)) {
        random = dlpi_absorb(random, range.n);
        high = dlpi_multiply(random, range.n, &low);
    }
    return high;
}

/* --- Keyed permutation -----------------------------------------------------------------------

   A number below n is written as (left, right): right has a power of two of values, 2^right_bits,
   about the square root of n, and left has a = ceil(n / 2^right_bits) values. Rounds by turns add a
   keyed hash of right to left (mod a) and of left to right (mod 2^right_bits). Each is undone by
   the subtraction, so all together is a bijection of a * 2^right_bits >= n numbers. Results from n
   up are put through again until they fall below n, which always ends (the cycle comes back to
   where it began, which is below n) and is a bijection of 0..n-1. Fewer than 2^right_bits numbers
   lie above n, one in 32 at the most, also just above a power of two; splitting takes no division;
   and the additions, not exclusive ors, give odd permutations as often as even ones.

   Few rounds on few values can be told from a random permutation by counting pairs of positions
   (the number needed grows as n^2 at 6 rounds, n^3 at 8; tests/order.c counts): hence 10 rounds
   below 2^12 numbers, 8 below 2^15, 6 above, and tables made by an exact shuffle below
   DLP_PERMUTATION_TABLE, where even that would not do. */

/* A product whose bits 24..47 and bits 0..31 (of those the high ones more) are well mixed; the two
   kinds of rounds take what they need of it. */
static inline uint64_t dlpi_round_hash(uint32_t half, const uint32_t key[2]) {
    uint64_t z = (uint64_t)(half ^ key[0]) * 0x85ebca6bu;
    return (uint64_t)((uint32_t)z ^ (uint32_t)(z >> 32) ^ key[1]) * 0xc2b2ae35u;
}

/* What a round adds to left: 0..left_values-1. */
static inline uint32_t dlpi_round_left(const dlp_permutation *p, uint32_t right,
                                       const uint32_t key[2]) {
    return (uint32_t)((uint64_t)(uint32_t)dlpi_round_hash(right, key) * p->left_values >> 32);
}

/* What a round adds to right, to be cut to right_bits. */
static inline uint32_t dlpi_round_right(uint32_t left, const uint32_t key[2]) {
    return (uint32_t)(dlpi_round_hash(left, key) >> 24);
}

/* x, or x - a where x >= a: without a branch, for it would be mispredicted half the time. */
static inline uint32_t dlpi_wrap(uint32_t x, uint32_t a) {
    uint32_t less = x - a;
    return x < a ? x : less;
}

static inline uint64_t dlpi_permutation_step(const dlp_permutation *p, uint64_t x) {
    uint32_t a = p->left_values, mask = (1u << p->right_bits) - 1;
    uint32_t left = (uint32_t)(x >> p->right_bits), right = (uint32_t)x & mask;
    for (uint32_t i = 0; i < p->rounds; i += 2) {
        left = dlpi_wrap(left + dlpi_round_left(p, right, &p->key[2 * i]), a);
        right = (right + dlpi_round_right(left, &p->key[2 * i + 2])) & mask;
    }
    return (uint64_t)left << p->right_bits | right;
}

static inline uint64_t dlpi_permutation_unstep(const dlp_permutation *p, uint64_t x) {
    uint32_t a = p->left_values, mask = (1u << p->right_bits) - 1;
    uint32_t left = (uint32_t)(x >> p->right_bits), right = (uint32_t)x & mask;
    for (uint32_t i = p->rounds; i > 0; i -= 2) {
        right = (right - dlpi_round_right(left, &p->key[2 * i - 2])) & mask;
        left = dlpi_wrap(left + a - dlpi_round_left(p, right, &p->key[2 * i - 4]), a);
    }
    return (uint64_t)left << p->right_bits | right;
}

static void dlpi_permutation_shuffle(dlp_permutation *p, uint64_t key) {
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t j = (uint32_t)dlpi_below(dlpi_range_of(i + 1u), dlpi_absorb(key, i));
        p->table[i] = p->table[j];
        p->table[j] = (uint16_t)i;
    }
}

DLPDEF int dlp_permutation_init(dlp_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch) {
    uint32_t log2_n = 0;
    uint64_t key = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_PERMUTATION, seed, epoch), n);
    if (n < 1 || n > DLPI_MAX_ITEMS)
        return DLP_ERR_ARG;
    memset(p, 0, sizeof *p);
    p->n = n;
    p->seed = seed;
    p->epoch = epoch;
    if (n < DLP_PERMUTATION_TABLE) {
        dlpi_permutation_shuffle(p, key);
        return DLP_OK;
    }
    while (n >> (log2_n + 1))
        log2_n++;
    p->right_bits = (log2_n + 1) / 2;
    p->left_values = (uint32_t)((n - 1) >> p->right_bits) + 1;
    p->rounds = log2_n < 12 ? 10 : log2_n < 15 ? 8 : 6;
    for (uint32_t i = 0; i < p->rounds; i++) {
        uint64_t word = dlpi_absorb(key, i);
        p->key[2 * i] = (uint32_t)word;
        p->key[2 * i + 1] = (uint32_t)(word >> 32);
    }
#ifdef DLPI_ORDER_AVX2
    p->simd = __builtin_cpu_supports("avx2") ? 1 : 0;
#endif
    return DLP_OK;
}

DLPDEF uint64_t dlp_permutation_at(const dlp_permutation *p, uint64_t position) {
    uint64_t x = position;
    if (DLPI_UNLIKELY(position >= p->n))
        return UINT64_MAX;
    if (p->rounds == 0)
        return p->table[position];
    do {
        x = dlpi_permutation_step(p, x);
    } while (DLPI_UNLIKELY(x >= p->n));
    return x;
}

DLPDEF uint64_t dlp_permutation_find(const dlp_permutation *p, uint64_t value) {
    uint64_t x = value;
    if (DLPI_UNLIKELY(value >= p->n))
        return UINT64_MAX;
    if (p->rounds == 0) {
        for (x = 0; p->table[x] != value; x++) {}
        return x;
    }
    do {
        x = dlpi_permutation_unstep(p, x);
    } while (DLPI_UNLIKELY(x >= p->n));
    return x;
}

#ifdef DLPI_ORDER_AVX2
#define DLPI_AVX2 __attribute__((target("avx2")))

/* dlpi_round_hash of four halves, each in the low word of a lane. */
DLPI_AVX2 static inline __m256i dlpi_round_hash4(__m256i half, __m256i key0, __m256i key1) {
    __m256i z = _mm256_mul_epu32(_mm256_xor_si256(half, key0), _mm256_set1_epi64x(0x85ebca6b));
    z = _mm256_xor_si256(_mm256_xor_si256(z, key1), _mm256_srli_epi64(z, 32));
    return _mm256_mul_epu32(z, _mm256_set1_epi64x(0xc2b2ae35));
}

/* dlpi_permutation_step of the 16 numbers from x on: four vectors of four lanes, so that
   multiplications overlap. */
DLPI_AVX2 static inline void dlpi_permutation_step16(const dlp_permutation *p, uint64_t x,
                                                     uint64_t *out) {
    const __m128i shift = _mm_cvtsi32_si128((int)p->right_bits);
    const __m256i a = _mm256_set1_epi64x(p->left_values);
    const __m256i mask = _mm256_set1_epi64x((1ll << p->right_bits) - 1);
    __m256i left[4], right[4];
    for (int v = 0; v < 4; v++) {
        __m256i number = _mm256_add_epi64(_mm256_set1_epi64x((long long)(x + 4 * (uint64_t)v)),
                                          _mm256_setr_epi64x(0, 1, 2, 3));
        left[v] = _mm256_srl_epi64(number, shift);
        right[v] = _mm256_and_si256(number, mask);
    }
    for (uint32_t i = 0; i < p->rounds; i += 2) {
        const uint32_t *key = &p->key[2 * i];
        __m256i key0 = _mm256_set1_epi32((int)key[0]), key1 = _mm256_set1_epi32((int)key[1]);
        __m256i key2 = _mm256_set1_epi32((int)key[2]), key3 = _mm256_set1_epi32((int)key[3]);
        for (int v = 0; v < 4; v++) {
            __m256i h = _mm256_mul_epu32(dlpi_round_hash4(right[v], key0, key1), a);
            __m256i sum = _mm256_add_epi32(left[v], _mm256_srli_epi64(h, 32));
            left[v] = _mm256_min_epu32(sum, _mm256_sub_epi32(sum, a));
            h = _mm256_srli_epi64(dlpi_round_hash4(left[v], key2, key3), 24);
            right[v] = _mm256_and_si256(_mm256_add_epi32(right[v], h), mask);
        }
    }
    for (int v = 0; v < 4; v++)
        _mm256_storeu_si256((__m256i *)(void *)(out + 4 * v),
                            _mm256_or_si256(_mm256_sll_epi64(left[v], shift), right[v]));
}

DLPI_AVX2 static uint32_t dlpi_permutation_block_avx2(const dlp_permutation *p, uint64_t first,
                                                      uint32_t count, uint64_t *out) {
    uint32_t done = 0;
    for (; count - done >= 16; done += 16) {
        dlpi_permutation_step16(p, first + done, out + done);
        for (uint32_t i = done; i < done + 16; i++)
            while (DLPI_UNLIKELY(out[i] >= p->n))
                out[i] = dlpi_permutation_step(p, out[i]);
    }
    return done;
}
#endif

DLPDEF void dlp_permutation_block(const dlp_permutation *p, uint64_t first, uint32_t count,
                                  uint64_t *out) {
    uint64_t inside = first < p->n ? p->n - first : 0;
    uint32_t valid = inside < count ? (uint32_t)inside : count, done = 0;
#ifdef DLPI_ORDER_AVX2
    if (p->simd)
        done = dlpi_permutation_block_avx2(p, first, valid, out);
#endif
    for (; done < valid; done++)
        out[done] = dlp_permutation_at(p, first + done);
    for (; done < count; done++)
        out[done] = UINT64_MAX;
}

/* --- Weights ---------------------------------------------------------------------------------

   Walker's alias method in integers: n buckets of `total` units each, item i owns n * weight[i]
   units. A draw picks a bucket, then a unit in it; units below `own` are the bucket's item's, the
   others its alias's. Every quantity is exact, so frequencies are exactly weight / total. Built by
   a sweep with two cursors and one residue, so without memory beside the table
   (Huebschle-Schneider, Sanders, Parallel Weighted Random Sampling, ESA 2019). Entry 0 of the table
   holds the total. */
typedef struct dlpi_alias {
    uint64_t own, alias;
} dlpi_alias;

static inline uint64_t dlpi_order_domain(const dlp_sampler_desc *d, uint64_t n_items) {
    return d->subset ? d->n_subset : n_items;
}

/* The next item from i on whose n * weight is above total (heavy) or not; n if there is none. */
static uint64_t dlpi_alias_next(const uint64_t *weights, uint64_t n, uint64_t total, uint64_t i,
                                int heavy) {
    for (; i < n; i++) {
        uint64_t low, high = dlpi_multiply(n, weights[i], &low);
        if ((high != 0 || low > total) == heavy)
            break;
    }
    return i;
}

/* Each turn closes a bucket: the light one at `light` with the heavy item's units on top, or, once
   the heavy item has no more than a bucket left, its own, with units of the next heavy one on top.
   What is left of the heavy item is high:low. Units and space are equal at every turn, so a light
   item is there while the residue is above a bucket, and lights left at the end fill theirs
   exactly. */
static void dlpi_alias_build(const uint64_t *weights, uint64_t n, uint64_t total, dlpi_alias *t) {
    uint64_t light = dlpi_alias_next(weights, n, total, 0, 0);
    uint64_t heavy = dlpi_alias_next(weights, n, total, 0, 1);
    uint64_t low = 0, high = heavy < n ? dlpi_multiply(n, weights[heavy], &low) : 0;
    while (heavy < n) {
        if (high != 0 || low > total) {
            uint64_t own = n * weights[light], space = total - own;
            t[light].own = own;
            t[light].alias = heavy;
            high -= low < space;
            low -= space;
            light = dlpi_alias_next(weights, n, total, light + 1, 0);
        } else {
            uint64_t next = dlpi_alias_next(weights, n, total, heavy + 1, 1), space = total - low;
            t[heavy].own = low;
            t[heavy].alias = next < n ? next : heavy;
            heavy = next;
            if (heavy < n) {
                high = dlpi_multiply(n, weights[heavy], &low);
                high -= low < space;
                low -= space;
            }
        }
    }
    for (; light < n; light = dlpi_alias_next(weights, n, total, light + 1, 0)) {
        t[light].own = total;
        t[light].alias = light;
    }
}

static uint64_t dlpi_order_table_bytes(const dlp_sampler_desc *d, uint64_t n_items) {
    if (d->order != DLP_ORDER_WEIGHTED)
        return 0;
    return (dlpi_order_domain(d, n_items) + 1) * sizeof(dlpi_alias);
}

static void dlpi_order_build(const dlp_sampler_desc *d, uint64_t n_items, void *table) {
    uint64_t n = dlpi_order_domain(d, n_items), total = 0;
    dlpi_alias *t = (dlpi_alias *)table;
    if (d->order != DLP_ORDER_WEIGHTED)
        return;
    for (uint64_t i = 0; i < n; i++)
        total += d->weights[i];
    t[0].own = total;
    t[0].alias = n;
    dlpi_alias_build(d->weights, n, total, t + 1);
}

/* --- What a sampler's desc means -------------------------------------------------------------- */

static uint64_t dlpi_order_samples(const dlp_sampler_desc *d, uint64_t n_items) {
    if (d->order == DLP_ORDER_BATCHES)
        return 0; /* only the user's sampler knows */
    return d->samples_per_epoch ? d->samples_per_epoch : dlpi_order_domain(d, n_items);
}

static int dlpi_order_fault(dlp_error *err, const char *field, const char *format, ...) {
    va_list args;
    if (!err)
        return DLP_ERR_ARG;
    memset(err, 0, sizeof *err);
    err->code = DLP_ERR_ARG;
    err->worker = -1;
    snprintf(err->field, sizeof err->field, "%s", field);
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return DLP_ERR_ARG;
}

static int dlpi_order_check_subset(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    if (!d->subset && d->n_subset)
        return dlpi_order_fault(err, "sampler.subset", "subset is NULL but n_subset is %" PRIu64,
                                d->n_subset);
    if (!d->subset)
        return DLP_OK;
    if (d->n_subset < 1 || d->n_subset > DLPI_MAX_ITEMS)
        return dlpi_order_fault(err, "sampler.n_subset", "n_subset is %" PRIu64 ", must be 1..2^48",
                                d->n_subset);
    for (uint64_t i = 0; i < d->n_subset; i++)
        if (d->subset[i] >= n_items)
            return dlpi_order_fault(err, "sampler.subset",
                                    "subset[%" PRIu64 "] is %" PRIu64 ", n_items is %" PRIu64, i,
                                    d->subset[i], n_items);
    return DLP_OK;
}

static int dlpi_order_check_weights(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    const uint64_t most = (uint64_t)1 << 63;
    uint64_t n = dlpi_order_domain(d, n_items), total = 0;
    if (d->order != DLP_ORDER_WEIGHTED) {
        if (!d->weights)
            return DLP_OK;
        return dlpi_order_fault(err, "sampler.weights",
                                "weights need order DLP_ORDER_WEIGHTED, order is %d",
                                (int)d->order);
    }
    if (!d->weights)
        return dlpi_order_fault(err, "sampler.weights",
                                "DLP_ORDER_WEIGHTED needs weights, weights is NULL");
    for (uint64_t i = 0; i < n; i++) {
        if (d->weights[i] > most - total)
            return dlpi_order_fault(err, "sampler.weights",
                                    "weights[%" PRIu64 "] = %" PRIu64 " takes the sum above 2^63",
                                    i, d->weights[i]);
        total += d->weights[i];
    }
    if (total == 0)
        return dlpi_order_fault(err, "sampler.weights",
                                "all %" PRIu64 " weights are 0, the sum must be 1..2^63", n);
    return DLP_OK;
}

/* Check all of a desc but rank, world_size and batches. Returns 0, or DLP_ERR_ARG and fills err. */
static int dlpi_order_check(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    uint64_t draws = d->samples_per_epoch;
    bool one_each = d->order == DLP_ORDER_SEQUENTIAL || d->order == DLP_ORDER_SHUFFLED;
    int rc;
    if (n_items < 1 || n_items > DLPI_MAX_ITEMS)
        return dlpi_order_fault(err, "dataset.n_items", "n_items is %" PRIu64 ", must be 1..2^48",
                                n_items);
    if (d->order < DLP_ORDER_SEQUENTIAL || d->order > DLP_ORDER_BATCHES)
        return dlpi_order_fault(err, "sampler.order", "order is %d, must be 0..%d", (int)d->order,
                                (int)DLP_ORDER_BATCHES);
    if (d->threaded < 0 || d->threaded > 1)
        return dlpi_order_fault(err, "sampler.threaded", "threaded is %d, must be 0 or 1",
                                (int)d->threaded);
    if ((rc = dlpi_order_check_subset(d, n_items, err)) != DLP_OK)
        return rc;
    if ((rc = dlpi_order_check_weights(d, n_items, err)) != DLP_OK)
        return rc;
    if (draws > DLPI_MAX_ITEMS)
        return dlpi_order_fault(err, "sampler.samples_per_epoch",
                                "samples_per_epoch is %" PRIu64 ", must be at most 2^48", draws);
    if (draws &&
        (d->order == DLP_ORDER_BATCHES || (one_each && draws != dlpi_order_domain(d, n_items))))
        return dlpi_order_fault(err, "sampler.samples_per_epoch",
                                "samples_per_epoch is %" PRIu64 ", must be 0 for order %d", draws,
                                (int)d->order);
    if ((d->order == DLP_ORDER_FUNCTION) != (d->function != NULL))
        return dlpi_order_fault(err, "sampler.function",
                                "function is %s but order is %d: DLP_ORDER_FUNCTION needs one",
                                d->function ? "set" : "NULL", (int)d->order);
    return DLP_OK;
}

static uint64_t dlpi_order_hash_array(uint64_t h, const uint64_t *values, uint64_t n) {
    uint64_t lane[4];
    for (uint64_t k = 0; k < 4; k++)
        lane[k] = dlpi_absorb(h, k);
    for (uint64_t i = 0; i < n; i++)
        lane[i & 3] = dlpi_absorb(lane[i & 3], values[i]);
    return dlpi_absorb(dlp_hash(lane[0], lane[1], lane[2], lane[3]), n);
}

/* A number that differs where subset, weights, samples or function_id do, for a saved state's
   fingerprint. */
static uint64_t dlpi_order_params_hash(const dlp_sampler_desc *d, uint64_t n_items) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_PARAMS, d->function_id, dlpi_order_samples(d, n_items));
    h = dlpi_order_hash_array(h, d->subset, d->subset ? d->n_subset : 0);
    return dlpi_order_hash_array(h, d->weights, d->weights ? dlpi_order_domain(d, n_items) : 0);
}

/* --- Positions to dataset indices ------------------------------------------------------------- */

/* One worker's view of the order; it is process-local and holds pointers. */
typedef struct dlpi_order {
    int32_t kind;  /* DLP_ORDER_* */
    int32_t ready; /* 1: key[] and permutation are those of `epoch` */
    uint64_t n_items;
    uint64_t domain;  /* items of the subset, or all */
    uint64_t samples; /* positions of an epoch, 0: not known */
    uint64_t seed, epoch;
    uint64_t key[3];           /* REPLACEMENT, WEIGHTED: of this epoch */
    dlpi_range buckets, units; /* REPLACEMENT: the domain. WEIGHTED: and the units of a bucket */
    const uint64_t *subset;    /* or NULL */
    const dlpi_alias *alias;   /* or NULL */
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position);
    void *user;
    dlp_permutation permutation;
} dlpi_order;

static void dlpi_order_init(dlpi_order *o, const dlp_sampler_desc *d, uint64_t n_items,
                            const void *table) {
    const dlpi_alias *t = (const dlpi_alias *)table;
    memset(o, 0, sizeof *o);
    o->kind = d->order;
    o->n_items = n_items;
    o->domain = dlpi_order_domain(d, n_items);
    o->samples = dlpi_order_samples(d, n_items);
    o->seed = d->seed;
    o->subset = d->subset;
    o->function = d->function;
    o->user = d->function_user;
    o->buckets = dlpi_range_of(o->domain);
    if (d->order == DLP_ORDER_WEIGHTED) {
        o->alias = t + 1;
        o->units = dlpi_range_of(t[0].own);
    }
}

static void dlpi_order_begin(dlpi_order *o, uint64_t epoch) {
    uint64_t domain = o->kind == DLP_ORDER_WEIGHTED ? DLPI_DOMAIN_WEIGHTED : DLPI_DOMAIN_DRAW;
    if (o->kind == DLP_ORDER_SHUFFLED)
        dlp_permutation_init(&o->permutation, o->domain, o->seed, epoch);
    for (uint64_t i = 0; i < 3; i++)
        o->key[i] = dlpi_absorb(dlpi_hash_in(domain, o->seed, epoch), i);
    o->epoch = epoch;
    o->ready = 1;
}

/* Two keyed rounds: with one, epochs could draw from one sequence in another order. */
static inline uint64_t dlpi_order_random(const dlpi_order *o, uint64_t position) {
    return dlpi_absorb(dlpi_absorb(o->key[0], position), o->key[1]);
}

static inline uint64_t dlpi_order_weighted(const dlpi_order *o, uint64_t position) {
    uint64_t random = dlpi_order_random(o, position);
    uint64_t bucket = dlpi_below(o->buckets, random);
    uint64_t unit = dlpi_below(o->units, dlpi_absorb(random, o->key[2]));
    const dlpi_alias *entry = &o->alias[bucket];
    return unit < entry->own ? bucket : entry->alias;
}

/* Write the dataset indices of positions first .. first+count-1 of an epoch. A function's result
   that is out of range comes out as n_items or more: the caller checks. */
static void dlpi_order_block(dlpi_order *o, uint64_t epoch, uint64_t first, uint32_t count,
                             uint64_t *out) {
    if (DLPI_UNLIKELY(!o->ready || o->epoch != epoch))
        dlpi_order_begin(o, epoch);
    switch (o->kind) {
    case DLP_ORDER_SHUFFLED:
        dlp_permutation_block(&o->permutation, first, count, out);
        break;
    case DLP_ORDER_REPLACEMENT:
        for (uint32_t i = 0; i < count; i++)
            out[i] = dlpi_below(o->buckets, dlpi_order_random(o, first + i));
        break;
    case DLP_ORDER_WEIGHTED:
        for (uint32_t i = 0; i < count; i++)
            out[i] = dlpi_order_weighted(o, first + i);
        break;
    case DLP_ORDER_FUNCTION:
        for (uint32_t i = 0; i < count; i++)
            out[i] = o->function(o->user, epoch, first + i);
        break;
    default:
        for (uint32_t i = 0; i < count; i++)
            out[i] = first + i;
    }
    if (o->subset)
        for (uint32_t i = 0; i < count; i++)
            out[i] = out[i] < o->domain ? o->subset[out[i]] : UINT64_MAX;
}

/* The index that stands in when the item at a position fails for the k-th time, k >= 1: the one at
   a keyed position of the epoch, or, for draws with replacement, one more draw, at a position
   behind any epoch's end. Copies the view, for the epoch need not be the one that it is at. */
static uint64_t dlpi_order_replacement(const dlpi_order *o, uint64_t epoch, uint64_t position,
                                       uint32_t k) {
    dlpi_order view = *o;
    uint64_t index = 0, behind = (uint64_t)1 << 63;
    uint64_t random = dlpi_absorb(
        dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_REPLACEMENT, o->seed, epoch), position), k);
    bool drawn = o->kind == DLP_ORDER_REPLACEMENT || o->kind == DLP_ORDER_WEIGHTED;
    uint64_t positions = o->samples ? o->samples : o->domain;
    uint64_t other = drawn ? behind | random : dlpi_below(dlpi_range_of(positions), random);
    dlpi_order_block(&view, epoch, other, 1, &index);
    return index;
}

/* ---------------------------------------------------------------------------------------------
   >>impl-core       REGION, STAGES, WORKERS, PIPE
   IMPL-CORE-SECTION */

/* ---------------------------------------------------------------------------------------------
   >>impl-pictures   TRACE, TIMELINE, WORDS
   IMPL-PICTURES-SECTION */

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
