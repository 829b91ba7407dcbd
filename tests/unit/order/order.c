/* Hashes, keyed permutations and the samplers' arithmetic.

   No argument: all tests. "pins": only those that compare with pinned numbers (for slow emulators).
   "print": the numbers to pin, as C. Randomness tests use fixed seeds, so that they pass or fail
   for ever; mutants of the generator (fewer rounds) are run through the same statistics and must
   fail them. */
#include "../../../dlpipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../rig/inside.h"
#include "../../rig/order.h"

#ifndef ORDER_PINS_ONLY
#define ORDER_PINS_ONLY 0
#endif

static dlp_permutation keyed(uint64_t n, uint64_t seed, uint64_t epoch) {
    dlp_permutation p;
    int rc = dlp_permutation_init(&p, n, seed, epoch);
    CHECK(rc == DLP_OK, "n %llu: %d", (ull)n, rc);
    return p;
}

/* --- Hash ------------------------------------------------------------------------------------- */

static void hash__one_bit_changed__half_of_all_bits_change(void) {
    enum { SAMPLES = 4096 };
    static uint32_t flips[64];
    for (int word = 0; word < 4; word++)
        for (int bit = 0; bit < 64; bit++) {
            memset(flips, 0, sizeof flips);
            for (uint64_t s = 0; s < SAMPLES; s++) {
                uint64_t w[4] = {s, s / 7, 3, s & 15}; /* structured, as seeds and positions are */
                uint64_t before = dlp_hash(w[0], w[1], w[2], w[3]), change;
                w[word] ^= TWO(bit);
                change = before ^ dlp_hash(w[0], w[1], w[2], w[3]);
                for (int out = 0; out < 64; out++) flips[out] += (uint32_t)(change >> out) & 1;
            }
            for (int out = 0; out < 64; out++)
                CHECK(absolute((double)flips[out] - SAMPLES / 2) < 6 * 32,
                      "word %d bit %d out %d: %u", word, bit, out, flips[out]);
        }
}

static void hash__small_arguments__all_different(void) {
    static uint64_t h[16 * 16 * 16 * 16];
    uint64_t n = 0;
    for (uint64_t i = 0; i < COUNT(h); i++)
        h[n++] = dlp_hash(i & 15, i >> 4 & 15, i >> 8 & 15, i >> 12);
    qsort(h, n, sizeof *h, compare_words);
    for (uint64_t i = 1; i < n; i++)
        CHECK(h[i] != h[i - 1], "a sum, or an order of arguments that does not matter");
}

static void item_random__any_change__new_number(void) {
    static uint64_t h[4 * 8 * 8 * 8];
    uint64_t n = 0;
    for (uint64_t i = 0; i < COUNT(h); i++) {
        dlp_item item;
        memset(&item, 0, sizeof item);
        item.seed = i >> 9;
        item.epoch = i >> 6 & 7;
        item.position = i >> 3 & 7;
        item.worker = (uint32_t)i;
        h[n] = dlp_item_random(&item, i & 7);
        item.worker++;
        item.row++;
        item.attempt++;
        item.index++;
        CHECK(dlp_item_random(&item, i & 7) == h[n], "depends on more than seed, epoch, position, "
                                                     "salt");
        CHECK(dlp_hash(item.seed, item.epoch, item.position, i & 7) != h[n], "shares the plain "
                                                                             "hash's domain");
        n++;
    }
    qsort(h, n, sizeof *h, compare_words);
    for (uint64_t i = 1; i < n; i++) CHECK(h[i] != h[i - 1], "two items share a number");
}

/* --- Ranges ------------------------------------------------------------------------------------
 */

static void multiply__pairs__as_schoolbook(void) {
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t a = dlp_hash(i, 0, 0, 0) >> (i % 64), b = dlp_hash(i, 1, 0, 0) >> (i / 64 % 64),
                 low;
        uint64_t high = inside_multiply(a, b, &low);
        uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
        uint64_t carry = ((a0 * b0 >> 32) + (uint32_t)(a1 * b0) + (uint32_t)(a0 * b1)) >> 32;
        CHECK(low == a * b && high == a1 * b1 + (a1 * b0 >> 32) + (a0 * b1 >> 32) + carry,
              "%llx * %llx", (ull)a, (ull)b);
    }
}

