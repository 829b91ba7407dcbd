#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>stats      COUNTERS, TRACE, PICTURES, WORDS
   All of these may be called by any thread, from start until close is called; they wait for nobody
   and hold up nobody. Numbers are read while others write them: each is right, together they are a
   few items apart. */

enum {
    DLP_WORKER_IDLE = 0,
    DLP_WORKER_STARTING,
    DLP_WORKER_BUSY,
    DLP_WORKER_STARVED,
    DLP_WORKER_BLOCKED,
    DLP_WORKER_EXITED,
    DLP_WORKER_PARKED /* above the number that the tuner lets work */
};

typedef struct dlp_worker_stats {
    int32_t stage, worker; /* stage as added; worker in its stage */
    int32_t state;         /* DLP_WORKER_* */
    int32_t tid;           /* for display */
    uint64_t items;        /* items done (batches for batch stages) */
    uint64_t bytes;
    uint64_t busy_ns;       /* in callbacks */
    uint64_t starved_ns;    /* waiting for input */
    uint64_t blocked_ns;    /* waiting for a free cell: all that may be in flight is done here,
                                   and the consumer has not taken it */
    uint64_t cpu_ns;        /* of its thread, and of those of DLP_FETCH_THREADS; 0 if not
                                   known. Inline: in callbacks, by a sample every 5 ms */
    uint64_t current_index; /* item in work (batch for batch stages), UINT64_MAX: none */
    uint64_t current_age_ns;
    int32_t process;       /* 1: a process of its own; 0: a thread, or inline */
    int32_t pid;           /* of the process it runs in; for display; 0: not begun */
    int32_t restarts;      /* times that it died and was begun again */
    int32_t died_by;       /* the signal that ended it last; 0: none, it exited */
    uint64_t core_wait_ns; /* those threads were ready to run, but others had the cores, or a
                                   CPU quota was used up; 0 if not known (/proc/thread-self) */
} dlp_worker_stats;

/* Streams of inputs whose items nobody has counted (>>found): batches have as many rows of each,
   so the one with the fewest items ends an epoch, or comes again first. Of this rank's, each with
   the last pass of which all inputs were counted. */
typedef struct dlp_stream_stats {
    uint32_t streams, counted; /* this rank's; those with such a pass */
    uint32_t all;              /* of all ranks */
    int32_t drops; /* 1: an epoch ends with the first stream that is out; 2: of any rank */
    uint64_t items, least, most; /* of their passes together; of a stream */
    uint64_t left_out;           /* items of these that an epoch leaves out, with DLP_LAST_DROP, or
                                      that come after steps_per_epoch; 0 too: not known yet, or rows
                                      are packed */
    uint64_t weights, weights_least, weights_most; /* of all streams, of one; 0: there are none */
} dlp_stream_stats;

typedef struct dlp_stage_stats {
    char name[32];
    int32_t kind;          /* DLP_STAGE_* */
    int32_t workers;       /* 0: inline; of a tuned stage those that work now */
    int32_t unit_is_batch; /* 1: items count batches */
    int32_t zeroes;        /* 1: each row is zeroed before fetch */
    uint64_t items;        /* done; an out beside the first: batches that it took or missed */
    uint64_t bytes, retried, replaced, left_out;
    uint64_t busy_ns, starved_ns, blocked_ns, cpu_ns; /* summed over workers */
    uint64_t p50_ns, p95_ns, p99_ns, max_ns;          /* time of one item, 0: not known yet */
    uint64_t max_index;    /* dataset index of the item that took max_ns; UINT64_MAX: not known,
                              since items so quick are timed several at once */
    uint64_t ready;        /* batches waiting before it; the first stage: 0 */
    uint64_t restarts;     /* worker processes that died and were begun again */
    int32_t died_by;       /* the signal that ended one of them last, 0: none, it exited */
    int32_t in_flight;     /* items that each worker may have under way at once; 0: one */
    uint64_t in_flight_ns; /* that all items were under way, added up; 0 with in_flight 0.
                                   in_flight_ns / busy_ns is how many a worker had at once */
    int32_t workers_min, workers_max; /* 0: not tuned */
    uint32_t cells, loaded;   /* part queue: its cells, and those with a part that is there, */
    uint32_t loading, in_use; /* is asked for or being loaded; of those there, one that a batch
                                   needs which is scheduled and not delivered */
    uint64_t core_wait_ns;    /* summed over workers */
    uint64_t own[4];          /* what its kind counts, and says */
    /* inputs whose items nobody has counted (>>found, >>expand): those made, counted again where
       they are made again after a seek; the items of them; those of them that had none */
    uint64_t inputs, inputs_items, inputs_empty;
    uint64_t window; /* items that are shuffled, documents that are packed, at a time; 0: none */
    uint64_t cell_bytes; /* of all its cells */
    dlp_stream_stats spread;
    uint32_t producers;     /* of a push: attached when its reader waited last; 0: not known */
    int32_t slowest;        /* the worker whose items take the longest; at least 8 were timed */
    uint64_t slowest_ns;    /* nine of ten of its items take so long, or longer; 0: not known */
    uint64_t others_ns;     /* half of the other workers' items take no longer */
    uint64_t slowest_items; /* that it has done */
} dlp_stage_stats;

