/* needs: parts files */
/* Branches of a zip or mix whose rows are any that run in a cell: loads, fetches, maps, filters,
   expands, in an order drawn at random. A plain program writes down every row of every stream.
   Workers, deaths, ranks and the places to resume from differ from life to life; the rows and the
   states do not.
   Then branches begin with pushes, too (tests/rig/chains_pushed.h).
     branch_chains [N [SEED]]     N tables, drawn from that seed on, and as many with pushes; an
                                  eighth of them is resumed, and fails */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/check.h"
#include "../../rig/keyed.h"
#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST_LEGS = 6,
    MOST_BRANCHES = DLP_MAX_BRANCHES,
    MOST_STREAMS = 4,
    MOST_ROWS = 1500,
    EPOCHS = 2,
    LIVES = 4
};
enum { TOKENS = 8, SEGMENTS = 3 }; /* of a row of a pack */
enum { NEVER = 1000 };             /* an epoch that does not come */
enum { MOST_VERBS = 4, PART = 5, OUT = 3, ITEMS = 160, LISTED = 96, INPUTS = 240 };
enum { CHANGES, ADDS, KEEPS, FETCHES, EXPANDS, LOADS, VERBS };    /* rows behind the first fetch */
enum { NO_LOAD, COUNTED, BY_FUNCTION, NOT_COUNTED };              /* how many items a part has */
enum { ONE_BY_ONE, THREADS, LATER };                              /* how the first fetch reads */
enum { AT_ITEM = 50, AT_LOAD = 97, AT_FETCH = 98, NOWHERE = 99 }; /* rows beside the verbs */

typedef struct verb {
    int kind, has_e; /* has_e: a row above adds field e */
    uint32_t row;
    struct branch *of;
    char name[8], fetch[8]; /* fetch: the row behind a load */
} verb;

typedef struct branch {
    uint32_t id, n, n_verbs, wraps; /* wraps: the row that names the workers */
    int shuffle, loads, shuffles_items, reads, states;
    int pushed; /* it begins with a push */
    dlp_push *push;
    uint32_t least; /* items of a part that has any; callbacks then leave out none. 0: they may */
    verb verbs[MOST_VERBS];
    char list[8], load[8], read[8], x[4], t[4], e[4];
    dlp_field fields[3];
    uint64_t items[INPUTS];
} branch;

typedef struct life {
    uint32_t world, stop; /* stop: batches that each rank takes; UINT32_MAX: to the end */
    int workers, processes;
} life;

static struct {
    uint64_t seed;
    int pushes; /* branches that begin with a push */
    int zip, drops, extra, ragged, steps, last, lives;
    int lies; /* 1: callbacks leave out items, though a branch has `least` */
    int ends; /* DLP_EPOCH_END is told */
    int bars; /* 1: filters of the first branch keep nothing */
    int none; /* 1: all reads of the first branch fail, so that no row of the zip is valid */
    uint32_t n, streams, batch, kill_every;
    uint64_t weights[MOST_BRANCHES], period;
    uint32_t n_legs; /* of a mix, behind the first one */
    struct leg {
        uint64_t from, weights[MOST_BRANCHES], period;
    } leg[MOST_LEGS];
    uint32_t cells[MOST_BRANCHES]; /* of a branch; 0: as many as the plan takes */
    branch at[MOST_BRANCHES];
    branch after;    /* its verbs stand behind the zip or mix */
    uint32_t window; /* items of a window behind all of that; 0: none */
    int packs;       /* behind all of that field t is cut into rows */
    uint32_t overlap;
    life life[LIVES];
} now_;

typedef struct store { /* what worker_init leaves */
    dlp_item *held[8];
    uint32_t n, calls;
    const branch *of;
} store;

static struct {                  /* one row that fails, for one input; row NOWHERE: none */
    uint32_t branch, row, tries; /* it fails so often */
    uint64_t input;
} bad_;
static int hit_;                           /* the plain program has come there */
static uint32_t deaths_, most_out_, many_; /* many_: tables of more than 8 branches */

typedef struct shared { /* of all processes */
    uint32_t calls, deaths, killed[MOST_BRANCHES + 1][INPUTS];
    uint32_t most_out;
    uint64_t arrived[MOST_BRANCHES][INPUTS]; /* the record of each number of a push */
    uint32_t strays;                         /* records that came with two numbers */
} shared;

static shared *shared_;
static pid_t caller_; /* never to be killed */
static int forks_;    /* 0: worker processes can't be tested here */

static uint32_t pick(uint64_t *state, uint32_t n) {
    *state = mixed(*state, 1);
    return (uint32_t)(*state >> 33) % n;
}

/* ---- the data ---- */

static uint64_t of(uint64_t x, uint64_t row, uint64_t k) { return dlp_hash(x, row, k, 21); }
static uint64_t of_fetch(uint64_t id, uint64_t input) { return of(id, input, 0); }
static uint64_t part_items(const branch *b, uint64_t input) {
    const uint64_t n = of(b->id, input, 2) % (PART + 1);
    return n < b->least ? 0 : n;
}
static int skips(uint64_t x, uint32_t row, const branch *b) {
    return (b->least == 0 || now_.lies) && of(x, row, 3) % 12 == 0;
}
static int kept(uint64_t x, uint32_t row, const branch *b) {
    return of(x, row, 4) % 4 != 0 && !(now_.bars && b->id == 0);
}
static uint64_t makes(uint64_t x, uint32_t row) { return of(x, row, 5) % (OUT + 1); }
static int wrong(uint64_t x, uint32_t row, const branch *b, uint64_t input, uint32_t attempt) {
    if (bad_.row == row && bad_.branch == b->id && bad_.input == input && attempt < bad_.tries)
        return 1;
    if (now_.none && row == AT_FETCH && b->id == 0) return 1;
    return now_.drops && of(x, row, 6) % 14 == 0;
}
/* Of the plain program: does it fail for ever? */
static int fails(uint64_t x, uint32_t row, const branch *b, uint64_t input) {
    hit_ |= bad_.row == row && bad_.branch == b->id && bad_.input == input;
    return wrong(x, row, b, input, UINT32_MAX - 1);
}
static uint64_t list_seed(const branch *b) {
    return b->id > 0 ? mixed(now_.seed, b->id) : now_.seed;
}

/* Record k of a producer of a branch that begins with a push; what its field t is made of. */
static uint64_t record_of(const branch *b, uint64_t producer, uint64_t k) {
    return ((uint64_t)b->id + 1) << 48 | producer << 32 | k;
}
static uint64_t record_t(uint64_t x) { return of(x, 60, 0); }

/* ---- callbacks ---- */

