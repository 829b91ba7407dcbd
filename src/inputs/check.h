#pragma once
/* tests: system/core/pipe_badinput */
#include "fail/fail.h"
/* ---- errors of a desc, and checks of its numbers ---- */

/* Refuse what the caller asked for: make this the pipe's error, if the pipe has none yet. stage,
   field: whose desc is wrong, and where; "" for none. Returns the code of the error that the pipe
   has then. */
DLPI_PRINTF(5, 6)
static int dlpi_refuse(dlp_pipe *p, int code, const char *stage, const char *field,
                       const char *format, ...) {
    dlp_error e;
    dlpi_error_set(&e, code, field, "%s", "");
    DLPI_PRINT(e.message, sizeof e.message, format);
    dlpi_copy_text(e.stage, sizeof e.stage, stage);
    return dlpi_pipe_fail(p, &e);
}

/* Make it the pipe's error that malloc failed. what: the memory's purpose, for the message. Returns
   the code of the pipe's error. */
static int dlpi_no_memory(dlp_pipe *p, const char *field, const char *what) {
    dlp_error e;
    dlpi_error_set(&e, DLP_ERR_MEMORY, field, "malloc of %s failed", what);
    e.errnum = ENOMEM;
    return dlpi_pipe_fail(p, &e);
}

/* Refuse a number of a desc. got: the number; words: what it must be. Returns the code of the
   pipe's error. */
static int dlpi_bad(dlp_pipe *p, const char *stage, const char *field, const char *words,
                    int64_t got) {
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "%s is %" PRId64 ", must be %s", field, got,
                       words);
}

/* Refuse a pointer of a desc that is NULL and must not be. give: what it must point to. Returns the
   code of the pipe's error. */
static int dlpi_missing(dlp_pipe *p, const char *stage, const char *field, const char *give) {
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "%s is NULL: give %s", field, give);
}

/* Refuse a pointer of a desc that must be NULL. where: under which condition it must. Returns the
   code of the pipe's error. */
static int dlpi_not_null(dlp_pipe *p, const char *stage, const char *field, const char *where) {
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "%s is given, must be NULL %s", field, where);
}

/* Check that an array (at) and its count (n) are both given, or neither is. array, count: their
   names. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_check_pair(dlp_pipe *p, const char *stage, const char *array, const void *at,
                           const char *count, int64_t n) {
    if ((at != NULL) == (n != 0)) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, stage, at ? count : array,
                       at ? "%s is 0, but %s is given: give both, or neither"
                          : "%s is NULL, but %s is %" PRId64 ": give both, or neither",
                       at ? count : array, at ? array : count, n);
}

/* Refuse the chain of stages. stage: the one that is wrong, or ""; what: the message. Returns the
   code of the pipe's error. */
static int dlpi_bad_graph(dlp_pipe *p, const char *stage, const char *what) {
    return dlpi_refuse(p, DLP_ERR_GRAPH, stage, "", "%s", what);
}

/* Refuse field i of a desc's fields, which is called `name` (or NULL). err.field is
   "fields[].what". The message names the field; `format` says what is wrong with it. Returns the
   code of the pipe's error. */
DLPI_PRINTF(6, 7)
static int dlpi_bad_field(dlp_pipe *p, const char *stage, uint32_t i, const char *name,
                          const char *what, const char *format, ...) {
    char field[48], text[256];
    DLPI_PRINT(text, sizeof text, format);
    snprintf(field, sizeof field, "fields[].%s", what);
    return dlpi_refuse(p, DLP_ERR_ARG, stage, field, "fields[%" PRIu32 "] \"%.31s\": %s", i,
                       name ? name : "", text);
}

#define DLPI_CELL_MAX (UINT64_C(1) << 46) /* bytes or elements of one field, at most */

/* The bounds of one value of a desc. A desc's check has a table of them. A pointer counts as 1, and
   NULL as 0. If a row has a partner, the row holds only if that pointer of the desc is set, or only
   if it is NULL. */
typedef struct dlpi_bound {
    const char *field;              /* the value's name in errors */
    unsigned verb : 5;              /* verb of the nodes that the row is about, or 0 */
    unsigned partner : 13;          /* offset of the partner; 0: none */
    unsigned without : 1;           /* 1: the row holds if the partner is NULL */
    unsigned offset : 13, type : 2; /* bytes from the begin of the desc; DLPI_I32 .. DLPI_PTR */
    int16_t low;                    /* least value that is allowed; INT16_MIN: any is */
    int64_t high;                   /* greatest value that is allowed */
    const char *words; /* the bounds in words, for the error; for a pointer, what to give if low is
                          1, else where it must be NULL */
} dlpi_bound;

