/* What comes out of a pipe, as numbers to compare. After dlpipe.h. */
#ifndef DIGEST_H
#define DIGEST_H

static inline uint64_t digest_add(uint64_t h, const void *at, uint64_t n) {
    const uint8_t *bytes = at;
    for (uint64_t i = 0; i < n; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* All that the caller is promised of a batch, but for its sequence. */
static inline uint64_t digest_batch(const dlp_batch *b) {
    uint64_t h = dlp_hash(b->epoch, b->in_epoch, b->position, b->count * 2 + b->flags);
    h = digest_add(h, b->index, 8u * b->count);
    h = digest_add(h, b->valid, b->count);
    for (uint32_t f = 0; f < b->n_fields; f++) {
        const dlp_tensor *t = &b->fields[f];
        h = digest_add(h, t->shape, 8u * (uint64_t)t->ndim);
        h = digest_add(h, t->data, t->bytes);
        if (t->lengths) h = digest_add(h, t->lengths, 8u * b->count);
        if (t->offsets) h = digest_add(h, t->offsets, 8u * (b->count + UINT64_C(1)));
    }
    return dlp_hash(h, b->valid_count, 0, 0);
}

typedef struct seen {
    uint64_t epoch, in_epoch, sum;
} seen;

static inline seen seen_of(const dlp_batch *b) {
    return (seen){b->epoch, b->in_epoch, digest_batch(b)};
}

#endif