/* The first row behind a push notes which record has which number. */
static void note_record(const verb *r, const dlp_item *it, uint64_t x) {
    uint64_t *to;
    if (!r->of->pushed || r->row > 0) return;
    to = &shared_->arrived[r->of->id][it->index % INPUTS];
    if (it->index >= INPUTS || (__atomic_load_n(to, __ATOMIC_SEQ_CST) | x) != x)
        __atomic_add_fetch(&shared_->strays, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(to, x, __ATOMIC_SEQ_CST);
}

/* A worker dies, but no input kills twice: that would make it the input's fault. */
static void die_now_and_then(const branch *b, uint64_t input) {
    const uint32_t call = __atomic_add_fetch(&shared_->calls, 1, __ATOMIC_SEQ_CST);
    if (now_.kill_every == 0 || call % now_.kill_every != 0 || getpid() == caller_) return;
    if (__atomic_add_fetch(&shared_->killed[b->id][input], 1, __ATOMIC_SEQ_CST) > 1) return;
    __atomic_add_fetch(&shared_->deaths, 1, __ATOMIC_SEQ_CST);
    raise(SIGKILL);
}

static void put_t(dlp_item *it, uint64_t x) {
    if (!now_.ragged) return;
    memset(it->data[1], (int)(x & 255), x % 4);
    it->length[1] = x % 4;
}

static int load(void *user, dlp_part *part) {
    const branch *b = user;
    const uint64_t n = part_items(b, part->index);
    die_now_and_then(b, part->index);
    if (wrong(part->index, AT_LOAD, b, part->index, part->attempt))
        return dlp_fail(part->call, 5, "no load");
    if (b->loads != NOT_COUNTED) CHECK(part->items == n);
    part->items = n;
    for (uint64_t i = 0; i < n; i++) ((uint64_t *)part->data)[i] = i + 100;
    part->bytes = n * 8;
    return 0;
}
static int count(void *user, uint64_t part, uint64_t *items) {
    *items = part_items(user, part);
    return 0;
}
static int read_item(void *user, dlp_item *it) {
    const branch *b = user;
    uint64_t number = 0, x;
    if (b->loads) {
        number = ((const uint64_t *)it->part->data)[it->part->item];
        CHECK(it->part->index == it->index && it->part->items == part_items(b, it->index));
    }
    CHECK(it->n_fields == 1u + (uint32_t)now_.ragged);
    x = of(b->id, it->index, number);
    if (b->states) CHECK(((const store *)it->worker_state)->of == b);
    die_now_and_then(b, it->index);
    if (wrong(x, AT_FETCH, b, it->index, it->attempt)) return dlp_fail(it->call, 5, "no read");
    if (skips(x, AT_FETCH, b)) return DLP_SKIP;
    *(uint64_t *)it->data[0] = x;
    put_t(it, x ^ dlp_item_random(it, 9));
    return 0;
}
static int change(void *user, dlp_item *it) {
    const verb *r = user;
    uint64_t *x = it->data[0];
    note_record(r, it, *x);
    die_now_and_then(r->of, it->index);
    if (wrong(*x, r->row, r->of, it->index, it->attempt)) return dlp_fail(it->call, 5, "no change");
    if (skips(*x, r->row, r->of)) return DLP_SKIP;
    *x = of(*x, r->row, 7);
    if (r->kind == ADDS) {
        uint64_t *to = it->data[it->n_fields - 1];
        CHECK(*to == 0);
        *to = of(*x, r->row, 8) ^ dlp_item_random(it, 9);
    }
    return 0;
}
static int keep(void *user, const dlp_item *it) {
    const verb *r = user;
    const uint64_t x = *(const uint64_t *)it->data[0];
    note_record(r, it, x);
    if (wrong(x, r->row, r->of, it->index, it->attempt)) return dlp_fail(it->call, 5, "no taste");
    return kept(x, r->row, r->of);
}
static int fetch_later(void *user, dlp_item *it) {
    const verb *r = user;
    CHECK(it->n_fields == 1 && *(uint64_t *)it->data[0] == 0);
    die_now_and_then(r->of, it->index);
    if (wrong(it->index, r->row, r->of, it->index, it->attempt))
        return dlp_fail(it->call, 5, "no fetch");
    *(uint64_t *)it->data[0] = of(it->index, r->row, 9);
    return 0;
}
/* Behind a zip: copy the fields of the other branches. */
static void copy_others(dlp_item *to, const dlp_item *from) {
    const uint32_t each = 1u + (uint32_t)now_.ragged + (uint32_t)now_.extra;
    for (uint32_t f = each; f < from->n_fields; f++) {
        const int is_t = now_.ragged && f % each == 1;
        memcpy(to->data[f], from->data[f], is_t ? 3 : 8);
        if (is_t) to->length[f] = from->length[f];
    }
}
static int expand(void *user, dlp_expand *x) {
    const verb *r = user;
    const uint64_t from = *(const uint64_t *)x->item->data[0];
    const uint64_t input = x->item->index;
    const int fails = wrong(from, r->row, r->of, input, x->item->attempt);
    note_record(r, x->item, from);
    for (uint64_t i = 0; i < makes(from, r->row); i++) {
        dlp_item *it = dlp_expand_add(x);
        if (it == NULL) return DLP_ERR_LENGTH;
        *(uint64_t *)it->data[0] = of(from, r->row, 10 + i);
        put_t(it, of(from, r->row, 10 + i));
        if (r->has_e) *(uint64_t *)it->data[1 + now_.ragged] = of(from, r->row, 20 + i);
        copy_others(it, x->item);
        if (i == 1) die_now_and_then(r->of, input);
    }
    if (fails) return dlp_fail(x->call, 5, "no items");
    return skips(from, r->row, r->of) ? DLP_SKIP : 0;
}

/* A part that an item of the rows above names: a word for each of its items. */
static int load_of_item(void *user, dlp_part *part) {
    const verb *r = user;
    const dlp_item *it = part->of;
    const uint64_t x = *(const uint64_t *)it->data[0], n = makes(x, r->row);
    note_record(r, it, x);
    die_now_and_then(r->of, it->index);
    CHECK(part->index == it->index && part->items == 0 && part->capacity == 8 * OUT);
    CHECK(it->n_fields == 1u + (uint32_t)(now_.ragged + r->has_e));
    if (wrong(x, r->row, r->of, it->index, part->attempt))
        return dlp_fail(part->call, 5, "no part");
    if (skips(x, r->row, r->of)) return DLP_SKIP;
    for (uint64_t i = 0; i < n; i++) ((uint64_t *)part->data)[i] = of(x, r->row, 10 + i);
    part->items = n;
    part->bytes = n * 8;
    return 0;
}
static int fetch_of_item(void *user, dlp_item *it) {
    const verb *r = user;
    const dlp_item *above = it->part->of;
    const uint64_t from = *(const uint64_t *)above->data[0];
    const uint64_t k = it->part->item, x = ((const uint64_t *)it->part->data)[k];
    CHECK(it->n_fields == 1u + (uint32_t)(now_.ragged + r->has_e));
    CHECK(it->part->items == makes(from, r->row) && it->index == above->index);
    CHECK(x == of(from, r->row, 10 + k) && *(const uint64_t *)it->data[0] == 0);
    die_now_and_then(r->of, it->index);
    if (wrong(x, AT_ITEM + r->row, r->of, it->index, it->attempt))
        return dlp_fail(it->call, 5, "no item");
    if (skips(x, AT_ITEM + r->row, r->of)) return DLP_SKIP;
    *(uint64_t *)it->data[0] = x;
    put_t(it, x ^ dlp_item_random(it, 9));
    if (r->has_e) *(uint64_t *)it->data[it->n_fields - 1] = of(from, r->row, 20 + k);
    return 0;
}

/* ---- the plain program ---- */

typedef struct item {
    uint64_t x, t, e, key, epoch;
    uint32_t input;
    int place; /* of a branch of a zip whose inputs have an item each: it was left out */
} item;

typedef struct items {
    uint32_t n;
    item at[ITEMS];
} items;

static uint64_t random_of(const branch *b, const item *it) {
    return mixed(mixed(keyed(5, list_seed(b), it->epoch), it->key), 9);
}

/* Take the verbs from `at` on with an item, and add what is left of it. */
static void plain(const branch *b, uint32_t at, item it, items *to) {
    for (; at < b->n_verbs; at++) {
        const verb *r = &b->verbs[at];
        if (fails(r->kind == FETCHES ? it.input : it.x, r->row, b, it.input)) return;
        if (r->kind != KEEPS && r->kind != FETCHES && skips(it.x, r->row, b)) return;
        if (r->kind == CHANGES || r->kind == ADDS) it.x = of(it.x, r->row, 7);
        if (r->kind == ADDS) it.e = of(it.x, r->row, 8) ^ random_of(b, &it);
        if (r->kind == FETCHES) it.e = of(it.input, r->row, 9);
        if (r->kind == KEEPS && !kept(it.x, r->row, b)) return;
        if (r->kind < EXPANDS) continue;
        for (uint64_t i = 0; i < makes(it.x, r->row); i++) {
            item next = it;
            next.x = next.t = of(it.x, r->row, 10 + i);
            if (r->has_e) next.e = of(it.x, r->row, 20 + i);
            next.key = mixed(it.key, i + 1);
            if (r->kind == LOADS) next.t ^= random_of(b, &next);
            if (r->kind == LOADS && fails(next.x, AT_ITEM + r->row, b, it.input)) continue;
            if (r->kind == LOADS && skips(next.x, AT_ITEM + r->row, b)) continue;
            plain(b, at + 1, next, to);
        }
        return;
    }
    if (to->n < ITEMS) to->at[to->n++] = it;
}

/* True if each input of the branch has one item, or a place alone. */
static int one_to_one(const branch *b) {
    int ok = now_.zip && !b->loads;
    for (uint32_t i = 0; i < b->n_verbs; i++)
        ok &= b->verbs[i].kind != KEEPS && b->verbs[i].kind < EXPANDS;
    return ok;
}

static uint64_t arrived_[MOST_BRANCHES][INPUTS]; /* 0: it is not known which record came */

/* What a record becomes. */
static void plain_record(const branch *b, uint64_t number, items *to) {
    const uint64_t x = arrived_[b->id][number];
    const item it = {.input = (uint32_t)number, .key = number, .x = x, .t = record_t(x)};
    plain(b, 0, it, to);
}

/* All items of an input. */
static void plain_input(const branch *b, uint64_t epoch, uint64_t pass, uint64_t input, items *to) {
    const uint64_t n = b->loads ? part_items(b, input) : 1;
    to->n = 0;
    if (b->pushed) plain_record(b, input, to);
    if (b->loads && fails(input, AT_LOAD, b, input)) return;
    for (uint64_t k = 0; k < n && !b->pushed; k++) {
        uint64_t at = k, place = pass * b->n + input;
        item it = {.epoch = epoch, .input = (uint32_t)input};
        if (b->loads && b->shuffles_items && n > 1)
            at = permuted(n, mixed(keyed(35, list_seed(b), input), pass), epoch, k);
        it.key = b->loads ? mixed(place, at + 1) : place;
        it.x = of(b->id, input, b->loads ? at + 100 : 0);
        it.t = it.x ^ random_of(b, &it);
        if (!fails(it.x, AT_FETCH, b, input) && !skips(it.x, AT_FETCH, b)) plain(b, 0, it, to);
    }
    if (one_to_one(b) && to->n == 0)
        to->at[to->n++] = (item){.epoch = epoch, .input = (uint32_t)input, .place = 1};
}

typedef struct rows {
    uint32_t n;
    uint8_t branch[MOST_ROWS];
    item at[MOST_ROWS][MOST_BRANCHES]; /* of a mix only the first */
} rows;

static rows rows_[EPOCHS][MOST_STREAMS];

typedef struct reader { /* of a branch, in a stream */
    uint64_t ordinal;
    uint32_t number, barren;
    int there;
    items all;
} reader;

static uint64_t inputs_of(const branch *b, uint64_t s) {
    return (b->n - s + now_.streams - 1) / now_.streams;
}

static int out_, lost_; /* a branch is out; a record that is not known is wanted */

/* The next item of a stream of a branch. Returns 0: there is none. */
static int read_on(const branch *b, uint64_t epoch, uint64_t s, reader *x, item *to) {
    const uint64_t each = inputs_of(b, s);
    while (now_.steps > 0 || x->ordinal < each) {
        const uint64_t pass = x->ordinal / each, j = x->ordinal % each * now_.streams + s;
        const uint64_t input =
            b->shuffle ? permuted(b->n, keyed(34, list_seed(b), pass), epoch, j) : j;
        hit_ = 0;
        if (b->pushed && arrived_[b->id][j] == 0) {
            lost_ = 1; /* another branch may be out, so that nobody wants the record */
            return 0;
        }
        if (!x->there) plain_input(b, epoch, pass, input, &x->all);
        if (hit_ && bad_.tries == UINT32_MAX) return 0;
        x->there = 1;
        if (x->number < x->all.n) {
            *to = x->all.at[x->number++];
            x->barren = 0;
            return 1;
        }
        x->ordinal++;
        x->number = 0;
        x->there = 0;
        if (++x->barren > 4 * each) return 0; /* not to be run */
    }
    out_ = 1;
    return 0;
}

/* Whose turn is t: of all whose next turn may have begun, that of the earliest deadline. */
static uint32_t turn_of(const uint64_t *weights, uint64_t period, uint64_t t) {
    uint64_t turns[MOST_BRANCHES] = {0};
    uint32_t best = 0;
    for (uint64_t at = 0; at <= t; at++) {
        uint64_t soon = UINT64_MAX;
        for (uint32_t b = 0; b < now_.n; b++) {
            const uint64_t w = weights[b], end = w > 0 ? ((turns[b] + 1) * period + w - 1) / w : 0;
            if (turns[b] == w || turns[b] * period / w > at || end >= soon) continue;
            soon = end;
            best = b;
        }
        turns[best]++;
    }
    return best;
}

/* The branch of row n of stream s of a mix: of its rows before those behind the mix. */
static uint32_t drawn(uint64_t epoch, uint64_t s, uint64_t n) {
    uint64_t phase = mixed(keyed(37, now_.seed, epoch), s);
    uint32_t k = 0;
    while (k < now_.n_legs && now_.leg[k].from / now_.streams <= n) k++;
    if (k == 0) return turn_of(now_.weights, now_.period, (n + phase % now_.period) % now_.period);
    const struct leg *l = &now_.leg[k - 1];
    phase = mixed(phase, k) % l->period;
    return turn_of(l->weights, l->period, (n - l->from / now_.streams + phase) % l->period);
}

/* Add what the verbs behind the zip or mix make of a row. b: its branch of a mix. */
static void write_row(rows *r, const item *row, uint32_t b, uint64_t most) {
    static items made;
    made.n = 0;
    for (uint32_t k = 0; now_.zip && k < now_.n; k++)
        if (row[k].place && (now_.after.n_verbs > 0 || now_.window > 0)) return;
    plain(&now_.after, 0, row[0], &made);
    for (uint32_t i = 0; i < made.n && r->n < most; i++) {
        r->branch[r->n] = (uint8_t)b;
        memcpy(r->at[r->n], row, sizeof r->at[0]);
        r->at[r->n++][0] = made.at[i];
    }
}

static uint32_t read_[EPOCHS][MOST_BRANCHES]; /* items of each branch in the rows */
static uint32_t by_[MOST_STREAMS];            /* the branch that ended each stream */
static uint64_t barren_; /* the epoch that ends with a branch which had no item; NEVER: none */

static void write_stream(uint64_t epoch, uint64_t s) {
    static reader x[MOST_BRANCHES];
    rows *r = &rows_[epoch][s];
    const uint64_t most =
        now_.steps > 0 ? (uint64_t)now_.steps * (now_.batch / now_.streams) : MOST_ROWS;
    item row[MOST_BRANCHES] = {{0}};
    memset(x, 0, sizeof x);
    r->n = 0;
    out_ = lost_ = 0;
    for (uint32_t n = 0; r->n < most && n < 4 * MOST_ROWS; n++) {
        const uint32_t b = now_.zip ? 0 : drawn(epoch, s, n);
        int there = now_.zip || read_on(&now_.at[b], epoch, s, &x[b], row);
        int failed = !there && hit_;
        if (!there) by_[s] = b;
        for (uint32_t k = 0; now_.zip && k < now_.n; k++) {
            const int one = read_on(&now_.at[k], epoch, s, &x[k], &row[k]);
            failed |= !one && hit_;
            if (there && !one) by_[s] = k;
            there &= one;
        }
        if (!there) hit_ = failed && !out_; /* a branch that is out ends the stream before */
        if (!there) return;
        for (uint32_t k = 0; k < now_.n; k++) {
            const item *it = now_.zip ? &row[k] : &row[0];
            read_[epoch][k] += (now_.zip || k == b) && !it->place;
        }
        write_row(r, row, b, most);
    }
}

static uint32_t batches_of(uint64_t epoch) {
    const uint32_t m = now_.batch / now_.streams;
    uint32_t most = 0, least = UINT32_MAX;
    if (now_.steps > 0) return (uint32_t)now_.steps;
    for (uint32_t s = 0; s < now_.streams; s++) {
        const uint32_t n = rows_[epoch][s].n;
        if ((n + m - 1) / m > most) most = (n + m - 1) / m;
        if (n / m < least) least = n / m;
    }
    return now_.last == DLP_LAST_DROP ? least : most;
}

/* Rows of the epoch's batches that a rank has: those that are whole, and those that lack an item
   which was left out. */
static void rows_of_rank(uint64_t epoch, uint32_t rank, uint32_t world, uint32_t *whole,
                         uint32_t *left) {
    const uint32_t each = now_.streams / world;
    const uint32_t most = batches_of(epoch) * (now_.batch / now_.streams);
    *whole = *left = 0;
    for (uint32_t s = rank * each; s < (rank + 1) * each; s++)
        for (uint32_t i = 0; i < rows_[epoch][s].n && i < most; i++) {
            int all = 1;
            for (uint32_t k = 0; now_.zip && k < now_.n; k++)
                all &= !rows_[epoch][s].at[i][k].place;
            *whole += (uint32_t)all;
            *left += (uint32_t)!all;
        }
}

enum { NOT_NONE, PERHAPS, SURELY };

/* Is the end of an epoch the error that it has no valid row? A rank of several needs 32 items that
   have failed, or 1,000 if the first was left out by DLP_SKIP. */
static int none_is_due(uint64_t epoch, uint32_t rank, uint32_t world) {
    uint32_t whole, left;
    rows_of_rank(epoch, rank, world, &whole, &left);
    if (whole > 0 || left == 0) return NOT_NONE;
    if (world == 1 || left >= 1000 || (now_.none && left >= 32)) return SURELY;
    return now_.drops && left >= 32 ? PERHAPS : NOT_NONE;
}

/* True if an epoch is over since one branch is out in all streams, and that branch had no item. */
static int ends_barren(uint64_t epoch) {
    for (uint32_t s = 1; s < now_.streams; s++)
        if (by_[s] != by_[0]) return 0;
    return now_.n > 1 && now_.steps == 0 && read_[epoch][by_[0]] == 0;
}

/* Write all rows, up to an epoch that ends with a branch which had no item. Returns 0: this table
   can't be run. */
static int write_down(void) {
    const uint32_t m = now_.batch / now_.streams;
    memset(read_, 0, sizeof read_);
    barren_ = NEVER;
    for (uint64_t epoch = 0; epoch < EPOCHS && barren_ == NEVER; epoch++) {
        for (uint64_t s = 0; s < now_.streams; s++) {
            write_stream(epoch, s);
            if (rows_[epoch][s].n == MOST_ROWS) return 0;
            if (now_.steps > 0 && rows_[epoch][s].n < (uint32_t)now_.steps * m) return 0;
        }
        if (ends_barren(epoch))
            barren_ = epoch;
        else if (batches_of(epoch) == 0)
            return 0;
    }
    return 1;
}

/* ---- is a batch what it should be? ---- */

static int item_is(const dlp_batch *b, uint32_t r, uint32_t field, const item *it) {
    int ok = ((const uint64_t *)b->fields[field].data)[r] == it->x;
    if (now_.ragged) {
        const uint8_t *t = (const uint8_t *)b->fields[field + 1].data + 3 * (size_t)r;
        ok &= b->fields[field + 1].lengths[r] == it->t % 4;
        for (uint64_t i = 0; i < 3; i++) ok &= t[i] == (i < it->t % 4 ? (it->t & 255) : 0);
    }
    if (now_.extra)
        ok &= ((const uint64_t *)b->fields[field + 1 + (uint32_t)now_.ragged].data)[r] == it->e;
    return ok;
}

static int row_is(const dlp_batch *b, uint32_t r, const item *it) {
    const uint32_t each = 1u + (uint32_t)now_.ragged + (uint32_t)now_.extra;
    int ok = b->index[r] == it->input, whole = 1;
    for (uint32_t k = 0; now_.zip && k < now_.n; k++) whole &= !it[k].place;
    if (b->valid[r] != whole) return 0;
    for (uint32_t k = 0; whole && k < (now_.zip ? now_.n : 1); k++)
        ok &= item_is(b, r, each * k, &it[k]);
    return ok;
}

/* Is the row one of the window that has row `at` of the stream? */
static int fits(const dlp_batch *b, uint32_t r, const rows *x, uint32_t at) {
    const uint32_t n = now_.window > 0 ? now_.window : 1, first = at / n * n;
    for (uint32_t i = first; i < first + n && i < x->n; i++)
        if (row_is(b, r, x->at[i])) return 1;
    return 0;
}

static const char *batch_wrong(const dlp_batch *b, uint64_t epoch, uint32_t k, uint32_t rank,
                               uint32_t world) {
    const uint32_t m = now_.batch / now_.streams;
    uint32_t own = now_.batch / world;
    if (b->epoch != epoch || b->in_epoch != k) return "another batch";
    if (epoch != barren_ && ((b->flags & DLP_BATCH_LAST) != 0) != (k + 1 == batches_of(epoch)))
        return "flags";
    if (now_.streams == 1 && world == 1 && now_.steps == 0 && now_.last <= DLP_LAST_DEFAULT &&
        rows_[epoch][0].n - k * m < m)
        own = rows_[epoch][0].n - k * m;
    if (b->count != own) return "count";
    for (uint32_t r = 0; r < own; r++) {
        const uint32_t g = rank * own + r, at = k * m + g % m;
        const rows *x = &rows_[epoch][g / m];
        if (at >= x->n ? b->valid[r] != 0 : !fits(b, r, x, at)) return "a row";
    }
    return NULL;
}

/* ---- a source that gives back later, in another order ---- */

static __thread store own_[MOST_BRANCHES]; /* of branches whose workers have no state */

static int store_open(void *user, int worker, void **state) {
    store *s = calloc(1, sizeof *s);
    (void)worker;
    if (s != NULL) s->of = user;
    return (*state = s) == NULL;
}
static void store_close(void *user, int worker, void *state) {
    const store *s = state;
    (void)worker;
    CHECK(s->of == user && s->n == 0);
    free(state);
}
static store *store_of(const branch *b, void *state) {
    if (!b->states) return &own_[b->id];
    CHECK(((store *)state)->of == b);
    return state;
}
static int submit(void *user, void *state, dlp_item *it) {
    store *s = store_of(user, state);
    if (s->n == 8 || ++s->calls % 9 == 4) return DLP_FULL;
    s->held[s->n++] = it;
    if (s->n > __atomic_load_n(&shared_->most_out, __ATOMIC_RELAXED))
        __atomic_store_n(&shared_->most_out, s->n, __ATOMIC_RELAXED);
    die_now_and_then(user, it->index);
    return 0;
}
static int reap(void *user, void *state, dlp_item **done, int *code, int max, int ms) {
    store *s = store_of(user, state);
    int n = 0;
    (void)ms;
    for (uint32_t k = s->n > 0 ? 1 + s->calls++ % s->n : 0; k > 0 && n < max; k--, n++) {
        const uint32_t at = s->calls * 7 % s->n;
        done[n] = s->held[at];
        s->held[at] = s->held[--s->n];
        code[n] = read_item(user, done[n]);
    }
    return n;
}
static const dlp_async source_ = {.submit = submit, .reap = reap};

/* ---- the table ---- */

/* Return max_bytes of an expand. In half of the lists with ragged items the last expand has it, if
   no load makes other items of its items. */
static uint64_t bytes_of(const branch *b, const verb *r) {
    const int after = b == &now_.after, packs = now_.packs && (after || now_.n == 1);
    uint64_t one = packs ? 3 : 8 + 3 + 8 * (uint64_t)now_.extra, most = 1;
    if (!now_.ragged || (now_.packs && now_.zip) || mixed(now_.seed, 90 + b->id) % 2) return 0;
    if (after && now_.zip) one *= now_.n;
    if (b->loads == NOT_COUNTED) most = PART;
    for (uint64_t i = 0; b->loads && i < b->n; i++) /* those that are counted */
        if (part_items(b, i) > most) most = part_items(b, i);
    for (uint32_t i = 0; i < b->n_verbs; i++) {
        if (b->verbs[i].kind != EXPANDS && b->verbs[i].kind != LOADS) continue;
        if (&b->verbs[i] > r) return 0;
        most *= OUT;
    }
    return most * one;
}

/* Write the row of a verb; a load has a fetch behind it. Returns how many rows. */
static uint32_t verb_of(const branch *b, verb *r, dlp_node *to) {
    const uint32_t fields = 1u + (uint32_t)now_.ragged;
    dlp_node node = {.name = r->name, .verb = DLP_MAP};
    if (r->kind == CHANGES || r->kind == ADDS) node.map.item = change, node.map.user = r;
    if (r->kind == ADDS) node.map.fields = &b->fields[fields], node.map.n_fields = 1;
    if (r->kind == KEEPS) {
        node.verb = DLP_FILTER;
        node.filter = (dlp_node_filter){.keep = keep, .user = r};
    } else if (r->kind == FETCHES) {
        node.verb = DLP_FETCH;
        node.fetch = (dlp_node_fetch){
            .fetch = fetch_later, .user = r, .fields = &b->fields[fields], .n_fields = 1};
    } else if (r->kind == EXPANDS) {
        node.verb = DLP_EXPAND;
        node.expand = (dlp_node_expand){
            .expand = expand, .user = r, .max_out = OUT, .max_bytes = bytes_of(b, r)};
    } else if (r->kind == LOADS) {
        node.verb = DLP_LOAD;
        node.load = (dlp_node_load){
            .load = load_of_item, .user = r, .max_items = OUT, .max_part_bytes = 8 * OUT};
        to[1] = (dlp_node){.name = r->fetch, .verb = DLP_FETCH};
        to[1].fetch = (dlp_node_fetch){.fetch = fetch_of_item,
                                       .user = r,
                                       .fields = b->fields,
                                       .n_fields = fields + (uint32_t)r->has_e};
    }
    to[0] = node;
    return 1 + (r->kind == LOADS);
}

static dlp_node load_of(branch *b) {
    dlp_node node = {.name = b->load, .verb = DLP_LOAD};
    node.load = (dlp_node_load){
        .load = load, .user = b, .max_part_bytes = 8 * PART, .shuffle_items = b->shuffles_items};
    if (b->loads == COUNTED) node.load.items = b->items;
    if (b->loads == BY_FUNCTION) node.load.count = count;
    if (b->loads == NOT_COUNTED) node.load.max_items = PART, node.load.min_items = b->least;
    return node;
}

/* The rows that read the inputs of a list. */
static uint32_t inputs_rows(branch *b, dlp_node *to, const life *l) {
    uint32_t n = 0;
    to[n++] = (dlp_node){
        .name = b->list, .verb = DLP_LIST, .list = {.n_items = b->n, .shuffle = b->shuffle}};
    if (b->loads) to[n++] = load_of(b);
    to[n] = (dlp_node){.name = b->read, .verb = DLP_FETCH};
    to[n].fetch = (dlp_node_fetch){
        .fetch = read_item, .user = b, .fields = b->fields, .n_fields = 1u + (uint32_t)now_.ragged};
    if (b->reads == THREADS && l->workers > 0) to[n].fetch.in_flight = 3;
    if (b->reads == LATER && l->workers > 0) {
        to[n].fetch.async = &source_;
        to[n].fetch.in_flight = 6;
        to[n].fetch.fetch = NULL;
    }
    return n + 1;
}

static uint32_t branch_of(branch *b, dlp_node *to, const life *l) {
    const dlp_workers_desc w = {
        .num_workers = l->workers,
        .placement = l->processes ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS,
        .on_error = now_.drops ? DLP_ON_ERROR_DROP : DLP_ON_ERROR_RAISE,
        .retries = bad_.row != NOWHERE && bad_.tries < UINT32_MAX ? (int32_t)bad_.tries : 0};
    const uint32_t first = 1;
    uint32_t n = b->pushed ? 1 : inputs_rows(b, to, l);
    if (b->pushed)
        to[0] = (dlp_node){.name = b->list, .verb = DLP_PUSH, .push = {.source = b->push}};
    for (uint32_t i = 0; i < b->n_verbs; i++) n += verb_of(b, &b->verbs[i], to + n);
    if (n == first) return n;
    to[first + b->wraps % (n - first)].workers = w;
    if (b->states) {
        dlp_workers_desc *own = &to[first + b->wraps % (n - first)].workers;
        own->worker_init = store_open;
        own->worker_exit = store_close;
        own->worker_user = b;
    }
    to[first].queue.capacity = now_.cells[b->id];
    return n;
}

static int nothing(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}

static uint32_t table_of(dlp_node *to, const life *l, const char **from) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < now_.n; k++) {
        n += branch_of(&now_.at[k], to + n, l);
        from[k] = to[n - 1].name;
    }
    from[now_.n] = NULL;
    if (now_.n > 1)
        to[n++] = (dlp_node){.name = "both", .from = from, .verb = now_.zip ? DLP_ZIP : DLP_MIX};
    if (now_.n > 1 && !now_.zip) {
        static dlp_mix_leg legs[MOST_LEGS];
        for (uint32_t k = 0; k < now_.n_legs; k++)
            legs[k] = (dlp_mix_leg){.from = now_.leg[k].from, .weights = now_.leg[k].weights};
        to[n - 1].mix.weights = now_.weights;
        if (now_.n_legs > 0) to[n - 1].mix.legs = legs;
        to[n - 1].mix.n_legs = now_.n_legs;
    }
    for (uint32_t i = 0; i < now_.after.n_verbs; i++)
        n += verb_of(&now_.after, &now_.after.verbs[i], to + n);
    if (now_.packs) {
        to[n++] = (dlp_node){.name = "t alone",
                             .verb = DLP_MAP,
                             .map = {.item = nothing, .ends = now_.extra ? "x e" : "x"}};
        to[n++] = (dlp_node){
            .name = "cut",
            .verb = DLP_PACK,
            .pack = {.tokens = TOKENS, .overlap = now_.overlap, .max_segments = SEGMENTS}};
    }
    if (now_.window > 0)
        to[n++] =
            (dlp_node){.name = "window", .verb = DLP_WINDOW, .window = {.items = now_.window}};
    to[n++] = (dlp_node){
        .name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = now_.batch, .last = now_.last}};
    return n;
}

