/* needs: parts */
#pragma once
/* tests: system/stages/branches, system/stages/branch_chains */
#include "inputs/dataset.h"
#include "inputs/reads.h"
#include "order/branches.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-branches   SEVERAL LISTS, JOINED STREAM BY STREAM
   Each branch has a list, streams and cells of its own, as in >>impl-found. The source itself has
   no list. Its rule draws rows from the branches: row k of a stream is the k-th item of each branch
   (zip), or the next item of one of them (mix). A row is known once its items are known.

   Why it can't stand still. Let a batch wait, and a stream lack a row. At a zip some branch lacks
   the item; at a mix the branch drawn lacks it. Each branch has as many cells of its own as its
   streams need together, and no branch takes cells of another. A stream needs so many cells that
   the items of its branch among R rows in a row lie in them, wherever the rows begin
   (dlpi_mix_most). So the argument of >>impl-found holds for this branch: it lacks an item
   while all its inputs are known, so it holds fewer cells than it needs, and gets one.

   A row of a zip may lack the items of several branches. If one of these branches is out, the
   stream ends before the row: nothing that happens to the other branches makes the row exist. If
   none is out, the stream fails with the first of them in the order of the table. This is decided
   once each of them is out or has failed, or has its item. So neither the order of the branches nor
   workers and their times change whether a stream ends or fails.

   Any worker takes the cells of any branch. Branches whose workers call the same callbacks as they
   begin and end have one seat in each worker (>>impl-reads). Others have seats of their own. So has
   a branch whose inputs are read by requests, unless another one makes the same requests. The
   requests that the workers of a branch would have under way are divided among all workers. The
   cells of a seat lie side by side. */

typedef struct dlpi_branch {
    dlpi_expand x; /* the branch's lists, cells and makers; it is not the self of a stage */
    char name[32];
    dlp_field *in, *made; /* [x.input.n_fields] fields of inputs; [n_made] of items made of them */
    const dlp_field *out; /* [n_out] fields of the branch's last items: in `made`, or `in` itself */
    uint32_t n_made, n_out;
    uint32_t first_field;   /* number of the first of these among the fields of a row */
    dlp_sampler_desc order; /* of its list */
    void *table;            /* of the order's weights; NULL: it has none */
    dlp_workers_desc w;     /* callbacks that workers call as they begin and end */
    uint32_t seat;          /* number of its seat */
} dlpi_branch;

typedef struct dlpi_branches_stream {
    uint64_t phase; /* place of the next row in the schedule of a mix, 0..period-1; with legs: how
                       many rows were drawn */
} dlpi_branches_stream;

typedef struct dlpi_branches {
    dlpi_found found;      /* first: the stage's self is one, too (dlpi_found_of) */
    uint32_t n, most;      /* branches; those that its memory has room for */
    bool has_legs;         /* a mix whose table gives legs; maybe none so far */
    uint32_t n_legs;       /* of a mix, behind the first one */
    uint64_t period;       /* rows after which the first leg's schedule repeats; 0: a zip */
    uint32_t *schedule;    /* [places] the branch of each row of a mix (dlpi_mix_at); NULL: a zip */
    uint64_t places;       /* of the schedules of all legs */
    uint64_t weights_hash; /* hash of the weights of a mix without legs, for states; 0: others */
    dlpi_leg legs[1 + DLPI_LEGS];  /* those of a mix */
    dlpi_branches_stream *streams; /* [cursors.n] */
    uint64_t *drawn;               /* [cursors.n][most] items of each branch in known rows that are
                                      not given */
    dlpi_stage_ops copies;         /* ops of the fetch stage: it copies runs of rows at once */
    dlpi_seatings seats;           /* those of rows behind the branches come last */
    dlpi_branch at[DLPI_BRANCHES]; /* [most] */
} dlpi_branches;

_Static_assert(offsetof(dlpi_branches, found) == 0, "dlpi_found_of");

/* Bytes of a dlpi_branches with room for so many branches. */
#define DLPI_BRANCHES_BYTES(most) \
    (offsetof(dlpi_branches, at) + (size_t)(most) * sizeof(dlpi_branch))

static inline dlpi_branches *dlpi_branches_of(const dlpi_found *q) {
    return (dlpi_branches *)(void *)(uintptr_t)q;
}

