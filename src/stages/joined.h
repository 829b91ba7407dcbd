/* needs: parts */
#pragma once
/* tests: system/stages/behind */
#include "inputs/branch_cells.h"
#include "inputs/joined.h"
/* ---- makers behind a zip or mix: the stage of an expand or pack, over branches ---- */

/* Copy the items of the joined row that arrived in cell c into the fields of *it. Returns 0. */
static int dlpi_joined_fetch(dlpi_worker *w, uint32_t c, dlp_item *it) {
    const dlpi_expand *x = w->p->source_stage->self;
    const uint8_t *from = dlpi_input_bytes(w->p, c) + x->arrived_at;
    dlpi_branches_items(w->p, &x->found.joined->j, (const dlpi_found_row *)(const void *)from, 1,
                        it);
    return 0;
}

static uint32_t dlpi_joined_origin(const dlp_pipe *p, uint32_t c, uint64_t *number) {
    const dlpi_expand *x = p->source_stage->self;
    const uint8_t *from = dlpi_input_bytes(p, c) + x->arrived_at;
    return dlpi_branches_origin(p, &x->found.joined->j, (const dlpi_found_row *)(const void *)from,
                                number);
}

static const dlpi_found_joins dlpi_joined_joins = {
    .begin = dlpi_joined_begin,
    .known = dlpi_joined_known,
    .out = dlpi_joined_out,
    .ask = dlpi_joined_ask,
    .learned = dlpi_joined_learned,
    .stands = dlpi_joined_stands,
    .moves = dlpi_joined_moves,
    .branch = dlpi_joined_branch,
    .lacks = dlpi_joined_lacks,
    .put = dlpi_joined_put,
    .take = dlpi_joined_take,
    .fetch = dlpi_joined_fetch,
    .origin = dlpi_joined_origin,
};

static dlpi_joined *dlpi_joined_of(const dlpi_stage *st) {
    return ((const dlpi_found *)st->self)->joined;
}

/* Try once to load the next input of cell c. The first cells are of joined rows, those behind them
   of branches. Returns 0, or a code. */
static int dlpi_joined_load(dlpi_worker *w, uint32_t c) {
    const dlpi_found *q = dlpi_found_of(w->p);
    if (c < q->n_cells) return q->joined->inner->source->load(w, c);
    return dlpi_branch_load(w, &q->joined->j, c);
}

/* Return how many items branch b has at most in a stream's pass over its inputs. */
static uint64_t dlpi_joined_pass(const dlpi_branches *j, uint32_t b) {
    const dlpi_found *f = &j->at[b].x.found;
    return dlpi_times(dlpi_found_most_inputs(&f->plan), f->most_items);
}

/* Return how many joined rows a stream has at most in an epoch of one pass. */
static uint64_t dlpi_joined_most(const dlpi_branches *j) {
    uint64_t least = UINT64_MAX, all = 0;
    for (uint32_t b = 0; b < j->n; b++) {
        const uint64_t n = dlpi_joined_pass(j, b);
        all = dlpi_sum(all, n);
        if (n < least) least = n;
    }
    /* with steps a short branch of a zip begins again beside a longer one */
    return j->period > 0 || j->at[0].x.found.plan.steps != 0 ? all : least;
}

/* Return in how many rows of a stream each branch surely comes to the end of a pass. A mix may draw
   one seldom. Only the last leg of a mix has no end. */
DLPI_COLD static uint64_t dlpi_joined_round(const dlpi_branches *j) {
    const dlpi_leg *leg = &j->legs[j->n_legs];
    uint64_t most = 0;
    for (uint32_t b = 0; b < j->n; b++) {
        const uint64_t turns = dlpi_leg_turns(j, leg, b);
        uint64_t n = dlpi_joined_pass(j, b);
        if (turns > 0) n = dlpi_times(dlpi_sum(n / turns, 1), leg->period);
        if (n > most) most = n;
    }
    return most;
}

