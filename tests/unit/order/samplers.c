/* Samplers' arithmetic: descs checked, positions mapped to dataset indices, replacements,
   fingerprints.

   No argument: all tests. "pins": only those that compare with pinned numbers. "print": the numbers
   to pin, as C. */
/* own: inside: views of an order, its tables and its hash */
#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../rig/order.h"

#define ITEMS 1000

static uint64_t weights[ITEMS], subset[300];

/* A function order: epochs turn the items round. */
static uint64_t turned(void *user, uint64_t epoch, uint64_t position) {
    return (position * 7 + epoch * 13) % *(const uint64_t *)user;
}

static uint64_t too_far(void *user, uint64_t epoch, uint64_t position) {
    DLPI_UNUSED(user);
    return epoch + position;
}

static uint64_t stand_in(void *user, uint64_t epoch, uint64_t position, uint64_t random) {
    DLPI_UNUSED(user);
    return (epoch + position + random) % 2;
}

static uint64_t turned_items = ITEMS;

static dlp_sampler_desc desc_of(int order) {
    dlp_sampler_desc d;
    memset(&d, 0, sizeof d);
    d.order = order;
    d.seed = 42;
    if (order == DLP_ORDER_WEIGHTED) d.weights = weights;
    if (order == DLP_ORDER_FUNCTION) {
        d.function = turned;
        d.function_user = &turned_items;
    }
    return d;
}

static dlp_sampler_desc with_subset(dlp_sampler_desc d) {
    d.subset = subset;
    d.n_subset = COUNT(subset);
    return d;
}

static void fill_inputs(void) {
    for (uint64_t i = 0; i < ITEMS; i++)
        weights[i] = i % 5 == 0 ? 0 : i % 17 == 0 ? 5000 : 1 + i % 9;
    for (uint64_t i = 0; i < COUNT(subset); i++) subset[i] = (i * 37 + 11) % ITEMS;
}

/* A view with its table; the table is freed by drop. */
typedef struct view {
    dlpi_order order;
    void *table;
} view;

static view view_of(const dlp_sampler_desc *d, uint64_t n_items) {
    view v;
    dlp_error err;
    uint64_t bytes = dlpi_order_table_bytes(d, n_items);
    int rc = dlpi_order_check(d, n_items, &err);
    CHECK(rc == DLP_OK, "%s: %s", err.field, err.message);
    v.table = bytes ? get(bytes, 1) : NULL;
    dlpi_order_build(d, n_items, v.table);
    dlpi_order_init(&v.order, d, n_items, v.table);
    return v;
}

static void drop(view *v) { free(v->table); }

static uint64_t index_at(view *v, uint64_t epoch, uint64_t position) {
    uint64_t out = 0;
    dlpi_order_block(&v->order, epoch, position, 1, &out);
    return out;
}

/* --- Descs -------------------------------------------------------------------------------------
 */

static void refused(const dlp_sampler_desc *d, uint64_t n_items, const char *field,
                    const char *words) {
    dlp_error err;
    int rc;
    memset(&err, 0x5a, sizeof err);
    rc = dlpi_order_check(d, n_items, &err);
    CHECK(rc == DLP_ERR_ARG, "%s: accepted, %d", field, rc);
    if (rc == DLP_OK) return;
    CHECK(err.code == rc && err.worker == -1 && err.has_item == 0, "%s: record not filled", field);
    CHECK(strcmp(err.field, field) == 0, "%s, not %s", err.field, field);
    CHECK(strstr(err.message, words) != NULL, "%s: \"%s\" does not say \"%s\"", field, err.message,
          words);
    CHECK(dlpi_order_check(d, n_items, NULL) == rc, "without a record");
}

