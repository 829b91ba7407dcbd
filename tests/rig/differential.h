/* A configuration of a pipe, drawn at random from all that the headers offer, made legal, and told
   in words. Features are lines of one table: what a run counts, and what shrinking leaves out. */
#ifndef DIFFERENTIAL_H
#define DIFFERENTIAL_H

enum { K_ITEMS, K_STREAM, K_PARTS, K_CHUNKS };
enum {
    O_SEQUENTIAL,
    O_SHUFFLED,
    O_REPLACEMENT,
    O_WEIGHTED,
    O_FUNCTION,
    O_LISTS,
    O_MIX,
    O_BUCKETS,
    ORDERS
};
enum { S_FETCH, S_MAP0, S_MAP1, S_BATCH, S_BMAP0, S_BMAP1, S_PARTS, STAGES_ };
enum { C_NONE, C_PAD, C_PACK, C_OWN };
enum { T_HAND, T_LOADER, T_CLASSIC, T_CONCURRENT };
enum { START_FORK, START_EARLY };
enum { ZIP_LAST, ZIP_FIRST, ZIP_READS }; /* after the maps; before; and it has the scratch */
enum { CRASH_NONE, CRASH_HEALS, CRASH_STAYS };

#define MOST_ITEMS 320
#define MOST_ROWS 640 /* positions of an epoch, padding too */
#define MOST_EPOCHS 3
#define RAGGED_MOST 6

static const char mixed_name[] = "f of mix"; /* the fetch of the other items */
static const char *const stage_names[STAGES_] = {"f", "m0", "m1", "collate", "b0", "b1", "load"};

typedef struct stage_plan {
    int n, procs, dispatch; /* workers, whether they are processes */
    int most;               /* tuned between 1 and this many; 0: not */
} stage_plan;

/* What may differ between the lives of a run. */
typedef struct wiring {
    int topology, start, fetcher, in_flight, batch_pool, prefetch, held, threaded, cache;
    int transfer, late_device, kills_outside, named, device_buffers, cells;
    uint32_t rank, world;
    stage_plan st[STAGES_], join; /* join: of a second dataset, that never fails */
    int join_fetcher;
} wiring;

typedef struct cfg {
    uint64_t seed, drop;
    int kind, order, last, epochs, epoch_end, unordered, uneven, repeats;
    uint32_t batch;
    uint64_t n_items, samples, n_subset, order_seed;
    int ragged, fills, keeps, n_maps, n_bmaps, idem[STAGES_], collate, slow;
    int policy[STAGES_], retries[STAGES_], backoff, max_skips, max_kills;
    int heals, fails, skips, kills, poison, lengths, late; /* kinds of faults that come */
    int all_fail;              /* every item fails for ever, or is skipped, and is left out */
    uint32_t rate, batch_rate; /* one item, batch, in so many */
    int own_replacement, crash, crash_in; /* the sampler's function kills its worker */
    uint64_t crash_epoch, crash_position;
    int lists_save, until, bucket_tokens, bucket_by, bucket_window, bucket_last;
    int n_parts, streams, shuffle_parts, shuffle_items, steps, queue;
    int chunk_rows, shuffle_rows, cpu_buffers, preload, split_by_hand, within;
    int stop_at, seeks, leaves, closes_at, stops_at, holds, polls, looks, tunes, both_fail;
    int share, sharers, serves; /* subscribers */
    int joined;                 /* a second dataset is zipped */
    uint64_t mix_first;         /* items of the first dataset, the rest a join's; 0: there is one */
    int scratch;                /* what fetch reads the first map decodes */
    int zip_at;                 /* ZIP_*: where the second dataset comes */
    int helps;                  /* the consumer helps threads */
    int forever, driven;        /* epochs without end; by dlp_chunks_run */
    int life;
    wiring w[2];
} cfg;

#define LIVES(statement) \
    for (int l = 0; l < 2; l++) { \
        wiring *w = &c->w[l]; \
        (void)w; \
        statement; \
    }
#define STAGES(statement) LIVES(for (int s = 0; s < STAGES_; s++) { statement; })

static inline int any_stage(const cfg *c, int what) { /* 0 inline, 1 threads, 2 processes */
    for (int l = 0; l < (c->stop_at ? 2 : 1); l++)
        for (int s = 0; s < STAGES_; s++) {
            const stage_plan *p = &c->w[l].st[s];
            if (s == S_PARTS && c->kind != K_PARTS) continue;
            if ((s == S_MAP0 || s == S_MAP1) && s - S_MAP0 >= c->n_maps) continue;
            if ((s == S_BMAP0 || s == S_BMAP1) && s - S_BMAP0 >= c->n_bmaps) continue;
            if (s == S_BATCH && c->collate == C_NONE) continue;
            if ((p->n == 0 ? 0 : 1 + p->procs) == what) return 1;
        }
    return 0;
}
static inline int any_life(const cfg *c, int (*is)(const wiring *)) {
    return is(&c->w[0]) || (c->stop_at && is(&c->w[1]));
}
#define LIFE_IS(name, test) \
    static inline int name(const wiring *w) { return test; }
