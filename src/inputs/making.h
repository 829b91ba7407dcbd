/* needs: parts */
#pragma once
/* tests: system/stages/expand, system/stages/expand_bytes, system/inputs/inputs_random */
#include "api/expand.h"
#include "inputs/reads.h"
/* ---- items are made of inputs: for expanders and filters, branches, and packs ---- */

/* Bytes of a cell with several inputs, and of all cells that streams need, at most. */
#define DLPI_EXPAND_RUN_BYTES 32768u
#define DLPI_EXPAND_CELLS_BYTES 0x400000u

/* True if items of an input may fail and be left out. A cell has one number of these. */
static bool dlpi_input_leaves(const dlp_pipe *p, const dlpi_expand *x) {
    return dlpi_input_drops(p->source_stage, x) && x->n_levels > 1 &&
           (x->n_levels > 2 || x->level[1].program.n > 0 || x->level->part.load != NULL);
}

/* Return how many inputs a cell holds at most by their bytes, so that cells stay small. With boxes
   the scheduler copies the items of several inputs. It is 1 if the desc gives the number of cells,
   or if items of an input are shuffled, lie tight or may be left out. It is 1 with loads, packs,
   joined branches and requests, too. boxes: the source has boxes. */
static uint32_t dlpi_input_fits(const dlp_pipe *p, const dlpi_expand *x, bool boxes) {
    const dlpi_found *q = &x->found;
    uint64_t one = x->one_bytes > 0 ? x->one_bytes : 1, most;
    if (x->has_rooms && q->arrivals != NULL) one = dlpi_sum(one, x->level->bytes);
    if (dlpi_input_leaves(p, x) || DLPI_DEBUG || q->in_flight > 0 || q->d.load != NULL ||
        q->d.queue_size > 0 || q->max_bytes > 0 || q->rule != NULL || q->joins != NULL ||
        dlpi_found_shuffled(q) || (boxes && one > DLPI_BOX_SELF))
        return 1;
    most = DLPI_EXPAND_RUN_BYTES / one;
    return most > DLPI_INPUT_RUN ? DLPI_INPUT_RUN : most > 1 ? (uint32_t)most : 1;
}

/* Return how many inputs a cell holds at most: as many as fit, and as many as the cells that
   streams need have room for together. */
static uint32_t dlpi_input_most_run(const dlp_pipe *p, const dlpi_expand *x) {
    const dlpi_found *q = &x->found;
    const bool boxes = q->boxes.each > 0;
    const uint32_t most = dlpi_input_fits(p, x, boxes);
    uint64_t all = dlpi_times(q->cursors.n, boxes ? 1 : dlpi_found_need(p, q)), fit;
    all = dlpi_times(all, x->one_bytes > 0 ? x->one_bytes : 1);
    fit = DLPI_EXPAND_CELLS_BYTES / (all > 0 ? all : 1);
    return most < fit ? most : fit > 1 ? (uint32_t)fit : 1;
}

/* Return the bytes of a cell with boxes if boxes make the runs of a source with windows long, else
   0. Cells of windows have few inputs each, because there are so many cells. The items of such
   inputs are small: one more copy of an item takes less time than short runs do. */
static uint64_t dlpi_input_boxed(const dlp_pipe *p, const dlpi_expand *x) {
    const uint32_t most = dlpi_input_fits(p, x, true);
    if (x->found.plan.window == 0 || most < DLPI_INPUT_RUN ||
        x->found.most_run > DLPI_INPUT_RUN / 4)
        return 0;
    return most * x->one_bytes;
}

/* Place what a cell holds: its items, one item of each level before the last, and parts that loads
   fill. Returns the bytes of a cell. */
static uint64_t dlpi_input_cell(dlpi_expand *x) {
    uint64_t at = dlpi_levels_scratch(x, dlpi_times(x->found.most_run, x->one_bytes));
    for (dlpi_level *l = x->level; l < x->level + x->n_levels; l++) {
        if (l->part.load == NULL) continue;
        l->part_at = dlpi_round_up(at, 4096);
        at = dlpi_sum(l->part_at, l->part.max_part_bytes);
    }
    if (x->part.load == NULL) return at;
    x->part_at = dlpi_round_up(at, 4096);
    return dlpi_sum(x->part_at, x->part.max_part_bytes);
}

/* Check expand.max_bytes against the fields of the items that rows are made of. Returns 0 or a
   DLP_ERR code. */
