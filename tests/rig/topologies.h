/* One test for all topologies: a topology is a row of a table, which says how to open it and what
   it cannot have. Each is compared with an inline pipe of the same order. */
#ifndef TOPOLOGIES_H
#define TOPOLOGIES_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "digest.h"

enum { FINE, RETRIES, BACKS_OFF, REPLACES, SHORTENS, SKIPS, RAISES, POLICIES };
enum {                 /* flags */
       NO_REPLACE = 1, /* there is no other item for one that fails */
       NO_INLINE = 2,  /* it needs workers; inline it is another */
       KEEPS = 4,      /* what was fetched is fetched once: content is told by the index alone */
       OWN_ORDER = 8,  /* its order is its own: compared with itself inline */
       NO_LOSS = 16,   /* what fails can't be left out */
       NO_SEEK = 32
};

#define ITEMS 50u
#define ROWS 6u /* of a batch */
#define RUN_MAX 64
#define RAISED 27u /* the item that fails under RAISES */
#define CHUNK 14u  /* rows */

typedef struct work { /* what callbacks get as user; does not change while a pipe is there */
    int policy, keeps, slow;
    int stream; /* set by open */
} work;

typedef struct topology {
    const char *name;
    int (*open)(const struct topology *t, work *w, int workers, const dlp_state *resume,
                dlp_pipe **p);
    int flags;
    int dispatch, topology, fetcher; /* as open takes them */
} topology;

static const dlp_field topology_fields[2] = {{"words", DLP_U64, 1, {3}, 0, 0},
                                             {"ragged", DLP_U8, 1, {5}, 1, 0}};

static int placement_; /* of all workers */

/* ---- items ---- */

static int item_fails(const work *w, const dlp_item *it) {
    if (w->policy == FINE) return 0;
    if (w->policy == RAISES)
        return it->index == RAISED ? dlp_fail(it->call, 9, "item %d is bad", (int)it->index) : 0;
    if (it->index % 7 != 3 || (w->policy == BACKS_OFF && it->index % 2)) return 0;
    if (w->policy == SKIPS) return DLP_SKIP;
    if (w->policy == REPLACES || w->policy == SHORTENS || it->attempt < 1 + it->index % 2)
        return dlp_fail(it->call, 5, "item %d fails", (int)it->index);
    return 0;
}

static int item_write(const work *w, dlp_item *it) {
    uint64_t words[3];
    int rc = item_fails(w, it);
    memset(it->data[0], 0xee, sizeof words); /* what a failed item leaves must not be seen */
    if (w->slow > 0 && it->index % 5 == 1) test_pause((uint64_t)w->slow * 1000);
    if (rc != 0) return rc;
    rig_words(it->seed, it->index, w->keeps ? 0 : it->epoch, w->keeps ? 0 : it->position, words);
    memcpy(it->data[0], words, sizeof words);
    it->length[1] = it->index % 6;
    memset(it->data[1], (int)it->index + 1, 5); /* what is behind its length is cleared */
    return 0;
}

static int fetch_item(void *user, dlp_item *it) {
    const work *w = user;
    return w->stream && it->index >= ITEMS ? DLP_END : item_write(w, it);
}

/* The same as an asynchronous source: a few items at a time, in any order. */
#define ROOM 7

typedef struct source {
    dlp_item *item[ROOM];
    int n, calls;
    uint64_t random;
} source;

static int source_init(void *user, int worker, void **state) {
    source *s = calloc(1, sizeof *s);
    DLPI_UNUSED(user);
    if (s == NULL) return -1;
    s->random = (uint64_t)worker + 77;
    *state = s;
    return 0;
}

static void source_exit(void *user, int worker, void *state) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(worker);
    free(state);
}

static int source_submit(void *user, void *state, dlp_item *it) {
    source *s = state;
    if (s->n == ROOM || (s->n > 0 && test_pick(&s->random, 8) == 0)) return DLP_FULL;
    if (test_pick(&s->random, 8) == 0) { /* over at once, if it fails */
        int rc = fetch_item(user, it);
        if (rc != 0) return rc;
    }
    s->item[s->n++] = it;
    return 0;
}

