/* needs: parts */
#pragma once
/* tests: system/stages/found, system/inputs/inputs_random, system/shm/shm_runs */
#include "api/found.h"
#include "inputs/needs.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-found      INPUTS WHOSE ITEMS NOBODY HAS COUNTED
   The source of batches whose items come in inputs of 0..k items, of which only a load tells how
   many. Each stream takes its inputs in their order, and a batch m = B / C rows of each stream. The
   scheduler takes counts in that order, too, never as they come: so workers, deaths and times
   decide when a row is known, and nothing else. A batch is scheduled once all its rows are known,
   and whether another one follows; from then on it is a batch like any other.

   Of a stream's cells, in the order of its inputs,
     known     come first: their counts are taken, and each has rows that are not given yet
     not known the rest: open, loading, or loaded after one that is not
   An input without items, or whose items are all given, is no longer in the list. Its cell is free
   when all batches that have rows of it have left the last stage that may send rows back.

   Why it can't stand still. Together the streams have `need` cells each, and a free cell goes to
   the stream with the fewest. So a stream takes one beyond its need only while none has fewer; and
   where one has given a cell back, it is the first to get one again. So the cells that are free, or
   come free by themselves, are always as many as the streams lack of their needs. They do come free
   by themselves: a cell off the list waits for batches that are scheduled, and those wait for
   nothing but workers; one that an epoch, or a place, that was left has put off the list is open,
   or loading. Let a batch wait to be scheduled, and s be a stream whose rows are not all known. If
   s has an input that is not known, workers load it. If all are known it has fewer than `need`,
   since so many with rows hold all that is asked for (dlpi_found_check); then it is given another
   one. Empty inputs leave the list and take nothing from this.

   Cheap inputs come in runs: a cell has up to 32 of them, one after the other, as long as they
   take 8 us together. That is no part of the order: counts are taken, rows given and cursors kept
   input by input. The argument above is about cells, and a cell that has rows has an input that
   has. Where an input of a run is left out, the run goes on after it, in the same cell.

   An input that fails, and is not left out, stays the first one that is not known: its stream is
   broken there. No count stands for its rows, so no epoch ends as if the input had been read. A
   batch that lacks a row of a broken stream is due without it, and fails. So this does not stand
   still either: of a broken stream nothing more is waited for, and the argument holds for the
   others. A cell that failed stays in the list until its epoch is left. With steps a stream is
   broken, too, behind so many inputs without an item that none comes (dlpi_found_prove).

   With windows a stream's items are cut every `window`, and each of these stretches is permuted,
   keyed by what went before it. A row of it is known once all its items are, or the stream is out
   or, with steps, has enough for the epoch's rest. A state names the place where the window
   begins, so that it can be made again from there. Why this can't stand still either: of the items
   after the beginning of the present window place <= window - 1 are given, and rows for
   `look` more are wanted. All windows that these lie in end within the next multiple of `window`
   above place + look. So many items, from anywhere in an input on, lie in the `need` inputs that
   the argument above is about (dlpi_found_rows_needed); and a stream of an epoch of one pass that
   holds all its inputs is out, though they be fewer. Nothing waits for a window but its own
   stream's rows, and nothing that a window holds is waited for by another stream.
   A cell leaves its stream with its last row, before its window ends. So fewer are needed where
   look <= window. Let w inputs be as many as `window` items may lie in. A stream lacks a row while
   less than `look` rows of its open window are left, which lie in at most min(look - 1, w) cells.
   It has less than `window` items behind that window. These lie in less than w cells. So a stream
   that has w + min(look - 1, w) cells, all known, lacks nothing (dlpi_found_need). */

/* Fail the pipe with an error of the scheduler: no batch can follow. *e has the code and the words.
   name: of the node that the error names as its stage. An error of too few items names the first
   item that was left out, since that may be its cause. Returns the code. */
DLPI_COLD static int dlpi_found_fails(dlp_pipe *p, const char *name, dlp_error *e) {
    if (e->code == DLP_ERR_CALLBACK) dlpi_error_first(p->ctl, e);
    dlpi_copy_text(e->stage, sizeof e->stage, name);
    e->epoch = p->schedule.epoch;
    dlpi_ctl_fail(p, DLPI_BY_SCHEDULER, e);
    return dlpi_found_of(p)->rc = e->code;
}

/* Fail the pipe with this code and these words, as dlpi_found_fails does. Returns the code. */
DLPI_COLD DLPI_PRINTF(3, 4) static int dlpi_found_fail(dlp_pipe *p, int code, const char *format,
                                                       ...) {
    dlp_error e;
    dlpi_error_set(&e, code, "parts", "%s", "");
    DLPI_PRINT(e.message, sizeof e.message, format);
    return dlpi_found_fails(p, p->source_stage->name, &e);
}

/* Decide if stream i, whose last input had no item, is barren: nothing more of it becomes known.
   Either no input of the epoch has had any item, in so many passes of each stream, or this stream
   had none in very many. If another stream had items, passes of this one prove less: each pass
   deals the inputs again. Inputs of a stream prove it in their order. So neither workers nor their
   times decide whether an epoch fails, nor at which batch. */
static void dlpi_found_prove(dlpi_found *q, uint32_t i) {
    dlpi_found_stream *x = &q->streams[i];
    bool each = !q->any;
    for (uint32_t k = 0; each && k < q->cursors.n; k++)
        each = q->streams[k].empty >= dlpi_found_proof(q, k, q->cursors.n);
    x->barren = each ? 1 : x->empty >= dlpi_found_proof(q, i, 0) ? 2 : 0;
}

/* Add to the statistics `inputs` inputs with `items` items. empty: inputs without an item. */
static void dlpi_found_counted(dlp_pipe *p, uint64_t inputs, uint64_t items, uint64_t empty) {
    dlpi_found_counts *to = dlpi_found_of(p)->counts;
    dlpi_bump(&to->inputs, inputs);
    dlpi_bump(&to->items, items);
    dlpi_bump(&to->empty, empty);
}