LIFE_IS(life_by_loader, w->topology == T_LOADER)
LIFE_IS(life_classic, w->topology == T_CLASSIC)
LIFE_IS(life_concurrent, w->topology == T_CONCURRENT)
LIFE_IS(life_early, w->start == START_EARLY)
LIFE_IS(life_fetch_threads, w->fetcher == DLP_FETCH_THREADS)
LIFE_IS(life_fetch_async, w->fetcher == DLP_FETCH_ASYNC)
LIFE_IS(life_pool, w->batch_pool > 0)
LIFE_IS(life_cache, w->cache > 0)
LIFE_IS(life_transfer, w->transfer > 0)
LIFE_IS(life_kills, w->kills_outside > 0)
LIFE_IS(life_named, w->named)
LIFE_IS(life_threaded, w->threaded)
LIFE_IS(life_ranks, w->world > 1)
LIFE_IS(life_in_turn, w->st[0].dispatch == DLP_DISPATCH_BATCHES)
static inline int life_tuned(const wiring *w) {
    int n = 0;
    for (int s = 0; s < STAGES_; s++) n += w->st[s].most > 0;
    return n > 0;
}

/* id, words, whether a configuration has it, how it is taken out */
#define FEATURES(X) \
    X(STREAM, "stream", c->kind == K_STREAM, c->kind = K_ITEMS) \
    X(PARTS, "part queue", c->kind == K_PARTS, c->kind = K_ITEMS) \
    X(CHUNKS, "chunks, split", c->kind == K_CHUNKS, c->kind = K_ITEMS) \
    X(WITHIN, "batches within chunks", c->kind == K_CHUNKS && c->within, c->within = 0) \
    X(SPLIT, "split stage by hand", c->kind == K_CHUNKS && c->split_by_hand, c->split_by_hand = 0) \
    X(LOADER, "by dlp_loader_open, economic", any_life(c, life_by_loader), \
      LIVES(w->topology = T_HAND)) \
    X(CLASSIC, "classic", any_life(c, life_classic), LIVES(w->topology = T_HAND)) \
    X(CONCURRENT, "concurrent", any_life(c, life_concurrent), LIVES(w->topology = T_HAND)) \
    X(POOL, "batch pool", any_life(c, life_pool), LIVES(w->batch_pool = 0)) \
    X(PROCESSES, "processes", any_stage(c, 2), STAGES(w->st[s].procs = 0)) \
    X(THREADS, "threads", any_stage(c, 1), STAGES(if (!w->st[s].procs) w->st[s].n = 0)) \
    X(INLINE, "a stage inline", any_stage(c, 0), (void)0) \
    X(EARLY, "early fork", any_life(c, life_early), LIVES(w->start = START_FORK)) \
    X(NAMED, "named pipe", any_life(c, life_named), LIVES(w->named = 0)) \
    X(FETCH_THREADS, "fetcher of threads", any_life(c, life_fetch_threads), LIVES(w->fetcher = 0)) \
    X(FETCH_ASYNC, "asynchronous fetcher", any_life(c, life_fetch_async), LIVES(w->fetcher = 0)) \
    X(IN_TURN, "batches in turn", any_life(c, life_in_turn), \
      STAGES(if (w->st[s].dispatch == DLP_DISPATCH_BATCHES) w->st[s].dispatch = 0)) \
    X(TUNED, "workers added and retired", any_life(c, life_tuned), STAGES(w->st[s].most = 0)) \
    X(THREADED, "sampler in a thread", any_life(c, life_threaded), LIVES(w->threaded = 0)) \
    X(SHUFFLED, "order shuffled", c->order == O_SHUFFLED, c->order = O_SEQUENTIAL) \
    X(REPLACEMENT, "order with replacement", c->order == O_REPLACEMENT, c->order = O_SEQUENTIAL) \
    X(WEIGHTED, "order weighted", c->order == O_WEIGHTED, c->order = O_SEQUENTIAL) \
    X(FUNCTION, "order of a function", c->order == O_FUNCTION, c->order = O_SEQUENTIAL) \
    X(OWN_REPLACEMENT, "own replacement", c->own_replacement, c->own_replacement = 0) \
    X(LISTS, "batch sampler", c->order == O_LISTS, c->order = O_SEQUENTIAL) \
    X(MIX, "mix", c->order == O_MIX, c->order = O_SEQUENTIAL) \
    X(BUCKETS, "buckets", c->order == O_BUCKETS, c->order = O_SEQUENTIAL) \
    X(SUBSET, "subset", c->n_subset > 0, c->n_subset = 0) \
    X(SAMPLES, "samples_per_epoch", c->samples > 0, c->samples = 0) \
    X(EPOCHS, "epochs", c->epochs > 1, c->epochs = 1) \
    X(FOREVER, "epochs for ever", c->forever, c->forever = 0) \
    X(DRIVEN, "driven by dlp_chunks_run", c->driven, c->driven = 0) \
    X(EPOCH_END, "DLP_EPOCH_END", c->epoch_end, c->epoch_end = 0) \
    X(DROP, "last dropped", c->last == DLP_LAST_DROP, c->last = 0) \
    X(PAD, "last padded", c->last == DLP_LAST_PAD, c->last = 0) \
    X(RANKS, "ranks", any_life(c, life_ranks), LIVES(w->rank = w->world = 0)) \
    X(UNEVEN, "uneven ranks", c->uneven &&any_life(c, life_ranks), c->uneven = 0) \
    X(UNORDERED, "unordered", c->unordered, c->unordered = 0) \
    X(RAGGED, "ragged field", c->ragged, c->ragged = 0) \
    X(FILLS, "writes_all_bytes", c->fills, c->fills = 0) \
    X(HELPS, "the consumer helps", c->helps, c->helps = 0) \
    X(CACHE, "cache", any_life(c, life_cache), LIVES(w->cache = 0)) \
    X(JOIN, "zipped with another dataset", c->joined, c->joined = 0) \
    X(JOIN_FIRST, "zipped before the maps", c->joined && c->zip_at == ZIP_FIRST, \
      c->zip_at = ZIP_LAST) \
    X(JOIN_SCRATCH, "scratch fields of a zip", c->joined && c->zip_at == ZIP_READS, \
      c->zip_at = ZIP_FIRST) \
    X(JOIN_MIX, "mixed with another dataset", c->mix_first > 0, c->mix_first = 0) \
    X(SCRATCH, "scratch fields", c->scratch, c->scratch = 0) \
    X(MAPS, "item maps", c->n_maps > 0, c->n_maps = 0) \
    X(IDEMPOTENT, "idempotent item map", c->n_maps > 0 && c->idem[S_MAP0], \
      c->idem[S_MAP0] = c->idem[S_MAP1] = 0) \
    X(COLLATE_PAD, "collate: pad", c->collate == C_PAD, c->collate = 0) \
    X(COLLATE_PACK, "collate: pack", c->collate == C_PACK, c->collate = 0) \
    X(COLLATE_OWN, "collate: own", c->collate == C_OWN, c->collate = 0) \
    X(BMAPS, "batch maps", c->n_bmaps > 0, c->n_bmaps = 0) \
    X(BIDEMPOTENT, "idempotent batch map", c->n_bmaps > 0 && c->idem[S_BMAP0], \
      c->idem[S_BMAP0] = c->idem[S_BMAP1] = 0) \
    X(TRANSFER, "transfer", any_life(c, life_transfer), LIVES(w->transfer = 0)) \
    X(HEALS, "retries that heal", c->heals, c->heals = 0) \
    X(FAILS, "items that fail", c->fails, c->fails = 0) \
    X(ALL_FAIL, "all items left out", c->all_fail, c->all_fail = 0) \
    X(SKIPS, "items left by DLP_SKIP", c->skips, c->skips = 0) \
    X(LENGTHS, "wrong lengths", c->lengths, c->lengths = 0) \
    X(BOTH_FAIL, "items that fail in two stages", \
      c->both_fail && c->n_maps > 0 && (c->heals || c->kills), c->both_fail = 0) \
    X(BATCH_FAILS, "batches that fail", c->batch_rate > 0, c->batch_rate = 0) \
    X(BACKOFF, "back-off", c->backoff > 0, c->backoff = 0) \
    X(BUDGET, "max_skips", c->max_skips > 0, c->max_skips = 0) \
    X(ON_REPLACE, "policy: replace", \
      c->rate && (c->policy[0] == 1 || c->policy[1] == 1 || c->policy[2] == 1), \
      for (int s = 0; s < STAGES_; s++) if (c->policy[s] == 1) c->policy[s] = 2) \
    X(ON_SHORT, "policy: left out", \
      c->rate && (c->policy[0] == 2 || c->policy[1] == 2 || c->policy[2] == 2), (void)0) \
    X(KILLS, "callbacks that kill their process", c->kills, c->kills = 0) \
    X(POISON, "items that always do", c->poison, c->poison = 0) \
    X(LATE, "items past their deadline", c->late, c->late = 0) \
    X(CRASH, "sampler's function crashes", c->crash, c->crash = 0) \
    X(OUTSIDE, "workers killed from outside", any_life(c, life_kills), \
      LIVES(w->kills_outside = 0)) \
    X(RESUME, "resumed with other wiring", c->stop_at > 0, c->stop_at = 0) \
    X(SEEKS, "seeks", c->seeks > 0, c->seeks = 0) \
    X(LEAVES, "next_epoch", c->leaves > 0, c->leaves = 0) \
    X(CLOSES, "closed early", c->closes_at > 0, c->closes_at = 0) \
    X(STOPS, "stopped", c->stops_at > 0, c->stops_at = 0) \
    X(SHARE_EACH, "subscribers that get each batch", c->share == DLP_SHARE_EACH, c->share = 0) \
    X(SHARE_ONE, "subscribers that share batches", c->share == DLP_SHARE_ONE, c->share = 0) \
    X(SERVES, "serve_only", c->serves, c->serves = 0) \
    X(HOLDS, "batches held", c->holds, c->holds = 0; LIVES(w->held = 1)) \
    X(POLLS, "short time-outs", c->polls, c->polls = 0) \
    X(LOOKS, "statistics read", c->looks, c->looks = 0) \
    X(SLOW, "items that take time", c->slow, c->slow = 0)

