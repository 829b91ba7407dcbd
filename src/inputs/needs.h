/* needs: parts */
#pragma once
/* tests: system/stages/found, system/build/pipe_plan */
#include "inputs/arrivals.h"
#include "inputs/boxes.h"
#include "order/found_weights.h"
/* A source whose inputs have unknown counts: checks of its desc, how many cells its streams need,
   and their memory. Why these cells are enough is said in >>impl-found. */

/* ---- check the desc, and compute what follows from it ---- */

/* Refuse what has no meaning if the inputs' counts are not known. Returns 0 or a DLP_ERR code. */
static int dlpi_found_refuses(dlp_pipe *p) {
    const dlpi_stage *st = p->source_stage;
    const dlpi_stage *other = dlpi_roles_count(p);
    if (p->open_end) return dlpi_open_end_bad(p, st);
    if (other != NULL && other == p->keeper_stage && p->source->keeps != NULL &&
        dlpi_found_of(p)->arrivals == NULL) {
        if (other != p->fetch + 1)
            return dlpi_refuse(p, DLP_ERR_GRAPH, other->name, "",
                               "cache \"%s\" must stand directly behind \"%s\", whose items it "
                               "keeps; move its row up",
                               other->name, st->name);
        other = p->lender_stage;
    }
    if (other != NULL)
        return dlpi_refuse(p, DLP_ERR_GRAPH, other->name, "",
                           "stage \"%s\" needs the number of items, and stage \"%s\" finds it only "
                           "as it runs. Leave one of them out.",
                           other->name, st->name);
    if (p->d.unordered)
        return dlpi_refuse(p, DLP_ERR_ARG, "", "unordered",
                           "unordered is %d, must be 0 with stage \"%s\", whose rows come in order",
                           (int)p->d.unordered, st->name);
    return DLP_OK;
}

/* Check that streams, inputs, ranks and the batch fit together, and set whether ranks agree on the
   end. Returns 0 or a DLP_ERR code. */
static int dlpi_found_fit(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    uint64_t c = q->plan.streams;
    int rc = dlpi_check_divides(p, "streams", c);
    if (rc != DLP_OK) return rc;
    if (c > q->plan.n_inputs)
        return dlpi_refuse(p, DLP_ERR_ARG, "", "streams",
                           "streams is %" PRIu64 ", must be at most the number of %ss, %" PRIu64, c,
                           p->source->input, q->plan.n_inputs);
    if (c % p->world != 0 && !(p->d.shared_streams && p->global_batch % p->world == 0))
        return dlpi_refuse(p, DLP_ERR_ARG, "", "streams",
                           "streams %" PRIu64 " is no multiple of world_size %" PRIu32 "; change "
                           "one of the two, or set shared_streams = 1",
                           c, p->world);
    if (p->world > 1 && q->plan.steps == 0 && !p->d.uneven && p->d.agree == NULL)
        return dlpi_refuse(
            p, DLP_ERR_ARG, "", "steps_per_epoch",
            "steps_per_epoch is 0, and no rank of world_size knows the epoch's length; "
            "set it, or agree (an all-reduce), or uneven = 1");
    q->agreed.asks = p->d.agree != NULL && p->world > 1;
    q->all_items = q->agreed.asks && p->last != DLP_LAST_DROP;
    return DLP_OK;
}

/* Return how many rows of a stream must be known before a batch is scheduled: its own rows, and
   those that tell whether another batch follows. With DLP_LAST_DROP this needs all its rows, else
   one. */
static uint64_t dlpi_found_look(const dlp_pipe *p, const dlpi_found *q) {
    if (q->plan.steps || q->arrives) return q->each; /* a record may never come */
    return p->last == DLP_LAST_DROP ? 2 * (uint64_t)q->each : (uint64_t)q->each + 1;
}

