/* needs: parts */
#pragma once
/* tests: system/stages/found, system/inputs/inputs_random, system/inputs/list_orders */
#include "order/order.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-found-order THE ORDER OF INPUTS WHOSE ITEMS NOBODY HAS COUNTED
   These functions compute which input stands where in which stream, and write how far each stream
   is as bits of a state. They use no cells, slots or threads. Place j of pass p over all n inputs
   goes to stream j mod C. There the input has ordinal p * n_s + j div C, n_s being the stream's
   inputs of a pass. With weights a stream has inputs of its own (order/found_weights.h), and place
   j of its pass p has ordinal p * n_s + j. The rule of the list says which index is at a place. */

enum {
    DLPI_LIST_ONCE,  /* each pass has each place of the list once: a permutation, then the subset */
    DLPI_LIST_DRAWN, /* the order at position p * n + j: its draws go on behind a pass */
    DLPI_LIST_FUNCTION /* the user's function at position j: it is asked for no place behind n */
};

typedef struct dlpi_cursor { /* how far a stream is; with windows: where its window begins */
    uint64_t ordinal,
        used;              /* the input's ordinal in the stream; items of the input that are used */
    uint64_t place, check; /* with windows: rows of the window that are given; if above 0, 16 bits
                                of a hash of the inputs that the window's items are of */
} dlpi_cursor;

/* What the order follows from. */
typedef struct dlpi_found_plan {
    uint64_t n_inputs, streams, steps; /* steps: batches of an epoch; 0: it ends with the inputs */
    uint64_t batch;                    /* rows of a full batch, on all ranks */
    uint64_t most;                     /* items that an input may have, at most */
    uint64_t seed;
    uint64_t window;    /* items of a stream that are permuted at a time; 0: there are no windows */
    uint64_t group, by; /* items of a window that stay together, by length; 0: windows have no
                           groups. by: number of the ragged field whose length counts */
    bool shuffle_inputs, shuffle_items;
    uint8_t rule;              /* DLPI_LIST_*. n_inputs counts the places of a pass */
    dlpi_order order;          /* the list's order, with its subset; set as the pipe starts */
    dlp_permutation passes[2]; /* the order of inputs in an even and in an odd pass */
    /* With weights, else NULL: */
    uint64_t *weights; /* [n_inputs] */
    uint64_t weights_hash;
    uint32_t *members;           /* [n_inputs] numbers of the inputs, stream by stream */
    uint64_t *first;             /* [streams + 1] where each stream's inputs begin in `members` */
    uint64_t most_inputs;        /* inputs of a stream, at most */
    dlp_permutation *own_passes; /* the order in the present pass of each stream of this rank */
    uint64_t own_first;          /* number of the rank's first stream */
} dlpi_found_plan;

/* Steps of an epoch without an end: so many that nobody sees it, and that, by the 2^20 rows of a
   batch, there is room for them. */
#define DLPI_FOUND_ENDLESS (UINT64_C(1) << 43)

/* Return the number of inputs that stream s has in one pass. */
static inline uint64_t dlpi_found_inputs(const dlpi_found_plan *q, uint64_t s) {
    if (q->weights) return q->first[s + 1] - q->first[s];
    return (q->n_inputs - s + q->streams - 1) / q->streams;
}

/* Return the number of inputs per pass of the stream that has the most. */
static inline uint64_t dlpi_found_most_inputs(const dlpi_found_plan *q) {
    return q->weights ? q->most_inputs : dlpi_found_inputs(q, 0);
}

/* Return the number of passes without any item after which a stream counts as empty for good. own:
   streams that all had no item; 0 means one stream, whatever the others had. Two passes from
   anywhere have a whole one among them. That is enough if a stream has the same inputs in each
   pass, or if these streams are all of them. Otherwise each pass deals own / streams of the inputs
   again, and an input with items stays unseen with a chance of about 2^-16. Draws may miss an input
   in each pass. */
static inline uint64_t dlpi_found_empty_passes(const dlpi_found_plan *q, uint64_t own) {
    uint64_t passes = own == 0 ? 64 : 2 + 16 * (q->streams - own) / own;
    if (q->rule == DLPI_LIST_DRAWN) return 64;
    if (!q->shuffle_inputs || q->weights || q->streams == 1) return 2;
    return passes < 64 ? passes : 64;
}