static int source_reap(void *user, void *state, dlp_item **done, int *code, int max,
                       int timeout_ms) {
    source *s = state;
    int n = 0;
    if (s->n > 0 && ++s->calls % 3 == 0 && timeout_ms > 0) return 0; /* nothing came */
    for (; s->n > 0 && n < max && (n == 0 || test_pick(&s->random, 2)); n++) {
        int i = (int)test_pick(&s->random, (uint32_t)s->n);
        done[n] = s->item[i];
        code[n] = fetch_item(user, done[n]);
        s->item[i] = s->item[--s->n];
    }
    return n;
}

static int change_item(void *user, dlp_item *it) {
    uint64_t words[3];
    DLPI_UNUSED(user);
    memcpy(words, it->data[0], sizeof words);
    words[1] = words[1] * 3 + it->index;
    memcpy(it->data[0], words, sizeof words);
    return 0;
}

/* ---- opening ---- */

static void workers_set(dlp_workers_desc *d, const work *w) {
    d->placement = placement_;
    if (w->policy == RETRIES || w->policy == BACKS_OFF) d->retries = 3;
    if (w->policy == BACKS_OFF) d->retry_backoff_ms = 1;
    if (w->policy == REPLACES) d->on_error = DLP_ON_ERROR_REPLACE;
    if (w->policy == SHORTENS || w->policy == SKIPS) d->on_error = DLP_ON_ERROR_DROP;
}

static int open_failed(const topology *t, const dlp_error *e) {
    char text[700];
    dlp_error_format(e, text, sizeof text);
    printf("  %s: open: %s\n", t->name, text);
    return e->code;
}

static void loader_desc(const topology *t, work *w, int workers, const dlp_state *resume,
                        dlp_loader_desc *d) {
    memset(d, 0, sizeof *d);
    d->dataset.n_items = ITEMS;
    d->dataset.fields = topology_fields;
    d->dataset.n_fields = 2;
    d->dataset.fetch = fetch_item;
    w->stream = 0;
    d->dataset.user = w;
    d->batch_size = ROWS;
    d->epochs = 2;
    d->seed = 9;
    d->shuffle = 1;
    d->num_workers = workers;
    d->topology = t->topology;
    d->pipe.resume = resume;
    d->pipe.prefetch_factor = t->topology ? 1 : 3;
    d->pipe.max_held = 2;
    workers_set(&d->workers, w);
    d->workers.dispatch = t->dispatch;
    if (t->fetcher == DLP_FETCH_SEQUENTIAL || workers == 0) return;
    d->fetcher = t->fetcher;
    d->in_flight = 5;
    if (t->topology == DLP_TOPOLOGY_CONCURRENT) d->batch_pool = 2 * ROWS;
    if (t->fetcher != DLP_FETCH_ASYNC) return;
    d->async.submit = source_submit;
    d->async.reap = source_reap;
    d->workers.worker_init = source_init;
    d->workers.worker_exit = source_exit;
}

static int loader_go(const topology *t, const dlp_loader_desc *d, dlp_pipe **p) {
    dlp_error e;
    return dlp_loader_open(p, d, &e) == DLP_OK ? DLP_OK : open_failed(t, &e);
}

static int open_loader(const topology *t, work *w, int workers, const dlp_state *resume,
                       dlp_pipe **p) {
    dlp_loader_desc d;
    loader_desc(t, w, workers, resume, &d);
    return loader_go(t, &d, p);
}

/* Items lie in cells of their own. */
static int open_collated(const topology *t, work *w, int workers, const dlp_state *resume,
                         dlp_pipe **p) {
    dlp_loader_desc d;
    loader_desc(t, w, workers, resume, &d);
    d.collate = dlp_collate_pad;
    return loader_go(t, &d, p);
}

static int open_transferred(const topology *t, work *w, int workers, const dlp_state *resume,
                            dlp_pipe **p) {
    dlp_loader_desc d;
    loader_desc(t, w, workers, resume, &d);
    d.device = dlp_device_host();
    d.transfer_thread = workers > 0;
    return loader_go(t, &d, p);
}

static int open_threaded(const topology *t, work *w, int workers, const dlp_state *resume,
                         dlp_pipe **p) {
    dlp_loader_desc d;
    loader_desc(t, w, workers, resume, &d);
    d.sampler.threaded = 1;
    return loader_go(t, &d, p);
}

