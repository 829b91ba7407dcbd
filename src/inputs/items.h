/* needs: parts */
#pragma once
/* tests: system/stages/expand, system/stages/pack, system/stages/stacks, system/stages/cell_ends */
#include "api/expand.h"
#include "cells/marks.h"
#include "flight/records.h"
#include "inputs/states.h"
/* ---- items that workers make in the cells of inputs: the records that makers share ---- */

#define DLPI_LEVELS 4u /* 1 + expanders and maps in which fields end, of one source, at most */

/* Items at one place of the table, between two makers, and what is called for each of them. */
typedef struct dlpi_level {
    dlpi_fields fs;
    uint64_t at[DLP_MAX_FIELDS]; /* bytes from the beginning of an item to each field */
    uint64_t bytes;              /* bytes of an item */
    uint64_t number_at; /* bytes from the beginning of an item to its number (dlp_batch.number); 0:
                           it has none */
    bool marked;        /* its items have marks behind their lengths */
    bool spared; /* its items are cleared, and writes_all_bytes = 1 of their maker would leave that
                    out */
    uint64_t scratch; /* bytes from the beginning of the cell, or the worker's room, to the level's
                         one item; unused on the last level, which has many items */
    uint32_t ends;    /* a bit for each field that ends behind the ops: the next level lacks it */
    dlpi_program program;  /* filters and maps, in the order of the table */
    uint32_t first, n;     /* its fields are n of the stage's, from `first` on; n 0: the input's */
    uint32_t n_made;       /* fields that an expand sees of an item that it makes; 0: all */
    dlp_node_expand maker; /* makes the items of the next level; max_out 0: there is none */
    dlp_node_load part;    /* the part that the maker loads; load NULL: the maker is no load */
    uint64_t part_at;      /* bytes from the beginning of the cell to this part */
    dlp_item_fn fetch;     /* fetches the items of the part */
    void *fetch_user;
    const dlpi_table_row *row, *fetch_row; /* of the maker; of that fetch */
} dlpi_level;

/* A later fetch by a source with a worker_state, or by requests: an op of a level, with a seat of
   its own. */
typedef struct dlpi_later {
    dlp_workers_desc calls; /* worker_init, worker_exit and tell of the source */
    uint32_t of;            /* 1 + the dataset that it fetches, among several; 0: it is an op */
    uint32_t level, op;
    const dlpi_table_row *row;
    uint64_t bytes;     /* what worker_init allocates */
    dlp_async async;    /* submit NULL: it makes no requests */
    void *user;         /* of these */
    uint32_t in_flight; /* requests of each worker; 0: none */
} dlpi_later;

/* A seat that each worker of a stage has: of one source, or of several that are called alike. */
typedef struct dlpi_seating {
    const dlp_workers_desc *calls; /* its worker_init and worker_exit; NULL: it has the state of
                                      seat `of` */
    uint32_t of;
    const dlpi_later *later;   /* the later fetch that makes its requests, or NULL */
    const dlpi_found *by;      /* the first of its sources */
    const dlpi_table_row *row; /* the row of the table that is named if worker_init fails */
    uint32_t n_workers;        /* workers that the rows of its sources ask for, together */
    uint32_t in_flight;        /* requests of each worker; 0: the sources make none */
    uint32_t first, end;       /* cells of its sources; none: it is of a later fetch */
    uint64_t bytes;            /* what its worker_init allocates, if the source says it */
} dlpi_seating;

#define DLPI_LATER 2u /* later fetches of a list with seats, at most */
#define DLPI_SEATS (DLPI_BRANCHES * (1 + DLPI_LATER) + 1) /* of a worker, at most */

typedef struct dlpi_seatings { /* all seats of a worker */
    uint8_t *memory; /* [workers][dlpi_seats_bytes]; NULL: there is one seat, without requests */
    uint32_t n;
    dlpi_seating at[DLPI_SEATS];
} dlpi_seatings;

#define DLPI_OF 16u /* datasets of a list before makers, each with a fetch, at most */

/* A dataset of several, whose items are numbered one after the other. */
typedef struct dlpi_of {
    uint64_t first, end; /* its items have the numbers first .. end - 1 */
    dlpi_op op;          /* the fetch of its row */
} dlpi_of;

