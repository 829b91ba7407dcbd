/* needs: pack */
#pragma once
/* tests: unit/open/pack_flatten, system/stages/pack */
#include "api/pack.h"
#include "stages/pack.h"
#include "build/check.h"
/* Add the stage of a pack. behind: a stage that packs joined rows, which becomes the stage of the
   pack; or NULL. windows: items of the windows before and behind the pack, or 0. Returns a stage
   number or 0, or a DLP_ERR code. */
DLPI_COLD static int dlpi_pack_add(dlp_pipe *p, dlpi_stage *behind, const dlp_node_pack *d,
                                   const dlp_workers_desc *w, uint32_t capacity,
                                   const uint32_t *windows) {
    p->d.trace_rows = 0; /* a row is made of several items */
    dlpi_stage *st = behind != NULL ? behind : dlpi_add(p, &dlpi_pack_ops, "pack", w);
    int rc;
    if (st == NULL) return p->err.code;
    st->ops = &dlpi_pack_ops;
    rc = dlpi_pack_take(p, st, d, capacity, windows);
    return behind != NULL ? rc : dlpi_added(p, st, rc);
}

/* ---- one cu_seqlens array for all rows of a batch ---- */

typedef struct dlpi_flat {
    int32_t *bounds;      /* [n + 1] ends of segments, in tokens of the batch; NULL: only count */
    uint32_t n;           /* segments so far */
    int32_t end, longest; /* tokens so far; tokens of the longest segment */
} dlpi_flat;

/* Note that a segment ends at token `end`, unless the segment has no tokens. */
static void dlpi_flat_end(dlpi_flat *x, int32_t end) {
    if (end == x->end) return;
    if (end - x->end > x->longest) x->longest = end - x->end;
    x->end = end;
    x->n++;
    if (x->bounds != NULL) x->bounds[x->n] = end;
}

/* Note the segments of all rows of a batch, each of `tokens` tokens. A padding row is one segment.
   Returns false if the bounds of a row are not valid: the consumer may have written over them. */
static bool dlpi_flat_rows(dlpi_flat *x, const dlp_batch *b, const dlp_tensor *bounds,
                           int32_t tokens) {
    const int32_t *row = bounds->data;
    if (x->bounds != NULL) x->bounds[0] = 0;
    for (uint32_t r = 0; r < b->count; r++, row += bounds->shape[1]) {
        const int32_t from = x->end;
        for (int64_t i = 0; b->valid[r] && i < bounds->shape[1]; i++) {
            if (row[i] < x->end - from || row[i] > tokens) return false;
            dlpi_flat_end(x, from + row[i]);
        }
        dlpi_flat_end(x, from + tokens);
    }
    return true;
}

/* Return the batch's field of this name. It must have int32 values in two dimensions, and the first
   must be the batch's rows; else return NULL. */
static const dlp_tensor *dlpi_flat_field(const dlp_batch *b, const char *name) {
    for (uint32_t i = 0; i < b->n_fields; i++) {
        const dlp_tensor *f = &b->fields[i];
        if (strcmp(f->name, name) == 0)
            return f->dtype == DLP_I32 && f->ndim == 2 && f->shape[0] == b->count ? f : NULL;
    }
    return NULL;
}

DLPDEF int dlp_pack_flatten(const dlp_batch *batch, int32_t *cu_seqlens, uint32_t capacity,
                            int32_t *longest) {
    const dlp_tensor *bounds, *places;
    dlpi_flat counted = {NULL, 0, 0, 0}, made = {cu_seqlens, 0, 0, 0};
    int32_t tokens;
    if (batch == NULL || cu_seqlens == NULL) return DLP_ERR_ARG;
    bounds = dlpi_flat_field(batch, "cu_seqlens");
    places = dlpi_flat_field(batch, "position_ids");
    if (bounds == NULL || places == NULL) return DLP_ERR_ARG;
    if (dlpi_times((uint64_t)places->shape[1], batch->count) > INT32_MAX) return DLP_ERR_LIMIT;
    tokens = batch->count > 0 ? (int32_t)places->shape[1] : 0;
    if (!dlpi_flat_rows(&counted, batch, bounds, tokens)) return DLP_ERR_ARG;
    if (counted.n >= capacity) return DLP_ERR_LIMIT;
    dlpi_flat_rows(&made, batch, bounds, tokens);
    if (longest != NULL) *longest = made.longest;
    return (int)made.n;
}