/* Without rejection one of each three neighbours would come twice as often. */
static void below__three_quarters_of_range__unbiased(void) {
    uint64_t count[3] = {0};
    const uint64_t n = 3 * TWO(62);
    for (uint64_t i = 0; i < 300000; i++) {
        uint64_t v = inside_below(n, dlp_hash(i, 0, 0, 0));
        CHECK(v < n, "%llu", (ull)v);
        count[v % 3]++;
    }
    CHECK(absolute(chi_uniform(count, 3, 100000)) < 4.5, "%llu %llu %llu", (ull)count[0],
          (ull)count[1], (ull)count[2]);
    CHECK(inside_below(1, UINT64_MAX) == 0 && inside_below(TWO(63), UINT64_MAX) == TWO(63) - 1,
          "ends");
}

/* --- Permutation: a bijection ------------------------------------------------------------------
 */

static void check_bijection(uint64_t n, uint64_t seed, uint64_t epoch) {
    static uint64_t out[70000];
    static uint64_t seen[70000]; /* turn in which a value was seen */
    static uint64_t turn;
    dlp_permutation p = keyed(n, seed, epoch);
    turn++;
    dlp_permutation_block(&p, 0, (uint32_t)n, out);
    for (uint64_t i = 0; i < n; i++) {
        CHECK(out[i] < n, "n %llu at %llu: %llu", (ull)n, (ull)i, (ull)out[i]);
        if (out[i] >= n) return;
        CHECK(seen[out[i]] != turn, "n %llu: %llu twice", (ull)n, (ull)out[i]);
        seen[out[i]] = turn;
        CHECK(dlp_permutation_find(&p, out[i]) == i, "n %llu: find %llu", (ull)n, (ull)out[i]);
    }
}

static void permutation__every_n_to_3000__bijection(void) {
    for (uint64_t n = 1; n <= 3000; n++) check_bijection(n, n * 77, 5);
}

static void permutation__around_powers_of_two__bijection(void) {
    for (uint32_t k = 10; k <= 16; k++)
        for (uint64_t n = TWO(k) - 3; n <= TWO(k) + 3; n++)
            for (uint64_t epoch = 0; epoch < 3; epoch++) check_bijection(n, 1, epoch);
    for (uint64_t n = 3000; n < 66000; n = n * 21 / 16) check_bijection(n, 2, 0);
}

static const uint64_t large[] = {1000000000,   1073741823,      1073741824,      1073741825,
                                 999999999989, 281474976710655, 281474976710656, 140737488355329};

static void permutation__large_n__find_undoes_at(void) {
    static uint64_t out[4096];
    for (uint64_t k = 0; k < COUNT(large); k++) {
        uint64_t n = large[k], first = n / 3;
        dlp_permutation p = keyed(n, k, 9);
        for (uint64_t i = 0; i < 20000; i++) {
            uint64_t x = i < 10 ? i : i < 20 ? n - 1 - (i - 10) : dlp_hash(i, n, 0, 0) % n;
            uint64_t y = dlp_permutation_at(&p, x);
            CHECK(y < n && dlp_permutation_find(&p, y) == x, "n %llu at %llu: %llu", (ull)n, (ull)x,
                  (ull)y);
            CHECK(dlp_permutation_at(&p, dlp_permutation_find(&p, x)) == x, "n %llu find %llu",
                  (ull)n, (ull)x);
        }
        dlp_permutation_block(&p, first, COUNT(out), out);
        qsort(out, COUNT(out), sizeof *out, compare_words);
        for (uint64_t i = 1; i < COUNT(out); i++)
            CHECK(out[i] != out[i - 1], "n %llu: %llu twice", (ull)n, (ull)out[i]);
    }
}

