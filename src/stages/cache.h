/* needs: cache */
#pragma once
/* tests: system/stages/cache, system/shm/shm_cache, system/stages/stacks */
#include "api/cache.h"
#include "cells/marks.h"
#include "inputs/check.h"
#include "slot/claim.h"
#include "inputs/table.h"
#include "observe/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-cache      ITEMS KEPT FROM ONE EPOCH TO THE NEXT
   A cell has a word, the bytes of one item's fields, and the lengths of the ragged fields. The word
   is one of these:
     0                            the cell is empty
     (index + 1) << 15 | w + 1    worker w (among all) writes it: nobody else touches the bytes
     (index + 1) << 15            full, for ever: its bytes are only read from then on
   A worker claims an empty cell by a swap of the word from 0 (Z1). The store of the full word
   releases the bytes to each worker that loads the word. The number of the cell stands in the
   worker's own block (Z2) from before the claim until after that store. So the recovery of a dead
   worker knows the one cell that the worker may have left half written, and empties the cell if its
   word names the dead worker. One number is enough for a worker with many items in flight, too:
   items that come back are kept one by one, by the worker itself or under its lock.
   If stages of rows stand between fetch and the cache, the cache keeps the item as the last of
   these stages left it. Fetch writes a kept item into the row, and these stages skip the row. Each
   row has a word that tells them. The worker that has the row in fetch writes the word before the
   row is done there, b being the number of the batch:
     generation b | 0       fetched
     generation b | 1       found in the cache
     generation b | 2       fetched, and the result does not depend on the index alone: not kept
   A row that goes back to fetch gets its word again.
   Behind makers the cache keeps all items of an input. The workers that make items ask the cache
   for the input first. A cell then has a word with the number of the input, and a dlpi_cache_input.
   Behind a zip or mix the cache keeps inputs of the branches: a joined row has no number, since its
   items meet others in each epoch. Each branch has a part of the cells, of its own size. */

#define DLPI_CACHE_WRITER 15
_Static_assert(DLP_MAX_STAGES *DLP_MAX_WORKERS < 1 << DLPI_CACHE_WRITER, "word of a cache cell");

typedef struct dlpi_cache_cell {
    uint64_t word;    /* Z1: empty, being written or full, as told above */
    uint8_t bytes[8]; /* begin of the item's fields, or a dlpi_cache_input */
} dlpi_cache_cell;

/* Numbers of the stage's areas in the region. */
enum { DLPI_CACHE_ALL = 1, DLPI_CACHE_CELLS, DLPI_CACHE_MARKS = DLPI_OWN_HIDDEN };

#define DLPI_CACHE_LISTS 16u /* lists whose inputs a cache keeps, at most */
_Static_assert(DLPI_CACHE_LISTS == DLPI_BRANCHES, "lists of a cache"); /* needs: parts */

typedef struct dlpi_cache_list { /* cells for the items, or inputs, of one list */
    /* an item's cell is its index modulo n_cells; cell_bytes: of a cell, with its word */
    uint64_t n_cells, cell_bytes;
    uint64_t first, at; /* number of its first cell among all; bytes from the first of all to it */
} dlpi_cache_list;

typedef struct dlpi_cache { /* the stage's own record */
    uint64_t bytes;         /* bytes that all cells may have together, by the desc */
    uint64_t n_cells;       /* of all lists */
    uint64_t all_bytes;     /* bytes of the cells that all items need */
    dlpi_cache_list each[DLPI_CACHE_LISTS];
} dlpi_cache;

typedef struct dlpi_cache_input { /* all items of one input, in a cell behind its word */
    uint64_t items, bytes;        /* how many items, and their bytes together */
    uint8_t at[8];                /* begin of the items' bytes */
} dlpi_cache_input;

/* The low part of a row's word, as told above. */
enum { DLPI_CACHE_FETCHED = 0, DLPI_CACHE_FOUND, DLPI_CACHE_RANDOM };

static inline const dlpi_cache *dlpi_cache_of(const dlp_pipe *p) { return p->keeper_stage->self; }

/* Return n rounded up to a multiple of 8. Each field of a kept row begins at such an offset. */
static inline uint64_t dlpi_round8(uint64_t n) { return (n + 7) & ~UINT64_C(7); } /* of a row */