DLPI_COLD static int dlpi_tight_check(dlp_pipe *p, const dlpi_expand *x) {
    const uint64_t got = x->found.max_bytes;
    const dlpi_level *l = dlpi_input_last(x);
    const char *name;
    uint64_t one = 0, all;
    if (got == 0) return DLP_OK;
    name = dlpi_level_maker(l)->row->name;
    for (uint32_t f = 0; f < l->fs.n; f++) one += l->fs.at[f].row_bytes;
    all = dlpi_times(x->found.most_items, one);
    if (!l->fs.any_ragged)
        return dlpi_refuse(p, DLP_ERR_ARG, name, "expand.max_bytes",
                           "max_bytes is %" PRIu64 ", must be 0: no field of the items is ragged, "
                           "so all items have the same bytes; lower max_out",
                           got);
    if (got >= one && got <= all) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, name, "expand.max_bytes",
                       "max_bytes is %" PRIu64 ", must be %" PRIu64 "..%" PRIu64
                       ": from one item of the declared size to all that an input may have",
                       got, one, all);
}

/* Lay out the items of all levels, and set the inputs and bytes of a cell of x. made: the fields of
   the levels above the first. Returns 0 or a DLP_ERR code. */
static int dlpi_input_sizes(dlp_pipe *p, const dlpi_stage *st, dlpi_expand *x,
                            const dlp_field *made) {
    int rc = dlpi_levels_places(p, st, x, made);
    if (rc == DLP_OK) rc = dlpi_tight_check(p, x);
    if (rc != DLP_OK) return rc;
    x->one_bytes = x->found.max_bytes > 0
                       ? dlpi_tight_place(x)
                       : dlpi_times(x->found.most_items, dlpi_input_last(x)->bytes);
    x->found.most_run = dlpi_input_most_run(p, x);
    x->found.d.max_part_bytes = dlpi_input_cell(x);
    dlpi_arrived_place(x);
    dlpi_boxes_place(&x->found, x->one_bytes);
    if (x->found.d.max_part_bytes > DLPI_CELL_MAX)
        return dlpi_refuse(p, DLP_ERR_ARG, st->name, "max_out",
                           "the items of an input have up to %" PRIu64 " bytes, must be at most "
                           "2^46; lower max_out, max_items of a load, or shapes",
                           x->found.d.max_part_bytes);
    return DLP_OK;
}

/* ---- an input is made ---- */

/* An input that is being made. */
typedef struct dlpi_line {
    const dlpi_expand *by;
    dlpi_worker *w;
    uint32_t c;             /* the input's cell */
    uint8_t *items, *cell;  /* where the items of the input go; the bytes of the whole cell */
    uint64_t made;          /* items made so far */
    uint64_t bytes;         /* bytes of their fields, if they lie tight */
    bool full;              /* the next item has more bytes than are left */
    uint64_t left_out;      /* items behind a maker that failed and were left out */
    uint64_t number, added; /* of items with numbers: that of the present one; items that the last
                               maker made in the calls before the present one */
    int64_t most;           /* the max_skips that holds for all of these together, over 0 */
    dlpi_input *of;         /* the record of the cell */
    const dlpi_level *last; /* the level of the items that are kept */
    dlp_item given;         /* the input, without its fields */
    /* only for plain inputs: */
    dlpi_item_arrays fields;
    dlp_item blank; /* `given` as it was before the first input. Nobody writes to it, so a copy of
                       it does not wait until words of the input before are in the cache */
    bool zeroes; /* the item is set to zeros first; false: not needed, or done for the whole run */
    bool filter; /* the only step is a filter, which sees the fields that fetch saw */
    bool counts; /* an item that it keeps is complete: it has no lengths, and no maker follows */
    struct dlpi_making *making; /* the calls of the expander; unused if there is none */
} dlpi_line;

/* One call of an expander. The callback may write over x and item, so the library goes by what lies
   between these. */
typedef struct dlpi_making {
    dlp_expand x; /* first: what the callback sees */
    dlpi_line *line;
    const dlpi_level *to;  /* the level of the items that the callback makes */
    uint8_t *at;           /* where the next item is written */
    uint32_t made, passed; /* items added and kept so far; those of them that are completed */
    uint64_t added;        /* items added so far, with those that are not kept */
    int wrong;             /* code of the first item that failed; 0: none failed */
    bool above;            /* the callback asked for more than max_out items */
    bool steps;            /* an added item has steps, or makers behind it */
    void (*begins)(const struct dlpi_making *m); /* prepares the place of an item; NULL: no byte has
                                                    to be prepared */
    const dlp_item *given;                       /* the input, without its fields */
    dlp_item shown, item; /* what each new item is set to, but for index and position, which are
                              those of `given`; the item added last */
    dlpi_item_arrays fields;
} dlpi_making;

/* Return where the next item of level l is to be written. */
static inline uint8_t *dlpi_line_place(const dlpi_line *b, const dlpi_level *l) {
    return dlpi_level_place(b->w, b->by, l, b->cell, b->items + b->made * l->bytes);
}

/* Return the key of an item's random numbers. position: its input's. number: its place there. */
static inline uint64_t dlpi_line_key(uint64_t position, uint64_t number) {
    return dlpi_absorb(position, number + 1);
}

