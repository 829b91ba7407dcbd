/* needs: parts */
#pragma once
/* tests: system/stages/boxes, model/model_parts */
#include "inputs/lists.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-boxes      BOXES: ITEMS THAT LEAVE THEIR CELL
   A cell has room for all items that an input may have, and there may be far fewer. A box has room
   for up to 32 items. Where that takes less memory, the items of a stream are copied into its
   boxes, once, in their order, and rows are copied out of boxes. Then a stream needs one cell, and
   boxes for the items that must be known. Order and states are the same.

   A cell is claimed twice: to be made, and to be emptied. When a cell is LOADED, the scheduler
   takes its counts, as ever. It then grants places in boxes to the next items, writes the grant
   behind the items of the cell, and makes the cell OPEN again. The worker that claims it sees that
   all is made, and copies. It calls no callback, so a death while it copies blames no input: the
   cell is OPEN again, and the next worker copies the same items to the same places. When the cell
   is LOADED, the items are known. A long input has several grants, as boxes come free. If the
   items of an input have at most 4,096 bytes, the scheduler copies them, and the cell is not
   opened.

   Only the first cell of a stream has a grant, so a box waits for one cell at most. A box is free
   when all of its items are given, the batches with rows of it have left, and no worker may have a
   grant in it. A window begins a new box. So a window of N items has ceil(N / K) boxes of K items.

   Why this can't stand still. R rows of a stream must be known. Without windows they lie in
   1 + ceil((R - 1) / K) boxes at most. The first of these boxes may have one item left, and the
   others but the last are full. With windows the rows lie in the rest of a window, and in the
   windows behind it (dlpi_boxes_least). Let a stream lack a row, and look at its first cell. If
   the cell is open, or a worker has it, the stream waits for a worker only. If the cell is loaded
   and has items that are not copied, a box with room is there or comes free. For full boxes with
   items left are fewer than the stream has, and the others wait only for scheduled batches, which
   wait for workers. Then a grant follows. If all items are copied, the cell is free, and is given
   the next input. */

#define DLPI_BOX_ITEMS 32u
#define DLPI_BOX_BYTES 0x10000u
#ifndef DLPI_BOX_COPIES /* a checker may define it before inclusion: items go to `to` */
#define DLPI_BOX_COPIES(to, bytes) ((void)0)
#endif
#define DLPI_BOX_SELF 4096u /* bytes of an input's items that the scheduler copies, at most */

/* Places that the items of a cell are copied to. The scheduler writes it while the cell is LOADED.
   A worker reads it after its claim. */
typedef struct dlpi_grant {
    uint64_t n, from, pass; /* n items of the cell, from item `from` on, in the order of this pass;
                               n 0: the cell is to be made */
    uint64_t left;          /* items up to the end of the window; with those that are not granted */
    uint32_t place;         /* of the first item in the first box */
    uint32_t box[];         /* the boxes */
} dlpi_grant;

/* Return the least number of boxes of a stream that is enough if `rows` rows must be known. items:
   of a box. window: items of a window; 0: there are no windows. */
static uint64_t dlpi_boxes_least(uint64_t items, uint64_t window, uint64_t rows) {
    const uint64_t w = window > 0 ? (window + items - 1) / items : 0;
    const uint64_t rest = window > 0 ? (rows - 1) % window : 0;
    if (window == 0) return 1 + (rows - 1 + items - 1) / items;
    return dlpi_sum(dlpi_times(w, 1 + (rows - 1) / window), rest < w ? rest : w);
}

/* Reserve room at the end of a cell for its grant, if the source has boxes and workers copy. one:
   bytes of the items of an input. */
static void dlpi_boxes_place(dlpi_found *q, uint64_t one) {
    q->boxes.grant_at = 0;
    if (q->boxes.each == 0 || one <= DLPI_BOX_SELF) return;
    q->boxes.grant_at = dlpi_round_up(q->d.max_part_bytes, 64);
    q->d.max_part_bytes = dlpi_sum(dlpi_sum(q->boxes.grant_at, sizeof(dlpi_grant)),
                                   dlpi_times(q->boxes.each, sizeof(uint32_t)));
}

static inline uint8_t *dlpi_box_bytes(const dlp_pipe *p, const dlpi_found *q, uint32_t c) {
    return dlpi_input_bytes(p, 0) + q->boxes.at + c * q->boxes.stride;
}

/* Return the bytes of a cell whose items go into boxes. */
static inline uint8_t *dlpi_boxes_cell(const dlp_pipe *p, const dlpi_found *q, uint32_t c) {
    return dlpi_input_bytes(p, 0) + c * q->boxes.cells;
}

/* Return the grant of a cell, or NULL if the scheduler copies the cell's items. */
static inline dlpi_grant *dlpi_grant_of(const dlp_pipe *p, const dlpi_found *q, uint32_t c) {
    if (q->boxes.grant_at == 0) return NULL;
    return (dlpi_grant *)(void *)(dlpi_boxes_cell(p, q, c) + q->boxes.grant_at);
}