/* Return the bytes of a cell for an item, or input, of a list, and in *n how many there are. */
static uint64_t dlpi_cache_cell_bytes(const dlp_pipe *p, uint32_t list, uint64_t *n) {
    uint64_t bytes = offsetof(dlpi_cache_cell, bytes);
    if (p->source->keeps != NULL)
        return dlpi_sum(bytes + offsetof(dlpi_cache_input, at),
                        dlpi_round8(p->source->keeps(p, list, n)));
    *n = list == 0 ? p->fetch->dataset->n_items : 0;
    for (uint32_t f = 0; f < p->keeper_stage->scope.n_fields; f++) {
        bytes = dlpi_sum(bytes, dlpi_round8(p->items.at[f].row_bytes));
        if (p->items.at[f].f.ragged) bytes = dlpi_sum(bytes, 8);
    }
    return bytes;
}

/* Return the number of the cell of an item, or input, of a list. The list must have a cell. */
static inline uint64_t dlpi_cache_at(const dlp_pipe *p, uint32_t list, uint64_t index) {
    const dlpi_cache_list *k = &dlpi_cache_of(p)->each[list];
    return k->first + (index < k->n_cells ? index : index % k->n_cells);
}

/* Return a cell. If it is below the first of a list, the unsigned difference is large. */
static inline dlpi_cache_cell *dlpi_cache_cell_at(const dlp_pipe *p, uint64_t cell) {
    const dlpi_cache_list *k = dlpi_cache_of(p)->each;
    uint8_t *cells = dlpi_area_at(p, DLPI_OWN(p->keeper_stage->id, DLPI_CACHE_CELLS), 0);
    while (cell - k->first >= k->n_cells) k++;
    return (dlpi_cache_cell *)(void *)(cells + k->at + (cell - k->first) * k->cell_bytes);
}

static inline uint64_t dlpi_cache_full(uint64_t index) { return (index + 1) << DLPI_CACHE_WRITER; }

/* Return the word of a row. The words exist only if stages lie between fetch and the cache. */
static inline uint64_t *dlpi_cache_word(const dlp_pipe *p, uint32_t s, uint32_t row) {
    return dlpi_area_at(p, DLPI_OWN(p->keeper_stage->id, DLPI_CACHE_MARKS),
                        (uint64_t)s * p->batch_rows + row);
}
static void dlpi_cache_mark(const dlp_pipe *p, uint32_t s, uint32_t row, uint32_t what) {
    if (p->kept_by == 0) return;
    *dlpi_cache_word(p, s, row) = dlpi_gen_word(dlpi_slot_at(p, s)->sequence, what);
}
static bool dlpi_cache_marked(const dlp_pipe *p, uint32_t s, uint32_t row, uint32_t what) {
    return p->kept_by != 0 &&
           *dlpi_cache_word(p, s, row) == dlpi_gen_word(dlpi_slot_at(p, s)->sequence, what);
}

/* Prefetch the cells of a unit's items into the CPU's cache, so that their misses overlap. */
static void dlpi_cache_ahead(const dlp_pipe *p, const dlpi_unit *t) {
    const uint64_t *index = dlpi_slot_index(p, t->slot);
    for (uint32_t r = t->row; r < t->end; r++)
        DLPI_PREFETCH(dlpi_cache_cell_at(p, dlpi_cache_at(p, 0, index[r])));
}

/* Write the row of the worker's present item from the cache. Returns false if the cache does not
   have the item. In later stages nothing is written: true if the row was found. */
static bool dlpi_cache_get(dlpi_worker *w, const dlpi_unit *t, uint32_t row) {
    const dlp_pipe *p = w->p;
    const dlpi_cache_cell *cell = dlpi_cache_cell_at(p, dlpi_cache_at(p, 0, w->item.index));
    const uint8_t *from = cell->bytes;
    if (!dlpi_writes_first(w)) return dlpi_cache_marked(p, t->slot, row, DLPI_CACHE_FOUND);
    if (row == t->row && row + 1 < t->end) dlpi_cache_ahead(p, t);
    dlpi_cache_mark(p, t->slot, row, DLPI_CACHE_FETCHED);
    if (dlpi_claim_look(&cell->word) != dlpi_cache_full(w->item.index)) return false; /* Z1 <- Z1 */
    for (uint32_t f = 0; f < p->keeper_stage->scope.n_fields; f++) {
        const dlpi_field *d = &p->items.at[f];
        const uint8_t *bytes = from;
        uint64_t rows;
        from += dlpi_round8(d->row_bytes);
        if (!d->f.ragged) {
            memcpy(w->data[f], bytes, d->row_bytes);
            continue;
        }
        memcpy(&rows, from, 8);
        from += 8;
        dlpi_mark_copy(dlpi_mark(p, t->slot, f, row), w->data[f], bytes, rows * dlpi_row_bytes(d),
                       d->row_bytes);
        dlpi_slot_lengths(p, t->slot, f, 1)[row] = rows;
    }
    dlpi_cache_mark(p, t->slot, row, DLPI_CACHE_FOUND);
    dlpi_bump(&w->block->kept_hits, 1);
    return true;
}

