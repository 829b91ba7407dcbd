#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>stats      COUNTERS, TRACE, PICTURES, WORDS
   Any thread may call these functions, from start until close is called; dlp_pipe_count only the
   consumer. They do not wait, and no thread waits for them. Other threads write the numbers while
   they are read. Each number is right, but together they may be a few items apart. */

enum {
    DLP_WORKER_IDLE = 0,
    DLP_WORKER_STARTING,
    DLP_WORKER_BUSY,
    DLP_WORKER_STARVED,
    DLP_WORKER_BLOCKED,
    DLP_WORKER_EXITED,
    DLP_WORKER_PARKED /* its number is above those that the tuner lets work */
};

typedef struct dlp_worker_stats {
    int32_t stage, worker; /* number of the stage, and of the worker in its stage */
    int32_t state;         /* DLP_WORKER_* */
    int32_t tid;           /* thread id, for display */
    uint64_t items;        /* items done (batches for batch stages) */
    uint64_t bytes;
    uint64_t busy_ns;       /* time in callbacks */
    uint64_t starved_ns;    /* time in which it waited for input */
    uint64_t blocked_ns;    /* time in which it waited for a free cell: this stage has done all that
                                   may be in flight, and the consumer has not taken it */
    uint64_t cpu_ns;        /* CPU time of its thread, and of the threads of DLP_FETCH_THREADS; 0 if
                                   not known. Inline: in callbacks, by a sample every 5 ms */
    uint64_t current_index; /* item in work (batch for batch stages); UINT64_MAX: none */
    uint64_t current_age_ns; /* time since that work began */
    int32_t process;         /* 1: a process of its own; 0: a thread, or inline */
    int32_t pid;             /* id of the process that it runs in, for display; 0: not begun */
    int32_t restarts;        /* times that it died and was begun again */
    int32_t died_by;         /* signal that ended it last; 0: no signal, it exited */
    uint64_t core_wait_ns; /* time in which its threads were ready to run, but others had the cores,
                                   or a CPU quota was used up; 0 if not known (/proc/thread-self) */
} dlp_worker_stats;

/* Streams of inputs of unknown count (>>found). A batch has the same number of rows of each stream.
   So the stream with the fewest items ends an epoch, or is the first to begin again. The figures
   are of this rank's streams, and of the last pass of each in which all inputs were counted. */
typedef struct dlp_stream_stats {
    uint32_t streams, counted; /* streams of this rank; streams with such a pass */
    uint32_t all;              /* streams of all ranks */
    int32_t drops; /* 1: an epoch ends with the first stream of this rank that is out; 2: with the
                      first of any rank; 0: it does not */
    uint64_t items, least, most; /* items of these passes: of all streams, of the shortest, of the
                                      longest */
    uint64_t left_out;           /* items of these passes that an epoch leaves out, with
                                      DLP_LAST_DROP, or that come after steps_per_epoch; 0: none,
                                      not known yet, or rows are packed */
    uint64_t weights, weights_least, weights_most; /* sums of weights: of all streams, of the
                                      lightest, of the heaviest; 0: there are no weights */
} dlp_stream_stats;

/* What it costs a stage that the library sets bytes of fields to 0. It does so before callbacks,
   and in a ragged field behind the length of an item. The figures are estimates: workers time these
   clears in some units of their work. */
typedef struct dlp_clear_stats {
    uint64_t ns;        /* part of busy_ns; 0: nothing is cleared, or not known yet */
    uint64_t spared_ns; /* part of ns that writes_all_bytes = 1 would leave out */
    char field[32];     /* name of the field that takes most of this time; "": none */
    uint64_t room;      /* bytes of this field in an item. Ragged: of the longest item */
    uint64_t cleared;   /* mean bytes of it that are cleared for an item */
    uint64_t used;      /* mean bytes of it that an item has */
} dlp_clear_stats;

