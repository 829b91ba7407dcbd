/* needs: parts */
#pragma once
/* tests: system/stages/parts */
#include "stages/parts.h"
#include "stages/found.h"
#include "build/check.h"
static dlp_stage dlpi_add_parts(dlp_pipe *p, const dlp_part_desc *desc) {
    const bool found = desc->items == NULL && desc->count == NULL && desc->max_items > 0;
    dlpi_stage *st =
        dlpi_add(p, found ? &dlpi_found_ops : &dlpi_parts_ops, "parts", &desc->workers);
    if (st == NULL) return p->err.code;
    return dlpi_added(p, st, found ? dlpi_found_take(p, st, desc) : dlpi_parts_take(p, st, desc));
}
