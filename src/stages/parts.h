#pragma once
#include "core/item.h"
#include "core/debug.h"
#include "core/wanted.h"
#include "core/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-parts      PART QUEUE: THE ORDER, THE CELLS, WHAT TO LOAD NEXT
   Done by the feeder alone, but for the word of each cell. It computes the indices of a batch as it
   feeds it, looks ahead for the parts that come next in the order of this rank's rows, and gives
   each of them a free cell and a ticket. A part stays in its cell while a batch up to the one
   looked at last needs it, and until all batches fed that need it have left the last stage that
   could send rows back to fetch.

   cell.state: ticket (39 bits) and what is with it. Tickets only grow.

     CLOSED --feeder: OPEN--> OPEN --worker: a swap, its number--> ... --worker--> LOADED or FAILED
       ^  ^                    |  ^                                 |                  |
       |  +--feeder: a swap ---+  +-- failed, or dead: tried again -+                  |
       +----------------------- feeder: no batch needs it any more --------------------+

   label  atomic            written by                    read by (partner)
   Q1     cell.state        feeder: OPEN, CLOSED;         part workers before a claim; feeder, who
                            worker: claim, LOADED,        then reads the part, or shows it to item
                            FAILED; recovery: OPEN        workers with the batch (P1, T1)
   Q2     ctl.part_loads    worker, after Q1; recovery    feeder (Q2): look again for a free cell;
                                                          before it sleeps, so behind B1
   B1     bell.mask, word   as everywhere

   Why a claim is right. The swap that puts a worker's number there IS the claim. It fails unless
   the word is that of the very ticket that was read, and open: after a cell was given to another
   part its ticket is another. Fields of the cell are read behind the swap, and the feeder writes
   them only while the word is LOADED or FAILED, which no worker changes, or CLOSED, which it makes
   it by a swap that fails if a worker has come first. So while a worker's number stands there
   nobody but it writes fields or bytes. tests/model/model_parts.pml goes through all of this.
   Why a death costs no part. Nothing but the word tells who loads. A worker that dies before it
   says LOADED leaves its number there; recovery, which is alone with a dead worker's words, makes
   it OPEN again, and the next worker begins at the first byte: nobody reads bytes that are not
   LOADED. One that dies behind LOADED has done all but counting the load and waking: recovery
   counts one (Q2), and wakes everybody.
   Why it can't stand still. When the feeder waits for a free cell for a part of batch k, each cell
   that is not k's own belongs to batches before k. All parts of those are in cells, so they are
   loaded and fed, they leave (workers never wait for a part), and their cells come free. So it is
   enough that one batch's parts fit into the cells: dlpi_parts_need holds the worst case of them
   against queue_size before the start. */

#define DLPI_PART_OPEN UINT32_C(0x1000000)
#define DLPI_PART_LOADED UINT32_C(0x1000001)
#define DLPI_PART_FAILED UINT32_C(0x1000002)
#define DLPI_PART_CLOSED UINT32_C(0)

static void dlpi_parts_layout(dlp_pipe *p) {
    dlpi_area_add(p, DLPI_REC_PARTS, "part cells: records", sizeof(dlpi_pcell), p->part_cells,
                  DLPI_LINE);
    dlpi_area_add(p, DLPI_REC_PART_CELLS, "part cells", p->part_stride, p->part_cells, 4096);
}

static inline dlpi_pcell *dlpi_pcell_at(const dlp_pipe *p, uint32_t i) {
    return dlpi_area_at(p, DLPI_REC_PARTS, i);
}
static inline uint8_t *dlpi_part_bytes(const dlp_pipe *p, uint32_t i) {
    return (uint8_t *)dlpi_area_at(p, DLPI_REC_PART_CELLS, i) + DLPI_PART_GUARD;
}
/* Which part cell each row of slot s comes from. */
static inline uint32_t *dlpi_slot_pcell(const dlp_pipe *p, uint32_t s) {
    return (uint32_t *)(void *)((uint8_t *)dlpi_slot_at(p, s) + p->off_pcell);
}
static inline dlpi_sbell *dlpi_parts_bell(const dlp_pipe *p) { return &p->bells[p->parts->work]; }