/* Return input j of a pass over the inputs that stream s has by weight. */
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

/* Write the indices of n inputs of stream s, from this ordinal on. All must be of one pass. */
static void dlpi_found_indices(dlpi_found_plan *q, uint64_t epoch, uint64_t s, uint64_t ordinal,
                               uint32_t n, uint64_t *out) {
    const uint64_t each = dlpi_found_inputs(q, s), pass = ordinal / each, place = ordinal % each;
    const uint64_t streams = q->streams;
    const dlp_permutation *order;
    uint64_t at = place * streams + s;
    if (q->weights) {
        for (uint32_t k = 0; k < n; k++) out[k] = dlpi_found_member(q, epoch, s, pass, place + k);
        return;
    }
    if (q->rule == DLPI_LIST_DRAWN) at += pass * q->n_inputs;
    for (uint32_t k = 0; k < n; k++, at += streams) out[k] = at;
    for (uint32_t k = 0; k < n && q->rule != DLPI_LIST_ONCE; k++)
        dlpi_order_block(&q->order, epoch, out[k], 1, &out[k]);
    if (q->rule != DLPI_LIST_ONCE) return;
    if (q->shuffle_inputs) {
        order = dlpi_permutation_of(&q->passes[pass & 1], q->n_inputs,
                                    dlpi_hash_in(DLPI_DOMAIN_PARTS, q->seed, pass), epoch);
        if (q->streams == 1)
            dlp_permutation_block(order, place, n, out);
        else
            for (uint32_t k = 0; k < n; k++) out[k] = dlp_permutation_at(order, out[k]);
    }
    for (uint32_t k = 0; k < n && q->order.subset != NULL; k++)
        out[k] = dlpi_order_of_subset(&q->order, out[k]);
}

/* Return the key of the random numbers of the input of stream s with this ordinal: its position,
   or, with DLPI_LIST_ONCE, a number to which its index is added. */
static uint64_t dlpi_found_key(const dlpi_found_plan *q, uint64_t s, uint64_t ordinal) {
    const uint64_t each = dlpi_found_inputs(q, s), pass = ordinal / each;
    if (q->rule != DLPI_LIST_ONCE) return pass * q->n_inputs + ordinal % each * q->streams + s;
    return pass * (q->order.subset != NULL ? q->order.n_items : q->n_inputs);
}

/* Set *items to the permutation of the n items of an input in this pass. */
static void dlpi_found_items(const dlpi_found_plan *q, dlp_permutation *items, uint64_t epoch,
                             uint64_t input, uint64_t pass, uint64_t n) {
    uint64_t seed = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_PART_ITEMS, q->seed, input), pass);
    dlp_permutation_init(items, n, seed, epoch);
}

/* Set *items to the permutation of n items of stream s: the shuffle window behind this cursor. */
static void dlpi_found_window(const dlpi_found_plan *q, dlp_permutation *items, uint64_t epoch,
                              uint64_t s, const dlpi_cursor *after, uint64_t n) {
    uint64_t seed = dlpi_hash_in(DLPI_DOMAIN_SHUFFLE_WINDOW, q->seed, s);
    seed = dlpi_absorb(dlpi_absorb(seed, after->ordinal), after->used);
    dlp_permutation_init(items, n, seed, epoch);
}

/* Return the hash h with all in it that the order of inputs follows from. */
DLPI_COLD static uint64_t dlpi_found_hash(const dlpi_found_plan *q, uint64_t h) {
    const uint64_t words[] = {q->n_inputs,       q->streams,       q->steps, q->most,
                              q->shuffle_inputs, q->shuffle_items, q->window};
    h = dlpi_order_hash_array(h, words, sizeof words / sizeof *words - (q->window == 0));
    if (q->group > 0) h = dlpi_absorb(dlpi_absorb(h, q->group), q->by);
    return q->weights ? dlpi_absorb(h, q->weights_hash) : h;
}

