#pragma once
/* tests: system/core/topologies, system/stages/join */
#include "inputs/chain.h"
#include "work/recover.h"
#include "work/widen.h" /* needs: parts */
/* ---------------------------------------------------------------------------------------------
   >>impl-map        MAPS: OF ITEMS, AND OF WHOLE BATCHES, IN PLACE */

typedef struct dlpi_map { /* the record of a stage that maps items */
    dlpi_seeing seeing;   /* where the callback finds each field, if fields end in this map */
    dlpi_program program; /* maps and fetches that run in the attempt of this stage */
} dlpi_map;

/* The callback of a map or fetch whose stage has the fields in another order than the table. It
   runs for each item, so it stands here and not with the code that opens pipes. Lengths that are
   all 0, as most are, stay where they are. */
static int dlpi_seeing_call(void *user, dlp_item *it) {
    const dlpi_seeing *k = user;
    void *data[DLP_MAX_FIELDS], **all = it->data;
    uint64_t *lengths = it->length, any = 0;
    uint32_t n = k->n, f = 0;
    int rc;
    do data[f] = all[k->at[f]], any |= lengths[f];
    while (++f < n);
    if (DLPI_UNLIKELY(any != 0)) dlpi_seeing_turn(k, lengths, false);
    it->data = data;
    rc = k->callback(k->user, it);
    it->data = all;
    any = f = 0;
    do any |= lengths[f];
    while (++f < n);
    if (DLPI_UNLIKELY(any != 0)) dlpi_seeing_turn(k, lengths, true);
    return rc;
}

/* Add the fields of an item map to those of the pipe's items. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_map_widens(dlp_pipe *p, dlpi_stage *st) {
    const int rc = dlpi_fields_widen(p, st, "n_fields");
    st->scope.n_fields = p->datasets.n_fields;
    st->scope.zeroes = st->n_fields > 0;
    dlpi_chain_resolve(p, st);
    return rc;
}

/* Call the callback of a map on a whole batch, in the batch's cell. Returns its code, or the code
   of an overrun that the guard bytes show. */
static int dlpi_map_call(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_batch_widens(w, t); /* needs: parts */
    dlpi_batch_view_init(w->p, t->slot, &w->rare->batch, w->rare->tensors);
    dlpi_batch_view(w->p, t->slot, &w->rare->batch, w->rare->tensors);
    w->rare->batch.n_fields = w->st->scope.n_fields; /* needs: parts */
    w->rare->batch.call = &w->note;
    const int rc = dlpi_returned(w, w->st->batch(w->st->user, &w->rare->batch, w->state));
    return dlpi_redzone_slot(w, t->slot, false, rc);
}

static const dlpi_stage_ops dlpi_map_item_ops = {
    .kind = DLP_STAGE_MAP_ITEM,
    .rank = 6,
    .many = 1,
    .self_bytes = sizeof(dlpi_map),
    .program_at = offsetof(dlpi_map, program),
    .what = dlpi_chain_what,
    .chained = dlpi_unit_pairs,
    .widens = dlpi_map_widens,
    .held = DLPI_HELD_READS,
    DLPI_OPS_OF_ROWS,
};

static const dlpi_stage_ops dlpi_map_batch_ops = {
    .kind = DLP_STAGE_MAP_BATCH,
    .rank = 8,
    .many = 1,
    DLPI_OPS_OF_BATCHES,
    .in_place = 1,
    .call = dlpi_map_call,
};
