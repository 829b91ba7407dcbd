/* needs: parts */
#pragma once
/* tests: system/stages/expand, system/inputs/inputs_random */
#include "api/expand.h"
#include "inputs/dataset.h"
#include "inputs/reads.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-expand     EXPANDERS AND FILTERS
   The same source: an input is a dataset index, and its cell has the items that were made of it,
   one after the other, each as its lengths and its fields; after them the input itself, where
   expand reads one. Fetch, whose workers otherwise call the user, copies items into rows. */

#define DLPI_EXPAND_RUN_BYTES 8192u       /* of the inputs of a cell, where they are several, and */
#define DLPI_EXPAND_CELLS_BYTES 0x400000u /* of all cells that are needed */

_Static_assert(offsetof(dlpi_expand, found) == 0, "dlpi_found_of");

/* The fetch stage's callback: the item of a row, out of its cell. */
static int dlpi_expand_copy(void *user, dlp_item *it) {
    const dlpi_expand *x = user;
    const uint8_t *from = it->part->data;
    const uint64_t *lengths = it->part->data;
    from += it->part->item * x->out_bytes;
    lengths += it->part->item * (x->out_bytes / 8);
    for (uint32_t f = 0; f < x->out.n; f++) {
        memcpy(it->data[f], from + x->out_at[f], (size_t)x->out.at[f].row_bytes);
        if (x->out.at[f].f.ragged) it->length[f] = lengths[f];
    }
    return 0;
}

/* What that callback needs. */
static void dlpi_expand_row(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row, void *extra) {
    const dlpi_found_row *from = &dlpi_found_rows_of(w->p, s)[row];
    dlp_part *part = extra;
    part->data = dlpi_input_bytes(w->p, from->cell);
    part->item = from->number;
    it->part = part;
}

static void dlpi_expand_copy_field(const dlpi_worker *w, const dlpi_unit *t, uint32_t f) {
    const dlp_pipe *p = w->p;
    const dlpi_expand *x = p->source_stage->self;
    const dlpi_found_row *row = dlpi_found_rows_of(p, t->slot);
    const size_t bytes = (size_t)p->items.at[f].row_bytes;
    const uint8_t *cells = dlpi_input_bytes(p, 0) + x->out_at[f];
    const uint64_t stride = p->inputs[DLPI_INPUTS_CELLS].stride;
    uint8_t *to = dlpi_item_cell(p, t->slot) + p->items.at[f].offset;
    for (uint32_t r = t->row; r < t->end; r++) {
        const uint8_t *from = cells + row[r].cell * stride + row[r].number * x->out_bytes;
        if (bytes == 8)
            memcpy(to + r * 8u, from, 8);
        else
            memcpy(to + r * bytes, from, bytes);
    }
}

/* Copy the items of a claimed unit. */
static uint32_t dlpi_expand_bulk(dlpi_worker *w, const dlpi_unit *t) {
    const dlpi_expand *x = w->p->source_stage->self;
    for (uint32_t f = 0; f < x->out.n; f++) dlpi_expand_copy_field(w, t, f);
    return t->end - t->row;
}

static int dlpi_expand_take(dlp_pipe *p, dlpi_stage *st, const dlp_expand_desc *d) {
    dlpi_expand *x = st->self;
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_expand_desc, max_out), 0, 1 << 30, "1..2^30, or 0 without expand"},
        {DLPI_AT(dlp_expand_desc, n_fields), 0, DLP_MAX_FIELDS, "0..16"},
        {DLPI_AT(dlp_expand_desc, queue_size), 0, DLPI_FOUND_CELLS, "0..2^16"},
        {DLPI_AT(dlp_expand_desc, streams), 0, 1 << 16, "0..2^16, a divisor of batch_size"},
        {DLPI_AT(dlp_expand_desc, shuffle_items), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_expand_desc, window), 0, DLPI_FOUND_WINDOW, "0..2^24"},
    };
    int rc = dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (rc != DLP_OK) return rc;
    rc = dlpi_check_pair(p, st->name, "fields", d->fields, "n_fields", d->n_fields);
    if (rc != DLP_OK) return rc;
    if (d->expand != NULL && d->max_out == 0)
        return dlpi_bad(p, st->name, "max_out", "1 and more with expand", 0);
    if (d->expand == NULL && d->max_out > 1)
        return dlpi_bad(p, st->name, "max_out", "0 or 1 without expand", d->max_out);
    if (d->expand == NULL && d->n_fields != 0)
        return dlpi_bad(p, st->name, "n_fields", "0 without expand: items are what fetch writes",
                        (int64_t)d->n_fields);
    if ((rc = dlpi_check_input_workers(p, st)) != DLP_OK) return rc;
    x->d = *d;
    x->found.d = (dlp_part_desc){.manifest_id = d->id,
                                 .queue_size = d->queue_size,
                                 .max_items = d->expand ? d->max_out : 1,
                                 .steps_per_epoch = d->steps_per_epoch,
                                 .uneven = d->uneven,
                                 .shared_streams = d->shared_streams,
                                 .agree = d->agree,
                                 .agree_user = d->agree_user};
    x->found.most_items = x->found.d.max_items;
    x->found.least_items = 1;
    x->found.plan.streams = d->streams ? d->streams : 1;
    x->found.plan.most = x->found.most_items;
    x->found.plan.window = d->window;
    x->found.plan.shuffle_items = d->shuffle_items != 0;
    if ((rc = dlpi_found_take_ends(p, st)) != DLP_OK) return rc;
    return dlpi_keep_fields(p, st, d->fields, d->n_fields);
}