/* Take the count of input k of cell c: the next input of stream i whose count was not known. An
   input that was left out has no items. Returns false if the count cannot be right. */
static bool dlpi_found_learn_one(dlp_pipe *p, dlpi_found *q, uint32_t i, uint32_t c, uint32_t k,
                                 bool left_out) {
    dlpi_found_stream *x = &q->streams[i];
    dlpi_found_cell *u = &q->use[c];
    dlpi_input *cell = dlpi_input_at(p, c);
    uint32_t *known = &dlpi_input_counts(p, cell)[k];
    uint64_t items = left_out ? 0 : *known, used = 0;
    dlpi_found_pass_count(q, i, u->ordinal + k, 1, items);
    if (q->pairs && items == 0) {
        u->lost |= UINT32_C(1) << k;
        items = 1;
    }
    if (u->ordinal + k == x->at.ordinal) used = x->at.used;
    if (q->rule && q->rule->taken) used = q->rule->taken(p, c, items, used);
    if (items < used) {
        dlpi_found_fail(p, DLP_ERR_RESUME,
                        "%s %" PRIu64 " has %" PRIu64 " items, and %" PRIu64 " of it were given "
                        "when the state was saved; open the pipe with the same data",
                        p->source->input, dlpi_input_indices(cell)[k], items, used);
        return false;
    }
    *known = (uint32_t)items;
    dlpi_found_counted(p, 1, items, items == 0);
    if (used > 0) u->input = k, u->from = used;
    u->n += items;
    u->taken += used;
    x->empty = items == 0 ? x->empty + 1 : 0;
    q->any |= items > 0;
    if (items == 0 && q->plan.steps != 0) dlpi_found_prove(q, i);
    return true;
}

/* Take the counts of the inputs of cell c, of stream i, up to number `end`, in one step. Nothing is
   done if one of the inputs needs to be looked at alone; then the caller takes them one by one. */
static void dlpi_found_learn_all(dlp_pipe *p, dlpi_found *q, uint32_t i, uint32_t c, uint32_t end) {
    dlpi_found_stream *x = &q->streams[i];
    dlpi_found_cell *u = &q->use[c];
    const uint32_t *known = dlpi_input_counts(p, dlpi_input_at(p, c));
    uint32_t first = u->learned, last = end;
    uint64_t items = 0, none = 0;
    if (q->joins != NULL || q->pairs || (q->rule && q->rule->taken)) return;
    if (x->at.used > 0 && x->at.ordinal >= u->ordinal + first) return;
    if (q->plan.steps != 0 && x->empty + end >= dlpi_found_inputs(&q->plan, q->cursors.first + i))
        return; /* one of them may be the one that proves that no item comes */
    for (uint32_t k = first; k < end; k++) {
        items += known[k];
        none += known[k] == 0;
    }
    while (last > first && known[last - 1] == 0) last--;
    dlpi_found_pass_count(q, i, u->ordinal + first, end - first, items);
    u->n += items;
    u->learned = end;
    x->empty = end - last + (last == first ? x->empty : 0);
    q->any |= items > 0;
    dlpi_found_counted(p, end - first, items, none);
}

/* Go on after the counts of cell c, of stream i, were taken. A failed cell stays first. If a run is
   not complete, load the rest. A cell that has no rows left leaves the stream's list. */
static void dlpi_found_learned(dlp_pipe *p, dlpi_found *q, uint32_t i, uint32_t c) {
    dlpi_found_stream *x = &q->streams[i];
    dlpi_found_cell *u = &q->use[c];
    if (u->failed || (x->barren && u->learned < u->run)) return; /* it stays the first one */
    if (u->learned < u->run) {
        dlpi_found_reopen(p, q, c);
        return;
    }
    if (q->boxes.each > 0) { /* it stays the first one until its items are copied */
        if (u->n == u->taken) dlpi_boxes_done(q, x, true);
        return;
    }
    x->known = u->next;
    if (u->n > u->taken)
        x->last_known = c;
    else
        dlpi_found_shed(q, x, c);
}

/* Take the counts of the first cell of stream i whose counts are not taken. loaded: false if the
   cell has failed. Returns 0 or a DLP_ERR code if the epoch has failed. */
static int dlpi_found_learn_cell(dlp_pipe *p, dlpi_found *q, uint32_t i, bool loaded) {
    dlpi_found_stream *x = &q->streams[i];
    const uint32_t c = x->known;
    dlpi_found_cell *u = &q->use[c];
    const dlpi_input *cell = dlpi_input_at(p, c);
    if (q->arrivals != NULL) { /* the reader tells how many records it put there, and which */
        u->run = cell->run;
        u->ordinal = dlpi_input_indices(dlpi_input_at(p, c))[0];
    }
    if (u->run == 0) return dlpi_arrivals_end(q, x), DLP_OK;
    const uint64_t left = u->n - u->taken, s = q->cursors.first + i;
    const uint32_t made = loaded ? u->run : cell->made;
    if (loaded && cell->error.code != 0 &&
        !dlpi_found_leaves_out(p, q, c, (uint32_t)cell->error.position)) {
        if (q->joins != NULL) q->joins->learned(q, c, false);
        return DLP_OK;
    }
    if (u->learned < made) dlpi_found_learn_all(p, q, i, c, made);
    while (u->learned < made && !x->barren)
        if (!dlpi_found_learn_one(p, q, i, c, u->learned++, false)) return q->all->rc;
    if (!loaded && dlpi_found_leaves_out(p, q, c, 1) &&
        !dlpi_found_learn_one(p, q, i, c, u->learned++, true))
        return q->all->rc;
    if (q->joins != NULL) q->joins->learned(q, c, x->barren != 0);
    dlpi_found_learned(p, q, i, c);
    if (q->boxes.each == 0)
        x->rows += q->rule && u->n > u->taken ? q->rule->learned(p, i, c) : u->n - u->taken - left;
    if (dlpi_found_shuffled(q) && u->n > 0) /* one input */
        dlpi_found_items(&q->plan, &q->items[c], u->epoch, cell->index,
                         u->ordinal / dlpi_found_inputs(&q->plan, s), u->n);
    return DLP_OK;
}

