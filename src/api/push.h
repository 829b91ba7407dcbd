/* needs: parts */
#pragma once
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>push       ITEMS THAT OTHER THREADS AND PROGRAMS PUSH
   Producers push items, and a pipe makes batches of the items: a dataset without an index. A
   producer is, for instance, an actor that plays, a camera, or a parser. It runs in a thread, in a
   child process, or in another program that knows a path. Each producer has a lane in a bundle of
   lanes (>>queues).

     dlp_push_desc lanes = {.fields = fields, .n_fields = 2, .writers = 1};
     if (dlp_push_open(&push, &lanes, &err) != DLP_OK) ...
     dlp_loader_desc desc = {.source = dlp_push_source(push), .batch_size = 64, .num_workers = 1};
     if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) ...
     producer:  dlp_pusher_open(&pusher, &(dlp_pusher_desc){.push = push}, &err);
                while (...) dlp_pusher_push(pusher, data, DLP_FOREVER);
                dlp_pusher_end(pusher, DLP_FOREVER); dlp_pusher_close(pusher);
     consumer:  while (dlp_pipe_next(pipe, &batch) == DLP_OK) ...
                dlp_pipe_close(pipe); dlp_push_close(push);

   An item is visible whole or not at all, also if its producer is killed half-way. The item that a
   killed producer had begun is never seen; the items that it had pushed come. A successor takes the
   killed producer's number and goes on. A successor also says the end for a producer that died
   before it said it.
   The stream ends for the pipe when `writers` producers have said the end, or after dlp_push_stop.
   All items that had been pushed come before the end. The last batch may be short. Producers that
   push after the end get DLP_STOPPED. So do producers that wait for room when the pipe has an error
   or is closed, or when its program is gone.

   A producer holds a lock of the kernel on its place, and watches the reader by a pidfd. So the
   kernel says who lives, not a process number. Producers may run in other containers. The place of
   a killed producer is free at once. No two living producers have the same number. A child that a
   producer forks has its place, too, until the child ends or calls exec.
   If producers have come, streams have not ended, and no producer of these streams lives, the
   pipe's log and explain say so at once. After lost_ms next fails.

   full       the producer                              the reader
   WAIT       waits for room, at most its time-out      takes all, in turns of 64
   REFUSE     gets DLP_FULL, which is counted           takes all
   NEWEST     waits for room                            if a lane is full, skips to its last
                                                        `keep` items, and counts those skipped

   Makers       In a table of nodes (>>graph) expand, filter, pack and window may stand behind a
                push. Then the push has a thread of its own, which reads the records. The thread
                copies each record into a cell of the makers' inputs, and their workers make items
                of it. If a worker is killed, another one makes them again. Records wait in the
                lanes while no cell is free. A full batch never waits for a later record. on_error
                of the makers says what an error of the push itself does.
   Several take In such a table other programs may subscribe, and several outs may stand. A window
                may follow the push. The push then has its own thread, too, as before makers.
                Without makers one worker, with the name "records", puts the records in order.
                DLP_END, not DLP_BATCH_LAST, tells subscribers and outs the end.
   Lengths      dlp_pusher_lengths says how many rows the ragged fields of the next item have.

   No seed decides the order of a push pipe. Items of one producer come in its order, items of
   several as they arrive. So there is no resume, no seek, no second epoch, and no ranks: each rank
   has producers of its own. A pushed item is lost if this process dies. Slots, transfer, maps,
   collate and statistics work as in other pipes. If a map fails, or its process dies, the row gets
   the same item again. If there is such a stage, the plan has a copy of the items of all slots. */

enum { DLP_PUSH_WAIT = 0, DLP_PUSH_REFUSE, DLP_PUSH_NEWEST };

typedef struct dlp_push_desc {
    const dlp_field *fields; /* [n_fields] fields of an item; required; copied. A record has room
                                for the most rows of a ragged field */
    uint32_t n_fields;       /* 1..DLP_MAX_FIELDS */
    uint32_t max_producers;  /* producers at once, 1..DLP_MPSC_MAX_PRODUCERS; 0: 16 */
    uint64_t capacity;       /* items of each producer's lane, a power of two; 0: as many as have
                                64 KiB, but 256 to 4096; with NEWEST 256 */
    uint32_t writers;        /* required: number of producers that must say the end before the
                                pipe's stream ends; 1 if only dlp_push_stop ends it */
    int32_t full;            /* DLP_PUSH_*: what happens if a lane is full */
    uint64_t keep;           /* NEWEST: items that are kept, 1..capacity; 0: 1. Else 0 */
    uint32_t lost_ms; /* milliseconds; 0: 60000. next fails when no writer of a stream that has not
                                ended has lived for so long. Before the first producer comes, next
                                may wait for ever */
    const char *path; /* 1..107 bytes: path of a socket, by which other programs open the push. Open
                                makes the socket with mode 0600, close removes it. Open takes over a
                                socket that a killed program left there; nothing else may be there.
                                NULL: for threads and children of this process */
} dlp_push_desc;

typedef struct dlp_push dlp_push;     /* the reader's side, which the pipe uses */
typedef struct dlp_pusher dlp_pusher; /* a producer's side */

/* Make the lanes: max_producers x capacity x (8 + an item's bytes, each field a multiple of 8).
   out: close it after its pipe; desc: copied; err: may be NULL.
   Returns DLP_OK; DLP_ERR_ARG: err names the field of desc; DLP_ERR_SYSTEM: the path, or a system
   call; errnum tells; DLP_ERR_MEMORY. Any thread. On Linux: 5.3 or later. A push keeps two
   descriptors; with a path three, and a thread that answers producers. */