/* ---- the order ---- */

static inline uint64_t dlpi_parts_items(const dlp_pipe *p) {
    return p->parts->part_first[p->parts->part.n_parts];
}

/* Where stream s begins in the epoch's items, one after another: s * T / C. */
static uint64_t dlpi_stream_first(const dlp_pipe *p, uint64_t s) {
    uint64_t t = dlpi_parts_items(p), c = p->parts->part.streams;
    return t / c * s + t % c * s / c;
}

/* Full batches whose rows are cut evenly among the streams. */
static uint64_t dlpi_parts_full(const dlp_pipe *p) {
    uint64_t steps = p->parts->part.steps_per_epoch;
    return steps ? steps : dlpi_parts_items(p) / p->global_batch;
}

/* The stream that row r of the last, short batch comes from; what streams before it have left is
   taken off r. */
static uint32_t dlpi_rest_stream(const dlp_pipe *p, uint64_t *r) {
    uint64_t taken = dlpi_parts_full(p) * (p->global_batch / p->parts->part.streams);
    uint64_t low = 0, high = p->parts->part.streams; /* rests of streams below low are at most r */
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (dlpi_stream_first(p, mid) - mid * taken <= *r)
            low = mid;
        else
            high = mid;
    }
    *r -= dlpi_stream_first(p, low) - low * taken;
    return (uint32_t)low;
}

/* A stretch of positions whose items lie in one part, one behind the other before they are
   shuffled. */
typedef struct dlpi_piece {
    uint64_t part, item; /* the first of them in the part's order */
    uint64_t n;
    uint64_t steady; /* as many batches behind this one have these rows in the same part */
} dlpi_piece;

/* Place g of the epoch's items, and how many from it on are one stream's (n, at most that given),
   for the position at of the epoch. */
static uint64_t dlpi_parts_place(const dlp_pipe *p, uint64_t at, uint64_t *n, uint64_t *end) {
    const dlp_part_desc *d = &p->parts->part;
    uint64_t each = p->global_batch / d->streams, full = dlpi_parts_full(p);
    uint64_t k = at / p->global_batch, r = at % p->global_batch, s, left, offset;
    if (k < full) {
        s = r / each;
        left = each - r % each;
        offset = k * each + r % each;
    } else {
        s = dlpi_rest_stream(p, &r);
        offset = full * each + r;
        left = UINT64_MAX;
    }
    *end = dlpi_stream_first(p, s + 1);
    if (d->steps_per_epoch) offset %= *end - dlpi_stream_first(p, s);
    offset += dlpi_stream_first(p, s);
    if (left > *end - offset) left = *end - offset;
    if (*n > left) *n = left;
    return offset;
}

