/* needs: parts */
#pragma once
/* tests: system/stages/parts, system/shm/shm_parts, model/model_parts */
#include "api/parts.h"
#include "order/parts.h"
#include "inputs/cells.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-parts      PART QUEUE: WHAT TO LOAD NEXT, LOADING IT
   The source of batches whose items come in parts. The scheduler alone runs it; workers share only
   the words of cells (>>impl-inputs has the cells, and how workers load them). The scheduler
   computes the indices of a batch when it schedules the batch. It looks ahead for the parts that
   come next in the order of this rank's rows, and gives each of these parts a free cell and a
   ticket. A part stays in its cell while a batch needs it, up to the batch that was looked at last,
   and until all scheduled batches that need the part have left the last stage that could send rows
   back to fetch. Why it can't stand still. When the scheduler waits for a free cell for a part of
   batch k, each cell that is not k's own belongs to batches before k. All parts of those are in
   cells, so they are loaded and fed, they leave (workers never wait for a part), and their cells
   come free. So it is enough that one batch's parts fit into the cells: dlpi_parts_need holds the
   worst case of them against queue_size before the start. */

#define DLPI_PART_HINTS 64u

typedef struct dlpi_part_use { /* the scheduler's record of a cell and the part in it */
    uint64_t part, epoch;      /* the part serves epochs from this one on; after a seek from 0 on */
    uint64_t until;            /* from this epoch on the part is loaded again; UINT64_MAX: never */
    uint64_t need_epoch, need; /* epoch and number of the last batch known to need the part */
    uint64_t used;             /* 1 + last scheduled batch (over all epochs) that needs the part */
    uint64_t ticket;           /* number of the cell's present load; 0: it never had a part */
    bool needed;               /* need_epoch and need are valid: such a batch is to be scheduled */
    dlp_permutation items;     /* order of the part's items, in the epoch asked for last */
} dlpi_part_use;

typedef struct dlpi_parts {
    dlp_node_load d;
    uint32_t n_cells;
    uint8_t pad[DLPI_LINE]; /* part workers read what is above; below is the scheduler's */
    dlpi_part_plan plan;
    uint64_t *tables;      /* sums of item counts in the order of two epochs; NULL: not shuffled */
    dlpi_part_use *use;    /* [n_cells] */
    uint64_t epoch, batch; /* first batch whose parts have not all been asked for */
    dlpi_inputs_ahead ahead;
    uint32_t hint[DLPI_PART_HINTS]; /* cell of the part found last, by place in a batch: a hint */
} dlpi_parts;

static inline dlpi_parts *dlpi_parts_of(const dlp_pipe *p) { return p->source_stage->self; }

/* Return the array of slot s that has the part cell of each row. */
static inline uint32_t *dlpi_slot_pcell(const dlp_pipe *p, uint32_t s) {
    return dlpi_slot_source(p, s);
}
/* ---- check the desc, and compute what follows from it ---- */

#define DLPI_PARTS_CELLS "0, or 2..4096 (a loader: parts.queue_size)"

/* Check the desc of parts whose item counts are given. Returns 0 or the code of the first error. */
static int dlpi_parts_bounds(dlp_pipe *p, const dlpi_stage *st, const dlp_node_load *d) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_node_load, n_parts), 1, INT64_C(1) << 31,
         "1..2^31 (in a table: list.n_items)"},
        {DLPI_AT(dlp_node_load, max_part_bytes), 1, DLPI_CELL_MAX, "1..2^46"},
        {"queue.capacity", DLPI_IN(dlp_node_load, queue_size), 0, 4096, DLPI_PARTS_CELLS},
        {DLPI_AT(dlp_node_load, shuffle_parts), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_node_load, shuffle_items), 0, 1, "0 or 1"},
        {DLPI_AT(dlp_node_load, load), 1, 1, "the function that reads a part"},
        {DLPI_AT(dlp_node_load, items), 1, 1,
         "n_parts counts, or the function count, or max_items for load to count",
         DLPI_WITHOUT(dlp_node_load, count)},
        {DLPI_AT(dlp_node_load, count), 0, 0, "beside items: one of the two gives the counts",
         DLPI_WITH(dlp_node_load, items)},
        {DLPI_AT(dlp_node_load, window), 0, 0,
         "0 (no window node) with items or count; set shuffle_items"},
        {DLPI_AT(dlp_node_load, max_items), 0, 0, "0, and so must min_items, with items or count"},
        {DLPI_AT(dlp_node_load, min_items), 0, 0, "0, and so must max_items, with items or count"},
        {DLPI_AT(dlp_node_load, weights), 0, 0, "with items or count: streams are as long"},
    };
    dlpi_check_bounds(p, st->name, d, DLPI_ROWS(bounds));
    if (d->queue_size == 1) dlpi_bad(p, st->name, "queue.capacity", DLPI_PARTS_CELLS, 1);
    return p->err.code != 0 ? p->err.code : dlpi_check_input_workers(p, st);
}