/* Set the rows of each stream, the streams of this rank, the sizes of a cursor, and the epoch's
   length. They follow from the numbers of inputs, ranks and rows. Returns 0 or a DLP_ERR code. */
static int dlpi_found_lengths(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    int rc = dlpi_found_fit(p);
    if (rc != DLP_OK) return rc;
    q->plan.batch = p->global_batch;
    q->plan.seed = dlpi_sampler_of(p)->seed;
    q->each = (uint32_t)(p->global_batch / q->plan.streams);
    q->plan.own_first = q->cursors.first =
        (uint32_t)(p->rank * (p->global_batch / p->world) / q->each);
    q->cursors.n =
        (uint32_t)(((p->rank + UINT64_C(1)) * (p->global_batch / p->world) - 1) / q->each + 1) -
        q->cursors.first;
    if (q->plan.weights && !dlpi_found_deal(&q->plan))
        return dlpi_no_memory(p, "weights", "dealing the parts");
    q->cursors.ordinal_bits = dlpi_found_ordinal_bits(&q->plan);
    q->cursors.near_bits = dlpi_found_near_bits(&q->plan);
    q->cursors.used_bits = dlpi_bits_of(q->most_items);
    q->places = q->plan.window;
    q->cursors.place_bits = q->places ? dlpi_bits_of(q->places - 1) : 0;
    if (q->plan.steps) {
        rc = dlpi_epoch_of(p, q->plan.steps * p->global_batch);
        if (q->plan.steps == DLPI_FOUND_ENDLESS) p->batches_per_epoch = (uint64_t)DLP_FOREVER;
        return rc;
    }
    p->samples = DLPI_MAX_ITEMS; /* nobody knows the epoch's length */
    p->batches_per_epoch = UINT64_MAX;
    return DLP_OK;
}

/* Return how many rows of a stream must be known at once. They are counted from the last row given
   on; with windows, from the beginning of the window of that row. */
DLPI_COLD static uint64_t dlpi_found_rows_needed(const dlp_pipe *p, const dlpi_found *q) {
    uint64_t rows = dlpi_found_look(p, q), n = q->plan.window, epoch = q->plan.steps * q->each;
    if (n == 0) return rows;
    rows = (n - 1 + rows + n - 1) / n * n;
    return q->plan.steps && epoch < rows ? epoch : rows;
}

/* Return the cells' alignment: a cache line if they hold less than a page of items, else a page. */
static uint64_t dlpi_found_align(const dlpi_found *q) {
    return q->d.load == NULL && q->d.max_part_bytes < 4096 && !DLPI_DEBUG ? DLPI_LINE : 4096;
}

/* Return how many cells there should be beyond the needed ones. It is one for each worker, or
   several if workers have requests. Cells of items that are made get as many as fit into a MiB.
   Then workers fill cells while the consumer copies a batch out of others, and workers and
   scheduler wake each other less often. */
static uint64_t dlpi_found_more(const dlpi_found *q, const dlpi_stage *st) {
    const int32_t n = st->w.num_workers;
    uint64_t workers = n > 0 ? (uint64_t)n : 1;
    uint64_t more = (1 << 20) / (sizeof(dlpi_input) + q->d.max_part_bytes);
    const bool large =
        q->boxes.each > 0 && q->d.max_part_bytes > 1 << 20; /* few, not to fill memory */
    if (q->in_flight > 0) return workers * ((large ? 2 : 8) + 2 * (uint64_t)q->in_flight);
    if (q->boxes.each > 0 && q->d.max_part_bytes >= 4096) return workers * (large ? 2 : 8);
    if (q->d.load != NULL || n <= 0) return workers;
    return more > 1024 ? 1024 : more > workers ? more : workers;
}

/* Set how many cells there are. need: cells that each stream needs. because: the fields that this
   follows from, for the error. Returns 0 or a DLP_ERR code if the desc's queue is too short or a
   state has no room for the streams. */
