/* needs: scratch */
#pragma once
/* tests: system/stages/scratch, system/stages/scratch_join, model/model_scratch */
#include "api/scratch.h"
#include "inputs/add.h"
#include "inputs/dataset.h"
#include "slot/open_end.h"
#include "work/recover.h"
#include "observe/seen.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-scratch    FIELDS THAT END BEFORE THE BATCH
   Fields that end before the batch lie in scratch cells, not in the batch. A cell has the lengths
   of the fields, if one is ragged, and then the fields of one row. Cells come in groups of a power
   of two. A run of rows has one group: the row whose last bits are i has the i-th cell of its run's
   group. No run has more rows than a group has cells (p->run_shift_most). A word of each group
   tells who owns the group:
     0                                  nobody: the group is free
     DLPI_REDO | w + 1, generation 0    worker w (among all) holds it, for a run that the worker is
                                        about to claim, or has just claimed
     unit + 1, generation b             run `unit` of batch b
   Each run of a slot has a number: 1 + the group that the run was given last. The number is written
   before the word says that the group is the run's. It counts only if the word says so.

   When the chain of stages is known, each stage of rows is told what it does with cells
   (dlpi_stage.held). The stages that fetch, directly before the scratch stage, write cells: one
   fetch, or all fetches of a mix, each for the rows that are its items. The first of these stages
   takes groups. If its worker finds a run to claim, the worker first takes a free group (unless the
   run has one, see below), then claims the run, then gives the group to the run, or frees it if the
   claim failed. No run passes this stage without a claim: it is the fetch, or a zip. The next map
   reads the cells. Zips between them do nothing with cells. A guard between them reads cells, too.
   It needs no rule of its own: the map cannot be done with a run that the guard has not done, so
   the run still has its group. Without a map the last guard counts as the map. Just before the last
   row of the run is done in the map, the map's worker frees the group. Only the owner of a run sets
   its bits in that stage, so the owner knows when it sets the last one.

   Why nothing stands still with one group. A run with a group waits for no other run and no other
   group. Each row of it is in a callback, or waits for its time, or waits for a worker of a stage
   up to the map, which needs no group for the row. A row that is left out or cancelled goes through
   these stages, too. A row that goes back to fetch goes through the stages before the one that
   takes, which need no group, and finds its own group there. So each group comes free. Then a
   worker that lacked a group looks again, and takes the oldest run that it finds, as always. The
   number of batches is limited, so the runs of the oldest batch are not passed by for ever. Runs
   without a group hold nothing that others need. So there is always a step that can be done.

   Deaths. If the worker dies in the stage that takes: a group that it holds is freed. A run that
   has a group keeps it, and the next worker that claims the run finds the group
   (dlpi_holder_ops.take). In the other stages that fetch, up to the map: the run has its group, and
   its rows are fetched once more there. In the map: rows of the run that are not done are done once
   more, there or from fetch on, and have their cells. But the dead worker may have freed the group
   just before the last row was to be done. Then an idempotent map has nothing to read: such rows go
   back to fetch (has), and the run takes another group on its way. Rows that a later stage sends
   back, of a run that has passed the map, take another group, too: the other rows of the run stay
   done in the map, and the map frees the group with the last row that comes once more. If the run
   has not passed the map, rows that go back find their own cells again. A run is never done while
   it has a group, so no group is lost with its batch.

   Sleep. A worker that lacks a group sets its bit in `lacking`, and then looks once more. A worker
   that frees a group looks at these bits after that, and wakes a worker that is asleep.

   The words are a claim link (>>impl-claims): O1; the bits are as those of sleepers: B1. */

#define DLPI_SCRATCH_WORDS (DLP_MAX_WORKERS / 32)
/* Without n_cells in the desc, and if runs do not need more: bytes of all cells, and cells for each
   row under way (several, because a run may be shorter than its group), at most. */
#define DLPI_SCRATCH_BYTES (UINT64_C(256) << 10)
#define DLPI_SCRATCH_SHORTER 4u

