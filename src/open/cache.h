/* needs: cache */
#pragma once
/* tests: system/stages/cache */
#include "stages/cache.h"
#include "api/cache.h"
#include "build/check.h"
#include "open/table.h"
DLPDEF dlp_stage dlp_pipe_add_cache(dlp_pipe *p, const dlp_cache_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    if ((st = dlpi_add(p, &dlpi_cache_ops, "cache", NULL)) == NULL) return dlpi_add_refused(p);
    ((dlpi_cache *)st->self)->bytes = desc->bytes;
    return dlpi_added(p, st, dlpi_cache_desc(p, st));
}

static int dlpi_node_cache_add(dlpi_table *t, const dlp_node *node) {
    return dlp_pipe_add_cache(t->p, &node->cache);
}