/* ---- items are copied ---- */

/* Copy n items of a cell's input, from item `from` of the order on, to `to`. items: the first item
   of the input; order: that of its items, or NULL. */
static void dlpi_box_copy(const dlpi_found *q, uint8_t *to, const uint8_t *items, uint64_t from,
                          uint64_t n, const dlp_permutation *order) {
    const uint64_t item = q->boxes.item;
    const bool tight = q->max_bytes > 0;
    DLPI_BOX_COPIES(to, n * item);
    if (order == NULL && !tight) {
        q->boxes.move(q, to, items + from * item, n);
        return;
    }
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t number = order != NULL ? dlp_permutation_at(order, from + k) : from + k;
        q->boxes.move(q, to + k * item, dlpi_found_item_at(items, number, item, tight), 1);
    }
}

/* Copy the items of cell c, which this worker has claimed, to the places of its grant. Returns
   false if it has no grant. */
static bool dlpi_boxes_fill(const dlpi_worker *w, const dlpi_found *q, uint32_t c) {
    const dlpi_grant *g = dlpi_grant_of(w->p, q, c);
    const dlpi_input *of = dlpi_input_at(w->p, c);
    const uint8_t *cell = dlpi_boxes_cell(w->p, q, c);
    dlp_permutation order;
    uint64_t left, place, k;
    if (g == NULL || g->n == 0) return false;
    if (dlpi_found_shuffled(q))
        dlpi_found_items(&q->plan, &order, of->epoch, of->index, g->pass, of->items);
    left = g->left;
    place = g->place;
    for (uint64_t i = 0, n = 0; n < g->n; i++, n += k, place = 0) {
        uint8_t *to = dlpi_box_bytes(w->p, q, g->box[i]) + place * q->boxes.item;
        k = q->boxes.items - place;
        if (k > left) k = left;
        if (k > g->n - n) k = g->n - n;
        dlpi_box_copy(q, to, cell, g->from + n, k, dlpi_found_shuffled(q) ? &order : NULL);
        left = left > k ? left - k : q->plan.window;
    }
    return true;
}

/* ---- by the scheduler: boxes of a stream ---- */

/* True if the cell of a grant in this box, which left its stream before the grant was seen to be
   copied, may still be a worker's. */
static bool dlpi_box_moves(dlp_pipe *p, const dlpi_found *q, const dlpi_found_cell *box) {
    return box->failed && q->use[box->input].ticket == box->ticket &&
           !dlpi_input_close(p, box->input, box->ticket);
}

/* Take a free cell of a pool, or box, which is closed: the one that came free last, whose lines are
   in a cache. Returns DLPI_FOUND_NONE if there is none. The waiting ones stand about in the order
   of the batches that have rows of them. If a worker may have one, it is passed over. */
DLPI_INLINE uint32_t dlpi_found_pool_take(dlp_pipe *p, dlpi_found *q, dlpi_found_pool *pool,
                                          bool boxes) {
    dlpi_found_cell *all = boxes ? q->box : q->use;
    uint32_t before = DLPI_FOUND_NONE, c = pool->waits, next;
    for (; c != DLPI_FOUND_NONE && all[c].used <= q->all->ahead.left; c = next) {
        next = all[c].next;
        if (boxes ? !dlpi_box_moves(p, q, &all[c]) : dlpi_input_close(p, c, all[c].ticket)) {
            *(before == DLPI_FOUND_NONE ? &pool->waits : &all[before].next) = next;
            if (pool->waits_last == c) pool->waits_last = before;
            dlpi_found_free(all, pool, c);
        } else
            before = c;
    }
    if ((c = pool->free) != DLPI_FOUND_NONE) pool->free = all[c].next;
    return c;
}

/* Return the items up to the end of the present window of a stream's boxes. */
static inline uint64_t dlpi_boxes_left(const dlpi_found *q, const dlpi_found_stream *x) {
    return q->plan.window > 0 ? q->plan.window - x->boxed % q->plan.window : UINT64_MAX;
}

/* Return the box of stream x that the next item goes to, or DLPI_FOUND_NONE if none is free. */
static uint32_t dlpi_boxes_open(dlp_pipe *p, dlpi_found *q, dlpi_found_stream *x) {
    uint32_t c = x->head == DLPI_FOUND_NONE ? DLPI_FOUND_NONE : x->tail;
    if (c != DLPI_FOUND_NONE && q->box[c].granted < q->boxes.items &&
        (q->plan.window == 0 || x->boxed % q->plan.window != 0))
        return c;
    c = dlpi_found_pool_take(p, q, &x->boxes, true);
    if (c == DLPI_FOUND_NONE) return c;
    q->box[c] = (dlpi_found_cell){.run = q->boxes.items, .next = DLPI_FOUND_NONE, .listed = true};
    dlpi_found_append(q->box, &x->head, &x->tail, c);
    return c;
}

