/* needs: parts */
#pragma once
/* tests: system/stages/expand, system/inputs/inputs_random */
#include "api/expand.h"
#include "inputs/dataset.h"
#include "inputs/making.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-expand     EXPANDERS AND FILTERS
   The stage is a source of batches, as >>impl-found is. An input is an item of the dataset, known
   by its index. A worker makes items of the input in a cell. The items lie one behind the other,
   each as its lengths and its fields. The input itself lies behind them, if an expander reads it.
   Workers of the fetch stage do not call the user's fetch then: they copy items out of cells into
   rows. A map in which fields end is the last step of its level. The next level has the other
   fields, and its item is a copy of them. Then the items of all levels before the last lie in a
   room of the worker, which is memory of its process. No other worker reads an item that is being
   made. If a worker dies, the next worker begins with the input again. Inputs that are read by
   requests lie in the cell, because a worker has many requests at once. Pushed records lie in the
   cell, too, because they come only once. */

_Static_assert(offsetof(dlpi_expand, found) == 0, "dlpi_found_of");

/* Set it->part to where the item of row `row` of slot s lies. extra: memory for the dlp_part. */
static void dlpi_expand_row(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row, void *extra) {
    const dlpi_found_row *from = &dlpi_found_rows_of(w->p, s)[row];
    dlp_part *part = extra;
    part->data = dlpi_box_bytes(w->p, dlpi_found_of(w->p), from->cell);
    part->item = from->number;
    it->part = part;
}

/* Copy field f of a claimed unit's rows out of their cells; neighbours are copied at once. */
static void dlpi_expand_copy_field(const dlpi_worker *w, const dlpi_unit *t, uint32_t f) {
    const dlp_pipe *p = w->p;
    const dlpi_level *l = dlpi_input_last(p->source_stage->self);
    const dlpi_found_row *row = dlpi_found_rows_of(p, t->slot);
    const size_t bytes = (size_t)p->items.at[f].row_bytes;
    const dlpi_found *q = dlpi_found_of(p);
    const uint8_t *cells = dlpi_box_bytes(p, q, 0) + l->at[f];
    const uint64_t stride = q->boxes.stride;
    uint8_t *to = dlpi_item_cell(p, t->slot) + p->items.at[f].offset;
    const bool dense = l->bytes == bytes && q->plan.window == 0 &&
                       (q->boxes.each > 0 || (q->most_items > 1 && !q->plan.shuffle_items));
    if (!dense && bytes == 8) {
        for (uint32_t r = t->row; r < t->end; r++)
            memcpy(to + r * 8u, cells + row[r].cell * stride + row[r].number * l->bytes, 8);
        return;
    }
    for (uint32_t r = t->row, n; r < t->end; r += n) { /* n: items that lie one behind the other */
        const uint8_t *from = cells + row[r].cell * stride + row[r].number * l->bytes;
        n = 1;
        while (dense && r + n < t->end && row[r + n].cell == row[r].cell &&
               row[r + n].number == row[r].number + n)
            n++;
        memcpy(to + r * bytes, from, n * bytes);
    }
}

/* Copy the items of a claimed unit out of their cells. Returns how many rows are done: all. */
static uint32_t dlpi_expand_bulk(dlpi_worker *w, const dlpi_unit *t) {
    const uint32_t n = dlpi_input_last(w->p->source_stage->self)->fs.n;
    for (uint32_t f = 0; f < n; f++) dlpi_expand_copy_field(w, t, f);
    return t->end - t->row;
}

/* Check the desc of an expand row, which has a callback. Returns 0 or a DLP_ERR code. */
static int dlpi_expand_bounds(dlp_pipe *p, const char *name, const dlp_node_expand *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_node_expand, max_out), 1, 1 << 30, "1..2^30"},
        {DLPI_AT(dlp_node_expand, n_fields), 0, DLP_MAX_FIELDS, "0..16"},
        {DLPI_AT(dlp_node_expand, shuffle_items), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_node_expand, writes_all_bytes), 0, 1, "0 or 1"},
    };
    const int rc = dlpi_check_bounds(p, name, d, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    return dlpi_check_pair(p, name, "fields", d->fields, "n_fields", d->n_fields);
}

/* Check the workers of a stage of inputs, and take its capacity and window (dlpi_found_take_run).
   Returns 0 or a DLP_ERR code. */
static int dlpi_expand_take(dlp_pipe *p, dlpi_stage *st, uint32_t capacity, uint32_t window) {
    const int rc = dlpi_check_input_workers(p, st);
    ((dlpi_expand *)st->self)->found.least_items = 1;
    return rc == DLP_OK ? dlpi_found_take_run(p, st, capacity, window) : rc;
}

