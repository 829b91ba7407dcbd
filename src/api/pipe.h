#pragma once
#include "api/state.h"
#include "api/samplers.h"
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>pipe       RUNNING
   open -> next, release ... -> close. dlp_pipe_open (>>graph) opens what a table of nodes says, and
   dlp_loader_open (>>loader) what a loader's desc says. Fields of a call's comment: parameters -
   what it returns - threads - whether it waits or allocates. "Consumer": the thread that calls next
   and release; one at a time, which may be any. */

typedef struct dlp_pipe dlp_pipe;
typedef int32_t dlp_stage; /* a stage of a pipe: its number in statistics and errors */

/* A byte limit that several pipes share; zero used before the first. Pipes may start in several
   threads. A pipe gives its bytes back when it is freed. */
typedef struct dlp_budget {
    uint64_t limit_bytes;
    uint64_t used_bytes; /* kept by dlpipe */
} dlp_budget;

struct dlp_shm_desc;

/* Print a warning as a line on standard error: a ready-made dlp_pipe_desc.log. user is not used. */
DLPDEF void dlp_log_stderr(void *user, const char *message);

/* A figure of the user's own, which has a lane in pictures and traces: how busy a device is, the
   memory that it has in use, the loss. See dlp_pipe_count. */
typedef struct dlp_counter {
    const char *name; /* copied, cut at 31 bytes; required */
    const char *unit; /* copied, cut at 11 bytes; NULL: none */
    double most;      /* the height of its lane; 0: the largest value shown */
} dlp_counter;

#define DLP_MAX_COUNTERS 8

typedef struct dlp_pipe_desc {
    int32_t prefetch_factor;  /* batches between sampler and next; 0: 2 (1 when all is inline); at
                                  most 4096, 320 when unordered */
    int32_t max_held;         /* batches the consumer may hold at once; 0: 1; at most 256, 63 with a
                                  transfer stage */
    int32_t unordered;        /* 1: batches of an epoch come in the order of completion */
    int32_t close_timeout_ms; /* how long close waits for running callbacks; 0: 5000; DLP_NOWAIT;
                                  DLP_FOREVER */
    uint64_t limit_bytes;     /* 0: none; the plan must fit */
    dlp_budget *budget;       /* NULL: none; borrowed until close */
    uint32_t trace_bytes;     /* trace ring of each worker; 0: 4096; at most 64 MiB */
    int32_t no_memfd;         /* 1: anonymous memory, cannot be observed from outside */
    const dlp_state *resume;  /* NULL: from the beginning; copied */
    void (*log)(void *user, const char *message); /* takes warnings, in start, next and close;
                                  dlp_log_stderr prints them. NULL: only dlp_pipe_warning and
                                  dlp_pipe_explain have the warnings */
    void *log_user;                               /* borrowed until close */
    const char *name;                             /* copied, cut at 31 bytes; for people */
    const struct dlp_shm_desc *shm;               /* of dlpipe_shm.h; NULL: its defaults; copied */
    const dlp_counter *counters;                  /* [n_counters], 0..DLP_MAX_COUNTERS; copied;
                                  trace_bytes each */
    uint32_t n_counters;
    /* The run: which items, how often, and on which ranks. */
    uint32_t streams; /* C, a divisor of batch_size: for parts, and items of unknown count; 0: 1.
                                  Part of the order: it stays the same when world_size changes */
    uint64_t seed;    /* any value */
    int64_t epochs;   /* 0: one; DLP_FOREVER */
    int64_t steps_per_epoch;   /* 0: until the items are out; else full batches, of items of unknown
                                count (DLP_FOREVER, too) or of parts */
    int32_t epoch_end;         /* 1: next returns DLP_EPOCH_END once after each epoch */
    int32_t allow_uneven;      /* 1: batch_size need not be divisible by world_size */
    int32_t uneven;            /* 1: the epoch of each rank ends by itself (>>found) */
    int32_t shared_streams;    /* 1: world_size need not divide streams (>>found) */
    uint32_t rank, world_size; /* 0, 0: one rank (>>ranks) */
    int32_t later; /* 1: open makes no threads and opens no device; dlp_pipe_start does. Worker
                      processes are forked by open */
    int (*set_epoch)(void *user, uint64_t epoch);         /* (>>samplers); NULL: epochs overlap */
    void *set_epoch_user;                                 /* borrowed until close */
    int64_t (*agree)(void *user, int64_t mine, int most); /* the ends of several ranks are equal
                                  (>>found); NULL: they do not ask each other */
    void *agree_user;                                     /* borrowed until close */
} dlp_pipe_desc;

