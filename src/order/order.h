#pragma once
/* tests: unit/order/order, unit/order/samplers */
#include "api/codes.h"
#include "api/atomics.h"
#include "api/order.h"
#include "api/samplers.h"
#include "base/errors.h"
#include "base/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-order      HASHES, KEYED PERMUTATIONS, SAMPLERS' ARITHMETIC
   Two rules. Numbers drawn for different uses never share keys: each use has a domain word,
   absorbed right after the seed. And nothing here may ever change a number, or every saved state
   and published run changes with it; tests/unit/order/order.c pins them. */

/* DLPIPE_NO_SIMD [impl]: plain C only. Slower, same numbers. clang-cl hides AVX2 from a program
   that need not have it. */
#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD) && !defined(_MSC_VER)
#define DLPI_ORDER_AVX2
#include <immintrin.h>
#endif

#define DLPI_GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio, so that 0 is no fixed point */
#define DLPI_MAX_ITEMS ((uint64_t)1 << 48)

/* These numbers are part of every order. */
enum {
    DLPI_DOMAIN_PERMUTATION = 1,
    DLPI_DOMAIN_DRAW,
    DLPI_DOMAIN_WEIGHTED,
    DLPI_DOMAIN_REPLACEMENT,
    DLPI_DOMAIN_ITEM,
    DLPI_DOMAIN_PARAMS,
    DLPI_DOMAIN_ROWS = 16,
    DLPI_DOMAIN_MIX = 32,
    DLPI_DOMAIN_BUCKETS,
    DLPI_DOMAIN_PARTS,
    DLPI_DOMAIN_PART_ITEMS,
    DLPI_DOMAIN_SHUFFLE_WINDOW,
    DLPI_DOMAIN_BRANCHES,
    DLPI_DOMAIN_ORDERS = 64 /* and the number of the order: for an order that is added later */
};

static inline uint64_t dlpi_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Return the hash h with one more word in it. For a fixed h or a fixed word it is a bijection. */
static inline uint64_t dlpi_absorb(uint64_t h, uint64_t word) {
    return dlpi_mix((h ^ word) + DLPI_GOLDEN);
}

static inline uint64_t dlpi_hash_in(uint64_t domain, uint64_t seed, uint64_t a) {
    return dlpi_absorb(dlpi_absorb(dlpi_absorb(0, seed), domain), a);
}

DLPDEF uint64_t dlp_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    return dlpi_absorb(dlpi_absorb(dlpi_absorb(dlpi_absorb(0, seed), a), b), c);
}

/* Return the high half of a * b. The low half goes to *low. */
static inline uint64_t dlpi_multiply(uint64_t a, uint64_t b, uint64_t *low) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
}

/* A range 0..n-1 from which numbers are drawn without bias. A number is the high half of random *
   n. If the low half is below `reject` = 2^64 mod n, the random word is drawn again. So equally
   many words lead to each value (Lemire, ACM TOMACS 29/1, 2019). */
typedef struct dlpi_range {
    uint64_t n, reject;
} dlpi_range;

static inline dlpi_range dlpi_range_of(uint64_t n) {
    dlpi_range range = {n, (0 - n) % n}; /* NOLINT: n is 1 or more */
    return range;
}

/* Return a number below range.n, with equal probability for each. random: 64 random bits. If they
   would favour a number, they are hashed to new bits. */
static inline uint64_t dlpi_below(dlpi_range range, uint64_t random) {
    uint64_t low, high = dlpi_multiply(random, range.n, &low);
    while (DLPI_UNLIKELY(low < range.reject)) {
        random = dlpi_absorb(random, range.n);
        high = dlpi_multiply(random, range.n, &low);
    }
    return high;
}

/* --- Keyed permutation -----------------------------------------------------------------------

   A number below n is written as (left, right). right has 2^right_bits values, about the square
   root of n. left has a = ceil(n / 2^right_bits) values. Rounds take turns: one adds a keyed hash
   of right to left (mod a), the next adds a keyed hash of left to right (mod 2^right_bits). A
   subtraction undoes each round. So all rounds together are a bijection of a * 2^right_bits >= n
   numbers. A result of n or more is put through again until it falls below n. This always ends,
   because the cycle comes back to its begin, which is below n. It is a bijection of 0..n-1. Fewer
   than 2^right_bits numbers lie above n: one in 32 at most, even if n is just above a power of two.
   The split takes no division. Additions, in place of exclusive ors, give odd permutations as often
   as even ones.

   A count of pairs of positions can tell few rounds on few values from a random permutation. The
   number of permutations that it needs grows as n^2 at 6 rounds, and as n^3 at 8
   (tests/unit/order/order.c counts). Hence there are 10 rounds below 2^12 numbers, 8 below 2^15,
   and 6 above. Below DLP_PERMUTATION_TABLE even 10 would not do: there an exact shuffle makes a
   table. */