static void permutation__bad_arguments__refused(void) {
    static const uint64_t bad[] = {0, TWO(48) + 1, UINT64_MAX};
    dlp_permutation p, before;
    uint64_t out[3];
    memset(&p, 0x5a, sizeof p);
    before = p;
    for (uint64_t k = 0; k < COUNT(bad); k++) {
        CHECK(dlp_permutation_init(&p, bad[k], 1, 1) == DLP_ERR_ARG, "n %llu", (ull)bad[k]);
        CHECK(memcmp(&p, &before, sizeof p) == 0, "changed");
    }
    for (uint64_t n = 1; n < TWO(48); n = n * 3 + 1) {
        p = keyed(n, 0, 0);
        CHECK(dlp_permutation_at(&p, n) == UINT64_MAX &&
                  dlp_permutation_at(&p, UINT64_MAX) == UINT64_MAX,
              "at");
        CHECK(dlp_permutation_find(&p, n) == UINT64_MAX &&
                  dlp_permutation_find(&p, TWO(60)) == UINT64_MAX,
              "find");
        dlp_permutation_block(&p, n - 1, 3, out);
        CHECK(out[0] == dlp_permutation_at(&p, n - 1) && out[1] == UINT64_MAX &&
                  out[2] == UINT64_MAX,
              "block");
        dlp_permutation_block(&p, UINT64_MAX - 1, 3, out);
        CHECK(out[0] == UINT64_MAX && out[1] == UINT64_MAX && out[2] == UINT64_MAX, "block behind "
                                                                                    "the end");
    }
}

/* Also the proof that vectors and plain C give the same numbers: dlp_permutation_at has no vectors.
 */
static void permutation__blocks_at_odd_places__as_one_at_a_time(void) {
    static const uint64_t small[] = {5, 1000, 1023, 1024, 1025, 2047, 2049, 4097, 32768, 60000};
    static uint64_t out[200];
    for (uint64_t k = 0; k < COUNT(small) + COUNT(large); k++) {
        uint64_t n = k < COUNT(small) ? small[k] : large[k - COUNT(small)];
        dlp_permutation p = keyed(n, 3, k), plain = p;
        plain.simd = 0;
        for (uint32_t turn = 0; turn < 400; turn++) {
            uint64_t first = dlp_hash(turn, n, 0, 0) % n;
            uint32_t count = turn % 131;
            out[count] = 4711;
            dlp_permutation_block(&p, first, count, out);
            for (uint32_t i = 0; i < count; i++)
                CHECK(out[i] == dlp_permutation_at(&p, first + i), "n %llu first %llu + %u", (ull)n,
                      (ull)first, i);
            CHECK(out[count] == 4711, "wrote behind the block");
            dlp_permutation_block(&plain, first, count, out);
            for (uint32_t i = 0; i < count; i++)
                CHECK(out[i] == dlp_permutation_at(&p, first + i), "plain: n %llu first %llu",
                      (ull)n, (ull)first);
        }
    }
}

/* --- Permutation: uniform ----------------------------------------------------------------------
 */

static void cut_rounds(dlp_permutation *p, uint32_t rounds) {
    if (rounds && p->rounds) p->rounds = rounds;
}

/* Chi-square over (position, value) cells, blocks * blocks of them (blocks divides n), summed over
   many keys. With fixed margins it has (blocks - 1)^2 degrees of freedom when scaled by (n - 1) /
   n. rounds: of a mutant, 0: as they are. */
static double cells_z(uint64_t n, uint64_t blocks, uint64_t first_key, uint64_t keys,
                      uint32_t rounds) {
    uint64_t width = n / blocks;
    uint32_t *cell = (uint32_t *)get(blocks * blocks, sizeof *cell);
    uint64_t *out = (uint64_t *)get(n, sizeof *out);
    double x = 0, expected = (double)(keys * width) * (double)width / (double)n;
    for (uint64_t key = first_key; key < first_key + keys; key++) {
        dlp_permutation p = keyed(n, key & 7, key >> 3);
        cut_rounds(&p, rounds);
        dlp_permutation_block(&p, 0, (uint32_t)n, out);
        for (uint64_t i = 0, b = 0; b < blocks; b++)
            for (uint64_t end = i + width; i < end; i++)
                cell[b * blocks + (width == 1 ? out[i] : (uint32_t)out[i] / (uint32_t)width)]++;
    }
    for (uint64_t i = 0; i < blocks * blocks; i++)
        x += ((double)cell[i] - expected) * ((double)cell[i] - expected) / expected;
    free(cell);
    free(out);
    return chi_z(x * (double)(n - 1) / (double)n, (double)((blocks - 1) * (blocks - 1)));
}

