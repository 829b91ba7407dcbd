#pragma once
#include "api/codes.h"
/* ---------------------------------------------------------------------------------------------
   >>kinds      THE KINDS OF STAGES
   Each kind has a row: its name, its number, and the implementation's table of what it does
   (src/pipe/ops.h describes this table). The number never changes, because monitors read it. For a
   new kind, a row is all that is added to existing files. Its own two files are
   api/NAME.h and stages/NAME.h, with the name in small letters. The joiner puts them in their
   places. */

#define DLPI_STAGE_KINDS(KIND) \
    KIND(SAMPLER, 1, dlpi_sampler_ops) \
    KIND(REPEAT, 2, dlpi_repeat_ops) \
    KIND(FETCH, 3, dlpi_fetch_ops) \
    KIND(MAP_ITEM, 4, dlpi_map_item_ops) \
    KIND(BATCH, 5, dlpi_batch_ops) \
    KIND(MAP_BATCH, 6, dlpi_map_batch_ops) \
    KIND(TRANSFER, 7, dlpi_transfer_ops) \
    KIND(CACHE, 8, dlpi_cache_ops) \
    KIND(SPLIT, 9, dlpi_split_ops) \
    KIND(PARTS, 10, dlpi_parts_ops) \
    KIND(FOUND, 12, dlpi_found_ops) \
    KIND(EXPAND, 13, dlpi_expand_ops) \
    KIND(PACK, 15, dlpi_pack_ops) \
    KIND(SCRATCH, 14, dlpi_scratch_kind_ops) \
    KIND(GUARD, 11, dlpi_guard_ops) \
    KIND(JOIN, 16, dlpi_join_ops) \
    KIND(PUSH, 17, dlpi_push_ops) \
    KIND(OUT, 18, dlpi_out_ops)

#define DLPI_KIND_NUMBER(name, number, ops) DLP_STAGE_##name = number,
enum { DLPI_STAGE_KINDS(DLPI_KIND_NUMBER) };
#undef DLPI_KIND_NUMBER