/* ---- places of streams in a state ----
   In front are the first stream (2 bytes), the number of streams (2), and the bits of an ordinal
   and of a used count (1 each). With windows follow the bits of a place (1), and the highest bit of
   the byte of the ordinal is set. Then comes cursor after cursor, without gaps.
   Where lists are joined, each stream has a path: a cursor in each list, and the phase of a mix.
   The byte of the ordinal is then DLPI_CURSORS_PATHS. After it: the number of lists (1), the bits
   of a phase (1), and the bits of ordinal and of used in each list (1 each).
   Where items are made of joined rows the byte is DLPI_CURSORS_JOINED. After the bits of a phase
   come those of used (1), and of a place in a window (1), or 0. A path is the place before a row.
   What of the row is used stands behind the path.
   If all this is longer than a state, the number of streams has the bit DLPI_CURSORS_NEAR. Then
   each field of a place stands as its least value of all streams, and the difference of each stream
   from that. In between are the bits of a difference (7 bits). Streams of one epoch stay near each
   other, so this is short. If it is longer than a state too, there is no state. ---- */

#define DLPI_CURSORS_PLACES 0x80u
#define DLPI_CURSORS_CHECK 16u
#define DLPI_CURSORS_PATHS 0x7fu /* in the byte of the ordinal: paths follow */
#define DLPI_CURSORS_JOINED 0x7eu
#define DLPI_CURSORS_NEAR 0x8000u
#define DLPI_CURSORS_LONG UINT32_MAX /* bytes of places that a state has no room for */
#define DLPI_CURSORS_WIDE 2048u /* bytes of the places of a rank, before they are brought near */
#define DLPI_BRANCHES DLP_MAX_BRANCHES /* lists that are joined, at most */
#define DLPI_FEW_BRANCHES 8u /* most tables have no more: memory is for as many at least */
#define DLPI_CURSORS_FIELDS (2 * DLPI_BRANCHES + 5)

/* Return the number of bits that a number from 0 to `most` needs, at least 1. */
static inline uint32_t dlpi_bits_of(uint64_t most) { return most == 0 ? 1u : 64u - DLPI_CLZ(most); }

/* Return how many joined lists memory is for, if there are `lists`. */
static inline uint32_t dlpi_branches_room(uint32_t lists) {
    return lists > DLPI_FEW_BRANCHES ? DLPI_BRANCHES : DLPI_FEW_BRANCHES;
}

/* Return the bits of an ordinal in a state. If passes repeat, one input in 64 has an item. There is
   room for 10^12 inputs of a stream in an epoch, and for 10^13 in one without an end. */
static uint32_t dlpi_found_ordinal_bits(const dlpi_found_plan *q) {
    uint64_t each = dlpi_found_most_inputs(q), rows = q->steps * (q->batch / q->streams);
    uint32_t bits = dlpi_bits_of(each) + (q->steps ? dlpi_bits_of(rows) + 6 : 0);
    uint32_t most = q->steps == DLPI_FOUND_ENDLESS ? 44 : 40;
    return bits < most ? bits : most;
}

/* Return the bits in which the ordinals of two streams differ while the streams are near each
   other. Shuffled inputs give streams rows by chance, so ordinals differ by about the root of the
   number of rows: the bits allow 8 deviations of a filter that keeps half. Ordinals of other inputs
   may differ by any number. */
static uint32_t dlpi_found_near_bits(const dlpi_found_plan *q) {
    const uint64_t rows = q->steps * (q->batch / q->streams);
    if (!q->shuffle_inputs || q->weights) return 64;
    return dlpi_bits_of(rows > 0 ? rows : dlpi_found_most_inputs(q)) / 2 + 4;
}

/* Write the n low bits of value into zeros, from bit *bit on. Adds n to *bit. */
static void dlpi_bits_put(uint8_t *at, uint32_t *bit, uint32_t n, uint64_t value) {
    const uint32_t from = *bit % 8;
    uint32_t k = 8 - from; /* bits that are written once the byte at `at` is */
    if (n == 0) return;
    at += *bit / 8;
    *bit += n;
    value = value << (64 - n) >> (64 - n);
    *at = (uint8_t)(*at | value << from);
    for (value >>= k; k < n; k += 8, value >>= 8) at++, *at = (uint8_t)(*at | value);
}

/* Return n bits from bit number *bit on, and add n to *bit. */
static uint64_t dlpi_bits_take(const uint8_t *at, uint32_t *bit, uint32_t n) {
    uint64_t value = 0;
    for (uint32_t k, got = 0; got < n; got += k, *bit += k) {
        const uint32_t from = *bit % 8;
        k = 8 - from < n - got ? 8 - from : n - got;
        value |= (uint64_t)(at[*bit / 8] >> from & ((1u << k) - 1)) << got;
    }
    return value;
}