/* The last of the n + 1 sums that is not above g. */
static uint64_t dlpi_sum_find(const uint64_t *first, uint64_t n, uint64_t g) {
    uint64_t low = 0, high = n;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (first[mid] <= g)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The parts of an epoch in their order, with the sums of their items. */
static const dlpi_part_order *dlpi_part_order_of(dlp_pipe *p, uint64_t epoch) {
    const dlpi_stage *st = p->parts;
    uint64_t n = st->part.n_parts, sum = 0;
    dlpi_part_order *o = &p->pq.orders[epoch & 1];
    if (DLPI_LIKELY(o->ready && o->epoch == epoch)) return o;
    o->epoch = epoch;
    o->ready = 1;
    dlp_permutation_init(&o->order, n, dlpi_hash_in(DLPI_DOMAIN_PARTS, p->sampler->sampler.seed, 0),
                         epoch);
    for (uint64_t j = 0; j < n; j++) {
        uint64_t part = dlp_permutation_at(&o->order, j);
        o->first[j] = sum;
        sum += st->part_first[part + 1] - st->part_first[part];
    }
    o->first[n] = sum;
    return o;
}

/* What position `at` of an epoch is, and as many as n behind it. Past the epoch's last item (a
   batch that is padded) it begins again. */
static void dlpi_parts_piece(dlp_pipe *p, uint64_t epoch, uint64_t at, uint64_t n, dlpi_piece *x) {
    const dlpi_stage *st = p->parts;
    uint64_t end, j, part_end, g;
    at %= p->samples;
    if (n > p->samples - at) n = p->samples - at;
    g = dlpi_parts_place(p, at, &n, &end);
    if (st->part.shuffle_parts) {
        const dlpi_part_order *o = dlpi_part_order_of(p, epoch);
        j = dlpi_sum_find(o->first, st->part.n_parts, g);
        x->part = dlp_permutation_at(&o->order, j);
        x->item = g - o->first[j];
        part_end = o->first[j + 1];
    } else {
        x->part = dlpi_sum_find(st->part_first, st->part.n_parts, g);
        x->item = g - st->part_first[x->part];
        part_end = st->part_first[x->part + 1];
    }
    if (end > part_end) end = part_end;
    x->n = n < end - g ? n : end - g;
    x->steady = (end - g - x->n) / (p->global_batch / st->part.streams);
}

/* The permutation of a part's items. */
static const dlp_permutation *dlpi_part_items(const dlp_pipe *p, dlp_permutation *items,
                                              uint64_t part, uint64_t epoch) {
    const dlpi_stage *st = p->parts;
    uint64_t n = st->part_first[part + 1] - st->part_first[part];
    uint64_t seed = dlpi_hash_in(DLPI_DOMAIN_PART_ITEMS, p->sampler->sampler.seed, part);
    if (items->n != n || items->seed != seed || items->epoch != epoch)
        dlp_permutation_init(items, n, seed, epoch);
    return items;
}

/* Dataset indices of a piece. */
static void dlpi_piece_indices(const dlp_pipe *p, dlp_permutation *items, uint64_t epoch,
                               const dlpi_piece *x, uint64_t *index) {
    uint64_t first = p->parts->part_first[x->part];
    if (p->parts->part.shuffle_items)
        dlp_permutation_block(dlpi_part_items(p, items, x->part, epoch), x->item, (uint32_t)x->n,
                              index);
    for (uint64_t i = 0; i < x->n; i++)
        index[i] = first + (p->parts->part.shuffle_items ? index[i] : x->item + i);
}

/* A number that differs where counts or manifest_id do. */
static uint64_t dlpi_parts_manifest(const dlpi_stage *st) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_PARTS, st->part.manifest_id, st->part.n_parts);
    return dlpi_order_hash_array(h, st->part_first, st->part.n_parts + 1);
}

/* Positions of global batch k: how many. */
static uint64_t dlpi_parts_rows(const dlp_pipe *p, uint64_t k) {
    uint64_t at = k * p->global_batch;
    bool cut = p->last == DLP_LAST_SHORT && p->samples - at < p->global_batch;
    return cut ? p->samples - at : p->global_batch;
}

/* How many whole parts can lie within n items at most: the smallest of them. */
static uint64_t dlpi_parts_within(const dlpi_stage *st, uint64_t n) {
    uint64_t low = 0, high = n + 1, count = 0, sum = 0;
    while (high - low > 1) { /* those of at most low items have no more than n together */
        uint64_t mid = low + (high - low) / 2, all = 0;
        for (uint64_t i = 0; i < st->part.n_parts && all <= n; i++) {
            uint64_t items = st->part_first[i + 1] - st->part_first[i];
            if (items <= mid) all += items;
        }
        if (all <= n)
            low = mid;
        else
            high = mid;
    }
    for (uint64_t i = 0; i < st->part.n_parts; i++) {
        uint64_t items = st->part_first[i + 1] - st->part_first[i];
        if (items > 0 && items <= low) sum += items, count++;
    }
    return count + (n - sum) / (low + 1);
}

/* The most parts that batch k can need here, whatever their order: of the rows from each stream the
   first and the last may lie in parts of their own, and the others fill whole parts. */