typedef struct dlp_stage_stats {
    char name[32];
    int32_t kind;          /* DLP_STAGE_* */
    int32_t workers;       /* number of workers; 0: inline; of a tuned stage those that work now */
    int32_t unit_is_batch; /* 1: items count batches */
    int32_t zeroes;        /* 1: each row is zeroed before fetch */
    uint64_t items;        /* items done; of an out beside the first: batches taken or missed */
    uint64_t bytes, retried, replaced, left_out;
    uint64_t busy_ns, starved_ns, blocked_ns, cpu_ns; /* sums over all workers */
    uint64_t p50_ns, p95_ns, p99_ns, max_ns;          /* time of one item; 0: not known yet */
    uint64_t max_index;    /* dataset index of the item that took max_ns; UINT64_MAX: not known, as
                              quick items are timed several at once */
    uint64_t ready;        /* batches that wait before the stage; of the first stage 0 */
    uint64_t restarts;     /* times that worker processes died and were begun again */
    int32_t died_by;       /* signal that ended one of them last; 0: no signal, it exited */
    int32_t in_flight;     /* items that each worker may have under way at once; 0: one */
    uint64_t in_flight_ns; /* sum of the times that items were under way; 0 if in_flight is 0.
                                   in_flight_ns / busy_ns: items that a worker had at once */
    int32_t workers_min, workers_max; /* 0: not tuned */
    uint32_t cells, loaded;           /* part queue: number of cells; cells with a loaded part */
    uint32_t loading, in_use; /* cells whose part is asked for or being loaded; loaded cells that a
                                   batch needs which is scheduled and not delivered */
    uint64_t core_wait_ns;    /* sum over all workers */
    uint64_t own[4];          /* figures of the stage's kind, which names them */
    /* Inputs of unknown count (>>found, >>expand): number made, their items, and inputs without an
       item. An input that is made again after a seek counts again. */
    uint64_t inputs, inputs_items, inputs_empty;
    uint64_t window;     /* items shuffled, or documents packed, at a time; 0: none */
    uint64_t cell_bytes; /* bytes of all its cells */
    dlp_stream_stats spread;
    uint32_t producers;     /* push: producers attached when its reader waited last; 0: not known */
    int32_t slowest;        /* number of the worker with the longest times of items, if it has at
                               least 8 timed items */
    uint64_t slowest_ns;    /* time that nine of ten of its items reach; 0: not known */
    uint64_t others_ns;     /* time that half of the other workers' items do not exceed */
    uint64_t slowest_items; /* items that the slowest worker has done */
    dlp_clear_stats clears;
} dlp_stage_stats;

enum {
    DLP_TUNE_BUSY = 1, /* more: the consumer waited, and all workers of the stage were busy */
    DLP_TUNE_IDLE,     /* fewer: batches were ready, and workers had nothing to do */
    DLP_TUNE_CORES,    /* no more, although it is busy: its workers compute, the cores are taken */
    DLP_TUNE_SET       /* dlp_pipe_set_workers was called */
};

/* A change of the number of a stage's workers, and its reason. */
typedef struct dlp_tune_note {
    uint64_t at_ns; /* since start */
    int32_t stage, from, to;
    int32_t reason; /* DLP_TUNE_* */
} dlp_tune_note;

#define DLP_TUNE_NOTES 16

/* Chunks of a pipe with a split stage, and the places of their buffers. Without a split stage all
   is 0. The five queues: loadable, cpu_free, cpu_filled, device_free, device_filled. */
typedef struct dlp_chunk_stats {
    uint64_t taken;       /* chunks whose cutting has begun, or is done */
    uint64_t loadable;    /* chunks of the newest epoch that no loader has got yet */
    uint64_t cpu_buffers; /* buffers in memory; 0: a monitor of an older version does not know */
    uint64_t cpu_free, cpu_loading;
    uint64_t cpu_filled;     /* loaded buffers; with a device, those not copied yet */
    uint64_t device_buffers; /* buffers on the device; 0: no device */
    uint64_t device_free, device_copying;
    uint64_t device_filled; /* buffers copied, not yet cut */
    uint64_t in_use;        /* chunks being cut, or with held views */
    int32_t preload;        /* DLP_PRELOAD_CPU, _DEVICE: all chunks stay; else _NONE */
    int32_t preload_auto;   /* 1: DLP_PRELOAD_AUTO chose preload */
    uint64_t per_epoch;     /* chunks of an epoch */
    uint64_t seam_buffers;  /* buffers for batches that span chunks; 0: no batch does */
    uint64_t seams;         /* batches that spanned chunks, and were copied */
    uint64_t seam_bytes;    /* bytes of these copies */
} dlp_chunk_stats;

