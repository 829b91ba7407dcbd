/* Orders out of orders: mixes by weights, buckets of like lengths. "print" as argument: the
   numbers to pin, as C. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static uint64_t digest(const uint64_t *values, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = dlp_hash(h, values[i], i, 0);
    return h;
}

/* ---- mixes ---- */

static const uint64_t three_items[] = {1500, 7, 300}, three_weights[] = {10, 4, 6};

static dlp_mix_desc three(void) {
    dlp_mix_desc d = {
        .n = 3, .shuffle = 1, .n_items = three_items, .weights = three_weights, .seed = 9};
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
    for (uint64_t t = 0; t < inside_mix_period(m); t++) {
        count[dataset_at(m, 0, t)]++;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t have = count[i] * inside_mix_period(m),
                     due = (t + 1) * inside_mix_weight(m, i);
            uint64_t off = have > due ? have - due : due - have;
            if (off > worst) worst = off;
        }
    }
    CHECK(worst < inside_mix_period(m) || inside_mix_period(m) == 1);
    for (uint32_t i = 0; i < n; i++) CHECK(count[i] == inside_mix_weight(m, i));
    dlp_mix_close(m);
}

static void schedule__any_weights__never_an_item_off_its_share(void) {
    uint64_t weights[1024], random = 5;
    static const uint64_t some[][4] = {{5, 1, 1, 0},   {1, 1, 1, 1},    {1, 0, 0, 0},
                                       {999, 1, 7, 3}, {12, 12, 6, 18}, {8191, 4096, 2, 1}};
    for (size_t i = 0; i < COUNT(some); i++) check_spread(some[i], 4);
    for (int k = 0; k < test_share(40, 400); k++) {
        uint32_t n = 1 + test_pick(&random, 40);
        for (uint32_t i = 0; i < n; i++)
            weights[i] = 1 + test_pick(&random, 1 + test_pick(&random, 90));
        check_spread(weights, n);
    }
    for (uint32_t i = 0; i < 1024; i++) weights[i] = i == 500 ? 1023 : 1; /* one of all, and many */
    if (getenv("SHORT") == NULL) check_spread(weights, 1024);
}

static void schedule__small_cases__as_pinned(void) {
    static const char *const pinned[] = {"AABABAC", "ABABABAB", "ABACABAD"};
    static const uint64_t w[][4] = {{4, 2, 1, 0}, {3, 3, 0, 0}, {4, 2, 1, 1}};
    static const uint64_t one[] = {1, 1, 1, 1};
    for (size_t i = 0; i < COUNT(pinned); i++) {
        dlp_mix_desc d = {.n = 4, .n_items = one, .weights = w[i]};
        dlp_mix *m = mix_of(&d);
        char text[9] = "";
        for (uint64_t t = 0; t < strlen(pinned[i]); t++)
            text[t] = (char)('A' + dataset_at(m, 0, t));
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
    CHECK(inside_mix_period(m) == 1u << 20);
    for (uint64_t t = 0; t < inside_mix_period(m); t++) count += inside_mix_schedule(m, t) == 0;
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
    static const uint64_t first_of[] = {0, 1500, 1507};
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
                for (uint64_t i = 0; i < three_items[k]; i++) seen[first_of[k] + i] = 0;
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
        memset(seen, 0, sizeof seen);
        for (uint64_t x = 0; x < n; x++) {
            uint64_t y = inside_mix_shuffled(n, 77, n, x);
            CHECK(y < n && !seen[y]);
            if (y < n) seen[y] = 1;
        }
    }
}

/* 120 permutations of five items in 12,000 passes: chi-square, 119 degrees of freedom, 4.5
   sigma. */
