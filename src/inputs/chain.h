#pragma once
/* tests: system/stages/fused */
#include "inputs/dataset.h"
#include "flight/attempts.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-chain      MAPS AND FETCHES IN THE ATTEMPT OF THE STAGE BEFORE
   A stage of rows has one callback. If rows of the table run in the attempt of an earlier stage,
   they are ops of its program (>>impl-programs), and its callback is dlpi_ops_call. Op 0 is the
   stage's own callback. The limit of tries, the back-off and on_error are those of the row that
   failed, or of the stage if that row says nothing of them. Fields that the rows add are fields of
   the stage. If the stage has an asynchronous source, op 0 is its answer, and the rows go on with
   it. */

/* Let *timed, the shortest deadline_ms of rows, be at most ms. 0: there is none. */
static void dlpi_timed_least(int32_t *timed, int32_t ms) {
    if (ms > 0 && (*timed == 0 || ms < *timed)) *timed = ms;
}

/* Append the op of a row, and the n fields f that the row adds, to a stage. Returns 0 or a
   DLP_ERR code. */
DLPI_COLD static int dlpi_chain_add(dlp_pipe *p, dlpi_stage *st, const dlpi_op *row,
                                    const dlp_field *f, uint32_t n) {
    dlpi_program *g = dlpi_program_of(st);
    const uint32_t before = st->n_fields;
    const char *name = row->row->name;
    int rc;
    if (g->n == DLPI_OPS)
        return dlpi_refuse(p, DLP_ERR_GRAPH, name, "",
                           "node \"%s\" is the eighth row in the worker of \"%s\"; join two of "
                           "these rows, or give this one workers",
                           name, st->name);
    if (n > DLP_MAX_FIELDS - before)
        return dlpi_bad(p, name, "n_fields", "16 at most, with those of the rows above",
                        before + n);
    if (g->n == 0) {
        g->op[g->n++] = (dlpi_op){.fn.call = st->item, .user = st->user};
        if (st->item != NULL) st->user = g->op;
        if (st->item != NULL) st->item = dlpi_ops_call;
    }
    st->w.idempotent = 0; /* the new callback need not be */
    st->retries |= row->row->own && row->row->policy.retries > 0;
    dlpi_timed_least(&st->timed, row->row->policy.deadline_ms);
    for (uint32_t i = 0; i < g->n; i++) g->op[i].after = (uint8_t)(g->op[i].after + n);
    g->op[g->n++] = *row;
    if ((rc = dlpi_keep_fields(p, st, f, n)) != DLP_OK) return rc;
    rc = dlpi_fields_apart(p, name, st->fields + before, n, st->fields, before);
    if (rc != DLP_OK || st->dataset == NULL) return rc;
    st->dataset->fields = st->fields;
    st->dataset->n_fields = st->n_fields;
    return DLP_OK;
}

/* Set which fields each op sees, once the fields of the stage are known. */
DLPI_COLD static void dlpi_chain_resolve(dlp_pipe *p, const dlpi_stage *st) {
    dlpi_program *g = dlpi_program_of(st);
    const uint32_t all = st->scope.n_fields;
    bool ragged = false;
    for (uint32_t f = 0; f < p->datasets.n_fields; f++) ragged |= p->datasets.fields[f].ragged != 0;
    for (dlpi_op *k = g->op; k < g->op + g->n; k++) {
        k->n = (uint8_t)(k->own > 0 ? k->own : all - k->after);
        k->first = (uint8_t)(k->own > 0 ? all - k->after - k->own : 0);
    }
    dlpi_program_set(g, all, ragged, false);
}

/* Let the fields that ops add to a fetch stage begin as zeros, even if the fetch writes all bytes
   of its own fields. Returns 0. */
DLPI_COLD static int dlpi_chain_widens(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_op *k = dlpi_program_of(st)->op;
    dlpi_chain_resolve(p, st);
    if (k->after > 0 && !st->scope.zeroes) { /* NOLINT: its program has ops */
        st->scope.own = k->n;
        st->scope.zeroes = 2;
    }
    return DLP_OK;
}

/* Write into `text`, for the plan, the names of the stage's rows, in the order of the table. */
DLPI_COLD static void dlpi_chain_what(const dlpi_stage *st, char *text, size_t size) {
    const dlpi_program *g = dlpi_program_of(st);
    size_t n = 0;
    for (uint32_t i = 0; i < g->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i > 0 ? ", " : "",
                              i > 0 ? g->op[i].row->name : st->name);
}