/* Claim the cell of item or input `number` of a list, to write it. Returns NULL if it is not empty.
   The list must have a cell. */
static dlpi_cache_cell *dlpi_cache_take(dlpi_worker *w, uint32_t list, uint64_t number) {
    const uint64_t at = dlpi_cache_at(w->p, list, number);
    const uint64_t writes = dlpi_cache_full(number) | ((uint64_t)w->global + 1);
    dlpi_cache_cell *cell = dlpi_cache_cell_at(w->p, at);
    if (DLPI_LOAD_RLX(&cell->word) != 0) return NULL; /* Z1: what is read is not used */
    DLPI_STORE_RLX(&w->block->kept_cell, at + 1);     /* Z2 to recovery; the swap keeps it before */
    if (dlpi_claim_take(&cell->word, 0, writes)) return cell; /* Z1 -> Z1 */
    DLPI_STORE_RLX(&w->block->kept_cell, UINT64_C(0));        /* Z2: the cell is not ours */
    return NULL;
}

/* Mark a claimed cell of a list as full, after item or input `number` was written into it. */
static void dlpi_cache_done(dlpi_worker *w, dlpi_cache_cell *cell, uint32_t list, uint64_t number) {
    DLPI_STORE_REL(&cell->word, dlpi_cache_full(number)); /* Z1 -> Z1 */
    dlpi_bump(&w->block->kept_bytes, dlpi_cache_of(w->p)->each[list].cell_bytes);
    DLPI_STORE_REL(&w->block->kept_cell, UINT64_C(0)); /* Z2: after the full word */
}

/* Keep the row that the last stage before the cache has just left, if its cell is empty.
   used_random: a callback drew random numbers for the row, so the row is not kept. */
static void dlpi_cache_put(dlpi_worker *w, uint32_t s, uint32_t row, bool used_random) {
    const dlp_pipe *p = w->p;
    dlpi_cache_cell *cell;
    uint8_t *to;
    if (used_random) dlpi_cache_mark(p, s, row, DLPI_CACHE_RANDOM);
    if (used_random || w->st->work < p->kept_by || dlpi_cache_marked(p, s, row, DLPI_CACHE_RANDOM))
        return;
    if ((cell = dlpi_cache_take(w, 0, w->item.index)) == NULL) return;
    to = cell->bytes;
    for (uint32_t f = 0; f < p->keeper_stage->scope.n_fields; f++) {
        const dlpi_field *d = &p->items.at[f];
        memcpy(to, w->data[f],
               d->f.ragged ? (size_t)(w->length[f] * dlpi_row_bytes(d)) : (size_t)d->row_bytes);
        to += dlpi_round8(d->row_bytes);
        if (!d->f.ragged) continue;
        memcpy(to, &w->length[f], 8);
        to += 8;
    }
    dlpi_cache_done(w, cell, 0, w->item.index);
}

/* Copy the items of an input of a list from the cache to `to`, and their count to *items. Returns
   false if the cache does not have the input. If `to` is NULL nothing is copied or counted. */
static bool dlpi_cache_find(dlpi_worker *w, uint32_t list, uint64_t input, uint8_t *to,
                            uint64_t *items) {
    const dlpi_cache_cell *cell = NULL;
    const dlpi_cache_input *kept = NULL;
    bool there = false;
    if (dlpi_cache_of(w->p)->each[list].n_cells > 0) {
        cell = dlpi_cache_cell_at(w->p, dlpi_cache_at(w->p, list, input));
        kept = (const dlpi_cache_input *)(const void *)cell->bytes;
        there = dlpi_claim_look(&cell->word) == dlpi_cache_full(input); /* Z1 <- Z1 */
    }
    if (to == NULL) return there;
    dlpi_bump(there ? &w->block->kept_hits : &w->block->kept_misses, 1);
    if (!there) return false;
    memcpy(to, kept->at, (size_t)kept->bytes);
    *items = kept->items;
    return true;
}

