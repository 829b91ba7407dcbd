/* needs: parts */
#pragma once
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>push       ITEMS THAT OTHER THREADS AND PROGRAMS PUSH
   A dataset without an index: producers (actors that play, cameras, parsers; threads, child
   processes, or other programs by a path) push items into a bundle of lanes (>>queues),
   one lane for each, and a pipe makes batches of them.

     dlp_push_desc lanes = {.fields = fields, .n_fields = 2, .writers = 1};
     if (dlp_push_open(&push, &lanes, &err) != DLP_OK) ...
     dlp_loader_desc desc = {.source = dlp_push_source(push), .batch_size = 64, .num_workers = 1};
     if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) ...
     producer:  dlp_pusher_open(&pusher, &(dlp_pusher_desc){.push = push}, &err);
                while (...) dlp_pusher_push(pusher, data, DLP_FOREVER);
                dlp_pusher_end(pusher, DLP_FOREVER); dlp_pusher_close(pusher);
     consumer:  while (dlp_pipe_next(pipe, &batch) == DLP_OK) ...
                dlp_pipe_close(pipe); dlp_push_close(push);

   An item is visible whole or not at all, also where its producer is killed half-way: what it had
   begun is never seen, what it had pushed comes. A successor takes its number and goes on. The
   stream ends for the pipe when `writers` producers have said so, or after dlp_push_stop, with what
   had been pushed. A successor says the end for the one that died before it did. The last batch may
   be short. Producers that push after the end get DLP_STOPPED. So do producers that wait for room
   when the pipe has an error or is closed, or when its program is gone.

   The kernel says who lives, not a number: a producer holds a lock on its place, and knows the
   reader by a pidfd. So producers may run in other containers, the place of a killed producer is
   free at once, and of two that live only one has a number. Where producers have come, and none of
   a stream that has not ended lives, the pipe's log and explain say so at once; after lost_ms next
   fails. A child that a producer forks has its place, too, until it ends or calls exec.

   full       the producer                              the reader
   WAIT       waits for room, at most its time-out      takes all, in turns of 64
   REFUSE     gets DLP_FULL, and it is counted          takes all
   NEWEST     waits for room                            finding a lane full, skips to its last
                                                        `keep` items, and counts what it left

   Makers       In a table of nodes (>>graph) expand, filter, pack and window may stand behind a
                push. Its own thread then reads it. It copies each record into a cell of the
                makers' inputs, and their workers make items of it. If a worker is killed, another
                one makes them again. Records wait in the lanes while no cell is free. A full batch
                never waits for a later record. An error of the push itself is treated as on_error
                of the makers says.
   Several take In such a table other programs may subscribe, and several outs may stand. A window
                may follow the push. Its own thread then reads it, too, as before makers. Without
                makers one worker, with the name "records", puts the records in order. DLP_END, not
                DLP_BATCH_LAST, tells subscribers and outs the end.
   Lengths      dlp_pusher_lengths says how many rows the ragged fields of the next item have.

   What a push pipe does not have: an order that a seed decides. Items of one producer come in its
   order, those of several as they arrive. So there is no resume, no seek, no second epoch, no ranks
   (each rank has producers of its own), and an item that was pushed and then lost with this process
   is lost. Batches in their slots, transfer, maps, collate, statistics are as everywhere: a row
   that a map gives up, or has when its process dies, has the same item again. For that, where there
   is such a stage, the plan has a copy of the items of all slots. */

enum { DLP_PUSH_WAIT = 0, DLP_PUSH_REFUSE, DLP_PUSH_NEWEST };

typedef struct dlp_push_desc {
    const dlp_field *fields; /* [n_fields] required; copied. A record has room for the most rows of
                                a ragged field; dlp_pusher_lengths says how many an item has */
    uint32_t n_fields;       /* 1..DLP_MAX_FIELDS */
    uint32_t max_producers;  /* 1..DLP_MPSC_MAX_PRODUCERS at once; 0: 16 */
    uint64_t capacity;       /* items of each producer's lane, a power of two; 0: 256 */
    uint32_t writers;        /* required: streams that end before the pipe's does, which is how many
                                producers say the end. 1 where only dlp_push_stop ends it */
    int32_t full;            /* DLP_PUSH_* */
    uint64_t keep;           /* of NEWEST: 1..capacity; 0: 1 */
    uint32_t lost_ms; /* next fails when no writer has lived for so long, of streams that have
                                not ended; 0: 60000. Before the first producer came it may wait for
                                ever */
    const char *path; /* NULL: for threads and children of this process. Else 1..107 bytes: a
                                socket is made there, mode 0600, and removed by close. Others open
                                the push by this path. A socket that a killed program left there is
                                taken over; anything else must not be there */
} dlp_push_desc;

typedef struct dlp_push dlp_push;     /* the reader's side: the pipe's */
typedef struct dlp_pusher dlp_pusher; /* a producer's */