static void permutation__many_keys__positions_and_values_uniform(void) {
    static const struct {
        uint64_t n, blocks, keys;
    } big[] = {{100, 100, 10000},   {1000, 1000, 10000}, {1023, 1023, 10000}, {1024, 1024, 20000},
               {1025, 1025, 20000}, {4096, 4096, 8192},  {60000, 250, 400},   {1024, 8, 40000},
               {1025, 41, 40000},   {4096, 16, 10000},   {60000, 10, 1000}};
    for (uint64_t n = 2; n <= 64; n++) {
        double z = cells_z(n, n, 0, 60 * n, 0);
        CHECK(absolute(z) < 4.5, "n %llu: z %.1f", (ull)n, z);
    }
    for (uint64_t k = 0; k < COUNT(big); k++) {
        double z = cells_z(big[k].n, big[k].blocks, 0, big[k].keys, 0);
        CHECK(absolute(z) < 4.5, "n %llu, %llu blocks: z %.1f", (ull)big[k].n, (ull)big[k].blocks,
              z);
        if (printing) printf("n %llu, %llu blocks: z %.1f\n", (ull)big[k].n, (ull)big[k].blocks, z);
    }
}

/* The same with a few keys at a time, many times: are the chi-squares spread as they should be? Too
   few rounds make cells depend on each other, which leaves their mean but widens them. */
static double spread_z(uint64_t n, uint64_t blocks, uint32_t rounds) {
    enum { GROUPS = 60, KEYS = 20 };
    double sum = 0;
    for (uint64_t group = 0; group < GROUPS; group++) {
        double z = cells_z(n, blocks, group * KEYS, KEYS, rounds);
        sum += z * z;
    }
    return (sum - GROUPS) / root(2 * GROUPS, 2);
}

static void permutation__few_keys__chi_squares_spread_as_they_should(void) {
    static const struct {
        uint64_t n, blocks;
    } at[] = {{1024, 32}, {1056, 33},   {4096, 64}, {60160, 235},
              {1025, 41}, {60000, 250}, {1000, 40}};
    for (uint64_t k = 0; k < COUNT(at); k++) {
        double z = spread_z(at[k].n, at[k].blocks, 0),
               two = k < 4 ? spread_z(at[k].n, at[k].blocks, 2) : 1e9;
        CHECK(z < 4.5, "n %llu: z %.1f", (ull)at[k].n, z);
        CHECK(two > 20, "two rounds were not found out, n %llu: z %.1f", (ull)at[k].n, two);
        if (printing) printf("spread, n %llu: z %.1f, 2 rounds %.1f\n", (ull)at[k].n, z, two);
    }
}

/* What differences of inputs do to differences of outputs: pairs of positions with equal right
   halves (kind 0) or equal left halves (kind 1); returned is the largest deviation, in standard
   deviations, of: equal left halves of the values, equal right halves, and the difference going
   through unchanged. This is how few rounds are told from a random permutation (Patarin, Generic
   Attacks on Feistel Schemes, 2001). n: left_values << right_bits. */