/* A counter of dlp_pipe_desc.counters, with its last value of dlp_pipe_count. */
typedef struct dlp_counter_stats {
    char name[32], unit[12];
    double value, most; /* most: of the desc */
    uint64_t at_ns;     /* since start */
    uint64_t noted;     /* number of values noted; 0: none, value is 0 */
} dlp_counter_stats;

typedef struct dlp_stats {
    uint64_t elapsed_ns;     /* since start */
    uint64_t batches, items; /* delivered */
    uint64_t bytes;          /* bytes of the fields delivered */
    uint64_t wait_ns;        /* time that the consumer waited in next */
    uint64_t step_ns;        /* time of the consumer's steps: from a next to the following next */
    uint64_t step_p50_ns, step_p95_ns;
    uint64_t first_batch_ns; /* time from start to the first batch */
    uint64_t epoch;          /* epoch of the batch delivered last */
    uint32_t batch_size;     /* rows of a full batch of this rank */
    uint32_t prefetch_factor, max_held;
    uint32_t in_flight; /* batches between sampler and next */
    uint32_t ready;     /* complete batches among them */
    uint32_t held;      /* batches that the consumer holds */
    uint32_t slots;
    uint32_t cpus; /* cores that the process may use */
    uint32_t n_stages, n_workers;
    uint64_t plan_bytes;
    dlp_stage_stats stages[DLP_MAX_STAGES];
    uint64_t cache_hits, cache_misses; /* items that the cache had, and had not */
    uint64_t cache_bytes;              /* bytes of cells in use */
    uint64_t cache_capacity;           /* bytes of all cells; 0: there is no cache */
    uint64_t cache_all_bytes;          /* bytes of the cells that all items of the dataset need */
    dlp_chunk_stats chunks;
    uint64_t tunes; /* decisions of the tuner so far. tune has the newest, oldest of them first */
    dlp_tune_note tune[DLP_TUNE_NOTES];
    uint64_t part_wait_ns;    /* part of wait_ns: the part queue was empty */
    dlp_worker_stats longest; /* worker whose present item takes the longest; current_age_ns 0:
                                   none */
    dlp_error first_skip;     /* why an item was first replaced or left out; code 0: none was */
    uint32_t n_links;
    dlp_link links[DLP_MAX_LINKS];
    uint64_t epoch_borders; /* epochs that set_epoch began, without the first one of the run */
    uint64_t epoch_wait_ns; /* time that the consumer waited at these borders, from the call of
                                  set_epoch to the first batch of the epoch */
    uint64_t set_epoch_ns;  /* time in set_epoch, the first call included */
    uint32_t n_counters;
    dlp_counter_stats counters[DLP_MAX_COUNTERS];
} dlp_stats;

/* Read the counters of the pipe and its stages.
   out: written on success. Returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_stats(dlp_pipe *p, dlp_stats *out); /* needs: stats */

/* Read the counters of one worker, and its present work.
   i: 0..n_workers - 1 of dlp_stats. Workers stand in the order of the stages, inline workers and
   the transfer included. out: written on success. Returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE (not
   started). */
DLPDEF int dlp_pipe_worker_stats(dlp_pipe *p, uint32_t i, /* needs: stats */
                                 dlp_worker_stats *out);

