/* needs: parts */
#pragma once
/* tests: system/stages/found, system/inputs/inputs_random */
#include "order/order.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-found-order THE ORDER OF INPUTS WHOSE ITEMS NOBODY HAS COUNTED
   Which input stands where in which stream, and how far each stream is: in bits of a state. It
   knows nothing of cells, slots or threads. Place j of pass p over all n inputs goes to stream j
   mod C; there it has ordinal p * n_s + j div C, n_s being the stream's inputs of a pass. With
   weights a stream has inputs of its own (order/found_weights.h), and place j of its pass p has
   ordinal p * n_s + j. */

typedef struct dlpi_cursor { /* after an item; with windows: after the one before the window */
    uint64_t ordinal, used;  /* of its input, and items of that which are given */
    uint64_t place, check;   /* with windows: items of it which are given; where that is more than 0
                                16 bits that say of which inputs the window's items are */
} dlpi_cursor;

/* What the order follows from. */
typedef struct dlpi_found_plan {
    uint64_t n_inputs, streams, steps;
    uint64_t batch; /* rows of a full batch, on all ranks */
    uint64_t most;  /* items that an input may have */
    uint64_t seed;
    uint64_t window; /* items of a stream that are permuted at a time; 0: none are */
    bool shuffle_inputs, shuffle_items;
    dlp_permutation passes[2]; /* streams are in this pass or that */
    /* by weights, else NULL: */
    uint64_t *weights; /* [n_inputs] */
    uint64_t weights_hash;
    uint32_t *members;           /* [n_inputs] those of stream 0, of 1, .. */
    uint64_t *first;             /* [streams + 1] of them, of each stream */
    uint64_t most_inputs;        /* of a stream */
    dlp_permutation *own_passes; /* of this rank's streams, from this one on, the present ones */
    uint64_t own_first;
} dlpi_found_plan;

/* Steps of an epoch without an end: so many that nobody sees it, and that, by the 2^20 rows of a
   batch, there is room for them. */
#define DLPI_FOUND_ENDLESS (UINT64_C(1) << 43)

static inline uint64_t dlpi_found_inputs(const dlpi_found_plan *q, uint64_t s) {
    if (q->weights) return q->first[s + 1] - q->first[s];
    return (q->n_inputs - s + q->streams - 1) / q->streams;
}

/* ... of the one that has the most. */
static inline uint64_t dlpi_found_most_inputs(const dlpi_found_plan *q) {
    return q->weights ? q->most_inputs : dlpi_found_inputs(q, 0);
}

/* If each of `own` streams had no item in so many passes of an epoch that had none before, none
   ever comes. Two passes from anywhere have a whole one among them. That is enough if a stream has
   the same inputs in each pass, or if these streams are all of them. Otherwise each pass deals
   own / streams of the inputs again, and an input with items stays unseen with a chance of about
   2^-16. own 0: of one stream, whatever the others had. */
static inline uint64_t dlpi_found_empty_passes(const dlpi_found_plan *q, uint64_t own) {
    uint64_t passes = own == 0 ? 64 : 2 + 16 * (q->streams - own) / own;
    if (!q->shuffle_inputs || q->weights || q->streams == 1) return 2;
    return passes < 64 ? passes : 64;
}

/* The j-th input of a pass over those that stream s has by weight. */
static uint64_t dlpi_found_member(dlpi_found_plan *q, uint64_t epoch, uint64_t s, uint64_t pass,
                                  uint64_t j) {
    const uint32_t *own = q->members + q->first[s];
    uint64_t seed = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_PARTS, q->seed, pass), s);
    dlp_permutation *order;
    if (!q->shuffle_inputs) return own[j];
    order = &q->own_passes[s - q->own_first];
    return own[dlp_permutation_at(dlpi_permutation_of(order, dlpi_found_inputs(q, s), seed, epoch),
                                  j)];
}

/* Write the indices of n inputs of stream s, from one on, which are all of one pass. */
static void dlpi_found_indices(dlpi_found_plan *q, uint64_t epoch, uint64_t s, uint64_t ordinal,
                               uint32_t n, uint64_t *out) {
    const uint64_t each = dlpi_found_inputs(q, s), pass = ordinal / each, place = ordinal % each;
    const dlp_permutation *order;
    uint64_t at = place * q->streams + s;
    for (uint32_t k = 0; k < n && q->weights; k++)
        out[k] = dlpi_found_member(q, epoch, s, pass, place + k);
    for (uint32_t k = 0; k < n && !q->weights; k++, at += q->streams) out[k] = at;
    if (q->weights || !q->shuffle_inputs) return;
    order = dlpi_permutation_of(&q->passes[pass & 1], q->n_inputs,
                                dlpi_hash_in(DLPI_DOMAIN_PARTS, q->seed, pass), epoch);
    if (q->streams == 1)
        dlp_permutation_block(order, place, n, out);
    else
        for (uint32_t k = 0; k < n; k++) out[k] = dlp_permutation_at(order, out[k]);
}