typedef struct dlpi_expand { /* the record of a source whose workers make items of inputs */
    dlpi_found found;        /* first: the stage's self is one, too (dlpi_found_of) */
    bool cached;             /* workers ask the cache for the items of an input first */
    bool plain;              /* one loop makes the items of a run: dlpi_inputs_many */
    bool has_rooms; /* fields end: each worker has a room for the items of all levels but the last,
                       and but the first n_read levels, which requests write into the cell */
    uint8_t n_read;
    uint8_t list;      /* number of its list, by which a cache knows it */
    dlp_dataset input; /* the dataset of the fetch stage, from which inputs are fetched */
    const dlpi_table_row *row, *load; /* the rows that fetch it, and load its part; or NULL */
    dlpi_of of[DLPI_OF];              /* the datasets of several fetches */
    uint32_t n_of;                    /* 0: there is one fetch of all items */
    uint32_t n_levels;                /* 1: an item is an input that is kept */
    uint32_t n_fetched;               /* fields of the first level that fetch sees */
    dlpi_level level[DLPI_LEVELS];    /* first the items that fetch writes, last those of rows */
    dlp_node_load part;  /* the part that has the items of the first level; load NULL: no part */
    uint64_t part_at;    /* bytes from the beginning of the cell to this part */
    uint64_t *firsts;    /* [n_parts + 1] items before each part; NULL: load counts them */
    uint64_t arrived_at; /* bytes from the beginning of the cell to its pushed records */
    uint64_t one_bytes;  /* bytes of all items that an input may have */
    uint64_t items_at; /* bytes from the beginning of a cell to its first item, if they lie tight */
    dlpi_stage_ops copies; /* ops of the fetch stage: it copies runs of rows at once */
    dlp_async async;       /* reads several inputs at once: reads.h; submit NULL: fetch reads one */
    dlpi_seatings seats;   /* not in a branch */
    dlp_workers_desc calls; /* callbacks of the first seat, if there are several */
    dlpi_later later[DLPI_LATER];
    uint32_t n_later;
    const dlpi_table_row *drops; /* the first row that leaves out what fails; NULL: none says so */
    bool says;       /* each row has a policy of its own; else that of the stage may hold */
    uint8_t *rooms;  /* [workers] rooms; NULL: there are none */
    uint64_t at;     /* of a branch: bytes from the first cell to the branch's first cell */
    uint64_t stride; /* of a branch: bytes from cell to cell; 0: the stride of the area */
} dlpi_expand;

/* Return the bytes of cell c, which is one of x. */
static inline uint8_t *dlpi_input_cell_at(const dlp_pipe *p, const dlpi_expand *x, uint32_t c) {
    if (x->stride == 0) return dlpi_input_bytes(p, c);
    return dlpi_input_bytes(p, 0) + x->at + (c - x->found.first_cell) * x->stride;
}

/* True if a row of x, a source of the stage, may leave out items or inputs that fail. */
static inline bool dlpi_input_drops(const dlpi_stage *st, const dlpi_expand *x) {
    return x->drops != NULL || (!x->says && st->w.on_error == DLP_ON_ERROR_DROP);
}

static uint64_t dlpi_input_firsts_bytes(const dlpi_expand *x) {
    return x->firsts ? dlpi_times(x->part.n_parts + 1, 8) : 0;
}

/* Return the last level: the items that rows are made of. */
static inline const dlpi_level *dlpi_input_last(const dlpi_expand *x) {
    return &x->level[x->n_levels - 1];
}

/* Return the level whose maker made the items of level l, which is not the first: fields may have
   ended in between. */
static inline const dlpi_level *dlpi_level_maker(const dlpi_level *l) {
    do l--;
    while (l->maker.expand == NULL);
    return l;
}

/* Return the fields of the last level's items, and their count in *n. st: the stage, which holds
   the fields of the levels above the first. */
static const dlp_field *dlpi_input_made(const dlpi_stage *st, const dlpi_expand *x, uint32_t *n) {
    const dlpi_level *l = dlpi_input_last(x);
    *n = l->n > 0 ? l->n : x->input.n_fields;
    return l->n > 0 ? st->fields + l->first : x->input.fields;
}

/* Return the bytes that stand before the fields of an item that lies tight: the lengths of its
   fields, and its number, if it has one. */
static inline uint64_t dlpi_tight_head(const dlpi_level *l) {
    return l->fs.n * UINT64_C(8) + (l->number_at > 0 ? 8 : 0);
}

/* Place the items of an input that lie tight: offsets of all items and of their end, and behind
   these the items. Returns the bytes that they may have together. */
static uint64_t dlpi_tight_place(dlpi_expand *x) {
    const uint64_t most = x->found.most_items, head = dlpi_tight_head(dlpi_input_last(x)) + 8;
    x->items_at = dlpi_times(most + 1, 8);
    return dlpi_sum(dlpi_sum(x->items_at, dlpi_times(most, head)), x->found.max_bytes);
}

/* Return the alignment of a field of `bytes` bytes. It is 64, or 16 below 64 bytes, or below 9
   bytes the next power of two. */
static uint64_t dlpi_input_align(uint64_t bytes) {
    uint64_t align = 1;
    if (bytes > 8) return bytes < 64 ? 16 : 64;
    while (align < bytes) align *= 2;
    return align;
}

/* Write into l->at[] the offset of each field in an item. If a field is ragged, lengths come first,
   and if one has a large room, then the marks of all fields (>>impl-marks). A number comes last
   (numbered). Set l->bytes. */
static void dlpi_input_places(dlpi_level *l, bool numbered) {
    const dlpi_fields *fs = &l->fs;
    uint64_t end, most = fs->any_ragged ? 8 : 1;
    l->marked = false;
    for (uint32_t f = 0; f < fs->n; f++)
        l->marked |= fs->at[f].f.ragged && fs->at[f].row_bytes > DLPI_MARK_SHORT;
    end = l->marked ? fs->n * UINT64_C(16) : fs->any_ragged ? fs->n * UINT64_C(8) : 0;
    for (uint32_t f = 0; f < fs->n; f++) {
        uint64_t align = dlpi_input_align(fs->at[f].row_bytes);
        if (align > most) most = align;
        l->at[f] = dlpi_round_up(end, align);
        end = dlpi_sum(l->at[f], fs->at[f].row_bytes);
    }
    l->number_at = 0;
    if (numbered) {
        if (most < 4) most = 4;
        l->number_at = dlpi_round_up(end, 4);
        end = dlpi_sum(l->number_at, 4);
    }
    l->bytes = dlpi_round_up(end, most);
}