typedef struct dlpi_scratch_head { /* in the region */
    uint64_t n_groups;
    uint64_t each; /* cells of a group */
    uint8_t pad[DLPI_LINE - 16];
    dlpi_group lacking[DLPI_SCRATCH_WORDS]; /* a bit for each worker that lacks a group */
    dlpi_claim_word words[1]; /* [n_groups] owners of groups; behind them the numbers of runs */
} dlpi_scratch_head;

typedef struct dlpi_scratch_hand { /* private to a worker of the stage that takes groups */
    uint32_t group;                /* 1 + the group that the worker holds; 0: it holds none */
    bool none;                     /* in this search for a run no group was free */
    bool lacks;                    /* the worker's bit in `lacking` is set */
    bool passed; /* in this search a run that had gone back was passed by for lack of a group */
} dlpi_scratch_hand;

/* Numbers of the stage's areas in the region. */
enum { DLPI_SCRATCH_HEAD = 1, DLPI_SCRATCH_CELLS = DLPI_OWN_HIDDEN };

typedef struct dlpi_scratch { /* the stage's own record */
    uint32_t n, n_groups;     /* number of fields; of groups of cells */
    uint32_t shift;           /* a group has 1 << shift cells */
    uint32_t asked;           /* cells that a row asks for; 0: the library chooses */
    bool ragged;              /* at least one of the fields is ragged */
    uint64_t cell_bytes;
    dlpi_field f[DLP_MAX_FIELDS];
    const dlpi_stage *takes, *reads;     /* the stage that takes groups; the one that frees them */
    dlpi_scratch_hand *hands;            /* [workers of the stage that takes] */
    dlpi_field (*steps)[DLP_MAX_FIELDS]; /* [stages of rows] scope.cells of stages that see cells */
} dlpi_scratch;

/* ---- addresses: cells, bits of lacking workers, words of groups, numbers of runs ---- */

static inline const dlpi_scratch *dlpi_scratch_of(const dlp_pipe *p) {
    return p->holder_stage->self;
}

static inline dlpi_scratch_head *dlpi_scratch_head_of(const dlp_pipe *p) {
    return dlpi_area_at(p, DLPI_OWN(p->holder_stage->id, DLPI_SCRATCH_HEAD), 0);
}
static inline dlpi_sleepers *dlpi_scratch_lacking(const dlp_pipe *p, uint32_t group) {
    return &dlpi_scratch_head_of(p)->lacking[group].at;
}
static inline dlpi_claim_word *dlpi_scratch_words(const dlp_pipe *p) {
    return dlpi_scratch_head_of(p)->words;
}
static inline uint64_t *dlpi_scratch_number(const dlp_pipe *p, uint32_t s, uint32_t unit) {
    return dlpi_scratch_words(p) + dlpi_scratch_of(p)->n_groups + (uint64_t)s * p->batch_rows +
           unit;
}
static inline uint64_t dlpi_scratch_hand_word(const dlpi_worker *w) {
    return dlpi_gen_word(0, DLPI_REDO | ((uint32_t)w->global + 1u));
}
static inline uint64_t dlpi_scratch_run_word(uint64_t b, uint32_t unit) {
    return dlpi_gen_word(b, (uint64_t)unit + 1u);
}

/* Return 1 + the group of a run (unit `unit` of batch b in slot s); 0: the run has no group. */
static uint32_t dlpi_scratch_group(const dlp_pipe *p, uint64_t b, uint32_t s, uint32_t unit) {
    uint64_t g = DLPI_LOAD_RLX(dlpi_scratch_number(p, s, unit)); /* believed by the word alone */
    if (g == 0 || g > dlpi_scratch_of(p)->n_groups) return 0;
    if (dlpi_claim_owner(&dlpi_scratch_words(p)[g - 1]) != dlpi_scratch_run_word(b, unit))
        return 0; /* O1 <- O1 */
    return (uint32_t)g;
}

static bool dlpi_scratch_has(const dlp_pipe *p, const dlpi_unit *t) {
    return dlpi_scratch_group(p, t->b, t->slot, t->unit) != 0;
}