static dlp_pipe *open_rank(const life *l, uint32_t rank, const dlp_state *resume) {
    dlp_node nodes[DLP_MAX_NODES];
    const char *from[MOST_BRANCHES + 1];
    const dlp_pipe_desc d = {.seed = now_.seed,
                             .epochs = EPOCHS,
                             .streams = now_.streams,
                             .steps_per_epoch = now_.steps,
                             .epoch_end = now_.ends,
                             .rank = rank,
                             .world_size = l->world,
                             .resume = resume};
    dlp_error e;
    dlp_pipe *p = NULL;
    const uint32_t n = table_of(nodes, l, from);
    if (dlp_pipe_open(&p, nodes, n, &d, &e) == DLP_OK) return p;
    printf("open: %s, %s: %s\n", e.stage, e.field, e.message);
    return NULL;
}

typedef struct place {
    uint64_t epoch;
    uint32_t k;
    int due; /* the end of the epoch before is still to be told */
} place;

static struct {
    int there;
    dlp_state state;
} states_[2][EPOCHS][MOST_ROWS + 1]; /* [due]: after batch k, of all ranks */

/* Note the state at a place, or compare it with the noted one. */
static int state_is(const place *at, const dlp_state *state) {
    const uint64_t epoch = at->epoch < EPOCHS ? at->epoch : 0;
    const uint32_t k = at->epoch < EPOCHS ? at->k : MOST_ROWS;
    if (states_[at->due][epoch][k].there)
        return memcmp(state->bytes, states_[at->due][epoch][k].state.bytes, sizeof *state) == 0;
    states_[at->due][epoch][k].there = 1;
    states_[at->due][epoch][k].state = *state;
    return 1;
}

