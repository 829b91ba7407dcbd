#pragma once
#include "api/state.h"
#include "api/samplers.h"
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>pipe       RUNNING
   A program opens a pipe, calls next and release for each batch, and closes the pipe.
   dlp_pipe_open (>>graph) opens a table of nodes, dlp_loader_open (>>loader) a loader's desc. The
   comment of a call tells its parameters, what it returns, which threads may call it, and whether
   it waits or allocates. "Consumer": the thread that calls next and release. Any thread may be the
   consumer, but only one at a time. */

typedef struct dlp_pipe dlp_pipe;
typedef int32_t dlp_stage; /* number of a stage of a pipe, in statistics and errors */

/* A byte limit that several pipes share. Set limit_bytes, and used_bytes to 0, before the first
   pipe starts. Pipes may start in several threads. A pipe gives its bytes back when it is freed. */
typedef struct dlp_budget {
    uint64_t limit_bytes; /* for all pipes together */
    uint64_t used_bytes;  /* dlpipe writes it */
} dlp_budget;

struct dlp_shm_desc;

/* Print a warning as a line on standard error: a ready-made dlp_pipe_desc.log. user is not used. */
DLPDEF void dlp_log_stderr(void *user, const char *message);

/* A figure of the program's own, such as the load of a device, its memory in use, or the loss.
   dlp_pipe_count notes its values. Pictures and traces have a lane for it. */
typedef struct dlp_counter {
    const char *name; /* required; copied, cut at 31 bytes */
    const char *unit; /* copied, cut at 11 bytes; NULL: no unit */
    double most;      /* value at the top of the lane, 0 or more; 0: the largest value shown */
} dlp_counter;

#define DLP_MAX_COUNTERS 8

typedef struct dlp_pipe_desc {
    int32_t prefetch_factor;  /* batches between sampler and next; 0: 2, or 1 if all is inline; at
                                  most 4096, 320 if unordered */
    int32_t max_held;         /* batches that the consumer may hold at once; 0: 1; at most 256, 63
                                  with a transfer stage */
    int32_t unordered;        /* 1: batches of an epoch come in the order of completion */
    int32_t close_timeout_ms; /* milliseconds that close waits for running callbacks; 0: 5000;
                                  DLP_NOWAIT; DLP_FOREVER */
    uint64_t limit_bytes;     /* bytes that the plan may have; 0: no limit */
    dlp_budget *budget;       /* limit shared with other pipes; borrowed until close; NULL: none */
    uint32_t trace_bytes;     /* bytes of each worker's trace ring; 0: 4096; at most 64 MiB */
    int32_t no_memfd;         /* 1: anonymous memory; other processes cannot observe the pipe */
    const dlp_state *resume;  /* state to go on from; copied; NULL: from the beginning */
    void (*log)(void *user, const char *message); /* receives warnings; start, next, close and the
                                  thread that reads a push call it. dlp_log_stderr prints warnings.
                                  NULL: only dlp_pipe_warning and dlp_pipe_explain have them */
    void *log_user;                               /* user of log; borrowed until close */
    const char *name;                             /* name for people; copied, cut at 31 bytes */
    const struct dlp_shm_desc *shm;               /* desc of dlpipe_shm.h; copied; NULL: its
                                  defaults */
    const dlp_counter *counters;                  /* [n_counters]; copied; each takes trace_bytes of
                                  memory */
    uint32_t n_counters;                          /* 0..DLP_MAX_COUNTERS */
    /* The run: which items, how often, and on which ranks. */
    uint32_t streams; /* number of streams (C), a divisor of batch_size; for parts, and items of
                                  unknown count. 0: 1. The order depends on it, so it stays the same
                                  when world_size changes */
    uint64_t seed;    /* any value */
    int64_t epochs;   /* number of epochs; 0: one; DLP_FOREVER */
    int64_t steps_per_epoch;   /* full batches of an epoch, for items of unknown count (DLP_FOREVER,
                                too) or parts; 0: until the items are out */
    int32_t epoch_end;         /* 1: next returns DLP_EPOCH_END once after each epoch. A state that
                                  was saved before that call knows this, so it is not lost */
    int32_t allow_uneven;      /* 1: batch_size need not be divisible by world_size */
    int32_t uneven;            /* 1: the epoch of each rank ends by itself (>>found) */
    int32_t shared_streams;    /* 1: world_size need not divide streams (>>found) */
    uint32_t rank, world_size; /* 0, 0: one rank (>>ranks) */
    int32_t later; /* 1: open forks worker processes, but makes no threads and opens no device;
                      dlp_pipe_start does */
    int (*set_epoch)(void *user, uint64_t epoch);         /* called between epochs (>>samplers);
                                  NULL: epochs overlap */
    void *set_epoch_user;                                 /* borrowed until close */
    int64_t (*agree)(void *user, int64_t mine, int most); /* all-reduce by which several ranks end
                                  an epoch together (>>found); NULL: ranks do not ask each other */
    void *agree_user;                                     /* borrowed until close */
    int32_t stall_ms;   /* milliseconds in which next waits for a batch before it warns, once, and
                         names the worker and the item that take the longest; 0: 60000;
                         DLP_FOREVER, DLP_NONE: never */
    int32_t trace_rows; /* 1: batches tell the list and the number of each row's item, 6 bytes a
                         row: dlp_batch.list, .number. Else 0 */
} dlp_pipe_desc;