static void check__one_field_wrong__named(void) {
    static uint64_t bad_subset[] = {1, 2, ITEMS, 3}, bad_weights[ITEMS], no_weights[ITEMS];
    dlp_sampler_desc d = desc_of(DLP_ORDER_SHUFFLED);
    refused(&d, 0, "source.dataset.n_items", "1..2^48");
    refused(&d, TWO(48) + 1, "source.dataset.n_items", "281474976710657");
    d.order = 7;
    refused(&d, ITEMS, "list.order.order", "order is 7");
    d.order = -1;
    refused(&d, ITEMS, "list.order.order", "one of DLP_ORDER_*");
    d = desc_of(DLP_ORDER_SEQUENTIAL);
    d.threaded = 2;
    refused(&d, ITEMS, "list.order.threaded", "2");
    d = desc_of(DLP_ORDER_SEQUENTIAL);
    d.n_subset = 4;
    refused(&d, ITEMS, "list.order.n_subset", "0 without subset");
    d.subset = bad_subset;
    refused(&d, ITEMS, "list.order.subset", "subset[2] is 1000");
    d.n_subset = 0;
    refused(&d, ITEMS, "list.order.n_subset", "n_subset is 0");
    d.n_subset = TWO(48) + 1;
    refused(&d, ITEMS, "list.order.n_subset", "2^48");
    d = desc_of(DLP_ORDER_WEIGHTED);
    d.weights = NULL;
    refused(&d, ITEMS, "list.order.weights", "NULL");
    d.weights = no_weights;
    refused(&d, ITEMS, "list.order.weights", "all 1000 weights are 0");
    d.weights = bad_weights;
    bad_weights[7] = TWO(63) - 1;
    bad_weights[8] = 1;
    CHECK(dlpi_order_check(&d, ITEMS, NULL) == DLP_OK, "a sum of 2^63");
    bad_weights[900] = 1;
    refused(&d, ITEMS, "list.order.weights", "weights[900] = 1");
    bad_weights[900] = UINT64_MAX; /* the sum wraps round */
    refused(&d, ITEMS, "list.order.weights", "2^63");
    d.order = DLP_ORDER_SHUFFLED;
    refused(&d, ITEMS, "list.order.weights", "order is DLP_ORDER_SHUFFLED");
    d = desc_of(DLP_ORDER_REPLACEMENT);
    d.samples_per_epoch = TWO(48) + 1;
    refused(&d, ITEMS, "list.order.samples_per_epoch", "2^48");
    d = desc_of(DLP_ORDER_SHUFFLED);
    d.samples_per_epoch = ITEMS - 1;
    refused(&d, ITEMS, "list.order.samples_per_epoch", "999");
    d = desc_of(DLP_ORDER_BATCHES);
    d.samples_per_epoch = ITEMS;
    refused(&d, ITEMS, "list.order.samples_per_epoch", "1000");
    d = desc_of(DLP_ORDER_FUNCTION);
    d.function = NULL;
    refused(&d, ITEMS, "list.order.function", "NULL");
    d = desc_of(DLP_ORDER_SHUFFLED);
    d.function = turned;
    refused(&d, ITEMS, "list.order.function", "order is DLP_ORDER_SHUFFLED");
    d = desc_of(DLP_ORDER_SHUFFLED);
    d.replacement = stand_in;
    refused(&d, ITEMS, "list.order.replacement", "order is DLP_ORDER_SHUFFLED");
}

static void check__each_order__accepted(void) {
    for (int order = DLP_ORDER_SEQUENTIAL; order <= DLP_ORDER_BATCHES; order++)
        for (int part = 0; part < 2; part++) {
            dlp_sampler_desc d = part ? with_subset(desc_of(order)) : desc_of(order);
            uint64_t n = part ? COUNT(subset) : ITEMS;
            CHECK(dlpi_order_check(&d, ITEMS, NULL) == DLP_OK, "order %d", order);
            CHECK(dlpi_order_samples(&d, ITEMS) == (order == DLP_ORDER_BATCHES ? 0 : n), "order %d",
                  order);
            CHECK((dlpi_order_table_bytes(&d, ITEMS) > 0) == (order == DLP_ORDER_WEIGHTED),
                  "order %d", order);
            d.samples_per_epoch = n * 3;
            if (order >= DLP_ORDER_REPLACEMENT && order <= DLP_ORDER_FUNCTION)
                CHECK(dlpi_order_check(&d, ITEMS, NULL) == DLP_OK &&
                          dlpi_order_samples(&d, ITEMS) == n * 3,
                      "order %d, samples_per_epoch", order);
        }
}

/* --- Orders ------------------------------------------------------------------------------------
 */

