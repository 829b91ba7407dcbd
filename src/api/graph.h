#pragma once
#include "api/cache.h"  /* needs: cache */
#include "api/expand.h" /* needs: parts */
#include "api/guard.h"  /* needs: guard */
#include "api/loader.h"
#include "api/mixing.h"
#include "api/out.h"  /* needs: out */
#include "api/pack.h" /* needs: pack */
#include "api/push.h"
#include "api/chunks.h" /* needs: split */
/* ---------------------------------------------------------------------------------------------
   >>graph      A PIPELINE AS A TABLE OF NODES
   A program writes its pipeline down as a table. Each row is a node: a name, one verb, the desc of
   the verb, its workers, and the queue after it. Data flow from each row to the next. Only a zip
   or a mix takes records from several rows; its from names these rows.

     const dlp_node nodes[] = {
         {.name = "items",  .verb = DLP_LIST,   .list = {.n_items = 1000, .shuffle = 1}},
         {.name = "read",   .verb = DLP_FETCH,  .fetch = {.fetch = read, .fields = &x,
                                                          .n_fields = 1},
                                                .workers = {.num_workers = 4}},
         {.name = "batch",  .verb = DLP_BATCH,  .batch = {.batch_size = 64}}};

     dlp_pipe_desc desc = {.seed = 1, .epochs = 3};

     if (dlp_pipe_open(&pipe, DLP_NODES(nodes), &desc, &err) != DLP_OK) puts(err.message);

     verb           what the node does                         where it may stand
     DLP_LIST       gives the numbers of items, in an order    first, and first of a branch
     DLP_PUSH       gives items that producers push (>>push)   first, and first of a branch
     DLP_LOAD       loads a part with many items (>>parts)     after the list
                    loads a part that an item names            after a push, fetch, load, or makers
     DLP_FETCH      writes the fields of an item               after the list, or a load
                    adds fields, by the number of the item     before the batch
     DLP_EXPAND     makes 0..max_out items of one (>>expand)   after the list, a push, load, fetch,
                                                               or makers
     DLP_FILTER     keeps an item or leaves it out             after the first fetch, a push, makers
     DLP_PACK       packs documents into rows (>>pack)         after the first fetch, a push, makers
     DLP_WINDOW     shuffles the items of a stream (>>found),  after fetch, map, load, push, makers
                    or the rows of a pack
     DLP_ZIP        joins branches: an item of each (below)    after the last branch
     DLP_MIX        joins branches: an item of one, by weights after the last branch
     DLP_MAP        changes an item, or adds fields            after the first fetch, or a push
                    changes a batch                            after the batch
     DLP_GUARD      looks for numbers that are wrong (>>guard) before the batch
     DLP_CACHE      keeps items from epoch to epoch (>>pipe)   before the batch, window
     DLP_BATCH      makes a batch of items                     once
     DLP_TRANSFER   copies a batch to a device                 after the batch
     DLP_SPLIT      cuts a batch of one chunk into views       last (>>chunks)
     DLP_OUT        gives batches to the consumer              last; it can be left out
                    the same batches, by name, to a thread     after the first out (>>outs)

   Expand    Directly after the list, no fetch writes the input: expand has its number alone.
   Makers    Expand, filter and pack make items of unknown count. All rows between the list or a
             push and the last maker run in the same workers: a load, fetches, maps, filters, up to
             3 expands. A worker loads a part, fetches an item, filters the item, expands it, and
             expands what it has made. The items that are left lie in the cell of their input. A
             cell has room for the most items of one input: max_items of the load times the max_out
             of each expand. If the batches and windows need too many such cells, items are copied
             into boxes of up to 32 items, and a stream needs one cell. The plan chooses boxes if
             they halve more than 4 MiB, or if queue.capacity gives too few cells. It chooses them
             for small items of a window, too, if they take less memory. Order and states are the
             same. Behind packs, pushes, zips and mixes there are none. Maps behind the last maker
             run in rows. Items that makers make from a load have the order of >>found, even
             if counts are given. If a callback fails, its input fails. If its row says
             DLP_ON_ERROR_DROP, an item that a row above has made is left out instead, and counts
             for max_skips. The error names the node, the input, and the item's number in each maker
             above the node. dlp_item_random depends on the pass, the number of the input, and these
             numbers of the item. shuffle_items of an expand is 0 beside other makers. A window
             directly behind a fetch or map makes makers of the rows above it, as a filter that
             keeps all would.
   Parts     A load that does not follow the list loads a part for each item above it. part->of is
             that item: a pushed record, or an item of another part (part->of->part). The load
             counts the items of the part (max_items). The next row fetches these items, and sees
             part->of, too. The fields of the item above end there. Such a load counts as an expand.
   Cache     Behind makers, and directly before a pack, a cache keeps the items that the makers make
             from an input. Rows between the last maker and the cache run in the cell, too. Rows
             behind the cache run in each epoch.
   Workers   A node that names workers has workers of its own. A row runs in the workers of the
             nearest row above that names workers, else in the consumer. workers.num_workers =
             DLP_NONE asks for the consumer. The rows up to the last maker run in the same workers.
             One row of these names them, and one says the capacity, which counts cells of inputs.
   Attempts  What the same workers do to an item, or to the input of a cell, is one attempt. In
             rows, a map or later fetch that names no workers is in the attempt of the row before.
             It runs directly after that row's callback, or after the answer to its request. If one
             callback of an attempt fails, the attempt has failed, and is tried again from its first
             callback on. The tries are counted together.
   Failures  retries, retry_backoff_ms, on_error and max_skips are those of the row that failed, if
             it gives one of them. Else they are those of the row that has the workers (in a branch:
             its workers), as placement and worker_state always are. DLP_ON_ERROR_REPLACE is refused
             up to the last maker: an input has no other one. A deadline_ms of a row without workers
             holds for its callback alone. The deadline of the row with the workers then holds for
             each other callback. dlp_error.stage is the row that failed. If a process
             dies, that is the row whose callback ran; of an attempt of at most two rows it may be
             the first one if max_kills is 1. Items of one input that were left out together are
             listed as one, with the words of the first.
   Stages    A row has a stage of its own if it gives other fields of workers, and in a stream if it
             gives any. So has a row behind makers, a push, a guard, a cache, or fetches of a mix
             (of). So has a second fetch that has a source or stands behind a load, a map in which
             fields end, and each such row behind one of these two. So has a row that gives
             DLP_ON_ERROR_REPLACE behind a map with workers, or deadline_ms behind threads in flight
             (DLP_FETCH_THREADS). Such a stage has as many workers as the nearest row above that
             names workers, placed alike, with a worker_state of their own. That row's retries and
             on_error hold if the row gives none. If the rows run in the consumer, those of the
             nearest row above that gives them hold. open tells of it by a warning.
   Reads     With async, a fetch has in_flight requests under way in each worker, also in front of
             expand, filter and pack. The record of each request is made into items when it comes.
             If queue.capacity is 0, each worker adds 8 + 2 * in_flight cells to those that the
             batches need. Without async, in_flight threads are as many workers in front of these
             rows: each calls worker_init, and has a worker_state of its own.
             A later fetch in front of these rows may have a source, too, with as many items as the
             list. worker_state is then what the worker_init of that source left. With async, it has
             in_flight requests under way in each worker, and a cell waits for one of them at a
             time. Then it stands above each row that makes many items of one. Each such fetch adds
             2 * in_flight cells. Other later fetches read one item after the other in each worker.
             A list has at most two later fetches with async, or by sources with a worker_init.
   Push      Records are one stream, in the order in which they arrive. Each has a number, its
             index. With makers or a window behind the push, several outs, or subscribers of
             other programs, one thread reads the records into cells of inputs. The workers of the
             push node may then set affinity and stack_bytes for that thread, and nothing else. A
             push has no shuffled list, ranks, second epoch, resume, cache or second fetch. A window
             shuffles its items.
   Branches  A zip or mix joins 2 to 16 branches. A branch is a list, then a load, fetches, maps,
             filters and expands, as in a table without branches. Or it is a push, and maps, loads,
             filters and expands behind it. All rows of a branch run in the cells of its inputs. A
             state has a place of each stream in each branch. If there are more than 8 branches, it
             may have no room for these places. Then open refuses the table, and names how many
             branches fit. The rows of a branch follow each other. from of the zip or mix names the
             last row of each branch, in the order of the table:

               {.name = "both", .from = (const char *[]){"docs", "code", NULL}, .verb = DLP_MIX,
                .mix = {.weights = (const uint64_t[]){3, 1}}},

             Zip: item k of a stream has the fields of the k-th item of each branch. The names of
             all these fields differ. Mix: item k of a stream is the next item of one branch. All
             branches have the same fields. In each period of the weights each branch comes as often
             as its weight says. A mix never takes the item that is ready first.
             Legs: a mix may go on with other weights where legs begin (mix.legs), in each epoch. A
             state can be resumed with other legs if those that a stream has begun are the same. So
             weights can be changed while a model trains: save, add a leg that begins later, resume.
             Ends: a stream of a zip ends when one of its branches ends, also if an input of another
             branch fails at that row: the row does not exist. A stream of a mix ends when the
             branch that is drawn has ended. With steps_per_epoch each branch begins its next pass
             by itself. Without it, an epoch in which the branch that ended it had no item is an
             error that names the branch. A warning tells if the epoch ended before a tenth of all
             items had come. A rank of several with fewer than 1000 inputs of the branch only warns,
             since other ranks may have items of it. Epochs that were resumed or sought inside, and
             those with a push, are not judged.
             Errors: an input that fails is an error, or is left out (DLP_ON_ERROR_DROP). If a
             branch of a zip has only fetches and maps, the row of the zip is left out, also if a
             callback returns DLP_SKIP. DROP is refused in a branch of a zip that has a load, a
             filter or an expand: then nobody knows how many items a failed input has.
             Workers: branches share workers, as many as their rows say together. A branch that
             names none adds one, as long as a core is left. Any worker takes any input. A branch
             has a worker_state of its own in each worker if its fetch has async. So has a branch
             whose worker_init, worker_exit, worker_user or tell differ from those of the others, as
             with two sources of files. A worker calls worker_init for one branch after the other,
             in the order of the table. If a call fails, it calls worker_exit for the branches
             before, the last one first. The error names the row that fetches. The requests that a
             branch would have in its workers (num_workers * in_flight) are divided among all
             workers, and rounded up: each worker has one at least. Each row says for itself what
             becomes of its failures. The other fields of workers are the same in all branches. A
             row behind the zip or mix that says nothing of them has the policy of the first branch
             that says its workers.
             Memory: each branch has cells of its own. queue.capacity of its rows counts them. A
             branch needs fewer cells if its load has min_items, and only fetches and maps stand
             behind the load. These callbacks must then leave out all items of a part, or none.
             Index: batch.index of a row is the index in the list of its branch; in a zip, the index
             in the first list. Two shuffled lists have different orders, even if they have equally
             many items. So do not zip data that belong together by index: let two fetches of one
             branch write them.
             Behind a zip or mix stand map, guard, batch, transfer and out. Before these may stand
             filter, expand and pack, with maps between. A window may stand last, before the pack,
             or both. The first row may be a cache, which keeps the inputs of the branches. The
             other rows work on joined rows in the workers of the branches, which copy each row into
             a cell of its own. Their worker_state is that of the first branch. A window or pack
             behind a mix takes the items of all branches, in the order of the mix.
   Order     The order and the bytes of the batches depend only on the table, the seed, the epoch
             and the data; behind a push also on the order of arrival. Workers and queues change
             neither the order nor the states.
   Lists     Before makers, a list may have any order but lists of batches (DLP_ORDER_BATCHES). A
             pass over the list has n_items, n_subset or samples_per_epoch places. An epoch without
             steps_per_epoch is one pass. In a later pass of the epoch DLP_ORDER_WEIGHTED,
             DLP_ORDER_REPLACEMENT and a mix go on with later draws, and a shuffled list has another
             permutation. The function of DLP_ORDER_FUNCTION gets the same positions again. With
             these draws and functions, dlp_item_random depends on the position of the input in all
             passes, and not on its number. This holds for the list of each branch, too. Its seed
             follows from the pipe's seed and the number of the list. Before a load list.shuffle
             alone says the order.
   Fields    A node lists the fields that it adds. The callback of a fetch sees only these fields.
             The callback of a map sees the fields of the rows above it, in the order of the table.
             The fields that the map adds come last. If a field ends in a map, no later row sees it,
             and it leaves no gap. Fields of one fetch that end in rows lie in cells of their own.
             queue.capacity of their fetch node says how many cells.
   Ends      In a map before the last maker, any field that the map sees may end. Behind the makers,
             a push, a zip or a mix, their fields may end in a map, if only maps and fetches are
             between. Such a map runs in the cell. The cell keeps the fields that are left, and
             batches get these. Fields that end lie in a room of the worker, which holds one item.
             The plan has a line for rooms. A pushed record, and an input that is read by async, lie
             in the cell, too. A cell has at most 3 expands and maps in which fields end.
   Numbers   dlp_node_stage returns the number that a node has in statistics and errors. A row in
             the attempt of the row before has no number. The rows up to the last maker are one
             stage, named like the last expand or the pack, or else like the first filter. An error
             has the name of its row. The stage with the name of the first fetch only copies
             items into rows. Behind a push the stage that copies is "copy", and the push is a stage
             of its own.
             The makers of all branches are one stage, with the name of the zip or mix.
   Picture   dlp_pipe_write_graph draws the plan that dlp_nodes_plan gives.
   Seed      seed, epochs, rank and world_size are fields of dlp_pipe_desc, not of a node. */