/* Kinds of links. A link is the lock-free queue between two stages; it lies in the region. The kind
   tells how a reader takes a record:
   SPSC    by the reader's own counter
   MPSC    by the reader's own counter, from a lane of each writer
   CLAIM   by a compare-and-swap on the record's word; any of several readers may take it
   GATHER  when all parts of the record are complete */
enum { DLP_LINK_SPSC = 1, DLP_LINK_MPSC, DLP_LINK_CLAIM, DLP_LINK_GATHER };

#define DLP_MAX_LINKS 32

typedef struct dlp_link {
    char from[32], to[32];        /* names of stages, or "consumer", "producers", "joined rows"; if
                                     the link has the cells of a branch, the branch's name */
    int32_t from_stage, to_stage; /* numbers of stages; -1: the consumer; -2: a push's producers */
    int32_t kind;                 /* DLP_LINK_* */
    int32_t writers, readers;     /* most threads or processes at each end */
    int32_t rule;      /* DLP_DISPATCH_* of a claim link; DLP_FULL_* of lanes, and of a link to an
                          out */
    uint64_t capacity; /* most records (batches, parts, buffers); 0: not known, if a monitor of
                          another version watches the pipe */
    uint64_t bytes;    /* bytes of the link's words, which other lines of the plan count, too.
                          Lanes: all their bytes, which are the push's */
    uint64_t depth;    /* records in the link now, in statistics; in a link back to the sampler or
                          the transfer: free ones. UINT64_MAX: not known: a monitor sees no lanes */
} dlp_link;

/* Return the name of a DLP_LINK_*, such as "spsc"; "?" for any other number.
   Any thread. Does not wait or allocate. */
DLPDEF const char *dlp_link_name(int kind);