/* True if rows are traced, and items of x have numbers: a load or expand makes them, or one in a
   branch may. */
static bool dlpi_input_numbered(const dlp_pipe *p, const dlpi_expand *x) {
    bool makes = x->part.load != NULL || x->found.joins != NULL;
    for (uint32_t i = 0; i < x->n_levels; i++) makes |= x->level[i].maker.expand != NULL;
    return p->d.trace_rows != 0 && makes;
}

/* Lay out the n fields f as the items of a level. Returns 0 or a DLP_ERR code. */
static int dlpi_level_places(dlp_pipe *p, const dlpi_stage *st, dlpi_level *l, const dlp_field *f,
                             uint32_t n, bool numbered) {
    const int rc = dlpi_fields_init(p, st->name, &l->fs, f, n, false);
    dlpi_input_places(l, numbered);
    dlpi_program_set(&l->program, l->fs.n, l->fs.any_ragged, true);
    return rc;
}

/* Lay out the items of each level, one after the other. A level without fields of its own has those
   of the level before. made: the fields of the levels above the first. Returns 0 or a DLP_ERR
   code. */
static int dlpi_levels_places(dlp_pipe *p, const dlpi_stage *st, dlpi_expand *x,
                              const dlp_field *made) {
    const dlp_field *f = x->input.fields;
    const bool numbered = dlpi_input_numbered(p, x);
    uint32_t n = x->input.n_fields;
    int rc = DLP_OK;
    if (x->n_fetched == 0) x->n_fetched = n;
    for (uint32_t i = 0; i < x->n_levels && rc == DLP_OK; i++) {
        dlpi_level *l = &x->level[i];
        if (l->n > 0) {
            f = made + l->first;
            n = l->n;
        }
        l->spared = i > 0 ? l[-1].maker.expand != NULL && !l[-1].maker.writes_all_bytes
                          : !x->input.writes_all_bytes && x->n_fetched == n;
        rc = dlpi_level_places(p, st, l, f, n, numbered && i + 1 == x->n_levels);
    }
    return rc;
}

/* True if the one item of a level lies in a room of its worker, and not in its cell. */
static inline bool dlpi_level_in_room(const dlpi_expand *x, const dlpi_level *l) {
    return x->has_rooms && l >= x->level + x->n_read;
}

/* Return how many levels have one item at a time: all but the last. If items lie tight, the last
   one, too: an item is made in a place of the declared size, and then copied. A table that is
   refused may have no level yet. */
static inline uint32_t dlpi_levels_single(const dlpi_expand *x) {
    return x->n_levels > 0 && x->found.max_bytes == 0 ? x->n_levels - 1 : x->n_levels;
}

/* Give the one item of such a level its offset: in the worker's room, or in the cell, from byte
   `at` of the cell on. Returns the bytes that a cell needs. */
static uint64_t dlpi_levels_scratch(dlpi_expand *x, uint64_t at) {
    uint64_t room = 0;
    for (uint32_t i = 0; i < dlpi_levels_single(x); i++) {
        dlpi_level *l = &x->level[i];
        uint64_t *end = dlpi_level_in_room(x, l) ? &room : &at;
        l->scratch = dlpi_round_up(*end, 64);
        *end = dlpi_sum(l->scratch, l->bytes);
    }
    return at;
}

/* Return the bytes of a worker's room, without the guard bytes around it. */
static uint64_t dlpi_room_bytes(const dlpi_expand *x) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < dlpi_levels_single(x); i++)
        if (dlpi_level_in_room(x, &x->level[i])) bytes = x->level[i].scratch + x->level[i].bytes;
    return bytes;
}

/* Return the bytes from one worker's room to the next, which share no cache line; 0: no rooms. */
static uint64_t dlpi_room_stride(const dlpi_expand *x) {
    const uint64_t bytes = dlpi_room_bytes(x);
    return bytes > 0 ? dlpi_round_up(dlpi_sum(bytes, 2 * DLPI_REDZONE), DLPI_LINE) : 0;
}

/* Return the bytes of a worker's room, for the plan. */
static uint64_t dlpi_rooms_each(const dlpi_stage *st) {
    return dlpi_room_stride((const dlpi_expand *)st->self);
}

static dlpi_block dlpi_rooms_block(const dlpi_stage *st) {
    const uint64_t each = dlpi_rooms_each(st);
    return (dlpi_block){offsetof(dlpi_expand, rooms),
                        each > 0 ? dlpi_sum(dlpi_times((uint64_t)st->n_workers, each), DLPI_LINE)
                                 : 0};
}

static uint8_t *dlpi_room_of(const dlpi_worker *w, const dlpi_expand *x) {
    const uint64_t at = DLPI_REDZONE + (uint64_t)w->id * dlpi_room_stride(x);
    return x->rooms + (DLPI_LINE - (uintptr_t)x->rooms % DLPI_LINE) + at;
}

/* Return where the item of level l that is made now lies. An item of the last level lies at `next`,
   unless items lie tight. Others lie in the cell's bytes `cell`, or in the worker's room. */
static uint8_t *dlpi_level_place(const dlpi_worker *w, const dlpi_expand *x, const dlpi_level *l,
                                 uint8_t *cell, uint8_t *next) {
    if (l->maker.max_out == 0 && x->found.max_bytes == 0) return next;
    return (dlpi_level_in_room(x, l) ? dlpi_room_of(w, x) : cell) + l->scratch;
}