/* Write the n low bits of *value into zeros (put), or read n bits into *value. Adds n to *bit. */
static void dlpi_bits_move(uint8_t *at, uint32_t *bit, uint32_t n, uint64_t *value, bool put) {
    if (put) dlpi_bits_put(at, bit, n, *value);
    if (!put) *value = dlpi_bits_take(at, bit, n);
}

/* What stands before the places. */
typedef struct dlpi_cursors {
    uint32_t first, n;  /* n streams, from number `first` of all on */
    uint32_t near_bits; /* bits for the differences of ordinals, as planned; not in a state */
    uint32_t ordinal_bits, used_bits, place_bits; /* place_bits 0: there are no windows */
    uint32_t lists, phase_bits;     /* joined lists; 0: there is one, with the bits above */
    uint8_t bits[DLPI_BRANCHES][2]; /* bits of ordinal and of used in each joined list */
} dlpi_cursors;

/* Write the bits of the fields of a place, in their order. Returns how many fields there are. */
static uint32_t dlpi_cursors_fields(const dlpi_cursors *c, uint8_t *bits) {
    const uint32_t own[] = {c->ordinal_bits, c->phase_bits, c->used_bits, c->place_bits,
                            c->place_bits ? DLPI_CURSORS_CHECK : 0};
    uint32_t n = 2 * c->lists;
    memcpy(bits, c->bits, n);
    for (uint32_t k = 0; k < sizeof own / sizeof *own; k++) bits[n++] = (uint8_t)own[k];
    return n;
}

/* Return the bytes that stand before the cursors. */
static inline uint32_t dlpi_cursors_at(const dlpi_cursors *c) {
    if (c->lists > 0) return (c->used_bits > 0 ? 9 : 7) + 2 * c->lists;
    return c->place_bits ? 7 : 6;
}

/* Return the bits of the place of a stream: a cursor, or a path if lists are joined. */
static inline uint32_t dlpi_cursor_bits(const dlpi_cursors *c) {
    uint32_t all = c->ordinal_bits + c->phase_bits + c->used_bits + c->place_bits;
    for (uint32_t k = 0; k < c->lists; k++) all += (uint32_t)c->bits[k][0] + c->bits[k][1];
    return all + (c->place_bits ? DLPI_CURSORS_CHECK : 0);
}

/* Return the bits that the plan counts for each stream while the streams are near each other. */
DLPI_COLD static uint32_t dlpi_cursor_near(const dlpi_cursors *c) {
    uint8_t bits[DLPI_CURSORS_FIELDS];
    uint32_t all = 0, n = dlpi_cursors_fields(c, bits);
    for (uint32_t f = 0; f < n; f++) {
        const uint32_t k = f < 2 * c->lists ? f % 2 * 2 : f - 2 * c->lists; /* 2: used */
        if (k == 0 && bits[f] > c->near_bits) bits[f] = (uint8_t)c->near_bits;
        if (k != 2 || bits[f] > 1) all += bits[f];
    }
    return all;
}

/* True if the cursors of both have the same layout, as those of one order have. */
static inline bool dlpi_cursors_alike(const dlpi_cursors *a, const dlpi_cursors *b) {
    const size_t from = offsetof(dlpi_cursors, ordinal_bits);
    return memcmp((const uint8_t *)a + from, (const uint8_t *)b + from, sizeof *a - from) == 0;
}

/* Return the bytes of the header and of n places, wherever the streams are. */
static uint32_t dlpi_cursors_bytes(const dlpi_cursors *c) {
    return dlpi_cursors_at(c) + (c->n * dlpi_cursor_bits(c) + 7) / 8;
}

/* Return how many streams fit into a state: wherever they are or, if that is more, while they are
   near each other. An ordinal has 44 bits at most, and 4 or more if it is near, so the places of
   all fit into DLPI_CURSORS_WIDE. */