/* One line of a memory plan. */
typedef struct dlp_plan_line {
    char what[48];
    uint64_t count, bytes_each, bytes;
} dlp_plan_line;
/* A stage of the plan. */
typedef struct dlp_plan_stage {
    char name[32];
    char what[48];     /* what the stage does, such as "filter, expand"; "" if its kind says it */
    int32_t stage;     /* number of the stage, in the order of the table */
    int32_t kind;      /* DLP_STAGE_* */
    int32_t workers;   /* number of workers; 0: it runs in the consumer; -1: no work of its own */
    int32_t placement; /* DLP_PLACE_* */
} dlp_plan_stage;
typedef struct dlp_plan {
    uint64_t total_bytes, limit_bytes;
    uint64_t slots;      /* batches in memory: prefetch_factor + max_held, and what outs hold */
    uint64_t slot_bytes; /* bytes of one batch with its per-row records */
    uint32_t n_lines;
    dlp_plan_line lines[32];
    uint32_t n_links;
    dlp_link links[DLP_MAX_LINKS];
    uint32_t n_stages;
    dlp_plan_stage stages[DLP_MAX_STAGES]; /* in the order of the data */
    char order[100]; /* what decides which item a row has. Begins "by position": the number of the
                        row in its epoch; "by stream": the data, too; or "as items are pushed" */
    char random[80]; /* what dlp_item_random goes by: the "position" of the row, or the "path" of
                        the item (>>graph, Makers) */
    char state[80];  /* what dlp_pipe_state saves. Begins "none" if a push comes: no pipe resumes it
                        */
    char rooms[160]; /* the warning of the first ragged field whose room is over 32 times the mean
                        length of the first items; "": there is none, or no item has come yet */
} dlp_plan;

/* Tell, line by line, the bytes that the pipe has allocated. Stacks of threads are not among them.
   dlp_nodes_plan tells the bytes before anything is allocated. A number above 2^64 stays at
   UINT64_MAX, in lines and in the sum; open refuses such a plan.
   out: written on success.
   Returns DLP_OK, DLP_ERR_ARG, or the code of an error before. Consumer. Does not wait or
   allocate. */
DLPDEF int dlp_pipe_plan(dlp_pipe *p, dlp_plan *out);

/* Write a plan as text: its lines, the total, the links, and a line for each of order, random,
   state, rooms if there are any, and system. The line of a link ends with its rule: "in turns", or
   what becomes of records for which a full queue has no room. Without a rule such records wait. The
   line of the system tells the CPUs that this process may use, and the limit of its memory, at the
   time of the call.
   buf: borrowed; NULL with size 0 asks for the length; the text is cut and terminated as snprintf
   does.
   Returns the length of the whole text, or DLP_ERR_ARG (plan is NULL). Any thread. Reads /proc and
   /sys on Linux. Allocates, and frees. */
DLPDEF int dlp_plan_format(const dlp_plan *plan, char *buf, size_t size);

/* Read the workers of a stage, with the values that dlpipe has chosen where the desc had zeros. The
   plan tells the rest: slots, and the links with their writers, readers and records.
   stage: stages are numbered as the table adds them; those of a loader: sampler 0, repeat 1,
   (parts), fetch, (cache), batch, (transfer). out: written on success; its pointers are the pipe's,
   or as the desc gave them.
   Returns DLP_OK; DLP_ERR_ARG (NULL, or no such stage); DLP_ERR_STATE (not planned or started); or
   the code of an error before. Consumer. Does not wait or allocate. */
DLPDEF int dlp_stage_resolved(const dlp_pipe *p, dlp_stage stage, dlp_workers_desc *out);

/* Start a pipe that was opened with later: open the device, make threads. Worker processes see this
   process's memory as it was when the pipe was opened. A program may need threads before it knows
   its pipes. Then it first forks a process that opens the pipes and serves their batches by name
   (share, serve_only, dlp_shm_serve), and subscribes to that process.
   Returns DLP_OK; DLP_ERR_STATE (started already); or the code that dlp_pipe_open returns if a
   device or a thread fails. After a failure, close the pipe. Consumer. Allocates; waits for no
   worker. */
DLPDEF int dlp_pipe_start(dlp_pipe *p);

