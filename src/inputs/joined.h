/* needs: parts */
#pragma once
/* tests: system/stages/behind */
#include "inputs/branches.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-joined     ITEMS MADE OF THE ROWS OF A ZIP OR MIX
   A filter, an expand, a window or a pack behind a zip or mix works on rows that are joined of
   items of branches. The source then has two levels of cells. The branches have lists and cells, as
   in >>impl-branches. The source has a list and cells of its own, as in >>impl-found, and an input
   of the source is one joined row. The scheduler writes into a free cell where the items of the row
   lie. A worker copies the items, and makes items of the source.

   A cell of a branch is kept until no cell that needs items of it is open or loading. So a death
   costs nothing: the next worker copies the items again.

   A row is known by the place where its stream stood before it: a cursor in each branch, and the
   phase of a mix. A hash of the place stands for the ordinal of an input. A state has two things
   of each stream: the place before the last row that is used, and how much of the row is used.

   Why it can't stand still. Let a batch wait, and a stream lack an item. If a cell of the stream is
   not known, workers load it, and wait for nothing. If all are known the stream has fewer than
   `need` cells, as in >>impl-found. A stream takes more only while as many are left as all others
   lack of their needs. So a cell is free, or comes free by itself. Then the stream lacks a joined
   row, so a branch lacks an item, and holds no cell on its list. Each branch has a cell for each
   stream, and its cells off the list wait for loaded cells, which wait for workers alone. */

typedef struct dlpi_joined_cell { /* the scheduler's record of a cell, beside dlpi_found_cell */
    dlpi_path before;             /* place of the stream before the cell's joined row */
    bool holds;                   /* the cells of branches are kept until this cell is loaded */
} dlpi_joined_cell;

typedef struct dlpi_joined {
    dlpi_joined_cell *cells; /* [n_cells] */
    dlpi_found_row *from;    /* [n_cells][j.most] where the items of each row lie in branches */
    dlpi_path *at;           /* [cursors.n] place of each stream, before its present joined row */
    dlpi_path *after;        /* [cursors.n] place before the last row of the open window */
    uint32_t *kept;          /* [all_cells] cells of joined rows that need this cell of a branch */
    uint32_t all_cells;      /* cells of joined rows and of all branches */
    bool left; /* a cell that keeps others may be off its list, or behind a failed cell: look */
    dlpi_stage_ops ops;          /* ops of the stage: those of `inner`, some replaced */
    dlpi_source_ops source;      /* its source ops, some replaced, too */
    const dlpi_stage_ops *inner; /* ops of the expand or pack that works on joined rows */
    dlpi_branches j; /* its `found` counts the joined rows of streams, and has no cells */
} dlpi_joined;

/* Return where the items of the joined row of cell c lie in cells of branches. */
static inline dlpi_found_row *dlpi_joined_from(const dlpi_joined *x, uint32_t c) {
    return x->from + (size_t)c * x->j.most;
}

/* ---- where streams stand ---- */

/* Return a hash of place x, which stands for the next joined row's ordinal. 0: an epoch's first. */
static uint64_t dlpi_joined_key(const dlpi_branches *j, const dlpi_path *x) {
    uint64_t h = 0, any = 0;
    for (uint32_t b = 0; b < j->n; b++) {
        any |= x->list[b].ordinal | x->list[b].used;
        h = dlpi_absorb(dlpi_absorb(h, x->list[b].ordinal), x->list[b].used);
    }
    return any != 0 ? h | 1 : 0;
}

/* Begin an epoch, or a place, in the joined rows of all streams. */
DLPI_COLD static void dlpi_joined_begin(dlpi_found *q) {
    dlpi_joined *x = q->joined;
    x->j.found.epoch = q->epoch;
    x->left = true;
    for (uint32_t i = 0; i < q->cursors.n; i++) {
        x->j.found.streams[i].rows = 0;
        dlpi_branches_begin(&x->j.found, i);
        x->at[i] = (dlpi_path){.phase = dlpi_branches_saved(&x->j, x->j.streams[i].phase)};
    }
}

/* Note that stream i stands in the row of cell c: now, or after the window that is open. */
static void dlpi_joined_stands(dlpi_found *q, uint32_t i, uint32_t c) {
    dlpi_joined *x = q->joined;
    (q->streams[i].length > 0 ? x->after : x->at)[i] = x->cells[c].before;
}

static void dlpi_joined_moves(dlpi_found *q, uint32_t i) { q->joined->at[i] = q->joined->after[i]; }

static void dlpi_joined_put(const dlpi_found *q, uint32_t i, dlpi_path *to) {
    *to = q->joined->at[i];
    to->row = q->streams[i].at;
}

/* True if `path` is a possible place of stream s of all. set: stream s, one of this rank, goes on
   from there. */
