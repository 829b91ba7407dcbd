/* needs: parts */
#pragma once
/* tests: system/stages/found, system/inputs/inputs_random */
#include "api/found.h"
#include "api/parts.h"
#include "inputs/cells.h"
#include "order/found.h"
/* Cells and streams of inputs whose items nobody has counted. Here is what the scheduler knows of
   them, and in which list each cell stands: the list of a stream, of free cells, or of cells that
   wait to be free. >>impl-found tells why the streams can't stand still. */

#define DLPI_FOUND_NONE UINT32_MAX
#define DLPI_FOUND_CELLS (1 << 22)  /* cells of a source, at most */
#define DLPI_FOUND_WINDOW (1 << 24) /* items of a window, at most */
#define DLPI_FOUND_RUNS 64 /* cells that are given inputs before the run length is set again */

typedef struct dlpi_found_cell {     /* the scheduler's record of a cell */
    uint64_t epoch, ordinal, ticket; /* ordinal: of the first input of its run */
    uint64_t n, taken; /* known items of its inputs; those of them that are given, or are in the
                          open window */
    uint64_t from; /* the first item that is not taken is item `from` of input `input` of the run,
                      or, if that input has no more items, of a later input */
    uint64_t used; /* 1 + last scheduled batch that has rows of it; 0: none has */
    uint32_t input, run, learned; /* run: its inputs; learned: of these the counts are taken */
    uint32_t lost;    /* a bit for each input that was left out, but counts as one item (pairs) */
    uint32_t open;    /* its rows in the open window that are not given */
    uint32_t next;    /* next cell of the list that it is in; DLPI_FOUND_NONE: it is the last */
    uint32_t granted; /* of a box: places that were granted; the first n of them are filled */
    bool listed;      /* a stream has it: it is in the stream's list, or has rows of its window */
    bool failed;      /* its next input can't be loaded: nothing more of the stream becomes known */
} dlpi_found_cell;

/* Cells that are in no stream's list, or boxes of a stream. */
typedef struct dlpi_found_pool {
    uint32_t free;              /* the first free one: the one that came free last */
    uint32_t waits, waits_last; /* ends of the list of those that wait to be free */
} dlpi_found_pool;

typedef struct dlpi_note { /* the item in a place of a box; private to the scheduler */
    uint64_t input;        /* index of its input (48 bits), and the upper 16 bits of `ordinal` */
    uint32_t ordinal;      /* of its input, counted from that of the box's first item */
    uint32_t used;         /* items of its input that are used with this one */
} dlpi_note;

struct dlpi_found;

/* Boxes: see >>impl-boxes. The fields up to `move` are set before the pipe starts. */
typedef struct dlpi_found_boxes {
    uint32_t each, items; /* boxes of a stream, 0: there are none; items of a box, at most */
    uint64_t at, stride;  /* rows are copied out of boxes, or cells: bytes from the first cell to
                             the first of them, and from one to the next */
    uint64_t item, cells; /* bytes of an item; bytes from one cell to the next */
    uint64_t grant_at;    /* bytes from the beginning of a cell to its grant; 0: it has none, and
                             the scheduler copies items */
    /* Copy n items that lie side by side. */
    void (*move)(const struct dlpi_found *q, uint8_t *to, const uint8_t *from, uint64_t n);
    dlpi_note *notes; /* [boxes][items] */
} dlpi_found_boxes;