/* Return a keyed hash of half a number. Its bits 24..47 and 0..31 are well mixed, of the latter the
   high ones more. Each of the two kinds of rounds takes the bits that it needs. */
static inline uint64_t dlpi_round_hash(uint32_t half, const uint32_t key[2]) {
    uint64_t z = (uint64_t)(half ^ key[0]) * 0x85ebca6bu;
    return (uint64_t)((uint32_t)z ^ (uint32_t)(z >> 32) ^ key[1]) * 0xc2b2ae35u;
}

/* Return what a round adds to left, 0..left_values-1. */
static inline uint32_t dlpi_round_left(const dlp_permutation *p, uint32_t right,
                                       const uint32_t key[2]) {
    return (uint32_t)((uint64_t)(uint32_t)dlpi_round_hash(right, key) * p->left_values >> 32);
}

/* Return what a round adds to right. The caller cuts the sum to right_bits. */
static inline uint32_t dlpi_round_right(uint32_t left, const uint32_t key[2]) {
    return (uint32_t)(dlpi_round_hash(left, key) >> 24);
}

/* Return x, or x - a if x >= a. A branch would be mispredicted half the time, so there is none. */
static inline uint32_t dlpi_wrap(uint32_t x, uint32_t a) {
    uint32_t less = x - a;
    return x < a ? x : less;
}

/* Put the number x through the network once. The result may be p->n or more; then the caller calls
   again. */
static inline uint64_t dlpi_permutation_step(const dlp_permutation *p, uint64_t x) {
    uint32_t a = p->left_values, mask = (1u << p->right_bits) - 1;
    uint32_t left = (uint32_t)(x >> p->right_bits), right = (uint32_t)x & mask;
    for (uint32_t i = 0; i < p->rounds; i += 2) {
        left = dlpi_wrap(left + dlpi_round_left(p, right, &p->key[2 * i]), a);
        right = (right + dlpi_round_right(left, &p->key[2 * i + 2])) & mask;
    }
    return (uint64_t)left << p->right_bits | right;
}

/* Return the number that dlpi_permutation_step takes to x. */
static inline uint64_t dlpi_permutation_unstep(const dlp_permutation *p, uint64_t x) {
    uint32_t a = p->left_values, mask = (1u << p->right_bits) - 1;
    uint32_t left = (uint32_t)(x >> p->right_bits), right = (uint32_t)x & mask;
    for (uint32_t i = p->rounds; i > 0; i -= 2) {
        right = (right - dlpi_round_right(left, &p->key[2 * i - 2])) & mask;
        left = dlpi_wrap(left + a - dlpi_round_left(p, right, &p->key[2 * i - 4]), a);
    }
    return (uint64_t)left << p->right_bits | right;
}

/* Fill the table of a permutation of few numbers, at most DLP_PERMUTATION_TABLE, by a shuffle. The
   key decides the shuffle. */
static void dlpi_permutation_shuffle(dlp_permutation *p, uint64_t key) {
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t j = (uint32_t)dlpi_below(dlpi_range_of(i + 1u), dlpi_absorb(key, i));
        p->table[i] = p->table[j];
        p->table[j] = (uint16_t)i;
    }
}

/* Set the shape and the round keys of a network of p->n numbers, DLP_PERMUTATION_TABLE or more. */
static void dlpi_permutation_rounds(dlp_permutation *p, uint64_t key) {
    uint32_t log2_n = 0;
    /* cppcheck-suppress ctuuninitvar; n is set */
    while (p->n >> (log2_n + 1)) log2_n++;
    p->right_bits = (log2_n + 1) / 2;
    p->left_values = (uint32_t)((p->n - 1) >> p->right_bits) + 1;
    p->rounds = log2_n < 12 ? 10 : log2_n < 15 ? 8 : 6;
    for (uint32_t i = 0; i < p->rounds; i++) {
        uint64_t word = dlpi_absorb(key, i);
        p->key[2 * i] = (uint32_t)word;
        p->key[2 * i + 1] = (uint32_t)(word >> 32);
    }
}

DLPDEF int dlp_permutation_init(dlp_permutation *p, uint64_t n, uint64_t seed, uint64_t epoch) {
    uint64_t key = dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_PERMUTATION, seed, epoch), n);
    if (n < 1 || n > DLPI_MAX_ITEMS) return DLP_ERR_ARG;
    memset(p, 0, sizeof *p);
    p->n = n;
    p->seed = seed;
    p->epoch = epoch;
    if (n < DLP_PERMUTATION_TABLE) {
        dlpi_permutation_shuffle(p, key);
        return DLP_OK;
    }
    dlpi_permutation_rounds(p, key);