/* True if an input that failed, or so many without an item, end what is known of the stream. With
   boxes all items before have been copied. */
static inline bool dlpi_found_broken(const dlpi_found *q, const dlpi_found_stream *x) {
    if (q->boxes.each > 0 && x->known != DLPI_FOUND_NONE &&
        q->use[x->known].taken < q->use[x->known].n)
        return false;
    return x->barren || (x->known != DLPI_FOUND_NONE && q->use[x->known].failed &&
                         q->use[x->known].epoch == q->epoch);
}

/* True if no input of the epoch is left to load or count. False with steps_per_epoch. */
static inline bool dlpi_found_out(const dlpi_found *q, const dlpi_found_stream *x) {
    return q->plan.steps == 0 && x->epoch > q->epoch &&
           (x->known == DLPI_FOUND_NONE || q->use[x->known].epoch > q->epoch);
}

/* ---- windows ---- */

/* Count a stream's items from its present window's beginning to the last complete one's end. */
static uint64_t dlpi_found_whole(const dlpi_found *q, const dlpi_found_stream *x) {
    uint64_t rest = q->plan.steps * q->each - x->given + x->at.place; /* with steps: of the epoch */
    if (q->plan.steps && x->rows >= rest) return rest;
    return dlpi_found_out(q, x) ? x->rows : x->rows / q->plan.window * q->plan.window;
}

/* Return how many rows of a stream can be given now. */
static inline uint64_t dlpi_found_rows_left(const dlpi_found *q, const dlpi_found_stream *x) {
    uint64_t whole;
    if (q->rule) return x->rows;
    whole = q->plan.window ? dlpi_found_whole(q, x) : x->rows;
    return whole > x->at.place ? whole - x->at.place : 0;
}

/* Count k more items of cell, or box, c as used. Afterwards u->input of a cell is the input of the
   last of them. */
static void dlpi_found_advance(dlp_pipe *p, uint32_t c, uint64_t k) {
    const dlpi_found *q = dlpi_found_of(p);
    dlpi_found_cell *u = &q->box[c];
    const bool all = k > 0 && k == u->n - u->taken; /* that are known: the last of them is near */
    const uint32_t *items;
    uint32_t input = u->input;
    u->taken += k;
    if (q->boxes.each > 0) return;
    items = dlpi_input_counts(p, dlpi_input_at(p, c));
    if (all)
        for (input = u->learned - 1; items[input] == 0;) input--;
    for (k = all ? items[input] : k + u->from; k > items[input]; input++) k -= items[input];
    u->input = input;
    u->from = k;
}

/* Write into row[] where the next n items of cell c lie. Returns h with their inputs absorbed. */
static uint64_t dlpi_found_gather_cell(dlp_pipe *p, uint32_t c, uint64_t n, dlpi_found_row *row,
                                       uint64_t h) {
    const dlpi_found *q = dlpi_found_of(p);
    const dlpi_found_cell *u = &q->use[c];
    const uint32_t *items = dlpi_input_counts(p, dlpi_input_at(p, c));
    const uint64_t most = q->most_items, ordinal = u->ordinal;
    dlpi_found_row *first = row;
    uint64_t from = u->from;
    uint32_t i = u->input;
    if (most == 1) { /* one item or none, and all of the first input's may be used */
        for (i += (uint32_t)from; n > 0; i++) {
            if (items[i] == 0) continue;
            h = dlpi_absorb(dlpi_absorb(h, ordinal + i), 1);
            *row++ = (dlpi_found_row){c, i};
            n--;
        }
        return h;
    }
    for (; n > 0; i++, from = 0) {
        const uint64_t k = items[i] - from < n ? items[i] - from : n;
        if (k == 0) continue;
        h = dlpi_absorb(dlpi_absorb(h, ordinal + i), k);
        n -= k;
        for (const dlpi_found_row *end = row + k; row < end; row++, from++)
            *row = (dlpi_found_row){c, (uint32_t)(i * most + from)};
    }
    if (dlpi_found_shuffled(q)) /* a cell has one input */
        for (; first < row; first++)
            first->number = (uint32_t)dlp_permutation_at(&q->items[c], first->number);
    return h;
}

/* Write into the window's rows where the n items of the window of stream i lie. Returns a hash of
   the inputs of these items. */
static uint64_t dlpi_found_gather(dlp_pipe *p, uint32_t i, uint64_t n) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_row *row = q->window_rows + i * q->plan.window;
    uint64_t h = 0;
    if (q->boxes.each > 0) return dlpi_boxes_gather(q, i, n, row);
    for (uint32_t c = q->streams[i].head; n > 0; c = q->use[c].next) {
        const dlpi_found_cell *u = &q->use[c];
        uint64_t k = u->n - u->taken < n ? u->n - u->taken : n;
        h = dlpi_found_gather_cell(p, c, k, row, h);
        row += k;
        n -= k;
    }
    return h;
}

/* Take the items of the open window of stream i off its cells: the next window begins after them. A
   cell of which only rows of the window are left leaves the stream's list. */
static void dlpi_found_take_window(dlp_pipe *p, uint32_t i) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_stream *x = &q->streams[i];
    for (uint64_t n = x->length; n > 0;) {
        const uint32_t c = x->head;
        dlpi_found_cell *u = &q->box[c];
        const uint64_t k = u->n - u->taken < n ? u->n - u->taken : n;
        dlpi_found_advance(p, c, k);
        u->open += (uint32_t)k;
        n -= k;
        dlpi_found_stands(q, x, c, dlpi_found_place(q, c, q->boxes.each > 0));
        if (dlpi_found_spent(u)) dlpi_found_behead(q, x);
    }
}

