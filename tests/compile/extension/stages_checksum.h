#pragma once
#include "api/checksum.h"
#include "inputs/dataset.h"
#include "inputs/table.h"
#include "work/recover.h"
/* ---------------------------------------------------------------------------------------------
   A FIELD WITH A CHECKSUM OF THE ITEM */

typedef struct dlpi_checksum {      /* what the stage keeps */
    uint32_t own;                   /* number of its field among the item's */
    uint64_t bytes[DLP_MAX_FIELDS]; /* of each field that counts */
} dlpi_checksum;

/* Add the field behind those that are there. The stage works on all of them. */
static int dlpi_checksum_widens(dlp_pipe *p, dlpi_stage *st) {
    dlpi_checksum *k = st->self;
    k->own = p->datasets.n_fields;
    if (k->own == DLP_MAX_FIELDS)
        return dlpi_bad(p, st->name, "name", "left out: an item has 16 fields at most", k->own);
    p->datasets.fields[p->datasets.n_fields++] = st->fields[0];
    st->scope.n_fields = p->datasets.n_fields;
    return DLP_OK;
}

static int dlpi_checksum_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_checksum *k = st->self;
    for (uint32_t f = 0; f < k->own; f++) k->bytes[f] = p->items.at[f].row_bytes;
    for (uint32_t f = 0; st->held != 0 && f < p->holder_stage->n_fields; f++) {
        dlpi_field d;
        int rc = dlpi_field_init(p, st->name, &d, &p->holder_stage->fields[f], f, 1, false);
        if (rc != DLP_OK) return rc;
        k->bytes[k->own + 1 + f] = d.row_bytes;
    }
    return DLP_OK;
}

static int dlpi_checksum_item(void *user, dlp_item *it) {
    const dlpi_checksum *k = user;
    uint64_t sum = UINT64_C(14695981039346656037);
    for (uint32_t f = 0; f < it->n_fields; f++)
        for (uint64_t i = 0; i < k->bytes[f]; i++)
            sum = (sum ^ ((const uint8_t *)it->data[f])[i]) * UINT64_C(1099511628211);
    memcpy(it->data[k->own], &sum, sizeof sum);
    return 0;
}

static const dlpi_stage_ops dlpi_checksum_ops = {
    .kind = DLP_STAGE_CHECKSUM,
    .rank = 6,
    .many = 1,
    .held = DLPI_HELD_SEES,
    DLPI_OPS_OF_ROWS,
    .self_bytes = sizeof(dlpi_checksum),
    .widens = dlpi_checksum_widens,
    .check = dlpi_checksum_check,
};

static const dlp_field *dlpi_checksum_fields(const dlp_node *node, uint32_t *n) {
    static const dlp_field sum = {NULL, DLP_U64, 0, {0}, 0, 0};
    DLPI_UNUSED(node);
    *n = 1;
    return &sum;
}

static int dlpi_node_checksum_add(dlpi_table *t, const dlp_node *node) {
    dlp_pipe *p = t->p;
    const dlp_workers_desc workers = dlpi_node_workers(t, node);
    dlpi_stage *st = dlpi_add(p, &dlpi_checksum_ops, "checksum", &workers);
    dlp_field field = *dlpi_checksum_fields(node, &(uint32_t){0});
    int rc;
    if (st == NULL) return p->err.code;
    field.name = node->checksum.field;
    st->item = dlpi_checksum_item;
    st->user = st->self;
    st->w.idempotent = 1; /* it changes no field but its own */
    rc = dlpi_keep_fields(p, st, &field, 1);
    return dlpi_added(p, st, rc != DLP_OK ? rc : dlpi_check_workers(p, st));
}
