#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   A FIELD WITH A CHECKSUM OF THE ITEM
   A node of items. It adds a field to the items: DLP_U64, the FNV-1a of all bytes of the
   fields that the item has by then. Fields that end behind it count, too. */

typedef struct dlp_node_checksum {
    const char *field; /* the name of the field that is added; required; copied */
} dlp_node_checksum;