static int dlpi_found_cells(dlp_pipe *p, dlpi_stage *st, uint64_t need, const char *because) {
    dlpi_found *q = st->self;
    uint64_t all = dlpi_times(need, q->cursors.n);
    const dlpi_cursors *c = &q->all->cursors;
    const uint32_t fit = dlpi_cursors_fit(c), few = dlpi_cursors_lists_fit(*c);
    q->need = (uint32_t)(need < DLPI_FOUND_CELLS ? need : DLPI_FOUND_CELLS);
    if (q->most_run == 0) q->most_run = 1;
    if (dlpi_is_shared(p) && p->d.agree != NULL)
        return dlpi_refuse(p, DLP_ERR_UNSUPPORTED, "", p->sharing->words,
                           "%s is given; leave it out with agree: only the consumer sees ends that "
                           "ranks agree on",
                           p->sharing->words);
    if (c->n > fit && few > 0)
        return dlpi_refuse(p, DLP_ERR_ARG, "", "streams",
                           "a state has no room for the places of %" PRIu32 " streams in %" PRIu32
                           " branches; %" PRIu32 " branches fit, or %" PRIu32 " streams; set fewer "
                           "of one of the two",
                           c->n, c->lists, few, fit);
    if (c->n > fit)
        return dlpi_refuse(p, DLP_ERR_ARG, "", "streams",
                           "this rank reads %" PRIu32 " streams, a state has room for %" PRIu32
                           "; set fewer streams, or use more ranks",
                           c->n, fit);
    q->n_cells = q->d.queue_size;
    if (q->n_cells == 0 && all <= DLPI_FOUND_CELLS) {
        uint64_t more = all + dlpi_found_more(q, st);
        q->n_cells = more < DLPI_FOUND_CELLS ? (uint32_t)more : DLPI_FOUND_CELLS;
    }
    if (q->n_cells >= all) return DLP_OK;
    return dlpi_refuse(p, DLP_ERR_ARG, st->name, "queue.capacity",
                       "queue.capacity (a loader: parts.queue_size) is %" PRIu32 "; a batch%s may "
                       "need %" PRIu64 " %ss at once; set 0 (up to 2^22), or change %s",
                       q->d.queue_size, q->plan.window ? " and its windows" : "", all,
                       p->source->input, because);
}

/* Return in how many inputs `rows` consecutive rows lie at most, wherever they begin. */
static uint64_t dlpi_found_lie_in(const dlpi_found *q, uint64_t rows) {
    return 1 + (rows - 1 + q->least_items - 1) / q->least_items;
}

/* Return how many cells a stream needs, if rows are copied out of cells. */
static uint64_t dlpi_found_need(const dlp_pipe *p, const dlpi_found *q) {
    const uint64_t look = dlpi_found_look(p, q), each = dlpi_found_most_inputs(&q->plan);
    const uint64_t w = dlpi_found_lie_in(q, q->plan.window);
    const uint64_t most = w + (look - 1 < w ? look - 1 : w);
    uint64_t need = dlpi_found_lie_in(q, dlpi_found_rows_needed(p, q));
    if (q->plan.window == 0) return need;
    if (look <= q->plan.window && most < need) need = most;
    return q->plan.steps == 0 && each < need ? each : need;
}

/* Compute the cells that the streams of a stage need. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_found_check(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_found *q = st->self;
    return dlpi_found_cells(p, st, q->boxes.each > 0 ? 1 : dlpi_found_need(p, q),
                            q->boxes.each > 0 ? "streams"
                            : q->plan.window  ? "batch_size, min_items, window"
                                              : "batch_size, min_items");
}

/* ---- boxes, or not ---- */

#define DLPI_BOXES_LEAST UINT64_C(0x400000) /* bytes of cells from which on there may be boxes */
#ifndef DLPI_BOXES_SPARE                    /* a checker may define it before inclusion */
#define DLPI_BOXES_SPARE(spare) (spare)
#endif

