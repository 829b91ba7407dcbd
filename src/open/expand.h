/* needs: parts */
#pragma once
/* tests: system/stages/expand */
#include "api/expand.h"
#include "stages/expand.h"
#include "build/check.h"
#define DLPI_FILTER_INLINE 4096u  /* bytes of a batch up to which the consumer copies it */
#define DLPI_COPY_LARGE 0x100000u /* bytes above which a worker copies a batch, always */

/* Return the bytes of so many rows of a dataset. Its fields may not be checked yet; if they are
   wrong the number has no meaning. */
DLPI_COLD static uint64_t dlpi_filter_bytes(const dlp_dataset *ds, uint64_t rows) {
    uint64_t sum = 0;
    for (uint32_t i = 0; ds->fields != NULL && i < ds->n_fields && i < DLP_MAX_FIELDS; i++)
        sum = dlpi_sum(sum, dlpi_field_item_bytes(&ds->fields[i]));
    return dlpi_times(sum, rows);
}