static int dlpi_line_makes(dlpi_line *b, const dlpi_level *l, const dlp_item *given);

/* Copy the finished item of the last level behind those that lie tight in the cell. Returns 0, or
   DLP_ERR_LENGTH if the items have more bytes than expand.max_bytes. */
DLPI_NOINLINE static int dlpi_line_append(dlpi_line *b, const dlpi_level *l) {
    const uint8_t *from = dlpi_line_place(b, l);
    const uint64_t *length = (const uint64_t *)(const void *)from;
    uint64_t *at = (uint64_t *)(void *)b->items + b->made, bytes = b->bytes;
    for (uint32_t f = 0; f < l->fs.n; f++) bytes += dlpi_field_used(&l->fs.at[f], length[f]);
    if (bytes > b->by->found.max_bytes) {
        b->full = true;
        b->w->note.row = dlpi_level_maker(l)->row;
        return dlpi_say(b->w, DLP_ERR_LENGTH,
                        "the items of the input have %" PRIu64 " bytes up to this one, max_bytes "
                        "is %" PRIu64 "; raise it",
                        bytes, b->by->found.max_bytes);
    }
    if (b->made++ == 0) *at = b->by->items_at;
    at[1] = dlpi_round_up(*at + dlpi_item_move(l, b->items + *at, true, from, false), 8);
    b->bytes = bytes;
    return 0;
}

/* Go on with a kept item of level l whose fields do not end there: make items of it, or count it as
   an item of the input. Returns 0, DLP_SKIP or a failure's code. */
DLPI_INLINE int dlpi_line_kept(dlpi_line *b, const dlpi_level *l, const dlp_item *it) {
    if (l->maker.expand != NULL) return dlpi_line_makes(b, l, it);
    if (b->by->found.max_bytes > 0) return dlpi_line_append(b, l);
    b->made++;
    return 0;
}

/* Go on with a complete and kept item of level l. Fields that end there are dropped as it is copied
   to the next level, and that level's steps are called. it: the item without its fields. Returns 0,
   DLP_SKIP or a failure's code. */
static int dlpi_line_next(dlpi_line *b, const dlpi_level *l, const dlp_item *it) {
    for (int rc; l->ends != 0; l++) {
        uint8_t *from = dlpi_line_place(b, l), *to = dlpi_line_place(b, l + 1);
        dlpi_item_arrays fields;
        dlp_item given = *it;
        dlpi_item_copy(b->w, l, l->fs.n, from, l + 1, to);
        if (DLPI_DEBUG) memset(from, DLPI_POISON, (size_t)l->bytes); /* the item is over */
        if (l[1].program.n == 0) continue;
        if ((rc = dlpi_level_ops(b->w, l + 1, &given, to, &fields)) != 0) return rc;
    }
    if (DLPI_UNLIKELY(l->number_at > 0)) {
        const uint32_t number = (uint32_t)b->number;
        memcpy(dlpi_line_place(b, l) + l->number_at, &number, sizeof number);
    }
    if (DLPI_LIKELY(!b->w->shows)) return dlpi_line_kept(b, l, it);
    const uint32_t before = dlpi_op_tells(b->w, l->row);
    const int rc = dlpi_line_kept(b, l, it);
    dlpi_op_back(b->w, before);
    return rc;
}

/* True if an item behind a maker, which failed with this code, is left out, while its input goes
   on. False if the input is tried again, or if the failure is an error. The failures of an input
   are counted together, but each of them by the max_skips of its row. So b->most is the number that
   holds for all if it holds for each. */
DLPI_COLD static bool dlpi_line_leaves(dlpi_line *b, int code) {
    dlpi_worker *w = b->w;
    const dlpi_policy d = dlpi_policy_now(w);
    const int64_t most = d.max_skips == 0 ? INT64_MAX : d.max_skips == DLP_NONE ? 0 : d.max_skips;
    if (d.on_error != DLP_ON_ERROR_DROP || dlpi_never_skipped(code) || b->full ||
        dlpi_tries_left(w, dlpi_fate_tries(b->of->rec), code))
        return false;
    if (b->left_out == 0) dlpi_input_error(w, b->of, code);
    b->most = b->left_out++ == 0 || most <= b->most ? most : b->most + 1;
    dlpi_failure_forget(w);
    return true;
}

/* End an item of an input that came to code rc, a failure. number: of the item, which is put in
   front of the message. Returns 0 if the item is left out, or the code of the input's failure. */
DLPI_COLD static int dlpi_line_fails(dlpi_line *b, int rc, uint64_t number) {
    dlpi_worker *w = b->w;
    const int code = dlpi_item_returned(w, rc), errnum = w->block->message_errno;
    dlp_error e;
    dlpi_describe(w, code, &e);
    dlpi_say(w, code, "item %" PRIu64 ": %.180s", number, e.message);
    w->block->message_errno = errnum;
    return !dlpi_stopped(w->p) && dlpi_line_leaves(b, code) ? 0 : code;
}

