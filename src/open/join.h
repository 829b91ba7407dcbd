/* needs: join */
#pragma once
/* tests: system/stages/join */
#include "stages/join.h"
#include "build/check.h"
#include "open/table.h"
DLPDEF dlp_stage dlp_pipe_add_join(dlp_pipe *p, const dlp_join_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, desc->fetch.fetcher ? &dlpi_join_many_ops : &dlpi_join_ops, "join",
                  &desc->fetch.workers);
    return st == NULL ? dlpi_add_refused(p) : dlpi_added(p, st, dlpi_join_take(p, st, desc));
}

/* The second fetch of a table, and each one after it. */
static int dlpi_node_fetch_later(dlpi_table *t, const dlp_fetch_desc *f, bool mixes) {
    const int how = mixes ? DLP_JOIN_MIX : DLP_JOIN_ZIP;
    return dlp_pipe_add_join(t->p, &(dlp_join_desc){.fetch = *f, .how = how});
}
