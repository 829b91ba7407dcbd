/* What must come out of a configuration, told from what the headers promise alone: orders, ranks,
   what becomes of each item, and every byte. Of the library only public arithmetic is called: keyed
   permutations, hashes, and a mix's order. */
#ifndef DIFFERENTIAL_MODEL_H
#define DIFFERENTIAL_MODEL_H

#define MOST_BATCH 70
#define NOTHING UINT64_MAX

enum {
    FAULT_NONE,
    FAULT_HEALS,
    FAULT_FAILS,
    FAULT_SKIPS,
    FAULT_LENGTH,
    FAULT_KILLS,
    FAULT_POISON,
    FAULT_LATE,
    FAULTS
};

typedef struct fault {
    int kind, stage;
    uint32_t n; /* so often */
} fault;

/* One row as it is delivered. */
typedef struct mrow {
    uint64_t index, w[4];
    uint32_t len;
    uint16_t rag[RAGGED_MOST][2];
    uint8_t tag[5], valid;
} mrow;

/* An error that next may return in a batch's place. */
typedef struct woe {
    int code, stage, has_item;
    uint64_t index, position;
} woe;

typedef struct mbatch {
    uint64_t epoch, k, position;
    uint32_t count, last;
    mrow row[MOST_BATCH];
    uint64_t was[MOST_BATCH]; /* of each row what a collate of our own sums up */
    woe woe[MOST_BATCH + 1];
    int n_woes;
} mbatch;

typedef struct model {
    const cfg *c;
    int life;
    uint64_t samples;                           /* positions of an epoch; UINT64_MAX: lists */
    uint64_t index[MOST_EPOCHS][MOST_ROWS];     /* of each position; of a chunk's pipe: chunks */
    uint32_t begin[MOST_EPOCHS][MOST_ROWS + 1]; /* where each batch begins */
    uint32_t batches[MOST_EPOCHS];              /* for this rank */
    uint64_t part_first[64];
    dlp_mix *mix;
} model;

/* ---- arithmetic ---- */

/* A number below n, by the high half of a product; small n, so that rejection is as good as never,
   and is done all the same. */
static uint64_t below(uint64_t n, uint64_t random) {
    for (;; random = mixed(random, n)) {
        uint64_t high = random >> 32, low = random & UINT32_MAX;
        uint64_t middle = high * n + (low * n >> 32); /* n is below 2^31 */
        if (random * n >= (0 - n) % n) return middle >> 32;
    }
}

/* ---- what callbacks are given ---- */

static uint64_t weight_of(uint64_t i) { return i % 5 + (i == 0); }
static uint64_t subset_of(const cfg *c, uint64_t i) { return (i * 3 + 1) % c->n_items; }
static uint64_t domain_of(const cfg *c) { return c->n_subset ? c->n_subset : c->n_items; }
static uint64_t function_of(const cfg *c, uint64_t epoch, uint64_t position) {
    return (position * 7 + epoch * 3 + 1) % domain_of(c);
}
static uint64_t replacement_of(const cfg *c, uint64_t epoch, uint64_t position, uint64_t random) {
    return (random + position + epoch) % domain_of(c);
}
static uint32_t length_of(uint64_t index) {
    return (uint32_t)(mixed(3, index) % (RAGGED_MOST + 1));
}

/* The user's batch sampler: list k of an epoch. Returns its length, 0 behind the last. */
static uint32_t list_of(const cfg *c, uint64_t epoch, uint64_t k, uint64_t *index) {
    uint32_t n = 1 + (uint32_t)(mixed(c->seed, epoch << 32 | k) % c->batch);
    if (k > 0 && k >= 1 + mixed(c->seed, epoch) % 9) return 0;
    for (uint32_t i = 0; i < n; i++) index[i] = mixed(mixed(k, epoch), i) % c->n_items;
    return n;
}

static uint64_t part_items(const cfg *c, uint64_t part) { /* all together n_items */
    uint64_t n = (uint64_t)c->n_parts, even = c->n_items / n;
    uint64_t less = part % 3 == 1 && even > 0 ? even / 2 : 0;
    uint64_t more = part % 3 == 2 ? even / 2 : 0; /* what the one before gave up */
    if (part + 1 == n && part % 3 == 1) less = 0;
    return even - less + more + (part + 1 == n ? c->n_items % n : 0);
}