DLPDEF int dlp_push_open(dlp_push **out, const dlp_push_desc *desc, dlp_error *err);

/* Return the push as the source of a loader: a stream that one worker reads. num_workers is 0 or 1,
   of threads, without a fetcher, and epochs is 1; else the open call of the pipe fails. With 0
   workers next itself waits for items, whatever its time-out. This is cheaper for items of a few
   bytes if cores are few. The source is the push's, until its close. Any thread. Does not wait. */
DLPDEF const dlp_source *dlp_push_source(const dlp_push *push);

/* End the stream: the pipe still gets the items that have been pushed. Producers get DLP_STOPPED.
   push: NULL does nothing. Any thread, or a signal handler. Does not wait. */
DLPDEF void dlp_push_stop(dlp_push *push);

/* Free the lanes, and remove the path. Close the producers of this process before.
   push: NULL is DLP_OK. Returns DLP_OK, or DLP_ERR_BUSY while a pipe uses the push. */
DLPDEF int dlp_push_close(dlp_push *push);

typedef struct dlp_push_stats {
    uint64_t items;           /* items in batches, or on their way there */
    uint64_t left;            /* items that NEWEST skipped */
    uint64_t refused;         /* pushes that got DLP_FULL */
    uint64_t waiting;         /* records in lanes */
    uint32_t attached, ended; /* producers that live and have a lane; ends that were read, always of
                                 all producers */
} dlp_push_stats;

/* Count the items of one producer, or of all.
   number: 1..max_producers; 0: all. Returns DLP_OK, DLP_ERR_ARG. Any thread. */
DLPDEF int dlp_push_look(const dlp_push *push, uint32_t number, dlp_push_stats *stats);

typedef struct dlp_pusher_desc {
    const dlp_push *push;    /* push of this process, or of its parent; NULL: by path */
    const char *path;        /* as dlp_push_desc.path; NULL with push */
    const dlp_field *fields; /* [n_fields] fields that the producer writes; required with path.
                                Names, types and shapes must be the pipe's */
    uint32_t n_fields;
    uint32_t number; /* 0: any free place; 1..max_producers: this place, if its producer is gone. A
                        producer lives until it is killed, or closed. Not the place of a producer
                        that has said the end */
} dlp_pusher_desc;

/* Become a producer.
   out: the process that opened it closes it; one thread at a time uses it; err: may be NULL.
   Returns
     DLP_OK
     DLP_ERR_ARG          A field of desc is wrong, or the pipe has other fields.
     DLP_ERR_BUSY         All places are taken, or the producer `number` lives.
     DLP_ERR_SYSTEM       errnum ECONNREFUSED: the pipe's program is gone. ETIMEDOUT: it has not
                          answered for 5 s. Else the path, or /proc is not mounted.
     DLP_ERR_CORRUPT      There is no push, or a damaged one.
     DLP_ERR_UNSUPPORTED  The push is of another version.
     DLP_ERR_STATE        `number` has said the end of its stream; a successor has nothing to do.
     DLP_ERR_MEMORY
     DLP_STOPPED          The pipe's stream has ended.
   Any thread, any process. A producer keeps a descriptor, with a path two. */
DLPDEF int dlp_pusher_open(dlp_pusher **out, const dlp_pusher_desc *desc, dlp_error *err);

/* Return the number of a producer, 1..max_producers. */
DLPDEF uint32_t dlp_pusher_number(const dlp_pusher *pusher);

/* Push an item.
   data: [n_fields] the bytes of each field, the rows of a ragged field; copied. timeout_ms: longest
   wait for room, in milliseconds; 0 or DLP_FOREVER: no limit; DLP_NOWAIT: do not wait. Returns
     DLP_OK
     DLP_TIMEOUT
     DLP_FULL         The lane is full (with REFUSE, or DLP_NOWAIT).
     DLP_STOPPED      The stream has ended, the pipe is closed or has an error, or its process is
                      gone.
     DLP_ERR_STATE    dlp_pusher_end was called.
     DLP_ERR_ARG, DLP_ERR_CORRUPT */
DLPDEF int dlp_pusher_push(dlp_pusher *pusher, const void *const *data, int timeout_ms);

/* Push an item without a copy. begin sets data[f] to the place where field f must be written, whose
   bytes are undefined before. commit then pushes the item. A second begin without a commit begins
   the same item again.
   data: [n_fields]; timeout_ms: as in dlp_pusher_push.
   begin returns as dlp_pusher_push. commit returns DLP_OK, DLP_ERR_ARG, or DLP_ERR_STATE: nothing
   is begun. */
DLPDEF int dlp_pusher_begin(dlp_pusher *pusher, void **data, int timeout_ms);
DLPDEF int dlp_pusher_commit(dlp_pusher *pusher);

/* Say how many rows the ragged fields of the next item have. The item is the next that push or
   commit makes visible. Without this call ragged fields have no rows.
   length: [n_fields] rows, as dlp_item.length; copied. Lengths of other fields are not read.
   Returns DLP_OK; DLP_ERR_LENGTH: above shape[0] of the field; DLP_ERR_ARG: no field is ragged. The
   producer's thread. Does not wait. */
DLPDEF int dlp_pusher_lengths(dlp_pusher *pusher, const uint64_t *length);

/* Say that the stream of this producer has ended. Waits for room in the lane, with REFUSE, too.
   timeout_ms: as in dlp_pusher_push. Returns as dlp_pusher_push; DLP_FULL only with DLP_NOWAIT. */
DLPDEF int dlp_pusher_end(dlp_pusher *pusher, int timeout_ms);

/* Give the producer's place back. pusher: NULL does nothing. */
DLPDEF void dlp_pusher_close(dlp_pusher *pusher);