/* DLPIPE_DEBUG: return the guard bytes around a worker's room. */
static dlpi_redzone dlpi_redzone_of_room(const dlpi_worker *w, const dlpi_expand *x) {
    uint8_t *at = dlpi_room_of(w, x);
    return dlpi_redzone_whole(at, at - DLPI_REDZONE, dlpi_room_stride(x), dlpi_room_bytes(x));
}

/* Refuse DLP_ON_ERROR_REPLACE in the stages of rows, because behind a maker a row has no
   replacement. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_input_rows_check(dlp_pipe *p) {
    for (const dlpi_stage *row = p->fetch; row != p->batcher; row++)
        if (row->w.on_error == DLP_ON_ERROR_REPLACE)
            return dlpi_refuse(p, DLP_ERR_ARG, row->name, "on_error",
                               "on_error is DLP_ON_ERROR_REPLACE, must be _RAISE or _DROP after "
                               "stage \"%s\"",
                               p->source_stage->name);
    return DLP_OK;
}

/* Take the callback and the dataset of the fetch stage over into x, and let that stage call
   copy(user, item) instead. A second call only checks, since sizes are computed twice. Returns 0 or
   a DLP_ERR code. */
DLPI_COLD static int dlpi_input_adopt(dlp_pipe *p, dlpi_expand *x, dlp_item_fn copy, void *user) {
    dlpi_stage *fetch = p->fetch;
    const int rc = dlpi_input_rows_check(p);
    if (rc != DLP_OK || fetch->item == copy) return rc;
    x->input = *fetch->dataset;
    fetch->item = copy;
    fetch->user = user;
    fetch->dataset->writes_all_bytes = 1;
    return DLP_OK;
}

/* Let the fetch stage copy runs of rows by `bulk`. copies: gets the ops of that stage. */
DLPI_COLD static void dlpi_input_bulk(dlp_pipe *p, dlpi_stage_ops *copies,
                                      uint32_t (*bulk)(dlpi_worker *w, const dlpi_unit *t)) {
    if (p->fetch->ops == copies) return;
    *copies = *p->fetch->ops;
    copies->bulk = bulk;
    p->fetch->ops = copies;
}

/* Refuse an order that inputs cannot have. list: the name of its list. makes: the name of the row
   that makes items of the inputs. Returns 0 or a DLP_ERR code. */
static int dlpi_input_orders(dlp_pipe *p, const char *list, int32_t order, const char *makes) {
    if (order == DLP_ORDER_PARTS)
        return dlpi_bad(p, list, "list.order.order",
                        "another order than DLP_ORDER_PARTS: no node loads parts", order);
    if (order != DLP_ORDER_BATCHES) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, list, "list.order.order",
                       "lists of batches name rows by number, and \"%s\" makes items without "
                       "numbers; set another order, or use a window with group",
                       makes);
}

/* Check the order of the source's inputs and their number. Returns 0 or a DLP_ERR code. */
static int dlpi_input_order(dlp_pipe *p) {
    int rc = dlpi_found_refuses(p);
    if (rc == DLP_OK)
        rc = dlpi_input_orders(p, p->sampler->name, dlpi_sampler_of(p)->order,
                               p->source_stage->name);
    return rc == DLP_OK ? dlpi_check_items(p) : rc;
}

/* Let plan q have the order of a list of n items. */
static void dlpi_input_rule(const dlp_sampler_desc *d, uint64_t n, dlpi_found_plan *q) {
    const dlpi_order_ops *order = dlpi_order_of(d->order);
    q->n_inputs = dlpi_order_samples(d, n);
    q->shuffle_inputs = d->order == DLP_ORDER_SHUFFLED || order->drawn;
    if (order->drawn) q->rule = DLPI_LIST_DRAWN;
    if (order->function && q->rule == DLPI_LIST_ONCE) q->rule = DLPI_LIST_FUNCTION;
}

/* Check and set what a source of inputs has: their number, their order, and the lengths that
   follow. fields: takes over the fields of the fetch stage; returns DLP_OK or an error code.
   Returns 0 or a DLP_ERR code. */
static int dlpi_inputs_sizes(dlp_pipe *p, dlpi_found *q,
                             int (*fields)(dlp_pipe *p, dlpi_stage *st)) {
    int rc = dlpi_input_order(p);
    if (rc != DLP_OK) return rc;
    if ((rc = fields(p, p->source_stage)) != DLP_OK) return rc;
    dlpi_input_rule(dlpi_sampler_of(p), p->fetch->dataset->n_items, &q->plan);
    return dlpi_found_lengths(p);
}

/* Reserve room at the end of each cell: for the records that arrive, or, behind joined branches,
   for where the items of the row lie. */
static void dlpi_arrived_place(dlpi_expand *x) {
    dlpi_found *q = &x->found;
    if (q->arrivals == NULL && q->joins == NULL) return;
    x->arrived_at = dlpi_round_up(q->d.max_part_bytes, 64);
    q->d.max_part_bytes =
        dlpi_sum(x->arrived_at, q->joins != NULL
                                    ? dlpi_branches_room(q->cursors.lists) * sizeof(dlpi_found_row)
                                    : dlpi_times(q->most_run, x->level->bytes));
}

/* Return the bytes of record k of cell c. */
static uint8_t *dlpi_arrived_at(const dlp_pipe *p, const dlpi_expand *x, uint32_t c, uint32_t k) {
    return dlpi_input_cell_at(p, x, c) + x->arrived_at + k * x->level->bytes;
}

