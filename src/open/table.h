#pragma once
/* tests: system/core/tables */
#include "inputs/table.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-graph      A TABLE OF NODES BECOMES STAGES
   All rows are checked first: their names, the rows that they take records from, and the fields
   that their verbs use. Then each row adds its stages, in order. Rows that make items of unknown
   count, and the rows before them, are one stage of workers. The last of these rows adds the stage.
   */

/* Return the verb of a row, or NULL if there is no such verb or it is left out of this build. */
static const dlpi_verb *dlpi_verb_of(const dlpi_table *t, const dlp_node *node) {
    const dlpi_verb *verb =
        node->verb > 0 && node->verb < DLP_VERBS ? &t->ops->verbs[node->verb] : NULL;
    return verb != NULL && verb->add != NULL ? verb : NULL;
}

/* True if the verb of a row has one of the flags `is` (DLPI_NODE_*). */
static bool dlpi_node_is(const dlpi_table *t, const dlp_node *node, unsigned is) {
    const dlpi_verb *verb = dlpi_verb_of(t, node);
    return verb != NULL && (verb->is & is) != 0;
}

/* Return the row i rows after the one that is being added, if its verb has one of the flags `is`
   (DLPI_NODE_*); else NULL. */
static const dlp_node *dlpi_node_next(const dlpi_table *t, uint32_t i, unsigned is) {
    const dlp_node *node = t->at + i < t->n ? &t->nodes[t->at + i] : NULL;
    return node != NULL && dlpi_node_is(t, node, is) ? node : NULL;
}

/* True if fields end in a row that works on items. */
static bool dlpi_node_ends(const dlp_node *node) {
    return node->verb == DLP_MAP && node->map.ends != NULL;
}

/* True if a row is a cache or window of the documents of a pack, which is next. A window may stand
   between a cache and the pack. */
static bool dlpi_table_keeps(const dlpi_table *t, const dlp_node *node) {
    const dlp_node *end = t->nodes + t->n, *row = node;
    if (row->verb == DLP_CACHE) row++;
    if (row < end && row->verb == DLP_WINDOW) row++;
    return row > node && row < end && row->verb == DLP_PACK;
}

/* Return the window that stands directly behind row i, or behind a cache that does; else NULL. */
static const dlp_node *dlpi_table_window(const dlpi_table *t, uint32_t i) {
    const dlp_node *row = &t->nodes[i] + 1, *end = t->nodes + t->n;
    if (row < end && row->verb == DLP_CACHE) row++;
    return row < end && row->verb == DLP_WINDOW ? row : NULL;
}

/* Return how many rows there are up to the last one that makes items, or up to a cache or window
   behind it; 0 if no row makes any. Parts that load counts are items of unknown count, too. Other
   rows end the search. Fields that such rows have made, or that were pushed, end in the cell: the
   row is in it. Records of a push lie in cells, too, if several take the batches. Items lie in
   cells, too, if a window is next. */
static uint32_t dlpi_table_makes(const dlpi_table *t) {
    const unsigned in_cells = DLPI_NODE_ITEMS | DLPI_NODE_LOADS | DLPI_NODE_MAKES;
    const dlp_node *rows = t->nodes, *last = rows + t->n - 1;
    const bool shared = /* a second out or another program takes batches, beside the consumer */
        t->p->sharing->programs || (t->n > 2 && last->verb == DLP_OUT && last[-1].verb == DLP_OUT);
    bool cached = false, parts = false; /* a cache is next; load counts the items of parts */
    uint32_t n = 0, i = 1;
    for (; i < t->n && (dlpi_node_is(t, &rows[i], in_cells) || dlpi_table_keeps(t, &rows[i])); i++)
        if (dlpi_node_is(t, &rows[i], DLPI_NODE_MAKES) ||
            ((n > 0 || rows->verb == DLP_PUSH) && dlpi_node_ends(&rows[i])))
            n = i + 1;
        else if (dlpi_node_is(t, &rows[i], DLPI_NODE_LOADS) && (i > 1 || rows->verb == DLP_PUSH))
            n = i + 1 < t->n ? i + 2 : i + 1; /* with the fetch of its items */
    cached = i < t->n && rows[i].verb == DLP_CACHE;
    parts = i > 2 && rows[1].verb == DLP_LOAD && rows[1].load.max_items > 0;
    if ((rows[i - 1].verb == DLP_PUSH || dlpi_node_is(t, &rows[i - 1], DLPI_NODE_ITEMS)) &&
        dlpi_table_window(t, i - 1) != NULL)
        return i;
    if (n == 0 && rows->verb == DLP_PUSH && shared) return 1;
    return cached && (n > 0 || parts) ? i : n;
}