/* Put the n gathered rows of the window of stream i into the order of groups. The items are sorted
   by length, and cut into groups. The groups are permuted, and a short one comes last. Returns h
   with the lengths absorbed. */
static uint64_t dlpi_found_group(dlp_pipe *p, uint32_t i, uint64_t n, uint64_t h) {
    dlpi_found *q = dlpi_found_of(p);
    const uint64_t group = q->plan.group, whole = n / group, stride = q->boxes.stride;
    const uint8_t *cells = dlpi_box_bytes(p, q, 0);
    dlpi_found_row *row = q->window_rows + i * q->plan.window;
    dlp_permutation *turn = &q->window_orders[i];
    for (uint64_t k = 0; k < n; k++) {
        const uint8_t *item = dlpi_found_item_at(cells + row[k].cell * stride, row[k].number,
                                                 q->boxes.item, dlpi_found_tight(q));
        const uint64_t length = ((const uint64_t *)(const void *)item)[q->plan.by];
        h = dlpi_absorb(h, length);
        q->keys[k] = length << 32 | k;
    }
    dlpi_keys_sort(&q->keys, &q->spare, (uint32_t)n);
    dlpi_found_window(&q->plan, turn, q->epoch, q->cursors.first + (uint64_t)i, &q->streams[i].at,
                      whole);
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t g = k / group;
        const uint64_t at = g < whole ? dlp_permutation_at(turn, g) * group + k % group : k;
        const dlpi_found_row *of = &row[(uint32_t)q->keys[at]];
        q->spare[k] = (uint64_t)of->cell << 32 | of->number;
    }
    for (uint64_t k = 0; k < n; k++)
        row[k] = (dlpi_found_row){(uint32_t)(q->spare[k] >> 32), (uint32_t)q->spare[k]};
    return h;
}

/* Fail the pipe: a window of stream i is not the one of the state, of which `given` items were
   given. */
DLPI_COLD static void dlpi_found_changed(dlp_pipe *p, uint32_t i, uint64_t given) {
    dlpi_found_fail(p, DLP_ERR_RESUME,
                    "the window of stream %" PRIu64 " has changed since the state was saved "
                    "(%" PRIu64 " of its items given); use the same data",
                    dlpi_found_of(p)->cursors.first + (uint64_t)i, given);
}

/* Open the window of stream i, if none is open and its items are known. After a resume the window
   must have the inputs that the state tells, or the pipe fails. */
static void dlpi_found_open(dlp_pipe *p, uint32_t i) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_stream *x = &q->streams[i];
    uint64_t n, h, s = q->cursors.first + i;
    if (x->length > 0) return;
    n = dlpi_found_whole(q, x);
    if (n == 0 && (x->at.place == 0 || !dlpi_found_out(q, x))) return;
    if (n > q->plan.window) n = q->plan.window;
    h = dlpi_found_gather(p, i, n);
    if (q->plan.group > 0) h = dlpi_found_group(p, i, n, h);
    x->check = h & 0xffff;
    if (x->at.place > 0 && (x->at.place >= n || x->at.check != x->check)) {
        dlpi_found_changed(p, i, x->at.place);
        return;
    }
    x->length = n;
    if (q->plan.group == 0)
        dlpi_found_window(&q->plan, &q->window_orders[i], q->epoch, s, &x->at, n);
    dlpi_found_take_window(p, i);
    for (uint64_t at = 0; at < x->at.place; at++) /* given before the state was saved */
        dlpi_found_window_row(q, x, dlpi_found_window_at(q, i, at)->cell, q->boxes.each > 0);
}

/* Close the window of stream i, whose items are all given, and move the stream behind it. */
static void dlpi_found_leave_window(dlpi_found *q, uint32_t i) {
    dlpi_found_stream *x = &q->streams[i];
    x->rows -= x->length;
    x->length = 0;
    x->at = x->after;
    if (q->joins != NULL) q->joins->moves(q, i);
}

/* True if the counts of the first cell of stream x, which has boxes, are to be taken. Before, count
   the items of its last grant as known. */
static bool dlpi_boxes_uncounted(dlpi_found *q, dlpi_found_stream *x) {
    const dlpi_found_cell *u = &q->use[x->known];
    if (x->grant != DLPI_FOUND_NONE) dlpi_boxes_copied(q, x, x->grant);
    return u->learned < u->run && !u->failed && !x->barren;
}

/* Let the items of cell c of stream i be copied into boxes: as many as there are boxes for. c was
   the stream's first cell. Returns true if it is no longer. */
static bool dlpi_boxes_empty(dlp_pipe *p, dlpi_found *q, uint32_t i, uint32_t c) {
    dlpi_found_stream *x = &q->streams[i];
    const dlpi_found_cell *u = &q->use[c];
    if (x->known != c) return true; /* it had no item */
    if (u->taken < u->n) dlpi_boxes_grant(p, q, i);
    if (x->grant != DLPI_FOUND_NONE || !dlpi_found_spent(u)) return false;
    dlpi_boxes_done(q, x, true);
    return true;
}