/* The permutation of an input's n items, in this pass. */
static void dlpi_found_items(const dlpi_found_plan *q, dlp_permutation *items, uint64_t epoch,
                             uint64_t input, uint64_t pass, uint64_t n) {
    uint64_t seed = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_PART_ITEMS, q->seed, input), pass);
    dlp_permutation_init(items, n, seed, epoch);
}

/* The permutation of a window of n items of stream s, which begins after that cursor. */
static void dlpi_found_window(const dlpi_found_plan *q, dlp_permutation *items, uint64_t epoch,
                              uint64_t s, const dlpi_cursor *after, uint64_t n) {
    uint64_t seed = dlpi_hash_in(DLPI_DOMAIN_SHUFFLE_WINDOW, q->seed, s);
    seed = dlpi_absorb(dlpi_absorb(seed, after->ordinal), after->used);
    dlp_permutation_init(items, n, seed, epoch);
}

/* A number that differs where anything does that the order follows from. */
static uint64_t dlpi_found_hash(const dlpi_found_plan *q, uint64_t h) {
    const uint64_t words[] = {q->n_inputs,       q->streams,       q->steps, q->most,
                              q->shuffle_inputs, q->shuffle_items, q->window};
    h = dlpi_order_hash_array(h, words, sizeof words / sizeof *words - (q->window == 0));
    return q->weights ? dlpi_absorb(h, q->weights_hash) : h;
}

/* ---- cursors in a state: first stream (2 bytes), how many (2), bits of ordinal and of used (1
   each), with windows the bits of a place (1; the highest bit of the byte of the ordinal tells),
   and then cursor after cursor, without gaps.
   Where lists are joined, each stream has a path: a cursor in each list, and the phase of a mix.
   The byte of the ordinal is then DLPI_CURSORS_PATHS. After it: the number of lists (1), the bits
   of a phase (1), and the bits of ordinal and of used in each list (1 each).
   Where items are made of joined rows the byte is DLPI_CURSORS_JOINED. After the bits of a phase
   come those of used (1), and of a place in a window (1), or 0. A path is the place before a row.
   What of the row is used stands behind the path. ---- */

#define DLPI_CURSORS_PLACES 0x80u
#define DLPI_CURSORS_CHECK 16u
#define DLPI_CURSORS_PATHS 0x7fu /* in the byte of the ordinal: paths follow */
#define DLPI_CURSORS_JOINED 0x7eu
#define DLPI_BRANCHES 8u /* lists that are joined, at most */

static inline uint32_t dlpi_bits_of(uint64_t most) {
    return most == 0 ? 1u : 64u - (uint32_t)__builtin_clzll(most);
}

/* Bits of an ordinal. Where passes repeat, one in 64 has an item; 10^12 inputs of a stream in an
   epoch, which no epoch reads, or 10^13 in one without an end. */
static uint32_t dlpi_found_ordinal_bits(const dlpi_found_plan *q) {
    uint64_t each = dlpi_found_most_inputs(q), rows = q->steps * (q->batch / q->streams);
    uint32_t bits = dlpi_bits_of(each) + (q->steps ? dlpi_bits_of(rows) + 6 : 0);
    uint32_t most = q->steps == DLPI_FOUND_ENDLESS ? 44 : 40;
    return bits < most ? bits : most;
}

static void dlpi_bits_put(uint8_t *at, uint32_t *bit, uint32_t n, uint64_t value) {
    for (uint32_t k; n > 0; n -= k, *bit += k, value >>= k) { /* k: those of one byte */
        const uint32_t from = *bit % 8;
        k = 8 - from < n ? 8 - from : n;
        at[*bit / 8] = (uint8_t)(at[*bit / 8] | (value & ((1u << k) - 1)) << from);
    }
}

static uint64_t dlpi_bits_take(const uint8_t *at, uint32_t *bit, uint32_t n) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < n; i++, ++*bit)
        value |= (uint64_t)(at[*bit / 8] >> *bit % 8 & 1u) << i;
    return value;
}

/* What stands before the cursors. */
typedef struct dlpi_cursors {
    uint32_t first, n, ordinal_bits, used_bits, place_bits; /* place_bits 0: there are no windows */
    uint32_t lists, phase_bits;                             /* lists 0: one, whose bits are above */
    uint8_t bits[DLPI_BRANCHES][2]; /* of ordinal and of used in each list; else 0 */
} dlpi_cursors;

