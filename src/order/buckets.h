/* needs: buckets */
#pragma once
/* tests: unit/order/mixing */
#include "api/buckets.h"
#include "order/keys.h"
#include "order/mixing.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-buckets    ITEMS OF LIKE LENGTH BATCHED TOGETHER */

#define DLPI_BUCKETS_WINDOW ((uint64_t)1 << 24)
#define DLPI_BUCKETS_ROWS (1u << 20)

/* The positions of a window: number * window on, in an epoch. */
typedef struct dlpi_window {
    uint64_t epoch, number; /* the window's number in the epoch, from 0 */
    uint32_t n, read;       /* positions of the window; those that are in the arrays already */
    uint64_t *index;        /* [window] the dataset index at each position */
    uint64_t *key;          /* [window] length of the item << 32 | its place in `index` */
} dlpi_window;

struct dlp_buckets {
    dlp_buckets_desc d;
    dlp_sampler_desc base;
    dlpi_order order;
    uint64_t positions;     /* positions of an epoch, without a last part that is dropped */
    uint64_t windows;       /* windows of an epoch */
    uint64_t longest;       /* length that an item may have, at most */
    uint64_t id;            /* hash of the desc, for states */
    void *table;            /* table of a weighted order, or NULL */
    dlpi_window now, ahead; /* the window that gives batches; the next one, read ahead */
    uint64_t *scratch;      /* [window] for sorting */
    uint32_t *cut;          /* [batches + 1] where each batch of `now` begins in its sorted keys */
    uint32_t batches, at, step; /* batches of `now`; given out; positions read ahead with each */
    dlp_permutation turn;       /* the order in which the batches of `now` are given */
    char why[256];              /* text of the last failure */
};

/* Write into b->why that an item is too long. Returns -1, for the caller to return. */
static int dlpi_buckets_too_long(dlp_buckets *b, uint64_t index, uint32_t length) {
    snprintf(b->why, sizeof b->why,
             "item %" PRIu64 " has length %" PRIu32 ", but with max_tokens %" PRIu64 " a row has "
             "at most %" PRIu64 " (divisible_by %" PRIu32 ")",
             index, length, b->d.max_tokens, b->longest, b->d.divisible_by);
    return -1;
}

/* Make *w window `number` of an epoch. No position of the window is read yet. The last window of an
   epoch may be shorter. */
static void dlpi_window_set(const dlp_buckets *b, dlpi_window *w, uint64_t epoch, uint64_t number) {
    uint64_t left = b->positions - number * b->d.window;
    w->epoch = epoch;
    w->number = number;
    w->n = left < b->d.window ? (uint32_t)left : b->d.window;
    w->read = 0;
}

/* Read up to `most` more positions of a window. Returns 0, or -1 with the reason in b->why. */
static int dlpi_window_read(dlp_buckets *b, dlpi_window *w, uint32_t most) {
    uint32_t from = w->read, n = w->n - from < most ? w->n - from : most;
    dlpi_order_block(&b->order, w->epoch, w->number * b->d.window + from, n, w->index + from);
    for (uint32_t i = from; i < from + n; i++) {
        uint32_t length;
        if (w->index[i] >= b->d.n_items) {
            snprintf(b->why, sizeof b->why, "the order gave an index past the items");
            return -1;
        }
        length =
            b->d.lengths ? b->d.lengths[w->index[i]] : b->d.length(b->d.length_user, w->index[i]);
        if (length > b->longest) return dlpi_buckets_too_long(b, w->index[i], length);
        w->key[i] = (uint64_t)length << 32 | i;
    }
    w->read = from + n;
    return 0;
}

/* Return the number of rows of the batch that begins at place i of the sorted keys. It is as many
   as batch_size and max_tokens allow, rounded down to a multiple of divisible_by. If the batch
   takes all rows that are left, the number is not rounded. */
static uint32_t dlpi_window_rows(const dlp_buckets *b, const dlpi_window *w, uint32_t i) {
    uint32_t left = w->n - i, rows = 1, most = left < b->d.batch_size ? left : b->d.batch_size;
    if (b->d.max_tokens == 0) rows = most;
    while (rows < most && (rows + UINT64_C(1)) * (w->key[i + rows] >> 32) <= b->d.max_tokens)
        rows++;
    return rows == left ? rows : rows - rows % b->d.divisible_by;
}

/* Cut the present window into batches, and draw the order in which they are given. The window must
   be sorted. Also set how many positions of the next window are read with each batch. */