enum {
#define X(id, text, has, out) F_##id,
    FEATURES(X)
#undef X
        FEATURES_N
};
_Static_assert(FEATURES_N <= 128, "features fit in two words");

static const char *const feature_text[] = {
#define X(id, text, has, out) text,
    FEATURES(X)
#undef X
};
#define X(id, text, has, out) \
    static inline int has_##id(const cfg *c) { return has; } \
    static inline void out_##id(cfg *c) { \
        (void)c; \
        out; \
    }
FEATURES(X)
#undef X
static int (*const feature_has[])(const cfg *) = {
#define X(id, text, has, out) has_##id,
    FEATURES(X)
#undef X
};
static void (*const feature_out[])(cfg *) = {
#define X(id, text, has, out) out_##id,
    FEATURES(X)
#undef X
};

/* ---- drawn ---- */

typedef struct dice {
    uint64_t state;
} dice;

static inline uint32_t roll(dice *d, uint32_t n) { return test_pick(&d->state, n); }
static inline int one_in(dice *d, uint32_t n) { return roll(d, n) == 0; }
static inline int between(dice *d, int low, int high) {
    return low + (int)roll(d, (uint32_t)(high - low + 1));
}

static inline void draw_stage(dice *d, stage_plan *p) {
    p->n = one_in(d, 4) ? 0 : between(d, 1, 3);
    p->procs = one_in(d, 2);
    p->dispatch = one_in(d, 5) ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    p->most = one_in(d, 8) ? p->n + between(d, 0, 2) : 0;
}