#ifdef DLPI_ORDER_AVX2
    p->simd = __builtin_cpu_supports("avx2") ? 1 : 0;
#endif
    return DLP_OK;
}

DLPDEF uint64_t dlp_permutation_at(const dlp_permutation *p, uint64_t position) {
    uint64_t x = position;
    if (DLPI_UNLIKELY(position >= p->n)) return UINT64_MAX;
    if (p->rounds == 0) return p->table[position];
    do { x = dlpi_permutation_step(p, x); } while (DLPI_UNLIKELY(x >= p->n));
    return x;
}

DLPDEF uint64_t dlp_permutation_find(const dlp_permutation *p, uint64_t value) {
    uint64_t x = value;
    if (DLPI_UNLIKELY(value >= p->n)) return UINT64_MAX;
    if (p->rounds == 0) {
        for (x = 0; p->table[x] != value; x++) {}
        return x;
    }
    do { x = dlpi_permutation_unstep(p, x); } while (DLPI_UNLIKELY(x >= p->n));
    return x;
}

#ifdef DLPI_ORDER_AVX2
#define DLPI_AVX2 DLPI_TARGET("avx2")

/* Hash four halves, as dlpi_round_hash does one. Each half is in the low word of a lane. */
DLPI_AVX2 static inline __m256i dlpi_round_hash4(__m256i half, __m256i key0, __m256i key1) {
    __m256i z = _mm256_mul_epu32(_mm256_xor_si256(half, key0), _mm256_set1_epi64x(0x85ebca6b));
    z = _mm256_xor_si256(_mm256_xor_si256(z, key1), _mm256_srli_epi64(z, 32));
    return _mm256_mul_epu32(z, _mm256_set1_epi64x(0xc2b2ae35));
}

/* Put the 16 numbers x .. x + 15 through the network once, as dlpi_permutation_step does with one.
   Four vectors of four lanes let the multiplications overlap. */
DLPI_AVX2 static inline void dlpi_permutation_step16(const dlp_permutation *p, uint64_t x,
                                                     uint64_t *out) {
    const __m128i shift = _mm_cvtsi32_si128((int)p->right_bits);
    const __m256i a = _mm256_set1_epi64x(p->left_values);
    const __m256i mask = _mm256_set1_epi64x((1ll << p->right_bits) - 1);
    __m256i left[4], right[4];
    for (int v = 0; v < 4; v++) {
        __m256i number = _mm256_add_epi64(_mm256_set1_epi64x((long long)(x + 4 * (uint64_t)v)),
                                          _mm256_setr_epi64x(0, 1, 2, 3));
        left[v] = _mm256_srl_epi64(number, shift);
        right[v] = _mm256_and_si256(number, mask);
    }
    for (uint32_t i = 0; i < p->rounds; i += 2) {
        const uint32_t *key = &p->key[2 * i];
        __m256i key0 = _mm256_set1_epi32((int)key[0]), key1 = _mm256_set1_epi32((int)key[1]);
        __m256i key2 = _mm256_set1_epi32((int)key[2]), key3 = _mm256_set1_epi32((int)key[3]);
        for (int v = 0; v < 4; v++) {
            __m256i h = _mm256_mul_epu32(dlpi_round_hash4(right[v], key0, key1), a);
            __m256i sum = _mm256_add_epi32(left[v], _mm256_srli_epi64(h, 32));
            left[v] = _mm256_min_epu32(sum, _mm256_sub_epi32(sum, a));
            h = _mm256_srli_epi64(dlpi_round_hash4(left[v], key2, key3), 24);
            right[v] = _mm256_and_si256(_mm256_add_epi32(right[v], h), mask);
        }
    }
    for (int v = 0; v < 4; v++)
        _mm256_storeu_si256((__m256i *)(void *)(out + 4 * v),
                            _mm256_or_si256(_mm256_sll_epi64(left[v], shift), right[v]));
}

/* Write the values of positions `first` and on. Returns how many: a multiple of 16, up to count. */
DLPI_AVX2 static uint32_t dlpi_permutation_block_avx2(const dlp_permutation *p, uint64_t first,
                                                      uint32_t count, uint64_t *out) {
    uint32_t done = 0;
    for (; count - done >= 16; done += 16) {
        dlpi_permutation_step16(p, first + done, out + done);
        for (uint32_t i = done; i < done + 16; i++)
            while (DLPI_UNLIKELY(out[i] >= p->n)) out[i] = dlpi_permutation_step(p, out[i]);
    }
    return done;
}
#endif

