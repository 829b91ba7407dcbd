#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>state      RESUME */

/* Everything up to some batch is consumed: save it anywhere, give it back as .resume. The same
   bytes on every rank. Versioned and checksummed; opaque. It fits a pipe with the same items, order
   and its parameters, seed, global batch and last rule (with a split stage also chunk_rows and
   shuffle_rows); workers, prefetch_factor, topology, rank and world_size may differ. */
typedef struct dlp_state {
    uint8_t bytes[248];
} dlp_state;