static inline void draw_wiring(dice *d, wiring *w) {
    static const uint32_t worlds[] = {1, 1, 1, 2, 2, 3, 4};
    memset(w, 0, sizeof *w);
    w->topology = between(d, 0, 4) % 4;
    w->start = one_in(d, 3) ? START_EARLY : START_FORK;
    w->fetcher = one_in(d, 3) ? between(d, 1, 2) : 0;
    w->in_flight = one_in(d, 3) ? 0 : between(d, 1, 9);
    w->batch_pool = one_in(d, 2) ? between(d, 1, 60) : 0;
    w->prefetch = one_in(d, 4) ? 0 : between(d, 1, 6);
    w->held = between(d, 1, 4);
    w->threaded = one_in(d, 4);
    w->cache = one_in(d, 2) ? between(d, 1, 200) : 0;
    w->transfer = one_in(d, 5) ? between(d, 1, 2) : 0;
    w->late_device = one_in(d, 2);
    w->device_buffers = between(d, 0, 2);
    w->kills_outside = one_in(d, 5) ? between(d, 1, 4) : 0;
    w->named = one_in(d, 10);
    w->world = worlds[roll(d, 7)];
    w->rank = roll(d, w->world);
    for (int s = 0; s < STAGES_; s++) draw_stage(d, &w->st[s]);
    if (one_in(d, 4)) /* all threads, or inline */
        for (int s = 0; s < STAGES_; s++) w->st[s].procs = 0;
}