/* An item that was replaced or left out. */
typedef struct dlp_skip {
    uint64_t epoch, position, index, new_index; /* new_index UINT64_MAX: left out */
    int32_t code, errnum, stage, worker;
    char message[128]; /* why, as in an error record, cut */
} dlp_skip;

/* Copy the newest skips, the oldest of them first. The pipe keeps 64.
   out: [max], may be NULL if max is 0; total: gets the number of all skips, may be NULL.
   Returns the number copied, DLP_ERR_ARG, or DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_skips(dlp_pipe *p, dlp_skip *out, int max, /* needs: stats */
                          uint64_t *total);

/* Say in words what limits throughput, and what to change. The first line begins "Limit: ". The
   second line begins "Change: ". If it can, it tells how many items a second the change should
   give. A line "Better: " names a change that should give more. A line "Slow: " names a worker
   whose items take far longer than those of the other workers. dlp_pipe_explain puts a line
   "Warning: " for each warning before all these lines, and then a line "Error: " if an error that
   belongs to no batch ends the pipe.
   A line "Longest: " tells of an item that has been in work for too long: a second, or 100 ms and
   twice the stage's p99. It names the stage, the worker, its thread, the item, and the time.
   If such an item takes a second and 1,000 times the p99, the first line tells of it.
   If workers wait for a lock that one of them holds, this is the limit. The line tells how many
   times longer items take for it. Only dlp_pipe_explain and dlp_monitor_explain know it: they ask
   /proc what the workers sleep for. /proc may refuse to tell another user.
   If setting bytes to 0 takes three tenths of the time of the limiting stage, the first line tells
   of that. It names the field that takes most of it, its room, and what items use of it.
   The limit is an average since the start. Only a lock, and an out that stops the pipe, are told
   as they are now.
   buf: borrowed; NULL with size 0 asks for the length; the text is cut and terminated as snprintf
   does.
   Returns the length of the whole text, or DLP_ERR_ARG; dlp_pipe_explain also returns the errors of
   dlp_pipe_stats. Any thread. Does not wait or allocate. Takes up to twelve times as long as
   dlp_stats_predict. */
DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size);         /* needs: explain */
DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size); /* needs: explain */

enum {
    DLP_TRACE_WORK = 1,
    DLP_TRACE_WAIT,
    DLP_TRACE_STEP,
    DLP_TRACE_EPOCH,
    DLP_TRACE_STARVED,
    DLP_TRACE_BLOCKED
};

/* A stretch of time in a lane, which is a worker's or the consumer's. Stretches of a lane do not
   overlap. */
typedef struct dlp_trace_event {
    uint64_t begin_ns, end_ns; /* since start */
    uint64_t sequence;         /* batch */
    uint32_t epoch;
    uint16_t kind;  /* DLP_TRACE_* */
    uint16_t items; /* items of the batch that were done in it */
} dlp_trace_event;

/* Return the number of trace lanes, DLP_ERR_ARG, or DLP_ERR_STATE (not started). Lane 0 is the
   consumer's. Lane i is that of worker i - 1 of dlp_pipe_worker_stats. */
DLPDEF int dlp_pipe_trace_lanes(const dlp_pipe *p); /* needs: stats */

/* Copy the newest events of a lane, the oldest of them first.
   out: [max], may be NULL if max is 0; name: [32] gets the lane's name, may be NULL.
   Returns the number copied, DLP_ERR_ARG, or DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_trace(dlp_pipe *p, int lane, dlp_trace_event *out, /* needs: stats */
                          int max, char *name);

/* Note the present value of a counter of dlp_pipe_desc.counters, after each step, or every few
   steps. Each note is a point in pictures. The ring of a counter has the newest trace_bytes / 16
   values. A value that equals the last one takes no place.
   counter: 0..n_counters - 1; value: 0..1e300.
   Returns DLP_OK, DLP_ERR_ARG (not a number, too), DLP_ERR_STATE (not started). Consumer. Reads the
   clock once; does not wait or allocate. */
DLPDEF int dlp_pipe_count(dlp_pipe *p, uint32_t counter, double value); /* needs: stats */