/* Return the branch that owns cell c, which must be a cell of some branch. If c is below a branch's
   first cell, the unsigned difference is large, so the search goes on. */
static inline const dlpi_branch *dlpi_branch_of_cell(const dlpi_branches *j, uint32_t c) {
    const dlpi_branch *b = j->at;
    while (c - b->x.found.first_cell >= b->x.found.n_cells) b++;
    return b;
}

/* Return the numbers `drawn` of stream i. */
static inline uint64_t *dlpi_branches_counts(const dlpi_branches *j, uint32_t i) {
    return j->drawn + (size_t)i * j->most;
}

/* Begin an epoch in the rows of stream i. */
DLPI_COLD static void dlpi_branches_begin(dlpi_found *q, uint32_t i) {
    dlpi_branches *j = dlpi_branches_of(q);
    const uint64_t s = q->cursors.first + (uint64_t)i;
    j->streams[i].phase = 0;
    memset(dlpi_branches_counts(j, i), 0, j->n * sizeof *j->drawn);
    if (j->period > 0 && !j->has_legs)
        j->streams[i].phase = dlpi_mix_phase(q->plan.seed, q->epoch, s, 0, j->period);
}

/* Return the number of the leg that has row `draw` of a stream. */
static uint32_t dlpi_branches_leg(const dlpi_branches *j, uint64_t draw) {
    uint32_t k = 0;
    while (k < j->n_legs && j->legs[k + 1].from <= draw) k++;
    return k;
}

/* Return the number of the branch that has row `draw` of stream i of a mix with legs. */
DLPI_NOINLINE static uint32_t dlpi_branches_of_leg(const dlpi_branches *j, uint32_t i,
                                                   uint64_t draw) {
    const uint32_t k = dlpi_branches_leg(j, draw);
    const dlpi_leg *leg = &j->legs[k];
    const dlpi_found *q = &j->found;
    const uint64_t s = q->cursors.first + (uint64_t)i;
    const uint64_t phase = dlpi_mix_phase(q->plan.seed, q->epoch, s, k, leg->period);
    return dlpi_mix_at(j->schedule + leg->at, (draw - leg->from + phase) % leg->period);
}

/* Return the number of the branch that has the item of a mix's row: of the row that comes `rows`
   rows after the next one of stream i. */
static inline uint32_t dlpi_branches_drawn(const dlpi_branches *j, uint32_t i, uint64_t rows) {
    const uint64_t at = j->streams[i].phase + rows;
    if (DLPI_UNLIKELY(j->has_legs)) return dlpi_branches_of_leg(j, i, at);
    return dlpi_mix_at(j->schedule, at < j->period ? at : at % j->period);
}

/* Return how many rows of a period of a leg come from branch b. */
static uint64_t dlpi_leg_turns(const dlpi_branches *j, const dlpi_leg *leg, uint32_t b) {
    uint64_t turns = 0;
    for (uint64_t k = 0; k < leg->period; k++) turns += dlpi_mix_at(j->schedule + leg->at, k) == b;
    return turns;
}

/* Return how many of `rows` rows in a row come from branch b at most, wherever they begin. In each
   leg there are at most two more than its share: at both ends the counts are within one of their
   shares (>>impl-mixing). */
DLPI_COLD static uint64_t dlpi_branches_most(const dlpi_branches *j, uint32_t b, uint64_t rows) {
    uint64_t share = 0, met = 0; /* of the rows; legs that they may lie in */
    if (j->n_legs == 0) return dlpi_mix_most(j->schedule, j->period, b, rows);
    for (uint32_t k = 0; k <= j->n_legs; k++) {
        const dlpi_leg *leg = &j->legs[k];
        const uint64_t turns = dlpi_leg_turns(j, leg, b), most = dlpi_times(rows, turns);
        uint32_t n = k;
        if (share < most / leg->period + 1) share = most / leg->period + 1;
        while (n <= j->n_legs && j->legs[n].from - leg->from < rows) n++;
        if (met < n - k + 1) met = n - k + 1;
    }
    return share + 2 * met < rows ? share + 2 * met : rows;
}

/* Return the list of the branch that decides what follows the known rows of stream i of a zip. It
   lacks the next row's item. It is the first such branch that is out. If none is out, it is the
   first one that is not known so far. Else it is the first one that has failed. */
