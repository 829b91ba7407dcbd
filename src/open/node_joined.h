/* needs: parts */
#pragma once
/* tests: system/stages/behind */
#include "open/node_makers.h"
#include "stages/joined.h"
/* ---- filter, expand, window, pack, and a map in which fields end, behind a zip or mix ---- */

/* What such a stage keeps: what an expand or a pack does, and behind that the branches. */
typedef union dlpi_joined_inner {
    dlpi_expand x;
    dlpi_pack k; /* needs: pack */
} dlpi_joined_inner;

#define DLPI_JOINED_AT ((sizeof(dlpi_joined_inner) + 63) / 64 * 64)

/* Describe in `out` the memory of branches that were taken, to free it if the table is refused.
   Returns the number of blocks. */
static int dlpi_joined_taken(const dlp_pipe *p DLPI_UNREAD, const dlpi_stage *st, dlpi_block *out) {
    const size_t base = DLPI_JOINED_AT + offsetof(dlpi_joined, j);
    const dlpi_branches *j =
        &((const dlpi_joined *)(const void *)((const uint8_t *)st->self + DLPI_JOINED_AT))->j;
    int n = 0;
    out[n++] =
        (dlpi_block){base + offsetof(dlpi_branches, schedule), j->period * sizeof *j->schedule};
    out[n++] = (dlpi_block){base + offsetof(dlpi_branches, seats.memory), 0};
    for (uint32_t k = 0; k < j->most; k++) n += dlpi_branch_blocks(j, base, k, out + n);
    return n;
}

/* As it is added; then it has the ops of an expand or a pack. */
#define DLPI_JOINED_BEGINS(most) \
    { \
        .kind = DLP_STAGE_EXPAND, .expands = 1, DLPI_OPS_OF_INPUTS, \
        .self_bytes = DLPI_JOINED_AT + offsetof(dlpi_joined, j) + DLPI_BRANCHES_BYTES(most), \
        .blocks = dlpi_joined_taken, \
    }

/* The ops for few branches, and the ops for many. */
static const dlpi_stage_ops dlpi_joined_begins[] = {DLPI_JOINED_BEGINS(DLPI_FEW_BRANCHES),
                                                    DLPI_JOINED_BEGINS(DLPI_BRANCHES)};

typedef struct dlpi_behind { /* the rows directly behind a zip or mix that make items */
    const dlp_node *rows;    /* the first of them; a cache of the branches may stand above it */
    uint32_t n;      /* number of rows up to the last maker or window; 0: no maker follows */
    uint32_t makers; /* number of these rows before the window */
} dlpi_behind;

/* Return how many rows behind the zip or mix of a table belong to its makers. A map in which fields
   end is one if only makers and maps stand above it. So are all maps above a window. t->joins must
   be that zip or mix. */
static dlpi_behind dlpi_behind_rows(const dlpi_table *t) {
    const unsigned in_cells = DLPI_NODE_ITEMS | DLPI_NODE_MAKES;
    const bool keeps = t->joins + 1 < t->nodes + t->n && t->joins[1].verb == DLP_CACHE;
    dlpi_behind b = {.rows = t->joins + 1 + keeps};
    const dlp_node *rows = b.rows;
    bool inside = true; /* all rows so far may run in a cell */
    for (uint32_t i = 0; &rows[i] < t->nodes + t->n; i++) {
        const unsigned is = dlpi_verb_of(t, &rows[i])->is;
        inside = inside && (is & in_cells) != 0;
        if ((is & DLPI_NODE_MAKES) != 0 || (inside && dlpi_node_ends(&rows[i])))
            b.makers = b.n = i + 1;
        if (rows[i].verb == DLP_WINDOW) b.makers = i, b.n = i + 1;
    }
    return b;
}

/* Where a row of a table with a zip or mix stands: in a branch, behind the zip or mix up to the
   last maker, or behind that. */
enum { DLPI_IN_BRANCH, DLPI_TO_MAKER, DLPI_BEHIND };

#define DLPI_V(name) (1u << DLP_##name)

/* Which verbs may not stand where. The first line that has the place and the verb is told. */
static const struct dlpi_stand {
    int where;
    unsigned verbs;    /* a bit for each */
    const char *words; /* what is wrong with the node */
} dlpi_stands[] = {
    {DLPI_IN_BRANCH, DLPI_V(CACHE) | DLPI_V(GUARD) | DLPI_V(BATCH) | DLPI_V(TRANSFER) | DLPI_V(OUT),
     "stands in a branch of a zip or mix; write it behind the row that joins the branches"},
    {DLPI_IN_BRANCH,
     ~(DLPI_V(LIST) | DLPI_V(PUSH) | DLPI_V(LOAD) | DLPI_V(FETCH) | DLPI_V(MAP) | DLPI_V(EXPAND) |
       DLPI_V(FILTER)),
     "stands in a branch of a zip or mix, which may have only list, push, load, fetch, map, expand "
     "and filter"},
    {DLPI_TO_MAKER,
     ~(DLPI_V(MAP) | DLPI_V(WINDOW) | DLPI_V(EXPAND) | DLPI_V(FILTER) | DLPI_V(PACK)),
     "stands between a zip or mix and a filter, expand or pack; write it behind the last of these"},
    {DLPI_BEHIND, DLPI_V(FETCH),
     "fetches by index, so it must stand in a branch of the zip or mix; move its row up"},
    {DLPI_BEHIND, DLPI_V(ZIP) | DLPI_V(MIX), "is a second zip or mix; join all branches in one"},
    {DLPI_BEHIND, ~(DLPI_V(MAP) | DLPI_V(GUARD) | DLPI_V(BATCH) | DLPI_V(TRANSFER) | DLPI_V(OUT)),
     "stands behind a zip or mix, where only cache, map, filter, expand, window, pack, guard, "
     "batch, transfer and out may stand"},
};

/* Check that a row may stand where it does. Returns 0 or a DLP_ERR code. */
static int dlpi_node_place(const dlpi_table *t, const dlp_node *node, int where) {
    if (where != DLPI_IN_BRANCH && node->verb == DLP_CACHE)
        return dlpi_refuse(t->p, DLP_ERR_GRAPH, node->name, "",
                           "cache \"%s\" keeps the items of branches, since joined rows have no "
                           "numbers; write it directly behind \"%s\"",
                           node->name, t->joins->name);
    for (size_t i = 0; i < sizeof dlpi_stands / sizeof *dlpi_stands; i++)
        if (dlpi_stands[i].where == where && (dlpi_stands[i].verbs >> node->verb & 1) != 0)
            return dlpi_node_bad(t, node, dlpi_stands[i].words);
    return DLP_OK;
}

/* Check the rows behind a zip or mix. Rows up to the last maker run in the workers of the
   branches. Returns 0 or a DLP_ERR code. */
static int dlpi_behind_check(const dlpi_table *t) {
    const dlpi_behind b = dlpi_behind_rows(t);
    const dlp_node *makers = b.rows + b.n;
    for (const dlp_node *node = b.rows; node < t->nodes + t->n; node++) {
        const int rc = dlpi_node_place(t, node, node < makers ? DLPI_TO_MAKER : DLPI_BEHIND);
        if (rc != DLP_OK) return rc;
        if (node + 1 < makers && node->verb == DLP_WINDOW && node[1].verb != DLP_PACK)
            return dlpi_node_bad(t, node, "must stand behind the last filter or expand");
        if (node < makers && dlpi_workers_say(&node->workers) == DLPI_SAY_WORKERS)
            return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "workers",
                               "workers is set, and the node runs in the workers of the branches; "
                               "set it there");
    }
    return DLP_OK;
}