static void order__sequential_and_shuffled__each_index_once(void) {
    static uint64_t out[ITEMS], sorted[ITEMS];
    for (int order = DLP_ORDER_SEQUENTIAL; order <= DLP_ORDER_SHUFFLED; order++)
        for (int part = 0; part < 2; part++) {
            dlp_sampler_desc d = part ? with_subset(desc_of(order)) : desc_of(order);
            uint64_t n = part ? COUNT(subset) : ITEMS;
            view v = view_of(&d, ITEMS);
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                dlpi_order_block(&v.order, epoch, 0, (uint32_t)n, out);
                if (order == DLP_ORDER_SEQUENTIAL)
                    for (uint64_t i = 0; i < n; i++)
                        CHECK(out[i] == (part ? subset[i] : i), "at %llu: %llu", (ull)i,
                              (ull)out[i]);
                for (uint64_t i = 0; i < n; i++) sorted[i] = part ? subset[i] : i;
                qsort(sorted, n, sizeof *sorted, compare_words);
                qsort(out, n, sizeof *out, compare_words);
                CHECK(memcmp(out, sorted, n * sizeof *out) == 0, "order %d part %d: not each once",
                      order, part);
            }
            drop(&v);
        }
}

static void order__shuffled__the_public_permutation(void) {
    dlp_sampler_desc d = desc_of(DLP_ORDER_SHUFFLED);
    view v = view_of(&d, 60000);
    dlp_permutation p;
    CHECK(dlp_permutation_init(&p, 60000, d.seed, 3) == DLP_OK, "init");
    for (uint64_t i = 0; i < 1000; i++)
        CHECK(index_at(&v, 3, i) == dlp_permutation_at(&p, i), "at %llu", (ull)i);
    drop(&v);
}

/* Whatever was asked before, and in which pieces. */
static void order__any_piece_after_any_epoch__same_indices(void) {
    static uint64_t all[2][700], out[700];
    for (int order = DLP_ORDER_SEQUENTIAL; order <= DLP_ORDER_FUNCTION; order++)
        for (int part = 0; part < 2; part++) {
            dlp_sampler_desc d = part ? with_subset(desc_of(order)) : desc_of(order);
            uint32_t n = part ? COUNT(subset) : COUNT(out);
            view v;
            if (order == DLP_ORDER_FUNCTION) turned_items = part ? COUNT(subset) : ITEMS;
            v = view_of(&d, ITEMS);
            for (uint64_t epoch = 0; epoch < 2; epoch++)
                dlpi_order_block(&v.order, epoch, 0, n, all[epoch]);
            CHECK(order == DLP_ORDER_SEQUENTIAL || memcmp(all[0], all[1], n * sizeof **all) != 0,
                  "order %d: epochs are equal", order);
            for (uint32_t turn = 0; turn < 200; turn++) {
                uint64_t epoch = dlp_hash(turn, 1, 0, 0) & 1, first = dlp_hash(turn, 2, 0, 0) % n;
                uint32_t count = (uint32_t)(dlp_hash(turn, 3, 0, 0) % (n - first + 1));
                dlpi_order_block(&v.order, epoch, first, count, out);
                CHECK(memcmp(out, all[epoch] + first, count * sizeof *out) == 0,
                      "order %d: %llu + %u", order, (ull)first, count);
            }
            drop(&v);
        }
    turned_items = ITEMS;
}

static void order__replacement__uniform_and_repeating(void) {
    static uint64_t count[ITEMS], out[ITEMS];
    dlp_sampler_desc d = desc_of(DLP_ORDER_REPLACEMENT);
    uint64_t twice = 0;
    view v = view_of(&d, ITEMS);
    memset(count, 0, sizeof count);
    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        dlpi_order_block(&v.order, epoch, 0, ITEMS, out);
        for (uint64_t i = 0; i < ITEMS; i++) count[out[i]]++;
        qsort(out, ITEMS, sizeof *out, compare_words);
        for (uint64_t i = 1; i < ITEMS; i++) twice += out[i] == out[i - 1];
    }
    CHECK(absolute(chi_uniform(count, ITEMS, 100)) < 4.5, "z %.1f", chi_uniform(count, ITEMS, 100));
    /* n - n (1 - 1/n)^n = 368 repeats an epoch; their variance is about 97 */
    CHECK(absolute((double)twice - 36769) < 5 * 100, "%llu repeats", (ull)twice);
    drop(&v);
}