static int ended_;                /* a rank has ended with an error that was to come */
static uint32_t nones_, barrens_; /* such errors; and those of a branch without an item */

/* Is it an error that was to come? due: of none_is_due; SURELY also if the epoch ends with a branch
   that had no item. */
static int is_wanted_error(dlp_pipe *p, const place *at, int due, int from_start) {
    const char *message = dlp_pipe_error(p)->message;
    if (at->epoch == barren_ && from_start && !at->due)
        return strstr(message, "has no item: its") != NULL ||
               (none_is_due(at->epoch, 0, 1) != NOT_NONE &&
                strstr(message, "no valid row") != NULL) ||
               (batches_of(at->epoch) == 0 && strstr(message, "the inputs have no ") != NULL);
    return due != NOT_NONE && strstr(message, "has no valid row") != NULL;
}

/* Go behind a batch, or behind the end of an epoch. */
static void go_on(place *at) {
    at->due = 0;
    if (++at->k < batches_of(at->epoch) || at->epoch == barren_) return;
    at->epoch++;
    at->k = 0;
    at->due = now_.ends;
}

/* Take batches of one rank from a place on. Returns 0: something was wrong. */
static int run_rank(const life *l, uint32_t rank, place *at, const dlp_state *resume,
                    dlp_state *state) {
    dlp_pipe *p = open_rank(l, rank, resume);
    const char *what = NULL;
    int rc = p == NULL, from_start = at->k == 0, due = NOT_NONE;
    ended_ = 0;
    for (uint32_t i = 0; rc == 0 && i < l->stop && what == NULL; i++) {
        dlp_batch *b = NULL;
        rc = dlp_pipe_next(p, &b);
        ended_ = rc == DLP_ERR_CALLBACK && is_wanted_error(p, at, due, from_start);
        if (due == SURELY && !ended_) what = "an epoch without a valid row is no error";
        due = NOT_NONE;
        if (rc == DLP_EPOCH_END && at->due) {
            rc = DLP_OK;
            at->due = 0;
            dlp_pipe_state(p, NULL, state);
            if (l->world == 1 && !state_is(at, state)) what = "the state behind an end";
            continue;
        }
        if (rc != DLP_OK || what != NULL) break;
        if (at->due) what = "no end of an epoch";
        if (at->epoch == barren_ && at->k == batches_of(at->epoch)) what = "no barren branch";
        if (what != NULL) break;
        if ((what = batch_wrong(b, at->epoch, at->k, rank, l->world)) != NULL) break;
        go_on(at);
        if (at->k == 0) {
            if (from_start) due = none_is_due(at->epoch - 1, rank, l->world);
            from_start = 1;
        }
        dlp_pipe_state(p, b, state);
        if (l->world == 1 && !state_is(at, state)) what = "the state";
        dlp_pipe_release(p, b);
    }
    nones_ += (uint32_t)(ended_ && at->epoch != barren_);
    barrens_ += (uint32_t)(ended_ && at->epoch == barren_);
    if (rc < 0 && p != NULL && !ended_)
        what = dlp_pipe_error(p)->message, printf("%s %d: ", dlp_pipe_error(p)->stage, rc);
    if (rc == DLP_END && (at->epoch != EPOCHS || at->k != 0 || at->due)) what = "an early end";
    if (what != NULL)
        printf("rank %u of %u, epoch %u, batch %u, due %d: %s\n", rank, l->world,
               (unsigned)at->epoch, at->k, at->due, what);
    if (p != NULL) dlp_pipe_close(p);
    CHECK(what == NULL && p != NULL);
    return what == NULL && p != NULL;
}