enum {
    DLP_LIST = 1,
    DLP_PUSH = 2,
    DLP_FETCH = 3,
    DLP_MAP = 4,
    DLP_BATCH = 5,
    DLP_TRANSFER = 6,
    DLP_OUT = 7,
    DLP_LOAD = 8,
    DLP_EXPAND = 9,
    DLP_FILTER = 10,
    DLP_WINDOW = 11,
    DLP_PACK = 12,
    DLP_CACHE = 13,
    DLP_SPLIT = 14,
    DLP_GUARD = 15,
    DLP_ZIP = 16,
    DLP_MIX = 17,
    DLP_VERBS
};

/* Which items a pipe reads, and in which order. */
typedef struct dlp_node_list {
    uint64_t n_items; /* number of items, 1..2^48; with a load node, number of parts. 0: the source
                         of the fetch or load node has the number, and all items from `first` on
                         come. If the source has more items, the others do not come */
    uint64_t first;  /* items first .. first + n_items - 1 of the source come, with their indices: a
                       list for training and one for validation are two ranges of one source. The
                       range must end within the source. 0 with open_end, a mix, fetch.of, a subset,
                       or an order that draws or is a function. Before a load: only with a filter,
                       expand, window or pack behind its fetch, or in a branch, and without weights.
                       load.items has the numbers of the parts before the range, too */
    int32_t shuffle; /* 1: shuffled, differently in each epoch; 0: in turn, or as order says. With a
                         load node it shuffles the parts, and load.shuffle_items shuffles the items
                         inside a part */
    int32_t open_end; /* 1: the number of items is not known (>>streams), and n_items is 0 */
    const dlp_sampler_desc *order; /* another order: weights, a subset, a function, lists of
                         batches. Copied; its pointers are borrowed until close. order.seed is 0 or
                         the seed of the pipe, and order.threaded is 0. NULL: each item once */
    const dlp_mix *mix; /* a mix (>>mixing) that gives the items and their order; borrowed until
                         close. n_items and shuffle are then 0. order is NULL, or lists of batches
                         of this mix (DLP_ORDER_BATCHES), for example buckets (>>buckets). NULL: no
                         mix */
} dlp_node_list;