static double pairs_z(uint64_t n, uint64_t keys, uint32_t rounds) {
    static uint64_t out[65536];
    double seen[2][3] = {{0}}, expected[2][3] = {{0}}, worst = 0;
    for (uint64_t key = 0; key < keys; key++) {
        dlp_permutation p = keyed(n, key, 11);
        uint32_t bits = p.right_bits, a = p.left_values, b = 1u << bits, mask = b - 1;
        double other = (double)(n - 1);
        cut_rounds(&p, rounds);
        dlp_permutation_block(&p, 0, (uint32_t)n, out);
        for (int kind = 0; kind < 2; kind++) {
            for (uint32_t d = 1; d < 8; d++)
                for (uint32_t i = 0; i < n; i++) {
                    uint32_t left = (i >> bits) + (kind ? 0 : d),
                             right = ((i & mask) + (kind ? d : 0)) & mask;
                    uint32_t x = (uint32_t)out[i], y, left_by, right_by;
                    y = (uint32_t)out[(left < a ? left : left - a) << bits | right];
                    left_by = (y >> bits) - (x >> bits);
                    left_by = left_by < a ? left_by : left_by + a;
                    right_by = (y - x) & mask;
                    seen[kind][0] += left_by == 0;
                    seen[kind][1] += right_by == 0;
                    seen[kind][2] += kind ? right_by == d : left_by == d;
                }
            expected[kind][0] += 7.0 * (double)n * (b - 1) / other;
            expected[kind][1] += 7.0 * (double)n * (a - 1) / other;
            expected[kind][2] += 7.0 * (double)n * (kind ? a : b) / other;
        }
    }
    for (int i = 0; i < 6; i++) {
        double z =
            absolute(seen[i / 3][i % 3] - expected[i / 3][i % 3]) / root(expected[i / 3][i % 3], 2);
        worst = z > worst ? z : worst;
    }
    return worst;
}

static void permutation__pairs_of_positions__nothing_goes_through(void) {
    static const struct {
        uint64_t n, keys;
    } at[] = {{1024, 1500}, {1056, 1500}, {4096, 300}, {8192, 150}, {32768, 30}};
    for (uint64_t k = 0; k < COUNT(at); k++) {
        double z = pairs_z(at[k].n, at[k].keys, 0), two = pairs_z(at[k].n, at[k].keys / 10, 2);
        double four = pairs_z(at[k].n, at[k].keys, 4);
        CHECK(z < 4.5, "n %llu: z %.1f", (ull)at[k].n, z);
        CHECK(two > 50, "two rounds were not found out, n %llu: z %.1f", (ull)at[k].n, two);
        CHECK(four > 10, "four rounds were not found out, n %llu: z %.1f", (ull)at[k].n, four);
        if (printing)
            printf("pairs, n %llu: z %.1f, 4 rounds %.1f, 2 rounds %.1f\n", (ull)at[k].n, z, four,
                   two);
    }
}

static void permutation__five_items__all_120_orders_equally_often(void) {
    uint64_t count[3125] = {0}, orders[120], n = 0;
    for (uint64_t key = 0; key < 24000; key++) {
        dlp_permutation p = keyed(5, key, 1);
        uint64_t code = 0;
        for (uint64_t i = 0; i < 5; i++) code = code * 5 + dlp_permutation_at(&p, i);
        count[code]++;
    }
    for (uint64_t i = 0; i < COUNT(count); i++)
        if (count[i] && n < 120) orders[n++] = count[i];
    CHECK(n == 120, "%llu orders", (ull)n);
    CHECK(absolute(chi_uniform(orders, n, 200)) < 4.5, "z %.1f", chi_uniform(orders, n, 200));
}

static int is_odd(const uint64_t *out, uint64_t n) {
    static uint8_t seen[4096];
    uint64_t cycles = 0;
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < n; i++) {
        cycles += !seen[i];
        for (uint64_t j = i; !seen[j]; j = out[j]) seen[j] = 1;
    }
    return (int)((n - cycles) & 1);
}

static void permutation__any_n__as_many_odd_as_even(void) {
    static const uint64_t at[] = {2, 3, 4, 5, 8, 64, 1000, 1024, 1025, 1056, 2048, 2112, 4096};
    static uint64_t out[4096];
    for (uint64_t k = 0; k < COUNT(at); k++) {
        uint64_t odd = 0;
        for (uint64_t key = 0; key < 1600; key++) {
            dlp_permutation p = keyed(at[k], 1, key);
            dlp_permutation_block(&p, 0, (uint32_t)at[k], out);
            odd += (uint64_t)is_odd(out, at[k]);
        }
        CHECK(absolute((double)odd - 800) < 5 * 20, "n %llu: %llu odd of 1600", (ull)at[k],
              (ull)odd);
    }
}

