/* needs: mix */
#pragma once
/* tests: unit/order/mixing, system/stages/join */
#include "order/mixed.h"
#include "order/order.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-mixing     DATASETS MIXED BY WEIGHTS
   The schedule of one period is a table. It tells the dataset of each turn, and how many turns of
   this dataset came before. The table is made by "earliest deadline first", as if one processor
   served the datasets. Turn j of a dataset may run from floor(j * period / weight) on. It must have
   run before ceil((j + 1) * period / weight). The turns fill the period exactly, and for one
   processor this rule meets all deadlines that can be met. So every turn lies in its window: the
   counts are within one of their shares. */

#define DLPI_MIX_DATASETS 1024
#define DLPI_MIX_PERIOD ((uint64_t)1 << 20)
#define DLPI_MIX_RANK_BITS 20 /* low bits of a schedule's entry: turns before it */
#define DLPI_MIX_NOBODY UINT32_MAX

/* --- Shuffles ---

   The place of a number among n, without a table. From DLP_PERMUTATION_TABLE on it is that of a
   Feistel network. Below that such networks are poor, and swap-or-not serves. Each round pairs x
   with k - x (mod n). A keyed coin of the pair says whether the two change places (Hoang, Morris,
   Rogaway, An Enciphering Scheme Based on a Card Shuffle, CRYPTO 2012). It takes a few hundred
   ns. */
#define DLPI_MIX_ROUNDS 64

/* Return the number at place x of a shuffle of the n numbers below n. x must be below n, and n
   below 2^32. */
static uint64_t dlpi_mix_small(uint64_t n, uint64_t key, uint64_t x) {
    for (uint64_t r = 0; r < DLPI_MIX_ROUNDS; r++) {
        uint64_t word = dlpi_absorb(key, r);
        uint64_t turn = (uint64_t)(uint32_t)word * n >> 32;
        uint64_t other = turn >= x ? turn - x : turn + n - x;
        uint64_t pair = x > other ? x : other;
        if (dlpi_mix(word + pair * DLPI_GOLDEN) >> 63) x = other;
    }
    return x;
}

/* Return the item of a dataset that stands at place x of this pass over it. */
static uint64_t dlpi_mix_shuffled(const dlpi_mix_part *part, uint64_t pass, uint64_t x) {
    uint64_t key = dlpi_absorb(dlpi_absorb(part->key, pass), part->items);
    dlp_permutation p;
    if (part->items < DLP_PERMUTATION_TABLE) return dlpi_mix_small(part->items, key, x);
    p.n = part->items; /* without its table, which is most of the bytes */
    dlpi_permutation_rounds(&p, key);
    do { x = dlpi_permutation_step(&p, x); } while (DLPI_UNLIKELY(x >= p.n));
    return x;
}

/* --- The schedule --- */

/* Turns that may run, by deadline, then dataset: a binary heap. */
typedef struct dlpi_mix_heap {
    uint32_t n;
    uint32_t key[DLPI_MIX_DATASETS]; /* deadline << 10 | dataset; a deadline is at most 2^20 */
} dlpi_mix_heap;

static void dlpi_mix_push(dlpi_mix_heap *h, uint32_t key) {
    uint32_t i = h->n++;
    for (; i > 0 && h->key[(i - 1) / 2] > key; i = (i - 1) / 2) h->key[i] = h->key[(i - 1) / 2];
    h->key[i] = key;
}

/* Take the least key out of the heap, and return the key. The heap must not be empty. */
static uint32_t dlpi_mix_pop(dlpi_mix_heap *h) {
    uint32_t top = h->key[0], last = h->key[--h->n], i = 0, child;
    for (; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->key[child + 1] < h->key[child]) child++;
        if (h->key[child] >= last) break;
        h->key[i] = h->key[child];
    }
    h->key[i] = last;
    return top;
}

static uint32_t dlpi_mix_deadline(const dlp_mix *m, uint32_t d, uint64_t turn) {
    uint64_t weight = m->part[d].weight;
    return (uint32_t)(((turn + 1) * m->period + weight - 1) / weight) << 10 | d;
}