/* True if a desc of workers says anything. Its padding does not count. */
static bool dlpi_workers_given(const dlp_workers_desc *w) {
    for (size_t i = 0; i < sizeof dlpi_workers_bounds / sizeof *dlpi_workers_bounds; i++)
        if (dlpi_bound_got(&dlpi_workers_bounds[i], w) != 0) return true;
    return false;
}

/* True if a desc of workers says what becomes of failures. */
static inline bool dlpi_policy_given(const dlp_workers_desc *w) {
    return w->on_error != 0 || w->retries != 0 || w->retry_backoff_ms != 0 || w->max_skips != 0;
}

/* Let a desc of workers say of failures what another says. */
static void dlpi_policy_take(dlp_workers_desc *w, const dlp_workers_desc *say) {
    w->on_error = say->on_error;
    w->retries = say->retries;
    w->retry_backoff_ms = say->retry_backoff_ms;
    w->max_skips = say->max_skips;
}

static const dlp_workers_desc dlpi_says_nothing = {.num_workers = 0};

enum { DLPI_SAY_NOTHING, DLPI_SAY_LIMIT, DLPI_SAY_POLICY, DLPI_SAY_WORKERS };

/* Return the most that a desc of workers says. A row that shares the workers of another row may say
   all but WORKERS: what becomes of failures, a deadline_ms and idempotent. */
static int dlpi_workers_say(const dlp_workers_desc *w) {
    dlp_workers_desc rest = *w;
    dlpi_policy_take(&rest, &dlpi_says_nothing);
    rest.deadline_ms = rest.idempotent = 0;
    return dlpi_workers_given(&rest) ? DLPI_SAY_WORKERS
                                     : dlpi_workers_given(w) + dlpi_policy_given(w);
}

/* Return the nearest row above `node` that names workers, or, if policy is set, that says what
   becomes of failures; or NULL. */
DLPI_COLD static const dlp_node *dlpi_row_above(const dlpi_table *t, const dlp_node *node,
                                                bool policy) {
    while (node-- > t->nodes)
        if ((policy ? dlpi_policy_given(&node->workers) : node->workers.num_workers > 0) &&
            dlpi_node_is(t, node, DLPI_NODE_WORKERS))
            return node;
    return NULL;
}

/* Return the workers of a fetch or map row before the batch that has a stage of its own. If it
   names none, it has as many as the nearest row above that names workers, placed alike. If it does
   not say what becomes of its failures, that row says it. If all these rows run in the consumer,
   the nearest row above that says it does. */
DLPI_COLD static dlp_workers_desc dlpi_row_workers(const dlpi_table *t, const dlp_node *node) {
    dlp_workers_desc w = dlpi_node_workers(t, node);
    const dlp_workers_desc *say = NULL;
    if (!t->batched && w.num_workers == 0) {
        const dlp_node *above = dlpi_row_above(t, node, false);
        if (above != NULL) w.num_workers = above->workers.num_workers;
        if (above != NULL && w.placement == 0) w.placement = above->workers.placement;
        if (above == NULL) above = dlpi_row_above(t, node, true);
        if (above != NULL && !dlpi_policy_given(&w)) say = &above->workers;
    }
    if (say != NULL) dlpi_policy_take(&w, say);
    return w;
}

/* ---- checks of all rows, before any row is added ---- */

