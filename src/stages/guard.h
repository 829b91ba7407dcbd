/* needs: guard */
#pragma once
/* tests: system/stages/guard */
#include "api/guard.h"
#include "inputs/table.h"
#include "work/recover.h"
#include "observe/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-guard      NUMBERS OF ITEMS, CHECKED AND COUNTED
   Each worker has a block of counters in the region, which it alone writes. Each row of each slot
   has a word. The word names the item that was counted there last, by its batch and its replacement
   (+ 1). First a worker notes the counter, its old value, the row and the new word. Then it sets
   pending (GU1), raises the counter, writes the row's word (GU2), and clears pending. A worker that
   dies leaves one of these:

     pending off                 nothing was begun, or all is done
     pending, no word            counter is old, or old + 1: recovery puts old back
     pending, the word is there  the item is counted: nothing to do

   Recovery does this before it gives up the dead worker's rows. Until then the row belongs to the
   dead worker, so no other worker can have written the row's word, and the word tells the truth.
   After that another worker may run the row, and count it in its own block: then the word would be
   there for another counter. A row that is run again finds its word, and is not counted again.
   Batch numbers never come twice, so a word of an earlier batch never looks like the word of this
   batch. A recovery may be done twice: pending is cleared after the counter is put back.

   label  atomic         written by                       read by (partner)
   GU1    block.pending  its worker, after the notes     recovery, of a dead worker (GU1)
   GU2    row word       the row's worker, after count   a worker that runs the row again (GU2) */

enum { DLPI_GUARD_NAN, DLPI_GUARD_INF, DLPI_GUARD_BELOW, DLPI_GUARD_ABOVE, DLPI_GUARD_KINDS };

/* In region, one for each worker. */
typedef struct dlpi_guard_block {
    uint64_t counts[DLP_MAX_FIELDS]
                   [DLPI_GUARD_KINDS]; /* numbers found, by checked field and kind */
    uint64_t pending; /* GU1 1 + number of the counter that is being raised; 0: none is */
    uint64_t old;     /* the counter's value before it is raised */
    uint64_t row;     /* number of the row's word among the words of all slots */
    uint64_t word;    /* the value that the row's word gets */
    uint8_t pad[DLPI_LINE - 32];
} dlpi_guard_block;

/* Numbers of the stage's areas in the region. */
enum { DLPI_GUARD_BLOCKS = 1, DLPI_GUARD_WORDS = DLPI_OWN_HIDDEN };

typedef struct dlpi_guard {      /* the stage's own record: n checked fields */
    uint32_t n, id;              /* id: the number of the stage */
    uint32_t at[DLP_MAX_FIELDS]; /* number among the item's fields; scratch fields come last */
    dlpi_field of[DLP_MAX_FIELDS];
    dlp_guard_field f[DLP_MAX_FIELDS]; /* copies of the desc's fields; their names lie in names */
    char names[DLP_MAX_FIELDS][32];
} dlpi_guard;

/* Check the row of a guard, and copy its fields into the stage. Returns 0 or a DLP_ERR code. */
static int dlpi_guard_take(dlp_pipe *p, dlpi_stage *st, const dlp_node_guard *d) {
    dlpi_guard *g = st->self;
    int rc = dlpi_within(p, st->name, "n_fields", d->n_fields, 1, DLP_MAX_FIELDS, "1..16");
    if (rc != DLP_OK) return rc;
    if (d->fields == NULL)
        return dlpi_missing(p, st->name, "fields", "an array of n_fields fields");
    for (uint32_t i = 0; i < d->n_fields; i++) {
        const dlp_guard_field *f = &d->fields[i];
        if (!(f->low <= f->high))
            return dlpi_refuse(p, DLP_ERR_ARG, st->name, "fields[].low",
                               "fields[%" PRIu32 "]: low is above high, or one is NaN", i);
        g->f[i] = *f;
        dlpi_copy_text(g->names[i], sizeof g->names[i], f->name);
    }
    g->n = d->n_fields;
    g->id = (uint32_t)st->id;
    return dlpi_check_workers(p, st);
}