/* Equal images in two permutations number about Poisson(1): over 100 pairs, 100 give or take 10. */
static void permutation__epochs_and_seeds__share_nothing(void) {
    static uint64_t a[20000], b[20000];
    static const uint64_t at[] = {1000, 1025, 20000};
    for (uint64_t k = 0; k < COUNT(at); k++)
        for (int by = 0; by < 4; by++) {
            uint64_t n = at[k], equal = 0;
            for (uint64_t i = 0; i < 100; i++) {
                uint64_t seed = by == 1 ? i : 5, epoch = by == 1 ? 5 : i;
                dlp_permutation p = keyed(n, seed, epoch);
                dlp_permutation q = by == 0   ? keyed(n, seed, epoch + 1)
                                    : by == 1 ? keyed(n, seed + 1, epoch)
                                    : by == 2 ? keyed(n, epoch, seed)
                                              : keyed(n, seed + TWO(63), epoch);
                if (by == 2 && i == 5) continue; /* the same pair */
                dlp_permutation_block(&p, 0, (uint32_t)n, a);
                dlp_permutation_block(&q, 0, (uint32_t)n, b);
                for (uint64_t j = 0; j < n; j++) equal += a[j] == b[j];
            }
            CHECK(absolute((double)equal - 100) < 50, "n %llu, way %d: %llu equal images", (ull)n,
                  by, (ull)equal);
        }
}

static double correlation(const uint64_t *x, const uint64_t *y, uint64_t count, uint64_t n) {
    double mean = (double)(n - 1) / 2, sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += ((double)x[i] - mean) * ((double)y[i] - mean);
    return sum / ((double)n * (double)n / 12) / root((double)count, 2);
}

/* Correlation of neighbours, of far neighbours (a step of the left half), of epochs, and of value
 * with position. */
static void permutation__neighbours_and_epochs__uncorrelated(void) {
    static uint64_t a[70000], b[70000], place[70000];
    static const uint64_t at[] = {1025, 4096, 60000, 1000000000, 1073741825, 281474976710656};
    for (uint64_t k = 0; k < COUNT(at); k++)
        for (uint64_t key = 0; key < 10; key++) {
            uint64_t n = at[k], count = n < 60000 ? n : 60000, lag = n < 60000 ? 32 : 256;
            dlp_permutation p = keyed(n, key, 1), q = keyed(n, key, 2);
            double z[4];
            dlp_permutation_block(&p, 0, (uint32_t)count, a);
            dlp_permutation_block(&q, 0, (uint32_t)count, b);
            for (uint64_t i = 0; i < count; i++) place[i] = i * (n / count);
            z[0] = correlation(a, a + 1, count - 1, n);
            z[1] = correlation(a, a + lag, count - lag, n);
            z[2] = correlation(a, b, count, n);
            z[3] = correlation(a, place, count, n);
            for (int i = 0; i < 4; i++)
                CHECK(absolute(z[i]) < 5, "n %llu key %llu kind %d: z %.1f", (ull)n, (ull)key, i,
                      z[i]);
        }
}

/* Differences of neighbours' values, mod n, into 64 equal blocks. */
static double difference_z(uint64_t n, uint64_t step, uint32_t rounds) {
    static uint64_t out[1 << 20];
    uint64_t count[64] = {0};
    dlp_permutation p = keyed(n, 12, 34);
    cut_rounds(&p, rounds);
    dlp_permutation_block(&p, n / 5, (uint32_t)COUNT(out), out);
    for (uint64_t i = 0; i + step < COUNT(out); i++) {
        uint64_t by = out[i + step] >= out[i] ? out[i + step] - out[i] : out[i + step] + n - out[i];
        count[(uint64_t)((double)by * 64 / (double)n)]++;
    }
    return chi_uniform(count, 64, (double)(COUNT(out) - step) / 64);
}