/* Return the number of the first scratch field among the fields of the worker's item: they follow
   those that its stage works on. A dataset joined later has a field with the same number; no stage
   that sees scratch fields sees that one. */
static inline uint32_t dlpi_scratch_first(const dlpi_worker *w) {
    return w->st->scope.field + w->st->scope.n_fields;
}

/* Return the order in which the map sees its fields, if the cells are to be in this order, so that
   its callback is called directly; else NULL. A map's record begins with the order. */
static const dlpi_seeing *dlpi_scratch_order(const dlpi_stage *st) {
    const dlpi_seeing *order = st->self;
    const bool direct = !DLPI_DEBUG && st->held == DLPI_HELD_READS && st->ops->held == st->held;
    return direct && order->n > 0 ? order : NULL;
}

/* Find the cells of the run that row `row` of slot s belongs to, before the row is run. Sets
   w->held, to NULL if the run has no group. If `at` is not called, sets w->cell as if row 0 had a
   cell of that group. */
static void dlpi_scratch_cells(dlpi_worker *w, uint32_t s, uint32_t row) {
    const dlp_pipe *p = w->p;
    const dlpi_scratch *k = dlpi_scratch_of(p);
    const dlpi_bslot *slot = dlpi_slot_at(p, s);
    const dlpi_seeing *order = dlpi_scratch_order(w->st);
    uint8_t *were[DLP_MAX_FIELDS];
    uint32_t unit = row >> dlpi_header_shift(DLPI_LOAD_RLX(&slot->header)); /* claimed */
    uint32_t group = dlpi_scratch_group(p, slot->sequence, s, unit);
    w->held = group == 0
                  ? NULL
                  : dlpi_area_at(p, DLPI_OWN(p->holder_stage->id, DLPI_SCRATCH_CELLS), group - 1);
    if ((w->st->held & DLPI_HELD_LENGTHS) != 0) return;
    row -= row & ((1u << k->shift) - 1);
    for (uint32_t f = 0; group != 0 && f < k->n; f++)
        w->cell[dlpi_scratch_first(w) + f] = w->held + k->f[f].offset - row * k->cell_bytes;
    if (order != NULL) memcpy(were, w->cell, sizeof were);
    for (uint32_t f = 0; order != NULL && f < order->n; f++) w->cell[f] = were[order->at[f]];
}

static inline uint8_t *dlpi_scratch_cell(const dlpi_worker *w, uint32_t row) {
    const dlpi_scratch *k = dlpi_scratch_of(w->p);
    return w->held + (row & ((1u << k->shift) - 1)) * k->cell_bytes;
}

/* ---- groups are taken, given to runs, and freed ---- */

/* Wake a worker that lacks a group, if there is one, after a group became nobody's. */
static void dlpi_scratch_wake(dlp_pipe *p) {
    const dlpi_stage *takes = dlpi_scratch_of(p)->takes;
    for (uint32_t g = 0; g * 32u < (uint32_t)takes->n_workers; g++) {
        uint64_t bits = dlpi_sleepers_mask(dlpi_scratch_lacking(p, g)); /* B1 */
        if (bits != 0) dlpi_wake_stage(p, takes, DLPI_ANY, 0); /* the consumer, if it is inline */
        for (; bits != 0; bits &= bits - 1)
            if (dlpi_wake_worker(&p->waiters[takes->work], g * 32u + DLPI_CTZ(bits))) return;
    }
}

static void dlpi_scratch_free(dlp_pipe *p, uint32_t group) {
    dlpi_claim_free(&dlpi_scratch_words(p)[group - 1], 0); /* O1 -> O1 */
    dlpi_scratch_wake(p);
}

static dlpi_scratch_hand *dlpi_scratch_hand_of(const dlpi_worker *w) {
    return &dlpi_scratch_of(w->p)->hands[w->id];
}

/* Return the group to look at first for a run. Rows under way together have different such groups,
   so the run that had the group before is usually through. */