static void dlpi_window_cut(dlp_buckets *b) {
    uint64_t key = dlpi_hash_in(DLPI_DOMAIN_BUCKETS, b->d.seed, b->now.epoch);
    uint32_t i = 0;
    for (b->batches = 0; i < b->now.n; b->batches++) {
        b->cut[b->batches] = i;
        i += dlpi_window_rows(b, &b->now, i);
    }
    b->cut[b->batches] = i;
    b->step = (b->d.window + b->batches - 1) / b->batches; /* NOLINT: a window has positions */
    dlp_permutation_init(&b->turn, b->batches, key, b->now.number);
}

/* Make window `number` of an epoch the present one, sorted and cut into batches, and begin to read
   the window after it. Returns 0, or -1 with the reason in b->why. */
DLPI_COLD static int dlpi_buckets_seek(dlp_buckets *b, uint64_t epoch, uint64_t number) {
    bool last = number + 1 == b->windows;
    if (b->ahead.n > 0 && b->ahead.epoch == epoch && b->ahead.number == number) {
        dlpi_window other = b->now;
        b->now = b->ahead;
        b->ahead = other;
    } else {
        dlpi_window_set(b, &b->now, epoch, number);
    }
    b->batches = b->at = b->ahead.n = 0;
    if (dlpi_window_read(b, &b->now, b->now.n) != 0) return -1;
    dlpi_keys_sort(&b->now.key, &b->scratch, b->now.n);
    dlpi_window_cut(b);
    dlpi_window_set(b, &b->ahead, last ? epoch + 1 : epoch, last ? 0 : number + 1);
    return 0;
}

static int dlpi_buckets_begin(void *user, uint64_t epoch) {
    return dlpi_buckets_seek((dlp_buckets *)user, epoch, 0);
}

/* Write the indices of the next batch. Returns how many, 0 at the end of the epoch, or -1 with the
   reason in b->why. max: room for indices; at least batch_size. */
static int64_t dlpi_buckets_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    dlp_buckets *b = (dlp_buckets *)user;
    uint32_t turn, from, n;
    if (max < b->d.batch_size) {
        snprintf(b->why, sizeof b->why,
                 "the pipe's batch_size is %" PRIu64 ", must be at least that of the buckets, "
                 "%" PRIu32,
                 max, b->d.batch_size);
        return -1;
    }
    if (b->at == b->batches) {
        if (b->now.number + 1 >= b->windows) return 0;
        if (dlpi_buckets_seek(b, epoch, b->now.number + 1) != 0) return -1;
    }
    turn = b->d.shuffle ? (uint32_t)dlp_permutation_at(&b->turn, b->at) : b->at;
    from = b->cut[turn];
    n = b->cut[turn + 1] - from;
    for (uint32_t i = 0; i < n; i++) index[i] = b->now.index[(uint32_t)b->now.key[from + i]];
    b->at++;
    /* what is wrong there is told when its turn comes */
    if (dlpi_window_read(b, &b->ahead, b->step) != 0) dlpi_window_set(b, &b->ahead, 0, 0);
    return n;
}

static int dlpi_buckets_save(void *user, void *bytes) {
    const dlp_buckets *b = (const dlp_buckets *)user;
    uint64_t words[3] = {b->now.epoch, b->now.number, b->at};
    memcpy(bytes, words, sizeof words);
    return (int)sizeof words;
}

/* Go on behind the batches of a saved state. bytes: the n bytes that dlpi_buckets_save wrote.
   Returns 0, or -1 with the reason in b->why. */
DLPI_COLD static int dlpi_buckets_restore(void *user, const void *bytes, size_t n) {
    dlp_buckets *b = (dlp_buckets *)user;
    uint64_t words[3] = {0, UINT64_MAX, 0};
    if (n == sizeof words) memcpy(words, bytes, sizeof words);
    if (words[1] < b->windows) {
        if (dlpi_buckets_seek(b, words[0], words[1]) != 0) return -1;
        if (words[2] <= b->batches) {
            b->at = (uint32_t)words[2];
            return 0;
        }
    }
    snprintf(b->why, sizeof b->why, "the state was saved with other buckets");
    return -1;
}

static const char *dlpi_buckets_why(void *user) { return ((dlp_buckets *)user)->why; }

/* --- Open --- */

/* Check a desc of buckets and the order under them. Returns 0, or a DLP_ERR code with *err filled.
   */