static inline uint32_t dlpi_cursors_at(const dlpi_cursors *c) {
    if (c->lists > 0) return (c->used_bits > 0 ? 9 : 7) + 2 * c->lists;
    return c->place_bits ? 7 : 6;
}
static inline uint32_t dlpi_cursor_bits(const dlpi_cursors *c) {
    uint32_t bits = c->ordinal_bits + c->used_bits + c->phase_bits;
    for (uint32_t b = 0; b < c->lists; b++) bits += (uint32_t)c->bits[b][0] + c->bits[b][1];
    return c->place_bits ? bits + c->place_bits + DLPI_CURSORS_CHECK : bits;
}

/* Are these of one order? */
static inline bool dlpi_cursors_alike(const dlpi_cursors *a, const dlpi_cursors *b) {
    return a->ordinal_bits == b->ordinal_bits && a->used_bits == b->used_bits &&
           a->place_bits == b->place_bits && a->lists == b->lists &&
           a->phase_bits == b->phase_bits && memcmp(a->bits, b->bits, sizeof a->bits) == 0;
}

/* Bytes of n cursors in a state. */
static inline uint32_t dlpi_cursors_bytes(const dlpi_cursors *c) {
    return dlpi_cursors_at(c) + (c->n * dlpi_cursor_bits(c) + 7) / 8;
}

/* How many fit into so many bytes. */
static inline uint32_t dlpi_cursors_fit(const dlpi_cursors *c, uint32_t bytes) {
    return (bytes - dlpi_cursors_at(c)) * 8 / dlpi_cursor_bits(c);
}

/* at: zeros. */
static void dlpi_cursors_begin(const dlpi_cursors *c, uint8_t *at) {
    uint32_t bit = 0;
    dlpi_bits_put(at, &bit, 16, c->first);
    dlpi_bits_put(at, &bit, 16, c->n);
    if (c->lists > 0) {
        dlpi_bits_put(at, &bit, 8, c->used_bits > 0 ? DLPI_CURSORS_JOINED : DLPI_CURSORS_PATHS);
        dlpi_bits_put(at, &bit, 8, c->lists);
        dlpi_bits_put(at, &bit, 8, c->phase_bits);
        if (c->used_bits > 0) dlpi_bits_put(at, &bit, 8, c->used_bits);
        if (c->used_bits > 0) dlpi_bits_put(at, &bit, 8, c->place_bits);
        memcpy(at + bit / 8, c->bits, c->lists * sizeof c->bits[0]);
        return;
    }
    dlpi_bits_put(at, &bit, 8, c->ordinal_bits | (c->place_bits ? DLPI_CURSORS_PLACES : 0));
    dlpi_bits_put(at, &bit, 8, c->used_bits);
    if (c->place_bits) dlpi_bits_put(at, &bit, 8, c->place_bits);
}

/* The rest of what stands before paths, from that bit on. */
static bool dlpi_cursors_read_paths(dlpi_cursors *c, const uint8_t *at, uint32_t bit,
                                    uint32_t bytes) {
    const bool joined = c->ordinal_bits == DLPI_CURSORS_JOINED;
    c->ordinal_bits = 0;
    c->used_bits = joined;
    c->lists = (uint32_t)dlpi_bits_take(at, &bit, 8);
    if (c->lists < 2 || c->lists > DLPI_BRANCHES || dlpi_cursors_at(c) > bytes) return false;
    c->phase_bits = (uint32_t)dlpi_bits_take(at, &bit, 8);
    if (joined) c->used_bits = (uint32_t)dlpi_bits_take(at, &bit, 8);
    if (joined) c->place_bits = (uint32_t)dlpi_bits_take(at, &bit, 8);
    if (joined && (c->used_bits - 1u >= 64 || c->place_bits > 64)) return false;
    memcpy(c->bits, at + bit / 8, c->lists * sizeof c->bits[0]);
    for (uint32_t b = 0; b < c->lists; b++)
        if (c->bits[b][0] - 1u >= 64 || c->bits[b][1] - 1u >= 64) return false;
    return c->n > 0 && c->phase_bits <= 64 && dlpi_cursors_bytes(c) == bytes;
}

/* Of saved bytes; false: there is nothing like it in them. */
static bool dlpi_cursors_read(dlpi_cursors *c, const uint8_t *at, uint32_t bytes) {
    uint32_t bit = 0;
    if (bytes < 7) return false;
    memset(c, 0, sizeof *c);
    c->first = (uint32_t)dlpi_bits_take(at, &bit, 16);
    c->n = (uint32_t)dlpi_bits_take(at, &bit, 16);
    c->ordinal_bits = (uint32_t)dlpi_bits_take(at, &bit, 8);
    if (c->ordinal_bits == DLPI_CURSORS_PATHS || c->ordinal_bits == DLPI_CURSORS_JOINED)
        return dlpi_cursors_read_paths(c, at, bit, bytes);
    c->used_bits = (uint32_t)dlpi_bits_take(at, &bit, 8);
    if (c->ordinal_bits & DLPI_CURSORS_PLACES) {
        c->ordinal_bits -= DLPI_CURSORS_PLACES;
        c->place_bits = (uint32_t)dlpi_bits_take(at, &bit, 8);
        if (c->place_bits == 0) return false;
    }
    return c->n > 0 && c->ordinal_bits > 0 && c->ordinal_bits <= 64 && c->used_bits > 0 &&
           c->used_bits <= 64 && c->place_bits <= 64 && dlpi_cursors_bytes(c) == bytes;
}

