/* A table of nodes that a test fills row by row, with the memory that its rows point to. */
#ifndef ROWS_H
#define ROWS_H

#include "inside.h"

typedef struct rig_table {
    dlp_node nodes[DLP_MAX_NODES];
    uint32_t n;
    dlp_sampler_desc order;
    dlp_source sources[DLP_MAX_NODES];    /* of fetch rows */
    dlp_dataset ending[DLP_MAX_NODES];    /* datasets of fetches whose last fields end */
    dlp_field fields[2 * DLP_MAX_FIELDS]; /* fields of these datasets */
    char ends[DLP_MAX_FIELDS * 32];       /* names of the fields that end */
    char names[DLP_MAX_NODES][32];
} rig_table;

/* Add a row, and return it. A row without a name has the name of its workers, or of its kind. A map
   or guard has a stage of its own, also if its workers say nothing. Fields of table_ends end in the
   first map. */
static inline dlp_node *table_row(rig_table *t, dlp_node row) {
    static const char *const kinds[DLP_VERBS] = {
        "none",   "sampler", "push",   "fetch", "map",   "batch", "transfer", "out", "parts",
        "expand", "expand",  "window", "pack",  "cache", "split", "guard",    "zip", "mix"};
    const char *said = row.name ? row.name : row.workers.name ? row.workers.name : kinds[row.verb];
    char *name = t->names[t->n];
    snprintf(name, sizeof t->names[0], "%.31s", said);
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->names[i], name) == 0)
            snprintf(name, sizeof t->names[0], "%.20s-%u", said, (unsigned)t->n);
    row.name = name;
    row.workers.name = NULL;
    if ((row.verb == DLP_MAP || row.verb == DLP_GUARD) && row.workers.num_workers == 0)
        row.workers.num_workers = DLP_NONE;
    if (row.verb == DLP_MAP && row.map.item != NULL && t->ends[0] != 0) {
        row.map.ends = t->ends;
        for (uint32_t i = 0; i < t->n; i++)
            if (t->nodes[i].map.ends == t->ends && t->nodes[i].verb == DLP_MAP) row.map.ends = NULL;
    }
    t->nodes[t->n] = row;
    return &t->nodes[t->n++];
}

/* Add the list row, with this order. */
static inline void table_list(rig_table *t, const dlp_sampler_desc *order) {
    t->order = *order;
    t->order.threaded = 0;
    table_row(t, (dlp_node){.verb = DLP_LIST,
                            .list = {.order = &t->order},
                            .workers = {.num_workers = order->threaded}});
}

/* Add a fetch row that fetches as *d says. d->dataset must be there until the table is opened. of:
   as in dlp_node_fetch. A fetch behind another one has a stage of its own. */
static inline dlp_node *table_fetch(rig_table *t, const dlp_source *d, uint32_t of) {
    dlp_source *source = &t->sources[t->n];
    dlp_node row = {.verb = DLP_FETCH, .fetch = {.source = source, .of = of}};
    for (uint32_t i = 0; i < t->n; i++)
        if (t->nodes[i].verb == DLP_FETCH) row.name = "join";
    row.workers = d->workers;
    if (d->workers.name != NULL) row.name = NULL;
    *source = *d;
    source->workers = (dlp_workers_desc){.num_workers = 0};
    return table_row(t, row);
}

/* Let the fetch row that was added last write these fields, too. They end in the first map. All
   fetch rows of a mix have the same. */
static inline void table_ends(rig_table *t, const dlp_field *f, uint32_t n, uint32_t cells) {
    dlp_source *source = &t->sources[t->n - 1];
    dlp_dataset *to = &t->ending[t->n - 1];
    *to = *source->dataset;
    if (to->fields == NULL) return; /* the table is refused */
    memcpy(t->fields, to->fields, to->n_fields * sizeof *f);
    memcpy(t->fields + to->n_fields, f, n * sizeof *f);
    to->fields = t->fields;
    to->n_fields += n;
    source->dataset = to;
    t->nodes[t->n - 1].queue.capacity = cells;
    t->ends[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) strcat(t->ends, " ");
        strcat(t->ends, f[i].name);
    }
}

/* Add a load row, and the window behind it. The list has its number of parts and their order. */
static inline void table_load(rig_table *t, const dlp_node_load *d) { /* needs: parts */
    dlp_node row = {.verb = DLP_LOAD, .load = *d, .workers = d->workers};
    if (t->order.order == DLP_ORDER_PARTS) t->order.order = DLP_ORDER_SEQUENTIAL;
    t->nodes[0].list.n_items = d->n_parts;
    t->nodes[0].list.shuffle = d->shuffle_parts;
    row.load.n_parts = 0;
    row.load.shuffle_parts = 0;
    row.load.queue_size = row.load.window = 0;
    row.load.workers = (dlp_workers_desc){.num_workers = 0};
    row.queue.capacity = d->queue_size;
    table_row(t, row);
    if (d->window != 0)
        table_row(t, (dlp_node){.verb = DLP_WINDOW, .window = {.items = d->window}});
} /* needs: parts */

/* Make a pipe of the table, which is not started. */
static inline int table_pipe(const rig_table *t, dlp_pipe **out, const dlp_pipe_desc *desc,
                             dlp_error *err) {
    return inside_pipe_of(out, t->nodes, t->n, desc, err);
}

#endif
