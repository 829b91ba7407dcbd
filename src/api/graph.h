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
   A program writes its pipeline down as a table. Each row is a node: a name, one verb, what the
   verb needs, its workers, and the queue after it. Data flow from each row to the next. Only a zip
   or a mix takes records from several rows, which its from names.

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
     DLP_WINDOW     shuffles the items of a stream (>>found)   after expand, filter, load, or push
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
             of each expand. If that is too much, let inputs be smaller. Maps behind the last maker
             run in rows. What such rows make of a load has the order of >>found, also if counts are
             given. If a callback fails, its input fails. With DLP_ON_ERROR_DROP an item that a row
             above has made is left out instead, and counts for max_skips. The error names the node,
             the numbers of the item below its makers, and the input. dlp_item_random goes by the
             pass, the input's number, and these numbers of the item. shuffle_items of an expand is
             0 beside other makers.
   Parts     A load that does not follow the list loads a part for each item above it. part->of is
             the item: a record that was pushed, or an item of another part (part->of->part). Load
             counts the items (max_items). The next row is their fetch, which sees part->of, too.
             The fields of the item end there. Such a load counts as an expand.
   Cache     Behind makers, and directly before a pack, a cache keeps what they make of an input.
             Rows between the last maker and the cache run in the cell, too. Rows behind the cache
             run in each epoch.
   Workers   A node that names workers has workers of its own. The rows up to the last maker run in
             the same workers. One row of these names them, and one says the capacity, which counts
             cells of inputs.
   Attempts  In rows, a map or a later fetch that says nothing in workers runs in the attempt of the
             row before: in the same worker, directly after that row's callback. If one callback of
             an attempt fails, the attempt has failed, and is tried again from the fetch on. So
             placement, retries, deadline_ms, on_error and worker_state are those of the row that
             has the workers. The error has the stage of that row, and its message names the node
             that failed. An error of a length names the field, and no node. With DLP_NONE the row
             has a stage of its own, in next of the consumer. Without workers the row has such a
             stage, too, behind makers, a push, a guard, a cache, a fetch with async, or fetches of
             a mix (of). The row has one behind a second fetch that has a stage of its own. A second
             fetch has a stage of its own if it has a source, or stands behind a load. So has a map
             in which fields end, and so have all rows behind that map.
   Reads     With async, a fetch has in_flight requests under way in each worker, also in front of
             expand, filter and pack: what each request brings is made into items as it comes. 0
             cells (queue.capacity) are 8 + 2 * in_flight a worker more than batches need.
   Push      Records are one stream, in the order in which they arrive. Each has a number, its
             index. With makers or a window behind the push, several outs, or subscribers of
             other programs, one thread reads it into cells of inputs. The push node may then name a
             CPU and a stack for that thread, and no more. A push has no shuffled list, ranks,
             second epoch, resume, cache or second fetch. A window shuffles its items.
   Branches  A zip or mix joins 2 to 8 branches. A branch is a list, then a load, fetches, maps,
             filters and expands, as in a table without branches. Or it is a push, and maps, loads,
             filters and expands behind it. All rows of a branch run in the cells of its inputs. The
             rows of a branch follow each other. from of the zip or mix names the last row of each
             branch, in the order of the table:

               {.name = "both", .from = (const char *[]){"docs", "code", NULL}, .verb = DLP_MIX,
                .mix = {.weights = (const uint64_t[]){3, 1}}},

             Zip: item k of a stream has the fields of the k-th item of each branch. The names of
             all these fields differ. Mix: item k of a stream is the next item of one branch. All
             branches have the same fields. In each period of the weights each branch comes as often
             as its weight says. A mix never takes the item that is ready first.
             Ends: a stream of a zip is out when a branch is out. A stream of a mix is out when the
             branch drawn is out. With steps_per_epoch each branch begins its next pass by itself.
             A row waits for its pushed item, also if a branch below the push is out. So let a list
             stand above a push that may never end.
             Errors: an input that fails is an error, or is left out (DLP_ON_ERROR_DROP). If a
             branch of a zip has fetches and maps alone, its row is left out, also if one of these
             returns DLP_SKIP. DROP is refused if a branch of a zip has a load, a filter or an
             expand: the number of a failed input's items is unknown.
             Workers: branches share workers, as many as their rows say together. A branch has
             workers of its own if its fetch has async. So has a branch whose worker_init,
             worker_exit, worker_user or tell differ from those of the others, as with two sources
             of files. The other fields of workers are the same in all branches.
             Memory: each branch has cells of its own. queue.capacity of its rows counts these. If
             load has min_items, and only fetches and maps stand behind it, a branch needs fewer
             cells. These callbacks then leave out all items of a part, or none.
             Index: batch.index of a row is the index in the list of its branch; of a zip, in the
             first list. Two shuffled lists differ in their orders, though they have as many items.
             Data that belong together by index are fields of fetches of one branch, not a zip.
             Behind a zip or mix stand map, guard, batch, transfer and out. Before these may stand
             filter, expand and pack, with maps between, and a window last. They work on joined rows
             in the workers of the branches, which copy each row into a cell of its own. A window
             or pack behind a mix takes the items of all branches, in the order of the mix.
             DLP_PACK_FIT, and branches with workers of their own, are refused there.
   Order     The order and the bytes of batches follow from the table, the seed, the epoch and the
             data, and behind a push from the order of arrival. Workers and queues change neither
             the order nor the states.
   Fields    A node lists the fields that it adds. The callback of a fetch sees these fields alone.
             The callback of a map sees the fields of the rows above it, in the order of the table.
             The fields that the map adds come last. A field that ends in a map is in no later row,
             and leaves no gap. Fields of one fetch that end in rows lie in cells of their own.
             queue.capacity of their fetch node says how many cells.
   Ends      Before the last maker any field that the map sees may end. So may a field that makers
             made, or that was pushed, in a map behind them, if only maps and fetches are between.
             Such a map runs in the cell. The cell keeps the fields that are left; batches get
             these. Fields that end lie in a room of the worker, which has one item; the plan has a
             line for rooms. A record that was pushed, and an input that is read by async, lie in
             the cell, too. A cell has at most 3 expands and maps in which fields end.
   Numbers   dlp_node_stage returns the number that a node has in statistics and errors. A row in
             the attempt of the row before has none. The rows up to the last maker are one stage. It
             has the name of the last expand or the pack, or else of the first filter. Errors of
             these rows name this stage, too. The stage with the name of the first fetch only copies
             items into rows. Behind a push the stage that copies is "copy", and the push is a stage
             of its own.
             The makers of all branches are one stage, with the name of the zip or mix; their errors
             name the row of the branch.
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
    DLP_LOAD = 8,    /* needs: parts */
    DLP_EXPAND = 9,  /* needs: parts */
    DLP_FILTER = 10, /* needs: parts */
    DLP_WINDOW = 11, /* needs: parts */
    DLP_PACK = 12,   /* needs: parts pack */
    DLP_CACHE = 13,  /* needs: cache */
    DLP_SPLIT = 14,  /* needs: split */
    DLP_GUARD = 15,  /* needs: guard */
    DLP_ZIP = 16,    /* needs: parts */
    DLP_MIX = 17,    /* needs: parts */
    DLP_VERBS
};