typedef struct dlpi_found_stream {
    uint32_t head, tail, cells; /* ends of its list; cells that it has, in the list or the window */
    uint32_t last_known, known; /* last cell whose counts are taken; first cell whose are not */
    /* With boxes the list is of boxes, and cells have a list of their own, whose first is `known`:
       it stays there until its items are copied. */
    uint32_t last_asked;   /* the last cell of that list */
    uint32_t grant;        /* first box of the grant that a worker has; DLPI_FOUND_NONE: none has */
    uint64_t boxed;        /* items that were granted since the epoch, or a place of it, began */
    dlpi_found_pool boxes; /* its boxes that are not in its list, or in the open window */
    uint64_t epoch, next;  /* the input that is asked for next: its epoch and ordinal */
    uint64_t rows;         /* known rows that are not given */
    uint64_t empty;        /* inputs without an item, counted since the last one with items */
    int barren;            /* 1: no item comes to this rank; 2: to this stream; 0: not known */
    dlpi_cursor at;        /* place after the last given row. With a window: place where the
                                   window begins, and how many of its rows are given */
    uint64_t given;        /* rows given in this epoch */
    uint64_t length, check; /* items of the open window, 0: none is open; 16-bit hash of the
                                   inputs that they are of */
    dlpi_cursor after;      /* place after the open window */
    uint64_t pass_epoch, pass_next, pass_left; /* statistics of the present pass over the inputs:
                                                  its epoch, next ordinal, and inputs to come */
    uint64_t pass_items;                       /* items counted in this pass */
    bool pass_whole;                           /* it was counted from its first input on */
} dlpi_found_stream;

typedef struct dlpi_agreed { /* the end that ranks have agreed on; the consumer's */
    uint64_t generation;     /* number of the batches that it holds for: a seek begins others */
    uint64_t left;           /* batches that all ranks have, and this one has not delivered yet */
    bool last;               /* the epoch ends after these batches */
    bool asks;               /* there are other ranks to ask */
} dlpi_agreed;

/* Counts for observers, in the region; written by the scheduler. */
typedef struct dlpi_found_counts {
    uint64_t inputs, items, empty, window; /* empty: inputs without an item; window: items of one */
} dlpi_found_counts;

/* In the same record, DLPI_FOUND_SPREAD bytes behind its begin: how evenly the items of a pass are
   spread over the streams. */
typedef struct dlpi_found_spread {
    /* streams: of this rank; all: of all ranks. each: rows of a stream in a batch, 0: a row is no
       item. rows: rows of a stream in an epoch with steps, 0: without steps. drops: 1: an epoch
       ends with the first stream of this rank that has no item left, 2: with that of any rank */
    uint64_t streams, all, each, rows, drops;
    uint64_t weights, weights_least, weights_most; /* over all streams; 0: there are no weights */
    uint64_t items[]; /* [streams] 1 + items of the last pass that was counted whole; 0: none was */
} dlpi_found_spread;

#define DLPI_FOUND_SPREAD DLPI_LINE

typedef struct dlpi_found_row {
    uint32_t cell, number; /* cell or box, and place of the item in it. In a cell each input has
                              most_items places */
} dlpi_found_row;

/* Return where item `number` of the items at `bytes` lies. Each has `stride` bytes. tight: they lie
   by their true lengths, and their offsets from `bytes` stand there. */
static inline const uint8_t *dlpi_found_item_at(const uint8_t *bytes, uint64_t number,
                                                uint64_t stride, bool tight) {
    if (!tight) return bytes + number * stride;
    return bytes + ((const uint64_t *)(const void *)bytes)[number];
}

struct dlpi_arrivals;

/* The rows of a source, if they are not the items themselves: branches and packs. i is a stream of
   this rank. */