/* Check the fields of the run that concern parts of known counts. Returns 0 or a DLP_ERR code. */
static int dlpi_parts_run(dlp_pipe *p) {
    static const dlpi_bound bounds[] = {
        {DLPI_AT(dlp_pipe_desc, streams), 0, 1 << 20, "0..2^20, a divisor of batch_size"},
        {DLPI_AT(dlp_pipe_desc, steps_per_epoch), 0, DLPI_MAX_ITEMS,
         "0..2^48; DLP_FOREVER with max_items, where load counts"},
        {DLPI_AT(dlp_pipe_desc, uneven), 0, 0, "0 with items or count of parts"},
        {DLPI_AT(dlp_pipe_desc, shared_streams), 0, 0, "0 with items or count of parts"},
    };
    dlpi_check_bounds(p, "", &p->d, DLPI_ROWS(bounds));
    if (p->d.agree != NULL)
        dlpi_not_null(p, "", "agree", "with items or count of parts: all ranks know the end");
    return p->err.code;
}

/* Get the count of part i into *items, from the desc's array or its callback. room: items that the
   part may have. Returns 0 or a DLP_ERR code. */
static int dlpi_parts_count_one(dlp_pipe *p, const dlpi_stage *st, const dlp_node_load *d,
                                uint64_t i, uint64_t room, uint64_t *items) {
    int rc = 0;
    if (d->items)
        *items = d->items[i];
    else
        rc = d->count(d->user, i, items);
    if (rc != 0)
        return dlpi_refuse(p, DLP_ERR_CALLBACK, st->name, "count",
                           "part %" PRIu64 ": count returned %d", i, rc);
    if (*items <= room) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, st->name, "items",
                       "part %" PRIu64 " has %" PRIu64 " items, so all parts have more than 2^48",
                       i, *items);
}

/* Check and copy the desc, and sum the items before each part. Returns 0 or a DLP_ERR code. */
static int dlpi_parts_take(dlp_pipe *p, dlpi_stage *st, const dlp_node_load *d) {
    dlpi_parts *q = st->self;
    uint64_t items = 0;
    int rc = dlpi_parts_bounds(p, st, d);
    if (rc == DLP_OK) rc = dlpi_parts_run(p);
    if (rc != DLP_OK) return rc;
    q->d = *d;
    q->d.items = NULL;
    q->plan.n_parts = d->n_parts;
    q->plan.streams = p->d.streams ? p->d.streams : 1;
    q->plan.steps = (uint64_t)p->d.steps_per_epoch;
    q->plan.shuffle_parts = d->shuffle_parts != 0;
    q->plan.shuffle_items = d->shuffle_items != 0;
    q->plan.first = calloc((size_t)d->n_parts + 1, sizeof *q->plan.first);
    if (q->plan.first == NULL) return dlpi_no_memory(p, "items", "the parts' counts");
    for (uint64_t i = 0; i < d->n_parts && rc == DLP_OK; i++) {
        rc = dlpi_parts_count_one(p, st, d, i, DLPI_MAX_ITEMS - q->plan.first[i], &items);
        q->plan.first[i + 1] = q->plan.first[i] + items;
    }
    return rc;
}

