/* needs: parts */
#pragma once
/* tests: system/stages/branches, system/stages/branch_chains */
#include "inputs/branch_cells.h"
/* ---- zip and mix: workers that make the items of all branches, and rows that are copied ---- */

/* ---- work ---- */

static int dlpi_branches_load(dlpi_worker *w, uint32_t c) {
    return dlpi_branch_load(w, w->p->source_stage->self, c);
}

static int dlpi_branches_many(dlpi_worker *w, uint32_t c) {
    return dlpi_inputs_many(w, &dlpi_branch_of_cell(w->p->source_stage->self, c)->x, c);
}

/* Set it->part->data to where the items of row `row` of slot s lie. extra: memory for the
   dlp_part. */
static void dlpi_branches_row_extra(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row,
                                    void *extra) {
    dlp_part *part = extra;
    part->data = &dlpi_found_rows_of(w->p, s)[row];
    it->part = part;
}

/* Return the number of the row's first item. *list: its branch. */
DLPI_COLD static uint32_t dlpi_branches_row_origin(dlpi_worker *w, uint32_t s, uint32_t row,
                                                   uint64_t epoch DLPI_UNREAD,
                                                   uint64_t position DLPI_UNREAD,
                                                   uint32_t k DLPI_UNREAD, uint32_t *list) {
    uint64_t number;
    *list = dlpi_branches_origin(w->p, w->p->source_stage->self, &dlpi_found_rows_of(w->p, s)[row],
                                 &number);
    return (uint32_t)number;
}

/* Callback of the fetch stage: copy a joined row's items. user: the dlpi_branches. Returns 0. */
static int dlpi_branches_copy(void *user, dlp_item *it) {
    const dlp_pipe *p = it->call->w->p;
    dlpi_branches_items(p, user, it->part->data, p->batch_rows, it);
    return 0;
}

/* Copy the item at `from` into row r of the cell at `to`. */
static inline void dlpi_branch_copy(const dlpi_branch *b, const dlpi_fields *rows,
                                    const uint8_t *from, uint8_t *to, uint32_t r) {
    const dlpi_level *l = dlpi_input_last(&b->x);
    for (uint32_t f = 0; f < l->fs.n; f++) {
        const size_t bytes = (size_t)l->fs.at[f].row_bytes;
        uint8_t *at = to + rows->at[b->first_field + f].offset + r * bytes;
        if (bytes == 8)
            memcpy(at, from + l->at[f], 8);
        else
            memcpy(at, from + l->at[f], bytes);
    }
}

/* Copy the items of a claimed unit out of their cells. Returns how many rows are done: all. */
static uint32_t dlpi_branches_bulk(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_branches *j = p->source_stage->self;
    const uint32_t items = j->period > 0 ? 1 : j->n;
    uint8_t *to = dlpi_item_cell(p, t->slot);
    for (uint32_t k = 0; k < items; k++) {
        const dlpi_found_row *row = dlpi_found_rows_of(p, t->slot) + (size_t)k * p->batch_rows;
        for (uint32_t r = t->row; r < t->end; r++) {
            const dlpi_branch *b = j->period > 0 ? dlpi_branch_of_cell(j, row[r].cell) : &j->at[k];
            const uint8_t *from = dlpi_input_cell_at(p, &b->x, row[r].cell);
            dlpi_branch_copy(b, &p->items, from + row[r].number * dlpi_input_last(&b->x)->bytes, to,
                             r);
        }
    }
    return t->end - t->row;
}

/* ---- sizes ---- */

/* Set the inputs and the epoch's length of joined branches, and how many bits a place of each
   branch needs. The fetch stage then copies joined rows. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_branches_sizes(dlp_pipe *p) {
    dlpi_branches *j = dlpi_branches_of(dlpi_found_of(p));
    dlpi_found *q = &j->found;
    int rc = dlpi_input_order(p);
    if (rc == DLP_OK) rc = dlpi_input_rows_check(p);
    if (rc != DLP_OK) return rc;
    dlpi_input_bulk(p, &j->copies, dlpi_branches_bulk);
    q->plan.n_inputs = UINT64_MAX;
    for (uint32_t b = 0; b < j->n; b++)
        if (j->at[b].x.found.plan.n_inputs < q->plan.n_inputs)
            q->plan.n_inputs = j->at[b].x.found.plan.n_inputs;
    if ((rc = dlpi_found_lengths(p)) != DLP_OK) return rc;
    q->cursors.used_bits = 0;
    return dlpi_branches_lengths(p, q, j);
}

/* ---- cells ---- */

/* Check all branches, and compute the cells that they need together. Returns 0 or a DLP_ERR code.
   */
