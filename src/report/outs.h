/* needs: out */
#pragma once
/* tests: system/core/outs, system/examples/outs_top */
#include "api/graph.h"
#include "api/out.h"
#include "report/words.h"
/* Slots that outs beside the first may hold. */
static uint64_t dlpi_outs_slots(const dlp_stats *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++)
        if (s->stages[i].kind == DLP_STAGE_OUT) n += s->stages[i].own[DLP_OUT_CAPACITY];
    return n;
}

/* What an out beside the first holds and missed. */
static void dlpi_explain_out(dlpi_text *t, const dlp_stage_stats *g) {
    const uint64_t *own = g->own;
    if (g->kind != DLP_STAGE_OUT) return;
    dlpi_text_add(t, "Out: '%.31s' holds %" PRIu64 " of %" PRIu64 " batch%s", g->name,
                  own[DLP_OUT_HELD], own[DLP_OUT_CAPACITY], own[DLP_OUT_CAPACITY] == 1 ? "" : "es");
    if (own[DLP_OUT_FULL] == DLP_FULL_WAIT)
        dlpi_text_add(t, "; the pipe waits for this out if it is slow.\n");
    else
        dlpi_text_add(t, " and missed %" PRIu64 "; it %s, and the pipe never waits for it.\n",
                      own[DLP_OUT_MISSED],
                      own[DLP_OUT_FULL] == DLP_FULL_DROP_NEW ? "keeps the oldest batches"
                                                             : "goes on with the newest batches");
}