static uint64_t dlpi_parts_need(const dlp_pipe *p, uint64_t k) {
    uint64_t from, at, most = 0, between = 0, end, parts = 0;
    bool wraps = p->parts->part.steps_per_epoch != 0; /* a stream may begin again in between */
    uint32_t count;
    dlpi_rank_rows(p, dlpi_parts_rows(p, k), &from, &count);
    at = k * p->global_batch + from;
    for (uint64_t r = 0; r < count;) {
        uint64_t n = count - r, pos = (at + r) % p->samples;
        if (n > p->samples - pos) n = p->samples - pos;
        dlpi_parts_place(p, pos, &n, &end);
        most += (n < 2 ? n : 2) * (wraps ? 2 : 1);
        between += n < 2 ? 0 : n - 2;
        r += n;
    }
    for (uint64_t i = 0; i < p->parts->part.n_parts; i++)
        parts += p->parts->part_first[i + 1] != p->parts->part_first[i];
    most += dlpi_parts_within(p->parts, between);
    if (most > count) most = count;
    return most < parts ? most : parts;
}

/* ---- looking ahead ---- */

/* The cell that has the part for this epoch, or will have; part_cells: none. hint: of the place in
   the batch, where it was the last time. */
static uint32_t dlpi_part_find_cell(dlp_pipe *p, uint64_t epoch, uint64_t part, uint32_t place) {
    uint32_t *hint = &p->pq.hint[place % DLPI_PART_HINTS];
    for (uint32_t i = 0, c = *hint; i <= p->part_cells; c = i++) {
        const dlpi_part_use *u = &p->pq.use[c];
        if (u->ticket == 0 || u->part != part || u->epoch > epoch || u->until <= epoch) continue;
        *hint = c;
        return c;
    }
    return p->part_cells;
}

/* A cell whose part no batch needs any more, closed; part_cells: none. epoch, batch: the one to be
   fed next. */
static uint32_t dlpi_part_free_cell(dlp_pipe *p, uint64_t epoch, uint64_t batch) {
    for (uint32_t c = 0; c < p->part_cells; c++) {
        dlpi_part_use *u = &p->pq.use[c];
        uint64_t *state = &dlpi_pcell_at(p, c)->state, now = DLPI_LOAD_SEQ(state); /* Q1 <- Q1 */
        uint32_t low = dlpi_gen_low(now);
        if (u->ticket == 0) return c;
        if (u->needed && (u->need_epoch > epoch || (u->need_epoch == epoch && u->need >= batch)))
            continue;
        if (u->used > p->pq.left) continue;
        if (low == DLPI_PART_LOADED || low == DLPI_PART_FAILED) return c;
        if (low == DLPI_PART_OPEN && /* an epoch that was left */
            DLPI_CAS_SEQ(state, &now, dlpi_gen_word(u->ticket, DLPI_PART_CLOSED))) /* Q1 -> Q1 */
            return c;
    }
    return p->part_cells;
}

/* Have the part loaded into cell c. */
static void dlpi_part_issue(dlp_pipe *p, uint32_t c, uint64_t epoch, uint64_t part) {
    const uint64_t *first = p->parts->part_first;
    dlpi_part_use *u = &p->pq.use[c];
    dlpi_pcell *cell = dlpi_pcell_at(p, c);
    u->part = part;
    u->epoch = epoch;
    u->until = UINT64_MAX;
    u->used = 0;
    DLPI_STORE_RLX(&cell->used, UINT64_C(0)); /* for observers */
    u->ticket = ++p->pq.tickets;
    cell->part = part;
    cell->first = first[part];
    cell->items = first[part + 1] - first[part];
    cell->epoch = epoch;
    cell->bytes = 0;
    DLPI_STORE_RLX(&cell->due_ns, UINT64_C(0)); /* ordered by state */
    cell->rec = 0;
    DLPI_STORE_SEQ(&cell->state, dlpi_gen_word(u->ticket, DLPI_PART_OPEN)); /* Q1 -> Q1, B1 */
}

/* Cells for all parts of the batch looked at; *fresh counts tickets. Returns how many batches
   behind it need no other parts, or -1: there is no free cell, or a part is in one since an epoch
   before, and it is not known yet whether its load fails: then this epoch tries again. */