/* Take a list's loaded counts, in each stream's order. Returns 0 or the failed epoch's code. */
static int dlpi_found_learn_list(dlp_pipe *p, dlpi_found *q) {
    const int *rc = &q->all->rc;
    for (uint32_t i = 0; i < q->cursors.n && *rc == DLP_OK; i++) {
        dlpi_found_stream *x = &q->streams[i];
        while (x->known != DLPI_FOUND_NONE && q->use[x->known].epoch == q->epoch &&
               !dlpi_found_broken(q, x)) {
            const uint32_t c = x->known, low = dlpi_input_state(p, c);
            const bool boxes = q->boxes.each > 0;
            if (low != DLPI_INPUT_LOADED && low != DLPI_INPUT_FAILED) break;
            if ((!boxes || dlpi_boxes_uncounted(q, x)) &&
                dlpi_found_learn_cell(p, q, i, low == DLPI_INPUT_LOADED) != DLP_OK)
                break;
            if (boxes && !dlpi_boxes_empty(p, q, i, c)) break;
        }
        if (q->joins != NULL) q->joins->out(q, i);
        if (q->plan.window && q->rule == NULL && *rc == DLP_OK) dlpi_found_open(p, i);
        if (q->rule && *rc == DLP_OK) x->rows += q->rule->more(p, i, dlpi_found_out(q, x));
    }
    return *rc;
}

/* Take all loaded counts, those of branches first. Returns 0 or the failed epoch's code. */
static int dlpi_found_learn(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    for (dlpi_found *b = q->next; b != NULL; b = b->next)
        if (dlpi_found_learn_list(p, b) != DLP_OK) return q->rc;
    if (q->joins != NULL) q->joins->known(p, q);
    return dlpi_found_learn_list(p, q);
}

/* ---- what is loaded next ---- */

/* Take a free cell of a list, which is closed. Returns DLPI_FOUND_NONE if there is none. */
static uint32_t dlpi_found_free_cell(dlp_pipe *p, dlpi_found *q) {
    return dlpi_found_pool_take(p, q, &q->pool, false);
}

/* Set the number of inputs that a new cell gets, from what inputs cost lately. */
static void dlpi_found_fit_run(const dlp_pipe *p, dlpi_found *q) {
    const uint64_t cost = dlpi_item_cost(p, p->source_stage, p->source_stage->n_workers);
    const uint64_t most = cost == 0 ? 1 : DLPI_INPUT_RUN_NS / cost;
    q->run = most > q->most_run ? q->most_run : most > 1 ? (uint32_t)most : 1;
    q->run_until = q->all->ahead.tickets + (cost == 0 ? 1 : DLPI_FOUND_RUNS);
    q->run_known = cost > 0;
}

/* Append the free cell c to stream i's list, and have the stream's next inputs, of one pass, loaded
   into it. */
static void dlpi_found_issue(dlp_pipe *p, dlpi_found *q, uint32_t i, uint32_t c) {
    dlpi_found_stream *x = &q->streams[i];
    const dlpi_found_cell *u = &q->use[c];
    dlpi_input *cell = dlpi_input_at(p, c);
    const uint64_t s = q->cursors.first + i, each = dlpi_found_inputs(&q->plan, s);
    const uint64_t left = each - x->next % each;
    const uint32_t run = q->run < left ? q->run : (uint32_t)left;
    dlpi_found_enlist(p, q, x, c, x->epoch, x->next, run);
    x->next += run;
    if (q->plan.steps == 0 && x->next == each) {
        x->epoch++;
        x->next = 0;
    }
    if (q->arrivals != NULL) {
        dlpi_arrivals_want(p, q->arrivals, c, u->ticket);
        return;
    }
    dlpi_found_indices(&q->plan, u->epoch, s, u->ordinal, run, dlpi_input_indices(cell));
    cell->index = dlpi_input_indices(cell)[0];
    cell->first = dlpi_found_key(&q->plan, s, u->ordinal);
    if (DLPI_UNLIKELY(q->boxes.grant_at > 0)) dlpi_grant_of(p, q, c)->n = 0;
    dlpi_input_offer(p, c, u->ticket);
}

/* Return the stream with the fewest cells that has an input to load, or cursors.n for none. */
static uint32_t dlpi_found_poorest(const dlp_pipe *p, const dlpi_found *q) {
    uint32_t best = q->cursors.n;
    for (uint32_t i = 0; i < q->cursors.n; i++)
        if (!dlpi_epochs_over(p, q->streams[i].epoch) && !dlpi_epoch_held(p, q->streams[i].epoch) &&
            (best == q->cursors.n || q->streams[i].cells < q->streams[best].cells))
            best = i;
    return best;
}

/* True if stream i may take one more cell. Before it is known what inputs cost, and so how many go
   into a cell, a stream gets only the cells that it needs. Later the only stream of a source takes
   none while it has rows enough: those that it needs, and 4,096 inputs. So few cells of cheap
   inputs are in use, and their lines stay in a cache. It does not stand still: it lacks a row only
   if less than window + 2 * each rows behind its place are known. Then it may ask, or has asked for
   an input whose count is not taken. It goes on asking after half of the inputs, so that workers
   are seldom woken. */
static bool dlpi_found_may_ask(const dlp_pipe *p, dlpi_found *q, uint32_t i) {
    const dlpi_found_stream *x = &q->streams[i];
    const uint32_t c = x->known; /* asked: cells from c on */
    const uint64_t asked = c == DLPI_FOUND_NONE ? 0 : q->all->ahead.tickets + 1 - q->use[c].ticket;
    if (q->most_run == 1) return true;
    if (q->all->ahead.tickets >= q->run_until) dlpi_found_fit_run(p, q);
    if (!q->run_known) return x->cells < q->need;
    if (q->all != q || q->arrivals != NULL || q->cursors.n > 1) return true;
    return x->rows + asked * q->run * q->most_items <
           x->at.place + q->plan.window + 2 * q->each + (asked > 0 ? 4096 : 2048) * q->most_items;
}

/* Begin the present epoch in all lists, if it has not begun there. */
static void dlpi_found_now(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    if (q->begun && q->epoch == p->schedule.epoch) return;
    for (; q != NULL; q = q->next) dlpi_found_begin(q, p->schedule.epoch);
}

