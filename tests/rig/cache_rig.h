/* What the tests of the cache share: a pipe with or without one, whose fetch depends on the index
   alone, run to its end with a digest of all that the caller saw. */
#ifndef CACHE_RIG_H
#define CACHE_RIG_H

#include <errno.h>

#include "digest.h"

typedef struct cache_count { /* in memory that worker processes see, too */
    uint64_t calls, bad_calls, decoded;
    uint8_t tried[256];
} cache_count;

typedef struct cache_case {
    uint64_t bytes; /* of the cache, 0: none */
    int workers, dispatch, placement, ragged, collate, maps, shuffle, order, prefetch;
    int on_error, retries, fail_every, skip, flaky, draws, draw_every;
    int decodes; /* 1: a map in front of the cache; 2: whose work is not of the index alone */
    int64_t epochs;
    uint64_t samples, stop_after, digest;
    const dlp_state *resume;
    cache_count *count;
    /* from cache_descs */
    dlp_field fields[2];
    dlp_dataset dataset;
    dlp_sampler_desc sampler;
    dlp_source fetch;
    dlp_node map, batch;
    uint32_t batch_size;
    uint64_t n_items;
} cache_case;

typedef struct cache_run {
    int rc;
    uint64_t digest, rows, calls, bad_calls;
    dlp_stats s;
    dlp_state state;
    char words[2048];
} cache_run;

static cache_count cache_counts;

static inline void cache_case_init(cache_case *c, uint64_t n_items, uint32_t batch_size) {
    memset(c, 0, sizeof *c);
    c->n_items = n_items;
    c->batch_size = batch_size;
    c->shuffle = 1;
    c->count = &cache_counts;
}

static inline int cache_fetch(void *user, dlp_item *it) {
    const cache_case *c = user;
    uint64_t words[3] = {it->index, it->index * 77 + 5, ~it->index};
    uint32_t label = (uint32_t)it->index;
    bool bad = c->fail_every && it->index % (uint64_t)c->fail_every == 4;
    __atomic_add_fetch(bad ? &c->count->bad_calls : &c->count->calls, 1, __ATOMIC_RELAXED);
    if (bad) return c->skip ? DLP_SKIP : dlp_fail(it->call, EIO, "unreadable");
    if (c->flaky && __atomic_exchange_n(&c->count->tried[it->index], 1, __ATOMIC_RELAXED) == 0)
        return dlp_fail(it->call, EAGAIN, "not yet");
    if (c->draws && (c->draw_every == 0 || it->index % (uint64_t)c->draw_every == 1))
        words[2] = dlp_item_random(it, 7);
    if (c->ragged) it->length[0] = it->index % 4;
    memcpy(it->data[0], words, c->ragged ? it->index % 4 * 8 : sizeof words);
    memcpy(it->data[1], &label, sizeof label);
    return 0;
}

static inline int cache_map(void *user, dlp_item *it) { /* augments: another time in each epoch */
    uint64_t word;
    const cache_case *c = user;
    if (c->ragged && it->length[0] == 0) return 0;
    memcpy(&word, it->data[0], 8);
    word ^= dlp_item_random(it, 3);
    memcpy(it->data[0], &word, 8);
    return 0;
}

static inline int cache_decode(void *user, dlp_item *it) { /* not to be done twice */
    const cache_case *c = user;
    uint64_t word = 0;
    uint64_t n = c->ragged ? it->length[0] : 3,
             drawn = c->decodes == 2 ? dlp_item_random(it, 9) : 0;
    __atomic_add_fetch(&c->count->decoded, 1, __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&word, (uint8_t *)it->data[0] + 8 * i, 8);
        word = word * 5 + it->index + drawn;
        memcpy((uint8_t *)it->data[0] + 8 * i, &word, 8);
    }
    if (c->ragged && n > 0) it->length[0] = n - 1;
    return c->fail_every && it->index % (uint64_t)c->fail_every == 6
               ? dlp_fail(it->call, EIO, "can't be decoded")
               : 0;
}