/* Fill the schedule. Entries of times to come list the datasets whose next turn may run from then
   on: the entry has the first of them, and link[] the others. */
static void dlpi_mix_schedule(dlp_mix *m) {
    uint32_t link[DLPI_MIX_DATASETS] = {0}, turns[DLPI_MIX_DATASETS] = {0};
    dlpi_mix_heap ready = {0};
    for (uint64_t t = 0; t < m->period; t++) m->schedule[t] = DLPI_MIX_NOBODY;
    for (uint32_t d = 0; d < m->n; d++)
        if (m->part[d].weight > 0) dlpi_mix_push(&ready, dlpi_mix_deadline(m, d, 0));
    for (uint64_t t = 0; t < m->period; t++) {
        uint32_t d = m->schedule[t];
        uint64_t from;
        for (; d != DLPI_MIX_NOBODY; d = link[d])
            dlpi_mix_push(&ready, dlpi_mix_deadline(m, d, turns[d]));
        d = dlpi_mix_pop(&ready) & (DLPI_MIX_DATASETS - 1);
        m->schedule[t] = d << DLPI_MIX_RANK_BITS | turns[d]++;
        if (turns[d] == m->part[d].weight) continue;
        from = turns[d] * m->period / m->part[d].weight; /* NOLINT: it had a turn: not 0 */
        if (from <= t + 1) {
            dlpi_mix_push(&ready, dlpi_mix_deadline(m, d, turns[d]));
        } else {
            link[d] = m->schedule[from];
            m->schedule[from] = d;
        }
    }
}

/* --- The length of an epoch --- */

/* Return a number of positions in which the dataset comes at least `items` times, wherever they
   begin. It is whole periods, or the share of one more item, if that is less: at both ends the
   counts are within one of their shares. */
static uint64_t dlpi_mix_enough(const dlp_mix *m, const dlpi_mix_part *part) {
    uint64_t w = part->weight, whole = (part->items + w - 1) / w;
    uint64_t periods = (part->items + 1) / w, rest = (part->items + 1) % w, share;
    if (whole > DLPI_MAX_ITEMS / m->period) return UINT64_MAX;
    whole *= m->period;
    share = periods * m->period + (rest * m->period + w - 1) / w;
    return share < whole ? share : whole;
}

/* Return positions in which the dataset comes at most `items` times, wherever they begin; at least
   1. */
static uint64_t dlpi_mix_within(const dlp_mix *m, const dlpi_mix_part *part) {
    uint64_t w = part->weight, whole = part->items / w;
    uint64_t periods = (part->items - 1) / w, rest = (part->items - 1) % w, share;
    if (whole > DLPI_MAX_ITEMS / m->period) return UINT64_MAX;
    whole *= m->period;
    share = periods * m->period + rest * m->period / w;
    share = share > whole ? share : whole;
    return share > 0 ? share : 1;
}

/* Return the samples of an epoch. `until` (DLP_MIX_*) says which dataset decides. */
static uint64_t dlpi_mix_samples(const dlp_mix *m, int32_t until) {
    uint64_t samples = until == DLP_MIX_FIRST ? UINT64_MAX : 0, most = 0;
    for (uint32_t d = 0; d < m->n; d++) {
        const dlpi_mix_part *part = &m->part[d];
        uint64_t here;
        if (part->weight == 0) continue;
        here = until == DLP_MIX_FIRST ? dlpi_mix_within(m, part) : dlpi_mix_enough(m, part);
        if (until == DLP_MIX_FIRST ? here < samples
            : until == DLP_MIX_ALL ? here > samples
                                   : part->items > most)
            samples = here;
        if (part->items > most) most = part->items;
    }
    return samples;
}

/* --- Checks --- */