/* Have the next input of a list loaded, if the list has a free cell. Returns 1 if so, else 0. */
static uint32_t dlpi_found_ask(dlp_pipe *p, dlpi_found *q) {
    uint32_t i, c;
    if (q->joins != NULL) return q->joins->ask(p, q);
    if ((i = dlpi_found_poorest(p, q)) == q->cursors.n || !dlpi_found_may_ask(p, q, i)) return 0;
    if ((c = dlpi_found_free_cell(p, q)) == DLPI_FOUND_NONE) return 0;
    dlpi_found_issue(p, q, i, c);
    return 1;
}

/* Have inputs loaded until no cell is free, one of each list in turn, and wake the workers. */
static void dlpi_found_ahead(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    uint32_t fresh = 0, before;
    bool held;
    if (!dlpi_inputs_search(p, &q->ahead, p->schedule.epoch, p->schedule.published)) return;
    dlpi_found_now(p);
    held = dlpi_epoch_held(p, q->epoch); /* read first: set_epoch may return during the search */
    if (dlpi_found_learn(p) != DLP_OK) return; /* which frees the cells of empty inputs */
    do {
        before = fresh;
        for (dlpi_found *b = q; b != NULL; b = b->next) fresh += dlpi_found_ask(p, b);
    } while (fresh > before);
    q->ahead.stuck = !held; /* a search is not told that set_epoch has returned */
    for (dlpi_found *b = q; b != NULL && fresh > 0; b = b->next)
        if (b->arrivals != NULL) dlpi_wake_stage(p, b->arrivals->st, DLPI_ANY, fresh);
    if (fresh > 0 && q->arrivals == NULL) dlpi_found_wake(p, fresh);
}

/* True if no input is being loaded, so that set_epoch may run. Closes cells that were left open. */
DLPI_COLD static bool dlpi_found_quiet(dlp_pipe *p) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_now(p);
    for (; q != NULL; q = q->next)
        for (uint32_t c = q->pool.waits; c != DLPI_FOUND_NONE; c = q->use[c].next)
            dlpi_input_close(p, c, q->use[c].ticket);
    return dlpi_inputs_quiet(p);
}

/* ---- a batch is scheduled ---- */

/* Tell if the epoch ends before a batch that lacks a row of stream i, which fails there. The last
   row of the stream in the batch is the rows-th from here. DLP_LAST_DROP asks for all of them, so a
   branch that has too few items ends the epoch first. Returns 1, 0, or -1 if it is not known. */
static int dlpi_found_ends(const dlp_pipe *p, const dlpi_found *q, uint32_t i, uint64_t rows) {
    if (p->last != DLP_LAST_DROP || q->rule == NULL || q->rule->ends == NULL) return 0;
    return q->rule->ends(q, i, rows);
}

/* Let the epoch end behind the next `before` batches. Return the branch that ends it: the first
   that a stream lacks there. NULL: none is out. *alone: all streams that have too few rows lack
   that branch. Streams that have enough are not asked: times decide how far they have come. */
DLPI_COLD static const dlpi_found *dlpi_over_by(const dlpi_found *q, uint64_t before, bool *alone) {
    const dlpi_found *by = NULL;
    *alone = true;
    for (uint32_t i = 0; i < q->cursors.n; i++) {
        const dlpi_found *b = q->joins != NULL ? q->joins->branch(q, i) : q->rule->lacks(q, i);
        const bool out = dlpi_found_out(b, &b->streams[i]);
        if (dlpi_found_rows_left(q, &q->streams[i]) >= (before + 1) * q->each) continue;
        if (out && by == NULL) by = b;
        *alone &= out && b == by;
    }
    return by;
}

/* True if it is known whether branch b has an item in its epoch: one has come, or an input has
   failed, or all streams are out. It becomes known. As long as no item comes, the cells of the
   branch come free, and so all its inputs are loaded. */
DLPI_COLD static bool dlpi_over_told(const dlpi_found *b) {
    bool told = true;
    for (uint32_t i = 0; i < b->cursors.n; i++) {
        const dlpi_found_stream *x = &b->streams[i];
        if (x->rows > 0 || (x->pass_epoch == b->epoch && x->pass_items > 0)) return true;
        if (dlpi_found_broken(b, x)) return true;
        told &= dlpi_found_out(b, x);
    }
    return told;
}

/* True if the epoch can't end yet behind the next `before` batches. It is not known then if the
   branch that ends it had an item, and dlpi_over_judge has to know. */
DLPI_COLD static bool dlpi_over_waits(const dlpi_found *q, uint64_t before) {
    bool alone;
    const dlpi_found *by = q->whole && !q->judged ? dlpi_over_by(q, before, &alone) : NULL;
    return by != NULL && alone && !dlpi_over_told(by);
}

/* True if the outcome of the batch after the next `before` batches is known: this rank has all its
   rows, or the batch fails, or there is no such batch. Sets *rows in any case.
   *rows: rows of the global batch; 0: there is no such batch. If before > 0, only 0 has a meaning,
   so one known row of the batch is enough. A batch that lacks a row of a broken stream fails, full
   or not. But with DLP_LAST_DROP the epoch ends before this batch if another stream is out. So the
   function waits until all other streams are known: neither workers nor their times decide whether
   an epoch ends or fails. */
