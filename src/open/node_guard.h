/* needs: guard */
#pragma once
/* tests: system/core/tables */
#include "open/table.h"
#include "stages/guard.h"
static int dlpi_node_guard_add(dlpi_table *t, const dlp_node *node) {
    const dlp_guard_desc d = {.fields = node->guard.fields,
                              .n_fields = node->guard.n_fields,
                              .workers = dlpi_node_workers(t, node)};
    return dlp_pipe_add_guard(t->p, &d);
}