/* Return the greatest common divisor of a and b. If one of them is 0, it is the other. */
static uint64_t dlpi_gcd(uint64_t a, uint64_t b) {
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Fill *err, which may be NULL. Returns DLP_ERR_MEMORY. */
static int dlpi_mix_no_memory(dlp_error *err, const char *what) {
    dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory for %s", what);
    if (err) err->errnum = ENOMEM;
    return DLP_ERR_MEMORY;
}

/* Check the desc of a mix, but not its weights. Returns 0, or a DLP_ERR code with *err filled. */
static int dlpi_mix_check(const dlp_mix_desc *d, dlp_error *err) {
    uint64_t total = 0;
    if (d->n < 1 || d->n > DLPI_MIX_DATASETS) return dlpi_order_bad(err, "mix.n", d->n, "1..1024");
    if (!d->n_items) return DLPI_ORDER_FAULT(err, "mix.n_items", "n_items is NULL");
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->n_items[i] < 1 || d->n_items[i] > DLPI_MAX_ITEMS - total)
            return DLPI_ORDER_FAULT(err, "mix.n_items",
                                    "n_items[%" PRIu32 "] is %" PRIu64
                                    ": each must be 1 or more, the sum at most 2^48",
                                    i, d->n_items[i]);
        total += d->n_items[i];
    }
    if (d->shuffle < 0 || d->shuffle > 1)
        return dlpi_order_bad(err, "mix.shuffle", d->shuffle, "0 or 1");
    if (d->until < DLP_MIX_ALL || d->until > DLP_MIX_LARGEST)
        return dlpi_order_bad(err, "mix.until", d->until, "DLP_MIX_ALL .. DLP_MIX_LARGEST");
    if (d->samples_per_epoch > DLPI_MAX_ITEMS)
        return dlpi_order_bad(err, "mix.samples_per_epoch", (int64_t)d->samples_per_epoch,
                              "at most 2^48");
    return DLP_OK;
}

/* Find the greatest common divisor of the weights, and the period: the sum of the divided weights.
   Returns 0, or DLP_ERR_ARG with *err filled. */
static int dlpi_mix_weights(const dlp_mix_desc *d, uint64_t *divisor, uint64_t *period,
                            dlp_error *err) {
    uint64_t sum = 0, g = 0;
    for (uint32_t i = 0; i < d->n; i++) g = dlpi_gcd(d->weights ? d->weights[i] : 1, g);
    if (g == 0)
        return DLPI_ORDER_FAULT(err, "mix.weights",
                                "all %" PRIu32 " weights are 0; set one of them", d->n);
    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t w = d->weights ? d->weights[i] / g : 1;
        if (w > DLPI_MIX_PERIOD - sum)
            return DLPI_ORDER_FAULT(err, "mix.weights",
                                    "weights[%" PRIu32 "] is %" PRIu64 ", so the sum, divided by "
                                    "the greatest common divisor %" PRIu64 ", is above 2^20; "
                                    "round the weights",
                                    i, d->weights[i], g);
        sum += w;
    }
    *divisor = g;
    *period = sum;
    return DLP_OK;
}

/* Fill the datasets, the length and the hash of a mix, whose period is set. divisor: number that
   all weights are divided by. */
static void dlpi_mix_fill(dlp_mix *m, const dlp_mix_desc *d, uint64_t divisor) {
    m->n = d->n;
    m->shuffle = d->shuffle;
    m->seed = d->seed;
    for (uint32_t i = 0; i < d->n; i++) {
        dlpi_mix_part *part = &m->part[i];
        part->first = m->total;
        part->items = d->n_items[i];
        part->weight = d->weights ? d->weights[i] / divisor : 1;
        part->key = dlpi_hash_in(DLPI_DOMAIN_MIX, d->seed, i);
        m->total += part->items;
    }
    m->samples = d->samples_per_epoch ? d->samples_per_epoch : dlpi_mix_samples(m, d->until);
    m->id = dlpi_hash_in(DLPI_DOMAIN_MIX, (uint64_t)d->shuffle, d->n); /* the pipe has the seed */
    for (uint32_t i = 0; i < d->n; i++)
        m->id = dlpi_absorb(dlpi_absorb(m->id, m->part[i].items), m->part[i].weight);
}

/* --- The order --- */

/* Return the dataset that has this position. *draw: how many items it gave before, in all
   epochs. */