static int item_procs(const cfg *c, int life, int s) {
    const stage_plan *p = &c->w[life].st[s];
    return p->n > 0 && p->procs;
}

static fault fault_drawn(const cfg *c, int life, uint64_t h, int s, int batch) {
    const int on[FAULTS] = {
        0,        c->heals,  c->fails,         c->skips && !batch, c->lengths && !batch,
        c->kills, c->poison, c->late && !batch};
    fault f = {FAULT_NONE, s, 0};
    int n = 0, kinds[FAULTS], room = c->max_kills - 1, procs = item_procs(c, life, s);
    for (int i = 0; i < FAULTS; i++)
        if (on[i]) kinds[n++] = i;
    if (n == 0) return f;
    f.kind = kinds[(h >> 30) % (uint64_t)n];
    if (s == S_FETCH && c->w[life].fetcher) room--;
    if (f.kind == FAULT_HEALS && c->retries[s] == 0) f.kind = FAULT_NONE;
    if (f.kind == FAULT_KILLS && (!procs || room < 1)) f.kind = FAULT_NONE;
    if (f.kind == FAULT_POISON && !procs) f.kind = FAULT_FAILS;
    if (f.kind == FAULT_LATE && (!procs || c->w[life].fetcher)) f.kind = FAULT_NONE;
    if (f.kind == FAULT_LATE) f.n = c->retries[s] > 0;
    if (f.kind == FAULT_HEALS) f.n = 1 + (uint32_t)(h >> 40) % (uint32_t)c->retries[s];
    if (f.kind == FAULT_KILLS) f.n = 1 + (uint32_t)(h >> 40) % (uint32_t)room;
    return f;
}

/* How an item fails, and in which stage. A chunk is an item here. */
static fault fault_of(const cfg *c, int life, uint64_t index) {
    uint64_t h = dlp_hash(c->seed, index, 0xfa, 0);
    fault none = {FAULT_NONE, -1, 0};
    if (c->rate == 0 || h % c->rate != 0) return none;
    return fault_drawn(c, life, h, (int)((h >> 20) % (uint64_t)(1 + c->n_maps)), 0);
}
/* Of an item that gets through that stage, how it fails in a later one. */
static fault second_fault(const cfg *c, int life, uint64_t index) {
    uint64_t h = dlp_hash(c->seed, index, 0xf9, 0);
    fault none = {FAULT_NONE, -1, 0}, first = fault_of(c, life, index);
    int s = first.stage + 1 + (int)((h >> 10) % 2);
    if (!c->both_fail || (first.kind != FAULT_HEALS && first.kind != FAULT_KILLS)) return none;
    if (s > S_FETCH + c->n_maps || h % 2) return none;
    return fault_drawn(c, life, h, s, 0);
}
/* How it fails in this stage. */
static fault fault_at(const cfg *c, int life, uint64_t index, int stage) {
    fault first = fault_of(c, life, index);
    return first.stage == stage ? first : second_fault(c, life, index);
}
static fault part_fault(const cfg *c, int life, uint64_t part) {
    uint64_t h = dlp_hash(c->seed, part, 0xfb, 0);
    fault none = {FAULT_NONE, -1, 0};
    if (c->rate == 0 || h % 8 != 0) return none;
    none = fault_drawn(c, life, h, S_PARTS, 0);
    if (none.kind == FAULT_LENGTH || none.kind == FAULT_LATE) none.kind = FAULT_NONE;
    return none;
}
static fault batch_fault(const cfg *c, int life, int s, uint64_t epoch, uint64_t k) {
    uint64_t h = dlp_hash(c->seed, epoch, k, 0xfc + (uint64_t)s);
    fault f = {FAULT_NONE, -1, 0};
    if (c->batch_rate == 0 || h % c->batch_rate != 0) return f;
    f = fault_drawn(c, life, h, s, 1);
    if (f.kind == FAULT_FAILS && (h >> 50) % 4 != 0) f.kind = FAULT_NONE; /* it ends all */
    return f;
}

