#pragma once
/* tests: system/core/tables */
#include "api/graph.h"
#include "inputs/add.h"
/* ---- a table of nodes: the record that its rows are added by (>>impl-graph) ---- */

typedef struct dlpi_table dlpi_table;

/* Flags of a verb: which fields its rows may set, and where they may stand. */
enum {
    DLPI_NODE_WORKERS = 1,  /* it may set `workers` */
    DLPI_NODE_THREAD = 2,   /* it may set workers.num_workers to 1: a thread */
    DLPI_NODE_BEGINS = 8,   /* it is the first row of a table or branch */
    DLPI_NODE_LOADS = 16,   /* it loads parts */
    DLPI_NODE_MAKES = 32,   /* it makes an unknown number of items of one item */
    DLPI_NODE_FINDS = 64,   /* a window may follow it */
    DLPI_NODE_PASSES = 128, /* it may stand between a fetch and the map in which its fields end */
    DLPI_NODE_OUT = 256,    /* it may take records from any row above it */
    DLPI_NODE_JOINS = 512,  /* it joins branches */
    DLPI_NODE_ITEMS = 1024  /* it works on single items: it may run in the cell of an input */
};

typedef struct dlpi_verb {
    const char *name;
    /* Add the stages of a row. Returns 0 or a stage number, or a DLP_ERR code. */
    int (*add)(dlpi_table *t, const dlp_node *node);
    unsigned is; /* flags DLPI_NODE_* */
    /* Return the *n fields that a row adds to those of the rows above it. NULL: it adds none. */
    const dlp_field *(*fields)(const dlp_node *node, uint32_t *n);
} dlpi_verb;

/* The fields of a fetch, if some of them end before the batch. */
typedef struct dlpi_ends {
    dlp_field fields[DLP_MAX_FIELDS]; /* first the fields that stay, then those that end */
    uint32_t all, stay;               /* number of all fields, and of those that stay */
    dlpi_seeing seen;                 /* where callbacks of the fetch find each field */
} dlpi_ends;

/* Calls of kinds of stages that can be left out of a build; NULL: the kind is left out. Each call
   returns DLP_OK or a stage number, or a DLP_ERR code. */
typedef struct dlpi_table_ops {
    const dlpi_verb *verbs; /* [DLP_VERBS] */
    /* Add a fetch after the first. mixes: it has items of its own, not fields. */
    int (*later)(dlpi_table *t, const dlp_source *f, bool mixes);
    /* Sort the fields of a fetch into *e: those that stay in the batch, then those that end. */
    int (*part)(dlpi_table *t, const dlp_node *node, const dlp_dataset *ds, dlpi_ends *e);
    /* Add the stage that holds the fields of a fetch that end. */
    int (*ends)(dlpi_table *t, const dlp_node *node, const dlpi_ends *e);
    /* Compute in *seen where a map in which fields end finds each field. */
    int (*see)(dlpi_table *t, const dlp_node *map, dlpi_seeing *seen);
    /* Set in *ends a bit for each of the n fields that end in a map in a cell. */
    int (*which)(dlpi_table *t, const dlp_node *map, const dlp_field *f, uint32_t n,
                 uint32_t *ends);
    /* Add an out after the first. host: it reads the node before the transfer. */
    int (*out)(dlp_pipe *p, const dlp_node_queue *queue, bool host);
    /* Add the stages of the rows up to the last maker. */
    int (*makes)(dlpi_table *t, const dlp_node *node);
    /* Write the order of a mix into *to (dlp_mix_sampler). */
    int (*mix)(const dlp_mix *mix, dlp_sampler_desc *to);
    /* Add the stage of a pack. behind: the stage that packs joined rows; or NULL. windows: items of
       the windows before and behind the pack, or 0. */
    int (*pack)(dlp_pipe *p, dlpi_stage *behind, const dlp_node_pack *d, const dlp_workers_desc *w,
                uint32_t capacity, const uint32_t *windows);
    /* Set up a pack of documents that makers make. */
    int (*pack_makers)(dlp_pipe *p, dlpi_stage *st);
} dlpi_table_ops;

struct dlpi_table {
    dlp_pipe *p;
    const dlpi_table_ops *ops;
    const dlp_node *nodes;
    uint32_t n, at;         /* number of rows; number of the row that is being added */
    const dlp_pipe_desc *d; /* the pipe's desc */
    const dlp_node *joins;  /* the zip or mix that joins branches; NULL: there is one branch */
    const dlp_node *list;   /* the list or push of the branch whose rows are being added */
    const dlp_node *load;   /* the row that loads this branch's parts; NULL: there is none */
    const dlp_node *ending; /* the map in which fields end; NULL: none so far */
    dlp_sampler_desc order; /* of that list */
    uint64_t n_items;       /* items, or parts, that the list names; 0: the source says it */
    uint32_t makes;         /* rows up to the last one that makes items; 0: no row does */
    uint32_t n_ending;      /* fields that end in `ending` */
    uint32_t of;            /* datasets of the list's mix that have a fetch row so far */
    int32_t fetchers;       /* workers of the first fetch */
    int chained; /* 1 + the stage in whose attempts the next row may run; 0: there is none */
    uint32_t chained_at; /* the row behind that stage's last one */
    bool unknown;        /* a row loads parts, or makes items of unknown count */
    bool fetched;        /* the stage that fetches is added */
    bool batched;        /* the batch stage is added */
    bool copies;         /* the stage that fetches copies items out of cells */
};

/* ---- common to the rows of several kinds of stages ---- */

/* Refuse a row with the message: node "name" `what`. Returns a DLP_ERR code. */
static int dlpi_node_bad(const dlpi_table *t, const dlp_node *node, const char *what) {
    return dlpi_refuse(t->p, DLP_ERR_GRAPH, node->name, "", "node \"%s\" %s", node->name, what);
}

static bool dlpi_table_turns(const dlpi_table *t) {
    return t->nodes[0].queue.deal == DLP_DEAL_TURNS;
}

static dlp_workers_desc dlpi_node_workers(const dlpi_table *t, const dlp_node *node) {
    dlp_workers_desc w = node->workers;
    if (dlpi_table_turns(t)) w.dispatch = DLP_DISPATCH_BATCHES;
    return w;
}
