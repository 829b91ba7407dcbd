#pragma once
/* tests: system/core/pipe_fault, system/shm/monitor */
#include "report/stats.h"
#include "report/explain.h"
/* ---- explain of what is seen ---- */

/* What workers wait for, in their own words. */
static void dlpi_explain_waits(dlpi_text *t, const dlpi_seen *s) {
    for (uint32_t i = 0; i < s->n_stages; i++) {
        const dlpi_seen_stage *st = &s->stages[i];
        char line[256] = ""; /* its end may be missing */
        if (st->tell && st->tell(st->tell_user, line, sizeof line) > 0)
            dlpi_text_add(t, "Waits: stage '%.31s': %.255s.\n", st->name, line);
    }
}

static int dlpi_explain(dlpi_text *t, const dlpi_seen *s) {
    const size_t at = t->len < t->size ? t->len : t->size;
    dlp_stats stats;
    int n;
    dlpi_stats(s, &stats);
    n = dlp_stats_explain(&stats, t->buf ? t->buf + at : NULL, t->size - at);
    if (n < 0) return n;
    t->len += (size_t)n;
    dlpi_explain_waits(t, s);
    return DLP_OK;
}