DLPDEF void dlp_permutation_block(const dlp_permutation *p, uint64_t first, uint32_t count,
                                  uint64_t *out) {
    uint64_t inside = first < p->n ? p->n - first : 0;
    uint32_t valid = inside < count ? (uint32_t)inside : count, done = 0;
#ifdef DLPI_ORDER_AVX2
    if (p->simd) done = dlpi_permutation_block_avx2(p, first, valid, out);
#endif
    for (; done < valid; done++) out[done] = dlp_permutation_at(p, first + done);
    for (; done < count; done++) out[done] = UINT64_MAX;
}

/* Make *p the permutation of n, seed and epoch, if it is another one now. Returns p. */
static inline const dlp_permutation *dlpi_permutation_of(dlp_permutation *p, uint64_t n,
                                                         uint64_t seed, uint64_t epoch) {
    if (p->n != n || p->seed != seed || p->epoch != epoch) dlp_permutation_init(p, n, seed, epoch);
    return p;
}

/* --- Orders: a row for each ------------------------------------------------------------------- */

typedef struct dlpi_order dlpi_order;

typedef struct dlpi_order_ops {
    const char *name; /* name of the constant DLP_ORDER_*, for errors */
    bool once;  /* each item comes once in an epoch, so the epoch's length is the items' number */
    bool drawn; /* items are drawn with replacement: positions behind the epoch's end exist, too */
    bool weights;    /* needs sampler.weights, and makes a table of them */
    bool function;   /* needs sampler.function */
    bool elsewhere;  /* another stage decides the rows of a batch: positions have no indices here */
    uint64_t domain; /* DLPI_DOMAIN_* of an epoch's keys; 0: it has no keys */
    void (*begin)(dlpi_order *o); /* prepares an epoch, after its keys are set; or NULL */
    /* Write the dataset indices, or places in the subset, of `count` positions from first on. */
    void (*block)(const dlpi_order *o, uint64_t first, uint32_t count, uint64_t *out);
} dlpi_order_ops;

/* Return the table of an order (DLP_ORDER_*), or NULL if there is no such order. */
static const dlpi_order_ops *dlpi_order_of(int32_t order);

/* --- Weights ---------------------------------------------------------------------------------

   Walker's alias method in integers: n buckets of `total` units each, item i owns n * weight[i]
   units. A draw picks a bucket, then a unit in it; units below `own` are the bucket's item's, the
   others its alias's. Every quantity is exact, so frequencies are exactly weight / total. Built by
   a sweep with two cursors and one residue, so without memory beside the table
   (Huebschle-Schneider, Sanders, Parallel Weighted Random Sampling, ESA 2019). Entry 0 of the table
   holds the total. */
typedef struct dlpi_alias {
    uint64_t own, alias;
} dlpi_alias;

static inline uint64_t dlpi_order_domain(const dlp_sampler_desc *d, uint64_t n_items) {
    return d->subset ? d->n_subset : n_items;
}

/* Return the next item from i on with n * weight above total (heavy) or not (!heavy); n if none
   is. */
static uint64_t dlpi_alias_next(const uint64_t *weights, uint64_t n, uint64_t total, uint64_t i,
                                int heavy) {
    for (; i < n; i++) {
        uint64_t low, high = dlpi_multiply(n, weights[i], &low);
        if ((high != 0 || low > total) == heavy) break;
    }
    return i;
}

/* Fill the n buckets of t. Each turn closes a bucket: the light one at `light` with the heavy
   item's units on top. Once the heavy item has no more than a bucket left, the turn closes its own,
   with units of the next heavy one on top. What is left of the heavy item is high:low. Units and
   space are equal at every turn. So a light item is there while the residue is above a bucket, and
   light items left at the end fill their buckets exactly. */
static void dlpi_alias_build(const uint64_t *weights, uint64_t n, uint64_t total, dlpi_alias *t) {
    uint64_t light = dlpi_alias_next(weights, n, total, 0, 0);
    uint64_t heavy = dlpi_alias_next(weights, n, total, 0, 1);
    uint64_t low = 0, high = heavy < n ? dlpi_multiply(n, weights[heavy], &low) : 0;
    while (heavy < n) {
        if (high != 0 || low > total) {
            uint64_t own = n * weights[light], space = total - own;
            t[light].own = own;
            t[light].alias = heavy;
            high -= low < space;
            low -= space;
            light = dlpi_alias_next(weights, n, total, light + 1, 0);
        } else {
            uint64_t next = dlpi_alias_next(weights, n, total, heavy + 1, 1), space = total - low;
            t[heavy].own = low;
            t[heavy].alias = next < n ? next : heavy;
            heavy = next;
            if (heavy < n) {
                high = dlpi_multiply(n, weights[heavy], &low);
                high -= low < space;
                low -= space;
            }
        }
    }
    for (; light < n; light = dlpi_alias_next(weights, n, total, light + 1, 0)) {
        t[light].own = total;
        t[light].alias = light;
    }
}

