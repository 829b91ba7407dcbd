/* needs: parts */
#pragma once
/* tests: system/stages/found, system/stages/found_spread */
#include "order/found.h"
/* ---- inputs dealt by their weights ----
   The inputs are taken heaviest first. Inputs of equal weight come in a permutation of the seed or,
   unshuffled, by their number. Each goes to the stream whose weights have the least sum so far, or
   to the first of several such streams. This is the rule of the longest processing time first
   (Graham, Bounds on Multiprocessing Timing Anomalies, 1969). So a stream has the same inputs in
   each pass and epoch, and a pass permutes each stream by itself. */

static inline uint64_t dlpi_found_weights_bytes(const dlpi_found_plan *q) {
    return q->n_inputs * 12 + (q->streams + 1) * 8;
}

typedef struct dlpi_weighed { /* an input or a stream, in a heap or a sort by weight */
    uint64_t weight, number;  /* number: the input's place in the order; the stream's number */
} dlpi_weighed;

static int dlpi_weighed_heavier(const void *a, const void *b) {
    const dlpi_weighed *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static inline bool dlpi_weighed_lighter(const dlpi_weighed *x, const dlpi_weighed *y) {
    return x->weight < y->weight || (x->weight == y->weight && x->number < y->number);
}

/* Restore a heap of n streams, lightest first, whose first stream has become heavier. */
static void dlpi_weighed_sift(dlpi_weighed *heap, uint64_t n) {
    for (uint64_t i = 0, least; (least = 2 * i + 1) < n; i = least) {
        dlpi_weighed x = heap[i];
        if (least + 1 < n && dlpi_weighed_lighter(&heap[least + 1], &heap[least])) least++;
        if (!dlpi_weighed_lighter(&heap[least], &x)) return;
        heap[i] = heap[least];
        heap[least] = x;
    }
}

/* Write the stream of each input to owner[]. inputs [n_inputs], heap [streams]: scratch memory. */
DLPI_COLD static void dlpi_found_owners(const dlpi_found_plan *q, dlpi_weighed *inputs,
                                        dlpi_weighed *heap, uint32_t *owner) {
    dlp_permutation places;
    dlp_permutation_init(&places, q->n_inputs, dlpi_hash_in(DLPI_DOMAIN_PARTS, q->seed, UINT64_MAX),
                         0);
    for (uint64_t j = 0; j < q->n_inputs; j++) {
        uint64_t input = q->shuffle_inputs ? dlp_permutation_at(&places, j) : j;
        inputs[j] = (dlpi_weighed){q->weights[input] ? q->weights[input] : 1, j};
    }
    qsort(inputs, (size_t)q->n_inputs, sizeof *inputs, dlpi_weighed_heavier);
    for (uint64_t s = 0; s < q->streams; s++) heap[s] = (dlpi_weighed){0, s};
    for (uint64_t j = 0; j < q->n_inputs; j++) {
        uint64_t place = inputs[j].number;
        owner[q->shuffle_inputs ? dlp_permutation_at(&places, place) : place] =
            (uint32_t)heap[0].number;
        heap[0].weight += inputs[j].weight;
        dlpi_weighed_sift(heap, q->streams);
    }
}

/* List the inputs of stream 0, then of stream 1 and so on, each in ascending order. */
static void dlpi_found_gather_members(dlpi_found_plan *q, const uint32_t *owner) {
    memset(q->first, 0, (size_t)(q->streams + 1) * sizeof *q->first);
    for (uint64_t i = 0; i < q->n_inputs; i++) q->first[owner[i] + 1]++;
    q->most_inputs = 0;
    for (uint64_t s = 0; s < q->streams; s++) {
        if (q->first[s + 1] > q->most_inputs) q->most_inputs = q->first[s + 1];
        q->first[s + 1] += q->first[s];
    }
    for (uint64_t i = 0; i < q->n_inputs; i++) q->members[q->first[owner[i]]++] = (uint32_t)i;
    for (uint64_t s = q->streams; s > 0; s--) q->first[s] = q->first[s - 1];
    q->first[0] = 0;
}

/* Deal all inputs to the streams by weight. Returns false if there is no memory for it. */
static bool dlpi_found_deal(dlpi_found_plan *q) {
    dlpi_weighed *inputs = malloc((size_t)q->n_inputs * sizeof *inputs);
    dlpi_weighed *heap = malloc((size_t)q->streams * sizeof *heap);
    uint32_t *owner = malloc((size_t)q->n_inputs * sizeof *owner);
    bool ok = inputs != NULL && heap != NULL && owner != NULL;
    if (ok) {
        dlpi_found_owners(q, inputs, heap, owner);
        dlpi_found_gather_members(q, owner);
    }
    free(inputs);
    free(heap);
    free(owner);
    return ok;
}