/* The fields of the items are the stage's own, if it has any. */
static int dlpi_expand_fields(dlp_pipe *p, dlpi_stage *st) {
    dlpi_expand *x = st->self;
    dlpi_stage *fetch = p->fetch;
    int rc = dlpi_expand_adopt(p, x, dlpi_expand_copy, x);
    if (rc == DLP_OK && fetch->ops != &x->copies) {
        x->copies = *fetch->ops;
        x->copies.bulk = dlpi_expand_bulk;
        fetch->ops = &x->copies;
    }
    if (rc != DLP_OK || x->d.n_fields == 0) return rc;
    fetch->dataset->fields = st->fields;
    fetch->dataset->n_fields = st->n_fields;
    return DLP_OK;
}

static int dlpi_expand_sizes(dlp_pipe *p) {
    return dlpi_expand_inputs(p, dlpi_found_of(p), dlpi_expand_fields);
}

/* How many inputs a cell has at most. Where the desc says how many cells there are, they are those
   of an input each; items in another order have one for each cell. */
static uint32_t dlpi_expand_run(const dlp_pipe *p, const dlpi_expand *x) {
    const dlpi_found *q = &x->found;
    uint64_t needed = dlpi_times(dlpi_found_rows_needed(p, q) + 1, q->cursors.n), most, fit;
    uint64_t one = x->one_bytes > 0 ? x->one_bytes : 1, all = dlpi_times(needed, one);
    if (DLPI_DEBUG || x->found.in_flight > 0 || x->d.queue_size > 0 || dlpi_found_shuffled(q) ||
        all == 0)
        return 1;
    most = DLPI_EXPAND_RUN_BYTES / one;
    fit = DLPI_EXPAND_CELLS_BYTES / all;
    if (most > fit) most = fit;
    return most > DLPI_INPUT_RUN ? DLPI_INPUT_RUN : most > 1 ? (uint32_t)most : 1;
}

/* The fields of the items that lie in cells: those that the stages after fetch add are not among
   them. */
static void dlpi_expand_outs(const dlp_pipe *p, dlpi_expand *x) {
    x->out = p->items;
    x->out.n = p->fetch->dataset->n_fields;
    x->out.any_ragged = 0;
    for (uint32_t f = 0; f < x->out.n; f++) x->out.any_ragged |= x->out.at[f].f.ragged != 0;
}

/* What a cell has, once the fields are known. */
static int dlpi_expand_bytes(dlp_pipe *p, const char *name, dlpi_expand *x) {
    x->in_bytes = dlpi_expand_places(&x->in, x->in_at);
    x->out_bytes = dlpi_expand_places(&x->out, x->out_at);
    x->one_bytes = dlpi_times(x->found.most_items, x->out_bytes);
    x->found.most_run = dlpi_expand_run(p, x);
    x->input_at = dlpi_round_up(dlpi_times(x->found.most_run, x->one_bytes), 64);
    x->found.d.max_part_bytes = dlpi_sum(x->input_at, x->d.expand ? x->in_bytes : 0);
    dlpi_arrived_place(x);
    if (x->one_bytes > DLPI_CELL_MAX || x->found.d.max_part_bytes > DLPI_CELL_MAX)
        return dlpi_bad(p, name, "max_out", "at most 2^46 bytes of items", x->d.max_out);
    return DLP_OK;
}

static int dlpi_expand_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_expand *x = st->self;
    int rc = dlpi_fields_init(p, st->name, &x->in, x->input.fields, x->input.n_fields, false);
    if (rc != DLP_OK) return rc;
    dlpi_expand_outs(p, x);
    rc = dlpi_expand_bytes(p, st->name, x);
    return rc == DLP_OK ? dlpi_found_check(p, st) : rc;
}

/* ---- an input is made ---- */

/* What the calls of one expand have in common. The callback may write over x and item, so the
   library goes by what lies between these. */
typedef struct dlpi_making {
    dlp_expand x; /* first: what the callback sees */
    const dlpi_expand *by;
    uint8_t *cell, *input; /* places of its items, and of itself */
    uint32_t made;         /* items so far */
    uint32_t asked;        /* the filters have been asked for so many of them */
    int wrong;             /* what a filter came to: a code, or 0 */
    bool above;            /* more than max_out were asked for */
    dlp_item given;        /* the input, without its fields */
    dlp_item item;
    dlpi_expand_item fields;
} dlpi_making;