static int dlpi_buckets_check(const dlp_buckets_desc *d, dlp_error *err) {
    uint32_t by = d->divisible_by ? d->divisible_by : 1;
    if (d->n_items < 1 || d->n_items > DLPI_MAX_ITEMS)
        return dlpi_order_bad(err, "buckets.n_items", (int64_t)d->n_items, "1..2^48");
    if ((d->lengths != NULL) == (d->length != NULL))
        return DLPI_ORDER_FAULT(err, "buckets.lengths", "give either lengths or length");
    if (d->lengths != NULL && d->lengths_id != 0)
        return dlpi_order_bad(err, "buckets.lengths_id", (int64_t)d->lengths_id, "0 with lengths");
    if (d->batch_size < 1 || d->batch_size > DLPI_BUCKETS_ROWS || d->batch_size % by != 0)
        return DLPI_ORDER_FAULT(err, "buckets.batch_size",
                                "batch_size is %" PRIu32 ", must be 1..2^20 and a multiple of "
                                "divisible_by %" PRIu32,
                                d->batch_size, by);
    if (d->window > DLPI_BUCKETS_WINDOW)
        return dlpi_order_bad(err, "buckets.window", d->window, "0..2^24");
    if (d->max_tokens != 0 && d->max_tokens < by)
        return DLPI_ORDER_FAULT(err, "buckets.max_tokens",
                                "max_tokens is %" PRIu64 ", below divisible_by %" PRIu32,
                                d->max_tokens, by);
    if (d->shuffle < 0 || d->shuffle > 1)
        return dlpi_order_bad(err, "buckets.shuffle", d->shuffle, "0 or 1");
    if (d->last < DLP_LAST_PARTIAL || d->last > DLP_LAST_DROP)
        return dlpi_order_bad(err, "buckets.last", d->last, "DLP_LAST_PARTIAL or DLP_LAST_DROP");
    if (d->order && (d->order->order == DLP_ORDER_BATCHES || d->order->order == DLP_ORDER_PARTS))
        return DLPI_ORDER_FAULT(err, "buckets.order", "order is %s",
                                d->order->order == DLP_ORDER_BATCHES
                                    ? "DLP_ORDER_BATCHES, which has no positions to sort"
                                    : "DLP_ORDER_PARTS, which only a part queue knows");
    if (d->order && d->seed != 0)
        return dlpi_order_bad(err, "buckets.seed", (int64_t)d->seed,
                              "0 with order; set order's seed");
    return d->order ? dlpi_order_check(d->order, d->n_items, err) : DLP_OK;
}

/* Set the defaults of the desc, and compute the positions and windows of an epoch. Returns 0, or a
   DLP_ERR code with *err filled if the epoch has no position. */
static int dlpi_buckets_resolve(dlp_buckets *b, dlp_error *err) {
    dlp_buckets_desc *d = &b->d;
    uint64_t unit, window, samples;
    if (d->order)
        b->base = *d->order;
    else
        b->base.order = d->shuffle ? DLP_ORDER_SHUFFLED : DLP_ORDER_SEQUENTIAL;
    if (!d->order) b->base.seed = d->seed;
    if (d->divisible_by == 0) d->divisible_by = 1;
    unit = d->max_tokens ? d->divisible_by : d->batch_size;
    window = d->window ? d->window : UINT64_C(100) * d->batch_size;
    if (window > DLPI_BUCKETS_WINDOW) window = DLPI_BUCKETS_WINDOW;
    d->window = (uint32_t)((window + unit - 1) / unit * unit);
    samples = dlpi_order_samples(&b->base, d->n_items);
    b->positions = d->last == DLP_LAST_DROP ? samples - samples % unit : samples;
    b->windows = (b->positions + d->window - 1) / d->window;
    b->longest = d->max_tokens ? d->max_tokens / d->divisible_by : UINT32_MAX;
    if (b->positions > 0) return DLP_OK;
    return DLPI_ORDER_FAULT(
        err, "buckets.last",
        "DLP_LAST_DROP leaves nothing of %" PRIu64 " samples: a batch has %" PRIu64, samples, unit);
}

/* Check that no item is too long, and hash all lengths into *hash, four lanes at once. Returns 0,
   or -1 with the reason in b->why. */