static void shuffle__five_items__all_permutations_alike(void) {
    enum { PASSES = 12000 };
    static uint32_t count[3125];
    double chi = 0;
    int kinds = 0;
    for (uint64_t pass = 0; pass < PASSES; pass++) {
        uint32_t code = 0;
        for (uint64_t x = 0; x < 5; x++)
            code = code * 5 + (uint32_t)inside_mix_shuffled(5, 12345, pass, x);
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
    enum { N = 200, CELLS = 8 };
    const uint64_t PASSES = getenv("SHORT") ? 60 : 500;
    static double near[CELLS][CELLS], next[CELLS][CELLS];
    double expected = (double)(N * PASSES) / (CELLS * CELLS), chi_near = 0, chi_next = 0;
    for (uint64_t pass = 0; pass < PASSES; pass++)
        for (uint64_t x = 0; x < N; x++) {
            uint64_t y = inside_mix_shuffled(N, 999, pass, x) * CELLS / N;
            near[y][inside_mix_shuffled(N, 999, pass, (x + 1) % N) * CELLS / N]++;
            next[y][inside_mix_shuffled(N, 999, pass + 1, x) * CELLS / N]++;
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
        if (print)
            printf("UINT64_C(0x%016" PRIx64 "), ", digest(got, COUNT(got)));
        else
            CHECK(digest(got, COUNT(got)) == pins[k]);
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
            for (uint64_t i = 0; i < inside_mix_samples(m); i++) count[dataset_at(m, epoch, i)]++;
            for (uint32_t i = 0; i < n; i++) {
                if (d.until == DLP_MIX_FIRST)
                    CHECK(count[i] <= items[i] || inside_mix_samples(m) == 1);
                else if (d.until == DLP_MIX_ALL || i == largest)
                    CHECK(count[i] >= items[i]);
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
    static const uint64_t long_period[] = {1, 1 << 19, 1 << 19},
                          fits[] = {2, 1 << 20, (1 << 20) - 2};
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
    if ((m = mix_of(&d)) != NULL) CHECK(inside_mix_period(m) == 1 << 20);
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
    if (run->failing && item % 5 == 2) return dlp_fail(it->call, 0, "damaged");
    out[0] = dataset;
    out[1] = item;
    return 0;
}

static const dlp_field pair_field[] = {{"pair", DLP_U64, 1, {2}, 0, 0}};

static dlp_loader_desc mix_loader(mix_run *run) {
    dlp_loader_desc d = {.dataset = {.n_items = dlp_mix_items(run->mix),
                                     .fields = pair_field,
                                     .n_fields = 1,
                                     .fetch = mix_fetch,
                                     .user = run},
                         .batch_size = 12,
                         .num_workers = 2,
                         .epochs = 3};
    CHECK(dlp_mix_sampler(run->mix, &d.sampler) == DLP_OK);
    return d;
}

static int check_mix_batch(const dlp_batch *b, const mix_run *run) {
    const uint64_t *pairs = b->fields[0].data;
    int ok = 1;
    for (uint32_t r = 0; r < b->count; r++) {
        uint64_t index =
            dlp_mix_at(run->mix, b->epoch, (b->position + r) % inside_mix_samples(run->mix));
        uint64_t item;
        uint32_t dataset;
        dlp_mix_locate(run->mix, index, &dataset, &item);
        ok &= pairs[2 * r] == dataset;
        if (!run->failing || item % 5 != 2)
            ok &= pairs[2 * r + 1] == item && b->index[r] == index;
        else
            ok &= pairs[2 * r + 1] % 5 != 2;
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
            l.pipe.rank = rank;
            l.pipe.world_size = 2;
            l.drop_last = rank ? DLP_LAST_PAD : DLP_LAST_PARTIAL;
            l.workers.on_error = DLP_ON_ERROR_REPLACE;
            CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
            while (p != NULL && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
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
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
            CHECK(dlp_pipe_state(p, b, &state) == DLP_OK);
            dlp_pipe_release(p, b);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        dlp_mix_close((dlp_mix *)(uintptr_t)run.mix);
    }
}

/* ---- buckets ---- */

/* Log-normal lengths, as of texts: median 100, sigma 0.8; by twelve uniforms, so without libm. */
static uint32_t text_length(uint64_t i) {
    double normal = -6, e = 1, term = 1;
    for (uint64_t k = 0; k < 12; k++)
        normal += (double)(dlp_hash(4, i, k, 0) >> 11) / 9007199254740992.0;
    for (int k = 1; k < 30; k++) e += term = term * (0.8 * normal) / k;
    return 1 + (uint32_t)(100 * e);
}

static uint32_t call_length(void *user, uint64_t index) {
    (void)user;
    return text_length(index);
}

#define TEXTS 20000
static uint32_t texts[TEXTS];

static dlp_buckets_desc text_buckets(void) {
    dlp_buckets_desc d = {
        .n_items = TEXTS, .lengths = texts, .batch_size = 32, .shuffle = 1, .seed = 3};
    return d;
}

static dlp_buckets *buckets_of(const dlp_buckets_desc *d) {
    dlp_buckets *b = NULL;
    dlp_error err;
    int rc = dlp_buckets_open(&b, d, &err);
    CHECK(rc == DLP_OK);
    if (rc != DLP_OK) printf("%s: %s\n", err.field, err.message);
    return b;
}

/* Its calls, as the sampler of a pipe has them. */
static dlp_batch_sampler lists_of(dlp_buckets *b) {
    dlp_sampler_desc d;
    memset(&d, 0, sizeof d);
    CHECK(dlp_buckets_sampler(b, &d) == DLP_OK && d.batches.user == b);
    return d.batches;
}
static int buckets_begin(dlp_buckets *b, uint64_t epoch) { return lists_of(b).begin(b, epoch); }
static int64_t buckets_next(dlp_buckets *b, uint64_t epoch, uint64_t *index, uint64_t most) {
    return lists_of(b).next(b, epoch, index, most);
}
static int buckets_save(dlp_buckets *b, void *bytes) { return lists_of(b).save(b, bytes); }
static int buckets_restore(dlp_buckets *b, const void *bytes, size_t n) {
    return lists_of(b).restore(b, bytes, n);
}
static const char *buckets_why(dlp_buckets *b) { return lists_of(b).why(b); }

static uint32_t longest_of(const uint64_t *index, int64_t n) {
    uint32_t longest = 0;
    for (int64_t i = 0; i < n; i++)
        if (texts[index[i]] > longest) longest = texts[index[i]];
    return longest;
}

/* An epoch of batches holds every bound and every item once, none further than a window from its
   place in the order. Returns the padding as a share of all tokens. */
static double check_epoch(dlp_buckets *b, uint64_t epoch) {
    static uint8_t seen[TEXTS];
    const dlp_buckets_desc *d = inside_buckets_desc(b);
    uint64_t index[1024], tokens = 0, padded = 0, at = 0, uneven = 0;
    int64_t n;
    int near = 1;
    dlp_permutation place;
    dlp_permutation_init(&place, TEXTS, d->seed, epoch);
    memset(seen, 0, sizeof seen);
    CHECK(buckets_begin(b, epoch) == 0);
    while ((n = buckets_next(b, epoch, index, 1024)) > 0) {
        uint64_t longest = longest_of(index, n);
        CHECK(n <= d->batch_size && (!d->max_tokens || longest * (uint64_t)n <= d->max_tokens));
        uneven += n % d->divisible_by != 0;
        padded += longest * (uint64_t)n;
        for (int64_t i = 0; i < n; i++) {
            uint64_t from = d->shuffle ? dlp_permutation_find(&place, index[i]) : index[i];
            near &= from / d->window == at / d->window;
            CHECK(!seen[index[i]]++);
            tokens += texts[index[i]];
            at++;
        }
    }
    CHECK(n == 0 && at == inside_buckets_positions(b) && near);
    CHECK(uneven <= (d->last <= DLP_LAST_DEFAULT) && (uneven || at % d->divisible_by == 0));
    return (double)(padded - tokens) / (double)padded;
}

static void buckets__any_bounds__each_item_once_within_them(void) {
    static const uint32_t windows[] = {0, 1, 100, 4096, 20000, 1 << 24};
    for (size_t k = 0; k < 6 * 2 * 2 * 2; k += getenv("SHORT") ? 7 : 1) {
        dlp_buckets_desc d = text_buckets();
        dlp_buckets *b;
        d.window = windows[k % 6];
        d.max_tokens = k / 6 % 2 ? 24000 : 0;
        d.divisible_by = k / 12 % 2 ? 8 : 0;
        d.last = k / 24 % 2 ? DLP_LAST_DROP : DLP_LAST_PARTIAL;
        d.shuffle = k % 5 != 0;
        if ((b = buckets_of(&d)) == NULL) return;
        for (uint64_t epoch = 0; epoch < 2; epoch++) check_epoch(b, epoch);
        CHECK(d.last <= DLP_LAST_DEFAULT ? inside_buckets_positions(b) == TEXTS
                                         : TEXTS - inside_buckets_positions(b) < d.batch_size);
        dlp_buckets_close(b);
    }
}

/* 0 and DLP_LAST_PARTIAL are the same batches, so states of the one fit the other. */
static void buckets__last_by_default__fingerprint_of_partial(void) {
    static const int32_t last[] = {DLP_LAST_DEFAULT, DLP_LAST_PARTIAL, DLP_LAST_DROP};
    dlp_sampler_desc to[3];
    memset(to, 0, sizeof to);
    for (int k = 0; k < 3; k++) {
        dlp_buckets_desc d = text_buckets();
        dlp_buckets *b;
        d.last = last[k];
        if ((b = buckets_of(&d)) == NULL) return;
        CHECK(dlp_buckets_sampler(b, &to[k]) == DLP_OK);
        dlp_buckets_close(b);
    }
    CHECK(to[0].function_id == to[1].function_id && to[0].function_id != to[2].function_id);
}

static void buckets__lengths_of_texts__padding_at_least_halved(void) {
    dlp_buckets_desc d = text_buckets();
    double share[3];
    for (int k = 0; k < 3; k++) {
        dlp_buckets *b;
        d.window = k == 0 ? 32 : 0; /* a window of one batch: as shuffled */
        d.max_tokens = k == 2 ? 8000 : 0;
        if ((b = buckets_of(&d)) == NULL) return;
        share[k] = check_epoch(b, 1);
        dlp_buckets_close(b);
    }
    printf("padding: %.1f %% of tokens; %.1f %% in buckets; %.1f %% with a budget\n",
           100 * share[0], 100 * share[1], 100 * share[2]);
    CHECK(share[1] * 2 < share[0] && share[2] * 2 < share[0]);
}

/* The lists of two epochs, as one number each. */
static int walk(dlp_buckets *b, uint64_t epoch, int64_t from, uint64_t *sums,
                uint8_t (*states)[24]) {
    uint64_t index[64];
    int n = 0;
    for (; epoch < 2; epoch++) {
        int64_t rows;
        if (from == 0) CHECK(buckets_begin(b, epoch) == 0);
        from = 0;
        while ((rows = buckets_next(b, epoch, index, 64)) > 0) {
            sums[n] = digest(index, (size_t)rows);
            if (states) CHECK(buckets_save(b, states[n]) == 24);
            n++;
        }
        CHECK(rows == 0);
    }
    return n;
}

static void buckets__restored_behind_any_batch__the_same_rest(void) {
    enum { MOST = 300 };
    static uint64_t whole[MOST], rest[MOST];
    static uint8_t states[MOST][24];
    dlp_buckets_desc d = text_buckets();
    dlp_buckets *b, *again;
    int n, first;
    d.n_items = 1000;
    d.batch_size = 16;
    d.window = 160;
    d.max_tokens = 3000;
    b = buckets_of(&d);
    again = buckets_of(&d);
    if (b == NULL || again == NULL) return;
    n = walk(b, 0, 0, whole, states);
    CHECK(n > 100 && n < MOST);
    for (int k = 0; k < n; k += getenv("SHORT") ? 9 : 1) {
        uint64_t epoch;
        memcpy(&epoch, states[k], 8);
        CHECK(buckets_restore(again, states[k], 24) == 0);
        first = walk(again, epoch, 1, rest, NULL);
        CHECK(first == n - k - 1 && memcmp(rest, whole + k + 1, (size_t)first * 8) == 0);
    }
    for (int k = 8; k < 24; k += 8) { /* a window or a batch that is not there */
        uint8_t bad[24];
        memcpy(bad, states[5], sizeof bad);
        memset(bad + k, 0x7f, 8);
        CHECK(buckets_restore(again, bad, 24) < 0 && strlen(buckets_why(again)) > 0);
    }
    CHECK(buckets_restore(again, states[5], 16) < 0);
    dlp_buckets_close(b);
    dlp_buckets_close(again);
}

static void buckets__as_pinned(int print) {
    static const uint64_t pins[] = {UINT64_C(0x5cf24e7218c5eb8d), UINT64_C(0x36b3ae46e3c27295)};
    static uint64_t sums[4096];
    for (size_t k = 0; k < COUNT(pins); k++) {
        dlp_buckets_desc d = text_buckets();
        dlp_buckets *b;
        int n;
        d.max_tokens = k ? 16000 : 0;
        d.divisible_by = k ? 4 : 0;
        if ((b = buckets_of(&d)) == NULL) return;
        n = walk(b, 0, 0, sums, NULL);
        if (print)
            printf("UINT64_C(0x%016" PRIx64 "), ", digest(sums, (size_t)n));
        else
            CHECK(digest(sums, (size_t)n) == pins[k]);
        dlp_buckets_close(b);
    }
    if (print) putchar('\n');
}

static void buckets_refused(const dlp_buckets_desc *d, const char *field, const char *words) {
    dlp_buckets *b = NULL;
    dlp_error err;
    int rc = dlp_buckets_open(&b, d, &err);
    int ok = rc == DLP_ERR_ARG && b == NULL && err.code == rc && strcmp(err.field, field) == 0 &&
             strstr(err.message, words) != NULL;
    CHECK(ok);
    if (!ok) printf("  %s: %s\n", err.field, err.message);
    CHECK(dlp_buckets_open(&b, d, NULL) == rc);
}

static void buckets_open__one_field_wrong__named(void) {
    static uint32_t lengths[] = {3, 9, 101, 4};
    dlp_sampler_desc order = {.order = DLP_ORDER_BATCHES};
    const dlp_buckets_desc good = {.n_items = 4, .lengths = lengths, .batch_size = 4};
    dlp_buckets_desc d = good;
    d.n_items = 0;
    buckets_refused(&d, "buckets.n_items", "1..2^48");
    d = good;
    d.length = call_length;
    buckets_refused(&d, "buckets.lengths", "either lengths or length");
    d.lengths = NULL;
    d.length = NULL;
    buckets_refused(&d, "buckets.lengths", "either lengths or length");
    d = good;
    d.divisible_by = 3;
    buckets_refused(&d, "buckets.batch_size", "divisible_by 3");
    d.batch_size = 0;
    buckets_refused(&d, "buckets.batch_size", "1..2^20");
    d = good;
    d.window = (1 << 24) + 1;
    buckets_refused(&d, "buckets.window", "2^24");
    d = good;
    d.max_tokens = 100;
    buckets_refused(&d, "buckets.lengths", "item 2 has length 101");
    d.max_tokens = 201;
    d.divisible_by = 2;
    buckets_refused(&d, "buckets.lengths", "item 2 has length 101");
    d.max_tokens = 1;
    buckets_refused(&d, "buckets.max_tokens", "divisible_by 2");
    d = good;
    d.shuffle = 7;
    buckets_refused(&d, "buckets.shuffle", "7");
    d = good;
    d.last = DLP_LAST_PAD;
    buckets_refused(&d, "buckets.last", "DLP_LAST_DROP");
    d.last = DLP_LAST_DROP;
    d.batch_size = 8;
    buckets_refused(&d, "buckets.last", "nothing of 4 samples");
    d = good;
    d.order = &order;
    buckets_refused(&d, "buckets.order", "BATCHES");
    order.order = DLP_ORDER_PARTS;
    buckets_refused(&d, "buckets.order", "PARTS");
    order.order = DLP_ORDER_WEIGHTED;
    buckets_refused(&d, "list.order.weights", "NULL");
}

/* ---- buckets in a pipe ---- */

static int text_fetch(void *user, dlp_item *it) {
    uint32_t *out = it->data[0];
    (void)user;
    it->length[0] = texts[it->index] < 64 ? texts[it->index] : 64;
    for (uint64_t i = 0; i < it->length[0]; i++) out[i] = (uint32_t)it->index;
    return 0;
}

static const dlp_field text_field[] = {{"text", DLP_U32, 1, {64}, 1, 0}};

static dlp_loader_desc text_loader(dlp_buckets *b, uint32_t rank, uint32_t world) {
    dlp_loader_desc d = {.dataset = {.n_items = inside_buckets_desc(b)->n_items,
                                     .fields = text_field,
                                     .n_fields = 1,
                                     .fetch = text_fetch},
                         .batch_size = inside_buckets_desc(b)->batch_size,
                         .num_workers = 2,
                         .epochs = 2};
    CHECK(dlp_buckets_sampler(b, &d.sampler) == DLP_OK);
    d.pipe.rank = rank;
    d.pipe.world_size = world;
    return d;
}

/* The rows of this rank, batch for batch, against the sampler's own lists. With stop: the pipe is
   closed behind that batch and begun again from its state. */
static void check_rank(const dlp_buckets_desc *desc, uint32_t rank, uint32_t world, int stop) {
    dlp_buckets *b = buckets_of(desc), *lists = buckets_of(desc);
    dlp_loader_desc l;
    dlp_pipe *p = NULL;
    dlp_batch *batch;
    dlp_state state;
    uint64_t index[64], epoch = 0;
    int n = 0, ok = 1;
    if (b == NULL || lists == NULL) return;
    l = text_loader(b, rank, world);
    l.sampler.threaded = stop & 1;
    CHECK(buckets_begin(lists, 0) == 0);
    CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
    while (p && dlp_pipe_next_timeout(p, &batch, 20000) == DLP_OK) {
        int64_t rows = buckets_next(lists, epoch, index, 64), mine;
        if (rows == 0) {
            CHECK(buckets_begin(lists, ++epoch) == 0);
            rows = buckets_next(lists, epoch, index, 64);
        }
        mine = rows * (rank + 1) / world - rows * rank / world;
        ok &= batch->epoch == epoch && batch->count == mine;
        for (uint32_t r = 0; ok && r < batch->count; r++)
            ok &= batch->index[r] == index[rows * rank / world + r] &&
                  ((const uint32_t *)batch->fields[0].data)[r * 64] == (uint32_t)batch->index[r];
        if (++n == stop) {
            CHECK(dlp_pipe_state(p, batch, &state) == DLP_OK);
            dlp_pipe_release(p, batch);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            l.pipe.resume = &state;
            CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
        } else {
            dlp_pipe_release(p, batch);
        }
    }
    CHECK(ok && n > 10 && epoch == 1);
    CHECK(buckets_next(lists, epoch, index, 64) == 0);
    CHECK(dlp_pipe_error(p)->code == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    dlp_buckets_close(b);
    dlp_buckets_close(lists);
}

static void pipe__buckets_on_ranks__the_same_global_batches(void) {
    dlp_buckets_desc d = text_buckets();
    d.n_items = 3000;
    d.window = 640;
    d.max_tokens = 12000;
    d.divisible_by = 4;
    for (uint32_t world = 1; world <= 4; world *= 2)
        for (uint32_t rank = 0; rank < world; rank++) check_rank(&d, rank, world, 0);
    for (int stop = 1; stop < 60; stop += getenv("SHORT") ? 29 : 6) check_rank(&d, 0, 2, stop);
}

/* A mix of two kinds of texts, in buckets: the shares stay, to within a window. */
static void pipe__buckets_of_a_mix__shares_stay(void) {
    static const uint64_t items[] = {15000, 5000}, weights[] = {1, 1};
    dlp_mix_desc m = {.n = 2, .n_items = items, .weights = weights, .shuffle = 1};
    dlp_buckets_desc d = text_buckets();
    dlp_sampler_desc order = {
        .order = DLP_ORDER_WEIGHTED, .weights = weights, .n_subset = 3, .threaded = 1};
    dlp_mix *mix = mix_of(&m);
    dlp_buckets *b;
    uint64_t index[64], count[2] = {0, 0};
    int64_t rows;
    if (mix == NULL) return;
    CHECK(dlp_mix_sampler(mix, &order) == DLP_OK);
    d.order = &order;
    d.seed = 0; /* the order has one */
    if ((b = buckets_of(&d)) != NULL) {
        CHECK(buckets_begin(b, 0) == 0);
        while ((rows = buckets_next(b, 0, index, 64)) > 0)
            for (int64_t i = 0; i < rows; i++) count[index[i] >= 15000]++;
        CHECK(count[0] == 15000 && count[1] == 15000);
        CHECK(inside_order_check(&order, TEXTS) == DLP_OK); /* nothing of the order before it */
        CHECK(dlp_buckets_sampler(b, &order) == DLP_OK);
        CHECK(inside_order_check(&order, TEXTS) == DLP_OK);
        CHECK(order.threaded == 1);
    }
    dlp_buckets_close(b);
    dlp_mix_close(mix);
}

/* Lengths by a call: the item that is too long is named when its window comes. */
static void pipe__item_too_long_for_the_budget__named(void) {
    dlp_buckets_desc d = text_buckets();
    dlp_buckets *b;
    dlp_loader_desc l;
    dlp_pipe *p = NULL;
    dlp_batch *batch;
    dlp_error err;
    char words[64];
    uint64_t longest = 0;
    int rc = 0, n = 0;
    for (uint64_t i = 0; i < TEXTS; i++)
        if (texts[i] > texts[longest]) longest = i;
    d.lengths = NULL;
    d.length = call_length;
    d.window = 320;
    CHECK(longest >= d.window);
    d.max_tokens = texts[longest] - 1;
    d.shuffle = 0;
    if ((b = buckets_of(&d)) == NULL) return;
    l = text_loader(b, 0, 1);
    CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
    while (p && (rc = dlp_pipe_next_timeout(p, &batch, 20000)) == DLP_OK) {
        dlp_pipe_release(p, batch);
        n++;
    }
    CHECK(rc == DLP_ERR_CALLBACK && n >= 10); /* those of the windows before it came */
    err = *dlp_pipe_error(p);
    snprintf(words, sizeof words, "item %" PRIu64 " has length", longest);
    CHECK(strstr(err.message, words) != NULL);
    if (strstr(err.message, words) == NULL) printf("  %s\n", err.message);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    dlp_buckets_close(b);
    d.max_tokens = 0;
    if ((b = buckets_of(&d)) == NULL) return;
    l = text_loader(b, 0, 1);
    l.batch_size = 16;
    CHECK(dlp_loader_open(&p, &l, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &batch, 20000) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "batch_size is 16") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    dlp_buckets_close(b);
}

int main(int argc, char **argv) {
    for (uint64_t i = 0; i < TEXTS; i++) texts[i] = text_length(i);
    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        order__as_pinned(1);
        buckets__as_pinned(1);
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
    buckets__any_bounds__each_item_once_within_them();
    buckets__last_by_default__fingerprint_of_partial();
    buckets__lengths_of_texts__padding_at_least_halved();
    buckets__restored_behind_any_batch__the_same_rest();
    buckets__as_pinned(0);
    buckets_open__one_field_wrong__named();
    pipe__buckets_on_ranks__the_same_global_batches();
    pipe__buckets_of_a_mix__shares_stay();
    pipe__item_too_long_for_the_budget__named();
    return test_end("mixing");
}