static uint32_t dlpi_scratch_home(const dlp_pipe *p, const dlpi_unit *t) {
    const uint64_t under_way = (uint64_t)p->prefetch * p->batch_rows;
    const uint64_t row = (t->b * p->batch_rows + t->row) % under_way;
    return (uint32_t)(row * dlpi_scratch_of(p)->n_groups / under_way);
}

/* Take a group that is nobody's into the worker's hand, for run t. Returns 1 + the group, or 0. */
static uint32_t dlpi_scratch_grab(const dlpi_worker *w, const dlpi_unit *t) {
    const dlp_pipe *p = w->p;
    uint32_t n = dlpi_scratch_of(p)->n_groups, g = dlpi_scratch_home(p, t);
    for (uint32_t i = 0; i < n; i++) {
        dlpi_claim_word *word = &dlpi_scratch_words(p)[g];
        g = g + 1 == n ? 0 : g + 1;
        if (dlpi_claim_owner(word) == 0 && /* O1 <- O1: it may be the last look before a sleep */
            dlpi_claim_take(word, 0, dlpi_scratch_hand_word(w))) /* O1 */
            return g == 0 ? n : g;
    }
    return 0;
}

/* Set or clear the worker's bit that says that it lacks a group. */
static void dlpi_scratch_lacks(dlpi_worker *w, bool lacks) {
    dlpi_sleepers *group = dlpi_scratch_lacking(w->p, (uint32_t)w->id / 32);
    if (lacks)
        dlpi_sleepers_enter(group, dlpi_worker_bit(w)); /* B1 */
    else
        dlpi_sleepers_leave(group, dlpi_worker_bit(w)); /* B1 */
    dlpi_scratch_hand_of(w)->lacks = lacks;
}

/* Before a claim: make sure that run t has a group, or that the worker has one in hand. Returns
   false if no group is free; the run is then passed by. */
static bool dlpi_scratch_take(dlpi_worker *w, const dlpi_unit *t) {
    dlpi_scratch_hand *k = dlpi_scratch_hand_of(w);
    if (!t->untouched && dlpi_scratch_has(w->p, t)) return true;
    if (k->none) k->passed |= dlpi_freed(w->p, w->st, t);
    if (k->group != 0 || k->none) return k->group != 0;
    k->group = dlpi_scratch_grab(w, t);
    if (k->group == 0 && !k->lacks) {
        dlpi_scratch_lacks(w, true);
        k->group = dlpi_scratch_grab(w, t);
    }
    k->none = k->group == 0;
    k->passed |= k->none && dlpi_freed(w->p, w->st, t);
    return k->group != 0;
}

/* After a claim: give the group in the worker's hand to the claimed run t, if the run needs it, or
   put it back. t is NULL if nothing was claimed. */
static void dlpi_scratch_claimed(dlpi_worker *w, const dlpi_unit *t) {
    dlp_pipe *p = w->p;
    dlpi_scratch_hand *k = dlpi_scratch_hand_of(w);
    if (k->group != 0 && t != NULL && (t->untouched || !dlpi_scratch_has(p, t))) {
        DLPI_STORE_RLX(dlpi_scratch_number(p, t->slot, t->unit), k->group); /* before the word */
        dlpi_claim_done(&dlpi_scratch_words(p)[k->group - 1],
                        dlpi_scratch_run_word(t->b, t->unit)); /* O1 -> O1 */
    } else if (k->group != 0) {
        dlpi_scratch_free(p, k->group);
    }
    if (k->lacks && !(k->none && t == NULL)) dlpi_scratch_lacks(w, false);
    if (t == NULL && k->passed) w->rescan_seen--; /* look without hints: they pass it by, too */
    k->group = 0;
    k->none = k->passed = false;
}