/* Complete the item that an expander has added last: call its level's steps, and go on with it. A
   failure is kept in m->wrong. */
DLPI_NOINLINE static void dlpi_making_steps(dlpi_making *m) {
    dlpi_line *b = m->line;
    const dlpi_level *l = m->to;
    dlp_item given = *m->given;
    int rc;
    if (m->wrong != 0) return; /* the input fails, and its further items are not kept */
    rc = dlpi_item_ends(b->w, m->at, l);
    if (DLPI_UNLIKELY(rc != 0)) b->w->note.row = l[-1].row;
    given.position = dlpi_line_key(given.position, m->added - 1);
    b->number = b->added + m->added - 1;
    if (rc == 0 && l->program.n > 0) rc = dlpi_level_ops(b->w, l, &given, m->at, &m->fields);
    if (rc == 0) rc = dlpi_line_next(b, l, &given);
    m->at = dlpi_line_place(b, l);
    if (rc != 0 && rc != DLP_SKIP) m->wrong = dlpi_line_fails(b, rc, m->added - 1);
    if (rc != 0 && m->wrong == 0) m->passed = --m->made;
}

/* Go on with the item that an expander has added last, if there is one: it is complete now. */
static inline void dlpi_making_pass(dlpi_making *m) {
    /* cppcheck-suppress ctuuninitvar; who begins it sets all of it that is read */
    if (m->made == m->passed) return;
    m->passed = m->made;
    if (m->steps) {
        dlpi_making_steps(m);
        return;
    }
    if (m->to->fs.any_ragged)
        dlpi_item_close(m->line->w, m->at, m->to); /* its lengths are checked later */
    m->line->made++, m->at += m->to->bytes;
}

/* Clear the place of the next item. */
static void dlpi_making_zero(const dlpi_making *m) { dlpi_input_zero(m->at, m->to); }

/* Clear that place in a sample (>>impl-clears). */
DLPI_COLD static void dlpi_making_zero_timed(const dlpi_making *m) {
    dlpi_input_zero_timed(m->line->w, m->at, m->to);
}

/* Prepare the place of the next item, of which the callback writes all bytes: the fields that maps
   add begin as zeros. */
static void dlpi_making_begins(const dlpi_making *m) {
    const dlpi_worker *w = m->line->w;
    const dlpi_level *l = m->to;
    if (l->fs.any_ragged) memset(m->at, 0, l->fs.n * 8u);
    dlpi_item_begins(m->at, l);
    if (l->n_made > 0 && dlpi_clears_timed(w))
        dlpi_item_open_timed(w, m->at, l, l->n_made);
    else if (l->n_made > 0)
        dlpi_item_open(m->at, l, l->n_made, true);
}

/* If an added item has failed, its input fails, and no more items are kept. The callback then
   writes each further item to the place of the failed item. */
DLPDEF dlp_item *dlp_expand_add(dlp_expand *x) {
    dlpi_making *m = (dlpi_making *)(void *)x;
    const dlpi_level *to = m->to;
    dlpi_making_pass(m);
    if (DLPI_UNLIKELY(m->made >= to[-1].maker.max_out)) return m->above |= m->wrong == 0, NULL;
    m->item = m->shown; /* whole: the callback may have changed any of it */
    m->item.index = m->given->index;
    m->item.position = m->given->position;
    if (m->begins != NULL) m->begins(m);
    dlpi_input_lay(&m->item, m->at, to, &m->fields, false);
    m->added++;
    x->n_made = ++m->made;
    return &m->item;
}

/* True if no maker makes items of those of level l. */
static bool dlpi_line_deepest(const dlpi_line *b, const dlpi_level *l) {
    while (l < b->last && l->maker.expand == NULL) l++;
    return l == b->last;
}

/* Prepare *m for calls of the expander of level l. given: the input, without its fields. */
static void dlpi_making_open(dlpi_making *m, dlpi_line *b, const dlpi_level *l,
                             const dlp_item *given) {
    const dlpi_level *to = l + 1;
    const uint32_t n = to->n_made > 0 ? to->n_made : to->fs.n; /* fields that the callback sees */
    const bool all = l->maker.writes_all_bytes != 0;
    m->line = b;
    m->to = to;
    m->begins = all ? to->fs.any_ragged || n < to->fs.n ? dlpi_making_begins : NULL
                : dlpi_clears_timed(b->w) ? dlpi_making_zero_timed
                                          : dlpi_making_zero;
    m->steps = to->program.n > 0 || to->maker.max_out > 0 || b->last->number_at > 0 ||
               b->by->found.max_bytes > 0;
    m->given = given;
    m->shown = *given;
    dlpi_input_item(&m->shown, &m->fields, n);
}