typedef struct dlp_node_push {
    struct dlp_push *source; /* required; opened by dlp_push_open; borrowed until close */
} dlp_node_push;

/* Write the fields of an item. */
typedef struct dlp_node_fetch {
    dlp_item_fn fetch;        /* required; NULL with async, fetch_rows or source */
    void *user;               /* passed to fetch; borrowed until close */
    const dlp_field *fields;  /* [n_fields] the fields that this node adds; copied */
    uint32_t n_fields;        /* 1..DLP_MAX_FIELDS */
    uint32_t in_flight;       /* items under way at once in a worker, at most 1024; 0: 1, or 16 with
                                 async. Without async, each worker has in_flight threads that call
                                 fetch */
    const dlp_async *async;   /* calls that begin requests and collect them; copied; NULL: none */
    uint32_t batch_pool;      /* with DLP_DEAL_TURNS: batch_pool of dlp_source; else 0 */
    int32_t writes_all_bytes; /* 1: fetch writes every byte of the fixed-size fields, and of ragged
                                 ones all rows of their length; 0: the library zeroes each row
                                 before fetch */
    uint32_t of; /* 1 + k: this node fetches the items of dataset k of the list's mix, and sees the
                         item's index in that dataset. The fetch nodes of all datasets of the mix
                         follow each other, and have the same fields. Without a mix, the numbers of
                         the items of these nodes' sources follow each other. Before makers there
                         are at most 16 of these nodes, of which the first and two more may have a
                         worker_init. Each fetches one item after the other in each worker. A
                         failure is that of the node of the item's dataset. 0: this node fetches
                         all items */
    const dlp_source *source; /* source that has the items and the callbacks; borrowed until close.
                         The other fields are then 0, except in_flight and of. NULL: none */
    dlp_rows_fn fetch_rows;   /* writes the items of several rows in a call, in place of fetch. Not
                               before makers, nor with in_flight above 1. In a later fetch the row
                               has workers of its own. NULL: fetch writes each item */
} dlp_node_fetch;