static int open_cached(const topology *t, work *w, int workers, const dlp_state *resume,
                       dlp_pipe **p) {
    dlp_loader_desc d;
    loader_desc(t, w, workers, resume, &d);
    d.cache.bytes = 1 << 20;
    return loader_go(t, &d, p);
}

static int open_stream(const topology *t, work *w, int workers, const dlp_state *resume,
                       dlp_pipe **p) {
    dlp_loader_desc d;
    loader_desc(t, w, workers, resume, &d);
    d.shuffle = 0;
    d.dataset.open_end = w->stream = 1;
    d.dataset.n_items = 0;
    return loader_go(t, &d, p);
}

/* Orders that are objects of their own; made by topologies_all. */
static dlp_mix *mix_;
static dlp_buckets *buckets_;

static int open_mixed(const topology *t, work *w, int workers, const dlp_state *resume,
                      dlp_pipe **p) {
    dlp_loader_desc d;
    loader_desc(t, w, workers, resume, &d);
    d.shuffle = 0;
    CHECK(dlp_mix_sampler(mix_, &d.sampler) == DLP_OK);
    return loader_go(t, &d, p);
}

static int open_bucketed(const topology *t, work *w, int workers, const dlp_state *resume,
                         dlp_pipe **p) {
    dlp_loader_desc d;
    loader_desc(t, w, workers, resume, &d);
    d.shuffle = 0;
    d.sampler.threaded = workers > 1;
    CHECK(dlp_buckets_sampler(buckets_, &d.sampler) == DLP_OK);
    return loader_go(t, &d, p);
}

static void orders_open(void) {
    static const uint64_t items[2] = {ITEMS - 20, 20}, weights[2] = {2, 1};
    static uint32_t lengths[ITEMS];
    dlp_mix_desc mix = {.n = 2, .shuffle = 1, .n_items = items, .weights = weights, .seed = 9};
    dlp_buckets_desc buckets = {.n_items = ITEMS,
                                .lengths = lengths,
                                .batch_size = ROWS,
                                .window = 3 * ROWS,
                                .shuffle = 1,
                                .seed = 9};
    for (uint32_t i = 0; i < ITEMS; i++) lengths[i] = 1 + i % 6;
    mix.samples_per_epoch = ITEMS;
    CHECK(dlp_mix_open(&mix_, &mix, NULL) == DLP_OK);
    CHECK(dlp_buckets_open(&buckets_, &buckets, NULL) == DLP_OK);
}

static void orders_close(void) {
    dlp_mix_close(mix_);
    dlp_buckets_close(buckets_);
}

/* With an item map behind the fetch. */
static int open_mapped(const topology *t, work *w, int workers, const dlp_state *resume,
                       dlp_pipe **p) {
    rig_table to = {.n = 0};
    dlp_loader_desc l;
    dlp_source fetch = {.dataset = &l.dataset};
    dlp_error e;
    loader_desc(t, w, workers, resume, &l);
    fetch.workers = l.workers;
    fetch.workers.num_workers = workers;
    l.pipe.epochs = 2;
    table_list(&to, &(dlp_sampler_desc){.order = DLP_ORDER_SHUFFLED, .seed = l.seed});
    table_fetch(&to, &fetch, 0);
    table_row(&to,
              (dlp_node){.verb = DLP_MAP, .map = {.item = change_item}, .workers = fetch.workers});
    table_row(&to, (dlp_node){.verb = DLP_BATCH, .batch = {.batch_size = ROWS}});
    if (dlp_pipe_open(p, to.nodes, to.n, &l.pipe, &e) == DLP_OK) return DLP_OK;
    return open_failed(t, &e);
}

/* ---- chunks: what fails is a chunk ---- */