/* Make the lanes: max_producers x capacity x (8 + an item's bytes, each field a multiple of 8).
   out: to be closed after its pipe; desc: copied; err: may be NULL - returns DLP_OK, DLP_ERR_ARG
   (names the field of desc), DLP_ERR_SYSTEM (the path: errnum), DLP_ERR_MEMORY - any thread. It
   needs Linux 5.3. It keeps two descriptors, with a path three and a thread that answers
   producers. */
DLPDEF int dlp_push_open(dlp_push **out, const dlp_push_desc *desc, dlp_error *err);

/* The push as the source of a loader: a stream of one worker. num_workers is 0 or 1, of threads,
   without a fetcher, and epochs is 1, or the open call of the pipe fails. With 0 workers next
   itself waits for items, whatever its time-out. Items of a few bytes cost less so, where cores are
   few. The source is the push's, until its close. Any thread; does not wait. */
DLPDEF const dlp_source *dlp_push_source(const dlp_push *push);

/* Say that nothing more is wanted: the stream ends with what has been pushed. Producers get
   DLP_STOPPED. Any thread, or a signal handler; does not wait. */
DLPDEF void dlp_push_stop(dlp_push *push);

/* Free the lanes, remove the path. NULL is nothing. Returns DLP_OK; DLP_ERR_BUSY while a pipe has
   it. Producers of this process are closed before. */
DLPDEF int dlp_push_close(dlp_push *push);

typedef struct dlp_push_stats {
    uint64_t items;           /* in batches, or on their way there */
    uint64_t left;            /* skipped by NEWEST */
    uint64_t refused;         /* pushes that got DLP_FULL */
    uint64_t waiting;         /* in lanes */
    uint32_t attached, ended; /* producers that live and have a lane; ends that were read */
} dlp_push_stats;

/* Of one producer, 1..max_producers, or of all with 0. Returns DLP_OK, DLP_ERR_ARG. Any thread. */
DLPDEF int dlp_push_look(const dlp_push *push, uint32_t number, dlp_push_stats *stats);

typedef struct dlp_pusher_desc {
    const dlp_push *push;    /* of this process, or of its parent; or */
    const char *path;        /* as dlp_push_desc.path */
    const dlp_field *fields; /* with path, required: what the producer will write; compared with the
                                pipe's: names, types, shapes */
    uint32_t n_fields;
    uint32_t number; /* 0: a place that nobody has; 1..max_producers: that one, whose producer must
                        be gone (killed, or closed without having said the end), as a producer lives
                        until it is closed */
} dlp_pusher_desc;

/* Become a producer.
   out: to be closed, by the process that opened it; used by one thread at a time - returns DLP_OK;
   DLP_ERR_ARG (also: other fields); DLP_ERR_BUSY (all places are taken, or the producer `number`
   lives); DLP_ERR_SYSTEM (the path: errnum ECONNREFUSED if the pipe's program is gone, ETIMEDOUT if
   it has not answered for 5 s; or /proc is not mounted); DLP_ERR_CORRUPT (there is no push, or a
   damaged one); DLP_ERR_UNSUPPORTED (a push of another version); DLP_ERR_STATE (`number` has said
   the end of its stream: a successor has nothing left to do); DLP_STOPPED - any thread, any process
   - keeps a descriptor, with a path two. */
DLPDEF int dlp_pusher_open(dlp_pusher **out, const dlp_pusher_desc *desc, dlp_error *err);
DLPDEF uint32_t dlp_pusher_number(const dlp_pusher *pusher);

/* Push an item. data: [n_fields] its bytes, of a ragged field its rows; copied. timeout_ms: 0 or
   DLP_FOREVER without end, DLP_NOWAIT not at all - returns DLP_OK, DLP_TIMEOUT; DLP_FULL (REFUSE,
   or DLP_NOWAIT); DLP_STOPPED: the pipe is closed or has an error, or its process is gone;
   DLP_ERR_STATE: after the end; DLP_ERR_CORRUPT. */
DLPDEF int dlp_pusher_push(dlp_pusher *pusher, const void *const *data, int timeout_ms);

/* The same without a copy: data: [n_fields] where each field is to be written, undefined bytes
   before; it comes with commit. A second begin without a commit begins the same item again. */
DLPDEF int dlp_pusher_begin(dlp_pusher *pusher, void **data, int timeout_ms);
DLPDEF int dlp_pusher_commit(dlp_pusher *pusher);

/* Say how many rows the ragged fields of the next item have, which push or commit makes visible.
   Without this call they have none.
   length: [n_fields] as dlp_item.length; copied. Lengths of other fields are not read - returns
   DLP_OK; DLP_ERR_LENGTH (above shape[0] of the field); DLP_ERR_ARG (no field is ragged) - the
   producer's thread; does not wait. */
DLPDEF int dlp_pusher_lengths(dlp_pusher *pusher, const uint64_t *length);

/* Say that the stream of this producer has ended. Returns as push. */
DLPDEF int dlp_pusher_end(dlp_pusher *pusher, int timeout_ms);

/* Give the place back. NULL is nothing. */
DLPDEF void dlp_pusher_close(dlp_pusher *pusher);