/* Check the name of row i: 1 to 31 bytes, and no other row has it. Returns 0 or a DLP_ERR code. */
static int dlpi_node_name(const dlpi_table *t, const dlp_node *node, uint32_t i) {
    const size_t length = node->name != NULL ? strlen(node->name) : 0;
    if (length < 1 || length > 31)
        return dlpi_refuse(t->p, DLP_ERR_ARG, "", "name",
                           "row %" PRIu32 " has a name of %d bytes; give a name of 1 to 31 bytes",
                           i, (int)length);
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
    if (dlpi_node_is(t, node, DLPI_NODE_OUT)) return DLP_OK;
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
    return DLP_OK;
}

/* Refuse the verb of a row. There is no such verb, or it belongs to a part that is left out.
   Returns a DLP_ERR code. */
DLPI_COLD static int dlpi_node_verb(const dlpi_table *t, const dlp_node *node) {
    static const char *const parts[DLP_VERBS] = {
        [DLP_PUSH] = "PARTS",   [DLP_LOAD] = "PARTS",   [DLP_EXPAND] = "PARTS",
        [DLP_FILTER] = "PARTS", [DLP_WINDOW] = "PARTS", [DLP_PACK] = "PACK",
        [DLP_CACHE] = "CACHE",  [DLP_SPLIT] = "SPLIT",  [DLP_GUARD] = "GUARD",
        [DLP_ZIP] = "PARTS",    [DLP_MIX] = "PARTS",    [DLP_TRANSFER] = "TRANSFER"};
    const char *part = node->verb > 0 && node->verb < DLP_VERBS ? parts[node->verb] : NULL;
    if (part == NULL)
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "verb",
                           "the verb of \"%.31s\" is %d, must be DLP_LIST .. DLP_OUT", node->name,
                           (int)node->verb);
    return dlpi_refuse(t->p, DLP_ERR_UNSUPPORTED, node->name, "verb",
                       "verb is %d, which is left out; compile without DLPIPE_NO_%s, or beside "
                       "DLPIPE_ONLY_LOADER with DLPIPE_WITH_%s",
                       (int)node->verb, part, part);
}

/* Check the names, verbs, order and unused fields of all rows, before any row is added. Returns 0
   or a DLP_ERR code. */
static int dlpi_table_check(dlpi_table *t) {
    int rc = DLP_OK;
    for (uint32_t i = t->n; i > 0; i--)
        if (dlpi_node_is(t, &t->nodes[i - 1], DLPI_NODE_JOINS)) t->joins = &t->nodes[i - 1];
    for (uint32_t i = 0; i < t->n && rc == DLP_OK; i++) {
        const dlp_node *node = &t->nodes[i];
        const dlpi_verb *verb = dlpi_verb_of(t, node);
        if ((rc = dlpi_node_name(t, node, i)) != DLP_OK) return rc;
        if (verb == NULL) return dlpi_node_verb(t, node);
        if (dlpi_node_is(t, node, DLPI_NODE_BEGINS) != (i == 0) && !(i > 0 && node < t->joins))
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

/* Add the table's row that fetches as *d says, with workers as *w, and return the row. of: the
   source that it reads, or NULL. w may be NULL. */
static dlp_node *dlpi_nodes_fetch(dlp_nodes *to, const char *name, const dlp_source *d,
                                  const dlp_workers_desc *w, const dlp_source *of) {
    dlp_node *node = dlpi_nodes_row(to, DLP_FETCH, name, w);
    to->source = *d;
    if (of != NULL) to->source.workers = of->workers;
    if (of != NULL) to->source.id = of->id;
    node->fetch.source = &to->source;
    return node;
}

/* Add a row that copies batches to a device; NULL: add none. thread: 1: a thread copies. */
static void dlpi_nodes_transfer(dlp_nodes *to, const dlp_device *device, int32_t buffers,
                                int32_t thread) {
    dlp_node *node;
    if (device == NULL) return;
    node = dlpi_nodes_row(to, DLP_TRANSFER, "transfer", NULL);
    node->transfer.device = device;
    node->queue.capacity = (uint32_t)buffers;
    node->workers.num_workers = thread;
}