/* Return the marks of the item of level l at `to`, or NULL if it has none. */
static inline uint64_t *dlpi_item_marks(uint8_t *to, const dlpi_level *l) {
    return l->marked ? (uint64_t *)(void *)to + l->fs.n : NULL;
}

/* Return the place of the mark of field f in the item of level l at `to`. An item without marks has
   a mark of its whole room in *none. */
static inline uint64_t *dlpi_item_mark(uint8_t *to, const dlpi_level *l, uint32_t f,
                                       uint64_t *none) {
    *none = DLPI_MARK_OPEN;
    return l->marked ? dlpi_item_marks(to, l) + f : none;
}

/* Return the number of item `at` of x among those at `bytes`, which are a cell's, or a box's. */
static uint32_t dlpi_item_number(const dlpi_expand *x, const uint8_t *bytes, uint64_t at) {
    const dlpi_level *l = dlpi_input_last(x);
    const bool tight = dlpi_found_tight(&x->found);
    const uint8_t *from = dlpi_found_item_at(bytes, at, l->bytes, tight);
    uint32_t n = 0;
    if (l->number_at > 0) memcpy(&n, from + (tight ? l->fs.n * 8u : l->number_at), sizeof n);
    return n;
}

/* Open the marks of the ragged fields of the item of level l at `to`, from field `first` on. clear:
   all fields from there on begin as zeros. */
static void dlpi_item_open(uint8_t *to, const dlpi_level *l, uint32_t first, bool clear) {
    for (uint32_t f = first; f < l->fs.n; f++) {
        const dlpi_field *d = &l->fs.at[f];
        uint64_t none, *mark = dlpi_item_mark(to, l, f, &none);
        if (d->f.ragged)
            dlpi_mark_begin(mark, to + l->at[f], d->row_bytes, clear);
        else if (clear)
            memset(to + l->at[f], 0, (size_t)d->row_bytes);
    }
}

/* Do what dlpi_item_open does to clear fields, in a sample (>>impl-clears). */
DLPI_COLD static void dlpi_item_open_timed(const dlpi_worker *w, uint8_t *to, const dlpi_level *l,
                                           uint32_t first) {
    for (uint32_t f = first; f < l->fs.n; f++) {
        const dlpi_field *d = &l->fs.at[f];
        uint8_t *at = to + l->at[f];
        uint64_t none, *mark = dlpi_item_mark(to, l, f, &none);
        if (!d->f.ragged) {
            dlpi_clear_timed(w, d, at, d->row_bytes, 1, l->spared);
            continue;
        }
        const uint64_t from = dlpi_tails_timed(w, d, at, mark, NULL, 1);
        dlpi_mark_begin(mark, at, d->row_bytes, true);
        dlpi_clear_note(w, d, from, l->spared);
    }
}

/* Return the field with the most bytes, from field `first` on. */
DLPI_COLD static const dlpi_field *dlpi_field_largest(const dlpi_fields *fs, uint32_t first) {
    const dlpi_field *largest = &fs->at[first];
    for (uint32_t f = first; f < fs->n; f++)
        if (fs->at[f].row_bytes > largest->row_bytes) largest = &fs->at[f];
    return largest;
}

/* Set `bytes` bytes at `at` to 0: of `rows` items of level l, the fields from `first` on. None of
   them is ragged. */
static inline void dlpi_items_zero(const dlpi_worker *w, const dlpi_level *l, uint32_t first,
                                   uint8_t *at, uint64_t bytes, uint64_t rows) {
    if (dlpi_clears_timed(w))
        dlpi_clear_timed(w, dlpi_field_largest(&l->fs, first), at, bytes, rows, l->spared);
    else
        memset(at, 0, (size_t)bytes);
}

/* Return the bytes that a field of an item has: if it is ragged, those of `length` rows, at most
   its maximum. */
static inline size_t dlpi_field_used(const dlpi_field *d, uint64_t length) {
    const uint64_t most = d->f.ragged ? (uint64_t)d->f.shape[0] : 1;
    return (size_t)(d->row_bytes / most * (d->f.ragged && length < most ? length : most));
}

/* Copy one field of an item. If it is ragged, `length` rows are copied, at most its maximum, and
   zeros follow. mark: that of the place `to`. */
static void dlpi_field_copy(const dlpi_field *d, uint64_t *mark, uint8_t *to, const uint8_t *from,
                            uint64_t length) {
    if (d->f.ragged)
        dlpi_mark_copy(mark, to, from, dlpi_field_used(d, length), d->row_bytes);
    else
        memcpy(to, from, (size_t)d->row_bytes);
}

/* Copy the used bytes of an item of level l. A place where items lie tight has the bytes of the
   fields one behind the other; elsewhere each field has its declared size. Returns the bytes of the
   item where it lies tight. */
static uint64_t dlpi_item_move(const dlpi_level *l, uint8_t *to, bool to_tight, const uint8_t *from,
                               bool from_tight) {
    const uint64_t *length = (const uint64_t *)(const void *)from, head = l->fs.n * UINT64_C(8);
    uint64_t tight = dlpi_tight_head(l);
    memcpy(to, from, (size_t)head);
    if (l->number_at > 0)
        memcpy(to + (to_tight ? head : l->number_at), from + (from_tight ? head : l->number_at), 4);
    for (uint32_t f = 0; f < l->fs.n; f++) {
        const size_t n = dlpi_field_used(&l->fs.at[f], length[f]);
        memcpy(to + (to_tight ? tight : l->at[f]), from + (from_tight ? tight : l->at[f]), n);
        tight += n;
    }
    return tight;
}