/* Return the bytes of the table of weights; 0 if the order has none. */
static uint64_t dlpi_order_table_bytes(const dlp_sampler_desc *d, uint64_t n_items) {
    if (!dlpi_order_of(d->order)->weights) return 0;
    return dlpi_times(dlpi_sum(dlpi_order_domain(d, n_items), 1), sizeof(dlpi_alias));
}

/* Fill the table of weights of an order; do nothing if the order has none. table: memory of
   dlpi_order_table_bytes bytes. The sampler must have been checked. */
static void dlpi_order_build(const dlp_sampler_desc *d, uint64_t n_items, void *table) {
    uint64_t n = dlpi_order_domain(d, n_items), total = 0;
    dlpi_alias *t = (dlpi_alias *)table;
    if (!dlpi_order_of(d->order)->weights) return;
    for (uint64_t i = 0; i < n; i++) total += d->weights[i];
    t[0].own = total;
    t[0].alias = n;
    dlpi_alias_build(d->weights, n, total, t + 1);
}

/* --- What a sampler's desc means -------------------------------------------------------------- */

/* A range of items (list.first) is a subset without an array. `subset` is this address, n_subset is
   its length. function_user, which these orders do not use, is the number of the first item. */
static const uint64_t dlpi_order_range[1] = {0};

/* Return the first item of an order's range. */
static inline uint64_t dlpi_order_first(const dlp_sampler_desc *d) {
    return (uintptr_t)d->function_user;
}

/* Return the positions of an epoch; 0 if only the user's batch sampler knows. */
static uint64_t dlpi_order_samples(const dlp_sampler_desc *d, uint64_t n_items) {
    if (d->order == DLP_ORDER_BATCHES) return 0; /* only the user's sampler knows */
    return d->samples_per_epoch ? d->samples_per_epoch : dlpi_order_domain(d, n_items);
}

/* True if the order has each item once, and no parameters but the seed. */
static inline bool dlpi_order_plain(const dlp_sampler_desc *d) {
    return (d->order == DLP_ORDER_SEQUENTIAL || d->order == DLP_ORDER_SHUFFLED) &&
           d->subset == NULL;
}

/* Fill *err with what is wrong with a desc. Returns DLP_ERR_ARG. */
#define DLPI_ORDER_FAULT(err, ...) dlpi_error_set(err, DLP_ERR_ARG, __VA_ARGS__)

/* Refuse a number of a desc. field: "desc.name". words: what it must be. Returns DLP_ERR_ARG. */
static int dlpi_order_bad(dlp_error *err, const char *field, int64_t got, const char *words) {
    return DLPI_ORDER_FAULT(err, field, "%s is %" PRId64 ", must be %s", strrchr(field, '.') + 1,
                            got, words);
}

/* Check a sampler's subset: each index must be below n_items. Returns 0, or a DLP_ERR code with
   *err filled. */
static int dlpi_order_check_subset(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    if (!d->subset && d->n_subset)
        return dlpi_order_bad(err, "list.order.n_subset", (int64_t)d->n_subset, "0 without subset");
    if (!d->subset) return DLP_OK;
    if (d->subset == dlpi_order_range) return DLP_OK; /* the list has checked it */
    if (d->n_subset < 1 || d->n_subset > DLPI_MAX_ITEMS)
        return dlpi_order_bad(err, "list.order.n_subset", (int64_t)d->n_subset, "1..2^48");
    for (uint64_t i = 0; i < d->n_subset; i++)
        if (d->subset[i] >= n_items)
            return DLPI_ORDER_FAULT(err, "list.order.subset",
                                    "subset[%" PRIu64 "] is %" PRIu64 ", but n_items is %" PRIu64,
                                    i, d->subset[i], n_items);
    return DLP_OK;
}

/* Check a sampler's weights: they are given if the order needs them, and their sum is 1..2^63.
   Returns 0, or a DLP_ERR code with *err filled. */
