/* needs: cache */
#pragma once
/* tests: system/core/tables */
#include "open/table.h"
#include "stages/cache.h"
static int dlpi_node_cache_add(dlpi_table *t, const dlp_node *node) {
    return dlp_pipe_add_cache(t->p, &node->cache);
}