static const dlpi_mix_part *dlpi_mix_turn(const dlp_mix *m, uint64_t epoch, uint64_t position,
                                          uint64_t *draw) {
    uint64_t at = epoch * m->samples + position;
    uint32_t entry = m->schedule[at % m->period];
    const dlpi_mix_part *part = &m->part[entry >> DLPI_MIX_RANK_BITS];
    *draw = at / m->period * part->weight + (entry & (DLPI_MIX_PERIOD - 1));
    return part;
}

DLPDEF uint64_t dlp_mix_at(const dlp_mix *m, uint64_t epoch, uint64_t position) {
    uint64_t draw;
    const dlpi_mix_part *part = dlpi_mix_turn(m, epoch, position, &draw);
    uint64_t pass = draw / part->items, item = draw % part->items;
    return part->first + (m->shuffle ? dlpi_mix_shuffled(part, pass, item) : item);
}

static uint64_t dlpi_mix_function(void *user, uint64_t epoch, uint64_t position) {
    return dlp_mix_at((const dlp_mix *)user, epoch, position);
}

static uint64_t dlpi_mix_replacement(void *user, uint64_t epoch, uint64_t position,
                                     uint64_t random) {
    uint64_t draw;
    const dlpi_mix_part *part = dlpi_mix_turn((const dlp_mix *)user, epoch, position, &draw);
    return part->first + dlpi_below(dlpi_range_of(part->items), random);
}

DLPI_COLD DLPDEF int dlp_mix_open(dlp_mix **out, const dlp_mix_desc *desc, dlp_error *err) {
    uint64_t divisor = 1, period = 1;
    dlp_mix *m;
    int rc;
    if (!out || !desc) return DLPI_ORDER_FAULT(err, "mix", "out or desc is NULL");
    if ((rc = dlpi_mix_check(desc, err)) != DLP_OK) return rc;
    if ((rc = dlpi_mix_weights(desc, &divisor, &period, err)) != DLP_OK) return rc;
    m = calloc(1, sizeof *m + desc->n * sizeof *m->part + period * sizeof *m->schedule);
    if (!m) return dlpi_mix_no_memory(err, "the mix");
    m->part = (dlpi_mix_part *)(m + 1);
    m->schedule = (uint32_t *)(m->part + desc->n);
    m->period = period;
    dlpi_mix_fill(m, desc, divisor);
    if (m->samples > DLPI_MAX_ITEMS) {
        free(m);
        return DLPI_ORDER_FAULT(err, "mix.samples_per_epoch",
                                "an epoch has more than 2^48 samples; set samples_per_epoch");
    }
    dlpi_mix_schedule(m);
    *out = m;
    return DLP_OK;
}

/* Clear a sampler's desc, but for the fields that have nothing to do with the order. */
static void dlpi_mix_clear(dlp_sampler_desc *to) {
    dlp_sampler_desc clear = {0};
    clear.threaded = to->threaded;
    *to = clear;
}

DLPI_COLD DLPDEF int dlp_mix_sampler(const dlp_mix *mix, dlp_sampler_desc *to) {
    if (!mix || !to) return DLP_ERR_ARG;
    dlpi_mix_clear(to);
    to->order = DLP_ORDER_FUNCTION;
    to->function = dlpi_mix_function;
    to->replacement = dlpi_mix_replacement;
    to->function_user = (void *)(uintptr_t)mix; /* which only reads it */
    to->function_id = mix->id;
    to->seed = mix->seed;
    to->samples_per_epoch = mix->samples;
    return DLP_OK;
}

DLPDEF uint64_t dlp_mix_items(const dlp_mix *mix) { return mix ? mix->total : 0; }

DLPDEF int dlp_mix_locate(const dlp_mix *mix, uint64_t index, uint32_t *dataset, uint64_t *item) {
    uint32_t low = 0, high;
    if (!mix || !dataset || !item || index >= mix->total) return DLP_ERR_ARG;
    for (high = mix->n; high - low > 1;) { /* it lies in [low, high) */
        uint32_t middle = low + (high - low) / 2;
        if (mix->part[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    *dataset = low;
    *item = index - mix->part[low].first;
    return DLP_OK;
}

DLPI_COLD DLPDEF void dlp_mix_close(dlp_mix *mix) { free(mix); }