enum {
    DLP_TUNE_BUSY = 1, /* one more: the consumer waited, and all workers of the stage were busy */
    DLP_TUNE_IDLE,     /* fewer: batches were ready, and workers had nothing to do */
    DLP_TUNE_CORES,    /* no more, although it is busy: its workers compute, the cores are taken */
    DLP_TUNE_SET       /* dlp_pipe_set_workers */
};

/* What became of the number of a stage's workers, and why. */
typedef struct dlp_tune_note {
    uint64_t at_ns; /* since start */
    int32_t stage, from, to;
    int32_t reason; /* DLP_TUNE_* */
} dlp_tune_note;

#define DLP_TUNE_NOTES 16

/* The chunks of a pipe with a split stage, and where their buffers are; without one all is 0. Its
   five queues: loadable, cpu_free, cpu_filled, device_free, device_filled. */
typedef struct dlp_chunk_stats {
    uint64_t taken;       /* chunks that were cut, or begun to be */
    uint64_t loadable;    /* chunks of the newest epoch that are not yet given to a loader */
    uint64_t cpu_buffers; /* 0: a monitor of an older version's pipe can't tell */
    uint64_t cpu_free, cpu_loading;
    uint64_t cpu_filled;     /* loaded; of those, not copied yet where there is a device */
    uint64_t device_buffers; /* 0: no device */
    uint64_t device_free, device_copying;
    uint64_t device_filled; /* copied, not yet cut */
    uint64_t in_use;        /* chunks being cut, or with views held */
    int32_t preload;        /* DLP_PRELOAD_CPU, _DEVICE: all chunks stay; else _NONE */
    int32_t preload_auto;   /* 1: DLP_PRELOAD_AUTO chose that */
    uint64_t per_epoch;     /* chunks that an epoch has */
    uint64_t seam_buffers;  /* for batches that span chunks; 0: none does */
    uint64_t seams;         /* batches that did, and were copied */
    uint64_t seam_bytes;
} dlp_chunk_stats;

/* A counter of dlp_pipe_desc.counters, as dlp_pipe_count noted it last. */
typedef struct dlp_counter_stats {
    char name[32], unit[12];
    double value, most; /* most: of the desc */
    uint64_t at_ns;     /* since start */
    uint64_t noted;     /* how often; 0: never, value is 0 */
} dlp_counter_stats;

typedef struct dlp_stats {
    uint64_t elapsed_ns;     /* since start */
    uint64_t batches, items; /* delivered */
    uint64_t bytes;          /* of fields delivered */
    uint64_t wait_ns;        /* the consumer waited in next */
    uint64_t step_ns;        /* the consumer's steps: between next and next */
    uint64_t step_p50_ns, step_p95_ns;
    uint64_t first_batch_ns; /* from start to the first batch */
    uint64_t epoch;          /* of the batch delivered last */
    uint32_t batch_size;     /* rows of this rank's full batch */
    uint32_t prefetch_factor, max_held;
    uint32_t in_flight; /* batches between sampler and next */
    uint32_t ready;     /* ... of them complete */
    uint32_t held;
    uint32_t slots;
    uint32_t cpus; /* that the process may use */
    uint32_t n_stages, n_workers;
    uint64_t plan_bytes;
    dlp_stage_stats stages[DLP_MAX_STAGES];
    uint64_t cache_hits, cache_misses; /* items that the cache had, and had not */
    uint64_t cache_bytes;              /* of cells in use */
    uint64_t cache_capacity;           /* of all its cells; 0: there is no cache */
    uint64_t cache_all_bytes;          /* of the cells that all items of the dataset would take */
    dlp_chunk_stats chunks;
    uint64_t tunes; /* decisions of the tuner; the newest, the oldest of them first: */
    dlp_tune_note tune[DLP_TUNE_NOTES];
    uint64_t part_wait_ns;    /* of wait_ns: the part queue was empty */
    dlp_worker_stats longest; /* who is at its item the longest now; current_age_ns 0: nobody */
    dlp_error first_skip;     /* why an item was replaced or left out for the first time; code 0:
                                   none was */
    uint32_t n_links;
    dlp_link links[DLP_MAX_LINKS];
    uint64_t epoch_borders; /* epochs that set_epoch began, but for the first one of the run */
    uint64_t epoch_wait_ns; /* that the consumer waited there, from the call of set_epoch to the
                                  epoch's first batch */
    uint64_t set_epoch_ns;  /* in set_epoch, the first call too */
    uint32_t n_counters;
    dlp_counter_stats counters[DLP_MAX_COUNTERS];
} dlp_stats;