/* Ask the filters for the item that was made last. Its place is free again if one leaves it out. */
static void dlpi_making_ask(dlpi_making *m) {
    /* cppcheck-suppress ctuuninitvar; by is set */
    const dlpi_expand *x = m->by;
    dlpi_worker *w = m->given.call->w;
    int rc;
    if (m->made == m->asked || x->of_items.n == 0 || m->wrong != 0) return;
    uint8_t *to = m->cell + (m->made - 1) * x->out_bytes;
    rc = dlpi_expand_lengths(w, &x->out, (const uint64_t *)(void *)to);
    if (rc == 0) rc = dlpi_keeps_ask(w, &x->of_items, m->given, to, &x->out, x->out_at);
    if (rc == DLP_SKIP)
        m->made--;
    else
        m->wrong = rc;
    m->asked = m->made;
}

/* Let expand make items of the input that fetch, where there is one, writes after them. */
static int dlpi_expand_make(dlpi_worker *w, uint32_t c, dlpi_making *m, dlp_item *in,
                            uint64_t *items) {
    /* cppcheck-suppress ctuuninitvar; by is set */
    const dlpi_expand *x = m->by;
    dlpi_expand_item fields;
    int rc;
    m->given = *in;
    m->made = m->asked = 0;
    m->wrong = 0;
    m->above = false;
    rc = dlpi_expand_fetch(w, x, c, in, m->input, &fields);
    *in = m->given;
    dlpi_expand_point(in, m->input, &x->in, x->in_at, &fields);
    m->x = (dlp_expand){.item = in, .call = &w->note};
    if (rc == 0) rc = x->d.expand(x->d.user, &m->x);
    if (rc == 0) dlpi_making_ask(m);
    if (m->wrong != 0) return m->wrong;
    if (rc == 0 && m->above)
        return dlpi_say(w, DLP_ERR_LENGTH, "expand made more than max_out %" PRIu32 " items",
                        x->d.max_out);
    for (uint64_t i = 0; x->out.any_ragged && i < m->made && rc == 0; i++)
        rc =
            dlpi_expand_lengths(w, &x->out, (const uint64_t *)(void *)(m->cell + i * x->out_bytes));
    *items = m->made;
    return rc;
}

/* Make the items of the next input of cell c, whose bytes are at `to`, as x says. */
static int dlpi_expand_load_by(dlpi_worker *w, const dlpi_expand *x, uint32_t c, uint8_t *to) {
    dlpi_input *cell = dlpi_input_at(w->p, c);
    dlp_item in = dlpi_expand_in(w, cell);
    dlpi_making m;
    uint64_t items = 1;
    int rc = dlpi_call_verdict(w, cell->killed_by, cell->rec);
    in.seed = x->found.plan.seed;
    if (rc != 0) return rc;
    if (x->d.expand != NULL) {
        m.by = x;
        m.cell = to + cell->made * x->one_bytes;
        m.input = to + x->input_at;
        rc = dlpi_expand_make(w, c, &m, &in, &items);
    } else { /* a filter: the input is the item */
        dlpi_expand_item fields;
        rc = dlpi_expand_fetch(w, x, c, &in, to + cell->made * x->one_bytes, &fields);
    }
    if (rc == DLP_SKIP) rc = 0, items = 0;
    rc = dlpi_redzone_input(w, c, x->found.all->d.max_part_bytes, dlpi_item_returned(w, rc));
    if (rc != 0) return rc;
    cell->items = items;
    cell->bytes = items * x->out_bytes;
    return 0;
}

static int dlpi_expand_load(dlpi_worker *w, uint32_t c) {
    return dlpi_expand_load_by(w, w->p->source_stage->self, c, dlpi_input_bytes(w->p, c));
}

static const dlpi_source_ops dlpi_expand_source = {
    .sizes = dlpi_expand_sizes,
    DLPI_FOUND_SOURCE,
    .row = dlpi_expand_row,
    .params = "streams, steps_per_epoch, max_out, id, window",
    .input = "input",
    .load = dlpi_expand_load,
};

static const char *dlpi_filters_what(uint32_t n, char *text, size_t size) {
    if (n > 1) snprintf(text, size, "%" PRIu32 " filters", n);
    return n > 1 ? text : n == 1 ? "filter" : "";
}

static void dlpi_expand_what(const dlpi_stage *st, char *text, size_t size) {
    const dlpi_expand *x = st->self;
    const bool expands = x->d.expand != NULL;
    const uint32_t before = x->of_inputs.n, after = x->of_items.n;
    char first[24], second[24], window[24] = "";
    if (x->d.window > 0) snprintf(window, sizeof window, ", window %" PRIu32, x->d.window);
    snprintf(text, size, "%s%s%s%s%s%s",
             dlpi_filters_what(before == 0 && !expands ? 1 : before, first, sizeof first),
             before > 0 && expands ? ", " : "", expands ? "expand" : "", after > 0 ? ", " : "",
             dlpi_filters_what(after, second, sizeof second), window);
}

static const dlpi_stage_ops dlpi_expand_ops = {
    .kind = DLP_STAGE_EXPAND,
    .what = dlpi_expand_what,
    .expands = 1,
    DLPI_OPS_OF_FOUND,
    .self_bytes = sizeof(dlpi_expand),
    .check = dlpi_expand_check,
    .private_words = "input tables",
    .source = &dlpi_expand_source,
};