/* A link: the lock-free queue between two stages, in the region. How a record is taken: by the
   reader's own counter (spsc), likewise from a lane for each writer (mpsc), by a compare-and-swap
   on its own word, by any of several readers (claim), or when all its parts are complete (gather).
   */
enum { DLP_LINK_SPSC = 1, DLP_LINK_MPSC, DLP_LINK_CLAIM, DLP_LINK_GATHER };

#define DLP_MAX_LINKS 32

typedef struct dlp_link {
    char from[32], to[32];        /* names of stages; or "consumer" or "producers"; of the cells of
                                     a branch its name; or "joined rows" */
    int32_t from_stage, to_stage; /* as added; -1: the consumer; -2: the producers of a push */
    int32_t kind;                 /* DLP_LINK_* */
    int32_t writers, readers;     /* at most */
    int32_t rule; /* of a claim link DLP_DISPATCH_*; of lanes and a link to an out DLP_FULL_* */
    uint64_t capacity; /* records (batches, parts, buffers) at most; of a pipe watched by a monitor
                          of another version 0 if not known */
    uint64_t bytes;    /* of its words; they are part of other lines of the plan. Lanes: all bytes,
                          which are the push's */
    uint64_t depth;    /* in statistics: records in it now. Back to the sampler and the transfer:
                          what is free. UINT64_MAX: not known, as a monitor does not see lanes */
} dlp_link;

/* The name of a DLP_LINK_*; "?" of what is none.
   Any thread - does not wait or allocate. */
DLPDEF const char *dlp_link_name(int kind);

/* One line of a memory plan. */
typedef struct dlp_plan_line {
    char what[48];
    uint64_t count, bytes_each, bytes;
} dlp_plan_line;
/* A stage of the plan. */
typedef struct dlp_plan_stage {
    char name[32];
    char what[48];     /* what it does, if its kind does not say it: "filter, expand"; else "" */
    int32_t stage;     /* its number, as added */
    int32_t kind;      /* DLP_STAGE_* */
    int32_t workers;   /* 0: it runs in the consumer; -1: it has no work of its own */
    int32_t placement; /* DLP_PLACE_* */
} dlp_plan_stage;
typedef struct dlp_plan {
    uint64_t total_bytes, limit_bytes;
    uint64_t slots;      /* prefetch_factor + max_held */
    uint64_t slot_bytes; /* one batch with its per-row records */
    uint32_t n_lines;
    dlp_plan_line lines[32];
    uint32_t n_links;
    dlp_link links[DLP_MAX_LINKS];
    uint32_t n_stages;
    dlp_plan_stage stages[DLP_MAX_STAGES]; /* in the order of the data */
    char order[100]; /* "by position": the number of a row in its epoch says which item the row has.
                       "by stream": the data say it, too. "as items are pushed" */
    char random[80]; /* what dlp_item_random goes by: the "position" of the row, or the "path" of
                        the item (>>graph, Makers) */
    char state[80];  /* what dlp_pipe_state saves. "none": a push comes once, so no pipe resumes */
} dlp_plan;

/* Tell, line by line, the bytes that the pipe has allocated. Stacks of threads are not among them.
   dlp_nodes_plan tells them before anything is allocated. What is above 2^64 stays at UINT64_MAX,
   in lines and in the sum; open refuses it.
   out: written on success - returns DLP_OK, DLP_ERR_ARG, or the code of an error before - consumer
   - does not wait; allocates nothing. */
DLPDEF int dlp_pipe_plan(dlp_pipe *p, dlp_plan *out);

