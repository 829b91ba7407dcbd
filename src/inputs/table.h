#pragma once
/* tests: system/core/tables */
#include "api/graph.h"
#include "inputs/add.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-graph      A TABLE OF NODES BECOMES STAGES
   The rows are checked first: names, what each takes records from, what each may say. Then each row
   adds its stages, in order. Rows that make items of unknown count, and those before them, are one
   stage of workers. The last of these rows adds the stage. */

typedef struct dlpi_table dlpi_table;

/* What a row may say besides the desc of its verb, and what it is to the others. */
enum {
    DLPI_NODE_WORKERS = 1,   /* workers of its own */
    DLPI_NODE_THREAD = 2,    /* a thread: num_workers 1 */
    DLPI_NODE_CAPACITY = 4,  /* a capacity of its queue */
    DLPI_NODE_BEGINS = 8,    /* it is the first row */
    DLPI_NODE_LOADS = 16,    /* it loads parts */
    DLPI_NODE_MAKES = 32,    /* it makes items of unknown count of one */
    DLPI_NODE_FINDS = 64,    /* a window may follow it */
    DLPI_NODE_PASSES = 128,  /* between a fetch and the map in which fields of it end */
    DLPI_NODE_OUT = 256,     /* it may take records from any row above it */
    DLPI_NODE_JOINS = 512,   /* it joins branches */
    DLPI_NODE_BEHIND = 1024, /* it may stand behind such a row */
    DLPI_NODE_ITEMS = 2048   /* it works on items, also in a cell */
};

typedef struct dlpi_verb {
    const char *name;
    int (*add)(dlpi_table *t, const dlp_node *node);
    unsigned is;
    /* The fields that a row adds to those of the rows above it. NULL: none. */
    const dlp_field *(*fields)(const dlp_node *node, uint32_t *n);
} dlpi_verb;

/* The fields of a fetch of which some end before the batch. */
typedef struct dlpi_ends {
    dlp_field fields[DLP_MAX_FIELDS]; /* those that stay first */
    uint32_t all, stay;
    dlpi_seeing seen;
} dlpi_ends;

/* Calls of kinds of stages that can be left out of a build; NULL: the kind is left out. Each call
   returns DLP_OK or a stage number, or a DLP_ERR code. */
typedef struct dlpi_table_ops {
    const dlpi_verb *verbs; /* [DLP_VERBS] */
    /* Add a fetch after the first. mixes: it has items of its own, not fields. */
    int (*later)(dlpi_table *t, const dlp_fetch_desc *f, bool mixes);
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
    int (*out)(dlp_pipe *p, const dlp_queue_desc *queue, bool host);
    /* Add the stages of the rows up to the last maker. */
    int (*makes)(dlpi_table *t, const dlp_node *node);
} dlpi_table_ops;

struct dlpi_table {
    dlp_pipe *p;
    const dlpi_table_ops *ops;
    const dlp_node *nodes;
    uint32_t n, at;         /* at: the row that is being added */
    const dlp_pipe_desc *d; /* of the run */
    const dlp_node *joins;  /* the zip or mix that joins branches; NULL: there is one branch */
    const dlp_node *list;   /* of the branch whose rows are being added */
    const dlp_node *load;   /* NULL: no row loads parts */
    const dlp_node *ending; /* the map in which fields end; NULL: none so far */
    uint64_t n_items;
    uint32_t makes;    /* rows up to the last one that makes items; 0: no row does */
    uint32_t n_ending; /* fields that end there */
    uint32_t of;       /* datasets of the list's mix that are fetched so far */
    int32_t fetchers;  /* workers of the first fetch */
    int chained;       /* 1 + the stage in whose attempts the next row may run; 0: there is none */
    uint32_t chained_at; /* the row behind that stage's last one */
    bool unknown;        /* a row loads parts, or makes items of unknown count */
    bool fetched;        /* the stage that fetches is added */
    bool batched;        /* the batch stage is added */
    bool copies;         /* the stage that fetches copies items out of cells */
};

/* ---- what rows have in common ---- */