/* Set dataset.n_items to the parts' sum. Returns 0, or a DLP_ERR code if another was given. */
static int dlpi_parts_items_are(dlp_pipe *p, const dlpi_stage *st, uint64_t items) {
    dlp_dataset *ds = p->fetch->dataset;
    if (p->open_end) return dlpi_open_end_bad(p, st);
    if (ds->n_items != 0 && ds->n_items != items)
        return dlpi_refuse(p, DLP_ERR_ARG, p->fetch->name, "source.dataset.n_items",
                           "n_items is %" PRIu64 ", but the parts have %" PRIu64 " items; set 0",
                           ds->n_items, items);
    ds->n_items = items;
    return DLP_OK;
}

/* Check the parts against sampler, streams, batch and steps. Returns 0 or a DLP_ERR code. */
static int dlpi_parts_fit(dlp_pipe *p, const dlpi_stage *st, const dlpi_part_plan *q) {
    uint64_t items = dlpi_parts_items(q);
    int rc = dlpi_parts_items_are(p, st, items);
    if (rc != DLP_OK) return rc;
    if ((rc = dlpi_check_divides(p, "streams", q->streams)) != DLP_OK) return rc;
    if (q->steps == 0) return DLP_OK;
    dlpi_within(p, st->name, "items", (int64_t)items, (int64_t)q->streams, INT64_MAX,
                "at least streams with steps_per_epoch");
    dlpi_within(p, "", "steps_per_epoch", (int64_t)q->steps, 0,
                (int64_t)(DLPI_MAX_ITEMS / p->global_batch), "at most 2^48 items in an epoch");
    return p->err.code;
}

/* Set the samples and the length of an epoch of parts. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_parts_sizes(dlp_pipe *p) {
    dlpi_part_plan *q = &dlpi_parts_of(p)->plan;
    int rc;
    if ((rc = dlpi_parts_fit(p, p->source_stage, q)) != DLP_OK) return rc;
    if ((rc = dlpi_check_items(p)) != DLP_OK) return rc;
    q->batch = p->global_batch;
    q->seed = dlpi_sampler_of(p)->seed;
    q->samples = q->steps ? q->steps * p->global_batch
                          : dlpi_order_samples(dlpi_sampler_of(p), p->fetch->dataset->n_items);
    return dlpi_epoch_of(p, q->samples);
}

/* Return the position of this rank's first row in global batch k. *count: its rows there. */
static uint64_t dlpi_parts_rows(const dlp_pipe *p, uint64_t k, uint32_t *count) {
    uint64_t at = k * p->global_batch, first;
    bool cut = p->last == DLP_LAST_PARTIAL && p->samples - at < p->global_batch;
    dlpi_rank_rows(p, cut ? p->samples - at : p->global_batch, &first, count);
    return at + first;
}

/* Return how many parts batch k can need in this rank at most. */
static uint64_t dlpi_parts_need_of(const dlp_pipe *p, const dlpi_parts *q, uint64_t k) {
    uint32_t count;
    uint64_t at = dlpi_parts_rows(p, k, &count);
    return dlpi_parts_need(&q->plan, at, count);
}

/* Set how many cells there are: the desc's queue, or what a batch needs and one more. All batches
   but the last are alike. Returns 0 or a DLP_ERR code if the queue is too short. */
DLPI_COLD static int dlpi_parts_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_parts *q = st->self;
    uint64_t need = dlpi_parts_need_of(p, q, 0);
    uint64_t tail = dlpi_parts_need_of(p, q, p->batches_per_epoch - 1);
    if (tail > need) need = tail;
    q->n_cells = q->d.queue_size;
    if (q->n_cells == 0 && need < 4096) q->n_cells = need < 1 ? 2 : (uint32_t)need + 1;
    if (q->n_cells >= need && q->n_cells > 0) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, st->name, "queue.capacity",
                       "queue.capacity (a loader: parts.queue_size) is %" PRIu32 "; a batch may "
                       "need %" PRIu64 " parts at once; set 0 (up to 4096), or change batch_size, "
                       "streams",
                       q->d.queue_size, need);
}

/* ---- memory ---- */

DLPI_COLD static uint64_t dlpi_parts_slot_bytes(const dlp_pipe *p) {
    return dlpi_times(p->batch_rows, 4);
}

DLPI_COLD static void dlpi_parts_layout(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_parts *q = st->self;
    uint64_t stride = dlpi_round_up(dlpi_sum(q->d.max_part_bytes, DLPI_REDZONE), 4096);
    dlpi_inputs_layout(p, st, q->n_cells, 1, stride, "part cells");
}

