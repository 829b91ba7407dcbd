/* needs: parts pack */
#pragma once
/* tests: system/stages/pack */
#include "api/pack.h"
#include "report/words.h"
/* Append how much of packed rows is padding and, with windows, what makes that less. */
static void dlpi_explain_packing(dlpi_text *t, const dlp_stage_stats *g) {
    if (g->kind != DLP_STAGE_PACK || g->own[DLP_PACK_ROWS] == 0) return;
    const double padding = (double)g->own[DLP_PACK_PADDING];
    const double share = padding / (padding + (double)g->own[DLP_PACK_TOKENS]);
    const double segments = (double)g->own[DLP_PACK_SEGMENTS] / (double)g->own[DLP_PACK_ROWS];
    dlpi_text_add(t, "Packing: %s %% of the tokens are padding, %s segments a row",
                  dlpi_num_percent(share).s, dlpi_num_of(segments).s);
    if (share >= 0.001 && g->window > 0 && g->inputs > g->window)
        dlpi_text_add(t, "; a window larger than %" PRIu64 " makes that less", g->window);
    dlpi_text_add(t, ".\n");
}