/* Keep the items of an input of a list, `bytes` bytes at `from`, if its cell is empty. */
static void dlpi_cache_keep(dlpi_worker *w, uint32_t list, uint64_t input, const uint8_t *from,
                            uint64_t items, uint64_t bytes) {
    dlpi_cache_cell *cell;
    dlpi_cache_input *to;
    if (dlpi_cache_of(w->p)->each[list].n_cells == 0) return;
    if ((cell = dlpi_cache_take(w, list, input)) == NULL) return;
    to = (dlpi_cache_input *)(void *)cell->bytes;
    to->items = items;
    to->bytes = bytes;
    memcpy(to->at, from, (size_t)bytes);
    dlpi_cache_done(w, cell, list, input);
}

/* Empty the cell that the dead worker w may have been writing, if it was. */
DLPI_COLD static void dlpi_cache_recover(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    uint64_t at = DLPI_LOAD_SEQ(&w->block->kept_cell); /* Z2 of a dead worker */
    uint64_t *word, seen;
    if (at == 0 || at > dlpi_cache_of(p)->n_cells) return;
    word = &dlpi_cache_cell_at(p, at - 1)->word;
    seen = dlpi_claim_owner(word); /* Z1 <- Z1 */
    if ((seen & ((1u << DLPI_CACHE_WRITER) - 1)) == (uint64_t)w->global + 1)
        dlpi_claim_free(word, 0);                      /* Z1 -> Z1 */
    DLPI_STORE_SEQ(&w->block->kept_cell, UINT64_C(0)); /* Z2 */
}

static int dlpi_cache_desc(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_cache *c = st->self;
    return dlpi_within(p, st->name, "cache.bytes", (int64_t)c->bytes, 1, DLPI_CELL_MAX, "1..2^46");
}

/* Compute the bytes of the cells of each list, and of all cells that items need. Returns the bytes
   of the largest cell. */
DLPI_COLD static uint64_t dlpi_cache_sizes(const dlp_pipe *p, dlpi_cache *c) {
    uint64_t most = 0, n;
    c->all_bytes = 0;
    for (uint32_t l = 0; l < DLPI_CACHE_LISTS; l++) {
        dlpi_cache_list *k = &c->each[l];
        k->cell_bytes = dlpi_cache_cell_bytes(p, l, &n);
        k->n_cells = n;
        c->all_bytes = dlpi_sum(c->all_bytes, dlpi_times(n, k->cell_bytes));
        if (n > 0 && k->cell_bytes > most) most = k->cell_bytes;
    }
    return most;
}

/* Check the cache's bytes: it must have room for an item, and the pipe has one cache. Note which
   stage of rows is the last before it. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_cache_check(dlp_pipe *p, dlpi_stage *st) {
    char words[64];
    const uint64_t least = dlpi_cache_sizes(p, st->self);
    const dlpi_stage *before = st;
    if (p->keeper_stage != st)
        return dlpi_bad_graph(p, st->name, "the pipe has two caches; leave one out");
    if (p->source->keeps == NULL) {
        while (before->work < 0) before--;
        p->kept_by = before->work;
        p->work[p->kept_by]->lets_pass = 0; /* all that passes is kept there */
    }
    snprintf(words, sizeof words, "%" PRIu64 " (one %s) to 2^46", least,
             p->source->keeps != NULL ? p->source->input : "item");
    return dlpi_within(p, st->name, "cache.bytes", (int64_t)dlpi_cache_of(p)->bytes, (int64_t)least,
                       DLPI_CELL_MAX, words);
}

/* Add the areas of the region for the cache: cells for all items, or as many as its bytes hold.
   Lists share the bytes as they need them, so each keeps an equal share of its items. */