/* DLPI_IN gives the offset and the type of a member of a desc, DLPI_AT its name before them.
   DLPI_NODE begins a row about nodes of one verb. DLPI_WITH and DLPI_WITHOUT, behind the words,
   give the partner. DLPI_ZERO is a member that must not be set, DLPI_EITHER any pointer. */
enum { DLPI_I32 = 0, DLPI_U32, DLPI_I64, DLPI_PTR };
#define DLPI_WIDE(at) _Generic(at, int64_t * : DLPI_I64, uint64_t * : DLPI_I64, default : DLPI_PTR)
#define DLPI_TYPE(at) \
    _Generic(at, int32_t * : DLPI_I32, uint32_t * : DLPI_U32, default : DLPI_WIDE(at))
#define DLPI_IN(desc, at) .offset = offsetof(desc, at), .type = DLPI_TYPE(&((desc *)0)->at)
#define DLPI_AT(desc, member) #member, DLPI_IN(desc, member)
#define DLPI_NODE(name, member) #member, .verb = DLP_##name, DLPI_IN(dlp_node, member)
#define DLPI_WITH(desc, member) .partner = offsetof(desc, member)
#define DLPI_WITHOUT(desc, member) DLPI_WITH(desc, member), .without = 1
#define DLPI_ZERO(desc, member) DLPI_AT(desc, member), 0, 0, NULL
#define DLPI_EITHER(desc, member) DLPI_AT(desc, member), 0, 1, NULL
#define DLPI_ROWS(table) table, sizeof table / sizeof *table

/* Return the value of a desc that a row of a table of bounds is about. */
static int64_t dlpi_bound_got(const dlpi_bound *b, const void *desc) {
    const uint8_t *at = (const uint8_t *)desc + b->offset;
    int64_t wide; /* of a uint64_t, too: from 2^63 on it is below every bound */
    int32_t narrow;
    const void *pointer;
    memcpy(&narrow, at, sizeof narrow);
    if (b->type == DLPI_I32) return narrow;
    if (b->type == DLPI_U32) return (uint32_t)narrow;
    memcpy(&pointer, at, sizeof pointer);
    if (b->type == DLPI_PTR) return pointer != NULL;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

/* Return the first of n rows whose value is out of its bounds in this desc, or NULL. */
static const dlpi_bound *dlpi_out_of_bounds(const void *desc, const dlpi_bound *b, size_t n) {
    for (; n > 0; n--, b++) {
        const int64_t got = dlpi_bound_got(b, desc);
        const void *partner = NULL;
        memcpy(&partner, (const uint8_t *)desc + b->partner, sizeof partner);
        if (b->partner != 0 && (partner == NULL) != b->without) continue;
        if ((got < b->low && b->low != INT16_MIN) || got > b->high) return b;
    }
    return NULL;
}

/* Check the values of a desc by a table of n bounds, and refuse the first that is out of its
   bounds. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_check_bounds(dlp_pipe *p, const char *stage, const void *desc,
                             const dlpi_bound *bounds, size_t n) {
    const dlpi_bound *b = dlpi_out_of_bounds(desc, bounds, n);
    if (b == NULL) return DLP_OK;
    if (b->type != DLPI_PTR) return dlpi_bad(p, stage, b->field, b->words, dlpi_bound_got(b, desc));
    return (b->low > 0 ? dlpi_missing : dlpi_not_null)(p, stage, b->field, b->words);
}

/* Check the numbers of field i of a desc's fields by a table of n bounds. Returns DLP_OK, or the
   code of the pipe's error. */
static int dlpi_check_field(dlp_pipe *p, const char *stage, uint32_t i, const dlp_field *f,
                            const dlpi_bound *bounds, size_t n) {
    const dlpi_bound *b = dlpi_out_of_bounds(f, bounds, n);
    if (b == NULL) return DLP_OK;
    return dlpi_bad_field(p, stage, i, f->name, b->field, "%s is %" PRId64 ", must be %s", b->field,
                          dlpi_bound_got(b, f), b->words);
}

/* Check a number (got) whose bounds follow from other numbers. words: what it must be, for the
   message. Returns DLP_OK, or the code of the pipe's error. */
static int dlpi_within(dlp_pipe *p, const char *stage, const char *field, int64_t got, int64_t low,
                       int64_t high, const char *words) {
    return got < low || got > high ? dlpi_bad(p, stage, field, words, got) : DLP_OK;
}