/* Return the bytes of the boxes of all streams, with their records and notes. */
static uint64_t dlpi_boxes_bytes(const dlpi_found *q) {
    const uint64_t items = dlpi_times(q->boxes.items, dlpi_sum(q->boxes.item, sizeof(dlpi_note)));
    return dlpi_times(dlpi_times(q->cursors.n, q->boxes.each),
                      dlpi_sum(items, sizeof(dlpi_found_cell)));
}

/* Set the boxes of a stream: the least number, and those that batches under way may have rows
   of. */
static void dlpi_boxes_set(const dlp_pipe *p, dlpi_found *q, uint64_t item) {
    const uint64_t most = DLPI_BOX_BYTES / item, n = q->plan.window;
    const uint64_t items = most > DLPI_BOX_ITEMS ? DLPI_BOX_ITEMS : most > 1 ? most : 1;
    const uint64_t rows = dlpi_times(p->prefetch, q->each), w = (n + items - 1) / items;
    const uint64_t spare = n == 0 ? (rows + items - 1) / items : rows < w ? rows : w;
    const uint64_t each = dlpi_boxes_least(items, n, dlpi_found_look(p, q)) +
                          (uint64_t)(int64_t)DLPI_BOXES_SPARE((int64_t)spare);
    q->boxes.items = (uint32_t)items;
    q->boxes.each = each < DLPI_FOUND_CELLS ? (uint32_t)each : DLPI_FOUND_CELLS;
}

/* Decide if rows of a source are to be copied out of boxes, and set the boxes. item: bytes of an
   item. boxed: bytes of a cell with boxes if boxes make runs of inputs longer, else 0. The sizes
   of cells are those without boxes. Boxes are chosen if they halve the memory of many cells. They
   are chosen if they make runs longer and take less memory. They are chosen if queue.capacity
   gives fewer cells than are needed without boxes. */
DLPI_COLD static void dlpi_boxes_choose(const dlp_pipe *p, const dlpi_stage *st, dlpi_found *q,
                                        uint64_t item, uint64_t boxed) {
    const uint64_t streams = q->cursors.n, cell = q->d.max_part_bytes;
    const uint64_t need = dlpi_times(streams, dlpi_found_need(p, q));
    uint64_t cells, boxes, more;
    bool chosen;
    q->boxes.each = 0;
    q->boxes.item = item;
    if (q->rule != NULL || q->joins != NULL || q->arrivals != NULL || q->next != NULL || item == 0)
        return;
    dlpi_boxes_set(p, q, item);
    more = dlpi_found_more(q, st);
    cells = dlpi_times(need, dlpi_sum(cell, 600));
    boxes = dlpi_sum(dlpi_boxes_bytes(q), dlpi_times(dlpi_sum(streams, more), dlpi_sum(cell, 512)));
    chosen = q->d.queue_size > 0 ? q->d.queue_size < need
                                 : cells > DLPI_BOXES_LEAST && boxes < cells / 2;
    if (boxed > 0) { /* these sizes are small */
        cells += more * (cell + 600);
        q->d.max_part_bytes = boxed;
        boxes = dlpi_boxes_bytes(q) + (streams + dlpi_found_more(q, st)) * (boxed + 512);
        q->d.max_part_bytes = cell;
        chosen |= boxes <= cells;
    }
    if (!chosen || dlpi_times(streams, q->boxes.each) > DLPI_FOUND_CELLS) q->boxes.each = 0;
}

/* ---- memory ---- */

static uint64_t dlpi_found_slot_bytes(const dlp_pipe *p) {
    return dlpi_sum(sizeof(dlpi_source_state), dlpi_times(p->batch_rows, sizeof(dlpi_found_row)));
}

/* Add the area of the region in which observers read counts, and each stream's last pass. */
static void dlpi_found_counts_layout(dlp_pipe *p, const dlpi_stage *st) {
    const dlpi_found *q = st->self;
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_INPUTS_COUNTS),
                  DLPI_FOUND_SPREAD + sizeof(dlpi_found_spread) + q->cursors.n * sizeof(uint64_t),
                  1, DLPI_LINE);
}

