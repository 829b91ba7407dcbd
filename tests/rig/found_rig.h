/* What the tests of parts of unknown count share: parts whose items follow from their number, and
   the order written down by a direct program. Needs pipe_rig.h. */
#ifndef FOUND_RIG_H
#define FOUND_RIG_H

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FOUND_MAX 64      /* parts */
#define FOUND_STREAMS 16  /* at most */
#define FOUND_ITEMS 20000 /* of a stream in an epoch, written down */

typedef struct found_seen { /* in memory that all processes see */
    uint32_t counts[FOUND_MAX];
    uint32_t begun, kill_every; /* n: every n-th load ends its process */
    uint32_t sleep_us;          /* of a load of an even part */
    uint32_t fail_part;         /* part + 1 */
    uint32_t wrong;             /* what fetch saw that it must not */
    uint32_t loads[FOUND_MAX];
} found_seen;

typedef struct found_item {
    uint64_t part, number;
    uint64_t ordinal, used; /* of its part in the stream; items of that up to it */
} found_item;

typedef struct found_rig {
    dlp_loader_desc d;
    dlp_field field;
    found_seen *seen;
} found_rig;

static inline uint64_t found_word(uint64_t part, uint64_t number) {
    return dlp_hash(part, number, 99, 0);
}

static inline int found_load(void *user, dlp_part *part) {
    found_seen *s = user;
    uint64_t *to = part->data;
    uint32_t n = __atomic_add_fetch(&s->begun, 1, __ATOMIC_SEQ_CST), count = s->counts[part->index];
    struct timespec t = {0, (long)s->sleep_us * 1000};
    if (s->sleep_us && part->index % 2 == 0) nanosleep(&t, NULL);
    if (s->kill_every && n % s->kill_every == 0) { /* from life to life other counts, other bytes */
        part->items = n % (uint32_t)(part->capacity / 8 + 1);
        part->bytes = part->items * 8;
        memset(to, (int)n & 255, part->capacity);
        raise(SIGKILL);
    }
    if (s->fail_part == part->index + 1) return dlp_fail(part->call, 5, "torn");
    for (uint32_t i = 0; i < count; i++) to[i] = found_word(part->index, i);
    part->items = count;
    part->bytes = (uint64_t)count * 8;
    __atomic_add_fetch(&s->loads[part->index], 1, __ATOMIC_SEQ_CST);
    return 0;
}

static inline int found_fetch(void *user, dlp_item *it) {
    found_seen *s = user;
    const dlp_part *part = it->part;
    const uint64_t *from = part->data;
    if (part->item >= part->items || part->index != it->index ||
        part->items != s->counts[part->index] || part->bytes != part->items * 8)
        __atomic_add_fetch(&s->wrong, 1, __ATOMIC_SEQ_CST);
    memcpy(it->data[0], &from[part->item], 8);
    return 0;
}

static inline void found_init(found_rig *r, found_seen *seen, uint32_t n, uint32_t most) {
    memset(r, 0, sizeof *r);
    memset(seen, 0, sizeof *seen);
    r->seen = seen;
    for (uint32_t i = 0; i < n; i++) seen->counts[i] = i * 7 % (most + 1);
    r->field.name = "word";
    r->field.dtype = DLP_U64;
    r->d.parts.n_parts = n;
    r->d.parts.max_items = most;
    r->d.parts.max_part_bytes = 8 * (uint64_t)most;
    r->d.parts.load = found_load;
    r->d.parts.user = seen;
    r->d.parts.workers.num_workers = 2;
    r->d.pipe.streams = 1;
    r->d.dataset.fields = &r->field;
    r->d.dataset.n_fields = 1;
    r->d.dataset.fetch = found_fetch;
    r->d.dataset.user = seen;
    r->d.batch_size = 8;
    r->d.num_workers = 2;
    r->d.shuffle = 1;
    r->d.seed = 42;
}

/* ---- the order, written down ---- */

typedef struct found_order {
    uint64_t n[FOUND_STREAMS]; /* items of each stream, passes behind one another */
    found_item at[FOUND_STREAMS][FOUND_ITEMS];
} found_order;

