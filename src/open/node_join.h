/* needs: join */
#pragma once
/* tests: system/core/tables */
#include "open/table.h"
#include "stages/join.h"
/* The second fetch of a table, and each one after it. */
static int dlpi_node_fetch_later(dlpi_table *t, const dlp_fetch_desc *f, bool mixes) {
    const int how = mixes ? DLP_JOIN_MIX : DLP_JOIN_ZIP;
    return dlp_pipe_add_join(t->p, &(dlp_join_desc){.fetch = *f, .how = how});
}