/* Lend the next batch to the consumer. Wait for it without limit.
   out: written on DLP_OK only. Returns
     DLP_OK
     DLP_END         All epochs are delivered.
     DLP_EPOCH_END   An epoch has ended: once after each epoch, with epoch_end.
     DLP_STOPPED     dlp_pipe_stop was called.
     DLP_ERR_HELD    max_held batches are held. Release one; nothing is lost.
     DLP_ERR_ARG     p or out is NULL.
     DLP_ERR_STATE   The pipe is not started, or closed, or serve_only, or its own callback calls,
                     or another thread is in a call of the consumer.
     DLP_ERR_CALLBACK, _LENGTH, _BUDGET, _DEADLINE, _DEVICE, _KILLED, or the code of a failed start:
                     the pipe's error, which stays. dlp_pipe_error tells it.
   If an item fails, next returns the error at the batch of that item, after all batches before it.
   It returns errors of worker_init and deadlines at once.
   An epoch is an error if all its items were left out (DLP_ON_ERROR_DROP, DLP_SKIP). A warning says
   so with the epoch's last batch. The next call returns the error of the first item. An epoch
   without items, of which this pipe has seen only a part, or which dlp_pipe_next_epoch has left, is
   no such error. If there are several ranks, this one may have had bad luck. So it only warns if
   fewer than 32 items failed, or fewer than 1000 were skipped.
   Consumer. Runs inline stages; else spins for some us, then sleeps. Never allocates. */
DLPDEF int dlp_pipe_next(dlp_pipe *p, dlp_batch **out);

/* Lend the next batch to the consumer, as dlp_pipe_next. Wait at most timeout_ms.
   timeout_ms: as in poll(2): milliseconds; 0: do not wait; negative: without limit. So DLP_NOWAIT,
   which is negative, does not fit here.
   Returns as dlp_pipe_next; DLP_TIMEOUT, too: the next call waits for the same batch. Consumer. A
   running callback of an inline stage is not interrupted. */
DLPDEF int dlp_pipe_next_timeout(dlp_pipe *p, dlp_batch **out, int timeout_ms);

/* Give a batch back. Batches may go back in any order. The slot is free for the sampler at once.
   batch: from next; do not use it after this call.
   Returns DLP_OK; DLP_ERR_ARG (no held batch); DLP_ERR_STATE (a callback that the consumer runs
   calls it). Consumer; also after an error, a stop or a close.
   The last release after a close frees the pipe. Does not wait or allocate; runs an inline
   sampler. */
DLPDEF int dlp_pipe_release(dlp_pipe *p, dlp_batch *batch);

/* Leave the rest of the present epoch: next goes on with the first batch of the next epoch. No
   DLP_EPOCH_END comes before that batch. If all batches of the present epoch were delivered, or
   none yet, the call does nothing else. Held batches stay valid. Running calls finish; items that
   have not begun are dropped.
   Returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE, or the code of the pipe's error. Consumer. Does not
   wait. */
DLPDEF int dlp_pipe_next_epoch(dlp_pipe *p);

/* Jump to a saved state, of this pipe or of another one with the same order. next goes on after the
   state, as if the pipe had been resumed there. Workers go on. Held batches stay valid. Work for
   the old place is dropped, as in dlp_pipe_next_epoch. A pipe that had delivered all goes on again.
   state: copied; err: written on failure, may be NULL. Returns
     DLP_OK
     DLP_ERR_ARG          p or state is NULL.
     DLP_ERR_RESUME       The state is of another order; err->field names what differs.
     DLP_ERR_CORRUPT      The state is damaged.
     DLP_ERR_UNSUPPORTED  Other processes subscribe, or several outs stand.
     DLP_ERR_STATE        The pipe is not started, or closed, or had 2^14 seeks with no batch
                          between them, or a callback that the consumer runs calls.
     the code of the pipe's error
   If the pipe has no error, it goes on where it was after a failed seek. If a batch sampler cannot
   restore its state, or has failed ahead, next returns the pipe's error.
   Consumer. Does not wait or allocate; runs an inline sampler. */
DLPDEF int dlp_pipe_seek(dlp_pipe *p, const dlp_state *state, dlp_error *err);