DLPI_COLD static uint32_t dlpi_cursors_fit(const dlpi_cursors *c) {
    const uint32_t room = (DLP_SAMPLER_STATE_BYTES - dlpi_cursors_at(c)) * 8;
    const uint32_t bits = dlpi_cursor_bits(c), once = bits + 7 * (2 * c->lists + 5);
    /* NOLINTNEXTLINE: a place has bits, also a near one */
    const uint32_t narrow = once < room ? (room - once) / dlpi_cursor_near(c) : 0;
    return narrow > room / bits ? narrow : room / bits;
}

/* Return how many of the joined lists of c fit into a state, with all streams of c. 0: there are so
   few lists that the streams are too many. */
DLPI_COLD static uint32_t dlpi_cursors_lists_fit(dlpi_cursors c) {
    if (c.lists <= DLPI_FEW_BRANCHES) return 0;
    while (c.lists > 0 && c.n > dlpi_cursors_fit(&c)) c.lists--;
    return c.lists;
}

/* Write the header before the places into the zeros at `at` (put), or read it. Returns false if the
   header that was read is not valid. */
static bool dlpi_cursors_head(dlpi_cursors *c, uint8_t *at, bool put) {
    uint8_t bits[DLPI_CURSORS_FIELDS];
    uint32_t *const all[] = {&c->lists, &c->phase_bits, &c->used_bits, &c->place_bits};
    uint32_t kind = c->used_bits > 0 ? DLPI_CURSORS_JOINED : DLPI_CURSORS_PATHS, bit = 0, has;
    uint64_t x;
    if (c->lists == 0) kind = c->ordinal_bits | (c->place_bits ? DLPI_CURSORS_PLACES : 0);
    x = c->first | c->n << 16 | (uint64_t)kind << 32;
    dlpi_bits_move(at, &bit, 40, &x, put);
    c->first = (uint32_t)x & 0xffff;
    c->n = (uint32_t)x >> 16;
    kind = (uint32_t)(x >> 32);
    /* bits of all */
    has = kind == DLPI_CURSORS_PATHS ? 3 : kind == DLPI_CURSORS_JOINED ? 15 : 4;
    if (has == 4 && kind & DLPI_CURSORS_PLACES) has = 12;
    c->ordinal_bits = has & 1 ? 0 : kind & ~DLPI_CURSORS_PLACES;
    for (uint32_t k = 0; k < 4; k++) {
        x = *all[k];
        dlpi_bits_move(at, &bit, has >> k & 1 ? 8 : 0, &x, put || (has >> k & 1) == 0);
        *all[k] = (uint32_t)x;
    }
    if (c->lists == 1 || c->lists > DLPI_BRANCHES) return false;
    memcpy(put ? at + bit / 8 : c->bits[0], put ? c->bits[0] : at + bit / 8, 2 * c->lists);
    for (uint32_t n = dlpi_cursors_fields(c, bits); n > 0;)
        if (bits[--n] > 64) return false;
    return true;
}

/* ---- paths ---- */

typedef struct dlpi_list_place { /* a cursor in a joined list, which has no window */
    uint64_t ordinal, used;
} dlpi_list_place;

typedef struct dlpi_path {
    dlpi_list_place list[DLPI_BRANCHES]; /* the place in each joined list */
    uint64_t phase;                      /* the phase of a mix */
    dlpi_cursor row; /* items made of joined rows: what of the row is used, and place and check of a
                        window. If no lists are joined: the stream's cursor */
} dlpi_path;

/* Return the first bit of the place of the i-th stream of a state. */
static uint32_t dlpi_path_at(const dlpi_cursors *c, uint32_t i) {
    return dlpi_cursors_at(c) * 8 + i * dlpi_cursor_bits(c);
}

/* Write place *x from bit number `bit` on (put; the bits there must be zeros), or read it. Returns
   the first bit of the next place. */
static uint32_t dlpi_path_move(const dlpi_cursors *c, uint8_t *at, uint32_t bit, dlpi_path *x,
                               bool put) {
    uint64_t *const own[] = {&x->row.ordinal, &x->phase, &x->row.used, &x->row.place,
                             &x->row.check};
    uint8_t bits[DLPI_CURSORS_FIELDS];
    const uint32_t n = dlpi_cursors_fields(c, bits), lists = 2 * c->lists;
    for (uint32_t f = 0; f < lists; f++) {
        dlpi_list_place *of = &x->list[f / 2];
        dlpi_bits_move(at, &bit, bits[f], f % 2 ? &of->used : &of->ordinal, put);
    }
    for (uint32_t f = lists; f < n; f++) dlpi_bits_move(at, &bit, bits[f], own[f - lists], put);
    return bit;
}

