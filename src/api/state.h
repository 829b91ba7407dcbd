#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>state      RESUME */

/* A saved place of a pipe: all batches up to one are consumed. Save it anywhere, and give it back
   as .resume. It is opaque, and has a version and a checksum. All ranks save the same bytes; only
   with inputs of unknown count (>>found) each rank saves its own streams (dlp_state_merge).
   A state fits a pipe with the same items, order (with its parameters), seed, global batch and last
   rule. With a split stage chunk_rows and shuffle_rows are the same, too; with parts streams and
   steps_per_epoch. Workers, prefetch_factor, topology, rank and world_size may differ. */
typedef struct dlp_state {
    uint8_t bytes[248];
} dlp_state;