/* Change an item in place, or add fields to it. After the batch node: change a batch. */
typedef struct dlp_node_map {
    dlp_item_fn item; /* required before the batch node, else NULL */
    /* Required after the batch node, else NULL. Returns 0, or another value if it fails. */
    int (*batch)(void *user, dlp_batch *batch, void *worker_state);
    void *user;              /* passed to item or batch; borrowed until close */
    const dlp_field *fields; /* [n_fields] fields that it adds, as zeros; copied. After the batch
                                they come behind the fields of the batch: [count, ...], none of
                                them ragged. Their zeros are new at each try. Not before a split */
    uint32_t n_fields;       /* 0..DLP_MAX_FIELDS; at most 16 in a batch together */
    const char *ends; /* names of the fields that end here, separated by blanks; NULL: none. In a
                         cell (>>graph, Ends) any field that the map sees may end. In rows one map
                         of a pipe may end fields: fields that one fetch node above writes, with
                         only other fetch nodes and guard nodes between the two */
} dlp_node_map;

typedef struct dlp_node_batch {
    uint32_t batch_size;         /* required; rows of the global batch, of all ranks; 1..2^20 */
    int32_t last;                /* DLP_LAST_* */
    dlp_collate_fn collate;      /* NULL: rows are written in place, and nothing is copied. Else the
                                    workers of this node collate. num_workers 0 means as many
                                    workers as batches are ahead, at most 64; or none if the fetch
                                    has no workers */
    void *collate_user;          /* passed to collate; borrowed until close */
    const dlp_field *out_fields; /* [n_out_fields] fields of the batch, with a collate; copied.
                                    NULL: the batch has the fields of the items */
    uint32_t n_out_fields;
    int32_t copy_workers; /* behind expand, filter, pack: workers that copy items into rows. 0: no
                             worker for batches of up to 4096 bytes. For larger ones they are as
                             many as the workers above leave cores, at most 2. Batches above 1 MiB
                             have at least 1. DLP_NONE: no worker. Without one the consumer
                             copies */
} dlp_node_batch;

