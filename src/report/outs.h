/* needs: out */
#pragma once
/* tests: system/core/outs, system/examples/outs_top */
#include "api/graph.h"
#include "api/out.h"
#include "report/words.h"
/* Return how many slots all outs but the first may hold together. */
static uint64_t dlpi_outs_slots(const dlp_stats *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++)
        if (s->stages[i].kind == DLP_STAGE_OUT) n += s->stages[i].own[DLP_OUT_CAPACITY];
    return n;
}

/* Return the out that the pipe waits for, or NULL. Nothing is ready for the trainer, and no slot is
   free, as the out has not given back batches that the trainer has had. If several outs are behind,
   it is the last one. */
static const dlp_stage_stats *dlpi_outs_limit(const dlp_stats *s) {
    const dlp_stage_stats *last = NULL;
    const uint32_t open = s->in_flight;
    uint64_t most = 0;
    if (s->ready > 0 || open >= s->prefetch_factor) return NULL;
    for (uint32_t i = 0; i < s->n_stages && i < DLP_MAX_STAGES; i++) {
        const dlp_stage_stats *g = &s->stages[i];
        const uint64_t left = s->batches > g->items ? s->batches - g->items : 0;
        const uint64_t owes = left + g->own[DLP_OUT_HELD];
        if (g->kind != DLP_STAGE_OUT || g->own[DLP_OUT_FULL] != DLP_FULL_WAIT) continue;
        if (owes <= most || owes + open + s->max_held < s->slots) continue;
        last = g;
        most = owes;
    }
    return last;
}

/* Append what an out holds and missed. Nothing is appended for another kind of stage. */
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