typedef struct dlpi_found_rule {
    /* Begin an epoch of stream i. */
    void (*begin)(struct dlpi_found *q, uint32_t i);
    /* Return how many of the n items of an input in cell c are given. The input is the one that a
       cursor names, and `used` is what the cursor says. NULL: `used` items are. */
    uint64_t (*taken)(const dlp_pipe *p, uint32_t c, uint64_t n, uint64_t used);
    /* Take the counts of cell c, the last known one of stream i. Returns how many rows became
       known. */
    uint64_t (*learned)(dlp_pipe *p, uint32_t i, uint32_t c);
    /* Return how many rows became known, after all loaded counts were taken. out: stream i is
       out. */
    uint64_t (*more)(dlp_pipe *p, uint32_t i, bool out);
    /* Make the next row of stream i row r of slot s. */
    void (*give)(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r);
    /* Skip the next row of stream i, which is another rank's. */
    void (*pass)(dlp_pipe *p, uint32_t i);
    /* Return the list whose item the first unknown row needs. NULL: there is one list. */
    const struct dlpi_found *(*lacks)(const struct dlpi_found *q, uint32_t i);
    /* Tell if stream i ends before the last of its next `rows` rows: 1 yes, 0 no, -1 not known so
       far. NULL: only the first unknown row tells it. */
    int (*ends)(const struct dlpi_found *q, uint32_t i, uint64_t rows);
    /* Write the path of stream i, for a state. NULL: a stream has a cursor. */
    void (*put)(const struct dlpi_found *q, uint32_t i, dlpi_path *to);
    /* Look at a path of stream s of all. set: go on from there. Returns false if no state has
       such a path. */
    bool (*take)(struct dlpi_found *q, uint64_t s, const dlpi_path *path, bool set);
} dlpi_found_rule;

/* Calls for a list q whose inputs are joined rows of branches (inputs/joined.h). */
typedef struct dlpi_found_joins {
    /* Begin an epoch, or go on at a place. */
    void (*begin)(struct dlpi_found *q);
    /* Count the joined rows that became known, after all counts of branches were taken. */
    void (*known)(dlp_pipe *p, struct dlpi_found *q);
    /* End stream i if it is out. */
    void (*out)(struct dlpi_found *q, uint32_t i);
    /* Have a joined row loaded, if a cell is free. Returns how many were: 0 or 1. */
    uint32_t (*ask)(dlp_pipe *p, struct dlpi_found *q);
    /* The counts of cell c were taken. last: no later cell of its stream becomes known. */
    void (*learned)(struct dlpi_found *q, uint32_t c, bool last);
    /* Note that stream i stands in cell c: now, or after the window that is open. */
    void (*stands)(struct dlpi_found *q, uint32_t i, uint32_t c);
    /* Move stream i behind its window, whose rows are all given. */
    void (*moves)(struct dlpi_found *q, uint32_t i);
    /* Return the branch whose item the first joined row that is not known needs. */
    const struct dlpi_found *(*branch)(const struct dlpi_found *q, uint32_t i);
    /* As the calls of these names in dlpi_found_rule. */
    const struct dlpi_found *(*lacks)(const struct dlpi_found *q, uint32_t i);
    void (*put)(const struct dlpi_found *q, uint32_t i, dlpi_path *to);
    bool (*take)(struct dlpi_found *q, uint64_t s, const dlpi_path *path, bool set);
    /* Write the fields of the row of cell c into `it`. Returns 0, or a code. */
    int (*fetch)(dlpi_worker *w, uint32_t c, dlp_item *it);
    /* Return the branch of the first item of the row of cell c. *number: gets that of the item,
       while its cell is kept; or NULL. */
    uint32_t (*origin)(const dlp_pipe *p, uint32_t c, uint64_t *number);
} dlpi_found_joins;

/* The first epoch that ended early because a branch was out. The scheduler writes it once, and the
   consumer warns of it. */
typedef struct dlpi_found_early {
    uint64_t there; /* V1: 1: the rest is written */
    uint64_t epoch, came, all;
    const char *name; /* of the branch */
    bool told;        /* the consumer's */
} dlpi_found_early;