static void order__function_out_of_range__index_not_below_n_items(void) {
    dlp_sampler_desc d = desc_of(DLP_ORDER_FUNCTION), part;
    view v, w;
    d.function = too_far;
    part = with_subset(d);
    v = view_of(&d, ITEMS);
    w = view_of(&part, ITEMS);
    CHECK(index_at(&v, 5, 9) == 14 && index_at(&v, ITEMS, 0) >= ITEMS, "all items");
    CHECK(index_at(&w, 5, 9) == subset[14] && index_at(&w, COUNT(subset), 0) >= ITEMS, "a subset");
    drop(&v);
    drop(&w);
}

/* --- Weights -----------------------------------------------------------------------------------
 */

__extension__ typedef unsigned __int128 wide;

/* Of n buckets of `total` units, item i must own n * weight[i] units to the unit. */
static void exact_shares(const uint64_t *w, uint64_t n) {
    dlp_sampler_desc d = desc_of(DLP_ORDER_WEIGHTED);
    wide *units = (wide *)get(n, sizeof *units);
    uint64_t total = 0;
    view v;
    d.weights = w;
    v = view_of(&d, n);
    for (uint64_t i = 0; i < n; i++) total += w[i];
    CHECK(v.order.units.n == total, "total");
    for (uint64_t i = 0; i < n; i++) {
        const dlpi_alias *entry = &v.order.alias[i];
        CHECK(entry->own <= total && entry->alias < n, "bucket %llu", (ull)i);
        if (entry->own > total || entry->alias >= n) return;
        units[i] += entry->own;
        units[entry->alias] += total - entry->own;
    }
    for (uint64_t i = 0; i < n; i++)
        CHECK(units[i] == (wide)n * w[i], "n %llu, item %llu: wrong share", (ull)n, (ull)i);
    free(units);
    drop(&v);
}

static void weights__any_list__shares_exact(void) {
    static uint64_t w[5000];
    static const uint64_t awkward[][4] = {{1, 0, 0, 0},
                                          {0, 0, 0, 1},
                                          {TWO(63) - 5, 0, 5, 0},
                                          {TWO(62), TWO(62), 0, 0},
                                          {TWO(61), TWO(61), TWO(61), TWO(61)},
                                          {1, 1, 1, TWO(63) - 3},
                                          {TWO(63) - 3, 1, 1, 1},
                                          {3, 1, 3, 1},
                                          {0, TWO(63), 0, 0}};
    for (uint64_t k = 0; k < COUNT(awkward); k++) exact_shares(awkward[k], 4);
    w[0] = TWO(63);
    exact_shares(w, 1);
    exact_shares(weights, ITEMS);
    for (uint64_t turn = 0; turn < 300; turn++) {
        uint64_t n = 1 + dlp_hash(turn, 0, 0, 0) % COUNT(w);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t h = dlp_hash(turn, i, 1, 0);
            w[i] =
                (h & 3) < turn % 4 ? 0 : (h >> 15) >> (turn % 3 ? dlp_hash(turn, i, 2, 0) % 49 : 0);
        }
        w[n / 2]++;
        exact_shares(w, n);
    }
}

static void weights__many_draws__frequencies_as_weights(void) {
    enum { DRAWS = 2000000 };
    static uint64_t count[ITEMS], out[1000];
    dlp_sampler_desc d = desc_of(DLP_ORDER_WEIGHTED);
    view v = view_of(&d, ITEMS);
    double x = 0, cells = 0;
    uint64_t total = 0;
    memset(count, 0, sizeof count);
    for (uint64_t i = 0; i < ITEMS; i++) total += weights[i];
    for (uint64_t i = 0; i < DRAWS; i += COUNT(out)) {
        dlpi_order_block(&v.order, i / (DRAWS / 2), i, COUNT(out), out);
        for (uint64_t k = 0; k < COUNT(out); k++) count[out[k]]++;
    }
    for (uint64_t i = 0; i < ITEMS; i++) {
        double expected = (double)weights[i] * DRAWS / (double)total;
        CHECK(weights[i] > 0 || count[i] == 0, "item %llu of weight 0 was drawn", (ull)i);
        if (weights[i] > 0) {
            x += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
            cells++;
        }
    }
    CHECK(absolute(chi_z(x, cells - 1)) < 4.5, "z %.1f", chi_z(x, cells - 1));
    drop(&v);
}