/* Read the counters of the pipe and its stages.
   out: written on success - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_stats(dlp_pipe *p, dlp_stats *out);

/* Read the counters of one worker, and what it works on now.
   i: 0..n_workers - 1 of dlp_stats, in the order of the stages, inline ones and the transfer among
   them - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_worker_stats(dlp_pipe *p, uint32_t i, dlp_worker_stats *out);

/* An item that was replaced or left out. */
typedef struct dlp_skip {
    uint64_t epoch, position, index, new_index; /* new_index UINT64_MAX: left out */
    int32_t code, errnum, stage, worker;
    char message[128]; /* why, as in an error record, cut */
} dlp_skip;

/* Copy the newest skips, oldest of them first.
   out: [max], may be NULL with max 0; max: 64 are kept; total: how many there were in all, may be
   NULL - returns the number copied, DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_skips(dlp_pipe *p, dlp_skip *out, int max, uint64_t *total);

/* Say in words what limits throughput and what to change. The first line begins "Limit: ". The
   second begins "Change: ", and tells where it can how many items a second the change should give.
   A line "Better: " has a change that should give more. A line "Slow: " names a worker that takes
   far longer for its items than the other workers. dlp_pipe_explain begins with a line "Warning: "
   for each warning.
   An item that is in work unusually long has a line "Longest: ". It names the stage, the worker,
   its thread, the item, and how long. Unusually long is a second, or 100 ms and twice the stage's
   p99.
   What limits is an average since the start, but for an out that stops the pipe now.
   buf, size: borrowed; cut and terminated like snprintf's; NULL with size 0 asks for the length.
   Returns the length of the whole text, or DLP_ERR_ARG (explain: or dlp_pipe_stats' error). Any
   thread. Does not wait or allocate. Takes up to twelve times as long as dlp_stats_predict. */
DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size);
DLPDEF int dlp_stats_explain(const dlp_stats *s, char *buf, size_t size);

enum {
    DLP_TRACE_WORK = 1,
    DLP_TRACE_WAIT,
    DLP_TRACE_STEP,
    DLP_TRACE_EPOCH,
    DLP_TRACE_STARVED,
    DLP_TRACE_BLOCKED
};

/* A stretch of time in a lane (a worker, or the consumer). Stretches of a lane do not overlap. */
typedef struct dlp_trace_event {
    uint64_t begin_ns, end_ns; /* since start */
    uint64_t sequence;         /* batch */
    uint32_t epoch;
    uint16_t kind;  /* DLP_TRACE_* */
    uint16_t items; /* done in it, of one batch */
} dlp_trace_event;

/* Return the number of trace lanes, or DLP_ERR_ARG, DLP_ERR_STATE (not started). Lane 0 is the
   consumer; the others are the workers, in the order of dlp_pipe_worker_stats. */
DLPDEF int dlp_pipe_trace_lanes(const dlp_pipe *p);

/* Copy the newest events of a lane, oldest of them first.
   out: [max], may be NULL with max 0; name: [32], may be NULL - returns the number copied,
   DLP_ERR_ARG, DLP_ERR_STATE (not started). */
DLPDEF int dlp_pipe_trace(dlp_pipe *p, int lane, dlp_trace_event *out, int max, char *name);

/* Note what a counter of dlp_pipe_desc.counters is now, as often as it is worth a point in a
   picture: after each step, or every few. Its ring has the newest trace_bytes / 16 values, and one
   that is as the last was takes no place.
   counter: 0..n_counters - 1; value: 0 or more - returns DLP_OK, DLP_ERR_ARG (also of what is no
   number), DLP_ERR_STATE (not started) - consumer - reads the clock once; does not wait or
   allocate. */
DLPDEF int dlp_pipe_count(dlp_pipe *p, uint32_t counter, double value);
