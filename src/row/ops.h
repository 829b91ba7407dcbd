#pragma once
/* tests: system/stages/fused, system/stages/stacks, system/core/attempts */
#include "cells/marks.h"
#include "fail/fail.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-programs   OPS: THE CALLBACKS OF ROWS OF THE TABLE, ONE AFTER THE OTHER
   Rows of the table that run in the same attempt are a program: a list of ops, one for each row. A
   stage of rows may have a program, and each level of the items in a cell has one. One loop runs
   the ops: dlpi_ops_go. It calls no op after one that failed. An op has no policy. It has its row
   of the table, and the policy of a failure is that of this row. The core sees one attempt. A try
   begins with the first op, and the tries of an item are counted together.
   Two ops of a row whose fields all have a fixed size do without the loop: dlpi_pair_call.

   block->op (X4) tells which row's callback runs. A worker process tells it, so that an error after
   its death names that row. So does a worker with a deadline, for the error of a late callback. If
   a row in its attempts gives a deadline, the limit is that of the row, from since_ns on. Nothing
   orders the two words. A reader may find the row of an op beside the time of the op before. So a
   callback is late only if a second look finds the time unchanged. Recovery reads the word of a
   dead worker. */

#define DLPI_OPS 8u /* ops of a program, at most */

typedef struct dlpi_item_arrays { /* the arrays that an item shown to a callback points to */
    void *data[DLP_MAX_FIELDS];
    uint64_t length[DLP_MAX_FIELDS];
} dlpi_item_arrays;

enum { /* dlpi_op.how: bits. 0: a fetch or map on a copy of the item, with all fields; not set */
       DLPI_OP_LAST = 1,
       DLPI_OP_SELF = 2,   /* it works on the item itself, which nobody uses once more */
       DLPI_OP_FEWER = 4,  /* it sees a part of the fields */
       DLPI_OP_SEAT = 8,   /* it sees the state of a seat */
       DLPI_OP_TAILS = 16, /* bytes behind its lengths are cleared */
       DLPI_OP_KEEP = 32,  /* a filter, which gets the item without a copy, and may not write */
};

typedef struct dlpi_op { /* the callback of one row of the table */
    union {
        dlp_item_fn call;                              /* NULL: the answer of an async source */
        int (*keep)(void *user, const dlp_item *item); /* of a filter */
    } fn;
    void *user;
    const dlpi_table_row *row; /* NULL: the stage's own callback */
    uint8_t how;               /* DLPI_OP_* */
    uint8_t first, n;          /* it sees n fields, from field `first` on */
    uint8_t seat;  /* 1 + number of the seat whose state it sees; 0: the first fetch's */
    uint8_t after; /* of a row: fields that later ops add, which it does not see */
    uint8_t own;   /* of a row: it sees only so many fields of its own; 0: all fields so far */
} dlpi_op;

typedef struct dlpi_program {
    uint32_t n; /* ops; 0: of a stage of rows, only its own callback */
    dlpi_op op[DLPI_OPS];
} dlpi_program;

/* Set how each op runs, once it is known which fields the items have: n_fields. ragged: one of them
   is. cell: they are items in a cell, which are used once more behind the last op. */
DLPI_COLD static void dlpi_program_set(dlpi_program *g, uint32_t n_fields, bool ragged, bool cell) {
    for (dlpi_op *k = g->op; k < g->op + g->n; k++) {
        const bool last = k + 1 == g->op + g->n;
        k->how &= DLPI_OP_KEEP | DLPI_OP_SEAT;
        if (k->n != n_fields) k->how |= DLPI_OP_FEWER;
        if (ragged && (k->how & DLPI_OP_KEEP) == 0) k->how |= DLPI_OP_TAILS;
        if (last) k->how |= cell || ragged ? DLPI_OP_LAST : DLPI_OP_LAST | DLPI_OP_SELF;
    }
}

/* Return the program of a stage of rows, or NULL if its kind allows none. A kind allows a program
   if the stage works on all fields of an item from the first one on. */
static dlpi_program *dlpi_program_of(const dlpi_stage *st) {
    return st->ops->program_at == 0 ? NULL : (void *)((uint8_t *)st->self + st->ops->program_at);
}

/* Return the code that the result of a filter comes to: 0 if the item goes on, DLP_SKIP if it is
   left out, or a failure's code. */
static inline int dlpi_op_kept(dlpi_worker *w, int rc) {
    if (rc == 1 || rc == 0) return rc == 1 ? 0 : DLP_SKIP;
    if (rc != DLP_SKIP && rc != DLP_END) return rc;
    return dlpi_say(w, DLP_ERR_CALLBACK, "keep returned %d, must be 1, 0 or a failure", rc);
}