static int load_chunk(void *user, dlp_chunk *c) {
    const work *w = user;
    if (w->slow > 0) test_pause((uint64_t)w->slow * 1000);
    if (w->policy == RAISES && c->index == RAISED / CHUNK)
        return dlp_fail(c->call, 9, "chunk %d is bad", (int)c->index);
    if (w->policy != FINE && w->policy != RAISES && c->index == 1) {
        if (w->policy == SKIPS) return DLP_SKIP;
        if (w->policy == REPLACES || w->policy == SHORTENS || c->attempt < 2)
            return dlp_fail(c->call, 5, "chunk %d fails", (int)c->index);
    }
    for (uint64_t i = 0; i < c->count; i++) {
        uint64_t words[3], row = dlp_chunk_row(c, i);
        rig_words(c->seed, row, w->keeps ? 0 : c->epoch, w->keeps ? 0 : i, words);
        memcpy((uint8_t *)c->data[0] + i * sizeof words, words, sizeof words);
    }
    return 0;
}

static int chunks_go(const topology *t, work *w, int workers, const dlp_state *resume, int preload,
                     int device, dlp_pipe **p) {
    dlp_chunks_desc d;
    dlp_error e;
    memset(&d, 0, sizeof d);
    d.n_items = ITEMS;
    d.fields = topology_fields;
    d.n_fields = 1;
    d.chunk_rows = CHUNK;
    d.batch_size = ROWS;
    d.shuffle_chunks = 1;
    d.shuffle_rows = preload == DLP_PRELOAD_NONE;
    d.load = load_chunk;
    d.user = w;
    d.workers.num_workers = workers ? workers : DLP_NONE;
    d.preload = preload;
    d.device = device ? dlp_device_host() : NULL;
    d.transfer_inline = device && workers == 0;
    d.epochs = 2;
    d.seed = 9;
    d.pipe.resume = resume;
    d.pipe.max_held = 2;
    workers_set(&d.workers, w);
    return dlp_chunks_open(p, &d, &e) == DLP_OK ? DLP_OK : open_failed(t, &e);
}

static int open_chunks(const topology *t, work *w, int workers, const dlp_state *resume,
                       dlp_pipe **p) {
    return chunks_go(t, w, workers, resume, DLP_PRELOAD_NONE, 0, p);
}

static int open_chunks_device(const topology *t, work *w, int workers, const dlp_state *resume,
                              dlp_pipe **p) {
    return chunks_go(t, w, workers, resume, DLP_PRELOAD_NONE, 1, p);
}

static int open_chunks_kept(const topology *t, work *w, int workers, const dlp_state *resume,
                            dlp_pipe **p) {
    return chunks_go(t, w, workers, resume, DLP_PRELOAD_CPU, 0, p);
}

static int open_chunks_there(const topology *t, work *w, int workers, const dlp_state *resume,
                             dlp_pipe **p) {
    return chunks_go(t, w, workers, resume, DLP_PRELOAD_DEVICE, 1, p);
}

/* ---- parts: fetch sees that it has the right one ---- */

static int load_part(void *user, dlp_part *part) {
    const work *w = user;
    if (w->slow > 0) test_pause((uint64_t)w->slow * 1000);
    memcpy(part->data, &part->index, sizeof part->index);
    part->bytes = sizeof part->index;
    return 0;
}

static int fetch_of_part(void *user, dlp_item *it) {
    uint64_t index;
    memcpy(&index, it->part->data, sizeof index);
    if (it->part->first + it->part->item != it->index || index != it->part->index)
        return dlp_fail(it->call, 99, "another part");
    return item_write(user, it);
}

static int open_parts(const topology *t, work *w, int workers, const dlp_state *resume,
                      dlp_pipe **p) {
    static const uint64_t items[8] = {8, 5, 9, 0, 8, 7, 9, ITEMS - 46};
    dlp_loader_desc d;
    dlp_error e;
    memset(&d, 0, sizeof d);
    loader_desc(t, w, workers, resume, &d);
    d.dataset.fetch = fetch_of_part;
    d.parts.n_parts = 8;
    d.parts.items = items;
    d.parts.max_part_bytes = 64;
    d.pipe.streams = 2;
    d.parts.load = load_part;
    d.parts.user = w;
    d.parts.workers.num_workers = workers ? workers : DLP_NONE;
    d.parts.workers.placement = placement_;
    return dlp_loader_open(p, &d, &e) == DLP_OK ? DLP_OK : open_failed(t, &e);
}