/* Call the expander of level l with the item `in`, and go on with each item that it adds. Returns
   0, DLP_SKIP or a failure's code. */
static int dlpi_line_expand(dlpi_making *m, const dlpi_level *l, const dlp_item *in) {
    dlpi_line *b = m->line;
    const uint64_t before = b->made, bytes = b->bytes;
    int rc;
    m->x = (dlp_expand){.item = in, .call = &b->w->note};
    m->at = dlpi_line_place(b, m->to);
    m->added = m->made = m->passed = 0;
    m->wrong = 0;
    m->above = false;
    rc = l->maker.expand(l->maker.user, &m->x);
    if (rc == 0) dlpi_making_pass(m);
    if (dlpi_line_deepest(b, m->to)) b->added += m->added;
    if (rc != 0 || m->above) b->made = before, b->bytes = bytes;
    if (m->wrong != 0) return m->wrong;
    if (rc == 0 && m->above)
        rc = dlpi_say(b->w, DLP_ERR_LENGTH, "expand made more than max_out %" PRIu32 " items",
                      l->maker.max_out);
    if (DLPI_UNLIKELY(rc != 0 && rc != DLP_SKIP && b->w->note.row == NULL)) b->w->note.row = l->row;
    return rc;
}

/* Call the expander of level l with the level's item, and go on with each item that it adds. given:
   the item without its fields. Returns 0, DLP_SKIP or a failure's code. */
static int dlpi_line_makes(dlpi_line *b, const dlpi_level *l, const dlp_item *given) {
    dlpi_item_arrays fields;
    dlp_item in = *given;
    dlpi_making m;
    dlpi_input_point(&in, dlpi_line_place(b, l), l, &fields);
    dlpi_making_open(&m, b, l, given);
    return dlpi_line_expand(&m, l, &in);
}

/* Return the later fetch that has answered for the input which is made now, once. NULL: there is
   none, and the input begins. */
static const dlpi_later *dlpi_line_later(const dlpi_worker *w) {
    dlpi_in_flight *in = w->self;
    const dlpi_later *at = in != NULL ? in->at : NULL;
    if (at != NULL) in->at = NULL;
    return at;
}

/* Fetch one item of the first level, and make items of it. If a later fetch has answered, go on
   behind it. given: the item without its fields. Returns 0, DLP_SKIP, DLPI_READS or a failure's
   code. */
static int dlpi_line_item(dlpi_line *b, const dlp_item *given) {
    const dlpi_later *at = dlpi_line_later(b->w);
    const dlpi_level *l = &b->by->level[at != NULL ? at->level : 0];
    uint8_t *to = dlpi_line_place(b, l);
    dlpi_item_arrays fields;
    dlp_item in = *given;
    const int rc = at != NULL
                       ? dlpi_level_answered(b->w, l, &l->program.op[at->op], &in, to, &fields)
                       : dlpi_input_fetch(b->w, b->by, b->c, &in, given, to, &fields);
    return rc != 0 ? rc : dlpi_line_next(b, l, given);
}

/* Fetch the cell's next input, and make items of it. Fast variant of dlpi_line_item, for inputs of
   which dlpi_input_plain is true. shows: the worker tells whose callback runs; a constant. Returns
   0, DLP_SKIP or a failure's code. */
DLPI_INLINE int dlpi_line_plain(dlpi_line *b, bool shows) {
    const dlpi_expand *x = b->by;
    const dlpi_level *l = x->level;
    uint8_t *to = dlpi_line_place(b, l);
    dlp_item in = b->blank;
    int rc;
    b->w->ahead_own++;
    b->given.index = in.index = b->of->index;
    b->given.position = in.position = b->of->first + in.index;
    rc = dlpi_input_asks(b->w, x, &in, to, &b->fields, b->zeroes, shows);
    if ((rc = dlpi_input_came(b->w, x, b->of->index, to, rc)) != 0) return rc;
    if (b->filter) {
        dlpi_input_lay(&b->given, to, l, &b->fields, false);
        if (shows) dlpi_op_tells(b->w, l->program.op->row);
        rc = dlpi_op_keep(l->program.op, &b->given);
        if (DLPI_LIKELY(b->counts && (unsigned)rc <= 1)) return b->made = (unsigned)rc, 0;
        rc = dlpi_op_kept(b->w, rc);
        if (DLPI_UNLIKELY(rc != 0 && rc != DLP_SKIP)) b->w->note.row = l->program.op->row;
        if (rc == 0) rc = dlpi_input_lengths(b->w, &l->fs, (const uint64_t *)(void *)to);
    } else if (l->program.n > 0) {
        rc = dlpi_level_ops(b->w, l, &b->given, to, &b->fields);
        dlpi_input_item(&b->given, &b->fields, x->n_fetched);
    }
    if (shows && rc == 0) dlpi_op_tells(b->w, l->row);
    if (rc != 0) return rc;
    if (l->maker.expand == NULL) return b->made++, 0;
    dlpi_input_point(&b->given, to, l, &b->fields);
    rc = dlpi_line_expand(b->making, l, &b->given);
    dlpi_input_item(&b->given, &b->fields, x->n_fetched);
    return rc;
}