static int dlpi_buckets_scan(dlp_buckets *b, uint64_t *hash) {
    uint64_t lane[4] = {1, 2, 3, 4};
    *hash = b->d.lengths_id;
    if (!b->d.lengths) return 0;
    for (uint64_t i = 0; i < b->d.n_items; i++) {
        uint32_t length = b->d.lengths[i];
        if (length > b->longest) return dlpi_buckets_too_long(b, i, length);
        lane[i & 3] = dlpi_absorb(lane[i & 3], length);
    }
    *hash = dlp_hash(lane[0], lane[1], lane[2], lane[3]);
    return 0;
}

/* Compute the hash of all that the batches follow from. A state fits only buckets with its hash.
   lengths: hash of the items' lengths. */
static void dlpi_buckets_id(dlp_buckets *b, uint64_t lengths) {
    const dlp_buckets_desc *d = &b->d;
    const uint64_t drops = d->last == DLP_LAST_DROP; /* 0 and DLP_LAST_PARTIAL are the same */
    const uint64_t words[] = {lengths,         d->batch_size,
                              d->window,       d->max_tokens,
                              d->divisible_by, (uint64_t)d->shuffle,
                              drops,           (uint64_t)b->base.order,
                              b->base.seed,    dlpi_order_params_hash(&b->base, d->n_items)};
    b->id = dlpi_order_hash_array(dlpi_hash_in(DLPI_DOMAIN_BUCKETS, 0, 0), words,
                                  sizeof words / sizeof *words);
}

/* Allocate all arrays (have), or free them (!have). Returns false if there is no memory. */
static bool dlpi_buckets_blocks(dlp_buckets *b, bool have) {
    const uint64_t n = UINT64_C(8) * b->d.window;
    const dlpi_block all[] = {
        {offsetof(dlp_buckets, now.index), n},
        {offsetof(dlp_buckets, now.key), n},
        {offsetof(dlp_buckets, ahead.index), n},
        {offsetof(dlp_buckets, ahead.key), n},
        {offsetof(dlp_buckets, scratch), n},
        {offsetof(dlp_buckets, cut), (b->d.window + UINT64_C(1)) * sizeof *b->cut},
        {offsetof(dlp_buckets, table), have ? dlpi_order_table_bytes(&b->base, b->d.n_items) : 0},
    };
    return dlpi_blocks_keep(b, all, sizeof all / sizeof *all, have);
}

DLPI_COLD DLPDEF int dlp_buckets_open(dlp_buckets **out, const dlp_buckets_desc *desc,
                                      dlp_error *err) {
    dlp_buckets *b;
    uint64_t lengths;
    int rc;
    if (!out || !desc) return DLPI_ORDER_FAULT(err, "buckets", "out or desc is NULL");
    if ((rc = dlpi_buckets_check(desc, err)) != DLP_OK) return rc;
    if ((b = calloc(1, sizeof *b)) == NULL) return dlpi_mix_no_memory(err, "the buckets");
    b->d = *desc;
    rc = dlpi_buckets_resolve(b, err);
    if (rc == DLP_OK && dlpi_buckets_scan(b, &lengths) != 0)
        rc = DLPI_ORDER_FAULT(err, "buckets.lengths", "%s", b->why);
    if (rc == DLP_OK && !dlpi_buckets_blocks(b, true)) rc = dlpi_mix_no_memory(err, "the windows");
    if (rc != DLP_OK) {
        dlp_buckets_close(b);
        return rc;
    }
    dlpi_buckets_id(b, lengths);
    dlpi_order_build(&b->base, b->d.n_items, b->table);
    dlpi_order_init(&b->order, &b->base, b->d.n_items, b->table);
    *out = b;
    return DLP_OK;
}

DLPI_COLD DLPDEF int dlp_buckets_sampler(dlp_buckets *b, dlp_sampler_desc *to) {
    if (!b || !to) return DLP_ERR_ARG;
    dlpi_mix_clear(to);
    to->order = DLP_ORDER_BATCHES;
    to->batches.next = dlpi_buckets_next;
    to->batches.begin = dlpi_buckets_begin;
    to->batches.save = dlpi_buckets_save;
    to->batches.restore = dlpi_buckets_restore;
    to->batches.why = dlpi_buckets_why;
    to->batches.user = b;
    to->function_id = b->id;
    to->seed = b->d.seed;
    return DLP_OK;
}

DLPI_COLD DLPDEF void dlp_buckets_close(dlp_buckets *b) {
    if (!b) return;
    dlpi_buckets_blocks(b, false);
    free(b);
}