static int dlpi_order_check_weights(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    const uint64_t most = (uint64_t)1 << 63;
    uint64_t n = dlpi_order_domain(d, n_items), total = 0;
    const dlpi_order_ops *ops = dlpi_order_of(d->order);
    if (!ops->weights) {
        if (!d->weights) return DLP_OK;
        return DLPI_ORDER_FAULT(err, "list.order.weights",
                                "weights need order DLP_ORDER_WEIGHTED, order is %s", ops->name);
    }
    if (!d->weights)
        return DLPI_ORDER_FAULT(err, "list.order.weights",
                                "weights is NULL: give them for order %s", ops->name);
    for (uint64_t i = 0; i < n; i++) {
        if (d->weights[i] > most - total)
            return DLPI_ORDER_FAULT(err, "list.order.weights",
                                    "weights[%" PRIu64 "] = %" PRIu64 " takes the sum above 2^63",
                                    i, d->weights[i]);
        total += d->weights[i];
    }
    if (total == 0)
        return DLPI_ORDER_FAULT(err, "list.order.weights",
                                "all %" PRIu64 " weights are 0, the sum must be 1..2^63", n);
    return DLP_OK;
}

/* Return the name of the first callback that is given, or NULL if none is. */
static const char *dlpi_order_has_lists(const dlp_batch_sampler *s) {
    if (s->next != NULL) return "next";
    if (s->begin != NULL) return "begin";
    if (s->save != NULL) return "save";
    if (s->restore != NULL) return "restore";
    return s->why != NULL ? "why" : NULL;
}

/* Check all of a desc but its batch sampler. Returns 0, or DLP_ERR_ARG with *err filled. */
static int dlpi_order_check(const dlp_sampler_desc *d, uint64_t n_items, dlp_error *err) {
    const dlpi_order_ops *ops;
    uint64_t n = d->samples_per_epoch;
    int rc;
    if (n_items < 1 || n_items > DLPI_MAX_ITEMS)
        return dlpi_order_bad(err, "source.dataset.n_items", (int64_t)n_items, "1..2^48");
    if ((ops = dlpi_order_of(d->order)) == NULL)
        return dlpi_order_bad(err, "list.order.order", d->order, "one of DLP_ORDER_*");
    if (d->threaded < 0 || d->threaded > 1)
        return dlpi_order_bad(err, "list.order.threaded", d->threaded, "0 or 1");
    if ((rc = dlpi_order_check_subset(d, n_items, err)) != DLP_OK) return rc;
    if ((rc = dlpi_order_check_weights(d, n_items, err)) != DLP_OK) return rc;
    if (n > DLPI_MAX_ITEMS)
        return dlpi_order_bad(err, "list.order.samples_per_epoch", (int64_t)n, "at most 2^48");
    if (n && (ops->elsewhere || (ops->once && n != dlpi_order_domain(d, n_items))))
        return dlpi_order_bad(err, "list.order.samples_per_epoch", (int64_t)n, "0 for this order");
    if (ops->function != (d->function != NULL))
        return DLPI_ORDER_FAULT(err, "list.order.function",
                                "function is %s but order is %s: DLP_ORDER_FUNCTION needs one",
                                d->function ? "set" : "NULL", ops->name);
    if (d->order != DLP_ORDER_BATCHES && dlpi_order_has_lists(&d->batches))
        return DLPI_ORDER_FAULT(err, "list.order.batches",
                                "batches.%s needs order DLP_ORDER_BATCHES, order is %s",
                                dlpi_order_has_lists(&d->batches), ops->name);
    if (d->replacement && !ops->function)
        return DLPI_ORDER_FAULT(err, "list.order.replacement",
                                "replacement needs DLP_ORDER_FUNCTION, order is %s", ops->name);
    return DLP_OK;
}

DLPI_COLD static uint64_t dlpi_order_hash_array(uint64_t h, const uint64_t *values, uint64_t n) {
    uint64_t lane[4];
    for (uint64_t k = 0; k < 4; k++) lane[k] = dlpi_absorb(h, k);
    for (uint64_t i = 0; i < n; i++) lane[i & 3] = dlpi_absorb(lane[i & 3], values[i]);
    return dlpi_absorb(dlp_hash(lane[0], lane[1], lane[2], lane[3]), n);
}

/* Return a hash of subset, weights, samples per epoch and function_id, for the fingerprint of a
   saved state. */
static uint64_t dlpi_order_params_hash(const dlp_sampler_desc *d, uint64_t n_items) {
    uint64_t h = dlpi_hash_in(DLPI_DOMAIN_PARAMS, d->function_id, dlpi_order_samples(d, n_items));
    const bool array = d->subset != NULL && d->subset != dlpi_order_range;
    h = dlpi_order_hash_array(h, d->subset, array ? d->n_subset : 0);
    return dlpi_order_hash_array(h, d->weights, d->weights ? dlpi_order_domain(d, n_items) : 0);
}

