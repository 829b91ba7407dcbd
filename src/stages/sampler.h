#pragma once
#include "core/ops.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-sampler    SAMPLER AND REPEAT, AS STAGES
   What they do is done by whoever schedules batches: see >>impl-feed. */

static const dlpi_stage_ops dlpi_sampler_ops = {.kind = DLP_STAGE_SAMPLER, .rank = 1};
static const dlpi_stage_ops dlpi_repeat_ops = {.kind = DLP_STAGE_REPEAT, .rank = 2};