static const topology topologies[] = {
    {"economic", open_loader, 0, DLP_DISPATCH_CLAIM, 0, 0},
    {"economic, in turn", open_loader, 0, DLP_DISPATCH_BATCHES, 0, 0},
    {"economic, threaded sampler", open_threaded, 0, DLP_DISPATCH_CLAIM, 0, 0},
    {"economic, collate", open_collated, OWN_ORDER, DLP_DISPATCH_CLAIM, 0, 0},
    {"economic, transfer", open_transferred, 0, DLP_DISPATCH_CLAIM, 0, 0},
    {"economic, item map", open_mapped, OWN_ORDER, DLP_DISPATCH_CLAIM, 0, 0},
    {"economic, cache", open_cached, KEEPS | OWN_ORDER, DLP_DISPATCH_CLAIM, 0, 0},
    {"economic, mix", open_mixed, OWN_ORDER, DLP_DISPATCH_CLAIM, 0, 0},
    {"economic, buckets", open_bucketed, OWN_ORDER, DLP_DISPATCH_CLAIM, 0, 0},
    {"classic", open_loader, 0, 0, DLP_TOPOLOGY_CLASSIC, 0},
    {"classic, collate", open_collated, OWN_ORDER, 0, DLP_TOPOLOGY_CLASSIC, 0},
    {"economic, threads", open_loader, NO_INLINE, 0, 0, DLP_FETCH_THREADS},
    {"economic, asynchronous", open_loader, NO_INLINE, 0, 0, DLP_FETCH_ASYNC},
    {"concurrent, threads", open_loader, NO_INLINE, 0, DLP_TOPOLOGY_CONCURRENT, DLP_FETCH_THREADS},
    {"concurrent, asynchronous", open_loader, NO_INLINE, 0, DLP_TOPOLOGY_CONCURRENT,
     DLP_FETCH_ASYNC},
    {"stream, asynchronous", open_stream, NO_INLINE | NO_REPLACE | OWN_ORDER, 0, 0,
     DLP_FETCH_ASYNC},
    {"stream, concurrent", open_stream, NO_INLINE | NO_REPLACE | OWN_ORDER, 0,
     DLP_TOPOLOGY_CONCURRENT, DLP_FETCH_THREADS},
    {"stream", open_stream, NO_REPLACE | OWN_ORDER, DLP_DISPATCH_CLAIM, 0, 0},
    {"stream, classic", open_stream, NO_REPLACE | OWN_ORDER, 0, DLP_TOPOLOGY_CLASSIC, 0},
    {"parts", open_parts, OWN_ORDER, 0, 0, 0},
    {"parts, classic", open_parts, OWN_ORDER, 0, DLP_TOPOLOGY_CLASSIC, 0},
    {"parts, threads", open_parts, NO_INLINE | OWN_ORDER, 0, 0, DLP_FETCH_THREADS},
    {"chunks", open_chunks, OWN_ORDER, 0, 0, 0},
    {"chunks, device", open_chunks_device, OWN_ORDER, 0, 0, 0},
    {"chunks that stay", open_chunks_kept, KEEPS | OWN_ORDER | NO_LOSS, 0, 0, 0},
    {"chunks on the device", open_chunks_there, KEEPS | OWN_ORDER | NO_LOSS, 0, 0, 0},
};

#define TOPOLOGIES ((int)(sizeof topologies / sizeof *topologies))

/* ---- what a run was ---- */

typedef struct outcome {
    int n, rc;
    seen batch[RUN_MAX];
    dlp_state state[RUN_MAX + 1]; /* behind n batches */
    uint64_t skips;
    dlp_error err;
} outcome;