/* Go on from life to life, each with other workers and, with steps, other ranks. */
static int run_lives(void) {
    dlp_state state, all[4];
    place at = {0, 0, 0};
    memset(states_, 0, sizeof states_);
    memset(shared_, 0, sizeof *shared_);
    for (int i = 0; i < now_.lives && at.epoch < EPOCHS; i++) {
        const life *l = &now_.life[i];
        place end = at;
        dlp_error e;
        for (uint32_t rank = 0; rank < l->world; rank++) {
            end = at;
            if (!run_rank(l, rank, &end, i > 0 ? &state : NULL, &all[rank])) return 0;
            if (ended_) return 1;
        }
        at = end;
        if (dlp_state_merge(&state, all, l->world, &e) != DLP_OK) {
            printf("merge: %s\n", e.message);
            CHECK(0);
            return 0;
        }
        CHECK(state_is(&at, &state));
    }
    if (at.epoch != EPOCHS) return 0;
    deaths_ += shared_->deaths;
    if (shared_->most_out > most_out_) most_out_ = shared_->most_out;
    return 1;
}

/* ---- tables at random ---- */

static uint64_t gcd(uint64_t a, uint64_t b) { return b == 0 ? a : gcd(b, a % b); }

static int names_fields(const branch *b) {
    for (uint32_t i = 0; i < b->n_verbs; i++)
        if (b->verbs[i].kind == ADDS || b->verbs[i].kind == FETCHES) return 1;
    return 0;
}

/* How many rows of a kind there are. */
static uint32_t rows_of(const branch *b, int kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_verbs; i++) n += b->verbs[i].kind == kind;
    return n;
}

static void name_branch(branch *b) {
    const uint32_t id = b->id;
    snprintf(b->list, sizeof b->list, "list%u", id);
    snprintf(b->load, sizeof b->load, "load%u", id);
    snprintf(b->read, sizeof b->read, "read%u", id);
    snprintf(b->x, sizeof b->x, now_.zip ? "x%u" : "x", id);
    snprintf(b->t, sizeof b->t, now_.zip ? "t%u" : "t", id);
    snprintf(b->e, sizeof b->e, now_.zip ? "e%u" : "e", id);
    for (uint32_t i = 0; i < b->n_verbs; i++) {
        b->verbs[i].row = i;
        for (uint32_t k = 0; k < i; k++)
            b->verbs[i].has_e |= b->verbs[k].kind == ADDS || b->verbs[k].kind == FETCHES;
        if (b == &now_.after) b->verbs[i].has_e = now_.extra;
        b->verbs[i].of = b;
        snprintf(b->verbs[i].name, sizeof b->verbs[i].name, "r%u%u", id, i % 10);
        snprintf(b->verbs[i].fetch, sizeof b->verbs[i].fetch, "f%u%u", id, i % 10);
    }
    if (b == &now_.after) return;
    b->fields[0] = (dlp_field){.name = b->x, .dtype = DLP_U64};
    b->fields[1] = (dlp_field){.name = b->t, .dtype = DLP_U8, .ndim = 1, .shape = {3}, .ragged = 1};
    b->fields[1 + now_.ragged] = now_.ragged ? b->fields[1] : b->fields[0];
    b->fields[1 + now_.ragged] = (dlp_field){.name = b->e, .dtype = DLP_U64};
    for (uint64_t i = 0; i < b->n; i++) b->items[i] = part_items(b, i);
}

/* Make a branch one that begins with a push. Without rows that note them, records have one
   producer. */
static void draw_pushed(uint64_t *s, branch *b) {
    b->pushed = 1;
    b->n = 1 + pick(s, pick(s, 3) ? 40 : INPUTS);
    b->loads = b->states = b->shuffle = 0;
    b->reads = ONE_BY_ONE;
}

static void draw_branch(uint64_t *s, uint32_t k, int pushed) {
    branch *b = &now_.at[k];
    do {
        *b = (branch){.id = k,
                      .n = now_.streams + pick(s, pick(s, 4) ? 20 : LISTED - MOST_STREAMS),
                      .shuffle = pick(s, 3) > 0,
                      .n_verbs = pick(s, MOST_VERBS + 1),
                      .wraps = pick(s, 6),
                      .states = (int)pick(s, 2),
                      .reads = (int)pick(s, 3),
                      .loads = pick(s, 2) ? (int)pick(s, 4) : NO_LOAD,
                      .shuffles_items = (int)pick(s, 2)};
        for (uint32_t i = 0; i < b->n_verbs; i++) {
            b->verbs[i].kind = (int)pick(s, VERBS);
            if (now_.zip && now_.drops && b->verbs[i].kind >= KEEPS) b->verbs[i].kind = CHANGES;
            if (pushed && b->verbs[i].kind == FETCHES) b->verbs[i].kind = ADDS;
        }
        if (now_.zip && now_.drops) b->loads = NO_LOAD;
        if (b->loads) b->reads = ONE_BY_ONE;
        if (b->loads == NOT_COUNTED && pick(s, 2)) b->least = 3;
        if (pushed) draw_pushed(s, b);
    } while (rows_of(b, EXPANDS) + rows_of(b, LOADS) > 3 || names_fields(b) != now_.extra ||
             rows_of(b, ADDS) + rows_of(b, FETCHES) > 1);
    now_.weights[k] = 1 + pick(s, pick(s, 3) ? 4 : 12);
}

/* True if the row makes items. */
static int is_maker(int kind) { return kind == KEEPS || kind >= EXPANDS; }

/* What stands behind the branches. Behind one branch alone that is a window: other rows are its
   own, up to the last maker. */
static void draw_after(uint64_t *s) {
    const int kinds[] = {CHANGES, KEEPS, EXPANDS};
    branch *b = &now_.after;
    uint32_t *n = now_.n == 1 ? &now_.at[0].n_verbs : &b->n_verbs;
    b->id = MOST_BRANCHES;
    if (now_.n > 1 && (pick(s, 2) || (now_.zip && now_.drops))) return;
    b->n_verbs = now_.n > 1 ? pick(s, 4) : 0;
    for (uint32_t i = 0; i < b->n_verbs; i++) b->verbs[i].kind = kinds[pick(s, 3)];
    now_.window = pick(s, 2) ? 1 + pick(s, 9) : 0;
    while (*n > 0 && !is_maker((now_.n == 1 ? &now_.at[0] : b)->verbs[*n - 1].kind)) --*n;
}

static void draw_life(uint64_t *s, life *l, int last) {
    const uint32_t worlds[] = {1, 2, 4, 3};
    uint32_t w = now_.steps > 0 ? worlds[pick(s, 4)] : 1;
    if (now_.batch % w != 0 || now_.streams % w != 0) w = 1;
    *l = (life){.world = w,
                .stop = last ? UINT32_MAX : 1 + pick(s, 12),
                .workers = (int)pick(s, 4),
                .processes = (now_.kill_every > 0 || pick(s, 5) == 0) && forks_};
    if (l->workers == 0) l->workers = DLP_NONE, l->processes = 0;
}

/* Rows of the table. */
static uint32_t table_rows(void) {
    uint32_t n = 2 + now_.after.n_verbs + (now_.window > 0) + 2 * (uint32_t)now_.packs;
    for (uint32_t k = 0; k < now_.n; k++)
        n += 2u + (now_.at[k].loads > 0) + now_.at[k].n_verbs + rows_of(&now_.at[k], LOADS);
    return n;
}

/* True if a table of one branch has no maker, or not the fields that were drawn. */
static int lacks(void) {
    const branch *b = &now_.at[0];
    return now_.n == 1 &&
           ((b->n_verbs == 0 && (!b->pushed || now_.window == 0)) || names_fields(b) != now_.extra);
}

/* Divide weights by their greatest common divisor. Returns their sum. */
static uint64_t reduced(uint64_t *weights) {
    uint64_t g = 0, sum = 0;
    for (uint32_t k = 0; k < now_.n; k++) g = gcd(weights[k], g);
    for (uint32_t k = 0; k < now_.n; k++) sum += weights[k] /= g;
    return sum;
}