static void permutation__differences_of_neighbours__uniform(void) {
    for (uint64_t k = 0; k < COUNT(large); k++) {
        dlp_permutation p = keyed(large[k], 0, 0);
        uint64_t steps[2] = {1, TWO(p.right_bits)};
        for (int i = 0; i < 2; i++)
            if (steps[i] < TWO(20)) {
                double z = difference_z(large[k], steps[i], 0);
                CHECK(absolute(z) < 4.5, "n %llu, step %llu: z %.1f", (ull)large[k], (ull)steps[i],
                      z);
            }
    }
    CHECK(difference_z(1000000000, 32768, 2) > 20, "two rounds were not found out: z %.1f",
          difference_z(1000000000, 32768, 2));
}

/* --- Pins: these numbers never change -----------------------------------------------------------
 */

static void hash__words__as_pinned(void) {
    dlp_item item;
    memset(&item, 0, sizeof item);
    item.seed = 1;
    item.epoch = 2;
    item.position = 3;
    CHECK(dlp_hash(0, 0, 0, 0) == 0x2130748aaac80268u, "%llx", (ull)dlp_hash(0, 0, 0, 0));
    CHECK(dlp_hash(1, 2, 3, 4) == 0xd55ccd4aeb3ccafbu, "%llx", (ull)dlp_hash(1, 2, 3, 4));
    CHECK(dlp_hash(UINT64_MAX, 0, TWO(63), 7) == 0x5f4682bd4413c5bbu, "%llx",
          (ull)dlp_hash(UINT64_MAX, 0, TWO(63), 7));
    CHECK(dlp_item_random(&item, 0) == 0x8f033917cb4943eeu, "%llx", (ull)dlp_item_random(&item, 0));
    CHECK(dlp_item_random(&item, 4) == 0x2c1031b4ee88db8bu, "%llx", (ull)dlp_item_random(&item, 4));
}

static const struct permutation_pin {
    uint64_t n, seed, epoch, at[3], digest;
} permutation_pins[] = {
    {1u, 0u, 0u, {0u, 0u, 0u}, 0x0f308feb93f90169u},
    {2u, 0u, 1u, {0u, 1u, 1u}, 0x32e24fade7877ca7u},
    {5u, 7u, 0u, {4u, 2u, 3u}, 0x445d3e660f6a21b2u},
    {100u, 1u, 1u, {0u, 45u, 47u}, 0x5683501babf73ac2u},
    {1000u, 0u, 0u, {176u, 635u, 657u}, 0x9f69f6b4cdd07b4eu},
    {1023u, 123456789u, 3u, {77u, 422u, 798u}, 0xc50271bcbbf62a16u},
    {1024u, 0u, 0u, {947u, 203u, 264u}, 0x737a7bfc3a9ac8b4u},
    {1025u, 0u, 0u, {803u, 334u, 729u}, 0x9f6363f4c210aee8u},
    {1025u, 0u, 1u, {795u, 229u, 750u}, 0x02286d9efd5b52feu},
    {4095u, 2u, 2u, {661u, 2555u, 2753u}, 0x1dc3221f713a4b87u},
    {4096u, 2u, 2u, {3755u, 766u, 1595u}, 0xa58aaf730cffd737u},
    {5000u, 1u, 0u, {4721u, 2591u, 144u}, 0x0f9c629ad465d094u},
    {32767u, 9u, 9u, {12288u, 24176u, 18887u}, 0x1eba8f39468872fcu},
    {32768u, 9u, 9u, {15483u, 29405u, 23676u}, 0x4d444c270386918bu},
    {50000u, 42u, 7u, {47478u, 6270u, 39926u}, 0xf2ca0d638baeab70u},
    {60000u, 0u, 0u, {19235u, 44942u, 27555u}, 0x4e9078f9f507edbeu},
    {60000u, 1u, 0u, {43099u, 20043u, 42666u}, 0x10c058449fd386a0u},
    {1281167u, UINT64_MAX, 89u, {948970u, 110172u, 138230u}, 0x815f980e8b5946dcu},
    {1000000000u, 0u, 0u, {372083450u, 827405892u, 598902196u}, 0xd5febdfd86ae3f5du},
    {1000000000u, 3u, UINT64_MAX, {973718503u, 653490032u, 436250383u}, 0x40bcc9747e588f5cu},
    {1073741824u, 5u, 5u, {721340102u, 68821794u, 54489567u}, 0x110d1d3407c84cbfu},
    {1073741825u, 5u, 5u, {741094683u, 634757274u, 133036306u}, 0x5ea18168e8e9a111u},
    {999999999989u, 0u, 1u, {537436754808u, 1964872487u, 515598017833u}, 0x1db18ed26432f221u},
    {140737488355329u,
     1u,
     2u,
     {48074672437528u, 87532460294707u, 106424386027899u},
     0xd77760c01f13977cu},
    {281474976710655u,
     1u,
     2u,
     {32924594932461u, 137879988238321u, 110365687180634u},
     0x1bc770aebc6d7992u},
    {281474976710656u,
     1u,
     2u,
     {247257880217088u, 146547207230521u, 123902955503439u},
     0x5b48baace4be6404u},
};