typedef struct dlpi_found {
    dlp_node_load d;
    const dlpi_found_rule *rule;   /* NULL: a row is an item */
    const dlpi_found_joins *joins; /* NULL: inputs are no rows of branches */
    struct dlpi_joined *joined;
    struct dlpi_found *all;  /* the source; in a branch the source that it is a branch of */
    struct dlpi_found *next; /* in a source: its first branch; in a branch: the next; NULL: none */
    const char *name;        /* name of the branch, for errors; NULL: the stage's name */
    uint64_t column;         /* in a branch: where its rows begin among those of a slot */
    bool pairs; /* in a branch: an input that is left out counts as one item. So its row is left
                   out, and later rows do not change */
    uint64_t most_items, least_items; /* items that an input has at most; at least, if not empty */
    uint32_t n_cells, most_run;       /* cells; inputs of a cell, at most */
    uint32_t first_cell;              /* number of its first cell; not 0 only in branches */
    uint32_t in_flight;               /* requests of a worker for inputs; 0: it has no requests */
    dlpi_found_boxes boxes;           /* items of a stream are copied into boxes */
    uint64_t max_bytes; /* of the items of an input, which then lie tight in the cell; 0: they have
                           equal places */
    bool arrives;       /* in a source: inputs of one of its lists are pushed records */
    struct dlpi_arrivals *arrivals; /* inputs are pushed records; NULL: they have numbers */
    uint8_t pad[DLPI_LINE - 16];    /* part workers read what is above; below is the scheduler's */
    dlpi_found_plan plan;
    dlpi_cursors cursors;
    uint64_t places;    /* numbers that `place` of a cursor may be; 0: there are no windows */
    uint32_t each;      /* rows of a stream in a batch */
    bool all_items;     /* an epoch has the items of all ranks: a rank without items has holes */
    uint32_t run, need; /* inputs that a cell is given now; cells that a stream needs */
    uint64_t run_until; /* the cost of inputs is read again when this ticket is given */
    bool run_known;     /* `run` follows from the measured cost of inputs */
    bool begun;         /* an epoch has begun */
    int rc;             /* code of the error that ends this epoch; 0: none */
    uint64_t epoch;
    bool any;       /* an input of the epoch had items */
    bool whole;     /* the epoch was begun at its first input: no state, no seek led inside */
    bool judged;    /* dlpi_over_judge has looked at the epoch's end */
    uint64_t round; /* of joined rows with steps: rows in which each branch ends a pass */
    uint64_t later; /* rows before the last leg of a mix, which alone has no end */
    dlpi_inputs_ahead ahead;
    dlpi_found_pool pool; /* of cells */
    dlpi_found_counts *counts;
    dlpi_found_spread *spread;
    dlpi_found_cell *use;           /* [n_cells], and behind them the boxes */
    dlpi_found_cell *box;           /* what items are taken from: the boxes, or, without, `use` */
    dlp_permutation *items;         /* [n_cells] the order of items in each cell, if shuffled */
    dlpi_found_stream *streams;     /* [cursors.n] the streams of this rank */
    dlp_permutation *window_orders; /* [cursors.n] the order of rows in each open window */
    dlpi_found_row *window_rows;    /* [cursors.n][window] where the items of each window lie;
                                       with groups, in the window's order */
    uint64_t *keys, *spare;         /* [window] for sorting the items of a window; with groups */
    uint8_t pad1[DLPI_LINE];
    dlpi_agreed agreed;
    dlpi_found_early early;
} dlpi_found;

/* True if the rows of q lie tight where they are copied from: in cells, and not in boxes. */
static inline bool dlpi_found_tight(const dlpi_found *q) {
    return q->max_bytes > 0 && q->boxes.each == 0;
}

/* True if stream s of all can be at that place. set: it is of this rank, and goes on from there. */
static bool dlpi_found_go(dlpi_found *q, uint64_t s, const dlpi_cursor *at, bool set) {
    dlpi_found_stream *x;
    if (at->used > q->most_items) return false;
    if (q->places && (at->place >= q->places || (at->place == 0 && at->check != 0))) return false;
    if (q->plan.steps == 0 && at->ordinal >= dlpi_found_inputs(&q->plan, s)) return false;
    if (!set) return true;
    x = &q->streams[s - q->cursors.first];
    x->at = *at;
    x->next = at->ordinal;
    return true;
}

/* Copy into the stage what the run's desc says of streams and of an epoch's end. capacity: number
   of cells; 0: as many as are needed, and a few more. window: items of a stream that are shuffled
   at a time; 0: none are. Returns 0 or a DLP_ERR code. */