/* Copy n items of the last level of q, a source whose items are copied into boxes. If a
   field is ragged, only the rows that the lengths tell are copied. Items that lie tight come one at
   a time. */
static void dlpi_items_move(const dlpi_found *q, uint8_t *to, const uint8_t *from, uint64_t n) {
    const dlpi_level *l = dlpi_input_last((const dlpi_expand *)(const void *)q);
    if (!l->fs.any_ragged) { /* so they do not lie tight */
        memcpy(to, from, (size_t)(n * l->bytes));
        return;
    }
    for (uint64_t i = 0; i < n; i++, to += l->bytes, from += l->bytes)
        dlpi_item_move(l, to, false, from, q->max_bytes > 0);
}

/* Copy the first n fields of the item of level l at `from` into an item of level `next` at `to`.
   Fields that end behind level l are left out. Further fields of `next` begin as zeros. */
static void dlpi_item_copy(const dlpi_worker *w, const dlpi_level *l, uint32_t n,
                           const uint8_t *from, const dlpi_level *next, uint8_t *to) {
    const uint64_t *length = (const uint64_t *)(const void *)from;
    uint64_t *lengths = (uint64_t *)(void *)to, none;
    uint32_t k = 0;
    if (next->fs.any_ragged) memset(lengths, 0, next->fs.n * 8u);
    for (uint32_t f = 0; f < n; f++) {
        const uint64_t rows = l->fs.any_ragged ? length[f] : 0;
        if (next != l && (l->ends >> f & 1) != 0) continue;
        dlpi_field_copy(&l->fs.at[f], dlpi_item_mark(to, next, k, &none), to + next->at[k],
                        from + l->at[f], rows);
        if (next->fs.any_ragged) lengths[k] = rows;
        k++;
    }
    if (k < next->fs.n && next->fs.any_ragged && dlpi_clears_timed(w))
        dlpi_item_open_timed(w, to, next, k);
    else if (k < next->fs.n && next->fs.any_ragged)
        dlpi_item_open(to, next, k, true);
    else if (k < next->fs.n)
        dlpi_items_zero(w, next, k, to + next->at[k], next->bytes - next->at[k], 1);
}

/* Copy the next record of cell c to `to`. The fields that maps add to it begin as zeros. */
static void dlpi_arrived_copy(const dlpi_worker *w, const dlpi_expand *x, uint32_t c, uint8_t *to) {
    const dlpi_level *l = x->level;
    const uint8_t *from = dlpi_arrived_at(w->p, x, c, dlpi_input_at(w->p, c)->made);
    dlpi_item_copy(w, l, x->n_fetched, from, l, to);
}

/* Let `it` be an item of n fields. dlpi_input_lay writes their addresses and lengths into *by. */
static inline void dlpi_input_item(dlp_item *it, dlpi_item_arrays *by, uint32_t n) {
    /* cppcheck-suppress ctuuninitvar; only addresses of it are taken */
    it->length = by->length;
    it->n_fields = n;
    it->data = by->data;
}

/* Point the fields of `it` at the item of level l that lies at `to`. The level has a field. fresh:
   the lengths at `to` are set to 0 first. */
DLPI_INLINE void dlpi_input_lay(dlp_item *it, uint8_t *to, const dlpi_level *l,
                                dlpi_item_arrays *by, bool fresh) {
    by->data[0] = to + l->at[0], by->length[0] = 0;
    for (uint32_t f = 1; f < l->fs.n; f++) by->data[f] = to + l->at[f], by->length[f] = 0;
    if (!l->fs.any_ragged) return;
    it->length = (uint64_t *)(void *)to;
    if (fresh) memset(to, 0, l->fs.n * 8u);
}

/* Let `it` be the whole item of level l that lies at `to`. by: holds the addresses. */
DLPI_INLINE void dlpi_input_point(dlp_item *it, uint8_t *to, const dlpi_level *l,
                                  dlpi_item_arrays *by) {
    dlpi_input_item(it, by, l->fs.n);
    dlpi_input_lay(it, to, l, by, false);
}

/* Clear the item of level l at `to`. If a field is ragged, its mark is open from then on. */
static inline void dlpi_input_zero(uint8_t *to, const dlpi_level *l) {
    if (l->bytes == 8)
        memset(to, 0, 8);
    else if (DLPI_UNLIKELY(l->fs.any_ragged != 0))
        memset(to, 0, l->fs.n * 8u), dlpi_item_open(to, l, 0, true);
    else
        memset(to, 0, (size_t)l->bytes);
}

/* Do what dlpi_input_zero does, in a sample. */
DLPI_COLD static void dlpi_input_zero_timed(const dlpi_worker *w, uint8_t *to,
                                            const dlpi_level *l) {
    if (l->fs.any_ragged)
        memset(to, 0, l->fs.n * 8u), dlpi_item_open_timed(w, to, l, 0);
    else
        dlpi_items_zero(w, l, 0, to, l->bytes, 1);
}

/* Check the lengths of an item's fields against their maxima. Returns 0, or DLP_ERR_LENGTH. */
static inline int dlpi_input_lengths(dlpi_worker *w, const dlpi_fields *fs,
                                     const uint64_t *lengths) {
    for (uint32_t f = 0; fs->any_ragged && f < fs->n; f++) /* else nobody reads them */
        if (lengths[f] > dlpi_length_most(&fs->at[f]))
            return dlpi_length_bad(w, &fs->at[f], lengths[f]);
    return 0;
}