/* Give a third of the joined tables more branches, up to as many as there may be. */
static void draw_many(uint64_t s) {
    if (now_.n < 2 || mixed(s, 70) % 3 > 0) return;
    now_.n = 4 + (uint32_t)(mixed(s, 71) % (MOST_BRANCHES - 3));
    if (now_.n > 8) now_.streams = 1 + (mixed(s, 72) % 3 == 0);
    if (now_.zip && now_.n * (1u + (uint32_t)(now_.ragged + now_.extra)) > DLP_MAX_FIELDS)
        now_.ragged = now_.extra = 0;
}

/* True if a state has no room for the places in so many branches. */
static int is_too_wide(void) {
    const life l = {.world = 1, .workers = 1};
    dlp_node nodes[DLP_MAX_NODES];
    const char *from[MOST_BRANCHES + 1];
    const dlp_pipe_desc d = {.streams = now_.streams, .steps_per_epoch = now_.steps};
    dlp_plan plan;
    dlp_error e;
    return now_.n > 8 &&
           dlp_nodes_plan(nodes, table_of(nodes, &l, from), &d, &plan, &e) == DLP_ERR_ARG &&
           strstr(e.message, "a state has no room for the places") != NULL;
}

/* Give a third of the mixes legs, which begin in the first batches. */
static void draw_legs(uint64_t s) {
    uint64_t from = 0;
    if (now_.zip || now_.n < 2 || pick(&s, 3) > 0) return;
    now_.n_legs = 1 + pick(&s, MOST_LEGS);
    for (uint32_t i = 0; i < now_.n_legs; i++) {
        struct leg *l = &now_.leg[i];
        l->from = from += 1 + pick(&s, pick(&s, 2) ? 20 * now_.streams : 3);
        for (uint32_t k = 0; k < now_.n; k++) l->weights[k] = pick(&s, 3) ? pick(&s, 6) : 0;
        l->weights[pick(&s, now_.n)] += 1;
        l->period = reduced(l->weights);
    }
}

static void draw_table(uint64_t seed, int pushes) {
    uint64_t s = seed;
    bad_.row = NOWHERE;
    do {
        memset(&now_, 0, sizeof now_);
        now_.seed = s;
        now_.zip = (int)pick(&s, 2);
        now_.drops = pick(&s, 3) == 0;
        now_.extra = (int)pick(&s, 2);
        now_.ragged = (int)pick(&s, 2);
        now_.n = pick(&s, 6) == 0 ? 1 : 2 + (pick(&s, 3) == 0);
        now_.zip &= now_.n > 1;
        now_.streams = pushes ? 1 : 1 + pick(&s, MOST_STREAMS);
        if (!pushes) draw_many(s);
        now_.batch = now_.streams * (1 + pick(&s, pushes ? 12 : 5));
        now_.steps = !pushes && pick(&s, 2) ? (int)(1 + pick(&s, 20)) : 0;
        now_.last = pick(&s, 2) ? DLP_LAST_DROP : DLP_LAST_PARTIAL;
        now_.kill_every = pick(&s, 3) == 0 ? 20 + pick(&s, 60) : 0;
        for (uint32_t k = 0; k < now_.n; k++) {
            draw_branch(&s, k, pushes && (pick(&s, 3) || (k + 1 == now_.n && now_.pushes == 0)));
            now_.pushes += now_.at[k].pushed;
        }
        draw_after(&s);
        now_.period = reduced(now_.weights);
        draw_legs(mixed(s, 80));
        for (uint32_t k = 0; k < now_.n; k++) name_branch(&now_.at[k]);
        name_branch(&now_.after);
        now_.lives = 1 + (int)pick(&s, LIVES);
        for (int i = 0; i < now_.lives; i++) draw_life(&s, &now_.life[i], i + 1 == now_.lives);
        now_.ends = !pushes && mixed(s, 78) % 2;
        now_.bars = now_.steps == 0 && now_.n > 1 && !pushes && mixed(s, 79) % 6 == 0;
        now_.none = now_.zip && now_.drops && !pushes && mixed(s, 77) % 4 == 0;
    } while (table_rows() > DLP_MAX_NODES || lacks() || is_too_wide() ||
             (!pushes && !write_down()));
    many_ += now_.n > 8;
    if (!pushes && barren_ < NEVER) { /* a pipe that goes on inside does not judge its epoch */
        now_.lives = 1;
        now_.life[0].stop = UINT32_MAX;
    }
}

static void draw(uint64_t seed) { draw_table(seed, 0); }

static void print_table(uint64_t seed) {
    static const char *const kinds[] = {"map", "map+", "filter", "fetch", "expand", "load"};
    printf("failed: build/tests/branch_chains 1 %llu\n", (unsigned long long)seed);
    printf(
        "  %s, %u streams, batch %u, steps %d, last %d, drops %d, kill_every %u, ends %d, bars %d, "
        "none %d\n",
        now_.zip ? "zip" : "mix", now_.streams, now_.batch, now_.steps, now_.last, now_.drops,
        now_.kill_every, now_.ends, now_.bars, now_.none);
    for (uint32_t k = 0; k < now_.n; k++) {
        const branch *b = &now_.at[k];
        printf("  %u of %u%s: loads %d, reads %d:", b->id, b->n, b->pushed ? " records" : "",
               b->loads, b->reads);
        for (uint32_t i = 0; i < b->n_verbs; i++) printf(" %s", kinds[b->verbs[i].kind]);
        printf("\n");
    }
    printf("  behind:");
    for (uint32_t i = 0; i < now_.after.n_verbs; i++)
        printf(" %s", kinds[now_.after.verbs[i].kind]);
    printf("; a window of %u, packs %d with %u repeated\n", now_.window, now_.packs, now_.overlap);
}

#include "../../rig/chains_pushed.h"

static uint64_t seed_;

static void hung(int signal_number) {
    (void)signal_number;
    print_pushes(seed_);
    printf("  it hangs\n");
    fflush(stdout);
    _exit(1);
}

/* Draw a table that may hang. */
static void draw_next(uint64_t seed, void (*from)(uint64_t seed)) {
    signal(SIGALRM, hung);
    alarm(100);
    seed_ = seed;
    from(seed);
}

static void random_pushes__beside_a_plain_program__same_rows(uint64_t first, uint64_t n) {
    for (uint64_t seed = first; seed < first + n && test_failures == 0; seed++) {
        const char *what;
        draw_next(seed, draw_pushes);
        what = run_pushes();
        CHECK(what == NULL);
        if (what != NULL) printf("  %s\n", what);
        if (test_failures > 0) print_pushes(seed);
    }
}

static void random_tables__beside_a_plain_program__same_rows(uint64_t first, uint64_t n) {
    for (uint64_t seed = first; seed < first + n && test_failures == 0; seed++) {
        draw_next(seed, draw);
        if (!run_lives()) print_table(seed);
    }
}

/* Resume at every batch, with other workers. */
static void every_batch__resumed__goes_on_alike(uint64_t first, uint64_t n) {
    for (uint64_t seed = first; seed < first + n && test_failures == 0; seed++) {
        const life whole = {.world = 1, .stop = UINT32_MAX, .workers = 1};
        dlp_state state;
        place at = {0, 0, 0};
        draw_next(seed, draw);
        now_.kill_every = 0;
        memset(states_, 0, sizeof states_);
        memset(shared_, 0, sizeof *shared_);
        if (!run_rank(&whole, 0, &at, NULL, &state)) {
            print_table(seed);
            return;
        }
        for (uint32_t i = 0; i < 2 * EPOCHS * MOST_ROWS && barren_ == NEVER; i++) {
            const int due = i >= EPOCHS * MOST_ROWS;
            const uint64_t epoch = i / MOST_ROWS % EPOCHS;
            const uint32_t k = i % MOST_ROWS;
            const life l = {.world = 1, .stop = 3, .workers = i % 3 == 0 ? DLP_NONE : (int)(i % 5)};
            if (!states_[due][epoch][k].there) continue;
            at = (place){epoch, k, due};
            if (!run_rank(&l, 0, &at, &states_[due][epoch][k].state, &state)) {
                print_table(seed);
                return;
            }
        }
    }
}

/* ---- a row that fails ---- */

