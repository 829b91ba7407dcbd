#pragma once
/* tests: system/core/pipe_badinput, system/inputs/neighbours */
#include "inputs/dataset.h"
#include "inputs/add.h"
#include "work/tune.h"
#include "pipe/roles.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-build      CHECKS, LAYOUT, PLAN, START, CLOSE */

/* The first argument of an open call that is NULL; what: the name of the second. */
static int dlpi_open_args(const void *out, const void *made, const char *what, const void *desc,
                          dlp_error *err) {
    const char *name = out == NULL ? "out" : made == NULL ? what : desc == NULL ? "desc" : NULL;
    return name == NULL ? DLP_OK : dlpi_error_set(err, DLP_ERR_ARG, name, "%s is NULL", name);
}

/* Each stage follows the one that was added before it. Done again by each plan and start. */
static int dlpi_check_graph(dlp_pipe *p) {
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        const int rank = st->ops->rank, before = i > 0 ? p->stages[i - 1].ops->rank : 0;
        st->prev = i - 1;
        st->next = i + 1 < p->n_stages ? i + 1 : -1;
        st->held = 0;
        if (i > 0 && (rank < before || (rank == before && !st->ops->many)))
            return dlpi_refuse(p, DLP_ERR_GRAPH, st->name, "",
                               rank < before
                                   ? "node \"%s\" must stand before node \"%s\"; move its row up"
                                   : "node \"%s\" does what \"%s\" does; leave one of the two out",
                               st->name, p->stages[i - 1].name);
        if (st->ops->at != 0) memcpy((uint8_t *)p + st->ops->at, &st, sizeof(void *));
        dlpi_roles_take(p, st);
    }
    if (p->sampler == NULL) return dlpi_bad_graph(p, "", "the table has no list node");
    if (p->fetch == NULL) return dlpi_bad_graph(p, "", "the table has no fetch node");
    return p->batcher != NULL ? DLP_OK : dlpi_bad_graph(p, "", "the table has no batch node");
}

static int dlpi_check_sizes(dlp_pipe *p) {
    const dlp_pipe_desc *d = &p->d;
    int rc = dlpi_within(p, "", "allow_uneven", d->allow_uneven, 0, 1, "0 or 1");
    if (rc != DLP_OK) return rc;
    p->world = dlpi_roles_world(p);
    p->rank = p->world > 1 ? d->rank : 0;
    p->batch_rows = (uint32_t)((p->global_batch + p->world - 1) / p->world);
    rc = dlpi_check_ranks(p, p->world == d->world_size ? p->global_batch : d->world_size);
    return rc == DLP_OK ? p->source->sizes(p) : rc;
}

static int dlpi_check_pipe(dlp_pipe *p) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_pipe_desc, prefetch_factor), 0, 4096, "0..4096"},
        {DLPI_AT(dlp_pipe_desc, max_held), 0, 256, "0..256"},
        {DLPI_AT(dlp_pipe_desc, unordered), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pipe_desc, close_timeout_ms), DLP_FOREVER, INT32_MAX,
         "DLP_NOWAIT, DLP_FOREVER, or 0 and more"},
        {DLPI_AT(dlp_pipe_desc, trace_bytes), 0, 64 << 20, "0..67108864"},
        {DLPI_AT(dlp_pipe_desc, no_memfd), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_pipe_desc, n_counters), 0, DLP_MAX_COUNTERS, "0..8"},
        {DLPI_AT(dlp_pipe_desc, later), 0, 1, "0 or 1"},
    };
    int rc = dlpi_check_bounds(p, "", &p->d, DLPI_ROWS(bounds));
    if (rc == DLP_OK)
        rc = dlpi_check_pair(p, "", "counters", p->d.counters, "n_counters", p->d.n_counters);
    for (uint32_t i = 0; rc == DLP_OK && i < p->d.n_counters; i++)
        if (p->counters[i].name[0] == 0 || !(p->counters[i].most >= 0))
            rc = dlpi_refuse(p, DLP_ERR_ARG, "", "counters",
                             "counters[%" PRIu32 "] needs a name, and most of 0 or more", i);
    if (p->d.trace_bytes == 0) p->d.trace_bytes = 4096;
    return rc != DLP_OK ? rc : p->beside->open(p);
}