/* Write a plan as text: a line for each of its lines, the total, the links, and a line for each of
   order, random and state. The line of a link ends with its rule: "in turns", or what becomes of
   records that a full queue has no room for; nothing: they wait.
   buf, size: borrowed; cut and terminated like snprintf's; NULL with size 0 asks for the length -
   returns the length of the whole text, or DLP_ERR_ARG (plan is NULL) - any thread - does not wait
   or allocate. */
DLPDEF int dlp_plan_format(const dlp_plan *plan, char *buf, size_t size);

/* Read back what a stage's workers took for zeros, after dlp_pipe_plan or dlp_pipe_start. The plan
   tells the rest: slots, and the links with their writers, readers and records.
   out: written on success; its pointers are the pipe's, or as they were given - returns DLP_OK,
   DLP_ERR_ARG (NULL, or no such stage), DLP_ERR_STATE (neither planned nor started), or the code of
   an error before - consumer - does not wait or allocate. Stages are numbered as the table adds
   them, those of a loader: sampler 0, repeat 1, (parts), fetch, (cache), batch, (transfer). */
DLPDEF int dlp_stage_resolved(const dlp_pipe *p, dlp_stage stage, dlp_workers_desc *out);

/* Start a pipe that was opened with later: open the device, make threads. What worker processes see
   of this process's memory is how it was when the pipe was opened. A program that must have threads
   before it knows its pipes forks first of all a process that opens them and serves their batches
   by name (share, serve_only, dlp_shm_serve), to which it subscribes.
   Returns what dlp_pipe_open returns of them; DLP_ERR_STATE (started already) - consumer -
   allocates; waits for no worker. After a failure: close. */
DLPDEF int dlp_pipe_start(dlp_pipe *p);

/* Lend the next batch to the consumer: wait for it without end.
   out: written on DLP_OK only - returns DLP_OK; DLP_END: all epochs are delivered; DLP_EPOCH_END,
   once after each epoch if asked for; DLP_STOPPED; DLP_ERR_HELD (max_held batches are held: nothing
   is lost, release one); DLP_ERR_CALLBACK, _LENGTH, _BUDGET, _DEADLINE, _DEVICE, which stay
   (dlp_pipe_error); DLP_ERR_ARG; DLP_ERR_STATE (not started, closed, shm.serve_only); what start
   failed with - consumer - runs inline stages; else spins for some us, then sleeps. Never
   allocates. An item's error comes when its batch's turn comes, those before it are delivered;
   worker_init and deadline fail at once. */
DLPDEF int dlp_pipe_next(dlp_pipe *p, dlp_batch **out);

/* The same, waiting at most timeout_ms.
   timeout_ms: as poll(2) has it: negative without end, 0 not at all (so never DLP_NOWAIT, which is
   negative) - returns DLP_TIMEOUT, too, after which the next call goes on waiting for the same
   batch - consumer - an inline stage's callback that runs is not cut short. */
DLPDEF int dlp_pipe_next_timeout(dlp_pipe *p, dlp_batch **out, int timeout_ms);

/* Give a batch back, in any order; its slot is free for the sampler at once.
   batch: as next gave it; not to be touched again - returns DLP_OK, or DLP_ERR_ARG (not a batch
   that is held) - consumer; also after an error, a stop and a close. After a close the last release
   frees the pipe - does not wait or allocate; runs the sampler if that is inline. */
DLPDEF int dlp_pipe_release(dlp_pipe *p, dlp_batch *batch);

/* Leave the rest of the present epoch: next goes on with the first batch of the one after it, and
   no DLP_EPOCH_END comes before that. Does nothing else when the present epoch's last batch has
   been delivered, or none of its batches yet.
   Batches that are held stay valid - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE, or the code of the
   pipe's error - consumer - does not wait; calls that run are finished, items not begun are not. */
DLPDEF int dlp_pipe_next_epoch(dlp_pipe *p);

