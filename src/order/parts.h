/* needs: parts */
#pragma once
/* tests: system/stages/parts, system/inputs/inputs_random */
#include "order/order.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-part-order THE ORDER OF PARTS
   These functions compute which item stands at which position of an epoch whose items come in
   parts, and how many parts a batch can need. They use counts and permutations, no cells, slots or
   threads. */

/* The parts of an epoch, in their order. */
typedef struct dlpi_part_order {
    uint64_t epoch;
    int ready;       /* 1: first and order are those of `epoch` */
    uint64_t *first; /* [n_parts + 1] items before each part, in the order of the epoch */
    dlp_permutation order;
} dlpi_part_order;

/* What the order follows from. */
typedef struct dlpi_part_plan {
    uint64_t n_parts;
    uint64_t *first; /* [n_parts + 1] items before each part, in the order of the desc */
    uint64_t streams, steps;
    uint64_t batch;   /* rows of a full batch, on all ranks */
    uint64_t samples; /* positions of an epoch */
    uint64_t seed;
    bool shuffle_parts, shuffle_items;
    dlpi_part_order orders[2]; /* of an even and an odd epoch: one is scheduled, one looked ahead */
} dlpi_part_plan;

/* A stretch of positions whose items lie in one part, one after the other before they are
   shuffled. */
typedef struct dlpi_piece {
    uint64_t part, item;   /* item: place of the first row in the part's order */
    uint64_t n;            /* rows of this piece */
    uint64_t same_batches; /* batches after this one that have these rows in the same part, too */
} dlpi_piece;

static inline uint64_t dlpi_parts_items(const dlpi_part_plan *q) { return q->first[q->n_parts]; }

static inline uint64_t dlpi_part_size(const dlpi_part_plan *q, uint64_t part) {
    return q->first[part + 1] - q->first[part];
}

/* Return where stream s begins among the epoch's items, one after another: s * T / C. */
static uint64_t dlpi_stream_first(const dlpi_part_plan *q, uint64_t s) {
    uint64_t t = dlpi_parts_items(q), c = q->streams;
    return t / c * s + t % c * s / c;
}

/* Return the number of full batches, whose rows are cut evenly among the streams. */
static uint64_t dlpi_parts_full(const dlpi_part_plan *q) {
    return q->steps ? q->steps : dlpi_parts_items(q) / q->batch;
}

/* Return the stream from which row *r of the last, short batch comes. *r becomes the number of the
   row among those that this stream has left. */
static uint32_t dlpi_rest_stream(const dlpi_part_plan *q, uint64_t *r) {
    uint64_t taken = dlpi_parts_full(q) * (q->batch / q->streams);
    uint64_t low = 0, high = q->streams; /* rests of streams below low are at most r */
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (dlpi_stream_first(q, mid) - mid * taken <= *r)
            low = mid;
        else
            high = mid;
    }
    *r -= dlpi_stream_first(q, low) - low * taken;
    return (uint32_t)low;
}

/* Return the place of position `at` among the epoch's items. *n is lowered to the number of places
   from there on that follow each other in one stream. *end gets the end of that stream. */
static uint64_t dlpi_parts_place(const dlpi_part_plan *q, uint64_t at, uint64_t *n, uint64_t *end) {
    uint64_t each = q->batch / q->streams, full = dlpi_parts_full(q);
    uint64_t k = at / q->batch, r = at % q->batch, s, left, offset;
    if (k < full) {
        s = r / each;
        left = each - r % each;
        offset = k * each + r % each;
    } else {
        s = dlpi_rest_stream(q, &r);
        offset = full * each + r;
        left = UINT64_MAX;
    }
    *end = dlpi_stream_first(q, s + 1);
    if (q->steps) offset %= *end - dlpi_stream_first(q, s);
    offset += dlpi_stream_first(q, s);
    if (left > *end - offset) left = *end - offset;
    if (*n > left) *n = left;
    return offset;
}

/* Return the last index i < n with first[i] <= g, in an array of n + 1 ascending sums. */
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

/* Return the parts of an epoch in their order, with the sums of their items. q keeps two epochs. */
static const dlpi_part_order *dlpi_part_order_of(dlpi_part_plan *q, uint64_t epoch) {
    uint64_t n = q->n_parts, sum = 0;
    dlpi_part_order *o = &q->orders[epoch & 1];
    if (DLPI_LIKELY(o->ready && o->epoch == epoch)) return o;
    o->epoch = epoch;
    o->ready = 1;
    dlp_permutation_init(&o->order, n, dlpi_hash_in(DLPI_DOMAIN_PARTS, q->seed, 0), epoch);
    for (uint64_t j = 0; j < n; j++) {
        o->first[j] = sum;
        sum += dlpi_part_size(q, dlp_permutation_at(&o->order, j));
    }
    o->first[n] = sum;
    return o;
}

