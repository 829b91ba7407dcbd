/* needs: parts */
#pragma once
/* tests: system/stages/branches */
#include "inputs/branches.h"
/* ---- zip and mix: workers that make the items of all branches, and rows that are copied ---- */

/* ---- work ---- */

static int dlpi_branches_load(dlpi_worker *w, uint32_t c) {
    const dlpi_branches *j = w->p->source_stage->self;
    const dlpi_branch *b = dlpi_branch_of_cell(j, c);
    return j->ops->load(w, &b->x, c, dlpi_branch_bytes(w->p, b, c));
}

typedef struct dlpi_branches_row { /* of a row, for its copy */
    dlp_part part;                 /* first: dlp_item.part */
    const dlp_pipe *p;
    const dlpi_found_row *row;
} dlpi_branches_row;

static void dlpi_branches_row_extra(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row,
                                    void *extra) {
    dlpi_branches_row *e = extra;
    *e = (dlpi_branches_row){.p = w->p, .row = &dlpi_found_rows_of(w->p, s)[row]};
    it->part = &e->part;
}

/* The fetch stage's callback: an item of each branch, or of one of them, out of its cell. */
static int dlpi_branches_copy(void *user, dlp_item *it) {
    const dlpi_branches *j = user;
    const dlpi_branches_row *e = (const dlpi_branches_row *)(const void *)it->part;
    const uint32_t items = j->period > 0 ? 1 : j->n;
    for (uint32_t k = 0; k < items; k++) {
        const dlpi_found_row *from = e->row + (size_t)k * e->p->batch_rows;
        const dlpi_branch *b = j->period > 0 ? dlpi_branch_of_cell(j, from->cell) : &j->at[k];
        dlp_part part = {.data = dlpi_branch_bytes(e->p, b, from->cell), .item = from->number};
        dlp_item one = {.data = it->data + b->first_field,
                        .length = it->length + b->first_field,
                        .part = &part};
        j->ops->copy((void *)(uintptr_t)&b->x, &one);
    }
    return 0;
}

/* Copy the item at `from` into row r of the cell at `to`. */
static inline void dlpi_branch_copy(const dlpi_branch *b, const dlpi_fields *rows,
                                    const uint8_t *from, uint8_t *to, uint32_t r) {
    const dlpi_level *l = dlpi_expand_last(&b->x);
    for (uint32_t f = 0; f < l->fs.n; f++) {
        const size_t bytes = (size_t)l->fs.at[f].row_bytes;
        uint8_t *at = to + rows->at[b->first_field + f].offset + r * bytes;
        if (bytes == 8)
            memcpy(at, from + l->at[f], 8);
        else
            memcpy(at, from + l->at[f], bytes);
    }
}

/* Copy the items of a claimed unit. */
static uint32_t dlpi_branches_bulk(dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    const dlpi_branches *j = p->source_stage->self;
    const uint32_t items = j->period > 0 ? 1 : j->n;
    uint8_t *to = dlpi_item_cell(p, t->slot);
    for (uint32_t k = 0; k < items; k++) {
        const dlpi_found_row *row = dlpi_found_rows_of(p, t->slot) + (size_t)k * p->batch_rows;
        for (uint32_t r = t->row; r < t->end; r++) {
            const dlpi_branch *b = j->period > 0 ? dlpi_branch_of_cell(j, row[r].cell) : &j->at[k];
            const uint8_t *from = dlpi_branch_bytes(p, b, row[r].cell);
            dlpi_branch_copy(b, &p->items, from + row[r].number * dlpi_expand_last(&b->x)->bytes,
                             to, r);
        }
    }
    return t->end - t->row;
}

/* ---- sizes ---- */

/* What of a branch follows from the run. */
static void dlpi_branch_lengths(const dlpi_found *q, dlpi_branch *b, uint32_t l, uint8_t *bits) {
    dlpi_found *f = &b->x.found;
    f->plan.batch = q->plan.batch;
    f->plan.seed = dlpi_branch_seed(q->plan.seed, l);
    f->plan.own_first = q->plan.own_first;
    f->each = q->each;
    f->cursors = (dlpi_cursors){.first = q->cursors.first, .n = q->cursors.n};
    bits[0] = (uint8_t)dlpi_found_ordinal_bits(&f->plan);
    bits[1] = (uint8_t)dlpi_bits_of(f->most_items);
    f->cursors.ordinal_bits = bits[0];
    f->cursors.used_bits = bits[1];
}