static int dlpi_found_take_run(dlp_pipe *p, dlpi_stage *st, uint32_t capacity, uint32_t window) {
    dlpi_found *q = st->self;
    const dlp_pipe_desc *run = &p->d;
    const int64_t steps = run->steps_per_epoch;
    q->all = q;
    q->d.queue_size = capacity;
    q->plan.window = window;
    q->plan.streams = run->streams ? run->streams : 1;
    q->plan.steps = steps == DLP_FOREVER ? DLPI_FOUND_ENDLESS : (uint64_t)steps;
    dlpi_within(p, st->name, "queue.capacity", capacity, 0, DLPI_FOUND_CELLS,
                "0..2^22 (a loader: parts.queue_size)");
    dlpi_within(p, st->name, "window", window, 0, DLPI_FOUND_WINDOW, "0..2^24");
    dlpi_within(p, "", "streams", run->streams, 0, 1 << 16, "0..2^16, a divisor of batch_size");
    if (steps != DLP_FOREVER)
        dlpi_within(p, "", "steps_per_epoch", steps, 0, INT64_C(1) << 40,
                    "0..2^40, or DLP_FOREVER");
    dlpi_within(p, "", "uneven", run->uneven, 0, 1, "0 or 1");
    dlpi_within(p, "", "shared_streams", run->shared_streams, 0, 1, "0 or 1");
    if (run->agree != NULL && (steps != 0 || run->uneven))
        dlpi_not_null(p, "", "agree", "with steps_per_epoch or uneven");
    return p->err.code;
}

static inline dlpi_found *dlpi_found_of(const dlp_pipe *p) { return p->source_stage->self; }

static inline dlpi_found_row *dlpi_found_rows_of(const dlp_pipe *p, uint32_t s) {
    return (dlpi_found_row *)(void *)((uint8_t *)dlpi_slot_source(p, s) +
                                      sizeof(dlpi_source_state));
}

/* Return how many inputs without an item, one after the other in stream i, prove that no item
   comes. own: how many streams had no item at all, or 0 if other streams had some. Rows of branches
   meet other rows in each pass, so at least 16 passes are asked for. For one stream of several they
   are 64: each pass may deal its inputs to others. */
static uint64_t dlpi_found_proof(const dlpi_found *q, uint32_t i, uint64_t own) {
    const uint64_t passes = dlpi_found_empty_passes(&q->plan, own), s = q->cursors.first + i;
    uint64_t least = passes > 16 ? passes : 16;
    if (q->joins == NULL) return dlpi_times(dlpi_found_inputs(&q->plan, s), passes);
    if (own == 0 && q->plan.streams > 1) least = 64;
    return dlpi_sum(q->later, dlpi_times(least, q->round));
}

/* ---- the lists of the streams ---- */

/* Append cell c of the array `all` to a list of such cells. first, last: the ends of the list;
   DLPI_FOUND_NONE if it is empty. The caller has set the cell's `next`. */
static void dlpi_found_append(dlpi_found_cell *all, uint32_t *first, uint32_t *last, uint32_t c) {
    if (*first == DLPI_FOUND_NONE)
        *first = c;
    else
        all[*last].next = c;
    *last = c;
}

/* Put cell c of the array `all`, which is on no list, in front of the free ones of a pool. */
static inline void dlpi_found_free(dlpi_found_cell *all, dlpi_found_pool *pool, uint32_t c) {
    all[c].next = pool->free;
    pool->free = c;
}

/* Put cell c of the array `all`, which is on no stream's list any more, into a pool. */
DLPI_INLINE void dlpi_found_pool_put(dlpi_found_cell *all, dlpi_found_pool *pool, uint32_t c,
                                     bool free) {
    all[c].listed = false;
    all[c].next = DLPI_FOUND_NONE;
    if (free)
        dlpi_found_free(all, pool, c);
    else
        dlpi_found_append(all, &pool->waits, &pool->waits_last, c);
}