/* --- Positions to dataset indices ------------------------------------------------------------- */

/* One worker's view of the order; it is process-local and holds pointers. */
struct dlpi_order {
    const dlpi_order_ops *ops;
    int32_t ready; /* 1: key[] and permutation are those of `epoch` */
    uint64_t n_items;
    uint64_t domain;  /* number of items that may come: those of the subset, or all */
    uint64_t samples; /* positions of an epoch; 0: not known */
    uint64_t seed, epoch;
    uint64_t key[3];           /* REPLACEMENT, WEIGHTED: keys of this epoch's draws */
    dlpi_range buckets, units; /* draws below `domain`; WEIGHTED: draws of a unit in a bucket */
    const uint64_t *subset;    /* [domain] indices of the subset; NULL: all items. dlpi_order_range:
                                  the items from `first` on */
    uint64_t first;
    const dlpi_alias *alias; /* table of the weights; NULL: there are no weights */
    uint64_t (*function)(void *user, uint64_t epoch, uint64_t position);
    void *user;
    uint64_t (*replacement)(void *user, uint64_t epoch, uint64_t position, uint64_t random);
    dlp_permutation permutation;
};

/* Set up *o to compute the order of a sampler, which must have been checked. table: what
   dlpi_order_build filled. The table and the arrays of the sampler are borrowed. */
static void dlpi_order_init(dlpi_order *o, const dlp_sampler_desc *d, uint64_t n_items,
                            const void *table) {
    const dlpi_alias *t = (const dlpi_alias *)table;
    memset(o, 0, sizeof *o);
    o->ops = dlpi_order_of(d->order);
    o->n_items = n_items;
    o->domain = dlpi_order_domain(d, n_items);
    o->samples = dlpi_order_samples(d, n_items);
    o->seed = d->seed;
    o->subset = d->subset;
    o->first = dlpi_order_first(d);
    o->function = d->function;
    o->user = d->function_user;
    o->replacement = d->replacement;
    o->buckets = dlpi_range_of(o->domain);
    if (o->ops->weights) {
        o->alias = t + 1;
        o->units = dlpi_range_of(t[0].own);
    }
}

/* Compute the keys of an epoch, and all else that its order needs. Later calls for positions of
   this epoch use them. */
static void dlpi_order_begin(dlpi_order *o, uint64_t epoch) {
    for (uint64_t i = 0; i < 3; i++)
        o->key[i] = dlpi_absorb(dlpi_hash_in(o->ops->domain, o->seed, epoch), i);
    o->epoch = epoch;
    o->ready = 1;
    if (o->ops->begin != NULL) o->ops->begin(o);
}

/* Return a random word for a position. Two rounds: with one, epochs could draw from one sequence in
   another order. */
static inline uint64_t dlpi_order_random(const dlpi_order *o, uint64_t position) {
    return dlpi_absorb(dlpi_absorb(o->key[0], position), o->key[1]);
}

/* Draw the item of a position by weight: choose a bucket, then one of its two items. */
static inline uint64_t dlpi_order_weighted(const dlpi_order *o, uint64_t position) {
    uint64_t random = dlpi_order_random(o, position);
    uint64_t bucket = dlpi_below(o->buckets, random);
    uint64_t unit = dlpi_below(o->units, dlpi_absorb(random, o->key[2]));
    const dlpi_alias *entry = &o->alias[bucket];
    return unit < entry->own ? bucket : entry->alias;
}

static void dlpi_block_sequential(const dlpi_order *o DLPI_UNREAD, uint64_t first, uint32_t count,
                                  uint64_t *out) {
    for (uint32_t i = 0; i < count; i++) out[i] = first + i;
}

static const dlpi_order_ops dlpi_sequential_order = {
    .name = "DLP_ORDER_SEQUENTIAL", .once = true, .block = dlpi_block_sequential};
static const dlpi_order_ops dlpi_batches_order = {
    .name = "DLP_ORDER_BATCHES", .elsewhere = true, .block = dlpi_block_sequential};
static const dlpi_order_ops dlpi_parts_order = {
    .name = "DLP_ORDER_PARTS", .elsewhere = true, .block = dlpi_block_sequential};

static void dlpi_begin_shuffled(dlpi_order *o) {
    dlp_permutation_init(&o->permutation, o->domain, o->seed, o->epoch);
}
static void dlpi_block_shuffled(const dlpi_order *o, uint64_t first, uint32_t count,
                                uint64_t *out) {
    dlp_permutation_block(&o->permutation, first, count, out);
}