/* Return the verb of a row, or NULL if there is no such verb or it is left out of this build. */
static const dlpi_verb *dlpi_verb_of(const dlpi_table *t, const dlp_node *node) {
    const dlpi_verb *verb =
        node->verb > 0 && node->verb < DLP_VERBS ? &t->ops->verbs[node->verb] : NULL;
    return verb != NULL && verb->add != NULL ? verb : NULL;
}

/* Refuse a row with the message: node "name" `what`. Returns a DLP_ERR code. */
static int dlpi_node_bad(const dlpi_table *t, const dlp_node *node, const char *what) {
    return dlpi_refuse(t->p, DLP_ERR_GRAPH, node->name, "", "node \"%s\" %s", node->name, what);
}

/* Return the row i rows after the one that is being added, if its verb has one of the flags `is`
   (DLPI_NODE_*); else NULL. */
static const dlp_node *dlpi_node_next(const dlpi_table *t, uint32_t i, unsigned is) {
    const dlp_node *node = t->at + i < t->n ? &t->nodes[t->at + i] : NULL;
    return node != NULL && (dlpi_verb_of(t, node)->is & is) != 0 ? node : NULL;
}

/* True if fields end in a row that works on items. */
static bool dlpi_node_ends(const dlp_node *node) {
    return node->verb == DLP_MAP && node->map.ends != NULL;
}

/* True if a second out or another program takes batches, beside the consumer. */
static bool dlpi_table_shared(const dlpi_table *t) {
    const dlp_node *last = &t->nodes[t->n - 1];
    return t->p->sharing->programs ||
           (t->n > 2 && last->verb == DLP_OUT && last[-1].verb == DLP_OUT);
}

/* True if a row is a cache of the documents of a pack, which is next. */
static bool dlpi_table_keeps(const dlpi_table *t DLPI_UNREAD, const dlp_node *node DLPI_UNREAD) {
    bool pack = false, cache = false;
    pack = node + 1 < t->nodes + t->n && node[1].verb == DLP_PACK; /* needs: parts pack */
    cache = node->verb == DLP_CACHE;                               /* needs: cache */
    return pack && cache;
}

/* Return how many rows there are up to the last one that makes items, or up to a cache behind it; 0
   if no row makes any. Parts that load counts are items of unknown count, too. Other rows end the
   search. Fields that such rows have made, or that were pushed, end in the cell: the row is in it.
   Records of a push lie in cells, too, if several take the batches, or if a window is next. */
static uint32_t dlpi_table_makes(const dlpi_table *t) {
    const unsigned in_cells = DLPI_NODE_ITEMS | DLPI_NODE_LOADS | DLPI_NODE_MAKES;
    const dlp_node *rows = t->nodes;
    bool cached = false, parts = false; /* a cache is next; load counts the items of parts */
    bool pushed = false;                /* a window follows a push */
    uint32_t n = 0, i = 1;
    for (; i < t->n &&
           ((dlpi_verb_of(t, &rows[i])->is & in_cells) != 0 || dlpi_table_keeps(t, &rows[i]));
         i++)
        if ((dlpi_verb_of(t, &rows[i])->is & DLPI_NODE_MAKES) != 0 ||
            ((n > 0 || rows->verb == DLP_PUSH) && dlpi_node_ends(&rows[i])))
            n = i + 1;
        else if ((dlpi_verb_of(t, &rows[i])->is & DLPI_NODE_LOADS) != 0 &&
                 (i > 1 || rows->verb == DLP_PUSH))
            n = i + 1 < t->n ? i + 2 : i + 1;       /* with the fetch of its items */
    cached = i < t->n && rows[i].verb == DLP_CACHE; /* needs: cache */
    parts = i > 2 && rows[1].verb == DLP_LOAD && rows[1].load.max_items > 0; /* needs: parts */
    pushed = t->n > 1 && rows[1].verb == DLP_WINDOW;                         /* needs: parts */
    if (n == 0 && rows->verb == DLP_PUSH && (pushed || dlpi_table_shared(t))) return 1;
    return cached && (n > 0 || parts) ? i : n;
}