DLPI_COLD static int dlpi_branches_sizes(dlp_pipe *p) {
    dlpi_branches *j = dlpi_branches_of(dlpi_found_of(p));
    dlpi_found *q = &j->found;
    int rc = dlpi_expand_order(p);
    if (rc == DLP_OK) rc = dlpi_expand_rows_check(p);
    if (rc != DLP_OK) return rc;
    if (p->fetch->ops != &j->copies) {
        j->copies = *p->fetch->ops;
        j->copies.bulk = dlpi_branches_bulk;
        p->fetch->ops = &j->copies;
    }
    q->plan.n_inputs = UINT64_MAX;
    for (uint32_t b = 0; b < j->n; b++)
        if (j->at[b].x.found.plan.n_inputs < q->plan.n_inputs)
            q->plan.n_inputs = j->at[b].x.found.plan.n_inputs;
    if ((rc = dlpi_found_lengths(p)) != DLP_OK) return rc;
    q->cursors.ordinal_bits = q->cursors.used_bits = 0;
    q->cursors.lists = j->n;
    q->cursors.phase_bits = j->period > 0 ? dlpi_bits_of(j->period - 1) : 0;
    for (uint32_t b = 0; b < j->n; b++) dlpi_branch_lengths(q, &j->at[b], b, q->cursors.bits[b]);
    return DLP_OK;
}

/* ---- cells ---- */

static int dlpi_branch_check(dlp_pipe *p, dlpi_stage *st, dlpi_branches *j, uint32_t k) {
    dlpi_branch *b = &j->at[k];
    dlpi_expand *x = &b->x;
    dlpi_stage one = *st;
    uint64_t rows = dlpi_found_look(p, &j->found);
    int rc;
    one.self = x;
    dlpi_copy_text(one.name, sizeof one.name, b->name);
    if ((rc = j->ops->bytes(p, &one, x, b->made)) != DLP_OK) return rc;
    if (j->period > 0) rows = dlpi_branches_most(j->schedule, j->period, k, rows);
    return dlpi_found_cells(p, &one, rows, j->period > 0 ? "batch_size, weights" : "batch_size");
}

DLPI_COLD static int dlpi_branches_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_branches *j = st->self;
    dlpi_found *q = &j->found;
    const uint32_t fit = dlpi_cursors_fit(&q->cursors, DLP_SAMPLER_STATE_BYTES);
    uint64_t cells = 0;
    dlpi_found **next = &q->next;
    if (q->cursors.n > fit)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "streams",
                           "this rank reads %" PRIu32 " streams; a state has room for %" PRIu32
                           " paths of %" PRIu32 " bits. Set fewer streams, or more ranks",
                           q->cursors.n, fit, dlpi_cursor_bits(&q->cursors));
    q->d.max_part_bytes = q->most_items = 0;
    q->most_run = 1;
    for (uint32_t k = 0; k < j->n; k++) {
        dlpi_found *f = &j->at[k].x.found;
        const int rc = dlpi_branch_check(p, st, j, k);
        if (rc != DLP_OK) return rc;
        f->all = q;
        f->name = j->at[k].name;
        f->first_cell = (uint32_t)cells;
        f->column = j->period > 0 ? 0 : k * p->batch_rows;
        cells += f->n_cells;
        if (f->most_run > q->most_run) q->most_run = f->most_run;
        if (f->most_items > q->most_items) q->most_items = f->most_items;
        if (f->d.max_part_bytes > q->d.max_part_bytes) q->d.max_part_bytes = f->d.max_part_bytes;
        q->plan.shuffle_items |= f->plan.shuffle_items;
        *next = f;
        next = &f->next;
    }
    q->n_cells = (uint32_t)cells;
    return dlpi_within(p, st->name, "queue.capacity", (int64_t)cells, 0, DLPI_FOUND_CELLS,
                       "65536 cells at most, of all branches");
}

/* ---- memory ---- */