static inline void draw_faults(dice *d, cfg *c) {
    int mode = between(d, 0, 5);
    c->rate = (uint32_t)between(d, 4, 60);
    c->heals = mode >= 2 && one_in(d, 2);
    c->fails = mode >= 4 && !one_in(d, 3);
    c->skips = mode >= 3 && one_in(d, 2);
    c->lengths = mode >= 4 && one_in(d, 4);
    c->kills = mode >= 2 && one_in(d, 3);
    c->poison = mode >= 4 && one_in(d, 4);
    c->late = one_in(d, 50);
    c->batch_rate = one_in(d, 4) ? (uint32_t)between(d, 2, 20) : 0;
    for (int s = 0; s < STAGES_; s++) {
        c->policy[s] = s > S_MAP1 && s != S_PARTS ? 0 : one_in(d, 6) ? 0 : between(d, 1, 2);
        c->retries[s] = one_in(d, 3) ? 0 : between(d, 1, 4);
        c->idem[s] = one_in(d, 2);
    }
    if (c->policy[S_PARTS] == DLP_ON_ERROR_REPLACE) c->policy[S_PARTS] = DLP_ON_ERROR_DROP;
    c->backoff = one_in(d, 3);
    c->max_skips = one_in(d, 8) ? between(d, 1, 40) : 0;
    c->max_kills = between(d, 2, 4);
    c->both_fail = one_in(d, 2);
    c->crash = one_in(d, 3) ? between(d, 1, 2) : 0;
    c->crash_in = one_in(d, 2);
    c->crash_epoch = roll(d, MOST_EPOCHS);
    c->crash_position = roll(d, MOST_ITEMS);
    c->own_replacement = one_in(d, 2);
}

/* Much goes wrong at once: rows are replaced, then left out, and go through the stages again. */
static inline void draw_storm(dice *d, cfg *c) {
    c->n_maps = between(d, 1, 2);
    c->n_bmaps = between(d, 1, 2);
    c->rate = (uint32_t)between(d, 2, 6);
    c->batch_rate = (uint32_t)between(d, 1, 3);
    c->heals = c->fails = c->skips = 1;
    c->kills = one_in(d, 2);
    c->max_skips = 0;
    for (int s = 0; s <= S_MAP1; s++) c->policy[s] = between(d, 1, 2);
    for (int s = 0; s < STAGES_; s++) c->retries[s] = between(d, 1, 4);
    c->idem[S_BMAP0] = one_in(d, 4);
}

static inline void draw_sizes(dice *d, cfg *c) {
    static const uint32_t most[] = {6, 40, 120, MOST_ITEMS};
    static const uint32_t rows[] = {1, 4, 12, 32, 70};
    uint32_t n = most[roll(d, 4)], b = rows[roll(d, 5)];
    c->n_items = 1 + roll(d, n);
    c->batch = 1 + roll(d, b);
    c->order_seed = roll(d, 1000);
    c->samples = one_in(d, 3) ? 1 + roll(d, n) : 0;
    c->n_subset = one_in(d, 5) ? 1 + roll(d, (uint32_t)c->n_items) : 0;
    c->epochs = between(d, 1, MOST_EPOCHS);
    c->repeats = c->epochs > 1 || one_in(d, 2);
    c->epoch_end = one_in(d, 3);
    c->last = one_in(d, 2) ? 0 : between(d, 0, 2);
    c->uneven = one_in(d, 2);
    c->unordered = one_in(d, 4);
    c->lists_save = one_in(d, 2);
    c->until = between(d, 0, 2);
    c->bucket_tokens = one_in(d, 2) ? between(d, 7, 60) : 0;
    c->bucket_by = one_in(d, 3) ? between(d, 2, 4) : 1;
    c->bucket_window = one_in(d, 2) ? 0 : between(d, 1, 90);
    c->bucket_last = one_in(d, 3);
    c->n_parts = between(d, 1, 12);
    c->streams = between(d, 1, 4);
    c->shuffle_parts = one_in(d, 2);
    c->shuffle_items = one_in(d, 2);
    c->steps = one_in(d, 4) ? between(d, 1, 9) : 0;
    c->queue = one_in(d, 2) ? 40 : 0;
    c->chunk_rows = between(d, 1, 60);
    c->shuffle_rows = one_in(d, 2);
    c->cpu_buffers = one_in(d, 2) ? between(d, 4, 6) : 0;
    c->preload = one_in(d, 4) ? between(d, 1, 2) : 0;
    c->split_by_hand = one_in(d, 3);
    c->within = one_in(d, 3);
}