/* Which items a pipe reads, and in which order. */
typedef struct dlp_node_list {
    uint64_t n_items; /* 1..2^48 items; with a load node: parts. 0: the source of the fetch or
                         load node says how many */
    int32_t shuffle;  /* 1: in an order of each epoch's own; 0: in turn, or as order says. With a
                         load node: of parts; load.shuffle_items says the order inside a part */
    int32_t open_end; /* 1: nobody knows how many items there are (>>streams); n_items is 0 */
    const dlp_sampler_desc *order; /* another order: weights, a subset, a function, lists of
                         batches. Copied; what it points to is borrowed until
                         close. Its seed is 0, or that of the pipe's desc; its threaded is 0.
                         NULL: all items */
    const dlp_mix *mix; /* the order of a mix (>>mixing), whose items the list then has. Borrowed
                         until close. n_items and shuffle are 0. order is NULL, or of
                         DLP_ORDER_BATCHES, as that of buckets of this mix (>>buckets). NULL: none
                       */
} dlp_node_list;

typedef struct dlp_node_push {
    struct dlp_push *source; /* required; of dlp_push_open; borrowed until close */
} dlp_node_push;

/* Write the fields of an item. */
typedef struct dlp_node_fetch {
    dlp_item_fn fetch;        /* required, but with async or source */
    void *user;               /* borrowed until close */
    const dlp_field *fields;  /* [n_fields] the fields that it adds; copied */
    uint32_t n_fields;        /* 1..DLP_MAX_FIELDS */
    uint32_t in_flight;       /* items at once in a worker, at most 1024; 0: 1, with async 16.
                                 Without async, fetch is called by so many threads of the worker */
    const dlp_async *async;   /* requests that are begun and given back; copied; NULL: none */
    uint32_t batch_pool;      /* with DLP_DEAL_TURNS: as in dlp_fetch_desc */
    int32_t writes_all_bytes; /* 1: fetch writes every byte of the fields of a fixed size; 0: rows
                                 begin as zeros */
    uint32_t of; /* k: this node fetches the items of dataset k - 1 of the list's mix, and sees the
                         index that the dataset has for the item. The fetch nodes of all its
                         datasets follow each other, and have the same fields. Without a mix, the
                         items of these nodes' sources have numbers one after another. 0: all items
                       */
    const dlp_source *source; /* what has the items, from its own callbacks: the fields above are
                         then 0, but for in_flight and of. Borrowed until close; NULL: none */
} dlp_node_fetch;