/* The mix: three datasets laid end to end, or one where there is too little. */
static void mix_desc(const cfg *c, dlp_mix_desc *d, uint64_t *n_items, uint64_t *weights) {
    uint64_t n = c->n_items;
    memset(d, 0, sizeof *d);
    d->n = n < 4 ? 1 : 3;
    n_items[0] = n < 4 ? n : n / 2;
    n_items[1] = n / 4;
    n_items[2] = n - n / 2 - n / 4;
    weights[0] = 3;
    weights[1] = 1;
    weights[2] = 2;
    d->shuffle = 1;
    d->n_items = n_items;
    d->weights = weights;
    d->seed = c->order_seed;
    d->samples_per_epoch = c->samples ? c->samples : n;
}

/* ---- bytes ---- */

static void row_make(const cfg *c, uint64_t index, uint64_t epoch, uint64_t position,
                     uint64_t random, mrow *r) {
    memset(r, 0, sizeof *r);
    r->index = r->w[0] = index;
    r->w[1] = c->keeps ? mixed(1, index) : epoch << 40 | position;
    r->w[2] = c->keeps ? mixed(2, index) : random;
    for (int i = 0; i < 5; i++) r->tag[i] = (uint8_t)(index * 7 + (uint64_t)i);
    r->len = c->ragged ? length_of(index) : 0;
    for (uint32_t i = 0; i < r->len; i++) {
        r->rag[i][0] = (uint16_t)(index * 31 + i);
        r->rag[i][1] = (uint16_t)(i + 1);
    }
}

/* What an item map does; an idempotent one says the same of its own output. */
static void row_map(const cfg *c, int s, mrow *r) {
    uint64_t m = (uint64_t)s;
    if (c->idem[s]) {
        r->w[3] = mixed(mixed(r->w[0], r->w[1]), r->w[2] + m);
        r->tag[s] = (uint8_t)(r->index * 3 + m);
        return;
    }
    r->w[2] = r->w[2] * 3 + r->index + m;
    r->tag[0] ^= (uint8_t)(0x5a + s);
    if (r->len == 0) return;
    r->len--;
    r->rag[r->len][0] = r->rag[r->len][1] = 0;
}

static void words_bmap(const cfg *c, int s, uint64_t *w, uint64_t index, int valid,
                       uint64_t in_epoch) {
    uint64_t m = (uint64_t)s;
    if (c->idem[s])
        w[3] = mixed(mixed(w[0], w[1]), w[2] + m + (uint64_t)valid);
    else
        w[2] = w[2] * 5 + index + in_epoch + m;
}

/* ---- orders ---- */

/* Walker's table, by a sweep: an item that owns less than a bucket shares its own with the next
   that owns more. */
static void alias_table(uint64_t n, uint64_t total, uint64_t *own, uint64_t *other) {
    uint64_t light = 0, heavy = 0, rest;
#define LIGHTER \
    while (light < n && n * weight_of(light) > total) light++
#define HEAVIER \
    while (heavy < n && n * weight_of(heavy) <= total) heavy++
    LIGHTER;
    HEAVIER;
    rest = heavy < n ? n * weight_of(heavy) : 0;
    while (heavy < n) {
        if (rest > total) {
            own[light] = n * weight_of(light);
            other[light] = heavy;
            rest -= total - own[light++];
            LIGHTER;
        } else {
            uint64_t was = heavy++, space = total - rest;
            HEAVIER;
            own[was] = rest;
            other[was] = heavy < n ? heavy : was;
            rest = heavy < n ? n * weight_of(heavy) - space : 0;
        }
    }
    for (; light < n; light++) {
        LIGHTER;
        if (light < n) own[light] = total, other[light] = light;
    }
}

static uint64_t weighted(const cfg *c, uint64_t random, uint64_t key) {
    static uint64_t own[MOST_ITEMS + 1], other[MOST_ITEMS + 1], made;
    uint64_t n = domain_of(c), total = 0, bucket;
    for (uint64_t i = 0; i < n; i++) total += weight_of(i);
    if (made != n) alias_table(n, total, own, other);
    made = n;
    bucket = below(n, random);
    return below(total, mixed(random, key)) < own[bucket] ? bucket : other[bucket];
}