/* Describe in `out` the heap memory of the stage: sums of counts in the order given, sums in the
   order of two epochs, and what is known of cells. The first sums are there since the stage was
   added. Returns 3. */
DLPI_COLD static int dlpi_parts_blocks(const dlp_pipe *p DLPI_UNREAD, const dlpi_stage *st,
                                       dlpi_block *out) {
    const dlpi_parts *q = st->self;
    uint64_t sums = dlpi_times(q->plan.n_parts + 1, 8);
    out[0] = (dlpi_block){offsetof(dlpi_parts, plan.first), sums};
    out[1] = (dlpi_block){offsetof(dlpi_parts, tables), q->plan.shuffle_parts ? 2 * sums : 0};
    out[2] = (dlpi_block){offsetof(dlpi_parts, use), dlpi_times(q->n_cells, sizeof *q->use)};
    return 3;
}

DLPI_COLD static void dlpi_parts_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_parts *q = st->self;
    for (int i = 0; i < 2 && q->tables != NULL; i++)
        q->plan.orders[i].first = q->tables + (size_t)i * (size_t)(q->plan.n_parts + 1);
    if (DLPI_DEBUG) dlpi_inputs_paint(p, q->d.max_part_bytes);
}

/* ---- looking ahead ---- */

/* Return the cell that has the part for this epoch, or will have it; n_cells if there is none.
   place: that of the part in its batch; the search begins in the cell that had it last. */
static uint32_t dlpi_part_find_cell(dlp_pipe *p, uint64_t epoch, uint64_t part, uint32_t place) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint32_t *hint = &q->hint[place % DLPI_PART_HINTS];
    for (uint32_t i = 0, c = *hint; i <= q->n_cells; c = i++) {
        const dlpi_part_use *u = &q->use[c];
        if (u->ticket == 0 || u->part != part || u->epoch > epoch || u->until <= epoch) continue;
        *hint = c;
        return c;
    }
    return q->n_cells;
}

/* Return a cell whose part no batch needs any more, closed; n_cells if there is none. */
static uint32_t dlpi_part_free_cell(dlp_pipe *p) {
    dlpi_parts *q = dlpi_parts_of(p);
    const dlpi_inputs_ahead *at = &q->ahead;
    for (uint32_t c = 0; c < q->n_cells; c++) {
        dlpi_part_use *u = &q->use[c];
        if (u->ticket == 0) return c;
        if (u->needed &&
            (u->need_epoch > at->epoch || (u->need_epoch == at->epoch && u->need >= at->batch)))
            continue;
        if (u->used <= at->left && dlpi_input_close(p, c, u->ticket)) return c;
    }
    return q->n_cells;
}

/* Give the free cell c to a part, and open it, so that a worker loads the part. */
static void dlpi_part_issue(dlp_pipe *p, uint32_t c, uint64_t epoch, uint64_t part) {
    dlpi_parts *q = dlpi_parts_of(p);
    dlpi_part_use *u = &q->use[c];
    dlpi_input *cell = dlpi_input_at(p, c);
    u->part = part;
    u->epoch = epoch;
    u->until = UINT64_MAX;
    u->used = 0;
    u->ticket = ++q->ahead.tickets;
    dlpi_input_reset(cell, epoch, 1);
    dlpi_input_indices(cell)[0] = cell->index = part;
    cell->first = q->plan.first[part];
    cell->items = dlpi_part_size(&q->plan, part);
    dlpi_input_offer(p, c, u->ticket);
}

/* Return the cell of a part that the batch looked at needs. If the part has none it gets a free
   cell, and *fresh is raised.
   Returns n_cells if no cell is free. Also if the part is in a cell since an epoch before, and it
   is not known yet whether its load fails: if it does, this epoch tries again. */
static uint32_t dlpi_part_want(dlp_pipe *p, uint64_t part, uint32_t place, uint32_t *fresh) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint32_t c = dlpi_part_find_cell(p, q->epoch, part, place);
    if (c < q->n_cells && q->use[c].need_epoch < q->epoch) { /* a new epoch, a new try */
        uint32_t low = dlpi_input_state(p, c);
        if (low != DLPI_INPUT_FAILED) return low == DLPI_INPUT_LOADED ? c : q->n_cells;
        q->use[c].until = q->epoch;
        c = q->n_cells;
    }
    if (c < q->n_cells || (c = dlpi_part_free_cell(p)) == q->n_cells) return c;
    dlpi_part_issue(p, c, q->epoch, part);
    ++*fresh;
    return c;
}