/* Free the group of run t if all its rows are done in this stage once `rows` (bits) are. */
static void dlpi_scratch_leave(dlpi_worker *w, const dlpi_unit *t, uint32_t rows) {
    dlp_pipe *p = w->p;
    uint64_t header = DLPI_LOAD_RLX(&dlpi_slot_at(p, t->slot)->header); /* claimed */
    const uint64_t *done = dlpi_done(dlpi_stage_words_at(p, t->slot, w->st));
    dlpi_unit run = *t;
    uint32_t mask, group;
    dlpi_unit_rows(p, w->st, dlpi_header_count(header), dlpi_header_shift(header), &run);
    mask = dlpi_unit_mask(run.row, run.end);
    rows |= dlpi_gather_bits(done, run.row / DLPI_WORD_ROWS, t->b);
    if ((rows & mask) != mask) return;
    group = dlpi_scratch_group(p, t->b, t->slot, t->unit);
    if (group != 0) dlpi_scratch_free(p, group);
}

/* Free what the dead worker w had in hand: a group, and its bit of lacking one. This comes before
   its runs are given up. Another worker takes another group for them. */
DLPI_COLD static void dlpi_scratch_recover(dlpi_worker *w) {
    dlp_pipe *p = w->p;
    if ((w->st->held & DLPI_HELD_TAKES) == 0) return;
    for (uint32_t g = 0; g < dlpi_scratch_of(p)->n_groups; g++)
        if (dlpi_claim_owner(&dlpi_scratch_words(p)[g]) == dlpi_scratch_hand_word(w)) /* O1 */
            dlpi_scratch_free(p, g + 1);
    dlpi_sleepers_leave(dlpi_scratch_lacking(p, (uint32_t)w->id / 32), dlpi_worker_bit(w)); /* B1 */
}

/* ---- a row ---- */

/* Point the scratch fields of the worker's item at the cell of row `row`. */
static void dlpi_scratch_at(dlpi_worker *w, uint32_t row) {
    const dlpi_scratch *k = dlpi_scratch_of(w->p);
    const uint32_t first = dlpi_scratch_first(w);
    uint8_t *at = dlpi_scratch_cell(w, row);
    const bool reads = k->ragged && (w->st->held & DLPI_HELD_WRITES) == 0;
    for (uint32_t f = 0, n = k->n; f < n; f++) {
        w->data[first + f] = at + k->f[f].offset;
        w->length[first + f] = reads && k->f[f].f.ragged ? ((uint64_t *)(void *)at)[f] : 0;
    }
}

/* Write the lengths of a row's scratch fields into its cell. A stage that only reads the fields may
   have set lengths too; these are forgotten. Returns 0, or DLP_ERR_LENGTH. */
static int dlpi_scratch_written(dlpi_worker *w, uint32_t row) {
    const dlpi_scratch *k = dlpi_scratch_of(w->p);
    const uint32_t first = dlpi_scratch_first(w);
    const dlpi_seeing *order = dlpi_scratch_order(w->st);
    if (order != NULL) dlpi_seeing_turn(order, w->length, true);
    if ((w->st->held & DLPI_HELD_WRITES) == 0) return memset(&w->length[first], 0, k->n * 8u), 0;
    uint64_t *lengths = (uint64_t *)(void *)dlpi_scratch_cell(w, row);
    for (uint32_t f = 0; f < k->n; f++) {
        const uint64_t n = w->length[first + f];
        if (k->f[f].f.ragged) lengths[f] = n;
        if (n > dlpi_length_most(&k->f[f])) return dlpi_length_bad(w, &k->f[f], n);
    }
    return 0;
}

/* ---- check the rows ---- */

/* Refuse fields of made or pushed items: no fetch writes them. Returns 0 or a DLP_ERR code. */
static int dlpi_scratch_writer(dlp_pipe *p, const dlpi_stage *st) {
    const dlp_dataset *ds = p->fetch->dataset;
    if (p->source_stage->ops->expands)
        return dlpi_refuse(p, DLP_ERR_GRAPH, st->name, "",
                           "\"%s\" makes these rows, so no fetch writes fields that end in them; "
                           "let the fields end above it",
                           p->source_stage->name);
    if (dlpi_reader_of(ds) != NULL && ds->fetch == ds->reader->fetch)
        return dlpi_bad_graph(
            p, st->name,
            "items are pushed, so no fetch writes fields that end in rows; push other fields");
    return DLP_OK;
}

