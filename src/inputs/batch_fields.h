/* needs: parts */
#pragma once
/* tests: system/core/tables */
#include "inputs/dataset.h"
/* ---- the fields of a batch that maps of batches add ---- */

/* Append the fields of a map of batches to the n fields `all` of a batch. Returns 0 or a DLP_ERR
   code. */
static int dlpi_batch_takes(dlp_pipe *p, const dlpi_stage *st, dlp_field *all, uint32_t n) {
    if (n + st->n_fields > DLP_MAX_FIELDS)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "map.n_fields",
                           "n_fields is %" PRIu32 ", and the batch has %" PRIu32 " fields; it has "
                           "at most 16",
                           st->n_fields, n);
    if (st->n_fields > 0) memcpy(all + n, st->fields, st->n_fields * sizeof *all);
    return dlpi_fields_apart(p, st->name, st->fields, st->n_fields, all, n);
}

/* Write into all[] the *n fields f of a batch, and behind them those of all maps of batches. A map
   sees the fields up to its own. Returns all, or NULL if the pipe has an error. */
static const dlp_field *dlpi_batches_widen(dlp_pipe *p, dlp_field *all, const dlp_field *f,
                                           uint32_t *n) {
    memcpy(all, f, *n * sizeof *all);
    for (dlpi_stage *st = p->batcher + 1; st < p->stages + p->n_stages; st++) {
        if (st->batch == NULL) continue;
        if (dlpi_batch_takes(p, st, all, *n) != DLP_OK) return NULL;
        st->scope.own = *n;
        st->scope.n_fields = *n += st->n_fields;
    }
    return all;
}