/* The cells of each branch are as large as its own inputs and items. */
DLPI_COLD static void dlpi_branches_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_branches *j = st->self;
    uint64_t bytes = 0;
    if (DLPI_DEBUG) {
        dlpi_found_layout(p, st);
        return;
    }
    dlpi_found_counts_layout(p, st);
    dlpi_inputs_records(p, st, j->found.n_cells, j->found.most_run);
    for (uint32_t k = 0; k < j->n; k++) {
        const dlpi_found *f = &j->at[k].x.found;
        j->at[k].at = bytes = dlpi_round_up(bytes, dlpi_found_align(f));
        j->at[k].stride = dlpi_round_up(f->d.max_part_bytes, dlpi_found_align(f));
        bytes = dlpi_sum(bytes, dlpi_times(j->at[k].stride, f->n_cells));
    }
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_INPUTS_CELLS), DLPI_PLAN_INPUTS,
                   "part cells of all branches", bytes, 1, 4096);
}

DLPI_COLD static uint64_t dlpi_branches_slot_bytes(const dlp_pipe *p) {
    const dlpi_branches *j = dlpi_branches_of(dlpi_found_of(p));
    const uint64_t rows = j->period > 0 ? p->batch_rows : dlpi_times(p->batch_rows, j->n);
    return dlpi_sum(sizeof(dlpi_source_state), dlpi_times(rows, sizeof(dlpi_found_row)));
}

DLPI_COLD static int dlpi_branches_blocks(const dlp_pipe *p, const dlpi_stage *st,
                                          dlpi_block *out) {
    const dlpi_branches *j = st->self;
    const uint64_t streams = j->found.cursors.n;
    int n = dlpi_found_blocks(p, st, out);
    out[1].bytes = dlpi_times(out[1].bytes, j->n + 1);
    out[n++] = (dlpi_block){offsetof(dlpi_branches, schedule), j->period * sizeof *j->schedule};
    out[n++] =
        (dlpi_block){offsetof(dlpi_branches, streams), dlpi_times(streams, sizeof *j->streams)};
    return n;
}

DLPI_COLD static void dlpi_branches_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_branches *j = st->self;
    dlpi_found *q = &j->found;
    dlpi_found_live(p, st);
    memset(q->spread, 0, sizeof *q->spread);
    q->free = q->free_last = DLPI_FOUND_NONE;
    for (uint32_t k = 0; k < j->n; k++) {
        dlpi_found *f = &j->at[k].x.found;
        const uint32_t end = f->first_cell + f->n_cells;
        f->use = q->use;
        f->items = q->items;
        f->counts = q->counts;
        f->streams = q->streams + (size_t)(k + 1) * q->cursors.n;
        for (uint32_t i = 0; i < q->cursors.n; i++)
            f->streams[i].head = f->streams[i].tail = DLPI_FOUND_NONE;
        f->run = 1;
        f->waits = f->waits_last = DLPI_FOUND_NONE;
        f->free = f->first_cell;
        f->free_last = end - 1;
        q->use[end - 1].next = DLPI_FOUND_NONE;
    }
}

/* ---- states ---- */

DLPI_COLD static void dlpi_branches_config(const dlp_pipe *p, dlpi_state *s) {
    const dlpi_branches *j = dlpi_branches_of(dlpi_found_of(p));
    s->params = dlpi_absorb(dlpi_absorb(s->params, j->n), j->period);
    s->params = dlpi_absorb(s->params, j->weights_hash);
    for (uint32_t b = 0; b < j->n; b++)
        s->params = dlpi_found_hash(&j->at[b].x.found.plan,
                                    dlpi_absorb(s->params, j->at[b].x.found.d.manifest_id));
}

static const dlpi_source_ops dlpi_branches_source = {
    .sizes = dlpi_branches_sizes,
    DLPI_FOUND_BATCHES,
    .slot_bytes = dlpi_branches_slot_bytes,
    .row_bytes = sizeof(dlpi_branches_row),
    .row = dlpi_branches_row_extra,
    .config = dlpi_branches_config,
    .params = "streams, steps_per_epoch, weights, and n_items, shuffle, max_out and id of branches",
    .input = "input",
    .load = dlpi_branches_load,
};

static const dlpi_stage_ops dlpi_branches_ops = {
    .kind = DLP_STAGE_EXPAND,
    .expands = 1,
    DLPI_OPS_OF_INPUTS,
    .seen = dlpi_found_seen,
    .self_bytes = sizeof(dlpi_branches),
    .check = dlpi_branches_check,
    .layout = dlpi_branches_layout,
    .private_words = "input tables",
    .blocks = dlpi_branches_blocks,
    .live = dlpi_branches_live,
    .source = &dlpi_branches_source,
};