/* The dataset index at a position, of orders that are told position by position. */
static uint64_t order_at(const model *m, uint64_t epoch, uint64_t at) {
    const cfg *c = m->c;
    uint64_t n = domain_of(c), seed = c->order_seed, place = at, domain, random;
    switch (c->order) {
    case O_SHUFFLED: place = permuted(n, seed, epoch, at); break;
    case O_REPLACEMENT:
    case O_WEIGHTED:
        domain = c->order == O_WEIGHTED ? 3 : 2;
        random = mixed(dlp_hash(seed, domain, epoch, 0), at);
        random = mixed(random, dlp_hash(seed, domain, epoch, 1));
        place = c->order == O_WEIGHTED ? weighted(c, random, dlp_hash(seed, domain, epoch, 2))
                                       : below(n, random);
        break;
    case O_FUNCTION: place = function_of(c, epoch, at); break;
    case O_MIX: return dlp_mix_at(m->mix, epoch, at);
    default: break;
    }
    return c->n_subset ? subset_of(c, place) : place;
}

static void batch_ends(model *m, uint64_t epoch, uint32_t rows) {
    uint32_t k = m->batches[epoch]++;
    m->begin[epoch][k + 1] = m->begin[epoch][k] + rows;
}

/* All positions, cut by the rule for the last. */
static void order_positions(model *m, uint64_t epoch) {
    const cfg *c = m->c;
    uint64_t n = m->samples, b = c->batch;
    for (uint64_t at = 0; at < n; at++)
        if (c->kind != K_PARTS) m->index[epoch][at] = order_at(m, epoch, at);
    for (uint64_t at = 0; at < n; at += b) {
        uint64_t rows = n - at < b ? n - at : b;
        if (rows < b && c->last == DLP_LAST_DROP) break;
        for (uint64_t i = n; c->last == DLP_LAST_PAD && i < at + b; i++)
            m->index[epoch][i] = m->index[epoch][i % n];
        batch_ends(m, epoch, (uint32_t)(c->last == DLP_LAST_PAD ? b : rows));
    }
}

static void order_lists(model *m, uint64_t epoch) {
    for (uint32_t at = 0, rows;; at += rows) {
        rows = list_of(m->c, epoch, m->batches[epoch], &m->index[epoch][at]);
        if (rows == 0) break;
        batch_ends(m, epoch, rows);
    }
}

/* The item at place g of an epoch's parts, one after another. */
static uint64_t part_place(const model *m, uint64_t epoch, uint64_t g) {
    const cfg *c = m->c;
    uint64_t n = (uint64_t)c->n_parts, part = 0, items = 0;
    for (uint64_t j = 0; j < n; j++, g -= items) {
        part = j;
        if (c->shuffle_parts) part = permuted(n, keyed(34, c->order_seed, 0), epoch, j);
        items = part_items(c, part);
        if (g < items) break;
    }
    if (c->shuffle_items) g = permuted(items, keyed(35, c->order_seed, part), epoch, g);
    return m->part_first[part] + g;
}

static void order_parts(model *m, uint64_t epoch) {
    const cfg *c = m->c;
    uint64_t t = c->n_items, s = (uint64_t)c->streams, each = c->batch / s, at = 0;
    uint64_t full = c->steps ? (uint64_t)c->steps : t / c->batch;
    for (; at < full * c->batch; at++) {
        uint64_t i = at % c->batch / each, from = i * t / s, length = (i + 1) * t / s - from;
        uint64_t offset = at / c->batch * each + at % each;
        m->index[epoch][at] = part_place(m, epoch, from + offset % length);
    }
    for (uint64_t i = 0; c->steps == 0 && i < s; i++) /* what is left of each stream */
        for (uint64_t g = i * t / s + full * each; g < (i + 1) * t / s; g++)
            m->index[epoch][at++] = part_place(m, epoch, g);
    order_positions(m, epoch);
}

typedef struct bucket_key {
    uint32_t length, place;
} bucket_key;