/* Find out which stages write the scratch fields and which one reads them; other stages don't see
   them. Returns 0 or a DLP_ERR code. */
DLPI_COLD static int dlpi_scratch_roles(dlp_pipe *p, dlpi_stage *st) {
    dlpi_scratch *k = st->self;
    dlpi_stage *writes = st - 1, *reads = st; /* a fetch stands before it, and a map behind */
    int rc;
    if (p->lender_stage != NULL)
        return dlpi_refuse(
            p, DLP_ERR_GRAPH, st->name, "",
            "fields end in a map of items, and \"%s\" splits chunks; leave one of the two out",
            p->lender_stage->name);
    for (dlpi_stage *s = st + 1; s < p->stages + p->n_stages; s++) {
        if (s->dataset != NULL) continue; /* a zip */
        if (s->ops->held == 0 || (reads != st && reads->held != DLPI_HELD_SEES)) break;
        s->held = s->ops->held;
        reads = s;
    }
    if ((rc = dlpi_scratch_writer(p, st)) != DLP_OK) return rc;
    for (; writes->scope.field == 0 && writes != p->fetch; writes--)
        writes->held = DLPI_HELD_WRITES; /* one of a mix */
    writes->held = DLPI_HELD_WRITES | DLPI_HELD_TAKES;
    reads->held = DLPI_HELD_READS;
    k->takes = writes;
    k->reads = reads;
    return DLP_OK;
}

/* Lay out scratch field i, and check its name against other fields. Returns 0 or a DLP_ERR code. */
static int dlpi_scratch_field(dlp_pipe *p, const dlpi_stage *st, dlpi_scratch *k, uint32_t i) {
    int rc = dlpi_field_init(p, st->name, &k->f[i], &st->fields[i], i, 1, false);
    for (uint32_t j = 0; j < i && rc == DLP_OK; j++)
        if (strcmp(k->f[i].name, k->f[j].name) == 0)
            rc = dlpi_bad_field(p, st->name, i, k->f[i].name, "name",
                                "name is that of fields[%" PRIu32 "], too; rename one", j);
    for (uint32_t j = 0; j < p->items.n && rc == DLP_OK; j++)
        if (strcmp(k->f[i].name, p->items.at[j].name) == 0)
            rc = dlpi_bad_field(p, st->name, i, k->f[i].name, "name",
                                "field %" PRIu32 " of the rows has this name, too; rename one", j);
    return rc;
}

/* Return how many groups the workers of the stages up to the map need at least. A worker needs one
   for each run that it may have in hand. Where it does not write the fields it needs one more,
   since its rows may all be of one run. */
static uint64_t dlpi_scratch_least(const dlp_pipe *p, const dlpi_scratch *k) {
    uint64_t least = 0;
    for (int i = k->takes->work; i <= k->reads->work; i++) {
        const dlpi_stage *st = p->work[i];
        least += (uint64_t)st->n_workers * (dlpi_at_once(st) + !(st->held & DLPI_HELD_WRITES));
    }
    return least;
}

/* Set how many groups there are, and the cells of each. If the user gave the number of cells,
   groups are as large as leaves twice as many as are needed; else as large as the runs of quick
   items. Small cells get several groups for each such run under way, since runs may be shorter. */
static void dlpi_scratch_groups(dlp_pipe *p, dlpi_scratch *k) {
    const uint64_t under_way = (uint64_t)p->prefetch * p->batch_rows;
    uint64_t least = dlpi_scratch_least(p, k), cells = k->asked, most;
    uint64_t wanted = k->asked > 0 ? 2 * least : least;
    uint32_t shift = 0;
    if (cells == 0 && k->cell_bytes > 0) cells = DLPI_SCRATCH_BYTES / k->cell_bytes;
    most = k->asked > 0 ? under_way : DLPI_SCRATCH_SHORTER * under_way;
    if (most > cells) most = cells;
    if (least > under_way) least = under_way;
    if (cells > under_way) cells = under_way;
    while (shift < p->run_shift_most && (2u << shift) <= p->batch_rows &&
           cells >> (shift + 1) >= wanted)
        shift++;
    k->n_groups = (uint32_t)(shift > 0 ? most >> shift : cells);
    if (k->asked == 0 && k->n_groups < least) k->n_groups = (uint32_t)least;
    p->run_shift_most = k->shift = shift;
}