/* Call a filter. Returns its result, which goes to dlpi_op_kept. */
DLPI_INLINE int dlpi_op_keep(const dlpi_op *k, const dlp_item *it) {
    return k->fn.keep(k->user, it);
}

/* Call a fetch or map. Returns its result. */
DLPI_INLINE int dlpi_op_call(const dlpi_op *k, dlp_item *it) { return k->fn.call(k->user, it); }

/* Open the marks of the ragged fields that op k sees. f: all fields; marks: of these. */
DLPI_NOINLINE static void dlpi_tails_open(const dlpi_op *k, const dlpi_field *f, uint64_t *marks) {
    for (uint32_t i = k->first; marks != NULL && i < k->first + (uint32_t)k->n; i++)
        if (f[i].f.ragged) dlpi_mark_open(&marks[i], f[i].row_bytes);
}

/* Clear the bytes of the item's ragged fields behind the lengths that op k has set. Close their
   marks. f: all fields; marks: of these, NULL: earlier items may have left anything there. Returns
   false if a length is wrong, so that the next op must not run. Its mark stays open. The lengths
   are refused where all are checked, by the name of this op. */
DLPI_NOINLINE static bool dlpi_tails_close(const dlpi_op *k, const dlp_item *it,
                                           const dlpi_field *f, uint64_t *marks) {
    const uint32_t i = k->first;
    const bool right = dlpi_marks_close(f + i, k->n, it->data + i, it->length + i,
                                        marks != NULL ? marks + i : NULL);
    if (DLPI_UNLIKELY(!right)) {
        dlp_fail(it->call, 0, "%s", "");
        it->call->row = k->row;
    }
    return right;
}

/* Let an item show the fields that op k sees. */
static inline void dlpi_op_point(dlp_item *it, const dlpi_op *k) {
    it->n_fields = k->n, it->data += k->first, it->length += k->first;
}

/* Tell whose callback runs from here on. op: the word. */
DLPI_NOINLINE static void dlpi_op_told(const dlpi_worker *w, uint32_t op) {
    if (w->st->timed != 0) DLPI_STORE_RLX(&w->block->since_ns, dlpi_now_ns()); /* for the limit */
    DLPI_STORE_RLX(&w->block->op, op);                                         /* X4 to recovery */
}

/* Tell that the callback of this row runs from here on, if the worker tells it. Returns the word
   that dlpi_op_back takes when the callback has returned. */
static inline uint32_t dlpi_op_tells(const dlpi_worker *w, const dlpi_table_row *row) {
    const uint32_t before = w->shows ? DLPI_LOAD_RLX(&w->block->op) : 0; /* X4: our own */
    if (w->shows) dlpi_op_told(w, row != NULL ? 1 + (uint32_t)(row - w->p->rows) : 0);
    return before;
}
static inline void dlpi_op_back(const dlpi_worker *w, uint32_t before) {
    if (w->shows) dlpi_op_told(w, before);
}

/* Run one op for an item of which it->n_fields fields are seen. cell: it may be a filter, or have a
   seat; a constant. Returns its code. */
DLPI_INLINE int dlpi_op_go(dlpi_worker *w, const dlpi_op *k, dlp_item *it, uint8_t how, bool cell) {
    void *data[DLP_MAX_FIELDS];
    dlp_item one;
    if (cell && (how & DLPI_OP_KEEP)) {
        it->n_fields = k->n;
        return dlpi_op_kept(w, dlpi_op_keep(k, it));
    }
    if (how & DLPI_OP_SELF) {
        if (how & DLPI_OP_FEWER) dlpi_op_point(it, k);
        return dlpi_op_call(k, it);
    }
    one = *it;
    if (how & DLPI_OP_FEWER) dlpi_op_point(&one, k);
    for (uint32_t f = 0; f < k->n; f++) data[f] = one.data[f];
    one.n_fields = k->n;
    one.data = data;
    if (cell && (how & DLPI_OP_SEAT) && w->seat != NULL)
        one.worker_state = dlpi_seats(w)[k->seat - 1].state;
    return dlpi_op_call(k, &one);
}