/* Change an item in place, or add fields to it. After the batch node: change a batch. */
typedef struct dlp_node_map {
    dlp_item_fn item; /* required before the batch node */
    int (*batch)(void *user, dlp_batch *batch, void *worker_state); /* required after it */
    void *user;                                                     /* borrowed until close */
    const dlp_field *fields; /* [n_fields] the fields that it adds, which begin as zeros; copied */
    uint32_t n_fields;       /* 0..DLP_MAX_FIELDS */
    const char *ends; /* names of fields that end here, with a blank between two names; NULL: none.
                         In a cell, with makers or a push above or makers below (>>graph, Ends):
                         any fields that the map sees. In rows, once in a pipe: fields that one
                         fetch node above has written, with only other fetch nodes and guard nodes
                         between the two */
} dlp_node_map;

typedef struct dlp_node_batch {
    uint32_t batch_size;         /* rows of the global batch, of all ranks; required, 1..2^20 */
    int32_t last;                /* DLP_LAST_* */
    dlp_collate_fn collate;      /* NULL: rows are written in place, and nothing is copied. Else
                                    workers of the node collate; num_workers 0: as many as batches
                                    are ahead, at most 64, or none if the fetch has none */
    void *collate_user;          /* borrowed until close */
    const dlp_field *out_fields; /* with a collate: [n_out_fields] fields of the batch; NULL: those
                                    of the items; copied */
    uint32_t n_out_fields;
    int32_t copy_workers; /* behind expand, filter, pack: workers that copy items into rows; 0: none
                             for batches of up to 4096 bytes, else 2 at most; DLP_NONE: none */
} dlp_node_batch;

/* Join branches by weights. A zip has no desc. */
typedef struct dlp_node_mix {
    const uint64_t *weights; /* [number of names in from] each 1 or more; copied; NULL: all alike.
                                Divided by their greatest common divisor their sum is at most 2^20
                              */
} dlp_node_mix;

typedef struct dlp_node_transfer {
    const dlp_device *device; /* copied; NULL: dlp_device_host(). A thread copies if num_workers of
                                 the node is 1, else next does */
} dlp_node_transfer;

enum {
    DLP_DEAL_RUNS = 0, /* any worker takes the next rows of the oldest batch */
    DLP_DEAL_TURNS     /* a whole batch to each worker in turn (>>loader, classic); the capacity of
                          the batch node is then for each worker of the first fetch or push. Behind
                          makers, a zip or a mix it is for each of copy_workers: items are made by
                          any worker, and copied into batches in turn */
};

/* What becomes of what a full queue has no room for. */
enum {
    DLP_FULL_WAIT = 0,    /* it waits for room */
    DLP_FULL_DROP_NEW,    /* out: it keeps what it has, and misses newer batches */
    DLP_FULL_KEEP_NEWEST, /* out: it goes on with the newest batches, and misses older ones */
    DLP_FULL_REFUSE       /* push: a producer gets DLP_FULL */
};

/* The queue after a node. 0 takes the number that the plan shows. Where a node has no queue of its
   own to choose, a value is refused. */
typedef struct dlp_queue_desc {
    uint32_t capacity; /* batch: batches ahead of the consumer (prefetch_factor). transfer: device
                          buffers. load, and the rows up to the last maker: cells of inputs, said in
                          one of these rows. A fetch node of which fields end: cells of these
                          fields. The first out: max_held. Another out: batches that it may hold;
                          0: 1 */
    int32_t deal;      /* list, push: DLP_DEAL_* */
    int32_t full;      /* out: DLP_FULL_WAIT, _DROP_NEW or _KEEP_NEWEST (>>outs). push: 0, or as
                          dlp_push_desc.full says it: _WAIT, _REFUSE or _KEEP_NEWEST */
} dlp_queue_desc;