static const dlpi_found *dlpi_branches_unzipped(const dlpi_branches *j, uint32_t i) {
    const dlpi_found *best = &j->at[0].x.found;
    bool broken = true, out = false;
    for (uint32_t b = j->n; b-- > 0;) {
        const dlpi_found *f = &j->at[b].x.found;
        const dlpi_found_stream *x = &f->streams[i];
        const bool ends = dlpi_found_out(f, x);
        if (x->rows > j->found.streams[i].rows || (out && !ends)) continue;
        if (!ends && dlpi_found_broken(f, x) && !broken) continue;
        best = f;
        broken = dlpi_found_broken(f, x);
        out = ends;
    }
    return best;
}

/* Return the list of the branch whose item the first unknown row of stream i needs. */
static const dlpi_found *dlpi_branches_lacks(const dlpi_found *q, uint32_t i) {
    const dlpi_branches *j = dlpi_branches_of(q);
    if (j->period == 0) return dlpi_branches_unzipped(j, i);
    return &j->at[dlpi_branches_drawn(j, i, q->streams[i].rows)].x.found;
}

/* Tell if stream i ends before the last of its next `rows` rows, which are not all known. It does
   if the items of a branch that is out are too few. Returns 1 if it ends, 0 if it does not, or -1
   if the items of a branch are not known so far. */
static int dlpi_branches_ends(const dlpi_found *q, uint32_t i, uint64_t rows) {
    const dlpi_branches *j = dlpi_branches_of(q);
    uint64_t needs[DLPI_BRANCHES];
    int ends = 0;
    for (uint32_t b = 0; b < j->n; b++)
        needs[b] = j->period == 0 ? rows : dlpi_branches_counts(j, i)[b];
    for (uint64_t r = q->streams[i].rows; j->period > 0 && r < rows; r++)
        needs[dlpi_branches_drawn(j, i, r)]++;
    for (uint32_t b = 0; b < j->n; b++) {
        const dlpi_found *f = &j->at[b].x.found;
        const dlpi_found_stream *x = &f->streams[i];
        if (x->rows >= needs[b]) continue;
        if (dlpi_found_out(f, x)) return 1;
        if (!dlpi_found_broken(f, x)) ends = -1;
    }
    return ends;
}

/* Count the rows of a zip's stream i that became known since its `rows` was set last. */
static uint64_t dlpi_branches_zipped(dlpi_branches *j, uint32_t i) {
    const uint64_t rows = j->found.streams[i].rows;
    uint64_t all = UINT64_MAX;
    for (uint32_t b = 0; b < j->n; b++) {
        const uint64_t n = j->at[b].x.found.streams[i].rows;
        if (n < all) all = n;
    }
    return all - rows;
}

/* Count the rows of stream i that became known since its `rows` was set last. For a mix the items
   of these rows are noted as drawn. */
static uint64_t dlpi_branches_known(dlpi_branches *j, uint32_t i) {
    uint64_t *drawn = dlpi_branches_counts(j, i);
    const uint64_t rows = j->found.streams[i].rows;
    uint64_t more = 0;
    if (j->period == 0) return dlpi_branches_zipped(j, i);
    for (;; more++) {
        const uint32_t b = dlpi_branches_drawn(j, i, rows + more);
        if (drawn[b] == j->at[b].x.found.streams[i].rows) return more;
        drawn[b]++;
    }
}

/* Return how many rows of stream i became known. out: not used. */
static uint64_t dlpi_branches_more(dlp_pipe *p, uint32_t i, bool out DLPI_UNREAD) {
    return dlpi_branches_known(dlpi_branches_of(dlpi_found_of(p)), i);
}

/* Draw the next row of stream i. Returns the first branch that has an item of the row; *end is one
   behind the last such branch. A mix goes to its next phase. */
static uint32_t dlpi_branches_draw(dlpi_branches *j, uint32_t i, uint32_t *end) {
    dlpi_branches_stream *x = &j->streams[i];
    uint32_t b;
    *end = j->n;
    if (j->period == 0) return 0;
    b = dlpi_branches_drawn(j, i, 0);
    dlpi_branches_counts(j, i)[b]--;
    x->phase++;
    if (x->phase == j->period && !j->has_legs) x->phase = 0;
    *end = b + 1;
    return b;
}

/* Write where the next item of stream i of branch b lies into row r of slot s, and count the item
   as given. Returns false if the item was left out and only its place is given. */
