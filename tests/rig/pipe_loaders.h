#ifndef PIPE_LOADERS_H
#define PIPE_LOADERS_H

#include "pipe_life.h"

/* ---- loaders of all makes ---- */

enum {
    LIFE_CLASSIC,
    LIFE_CONCURRENT,
    LIFE_PARTS,
    LIFE_PARTS_SORTED,
    LIFE_CHUNKS,
    LIFE_CHUNKS_DEVICE,
    LIFE_CHUNKS_STAY,
    LIFE_CHUNKS_STAY_DEVICE,
    LIFE_CACHE,
    LIFE_TUNED,
    LIFE_STREAM,
    LIFE_KINDS
};

RIG_UNUSED static int life_stream(void *user, dlp_item *it) {
    return it->index >= 100 ? DLP_END : rig_fetch(user, it);
}
RIG_UNUSED static int life_part(void *user, dlp_part *part) {
    (void)user;
    part->bytes = 8;
    memcpy(part->data, &part->index, 8);
    return 0;
}
RIG_UNUSED static int life_chunk(void *user, dlp_chunk *c) {
    (void)user;
    memset(c->data[0], 1, (size_t)c->count * 16);
    return 0;
}

RIG_UNUSED static int life_chunks_open(int kind, dlp_pipe **p, const rig *r, dlp_error *e) {
    dlp_chunks_desc d;
    memset(&d, 0, sizeof d);
    d.n_items = 100;
    d.fields = r->fields;
    d.n_fields = 1;
    d.chunk_rows = 20;
    d.batch_size = 10;
    d.load = life_chunk;
    d.workers.num_workers = 2;
    d.pipe.max_held = 2;
    if (kind == LIFE_CHUNKS_DEVICE || kind == LIFE_CHUNKS_STAY_DEVICE) d.device = dlp_device_host();
    d.shuffle_rows = kind == LIFE_CHUNKS || kind == LIFE_CHUNKS_DEVICE;
    if (kind == LIFE_CHUNKS_STAY) d.preload = DLP_PRELOAD_CPU;
    if (kind == LIFE_CHUNKS_STAY_DEVICE) d.preload = DLP_PRELOAD_DEVICE;
    return dlp_chunks_open(p, &d, e);
}

/* One of them, with 10 batches to come. */
RIG_UNUSED static int life_open(int kind, dlp_pipe **p, dlp_error *e) {
    static uint64_t items[10] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10};
    dlp_loader_desc d, *l = &d;
    rig r;
    rig_default(&r);
    if (kind >= LIFE_CHUNKS && kind <= LIFE_CHUNKS_STAY_DEVICE)
        return life_chunks_open(kind, p, &r, e);
    memset(&d, 0, sizeof d);
    l->dataset = r.dataset;
    l->dataset.fields = r.fields;
    l->batch_size = 10;
    l->num_workers = 2;
    if (kind == LIFE_CLASSIC || kind == LIFE_CONCURRENT) l->collate = dlp_collate_pad;
    if (kind == LIFE_CLASSIC) l->topology = DLP_TOPOLOGY_CLASSIC;
    if (kind == LIFE_CONCURRENT) l->topology = DLP_TOPOLOGY_CONCURRENT;
    if (kind == LIFE_CONCURRENT) l->fetcher = DLP_FETCH_THREADS, l->in_flight = 3;
    if (kind == LIFE_CACHE) l->cache.bytes = 1000;
    if (kind == LIFE_TUNED) l->workers.workers_max = 5;
    if (kind == LIFE_STREAM) {
        l->dataset.n_items = 0;
        l->dataset.open_end = 1;
        l->dataset.fetch = life_stream;
    }
    if (kind != LIFE_PARTS && kind != LIFE_PARTS_SORTED) return dlp_loader_open(p, &d, e);
    d.parts.n_parts = 10;
    d.parts.items = items;
    d.parts.max_part_bytes = 8;
    d.parts.load = life_part;
    d.parts.workers.num_workers = 2;
    l->shuffle = kind == LIFE_PARTS;
    l->device = kind == LIFE_PARTS ? dlp_device_host() : NULL;
    l->transfer_thread = kind == LIFE_PARTS;
    return dlp_loader_open(p, &d, e);
}

#endif
