/* needs: parts */
#pragma once
/* tests: system/stages/branches, system/stages/behind */
#include "inputs/branches.h"
#include "inputs/making.h"
/* ---- the cells of branches, and the copies of items out of them ---- */

/* Copy the items of one joined row out of their cells, into the fields of `it`. A zip copies an
   item of each branch, a mix one item. row: where the first item lies. next: the distance to where
   the next item lies, in elements of `row`. */
static void dlpi_branches_items(const dlp_pipe *p, const dlpi_branches *j,
                                const dlpi_found_row *row, size_t next, const dlp_item *it) {
    const uint32_t items = j->period > 0 ? 1 : j->n;
    for (uint32_t k = 0; k < items; k++) {
        const dlpi_found_row *from = row + k * next;
        const dlpi_branch *b = j->period > 0 ? dlpi_branch_of_cell(j, from->cell) : &j->at[k];
        dlp_part part = {.data = dlpi_input_cell_at(p, &b->x, from->cell), .item = from->number};
        dlp_item one = {.data = it->data + b->first_field,
                        .length = it->length + b->first_field,
                        .part = &part};
        dlpi_input_copy((void *)(uintptr_t)&b->x, &one);
    }
}

/* Return the branch of a joined row's first item, which lies at *row. *number: gets the item's
   number, or NULL. */
static uint32_t dlpi_branches_origin(const dlp_pipe *p, const dlpi_branches *j,
                                     const dlpi_found_row *row, uint64_t *number) {
    const dlpi_branch *b = dlpi_branch_of_cell(j, row->cell);
    const uint8_t *cell = dlpi_input_cell_at(p, &b->x, row->cell);
    if (number != NULL) *number = dlpi_item_number(&b->x, cell, row->number);
    return (uint32_t)(b - j->at);
}

/* Try once to load the next input of cell c, a branch's. Returns 0 or the failed input's code. */
static int dlpi_branch_load(dlpi_worker *w, const dlpi_branches *j, uint32_t c) {
    const dlpi_branch *b = dlpi_branch_of_cell(j, c);
    const int rc = dlpi_input_load_by(w, &b->x, c);
    if (DLPI_UNLIKELY(rc != 0 && w->note.row == NULL)) w->note.row = dlpi_row_named(w->p, b->name);
    return rc;
}

/* Set those values of the branches of source q that follow from the run: batch, seed, streams and
   cursors. The bits of q's cursor grow to those of each branch. Returns 0 or a DLP_ERR code. It
   fails if a branch has fewer inputs than there are streams. */
static int dlpi_branches_lengths(dlp_pipe *p, dlpi_found *q, dlpi_branches *j) {
    q->cursors.ordinal_bits = q->cursors.near_bits = 0;
    q->cursors.lists = j->n;
    q->cursors.phase_bits = dlpi_branches_phase_bits(j);
    for (uint32_t l = 0; l < j->n; l++) {
        dlpi_branch *b = &j->at[l];
        dlpi_found *f = &b->x.found;
        uint8_t *bits = q->cursors.bits[l]; /* of an ordinal, and of a count of used items */
        if (q->plan.streams > f->plan.n_inputs)
            return dlpi_refuse(p, DLP_ERR_ARG, b->name, "streams",
                               "streams is %" PRIu64 ", must be at most the number of inputs, "
                               "%" PRIu64,
                               q->plan.streams, f->plan.n_inputs);
        f->plan.batch = q->plan.batch;
        f->plan.seed = b->order.seed = dlpi_order_seed(q->plan.seed, l);
        f->plan.own_first = q->plan.own_first;
        f->each = q->each;
        if (f->plan.weights && !dlpi_found_deal(&f->plan))
            return dlpi_no_memory(p, "weights", "dealing the parts");
        bits[0] = (uint8_t)dlpi_found_ordinal_bits(&f->plan);
        bits[1] = (uint8_t)dlpi_bits_of(f->most_items);
        f->cursors = (dlpi_cursors){.first = q->cursors.first, .n = q->cursors.n};
        f->cursors.near_bits = dlpi_found_near_bits(&f->plan);
        f->cursors.ordinal_bits = bits[0];
        f->cursors.used_bits = bits[1];
        if (q->cursors.near_bits < f->cursors.near_bits)
            q->cursors.near_bits = f->cursors.near_bits;
    }
    return DLP_OK;
}