/* What is cut every `window` of n items of stream s, permuted. */
static inline void found_windows(found_item *at, uint64_t n, uint64_t window, uint64_t seed,
                                 uint64_t s, uint64_t epoch) {
    static found_item was[FOUND_ITEMS];
    static dlp_permutation order;
    memcpy(was, at, n * sizeof *at);
    for (uint64_t from = 0; from < n; from += window) {
        uint64_t k = n - from < window ? n - from : window;
        uint64_t h = inside_hash(INSIDE_SHUFFLE_WINDOW, seed, s);
        h = inside_absorb(h, from ? was[from - 1].ordinal : 0);
        h = inside_absorb(h, from ? was[from - 1].used : 0);
        dlp_permutation_init(&order, k, h, epoch);
        for (uint64_t i = 0; i < k; i++) at[from + i] = was[from + dlp_permutation_at(&order, i)];
    }
}

/* The parts of stream s by weights, in their order; returns how many. */
static inline uint64_t found_members(const found_rig *r, uint64_t s, uint64_t *members) {
    static dlp_permutation order;
    uint64_t n = r->d.parts.n_parts, load[FOUND_STREAMS] = {0}, many = 0, owner[FOUND_MAX];
    bool dealt[FOUND_MAX] = {0};
    dlp_permutation_init(&order, n, inside_hash(INSIDE_PARTS, r->d.seed, UINT64_MAX), 0);
    for (uint64_t turn = 0; turn < n; turn++) {
        uint64_t best = UINT64_MAX, most = 0, to = 0;
        for (uint64_t j = 0; j < n; j++) {
            uint64_t part = r->d.shuffle ? dlp_permutation_at(&order, j) : j;
            uint64_t w = r->d.parts.weights[part] ? r->d.parts.weights[part] : 1;
            if (dealt[part] || w <= most) continue;
            best = part;
            most = w;
        }
        for (uint64_t k = 1; k < r->d.pipe.streams; k++)
            if (load[k] < load[to]) to = k;
        load[to] += most;
        dealt[best] = true;
        owner[best] = to;
    }
    for (uint64_t part = 0; part < n; part++)
        if (owner[part] == s) members[many++] = part;
    return many;
}

/* All passes that `want` items of a stream need; 0: one pass. */
static inline void found_stream(const found_rig *r, uint64_t epoch, uint64_t s, uint64_t want,
                                found_order *o) {
    static dlp_permutation parts, items;
    uint64_t c = r->d.pipe.streams, n = r->d.parts.n_parts, seed = r->d.seed;
    bool shuffle = r->d.shuffle != 0;
    uint64_t each = (n - s + c - 1) / c, members[FOUND_MAX];
    bool weighed = r->d.parts.weights != NULL;
    if (weighed) each = found_members(r, s, members);
    o->n[s] = 0;
    for (uint64_t pass = 0; pass == 0 || (o->n[s] < want && pass < 3000); pass++) {
        uint64_t h = inside_hash(INSIDE_PARTS, seed, pass);
        dlp_permutation_init(&parts, weighed ? each : n, weighed ? inside_absorb(h, s) : h, epoch);
        for (uint64_t i = 0; i < each; i++) {
            uint64_t j = weighed ? i : i * c + s, at = shuffle ? dlp_permutation_at(&parts, j) : j;
            uint64_t part = weighed ? members[at] : at;
            uint64_t count = r->seen->fail_part == part + 1 ? 0 : r->seen->counts[part];
            if (count == 0) continue;
            dlp_permutation_init(&items, count,
                                 inside_absorb(inside_hash(INSIDE_PART_ITEMS, seed, part), pass),
                                 epoch);
            for (uint64_t k = 0; k < count; k++) {
                found_item x = {part, shuffle ? dlp_permutation_at(&items, k) : k, pass * each + i,
                                k + 1};
                if (o->n[s] < FOUND_ITEMS) o->at[s][o->n[s]++] = x;
            }
        }
    }
    if (want > 0 && o->n[s] > want) o->n[s] = want;
    if (r->d.parts.window) found_windows(o->at[s], o->n[s], r->d.parts.window, seed, s, epoch);
}

/* Items of a stream that an epoch's steps want; 0: those of one pass. */
static inline uint64_t found_want(const found_rig *r) {
    uint64_t m = r->d.batch_size / r->d.pipe.streams;
    int64_t steps = r->d.pipe.steps_per_epoch;
    return steps == DLP_FOREVER ? FOUND_ITEMS : (uint64_t)steps * m;
}

