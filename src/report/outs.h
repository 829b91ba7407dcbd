/* needs: explain out */
#pragma once
/* tests: system/core/outs, system/examples/outs_top */
#include "api/graph.h"
#include "api/out.h"
#include "report/words.h"
/* Return the out that the pipe waits for, or NULL. Nothing is ready for the trainer, and no slot is
   free, as the out has not given back batches that the trainer has had. If several outs are behind,
   it is the last one. *slots: how many all outs but the first may hold together. */
static const dlp_stage_stats *dlpi_outs_limit(const dlp_stats *s, uint64_t *slots) {
    const dlp_stage_stats *last = NULL;
    const uint32_t open = s->in_flight;
    const bool stopped = s->ready == 0 && open < s->prefetch_factor;
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        const uint64_t left = s->batches > g->items ? s->batches - g->items : 0;
        const uint64_t owes = left + g->own[DLP_OUT_HELD];
        if (g->kind != DLP_STAGE_OUT) continue;
        *slots += g->own[DLP_OUT_CAPACITY];
        if (!stopped || g->own[DLP_OUT_FULL] != DLP_FULL_WAIT) continue;
        if (owes <= most || owes + open + s->max_held < s->slots) continue;
        last = g;
        most = owes;
    }
    return last;
}