/* A stretch of a mix with weights of its own. */
typedef struct dlp_mix_leg {
    uint64_t from; /* items that the mix gives in an epoch before the leg begins, in all streams
                      together: steps * batch_size, if batches get the items straight. In each
                      stream the leg begins at item from / streams. Above `from` of the leg before,
                      at most 2^43 */
    const uint64_t *weights; /* as those of the mix. 0: no item of the branch */
} dlp_mix_leg;

/* Join branches by weights. A zip has no desc. */
typedef struct dlp_node_mix {
    const uint64_t *weights; /* [number of names in from] each 1 or more, or 0 if a leg has more;
                                copied. Their sum, divided by their greatest common divisor, is at
                                most 2^20. NULL: all weights are 1 */
    const dlp_mix_leg *legs; /* [n_legs] stretches of each epoch with other weights; copied. Not
                                NULL: a state can be resumed with legs that were added */
    uint32_t n_legs;         /* 0..64 */
} dlp_node_mix;

typedef struct dlp_node_transfer {
    const dlp_device *device; /* copied; NULL: dlp_device_host(). If num_workers of the node is 1, a
                                 thread copies; if it is 0, next of the consumer copies */
} dlp_node_transfer;

enum {
    DLP_DEAL_RUNS = 0, /* any worker takes the next rows of the oldest batch */
    DLP_DEAL_TURNS /* each worker gets whole batches in turn (>>loader, classic). The capacity of
                          the batch node then counts batches of each worker of the first fetch or
                          push. Behind makers, a zip or a mix any worker makes items, the
                          copy_workers copy whole batches in turn, and the capacity counts batches
                          of each copy worker */
};