typedef struct dlp_node {
    const char *name;        /* required, of its own, 1..31 bytes */
    const char *const *from; /* names of rows above, ended by NULL; NULL: the row before. An out
                                after the first names the row that it reads */
    int32_t verb;            /* DLP_LIST ... DLP_OUT: says which member of the union holds */
    union {
        dlp_node_list list;
        dlp_node_push push;
        dlp_node_fetch fetch;
        dlp_node_map map;
        dlp_node_batch batch;
        dlp_node_transfer transfer;
        /* In load, what the list, the queue and workers of the node, and a window node say is 0:
           n_parts, shuffle_parts, queue_size, workers, window. */
        dlp_part_desc load;     /* needs: parts */
        dlp_expand_desc expand; /* needs: parts */
        dlp_pack_desc pack;     /* needs: parts pack */
        dlp_node_filter filter; /* needs: parts */
        dlp_node_window window; /* needs: parts */
        dlp_node_mix mix;       /* needs: parts */
        dlp_cache_desc cache;   /* needs: cache */
        dlp_split_desc split;   /* needs: split */
        dlp_node_guard guard;   /* needs: guard */
    };
    dlp_workers_desc workers; /* name is NULL: the node has one. dispatch: DLP_DISPATCH_BATCHES for
                                 this node alone; 0 if queue.deal of the first row says it. In rows
                                 up to the last maker it is for the copies of their items */
    dlp_queue_desc queue;
} dlp_node;

#define DLP_MAX_NODES 24 /* rows of a table */

/* A table and its length, as the two arguments of a call. */
#define DLP_NODES(table) (table), (uint32_t)(sizeof(table) / sizeof *(table))

/* Check a table, plan the pipe, hold the plan against the limits, allocate all that there is to
   allocate, and start the workers (desc.later: dlp_pipe_start starts them).
   out: a pipe that runs, to be closed. nodes: [n], 2..24 rows; copied, but for what their fields
   borrow. A pipe has 16 stages at most: a list is two, and fields that end are one. desc: copied;
   NULL is {0}. err: may be NULL; its stage is the name of a row.
   Returns DLP_OK, or, and then nothing is left to close:
     DLP_ERR_ARG           a field
     DLP_ERR_GRAPH         rows that do not go together
     DLP_ERR_UNSUPPORTED   a placement
     DLP_ERR_LIMIT         limit_bytes, the budget, the memory cgroup, available memory, address
                           space, ulimit -f of worker processes; the message has the sum
     DLP_ERR_MEMORY
     DLP_ERR_SYSTEM        no thread could be made
     DLP_ERR_RESUME        the state in resume does not fit; the field names what differs
     DLP_ERR_CORRUPT       it is none
     DLP_ERR_DEVICE
     DLP_ERR_CALLBACK      a count, an inline worker_init, a batch sampler that resumes
   Any thread, which is then the consumer. Waits for no worker. */
DLPDEF int dlp_pipe_open(dlp_pipe **out, const dlp_node *nodes, uint32_t n,
                         const dlp_pipe_desc *desc, dlp_error *err);

/* Check a table, and tell what its pipe would take. It starts no thread, opens no descriptor, and
   has none of the pipe's memory, so all ranks of a job can be planned on one machine.
   out: written on success. The others: as of dlp_pipe_open.
   Returns as dlp_pipe_open, up to the plan. Any thread. Allocates a few KiB, and frees them. */
DLPDEF int dlp_nodes_plan(const dlp_node *nodes, uint32_t n, const dlp_pipe_desc *desc,
                          dlp_plan *out, dlp_error *err);

/* A table with all that it points to. The calls below fill it. It must stay where it is, because
   its rows point into it: fill another one instead of copying it. */
typedef struct dlp_nodes {
    dlp_node nodes[DLP_MAX_NODES]; /* [n] */
    uint32_t n;
    dlp_pipe_desc pipe; /* what holds for the run */
    dlp_sampler_desc order;
    dlp_dataset dataset;
    dlp_source sources[DLP_MAX_NODES];
    dlp_field fields[DLP_MAX_FIELDS]; /* needs: split */
    dlp_chunks_desc chunks;           /* needs: split */
    char names[DLP_MAX_NODES][32];
} dlp_nodes;

/* Fill the table that dlp_loader_open opens: to read it, to change its rows, to plan it. Open it by
   dlp_pipe_open(&pipe, to->nodes, to->n, &to->pipe, &err).
   to: written, also on failure. desc: what it points to is borrowed until the table is opened. err:
   may be NULL. Returns DLP_OK, DLP_ERR_ARG, DLP_ERR_MEMORY. Any thread. Allocates a few KiB, and
   frees them. */
DLPDEF int dlp_loader_nodes(dlp_nodes *to, const dlp_loader_desc *desc, dlp_error *err);

/* Fill the table that dlp_chunks_open opens. As dlp_loader_nodes; DLP_PRELOAD_AUTO is decided
   here. */
DLPDEF int dlp_chunks_nodes(dlp_nodes *to, const dlp_chunks_desc *desc, /* needs: split */
                            dlp_error *err);                            /* needs: split */

/* Find the stage of a node by the node's name.
   Returns the number of the stage. DLP_ERR_ARG: no stage has this name. Other rows before the last
   maker, rows in the attempt of another row, a window and the first out have no stage of their own.
   Any thread. Does not wait or allocate. */
DLPDEF dlp_stage dlp_node_stage(const dlp_pipe *p, const char *name);