/* Let the fetch stage copy items out of cells, and give it the fields of the last level's items.
   Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_expand_fields(dlp_pipe *p, dlpi_stage *st) {
    dlpi_expand *x = st->self;
    dlp_dataset *rows = p->fetch->dataset;
    const int rc = dlpi_input_adopt(p, x, dlpi_input_copy, x);
    if (rc != DLP_OK) return rc;
    dlpi_input_bulk(p, &x->copies, dlpi_expand_bulk);
    rows->fields = dlpi_input_made(st, x, &rows->n_fields);
    return DLP_OK;
}

DLPI_COLD static int dlpi_expand_sizes(dlp_pipe *p) {
    return dlpi_inputs_sizes(p, dlpi_found_of(p), dlpi_expand_fields);
}

/* Compute the sizes of cells, with boxes if these take less memory, and how many cells there are.
   Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_expand_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_expand *x = st->self;
    int rc;
    x->found.boxes.each = 0;
    x->found.boxes.move = dlpi_items_move;
    x->stride = 0;
    rc = dlpi_input_sizes(p, st, x, st->fields);
    x->cached = p->keeper_stage != NULL && x->found.joins == NULL;
    if (rc == DLP_OK)
        dlpi_boxes_choose(p, st, &x->found, dlpi_input_last(x)->bytes, dlpi_input_boxed(p, x));
    if (rc == DLP_OK && x->found.boxes.each > 0) rc = dlpi_input_sizes(p, st, x, st->fields);
    return rc == DLP_OK ? dlpi_found_check(p, st) : rc;
}

/* Set up the stage in the mapped region: its cells and boxes, and the seats of its workers. */
DLPI_COLD static void dlpi_expand_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_expand *x = st->self;
    dlpi_found_live(p, st);
    if (x->found.boxes.each > 0) x->stride = x->found.boxes.cells;
    x->plain = dlpi_input_plain(p, x);
    dlpi_reads_live(p, st, st->self);
}

/* Return the number of a row's item. *list: behind a zip or mix the branch of its first item. */
DLPI_COLD static uint32_t dlpi_expand_origin(dlpi_worker *w, uint32_t s, uint32_t row,
                                             uint64_t epoch DLPI_UNREAD,
                                             uint64_t position DLPI_UNREAD, uint32_t k DLPI_UNREAD,
                                             uint32_t *list) {
    const dlpi_expand *x = w->p->source_stage->self;
    const dlpi_found_row *from = &dlpi_found_rows_of(w->p, s)[row];
    if (x->found.joins != NULL) *list = x->found.joins->origin(w->p, from->cell, NULL);
    return dlpi_item_number(x, dlpi_box_bytes(w->p, &x->found, from->cell), from->number);
}

static int dlpi_expand_load(dlpi_worker *w, uint32_t c) {
    return dlpi_input_load_by(w, w->p->source_stage->self, c);
}

static int dlpi_expand_many(dlpi_worker *w, uint32_t c) {
    return dlpi_inputs_many(w, w->p->source_stage->self, c);
}

static uint64_t dlpi_expand_keeps(const dlp_pipe *p, uint32_t list, uint64_t *inputs) {
    *inputs = list == 0 ? p->fetch->dataset->n_items : 0;
    return ((const dlpi_expand *)p->source_stage->self)->one_bytes;
}

static const dlpi_source_ops dlpi_expand_source = {
    .sizes = dlpi_expand_sizes,
    DLPI_FOUND_SOURCE,
    .row = dlpi_expand_row,
    .origin = dlpi_expand_origin,
    .params = "streams, steps_per_epoch, max_out, id, window",
    .path = DLPI_MAKERS_PATH,
    .input = "input",
    .load = dlpi_expand_load,
    .many = dlpi_expand_many,
    .keeps = dlpi_expand_keeps,
};

static const char *dlpi_op_kind(const dlpi_op *k) {
    return k->how & DLPI_OP_KEEP ? "filter" : k->first > 0 ? "fetch" : "map";
}

/* Append formatted words to a text. A comma comes first if the text is not empty. */
DLPI_PRINTF(3, 4) static void dlpi_what_add(char *text, size_t size, const char *format, ...) {
    const size_t n = strlen(text);
    char more[48];
    DLPI_PRINT(more, sizeof more, format);
    snprintf(text + n, size - n, "%s%s", n > 0 ? ", " : "", more);
}

/* Write for the plan what the workers of a cell do, in the order of the rows. */
DLPI_COLD static void dlpi_expand_what(const dlpi_stage *st, char *text, size_t size) {
    const dlpi_expand *x = st->self;
    text[0] = 0;
    if (x->part.load != NULL) dlpi_what_add(text, size, "load");
    for (uint32_t i = 0; i < x->n_levels; i++) {
        const dlpi_level *l = &x->level[i];
        const dlpi_program *g = &l->program;
        for (uint32_t k = 0, n; k < g->n; k += n) {
            const char *kind = dlpi_op_kind(&g->op[k]);
            for (n = 1; k + n < g->n && dlpi_op_kind(&g->op[k + n]) == kind;) n++;
            if (n > 1)
                dlpi_what_add(text, size, "%" PRIu32 " %s%s", n, kind, kind[1] == 'e' ? "es" : "s");
            else
                dlpi_what_add(text, size, "%s", kind);
        }
        if (l->maker.expand != NULL)
            dlpi_what_add(text, size, l->part.load != NULL ? "load" : "expand");
        if (l->ends != 0)
            dlpi_what_add(text, size, "%d end%s", DLPI_ONES(l->ends),
                          (l->ends & (l->ends - 1)) == 0 ? "s" : "");
    }
    if (text[0] == 0) dlpi_what_add(text, size, "filter");
    if (x->found.plan.window > 0)
        dlpi_what_add(text, size, "window %" PRIu64, (uint64_t)x->found.plan.window);
    if (x->found.plan.group > 0)
        dlpi_what_add(text, size, "groups of %" PRIu64, (uint64_t)x->found.plan.group);
}

static const dlpi_stage_ops dlpi_expand_ops = {
    .kind = DLP_STAGE_EXPAND,
    .what = dlpi_expand_what,
    .expands = 1,
    DLPI_OPS_OF_READS,
    .layout = dlpi_found_layout,
    .blocks = dlpi_input_blocks,
    .live = dlpi_expand_live,
    .seen = dlpi_found_seen,
    .self_bytes = sizeof(dlpi_expand),
    .check = dlpi_expand_check,
    .private_words = "input tables",
    .room = dlpi_rooms_each,
    .source = &dlpi_expand_source,
};
