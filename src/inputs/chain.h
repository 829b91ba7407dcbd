#pragma once
/* tests: system/stages/fused */
#include "cells/marks.h"
#include "inputs/dataset.h"
#include "row/run.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-chain      MAPS AND FETCHES IN THE ATTEMPT OF THE STAGE BEFORE
   A stage of rows has one callback. If rows of the table run in the attempt of an earlier stage,
   the callback of that stage is dlpi_chain_call. It calls the callbacks of these rows one after
   the other. The core sees one attempt: deadline and blame are those of the stage. A try begins
   with the first of these callbacks, and the tries of an item are counted together. The limit, the
   back-off and on_error are those of the row that failed, or of the stage if that row says nothing
   of them. Fields that the rows add are fields of the stage. If the stage has an asynchronous
   source, the rows go on with its answer. */

#define DLPI_CHAIN_STEPS 8u /* callbacks of a stage, with its own, at most */

typedef struct dlpi_chained { /* one step of a chain: the callback of one row of the table */
    dlp_item_fn call;
    void *user;
    uint32_t n, first; /* it sees n fields, from field `first` on; set when the pipe is resolved */
    uint32_t after;    /* fields that later steps add, which it does not see */
    uint32_t own;      /* not 0: it sees only this many fields of its own; 0: all fields so far */
    bool more;         /* a step follows */
    bool ragged;       /* a field of the pipe is ragged */
    bool fewer;        /* it sees fewer fields than its stage has */
    const dlpi_table_row *row; /* NULL: the stage's own callback */
} dlpi_chained;

typedef struct dlpi_chain {
    const dlpi_chained *last; /* the last step; NULL: the stage has only its own callback */
    bool waits;               /* the first step is an answer of the stage's asynchronous source */
    uint32_t fields;          /* fields of the stage itself, without those of the steps */
    dlpi_chained step[DLPI_CHAIN_STEPS];
} dlpi_chain;

/* Return the chain of a stage, or NULL if its kind allows none. A kind allows a chain if the stage
   works on all fields of an item from the first one on. */
static dlpi_chain *dlpi_chain_of(const dlpi_stage *st) {
    return st->ops->chain_at == 0 ? NULL : (void *)((uint8_t *)st->self + st->ops->chain_at);
}

/* End a chain at a step whose callback returned rc, which is not 0. Note whose failure it is, or
   whose skip, if that row has a policy of its own. Returns rc for the stage's own callback, a skip
   or a wrong length; else DLP_ERR_CALLBACK. */
DLPI_COLD static int dlpi_chain_over(const dlpi_chained *k, dlp_call *call, int rc) {
    char why[256];
    if (k->row == NULL || (rc == DLP_SKIP && !k->row->own)) return rc;
    if (call->message[0] == 0) {
        dlpi_returned_text(why, sizeof why, rc);
        dlp_fail(call, 0, "%s", rc == DLP_SKIP ? "" : why);
    }
    call->row = k->row;
    return rc == DLP_ERR_LENGTH || rc == DLP_SKIP ? rc : DLP_ERR_CALLBACK;
}

/* Clear the bytes of a step's ragged fields behind the lengths that its callback set. were: the
   lengths before; all bytes behind these were zeros. Returns false if a length is too large, so
   that the next callback must not run. */
DLPI_NOINLINE static bool dlpi_chain_tails(const dlp_item *it, const dlpi_chained *k,
                                           uint64_t *were) {
    const dlpi_field *d = &it->call->w->p->items.at[k->first];
    for (uint32_t f = k->first; f < k->first + k->n; f++, d++) {
        const uint64_t unit = d->f.ragged ? dlpi_row_bytes(d) : 0;
        if (!d->f.ragged) continue;
        if (it->length[f] > (uint64_t)d->f.shape[0]) return false;
        dlpi_tail_clear(it->data[f], it->length[f] * unit, were[f] * unit, d->row_bytes);
        were[f] = it->length[f];
    }
    return true;
}