static const dlpi_order_ops dlpi_shuffled_order = {.name = "DLP_ORDER_SHUFFLED",
                                                   .once = true,
                                                   .domain = DLPI_DOMAIN_PERMUTATION,
                                                   .begin = dlpi_begin_shuffled,
                                                   .block = dlpi_block_shuffled};

static void dlpi_block_replacement(const dlpi_order *o, uint64_t first, uint32_t count,
                                   uint64_t *out) {
    for (uint32_t i = 0; i < count; i++)
        out[i] = dlpi_below(o->buckets, dlpi_order_random(o, first + i));
}

static const dlpi_order_ops dlpi_replacement_order = {.name = "DLP_ORDER_REPLACEMENT",
                                                      .drawn = true,
                                                      .domain = DLPI_DOMAIN_DRAW,
                                                      .block = dlpi_block_replacement};

static void dlpi_block_weighted(const dlpi_order *o, uint64_t first, uint32_t count,
                                uint64_t *out) {
    for (uint32_t i = 0; i < count; i++) out[i] = dlpi_order_weighted(o, first + i);
}

static const dlpi_order_ops dlpi_weighted_order = {.name = "DLP_ORDER_WEIGHTED",
                                                   .drawn = true,
                                                   .weights = true,
                                                   .domain = DLPI_DOMAIN_WEIGHTED,
                                                   .block = dlpi_block_weighted};

static void dlpi_block_function(const dlpi_order *o, uint64_t first, uint32_t count,
                                uint64_t *out) {
    for (uint32_t i = 0; i < count; i++) out[i] = o->function(o->user, o->epoch, first + i);
}

static const dlpi_order_ops dlpi_function_order = {
    .name = "DLP_ORDER_FUNCTION", .function = true, .block = dlpi_block_function};

#define DLPI_ORDER_IS(name, number, ops) static const dlpi_order_ops ops; /* each in order/ */
DLPI_ORDERS(DLPI_ORDER_IS)

static const dlpi_order_ops *dlpi_order_of(int32_t order) {
    static const dlpi_order_ops *const all[] = {DLPI_ORDERS(DLPI_ROW_OPS)};
    return order >= 0 && (size_t)order < sizeof all / sizeof(void *) ? all[order] : NULL;
}

/* Return the index at a place of the order's subset, which it has. */
DLPI_NOINLINE static uint64_t dlpi_order_of_subset(const dlpi_order *o, uint64_t place) {
    if (place >= o->domain) return UINT64_MAX;
    return o->subset == dlpi_order_range ? o->first + place : o->subset[place];
}

/* Write the dataset indices of positions first .. first+count-1 of an epoch. If a user's function
   returns an index out of range, n_items or more is written, and the caller must check it. */
static void dlpi_order_block(dlpi_order *o, uint64_t epoch, uint64_t first, uint32_t count,
                             uint64_t *out) {
    if (DLPI_UNLIKELY(!o->ready || o->epoch != epoch)) dlpi_order_begin(o, epoch);
    o->ops->block(o, first, count, out);
    if (o->subset)
        for (uint32_t i = 0; i < count; i++) out[i] = dlpi_order_of_subset(o, out[i]);
}

/* Return the index that replaces the item at a position when it fails for the k-th time, k >= 1. It
   is the index at a keyed position of the epoch. For draws with replacement it is one more draw, at
   a position after the end of any epoch. *o stays at its epoch, because a copy of it is used. */
DLPI_COLD static uint64_t dlpi_order_replacement(const dlpi_order *o, uint64_t epoch,
                                                 uint64_t position, uint32_t k) {
    dlpi_order view = *o;
    uint64_t index = 0, behind = (uint64_t)1 << 63;
    uint64_t random = dlpi_absorb(
        dlpi_absorb(dlpi_hash_in(DLPI_DOMAIN_REPLACEMENT, o->seed, epoch), position), k);
    uint64_t positions = o->samples ? o->samples : o->domain;
    uint64_t other = o->ops->drawn ? behind | random : dlpi_below(dlpi_range_of(positions), random);
    if (o->replacement) {
        index = o->replacement(o->user, epoch, position, random);
        return o->subset ? dlpi_order_of_subset(o, index) : index;
    }
    dlpi_order_block(&view, epoch, other, 1, &index);
    return index;
}

/* --- Ranks ------------------------------------------------------------------------------------ */

/* Return how many of the n rows of a batch this rank has. *first gets the first of them. */
static uint32_t dlpi_rows_of_rank(uint64_t rank, uint64_t world, uint64_t n, uint64_t *first) {
    *first = 0;
    if (world == 1) return (uint32_t)n; /* without its divisions */
    *first = rank * n / world;
    return (uint32_t)((rank + 1) * n / world - *first);
}