/* Take at most `most` batches. */
static void take(dlp_pipe *p, int most, outcome *o) {
    dlp_batch *b;
    o->rc = DLP_OK;
    while (most-- > 0 && o->n < RUN_MAX &&
           (o->rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        o->batch[o->n++] = seen_of(b);
        CHECK(dlp_pipe_state(p, b, &o->state[o->n]) == DLP_OK);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    o->err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_skips(p, NULL, 0, &o->skips) >= 0);
}

static void run(const topology *t, work *w, int workers, const dlp_state *resume, outcome *o) {
    dlp_pipe *p;
    memset(o, 0, sizeof *o);
    w->keeps = (t->flags & KEEPS) != 0;
    o->rc = t->open(t, w, workers, resume, &p);
    CHECK(o->rc == DLP_OK);
    if (o->rc != DLP_OK) return;
    CHECK(dlp_pipe_state(p, NULL, &o->state[0]) == DLP_OK);
    take(p, RUN_MAX, o);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* The inline run that t is compared with. */
static void run_reference(const topology *t, work *w, outcome *o) {
    int placement = placement_;
    placement_ = DLP_PLACE_THREADS;
    run((t->flags & OWN_ORDER) ? t : &topologies[0], w, 0, NULL, o);
    placement_ = placement;
}

static int batches_same(const outcome *a, int from, const outcome *b) {
    if (a->n - from != b->n) return 0;
    return memcmp(a->batch + from, b->batch, (size_t)b->n * sizeof *b->batch) == 0;
}

static int errors_same(const dlp_error *a, const dlp_error *b) {
    return a->code == b->code && a->errnum == b->errnum && a->has_item == b->has_item &&
           a->index == b->index && a->epoch == b->epoch && a->position == b->position &&
           strcmp(a->message, b->message) == 0 && strcmp(a->stage, b->stage) == 0;
}

static int outcome_same(const outcome *a, const outcome *b) {
    return batches_same(a, 0, b) && a->rc == b->rc && errors_same(&a->err, &b->err) &&
           (a->rc != DLP_END || a->skips == b->skips) &&
           memcmp(a->state, b->state, (size_t)(a->n + 1) * sizeof *a->state) == 0;
}

/* ---- the cases ---- */

static int is_short(void) { return getenv("SHORT") != NULL; } /* under a sanitizer */

static outcome reference, got;

/* Batches of the reference's first epoch. */
static int epoch_batches(void) {
    int n = 0;
    while (n < reference.n && reference.batch[n].epoch == 0) n++;
    return n;
}

/* Same bytes, indices, flags, states, skips, and the same error at the same batch. */
static void outcome__every_policy__as_inline(const topology *t, int workers) {
    for (int policy = 0; policy < POLICIES; policy++) {
        work w = {policy, 0, 0, 0}, at_once = {policy == BACKS_OFF ? RETRIES : policy, 0, 0, 0};
        int same;
        if (policy == REPLACES && (t->flags & (NO_REPLACE | NO_LOSS))) continue;
        if ((policy == SHORTENS || policy == SKIPS) && (t->flags & NO_LOSS)) continue;
        if (is_short() && (policy + (int)(t - topologies)) % 2 != 0) continue;
        run_reference(t, &at_once, &reference);
        CHECK(policy == RAISES ? reference.rc == DLP_ERR_CALLBACK && reference.err.errnum == 9
                               : reference.rc == DLP_END && reference.n == 2 * epoch_batches());
        CHECK(policy == RAISES || reference.n > 16);
        CHECK((policy != REPLACES && policy != SHORTENS && policy != SKIPS) || reference.skips > 0);
        run(t, &w, workers, NULL, &got);
        same = outcome_same(&reference, &got);
        CHECK(same);
        if (!same)
            printf("  %s, %d workers, policy %d: rc %d, %d batches; inline %d, %d\n", t->name,
                   workers, policy, got.rc, got.n, reference.rc, reference.n);
    }
}

static void resume__every_batch__rest_is_the_same(const topology *t, int workers) {
    work w = {FINE, 0, 0, 0};
    run_reference(t, &w, &reference);
    for (int k = 0; k <= reference.n; k += is_short() ? 7 : 1) {
        run(t, &w, workers, &reference.state[k], &got);
        CHECK(got.rc == DLP_END && batches_same(&reference, k, &got));
        if (!batches_same(&reference, k, &got))
            printf("  %s, %d workers, resumed behind %d: %d batches\n", t->name, workers, k, got.n);
    }
}

/* One pipe: to any batch, and a few from there. */
static void seek__every_batch__rest_is_the_same(const topology *t, int workers) {
    work w = {FINE, t->flags & KEEPS, 0, 0};
    dlp_pipe *p;
    int ok = 1;
    if (t->flags & NO_SEEK) return;
    run_reference(t, &w, &reference);
    if (t->open(t, &w, workers, NULL, &p) != DLP_OK) return;
    for (int i = 0; i <= reference.n; i++) {
        int k = i * 7 % (reference.n + 1), n = 1 + i % 3;
        memset(&got, 0, sizeof got);
        ok &= dlp_pipe_seek(p, &reference.state[k], NULL) == DLP_OK;
        take(p, n, &got);
        if (n > reference.n - k) n = reference.n - k;
        ok &= got.n == n && memcmp(got.batch, reference.batch + k, (size_t)n * sizeof(seen)) == 0;
    }
    CHECK(ok);
    if (!ok) printf("  %s, %d workers: seek\n", t->name, workers);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void epoch__left_in_the_middle__next_one_whole(const topology *t, int workers) {
    work w = {FINE, t->flags & KEEPS, 0, 0};
    run_reference(t, &w, &reference);
    for (int k = 1; k < epoch_batches(); k += is_short() ? 6 : 3) {
        dlp_pipe *p;
        int same;
        memset(&got, 0, sizeof got);
        if (t->open(t, &w, workers, NULL, &p) != DLP_OK) return;
        take(p, k, &got);
        CHECK(got.n == k && memcmp(got.batch, reference.batch, (size_t)k * sizeof(seen)) == 0);
        CHECK(dlp_pipe_next_epoch(p) == DLP_OK);
        got.n = 0;
        take(p, RUN_MAX, &got);
        same = got.rc == DLP_END && batches_same(&reference, epoch_batches(), &got);
        CHECK(same);
        if (!same)
            printf("  %s, %d workers, left behind %d: rc %d, %d batches\n", t->name, workers, k,
                   got.rc, got.n);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int entries(const char *dir) {
#ifdef _WIN32 /* nothing of it is told there */
    return (void)dir, 0;
#else
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
#endif
}

/* Threads that were joined may be in the kernel's list for a moment more. */
static int threads_become(int n) {
    for (int i = 0; i < 40000 && entries("/proc/self/task") > n; i++) test_pause(500000);
    return entries("/proc/self/task") <= n; /* n may count one that was joined and not yet gone */
}

static void stop__at_any_moment__nothing_left(const topology *t, int workers, uint64_t *random) {
    int threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
    for (int round = 0, tries = 0; round < (is_short() ? 2 : test_share(4, 64)); round++) {
        work w = {FINE, t->flags & KEEPS, 100, 0};
        dlp_pipe *p;
        dlp_batch *held = NULL, *b;
        uint64_t from, ms;
        if (t->open(t, &w, workers, NULL, &p) != DLP_OK) return;
        for (uint32_t i = test_pick(random, 12); i > 0; i--)
            if (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
        if (test_pick(random, 2) && dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) held = b;
        if (test_pick(random, 2)) test_pause(test_pick(random, 1000000));
        if (test_pick(random, 2)) {
            dlp_pipe_stop(p);
            if (!held) CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_STOPPED);
        }
        from = test_now_ns();
        CHECK(dlp_pipe_close(p) == DLP_OK);
        if (held) CHECK(dlp_pipe_release(p, held) == DLP_OK);
        ms = (test_now_ns() - from) / 1000000;
        CHECK(ms <= 1000 || tries < 4);
        if (ms <= 1000) continue;
        printf("  %s, %d workers: close took %d ms\n", t->name, workers, (int)ms);
        if (tries++ < 4) round--; /* others may have had the cores */
    }
    CHECK(threads_become(threads));
    CHECK(entries("/proc/self/fd") == files);
}

static void topologies_all(int workers) {
    uint64_t random = 3;
    orders_open();
    for (int i = 0; i < TOPOLOGIES; i++) {
        const topology *t = &topologies[i];
        int before = test_failures;
        if (workers == 0 && (t->flags & NO_INLINE)) continue;
        outcome__every_policy__as_inline(t, workers);
        resume__every_batch__rest_is_the_same(t, workers);
        seek__every_batch__rest_is_the_same(t, workers);
        epoch__left_in_the_middle__next_one_whole(t, workers);
        stop__at_any_moment__nothing_left(t, workers, &random);
        if (test_failures > before) printf("  above: %s, %d workers\n", t->name, workers);
    }
    orders_close();
}

#endif
