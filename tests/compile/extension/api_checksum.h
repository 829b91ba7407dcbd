/* needs: checksum */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   A FIELD WITH A CHECKSUM OF THE ITEM
   A 1:1 stage of items. It adds a field to the items: DLP_U64, the FNV-1a of all bytes of the
   fields that the item has by then. Scratch fields right in front of it count, too. */

typedef struct dlp_checksum_desc {
    const char *name; /* of the field that is added; required; copied */
    dlp_workers_desc workers;
} dlp_checksum_desc;

/* Add a checksum. desc: copied - returns as dlp_pipe_add_map. */
DLPDEF dlp_stage dlp_pipe_add_checksum(dlp_pipe *p, const dlp_checksum_desc *desc);