/* Draws follow each other without a trace: (index at p, index at p + 1) of four equal items is
 * uniform. */
static void draws__neighbours__independent(void) {
    static const uint64_t equal[4] = {1, 1, 1, 1};
    static const int orders[2] = {DLP_ORDER_REPLACEMENT, DLP_ORDER_WEIGHTED};
    static uint64_t out[100001];
    for (int k = 0; k < 2; k++)
        for (uint64_t lag = 1; lag < 5; lag++) {
            uint64_t count[16] = {0}, across[16] = {0};
            dlp_sampler_desc d = desc_of(orders[k]);
            view v;
            if (d.weights) d.weights = equal;
            d.samples_per_epoch = COUNT(out);
            v = view_of(&d, 4);
            dlpi_order_block(&v.order, lag, 0, COUNT(out), out);
            for (uint64_t i = 0; i + lag < COUNT(out); i += 5) count[out[i] * 4 + out[i + lag]]++;
            for (uint64_t i = 0; i < 16000; i++) across[out[i] * 4 + index_at(&v, lag + 1, i)]++;
            CHECK(absolute(chi_uniform(count, 16, 20000 / 16.0)) < 4.5, "order %d lag %llu",
                  orders[k], (ull)lag);
            CHECK(absolute(chi_uniform(across, 16, 1000)) < 4.5, "order %d epochs", orders[k]);
            drop(&v);
        }
}

/* --- Replacements ------------------------------------------------------------------------------
 */

static void replacement__any_view__a_function_of_its_arguments(void) {
    for (int order = DLP_ORDER_SEQUENTIAL; order <= DLP_ORDER_BATCHES; order++)
        for (int part = 0; part < 2; part++) {
            dlp_sampler_desc d = part ? with_subset(desc_of(order)) : desc_of(order);
            uint64_t changes[3] = {0}, before;
            view v, w;
            turned_items = part ? COUNT(subset) : ITEMS;
            v = view_of(&d, ITEMS);
            w = view_of(&d, ITEMS);
            before = order == DLP_ORDER_BATCHES ? 0 : index_at(&w, 1, 2);
            for (uint64_t i = 0; i < 200; i++) {
                uint64_t index = dlpi_order_replacement(&v.order, i / 10, i % 10, 1);
                bool inside = index < ITEMS && !part;
                for (uint64_t k = 0; k < COUNT(subset); k++) inside |= part && index == subset[k];
                CHECK(inside, "order %d part %d: %llu", order, part, (ull)index);
                CHECK(order != DLP_ORDER_WEIGHTED || part || weights[index] > 0, "weight 0");
                CHECK(index == dlpi_order_replacement(&w.order, i / 10, i % 10, 1),
                      "order %d: views differ", order);
                changes[0] += index != dlpi_order_replacement(&v.order, i / 10, i % 10, 2);
                changes[1] += index != dlpi_order_replacement(&v.order, i / 10, i % 10 + 1, 1);
                changes[2] += index != dlpi_order_replacement(&v.order, i / 10 + 1, i % 10, 1);
            }
            for (int i = 0; i < 3; i++)
                CHECK(changes[i] > 160, "order %d: only %llu of 200 change with argument %d", order,
                      (ull)changes[i], i);
            CHECK(order == DLP_ORDER_BATCHES || index_at(&w, 1, 2) == before,
                  "order %d: the view moved", order);
            drop(&v);
            drop(&w);
        }
    turned_items = ITEMS;
}