DLPI_COLD static void dlpi_cache_layout(dlp_pipe *p, dlpi_stage *st) {
    dlpi_cache *c = st->self;
    const uint64_t most = dlpi_cache_sizes(p, c);
    uint64_t left = c->bytes, need = c->all_bytes, at = 0;
    c->n_cells = 0;
    for (dlpi_cache_list *k = c->each; k < c->each + DLPI_CACHE_LISTS; k++) {
        const uint64_t own = dlpi_times(k->n_cells, k->cell_bytes);
        const double share = (double)left * ((double)own / (double)need);
        uint64_t fit = k->n_cells;
        if (own > 0 && need > left) fit = (own == need ? left : (uint64_t)share) / k->cell_bytes;
        if (fit < k->n_cells) k->n_cells = fit;
        k->first = c->n_cells;
        k->at = at;
        c->n_cells += k->n_cells;
        at += k->n_cells * k->cell_bytes;
        left = c->bytes - at;
        need -= own;
    }
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_CACHE_ALL), sizeof(uint64_t), 1, 8);
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_CACHE_MARKS), 8,
                  p->kept_by > 0 ? dlpi_times(p->n_slots, p->batch_rows) : 0, DLPI_LINE);
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_CACHE_CELLS), DLPI_PLAN_ITEMS, "cache cells", most,
                   at / most + (at % most != 0), 4096);
}

DLPI_COLD static void dlpi_cache_live(dlp_pipe *p, dlpi_stage *st) {
    *(uint64_t *)dlpi_area_at(p, DLPI_OWN(st->id, DLPI_CACHE_ALL), 0) =
        ((const dlpi_cache *)st->self)->all_bytes;
}

/* Observer: read the cache's use and hits. Returns false if the region is not whole. */
DLPI_COLD static bool dlpi_cache_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const dlpi_area *cells = &words->areas[DLPI_OWN(stage, DLPI_CACHE_CELLS)];
    dlp_stats *out = &s->figures;
    if (!dlpi_word_at(words, DLPI_OWN(stage, DLPI_CACHE_ALL), 0, 0, 8, &out->cache_all_bytes))
        return false;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const dlpi_worker_block *block = dlpi_seen_block(s, i);
        out->cache_hits += DLPI_LOAD_RLX(&block->kept_hits); /* statistics, here and below */
        out->cache_misses += DLPI_LOAD_RLX(&block->kept_misses);
        out->cache_bytes += DLPI_LOAD_RLX(&block->kept_bytes);
    }
    out->cache_capacity = dlpi_times(cells->count, cells->stride);
    return true;
}

static const dlpi_keeper_ops dlpi_cache_keeper = {
    .get = dlpi_cache_get,
    .put = dlpi_cache_put,
    .find = dlpi_cache_find,
    .keep = dlpi_cache_keep,
};

static const dlpi_stage_ops dlpi_cache_ops = {
    .kind = DLP_STAGE_CACHE,
    .rank = 6,
    .many = 1,
    .self_bytes = sizeof(dlpi_cache),
    .check = dlpi_cache_check,
    .layout = dlpi_cache_layout,
    .live = dlpi_cache_live,
    .lost = dlpi_cache_recover,
    .seen = dlpi_cache_seen,
    .keeper = &dlpi_cache_keeper,
};

/* ---- a cache is added, by a row ---- */

/* Add the cache of a table's row. Behind makers, or a zip or mix, it keeps what makers make of an
   input, in the order in which they make it. Returns a stage number or a DLP_ERR code. */
static int dlpi_node_cache_add(dlpi_table *t, const dlp_node *node) {
    const int32_t before = node[-1].verb;
    const char *late = NULL;
    dlpi_stage *st;
    DLPI_UNUSED(before); /* without these */
    if (before == DLP_WINDOW) late = "stands behind a window; write it before";
    if (before == DLP_PACK) late = "stands behind a pack; write it above";
    if (late != NULL) return dlpi_node_bad(t, node, late);
    for (const dlp_node *row = t->nodes; row < node && (t->makes > 0 || t->joins); row++) {
        if (row->verb == DLP_LOAD && row->load.shuffle_items != 0)
            return dlpi_bad(t->p, row->name, "load.shuffle_items",
                            "0 before a cache: a window node behind it shuffles", 1);
        if (row->verb == DLP_PUSH && t->joins != NULL)
            return dlpi_node_bad(t, node,
                                 "keeps items from epoch to epoch, and pushed records come once; "
                                 "leave it out");
    }
    if ((st = dlpi_add(t->p, &dlpi_cache_ops, "cache", NULL)) == NULL) return t->p->err.code;
    ((dlpi_cache *)st->self)->bytes = node->cache.bytes;
    return dlpi_added(t->p, st, dlpi_cache_desc(t->p, st));
}