/* Get cells for all parts of the batch looked at. Returns how many batches after it need no other
   parts, or -1 if a cell is missing. A batch and the next take neighbours from each stream. So the
   parts stay until the first of the batch's pieces comes to its part's end (same_batches). Only
   full batches are alike, so the count ends at the last of them. */
static int64_t dlpi_parts_look(dlp_pipe *p, uint32_t *fresh) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint64_t from, same_batches = UINT64_MAX, full = dlpi_parts_full(&q->plan);
    uint32_t count, place = 0;
    from = dlpi_parts_rows(p, q->batch, &count);
    for (uint64_t r = 0; r < count; place++) {
        dlpi_piece x;
        uint32_t c;
        dlpi_parts_piece(&q->plan, q->epoch, from + r, count - r, &x);
        if ((c = dlpi_part_want(p, x.part, place, fresh)) == q->n_cells) return -1;
        q->use[c].needed = true;
        q->use[c].need_epoch = q->epoch;
        q->use[c].need = q->batch;
        if (x.same_batches < same_batches) same_batches = x.same_batches;
        r += x.n;
    }
    if (q->batch >= full || count == 0) return 0;
    if (same_batches > full - 1 - q->batch) same_batches = full - 1 - q->batch;
    for (uint32_t c = 0; c < q->n_cells && same_batches > 0; c++)
        if (q->use[c].need_epoch == q->epoch && q->use[c].need == q->batch)
            q->use[c].need += same_batches;
    return (int64_t)same_batches;
}

/* Let the scheduler go on at another place, maybe an earlier one. No part is needed any more for
   batches beyond it. A part in a cell, or on its way there, will do for any epoch: it must not take
   a second cell, there may be none. A failed part is tried again. Returns 0 or a code. */
DLPI_COLD static int dlpi_parts_seek(dlp_pipe *p, const dlpi_state *to) {
    dlpi_parts *q = dlpi_parts_of(p);
    q->epoch = to->epoch;
    q->batch = to->batch;
    q->ahead.stuck = false;
    for (uint32_t c = 0; c < q->n_cells; c++) {
        dlpi_part_use *u = &q->use[c];
        uint32_t low = dlpi_input_state(p, c);
        u->needed = false;
        if (u->until != UINT64_MAX || low == DLPI_INPUT_FAILED)
            u->until = 0;
        else
            u->epoch = 0;
    }
    return dlpi_epoch_seek(p, to);
}

/* True if it is worth while to search free cells for the batches from the next one on. If the
   caller has left the epoch, the next epoch's batches are meant. */
static bool dlpi_parts_search(dlp_pipe *p) {
    const uint64_t cancel = DLPI_LOAD_RLX(&p->ctl->cancel); /* N1: a hint */
    const uint64_t next = cancel & DLPI_EPOCH_MASK;
    dlpi_inputs_ahead *ahead = &dlpi_parts_of(p)->ahead;
    const dlpi_scheduler *f = &p->schedule;
    if (dlpi_generation_seek(cancel) == f->seek_no && f->epoch < next)
        return dlpi_inputs_search(p, ahead, next, 0);
    return dlpi_inputs_search(p, ahead, f->epoch, f->in_epoch);
}

/* Have parts loaded until no cell is free, at most to the end of the epoch after the present one.
   Returns how many loads were begun. */
static uint32_t dlpi_parts_ask(dlp_pipe *p) {
    dlpi_parts *q = dlpi_parts_of(p);
    uint32_t fresh = 0;
    while (q->epoch <= q->ahead.epoch + 1 && !dlpi_epochs_over(p, q->epoch) &&
           !dlpi_epoch_held(p, q->epoch)) {
        int64_t same_batches = dlpi_parts_look(p, &fresh);
        q->ahead.stuck = same_batches < 0;
        if (q->ahead.stuck) break;
        q->batch += (uint64_t)same_batches + 1;
        if (q->batch < p->batches_per_epoch) continue;
        q->batch = 0;
        q->epoch++;
    }
    return fresh;
}

