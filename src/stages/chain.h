#pragma once
/* tests: system/stages/fused */
#include "inputs/dataset.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-chain      MAPS AND FETCHES IN THE ATTEMPT OF THE STAGE BEFORE
   A stage of rows has one callback. The callback of such a stage is dlpi_chain_call, which calls
   those of several rows of the table, one after the other. The core sees one attempt: retries,
   deadline, blame and the policy for failures are the stage's. Fields that the rows add are fields
   of the stage. */

#define DLPI_CHAIN_STEPS 8u /* callbacks of a stage, with its own */

typedef struct dlpi_chained {
    dlp_item_fn call;
    void *user;
    uint32_t after; /* fields that steps behind it add, which it does not see */
    uint32_t own;   /* it sees these fields of its own alone; 0: all that are there by then */
    char name[32];  /* of its node */
} dlpi_chained;

typedef struct dlpi_chain {
    uint32_t n;     /* 0: the stage has its own callback alone */
    uint32_t first; /* fields of the stage, before rows added some */
    dlpi_chained step[DLPI_CHAIN_STEPS];
} dlpi_chain;

/* Only the rows of such stages may be chained: the stage has all fields from the first one on. */
static dlpi_chain *dlpi_chain_of(const dlpi_stage *st) {
    return st->ops->chain_at == 0 ? NULL : (void *)((uint8_t *)st->self + st->ops->chain_at);
}

/* Say which node failed, in front of why. rc: what its callback returned. */
DLPI_COLD static int dlpi_chain_failed(const dlpi_chained *k, dlp_call *call, int rc) {
    const int errnum = *call->errnum;
    char why[256];
    if (rc == DLP_SKIP) return rc;
    dlpi_copy_text(why, sizeof why, call->message);
    if (why[0] == 0) dlpi_returned_text(why, sizeof why, rc);
    dlp_fail(call, errnum, "node \"%s\": %.200s", k->name, why);
    return rc == DLP_ERR_LENGTH ? rc : DLP_ERR_CALLBACK;
}

/* Can the next callback go by the lengths that are set? */
static bool dlpi_chain_fits(const dlp_item *it) {
    const dlpi_fields *fs = &it->call->w->p->items;
    for (uint32_t f = 0; fs->any_ragged && f < it->n_fields; f++)
        if (fs->at[f].f.ragged && it->length[f] > (uint64_t)fs->at[f].f.shape[0]) return false;
    return true;
}

/* The callback of a stage with a chain. Each callback may change any of its item, so all but the
   last have a copy. A length that is too large ends the chain: the stage refuses that length. */
static int dlpi_chain_call(void *user, dlp_item *it) {
    const dlpi_chain *c = user;
    const dlpi_chained *k = c->step, *last = k + c->n;
    dlp_call *call = it->call;
    call->message[0] = 0; /* of another item */
    do {
        const uint32_t n = it->n_fields - k->after, from = k->own > 0 ? n - k->own : 0;
        dlp_item copy, *seen = it;
        int rc;
        if (k != last) seen = &copy, copy = *it;
        seen->data += from;
        seen->length += from;
        seen->n_fields = n - from;
        rc = k->call(k->user, seen);
        if (DLPI_UNLIKELY(rc != 0)) return k == c->step ? rc : dlpi_chain_failed(k, call, rc);
    } while (k++ != last && dlpi_chain_fits(it));
    return 0;
}

/* Add the callback of a row to a stage, and the fields that the row adds. */
DLPI_COLD static int dlpi_chain_add(dlp_pipe *p, dlpi_stage *st, const dlpi_chained *row,
                                    const dlp_field *f, uint32_t n) {
    dlpi_chain *c = dlpi_chain_of(st);
    int rc;
    if (c->n + 1 == DLPI_CHAIN_STEPS)
        return dlpi_refuse(p, DLP_ERR_GRAPH, row->name, "",
                           "node \"%s\" is the eighth row in the worker of \"%s\"; join two of "
                           "these rows, or give this one workers",
                           row->name, st->name);
    if (n > DLP_MAX_FIELDS - st->n_fields)
        return dlpi_bad(p, row->name, "n_fields", "16 at most, with those of the rows above",
                        st->n_fields + n);
    if (c->n == 0) {
        c->step[0] = (dlpi_chained){.call = st->item, .user = st->user};
        c->first = st->n_fields;
        st->item = dlpi_chain_call;
        st->user = c;
    }
    st->w.idempotent = 0; /* the new callback need not be */
    for (uint32_t i = 0; i <= c->n; i++) c->step[i].after += n;
    c->step[++c->n] = *row;
    if ((rc = dlpi_keep_fields(p, st, f, n)) != DLP_OK || st->dataset == NULL) return rc;
    st->dataset->fields = st->fields;
    st->dataset->n_fields = st->n_fields;
    return DLP_OK;
}

/* Of a stage that fetches: fields that rows of its chain add begin as zeros. */
static int dlpi_chain_widens(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_chain *c = dlpi_chain_of(st);
    DLPI_UNUSED(p);
    if (c->n == 0 || st->n_fields == c->first) return DLP_OK;
    if (!st->scope.zeroes) st->scope.own = c->first;
    st->scope.zeroes = 1;
    return DLP_OK;
}

/* What the plan says of the stage: its rows, in the order of the table. */
DLPI_COLD static void dlpi_chain_what(const dlpi_stage *st, char *text, size_t size) {
    const dlpi_chain *c = dlpi_chain_of(st);
    for (uint32_t i = 0, n = 0; i <= c->n && c->n > 0 && n < size; i++)
        n += (uint32_t)snprintf(text + n, size - n, "%s%s", i > 0 ? ", " : "",
                                i > 0 ? c->step[i].name : st->name);
}
