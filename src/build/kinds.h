#pragma once
/* tests: system/inputs/neighbours, system/core/pipe_badinput */
#include "pipe/ops.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-kinds      THE TABLE OF ALL KINDS */

#define DLPI_KIND_IS(name, number, ops) static const dlpi_stage_ops ops; /* each in stages/ */
DLPI_STAGE_KINDS(DLPI_KIND_IS)
static const dlpi_stage_ops *const dlpi_kinds[] = {DLPI_STAGE_KINDS(DLPI_ROW_OPS)};

/* Return the table of a kind of stage, by the number that a region names. Returns NULL if this
   library does not know the kind. */
static const dlpi_stage_ops *dlpi_kind_ops(int32_t kind) {
    return kind >= 0 && (size_t)kind < sizeof dlpi_kinds / sizeof(void *) ? dlpi_kinds[kind] : NULL;
}