/* Callback of the maker that is a load. Load the part of the item x->item, and fetch the items of
   the part, which are added to x. Returns 0, DLP_SKIP or a failure's code. */
static int dlpi_making_load(void *user DLPI_UNREAD, dlp_expand *x) {
    dlpi_making *m = (dlpi_making *)(void *)x;
    const dlpi_level *l = m->to - 1;
    dlpi_line *b = m->line;
    const dlp_item *before = m->given;
    dlp_part part = {.of = x->item};
    dlp_item given = *before;
    int rc = dlpi_input_part(b->w, b->c, &l->part, b->cell + l->part_at,
                             b->by->found.all->d.max_part_bytes, &part);
    if (rc == 0) rc = dlpi_part_counted(b->w, &l->part, part.items);
    given.part = &part;
    m->given = &given; /* until the last item has passed */
    m->shown.part = &part;
    for (uint64_t k = 0; k < part.items && rc == 0; k++) {
        dlp_item *to = dlp_expand_add(x);
        if (to == NULL || m->wrong != 0) break;
        part.item = k;
        to->position = dlpi_line_key(to->position, k);
        const uint32_t told = dlpi_op_tells(b->w, l->fetch_row);
        rc = dlpi_stopped(b->w->p) ? DLP_STOPPED : l->fetch(l->fetch_user, to);
        dlpi_op_back(b->w, told);
        if (rc != 0) m->made = m->passed; /* it is no item */
        if (rc != 0 && rc != DLP_SKIP) b->w->note.row = l->fetch_row;
        if (rc != 0) rc = rc == DLP_SKIP ? 0 : dlpi_line_fails(b, rc, k);
    }
    if (rc == 0) dlpi_making_pass(m);
    m->given = before;
    m->shown.part = m->item.part = before->part;
    return rc;
}

/* Load the part of the next input, and make items of its items. Returns 0 or a failure's code. */
static int dlpi_line_load(dlpi_line *b) {
    const dlpi_expand *x = b->by;
    const dlpi_input *cell = dlpi_input_at(b->w->p, b->c);
    const dlpi_found_plan *plan = &x->found.plan;
    dlp_part part = {.items = 0};
    dlp_permutation order;
    int rc;
    if (x->firsts != NULL) {
        part.first = x->firsts[cell->index];
        part.items = x->firsts[cell->index + 1] - part.first;
    }
    const uint32_t before = dlpi_op_tells(b->w, x->load);
    rc = dlpi_input_part(b->w, b->c, &x->part, b->cell + x->part_at, x->found.all->d.max_part_bytes,
                         &part);
    dlpi_op_back(b->w, before);
    if (x->firsts != NULL) /* the list has counted them, whatever load has set */
        part.items = x->firsts[cell->index + 1] - x->firsts[cell->index];
    else if (rc == 0)
        rc = dlpi_part_counted(b->w, &x->part, part.items);
    if (DLPI_UNLIKELY(rc != 0 && rc != DLP_SKIP)) b->w->note.row = x->load;
    if (rc != 0) return rc;
    if (x->part.shuffle_items != 0 && part.items > 1)
        dlpi_found_items(plan, &order, cell->epoch, cell->index, cell->first / plan->n_inputs,
                         part.items);
    for (uint64_t k = 0; k < part.items && rc == 0; k++) {
        dlp_part shown = part;
        dlp_item it = b->given;
        shown.item =
            x->part.shuffle_items != 0 && part.items > 1 ? dlp_permutation_at(&order, k) : k;
        it.part = &shown;
        b->number = shown.item;
        it.position = dlpi_line_key(it.position, shown.item);
        rc = dlpi_stopped(b->w->p) ? DLP_STOPPED : dlpi_line_item(b, &it);
        if (rc != 0) rc = rc == DLP_SKIP ? 0 : dlpi_line_fails(b, rc, shown.item);
    }
    return rc;
}

/* Check the lengths of all items of the input once more, because a callback may have written them
   after its item was complete. Items that lie tight are copies. Returns 0, or DLP_ERR_LENGTH. */
static int dlpi_line_lengths(const dlpi_line *b) {
    const dlpi_level *l = b->last;
    int rc = 0;
    for (uint64_t i = 0; i < b->made && rc == 0 && b->by->found.max_bytes == 0; i++)
        rc = dlpi_input_lengths(b->w, &l->fs, (const uint64_t *)(void *)(b->items + i * l->bytes));
    return rc;
}

