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
    for (uint32_t i = 0; ds->fields != NULL && i < ds->n_fields && i < DLP_MAX_FIELDS; i++) {
        const dlp_field *f = &ds->fields[i];
        uint64_t bytes = dlpi_dtype_bytes(f->dtype);
        for (int32_t k = 0; k < f->ndim && k < DLP_MAX_DIMS; k++)
            bytes = dlpi_times(bytes, (uint64_t)f->shape[k]);
        sum = dlpi_sum(sum, bytes);
    }
    return dlpi_times(sum, rows);
}