static inline uint64_t found_batches_of(const found_rig *r, const found_order *o, uint64_t from,
                                        uint64_t to) {
    uint64_t m = r->d.batch_size / r->d.pipe.streams, least = UINT64_MAX, most = 0;
    if (r->d.pipe.steps_per_epoch) return (uint64_t)r->d.pipe.steps_per_epoch;
    for (uint64_t s = from; s < to; s++) {
        if (o->n[s] / m < least) least = o->n[s] / m;
        if ((o->n[s] + m - 1) / m > most) most = (o->n[s] + m - 1) / m;
    }
    return r->d.drop_last == DLP_LAST_DROP ? least : most;
}

/* The order of an epoch; returns its batches, of the present rank. */
static inline uint64_t found_write_down(const found_rig *r, uint64_t epoch, found_order *o) {
    uint64_t c = r->d.pipe.streams;
    uint32_t world = r->d.pipe.world_size ? r->d.pipe.world_size : 1;
    for (uint64_t s = 0; s < c; s++) found_stream(r, epoch, s, found_want(r), o);
    return found_batches_of(r, o, c / world * r->d.pipe.rank, c / world * (r->d.pipe.rank + 1));
}

/* Is b what the order says, of the present rank? */
static inline int found_batch_same(const found_rig *r, const dlp_batch *b, const found_order *o) {
    const uint64_t *words = b->fields[0].data;
    uint64_t c = r->d.pipe.streams, m = r->d.batch_size / c;
    uint32_t world = r->d.pipe.world_size ? r->d.pipe.world_size : 1;
    uint32_t rows = r->d.batch_size / world;
    int ok = 1;
    if (c == 1 && r->d.drop_last <= DLP_LAST_DEFAULT && r->d.pipe.steps_per_epoch == 0 &&
        o->n[0] - b->in_epoch * m < m)
        rows = (uint32_t)(o->n[0] - b->in_epoch * m);
    ok &= b->count == rows;
    for (uint32_t i = 0; ok && i < b->count; i++) {
        uint64_t g = (uint64_t)r->d.pipe.rank * rows + i, s = g / m;
        uint64_t at = b->in_epoch * m + g % m;
        if (at < o->n[s])
            ok &= b->valid[i] == 1 && b->index[i] == o->at[s][at].part &&
                  words[i] == found_word(o->at[s][at].part, o->at[s][at].number);
        else
            ok &= b->valid[i] == 0 && words[i] == 0 && b->index[i] == UINT64_MAX;
        ok &= b->position == b->in_epoch * r->d.batch_size + (uint64_t)r->d.pipe.rank * rows;
    }
    return ok;
}

static inline int found_say(int rc, const dlp_error *err) {
    char text[700];
    dlp_error_format(err, text, sizeof text);
    printf("%s: %s\n", dlp_code_name(rc), text);
    return rc;
}

static inline int found_open(found_rig *r, dlp_pipe **p) {
    dlp_error err;
    int rc = dlp_loader_open(p, &r->d, &err);
    return rc == DLP_OK ? rc : found_say(rc, &err);
}

/* Run to the end, or for so many batches; all are as the order says. states: NULL, or that behind
   each. Returns how many there were, -1: something was not. */
static inline int64_t found_run(found_rig *r, int64_t most, dlp_state *states) {
    static found_order o;
    dlp_pipe *p;
    dlp_batch *b;
    int64_t n = 0;
    uint64_t epoch = UINT64_MAX, batches = 0;
    int rc = DLP_OK, ok = 1;
    if (found_open(r, &p) != DLP_OK) return -1;
    while (n < most && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        if (b->epoch != epoch) batches = found_write_down(r, epoch = b->epoch, &o);
        ok &= found_batch_same(r, b, &o);
        ok &= ((b->flags & DLP_BATCH_LAST) != 0) == (b->in_epoch + 1 == batches);
        if (states) ok &= dlp_pipe_state(p, b, &states[n]) == DLP_OK;
        ok &= dlp_pipe_release(p, b) == DLP_OK;
        n++;
    }
    if (n < most && rc != DLP_END) found_say(rc, dlp_pipe_error(p));
    ok &= (n == most || rc == DLP_END) && r->seen->wrong == 0;
    ok &= dlp_pipe_close(p) == DLP_OK;
    return ok ? n : -1;
}

#endif