/* What happens when a queue is full. */
enum {
    DLP_FULL_WAIT = 0,    /* the stage or producer before the queue waits for room */
    DLP_FULL_DROP_NEW,    /* out: the queue keeps its batches, and misses newer batches */
    DLP_FULL_KEEP_NEWEST, /* out: the queue keeps the newest batches, and misses older batches */
    DLP_FULL_REFUSE       /* push: the producer gets DLP_FULL */
};

/* The queue after a node. A 0 means the number that the plan shows. A value is refused if the node
   has no queue that it sizes. */
typedef struct dlp_node_queue {
    uint32_t capacity; /* batch: batches ahead of the consumer (prefetch_factor). transfer: device
                          buffers. load, and the rows up to the last maker: cells of inputs; one of
                          these rows sets it. A fetch node whose fields end: cells of these fields.
                          The first out: max_held. Another out: batches that it may hold; 0: 1 */
    int32_t deal;      /* list, push: DLP_DEAL_*; else 0 */
    int32_t full;      /* out: DLP_FULL_WAIT, _DROP_NEW or _KEEP_NEWEST (>>outs). push: 0, or the
                          value of dlp_push_desc.full: _WAIT, _REFUSE or _KEEP_NEWEST */
} dlp_node_queue;

typedef struct dlp_node {
    const char *name;        /* required; 1..31 bytes, unique in the table; copied */
    const char *const *from; /* names of rows above, ended by NULL. NULL: the row before. An out
                                after the first out names the row that it reads */
    int32_t verb;            /* required; DLP_LIST ... DLP_OUT: names the member of the union */
    /* The members share their bytes. If a row sets the member of another verb, open sees the bytes
       alone. A value that the verb does not allow is an error, which names the member that the verb
       reads. Bytes that are right for both members cannot be told apart: a compiler warns of two
       members of one row (-Woverride-init). */
    union {
        dlp_node_list list;
        dlp_node_push push;
        dlp_node_fetch fetch;
        dlp_node_map map;
        dlp_node_batch batch;
        dlp_node_transfer transfer;
        /* In load these fields are 0: n_parts and shuffle_parts (the list has them), queue_size and
           workers (the node has them), window (a window node has it). */
        dlp_node_load load;
        dlp_node_expand expand;
        dlp_node_pack pack;
        dlp_node_filter filter;
        dlp_node_window window;
        dlp_node_mix mix;
        dlp_node_cache cache;
        dlp_node_split split;
        dlp_node_guard guard;
    };
    dlp_workers_desc workers; /* workers.name is NULL, because the node has a name.
                                 workers.dispatch is DLP_DISPATCH_BATCHES if this node alone deals
                                 whole batches; it is 0 if queue.deal of the first row says so. In
                                 rows up to the last maker it deals the copies of their items */
    dlp_node_queue queue;
} dlp_node;

#define DLP_MAX_NODES 96    /* rows of a table */
#define DLP_MAX_BRANCHES 16 /* branches of a zip or mix */
#define DLP_LOADER_NODES 24 /* rows of the table of a loader, a dlp_nodes */

/* A table and its length, as the two arguments of a call. table: an array. A pointer has no length:
   compilers warn of it, and open says so. */
#define DLP_NODES(table) (table), (uint32_t)(sizeof(table) / sizeof *(table))