/* Open the marks of the item of level l at `to`, before a callback that may change the item. */
static inline void dlpi_item_begins(uint8_t *to, const dlpi_level *l) {
    if (l->fs.any_ragged) dlpi_item_open(to, l, 0, false);
}

/* Close the marks of the item of level l at `to` as they were: its source has not taken it. */
static void dlpi_item_untouched(uint8_t *to, const dlpi_level *l) {
    uint64_t none;
    for (uint32_t f = 0; f < l->fs.n; f++)
        if (l->fs.at[f].f.ragged) dlpi_mark_back(dlpi_item_mark(to, l, f, &none));
}

/* Do what dlpi_item_close does, and time it for each field. */
DLPI_COLD static void dlpi_item_close_timed(const dlpi_worker *w, uint8_t *to,
                                            const dlpi_level *l) {
    const uint64_t *length = (const uint64_t *)(const void *)to;
    for (uint32_t f = 0; f < l->fs.n; f++) {
        const dlpi_field *d = &l->fs.at[f];
        void *at = to + l->at[f];
        uint64_t none, *mark = dlpi_item_mark(to, l, f, &none);
        if (!d->f.ragged) continue;
        const uint64_t from = dlpi_tails_timed(w, d, at, mark, &length[f], 1);
        dlpi_marks_close(d, 1, &at, &length[f], mark);
        dlpi_clear_note(w, d, from, false);
    }
}

/* Clear what is behind the lengths of the item of level l at `to`, which a callback has written.
   Close its marks. The mark of a field whose length is wrong stays open. */
static void dlpi_item_close(const dlpi_worker *w, uint8_t *to, const dlpi_level *l) {
    void *data[DLP_MAX_FIELDS];
    if (dlpi_clears_timed(w)) {
        dlpi_item_close_timed(w, to, l);
        return;
    }
    for (uint32_t f = 0; f < l->fs.n; f++) data[f] = to + l->at[f];
    dlpi_marks_close(l->fs.at, l->fs.n, data, (const uint64_t *)(const void *)to,
                     dlpi_item_marks(to, l));
}

/* Check the lengths of the item of level l at `to`, which a callback has written, and close its
   marks. Returns 0, or DLP_ERR_LENGTH. */
static inline int dlpi_item_ends(dlpi_worker *w, uint8_t *to, const dlpi_level *l) {
    if (l->fs.any_ragged) dlpi_item_close(w, to, l);
    return dlpi_input_lengths(w, &l->fs, (const uint64_t *)(const void *)to);
}

/* Run the filters and maps of a level from op k on for the item that lies at `to`. it: the item,
   whose fields are set here. Returns 0 to keep it, DLP_SKIP to leave it out, or a failure's code.
   DLPI_READS says that it waits for a later fetch. */
static int dlpi_level_from(dlpi_worker *w, const dlpi_level *l, const dlpi_op *k, dlp_item *it,
                           uint8_t *to, dlpi_item_arrays *by) {
    uint64_t *lengths = (uint64_t *)(void *)to;
    int rc;
    dlpi_input_point(it, to, l, by);
    rc = dlpi_ops_go(w, &k, it, l->fs.at, dlpi_item_marks(to, l), true);
    /* a filter may have written over the lengths */
    if (rc == 0) rc = dlpi_input_lengths(w, &l->fs, lengths);
    if (DLPI_UNLIKELY(rc != 0 && rc != DLP_SKIP)) w->note.row = k->row;
    return rc;
}

/* Run all filters and maps of a level, which has some. Returns as dlpi_level_from does. */
static int dlpi_level_ops(dlpi_worker *w, const dlpi_level *l, dlp_item *it, uint8_t *to,
                          dlpi_item_arrays *by) {
    return dlpi_level_from(w, l, l->program.op, it, to, by);
}

/* Return the dataset of the item with this number, one of several. */
static const dlpi_of *dlpi_of_index(const dlpi_expand *x, uint64_t index) {
    const dlpi_of *d = x->of;
    while (index >= d->end && d + 1 < x->of + x->n_of) d++;
    return d;
}

/* Callback of the fetches of several datasets: call that of the item's dataset, which sees the
   item's index there. user: the dlpi_expand. Returns its result. */
static int dlpi_of_fetch(void *user, dlp_item *it) {
    const dlpi_of *d = dlpi_of_index(user, it->index);
    const dlpi_worker *w = it->call->w;
    dlp_item one = *it;
    one.index -= d->first;
    if (d->op.seat > 0) one.worker_state = dlpi_seats(w)[d->op.seat - 1].state;
    dlpi_op_tells(w, d->op.row);
    return dlpi_op_call(&d->op, &one);
}

/* Take over the result of a read that came back. Its message and errno become the worker's. Returns
   the read's code, 0 if it succeeded. */
static int dlpi_read_took(dlpi_worker *w, const dlpi_attempt *a) {
    if (a->code == 0) return 0;
    w->block->message_errno = a->errnum;
    if (a->message[0] != 0) memcpy(w->block->message, a->message, sizeof a->message);
    return a->code;
}

/* Callback of the op of a later fetch by requests. Note in the worker's record that the input waits
   for it. user: the dlpi_later. Returns DLPI_READS. */