/* Have the parts loaded that come next, and wake the workers for them. */
static void dlpi_parts_ahead(dlp_pipe *p) {
    dlpi_parts *q = dlpi_parts_of(p);
    const dlpi_inputs_ahead *at = &q->ahead;
    uint32_t fresh;
    if (!dlpi_parts_search(p)) return;
    if (q->epoch < at->epoch || (q->epoch == at->epoch && q->batch < at->batch)) {
        q->epoch = at->epoch;
        q->batch = at->batch;
    }
    if ((fresh = dlpi_parts_ask(p)) > 0) dlpi_wake_stage(p, p->source_stage, DLPI_ANY, fresh);
}

/* True if all parts of the present batch are loaded or have failed. rows: of the global batch. */
static bool dlpi_parts_there(dlp_pipe *p, uint64_t rows) {
    dlpi_parts *q = dlpi_parts_of(p);
    const dlpi_scheduler *f = &p->schedule;
    uint64_t from, at;
    uint32_t count, place = 0;
    bool there = q->epoch > f->epoch || (q->epoch == f->epoch && q->batch > f->in_epoch);
    dlpi_rank_rows(p, rows, &from, &count);
    at = f->position + from;
    for (uint64_t r = 0; there && r < count; place++) {
        dlpi_piece x;
        uint32_t low;
        dlpi_parts_piece(&q->plan, f->epoch, at + r, count - r, &x);
        low = dlpi_input_state(p, dlpi_part_find_cell(p, f->epoch, x.part, place));
        there = low == DLPI_INPUT_LOADED || low == DLPI_INPUT_FAILED;
        r += x.n;
    }
    return dlpi_inputs_there(p, there);
}

/* ---- a batch is scheduled ---- */

/* Leave out rows row .. row + n - 1 of slot s, whose part can't be loaded, or fail the batch, as
   the stage's on_error says. cell: that of the part. */
static void dlpi_part_rows_fail(dlp_pipe *p, uint32_t s, const dlpi_input *cell, uint32_t row,
                                uint32_t n) {
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    dlp_error e;
    const bool raise = dlpi_input_raises(p, cell, n, &e);
    slot->dirty = 1;
    e.epoch = slot->epoch;
    for (uint32_t r = row; r < row + n; r++) dlpi_slot_fate(p, s)[r] = DLPI_ROW_LEFT;
    if (raise) {
        e.position = slot->position + row;
        dlpi_slot_fail(slot, DLPI_NOBODY, &e);
        return;
    }
    for (uint32_t r = row; r < row + n; r++) {
        e.position = slot->position + r;
        e.index = dlpi_slot_index(p, s)[r];
        dlpi_input_left_out(p, &e);
    }
}

/* Fill in the rows of the batch in slot s: their indices, and the cells that they come from. */
static void dlpi_parts_fill(dlp_pipe *p, uint32_t s) {
    dlpi_parts *q = dlpi_parts_of(p);
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t *index = dlpi_slot_index(p, s);
    uint32_t place = 0;
    dlpi_epoch_padding(p, s);
    for (uint32_t r = 0; r < slot->count; place++) {
        dlpi_piece x;
        uint32_t c, n;
        dlpi_input *cell;
        dlpi_parts_piece(&q->plan, slot->epoch, slot->position + r, slot->count - r, &x);
        c = dlpi_part_find_cell(p, slot->epoch, x.part, place);
        cell = dlpi_input_at(p, c);
        n = (uint32_t)x.n;
        dlpi_piece_indices(&q->plan, &q->use[c].items, slot->epoch, &x, index + r);
        for (uint32_t i = r; i < r + n; i++) dlpi_slot_pcell(p, s)[i] = c;
        q->use[c].used = dlpi_input_use(p, c, s);
        if (dlpi_input_state(p, c) == DLPI_INPUT_FAILED) dlpi_part_rows_fail(p, s, cell, r, n);
        r += n;
    }
}

/* ---- a row of it is fetched ---- */

/* Give a row's callback its part, and the number of the row's item in the part. extra: memory for
   one dlp_part. The part must be loaded. */
