/* Orders made of datasets: mixes by weights. "print" as argument: the numbers to pin, as C. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include "pipe_rig.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static uint64_t digest(const uint64_t *values, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = dlp_hash(h, values[i], i, 0);
    return h;
}

/* ---- mixes ---- */

static const uint64_t three_items[] = {1500, 7, 300}, three_weights[] = {10, 4, 6};

static dlp_mix_desc three(void) {
    dlp_mix_desc d = {.n = 3, .shuffle = 1, .n_items = three_items, .weights = three_weights,
                      .seed = 9};
    return d;
}

static dlp_mix *mix_of(const dlp_mix_desc *d) {
    dlp_mix *m = NULL;
    dlp_error err;
    int rc = dlp_mix_open(&m, d, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("%s: %s\n", err.field, err.message);
    return m;
}

static uint32_t dataset_at(const dlp_mix *m, uint64_t epoch, uint64_t position) {
    uint32_t dataset = UINT32_MAX;
    uint64_t item = 0;
    CHECK(dlp_mix_locate(m, dlp_mix_at(m, epoch, position), &dataset, &item) == DLP_OK);
    return dataset;
}

/* |count - share| < 1 at every place: |count * period - position * weight| < period. */
static void check_spread(const uint64_t *weights, uint32_t n) {
    static uint64_t items[1024], count[1024];
    dlp_mix_desc d = {.n = n, .n_items = items, .weights = weights};
    dlp_mix *m;
    uint64_t worst = 0;
    for (uint32_t i = 0; i < n; i++) items[i] = 1, count[i] = 0;
    if ((m = mix_of(&d)) == NULL) return;
    for (uint64_t t = 0; t < m->period; t++) {
        count[dataset_at(m, 0, t)]++;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t have = count[i] * m->period, due = (t + 1) * m->part[i].weight;
            uint64_t off = have > due ? have - due : due - have;
            if (off > worst) worst = off;
        }
    }
    CHECK(worst < m->period || m->period == 1);
    for (uint32_t i = 0; i < n; i++) CHECK(count[i] == m->part[i].weight);
    dlp_mix_close(m);
}

static void schedule__any_weights__never_an_item_off_its_share(void) {
    uint64_t weights[1024], random = 5;
    static const uint64_t some[][4] = {{5, 1, 1, 0}, {1, 1, 1, 1}, {1, 0, 0, 0}, {999, 1, 7, 3},
                                       {12, 12, 6, 18}, {8191, 4096, 2, 1}};
    for (size_t i = 0; i < COUNT(some); i++) check_spread(some[i], 4);
    for (int k = 0; k < test_share(40, 400); k++) {
        uint32_t n = 1 + test_pick(&random, 40);
        for (uint32_t i = 0; i < n; i++) weights[i] = 1 + test_pick(&random, 1 + test_pick(&random, 90));
        check_spread(weights, n);
    }
    for (uint32_t i = 0; i < 1024; i++) weights[i] = i == 500 ? 1023 : 1; /* one of all, and many */
    check_spread(weights, 1024);
}

static void schedule__small_cases__as_pinned(void) {
    static const char *const pinned[] = {"AABABAC", "ABABABAB", "ABACABAD"};
    static const uint64_t w[][4] = {{4, 2, 1, 0}, {3, 3, 0, 0}, {4, 2, 1, 1}};
    static const uint64_t one[] = {1, 1, 1, 1};
    for (size_t i = 0; i < COUNT(pinned); i++) {
        dlp_mix_desc d = {.n = 4, .n_items = one, .weights = w[i]};
        dlp_mix *m = mix_of(&d);
        char text[9] = "";
        for (uint64_t t = 0; t < strlen(pinned[i]); t++) text[t] = (char)('A' + dataset_at(m, 0, t));
        CHECK(strcmp(text, pinned[i]) == 0);
        if (strcmp(text, pinned[i])) printf("  %s, not %s\n", text, pinned[i]);
        dlp_mix_close(m);
    }
}

static void schedule__longest_period__is_made(void) {
    static uint64_t items[1024], weights[1024];
    dlp_mix_desc d = {.n = 1024, .n_items = items, .weights = weights};
    dlp_mix *m;
    uint64_t sum = 0, count = 0;
    for (uint32_t i = 0; i < 1024; i++) items[i] = 3, sum += weights[i] = 1 + i * 2 % 2011;
    weights[1023] += (1u << 20) - sum;
    if ((m = mix_of(&d)) == NULL) return;
    CHECK(m->period == 1u << 20);
    for (uint64_t t = 0; t < m->period; t++) count += dlp_mix_at(m, 0, t) < 3;
    CHECK(count == 1);
    dlp_mix_close(m);
}