/* Set the lengths of the stage and of its branches. An input of the stage is one joined row.
   Returns 0 or a DLP_ERR code. It fails if a branch has fewer inputs than there are streams. */
DLPI_COLD static int dlpi_joined_sizes(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_branches *j = &q->joined->j;
    int rc = q->joined->inner->source->sizes(p);
    if (rc != DLP_OK) return rc;
    if ((rc = dlpi_branches_lengths(p, q, j)) != DLP_OK) return rc;
    q->plan.n_inputs = dlpi_times(dlpi_joined_most(j), q->plan.streams);
    if (q->plan.n_inputs > UINT64_C(1) << 57) /* room for 64 passes */
        q->plan.n_inputs = UINT64_C(1) << 57;
    q->round = dlpi_joined_round(j);
    q->later = j->legs[j->n_legs].from;
    j->found.cursors = q->cursors;
    j->found.plan.seed = q->plan.seed;
    j->found.plan.steps = q->plan.steps;
    return DLP_OK;
}

/* Check the inner stage and all branches, and number their cells: the inner stage's first, then
   each branch's. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_joined_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_joined *x = dlpi_joined_of(st);
    dlpi_found *q = st->self;
    uint64_t cells;
    int rc = x->inner->check(p, st);
    if (rc != DLP_OK) return rc;
    dlpi_branches_link(&x->j, q);
    for (uint32_t k = 0; k < x->j.n; k++) {
        if ((rc = dlpi_branch_check(p, st, &x->j, k, 1)) != DLP_OK) return rc;
        if (DLPI_DEBUG && x->j.at[k].x.found.d.max_part_bytes > q->d.max_part_bytes)
            q->d.max_part_bytes = x->j.at[k].x.found.d.max_part_bytes;
    }
    cells = dlpi_branches_number(&x->j, q->n_cells);
    x->all_cells = (uint32_t)cells;
    x->j.seats.at[x->j.seats.n - 1].end = (uint32_t)(x->j.seats.n > 1 ? q->n_cells : cells);
    return dlpi_within(p, st->name, "queue.capacity", (int64_t)cells, 0, DLPI_FOUND_CELLS,
                       "2^22 cells at most in all branches and the rows behind them");
}

/* Write into `to` the queue that begins with cell `at`: first that of joined rows, then one of each
   branch. Returns true if there is another queue behind it. */
DLPI_COLD static bool dlpi_joined_cells(const dlpi_stage *st, uint64_t at, dlp_link *to) {
    const dlpi_joined *x = dlpi_joined_of(st);
    if (at > 0) return dlpi_branches_queue(&x->j, at, x->all_cells, to);
    dlpi_copy_text(to->from, sizeof to->from, "joined rows");
    to->capacity = ((const dlpi_found *)st->self)->n_cells;
    return true;
}

static uint32_t dlpi_joined_most_run(const dlpi_joined *x) {
    uint32_t most = 1;
    for (uint32_t k = 0; k < x->j.n; k++)
        if (x->j.at[k].x.found.most_run > most) most = x->j.at[k].x.found.most_run;
    return most;
}

/* Add the areas of the region for all cells: the joined rows' first, then each branch's. */
DLPI_COLD static void dlpi_joined_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_joined *x = dlpi_joined_of(st);
    const dlpi_found *q = st->self;
    const uint64_t stride =
        dlpi_round_up(dlpi_sum(q->d.max_part_bytes, DLPI_REDZONE), dlpi_found_align(q));
    const uint64_t each = dlpi_sum(stride, DLPI_INPUT_GUARD);
    uint64_t bytes = dlpi_times(stride, q->n_cells);
    dlpi_found_counts_layout(p, st);
    dlpi_inputs_records(p, st, x->all_cells, dlpi_joined_most_run(x));
    for (uint32_t k = 0; !DLPI_DEBUG && k < x->j.n; k++) /* else cells are alike */
        bytes = dlpi_branch_place(&x->j.at[k], bytes);
    if (DLPI_DEBUG) bytes = dlpi_times(each, x->all_cells);
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_INPUTS_CELLS), DLPI_PLAN_INPUTS,
                   "part cells of joined rows and branches", each,
                   bytes / each + (bytes % each != 0), 4096);
}