static bool dlpi_branch_give(dlp_pipe *p, dlpi_found *b, uint32_t i, uint32_t s, uint32_t r) {
    const dlpi_found_cell *u = &b->use[b->streams[i].head];
    if (b->most_items == 1)
        dlpi_found_give_one(p, b, &b->streams[i], s, r);
    else
        dlpi_found_give(p, b, &b->streams[i], s, r, 1);
    return (u->lost >> u->input & 1) == 0;
}

/* Make the next row of stream i row r of slot s. The index of the row is that of its first branch.
   A row with an item that was left out is marked as left out. */
static void dlpi_branches_give(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r) {
    dlpi_branches *j = dlpi_branches_of(dlpi_found_of(p));
    uint32_t end;
    const uint32_t first = dlpi_branches_draw(j, i, &end);
    bool whole = true;
    while (end > first) whole &= dlpi_branch_give(p, &j->at[--end].x.found, i, s, r);
    if (whole) return;
    dlpi_slot_at(p, s)->dirty = 1;
    dlpi_slot_fate(p, s)[r] = DLPI_ROW_LEFT;
}

/* Skip the next row of stream i, which is another rank's: its items count as given. */
static void dlpi_branches_pass(dlp_pipe *p, uint32_t i) {
    dlpi_branches *j = dlpi_branches_of(dlpi_found_of(p));
    uint32_t end;
    const uint32_t first = dlpi_branches_draw(j, i, &end);
    while (end > first) {
        dlpi_found *b = &j->at[--end].x.found;
        dlpi_found_pass_item(p, b, &b->streams[i]);
    }
}

/* Return the bits of a stream's phase in a state. */
static uint32_t dlpi_branches_phase_bits(const dlpi_branches *j) {
    if (j->has_legs) return 64; /* DLPI_DRAW_BITS, and a hash */
    return j->period > 0 ? dlpi_bits_of(j->period - 1) : 0;
}

/* Return the phase that a state has of a stream whose phase is `phase`. With legs, the hash of
   those of which the stream has drawn a row stands above it. */
static uint64_t dlpi_branches_saved(const dlpi_branches *j, uint64_t phase) {
    if (!j->has_legs || phase == 0) return phase;
    return j->legs[dlpi_branches_leg(j, phase - 1)].begun << DLPI_DRAW_BITS | phase;
}

/* Write where stream i stands, its phase and a cursor of each branch, into *to. */
static void dlpi_branches_put(const dlpi_found *q, uint32_t i, dlpi_path *to) {
    const dlpi_branches *j = dlpi_branches_of(q);
    *to = (dlpi_path){.phase = dlpi_branches_saved(j, j->streams[i].phase)};
    for (uint32_t b = 0; b < j->n; b++) {
        const dlpi_cursor *at = &j->at[b].x.found.streams[i].at;
        to->list[b] = (dlpi_list_place){at->ordinal, at->used};
    }
}

/* True if `path` is a possible place of stream s of all. set: stream s, one of this rank, goes on
   from there. */
static bool dlpi_branches_take(dlpi_found *q, uint64_t s, const dlpi_path *path, bool set) {
    dlpi_branches *j = dlpi_branches_of(q);
    const uint64_t draw = path->phase & ((UINT64_C(1) << DLPI_DRAW_BITS) - 1);
    const uint64_t phase = j->has_legs ? draw : path->phase;
    if (!j->has_legs && j->period > 0 && phase >= j->period) return false;
    if (dlpi_branches_saved(j, phase) != path->phase) return false;
    for (uint32_t b = 0; b < j->n; b++) {
        const dlpi_cursor at = {.ordinal = path->list[b].ordinal, .used = path->list[b].used};
        if (!dlpi_found_go(&j->at[b].x.found, s, &at, set)) return false;
    }
    if (set) j->streams[s - j->found.cursors.first].phase = phase;
    return true;
}

static const dlpi_found_rule dlpi_branches_rule = {
    .begin = dlpi_branches_begin,
    .more = dlpi_branches_more,
    .give = dlpi_branches_give,
    .pass = dlpi_branches_pass,
    .lacks = dlpi_branches_lacks,
    .ends = dlpi_branches_ends,
    .put = dlpi_branches_put,
    .take = dlpi_branches_take,
};