/* The batch that lacks a row of the failed input fails; batches before it are whole. */
static void fails_for_ever(int workers) {
    const life l = {.world = 1, .workers = workers};
    const branch *b = &now_.at[bad_.branch];
    const char *row = bad_.row < b->n_verbs ? b->verbs[bad_.row].name : NULL;
    dlp_pipe *p = open_rank(&l, 0, NULL);
    dlp_batch *batch;
    const dlp_error *e;
    uint32_t whole = 0;
    int rc = DLP_END;
    while (p != NULL && (rc = dlp_pipe_next_timeout(p, &batch, 20000)) == DLP_OK) {
        for (uint32_t r = 0; r < batch->count; r++)
            CHECK(row_is(batch, r, rows_[0][0].at[now_.batch * whole + r]));
        whole++;
        dlp_pipe_release(p, batch);
    }
    CHECK(p != NULL && whole == rows_[0][0].n / now_.batch && rc == DLP_ERR_CALLBACK);
    if (p == NULL) return;
    e = dlp_pipe_error(p);
    CHECK(strstr(e->message, "no ") != NULL);
    if (bad_.row >= AT_ITEM && bad_.row < AT_LOAD)
        row = b->verbs[bad_.row - AT_ITEM].fetch;
    else if (row == NULL)
        row = bad_.row == AT_LOAD ? b->load : b->read;
    if (strcmp(e->stage, row) != 0) printf("  \"%s\": %s\n", e->stage, e->message);
    CHECK(strcmp(e->stage, row) == 0);
    CHECK(e->has_item && e->index == bad_.input);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* It fails twice, and is tried again: nothing is lost. */
static void fails_twice(int workers) {
    const life l = {.world = 1, .stop = UINT32_MAX, .workers = workers};
    place at = {0, 0, 0};
    dlp_state state;
    memset(states_, 0, sizeof states_);
    if (write_down()) run_rank(&l, 0, &at, NULL, &state);
}

/* Each row of each branch fails, for an input that comes to it. Returns how many did. */
static uint32_t each_row_fails(void) {
    static const int workers[] = {DLP_NONE, 1, 4};
    uint32_t n = 0;
    for (uint32_t k = 0; k < now_.n; k++)
        for (uint32_t i = 0; i < 2 * now_.at[k].n_verbs + 2; i++) {
            const uint32_t verbs = now_.at[k].n_verbs;
            const uint32_t row = i < verbs        ? i
                                 : i == verbs     ? AT_FETCH
                                 : i == verbs + 1 ? AT_LOAD
                                                  : AT_ITEM + i - verbs - 2;
            for (uint64_t input = 0; input < now_.at[k].n; input++) {
                bad_.branch = k;
                bad_.row = row;
                bad_.input = input;
                bad_.tries = UINT32_MAX;
                hit_ = 0;
                write_stream(0, 0);
                if (!hit_) continue; /* the last that the plain program read is that input */
                fails_for_ever(workers[n++ % 3]);
                bad_.tries = 2;
                fails_twice(workers[n % 3]);
                break;
            }
        }
    bad_.row = NOWHERE;
    return n;
}

static void rows__fail__batch_fails_or_is_tried_again(uint64_t first, uint64_t n) {
    const int few = n < 3;
    uint32_t failed = 0;
    for (uint64_t seed = first; n > 0 && test_failures == 0; seed++) {
        draw_next(seed, draw);
        if (now_.drops) continue;
        now_.streams = 1;
        now_.steps = 0;
        now_.ends = now_.bars = 0;
        now_.kill_every = 0;
        now_.last = DLP_LAST_PARTIAL;
        now_.window = now_.after.n_verbs = 0;
        failed += each_row_fails();
        if (test_failures > 0) print_table(seed);
        n--;
    }
    printf("  %u rows failed, %u epochs had no valid row, %u a branch without an item\n", failed,
           nones_, barrens_);
    CHECK(few || failed > 0);
}

/* ---- one table, changed ---- */

/* Two branches: parts of 0 to 5 items, from which a filter takes some; a fetch. */
static void two(int zip, int loads, int reads) {
    memset(&now_, 0, sizeof now_);
    memset(shared_, 0, sizeof *shared_);
    memset(states_, 0, sizeof states_);
    bad_.row = NOWHERE;
    now_.seed = 5;
    now_.zip = zip;
    now_.n = 2;
    now_.streams = 2;
    now_.batch = 8;
    now_.last = DLP_LAST_DROP;
    now_.at[0] = (branch){.id = 0, .n = 40, .shuffle = 1, .loads = loads, .n_verbs = 1};
    now_.at[0].verbs[0].kind = KEEPS;
    now_.at[1] = (branch){.id = 1, .n = 30, .shuffle = 1, .reads = reads};
    now_.weights[0] = 3;
    now_.weights[1] = 1;
    now_.period = 4;
    name_branch(&now_.at[0]);
    name_branch(&now_.at[1]);
}

/* Rows 0 list0, 1 load0, 2 read0, 3 r00, 4 list1, 5 read1, 6 both, 7 batch. */
typedef struct table {
    dlp_node row[24];
    const char *from[MOST_BRANCHES + 1];
    uint32_t n;
    dlp_pipe_desc d;
} table;

static void table_begin(table *t, int workers) {
    const life l = {.world = 1, .stop = UINT32_MAX, .workers = workers};
    memset(t, 0, sizeof *t);
    t->n = table_of(t->row, &l, t->from);
    t->d = (dlp_pipe_desc){.seed = now_.seed, .epochs = EPOCHS, .streams = now_.streams};
}

/* The table is refused: the error names this row, and has these words. */
static int refused(const table *t, const char *row, const char *words) {
    dlp_pipe *p = NULL;
    dlp_error e = {.code = 0};
    const int rc = dlp_pipe_open(&p, t->row, t->n, &t->d, &e);
    const int ok = rc < 0 && strcmp(e.stage, row) == 0 && strstr(e.message, words) != NULL &&
                   strlen(e.message) <= 160;
    if (!ok) printf("%d of \"%s\": %s, %s: %s\n", rc, row, e.stage, e.field, e.message);
    if (p != NULL) dlp_pipe_close(p);
    return ok;
}

static void rows__out_of_place__refused_by_name(void) {
    table t;
    for (int zip = 0; zip < 2; zip++) {
#define REFUSED(workers, row, words, ...) \
    do { \
        two(zip, NOT_COUNTED, LATER); \
        table_begin(&t, workers); \
        __VA_ARGS__; \
        CHECK(refused(&t, row, words)); \
    } while (0)
        REFUSED(1, "list0", "no load, fetch or expand", t.row[1].verb = DLP_MAP);
        REFUSED(1, "r00", "must stand directly after the list",
                t.row[3] = (dlp_node){.name = "r00", .verb = DLP_LOAD});
        REFUSED(1, "read0", "after the other", (t.row[2].fetch.async = &source_));
        REFUSED(1, "list1", "0 in a branch", t.row[4].list.open_end = 1);
        REFUSED(DLP_NONE, "read1", "num_workers",
                (t.row[5].fetch.async = &source_, t.row[5].fetch.fetch = NULL));
        REFUSED(1, "r00", "max_part_bytes", t.row[1].load.max_part_bytes = 0);
        REFUSED(1, "r00", "min_items", t.row[1].load.min_items = PART + 1);
        REFUSED(1, "load0", "queue_size", t.row[1].load.queue_size = 9);
        if (zip)
            REFUSED(1, "load0", "this branch of a zip",
                    (t.row[1].workers.on_error = t.row[5].workers.on_error = DLP_ON_ERROR_DROP));
    }
}

/* Cells can be as few as a batch needs, not one less, in a branch that loads, too. */
static void cells__one_less_than_needed__refused(void) {
    for (int zip = 0; zip < 2; zip++) {
        /* R = 2 m = 8 rows of a stream: 8 of each branch of a zip, 6 and 2 of a mix of 3 and 1 */
        const uint32_t need[2] = {zip ? 16 : 12, zip ? 16 : 4};
        const life l = {.world = 1, .stop = UINT32_MAX, .workers = 1};
        place at = {0, 0, 0};
        dlp_state state;
        table t;
        two(zip, NOT_COUNTED, LATER);
        for (int k = 0; k < 2; k++) {
            table_begin(&t, 1);
            t.row[k == 0 ? 1 : 5].queue.capacity = need[k] - 1;
            CHECK(refused(&t, k == 0 ? "r00" : "read1", "at once"));
            now_.cells[k] = need[k];
        }
        CHECK(write_down());
        run_rank(&l, 0, &at, NULL, &state);
    }
}

/* With min_items a branch that loads needs fewer cells: 3 items of each part but the first. */
static void parts__of_3_items_and_more__need_fewer_cells(void) {
    const life l = {.world = 1, .stop = UINT32_MAX, .workers = 1};
    for (int zip = 0; zip < 2; zip++) {
        const uint32_t need = zip ? 2 * (1 + 3) : 2 * (1 + 2); /* 8, or 6, of a stream */
        place at = {0, 0, 0};
        dlp_state state;
        dlp_batch *b;
        dlp_error e;
        dlp_pipe *p = NULL;
        table t;
        two(zip, NOT_COUNTED, ONE_BY_ONE);
        now_.at[0].least = 3;
        now_.at[0].verbs[0].kind = CHANGES;
        table_begin(&t, 1);
        t.row[1].queue.capacity = need - 1;
        CHECK(refused(&t, "load0", "at once"));
        now_.cells[0] = need;
        CHECK(write_down());
        run_rank(&l, 0, &at, NULL, &state);
        table_begin(&t, 1);
        t.row[1].load.min_items = 2;
        CHECK(refused(&t, "load0", "at once"));
        now_.lies = 1;
        t.row[1].load.min_items = 3;
        CHECK(dlp_pipe_open(&p, t.row, t.n, &t.d, &e) == DLP_OK);
        while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(p != NULL && strstr(dlp_pipe_error(p)->message, "of a part are left") != NULL);
        if (p != NULL) dlp_pipe_close(p);
    }
}

/* Parts that are dealt by their weights: a branch of a mix has the items that a table without
   branches has. */
static void parts__dealt_by_weights__as_without_branches(void) {
    static uint64_t weights[40], alone[2][MOST_ROWS], all[2][MOST_ROWS];
    uint32_t n[2] = {0, 0}, of[2] = {0, 0};
    dlp_batch *b;
    dlp_error e;
    for (uint64_t i = 0; i < 40; i++) weights[i] = 1 + i * i;
    for (int mixes = 0; mixes < 2; mixes++) {
        uint64_t(*to)[MOST_ROWS] = mixes ? all : alone;
        uint32_t *count = mixes ? n : of;
        table t;
        dlp_pipe *p = NULL;
        two(0, NOT_COUNTED, ONE_BY_ONE);
        table_begin(&t, 2);
        t.row[1].load.weights = weights;
        t.d.epochs = 1;
        if (!mixes) t.row[4] = t.row[7], t.n = 5;
        CHECK(dlp_pipe_open(&p, t.row, t.n, &t.d, &e) == DLP_OK);
        while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) {
                const uint64_t x = ((const uint64_t *)b->fields[0].data)[r];
                if (x == of_fetch(1, b->index[r])) continue; /* of the other branch */
                to[r / 4][count[r / 4]++] = x;
            }
            dlp_pipe_release(p, b);
        }
        if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    for (int s = 0; s < 2; s++) {
        CHECK(n[s] > 10 && of[s] > 10);
        for (uint32_t i = 0; i < n[s] && i < of[s]; i++) CHECK(all[s][i] == alone[s][i]);
    }
}

/* Workers with two seats sleep while the consumer is busy: a cell that becomes open wakes a worker
   that takes it. A lost wake-up costs 100 ms. */