static void dlpi_chain_point(dlp_item *it, const dlpi_chained *k) {
    it->n_fields = k->n, it->data += k->first, it->length += k->first;
}

/* Call the callbacks of a chain for an item, from step k on. were: the item's lengths. Each step
   sees the item as if a stage stood between it and the step before: zeros lie behind the lengths,
   and the message is empty. A callback may change any of its item, and where it finds the fields.
   So all steps but the last see a copy. If a field is ragged, the last one does, too. Returns 0,
   or the first code that is not 0. */
static int dlpi_chain_go(const dlpi_chained *k, dlp_item *it, uint64_t *were) {
    dlp_call *call = it->call;
    int rc;
    for (; k->more || k->ragged; k++) {
        void *data[DLP_MAX_FIELDS];
        dlp_item one = *it;
        if (k->fewer) dlpi_chain_point(&one, k);
        for (uint32_t f = 0; f < one.n_fields; f++) data[f] = one.data[f];
        one.data = data;
        rc = k->call(k->user, &one);
        if (DLPI_UNLIKELY(rc != 0)) return dlpi_chain_over(k, call, rc);
        if (k->ragged && !dlpi_chain_tails(it, k, were)) { /* the core refuses it */
            dlp_fail(call, 0, "%s", "");
            return call->row = k->row, 0;
        }
        if (!k->more) return 0;
        call->message[0] = 0;
    }
    if (k->fewer) dlpi_chain_point(it, k);
    rc = k->call(k->user, it);
    return DLPI_LIKELY(rc == 0) ? 0 : dlpi_chain_over(k, call, rc);
}

/* Callback of a stage: call the callbacks of all steps (user) of its chain for an item. */
static int dlpi_chain_call(void *user, dlp_item *it) {
    const dlpi_chained *k = user;
    uint64_t were[DLP_MAX_FIELDS];
    if (k->ragged) memcpy(were, it->length, it->n_fields * sizeof *were);
    return dlpi_chain_go(k, it, were);
}

/* Go on with an item that the asynchronous source of the stage has answered. Returns as
   dlpi_chain_go does. */
static int dlpi_chain_behind(const dlpi_stage *st, dlp_item *it) {
    const dlpi_chain *c = dlpi_chain_of(st);
    const dlpi_chained *k = c != NULL ? c->step : NULL;
    uint64_t were[DLP_MAX_FIELDS] = {0};
    if (k == NULL) return 0;
    if (k->ragged && !dlpi_chain_tails(it, k, were)) return 0; /* the core refuses it */
    return dlpi_chain_go(k + 1, it, were);
}

/* Call the callbacks for the worker's item, where no field is ragged. The first step is the stage's
   own callback, which sees fields from number 0 on. It gets the item's twin. */
DLPI_INLINE int dlpi_chain_run(dlpi_worker *w, void *user, dlpi_twin *first) {
    const dlpi_chained *k = user;
    first->item.n_fields = k->n;
    int rc = k->call(k->user, &first->item);
    if (DLPI_UNLIKELY(rc != 0)) return rc;
    w->note.message[0] = 0;
    if (k[1].more) return dlpi_chain_call((void *)(uintptr_t)&k[1], &w->item);
    if (k[1].fewer) dlpi_chain_point(&w->item, &k[1]);
    rc = k[1].call(k[1].user, &w->item);
    return DLPI_LIKELY(rc == 0) ? 0 : dlpi_chain_over(&k[1], &w->note, rc);
}

/* Run the rows of a unit whose stage has a chain, as dlpi_unit_plain does for one callback. */
DLPI_NOINLINE static void dlpi_chain_rows(dlpi_worker *w, const dlpi_unit *t, void *tally) {
    dlpi_unit_plain(w, t, DLPI_ASK_NOTHING, dlpi_chain_run, tally);
}