/* Add the areas of the region for cells of `stride` bytes, with a record and a bit each, and for
   the boxes. With DLPIPE_DEBUG cells have guard bytes, and the area is a multiple of a cell. */
DLPI_COLD static void dlpi_boxes_layout(dlp_pipe *p, dlpi_stage *st, uint64_t stride) {
    dlpi_found *q = st->self;
    dlpi_found_boxes *b = &q->boxes;
    uint64_t bytes;
    b->cells = dlpi_sum(stride, DLPI_INPUT_GUARD);
    b->at = dlpi_times(q->n_cells, b->cells);
    b->stride = b->items * b->item;
    bytes = dlpi_sum(b->at, dlpi_times(dlpi_times(q->cursors.n, b->each), b->stride));
    dlpi_inputs_records(p, st, q->n_cells, q->most_run);
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_INPUTS_CELLS), DLPI_PLAN_INPUTS,
                   q->plan.window ? "part cells, boxes, windows" : "part cells, boxes",
                   DLPI_DEBUG ? b->cells : bytes,
                   DLPI_DEBUG ? dlpi_sum(bytes, b->cells - 1 + DLPI_INPUT_GUARD) / b->cells : 1,
                   4096);
}

/* Plan the areas of the region that a stage with inputs of unknown count needs: counts and cells.
   */
DLPI_COLD static void dlpi_found_layout(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_found *q = st->self;
    uint64_t stride =
        dlpi_round_up(dlpi_sum(q->d.max_part_bytes, DLPI_REDZONE), dlpi_found_align(q));
    dlpi_found_counts_layout(p, st);
    if (q->boxes.each > 0)
        dlpi_boxes_layout(p, st, stride);
    else
        dlpi_inputs_layout(p, st, q->n_cells, q->most_run, stride,
                           q->plan.window ? "part cells, windows" : "part cells");
}

/* Describe in `out` the heap memory of a stage of such inputs, for allocating and freeing it.
   Weights and their deal were allocated before. Returns the number of blocks, 8 or 10. */
static int dlpi_found_blocks(const dlp_pipe *p DLPI_UNREAD, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_found *q = st->self;
    const dlpi_found_plan *k = &q->plan;
    uint64_t streams = q->cursors.n, windows = q->plan.window ? streams : 0;
    uint64_t orders = q->plan.shuffle_items && q->most_items > 1 ? q->n_cells : 0;
    const uint64_t boxes = dlpi_times(streams, q->boxes.each);
    out[0] = (dlpi_block){offsetof(dlpi_found, use),
                          dlpi_times(dlpi_sum(q->n_cells, boxes), sizeof *q->use)};
    out[1] = (dlpi_block){offsetof(dlpi_found, streams), dlpi_times(streams, sizeof *q->streams)};
    out[2] = (dlpi_block){offsetof(dlpi_found, items), dlpi_times(orders, sizeof *q->items)};
    out[3] = (dlpi_block){offsetof(dlpi_found, window_orders),
                          dlpi_times(windows, sizeof *q->window_orders)};
    out[4] = (dlpi_block){offsetof(dlpi_found, window_rows),
                          dlpi_times(dlpi_times(windows, q->plan.window), sizeof *q->window_rows)};
    out[5] = (dlpi_block){offsetof(dlpi_found, boxes.notes),
                          dlpi_times(dlpi_times(boxes, q->boxes.items), sizeof(dlpi_note))};
    out[6] = (dlpi_block){offsetof(dlpi_found, keys), k->group > 0 ? k->window * 8 : 0};
    out[7] = (dlpi_block){offsetof(dlpi_found, spare), k->group > 0 ? k->window * 8 : 0};
    if (k->weights == NULL) return 8;
    out[8] = (dlpi_block){offsetof(dlpi_found, plan.weights), dlpi_found_weights_bytes(k)};
    out[9] = (dlpi_block){offsetof(dlpi_found, plan.own_passes),
                          dlpi_times(k->shuffle_inputs ? streams : 0, sizeof *k->own_passes)};
    return 10;
}