/* Check the cells of branch k, and compute their bytes and how many of them the branch needs. rows:
   joined rows that must be known at once. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_branch_check(dlp_pipe *p, const dlpi_stage *st, dlpi_branches *j,
                                       uint32_t k, uint64_t rows) {
    dlpi_branch *b = &j->at[k];
    dlpi_expand *x = &b->x;
    dlpi_stage one = *st;
    int rc;
    one.self = x;
    x->cached = p->keeper_stage != NULL;
    x->list = (uint8_t)k;
    one.w.num_workers = (int32_t)j->seats.at[b->seat].n_workers;
    dlpi_copy_text(one.name, sizeof one.name, b->name);
    if ((rc = dlpi_input_sizes(p, &one, x, b->made)) != DLP_OK) return rc;
    if (j->period > 0) rows = dlpi_branches_most(j, k, rows);
    rows = 1 + (rows - 1 + x->found.least_items - 1) / x->found.least_items;
    return dlpi_found_cells(p, &one, rows, j->period > 0 ? "batch_size, weights" : "batch_size");
}

/* Return the bytes of an input's items in branch number `list`, for a cache, and the number of its
   inputs; 0: there is no such branch. */
static uint64_t dlpi_branches_keep(const dlpi_branches *j, uint32_t list, uint64_t *inputs) {
    *inputs = list < j->n ? j->at[list].x.input.n_items : 0;
    return list < j->n ? j->at[list].x.one_bytes : 0;
}

/* Write into `to` the queue of the branch whose first cell is cell `at`. all: cells of all
   branches. Returns true if cells of other branches follow. */
static bool dlpi_branches_queue(const dlpi_branches *j, uint64_t at, uint64_t all, dlp_link *to) {
    uint32_t k = 0;
    while (j->at[k].x.found.first_cell != at) k++;
    const dlpi_found *f = &j->at[k].x.found;
    dlpi_copy_text(to->from, sizeof to->from, j->at[k].name);
    if (f->arrivals != NULL) to->from_stage = f->arrivals->st->id;
    to->capacity = f->n_cells;
    return at + to->capacity < all;
}

/* Place the cells of a branch behind the first `bytes` bytes of a common area. Returns the bytes
   that the area has with these cells. */
static uint64_t dlpi_branch_place(dlpi_branch *b, uint64_t bytes) {
    dlpi_expand *x = &b->x;
    x->at = dlpi_round_up(bytes, dlpi_found_align(&x->found));
    x->stride = dlpi_round_up(x->found.d.max_part_bytes, dlpi_found_align(&x->found));
    return dlpi_sum(x->at, dlpi_times(x->stride, x->found.n_cells));
}

/* Prepare branch b before the pipe starts: its order is computed, and all of its cells become free.
   The branch uses the arrays of cells of the source q. streams: memory for the branch's own array
   of streams. */
static void dlpi_branch_frees(dlpi_found *q, dlpi_branch *b, dlpi_found_stream *streams) {
    dlpi_found *f = &b->x.found;
    if (!dlpi_order_plain(&b->order)) {
        dlpi_order_build(&b->order, b->x.input.n_items, b->table);
        dlpi_order_init(&f->plan.order, &b->order, b->x.input.n_items, b->table);
    }
    f->use = f->box = q->use;
    f->items = q->items;
    f->counts = q->counts;
    f->streams = streams;
    dlpi_found_frees(f);
}

#define DLPI_BRANCH_BLOCKS 6
_Static_assert(DLPI_BLOCKS >= DLPI_BRANCHES * DLPI_BRANCH_BLOCKS + 32, "blocks of all branches");

/* Describe in out[0..5] the heap memory of branch k, for allocating and freeing it. A block that
   this branch does not need has 0 bytes. base: offset of j in the self of its stage. Returns 6. */