/* Lay the fields out in a cell, and compute how many cells there are. Returns 0 or a DLP_ERR code.
   */
DLPI_COLD static int dlpi_scratch_check(dlp_pipe *p, dlpi_stage *st) {
    dlpi_scratch *k = st->self;
    uint64_t at = 0, align = 8;
    int rc = DLP_OK;
    if (p->items.n + k->n > DLP_MAX_FIELDS)
        return dlpi_bad(p, st->name, "n_fields", "16 at most, with those of all fetches", k->n);
    for (uint32_t i = 0; i < k->n; i++) k->ragged |= st->fields[i].ragged != 0;
    if (k->ragged) at = k->n * sizeof(uint64_t);
    for (uint32_t i = 0; i < k->n; i++) {
        if ((rc = dlpi_scratch_field(p, st, k, i)) != DLP_OK) return rc;
        if (k->f[i].f.ragged || k->f[i].row_bytes >= 64) align = 64;
        k->f[i].offset = dlpi_take_bytes(&at, k->f[i].row_bytes, align);
    }
    k->cell_bytes = dlpi_round_up(at, align);
    /* A keeper, too, finds the items' own fields in w->data, before `at` points others there. */
    if (k->ragged || p->items.any_ragged || p->keeper_stage != NULL)
        for (int i = 0; i < p->n_item_work; i++)
            if (p->work[i]->held != 0) p->work[i]->held |= DLPI_HELD_LENGTHS;
    dlpi_scratch_groups(p, k);
    return DLP_OK;
}

/* Add the areas of the stage to the region: the words of all groups of cells and of all rows, and
   the cells. */
DLPI_COLD static void dlpi_scratch_layout(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_scratch *k = st->self;
    uint64_t words = dlpi_sum(k->n_groups, dlpi_times(p->n_slots, p->batch_rows));
    dlpi_area_add(p, DLPI_OWN(st->id, DLPI_SCRATCH_HEAD),
                  dlpi_sum(offsetof(dlpi_scratch_head, words), dlpi_times(words, 8)), 1, DLPI_LINE);
    dlpi_area_told(p, DLPI_OWN(st->id, DLPI_SCRATCH_CELLS), DLPI_PLAN_OWN, "scratch cells",
                   k->cell_bytes << k->shift, k->n_groups, 64);
}

/* Describe in `out` the stage's heap memory: the records of the workers that take cells, and the
   fields that stages of rows see. Returns the number of blocks. */
DLPI_COLD static int dlpi_scratch_blocks(const dlp_pipe *p, const dlpi_stage *st, dlpi_block *out) {
    const dlpi_scratch *k = st->self;
    uint64_t n = k->takes != NULL ? (uint64_t)k->takes->n_workers : 0;
    out[0] = (dlpi_block){offsetof(dlpi_scratch, hands), n * sizeof(dlpi_scratch_hand)};
    out[1] =
        (dlpi_block){offsetof(dlpi_scratch, steps), (uint64_t)p->n_item_work * sizeof *k->steps};
    return 2;
}