/* Describe in `out` the heap memory of the inner stage, of the joined rows and of all branches.
   Returns the number of blocks. */
DLPI_COLD static int dlpi_joined_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_joined *x = dlpi_joined_of(st);
    const dlpi_found *q = st->self;
    const size_t at = (size_t)((const uint8_t *)x - (const uint8_t *)q);
    const uint64_t streams = q->cursors.n;
    bool orders = dlpi_found_shuffled(q); /* the items of a joined row, by makers behind */
    int n = x->inner->blocks(p, st, out);
    for (uint32_t k = 0; k < x->j.n; k++) orders |= dlpi_found_shuffled(&x->j.at[k].x.found);
    out[0].bytes = dlpi_times(x->all_cells, sizeof *q->use);
    out[1].bytes = dlpi_times(out[1].bytes, x->j.n + 2);
    out[2].bytes = orders ? dlpi_times(x->all_cells, sizeof *q->items) : 0;
    out[n++] =
        (dlpi_block){at + offsetof(dlpi_joined, cells), dlpi_times(q->n_cells, sizeof *x->cells)};
    out[n++] = (dlpi_block){at + offsetof(dlpi_joined, from),
                            dlpi_times(q->n_cells, x->j.most * sizeof *x->from)};
    out[n++] = (dlpi_block){at + offsetof(dlpi_joined, at), dlpi_times(streams, sizeof *x->at)};
    out[n++] =
        (dlpi_block){at + offsetof(dlpi_joined, after), dlpi_times(streams, sizeof *x->after)};
    out[n++] =
        (dlpi_block){at + offsetof(dlpi_joined, kept), dlpi_times(x->all_cells, sizeof *x->kept)};
    return n + dlpi_branches_each(&x->j, st, at + offsetof(dlpi_joined, j), streams, out + n);
}

/* Set up the inner stage and its branches, once the region is mapped. Each branch gets its own
   cells and streams. */
static void dlpi_joined_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_joined *x = dlpi_joined_of(st);
    dlpi_found *q = st->self;
    x->inner->live(p, st);
    dlpi_seats_live(p, st, &x->j.seats);
    memset(q->spread, 0, sizeof *q->spread);
    x->j.found.streams = q->streams + q->cursors.n;
    for (uint32_t k = 0; k < x->j.n; k++)
        dlpi_branch_frees(q, &x->j.at[k], q->streams + (size_t)(k + 2) * q->cursors.n);
}

DLPI_COLD static void dlpi_joined_config(const dlp_pipe *p, dlpi_state *s) {
    const dlpi_joined *x = dlpi_found_of(p)->joined;
    x->inner->source->config(p, s);
    dlpi_branches_hash(&x->j, s);
}

static uint64_t dlpi_joined_keeps(const dlp_pipe *p, uint32_t list, uint64_t *inputs) {
    return dlpi_branches_keep(&dlpi_found_of(p)->joined->j, list, inputs);
}

/* Let the stage of an expand or pack work on joined rows of the branches in x: replace its ops. */
static void dlpi_joined_wrap(dlpi_stage *st, dlpi_joined *x) {
    dlpi_found *q = st->self;
    q->joins = &dlpi_joined_joins;
    q->joined = x;
    x->inner = st->ops;
    x->source = *st->ops->source;
    x->source.sizes = dlpi_joined_sizes;
    x->source.load = dlpi_joined_load;
    x->source.config = dlpi_joined_config;
    x->source.keeps = dlpi_joined_keeps;
    x->ops = *st->ops;
    x->ops.check = dlpi_joined_check;
    x->ops.layout = dlpi_joined_layout;
    x->ops.blocks = dlpi_joined_blocks;
    x->ops.live = dlpi_joined_live;
    x->ops.cells = dlpi_joined_cells;
    x->ops.source = &x->source;
    st->ops = &x->ops;
}