static bool dlpi_found_batch(const dlp_pipe *p, uint64_t before, uint64_t *rows) {
    const dlpi_found *q = dlpi_found_of(p);
    uint64_t most = 0;
    bool known = true, fails = false, over = false;
    int ends;
    *rows = p->global_batch;
    for (uint32_t i = 0; i < q->cursors.n; i++) {
        const dlpi_found *b = dlpi_found_lacks(q, i);
        uint64_t gone = before * q->each, n = dlpi_found_rows_left(q, &q->streams[i]);
        n = n > gone ? n - gone : 0;
        if (n >= q->each) n = q->each;
        if (n < q->each && dlpi_found_broken(b, &b->streams[i])) {
            ends = dlpi_found_ends(p, q, i, gone + q->each);
            over |= ends > 0;
            fails |= ends == 0;
            known &= ends >= 0;
        } else if (n < q->each && !dlpi_found_out(b, &b->streams[i]))
            known = false;
        else if (n < q->each && p->last == DLP_LAST_DROP)
            over = true; /* whatever the others have */
        if (n > most) most = n;
    }
    if (over && (q->next == NULL || q->arrives)) return *rows = 0, true;
    if (over && known) return dlpi_over_waits(q, before) ? false : (*rows = 0, true);
    if (!known) return before > 0 && (most > 0 || fails) && p->last != DLP_LAST_DROP;
    if (fails) return true;
    if (most == 0 && !q->all_items) *rows = 0;
    if (q->plan.streams == 1 && p->world == 1 && p->last == DLP_LAST_PARTIAL) *rows = most;
    return true;
}

/* True if all rows of the present batch are known, and also whether another batch follows. */
static bool dlpi_found_ready(dlp_pipe *p, uint64_t rows) {
    const dlpi_found *q = dlpi_found_of(p);
    uint64_t n;
    bool there = dlpi_found_batch(p, 0, &n) && n == rows;
    if (there && q->plan.steps == 0 && !q->arrives) there = dlpi_found_batch(p, 1, &n);
    return dlpi_inputs_there(p, there);
}

/* Note that the batch in slot s has rows of cell c, which is kept until the batch has left. boxes:
   it is a box; a constant. */
static inline void dlpi_found_use(dlp_pipe *p, uint32_t s, uint32_t c, bool boxes) {
    const dlpi_found *q = dlpi_found_of(p);
    dlpi_found_cell *u = &q->box[c];
    const uint64_t used = dlpi_slot_at(p, s)->sequence + 1;
    if (u->used == used) return;
    u->used = boxes ? used : dlpi_input_use(p, c, s);
}

/* Write into *e the error of a batch that lacks a row of the barren stream i. The error names the
   first item that was left out, since that may be the cause. */
DLPI_COLD static void dlpi_found_barren(dlp_pipe *p, const dlpi_found *q, uint32_t i,
                                        dlp_error *e) {
    const bool rank = q->streams[i].barren == 1;
    char branch[64] = "";
    uint64_t inputs = 0;
    for (uint32_t k = rank ? 0 : i; k < (rank ? q->cursors.n : i + 1); k++)
        inputs += q->streams[k].empty;
    if (q->name != NULL) snprintf(branch, sizeof branch, "branch \"%s\" on ", q->name);
    dlpi_error_set(e, DLP_ERR_CALLBACK, "parts",
                   "steps_per_epoch: the last %" PRIu64 " inputs of %s%s%" PRIu64 " gave no item; "
                   "let load, expand or filter keep some",
                   inputs, branch, rank ? "rank " : "stream ",
                   rank ? (uint64_t)p->rank : q->cursors.first + i);
    dlpi_error_first(p->ctl, e);
    dlpi_copy_text(e->stage, sizeof e->stage, q->name != NULL ? q->name : p->source_stage->name);
    e->epoch = q->epoch;
}

/* Fail the batch in slot s, which lacks row r, and maybe more rows, of the broken stream i of list
   q. The row may be another rank's. So ranks that share a stream fail at the same batch. */
DLPI_COLD static void dlpi_found_fail_batch(dlp_pipe *p, const dlpi_found *q, uint32_t i,
                                            uint32_t s, uint32_t r) {
    dlpi_bslot *slot = dlpi_slot_at(p, s);
    dlp_error e;
    if (q->streams[i].barren)
        dlpi_found_barren(p, q, i, &e);
    else
        e = dlpi_input_at(p, q->streams[i].known)->error;
    e.position = slot->position + r;
    dlpi_slot_fail(slot, DLPI_NOBODY, &e);
}

/* Give at most n rows of the first box of stream x to slot s, from row r on. Returns how many. */
DLPI_NOINLINE static uint32_t dlpi_boxes_give(dlp_pipe *p, dlpi_found *q, dlpi_found_stream *x,
                                              uint32_t s, uint32_t r, uint32_t n) {
    const uint32_t c = x->head;
    dlpi_found_cell *u = &q->box[c];
    const dlpi_note *note = &q->boxes.notes[(uint64_t)c * q->boxes.items + u->taken];
    dlpi_found_row *row = dlpi_found_rows_of(p, s) + q->column + r;
    uint64_t *index = dlpi_slot_index(p, s) + r;
    if (n > u->n - u->taken) n = (uint32_t)(u->n - u->taken);
    for (uint32_t k = 0; k < n; k++) {
        row[k] = (dlpi_found_row){c, (uint32_t)u->taken + k};
        index[k] = dlpi_note_index(&note[k]);
    }
    dlpi_found_use(p, s, c, true);
    u->taken += n;
    x->rows -= n;
    dlpi_found_gone(q, x, true);
    return n;
}