/* Items of the boxes of stream x from box c on are copied: count them as known. */
static void dlpi_boxes_copied(dlpi_found *q, dlpi_found_stream *x, uint32_t c) {
    for (; c != DLPI_FOUND_NONE; c = q->box[c].next) {
        dlpi_found_cell *u = &q->box[c];
        x->rows += u->granted - u->n;
        u->n = u->granted;
        if (u->n == q->boxes.items || u->next != DLPI_FOUND_NONE ||
            (q->plan.window > 0 && x->boxed % q->plan.window == 0))
            u->learned = u->run; /* no item follows in it */
    }
    x->grant = DLPI_FOUND_NONE;
}

/* Write the notes of k items of one input, which go to box u from its place `granted` on. ordinal,
   index: of the input. used: items of it that are used before these. */
static void dlpi_box_note(const dlpi_found *q, uint32_t c, uint64_t ordinal, uint64_t index,
                          uint64_t used, uint64_t k) {
    dlpi_found_cell *u = &q->box[c];
    dlpi_note *note = &q->boxes.notes[(uint64_t)c * q->boxes.items + u->granted];
    if (u->granted == 0) u->ordinal = ordinal;
    ordinal -= u->ordinal;
    for (uint64_t j = 0; j < k; j++)
        note[j] = (dlpi_note){index << 16 | (ordinal >> 32 & 0xffff), (uint32_t)ordinal,
                              (uint32_t)(used + j + 1)};
    u->granted += (uint32_t)k;
}

/* Grant places in boxes to the next items of the first cell of stream i, as far as there are
   boxes. The items are copied here, or the cell is opened, and a worker copies them. */
static void dlpi_boxes_grant(dlp_pipe *p, dlpi_found *q, uint32_t i) {
    dlpi_found_stream *x = &q->streams[i];
    const uint32_t c = x->known, *counts = dlpi_input_counts(p, dlpi_input_at(p, c));
    const uint64_t *index = dlpi_input_indices(dlpi_input_at(p, c));
    const uint8_t *cell = dlpi_boxes_cell(p, q, c);
    const dlp_permutation *order = dlpi_found_shuffled(q) ? &q->items[c] : NULL;
    dlpi_found_cell *u = &q->use[c];
    dlpi_grant *g = dlpi_grant_of(p, q, c);
    uint32_t boxes = 0, first = DLPI_FOUND_NONE, b;
    if (g != NULL) {
        g->n = 0;
        g->pass = u->ordinal / dlpi_found_inputs(&q->plan, q->cursors.first + i);
        g->left = dlpi_boxes_left(q, x);
    }
    while (u->taken < u->n && (b = dlpi_boxes_open(p, q, x)) != DLPI_FOUND_NONE) {
        dlpi_found_cell *box = &q->box[b];
        const uint32_t place = box->granted;
        uint64_t k = dlpi_boxes_left(q, x);
        while (u->from == counts[u->input]) u->input++, u->from = 0;
        if (k > q->boxes.items - place) k = q->boxes.items - place;
        if (k > counts[u->input] - u->from) k = counts[u->input] - u->from;
        dlpi_box_note(q, b, u->ordinal + u->input, index[u->input], u->from, k);
        if (g == NULL) {
            dlpi_box_copy(q, dlpi_box_bytes(p, q, b) + place * q->boxes.item,
                          cell + u->input * q->most_items * q->boxes.item, u->from, k, order);
        } else {
            if (boxes == 0) g->from = u->from, g->place = place;
            g->box[boxes++] = b;
            g->n += k;
        }
        if (first == DLPI_FOUND_NONE) first = b;
        u->from += k;
        u->taken += k;
        x->boxed += k;
    }
    if (first == DLPI_FOUND_NONE) return;
    if (g == NULL) {
        dlpi_boxes_copied(q, x, first);
        return;
    }
    x->grant = first;
    dlpi_input_offer(p, c, u->ticket);
    dlpi_found_wake(p, 1);
}

/* ---- by the scheduler: items leave boxes ---- */

/* Write into row[] where the n items of the window of stream i lie in boxes. Returns a hash of the
   inputs of these items, as dlpi_found_gather does. */
static uint64_t dlpi_boxes_gather(const dlpi_found *q, uint32_t i, uint64_t n,
                                  dlpi_found_row *row) {
    uint64_t h = 0, ordinal = 0, k = 0;
    for (uint32_t c = q->streams[i].head; n > 0; c = q->box[c].next) {
        const dlpi_found_cell *u = &q->box[c];
        const dlpi_note *note = &q->boxes.notes[(uint64_t)c * q->boxes.items];
        for (uint64_t at = u->taken; at < u->n && n > 0; at++, n--) {
            const uint64_t of = u->ordinal + dlpi_note_ordinal(&note[at]);
            if (of != ordinal && k > 0) {
                h = dlpi_absorb(dlpi_absorb(h, ordinal), k);
                k = 0;
            }
            ordinal = of;
            k++;
            *row++ = (dlpi_found_row){c, (uint32_t)at};
        }
    }
    return k > 0 ? dlpi_absorb(dlpi_absorb(h, ordinal), k) : h;
}