/* Append the free cell c to the list of stream x, for a run of `run` inputs from this ordinal on.
   The cell gets a new ticket, and stays closed. */
DLPI_INLINE void dlpi_found_enlist(dlp_pipe *p, dlpi_found *q, dlpi_found_stream *x, uint32_t c,
                                   uint64_t epoch, uint64_t ordinal, uint32_t run) {
    q->use[c] = (dlpi_found_cell){.epoch = epoch,
                                  .ordinal = ordinal,
                                  .ticket = ++q->all->ahead.tickets,
                                  .run = run,
                                  .next = DLPI_FOUND_NONE,
                                  .listed = true};
    x->cells++;
    if (q->boxes.each > 0) {
        dlpi_found_append(q->use, &x->known, &x->last_asked, c);
    } else {
        dlpi_found_append(q->use, &x->head, &x->tail, c);
        if (x->known == DLPI_FOUND_NONE) x->known = c;
    }
    dlpi_input_reset(dlpi_input_at(p, c), epoch, run);
}

/* Take cell c, which is off the list already, from its stream. It is free if its inputs are loaded
   and no batch has rows of it. Else it waits to be free. */
static void dlpi_found_lose(dlpi_found *q, dlpi_found_stream *x, uint32_t c, bool loaded) {
    x->cells--;
    dlpi_found_pool_put(q->use, &q->pool, c, loaded && q->use[c].used <= q->all->ahead.left);
}

/* Put box c of stream x, which is off its list, among those that wait to be free. If a worker may
   have a grant in it, note the cell of this grant: the first cell of the stream. */
static void dlpi_boxes_lose(dlpi_found *q, dlpi_found_stream *x, uint32_t c) {
    dlpi_found_cell *u = &q->box[c];
    u->failed = u->n < u->granted;
    if (u->failed) u->input = x->known, u->ticket = q->use[x->known].ticket;
    dlpi_found_pool_put(q->box, &x->boxes, c, false);
}

/* Take the first cell of a stream with boxes off its list and from the stream. */
static void dlpi_boxes_done(dlpi_found *q, dlpi_found_stream *x, bool loaded) {
    const uint32_t c = x->known;
    x->known = q->use[c].next;
    dlpi_found_lose(q, x, c, loaded);
}

/* Take the first cell of a stream off its list, and return it. It still is the stream's. */
static uint32_t dlpi_found_behead(const dlpi_found *q, dlpi_found_stream *x) {
    const uint32_t c = x->head;
    if (x->last_known == c) x->last_known = DLPI_FOUND_NONE;
    x->head = q->box[c].next;
    if (x->head == DLPI_FOUND_NONE) x->tail = DLPI_FOUND_NONE;
    return c;
}

/* Take the first cell of a stream off its list and from the stream: it is not needed. boxes: it is
   a box; so in the functions below. */
static inline void dlpi_found_drop(dlpi_found *q, dlpi_found_stream *x, bool boxes) {
    const uint32_t c = dlpi_found_behead(q, x);
    if (boxes)
        dlpi_boxes_lose(q, x, c);
    else
        dlpi_found_lose(q, x, c, false);
}

/* Drop all cells of a stream but those of this epoch, and all of its boxes. UINT64_MAX: all. */
DLPI_COLD static void dlpi_found_clear(dlpi_found *q, dlpi_found_stream *x, uint64_t epoch) {
    const bool boxes = q->boxes.each > 0;
    while (x->head != DLPI_FOUND_NONE && (boxes || q->use[x->head].epoch != epoch))
        dlpi_found_drop(q, x, boxes);
    if (!boxes) {
        x->known = x->head;
        return;
    }
    x->grant = DLPI_FOUND_NONE;
    x->boxed = 0;
    while (x->known != DLPI_FOUND_NONE && q->use[x->known].epoch != epoch)
        dlpi_boxes_done(q, x, false);
}

/* True if all items of a cell are known, and all are given or in the open window. */
static inline bool dlpi_found_spent(const dlpi_found_cell *u) {
    return u->taken == u->n && u->learned == u->run;
}

