#pragma once
/* tests: system/core/pipe_badinput, system/open/most_stages */
#include "fail/check.h"
#include "work/workers.h"
/* ---- a stage is added: by the call of its kind, or by a source's ---- */

/* Begin a new stage at the end of the pipe's array of stages, with a copy of the workers' desc `w`
   (may be NULL). The stage's name is that of the node, else of `w`, else `name`. Returns the stage,
   which does not count before dlpi_added. Returns NULL if the pipe has an error. */
static dlpi_stage *dlpi_add(dlp_pipe *p, const dlpi_stage_ops *ops, const char *name,
                            const dlp_workers_desc *w) {
    dlpi_stage *st;
    if (p->err.code != 0) return NULL;
    if (p->n_stages == DLP_MAX_STAGES) {
        dlpi_bad_graph(p, p->node ? p->node : name,
                       "a pipe has at most 16 stages; leave nodes out (a list counts twice)");
        return NULL;
    }
    st = &p->stages[p->n_stages];
    memset(st, 0, sizeof *st);
    st->ops = ops;
    st->id = p->n_stages;
    st->next = st->prev = st->work = -1;
    if (ops->self_bytes > 0 && (st->self = calloc(1, ops->self_bytes)) == NULL) {
        dlpi_no_memory(p, name, "what a stage keeps");
        return NULL;
    }
    if (w) st->w = *w;
    dlpi_workers_begin(st);
    dlpi_copy_text(st->name, sizeof st->name, p->node ? p->node : w && w->name ? w->name : name);
    st->w.name = st->name;
    return st;
}

/* Make a stage of dlpi_add count, unless its checks failed. `rc`: the code of these checks; any
   other code than DLP_OK is returned. Copies the CPU numbers of the desc, which the caller owns.
   Returns the number of the stage, or a DLP_ERR code, which is negative. */
static dlp_stage dlpi_added(dlp_pipe *p, dlpi_stage *st, int rc) {
    if (rc != DLP_OK) return rc;
    if (st->w.n_affinity > 0) {
        size_t bytes = (size_t)st->w.n_affinity * sizeof *st->affinity;
        st->affinity = malloc(bytes);
        if (st->affinity == NULL) return dlpi_no_memory(p, "affinity", "the CPU numbers");
        memcpy(st->affinity, st->w.affinity, bytes);
    }
    st->begin = st->w.num_workers;
    p->n_stages++;
    return st->id;
}