/* Draws go on over epochs, in passes of which each shows every item once. */
static void draws__many_epochs__passes_without_gaps(void) {
    static uint8_t seen[2000];
    static uint64_t first[3][2000];
    dlp_mix_desc d = three();
    dlp_mix *m;
    uint64_t drawn[3] = {0, 0, 0};
    int changed[3] = {0, 0, 0};
    d.samples_per_epoch = 1237; /* fits neither the period nor a pass */
    if ((m = mix_of(&d)) == NULL) return;
    for (uint64_t epoch = 0; epoch < 8; epoch++)
        for (uint64_t position = 0; position < d.samples_per_epoch; position++) {
            uint64_t index = dlp_mix_at(m, epoch, position), item, place;
            uint32_t k;
            CHECK(dlp_mix_locate(m, index, &k, &item) == DLP_OK && item < three_items[k]);
            place = drawn[k]++ % three_items[k];
            if (place == 0)
                for (uint64_t i = 0; i < three_items[k]; i++) seen[m->part[k].first + i] = 0;
            CHECK(!seen[index]++);
            changed[k] += drawn[k] > three_items[k] && first[k][place] != item;
            if (drawn[k] <= three_items[k]) first[k][place] = item;
        }
    for (int k = 0; k < 3; k++) CHECK(drawn[k] > 2 * three_items[k] && changed[k] > 4);
    dlp_mix_close(m);
}

static void shuffle__any_size__each_item_once(void) {
    static uint8_t seen[2100];
    for (uint64_t n = 1; n < 2100; n += n < 40 ? 1 : 53) {
        dlpi_mix_part part = {.items = n, .key = 77};
        memset(seen, 0, sizeof seen);
        for (uint64_t x = 0; x < n; x++) {
            uint64_t y = dlpi_mix_shuffled(&part, n, x);
            CHECK(y < n && !seen[y]);
            if (y < n) seen[y] = 1;
        }
    }
}

/* 120 permutations of five items in 12,000 passes: chi-square, 119 degrees of freedom, 4.5 sigma. */
static void shuffle__five_items__all_permutations_alike(void) {
    enum { PASSES = 12000 };
    static uint32_t count[3125];
    dlpi_mix_part part = {.items = 5, .key = 12345};
    double chi = 0;
    int kinds = 0;
    for (uint64_t pass = 0; pass < PASSES; pass++) {
        uint32_t code = 0;
        for (uint64_t x = 0; x < 5; x++) code = code * 5 + (uint32_t)dlpi_mix_shuffled(&part, pass, x);
        count[code]++;
    }
    for (size_t i = 0; i < COUNT(count); i++) {
        double off = (double)count[i] - PASSES / 120.0;
        if (count[i] == 0) continue;
        kinds++;
        chi += off * off / (PASSES / 120.0);
    }
    CHECK(kinds == 120);
    CHECK(chi < 119 + 4.5 * 15.4);
}

/* Of 200 items, where one goes says nothing of where its neighbour goes, nor of the next pass. */
static void shuffle__neighbours_and_passes__independent(void) {
    enum { N = 200, PASSES = 500, CELLS = 8 };
    static double near[CELLS][CELLS], next[CELLS][CELLS];
    dlpi_mix_part part = {.items = N, .key = 999};
    double expected = (double)N * PASSES / (CELLS * CELLS), chi_near = 0, chi_next = 0;
    for (uint64_t pass = 0; pass < PASSES; pass++)
        for (uint64_t x = 0; x < N; x++) {
            uint64_t y = dlpi_mix_shuffled(&part, pass, x) * CELLS / N;
            near[y][dlpi_mix_shuffled(&part, pass, (x + 1) % N) * CELLS / N]++;
            next[y][dlpi_mix_shuffled(&part, pass + 1, x) * CELLS / N]++;
        }
    for (int a = 0; a < CELLS; a++)
        for (int b = 0; b < CELLS; b++) {
            chi_near += (near[a][b] - expected) * (near[a][b] - expected) / expected;
            chi_next += (next[a][b] - expected) * (next[a][b] - expected) / expected;
        }
    CHECK(chi_near < 64 + 5 * 11.3 && chi_next < 64 + 5 * 11.3);
    if (chi_near >= 64 + 5 * 11.3 || chi_next >= 64 + 5 * 11.3)
        printf("  %.0f %.0f\n", chi_near, chi_next);
}