/* Return the bytes from the first of all items made of the input to their end. */
static inline uint64_t dlpi_line_bytes(const dlpi_line *b) {
    if (b->by->found.max_bytes == 0) return b->made * b->last->bytes;
    return b->made > 0 ? ((const uint64_t *)(const void *)b->items)[b->made] : 0;
}

/* True if a callback drew random numbers for the present input. The cache keeps no such input. */
static bool dlpi_line_random(const dlpi_worker *w) {
    const dlpi_attempt *made = dlpi_input_answer(w);
    return w->note.used_random != 0 || (made != NULL && made->note.used_random != 0);
}

/* Prepare *b for making items of the inputs of cell c, as x says. */
static inline void dlpi_line_begin(dlpi_line *b, dlpi_worker *w, const dlpi_expand *x, uint32_t c) {
    b->by = x;
    b->w = w;
    b->c = c;
    b->of = dlpi_input_at(w->p, c);
    b->last = dlpi_input_last(x);
    b->cell = dlpi_input_cell_at(w->p, x, c);
    b->items = b->cell + b->of->made * x->one_bytes;
    b->left_out = b->number = b->bytes = 0;
    b->full = false;
    b->given = dlpi_input_given(w, x, b->of);
}

/* Make the items of the cell's next input, of which dlpi_input_plain is true. shows: as for
   dlpi_line_plain. *n: gets what was made. Returns 0 or the failed input's code. */
DLPI_INLINE int dlpi_line_make_plain(dlpi_line *b, bool shows, dlpi_loaded *n) {
    const dlpi_level *l = b->last;
    b->made = 0;
    int rc = dlpi_line_plain(b, shows);
    if (rc == 0 && l->fs.any_ragged) rc = dlpi_line_lengths(b);
    if (rc == DLP_SKIP) rc = 0, b->made = 0;
    if (DLPI_UNLIKELY(rc != 0)) return dlpi_item_returned(b->w, rc);
    *n = (dlpi_loaded){b->made, b->made * l->bytes};
    b->items += b->by->one_bytes;
    return 0;
}

/* Make the items of the cell's next input, or take them from the cache. Returns 0 or the failed
   input's code. */
static int dlpi_line_make(dlpi_line *b) {
    const dlpi_expand *x = b->by;
    dlpi_worker *w = b->w;
    dlpi_input *cell = b->of;
    const bool rooms = DLPI_DEBUG && x->rooms != NULL;
    dlpi_redzone room;
    int rc;
    b->made = 0;
    b->bytes = 0;
    b->full = false;
    if (rooms) room = dlpi_redzone_of_room(w, x), dlpi_redzone_paint(&room);
    if (x->cached && w->p->keeper->find(w, x->list, cell->index, b->items, &b->made))
        return cell->items = b->made, cell->bytes = dlpi_line_bytes(b), 0;
    w->note.used_random = 0;
    b->added = 0;
    if (b->last->number_at > 0 && x->found.joins != NULL)
        x->found.joins->origin(w->p, b->c, &b->number);
    rc = x->part.load != NULL ? dlpi_line_load(b) : dlpi_line_item(b, &b->given);
    if (rc == 0 && b->last->fs.any_ragged) rc = dlpi_line_lengths(b);
    if (rc == DLP_SKIP) rc = 0, b->made = 0;
    if (rc == 0 && b->made > 0 && b->made < x->found.least_items &&
        x->found.least_items == x->part.min_items)
        rc = dlpi_say(w, DLP_ERR_LENGTH,
                      "%" PRIu64 " items of a part are left, fewer than min_items %" PRIu64 "; "
                      "callbacks must leave out all, or none",
                      b->made, x->found.least_items);
    if (rc != 0 && !dlpi_input_waits(w, rc)) rc = dlpi_item_returned(w, rc);
    rc = dlpi_redzone_input(w, b->c, x->found.all->d.max_part_bytes, rooms ? &room : NULL, rc);
    if (rc != 0) return rc;
    cell->items = b->made;
    cell->bytes = dlpi_line_bytes(b);
    if (b->left_out > 0) cell->error.position = b->left_out;
    if (b->left_out > 0) cell->error.epoch = (uint64_t)(b->most > 0 ? b->most : DLP_NONE);
    if (x->cached && b->left_out == 0 && !dlpi_line_random(w))
        w->p->keeper->keep(w, x->list, cell->index, b->items, b->made, cell->bytes);
    return 0;
}

/* Try once to make the items of cell c's next input, as x says. Returns 0 or a failure's code. */
static int dlpi_input_load_by(dlpi_worker *w, const dlpi_expand *x, uint32_t c) {
    dlpi_input *cell = dlpi_input_at(w->p, c);
    const int rc =
        dlpi_input_past(x, cell)
            ? dlpi_say(w, DLP_ERR_CALLBACK,
                       "list.order.function gave this index, the list has %" PRIu64 " items",
                       x->found.plan.order.n_items)
            : dlpi_call_verdict(w, cell->killed_by, cell->rec);
    dlpi_line b;
    if (rc != 0) return rc;
    cell->error.code = 0; /* of a try before, which left items out and failed */
    dlpi_line_begin(&b, w, x, c);
    return dlpi_line_make(&b);
}