/* Set *x to the piece at position `at` of an epoch: its part, item, and length, at most n. Past the
   epoch's last item (a batch that is padded) positions begin again. */
static void dlpi_parts_piece(dlpi_part_plan *q, uint64_t epoch, uint64_t at, uint64_t n,
                             dlpi_piece *x) {
    uint64_t end, j, part_end, g;
    at %= q->samples;
    if (n > q->samples - at) n = q->samples - at;
    g = dlpi_parts_place(q, at, &n, &end);
    if (q->shuffle_parts) {
        const dlpi_part_order *o = dlpi_part_order_of(q, epoch);
        j = dlpi_sum_find(o->first, q->n_parts, g);
        x->part = dlp_permutation_at(&o->order, j);
        x->item = g - o->first[j];
        part_end = o->first[j + 1];
    } else {
        x->part = dlpi_sum_find(q->first, q->n_parts, g);
        x->item = g - q->first[x->part];
        part_end = q->first[x->part + 1];
    }
    if (end > part_end) end = part_end;
    x->n = n < end - g ? n : end - g;
    x->same_batches = (end - g - x->n) / (q->batch / q->streams);
}

/* Write the dataset indices of a piece's items. *items: a permutation kept from call to call. */
static void dlpi_piece_indices(const dlpi_part_plan *q, dlp_permutation *items, uint64_t epoch,
                               const dlpi_piece *x, uint64_t *index) {
    uint64_t first = q->first[x->part];
    if (q->shuffle_items)
        dlp_permutation_block(
            dlpi_permutation_of(items, dlpi_part_size(q, x->part),
                                dlpi_hash_in(DLPI_DOMAIN_PART_ITEMS, q->seed, x->part), epoch),
            x->item, (uint32_t)x->n, index);
    for (uint64_t i = 0; i < x->n; i++)
        index[i] = first + (q->shuffle_items ? index[i] : x->item + i);
}

/* Return a hash of id and of the item counts of all parts. */
static uint64_t dlpi_parts_manifest(const dlpi_part_plan *q, uint64_t id) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_PARTS, id, q->n_parts);
    return dlpi_order_hash_array(h, q->first, q->n_parts + 1);
}

/* ---- how many parts a batch can need ---- */

/* Count the items of all parts that have at most `size` items each. If the sum is above n, any
   number above n may be returned. */
static uint64_t dlpi_parts_up_to(const dlpi_part_plan *q, uint64_t size, uint64_t n) {
    uint64_t all = 0;
    for (uint64_t i = 0; i < q->n_parts && all <= n; i++)
        if (dlpi_part_size(q, i) <= size) all += dlpi_part_size(q, i);
    return all;
}

/* Return how many whole parts can lie within n items at most. The smallest parts give this number.
   Let `low` be the largest size such that the parts of at most `low` items have no more than n
   together. All these parts count, and as many parts of low + 1 items as there is room for. */
static uint64_t dlpi_parts_within(const dlpi_part_plan *q, uint64_t n) {
    uint64_t low = 0, high = n + 1, count = 0, sum = 0;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (dlpi_parts_up_to(q, mid, n) <= n)
            low = mid;
        else
            high = mid;
    }
    for (uint64_t i = 0; i < q->n_parts; i++) {
        uint64_t items = dlpi_part_size(q, i);
        if (items > 0 && items <= low) sum += items, count++;
    }
    return count + (n - sum) / (low + 1);
}

/* Return the most parts that `count` rows from position `at` on can need, whatever the order of
   parts. The rows are runs of neighbours, one of each stream. A run begins in one part and may end
   in another. Every other part that it touches lies whole within the rows between its first and its
   last. So there are at most two parts for each run, and as many as lie within all rows between.
   Where streams begin again, a run may be two. */
static uint64_t dlpi_parts_need(const dlpi_part_plan *q, uint64_t at, uint64_t count) {
    uint64_t ends = 0, between = 0, not_empty = 0, all, runs = q->steps != 0 ? 2 : 1;
    for (uint64_t i = 0; i < q->n_parts; i++) not_empty += dlpi_part_size(q, i) > 0;
    for (uint64_t r = 0; r < count;) {
        uint64_t end, pos = (at + r) % q->samples, n = count - r;
        if (n > q->samples - pos) n = q->samples - pos;
        dlpi_parts_place(q, pos, &n, &end);
        ends += (n < 2 ? n : 2) * runs;
        between += n < 2 ? 0 : n - 2;
        r += n;
    }
    all = ends + dlpi_parts_within(q, between);
    if (all > count) all = count; /* each row needs one */
    return all < not_empty ? all : not_empty;
}