static bool dlpi_joined_take(dlpi_found *q, uint64_t s, const dlpi_path *path, bool set) {
    dlpi_joined *x = q->joined;
    const uint64_t i = s - q->cursors.first;
    if (!dlpi_branches_take(&x->j.found, s, path, set)) return false;
    if (!set) return dlpi_found_go(q, s, &path->row, false);
    q->streams[i].at = path->row;
    q->streams[i].at.ordinal = dlpi_joined_key(&x->j, path);
    x->at[i] = *path;
    return true;
}

/* ---- rows that are known ---- */

/* Count the joined rows of each stream that became known. */
static void dlpi_joined_known(dlp_pipe *p DLPI_UNREAD, dlpi_found *q) {
    dlpi_branches *j = &q->joined->j;
    for (uint32_t i = 0; i < q->cursors.n; i++)
        j->found.streams[i].rows += dlpi_branches_known(j, i);
}

/* End stream i for this epoch if it has no joined row, and the branch that lacks one is out. */
static void dlpi_joined_out(dlpi_found *q, uint32_t i) {
    const dlpi_found *rows = &q->joined->j.found;
    dlpi_found_stream *x = &q->streams[i];
    const dlpi_found *b;
    if (x->known != DLPI_FOUND_NONE || rows->streams[i].rows > 0 || x->epoch != q->epoch) return;
    b = dlpi_branches_lacks(rows, i);
    if (!dlpi_found_out(b, &b->streams[i])) return;
    x->epoch++;
    x->next = 0;
}

/* Return the list whose item stream i lacks: q if it has cells or rows to load, else a branch's. */
static const dlpi_found *dlpi_joined_lacks(const dlpi_found *q, uint32_t i) {
    const dlpi_found *rows = &q->joined->j.found;
    const dlpi_found_stream *x = &q->streams[i];
    const bool own = x->known != DLPI_FOUND_NONE || rows->streams[i].rows > 0 ||
                     x->epoch != q->epoch || x->barren;
    return own ? q : dlpi_branches_lacks(rows, i);
}

static const dlpi_found *dlpi_joined_branch(const dlpi_found *q, uint32_t i) {
    return dlpi_branches_lacks(&q->joined->j.found, i);
}

/* ---- cells of branches that are kept ---- */

/* Return how many items a joined row has. */
static uint32_t dlpi_joined_items(const dlpi_branches *j) { return j->period > 0 ? 1 : j->n; }

/* Give up the cells of branches that are kept for cell c, which is loaded or never will be. */
static void dlpi_joined_release(dlpi_found *q, uint32_t c) {
    dlpi_joined *x = q->joined;
    if (!x->cells[c].holds) return;
    x->cells[c].holds = false;
    for (uint32_t k = 0; k < dlpi_joined_items(&x->j); k++) {
        const uint32_t b = dlpi_joined_from(x, c)[k].cell;
        if (--x->kept[b] == 0) q->use[b].used = 0;
    }
}

/* Give up what is kept for cell c, whose counts are taken, unless the cell has failed. last:
   nothing more of its stream becomes known. */
static void dlpi_joined_learned(dlpi_found *q, uint32_t c, bool last) {
    q->joined->left |= last || q->use[c].failed;
    if (!q->use[c].failed) dlpi_joined_release(q, c);
}

/* Give up what is kept for cells that left their lists, or stand behind one that has failed. */
static void dlpi_joined_settle(dlp_pipe *p, dlpi_found *q) {
    dlpi_joined *x = q->joined;
    if (!x->left) return;
    x->left = false;
    for (uint32_t c = 0; c < q->n_cells; c++) {
        uint32_t low;
        if (!x->cells[c].holds) continue;
        if (!q->use[c].listed) dlpi_input_close(p, c, q->use[c].ticket);
        low = dlpi_input_state(p, c);
        if (low == DLPI_INPUT_LOADED || low == DLPI_INPUT_FAILED || low == DLPI_INPUT_CLOSED)
            dlpi_joined_release(q, c);
        else
            x->left = true;
    }
}

/* ---- a row is asked for ---- */

/* Take the next item of stream i of branch list f, and keep its cell. *to: where the item lies.
   *index: that of its input. Returns false if the item was left out and only its place is there. */
static bool dlpi_joined_item(dlp_pipe *p, dlpi_joined *x, dlpi_found *f, uint32_t i,
                             dlpi_found_row *to, uint64_t *index) {
    const uint32_t c = f->streams[i].head;
    dlpi_found_cell *u = &f->use[c];
    const uint32_t *items = dlpi_input_counts(p, dlpi_input_at(p, c));
    uint64_t at;
    bool whole;
    while (u->from == items[u->input]) {
        u->input++;
        u->from = 0;
    }
    at = dlpi_found_shuffled(f) ? dlp_permutation_at(&f->items[c], u->taken) : u->from;
    *to = (dlpi_found_row){c, (uint32_t)(u->input * f->most_items + at)};
    *index = dlpi_input_indices(dlpi_input_at(p, c))[u->input];
    whole = (u->lost >> u->input & 1) == 0;
    x->kept[c]++;
    u->used = UINT64_MAX;
    dlpi_found_pass_item(p, f, &f->streams[i]);
    return whole;
}