/* Jump to a saved state, of this pipe or of another with the same order: next goes on after it, as
   if the pipe had been resumed there. Workers go on; batches that are held stay valid; work under
   way for the old place is dropped as next_epoch drops it, and a pipe that had delivered all goes
   on again.
   state: copied; err: written on failure, may be NULL - returns DLP_OK; DLP_ERR_ARG;
   DLP_ERR_RESUME, DLP_ERR_CORRUPT (the state, as with desc.resume; err->field names what differs);
   DLP_ERR_UNSUPPORTED (subscribers (other processes)); DLP_ERR_STATE (not started, closed, or 2^14
   seeks with no batch between them); the code of the pipe's error. But for that last one the pipe
   goes on where it was. A batch sampler that fails to restore, or has failed ahead, is the pipe's
   error, told by next - consumer - does not wait or allocate; runs an inline sampler. */
DLPDEF int dlp_pipe_seek(dlp_pipe *p, const dlp_state *state, dlp_error *err);

/* Make the state that stands before a batch, for dlp_pipe_seek or desc.resume.
   epoch: below 2^47, may be past the last; batch: in the epoch, below dlp_pipe_batches_per_epoch
   where that is known; out: written on success - returns DLP_OK, DLP_ERR_ARG, DLP_ERR_STATE (not
   started), DLP_ERR_UNSUPPORTED (>>found: but at an epoch's beginning) - consumer - does not wait
   or allocate. A batch sampler will replay the epoch's lists up to there: dlp_pipe_state of a batch
   has its bytes, which is quicker. */
DLPDEF int dlp_pipe_state_at(const dlp_pipe *p, uint64_t epoch, uint64_t batch, dlp_state *out);

/* Ask the pipe to stop: next, asleep or not, returns DLP_STOPPED and workers end after the callback
   they are in. For good: only close follows.
   p: NULL does nothing - any thread and any signal handler, from open until close is called - does
   not wait or allocate; keeps errno. */
DLPDEF void dlp_pipe_stop(dlp_pipe *p);

/* Stop, wait for the workers, free everything.
   p: NULL is DLP_OK - returns DLP_OK: the pipe is gone or, with batches held, goes with the last
   release, or the last tensor's deleter: until then release and close are the calls still allowed,
   and close does nothing, DLP_OK; DLP_ERR_BUSY: a callback has not returned within
   close_timeout_ms, dlp_pipe_error names it; nothing was freed, call close again - consumer; no
   other call may be under way - waits up to close_timeout_ms. */
DLPDEF int dlp_pipe_close(dlp_pipe *p);

/* Return what went wrong first; code 0, worker -1: nothing. Never NULL. After a next that returned
   DLP_ERR_HELD it tells that, until a batch is released; the pipe is not in error then.
   The record is the pipe's, until close (after DLP_ERR_BUSY it tells that) - consumer - does not
   wait. */
DLPDEF const dlp_error *dlp_pipe_error(const dlp_pipe *p);

/* Return the i-th warning, NULL after the last. The first eight are kept until close - consumer.
   dlp_pipe_explain begins with these warnings. */
DLPDEF const char *dlp_pipe_warning(const dlp_pipe *p, int i);

/* Save where the pipe is.
   batch: "this one and all before it are consumed", a batch that is held; NULL, and for unordered
   pipes always: all that next has given; out: 248 bytes to be kept anywhere - returns DLP_OK,
   DLP_ERR_ARG (not held), DLP_ERR_STATE (not started), DLP_ERR_UNSUPPORTED (>>found: the streams
   are too far apart) - consumer; also after an error or a stop - does not wait or allocate. */
DLPDEF int dlp_pipe_state(dlp_pipe *p, const dlp_batch *batch, dlp_state *out);

/* Let a stage work with n workers from now on, whatever the tuner would do. Those above the number
   finish what they have claimed. Order and bytes are the same.
   stage: with workers_max set; n: workers_min..workers_max; 0: the tuner decides again - returns
   DLP_OK, DLP_ERR_ARG (no such stage, or number), DLP_ERR_STATE (not started, closed) - consumer -
   does not wait or allocate. */
DLPDEF int dlp_pipe_set_workers(dlp_pipe *p, dlp_stage stage, int n);

/* Return the number of batches in an epoch; -1: not started, or nobody knows (DLP_ORDER_BATCHES, a
   stream, >>found); DLP_FOREVER: it has no end (steps_per_epoch) - consumer. */
DLPDEF int64_t dlp_pipe_batches_per_epoch(const dlp_pipe *p);