/* Append the callback of a row, and the n fields f that the row adds, to a stage. Returns 0 or a
   DLP_ERR code. */
DLPI_COLD static int dlpi_chain_add(dlp_pipe *p, dlpi_stage *st, const dlpi_chained *row,
                                    const dlp_field *f, uint32_t n) {
    dlpi_chain *c = dlpi_chain_of(st);
    const uint32_t before = st->n_fields;
    const char *name = row->row->name;
    const size_t n_steps = c->last != NULL ? (size_t)(c->last - c->step) + 1 : 1;
    int rc;
    if (n_steps == DLPI_CHAIN_STEPS)
        return dlpi_refuse(p, DLP_ERR_GRAPH, name, "",
                           "node \"%s\" is the eighth row in the worker of \"%s\"; join two of "
                           "these rows, or give this one workers",
                           name, st->name);
    if (n > DLP_MAX_FIELDS - before)
        return dlpi_bad(p, name, "n_fields", "16 at most, with those of the rows above",
                        before + n);
    if (n_steps == 1) {
        c->step[0] = (dlpi_chained){.call = st->item, .user = st->user};
        c->fields = before;
        c->waits = st->item == NULL;
        if (c->waits) {
            ((dlpi_fetch *)st->self)->behind = dlpi_chain_behind;
        } else {
            st->item = dlpi_chain_call;
            st->user = c->step;
        }
    }
    st->w.idempotent = 0; /* the new callback need not be */
    st->retries |= row->row->own && row->row->policy.retries > 0;
    for (size_t i = 0; i < n_steps; i++) c->step[i].after += n;
    c->step[n_steps] = *row;
    c->step[n_steps - 1].more = true;
    c->last = &c->step[n_steps];
    if ((rc = dlpi_keep_fields(p, st, f, n)) != DLP_OK) return rc;
    rc = dlpi_fields_apart(p, name, st->fields + before, n, st->fields, before);
    if (rc != DLP_OK || st->dataset == NULL) return rc;
    st->dataset->fields = st->fields;
    st->dataset->n_fields = st->n_fields;
    return DLP_OK;
}

/* Set which fields each step sees, once the fields of the stage are known. */
DLPI_COLD static void dlpi_chain_resolve(dlp_pipe *p, const dlpi_stage *st) {
    dlpi_chain *c = dlpi_chain_of(st);
    if (c->last == NULL) return;
    for (dlpi_chained *k = c->step; k <= c->last; k++) {
        k->n = k->own > 0 ? k->own : st->scope.n_fields - k->after;
        k->first = k->own > 0 ? st->scope.n_fields - k->after - k->own : 0;
        for (uint32_t f = 0; f < p->datasets.n_fields; f++)
            k->ragged |= p->datasets.fields[f].ragged != 0;
        k->fewer = k->n != st->scope.n_fields;
    }
    if (c->waits) ((dlpi_fetch *)st->self)->sees = c->step->n;
}

/* Let the fields that steps add to a fetch stage begin as zeros, even if the fetch writes all bytes
   of its own fields. Returns 0. */
DLPI_COLD static int dlpi_chain_widens(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_chain *c = dlpi_chain_of(st);
    dlpi_chain_resolve(p, st);
    if (c->last != NULL && st->n_fields != c->fields && !st->scope.zeroes) {
        st->scope.own = c->fields;
        st->scope.zeroes = 2;
    }
    return DLP_OK;
}

/* Write into `text`, for the plan, the names of the stage's rows, in the order of the table. */
DLPI_COLD static void dlpi_chain_what(const dlpi_stage *st, char *text, size_t size) {
    const dlpi_chain *c = dlpi_chain_of(st);
    size_t n = 0;
    for (const dlpi_chained *k = c->step; c->last != NULL && k <= c->last && n < size; k++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", k != c->step ? ", " : "",
                              k != c->step ? k->row->name : st->name);
}