static void order__as_pinned(int print) {
    static const uint64_t pins[] = {UINT64_C(0x3a0d9b56a9367614), UINT64_C(0x0b47a6e18709b672)};
    uint64_t got[4096];
    dlp_mix_desc d = three();
    for (size_t k = 0; k < COUNT(pins); k++) {
        dlp_mix *m;
        d.shuffle = k == 0;
        if ((m = mix_of(&d)) == NULL) return;
        for (uint64_t i = 0; i < COUNT(got); i++) got[i] = dlp_mix_at(m, i & 3, i >> 2);
        if (print) printf("UINT64_C(0x%016" PRIx64 "), ", digest(got, COUNT(got)));
        else CHECK(digest(got, COUNT(got)) == pins[k]);
        dlp_mix_close(m);
    }
    if (print) putchar('\n');
}

/* The draws of each dataset in each of ten epochs: at least (ALL, LARGEST) or at most (FIRST) the
   items that it has. */
static void epoch__until__as_many_as_items(void) {
    uint64_t random = 77, items[6], weights[6];
    for (int k = 0; k < test_share(60, 1000); k++) {
        uint32_t n = 1 + test_pick(&random, 6);
        dlp_mix_desc d = {.n = n, .n_items = items, .weights = weights, .until = k % 3};
        dlp_mix *m;
        uint32_t largest = 0;
        for (uint32_t i = 0; i < n; i++) {
            items[i] = 1 + test_pick(&random, 60);
            weights[i] = 1 + test_pick(&random, 9);
            if (items[i] > items[largest]) largest = i;
        }
        if ((m = mix_of(&d)) == NULL) return;
        for (uint64_t epoch = 0; epoch < 10; epoch++) {
            uint64_t count[6] = {0};
            for (uint64_t i = 0; i < m->samples; i++) count[dataset_at(m, epoch, i)]++;
            for (uint32_t i = 0; i < n; i++) {
                if (d.until == DLP_MIX_FIRST) CHECK(count[i] <= items[i] || m->samples == 1);
                else if (d.until == DLP_MIX_ALL || i == largest) CHECK(count[i] >= items[i]);
            }
        }
        dlp_mix_close(m);
    }
}

static void refused(const dlp_mix_desc *d, const char *field, const char *words) {
    dlp_mix *m = NULL;
    dlp_error err;
    int rc = dlp_mix_open(&m, d, &err);
    CHECK(rc == DLP_ERR_ARG && m == NULL && err.code == rc && strcmp(err.field, field) == 0 &&
          strstr(err.message, words) != NULL);
    if (strcmp(err.field, field) || !strstr(err.message, words))
        printf("  %s: %s\n", err.field, err.message);
    CHECK(dlp_mix_open(&m, d, NULL) == rc);
}

static void open__one_field_wrong__named(void) {
    static const uint64_t none[] = {0, 0, 0}, many[] = {1, UINT64_C(1) << 47, UINT64_C(1) << 47};
    static const uint64_t long_period[] = {1, 1 << 19, 1 << 19}, fits[] = {2, 1 << 20, (1 << 20) - 2};
    dlp_mix_desc d = three();
    dlp_mix *m;
    d.n = 0;
    refused(&d, "mix.n", "1..1024");
    d.n = 1025;
    refused(&d, "mix.n", "1025");
    d = three();
    d.n_items = NULL;
    refused(&d, "mix.n_items", "NULL");
    d.n_items = none;
    refused(&d, "mix.n_items", "n_items[0] is 0");
    d.n_items = many;
    refused(&d, "mix.n_items", "n_items[2]");
    d = three();
    d.weights = none;
    refused(&d, "mix.weights", "all 3 weights are 0");
    d.weights = long_period;
    refused(&d, "mix.weights", "weights[2]");
    d.weights = fits; /* once divided by two */
    if ((m = mix_of(&d)) != NULL) CHECK(m->period == 1 << 20);
    dlp_mix_close(m);
    d = three();
    d.shuffle = 2;
    refused(&d, "mix.shuffle", "2");
    d = three();
    d.until = 3;
    refused(&d, "mix.until", "3");
    d = three();
    d.samples_per_epoch = (UINT64_C(1) << 48) + 1;
    refused(&d, "mix.samples_per_epoch", "2^48");
}

/* A pipe follows the mix, on two ranks of which one resumed, and rows that fail are replaced from
   their own dataset. */
typedef struct mix_run {
    const dlp_mix *mix;
    int failing;
} mix_run;

static int mix_fetch(void *user, dlp_item *it) {
    const mix_run *run = user;
    uint32_t dataset = 99;
    uint64_t item = 0, *out = it->data[0];
    if (dlp_mix_locate(run->mix, it->index, &dataset, &item) != DLP_OK) return -1;
    if (run->failing && item % 5 == 2) return dlp_item_fail(it, 0, "damaged");
    out[0] = dataset;
    out[1] = item;
    return 0;
}

static const dlp_field pair_field[] = {{"pair", DLP_U64, 1, {2}, 0, 0}};

