#pragma once
/* tests: system/inputs/neighbours, system/core/pipe_badinput */
#include "stages/sampler.h"
#include "stages/fetch.h"
#include "stages/join.h"
#include "stages/map.h"
#include "stages/guard.h"
#include "stages/scratch.h"
#include "stages/batch.h"
#include "stages/lists.h"
#include "stages/parts.h"
#include "stages/found.h"
#include "stages/expand.h"
#include "stages/pack.h"
#include "stages/transfer.h"
#include "stages/cache.h"
#include "stages/split.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-kinds      THE TABLE OF ALL KINDS */

#define DLPI_KIND_OPS(name, number, ops) [number] = &ops,
static const dlpi_stage_ops *const dlpi_kinds[] = {DLPI_STAGE_KINDS(DLPI_KIND_OPS)};
#undef DLPI_KIND_OPS

/* The table of a kind that a region names; NULL: it is not known here. */
__attribute__((unused)) /* but by dlpipe_shm.h */
static const dlpi_stage_ops *
dlpi_kind_ops(int32_t kind) {
    return kind >= 0 && (size_t)kind < sizeof dlpi_kinds / sizeof(void *) ? dlpi_kinds[kind] : NULL;
}