/* True if a desc of workers says anything. Its padding does not count. */
static bool dlpi_workers_given(const dlp_workers_desc *w) {
    return w->num_workers != 0 || w->placement != 0 || w->dispatch != 0 || w->on_error != 0 ||
           w->retries != 0 || w->retry_backoff_ms != 0 || w->max_skips != 0 ||
           w->deadline_ms != 0 || w->idempotent != 0 || w->worker_init != NULL ||
           w->worker_exit != NULL || w->worker_user != NULL || w->affinity != NULL ||
           w->n_affinity != 0 || w->stack_bytes != 0 || w->name != NULL || w->workers_min != 0 ||
           w->workers_max != 0 || w->tell != NULL;
}

static bool dlpi_table_turns(const dlpi_table *t) {
    return t->nodes[0].queue.deal == DLP_DEAL_TURNS;
}

static dlp_workers_desc dlpi_node_workers(const dlpi_table *t, const dlp_node *node) {
    dlp_workers_desc w = node->workers;
    if (dlpi_table_turns(t)) w.dispatch = DLP_DISPATCH_BATCHES;
    return w;
}

/* ---- the rows, before any is added ---- */

/* Check the name of row i: 1 to 31 bytes, and no other row has it. Returns 0 or a DLP_ERR code. */
static int dlpi_node_name(const dlpi_table *t, const dlp_node *node, uint32_t i) {
    const size_t length = node->name != NULL ? strlen(node->name) : 0;
    if (length < 1 || length > 31)
        return dlpi_refuse(t->p, DLP_ERR_ARG, "", "name",
                           "row %" PRIu32 " has a name of %zu bytes; give a name of 1 to 31 bytes",
                           i, length);
    for (uint32_t k = 0; k < i; k++)
        if (strcmp(t->nodes[k].name, node->name) == 0)
            return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "name",
                               "rows %" PRIu32 " and %" PRIu32 " are named \"%s\"; rename one", k,
                               i, node->name);
    return DLP_OK;
}

/* Check that row i takes records from the row before it. A zip or mix, and an out, may name other
   rows. Returns 0 or a DLP_ERR code. */
static int dlpi_node_from(const dlpi_table *t, const dlp_node *node, uint32_t i) {
    const char *const *from = node->from;
    if (from == NULL || node == t->joins) return DLP_OK;
    if (i == 0 || from[0] == NULL || from[1] != NULL)
        return dlpi_refuse(t->p, DLP_ERR_GRAPH, node->name, "from", "from must %s",
                           i == 0 ? "be NULL: the first row takes records from no node"
                                  : "have one node's name, then NULL");
    if (strcmp(from[0], t->nodes[i - 1].name) == 0) return DLP_OK;
    if ((dlpi_verb_of(t, node)->is & DLPI_NODE_OUT) != 0) return DLP_OK;
    return dlpi_refuse(t->p, DLP_ERR_GRAPH, node->name, "from",
                       "from names \"%.31s\", and the row before is \"%s\"; write the rows in the "
                       "order of the data",
                       from[0], t->nodes[i - 1].name);
}

/* Refuse fields of a row that its verb does not use. Returns 0 or a DLP_ERR code. */
static int dlpi_node_unused(const dlpi_table *t, const dlp_node *node, const dlpi_verb *verb) {
    dlp_workers_desc w = node->workers;
    int rc;
    if (w.name != NULL)
        return dlpi_not_null(t->p, node->name, "workers.name", "in a node: the node has a name");
    if (w.dispatch != 0 && dlpi_table_turns(t))
        return dlpi_bad(t->p, node->name, "workers.dispatch",
                        "0: queue.deal of the first row says it", w.dispatch);
    if ((verb->is & DLPI_NODE_THREAD) != 0) {
        rc = dlpi_within(t->p, node->name, "workers.num_workers", w.num_workers, 0, 1,
                         "0, or 1: a thread");
        if (rc != DLP_OK) return rc;
        w.num_workers = 0;
    }
    if ((verb->is & DLPI_NODE_WORKERS) == 0 && dlpi_workers_given(&w))
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "workers",
                           "workers is set, and this %s node has no workers%s; set 0", verb->name,
                           verb->is & DLPI_NODE_THREAD ? " but num_workers 1, a thread" : "");
    if ((verb->is & DLPI_NODE_CAPACITY) == 0 && node->queue.capacity != 0)
        return dlpi_bad(t->p, node->name, "queue.capacity", "0: this node has no queue to size",
                        node->queue.capacity);
    rc = dlpi_within(t->p, node->name, "queue.full", node->queue.full, 0,
                     (verb->is & DLPI_NODE_OUT) != 0 ? DLP_FULL_KEEP_NEWEST
                     : node->verb == DLP_PUSH        ? DLP_FULL_REFUSE
                                                     : 0,
                     "DLP_FULL_* of an out or a push, else 0");
    if (rc != DLP_OK) return rc;
    return dlpi_within(t->p, node->name, "queue.deal", node->queue.deal, 0,
                       (verb->is & DLPI_NODE_BEGINS) != 0 ? DLP_DEAL_TURNS : 0,
                       "DLP_DEAL_* in a list or push, else 0");
}