static void dlpi_cursor_put(const dlpi_cursors *c, uint8_t *at, uint32_t i, const dlpi_cursor *x) {
    uint32_t bit = dlpi_cursors_at(c) * 8 + i * dlpi_cursor_bits(c);
    dlpi_bits_put(at, &bit, c->ordinal_bits, x->ordinal);
    dlpi_bits_put(at, &bit, c->used_bits, x->used);
    if (c->place_bits == 0) return;
    dlpi_bits_put(at, &bit, c->place_bits, x->place);
    dlpi_bits_put(at, &bit, DLPI_CURSORS_CHECK, x->check);
}

static dlpi_cursor dlpi_cursor_take(const dlpi_cursors *c, const uint8_t *at, uint32_t i) {
    uint32_t bit = dlpi_cursors_at(c) * 8 + i * dlpi_cursor_bits(c);
    dlpi_cursor x = {0, 0, 0, 0};
    x.ordinal = dlpi_bits_take(at, &bit, c->ordinal_bits);
    x.used = dlpi_bits_take(at, &bit, c->used_bits);
    if (c->place_bits == 0) return x;
    x.place = dlpi_bits_take(at, &bit, c->place_bits);
    x.check = dlpi_bits_take(at, &bit, DLPI_CURSORS_CHECK);
    return x;
}

/* ---- paths ---- */

typedef struct dlpi_path {
    dlpi_cursor list[DLPI_BRANCHES];
    uint64_t phase;
    dlpi_cursor row; /* of items made of the row: used, and place and check of a window */
} dlpi_path;

static void dlpi_path_put(const dlpi_cursors *c, uint8_t *at, uint32_t i, const dlpi_path *x) {
    uint32_t bit = dlpi_cursors_at(c) * 8 + i * dlpi_cursor_bits(c);
    for (uint32_t b = 0; b < c->lists; b++) {
        dlpi_bits_put(at, &bit, c->bits[b][0], x->list[b].ordinal);
        dlpi_bits_put(at, &bit, c->bits[b][1], x->list[b].used);
    }
    dlpi_bits_put(at, &bit, c->phase_bits, x->phase);
    dlpi_bits_put(at, &bit, c->used_bits, x->row.used);
    if (c->place_bits == 0) return;
    dlpi_bits_put(at, &bit, c->place_bits, x->row.place);
    dlpi_bits_put(at, &bit, DLPI_CURSORS_CHECK, x->row.check);
}

static void dlpi_path_take(const dlpi_cursors *c, const uint8_t *at, uint32_t i, dlpi_path *x) {
    uint32_t bit = dlpi_cursors_at(c) * 8 + i * dlpi_cursor_bits(c);
    memset(x, 0, sizeof *x);
    for (uint32_t b = 0; b < c->lists; b++) {
        x->list[b].ordinal = dlpi_bits_take(at, &bit, c->bits[b][0]);
        x->list[b].used = dlpi_bits_take(at, &bit, c->bits[b][1]);
    }
    x->phase = dlpi_bits_take(at, &bit, c->phase_bits);
    x->row.used = dlpi_bits_take(at, &bit, c->used_bits);
    if (c->place_bits == 0) return;
    x->row.place = dlpi_bits_take(at, &bit, c->place_bits);
    x->row.check = dlpi_bits_take(at, &bit, DLPI_CURSORS_CHECK);
}

/* Copy place k of one state to place i of another, whose bits there are zeros, or compare the two.
   Returns false if they differ. */
static bool dlpi_cursor_copy(const dlpi_cursors *c, uint8_t *at, uint32_t i, const uint8_t *from,
                             uint32_t k, bool compare) {
    const uint32_t bits = dlpi_cursor_bits(c);
    uint32_t a = dlpi_cursors_at(c) * 8 + i * bits, b = dlpi_cursors_at(c) * 8 + k * bits;
    for (uint32_t end = a + bits; a < end;) {
        const uint64_t value = dlpi_bits_take(from, &b, 1);
        if (!compare)
            dlpi_bits_put(at, &a, 1, value);
        else if (dlpi_bits_take(at, &a, 1) != value)
            return false;
    }
    return true;
}