/* True if dlpi_inputs_many makes the items of the inputs of x. */
DLPI_COLD static bool dlpi_input_plain(const dlp_pipe *p, const dlpi_expand *x) {
    return !DLPI_DEBUG && p->source_stage->w.deadline_ms == 0 && p->source_stage->timed == 0 &&
           x->found.max_bytes == 0 && x->found.plan.rule == DLPI_LIST_ONCE &&
           x->part.load == NULL && x->n_read == 0 && x->found.boxes.grant_at == 0 &&
           x->found.arrivals == NULL && x->found.joins == NULL && !dlpi_input_leaves(p, x) &&
           !x->cached && dlpi_input_last(x)->number_at == 0 && !x->has_rooms && x->n_levels <= 2 &&
           (x->n_levels == 1 || x->level[1].program.n == 0);
}

DLPI_INLINE int dlpi_input_plain_one(dlpi_worker *w DLPI_UNREAD, uint32_t c DLPI_UNREAD, void *by,
                                     dlpi_loaded *n) {
    return dlpi_line_make_plain(by, false, n);
}

/* Do what dlpi_input_plain_one does, in a worker that tells whose callback runs (a process). */
static int dlpi_input_plain_told(dlpi_worker *w, uint32_t c DLPI_UNREAD, void *by, dlpi_loaded *n) {
    const int rc = dlpi_line_make_plain(by, true, n);
    dlpi_op_back(w, 0);
    return rc;
}

/* Try each input of cell c once, as x says. If the inputs are plain, what is alike for all of them
   is done once. Returns 0 or the failed input's code. */
DLPI_INLINE int dlpi_inputs_many(dlpi_worker *w, const dlpi_expand *x, uint32_t c) {
    const dlpi_input *cell = dlpi_input_at(w->p, c);
    const dlpi_op *op = x->level->program.op;
    dlpi_making making;
    dlpi_line b;
    if (!x->plain || cell->rec != 0) {
        if (cell->made == cell->run && dlpi_boxes_fill(w, &x->found, c)) return 0;
        return dlpi_input_each(w, c);
    }
    dlpi_line_begin(&b, w, x, c);
    dlpi_input_item(&b.given, &b.fields, x->n_fetched);
    b.blank = b.given;
    b.filter = x->level->program.n == 1 && (op->how & DLPI_OP_KEEP) != 0 && op->first == 0 &&
               op->n == x->n_fetched;
    b.zeroes = !x->input.writes_all_bytes && (x->n_levels > 1 || x->level->fs.any_ragged);
    if (!x->input.writes_all_bytes && !b.zeroes)
        dlpi_items_zero(w, x->level, 0, b.cell + cell->made * x->one_bytes,
                        (cell->run - cell->made) * x->one_bytes, cell->run - cell->made);
    b.counts = x->n_levels == 1 && !x->level->fs.any_ragged;
    b.making = &making;
    if (x->level->maker.expand != NULL) dlpi_making_open(&making, &b, x->level, &b.given);
    w->index = dlpi_input_indices(b.of);
    w->ahead_row = 0;
    w->ahead_own = cell->made;                  /* dlpi_line_plain counts */
    w->ahead_end = x->n_of > 0 ? 0 : cell->run; /* an index is told by that of one dataset alone */
    const int rc = w->shows ? dlpi_inputs_each(w, c, dlpi_input_plain_told, &b, true)
                            : dlpi_inputs_each(w, c, dlpi_input_plain_one, &b, false);
    w->ahead_own = w->ahead_end = 0;
    return rc;
}

/* Callback of the fetch stage: copy a row's item out of its cell. user: a dlpi_expand. Returns
   0. */
static int dlpi_input_copy(void *user, dlp_item *it) {
    const dlpi_expand *x = user;
    const dlpi_level *l = dlpi_input_last(x);
    const bool tight = dlpi_found_tight(&x->found);
    const uint8_t *from = dlpi_found_item_at(it->part->data, it->part->item, l->bytes, tight);
    const uint8_t *next = from + dlpi_tight_head(l);
    const uint64_t *lengths = (const uint64_t *)(const void *)from;
    for (uint32_t f = 0; f < l->fs.n; f++) {
        const dlpi_field *d = &l->fs.at[f];
        const size_t n = dlpi_field_used(d, d->f.ragged ? lengths[f] : 0);
        memcpy(it->data[f], tight ? next : from + l->at[f], n);
        next += n;
        if (d->f.ragged) it->length[f] = lengths[f];
    }
    return 0;
}