static int64_t dlpi_parts_look(dlp_pipe *p, uint64_t epoch, uint64_t batch, uint32_t *fresh) {
    dlpi_parts *q = &p->pq;
    uint64_t from, at, steady = UINT64_MAX, full = dlpi_parts_full(p);
    uint32_t count, place = 0;
    dlpi_rank_rows(p, dlpi_parts_rows(p, q->batch), &from, &count);
    at = q->batch * p->global_batch + from;
    for (uint64_t r = 0; r < count; place++) {
        dlpi_piece x;
        uint32_t c;
        dlpi_parts_piece(p, q->epoch, at + r, count - r, &x);
        c = dlpi_part_find_cell(p, q->epoch, x.part, place);
        if (c < p->part_cells && q->use[c].need_epoch < q->epoch) { /* a new epoch, a new try */
            uint32_t low = dlpi_gen_low(DLPI_LOAD_SEQ(&dlpi_pcell_at(p, c)->state)); /* Q1 <- Q1 */
            if (low == DLPI_PART_FAILED) q->use[c].until = q->epoch;
            if (low == DLPI_PART_FAILED)
                c = p->part_cells;
            else if (low != DLPI_PART_LOADED)
                return -1; /* who knows? */
        }
        if (c == p->part_cells) {
            if ((c = dlpi_part_free_cell(p, epoch, batch)) == p->part_cells) return -1;
            dlpi_part_issue(p, c, q->epoch, x.part);
            ++*fresh;
        }
        q->use[c].needed = true;
        q->use[c].need_epoch = q->epoch;
        q->use[c].need = q->batch;
        if (x.steady < steady) steady = x.steady;
        r += x.n;
    }
    if (q->batch >= full || count == 0) return 0;
    if (steady > full - 1 - q->batch) steady = full - 1 - q->batch;
    for (uint32_t c = 0; c < p->part_cells && steady > 0; c++)
        if (q->use[c].need_epoch == q->epoch && q->use[c].need == q->batch)
            q->use[c].need += steady;
    return (int64_t)steady;
}

/* The feeder goes on at another place, maybe an earlier one. What was asked for beyond it is needed
   no more, and a part that is in a cell, or on its way there, will do for any epoch: it must not
   take a second cell, there may be none. What has failed is tried again. */
static void dlpi_parts_goto(dlp_pipe *p, uint64_t epoch, uint64_t batch) {
    p->pq.epoch = epoch;
    p->pq.batch = batch;
    p->pq.stuck = false;
    for (uint32_t c = 0; c < p->part_cells; c++) {
        dlpi_part_use *u = &p->pq.use[c];
        uint64_t state = DLPI_LOAD_SEQ(&dlpi_pcell_at(p, c)->state); /* Q1 <- Q1 */
        u->needed = false;
        if (u->until != UINT64_MAX || dlpi_gen_low(state) == DLPI_PART_FAILED)
            u->until = 0;
        else
            u->epoch = 0;
    }
}

/* Batches that have left the last stage that may send rows back. */
static void dlpi_parts_leave(dlp_pipe *p) {
    dlpi_parts *q = &p->pq;
    uint64_t base = DLPI_LOAD_SEQ(&p->ctl->base); /* V1 <- V1 */
    if (q->left < base) q->left = base;           /* delivered: their slots may be others' */
    for (; q->left < p->feed.published; q->left++) {
        dlpi_sst *sst = dlpi_sst_at(p, dlpi_slot_of(p, q->left), p->part_end);
        if (!dlpi_ready_past(DLPI_LOAD_ACQ(&sst->ready), q->left)) break; /* Y1 <- Y1 */
    }
}

/* Ask for the parts that come next, as far as there are free cells, and at most to the end of the
   epoch behind the one that is fed. */