static void dlpi_part_row(dlpi_worker *w, dlp_item *it, uint32_t s, uint32_t row, void *extra) {
    const dlp_pipe *p = w->p;
    dlp_part *part = extra;
    *part = dlpi_input_shown(p, dlpi_slot_pcell(p, s)[row]);
    part->first = dlpi_input_at(p, dlpi_slot_pcell(p, s)[row])->first;
    part->item = it->index - part->first;
    it->part = part;
}

static uint64_t dlpi_part_item(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                               uint64_t position, uint32_t k) {
    const dlp_pipe *p = w->p;
    const dlpi_input *cell = dlpi_input_at(p, dlpi_slot_pcell(p, s)[row]);
    if (k == 0) return dlpi_slot_index(p, s)[row];
    return cell->first + dlpi_input_replacement(p, cell, epoch, position, k);
}

/* Return the number in its part of the item of row `row` of slot s. k: 1.. for a replacement. */
static uint32_t dlpi_part_number(dlpi_worker *w, uint32_t s, uint32_t row, uint64_t epoch,
                                 uint64_t position, uint32_t k, uint32_t *list DLPI_UNREAD) {
    const dlpi_input *cell = dlpi_input_at(w->p, dlpi_slot_pcell(w->p, s)[row]);
    return (uint32_t)(dlpi_part_item(w, s, row, epoch, position, k) - cell->first);
}

/* ---- a part is loaded ---- */

static int dlpi_part_load(dlpi_worker *w, uint32_t c) {
    const dlpi_input *cell = dlpi_input_at(w->p, c);
    dlp_part part = {.items = cell->items, .first = cell->first};
    const dlp_node_load *d = &dlpi_parts_of(w->p)->d;
    return dlpi_input_part(w, c, d, dlpi_input_bytes(w->p, c), d->max_part_bytes, &part);
}

/* ---- states ---- */

/* What else the order depends on. */
static const char *const dlpi_parts_words[] = {"parts (counts, manifest_id)", "streams",
                                               "steps_per_epoch", "shuffle_parts", "shuffle_items"};
#define DLPI_PARTS_WORDS (sizeof dlpi_parts_words / sizeof *dlpi_parts_words)

/* Write the words into a state that the order of parts follows from. Their names are in
   dlpi_parts_words. */
DLPI_COLD static void dlpi_parts_config(const dlp_pipe *p, dlpi_state *s) {
    const dlpi_parts *q = dlpi_parts_of(p);
    const uint64_t words[DLPI_PARTS_WORDS] = {dlpi_parts_manifest(&q->plan, q->d.manifest_id),
                                              q->plan.streams, q->plan.steps, q->plan.shuffle_parts,
                                              q->plan.shuffle_items};
    memcpy(s->sampler, words, sizeof words);
    s->sampler_bytes = sizeof words;
}

static const dlpi_source_ops dlpi_parts_source = {
    .sizes = dlpi_parts_sizes,
    .slot_bytes = dlpi_parts_slot_bytes,
    .row_bytes = sizeof(dlp_part),
    .rows = dlpi_epoch_rows,
    .alike = dlpi_role_none,
    .ready = dlpi_parts_there,
    .fill = dlpi_parts_fill,
    .ahead = dlpi_parts_ahead,
    .quiet = dlpi_inputs_quiet,
    .indices = dlpi_source_filled,
    DLPI_SOURCE_BY_NUMBER,
    .params = DLPI_SOURCE_PARAMS,
    .seek = dlpi_parts_seek,
    .item = dlpi_part_item,
    .origin = dlpi_part_number,
    .row = dlpi_part_row,
    .words = dlpi_parts_words,
    .n_words = DLPI_PARTS_WORDS,
    .config = dlpi_parts_config,
    .input = "part",
    .load = dlpi_part_load,
};

static const dlpi_stage_ops dlpi_parts_ops = {
    .kind = DLP_STAGE_PARTS,
    DLPI_OPS_OF_INPUTS,
    .self_bytes = sizeof(dlpi_parts),
    .check = dlpi_parts_check,
    .layout = dlpi_parts_layout,
    .private_words = "part tables",
    .blocks = dlpi_parts_blocks,
    .live = dlpi_parts_live,
    .seen = dlpi_inputs_seen,
    .source = &dlpi_parts_source,
};
