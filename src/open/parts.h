/* needs: parts */
#pragma once
/* tests: system/stages/parts */
#include "stages/parts.h"
#include "stages/found.h"
#include "open/loader.h"
static dlp_stage dlpi_add_parts(dlp_pipe *p, const dlp_part_desc *desc) {
    dlpi_stage *st;
    bool found = desc != NULL && desc->items == NULL && desc->count == NULL && desc->max_items > 0;
    st = dlpi_add(p, found ? &dlpi_found_ops : &dlpi_parts_ops, "parts", &desc->workers);
    if (st == NULL) return p->err.code;
    return dlpi_added(p, st, found ? dlpi_found_take(p, st, desc) : dlpi_parts_take(p, st, desc));
}

static dlp_stage dlpi_loader_parts(dlp_pipe *p, const void *desc) {
    return dlpi_add_parts(p, desc);
}

DLPDEF int dlp_parts_open(dlp_pipe **out, const dlp_parts_desc *desc, dlp_error *err) {
    dlp_part_desc parts;
    const dlpi_loader_source source = {DLP_ORDER_PARTS, dlpi_loader_parts, &parts};
    if (desc == NULL) return dlpi_loader_open(out, NULL, NULL, err);
    parts = desc->parts;
    if (desc->loader.shuffle == 1) parts.shuffle_parts = parts.shuffle_items = 1;
    return dlpi_loader_open(out, &desc->loader, &source, err);
}