static int dlpi_later_call(void *user, dlp_item *it) {
    ((dlpi_in_flight *)it->call->w->self)->at = user;
    return DLPI_READS;
}

/* Go on with the item of level l at `to` behind op k, a later fetch that was answered. Check what
   its source wrote, and run the ops behind. Returns as dlpi_level_from does. */
static int dlpi_level_answered(dlpi_worker *w, const dlpi_level *l, const dlpi_op *k, dlp_item *it,
                               uint8_t *to, dlpi_item_arrays *by) {
    uint64_t *lengths = (uint64_t *)(void *)to;
    int rc = dlpi_read_took(w, dlpi_input_answer(w));
    dlpi_input_point(it, to, l, by);
    if (rc == 0 && (k->how & DLPI_OP_TAILS)) /* a wrong length is refused below */
        dlpi_tails_close(k, it, l->fs.at, dlpi_item_marks(to, l));
    if (rc == 0) rc = dlpi_input_lengths(w, &l->fs, lengths);
    if (rc == 0 && (k->how & DLPI_OP_LAST) == 0) return dlpi_level_from(w, l, k + 1, it, to, by);
    if (rc != 0 && rc != DLP_SKIP) w->note.row = k->row;
    return rc;
}

/* Clear the item of the first level at `to` (zero), or open its marks, before its fetch. Let `in`
   show it. by: holds the addresses of the fields. */
DLPI_INLINE void dlpi_input_lays(const dlpi_worker *w, const dlpi_expand *x, dlp_item *in,
                                 uint8_t *to, dlpi_item_arrays *by, bool zero) {
    if (!zero)
        dlpi_item_begins(to, x->level);
    else if (dlpi_clears_timed(w))
        dlpi_input_zero_timed(w, to, x->level);
    else
        dlpi_input_zero(to, x->level);
    dlpi_input_lay(in, to, x->level, by, true);
}

/* Have the fetch of x write the item of the first level at `to`. in, by: of dlpi_input_item. shows:
   the worker tells whose callback runs. Returns the callback's result. */
DLPI_INLINE int dlpi_input_asks(dlpi_worker *w, const dlpi_expand *x, dlp_item *in, uint8_t *to,
                                dlpi_item_arrays *by, bool zero, bool shows) {
    dlpi_input_lays(w, x, in, to, by, zero);
    if (shows) dlpi_op_tells(w, x->row);
    return x->input.fetch(x->input.user, in);
}

/* Check the item of the first level at `to`, which came with code rc. index: of the input. Returns
   the code that this comes to. */
DLPI_INLINE int dlpi_input_came(dlpi_worker *w, const dlpi_expand *x, uint64_t index, uint8_t *to,
                                int rc) {
    if (rc == 0) rc = dlpi_item_ends(w, to, x->level);
    if (DLPI_UNLIKELY(rc != 0 && rc != DLP_SKIP))
        w->note.row = x->n_of > 0 ? dlpi_of_index(x, index)->op.row : x->row;
    return rc;
}

/* Get the input of cell c, an item of the first level, to `to`, and call the filters and maps of
   that level. in: the item for the callbacks, which may write over it. given: the item without its
   fields. A record that arrived is copied, so that it can be made again unchanged. Returns 0,
   DLP_SKIP or a failure's code. */
static int dlpi_input_fetch(dlpi_worker *w, const dlpi_expand *x, uint32_t c, dlp_item *in,
                            const dlp_item *given, uint8_t *to, dlpi_item_arrays *by) {
    const dlpi_attempt *made = dlpi_input_answer(w);
    const dlpi_level *l = x->level;
    const bool zero = !x->input.writes_all_bytes;
    int rc = 0;
    dlpi_input_item(in, by, x->n_fetched);
    if (made != NULL) {
        rc = dlpi_read_took(w, made);
    } else if (x->found.arrivals != NULL) {
        dlpi_arrived_copy(w, x, c, to);
    } else if (x->found.joins != NULL) {
        dlpi_input_lays(w, x, in, to, by, zero);
        rc = x->found.joins->fetch(w, c, in);
    } else {
        rc = dlpi_input_asks(w, x, in, to, by, zero, w->shows);
        dlpi_op_back(w, 0);
    }
    rc = dlpi_input_came(w, x, given->index, to, rc);
    *in = *given;
    return rc != 0 || l->program.n == 0 ? rc : dlpi_level_ops(w, l, in, to, by);
}

/* True if the user's function gave the present input of a cell of x an index past the end. */
static inline bool dlpi_input_past(const dlpi_expand *x, const dlpi_input *cell) {
    const dlpi_found_plan *q = &x->found.plan;
    return q->rule == DLPI_LIST_FUNCTION && cell->index >= q->order.n_items;
}

/* Return the item that a callback gets for the input in a cell of x, without its fields. */
static dlp_item dlpi_input_given(dlpi_worker *w, const dlpi_expand *x, const dlpi_input *cell) {
    const dlpi_found_plan *q = &x->found.plan;
    const uint64_t place = q->rule == DLPI_LIST_ONCE ? cell->index : cell->made * q->streams;
    return (dlp_item){.index = cell->index,
                      .epoch = cell->epoch,
                      .position = cell->first + place,
                      .attempt = dlpi_fate_tries(cell->rec),
                      .worker = (uint32_t)w->id,
                      .worker_state = w->state,
                      .seed = q->seed,
                      .call = &w->note};
}