/* Do what dlpi_ops_go does. shows: the worker tells which op runs. cell and shows are constants. */
DLPI_INLINE int dlpi_ops_loop(dlpi_worker *w, const dlpi_op **at, dlp_item *it, const dlpi_field *f,
                              uint64_t *marks, bool cell, bool shows) {
    const dlpi_op *k = *at;
    dlp_call *call = it->call;
    int rc;
    for (;; k++) {
        const uint8_t how = k->how;
        if (shows) dlpi_op_tells(w, k->row);
        if (!shows && how == 0) {
            rc = dlpi_op_go(w, k, it, 0, cell);
            if (DLPI_UNLIKELY(rc != 0)) break;
        } else {
            if (how & DLPI_OP_TAILS) dlpi_tails_open(k, f, marks);
            rc = dlpi_op_go(w, k, it, how, cell);
            if (rc != 0 || ((how & DLPI_OP_TAILS) && !dlpi_tails_close(k, it, f, marks))) break;
            if (how & DLPI_OP_LAST) break;
        }
        call->message[0] = 0;
    }
    *at = k;
    return rc;
}

DLPI_COLD static int dlpi_ops_told(dlpi_worker *w, const dlpi_op **at, dlp_item *it,
                                   const dlpi_field *f, uint64_t *marks) {
    const uint32_t before = DLPI_LOAD_RLX(&w->block->op); /* X4: our own */
    const int rc = dlpi_ops_loop(w, at, it, f, marks, true, true);
    dlpi_op_told(w, before);
    return rc;
}

/* Run ops for an item, from op *at on. Each op sees the item as if a stage stood between it and the
   op before: zeros lie behind the lengths, and the message is empty. A callback may change any of
   its item, and where it finds the fields. So it gets a copy if the item is used once more. it: the
   item, with all fields f. marks: those of the fields (dlpi_tails_close). cell: see dlpi_op_go.
   Returns 0, with the last op in *at; or the first code that is not 0, with the op that returned
   it. If an op has set a wrong length, it returns 0, with that op. */
DLPI_INLINE int dlpi_ops_go(dlpi_worker *w, const dlpi_op **at, dlp_item *it, const dlpi_field *f,
                            uint64_t *marks, bool cell) {
    return DLPI_UNLIKELY(w->shows) ? dlpi_ops_told(w, at, it, f, marks)
                                   : dlpi_ops_loop(w, at, it, f, marks, cell, false);
}

/* End the program of a row at an op that returned rc, which is not 0. Note whose failure it is, or
   whose skip, if that row has a policy of its own. Returns rc for the stage's own callback, a skip
   or a wrong length; else DLP_ERR_CALLBACK. */
DLPI_COLD static int dlpi_op_over(const dlpi_op *k, dlp_call *call, int rc) {
    char why[256];
    if (k->row == NULL || (rc == DLP_SKIP && !k->row->own)) return rc;
    if (call->message[0] == 0) {
        dlpi_returned_text(why, sizeof why, rc);
        dlp_fail(call, 0, "%s", rc == DLP_SKIP ? "" : why);
    }
    call->row = k->row;
    return rc == DLP_ERR_LENGTH || rc == DLP_SKIP ? rc : DLP_ERR_CALLBACK;
}

/* Run the ops of a row's program from op k on. marks: bytes of the ragged fields; zeros lie behind
   them. Returns 0 or the code of dlpi_op_over. */
static int dlpi_ops_row(const dlpi_op *k, dlp_item *it, uint64_t *marks) {
    dlp_call *call = it->call;
    const int rc = dlpi_ops_go(call->w, &k, it, call->w->p->items.at, marks, false);
    return DLPI_LIKELY(rc == 0) ? 0 : dlpi_op_over(k, call, rc);
}

/* Callback of a stage that has a program: run its ops (user) for an item. */
static int dlpi_ops_call(void *user, dlp_item *it) {
    const dlpi_op *k = user;
    const dlpi_field *f = it->call->w->p->items.at;
    uint64_t marks[DLP_MAX_FIELDS];
    for (uint32_t i = 0; (k->how & DLPI_OP_TAILS) && i < it->n_fields; i++)
        marks[i] = f[i].f.ragged ? it->length[i] * dlpi_row_bytes(&f[i]) : 0;
    return dlpi_ops_row(k, it, marks);
}

/* Go on with an item that the asynchronous source of the stage has answered: run the ops behind.
   Returns as dlpi_ops_row does. */
static int dlpi_ops_behind(const dlpi_stage *st, dlp_item *it) {
    const dlpi_op *k = dlpi_program_of(st)->op;
    uint64_t marks[DLP_MAX_FIELDS] = {0};
    /* NOLINTNEXTLINE: a stage with rows behind an answer has ops */
    if ((k->how & DLPI_OP_TAILS) && !dlpi_tails_close(k, it, it->call->w->p->items.at, marks))
        return 0; /* the core refuses it */
    return dlpi_ops_row(k + 1, it, marks);
}
