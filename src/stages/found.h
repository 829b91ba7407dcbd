/* needs: parts */
#pragma once
/* tests: system/stages/found, system/stages/found_spread */
#include "inputs/states.h"
/* ---- parts of unknown count: what their desc may say, and a load ---- */

/* Check the desc of parts whose items `load` counts. Returns 0 or the code of the first error. */
static int dlpi_found_bounds(dlp_pipe *p, const dlpi_stage *st, const dlp_node_load *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_node_load, n_parts), 1, INT64_C(1) << 31,
         "1..2^31 (in a table: list.n_items)"},
        {DLPI_AT(dlp_node_load, max_part_bytes), 1, DLPI_CELL_MAX, "1..2^46"},
        {DLPI_AT(dlp_node_load, shuffle_parts), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_node_load, shuffle_items), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_node_load, max_items), 1, INT64_C(1) << 31, "1..2^31"},
        {DLPI_AT(dlp_node_load, min_items), 0, INT64_C(1) << 31, "0..max_items"},
        {DLPI_AT(dlp_node_load, load), 1, 1, "the function that reads a part"},
    };
    dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (d->min_items > d->max_items)
        dlpi_bad(p, st->name, "min_items", "0..max_items", (int64_t)d->min_items);
    return p->err.code != 0 ? p->err.code : dlpi_check_input_workers(p, st);
}

/* Copy the weights of parts, and allocate the tables of the deal that follows from them. Returns 0
   or a DLP_ERR code. */
static int dlpi_found_take_weights(dlp_pipe *p, dlpi_stage *st, const uint64_t *weights) {
    dlpi_found_plan *q = &((dlpi_found *)st->self)->plan;
    uint64_t sum = 0;
    q->weights = calloc(1, (size_t)dlpi_found_weights_bytes(q));
    if (q->weights == NULL) return dlpi_no_memory(p, "weights", "the parts' weights");
    q->first = q->weights + q->n_inputs;
    q->members = (uint32_t *)(void *)(q->first + q->streams + 1);
    for (uint64_t i = 0; i < q->n_inputs; i++) {
        q->weights[i] = weights[i];
        if (weights[i] > (UINT64_C(1) << 62) - sum)
            return dlpi_refuse(p, DLP_ERR_ARG, st->name, "weights",
                               "weights[%" PRIu64 "] = %" PRIu64 " takes the sum above 2^62", i,
                               weights[i]);
        sum += weights[i];
    }
    q->weights_hash = dlpi_order_hash_array(0, weights, q->n_inputs);
    return DLP_OK;
}

/* Check the desc of parts whose items `load` counts, and copy it into the stage. Returns 0 or a
   DLP_ERR code. */
static int dlpi_found_take(dlp_pipe *p, dlpi_stage *st, const dlp_node_load *d) {
    dlpi_found *q = st->self;
    int rc = dlpi_found_bounds(p, st, d);
    if (rc != DLP_OK) return rc;
    q->d = *d;
    q->most_items = d->max_items;
    q->least_items = d->min_items ? d->min_items : 1;
    q->plan.n_inputs = d->n_parts;
    q->plan.most = d->max_items;
    q->plan.shuffle_inputs = d->shuffle_parts != 0;
    q->plan.shuffle_items = d->shuffle_items != 0;
    rc = dlpi_found_take_run(p, st, d->queue_size, d->window);
    return rc == DLP_OK && d->weights != NULL ? dlpi_found_take_weights(p, st, d->weights) : rc;
}

/* Set the number of parts and the epoch's length. Returns 0 or a DLP_ERR code. It fails if the
   dataset has another n_items, since items are counted on load. */
DLPI_COLD static int dlpi_found_sizes(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    dlp_dataset *ds = p->fetch->dataset;
    int rc;
    if ((rc = dlpi_found_refuses(p)) != DLP_OK) return rc;
    if (ds->n_items != 0 && ds->n_items != q->plan.n_inputs)
        return dlpi_refuse(p, DLP_ERR_ARG, p->fetch->name, "source.dataset.n_items",
                           "n_items is %" PRIu64 ", must be 0 where load counts the items of parts",
                           ds->n_items);
    ds->n_items = q->plan.n_inputs;
    if ((rc = dlpi_check_items(p)) != DLP_OK) return rc;
    return dlpi_found_lengths(p);
}

/* ---- an input is loaded ---- */

/* Try once to load the next part of cell c, and store how many items it has. Returns 0 or the code
   of the failure. */
static int dlpi_found_load(dlpi_worker *w, uint32_t c) {
    const dlpi_found *q = dlpi_found_of(w->p);
    dlp_part part = {0};
    int rc = dlpi_input_part(w, c, &q->d, dlpi_input_bytes(w->p, c), q->d.max_part_bytes, &part);
    dlpi_input_at(w->p, c)->items = part.items;
    return rc != 0 ? rc : dlpi_part_counted(w, &q->d, part.items);
}

static const dlpi_source_ops dlpi_found_source = {
    .sizes = dlpi_found_sizes,
    DLPI_FOUND_SOURCE,
    .row = dlpi_found_row_part,
    .origin = dlpi_found_number,
    .params = "streams, steps_per_epoch, max_items, manifest, weights, window",
    .input = "part",
    .load = dlpi_found_load,
};

DLPI_COLD static void dlpi_found_what(const dlpi_stage *st, char *text, size_t size) {
    const uint32_t window = ((const dlpi_found *)st->self)->d.window;
    if (window > 0) snprintf(text, size, "load, window %" PRIu32, window);
}

static const dlpi_stage_ops dlpi_found_ops = {
    .kind = DLP_STAGE_FOUND,
    .what = dlpi_found_what,
    DLPI_OPS_OF_FOUND,
    .self_bytes = sizeof(dlpi_found),
    .check = dlpi_found_check,
    .private_words = "part tables",
    .source = &dlpi_found_source,
};