static void dlpi_parts_ahead(dlp_pipe *p) {
    dlpi_parts *q = &p->pq;
    uint64_t epoch = p->feed.epoch, batch = p->feed.in_epoch;
    uint64_t cancel = DLPI_LOAD_RLX(&p->ctl->cancel); /* N1: a hint */
    bool left = dlpi_mark_life(cancel) == p->feed.life && epoch < (cancel & DLPI_EPOCH_MASK);
    uint64_t loads = DLPI_LOAD_SEQ(&p->ctl->part_loads); /* Q2 <- Q2, B1 */
    uint32_t fresh = 0;
    if (p->feed.ended) return;
    if (left) epoch = cancel & DLPI_EPOCH_MASK, batch = 0;
    if (q->epoch < epoch || (q->epoch == epoch && q->batch < batch))
        q->epoch = epoch, q->batch = batch;
    dlpi_parts_leave(p);
    if (q->stuck && q->seen_epoch == epoch && q->seen_batch == batch && q->seen_left == q->left &&
        q->seen_loads == loads)
        return;
    q->stuck = false;
    while (!q->stuck && q->epoch <= epoch + 1 && !dlpi_epochs_over(p, q->epoch)) {
        int64_t steady = dlpi_parts_look(p, epoch, batch, &fresh);
        q->stuck = steady < 0;
        if (q->stuck) break;
        q->batch += (uint64_t)steady + 1;
        if (q->batch < p->batches_per_epoch) continue;
        q->batch = 0;
        q->epoch++;
    }
    q->seen_epoch = epoch;
    q->seen_batch = batch;
    q->seen_left = q->left;
    q->seen_loads = loads;
    if (fresh == 0) return;
    if (p->parts->w.num_workers == 0)
        dlpi_ring_caller(p->ctl, UINT64_MAX);
    else
        dlpi_ring(dlpi_parts_bell(p), (uint32_t)p->parts->n_workers, fresh);
}

/* Are all parts there that the present batch needs? If one is missing, and no batch is on its way,
   the trainer will wait for it. */
static bool dlpi_parts_there(dlp_pipe *p, uint64_t rows) {
    const dlpi_feeder *f = &p->feed;
    uint64_t from, at;
    uint32_t count, place = 0;
    bool there = p->pq.epoch > f->epoch || (p->pq.epoch == f->epoch && p->pq.batch > f->in_epoch);
    dlpi_rank_rows(p, rows, &from, &count);
    at = f->position + from;
    for (uint64_t r = 0; there && r < count; place++) {
        dlpi_piece x;
        uint32_t c, low;
        dlpi_parts_piece(p, f->epoch, at + r, count - r, &x);
        c = dlpi_part_find_cell(p, f->epoch, x.part, place);
        low = dlpi_gen_low(DLPI_LOAD_SEQ(&dlpi_pcell_at(p, c)->state)); /* Q1 <- Q1 */
        there = low == DLPI_PART_LOADED || low == DLPI_PART_FAILED;
        r += x.n;
    }
    DLPI_STORE_RLX(&p->ctl->part_missing, /* for the caller's books */
                   !there && f->published == DLPI_LOAD_SEQ(&p->ctl->delivered)); /* V1 <- V1 */
    return there;
}

/* Rows [row, row + n) of a part that can't be loaded: left out, or an error of this batch. */
static void dlpi_part_rows_fail(dlp_pipe *p, uint32_t s, const dlpi_pcell *cell, uint32_t row,
                                uint32_t n) {
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    const dlp_workers_desc *d = &p->parts->w;
    bool raise = cell->error.code != DLP_SKIP &&
                 (d->on_error == DLP_ON_ERROR_RAISE || dlpi_never_skipped(cell->error.code));
    dlp_error e = cell->error;
    if (cell->error.code != DLP_SKIP && !raise &&
        (d->max_skips == DLP_NONE || !dlpi_failures_add(p->ctl, n, d->max_skips))) {
        e.code = DLP_ERR_BUDGET;
        raise = true;
    }
    slot->dirty = 1;
    for (uint32_t r = row; r < row + n; r++) dlpi_slot_rec(p, s)[r] = DLPI_ROW_LEFT;
    if (raise) {
        e.epoch = slot->epoch;
        e.position = slot->position + row;
        if (e.code == DLP_ERR_BUDGET) dlpi_error_first(p->ctl, &e);
        dlpi_slot_fail(slot, DLPI_NOBODY, &e);
        return;
    }
    e.has_item = 1;
    e.epoch = slot->epoch;
    for (uint32_t r = row; r < row + n; r++) {
        e.position = slot->position + r;
        e.index = dlpi_slot_index(p, s)[r];
        dlpi_skip_put(p->ctl, p->parts->id, &e, e.code ? e.code : DLP_SKIP, UINT64_MAX);
    }
    { /* of these words the feeder is the one writer */
        uint64_t *left = &p->workers[p->parts->first_worker].wb->left_out;
        DLPI_STORE_RLX(left, DLPI_LOAD_RLX(left) + n); /* statistics */
    }
}