/* Note that a stream stands at place `at`, which is in cell c. If a window is open, the stream
   stands there after the window. */
static inline void dlpi_found_stands(dlpi_found *q, dlpi_found_stream *x, uint32_t c,
                                     dlpi_cursor at) {
    *(x->length > 0 ? &x->after : &x->at) = at;
    if (q->joins != NULL) q->joins->stands(q, (uint32_t)(x - q->streams), c);
}

/* Return the index of the input of an item in a box. */
static inline uint64_t dlpi_note_index(const dlpi_note *note) { return note->input >> 16; }

/* Return the ordinal of the input of an item in a box, counted from that of the first item. */
static inline uint64_t dlpi_note_ordinal(const dlpi_note *note) {
    return (note->input & 0xffff) << 32 | note->ordinal;
}

/* Return the place after the last item that was taken from cell, or box, c. */
static inline dlpi_cursor dlpi_found_place(const dlpi_found *q, uint32_t c, bool boxes) {
    const dlpi_found_cell *u = &q->box[c];
    const dlpi_note *note;
    if (!boxes) return (dlpi_cursor){u->ordinal + u->input, u->from, 0, 0};
    note = &q->boxes.notes[(uint64_t)c * q->boxes.items + u->taken - 1];
    return (dlpi_cursor){u->ordinal + dlpi_note_ordinal(note), note->used, 0, 0};
}

/* Note that items of a stream's first cell were used: the stream stands after the last of them. The
   cell leaves the stream with its last item. */
static inline void dlpi_found_gone(dlpi_found *q, dlpi_found_stream *x, bool boxes) {
    dlpi_found_stands(q, x, x->head, dlpi_found_place(q, x->head, boxes));
    if (dlpi_found_spent(&q->box[x->head])) dlpi_found_drop(q, x, boxes);
}

/* Return the list whose item the next row of stream i lacks, once all known rows are given. */
static inline const dlpi_found *dlpi_found_lacks(const dlpi_found *q, uint32_t i) {
    if (q->joins != NULL) return q->joins->lacks(q, i);
    return q->rule && q->rule->lacks ? q->rule->lacks(q, i) : q;
}

/* Count the items of n inputs of stream i, from this ordinal on, for the statistics of the present
   pass. The inputs are of one pass. Inputs are learned in their order, each once, but for the first
   ones after a seek or in another epoch: these begin a new count. */
static void dlpi_found_pass_count(dlpi_found *q, uint32_t i, uint64_t ordinal, uint32_t n,
                                  uint64_t items) {
    dlpi_found_stream *x = &q->streams[i];
    if (q->joins != NULL) return; /* rows have no passes of their own */
    if (ordinal != x->pass_next || q->epoch != x->pass_epoch || x->pass_left == 0) {
        const uint64_t all = dlpi_found_inputs(&q->plan, q->cursors.first + i);
        x->pass_left = all - ordinal % all;
        x->pass_whole = x->pass_left == all;
        x->pass_items = 0;
        x->pass_epoch = q->epoch;
    }
    x->pass_items += items;
    x->pass_next = ordinal + n;
    x->pass_left -= n;
    if (x->pass_left == 0 && x->pass_whole && q->spread != NULL)
        DLPI_STORE_RLX(&q->spread->items[i], x->pass_items + 1); /* statistics */
}

/* Count one row less of cell c in the open window of stream x. The last row frees the cell. */
static inline void dlpi_found_window_row(dlpi_found *q, dlpi_found_stream *x, uint32_t c,
                                         bool boxes) {
    dlpi_found_cell *u = &q->box[c];
    if (--u->open != 0 || !dlpi_found_spent(u)) return;
    if (boxes)
        dlpi_boxes_lose(q, x, c);
    else
        dlpi_found_lose(q, x, c, false);
}