static inline void draw_script(dice *d, cfg *c) {
    c->ragged = one_in(d, 2);
    c->fills = one_in(d, 2);
    c->n_maps = one_in(d, 2) ? between(d, 1, 2) : 0;
    c->n_bmaps = one_in(d, 3) ? between(d, 1, 2) : 0;
    c->collate = one_in(d, 2) ? between(d, 1, 3) : 0;
    c->slow = one_in(d, 3);
    c->stop_at = one_in(d, 4) ? between(d, 1, 20) : 0;
    c->seeks = one_in(d, 6) ? between(d, 1, 4) : 0;
    c->leaves = one_in(d, 8) ? between(d, 1, 2) : 0;
    c->closes_at = one_in(d, 12) ? between(d, 1, 20) : 0;
    c->stops_at = one_in(d, 20) ? between(d, 1, 20) : 0;
    c->holds = one_in(d, 2);
    c->polls = one_in(d, 3);
    c->looks = one_in(d, 5);
    c->tunes = one_in(d, 2);
    c->share = one_in(d, 14) ? between(d, 1, 2) : 0;
    c->sharers = between(d, 1, 2);
    c->serves = one_in(d, 2);
    c->forever = one_in(d, 12);
    c->driven = one_in(d, 12);
}

/* ---- made legal ---- */

static inline void legal_order(cfg *c) {
    int drawn = c->order == O_REPLACEMENT || c->order == O_WEIGHTED || c->order == O_FUNCTION;
    if (c->kind == K_STREAM || c->kind == K_PARTS) c->order = O_SEQUENTIAL;
    if (c->kind == K_CHUNKS && c->order > O_SHUFFLED) c->order = O_SHUFFLED;
    if (c->kind != K_ITEMS) c->n_subset = c->samples = 0;
    if (!drawn && c->order != O_MIX) c->samples = 0;
    if (c->order >= O_LISTS) c->n_subset = 0;
    if (c->order == O_LISTS || c->order == O_BUCKETS) c->last = DLP_LAST_PARTIAL;
    if (c->order != O_FUNCTION) c->crash = c->own_replacement = 0;
    c->bucket_by =
        c->order == O_BUCKETS && c->batch % (uint32_t)c->bucket_by == 0 ? c->bucket_by : 1;
    if (c->bucket_tokens && c->bucket_tokens < c->bucket_by * RAGGED_MOST)
        c->bucket_tokens = c->bucket_by * RAGGED_MOST;
    if (c->n_parts > (int)c->n_items) c->n_parts = (int)c->n_items;
    if (c->batch % (uint32_t)c->streams != 0) c->streams = 1;
    if (c->n_items < (uint64_t)c->streams || c->kind != K_PARTS) c->steps = 0;
    if ((uint64_t)c->steps * c->batch > MOST_ITEMS) c->steps = 1;
}

/* An epoch has a batch, whatever the rule for its last. */
static inline void legal_last(cfg *c, uint64_t positions) {
    if (c->last == DLP_LAST_DROP && positions < c->batch) c->last = DLP_LAST_PARTIAL;
    if (c->order == O_BUCKETS) {
        uint64_t unit = c->bucket_tokens ? (uint64_t)c->bucket_by : c->batch;
        if (positions < unit) c->bucket_last = 0;
    }
    if (c->kind == K_STREAM && c->last == DLP_LAST_PAD) c->last = DLP_LAST_PARTIAL;
    if (c->kind == K_CHUNKS && c->last == DLP_LAST_PAD) c->last = DLP_LAST_DROP;
    if (c->kind == K_CHUNKS && c->preload && (c->last || any_life(c, life_ranks))) c->within = 1;
    if (c->kind == K_CHUNKS && c->within && c->batch > (uint32_t)c->chunk_rows)
        c->batch = (uint32_t)c->chunk_rows;
    if (c->kind == K_CHUNKS && c->last == DLP_LAST_DROP && c->n_items < c->batch) c->last = 0;
}

static inline void legal_faults(cfg *c) {
    if (c->kind == K_STREAM)
        for (int s = 0; s < STAGES_; s++)
            if (c->policy[s] == DLP_ON_ERROR_REPLACE) c->policy[s] = DLP_ON_ERROR_DROP;
    if (c->kind == K_CHUNKS && c->preload) c->policy[S_FETCH] = DLP_ON_ERROR_RAISE;
    if (!any_stage(c, 2) || c->kind == K_CHUNKS) c->late = 0;
    if (c->n_items < 30 || c->rate < 10) c->poison = 0; /* each replacement would kill, too */
    if (c->late) c->rate = 80, c->kills = c->poison = 0;
    if (!any_stage(c, 2)) c->kills = c->poison = c->crash = 0;
    if (!c->ragged) c->lengths = 0;
    if (c->crash) c->kills = c->poison = c->late = c->leaves = c->seeks = c->stop_at = 0;
    if (!(c->heals | c->fails | c->skips | c->lengths | c->kills | c->poison | c->late))
        c->rate = 0;
    if (c->rate == 0 || !c->fails) c->max_skips = 0;
    if (c->max_skips)
        c->seeks = c->leaves = c->stop_at = c->kills = c->poison = c->late = c->closes_at =
            c->stops_at = 0;
    LIVES(if (c->max_skips || c->kills || c->poison || c->crash || c->late) w->kills_outside = 0)
    LIVES(if (!any_stage(c, 2)) w->kills_outside = 0)
}