static dlp_loader_desc mix_loader(mix_run *run) {
    dlp_loader_desc d = {.dataset = {.n_items = dlp_mix_items(run->mix), .fields = pair_field,
                                     .n_fields = 1, .fetch = mix_fetch, .user = run},
                         .batch_size = 12, .num_workers = 2, .epochs = 3};
    CHECK(dlp_mix_sampler(run->mix, &d.sampler) == DLP_OK);
    return d;
}

static int check_mix_batch(const dlp_batch *b, const mix_run *run) {
    const uint64_t *pairs = b->fields[0].data;
    int ok = 1;
    for (uint32_t r = 0; r < b->count; r++) {
        uint64_t index = dlp_mix_at(run->mix, b->epoch, (b->position + r) % run->mix->samples);
        uint64_t item;
        uint32_t dataset;
        dlp_mix_locate(run->mix, index, &dataset, &item);
        ok &= pairs[2 * r] == dataset;
        if (!run->failing || item % 5 != 2) ok &= pairs[2 * r + 1] == item && b->index[r] == index;
        else ok &= pairs[2 * r + 1] % 5 != 2;
    }
    return ok;
}

static void pipe__mix_on_two_ranks__order_of_the_mix(void) {
    dlp_mix_desc d = three();
    mix_run run = {NULL, 0};
    dlp_state state;
    uint64_t rows = 0;
    d.samples_per_epoch = 500;
    run.mix = mix_of(&d);
    if (run.mix == NULL) return;
    for (uint32_t rank = 0; rank < 2; rank++)
        for (run.failing = 0; run.failing < 2; run.failing++) {
            dlp_loader_desc l = mix_loader(&run);
            dlp_pipe *p = NULL;
            dlp_batch *b;
            int n = 0;
            l.sampler.rank = rank;
            l.sampler.world_size = 2;
            l.last = rank ? DLP_LAST_PAD : DLP_LAST_SHORT;
            l.workers.on_error = DLP_ON_ERROR_REPLACE;
            CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
            while (p != NULL && dlp_pipe_next(p, &b, 20000) == DLP_OK) {
                CHECK(check_mix_batch(b, &run));
                rows += b->count;
                if (++n == 50) CHECK(dlp_pipe_state(p, b, &state) == DLP_OK);
                dlp_pipe_release(p, b);
                if (n == 50) { /* the other half of the epoch from its state */
                    CHECK(dlp_pipe_close(p) == DLP_OK);
                    l.pipe.resume = &state;
                    CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
                }
            }
            CHECK(dlp_pipe_close(p) == DLP_OK);
            CHECK(n == 3 * 42);
        }
    CHECK(rows == 2 * 3 * (250 + 252));
    dlp_mix_close((dlp_mix *)(uintptr_t)run.mix);
}

/* Another weight, item count or shuffle is another order: a state does not fit. */
static void resume__other_mix__refused(void) {
    static const uint64_t other_weights[] = {10, 4, 8}, other_items[] = {1500, 8, 299};
    dlp_state state;
    for (int k = 0; k < 4; k++) {
        dlp_mix_desc d = three();
        mix_run run = {NULL, 0};
        dlp_loader_desc l;
        dlp_pipe *p = NULL;
        dlp_batch *b;
        d.samples_per_epoch = 500;
        if (k == 1) d.weights = other_weights;
        if (k == 2) d.n_items = other_items;
        if (k == 3) d.shuffle = 0;
        run.mix = mix_of(&d);
        if (run.mix == NULL) return;
        l = mix_loader(&run);
        l.pipe.resume = k ? &state : NULL;
        CHECK(dlp_loader_open(&p, &l, NULL) == (k ? DLP_ERR_RESUME : DLP_OK));
        if (k == 0) {
            CHECK(dlp_pipe_next(p, &b, 20000) == DLP_OK);
            CHECK(dlp_pipe_state(p, b, &state) == DLP_OK);
            dlp_pipe_release(p, b);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        dlp_mix_close((dlp_mix *)(uintptr_t)run.mix);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        order__as_pinned(1);
        return 0;
    }
    schedule__any_weights__never_an_item_off_its_share();
    schedule__small_cases__as_pinned();
    schedule__longest_period__is_made();
    draws__many_epochs__passes_without_gaps();
    shuffle__any_size__each_item_once();
    shuffle__five_items__all_permutations_alike();
    shuffle__neighbours_and_passes__independent();
    order__as_pinned(0);
    epoch__until__as_many_as_items();
    open__one_field_wrong__named();
    pipe__mix_on_two_ranks__order_of_the_mix();
    resume__other_mix__refused();
    return test_end("mixing");
}