/* Return where the item lies that the open window of stream i has at this place of its order. */
static inline const dlpi_found_row *dlpi_found_window_at(const dlpi_found *q, uint32_t i,
                                                         uint64_t place) {
    if (q->plan.group == 0) place = dlp_permutation_at(&q->window_orders[i], place);
    return &q->window_rows[i * q->plan.window + place];
}

/* Close the open window of stream i, if there is one. Its rows that are not given are dropped. */
DLPI_COLD static void dlpi_found_close_window(dlpi_found *q, uint32_t i) {
    dlpi_found_stream *x = &q->streams[i];
    for (uint64_t at = x->at.place; at < x->length; at++)
        dlpi_found_window_row(q, x, dlpi_found_window_at(q, i, at)->cell, q->boxes.each > 0);
    x->length = 0;
}

/* Begin an epoch in all streams of a list. Cells with inputs of other epochs are dropped. */
DLPI_COLD static void dlpi_found_begin(dlpi_found *q, uint64_t epoch) {
    q->epoch = epoch;
    q->begun = true;
    q->rc = DLP_OK;
    q->any = false;
    q->whole = true;
    q->judged = false;
    q->ahead.stuck = false;
    for (uint32_t i = 0; i < q->cursors.n; i++) {
        dlpi_found_stream *x = &q->streams[i];
        dlpi_found_close_window(q, i);
        dlpi_found_clear(q, x, epoch);
        x->last_known = DLPI_FOUND_NONE;
        x->rows = x->empty = x->given = 0;
        x->barren = 0;
        x->at = (dlpi_cursor){0, 0, 0, 0};
        if (x->known == DLPI_FOUND_NONE || x->epoch < epoch) {
            x->epoch = epoch;
            x->next = 0;
        }
        if (q->rule) q->rule->begin(q, i);
    }
    if (q->joins != NULL) q->joins->begin(q);
}

/* Take cell c of stream x off the list: its counts were taken last, and no item of it is left. It
   stays the stream's while its rows of the open window are not given. */
static void dlpi_found_shed(dlpi_found *q, dlpi_found_stream *x, uint32_t c) {
    if (x->last_known == DLPI_FOUND_NONE)
        x->head = q->use[c].next;
    else
        q->use[x->last_known].next = q->use[c].next;
    if (x->tail == c) x->tail = x->last_known;
    if (q->use[c].open == 0) dlpi_found_lose(q, x, c, true);
}

/* Wake workers for n cells that became open. */
static void dlpi_found_wake(dlp_pipe *p, uint32_t n) {
    dlpi_wake_stage(p, p->source_stage, DLPI_ANY, n);
}

/* Open the failed cell c again, for the inputs behind the failed one, which is left out. */
DLPI_COLD static void dlpi_found_reopen(dlp_pipe *p, const dlpi_found *q, uint32_t c) {
    dlpi_input *cell = dlpi_input_at(p, c);
    cell->rec = 0;
    cell->error.code = 0;
    cell->made++;
    DLPI_STORE_RLX(&cell->due_ns, UINT64_C(0)); /* ordered by state */
    dlpi_input_offer(p, c, q->use[c].ticket);
    dlpi_found_wake(p, 1);
}

/* True if the items inside an input are shuffled. */
static inline bool dlpi_found_shuffled(const dlpi_found *q) {
    return q->plan.shuffle_items && q->most_items > 1;
}

/* Leave out n failed items of the input in cell c, or count the input as n rows if it could not be
   loaded. Returns true, or false if that is an error: the stream then ends before the input. */
DLPI_COLD static bool dlpi_found_leaves_out(dlp_pipe *p, dlpi_found *q, uint32_t c, uint32_t n) {
    dlpi_input *cell = dlpi_input_at(p, c);
    dlp_error e;
    q->use[c].failed = dlpi_input_raises(p, cell, n, &e);
    cell->error = e;
    if (q->use[c].failed) return false;
    dlpi_input_left_out(p, &e);
    dlpi_bump(&p->workers[p->source_stage->first_worker].block->left_out, n - 1);
    cell->error.code = 0;
    return true;
}