/* Check the names, verbs, order and unused fields of all rows, before any row is added. Returns 0
   or a DLP_ERR code. */
static int dlpi_table_check(dlpi_table *t) {
    int rc = DLP_OK;
    for (uint32_t i = t->n; i > 0; i--) {
        const dlpi_verb *verb = dlpi_verb_of(t, &t->nodes[i - 1]);
        if (verb != NULL && (verb->is & DLPI_NODE_JOINS) != 0) t->joins = &t->nodes[i - 1];
    }
    for (uint32_t i = 0; i < t->n && rc == DLP_OK; i++) {
        const dlp_node *node = &t->nodes[i];
        const dlpi_verb *verb = dlpi_verb_of(t, node);
        if ((rc = dlpi_node_name(t, node, i)) != DLP_OK) return rc;
        if (verb == NULL)
            return dlpi_bad(t->p, node->name, "verb", "DLP_LIST .. DLP_OUT", node->verb);
        if (((verb->is & DLPI_NODE_BEGINS) != 0) != (i == 0) && !(i > 0 && node < t->joins))
            return dlpi_node_bad(
                t, node,
                i == 0 ? "is the first row; begin with DLP_LIST or DLP_PUSH"
                       : "is a second list or push; only a zip or mix joins several lists");
        if ((rc = dlpi_node_from(t, node, i)) == DLP_OK) rc = dlpi_node_unused(t, node, verb);
    }
    return rc;
}

/* ---- a table that the library fills ---- */

/* Add a row to the library's own table, and return it. The name is that of the workers `w`, if they
   have one, else `name`; a number is added if another row has the name. w may be NULL. */
static dlp_node *dlpi_nodes_row(dlp_nodes *to, int32_t verb, const char *name,
                                const dlp_workers_desc *w) {
    dlp_node *node = &to->nodes[to->n];
    char *own = to->names[to->n];
    if (w != NULL && w->name != NULL && w->name[0] != 0) name = w->name;
    dlpi_copy_text(own, sizeof to->names[0], name);
    for (uint32_t i = 0; i < to->n; i++)
        if (strcmp(to->names[i], own) == 0)
            snprintf(own, sizeof to->names[0], "%.20s-%" PRIu32, name, to->n);
    node->verb = verb;
    node->name = own;
    if (w != NULL) node->workers = *w;
    node->workers.name = NULL;
    to->n++;
    return node;
}

/* Add a row that fetches as *d says, with the workers of *d, and return the row. of: the source
   that it reads, or NULL. */
static dlp_node *dlpi_nodes_fetch(dlp_nodes *to, const char *name, const dlp_fetch_desc *d,
                                  const dlp_source *of) {
    dlp_node *node = dlpi_nodes_row(to, DLP_FETCH, name, &d->workers);
    dlp_source *source = &to->sources[to->n - 1];
    source->fetch = *d;
    source->fetch.workers = of != NULL ? of->fetch.workers : (dlp_workers_desc){.num_workers = 0};
    source->id = of != NULL ? of->id : 0;
    node->fetch.source = source;
    return node;
}