/* Find each guarded field among the items' fields, or else among the scratch fields. Returns 0, or
   a DLP_ERR code if no row above has the field. */
DLPI_COLD static int dlpi_guard_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_guard *g = st->self;
    const dlpi_stage *scratch = st->held != 0 ? p->holder_stage : NULL;
    const uint32_t n = st->scope.n_fields, all = n + (scratch ? scratch->n_fields : 0);
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t k = 0;
        while (k < n && strcmp(p->items.at[k].name, g->names[i]) != 0) k++;
        while (k >= n && k < all && strcmp(scratch->fields[k - n].name, g->names[i]) != 0) k++;
        if (k == all)
            return dlpi_refuse(p, DLP_ERR_ARG, st->name, "fields[].name",
                               "no row above has a field \"%.31s\"", g->names[i]);
        g->at[i] = k;
        g->of[i] = p->items.at[k < n ? k : 0];
        if (k >= n && dlpi_field_init(p, st->name, &g->of[i], &scratch->fields[k - n], k - n, 1,
                                      false) != DLP_OK)
            return p->err.code;
    }
    return DLP_OK;
}

DLPI_COLD static void dlpi_guard_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_GUARD_BLOCKS), sizeof(dlpi_guard_block),
                  (uint64_t)st->n_workers, DLPI_LINE);
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_GUARD_WORDS), 8, dlpi_times(p->n_slots, p->batch_rows),
                  DLPI_LINE);
}

/* ---- numbers ---- */

/* Return a number of type DLP_F16 as a double. The value is exact. */
static double dlpi_guard_half(uint16_t h) {
    uint64_t e = h >> 10 & 31u, m = h & 1023u, sign = (uint64_t)(h >> 15) << 63;
    uint64_t bits = sign | (e == 31 ? UINT64_C(2047) : e + 1008) << 52 | m << 42;
    double v;
    if (e == 0) return (sign ? -1.0 : 1.0) * (double)m / 16777216.0;
    memcpy(&v, &bits, 8);
    return v;
}

/* Return the number at `at` as a double. t: DLP_F64, DLP_F32, DLP_F16 or DLP_BF16. The address need
   not be aligned. */
static double dlpi_guard_float(const uint8_t *at, dlp_dtype t) {
    uint32_t word = 0;
    uint16_t half;
    double wide;
    float f;
    if (t == DLP_F64) {
        memcpy(&wide, at, 8);
        return wide;
    }
    memcpy(&half, at, 2);
    if (t == DLP_F16) return dlpi_guard_half(half);
    word = (uint32_t)half << 16;
    if (t == DLP_F32) memcpy(&word, at, 4);
    memcpy(&f, &word, 4);
    return (double)f;
}

/* Return one element as a double. Integers lie with their lowest byte first here. */
static double dlpi_guard_value(const uint8_t *at, dlp_dtype t) {
    uint32_t bits = t & 0xffffu, code = t >> 16;
    uint64_t word = 0;
    if (code == 2 || code == 4) return dlpi_guard_float(at, t);
    memcpy(&word, at, bits / 8);
    if (code != 0) return (double)word;
    return (double)((int64_t)(word << (64 - bits)) >> (64 - bits));
}

/* Return what is wrong with value v by f's limits (DLPI_GUARD_*); DLPI_GUARD_KINDS: nothing. */
static int dlpi_guard_judge(const dlp_guard_field *f, double v) {
    if (__builtin_isnan(v)) return f->allow_nan ? DLPI_GUARD_KINDS : DLPI_GUARD_NAN;
    if (__builtin_isinf(v)) return f->allow_inf ? DLPI_GUARD_KINDS : DLPI_GUARD_INF;
    if (f->low == 0 && f->high == 0) return DLPI_GUARD_KINDS;
    return v < f->low ? DLPI_GUARD_BELOW : v > f->high ? DLPI_GUARD_ABOVE : DLPI_GUARD_KINDS;
}

/* Find the first bad element of guarded field i in the worker's row. *at, *v: its number and its
   value. Returns what is wrong with it, or DLPI_GUARD_KINDS if no element is bad. */