static void replacement__many_positions__distributed_as_the_sampler(void) {
    static const int orders[] = {DLP_ORDER_SEQUENTIAL, DLP_ORDER_SHUFFLED, DLP_ORDER_REPLACEMENT,
                                 DLP_ORDER_BATCHES};
    static const uint64_t few[5] = {1, 0, 2, 3, 4};
    uint64_t count[5] = {0};
    dlp_sampler_desc d = desc_of(DLP_ORDER_WEIGHTED);
    double x = 0;
    view v;
    for (uint64_t k = 0; k < COUNT(orders); k++) {
        uint64_t even[10] = {0};
        dlp_sampler_desc e = desc_of(orders[k]);
        v = view_of(&e, 10);
        for (uint64_t i = 0; i < 10000; i++)
            even[dlpi_order_replacement(&v.order, i % 7, i / 7, 1 + (uint32_t)i % 3)]++;
        CHECK(absolute(chi_uniform(even, 10, 1000)) < 4.5, "order %d", orders[k]);
        drop(&v);
    }
    d.weights = few;
    d.samples_per_epoch = 1; /* replacements are drawn again, not from the epoch's one position */
    v = view_of(&d, 5);
    for (uint64_t i = 0; i < 10000; i++) count[dlpi_order_replacement(&v.order, 1, i, 1)]++;
    CHECK(count[1] == 0, "weight 0");
    for (uint64_t i = 0; i < 5; i++)
        if (few[i])
            x += ((double)count[i] - 1000.0 * (double)few[i]) *
                 ((double)count[i] - 1000.0 * (double)few[i]) / (1000.0 * (double)few[i]);
    CHECK(absolute(chi_z(x, 3)) < 4.5, "z %.1f", chi_z(x, 3));
    drop(&v);
}

/* --- Fingerprint --------------------------------------------------------------------------------
 */

static void params_hash__one_change__another_number(void) {
    static uint64_t other_subset[COUNT(subset)], other_weights[ITEMS];
    dlp_sampler_desc d = desc_of(DLP_ORDER_WEIGHTED), e = d;
    uint64_t plain = dlpi_order_params_hash(&d, ITEMS), part;
    memcpy(other_subset, subset, sizeof subset);
    memcpy(other_weights, weights, sizeof weights);
    e.weights = other_weights;
    e.samples_per_epoch = ITEMS; /* what 0 means */
    CHECK(dlpi_order_params_hash(&e, ITEMS) == plain, "equal contents elsewhere");
    for (uint64_t i = 0; i < ITEMS; i++) {
        other_weights[i]++;
        CHECK(dlpi_order_params_hash(&e, ITEMS) != plain, "weight %llu", (ull)i);
        other_weights[i]--;
    }
    for (uint64_t i = 2; i < 12; i++) {
        other_weights[1] = weights[i];
        other_weights[i] = weights[1];
        CHECK(dlpi_order_params_hash(&e, ITEMS) != plain || weights[i] == weights[1],
              "weights 1 and %llu changed places", (ull)i);
        other_weights[i] = weights[i];
    }
    e = d;
    e.samples_per_epoch = ITEMS + 1;
    CHECK(dlpi_order_params_hash(&e, ITEMS) != plain, "samples_per_epoch");
    e = d;
    e.function_id = 1;
    CHECK(dlpi_order_params_hash(&e, ITEMS) != plain, "function_id");
    d = with_subset(desc_of(DLP_ORDER_SHUFFLED));
    e = d;
    part = dlpi_order_params_hash(&d, ITEMS);
    e.subset = other_subset;
    CHECK(dlpi_order_params_hash(&e, ITEMS) == part, "equal contents elsewhere");
    for (uint64_t i = 0; i < COUNT(subset); i++) {
        other_subset[i] ^= 1;
        CHECK(dlpi_order_params_hash(&e, ITEMS) != part, "subset %llu", (ull)i);
        other_subset[i] ^= 1;
    }
    e.n_subset--;
    CHECK(dlpi_order_params_hash(&e, ITEMS) != part, "n_subset");
}

/* --- Pins: these numbers never change -----------------------------------------------------------
 */