/* Show the scratch fields in the items of stages that write or read them, as the pipe starts. */
DLPI_COLD static void dlpi_scratch_live(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_scratch *k = st->self;
    const dlpi_seeing *order;
    for (int i = 0; i < p->n_item_work; i++) {
        dlpi_scope *scope = &p->work[i]->scope;
        const uint32_t first = scope->field + scope->n_fields;
        if (p->work[i]->held == 0 || (p->work[i]->held & DLPI_HELD_LENGTHS) != 0) continue;
        memcpy(k->steps[i], p->items.at, sizeof k->steps[i]);
        for (uint32_t f = first; f < first + k->n; f++) k->steps[i][f].row_bytes = k->cell_bytes;
        if (scope->n_cells < first + k->n) scope->n_cells = (uint8_t)(first + k->n);
        scope->cells = k->steps[i];
        if ((order = dlpi_scratch_order(p->work[i])) == NULL) continue;
        for (uint32_t f = 0; f < order->n; f++)
            k->steps[i][f].row_bytes =
                order->at[f] < first ? p->items.at[order->at[f]].row_bytes : k->cell_bytes;
        scope->shift = (uint8_t)k->n;
        p->work[i]->item = order->callback, p->work[i]->user = order->user;
    }
    dlpi_scratch_head_of(p)->n_groups = k->n_groups;
    dlpi_scratch_head_of(p)->each = UINT64_C(1) << k->shift;
    for (int i = 0; i < p->n_workers; i++) {
        dlpi_worker *w = &p->workers[i];
        if (w->st->held == 0) continue;
        w->given.n_fields = w->item.n_fields = w->st->scope.n_fields + k->n;
    }
}

/* Read how many cells there are, and how many of them are in use. Returns false if the words are
   not valid. */
DLPI_COLD static bool dlpi_scratch_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const int id = DLPI_OWN(stage, DLPI_SCRATCH_HEAD);
    const uint64_t from = offsetof(dlpi_scratch_head, words);
    uint64_t *own = s->figures.stages[stage].own, n, each, one;
    if (!dlpi_word_at(words, id, 0, 0, 8, &n) || !dlpi_word_at(words, id, 0, 8, 8, &each) ||
        n > DLPI_WORDS_MAX)
        return false;
    own[1] = n * each;
    for (uint64_t g = 0; g < n; g++) {
        if (!dlpi_word_at(words, id, 0, from + 8 * g, 8, &one)) return false;
        own[0] += one != 0 ? each : 0;
    }
    return true;
}

static const dlpi_holder_ops dlpi_scratch_role = {
    .take = dlpi_scratch_take,
    .claimed = dlpi_scratch_claimed,
    .cells = dlpi_scratch_cells,
    .at = dlpi_scratch_at,
    .written = dlpi_scratch_written,
    .leave = dlpi_scratch_leave,
    .has = dlpi_scratch_has,
};

static const dlpi_stage_ops dlpi_scratch_kind_ops = {
    .kind = DLP_STAGE_SCRATCH,
    .rank = 6,
    .many = 1,
    .self_bytes = sizeof(dlpi_scratch),
    .widens = dlpi_scratch_roles,
    .check = dlpi_scratch_check,
    .layout = dlpi_scratch_layout,
    .blocks = dlpi_scratch_blocks,
    .live = dlpi_scratch_live,
    .lost = dlpi_scratch_recover,
    .seen = dlpi_scratch_seen,
    .holder = &dlpi_scratch_role,
};

/* ---- the stage is added ---- */

/* Add the stage that holds n fields f that end. cells: as many as a row asks for; 0: as >>scratch
   says. Returns a stage number or a DLP_ERR code. */
static dlp_stage dlpi_add_scratch(dlp_pipe *p, const dlp_field *f, uint32_t n, uint32_t cells) {
    dlpi_stage *st = dlpi_add(p, &dlpi_scratch_kind_ops, "scratch", NULL);
    int rc;
    if (st == NULL) return p->err.code;
    ((dlpi_scratch *)st->self)->n = n;
    ((dlpi_scratch *)st->self)->asked = cells;
    rc = dlpi_within(p, st->name, "n_fields", n, 1, DLP_MAX_FIELDS - 1, "1..15");
    if (rc == DLP_OK) rc = dlpi_within(p, st->name, "queue.capacity", cells, 0, 1 << 20, "0..2^20");
    return dlpi_added(p, st, rc == DLP_OK ? dlpi_keep_fields(p, st, f, n) : rc);
}