static int dlpi_guard_scan(const dlpi_worker *w, const dlpi_guard *g, uint32_t i, uint64_t *at,
                           double *v) {
    const dlpi_field *d = &g->of[i];
    const uint8_t *from = w->item.data[g->at[i]];
    uint64_t n = d->row_bytes / d->elem_bytes;
    if (d->f.ragged) n = n / (uint64_t)d->f.shape[0] * w->item.length[g->at[i]];
    for (*at = 0; *at < n; ++*at) {
        int what;
        *v = dlpi_guard_value(from + *at * d->elem_bytes, d->f.dtype);
        what = dlpi_guard_judge(&g->f[i], *v);
        if (what != DLPI_GUARD_KINDS) return what;
    }
    return DLPI_GUARD_KINDS;
}

/* ---- a row ---- */

static dlpi_guard_block *dlpi_guard_block_of(const dlpi_worker *w) {
    return dlpi_area_at(w->p, DLPI_OWN(w->st->id, DLPI_GUARD_BLOCKS), (uint64_t)w->id);
}

static uint64_t *dlpi_guard_word(const dlpi_worker *w, uint64_t row) {
    return dlpi_area_at(w->p, DLPI_OWN(w->st->id, DLPI_GUARD_WORDS), row);
}

/* Count fault `what` of guarded field i in the worker's present row, once: a row that was counted
   before is not counted again (>>impl-guard). */
static void dlpi_guard_count(dlpi_worker *w, uint32_t i, int what) {
    uint32_t s = (uint32_t)(DLPI_LOAD_RLX(&w->block->running) >> 32), row = w->item.row; /* own */
    uint32_t repl = dlpi_fate_repl(dlpi_slot_fate(w->p, s)[row]);
    uint64_t at = (uint64_t)s * w->p->batch_rows + row;
    uint64_t mine = dlpi_gen_word(dlpi_slot_at(w->p, s)->sequence, repl + 1u);
    dlpi_guard_block *b = dlpi_guard_block_of(w);
    uint64_t *count = &b->counts[i][what], *word = dlpi_guard_word(w, at);
    uint64_t old = DLPI_LOAD_RLX(count);     /* own */
    if (DLPI_LOAD_ACQ(word) == mine) return; /* GU2 <- GU2 */
    DLPI_STORE_RLX(&b->old, old);            /* before GU1, as the next two */
    DLPI_STORE_RLX(&b->row, at);
    DLPI_STORE_RLX(&b->word, mine);
    DLPI_STORE_REL(&b->pending, (uint64_t)i * DLPI_GUARD_KINDS + (uint64_t)what + 1); /* GU1 */
    DLPI_STORE_REL(count, old + 1);           /* GU1: after pending */
    DLPI_STORE_REL(word, mine);               /* GU2 -> GU2 */
    DLPI_STORE_REL(&b->pending, UINT64_C(0)); /* GU1: after the word */
}

/* The guard stage's callback: check a row, and count what is wrong. Returns 0 or a failure's
   code. */
static int dlpi_guard_item(void *user DLPI_UNREAD, dlp_item *it) {
    dlpi_worker *w = it->call->w;
    const dlpi_guard *g = w->st->self;
    for (uint32_t i = 0; i < g->n; i++) {
        uint64_t at;
        double v;
        int what = dlpi_guard_scan(w, g, i, &at, &v);
        if (what == DLPI_GUARD_KINDS) continue;
        dlpi_guard_count(w, i, what);
        if (what == DLPI_GUARD_NAN)
            return dlp_fail(it->call, 0, "field \"%s\" element %" PRIu64 " is NaN", g->names[i],
                            at);
        if (what == DLPI_GUARD_INF)
            return dlp_fail(it->call, 0, "field \"%s\" element %" PRIu64 " is %sinfinite",
                            g->names[i], at, v < 0 ? "minus " : "");
        return dlp_fail(it->call, 0, "field \"%s\" element %" PRIu64 " is %.17g, %s %.17g",
                        g->names[i], at, v, what == DLPI_GUARD_BELOW ? "below" : "above",
                        what == DLPI_GUARD_BELOW ? g->f[i].low : g->f[i].high);
    }
    return 0;
}