static const struct order_pin {
    uint64_t first[3], digest, replacement, params;
} order_pins[2][5] = {
    {
        {{0u, 1u, 2u}, 0x97dd9a0e3f4dfb9fu, 278u, 0x5aaa8ee980cbb339u},
        {{223u, 626u, 48u}, 0xb47b703a82c1b1d7u, 535u, 0x5aaa8ee980cbb339u},
        {{202u, 94u, 133u}, 0x05e7261dc1f57ba5u, 777u, 0x5aaa8ee980cbb339u},
        {{748u, 816u, 578u}, 0xc4a778340511f09fu, 527u, 0x70fcfce215434643u},
        {{39u, 46u, 53u}, 0x1ca2c704809c31e3u, 985u, 0x5aaa8ee980cbb339u},
    },
    {
        {{11u, 48u, 85u}, 0x0b0d9d41afecd0aeu, 82u, 0x0ed6dfd33f79f879u},
        {{344u, 824u, 711u}, 0x6bfb212eb9d5d36eu, 371u, 0x0ed6dfd33f79f879u},
        {{231u, 47u, 454u}, 0x7e58be0c9dc8b390u, 632u, 0x0ed6dfd33f79f879u},
        {{188u, 817u, 930u}, 0x7d4ba34aa3975ed4u, 672u, 0xe2299b7637888e9au},
        {{454u, 713u, 972u}, 0xbae1ed84350be990u, 751u, 0x0ed6dfd33f79f879u},
    },
};

/* Of epoch 3: the first three indices, a digest of the first 300, the second replacement for
 * position 5. */
static void order__each_kind__as_pinned(void) {
    static uint64_t out[300];
    for (int part = 0; part < 2; part++) {
        if (printing) printf("    {\n");
        for (int order = DLP_ORDER_SEQUENTIAL; order <= DLP_ORDER_FUNCTION; order++) {
            const struct order_pin *pin = &order_pins[part][order];
            dlp_sampler_desc d = part ? with_subset(desc_of(order)) : desc_of(order);
            uint64_t instead, params = dlpi_order_params_hash(&d, ITEMS);
            view v;
            turned_items = part ? COUNT(subset) : ITEMS;
            v = view_of(&d, ITEMS);
            dlpi_order_block(&v.order, 3, 0, COUNT(out), out);
            instead = dlpi_order_replacement(&v.order, 3, 5, 2);
            if (printing)
                printf("        {{%lluu, %lluu, %lluu}, 0x%016llxu, %lluu, 0x%016llxu},\n",
                       (ull)out[0], (ull)out[1], (ull)out[2], (ull)digest(out, COUNT(out)),
                       (ull)instead, (ull)params);
            CHECK(memcmp(out, pin->first, sizeof pin->first) == 0 &&
                      digest(out, COUNT(out)) == pin->digest,
                  "order %d part %d: %llu %llu %llu", order, part, (ull)out[0], (ull)out[1],
                  (ull)out[2]);
            CHECK(instead == pin->replacement, "order %d part %d: replacement %llu", order, part,
                  (ull)instead);
            CHECK(params == pin->params, "order %d part %d: params %llx", order, part, (ull)params);
            drop(&v);
        }
        if (printing) printf("    },\n");
    }
    turned_items = ITEMS;
}

int main(int argc, char **argv) {
    int pins_only = argc > 1 && strcmp(argv[1], "pins") == 0;
    printing = argc > 1 && strcmp(argv[1], "print") == 0;
    fill_inputs();
    RUN(order__each_kind__as_pinned);
    if (!pins_only) {
        RUN(check__one_field_wrong__named);
        RUN(check__each_order__accepted);
        RUN(order__sequential_and_shuffled__each_index_once);
        RUN(order__shuffled__the_public_permutation);
        RUN(order__any_piece_after_any_epoch__same_indices);
        RUN(order__replacement__uniform_and_repeating);
        RUN(order__function_out_of_range__index_not_below_n_items);
        RUN(weights__any_list__shares_exact);
        RUN(weights__many_draws__frequencies_as_weights);
        RUN(draws__neighbours__independent);
        RUN(replacement__any_view__a_function_of_its_arguments);
        RUN(replacement__many_positions__distributed_as_the_sampler);
        RUN(params_hash__one_change__another_number);
    }
    printf("samplers: %d tests, %d failed\n", tests_run, tests_failed);
    return tests_failed ? 1 : 0;
}