static inline void legal_chunks(cfg *c) {
    if (c->kind != K_CHUNKS) return;
    c->collate = c->n_maps = c->n_bmaps = c->ragged = c->unordered = 0;
    c->max_skips = c->lengths = 0;
    LIVES(w->topology = T_HAND; w->fetcher = 0; w->cache = 0; w->threaded = 0; w->st[S_BATCH].n = 0)
    if (c->split_by_hand) c->shuffle_rows = c->preload = 0;
    LIVES(if (c->split_by_hand) w->world = w->rank = 0)
    LIVES(if (w->st[S_FETCH].dispatch == DLP_DISPATCH_BATCHES) w->st[S_FETCH].dispatch = 0)
    if (c->preload) c->shuffle_rows = 0;
    if (c->preload == DLP_PRELOAD_DEVICE) LIVES(if (w->transfer == 0) w->transfer = 1)
}

/* Consumers in other processes want workers everywhere, and an order that goes on. */
static inline void legal_share(cfg *c) {
    if (c->kind != K_ITEMS && c->kind != K_PARTS) c->share = 0;
    if (!c->share) c->sharers = c->serves = 0;
    if (!c->share) return;
    if (c->share == DLP_SHARE_ONE) c->serves = 1;
    c->unordered = c->stop_at = c->seeks = c->leaves = c->closes_at = c->stops_at = 0;
    c->fails = c->poison = c->lengths = c->crash = c->max_skips = c->late = 0;
    if (c->serves) c->holds = c->polls = c->looks = c->tunes = c->epoch_end = 0;
    for (int s = 0; s < STAGES_; s++) /* nobody is to run out of replacements */
        if (c->policy[s] == DLP_ON_ERROR_REPLACE) c->policy[s] = DLP_ON_ERROR_DROP;
    STAGES(if (w->st[s].n == 0) w->st[s].n = 1)
    LIVES(w->transfer = c->serves ? 0 : w->transfer; w->named = 1; w->threaded = 1; w->held = 4;
          if (w->prefetch < 2) w->prefetch = 2)
}

/* Ready-made openers take what they can say. */
static inline void legal_topology(cfg *c, wiring *w) {
    if (c->n_maps || c->n_bmaps || c->joined || c->mix_first) w->topology = T_HAND;
    if (w->topology >= T_CLASSIC && w->st[S_FETCH].n == 0) w->topology = T_LOADER;
    if (w->topology == T_CLASSIC) w->fetcher = 0;
    if (w->st[S_FETCH].n == 0) w->fetcher = 0;
    if (w->topology >= T_CLASSIC) w->st[S_FETCH].dispatch = DLP_DISPATCH_BATCHES;
    if (w->st[S_FETCH].dispatch == DLP_DISPATCH_BATCHES) w->st[S_FETCH].most = 0;
    if (w->topology != T_CONCURRENT || w->fetcher == 0) w->batch_pool = 0;
    if (w->topology != T_HAND) w->st[S_BATCH].procs = 0;
    if (w->topology == T_HAND && c->kind == K_ITEMS && !c->repeats) c->epochs = 1;
}

static inline void legal_wiring(cfg *c, wiring *w) {
    int procs = 0;
    legal_topology(c, w);
    if (w->join.n == 0) w->join_fetcher = w->join.procs = 0;
    if (c->joined && c->share && w->join.n == 0) w->join.n = 1;
    if (c->joined) procs += w->join.procs;
    for (int s = 0; s < STAGES_; s++) {
        stage_plan *p = &w->st[s];
        if (s == S_BATCH && c->collate == C_NONE) p->n = 0;
        if (p->n == 0) p->procs = p->most = 0;
        if (s == S_PARTS) p->dispatch = p->most = 0;
        if (s == S_BATCH && (c->collate == C_NONE || w->topology != T_HAND)) p->most = 0;
        if (p->dispatch == DLP_DISPATCH_BATCHES) p->most = 0;
        procs += p->procs;
    }
    if (procs == 0) w->start = START_FORK;
    if (w->fetcher && c->kind == K_CHUNKS) w->fetcher = 0;
    if (!c->keeps || c->kind == K_STREAM) w->cache = 0;
    if (w->world == 0) w->world = 1;
    if (c->kind == K_PARTS && c->streams % (int)w->world != 0 && !c->uneven) w->world = 1;
    if (c->batch % w->world != 0 && !c->uneven) w->world = 1;
    if (c->kind == K_STREAM && c->batch < w->world) w->world = 1;
    if (c->kind == K_STREAM && c->last > DLP_LAST_DEFAULT) w->world = 1;
    if (w->rank >= w->world) w->rank = w->world - 1;
}