/* Undo the count that the dead worker had begun, unless its row's word was written. Then give up
   the units of the worker. Only the supervisor may call this. */
DLPI_COLD static void dlpi_guard_recover(dlpi_worker *w, const dlpi_death *why) {
    dlpi_guard_block *b = dlpi_guard_block_of(w);
    uint64_t pending = DLPI_LOAD_SEQ(&b->pending);                            /* GU1 <- GU1 */
    if (pending != 0 && DLPI_LOAD_SEQ(dlpi_guard_word(w, b->row)) != b->word) /* GU2 <- GU2 */
        DLPI_STORE_RLX(
            &b->counts[(pending - 1) / DLPI_GUARD_KINDS][(pending - 1) % DLPI_GUARD_KINDS],
            b->old);                          /* before GU1 */
    DLPI_STORE_SEQ(&b->pending, UINT64_C(0)); /* GU1: after the counter */
    dlpi_slots_recover(w, why);
}

/* Add up the workers' counts for each kind of fault, over all fields. Returns false if the words
   are not valid. */
DLPI_COLD static bool dlpi_guard_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const int id = DLPI_OWN(stage, DLPI_GUARD_BLOCKS);
    uint64_t one, n = words->areas[id].count;
    if (n > DLP_MAX_WORKERS) return false;
    for (uint64_t w = 0; w < n; w++)
        for (uint64_t k = 0; k < (uint64_t)DLP_MAX_FIELDS * DLPI_GUARD_KINDS; k++) {
            if (!dlpi_word_at(words, id, w, k * 8, 8, &one)) return false;
            s->figures.stages[stage].own[k % DLPI_GUARD_KINDS] += one;
        }
    return true;
}

static const dlpi_stage_ops dlpi_guard_ops = {
    .kind = DLP_STAGE_GUARD,
    .rank = 6,
    .many = 1,
    .held = DLPI_HELD_SEES,
    DLPI_OPS_OF_ROWS,
    .self_bytes = sizeof(dlpi_guard),
    .check = dlpi_guard_check,
    .layout = dlpi_guard_layout,
    .recover = dlpi_guard_recover,
    .seen = dlpi_guard_seen,
};

/* ---- a guard is added by a row; public call ---- */

/* Add the stage of a guard row. Returns a stage number or a DLP_ERR code. */
static int dlpi_node_guard_add(dlpi_table *t, const dlp_node *node) {
    const dlp_workers_desc w = dlpi_node_workers(t, node);
    dlpi_stage *st = dlpi_add(t->p, &dlpi_guard_ops, "guard", &w);
    if (st == NULL) return t->p->err.code;
    st->item = dlpi_guard_item;
    st->w.idempotent = 1; /* it changes nothing */
    return dlpi_added(t->p, st, dlpi_guard_take(t->p, st, &node->guard));
}

DLPI_COLD DLPDEF int dlp_pipe_guard_stats(dlp_pipe *p, dlp_stage guard, uint32_t field,
                                          dlp_guard_stats *out) {
    const dlpi_guard *g;
    if (p == NULL || out == NULL || guard < 0 || guard >= p->n_stages) return DLP_ERR_ARG;
    if (p->stages[guard].ops != &dlpi_guard_ops) return DLP_ERR_ARG;
    g = p->stages[guard].self;
    if (field >= g->n) return DLP_ERR_ARG;
    if (!p->started) return DLP_ERR_STATE;
    memset(out, 0, sizeof *out);
    for (int w = 0; w < p->stages[guard].n_workers; w++) {
        const dlpi_guard_block *b =
            dlpi_area_at(p, DLPI_OWN(guard, DLPI_GUARD_BLOCKS), (uint64_t)w);
        out->nan += DLPI_LOAD_RLX(&b->counts[field][DLPI_GUARD_NAN]); /* statistics, as below */
        out->inf += DLPI_LOAD_RLX(&b->counts[field][DLPI_GUARD_INF]);
        out->below += DLPI_LOAD_RLX(&b->counts[field][DLPI_GUARD_BELOW]);
        out->above += DLPI_LOAD_RLX(&b->counts[field][DLPI_GUARD_ABOVE]);
    }
    return DLP_OK;
}