DLPI_COLD static int dlpi_branches_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_branches *j = st->self;
    dlpi_found *q = &j->found;
    q->d.max_part_bytes = q->most_items = 0;
    q->most_run = 1;
    dlpi_branches_link(j, q);
    for (uint32_t k = 0; k < j->n; k++) {
        dlpi_found *f = &j->at[k].x.found;
        const int rc = dlpi_branch_check(p, st, j, k, dlpi_found_look(p, q));
        if (rc != DLP_OK) return rc;
        f->column = j->period > 0 ? 0 : k * p->batch_rows;
        if (f->most_run > q->most_run) q->most_run = f->most_run;
        if (f->most_items > q->most_items) q->most_items = f->most_items;
        if (f->d.max_part_bytes > q->d.max_part_bytes) q->d.max_part_bytes = f->d.max_part_bytes;
        q->plan.shuffle_items |= f->plan.shuffle_items;
    }
    q->n_cells = (uint32_t)dlpi_branches_number(j, 0);
    return dlpi_within(p, st->name, "queue.capacity", q->n_cells, 0, DLPI_FOUND_CELLS,
                       "2^22 cells at most in all branches");
}

static bool dlpi_branches_cells_of(const dlpi_stage *st, uint64_t at, dlp_link *to) {
    const dlpi_branches *j = st->self;
    return dlpi_branches_queue(j, at, j->found.n_cells, to);
}

/* ---- memory ---- */

/* Add the areas of the region for the cells of all branches. The cells of each branch have a size
   of their own, but for DLPIPE_DEBUG. */
DLPI_COLD static void dlpi_branches_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_branches *j = st->self;
    uint64_t bytes = 0;
    if (DLPI_DEBUG) {
        dlpi_found_layout(p, st);
        return;
    }
    dlpi_found_counts_layout(p, st);
    dlpi_inputs_records(p, st, j->found.n_cells, j->found.most_run);
    for (uint32_t k = 0; k < j->n; k++) bytes = dlpi_branch_place(&j->at[k], bytes);
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_INPUTS_CELLS), DLPI_PLAN_INPUTS,
                   "part cells of all branches", bytes, 1, 4096);
}

DLPI_COLD static uint64_t dlpi_branches_slot_bytes(const dlp_pipe *p) {
    const dlpi_branches *j = dlpi_branches_of(dlpi_found_of(p));
    const uint64_t rows = j->period > 0 ? p->batch_rows : dlpi_times(p->batch_rows, j->n);
    return dlpi_sum(sizeof(dlpi_source_state), dlpi_times(rows, sizeof(dlpi_found_row)));
}

/* Describe in `out` the heap memory of the stage and of all its branches. Returns the number of
   blocks. */
DLPI_COLD static int dlpi_branches_blocks(const dlp_pipe *p, const dlpi_stage *st,
                                          dlpi_block *out) {
    const dlpi_branches *j = st->self;
    const int n = dlpi_found_blocks(p, st, out);
    out[1].bytes = dlpi_times(out[1].bytes, j->n + 1);
    return n + dlpi_branches_each(j, st, 0, j->found.cursors.n, out + n);
}

/* Set up the stage and its branches, once the region is mapped. Each branch gets its own cells and
   streams; the stage itself has no free cell. */
DLPI_COLD static void dlpi_branches_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_branches *j = st->self;
    dlpi_found *q = &j->found;
    dlpi_found_live(p, st);
    memset(q->spread, 0, sizeof *q->spread);
    q->pool.free = DLPI_FOUND_NONE;
    dlpi_seats_live(p, st, &j->seats);
    for (uint32_t k = 0; k < j->n; k++) {
        dlpi_branch_frees(q, &j->at[k], q->streams + (size_t)(k + 1) * q->cursors.n);
        j->at[k].x.plain = dlpi_input_plain(p, &j->at[k].x);
    }
}

/* ---- states ---- */

DLPI_COLD static void dlpi_branches_config(const dlp_pipe *p, dlpi_state *s) {
    dlpi_branches_hash(dlpi_branches_of(dlpi_found_of(p)), s);
}

static uint64_t dlpi_branches_keeps(const dlp_pipe *p, uint32_t list, uint64_t *inputs) {
    return dlpi_branches_keep(p->source_stage->self, list, inputs);
}

static const dlpi_source_ops dlpi_branches_source = {
    .sizes = dlpi_branches_sizes,
    DLPI_FOUND_BATCHES,
    .slot_bytes = dlpi_branches_slot_bytes,
    .row_bytes = sizeof(dlp_part),
    .row = dlpi_branches_row_extra,
    .origin = dlpi_branches_row_origin,
    .config = dlpi_branches_config,
    .params = "streams, steps_per_epoch, weights, and n_items, order, max_out and id of branches",
    .path = "path up to the zip or mix, position behind it",
    .input = "input",
    .load = dlpi_branches_load,
    .many = dlpi_branches_many,
    .keeps = dlpi_branches_keeps,
};

#define DLPI_BRANCHES_OPS(most) \
    { \
        .kind = DLP_STAGE_EXPAND, .expands = 1, DLPI_OPS_OF_READS, .seen = dlpi_found_seen, \
        .self_bytes = DLPI_BRANCHES_BYTES(most), .check = dlpi_branches_check, \
        .layout = dlpi_branches_layout, .private_words = "input tables", \
        .blocks = dlpi_branches_blocks, .live = dlpi_branches_live, \
        .cells = dlpi_branches_cells_of, .source = &dlpi_branches_source, \
    }

/* The ops for few branches, and the ops for many. */
static const dlpi_stage_ops dlpi_branches_ops[] = {DLPI_BRANCHES_OPS(DLPI_FEW_BRANCHES),
                                                   DLPI_BRANCHES_OPS(DLPI_BRANCHES)};
