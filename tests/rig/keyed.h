/* The arithmetic of keyed orders, as the documentation has it, beside the library's: hashes of
   words, and public permutations by them. */
#ifndef KEYED_H
#define KEYED_H

static inline uint64_t mixed(uint64_t h, uint64_t word) { /* a word more: SplitMix64's finaliser */
    uint64_t z = (h ^ word) + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t keyed(uint64_t domain, uint64_t seed, uint64_t a) {
    return mixed(mixed(mixed(0, seed), domain), a);
}

static inline uint64_t permuted(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t at) {
    static dlp_permutation p;
    if (p.n != n || p.seed != seed || p.epoch != epoch) dlp_permutation_init(&p, n, seed, epoch);
    return dlp_permutation_at(&p, at);
}

#endif