static int bucket_before(const void *a, const void *b) {
    const bucket_key *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Cut a window's n sorted positions into batches, as many rows as the bounds leave. */
static uint32_t bucket_cut(const cfg *c, const bucket_key *key, uint32_t n, uint32_t *cut) {
    uint32_t batches = 0, by = (uint32_t)c->bucket_by;
    for (uint32_t i = 0, rows; i < n; i += rows) {
        uint32_t most = n - i < c->batch ? n - i : c->batch;
        rows = c->bucket_tokens ? 1 : most;
        while (rows < most && (rows + 1) * key[i + rows].length <= (uint32_t)c->bucket_tokens)
            rows++;
        if (rows != n - i) rows -= rows % by;
        cut[batches++] = i;
        cut[batches] = i + rows;
    }
    return batches;
}

static void order_buckets(model *m, uint64_t epoch) {
    static bucket_key key[MOST_ROWS];
    static uint32_t cut[MOST_ROWS + 1];
    const cfg *c = m->c;
    uint32_t unit = c->bucket_tokens ? (uint32_t)c->bucket_by : c->batch, at = 0;
    uint32_t window = c->bucket_window ? (uint32_t)c->bucket_window : 100 * c->batch;
    uint32_t n = (uint32_t)c->n_items;
    window = (window + unit - 1) / unit * unit;
    if (c->bucket_last) n -= n % unit;
    for (uint32_t first = 0; first < n; first += window) {
        uint32_t here = n - first < window ? n - first : window, batches;
        for (uint32_t i = 0; i < here; i++) {
            uint64_t p = permuted(c->n_items, c->order_seed, epoch, first + i);
            key[i].place = first + i;
            key[i].length = length_of(p);
        }
        qsort(key, here, sizeof *key, bucket_before);
        batches = bucket_cut(c, key, here, cut);
        for (uint32_t b = 0; b < batches; b++) {
            uint32_t turn =
                (uint32_t)permuted(batches, keyed(33, c->order_seed, epoch), first / window, b);
            for (uint32_t i = cut[turn]; i < cut[turn + 1]; i++)
                m->index[epoch][at++] = permuted(c->n_items, c->order_seed, epoch, key[i].place);
            batch_ends(m, epoch, cut[turn + 1] - cut[turn]);
        }
    }
}

/* ---- chunks: index[] has the chunk of each place, begin[] the batches before it ---- */

static uint32_t chunk_size(const cfg *c, uint64_t chunk) {
    uint64_t left = c->n_items - chunk * (uint64_t)c->chunk_rows;
    return left < (uint64_t)c->chunk_rows ? (uint32_t)left : (uint32_t)c->chunk_rows;
}
static uint32_t chunk_kept(const cfg *c, uint32_t rows) {
    return c->last == DLP_LAST_DROP ? rows - rows % c->batch : rows;
}
/* Do batches span chunks? Not where all chunks that one begins behind are full of whole ones. */
static int chunks_span(const cfg *c) {
    uint64_t n = (c->n_items - 1) / (uint64_t)c->chunk_rows + 1;
    if (c->within || n == 1) return 0;
    return (uint32_t)c->chunk_rows % c->batch != 0 ||
           (c->order == O_SHUFFLED && chunk_size(c, n - 1) % c->batch != 0);
}
static uint64_t chunk_count(const cfg *c) {
    uint64_t n = (c->n_items - 1) / (uint64_t)c->chunk_rows + 1;
    if (chunks_span(c)) return n;
    return chunk_kept(c, chunk_size(c, n - 1)) == 0 ? n - 1 : n;
}

static void order_chunks(model *m, uint64_t epoch) {
    const cfg *c = m->c;
    uint64_t n = chunk_count(c);
    for (uint64_t q = 0; q < n; q++) {
        uint64_t chunk = c->order == O_SHUFFLED ? permuted(n, c->order_seed, epoch, q) : q;
        uint32_t kept = chunk_kept(c, chunk_size(c, chunk));
        m->index[epoch][q] = chunk;
        m->batches[epoch] += (kept + c->batch - 1) / c->batch;
        m->begin[epoch][q + 1] = m->batches[epoch];
    }
    if (chunks_span(c))
        m->batches[epoch] = (chunk_kept(c, (uint32_t)c->n_items) + c->batch - 1) / c->batch;
}

/* ---- a stream: each rank knows only its own rows ---- */

static uint32_t rank_share(const cfg *c, int life, uint32_t rows, uint32_t *from) {
    uint32_t r = c->w[life].rank, w = c->w[life].world;
    *from = rows * r / w;
    return rows * (r + 1) / w - *from;
}

static void order_stream(model *m, uint64_t epoch) {
    const cfg *c = m->c;
    uint32_t from, share = rank_share(c, m->life, c->batch, &from);
    for (uint64_t at = 0; at < c->n_items + c->batch; at++) m->index[epoch][at] = at;
    for (uint64_t at = 0; at + from < c->n_items; at += c->batch) {
        if (c->last == DLP_LAST_DROP && c->n_items - at < share) break;
        batch_ends(m, epoch, c->batch);
    }
}

static int model_open(model *m, const cfg *c, int life) {
    memset(m, 0, sizeof *m);
    m->c = c;
    m->life = life;
    m->samples = c->steps ? (uint64_t)c->steps * c->batch : c->samples ? c->samples : domain_of(c);
    if (c->order == O_LISTS || c->order == O_BUCKETS || c->kind == K_STREAM) m->samples = NOTHING;
    for (uint64_t i = 0; c->kind == K_PARTS && i < (uint64_t)c->n_parts; i++)
        m->part_first[i + 1] = m->part_first[i] + part_items(c, i);
    if (c->order == O_MIX) {
        dlp_mix_desc d;
        static uint64_t n_items[3], weights[3];
        mix_desc(c, &d, n_items, weights);
        if (dlp_mix_open(&m->mix, &d, NULL) != DLP_OK) return -1;
    }
    for (uint64_t e = 0; e < (uint64_t)c->epochs; e++) {
        if (c->kind == K_CHUNKS)
            order_chunks(m, e);
        else if (c->kind == K_STREAM)
            order_stream(m, e);
        else if (c->kind == K_PARTS)
            order_parts(m, e);
        else if (c->order == O_LISTS)
            order_lists(m, e);
        else if (c->order == O_BUCKETS)
            order_buckets(m, e);
        else
            order_positions(m, e);
    }
    return 0;
}
static void model_close(model *m) { dlp_mix_close(m->mix); }

/* ---- what becomes of a row ---- */

#define MOST_TURNS 101

typedef struct fate {
    uint64_t index; /* that stands there in the end */
    int left;       /* its row is left out */
    int raised, stage, code;
    int turns, failures; /* replaced or left out so often; those that count for max_skips */
    uint64_t was[MOST_TURNS + 1]; /* the indices that did not stay, */
    int why[MOST_TURNS + 1];      /* the codes of their failures */
} fate;

static uint64_t part_of(const model *m, uint64_t index) {
    uint64_t part = 0;
    while (m->part_first[part + 1] <= index) part++;
    return part;
}

/* Which item takes the row for the k-th time. */
static uint64_t stand_in(const model *m, uint64_t epoch, uint64_t position, uint64_t k) {
    const cfg *c = m->c;
    uint64_t random = mixed(dlp_hash(c->order_seed, 4, epoch, position), k), n;
    if (c->kind == K_PARTS) {
        uint64_t part = part_of(m, m->index[epoch][position]);
        return m->part_first[part] + below(part_items(c, part), random);
    }
    if (c->order == O_MIX) {
        uint32_t d;
        dlp_mix_desc desc;
        uint64_t item, n_items[3], weights[3], index = dlp_mix_at(m->mix, epoch, position);
        dlp_mix_locate(m->mix, index, &d, &item);
        mix_desc(c, &desc, n_items, weights);
        return index - item + below(n_items[d], random);
    }
    if (c->own_replacement) {
        uint64_t place = replacement_of(c, epoch, position, random);
        return c->n_subset ? subset_of(c, place) : place;
    }
    if (c->order == O_REPLACEMENT || c->order == O_WEIGHTED)
        return order_at(m, epoch, UINT64_C(1) << 63 | random);
    n = c->kind == K_CHUNKS ? chunk_count(c) : m->samples == NOTHING ? c->n_items : m->samples;
    if (c->kind == K_CHUNKS) return m->index[epoch][below(n, random)];
    return m->samples == NOTHING ? below(n, random) : order_at(m, epoch, below(n, random));
}

static int fault_code(int kind) {
    return kind == FAULT_SKIPS    ? DLP_SKIP
           : kind == FAULT_LENGTH ? DLP_ERR_LENGTH
           : kind == FAULT_POISON ? DLP_ERR_KILLED
           : kind == FAULT_LATE   ? DLP_ERR_DEADLINE
                                  : DLP_ERR_CALLBACK;
}
static int fault_lasts(const fault *f) {
    return f->kind == FAULT_FAILS || f->kind == FAULT_SKIPS || f->kind == FAULT_LENGTH ||
           f->kind == FAULT_POISON || (f->kind == FAULT_LATE && f->n == 0);
}

/* The item failed for good: returns 1 if another one takes its row. */
static int fate_turn(const model *m, fate *to, int stage, int code) {
    int policy = m->c->policy[stage];
    to->stage = stage;
    to->code = code;
    if (code != DLP_SKIP && policy == DLP_ON_ERROR_RAISE) return to->raised = 1, 0;
    to->failures += code != DLP_SKIP;
    if (policy == DLP_ON_ERROR_REPLACE && to->turns == 100) {
        if (code == DLP_SKIP) to->code = DLP_ERR_CALLBACK;
        to->raised = 1;
        return 0;
    }
    to->why[to->turns] = code;
    to->was[to->turns++] = to->index;
    if (policy == DLP_ON_ERROR_REPLACE) return 1;
    to->left = 1;
    return 0;
}

static void fate_of(const model *m, uint64_t epoch, uint64_t position, uint32_t needs, fate *to) {
    const cfg *c = m->c;
    memset(to, 0, sizeof *to);
    to->index = m->index[epoch][position];
    if (c->kind == K_PARTS) {
        fault f = part_fault(c, m->life, part_of(m, to->index));
        if (fault_lasts(&f)) {
            (void)fate_turn(m, to, S_PARTS, fault_code(f.kind));
            return;
        }
    }
    for (uint64_t k = 1;; k++) {
        fault f = fault_of(c, m->life, to->index);
        int small = needs > 0 && chunk_size(c, to->index) < needs; /* a chunk of fewer rows */
        if (!small && !fault_lasts(&f)) f = second_fault(c, m->life, to->index);
        if (!small && !fault_lasts(&f)) return;
        if (!fate_turn(m, to, small ? S_FETCH : f.stage, small ? DLP_SKIP : fault_code(f.kind)))
            return;
        to->index = stand_in(m, epoch, position, k);
    }
}

/* ---- whole batches ---- */

static void woe_add(mbatch *b, int code, int stage, int has_item, uint64_t index,
                    uint64_t position) {
    woe w = {code, stage, has_item, index, position};
    b->woe[b->n_woes++] = w;
}

static void row_expect(const model *m, mbatch *b, uint32_t r, uint64_t at) {
    const cfg *c = m->c;
    uint64_t position = at >= m->samples ? at % m->samples : at;
    uint64_t random = mixed(mixed(keyed(5, c->order_seed, b->epoch), position), 7);
    mrow *row = &b->row[r];
    fate f;
    fate_of(m, b->epoch, position, 0, &f);
    row_make(c, f.index, b->epoch, position, random, row);
    for (int i = 0; i < c->n_maps; i++) row_map(c, S_MAP0 + i, row);
    row->valid = at < m->samples;
    if (f.raised) woe_add(b, f.code, f.stage, f.stage != S_PARTS, f.index, position);
    if (!f.left && !f.raised) return;
    memset(row, 0, sizeof *row);
    row->index = f.index;
}

/* Stages of whole batches, of a batch in which no row failed. */
static void stages_expect(const model *m, mbatch *b) {
    const cfg *c = m->c;
    for (uint32_t r = 0; r < b->count; r++) b->was[r] = b->row[r].w[0] ^ b->row[r].w[2];
    for (int s = S_BATCH; s <= S_BMAP1 && b->n_woes == 0; s++) {
        fault f = batch_fault(c, m->life, s, b->epoch, b->k);
        if (s == S_BATCH ? c->collate == C_NONE : s - S_BMAP0 >= c->n_bmaps) continue;
        if (fault_lasts(&f)) woe_add(b, fault_code(f.kind), s, 0, 0, b->position);
        for (uint32_t r = 0; r < b->count && s > S_BATCH; r++)
            words_bmap(c, s, b->row[r].w, b->row[r].index, b->row[r].valid, b->k);
    }
}

/* This rank's rows of a chunk. */
static uint32_t chunk_local(const model *m, uint32_t kept) {
    uint32_t n = 0, from;
    for (uint32_t r = 0; r < kept; r += m->c->batch)
        n += rank_share(m->c, m->life, kept - r < m->c->batch ? kept - r : m->c->batch, &from);
    return n;
}

/* Row r of a view: row `place` of the order of the chunk that f says. */
static void view_row(const model *m, mbatch *b, uint32_t r, const fate *f, uint32_t place) {
    const cfg *c = m->c;
    uint64_t row = place;
    if (c->shuffle_rows)
        row = permuted(chunk_size(c, f->index), mixed(keyed(16, c->order_seed, f->index), 1),
                       b->epoch, place);
    row += f->index * (uint64_t)c->chunk_rows;
    row_make(c, row, 0, 0, 0, &b->row[r]);
    if (f->left) memset(&b->row[r], 0, sizeof b->row[r]);
    b->row[r].index = row;
    b->row[r].valid = !f->left;
}

/* A view of an epoch's rows, one chunk after the other. The first chunk that fails is told. */
static void view_expect_spanning(const model *m, mbatch *b) {
    const cfg *c = m->c;
    uint32_t all = chunk_kept(c, (uint32_t)c->n_items), begin = (uint32_t)b->k * c->batch, from;
    uint64_t q = 0, at = 0;
    uint64_t known = UINT64_MAX;
    fate f;
    b->count = rank_share(c, m->life, all - begin < c->batch ? all - begin : c->batch, &from);
    b->position = begin + from;
    for (uint32_t r = 0; r < b->count; r++) {
        while (b->position + r >= at + chunk_size(c, m->index[b->epoch][q]))
            at += chunk_size(c, m->index[b->epoch][q++]);
        if (q != known) {
            fate_of(m, b->epoch, q, chunk_size(c, m->index[b->epoch][q]), &f);
            if (f.raised && b->n_woes == 0) woe_add(b, f.code, f.stage, 1, f.index, q);
            known = q;
        }
        view_row(m, b, r, &f, (uint32_t)(b->position + r - at));
    }
}

static void view_expect(const model *m, mbatch *b) {
    const cfg *c = m->c;
    uint64_t q = 0, at = 0;
    uint32_t j, rows, kept, n, from;
    fate f;
    if (chunks_span(c)) {
        view_expect_spanning(m, b);
        return;
    }
    while (m->begin[b->epoch][q + 1] <= b->k)
        at += chunk_kept(c, chunk_size(c, m->index[b->epoch][q++]));
    j = (uint32_t)b->k - m->begin[b->epoch][q];
    rows = chunk_size(c, m->index[b->epoch][q]);
    kept = chunk_kept(c, rows);
    n = kept - j * c->batch < c->batch ? kept - j * c->batch : c->batch;
    b->count = rank_share(c, m->life, n, &from);
    b->position = at + j * c->batch + from;
    fate_of(m, b->epoch, q, rows, &f);
    if (chunk_local(m, kept) == 0) { /* this rank loads nothing of it */
        memset(&f, 0, sizeof f);
        f.index = m->index[b->epoch][q];
    }
    if (f.raised) woe_add(b, f.code, f.stage, 1, f.index, q);
    for (uint32_t r = 0; r < b->count; r++) view_row(m, b, r, &f, j * c->batch + from + r);
}

static void expect(const model *m, uint64_t epoch, uint64_t k, mbatch *b) {
    const cfg *c = m->c;
    uint64_t begin = m->begin[epoch][k];
    uint32_t from;
    memset(b, 0, sizeof *b);
    b->epoch = epoch;
    b->k = k;
    b->last = k + 1 == m->batches[epoch];
    if (c->kind == K_CHUNKS) {
        view_expect(m, b);
        return;
    }
    b->count = rank_share(c, m->life, m->begin[epoch][k + 1] - m->begin[epoch][k], &from);
    b->position = begin + from;
    if (c->kind == K_STREAM) {
        uint64_t left = c->n_items > b->position ? c->n_items - b->position : 0;
        b->last = left < b->count;
        if (b->last) b->count = (uint32_t)left;
    }
    for (uint32_t r = 0; r < b->count; r++) row_expect(m, b, r, begin + from + r);
    stages_expect(m, b);
}

#endif
