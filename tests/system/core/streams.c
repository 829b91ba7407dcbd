/* Streams: datasets whose length nobody knows. And seeks: a running pipe that goes on at another
   place of its order. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/digest.h"

#define EPOCHS 4
#define ROWS 4u /* of a batch */

typedef struct source { /* of a stream */
    uint64_t length[EPOCHS];
    uint64_t highest;                /* index that was asked for */
    uint64_t place;                  /* of a source that can only be read on */
    uint64_t fails_at, fails_behind; /* index + 1, 0: never */
    uint64_t waits_at;               /* index + 1: until the one behind the end has failed */
    int skips;                       /* every third item is left out */
    int tries;                       /* every fifth item succeeds the third time only */
    int failed;
} source;

static void highest_note(source *s, uint64_t index) {
    uint64_t was = __atomic_load_n(&s->highest, __ATOMIC_RELAXED);
    while (was < index && !__atomic_compare_exchange_n(&s->highest, &was, index, 0,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

static int source_fetch(void *user, dlp_item *it) {
    source *s = user;
    uint64_t length = s->length[it->epoch % EPOCHS];
    highest_note(s, it->index);
    if (it->index + 1 == s->waits_at)
        while (__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE) == 0) test_pause(2000000);
    if (it->index + 1 == s->fails_at)
        return dlp_fail(it->call, 5, "item %d is broken", (int)it->index);
    if (it->index >= length && s->fails_behind > 0 && it->index > length) {
        if (it->index + 1 == s->fails_behind) __atomic_store_n(&s->failed, 1, __ATOMIC_RELEASE);
        return dlp_fail(it->call, 6, "there is nothing");
    }
    if (it->index >= length) return DLP_END;
    if (s->skips && it->index % 3 == 2) return DLP_SKIP;
    if (s->tries && it->index % 5 == 1 && it->attempt < 2) return dlp_fail(it->call, 7, "not yet");
    return rig_fetch(user, it);
}

static void stream_init(rig *r, source *s, uint64_t length) {
    rig_init(r, length, ROWS); /* the rig reads n_items, the pipe does not */
    memset(s, 0, sizeof *s);
    for (int e = 0; e < EPOCHS; e++) s->length[e] = length;
    r->dataset.open_end = 1;
    r->dataset.fetch = source_fetch;
    r->dataset.user = s;
    r->pipe.epochs = 2;
}

/* What fails behind the end uses up nothing of max_skips; what fails before it does. */
static int budget_fetch(void *user, dlp_item *it) {
    if (it->index == 50) return DLP_END;
    if (it->index > 50) return dlp_fail(it->call, 6, "there is nothing");
    if (it->index == 7 && it->epoch > 1) return dlp_fail(it->call, 5, "it is broken");
    return rig_fetch(user, it);
}

static void budget__fails_behind_the_end__not_counted(void) {
    for (int workers = 0; workers < 4; workers++) {
        rig r;
        source s;
        dlp_pipe *p;
        dlp_batch *b;
        uint64_t rows = 0;
        int rc;
        stream_init(&r, &s, 50);
        rig_workers(&r, workers, 0);
        r.dataset.fetch = budget_fetch;
        r.fetch.on_error = DLP_ON_ERROR_DROP;
        r.fetch.max_skips = 2;
        r.batch.batch_size = 10;
        r.pipe.epochs = 9;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            for (uint32_t i = 0; i < b->count; i++) rows += b->valid == NULL || b->valid[i];
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        /* of epochs 2 and 3 one each; the first batch of epoch 4 has one too many */
        CHECK(rc == DLP_ERR_BUDGET && rows == 2 * 50 + 2 * 49);
        CHECK(dlp_pipe_error(p)->index == 7 && dlp_pipe_error(p)->epoch == 4);
        CHECK(dlp_pipe_error(p)->errnum == 5 && strcmp(dlp_pipe_error(p)->stage, "fetch") == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

enum {
    PLAIN,
    COLLATE,
    ITEM_MAP,
    BATCH_MAP,
    TRANSFER,
    TRANSFER_THREAD,
    BATCH_WORKERS,
    IN_TURN,
    KINDS
};

static void stream_kind(rig *r, int workers, int kind) {
    rig_workers(r, workers, kind == IN_TURN);
    r->batch.collate =
        kind == COLLATE || kind == IN_TURN || kind == BATCH_WORKERS ? dlp_collate_pad : NULL;
    r->n_item_maps = kind == ITEM_MAP || kind == IN_TURN;
    r->n_batch_maps = kind == BATCH_MAP;
    r->n_transfers = kind == TRANSFER || kind == TRANSFER_THREAD;
    r->transfer.workers.num_workers = kind == TRANSFER_THREAD;
    r->batch_by.num_workers = kind == BATCH_WORKERS && workers > 0 ? 2 : 0;
    r->pipe.prefetch_factor = 3;
}

/* All of a stream, two epochs of one length, against the same with a length. */
static int take_stream(rig *r, dlp_pipe *p, uint64_t length) {
    dlp_batch *b;
    uint64_t full = length / ROWS, rest = length % ROWS, n = full + (rest > 0);
    int ok = 1, rc = DLP_OK;
    if (r->batch.last == DLP_LAST_DROP) n = full;
    for (uint64_t e = 0; e < 2; e++) {
        for (uint64_t k = 0; k < n; k++) {
            rc = dlp_pipe_next_timeout(p, &b, 20000);
            if (rc != DLP_OK) break;
            ok &= rig_batch_same(r, b, e, k);
            ok &= b->flags == (k == full ? DLP_BATCH_LAST : 0);
            ok &= dlp_pipe_release(p, b) == DLP_OK;
        }
        ok &= rc == DLP_OK && dlp_pipe_next_timeout(p, &b, 20000) == DLP_EPOCH_END;
    }
    ok &= dlp_pipe_next_timeout(p, &b, 20000) == DLP_END &&
          dlp_pipe_next_timeout(p, &b, 20000) == DLP_END;
    return ok;
}

static void streams__every_length__as_with_a_length(void) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int w = 0; w < 6; w++)
            for (uint64_t length = 0; length <= 2 * ROWS + 1; length++) {
                rig r;
                source s;
                dlp_pipe *p;
                int ok;
                if (test_share(8, 8) < 8 && (length + (uint64_t)w) % 3 != 0) continue;
                stream_init(&r, &s, length);
                stream_kind(&r, w % 3 == 2 ? 3 : w % 3, kind);
                r.sampler.threaded = w / 3;
                r.pipe.epoch_end = 1;
                if (rig_open(&r, &p) != DLP_OK) return;
                CHECK(dlp_pipe_batches_per_epoch(p) == -1);
                ok = take_stream(&r, p, length);
                CHECK(ok);
                if (!ok) printf("  kind %d workers %d length %d\n", kind, w, (int)length);
                CHECK(s.highest < length / ROWS * ROWS + 4 * ROWS); /* prefetch_factor behind it */
                CHECK(dlp_pipe_close(p) == DLP_OK);
            }
}

static void streams__last_dropped__whole_batches_only(void) {
    for (int kind = 0; kind < KINDS; kind++)
        for (uint64_t length = 0; length <= 2 * ROWS + 1; length++) {
            rig r;
            source s;
            dlp_pipe *p;
            stream_init(&r, &s, length);
            stream_kind(&r, length % 3 == 2 ? 3 : length % 3 == 1, kind);
            r.batch.last = DLP_LAST_DROP;
            r.pipe.epoch_end = 1;
            if (rig_open(&r, &p) != DLP_OK) return;
            CHECK(take_stream(&r, p, length));
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

static void streams__ranks__each_gives_the_rows_it_has(void) {
    for (uint32_t world = 2; world <= 3; world++)
        for (uint32_t rank = 0; rank < world; rank++)
            for (uint64_t length = 0; length <= 2 * ROWS + 1; length++) {
                rig r;
                source s;
                dlp_pipe *p;
                dlp_batch *b;
                uint64_t from = rank * ROWS / world, to = (rank + 1) * ROWS / world;
                uint64_t base = 0;
                int ended = 0;
                stream_init(&r, &s, length);
                r.pipe.rank = rank;
                r.pipe.world_size = world;
                r.pipe.allow_uneven = 1;
                r.pipe.epochs = 1;
                rig_workers(&r, (int)(length % 3), 0);
                if (rig_open(&r, &p) != DLP_OK) return;
                for (; !ended; base += ROWS) {
                    uint64_t n = 0;
                    while (n < to - from && base + from + n < length) n++;
                    ended = n < to - from;
                    if (n == 0) break;
                    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
                    CHECK(b->count == n && b->valid_count == n && b->index[0] == base + from);
                    CHECK(b->flags == (ended ? DLP_BATCH_LAST : 0));
                    CHECK(dlp_pipe_release(p, b) == DLP_OK);
                }
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
                CHECK(dlp_pipe_close(p) == DLP_OK);
            }
}

/* A source without a way back: fetch sees its indices rise one by one. */
static int forward_fetch(void *user, dlp_item *it) {
    source *s = user;
    if (it->index == 0) s->place = 0; /* a new epoch */
    if (it->index != s->place && s->place < s->length[0])
        return dlp_fail(it->call, 0, "%d instead of %d", (int)it->index, (int)s->place);
    if (it->index >= s->length[0]) return DLP_END;
    s->place++;
    return rig_fetch(user, it);
}

static void streams__one_worker__indices_in_order(void) {
    for (uint64_t length = 0; length < 40; length++) {
        rig r;
        source s;
        dlp_pipe *p;
        stream_init(&r, &s, length);
        r.dataset.fetch = forward_fetch;
        stream_kind(&r, length % 3 > 0, PLAIN);
        r.sampler.threaded = length % 3 == 2;
        r.pipe.epoch_end = 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(take_stream(&r, p, length));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void streams__left_in_the_middle__next_epoch_whole(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        rig r;
        source s;
        dlp_pipe *p;
        dlp_batch *b;
        stream_init(&r, &s, 3 * ROWS + 1);
        stream_kind(&r, kind % 3, kind);
        for (uint64_t stop = 1; stop <= 3; stop++) {
            if (rig_open(&r, &p) != DLP_OK) return;
            for (uint64_t k = 0; k < stop; k++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && rig_batch_same(&r, b, 0, k));
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
            for (uint64_t k = 0; k < 4; k++) {
                CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && rig_batch_same(&r, b, 1, k));
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
    }
}

/* ---- failures ---- */

static void streams__failures_behind_the_end__did_not_happen(void) {
    for (int kind = 0; kind < KINDS; kind++)
        for (uint64_t length = 0; length <= 2 * ROWS + 1; length++) {
            rig r;
            source s;
            dlp_pipe *p;
            stream_init(&r, &s, length);
            stream_kind(&r, length % 3 == 2 ? 3 : length % 3 == 1, kind);
            s.fails_behind = UINT64_MAX; /* all of them */
            r.pipe.epoch_end = 1;
            if (rig_open(&r, &p) != DLP_OK) return;
            CHECK(take_stream(&r, p, length));
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

static void streams__failure_before_the_end__raised(void) {
    for (int lost = 0; lost < 2; lost++) {
        rig r;
        source s;
        dlp_pipe *p;
        dlp_batch *b;
        const dlp_error *e;
        stream_init(&r, &s, 6);
        s.fails_at = 6; /* index 5; 6 is the end; 7 fails, too, before it if `lost` */
        s.fails_behind = 8;
        s.waits_at = lost ? 6 : 0;
        stream_kind(&r, lost ? 4 : 1, PLAIN);
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && rig_batch_same(&r, b, 0, 0));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
        e = dlp_pipe_error(p);
        CHECK(e->has_item && e->index == 5 && e->position == 5 && strcmp(e->stage, "fetch") == 0);
        /* lost: what failed behind the end has most likely written its words first */
        CHECK(e->errnum == 5 || (lost && strstr(e->message, "lost") != NULL));
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void streams__left_out_and_retried__as_with_a_length(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        rig r;
        source s;
        dlp_pipe *p;
        dlp_batch *b;
        stream_init(&r, &s, 3 * ROWS + 2);
        stream_kind(&r, kind % 3, kind);
        s.skips = s.tries = 1;
        r.fetch.retries = 2;
        r.fetch.retry_backoff_ms = kind & 1;
        r.pipe.epochs = 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (uint64_t k = 0; k < 4; k++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->count == (k < 3 ? ROWS : 2));
            for (uint32_t i = 0; i < b->count; i++) {
                CHECK(b->valid[i] == (b->index[i] % 3 != 2));
                CHECK(!b->valid[i] || kind == BATCH_MAP || rig_row_same(&r, b, i, k * ROWS + i));
            }
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void refused(rig *r, const char *field, int code) {
    dlp_pipe *p;
    dlp_error e;
    CHECK(rig_try(r, &p, &e) == code && strcmp(e.field, field) == 0);
    if (strcmp(e.field, field) != 0) printf("  %s: %s\n", e.field, e.message);
}

static void refuse_cache(rig *r) {
    dlp_loader_desc d;
    dlp_pipe *p;
    dlp_error e;
    memset(&d, 0, sizeof d);
    d.dataset = r->dataset;
    d.dataset.n_items = 0;
    d.batch_size = ROWS;
    d.cache.bytes = 1 << 20;
    CHECK(dlp_loader_open(&p, &d, &e) == DLP_ERR_GRAPH && strcmp(e.stage, "cache") == 0);
}

static void streams__what_needs_a_length__refused(void) {
    static const uint64_t subset[1] = {0};
    rig r, fresh;
    source s;
    dlp_pipe *p;
    dlp_batch *b;
    stream_init(&fresh, &s, 3);
    r = fresh, r.batch.last = DLP_LAST_PAD, refused(&r, "last", DLP_ERR_ARG);
    r = fresh, r.batch.last = DLP_LAST_DROP, r.pipe.world_size = 2;
    refused(&r, "last", DLP_ERR_ARG);
    r = fresh, r.sampler.order = DLP_ORDER_SHUFFLED, refused(&r, "order", DLP_ERR_ARG);
    r = fresh, r.sampler.subset = subset, r.sampler.n_subset = 1;
    refused(&r, "subset", DLP_ERR_ARG);
    r = fresh, r.pipe.unordered = 1, refused(&r, "unordered", DLP_ERR_ARG);
    r = fresh, r.pipe.world_size = 5, r.pipe.allow_uneven = 1;
    refused(&r, "batch_size", DLP_ERR_ARG);
    r = fresh, r.fetch.on_error = DLP_ON_ERROR_REPLACE, refused(&r, "on_error", DLP_ERR_ARG);
    r = fresh, r.n_item_maps = 1, r.item_map[0].workers.on_error = DLP_ON_ERROR_REPLACE;
    refused(&r, "on_error", DLP_ERR_ARG);
    refuse_cache(&fresh);
    r = fresh, r.dataset.open_end = 2, refused(&r, "list.open_end", DLP_ERR_ARG);
    r = fresh, r.dataset.open_end = 0, r.pipe.epochs = 1; /* with a length END is a failure */
    r.dataset.n_items = 8;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK && dlp_pipe_error(p)->index == 3);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    stream_init(&r, &s, 0);
    r.pipe.epochs = DLP_FOREVER;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "no item") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- resume and seek: what a run is, batch for batch ---- */

#define RUN_MAX 64

static int seen_same(const seen *a, const seen *b) { return memcmp(a, b, sizeof *a) == 0; }

/* A run to its end. states[n]: the one behind n batches. Returns the number. */
static int run_whole(rig *r, seen *out, dlp_state *states) {
    dlp_pipe *p;
    dlp_batch *b;
    int n = 0, rc;
    if (rig_open(r, &p) != DLP_OK) return 0;
    if (states) CHECK(dlp_pipe_state_at(p, 0, 0, &states[0]) == DLP_OK);
    while (n < RUN_MAX && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        out[n++] = seen_of(b);
        if (states) CHECK(dlp_pipe_state(p, b, &states[n]) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return n;
}

/* Streams of 9, 8, 0, 5 items. */
static void uneven_init(rig *r, source *s) {
    stream_init(r, s, 9);
    s->length[1] = 8;
    s->length[2] = 0;
    s->length[3] = 5;
    r->pipe.epochs = EPOCHS;
}

static void streams__resumed_at_any_batch__rest_is_the_same(void) {
    static seen whole[RUN_MAX], rest[RUN_MAX];
    static dlp_state states[RUN_MAX + 1];
    for (int kind = 0; kind < KINDS; kind++) {
        rig r;
        source s;
        int n;
        uneven_init(&r, &s);
        stream_kind(&r, kind % 3, kind);
        r.sampler.threaded = kind & 1;
        n = run_whole(&r, whole, states);
        CHECK(n == 7);
        for (int from = 0; from <= n; from++) {
            rig again = r;
            again.pipe.resume = &states[from];
            CHECK(run_whole(&again, rest, NULL) == n - from);
            for (int i = from; i < n; i++) CHECK(seen_same(&whole[i], &rest[i - from]));
        }
    }
}

/* ---- a batch sampler that knows where it is by what it saved alone ---- */

#define LISTS 5u

typedef struct lists {
    uint64_t epoch, at, walk;
    int broken;   /* restore fails */
    int fails_at; /* list + 1 that can't be had, 0: none */
} lists;

static int64_t lists_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    lists *l = user;
    uint64_t count = l->at == LISTS ? 0 : 1 + (l->at * 5 + epoch) % max;
    CHECK(epoch == l->epoch);
    if (l->at + 1 == (uint64_t)l->fails_at) return -9;
    for (uint64_t i = 0; i < count; i++) index[i] = (l->walk = l->walk * 5 + 3) % 22;
    l->at += count > 0;
    return (int64_t)count;
}

static int lists_begin(void *user, uint64_t epoch) {
    lists *l = user;
    l->epoch = epoch;
    l->at = 0;
    l->walk = epoch * 17;
    return 0;
}

static int lists_save(void *user, void *bytes) {
    memcpy(bytes, user, sizeof(lists));
    return (int)sizeof(lists);
}

static int lists_restore(void *user, const void *bytes, size_t n) {
    if (((lists *)user)->broken) return -5;
    CHECK(n == sizeof(lists));
    memcpy(user, bytes, sizeof(lists));
    return 0;
}

enum { OF_STREAM, OF_SHUFFLE, OF_LISTS, OF_LISTS_REPLAYED, ORDERS };

static void order_init(rig *r, source *s, lists *l, int order) {
    memset(l, 0, sizeof *l);
    uneven_init(r, s);
    if (order == OF_STREAM) return;
    rig_init(r, 22, ROWS);
    r->pipe.epochs = 2;
    rig_order(r, order == OF_SHUFFLE ? DLP_ORDER_SHUFFLED : DLP_ORDER_BATCHES);
    if (order == OF_SHUFFLE) return;
    r->sampler.batches.next = lists_next;
    r->sampler.batches.begin = lists_begin;
    r->sampler.batches.save = order == OF_LISTS ? lists_save : NULL;
    r->sampler.batches.restore = order == OF_LISTS ? lists_restore : NULL;
    r->sampler.batches.user = l;
}

/* Take up to n batches, from the at-th of the run on; keeps the last one if held is given. */
static int take_from(dlp_pipe *p, const seen *whole, int all, int at, int n, dlp_batch **held) {
    int ok = 1;
    for (int i = 0; i < n; i++, at++) {
        dlp_batch *b;
        int rc = dlp_pipe_next_timeout(p, &b, 20000);
        if (at >= all) return ok && rc == DLP_END;
        if (rc != DLP_OK) return 0;
        seen got = seen_of(b);
        ok &= seen_same(&got, &whole[at]);
        if (held && i + 1 == n)
            *held = b;
        else
            ok &= dlp_pipe_release(p, b) == DLP_OK;
    }
    return ok;
}

/* One pipe: from every batch to every batch. */
static void seek_all(rig *r, const seen *whole, const dlp_state *states, int n, int step) {
    dlp_pipe *p;
    int ok = 1;
    r->pipe.max_held = 2;
    if (rig_open(r, &p) != DLP_OK) return;
    for (int from = 0; from <= n; from++)
        for (int to = from % step; to <= n; to += step) {
            dlp_batch *held = NULL;
            dlp_state now;
            seen kept;
            ok &= dlp_pipe_seek(p, &states[from], NULL) == DLP_OK;
            ok &= take_from(p, whole, n, from, (from + to) % 3, (to & 1) ? &held : NULL);
            if (held) kept = seen_of(held);
            ok &= dlp_pipe_seek(p, &states[to], NULL) == DLP_OK;
            ok &= dlp_pipe_state(p, NULL, &now) == DLP_OK;
            ok &= memcmp(&now, &states[to], sizeof now) == 0;
            ok &= take_from(p, whole, n, to, 1 + (from + to) % 3, NULL);
            if (held) {
                seen after = seen_of(held);
                ok &= seen_same(&kept, &after);
                ok &= dlp_pipe_state(p, held, &now) == DLP_OK;
                ok &= dlp_pipe_release(p, held) == DLP_OK;
            }
        }
    CHECK(ok);
    ok = dlp_pipe_seek(p, &states[0], NULL) == DLP_OK && take_from(p, whole, n, 0, n + 1, NULL);
    CHECK(ok);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void seek__from_every_batch_to_every_batch__exact(void) {
    static seen whole[RUN_MAX];
    static dlp_state states[RUN_MAX + 1];
    for (int order = 0; order < ORDERS; order++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int threaded = 0; threaded < 2; threaded++) {
                rig r;
                source s;
                lists l;
                int n, before = test_failures;
                order_init(&r, &s, &l, order);
                stream_kind(&r, kind % 3, kind);
                r.sampler.threaded = threaded;
                n = run_whole(&r, whole, states);
                seek_all(&r, whole, states, n, test_share(8, 8) < 8 ? 3 : 1);
                if (test_failures > before)
                    printf("  order %d kind %d threaded %d\n", order, kind, threaded);
            }
}

static void seek__to_a_place_made_up__exact(void) {
    static seen whole[RUN_MAX];
    for (int order = 0; order < ORDERS; order++) {
        rig r;
        source s;
        lists l;
        dlp_pipe *p;
        dlp_state at;
        int n;
        order_init(&r, &s, &l, order);
        stream_kind(&r, 2, PLAIN);
        n = run_whole(&r, whole, NULL);
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int to = n - 1; to >= 0; to--) {
            CHECK(dlp_pipe_state_at(p, whole[to].epoch, whole[to].in_epoch, &at) == DLP_OK);
            CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
            CHECK(take_from(p, whole, n, to, 2, NULL));
        }
        CHECK(dlp_pipe_state_at(p, 77, 0, &at) == DLP_OK); /* past the last epoch */
        CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK && take_from(p, whole, n, n, 1, NULL));
        CHECK(dlp_pipe_state_at(p, UINT64_C(1) << 47, 0, &at) == DLP_ERR_ARG);
        CHECK(dlp_pipe_state_at(p, 0, UINT64_C(1) << 47, &at) == DLP_ERR_ARG);
        CHECK(order != OF_SHUFFLE || dlp_pipe_state_at(p, 0, 6, &at) == DLP_ERR_ARG);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Seeks at any moment, several in a row, epochs left in between, items of any length. */
static int slow_fetch(void *user, dlp_item *it) {
    if (it->index % 7 == 3) {
        struct timespec t = {0, 200000};
        nanosleep(&t, NULL);
    }
    return source_fetch(user, it);
}

static void seek__at_any_moment__exact(void) {
    static seen whole[RUN_MAX];
    static dlp_state states[RUN_MAX + 1];
    uint64_t random = 5;
    for (int round = 0; round < 8; round++) {
        rig r;
        source s;
        lists l;
        dlp_pipe *p;
        int n, at = 0, turns = test_share(200, 4000);
        order_init(&r, &s, &l, round % 2 ? OF_STREAM : OF_LISTS);
        stream_kind(&r, 2, round / 2);
        r.sampler.threaded = 1;
        r.dataset.user = &s;
        r.dataset.fetch = round % 2 ? slow_fetch : rig_fetch;
        n = run_whole(&r, whole, states);
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int turn = 0; turn < turns; turn++) {
            uint32_t what = test_pick(&random, 8);
            dlp_batch *b;
            if (what == 0) {
                uint64_t epoch = at > 0 && at < n ? whole[at - 1].epoch : UINT64_MAX;
                CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
                at = at == 0 ? 0 : at; /* the next of another epoch, if its own is begun */
                while (at < n && whole[at].epoch == epoch) at++;
                if (at < n && at > 0) continue;
            }
            if (what < 4) {
                at = (int)test_pick(&random, (uint32_t)n + 1);
                CHECK(dlp_pipe_seek(p, &states[at], NULL) == DLP_OK);
                continue;
            }
            if (what == 4 && dlp_pipe_next_timeout(p, &b, 0) == DLP_OK) {
                seen got = seen_of(b);
                CHECK(at < n && seen_same(&got, &whole[at]));
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
                at++;
                continue;
            }
            if (what == 4) continue;
            if (!take_from(p, whole, n, at, 1, NULL)) {
                CHECK(0);
                break;
            }
            if (at < n) at++;
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int before(const void *a, const void *b) {
    const seen *x = a, *y = b;
    if (x->epoch != y->epoch) return x->epoch < y->epoch ? -1 : 1;
    return x->in_epoch < y->in_epoch ? -1 : x->in_epoch > y->in_epoch;
}

/* Unordered: there and back again; each batch once. */
static void seek__unordered__window_comes_back(void) {
    static seen whole[RUN_MAX], got[RUN_MAX];
    for (int stop = 0; stop <= 20; stop++) {
        rig r;
        source s;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_state here, there;
        int n, k = 0, rc = DLP_OK;
        stream_init(&r, &s, 40); /* its fetch; but a length is known */
        r.dataset.open_end = 0;
        r.dataset.fetch = slow_fetch;
        rig_order(&r, DLP_ORDER_SHUFFLED);
        stream_kind(&r, 3, stop % 2 ? TRANSFER : PLAIN);
        n = run_whole(&r, whole, NULL);
        r.pipe.unordered = 1;
        r.sampler.threaded = stop & 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (; k < stop && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; k++) {
            got[k] = seen_of(b);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(dlp_pipe_state(p, NULL, &here) == DLP_OK);
        CHECK(dlp_pipe_state_at(p, 0, 5, &there) == DLP_OK);
        CHECK(dlp_pipe_seek(p, &there, NULL) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && b->epoch == 0 && b->in_epoch >= 5);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        CHECK(dlp_pipe_seek(p, &here, NULL) == DLP_OK);
        CHECK(dlp_pipe_state(p, NULL, &there) == DLP_OK);
        CHECK(memcmp(&here, &there, sizeof here) == 0);
        for (; k < RUN_MAX && (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK; k++) {
            got[k] = seen_of(b);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_END && k == n);
        qsort(got, (size_t)k, sizeof *got, before);
        for (int i = 0; i < n && i < k; i++)
            CHECK(got[i].epoch == whole[i].epoch && got[i].in_epoch == whole[i].in_epoch);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static void seek__what_does_not_fit__refused_and_goes_on(void) {
    rig r, other;
    source s;
    dlp_pipe *p, *q;
    dlp_batch *b;
    dlp_state state, bad;
    dlp_error e;
    stream_init(&r, &s, 30);
    CHECK(dlp_pipe_seek(NULL, &state, &e) == DLP_ERR_ARG);
    CHECK(dlp_pipe_state_at(NULL, 0, 0, &state) == DLP_ERR_ARG);
    memset(&state, 0, sizeof state);
    if (rig_wire(&r, &p, NULL) != DLP_OK) return;
    CHECK(dlp_pipe_seek(p, &state, &e) == DLP_ERR_STATE);
    CHECK(dlp_pipe_state_at(p, 0, 0, &state) == DLP_ERR_STATE);
    CHECK(dlp_pipe_start(p) == DLP_OK);
    CHECK(dlp_pipe_seek(p, NULL, &e) == DLP_ERR_ARG && strcmp(e.field, "state") == 0);
    CHECK(dlp_pipe_seek(p, &state, &e) == DLP_ERR_CORRUPT && strcmp(e.field, "state") == 0);
    CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_ERR_CORRUPT);
    CHECK(dlp_pipe_state_at(p, 1, 3, &state) == DLP_OK);
    for (size_t i = 0; i < sizeof bad; i++) {
        bad = state;
        bad.bytes[i] ^= 1;
        if (dlp_pipe_seek(p, &bad, &e) == DLP_OK) CHECK(i >= inside_state_bytes());
        CHECK(i >= inside_state_bytes() || e.code == DLP_ERR_CORRUPT);
    }
    other = r;
    other.dataset.open_end = 0;
    other.sampler.seed = 43;
    if (rig_open(&other, &q) != DLP_OK) return;
    CHECK(dlp_pipe_seek(q, &state, &e) == DLP_ERR_RESUME && strcmp(e.field, "n_items") == 0);
    CHECK(dlp_pipe_next_timeout(q, &b, 20000) == DLP_OK && rig_batch_same(&other, b, 0, 0));
    CHECK(dlp_pipe_close(q) == DLP_OK && dlp_pipe_release(q, b) == DLP_OK);
    other = r;
    other.dataset.open_end = 0;
    other.dataset.n_items = UINT64_C(1) << 48; /* as many as a stream has at most */
    if (rig_open(&other, &q) != DLP_OK) return;
    CHECK(dlp_pipe_seek(q, &state, &e) == DLP_ERR_RESUME && strcmp(e.field, "n_items") == 0);
    CHECK(dlp_pipe_close(q) == DLP_OK);
    other = r;
    other.sampler.seed = 43;
    if (rig_open(&other, &q) != DLP_OK) return;
    CHECK(dlp_pipe_seek(q, &state, &e) == DLP_ERR_RESUME && strcmp(e.field, "seed") == 0);
    CHECK(dlp_pipe_close(q) == DLP_OK);
    CHECK(dlp_pipe_error(p)->code == 0);
    CHECK(dlp_pipe_seek(p, &state, &e) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && rig_batch_same(&r, b, 1, 3));
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    for (int i = 0; i < 1 << 14; i++) CHECK(dlp_pipe_seek(p, &state, &e) == DLP_OK);
    CHECK(dlp_pipe_seek(p, &state, &e) == DLP_ERR_STATE);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && rig_batch_same(&r, b, 1, 3));
    CHECK(dlp_pipe_seek(p, &state, &e) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
}

static void seek__sampler_fails_to_restore__the_pipe_says_so(void) {
    for (int threaded = 0; threaded < 2; threaded++) {
        rig r;
        source s;
        lists l;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_state state;
        order_init(&r, &s, &l, OF_LISTS);
        stream_kind(&r, 2, PLAIN);
        r.sampler.threaded = threaded;
        if (rig_open(&r, &p) != DLP_OK) return;
        for (int i = 0; i < 2; i++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK &&
                  dlp_pipe_state(p, b, &state) == DLP_OK);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        while (dlp_pipe_next_timeout(p, &b, 20000) ==
               DLP_OK) /* to the end: the sampler is at rest */
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        l.broken = 1;
        CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
        CHECK(strstr(dlp_pipe_error(p)->message, "restore returned -5") != NULL);
        CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_ERR_CALLBACK);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* A list that can't be had is the pipe's error; batches before it are delivered, but for a seek. */
static void seek__sampler_failed_ahead__the_pipe_says_so(void) {
    rig r;
    source s;
    lists l;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_state state;
    order_init(&r, &s, &l, OF_LISTS);
    stream_kind(&r, 0, PLAIN);
    l.fails_at = 4;
    if (rig_open(&r, &p) != DLP_OK) return;
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && dlp_pipe_state(p, b, &state) == DLP_OK);
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(p)->message, "returned -9") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* ---- work under way ---- */

static int gate_open, gate_calls, gate_waits;

static int gate_fetch(void *user, dlp_item *it) {
    if (it->index < 5 * ROWS) {
        __atomic_add_fetch(&gate_calls, 1, __ATOMIC_SEQ_CST);
        if (it->index == 0) __atomic_store_n(&gate_waits, 1, __ATOMIC_SEQ_CST);
        while (it->index == 0 && __atomic_load_n(&gate_open, __ATOMIC_SEQ_CST) == 0)
            test_pause(500000);
    }
    return rig_fetch(user, it);
}

/* The call that runs is waited for; rows that are not begun never are. */
static void seek__old_place_under_way__dropped(void) {
    for (int kind = 0; kind < 4; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        dlp_state at;
        int calls;
        rig_init(&r, 8 * ROWS, ROWS);
        r.dataset.fetch = gate_fetch;
        stream_kind(&r, 1 + (kind & 1), PLAIN);
        r.pipe.unordered = kind >> 1;
        r.sampler.threaded = kind & 1;
        gate_open = gate_calls = gate_waits = 0;
        if (rig_open(&r, &p) != DLP_OK) return;
        CHECK(dlp_pipe_state_at(p, 0, 5, &at) == DLP_OK);
        for (int i = 0; i < 20000 && __atomic_load_n(&gate_waits, __ATOMIC_SEQ_CST) == 0; i++)
            test_pause(500000);
        CHECK(dlp_pipe_seek(p, &at, NULL) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 30) == DLP_TIMEOUT);
        calls = __atomic_load_n(&gate_calls, __ATOMIC_SEQ_CST);
        CHECK(kind & 1 || calls == 1);
        __atomic_store_n(&gate_open, 1, __ATOMIC_SEQ_CST);
        for (uint64_t k = 5; k < 8; k++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
            CHECK(rig_batch_same(&r, b, 0, r.pipe.unordered ? b->in_epoch : k));
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_END);
        CHECK(__atomic_load_n(&gate_calls, __ATOMIC_SEQ_CST) == calls);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

int main(void) {
    streams__every_length__as_with_a_length();
    streams__last_dropped__whole_batches_only();
    streams__ranks__each_gives_the_rows_it_has();
    streams__one_worker__indices_in_order();
    streams__left_in_the_middle__next_epoch_whole();
    streams__failures_behind_the_end__did_not_happen();
    streams__failure_before_the_end__raised();
    streams__left_out_and_retried__as_with_a_length();
    streams__what_needs_a_length__refused();
    streams__resumed_at_any_batch__rest_is_the_same();
    seek__from_every_batch_to_every_batch__exact();
    seek__to_a_place_made_up__exact();
    seek__at_any_moment__exact();
    seek__unordered__window_comes_back();
    seek__what_does_not_fit__refused_and_goes_on();
    seek__sampler_fails_to_restore__the_pipe_says_so();
    seek__sampler_failed_ahead__the_pipe_says_so();
    seek__old_place_under_way__dropped();
    budget__fails_behind_the_end__not_counted();
    return test_end("streams");
}
