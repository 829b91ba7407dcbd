/* What bench_hand.c and bench_hand_peers.cc share: the work, an item of it, the consumer, and the
   peers. For C and C++. */
#ifndef BENCH_HAND_H
#define BENCH_HAND_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* n_items is a multiple of batch, so that each batch is full. */
struct hand_work {
    uint64_t n_items, row_bytes;
    uint32_t batch, slots, workers; /* slots: batches in memory, the consumer's one included */
    uint32_t turns;                 /* of computing an item; 0: it is only copied */
    bool skewed;                    /* 1 item of 100 takes 100 times as many turns */
    bool ahead;                     /* whoever copies an item prefetches those that come soon */
    bool by_rows;                   /* ours makes several rows in one call */
    bool helps;                     /* ours has a worker less, and the consumer helps */
    const uint8_t *source;
    const uint32_t *order; /* the shuffled order of the peers, made before the clock starts */
};

/* Compute: a chain of multiplications that no compiler can shorten. */
static inline uint64_t hand_compute(uint64_t x, uint64_t turns) {
    for (uint64_t i = 0; i < turns; i++) { x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u; }
    return x;
}

static inline bool hand_is_slow(uint64_t index) {
    return (uint32_t)(index * 2654435761u) % 100 == 0;
}

/* Write one row: what dlpipe's fetch and each peer's worker do. */
static inline void hand_item(const struct hand_work *w, uint64_t index, uint8_t *to) {
    memcpy(to, w->source + index * w->row_bytes, w->row_bytes);
    if (w->turns != 0) {
        uint64_t turns = w->skewed && hand_is_slow(index) ? 100u * w->turns : w->turns;
        if (hand_compute(index + 1, turns) == 0) { to[0] ^= 1; } /* never: 0 comes of 0 alone */
    }
}

enum { HAND_AHEAD = 4 }; /* rows from the one that is copied to the one that is prefetched */

static inline void hand_prefetch(const struct hand_work *w, uint64_t index) {
    for (uint64_t at = 0; at < w->row_bytes; at += 64)
        __builtin_prefetch(w->source + index * w->row_bytes + at);
}

/* Consume one full batch. Returns false if it was the last one. */
bool hand_take(void *consumer, const uint8_t *rows);

/* A way to do this work without a loader. run: start threads, give the consumer one batch after
   another until it wants no more, end the threads. */
struct hand_peer {
    const char *name, *version;
    const char *missing; /* why the peer is left out; NULL: it takes part */
    bool is_ordered;     /* batches and rows come in the order of the work */
    void (*run)(const struct hand_work *w, void *consumer);
};

extern const struct hand_peer hand_peers[];
extern const int hand_n_peers;

#ifdef __cplusplus
}
#endif

#endif
