#pragma once
#include "core/recover.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-batch      THE BATCH STAGE
   It has workers only where there is a collate, or where batch workers are asked for. */

static const dlpi_stage_ops dlpi_batch_ops = {
    .kind = DLP_STAGE_BATCH,
    .rank = 7,
    .unit = DLPI_UNIT_BATCHES,
    .step = dlpi_batches_step,
    .find = dlpi_rows_find,
    .run = dlpi_batches_run,
    .recover = dlpi_slots_recover,
};