/* Draw the next joined row of stream i for cell c. *index: that of the row's first branch. Returns
   false if an item of the row was left out. */
static bool dlpi_joined_draw(dlp_pipe *p, dlpi_found *q, uint32_t i, uint32_t c, uint64_t *index) {
    dlpi_joined *x = q->joined;
    dlpi_joined_cell *to = &x->cells[c];
    uint32_t end, b;
    bool whole = true;
    dlpi_branches_put(&x->j.found, i, &to->before);
    b = dlpi_branches_draw(&x->j, i, &end);
    x->j.found.streams[i].rows--;
    to->holds = true;
    for (uint32_t k = 0; b < end; k++, b++) {
        uint64_t of;
        whole &= dlpi_joined_item(p, x, &x->j.at[b].x.found, i, &dlpi_joined_from(x, c)[k], &of);
        if (k == 0) *index = of;
    }
    if (!whole) dlpi_joined_release(q, c);
    return whole;
}

/* Open cell c with the next joined row of stream i, so that a worker makes items of it. Rows with
   an item that was left out are passed as inputs without items. If a row before one of these is not
   known, the row may have items: then others prove nothing. Returns false: no whole row is
   known. */
static bool dlpi_joined_issue(dlp_pipe *p, dlpi_found *q, uint32_t i, uint32_t c) {
    dlpi_joined *j = q->joined;
    const dlpi_expand *made = (const dlpi_expand *)(const void *)q;
    dlpi_found_stream *x = &q->streams[i];
    const dlpi_found_cell *u = &q->use[c];
    dlpi_input *cell = dlpi_input_at(p, c);
    uint64_t index = 0;
    dlpi_joined_release(q, c); /* off its list, and loaded since dlpi_joined_settle looked */
    while (!dlpi_joined_draw(p, q, i, c, &index)) {
        if (x->known == DLPI_FOUND_NONE) {
            x->empty++;
            if (q->plan.steps != 0) dlpi_found_prove(q, i);
        }
        if (x->barren || j->j.found.streams[i].rows == 0) return false;
    }
    dlpi_found_enlist(p, q, x, c, q->epoch, dlpi_joined_key(&j->j, &j->cells[c].before), 1);
    memcpy(dlpi_input_bytes(p, c) + made->arrived_at, dlpi_joined_from(j, c),
           dlpi_joined_items(&j->j) * sizeof *j->from);
    dlpi_input_indices(cell)[0] = cell->index = index;
    cell->first = u->ordinal - index; /* random numbers go by the place of the row */
    dlpi_input_offer(p, c, u->ticket);
    return true;
}

/* Return the stream with the fewest cells, among those that have a joined row and may take a cell.
   Returns cursors.n if there is none, or if all free cells are needed by other streams. */
static uint32_t dlpi_joined_poorest(const dlpi_found *q) {
    const dlpi_found_stream *rows = q->joined->j.found.streams;
    uint64_t needed = 0;
    uint32_t best = q->cursors.n;
    for (uint32_t i = 0; i < q->cursors.n; i++) {
        const dlpi_found_stream *x = &q->streams[i];
        needed += x->cells > q->need ? x->cells : q->need;
        if (dlpi_found_broken(q, x)) continue;
        if (rows[i].rows > 0 && (best == q->cursors.n || x->cells < q->streams[best].cells))
            best = i;
    }
    if (best < q->cursors.n && q->streams[best].cells >= q->need && needed >= q->n_cells)
        return q->cursors.n;
    return best;
}

/* Have a joined row made items of, if a cell is free. Returns 1 if it was done, else 0. A stream
   whose rows all had an item left out may be at its end; then another stream is asked. */
static uint32_t dlpi_joined_ask(dlp_pipe *p, dlpi_found *q) {
    uint32_t i, c;
    dlpi_joined_settle(p, q);
    while ((i = dlpi_joined_poorest(q)) < q->cursors.n) {
        if ((c = dlpi_found_free_cell(p, q)) == DLPI_FOUND_NONE) return 0;
        if (dlpi_joined_issue(p, q, i, c)) return 1;
        dlpi_found_free(q->use, &q->pool, c);
        if (q->rc != DLP_OK) return 0;
        dlpi_joined_out(q, i);
        if (q->plan.window > 0 && q->rule == NULL) dlpi_found_open(p, i);
    }
    return 0;
}