/* Give at most n rows of the first cell of stream x to slot s, from row r on. Returns how many. */
static uint32_t dlpi_found_give(dlp_pipe *p, dlpi_found *q, dlpi_found_stream *x, uint32_t s,
                                uint32_t r, uint32_t n) {
    const uint32_t c = x->head;
    dlpi_found_cell *u = &q->use[c];
    const uint64_t *of = dlpi_input_indices(dlpi_input_at(p, c));
    const uint32_t *items = dlpi_input_counts(p, dlpi_input_at(p, c));
    dlpi_found_row *row = dlpi_found_rows_of(p, s) + q->column;
    uint64_t *index = dlpi_slot_index(p, s), from = u->from;
    const uint64_t most = q->most_items;
    const bool shuffled = dlpi_found_shuffled(q);
    uint32_t input = u->input;
    if (q->boxes.each > 0) return dlpi_boxes_give(p, q, x, s, r, n);
    if (n > u->n - u->taken) n = (uint32_t)(u->n - u->taken);
    if (shuffled) dlp_permutation_block(&q->items[c], u->taken, n, index + r);
    if (most == 1) { /* one item or none: no branch depends on which */
        const uint32_t end = r + n;
        for (input += (uint32_t)from; r < end; r += items[input++]) {
            row[r] = (dlpi_found_row){c, input};
            index[r] = of[input];
        }
        input--;
        from = 1;
    }
    for (uint32_t end = most == 1 ? r : r + n; r < end;) {
        for (; from == items[input]; from = 0) input++;
        const uint64_t left = items[input] - from, first = input * most, of_all = of[input];
        const uint32_t stop = left < end - r ? r + (uint32_t)left : end;
        uint32_t number = (uint32_t)(first + from);
        from += stop - r;
        for (; shuffled && r < stop; r++) {
            row[r] = (dlpi_found_row){c, (uint32_t)(first + index[r])};
            index[r] = of_all;
        }
        for (; r < stop; r++) {
            row[r] = (dlpi_found_row){c, number++};
            index[r] = of_all;
        }
    }
    u->input = input;
    u->from = from;
    dlpi_found_use(p, s, c, false);
    u->taken += n;
    x->rows -= n;
    dlpi_found_gone(q, x, false);
    return n;
}

/* Give the next row of stream x to slot s, as row r. Fast variant of dlpi_found_give, for inputs of
   one item at most that do not go into boxes. */
static inline void dlpi_found_give_one(dlp_pipe *p, dlpi_found *q, dlpi_found_stream *x, uint32_t s,
                                       uint32_t r) {
    const uint32_t c = x->head;
    dlpi_found_cell *u = &q->use[c];
    dlpi_input *cell = dlpi_input_at(p, c);
    const uint32_t *items = dlpi_input_counts(p, cell);
    uint32_t input = u->input + (uint32_t)u->from;
    while (items[input] == 0) input++;
    dlpi_found_rows_of(p, s)[q->column + r] = (dlpi_found_row){c, input};
    dlpi_slot_index(p, s)[r] = dlpi_input_indices(cell)[input];
    u->input = input;
    u->from = 1;
    dlpi_found_use(p, s, c, false);
    u->taken++;
    x->rows--;
    dlpi_found_gone(q, x, false);
}

/* Count n more rows of the window of stream i as given. The window is closed after its last row. */
static void dlpi_found_mixed_gone(dlpi_found *q, uint32_t i, uint64_t n) {
    dlpi_found_stream *x = &q->streams[i];
    x->at.place += n;
    x->at.check = x->check;
    x->given += n;
    if (x->at.place == x->length) dlpi_found_leave_window(q, i);
}

/* Give at most n rows out of the window of stream i to slot s, from row r on, in the window's
   order. boxes: the source has boxes; a constant. Returns how many rows were given. */
DLPI_INLINE uint32_t dlpi_found_give_window(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r,
                                            uint32_t n, bool boxes) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_stream *x = &q->streams[i];
    const dlpi_found_row *rows = q->window_rows + i * q->plan.window;
    const uint32_t most = (uint32_t)q->most_items;
    const uint64_t used = dlpi_slot_at(p, s)->sequence + 1;
    const dlpi_note *notes = q->boxes.notes;
    dlpi_found_row *to = dlpi_found_rows_of(p, s);
    uint64_t *index = dlpi_slot_index(p, s);
    dlpi_found_open(p, i); /* at its first row: nothing can be wrong with it */
    if (n > x->length - x->at.place) n = (uint32_t)(x->length - x->at.place);
    if (q->plan.group == 0)
        dlp_permutation_block(&q->window_orders[i], x->at.place, n, index + r);
    else
        for (uint32_t k = 0; k < n; k++) index[r + k] = x->at.place + k;
    for (uint32_t k = r; k < r + n; k++) {
        const dlpi_found_row row = to[k] = rows[index[k]];
        const dlpi_found_cell *u = &q->box[row.cell]; /* without a division where it can be */
        const uint32_t of = most == 1 ? row.number : u->run > 1 ? row.number / most : 0;
        if (boxes)
            index[k] = dlpi_note_index(&notes[(uint64_t)row.cell * q->boxes.items + row.number]);
        else
            index[k] = dlpi_input_indices(dlpi_input_at(p, row.cell))[of];
        if (u->used != used) dlpi_found_use(p, s, row.cell, boxes);
        dlpi_found_window_row(q, x, row.cell, boxes);
    }
    dlpi_found_mixed_gone(q, i, n);
    return n;
}

/* Do what dlpi_found_give_window does, in a loop for boxes and one for cells. */
static uint32_t dlpi_found_give_mixed(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r, uint32_t n) {
    return dlpi_found_of(p)->boxes.each > 0 ? dlpi_found_give_window(p, i, s, r, n, true)
                                            : dlpi_found_give_window(p, i, s, r, n, false);
}

/* Skip the next item of stream x: no row of this rank has it. */
static void dlpi_found_pass_item(dlp_pipe *p, dlpi_found *q, dlpi_found_stream *x) {
    dlpi_found_advance(p, x->head, 1);
    x->rows--;
    dlpi_found_gone(q, x, q->boxes.each > 0);
}

/* Skip the next row of stream i, which belongs to another rank that reads the stream, too. */
static void dlpi_found_pass_row(dlp_pipe *p, uint32_t i) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_stream *x = &q->streams[i];
    if (q->rule) {
        q->rule->pass(p, i);
        x->rows--;
    } else if (q->plan.window) {
        dlpi_found_open(p, i);
        dlpi_found_window_row(q, x, dlpi_found_window_at(q, i, x->at.place)->cell,
                              q->boxes.each > 0);
        dlpi_found_mixed_gone(q, i, 1);
    } else {
        dlpi_found_pass_item(p, q, x);
    }
}