/* ---- places that are brought near ---- */

/* Write the places in `wide` as least values and differences into the zeros of `narrow` (put), or
   read them out of `narrow` into the zeros of `wide`. Returns the bytes of `narrow`, which include
   the header; 0: what was read is not valid. */
DLPI_COLD static uint32_t dlpi_cursors_bring(const dlpi_cursors *c, uint8_t *wide, uint8_t *narrow,
                                             bool put) {
    const uint32_t each = dlpi_cursor_bits(c);
    uint32_t from = dlpi_cursors_at(c) * 8, bit = from, at;
    uint8_t bits[DLPI_CURSORS_FIELDS];
    for (uint32_t f = 0, n = dlpi_cursors_fields(c, bits); f < n; from += bits[f++]) {
        uint64_t least = UINT64_MAX, most = 0, width = 0, x;
        for (uint32_t i = 0; put && i < c->n; i++) {
            x = dlpi_bits_take(wide, (at = from + i * each, &at), bits[f]);
            least = x < least ? x : least;
            most = x > most ? x : most;
        }
        if (put && most > least) width = dlpi_bits_of(most - least);
        dlpi_bits_move(narrow, &bit, bits[f], &least, put);
        dlpi_bits_move(narrow, &bit, bits[f] > 0 ? 7 : 0, &width, put);
        if (width > bits[f]) return 0;
        for (uint32_t i = 0; i < c->n; i++) {
            at = from + i * each;
            if (put) x = dlpi_bits_take(wide, &at, bits[f]) - least;
            dlpi_bits_move(narrow, &bit, (uint32_t)width, &x, put);
            if (!put) dlpi_bits_put(wide, &at, bits[f], x + least);
        }
    }
    return (bit + 7) / 8;
}

/* Save places in a state, at `to`. wide: [dlpi_cursors_bytes] the places, and zeros before them.
   The header is written there. Returns the bytes in the state; DLPI_CURSORS_LONG: it has no room.
   */
static uint32_t dlpi_cursors_save(const dlpi_cursors *c, uint8_t *wide, uint8_t *to) {
    uint8_t narrow[DLPI_CURSORS_WIDE + 16 * DLPI_CURSORS_FIELDS];
    uint32_t bytes = dlpi_cursors_bytes(c);
    dlpi_cursors head = *c;
    if (bytes > DLP_SAMPLER_STATE_BYTES) {
        memset(narrow, 0, sizeof narrow);
        bytes = dlpi_cursors_bring(c, wide, narrow, true);
        head.n |= DLPI_CURSORS_NEAR;
        wide = narrow;
    }
    dlpi_cursors_head(&head, wide, true);
    if (bytes > DLP_SAMPLER_STATE_BYTES) return DLPI_CURSORS_LONG;
    memcpy(to, wide, bytes);
    return bytes;
}

/* Read the header *c and the places, into wide[DLPI_CURSORS_WIDE], of a state, which is not
   trusted. Returns false if they are not valid. */
static bool dlpi_cursors_read(dlpi_cursors *c, uint8_t *wide, const uint8_t *at, uint32_t bytes) {
    uint8_t narrow[DLPI_CURSORS_WIDE + 16 * DLPI_CURSORS_FIELDS] = {0};
    memset(c, 0, sizeof *c);
    if (bytes < 7 || bytes > DLP_SAMPLER_STATE_BYTES) return false;
    memcpy(narrow, at, bytes);
    if (!dlpi_cursors_head(c, narrow, false)) return false;
    const bool all = (c->n & DLPI_CURSORS_NEAR) == 0;
    c->n &= ~DLPI_CURSORS_NEAR;
    if (c->n == 0 || dlpi_cursor_bits(c) < 2) return false;
    if (dlpi_cursors_bytes(c) > DLPI_CURSORS_WIDE) return false;
    memset(wide, 0, DLPI_CURSORS_WIDE);
    if (all) memcpy(wide, at, bytes);
    return (all ? dlpi_cursors_bytes(c) : dlpi_cursors_bring(c, wide, narrow, false)) == bytes;
}