static int dlpi_branch_blocks(const dlpi_branches *j, size_t base, uint32_t k, dlpi_block *out) {
    const dlpi_branch *b = &j->at[k];
    const dlpi_found_plan *plan = &b->x.found.plan;
    const size_t at = base + offsetof(dlpi_branches, at) + k * sizeof *b;
    const size_t of_plan = at + offsetof(dlpi_branch, x.found.plan);
    const uint64_t orders = plan->weights && plan->shuffle_inputs ? j->found.cursors.n : 0;
    out[0] = (dlpi_block){at + offsetof(dlpi_branch, in),
                          b->in ? b->x.input.n_fields * DLPI_FIELD_KEPT : 0};
    out[1] =
        (dlpi_block){at + offsetof(dlpi_branch, made), b->made ? b->n_made * DLPI_FIELD_KEPT : 0};
    out[2] = (dlpi_block){at + offsetof(dlpi_branch, x.firsts), dlpi_input_firsts_bytes(&b->x)};
    out[3] = (dlpi_block){of_plan + offsetof(dlpi_found_plan, weights),
                          plan->weights ? dlpi_found_weights_bytes(plan) : 0};
    out[4] = (dlpi_block){of_plan + offsetof(dlpi_found_plan, own_passes),
                          dlpi_times(orders, sizeof *plan->own_passes)};
    out[5] = (dlpi_block){at + offsetof(dlpi_branch, table),
                          dlpi_order_table_bytes(&b->order, b->x.input.n_items)};
    return DLPI_BRANCH_BLOCKS;
}

/* Describe in `out` the heap memory of the branches of stage st, which has so many streams. base:
   offset of j in the self of the stage. Returns the number of blocks. */
DLPI_COLD static int dlpi_branches_each(const dlpi_branches *j, const dlpi_stage *st, size_t base,
                                        uint64_t streams, dlpi_block *out) {
    int n = 4;
    out[0] =
        (dlpi_block){base + offsetof(dlpi_branches, schedule), j->places * sizeof *j->schedule};
    out[1] = (dlpi_block){base + offsetof(dlpi_branches, streams),
                          dlpi_times(streams, sizeof *j->streams)};
    out[2] = (dlpi_block){base + offsetof(dlpi_branches, drawn),
                          dlpi_times(streams, j->most * sizeof *j->drawn)};
    out[3] = dlpi_seats_block(&j->seats, st, base + offsetof(dlpi_branches, seats));
    for (uint32_t k = 0; k < j->most; k++) n += dlpi_branch_blocks(j, base, k, out + n);
    return n;
}

/* Let the branches of source q be its further lists, in their order. */
DLPI_COLD static void dlpi_branches_link(dlpi_branches *j, dlpi_found *q) {
    dlpi_found **next = &q->next;
    for (uint32_t k = 0; k < j->n; k++) {
        dlpi_found *f = &j->at[k].x.found;
        f->all = q;
        f->name = j->at[k].name;
        *next = f;
        next = &f->next;
    }
}

/* Number the cells of all branches from cell n on, those of a seat side by side. Returns one more
   than the last. */
static uint64_t dlpi_branches_number(dlpi_branches *j, uint64_t n) {
    for (uint32_t seat = 0; seat < j->seats.n; seat++) {
        const uint64_t first = n;
        for (uint32_t k = 0; k < j->n; k++) {
            dlpi_found *f = &j->at[k].x.found;
            if (j->at[k].seat != seat) continue;
            f->first_cell = (uint32_t)n;
            n += f->n_cells;
        }
        if (n == first) continue; /* that of joined rows */
        j->seats.at[seat].first = (uint32_t)first;
        j->seats.at[seat].end = (uint32_t)n;
    }
    return n;
}

/* Add all that the order of the branches follows from to the state's hash of parameters. A state
   then fits only a pipe with the same branches, weights and manifests. */
DLPI_COLD static void dlpi_branches_hash(const dlpi_branches *j, dlpi_state *s) {
    const uint64_t legs = j->has_legs ? DLPI_DRAW_BITS : 0; /* each stream says which (states) */
    s->params = dlpi_absorb(dlpi_absorb(s->params, j->n), legs ? legs : j->period);
    s->params = dlpi_absorb(s->params, legs ? 0 : j->weights_hash);
    for (uint32_t k = 0; k < j->n; k++) {
        const dlpi_branch *b = &j->at[k];
        const dlpi_found *f = &b->x.found;
        s->params = dlpi_found_hash(&f->plan, dlpi_absorb(s->params, f->d.manifest_id));
        if (!dlpi_order_plain(&b->order))
            s->params = dlpi_absorb(dlpi_absorb(s->params, (uint64_t)b->order.order),
                                    dlpi_order_params_hash(&b->order, b->x.input.n_items));
    }
}