/* Open a pipe: check the table, plan the pipe, compare the plan with the limits, allocate all
   memory, and start the workers (with desc.later, dlp_pipe_start starts them).
   out: set to a running pipe; close it with dlp_pipe_close. nodes: [n], 2..96 rows; copied, except
   memory that a field borrows until close. A pipe has at most 16 stages: a list is two stages, and
   fields that end are one. desc: copied; NULL means {0}. err: written on failure, may be NULL;
   err.stage is the name of a row.
   Returns DLP_OK, or one of these codes; then there is nothing to close:
     DLP_ERR_ARG           a field has a wrong value; err.field names it
     DLP_ERR_GRAPH         rows do not go together
     DLP_ERR_UNSUPPORTED   a placement is not possible here
     DLP_ERR_LIMIT         the plan exceeds limit_bytes, the budget, the memory cgroup, available
                           memory, the address space, or ulimit -f of worker processes; the message
                           has the sum
     DLP_ERR_MEMORY        an allocation failed
     DLP_ERR_SYSTEM        a thread could not be created
     DLP_ERR_RESUME        the state in resume does not fit; err.field names what differs
     DLP_ERR_CORRUPT       the bytes in resume are no state
     DLP_ERR_DEVICE        the device failed
     DLP_ERR_CALLBACK      a callback failed: a count, an inline worker_init, or a batch sampler
                           that resumes
   Any thread may call it, and is then the consumer. It does not wait for a worker. */
DLPDEF int dlp_pipe_open(dlp_pipe **out, const dlp_node *nodes, uint32_t n,
                         const dlp_pipe_desc *desc, dlp_error *err);

/* Check a table, and compute how much memory its pipe needs. It starts no thread, opens no file
   descriptor, and does not allocate the memory of the pipe. So all ranks of a job can be planned on
   one machine.
   out: written on success. nodes, n, desc, err: those of dlp_pipe_open.
   Returns DLP_OK, or a code of dlp_pipe_open for the checks and the limits. Any thread. It
   allocates a few KiB, and frees them. */
DLPDEF int dlp_nodes_plan(const dlp_node *nodes, uint32_t n, const dlp_pipe_desc *desc,
                          dlp_plan *out, dlp_error *err);

/* A table with all memory that its rows point to. The calls below fill it. Do not copy or move it,
   because its rows point into it: fill another one instead. */
typedef struct dlp_nodes {
    dlp_node nodes[DLP_LOADER_NODES]; /* [n] */
    uint32_t n;
    dlp_pipe_desc pipe; /* desc of the run, for dlp_pipe_open */
    dlp_sampler_desc order;
    dlp_dataset dataset;
    dlp_source source;
    dlp_field fields[DLP_MAX_FIELDS];
    dlp_chunks_desc chunks;
    char names[DLP_LOADER_NODES][32];
} dlp_nodes;

/* Fill *to with the table of a loader, to read, change, plan or open it. Open it with
   dlp_pipe_open(&pipe, to->nodes, to->n, &to->pipe, &err).
   to: written, also on failure. desc: required; its pointers are borrowed until the table is
   opened. err: written on failure; may be NULL.
   Returns DLP_OK or DLP_ERR_ARG. Any thread. It does not wait or allocate. */
DLPDEF int dlp_loader_nodes(dlp_nodes *to, const dlp_loader_desc *desc, dlp_error *err);

/* Fill *to with the table that dlp_chunks_open opens. Parameters and codes are those of
   dlp_loader_nodes, and DLP_ERR_MEMORY. This call decides DLP_PRELOAD_AUTO. It allocates a few KiB,
   and frees them. */
DLPDEF int dlp_chunks_nodes(dlp_nodes *to, const dlp_chunks_desc *desc, /* needs: split */
                            dlp_error *err);

/* Find the stage of a node by the node's name.
   Returns the number of the stage, or DLP_ERR_ARG if no stage has this name. A row has no stage of
   its own if it runs in the attempt of another row, or if it is a window or the first out. The rows
   up to the last maker have one stage together, with one name (>>graph, Numbers).
   Any thread. It does not wait or allocate. */
DLPDEF dlp_stage dlp_node_stage(const dlp_pipe *p, const char *name);