/* Make the state that stands before a batch, for dlp_pipe_seek or desc.resume. A batch sampler must
   replay the epoch's lists up to there. The state that dlp_pipe_state saves has the sampler's
   bytes, which is quicker.
   epoch: below 2^47, may be past the last; batch: number in the epoch, below
   dlp_pipe_batches_per_epoch if that is known; out: written on success.
   Returns DLP_OK; DLP_ERR_ARG; DLP_ERR_STATE (not started); DLP_ERR_UNSUPPORTED: inputs of unknown
   count (>>found), and batch is not 0. Consumer. Does not wait or allocate. */
DLPDEF int dlp_pipe_state_at(const dlp_pipe *p, uint64_t epoch, uint64_t batch, dlp_state *out);

/* Ask the pipe to stop. next returns DLP_STOPPED, also if it sleeps. Workers end after the callback
   that they run. A stopped pipe can only be closed.
   p: NULL does nothing.
   Any thread and any signal handler, from open until close is called. Does not wait or allocate;
   keeps errno. */
DLPDEF void dlp_pipe_stop(dlp_pipe *p);

/* Stop the pipe, wait for the workers, and free everything.
   p: NULL is DLP_OK. Returns
     DLP_OK        The pipe is gone. If batches are held, the last release frees it, or the deleter
                   of the last tensor. Until then only release and close may be called. close then
                   does nothing, and returns DLP_OK.
     DLP_ERR_BUSY  A callback has not returned within close_timeout_ms; dlp_pipe_error names it.
                   Nothing was freed. Call close again. Or a callback that the consumer runs has
                   called close, and nothing was done.
   Consumer; no other call may run. Waits up to close_timeout_ms. Time in which the process is
   stopped does not count. */
DLPDEF int dlp_pipe_close(dlp_pipe *p);

/* Return the first error of the pipe, never NULL. Code 0 and worker -1: no error. After next has
   returned DLP_ERR_HELD, the record tells that until a batch is released, though the pipe has no
   error then. After dlp_batch_data has returned NULL, the record tells why until the next call of
   next. After close has returned DLP_ERR_BUSY, the record tells that.
   If another call is under way, next, release, next_epoch and close are refused. The record tells
   this to the calling thread alone, until next or close lets it in.
   The record of a refused call is the thread's. The other one is the pipe's, until close.
   Consumer, and any thread after a refused call. Does not wait. */
DLPDEF const dlp_error *dlp_pipe_error(const dlp_pipe *p);

/* Return warning number i, from 0; NULL after the last. The pipe keeps the first eight, until
   close. dlp_pipe_explain begins with these warnings. Consumer. */
DLPDEF const char *dlp_pipe_warning(const dlp_pipe *p, int i);

/* Save where the pipe is.
   batch: a held batch; the state says that it and all batches before it are consumed. NULL: all
   that next has given; an unordered pipe always saves this. out: 248 bytes, which the program may
   keep anywhere.
   Returns DLP_OK; DLP_ERR_ARG (batch is not held); DLP_ERR_STATE (not started, or serve_only);
   DLP_ERR_UNSUPPORTED (>>found: the streams are too far apart). Consumer; also after an error or a
   stop. Does not wait or allocate. */
DLPDEF int dlp_pipe_state(dlp_pipe *p, const dlp_batch *batch, dlp_state *out);

/* Let n workers of a stage work from now on, whatever the tuner would do. Workers above this number
   finish the items that they have claimed. Order and bytes stay the same.
   stage: has workers_max set; n: workers_min..workers_max; 0: the tuner decides again.
   Returns DLP_OK, DLP_ERR_ARG (no such stage, or number), DLP_ERR_STATE (not started, closed).
   Consumer. Does not wait or allocate. */
DLPDEF int dlp_pipe_set_workers(dlp_pipe *p, dlp_stage stage, int n); /* needs: tune */

/* Return the number of batches in an epoch. Returns -1 if the pipe was not started, or nobody knows
   (DLP_ORDER_BATCHES, a stream, >>found), and DLP_FOREVER if the epoch has no end
   (steps_per_epoch). Consumer. */
DLPDEF int64_t dlp_pipe_batches_per_epoch(const dlp_pipe *p);