/* The rows of the batch in slot s: their indices, and the cells that they come from. */
static void dlpi_parts_fill(dlp_pipe *p, uint32_t s) {
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    uint64_t *index = dlpi_slot_index(p, s);
    uint32_t place = 0;
    for (uint32_t r = 0; r < slot->count; place++) {
        dlpi_piece x;
        uint32_t c, n;
        dlpi_pcell *cell;
        dlpi_parts_piece(p, slot->epoch, slot->position + r, slot->count - r, &x);
        c = dlpi_part_find_cell(p, slot->epoch, x.part, place);
        cell = dlpi_pcell_at(p, c);
        n = (uint32_t)x.n;
        dlpi_piece_indices(p, &p->pq.use[c].items, slot->epoch, &x, index + r);
        for (uint32_t i = r; i < r + n; i++) dlpi_slot_pcell(p, s)[i] = c;
        p->pq.use[c].used = slot->sequence + 1;
        DLPI_STORE_RLX(&cell->used, slot->sequence + 1); /* for observers */
        /* Q1 <- Q1 */
        if (dlpi_gen_low(DLPI_LOAD_ACQ(&cell->state)) == DLPI_PART_FAILED)
            dlpi_part_rows_fail(p, s, cell, r, n);
        r += n;
    }
}

/* The caller was let wait by a missing part. */
static inline bool dlpi_parts_missing(const dlp_pipe *p) {
    return p->parts != NULL && DLPI_LOAD_RLX(&p->ctl->part_missing) != 0; /* for the books */
}

/* A row's part, for fetch. */
static inline void dlpi_item_part(dlpi_worker *w, uint32_t s, uint32_t row) {
    const dlp_pipe *p = w->p;
    uint32_t c = dlpi_slot_pcell(p, s)[row];
    const dlpi_pcell *cell = dlpi_pcell_at(p, c);
    w->part.index = cell->part;
    w->part.data = dlpi_part_bytes(p, c);
    w->part.bytes = cell->bytes;
    w->part.items = cell->items;
    w->part.first = cell->first;
    w->part.item = w->item.index - cell->first;
}

/* The k-th item in place of one that failed: of the same part, for no other may be here. */
static uint64_t dlpi_part_replacement(const dlp_pipe *p, uint32_t s, uint32_t row, uint64_t epoch,
                                      uint64_t position, uint32_t k) {
    const dlpi_pcell *cell = dlpi_pcell_at(p, dlpi_slot_pcell(p, s)[row]);
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_REPLACEMENT, p->sampler->sampler.seed, epoch);
    uint64_t random = dlpi_absorb(dlpi_absorb(h, position), k);
    return cell->first + dlpi_below(dlpi_range_of(cell->items), random);
}

/* One more part cell: base: batches below it are delivered. */
static void dlpi_part_count(dlp_stage_stats *out, uint64_t state, uint64_t used, uint64_t base) {
    uint32_t low = dlpi_gen_low(state);
    if (low == DLPI_PART_LOADED) out->loaded++;
    if (low == DLPI_PART_LOADED && used > base) out->in_use++;
    if (low != DLPI_PART_CLOSED && low <= DLPI_PART_OPEN) out->loading++;
}

/* The part cells, counted. Those of an older version do not say for which batch they are. */
static bool dlpi_parts_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const dlpi_record *r = &words->rec[DLPI_REC_PARTS];
    const uint64_t at = offsetof(dlpi_pcell, used);
    dlp_stage_stats *out = &s->figures.stages[stage];
    uint64_t state, used = 0, base = DLPI_LOAD_RLX(&s->ctl->base); /* statistics */
    if (r->type == 0) return true;
    if (r->count > 4096) return false;
    for (uint64_t c = 0; c < r->count; c++) {
        if (!dlpi_word_at(words, DLPI_REC_PARTS, c, offsetof(dlpi_pcell, state), 8, &state) ||
            (r->stride >= at + 8 && !dlpi_word_at(words, DLPI_REC_PARTS, c, at, 8, &used)))
            return false;
        dlpi_part_count(out, state, used, base);
    }
    out->cells = (uint32_t)r->count;
    return true;
}