static inline void legal_all_fail(cfg *c) {
    if (c->share || c->serves || c->preload) c->all_fail = 0;
    if (!c->all_fail) return;
    c->rate = 1;
    c->fails = 1;
    c->heals = c->kills = c->poison = c->lengths = c->late = c->crash = c->max_skips = 0;
    c->batch_rate = 0;
    for (int s = 0; s <= S_MAP1; s++) c->policy[s] = DLP_ON_ERROR_DROP;
    LIVES(w->kills_outside = 0)
}

static inline void legal(cfg *c) {
    uint64_t positions;
    if (c->n_subset > c->n_items) c->n_subset = c->n_items;
    if (c->kind == K_STREAM) c->unordered = 0;
    if (!c->repeats) c->epochs = 1, c->epoch_end = 0;
    legal_order(c);
    legal_chunks(c);
    legal_share(c);
    legal_all_fail(c);
    if (c->n_maps == 0 || c->kind == K_CHUNKS) c->scratch = 0;
    if (c->kind != K_ITEMS || c->collate != C_NONE) c->joined = 0;
    if (!c->joined) c->zip_at = ZIP_LAST;
    if (!c->scratch && c->zip_at == ZIP_READS) c->zip_at = ZIP_FIRST;
    if (c->scratch && c->zip_at != ZIP_READS) LIVES(w->cache = 0)
    if (c->kind != K_ITEMS || c->mix_first >= c->n_items) c->mix_first = 0;
    positions = c->samples ? c->samples : c->n_subset ? c->n_subset : c->n_items;
    if (c->steps) positions = (uint64_t)c->steps * c->batch;
    legal_last(c, positions);
    c->keeps = c->w[0].cache > 0 || c->w[1].cache > 0;
    LIVES(legal_wiring(c, w))
    if (!c->repeats || c->share || (c->kind == K_STREAM && any_life(c, life_ranks))) c->forever = 0;
    if (c->forever || c->share) c->driven = 0;
    if (c->driven) c->seeks = c->leaves = c->closes_at = c->stops_at = c->stop_at = 0;
    legal_faults(c);
    c->crash_position %= positions;
    c->crash_epoch %= (uint64_t)c->epochs;
    LIVES(if (c->batch_rate && w->topology != T_HAND) c->batch_rate = 0)
}

static inline void draw(cfg *c, uint64_t seed, const uint64_t *drop, int processes) {
    dice d = {dlp_hash(seed, 0xd1ff, 1, 1)};
    static const int kinds[] = {K_ITEMS,  K_ITEMS, K_ITEMS, K_ITEMS, K_ITEMS,
                                K_STREAM, K_PARTS, K_PARTS, K_CHUNKS};
    memset(c, 0, sizeof *c);
    c->seed = seed;
    c->kind = kinds[roll(&d, 9)];
    c->order = (int)roll(&d, ORDERS);
    draw_sizes(&d, c);
    draw_script(&d, c);
    draw_faults(&d, c);
    LIVES(draw_wiring(&d, w))
    if (one_in(&d, 10)) draw_storm(&d, c);
    c->joined = one_in(&d, 2);
    LIVES(w->join = ((stage_plan){between(&d, 0, 4), processes && one_in(&d, 3), 0, 0});
          w->join_fetcher = between(&d, 0, 1))
    c->mix_first = one_in(&d, 3) ? 1 + roll(&d, (uint32_t)c->n_items) : 0;
    c->scratch = one_in(&d, 2);
    LIVES(w->cells = one_in(&d, 2) ? 0 : between(&d, 1, 9))
    c->zip_at = between(&d, ZIP_LAST, ZIP_READS);
    c->all_fail = one_in(&d, 40);
    c->helps = one_in(&d, 2);
    if (!processes) c->share = 0;
    if (!processes) STAGES(w->st[s].procs = 0)
    legal(c);
    for (int i = 0; i < FEATURES_N; i++)
        if (drop[i / 64] >> i % 64 & 1) feature_out[i](c);
    legal(c);
}

static inline void describe(const cfg *c, char *to, size_t size) {
    size_t at =
        (size_t)snprintf(to, size, "%d items, batches of %d:", (int)c->n_items, (int)c->batch);
    for (int i = 0; i < FEATURES_N && at < size; i++)
        if (feature_has[i](c)) at += (size_t)snprintf(to + at, size - at, " %s;", feature_text[i]);
}

#endif