static void seats__asleep__woken_for_cells_of_each(void) {
    const life l = {.world = 1, .workers = 1};
    uint64_t ns = 0, n = 0;
    dlp_batch *b;
    dlp_pipe *p;
    two(1, NO_LOAD, LATER);
    now_.at[0].n = now_.at[1].n = INPUTS;
    now_.at[0].n_verbs = 0;
    name_branch(&now_.at[0]);
    now_.batch = 2;
    now_.cells[0] = now_.cells[1] = 4;
    p = open_rank(&l, 0, NULL);
    for (int rc = p == NULL; rc == 0;) {
        const uint64_t from = test_now_ns();
        if ((rc = dlp_pipe_next(p, &b)) != DLP_OK) break;
        ns += test_now_ns() - from;
        dlp_pipe_release(p, b);
        usleep(3000);
        n++;
    }
    printf("  a batch of two seats is waited for %.3f ms\n", (double)ns / 1e6 / (double)(n + 1));
    CHECK(n == EPOCHS * INPUTS / 2);
    CHECK_SOON(ns < n * 40000000);
    if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- two sources of files ---- */

static int fd_[2];

static int locate(void *user, const dlp_item *it, dlp_extent *out) {
    *out = (dlp_extent){.fd = fd_[*(const int *)user], .offset = it->index * 8, .length = 8};
    return 0;
}

/* Each branch reads its own files: workers of one never read those of the other. */
static void two_sources_of_files__joined__each_has_its_own(void) {
    static const int ids[2] = {0, 1};
    static const dlp_field fields[2] = {{.name = "x", .dtype = DLP_U64},
                                        {.name = "y", .dtype = DLP_U64}};
    for (int zip = 0; zip < 2; zip++) {
        dlp_source *source[2] = {NULL, NULL};
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_error e;
        uint64_t valid = 0;
        for (int k = 0; k < 2; k++) {
            char path[] = "/tmp/branch_chains.XXXXXX";
            fd_[k] = mkstemp(path);
            unlink(path);
            for (uint64_t i = 0; i < 50; i++) {
                const uint64_t x = of_fetch((uint64_t)k, i);
                CHECK(write(fd_[k], &x, 8) == 8);
            }
            CHECK(dlp_files_open(&source[k],
                                 &(dlp_files_desc){.n_items = 50,
                                                   .fields = &fields[zip ? k : 0],
                                                   .n_fields = 1,
                                                   .locate = locate,
                                                   .user = (void *)(uintptr_t)&ids[k]},
                                 &e) == DLP_OK);
        }
        {
            const dlp_node nodes[] = {
                {.name = "some", .verb = DLP_LIST, .list = {.shuffle = 1}},
                {.name = "a", .verb = DLP_FETCH, .fetch = {.source = source[0]}},
                {.name = "more", .verb = DLP_LIST, .list = {.shuffle = 1}},
                {.name = "b",
                 .verb = DLP_FETCH,
                 .fetch = {.source = source[1]},
                 .workers = {.num_workers = 2}},
                {.name = "both",
                 .verb = zip ? DLP_ZIP : DLP_MIX,
                 .from = (const char *[]){"a", "b", NULL}},
                {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 5}}};
            CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), &(dlp_pipe_desc){.epochs = 2}, &e) == DLP_OK);
        }
        while (p != NULL && dlp_pipe_next(p, &b) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) {
                const uint64_t x = ((const uint64_t *)b->fields[0].data)[r];
                CHECK(x == of_fetch(0, b->index[r]) || (!zip && x == of_fetch(1, b->index[r])));
                valid += b->valid[r];
            }
            dlp_pipe_release(p, b);
        }
        CHECK(zip ? valid == 100 : valid > 150 && valid <= 200);
        if (p == NULL) printf("open: %s, %s: %s\n", e.stage, e.field, e.message);
        if (p != NULL) CHECK(dlp_pipe_close(p) == DLP_OK);
        for (int k = 0; k < 2; k++) {
            dlp_source_close(source[k]);
            close(fd_[k]);
        }
    }
}

/* ---- fields that end in a branch ---- */

static int raw_fetch(void *user, dlp_item *it) {
    uint64_t raw[4];
    (void)user;
    for (uint64_t i = 0; i < 4; i++) raw[i] = mixed(mixed(7, it->index), i);
    memcpy(it->data[0], raw, sizeof raw);
    *(uint64_t *)it->data[1] = it->index;
    return 0;
}
static int raw_sum(void *user, dlp_item *it) {
    const uint64_t *raw = it->data[0];
    (void)user;
    *(uint64_t *)it->data[2] = raw[0] + raw[1] + raw[2] + raw[3];
    return 0;
}
static int raw_keep(void *user, const dlp_item *it) { /* "raw" has ended: index, sum */
    (void)user;
    return it->n_fields == 2 ? *(const uint64_t *)it->data[1] % 3 != 0 : 7;
}
static int other_number(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index + 1000;
    return 0;
}

static uint64_t raw_sum_of(uint64_t index) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 4; i++) sum += mixed(mixed(7, index), i);
    return sum;
}

/* In the first branch a map ends a field, then a filter sees what is left. */
static void fields__end_in_a_branch__others_go_on(void) {
    const dlp_field raw[2] = {{"raw", DLP_U64, 1, {4}, 0, 0}, {"number", DLP_U64, 0, {0}, 0, 0}};
    const dlp_field sum = {"sum", DLP_U64, 0, {0}, 0, 0}, other = {"other", DLP_U64, 0, {0}, 0, 0};
    const char *const from[] = {"keep", "others", NULL};
    for (int workers = 0; workers < 4; workers += 1 + workers) {
        const dlp_node nodes[] = {
            {.name = "list", .verb = DLP_LIST, .list = {.n_items = 200}},
            {.name = "read",
             .verb = DLP_FETCH,
             .fetch = {.fetch = raw_fetch, .fields = raw, .n_fields = 2},
             .workers = {.num_workers = workers ? workers : DLP_NONE}},
            {.name = "sum",
             .verb = DLP_MAP,
             .map = {.item = raw_sum, .fields = &sum, .n_fields = 1, .ends = "raw"}},
            {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = raw_keep}},
            {.name = "list2", .verb = DLP_LIST, .list = {.n_items = 200}},
            {.name = "others",
             .verb = DLP_FETCH,
             .fetch = {.fetch = other_number, .fields = &other, .n_fields = 1}},
            {.name = "zip", .verb = DLP_ZIP, .from = from},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_error err;
        uint64_t n = 0, index = 0;
        int rc;
        CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err) == DLP_OK);
        while (p != NULL && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            const uint64_t *of[3];
            CHECK(b->n_fields == 3 && strcmp(b->fields[0].name, "number") == 0 &&
                  strcmp(b->fields[1].name, "sum") == 0);
            for (int f = 0; f < 3; f++) of[f] = b->fields[f].data;
            for (uint32_t r = 0; r < b->count; r++, n++, index++) {
                while (raw_sum_of(index) % 3 == 0) index++;
                CHECK(of[0][r] == index && of[1][r] == raw_sum_of(index) && of[2][r] == 1000 + n);
            }
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(n > 100 && rc == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Plan a mix of n branches of so many inputs. Returns what the plan returns. */
static int plan_branches(uint32_t n, uint64_t inputs, const dlp_pipe_desc *d, dlp_error *e) {
    static dlp_node t[DLP_MAX_NODES];
    static char names[2 * DLP_MAX_NODES][8];
    const char *from[DLP_MAX_NODES];
    const dlp_field x = {.name = "x", .dtype = DLP_U64};
    dlp_plan plan;
    for (uint32_t k = 0; k < n; k++) {
        snprintf(names[2 * k], sizeof names[0], "l%u", k);
        snprintf(names[2 * k + 1], sizeof names[0], "f%u", k);
        t[2 * k] = (dlp_node){
            .name = names[2 * k], .verb = DLP_LIST, .list = {.n_items = inputs, .shuffle = 1}};
        t[2 * k + 1] = (dlp_node){.name = names[2 * k + 1],
                                  .verb = DLP_FETCH,
                                  .fetch = {.fetch = nothing, .fields = &x, .n_fields = 1}};
        from[k] = names[2 * k + 1];
    }
    from[n] = NULL;
    t[2 * n] = (dlp_node){.name = "both", .from = from, .verb = DLP_MIX};
    t[2 * n + 1] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 12}};
    return dlp_nodes_plan(t, 2 * n + 2, d, &plan, e);
}

/* There are at most 16 branches, and so many that a state has room for their places. */
static void branches__too_many__refused_with_the_number_that_fits(void) {
    const uint64_t million = 1000000;
    dlp_pipe_desc d = {.streams = 1};
    dlp_error e;
    CHECK(plan_branches(16, million, &d, &e) == DLP_OK);
    CHECK(plan_branches(17, million, &d, &e) == DLP_ERR_GRAPH);
    CHECK(strstr(e.message, "there are 17 lists and pushes above \"both\", must be 2..16") != NULL);
    d.steps_per_epoch = 1000000; /* passes repeat: ordinals are as long as they may be */
    CHECK(plan_branches(16, UINT64_C(1) << 45, &d, &e) == DLP_OK);
    d = (dlp_pipe_desc){.streams = 3};
    for (uint32_t n = 8, fit = 0; n <= 16; n++) {
        const int rc = plan_branches(n, million, &d, &e);
        char words[96];
        if (rc == DLP_OK) {
            CHECK(fit == n - 1 || n == 8);
            fit = n;
            continue;
        }
        snprintf(words, sizeof words,
                 "the places of 3 streams in %u branches; %u branches fit, or ", n, fit);
        CHECK(rc == DLP_ERR_ARG && fit > 0 && n > 8 && strcmp(e.field, "streams") == 0);
        if (strstr(e.message, words) == NULL) printf("  %s\n", e.message);
        CHECK(strstr(e.message, words) != NULL);
    }
}

int main(int argc, char **argv) {
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : getenv("SHORT") ? 20 : 80;
    const uint64_t pushes = argc > 1 ? n : n / 2;
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    caller_ = getpid();
    forks_ = shm_missing() == NULL;
    shared_ =
        mmap(NULL, sizeof *shared_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared_ == MAP_FAILED) return 1;
    rows__out_of_place__refused_by_name();
    branches__too_many__refused_with_the_number_that_fits();
    cells__one_less_than_needed__refused();
    parts__of_3_items_and_more__need_fewer_cells();
    parts__dealt_by_weights__as_without_branches();
    test_tries(seats__asleep__woken_for_cells_of_each);
    two_sources_of_files__joined__each_has_its_own();
    fields__end_in_a_branch__others_go_on();
    random_tables__beside_a_plain_program__same_rows(first, n);
    printf("  %u workers died, %u requests of a worker at once, %u tables have over 8 branches\n",
           deaths_, most_out_, many_);
    CHECK(n < 20 || ((deaths_ > 0 || !forks_) && most_out_ > 1 && many_ > 1));
    random_pushes__beside_a_plain_program__same_rows(first, pushes);
    every_batch__resumed__goes_on_alike(first, n / 8 + 1);
    rows__fail__batch_fails_or_is_tried_again(first, n / 8 + 1);
    alarm(0);
    return test_end("branch_chains");
}