static inline void cache_descs(cache_case *c) {
    const dlp_field words = {"words", DLP_U64, 1, {3}, c->ragged, 0};
    const dlp_field label = {"label", DLP_U32, 0, {0}, 0, 0};
    c->fields[0] = words;
    c->fields[1] = label;
    c->dataset.n_items = c->n_items;
    c->dataset.fields = c->fields;
    c->dataset.n_fields = 2;
    c->dataset.fetch = cache_fetch;
    c->dataset.user = c;
    memset(&c->sampler, 0, sizeof c->sampler);
    c->sampler.order = c->order ? c->order : c->shuffle ? DLP_ORDER_SHUFFLED : 0;
    c->sampler.samples_per_epoch = c->samples;
    c->sampler.seed = 3;
    memset(&c->fetch, 0, sizeof c->fetch);
    c->fetch.dataset = &c->dataset;
    c->fetch.workers.num_workers = c->workers;
    c->fetch.workers.dispatch = c->dispatch ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    c->fetch.workers.placement = c->placement;
    c->fetch.workers.on_error = c->on_error;
    c->fetch.workers.retries = c->retries;
    c->map = (dlp_node){
        .verb = DLP_MAP, .map = {.item = cache_map, .user = c}, .workers = c->fetch.workers};
    c->map.workers.retries = 0;
    c->batch = (dlp_node){
        .verb = DLP_BATCH,
        .batch = {.batch_size = c->batch_size, .collate = c->collate ? dlp_collate_pad : NULL},
        .workers = {.placement = c->placement}};
}

static inline int cache_try(cache_case *c, dlp_pipe **p, dlp_error *err) {
    const dlp_pipe_desc desc = {
        .prefetch_factor = c->prefetch, .resume = c->resume, .epochs = c->epochs};
    rig_table t = {.n = 0};
    int rc;
    cache_descs(c);
    table_list(&t, &c->sampler);
    table_fetch(&t, &c->fetch, 0);
    if (c->decodes) {
        dlp_node decode = c->map;
        decode.map.item = cache_decode;
        decode.workers.on_error = c->on_error;
        table_row(&t, decode);
    }
    if (c->bytes) table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = {.bytes = c->bytes}});
    if (c->maps) table_row(&t, c->map);
    table_row(&t, c->batch);
    if ((rc = table_pipe(&t, p, &desc, err)) != DLP_OK) return rc;
    if ((rc = dlp_pipe_start(*p)) == DLP_OK) return rc; /* its worker processes know *p */
    if (err) *err = *dlp_pipe_error(*p);
    dlp_pipe_close(*p);
    return rc;
}

static inline int cache_open(cache_case *c, dlp_pipe **p) {
    dlp_error err;
    char text[700];
    int rc = cache_try(c, p, &err);
    if (rc == DLP_OK) return rc;
    dlp_error_format(&err, text, sizeof text);
    printf("start: %s\n", text);
    CHECK(rc == DLP_OK);
    return rc;
}

/* Run it to its end, or until c->stop_after batches are consumed. */
static inline cache_run cache_take(const cache_case *c, dlp_pipe *p) {
    cache_run r;
    dlp_batch *b;
    uint64_t n = 0;
    memset(&r, 0, sizeof r);
    r.digest = c->digest;
    while ((r.rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        r.digest = dlp_hash(r.digest, digest_batch(b), 0, 0);
        r.rows += b->count;
        dlp_pipe_release(p, b);
        if (++n == c->stop_after) break;
    }
    if (r.rc != DLP_OK && r.rc != DLP_END) rig_say(p, r.rc);
    CHECK(dlp_pipe_state(p, NULL, &r.state) == DLP_OK);
    CHECK(dlp_pipe_stats(p, &r.s) == DLP_OK);
    CHECK(dlp_pipe_explain(p, r.words, sizeof r.words) > 0);
    CHECK(c->bytes == 0 || strstr(r.words, "\nCache: ") != NULL);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    r.calls = c->count->calls;
    r.bad_calls = c->count->bad_calls;
    return r;
}

static inline cache_run cache_go(cache_case *c) {
    dlp_pipe *p;
    cache_run none;
    memset(c->count, 0, sizeof *c->count);
    memset(&none, 0, sizeof none);
    if (cache_open(c, &p) != DLP_OK) return none;
    return cache_take(c, p);
}

#endif