/* Write the words of the streams' statistics that are known before the first input is loaded. */
static void dlpi_found_spread_begin(const dlp_pipe *p, dlpi_found *q) {
    const dlpi_found_plan *k = &q->plan;
    dlpi_found_spread *to = q->spread;
    const bool drops = k->steps == 0 && p->last == DLP_LAST_DROP;
    to->streams = q->cursors.n;
    to->all = k->streams;
    to->each = q->rule ? 0 : q->each;
    to->rows = k->steps == 0 || k->steps == DLPI_FOUND_ENDLESS ? 0 : k->steps * q->each;
    to->drops = drops ? 1 + q->agreed.asks : 0;
    for (uint64_t s = 0; k->weights && s < k->streams; s++) {
        uint64_t sum = 0;
        for (uint64_t i = k->first[s]; i < k->first[s + 1]; i++) sum += k->weights[k->members[i]];
        if (s == 0 || sum < to->weights_least) to->weights_least = sum;
        if (sum > to->weights_most) to->weights_most = sum;
        to->weights += sum;
    }
}

/* Put n cells, or boxes, of the array `all` into a pool, before the pipe starts. */
DLPI_COLD static void dlpi_found_pool_init(dlpi_found_cell *all, dlpi_found_pool *pool,
                                           uint32_t first, uint32_t n) {
    pool->free = pool->waits = pool->waits_last = DLPI_FOUND_NONE;
    for (uint32_t c = first + n; c > first;) dlpi_found_free(all, pool, --c);
}

/* Put all cells and boxes of a list into their lists of free ones, before the pipe starts. */
DLPI_COLD static void dlpi_found_frees(dlpi_found *q) {
    for (uint32_t i = 0; i < q->cursors.n; i++) {
        dlpi_found_stream *x = &q->streams[i];
        x->head = x->tail = x->known = x->grant = DLPI_FOUND_NONE;
        if (q->boxes.each > 0)
            dlpi_found_pool_init(q->box, &x->boxes, i * q->boxes.each, q->boxes.each);
    }
    q->run = 1;
    dlpi_found_pool_init(q->use, &q->pool, q->first_cell, q->n_cells);
}

/* Set up a stage with inputs of unknown count in the mapped region: the words of statistics, and
   all cells free. Warn if the streams may not fit into a state. */
DLPI_COLD static void dlpi_found_live(dlp_pipe *p, dlpi_stage *st) {
    dlpi_found *q = st->self;
    q->counts = dlpi_area_at(p, DLPI_OWN(st->id, DLPI_INPUTS_COUNTS), 0);
    q->counts->window = q->plan.window;
    q->spread = (dlpi_found_spread *)(void *)((uint8_t *)q->counts + DLPI_FOUND_SPREAD);
    dlpi_found_spread_begin(p, q);
    q->box = q->use + (q->boxes.each > 0 ? q->n_cells : 0);
    if (q->boxes.each == 0) q->boxes.stride = p->inputs[DLPI_INPUTS_CELLS].stride;
    dlpi_epoch_order(p, &q->plan.order);
    dlpi_found_frees(q);
    if (dlpi_cursors_bytes(&q->all->cursors) > DLP_SAMPLER_STATE_BYTES)
        dlpi_warn(p,
                  "%" PRIu32 " streams fit into a state while they are near each other; a filter "
                  "that keeps almost nothing may make dlp_pipe_state fail",
                  q->all->cursors.n);
    if (DLPI_DEBUG) dlpi_inputs_paint(p, q->d.max_part_bytes);
}