/* at: of positions 0, n / 2, n - 1; digest: of the first 1,000 and the last 1,000 (all, where n is
 * less). */
static void permutation__several_n__as_pinned(void) {
    static uint64_t out[2000];
    for (uint64_t k = 0; k < COUNT(permutation_pins); k++) {
        const struct permutation_pin *pin = &permutation_pins[k];
        uint64_t n = pin->n, some = n < 1000 ? n : 1000;
        dlp_permutation p = keyed(n, pin->seed, pin->epoch);
        uint64_t at[3] = {dlp_permutation_at(&p, 0), dlp_permutation_at(&p, n / 2),
                          dlp_permutation_at(&p, n - 1)};
        dlp_permutation_block(&p, 0, (uint32_t)some, out);
        dlp_permutation_block(&p, n - some, (uint32_t)some, out + some);
        if (printing)
            printf("    {%lluu, %lluu, %lluu, {%lluu, %lluu, %lluu}, 0x%016llxu},\n", (ull)n,
                   (ull)pin->seed, (ull)pin->epoch, (ull)at[0], (ull)at[1], (ull)at[2],
                   (ull)digest(out, 2 * some));
        CHECK(memcmp(at, pin->at, sizeof at) == 0, "n %llu: %llu %llu %llu", (ull)n, (ull)at[0],
              (ull)at[1], (ull)at[2]);
        CHECK(digest(out, 2 * some) == pin->digest, "n %llu: %llx", (ull)n,
              (ull)digest(out, 2 * some));
    }
}

int main(int argc, char **argv) {
    int pins_only =
        ORDER_PINS_ONLY || getenv("EMULATED") || (argc > 1 && strcmp(argv[1], "pins") == 0);
    printing = argc > 1 && strcmp(argv[1], "print") == 0;
    RUN(hash__words__as_pinned);
    RUN(permutation__several_n__as_pinned);
    RUN(permutation__blocks_at_odd_places__as_one_at_a_time);
    if (!pins_only) {
        RUN(hash__one_bit_changed__half_of_all_bits_change);
        RUN(hash__small_arguments__all_different);
        RUN(item_random__any_change__new_number);
        RUN(multiply__pairs__as_schoolbook);
        RUN(below__three_quarters_of_range__unbiased);
        RUN(permutation__every_n_to_3000__bijection);
        RUN(permutation__around_powers_of_two__bijection);
        RUN(permutation__large_n__find_undoes_at);
        RUN(permutation__bad_arguments__refused);
        RUN(permutation__many_keys__positions_and_values_uniform);
        RUN(permutation__few_keys__chi_squares_spread_as_they_should);
        RUN(permutation__pairs_of_positions__nothing_goes_through);
        RUN(permutation__five_items__all_120_orders_equally_often);
        RUN(permutation__any_n__as_many_odd_as_even);
        RUN(permutation__epochs_and_seeds__share_nothing);
        RUN(permutation__neighbours_and_epochs__uncorrelated);
        RUN(permutation__differences_of_neighbours__uniform);
    }
    printf("order: %d tests, %d failed\n", tests_run, tests_failed);
    return tests_failed ? 1 : 0;
}
